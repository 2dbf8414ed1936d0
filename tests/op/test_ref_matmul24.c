/* SPDX-License-Identifier: MIT
 * test_ref_matmul24.c - what the ops over 2:4 weights of ref mean: answers known by hand (masks by magnitude,
 * codes, both halves, gradients). The kit has their values and bits (kit_ref, test_kit_steps). */
#include <math.h>
#include <string.h>

#include "op_fixture.h"
#include "plugins/ref/ops/matmul24.h"
#include "tests/run_tests.h"

static double hand_w[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                              {-1, 0, 2, 1, 3, -2, 0, 4},
                              {2, -3, 1, 0, 0, 1, -1, 2},
                              {0, 5, -4, 2, 1, 1, 1, -6}};
static const double hand_x[2][8] = {{1, 0, 2, -1, 1, 1, 0, 2}, {0, 1, 1, 1, -1, 2, 3, 0}};
/* The two of largest magnitude of each four, ties to the lower index: 0011 0011, 1010 1001, ... */
static const unsigned char large[8] = {12, 12, 5, 9, 3, 10, 6, 9};

/* One half of the weight above, packed. */
typedef struct hand {
  fx f;
  fx_tensor x, w, y, dy, dx, dw, values, dense;
  unsigned char bits[8];
  fx_kept_table table;
  bs_kept kept;
  bs_packed *packed;
} hand;

static void hand_open(hand *h, uint32_t dtype, int half, double w[4][8]) {
  memset(h, 0, sizeof *h);
  fx_open(&h->f, 2, 1);
  const uint32_t sums = bs_dtype_is_float(dtype) ? dtype : BS_I32;
  fx_matrix(&h->x, dtype, 2, 8);
  fx_matrix(&h->w, dtype, 4, 8);
  fx_matrix(&h->y, sums, 2, 4);
  fx_matrix(&h->dy, dtype, 2, 4);
  fx_matrix(&h->dx, sums, 2, 8);
  fx_matrix(&h->dw, bs_dtype_is_float(dtype) ? BS_F32 : BS_I32, 4, 4);
  fx_matrix(&h->values, dtype, 4, 4);
  fx_matrix(&h->dense, dtype, 4, 8);
  if (half == 0) memcpy(h->bits, large, sizeof large);
  if (half == 1) fx_kept_complement(h->bits, large, 8);
  h->table = (fx_kept_table){h->bits, 2};
  h->kept = fx_kept(&h->table, 4, 8);
  for (int64_t k = 0; k < 8; k++) {
    for (int64_t n = 0; n < 4; n++) fx_set(&h->w, n, k, w[n][k]);
    for (int64_t b = 0; b < 2; b++) fx_set(&h->x, b, k, hand_x[b][k]);
  }
  for (int64_t n = 0; n < 8; n++) fx_set(&h->dy, n / 4, n % 4, 1.0);
  const bs_tensor_desc *args[4] = {&h->x.d, NULL, NULL, &h->y.d};
  bs_op_query q = fx_query("matmul24", args, 4);
  bs_error err = BS_ERROR_INIT;
  q.kept = &h->kept;
  q.flags = BS_QUERY_TRAIN;
  q.weight_dtype = dtype;
  const bs_source source = fx_source(&h->w);
  ck_assert_msg(bs_dispatch_pack(&h->f.ops, &q, &source, &h->packed, &err) == BS_OK, "%s", err.message);
}

