/* SPDX-License-Identifier: MIT
 * test_sweep_kill.c - a sweep whose supervisor, worker or rank is killed at random moments, and resumed each
 * time: no run that was committed is lost, the keys in the end are those of the plan, no process and no
 * segment is left. BS_TEST_BIG: a thousand kills. And what else may go wrong with its folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "lab/process/process.h"
#include "lab/store/fsck.h"
#include "lab/store/read.h"
#include "lab/sweep/sweep.h"
#include "tests/child.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"
#include "tests/sweep/points.h"

enum { POINTS = 12 };

static bs_context *context;
static char root[500], worker[1200];
static const char *words[] = {"stub", root, NULL};
static const bs_sweep_options options = {.program = worker, .words = words, .jobs = 1};

static void set_up(void) {
  bs_error err = BS_ERROR_INIT;
  const bs_context_options o = {.struct_size = sizeof o, .log_level = BS_LOG_ERROR};
  ck_assert_int_eq(bs_context_open(&o, &context, &err), BS_OK);
  if (access("/dev/shm", W_OK) == 0)
    setenv("TMPDIR", "/dev/shm", 1); /* each run is synced: a disk takes long */
  snprintf(root, sizeof root, "%.499s", scratch_dir());
  snprintf(worker, sizeof worker, "%s/tests/sweep_stub_worker", getenv("BS_TEST_BINARY_DIR"));
  bs_leftover_adopt(); /* orphans of a supervisor that was killed would be ours */
}

static void tear_down(void) {
  bs_context_close(context);
  remove_dir(root);
}

/* A sweep whose supervisor is this process; its exit code. */
static int supervise(const char *id, int resume) {
  bs_error err = BS_ERROR_INIT;
  bs_sweep s;
  int number = 0;
  int32_t rc = resume ? bs_sweep_resume(root, id, context, 0, &s, &err)
                      : bs_sweep_begin(root, id, json_object(), make_points(context, POINTS), &s, &err);
  if (rc == BS_OK) rc = bs_sweep_run(&s, &options, &number, &err);
  int left = 0;
  for (size_t i = 0; rc == BS_OK && i < json_array_size(s.points); i++)
    left += s.outcomes[i].state != BS_POINT_DONE && s.outcomes[i].state != BS_POINT_BEFORE;
  bs_sweep_close(&s);
  return rc != BS_OK ? (int)bs_status_exit_code(rc) : left > 0 ? 12 : 0;
}

static pid_t start(const char *id, int resume) {
  fflush(NULL);
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) _exit(supervise(id, resume));
  return pid;
}

