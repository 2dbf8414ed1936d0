/* SPDX-License-Identifier: MIT
 * plugin.c - the table of the plugin skel_backend: one line of `things` and one register_thing for each
 * thing. */
#include "skel_backend.h"

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  void *state = (void *)(uintptr_t)host;
  bs_backend backend; /* tables are copied by the host; their strings are static */
  bs_op_impl matmul;
  skel_backend_table(&backend);
  skel_backend_matmul_table(&matmul);
  *out_state = NULL;
  int32_t rc = host->register_thing(host->ctx, self, BS_KIND_BACKEND, &backend, state, &at, err);
  if (rc == BS_OK) rc = host->register_thing(host->ctx, self, BS_KIND_OP, &matmul, state, &at, err);
  return rc;
}

BS_PLUGIN_DEFINE("skel_backend", "0.1.0", "host memory and a plain product of f32 matrices",
                 (1u << BS_KIND_BACKEND) | (1u << BS_KIND_OP),
                 "backend:skel_backend\nop:matmul@skel_backend\n", activate, NULL)
