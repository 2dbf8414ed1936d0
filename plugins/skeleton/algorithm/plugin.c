/* SPDX-License-Identifier: MIT
 * plugin.c - the table of the plugin skel_algorithm: one line of `things` and one register_thing for each
 * thing. */
#include "skel_algorithm.h"

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  static const bs_src_loc at = {"skel_algorithm.c", 1, 0}; /* the file that reports name */
  bs_algorithm algorithm;                                  /* copied by the host; its strings are static */
  skel_algorithm_table(&algorithm);
  *out_state = NULL;
  return host->register_thing(host->ctx, self, BS_KIND_ALGORITHM, &algorithm, NULL, &at, err);
}

BS_PLUGIN_DEFINE("skel_algorithm", "0.1.0", "an all-reduce over rank 0", 1u << BS_KIND_ALGORITHM,
                 "algorithm:skel_algorithm\n", activate, NULL)
