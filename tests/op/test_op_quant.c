/* SPDX-License-Identifier: MIT
 * test_op_quant.c - the forms of quantised weights and the schema of matmul_q and take_q: what is refused and
 * by which id, what a run costs, the names of schemes; packing, and plans over a weight of another form.
 * Numbers are the conformance kit's (kit/op_q_judge.c). */
#include <string.h>

#include "core/op/choice.h"
#include "core/op/quant.h"
#include "op_asked.h"
#include "tests/run_tests.h"

enum { ROWS = 6, COLS = 100 };

/* A weight whose codes are row + column, modulo 16, and whose scales are 1/2; ctx is the rows that it gives
 * before it fails. */
static int32_t read_rows(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const int64_t *good = ctx;
  if (row + nrows > *good)
    return bs_error_set(err, BS_INPUT, "BS-TEST-READ", "row %lld cannot be read", (long long)*good);
  for (int64_t r = 0; r < nrows; r++) {
    for (int64_t k = 0; k < COLS; k++) out->codes[r * out->codes_stride + k] = (uint8_t)((row + r + k) % 16);
    for (int64_t s = 0; s < 4; s++) out->scales[r * 4 + s] = 0.5f;
  }
  return BS_OK;
}

static int64_t good_rows = ROWS;

static bs_quant form_of(const char *scheme) {
  bs_quant form;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_quant_scheme(scheme, ROWS, COLS, &form, &err) == BS_OK, "%s", err.message);
  form.ctx = &good_rows;
  form.read = read_rows;
  return form;
}

/* A query from a text of op_asked.h over this form. */
static void ask(asked *a, const char *op, const char *text, const bs_quant *form) {
  read_args(a, op, text);
  a->q.weight_dtype = BS_F32;
  a->q.quant = form;
}

static void refused(const bs_op_query *q, const char *id, const char *word) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_op_check(q, &err) == BS_INVALID_ARGUMENT, "accepted, where '%s' is to be said", word);
  ck_assert_msg(strcmp(err.id, id) == 0, "%s: %s, not %s", err.id, err.message, id);
  ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" does not say \"%s\"", err.message, word);
}

static void accepted(const bs_op_query *q) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_op_check(q, &err) == BS_OK, "%s: %s", err.id, err.message);
}

/* ---- forms ------------------------------------------------------------------------------------ */

static const struct {
  uint32_t bits, flags;
  int32_t zero;
  int64_t rows, cols, group, span;
  const char *says; /* NULL: accepted */
} forms[] = {
    {4, 0, 8, 6, 100, 32, 32, NULL},
    {8, 0, 255, 6, 100, 100, 100, NULL},
    {6, BS_QUANT_STEPS, 63, 6, 100, 16, 256, NULL},
    {4, BS_QUANT_LOWS | BS_QUANT_STEPS | BS_QUANT_ZEROS, 0, 6, 100, 64, 64, NULL},
    {8, 0, 0, 0, 0, 0, 0, NULL},
    {8, 0, 0, INT64_MAX, UINT32_MAX, 256, 256, NULL},
    {5, 0, 8, 6, 100, 32, 32, "codes of 5 bits, flags 0x0"},
    {0, 0, 0, 6, 100, 32, 32, "codes of 0 bits"},
    {4, 8, 8, 6, 100, 32, 32, "flags 0x8"},
    {4, 0, 16, 6, 100, 32, 32, "zero 16 of codes of 4 bits"},
    {8, 0, -1, 6, 100, 32, 32, "zero -1"},
    {4, 0, 8, -1, 100, 32, 32, "[-1,100]"},
    {4, 0, 8, 6, -1, 32, 32, "[6,-1]"},
    {4, 0, 8, 6, INT64_C(1) << 32, 32, 32, "[6,4294967296]"},
    {4, 0, 8, 6, 100, 8, 8, "groups of 8 columns"},
    {4, 0, 8, 6, 100, 48, 48, "groups of 48 columns"},
    {4, 0, 8, 6, 1000, 512, 512, "groups of 512 columns"},
    {4, 0, 8, 6, 100, 0, 0, "groups of 0 columns"},
    {4, 0, 8, 6, 100, -32, -32, "groups of -32 columns"},
    {4, 0, 8, 6, 100, 32, 64, "spans of 64 columns over groups of 32: equal without steps"},
    {4, BS_QUANT_STEPS, 8, 6, 100, 32, 16, "spans of 16 columns over groups of 32: a power of two"},
    {4, BS_QUANT_STEPS, 8, 6, 100, 32, 512, "spans of 512 columns"},
    {4, BS_QUANT_STEPS, 8, 6, 100, 32, 100, "spans of 100 columns"},
    {4, BS_QUANT_STEPS, 8, 6, 100, 100, 100, "over groups of 100"},
};

