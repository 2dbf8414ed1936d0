/* SPDX-License-Identifier: MIT
 * test_store.c - run folders: what lies in one, that it is whole or absent, clashes, links, full and
 * read-only disks, locks, several writers. */
#include "lab/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "lab/store/sha256.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static const char *dir;
static bs_node *config;

static void setup(void) {
  dir = scratch_dir();
  config = parse_tree("model: {N: 4}\n");
}

static void teardown(void) {
  bs_config_free(config);
  remove_dir(dir);
}

static bs_run_request request(const char *run_id) {
  bs_run_request q = {
      .out_dir = dir, .phase = "phase0_correctness", .method = "dense", .run_id = run_id, .key = KEY};
  q.config = config;
  q.env = "{}\n";
  q.seed = 725;
  return q;
}

/* In place of the C library's: the lock looks as if somebody held it for a moment. */
static int busy_for_a_moment;
int flock(int fd, int operation) {
  if (busy_for_a_moment && (operation & LOCK_NB) != 0) {
    errno = EWOULDBLOCK;
    return -1;
  }
  return (int)syscall(SYS_flock, fd, operation);
}

START_TEST(a_check_that_holds_the_lock_for_a_moment_is_waited_for) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = NULL;
  const bs_run_request q = request("run");
  busy_for_a_moment = 1;
  const int32_t rc = bs_store_begin(&q, &run, &err);
  busy_for_a_moment = 0;
  ck_assert_msg(rc == BS_OK, "%s", err.message);
  bs_store_abandon(run);
}
END_TEST

static int entries(const char *path) {
  char command[700];
  int n = -1;
  snprintf(command, sizeof command, "find '%s' -mindepth 1 -not -type d 2>/dev/null | wc -l", path);
  FILE *f = popen(command, "r");
  ck_assert_int_eq(fscanf(f, "%d", &n), 1);
  pclose(f);
  return n;
}

START_TEST(a_run_is_whole) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = NULL;
  char path[1024], hex[65];
  const bs_run_request q = request(NULL);
  ck_assert_msg(bs_store_begin(&q, &run, &err) == BS_OK, "%s", err.message);
  snprintf(path, sizeof path, "%s", bs_run_get_path(run));
  char want[700];
  snprintf(want, sizeof want, "%s/phase0_correctness/dense/", dir);
  ck_assert(strncmp(path, want, strlen(want)) == 0);
  ck_assert_uint_eq(strlen(bs_run_get_id(run)), 15 + 1 + 12); /* stamp _ key */
  ck_assert(strstr(path, "_0123456789ab") != NULL);
  ck_assert_ptr_null(read_text(path, "DONE"));
  for (int i = 0; i < 3; i++) {
    json_t *record = json_pack("{s:i, s:s}", "i", i, "text", "a\"b");
    ck_assert_int_eq(bs_store_append(run, record, &err), BS_OK);
    json_decref(record);
  }
  ck_assert_int_eq(bs_store_samples(run, "samples", 7, &err), BS_OK);
  ck_assert_int_eq(bs_store_commit(run, "ok", &err), BS_OK);

  char *text = read_text(path, "config.yaml");
  ck_assert(strstr(text, "N: 4") != NULL && strstr(text, "run_id:") != NULL);
  char *seed = read_text(path, "seed.txt");
  ck_assert_str_eq(seed, "725\n");
  free(seed);
  char *metrics = read_text(path, "metrics.jsonl");
  int lines = 0;
  for (char *save = NULL, *line = strtok_r(metrics, "\n", &save); line != NULL;
       line = strtok_r(NULL, "\n", &save)) {
    json_t *record = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(record);
    ck_assert_int_eq(json_integer_value(json_object_get(record, "seq")), lines);
    const char *end = strstr(line, ",\"crc32c\":");
    char sum[16];
    snprintf(sum, sizeof sum, "%08x", bs_crc32c(line, (size_t)(end - line)));
    ck_assert_str_eq(json_string_value(json_object_get(record, "crc32c")), sum);
    const char *own = json_string_value(json_object_get(record, "config"));
    ck_assert_int_eq(own != NULL && strcmp(own, text) == 0, lines == 0);
    ck_assert_int_eq(json_is_array(json_object_get(record, "argv")), lines == 0);
    json_decref(record);
    lines++;
  }
  ck_assert_int_eq(lines, 3);
  free(metrics);
  free(text);
  text = read_text(path, "DONE");
  json_t *done = json_loads(text, 0, NULL);
  ck_assert_str_eq(json_string_value(json_object_get(done, "status")), "ok");
  ck_assert_int_eq(json_integer_value(json_object_get(done, "records")), 3);
  ck_assert_str_eq(json_string_value(json_object_get(done, "result_key")), KEY);
  ck_assert(json_is_number(json_object_get(json_object_get(done, "after"), "stolen_s")));
  json_t *sums = json_object_get(done, "sha256"), *sum;
  const char *name;
  ck_assert_uint_eq(json_object_size(sums), 2); /* metrics.jsonl and samples.bin: what counts */
  json_object_foreach(sums, name, sum) {
    char file[1200];
    snprintf(file, sizeof file, "%s/%s", path, name);
    ck_assert_int_eq(bs_sha256_file(file, hex, &err), BS_OK);
    ck_assert_str_eq(json_string_value(sum), hex);
  }
  json_decref(done);
  free(text);
  ck_assert_ptr_null(read_text(path, "DONE.tmp"));
}
END_TEST

