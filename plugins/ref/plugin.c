/* SPDX-License-Identifier: MIT
 * plugin.c - the ref plugin: backend "ref" and the portable implementation of every op. Built into the
 * library by default; the same sources make bs_ref.so. One line of `things` and one call an op. */
#include "ref.h"

#ifndef BS_PLUGIN_VERSION
#define BS_PLUGIN_VERSION "0.1.0"
#endif

static int32_t activate(const bs_host *host, bs_plugin_self *self, void **out_state, bs_error *err) {
  const struct {
    uint32_t kind;
    const void *vtable;
    const bs_src_loc *at;
  } things[] = {
      {BS_KIND_BACKEND, &ref_backend, &ref_backend_at},
      {BS_KIND_OP, &ref_matmul, &ref_matmul_at},
      {BS_KIND_OP, &ref_gather_columns, &ref_gather_columns_at},
      {BS_KIND_OP, &ref_scatter_columns, &ref_scatter_columns_at},
      {BS_KIND_OP, &ref_convert, &ref_convert_at},
      {BS_KIND_OP, &ref_activate, &ref_activate_at},
      {BS_KIND_OP, &ref_matmul_dx, &ref_matmul_dx_at},
      {BS_KIND_OP, &ref_matmul_dw, &ref_matmul_dw_at},
      {BS_KIND_OP, &ref_matmul_update, &ref_matmul_update_at},
      {BS_KIND_OP, &ref_matmul24, &ref_matmul24_at},
      {BS_KIND_OP, &ref_matmul24_dx, &ref_matmul24_dx_at},
      {BS_KIND_OP, &ref_matmul24_dw, &ref_matmul24_dw_at},
      {BS_KIND_OP, &ref_matmul24_update, &ref_matmul24_update_at},
      {BS_KIND_OP, &ref_expand24, &ref_expand24_at},
      {BS_KIND_OP, &ref_sgd_update, &ref_sgd_update_at},
      {BS_KIND_OP, &ref_adamw_update, &ref_adamw_update_at},
      {BS_KIND_OP, &ref_activate_dx, &ref_activate_dx_at},
      {BS_KIND_OP, &ref_quantize_groups, &ref_quantize_groups_at},
      {BS_KIND_OP, &ref_dequantize_sum, &ref_dequantize_sum_at},
      {BS_KIND_OP, &ref_tree_sum, &ref_tree_sum_at},
      {BS_KIND_OP, &ref_map, &ref_map_at},
      {BS_KIND_OP, &ref_normalize, &ref_normalize_at},
      {BS_KIND_OP, &ref_attention, &ref_attention_at},
      {BS_KIND_OP, &ref_attention_dx, &ref_attention_dx_at},
      {BS_KIND_OP, &ref_contract, &ref_contract_at},
      {BS_KIND_OP, &ref_reduce, &ref_reduce_at},
      {BS_KIND_OP, &ref_take, &ref_take_at},
      {BS_KIND_OP, &ref_put, &ref_put_at},
      {BS_KIND_OP, &ref_topk, &ref_topk_at},
      {BS_KIND_OP, &ref_matmul_q, &ref_matmul_q_at},
      {BS_KIND_OP, &ref_take_q, &ref_take_q_at},
      {BS_KIND_OP, &ref_dequantize_product, &ref_dequantize_product_at},
      {BS_KIND_OP, &ref_scaled_matmul, &ref_scaled_matmul_at},
      {BS_KIND_OP, &ref_loss_gradient, &ref_loss_gradient_at},
  };
  ref_state *state = host->alloc(host->ctx, sizeof *state, 64);
  if (state == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for the plugin's state");
  state->host = host;
  for (size_t i = 0; i < sizeof things / sizeof things[0]; i++) {
    const int32_t rc =
        host->register_thing(host->ctx, self, things[i].kind, things[i].vtable, state, things[i].at, err);
    if (rc != BS_OK) {
      host->free(host->ctx, state);
      return rc;
    }
  }
  *out_state = state;
  return BS_OK;
}

static int32_t deactivate(void *opaque, bs_error *err) {
  (void)err;
  ref_state *state = opaque;
  state->host->free(state->host->ctx, state);
  return BS_OK;
}

BS_PLUGIN_DEFINE("ref", BS_PLUGIN_VERSION, "portable C: the meaning of every op, and the oracle",
                 1u << BS_KIND_BACKEND | 1u << BS_KIND_OP,
                 "backend:ref\nop:matmul@ref\nop:gather_columns@ref\nop:scatter_columns@ref\n"
                 "op:convert@ref\nop:activate@ref\nop:matmul_dx@ref\nop:matmul_dw@ref\n"
                 "op:matmul_update@ref\nop:matmul24@ref\nop:matmul24_dx@ref\nop:matmul24_dw@ref\n"
                 "op:matmul24_update@ref\nop:expand24@ref\n"
                 "op:sgd_update@ref\nop:adamw_update@ref\nop:activate_dx@ref\n"
                 "op:quantize_groups@ref\nop:dequantize_sum@ref\n"
                 "op:dequantize_product@ref\nop:scaled_matmul@ref\nop:loss_gradient@ref\n"
                 "op:tree_sum@ref\nop:map@ref\nop:normalize@ref\nop:attention@ref\nop:attention_dx@ref\n"
                 "op:contract@ref\nop:reduce@ref\nop:take@ref\nop:put@ref\nop:topk@ref\n"
                 "op:matmul_q@ref\nop:take_q@ref\n",
                 activate, deactivate)
