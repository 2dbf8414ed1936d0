/* SPDX-License-Identifier: MIT
 *
 * cpu_24_case.c - see cpu_24_case.h. */
#include "cpu_24_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const names[F24_OPS] = {"matmul24", "matmul24_dx", "matmul24_dw", "matmul24_update"};

int64_t f24_length(const f24 *s) {
  return (s->K + 3) / 4 * 2;
}

int64_t f24_place(const f24_data *d, int64_t n, int64_t k) {
  const unsigned char group = d->bits[n * (f24_length(&d->shape) / 2) + k / 4];
  if ((group >> k % 4 & 1) == 0) return -1;
  return k / 4 * 2 + __builtin_popcount(group & ((1u << k % 4) - 1u));
}

static int32_t kept_read(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                         int64_t out_stride, bs_error *err) {
  const f24_data *d = ctx;
  const int64_t groups = f24_length(&d->shape) / 2;
  (void)err;
  for (int64_t r = 0; r < nrows; r++)
    memcpy(out + r * out_stride, d->bits + (row + r) * groups + group, (size_t)ngroups);
  return BS_OK;
}

/* Seeded: of each row, or of each block of four rows one of some transposable patterns. */
static void make_bits(f24_data *d) {
  static const unsigned char two[6] = {3, 5, 6, 9, 10, 12};
  static const unsigned char square[3][4] = {{3, 12, 5, 10}, {9, 6, 9, 6}, {5, 3, 10, 12}};
  const f24 *s = &d->shape;
  const int64_t groups = f24_length(s) / 2;
  uint64_t seed = 77;
  for (int64_t n = 0; n < s->N; n++)
    for (int64_t g = 0; g < groups; g++) {
      const unsigned char b = s->transposable ? square[(n / 4 + g) % 3][n % 4] : two[cx_below(&seed, 6)];
      d->bits[n * groups + g] = s->half ? b ^ 15u : b;
    }
}

static void fill(cx_matrix *m, int integers, uint64_t *seed) {
  const int64_t rows = m->d.rank == 1 ? 1 : m->d.dims[0], cols = m->d.dims[m->d.rank - 1];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++)
      cx_set(m, r, c,
             integers ? (double)cx_below(seed, 7) - 3.0 : (double)(cx_next(seed) >> 11) * 0x1p-51 - 2.0);
}

static int is_integer(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_I32;
}

void f24_make(f24_data *d, const f24 *shape) {
  uint64_t seed = shape->seed + 1;
  memset(d, 0, sizeof *d);
  d->shape = *shape;
  f24 *s = &d->shape;
  if (s->rows == 0) s->rows = s->B;
  const int64_t total = s->total > 0 ? s->total : s->K, pad = s->padded ? 5 : 0, length = f24_length(s);
  const int integers = s->integers || is_integer(s->x_type);
  cx_matrix_make(&d->x, s->x_type, s->B, total, pad ? total + pad : 0);
  cx_matrix_make(&d->y, s->y_type, s->B, s->N, pad ? s->N + pad : 0);
  cx_matrix_make(&d->w, s->w_type, s->N, total, 0);
  cx_matrix_make(&d->dw, BS_F32, s->N, length, pad ? length + pad : 0);
  cx_matrix_make(&d->back, is_integer(s->w_type) ? s->w_type : BS_F32, s->N, length, 0);
  cx_vector_make(&d->alpha, BS_F32, 1);
  cx_set(&d->alpha, 0, 0, 0.5);
  if (s->bias != 0) cx_vector_make(&d->bias, s->bias, s->N);
  if (s->residual != 0) cx_matrix_make(&d->residual, s->residual, s->B, s->N, pad ? s->N + pad : 0);
  fill(&d->x, integers, &seed);
  fill(&d->y, integers, &seed);
  fill(&d->w, integers, &seed);
  if (s->bias != 0) fill(&d->bias, integers, &seed);
  if (s->residual != 0) fill(&d->residual, integers, &seed);
  d->bits = malloc((size_t)(s->N * length / 2 + 1));
  ck_assert_ptr_nonnull(d->bits);
  make_bits(d);
  d->kept = (bs_kept){.struct_size = (uint32_t)sizeof d->kept,
                      .transposable = s->transposable,
                      .rows = s->N,
                      .cols = s->K,
                      .ctx = d,
                      .read = kept_read};
  d->run = cx_run(total, s->begin, s->K);
  /* Whatever is picked by mistake shows: columns that nobody owns hold NaN. */
  for (int64_t b = 0; b < s->B && !integers && s->op != F24_DX; b++)
    for (int64_t k = 0; k < total; k++)
      if (k < s->begin || k >= s->begin + s->K) cx_set(&d->x, b, k, NAN);
}

