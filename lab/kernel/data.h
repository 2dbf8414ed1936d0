/* SPDX-License-Identifier: MIT
 * data.h - the numbers of a kernel's problem, and its right output. Inputs are normal, by seed, rounded to
 * the problem's dtype (fp8: x / d with d = max|x| / largest value, descale d). The reference is computed in
 * f64 from these rounded inputs. It covers every row if that takes a tenth of a second at most. Otherwise it
 * covers rows that are drawn: the first, the last and one of each tile of 2, 4, 8, ... of every batch and
 * head; for a product 128 columns of each row, for dW 128 rows. It shares no code with the kernels. */
#ifndef BS_LAB_KERNEL_DATA_H
#define BS_LAB_KERNEL_DATA_H
#include "lab/kernel/problem.h"
#include "lab/kernel/tail.h"

enum {
  BS_KERNEL_INPUTS = 6,
  BS_KERNEL_GIVEN = 4
}; /* Q, K, V, dY; X or dY, W or of dW dY. Then, of
      gradients of attention, Y and LSE */

typedef struct bs_kernel_data bs_kernel_data;

/* Errors over the judged rows; NaN if a judged output is not a number. */
typedef struct bs_kernel_numbers {
  double relative_rmse; /* rms(y - reference) / rms(reference) */
  double worst;         /* max|y - reference| / rms(reference) */
  double max_error;     /* max|y - reference| */
  double worst_slice;   /* the largest relative_rmse of one batch and head, or of one token */
  double rms;           /* of the reference */
  int64_t rows, values; /* judged: rows, and outputs in them */
  uint64_t nonfinite;   /* of all outputs, judged or not */
} bs_kernel_numbers;

int32_t bs_kernel_data_make(const bs_kernel_problem *problem, uint64_t seed, bs_kernel_data **out,
                            bs_error *err);
/* Other numbers for input `index`, rounded to the dtype, with the factor 1. Before the first judgement. */
int32_t bs_kernel_data_set(bs_kernel_data *data, uint32_t index, const float *values, bs_error *err);
void bs_kernel_data_free(bs_kernel_data *data);
const bs_kernel_problem *bs_kernel_data_problem(const bs_kernel_data *data);
/* Input `index`, dense: rows of cols elements of the problem's dtype. NULL: there is no such input. */
const void *bs_kernel_data_input(const bs_kernel_data *data, uint32_t index, int64_t *out_rows,
                                 int64_t *out_cols);
/* Three factors of fp8 inputs; NULL: the dtype has none. */
const float *bs_kernel_data_descale(const bs_kernel_data *data);
/* The kept weights of a 2:4 product; NULL: of another problem. */
const bs_kept *bs_kernel_data_kept(const bs_kernel_data *data);
/* The columns of X that a product takes; NULL: all. */
const bs_partition *bs_kernel_data_columns(const bs_kernel_data *data);
uint64_t bs_kernel_data_seed(const bs_kernel_data *data);
/* Elements of the output: batch x head x query x E, or those of a product; of gradients dQ, dK, dV together.
 */
int64_t bs_kernel_data_outputs(const bs_kernel_data *data);

/* The gradient of attention needs its forward results: Y of the inputs' dtype and LSE in f32, whole and
 * dense; both are copied. The kernel is judged on what it computes from these values. */
int bs_kernel_data_lacks_forward(const bs_kernel_data *data);
int32_t bs_kernel_data_set_forward(bs_kernel_data *data, const void *y, const void *lse, bs_error *err);

/* Batches x heads, or tokens, as worst_slice has them; 0 until it was judged. */
int64_t bs_kernel_data_slices(const bs_kernel_data *data);
/* y: all outputs, dense, of bs_kernel_y_dtype, in host memory. The reference is made the first time. */
int32_t bs_kernel_data_judge(bs_kernel_data *data, const void *y, bs_kernel_numbers *out, bs_error *err);
/* The relative error that round-off explains, and its variation between rows. For a product in f32: gates T1,
 * docs/gates.md. For gradients: sampled rows are computed in f32 as well. For attention: judged rows are
 * computed as a kernel of this class (enum bs_tolerance) does. */
int32_t bs_kernel_data_predict(bs_kernel_data *data, uint32_t tolerance, double *out_relative,
                               bs_tail *out_tail, bs_error *err);
#endif
