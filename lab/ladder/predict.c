/* SPDX-License-Identifier: MIT
 * predict.c - predicts the time of one pass of each rung, from the machine's constants and its method's
 * proposal. Called by ladder.c. */
#include <string.h>

#include "core/base/error.h"
#include "lab/ladder/ladder.h"
#include "lab/measure/constants.h"
#include "lab/measure/kernel.h"

static void add_parts(bs_parts *sum, const bs_parts *p) {
  sum->compute += p->compute;
  sum->memory += p->memory;
  sum->wire += p->wire;
  sum->host += p->host;
  sum->total += p->total;
}

/* Predicts one part of the pass, and adds it. */
static void add_part(const bs_ladder *l, const bs_rung *r, const bs_kernel *k, const bs_proposal *proposal,
                     bs_predicted *sum) {
  bs_predicted p;
  bs_predict_rank(&l->machine, k, &r->c.spec, proposal, r->c.world_size, r->c.threads_per_rank, &p);
  add_parts(&sum->bound, &p.bound);
  sum->least += p.least;
  if (p.has_kernel) add_parts(&sum->kernel, &p.kernel);
  sum->has_kernel |= p.has_kernel;
}

/* The number of weights, from the bytes of their values and, for 2:4, positions. */
static uint64_t weights_of(const bs_rung *r, const bs_proposal *p) {
  const uint64_t bits = 8u * BS_DTYPE_BYTES(r->c.spec.w_dtype) + (r->kernel.of24 ? 2u : 0u);
  return p->weight_bytes * 8u / bits;
}

/* The backward pass in the terms of a forward's formulas: its products, W read for dX, dW written in fp32. */
static bs_proposal backward_of(const bs_proposal *p, uint64_t weights) {
  bs_proposal b = *p;
  b.flops = p->backward_flops;
  b.weight_bytes = p->weight_bytes + 4 * weights;
  b.n_collectives = p->n_backward;
  memcpy(b.coll_kind, p->backward_kind, sizeof b.coll_kind);
  memcpy(b.coll_payload, p->backward_payload, sizeof b.coll_payload);
  memcpy(b.coll_ranks, p->backward_ranks, sizeof b.coll_ranks);
  b.chunks = 0;       /* only a forward is divided, */
  b.wire_error = 0.0; /* and only its sums take int8 steps */
  return b;
}

/* The update alone: W read and written (but not its positions); for AdamW also dW and two moments in fp32. */
static bs_proposal step_of(const bs_proposal *p, uint32_t pass, uint64_t weights, uint32_t size) {
  bs_proposal s = *p;
  s.flops = 0;
  s.n_collectives = 0;
  s.chunks = 0;
  s.wire_error = 0.0;
  s.weight_bytes = 2 * size * weights + (pass == BS_ARM_ADAMW ? 5 * 4 * weights : 0);
  return s;
}

/* The products of dX and dW run at rates of their own. */
static bs_kernel backward_rates(const bs_kernel *k) {
  bs_kernel b = *k;
  const double times = k->backward > 0.0 ? k->backward : 1.0;
  b.flops_core /= times;
  b.flops_all /= times;
  b.flops_team /= times;
  return b;
}

static int32_t predict_rank(const bs_ladder *l, const bs_rung *r, const bs_kernel *k, uint32_t rank,
                            bs_predicted *sum, bs_error *err) {
  bs_proposal p;
  const bs_case *c = &r->c;
  const int32_t rc = bs_case_propose(c, rank, &p, err);
  if (rc != BS_OK) return rc;
  const uint64_t weights = weights_of(r, &p);
  bs_kernel back;
  if (k != NULL) back = backward_rates(k);
  memset(sum, 0, sizeof *sum);
  if (l->pass != BS_ARM_BACKWARD) add_part(l, r, k, &p, sum);
  if (l->pass != BS_ARM_FORWARD) {
    const bs_proposal b = backward_of(&p, l->pass == BS_ARM_SGD ? 0 : weights);
    add_part(l, r, k != NULL ? &back : NULL, &b, sum);
  }
  if (l->pass == BS_ARM_SGD || l->pass == BS_ARM_ADAMW) {
    const bs_proposal s = step_of(&p, l->pass, weights, BS_DTYPE_BYTES(c->spec.w_dtype));
    add_part(l, r, k, &s, sum);
  }
  return BS_OK;
}