/* A run that cannot be finished is removed, and the error names its file as the user knows it. */
START_TEST(an_unfinished_run_is_removed) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = NULL;
  char file[1100];
  const bs_run_request q = request("mine");
  ck_assert_int_eq(bs_store_begin(&q, &run, &err), BS_OK);
  snprintf(file, sizeof file, "%s/metrics.jsonl", bs_run_get_path(run));
  ck_assert_int_eq(unlink(file), 0);
  ck_assert_int_eq(bs_store_commit(run, "ok", &err), BS_IO);
  ck_assert_msg(strstr(err.message, file) != NULL, "%s", err.message);
  ck_assert_int_eq(entries(dir), 0);
}
END_TEST

START_TEST(a_taken_name_gets_a_suffix) {
  static const char *const want[] = {"mine", "mine-2", "mine-3"};
  for (int i = 0; i < 3; i++) {
    bs_error err = BS_ERROR_INIT;
    bs_run *run = NULL;
    const bs_run_request q = request("mine");
    ck_assert_msg(bs_store_begin(&q, &run, &err) == BS_OK, "%s", err.message);
    ck_assert_str_eq(bs_run_get_id(run), want[i]);
    const char *id = NULL;
    ck_assert_int_eq(bs_config_str(config, "run_id", NULL, &id, &err), BS_OK);
    ck_assert_str_eq(id, want[i]);
    char *text = read_text(bs_run_get_path(run), "config.yaml");
    ck_assert_ptr_nonnull(strstr(text, want[i]));
    free(text);
    ck_assert_int_eq(bs_store_commit(run, "ok", &err), BS_OK);
  }
}
END_TEST

START_TEST(an_abandoned_run_leaves_nothing) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = NULL;
  const bs_run_request q = request("gone");
  ck_assert_int_eq(bs_store_begin(&q, &run, &err), BS_OK);
  ck_assert_int_gt(entries(dir), 0);
  bs_store_abandon(run);
  ck_assert_int_eq(entries(dir), 0);
}
END_TEST

START_TEST(an_open_run_is_locked) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = NULL;
  char path[1200];
  const bs_run_request q = request("locked");
  ck_assert_int_eq(bs_store_begin(&q, &run, &err), BS_OK);
  snprintf(path, sizeof path, "%s/lock", bs_run_get_path(run));
  const int fd = open(path, O_RDWR);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_ne(flock(fd, LOCK_EX | LOCK_NB), 0);
  ck_assert_int_eq(bs_store_commit(run, "ok", &err), BS_OK);
  ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
  close(fd);
}
END_TEST

