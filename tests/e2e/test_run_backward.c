/* SPDX-License-Identifier: MIT
 * test_run_backward.c - phase 2 by the command line: its gates, what the host counted on the wire, layers
 * with an activation (on threads and as processes), a method without a backward pass. */
#include <stdio.h>
#include <string.h>

#include "run_help.h"
#include "tests/run_tests.h"

enum { N = 96, K = 160, B = 32 };

typedef struct wire_case {
  const char *method;
  int times; /* bytes over both ranks, of B K: bf16 gathered is 2 x 2 x 1/2, f32 summed 2 x 4 x 1 */
  int flops; /* of 2 B N K, over both ranks: dX and dW */
} wire_case;
static const wire_case cases[] = {{"column_parallel", 8, 2}, {"row_parallel", 2, 2}, {"blockshock", 2, 2}};
/* masked_split multiplies its zeros for dX, and makes only its own columns of dW. */
static const wire_case masked = {"masked_split", 8, 3};

static json_t *run_phase2(const char *folder, const char *method) {
  run_result r;
  const char **args = run_words(
      "--method %s --phase 2 --out out -o jsonl --set model.N=96 --set model.K=160 --set model.B=32 --set "
      "model.dtype=bf16 --set method.bias=false --set phase.timed_iters=3",
      method);
  run_bsrun(&r, folder, NULL, args);
  run_expect(&r, 0, method);
  json_t *rows = run_rows(r.out);
  json_t *record = run_record(folder, run_str(json_array_get(rows, 0), "run_dir"));
  json_decref(rows);
  run_free(&r);
  return record;
}

static void check_record(const json_t *record, const wire_case *c) {
  const double bk = (double)B * K, product = 2.0 * B * N * K;
  ck_assert(json_is_true(json_object_get(record, "passed")));
  ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
  ck_assert_double_eq(run_num(record, "wire_bytes_per_backward"), c->times * bk);
  ck_assert_double_eq(run_num(record, "flops_per_backward"), c->flops * product);
  ck_assert_double_eq(run_num(record, "collectives_per_backward"), 1);
  const json_t *timings = json_object_get(record, "timings_ms");
  ck_assert_double_eq(run_num(json_object_get(timings, "backward"), "count"), 3);
  ck_assert_double_eq(run_num(json_object_get(timings, "forward"), "count"), 3);
  const json_t *dx = json_object_get(record, "dx");
  ck_assert(run_num(dx, "relative_error") > 0 && run_num(dx, "relative_error_predicted") > 0);
  ck_assert_double_eq(run_num(dx, "columns_judged"), K);
  ck_assert_double_eq(run_num(json_object_get(record, "dw"), "columns_judged"), K);
  ck_assert_ptr_null(json_object_get(record, "db"));
  int seen = 0;
  size_t i;
  const json_t *gate;
  json_array_foreach(json_object_get(record, "gates"), i, gate) {
    const char *name = run_str(gate, "name");
    seen += strcmp(name, "dX.T1") == 0 || strcmp(name, "dW.T3") == 0 || strcmp(name, "T6") == 0;
    ck_assert_str_ne(run_str(gate, "state"), "fail");
  }
  ck_assert_int_eq(seen, 3);
}

START_TEST(gates_and_counts) {
  char folder[64];
  run_make_folder(folder);
  for (size_t i = 0; i <= sizeof cases / sizeof cases[0]; i++) {
    const wire_case *c = i < sizeof cases / sizeof cases[0] ? &cases[i] : &masked;
    json_t *record = run_phase2(folder, c->method);
    check_record(record, c);
    json_decref(record);
  }
  run_remove(folder);
}
END_TEST

/* Every method behind every activation; ranks that are processes bring their part of Y to the judge. */
START_TEST(through_an_activation) {
  static const char *const methods[] = {"dense", "column_parallel", "row_parallel", "masked_split",
                                        "blockshock"};
  static const char *const activations[] = {"model.activation=relu", "model.activation=gelu",
                                            "model.activation=silu"};
  const char *method = methods[_i / 3], *activation = activations[_i % 3];
  char folder[64];
  run_make_folder(folder);
  for (int processes = 0; processes < (_i < 3 ? 1 : 2); processes++) {
    run_result r;
    const char **args = run_words(
        "--method %s --phase 2 --out out -o jsonl --launch %s --set %s --set model.N=50 --set model.K=70 "
        "--set model.B=20 --set %s --set method.bias=true --set %s",
        method, processes ? "processes" : "threads", activation,
        _i % 2 ? "model.dtype=bf16" : "model.dtype=f32",
        processes ? "method.y_placement=split" : "method.y_placement=replicated");
    run_bsrun(&r, folder, NULL, args);
    run_expect(&r, 0, method);
    json_t *rows = run_rows(r.out);
    json_t *record = run_record(folder, run_str(json_array_get(rows, 0), "run_dir"));
    ck_assert(json_is_true(json_object_get(record, "passed")));
    ck_assert(json_is_true(json_object_get(record, "claims_match_counts")));
    ck_assert_str_eq(run_str(record, "activation"), strchr(activation, '=') + 1);
    unsigned seen = 0;
    size_t i;
    const json_t *gate;
    json_array_foreach(json_object_get(record, "gates"), i, gate) {
      const char *name = run_str(gate, "name");
      ck_assert_str_ne(run_str(gate, "state"), "fail");
      if (strcmp(run_str(gate, "state"), "pass") != 0) continue;
      seen |= strcmp(name, "dX.T3") == 0   ? 1u
              : strcmp(name, "dW.T3") == 0 ? 2u
              : strcmp(name, "db.T3") == 0 ? 4u
                                           : 0u;
      seen |= strcmp(name, "T6") == 0 ? 8u : 0u;
    }
    ck_assert_msg(seen == 15u, "%s %s: gates 0x%x", method, activation, seen);
    json_decref(record);
    json_decref(rows);
    run_free(&r);
  }
  run_remove(folder);
}
END_TEST

START_TEST(a_method_without_one) {
  char folder[64], id[64];
  run_result r;
  run_make_folder(folder);
  const char **args = run_words(
      "--plugin %s --method faulty --phase 2 --set plugin_trust=any --set model.dtype=f32 --set model.N=24 "
      "--out out",
      BS_TEST_E2E_DIR "/bs_faulty.so");
  run_bsrun(&r, folder, NULL, args);
  run_expect(&r, 3, "no backward");
  run_expect_error(&r, 1, id, "no backward");
  ck_assert_str_eq(id, "BS-LAYER-BACKWARD");
  ck_assert_uint_eq(run_count_files(folder, NULL), 0);
  run_free(&r);
  run_remove(folder);
}
END_TEST

int main(void) {
  const test_case tests[] = {{gates_and_counts}, {through_an_activation, 15}, {a_method_without_one}, {0}};
  return run_tests("run_backward", tests, (test_setup){.timeout = 120});
}
