/* SPDX-License-Identifier: MIT
 * choose.c - see choose.h. Sums are never split: how cuSPARSELt adds parts is not told. */
#include "choose.h"

#include <stdlib.h>

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

static int32_t choose(cuda_splt_product *p, const cuda_splt_shape *s, cuda_splt_choice *choice,
                      bs_error *err) {
  choice->id = -1;
  const int32_t rc = cuda_splt_product_plan(p, -1, &choice->workspace, err);
  if (rc != BS_OK) return rc;
  return s->workspace != 0 && choice->workspace > s->workspace ? too_large(s, choice->workspace, err) : BS_OK;
}

int32_t cuda_splt_choose(const bs_exec *exec, cuda_splt_product *p, const cuda_splt_shape *s,
                         const void *weight, uint64_t *out_workspace, bs_error *err) {
  const cuda_device *device = exec->device;
  cuda_splt *splt = device->state->splt;
  cuda_splt_choice choice;
  (void)weight;
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
    rc = choose(p, s, &choice, err);
    if (rc == BS_OK) keep(splt, &choice);
  }
  pthread_mutex_unlock(&splt->lock);
  *out_workspace = choice.workspace;
  return rc;
}
