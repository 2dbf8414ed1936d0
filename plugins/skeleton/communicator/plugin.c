/* SPDX-License-Identifier: MIT
 * plugin.c - the table of the plugin skel_communicator: one line of `things` and one register_thing for each
 * thing. */
#include "skel_communicator.h"

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bs_comm comm; /* copied by the host; its strings are static */
  skel_communicator_table(&comm);
  *out_state = NULL;
  return host->register_thing(host->ctx, self, BS_KIND_COMM, &comm, (void *)(uintptr_t)host, &at, err);
}

BS_PLUGIN_DEFINE("skel_communicator", "0.1.0", "threads that meet at one lock", 1u << BS_KIND_COMM,
                 "comm:skel_communicator\n", activate, NULL)
