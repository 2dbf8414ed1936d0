/* SPDX-License-Identifier: MIT
 *
 * cpu_matmul_case.c - see cpu_matmul_case.h. The bound is that of gate T3: 4 sqrt(K) 2^-24 |X||W|^T for the
 * sums, one rounding of Y, a few units for the epilogue; activations stretch errors by at most 1.13. */
#include "cpu_matmul_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *mc_text(const mc *s) {
  static char text[256];
  snprintf(text, sizeof text,
           "%s -> %s [B %lld, N %lld, K %lld] rows %lld columns %u period %u bits %x full %u act %u bias %x "
           "residual %x padded %u in place %u integers %u seed %llu",
           bs_dtype_name(s->dtype), bs_dtype_name(s->y_type), (long long)s->B, (long long)s->N,
           (long long)s->K, (long long)s->rows, s->columns, s->period, s->bits, s->x_full, s->activation,
           s->bias, s->residual, s->padded, s->in_place, s->integers, (unsigned long long)s->seed);
  return text;
}

static double draw(const mc *s, uint64_t *seed) {
  if (s->integers) return (double)(cx_below(seed, 3) - 1);
  return (double)(cx_next(seed) >> 11) * 0x1p-52 - 1.0;
}

static void fill(const mc *s, cx_matrix *m, int64_t rows, int64_t cols, uint64_t *seed) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) cx_set(m, r, c, draw(s, seed));
}

static void choose_columns(mc_data *d, uint64_t *seed) {
  const mc *s = &d->shape;
  d->kept = s->K;
  if (s->columns == MC_ALL) return;
  if (s->columns == MC_RUN)
    d->partition = cx_run(s->K, s->K / 3, s->K - s->K / 3 - s->K / 4);
  else if (s->columns == MC_PATTERN)
    d->partition = cx_pattern(s->K, s->period, s->bits, s->K / 5, s->K - s->K / 5 - s->K / 7);
  else
    d->partition = cx_list(s->K, (s->K + 1) / 2, seed);
  d->part = &d->partition;
  d->kept = d->partition.count;
}

static double activate(uint32_t activation, double v) {
  switch (activation) {
    case BS_ACT_RELU:
      return v < 0 ? 0 : v;
    case BS_ACT_GELU:
      return 0.5 * v * erfc(-v * 0.70710678118654752440);
    case BS_ACT_SILU:
      return v / (1.0 + exp(-v));
    case BS_ACT_GELU_TANH:
      return v / (1 + exp(-2 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)));
    default:
      return v;
  }
}

static double least(uint32_t dtype) {
  return dtype == BS_F16 ? 0x1p-25 : dtype == BS_BF16 ? 0x1p-134 : 1e-40;
}

static void answer(mc_data *d) {
  const mc *s = &d->shape;
  const int64_t rows = s->rows;
  double *x = calloc((size_t)(rows * d->kept) + 1, sizeof *x),
         *w = calloc((size_t)(s->N * d->kept) + 1, sizeof *w);
  d->exact = calloc((size_t)(rows * s->N) + 1, sizeof *d->exact);
  d->slack = calloc((size_t)(rows * s->N) + 1, sizeof *d->slack);
  ck_assert(x != NULL && w != NULL && d->exact != NULL && d->slack != NULL);
  for (int64_t i = 0; i < d->kept; i++) {
    const int64_t column = cx_column(d->part, i);
    for (int64_t b = 0; b < rows; b++) x[b * d->kept + i] = cx_get(&d->x, b, s->x_full ? column : i);
    for (int64_t n = 0; n < s->N; n++) w[n * d->kept + i] = cx_get(&d->w, n, column);
  }
  for (int64_t b = 0; b < rows; b++)
    for (int64_t n = 0; n < s->N; n++) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < d->kept; i++) {
        const double product = x[b * d->kept + i] * w[n * d->kept + i];
        sum += product;
        size += fabs(product);
      }
      double slack = s->integers ? 0 : 4 * sqrt((double)d->kept) * 0x1p-24 * size;
      if (s->bias != 0) sum += cx_get(&d->bias, 0, n);
      if (!s->integers) slack += 2 * 0x1p-24 * fabs(sum);
      sum = activate(s->activation, sum);
      if (s->activation != BS_ACT_NONE) slack = 1.2 * slack + 16 * 0x1p-24 * fabs(sum) + 1e-7 * (slack > 0);
      if (s->residual != 0) sum += cx_get(s->in_place ? &d->y : &d->residual, b, n);
      if (!s->integers) slack += 2 * 0x1p-24 * fabs(sum);
      if (!s->integers) slack += (fabs(sum) + slack) * bs_dtype_unit_roundoff(s->y_type) + least(s->y_type);
      d->exact[b * s->N + n] = sum;
      d->slack[b * s->N + n] = slack;
    }
  free(x);
  free(w);
}

