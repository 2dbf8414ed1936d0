/* SPDX-License-Identifier: MIT
 *
 * tp_slots.c - the slots around the hot path: propose, owns, read_weights, and the plugin's activate.
 */
#include <inttypes.h>

#include "tp_kept.h"
#include "tp_mixed.h"
#include "tp_tree.h"

static uint64_t scratch_bytes(const tp_shape *s) {
  uint64_t bytes = 0;
  if (s->own_partial) bytes += (uint64_t)s->B * (uint64_t)s->N * BS_DTYPE_BYTES(s->reduce_dtype);
  if (s->wire == BS_I8) bytes += tp_quantise_bytes(s);
  if (s->own_sums) bytes += (uint64_t)s->B * (uint64_t)s->y_cols * BS_DTYPE_BYTES(s->reduce_dtype);
  if (s->keeps) bytes += (uint64_t)s->B * (uint64_t)s->row_count * BS_DTYPE_BYTES(s->product_dtype);
  if (s->row_count > 0 && (s->input == TP_X_GATHER || s->input == TP_X_SPREAD || s->input == TP_X_ZERO))
    bytes += (uint64_t)s->B * (uint64_t)s->k_mul * BS_DTYPE_BYTES(s->x_dtype);
  if (s->by_row) bytes += tp_kept_bytes(s->mask_kind, s->row_count, s->cols->count);
  return bytes;
}

static uint64_t gradient_bytes(const bs_layer_spec *spec, const tp_shape *s, const tp_gradient_shape *g) {
  uint64_t bytes = 0;
  const uint64_t rows = (uint64_t)s->B;
  if (g->own_product || g->picks) bytes += rows * (uint64_t)s->K * BS_DTYPE_BYTES(g->product_dtype);
  if (g->gather_dy) bytes += rows * (uint64_t)s->N * BS_DTYPE_BYTES(s->y_dtype);
  if (g->activation != BS_ACT_NONE) bytes += rows * (uint64_t)g->dz_cols * BS_DTYPE_BYTES(s->y_dtype);
  if (spec->has_bias && s->row_count > 0) bytes += rows * BS_DTYPE_BYTES(g->wide);
  return bytes;
}

static void claim(bs_proposal *p, uint32_t kind, uint64_t payload) {
  p->backward_kind[p->n_backward] = kind;
  p->backward_payload[p->n_backward] = payload;
  p->n_backward++;
}

/* dX, dW and db: the bias is a product with one column of ones. */
static int32_t propose_backward(void *state, const bs_layer_spec *spec, const tp_shape *s, bs_proposal *p,
                                bs_error *err) {
  tp_gradient_shape g;
  const int32_t rc = tp_gradient_shape_make(state, spec, s, &g, err);
  if (rc != BS_OK) return rc;
  const uint64_t products = 2u * (uint64_t)s->B * (uint64_t)s->row_count;
  p->backward_flops =
      products * ((uint64_t)s->k_own + (s->input != TP_X_ZERO ? (uint64_t)g.dx_width : 0u) + spec->has_bias);
  if (g.gather_dy) claim(p, BS_COLL_ALL_GATHER, (uint64_t)s->B * (uint64_t)s->N * BS_DTYPE_BYTES(s->y_dtype));
  if (g.dx_coll != BS_COLL_COUNT_)
    claim(p, g.dx_coll, (uint64_t)s->B * (uint64_t)s->K * BS_DTYPE_BYTES(g.product_dtype));
  if (g.dx == TP_DX_TREE) {
    tp_tree_spec t;
    tp_leaf_grad_tree(s, NULL, &t);
    p->n_backward +=
        tp_tree_claims(s, &t, p->backward_kind + p->n_backward, p->backward_payload + p->n_backward);
  }
  p->workspace_bytes += gradient_bytes(spec, s, &g) + tp_leaf_grad_bytes(s, spec, g.wide);
  p->workspace_bytes += tp_training_bytes(((const tp_state *)state)->traits, spec, s, g.wide);
  return BS_OK;
}

static const char *coll_name(uint32_t kind) {
  return kind < BS_COLL_COUNT_ ? bs_name_of(BS_NAMES_COLL, kind) : "no collective";
}

