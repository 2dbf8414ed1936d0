/* SPDX-License-Identifier: MIT
 * help_value.c - what rules ask of values, attributes and constants. */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/lower/frame.h"

const gvalue *lower_value(const lower_ctx *c, uint32_t value) {
  return &c->g->values[value];
}
uint32_t lower_dtype(const lower_ctx *c, uint32_t value) {
  return c->g->values[value].dtype;
}
uint32_t lower_rank(const lower_ctx *c, uint32_t value) {
  return c->g->values[value].rank;
}
int lower_is_const(const lower_ctx *c, uint32_t value) {
  return graph_is_const(c->g, value);
}

/* ---- attributes ------------------------------------------------------------------------------ */

int64_t lower_int(const gmodel_node *node, const char *attr, int64_t otherwise) {
  const bs_attr *a = gmodel_attr(node, attr);
  return a != NULL && a->type == BS_ATTR_INT ? a->i : otherwise;
}

double lower_float(const gmodel_node *node, const char *attr, double otherwise) {
  const bs_attr *a = gmodel_attr(node, attr);
  return a != NULL && a->type == BS_ATTR_FLOAT ? a->f : otherwise;
}

const char *lower_text(const gmodel_node *node, const char *attr, const char *otherwise) {
  const bs_attr *a = gmodel_attr(node, attr);
  return a != NULL && a->type == BS_ATTR_TEXT ? a->text : otherwise;
}

const bs_attr *lower_ints(const gmodel_node *node, const char *attr) {
  const bs_attr *a = gmodel_attr(node, attr);
  return a != NULL && a->type == BS_ATTR_INTS ? a : NULL;
}

int32_t lower_axis(lower_ctx *c, const gmodel_node *node, int64_t axis, uint32_t rank, uint32_t *out_axis,
                   bs_error *err) {
  if (axis < -(int64_t)rank || axis >= (int64_t)rank)
    return lower_bad(c, node, err, "axis %lld of a value with %u dimensions", (long long)axis, rank);
  *out_axis = (uint32_t)(axis < 0 ? axis + rank : axis);
  return BS_OK;
}

/* ---- constants ------------------------------------------------------------------------------- */

/* The dense elements of a constant, to be freed. */
static int32_t read_elements(lower_ctx *c, const gmodel_node *node, uint32_t value, const char *what,
                             uint32_t max, void **out_data, bs_error *err) {
  const gvalue *v = &c->g->values[value];
  if (!graph_is_const(c->g, value))
    return lower_unsupported(c, node, 0, err, "%s must be known before the run, and they are computed by it",
                             what);
  const int64_t count = graph_count(v);
  if (count > max)
    return lower_unsupported(c, node, 0, err, "%s has %lld elements, at most %u are supported", what,
                             (long long)count, max);
  *out_data = malloc((size_t)count * BS_DTYPE_BYTES(v->dtype) + 1u);
  if (*out_data == NULL) {
    bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a constant");
    return BS_NO_MEMORY;
  }
  return graph_read_const(c->g, value, *out_data, err);
}

static int64_t int_at(uint32_t dtype, const void *data, int64_t i) {
  switch (dtype) {
    case BS_I64:
      return ((const int64_t *)data)[i];
    case BS_I32:
      return ((const int32_t *)data)[i];
    case BS_I8:
      return ((const int8_t *)data)[i];
    default:
      return ((const uint8_t *)data)[i];
  }
}

int32_t lower_read_ints(lower_ctx *c, const gmodel_node *node, uint32_t value, const char *what, int64_t *out,
                        uint32_t max, uint32_t *out_count, bs_error *err) {
  const uint32_t dtype = lower_dtype(c, value);
  if (bs_dtype_is_float(dtype))
    return lower_bad(c, node, err, "%s is %s, no integer", what, bs_dtype_name(dtype));
  void *data = NULL;
  const int32_t rc = read_elements(c, node, value, what, max, &data, err);
  const int64_t count = graph_count(&c->g->values[value]);
  for (int64_t i = 0; rc == BS_OK && data != NULL && i < count; i++) out[i] = int_at(dtype, data, i);
  if (rc == BS_OK) *out_count = (uint32_t)count;
  free(data);
  return rc;
}

int32_t lower_read_floats(lower_ctx *c, const gmodel_node *node, uint32_t value, const char *what,
                          double *out, uint32_t max, uint32_t *out_count, bs_error *err) {
  void *data = NULL;
  const uint32_t dtype = lower_dtype(c, value);
  const int32_t rc = read_elements(c, node, value, what, max, &data, err);
  const int64_t count = graph_count(&c->g->values[value]);
  for (int64_t i = 0; rc == BS_OK && i < count; i++) out[i] = bs_load_f64(dtype, data, i);
  if (rc == BS_OK) *out_count = (uint32_t)count;
  free(data);
  return rc;
}

int32_t lower_ask(const lower_ctx *c, uint32_t value, bs_error *err) {
  return graph_ask(c->g, value, err);
}

void lower_keep_computed(lower_ctx *c, int on) {
  c->keeps = (uint32_t)on;
}

int32_t lower_keep(lower_ctx *c, int64_t number, uint32_t kind, bs_error *err) {
  graph *g = c->g;
  if (!ARRAY_GROW(g->kept, g->n_kept, g->cap_kept))
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to lower the model");
  g->kept[g->n_kept++] = (gkept){number, kind};
  return BS_OK;
}

int32_t lower_const_model(lower_ctx *c, uint32_t dtype, uint32_t rank, const int64_t *dims, const void *data,
                          uint32_t *out_value, bs_error *err) {
  return graph_add_root(c->g, GV_CONST, dtype, rank, dims, data, NULL, out_value, err);
}

int32_t lower_const(lower_ctx *c, uint32_t dtype, uint32_t rank, const int64_t *dims, const void *data,
                    uint32_t *out_value, bs_error *err) {
  uint64_t bytes = 0;
  if (!gmodel_shape_bytes(dtype, rank, dims, &bytes) || bytes + c->g->data_bytes > c->fold_limit)
    return bs_error_set(err, BS_OVERFLOW, "BS-GRAPH-SIZE", "a computed constant is too large");
  void *copy = graph_data(c->g, bytes);
  if (copy == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a constant");
  if (bytes > 0) memcpy(copy, data, bytes);
  return lower_const_model(c, dtype, rank, dims, copy, out_value, err);
}

int32_t lower_const_scalar(lower_ctx *c, uint32_t dtype, double value, uint32_t *out_value, bs_error *err) {
  unsigned char data[8] = {0};
  bs_convert(dtype, data, BS_F64, &value, 1);
  return lower_const(c, dtype, 0, NULL, data, out_value, err);
}

int32_t lower_const_ints(lower_ctx *c, uint32_t dtype, uint32_t count, const int64_t *values,
                         uint32_t *out_value, bs_error *err) {
  const int64_t dims[1] = {count};
  if (dtype == BS_I64) return lower_const(c, BS_I64, 1, dims, values, out_value, err);
  int32_t *narrow = malloc(((size_t)count + 1u) * sizeof *narrow);
  if (narrow == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a constant");
  for (uint32_t i = 0; i < count; i++) narrow[i] = (int32_t)values[i];
  const int32_t rc = lower_const(c, BS_I32, 1, dims, narrow, out_value, err);
  free(narrow);
  return rc;
}
