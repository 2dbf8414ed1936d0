/* SPDX-License-Identifier: MIT
 * fold.c - computes one node over constants on `ref`: the meaning of an op is the same before the run and in
 * it. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/run/run.h"

void gtensor_fill(const gvalue *v, const gvalue *root, void *root_data, bs_tensor *out) {
  const uint64_t size = BS_DTYPE_BYTES(v->dtype);
  const uint64_t all = (uint64_t)graph_count(root) * size, from = (uint64_t)v->offset * size;
  *out = (bs_tensor){.struct_size = (uint32_t)sizeof *out, .dtype = v->dtype, .rank = v->rank};
  for (uint32_t i = 0; i < v->rank; i++) {
    out->dims[i] = v->dims[i];
    out->strides[i] = v->strides[i];
  }
  out->data = root_data != NULL ? (unsigned char *)root_data + from : NULL;
  out->bytes = from <= all ? all - from : 0;
}

/* The root's elements where a kernel can read them; *out_copy is to be freed. */
static void *aligned_data(const gvalue *root, void **out_copy) {
  const uint32_t size = BS_DTYPE_BYTES(root->dtype);
  *out_copy = NULL;
  if (((uintptr_t)root->data & (size - 1u)) == 0) return (void *)root->data;
  const size_t bytes = (size_t)graph_count(root) * size;
  *out_copy = malloc(bytes + 1u);
  return *out_copy != NULL ? memcpy(*out_copy, root->data, bytes) : NULL;
}

static int32_t open_rank(gfold *f, bs_error *err) {
  if (f->opened > 0) return BS_OK;
  if (f->opened < 0) return BS_UNAVAILABLE;
  const bs_session_options options = {
      .struct_size = (uint32_t)sizeof options, .threads = 1, .backend = "ref"};
  const int32_t rc = grank_open(f->context, &options, 0, &f->rank, err);
  f->opened = rc == BS_OK ? 1 : -1;
  return rc;
}

static int32_t run_op(gfold *f, const graph *g, const gnode *node, void *const *out_data, bs_error *err) {
  static unsigned char nothing[64];
  gquery q;
  bs_tensor tensors[BS_MAX_OP_ARGS], *args[BS_MAX_OP_ARGS];
  void *copies[BS_MAX_OP_ARGS] = {NULL};
  uint32_t values[BS_MAX_OP_ARGS];
  int32_t rc = open_rank(f, err);
  if (rc == BS_OK) rc = grank_enter(&f->rank, err);
  if (rc != BS_OK) return rc;
  graph_query(g, node, &q);
  const uint32_t nargs = graph_arguments(node, values);
  for (uint32_t i = 0; i < nargs; i++) {
    args[i] = NULL;
    if (values[i] == GNONE) continue;
    const gvalue *v = &g->values[values[i]], *root = &g->values[v->base];
    void *data = i < node->n_in ? aligned_data(root, &copies[i]) : NULL;
    gtensor_fill(v, root, data, &tensors[i]);
    if (i >= node->n_in) tensors[i].data = out_data[i - node->n_in];
    if (tensors[i].data == NULL) tensors[i].data = nothing; /* of no elements */
    args[i] = &tensors[i];
  }
  bs_plan *plan = NULL;
  bs_packed *packed = NULL; /* of matmul_q and take_q, which checks compute in f64 */
  if (q.query.quant != NULL) rc = gpack_quant(&f->rank, &q, &packed, err);
  if (rc == BS_OK) rc = f->rank.api->op_prepare(f->rank.rank, &q.query, packed, &plan, err);
  if (rc == BS_OK) {
    rc = f->rank.api->op_run(plan, args, nargs, NULL, err);
    f->rank.api->op_release(plan);
    if (rc != BS_OK) rc = gnode_failed(g, node, rc, err);
  }
  if (packed != NULL) f->rank.api->packed_release(packed);
  for (uint32_t i = 0; i < nargs; i++) free(copies[i]);
  return grank_leave(&f->rank, rc, err);
}