START_TEST(links_below_the_root_are_not_followed) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = NULL;
  char link[700], target[700];
  snprintf(target, sizeof target, "%s/target", dir);
  snprintf(link, sizeof link, "%s/phase0_correctness", dir);
  ck_assert_int_eq(mkdir(target, 0700), 0);
  ck_assert_int_eq(symlink(target, link), 0);
  const bs_run_request q = request(NULL);
  ck_assert_int_eq(bs_store_begin(&q, &run, &err), BS_IO);
  ck_assert_ptr_null(run);
  ck_assert_int_eq(bs_status_exit_code(err.code), 10);
  ck_assert_int_eq(entries(target), 0);
}
END_TEST

START_TEST(a_file_as_root_is_refused) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = NULL;
  char path[700];
  write_text(dir, "file", "x");
  snprintf(path, sizeof path, "%s/file", dir);
  bs_run_request q = request(NULL);
  q.out_dir = path;
  ck_assert_int_eq(bs_store_begin(&q, &run, &err), BS_IO);
  ck_assert_str_eq(err.id, "BS-STO-IO");
  snprintf(path, sizeof path, "%s/file/below", dir);
  ck_assert_int_eq(bs_store_begin(&q, &run, &err), BS_IO);
}
END_TEST

START_TEST(names_are_checked) {
  static const char *const good[] = {"a", "A.b_c-9", "a..."};
  static const char *const bad[] = {"",
                                    ".",
                                    "..",
                                    ".best",
                                    ".0123456789ab.x",
                                    "a/b",
                                    "../x",
                                    "--out",
                                    "-x",
                                    "a b",
                                    "a\nb",
                                    "\x80",
                                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  bs_error err = BS_ERROR_INIT;
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    ck_assert_int_eq(bs_store_check_name("--run-id", good[i], &err), BS_OK);
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    bs_run *run = NULL;
    ck_assert_int_eq(bs_store_check_name("--run-id", bad[i], &err), BS_USAGE);
    ck_assert(strstr(err.message, "--run-id") != NULL);
    const bs_run_request q = request(bad[i]);
    ck_assert_int_eq(bs_store_begin(&q, &run, &err), BS_USAGE);
  }
  ck_assert_int_eq(entries(dir), 0);
}
END_TEST

/* Every limit of the file size from 0 up: either the whole run is there, or nothing of it is. */
START_TEST(a_full_disk_leaves_nothing_half_written) {
  int whole = 0, refused = 0;
  for (rlim_t limit = 0; limit < 2400; limit += 80) {
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
      const struct rlimit r = {limit, RLIM_INFINITY};
      bs_error err = BS_ERROR_INIT;
      bs_run *run = NULL;
      signal(SIGXFSZ, SIG_IGN);
      if (setrlimit(RLIMIT_FSIZE, &r) != 0) _exit(99);
      const bs_run_request q = request("full");
      if (bs_store_begin(&q, &run, &err) != BS_OK) _exit(bs_status_exit_code(err.code));
      json_t *record =
          json_pack("{s:s}", "text", "0123456789012345678901234567890123456789012345678901234567890123");
      if (bs_store_append(run, record, &err) != BS_OK) {
        bs_store_abandon(run);
        _exit(bs_status_exit_code(err.code));
      }
      _exit(bs_store_commit(run, "ok", &err) == BS_OK ? 0 : bs_status_exit_code(err.code));
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    char path[700];
    snprintf(path, sizeof path, "%s/phase0_correctness/dense/full", dir);
    char *done = read_text(path, "DONE");
    if (WEXITSTATUS(status) == 0) {
      ck_assert_ptr_nonnull(done);
      whole++;
    } else {
      ck_assert_int_eq(WEXITSTATUS(status), 10);
      ck_assert_ptr_null(done);
      refused++;
    }
    free(done);
    char command[800];
    snprintf(command, sizeof command, "rm -rf '%s/phase0_correctness'", dir);
    ck_assert_int_eq(system(command), 0);
  }
  ck_assert_int_gt(whole, 0);
  ck_assert_int_gt(refused, 3);
}
END_TEST

