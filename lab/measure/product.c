/* SPDX-License-Identifier: MIT
 * product.c - see product.h. */
#include "lab/measure/product.h"

#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/measure/stats.h"

enum { ROUNDS = 7, LONG_ROUNDS = 3 };
static const double ROUND_SECONDS = 2e-3; /* of one round, at least */
static const double LONG_SECONDS = 0.01;  /* a round this long is repeated less often */

double bs_product_bytes(const bs_product *p) {
  const uint32_t size = BS_DTYPE_BYTES(p->dtype);
  return p->of24 ? (size + 0.25) / 2.0 : size;
}

/* ---- sources ------------------------------------------------------------------------------------ */

/* Small numbers that every dtype has, without zeros. */
static int32_t pattern(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                       void *out, int64_t stride, bs_error *err) {
  static const float few[8] = {0.5f, -1.0f, 0.25f, 1.0f, -0.5f, 2.0f, -0.25f, -2.0f};
  const int64_t count = cols != NULL ? cols->count : *(const int64_t *)ctx;
  const size_t size = BS_DTYPE_BYTES(dtype);
  uint64_t block[8]; /* eight values of at most eight bytes */
  const int32_t rc = bs_convert(dtype, block, BS_F32, few, 8);
  if (rc != BS_OK) return bs_error_set(err, rc, "BS-KERNEL-DTYPE", "no numbers of %s", bs_dtype_name(dtype));
  for (int64_t r = 0; r < nrows; ++r) {
    char *to = (char *)out + (size_t)(r * stride) * size;
    for (int64_t i = 0; i < count; i += 8)
      memcpy(to + (size_t)i * size, block, (size_t)(count - i < 8 ? count - i : 8) * size);
  }
  (void)row;
  return BS_OK;
}

/* Another of the six patterns from row to row and from group to group, as a mask that differs has them. */
static int32_t positions(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                         int64_t stride, bs_error *err) {
  static const uint8_t two[6] = {3, 5, 6, 9, 10, 12};
  (void)ctx;
  (void)err;
  for (int64_t r = 0; r < nrows; ++r)
    for (int64_t g = 0; g < ngroups; ++g)
      out[r * stride + g] = two[((row + r) * 7 + (group + g) * 11 + (row + r) * (group + g) / 3) % 6];
  return BS_OK;
}

/* ---- one rank ----------------------------------------------------------------------------------- */

typedef struct work {
  bs_rank *rank;
  uint32_t index;
  bs_product *p;
  bs_kept kept;
  bs_packed *weight;
  bs_plan *plan[BS_PRODUCT_CALLS_];
  bs_tensor x, y, dw; /* in the backward pass y is dY, and x holds dX and is the input for dW */
} work;

static int64_t rows_of(const bs_product *p) {
  return p->N / p->ranks;
}

static bs_tensor_desc matrix(uint32_t dtype, int64_t rows, int64_t cols) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = 2};
  d.dims[0] = rows;
  d.dims[1] = cols;
  return d;
}

static bs_tensor_desc gradient(const bs_product *p) {
  return matrix(p->dtype == BS_F64 ? BS_F64 : BS_F32, rows_of(p), p->of24 ? p->K / 2 : p->K);
}

static bs_op_query query(const work *w, const char *dense, const char *sparse,
                         const bs_tensor_desc *const *args, uint32_t nargs) {
  const bs_product *p = w->p;
  return (bs_op_query){.struct_size = sizeof(bs_op_query),
                       .nargs = nargs,
                       .op = p->of24 ? sparse : dense,
                       .args = args,
                       .flags = BS_QUERY_DETERMINISTIC,
                       .kept = p->of24 ? &w->kept : NULL};
}

static int32_t forward(work *w, uint32_t call, int pack, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_product *p = w->p;
  int64_t K = p->K;
  const bs_source source = {.struct_size = sizeof source,
                            .dtype = p->dtype,
                            .rows = rows_of(p),
                            .cols = p->K,
                            .ctx = &K,
                            .read = pattern};
  const bs_tensor_desc x = matrix(p->dtype, p->tokens[call], p->K);
  const bs_tensor_desc y = matrix(p->dtype, p->tokens[call], rows_of(p));
  const bs_tensor_desc *const args[] = {&x, NULL, NULL, &y};
  bs_op_query q = query(w, "matmul", "matmul24", args, 4);
  q.flags |= p->trains ? (uint32_t)BS_QUERY_TRAIN : 0u;
  q.weight_dtype = p->dtype;
  if (pack) return api->pack(w->rank, &q, &source, &w->weight, err);
  return api->op_prepare(w->rank, &q, w->weight, &w->plan[call], err);
}

static int32_t backward(work *w, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_product *p = w->p;
  const bs_tensor_desc x = matrix(p->dtype, p->tokens[0], p->K), dw = gradient(p);
  const bs_tensor_desc dy = matrix(p->dtype, p->tokens[0], rows_of(p));
  const bs_tensor_desc *const of_x[] = {&dy, &x}, *const of_w[] = {&x, &dy, &dw};
  bs_op_query q = query(w, "matmul_dx", "matmul24_dx", of_x, 2);
  q.weight_dtype = p->dtype;
  int32_t rc = api->op_prepare(w->rank, &q, w->weight, &w->plan[BS_PRODUCT_DX], err);
  q = query(w, "matmul_dw", "matmul24_dw", of_w, 3);
  if (rc == BS_OK) rc = api->op_prepare(w->rank, &q, NULL, &w->plan[BS_PRODUCT_DW], err);
  if (rc == BS_OK) rc = api->tensor_alloc(w->rank, &dw, BS_LIFE_ACTIVATION, &w->dw, err);
  return rc;
}