static void hand_run(hand *h, const char *op, uint32_t nargs, fx_tensor *a, fx_tensor *b, fx_tensor *c,
                     fx_tensor *d) {
  fx_tensor *const t[4] = {a, b, c, d};
  const bs_tensor_desc *args[4] = {0};
  bs_tensor *call[4] = {0};
  for (int i = 0; i < 4; i++)
    if (t[i] != NULL) args[i] = &t[i]->d, call[i] = &t[i]->t;
  bs_op_query q = fx_query(op, args, nargs);
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  q.kept = &h->kept;
  q.weight_dtype = h->w.d.dtype;
  const int alone = strcmp(op, "matmul24_dw") == 0 || strcmp(op, "expand24") == 0;
  ck_assert_msg(bs_dispatch_prepare(&h->f.ops, &q, alone ? NULL : h->packed, &plan, &err) == BS_OK, "%s",
                err.message);
  ck_assert_msg(bs_dispatch_run(plan, call, nargs, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
}

static void hand_close(hand *h) {
  bs_dispatch_packed_release(h->packed);
  fx_tensor *const all[] = {&h->x, &h->w, &h->y, &h->dy, &h->dx, &h->dw, &h->values, &h->dense};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    fx_check_guards(all[i], "by hand");
    fx_tensor_free(all[i]);
  }
  fx_close(&h->f);
}

static const uint32_t hand_types[] = {BS_F64, BS_F32, BS_BF16, BS_F16, BS_I8};
enum { HAND_TYPES = sizeof hand_types / sizeof hand_types[0] };

START_TEST(known_codes) {
  static const double values[2][4][4] = {{{3, 4, 7, 8}, {-1, 2, 3, 4}, {2, -3, 1, 2}, {5, -4, 1, -6}},
                                         {{1, 2, 5, 6}, {0, 1, -2, 0}, {1, 0, 0, -1}, {0, 2, 1, 1}}};
  static const unsigned codes[2][4][2] = {{{14, 14}, {8, 12}, {4, 13}, {9, 12}},
                                          {{4, 4}, {13, 9}, {14, 8}, {12, 9}}};
  for (int half = 0; half < 2; half++) {
    hand h;
    bs_error err = BS_ERROR_INIT;
    ref_positions at;
    hand_open(&h, hand_types[_i], half, hand_w);
    ck_assert_msg(bs_dispatch_packed_read(h.packed, 0, &h.values.t, &err) == BS_OK, "%s", err.message);
    ck_assert_int_eq(ref_positions_make(&h.f.host, &h.f.exec, &h.kept, &at, &err), BS_OK);
    for (int64_t n = 0; n < 4; n++) {
      for (int64_t j = 0; j < 4; j++) ck_assert_double_eq(fx_get(&h.values, n, j), values[half][n][j]);
      for (int64_t g = 0; g < 2; g++)
        ck_assert_uint_eq(at.codes[n * at.stride] >> 4 * g & 15u, codes[half][n][g]);
    }
    ref_positions_free(&at);
    hand_close(&h);
  }
}
END_TEST

START_TEST(known_forward) {
  static const double y[2][2][4] = {{{18, 14, 7, -19}, {28, -1, -1, 0}}, {{12, -3, 2, -1}, {9, -3, -2, 7}}};
  for (int half = 0; half < 2; half++) {
    hand h;
    hand_open(&h, hand_types[_i], half, hand_w);
    hand_run(&h, "matmul24", 4, &h.x, NULL, NULL, &h.y);
    for (int64_t i = 0; i < 8; i++) ck_assert_double_eq(fx_get(&h.y, i / 4, i % 4), y[half][i / 4][i % 4]);
    ck_assert_uint_eq(h.f.counters[BS_COUNT_FLOPS], 2 * 2 * 4 * 4);
    hand_close(&h);
  }
}
END_TEST

START_TEST(known_gradients) {
  static const double dx[2][8] = {{1, 2, 1, 4, 4, 1, 7, 8}, {1, 2, 1, 3, 5, 5, 0, 0}};
  static const double dw[8] = {1, 1, 3, 0, 0, 3, 3, 2};
  for (int half = 0; half < 2; half++) {
    hand h;
    hand_open(&h, hand_types[_i], half, hand_w);
    hand_run(&h, "matmul24_dx", 2, &h.dy, &h.dx, NULL, NULL);
    hand_run(&h, "matmul24_dw", 3, &h.x, &h.dy, &h.dw, NULL);
    for (int64_t i = 0; i < 16; i++) ck_assert_double_eq(fx_get(&h.dx, i / 8, i % 8), dx[half][i % 8]);
    for (int64_t n = 0; n < 4; n++)
      for (int64_t k = 0, j = 0; k < 8; k++)
        if (h.bits[n * 2 + k / 4] >> k % 4 & 1) ck_assert_double_eq(fx_get(&h.dw, n, j++), dw[k]);
    hand_close(&h);
  }
}
END_TEST

/* Zeros of both signs and a NaN's payload come back from their places, and both halves make up the whole. */
START_TEST(halves_are_the_whole) {
  hand half[2];
  double w[4][8];
  memcpy(w, hand_w, sizeof w);
  w[0][3] = -0.0;
  w[2][4] = -0.0;
  for (int i = 0; i < 2; i++) {
    bs_error err = BS_ERROR_INIT;
    hand_open(&half[i], BS_F32, i, w);
    ((uint32_t *)half[i].w.t.data)[9] = 0xffc12345u;
    bs_dispatch_packed_release(half[i].packed);
    const bs_tensor_desc *args[4] = {&half[i].x.d, NULL, NULL, &half[i].y.d};
    bs_op_query q = fx_query("matmul24", args, 4);
    q.kept = &half[i].kept;
    q.weight_dtype = BS_F32;
    const bs_source source = fx_source(&half[i].w);
    ck_assert_int_eq(bs_dispatch_pack(&half[i].f.ops, &q, &source, &half[i].packed, &err), BS_OK);
    ck_assert_int_eq(bs_dispatch_packed_read(half[i].packed, 0, &half[i].values.t, &err), BS_OK);
    hand_run(&half[i], "expand24", 2, &half[i].values, &half[i].dense, NULL, NULL);
  }
  for (int64_t i = 0; i < 32; i++) {
    const uint32_t *a = half[0].dense.t.data, *b = half[1].dense.t.data, *whole = half[0].w.t.data;
    const int first = half[0].bits[i / 4] >> i % 4 & 1;
    ck_assert_uint_eq(first ? a[i] : b[i], whole[i]);
    ck_assert_uint_eq(first ? b[i] : a[i], 0);
  }
  for (int i = 0; i < 2; i++) hand_close(&half[i]);
}
END_TEST

/* What X holds where nothing is kept does not count. */
START_TEST(others_do_not_count) {
  hand h;
  hand_open(&h, BS_F32, 0, hand_w);
  for (int64_t b = 0; b < 2; b++) fx_set(&h.x, b, 0, NAN), fx_set(&h.x, b, 1, INFINITY);
  hand_run(&h, "matmul24", 4, &h.x, NULL, NULL, &h.y);
  ck_assert_double_eq(fx_get(&h.y, 0, 0), 18);       /* keeps 2 and 3 */
  ck_assert(isnan(fx_get(&h.y, 0, 1)));              /* keeps 0 */
  ck_assert_double_eq(fx_get(&h.y, 0, 3), INFINITY); /* keeps 1 */
  hand_close(&h);
}
END_TEST

START_TEST(wrong_positions_are_refused) {
  hand h;
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  hand_open(&h, BS_F32, 0, hand_w);
  const bs_tensor_desc *args[4] = {&h.x.d, NULL, NULL, &h.y.d};
  bs_op_query q = fx_query("matmul24", args, 4);
  q.kept = &h.kept;
  q.weight_dtype = BS_F32;
  const bs_source source = fx_source(&h.w);
  h.bits[5] ^= 3; /* the complement of a pair of the third row, but also what the plan would be made with */
  ck_assert_int_eq(bs_dispatch_prepare(&h.f.ops, &q, h.packed, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "other positions"));
  h.bits[5] = 7;
  ck_assert_int_eq(bs_dispatch_pack(&h.f.ops, &q, &source, &packed, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-MASK-2OF4");
  ck_assert_ptr_nonnull(strstr(err.message, "row 2"));
  hand_close(&h);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_codes, HAND_TYPES},
                             {known_forward, HAND_TYPES},
                             {known_gradients, HAND_TYPES},
                             {halves_are_the_whole},
                             {others_do_not_count},
                             {wrong_positions_are_refused},
                             {0}};
  return run_tests("ref_matmul24", tests, (test_setup){0});
}
