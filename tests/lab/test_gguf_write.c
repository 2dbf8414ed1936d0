/* SPDX-License-Identifier: MIT
 * test_gguf_write.c - folders that become GGUF: the file read back gives the logits that the folder gives
 * when its weights are rounded while they are packed; blocks hold the codes and scales of bs_quant_round;
 * what the format cannot say is refused, and nothing is written. */
#include <math.h>
#include <sys/stat.h>

#include "blockshock/graph.h"
#include "core/base/rng.h"
#include "core/op/quant.h"
#include "formats/gguf_quant.h"
#include "lab/model/gguf_rows.h"
#include "lab/model/quantize_gguf.h"
#include "tests/graph/folder_case.h"

enum { WORDS = 5, TOKENS = 4, COLS = 512 };

#define GPT2_GONE(n)                                                                                  \
  {"h." n ".ln_1.weight", NULL}, {"h." n ".ln_1.bias", NULL}, {"h." n ".attn.c_attn.weight", NULL},   \
      {"h." n ".attn.c_attn.bias", NULL}, {"h." n ".attn.c_proj.weight", NULL},                       \
      {"h." n ".attn.c_proj.bias", NULL}, {"h." n ".ln_2.weight", NULL}, {"h." n ".ln_2.bias", NULL}, \
      {"h." n ".mlp.c_fc.weight", NULL}, {"h." n ".mlp.c_fc.bias", NULL},                             \
      {"h." n ".mlp.c_proj.weight", NULL}, {                                                          \
    "h." n ".mlp.c_proj.bias", NULL                                                                   \
  }
static const entry gpt2_wide[] = {{"n_embd", "32"}, {"n_layer", "1"}, {"n_head", "4"}, {0}};
static const entry gpt2_rows[] = {{"wte.weight", "5,32"},
                                  {"wpe.weight", "8,32"},
                                  {"h.0.ln_1.weight", "32"},
                                  {"h.0.ln_1.bias", "32"},
                                  {"h.0.attn.c_attn.weight", "32,96"},
                                  {"h.0.attn.c_attn.bias", "96"},
                                  {"h.0.attn.c_proj.weight", "32,32"},
                                  {"h.0.attn.c_proj.bias", "32"},
                                  {"h.0.ln_2.weight", "32"},
                                  {"h.0.ln_2.bias", "32"},
                                  {"h.0.mlp.c_fc.weight", "32,128"},
                                  {"h.0.mlp.c_fc.bias", "128"},
                                  {"h.0.mlp.c_proj.weight", "128,32"},
                                  {"h.0.mlp.c_proj.bias", "32"},
                                  GPT2_GONE("1"),
                                  {"ln_f.weight", "32"},
                                  {"ln_f.bias", "32"},
                                  {0}};
static const entry llama_wide[] = {
    {"hidden_size", "32"}, {"intermediate_size", "64"}, {"head_dim", "16"}, {0}};
static const entry qwen3_wide[] = {{"model_type", "\"qwen3\""},     {"hidden_size", "32"},
                                   {"intermediate_size", "64"},     {"head_dim", "16"},
                                   {"tie_word_embeddings", "true"}, {0}};
#define WIDE                                                                            \
  {"model.embed_tokens.weight", "5,32"}, {L "input_layernorm.weight", "32"},            \
      {L "self_attn.q_proj.weight", "32,32"}, {L "self_attn.k_proj.weight", "16,32"},   \
      {L "self_attn.v_proj.weight", "16,32"}, {L "self_attn.o_proj.weight", "32,32"},   \
      {L "post_attention_layernorm.weight", "32"}, {L "mlp.gate_proj.weight", "64,32"}, \
      {L "mlp.up_proj.weight", "64,32"}, {L "mlp.down_proj.weight", "32,64"}, {         \
    "model.norm.weight", "32"                                                           \
  }
static const entry llama_rows[] = {WIDE, {"lm_head.weight", "5,32"}, {0}};
static const entry qwen3_rows[] = {WIDE,
                                   {L "self_attn.q_norm.weight", "16"},
                                   {L "self_attn.k_norm.weight", "16"},
                                   {"lm_head.weight", NULL},
                                   {0}};

