/* SPDX-License-Identifier: MIT
 *
 * blockshock.c - the method "blockshock": W = W1 + W2 by a mask and its complement. Each rank multiplies with
 * its part, and an all-reduce (or reduce-scatter) adds the outputs. The result is exact: nothing is pruned,
 * unless only one half is requested. A mask that keeps the same columns in every row is a K-partition, so the
 * part is packed as those columns and the product is dense over them. Other masks, and kernel=sparse24, have
 * 2:4 values with positions (by_row.h). */
#include "by_row.h"

static const tp_option options[] = {
    {"kernel", "auto,gather,sparse24", "auto", "dense over the kept columns, or 2:4 values with positions"},
    {"slices", "auto,row,column", "auto", "how more than two ranks share the halves of a 2:4 mask"},
    {"half", "0,1", "auto", "this half of the mask alone; without it both"},
    TP_OVERLAP_OPTIONS};

static const tp_traits traits = {
    .name = "blockshock",
    .split = BS_SPLIT_K,
    .site = "blockshock.y",
    .x_site = "blockshock.x",
    .dx_site = "blockshock.dx",
    .dy_site = "blockshock.dy",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .choose_mask = tp_mask_or_complement,
};

/* One rank with both halves: the mask says nothing more. */
static bs_layer_spec unmasked(const bs_layer_spec *spec) {
  bs_layer_spec plain = *spec;
  plain.mask = NULL;
  return plain;
}

static int32_t short_spec(bs_error *err) {
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-METHOD-SPEC",
                 "method blockshock: the layer spec is missing or too short");
}

static int32_t propose(void *state, const bs_layer_spec *spec, uint32_t rank, uint32_t world,
                       bs_proposal *out_proposal, bs_error *err) {
  if (spec == NULL || spec->struct_size < sizeof *spec) return short_spec(err);
  uint32_t path = BY_ROW_FIXED;
  int32_t rc = by_row_choose(spec, world, &path, err);
  if (rc != BS_OK) return rc;
  if (path == BY_ROW_HALVES) return by_row_propose(state, spec, rank, world, out_proposal, err);
  if (path == BY_ROW_FIXED) return tp_propose(state, spec, rank, world, out_proposal, err);
  const bs_layer_spec plain = unmasked(spec);
  bs_proposal p;
  memset(&p, 0, sizeof p);
  p.struct_size = (uint32_t)sizeof p;
  rc = tp_propose(state, &plain, rank, world, &p, err);
  if (rc != BS_OK) return rc;
  snprintf(p.text, sizeof p.text,
           "all of W on one rank: both halves of the mask, which is the dense product");
  bs_out_copy(out_proposal, &p, sizeof p);
  return BS_OK;
}

static int32_t build(void *state, const bs_rank_api *api, bs_rank *rank, const bs_layer_spec *spec,
                     const bs_source *weights, const bs_source *bias, void **out_layer, bs_error *err) {
  if (spec == NULL || spec->struct_size < sizeof *spec) return short_spec(err);
  uint32_t path = BY_ROW_FIXED;
  const int32_t rc = by_row_choose(spec, api->world_size(rank), &path, err);
  if (rc != BS_OK) return rc;
  if (path == BY_ROW_HALVES) return by_row_build(state, api, rank, spec, weights, bias, out_layer, err);
  const bs_layer_spec plain = unmasked(spec);
  return tp_build(state, api, rank, path == BY_ROW_DENSE ? &plain : spec, weights, bias, out_layer, err);
}

static int32_t forward(void *layer, const bs_tensor *x, bs_tensor *y, bs_stream *stream, bs_error *err) {
  tp_layer *l = layer;
  return l->by_row != NULL ? by_row_forward(l, x, y, stream, err) : tp_forward(l, x, y, stream, err);
}

static int32_t backward(void *layer, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx, bs_tensor *dw,
                        bs_tensor *db, bs_stream *stream, bs_error *err) {
  tp_layer *l = layer;
  if (l->by_row != NULL) return by_row_backward(l, x, dy, dx, dw, db, stream, err);
  return tp_backward(l, x, dy, dx, dw, db, stream, err);
}

static int32_t owns(void *layer, bs_ownership *out_ownership, bs_error *err) {
  const tp_layer *l = layer;
  if (l->by_row == NULL) return tp_owns(layer, out_ownership, err);
  const by_row *b = by_row_of(l);
  bs_ownership own;
  memset(&own, 0, sizeof own);
  own.struct_size = (uint32_t)sizeof own;
  own.row_begin = l->shape.row_begin;
  own.row_count = l->shape.row_count;
  own.columns = b->shape.run.count < l->shape.K ? &b->shape.run : NULL;
  own.kept = &b->positions.kept;
  bs_out_copy(out_ownership, &own, sizeof own);
  return BS_OK;
}

static void layer_free(void *layer) {
  tp_layer *l = layer;
  if (l != NULL && l->by_row != NULL)
    by_row_layer_free(l);
  else
    tp_layer_free(l);
}

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_method method = {
      .default_world = 2,
      .mask_kinds = BS_MASK_KINDS_ALL,
      .name = "blockshock",
      .aliases = "block_shock_2gpu",
      .summary = "complementary masks: each rank multiplies its own weights, outputs are all-reduced",
      .option_docs =
          "kernel=auto: auto is gather for fixed masks and sparse24 for those that differ by row; gather "
          "copies X's columns first where the kernel does not pick them (timed as layout_fix), sparse24 "
          "multiplies 2:4 values with positions, fixed masks too\n"
          "slices=auto: how more than two ranks share the halves of a 2:4 mask: row (columns of W, one "
          "all-reduce of Y) or column (rows of W, an all-reduce in each pair and a gather); auto takes the "
          "one with fewer bytes on the wire\n"
          "half=: 0 or 1 runs that half of the mask alone: pruned, with the error that the proposal "
          "tells\n" TP_OVERLAP_DOC TP_OPTION_DOCS,
      .propose = propose,
      .build = build,
      .forward = forward,
      .backward = backward,
      .owns = owns,
      .layer_free = layer_free,
  };
  return tp_activate(host, self, &traits, &method, &at, out_state, err);
}

BS_PLUGIN_DEFINE("blockshock", BS_PLUGIN_VERSION,
                 "complementary masks: every rank multiplies its own weights", 1u << BS_KIND_METHOD,
                 "method:blockshock\nmethod:block_shock_2gpu=blockshock\n", activate, tp_deactivate)
