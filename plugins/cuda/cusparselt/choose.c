/* SPDX-License-Identifier: MIT
 * choose.c - see choose.h. Sums are never split (call.c): cuSPARSELt does not document how it adds parts. */
#include "choose.h"

#include <stdlib.h>

#include "../ops/timing.h"

enum { MOST_ALGORITHMS = 64 };

/* ---- choices that were made ------------------------------------------------------------------- */

/* Kept by the process beyond what any plan holds: not the host's, who counts what a plan leaves. */
static void keep(cuda_splt *splt, const cuda_splt_choice *choice) {
  if (splt->n_choices == splt->choices_capacity) {
    const uint32_t capacity = splt->choices_capacity != 0 ? 2 * splt->choices_capacity : 32;
    cuda_splt_choice *grown = realloc(splt->choices, capacity * sizeof *grown);
    if (grown == NULL) return; /* chosen again next time */
    splt->choices = grown;
    splt->choices_capacity = capacity;
  }
  splt->choices[splt->n_choices++] = *choice;
}

static const cuda_splt_choice *find(const cuda_splt *splt, const cuda_splt_choice *like) {
  for (uint32_t i = 0; i < splt->n_choices; i++) {
    const cuda_splt_choice *c = &splt->choices[i];
    if (c->capability == like->capability && c->multiprocessors == like->multiprocessors &&
        memcmp(&c->shape, &like->shape, sizeof c->shape) == 0)
      return c;
  }
  return NULL;
}

static int32_t too_large(const cuda_splt_shape *s, uint64_t workspace, bs_error *err) {
  (void)bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-SPLT-WORKSPACE",
                "cuSPARSELt wants a workspace of %llu bytes for %lld x %lld x %lld, %llu are allowed",
                (unsigned long long)workspace, (long long)s->m, (long long)s->n, (long long)s->k,
                (unsigned long long)s->workspace);
  return bs_fail_hint(err, "--set plugins.cuda.cusparselt=off does without it");
}

/* ---- timing ----------------------------------------------------------------------------------- */

/* The data for timing one algorithm. */
typedef struct trial {
  const cuda_splt_product *product;
  const cuda_splt_shape *shape;
  cuda_splt_operands operands;
  CUstream stream;
} trial;

static uint32_t bytes_of(int32_t type) {
  if (type == SPLT_R_32F || type == SPLT_R_32I) return 4;
  return type == SPLT_R_16F || type == SPLT_R_16BF ? 2 : 1;
}

static uint64_t x_bytes(const cuda_splt_shape *s) {
  return (uint64_t)s->n * (uint64_t)s->ldb * bytes_of(s->in);
}
static uint64_t y_bytes(const cuda_splt_shape *s) {
  return (uint64_t)s->n * (uint64_t)s->ldd * bytes_of(s->out);
}

static int32_t queue(const void *arg, int *out_refused, bs_error *err) {
  const trial *t = arg;
  const int status = cuda_splt_multiply(t->product, t->shape, &t->operands, t->stream);
  *out_refused = cuda_splt_refuses(status);
  return *out_refused ? BS_OK : cuda_splt_check(t->product->splt, status, "cusparseLtMatmul", err);
}

/* A plan by this algorithm, where there is one and it fits: *out_plan 1. */
static int32_t try_plan(cuda_splt_product *p, const cuda_splt_shape *s, int32_t id, uint64_t *out_workspace,
                        int *out_plan, bs_error *err) {
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  const int32_t rc = cuda_splt_product_plan(p, id, out_workspace, &why);
  *out_plan = rc == BS_OK && (s->workspace == 0 || *out_workspace <= s->workspace);
  if (rc == BS_OK || cuda_splt_refused(&why)) return BS_OK;
  if (err != NULL) *err = why;
  return rc;
}

/* The algorithm's time, with a separate workspace. */
static int32_t time_one(cuda_stage *st, trial *t, uint64_t workspace, float *out_ms, bs_error *err) {
  const bs_exec *exec = st->exec;
  t->operands.workspace = workspace > 0 ? exec->alloc(exec->ctx, workspace) : NULL;
  if (workspace > 0 && t->operands.workspace == NULL) return BS_OK; /* not this one */
  int32_t rc = cuda_stage_time(st, queue, t, out_ms, err);
  if (workspace == 0) return rc;
  const int32_t waited = cuda_wait(st->device, t->stream, rc == BS_OK ? err : NULL);
  exec->free(exec->ctx, t->operands.workspace);
  return rc == BS_OK ? waited : rc;
}

