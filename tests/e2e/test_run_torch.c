/* SPDX-License-Identifier: MIT
 * test_run_torch.c - ranks that something else has started: torchrun's environment, ranks that are configured
 * differently or of different jobs, worlds that are not the job's. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "launch_help.h"
#include "tests/run_tests.h"

/* One of two ranks as torchrun would start it. */
typedef struct torch_rank {
  const char *size, *method, *P, *set, *workload;
} torch_rank;

static void run_torch(const char *port, const torch_rank ranks[2], int codes[2]) {
  pid_t pids[2];
  for (int r = 0; r < 2; r++) {
    char rank[8], sub[96];
    const char *const args[] = {run_env("BS_TEST_BSRUN"),
                                "--method",
                                ranks[r].method,
                                "--phase",
                                "0",
                                "--timeout",
                                "60",
                                SMALL_RUN,
                                "-o",
                                "jsonl",
                                "--set",
                                ranks[r].set,
                                ranks[r].P != NULL ? "-P" : NULL,
                                ranks[r].P,
                                ranks[r].workload != NULL ? "--workload" : NULL,
                                ranks[r].workload,
                                NULL};
    snprintf(rank, sizeof rank, "%d", r);
    setenv("RANK", rank, 1);
    setenv("LOCAL_RANK", rank, 1);
    setenv("WORLD_SIZE", ranks[r].size, 1);
    setenv("LOCAL_WORLD_SIZE", ranks[r].size, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    snprintf(sub, sizeof sub, "%s/%d", dir, r);
    ck_assert(mkdir(sub, 0700) == 0 || errno == EEXIST);
    pids[r] = start(sub, args);
  }
  for (int r = 0; r < 2; r++) {
    int status = 0;
    ck_assert_int_eq(waitpid(pids[r], &status, 0), pids[r]);
    codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
}

START_TEST(test_torchrun) {
  char port[16], sub[96];
  int codes[2];
  snprintf(port, sizeof port, "%d", (int)getpid()); /* a name, not a port: nothing listens on it */
  const torch_rank other[] = {{"2", "blockshock", NULL, "experiment.seed=1", NULL},
                              {"2", "blockshock", NULL, "experiment.seed=2", NULL}};
  const torch_rank same[] = {other[0], other[0]};
  run_torch(port, _i == 0 ? same : other, codes);
  for (int r = 0; r < 2; r++) {
    snprintf(sub, sizeof sub, "%s/%d", dir, r);
    char *out = read_text(sub, "out.txt"), *err = read_text(sub, "err.txt");
    ck_assert_msg(codes[r] == (_i == 0 ? 0 : 9), "rank %d: %d: %s", r, codes[r], err);
    ck_assert_uint_eq(run_count_files(sub, "DONE"), _i == 0 && r == 0);
    ck_assert_msg((out[0] != '\0') == (_i == 0 && r == 0), "rank %d: %s", r, out);
    if (_i == 1)
      ck_assert_msg(strstr(err, "experiment.seed=2") != NULL && strstr(err, "experiment.seed=1") != NULL &&
                        strstr(err, "rank 1") != NULL,
                    "rank %d: %s", r, err);
    free(out);
    free(err);
  }
  ck_assert_uint_eq(shared_files(), 0);
}
END_TEST

/* A world of one is no world for a job of two: every rank says so, none is left waiting for a leader. */
START_TEST(test_torchrun_alone) {
  char port[16], sub[96];
  int codes[2];
  snprintf(port, sizeof port, "%d", (int)getpid());
  const torch_rank alone[] = {{"2", "dense", "1", "experiment.seed=1", NULL},
                              {"2", "dense", "1", "experiment.seed=1", NULL}};
  run_torch(port, alone, codes);
  for (int r = 0; r < 2; r++) {
    snprintf(sub, sizeof sub, "%s/%d", dir, r);
    char *err = read_text(sub, "err.txt");
    ck_assert_msg(codes[r] == 3 && strstr(err, "BS-WORLD-SIZE") != NULL, "rank %d: %d: %s", r, codes[r], err);
    ck_assert_uint_eq(run_count_files(sub, "DONE"), 0);
    free(err);
  }
}
END_TEST

/* A world of two and one of three at one address: told at once, to both, whoever leads. */
START_TEST(test_torchrun_sizes) {
  static const char *const sizes[][2] = {{"2", "3"}, {"3", "2"}};
  char port[16], sub[96];
  int codes[2];
  snprintf(port, sizeof port, "%d", (int)getpid());
  const torch_rank ranks[] = {{sizes[_i][0], "row_parallel", NULL, "experiment.seed=1", NULL},
                              {sizes[_i][1], "row_parallel", NULL, "experiment.seed=1", NULL}};
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  run_torch(port, ranks, codes);
  clock_gettime(CLOCK_MONOTONIC, &after);
  for (int r = 0; r < 2; r++) {
    snprintf(sub, sizeof sub, "%s/%d", dir, r);
    char *err = read_text(sub, "err.txt");
    ck_assert_msg(codes[r] == 9 && strstr(err, "BS-RANK-HELLO") != NULL && strstr(err, "rank 1") != NULL,
                  "rank %d: %d: %s", r, codes[r], err);
    ck_assert_uint_eq(run_count_files(sub, "DONE"), 0);
    free(err);
  }
  ck_assert_int_lt(after.tv_sec - before.tv_sec, 55); /* of a deadline of 60 s */
}
END_TEST

/* One that is to choose and one that need not, also by what would have stood in: nobody is left waiting. */
START_TEST(test_one_chooses) {
  char port[16], sub[96];
  int codes[2];
  snprintf(port, sizeof port, "%d", (int)getpid());
  torch_rank ranks[] = {{"2", "row_parallel", "2", "experiment.seed=1", NULL},
                        {"2", "row_parallel", "2", "experiment.seed=1", NULL}};
  ranks[_i].method = "auto";
  run_torch(port, ranks, codes);
  for (int r = 0; r < 2; r++) {
    snprintf(sub, sizeof sub, "%s/%d", dir, r);
    char *err = read_text(sub, "err.txt");
    ck_assert_msg(codes[r] == 9 && strstr(err, "BS-RANK-CONFIG") != NULL &&
                      strstr(err, "method.name=auto") != NULL &&
                      strstr(err, "method.name=row_parallel") != NULL,
                  "rank %d: %d: %s", r, codes[r], err);
    free(err);
  }
}
END_TEST

/* W of 48 x 72, the last element as told. */
static void write_weights(const char *in, float last) {
  static const char about[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (48, 72), }";
  static char file[128 + 48 * 72 * sizeof last];
  memset(file, 0, sizeof file);
  memset(file, ' ', 128);
  memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
  memcpy(file + 10, about, sizeof about - 1);
  file[127] = '\n';
  memcpy(file + sizeof file - sizeof last, &last, sizeof last);
  run_write(in, "w.npy", file, sizeof file);
}

/* The same name, another file: told before anything runs, not judged as a wrong result. */
START_TEST(test_other_weights) {
  char port[16], sub[96];
  int codes[2];
  snprintf(port, sizeof port, "%d", (int)getpid());
  const torch_rank rank = {"2", "row_parallel", "2", "workload.weights=w.npy", "file"};
  const torch_rank ranks[] = {rank, rank};
  for (int r = 0; r < 2; r++) {
    snprintf(sub, sizeof sub, "%s/%d", dir, r);
    ck_assert_int_eq(mkdir(sub, 0700), 0);
    write_weights(sub, _i == 0 ? 1.0f : (float)r);
  }
  run_torch(port, ranks, codes);
  for (int r = 0; r < 2; r++) {
    snprintf(sub, sizeof sub, "%s/%d", dir, r);
    char *err = read_text(sub, "err.txt");
    ck_assert_msg(codes[r] == (_i == 0 ? 0 : 9), "rank %d: %d: %s", r, codes[r], err);
    ck_assert_msg(_i == 0 || strstr(err, "workload.weights: w.npy: ") != NULL, "rank %d: %s", r, err);
    ck_assert_uint_eq(run_count_files(sub, "DONE"), _i == 0 && r == 0);
    free(err);
  }
}
END_TEST

/* In a job's environment ranks that are to be threads are: this process is alone, and says what it does. */
START_TEST(test_threads_in_a_job) {
  static const char *const env[] = {
      "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1", NULL};
  const char *const args[] = {"--launch", "threads", "--method", "row_parallel", "-P",    "2",
                              "--phase",  "0",       SMALL_RUN,  "-o",           "jsonl", NULL};
  ran r;
  run_bsrun(&r, dir, env, args);
  run_expect(&r, 0, "threads in a job");
  ck_assert_ptr_nonnull(strstr(r.out, "RIGHT"));
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 1);
  ran_free(&r);
}
END_TEST

/* Variables of a launcher that is gone, whose numbers and paths are by now a user's file: it stays as it is.
 */
START_TEST(test_stale_environment) {
  static const char *const names[][4] = {
      {"BLOCKSHOCK_RANK=1", "BLOCKSHOCK_WORLD_SIZE=2", "BLOCKSHOCK_SHM_FD=9", "BLOCKSHOCK_BOARD_FD=9"},
      {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "BLOCKSHOCK_MPI_BOARD=/proc/self/fd/9",
       "BLOCKSHOCK_MPI_RANKS=2"}};
  static char text[65536];
  char path[96];
  size_t size = 0;
  ran r;
  memset(text, 'x', sizeof text);
  run_write(dir, "mine", text, sizeof text);
  snprintf(path, sizeof path, "%s/mine", dir);
  ck_assert_int_eq(dup2(open(path, O_RDWR), 9), 9);
  const char *const env[] = {names[_i][0], names[_i][1], names[_i][2], names[_i][3], NULL};
  /* the first an error that is put on the board, the second one of joining: the file is what is shared */
  for (int k = 0; k < 2; k++) {
    const char *const args[] = {
        "--method", k == 0 ? "nothing" : "row_parallel", "--phase", "0", SMALL_RUN, "--timeout", "0.5",
        "--comm",   _i == 0 ? "shm" : "threads",         NULL};
    if (_i == 1 && k == 1) break; /* MPI would be started */
    run_bsrun(&r, dir, env, args);
    ck_assert_msg(r.code > 0, "ended with %d: %s", r.code, r.err);
    if (k == 1) ck_assert_msg(strstr(r.err, "BS-SHM-FD") != NULL, "%s", r.err);
    ran_free(&r);
    char *now = run_read(dir, "mine", &size);
    ck_assert_msg(size == sizeof text && memcmp(now, text, size) == 0, "the file was written to");
    free(now);
  }
  close(9);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {test_torchrun, 2},          {test_torchrun_alone},   {test_one_chooses, 2},   {test_torchrun_sizes, 2},
      {test_stale_environment, 2}, {test_other_weights, 2}, {test_threads_in_a_job}, {0}};
  return run_tests("torch", tests, (test_setup){dir_make, dir_remove});
}
