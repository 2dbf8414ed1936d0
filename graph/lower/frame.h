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

/* A branch that is lowered although it may not be taken (branch.c). */
typedef struct lower_guard {
  uint32_t condition; /* one bool */
  int when;           /* the condition's value that takes the branch */
  uint32_t holds;     /* one bool: this branch and those around it are taken; GNONE: not made yet */
  struct lower_guard *up;
} lower_guard;

/* What the lowering knows of a quantised constant besides its gquant, or (codes.x GNONE) of a constant that
 * was cast. */
typedef struct lower_quant {
  uint32_t value;    /* its root */
  uint32_t from;     /* the constant that was cast; GNONE */
  uint32_t wide;     /* its floats [N,K]; GNONE: not made yet */
  uint32_t dtype;    /* of its floats */
  int turned;        /* the rows are the columns of codes.x */
  lower_codes codes; /* x GNONE: read by gquant */
} lower_quant;

/* counted.h: rows whose number depends on values. */
typedef struct lower_count lower_count;
typedef struct lower_mark lower_mark;

/* fixed.c: the shapes of a model allow `n` rows alone that are not 0 in the model value `mask`. */
typedef struct lower_fixed {
  uint32_t mask;
  int64_t n;
  int known;     /* it is used in this lowering */
  uint32_t rows; /* how many there are in the run; GNONE: no value depends on it yet */
} lower_fixed;
typedef struct lower_fixes {
  lower_fixed *list;
  uint32_t n, cap;
} lower_fixes;

/* A sequence, or a tensor of more than six dims (deep): dims[order[i]] is its dim i, and `source` has the
 * elements in the order of `dims`. */
typedef struct lower_compound {
  int is_sequence;
  uint32_t *items, n; /* of a sequence */
  uint32_t source, rank;
  int64_t dims[LOWER_DEEP_DIMS];
  uint32_t order[LOWER_DEEP_DIMS];
} lower_compound;

struct lower_ctx {
  const gmodel *model;
  graph *g;
  const lower_options *options;
  uint32_t *value_of; /* of each model value; GNONE: not lowered */
  int64_t *sizes;     /* of each symbol */
  /* 1 for each model value that may depend on a size that was not given (lower_options.missing). */
  unsigned char *guessed;
  lower_frame *frame; /* of lower_call, the innermost */
  lower_guard *guard; /* the innermost; NULL: all that is lowered counts */
  lower_mark *marks;  /* of each model value */
  lower_count *counts;
  uint32_t n_counts, cap_counts;
  lower_fixes *fixes;
  uint32_t *checks; /* i64, 0: the run fails. Numbers of rows that shapes ask for; fixed.c */
  uint32_t n_checks, cap_checks;
  lower_part *parts;
  uint32_t n_parts, cap_parts;
  lower_quant *quants;
  uint32_t n_quants, cap_quants;
  lower_compound *compounds;
  uint32_t n_compounds, cap_compounds;
  int takes_quant;        /* the rule that runs takes quantised constants */
  uint32_t origin;        /* of the node that is lowered */
  uint32_t depth;         /* of lower_call and lower_block */
  uint32_t rounds;        /* of lower_block: loops are unrolled */
  unsigned char *follows; /* of graph values: follow.c */
  uint32_t n_follows, cap_follows;
  uint32_t keeps; /* 1: what is computed is kept by folder.keep */
  uint32_t ports; /* 1: outputs are made: a copy of a constant is a node */
  uint64_t issues;
  uint64_t not_judged; /* nodes */
  uint64_t fold_limit; /* bytes that computed constants may take */
};

/* help_quant.c: a constant of the model that is quantised in its file. */
int32_t lower_quant_given(lower_ctx *c, uint32_t model_value, uint32_t *out_value, bs_error *err);
/* Before a rule runs: whether it takes quantised constants; the floats of those that it does not take. */
int32_t lower_quant_inputs(lower_ctx *c, const gmodel_node *node, bs_error *err);
/* 1: the rule takes constants of 4 bits, with which nothing computes. */
int lower_takes_nibbles(const gmodel_node *node, uint32_t dtype);
uint32_t lower_known_wide(const lower_ctx *c, uint32_t value); /* the floats; lower_quant_inputs made them */
lower_quant *lower_quant_find(const lower_ctx *c, uint32_t root);
/* quant_read.c: fills a form and its read for codes, or for floats [N,K] that are rounded by a scheme.
 * *out_ok 0: no kernel op has this form. */
int32_t lower_read_codes(lower_ctx *c, const lower_codes *codes, int turned, gquant *out_quant, int *out_ok,
                         bs_error *err);
int32_t lower_read_blocks(lower_ctx *c, const lower_blocks *blocks, gquant *out_quant, bs_error *err);
int32_t lower_read_rounded(lower_ctx *c, uint32_t weight, const bs_quant *form, gquant *out_quant,
                           bs_error *err);
/* help_op.c: constants out of TEMPs whose parts were all computed since `from`. */
void lower_settle_parts(lower_ctx *c, uint32_t from);
/* compound.c: NULL: a value of the graph, or GNONE. The next compound may move it. */
const lower_compound *lower_compound_of(const lower_ctx *c, uint32_t value);
/* Before a rule runs: refuses one as an input that the rule does not take. *out_by_element 1: the operator
 * computes element by element, and lower_by_element lowers it over fewer dims. */
int32_t lower_compound_inputs(lower_ctx *c, const gmodel_node *node, int *out_by_element, bs_error *err);
int32_t lower_by_element(lower_ctx *c, const gmodel_node *node, bs_error *err);
void lower_compounds_free(lower_ctx *c);
/* branch.c: in a branch that may not be taken, an index that is 0 when it is not taken. kind as take's and
 * put's; first: the dim of data that the indices, or the first of a tuple, count. */
int32_t lower_guard_index(lower_ctx *c, uint32_t kind, uint32_t data, uint32_t first, uint32_t *io_index,
                          bs_error *err);
/* follow.c: behind a node's rule: whether its results follow the sizes, and what of its numbers is kept. */
int32_t lower_follow(lower_ctx *c, const gmodel_node *node, bs_error *err);
/* frame.c */
int32_t lower_once(const gmodel *model, const lower_options *options, lower_fixes *fixes, graph **out_graph,
                   bs_error *err);
/* *out_ready 0: an input comes from a node that is not supported. */
int32_t lower_ready(lower_ctx *c, const gmodel_node *node, int *out_ready, bs_error *err);
int32_t lower_node(lower_ctx *c, const gmodel_node *node, bs_error *err);
/* help_view.c: the same value with `rank` dims, ones in front, and 1 where it has stride 0: an argument of
 * map, contract and attention, which broadcast dims of 1. */
int32_t lower_argument(lower_ctx *c, uint32_t value, uint32_t rank, uint32_t fixed, uint32_t *out_value,
                       bs_error *err);
/* A view like that, an old one where there is one. */
int32_t lower_view_again(lower_ctx *c, uint32_t root, uint32_t rank, const int64_t *dims,
                         const int64_t *strides, int64_t offset, uint32_t *out_value, bs_error *err);
#endif
