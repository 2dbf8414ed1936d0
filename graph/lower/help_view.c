/* SPDX-License-Identifier: MIT
 * help_view.c - movement without a kernel op: views, and broadcasting by them. */
#include <string.h>

#include "core/base/error.h"
#include "graph/lower/frame.h"

int32_t lower_view_again(lower_ctx *c, uint32_t root, uint32_t rank, const int64_t *dims,
                         const int64_t *strides, int64_t offset, uint32_t *out_value, bs_error *err) {
  const uint32_t n = c->g->n_values;
  for (uint32_t back = 1; back <= 64 && back <= n; back++) {
    const gvalue *v = &c->g->values[n - back];
    if (v->kind != GV_VIEW || v->base != root || v->rank != rank || v->offset != offset ||
        v->producer != GNONE)
      continue;
    if (memcmp(v->dims, dims, rank * sizeof *dims) != 0 ||
        memcmp(v->strides, strides, rank * sizeof *dims) != 0)
      continue;
    *out_value = n - back;
    return BS_OK;
  }
  return graph_add_view(c->g, root, c->g->values[root].dtype, rank, dims, strides, offset, out_value, err);
}

int32_t lower_view(lower_ctx *c, uint32_t value, uint32_t rank, const int64_t *dims, const int64_t *strides,
                   int64_t offset, uint32_t *out_value, bs_error *err) {
  return graph_add_view(c->g, value, c->g->values[value].dtype, rank, dims, strides, offset, out_value, err);
}

static int same_dims(const gvalue *v, uint32_t rank, const int64_t *dims) {
  return v->rank == rank && (rank == 0 || memcmp(v->dims, dims, rank * sizeof *dims) == 0);
}

int32_t lower_reshape(lower_ctx *c, uint32_t value, uint32_t rank, const int64_t *dims, uint32_t *out_value,
                      bs_error *err) {
  gvalue v = c->g->values[value];
  int64_t strides[BS_MAX_DIMS] = {0};
  uint64_t bytes = 0;
  if (same_dims(&v, rank, dims)) {
    *out_value = value;
    return BS_OK;
  }
  gvalue seen = {.rank = (uint8_t)rank};
  if (rank > BS_MAX_DIMS)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-RANK",
                        "a shape has %u dimensions, at most %d are supported", rank, BS_MAX_DIMS);
  for (uint32_t i = 0; i < rank; i++) seen.dims[i] = dims[i];
  if (!gmodel_shape_bytes(v.dtype, rank, dims, &bytes) || graph_count(&seen) != graph_count(&v))
    return bs_error_set(err, BS_INPUT, "BS-GRAPH-SHAPE",
                        "a value of %lld elements cannot get another number of them",
                        (long long)graph_count(&v));
  if (!graph_reshape_strides(v.rank, v.dims, v.strides, rank, dims, strides)) {
    uint32_t copy;
    const int32_t rc = lower_copy(c, value, &copy, err);
    if (rc != BS_OK) return rc;
    v = c->g->values[copy];
    graph_dense_strides(rank, dims, strides);
  }
  return lower_view_again(c, v.base, rank, dims, strides, v.offset, out_value, err);
}

int32_t lower_transpose(lower_ctx *c, uint32_t value, const uint32_t *perm, uint32_t *out_value,
                        bs_error *err) {
  const gvalue v = c->g->values[value];
  int64_t dims[BS_MAX_DIMS] = {0}, strides[BS_MAX_DIMS] = {0};
  uint32_t seen = 0;
  for (uint32_t i = 0; i < v.rank; i++) {
    if (perm[i] >= v.rank || seen >> perm[i] & 1u)
      return bs_error_set(err, BS_INPUT, "BS-GRAPH-SHAPE", "the order of a transpose is no permutation");
    seen |= 1u << perm[i];
    dims[i] = v.dims[perm[i]];
    strides[i] = v.strides[perm[i]];
  }
  return lower_view_again(c, v.base, v.rank, dims, strides, v.offset, out_value, err);
}

