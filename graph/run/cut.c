/* SPDX-License-Identifier: MIT
 * cut.c - on a simulated machine attention takes as many keys of the cache as a run has, so that its time is
 * that of these keys and not of the whole cache. Elsewhere kv_len says so, and no time is counted. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/world/executor.h"
#include "graph/run/run.h"

/* K and V of one step. */
typedef struct gcut {
  uint32_t step;
  bs_tensor of[2];
} gcut;

/* 1: attention over states whose filled part a length gives, and no mask, whose keys would be cut too. */
static int is_cut(const graph *g, const gnode *n) {
  if (n->op != GOP_ATTENTION || n->in[3] != GNONE || n->in[4] == GNONE) return 0;
  for (uint32_t i = 1; i <= 2; i++)
    if (g->values[g->values[n->in[i]].base].kind != GV_STATE) return 0;
  return 1;
}

void gcut_args(gbinding *b) {
  for (uint32_t i = 0; i < b->n_cuts; i++)
    for (uint32_t k = 0; k < 2; k++) b->steps[b->cuts[i].step].args[1 + k] = &b->cuts[i].of[k];
}

int32_t gcut_make(gbinding *b, bs_error *err) {
  uint32_t n = 0;
  if (!b->rank->inside || !bs_rank_clock_is_virtual(b->rank->rank)) return BS_OK;
  for (uint32_t i = 0; i < b->n_steps; i++) n += (uint32_t)is_cut(b->g, &b->g->nodes[b->steps[i].node]);
  b->cuts = calloc(n + 1u, sizeof *b->cuts);
  if (b->cuts == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a binding");
  for (uint32_t i = 0; i < b->n_steps; i++) {
    if (is_cut(b->g, &b->g->nodes[b->steps[i].node])) b->cuts[b->n_cuts++].step = i;
  }
  gcut_args(b);
  return BS_OK;
}

void gcut_set(const gbinding *b, int64_t length) {
  for (uint32_t i = 0; i < b->n_cuts; i++) {
    gcut *cut = &b->cuts[i];
    const gstep *s = &b->steps[cut->step];
    const gnode *n = &b->g->nodes[s->node];
    const int64_t keys = length + s->args[0]->dims[2];
    for (uint32_t k = 0; k < 2; k++) {
      bs_tensor t = b->tensors[n->in[1 + k]];
      if (keys < t.dims[2]) t.dims[2] = keys;
      /* Ranks that follow this one read it meanwhile; then it is what it was. */
      if (memcmp(&t, &cut->of[k], sizeof t) != 0) cut->of[k] = t;
    }
  }
}

bs_tensor *const *gcut_whole(const gbinding *b, const gstep *s, bs_tensor **out_args) {
  const gnode *n = &b->g->nodes[s->node];
  if (b->n_cuts == 0 || !is_cut(b->g, n)) return s->args;
  memcpy(out_args, s->args, s->nargs * sizeof *out_args);
  for (uint32_t k = 1; k <= 2; k++) out_args[k] = &b->tensors[n->in[k]];
  return out_args;
}
