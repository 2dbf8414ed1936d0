/* SPDX-License-Identifier: MIT
 * test_sweep_tasks.c - the supervisor: what it tells of its tasks, deadlines, budgets, signals, several at
 * once, and that nothing is left behind. The tasks are lines for the shell. */
#include "lab/sweep/tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lab/process/process.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

/* The input is what the shell is to do. */
static const char *const words[] = {"sh", "-c", ". \"$1\"", "sh", NULL};

typedef struct seen {
  int began, ended, most, now;
  int32_t answer;
} seen;

static void on_began(void *user, const bs_task *task) {
  seen *s = user;
  (void)task;
  s->began++;
  if (++s->now > s->most) s->most = s->now;
}

static int32_t on_ended(void *user, const bs_task *task, bs_error *err) {
  seen *s = user;
  s->ended++;
  s->now--;
  return task->code != 0 && s->answer != BS_OK ? bs_error_set(err, s->answer, "BS-TEST", "enough") : BS_OK;
}

static bs_tasks_options options(seen *s) {
  return (bs_tasks_options){
      .program = "/bin/sh", .words = words, .jobs = 1, .began = on_began, .ended = on_ended, .user = s};
}

static bs_task *make(const char *const *scripts, size_t n) {
  bs_task *tasks = calloc(n, sizeof *tasks);
  for (size_t i = 0; i < n; i++) {
    tasks[i].input = strdup(scripts[i]);
    tasks[i].id = (int64_t)i;
  }
  return tasks;
}

static void nobody_is_left(void) {
  ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
  ck_assert_int_eq(errno, ECHILD);
}

START_TEST(each_task_says_how_it_ended) {
  static const char *const scripts[] = {
      "echo hello", "echo 'x: note: a' >&2; echo 'x: error[BS-A] b' >&2; echo z >&2; exit 3", "kill -9 $$",
      "exit 0"};
  seen s = {0};
  bs_error err = BS_ERROR_INIT;
  int number = 0;
  bs_task *tasks = make(scripts, 4);
  const bs_tasks_options o = options(&s);
  ck_assert_int_eq(bs_tasks_run(tasks, 4, &o, &number, &err), BS_OK);
  ck_assert_int_eq(number, 0);
  ck_assert_int_eq(s.began, 4);
  ck_assert_int_eq(s.ended, 4);
  ck_assert_int_eq(s.most, 1);
  ck_assert_str_eq(tasks[0].out, "hello\n");
  ck_assert_int_eq(tasks[0].code, 0);
  ck_assert_int_eq(tasks[1].code, 3);
  ck_assert_str_eq(tasks[1].said, "x: error[BS-A] b");
  ck_assert_int_eq(tasks[2].code, 137);
  for (size_t i = 0; i < 4; i++) ck_assert_int_eq(tasks[i].state, BS_TASK_ENDED);
  bs_tasks_free(tasks, 4);
  nobody_is_left();
}
END_TEST

START_TEST(a_program_that_is_not_there_is_a_code) {
  static const char *const scripts[] = {""};
  seen s = {0};
  bs_error err = BS_ERROR_INIT;
  int number = 0;
  bs_task *tasks = make(scripts, 1);
  bs_tasks_options o = options(&s);
  o.program = "/nowhere/sh";
  ck_assert_int_eq(bs_tasks_run(tasks, 1, &o, &number, &err), BS_OK);
  ck_assert_int_eq(tasks[0].code, 127);
  bs_tasks_free(tasks, 1);
}
END_TEST

START_TEST(several_run_at_once_but_none_beside_one_that_is_alone) {
  /* Each of the first two waits for the other's file. */
  char one[1200], two[1200];
  const char *dir = scratch_dir();
  seen s = {0};
  bs_error err = BS_ERROR_INIT;
  int number = 0;
  snprintf(one, sizeof one, ": >'%s/a'; while [ ! -e '%s/b' ]; do :; done", dir, dir);
  snprintf(two, sizeof two, ": >'%s/b'; while [ ! -e '%s/a' ]; do :; done", dir, dir);
  const char *const scripts[] = {one, two, "exit 0", "exit 0"};
  bs_task *tasks = make(scripts, 4);
  bs_tasks_options o = options(&s);
  o.jobs = 2;
  ck_assert_int_eq(bs_tasks_run(tasks, 4, &o, &number, &err), BS_OK);
  ck_assert_int_eq(s.most, 2);
  ck_assert_int_eq(tasks[1].code, 0);
  bs_tasks_free(tasks, 4);
  tasks = make(scripts + 2, 2);
  tasks[1].alone = 1;
  s = (seen){0};
  ck_assert_int_eq(bs_tasks_run(tasks, 2, &o, &number, &err), BS_OK);
  ck_assert_int_eq(s.most, 1);
  bs_tasks_free(tasks, 2);
  remove_dir(dir);
}
END_TEST

