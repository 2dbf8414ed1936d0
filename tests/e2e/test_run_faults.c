/* SPDX-License-Identifier: MIT
 * test_run_faults.c - a method that goes wrong while it runs (fixtures/faulty.c), through bsrun: the exit
 * code, the one error line with the rank and the call site, the time it takes, and what is left on disk. */
#include <stdio.h>
#include <string.h>

#include "tests/run_tests.h"
#include "tests/slow.h"
#include "tests/spawn.h"

#define PLUGIN BS_TEST_E2E_DIR "/bs_faulty.so"

typedef struct fault_case {
  const char *fault, *at; /* method.fault, method.at */
  const char *phase;
  int code;
  const char *id;
  const char *says[3]; /* in the error line */
  int kept; /* a run folder stays: 1 with status "failed" or "not passed", -1 without DONE, 0 none */
  int rank; /* the record's, -2: not looked at */
} fault_case;

static const fault_case cases[] = {
    {"error", "0", "0", 7, "BS-FAULTY-ERROR", {"rank 1", "the device caught fire"}, 1, 1},
    {"error", "3", "0", 7, "BS-FAULTY-ERROR", {"rank 1", "the device caught fire"}, 1, 1},
    {"error", "6", "1", 7, "BS-FAULTY-ERROR", {"rank 1", "the device caught fire"}, 1, 1},
    {"silent", "0", "0", 7, "BS-RANK-FAILED", {"rank 1"}, 1, 1},
    {"after", "2", "0", 7, "BS-FAULTY-AFTER", {"rank 1", "it failed at the end"}, 1, 1},
    {"after", "6", "1", 7, "BS-FAULTY-AFTER", {"rank 1", "it failed at the end"}, 1, 1},
    {"build", "0", "0", 7, "BS-FAULTY-BUILD", {"rank 1", "cannot be built"}, 1, 1},
    {"build", "0", "1", 7, "BS-FAULTY-BUILD", {"rank 1", "cannot be built"}, 1, 1},
    {"late", "1", "0", 8, "BS-", {"rank 1", "faulty.sum"}, 1, -2},
    {"late", "6", "1", 8, "BS-", {"rank 1", "faulty.sum"}, 1, -2},
    {"missing", "1", "0", 8, "BS-", {"rank 1", "faulty.sum"}, 1, -2},
    {"site", "2", "0", 9, "BS-", {"rank 1", "faulty.other", "faulty.sum"}, 1, -2},
    {"site", "6", "1", 9, "BS-", {"rank 1", "faulty.other", "faulty.sum"}, 1, -2},
    {"count", "0", "0", 9, "BS-", {"rank 1", "faulty.sum"}, 1, -2},
    {"nan", "0", "0", 6, "BS-GATE-FAIL", {"gate T1", "rank 1"}, 1, -2},
    {"wrong", "0", "0", 6, "BS-GATE-FAIL", {"gate T1"}, 1, -2},
    {"spoil", "1", "0", 10, "BS-STO-IO", {"out/phase0_correctness/faulty/it", "DONE.tmp"}, 0, -2},
    {"abort", "6", "1", 7, "BS-RUN-DIED", {"of faulty", "rank 1", "signal 6"}, -1, -2},
    {"exit", "2", "0", 7, "BS-RUN-DIED", {"of faulty", "exit(0)"}, -1, -2},
#if !BS_SLOW /* a sanitizer tells of these itself */
    {"segv", "2", "0", 7, "BS-RUN-DIED", {"in bs_faulty.so", "rank 1", "signal 11"}, -1, -2},
    {"deep", "2", "0", 7, "BS-RUN-DIED", {"in bs_faulty.so", "rank 1", "signal 11"}, -1, -2},
    {"leave", "2", "0", 7, "BS-RUN-DIED", {"in bs_faulty.so", "_exit(0)"}, -1, -2},
#endif
};

/* The deadline where one is to be missed; other ends must come long before theirs. */
static const char *const DEADLINE = BS_SLOW ? "1.5" : "0.5", *const LONG = "60";
static const double LIMIT_S =
    2.0; /* beyond it; a run without a fault comes on top where that is not enough */

