/* SPDX-License-Identifier: MIT
 *
 * plugin.c - the table of the cpu plugin: what it registers and its parameters. One op, one file of
 * ops/ (dnnl/ for oneDNN's). */
#include <stdlib.h>

#include "cpu.h"
#include "pool.h"

static const bs_param_desc params[] = {
    {sizeof(bs_param_desc), BS_PARAM_STRING, "isa", "auto",
     "auto|portable|avx2|avx512|avx512_bf16|amx|amx_model", NULL,
     "instruction set of our own kernels; amx_model: AMX computed in C, for tests; oneDNN chooses its own"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "units", "auto", "auto|1|2", NULL,
     "units for 512-bit multiply-adds that tiles are made for; auto: as many as the processor has"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "matmul", "auto", "auto|amx|packed|dnnl", NULL,
     "the matmul that serves: auto chooses by shape, the others are for comparisons"},
    {sizeof(bs_param_desc), BS_PARAM_STRING, "dnnl_library", "auto", NULL, NULL,
     "path of oneDNN's library (>= 3); auto: look next to the plugin and in the system, once it is chosen or "
     "could be faster; now: the same at the first product; off: do not use it"},
};

static int32_t param_text(const cpu_state *state, const char *name, const char **out_text, bs_error *err) {
  bs_value value;
  memset(&value, 0, sizeof value);
  value.struct_size = (uint32_t)sizeof value;
  const int32_t rc = state->host->param_get(state->host->ctx, state->self, name, &value, err);
  *out_text = rc == BS_OK && value.s != NULL ? value.s : "auto";
  return rc;
}

static int32_t configure(cpu_state *state, bs_plugin_self *self, bs_error *err) {
  const char *isa = NULL, *units = NULL;
  for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
    const int32_t rc = state->host->param_define(state->host->ctx, self, &params[i], err);
    if (rc != BS_OK) return rc;
  }
  int32_t rc = param_text(state, "isa", &isa, err);
  if (rc == BS_OK) rc = param_text(state, "units", &units, err);
  if (rc == BS_OK) rc = param_text(state, "matmul", &state->matmul, err);
  if (rc != BS_OK) return rc;
  cpu_isa_detect(&state->isa);
  rc = cpu_kernels_choose(&state->isa, isa, units, &state->kernels, err);
  if (rc == BS_OK && strcmp(state->matmul, "amx") == 0 && state->kernels.amx == NULL) {
    rc = bs_fail(err, BS_UNAVAILABLE, "BS-CPU-ISA", "matmul=amx: the kernels %s have no tiles of AMX",
                 state->kernels.name);
    bs_fail_hint(err, "use matmul=auto, or a processor with AMX and isa=auto");
  }
#ifdef BS_CPU_DNNL
  const char *library = NULL;
  if (rc == BS_OK) rc = param_text(state, "dnnl_library", &library, err);
  if (rc == BS_OK) rc = cpu_dnnl_create(state, library, &state->dnnl, err);
#endif
  return rc;
}

