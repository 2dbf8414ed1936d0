/* SPDX-License-Identifier: MIT
 * What a process holds while a model of 85 MB is opened and run: its weights once, the memory of intermediate
 * values, and 10 % more. The file is one hole, whose pages are mapped as those of any other file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "blockshock/graph.h"
#include "core/base/error.h"
#include "tests/formats/gguf_make.h"
#include "tests/graph/build.h"
#include "tests/graph/folder_case.h"
#include "tests/slow.h"

enum { VOCABULARY = 16384, WIDTH = 512, LAYERS = 4, TOKENS = 16 };

static bs_context *context;
static void before(void) {
  bs_error err = BS_ERROR_INIT;
  files_begin();
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
}
static void after(void) {
  bs_context_close(context);
  files_end();
}

/* ---- a folder -------------------------------------------------------------------------------- */

typedef struct header {
  char text[1 << 15];
  size_t at;
  uint64_t bytes; /* of the tensors so far */
} header;

static void add(header *h, int64_t rows, int64_t cols, const char *name, int layer) {
  char shape[64];
  const uint64_t bytes = 4u * (uint64_t)(rows * (cols > 0 ? cols : 1));
  snprintf(shape, sizeof shape, cols > 0 ? "%lld,%lld" : "%lld", (long long)rows, (long long)cols);
  h->at += (size_t)snprintf(h->text + h->at, sizeof h->text - h->at, "%c\"", h->at == 0 ? '{' : ',');
  if (layer >= 0) h->at += (size_t)snprintf(h->text + h->at, sizeof h->text - h->at, "h.%d.", layer);
  h->at += (size_t)snprintf(h->text + h->at, sizeof h->text - h->at,
                            "%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}", name,
                            shape, (unsigned long long)h->bytes, (unsigned long long)(h->bytes + bytes));
  h->bytes += bytes;
}

/* A GPT-2 whose weights are zero. Returns their bytes. */
static uint64_t write_zeros(const char *positions) {
  const entry changed[] = {{"vocab_size", "16384"}, {"n_positions", positions},
                           {"n_embd", "512"},       {"n_layer", "4"},
                           {"n_head", "8"},         {0}};
  static const struct {
    const char *name;
    int64_t rows, cols;
  } layer[] = {{"ln_1.weight", WIDTH, 0},
               {"ln_1.bias", WIDTH, 0},
               {"attn.c_attn.weight", WIDTH, (int64_t)3 * WIDTH},
               {"attn.c_attn.bias", (int64_t)3 * WIDTH, 0},
               {"attn.c_proj.weight", WIDTH, WIDTH},
               {"attn.c_proj.bias", WIDTH, 0},
               {"ln_2.weight", WIDTH, 0},
               {"ln_2.bias", WIDTH, 0},
               {"mlp.c_fc.weight", WIDTH, (int64_t)4 * WIDTH},
               {"mlp.c_fc.bias", (int64_t)4 * WIDTH, 0},
               {"mlp.c_proj.weight", (int64_t)4 * WIDTH, WIDTH},
               {"mlp.c_proj.bias", WIDTH, 0}};
  static header h;
  h = (header){0};
  add(&h, VOCABULARY, WIDTH, "wte.weight", -1);
  add(&h, atoll(positions), WIDTH, "wpe.weight", -1);
  for (int l = 0; l < LAYERS; l++)
    for (int i = 0; i < TEST_COUNT(layer); i++) add(&h, layer[i].rows, layer[i].cols, layer[i].name, l);
  add(&h, WIDTH, 0, "ln_f.weight", -1);
  add(&h, WIDTH, 0, "ln_f.bias", -1);
  h.text[h.at++] = '}';
  while (h.at % 8 != 0) h.text[h.at++] = ' ';
  write_config(gpt2_config, changed);
  FILE *f = fopen(files_path("model.safetensors"), "wb");
  const uint64_t length = h.at;
  ck_assert_ptr_nonnull(f);
  fwrite(&length, sizeof length, 1, f);
  fwrite(h.text, 1, h.at, f);
  fclose(f);
  ck_assert_int_eq(truncate(files_path("model.safetensors"), (off_t)(sizeof length + h.at + h.bytes)), 0);
  return h.bytes;
}

/* ---- the test -------------------------------------------------------------------------------- */

/* A line of /proc/self/status, in bytes. */
static uint64_t held(const char *line) {
  char text[256];
  uint64_t bytes = 0;
  FILE *f = fopen("/proc/self/status", "r");
  ck_assert_ptr_nonnull(f);
  while (fgets(text, sizeof text, f) != NULL)
    if (strncmp(text, line, strlen(line)) == 0) bytes = 1024 * strtoull(text + strlen(line), NULL, 10);
  fclose(f);
  ck_assert_uint_gt(bytes, 0);
  return bytes;
}

