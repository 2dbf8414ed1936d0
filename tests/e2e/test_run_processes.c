/* SPDX-License-Identifier: MIT
 * test_run_processes.c - bsrun --launch processes: the bits of threads for every method, world size and
 * phase; what a rank that is killed or stopped at an op ends in; ranks that are configured differently;
 * torchrun's environment; no process and no shared memory left. */
#include <stdio.h>
#include <string.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

#define SMALL_RUN                                                                            \
  "--out out --set model.dtype=f32 --set model.N=48 --set model.K=72 --set model.B=8 --set " \
  "phase.timed_iters=2 --set phase.warmup_iters=1 --run-id it -q"

static const char *const methods[] = {"dense", "column_parallel", "row_parallel", "masked_split",
                                      "blockshock"};

static const char *const launches[] = {"threads", "processes"};

static void run_one(ran *r, const char *launch, const char *method, const char *P, const char *phase,
                    const char *dump, const char *more) {
  const char **args =
      run_words("--launch %s --method %s -P %s --phase %s " SMALL_RUN
                " --mask %s -o jsonl --set %s --set phase.pairs_min=5 --set phase.pairs_max=5 "
                "--set phase.pairs_seconds=0.1 --set tune.seconds=0.2 %s %s",
                launch, method, P, phase, P[0] == '3' ? "interleave" : "complement_1100_0011", more,
                dump != NULL ? "--to" : NULL, dump);
  run_bsrun(r, dir, NULL, args);
}

/* Adds settings behind the words, which have room for them. */
static void add_settings(const char **args, const char *const *more, size_t most) {
  size_t n = 0;
  while (args[n] != NULL) ++n;
  for (size_t i = 0; i < most && more[i] != NULL; ++i) {
    args[n++] = "--set";
    args[n++] = more[i];
  }
}

static void end_run(ran *r) {
  char out[80];
  ran_free(r);
  snprintf(out, sizeof out, "%s/out", dir);
  remove_dir(out);
}

/* Phase 0: X, W, partials and outputs of all ranks. scripts/matrix has other world sizes. */
START_TEST(test_same_outputs) {
  const char *const worlds[] = {"1", "3", "4", "2", "4"};
  for (size_t l = 0; l < 2; l++) {
    ran r;
    run_one(&r, launches[l], methods[_i], worlds[_i], "0", launches[l], "tune.measure=false");
    run_expect(&r, 0, methods[_i]);
    ck_assert_ptr_nonnull(strstr(r.out, "RIGHT"));
    end_run(&r);
  }
  shell("diff -r threads processes && test $(ls threads | wc -l) -ge 5");
}
END_TEST

static json_t *record_of(const char *phase, const char *method) {
  char path[160];
  snprintf(path, sizeof path, "out/%s/%s/it", phase, method);
  return run_record(dir, path);
}

/* What does not depend on who starts the ranks. A phase has only some of it: both may be absent. */
static void check_same(json_t *const records[2], const char *what) {
  char keys[] =
      "dx dw gates losses weights weights_moved flops_per_forward flops_per_backward flops_per_step "
      "wire_bytes_per_forward wire_bytes_per_backward wire_bytes_per_step weight_bytes_total "
      "collectives_per_backward collectives_per_step";
  for (const char *key = strtok(keys, " "); key != NULL; key = strtok(NULL, " ")) {
    const json_t *a = json_object_get(records[0], key), *b = json_object_get(records[1], key);
    if (a != b && !json_equal(a, b))
      ck_abort_msg("%s: %s differs: %s %s", what, key, json_dumps(a, JSON_ENCODE_ANY),
                   json_dumps(b, JSON_ENCODE_ANY));
  }
}