static void describe(const tp_traits *traits, const tp_shape *s, char *out, size_t size) {
  if (s->by_row)
    snprintf(out, size,
             "half %u of columns %" PRId64 "..+%" PRId64
             ", other ones in each row, zeros multiplied too, %s%s",
             s->half, s->cols->begin, s->cols->count, coll_name(s->coll),
             s->after != BS_ACT_NONE ? ", then the activation" : "");
  else if (s->split == BS_SPLIT_N)
    snprintf(out, size, "rows %" PRId64 "..+%" PRId64 " of W, %s", s->row_begin, s->row_count,
             coll_name(s->coll));
  else if (s->split == BS_SPLIT_K)
    snprintf(out, size, "%" PRId64 " of %" PRId64 " columns (%s)%s%s, %s%s", s->k_own, s->K,
             s->cols->kind == BS_PARTITION_CONTIGUOUS ? "a run" : "a gather",
             s->leaves > 0 ? " in leaves of K / 8" : "", traits->full_width ? ", zeros multiplied too" : "",
             s->leaves > 0 ? tp_leaves_words(s) : coll_name(s->coll),
             s->after != BS_ACT_NONE ? ", then the activation" : "");
  else
    snprintf(out, size, "all of W on one rank");
  const size_t used = strlen(out);
  if (s->chunks > 1)
    snprintf(out + used, size - used, ", in %u chunks of %s", s->chunks,
             s->chunk_features ? "features" : "tokens");
  if (s->mixed)
    snprintf(out + used, size - used, ", %" PRId64 " columns high (%" PRId64 " here), the others %s",
             s->mixed_high, s->segment[0]->count, tp_mixed_others(s));
}

int32_t tp_propose(void *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world_size,
                   bs_proposal *out_proposal, bs_error *err) {
  tp_shape s;
  int32_t rc = tp_shape_make(state, spec, rank, world_size, &s, err);
  if (rc != BS_OK) return rc;
  bs_proposal p;
  memset(&p, 0, sizeof p);
  p.struct_size = (uint32_t)sizeof p;
  p.x_placement = spec->x_placement;
  p.y_placement = spec->y_placement;
  p.split = s.split;
  p.flops = 2u * (uint64_t)s.B * (uint64_t)s.row_count * (uint64_t)s.k_mul;
  p.weight_bytes = (uint64_t)s.row_count * (uint64_t)s.k_mul * BS_DTYPE_BYTES(s.w_dtype);
  p.workspace_bytes = scratch_bytes(&s);
  if (s.before != BS_COLL_COUNT_) {
    p.coll_kind[p.n_collectives] = s.before;
    p.coll_payload[p.n_collectives++] = (uint64_t)s.B * (uint64_t)s.K * BS_DTYPE_BYTES(s.x_dtype);
  }
  if (s.coll != BS_COLL_COUNT_) {
    p.coll_kind[p.n_collectives] = s.coll;
    p.coll_payload[p.n_collectives++] =
        (uint64_t)s.B * (uint64_t)s.N * BS_DTYPE_BYTES(s.keeps || s.leaves > 0 ? s.y_dtype : s.product_dtype);
  }
  if (s.chunks > 1) tp_overlap_propose(&s, &p);
  if (s.wire == BS_I8) tp_quantise_propose(&s, &p);
  p.wire_error = tp_wire_error(spec, &s);
  if (s.leaves > 0) tp_leaves_propose(&s, &p);
  if (s.mixed) tp_mixed_propose(&s, &p);
  p.workspace_bytes += tp_place_bytes(&s);
  p.repro = tp_repro_promised(spec, &s);
  describe(((const tp_state *)state)->traits, &s, p.text, sizeof p.text);
  if (spec->flags & BS_LAYER_BACKWARD) rc = propose_backward(state, spec, &s, &p, err);
  tp_shape_free(state, &s);
  if (rc == BS_OK) bs_out_copy(out_proposal, &p, sizeof p);
  return rc;
}

int32_t tp_owns(void *layer, bs_ownership *out_ownership, bs_error *err) {
  (void)err;
  const tp_layer *l = layer;
  bs_ownership own;
  memset(&own, 0, sizeof own);
  own.struct_size = (uint32_t)sizeof own;
  own.row_begin = l->shape.row_begin;
  own.row_count = l->shape.row_count;
  own.columns = l->shape.cols;
  if (l->kept != NULL) {
    own.columns = l->shape.cols->count < l->shape.K ? l->shape.cols : NULL;
    own.kept = &l->kept->kept;
  }
  bs_out_copy(out_ownership, &own, sizeof own);
  return BS_OK;
}

int32_t tp_packed_rows(tp_layer *l, int64_t row, bs_tensor *out, bs_error *err) {
  if (l->shape.chunk_features) return tp_overlap_read(l, row, out, err);
  if (l->rows != NULL) return tp_rows_read(l, row, out, err);
  return l->api->packed_read(l->packed, row, out, err);
}

/* The packed weight of a full_width layer has all K columns: read them in blocks of rows and keep the
 * own ones. */