/* bits 1: the logits have the bits of the folder; llama's pairs are summed in another order. */
static const struct {
  const entry *config, *changed_config, *weights, *changed_weights;
  int bits;
} models[] = {{gpt2_config, gpt2_wide, gpt2_weights, gpt2_rows, 1},
              {llama_config, llama_wide, llama_weights, llama_rows, 0},
              {llama_config, qwen3_wide, llama_weights, qwen3_rows, 1}};
static const char *const schemes[] = {"w8g32", "w4g32"};

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

static void write_model(int number) {
  write_config(models[number].config, models[number].changed_config);
  write_weights("model.safetensors", models[number].weights, 0, 100, models[number].changed_weights);
}

static int same_bits(const void *a, const void *b, size_t bytes) {
  return memcmp(a, b, bytes) == 0;
}

static int32_t quantize(const char *scheme) {
  const bs_quantize_request request = {.from = files_folder, .to = files_path("m.gguf"), .weights = scheme};
  json_t *result = NULL;
  const int32_t rc = bs_model_quantize_gguf(&request, &result, &err);
  json_decref(result);
  return rc;
}

static void logits_of(const char *path, const char *weights, float out[TOKENS * WORDS]) {
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "sequence", .size = TOKENS};
  const bs_dim *const dims[1] = {&dim};
  const bs_session_options options = {.struct_size = (uint32_t)sizeof options,
                                      .threads = 1,
                                      .dims = dims,
                                      .n_dims = 1,
                                      .weights = weights,
                                      .activations = "float"};
  int64_t tokens[TOKENS] = {3, 1, 4, 1};
  bs_tensor ids = {.struct_size = (uint32_t)sizeof ids,
                   .dtype = BS_I64,
                   .rank = 2,
                   .dims = {1, TOKENS},
                   .strides = {TOKENS, 1},
                   .data = tokens,
                   .bytes = sizeof tokens};
  bs_tensor logits = {.struct_size = (uint32_t)sizeof logits};
  const bs_graph_options whole = {.struct_size = (uint32_t)sizeof whole, .cache_dtype = BS_F32};
  bs_graph *graph = NULL;
  bs_session *session = NULL;
  uint32_t port = 0;
  ok(bs_graph_open(context, path, &whole, &graph, &err), path);
  ok(bs_session_open(context, graph, &options, &session, &err), "session");
  ok(bs_session_find(session, "input_ids", &port, &err), "input_ids");
  ok(bs_session_set(session, port, &ids, &err), "set");
  ok(bs_session_run(session, &err), "run");
  ok(bs_session_find(session, "logits", &port, &err), "logits");
  ok(bs_session_get(session, port, &logits, &err), "get");
  ck_assert(logits.dtype == BS_F32 && logits.dims[1] == TOKENS && logits.dims[2] == WORDS);
  memcpy(out, logits.data, TOKENS * WORDS * sizeof *out);
  bs_session_close(session);
  bs_graph_close(graph);
}

START_TEST(reads_back) {
  const int number = _i / 2;
  const char *scheme = schemes[_i % 2];
  float folder[TOKENS * WORDS], file[TOKENS * WORDS];
  write_model(number);
  ok(quantize(scheme), scheme);
  logits_of(files_folder, scheme, folder);
  logits_of(files_path("m.gguf"), NULL, file);
  if (models[number].bits) ck_assert_msg(same_bits(folder, file, sizeof folder), "%d %s", number, scheme);
  for (int i = 0; i < TOKENS * WORDS; i++)
    ck_assert_msg(fabs((double)(folder[i] - file[i])) <= 1e-6, "%d %s: logit %d: %g and %g", number, scheme,
                  i, (double)folder[i], (double)file[i]);
}
END_TEST

