/* SPDX-License-Identifier: MIT
 * test_run_launch.c - ranks that are processes and go wrong: what a rank that is killed or stopped at an op
 * ends in; no process and no shared memory left. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch_help.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

/* The deadline of ranks that stand still: processes that start side by side have to be there before it. */
#define DEADLINE (BS_SLOW ? "2.5" : "0.8")

/* ---- ranks that go wrong ------------------------------------------------------------------------ */

/* A run took less than `most`, and what a machine or a sanitizer takes to start: the same without its plan.
 */
static void check_time(const char **args, const char *plan, double seconds, double most) {
  ran clean;
  if (seconds < most) return;
  for (size_t i = 0; args[i] != NULL; i++)
    if (args[i] == plan) args[i] = "plugins.fault.plan=rank=0,op=all_reduce,seq=1000000000,do=err";
  run_bsrun(&clean, dir, NULL, args);
  run_expect(&clean, 0, "no plan");
  most += clean.seconds;
  ran_free(&clean);
  ck_assert_msg(seconds < most, "%s took %g s, not %g", plan, seconds, most);
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
  char id[64], plan[96], who[16], done[200];
  ran r;
  snprintf(plan, sizeof plan, "plugins.fault.plan=%s", d->plan);
  snprintf(who, sizeof who, "rank %d", d->rank);
  const char *args[] = {"--launch",
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
                        d->code == 8 ? DEADLINE : "60",
                        "--comm",
                        "fault:threads",
                        SMALL_RUN,
                        "--set",
                        plan,
                        "--set",
                        "phase.pairs_min=5",
                        "--set",
                        "phase.pairs_max=5",
                        NULL};
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, d->code, d->plan);
  run_expect_error(&r, 1, id, d->plan);
  if (strcmp(id, d->id) != 0 || strstr(r.err, who) == NULL || strstr(r.err, d->op) == NULL)
    ck_abort_msg("%s: wanted %s, %s and %s in: %s", d->plan, d->id, who, d->op, r.err);
  snprintf(done, sizeof done, "%s/out", dir);
  if (d->rank != 0) ck_assert_uint_eq(run_count_files(done, "DONE"), 1);
  ck_assert_uint_eq(shared_files(), 0);
  check_time(args, plan, r.seconds, (d->code == 8 ? strtod(DEADLINE, NULL) : 0.0) + 3.0);
  ran_free(&r);
}
END_TEST

/* One that hangs has been waited for once: rank 0 does not wait as long again to say that it is
 * over. */
START_TEST(test_told_soon) {
  static const char *const plans[] = {"plugins.fault.plan=rank=1,op=all_reduce,seq=2,do=hang"};
  char id[64];
  ran r;
  const char *args[] = {"--launch", "processes", "--method",      "row_parallel", "-P",        "2", "--phase",
                        "0",        "--comm",    "fault:threads", SMALL_RUN,      "--timeout", "3", "--set",
                        plans[_i],  NULL};
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 8, plans[_i]);
  run_expect_error(&r, 1, id, plans[_i]);
  ck_assert_str_eq(id, "BS-COLL-DEADLINE");
  check_time(args, plans[_i], r.seconds, 5.5); /* of a deadline of 3 s */
  ran_free(&r);
}
END_TEST

/* Rank 0 is killed while the other rank is stopped: the launcher reports the death of rank 0. */
START_TEST(test_death_of_the_lead) {
  char id[64];
  ran r;
  const char *args[] = {
      "--launch",
      "processes",
      "--method",
      "row_parallel",
      "-P",
      "2",
      "--phase",
      "0",
      "--comm",
      "fault:threads",
      SMALL_RUN,
      "--timeout",
      "60",
      "--set",
      "plugins.fault.plan=rank=1,op=all_reduce,seq=0,do=stop;rank=0,op=all_reduce,seq=0,do=kill",
      NULL};
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 7, "death of rank 0");
  run_expect_error(&r, 1, id, "death of rank 0");
  ck_assert_str_eq(id, "BS-RANK-DEAD");
  ck_assert_msg(strstr(r.err, "] rank 0 (process ") != NULL && strstr(r.err, "killed by signal 9") != NULL,
                "%s", r.err);
  ran_free(&r);
}
END_TEST

/* A rank that dies in a sweep: what the others say of its remaining points does not hide that. */
START_TEST(test_sweep_death) {
  static const char sweep[] = "sweep:\n  param: model.B\n  values: [4, 8, 16]\n";
  char id[64];
  ran r;
  run_write(dir, "sweep.yaml", sweep, sizeof sweep - 1);
  const char **args = run_words(
      "--launch processes --method row_parallel -P 2 --phase numbers --comm fault:threads --out out -q "
      "--timeout "
      "60 --sweep ./sweep.yaml --set %s",
      _i == 0 ? "plugins.fault.plan=rank=0,op=all_reduce,seq=0,do=kill"
              : "plugins.fault.plan=rank=1,op=all_reduce,seq=0,do=kill");
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 7, "a death in a sweep");
  run_expect_error(&r, 1, id, "a death in a sweep");
  ck_assert_str_eq(id, "BS-RANK-DEAD");
  ran_free(&r);
}
END_TEST

/* The shared memory of the ranks cannot be made (a limit on the size of files): the launcher says so, and
 * ends nobody. It runs in a session of its own, so that a launcher that does ends no more than this test. */
START_TEST(test_not_started) {
  char id[64];
  int status = 0;
  const char *const args[] = {"--launch", "processes", "--method", "row_parallel",
                              "-P",       "3",         SMALL_RUN,  NULL};
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    const struct rlimit small = {1000, 1000};
    ran r;
    if (setsid() < 0 || setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(125);
    run_bsrun(&r, dir, NULL, args);
    run_expect(&r, 10, "no shared memory");
    run_expect_error(&r, 1, id, "no shared memory");
    _exit(strcmp(id, "BS-LAUNCH-MEMORY") == 0 ? 0 : 1);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status 0x%x", (unsigned)status);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_gone, TEST_COUNT(deaths)}, {test_told_soon, 1}, {test_death_of_the_lead},
                             {test_sweep_death, 2},           {test_not_started},  {0}};
  return run_tests("launch", tests, (test_setup){dir_make, dir_remove, .at_once = 4});
}
