/* SPDX-License-Identifier: MIT
 * test_import_folder.c - folders with config.json and safetensors as source models: the graphs of GPT-2,
 * Llama and Qwen3, rotary tables as torch makes them, files in parts, and an error for each wrong key or
 * tensor. */
#include <math.h>

#include "core/base/error.h"
#include "graph/import/import.h"
#include "tests/graph/folder_case.h"

static gmodel *import_tokens(int64_t tokens) {
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  const bs_graph_options options = {.struct_size = (uint32_t)sizeof options, .cache_tokens = tokens};
  ck_assert_msg(import_folder(files_folder, &options, &m, &err) == BS_OK, "%s: %s", err.id, err.message);
  ck_assert_msg(gmodel_check(m, &err) == BS_OK, "%s: %s", err.id, err.message);
  return m;
}

static gmodel *import_llama(const entry *config, const entry *weights) {
  write_config(llama_config, config);
  write_weights("model.safetensors", llama_weights, 0, 100, weights);
  return import_tokens(0);
}

static const gmodel_node *node_of(const gmodel *m, const char *op, const char *name) {
  for (uint32_t i = 0; i < m->n_nodes; i++)
    if (strcmp(m->nodes[i].op, op) == 0 && (name == NULL || strcmp(m->nodes[i].name, name) == 0))
      return &m->nodes[i];
  return NULL;
}

static uint32_t count_of(const gmodel *m, const char *op) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->n_nodes; i++) n += strcmp(m->nodes[i].op, op) == 0;
  return n;
}

/* ---- graphs ----------------------------------------------------------------------------------- */

START_TEST(gpt2_is_built) {
  write_config(gpt2_config, NULL);
  write_weights("model.safetensors", gpt2_weights, 0, 100, NULL);
  gmodel *m = import_tokens(0);
  const gmodel_value *ids = &m->values[m->inputs[0].value];
  ck_assert_uint_eq(m->opset, 25);
  ck_assert_uint_eq(m->n_inputs, 1);
  ck_assert_str_eq(m->inputs[0].name, "input_ids");
  ck_assert(ids->dtype == BS_I64 && ids->dims[0] == 1 && ids->dims[1] == -1);
  ck_assert_str_eq(m->symbols[ids->symbols[1] - 1], "sequence");
  ck_assert_str_eq(m->outputs[0].name, "logits");
  ck_assert_uint_eq(m->n_states, 4);
  ck_assert_int_eq(m->cache_tokens, 8);
  ck_assert_uint_eq(m->tokens_axis, 1);
  const gmodel_node *wte = node_of(m, "Gather", "wte"), *head = node_of(m, "Gemm", "lm_head");
  ck_assert_uint_eq(wte->in[0], head->in[1]); /* one table */
  ck_assert_int_eq(gmodel_attr(head, "transB")->i, 1);
  float second;
  memcpy(&second, (const char *)m->values[wte->in[0]].data + 4, 4);
  ck_assert(second == -13.0f / 256);
  const gmodel_node *fc = node_of(m, "Gemm", "h.1.mlp.c_fc"), *see = node_of(m, "Attention", "h.1.attn");
  ck_assert_int_eq(gmodel_attr(fc, "transB")->i, 0);
  ck_assert_uint_eq(fc->n_in, 3);
  ck_assert_int_eq(m->values[fc->in[1]].dims[1], 24);
  ck_assert_str_eq(gmodel_attr(node_of(m, "Gelu", NULL), "approximate")->text, "tanh");
  ck_assert_int_eq(gmodel_attr(see, "is_causal")->i, 1);
  ck_assert(gmodel_attr(see, "scale")->f == 1 / sqrt(2));
  ck_assert_uint_eq(see->n_in, 7);
  const gmodel_node *put = &m->nodes[m->values[see->in[1]].producer];
  const gmodel_value *state = &m->values[put->in[0]];
  ck_assert_str_eq(put->op, "TensorScatter");
  ck_assert_uint_eq(state->kind, GMODEL_STATE);
  ck_assert_uint_eq(state->next, put->out[0]);
  ck_assert(state->dims[0] == 1 && state->dims[1] == 3 && state->dims[2] == 8 && state->dims[3] == 2);
  ck_assert_uint_eq(put->in[2], m->length);
  gmodel_free(m);
  m = import_tokens(4);
  ck_assert_int_eq(m->cache_tokens, 4);
  gmodel_free(m);
}
END_TEST

