/* SPDX-License-Identifier: MIT
 *
 * tp_tree.c - see tp_tree.h. Two ranks exchange their whole sums: that is as many bytes as an all-reduce has.
 * More ranks scatter them by columns, finish the tree of their own columns, and gather the results. Ranks may
 * finish different numbers of columns, also none.
 */
#include "tp_tree.h"

uint32_t tp_tree_way(uint32_t world, int split) {
  if (world == 1) return TP_TREE_HERE;
  if (split) return TP_TREE_SCATTER;
  return world == 2 ? TP_TREE_GATHER : TP_TREE_TWO;
}

static int scatters(const tp_tree_spec *s) {
  return s->way == TP_TREE_SCATTER || s->way == TP_TREE_TWO;
}

/* Columns of a rank's sum that rank r gets. */
static int64_t share_of(const tp_layer *l, const tp_tree_spec *s, uint32_t r) {
  int64_t begin, count;
  tp_share(s->width, r, l->shape.world, &begin, &count);
  return scatters(s) ? count : s->width;
}

int64_t tp_tree_stride(const tp_layer *l, const tp_tree_spec *s) {
  if (s->leaves > 1) return (int64_t)s->leaves * s->width;
  return scatters(s) ? s->width : (int64_t)l->shape.world * s->width;
}

static int64_t all_columns(const tp_layer *l, const tp_tree *t) {
  return (int64_t)l->shape.world * t->share;
}

/* The rank's own sum. */
static bs_tensor own_of(const tp_layer *l, const tp_tree *t, int64_t rows) {
  if (scatters(&t->spec)) return tp_view_rows(&t->own, rows);
  const bs_tensor all = tp_view_rows(&t->all, rows);
  return tp_view_columns(&all, (int64_t)l->shape.rank * t->spec.width, t->spec.width);
}

bs_tensor tp_tree_part(const tp_layer *l, const tp_tree *t, uint32_t i, int64_t rows) {
  if (t->spec.leaves == 1) return own_of(l, t, rows);
  const bs_tensor parts = tp_view_rows(&t->parts, rows);
  return tp_view_columns(&parts, (int64_t)i * t->spec.width, t->spec.width);
}

/* ---- build ----------------------------------------------------------------------------------- */

static int32_t build_memory(tp_layer *l, tp_tree *t, bs_error *err) {
  const tp_tree_spec *s = &t->spec;
  const int64_t B = l->shape.B;
  const bs_tensor_desc parts = bs_desc_2d(s->dtype, B, (int64_t)s->leaves * s->width);
  const bs_tensor_desc own = bs_desc_2d(s->dtype, B, s->width);
  const bs_tensor_desc all = bs_desc_2d(s->dtype, B, all_columns(l, t));
  int32_t rc = BS_OK;
  const uint32_t kept = s->empty ? BS_LIFE_SCRATCH : BS_LIFE_CALL; /* zeros stay for a leaf without columns */
  if (s->leaves > 1) rc = l->api->tensor_alloc(l->rank, &parts, kept, &t->parts, err);
  if (rc == BS_OK && scatters(s)) rc = l->api->tensor_alloc(l->rank, &own, BS_LIFE_CALL, &t->own, err);
  if (rc == BS_OK && s->way != TP_TREE_HERE)
    rc = l->api->tensor_alloc(l->rank, &all, BS_LIFE_CALL, &t->all, err);
  return rc;
}

static int32_t prepare(tp_layer *l, const tp_tree_spec *s, int last, const bs_tensor_desc *in,
                       const bs_tensor_desc *out, bs_plan **out_plan, bs_error *err) {
  const bs_tensor_desc *args[2] = {in, out};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "tree_sum";
  q.nargs = 2;
  q.args = args;
  q.activation = last ? s->activation : (uint32_t)BS_ACT_NONE;
  for (uint32_t i = 0; last && s->way != TP_TREE_HERE && s->order != NULL && i < l->shape.world; i++)
    q.attrs[i] = s->order[i];
  return l->api->op_prepare(l->rank, &q, NULL, out_plan, err);
}

/* The own leaves to the own sum, and the sums of all ranks to the whole sum. */
static int32_t build_joins(tp_layer *l, tp_tree *t, bs_error *err) {
  const tp_tree_spec *s = &t->spec;
  const int64_t B = l->shape.B, joined = scatters(s) ? s->width : (int64_t)l->shape.world * s->width;
  const bs_tensor_desc parts = bs_desc_2d(s->dtype, B, (int64_t)s->leaves * s->width);
  const bs_tensor_desc own = tp_strided(s->dtype, B, s->width, joined);
  const bs_tensor_desc all = bs_desc_2d(s->dtype, B, all_columns(l, t));
  const bs_tensor_desc out = tp_strided(s->out_dtype, B, t->share, s->out_stride);
  if (s->way == TP_TREE_HERE) return prepare(l, s, 1, &parts, &out, &t->last, err);
  const int32_t rc = s->leaves > 1 ? prepare(l, s, 0, &parts, &own, &t->join, err) : BS_OK;
  return rc == BS_OK && t->share > 0 ? prepare(l, s, 1, &all, &out, &t->last, err) : rc;
}

static int32_t collective(tp_layer *l, uint32_t kind, uint32_t dtype, const uint64_t *counts,
                          const uint64_t *recv, const char *site, bs_coll_plan **out_plan, bs_error *err) {
  bs_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = (uint32_t)sizeof c;
  c.kind = kind;
  c.dtype_in = c.dtype_out = dtype;
  c.rows = (uint64_t)l->shape.B;
  c.ncounts = l->shape.world;
  c.counts = counts;
  c.recv_counts = recv;
  c.site = site;
  return l->api->collective_prepare(l->rank, &c, out_plan, err);
}

