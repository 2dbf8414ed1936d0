/* SPDX-License-Identifier: MIT
 * test_import_gguf.c - a GGUF file and the folder that it was made from give the same bits: Llama (whose Q
 * and K lie in another order), Qwen2, Qwen3 and GPT-2 (whose weights lie turned), in f32, f16 and bf16.
 * Weights in Q8_0; factors of rotary frequencies; an error for each wrong key, tensor or architecture. */
#include <math.h>

#include "blockshock/graph.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "formats/safetensors.h"
#include "graph/api.h"
#include "graph/run/session.h"
#include "tests/formats/gguf_make.h"
#include "tests/graph/folder_case.h"

enum { TOKENS = 4 };
static const int64_t prompt[TOKENS] = {3, 1, 4, 1};

static bs_context *context;
static bs_error err;

static void ok(int32_t rc, const char *what) {
  ck_assert_msg(rc == BS_OK, "%s: %s %s", what, err.id, err.message);
}

static void before(void) {
  files_begin();
  ok(bs_context_open(NULL, &context, &err), "context");
}

static void after(void) {
  bs_context_close(context);
  files_end();
}

/* ---- models ----------------------------------------------------------------------------------- */

static const entry plain[] = {{0}};
static const entry qwen2[] = {{"model_type", "\"qwen2\""}, {0}};
static const entry qwen2_bias[] = {{L "self_attn.q_proj.bias", "16"}, {0}};
static const entry qwen3[] = {{"model_type", "\"qwen3\""}, {"tie_word_embeddings", "true"}, {0}};
static const entry qwen3_norms[] = {
    {L "self_attn.q_norm.weight", "8"}, {L "self_attn.k_norm.weight", "8"}, {"lm_head.weight", NULL}, {0}};
/* Rows of whole blocks of Q8_0. */
static const entry wide[] = {{"hidden_size", "32"}, {"intermediate_size", "64"}, {"head_dim", "16"}, {0}};
static const entry wide_weights[] = {{"model.embed_tokens.weight", "5,32"},
                                     {L "input_layernorm.weight", "32"},
                                     {L "self_attn.q_proj.weight", "32,32"},
                                     {L "self_attn.k_proj.weight", "16,32"},
                                     {L "self_attn.v_proj.weight", "16,32"},
                                     {L "self_attn.o_proj.weight", "32,32"},
                                     {L "post_attention_layernorm.weight", "32"},
                                     {L "mlp.gate_proj.weight", "64,32"},
                                     {L "mlp.up_proj.weight", "64,32"},
                                     {L "mlp.down_proj.weight", "32,64"},
                                     {"model.norm.weight", "32"},
                                     {"lm_head.weight", "5,32"},
                                     {0}};
static const struct {
  const char *arch;
  const entry *config, *changed_config, *weights, *changed_weights;
  uint32_t width, inner, head;
} models[] = {{"llama", llama_config, plain, llama_weights, plain, 16, 12, 8},
              {"qwen2", llama_config, qwen2, llama_weights, qwen2_bias, 16, 12, 8},
              {"qwen3", llama_config, qwen3, llama_weights, qwen3_norms, 16, 12, 8},
              {"gpt2", gpt2_config, plain, gpt2_weights, plain, 6, 24, 0},
              {"llama", llama_config, wide, llama_weights, wide_weights, 32, 64, 16}};
enum { LLAMA = 0, GPT2 = 3, WIDE = 4 };

/* The names of a folder's tensors, and in the file behind "blk.N." or alone. */
static const char *const names[][2] = {{"model.embed_tokens", "token_embd"},
                                       {"model.norm", "output_norm"},
                                       {"lm_head", "output"},
                                       {"input_layernorm", "attn_norm"},
                                       {"self_attn.q_proj", "attn_q"},
                                       {"self_attn.k_proj", "attn_k"},
                                       {"self_attn.v_proj", "attn_v"},
                                       {"self_attn.o_proj", "attn_output"},
                                       {"self_attn.q_norm", "attn_q_norm"},
                                       {"self_attn.k_norm", "attn_k_norm"},
                                       {"post_attention_layernorm", "ffn_norm"},
                                       {"mlp.gate_proj", "ffn_gate"},
                                       {"mlp.up_proj", "ffn_up"},
                                       {"mlp.down_proj", "ffn_down"},
                                       {"wte", "token_embd"},
                                       {"wpe", "position_embd"},
                                       {"ln_f", "output_norm"},
                                       {"ln_1", "attn_norm"},
                                       {"attn.c_attn", "attn_qkv"},
                                       {"attn.c_proj", "attn_output"},
                                       {"ln_2", "ffn_norm"},
                                       {"mlp.c_fc", "ffn_up"},
                                       {"mlp.c_proj", "ffn_down"}};