/* request_key -> run of all committed runs that did not break off; each is right. */
static json_t *committed(const char *id) {
  char folder[700];
  bs_error err = BS_ERROR_INIT;
  bs_runs_stats stats;
  json_t *rows = NULL, *keys = json_object();
  size_t i;
  const json_t *row;
  snprintf(folder, sizeof folder, "%s/%s", root, id);
  ck_assert_msg(bs_runs_index(folder, &rows, &stats, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(stats.damaged, 0);
  bs_runs_stats_free(&stats);
  json_array_foreach(rows, i, row) {
    const char *key = json_string_value(json_object_get(row, "request_key"));
    ck_assert_ptr_nonnull(key);
    if (strcmp(json_string_value(json_object_get(row, "status")), "failed") == 0) continue;
    ck_assert_str_eq(json_string_value(json_object_get(row, "word")), "RIGHT");
    ck_assert_msg(json_object_get(keys, key) == NULL, "%s ran twice", key);
    json_object_set(keys, key, json_object_get(row, "run"));
  }
  json_decref(rows);
  return keys;
}

/* Returns 1 when a process was there to be killed. */
static int kill_at_random(pid_t supervisor, unsigned *seed) {
  const struct timespec some = {0, rand_r(seed) % 30000000};
  const int deep = rand_r(seed) % 3;
  pid_t victim = supervisor;
  nanosleep(&some, NULL); /* the moment is what is tried */
  for (int i = 0; i < deep; i++) victim = victim > 0 ? child_of(victim) : 0;
  return victim > 0 && kill(victim, SIGKILL) == 0;
}

/* Waits for the supervisor, and for orphans of it that came to us; returns its status. */
static int take_all(pid_t supervisor) {
  int status = 0, of = 0;
  for (;;) {
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == ECHILD) return of;
    if (pid == supervisor) of = status;
  }
}

static void no_segment_is_left(void) {
  DIR *dir = opendir("/dev/shm");
  for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
    ck_assert_msg(strncmp(e->d_name, "vader_segment.stub.", 19) != 0, "%s is left", e->d_name);
  if (dir != NULL) closedir(dir);
}

static void nothing_was_lost(const json_t *before, const json_t *now) {
  const char *key;
  json_t *run;
  json_object_foreach((json_t *)(uintptr_t)before, key, run)
      ck_assert_msg(json_equal(run, json_object_get(now, key)), "%s is lost", json_string_value(run));
}

/* What the kills left can be put right, and no run is damaged. */
static void can_be_put_right(const char *id) {
  char folder[700];
  snprintf(folder, sizeof folder, "%s/%s", root, id);
  for (int repair = 1; repair >= 0; repair--) {
    bs_error err = BS_ERROR_INIT;
    bs_fsck found;
    ck_assert_msg(bs_fsck_run(folder, repair, &found, &err) == BS_OK, "%s", err.message);
    ck_assert_uint_eq(found.damaged, 0);
    ck_assert_uint_eq(found.whole, found.runs);
    bs_fsck_free(&found);
  }
}

/* One sweep, killed until it is done; returns how often a process was hit. */
static int kill_one(int number, unsigned *seed) {
  char id[32];
  int kills = 0, rounds = 0, status;
  json_t *known = json_object(), *points = make_points(context, POINTS);
  size_t i;
  const json_t *point;
  snprintf(id, sizeof id, "kill-%d", number);
  char plan[700];
  snprintf(plan, sizeof plan, "%s/%s/plan.jsonl", root, id);
  do {
    const pid_t supervisor = start(id, access(plan, F_OK) == 0);
    kills += kill_at_random(supervisor, seed);
    ck_assert_int_lt(rounds++, 400); /* it comes to an end */
    status = take_all(supervisor);
    json_t *now = committed(id);
    nothing_was_lost(known, now);
    json_decref(known);
    known = now;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 11 &&
        access(plan, F_OK) != 0) { /* killed before its plan */
      remove_dir(root);
      ck_assert_int_eq(mkdir(root, 0700), 0);
    }
  } while (!WIFEXITED(status) || WEXITSTATUS(status) != 0);
  ck_assert_uint_eq(json_object_size(known), POINTS);
  json_array_foreach(points, i, point)
      ck_assert_ptr_nonnull(json_object_get(known, json_string_value(json_object_get(point, "request_key"))));
  json_decref(points);
  json_decref(known);
  no_segment_is_left();
  can_be_put_right(id);
  return kills;
}

START_TEST(kills_lose_nothing) {
  const char *big = getenv("BS_TEST_BIG");
  const int wanted = big != NULL ? 1000 : 24;
  unsigned seed = 20261;
  json_decref(make_points(context, POINTS)); /* sums of the plugins' files are known from here on */
  for (int number = 0, kills = 0; kills < wanted; number++) kills += kill_one(number, &seed);
}
END_TEST

