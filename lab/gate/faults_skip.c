/* SPDX-License-Identifier: MIT
 * faults_skip.c - decides which faults can be made in a case: a fault that has no effect there proves
 * nothing. */
#include "lab/case/place.h"
#include "lab/gate/faults.h"
#include "lab/gate/faults_mixed.h"

static int by_row(uint32_t kind) {
  return kind == BS_MASK_RANDOM_2OF4 || kind == BS_MASK_MAGNITUDE || kind == BS_MASK_TRANSPOSABLE;
}

uint32_t bs_fault_backward(const bs_proposal *p, uint32_t kind) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->n_backward; ++i) n += p->backward_kind[i] == kind;
  return n;
}

int bs_fault_alone(const bs_case *c) {
  bs_proposal p;
  return bs_case_propose(c, 0, &p, NULL) == BS_OK && p.prune_error > 0.0;
}

/* Needs another mask of the same kind, or a mask that does not depend on the weights. */
static const char *skip_mask(const bs_case *c, int reduces) {
  if (!reduces) return "no ranks whose masks could differ";
  if (!c->spec.mask || (c->spec.mask->kind != BS_MASK_COMPLEMENT && !by_row(c->spec.mask->kind)))
    return "no mask with halves";
  return bs_fault_alone(c) ? "one half alone has no other to differ from" : NULL;
}

const char *bs_fault_skip(uint32_t kind, const bs_case *c, uint32_t split) {
  static const char no_reduction[] = "no reduction in this method at this world size";
  static const char in_steps[] = "the sum is made in int8 steps, by no reduction";
  const int steps = c->spec.reduce_dtype == BS_I8;
  const int reduces = c->world_size > 1 && split == BS_SPLIT_K;
  switch (kind) {
    case BS_FAULT_REDUCED_TWICE: /* a reduce-scatter's result cannot be the input of a second one */
      if (c->spec.y_placement == BS_SPLIT || c->spec.y_placement == BS_SPLIT_TOKENS)
        return "the output is split";
      if (bs_place_leaves(c)) return "the sums are exchanged as they are";
      if (c->spec.y_placement == BS_PARTIAL) return "the output stays partial";
      return steps ? in_steps : reduces ? NULL : no_reduction;
    case BS_FAULT_NO_ALL_REDUCE:
      if (c->spec.y_placement == BS_PARTIAL) return "the output stays partial";
      return reduces ? NULL : no_reduction;
    case BS_FAULT_BIAS_EACH_RANK:
      if (steps) return in_steps;
      if (c->spec.y_placement == BS_PARTIAL) return "the output stays partial";
      return reduces ? NULL : no_reduction;
    case BS_FAULT_RANK_DIVERGED: /* no other rank holds the same features to differ from */
      if (c->spec.y_placement != BS_REPLICATED) return "the output is split";
      if (bs_place_unordered(c)) return "ranks may differ (R0)";
      return c->world_size > 1 ? NULL : "one rank";
    case BS_FAULT_ACTIVATION_EARLY:
    case BS_FAULT_ACTIVATION_LOST:
      if (c->spec.activation == BS_ACT_NONE) return "no activation";
      if (kind == BS_FAULT_ACTIVATION_EARLY && steps) return in_steps;
      return kind == BS_FAULT_ACTIVATION_LOST || reduces ? NULL : no_reduction;
    case BS_FAULT_BIAS_LOST:
      return c->spec.has_bias ? NULL : "no bias";
    case BS_FAULT_OTHER_X:
      return c->world_size > 1 ? NULL : "one rank";
    case BS_FAULT_HALF_FP8: /* such weights have 8 bits already */
      return BS_DTYPE_BYTES(c->spec.w_dtype) > 1 ? NULL : "weights of 8 bits";
    case BS_FAULT_INDEX_SWAPPED:
    case BS_FAULT_WEIGHT_LOST:
      return bs_fault_alone(c) ? "weights may be left out" : NULL;
    case BS_FAULT_INDEX_2OF4: /* the weights in the other columns of a fixed mask are not changed */
      if (bs_fault_alone(c)) return "weights may be left out";
      return c->spec.mask && by_row(c->spec.mask->kind) ? NULL : "no mask that differs by row";
    case BS_FAULT_MASK_CONFUSED:
      return skip_mask(c, reduces);
    case BS_FAULT_SCALE_OTHER:
    case BS_FAULT_SEGMENT_EDGE:
    case BS_FAULT_SEGMENT_SWAPPED:
    case BS_FAULT_SCALE_BLOCK:
      return bs_fault_mixed_skip(kind, c);
    case BS_FAULT_NOT_GATHERED:
    case BS_FAULT_DB_TWICE:
    case BS_FAULT_SLOPE_LOST:
    case BS_FAULT_SLOPE_AT_Y:
      return "a fault of the backward pass";
    default:
      return NULL;
  }
}

const char *bs_fault_skip_backward(uint32_t kind, const bs_case *c, const bs_proposal *p) {
  const int gathers_x = c->spec.x_placement == BS_REPLICATED && bs_fault_backward(p, BS_COLL_ALL_GATHER) > 0;
  switch (kind) {
    case BS_FAULT_NO_ALL_REDUCE:
      if (bs_place_leaves(c) && bs_fault_backward(p, BS_COLL_ALL_TO_ALL) > 0) return NULL;
      return bs_fault_backward(p, BS_COLL_ALL_REDUCE) > 0 ? NULL : "dX is no sum over ranks";
    case BS_FAULT_REDUCED_TWICE:
      return bs_fault_backward(p, BS_COLL_ALL_REDUCE) > 0 ? NULL : "dX is no sum over ranks";
    case BS_FAULT_BIAS_EACH_RANK:
      return "changes outputs, and no gradient from them";
    case BS_FAULT_BIAS_LOST: /* but by the slopes of an activation */
      if (c->spec.activation == BS_ACT_NONE) return "changes outputs, and no gradient from them";
      return c->spec.has_bias ? NULL : "no bias";
    case BS_FAULT_ACTIVATION_EARLY:
    case BS_FAULT_ACTIVATION_LOST:
      return "a fault of the forward pass";
    case BS_FAULT_SLOPE_LOST:
    case BS_FAULT_SLOPE_AT_Y:
      if (c->spec.activation == BS_ACT_NONE) return "no activation";
      return kind == BS_FAULT_SLOPE_AT_Y && c->spec.activation == BS_ACT_RELU
                 ? "relu's slope is the same there"
                 : NULL;
    case BS_FAULT_RANK_DIVERGED:
      if (c->spec.x_placement == BS_SPLIT) return "dX is split";
      return c->world_size > 1 ? NULL : "one rank";
    case BS_FAULT_NOT_GATHERED:
      return gathers_x ? NULL : "dX is not gathered";
    case BS_FAULT_DB_TWICE:
      return c->spec.has_bias ? NULL : "no bias";
    default:
      return bs_fault_skip(kind, c, p->split);
  }
}

/* A proposal does not name the gathered tensor. For a split y it may be only dY. */
int bs_fault_may_miss(uint32_t kind, const bs_case *c, const bs_proposal *p) {
  return kind == BS_FAULT_NOT_GATHERED && c->spec.y_placement == BS_SPLIT &&
         bs_fault_backward(p, BS_COLL_ALL_GATHER) == 1;
}