static void name_in_file(const char *name, char *out, size_t room) {
  static const char *const fronts[] = {"model.layers.", "h."};
  long layer = -1;
  int at = 0;
  char middle[64];
  for (size_t i = 0; i < 2 && layer < 0; i++) {
    const size_t size = strlen(fronts[i]);
    char *after = NULL;
    if (strncmp(name, fronts[i], size) != 0) continue;
    layer = strtol(name + size, &after, 10);
    at = (int)(after + 1 - name);
  }
  snprintf(middle, sizeof middle, "%s", name + at);
  char *end = strrchr(middle, '.'); /* of .weight or .bias */
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strncmp(names[i][0], middle, (size_t)(end - middle)) != 0 || names[i][0][end - middle] != '\0')
      continue;
    if (layer < 0)
      snprintf(out, room, "%s%s", names[i][1], end);
    else
      snprintf(out, room, "blk.%ld.%s%s", layer, names[i][1], end);
    return;
  }
  ck_abort_msg("no name for %s", name);
}

/* `n` numbers in the type: of Q8_0 the scale is 1/256, so that the weights of folder_case.h are exact. */
static size_t numbers_as(uint32_t type, const float *from, size_t n, unsigned char *out) {
  if (type == BS_GGUF_Q8_0) {
    for (size_t i = 0; i < n; i++) {
      if (i % 32 == 0) memcpy(out + i / 32 * 34, &(uint16_t){bs_f32_to_f16(1.0f / 256)}, 2);
      out[i / 32 * 34 + 2 + i % 32] = (unsigned char)(int8_t)(from[i] * 256);
    }
    return n / 32 * 34;
  }
  const uint32_t dtype = type == BS_GGUF_F32 ? BS_F32 : type == BS_GGUF_F16 ? BS_F16 : BS_BF16;
  bs_convert(dtype, out, BS_F32, from, n);
  return n * BS_DTYPE_BYTES(dtype);
}

/* One tensor of the folder as llama.cpp's converter writes it: weights of GPT-2 are turned to [outputs,
 * inputs], the rows of Llama's Q and K lie as pairs, vectors and positions are f32. */
static void make_tensor(int m, const bs_st_tensor *t, uint32_t type) {
  static unsigned char packed[1 << 16];
  static float numbers[1 << 14];
  const float *from = t->data;
  char name[100];
  int64_t dims[2] = {t->dims[0], t->dims[1]};
  const size_t rows = (size_t)t->dims[0], cols = t->rank == 2 ? (size_t)t->dims[1] : 1, head = models[m].head;
  const int qk = strcmp(models[m].arch, "llama") == 0 &&
                 (strstr(t->name, "q_proj") != NULL || strstr(t->name, "k_proj") != NULL);
  const int turned =
      t->rank == 2 && m == GPT2 && strstr(t->name, "wte") == NULL && strstr(t->name, "wpe") == NULL;
  for (size_t r = 0; r < rows; r++)
    for (size_t c = 0; c < cols; c++) {
      size_t to = r;
      if (qk) to = r / head * head + r % head % (head / 2) * 2 + r % head / (head / 2);
      numbers[turned ? c * rows + r : to * cols + c] = from[r * cols + c];
    }
  if (turned) {
    dims[0] = t->dims[1];
    dims[1] = t->dims[0];
  }
  if (t->rank == 1 || strstr(t->name, "wpe") != NULL) type = BS_GGUF_F32;
  name_in_file(t->name, name, sizeof name);
  gguf_make_tensor(name, type, t->rank, dims, packed, numbers_as(type, numbers, rows * cols, packed));
}

