/* SPDX-License-Identifier: MIT
 * test_bsrun_explain.c - explain serves every op on two backends, and its predictions are those of constants
 * that the test wrote. tests/cases/explain.case has the rest. */
#include <math.h>

#include "blockshock/names.h"
#include "tests/bsrun/constants_file.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

static json_t *rows_of(const ran *r) {
  json_error_t why;
  json_t *rows = json_loads(r->out, JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(json_is_array(rows), "%s: %s", why.text, r->out);
  return rows;
}
static const char *str(const json_t *rows, size_t i, const char *key) {
  const char *text = json_string_value(json_object_get(json_array_get(rows, i), key));
  ck_assert_msg(text != NULL, "row %zu has no text %s", i, key);
  return text;
}
static double num(const json_t *rows, size_t i, const char *key) {
  const json_t *value = json_object_get(json_array_get(rows, i), key);
  ck_assert_msg(json_is_number(value), "row %zu has no number %s", i, key);
  return json_number_value(value);
}

START_TEST(the_other_ops) {
  static const char *const backends[] = {"ref", "sim"};
  for (uint32_t i = 0; i < 2 * BS_CORE_OPS; i++) {
    const char *op = bs_name_of(BS_NAMES_OP, i / 2);
    ran r = bsrun(dir, "explain", op, "--mask", "complement_1100_0011", "-P", "2", "--rank", "1", "--n", "64",
                  "--backend", backends[i % 2], "-o", "jsonl", NULL);
    must_be(&r, 0);
    ck_assert_msg(strstr(r.out, "\"chosen\":true") != NULL, "%s on %s: %s", op, backends[i % 2], r.out);
    ck_assert_ptr_nonnull(strstr(r.out, op));
    ran_free(&r);
  }
}
END_TEST

/* The constants: 2 GFLOP/s a core in f32, a slow multiply-add beside fast memory; all_reduce 1 us + payload /
 * 1e9; host 2 us. Without rates of the implementation that serves, the bound alone. */
START_TEST(predictions_come_from_the_stored_constants) {
  char *text;
  json_t *constants = round_constants("ref");
  ck_assert_ptr_nonnull(text = json_dumps(constants, 0));
  write_text(dir, "machine.json", text);
  ran r = bsrun(dir, "explain", "method", "blockshock", "-P", "2", "--b", "8", "--n", "256", "--k", "128",
                "--dtype", "f32", "--plugin", "ref", "--threads", "1", "--cache", "machine.json", "-o",
                "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  const double flops = 2.0 * 8 * 256 * 64, payload = 8.0 * 256 * 4;
  const double wanted = flops / 2e9 + 1e-6 + (payload - 4) / 1e9 + 2e-6;
  ck_assert_msg(fabs(1e-3 * num(rows, 0, "bound_ms") - wanted) < 1e-9 * wanted, "%g, wanted %g",
                1e-3 * num(rows, 0, "bound_ms"), wanted);
  ck_assert(json_is_null(json_object_get(json_array_get(rows, 0), "predicted_ms")));
  ck_assert_ptr_nonnull(strstr(r.err, "no rates of ref:portable"));
  ck_assert_str_eq(str(rows, 0, "limit"), "compute");
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "explain", "mask", "interleave", "-P", "2", "--n", "64", "--dtype", "f64", "--plugin", "ref",
            "--cache", "machine.json", "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.err, "lack this dtype"));
  ran_free(&r);
  /* Bytes, multiplied in f32: no fewer multiply-adds than of f32, a quarter of the weights. */
  r = bsrun(dir, "explain", "mask", "random_2of4", "-P", "2", "--b", "8", "--n", "256", "--k", "128",
            "--dtype", "i8", "--plugin", "ref", "--threads", "1", "--cache", "machine.json", "-o", "json",
            NULL);
  must_be(&r, 0);
  rows = rows_of(&r);
  ck_assert_msg(fabs(1e-3 * num(rows, 0, "bound_ms") - wanted) < 1e-9 * wanted, "%g, wanted %g",
                1e-3 * num(rows, 0, "bound_ms"), wanted);
  ck_assert(json_is_null(json_object_get(json_array_get(rows, 0), "predicted_ms")));
  ck_assert_ptr_null(strstr(r.err, "no times predicted"));
  json_decref(rows);
  ran_free(&r);
  free(text);
  json_decref(constants);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_other_ops}, {predictions_come_from_the_stored_constants}, {0}};
  return run_tests("bsrun_explain", tests, (test_setup){dir_make, dir_remove});
}
