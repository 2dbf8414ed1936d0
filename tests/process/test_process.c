/* SPDX-License-Identifier: MIT
 * test_process.c - children of lab/process: what they inherit, how their end and output are read, and that
 * none of them outlives its deadline or its parent. */
#include "lab/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab/process/hear.h"
#include "lab/process/marked.h"
#include "tests/run_tests.h"

#define LONG 15.0 /* seconds that are waited for what must come */

static const int kept[3] = {BS_CHILD_KEEP, BS_CHILD_KEEP, BS_CHILD_KEEP};

static bs_child calling(void (*run)(void *user), void *user) {
  bs_child c = {.run = run, .user = user, .death = SIGKILL};
  memcpy(c.stdio, kept, sizeof kept);
  return c;
}

static bs_child shell(char *script) {
  static char *words[] = {"sh", "-c", NULL, NULL};
  words[2] = script;
  return (bs_child){.program = "/bin/sh",
                    .words = words,
                    .stdio = {BS_CHILD_NULL, BS_CHILD_PIPE, BS_CHILD_PIPE},
                    .death = SIGKILL};
}

static void hang(void *user) {
  (void)user;
  for (;;) pause();
}

/* Both hang, and hold the descriptor. */
static void hang_with_child(void *user) {
  if (fork() >= 0) hang(user);
}

/* 1: every process has closed the other end of the pipe. */
static int is_let_go(int fd) {
  struct pollfd wait_for = {.fd = fd, .events = POLLIN};
  char c;
  return poll(&wait_for, 1, (int)(LONG * 1e3)) == 1 && read(fd, &c, 1) == 0;
}

START_TEST(the_code_says_how_it_ended) {
  static char *const scripts[] = {"exit 0", "exit 3", "kill -9 $$", "kill -TERM $$"};
  static const int codes[] = {0, 3, 128 + SIGKILL, 128 + SIGTERM};
  const bs_child c = shell(scripts[_i]);
  bs_process p;
  ck_assert_int_eq(bs_process_start(&c, &p), 0);
  ck_assert_int_eq(bs_process_watch(&p, LONG), 1);
  ck_assert_int_eq(bs_process_finish(&p), codes[_i]);
  bs_process_free(&p);
}
END_TEST

START_TEST(a_program_that_is_not_there_is_a_code) {
  bs_child c = shell("exit 0");
  c.program = "/nowhere/sh";
  c.stdio[1] = c.stdio[2] = BS_CHILD_NULL;
  ck_assert_int_eq(bs_child_answer(&c, LONG), BS_CHILD_NOT_RUN);
  c.not_run = 70;
  ck_assert_int_eq(bs_child_answer(&c, LONG), 70);
}
END_TEST

/* /dev/null gets the number 0 when it is opened, and the program must inherit it. */
START_TEST(standard_input_is_there_where_the_parent_has_none) {
  bs_child c = shell("test -e /proc/$$/fd/0");
  c.stdio[1] = c.stdio[2] = BS_CHILD_KEEP;
  close(0);
  ck_assert_int_eq(bs_child_answer(&c, LONG), 0);
}
END_TEST

/* The kernel takes the status of children then. */
START_TEST(an_end_is_seen_where_sigchld_is_ignored) {
  const bs_child c = shell("exit 0");
  bs_process p;
  signal(SIGCHLD, SIG_IGN);
  ck_assert_int_eq(bs_process_start(&c, &p), 0);
  ck_assert_int_eq(bs_process_watch(&p, LONG), 1);
  bs_process_finish(&p);
  bs_process_free(&p);
}
END_TEST

/* With its end the child says its last, which is no whole line. */
START_TEST(all_output_is_taken_and_kept_apart) {
  const bs_child c = shell("echo one; printf two; echo three >&2; printf four >&2");
  siginfo_t info;
  bs_process p;
  ck_assert_int_eq(bs_process_start(&c, &p), 0);
  ck_assert_int_eq(waitid(P_PID, (id_t)p.pid, &info, WEXITED | WNOWAIT), 0); /* nothing is read before */
  ck_assert_int_eq(bs_process_finish(&p), 0);
  ck_assert_str_eq(p.out.data, "one\ntwo");
  ck_assert_str_eq(p.err.data, "three\nfour");
  bs_process_free(&p);
}
END_TEST

