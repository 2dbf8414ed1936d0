/* SPDX-License-Identifier: MIT
 * test_run_launch.c - ranks that are processes and go wrong: what a rank that is killed or stopped at an op
 * ends in; a launcher that is killed or interrupted; ranks that are configured differently; torchrun's
 * environment; no process and no shared memory left. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_help.h"

#define SMALL                                                                                        \
  "--out", "out", "--set", "model.dtype=f32", "--set", "model.N=48", "--set", "model.K=72", "--set", \
      "model.B=8", "--set", "phase.timed_iters=2", "--set", "phase.warmup_iters=1", "--run-id", "it", "-q"

/* ---- ranks that go wrong ------------------------------------------------------------------------ */

static size_t shared_files(void) {
  size_t n = 0;
  DIR *dir = opendir("/dev/shm");
  for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
    n += strstr(e->d_name, "blockshock") != NULL;
  if (dir != NULL) closedir(dir);
  return n;
}

typedef struct death {
  const char *plan, *phase, *op;
  int rank, code;
  const char *id;
} death;

static const death deaths[] = {
    {"rank=0,op=all_reduce,seq=0,do=kill", "0", "all_reduce", 0, 7, "BS-RANK-DEAD"},
    {"rank=1,op=all_reduce,seq=0,do=kill", "0", "all_reduce", 1, 7, "BS-RANK-DEAD"},
    {"rank=2,op=all_reduce,seq=2,do=kill", "0", "all_reduce", 2, 7, "BS-RANK-DEAD"},
    {"rank=1,op=all_reduce,seq=9,do=kill", "1", "all_reduce", 1, 7, "BS-RANK-DEAD"},
    {"rank=0,op=all_reduce,seq=9,do=kill", "1", "all_reduce", 0, 7, "BS-RANK-DEAD"},
    {"rank=1,op=all_gather,seq=1,do=kill", "2", "all_gather", 1, 7, "BS-RANK-DEAD"},
    {"rank=0,op=all_reduce,seq=1,do=stop", "0", "all_reduce", 0, 8, "BS-COLL-DEADLINE"},
    {"rank=2,op=all_reduce,seq=2,do=stop", "0", "all_reduce", 2, 8, "BS-COLL-DEADLINE"},
    {"rank=1,op=all_reduce,seq=9,do=stop", "1", "all_reduce", 1, 8, "BS-COLL-DEADLINE"},
    {"rank=1,op=all_gather,seq=1,do=stop", "2", "all_gather", 1, 8, "BS-COLL-DEADLINE"},
    {"rank=1,op=all_reduce,seq=0,do=err", "0", "all_reduce", 1, 7, "BS-COLL-ABORTED"},
    {"rank=1,op=all_reduce,seq=0,do=truncate", "0", "all_reduce", 1, 9, "BS-COLL-MISMATCH"},
};

START_TEST(test_gone) {
  const death *d = &deaths[_i];
  char folder[64], id[64], plan[96], who[16], done[200];
  run_result r;
  run_make_folder(folder);
  snprintf(plan, sizeof plan, "plugins.fault.plan=%s", d->plan);
  snprintf(who, sizeof who, "rank %d", d->rank);
  const char *const args[] = {"--launch",
                              "processes",
                              "--method",
                              "blockshock",
                              "-P",
                              "3",
                              "--mask",
                              "interleave",
                              "--phase",
                              d->phase,
                              "--timeout",
                              "0.5",
                              "--comm",
                              "fault:threads",
                              SMALL,
                              "--set",
                              plan,
                              "--set",
                              "phase.pairs_min=5",
                              "--set",
                              "phase.pairs_max=5",
                              NULL};
  run_bsrun(&r, folder, NULL, args);
  run_expect(&r, d->code, d->plan);
  run_expect_error(&r, 1, id, d->plan);
  if (strcmp(id, d->id) != 0 || strstr(r.err, who) == NULL || strstr(r.err, d->op) == NULL)
    ck_abort_msg("%s: wanted %s, %s and %s in: %s", d->plan, d->id, who, d->op, r.err);
  const double most = (d->code == 8 ? 0.5 : 0.0) + 3.0; /* starting and sanitizers included */
  ck_assert_msg(r.seconds < most, "%s took %g s", d->plan, r.seconds);
  snprintf(done, sizeof done, "%s/out", folder);
  if (d->rank != 0) ck_assert_uint_eq(run_count_files(done, "DONE"), 1);
  ck_assert_uint_eq(shared_files(), 0);
  run_free(&r);
  run_remove(folder);
}
END_TEST

