/* SPDX-License-Identifier: MIT
 *
 * row_parallel.c - the method "row_parallel": rank r holds a run of W's columns and multiplies them with
 * the same columns of X (a strided view, no copy); the partial sums are added by one all-reduce, or by a
 * reduce-scatter when y is split. The run is an equal share, or that of an uneven mask.
 */
#include "../common/tp.h"

static int32_t choose_mask(const bs_layer_spec *spec, bs_mask *out_mask, bs_error *err) {
  if (spec->mask == NULL) {
    memset(out_mask, 0, sizeof *out_mask);
    out_mask->struct_size = (uint32_t)sizeof *out_mask;
    out_mask->kind = BS_MASK_CONTIGUOUS;
    out_mask->name = "contiguous";
    return BS_OK;
  }
  if (spec->mask->kind != BS_MASK_CONTIGUOUS && spec->mask->kind != BS_MASK_UNEVEN) {
    bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-MASK",
            "method row_parallel gives each rank a run of columns: mask %s does not",
            spec->mask->name != NULL ? spec->mask->name : "given");
    return bs_fail_hint(err, "use blockshock for this mask, or the masks contiguous and uneven"),
           BS_UNSUPPORTED;
  }
  *out_mask = *spec->mask;
  return BS_OK;
}

static const tp_option options[] = {TP_OVERLAP_OPTIONS};

static const tp_traits traits = {
    .name = "row_parallel",
    .split = BS_SPLIT_K,
    .site = "row_parallel.y",
    .x_site = "row_parallel.x",
    .dx_site = "row_parallel.dx",
    .dy_site = "row_parallel.dy",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .choose_mask = choose_mask,
};

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_method method = {
      .default_world = 2,
      .mask_kinds = 1u << BS_MASK_CONTIGUOUS | 1u << BS_MASK_UNEVEN,
      .name = "row_parallel",
      .aliases = "dense_tp",
      .summary = "each rank takes a run of input columns; partial sums are all-reduced",
      .option_docs = TP_OVERLAP_DOC TP_OPTION_DOCS,
  };
  return tp_activate(host, self, &traits, &method, &at, out_state, err);
}

BS_PLUGIN_DEFINE("row_parallel", BS_PLUGIN_VERSION,
                 "inputs split over ranks in runs: all-reduce or reduce-scatter", 1u << BS_KIND_METHOD,
                 "method:row_parallel\nmethod:dense_tp=row_parallel\n", activate, tp_deactivate)
