/* SPDX-License-Identifier: MIT
 *
 * tp_place.c - placements that a method itself does not multiply, brought to those that it does: an x of each
 * rank's own tokens is gathered and one that is a partial sum is added before the product, a y of own tokens
 * is what a reduce-scatter leaves (the sequence-parallel form). A matrix of tokens is one long row to the
 * collective, so that ranks may have different numbers of them; all B are run then. Refusals with reasons.
 */
#include "tp.h"

static int32_t refuse(const tp_traits *traits, const char *what, const char *hint, bs_error *err) {
  bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-PLACEMENT", "method %s: %s", traits->name, what);
  return bs_fail_hint(err, "%s", hint), BS_UNSUPPORTED;
}

int32_t tp_place_check(const tp_traits *traits, const bs_layer_spec *spec, uint32_t split, uint32_t world,
                       bs_error *err) {
  const int x_moves = spec->x_placement == BS_SPLIT_TOKENS || spec->x_placement == BS_PARTIAL;
  const int y_tokens = spec->y_placement == BS_SPLIT_TOKENS;
  if (world == 1 || !(x_moves || y_tokens)) return BS_OK;
  if (spec->flags != 0)
    return refuse(traits, "no backward pass of tokens that are split, nor of an x that is a partial sum",
                  "x and y may be replicated or split over features there", err);
  const char *overlap = tp_option_get(spec, "overlap", "off");
  if (strcmp(overlap, "off") != 0 && strcmp(overlap, "auto") != 0)
    return refuse(traits, "no chunks of an x that is made whole first, nor of a y of own tokens",
                  "overlap=off", err);
  if (spec->reduce_dtype == BS_I8 && tp_is_float(spec->y_dtype) && split == BS_SPLIT_K)
    return refuse(traits, "no sums in int8 steps of tokens that are split, nor of an x that is a partial sum",
                  "leave method.reduce_dtype out", err);
  if (spec->x_placement == BS_PARTIAL && !tp_is_float(spec->x_dtype) && BS_DTYPE_BYTES(spec->x_dtype) < 4)
    return refuse(traits, "partial sums of x in 8-bit integers", "reduce x first", err);
  if (!y_tokens) return BS_OK;
  if (split == BS_SPLIT_N)
    return refuse(traits, "makes features of all tokens, no tokens with all features",
                  "row_parallel and blockshock scatter tokens; here y may be replicated or split", err);
  if (tp_repro_asked(spec) >= BS_REPRO_R3)
    return refuse(traits, "leaves are joined for all tokens (repro=R3, R4)",
                  "y may be replicated or split over features, or repro R2", err);
  return BS_OK;
}

void tp_place_shape(const bs_layer_spec *spec, tp_shape *s) {
  if (s->world == 1) return;
  s->x_tokens = spec->x_placement == BS_SPLIT_TOKENS;
  s->y_tokens = spec->y_placement == BS_SPLIT_TOKENS;
  if (s->x_tokens) s->before = BS_COLL_ALL_GATHER;
  if (spec->x_placement == BS_PARTIAL) s->before = BS_COLL_ALL_REDUCE;
}

void tp_place_counts(const tp_shape *s, int64_t cols, uint64_t *out_counts) {
  for (uint32_t r = 0; r < s->world; r++) {
    int64_t begin, tokens;
    tp_share(s->B, r, s->world, &begin, &tokens);
    out_counts[r] = (uint64_t)(tokens * cols);
  }
}

uint64_t tp_place_bytes(const tp_shape *s) {
  return s->before != BS_COLL_COUNT_ ? (uint64_t)s->B * (uint64_t)s->K * BS_DTYPE_BYTES(s->x_dtype) : 0;
}

int32_t tp_place_build(tp_layer *l, bs_error *err) {
  const tp_shape *s = &l->shape;
  if (s->before == BS_COLL_COUNT_) return BS_OK;
  const bs_tensor_desc whole = bs_desc_2d(s->x_dtype, s->B, s->K);
  bs_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = (uint32_t)sizeof c;
  c.kind = s->before;
  c.dtype_in = c.dtype_out = s->x_dtype;
  c.reduce_op = BS_REDUCE_SUM;
  c.rows = s->x_tokens ? 1u : (uint64_t)s->B;
  c.count = (uint64_t)s->K;
  c.site = l->state->traits->x_site;
  if (s->x_tokens) {
    l->before_counts = l->api->alloc(l->rank, s->world * sizeof *l->before_counts);
    if (l->before_counts == NULL)
      return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for %u block sizes", s->world);
    tp_place_counts(s, s->K, l->before_counts);
    c.counts = l->before_counts;
    c.ncounts = s->world;
    c.count = 0;
  }
  const int32_t rc = l->api->tensor_alloc(l->rank, &whole, BS_LIFE_CALL, &l->whole, err);
  return rc == BS_OK ? l->api->collective_prepare(l->rank, &c, &l->before, err) : rc;
}

bs_tensor tp_view_flat(const bs_tensor *t) {
  bs_tensor flat = *t;
  flat.dims[0] = 1;
  flat.dims[1] = flat.strides[0] = t->dims[0] * t->dims[1];
  flat.strides[1] = 1;
  return flat;
}

int32_t tp_place_input(tp_layer *l, const bs_tensor *x, const bs_tensor *y, bs_tensor *out_x,
                       bs_stream *stream, bs_error *err) {
  const tp_shape *s = &l->shape;
  int64_t begin, own;
  tp_share(s->B, s->rank, s->world, &begin, &own);
  const int all = s->x_tokens || s->y_tokens; /* of the tokens that the layer was made for */
  const int64_t rows = s->x_tokens ? own : all ? s->B : x->dims[0];
  if (rows < 0 || rows > s->B || !tp_fits(x, rows, s->x_dtype, s->x_cols))
    return tp_wrong_shape(l, "x", x, s->x_dtype, s->x_cols, err);
  if (s->y_tokens && !tp_fits(y, own, s->y_dtype, s->y_cols))
    return tp_wrong_shape(l, "y", y, s->y_dtype, s->y_cols, err);
  *out_x = *x;
  if (l->before == NULL) return BS_OK;
  *out_x = tp_view_rows(&l->whole, s->x_tokens ? s->B : rows);
  bs_tensor in = *x, out = *out_x;
  if (s->x_tokens) {
    in = tp_view_flat(x);
    out = tp_view_flat(out_x);
  }
  l->api->region_begin(l->rank, BS_REGION_ALLREDUCE);
  const int32_t rc = l->api->collective_run(l->before, &in, &out, stream, err);
  l->api->region_end(l->rank, BS_REGION_ALLREDUCE);
  return rc;
}