/* A row in each type of blocks, read back as codes, scales and steps. */
START_TEST(blocks_hold_codes) {
  static const char *const all[] = {"w8g32", "w4g32", "w4k", "w6k"};
  float row[COLS], scales[2][COLS / 32], lows[2][COLS / 32];
  uint8_t codes[2][COLS], low_steps[2][COLS / 16];
  int8_t steps[2][COLS / 16];
  unsigned char blocks[COLS * 2];
  double change = 0, size = 0;
  bs_quant form;
  memset(scales, 0, sizeof scales);
  memset(lows, 0, sizeof lows);
  memset(steps, 0, sizeof steps);
  memset(low_steps, 0, sizeof low_steps);
  bs_rng_normal(1, 2, 3, COLS, row);
  for (int k = 0; k < COLS; k++) row[k] *= 1.0F + (float)k / 32.0F;
  ok(bs_quant_scheme(all[_i], 1, COLS, &form, &err), all[_i]);
  bs_quant_rows to[2];
  for (int i = 0; i < 2; i++)
    to[i] = (bs_quant_rows){.struct_size = (uint32_t)sizeof to[i],
                            .codes = codes[i],
                            .codes_stride = COLS,
                            .scales = scales[i],
                            .lows = form.flags & BS_QUANT_LOWS ? lows[i] : NULL,
                            .steps = form.flags & BS_QUANT_STEPS ? steps[i] : NULL,
                            .low_steps = form.flags & BS_QUANT_LOWS ? low_steps[i] : NULL};
  bs_quant_round(&form, row, COLS, 1, &to[0]);
  const uint32_t type = bs_gguf_type_of_scheme(all[_i]);
  ok(bs_gguf_pack_row(type, row, COLS, blocks, &change, &size, &err), "pack");
  const bs_gguf_tensor tensor = {
      .type = bs_gguf_type_of(type), .rank = 2, .dims = {1, COLS}, .data = blocks, .bytes = sizeof blocks};
  bs_gguf_rows rows;
  bs_quant quant;
  ck_assert(bs_gguf_quant(&tensor, &rows, &quant) && bs_quant_same_form(&quant, &form));
  ok(quant.read(quant.ctx, 0, 1, &to[1], &err), "read");
  ck_assert(memcmp(codes[0], codes[1], sizeof codes[0]) == 0 &&
            same_bits(scales[0], scales[1], sizeof scales[0]) && same_bits(lows[0], lows[1], sizeof lows[0]));
  ck_assert(memcmp(steps[0], steps[1], sizeof steps[0]) == 0 &&
            memcmp(low_steps[0], low_steps[1], sizeof low_steps[0]) == 0);
  ck_assert(change > 0 && change < 0.02 * size);
}
END_TEST

/* Scales below the normal numbers of f16: the codes are made for what the file holds. */
START_TEST(small_scales) {
  static const char *const all[] = {"w8g32", "w4g32", "w4k", "w6k"};
  static const double most[] = {0.01, 0.09, 0.09, 0.05};
  float row[COLS];
  unsigned char blocks[COLS * 2];
  double change = 0, size = 0;
  bs_rng_normal(1, 2, 3, COLS, row);
  for (int k = 0; k < COLS; k++) row[k] *= 0.00008F;
  ok(bs_gguf_pack_row(bs_gguf_type_of_scheme(all[_i]), row, COLS, blocks, &change, &size, &err), "pack");
  ck_assert_msg(sqrt(change / size) < most[_i], "%s: %g", all[_i], sqrt(change / size));
}
END_TEST

static const struct {
  const char *scheme, *key, *value, *id;
  int32_t code;
} refused[] = {
    {"w8", NULL, NULL, "BS-QUANT-SCHEME", BS_USAGE},
    {"float", NULL, NULL, "BS-QUANT-NOTHING", BS_UNSUPPORTED},
    {"w4k", NULL, NULL, "BS-QUANT-NOTHING", BS_UNSUPPORTED}, /* 32 columns are no block of 256 */
    {"w8g32", "model_type", "\"olmo2\"", "BS-GGUF-ARCH", BS_UNSUPPORTED},
    {"w8g32", "hidden_act", "\"gelu\"", "BS-GGUF-CONFIG", BS_UNSUPPORTED},
    {"w8g32", "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 2.0}", "BS-GGUF-CONFIG", BS_UNSUPPORTED},
    {"w8g32", "attention_bias", "true", "BS-GGUF-CONFIG", BS_UNSUPPORTED},
    {"w8g32", "head_dim", "12", "BS-GGUF-TENSOR", BS_INPUT}};