START_TEST(forms_are_checked) {
  bs_error err = BS_ERROR_INIT;
  const bs_quant form = {.struct_size = sizeof form,
                         .bits = forms[_i].bits,
                         .flags = forms[_i].flags,
                         .zero = forms[_i].zero,
                         .rows = forms[_i].rows,
                         .cols = forms[_i].cols,
                         .group = forms[_i].group,
                         .span = forms[_i].span};
  const int32_t rc = bs_quant_check(&form, "matmul_q", &err);
  if (forms[_i].says == NULL) {
    ck_assert_msg(rc == BS_OK, "%s", err.message);
    return;
  }
  ck_assert_int_eq(rc, BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-QUANT");
  ck_assert_msg(strstr(err.message, forms[_i].says) != NULL, "%s", err.message);
}
END_TEST

START_TEST(schemes_and_their_names) {
  static const struct {
    const char *scheme, *text;
    uint64_t bytes; /* of [6,100] */
  } good[] = {{"w8", "q8.row", 6 * (100 + 4)},
              {"w8g32", "q8.g32", 6 * (100 + 4 * 4)},
              {"w4g32", "q4.g32", 6 * (50 + 4 * 4)},
              {"w4g128", "q4.g128", 6 * (50 + 4)},
              {"w4z32", "q4.g32z", 6 * (50 + 4 * 4 + 4)},
              {"w4k", "q4.g32s256l", 6 * (50 + 2 * 4 + 2 * 4)},
              {"w6k", "q6.g16s256", 6 * (75 + 4 + 7)},
              {"w8g16", "q8.g16", 6 * (100 + 7 * 4)},
              {"w4g256", "q4.g256", 6 * (50 + 4)}};
  static const char *const bad[] = {"",
                                    "w",
                                    "w4",
                                    "w5",
                                    "w4g",
                                    "w4g8",
                                    "w4g48",
                                    "w4g512",
                                    "w4g032",
                                    "w4g32x",
                                    "w8k",
                                    "4g32",
                                    "w8 ",
                                    "W8",
                                    "w4g-32",
                                    "w4g+32",
                                    "w4g 32",
                                    "w4g4294967328",
                                    "w4g18446744073709551648",
                                    "f16",
                                    "w6g32"};
  bs_error err = BS_ERROR_INIT;
  char text[BS_QUANT_TEXT];
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    const bs_quant form = form_of(good[i].scheme);
    ck_assert_int_eq(bs_quant_check(&form, "matmul_q", &err), BS_OK);
    bs_quant_text(&form, text);
    ck_assert_str_eq(text, good[i].text);
    ck_assert_msg(bs_quant_bytes(&form) == good[i].bytes, "%s: %llu bytes", text,
                  (unsigned long long)bs_quant_bytes(&form));
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    bs_quant form;
    bs_error_clear(&err);
    ck_assert_msg(bs_quant_scheme(bad[i], ROWS, COLS, &form, &err) == BS_INVALID_ARGUMENT, "'%s'", bad[i]);
    ck_assert_str_eq(err.id, "BS-QUANT-SCHEME");
    ck_assert_ptr_nonnull(strstr(err.hint, "w4g32"));
  }
  bs_quant small = form_of("w6k"); /* one group: the steps need its name */
  small.cols = 16;
  bs_quant_text(&small, text);
  ck_assert_str_eq(text, "q6.g16s256");
  bs_quant huge = form_of("w8g16");
  huge.rows = INT64_MAX;
  huge.cols = UINT32_MAX;
  ck_assert_uint_eq(bs_quant_bytes(&huge), UINT64_MAX);
}
END_TEST

/* ---- queries ---------------------------------------------------------------------------------- */

