/* SPDX-License-Identifier: MIT
 * test_ref_grad.c - what matmul_dx, matmul_dw and matmul_update of ref mean: answers known by hand, and the
 * bits of docs/ops.md (order of sums, roundings) for every dtype, partition, stride and team width. */
#include <math.h>
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static const double hand_w[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                                    {-1, 0, 2, 1, 3, -2, 0, 4},
                                    {2, -3, 1, 0, 0, 1, -1, 2},
                                    {0, 5, -4, 2, 1, 1, 1, -6}};
static const double hand_x[2][8] = {{1, 0, 2, -1, 1, 1, 0, 2}, {0, 1, 1, 1, -1, 2, 3, 0}};

/* Y = X W^T with loss = sum of Y: dY is all ones. */
typedef struct hand {
  fx f;
  fx_tensor x, w, dy, dx, dw, alpha, y;
  uint32_t columns[8];
  bs_partition part;
  bs_packed *packed;
} hand;

static void hand_open(hand *h, uint32_t dtype, int masked) {
  const int64_t one = 1;
  memset(h, 0, sizeof *h);
  fx_open(&h->f, 2, 1);
  fx_matrix(&h->x, dtype, 2, 8);
  fx_matrix(&h->w, dtype, 4, 8);
  fx_matrix(&h->dy, dtype, 2, 4);
  fx_matrix(&h->dx, dtype, 2, 8);
  fx_matrix(&h->y, dtype, 2, 4);
  h->part = fx_gather(8, 4, masked ? 3 : 15, h->columns);
  fx_matrix(&h->dw, BS_F32, 4, h->part.count);
  fx_tensor_make(&h->alpha, BS_F32, 1, &one, NULL);
  fx_set(&h->alpha, 0, 0, -0.5);
  for (int64_t k = 0; k < 8; k++) {
    for (int64_t n = 0; n < 4; n++) fx_set(&h->w, n, k, hand_w[n][k]);
    for (int64_t b = 0; b < 2; b++) fx_set(&h->x, b, k, hand_x[b][k]);
    for (int64_t b = 0; b < 2; b++) fx_set(&h->dx, b, k, 0.0);
  }
  for (int64_t n = 0; n < 8; n++) fx_set(&h->dy, n / 4, n % 4, 1.0);
  const bs_tensor_desc *args[4] = {&h->x.d, NULL, NULL, &h->y.d};
  bs_op_query q = fx_query("matmul", args, 4);
  bs_error err = BS_ERROR_INIT;
  q.partition = &h->part;
  q.flags = BS_QUERY_X_FULL | BS_QUERY_TRAIN;
  q.weight_dtype = dtype;
  const bs_source source = fx_source(&h->w);
  ck_assert_msg(bs_dispatch_pack(&h->f.ops, &q, &source, &h->packed, &err) == BS_OK, "%s", err.message);
}

