/* SPDX-License-Identifier: MIT
 *
 * arm_cblas.c - OpenBLAS and BLIS: cblas_sgemm of a library opened at run time, of its own namespace, so that
 * both live in one process. For one token cblas_sgemv is tried as well and the faster serves. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arms.h"
#include "core/base/error.h"
#include "support.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef struct cblas_arm {
  void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a,
                int lda, const float *b, int ldb, float beta, float *c, int ldc);
  void (*sgemv)(int order, int trans, int m, int n, float alpha, const float *a, int lda, const float *x,
                int incx, float beta, float *y, int incy);
  int use_gemv;
  bench_numbers numbers;
  float *y;
} cblas_arm;

static int find(void *library, const char *name, void *out) {
  void *symbol = dlsym(library, name);
  if (symbol != NULL) memcpy(out, &symbol, sizeof symbol);
  return symbol != NULL;
}

static void call(const cblas_arm *p) {
  const bench_numbers *m = &p->numbers;
  const int n = (int)m->n, k = (int)m->k, b = (int)m->b;
  if (p->use_gemv)
    p->sgemv(ROW_MAJOR, NO_TRANS, n, k, 1.0f, m->w, k, m->x, 1, 0.0f, p->y, 1);
  else
    p->sgemm(ROW_MAJOR, NO_TRANS, TRANS, b, n, k, 1.0f, m->x, k, m->w, k, 0.0f, p->y, n);
}

static double time_calls(const cblas_arm *p, uint64_t calls) {
  const double start = bench_now();
  for (uint64_t i = 0; i < calls; ++i) call(p);
  return (bench_now() - start) / (double)calls;
}

/* The best of a few batches. */
static double trial(cblas_arm *p, int use_gemv) {
  double best = 1e30;
  p->use_gemv = use_gemv;
  call(p);
  for (int i = 0; i < 5; ++i) {
    const double seconds = time_calls(p, 3);
    if (seconds < best) best = seconds;
  }
  return best;
}

static int32_t cblas_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  cblas_arm *p = arm->self;
  p->numbers = *m;
  p->use_gemv = 0;
  if (m->dtype != BS_F32)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-BLAS", "cblas_sgemm is fp32 only");
  p->y = bench_huge_alloc((uint64_t)(m->b * m->n) * sizeof *p->y);
  if (p->y == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for an output");
  if (m->b == 1) {
    const double gemm = trial(p, 0), gemv = trial(p, 1);
    p->use_gemv = gemv < gemm;
  }
  snprintf(arm->way, sizeof arm->way, "%s", p->use_gemv ? "cblas_sgemv" : "cblas_sgemm");
  return BS_OK;
}

static int32_t cblas_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  (void)err;
  *out_seconds = time_calls(arm->self, calls);
  return BS_OK;
}

static const void *cblas_output(bench_arm *arm, bs_error *err) {
  (void)err;
  return ((cblas_arm *)arm->self)->y;
}

static void cblas_release(bench_arm *arm) {
  cblas_arm *p = arm->self;
  free(p->y);
  p->y = NULL;
}

static void cblas_close(bench_arm *arm) {
  cblas_release(arm);
  free(arm->self);
}

/* BLIS takes a number of its own release for an architecture: that of its AVX2 kernels for this processor.
 * Before its first call. */
static void hold_blis(void *library) {
  const char *(*name_of)(int) = NULL;
#if defined(__x86_64__)
  const char *const wanted = __builtin_cpu_is("amd") ? "zen3" : "haswell";
#else
  const char *const wanted = "generic";
#endif
  char number[16];
  if (!find(library, "bli_arch_string", &name_of)) return;
  for (int id = 0; strcmp(name_of(id), "generic") != 0; ++id) { /* generic is the last */
    if (strcmp(name_of(id), wanted) != 0) continue;
    snprintf(number, sizeof number, "%d", id);
    setenv("BLIS_ARCH_TYPE", number, 0);
    return;
  }
}

/* Each by the function of its own; both may be missing from other builds of cblas. */
static void set_threads(void *library, uint32_t threads) {
  void (*openblas)(int) = NULL;
  void (*blis)(int64_t) = NULL;
  if (find(library, "openblas_set_num_threads", &openblas)) openblas((int)threads);
  if (find(library, "bli_thread_set_num_threads", &blis)) blis((int64_t)threads);
}

static void name_version(void *library, bench_arm *arm) {
  const char *(*text)(void) = NULL, *(*core)(void) = NULL, *(*arch_name)(int) = NULL;
  int (*arch)(void) = NULL;
  if (find(library, "openblas_get_config", &text) && find(library, "openblas_get_corename", &core)) {
    const char *config = text(); /* "OpenBLAS 0.3.21 NO_LAPACKE ..." */
    const size_t name = strcspn(config, " ");
    const size_t end = name + (config[name] != '\0') + strcspn(config + name + (config[name] != '\0'), " ");
    snprintf(arm->version, sizeof arm->version, "%.*s (%s)", (int)end, config, core());
  } else if (find(library, "bli_info_get_version_str", &text) && find(library, "bli_arch_query_id", &arch) &&
             find(library, "bli_arch_string", &arch_name)) {
    snprintf(arm->version, sizeof arm->version, "BLIS %s (%s)", text(), arch_name(arch()));
  }
}

int32_t bench_open_cblas(const char *path, const bench_arm_options *o, bench_arm *arm, bs_error *err) {
  static const bench_arm_ops ops = {cblas_ready, cblas_batch, cblas_output, cblas_release, cblas_close};
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-BLAS", "%s", dlerror());
  cblas_arm *p = calloc(1, sizeof *p);
  if (p == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for an arm");
  arm->self = p;
  arm->ops = &ops;
  if (!find(library, "cblas_sgemm", &p->sgemm) || !find(library, "cblas_sgemv", &p->sgemv))
    return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-BLAS", "%s has no cblas_sgemm", path);
  if (strcmp(o->isa, "avx2") == 0) hold_blis(library);
  set_threads(library, o->threads);
  name_version(library, arm);
  return BS_OK;
}
