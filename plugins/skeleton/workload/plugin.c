/* SPDX-License-Identifier: MIT
 * plugin.c - the table of the plugin skel_workload: one line of `things` and one register_thing for each
 * thing. */
#include "skel_workload.h"

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_workload workload; /* copied by the host; its strings are static */
  skel_workload_table(&workload);
  *out_state = NULL;
  return host->register_thing(host->ctx, self, BS_KIND_WORKLOAD, &workload, (void *)(uintptr_t)host, &at,
                              err);
}

BS_PLUGIN_DEFINE("skel_workload", "0.1.0", "normal inputs with outlier features", 1u << BS_KIND_WORKLOAD,
                 "workload:skel_workload\n", activate, NULL)