START_TEST(one_process_at_a_time_runs_a_sweep) {
  bs_error err = BS_ERROR_INIT;
  bs_sweep first, second;
  ck_assert_int_eq(bs_sweep_begin(root, "s", json_object(), make_points(context, 2), &first, &err), BS_OK);
  ck_assert_int_eq(bs_sweep_begin(root, "s", json_object(), make_points(context, 2), &second, &err), BS_BUSY);
  ck_assert_str_eq(err.id, "BS-SWEEP-LOCK");
  bs_sweep_close(&second);
  ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &second, &err), BS_BUSY);
  ck_assert_str_eq(err.id, "BS-SWEEP-LOCK");
  bs_sweep_close(&second);
  ck_assert_int_eq(ftruncate(first.folder.lock_fd, 0), 0); /* who it is has not been written yet */
  ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &second, &err), BS_BUSY);
  ck_assert_msg(strstr(err.message, "run by another process") != NULL, "%s", err.message);
  bs_sweep_close(&second);
  ck_assert_int_eq(bs_sweep_begin(root, "t", json_object(), make_points(context, 2), &second, &err), BS_OK);
  bs_sweep_close(&second);
  bs_sweep_close(&first);
  ck_assert_int_eq(bs_sweep_begin(root, "s", json_object(), make_points(context, 2), &second, &err), BS_BUSY);
  ck_assert_str_eq(err.id, "BS-SWEEP-EXISTS");
  bs_sweep_close(&second);
  ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &first, &err), BS_OK);
  bs_sweep_close(&first);
  ck_assert_int_eq(bs_sweep_resume(root, "u", context, 0, &first, &err), BS_INPUT);
  bs_sweep_close(&first);
  ck_assert_int_eq(bs_sweep_resume(root, "../s", context, 0, &first, &err), BS_USAGE);
  bs_sweep_close(&first);
}
END_TEST

START_TEST(a_plan_that_is_not_whole_is_told) {
  char folder[700], *text;
  bs_error err = BS_ERROR_INIT;
  bs_sweep s;
  ck_assert_int_eq(bs_sweep_begin(root, "s", json_object(), make_points(context, 2), &s, &err), BS_OK);
  bs_sweep_close(&s);
  snprintf(folder, sizeof folder, "%s/s", root);
  text = read_text(folder, "plan.jsonl");
  const size_t size = strlen(text);
  for (size_t cut = 0; cut < size; cut += 37) { /* torn, then a byte that was changed */
    char *damaged = strdup(text);
    damaged[cut] = '\0';
    write_text(folder, "plan.jsonl", damaged);
    ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &s, &err), BS_CORRUPT);
    bs_sweep_close(&s);
    memcpy(damaged, text, size + 1);
    damaged[cut] = damaged[cut] == 'x' ? 'y' : 'x';
    write_text(folder, "plan.jsonl", damaged);
    ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &s, &err), BS_CORRUPT);
    bs_sweep_close(&s);
    free(damaged);
  }
  write_text(folder, "plan.jsonl", text);
  ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &s, &err), BS_OK);
  bs_sweep_close(&s);
  char plan[800];
  snprintf(plan, sizeof plan, "%s/plan.jsonl", folder);
  ck_assert_int_eq(truncate(plan, (64 << 20) + 1), 0); /* it has holes: no disk is needed */
  ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &s, &err), BS_CORRUPT);
  ck_assert_ptr_nonnull(strstr(err.message, "64 MiB"));
  bs_sweep_close(&s);
  ck_assert_int_eq(unlink(plan), 0);
  ck_assert_int_eq(mkfifo(plan, 0600), 0); /* nobody will ever write to it */
  ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &s, &err), BS_IO);
  bs_sweep_close(&s);
  free(text);
}
END_TEST

START_TEST(a_plan_of_another_format_is_not_run) {
  static const char *const formats[] = {"{\"format\": 2}", "{\"format\": \"1\"}", "{\"format\": null}"};
  bs_error err = BS_ERROR_INIT;
  bs_sweep s;
  json_t *header = json_loads(formats[_i], 0, NULL);
  ck_assert_int_eq(bs_sweep_begin(root, "s", header, make_points(context, 2), &s, &err), BS_OK);
  bs_sweep_close(&s);
  ck_assert_int_eq(bs_sweep_resume(root, "s", context, 0, &s, &err), BS_INPUT);
  ck_assert_str_eq(err.id, "BS-SWEEP-PLAN");
  bs_sweep_close(&s);
}
END_TEST

