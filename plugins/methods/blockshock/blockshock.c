/* SPDX-License-Identifier: MIT
 *
 * blockshock.c - the method "blockshock": W = W1 + W2 by a mask and its complement, each rank multiplies
 * with its part, an all-reduce (or reduce-scatter) adds the outputs. Exact: nothing is pruned. A mask
 * whose kept columns are the same in every row is a K-partition, so the part is packed as those columns
 * and the product is dense over them; the kernel picks X's columns, or they are gathered first.
 */
#include "../common/tp.h"

static int32_t check(const bs_layer_spec *spec, bs_error *err) {
  if (strcmp(tp_option_get(spec, "kernel", "auto"), "sparse24") != 0) return BS_OK;
  bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-KERNEL",
          "kernel=sparse24 asks for the 2:4 op, which is not part of this version");
  return bs_fail_hint(err,
                      "kernel=auto runs fixed masks as a gather and a dense product, with the same result"),
         BS_UNSUPPORTED;
}

static const tp_option options[] = {{"kernel", "auto|gather|sparse24"}};

static const tp_traits traits = {
    .name = "blockshock",
    .split = BS_SPLIT_K,
    .site = "blockshock.y",
    .dx_site = "blockshock.dx",
    .dy_site = "blockshock.dy",
    .options = options,
    .n_options = 1,
    .choose_mask = tp_mask_or_complement,
    .check = check,
};

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_method method = {
      .default_world = 2,
      .mask_kinds = BS_MASK_KINDS_ALL,
      .name = "blockshock",
      .aliases = "block_shock_2gpu",
      .summary = "complementary masks: each rank multiplies its own columns, outputs are all-reduced",
      .option_docs =
          "kernel=auto: auto lets the kernel pick X's columns where it can, gather always copies them "
          "first (timed as layout_fix), sparse24 asks for the 2:4 op\n",
  };
  return tp_activate(host, self, &traits, &method, &at, out_state, err);
}

BS_PLUGIN_DEFINE("blockshock", BS_PLUGIN_VERSION,
                 "complementary masks: every rank multiplies its own columns", 1u << BS_KIND_METHOD,
                 "method:blockshock\nmethod:block_shock_2gpu=blockshock\n", activate, tp_deactivate)