/* What an ended child has left may hold its pipe. */
START_TEST(an_end_is_seen_although_the_pipe_is_open) {
  const bs_child c = shell("sleep 1000 & exit 5");
  bs_process p;
  ck_assert_int_eq(bs_process_start(&c, &p), 0);
  ck_assert_int_eq(bs_process_watch(&p, LONG), 1);
  ck_assert_int_eq(bs_process_finish(&p), 5);
}
END_TEST

/* A child that has closed its pipes runs on: it waits for its standard input. */
START_TEST(closed_pipes_are_no_end) {
  bs_child c = shell("exec >&- 2>&-; read x; exit 5");
  bs_process p, *const one = &p;
  int ends[2];
  ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
  c.stdio[0] = ends[0];
  ck_assert_int_eq(bs_process_start(&c, &p), 0);
  for (int i = 0; i < 100 && (p.out_fd >= 0 || p.err_fd >= 0); i++)
    ck_assert(bs_process_wait(&one, 1, -1, 100));
  ck_assert(p.out_fd < 0 && p.err_fd < 0 && !p.ended);
  close(ends[1]);
  ck_assert_int_eq(bs_process_watch(&p, LONG), 1);
  ck_assert_int_eq(bs_process_finish(&p), 5);
}
END_TEST

START_TEST(a_deadline_ends_the_child_and_its_group) {
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  bs_child c = calling(hang_with_child, NULL);
  if (_i == 0) {
    ck_assert_int_eq(bs_child_answer(&c, 0.2), 128 + SIGKILL);
  } else {
    bs_process p;
    ck_assert_int_eq(bs_process_start(&c, &p), 0);
    ck_assert_int_eq(bs_process_watch(&p, 0.2), 0);
    if (_i == 1) bs_process_kill(&p);
    if (_i == 2) kill(p.pid, SIGKILL); /* finish sees to the rest */
    ck_assert_int_eq(bs_process_finish(&p), 128 + SIGKILL);
  }
  close(ends[1]);
  ck_assert(is_let_go(ends[0]));
  close(ends[0]);
}
END_TEST

static void tell_and_hang(void *user) {
  const pid_t pid = getpid();
  if (write(((const int *)user)[1], &pid, sizeof pid) == (ssize_t)sizeof pid) hang(user);
}

/* Ends once its child runs. */
static void parent(void *user) {
  const bs_child c = calling(tell_and_hang, user);
  struct pollfd told = {.fd = ((const int *)user)[0], .events = POLLIN};
  _exit(bs_child_start(&c) > 0 && poll(&told, 1, -1) == 1 ? 0 : 1);
}

START_TEST(no_child_outlives_its_parent) {
  int ends[2], status = 0;
  pid_t pid = 0;
  ck_assert_int_eq(pipe(ends), 0);
  bs_leftover_adopt();
  const bs_child c = calling(parent, ends);
  ck_assert_int_eq(bs_child_answer(&c, LONG), 0);
  ck_assert_int_eq(read(ends[0], &pid, sizeof pid), (ssize_t)sizeof pid);
  ck_assert_int_eq(bs_child_ended(pid, LONG, &status), 1);
  ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
END_TEST

static void tell_group(void *user) {
  (void)user;
  _exit(getpgrp() == getpid() ? 1 : getpgrp() == getpgid(getppid()) ? 2 : 3);
}

START_TEST(it_joins_the_group_that_is_named) {
  const bs_child other = calling(hang, NULL);
  bs_child c = calling(tell_group, NULL);
  const pid_t pid = bs_child_start(&other);
  ck_assert_int_eq(getpgid(pid), pid); /* at once, by both of them */
  ck_assert_int_eq(bs_child_answer(&c, LONG), 1);
  c.group = BS_CHILD_KEEP;
  ck_assert_int_eq(bs_child_answer(&c, LONG), 2);
  c.group = pid;
  ck_assert_int_eq(bs_child_answer(&c, LONG), 3);
  bs_child_kill(pid);
  ck_assert(WIFSIGNALED(bs_child_wait(pid)));
}
END_TEST

static void tell_mask(void *user) {
  sigset_t now;
  (void)user;
  sigprocmask(SIG_SETMASK, NULL, &now);
  _exit(sigismember(&now, SIGTERM));
}

START_TEST(its_signals_are_as_asked_for) {
  sigset_t term, none;
  bs_child c = calling(tell_mask, NULL);
  sigemptyset(&none);
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_SETMASK, &term, NULL);
  ck_assert_int_eq(bs_child_answer(&c, LONG), 1);
  c.mask = &none;
  ck_assert_int_eq(bs_child_answer(&c, LONG), 0);
}
END_TEST

