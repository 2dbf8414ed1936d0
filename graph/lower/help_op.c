/* SPDX-License-Identifier: MIT
 * help_op.c - emits kernel ops: an op over constants only is computed immediately, others become nodes. */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/lower/frame.h"

/* ---- constants ------------------------------------------------------------------------------- */

static int over_constants(const lower_ctx *c, const gnode *n) {
  if (c->options->folder.run == NULL || graph_is_packed(n->op) || c->ports) return 0;
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] != GNONE && !graph_is_const(c->g, n->in[i])) return 0;
  return 1;
}

/* Shape arithmetic is computed now: integers, and floats of a few elements. What is larger is left to the
 * pass fold, or to the run. */
enum { FEW = 64, MOST_BYTES = 16 << 20 };

static int worth_it(const lower_ctx *c, const gnode *n) {
  uint64_t out = 0;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (n->out[i] == GNONE) continue;
    const gvalue *root = &c->g->values[c->g->values[n->out[i]].base];
    if (bs_dtype_is_float(root->dtype) && graph_count(root) > FEW) return 0;
    out += graph_bytes(root);
  }
  return out <= MOST_BYTES && out <= c->fold_limit && c->g->data_bytes <= c->fold_limit - out;
}

/* Memory of the outputs' roots, given once. *out_part 1: a root is written in parts. */
static int32_t give_memory(lower_ctx *c, const gnode *n, void **data, int *out_part, bs_error *err) {
  *out_part = 0;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (n->out[i] == GNONE) continue;
    const gvalue *v = &c->g->values[n->out[i]];
    gvalue *root = &c->g->values[v->base];
    if (root->data == NULL) root->data = graph_data(c->g, graph_bytes(root));
    if (root->data == NULL)
      return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a constant");
    if (v->kind == GV_VIEW) *out_part = 1;
    data[i] = (unsigned char *)root->data + (uint64_t)v->offset * BS_DTYPE_BYTES(v->dtype);
  }
  return BS_OK;
}

static int32_t remember_part(lower_ctx *c, uint32_t node, uint32_t root, int computed, bs_error *err) {
  if (!ARRAY_GROW(c->parts, c->n_parts, c->cap_parts))
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to lower the model");
  c->parts[c->n_parts++] = (lower_part){node, root, (uint32_t)computed};
  return BS_OK;
}

/* *out_done 1: the node is computed and its outputs are constants, or parts of one to be. */
static int32_t compute(lower_ctx *c, const gnode *n, int *out_done, int *out_part, bs_error *err) {
  void *data[GNODE_OUT] = {NULL};
  *out_done = *out_part = 0;
  if (!over_constants(c, n) || !worth_it(c, n)) return BS_OK;
  const lower_folder *folder = &c->options->folder;
  const int keeps = c->keeps && folder->keep != NULL;
  int32_t rc = keeps ? BS_OK : give_memory(c, n, data, out_part, err);
  if (rc != BS_OK) return rc;
  bs_error why = BS_ERROR_INIT;
  rc = keeps ? folder->keep(folder->user, c->g, n, data, &why)
             : folder->run(folder->user, c->g, n, data, &why);
  if (rc != BS_OK && rc != BS_UNSUPPORTED && rc != BS_UNAVAILABLE && rc != BS_NOT_FOUND) {
    if (err != NULL) *err = why;
    return rc;
  }
  *out_done = rc == BS_OK;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (n->out[i] == GNONE) continue;
    gvalue *v = &c->g->values[n->out[i]];
    if (v->kind != GV_TEMP) continue;
    if (keeps) v->data = data[i];
    if (*out_done)
      v->kind = GV_CONST;
    else
      v->data = NULL;
  }
  return BS_OK;
}

void lower_settle_parts(lower_ctx *c, uint32_t from) {
  for (uint32_t i = from; i < c->n_parts; i++) {
    const uint32_t root = c->parts[i].root;
    int all = root != GNONE;
    for (uint32_t k = from; k < c->n_parts && all; k++)
      if (c->parts[k].root == root) all = (int)c->parts[k].computed;
    for (uint32_t k = i; k < c->n_parts; k++) {
      if (c->parts[k].root != root || root == GNONE) continue;
      if (all) graph_remove_node(c->g, c->parts[k].node);
      c->parts[k].root = GNONE;
    }
    if (root == GNONE) continue;
    if (all)
      c->g->values[root].kind = GV_CONST;
    else
      c->g->values[root].data = NULL;
  }
  c->n_parts = from;
}

