/* SPDX-License-Identifier: MIT
 *
 * tp.h - shared parts of the five methods: one linear layer split over ranks by columns of W (K), by rows (N)
 * or not at all, with its packed weight, plans, scratch and one collective. Compiled into each plugin. A
 * method is a tp_traits table plus its own refusals; no state here is shared by layers. */
#ifndef BS_METHODS_TP_H
#define BS_METHODS_TP_H

#include <blockshock/plugin.h>

typedef struct tp_option {
  const char *key;
  const char *values; /* "auto,gather": checked when the layer is proposed or built; NULL: no set */
  const char *standard;
  const char *summary;
} tp_option;

typedef struct tp_traits {
  const char *name;
  uint32_t split;      /* enum bs_split; BS_SPLIT_NONE: one rank only */
  uint32_t full_width; /* 1: the packed weight keeps all K columns, zeros where not owned */
  const char *site;    /* call sites of the collective of y, and in the backward pass of dX and dY */
  const char *x_site;  /* of the one that makes x whole */
  const char *dx_site;
  const char *dy_site;
  const tp_option *options;
  uint32_t n_options;
  uint32_t reserved;
  /* K splits: the mask to use for spec (its own, or the method's default), or a refusal. */
  int32_t (*choose_mask)(const bs_layer_spec *spec, bs_mask *out_mask, bs_error *err);
  /* Refuses by option values; NULL: none. */
  int32_t (*check)(const bs_layer_spec *spec, bs_error *err);
} tp_traits;

/* The method's state: made by activate, read-only afterwards. */
typedef struct tp_state {
  const bs_host *host;
  const tp_traits *traits;
} tp_state;

/* Leaves of a reproducible sum (R3, R4): the parts that 8 ranks would own. */
#define TP_LEAVES 8

/* The form in which the product gets x. */
enum tp_input {
  TP_X_PLAIN = 0,  /* as given */
  TP_X_VIEW = 1,   /* own run of columns of the whole x, by strides */
  TP_X_FULL = 2,   /* whole x; the kernel picks the columns */
  TP_X_GATHER = 3, /* own columns copied to scratch */
  TP_X_SPREAD = 4, /* own columns spread over a zero scratch of all K (full_width, x split) */
  TP_X_ZERO = 5    /* this rank owns no column: a zero column replaces it, so that bias stays fused */
};

/* Everything that follows from spec, rank and world without building. `cols` is owned: tp_shape_free. */
typedef struct tp_shape {
  int64_t B, N, K;
  uint32_t x_dtype, w_dtype, y_dtype, reduce_dtype;
  uint32_t rank, world;
  uint32_t split;               /* BS_SPLIT_NONE when world is 1 */
  uint32_t input;               /* enum tp_input; TP_X_GATHER may become TP_X_FULL in build */
  uint32_t product_dtype;       /* dtype that the matmul writes */
  uint32_t coll;                /* enum bs_coll_kind, BS_COLL_COUNT_: none */
  uint32_t own_partial;         /* 1: the product goes to scratch, not to y */
  uint32_t bias_here;           /* 1: this rank's product adds the bias */
  uint32_t after;               /* enum bs_activation applied after the sum; in the product otherwise */
  uint32_t own_sums;            /* 1: the sum goes to scratch before it is activated */
  uint32_t keeps;               /* 1: so does a product that is not a sum over ranks, for backward */
  const bs_partition *cols;     /* K split: own columns; NULL: all */
  int64_t k_own;                /* columns owned; by_row: length of a row of kept weights */
  int64_t k_mul;                /* width of the product: K when full_width, at least 1 */
  int64_t row_begin, row_count; /* rows of W owned */
  int64_t x_cols, y_cols;       /* of the caller's x and y */
  int64_t y_begin;              /* N split, replicated y: first feature of the own block */
  uint32_t wire;                /* BS_I8: the sum is made in two int8 steps; else reduce_dtype */
  uint32_t chunks;              /* parts of y that are summed while the next is computed; 1: no overlap */
  uint32_t chunk_features;      /* 1: the parts are runs of features, 0: of tokens */
  uint32_t chunk_unit;          /* parts are multiples of it, but for the last */
  uint32_t before;              /* collective that makes x whole; BS_COLL_COUNT_: none */
  uint32_t x_tokens, y_tokens;  /* 1: x, y are the rank's own tokens */
  uint32_t repro;               /* the requested enum bs_repro; R1 by default */
  uint32_t leaves;              /* R3, R4: runs of columns that are summed separately here; 0: one product */
  uint32_t row_leaves;          /* R3 with a backward pass, N split: runs of rows whose dX is summed
                                 * separately; 0: one product */
  uint32_t no_leaves;           /* R3 where one rank sums whole features: as R2 */
  uint32_t place;               /* of the rank's leaves in the tree, in units of them */
  uint32_t tree_way;            /* of `leaves`: enum tp_tree_way (tp_tree.h) */
  uint32_t own_cols;            /* 1: cols is tp_leaf.c's, not the host's */
  uint32_t by_row;              /* 1: of `cols`, other ones are kept in each row (tp_by_row.c) */
  uint32_t half;                /* by_row: 0 the mask's, 1 its complement's */
  uint32_t mask_kind;           /* by_row: enum bs_mask_kind */
  int64_t
      leaf_width[TP_LEAVES]; /* of the products over them, in order of the tree; of the first at least 1 */
  int64_t dw_stride;         /* of the dW of a leaf: the row stride of the layer's dW; 0: dense */
  uint32_t mixed;            /* 1: columns in two precisions (tp_mixed.h) */
  int64_t mixed_high;        /* of all ranks: columns that stay high */
  uint32_t mixed_dtype;      /* of the others */
  uint32_t mixed_scales;     /* enum tp_scales */
  int64_t mixed_group;       /* columns of a scale of theirs: all the rank has, or a block */
  bs_partition *segment[2];  /* enum tp_segment: the rank's, of K */
} tp_shape;

