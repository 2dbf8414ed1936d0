/* SPDX-License-Identifier: MIT
 * split_case.h - models of tests as graphs behind their passes, for tests of what is split over ranks. */
#ifndef BS_TESTS_GRAPH_SPLIT_CASE_H
#define BS_TESTS_GRAPH_SPLIT_CASE_H
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/api.h"
#include "graph/run/session.h"
#include "graph/split/pair.h"
#include "lab/model/builtin.h"
#include "lab/model/model.h"
#include "tests/graph/folder_case.h"
#include "tests/graph/onnx_case.h"
#include "tests/graph/random_text.h"

static bs_context *split_context;
static bs_model split_made;    /* builtin:NAME */
static bs_graph *split_opened; /* of another one */
static bs_error split_err;
enum { SPLIT_MOST_PORTS = 16 };
static unsigned char split_inputs[SPLIT_MOST_PORTS][1 << 16];

static inline void split_ok(int32_t rc, const char *what) {
  ck_assert_msg(rc == BS_OK, "%s: %s %s", what, split_err.id, split_err.message);
}

static void split_begin(void) {
  files_begin();
  split_ok(bs_context_open(NULL, &split_context, &split_err), "context");
}

static void split_end(void) {
  bs_graph_close(split_opened);
  bs_model_close(&split_made);
  bs_context_close(split_context);
  files_end();
}

/* Sizes that 2, 3 and 4 ranks divide. */
static const entry split_gpt2[] = {{"n_embd", "48"}, {"n_head", "12"}, {"n_positions", "16"}, {0}};
#define SPLIT_GPT2(n)                                                                                   \
  {"h." n ".ln_1.weight", "48"}, {"h." n ".ln_1.bias", "48"}, {"h." n ".attn.c_attn.weight", "48,144"}, \
      {"h." n ".attn.c_attn.bias", "144"}, {"h." n ".attn.c_proj.weight", "48,48"},                     \
      {"h." n ".attn.c_proj.bias", "48"}, {"h." n ".ln_2.weight", "48"}, {"h." n ".ln_2.bias", "48"},   \
      {"h." n ".mlp.c_fc.weight", "48,192"}, {"h." n ".mlp.c_fc.bias", "192"},                          \
      {"h." n ".mlp.c_proj.weight", "192,48"}, {                                                        \
    "h." n ".mlp.c_proj.bias", "48"                                                                     \
  }
static const entry split_gpt2_weights[] = {{"wte.weight", "5,48"},
                                           {"wpe.weight", "16,48"},
                                           SPLIT_GPT2("0"),
                                           SPLIT_GPT2("1"),
                                           {"ln_f.weight", "48"},
                                           {"ln_f.bias", "48"},
                                           {0}};
static const entry split_qwen3[] = {{"model_type", "\"qwen3\""},       {"tie_word_embeddings", "true"},
                                    {"num_attention_heads", "24"},     {"num_key_value_heads", "12"},
                                    {"max_position_embeddings", "16"}, {0}};
static const entry split_qwen3_weights[] = {{L "self_attn.q_proj.weight", "192,16"},
                                            {L "self_attn.k_proj.weight", "96,16"},
                                            {L "self_attn.v_proj.weight", "96,16"},
                                            {L "self_attn.q_norm.weight", "8"},
                                            {L "self_attn.k_norm.weight", "8"},
                                            {L "self_attn.o_proj.weight", "16,192"},
                                            {"lm_head.weight", NULL},
                                            {0}};

/* The text of a case of models.txt, without its inputs; to be freed. */
static inline char *split_onnx_text(const char *name) {
  char path[1024], line[200] = "";
  snprintf(path, sizeof path, "%s/tests/graph/cases/models.txt", getenv("BS_TEST_SOURCE_DIR"));
  FILE *f = fopen(path, "rb");
  ck_assert_msg(f != NULL, "%s", path);
  fseek(f, 0, SEEK_END);
  const size_t size = (size_t)ftell(f);
  rewind(f);
  char *text = calloc(size + 2, 1), *body = NULL, *whole = NULL;
  ck_assert_ptr_nonnull(text);
  ck_assert_uint_eq(fread(text + 1, 1, size, f), size);
  fclose(f);
  text[0] = '\n';
  snprintf(line, sizeof line, "\n== %s ", name);
  char *at = strstr(text, line);
  ck_assert_msg(at != NULL, "no case %s", name);
  at = strchr(at + 1, '\n') + 1;
  char *end = strstr(at, "\n-- "), *head = at;
  if (end != NULL) *end = '\0';
  while (*head != '<' || head[-1] != '\n') head--; /* of the last case that has one */
  ck_assert_int_ge(
      asprintf(&whole, "%.*s%s", head == at ? 0 : (int)(strstr(head, ">\n") + 2 - head), head, at), 0);
  body = random_expand(whole);
  free(whole);
  free(text);
  ck_assert_ptr_nonnull(body);
  return body;
}