static void make_keys(int m, const char *left_out) {
  static const char *const wholes[] = {"context_length",       "block_count",
                                       "embedding_length",     "feed_forward_length",
                                       "attention.head_count", "attention.head_count_kv",
                                       "attention.key_length", "rope.dimension_count"};
  const int gpt2_ = m == GPT2;
  const uint32_t values[] = {8, gpt2_ ? 2 : 1,  models[m].width, models[m].inner, gpt2_ ? 3 : 2,
                             1, models[m].head, models[m].head};
  char name[100];
  gguf_make_text("general.architecture", models[m].arch);
  for (size_t i = 0; i < (gpt2_ ? 5 : 8); i++) {
    snprintf(name, sizeof name, "%s.%s", models[m].arch, wholes[i]);
    if (left_out == NULL || strcmp(left_out, wholes[i]) != 0) gguf_make_u32(name, values[i]);
  }
  snprintf(name, sizeof name, "%s.attention.layer_norm_%sepsilon", models[m].arch, gpt2_ ? "" : "rms_");
  gguf_make_f32(name, gpt2_ ? 1e-5f : 1e-6f);
}

/* The folder's tensors as a GGUF file that is not written yet; keys may follow. */
static void make_gguf(int m, uint32_t type) {
  bs_st st;
  write_config(models[m].config, models[m].changed_config);
  write_weights("model.safetensors", models[m].weights, 0, 100, models[m].changed_weights);
  ok(bs_st_open(files_path("model.safetensors"), &st, &err), "safetensors");
  gguf_make_begin();
  for (uint64_t i = 0; i < st.count; i++) make_tensor(m, &st.tensors[i], type);
  bs_st_close(&st);
}

/* The folder's weights in another dtype. */
static void narrow_folder(uint32_t dtype) {
  static char header[16384];
  static unsigned char data[1 << 16];
  bs_st st;
  size_t at = 1, bytes = 0;
  ok(bs_st_open(files_path("model.safetensors"), &st, &err), "safetensors");
  header[0] = '{';
  for (uint64_t i = 0; i < st.count; i++) {
    const bs_st_tensor *t = &st.tensors[i];
    const size_t size = t->bytes / 2;
    char shape[60];
    snprintf(shape, sizeof shape, t->rank == 1 ? "%lld" : "%lld,%lld", (long long)t->dims[0],
             (long long)t->dims[1]);
    at += (size_t)snprintf(header + at, sizeof header - at,
                           "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                           i > 0 ? "," : "", t->name, dtype == BS_F16 ? "F16" : "BF16", shape, bytes,
                           bytes + size);
    bs_convert(dtype, data + bytes, BS_F32, t->data, t->bytes / 4);
    bytes += size;
  }
  header[at++] = '}';
  bs_st_close(&st);
  const uint64_t length = at;
  FILE *f = fopen(files_path("model.safetensors"), "wb");
  ck_assert_ptr_nonnull(f);
  fwrite(&length, 8, 1, f);
  fwrite(header, 1, at, f);
  fwrite(data, 1, bytes, f);
  fclose(f);
}

/* ---- runs ------------------------------------------------------------------------------------- */

/* The options of the next runs; NULL, 0: the file's. */
static const char *activations;
static bs_graph_options opened = {.struct_size = (uint32_t)sizeof opened};
/* The results of the last run. */
static uint32_t products; /* nodes of matmul_q */
static uint64_t state_bytes;

static void read_session(const bs_session *session) {
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  ok(bs_session_stats_get(session, &stats, &err), "stats");
  state_bytes = stats.state_bytes;
  products = 0;
  for (uint32_t i = 0; i < bs_session_node_count(session); i++) {
    bs_node_info node = {.struct_size = (uint32_t)sizeof node};
    ok(bs_session_node(session, i, &node, &err), "node");
    products += strcmp(node.op, "matmul_q") == 0;
  }
}

