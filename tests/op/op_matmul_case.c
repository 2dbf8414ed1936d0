/* SPDX-License-Identifier: MIT
 * op_matmul_case.c - see op_matmul_case.h. The expected value of each output is computed one output at a
 * time from the elements of the tensors, with the order of rounding that docs/ops.md documents. */
#include "op_matmul_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *fx_case_text(const fx_case *c) {
  static char text[256];
  snprintf(
      text, sizeof text,
      "%s x %s -> %s [%lld,%lld,%lld] period %u bits %x run %lld+%lld full %u bias %x residual %x act %u "
      "acc %u spread %u seed %llu",
      bs_dtype_name(c->x), bs_dtype_name(c->w), bs_dtype_name(c->y), (long long)c->rows,
      (long long)c->outputs, (long long)c->columns, c->period, c->bits, (long long)c->begin,
      (long long)c->count, c->x_full, c->bias, c->residual, c->activation, c->accumulate, c->spread,
      (unsigned long long)c->seed);
  return text;
}

static void spread_matrix(fx_tensor *out, uint32_t dtype, int64_t rows, int64_t cols, uint32_t spread) {
  const int64_t dims[2] = {rows, cols};
  const int64_t step = spread >= 2 ? 2 : 1;
  const int64_t strides[2] = {cols * step + (spread >= 1 ? 3 : 0), step};
  fx_tensor_make(out, dtype, 2, dims, spread > 0 && cols > 0 ? strides : NULL);
}

typedef struct tensors {
  fx_tensor x, w, bias, residual, y;
  const bs_partition *partition;
  int64_t kept;
  uint32_t x_full;
} tensors;

static int wide(const fx_case *c) {
  if (c->accumulate != BS_ACC_DEFAULT) return c->accumulate == BS_ACC_F64;
  return c->x == BS_F64 || c->w == BS_F64 || c->y == BS_F64 || c->bias == BS_F64 || c->residual == BS_F64;
}

