/* SPDX-License-Identifier: MIT
 *
 * cpu_grad_case.c - see cpu_grad_case.h. The bound is that of gate T3: 4 sqrt(D) 2^-24 times the sum of the
 * sizes of D products, and the roundings of the result; for an update one more of alpha X, and one for each
 * block of tokens that is added to the weight. */
#include "cpu_grad_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *gc_op(uint32_t op) {
  return op == GC_DX ? "matmul_dx" : op == GC_DW ? "matmul_dw" : "matmul_update";
}

const char *gc_text(const gc *s) {
  static char text[256];
  snprintf(
      text, sizeof text,
      "%s x %s dy %s w %s [B %lld, N %lld, K %lld] rows %lld columns %u period %u bits %x full %u padded %u "
      "integers %u alpha %g seed %llu",
      gc_op(s->op), bs_dtype_name(s->x_type), bs_dtype_name(s->dy_type), bs_dtype_name(s->w_type),
      (long long)s->B, (long long)s->N, (long long)s->K, (long long)s->rows, s->columns, s->period, s->bits,
      s->x_full, s->padded, s->integers, (double)s->alpha, (unsigned long long)s->seed);
  return text;
}

gc gc_plain(uint32_t op, uint32_t dtype, int64_t B, int64_t N, int64_t K) {
  const gc s = {.op = op,
                .x_type = dtype,
                .dy_type = dtype,
                .w_type = dtype,
                .B = B,
                .N = N,
                .K = K,
                .alpha = -0.125f,
                .seed = 11};
  return s;
}

static void fill(const gc *s, cx_matrix *m, int64_t rows, int64_t cols, uint64_t *seed) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++)
      cx_set(m, r, c,
             s->integers ? (double)(cx_below(seed, 3) - 1) : (double)(cx_next(seed) >> 11) * 0x1p-52 - 1.0);
}