/* Rates of the implementation that serves a rung: an earlier rung's, stored, or measured now. Measuring takes
 * seconds, and is only done for requested rungs. */
static const bs_kernel *kernel_of(bs_ladder *l, uint32_t i, const bs_ladder_options *o, double footprint) {
  bs_rung *r = &l->rungs[i];
  bs_error why = BS_ERROR_INIT;
  if (bs_kernel_identify(&r->c, &r->kernel, &why) != BS_OK) return NULL;
  for (uint32_t j = 0; j < i; j++) {
    const bs_kernel *k = &l->rungs[j].kernel;
    if (k->source == NULL || !bs_kernel_same(k, &r->kernel)) continue;
    r->kernel = *k;
    return &r->kernel;
  }
  const uint32_t dtype = r->c.spec.w_dtype;
  const bs_kernel *k = &r->kernel;
  if (!bs_constants_kernel(o->constants, &r->c, footprint, k, &r->kernel) &&
      (r->unasked || bs_kernel_measure(&r->c, dtype, footprint, o->seconds, &r->kernel, &why) != BS_OK)) {
    r->kernel.source = NULL;
    return NULL;
  }
  if (l->pass != BS_ARM_FORWARD && !(k->backward > 0.0)) bs_kernel_measure_backward(&r->c, dtype, &r->kernel);
  return k;
}

static int32_t predict_rung(bs_ladder *l, uint32_t i, const bs_ladder_options *o, bs_error *err) {
  bs_rung *r = &l->rungs[i];
  double footprint = 0.0;
  int32_t rc = bs_predict_footprint(&r->c, &footprint, err);
  const bs_kernel *k = rc == BS_OK ? kernel_of(l, i, o, footprint) : NULL;
  for (uint32_t rank = 0; rc == BS_OK && rank < r->c.world_size; rank++) {
    bs_predicted p;
    rc = predict_rank(l, r, k, rank, &p, err);
    if (rc != BS_OK) return rc;
    if (rank == 0 || p.bound.total > r->predicted.bound.total) r->predicted = p;
  }
  if (!bs_predict_holds(&r->c)) r->predicted.least = 0.0;
  r->predicted.limit = bs_parts_limit(&r->predicted.bound);
  r->is_predicted = rc == BS_OK;
  return rc;
}

const bs_rung *bs_ladder_widest(const bs_ladder *l) {
  const bs_rung *most = NULL;
  for (uint32_t i = 0; i < l->n; i++) {
    const bs_rung *r = &l->rungs[i];
    if (r->refused.code == BS_OK && (most == NULL || r->c.world_size > most->c.world_size)) most = r;
  }
  return most;
}

/* Gets the machine's constants. The all_reduce times are those of the rung with the most ranks. */
static int32_t know_machine(bs_ladder *l, const bs_ladder_options *o, bs_error *err) {
  const bs_rung *like = bs_ladder_widest(l);
  double footprint = 0.0;
  int32_t rc = bs_predict_footprint(&like->c, &footprint, err);
  if (rc != BS_OK || bs_constants_find(o->constants, &like->c, footprint, &l->machine)) return rc;
  if (o->progress) o->progress(o->progress_user, "machine constants", 0, 0);
  return bs_machine_measure(&like->c, footprint, &l->machine, err);
}

int32_t bs_ladder_predict(bs_ladder *l, const bs_ladder_options *o, bs_error *err) {
  int32_t rc = know_machine(l, o, err);
  for (uint32_t i = 0; rc == BS_OK && i < l->n; i++) {
    if (o->progress) o->progress(o->progress_user, "predict", i + 1, l->n);
    if (l->rungs[i].refused.code == BS_OK) rc = predict_rung(l, i, o, err);
  }
  return rc;
}