/* Phase 2: errors of dX, dW and db to the last bit, what was counted, gates and faults. */
START_TEST(test_same_gradients) {
  const char *method = methods[_i];
  json_t *records[2];
  for (size_t l = 0; l < 2; l++) {
    ran r;
    run_one(&r, launches[l], method, strcmp(method, "dense") == 0 ? "1" : "4", "2", NULL,
            "tune.measure=false");
    run_expect(&r, 0, method);
    records[l] = record_of("phase2_backward_input", method);
    end_run(&r);
  }
  check_same(records, method);
  ck_assert(json_equal(json_object_get(records[0], "memory_peak_bytes"),
                       json_object_get(records[1], "memory_peak_bytes")));
  json_decref(records[0]);
  json_decref(records[1]);
}
END_TEST

/* Phase 3: errors of every weight to the last bit, losses, what was counted, gates and faults; positions and
 * the weights that move between ranks when a mask is made anew. */
static const struct {
  const char *method, *P, *mask, *more[4];
} steps[] = {
    {"dense", "1", "complement_1100_0011", {"method.bias=true", "phase.optimizer=adamw"}},
    {"column_parallel", "3", "complement_1100_0011", {"method.bias=true", "phase.momentum=0.5"}},
    {"row_parallel", "4", "complement_1100_0011", {"method.bias=true", "method.y_placement=split"}},
    {"masked_split", "4", "interleave", {"model.dtype=bf16", "phase.optimizer=adamw"}},
    {"blockshock", "4", "complement_1001_0110", {"method.bias=true", "phase.momentum=0.5", "phase.remask=1"}},
    {"blockshock", "2", "magnitude", {"method.bias=true", "phase.optimizer=adamw", "phase.remask=1"}},
    {"blockshock", "4", "magnitude", {"method.bias=true", "phase.remask=1", "phase.lr=100"}},
    {"blockshock",
     "4",
     "magnitude",
     {"method.bias=true", "method.y_placement=split", "phase.remask=1", "phase.lr=100"}},
    {"blockshock", "2", "transposable", {"model.dtype=bf16", "phase.remask=1", "phase.lr=0.5"}},
    {"masked_split", "4", "magnitude", {"method.bias=true", "phase.remask=1", "phase.lr=100"}},
};

START_TEST(test_same_steps) {
  json_t *records[2];
  for (size_t l = 0; l < 2; l++) {
    const char **args =
        run_words("--launch %s --method %s -P %s --mask %s --phase train " SMALL_RUN " --set %s", launches[l],
                  steps[_i].method, steps[_i].P, steps[_i].mask,
                  _i < 6 ? "phase.fault_gate=true" : "phase.fault_gate=false");
    add_settings(args, steps[_i].more, 4);
    ran r;
    run_bsrun(&r, dir, NULL, args);
    run_expect(&r, 0, steps[_i].mask);
    records[l] = record_of("phase3_train_step", steps[_i].method);
    ck_assert_ptr_nonnull(json_object_get(records[l], "losses"));
    end_run(&r);
  }
  check_same(records, steps[_i].method);
  if (strcmp(steps[_i].mask, "magnitude") == 0)
    ck_assert_int_gt(json_integer_value(json_object_get(records[1], "weights_moved")), 0);
  ck_assert(json_object_get(json_object_get(records[1], "timings_ms"), "loss") != NULL);
  json_decref(records[0]);
  json_decref(records[1]);
}
END_TEST

/* What a layer may be asked for besides: outputs of all ranks, and what promises look at. */
static const struct {
  const char *method, *P, *mask, *more[3];
} features[] = {
    {"row_parallel", "3", "none", {"method.overlap=3"}},
    {"column_parallel", "2", "none", {"method.overlap=2", "model.B=32"}},
    {"blockshock", "2", "complement_1010_0101", {"method.overlap=2"}},
    {"row_parallel", "2", "none", {"method.overlap=3", "method.overlap_axis=tokens", "model.B=7"}},
    {"masked_split", "2", "interleave", {"method.overlap=3", "method.overlap_axis=features", "model.N=47"}},
    {"row_parallel", "2", "none", {"method.repro=R2"}},
    {"row_parallel", "4", "none", {"method.repro=R3"}},
    {"blockshock", "4", "complement_1100_0011", {"method.repro=R4", "model.K=64"}},
    {"row_parallel", "3", "none", {"method.reduce_dtype=bf16"}},
    {"blockshock", "4", "complement_1001_0110", {"method.reduce_dtype=int8"}},
    {"row_parallel", "2", "none", {"method.y_placement=tokens"}},
    {"row_parallel", "2", "none", {"method.y_placement=partial"}},
    {"row_parallel", "2", "none", {"method.x_placement=tokens"}},
    {"blockshock", "2", "complement_1100_0011", {"method.x_placement=partial"}},
    {"blockshock", "4", "random_2of4", {"method.slices=row"}},
    {"blockshock", "4", "magnitude", {"method.slices=column"}},
    {"blockshock", "2", "magnitude", {"method.half=1"}},
    {"row_parallel", "2", "none", {"method.mixed=8", "model.dtype=bf16"}},
};

