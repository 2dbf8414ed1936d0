/* SPDX-License-Identifier: MIT
 * test_run_train.c - phase 3 by the command line: its gates, what the host counted on the wire of a step,
 * layers with an activation, a loss that goes down, masks made anew, what is refused. */
#include <stdio.h>
#include <string.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

enum { N = 96, K = 160, B = 32, STEPS = 3, WARMUP = 1 };

/* The row has the means of a re-mask's regions, and nothing of them without one. */
static void check_row(const json_t *row, const json_t *record) {
  static const char *const regions[][2] = {{"remask", "remask_ms"},
                                           {"decompress", "decompress_ms"},
                                           {"mask", "mask_ms"},
                                           {"compress", "compress_ms"}};
  for (size_t i = 0; i < 4; i++) {
    const json_t *region = json_object_get(json_object_get(record, "timings_ms"), regions[i][0]),
                 *shown = json_object_get(row, regions[i][1]);
    if (run_num(record, "remask") > 0 && region != NULL)
      ck_assert_double_eq(json_number_value(shown), run_num(region, "avg_ms"));
    else
      ck_assert(shown == NULL || json_is_null(shown));
  }
}

/* The record of a run with some settings more. */
static json_t *train(const char *method, const char *const *more) {
  ran r;
  const char **args = run_words(
      "--method %s --phase train_step --out out -o jsonl --set model.N=96 --set model.K=160 --set model.B=32 "
      "--set phase.timed_iters=3 --set phase.warmup_iters=1",
      method);
  size_t n = 18;
  for (size_t i = 0; more[i] != NULL; i++) {
    args[n++] = "--set";
    args[n++] = more[i];
  }
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 0, method);
  json_t *rows = run_rows(r.out), *row = json_array_get(rows, 0);
  json_t *record = run_record(dir, run_str(row, "run_dir"));
  check_row(row, record);
  json_decref(rows);
  ran_free(&r);
  return record;
}

static double timed(const json_t *record, const char *region) {
  return run_num(json_object_get(json_object_get(record, "timings_ms"), region), "count");
}

static void check_gates(const json_t *record, const char *method, int adamw) {
  static const char *const needed[] = {"dX.T3", "dW.T3", "W.T3", "b.T3", "y.T1", "W.T5", "T6"};
  unsigned seen = 0;
  size_t i;
  const json_t *gate;
  json_array_foreach(json_object_get(record, "gates"), i, gate) {
    const char *name = run_str(gate, "name"), *state = run_str(gate, "state");
    ck_assert_msg(strcmp(state, "fail") != 0, "%s: %s", method, name);
    for (size_t k = 0; k < 7; k++)
      if (strcmp(name, needed[k]) == 0 && strcmp(state, "pass") == 0) seen |= 1u << k;
  }
  ck_assert_msg(seen == (adamw ? 0x5fu : 0x7fu), "%s: gates 0x%x", method, seen);
  ck_assert(json_is_true(json_object_get(record, "passed")));
  ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
}

START_TEST(gates_and_regions) {
  static const struct {
    const char *method;
    int optimizer;
  } points[] = {{"dense", 0},        {"column_parallel", 1}, {"row_parallel", 2}, {"masked_split", 0},
                {"masked_split", 2}, {"blockshock", 0},      {"blockshock", 1},   {"blockshock", 2}};
  const char *method = points[_i].method;
  const int optimizer = points[_i].optimizer;
  static const char *const optimizers[] = {"phase.optimizer=sgd", "phase.momentum=0.9",
                                           "phase.optimizer=adamw"};
  const char *const more[] = {optimizers[optimizer], "phase.weight_decay=0.125", "method.bias=true",
                              _i % 2 ? "model.dtype=bf16" : "model.dtype=f32", NULL};
  json_t *record = train(method, more);
  check_gates(record, method, optimizer == 2);
  static const char *const regions[] = {"forward", "loss", "backward", "opt_step", "total_step"};
  for (size_t i = 0; i < 5; i++) ck_assert_double_eq(timed(record, regions[i]), STEPS);
  ck_assert_double_eq(run_num(record, "steps"), STEPS + WARMUP);
  ck_assert_uint_eq(json_array_size(json_object_get(record, "losses")), STEPS + WARMUP);
  ck_assert_double_eq(run_num(json_object_get(record, "weights"), "rows_judged"), N);
  json_decref(record);
}
END_TEST