int32_t tp_shape_make(const tp_state *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world,
                      tp_shape *out_shape, bs_error *err);
void tp_shape_free(const tp_state *state, tp_shape *shape);
/* Rank's run of `total` split evenly: sizes differ by at most one, the larger ones first. */
void tp_share(int64_t total, uint32_t rank, uint32_t world, int64_t *out_begin, int64_t *out_count);
/* choose_mask of the methods that take any mask; without one complement_1100_0011. */
int32_t tp_mask_or_complement(const bs_layer_spec *spec, bs_mask *out_mask, bs_error *err);
int tp_is_float(uint32_t dtype);
/* Value of a method option of spec, or fallback. */
const char *tp_option_get(const bs_layer_spec *spec, const char *key, const char *fallback);

/* tp_place.c: placements that are brought to others by a collective: x of a rank's tokens, x as a partial
 * sum, y of a rank's tokens. */
int32_t tp_place_check(const tp_traits *traits, const bs_layer_spec *spec, uint32_t split, uint32_t world,
                       bs_error *err);
void tp_place_shape(const bs_layer_spec *spec, tp_shape *shape);

/* tp_repro.c: options that every method has, and their lines of option_docs. */
#define TP_OPTION_DOCS                                                                                     \
  TP_MIXED_DOC                                                                                             \
  "repro=R1: how far the bits of Y are promised: R0 from run to run, R1 on every rank, R2 whatever other " \
  "tokens there are, R3 on 1, 2, 4 and 8 ranks, R4 for every method over the same order of columns\n"
extern const tp_option tp_common_options[];
extern const uint32_t tp_common_count;
/* enum bs_repro of the option; BS_REPRO_R1 without. */
uint32_t tp_repro_asked(const bs_layer_spec *spec);
/* Refuses with the reason what cannot be promised. */
int32_t tp_repro_check(const tp_traits *traits, const bs_layer_spec *spec, uint32_t split, uint32_t world,
                       bs_error *err);
/* The class that a layer keeps. */
uint32_t tp_repro_promised(const bs_layer_spec *spec, const tp_shape *shape);

/* tp_mixed.h: columns in two precisions. */
#define TP_MIXED_DOC                                                                                  \
  "mixed=: so many columns of the largest range stay in the layer's dtype, all others are int8 with " \
  "scales by output and token; 0: all int8\n"                                                         \
  "mixed_dtype=i8: what those others are: i8, or f8e4m3 or f8e5m2\n"                                  \
  "mixed_scales=row: of fp8, a scale for each output and token (row), one for all of them (tensor), " \
  "or one for each 128 columns of each (block)\n"

