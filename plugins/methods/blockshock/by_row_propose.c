/* SPDX-License-Identifier: MIT
 *
 * by_row_propose.c - what a layer of 2:4 values takes, without building it: the host counts the same.
 */
#include <inttypes.h>

#include "by_row.h"

/* Relative error of dropping a half of weights of equal variance (of normal ones where the mask looks at
 * them): the mask's own half keeps the energy e^2 short of 1, its complement the rest. */
static double error_alone(const by_row_shape *s) {
  double kept = 0.5; /* of the energy, by the mask's half */
  if (s->mask.kind == BS_MASK_MAGNITUDE) kept = 0.867;
  if (s->mask.kind == BS_MASK_TRANSPOSABLE) kept = 0.822;
  const double lost = s->half == 0 ? 1.0 - kept : kept;
  return __builtin_sqrt(lost);
}

static uint32_t ranks_of(const by_row_shape *s, uint32_t ranks) {
  return ranks < s->base.world ? ranks : 0;
}

static void claim(bs_proposal *p, uint32_t kind, uint32_t ranks, uint64_t payload) {
  p->coll_kind[p->n_collectives] = kind;
  p->coll_ranks[p->n_collectives] = ranks;
  p->coll_payload[p->n_collectives] = payload;
  p->n_collectives++;
}

static void claim_backward(bs_proposal *p, uint32_t kind, uint32_t ranks, uint64_t payload) {
  p->backward_kind[p->n_backward] = kind;
  p->backward_ranks[p->n_backward] = ranks;
  p->backward_payload[p->n_backward] = payload;
  p->n_backward++;
}

static void propose_forward(const by_row_shape *s, bs_proposal *p) {
  const tp_shape *b = &s->base;
  const uint64_t B = (uint64_t)b->B, rows = (uint64_t)b->row_count, kept = (uint64_t)b->k_own;
  p->flops = 2 * B * rows * (b->input == TP_X_ZERO ? 1 : kept);
  /* Positions are two bits a value. */
  p->weight_bytes = rows * (kept * BS_DTYPE_BYTES(b->w_dtype) + (kept + 3) / 4);
  if (b->own_partial) p->workspace_bytes += B * rows * BS_DTYPE_BYTES(b->reduce_dtype);
  if (b->own_sums) p->workspace_bytes += B * (uint64_t)s->z_cols * BS_DTYPE_BYTES(b->reduce_dtype);
  if (b->keeps) p->workspace_bytes += B * (uint64_t)s->z_cols * BS_DTYPE_BYTES(b->product_dtype);
  if (b->input == TP_X_ZERO) p->workspace_bytes += B * BS_DTYPE_BYTES(b->x_dtype);
  /* Positions that no source tells any more once the layer is built (tp_kept.c). */
  if (b->input != TP_X_ZERO) p->workspace_bytes += tp_kept_bytes(s->mask.kind, b->row_count, s->run.count);
  if (b->wire == BS_I8) {
    p->workspace_bytes += tp_quantise_bytes(b);
    tp_quantise_propose(b, p);
  } else if (s->y.sum != BS_COLL_COUNT_) {
    claim(p, s->y.sum, ranks_of(s, s->y.sum_ranks),
          B * (uint64_t)s->y.sum_cols * BS_DTYPE_BYTES(b->product_dtype));
  }
  if (s->y.gather_ranks > 0)
    claim(p, BS_COLL_ALL_GATHER, ranks_of(s, s->y.gather_ranks),
          B * (uint64_t)s->y.cols * BS_DTYPE_BYTES(b->y_dtype));
}

/* The relative error of the communication, for the number of ranks that sum. */
static double wire_error(const by_row_shape *s, const bs_layer_spec *spec) {
  tp_shape summed = s->base;
  summed.coll = s->y.sum;
  summed.world = s->y.sum_ranks;
  return s->y.sum != BS_COLL_COUNT_ ? tp_wire_error(spec, &summed) : 0.0;
}