/* One that hangs, with a child in another session that would outlive it. */
#define HANGS \
  "setsid sh -c 'while :; do read x; done </dev/zero' & trap '' TERM; while :; do read x; done </dev/zero"
#define WAITS "exec sleep 1000"

START_TEST(a_late_task_is_ended_and_the_others_run) {
  static const char *const scripts[] = {WAITS, "exit 0"};
  seen s = {0};
  bs_error err = BS_ERROR_INIT;
  int number = 0;
  bs_task *tasks = make(scripts, 2);
  bs_tasks_options o = options(&s);
  o.deadline_s = 0.2;
  ck_assert_int_eq(bs_tasks_run(tasks, 2, &o, &number, &err), BS_OK);
  ck_assert_int_eq(tasks[0].state, BS_TASK_LATE);
  ck_assert_int_eq(tasks[1].state, BS_TASK_ENDED);
  bs_tasks_free(tasks, 2);
  nobody_is_left();
}
END_TEST

START_TEST(the_budget_ends_all) {
  static const char *const scripts[] = {"exit 0", WAITS, "exit 0"};
  seen s = {0};
  bs_error err = BS_ERROR_INIT;
  int number = 0;
  bs_task *tasks = make(scripts, 3);
  bs_tasks_options o = options(&s);
  o.budget_s = 0.3;
  ck_assert_int_eq(bs_tasks_run(tasks, 3, &o, &number, &err), BS_DEADLINE);
  ck_assert_str_eq(err.id, "BS-SWEEP-BUDGET");
  ck_assert_int_eq(tasks[0].state, BS_TASK_ENDED);
  ck_assert_int_eq(tasks[1].state, BS_TASK_LEFT);
  ck_assert_int_eq(tasks[2].state, BS_TASK_LEFT);
  ck_assert_int_eq(s.began, 2);
  bs_tasks_free(tasks, 3);
}
END_TEST

START_TEST(the_caller_can_stop_after_a_task) {
  static const char *const scripts[] = {"exit 5", "exit 0"};
  seen s = {.answer = BS_SOME_FAILED};
  bs_error err = BS_ERROR_INIT;
  int number = 0;
  bs_task *tasks = make(scripts, 2);
  const bs_tasks_options o = options(&s);
  ck_assert_int_eq(bs_tasks_run(tasks, 2, &o, &number, &err), BS_SOME_FAILED);
  ck_assert_int_eq(s.began, 1);
  ck_assert_int_eq(tasks[1].state, BS_TASK_LEFT);
  bs_tasks_free(tasks, 2);
}
END_TEST