void f24_free(f24_data *d) {
  cx_matrix *const all[] = {&d->x, &d->y, &d->w, &d->dw, &d->back, &d->alpha, &d->bias, &d->residual};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (all[i]->block != NULL) cx_matrix_free(all[i]);
  free(d->bits);
  free(d->exact);
  free(d->slack);
}

const char *f24_text(const f24 *s) {
  static char text[256];
  snprintf(text, sizeof text, "%s x=%x w=%x y=%x B=%lld/%lld N=%lld K=%lld from %lld of %lld half %u%s%s",
           names[s->op], s->x_type, s->w_type, s->y_type, (long long)s->rows, (long long)s->B,
           (long long)s->N, (long long)s->K, (long long)s->begin, (long long)s->total, s->half,
           s->padded ? " padded" : "", s->transposable ? " transposable" : "");
  return text;
}

bs_op_query f24_query(const f24_data *d, const char *op, const bs_tensor_desc *args[4]) {
  const f24 *s = &d->shape;
  const int forward = strcmp(op, "matmul24") == 0, dx = strcmp(op, "matmul24_dx") == 0;
  args[0] = dx ? &d->y.d : &d->x.d;
  args[1] = forward ? (s->bias != 0 ? &d->bias.d : NULL) : dx ? &d->x.d : &d->y.d;
  args[2] = forward ? (s->residual != 0 ? &d->residual.d : NULL)
            : dx    ? NULL
                    : (s->op == F24_DW ? &d->dw.d : &d->alpha.d);
  args[3] = forward ? &d->y.d : NULL;
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.args = args;
  q.nargs = forward ? 4 : dx ? 2 : 3;
  q.weight_dtype = s->w_type;
  q.kept = &d->kept;
  if (forward) q.activation = s->activation;
  if (forward) q.knobs = s->knobs;
  if (s->total > 0) {
    q.partition = &d->run;
    q.flags = BS_QUERY_X_FULL;
  }
  return q;
}

int32_t f24_try_pack(const cx *c, f24_data *d, void **out_packed, uint64_t *out_bytes, bs_error *err) {
  const bs_tensor_desc *args[4];
  const bs_op_query q = f24_query(d, "matmul24", args);
  const bs_source source = cx_source(&d->w);
  void *state = NULL;
  const bs_op_impl *impl = cx_impl(c, "matmul24", "packed", &state);
  ck_assert_ptr_nonnull(impl);
  return impl->pack(state, &c->exec, &q, &source, out_packed, out_bytes, err);
}

void *f24_pack(const cx *c, f24_data *d) {
  void *packed = NULL;
  uint64_t bytes = 0;
  bs_error err = BS_ERROR_INIT;
  if (d->shape.op == F24_DW) return NULL;
  ck_assert_msg(f24_try_pack(c, d, &packed, &bytes, &err) == BS_OK, "%s: %s", f24_text(&d->shape),
                err.message);
  return packed;
}

void f24_packed_free(const cx *c, void *packed) {
  void *state = NULL;
  cx_impl(c, "matmul24", "packed", &state)->packed_free(packed);
}