START_TEST(gpt2_variants) {
  static const entry config[] = {{"n_inner", "10"},
                                 {"activation_function", "\"relu\""},
                                 {"scale_attn_by_inverse_layer_idx", "true"},
                                 {"tie_word_embeddings", "false"},
                                 {0}};
  static const entry weights[] = {{"h.0.mlp.c_fc.weight", "6,10"},
                                  {"h.0.mlp.c_fc.bias", "10"},
                                  {"h.0.mlp.c_proj.weight", "10,6"},
                                  {"h.1.mlp.c_fc.weight", "6,10"},
                                  {"h.1.mlp.c_fc.bias", "10"},
                                  {"h.1.mlp.c_proj.weight", "10,6"},
                                  {"ln_f.bias", "F16:6"},
                                  {0}};
  entry all[40];
  int n = 0;
  for (; gpt2_weights[n].name != NULL; n++) all[n] = gpt2_weights[n];
  all[n++] = (entry){"lm_head.weight", "5,6"};
  all[n] = (entry){0};
  write_config(gpt2_config, config);
  write_weights("model.safetensors", all, 0, 100, weights);
  gmodel *m = import_tokens(0);
  ck_assert_uint_eq(count_of(m, "Relu"), 2);
  ck_assert(gmodel_attr(node_of(m, "Attention", "h.1.attn"), "scale")->f == 1 / sqrt(2) / 2);
  ck_assert_uint_ne(node_of(m, "Gather", "wte")->in[0], node_of(m, "Gemm", "lm_head")->in[1]);
  const gmodel_node *cast =
      node_of(m, "Cast", "ln_f.bias"); /* a weight of another dtype than the embeddings */
  ck_assert_int_eq(gmodel_attr(cast, "to")->i, 1);
  gmodel_free(m);
}
END_TEST

START_TEST(llama_and_kin_are_built) {
  static const entry qwen3[] = {{"model_type", "\"qwen3\""}, {"tie_word_embeddings", "true"}, {0}};
  static const entry norms[] = {
      {L "self_attn.q_norm.weight", "8"}, {L "self_attn.k_norm.weight", "8"}, {"lm_head.weight", NULL}, {0}};
  static const entry qwen2[] = {
      {"model_type", "\"qwen2\""}, {"num_key_value_heads", NULL}, {"head_dim", NULL}, {0}};
  static const entry bias[] = {{L "self_attn.q_proj.bias", "16"},
                               {L "self_attn.k_proj.weight", "16,16"},
                               {L "self_attn.v_proj.weight", "16,16"},
                               {0}};
  gmodel *m = import_llama(NULL, NULL);
  ck_assert_uint_eq(count_of(m, "RMSNormalization"), 3);
  ck_assert_uint_eq(count_of(m, "RotaryEmbedding"), 2);
  ck_assert_uint_eq(count_of(m, "Swish"), 1);
  ck_assert_uint_eq(m->n_states, 2);
  const gmodel_node *q = node_of(m, "Gemm", L "self_attn.q_proj");
  ck_assert_uint_eq(q->n_in, 2);
  ck_assert_int_eq(gmodel_attr(q, "transB")->i, 1);
  ck_assert(fabs(gmodel_attr(node_of(m, "RMSNormalization", NULL), "epsilon")->f - 1e-6) < 1e-12);
  gmodel_free(m);
  m = import_llama(qwen3, norms);
  ck_assert_uint_eq(count_of(m, "RMSNormalization"), 5);
  ck_assert_uint_eq(node_of(m, "Gather", "embeddings")->in[0], node_of(m, "Gemm", "lm_head")->in[1]);
  gmodel_free(m);
  m = import_llama(qwen2, bias);
  ck_assert_uint_eq(node_of(m, "Gemm", L "self_attn.q_proj")->n_in, 3);
  ck_assert_uint_eq(node_of(m, "Gemm", L "self_attn.k_proj")->n_in, 2);
  gmodel_free(m);
}
END_TEST

