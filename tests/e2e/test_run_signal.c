/* SPDX-License-Identifier: MIT
 * test_run_signal.c - a launcher of processes that is killed or interrupted, also where rank 0 is stopped:
 * how it ends, and nothing left. */
#include <signal.h>
#include <sys/wait.h>

#include "launch_help.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

#define ORPHANS_S (BS_SLOW ? 20.0 : 2.0) /* until nothing is left of a launcher that has ended */

START_TEST(test_signalled_launcher) {
  static const int signals[] = {SIGKILL, SIGINT, SIGTERM};
  static const int codes[] = {-1, 130, 143};
  int status = 0;
  const char **args = run_words(
      "%s --launch processes --method blockshock -P 2 --phase numbers --out out --set model.N=512 --set "
      "model.K=512 --set phase.timed_iters=10000000 --run-id it",
      run_env("BS_TEST_BSRUN"));
  const pid_t pid = start(dir, args);
  ck_assert_msg(wait_for(60.0, pid, 3), "%zu processes, not 3", ranks_of(pid));
  usleep(500000); /* into the run; nothing is judged by it */
  kill(pid, signals[_i]);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  if (codes[_i] > 0) ck_assert_int_eq(WEXITSTATUS(status), codes[_i]);
  ck_assert_msg(wait_for(ORPHANS_S, pid, 0), "%zu processes are left", ranks_of(pid));
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 0);
  ck_assert_uint_eq(shared_files(), 0);
}
END_TEST

/* The process of a session that is rank 0; 0: there is none. */
static pid_t lead_of(pid_t session) {
  pid_t found = 0;
  DIR *entries = opendir("/proc");
  for (const struct dirent *e; entries != NULL && found == 0 && (e = readdir(entries)) != NULL;) {
    char path[300], text[16384] = "";
    const long pid = strtol(e->d_name, NULL, 10);
    if (pid <= 0 || getsid((pid_t)pid) != session) continue;
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) continue;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    for (size_t at = 0; at < n; at += strlen(text + at) + 1)
      if (strcmp(text + at, "BLOCKSHOCK_RANK=0") == 0) found = (pid_t)pid;
  }
  if (entries != NULL) closedir(entries);
  return found;
}

static pid_t await_lead(pid_t session) {
  pid_t lead = 0;
  for (int i = 0; i < 6000 && (lead = lead_of(session)) == 0; i++) usleep(10000);
  ck_assert_int_gt(lead, 0);
  return lead;
}

/* Ctrl-C once rank 0 is stopped wakes it; twice, where it is stopped for good, ends all; so early that rank 0
 * has no handler yet, it ends all too. */
START_TEST(test_signalled_stopped) {
  int status = 0;
  const char *const args[] = {run_env("BS_TEST_BSRUN"),
                              "--launch",
                              "processes",
                              "--method",
                              "row_parallel",
                              "-P",
                              "2",
                              "--phase",
                              "0",
                              SMALL_RUN,
                              "--set",
                              "model.N=512",
                              "--set",
                              "phase.timed_iters=10000000",
                              NULL};
  const pid_t pid = start(dir, args);
  const pid_t lead = await_lead(pid);
  ck_assert_msg(_i == 2 || wait_for(60.0, pid, 3), "%zu processes, not 3", ranks_of(pid));
  if (_i < 2) usleep(500000); /* into the run; nothing is judged by it */
  kill(lead, SIGSTOP);
  usleep(200000); /* the launcher has seen it */
  kill(pid, SIGINT);
  for (int i = 0; i < 10000 && waitpid(pid, &status, WNOHANG) == 0; i++) {
    if (_i == 1) kill(lead, SIGSTOP); /* it does not stay awake */
    if (_i == 1 && i == 300) kill(pid, SIGINT);
    usleep(1000);
    ck_assert_msg(i < 9999, "it did not end"); /* the deadline is a minute */
  }
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 130, "status %x", (unsigned)status);
  ck_assert_msg(wait_for(ORPHANS_S, pid, 0), "%zu processes are left", ranks_of(pid));
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_signalled_launcher, 3}, {test_signalled_stopped, 3}, {0}};
  return run_tests("signal", tests, (test_setup){dir_make, dir_remove, .at_once = 2});
}