int32_t f24_try(const cx *c, f24_data *d, void *packed, bs_error *err) {
  const f24 *s = &d->shape;
  const bs_tensor_desc *args[4];
  const bs_op_query q = f24_query(d, names[s->op], args);
  bs_tensor x = d->x.t, y = d->y.t, residual = d->residual.t;
  bs_tensor *call[4] = {&x, NULL, NULL, NULL};
  void *state = NULL, *plan = NULL;
  const bs_op_impl *impl = cx_impl(c, names[s->op], "packed", &state);
  ck_assert_ptr_nonnull(impl);
  x.dims[0] = y.dims[0] = residual.dims[0] = s->rows;
  if (s->op == F24_FORWARD) {
    call[1] = s->bias != 0 ? &d->bias.t : NULL;
    call[2] = s->residual != 0 ? &residual : NULL;
    call[3] = &y;
  } else if (s->op == F24_DX) {
    call[0] = &y;
    call[1] = &x;
  } else {
    call[1] = &y;
    call[2] = s->op == F24_DW ? &d->dw.t : &d->alpha.t;
  }
  int32_t rc = impl->prepare(state, &c->exec, &q, packed, &plan, err);
  if (rc != BS_OK) return rc;
  rc = impl->run(plan, call, q.nargs, NULL, err);
  impl->plan_free(plan);
  return rc;
}

static double half_unit(uint32_t dtype) {
  return dtype == BS_BF16 ? 0x1p-8 : dtype == BS_F16 ? 0x1p-11 : 0x1p-24;
}

static void put(f24_data *d, int64_t at, double exact, double magnitude, int64_t terms, uint32_t out) {
  d->exact[at] = exact;
  d->slack[at] = ((double)terms + 4) * 0x1p-24 * magnitude + half_unit(out) * fabs(exact) * 1.01 +
                 1e-7 * (out == BS_F16);
}

/* One element of the result as a sum of kept products. */
static void expect_forward(f24_data *d, int64_t b, int64_t n) {
  const f24 *s = &d->shape;
  double sum = 0, size = 0;
  for (int64_t k = 0; k < s->K; k++)
    if (f24_place(d, n, k) >= 0) {
      const double p = cx_get(&d->x, b, s->begin + k) * cx_get(&d->w, n, s->begin + k);
      sum += p;
      size += fabs(p);
    }
  if (s->bias != 0) sum += cx_get(&d->bias, 0, n);
  if (s->activation == BS_ACT_RELU && sum < 0) sum = 0;
  if (s->residual != 0) sum += cx_get(&d->residual, b, n);
  put(d, b * s->N + n, sum, size + 8, s->K, s->y_type);
}

static void expect_dx(f24_data *d, int64_t b, int64_t k) {
  const f24 *s = &d->shape;
  double sum = 0, size = 0;
  for (int64_t n = 0; n < s->N; n++)
    if (f24_place(d, n, k) >= 0) {
      const double p = cx_get(&d->y, b, n) * cx_get(&d->w, n, s->begin + k);
      sum += p;
      size += fabs(p);
    }
  put(d, b * s->K + k, sum, size, s->N, s->x_type);
}

static void expect_dw(f24_data *d, int64_t n, int64_t k) {
  const f24 *s = &d->shape;
  const int64_t j = f24_place(d, n, k);
  double sum = 0, size = 0;
  if (j < 0) return;
  for (int64_t b = 0; b < s->rows && k < s->K; b++) {
    const double p = cx_get(&d->x, b, s->begin + k) * cx_get(&d->y, b, n);
    sum += p;
    size += fabs(p);
  }
  if (s->op == F24_DW) {
    put(d, n * f24_length(s) + j, sum, size, s->rows, BS_F32);
    return;
  }
  const double w = k < s->K ? cx_get(&d->w, n, s->begin + k) : 0;
  put(d, n * f24_length(s) + j, w + 0.5 * sum, size + fabs(w), s->rows, s->w_type);
}

