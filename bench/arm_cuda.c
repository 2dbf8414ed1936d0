/* SPDX-License-Identifier: MIT
 *
 * arm_cuda.c - beside the cuda plugin: cuBLASLt called directly, and the limits of a GPU, timed like the
 * others. The rate is taken with the generator's numbers too, since a GPU's clock depends on them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "gpu.h"
#include "numbers.h"
#include "support.h"
#ifdef BS_HAVE_CUBLASLT

enum { LARGE = 8192 };

typedef struct cuda_arm {
  bench_gpu gpu;
  bench_lt lt;
  bench_numbers numbers;
  bench_lt_product product;
  CUdeviceptr from, to; /* copy */
  size_t bytes;
  bench_source_numbers square; /* rate */
  double share;                /* of the large product's multiply-adds that the shape has */
  void *y;
} cuda_arm;

static void drop(bench_arm *arm) {
  cuda_arm *a = arm->self;
  if (a->gpu.context == NULL) return;
  (void)a->gpu.context_set(a->gpu.context);
  bench_lt_drop(&a->gpu, &a->product);
  if (a->from != 0) (void)a->gpu.mem_free(a->from);
  if (a->to != 0) (void)a->gpu.mem_free(a->to);
  a->from = a->to = 0;
  free(a->y);
  a->y = NULL;
}

static void shut(bench_arm *arm) {
  cuda_arm *a = arm->self;
  drop(arm);
  if (a->gpu.context != NULL) bench_lt_close(&a->lt, &a->gpu);
  bench_gpu_close(&a->gpu);
  bench_numbers_free(&a->square);
  free(a);
}

static int32_t begin(bench_arm *arm, const bench_arm_ops *ops, const char *name, const bench_arm_options *o,
                     int with_lt, bs_error *err) {
  cuda_arm *a = calloc(1, sizeof *a);
  if (a == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for an arm");
  arm->self = a;
  arm->ops = ops;
  snprintf(arm->name, sizeof arm->name, "%s", name);
  int32_t rc = bench_gpu_open(&a->gpu, o->driver, err);
  if (rc == BS_OK && with_lt) rc = bench_lt_open(&a->lt, &a->gpu, o->cublaslt, err);
  if (rc == BS_OK && with_lt) snprintf(arm->version, sizeof arm->version, "cuBLASLt %zu", a->lt.version());
  return rc;
}

/* ---- cuBLASLt ------------------------------------------------------------------------------------ */

static int32_t lt_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  cuda_arm *a = arm->self;
  a->numbers = *m;
  a->y = bench_huge_alloc((uint64_t)(m->b * m->n) * BS_DTYPE_BYTES(m->dtype));
  if (a->y == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for outputs");
  const int32_t rc = bench_lt_make(&a->lt, &a->gpu, m->n, m->k, m->b, m->dtype, m, &a->product, err);
  snprintf(arm->way, sizeof arm->way, "cublasLtMatmul, the fastest of %d", a->product.tried);
  return rc;
}

static int32_t lt_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  cuda_arm *a = arm->self;
  double seconds[2] = {0.0, 0.0};
  const int32_t rc = bench_lt_time(&a->lt, &a->gpu, &a->product, calls, seconds, err);
  *out_seconds = seconds[0];
  arm->enqueue = seconds[1];
  return rc;
}

static const void *lt_output(bench_arm *arm, bs_error *err) {
  cuda_arm *a = arm->self;
  const size_t bytes = (size_t)(a->numbers.b * a->numbers.n) * BS_DTYPE_BYTES(a->numbers.dtype);
  int32_t rc = bench_gpu_check(a->gpu.context_set(a->gpu.context), "cuCtxSetCurrent", err);
  if (rc == BS_OK)
    rc = bench_gpu_check(a->gpu.copy_down(a->y, a->product.y_at, bytes, a->gpu.stream), "cuMemcpyDtoHAsync",
                         err);
  if (rc == BS_OK) rc = bench_gpu_check(a->gpu.stream_synchronize(a->gpu.stream), "cuStreamSynchronize", err);
  return rc == BS_OK ? a->y : NULL;
}