/* The supervisor in a process of its own; the first task tells by a file that it runs. */
static void supervise(const char *script, int number, int again, int wanted) {
  char started[700], text[1400];
  const char *dir = scratch_dir();
  snprintf(started, sizeof started, "%s/started", dir);
  ck_assert_int_eq(mkfifo(started, 0600), 0);
  snprintf(text, sizeof text, ": >'%s'; %s", started, script);
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    const char *const scripts[] = {text, "exit 0"};
    seen s = {0};
    bs_error err = BS_ERROR_INIT;
    int got = 0;
    bs_task *tasks = make(scripts, 2);
    const bs_tasks_options o = options(&s);
    const int32_t rc = bs_tasks_run(tasks, 2, &o, &got, &err);
    const int ok = rc == BS_OK && tasks[0].state == BS_TASK_LEFT && tasks[1].state == BS_TASK_LEFT;
    bs_tasks_free(tasks, 2);
    _exit(ok ? got : 99);
  }
  int status, fd;
  while ((fd = open(started, O_RDONLY)) < 0) ck_assert_int_eq(errno, EINTR);
  close(fd);
  kill(supervisor, number);
  if (again) kill(supervisor, again);
  while (waitpid(supervisor, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
  ck_assert_int_eq(WEXITSTATUS(status), wanted);
  remove_dir(dir);
}

START_TEST(a_signal_is_the_running_tasks_and_the_rest_is_left) {
  bs_leftover_adopt(); /* orphans of the supervisor would be ours */
  supervise(WAITS, SIGINT, 0, SIGINT);
  supervise(WAITS, SIGTERM, 0, SIGTERM);
  nobody_is_left();
}
END_TEST

START_TEST(a_second_signal_kills) {
  bs_leftover_adopt();
  supervise("trap '' INT TERM; " HANGS, SIGINT, SIGTERM, SIGINT);
  nobody_is_left();
}
END_TEST

START_TEST(what_a_killed_task_leaves_is_ended) {
  static const char *const scripts[] = {"setsid sh -c 'while :; do read x; done </dev/zero' & kill -9 $$"};
  seen s = {0};
  bs_error err = BS_ERROR_INIT;
  int number = 0;
  bs_task *tasks = make(scripts, 1);
  const bs_tasks_options o = options(&s);
  ck_assert_int_eq(bs_tasks_run(tasks, 1, &o, &number, &err), BS_OK);
  ck_assert_int_eq(tasks[0].code, 137);
  bs_tasks_free(tasks, 1);
  nobody_is_left();
}
END_TEST

START_TEST(segments_that_nobody_maps_are_removed) {
  char used[64], left[64], other[64];
  snprintf(used, sizeof used, "/vader_segment.test.%d.1", (int)getpid());
  snprintf(left, sizeof left, "/vader_segment.test.%d.2", (int)getpid());
  snprintf(other, sizeof other, "/bs_test_other.%d", (int)getpid());
  const char *const names[] = {used, left, other};
  int fds[3];
  for (size_t i = 0; i < 3; i++) {
    fds[i] = shm_open(names[i], O_RDWR | O_CREAT | O_EXCL, 0600);
    ck_assert_int_ge(fds[i], 0);
    ck_assert_int_eq(ftruncate(fds[i], 4096), 0);
  }
  void *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fds[0], 0);
  ck_assert_ptr_ne(at, MAP_FAILED);
  bs_leftover_segments(0.0);
  ck_assert_int_eq(shm_unlink(used), 0);  /* it is in use */
  ck_assert_int_eq(shm_unlink(left), -1); /* it was removed */
  ck_assert_int_eq(shm_unlink(other), 0); /* it is no segment of an MPI */
  munmap(at, 4096);
  for (size_t i = 0; i < 3; i++) close(fds[i]);
}
END_TEST

/* A pipe that is never empty: what a call takes of it is bounded. */
START_TEST(a_call_takes_a_bounded_part_of_a_pipe) {
  static const char block[65536] = {1};
  int ends[2], left = 0;
  bs_text text = {0};
  ck_assert_int_eq(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  if (fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) < 1 << 20) return; /* more than this user may */
  while (write(ends[1], block, sizeof block) > 0) {
  }
  ck_assert_int_eq(bs_process_read(ends[0], &text), 1);
  ck_assert_int_eq(ioctl(ends[0], FIONREAD, &left), 0);
  ck_assert_int_gt(left, 0);
  close(ends[1]);
  for (int i = 0; bs_process_read(ends[0], &text) != 0; i++) ck_assert_int_lt(i, 4);
  close(ends[0]);
  bs_text_free(&text);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_task_says_how_it_ended},
                             {a_program_that_is_not_there_is_a_code},
                             {several_run_at_once_but_none_beside_one_that_is_alone},
                             {a_late_task_is_ended_and_the_others_run},
                             {the_budget_ends_all},
                             {the_caller_can_stop_after_a_task},
                             {a_signal_is_the_running_tasks_and_the_rest_is_left},
                             {a_second_signal_kills},
                             {what_a_killed_task_leaves_is_ended},
                             {segments_that_nobody_maps_are_removed},
                             {a_call_takes_a_bounded_part_of_a_pipe},
                             {0}};
  return run_tests("sweep_tasks", tests, (test_setup){0});
}