/* tp_leaf_shape.c: the columns of leaf 0 .. 7, and of the rank's own; which rank has a place of the tree. */
int32_t tp_leaf_mask(const tp_traits *traits, const bs_layer_spec *spec, bs_mask *out_mask, bs_error *err);
uint32_t tp_leaf_rank(uint32_t mask_kind, uint32_t place, uint32_t world);
int32_t tp_leaf_shape_make(const tp_state *state, const bs_layer_spec *spec, tp_shape *shape, bs_error *err);
/* Leaf i of the rank's: its columns among those of x as the layer has it. tp_partition_free. */
int32_t tp_leaf_columns(const tp_state *state, const bs_layer_spec *spec, const tp_shape *shape, uint32_t i,
                        bs_partition **out_columns, bs_error *err);
/* The positions of the columns of a leaf among the own ones. Release with tp_partition_free. */
int32_t tp_leaf_places(const tp_state *state, const bs_partition *leaf, const bs_partition *own,
                       bs_partition **out_places, bs_error *err);
void tp_partition_free(const tp_state *state, const bs_partition *partition);

/* The form of dX that the product dY W writes. */
enum tp_dx {
  TP_DX_PLAIN = 0, /* it is dx */
  TP_DX_RUN = 1,   /* the rank's run of dx's columns; the other runs are gathered */
  TP_DX_GATHER =
      2,         /* the rank's block of a scratch; the blocks are gathered and their columns spread over dx */
  TP_DX_SUM = 3, /* all K columns, a term of the sum over ranks */
  TP_DX_PICK = 4, /* all K columns in scratch, of which dx takes the own ones (full_width, x split) */
  TP_DX_TREE = 5  /* all K columns of each leaf of rows, added by the tree (tp_tree.h) */
};

/* Facts on the backward pass, found without building. */
typedef struct tp_gradient_shape {
  uint32_t dx;            /* enum tp_dx; RUN may become GATHER in build */
  uint32_t dx_coll;       /* enum bs_coll_kind, BS_COLL_COUNT_: none */
  uint32_t product_dtype; /* dtype that matmul_dx writes */
  uint32_t wide;          /* dtype of dW and db */
  uint32_t gather_dy;     /* 1: dy is split and the product needs it whole */
  uint32_t own_product;   /* 1: the product goes to scratch, not to dx */
  uint32_t picks;         /* RUN, GATHER: the product has all K columns, of which the own ones are taken */
  int64_t dx_width;       /* columns of the product */
  int64_t dy_cols;        /* of the caller's dy */
  int64_t dy_begin;       /* first own feature in it */
  uint32_t activation;    /* the activation whose slope dy is multiplied with */
  int64_t dz_cols;        /* own features of dy, from which it is computed */
} tp_gradient_shape;

typedef struct tp_layer tp_layer;

/* Plans and memory of the backward pass; NULL in a layer that was built without it. */
typedef struct tp_gradient {
  tp_gradient_shape shape;
  bs_plan *dx, *dw, *db;
  bs_plan *pick;        /* PICK, or `picks`: the own columns of the product */
  bs_plan *slope;       /* dY times the activation's slope, to dz; NULL without an activation */
  bs_plan **spread;     /* GATHER: one a rank; NULL if it owns none */
  int64_t *begin;       /* GATHER: first column of each rank's block, and K */
  bs_coll_plan *sum_dx; /* or the gather of it */
  bs_coll_plan *whole_dy;
  uint64_t *dx_counts, *dy_counts;
  bs_tensor product; /* [B,dx_width] or [B,K] */
  bs_tensor wide;    /* `picks`: the product, [B,K] */
  bs_tensor dy;      /* [B,N] */
  bs_tensor dz;      /* [B, own features of dy] of its dtype */
  bs_tensor ones;    /* [B,1]: db is dY^T times it */
} tp_gradient;

/* Which numbers of steps are in device memory: those of `step` and of the next steps. */
enum { TP_NUMBERS_WEIGHTS = 0, TP_NUMBERS_BIAS, TP_NUMBERS_FUSED, TP_NUMBERS, TP_NUMBERS_STEPS = 32 };
typedef struct tp_told {
  bs_step step;
  int set;
} tp_told;

