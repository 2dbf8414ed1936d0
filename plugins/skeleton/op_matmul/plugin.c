/* SPDX-License-Identifier: MIT
 * plugin.c - the table of the plugin skel_op: one line of `things` and one register_thing for each thing. */
#include "skel_op.h"

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_op_impl impl; /* copied by the host; its strings are static */
  skel_op_table(&impl);
  *out_state = NULL;
  return host->register_thing(host->ctx, self, BS_KIND_OP, &impl, (void *)(uintptr_t)host, &at, err);
}

BS_PLUGIN_DEFINE("skel_op", "0.1.0", "Y = X W^T + bias in f32 for the backend cpu", 1u << BS_KIND_OP,
                 "op:matmul@cpu\n", activate, NULL)