/* Weights of a byte are right as far as they can be judged: no gate fails, W.T5 is skipped and says why. */
START_TEST(weights_of_a_byte) {
  static const char *const points[][2] = {{"model.dtype=f8e4m3", "phase.optimizer=sgd"},
                                          {"model.dtype=f8e4m3", "phase.optimizer=adamw"},
                                          {"model.dtype=f8e5m2", "phase.momentum=0.5"},
                                          {"model.dtype=f8e5m2", "phase.optimizer=adamw"}};
  const char *const more[] = {points[_i][0], points[_i][1], "method.bias=true", "hardware.backend=ref", NULL};
  json_t *record = train("row_parallel", more);
  check_gates(record, points[_i][0], 1); /* as of AdamW: no W.T5 */
  json_decref(record);
}
END_TEST

/* Each method, optimiser and dtype behind each activation, on threads and as processes. W.T5 keeps relu. */
START_TEST(through_an_activation) {
  static const char *const methods[] = {"dense", "column_parallel", "row_parallel", "masked_split",
                                        "blockshock"};
  static const char *const activations[] = {"relu", "gelu", "silu"};
  static const char *const optimizers[] = {"phase.optimizer=sgd", "phase.momentum=0.9",
                                           "phase.optimizer=adamw"};
  const char *method = methods[_i / 3], *activation = activations[_i % 3];
  const int optimizer = (_i + _i / 3) % 3;
  char setting[40];
  snprintf(setting, sizeof setting, "model.activation=%s", activation);
  for (int processes = 0; processes < (_i < 3 ? 1 : 2); processes++) {
    const char **more = run_words("%s method.bias=true %s %s %s %s", optimizers[optimizer], setting,
                                  _i % 2 ? "model.dtype=bf16" : "model.dtype=f32",
                                  processes ? "method.y_placement=split" : "workload.loss=mse_zero",
                                  processes ? "hardware.launch=processes" : "hardware.launch=threads");
    json_t *record = train(method, more);
    check_gates(record, method, optimizer == 2);
    ck_assert_str_eq(run_str(record, "activation"), activation);
    size_t i;
    const json_t *gate;
    json_array_foreach(json_object_get(record, "gates"), i, gate) {
      if (strcmp(run_str(gate, "name"), "W.T5") != 0 || optimizer == 2) continue;
      ck_assert_int_eq(strstr(run_str(gate, "text"), "; without ") != NULL, _i % 3 != 0);
    }
    json_decref(record);
  }
}
END_TEST

/* Units of (P-1)/P of a message: an all-gather is one, an all-reduce two. f32, N = K. */
START_TEST(three_units_on_the_wire) {
  static const char *const methods[] = {"row_parallel", "blockshock", "column_parallel"};
  const char *const more[] = {"model.dtype=f32", "model.K=96", "phase.fault_gate=false", NULL};
  for (size_t i = 0; i < 3; i++) {
    json_t *record = train(methods[i], more);
    ck_assert_double_eq(run_num(record, "wire_bytes_per_step"), 3.0 * B * N * 4 / 2 * 2); /* of two ranks */
    ck_assert_double_eq(run_num(record, "collectives_per_step"), 2);
    json_decref(record);
  }
}
END_TEST