/* Plans and memory of the optimiser; NULL in a layer that was built without one. The bias takes its steps in
 * a packed weight of one row, from which it is read back: only ops reach the memory of a device. */
typedef struct tp_training {
  uint32_t flags;  /* of the spec */
  uint32_t wide;   /* dtype of dW and db */
  bs_plan *fused;  /* matmul_update; NULL if dW must be computed */
  bs_plan *spread; /* full_width: own columns of dW to all of them */
  bs_packed *bias;
  bs_plan *sgd, *adamw, *bias_sgd, *bias_adamw;
  bs_tensor hyper; /* [TP_NUMBERS * TP_NUMBERS_STEPS, 8]: of the weights, of the bias, of a step without dW */
  tp_told told[TP_NUMBERS];
  bs_tensor speed, first, second;                /* as the packed weight */
  bs_tensor bias_speed, bias_first, bias_second; /* [1,n] */
  bs_tensor dw_own, dw_all;                      /* full_width */
} tp_training;

int32_t tp_training_build(tp_layer *layer, const bs_layer_spec *spec, const bs_source *bias, bs_error *err);
void tp_training_free(tp_layer *layer);
/* Bytes that it takes. */
uint64_t tp_training_bytes(const tp_traits *traits, const bs_layer_spec *spec, const tp_shape *shape,
                           uint32_t wide);

int32_t tp_gradient_shape_make(const tp_state *state, const bs_layer_spec *spec, const tp_shape *shape,
                               tp_gradient_shape *out_shape, bs_error *err);
int32_t tp_gradient_build(tp_layer *layer, const bs_layer_spec *spec, bs_error *err);
/* dZ = dY act'(Z) of the rank's own features of dY, which the products use instead of dY: Z is the value that
 * the last forward kept in `sums`. Without an activation nothing is built: the gradient's `slope` is NULL
 * then. */
int32_t tp_slope_build(tp_layer *layer, const bs_layer_spec *spec, bs_error *err);
int32_t tp_slope_run(tp_layer *layer, const bs_tensor *dy, bs_tensor *out_dz, bs_stream *stream,
                     bs_error *err);
void tp_gradient_free(tp_layer *layer);

/* tp_overlap.c: forward in chunks. */
#define TP_MAX_CHUNKS BS_MAX_PROPOSED
#define TP_SITE 64
typedef struct tp_overlap {
  bs_packed *packed[TP_MAX_CHUNKS]; /* of runs of features, and their products; NULL: the layer's own */
  bs_plan *matmul[TP_MAX_CHUNKS];
  bs_coll_plan *coll[TP_MAX_CHUNKS];
  char site[TP_MAX_CHUNKS][TP_SITE];
} tp_overlap;
/* Entries for tp_traits.options and option_docs. */
#define TP_OVERLAP_OPTIONS                                                                               \
  {"overlap", "off,auto,2,3,4,5,6,7,8", "off", "chunks of y, each summed while the next is computed"}, { \
    "overlap_axis", "auto,features,tokens", "auto", "what the chunks of y are runs of"                   \
  }
#define TP_OVERLAP_DOC                                                                                    \
  "overlap=off: off|auto|2..8: y in so many chunks, each summed while the next is computed; auto by a "   \
  "model\n"                                                                                               \
  "overlap_axis=auto: auto|features|tokens: what chunks are runs of; auto by the same model, where both " \
  "are "                                                                                                  \
  "possible\n"

int32_t tp_overlap_choose(const tp_state *state, const bs_layer_spec *spec, tp_shape *shape, bs_error *err);
/* Chunk's run of `total` features or tokens. */
void tp_overlap_share(const tp_shape *shape, int64_t total, uint32_t chunk, int64_t *out_begin,
                      int64_t *out_count);
void tp_overlap_propose(const tp_shape *shape, bs_proposal *proposal);
/* `own`: the weights of this rank, all rows. */
int32_t tp_overlap_pack(tp_layer *layer, const bs_layer_spec *spec, const bs_source *own, bs_error *err);
/* `whole`: the collective without overlap. */
int32_t tp_overlap_build(tp_layer *layer, const bs_collective *whole, bs_error *err);
int32_t tp_overlap_read(tp_layer *layer, int64_t row, bs_tensor *out, bs_error *err);
void tp_overlap_free(tp_layer *layer);
/* x to `sums`, by way of `product`. */
int32_t tp_overlap_forward(tp_layer *layer, const bs_tensor *x, const bs_tensor *product, bs_tensor *sums,
                           bs_stream *stream, bs_error *err);

