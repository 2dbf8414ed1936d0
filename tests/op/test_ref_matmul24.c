/* SPDX-License-Identifier: MIT
 * test_ref_matmul24.c - what the ops over 2:4 weights of ref mean: answers known by hand (masks by magnitude,
 * codes, both halves, gradients), and the bits of docs/ops.md for every dtype, stride and team width. */
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

/* ---- bits ----------------------------------------------------------------------------------- */

typedef struct shape {
  uint32_t x, dy, w, y;
  int64_t B, N, K;
  int64_t begin, total; /* of the columns in X; total 0: all, and X is not full */
  uint32_t spread, width;
} shape;

static const shape shapes[] = {
    {BS_F32, BS_F32, BS_F32, BS_F32, 1, 1, 4, 0, 0, 0, 1},
    {BS_F32, BS_F32, BS_F32, BS_F32, 3, 5, 1, 0, 0, 1, 2},
    {BS_F32, BS_F32, BS_F32, BS_F32, 70, 67, 131, 0, 0, 0, 3},
    {BS_BF16, BS_F32, BS_BF16, BS_BF16, 5, 66, 70, 8, 78, 1, 2},
    {BS_F16, BS_F16, BS_F16, BS_F32, 65, 3, 64, 4, 100, 0, 4},
    {BS_F64, BS_F64, BS_F32, BS_F64, 4, 9, 66, 0, 0, 1, 2},
    {BS_I8, BS_I8, BS_I8, BS_I32, 7, 10, 130, 0, 0, 1, 2},
    {BS_I64, BS_I8, BS_I32, BS_I64, 2, 3, 7, 4, 11, 0, 1},
    {BS_F32, BS_F32, BS_F32, BS_F32, 2, 3, 0, 0, 0, 0, 2},
    {BS_F32, BS_F32, BS_F32, BS_F32, 2, 0, 8, 0, 0, 0, 2},
};

typedef struct bits {
  shape s;
  fx f;
  fx_tensor x, dy, w, y, dx, dw, alpha, back;
  unsigned char *kept_bits;
  fx_kept_table table;
  bs_kept kept;
  bs_partition part;
  bs_packed *packed;
} bits;

static void matrix(fx_tensor *out, uint32_t dtype, int64_t rows, int64_t cols, uint32_t spread) {
  const int64_t dims[2] = {rows, cols}, strides[2] = {2 * cols + 3, 2};
  fx_tensor_make(out, dtype, 2, dims, spread && cols > 0 ? strides : NULL);
}

static int64_t length_of(const shape *s) {
  return bs_op_kept_length(s->K);
}

static bs_op_query bits_query(bits *t, const char *op, const bs_tensor_desc *const *args, uint32_t nargs) {
  bs_op_query q = fx_query(op, args, nargs);
  q.kept = &t->kept;
  q.weight_dtype = t->s.w;
  if (t->s.total > 0) {
    q.partition = &t->part;
    q.flags = BS_QUERY_X_FULL;
  }
  return q;
}

static void bits_open(bits *t, const shape *s) {
  uint64_t seed = 11;
  const int64_t one = 1, total = s->total > 0 ? s->total : s->K, groups = length_of(s) / 2;
  memset(t, 0, sizeof *t);
  t->s = *s;
  fx_open(&t->f, s->width, 1);
  t->f.threads = s->width > 1;
  t->part = fx_contiguous(total, s->begin, s->K);
  matrix(&t->x, s->x, s->B, total, s->spread);
  matrix(&t->dy, s->dy, s->B, s->N, s->spread);
  matrix(&t->w, s->w, s->N, total, 0);
  matrix(&t->y, s->y, s->B, s->N, s->spread);
  matrix(&t->dx, s->y, s->B, total, s->spread);
  matrix(&t->dw, s->y == BS_F64 ? BS_F64 : bs_dtype_is_float(s->y) ? BS_F32 : s->y, s->N, length_of(s), 0);
  matrix(&t->back, s->w, s->N, length_of(s), 0);
  fx_tensor_make(&t->alpha, BS_F32, 1, &one, NULL);
  fx_set(&t->alpha, 0, 0, -0.75);
  fx_fill(&t->x, &seed);
  fx_fill(&t->dy, &seed);
  fx_fill(&t->w, &seed);
  fx_fill(&t->dx, &seed);
  t->kept_bits = malloc((size_t)(s->N * groups + 1));
  ck_assert_ptr_nonnull(t->kept_bits);
  fx_kept_random(t->kept_bits, s->N, groups, &seed);
  t->table = (fx_kept_table){t->kept_bits, groups};
  t->kept = fx_kept(&t->table, s->N, s->K);
  const bs_tensor_desc *args[4] = {&t->x.d, NULL, NULL, &t->y.d};
  const bs_op_query q = bits_query(t, "matmul24", args, 4);
  const bs_source source = fx_source(&t->w);
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_dispatch_pack(&t->f.ops, &q, &source, &t->packed, &err) == BS_OK, "%s", err.message);
}

static void bits_close(bits *t) {
  bs_dispatch_packed_release(t->packed);
  fx_tensor *const all[] = {&t->x, &t->dy, &t->w, &t->y, &t->dx, &t->dw, &t->alpha, &t->back};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    fx_check_guards(all[i], "bits");
    fx_tensor_free(all[i]);
  }
  free(t->kept_bits);
  fx_close(&t->f);
}