/* Opens the folder, runs it once and closes it; `check`: then also node by node. */
static void run(int64_t tokens, int check, uint64_t *out_resident, bs_session_stats *out_stats) {
  bs_error err = BS_ERROR_INIT;
  bs_graph *graph = NULL;
  bs_session *session = NULL;
  int64_t ids[TOKENS] = {0};
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "sequence", .size = tokens};
  const bs_dim *const dims[] = {&dim};
  const bs_session_options options = {
      .struct_size = (uint32_t)sizeof options, .threads = 1, .dims = dims, .n_dims = 1};
  const bs_tensor t = {.struct_size = (uint32_t)sizeof t,
                       .dtype = BS_I64,
                       .rank = 2,
                       .dims = {1, tokens},
                       .strides = {tokens, 1},
                       .data = ids,
                       .bytes = 8 * (uint64_t)tokens};
  for (int64_t i = 0; i < tokens; i++) ids[i] = i % 5;
  ck_assert_msg(bs_graph_open(context, files_folder, NULL, &graph, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_session_open(context, graph, &options, &session, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_session_set(session, 0, &t, &err), BS_OK);
  ck_assert_msg(bs_session_run(session, &err) == BS_OK, "%s", err.message);
  *out_stats = (bs_session_stats){.struct_size = (uint32_t)sizeof *out_stats};
  ck_assert_int_eq(bs_session_stats_get(session, out_stats, &err), BS_OK);
  *out_resident = held("VmRSS:");
  if (check) ck_assert_msg(bs_session_check(session, NULL, NULL, &err) == BS_OK, "%s", err.message);
  bs_session_close(session);
  bs_graph_close(graph);
}

static uint64_t run_small(void) {
  uint64_t program;
  bs_session_stats stats;
  write_config(gpt2_config, NULL);
  write_weights("model.safetensors", gpt2_weights, 0, 100, NULL);
  run(4, 0, &program, &stats); /* libraries and what they hold */
  remove(files_path("model.safetensors"));
  return program;
}

START_TEST(weights_once) {
  uint64_t resident;
  bs_session_stats stats;
  if (BS_SLOW) return; /* a sanitizer holds memory of its own */
  const uint64_t program = run_small(), weights = write_zeros("64");
  run(TOKENS, 0, &resident, &stats);
  const uint64_t limit = program + (weights + stats.bound_bytes + stats.state_bytes) / 10 * 11;
  ck_assert_uint_gt(weights, 50000000);
  ck_assert_msg(resident <= limit, "%llu bytes are resident after a run, %llu allowed",
                (unsigned long long)resident, (unsigned long long)limit);
  ck_assert_msg(held("VmHWM:") <= limit, "%llu bytes were resident at one time, %llu allowed",
                (unsigned long long)held("VmHWM:"), (unsigned long long)limit);
}
END_TEST

/* A cache of 134 MB in which 16 tokens lie: its other pages are not there, neither after a run nor in a
 * check, which keeps it three times. */
START_TEST(empty_cache_takes_no_memory) {
  uint64_t resident;
  bs_session_stats stats;
  if (BS_SLOW) return;
  const uint64_t program = run_small(), weights = write_zeros("8192");
  run(TOKENS, 1, &resident, &stats);
  const uint64_t limit = program + (weights + stats.bound_bytes) / 10 * 11;
  ck_assert_uint_gt(stats.state_bytes, 130000000);
  ck_assert_msg(resident <= limit + 20000000, "%llu bytes are resident after a run, %llu allowed",
                (unsigned long long)resident, (unsigned long long)limit);
  ck_assert_msg(held("VmHWM:") <= limit + 3 * stats.state_bytes,
                "%llu bytes were resident at one time, %llu allowed", (unsigned long long)held("VmHWM:"),
                (unsigned long long)(limit + 3 * stats.state_bytes));
}
END_TEST

static bs_session_stats stats_of(bs_session *session) {
  bs_error err = BS_ERROR_INIT;
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  ck_assert_int_eq(bs_session_stats_get(session, &stats, &err), BS_OK);
  return stats;
}

/* ---- a quantised file ------------------------------------------------------------------------ */

enum { GGUF_WIDTH = 1024, GGUF_INNER = 12288, GGUF_LAYERS = 1, GGUF_WORDS = 1024, GGUF_THREADS = 2 };

/* Adds the record of a tensor whose bytes are in a hole after the file's head. */
static void add_record(const char *name, int layer, int64_t rows, int64_t cols, uint64_t *io_at) {
  char full[64];
  if (layer >= 0)
    snprintf(full, sizeof full, "blk.%d.%s.weight", layer, name);
  else
    snprintf(full, sizeof full, "%s.weight", name);
  gguf_made.n_tensors++;
  gguf_put_text(&gguf_made.infos, full);
  gguf_put_number(&gguf_made.infos, rows > 0 ? 2 : 1, 4);
  gguf_put_number(&gguf_made.infos, (uint64_t)cols, 8);
  if (rows > 0) gguf_put_number(&gguf_made.infos, (uint64_t)rows, 8);
  gguf_put_number(&gguf_made.infos, rows > 0 ? BS_GGUF_Q8_0 : BS_GGUF_F32, 4);
  gguf_put_number(&gguf_made.infos, *io_at, 8);
  *io_at += (uint64_t)(rows > 0 ? rows * cols / 32 * 34 : cols * 4);
}

/* A Qwen2 of 45 MB in Q8_0, Q, K, V, gate and up in one product each. Returns the bytes of its tensors. */
static uint64_t write_gguf(void) {
  static const struct {
    const char *name;
    int64_t rows, cols;
  } layer[] = {{"attn_norm", 0, GGUF_WIDTH},         {"ffn_norm", 0, GGUF_WIDTH},
               {"attn_q", GGUF_WIDTH, GGUF_WIDTH},   {"attn_k", GGUF_WIDTH, GGUF_WIDTH},
               {"attn_v", GGUF_WIDTH, GGUF_WIDTH},   {"attn_output", GGUF_WIDTH, GGUF_WIDTH},
               {"ffn_gate", GGUF_INNER, GGUF_WIDTH}, {"ffn_up", GGUF_INNER, GGUF_WIDTH},
               {"ffn_down", GGUF_WIDTH, GGUF_INNER}};
  static const char *const keys[] = {"context_length", "embedding_length", "block_count",
                                     "feed_forward_length", "attention.head_count"};
  const uint32_t values[] = {256, GGUF_WIDTH, GGUF_LAYERS, GGUF_INNER, 16};
  uint64_t at = 0;
  gguf_make_begin();
  gguf_make_text("general.architecture", "qwen2");
  for (int i = 0; i < TEST_COUNT(keys); i++) {
    char name[64];
    snprintf(name, sizeof name, "qwen2.%s", keys[i]);
    gguf_make_u32(name, values[i]);
  }
  add_record("token_embd", -1, GGUF_WORDS, GGUF_WIDTH, &at);
  add_record("output_norm", -1, 0, GGUF_WIDTH, &at);
  for (int l = 0; l < GGUF_LAYERS; l++)
    for (int i = 0; i < TEST_COUNT(layer); i++)
      add_record(layer[i].name, l, layer[i].rows, layer[i].cols, &at);
  const char *path = gguf_make_file("model.gguf");
  ck_assert_int_eq(truncate(path, (off_t)(gguf_made.whole.size + at)), 0);
  return at;
}

/* While weights are packed, a process holds the packed weights, 16 rows for each member and 8 MiB. It holds
 * no floats, and each member gives back the file's pages that it has read. After a run docs/quant.md has the
 * limit. */
START_TEST(quantised_weights_are_packed_from_the_file) {
  bs_error err = BS_ERROR_INIT;
  bs_graph *graph = NULL;
  bs_session *session = NULL;
  int64_t ids[TOKENS] = {0};
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "sequence", .size = TOKENS};
  const bs_dim *const dims[] = {&dim};
  const bs_session_options options = {
      .struct_size = (uint32_t)sizeof options, .threads = GGUF_THREADS, .dims = dims, .n_dims = 1};
  const bs_tensor t = {.struct_size = (uint32_t)sizeof t,
                       .dtype = BS_I64,
                       .rank = 2,
                       .dims = {1, TOKENS},
                       .strides = {TOKENS, 1},
                       .data = ids,
                       .bytes = sizeof ids};
  if (BS_SLOW) return;
  run_small();
  const uint64_t file = write_gguf(), program = held("VmHWM:");
  ck_assert_msg(bs_graph_open(context, files_path("model.gguf"), NULL, &graph, &err) == BS_OK, "%s",
                err.message);
  ck_assert_msg(bs_session_open(context, graph, &options, &session, &err) == BS_OK, "%s", err.message);
  const bs_session_stats stats = stats_of(session);
  const uint64_t rows = (uint64_t)16 * GGUF_INNER * GGUF_THREADS,
                 limit = program + stats.packed_bytes + rows + ((uint64_t)8 << 20);
  ck_assert_uint_gt(file, 40000000);
  ck_assert_uint_le(stats.packed_bytes, file);
  ck_assert_msg(held("VmHWM:") <= limit, "%llu bytes were resident while weights were packed, %llu allowed",
                (unsigned long long)held("VmHWM:"), (unsigned long long)limit);
  ck_assert_int_eq(bs_session_set(session, 0, &t, &err), BS_OK);
  ck_assert_msg(bs_session_run(session, &err) == BS_OK, "%s", err.message);
  const uint64_t cache = stats.state_bytes / 256 * TOKENS,
                 bar = program + (stats.packed_bytes + stats.arena_bytes + cache) / 100 * 105 + 20000000;
  ck_assert_msg(held("VmRSS:") <= bar, "%llu bytes are resident after a run, %llu allowed",
                (unsigned long long)held("VmRSS:"), (unsigned long long)bar);
  bs_session_close(session);
  bs_graph_close(graph);
}
END_TEST