/* Logits of the prompt in their dtype. */
static size_t run_model(const char *path, unsigned char *out, size_t room, uint32_t *out_dtype) {
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "sequence", .size = TOKENS};
  const bs_dim *const dims[1] = {&dim};
  const bs_session_options options = {.struct_size = (uint32_t)sizeof options,
                                      .backend = "cpu",
                                      .threads = 1,
                                      .dims = dims,
                                      .n_dims = 1,
                                      .activations = activations,
                                      .no_fallback = 1}; /* every node is the backend's own */
  bs_graph *model = NULL;
  bs_session *session = NULL;
  uint32_t port = 0;
  bs_tensor ids = {.struct_size = (uint32_t)sizeof ids,
                   .dtype = BS_I64,
                   .rank = 2,
                   .dims = {1, TOKENS},
                   .strides = {TOKENS, 1},
                   .data = (void *)(uintptr_t)prompt,
                   .bytes = sizeof prompt};
  bs_tensor logits = {.struct_size = (uint32_t)sizeof logits};
  ok(bs_graph_open(context, path, &opened, &model, &err), path);
  ok(bs_session_open(context, model, &options, &session, &err), "session");
  ok(bs_session_find(session, "input_ids", &port, &err), "input_ids");
  ok(bs_session_set(session, port, &ids, &err), "set");
  ok(bs_session_run(session, &err), "run");
  ok(bs_session_find(session, "logits", &port, &err), "logits");
  ok(bs_session_get(session, port, &logits, &err), "get");
  ck_assert_uint_le(logits.bytes, room);
  memcpy(out, logits.data, (size_t)logits.bytes);
  *out_dtype = logits.dtype;
  read_session(session);
  bs_session_close(session);
  bs_graph_close(model);
  return (size_t)logits.bytes;
}

static const uint32_t types[] = {BS_GGUF_F32, BS_GGUF_F16, BS_GGUF_BF16};
enum { TYPES = 3 };

START_TEST(a_file_has_the_bits_of_its_folder) {
  unsigned char file[256], folder[256];
  uint32_t dtype = 0, want = 0;
  const int m = _i / TYPES;
  make_gguf(m, types[_i % TYPES]);
  make_keys(m, NULL);
  const char *path = gguf_make_file("model.gguf");
  if (types[_i % TYPES] != BS_GGUF_F32) narrow_folder(_i % TYPES == 1 ? BS_F16 : BS_BF16);
  const size_t n = run_model(path, file, sizeof file, &dtype);
  ck_assert_uint_eq(run_model(files_folder, folder, sizeof folder, &want), n);
  ck_assert_uint_eq(dtype, want);
  ck_assert_msg(memcmp(file, folder, n) == 0, "%s in %s differs from its folder", models[m].arch,
                bs_gguf_type_of(types[_i % TYPES])->name);
}
END_TEST

/* X as it is: only the order of sums differs. X in bytes, which the file asks for: another number, but near.
 */
START_TEST(quantised_weights_are_read) {
  float file[TOKENS * 5], bytes[TOKENS * 5], folder[TOKENS * 5];
  uint32_t dtype = 0;
  make_gguf(WIDE, BS_GGUF_Q8_0);
  make_keys(WIDE, NULL);
  const char *path = gguf_make_file("model.gguf");
  opened.cache_dtype = BS_F32;
  run_model(files_folder, (unsigned char *)folder, sizeof folder, &dtype);
  ck_assert_uint_eq(run_model(path, (unsigned char *)bytes, sizeof bytes, &dtype), sizeof bytes);
  ck_assert_uint_eq(dtype, BS_F32);
  activations = "float";
  run_model(path, (unsigned char *)file, sizeof file, &dtype);
  activations = NULL;
  for (int i = 0; i < TOKENS * 5; i++) {
    ck_assert_msg(fabsf(file[i] - folder[i]) < 1e-6f, "number %d: %g, %g", i, (double)file[i],
                  (double)folder[i]);
    ck_assert_msg(fabsf(bytes[i] - folder[i]) < 0.01f, "in bytes, number %d: %g, %g", i, (double)bytes[i],
                  (double)folder[i]);
  }
  const void *by_bytes = bytes, *by_floats = file;
  ck_assert(memcmp(by_bytes, by_floats, sizeof file) != 0);
  ck_assert_uint_eq(products, 5); /* Q, K and V together, gate and up together */
}
END_TEST