void mc_make(mc_data *d, const mc *shape) {
  uint64_t seed = shape->seed;
  memset(d, 0, sizeof *d);
  d->shape = *shape;
  mc *s = &d->shape;
  if (s->rows == 0) s->rows = s->B;
  choose_columns(d, &seed);
  const int64_t x_cols = s->x_full ? s->K : d->kept, pad = s->padded ? 5 : 0;
  cx_matrix_make(&d->x, s->dtype, s->B, x_cols, x_cols + pad);
  cx_matrix_make(&d->w, s->dtype, s->N, s->K, 0);
  cx_matrix_make(&d->y, s->y_type, s->B, s->N, s->N + (s->padded ? 3 : 0));
  fill(s, &d->x, s->B, x_cols, &seed);
  fill(s, &d->w, s->N, s->K, &seed);
  if (s->bias != 0) {
    cx_vector_make(&d->bias, s->bias, s->N);
    fill(s, &d->bias, 1, s->N, &seed);
  }
  if (s->residual != 0 && !s->in_place) {
    cx_matrix_make(&d->residual, s->residual, s->B, s->N, s->N + (s->padded ? 7 : 0));
    fill(s, &d->residual, s->B, s->N, &seed);
  }
  if (s->in_place) fill(s, &d->y, s->B, s->N, &seed);
  answer(d);
}

void mc_free(mc_data *d) {
  cx_matrix_free(&d->x);
  cx_matrix_free(&d->w);
  cx_matrix_free(&d->bias);
  cx_matrix_free(&d->residual);
  cx_matrix_free(&d->y);
  cx_partition_free(&d->partition);
  free(d->exact);
  free(d->slack);
}

void mc_query(const mc_data *d, const bs_tensor_desc *args[4], bs_op_query *out_query) {
  const mc *s = &d->shape;
  args[0] = &d->x.d;
  args[1] = s->bias != 0 ? &d->bias.d : NULL;
  args[2] = s->residual == 0 ? NULL : s->in_place ? &d->y.d : &d->residual.d;
  args[3] = &d->y.d;
  memset(out_query, 0, sizeof *out_query);
  out_query->struct_size = (uint32_t)sizeof *out_query;
  out_query->nargs = 4;
  out_query->op = "matmul";
  out_query->args = args;
  out_query->partition = d->part;
  out_query->activation = s->activation;
  out_query->flags = s->x_full ? BS_QUERY_X_FULL : 0;
  out_query->weight_dtype = s->dtype;
  out_query->workspace_limit = s->workspace;
  out_query->knobs = s->knobs;
}

void mc_ask(const cx *c, const char *name, const mc_data *d, bs_op_answer *out_answer) {
  const bs_tensor_desc *args[4];
  bs_op_query q;
  void *state = NULL;
  const bs_op_impl *impl = cx_impl(c, "matmul", name, &state);
  memset(out_answer, 0, sizeof *out_answer);
  out_answer->struct_size = (uint32_t)sizeof *out_answer;
  if (impl == NULL) {
    out_answer->reason = BS_REASON_NOT_BUILT;
    return;
  }
  mc_query(d, args, &q);
  ck_assert_int_eq(impl->supports(state, &q, out_answer), BS_OK);
  if (out_answer->level == BS_LEVEL_NO) {
    ck_assert_uint_ne(out_answer->reason, BS_REASON_NONE);
    ck_assert_str_ne(out_answer->text, "");
  } else {
    ck_assert_uint_eq(out_answer->level, BS_LEVEL_NATIVE);
    ck_assert_str_ne(out_answer->algo, "");
  }
}

