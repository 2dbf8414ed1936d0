/* SPDX-License-Identifier: MIT
 *
 * dense.c - the method "dense": the whole layer on one rank, Y = X W^T + b. The reference that every
 * split is timed against. No collective; bias and activation are part of the product.
 */
#include "../common/tp.h"

static const tp_traits traits = {
    .name = "dense",
    .split = BS_SPLIT_NONE,
    .site = "dense",
};

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_method method = {
      .min_world = 1,
      .max_world = 1,
      .default_world = 1,
      .name = "dense",
      .aliases = "dense_single",
      .summary = "the whole layer on one rank",
      .option_docs = TP_OPTION_DOCS,
  };
  return tp_activate(host, self, &traits, &method, &at, out_state, err);
}

BS_PLUGIN_DEFINE("dense", BS_PLUGIN_VERSION, "the whole layer on one rank: the reference of every split",
                 1u << BS_KIND_METHOD, "method:dense\nmethod:dense_single=dense\n", activate, tp_deactivate)