static const struct {
  const char *op, *text, *scheme, *id, *says; /* id NULL: accepted */
} queries[] = {
    {"matmul_q", "f32[4,100] - - f32[4,6]", "w4g32", NULL, NULL},
    {"matmul_q", "f64[4,100] bf16[6] f16[4,6] f8e4m3[4,6] ; 1 64", "w4g32", NULL, NULL},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 1 100", "w4z32", NULL, NULL},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 1 256", "w4k", NULL, NULL},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 1 4096", "w8", NULL, NULL},
    {"matmul_q", "u8[4,100] - - i32[4,6]", "w8", NULL, NULL},
    {"matmul_q", "f32[0,100] - - f32[0,6]", "w8", NULL, NULL},
    {"matmul_q", "f32[4,96] - - f32[4,6]", "w8", "BS-OP-SHAPE", "96 columns beside a weight of 100"},
    {"matmul_q", "f32[4,100] - - f32[4,7]", "w8", "BS-OP-SHAPE", "weight [6,100], Y [4,7]"},
    {"matmul_q", "f32[4,100] - - f32[5,6]", "w8", "BS-OP-SHAPE", "Y [5,6]"},
    {"matmul_q", "f32[4,100] f32[5] - f32[4,6]", "w8", "BS-OP-SHAPE", "do not fit"},
    {"matmul_q", "f32[4,100] - f32[4,5] f32[4,6]", "w8", "BS-OP-SHAPE", "do not fit"},
    {"matmul_q", "f32[4,100] - f32[3,6] f32[4,6]", "w8", "BS-OP-SHAPE", "do not fit"},
    {"matmul_q", "i32[4,100] - - f32[4,6]", "w8", "BS-OP-DTYPE", "X is i32: all arguments are floats"},
    {"matmul_q", "f32[4,100] - - i32[4,6]", "w8", "BS-OP-DTYPE", "Y is i32"},
    {"matmul_q", "f32[4,100] i32[6] - f32[4,6]", "w8", "BS-OP-DTYPE", "bias is i32"},
    {"matmul_q", "i8[4,100] - - f32[4,6]", "w8", "BS-OP-DTYPE", "Y is f32: X of bytes gives Y i32"},
    {"matmul_q", "i8[4,100] i32[6] - i32[4,6]", "w8", "BS-OP-DTYPE", "bias is i32: X of bytes"},
    {"matmul_q", "i8[4,100] - i32[4,6] i32[4,6]", "w8", "BS-OP-DTYPE", "residual is i32: X of bytes"},
    {"matmul_q", "i8[4,100] - - i32[4,6]", "w8g32", "BS-OP-QUANT", "X i8 needs a weight of one scale a row"},
    {"matmul_q", "i8[4,100] - - i32[4,6]", "w4k", "BS-OP-QUANT", "without lows"},
    {"matmul_q", "i8[4,100] - - i32[4,6] ; 1", "w8", "BS-OP-QUANT", "no attributes"},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 2", "w8", "BS-OP-ATTR", "attrs[0] is 2"},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; -1", "w8", "BS-OP-ATTR", "attrs[0] is -1"},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 0 32", "w8", "BS-OP-ATTR", "attrs[1] is 32 without X in bytes"},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 1 16", "w8", "BS-OP-ATTR", "attrs[1] is 16: 0, a power of two"},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 1 48", "w8", "BS-OP-ATTR", "or all 100 columns"},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 1 -32", "w8", "BS-OP-ATTR", "attrs[1] is -32"},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 1 32", "w4k", "BS-OP-ATTR", "a weight with steps"},
    {"matmul_q", "f32[4,100] - - f32[4,6] ; 1 100", "w6k", "BS-OP-ATTR", "a weight with steps"},
    {"take_q", "i64[3] f16[3,100]", "w4g32", NULL, NULL},
    {"take_q", "i32[0] f32[0,100]", "w8", NULL, NULL},
    {"take_q", "i64[3] f32[3,99]", "w4g32", "BS-OP-SHAPE", "99 columns beside a weight of 100"},
    {"take_q", "i64[3] f32[4,100]", "w4g32", "BS-OP-SHAPE", "3 indices, 4 rows of out"},
    {"take_q", "f32[3] f32[3,100]", "w4g32", "BS-OP-DTYPE", "index f32"},
    {"take_q", "u8[3] f32[3,100]", "w4g32", "BS-OP-DTYPE", "index u8"},
    {"take_q", "i64[3] i32[3,100]", "w4g32", "BS-OP-DTYPE", "out i32"},
};