/* With quantised weights the cache is f16. Its rounding changes the outputs, but little. */
START_TEST(the_cache_has_16_bits) {
  float full[TOKENS * 5], narrow[TOKENS * 5];
  uint32_t dtype = 0;
  int rounded = 0;
  make_gguf(WIDE, BS_GGUF_Q8_0);
  make_keys(WIDE, NULL);
  const char *path = gguf_make_file("model.gguf");
  opened.cache_dtype = BS_F32;
  run_model(path, (unsigned char *)full, sizeof full, &dtype);
  const uint64_t bytes = state_bytes;
  for (int i = 0; i < 3; i++) {
    static const uint32_t dtypes[3] = {0, BS_F16, BS_BF16};
    opened.cache_dtype = dtypes[i];
    run_model(path, (unsigned char *)narrow, sizeof narrow, &dtype);
    ck_assert_uint_eq(2 * state_bytes, bytes);
    ck_assert_uint_eq(dtype, BS_F32);
    for (int k = 0; k < TOKENS * 5; k++) {
      rounded += narrow[k] < full[k] || narrow[k] > full[k];
      ck_assert_msg(fabsf(narrow[k] - full[k]) < 0.01f, "number %d: %g, in f32 %g", k, (double)narrow[k],
                    (double)full[k]);
    }
  }
  ck_assert_int_gt(rounded, 0);
  opened.cache_dtype = BS_I8;
  bs_graph *model = NULL;
  files_expect(&err, bs_graph_open(context, path, &opened, &model, &err), BS_INVALID_ARGUMENT, "BS-HF-CACHE",
               "i8");
}
END_TEST

/* The logits of the last token alone are the last row of all. */
START_TEST(logits_of_the_last_token) {
  float all[TOKENS * 5], last[TOKENS * 5];
  uint32_t dtype = 0;
  make_gguf(WIDE, BS_GGUF_Q8_0);
  make_keys(WIDE, NULL);
  const char *path = gguf_make_file("model.gguf");
  run_model(path, (unsigned char *)all, sizeof all, &dtype);
  opened.last_logits = 1;
  ck_assert_uint_eq(run_model(path, (unsigned char *)last, sizeof last, &dtype), 5 * sizeof *last);
  const void *want = all + (size_t)5 * (TOKENS - 1), *got = last;
  ck_assert(memcmp(got, want, 5 * sizeof *last) == 0);
}
END_TEST

/* Factors 1 change nothing, others do what a folder's linear rule of the same factor does; a scaling rule
 * beside the tensor does not count. */
START_TEST(factors_replace_the_scaling_rule) {
  static const entry linear[] = {{"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 4.0}"}, {0}};
  static const float factors[4] = {4, 4, 4, 4};
  unsigned char file[256], folder[256];
  uint32_t dtype = 0;
  for (int with = 0; with < 2; with++) {
    make_gguf(LLAMA, BS_GGUF_F32);
    make_keys(LLAMA, NULL);
    gguf_make_f32("llama.rope.scaling.factor", with ? 99.0f : 4.0f);
    gguf_make_text("llama.rope.scaling.type", "linear");
    if (with) gguf_make_tensor("rope_freqs.weight", BS_GGUF_F32, 1, (int64_t[]){4}, factors, sizeof factors);
    const size_t n = run_model(gguf_make_file("model.gguf"), file, sizeof file, &dtype);
    write_config(llama_config, linear);
    run_model(files_folder, folder, sizeof folder, &dtype);
    ck_assert_msg(memcmp(file, folder, n) == 0, "with the tensor: %d", with);
    write_config(llama_config, NULL);
    run_model(files_folder, folder, sizeof folder, &dtype);
    ck_assert(memcmp(file, folder, n) != 0);
  }
}
END_TEST

/* ---- what is refused -------------------------------------------------------------------------- */