static void hand_run(hand *h, const char *op, fx_tensor *a, fx_tensor *b, fx_tensor *c) {
  const bs_tensor_desc *args[3] = {&a->d, &b->d, c != NULL ? &c->d : NULL};
  bs_op_query q = fx_query(op, args, c != NULL ? 3 : 2);
  bs_tensor *call[3] = {&a->t, &b->t, c != NULL ? &c->t : NULL};
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  q.partition = &h->part;
  q.flags = BS_QUERY_X_FULL;
  q.weight_dtype = h->w.d.dtype;
  bs_packed *packed = strcmp(op, "matmul_dw") == 0 ? NULL : h->packed;
  ck_assert_msg(bs_dispatch_prepare(&h->f.ops, &q, packed, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_run(plan, call, q.nargs, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
}

static void hand_close(hand *h) {
  bs_dispatch_packed_release(h->packed);
  fx_tensor *const all[] = {&h->x, &h->w, &h->dy, &h->dx, &h->dw, &h->alpha, &h->y};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) fx_tensor_free(all[i]);
  fx_close(&h->f);
}

static const uint32_t hand_types[] = {BS_F64, BS_F32, BS_BF16, BS_F16};

START_TEST(known_gradients) {
  static const double dx[2][8] = {{2, 4, 2, 7, 9, 6, 7, 8}, {2, 4, 0, 0, 9, 6, 0, 0}};
  static const double dw[8] = {1, 1, 3, 0, 0, 3, 3, 2};
  for (int masked = 0; masked < 2; masked++) {
    hand h;
    hand_open(&h, hand_types[_i], masked);
    hand_run(&h, "matmul_dx", &h.dy, &h.dx, NULL);
    hand_run(&h, "matmul_dw", &h.x, &h.dy, &h.dw);
    for (int64_t b = 0; b < 2; b++)
      for (int64_t k = 0; k < 8; k++) ck_assert_double_eq(fx_get(&h.dx, b, k), dx[masked][k]);
    for (int64_t n = 0; n < 4; n++)
      for (int64_t i = 0; i < h.part.count; i++)
        ck_assert_double_eq(fx_get(&h.dw, n, i), dw[bs_op_partition_column(&h.part, i)]);
    ck_assert_uint_eq(h.f.counters[BS_COUNT_FLOPS], (uint64_t)(2 * 2 * 2 * 4 * h.part.count));
    hand_close(&h);
  }
}
END_TEST

START_TEST(known_step) {
  static const double first[4] = {0.5, 1.5, 5, 4.5};
  hand h;
  bs_error err = BS_ERROR_INIT;
  fx_tensor row;
  hand_open(&h, hand_types[_i], 1);
  hand_run(&h, "matmul_update", &h.x, &h.dy, &h.alpha);
  fx_matrix(&row, BS_F64, 1, 4);
  ck_assert_int_eq(bs_dispatch_packed_read(h.packed, 0, &row.t, &err), BS_OK);
  for (int64_t i = 0; i < 4; i++) ck_assert_double_eq(fx_get(&row, 0, i), first[i]);
  fx_tensor_free(&row);
  hand_close(&h);
}
END_TEST

/* ---- bits ----------------------------------------------------------------------------------- */

typedef struct shape {
  uint32_t x, dy, w, dx, dw, accumulate;
  int64_t B, N, K;
  uint32_t full, spread, width;
} shape;

typedef struct bits {
  shape s;
  fx f;
  fx_tensor x, dy, w, dx, dw, alpha, back;
  uint32_t columns[300];
  bs_partition part;
  bs_packed *packed;
} bits;

static void spread_matrix(fx_tensor *out, uint32_t dtype, int64_t rows, int64_t cols, uint32_t spread) {
  const int64_t dims[2] = {rows, cols}, strides[2] = {2 * cols + 3, 2};
  fx_tensor_make(out, dtype, 2, dims, spread && cols > 0 ? strides : NULL);
}

static void bits_open(bits *t, const shape *s) {
  uint64_t seed = 5;
  const int64_t one = 1;
  memset(t, 0, sizeof *t);
  t->s = *s;
  fx_open(&t->f, s->width, 1);
  t->f.threads = s->width > 1;
  t->part = fx_gather(s->K, 3, 5, t->columns);
  const int64_t kept = t->part.count, cols = s->full ? s->K : kept;
  spread_matrix(&t->x, s->x, s->B, cols, s->spread);
  spread_matrix(&t->dx, s->dx, s->B, cols, s->spread);
  spread_matrix(&t->dy, s->dy, s->B, s->N, s->spread);
  spread_matrix(&t->dw, s->dw, s->N, kept, s->spread);
  fx_matrix(&t->w, s->w, s->N, s->K);
  fx_matrix(&t->back, s->w, s->N, kept);
  fx_tensor_make(&t->alpha, BS_F32, 1, &one, NULL);
  fx_fill(&t->x, &seed);
  fx_fill(&t->dy, &seed);
  fx_fill(&t->w, &seed);
  fx_fill(&t->alpha, &seed);
}

static void bits_close(bits *t) {
  bs_dispatch_packed_release(t->packed);
  fx_tensor *const all[] = {&t->x, &t->dy, &t->w, &t->dx, &t->dw, &t->alpha, &t->back};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) fx_tensor_free(all[i]);
  fx_close(&t->f);
}

static void bits_pack(bits *t) {
  const bs_tensor_desc x = bs_desc_2d(t->s.w, 1, t->part.count), y = bs_desc_2d(t->s.w, 1, t->s.N);
  const bs_tensor_desc wide = bs_desc_2d(BS_I64, 1, t->s.N);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, bs_dtype_is_float(t->s.w) ? &y : &wide};
  bs_op_query q = fx_query("matmul", args, 4);
  bs_error err = BS_ERROR_INIT;
  q.partition = &t->part;
  q.weight_dtype = t->s.w;
  const bs_source source = fx_source(&t->w);
  ck_assert_msg(bs_dispatch_pack(&t->f.ops, &q, &source, &t->packed, &err) == BS_OK, "%s", err.message);
}