static void run_faulty(ran *r, const char *phase, const char *fault, const char *at, const char *deadline) {
  char fault_set[64], at_set[64];
  snprintf(fault_set, sizeof fault_set, "method.fault=%s", fault);
  snprintf(at_set, sizeof at_set, "method.at=%s", at);
  const char *const args[] = {"--plugin",  PLUGIN,
                              "--method",  "faulty",
                              "--phase",   phase,
                              "--timeout", deadline,
                              "--out",     "out",
                              "-o",        "jsonl",
                              "--set",     "model.dtype=f32",
                              "--set",     "model.N=24",
                              "--set",     "model.K=40",
                              "--set",     "model.B=8",
                              "--set",     "phase.timed_iters=20",
                              "--set",     "phase.pairs_min=5",
                              "--set",     "phase.pairs_max=5",
                              "--set",     "phase.fault_gate=false",
                              "--set",     fault_set,
                              "--set",     at_set,
                              "--run-id",  "it",
                              NULL};
  run_bsrun(r, dir, NULL, args);
}

static void folder_of(const char *phase, char out[160]) {
  snprintf(out, 160, "%s/out/%s/faulty/it", dir, phase[0] == '0' ? "phase0_correctness" : "phase1_forward");
}

static json_t *done_of(const char *run_dir) {
  char *text = read_text(run_dir, "DONE");
  if (text == NULL) ck_abort_msg("no DONE in %s", run_dir);
  json_t *done = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  free(text);
  ck_assert_ptr_nonnull(done);
  return done;
}

/* What starting takes, and sanitizers, is in the time of the same run without the fault. */
static void check_time(const fault_case *c, double seconds, const char *what) {
  double most = LIMIT_S + (c->code == 8 ? strtod(DEADLINE, NULL) : 0.0);
  ran clean;
  if (seconds < most) return;
  run_faulty(&clean, c->phase, "none", "0", LONG);
  most += clean.seconds;
  ran_free(&clean);
  ck_assert_msg(seconds < most, "%s: took %.2f s, not %.2f", what, seconds, most);
}

/* The kept folder says "failed" and why; nothing half written lies beside it. */
static void check_kept(const fault_case *c, const char *id) {
  char run_dir[160];
  folder_of(c->phase, run_dir);
  if (c->kept == 0) {
    ck_assert_uint_eq(run_count_files(dir, NULL), 0);
    return;
  }
  if (c->kept < 0) {
    ck_assert(run_exists(run_dir, "INTERRUPTED") && !run_exists(run_dir, "DONE"));
    return;
  }
  json_t *done = done_of(run_dir);
  json_t *record = run_record(dir, run_dir);
  ck_assert_str_eq(run_str(done, "status"), c->code == 6 ? "not passed" : "failed");
  if (c->code == 6) {
    ck_assert(json_is_false(json_object_get(record, "passed")));
  } else {
    const json_t *error = json_object_get(record, "error");
    ck_assert_str_eq(run_str(record, "status"), "failed");
    ck_assert_str_eq(run_str(error, "id"), id);
    if (c->rank != -2) ck_assert_int_eq((int)run_num(error, "rank"), c->rank);
    ck_assert(run_num(record, "N") == 24 && run_num(record, "K") == 40 && run_num(record, "B") == 8);
    ck_assert(run_num(record, "world_size") == 2);
  }
  ck_assert_uint_eq(run_count_files(dir, NULL), run_count_files(run_dir, NULL));
  json_decref(record);
  json_decref(done);
}

START_TEST(fault_is_told) {
  const fault_case *c = &cases[_i];
  char id[64], what[96];
  ran r;
  snprintf(what, sizeof what, "fault %s at %s, phase %s", c->fault, c->at, c->phase);
  run_faulty(&r, c->phase, c->fault, c->at, c->code == 8 ? DEADLINE : LONG);
  run_expect(&r, c->code, what);
  run_expect_error(&r, c->code != 6, id, what);
  ck_assert_msg(strncmp(id, c->id, strlen(c->id)) == 0, "%s: id %s: %s", what, id, r.err);
  for (size_t i = 0; i < 3 && c->says[i] != NULL; i++)
    ck_assert_msg(strstr(r.err, c->says[i]) != NULL, "%s: no '%s' in: %s", what, c->says[i], r.err);
  check_kept(c, id);
  check_time(c, r.seconds, what);
  ran_free(&r);
}
END_TEST

/* Both ranks end the process at once: whoever comes second does not end it with its own status. Six times
 * each, since the two must meet. */
START_TEST(all_ranks_end_at_once) {
  static const char *const faults[] = {"all_exit", "all_leave", "all_leave_c99", "all_quick"};
  for (int i = 0; i < 6 && !BS_SLOW; i++) { /* a sanitizer has ends of its own */
    char id[64];
    ran r;
    run_faulty(&r, "0", faults[_i], "1", LONG);
    run_expect(&r, 7, faults[_i]);
    run_expect_error(&r, 1, id, faults[_i]);
    ck_assert_str_eq(id, "BS-RUN-DIED");
    ran_free(&r);
  }
}
END_TEST

