/* SPDX-License-Identifier: MIT
 * test_bsrun_explain.c - the ladder of an op with its refusals, what a mask owns, what a method proposes: the
 * numbers against the arithmetic, the predictions against constants that the test wrote. */
#include <math.h>

#include "blockshock/names.h"
#include "tests/bsrun/constants_file.h"
#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

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

START_TEST(a_ladder_has_one_choice_at_its_top) {
  ran r = bsrun(dir, "explain", "matmul", "--dtype", "bf16", "--b", "64", "--n", "256", "--k", "128",
                "--backend", "ref", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 1);
  ck_assert_str_eq(str(rows, 0, "implementation"), "matmul@ref/portable");
  ck_assert_str_eq(str(rows, 0, "plugin"), "ref");
  ck_assert_str_eq(str(rows, 0, "level"), "native");
  ck_assert_str_eq(str(rows, 0, "mark"), "*");
  ck_assert_str_eq(str(rows, 0, "reason"), "");
  ck_assert(json_is_true(json_object_get(json_array_get(rows, 0), "chosen")));
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(refused_candidates_are_shown_with_reasons) {
  ran r = bsrun(dir, "explain", "matmul", "--workspace", "1", "--n", "64", "--backend", "ref", "-o", "json",
                NULL);
  must_be(&r, 3);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 1);
  ck_assert_str_eq(str(rows, 0, "level"), "no");
  ck_assert_str_eq(str(rows, 0, "reason"), "workspace");
  ck_assert_int_eq((int)num(rows, 0, "reason_code"), BS_REASON_WORKSPACE);
  ck_assert_ptr_nonnull(strstr(str(rows, 0, "text"), "the limit is 1"));
  ck_assert_str_eq(str(rows, 0, "mark"), "");
  ck_assert_ptr_nonnull(strstr(r.err, "bsrun: error[BS-OP-NONE]"));
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* Ops of 2:4 weights take what --mask keeps, of either half; the same weights for the same rank. */
START_TEST(kept_weights_of_a_mask) {
  static const char *const ops[] = {"matmul24", "matmul24_dx", "matmul24_dw", "matmul24_update", "expand24"};
  static const char *const masks[] = {"random_2of4", "magnitude", "transposable", "complement_1100_0011"};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    for (size_t k = 0; k < sizeof masks / sizeof masks[0]; k++) {
      ran r = bsrun(dir, "explain", ops[i], "--mask", masks[k], "-P", "2", "--rank", k % 2 ? "1" : "0", "--n",
                    "64", "--backend", "ref", "-o", "jsonl", NULL);
      must_be(&r, 0);
      ck_assert_msg(strstr(r.out, "\"chosen\":true") != NULL, "%s of %s: %s", ops[i], masks[k], r.out);
      ran_free(&r);
    }
  ran r = bsrun(dir, "explain", "matmul24", "--mask", "interleave", "--n", "64", "--backend", "ref", NULL);
  must_be(&r, 3);
  ran_free(&r);
  r = bsrun(dir, "explain", "matmul24", "--mask", "magnitude", "--rank", "2", "--n", "64", NULL);
  must_be(&r, 2);
  ran_free(&r);
}
END_TEST

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
  ran r =
      bsrun(dir, "explain", "matmul", "--mask", "complement_1010_0101", "--rank", "1", "--bias", "--residual",
            "--activation", "gelu", "--deterministic", "--gathered", "--n", "64", "--backend", "ref", NULL);
  must_be(&r, 0);
  ran_free(&r);
}
END_TEST

