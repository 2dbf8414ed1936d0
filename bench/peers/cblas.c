/* SPDX-License-Identifier: MIT
 * cblas.c - OpenBLAS and BLIS as two plugins: cblas_sgemm. For one token cblas_sgemv is tried as
 * well, and the faster one serves. */
#include <time.h>

#include "peer.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, BATCHES = 5, CALLS = 3 };

typedef struct cblas {
  void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a,
                int lda, const float *b, int ldb, float beta, float *c, int ldc);
  void (*sgemv)(int order, int trans, int m, int n, float alpha, const float *a, int lda, const float *x,
                int incx, float beta, float *y, int incy);
  /* Each of one of the two libraries. */
  void (*openblas_threads)(int);
  void (*blis_threads)(int64_t);
  const char *(*openblas_config)(void), *(*openblas_core)(void), *(*blis_version)(void), *(*blis_name)(int);
  int (*blis_arch)(void);
} cblas;

static const bs_knob call_knob = {sizeof(bs_knob), 0,      "call",
                                  "gemm,gemv",     "auto", "auto: of one token the faster"};

static const cblas *functions(const peer *of) {
  return (const cblas *)of->functions;
}

static int open_cblas(void *library, peer *of) {
  cblas *f = (cblas *)of->functions;
  (void)peer_find(library, "openblas_set_num_threads", &f->openblas_threads);
  (void)peer_find(library, "openblas_get_config", &f->openblas_config);
  (void)peer_find(library, "openblas_get_corename", &f->openblas_core);
  (void)peer_find(library, "bli_thread_set_num_threads", &f->blis_threads);
  (void)peer_find(library, "bli_info_get_version_str", &f->blis_version);
  (void)peer_find(library, "bli_arch_query_id", &f->blis_arch);
  (void)peer_find(library, "bli_arch_string", &f->blis_name);
  return peer_find(library, "cblas_sgemm", &f->sgemm) && peer_find(library, "cblas_sgemv", &f->sgemv);
}

static int32_t call(const peer_plan *p, void *x, void *y, bs_error *err) {
  const int n = (int)p->N, k = (int)p->K, b = (int)p->B;
  const cblas *f = functions(p->of);
  (void)err;
  if (strcmp(p->way, "gemv") == 0)
    f->sgemv(ROW_MAJOR, NO_TRANS, n, k, 1.0f, p->w, k, x, 1, 0.0f, y, 1);
  else
    f->sgemm(ROW_MAJOR, NO_TRANS, TRANS, b, n, k, 1.0f, x, k, p->w, k, 0.0f, y, n);
  return BS_OK;
}

/* The best of a few batches, in seconds; the first call starts threads. */
static double trial(peer_plan *p, const char *way, void *x, void *y) {
  struct timespec from, to;
  double best = 1e30;
  snprintf(p->way, sizeof p->way, "%s", way);
  (void)call(p, x, y, NULL);
  for (int i = 0; i < BATCHES; i++) {
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int c = 0; c < CALLS; c++) (void)call(p, x, y, NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    const double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    if (seconds < best) best = seconds;
  }
  return best;
}

/* "OpenBLAS 0.3.21 NO_LAPACKE ...": its name and version. */
static void name_build(const cblas *f, char out[72]) {
  const char *config = f->openblas_config != NULL && f->openblas_core != NULL ? f->openblas_config() : NULL;
  if (config != NULL) {
    const size_t name = strcspn(config, " ") + 1;
    snprintf(out, 72, "%.*s (%s)", (int)(name + strcspn(config + name, " ")), config, f->openblas_core());
  } else if (f->blis_version != NULL && f->blis_arch != NULL && f->blis_name != NULL) {
    snprintf(out, 72, "BLIS %s (%s)", f->blis_version(), f->blis_name(f->blis_arch()));
  }
}

static int32_t make(peer_plan *p, void *x, void *y, bs_error *err) {
  const cblas *f = functions(p->of);
  char told[8];
  if (bs_knob_find(p->knobs, "call", told, sizeof told) && strcmp(told, "gemv") == 0 && p->B != 1)
    return bs_fail(err, BS_UNSUPPORTED, "BS-PEER-QUERY", "sgemv is of one token");
  if (f->openblas_threads != NULL) f->openblas_threads((int)p->exec->width);
  if (f->blis_threads != NULL) f->blis_threads((int64_t)p->exec->width);
  name_build(f, p->build);
  if (told[0] != '\0') {
    (void)trial(p, told, x, y);
    return BS_OK;
  }
  const double gemm = trial(p, "gemm", x, y);
  if (p->B == 1 && trial(p, "gemv", x, y) >= gemm) snprintf(p->way, sizeof p->way, "gemm");
  return BS_OK;
}

static void drop(peer_plan *p) {
  (void)p;
}

static const peer_library library = {.name = PEER_ID,
                                     .summary = "cblas_sgemm of " PEER_ID,
                                     .file = PEER_FILE,
                                     .knob = &call_knob,
                                     .f32_only = 1,
                                     .open = open_cblas,
                                     .make = make,
                                     .call = call,
                                     .drop = drop};

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  return peer_activate(&library, host, self, out_state, err);
}

BS_PLUGIN_DEFINE(PEER_ID, BS_PLUGIN_VERSION, "products by " PEER_ID, 1u << BS_KIND_OP, "op:matmul@cpu\n",
                 activate, peer_deactivate)
