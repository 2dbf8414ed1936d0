/* SPDX-License-Identifier: MIT
 *
 * plugin.c - the plugins fault and slow: each a communicator and a backend that wrap another one. WRAP_SLOW
 * chooses which of the two this is.
 */
#include "common/wrap.h"

#if WRAP_SLOW
#define WRAP_ID "slow"
#define WRAP_WHAT "calls of another communicator or backend, some of them late"
#define WRAP_DOC \
  "RANK, OP, SEQ as in rank=1,op=all_reduce,seq=3,ms=20; several with ; (share/doc/blockshock/torture.md)"
#else
#define WRAP_ID "fault"
#define WRAP_WHAT "calls of another communicator or backend, some of them wrong as planned"
#define WRAP_DOC                                                                     \
  "rank=1,op=all_reduce,seq=37,do=hang|err|delay|flip|nan|truncate; several with ; " \
  "(share/doc/blockshock/torture.md)"
#endif

static const bs_param_desc params[] = {
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_STRING,
     .name = "plan",
     .default_text = "",
     .doc = WRAP_DOC},
    {.struct_size = (uint32_t)sizeof(bs_param_desc),
     .type = BS_PARAM_BOOL,
     .name = "count",
     .default_text = "false",
     .doc = "tell how often each rank called what, when its world closes (log level info)"},
};

static int32_t register_both(const bs_host *host, bs_plugin_self *self, wrap_plugin *plugin, bs_error *err) {
  BS_HERE_LOC(here);
  bs_comm comm = wrap_comm_table;
  bs_backend backend = wrap_backend_table;
  comm.name = backend.name = WRAP_ID;
  comm.summary = backend.summary = WRAP_WHAT;
  const int32_t rc = host->register_thing(host->ctx, self, BS_KIND_COMM, &comm, plugin, &here, err);
  if (rc != BS_OK) return rc;
  return host->register_thing(host->ctx, self, BS_KIND_BACKEND, &backend, plugin, &here, err);
}

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  wrap_plugin *plugin = host->alloc(host->ctx, sizeof *plugin, 64);
  int32_t rc = BS_OK;
  wrap_reach *reach = host->alloc(host->ctx, sizeof *reach, 64);
  if (plugin == NULL || reach == NULL) {
    host->free(host->ctx, plugin);
    host->free(host->ctx, reach);
    return bs_fail(err, BS_NO_MEMORY, "BS-WRAP-MEMORY", "no memory for the plugin's state");
  }
  plugin->reach = reach;
  plugin->host = host;
  plugin->self = self;
  plugin->id = WRAP_ID;
  plugin->memory_id = "BS-WRAP-MEMORY";
  plugin->slow = WRAP_SLOW;
  for (size_t i = 0; rc == BS_OK && i < sizeof params / sizeof params[0]; ++i)
    rc = host->param_define(host->ctx, self, &params[i], err);
  if (rc == BS_OK) rc = register_both(host, self, plugin, err);
  if (rc != BS_OK) {
    host->free(host->ctx, reach);
    host->free(host->ctx, plugin);
    return rc;
  }
  *out_state = plugin;
  return BS_OK;
}

static int32_t deactivate(void *state, bs_error *err) {
  wrap_plugin *plugin = state;
  const bs_host *host = plugin->host;
  const int32_t rc = wrap_check_reached(plugin, err);
  host->free(host->ctx, plugin->reach);
  host->free(host->ctx, plugin);
  return rc;
}

BS_PLUGIN_DEFINE(WRAP_ID, BS_PLUGIN_VERSION, "for tests: wraps a communicator or a backend: " WRAP_WHAT,
                 (1u << BS_KIND_COMM) | (1u << BS_KIND_BACKEND), "comm:" WRAP_ID ":\nbackend:" WRAP_ID ":\n",
                 activate, deactivate)