static void bits_run(bits *t, const char *op, fx_tensor *a, fx_tensor *b, fx_tensor *c, uint32_t accumulate) {
  const bs_tensor_desc *args[3] = {&a->d, &b->d, c != NULL ? &c->d : NULL};
  bs_op_query q = fx_query(op, args, c != NULL ? 3 : 2);
  bs_tensor *call[3] = {&a->t, &b->t, c != NULL ? &c->t : NULL};
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  q.partition = &t->part;
  q.flags = t->s.full ? BS_QUERY_X_FULL : 0;
  q.weight_dtype = t->s.w;
  q.accumulate = accumulate;
  bs_packed *packed = strcmp(op, "matmul_dw") == 0 ? NULL : t->packed;
  ck_assert_msg(bs_dispatch_prepare(&t->f.ops, &q, packed, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_run(plan, call, q.nargs, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
}

static double x_at(const bits *t, int64_t b, int64_t i) {
  return fx_get(&t->x, b, t->s.full ? (int64_t)t->columns[i] : i);
}

/* The documented sum of products: in f32 steps, or in f64. */
static double in_order(const bits *t, int narrow, int dx, int64_t r, int64_t i) {
  const int64_t depth = dx ? t->s.N : t->s.B;
  float low = 0.0f;
  double sum = 0.0;
  for (int64_t j = 0; j < depth; j++) {
    const double a = dx ? fx_get(&t->dy, r, j) : fx_get(&t->dy, j, r);
    const double b = dx ? fx_get(&t->w, j, t->columns[i]) : x_at(t, j, i);
    const float product = (float)a * (float)b;
    low = low + product;
    sum = sum + a * b;
  }
  return narrow ? (double)low : sum;
}

static double stored(uint32_t dtype, double v) {
  unsigned char bytes[8];
  bs_store_f64(dtype, bytes, 0, v);
  return bs_load_f64(dtype, bytes, 0);
}

static int narrow(const shape *s, uint32_t a, uint32_t b, uint32_t c) {
  if (s->accumulate != BS_ACC_DEFAULT) return s->accumulate == BS_ACC_F32;
  return a != BS_F64 && b != BS_F64 && c != BS_F64;
}

static void judge(bits *t) {
  const shape *s = &t->s;
  const float alpha = (float)fx_get(&t->alpha, 0, 0);
  for (int64_t i = 0; i < t->part.count; i++) {
    const int64_t at = s->full ? (int64_t)t->columns[i] : i;
    for (int64_t b = 0; b < s->B; b++)
      ck_assert_double_eq(fx_get(&t->dx, b, at),
                          stored(s->dx, in_order(t, narrow(s, s->dy, s->w, s->dx), 1, b, i)));
    for (int64_t n = 0; n < s->N; n++) {
      ck_assert_double_eq(fx_get(&t->dw, n, i),
                          stored(s->dw, in_order(t, narrow(s, s->x, s->dy, s->dw), 0, n, i)));
      const int low = narrow(s, s->x, s->dy, s->w);
      const double sum = in_order(t, low, 0, n, i);
      const float small = alpha * (float)sum;
      const double delta = low ? (double)small : (double)alpha * sum;
      ck_assert_double_eq(fx_get(&t->back, n, i), stored(s->w, fx_get(&t->w, n, t->columns[i]) + delta));
    }
  }
  fx_check_guards(&t->dx, "dX");
  fx_check_guards(&t->dw, "dW");
}

/* Columns of a whole dX that are not the partition's stay. */
static void mark(bits *t) {
  for (int64_t b = 0; b < t->s.B; b++)
    for (int64_t k = 0; k < t->dx.d.dims[1]; k++) fx_set(&t->dx, b, k, 99.0);
}

static void judge_marks(const bits *t) {
  for (int64_t b = 0; b < t->s.B && t->s.full; b++)
    for (int64_t k = 0; k < t->s.K; k++)
      if (k % 3 == 1) ck_assert_double_eq(fx_get(&t->dx, b, k), 99.0);
}

START_TEST(bits_are_the_documented_ones) {
  static const shape shapes[] = {
      {BS_F32, BS_F32, BS_F32, BS_F32, BS_F32, 0, 70, 67, 203, 0, 0, 1},
      {BS_F32, BS_F32, BS_F32, BS_F32, BS_F32, 0, 5, 130, 300, 1, 1, 3},
      {BS_BF16, BS_F32, BS_BF16, BS_F16, BS_F64, 0, 33, 35, 50, 1, 1, 4},
      {BS_F16, BS_F16, BS_F8E4M3, BS_BF16, BS_F32, 2, 9, 40, 31, 0, 1, 2},
      {BS_F64, BS_F32, BS_F64, BS_F64, BS_F64, 0, 31, 33, 64, 1, 0, 2},
      {BS_F32, BS_F64, BS_F32, BS_F32, BS_F32, 0, 17, 3, 1, 0, 0, 5},
      {BS_F32, BS_F32, BS_F64, BS_F32, BS_F32, 0, 1, 1, 2, 1, 1, 1},
  };
  bits t;
  bits_open(&t, &shapes[_i]);
  mark(&t);
  bits_pack(&t);
  bits_run(&t, "matmul_dx", &t.dy, &t.dx, NULL, shapes[_i].accumulate);
  bits_run(&t, "matmul_dw", &t.x, &t.dy, &t.dw, shapes[_i].accumulate);
  bits_run(&t, "matmul_update", &t.x, &t.dy, &t.alpha, shapes[_i].accumulate);
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_dispatch_packed_read(t.packed, 0, &t.back.t, &err), BS_OK);
  judge(&t);
  judge_marks(&t);
  bits_close(&t);
}
END_TEST

START_TEST(integers_wrap) {
  const shape s = {BS_I8, BS_U8, BS_I32, BS_I32, BS_I64, 0, 20, 40, 30, 0, 0, 2};
  bits t;
  bits_open(&t, &s);
  fx_set(&t.w, 0, t.columns[0], 2147483647.0);
  fx_set(&t.dy, 0, 0, 3.0);
  bits_pack(&t);
  t.s.dy = t.dy.d.dtype;
  bits_run(&t, "matmul_dx", &t.dy, &t.dx, NULL, 0);
  bits_run(&t, "matmul_dw", &t.x, &t.dy, &t.dw, 0);
  for (int64_t i = 0; i < t.part.count; i++) {
    for (int64_t b = 0; b < s.B; b++) {
      uint64_t sum = 0;
      for (int64_t n = 0; n < s.N; n++)
        sum += (uint64_t)fx_get_i64(&t.dy, b, n) * (uint64_t)fx_get_i64(&t.w, n, t.columns[i]);
      ck_assert_int_eq(fx_get_i64(&t.dx, b, i), (int32_t)(uint32_t)sum);
    }
    for (int64_t n = 0; n < s.N; n++) {
      int64_t sum = 0;
      for (int64_t b = 0; b < s.B; b++) sum += fx_get_i64(&t.dy, b, n) * fx_get_i64(&t.x, b, i);
      ck_assert_int_eq(fx_get_i64(&t.dw, n, i), sum);
    }
  }
  bits_close(&t);
}
END_TEST

/* No outputs, no tokens: dX and dW are zero, the weight stays. */
START_TEST(empty_sums) {
  const shape no_outputs = {BS_F32, BS_F32, BS_F32, BS_F32, BS_F32, 0, 3, 0, 9, 0, 0, 1};
  const shape no_tokens = {BS_F32, BS_F32, BS_F32, BS_F32, BS_F32, 0, 0, 4, 9, 0, 0, 1};
  bits t;
  bits_open(&t, &no_outputs);
  bits_pack(&t);
  bits_run(&t, "matmul_dx", &t.dy, &t.dx, NULL, 0);
  for (int64_t b = 0; b < 3; b++)
    for (int64_t i = 0; i < t.part.count; i++) ck_assert_double_eq(fx_get(&t.dx, b, i), 0.0);
  bits_close(&t);
  bits_open(&t, &no_tokens);
  bits_pack(&t);
  bits_run(&t, "matmul_dw", &t.x, &t.dy, &t.dw, 0);
  bits_run(&t, "matmul_update", &t.x, &t.dy, &t.alpha, 0);
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_dispatch_packed_read(t.packed, 0, &t.back.t, &err), BS_OK);
  judge(&t);
  bits_close(&t);
}
END_TEST

START_TEST(refusals) {
  const shape s = {BS_F32, BS_F32, BS_F32, BS_F32, BS_F32, 0, 3, 4, 9, 0, 0, 2};
  void *state = NULL;
  void *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_op_answer a = {.struct_size = sizeof a};
  bits t;
  bits_open(&t, &s);
  const bs_op_impl *impl = fx_impl("matmul_dw", &state);
  const bs_tensor_desc *args[3] = {&t.x.d, &t.dy.d, &t.dw.d};
  bs_op_query q = fx_query("matmul_dw", args, 3);
  q.partition = &t.part;
  q.workspace_limit = 1000;
  ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  ck_assert_uint_eq(a.reason, BS_REASON_WORKSPACE);
  q.workspace_limit = 0;
  q.accumulate = BS_ACC_F32;
  t.x.d.dtype = BS_F64;
  ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  ck_assert_ptr_nonnull(strstr(a.text, "not summed in f32"));
  ck_assert_int_eq(impl->prepare(state, &t.f.exec, &q, NULL, &plan, &err), BS_UNSUPPORTED);
  t.x.d.dtype = BS_F32;
  for (int64_t at = 1; at <= 2; at++) { /* the plan, its workspace */
    t.f.fail_alloc_at = at;
    ck_assert_int_eq(impl->prepare(state, &t.f.exec, &q, NULL, &plan, &err), BS_NO_MEMORY);
  }
  impl = fx_impl("matmul_update", &state);
  args[2] = &t.alpha.d;
  q.op = "matmul_update";
  q.weight_dtype = BS_F32;
  ck_assert_int_eq(impl->prepare(state, &t.f.exec, &q, NULL, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-REF-WEIGHT");
  bits_close(&t);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_gradients, 4},
                             {known_step, 4},
                             {bits_are_the_documented_ones, 7},
                             {integers_wrap},
                             {empty_sums},
                             {refusals},
                             {0}};
  return run_tests("ref_grad", tests, (test_setup){0});
}