START_TEST(refuses) {
  const entry changed[] = {{"hidden_size", "32"},
                           {"intermediate_size", "64"},
                           {refused[_i].key != NULL ? refused[_i].key : "head_dim",
                            refused[_i].key != NULL ? refused[_i].value : "16"},
                           {0}};
  struct stat st;
  write_model(1);
  write_config(llama_config, changed);
  files_expect(&err, quantize(refused[_i].scheme), refused[_i].code, refused[_i].id, "");
  ck_assert(stat(files_path("m.gguf"), &st) != 0);
}
END_TEST

#define BYTES "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}"
#define BPE \
  "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [[\"a\", \"b\"]]"
#define MARKS "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"}"
#define TOKEN(name) "{\"SpecialToken\": {\"id\": \"" name "\", \"type_id\": 0}}"
#define TEXT "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define AROUND(single)                                                          \
  "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [" single \
  "], \"special_tokens\": {\"s\": {\"id\": \"s\", \"ids\": [3]}, \"e\": {\"id\": \"e\", \"ids\": [4]}}}"

static const struct {
  const char *text, *id;
  int32_t code;
} tokenizers[] = {
    {"{", "BS-HF-JSON", BS_INPUT},
    {"[]", "BS-HF-JSON", BS_INPUT},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", "BS-GGUF-TOKENIZER", BS_UNSUPPORTED},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", "BS-GGUF-TOKENIZER", BS_UNSUPPORTED},
    {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 5}}}",
     "BS-GGUF-TOKENIZER", BS_INPUT},
    {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, "
     "\"merges\": [7]}}",
     "BS-GGUF-TOKENIZER", BS_UNSUPPORTED},
    /* A reader of the file would give other ids. */
    {"{" BYTES ", \"normalizer\": {\"type\": \"Lowercase\"}, " BPE "}}", "BS-GGUF-TOKENIZER", BS_UNSUPPORTED},
    {"{" BYTES ", \"normalizer\": {\"type\": \"NFC\"}, " BPE "}}", "BS-GGUF-TOKENIZER", BS_UNSUPPORTED},
    {"{" BYTES ", " BPE ", \"ignore_merges\": true}}", "BS-GGUF-TOKENIZER", BS_UNSUPPORTED},
    {"{" BYTES ", " BPE ", \"end_of_word_suffix\": \"</w>\"}}", "BS-GGUF-TOKENIZER", BS_UNSUPPORTED},
    {"{" BYTES ", \"added_tokens\": [{\"id\": 3, \"content\": \"m\", \"lstrip\": true}], " BPE "}}",
     "BS-GGUF-TOKENIZER", BS_UNSUPPORTED},
    {"{" BYTES ", " AROUND(TOKEN("s") ", " TOKEN("e") ", " TEXT) ", " BPE "}}", "BS-GGUF-TOKENIZER",
     BS_UNSUPPORTED},
    {"{" BYTES ", \"post_processor\": {\"type\": \"RobertaProcessing\"}, " BPE "}}", "BS-GGUF-TOKENIZER",
     BS_UNSUPPORTED},
    {"{\"normalizer\": " MARKS ", \"pre_tokenizer\": {\"type\": \"Metaspace\"}, " BPE
     ", \"byte_fallback\": true}}",
     "BS-GGUF-TOKENIZER", BS_UNSUPPORTED},
    {"{\"normalizer\": {\"type\": \"NFKC\"}, " BPE ", \"byte_fallback\": true}}", "BS-GGUF-TOKENIZER",
     BS_UNSUPPORTED},
    /* No merge makes ab. */
    {"{\"normalizer\": " MARKS ", \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": "
     "{\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": []}}",
     "BS-GGUF-TOKENIZER", BS_UNSUPPORTED}};

START_TEST(refuses_tokenizers) {
  write_model(1);
  files_write("tokenizer.json", tokenizers[_i].text, strlen(tokenizers[_i].text));
  files_expect(&err, quantize("w8g32"), tokenizers[_i].code, tokenizers[_i].id, "");
}
END_TEST