/* In a descriptor strides that are all zero mean a dense value: one element seen many times is copied, and a
 * value without elements gets the strides of a dense one. */
static int32_t without_zero_strides(lower_ctx *c, uint32_t *io_value, bs_error *err) {
  const gvalue v = c->g->values[*io_value];
  int all = graph_count(&v) != 1;
  for (uint32_t i = 0; i < v.rank && all; i++) all = v.strides[i] == 0;
  if (!all) return BS_OK;
  if (graph_count(&v) > 1) return lower_copy(c, *io_value, io_value, err);
  int64_t strides[BS_MAX_DIMS] = {0};
  graph_dense_strides(v.rank, v.dims, strides);
  return lower_view_again(c, v.base, v.rank, v.dims, strides, v.offset, io_value, err);
}

int32_t lower_emit(lower_ctx *c, const gnode *node, bs_error *err) {
  int done = 0, part = 0;
  gnode n = *node;
  int32_t rc = BS_OK;
  n.origin = c->origin;
  for (uint32_t i = 0; i < n.n_in && rc == BS_OK && n.op != GOP_MAP; i++)
    if (n.in[i] != GNONE) rc = without_zero_strides(c, &n.in[i], err);
  if (rc == BS_OK) rc = compute(c, &n, &done, &part, err);
  if (rc != BS_OK || (done && !part)) return rc;
  uint32_t id = GNONE;
  rc = graph_add_node(c->g, &n, GNONE, &id, err);
  for (uint32_t i = 0; i < n.n_out && rc == BS_OK; i++)
    if (n.out[i] != GNONE && c->g->values[n.out[i]].kind == GV_VIEW)
      rc = remember_part(c, id, c->g->values[n.out[i]].base, done, err);
  return rc;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static gnode node_of(uint32_t op, uint32_t n_in, uint32_t n_out) {
  gnode n = {
      .op = (uint16_t)op, .n_in = (uint8_t)n_in, .n_out = (uint8_t)n_out, .weight = GNONE, .expr = GNONE};
  for (uint32_t i = 0; i < GNODE_IN; i++) n.in[i] = GNONE;
  for (uint32_t i = 0; i < GNODE_OUT; i++) n.out[i] = GNONE;
  return n;
}

/* The last dimension without gaps, as kernels of rows want it. */
static int32_t with_dense_rows(lower_ctx *c, uint32_t value, uint32_t *out_value, bs_error *err) {
  const gvalue *v = &c->g->values[value];
  *out_value = value;
  if (v->rank == 0 || v->dims[v->rank - 1] <= 1 || v->strides[v->rank - 1] == 1) return BS_OK;
  return lower_copy(c, value, out_value, err);
}

int32_t lower_normalize(lower_ctx *c, uint32_t kind, double eps, uint32_t x, uint32_t add, uint32_t gamma,
                        uint32_t beta, uint32_t dtype, uint32_t *out_y, uint32_t *out_sum, bs_error *err) {
  const gvalue v = c->g->values[x];
  gnode n = node_of(GOP_NORMALIZE, 4, 2);
  n.attrs[0] = kind;
  n.numbers[0] = eps;
  n.in[2] = gamma;
  n.in[3] = beta;
  int32_t rc = with_dense_rows(c, x, &n.in[0], err);
  if (rc == BS_OK && add != GNONE) rc = lower_argument(c, add, v.rank, 0, &n.in[1], err);
  if (rc == BS_OK) rc = lower_temp(c, dtype != 0 ? dtype : v.dtype, v.rank, v.dims, out_y, err);
  n.out[0] = *out_y;
  if (rc == BS_OK && out_sum != NULL) {
    rc = lower_temp(c, v.dtype, v.rank, v.dims, out_sum, err);
    n.out[1] = *out_sum;
  }
  return rc == BS_OK ? lower_emit(c, &n, err) : rc;
}

int32_t lower_attention(lower_ctx *c, const lower_attention_args *args, uint32_t *out_y, bs_error *err) {
  gnode n = node_of(GOP_ATTENTION, 6, 2);
  int32_t rc = with_dense_rows(c, args->q, &n.in[0], err);
  if (rc == BS_OK) rc = with_dense_rows(c, args->k, &n.in[1], err);
  if (rc == BS_OK) rc = with_dense_rows(c, args->v, &n.in[2], err);
  if (rc == BS_OK && args->mask != GNONE) {
    const gvalue *m = &c->g->values[args->mask];
    uint32_t mask = args->mask;
    if (m->rank > 0 && m->strides[m->rank - 1] != 0) rc = with_dense_rows(c, mask, &mask, err);
    if (rc == BS_OK) rc = lower_argument(c, mask, 4, 0, &n.in[3], err);
  }
  if (rc != BS_OK) return rc;
  n.in[4] = args->kv_len;
  n.attrs[0] = args->causal;
  n.attrs[1] = args->window_left < 0 ? 0 : args->window_left + 1;
  n.attrs[2] = args->window_right < 0 ? 0 : args->window_right + 1;
  n.numbers[0] = args->scale;
  n.numbers[1] = args->softcap;
  const gvalue q = c->g->values[args->q], v = c->g->values[args->v];
  if (q.rank != 4 || v.rank != 4)
    return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-RULE", "attention has inputs of rank %u and %u", q.rank,
                        v.rank);
  const int64_t dims[4] = {q.dims[0], q.dims[1], q.dims[2], v.dims[3]};
  rc = lower_temp(c, args->dtype != 0 ? args->dtype : q.dtype, 4, dims, out_y, err);
  n.out[0] = *out_y;
  return rc == BS_OK ? lower_emit(c, &n, err) : rc;
}