/* A limit of the size of files stands for a full disk: writes end with an error (SIGXFSZ is ignored). */
static int with_little_room(size_t bytes) {
  const struct rlimit limit = {bytes, bytes};
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    bs_error err = BS_ERROR_INIT;
    bs_sweep s;
    int number = 0;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    int32_t rc = bs_sweep_begin(root, "s", json_object(), make_points(context, POINTS), &s, &err);
    if (rc == BS_OK) rc = bs_sweep_run(&s, &options, &number, &err);
    bs_sweep_close(&s);
    _exit(rc == BS_IO && strcmp(err.id, "BS-SWEEP-IO") == 0 ? 10 : 99);
  }
  int status;
  while (waitpid(pid, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
  return WEXITSTATUS(status);
}

START_TEST(a_full_disk_stops_the_sweep_and_loses_nothing) {
  char folder[700];
  snprintf(folder, sizeof folder, "%s/s", root);
  ck_assert_int_eq(with_little_room(100), 10); /* not even the plan: nothing is left of it */
  ck_assert_int_ne(access(folder, F_OK), 0);
  ck_assert_int_eq(with_little_room(40000), 10); /* a plan, and no run */
  ck_assert_int_eq(supervise("s", 1), 0);
  json_t *keys = committed("s");
  ck_assert_uint_eq(json_object_size(keys), POINTS);
  json_decref(keys);
}
END_TEST

/* A point that could not be stored is the last one, though there is room for little things again; one that
 * is too large for the memory is not. */
START_TEST(a_point_without_room_ends_the_sweep) {
  static const char *const ids[] = {"BS-STO-IO", "BS-MEM"};
  bs_error err = BS_ERROR_INIT;
  bs_sweep s;
  int number = 0, failed = 0;
  setenv("BS_STUB_FAILS", ids[_i], 1);
  ck_assert_int_eq(bs_sweep_begin(root, "s", json_object(), make_points(context, POINTS), &s, &err), BS_OK);
  const int32_t rc = bs_sweep_run(&s, &options, &number, &err);
  unsetenv("BS_STUB_FAILS");
  ck_assert_int_eq(rc, _i == 0 ? BS_IO : BS_OK);
  if (_i == 0) ck_assert_str_eq(err.id, "BS-SWEEP-IO");
  for (int i = 0; i < POINTS; i++) failed += s.outcomes[i].state == BS_POINT_FAILED;
  ck_assert_int_eq(failed, _i == 0 ? 1 : POINTS);
  bs_sweep_close(&s);
}
END_TEST

START_TEST(a_root_that_cannot_be_written_is_one_error) {
  char file[700];
  bs_error err = BS_ERROR_INIT;
  bs_sweep s;
  write_text(root, "file", "");
  snprintf(file, sizeof file, "%s/file", root); /* root may do everything, but not this */
  ck_assert_int_eq(bs_sweep_begin(file, "s", json_object(), make_points(context, 1), &s, &err), BS_IO);
  ck_assert_str_eq(err.id, "BS-SWEEP-IO");
  bs_sweep_close(&s);
  ck_assert_int_eq(bs_sweep_begin("/proc/nowhere", "s", json_object(), make_points(context, 1), &s, &err),
                   BS_IO);
  bs_sweep_close(&s);
}
END_TEST

int main(void) {
  const test_case tests[] = {{kills_lose_nothing},
                             {one_process_at_a_time_runs_a_sweep},
                             {a_plan_that_is_not_whole_is_told},
                             {a_plan_of_another_format_is_not_run, 3},
                             {a_full_disk_stops_the_sweep_and_loses_nothing},
                             {a_point_without_room_ends_the_sweep, 2},
                             {a_root_that_cannot_be_written_is_one_error},
                             {0}};
  return run_tests("sweep_kill", tests, (test_setup){.before = set_up, .after = tear_down});
}