START_TEST(queries_are_checked) {
  const bs_quant form = form_of(queries[_i].scheme);
  asked a;
  ask(&a, queries[_i].op, queries[_i].text, &form);
  if (queries[_i].id == NULL)
    accepted(&a.q);
  else
    refused(&a.q, queries[_i].id, queries[_i].says);
}
END_TEST

/* What no text of a query says. */
START_TEST(weights_and_flags_are_checked) {
  bs_quant form = form_of("w8");
  const bs_partition part = fx_contiguous(200, 0, COLS);
  bs_kept kept = {.struct_size = sizeof kept, .rows = ROWS, .cols = COLS};
  asked a;
  for (int take = 0; take < 2; take++) {
    const char *op = take ? "take_q" : "matmul_q",
               *text = take ? "i64[3] f32[3,100]" : "f32[4,100] - - f32[4,6]";
    ask(&a, op, text, NULL);
    refused(&a.q, "BS-OP-QUANT", "needs the form of its weight (quant)");
    ask(&a, op, text, &form);
    form.struct_size--;
    refused(&a.q, "BS-OP-QUANT", "quant: struct_size");
    form.struct_size++;
    a.q.weight_dtype = BS_I8;
    refused(&a.q, "BS-OP-DTYPE", "weight_dtype i8: a quantised weight stands for f32");
    a.q.weight_dtype = BS_F32;
    a.q.partition = &part;
    refused(&a.q, "BS-OP-QUANT", "no partition");
    a.q.partition = NULL;
    a.q.kept = &kept;
    refused(&a.q, "BS-OP-KEPT", "takes no positions");
  }
  ask(&a, "matmul_q", "f32[4,100] - - f32[4,6]", &form);
  a.q.accumulate = 3;
  refused(&a.q, "BS-OP-ATTR", "accumulate 3");
  a.q.accumulate = 0;
  a.q.activation = BS_ACT_GELU_TANH + 1;
  refused(&a.q, "BS-OP-ATTR", "activation 5");
  ask(&a, "matmul_q", "i8[4,100] - - i32[4,6]", &form);
  a.q.activation = BS_ACT_RELU;
  refused(&a.q, "BS-OP-DTYPE", "takes no activation");
  ask(&a, "matmul", "f32[4,100] - - f32[4,6]", &form);
  refused(&a.q, "BS-OP-QUANT", "takes no quantised weight");
  ask(&a, "convert", "f32[4,100] f32[4,100]", &form);
  refused(&a.q, "BS-OP-QUANT", "takes no quantised weight");
  form.bits = 3; /* an op of a plugin may take one, if it is one */
  ask(&a, "acme_product", "f32[4,100] f32[4,6]", &form);
  refused(&a.q, "BS-OP-QUANT", "codes of 3 bits");
  form.bits = 8;
  accepted(&a.q);
}
END_TEST

/* A sum of one scale of X and one of the weight has to fit in 32 bits. */
START_TEST(rows_in_bytes_have_an_end) {
  bs_quant form = form_of("w8");
  asked a;
  form.cols = form.group = form.span = 65536;
  ask(&a, "matmul_q", "f32[1,65536] - - f32[1,6] ; 1", &form);
  accepted(&a.q);
  form.cols = form.group = form.span = 65537;
  ask(&a, "matmul_q", "f32[1,65537] - - f32[1,6] ; 1", &form);
  refused(&a.q, "BS-OP-QUANT", "65537 columns: at most 65536");
  a.q.attrs[1] = 65537;
  refused(&a.q, "BS-OP-QUANT", "at most 65536");
  a.q.attrs[1] = 131072;
  refused(&a.q, "BS-OP-QUANT", "at most 65536");
  a.q.attrs[1] = 65536;
  accepted(&a.q);
  a.q.attrs[0] = a.q.attrs[1] = 0;
  accepted(&a.q);
  form.group = form.span = 256;
  a.q.attrs[0] = 1;
  a.q.attrs[1] = 65537;
  accepted(&a.q);
}
END_TEST

/* ---- costs and keys --------------------------------------------------------------------------- */

