/* SPDX-License-Identifier: MIT
 *
 * tp_kept.h - the positions of a rank's weights under a mask that keeps different columns in each row
 * (random_2of4, magnitude, transposable): one half, in a run of rows and of whole groups of four columns.
 * blockshock packs 2:4 values at them, masked_split a dense weight with zeros elsewhere (tp_by_row.c). */
#ifndef BS_METHODS_TP_KEPT_H
#define BS_METHODS_TP_KEPT_H

#include "tp.h"

/* The positions of this rank's part: read from those of the whole matrix, or kept here if those depend on
 * weights that are freed after build. */
typedef struct tp_kept {
  bs_kept kept;
  const bs_kept *whole; /* owned */
  uint8_t *bits;        /* half a byte a group; NULL: read `whole` */
  int64_t stride;       /* bytes of a row of bits */
  int64_t row, group;   /* first own ones in whole */
} tp_kept;

/* 1: the kind keeps other columns in each row; and it looks at the weights for that. */
int tp_mask_by_row(uint32_t kind);
int tp_mask_looks(uint32_t kind);

/* Rows row.. of the columns of `run`, without positions yet. */
void tp_kept_init(tp_kept *kept, int64_t row, int64_t rows, const bs_partition *run);
/* Computes the positions of half `half` of the mask in the present weights, timed as `mask`; replaces earlier
 * ones. */
int32_t tp_kept_make(tp_kept *kept, const bs_rank_api *api, bs_rank *rank, const bs_mask *mask, uint32_t half,
                     const bs_source *weights, bs_error *err);
void tp_kept_free(tp_kept *kept, const bs_rank_api *api, bs_rank *rank);
/* Bytes that they take. */
uint64_t tp_kept_bytes(uint32_t kind, int64_t rows, int64_t cols);

/* tp_by_row.c: dense storage (full_width) under such a mask. The rank's share; its positions, and a view of
 * the weights with zeros elsewhere, which lives as long as both. */
int32_t tp_by_row_shape(const tp_state *state, const bs_layer_spec *spec, const bs_mask *mask,
                        tp_shape *shape, bs_error *err);
int32_t tp_by_row_source(tp_layer *layer, const bs_layer_spec *spec, const bs_source *weights,
                         tp_kept_view *view, bs_source *out_own, bs_error *err);
void tp_by_row_free(tp_layer *layer);
/* Computes dW of only the kept weights; and moves it to its places among zeros, in the columns of the
 * slice. */
int32_t tp_by_row_dw(tp_layer *layer, const bs_layer_spec *spec, const bs_tensor_desc *const *args,
                     bs_error *err);
int32_t tp_by_row_spread(tp_layer *layer, bs_plan **out_plan, bs_error *err);
bs_tensor tp_by_row_place(const tp_layer *layer, const bs_tensor *whole);
/* Rows row.. of the kept weights. */
int32_t tp_by_row_read(tp_layer *layer, int64_t row, bs_tensor *out, bs_error *err);

#endif