START_TEST(the_loss_goes_down) {
  static const char *const settings[][6] = {
      {"workload.loss=mse_zero", "phase.lr=3", "phase.optimizer=sgd", "model.dtype=f32", NULL},
      {"workload.loss=mse_target", "workload.target=random_normal", "phase.lr=3", "model.dtype=f32", NULL},
      {"workload.loss=mse_zero", "phase.lr=0.01", "phase.optimizer=adamw", "model.dtype=bf16", NULL}};
  const char *more[8] = {"phase.fault_gate=false", "phase.timed_iters=8"};
  for (size_t i = 0; i < 5; i++) more[2 + i] = settings[_i][i];
  json_t *record = train("blockshock", more);
  const json_t *losses = json_object_get(record, "losses");
  ck_assert_uint_eq(json_array_size(losses), 9);
  for (size_t i = 1; i < 9; i++)
    ck_assert_msg(json_real_value(json_array_get(losses, i)) < json_real_value(json_array_get(losses, i - 1)),
                  "loss %zu is %g, before it %g", i, json_real_value(json_array_get(losses, i)),
                  json_real_value(json_array_get(losses, i - 1)));
  json_decref(record);
}
END_TEST

/* A re-mask and its parts, all within it; of 2:4 halves the op expand24 makes them dense. */
static void check_remask(const json_t *record, int halves) {
  static const char *const parts[] = {"decompress", "mask"};
  const json_t *timings = json_object_get(record, "timings_ms");
  double sum = 0;
  int expands = 0;
  size_t i;
  const json_t *algorithm;
  for (i = 0; i < (halves ? 2 : 1); i++) {
    ck_assert_msg(timed(record, parts[i]) == timed(record, "remask"), "%s", parts[i]);
    sum += run_num(json_object_get(timings, parts[i]), "sum_ms");
  }
  ck_assert_double_le(sum, run_num(json_object_get(timings, "remask"), "sum_ms"));
  ck_assert(halves || json_object_get(timings, "mask") == NULL);
  json_array_foreach(json_object_get(record, "algorithms"), i, algorithm) expands |=
      strncmp(json_string_value(algorithm), "expand24@", 9) == 0;
  ck_assert_int_eq(expands, halves);
}

START_TEST(a_mask_made_anew) {
  for (int i = 0; i < 3; i++) {
    const char **more = run_words("%s %s method.bias=true model.dtype=bf16",
                                  i == 0   ? "phase.optimizer=adamw"
                                  : i == 1 ? "phase.momentum=0.5"
                                           : "phase.lr=1",
                                  i == 2 ? "method.recompress_each_step=true" : "phase.remask=2");
    json_t *record = train(i == 1 ? "masked_split" : "blockshock", more);
    check_gates(record, "with a new mask", i == 0);
    ck_assert_double_eq(run_num(record, "remask"), (i == 2 ? 1 : 2));
    ck_assert_double_eq(timed(record, "compress"), (i == 2 ? 3 : 1)); /* four steps, none behind the last */
    check_remask(record, 0);
    json_decref(record);
  }
}
END_TEST

/* Blockshock by 2:4 halves: of masks that differ by row, shared by ranks in slices, and of a half alone. */
START_TEST(halves_are_trained) {
  static const char *const points[][9] = {
      {"phase.optimizer=sgd", "mask.name=random_2of4"},
      {"phase.optimizer=adamw", "mask.name=magnitude", "model.K=161"},
      {"phase.momentum=0.5", "mask.name=transposable", "phase.weight_decay=0.125"},
      {"phase.optimizer=adamw", "mask.name=magnitude", "hardware.world_size=4", "method.slices=row"},
      {"phase.optimizer=sgd", "mask.name=magnitude", "hardware.world_size=4", "method.slices=column",
       "phase.reference_features=9"},
      {"phase.optimizer=adamw", "mask.name=magnitude", "method.half=0"},
      {"phase.optimizer=sgd", "mask.name=random_2of4", "hardware.world_size=1", "method.half=1"},
      {"phase.optimizer=adamw", "mask.pattern=[1, 0, 1, 0]", "method.kernel=sparse24"},
      {"phase.optimizer=sgd", "mask.name=magnitude", "model.activation=relu", "hardware.world_size=4",
       "method.slices=column"},
      {"phase.momentum=0.5", "mask.name=random_2of4", "model.activation=gelu", "method.half=0"}};
  const char *more[12] = {"mask.use=always", "method.bias=true",
                          _i % 2 ? "model.dtype=bf16" : "model.dtype=f32"};
  size_t n = 3;
  for (size_t i = 0; points[_i][i] != NULL; i++) more[n++] = points[_i][i];
  json_t *record = train("blockshock", more);
  check_gates(record, points[_i][1], strstr(points[_i][0], "adamw") != NULL);
  ck_assert_double_eq(timed(record, "opt_step"), STEPS);
  json_decref(record);
}
END_TEST