static int32_t make(work *w, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_product *p = w->p;
  int64_t K = p->K;
  const bs_tensor_desc x = matrix(p->dtype, p->tokens[0], p->K);
  const bs_tensor_desc y = matrix(p->dtype, p->tokens[0], rows_of(p));
  bs_source source = {.struct_size = sizeof source,
                      .dtype = p->dtype,
                      .rows = p->tokens[0],
                      .cols = p->K,
                      .ctx = &K,
                      .read = pattern};
  w->kept = (bs_kept){.struct_size = sizeof w->kept, .rows = rows_of(p), .cols = p->K, .read = positions};
  int32_t rc = forward(w, BS_PRODUCT_FORWARD, 1, err);
  if (rc != BS_OK || p->rehearse) return rc;
  rc = forward(w, BS_PRODUCT_FORWARD, 0, err);
  if (rc == BS_OK) rc = p->trains ? backward(w, err) : forward(w, BS_PRODUCT_SECOND, 0, err);
  if (rc == BS_OK) rc = api->tensor_alloc(w->rank, &x, BS_LIFE_ACTIVATION, &w->x, err);
  if (rc == BS_OK) rc = api->tensor_alloc(w->rank, &y, BS_LIFE_ACTIVATION, &w->y, err);
  if (rc == BS_OK) rc = api->tensor_read(w->rank, &source, 0, NULL, &w->x, err);
  source.cols = K = rows_of(p);
  if (rc == BS_OK && p->trains) rc = api->tensor_read(w->rank, &source, 0, NULL, &w->y, err);
  return rc;
}

/* ---- timing ------------------------------------------------------------------------------------- */

/* The slowest rank's seconds of one call. */
static int32_t one_round(work *w, uint32_t call, double *out_seconds, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  bs_product *p = w->p;
  bs_tensor x = w->x, y = w->y, dw = w->dw;
  bs_tensor *const of_y[] = {&x, NULL, NULL, &y}, *const of_x[] = {&y, &x}, *const of_w[] = {&x, &y, &dw};
  bs_tensor *const *args = call == BS_PRODUCT_DX ? of_x : call == BS_PRODUCT_DW ? of_w : of_y;
  const uint32_t nargs = call == BS_PRODUCT_DX ? 2 : call == BS_PRODUCT_DW ? 3 : 4;
  x.dims[0] = y.dims[0] = p->tokens[call == BS_PRODUCT_SECOND];
  int32_t rc = bs_rank_barrier(w->rank, "lab.kernel.start", err);
  const uint64_t calls = p->calls, start = bs_rank_clock_ns(w->rank);
  for (uint64_t i = 0; rc == BS_OK && i < calls; ++i) rc = api->op_run(w->plan[call], args, nargs, NULL, err);
  if (rc == BS_OK) rc = bs_rank_sync(w->rank, err);
  p->rank_seconds[w->index] = (double)(bs_rank_clock_ns(w->rank) - start) * 1e-9 / (double)calls;
  if (rc == BS_OK) rc = bs_rank_barrier(w->rank, "lab.kernel.end", err);
  *out_seconds = 0.0;
  for (uint32_t r = 0; r < p->ranks; ++r) *out_seconds = fmax(*out_seconds, p->rank_seconds[r]);
  return rc;
}

/* Every rank sees the same times, so all agree on the number of calls in a round. */
static int32_t time_one(work *w, uint32_t call, bs_error *err) {
  bs_product *p = w->p;
  double first = 0.0, seconds[ROUNDS] = {0};
  int32_t rc = bs_rank_barrier(w->rank, "lab.kernel.calls", err);
  if (rc == BS_OK && w->index == 0) p->calls = 1;
  rc = rc == BS_OK ? one_round(w, call, &first, err) : rc; /* warms up */
  if (rc == BS_OK && first < p->pace * LONG_SECONDS) rc = one_round(w, call, &first, err);
  if (rc == BS_OK) rc = bs_rank_barrier(w->rank, "lab.kernel.calls", err);
  if (rc == BS_OK && w->index == 0)
    p->calls = (uint64_t)fmin(1000.0, 1.0 + p->pace * ROUND_SECONDS / fmax(first, 1e-9));
  const int rounds = first > p->pace * LONG_SECONDS ? LONG_ROUNDS : ROUNDS;
  for (int i = 0; rc == BS_OK && i < rounds; ++i) rc = one_round(w, call, &seconds[i], err);
  if (rc != BS_OK || w->index != 0) return rc;
  const int64_t tokens = p->tokens[call == BS_PRODUCT_SECOND];
  p->seconds[call] = bs_percentile(seconds, (size_t)rounds, tokens == 1 ? 0.5 : 0.0);
  return rc;
}

int32_t bs_product_main(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  work w = {.rank = rank, .index = api->rank(rank), .p = arg};
  int32_t rc = make(&w, err);
  for (uint32_t i = 0; rc == BS_OK && i < BS_PRODUCT_CALLS_; ++i)
    if (w.plan[i] != NULL) rc = time_one(&w, i, err);
  for (uint32_t i = 0; i < BS_PRODUCT_CALLS_; ++i)
    if (w.plan[i]) api->op_release(w.plan[i]);
  if (w.weight) api->packed_release(w.weight);
  bs_tensor *const all[] = {&w.x, &w.y, &w.dw};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
    if (all[i]->data) api->tensor_free(rank, all[i]);
  return rc;
}