/* Processes of the session that are bsrun: a killed launcher takes its ranks along. */
static size_t ranks_of(pid_t session) {
  size_t n = 0;
  DIR *dir = opendir("/proc");
  for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
    char path[300], text[512] = "";
    long pid = strtol(e->d_name, NULL, 10);
    if (pid <= 0) continue;
    snprintf(path, sizeof path, "/proc/%.200s/stat", e->d_name);
    FILE *f = fopen(path, "r");
    if (f == NULL) continue;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    char state = 0;
    int parent = 0, group = 0, of = 0;
    const char *after = strrchr(text, ')');
    if (after != NULL && sscanf(after + 1, " %c %d %d %d", &state, &parent, &group, &of) == 4 &&
        of == (int)session && state != 'Z')
      n++;
  }
  if (dir != NULL) closedir(dir);
  return n;
}

static pid_t start(const char *folder, const char *const *args) {
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid != 0) return pid;
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (chdir(folder) != 0 || freopen("out.txt", "w", stdout) == NULL ||
      freopen("err.txt", "w", stderr) == NULL)
    _exit(125);
  execv(args[0], (char *const *)(size_t)args);
  _exit(126);
}

static int wait_for(double limit, pid_t session, size_t wanted) {
  for (int i = 0; i < (int)(limit * 100.0); i++) {
    if (ranks_of(session) == wanted) return 1;
    usleep(10000);
  }
  return 0;
}

START_TEST(test_signalled_launcher) {
  static const int signals[] = {SIGKILL, SIGINT, SIGTERM};
  static const int codes[] = {-1, 130, 143};
  char folder[64];
  int status = 0;
  run_make_folder(folder);
  const char *const args[] = {run_env("BS_TEST_BSRUN"),
                              "--launch",
                              "processes",
                              "--method",
                              "blockshock",
                              "-P",
                              "2",
                              "--phase",
                              "0",
                              "--out",
                              "out",
                              "--set",
                              "model.N=512",
                              "--set",
                              "model.K=512",
                              "--set",
                              "phase.timed_iters=10000000",
                              "--run-id",
                              "it",
                              NULL};
  const pid_t pid = start(folder, args);
  ck_assert_msg(wait_for(10.0, pid, 3), "%zu processes, not 3", ranks_of(pid));
  usleep(500000); /* into the run; nothing is judged by it */
  kill(pid, signals[_i]);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  if (codes[_i] > 0) ck_assert_int_eq(WEXITSTATUS(status), codes[_i]);
  ck_assert_msg(wait_for(2.0, pid, 0), "%zu processes are left", ranks_of(pid));
  ck_assert_uint_eq(run_count_files(folder, "DONE"), 0);
  ck_assert_uint_eq(shared_files(), 0);
  run_remove(folder);
}
END_TEST

/* ---- started by something else ------------------------------------------------------------------ */

/* Two ranks as torchrun would start them; rank 1 has `more` as its last option. */
static void run_torch(const char *folder, const char *port, const char *const more[2], int codes[2]) {
  pid_t pids[2];
  for (int r = 0; r < 2; r++) {
    char rank[8], sub[96];
    const char *const args[] = {run_env("BS_TEST_BSRUN"),
                                "--method",
                                "blockshock",
                                "--phase",
                                "0",
                                "--timeout",
                                "20",
                                SMALL,
                                "-o",
                                "jsonl",
                                "--set",
                                more[r],
                                NULL};
    snprintf(rank, sizeof rank, "%d", r);
    setenv("RANK", rank, 1);
    setenv("LOCAL_RANK", rank, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    snprintf(sub, sizeof sub, "%s/%d", folder, r);
    ck_assert_int_eq(mkdir(sub, 0700), 0);
    pids[r] = start(sub, args);
  }
  for (int r = 0; r < 2; r++) {
    int status = 0;
    ck_assert_int_eq(waitpid(pids[r], &status, 0), pids[r]);
    codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
}

START_TEST(test_torchrun) {
  char folder[64], port[16], sub[96];
  int codes[2];
  run_make_folder(folder);
  snprintf(port, sizeof port, "%d", (int)getpid()); /* a name, not a port: nothing listens on it */
  const char *const other[] = {"experiment.seed=1", "experiment.seed=2"};
  const char *const same[] = {"experiment.seed=1", "experiment.seed=1"};
  run_torch(folder, port, _i == 0 ? same : other, codes);
  for (int r = 0; r < 2; r++) {
    snprintf(sub, sizeof sub, "%s/%d", folder, r);
    char *out = run_read(sub, "out.txt", NULL), *err = run_read(sub, "err.txt", NULL);
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
  run_remove(folder);
}
END_TEST

int main(void) {
  Suite *s = suite_create("launch");
  TCase *t = tcase_create("launch");
  tcase_add_loop_test(t, test_gone, 0, (int)(sizeof deaths / sizeof deaths[0]));
  tcase_add_loop_test(t, test_signalled_launcher, 0, 3);
  tcase_add_loop_test(t, test_torchrun, 0, 2);
  suite_add_tcase(s, t);
  SRunner *runner = srunner_create(s);
  srunner_run_all(runner, CK_NORMAL);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed == 0 ? 0 : 1;
}
