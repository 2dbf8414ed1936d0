/* SPDX-License-Identifier: MIT
 * plugin.c - the sim plugin: virtual devices (backend "sim") and ranks in virtual time (communicator "sim"),
 * so that the same method .so runs on machines that are not available. */
#include <sys/mman.h>

#include "sim.h"

#ifndef BS_PLUGIN_VERSION
#define BS_PLUGIN_VERSION "0.1.0"
#endif

/* Addresses for device memory: reserved, never backed, so that a read of one ends the process at the place
 * that made it. As many as the system gives. */
static int32_t reserve(sim_plugin *plugin, bs_error *err) {
  for (uint64_t bytes = UINT64_C(1) << 44; bytes >= UINT64_C(1) << 30; bytes /= 2) {
    void *base = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    plugin->base = base;
    plugin->range = bytes;
    return BS_OK;
  }
  bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "the system gives no range of 1 GiB of addresses");
  return bs_fail_hint(err, "ulimit -v");
}

static void release(sim_plugin *plugin) {
  sim_inside_close(plugin);
  if (plugin->base != NULL) (void)munmap(plugin->base, (size_t)plugin->range);
  (void)pthread_mutex_destroy(&plugin->lock);
  plugin->host->free(plugin->host->ctx, plugin);
}

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  sim_plugin *plugin = host->alloc(host->ctx, sizeof *plugin, 64);
  if (plugin == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for the plugin's state");
  plugin->host = host;
  plugin->self = self;
  if (pthread_mutex_init(&plugin->lock, NULL) != 0) {
    host->free(host->ctx, plugin);
    return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no mutex for the plugin");
  }
  int32_t rc = sim_params_define(plugin, err);
  if (rc == BS_OK) rc = sim_params_read(plugin, err);
  if (rc == BS_OK) rc = reserve(plugin, err);
  if (rc == BS_OK)
    rc = host->register_thing(host->ctx, self, BS_KIND_BACKEND, &sim_backend, plugin, &sim_backend_at, err);
  if (rc == BS_OK)
    rc = host->register_thing(host->ctx, self, BS_KIND_COMM, &sim_comm_table, plugin, &sim_comm_at, err);
  if (rc == BS_OK)
    rc = host->register_thing(host->ctx, self, BS_KIND_BACKEND, &sim_virtual, plugin, &sim_virtual_at, err);
  if (rc == BS_OK) rc = sim_topologies_register(plugin, err);
  if (rc == BS_OK) rc = sim_ops_register(plugin, err);
  if (rc != BS_OK) {
    release(plugin);
    return rc;
  }
  *out_state = plugin;
  return BS_OK;
}

static int32_t deactivate(void *state, bs_error *err) {
  (void)err;
  release(state);
  return BS_OK;
}

BS_PLUGIN_DEFINE(
    "sim", BS_PLUGIN_VERSION, "virtual devices and ranks: how long a layer would take",
    1u << BS_KIND_BACKEND | 1u << BS_KIND_COMM | 1u << BS_KIND_OP | 1u << BS_KIND_TOPOLOGY,
    "backend:sim\ncomm:sim\nbackend:virtual:\n"
    "topology:ring\ntopology:torus2d\ntopology:fullmesh\ntopology:nvswitch\ntopology:fat_tree\n"
    "topology:hier\ntopology:mesh2d\n"
    "op:matmul@sim\nop:matmul_dx@sim\nop:matmul_dw@sim\nop:matmul_update@sim\n"
    "op:matmul24@sim\nop:matmul24_dx@sim\nop:matmul24_dw@sim\nop:matmul24_update@sim\n"
    "op:expand24@sim\nop:sgd_update@sim\nop:adamw_update@sim\nop:gather_columns@sim\n"
    "op:scatter_columns@sim\nop:convert@sim\nop:activate@sim\nop:activate_dx@sim\n"
    "op:quantize_groups@sim\nop:dequantize_sum@sim\nop:dequantize_product@sim\n"
    "op:scaled_matmul@sim\nop:loss_gradient@sim\nop:tree_sum@sim\nop:map@sim\n"
    "op:normalize@sim\nop:attention@sim\nop:attention_dx@sim\nop:contract@sim\nop:reduce@sim\nop:take@sim\n"
    "op:put@sim\nop:topk@sim\nop:matmul_q@sim\nop:take_q@sim\n",
    activate, deactivate)
