/* SPDX-License-Identifier: MIT
 *
 * by_row.h - blockshock over masks that keep different columns in each row (random_2of4, magnitude,
 * transposable), and over fixed ones with kernel=sparse24. Each rank holds the 2:4 values of one half of the
 * mask with their positions, and multiplies by the op matmul24. More than two ranks share the halves in
 * slices of columns or of rows of W; with a single half the others' weights are left out. */
#ifndef BS_METHODS_BLOCKSHOCK_BY_ROW_H
#define BS_METHODS_BLOCKSHOCK_BY_ROW_H

#include "../common/tp_kept.h"

/* The computation of a layer. */
enum by_row_path {
  BY_ROW_FIXED = 0, /* the mask is a K-partition: as all methods that split K (common/) */
  BY_ROW_DENSE = 1, /* both halves on one rank, which is the dense layer */
  BY_ROW_HALVES = 2 /* 2:4 values */
};

/* Sums of terms within a group of ranks, then blocks gathered over another; either may be missing. */
typedef struct by_row_way {
  uint32_t sum;          /* BS_COLL_ALL_REDUCE, BS_COLL_REDUCE_SCATTER or BS_COLL_COUNT_ */
  uint32_t sum_ranks;    /* of its group: the world or a pair of halves */
  uint32_t gather_ranks; /* 0: no gather; else the ranks that hold this half, or the world */
  uint32_t reserved;
  int64_t sum_cols; /* of the summed block */
  int64_t cols;     /* of the whole */
} by_row_way;

/* Facts that follow from spec, rank and world. `base` has the sizes and dtypes of all methods; its k_own and
 * its k_mul are the length of a packed row. */
typedef struct by_row_shape {
  tp_shape base;
  bs_mask mask;
  uint32_t halves; /* 2; 1: one alone */
  uint32_t half;   /* this rank's: 0 the mask's, 1 its complement's */
  uint32_t slices, slice;
  uint32_t slice_rows; /* 1: slices are rows of W (slices=column: columns of Y) */
  uint32_t reserved;
  bs_partition run; /* columns under this rank's positions: whole groups of four */
  by_row_way y, dx;
  uint32_t dx_dtype; /* that matmul24_dx writes */
  uint32_t own_dx;   /* 1: to scratch */
  int64_t dx_cols;   /* of the product dY W */
  uint32_t dy_ranks; /* dY is gathered over so many: 0, a pair, or the world */
  uint32_t wide;     /* dtype of dW and db */
  int64_t dy_cols;   /* of the caller's dY */
  int64_t z_cols;    /* outputs of which this rank activates the sums */
} by_row_shape;

/* A layer's state in addition to that of all methods. Its backward pass is in tp_layer.gradient: plans dx,
 * dw, db, sum_dx and whole_dy, scratch product, dy and ones. Its steps are in tp_layer.training: the
 * optimiser's state is as long as the kept values, `fused` is matmul24_update. */
typedef struct by_row {
  by_row_shape shape;
  tp_kept positions;
  bs_group *pair;   /* both halves of the slice; NULL: the world, or not needed */
  bs_group *peers;  /* this half of all slices */
  uint64_t *counts; /* of blocks, while plans are made */
  bs_coll_plan *sum_y, *gather_y, *gather_dx;
} by_row;

/* by_row_shape.c */
int32_t by_row_choose(const bs_layer_spec *spec, uint32_t world, uint32_t *out_path, bs_error *err);
int32_t by_row_shape_make(const tp_state *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world,
                          by_row_shape *out_shape, bs_error *err);
/* The rows of W of a slice: the even shares of its ranks side by side. */
void by_row_rows(const by_row_shape *shape, uint32_t slice, int64_t *out_begin, int64_t *out_count);
/* The columns of a slice. */
void by_row_columns(const by_row_shape *shape, uint32_t slice, int64_t *out_begin, int64_t *out_count);

/* by_row_propose.c */
int32_t by_row_propose(const tp_state *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world,
                       bs_proposal *out_proposal, bs_error *err);

/* by_row_build.c */
int32_t by_row_build(const tp_state *state, const bs_rank_api *api, bs_rank *rank, const bs_layer_spec *spec,
                     const bs_source *weights, const bs_source *bias, void **out_layer, bs_error *err);
void by_row_layer_free(tp_layer *layer);
/* by_row_exchange.c */
int32_t by_row_groups(tp_layer *layer, int backward, bs_error *err);
/* The way as plans: terms of dtype `in` sum to `summed`, blocks of `out` are gathered. */
int32_t by_row_exchange_make(tp_layer *layer, const by_row_way *way, uint32_t in, uint32_t summed,
                             uint32_t out, const char *site, bs_coll_plan **out_sum,
                             bs_coll_plan **out_gather, bs_error *err);
/* The gather of a split dY over `nranks`. */
int32_t by_row_gather_dy(tp_layer *layer, uint32_t nranks, bs_error *err);
int32_t by_row_exchange_run(tp_layer *layer, bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out,
                            bs_stream *stream, bs_error *err);

/* by_row_gradient.c */
int32_t by_row_gradient_build(tp_layer *layer, const bs_layer_spec *spec, bs_error *err);
int32_t by_row_backward(tp_layer *layer, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx,
                        bs_tensor *dw, bs_tensor *db, bs_stream *stream, bs_error *err);
/* The steps: those of all methods, over the kept values. */
int32_t by_row_training_build(tp_layer *layer, const bs_layer_spec *spec, const bs_source *bias,
                              bs_error *err);
/* by_row_forward.c */
int32_t by_row_forward(tp_layer *layer, const bs_tensor *x, bs_tensor *y, bs_stream *stream, bs_error *err);

static inline by_row *by_row_of(const tp_layer *layer) {
  return layer->by_row;
}

#endif
