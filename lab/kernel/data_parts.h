/* SPDX-License-Identifier: MIT
 * data_parts.h - shared parts of data.h's files. */
#ifndef BS_LAB_KERNEL_DATA_PARTS_H
#define BS_LAB_KERNEL_DATA_PARTS_H
#include "lab/kernel/data.h"

typedef struct bs_kernel_input {
  void *data;
  int64_t rows, cols;
} bs_kernel_input;

struct bs_kernel_data {
  bs_kernel_problem p;
  uint64_t seed;
  bs_kernel_input in[BS_KERNEL_INPUTS];
  float descale[BS_KERNEL_INPUTS];
  const bs_kept *kept;
  const bs_partition *columns; /* NULL: all */
  /* The reference: n runs of count[i] <= width outputs that begin at element at[i], its values at width * i;
   * of slices that are judged by themselves. */
  int64_t n, width, slices;
  int64_t *at, *count, *slice;
  double *value;
  double predicted; /* relative, of products and gradients */
  bs_tail tail;     /* relative too */
};

/* Rows of an input in f64, including the factor. The caller frees; NULL: no memory. */
double *bs_kernel_data_widen(const bs_kernel_data *d, uint32_t index, int64_t row, int64_t rows,
                             bs_error *err);
double bs_kernel_data_dot(const double *a, const double *b, int64_t n);
/* The judged ones of n rows: the first, the last, and one drawn from each tile; ascending, each once. base:
 * of the first row among all that are drawn. */
int64_t bs_kernel_data_draw(const bs_kernel_data *d, int64_t base, int64_t n, int64_t tile, int64_t *out);
/* The tile from which a row is drawn, chosen so that all rows together stay within the time limit. */
int64_t bs_kernel_data_tile(const bs_kernel_problem *p);
/* Room for so many runs of at most width values, all 0. */
int32_t bs_kernel_data_room(bs_kernel_data *d, int64_t runs, int64_t width, bs_error *err);
/* data_sdpa.c: the reference of attention, and the error of its rows that the class explains. */
int32_t bs_kernel_data_refer_sdpa(bs_kernel_data *d, bs_error *err);
int32_t bs_kernel_data_predict_sdpa(const bs_kernel_data *d, uint32_t tolerance, double *out_relative,
                                    bs_tail *out_tail, bs_error *err);
/* data_product.c: the reference of products, and `predicted`. */
int32_t bs_kernel_data_refer_product(bs_kernel_data *d, bs_error *err);
/* data_dx.c: the reference of gradients, and `predicted`. */
int32_t bs_kernel_data_refer_dx(bs_kernel_data *d, bs_error *err);
#endif
