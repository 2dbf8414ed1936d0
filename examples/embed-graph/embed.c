/* SPDX-License-Identifier: MIT
 * embed.c - prints how alike two sentences are: the cosine of their embeddings by a model such as MiniLM,
 * whose inputs are input_ids and attention_mask [batch, tokens]. embed MODEL.onnx 101,7592,102 101,2088,102
 * (token ids). Build: make */
#include <blockshock/graph.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { MAX_TOKENS = 512, MAX_WIDTH = 4096 };

/* Binds the session to the sentence's length, runs it, and copies its embedding. The width; 0: failed. */
static int64_t embed(bs_session *session, char *text, float *out, bs_error *err) {
  static const char *const names[] = {"input_ids", "attention_mask", "sentence_embedding"};
  int64_t ids[2][MAX_TOKENS], n = 0;
  uint32_t ports[3];
  for (char *word = strtok(text, ","); word != NULL && n < MAX_TOKENS; word = strtok(NULL, ",")) {
    ids[0][n] = strtoll(word, NULL, 10);
    ids[1][n++] = 1; /* the mask: every token counts */
  }
  const bs_dim tokens = {.struct_size = sizeof tokens, .name = "tokens", .size = n}, *dims[] = {&tokens};
  bs_tensor t = {.struct_size = sizeof t, .dtype = BS_I64, .rank = 2, .dims = {1, n}, .strides = {n, 1}};
  t.bytes = (uint64_t)n * sizeof ids[0][0];
  int32_t rc = bs_session_bind(session, dims, 1, err);
  for (int i = 0; i < 3 && rc == BS_OK; i++) rc = bs_session_find(session, names[i], &ports[i], err);
  for (int i = 0; i < 2 && rc == BS_OK; i++) {
    t.data = ids[i];
    rc = bs_session_set(session, ports[i], &t, err);
  }
  if (rc == BS_OK) rc = bs_session_run(session, err);
  if (rc == BS_OK) rc = bs_session_get(session, ports[2], &t, err);
  if (rc != BS_OK || t.dims[1] > MAX_WIDTH) return 0;
  memcpy(out, t.data, (size_t)t.dims[1] * sizeof *out);
  return t.dims[1];
}

static const char usage[] =
    "usage: embed MODEL.onnx IDS IDS\n"
    "Prints how alike two sentences are. IDS are token ids, as 101,7592,102; MODEL.onnx is exported by\n"
    "bs-export minilm. Exit codes: 0; 2 wrong words; others as of bsrun.\n";

int main(int argc, char **argv) {
  static float a[MAX_WIDTH], b[MAX_WIDTH];
  bs_error err = {.struct_size = sizeof err};
  bs_context *context = NULL;
  bs_graph *graph = NULL;
  bs_session *session = NULL;
  const bs_dim sizes[] = {{sizeof(bs_dim), 0, "batch", 1}, {sizeof(bs_dim), 0, "tokens", 1}},
               *dims[] = {sizes, sizes + 1};
  const bs_session_options options = {.struct_size = sizeof options, .dims = dims, .n_dims = 2};
  if (argc == 2 && strcmp(argv[1], "--help") == 0) return fputs(usage, stdout) < 0;
  if (argc != 4) return fputs(usage, stderr), 2;
  int32_t rc = bs_context_open(NULL, &context, &err);
  if (rc == BS_OK) rc = bs_graph_open(context, argv[1], NULL, &graph, &err);
  if (rc == BS_OK) rc = bs_session_open(context, graph, &options, &session, &err);
  const int64_t width =
      rc == BS_OK && embed(session, argv[2], a, &err) > 0 ? embed(session, argv[3], b, &err) : 0;
  double ab = 0, aa = 0, bb = 0;
  for (int64_t i = 0; i < width; i++) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  char text[1024];
  bs_error_format(&err, "embed", text, sizeof text);
  width > 0 ? printf("%.6f\n", ab / sqrt(aa * bb)) : fprintf(stderr, "%s\n", text);
  bs_session_close(session);
  bs_graph_close(graph);
  if (context != NULL) bs_context_close(context);
  const int code = bs_status_exit_code(err.code);
  return width > 0 ? 0 : code != 0 ? code : 3; /* an embedding that is too wide has no error */
}