int32_t lower_contract(lower_ctx *c, uint32_t a, uint32_t b, uint32_t bias, double alpha, uint32_t activation,
                       uint32_t dtype, uint32_t *out_y, bs_error *err) {
  const gvalue va = c->g->values[a], vb = c->g->values[b];
  const uint32_t rank = va.rank > vb.rank ? va.rank : vb.rank;
  if (va.rank < 2 || vb.rank < 2 || va.dims[va.rank - 1] != vb.dims[vb.rank - 2])
    return bs_error_set(err, BS_INPUT, "BS-GRAPH-SHAPE", "a product of %lld columns with %lld rows",
                        (long long)va.dims[va.rank > 0 ? va.rank - 1 : 0],
                        (long long)vb.dims[vb.rank > 1 ? vb.rank - 2 : 0]);
  gnode n = node_of(GOP_CONTRACT, 3, 1);
  n.numbers[0] = alpha;
  n.activation = activation;
  int64_t dims[BS_MAX_DIMS] = {0};
  for (uint32_t i = 0; i + 2 < rank; i++) {
    const int64_t da = i + va.rank < rank ? 1 : va.dims[i + va.rank - rank];
    const int64_t db = i + vb.rank < rank ? 1 : vb.dims[i + vb.rank - rank];
    if (da != db && da != 1 && db != 1)
      return bs_error_set(err, BS_INPUT, "BS-GRAPH-SHAPE", "a product of %lld matrices with %lld",
                          (long long)da, (long long)db);
    dims[i] = da == 1 ? db : da;
  }
  dims[rank - 2] = va.dims[va.rank - 2];
  dims[rank - 1] = vb.dims[vb.rank - 1];
  int32_t rc = lower_argument(c, a, rank, 2, &n.in[0], err);
  if (rc == BS_OK) rc = lower_argument(c, b, rank, 2, &n.in[1], err);
  if (rc == BS_OK && bias != GNONE) rc = lower_argument(c, bias, rank, 0, &n.in[2], err);
  if (rc == BS_OK) rc = lower_temp(c, dtype, rank, dims, out_y, err);
  n.out[0] = *out_y;
  return rc == BS_OK ? lower_emit(c, &n, err) : rc;
}