/* The control: without a fault the same method passes every gate in both phases, so the exits above are the
 * faults' doing. */
START_TEST(no_fault_passes) {
  for (int phase = 0; phase < 2; phase++) {
    ran r;
    run_faulty(&r, phase == 0 ? "0" : "1", "none", "0", LONG);
    run_expect(&r, 0, "no fault");
    json_t *rows = run_rows(r.out);
    json_t *record = run_record(dir, run_str(json_array_get(rows, 0), "run_dir"));
    ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
    json_decref(record);
    json_decref(rows);
    ran_free(&r);
  }
}
END_TEST

/* A method that claims half of its FLOPs is caught by the host's counters, in both phases, and the user sees
 * it without opening the record. */
/* A bias is in every run: a method that takes none says how to leave it out. */
START_TEST(a_method_without_bias_says_so) {
  ran r;
  run_faulty(&r, "0", "bias", "0", LONG);
  run_expect(&r, 3, "bias");
  ck_assert_msg(strstr(r.err, "error[BS-FAULTY-BIAS]") != NULL, "%s", r.err);
  ck_assert_msg(strstr(r.err, "hint: this method takes no bias: --set method.bias=false") != NULL, "%s",
                r.err);
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 0);
  ran_free(&r);
}
END_TEST

START_TEST(false_claim_is_shown) {
  for (int phase = 0; phase < 2; phase++) {
    ran r;
    run_faulty(&r, phase == 0 ? "0" : "1", "claim", "0", LONG);
    run_expect(&r, 0, "false claim");
    json_t *rows = run_rows(r.out);
    json_t *record = run_record(dir, run_str(json_array_get(rows, 0), "run_dir"));
    ck_assert(json_is_false(json_object_get(record, "claims_match_counts")));
    ck_assert_msg(strstr(r.err, "bsrun: warning") != NULL && strstr(r.err, "FLOPs") != NULL,
                  "nothing on stderr: %s", r.err);
    json_decref(record);
    json_decref(rows);
    ran_free(&r);
  }
}
END_TEST

/* Phase 1 is not run after a phase 0 whose numbers are wrong: times of wrong numbers mean nothing. */
START_TEST(wrong_numbers_are_not_timed) {
  char id[64];
  ran r;
  const char *const args[] = {"--plugin", PLUGIN,
                              "--method", "faulty",
                              "--set",    "method.fault=wrong",
                              "--set",    "model.dtype=f32",
                              "--set",    "model.N=24",
                              "--set",    "model.B=8",
                              "--out",    "out",
                              NULL};
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 6, "wrong numbers, both phases");
  run_expect_error(&r, 0, id, "wrong numbers, both phases");
  ck_assert_str_eq(id, "BS-GATE-FAIL");
  ck_assert_ptr_nonnull(strstr(r.out, "WRONG: "));
  ck_assert_ptr_nonnull(strstr(r.err, "phase1_forward is not run"));
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 1);
  ran_free(&r);
}
END_TEST

/* A rank whose thread cannot be started: the others do not wait for it until the deadline. */
START_TEST(a_thread_cannot_be_started) {
  char setting[64];
  int failed = 0;
  if (BS_SLOW) return;              /* a sanitizer has a pthread_create of its own */
  for (int at = 3; at <= 6; at++) { /* of the first arms */
    ran r;
    snprintf(setting, sizeof setting, "BS_TEST_NO_THREAD=%d", at);
    const char *const env[] = {"LD_PRELOAD=" BS_TEST_E2E_DIR "/no_thread.so", setting, NULL};
    const char **args = run_words(
        "--method row_parallel -P 3 --phase time --set model.N=16 --set model.K=24 --set phase.pairs_min=5 "
        "--set phase.pairs_max=5 --set phase.pairs_seconds=0.01 --set tune.measure=false --timeout 300 --out "
        "out -q");
    run_bsrun(&r, dir, env, args);
    if (r.code != 10) run_expect(&r, 0, setting);
    failed += strstr(r.err, "error[BS-WORLD-THREAD]") != NULL;
    ran_free(&r);
  }
  ck_assert_int_gt(failed, 1);
}
END_TEST

int main(void) {
  const test_case tests[] = {{all_ranks_end_at_once, 4},
                             {fault_is_told, TEST_COUNT(cases)},
                             {no_fault_passes},
                             {a_method_without_bias_says_so},
                             {false_claim_is_shown},
                             {wrong_numbers_are_not_timed},
                             {a_thread_cannot_be_started},
                             {0}};
  return run_tests("run_faults", tests, (test_setup){dir_make, dir_remove, .timeout = 120, .at_once = 2});
}