static int32_t time_all(const bs_exec *exec, cuda_splt_product *p, const cuda_splt_shape *s,
                        const void *weight, int32_t count, cuda_splt_choice *choice, bs_error *err) {
  const cuda_device *device = exec->device;
  cuda_stage st;
  trial t = {.product = p, .shape = s, .operands = {.weight = weight}, .stream = device->stream};
  void *x = NULL;
  float best = -1.0f;
  int32_t rc = cuda_stage_begin(&st, exec, err);
  if (rc == BS_OK) rc = cuda_stage_block(&st, x_bytes(s), &x, err);
  if (rc == BS_OK) rc = cuda_stage_block(&st, y_bytes(s), &t.operands.y, err);
  t.operands.x = x;
  t.operands.residual = t.operands.y;
  for (int32_t id = 0; rc == BS_OK && id < count && id < MOST_ALGORITHMS; id++) {
    float ms = -1.0f;
    uint64_t workspace = 0;
    int planned = 0;
    rc = try_plan(p, s, id, &workspace, &planned, err);
    if (rc == BS_OK && planned) rc = time_one(&st, &t, workspace, &ms, err);
    if (rc != BS_OK || ms < 0.0f || (best >= 0.0f && ms >= best)) continue;
    best = ms;
    choice->id = id;
  }
  cuda_stage_end(&st);
  return rc;
}

/* Not where scratch would take an eighth of the device: layers are to come. */
static int worth_timing(const cuda_splt *splt, const cuda_device *device, const cuda_splt_shape *s) {
  return splt->tune && !s->fixed && x_bytes(s) + y_bytes(s) <= device->memory / 8;
}

/* Without scratch memory the library's own choice is used. */
static int32_t fastest(const bs_exec *exec, cuda_splt_product *p, const cuda_splt_shape *s,
                       const void *weight, cuda_splt_choice *choice, bs_error *err) {
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  int32_t count = 0;
  int32_t rc = cuda_splt_check(
      p->splt,
      p->splt->call.algorithm_get(p->handle, &p->algorithm, SPLT_CONFIG_MAX_ID, &count, sizeof count),
      "cusparseLtMatmulAlgGetAttribute", err);
  if (rc != BS_OK || count < 2) return rc;
  rc = time_all(exec, p, s, weight, count, choice, &why);
  if (rc == BS_OK || rc == BS_NO_MEMORY) return BS_OK;
  if (err != NULL) *err = why;
  return rc;
}

/* The number of the library's own choice is recorded, so that one plan can follow another. */
static int32_t choose(const bs_exec *exec, cuda_splt_product *p, const cuda_splt_shape *s, const void *weight,
                      cuda_splt_choice *choice, bs_error *err) {
  int32_t rc = cuda_splt_check(
      p->splt,
      p->splt->call.algorithm_get(p->handle, &p->algorithm, SPLT_CONFIG_ID, &choice->id, sizeof choice->id),
      "cusparseLtMatmulAlgGetAttribute", err);
  if (rc == BS_OK && worth_timing(p->splt, exec->device, s)) rc = fastest(exec, p, s, weight, choice, err);
  if (rc == BS_OK) rc = cuda_splt_product_plan(p, choice->id, &choice->workspace, err);
  if (rc != BS_OK) return rc;
  return s->workspace != 0 && choice->workspace > s->workspace ? too_large(s, choice->workspace, err) : BS_OK;
}

/* ---- the choice ------------------------------------------------------------------------------- */

int32_t cuda_splt_choose(const bs_exec *exec, cuda_splt_product *p, const cuda_splt_shape *s,
                         const void *weight, uint64_t *out_workspace, bs_error *err) {
  const cuda_device *device = exec->device;
  cuda_splt *splt = device->state->splt;
  cuda_splt_choice choice;
  memset(&choice, 0, sizeof choice);
  choice.shape = *s;
  choice.capability = device->capability;
  choice.multiprocessors = device->multiprocessors;
  pthread_mutex_lock(&splt->lock);
  const cuda_splt_choice *known = find(splt, &choice);
  int32_t rc = BS_OK;
  if (known != NULL) {
    splt->hits++;
    rc = cuda_splt_product_plan(p, known->id, &choice.workspace, err);
  } else {
    rc = choose(exec, p, s, weight, &choice, err);
    if (rc == BS_OK) keep(splt, &choice);
  }
  pthread_mutex_unlock(&splt->lock);
  *out_workspace = choice.workspace;
  return rc;
}