START_TEST(test_same_features) {
  for (size_t l = 0; l < 2; l++) {
    const char **args =
        run_words("--launch %s --method %s -P %s --to %s --phase numbers " SMALL_RUN
                  " --set phase.fault_gate=false %s %s",
                  launches[l], features[_i].method, features[_i].P, launches[l],
                  strcmp(features[_i].mask, "none") != 0 ? "--mask" : NULL, features[_i].mask);
    add_settings(args, features[_i].more, 3);
    ran r;
    run_bsrun(&r, dir, NULL, args);
    run_expect(&r, 0, features[_i].more[0]); /* right, or with the error that was foretold */
    ck_assert_msg(strstr(r.out, "RIGHT") != NULL || strstr(r.out, ", as ") != NULL, "%s", r.out);
    end_run(&r);
  }
  shell("diff -r threads processes && test $(ls threads | wc -l) -ge 4");
}
END_TEST

/* Phase 1: rank 0 leads, the others follow; choices are measured and shared; one folder, one table. */
START_TEST(test_timed) {
  ran r;
  run_one(&r, "processes", "blockshock", _i == 0 ? "2" : "4", "1", NULL, "tune.min_work=1");
  run_expect(&r, 0, "phase 1");
  json_t *rows = run_rows(r.out), *record = record_of("phase1_forward", "blockshock");
  ck_assert_uint_eq(json_array_size(rows), 3);
  ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
  ck_assert_str_eq(run_str(record, "comm"), "shm");
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 1);
  json_decref(rows);
  json_decref(record);
  ran_free(&r);
}
END_TEST

/* --method auto: rank 0 predicts, all measure with the ranks that will run, and all run what rank 0 chose; a
 * world that has another number of ranks is a row with its reason. */
static const struct {
  const char *P, *phase, *more;
  const char *why; /* of a row that is refused; NULL: of the dense layer's */
} choices[] = {
    {"2", NULL, "auto.measure=3", NULL},
    {"3", "2", "auto.masks=[interleave, contiguous]", NULL},
    {"2", "3", "phase.optimizer=adamw", NULL},
    {"2", "0", "auto.measure=0", NULL},
    {"2", "0", "method.kernel=sparse24", "unknown key"}, /* to all but blockshock */
};

START_TEST(test_auto) {
  const char **args = run_words(
      "--launch processes --wide --method auto -P %s --set model.dtype=f32 --set model.N=48 --set model.K=72 "
      "--set phase.timed_iters=2 --set auto.seconds=0.1 --set %s --set sweep.param=model.B --set "
      "sweep.values=[4,8] --set phase.pairs_min=5 --set phase.pairs_max=5 --set phase.pairs_seconds=0.1 %s "
      "%s",
      choices[_i].P, choices[_i].more, choices[_i].phase != NULL ? "--phase" : NULL, choices[_i].phase);
  size_t measured = 0, i;
  ran r;
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 0, choices[_i].more);
  ck_assert_msg(strstr(r.err, "note: auto: ") != NULL, "%s", r.err);
  const char *why = choices[_i].why != NULL ? choices[_i].why : "processes were started";
  ck_assert_msg(strstr(r.out, why) != NULL, "%s", r.out);
  ck_assert_uint_eq(run_count_files(dir, "DONE"), choices[_i].phase == NULL ? 4 : 2);
  char run_dir[256];
  ck_assert_int_eq(sscanf(strstr(r.out, "run: "), "run: %255s", run_dir), 1);
  json_t *record = run_record(dir, run_dir), *row;
  json_t *ladder = json_object_get(record, "ladder");
  json_array_foreach(ladder, i, row) measured += json_object_get(row, "measured_ms") != NULL;
  ck_assert_uint_eq(measured, strcmp(choices[_i].more, "auto.measure=0") == 0 ? 0 : _i == 0 ? 3 : 4);
  ck_assert_str_eq(run_str(record, "comm"), "shm");
  json_decref(record);
  ran_free(&r);
}
END_TEST

