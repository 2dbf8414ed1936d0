/* SPDX-License-Identifier: MIT
 * weights.c - a product of activations by a constant matrix becomes `matmul`, whose weight is packed. The
 * lowering makes `contract` of it where the matrix was no constant yet: a cast, a scale or a sum of constants
 * that the pass fold has computed since. Not in bf16: processors' products of bf16 take subnormal numbers as
 * zero, and sums that leave the range of f32 end otherwise than those of `contract`. Not of integers:
 * `matmul` has them for bytes alone, and the lowering knows those (product.c, quant.c). */
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"

/* The bias as the row [N] that matmul takes; *out_row GNONE: the bias is absent, or has another shape. */
static int32_t bias_row(graph *g, uint32_t bias, int64_t n, uint32_t *out_row, bs_error *err) {
  *out_row = GNONE;
  return bias != GNONE && match_row(g, bias, n) ? match_reshape(g, bias, 1, &n, out_row, err) : BS_OK;
}

static int32_t try_product(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t *out_changes,
                           bs_error *err) {
  const gnode old = g->nodes[id];
  const gvalue a = g->values[old.in[0]], b = g->values[old.in[1]];
  const int64_t k = a.dims[a.rank - 1], columns = b.dims[b.rank - 1];
  if (!graph_is_const(g, old.in[1])) return BS_OK;
  if (graph_count(&b) != k * columns || !bs_dtype_is_float(a.dtype) || a.dtype == BS_BF16) {
    gpass_miss(ctx, id,
               graph_count(&b) != k * columns ? "B is more than one matrix"
                                              : "a matrix of %s that was computed is not packed",
               bs_dtype_name(a.dtype));
    return BS_OK;
  }
  int64_t rows = 1;
  for (uint32_t i = 0; i + 1 < a.rank; i++) rows *= a.dims[i];
  const int64_t x_dims[2] = {rows, k}, y_dims[2] = {rows, columns}, w_dims[2] = {columns, k};
  const int64_t w_strides[2] = {b.strides[b.rank - 1], b.strides[b.rank - 2]};
  gnode n = match_node(GOP_MATMUL, 3, 1);
  n.origin = old.origin;
  n.activation = old.activation;
  n.accumulate = old.accumulate;
  int32_t rc = match_reshape(g, old.in[0], 2, x_dims, &n.in[0], err);
  if (rc != BS_OK) return rc;
  if (n.in[0] == GNONE || g->values[n.in[0]].strides[1] != 1) {
    gpass_miss(ctx, id, "rows of A have gaps");
    return BS_OK;
  }
  rc = bias_row(g, old.in[2], columns, &n.in[1], err);
  if (rc != BS_OK) return rc;
  if (old.in[2] != GNONE && n.in[1] == GNONE) {
    gpass_miss(ctx, id, "the bias is no row of %lld elements", (long long)columns);
    return BS_OK;
  }
  rc = graph_add_view(g, b.base, b.dtype, 2, w_dims, w_strides, b.offset, &n.weight, err);
  if (rc == BS_OK && old.numbers[0] != 1)
    rc = match_scaled_weight(g, n.weight, old.numbers[0], &n.weight, err);
  if (rc == BS_OK && n.weight == GNONE)
    gpass_miss(ctx, id, "alpha takes elements of B out of the normal range");
  if (rc != BS_OK || n.weight == GNONE) return rc;
  rc = match_reshape(g, old.out[0], 2, y_dims, &n.out[0], err);
  return rc == BS_OK ? gpass_replace(g, ctx, &n, &id, 1, out_changes, err) : rc;
}

int32_t gpass_weights(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (g->nodes[id].op != GOP_CONTRACT) continue;
    const int32_t rc = try_product(g, ctx, id, out_changes, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}
