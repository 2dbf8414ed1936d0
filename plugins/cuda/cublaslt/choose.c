/* SPDX-License-Identifier: MIT
 * choose.c - see choose.h. Sums split over K are allowed only where the parts are kept in the compute type
 * and added in a step of their own: parts in the output's type, or added in place, round on the way. */
#include "choose.h"

#include <stdlib.h>

#include "../ops/timing.h"

enum { CANDIDATES = 8 };

/* ---- what the heuristics name ----------------------------------------------------------------- */

static cublasStatus_t set(const cuda_lt *lt, cublasLtMatmulPreferenceOpaque_t *p,
                          cublasLtMatmulPreferenceAttributes_t attribute, const void *value, size_t bytes) {
  return lt->call.preference_set(p, attribute, value, bytes);
}

/* The allowed ways of multiplying: f32 is never emulated by tf32 or 16-bit pieces. */
static uint64_t allowed(const cuda_lt_shape *s) {
  const uint64_t pieces = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F |
                          CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
  const uint64_t half = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F;
  return ~(half | (s->a == CUDA_R_32F ? pieces : 0));
}

static cublasStatus_t prefer(const cuda_lt *lt, const cuda_lt_shape *s, cublasLtMatmulPreferenceOpaque_t *p) {
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const uint64_t ways = allowed(s);
  cublasStatus_t rc = lt->call.preference_init(p, sizeof *p);
  if (rc == CUBLAS_STATUS_SUCCESS)
    rc = set(lt, p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &s->workspace, sizeof s->workspace);
  if (rc == CUBLAS_STATUS_SUCCESS)
    rc = set(lt, p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
  if (rc == CUBLAS_STATUS_SUCCESS) rc = set(lt, p, CUBLASLT_MATMUL_PREF_IMPL_MASK, &ways, sizeof ways);
  const struct {
    cublasLtMatmulPreferenceAttributes_t attribute;
    uint32_t align;
  } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->align_a},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->align_b},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->align_c},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->align_d}};
  for (size_t i = 0; rc == CUBLAS_STATUS_SUCCESS && i < sizeof aligned / sizeof aligned[0]; i++)
    rc = set(lt, p, aligned[i].attribute, &aligned[i].align, sizeof aligned[i].align);
  return rc;
}

static int32_t none(const cuda_lt_shape *s, bs_error *err) {
  (void)bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-LT-NONE",
                "cuBLASLt's heuristics name no algorithm for %lld x %lld x %lld of types %u, %u, %u",
                (long long)s->m, (long long)s->n, (long long)s->k, s->a, s->b, s->d);
  return bs_fail_hint(err, "--set plugins.cuda.cublaslt=off does without it");
}

/* Asks for at most CANDIDATES algorithms, the one with the best estimate first. */
static int32_t ask(const cuda_lt *lt, cublasLtHandle_t handle, const cuda_lt_shape *s, cuda_lt_algo *out,
                   int *out_count, bs_error *err) {
  /* Not looked at there but for its alignment. */
  const void *bias = (const void *)(uintptr_t)256;
  cublasLtMatmulHeuristicResult_t results[CANDIDATES];
  cublasLtMatmulPreferenceOpaque_t preference;
  cuda_lt_descs d;
  int found = 0;
  *out_count = 0;
  memset(results, 0, sizeof results);
  cublasStatus_t status = cuda_lt_describe(lt, s, bias, &d);
  if (status == CUBLAS_STATUS_SUCCESS) status = prefer(lt, s, &preference);
  int32_t rc = cuda_lt_check(lt, status, "describing a product to cuBLASLt", err);
  if (rc != BS_OK) return rc;
  status =
      lt->call.heuristic(handle, &d.desc, &d.a, &d.b, &d.c, &d.d, &preference, CANDIDATES, results, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return none(s, err);
  rc = cuda_lt_check(lt, status, "cublasLtMatmulAlgoGetHeuristic", err);
  for (int i = 0; rc == BS_OK && i < found && i < CANDIDATES; i++) {
    cuda_lt_algo *a = &out[*out_count];
    size_t written = 0;
    if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > s->workspace) continue;
    *a = (cuda_lt_algo){results[i].algo, results[i].workspaceSize, -1, (uint32_t)i};
    rc = cuda_lt_check(lt,
                       lt->call.config_get(&a->algo, CUBLASLT_ALGO_CONFIG_ID, &a->id, sizeof a->id, &written),
                       "cublasLtMatmulAlgoConfigGetAttribute", err);
    (*out_count)++;
  }
  if (rc != BS_OK) return rc;
  return *out_count > 0 ? BS_OK : none(s, err);
}

