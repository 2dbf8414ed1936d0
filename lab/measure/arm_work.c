/* SPDX-License-Identifier: MIT
 * arm_work.c - see arm_work.h. */
#include "lab/measure/arm_work.h"

#include "core/base/dtype.h"

uint32_t bs_arm_work_flags(uint32_t work) {
  static const uint32_t flags[BS_ARM_WORKS_] = {0, BS_LAYER_BACKWARD, BS_LAYER_BACKWARD | BS_LAYER_SGD,
                                                BS_LAYER_BACKWARD | BS_LAYER_ADAMW};
  return work < BS_ARM_WORKS_ ? flags[work] : 0;
}

static int32_t read_constant(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                             void *out, int64_t out_stride, bs_error *err) {
  const bs_source *source = ctx;
  const int64_t count = cols ? cols->count : source->cols;
  (void)row;
  (void)err;
  for (int64_t i = 0; i < nrows; ++i)
    for (int64_t j = 0; j < count; ++j)
      bs_store_f64(dtype, out, i * out_stride + j, 0x1p-4 * (double)(1 + (i + j) % 3));
  return BS_OK;
}

int32_t bs_arm_work_take(bs_rank *rank, bs_layer *layer, const bs_layer_spec *s, const bs_tensor *x,
                         bs_tensor *y, bs_arm_tensors *t, bs_error *err) {
  if (t->work == BS_ARM_FORWARD) return BS_OK;
  const bs_rank_api *api = bs_rank_get_api();
  bs_ownership own = {.struct_size = sizeof own};
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = s->y_dtype, .rank = 2};
  bs_source constant = {.struct_size = sizeof constant,
                        .dtype = s->y_dtype,
                        .rows = y->dims[0],
                        .cols = y->dims[1],
                        .read = read_constant};
  constant.ctx = &constant;
  d.dims[0] = y->dims[0];
  d.dims[1] = y->dims[1];
  int32_t rc = bs_layer_owns(layer, &own, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t->dy, err);
  if (rc == BS_OK && d.dims[1] > 0) rc = api->tensor_read(rank, &constant, 0, NULL, &t->dy, err);
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