/* Matrices of 16 bits behind a Cast, whose products are packed: the f32 that they were packed from is gone,
 * and is not packed again for other shapes. */
enum { MATRICES = 8, SIDE = 1024 };

static bs_session *open_cast(bs_graph *graph) {
  bs_error err = BS_ERROR_INIT;
  bs_session *session = NULL;
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "B", .size = 4};
  const bs_dim *const dims[] = {&dim};
  const bs_session_options options = {
      .struct_size = (uint32_t)sizeof options, .threads = 1, .dims = dims, .n_dims = 1};
  ck_assert_msg(bs_session_open(tb_context, graph, &options, &session, &err) == BS_OK, "%s", err.message);
  return session;
}

static void run_ones(bs_session *session, int64_t rows, float *out_y) {
  static float x[8 * SIDE];
  bs_error err = BS_ERROR_INIT;
  bs_tensor t = {.struct_size = (uint32_t)sizeof t,
                 .dtype = BS_F32,
                 .rank = 2,
                 .dims = {rows, SIDE},
                 .strides = {SIDE, 1},
                 .data = x,
                 .bytes = sizeof x};
  for (int64_t i = 0; i < rows * SIDE; i++) x[i] = 1.0f / SIDE;
  ck_assert_int_eq(bs_session_set(session, 0, &t, &err), BS_OK);
  ck_assert_msg(bs_session_run(session, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_session_get(session, 1, &t, &err), BS_OK);
  *out_y = ((const float *)t.data)[0];
}

START_TEST(computed_weights_are_packed_alone) {
  static uint16_t half[SIDE * SIDE];
  if (BS_SLOW) return;
  (void)run_small();
  tb_begin();
  const int64_t dims[] = {-1, SIDE}, w[] = {SIDE, SIDE};
  const char *const symbols[] = {"B", NULL};
  for (int64_t i = 0; i < SIDE * SIDE; i++) half[i] = 0x3c00; /* 1 in f16 */
  uint32_t x = tb_symbolic("x", BS_F32, 2, dims, symbols);
  for (int i = 0; i < MATRICES; i++)
    x = tb_op("MatMul", x,
              tb_with("Cast", "to=1", tb_constant(BS_F16, 2, w, half), BS_GRAPH_NONE, BS_GRAPH_NONE),
              BS_GRAPH_NONE);
  tb_output("y", x);
  const uint64_t program = held("VmRSS:");
  bs_error err = BS_ERROR_INIT;
  float first = 0, again = 0;
  bs_session *session = open_cast(tb_graph);
  run_ones(session, 4, &first);
  const bs_session_stats stats = stats_of(session);
  const uint64_t limit =
      program + (stats.packed_bytes + stats.arena_bytes) / 100 * 105 + ((uint64_t)20 << 20);
  ck_assert_uint_ge(stats.packed_bytes, (uint64_t)4 * MATRICES * SIDE * SIDE);
  ck_assert_msg(held("VmRSS:") <= limit, "%llu bytes are resident after a run, %llu allowed",
                (unsigned long long)held("VmRSS:"), (unsigned long long)limit);
  const bs_dim eight = {.struct_size = (uint32_t)sizeof eight, .name = "B", .size = 8};
  const bs_dim *const more[] = {&eight};
  ck_assert_int_eq(bs_session_bind(session, more, 1, &err), BS_OK);
  run_ones(session, 8, &again);
  ck_assert_uint_eq(stats_of(session).packed_bytes, stats.packed_bytes);
  ck_assert(first == again);
  ck_assert_msg(bs_session_check(session, NULL, NULL, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(held("VmRSS:") <= limit, "%llu bytes are resident after a check",
                (unsigned long long)held("VmRSS:"));
  bs_session_close(session);
  tb_end();
}
END_TEST

int main(void) {
  const test_case tests[] = {{weights_once},
                             {empty_cache_takes_no_memory},
                             {computed_weights_are_packed_alone},
                             {quantised_weights_are_packed_from_the_file},
                             {0}};
  return run_tests("graph_memory", tests, (test_setup){before, after});
}