static void choose_columns(gc_data *d, uint64_t *seed) {
  const gc *s = &d->shape;
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

static double least(uint32_t dtype) {
  return dtype == BS_F16 ? 0x1p-25 : dtype == BS_BF16 ? 0x1p-134 : 1e-40;
}

static double rounded(uint32_t dtype, double v) {
  unsigned char stored[8];
  bs_store_f64(dtype, stored, 0, v);
  return bs_load_f64(dtype, stored, 0);
}

static double x_at(const gc_data *d, int64_t b, int64_t i) {
  return cx_get(&d->x, b, d->shape.x_full ? cx_column(d->part, i) : i);
}

static double *numbers(int64_t count) {
  double *p = calloc((size_t)count + 1, sizeof *p);
  ck_assert_ptr_nonnull(p);
  return p;
}

/* The bound of an element whose D products sum to `sum`, their sizes to `size`, beside the weight w. */
static void judgement(gc_data *d, int64_t at, int64_t depth, double sum, double size, double w) {
  const gc *s = &d->shape;
  const uint32_t out = s->op == GC_DX ? s->x_type : s->op == GC_DW ? BS_F32 : s->w_type;
  double slack = 4 * sqrt((double)depth) * 0x1p-24 * size;
  if (s->op == GC_UPDATE) {
    const double alpha = (double)s->alpha;
    slack = fabs(alpha) * (slack + 0x1p-24 * size);
    slack += 0x1p-24 * (2 + (double)depth / 64) * (fabs(w) + fabs(alpha) * size);
    sum = w + alpha * sum;
  }
  slack += 0x1p-24 * fabs(sum);
  slack += (fabs(sum) + slack) * bs_dtype_unit_roundoff(out) + least(out);
  d->exact[at] = s->integers ? rounded(out, sum) : sum;
  d->slack[at] = s->integers ? 0 : slack;
}

/* Both operands with the summed index inside, as doubles. */
static void answer(gc_data *d) {
  const gc *s = &d->shape;
  const int dx = s->op == GC_DX;
  const int64_t down = dx ? s->rows : s->N, depth = dx ? s->N : s->rows;
  double *left = numbers(down * depth), *right = numbers(d->kept * depth);
  d->exact = numbers(down * d->kept);
  d->slack = numbers(down * d->kept);
  for (int64_t j = 0; j < depth; j++) {
    for (int64_t r = 0; r < down; r++) left[r * depth + j] = dx ? cx_get(&d->dy, r, j) : cx_get(&d->dy, j, r);
    for (int64_t i = 0; i < d->kept; i++)
      right[i * depth + j] = dx ? cx_get(&d->w, j, cx_column(d->part, i)) : x_at(d, j, i);
  }
  for (int64_t r = 0; r < down; r++)
    for (int64_t i = 0; i < d->kept; i++) {
      double sum = 0, size = 0;
      for (int64_t j = 0; j < depth; j++) {
        const double product = left[r * depth + j] * right[i * depth + j];
        sum += product;
        size += fabs(product);
      }
      const double w = s->op == GC_UPDATE ? cx_get(&d->w, r, cx_column(d->part, i)) : 0;
      judgement(d, r * d->kept + i, depth, sum, size, w);
    }
  free(left);
  free(right);
}

void gc_make(gc_data *d, const gc *shape) {
  uint64_t seed = shape->seed;
  memset(d, 0, sizeof *d);
  d->shape = *shape;
  gc *s = &d->shape;
  if (s->rows == 0) s->rows = s->B;
  choose_columns(d, &seed);
  const int64_t cols = s->x_full ? s->K : d->kept, pad = s->padded ? 5 : 0;
  cx_matrix_make(&d->x, s->x_type, s->B, cols, cols + pad);
  cx_matrix_make(&d->dy, s->dy_type, s->B, s->N, s->N + (s->padded ? 3 : 0));
  cx_matrix_make(&d->w, s->w_type, s->N, s->K, 0);
  cx_matrix_make(&d->dw, BS_F32, s->N, d->kept, d->kept + (s->padded ? 7 : 0));
  cx_matrix_make(&d->back, s->w_type, s->N, d->kept, 0);
  cx_vector_make(&d->alpha, BS_F32, 1);
  cx_set(&d->alpha, 0, 0, (double)s->alpha);
  if (s->op != GC_DX) fill(s, &d->x, s->B, cols, &seed);
  fill(s, &d->dy, s->B, s->N, &seed);
  fill(s, &d->w, s->N, s->K, &seed);
  answer(d);
}

void gc_free(gc_data *d) {
  cx_matrix_free(&d->x);
  cx_matrix_free(&d->dy);
  cx_matrix_free(&d->w);
  cx_matrix_free(&d->dw);
  cx_matrix_free(&d->back);
  cx_matrix_free(&d->alpha);
  cx_partition_free(&d->partition);
  free(d->exact);
  free(d->slack);
}

void gc_query(const gc_data *d, const bs_tensor_desc *args[3], bs_op_query *q) {
  const gc *s = &d->shape;
  args[0] = s->op == GC_DX ? &d->dy.d : &d->x.d;
  args[1] = s->op == GC_DX ? &d->x.d : &d->dy.d;
  args[2] = s->op == GC_DX ? NULL : s->op == GC_DW ? &d->dw.d : &d->alpha.d;
  memset(q, 0, sizeof *q);
  q->struct_size = (uint32_t)sizeof *q;
  q->nargs = s->op == GC_DX ? 2 : 3;
  q->op = gc_op(s->op);
  q->args = args;
  q->partition = d->part;
  q->flags = s->x_full ? BS_QUERY_X_FULL : 0;
  q->weight_dtype = s->op == GC_DW ? 0 : s->w_type;
}

void *gc_pack(const cx *c, gc_data *d) {
  const gc *s = &d->shape;
  bs_error err = {.struct_size = sizeof err};
  void *state = NULL, *packed = NULL;
  uint64_t bytes = 0;
  if (s->op == GC_DW) return NULL;
  const bs_op_impl *impl = cx_impl(c, "matmul", "packed", &state);
  const bs_tensor_desc x = bs_desc_2d(s->w_type, 1, d->kept), y = bs_desc_2d(s->w_type, 1, s->N);
  const bs_tensor_desc *const args[4] = {&x, NULL, NULL, &y};
  const bs_op_query q = {.struct_size = sizeof q,
                         .nargs = 4,
                         .op = "matmul",
                         .args = args,
                         .partition = d->part,
                         .flags = BS_QUERY_TRAIN,
                         .weight_dtype = s->w_type};
  const bs_source source = cx_source(&d->w);
  const int32_t rc = impl->pack(state, &c->exec, &q, &source, &packed, &bytes, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", gc_text(s), err.message);
  return packed;
}

static void clear(cx_matrix *m) {
  for (int64_t r = 0; r < m->t.dims[0]; r++)
    for (int64_t c = 0; c < m->t.dims[1]; c++) cx_set(m, r, c, NAN);
}

int32_t gc_try(const cx *c, gc_data *d, void *packed, bs_error *err) {
  const gc *s = &d->shape;
  void *state = NULL, *plan = NULL;
  const bs_op_impl *impl = cx_impl(c, gc_op(s->op), "packed", &state);
  const bs_tensor_desc *args[3];
  bs_tensor x = d->x.t, dy = d->dy.t;
  bs_op_query q;
  ck_assert_ptr_nonnull(impl);
  if (s->op == GC_DX) clear(&d->x);
  clear(&d->dw);
  gc_query(d, args, &q);
  int32_t rc = impl->prepare(state, &c->exec, &q, packed, &plan, err);
  x.dims[0] = dy.dims[0] = s->rows;
  if (rc == BS_OK) {
    bs_tensor *call[3] = {s->op == GC_DX ? &dy : &x, s->op == GC_DX ? &x : &dy,
                          s->op == GC_DW ? &d->dw.t : &d->alpha.t};
    rc = impl->run(plan, call, q.nargs, NULL, err);
  }
  if (plan != NULL) impl->plan_free(plan);
  return rc;
}

void gc_read(const cx *c, gc_data *d, void *packed) {
  bs_error err = {.struct_size = sizeof err};
  const bs_op_impl *impl = cx_impl(c, "matmul", "packed", NULL);
  clear(&d->back);
  ck_assert_int_eq(impl->packed_read(packed, 0, &d->back.t, &err), BS_OK);
}

const void *gc_result(const gc_data *d, size_t *out_bytes) {
  const cx_matrix *m = d->shape.op == GC_DX ? &d->x : d->shape.op == GC_DW ? &d->dw : &d->back;
  *out_bytes = m->t.bytes;
  return m->t.data;
}

/* Of a whole dX only the partition's columns were written; no row beyond the call's. */
static void judge_rest(const gc_data *d, const char *who) {
  const gc *s = &d->shape;
  for (int64_t b = 0; b < s->B; b++) {
    int64_t i = 0;
    for (int64_t k = 0; k < d->x.t.dims[1]; k++) {
      const int own = !s->x_full || d->part == NULL || (i < d->kept && cx_column(d->part, i) == k);
      i += own;
      if (own && b < s->rows) continue;
      ck_assert_msg(isnan(cx_get(&d->x, b, k)), "%s: %s: dX[%lld,%lld] was written", who, gc_text(s),
                    (long long)b, (long long)k);
    }
  }
}

void gc_judge(const gc_data *d, const char *who) {
  const gc *s = &d->shape;
  const cx_matrix *m = s->op == GC_DX ? &d->x : s->op == GC_DW ? &d->dw : &d->back;
  const int64_t down = s->op == GC_DX ? s->rows : s->N;
  for (int64_t r = 0; r < down; r++)
    for (int64_t i = 0; i < d->kept; i++) {
      const int64_t at = s->op == GC_DX && s->x_full ? cx_column(d->part, i) : i;
      const double got = cx_get(m, r, at), want = d->exact[r * d->kept + i];
      if (!(fabs(got - want) <= d->slack[r * d->kept + i]))
        ck_abort_msg("%s: %s: [%lld,%lld] = %.9g, exact %.9g, bound %.3g", who, gc_text(s), (long long)r,
                     (long long)i, got, want, d->slack[r * d->kept + i]);
    }
  if (s->op == GC_DX) judge_rest(d, who);
  cx_guards(&d->x, who);
  cx_guards(&d->dw, who);
}

void gc_run(const cx *c, gc_data *d) {
  bs_error err = {.struct_size = sizeof err};
  void *packed = gc_pack(c, d);
  const int32_t rc = gc_try(c, d, packed, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s: %s: %s", c->isa, gc_text(&d->shape), err.id, err.message);
  if (d->shape.op == GC_UPDATE) gc_read(c, d, packed);
  if (packed != NULL) cx_impl(c, "matmul", "packed", NULL)->packed_free(packed);
  ck_assert_int_eq(c->live, 0);
  gc_judge(d, c->isa);
}