/* ---- programs over bytes --------------------------------------------------------------------- */

enum { BYTES = 256, MANY = 16 << 10 };

static int is_whole(const graph *g, uint32_t value) {
  return value != GNONE && g->values[value].kind != GV_VIEW;
}

/* A program of one byte has at most 256 results. */
static int is_of_bytes(const graph *g, const gnode *n) {
  if (n->op != GOP_MAP || n->n_in != 1 || n->n_out != 1 || !is_whole(g, n->in[0]) || !is_whole(g, n->out[0]))
    return 0;
  const gvalue *in = &g->values[n->in[0]], *out = &g->values[n->out[0]];
  const gexpr *e = &g->exprs[n->expr];
  int any = 0;
  for (uint32_t i = 0; i < e->n_steps; i++) any |= e->steps[i].op == BS_EXPR_INDEX;
  return !any && (in->dtype == BS_I8 || in->dtype == BS_U8) && in->flags == 0 && graph_count(in) > MANY &&
         graph_count(in) == graph_count(out);
}

/* The results of all bytes, `size` bytes each. */
static int32_t run_table(gfold *f, const graph *g, const gnode *node, void *table, bs_error *err) {
  const int64_t dims[1] = {BYTES};
  unsigned char all[BYTES];
  graph *small = NULL;
  gnode n = *node;
  int32_t rc = graph_new(&small, err);
  for (int i = 0; i < BYTES; i++) all[i] = (unsigned char)i;
  n.origin = GNONE;
  if (rc == BS_OK)
    rc = graph_add_root(small, GV_CONST, g->values[node->in[0]].dtype, 1, dims, all, NULL, &n.in[0], err);
  if (rc == BS_OK)
    rc = graph_add_root(small, GV_TEMP, g->values[node->out[0]].dtype, 1, dims, NULL, NULL, &n.out[0], err);
  if (rc == BS_OK) n.expr = graph_expr(small, &g->exprs[node->expr]);
  if (rc == BS_OK && n.expr == GNONE)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a constant");
  void *data[GNODE_OUT] = {table};
  if (rc == BS_OK) rc = run_op(f, small, &n, data, err);
  graph_free(small);
  return rc;
}

static int32_t run_bytes(gfold *f, const graph *g, const gnode *node, unsigned char *to, bs_error *err) {
  uint64_t table[BYTES];
  const gvalue *in = &g->values[node->in[0]];
  const unsigned char *from = in->data, *results = (const unsigned char *)table;
  const size_t size = BS_DTYPE_BYTES(g->values[node->out[0]].dtype);
  const int32_t rc = run_table(f, g, node, table, err);
  const int64_t count = graph_count(in);
  for (int64_t i = 0; i < count && rc == BS_OK && size == 1; i++) to[i] = results[from[i]];
  for (int64_t i = 0; i < count && rc == BS_OK && size > 1; i++)
    memcpy(to + (size_t)i * size, results + from[i] * size, size);
  return rc;
}

int32_t gfold_run_locked(gfold *f, const graph *g, const gnode *node, void *const *out_data, bs_error *err) {
  return is_of_bytes(g, node) ? run_bytes(f, g, node, out_data[0], err) : run_op(f, g, node, out_data, err);
}

int32_t gfold_run(void *fold, const graph *g, const gnode *node, void *const *out_data, bs_error *err) {
  gfold *f = fold;
  pthread_mutex_lock(&f->lock);
  const int32_t rc = gfold_run_locked(f, g, node, out_data, err);
  pthread_mutex_unlock(&f->lock);
  return rc;
}

void gfold_init(gfold *f, bs_context *context) {
  *f = (gfold){.context = context};
  pthread_mutex_init(&f->lock, NULL);
}

void gfold_close(gfold *f) {
  if (f->opened > 0) grank_close(&f->rank);
  f->opened = 0;
  gfolded_free(f);
  pthread_mutex_destroy(&f->lock);
}