/* Activations of the call: the first `rows` rows of what was prepared. */
static bs_tensor *shrink(bs_tensor *copy, const cx_matrix *m, int64_t rows) {
  *copy = m->t;
  copy->dims[0] = rows;
  return copy;
}

int32_t mc_prepare(const cx *c, const char *name, mc_data *d, mc_plan *out, bs_error *err) {
  const bs_tensor_desc *args[4];
  bs_op_query q;
  void *state = NULL;
  uint64_t bytes = 0;
  const mc *s = &d->shape;
  const bs_source source = cx_source(&d->w);
  memset(out, 0, sizeof *out);
  out->impl = cx_impl(c, "matmul", name, &state);
  ck_assert_ptr_nonnull(out->impl);
  mc_query(d, args, &q);
  const int32_t rc = out->impl->pack(state, &c->exec, &q, &source, &out->packed, &bytes, err);
  if (rc != BS_OK) return rc;
  ck_assert_uint_ge(bytes, (uint64_t)(s->N * d->kept) * BS_DTYPE_BYTES(s->dtype));
  const int64_t columns = d->kept + (s->dtype == BS_BF16 ? d->kept % 2 : 0); /* bf16 lies in pairs */
  ck_assert_uint_le(bytes, (uint64_t)((s->N + 15) * columns) * BS_DTYPE_BYTES(s->dtype));
  return out->impl->prepare(state, &c->exec, &q, out->packed, &out->plan, err);
}

int32_t mc_call(const mc_plan *p, mc_data *d, bs_error *err) {
  const mc *s = &d->shape;
  bs_tensor x, y, residual;
  bs_tensor *call[4] = {shrink(&x, &d->x, s->rows), s->bias != 0 ? &d->bias.t : NULL, NULL,
                        shrink(&y, &d->y, s->rows)};
  if (s->residual != 0) call[2] = s->in_place ? &y : shrink(&residual, &d->residual, s->rows);
  return p->impl->run(p->plan, call, 4, NULL, err);
}

void mc_end(mc_plan *p) {
  if (p->plan != NULL) p->impl->plan_free(p->plan);
  if (p->packed != NULL) p->impl->packed_free(p->packed);
  memset(p, 0, sizeof *p);
}

int32_t mc_try(const cx *c, const char *name, mc_data *d, bs_error *err) {
  mc_plan p;
  int32_t rc = mc_prepare(c, name, d, &p, err);
  if (rc == BS_OK) rc = mc_call(&p, d, err);
  mc_end(&p);
  return rc;
}

void mc_judge(const mc_data *d, const char *who) {
  const mc *s = &d->shape;
  for (int64_t b = 0; b < s->rows; b++)
    for (int64_t n = 0; n < s->N; n++) {
      const double got = cx_get(&d->y, b, n), want = d->exact[b * s->N + n];
      if (!(fabs(got - want) <= d->slack[b * s->N + n]))
        ck_abort_msg("%s: %s: Y[%lld,%lld] = %.9g, exact %.9g, bound %.3g", who, mc_text(s), (long long)b,
                     (long long)n, got, want, d->slack[b * s->N + n]);
    }
  for (int64_t b = s->rows; b < s->B && !s->in_place; b++)
    for (int64_t n = 0; n < s->N; n++)
      ck_assert_msg(isnan(cx_get(&d->y, b, n)), "%s: %s: row %lld of Y was written", who, mc_text(s),
                    (long long)b);
  cx_guards(&d->y, who);
}

/* Y before a run: not a number, so that an element left out is seen. */
void mc_clear_y(mc_data *d) {
  for (int64_t b = 0; b < d->shape.B; b++)
    for (int64_t n = 0; n < d->shape.N; n++) cx_set(&d->y, b, n, NAN);
}

void mc_run(const cx *c, const char *name, mc_data *d) {
  bs_error err = {.struct_size = sizeof err};
  if (!d->shape.in_place) mc_clear_y(d);
  const int32_t rc = mc_try(c, name, d, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s: %s: %s", name, mc_text(&d->shape), err.id, err.message);
  ck_assert_int_eq(c->live, 0);
  mc_judge(d, name);
}
