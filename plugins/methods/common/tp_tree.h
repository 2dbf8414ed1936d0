/* SPDX-License-Identifier: MIT
 *
 * tp_tree.h - the 8 leaves behind repro=R3 and R4, and their tree: from the sums that a rank has made of its
 * leaves to the whole sum. The order of the additions is the same on 1, 2, 4 and 8 ranks. y is such a sum
 * where K is split (tp_leaf_build.c), dX is one where N is split (tp_leaf_grad.c). */
#ifndef BS_METHODS_TP_TREE_H
#define BS_METHODS_TP_TREE_H

#include "tp.h"

/* How the sums of ranks become the whole sum. */
enum tp_tree_way {
  TP_TREE_HERE = 0,    /* all leaves are here */
  TP_TREE_GATHER = 1,  /* every rank gets the sums of all ranks: two ranks */
  TP_TREE_SCATTER = 2, /* each rank gets the sums of its own columns, and keeps these */
  TP_TREE_TWO = 3 /* SCATTER, and then a gather of the finished columns: as many bytes as an all-reduce */
};

/* Set by the caller, before build. */
typedef struct tp_tree_spec {
  uint32_t way;          /* enum tp_tree_way */
  uint32_t leaves;       /* here: 8, 4, 2 or 1 */
  uint32_t dtype;        /* of the sums */
  uint32_t out_dtype;    /* of what tp_tree_sum writes */
  uint32_t activation;   /* applied to the whole sum */
  uint32_t empty;        /* 1: a leaf here has no columns, and nothing writes its sum */
  int64_t width;         /* columns of a sum */
  int64_t out_stride;    /* of the rows that tp_tree_sum writes */
  const uint32_t *order; /* [world] the rank at each place of the tree; NULL: as they are */
  const char *site;      /* static */
} tp_tree_spec;

typedef struct tp_tree {
  tp_tree_spec spec;
  int64_t begin, share; /* SCATTER, TWO: columns that are finished here */
  bs_tensor parts;      /* [B, leaves x width]: sums of the leaves side by side; NULL with one leaf */
  bs_tensor own;        /* SCATTER, TWO: [B, width], the sum of the rank's leaves */
  bs_tensor all;        /* [B, P x width or share]: sums of all ranks, in rank order; not HERE */
  bs_plan *join;        /* parts to the own sum */
  bs_plan *last;        /* the last steps: the rest of the tree, activation, rounding */
  bs_coll_plan *first;  /* of the sums */
  bs_coll_plan *second; /* TWO: of the finished columns */
  uint64_t *send, *recv;
  char second_site[TP_SITE];
} tp_tree;

/* The way of a sum over `world` ranks; split: each rank keeps its own columns of the result. */
uint32_t tp_tree_way(uint32_t world, int split);
/* Takes memory, plans and collectives as `spec` says. tp_tree_free, also after an error. */
int32_t tp_tree_build(tp_layer *layer, const tp_tree_spec *spec, tp_tree *out_tree, bs_error *err);
void tp_tree_free(tp_layer *layer, tp_tree *tree);
/* Where leaf i of the rank's writes its sum of `rows` tokens: [rows, width] with stride tp_tree_stride. */
bs_tensor tp_tree_part(const tp_layer *layer, const tp_tree *tree, uint32_t i, int64_t rows);
int64_t tp_tree_stride(const tp_layer *layer, const tp_tree_spec *spec);
/* The whole sum of the leaves' sums to out: [rows, width], of SCATTER [rows, share]. Allocates nothing. */
int32_t tp_tree_sum(tp_layer *layer, tp_tree *tree, bs_tensor *out, bs_stream *stream, bs_error *err);
/* Bytes of scratch, and the collectives of a sum over ranks: kinds and message bytes, as many as returned (at
 * most 2). */
uint64_t tp_tree_bytes(const tp_shape *shape, const tp_tree_spec *spec);
uint32_t tp_tree_claims(const tp_shape *shape, const tp_tree_spec *spec, uint32_t kinds[2],
                        uint64_t payloads[2]);

/* A leaf: its packed columns and its product. */
typedef struct tp_leaf {
  bs_partition *cols; /* of x's columns */
  bs_packed *packed;
  bs_plan *product;
  bs_plan *move;   /* gather_columns, if the kernel does not pick them */
  bs_plan *spread; /* SPREAD: scatter_columns of `narrow` */
  bs_tensor x;     /* GATHER: the copy; ZERO: a column of zeros; SPREAD: all K columns, zeros in the others */
  bs_tensor narrow;
  uint32_t input; /* VIEW, FULL, GATHER, ZERO, or SPREAD: a product with the whole packed weight */
  uint32_t reserved;
} tp_leaf;

struct tp_leaves {
  tp_leaf leaf[TP_LEAVES]; /* in the order of the tree */
  tp_tree tree;
};

/* Leaves of rows: each is packed and multiplied by itself, because dX is summed leaf by leaf. */
struct tp_rows {
  bs_packed *packed[TP_LEAVES]; /* NULL: no rows */
  bs_plan *matmul[TP_LEAVES];
  int64_t begin[TP_LEAVES], count[TP_LEAVES]; /* among the rank's own rows */
};

/* The backward pass and the steps of leaves, of columns or of rows. */
struct tp_leaf_grad {
  tp_layer *part[TP_LEAVES]; /* a layer with the leaf's weight and steps; NULL: an empty leaf */
  bs_plan *dx[TP_LEAVES];
  bs_partition *places[TP_LEAVES]; /* of columns: among the own ones */
  bs_plan *spread[TP_LEAVES];      /* of columns that are no run: dX from `block` to the rank's own columns */
  bs_plan *pick[TP_LEAVES];        /* and dW's columns, to `dw` */
  bs_tensor block, dw;
  tp_tree tree; /* of rows: dX */
};

/* Leaf `leaf` of 8 of N rows; the rows of a rank with so many leaves. */
void tp_rows_share(const tp_shape *shape, uint32_t rank, int64_t *out_begin, int64_t *out_count);
int32_t tp_rows_build(tp_layer *layer, const bs_layer_spec *spec, const bs_source *weights, bs_error *err);
void tp_rows_free(tp_layer *layer);
int32_t tp_rows_multiply(tp_layer *layer, const bs_tensor *x, bs_tensor *out, bs_stream *stream,
                         bs_error *err);
int32_t tp_rows_read(tp_layer *layer, int64_t row, bs_tensor *out, bs_error *err);

/* tp_leaf_grad.c. The tree of dX; build after the layer's tp_gradient; dX of the own dY to `product` (of
 * leaves of rows: to dx); the step of all weights. */
void tp_leaf_grad_tree(const tp_shape *shape, const char *site, tp_tree_spec *out_spec);
int32_t tp_leaf_grad_build(tp_layer *layer, const bs_layer_spec *spec, bs_error *err);
void tp_leaf_grad_free(tp_layer *layer);
int32_t tp_leaf_dx(tp_layer *layer, const bs_tensor *dy, bs_tensor *dx, bs_stream *stream, bs_error *err);
int32_t tp_leaf_step(tp_layer *layer, const bs_step *step, bs_stream *stream, bs_error *err);
uint64_t tp_leaf_grad_bytes(const tp_shape *shape, const bs_layer_spec *spec, uint32_t wide);

#endif
