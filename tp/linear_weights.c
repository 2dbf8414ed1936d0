/* SPDX-License-Identifier: MIT
 *
 * linear_weights.c - the weights of a layer, read back: the rank's own part, and the whole W on every rank.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/size.h"
#include "tp/linear.h"

int32_t bs_tp_linear_owns(bs_tp_linear *l, bs_ownership *out_ownership, bs_error *err) {
  if (l == NULL || out_ownership == NULL)
    return tp_null("bs_tp_linear_owns", "linear and out_ownership", err);
  return bs_layer_owns(l->layer, out_ownership, err);
}

int32_t bs_tp_linear_read_weights(bs_tp_linear *l, int64_t row, bs_tensor *out, bs_error *err) {
  if (l == NULL || out == NULL) return tp_null("bs_tp_linear_read_weights", "linear and out", err);
  const int32_t rc = tp_await_used(l->state, out, err);
  return rc == BS_OK ? bs_layer_read_weights(l->layer, row, out, err) : rc;
}

/* One own row into its places of the whole W. */
static int32_t place_row(const bs_tp_linear *l, int64_t row, const void *values, double *line,
                         bs_error *err) {
  const bs_ownership *o = &l->own;
  const bs_partition *c = o->columns;
  const int64_t columns = c != NULL ? c->count : l->spec.K;
  int64_t taken = 0;
  for (int64_t j = 0; j < columns; ++j) {
    uint8_t bits = 0xf;
    if (o->kept != NULL) {
      const int32_t rc = o->kept->read(o->kept->ctx, row, 1, j / 4, 1, &bits, 1, err);
      if (rc != BS_OK) return rc;
    }
    if ((bits >> (j % 4) & 1) == 0) continue;
    const int64_t at = c == NULL                            ? j
                       : c->kind == BS_PARTITION_CONTIGUOUS ? c->begin + j
                                                            : (int64_t)c->columns[j];
    line[at] = bs_load_f64(l->spec.w_dtype, values, taken++);
  }
  return BS_OK;
}

static int32_t place_own(bs_tp_linear *l, double *whole, bs_error *err) {
  bs_rank *rank = l->state->rank;
  bs_tensor line = {.struct_size = (uint32_t)sizeof line};
  if (l->shape.rows == 0 || l->shape.cols == 0) return BS_OK;
  void *values = malloc((size_t)l->shape.cols * BS_DTYPE_BYTES(l->spec.w_dtype));
  int32_t rc = values != NULL ? bs_tp_tensor_make(rank, l->spec.w_dtype, 1, l->shape.cols, &line, err)
                              : bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for a row");
  for (int64_t row = 0; rc == BS_OK && row < l->shape.rows; ++row) {
    const int64_t at = l->row_map != NULL ? (int64_t)l->row_map[row] : l->own.row_begin + row;
    rc = bs_layer_read_weights(l->layer, row, &line, err);
    if (rc == BS_OK) rc = bs_rank_copy_out(rank, &line, values, err);
    if (rc == BS_OK) rc = place_row(l, row, values, whole + at * l->spec.K, err);
  }
  bs_tp_tensor_free(rank, &line);
  free(values);
  return rc;
}

/* Each weight is one rank's, and zero elsewhere: the sum is exact. */
int32_t bs_tp_linear_gather_weights(bs_tp_linear *l, double *out_host, bs_error *err) {
  if (l == NULL || out_host == NULL)
    return tp_null("bs_tp_linear_gather_weights", "linear and out_host", err);
  const bs_tp_place *p = &l->state->place;
  uint64_t n = 0;
  if (!bs_mul_u64((uint64_t)l->spec.N, (uint64_t)l->spec.K, &n) || n > SIZE_MAX / sizeof(double))
    return bs_error_set(err, BS_OVERFLOW, "BS-TP-LINEAR", "the size of W overflows");
  memset(out_host, 0, (size_t)n * sizeof(double));
  const int32_t rc = place_own(l, out_host, err);
  if (rc != BS_OK || p->tensor_size == 1) return rc;
  const bs_collective what = {.struct_size = (uint32_t)sizeof what,
                              .kind = BS_COLL_ALL_REDUCE,
                              .dtype_in = BS_F64,
                              .rows = 1,
                              .count = n,
                              .site = "tp.gather_weights",
                              .group = p->tensor_group};
  return bs_rank_collective_host(l->state->rank, &what, out_host, n, out_host, n, err);
}