static void propose_backward(const by_row_shape *s, const bs_layer_spec *spec, bs_proposal *p) {
  const tp_shape *b = &s->base;
  const uint64_t B = (uint64_t)b->B, rows = (uint64_t)b->row_count, kept = (uint64_t)b->k_own;
  p->backward_flops = 2 * B * rows * (2 * kept + spec->has_bias);
  if (s->dy_ranks > 0) {
    const uint64_t bytes = B * rows * BS_DTYPE_BYTES(b->y_dtype);
    claim_backward(p, BS_COLL_ALL_GATHER, ranks_of(s, s->dy_ranks), bytes);
    p->workspace_bytes += bytes;
  }
  if (spec->activation != BS_ACT_NONE)
    p->workspace_bytes += B * (uint64_t)s->z_cols * BS_DTYPE_BYTES(b->y_dtype);
  if (s->own_dx) p->workspace_bytes += B * (uint64_t)s->dx_cols * BS_DTYPE_BYTES(s->dx_dtype);
  if (spec->has_bias && b->row_count > 0) p->workspace_bytes += B * BS_DTYPE_BYTES(s->wide);
  if (s->dx.sum != BS_COLL_COUNT_)
    claim_backward(p, s->dx.sum, ranks_of(s, s->dx.sum_ranks),
                   B * (uint64_t)s->dx.sum_cols * BS_DTYPE_BYTES(s->dx_dtype));
  if (s->dx.gather_ranks > 0)
    claim_backward(p, BS_COLL_ALL_GATHER, ranks_of(s, s->dx.gather_ranks),
                   B * (uint64_t)s->dx.cols * BS_DTYPE_BYTES(b->x_dtype));
}

static void describe(const by_row_shape *s, char *out, size_t size) {
  char part[64] = "", sum[40] = "", gather[32] = "";
  if (s->slices > 1 && s->slice_rows)
    snprintf(part, sizeof part, ", rows %" PRId64 "..+%" PRId64, s->base.row_begin, s->base.row_count);
  else if (s->slices > 1)
    snprintf(part, sizeof part, ", columns %" PRId64 "..+%" PRId64, s->run.begin, s->run.count);
  if (s->y.sum != BS_COLL_COUNT_)
    snprintf(sum, sizeof sum, ", %s over %u%s",
             s->y.sum == BS_COLL_ALL_REDUCE ? "all_reduce" : "reduce_scatter", s->y.sum_ranks,
             s->base.wire == BS_I8 ? " in int8 steps" : "");
  if (s->y.gather_ranks > 0) snprintf(gather, sizeof gather, ", all_gather over %u", s->y.gather_ranks);
  snprintf(out, size, "%s %u of %.40s as 2:4 values%s%s%s", s->halves == 1 ? "half alone: half" : "half",
           s->half, s->mask.name != NULL ? s->mask.name : "the mask", part, sum, gather);
}

int32_t by_row_propose(const tp_state *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world,
                       bs_proposal *out_proposal, bs_error *err) {
  by_row_shape s;
  const int32_t rc = by_row_shape_make(state, spec, rank, world, &s, err);
  if (rc != BS_OK) return rc;
  bs_proposal p;
  memset(&p, 0, sizeof p);
  p.struct_size = (uint32_t)sizeof p;
  p.x_placement = spec->x_placement;
  p.y_placement = spec->y_placement;
  p.repro = tp_repro_promised(spec, &s.base);
  p.split = s.y.sum_ranks > 1 ? BS_SPLIT_K : s.slice_rows ? BS_SPLIT_N : BS_SPLIT_NONE;
  propose_forward(&s, &p);
  p.wire_error = wire_error(&s, spec);
  if (spec->flags & BS_LAYER_BACKWARD) propose_backward(&s, spec, &p);
  p.workspace_bytes += tp_training_bytes(state->traits, spec, &s.base, s.wide);
  if (s.halves == 1) p.prune_error = error_alone(&s);
  describe(&s, p.text, sizeof p.text);
  bs_out_copy(out_proposal, &p, sizeof p);
  return BS_OK;
}