int32_t lower_matmul(lower_ctx *c, uint32_t x, uint32_t weight, uint32_t bias, uint32_t activation,
                     uint32_t dtype, uint32_t *out_y, bs_error *err) {
  const gvalue v = c->g->values[x], w = c->g->values[weight];
  if (v.rank == 0 || w.rank != 2 || !graph_is_const(c->g, weight) || v.dims[v.rank - 1] != w.dims[1])
    return bs_error_set(err, BS_INPUT, "BS-GRAPH-SHAPE",
                        "a product with a weight of %u dimensions and %lld columns", w.rank,
                        (long long)(w.rank == 2 ? w.dims[1] : 0));
  int64_t dims[BS_MAX_DIMS] = {0};
  for (uint32_t i = 0; i < v.rank; i++) dims[i] = v.dims[i];
  dims[v.rank - 1] = w.dims[0];
  int64_t rows = 1;
  for (uint32_t i = 0; i + 1 < v.rank; i++) rows *= v.dims[i];
  const int64_t flat[2] = {rows, v.dims[v.rank - 1]}, out_flat[2] = {rows, w.dims[0]};
  gnode n = node_of(GOP_MATMUL, 3, 1);
  n.weight = weight;
  n.activation = activation;
  n.in[1] = bias;
  uint32_t flat_x = x, flat_y;
  int32_t rc = with_dense_rows(c, x, &flat_x, err);
  if (rc == BS_OK) rc = lower_reshape(c, flat_x, 2, flat, &n.in[0], err);
  if (rc == BS_OK) rc = lower_temp(c, dtype != 0 ? dtype : v.dtype, 2, out_flat, &flat_y, err);
  if (rc != BS_OK) return rc;
  n.out[0] = flat_y;
  rc = lower_emit(c, &n, err);
  return rc == BS_OK ? lower_reshape(c, flat_y, v.rank, dims, out_y, err) : rc;
}

int32_t lower_reduce(lower_ctx *c, uint32_t kind, uint32_t x, uint32_t axes, double factor, int last,
                     uint32_t dtype, uint32_t *out_y, bs_error *err) {
  const gvalue v = c->g->values[x];
  gnode n = node_of(GOP_REDUCE, 1, 1);
  n.in[0] = x;
  n.attrs[0] = kind;
  n.numbers[0] = factor;
  int64_t dims[BS_MAX_DIMS] = {0};
  for (uint32_t i = 0; i < v.rank; i++) dims[i] = axes >> i & 1u ? 1 : v.dims[i];
  if (kind == BS_FOLD_ARGMAX || kind == BS_FOLD_ARGMIN) {
    uint32_t axis = 0;
    while (axis < v.rank && !(axes >> axis & 1u)) axis++;
    n.attrs[1] = axis;
    n.attrs[2] = last != 0;
  }
  const int32_t rc = lower_temp(c, dtype, v.rank, dims, out_y, err);
  n.out[0] = *out_y;
  return rc == BS_OK ? lower_emit(c, &n, err) : rc;
}

int32_t lower_cumsum(lower_ctx *c, uint32_t x, uint32_t axis, int exclusive, int reverse, uint32_t *out_y,
                     bs_error *err) {
  const gvalue v = c->g->values[x];
  gnode n = node_of(GOP_REDUCE, 1, 1);
  n.in[0] = x;
  n.attrs[0] = BS_FOLD_CUMSUM;
  n.attrs[1] = axis;
  n.attrs[2] = (exclusive ? 1 : 0) | (reverse ? 2 : 0);
  n.numbers[0] = 1;
  const int32_t rc = lower_temp(c, v.dtype, v.rank, v.dims, out_y, err);
  n.out[0] = *out_y;
  return rc == BS_OK ? lower_emit(c, &n, err) : rc;
}

static int32_t take_dims(const gvalue *d, const gvalue *x, uint32_t kind, uint32_t axis, uint32_t batch_dims,
                         uint32_t *out_rank, int64_t *dims, bs_error *err) {
  uint32_t n = 0, from = axis + 1u;
  const uint32_t tuple = x->rank > 0 ? (uint32_t)x->dims[x->rank - 1] : 0;
  *out_rank = x->rank;
  for (uint32_t i = 0; i < x->rank && kind == BS_INDEX_ELEMENTS; i++) dims[i] = x->dims[i];
  if (kind == BS_INDEX_ELEMENTS) return BS_OK;
  uint32_t index_dims = x->rank;
  if (kind == BS_INDEX_TUPLES) {
    index_dims = x->rank - 1u;
    from = batch_dims + tuple;
    axis = 0;
  }
  if (from > d->rank || axis + index_dims + d->rank - from > BS_MAX_DIMS)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-RANK",
                        "an index gives a value of more than %d dimensions", BS_MAX_DIMS);
  for (uint32_t i = 0; i < axis; i++) dims[n++] = d->dims[i];
  for (uint32_t i = 0; i < index_dims; i++) dims[n++] = x->dims[i];
  for (uint32_t i = from; i < d->rank; i++) dims[n++] = d->dims[i];
  *out_rank = n;
  return BS_OK;
}

