/* SPDX-License-Identifier: MIT
 * gguf_names.c - see gguf_names.h. */
#include "formats/gguf_names.h"

#include <stdio.h>
#include <string.h>

static const bs_gguf_family llama = {
    .layers = "model.layers.",
    .tensors = (const bs_gguf_name_pair[]){{"model.embed_tokens.", "token_embd."},
                                           {"model.norm.", "output_norm."},
                                           {"lm_head.", "output."},
                                           {0}},
    .in_layer = (const bs_gguf_name_pair[]){{"input_layernorm.", "attn_norm."},
                                            {"self_attn.q_proj.", "attn_q."},
                                            {"self_attn.k_proj.", "attn_k."},
                                            {"self_attn.v_proj.", "attn_v."},
                                            {"self_attn.o_proj.", "attn_output."},
                                            {"self_attn.q_norm.", "attn_q_norm."},
                                            {"self_attn.k_norm.", "attn_k_norm."},
                                            {"post_attention_layernorm.", "ffn_norm."},
                                            {"mlp.gate_proj.", "ffn_gate."},
                                            {"mlp.up_proj.", "ffn_up."},
                                            {"mlp.down_proj.", "ffn_down."},
                                            {0}}};
static const bs_gguf_family gpt2 = {
    .layers = "transformer.h.",
    .tensors = (const bs_gguf_name_pair[]){{"transformer.wte.", "token_embd."},
                                           {"transformer.wpe.", "position_embd."},
                                           {"transformer.ln_f.", "output_norm."},
                                           {"lm_head.", "output."},
                                           {0}},
    .in_layer = (const bs_gguf_name_pair[]){{"ln_1.", "attn_norm."},
                                            {"attn.c_attn.", "attn_qkv."},
                                            {"attn.c_proj.", "attn_output."},
                                            {"ln_2.", "ffn_norm."},
                                            {"mlp.c_fc.", "ffn_up."},
                                            {"mlp.c_proj.", "ffn_down."},
                                            {0}},
    .is_gpt2 = 1};

static const bs_gguf_arch archs[] = {
    {"llama", &llama, 1}, {"qwen2", &llama, 0}, {"qwen3", &llama, 0}, {"gpt2", &gpt2, 0}};
const bs_gguf_config_key bs_gguf_config_keys[] = {
    {"context_length", "max_position_embeddings", "n_positions", BS_GGUF_CONFIG_INT},
    {"embedding_length", "hidden_size", "n_embd", BS_GGUF_CONFIG_INT},
    {"block_count", "num_hidden_layers", "n_layer", BS_GGUF_CONFIG_INT},
    {"feed_forward_length", "intermediate_size", "n_inner", BS_GGUF_CONFIG_INT},
    {"attention.head_count", "num_attention_heads", "n_head", BS_GGUF_CONFIG_INT},
    {"attention.head_count_kv", "num_key_value_heads", NULL, BS_GGUF_CONFIG_INT},
    {"attention.key_length", "head_dim", NULL, BS_GGUF_CONFIG_INT},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", NULL, BS_GGUF_CONFIG_REAL},
    {"attention.layer_norm_epsilon", NULL, "layer_norm_epsilon", BS_GGUF_CONFIG_REAL},
    {"attention.sliding_window", "sliding_window", NULL, BS_GGUF_CONFIG_INT},
    {"rope.freq_base", "rope_theta", NULL, BS_GGUF_CONFIG_REAL},
    {"rope.scaling.factor", "rope_scaling.factor", NULL, BS_GGUF_CONFIG_REAL},
    {"rope.scaling.original_context_length", "rope_scaling.original_max_position_embeddings", NULL,
     BS_GGUF_CONFIG_INT},
    {"expert_count", NULL, NULL, BS_GGUF_CONFIG_ZERO},
    {"expert_used_count", NULL, NULL, BS_GGUF_CONFIG_ZERO},
    {"attention.max_alibi_bias", NULL, NULL, BS_GGUF_CONFIG_ZERO},
    {"attention.clamp_kqv", NULL, NULL, BS_GGUF_CONFIG_ZERO},
    {"use_parallel_residual", NULL, NULL, BS_GGUF_CONFIG_ZERO},
    {"attention.value_length", NULL, NULL, BS_GGUF_CONFIG_UNUSED}, /* shapes of tensors are checked */
    {"rope.dimension_count", NULL, NULL, BS_GGUF_CONFIG_UNUSED},   /* set_heads reads it */
    {"rope.scaling.type", NULL, NULL, BS_GGUF_CONFIG_UNUSED},      /* the same */
    {"rope.scaling.finetuned", NULL, NULL, BS_GGUF_CONFIG_UNUSED},
    {"vocab_size", NULL, NULL, BS_GGUF_CONFIG_UNUSED}, /* the rows of token_embd count */
    {"tensor_data_layout", NULL, NULL, BS_GGUF_CONFIG_UNUSED},
    {"pooling_type", NULL, NULL, BS_GGUF_CONFIG_UNUSED},
    {0}};

const bs_gguf_arch *bs_gguf_arch_of(bs_span name) {
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
    if (bs_span_is(name, archs[i].name)) return &archs[i];
  return NULL;
}

static const bs_gguf_name_pair *beginning(const bs_gguf_name_pair *pairs, const char *name) {
  while (pairs->folder != NULL && strncmp(name, pairs->folder, strlen(pairs->folder)) != 0) pairs++;
  return pairs->folder != NULL ? pairs : NULL;
}

const char *bs_gguf_tensor_name(const bs_gguf_family *family, const char *name, char *buffer, size_t size) {
  const size_t layers = strlen(family->layers);
  const bs_gguf_name_pair *pair = beginning(family->tensors, name);
  if (pair != NULL) {
    snprintf(buffer, size, "%s%s", pair->file, name + strlen(pair->folder));
    return buffer;
  }
  if (strncmp(name, family->layers, layers) != 0) return name;
  const char *number = name + layers, *rest = strchr(number, '.');
  if (rest == NULL || rest - number > 10) return name;
  pair = beginning(family->in_layer, rest + 1);
  if (pair == NULL) return name;
  snprintf(buffer, size, "blk.%.*s.%s%s", (int)(rest - number), number, pair->file,
           rest + 1 + strlen(pair->folder));
  return buffer;
}