START_TEST(costs_are_those_of_the_packed_bits) {
  static const struct {
    const char *op, *text, *scheme;
    uint64_t flops, bytes;
  } rows[] = {
      {"matmul_q", "f32[4,100] - - f32[4,6]", "w4g32", 2 * 4 * 6 * 100, 4 * 400 + 4 * 24 + 6 * 66},
      {"matmul_q", "bf16[4,100] f32[6] f16[4,6] f32[4,6]", "w8", 2 * 4 * 6 * 100,
       4 * 200 + 24 + 4 * 12 + 4 * 24 + 6 * 104},
      {"matmul_q", "u8[3,100] - - i32[3,6]", "w8", 2 * 3 * 6 * 100, 300 + 3 * 24 + 6 * 104},
      {"matmul_q", "f32[0,100] - - f32[0,6]", "w4g32", 0, 0},
      {"take_q", "i64[3] f16[3,100]", "w4g32", 0, 3 * 8 + 3 * 200 + 3 * 66},
      {"take_q", "i32[0] f16[0,100]", "w4g32", 0, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const bs_quant form = form_of(rows[i].scheme);
    uint64_t flops = 0, bytes = 0;
    asked a;
    ask(&a, rows[i].op, rows[i].text, &form);
    accepted(&a.q);
    bs_op_cost(&a.q, &flops, &bytes);
    ck_assert_uint_eq(flops, rows[i].flops);
    ck_assert_uint_eq(bytes, rows[i].bytes);
  }
}
END_TEST

/* Queries that differ in what kernels see have keys that differ. */
START_TEST(keys_name_the_form) {
  const bs_op_host host = {.backend = "ref"};
  char key[BS_CHOICE_KEY];
  const bs_quant form = form_of("w4k");
  asked a;
  ask(&a, "matmul_q", "f32[4,100] - - f32[4,6] ; 1 256", &form);
  bs_choice_key(&host, &a.q, key, sizeof key);
  ck_assert_str_eq(key,
                   "matmul_q@ref f32[4,100] f32[4,6] weight f32 q4.g32s256l[6,100] attr0=1 attr1=256 "
                   "threads=1 P=1");
}
END_TEST

/* ---- packing ---------------------------------------------------------------------------------- */

typedef struct packed_weight {
  fx f;
  bs_quant form;
  asked a;
  bs_packed *packed;
} packed_weight;

static void pack(packed_weight *w) {
  bs_error err = BS_ERROR_INIT;
  memset(w, 0, sizeof *w);
  fx_open(&w->f, 2, 1);
  w->form = form_of("w4g32");
  ask(&w->a, "matmul_q", "f32[4,100] - - f32[4,6]", &w->form);
  ck_assert_msg(bs_dispatch_pack(&w->f.ops, &w->a.q, NULL, &w->packed, &err) == BS_OK, "%s", err.message);
}

START_TEST(a_weight_comes_with_its_query) {
  packed_weight w;
  bs_error err = BS_ERROR_INIT;
  bs_packed *other = NULL;
  pack(&w);
  const bs_source source = fx_source_of(ROWS, COLS);
  ck_assert_int_eq(bs_dispatch_pack(&w.f.ops, &w.a.q, &source, &other, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-SOURCE");
  ck_assert_ptr_nonnull(strstr(err.message, "the source is NULL"));
  w.form.read = NULL;
  bs_error_clear(&err);
  ck_assert_int_eq(bs_dispatch_pack(&w.f.ops, &w.a.q, NULL, &other, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-SOURCE");
  w.form.read = read_rows;
  for (int64_t good = 0; good < ROWS; good++) { /* the source's own words come through, and nothing is left */
    bs_error_clear(&err);
    w.form.ctx = &good;
    ck_assert_int_eq(bs_dispatch_pack(&w.f.ops, &w.a.q, NULL, &other, &err), BS_INPUT);
    ck_assert_str_eq(err.id, "BS-TEST-READ");
    ck_assert_ptr_null(other);
  }
  bs_dispatch_packed_release(w.packed);
  fx_close(&w.f);
}
END_TEST

START_TEST(sizes_that_no_memory_has) {
  packed_weight w;
  bs_error err = BS_ERROR_INIT;
  bs_packed *other = NULL;
  pack(&w);
  /* rows * columns is 2^63 + 2^31 and more: twice that wraps to little. */
  w.form.rows = (INT64_C(1) << 33) + 2;
  w.form.cols = INT64_C(1) << 31;
  ask(&w.a, "matmul_q", "f32[0,2147483648] - - f32[0,8589934594]", &w.form);
  ck_assert_int_eq(bs_dispatch_pack(&w.f.ops, &w.a.q, NULL, &other, &err), BS_NO_MEMORY);
  ck_assert_str_eq(err.id, "BS-REF-MEMORY");
  bs_dispatch_packed_release(w.packed);
  fx_close(&w.f);
}
END_TEST

START_TEST(plans_are_of_the_form_that_was_packed) {
  packed_weight w;
  pack(&w);
  for (int take = 0; take < 2; take++)
    for (int i = 0; i < 6; i++) {
      bs_error err = BS_ERROR_INIT;
      bs_plan *plan = NULL;
      bs_quant form = w.form;
      asked a;
      ask(&a, take ? "take_q" : "matmul_q", take ? "i64[3] f32[3,100]" : "f32[4,100] - - f32[4,6]", &form);
      if (i == 0) form.bits = 8;
      if (i == 1) form.flags = BS_QUANT_LOWS;
      if (i == 2) form.zero = 7;
      if (i == 3) form.group = form.span = 64;
      if (i == 4) form.flags = BS_QUANT_STEPS, form.span = 128;
      if (i == 5) form.read = NULL; /* it is packed already */
      const int32_t rc = bs_dispatch_prepare(&w.f.ops, &a.q, w.packed, &plan, &err);
      if (i == 5) {
        ck_assert_msg(rc == BS_OK, "%s", err.message);
        bs_dispatch_release(plan);
        continue;
      }
      ck_assert_int_eq(rc, BS_INVALID_ARGUMENT);
      ck_assert_str_eq(err.id, "BS-OP-PACKED");
      ck_assert_ptr_nonnull(strstr(err.message, "another form (quant)"));
    }
  bs_dispatch_packed_release(w.packed);
  fx_close(&w.f);
}
END_TEST

/* Of a weight of matmul, and without one. */
START_TEST(plans_need_a_quantised_weight) {
  packed_weight w;
  bs_error err = BS_ERROR_INIT;
  bs_plan *plan = NULL;
  bs_packed *dense = NULL;
  fx_tensor values;
  asked a;
  pack(&w);
  fx_matrix(&values, BS_F32, ROWS, COLS);
  const bs_source source = fx_source(&values);
  read_args(&a, "matmul", "f32[4,100] - - f32[4,6]");
  a.q.weight_dtype = BS_F32;
  ck_assert_int_eq(bs_dispatch_pack(&w.f.ops, &a.q, &source, &dense, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_prepare(&w.f.ops, &w.a.q, dense, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_dispatch_prepare(&w.f.ops, &w.a.q, NULL, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_dispatch_prepare(&w.f.ops, &a.q, w.packed, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_null(plan);
  bs_dispatch_packed_release(dense);
  bs_dispatch_packed_release(w.packed);
  fx_tensor_free(&values);
  fx_close(&w.f);
}
END_TEST

/* packed_read gives what the weight stands for: code minus 8, by a half. */
START_TEST(what_was_packed_reads_back) {
  packed_weight w;
  bs_error err = BS_ERROR_INIT;
  fx_tensor back;
  pack(&w);
  fx_matrix(&back, BS_F32, 2, COLS);
  ck_assert_msg(bs_dispatch_packed_read(w.packed, 3, &back.t, &err) == BS_OK, "%s", err.message);
  for (int64_t r = 0; r < 2; r++)
    for (int64_t k = 0; k < COLS; k++)
      ck_assert_double_eq(fx_get(&back, r, k), 0.5 * (double)((3 + r + k) % 16 - 8));
  ck_assert_int_eq(bs_dispatch_packed_read(w.packed, 5, &back.t, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_ne(bs_dispatch_packed_update(w.packed, &back.t, &err), BS_OK);
  fx_tensor_free(&back);
  bs_dispatch_packed_release(w.packed);
  fx_close(&w.f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{forms_are_checked, TEST_COUNT(forms)},
                             {schemes_and_their_names},
                             {queries_are_checked, TEST_COUNT(queries)},
                             {weights_and_flags_are_checked},
                             {rows_in_bytes_have_an_end},
                             {costs_are_those_of_the_packed_bits},
                             {keys_name_the_form},
                             {a_weight_comes_with_its_query},
                             {sizes_that_no_memory_has},
                             {plans_are_of_the_form_that_was_packed},
                             {plans_need_a_quantised_weight},
                             {what_was_packed_reads_back},
                             {0}};
  return run_tests("op_quant", tests, (test_setup){0});
}
