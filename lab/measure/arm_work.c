/* SPDX-License-Identifier: MIT
 * arm_work.c - see arm_work.h. */
#include "lab/measure/arm_work.h"

#include <stdlib.h>

#include "core/base/dtype.h"
#include "lab/case/loss.h"
#include "lab/error.h"

uint32_t bs_arm_work_flags(uint32_t work) {
  static const uint32_t flags[BS_ARM_WORKS_] = {0, BS_LAYER_BACKWARD, BS_LAYER_BACKWARD | BS_LAYER_SGD,
                                                BS_LAYER_BACKWARD | BS_LAYER_ADAMW};
  return work < BS_ARM_WORKS_ ? flags[work] : 0;
}

/* Fills a gradient of Y with numbers that every dtype has. */
static int32_t fill(bs_rank *rank, bs_tensor *dy, bs_error *err) {
  const int64_t rows = dy->dims[0], cols = dy->dims[1];
  char *values = malloc((size_t)(rows * cols) * BS_DTYPE_BYTES(dy->dtype) + 1);
  if (values == NULL) return bs_no_memory(err, "%lld x %lld gradients", (long long)rows, (long long)cols);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      bs_store_f64(dy->dtype, values, i * cols + j, 0x1p-4 * (double)(1 + (i + j) % 3));
  const int32_t rc = bs_loss_upload(rank, dy, values, err);
  free(values);
  return rc;
}

int32_t bs_arm_work_take(bs_rank *rank, bs_layer *layer, const bs_layer_spec *s, const bs_tensor *x,
                         bs_tensor *y, bs_arm_tensors *t, bs_error *err) {
  if (t->work == BS_ARM_FORWARD) return BS_OK;
  const bs_rank_api *api = bs_rank_get_api();
  bs_ownership own = {.struct_size = sizeof own};
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = s->y_dtype, .rank = 2};
  d.dims[0] = y->dims[0];
  d.dims[1] = y->dims[1];
  int32_t rc = bs_layer_owns(layer, &own, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t->dy, err);
  if (rc == BS_OK && !t->no_values) rc = fill(rank, &t->dy, err);
  d.dtype = s->x_dtype;
  d.dims[1] = x->dims[1];
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t->dx, err);
  if (rc == BS_OK && t->work == BS_ARM_BACKWARD) rc = bs_layer_forward(layer, x, y, NULL, err);
  if (rc != BS_OK || t->work == BS_ARM_SGD) return rc;
  d.dtype = bs_case_wide(s);
  d.dims[0] = own.row_count;
  d.dims[1] = own.columns ? own.columns->count : s->K;
  if (own.kept) d.dims[1] = (d.dims[1] + 3) / 4 * 2;
  return api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t->dw, err);
}

void bs_arm_work_free(bs_rank *rank, bs_arm_tensors *t) {
  bs_tensor *const all[] = {&t->dy, &t->dx, &t->dw};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; ++i)
    if (all[i]->data) bs_rank_get_api()->tensor_free(rank, all[i]);
}

int32_t bs_arm_work_once(bs_arm_tensors *t, bs_layer *layer, const bs_tensor *x, bs_tensor *y,
                         bs_error *err) {
  int32_t rc = t->work == BS_ARM_BACKWARD ? BS_OK : bs_layer_forward(layer, x, y, NULL, err);
  if (t->work == BS_ARM_FORWARD || rc != BS_OK) return rc;
  rc = bs_layer_backward(layer, x, &t->dy, &t->dx, t->dw.data ? &t->dw : NULL, NULL, NULL, err);
  if (t->work == BS_ARM_BACKWARD || rc != BS_OK) return rc;
  const int adamw = t->work == BS_ARM_ADAMW;
  const bs_step step = {.struct_size = sizeof step,
                        .optimizer = adamw ? BS_OPT_ADAMW : BS_OPT_SGD,
                        .t = 1,
                        .lr = 0.0,
                        .beta1 = 0.9,
                        .beta2 = 0.999,
                        .eps = 1e-8,
                        .dw = adamw ? &t->dw : NULL,
                        .x = x,
                        .dy = &t->dy};
  return bs_layer_step(layer, &step, NULL, err);
}