static void on_alarm(int number) {
  (void)number;
}

START_TEST(a_signal_here_changes_nothing) {
  const struct itimerval often = {{0, 2000}, {0, 2000}};
  const struct sigaction action = {.sa_handler = on_alarm}; /* calls are broken off */
  bs_child c = shell("sleep 0.2; echo said; exit 4");
  bs_process p;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  ck_assert_int_eq(bs_process_start(&c, &p), 0);
  if (_i == 0) ck_assert_int_eq(bs_process_watch(&p, LONG), 1);
  ck_assert_int_eq(bs_process_finish(&p), _i == 0 ? 4 : 128 + SIGKILL);
  if (_i == 0) ck_assert_str_eq(p.out.data, "said\n");
  bs_process_free(&p);
  c.stdio[1] = c.stdio[2] = BS_CHILD_NULL;
  ck_assert_int_eq(bs_child_code(bs_child_wait(bs_child_start(&c))), 4);
}
END_TEST

enum { MANY = 3 << 20 };

static void say_much(void *user, int fd) {
  static char block[1 << 16];
  (void)user;
  puts("chatter of a plugin");
  fflush(stdout);
  memset(block, 'x', sizeof block);
  for (size_t at = 0; at < MANY; at += sizeof block)
    if (write(fd, block, sizeof block) != (ssize_t)sizeof block) _exit(1);
}

static void say_and_hang(void *user, int fd) {
  if (write(fd, "said", 4) == 4) hang(user);
}

START_TEST(the_whole_answer_is_heard) {
  bs_hearing h = {.say = say_much, .silence_s = LONG, .quiet = 1};
  bs_text text = {0};
  ck_assert_int_eq(bs_hear(&h, &text), 0);
  ck_assert(!h.late && bs_child_code(h.status) == 0);
  ck_assert_uint_eq(text.size, MANY);
  ck_assert_uint_eq(strspn(text.data, "x"), MANY);
  bs_text_free(&text);
}
END_TEST

START_TEST(silence_ends_a_hearing) {
  bs_hearing h = {.say = say_and_hang, .silence_s = 0.2};
  bs_text text = {0};
  ck_assert_int_eq(bs_hear(&h, &text), 0);
  ck_assert(h.late && bs_child_code(h.status) == 128 + SIGKILL);
  ck_assert_str_eq(text.data, "said");
  bs_text_free(&text);
}
END_TEST

static void set_mark(void *user) {
  putenv(user);
}

static void note_pid(void *user, pid_t pid, const char *environment, size_t size) {
  pid_t *found = user;
  ck_assert(*found == 0 && size > 0 && environment[0] != '\0');
  *found = pid;
}

START_TEST(marked_processes_are_found) {
  char mark[64], longer[80];
  pid_t found = 0;
  snprintf(mark, sizeof mark, "BS_TEST_MARK=%d", (int)getpid());
  snprintf(longer, sizeof longer, "%s0", mark);
  bs_child c = shell("echo; exec sleep 1000");
  bs_process p;
  c.run = set_mark;
  c.user = mark;
  ck_assert_int_eq(bs_process_start(&c, &p), 0);
  while (p.out.size == 0) ck_assert_int_eq(bs_process_wait(&(bs_process *){&p}, 1, -1, -1), 1);
  bs_marked_each(longer, note_pid, &found);
  ck_assert_int_eq(found, 0);
  bs_marked_each(mark, note_pid, &found);
  ck_assert_int_eq(found, p.pid);
  bs_process_kill(&p);
  bs_process_finish(&p);
  bs_process_free(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_code_says_how_it_ended, 4},
                             {a_program_that_is_not_there_is_a_code},
                             {standard_input_is_there_where_the_parent_has_none},
                             {an_end_is_seen_where_sigchld_is_ignored},
                             {all_output_is_taken_and_kept_apart},
                             {an_end_is_seen_although_the_pipe_is_open},
                             {closed_pipes_are_no_end},
                             {a_deadline_ends_the_child_and_its_group, 3},
                             {no_child_outlives_its_parent},
                             {it_joins_the_group_that_is_named},
                             {its_signals_are_as_asked_for},
                             {a_signal_here_changes_nothing, 2},
                             {the_whole_answer_is_heard},
                             {silence_ends_a_hearing},
                             {marked_processes_are_found},
                             {0}};
  return run_tests("process", tests, (test_setup){0});
}