static void bits_run(bits *t, const char *op, uint32_t nargs, fx_tensor *const *tensors, int packed) {
  const bs_tensor_desc *args[4] = {0};
  bs_tensor *call[4] = {0};
  for (uint32_t i = 0; i < nargs; i++)
    if (tensors[i] != NULL) args[i] = &tensors[i]->d, call[i] = &tensors[i]->t;
  const bs_op_query q = bits_query(t, op, args, nargs);
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_dispatch_prepare(&t->f.ops, &q, packed ? t->packed : NULL, &plan, &err) == BS_OK, "%s",
                err.message);
  ck_assert_msg(bs_dispatch_run(plan, call, nargs, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
}

/* Is column k of row n kept, and as which value? -1: no. */
static int64_t kept_at(const bits *t, int64_t n, int64_t k) {
  const unsigned char group = t->kept_bits[n * t->table.stride + k / 4];
  if ((group >> k % 4 & 1) == 0) return -1;
  return k / 4 * 2 + __builtin_popcount(group & ((1u << k % 4) - 1u));
}

/* One step of a sum in f32 or f64; integers in double are exact here. */
static double step(const bits *t, double sum, double a, double b) {
  const int wide = t->s.x == BS_F64 || t->s.y == BS_F64 || !bs_dtype_is_float(t->s.x);
  if (wide) return sum + a * b;
  const float product = (float)a * (float)b;
  return (double)((float)sum + product);
}

static double rounded(uint32_t dtype, double v) {
  unsigned char place[8];
  bs_store_f64(dtype, place, 0, v);
  return bs_load_f64(dtype, place, 0);
}

START_TEST(bits_of_forward) {
  bits t;
  bits_open(&t, &shapes[_i]);
  const shape *s = &t.s;
  fx_tensor *const tensors[4] = {&t.x, NULL, NULL, &t.y};
  bits_run(&t, "matmul24", 4, tensors, 1);
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t n = 0; n < s->N; n++) {
      double sum = 0;
      for (int64_t k = 0; k < s->K; k++)
        if (kept_at(&t, n, k) >= 0)
          sum = step(&t, sum, fx_get(&t.x, b, s->begin + k), fx_get(&t.w, n, s->begin + k));
      ck_assert_double_eq(fx_get(&t.y, b, n), rounded(s->y, sum));
    }
  bits_close(&t);
}
END_TEST

START_TEST(bits_of_dx) {
  bits t;
  bits_open(&t, &shapes[_i]);
  const shape *s = &t.s;
  fx_tensor before;
  matrix(&before, s->y, s->B, t.dx.d.dims[1], s->spread);
  memcpy(before.block, t.dx.block, t.dx.block_bytes);
  fx_tensor *const tensors[2] = {&t.dy, &t.dx};
  bits_run(&t, "matmul24_dx", 2, tensors, 1);
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t c = 0; c < t.dx.d.dims[1]; c++) {
      const int64_t k = c - s->begin;
      double sum = 0;
      for (int64_t n = 0; k >= 0 && k < s->K && n < s->N; n++)
        if (kept_at(&t, n, k) >= 0) sum = step(&t, sum, fx_get(&t.dy, b, n), fx_get(&t.w, n, c));
      const double want = k >= 0 && k < s->K ? rounded(s->y, sum) : fx_get(&before, b, c);
      ck_assert_double_eq(fx_get(&t.dx, b, c), want);
    }
  fx_tensor_free(&before);
  bits_close(&t);
}
END_TEST

START_TEST(bits_of_dw_and_update) {
  bits t;
  bits_open(&t, &shapes[_i]);
  const shape *s = &t.s;
  fx_tensor *const dw[3] = {&t.x, &t.dy, &t.dw}, *const update[3] = {&t.x, &t.dy, &t.alpha};
  const int floats = bs_dtype_is_float(s->w);
  bs_error err = BS_ERROR_INIT;
  bits_run(&t, "matmul24_dw", 3, dw, 0);
  if (floats) bits_run(&t, "matmul24_update", 3, update, 1);
  ck_assert_msg(bs_dispatch_packed_read(t.packed, 0, &t.back.t, &err) == BS_OK, "%s", err.message);
  for (int64_t n = 0; n < s->N; n++)
    for (int64_t k = 0; k < 2 * length_of(s); k++) {
      const int64_t j = kept_at(&t, n, k);
      double sum = 0;
      if (j < 0) continue;
      for (int64_t b = 0; b < s->B && k < s->K; b++)
        sum = step(&t, sum, fx_get(&t.dy, b, n), fx_get(&t.x, b, s->begin + k));
      ck_assert_double_eq(fx_get(&t.dw, n, j), rounded(t.dw.d.dtype, sum));
      const double w = k < s->K ? fx_get(&t.w, n, s->begin + k) : 0.0;
      const double delta = s->x == BS_F64 ? -0.75 * sum : (double)(-0.75f * (float)sum);
      ck_assert_double_eq(fx_get(&t.back, n, j), rounded(s->w, floats ? w + delta : w));
    }
  bits_close(&t);
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
  const int all = sizeof shapes / sizeof shapes[0];
  const test_case tests[] = {{known_codes, HAND_TYPES},     {known_forward, HAND_TYPES},
                             {known_gradients, HAND_TYPES}, {halves_are_the_whole},
                             {bits_of_forward, all},        {bits_of_dx, all},
                             {bits_of_dw_and_update, all},  {others_do_not_count},
                             {wrong_positions_are_refused}, {0}};
  return run_tests("ref_matmul24", tests, (test_setup){0});
}
