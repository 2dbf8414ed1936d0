/* SPDX-License-Identifier: MIT
 *
 * masked_split.c - the method "masked_split": blockshock's mask with dense storage. Rank r keeps all K
 * columns, zeros where the mask gives them to others, and multiplies the zeros too: the ablation that
 * shows what skipping them is worth. Only the own columns of W are ever read.
 */
#include "../common/tp.h"

static const tp_option options[] = {TP_OVERLAP_OPTIONS};

static const tp_traits traits = {
    .name = "masked_split",
    .split = BS_SPLIT_K,
    .full_width = 1,
    .site = "masked_split.y",
    .x_site = "masked_split.x",
    .dx_site = "masked_split.dx",
    .dy_site = "masked_split.dy",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .choose_mask = tp_mask_or_complement,
};

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_method method = {
      .default_world = 2,
      .mask_kinds = BS_MASK_KINDS_ALL,
      .name = "masked_split",
      .aliases = "masked_split_dense",
      .summary = "blockshock's mask in dense storage: the zeros are multiplied too (ablation)",
      .option_docs = TP_OVERLAP_DOC TP_OPTION_DOCS,
  };
  return tp_activate(host, self, &traits, &method, &at, out_state, err);
}

BS_PLUGIN_DEFINE("masked_split", BS_PLUGIN_VERSION, "ablation of blockshock: the mask in dense storage",
                 1u << BS_KIND_METHOD, "method:masked_split\nmethod:masked_split_dense=masked_split\n",
                 activate, tp_deactivate)