/* tp_quantise.c: a sum over ranks in two int8 steps. */
#define TP_WIRE_GROUP 128 /* features that share a scale; groups begin with each rank's share (tp_share) */
/* A rank's share of the features and its groups, and their starts. */
typedef struct tp_block {
  int64_t begin, count, first_group, groups;
} tp_block;
typedef struct tp_quantise {
  tp_block *block;           /* of each rank */
  bs_plan **narrow;          /* one a rank: its block of the partial sums to int8; NULL if it is empty */
  bs_plan **widen;           /* the same blocks back, of a sum for all */
  bs_plan *sum;              /* of the own block, over ranks */
  bs_plan *narrow_sum;       /* and back to int8 */
  bs_coll_plan *exchange[4]; /* to their owners: values, scales; to all: sums, their scales */
  char site[4][TP_SITE];
  uint32_t region;
  bs_tensor values, scales;  /* [B,N] and its groups: the partial sums, later the sums */
  bs_tensor got, got_scales; /* the own block of every rank's */
  bs_tensor mine;            /* the own block of the sum */
} tp_quantise;
void tp_quantise_propose(const tp_shape *shape, bs_proposal *proposal);
uint64_t tp_quantise_bytes(const tp_shape *shape); /* of scratch */
/* The part of y's relative error that communication adds: for normal partial sums, docs/methods.md. */
double tp_quantise_error(const tp_shape *shape);
double tp_wire_error(const bs_layer_spec *spec, const tp_shape *shape);
int32_t tp_quantise_build(tp_layer *layer, uint32_t out_dtype, bs_error *err);
void tp_quantise_free(tp_layer *layer);
int32_t tp_quantise_forward(tp_layer *layer, const bs_tensor *product, bs_tensor *sums, bs_stream *stream,
                            bs_error *err);
typedef struct tp_leaves tp_leaves;       /* tp_tree.h */
typedef struct tp_rows tp_rows;           /* tp_tree.h */
typedef struct tp_leaf_grad tp_leaf_grad; /* tp_tree.h */

struct tp_layer {
  const tp_state *state;
  const bs_rank_api *api;
  bs_rank *rank;
  tp_shape shape;
  bs_packed *packed; /* NULL when the rank owns no row */
  bs_plan *matmul;
  bs_plan *move; /* gather_columns or scatter_columns */
  bs_coll_plan *coll;
  bs_tensor bias_row; /* [1,n], memory of the bias */
  bs_tensor bias;     /* the same as [n] */
  bs_tensor x_scratch;
  bs_tensor partial;
  bs_plan *activate; /* sums to y, if `after` requests it */
  bs_tensor sums;    /* reduced, in the reduce dtype; memory NULL when y or partial hold them */
  int64_t kept_rows; /* of sums: tokens of the last forward, for backward */
  uint64_t *counts;
  tp_gradient *gradient;   /* NULL: forward only */
  void *by_row;            /* blockshock's layers of 2:4 halves (blockshock/by_row.h); NULL: only columns */
  tp_overlap *overlap;     /* NULL: one chunk */
  tp_training *training;   /* NULL: no steps */
  tp_quantise *quantise;   /* NULL: not in int8 */
  tp_leaves *leaves;       /* R3, R4: in the place of packed, matmul, move and partial */
  tp_rows *rows;           /* R3 with a backward pass, N split: in the place of packed and matmul */
  tp_leaf_grad *leaf_grad; /* R3 with a backward pass: its dX and steps, leaf by leaf; NULL: no leaves */
  struct tp_kept *kept;    /* tp_kept.h: positions of a dense weight with zeros; NULL: whole columns */
  struct tp_mixed *mixed;  /* tp_mixed.h: in the place of packed, matmul and move; NULL: one precision */
  bs_coll_plan *before;    /* of x */
  uint64_t *before_counts;
  bs_tensor whole; /* x, made whole by it */
};

/* BS_QUERY_BITS for the ops of a backward pass that R3 promises. */
static inline uint32_t tp_bits_flag(const tp_shape *shape) {
  return shape->repro >= BS_REPRO_R3 ? (uint32_t)BS_QUERY_BITS : 0u;
}

