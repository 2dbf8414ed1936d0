/* SPDX-License-Identifier: MIT
 * train_faults.c - what goes wrong on purpose while a layer is trained. Called by train.c. */
#include <math.h>
#include <stdlib.h>

#include "core/base/dtype.h"
#include "lab/error.h"
#include "lab/gate/activation.h"
#include "lab/phase/loss.h"
#include "lab/phase/train.h"

int bs_train_of_slope(uint32_t fault) {
  return fault == BS_TRAIN_SLOPE_LOST || fault == BS_TRAIN_SLOPE_AT_Y;
}

void bs_train_activate(uint32_t activation, void *values, int64_t count, uint32_t dtype) {
  for (int64_t i = 0; activation != BS_ACT_NONE && i < count; ++i)
    bs_store_f64(dtype, values, i, bs_activation_value(activation, bs_load_f64(dtype, values, i)));
}

void bs_train_slope_at_y(uint32_t activation, const void *y, void *dy, int64_t count, uint32_t dtype) {
  for (int64_t i = 0; i < count; ++i)
    bs_store_f64(dtype, dy, i,
                 bs_load_f64(dtype, dy, i) * bs_activation_slope_at(activation, bs_load_f64(dtype, y, i)));
}

/* By 0.25, against its gradient: where all have one sign (behind relu), AdamW's step along it would hardly be
 * longer. */
int32_t bs_train_decay_bias(bs_rank *rank, const bs_tensor *db, bs_error *err) {
  const int64_t n = db->dims[0];
  double *values = malloc((size_t)(n + 1) * sizeof *values);
  if (values == NULL) return bs_no_memory(err, "training");
  int32_t rc = bs_rank_copy_out(rank, db, values, err);
  for (int64_t i = 0; i < n; ++i) {
    const double g = bs_load_f64(db->dtype, values, i);
    bs_store_f64(db->dtype, values, i, g - copysign(0.25, g));
  }
  bs_tensor row = *db;
  row.rank = 2;
  row.dims[1] = n;
  row.dims[0] = row.strides[1] = 1;
  row.strides[0] = n > 0 ? n : 1;
  if (rc == BS_OK && n > 0) rc = bs_loss_upload(rank, &row, values, err);
  free(values);
  return rc;
}