/* Magnitude chooses anew after steps that are long enough to change what is large; a frozen mask (T2) and one
 * that does not look at weights stay where they are. */
START_TEST(positions_made_anew) {
  static const char *const points[][4] = {{"mask.name=magnitude", "phase.lr=3", "phase.optimizer=sgd"},
                                          {"mask.name=magnitude", "phase.lr=0.5", "phase.optimizer=adamw"},
                                          {"mask.name=random_2of4", "phase.lr=3", "phase.optimizer=sgd"},
                                          {"mask.name=magnitude", "phase.lr=0.5", "phase.optimizer=adamw"},
                                          {"method.kernel=sparse24", "phase.lr=3", "model.K=157"}};
  const char *const more[] = {"mask.use=always", points[_i][0],     points[_i][1],      points[_i][2],
                              "phase.remask=2",  "model.dtype=f32", "method.bias=true", NULL};
  json_t *record = train(_i == 3 ? "masked_split" : "blockshock", more);
  check_gates(record, points[_i][0], _i % 2 == 1);
  ck_assert_double_eq(timed(record, "remask"), 1);
  ck_assert_double_eq(timed(record, "compress"), 2); /* and when the layer was built */
  check_remask(record, 1);
  ck_assert_msg((run_num(record, "weights_moved") > 0) == (_i < 2 || _i == 3), "%s: %g weights moved",
                points[_i][0], run_num(record, "weights_moved"));
  json_decref(record);
}
END_TEST

START_TEST(half_a_mask_is_not_made_anew) {
  ran r;
  const char **args = run_words(
      "--method blockshock --mask magnitude --phase train_step --set method.half=1 --set phase.remask=1 "
      "--set model.N=32 --set model.K=32 --out out");
  run_bsrun(&r, dir, NULL, args);
  ck_assert_int_ne(r.code, 0);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-PHASE-REMASK"));
  ran_free(&r);
}
END_TEST

/* The new layer would begin with act(b) for a bias; without one it can be trained on. */
START_TEST(a_bias_behind_an_activation_is_not_read) {
  ran r;
  const char **args = run_words(
      "--method blockshock --phase train_step --set model.N=32 --set model.K=32 --set phase.remask=1 --set "
      "model.activation=gelu --set method.bias=true --out out");
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 3, "a new mask behind gelu");
  ck_assert_ptr_nonnull(strstr(r.err, "BS-PHASE-REMASK"));
  ck_assert_ptr_nonnull(strstr(r.err, "method.bias=false"));
  ran_free(&r);
  const char *const more[] = {"phase.remask=1", "model.activation=gelu", "method.bias=false",
                              "model.dtype=f32", NULL};
  json_t *record = train("blockshock", more);
  ck_assert(json_is_true(json_object_get(record, "passed")));
  json_decref(record);
}
END_TEST

int main(void) {
  const test_case tests[] = {{gates_and_regions, 8},
                             {through_an_activation, 15},
                             {weights_of_a_byte, 4},
                             {three_units_on_the_wire},
                             {the_loss_goes_down, 3},
                             {a_mask_made_anew},
                             {halves_are_trained, 10},
                             {positions_made_anew, 5},
                             {half_a_mask_is_not_made_anew},
                             {a_bias_behind_an_activation_is_not_read},
                             {0}};
  return run_tests("run_train", tests, (test_setup){dir_make, dir_remove, .timeout = 120});
}
