/* SPDX-License-Identifier: MIT
 * plugin.c - the table of the plugin bad_attention, and its one parameter. */
#include "bad_attention.h"

#define NAMES                                                                                            \
  "none|refused|lost_knob|rebuilt|spilled|many_registers|much_shared|zero|nan|last_tile|batch|half_lsb|" \
  "taylor_exp|unsteady|greedy|one_output|mute_device"

static const bs_param_desc param = {.struct_size = (uint32_t)sizeof(bs_param_desc),
                                    .type = BS_PARAM_STRING,
                                    .name = "fault",
                                    .default_text = "none",
                                    .choices = NAMES,
                                    .doc = "what is wrong (share/doc/blockshock/dev/gate-controls.md)"};

/* The number of a word in the list of choices is the fault's. */
int32_t bad_fault_of(const bad_plugin *plugin, uint32_t *out_fault, bs_error *err) {
  bs_value value = {.struct_size = (uint32_t)sizeof value};
  const int32_t rc = plugin->host->param_get(plugin->host->ctx, plugin->self, param.name, &value, err);
  if (rc != BS_OK) return rc;
  const char *word = NAMES;
  for (*out_fault = 0; *out_fault < BAD_COUNT_; ++*out_fault) {
    const size_t length = strcspn(word, "|");
    if (strlen(value.s) == length && strncmp(word, value.s, length) == 0) return BS_OK;
    word += length + (word[length] == '|');
  }
  return bs_fail(err, BS_CONFIG, "BS-BAD-FAULT", "no fault is called '%.60s'", value.s);
}

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  BS_HERE_LOC(at);
  bad_plugin *plugin = host->alloc(host->ctx, sizeof *plugin, 64);
  bs_backend backend;
  bs_op_impl attention;
  if (plugin == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-BAD-MEMORY", "no memory for the plugin's state");
  *plugin = (bad_plugin){host, self};
  bad_backend_table(&backend);
  bad_attention_table(&attention);
  uint32_t fault = BAD_NONE;
  int32_t rc = host->param_define(host->ctx, self, &param, err);
  if (rc == BS_OK) rc = bad_fault_of(plugin, &fault, err);
  if (fault == BAD_MUTE_DEVICE) backend.flags &= ~(uint32_t)BS_BACKEND_HOST_MEMORY;
  if (rc == BS_OK) rc = host->register_thing(host->ctx, self, BS_KIND_BACKEND, &backend, plugin, &at, err);
  if (rc == BS_OK) rc = host->register_thing(host->ctx, self, BS_KIND_OP, &attention, plugin, &at, err);
  if (rc != BS_OK) {
    host->free(host->ctx, plugin);
    return rc;
  }
  *out_state = plugin;
  return BS_OK;
}

static int32_t deactivate(void *state, bs_error *err) {
  bad_plugin *plugin = state;
  (void)err;
  plugin->host->free(plugin->host->ctx, plugin);
  return BS_OK;
}

BS_PLUGIN_DEFINE("bad_attention", BS_PLUGIN_VERSION,
                 "for tests: an attention with a chosen fault, a control of gates",
                 (1u << BS_KIND_BACKEND) | (1u << BS_KIND_OP),
                 "backend:bad_attention\nop:attention@bad_attention\n", activate, deactivate)