/* ---- timing ----------------------------------------------------------------------------------- */

typedef struct sizes {
  uint64_t a, b, d, bias;
} sizes;

static sizes sizes_of(const cuda_lt_shape *s) {
  const uint64_t out = (uint64_t)s->n * (uint64_t)(s->ldc > s->ldd ? s->ldc : s->ldd);
  return (sizes){(uint64_t)(s->turn_a ? s->m : s->k) * (uint64_t)s->lda * cuda_lt_bytes(s->a),
                 (uint64_t)(s->turn_b ? s->k : s->n) * (uint64_t)s->ldb * cuda_lt_bytes(s->b),
                 out * cuda_lt_bytes(s->d), (uint64_t)s->m * 8};
}

/* The data for timing one algorithm. */
typedef struct trial {
  const cuda_lt *lt;
  cublasLtHandle_t handle;
  const cuda_lt_shape *shape;
  const cuda_lt_algo *algo;
  cuda_lt_operands operands;
  CUstream stream;
} trial;

static int32_t lay_out(cuda_stage *st, const cuda_lt_shape *s, const void *weight, uint64_t workspace,
                       cuda_lt_operands *out, bs_error *err) {
  const sizes size = sizes_of(s);
  void *a = NULL, *b = NULL, *bias = NULL;
  memset(out, 0, sizeof *out);
  int32_t rc = weight == NULL ? cuda_stage_block(st, size.a, &a, err) : BS_OK;
  if (rc == BS_OK) rc = cuda_stage_block(st, size.b, &b, err);
  if (rc == BS_OK) rc = cuda_stage_block(st, size.d, &out->d, err);
  if (rc == BS_OK) rc = cuda_stage_block(st, size.bias, &bias, err);
  if (rc == BS_OK && workspace > 0) rc = cuda_stage_block(st, workspace, &out->workspace, err);
  out->workspace_bytes = workspace;
  out->a = weight != NULL ? weight : a;
  out->b = b;
  out->c = out->d;
  out->bias = out->alpha = out->beta = bias;
  return rc;
}

static int32_t queue(const void *arg, int *out_refused, bs_error *err) {
  const trial *t = arg;
  const cublasStatus_t status =
      cuda_lt_multiply(t->lt, t->handle, t->shape, &t->algo->algo, &t->operands, t->stream);
  *out_refused = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  return *out_refused ? BS_OK : cuda_lt_check(t->lt, status, "cublasLtMatmul", err);
}

static int32_t time_all(const cuda_lt *lt, cublasLtHandle_t handle, const bs_exec *exec,
                        const cuda_lt_shape *s, const void *weight, const cuda_lt_algo *algos, int count,
                        cuda_lt_algo *out, bs_error *err) {
  const cuda_device *device = exec->device;
  cuda_stage st;
  trial t = {.lt = lt, .handle = handle, .shape = s, .stream = device->stream};
  uint64_t workspace = 0;
  float best = -1.0f;
  for (int i = 0; i < count; i++)
    if (algos[i].workspace > workspace) workspace = algos[i].workspace;
  int32_t rc = cuda_stage_begin(&st, exec, err);
  if (rc == BS_OK) rc = lay_out(&st, s, weight, workspace, &t.operands, err);
  for (int i = 0; rc == BS_OK && i < count; i++) {
    float ms = -1.0f;
    t.algo = &algos[i];
    rc = cuda_stage_time(&st, queue, &t, &ms, err);
    if (rc != BS_OK || ms < 0.0f || (best >= 0.0f && ms >= best)) continue;
    best = ms;
    *out = algos[i];
  }
  cuda_stage_end(&st);
  return rc;
}