int32_t bench_open_cublaslt(const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  static const bench_arm_ops ops = {lt_ready, lt_batch, lt_output, drop, shut};
  return begin(arm, &ops, "cublaslt", o, 1, err);
}

/* ---- limits -------------------------------------------------------------------------------------- */

/* A copy of half the bytes reads and writes as many as the product. */
static int32_t copy_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  cuda_arm *a = arm->self;
  a->bytes = (size_t)(m->n * m->k + m->b * m->k + m->b * m->n) * BS_DTYPE_BYTES(m->dtype) / 2;
  const int inside = a->bytes <= (size_t)(m->n * m->k) * BS_DTYPE_BYTES(m->dtype);
  int32_t rc = bench_gpu_check(a->gpu.context_set(a->gpu.context), "cuCtxSetCurrent", err);
  if (rc == BS_OK) rc = bench_gpu_buffer(&a->gpu, a->bytes, inside ? m->w : NULL, &a->from, err);
  if (rc == BS_OK) rc = bench_gpu_buffer(&a->gpu, a->bytes, NULL, &a->to, err);
  snprintf(arm->way, sizeof arm->way, "cuMemcpyDtoDAsync of %zu MiB", a->bytes >> 20);
  return rc;
}

static int32_t copy_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  cuda_arm *a = arm->self;
  int32_t rc = bench_gpu_check(a->gpu.context_set(a->gpu.context), "cuCtxSetCurrent", err);
  const double start = bench_now();
  for (uint64_t i = 0; rc == BS_OK && i < calls; ++i)
    rc = bench_gpu_check(a->gpu.copy_across(a->to, a->from, a->bytes, a->gpu.stream), "cuMemcpyDtoDAsync",
                         err);
  if (rc == BS_OK) rc = bench_gpu_check(a->gpu.stream_synchronize(a->gpu.stream), "cuStreamSynchronize", err);
  *out_seconds = (bench_now() - start) / (double)calls;
  return rc;
}

/* An edge that any real shape makes the largest; small shapes are those of tests. */
static int32_t rate_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  cuda_arm *a = arm->self;
  const double weights = (double)m->n * (double)m->k;
  const int64_t edge = weights >= 0.25 * LARGE * LARGE ? LARGE : 64;
  a->square.dtype = m->dtype;
  int32_t rc = bench_numbers_make(&a->square, edge, edge, edge, err);
  if (rc == BS_OK)
    rc = bench_lt_make(&a->lt, &a->gpu, edge, edge, edge, m->dtype, &a->square.narrow, &a->product, err);
  a->share = weights * (double)m->b / ((double)edge * (double)edge * (double)edge);
  snprintf(arm->way, sizeof arm->way, "cublasLtMatmul of %lld cubed", (long long)edge);
  return rc;
}

/* One large product a batch, however small the shape: its seconds are a share of it. */
static int32_t rate_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  cuda_arm *a = arm->self;
  double seconds[2] = {0.0, 0.0};
  const double times = (double)calls * a->share;
  const int32_t rc =
      bench_lt_time(&a->lt, &a->gpu, &a->product, times < 4.0 ? 4 : (uint64_t)times, seconds, err);
  *out_seconds = seconds[0] * a->share;
  return rc;
}

int32_t bench_open_cuda_limits(const bench_arm_options *o, bench_arm limits[2], bs_error *err) {
  static const bench_arm_ops rate = {rate_ready, rate_batch, NULL, drop, shut};
  static const bench_arm_ops copy = {copy_ready, copy_batch, NULL, drop, shut};
  limits[0].is_limit = limits[1].is_limit = 1;
  const int32_t rc = begin(&limits[0], &rate, "rate", o, 1, err);
  return rc != BS_OK ? rc : begin(&limits[1], &copy, "copy", o, 0, err);
}

#else

static int32_t not_built(bs_error *err) {
  return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-CUDA", "this build had no headers of cuBLASLt");
}
int32_t bench_open_cublaslt(const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  (void)o, (void)arm;
  return not_built(err);
}
int32_t bench_open_cuda_limits(const bench_arm_options *o, bench_arm limits[2], bs_error *err) {
  (void)o, (void)limits;
  return not_built(err);
}
#endif