static int32_t read_own_columns(tp_layer *l, int64_t row, bs_tensor *out, bs_error *err) {
  const tp_shape *s = &l->shape;
  const int64_t block = out->dims[0] < 64 ? out->dims[0] : 64;
  bs_tensor_desc full = bs_desc_2d(out->dtype, block, s->K), own = bs_desc_2d(out->dtype, block, s->k_own);
  own.strides[0] = out->strides[0];
  const bs_tensor_desc *descs[2] = {&full, &own};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "gather_columns";
  q.nargs = 2;
  q.args = descs;
  q.partition = s->cols;
  bs_plan *gather = NULL;
  bs_tensor rows;
  int32_t rc = l->api->tensor_alloc(l->rank, &full, BS_LIFE_SCRATCH, &rows, err);
  if (rc != BS_OK) return rc;
  rc = l->api->op_prepare(l->rank, &q, NULL, &gather, err);
  for (int64_t done = 0; rc == BS_OK && done < out->dims[0]; done += block) {
    const int64_t n = out->dims[0] - done < block ? out->dims[0] - done : block;
    const uint64_t skip = (uint64_t)(done * out->strides[0]) * BS_DTYPE_BYTES(out->dtype);
    bs_tensor part = rows, to = *out;
    part.dims[0] = to.dims[0] = n;
    to.data = (char *)out->data + skip;
    to.bytes = out->bytes > skip ? out->bytes - skip : 0;
    rc = tp_packed_rows(l, row + done, &part, err);
    bs_tensor *args[2] = {&part, &to};
    if (rc == BS_OK) rc = l->api->op_run(gather, args, 2, NULL, err);
  }
  if (gather != NULL) l->api->op_release(gather);
  l->api->tensor_free(l->rank, &rows);
  return rc;
}

int32_t tp_read_weights(void *layer, int64_t row, bs_tensor *out, bs_error *err) {
  tp_layer *l = layer;
  const tp_shape *s = &l->shape;
  if (out->rank != 2 || out->dims[1] != s->k_own || row < 0 || out->dims[0] < 0 || row > s->row_count ||
      out->dims[0] > s->row_count - row)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-METHOD-READ",
                   "method %s: rows %lld..+%lld of %lld columns asked, this rank has %lld x %lld",
                   l->state->traits->name, (long long)row, (long long)out->dims[0], (long long)out->dims[1],
                   (long long)s->row_count, (long long)s->k_own);
  if (out->dims[0] == 0 || s->k_own == 0) return BS_OK;
  if (l->leaves != NULL && l->packed == NULL) return tp_leaves_read(l, row, out, err);
  if (l->mixed != NULL) return tp_mixed_read(l, row, out, err);
  if (s->by_row) return tp_by_row_read(l, row, out, err);
  if (l->state->traits->full_width && s->cols != NULL) return read_own_columns(l, row, out, err);
  return tp_packed_rows(l, row, out, err);
}

/* The options that have a set of values, as knobs: the host checks them before the method is asked. */
static uint32_t knobs_of(const tp_traits *traits, bs_knob knobs[BS_MAX_KNOBS],
                         const bs_knob *list[BS_MAX_KNOBS]) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < traits->n_options + tp_common_count && n < BS_MAX_KNOBS; i++) {
    const tp_option *o =
        i < traits->n_options ? &traits->options[i] : &tp_common_options[i - traits->n_options];
    if (o->values == NULL) continue;
    knobs[n] = (bs_knob){(uint32_t)sizeof(bs_knob), 0, o->key, o->values, o->standard, o->summary};
    list[n] = &knobs[n];
    n++;
  }
  return n;
}

int32_t tp_activate(const bs_host *host, bs_plugin_self *self, const tp_traits *traits, bs_method *method,
                    const bs_src_loc *at, void **out_state, bs_error *err) {
  if (!BS_HOST_HAS(host, partition_free))
    return bs_fail(err, BS_ABI, "BS-METHOD-HOST", "method %s needs a host that offers partition_make",
                   traits->name);
  tp_state *state = host->alloc(host->ctx, sizeof *state, 16);
  if (state == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for method %s", traits->name);
  bs_knob knobs[BS_MAX_KNOBS]; /* the host copies them */
  const bs_knob *list[BS_MAX_KNOBS];
  state->host = host;
  state->traits = traits;
  method->n_knobs = knobs_of(traits, knobs, list);
  method->knobs = list;
  method->struct_size = (uint32_t)sizeof *method;
  if (method->propose == NULL) method->propose = tp_propose;
  if (method->build == NULL) method->build = tp_build;
  if (method->forward == NULL) method->forward = tp_forward;
  if (method->backward == NULL) method->backward = tp_backward;
  if (method->step == NULL) method->step = tp_step;
  if (method->owns == NULL) method->owns = tp_owns;
  if (method->read_weights == NULL) method->read_weights = tp_read_weights;
  if (method->layer_free == NULL) method->layer_free = tp_layer_free;
  int32_t rc = host->register_thing(host->ctx, self, BS_KIND_METHOD, method, state, at, err);
  if (rc != BS_OK) {
    host->free(host->ctx, state);
    return rc;
  }
  *out_state = state;
  return BS_OK;
}

int32_t tp_deactivate(void *state, bs_error *err) {
  (void)err;
  const tp_state *s = state;
  const bs_host *host = s->host;
  host->free(host->ctx, state);
  return BS_OK;
}