/* Not where scratch would take an eighth of the device: layers are to come. */
static int worth_timing(const cuda_lt *lt, const cuda_device *device, const cuda_lt_shape *s,
                        const void *weight, int count) {
  const sizes size = sizes_of(s);
  return lt->tune && !s->fixed && count > 1 &&
         (weight == NULL ? size.a : 0) + size.b + size.d + size.bias + s->workspace <= device->memory / 8;
}

/* ---- choices that were made ------------------------------------------------------------------- */

/* Kept by the process beyond what any plan holds: not the host's, who counts what a plan leaves. */
static void keep(cuda_lt *lt, const cuda_lt_choice *choice) {
  if (lt->n_choices == lt->choices_capacity) {
    const uint32_t capacity = lt->choices_capacity != 0 ? 2 * lt->choices_capacity : 32;
    cuda_lt_choice *grown = realloc(lt->choices, capacity * sizeof *grown);
    if (grown == NULL) return; /* asked again next time */
    lt->choices = grown;
    lt->choices_capacity = capacity;
  }
  lt->choices[lt->n_choices++] = *choice;
}

static const cuda_lt_choice *find(const cuda_lt *lt, const cuda_lt_choice *like) {
  for (uint32_t i = 0; i < lt->n_choices; i++) {
    const cuda_lt_choice *c = &lt->choices[i];
    if (c->capability == like->capability && c->multiprocessors == like->multiprocessors &&
        memcmp(&c->shape, &like->shape, sizeof c->shape) == 0)
      return c;
  }
  return NULL;
}

static int32_t choose(cuda_lt *lt, const bs_exec *exec, cublasLtHandle_t handle, const cuda_lt_shape *s,
                      const void *weight, cuda_lt_choice *choice, bs_error *err) {
  cuda_lt_algo algos[CANDIDATES];
  int count = 0;
  const int32_t rc = ask(lt, handle, s, algos, &count, err);
  if (rc != BS_OK) return rc;
  choice->algo = algos[0];
  if (!worth_timing(lt, exec->device, s, weight, count)) return BS_OK;
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  const int32_t timed = time_all(lt, handle, exec, s, weight, algos, count, &choice->algo, &why);
  if (timed == BS_OK || timed == BS_NO_MEMORY) return BS_OK; /* without scratch the first one serves */
  if (err != NULL) *err = why;
  return timed;
}

int32_t cuda_lt_choose(const bs_exec *exec, cublasLtHandle_t handle, const cuda_lt_shape *s,
                       const void *weight, cuda_lt_algo *out_algo, bs_error *err) {
  const cuda_device *device = exec->device;
  cuda_lt *lt = device->state->lt;
  cuda_lt_choice choice;
  int32_t rc = BS_OK;
  memset(&choice, 0, sizeof choice);
  choice.shape = *s;
  choice.capability = device->capability;
  choice.multiprocessors = device->multiprocessors;
  pthread_mutex_lock(&lt->lock);
  const cuda_lt_choice *known = find(lt, &choice);
  if (known != NULL) {
    lt->hits++;
    choice.algo = known->algo;
  } else {
    rc = choose(lt, exec, handle, s, weight, &choice, err);
    if (rc == BS_OK) keep(lt, &choice);
  }
  pthread_mutex_unlock(&lt->lock);
  *out_algo = choice.algo;
  return rc;
}