/* The query for the product of the layer's rows (shape.row_count of them). */
typedef struct tp_product_query {
  bs_tensor_desc x, bias, y;
  const bs_tensor_desc *args[4];
  bs_op_query q;
} tp_product_query;
void tp_product_query_fill(const tp_layer *layer, const bs_layer_spec *spec, tp_product_query *out_query);
/* x in the form for the product: moved if necessary. And the product of it. */
int32_t tp_take_input(tp_layer *layer, const bs_tensor *x, bs_tensor *out_input, bs_stream *stream,
                      bs_error *err);
int32_t tp_multiply(tp_layer *layer, const bs_tensor *x, bs_tensor *out, bs_stream *stream, bs_error *err);

/* dY as the products of the rank see it, once backward has gathered it: its own features of dy. */
bs_tensor_desc tp_dy_desc(const tp_layer *layer);
bs_tensor tp_own_dy(const tp_layer *layer, const bs_tensor *dy);
/* Refuses tensors of a backward pass that do not fit: dy has dy_cols columns, dw and db have the dtype
 * `wide`. */
int32_t tp_check_gradients(const tp_layer *layer, int64_t dy_cols, uint32_t wide, const bs_tensor *x,
                           const bs_tensor *dy, const bs_tensor *dx, const bs_tensor *dw, const bs_tensor *db,
                           bs_error *err);
/* db = dY^T 1. */
int32_t tp_bias_gradient(tp_layer *layer, bs_tensor *dy, bs_tensor *db, bs_stream *stream, bs_error *err);
/* 1 when t is a [n] vector of a dtype. */
int tp_is_row(const bs_tensor *t, int64_t n, uint32_t dtype);

/* Takes a step of the weights by dW, or without one (dw NULL) by x and the own dY. */
int32_t tp_step_weights(tp_layer *layer, const bs_step *step, const bs_tensor *dy, const bs_tensor *dw,
                        bs_stream *stream, bs_error *err);

/* tp_leaf_build.c, tp_leaf_run.c: a layer that sums K leaf by leaf. */
int32_t tp_leaves_build(tp_layer *layer, const bs_layer_spec *spec, const bs_source *weights, bs_error *err);
void tp_leaves_free(tp_layer *layer);
int32_t tp_leaves_forward(tp_layer *layer, const bs_tensor *x, bs_tensor *y, bs_stream *stream,
                          bs_error *err);
int32_t tp_leaves_read(tp_layer *layer, int64_t row, bs_tensor *out, bs_error *err);
/* Scratch and collectives: its part of the proposal. The words for its way over ranks. */
void tp_leaves_propose(const tp_shape *shape, bs_proposal *proposal);
const char *tp_leaves_words(const tp_shape *shape);
/* Memory and collective of `before`; the scratch that they take. */
int32_t tp_place_build(tp_layer *layer, bs_error *err);
uint64_t tp_place_bytes(const tp_shape *shape);
/* Counts of a collective over tokens: `cols` elements a token. */
void tp_place_counts(const tp_shape *shape, int64_t cols, uint64_t *out_counts);
/* Makes the whole x from the caller's part; and the shapes of both, if a placement is converted to
 * another. */
int32_t tp_place_input(tp_layer *layer, const bs_tensor *x, const bs_tensor *y, bs_tensor *out_x,
                       bs_stream *stream, bs_error *err);
/* A dense matrix as one row, for collectives over tokens. */
bs_tensor tp_view_flat(const bs_tensor *t);
int32_t tp_wrong_shape(const tp_layer *layer, const char *name, const bs_tensor *t, uint32_t dtype,
                       int64_t cols, bs_error *err);
/* A matrix whose rows are `stride` apart; a vector. */
static inline bs_tensor_desc tp_strided(uint32_t dtype, int64_t rows, int64_t cols, int64_t stride) {
  bs_tensor_desc d = bs_desc_2d(dtype, rows, cols);
  d.strides[0] = stride > 0 ? stride : 1;
  return d;
}
static inline bs_tensor_desc tp_vector(uint32_t dtype, int64_t n) {
  bs_tensor_desc d = bs_desc_2d(dtype, n, 1);
  d.rank = 1;
  d.dims[1] = d.strides[1] = 0;
  d.strides[0] = 1;
  return d;
}
/* tp_build.c: checks that weights fit the layer; the bias of the own rows; the plan of an activation, with
 * `sums` as its input if that is separate memory. */