/* Ops that no layer of a method makes: what is asked is the problem, and in its key. */
START_TEST(ops_of_a_shape) {
  static const struct {
    const char *op, *shape, *key;
  } cases[] = {
      {"attention", "b2h4g2s8t16d8:bf16:causal:w5", "attention@ref bf16[2,4,8,8] bf16[2,2,16,8]"},
      {"attention", "sdpa b1h1s4d8:fp8", "f32[3] bf16[1,1,4,8]"},
      {"attention_dx", "b1h2s4d8e16:f32", "f32[1,2,4] f32[1,2,4,16] f32[1,2,4,8] f32[1,2,4,8] f32[1,2,4,16]"},
      {"matmul24", "n64k32b4:f16", "matmul24@ref x=f16 w=f16 y=f16 N=64 K=32"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ran r =
        bsrun(dir, "explain", cases[i].op, "--shape", cases[i].shape, "--backend", "ref", "-o", "json", NULL);
    must_be(&r, 0);
    json_t *rows = rows_of(&r);
    ck_assert(json_is_true(json_object_get(json_array_get(rows, 0), "chosen")));
    ck_assert_msg(strstr(str(rows, 0, "key"), cases[i].key) != NULL, "%s: key '%s'", cases[i].shape,
                  str(rows, 0, "key"));
    json_decref(rows);
    ran_free(&r);
  }
}
END_TEST

START_TEST(a_shape_is_refused) {
  static const struct {
    const char *op, *option, *value, *says;
  } cases[] = {
      {"attention", "--shape", "", "is no problem of a kernel: a part is empty"},
      {"attention", "--shape", "misson", "did you mean 'mission'?"},
      {"attention_dx", "--shape", "sdpa mission", "is one of attention, and attention_dx is asked"},
      {"convert", "--shape", "mission", "--shape is not for convert"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ran r = bsrun(dir, "explain", cases[i].op, cases[i].option, cases[i].value, NULL);
    must_be(&r, 2);
    ck_assert_msg(strstr(r.err, cases[i].says) != NULL, "%s", r.err);
    ran_free(&r);
  }
  ran r = bsrun(dir, "explain", "attention", "--shape", "mission", "--dtype", "bf16", NULL);
  must_be(&r, 2);
  ck_assert_msg(strstr(r.err, "--dtype is not for attention") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* oneDNN's weights have no backward pass. */
START_TEST(a_weight_to_train) {
  ran r = bsrun(dir, "explain", "matmul", "--train", "--n", "640", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(str(rows, 0, "implementation"), "matmul@cpu/packed");
  for (size_t i = 1; i < json_array_size(rows); i++)
    if (strcmp(str(rows, i, "implementation"), "matmul@cpu/dnnl") == 0)
      ck_assert_ptr_nonnull(strstr(str(rows, i, "text"), "no matmul_dx@cpu/dnnl"));
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* Nor are its blocks the same for any number of tokens. */
START_TEST(a_token_by_itself) {
  ran r = bsrun(dir, "explain", "matmul", "--tokenwise", "--b", "2048", "--n", "640", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(str(rows, 0, "implementation"), "matmul@cpu/packed");
  for (size_t i = 1; i < json_array_size(rows); i++)
    if (strcmp(str(rows, i, "implementation"), "matmul@cpu/dnnl") == 0)
      ck_assert_str_eq(str(rows, i, "level"), "no");
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "explain", "method", "row_parallel", "-P", "4", "--set", "method.repro=R3", "-o", "json",
            NULL);
  must_be(&r, 0);
  rows = rows_of(&r);
  ck_assert_str_eq(str(rows, 0, "repro"), "R3");
  ck_assert_str_eq(str(rows, 0, "collectives"), "all_gather");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(a_column_mask_is_a_gather) {
  ran r = bsrun(dir, "explain", "mask", "complement_1010_0101", "--n", "256", "--k", "130", "--dtype", "bf16",
                "--plugin", "ref", "--cache", "off", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 4); /* a rank each, and the two other ways */
  for (size_t i = 0; i < 2; i++) {
    ck_assert_str_eq(str(rows, i, "runs_as"), "gather, period 4");
    ck_assert_str_eq(str(rows, i, "form"), "gather");
    ck_assert_str_eq(str(rows, i, "legal"), "16/8-bit 2:4, fp32 1:2");
    ck_assert_int_eq((int)num(rows, i, "chosen"), 1);
    ck_assert(num(rows, i, "of_dense") == 0.5);
    ck_assert_int_eq((int)num(rows, i, "columns"), 65);
    ck_assert_int_eq((int)num(rows, i, "weight_bytes"), 256 * 65 * 2);
    ck_assert(json_is_null(json_object_get(json_array_get(rows, i), "predicted_ms")));
  }
  ck_assert_str_eq(str(rows, 1, "which"), "1,3,5,7,9,11,..,129");
  ck_assert_str_eq(str(rows, 2, "form"), "2:4");
  ck_assert_int_eq((int)num(rows, 2, "weight_bytes"), 256 * (66 * 2) + 256 * 33 / 2); /* K = 130: 33 groups */
  ck_assert_str_eq(str(rows, 3, "form"), "dense");
  ck_assert(num(rows, 3, "of_dense") == 1.0 && num(rows, 3, "chosen") == 0);
  ck_assert_ptr_nonnull(strstr(r.err, "doctor --measure"));
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "explain", "mask", "contiguous", "-P", "3", "--n", "8", "--plugin", "ref", "-o", "json",
            NULL);
  must_be(&r, 0);
  rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 5);
  ck_assert_str_eq(str(rows, 2, "runs_as"), "run of columns");
  ck_assert_str_eq(str(rows, 2, "which"), "6..7");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* The row of rank 0 that says this of a form. */
static size_t row_of_form(const json_t *rows, const char *form) {
  for (size_t i = 0; i < json_array_size(rows); i++)
    if (strcmp(str(rows, i, "form"), form) == 0) return i;
  ck_abort_msg("no row of %s", form);
  return 0;
}

/* 2:4 values with two bits each: 9/16 of W at 16 bit. No gather. */
START_TEST(a_mask_by_rows_is_2_4) {
  static const char *const masks[] = {"random_2of4", "magnitude", "transposable"};
  ran r = bsrun(dir, "explain", "mask", masks[_i], "--n", "256", "--dtype", "bf16", "--plugin", "ref", "-o",
                "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  const size_t sparse = row_of_form(rows, "2:4"), gather = row_of_form(rows, "gather");
  ck_assert_int_eq((int)num(rows, sparse, "columns"), 128);
  ck_assert(num(rows, sparse, "weight_bytes") == 256.0 * 256.0 * 2.0 * 9.0 / 16.0);
  ck_assert(num(rows, sparse, "of_dense") == 9.0 / 16.0);
  ck_assert_ptr_nonnull(strstr(str(rows, sparse, "which"), "half 0: "));
  ck_assert(json_is_null(json_object_get(json_array_get(rows, gather), "weight_bytes")));
  ck_assert_ptr_nonnull(strstr(str(rows, gather, "why"), "different columns"));
  ck_assert_str_eq(str(rows, sparse, "legal"), "16/8-bit 2:4");
  ck_assert_int_eq((int)num(rows, sparse, "chosen"), 1); /* ref has the op */
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "explain", "mask", masks[_i], "--n", "256", "-P", "4", "--plugin", "ref", "-o", "json",
            NULL);
  must_be(&r, 0);
  rows = rows_of(&r);
  ck_assert_str_eq(str(rows, 3, "which"), "half 1 of slice 1 of 2");
  ck_assert(num(rows, row_of_form(rows, "2:4"), "of_dense") == 9.0 / 32.0);
  /* Stored with its zeros it is all of W on each rank, as masked_split proposes. */
  const size_t dense = row_of_form(rows, "dense");
  ck_assert(num(rows, dense, "of_dense") == 1.0 && num(rows, dense, "columns") == 256.0);
  ck_assert_ptr_nonnull(strstr(str(rows, dense, "why"), "masked_split"));
  ran m = bsrun(dir, "explain", "method", "masked_split", "--mask", masks[_i], "--n", "256", "-P", "4",
                "--plugin", "ref", "-o", "json", NULL);
  must_be(&m, 0);
  json_t *proposed = rows_of(&m);
  ck_assert(num(proposed, 0, "weight_bytes") == num(rows, dense, "weight_bytes"));
  json_decref(proposed);
  ran_free(&m);
  json_decref(rows);
  ran_free(&r);
  /* Rows that four ranks share 3, 3, 2, 2: a pair has those of both, as the method has. */
  r = bsrun(dir, "explain", "mask", masks[_i], "--n", "10", "--k", "64", "--dtype", "f32", "-P", "4",
            "--plugin", "ref", "-o", "json", NULL);
  must_be(&r, 0);
  rows = rows_of(&r);
  ck_assert_int_eq((int)num(rows, 1, "weight_bytes"), 6 * (32 * 4 + 8));
  ck_assert_int_eq((int)num(rows, 2, "weight_bytes"), 4 * (32 * 4 + 8));
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "explain", "mask", masks[_i], "--n", "256", "-P", "3", "--plugin", "ref", NULL);
  must_be(&r, 3);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-MASK-WORLD"));
  ran_free(&r);
  r = bsrun(dir, "explain", "mask", masks[_i], "--n", "64", "-P", "1", "--plugin", "ref", "-o", "json", NULL);
  must_be(&r, 0);
  rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 1);
  ck_assert_str_eq(str(rows, 0, "form"), "dense");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* Quantised weights: 10/16 of a byte each, as the gather's half and the whole are of bytes; fp4 in pairs. */
START_TEST(a_mask_of_quantised_weights) {
  static const struct {
    const char *mask, *dtype, *backend, *chosen;
    double bytes; /* of a weight */
    int has;      /* the backend has the product */
  } rows_[] = {{"random_2of4", "i8", "cpu", "2:4", 1.0, 1},
               {"random_2of4", "int8", "ref", "2:4", 1.0, 1},
               {"complement_1010_0101", "i8", "cpu", "gather", 1.0, 1},
               {"complement_1010_0101", "f8e4m3", "cpu", "gather", 1.0, 0},
               {"magnitude", "f8e5m2", "ref", "2:4", 1.0, 1},
               {"random_2of4", "fp4", "cpu", "dense", 0.5, 0},
               {"complement_1100_0011", "fp4", "ref", "gather", 0.5, 0}};
  const char *const mask = rows_[_i].mask;
  const double whole = 256.0 * 128.0 * rows_[_i].bytes;
  const int fixed = strncmp(mask, "complement", 10) == 0;
  ran r = bsrun(dir, "explain", "mask", mask, "--n", "256", "--k", "128", "--dtype", rows_[_i].dtype,
                "--plugin", rows_[_i].backend, "--cache", "off", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(str(rows, 0, "form"), rows_[_i].chosen);
  ck_assert_int_eq((int)num(rows, 0, "chosen"), 1);
  const size_t sparse = row_of_form(rows, "2:4"), gather = row_of_form(rows, "gather");
  ck_assert(num(rows, sparse, "weight_bytes") == whole * 10 / 16);
  ck_assert(num(rows, sparse, "of_dense") == 0.625);
  ck_assert(num(rows, row_of_form(rows, "dense"), "weight_bytes") == whole);
  if (fixed) ck_assert(num(rows, gather, "weight_bytes") == whole / 2);
  ck_assert_str_eq(str(rows, 0, "dtype"), strcmp(rows_[_i].dtype, "int8") == 0 ? "i8" : rows_[_i].dtype);
  ck_assert_int_eq(strstr(str(rows, fixed ? gather : sparse, "why"), "not on this backend") == NULL,
                   rows_[_i].has);
  if (strcmp(mask, "complement_1100_0011") == 0)
    ck_assert_str_eq(str(rows, 0, "legal"), "16/8-bit 2:4, fp4 paired 4:8");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(a_method_proposes_by_rank) {
  ran r = bsrun(dir, "explain", "method", "blockshock", "-P", "2", "--b", "8", "--n", "256", "--k", "128",
                "--dtype", "f32", "--plugin", "ref", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 2);
  ck_assert(num(rows, 0, "flops") + num(rows, 1, "flops") == 2.0 * 8 * 256 * 128);
  ck_assert(num(rows, 0, "weight_bytes") == 256.0 * 64 * 4);
  ck_assert(num(rows, 1, "payload_bytes") == 8.0 * 256 * 4);
  ck_assert_str_eq(str(rows, 0, "collectives"), "all_reduce");
  ck_assert_str_eq(str(rows, 0, "split"), "K");
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "explain", "method", "column_parallel", "-P", "3", "--n", "256", "--plugin", "ref", "-o",
            "json", NULL);
  must_be(&r, 0);
  rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 3);
  ck_assert_str_eq(str(rows, 2, "split"), "N");
  ck_assert_str_eq(str(rows, 2, "collectives"), "all_gather");
  json_decref(rows);
  ran_free(&r);
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
                "--dtype", "f32", "--plugin", "ref", "--threads-per-rank", "1", "--cache", "machine.json",
                "-o", "json", NULL);
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
            "--dtype", "i8", "--plugin", "ref", "--threads-per-rank", "1", "--cache", "machine.json", "-o",
            "json", NULL);
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

static const struct {
  const char *argv[8];
  int code;
  const char *id, *text;
} wrong[] = {
    {{"mtmul"}, 2, "BS-USE-CHOICE", "'matmul'"},
    {{"mask"}, 2, "BS-USE-WORD", "explain mask MASK"},
    {{"matmul", "x"}, 2, "BS-USE-WORD", "2 words"},
    {{"mask", "interleav"}, 3, "BS-MASK-NAME", "'interleave'"},
    {{"method", "blokshock"}, 3, "BS-PLG-NOTFOUND", "'blockshock'"},
    {{"method", "dense", "-P", "2"}, 3, "BS-METHOD-WORLD", "-P 1"},
    {{"mask", "complement_1100_0011", "-P", "3"}, 3, "BS-MASK-WORLD", "interleave"},
    {{"mask", "interleave", "--mask", "contiguous"}, 2, "BS-USE-OPTION", "twice"},
    {{"method", "dense", "--bias"}, 2, "BS-USE-OPTION", "--bias"},
    {{"matmul", "--b", "0"}, 3, "BS-CFG-RANGE", "model.B"},
    {{"matmul", "--dtype", "fp33"}, 3, "BS-CFG-DTYPE", "fp32"},
    {{"matmul", "--out-dtype", "x"}, 2, "BS-USE-CHOICE", "--out-dtype"},
    {{"matmul", "--activation", "geluu"}, 2, "BS-USE-CHOICE", "'gelu'"},
    {{"matmul", "--mask", "interleave", "--rank", "2"}, 2, "BS-USE-NUMBER", "2 ranks"},
    {{"matmul", "--mask", "random_2of4"}, 3, "BS-MASK-BYROW", "2:4"},
    {{"matmul", "--dtype", "f32", "--weight-dtype", "i32"}, 2, "BS-OP-DTYPE", "i32"},
    {{"method", "dense", "--workspace", "1"}, 2, "BS-USE-OPTION", "--workspace"},
    {{"gather_columns"}, 2, "BS-USE-VALUE", "--mask"},
    {{"matmul", "--backend", "nosuch"}, 3, "BS-PLG-NOTFOUND", "nosuch"},
    {{"matmul", "--plugin", "nosuch"}, 5, "BS-PLG", "nosuch"},
    {{"matmul", "--cache", ""}, 2, "BS-USE-EMPTY", "--cache"},
};

START_TEST(wrong_use) {
  char *argv[12] = {(char *)(uintptr_t) "bsrun", (char *)(uintptr_t) "explain"};
  for (int i = 0; i < 8; i++) argv[i + 2] = (char *)(uintptr_t)wrong[_i].argv[i];
  ran r = finish_bsrun(dir, start_bsrun(dir, argv));
  must_be(&r, wrong[_i].code);
  const char *line = strstr(r.err, "bsrun: error[");
  ck_assert_msg(line != NULL && strstr(line, wrong[_i].id) == line + strlen("bsrun: error["), "%s", r.err);
  ck_assert_msg(strstr(line, wrong[_i].text) != NULL, "%s", line);
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
}
END_TEST

START_TEST(help) {
  ran r = bsrun(dir, "explain", NULL);
  must_be(&r, 2);
  ck_assert_ptr_nonnull(strstr(r.out, "usage: bsrun explain OP"));
  ran_free(&r);
  r = bsrun(dir, "help", "explain", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "examples:"));
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_ladder_has_one_choice_at_its_top},
                             {refused_candidates_are_shown_with_reasons},
                             {the_other_ops},
                             {kept_weights_of_a_mask},
                             {ops_of_a_shape},
                             {a_shape_is_refused},
                             {a_weight_to_train},
                             {a_token_by_itself},
                             {a_column_mask_is_a_gather},
                             {a_mask_by_rows_is_2_4, 3},
                             {a_mask_of_quantised_weights, 7},
                             {a_method_proposes_by_rank},
                             {predictions_come_from_the_stored_constants},
                             {wrong_use, TEST_COUNT(wrong)},
                             {help},
                             {0}};
  return run_tests("bsrun_explain", tests, (test_setup){setup, teardown});
}
