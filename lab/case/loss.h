/* SPDX-License-Identifier: MIT
 * loss.h - the loss that a workload names, of a finished case's outputs. For the record of phase 0. */
#ifndef BS_LAB_CASE_LOSS_H
#define BS_LAB_CASE_LOSS_H
#include "lab/case/case.h"

/* "sum", "mse_zero" or "mse_target", as the configuration spells it; "?" for anything else. */
const char *bs_loss_name(uint32_t loss);

/* sum: sum of Y; mse_zero: mean of Y^2; mse_target: mean of (Y - target)^2, target [B,N] (NULL otherwise).
 * In fp64 from the outputs as the ranks hold them: rank 0's, or with a split y each rank's own features. */
int32_t bs_loss_value(uint32_t loss, const bs_case *c, const bs_case_result *result, const bs_source *target,
                      double *out_value, bs_error *err);
/* values: a rank's outputs [B, y_cols] of y's dtype become their gradients, each rounded to that dtype.
 * out_sum (may be NULL): the sum over them of y, or of the squares that the loss is the mean of. */
int32_t bs_loss_gradients(uint32_t loss, const bs_layer_spec *spec, const bs_case_rank *mine,
                          const bs_source *target, void *values, double *out_sum, bs_error *err);

/* A loss computed in the memory of Y, by the backend's loss_gradient (docs/ops.md). Used if the backend has
 * that op and Y is not a partial sum. */
typedef struct bs_device_loss {
  bs_plan *plan; /* NULL: the host takes the loss */
  bs_tensor target, loss;
} bs_device_loss;
/* y, dy: of all runs. */
int32_t bs_device_loss_open(bs_device_loss *device_loss, uint32_t loss, const bs_layer_spec *spec,
                            const bs_case_rank *mine, const bs_source *target, bs_rank *rank,
                            const bs_tensor *y, const bs_tensor *dy, bs_error *err);
/* dy becomes the gradient of y; out_dy: a copy in host memory. */
int32_t bs_device_loss_run(bs_device_loss *device_loss, bs_rank *rank, bs_tensor *y, bs_tensor *dy,
                           void *out_dy, double *out_sum, bs_error *err);
void bs_device_loss_close(bs_device_loss *device_loss, bs_rank *rank);
/* Dense values in host memory of the tensor's shape and dtype to the rank's device. */
int32_t bs_loss_upload(bs_rank *rank, bs_tensor *to, void *values, bs_error *err);

/* The output for a loss. If the ranks hold partial sums, it is their sum over ranks on every rank, as the
 * next layer would compute it; else the rank's own output. */

typedef struct bs_whole {
  bs_coll_plan *plan; /* NULL: y is the whole already */
  bs_tensor y;
} bs_whole;

int32_t bs_whole_open(bs_whole *whole, const bs_case *c, bs_rank *rank, bs_error *err);
/* Reads the whole y into host memory; this is a collective if y must be summed. */
int32_t bs_whole_read(bs_whole *whole, bs_rank *rank, const bs_tensor *y, void *out_values, bs_error *err);
void bs_whole_close(bs_whole *whole, bs_rank *rank);
#endif