int32_t tp_check_weights(const tp_layer *layer, const bs_source *weights, bs_error *err);
int32_t tp_bias_build(tp_layer *layer, const bs_source *bias, bs_error *err);
int32_t tp_activation_prepare(tp_layer *layer, const bs_layer_spec *spec, int own, const bs_tensor_desc *in,
                              const bs_tensor_desc *out, bs_error *err);
/* tp_gradient.c: a column of ones, whose product with dY is db. */
int32_t tp_ones_build(tp_layer *layer, const bs_layer_spec *spec, uint32_t dtype, bs_error *err);
int32_t tp_collective(tp_layer *layer, uint32_t kind, uint32_t dtype_in, uint32_t dtype_out,
                      const uint64_t *counts, const uint64_t *recv_counts, bs_coll_plan **out_plan,
                      bs_error *err);

/* Views of a caller's tensor, and whether it is a dense [rows,cols] of a dtype. */
bs_tensor tp_view_columns(const bs_tensor *t, int64_t begin, int64_t count);
bs_tensor tp_view_rows(const bs_tensor *t, int64_t rows);
bs_tensor tp_view_run(const bs_tensor *t, int64_t begin, int64_t rows);
int tp_fits(const bs_tensor *t, int64_t rows, uint32_t dtype, int64_t cols);

/* Reads rows of the packed weight, in one piece, in chunks of features or in leaves of rows. */
int32_t tp_packed_rows(tp_layer *layer, int64_t row, bs_tensor *out, bs_error *err);

/* The slots of bs_method. */
int32_t tp_propose(void *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world_size,
                   bs_proposal *out_proposal, bs_error *err);
int32_t tp_build(void *state, const bs_rank_api *api, bs_rank *rank, const bs_layer_spec *spec,
                 const bs_source *weights, const bs_source *bias, void **out_layer, bs_error *err);
int32_t tp_forward(void *layer, const bs_tensor *x, bs_tensor *y, bs_stream *stream, bs_error *err);
int32_t tp_backward(void *layer, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx, bs_tensor *dw,
                    bs_tensor *db, bs_stream *stream, bs_error *err);
int32_t tp_step(void *layer, const bs_step *step, bs_stream *stream, bs_error *err);
int32_t tp_owns(void *layer, bs_ownership *out_ownership, bs_error *err);
int32_t tp_read_weights(void *layer, int64_t row, bs_tensor *out, bs_error *err);
void tp_layer_free(void *layer);

/* activate and deactivate of a plugin that registers one method over `traits`; slots that `method` has stay.
 */
int32_t tp_activate(const bs_host *host, bs_plugin_self *self, const tp_traits *traits, bs_method *method,
                    const bs_src_loc *at, void **out_state, bs_error *err);
int32_t tp_deactivate(void *state, bs_error *err);

/* Views of a source, valid while `inner` is: only the columns of `own`; rows row_begin.. of it; all its
 * columns with zeros where `own`, or `kept` in that row, keeps none; a single column of zeros. They stay
 * thread-safe and pure if inner is. */
typedef struct tp_rows_view {
  const bs_source *inner;
  int64_t row_begin;
  bs_generator made; /* the rows of a generated weight are a generated weight */
} tp_rows_view;
typedef struct tp_zeros_view {
  const bs_source *inner;
  const bs_partition *own;
} tp_zeros_view;
bs_source tp_source_rows(tp_rows_view *view, const bs_source *inner, int64_t row_begin, int64_t row_count);
bs_source tp_source_zeros(tp_zeros_view *view, const bs_source *inner, const bs_partition *own);
typedef struct tp_kept_view {
  const bs_source *inner;
  const bs_kept *kept; /* of the columns of `run`, from its first group */
  const bs_partition *run;
} tp_kept_view;
bs_source tp_source_kept(tp_kept_view *view, const bs_source *inner, const bs_kept *kept,
                         const bs_partition *run);
bs_source tp_source_zero_column(const bs_source *inner);
bs_source tp_source_columns(tp_zeros_view *view, const bs_source *inner, const bs_partition *own);

#endif
