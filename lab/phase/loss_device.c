/* SPDX-License-Identifier: MIT
 * loss_device.c - see loss.h: the loss and its gradient by the backend's own op, where it has one. */
#include <stdlib.h>
#include <string.h>

#include "core/plugin/registry.h"
#include "core/world/world.h"
#include "lab/error.h"
#include "lab/phase/loss.h"

enum { SUM = 0, SQUARES = 1 }; /* attrs[0] of loss_gradient */

static bs_tensor_desc desc_of(const bs_tensor *t) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = t->dtype, .rank = t->rank};
  memcpy(d.dims, t->dims, sizeof d.dims);
  memcpy(d.strides, t->strides, sizeof d.strides);
  return d;
}

static bs_tensor_desc f64_matrix(int64_t rows, int64_t cols) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F64, .rank = 2};
  d.dims[0] = rows;
  d.dims[1] = cols;
  return d;
}

/* A rank's features of the targets. */
static int32_t take_target(bs_device_loss *l, const bs_layer_spec *s, const bs_case_rank *mine,
                           const bs_source *target, bs_rank *rank, bs_error *err) {
  const bs_partition features = {.struct_size = sizeof features,
                                 .kind = BS_PARTITION_CONTIGUOUS,
                                 .total = s->N,
                                 .begin = mine->y_begin,
                                 .count = mine->y_cols};
  const int32_t rc = bs_case_tensor(rank, BS_F64, 2, s->B, mine->y_cols, &l->target, err);
  return rc == BS_OK ? bs_rank_get_api()->tensor_read(rank, target, 0, &features, &l->target, err) : rc;
}

int32_t bs_device_loss_open(bs_device_loss *l, uint32_t loss, const bs_layer_spec *s,
                            const bs_case_rank *mine, const bs_source *target, bs_rank *rank,
                            const bs_tensor *y, const bs_tensor *dy, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  memset(l, 0, sizeof *l);
  if (s->y_placement == BS_PARTIAL || s->B == 0 || mine->y_cols == 0) return BS_OK;
  const bs_tensor_desc of_y = desc_of(y), of_dy = desc_of(dy), of_loss = f64_matrix(s->B, 1);
  const bs_tensor_desc of_target = f64_matrix(s->B, mine->y_cols);
  const bs_tensor_desc *args[4] = {&of_y, loss == BS_LOSS_MSE_TARGET ? &of_target : NULL, &of_dy, &of_loss};
  bs_op_query q = {.struct_size = sizeof q, .op = "loss_gradient", .nargs = 4, .args = args};
  q.attrs[0] = loss == BS_LOSS_SUM ? SUM : SQUARES;
  q.attrs[1] = s->B * s->N;
  int32_t rc = bs_rank_get_api()->op_prepare(rank, &q, NULL, &l->plan, &why);
  if (rc == BS_UNSUPPORTED) return BS_OK; /* the host takes it */
  if (rc != BS_OK) {
    if (err != NULL) *err = why;
    return rc;
  }
  rc = bs_case_tensor(rank, BS_F64, 2, s->B, 1, &l->loss, err);
  return rc == BS_OK && args[1] != NULL ? take_target(l, s, mine, target, rank, err) : rc;
}

int32_t bs_device_loss_run(bs_device_loss *l, bs_rank *rank, bs_tensor *y, bs_tensor *dy, void *out_dy,
                           double *out_sum, bs_error *err) {
  bs_tensor *args[4] = {y, l->target.data != NULL ? &l->target : NULL, dy, &l->loss};
  const int64_t B = l->loss.dims[0];
  double *tokens = malloc((size_t)B * sizeof *tokens);
  if (tokens == NULL) return bs_no_memory(err, "the losses of %lld tokens", (long long)B);
  int32_t rc = bs_rank_get_api()->op_run(l->plan, args, 4, NULL, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, dy, out_dy, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &l->loss, tokens, err);
  double sum = 0.0;
  for (int64_t b = 0; rc == BS_OK && b < B; ++b) sum += tokens[b];
  free(tokens);
  if (out_sum) *out_sum = sum;
  return rc;
}

void bs_device_loss_close(bs_device_loss *l, bs_rank *rank) {
  const bs_rank_api *api = bs_rank_get_api();
  if (l->plan != NULL) api->op_release(l->plan);
  if (l->target.data != NULL) api->tensor_free(rank, &l->target);
  if (l->loss.data != NULL) api->tensor_free(rank, &l->loss);
  memset(l, 0, sizeof *l);
}