static void another_arch(void) {
  gguf_make_text("general.architecture", "mamba");
}
static void no_arch(void) {
  gguf_make_text("general.name", "x");
}
static void no_key(void) {
  make_keys(LLAMA, "embedding_length");
}
static void bad_value(void) {
  make_keys(LLAMA, "block_count");
  gguf_make_u32("llama.block_count", 0);
}
static void array(void) {
  make_keys(LLAMA, "attention.head_count_kv");
  gguf_make_array("llama.attention.head_count_kv", BS_GGUF_KIND_U32, 1);
  gguf_put_number(&gguf_made.keys, 1, 4);
}
static void text(void) {
  make_keys(LLAMA, "block_count");
  gguf_make_text("llama.block_count", "1");
}
static void unknown(void) {
  make_keys(LLAMA, NULL);
  gguf_make_f32("llama.residual_scale", 2);
}
static void experts(void) {
  make_keys(LLAMA, NULL);
  gguf_make_u32("llama.expert_count", 8);
}
static void parts(void) {
  make_keys(LLAMA, NULL);
  gguf_make_u32("split.count", 2);
}
static void partial(void) {
  make_keys(LLAMA, "rope.dimension_count");
  gguf_make_u32("llama.rope.dimension_count", 4);
}
static void more_layers(void) {
  make_keys(LLAMA, "block_count");
  gguf_make_u32("llama.block_count", 2);
}
static void wider(void) {
  make_keys(LLAMA, "feed_forward_length");
  gguf_make_u32("llama.feed_forward_length", 13);
}
static const struct {
  void (*make)(void);
  const char *id, *text;
} refused[] = {
    {another_arch, "BS-GGUF-ARCH", "'mamba'"},
    {no_arch, "BS-GGUF-ARCH", "general.architecture"},
    {no_key, "BS-HF-CONFIG", "'llama.embedding_length' is not there"},
    {bad_value, "BS-HF-CONFIG", "'llama.block_count' is 0"},
    {array, "BS-GGUF-KEY", "'llama.attention.head_count_kv'"},
    {text, "BS-GGUF-KEY", "'llama.block_count'"},
    {unknown, "BS-GGUF-KEY", "'llama.residual_scale'"},
    {experts, "BS-GGUF-KEY", "'llama.expert_count'"},
    {parts, "BS-GGUF-KEY", "'split.count'"},
    {partial, "BS-HF-CONFIG", "partial_rotary_factor"},
    {more_layers, "BS-HF-TENSOR", "'blk.1.attn_norm.weight'"},
    {wider, "BS-HF-SHAPE", "'blk.0.ffn_gate.weight' has the shape [12,16]; the keys ask for [13,16]"}};

static void expect_refused(const char *path, const char *id, const char *part) {
  bs_graph *model = NULL;
  files_expect(&err, bs_graph_open(context, path, NULL, &model, &err), BS_INPUT, id, part);
  ck_assert_msg(strstr(err.message, part) != NULL, "%s: %s", id, err.message);
  ck_assert_msg(strncmp(err.message, path, strlen(path)) == 0, "%s", err.message);
}

START_TEST(what_is_not_built_is_refused) {
  make_gguf(LLAMA, BS_GGUF_F32);
  refused[_i].make();
  expect_refused(gguf_make_file("model.gguf"), refused[_i].id, refused[_i].text);
}
END_TEST

START_TEST(a_type_that_is_not_read_is_refused) {
  make_gguf(WIDE, BS_GGUF_F32);
  make_keys(WIDE, NULL);
  unsigned char *info = memmem(gguf_made.infos.data, gguf_made.infos.size, "ffn_up.weight", 13);
  info[13 + 4 + 16] = 20; /* rank, two dims; the data are longer than those of IQ4_NL */
  expect_refused(gguf_make_file("model.gguf"), "BS-GGUF-TYPE", "'blk.0.ffn_up.weight' has the type IQ4_NL");
}
END_TEST

START_TEST(a_tensor_that_nobody_reads_is_named) {
  bs_graph *model = NULL;
  make_gguf(LLAMA, BS_GGUF_F32);
  make_keys(LLAMA, NULL);
  gguf_make_tensor("blk.0.extra.weight", BS_GGUF_F32, 1, (int64_t[]){4}, NULL, 16);
  ok(bs_graph_open(context, gguf_make_file("model.gguf"), NULL, &model, &err), "graph");
  ck_assert_ptr_nonnull(strstr(bs_graph_warning(model), "blk.0.extra.weight"));
  bs_graph_close(model);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_file_has_the_bits_of_its_folder, WIDE * TYPES},
                             {quantised_weights_are_read},
                             {the_cache_has_16_bits},
                             {logits_of_the_last_token},
                             {factors_replace_the_scaling_rule},
                             {what_is_not_built_is_refused, TEST_COUNT(refused)},
                             {a_type_that_is_not_read_is_refused},
                             {a_tensor_that_nobody_reads_is_named},
                             {0}};
  return run_tests("import_gguf", tests, (test_setup){before, after});
}