static void expect(f24_data *d) {
  const f24 *s = &d->shape;
  const int64_t across = s->op == F24_FORWARD ? s->N : s->op == F24_DX ? s->K : f24_length(s);
  const int64_t down = s->op <= F24_DX ? s->rows : s->N;
  d->exact = calloc((size_t)(down * across + 1), sizeof *d->exact);
  d->slack = calloc((size_t)(down * across + 1), sizeof *d->slack);
  ck_assert(d->exact != NULL && d->slack != NULL);
  for (int64_t i = 0; i < down; i++) {
    if (s->op == F24_FORWARD)
      for (int64_t n = 0; n < s->N; n++) expect_forward(d, i, n);
    if (s->op == F24_DX)
      for (int64_t k = 0; k < s->K; k++) expect_dx(d, i, k);
    if (s->op >= F24_DW)
      for (int64_t k = 0; k < 2 * f24_length(s); k++) expect_dw(d, i, k);
  }
}

static const cx_matrix *out_of(const f24_data *d) {
  const uint32_t op = d->shape.op;
  return op == F24_FORWARD ? &d->y : op == F24_DX ? &d->x : op == F24_DW ? &d->dw : &d->back;
}

void f24_judge(const f24_data *d, const char *who) {
  const f24 *s = &d->shape;
  const int exact = s->integers || is_integer(s->x_type);
  const int64_t across = s->op == F24_FORWARD ? s->N : s->op == F24_DX ? s->K : f24_length(s);
  const int64_t down = s->op <= F24_DX ? s->rows : s->N, first = s->op == F24_DX ? s->begin : 0;
  const cx_matrix *all[] = {&d->x, &d->y, &d->w, &d->dw, &d->alpha};
  for (int64_t i = 0; i < down; i++)
    for (int64_t j = 0; j < across; j++) {
      const double got = cx_get(out_of(d), i, first + j), want = d->exact[i * across + j];
      const double slack = exact ? 0 : d->slack[i * across + j];
      ck_assert_msg(fabs(got - want) <= slack, "%s, %s: [%lld,%lld] is %.9g, want %.9g within %.3g", who,
                    f24_text(s), (long long)i, (long long)j, got, want, slack);
    }
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) cx_guards(all[i], f24_text(s));
}

const void *f24_result(const f24_data *d, size_t *out_bytes) {
  *out_bytes = out_of(d)->block_bytes;
  return out_of(d)->block;
}

void f24_run(const cx *c, f24_data *d) {
  bs_error err = BS_ERROR_INIT;
  void *state = NULL, *packed = f24_pack(c, d);
  cx_matrix before;
  expect(d);
  cx_matrix_make(&before, d->x.d.dtype, d->x.d.dims[0], d->x.d.dims[1],
                 d->shape.padded ? d->x.d.dims[1] + 5 : 0);
  memcpy(before.block, d->x.block, d->x.block_bytes);
  ck_assert_msg(f24_try(c, d, packed, &err) == BS_OK, "%s: %s", f24_text(&d->shape), err.message);
  if (d->shape.op == F24_UPDATE)
    ck_assert_msg(cx_impl(c, "matmul24", "packed", &state)->packed_read(packed, 0, &d->back.t, &err) == BS_OK,
                  "%s", err.message);
  if (packed != NULL) f24_packed_free(c, packed);
  f24_judge(d, "run");
  for (int64_t b = 0; d->shape.op == F24_DX && b < d->shape.B; b++)
    for (int64_t k = 0; k < d->x.d.dims[1]; k++)
      if (b >= d->shape.rows || k < d->shape.begin || k >= d->shape.begin + d->shape.K)
        ck_assert_double_eq(cx_get(&d->x, b, k), cx_get(&before, b, k));
  cx_matrix_free(&before);
}