int32_t lower_slice(lower_ctx *c, uint32_t value, uint32_t axis, int64_t begin, int64_t count, int64_t step,
                    uint32_t *out_value, bs_error *err) {
  const gvalue v = c->g->values[value];
  int64_t dims[BS_MAX_DIMS], strides[BS_MAX_DIMS];
  if (axis >= v.rank || begin < 0 || count < 0 || step < 1 ||
      (count > 0 && (begin >= v.dims[axis] || (count - 1) > (v.dims[axis] - 1 - begin) / step)))
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-SLICE", "a slice reaches beyond its value");
  memcpy(dims, v.dims, sizeof dims);
  memcpy(strides, v.strides, sizeof strides);
  dims[axis] = count;
  if (count > 1) strides[axis] *= step;
  const int64_t offset = count > 0 && graph_count(&v) > 0 ? v.offset + begin * v.strides[axis] : v.offset;
  return lower_view_again(c, v.base, v.rank, dims, strides, offset, out_value, err);
}

int32_t lower_expand(lower_ctx *c, const gmodel_node *node, uint32_t value, uint32_t rank,
                     const int64_t *dims, uint32_t *out_value, bs_error *err) {
  const gvalue v = c->g->values[value];
  int64_t strides[BS_MAX_DIMS] = {0};
  if (same_dims(&v, rank, dims)) {
    *out_value = value;
    return BS_OK;
  }
  if (rank < v.rank || rank > BS_MAX_DIMS)
    return lower_bad(c, node, err, "a value of %u dimensions cannot be broadcast to %u", v.rank, rank);
  for (uint32_t i = 0; i < v.rank; i++) {
    const uint32_t at = rank - v.rank + i;
    if (v.dims[i] == dims[at])
      strides[at] = v.strides[i];
    else if (v.dims[i] != 1)
      return lower_bad(c, node, err, "dimension %u of %lld cannot be broadcast to %lld", i,
                       (long long)v.dims[i], (long long)dims[at]);
  }
  return lower_view_again(c, v.base, rank, dims, strides, v.offset, out_value, err);
}

int32_t lower_broadcast(lower_ctx *c, const gmodel_node *node, const uint32_t *values, uint32_t n,
                        uint32_t *out_rank, int64_t *out_dims, bs_error *err) {
  uint32_t rank = 0;
  for (uint32_t k = 0; k < n; k++)
    if (values[k] != GNONE && c->g->values[values[k]].rank > rank) rank = c->g->values[values[k]].rank;
  for (uint32_t i = 0; i < rank; i++) out_dims[i] = 1;
  for (uint32_t k = 0; k < n; k++) {
    if (values[k] == GNONE) continue;
    const gvalue *v = &c->g->values[values[k]];
    for (uint32_t i = 0; i < v->rank; i++) {
      int64_t *d = &out_dims[rank - v->rank + i];
      if (v->dims[i] == 1 || v->dims[i] == *d) continue;
      if (*d != 1)
        return lower_bad(c, node, err,
                         "its inputs of sizes %lld and %lld at dimension %u cannot be broadcast",
                         (long long)*d, (long long)v->dims[i], rank - v->rank + i);
      *d = v->dims[i];
    }
  }
  *out_rank = rank;
  return BS_OK;
}

int32_t lower_argument(lower_ctx *c, uint32_t value, uint32_t rank, uint32_t fixed, uint32_t *out_value,
                       bs_error *err) {
  const gvalue v = c->g->values[value];
  int64_t dims[BS_MAX_DIMS] = {0}, strides[BS_MAX_DIMS] = {0};
  if (v.rank > rank)
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-RULE", "an argument has too many dimensions");
  int same = v.rank == rank;
  for (uint32_t i = 0; i < rank; i++) {
    const uint32_t pad = rank - v.rank;
    dims[i] = i < pad ? 1 : v.dims[i - pad];
    strides[i] = i < pad ? 0 : v.strides[i - pad];
    if (dims[i] > 1 && strides[i] == 0 && i + fixed < rank) {
      dims[i] = 1;
      same = 0;
    }
    if (dims[i] == 1) strides[i] = 1; /* one spelling of what has no stride */
  }
  if (same) {
    *out_value = value;
    return BS_OK;
  }
  return lower_view_again(c, v.base, rank, dims, strides, v.offset, out_value, err);
}