/* Tokens, their types and merges, in the order of their ids; an id without a token gets one. */
START_TEST(takes_the_tokenizer_along) {
  static const char text[] =
      "{\"added_tokens\": [{\"id\": 3, \"content\": \"<|end|>\", \"special\": true}], \"pre_tokenizer\": "
      "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": {\"type\": \"BPE\", \"vocab\": "
      "{\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [[\"a\", \"b\"]]}}";
  static const char *const want[WORDS] = {"a", "b", "ab", "<|end|>", "[PAD4]"};
  static const int64_t types[WORDS] = {1, 1, 1, 3, 5};
  bs_gguf file;
  bs_span span;
  uint64_t at = 0;
  int64_t type = 0;
  write_model(1);
  files_write("tokenizer.json", text, sizeof text - 1);
  ok(quantize("w8g32"), "write");
  ok(bs_gguf_open(files_path("m.gguf"), &file, &err), "open");
  const bs_gguf_key *tokens = bs_gguf_find_key(&file, "tokenizer.ggml.tokens");
  const bs_gguf_key *kinds = bs_gguf_find_key(&file, "tokenizer.ggml.token_type");
  const bs_gguf_key *merges = bs_gguf_find_key(&file, "tokenizer.ggml.merges");
  ck_assert(tokens != NULL && kinds != NULL && merges != NULL && tokens->count == WORDS);
  for (uint64_t i = 0; i < WORDS; i++) {
    ck_assert(bs_gguf_text_next(tokens, &at, &span) && bs_span_is(span, want[i]));
    ck_assert(bs_gguf_int(kinds, i, &type) && type == types[i]);
  }
  at = 0;
  ck_assert(bs_gguf_text_next(merges, &at, &span) && bs_span_is(span, "a b"));
  ck_assert(bs_gguf_text(bs_gguf_find_key(&file, "tokenizer.ggml.pre"), &span) && bs_span_is(span, "gpt-2"));
  bs_gguf_close(&file);
}
END_TEST

static int64_t number_of(const bs_gguf *file, const char *key) {
  int64_t value = -1;
  const bs_gguf_key *found = bs_gguf_find_key(file, key);
  ck_assert_msg(found != NULL && bs_gguf_int(found, 0, &value), "%s", key);
  return value;
}

/* The ids around a text are those of the template, whatever config.json says. */
START_TEST(tokens_around_a_text) {
  static const char text[] = "{\"normalizer\": " MARKS ", " AROUND(
      TOKEN("s") ", " TEXT ", " TOKEN("e")) ", " BPE ", \"byte_fallback\": true, \"unk_token\": \"b\"}}";
  bs_gguf file;
  write_model(1);
  files_write("tokenizer.json", text, sizeof text - 1);
  ok(quantize("w8g32"), "write");
  ok(bs_gguf_open(files_path("m.gguf"), &file, &err), "open");
  ck_assert_int_eq(number_of(&file, "tokenizer.ggml.bos_token_id"), 3);
  ck_assert_int_eq(number_of(&file, "tokenizer.ggml.eos_token_id"), 4);
  ck_assert_int_eq(number_of(&file, "tokenizer.ggml.add_bos_token"), 1);
  ck_assert_int_eq(number_of(&file, "tokenizer.ggml.add_eos_token"), 1);
  ck_assert_int_eq(number_of(&file, "tokenizer.ggml.add_space_prefix"), 0);
  ck_assert_int_eq(number_of(&file, "tokenizer.ggml.unknown_token_id"), 1);
  bs_gguf_close(&file);
}
END_TEST

int main(void) {
  const test_case cases[] = {{reads_back, 6},
                             {blocks_hold_codes, 4},
                             {small_scales, 4},
                             {refuses, TEST_COUNT(refused)},
                             {refuses_tokenizers, TEST_COUNT(tokenizers)},
                             {takes_the_tokenizer_along, 1},
                             {tokens_around_a_text, 1},
                             {0}};
  return run_tests("gguf write", cases, (test_setup){.before = before, .after = after});
}