/* Position 7 of heads of 8, as transformers computes it. */
static const struct {
  entry config[3];
  float cosines[4], sines[4];
} ropes[] = {
    {{{"rope_theta", "10000"}},
     {0.7539022564888f, 0.7648422122001648f, 0.9975510239601135f, 0.9999755024909973f},
     {0.6569865942001343f, 0.6442176699638367f, 0.06994284689426422f, 0.0069999429397284985f}},
    {{{"rope_theta", NULL},
      {"rope_parameters",
       "{\"rope_type\": \"llama3\", \"rope_theta\": 10000.0, \"factor\": 8.0, \"low_freq_factor\": 1.0,"
       " \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 16}"}},
     {-0.6287888288497925f, 0.9961743354797363f, 0.9999617338180542f, 0.9999996423721313f},
     {-0.7775761485099792f, 0.08738838881254196f, 0.008749888278543949f, 0.0008749999105930328f}},
    {{{"rope_theta", "500"}, {"rope_scaling", "{\"type\": \"linear\", \"factor\": 4.0}"}},
     {-0.17824605107307434f, 0.9322984218597412f, 0.9969390630722046f, 0.9998630285263062f},
     {0.983985960483551f, 0.361689954996109f, 0.07818251103162766f, 0.016549721360206604f}},
};

START_TEST(rotary_tables) {
  gmodel *m = import_llama(ropes[_i].config, NULL);
  const gmodel_node *rope = node_of(m, "RotaryEmbedding", NULL);
  const gmodel_value *cosines = &m->values[rope->in[1]], *sines = &m->values[rope->in[2]];
  ck_assert(cosines->dims[0] == 8 && cosines->dims[1] == 4);
  for (int i = 0; i < 4; i++) {
    const float c = ((const float *)cosines->data)[28 + i], s = ((const float *)sines->data)[28 + i];
    ck_assert_msg(fabsf(c - ropes[_i].cosines[i]) <= 1.2e-7f && fabsf(s - ropes[_i].sines[i]) <= 1.2e-7f,
                  "column %d: %.9g %.9g", i, (double)c, (double)s);
  }
  gmodel_free(m);
}
END_TEST

START_TEST(files_in_parts) {
  write_config(gpt2_config, NULL);
  write_weights("a.safetensors", gpt2_weights, 0, 9, NULL);
  write_weights("b.safetensors", gpt2_weights, 9, 100, NULL);
  char text[4096] = "{\"metadata\": {}, \"weight_map\": {";
  size_t at = strlen(text);
  for (int i = 0; gpt2_weights[i].name != NULL; i++)
    at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%s\": \"%s.safetensors\"", i > 0 ? "," : "",
                           gpt2_weights[i].name, i < 9 ? "a" : "b");
  at += (size_t)snprintf(text + at, sizeof text - at, "}}");
  files_write("model.safetensors.index.json", text, at);
  gmodel *m = import_tokens(0);
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(gmodel_unchanged(m, &err), BS_OK);
  ck_assert_int_eq(truncate(files_path("b.safetensors"), 100), 0);
  const gmodel_value *last = &m->values[node_of(m, "LayerNormalization", "ln_f")->in[2]];
  ck_assert(((const float *)last->data)[5] == 0); /* gone, and no signal */
  files_expect(&err, gmodel_unchanged(m, &err), BS_INPUT, "BS-FILE-CHANGED", "cut");
  gmodel_free(m);
}
END_TEST

/* ---- errors ----------------------------------------------------------------------------------- */

static void expect(const char *id, const char *seen) {
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = import_folder(files_folder, NULL, &m, &err);
  files_expect(&err, rc, BS_INPUT, id, seen);
  ck_assert_msg(strstr(err.message, seen) != NULL, "'%s' is not in: %s", seen, err.message);
  ck_assert_msg(strncmp(err.where, files_folder, strlen(files_folder)) == 0, "%s", err.where);
  ck_assert_ptr_null(m);
}

