/* SPDX-License-Identifier: MIT
 * test_run_layer.c - what the layer itself may be asked for from the command line: activations and
 * placements, through both phases, in the record, and refused with one line where a method has none. */
#include <stdio.h>
#include <string.h>

#include "run_help.h"
#include "tests/run_tests.h"

static char cwd[64];

static void setup(void) {
  run_make_folder(cwd);
}
static void teardown(void) {
  run_remove(cwd);
}

/* `bsrun run` of a small layer; extra: up to two more settings. */
static void run_layer(run_result *r, const char *method, const char *ranks, const char *phase,
                      const char *first, const char *second) {
  const char **args = run_words(
      "run --plugin cpu --method %s -P %s --phase %s --set model.N=192 --set model.B=16 --set "
      "phase.timed_iters=2 --set phase.pairs_min=5 --set phase.pairs_max=5 --set phase.pairs_seconds=0.1 "
      "--out out -o jsonl -v --set %s "
      "--set %s",
      method, ranks, phase, first, second);
  run_bsrun(r, cwd, NULL, args);
}

static json_t *record_of(const run_result *r) {
  json_t *rows = run_rows(r->out);
  json_t *record = run_record(cwd, run_str(json_array_get(rows, 0), "run_dir"));
  json_decref(rows);
  return record;
}

START_TEST(every_activation_passes_every_gate) {
  static const char *const methods[] = {"dense", "column_parallel", "row_parallel", "masked_split",
                                        "blockshock"};
  static const char *const activations[] = {"none", "relu", "gelu", "silu"};
  for (size_t a = 0; a < 4; a++) {
    char set[64];
    run_result r;
    snprintf(set, sizeof set, "model.activation=%s", activations[a]);
    run_layer(&r, methods[_i], _i == 0 ? "1" : "2", "0", set, "model.dtype=bf16");
    run_expect(&r, 0, activations[a]);
    json_t *record = record_of(&r);
    ck_assert_str_eq(run_str(record, "activation"), activations[a]);
    ck_assert(json_is_true(json_object_get(record, "passed")));
    const json_t *gates = json_object_get(record, "gates");
    for (size_t g = 0; g < json_array_size(gates); g++)
      ck_assert_str_eq(run_str(json_array_get(gates, g), "state"), "pass");
    ck_assert_int_eq(strstr(r.err, "; without ") != NULL, a >= 2); /* T5 */
    json_decref(record);
    run_free(&r);
  }
}
END_TEST

/* Both arms have it: the dense layer beside the method, too. */
START_TEST(phase_1_times_it) {
  run_result r;
  run_layer(&r, "blockshock", "2", "1", "model.activation=silu", "method.x_placement=split");
  run_expect(&r, 0, "phase 1");
  json_t *record = record_of(&r);
  ck_assert_str_eq(run_str(record, "activation"), "silu");
  ck_assert_str_eq(run_str(record, "x_placement"), "split");
  ck_assert_uint_eq(json_array_size(json_object_get(record, "arms")), 3);
  ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(record, "split")), "then the activation"));
  json_decref(record);
  run_free(&r);
}
END_TEST

START_TEST(split_inputs) {
  static const char *const methods[] = {"row_parallel", "masked_split", "blockshock"};
  run_result r;
  run_layer(&r, methods[_i], "2", "0", "method.x_placement=split", "method.bias=true");
  run_expect(&r, 0, methods[_i]);
  json_t *record = record_of(&r);
  ck_assert_str_eq(run_str(record, "x_placement"), "split");
  ck_assert(json_is_true(json_object_get(record, "passed")));
  ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
  json_decref(record);
  run_free(&r);
}
END_TEST

START_TEST(refused) {
  static const struct {
    const char *method, *ranks, *set, *id, *says;
  } rows[] = {
      {"column_parallel", "2", "method.x_placement=split", "BS-METHOD-PLACEMENT", "row_parallel"},
      {"blockshock", "2", "method.x_placement=spilt", "BS-CFG-RANGE", "split"},
      {"blockshock", "2", "model.activation=geluu", "BS-CFG-RANGE", "gelu"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (int phase = 0; phase < 2; phase++) {
      run_result r;
      char id[64];
      run_layer(&r, rows[i].method, rows[i].ranks, phase ? "1" : "0", rows[i].set, "model.K=64");
      run_expect(&r, 3, rows[i].set);
      run_expect_error(&r, 1, id, rows[i].set);
      ck_assert_msg(strstr(r.err, rows[i].says) != NULL, "%s", r.err);
      ck_assert_str_eq(id, rows[i].id);
      run_free(&r);
    }
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {every_activation_passes_every_gate, 5}, {phase_1_times_it}, {split_inputs, 3}, {refused}, {0}};
  return run_tests("run layer", tests, (test_setup){setup, teardown, 120});
}