int32_t lower_take(lower_ctx *c, uint32_t kind, uint32_t data, uint32_t index, uint32_t axis,
                   uint32_t batch_dims, uint32_t *out_y, bs_error *err) {
  const gvalue d = c->g->values[data], x = c->g->values[index];
  int64_t dims[BS_MAX_DIMS] = {0};
  uint32_t rank = 0;
  if (kind == BS_INDEX_TUPLES && (x.rank == 0 || x.dims[x.rank - 1] < 0 || x.dims[x.rank - 1] > BS_MAX_DIMS))
    return bs_error_set(err, BS_INPUT, "BS-GRAPH-SHAPE", "an index of %u dimensions has no tuples", x.rank);
  int32_t rc = take_dims(&d, &x, kind, axis, batch_dims, &rank, dims, err);
  const uint32_t first = kind == BS_INDEX_TUPLES ? batch_dims : axis;
  if (rc == BS_OK) rc = lower_guard_index(c, kind, data, first, &index, err);
  gnode n = node_of(GOP_TAKE, 2, 1);
  n.in[0] = data;
  n.in[1] = index;
  n.attrs[0] = kind;
  n.attrs[1] = axis;
  n.attrs[2] = batch_dims;
  if (rc == BS_OK) rc = lower_temp(c, d.dtype, rank, dims, out_y, err);
  n.out[0] = *out_y;
  return rc == BS_OK ? lower_emit(c, &n, err) : rc;
}

int32_t lower_put(lower_ctx *c, uint32_t kind, uint32_t reduction, uint32_t base, uint32_t index,
                  uint32_t updates, uint32_t axis, uint32_t *out_y, bs_error *err) {
  const gvalue b = c->g->values[base];
  *out_y = base;
  if (graph_count(&c->g->values[updates]) == 0) return BS_OK;
  int32_t rc = lower_guard_index(c, kind, base, kind == BS_INDEX_TUPLES ? 0 : axis, &index, err);
  if (rc != BS_OK) return rc;
  gnode n = node_of(GOP_PUT, 3, 1);
  n.in[0] = base;
  n.in[1] = index;
  n.in[2] = updates;
  n.attrs[0] = kind;
  n.attrs[1] = axis;
  n.attrs[3] = reduction;
  if (c->g->values[b.base].kind == GV_STATE) /* in place */
    rc = graph_add_view(c->g, b.base, b.dtype, b.rank, b.dims, b.strides, b.offset, out_y, err);
  else
    rc = lower_temp(c, b.dtype, b.rank, b.dims, out_y, err);
  n.out[0] = *out_y;
  return rc == BS_OK ? lower_emit(c, &n, err) : rc;
}

int32_t lower_topk(lower_ctx *c, uint32_t x, uint32_t axis, int64_t k, int largest, uint32_t *out_values,
                   uint32_t *out_indices, bs_error *err) {
  const gvalue v = c->g->values[x];
  gnode n = node_of(GOP_TOPK, 1, 2);
  int64_t dims[BS_MAX_DIMS];
  memcpy(dims, v.dims, sizeof dims);
  dims[axis] = k;
  n.in[0] = x;
  n.attrs[0] = axis;
  n.attrs[1] = !largest;
  int32_t rc = lower_temp(c, v.dtype, v.rank, dims, out_values, err);
  if (rc == BS_OK) rc = lower_temp(c, BS_I64, v.rank, dims, out_indices, err);
  n.out[0] = *out_values;
  n.out[1] = *out_indices;
  return rc == BS_OK ? lower_emit(c, &n, err) : rc;
}