static const struct {
  const char *seen;
  entry config[4];
} bad_llama[] = {
    {"'model_type' is \"bert\"", {{"model_type", "\"bert\""}}},
    {"'model_type' is not there", {{"model_type", NULL}}},
    {"'model_type' is 7", {{"model_type", "7"}}},
    {"'vocab_size' is not there", {{"vocab_size", NULL}}},
    {"'vocab_size' is 0", {{"vocab_size", "0"}}},
    {"'vocab_size' is -5", {{"vocab_size", "-5"}}},
    {"'vocab_size' is 5.5", {{"vocab_size", "5.5"}}},
    {"'hidden_size' is 9223372036854775807", {{"hidden_size", "9223372036854775807"}}},
    {"'num_hidden_layers' is 100000", {{"num_hidden_layers", "100000"}}},
    {"'num_key_value_heads' is 3", {{"num_key_value_heads", "3"}}},
    {"'num_attention_heads' is 3", {{"num_attention_heads", "3"}, {"head_dim", NULL}}},
    {"'head_dim' is 7", {{"head_dim", "7"}}},
    {"'hidden_act' is \"mish\"", {{"hidden_act", "\"mish\""}}},
    {"'rms_norm_eps' is -1", {{"rms_norm_eps", "-1"}}},
    {"'rms_norm_eps' is \"x\"", {{"rms_norm_eps", "\"x\""}}},
    {"'rope_scaling.rope_type' is \"xpos\"", {{"rope_scaling", "{\"rope_type\": \"xpos\"}"}}},
    {"'rope_parameters.type' is \"ntk\"", {{"rope_parameters", "{\"type\": \"ntk\"}"}}},
    {"'rope_scaling.factor' is not there", {{"rope_scaling", "{\"rope_type\": \"linear\"}"}}},
    {"'rope_scaling.factor' is not there", {{"rope_scaling", "{\"rope_type\": \"yarn\"}"}}},
    {"'rope_parameters.factor' is not there", {{"rope_parameters", "{\"type\": \"dynamic\"}"}}},
    {"'rope_scaling' is [1]", {{"rope_scaling", "[1]"}}},
    {"'rope_scaling.mrope_section' is [1,3]",
     {{"rope_scaling", "{\"type\": \"default\", \"mrope_section\": [1, 3]}"}}},
    {"'rope_parameters.full_attention' is",
     {{"rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\"}}"}}},
    {"'rope_scaling.short_factor' is [1,2,3]",
     {{"rope_scaling",
       "{\"type\": \"longrope\", \"short_factor\": [1, 2, 3], \"long_factor\": [1, 2, 3, 4]}"}}},
    {"'rope_scaling.long_factor' is [1,2,3,0]",
     {{"rope_scaling",
       "{\"type\": \"longrope\", \"short_factor\": [1, 2, 3, 4], \"long_factor\": [1, 2, 3, 0]}"}}},
    {"'rope_parameters.partial_rotary_factor' is 0.5",
     {{"rope_parameters", "{\"partial_rotary_factor\": 0.5}"}}},
    {"'tie_word_embeddings' is 1", {{"tie_word_embeddings", "1"}}},
    {"'sliding_window' is 4", {{"use_sliding_window", "true"}, {"sliding_window", "4"}}},
    {"'use_sliding_window' is false",
     {{"model_type", "\"mistral\""}, {"sliding_window", "4"}, {"use_sliding_window", "false"}}},
    {"'layer_types' is [\"full_attention\"]",
     {{"model_type", "\"mistral\""}, {"sliding_window", "4"}, {"layer_types", "[\"full_attention\"]"}}},
    {"'layer_types' is [\"chunked_attention\"]",
     {{"model_type", "\"qwen2\""},
      {"use_sliding_window", "true"},
      {"layer_types", "[\"chunked_attention\"]"}}},
    {"'attention_bias' is true", {{"model_type", "\"phi3\""}, {"attention_bias", "true"}}},
    {"'mlp_bias' is true", {{"model_type", "\"qwen2\""}, {"mlp_bias", "true"}}},
    {"'per_layer_config' is {", {{"per_layer_config", "{\"1\": {\"head_dim\": 4}}"}}},
    {"'use_bidirectional_attention' is true",
     {{"model_type", "\"gemma2\""}, {"use_bidirectional_attention", "true"}}},
    {"'attn_logit_softcapping' is 0", {{"model_type", "\"gemma2\""}, {"attn_logit_softcapping", "0"}}},
    {"'final_logit_softcapping' is \"x\"",
     {{"model_type", "\"gemma2\""}, {"final_logit_softcapping", "\"x\""}}},
    {"'num_experts_per_tok' is 3",
     {{"model_type", "\"mixtral\""}, {"num_local_experts", "2"}, {"num_experts_per_tok", "3"}}},
    {"'num_local_experts' is 0", {{"model_type", "\"mixtral\""}, {"num_local_experts", "0"}}},
    {"'num_experts' is 4",
     {{"model_type", "\"qwen3_moe\""}, {"num_local_experts", "5"}, {"num_experts", "4"}}},
    {"'decoder_sparse_step' is 0", {{"model_type", "\"qwen3_moe\""}, {"decoder_sparse_step", "0"}}},
    {"'mlp_only_layers' is 0", {{"model_type", "\"qwen3_moe\""}, {"mlp_only_layers", "0"}}},
    {"'layer_types' is []", {{"model_type", "\"qwen2\""}, {"sliding_window", "4"}, {"layer_types", "[]"}}},
    {"'layer_types' is [\"sliding_attention\"]",
     {{"model_type", "\"qwen2\""}, {"sliding_window", "4"}, {"layer_types", "[\"sliding_attention\"]"}}},
    {"'sliding_window' is 4",
     {{"use_sliding_window", "true"}, {"sliding_window", "4"}, {"max_window_layers", "0"}}},
    {"'sliding_window' is 4",
     {{"use_sliding_window", "true"}, {"sliding_window", "4"}, {"layer_types", "[\"sliding_attention\"]"}}},
};

