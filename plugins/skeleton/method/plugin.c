/* SPDX-License-Identifier: MIT
 * plugin.c - the table of the plugin skel_method: one line of `things` and one register_thing for each thing.
 */
#include "skel_method.h"

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_method method; /* copied by the host; its strings are static */
  skel_method_table(&method);
  *out_state = NULL;
  return host->register_thing(host->ctx, self, BS_KIND_METHOD, &method, NULL, &at, err);
}

BS_PLUGIN_DEFINE("skel_method", "0.1.0", "input columns in runs, one all-reduce", 1u << BS_KIND_METHOD,
                 "method:skel_method\n", activate, NULL)
