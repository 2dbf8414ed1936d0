/* SPDX-License-Identifier: MIT
 * plugin.c - the plugin "file": registers the workload of the same name (open.c). */
#include "workload.h"

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  static const bs_workload file = {
      (uint32_t)sizeof(bs_workload),
      0,
      "file",
      NULL,
      "W and bias from a safetensors or .npy file, X from .npy or normal",
      "weights=: path.safetensors#tensor or path.npy, [N,K]; required\n"
      "transpose=false: the weights are stored [K,N]\n"
      "x=: path.npy, [.., K]; without it X is normal of the run's seed\n"
      "bias=: path.safetensors#tensor, path.npy, or auto (the tensor next to .weight)\n"
      "target=: path.npy, [.., N]\n"
      "loss=sum: sum, mse_zero (mse) or mse_target\n"
      "allow_nonfinite=false: run although NaN or Inf is among the values\n",
      bs_file_open,
      bs_file_info,
      bs_file_source,
      bs_file_close};
  BS_HERE_LOC(here);
  void *state = (void *)(uintptr_t)host; /* the table outlives the plugin */
  *out_state = state;
  return host->register_thing(host->ctx, self, BS_KIND_WORKLOAD, &file, state, &here, err);
}

BS_PLUGIN_DEFINE("file", BS_PLUGIN_VERSION, "layers from .npy and safetensors files", 1u << BS_KIND_WORKLOAD,
                 "workload:file\n", activate, NULL)