/* What becomes of candidates while they are measured: one that dies is named; an error ends its point, and
 * the next begins with all ranks; beside rank 0 that hangs no other waits for it. */
static const struct {
  const char *plan, *values;
  int code;
  const char *told;
} ends[] = {
    {"plugins.fault.plan=rank=1,op=all_gather,seq=20,do=kill", "[4]", 7, "rank 1"},
    {"plugins.fault.plan=rank=0,op=all_gather,seq=20,do=err", "[4, 6]", 12, "2 of 2 points failed"},
    {"plugins.fault.plan=rank=1,op=all_gather,seq=20,do=err", "[4, 6]", 12, "2 of 2 points failed"},
    {"plugins.fault.plan=rank=0,op=all_gather,seq=20,do=hang", "[4, 6]", 8, "missing: rank 0"},
};

START_TEST(test_auto_ends) {
  char values[64];
  const char **args = run_words(
      "--launch processes --method auto -P 2 --phase numbers " SMALL_RUN
      " --plugin fault --comm fault:shm --backend fault:cpu --timeout %s --set %s --set "
      "auto.methods=[column_parallel] --set auto.seconds=5 --set sweep.param=experiment.seed --set %s",
      ends[_i].code == 8 ? "5" : "60", ends[_i].plan, values);
  ran r;
  snprintf(values, sizeof values, "sweep.values=%s", ends[_i].values);
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, ends[_i].code, ends[_i].plan);
  ck_assert_msg(strstr(r.err, ends[_i].told) != NULL, "%s", r.err);
  ck_assert_uint_eq(run_count_files(dir, "DONE"), 0);
  ran_free(&r);
}
END_TEST

/* A point that cannot run is told of by itself, the first one too. */
START_TEST(test_sweep) {
  static const struct {
    const char *values, *told;
    int done;
  } points[] = {{"sweep.values=[f33, f32]", "1 of 2 points failed", 1},
                {"sweep.values=[f33, f34]", "2 of 2 points failed", 0}};
  const char **args = run_words("--launch processes --method blockshock -P 2 --phase numbers " SMALL_RUN
                                " --set sweep.param=method.reduce_dtype --set %s",
                                points[_i].values);
  ran r;
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 12, points[_i].values);
  ck_assert_msg(
      strstr(r.err, points[_i].told) != NULL && strstr(r.err, "method.reduce_dtype=f33 failed") != NULL, "%s",
      r.err);
  const char *first = strstr(r.err, "method.reduce_dtype=f33 failed");
  ck_assert_ptr_null(strstr(first + 1, "method.reduce_dtype=f33 failed"));
  ck_assert_uint_eq(run_count_files(dir, "DONE"), (size_t)points[_i].done);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_same_outputs, 5},
                             {test_same_gradients, 5},
                             {test_same_steps, TEST_COUNT(steps)},
                             {test_same_features, TEST_COUNT(features)},
                             {test_auto, TEST_COUNT(choices)},
                             {test_auto_ends, TEST_COUNT(ends)},
                             {test_sweep, 2},
                             {test_timed, 2},
                             {0}};
  return run_tests("processes", tests, (test_setup){dir_make, dir_remove});
}