START_TEST(a_key_is_wrong) {
  write_config(llama_config, bad_llama[_i].config);
  write_weights("model.safetensors", llama_weights, 0, 100, NULL);
  expect("BS-HF-CONFIG", bad_llama[_i].seen);
}
END_TEST

/* What a folder holds and its model passes over. */
static const struct {
  const char *warning;
  entry config[2], weights[3];
} passed_over[] = {
    {"", {{0}}, {{0}}},
    {"", {{"tie_word_embeddings", "true"}}, {{0}}}, /* lm_head is a copy of the embeddings */
    {"", {{0}}, {{L "self_attn.q_proj.bias", "16"}}},
    {"1 tensor of the files is not read: " L "self_attn.q_norm.weight",
     {{0}},
     {{L "self_attn.q_norm.weight", "8"}}},
    {"2 tensors of the files are not read: " L "self_attn.q_norm.weight, " L
     "self_attn.k_norm.weight; quantization_config of config.json is not applied",
     {{"quantization_config", "{\"quant_method\": \"gptq\"}"}},
     {{L "self_attn.q_norm.weight", "8"}, {L "self_attn.k_norm.weight", "8"}}},
    {"quantization_config of config.json is not applied",
     {{"quantization_config", "{\"quant_method\": \"fp8\"}"}},
     {{0}}},
};

START_TEST(what_is_passed_over_is_told) {
  gmodel *m = import_llama(passed_over[_i].config, passed_over[_i].weights);
  ck_assert_str_eq(m->warning, passed_over[_i].warning);
  gmodel_free(m);
}
END_TEST

START_TEST(layers_beyond_the_number_are_told) {
  static const entry one[] = {{"n_layer", "1"}, {0}};
  write_config(gpt2_config, one);
  write_weights("model.safetensors", gpt2_weights, 0, 100, NULL);
  gmodel *m = import_tokens(0);
  ck_assert_str_eq(m->warning,
                   "12 tensors of the files are not read: h.1.ln_1.weight, h.1.ln_1.bias, "
                   "h.1.attn.c_attn.weight, h.1.attn.c_attn.bias, ..");
  gmodel_free(m);
}
END_TEST

/* Qwen's window is of the layers from max_window_layers on, or of those that layer_types names: here none. */
static const entry windows[][5] = {
    {{"use_sliding_window", "true"}, {"sliding_window", "4"}, {"max_window_layers", "4096"}},
    {{"use_sliding_window", "true"}, {"sliding_window", "4"}, {"layer_types", "[\"full_attention\"]"}},
    {{"use_sliding_window", "false"}, {"sliding_window", "4"}, {"max_window_layers", "0"}},
    {{"use_sliding_window", "true"}, {"sliding_window", "1000000"}},
};

