/* SPDX-License-Identifier: MIT
 * folder_case.h - small folders with config.json and safetensors for tests: a GPT-2 and a Llama, whose rows a
 * test may change. Their weights are a formula, so that another program can make the same ones. */
#ifndef BS_TESTS_GRAPH_FOLDER_CASE_H
#define BS_TESTS_GRAPH_FOLDER_CASE_H
#include "tests/formats/files.h"
#include "tests/run_tests.h"

typedef struct entry {
  const char *name,
      *text; /* of a tensor its shape, of config.json a value; text NULL: the entry is left out */
} entry;

/* The row of `changed` with that name, else `row` itself. */
static inline const entry *changed_row(const entry *row, const entry *changed) {
  for (; changed != NULL && changed->name != NULL; changed++)
    if (strcmp(changed->name, row->name) == 0) return changed;
  return row;
}

static inline void write_config(const entry *rows, const entry *changed) {
  char text[4096] = "{";
  size_t at = 1;
  for (const entry *row = rows; row->name != NULL; row++) {
    const char *value = changed_row(row, changed)->text;
    if (value != NULL)
      at +=
          (size_t)snprintf(text + at, sizeof text - at, "%s\"%s\": %s", at > 1 ? ", " : "", row->name, value);
  }
  at += (size_t)snprintf(text + at, sizeof text - at, "}");
  files_write("config.json", text, at);
}

/* Tensors first .. last of the rows. Element k of tensor t is ((37 k + 11 t) mod 101 - 50) / 256. dtype F32,
 * or of a row that begins with "F16:" or "I32:" that one. */
static inline void write_weights(const char *file, const entry *rows, int first, int last,
                                 const entry *changed) {
  static char header[16384];
  static float data[1 << 17];
  size_t at = 0, bytes = 0;
  uint64_t length;
  header[at++] = '{';
  for (int i = first; rows[i].name != NULL && i < last; i++) {
    const char *shape = changed_row(&rows[i], changed)->text;
    long dims[2] = {1, 1};
    if (shape == NULL) continue;
    const int half = strncmp(shape, "F16:", 4) == 0, whole = strncmp(shape, "I32:", 4) == 0;
    shape += half || whole ? 4 : 0;
    char *comma = NULL;
    dims[0] = strtol(shape, &comma, 10);
    if (*comma == ',') dims[1] = strtol(comma + 1, NULL, 10);
    const size_t n = (size_t)(dims[0] * dims[1]);
    for (size_t k = 0; k < n && !half; k++)
      data[bytes / 4 + k] = (float)((int)(k * 37 + (size_t)i * 11) % 101 - 50) / 256;
    at += (size_t)snprintf(header + at, sizeof header - at,
                           "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                           at > 1 ? "," : "", rows[i].name,
                           half    ? "F16"
                           : whole ? "I32"
                                   : "F32",
                           shape, bytes, bytes + n * (half ? 2 : 4));
    bytes += n * (half ? 2 : 4);
  }
  header[at++] = '}';
  while (at % 8 != 0) header[at++] = ' ';
  length = at;
  FILE *f = fopen(files_path(file), "wb");
  ck_assert_ptr_nonnull(f);
  fwrite(&length, 8, 1, f);
  fwrite(header, 1, at, f);
  fwrite(data, 1, bytes, f);
  fclose(f);
}

static const entry gpt2_config[] = {{"model_type", "\"gpt2\""},
                                    {"vocab_size", "5"},
                                    {"n_positions", "8"},
                                    {"n_embd", "6"},
                                    {"n_layer", "2"},
                                    {"n_head", "3"},
                                    {"n_inner", "null"},
                                    {"activation_function", "\"gelu_new\""},
                                    {"layer_norm_epsilon", "1e-05"},
                                    {"scale_attn_by_inverse_layer_idx", "false"},
                                    {"add_cross_attention", "false"},
                                    {"tie_word_embeddings", "true"},
                                    {0}};
#define GPT2_LAYER(n)                                                                               \
  {"h." n ".ln_1.weight", "6"}, {"h." n ".ln_1.bias", "6"}, {"h." n ".attn.c_attn.weight", "6,18"}, \
      {"h." n ".attn.c_attn.bias", "18"}, {"h." n ".attn.c_proj.weight", "6,6"},                    \
      {"h." n ".attn.c_proj.bias", "6"}, {"h." n ".ln_2.weight", "6"}, {"h." n ".ln_2.bias", "6"},  \
      {"h." n ".mlp.c_fc.weight", "6,24"}, {"h." n ".mlp.c_fc.bias", "24"},                         \
      {"h." n ".mlp.c_proj.weight", "24,6"}, {                                                      \
    "h." n ".mlp.c_proj.bias", "6"                                                                  \
  }
static const entry gpt2_weights[] = {{"wte.weight", "5,6"},
                                     {"wpe.weight", "8,6"},
                                     GPT2_LAYER("0"),
                                     GPT2_LAYER("1"),
                                     {"ln_f.weight", "6"},
                                     {"ln_f.bias", "6"},
                                     {0}};

static const entry llama_config[] = {{"model_type", "\"llama\""},
                                     {"vocab_size", "5"},
                                     {"hidden_size", "16"},
                                     {"intermediate_size", "12"},
                                     {"num_hidden_layers", "1"},
                                     {"num_attention_heads", "2"},
                                     {"num_key_value_heads", "1"},
                                     {"head_dim", "8"},
                                     {"hidden_act", "\"silu\""},
                                     {"max_position_embeddings", "8"},
                                     {"rms_norm_eps", "1e-06"},
                                     {"rope_theta", "10000.0"},
                                     {"rope_scaling", NULL},
                                     {"rope_parameters", NULL},
                                     {"use_sliding_window", NULL},
                                     {"sliding_window", NULL},
                                     {"max_window_layers", NULL},
                                     {"layer_types", NULL},
                                     {"tie_word_embeddings", "false"},
                                     {"quantization_config", NULL},
                                     {"attention_bias", NULL},
                                     {"mlp_bias", NULL},
                                     {"per_layer_config", NULL},
                                     {"num_experts", NULL},
                                     {"num_local_experts", NULL},
                                     {"num_experts_per_tok", NULL},
                                     {"decoder_sparse_step", NULL},
                                     {"mlp_only_layers", NULL},
                                     {"use_bidirectional_attention", NULL},
                                     {"attn_logit_softcapping", NULL},
                                     {"final_logit_softcapping", NULL},
                                     {0}};
#define L "model.layers.0."
static const entry llama_weights[] = {{"model.embed_tokens.weight", "5,16"},
                                      {L "input_layernorm.weight", "16"},
                                      {L "self_attn.q_proj.weight", "16,16"},
                                      {L "self_attn.k_proj.weight", "8,16"},
                                      {L "self_attn.v_proj.weight", "8,16"},
                                      {L "self_attn.q_proj.bias", NULL},
                                      {L "self_attn.q_norm.weight", NULL},
                                      {L "self_attn.k_norm.weight", NULL},
                                      {L "self_attn.o_proj.weight", "16,16"},
                                      {L "post_attention_layernorm.weight", "16"},
                                      {L "mlp.gate_proj.weight", "12,16"},
                                      {L "mlp.up_proj.weight", "12,16"},
                                      {L "mlp.down_proj.weight", "16,12"},
                                      {"model.norm.weight", "16"},
                                      {"lm_head.weight", "5,16"},
                                      {0}};
#endif