static double activate(uint32_t activation, double v) {
  switch (activation) {
    case BS_ACT_RELU:
      return v < 0 ? 0 : v;
    case BS_ACT_GELU:
      return 0.5 * v * (1.0 + erf(v / sqrt(2.0)));
    case BS_ACT_SILU:
      return v / (1.0 + exp(-v));
    case BS_ACT_GELU_TANH:
      return v / (1 + exp(-2 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    default:
      return v;
  }
}

static double x_at(const tensors *s, int64_t row, int64_t i) {
  return fx_get(&s->x, row, s->x_full ? (int64_t)bs_op_partition_column(s->partition, i) : i);
}

static double w_at(const tensors *s, int64_t n, int64_t i) {
  return fx_get(&s->w, n, (int64_t)bs_op_partition_column(s->partition, i));
}

/* The documented value in f32 steps; each operation is rounded by the assignment to float. */
static double expect_f32(const fx_case *c, const tensors *s, int64_t row, int64_t n) {
  float sum = 0.0f;
  for (int64_t i = 0; i < s->kept; i++) {
    const float product = (float)x_at(s, row, i) * (float)w_at(s, n, i);
    sum = sum + product;
  }
  if (c->bias != 0) sum = sum + (float)fx_get(&s->bias, 0, n);
  if (c->activation != BS_ACT_NONE) sum = (float)activate(c->activation, (double)sum);
  if (c->residual != 0) sum = sum + (float)fx_get(&s->residual, row, n);
  return (double)sum;
}

static double expect_f64(const fx_case *c, const tensors *s, int64_t row, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < s->kept; i++) {
    const double product = x_at(s, row, i) * w_at(s, n, i);
    sum = sum + product;
  }
  if (c->bias != 0) sum = sum + fx_get(&s->bias, 0, n);
  sum = activate(c->activation, sum);
  if (c->residual != 0) sum = sum + fx_get(&s->residual, row, n);
  return sum;
}

/* |y - exact| <= gamma_K sum|x||w| + one rounding of Y, for runs without an epilogue. */
static double bound(const fx_case *c, const tensors *s, int64_t row, int64_t n, double exact) {
  const double u = wide(c) ? 0x1p-53 : 0x1p-24;
  double magnitude = 0.0;
  for (int64_t i = 0; i < s->kept; i++) magnitude += fabs(x_at(s, row, i) * w_at(s, n, i));
  const double tiny = c->y == BS_F16      ? 0x1p-25
                      : c->y == BS_F8E4M3 ? 0x1p-10
                      : c->y == BS_F8E5M2 ? 0x1p-17
                                          : 0;
  return (double)(s->kept + 2) * u * magnitude +
         bs_dtype_unit_roundoff(c->y) * (fabs(exact) + magnitude * u * (double)(s->kept + 2)) * 1.0000001 +
         tiny + 1e-300;
}

static void check_value(const fx_case *c, const tensors *s, int64_t row, int64_t n) {
  const double got = fx_get(&s->y, row, n);
  const double step = wide(c) ? expect_f64(c, s, row, n) : expect_f32(c, s, row, n);
  unsigned char stored[8] = {0};
  bs_store_f64(c->y, stored, 0, step);
  const double want = bs_load_f64(c->y, stored, 0);
  const int curved = c->activation >= BS_ACT_GELU;
  /* erf by another formula: a few ulps of the compute dtype, then Y's own rounding. */
  const double slack = curved ? (fabs(step) + 4.0) * (wide(c) ? 0x1p-48 : 0x1p-21) +
                                    2 * bs_dtype_unit_roundoff(c->y) * fabs(step) +
                                    (c->y == BS_F8E4M3   ? 0x1p-9
                                     : c->y == BS_F8E5M2 ? 0x1p-16
                                                         : 0x1p-24)
                              : 0.0;
  if (!(fabs(got - want) <= slack)) /* libcheck writes to a pipe on each assertion that holds */
    ck_abort_msg("%s: Y[%lld,%lld] = %.17g, want %.17g (slack %g)", fx_case_text(c), (long long)row,
                 (long long)n, got, want, slack);
  if (curved || c->bias != 0 || c->residual != 0 || c->activation != BS_ACT_NONE) return;
  const double exact = expect_f64(c, s, row, n);
  if (c->y == BS_F8E4M3 && fabs(exact) > 440.0) return; /* saturates */
  const double limit = bound(c, s, row, n, exact);
  if (!(fabs(got - exact) <= limit))
    ck_abort_msg("%s: Y[%lld,%lld] = %.17g, exact %.17g, bound %g", fx_case_text(c), (long long)row,
                 (long long)n, got, exact, limit);
}

static void make_tensors(const fx_case *c, tensors *s) {
  uint64_t seed = c->seed;
  const int64_t dims[1] = {c->outputs}, strides[1] = {2};
  spread_matrix(&s->x, c->x, c->rows, s->x_full ? c->columns : s->kept, c->spread);
  fx_matrix(&s->w, c->w, c->outputs, c->columns);
  spread_matrix(&s->y, c->y, c->rows, c->outputs, c->spread);
  fx_fill(&s->x, &seed);
  fx_fill(&s->w, &seed);
  if (c->bias != 0) {
    fx_tensor_make(&s->bias, c->bias, 1, dims, c->spread >= 2 ? strides : NULL);
    fx_fill(&s->bias, &seed);
  }
  if (c->residual != 0) {
    spread_matrix(&s->residual, c->residual, c->rows, c->outputs, c->spread);
    fx_fill(&s->residual, &seed);
  }
}

static void check_outputs(const fx *f, const fx_case *c, const tensors *s) {
  for (int64_t row = 0; row < c->rows; row++)
    for (int64_t n = 0; n < c->outputs; n++) check_value(c, s, row, n);
  fx_check_guards(&s->x, "X");
  fx_check_guards(&s->y, "Y");
  ck_assert_uint_eq(f->counters[BS_COUNT_FLOPS], (uint64_t)(2 * c->rows * c->outputs * s->kept));
}

void fx_matmul_check(fx *f, const fx_case *c) {
  tensors s;
  memset(&s, 0, sizeof s);
  uint32_t *columns = calloc((size_t)c->columns + 1, sizeof *columns);
  ck_assert_ptr_nonnull(columns);
  bs_partition partition;
  if (c->period > 0 || c->count >= 0) {
    partition = c->period > 0 ? fx_gather(c->columns, c->period, c->bits, columns)
                              : fx_contiguous(c->columns, c->begin, c->count);
    s.partition = &partition;
  }
  s.kept = s.partition != NULL ? partition.count : c->columns;
  s.x_full = c->x_full;
  make_tensors(c, &s);
  const bs_tensor_desc *descs[4] = {&s.x.d, c->bias != 0 ? &s.bias.d : NULL,
                                    c->residual != 0 ? &s.residual.d : NULL, &s.y.d};
  bs_tensor *args[4] = {&s.x.t, c->bias != 0 ? &s.bias.t : NULL, c->residual != 0 ? &s.residual.t : NULL,
                        &s.y.t};
  bs_op_query q = fx_query("matmul", descs, 4);
  q.partition = s.partition;
  q.weight_dtype = c->w;
  q.accumulate = c->accumulate;
  q.activation = c->activation;
  q.flags = c->x_full ? BS_QUERY_X_FULL : 0;
  const bs_source source = fx_source(&s.w);
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  memset(f->counters, 0, sizeof f->counters);
  ck_assert_msg(bs_dispatch_pack(&f->ops, &q, &source, &packed, &err) == BS_OK, "%s: %s", fx_case_text(c),
                err.message);
  ck_assert_uint_eq(bs_dispatch_packed_bytes(packed), (uint64_t)(c->outputs * s.kept) * BS_DTYPE_BYTES(c->w));
  ck_assert_msg(bs_dispatch_prepare(&f->ops, &q, packed, &plan, &err) == BS_OK, "%s: %s", fx_case_text(c),
                err.message);
  ck_assert_msg(bs_dispatch_run(plan, args, 4, NULL, &err) == BS_OK, "%s: %s", fx_case_text(c), err.message);
  check_outputs(f, c, &s);
  bs_dispatch_release(plan);
  bs_dispatch_packed_release(packed);
  fx_tensor_free(&s.x);
  fx_tensor_free(&s.w);
  fx_tensor_free(&s.bias);
  fx_tensor_free(&s.residual);
  fx_tensor_free(&s.y);
  free(columns);
}