static int32_t build_exchange(tp_layer *l, tp_tree *t, bs_error *err) {
  const tp_tree_spec *s = &t->spec;
  const uint32_t world = l->shape.world;
  if (s->way == TP_TREE_HERE) return BS_OK;
  t->send = l->api->alloc(l->rank, world * sizeof *t->send);
  t->recv = l->api->alloc(l->rank, world * sizeof *t->recv);
  if (t->send == NULL || t->recv == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for %u block sizes", world);
  for (uint32_t r = 0; r < world; r++) {
    t->send[r] = (uint64_t)share_of(l, s, r);
    t->recv[r] = (uint64_t)t->share;
  }
  if (!scatters(s))
    return collective(l, BS_COLL_ALL_GATHER, s->dtype, t->send, NULL, s->site, &t->first, err);
  int32_t rc = collective(l, BS_COLL_ALL_TO_ALL, s->dtype, t->send, t->recv, s->site, &t->first, err);
  if (rc != BS_OK || s->way != TP_TREE_TWO) return rc;
  snprintf(t->second_site, sizeof t->second_site, "%s.whole", s->site);
  return collective(l, BS_COLL_ALL_GATHER, s->out_dtype, t->send, NULL, t->second_site, &t->second, err);
}

int32_t tp_tree_build(tp_layer *l, const tp_tree_spec *spec, tp_tree *t, bs_error *err) {
  t->spec = *spec;
  t->share = spec->width;
  if (scatters(spec)) tp_share(spec->width, l->shape.rank, l->shape.world, &t->begin, &t->share);
  int32_t rc = build_memory(l, t, err);
  if (rc == BS_OK && spec->width > 0) rc = build_joins(l, t, err);
  if (rc == BS_OK) rc = build_exchange(l, t, err);
  t->spec.order = NULL; /* the caller's; the plans have it */
  return rc;
}

void tp_tree_free(tp_layer *l, tp_tree *t) {
  bs_tensor *const tensors[] = {&t->parts, &t->own, &t->all};
  if (t->join != NULL) l->api->op_release(t->join);
  if (t->last != NULL) l->api->op_release(t->last);
  if (t->first != NULL) l->api->collective_release(t->first);
  if (t->second != NULL) l->api->collective_release(t->second);
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
    if (tensors[i]->data != NULL) l->api->tensor_free(l->rank, tensors[i]);
  if (t->send != NULL) l->api->free(l->rank, t->send);
  if (t->recv != NULL) l->api->free(l->rank, t->recv);
  memset(t, 0, sizeof *t);
}

/* ---- run ------------------------------------------------------------------------------------- */

static int32_t join(tp_layer *l, bs_plan *plan, bs_tensor *in, bs_tensor *out, bs_stream *stream,
                    bs_error *err) {
  bs_tensor *args[2] = {in, out};
  return plan != NULL ? l->api->op_run(plan, args, 2, stream, err) : BS_OK;
}

static int32_t exchange(tp_layer *l, bs_coll_plan *plan, const bs_tensor *in, bs_tensor *out,
                        bs_stream *stream, bs_error *err) {
  l->api->region_begin(l->rank, BS_REGION_ALLREDUCE);
  const int32_t rc = l->api->collective_run(plan, in, out, stream, err);
  l->api->region_end(l->rank, BS_REGION_ALLREDUCE);
  return rc;
}

int32_t tp_tree_sum(tp_layer *l, tp_tree *t, bs_tensor *out, bs_stream *stream, bs_error *err) {
  const tp_tree_spec *s = &t->spec;
  const int64_t rows = out->dims[0];
  bs_tensor parts = tp_view_rows(&t->parts, rows);
  if (s->way == TP_TREE_HERE) return join(l, t->last, &parts, out, stream, err);
  bs_tensor own = own_of(l, t, rows), all = tp_view_rows(&t->all, rows);
  bs_tensor mine = s->way == TP_TREE_TWO ? tp_view_columns(out, t->begin, t->share) : *out;
  int32_t rc = join(l, t->join, &parts, &own, stream, err);
  if (rc == BS_OK) rc = exchange(l, t->first, &own, &all, stream, err);
  if (rc == BS_OK) rc = join(l, t->last, &all, &mine, stream, err);
  return rc == BS_OK && t->second != NULL ? exchange(l, t->second, &mine, out, stream, err) : rc;
}

/* ---- proposal -------------------------------------------------------------------------------- */

uint64_t tp_tree_bytes(const tp_shape *shape, const tp_tree_spec *s) {
  const uint64_t row = (uint64_t)shape->B * BS_DTYPE_BYTES(s->dtype), width = (uint64_t)s->width;
  int64_t begin, share;
  uint64_t bytes = s->leaves > 1 ? row * s->leaves * width : 0;
  tp_share(s->width, shape->rank, shape->world, &begin, &share);
  if (s->way == TP_TREE_GATHER) bytes += row * shape->world * width;
  if (scatters(s)) bytes += row * (width + shape->world * (uint64_t)share);
  return bytes;
}

uint32_t tp_tree_claims(const tp_shape *shape, const tp_tree_spec *s, uint32_t kinds[2],
                        uint64_t payloads[2]) {
  const uint64_t each = (uint64_t)shape->B * (uint64_t)s->width, sums = each * BS_DTYPE_BYTES(s->dtype);
  if (s->way == TP_TREE_HERE) return 0;
  kinds[0] = scatters(s) ? BS_COLL_ALL_TO_ALL : BS_COLL_ALL_GATHER;
  payloads[0] = scatters(s) ? sums : sums * shape->world;
  if (s->way != TP_TREE_TWO) return 1;
  kinds[1] = BS_COLL_ALL_GATHER;
  payloads[1] = each * BS_DTYPE_BYTES(s->out_dtype);
  return 2;
}