static int32_t register_all(cpu_state *state, bs_plugin_self *self, bs_error *err) {
  static const struct {
    uint32_t kind;
    const void *vtable;
    const bs_src_loc *at;
  } things[] = {
      {BS_KIND_BACKEND, &cpu_backend, &cpu_backend_at},
#ifdef BS_CPU_DNNL
      {BS_KIND_OP, &cpu_matmul_dnnl, &cpu_matmul_dnnl_at},
#endif
      {BS_KIND_OP, &cpu_matmul_amx, &cpu_matmul_amx_at},
      {BS_KIND_OP, &cpu_matmul_packed, &cpu_matmul_packed_at},
      {BS_KIND_OP, &cpu_gather_columns, &cpu_gather_columns_at},
      {BS_KIND_OP, &cpu_scatter_columns, &cpu_scatter_columns_at},
      {BS_KIND_OP, &cpu_convert, &cpu_convert_at},
      {BS_KIND_OP, &cpu_activate_op, &cpu_activate_op_at},
      {BS_KIND_OP, &cpu_matmul_dx, &cpu_matmul_dx_at},
      {BS_KIND_OP, &cpu_matmul_dw, &cpu_matmul_dw_at},
      {BS_KIND_OP, &cpu_matmul_update, &cpu_matmul_update_at},
      {BS_KIND_OP, &cpu_sgd_update, &cpu_sgd_update_at},
      {BS_KIND_OP, &cpu_adamw_update, &cpu_adamw_update_at},
      {BS_KIND_OP, &cpu_activate_dx, &cpu_activate_dx_at},
      {BS_KIND_OP, &cpu_quantize_groups, &cpu_quantize_groups_at},
      {BS_KIND_OP, &cpu_dequantize_sum, &cpu_dequantize_sum_at},
      {BS_KIND_OP, &cpu_tree_sum, &cpu_tree_sum_at},
      {BS_KIND_OP, &cpu_matmul24, &cpu_matmul24_at},
      {BS_KIND_OP, &cpu_matmul24_dx, &cpu_matmul24_dx_at},
      {BS_KIND_OP, &cpu_matmul24_dw, &cpu_matmul24_dw_at},
      {BS_KIND_OP, &cpu_matmul24_update, &cpu_matmul24_update_at},
      {BS_KIND_OP, &cpu_expand24, &cpu_expand24_at},
      {BS_KIND_OP, &cpu_dequantize_product, &cpu_dequantize_product_at},
      {BS_KIND_OP, &cpu_matmul_bytes, &cpu_matmul_bytes_at},
      {BS_KIND_OP, &cpu_scaled_matmul, &cpu_scaled_matmul_at},
      {BS_KIND_OP, &cpu_attention_op, &cpu_attention_op_at},
      {BS_KIND_OP, &cpu_attention_dx, &cpu_attention_dx_at},
      {BS_KIND_OP, &cpu_contract_op, &cpu_contract_op_at},
      {BS_KIND_OP, &cpu_contract_integers, &cpu_contract_integers_at},
      {BS_KIND_OP, &cpu_reduce_op, &cpu_reduce_op_at},
      {BS_KIND_OP, &cpu_reduce_any, &cpu_reduce_any_at},
      {BS_KIND_OP, &cpu_take_op, &cpu_take_op_at},
      {BS_KIND_OP, &cpu_put_op, &cpu_put_op_at},
      {BS_KIND_OP, &cpu_topk_op, &cpu_topk_op_at},
      {BS_KIND_OP, &cpu_matmul_q, &cpu_matmul_q_at},
      {BS_KIND_OP, &cpu_take_q, &cpu_take_q_at},
      {BS_KIND_OP, &cpu_map, &cpu_map_at},
      {BS_KIND_OP, &cpu_normalize, &cpu_normalize_at},
  };
  for (size_t i = 0; i < sizeof things / sizeof things[0]; i++) {
    if (things[i].vtable == &cpu_matmul_amx && state->kernels.amx == NULL) continue;
    const int32_t rc = state->host->register_thing(state->host->ctx, self, things[i].kind, things[i].vtable,
                                                   state, things[i].at, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t deactivate(void *opaque, bs_error *err) {
  cpu_state *state = opaque;
  (void)err;
  if (state == NULL) return BS_OK;
#ifdef BS_CPU_DNNL
  cpu_dnnl_destroy(state->dnnl);
#endif
  cpu_pool_trim();
  (void)pthread_mutex_destroy(&state->codes_lock);
  free(state);
  return BS_OK;
}

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  cpu_state *state = calloc(1, sizeof *state);
  if (state == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for the plugin's state");
  if (pthread_mutex_init(&state->codes_lock, NULL) != 0) {
    free(state);
    return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a lock");
  }
  state->host = host;
  state->self = self;
  int32_t rc = configure(state, self, err);
  if (rc == BS_OK) rc = register_all(state, self, err);
  if (rc != BS_OK) {
    (void)deactivate(state, NULL);
    return rc;
  }
  *out_state = state;
  return BS_OK;
}

BS_PLUGIN_DEFINE(
    "cpu", BS_PLUGIN_VERSION, "CPU backend: own AMX, AVX-512, AVX2 or portable kernels, and oneDNN",
    1u << BS_KIND_BACKEND | 1u << BS_KIND_OP,
    "backend:cpu\nop:matmul@cpu\nop:gather_columns@cpu\nop:scatter_columns@cpu\nop:convert@"
    "cpu\nop:activate@cpu\n"
    "op:matmul_dx@cpu\nop:matmul_dw@cpu\nop:matmul_update@cpu\n"
    "op:sgd_update@cpu\nop:adamw_update@cpu\nop:activate_dx@cpu\n"
    "op:quantize_groups@cpu\nop:dequantize_sum@cpu\nop:dequantize_product@cpu\n"
    "op:scaled_matmul@cpu\nop:attention@cpu\nop:attention_dx@cpu\nop:contract@cpu\nop:reduce@cpu\nop:take@"
    "cpu\n"
    "op:put@cpu\nop:topk@cpu\nop:tree_sum@cpu\n"
    "op:matmul24@cpu\nop:matmul24_dx@cpu\nop:matmul24_dw@cpu\nop:matmul24_update@cpu\nop:expand24@cpu\n"
    "op:map@cpu\nop:normalize@cpu\nop:matmul_q@cpu\nop:take_q@cpu\n",
    activate, deactivate)
