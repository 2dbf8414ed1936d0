/* SPDX-License-Identifier: MIT
 *
 * tp_mixed.h - a layer whose columns are kept in two precisions (option `mixed`). Some stay in the layer's
 * dtype. All others are int8 with a scale for each output, and X of those int8 with a scale for each token
 * (LLM.int8's decomposition; docs/methods.md). Or both are fp8 (option `mixed_dtype`) with scales of rows, of
 * the whole, or of blocks of columns. A rank has its share of both. tp_mixed_shape.c finds the columns,
 * tp_mixed_build.c and, for fp8, tp_mixed_f8.c build the layer, tp_mixed_run.c multiplies and reads back. */
#ifndef BS_METHODS_TP_MIXED_H
#define BS_METHODS_TP_MIXED_H

#include "tp.h"

enum tp_segment { TP_HIGH = 0, TP_LOW = 1, TP_SEGMENTS = 2 };

/* Columns of a sum of int8 products that surely fits 32 bits. */
#define TP_MIXED_MOST 131072

/* The unit that has a separate scale: a row of W and of X, all rows together, or a run of columns of a
 * row. */
enum tp_scales { TP_SCALES_ROW = 0, TP_SCALES_TENSOR = 1, TP_SCALES_BLOCK = 2 };
#define TP_MIXED_BLOCK 128

typedef struct tp_mixed {
  bs_partition all;                /* every column of x */
  bs_partition *cols[TP_SEGMENTS]; /* of x as the layer has it; NULL: none */
  bs_packed *packed[TP_SEGMENTS];
  bs_plan *product[TP_SEGMENTS];
  bs_plan *move[TP_SEGMENTS]; /* gather_columns, if they are not a run */
  bs_tensor x[TP_SEGMENTS];   /* its output */
  bs_plan *widen, *narrow;    /* x of the low columns to f32, and to int8 or fp8 */
  bs_plan *join;              /* sums by their scales, the high product and the bias to the output */
  bs_tensor wide;             /* f32 of x[TP_LOW] */
  bs_tensor values, x_scales; /* and int8 or fp8, a scale a group of a token */
  bs_tensor w_scales;         /* int8: [1,n], of the outputs; fp8: [n,groups] */
  bs_tensor w_row;            /* int8: the same as [n] */
  bs_tensor w;                /* fp8: [n,columns]; int8 is packed */
  bs_tensor sums, base;       /* i32; the high product in f32 */
  uint32_t region_in, region_out;
} tp_mixed;

/* tp_leaf_shape.c. */
/* A GATHER partition and room for its list in one block of the host's memory; NULL: none. */
bs_partition *tp_partition_new(const tp_state *state, int64_t total, int64_t count);
/* Turns a list that is a run into a run: x is then viewed and not gathered. */
void tp_partition_settle(bs_partition *partition);
/* shape->cols: the columns with mark[k] != 0, k_own of K. */
int32_t tp_own_columns(const tp_state *state, tp_shape *shape, const uint8_t *mark, bs_error *err);

/* 1: the option is given. */
int tp_mixed_asked(const bs_layer_spec *spec);
int32_t tp_mixed_shape_make(const tp_state *state, const bs_layer_spec *spec, tp_shape *shape, bs_error *err);
void tp_mixed_propose(const tp_shape *shape, bs_proposal *proposal);
int32_t tp_mixed_build(tp_layer *layer, const bs_layer_spec *spec, const bs_source *weights, bs_error *err);
void tp_mixed_free(tp_layer *layer);
int32_t tp_mixed_multiply(tp_layer *layer, const bs_tensor *x, bs_tensor *out, bs_stream *stream,
                          bs_error *err);
/* BS_CONFIG: an option for low columns in a layer without any, or scales that int8 does not support. */
int32_t tp_mixed_check_options(const tp_traits *traits, const bs_layer_spec *spec, bs_error *err);
/* A description of the low columns. */
const char *tp_mixed_others(const tp_shape *shape);
/* Scales of a row of the rank's low columns. */
int64_t tp_mixed_groups(const tp_shape *shape);
int32_t tp_mixed_read(tp_layer *layer, int64_t row, bs_tensor *out, bs_error *err);

/* The int8 columns of a weight by the scales of its rows. */
typedef struct tp_mixed_view {
  const bs_source *inner;
  const bs_host *host;
  const float *scales;
} tp_mixed_view;
bs_source tp_source_int8(tp_mixed_view *view, const bs_source *inner, const bs_host *host,
                         const float *scales);
/* The scale of each row. */
int32_t tp_mixed_scales(const bs_host *host, const bs_source *columns, float *out_scales, bs_error *err);

/* ---- tp_mixed_build.c, for tp_mixed_f8.c --------------------------------------------------------- */

bs_tensor_desc tp_mixed_out_desc(const tp_layer *layer);
int32_t tp_mixed_build_input(tp_layer *layer, uint32_t segment, bs_error *err);
/* x of the low columns to the layer's dtype of them. */
int32_t tp_mixed_build_narrow(tp_layer *layer, bs_error *err);

/* ---- tp_mixed_f8.c ------------------------------------------------------------------------------- */

/* The low columns as fp8: `rows` are the rank's of W. */
int32_t tp_mixed_build_f8(tp_layer *layer, const bs_source *rows, bs_error *err);
/* Builds the product of it, which includes the steps after the product. Needs the results of build_high. */
int32_t tp_mixed_build_f8_join(tp_layer *layer, const bs_layer_spec *spec, bs_error *err);
/* The largest value that fits. */
float tp_f8_largest(uint32_t dtype);

#endif