static inline void split_open_file(const char *path) {
  split_ok(bs_graph_open(split_context, path, NULL, &split_opened, &split_err), path);
}

/* "gpt2/", "qwen3/" (folders), "builtin:..", or a case of models.txt. Closed by split_end. */
static inline bs_graph *split_open(const char *name) {
  const int gpt2 = strcmp(name, "gpt2/") == 0, qwen3 = strcmp(name, "qwen3/") == 0;
  if (bs_model_is_builtin(name)) {
    split_ok(bs_model_builtin(split_context, name, &split_made, &split_err), name);
    split_ok(bs_graph_finish(split_made.graph, &split_err), name);
    return split_made.graph;
  }
  if (gpt2 || qwen3) {
    write_config(gpt2 ? gpt2_config : llama_config, gpt2 ? split_gpt2 : split_qwen3);
    write_weights("model.safetensors", gpt2 ? split_gpt2_weights : llama_weights, 0, 100,
                  gpt2 ? NULL : split_qwen3_weights);
    split_open_file(files_folder);
  } else {
    size_t size;
    char *text = split_onnx_text(name);
    unsigned char *bytes = onnx_bytes(text, ONNX_TEXT_RAW, &size);
    split_open_file(files_write("split.onnx", bytes, size));
    free(bytes);
    free(text);
  }
  split_ok(bs_graph_finish(split_opened, &split_err), name);
  return split_opened;
}

/* Whole numbers are 0 and 1, which are masks, kinds and tokens of every model. */
static inline void split_fill(void *data, const bs_tensor_desc *d, uint32_t port) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < d->rank; i++) count *= (uint64_t)d->dims[i];
  ck_assert_uint_le(count * BS_DTYPE_BYTES(d->dtype), sizeof split_inputs[0]);
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t hash = (i + 31 * port + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
    const int real = bs_dtype_is_float(d->dtype);
    bs_store_f64(d->dtype, data, (int64_t)i,
                 real ? (double)(hash % 2001) / 1000 - 1 : (double)(port > 0 || hash % 3 == 0));
  }
}

static inline void split_set_inputs(bs_session *s, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    bs_tensor_desc d = {.struct_size = sizeof d};
    split_ok(bs_session_port(s, i, NULL, &d, &split_err), "port");
    split_fill(split_inputs[i], &d, i);
    bs_tensor t = {.struct_size = sizeof t, .dtype = d.dtype, .rank = d.rank, .data = split_inputs[i]};
    memcpy(t.dims, d.dims, sizeof t.dims);
    memcpy(t.strides, d.strides, sizeof t.strides);
    t.bytes = sizeof split_inputs[i];
    split_ok(bs_session_set(s, i, &t, &split_err), "set");
  }
}

/* The graph of a model behind its passes. Symbols whose name has "batch" are 2, unless a model has one
 * sequence; others are `tokens`. off: a pass that is left out; NULL. */
static inline graph *split_graph(bs_graph *model, int64_t tokens, const char *off) {
  const gmodel *m = model->model;
  bs_dim dims[8];
  const bs_dim *list[8];
  gpass_trace traces[GPASS_MAX];
  graph *g = NULL;
  uint32_t mask = 0;
  ck_assert_uint_le(m->n_symbols, 8);
  for (uint32_t i = 0; i < m->n_symbols; i++) {
    const int batch = strstr(m->symbols[i], "batch") != NULL;
    dims[i] = (bs_dim){.struct_size = sizeof dims[i], .name = m->symbols[i], .size = batch ? 2 : tokens};
    list[i] = &dims[i];
  }
  const lower_options lower = {
      .dims = list, .n_dims = m->n_symbols, .folder = {gfold_run, &model->fold, gfold_constant, gfold_ask}};
  const gpass_ctx ctx = {.fold = gfold_constant, .fold_user = &model->fold};
  split_ok(gpass_mask(&off, off != NULL, &mask, &split_err), "passes");
  split_ok(lower_model(m, &lower, &g, &split_err), "lower");
  split_ok(gpass_run(g, &ctx, mask, traces, &split_err), "passes");
  return g;
}
#endif
