/* SPDX-License-Identifier: MIT
 *
 * column_parallel.c - the method "column_parallel": rank r holds the rows of W that make its features,
 * Y_r = X W_r^T + b_r, for the whole X. The blocks are gathered (y replicated: an in-place all-gather
 * over y's row stride) or left where they are (y split: no collective). Half the wire bytes of
 * row_parallel's all-reduce, and the activation fuses into the product.
 */
#include "../common/tp.h"

static const tp_option options[] = {TP_OVERLAP_OPTIONS};

static const tp_traits traits = {
    .name = "column_parallel",
    .split = BS_SPLIT_N,
    .site = "column_parallel.y",
    .x_site = "column_parallel.x",
    .dx_site = "column_parallel.dx",
    .dy_site = "column_parallel.dy",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
};

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_method method = {
      .default_world = 2,
      .name = "column_parallel",
      .summary = "each rank makes its own features; all-gather, or a sharded output",
      .option_docs = TP_OVERLAP_DOC TP_OPTION_DOCS,
  };
  return tp_activate(host, self, &traits, &method, &at, out_state, err);
}

BS_PLUGIN_DEFINE("column_parallel", BS_PLUGIN_VERSION,
                 "outputs split over ranks: all-gather, or a sharded output", 1u << BS_KIND_METHOD,
                 "method:column_parallel\n", activate, tp_deactivate)