START_TEST(no_layer_has_a_window) {
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  write_config(llama_config, windows[_i]);
  write_weights("model.safetensors", llama_weights, 0, 100, NULL);
  const int32_t rc = import_folder(files_folder, NULL, &m, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  gmodel_free(m);
}
END_TEST

START_TEST(a_tensor_is_wrong) {
  static const entry rows[][2] = {{{"model.norm.weight", NULL}},
                                  {{"lm_head.weight", NULL}},
                                  {{L "mlp.up_proj.weight", "12,17"}},
                                  {{L "mlp.up_proj.weight", "16"}},
                                  {{L "mlp.up_proj.weight", "I32:12,16"}}};
  static const entry biases[] = {{"attention_bias", "true"}, {0}},
                     no_biases[] = {{"attention_bias", "false"}, {0}},
                     bias[] = {{L "self_attn.q_proj.bias", "16"}, {0}};
  static const char *const ids[] = {"BS-HF-TENSOR", "BS-HF-TENSOR", "BS-HF-SHAPE", "BS-HF-SHAPE",
                                    "BS-HF-DTYPE"};
  static const char *const seen[] = {"'model.norm.weight'", "'lm_head.weight'",
                                     "[12,17]; config.json asks for [12,16]",
                                     "[16]; config.json asks for [12,16]", "I32"};
  write_config(llama_config, NULL);
  for (int i = 0; i < TEST_COUNT(rows); i++) {
    write_weights("model.safetensors", llama_weights, 0, 100, rows[i]);
    expect(ids[i], seen[i]);
  }
  write_config(llama_config, biases);
  write_weights("model.safetensors", llama_weights, 0, 100, NULL);
  expect("BS-HF-TENSOR", L "self_attn.q_proj.bias");
  gmodel *m = import_llama(no_biases, bias); /* as transformers: a bias that the key denies is passed over */
  ck_assert_uint_eq(node_of(m, "Gemm", L "self_attn.q_proj")->n_in, 2);
  ck_assert_str_eq(m->warning, "1 tensor of the files is not read: " L "self_attn.q_proj.bias");
  gmodel_free(m);
}
END_TEST

START_TEST(a_file_is_wrong) {
  static const char index_name[] = "model.safetensors.index.json";
  static const struct {
    const char *id, *text, *seen;
  } indexes[] = {
      {"BS-HF-JSON", "{", "line 1"},
      {"BS-HF-JSON", "[]", "not a JSON object"},
      {"BS-HF-JSON", "{\"weight_map\": {\"a\": \"x\", \"a\": \"x\"}}", "duplicate"},
      {"BS-HF-INDEX", "{}", "weight_map"},
      {"BS-HF-INDEX", "{\"weight_map\": {\"a\": \"../a.safetensors\"}}", "'a'"},
      {"BS-HF-INDEX", "{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "'a'"},
      {"BS-HF-INDEX", "{\"weight_map\": {\"a\": 7}}", "'a'"},
      {"BS-HF-INDEX", "{\"weight_map\": {\"a\": \"a.safetensors\", \"b\": \"b.safetensors\"}}", "two files"},
      {"BS-ST-READ", "{\"weight_map\": {\"a\": \"none.safetensors\"}}", "cannot be opened"}};
  expect("BS-HF-READ", "cannot be opened"); /* no config.json */
  files_write("config.json", "{\"a\": 1,}", 9);
  expect("BS-HF-JSON", "line 1");
  write_config(llama_config, NULL);
  expect("BS-ST-READ", "cannot be opened"); /* no weights */
  write_weights("a.safetensors", llama_weights, 0, 1, NULL);
  write_weights("b.safetensors", llama_weights, 0, 1, NULL);
  for (int i = 0; i < TEST_COUNT(indexes); i++) {
    files_write(index_name, indexes[i].text, strlen(indexes[i].text));
    expect(indexes[i].id, indexes[i].seen);
  }
}
END_TEST

START_TEST(a_cache_beyond_the_positions) {
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  const bs_graph_options options = {.struct_size = (uint32_t)sizeof options, .cache_tokens = 9};
  write_config(llama_config, NULL);
  write_weights("model.safetensors", llama_weights, 0, 100, NULL);
  files_expect(&err, import_folder(files_folder, &options, &m, &err), BS_INPUT, "BS-HF-CACHE", "9 of 8");
}
END_TEST

/* A small file may not ask for any amount of memory. */
START_TEST(tables_have_a_limit) {
  static const entry config[] = {{"max_position_embeddings", "2147483647"}, {0}};
  write_config(llama_config, config);
  write_weights("model.safetensors", llama_weights, 0, 100, NULL);
  expect("BS-HF-CACHE", "2147483647");
}
END_TEST

int main(void) {
  const test_case rows[] = {{gpt2_is_built},
                            {gpt2_variants},
                            {llama_and_kin_are_built},
                            {rotary_tables, TEST_COUNT(ropes)},
                            {files_in_parts},
                            {a_key_is_wrong, TEST_COUNT(bad_llama)},
                            {what_is_passed_over_is_told, TEST_COUNT(passed_over)},
                            {layers_beyond_the_number_are_told},
                            {no_layer_has_a_window, TEST_COUNT(windows)},
                            {a_tensor_is_wrong},
                            {a_file_is_wrong},
                            {a_cache_beyond_the_positions},
                            {tables_have_a_limit},
                            {0}};
  return run_tests("import_folder", rows, (test_setup){.before = files_begin, .after = files_end});
}