START_TEST(a_record_that_does_not_fit_is_cut_off_again) {
  const pid_t pid = fork();
  if (pid == 0) {
    bs_error err = BS_ERROR_INIT;
    bs_run *run = NULL;
    signal(SIGXFSZ, SIG_IGN);
    const bs_run_request q = request("cut");
    if (bs_store_begin(&q, &run, &err) != BS_OK) _exit(90);
    json_t *record = json_pack("{s:s}", "text", "0123456789");
    if (bs_store_append(run, record, &err) != BS_OK) _exit(91);
    char *line = read_text(bs_run_get_path(run), "metrics.jsonl");
    const struct rlimit r = {strlen(line) + 20, RLIM_INFINITY}; /* the second line is of about 60 bytes */
    free(line);
    if (setrlimit(RLIMIT_FSIZE, &r) != 0) _exit(92);
    if (bs_store_append(run, record, &err) != BS_IO) _exit(93);
    _exit(0);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(WEXITSTATUS(status), 0);
  char path[700];
  snprintf(path, sizeof path, "%s/phase0_correctness/dense/cut", dir);
  char *text = read_text(path, "metrics.jsonl");
  ck_assert_ptr_nonnull(text);
  ck_assert_uint_eq(strcspn(text, "\n") + 1, strlen(text)); /* one whole line */
  free(text);
}
END_TEST

START_TEST(many_writers_of_one_name_get_folders_of_their_own) {
  enum { WRITERS = 8, EACH = 5 };
  for (int w = 0; w < WRITERS; w++) {
    if (fork() == 0) {
      for (int i = 0; i < EACH; i++) {
        bs_error err = BS_ERROR_INIT;
        bs_run *run = NULL;
        const bs_run_request q = request("same");
        if (bs_store_begin(&q, &run, &err) != BS_OK || bs_store_commit(run, "ok", &err) != BS_OK) _exit(1);
      }
      _exit(0);
    }
  }
  for (int w = 0; w < WRITERS; w++) {
    int status;
    ck_assert_int_gt(wait(&status), 0);
    ck_assert_int_eq(status, 0);
  }
  ck_assert_int_eq(entries(dir), WRITERS * EACH * 7); /* four files, lock, DONE */
}
END_TEST

START_TEST(interrupted_runs_are_marked) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = NULL;
  const bs_run_request q = request("stopped");
  ck_assert_int_eq(bs_store_begin(&q, &run, &err), BS_OK);
  bs_store_mark_interrupted(bs_run_get_fd(run), SIGTERM);
  char *text = read_text(bs_run_get_path(run), "INTERRUPTED");
  ck_assert_ptr_nonnull(text);
  ck_assert_str_eq(text, "signal 15\n");
  free(text);
  bs_store_abandon(run);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_run_is_whole},
                             {a_check_that_holds_the_lock_for_a_moment_is_waited_for},
                             {an_unfinished_run_is_removed},
                             {a_taken_name_gets_a_suffix},
                             {an_abandoned_run_leaves_nothing},
                             {an_open_run_is_locked},
                             {links_below_the_root_are_not_followed},
                             {a_file_as_root_is_refused},
                             {names_are_checked},
                             {a_full_disk_leaves_nothing_half_written},
                             {a_record_that_does_not_fit_is_cut_off_again},
                             {many_writers_of_one_name_get_folders_of_their_own},
                             {interrupted_runs_are_marked},
                             {0}};
  return run_tests("store", tests, (test_setup){setup, teardown});
}
