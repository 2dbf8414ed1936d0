/* SPDX-License-Identifier: MIT
 * frame.h - inside of the lowering's frame: what its files share. Rules include lower.h alone. */
#ifndef BS_GRAPH_LOWER_FRAME_H
#define BS_GRAPH_LOWER_FRAME_H
#include "graph/lower/lower.h"

/* A node that lower_call made: its inputs are graph values, marked so, and its outputs go to outs. */
#define LOWER_DIRECT 0x80000000u
typedef struct lower_frame {
  const gmodel_node *node;
  uint32_t *outs;
  struct lower_frame *up;
} lower_frame;

/* A write to a part of a TEMP: when all parts of one are computed, it is a constant (help_op.c). */
typedef struct lower_part {
  uint32_t node, root;
  uint32_t computed;
} lower_part;

struct lower_ctx {
  const gmodel *model;
  graph *g;
  const lower_options *options;
  uint32_t *value_of; /* of each model value; GNONE: not lowered */
  int64_t *sizes;     /* of each symbol */
  lower_frame *frame; /* of lower_call, the innermost */
  lower_part *parts;
  uint32_t n_parts, cap_parts;
  uint32_t origin; /* of the node that is lowered */
  uint32_t depth;  /* of lower_call and lower_block */
  uint32_t rounds; /* of lower_block: loops are unrolled */
  uint32_t ports;  /* 1: outputs are made: a copy of a constant is a node */
  uint64_t issues;
  uint64_t fold_limit; /* bytes that computed constants may take */
};

/* help_op.c: constants out of TEMPs whose parts were all computed since `from`. */
void lower_settle_parts(lower_ctx *c, uint32_t from);
/* frame.c */
int32_t lower_node(lower_ctx *c, const gmodel_node *node, bs_error *err);
/* help_view.c: the same value with `rank` dims, ones in front, and 1 where it has stride 0: an argument of
 * map, contract and attention, which broadcast dims of 1. */
int32_t lower_argument(lower_ctx *c, uint32_t value, uint32_t rank, uint32_t fixed, uint32_t *out_value,
                       bs_error *err);
/* A view like that, an old one where there is one. */
int32_t lower_view_again(lower_ctx *c, uint32_t root, uint32_t rank, const int64_t *dims,
                         const int64_t *strides, int64_t offset, uint32_t *out_value, bs_error *err);
#endif
