/* SPDX-License-Identifier: MIT
 * embed.c - one vector for each text. Texts are sorted by their number of tokens, and texts of one number run
 * together. So nothing is padded, unless the model has a fixed number of tokens. Called by
 * bsrun/model_embed.c. */
#include "lab/model/embed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blockshock/text.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/stop.h"

enum { AT_ONCE = 16, MAX_INPUTS = 8 };
enum { IDS, MASK, TYPES, PLACES };

typedef struct sentence {
  int64_t *ids;
  size_t n, index; /* in the caller's order */
} sentence;

typedef struct embedding {
  const bs_model_request *request;
  bs_embed_kind kind;
  bs_model model;
  bs_tokenizer *tokenizer;
  bs_session *session;
  sentence *sentences;
  size_t n;
  int roles[MAX_INPUTS]; /* of each input */
  uint32_t n_inputs, output;
  int64_t batch, tokens; /* where the model has fixed numbers; 0: none */
  const char *batch_name, *tokens_name;
  void *memory[MAX_INPUTS];
  int pools; /* the output has hidden states */
  bs_embedded *out;
} embedding;

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for texts");
}

static int32_t not_served(const embedding *e, bs_error *err, const char *why, const char *name) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-EMBED-MODEL", "%.200s %s%.100s", e->request->path, why, name);
  bs_error_hint(err,
                "embed takes an ONNX file of an encoder: input_ids [batch, tokens] in, hidden states out");
  return BS_UNSUPPORTED;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* The file of a folder; *out stays NULL where the folder has another name for it, and for any other path. */
static int32_t find_file(const char *path, char **out, bs_error *err) {
  static const char *const names[] = {"model.onnx", "onnx/model.onnx"};
  struct stat info;
  if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return BS_OK;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    bs_text file = {0};
    bs_text_printf(&file, "%s/%s", path, names[i]);
    if (file.failed) return no_memory(err);
    if (access(file.data, F_OK) == 0) {
      *out = file.data;
      return BS_OK;
    }
    bs_text_free(&file);
  }
  return BS_OK;
}

static int role_of(const char *name) {
  static const char *const names[] = {
      [IDS] = "input_ids", [MASK] = "attention_mask", [TYPES] = "token_type_ids", [PLACES] = "position_ids"};
  for (int i = 0; i < 4; i++)
    if (strcmp(name, names[i]) == 0) return i;
  return -1;
}

static int is_taken(uint32_t dtype) {
  return dtype == BS_I64 || dtype == BS_I32 || dtype == BS_F32 || dtype == BS_BOOL;
}

static int32_t read_inputs(embedding *e, bs_error *err) {
  int has_ids = 0;
  bs_graph_info info = {.struct_size = sizeof info};
  int32_t rc = bs_graph_info_get(e->model.graph, &info, err);
  e->n_inputs = bs_graph_port_count(e->model.graph, 1);
  if (rc == BS_OK && (info.cache_tokens > 0 || e->n_inputs > MAX_INPUTS))
    return not_served(e, err, "is no encoder of texts", "");
  for (uint32_t i = 0; i < e->n_inputs && rc == BS_OK; i++) {
    bs_port port = {.struct_size = sizeof port};
    rc = bs_graph_port(e->model.graph, 1, i, &port, err);
    if (rc != BS_OK) return rc;
    e->roles[i] = role_of(port.name);
    if (e->roles[i] < 0 || port.rank != 2 || !is_taken(port.dtype))
      return not_served(e, err, "has an input that texts do not give: ", port.name);
    has_ids |= e->roles[i] == IDS;
    if (e->roles[i] != IDS) continue;
    e->batch = port.dims[0] > 0 ? port.dims[0] : 0;
    e->tokens = port.dims[1] > 0 ? port.dims[1] : 0;
    e->batch_name = port.symbols[0];
    e->tokens_name = port.symbols[1];
  }
  return rc == BS_OK && !has_ids ? not_served(e, err, "has no input input_ids", "") : rc;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Shortens the text's own tokens; the tokens that the tokenizer adds after them stay. */
static int32_t cut(embedding *e, const char *text, sentence *s, size_t most, bs_error *err) {
  uint64_t n = 0;
  int64_t *plain = malloc(s->n * sizeof *plain);
  if (plain == NULL) return no_memory(err);
  const int32_t rc =
      bs_tokenizer_encode(e->tokenizer, text, strlen(text), BS_ENCODE_PLAIN, plain, s->n, &n, err);
  size_t before = 0;
  while (rc == BS_OK && before + n < s->n && memcmp(s->ids + before, plain, (size_t)n * sizeof *plain) != 0)
    before++;
  free(plain);
  if (rc != BS_OK) return rc;
  const size_t after = s->n - before - (size_t)n;
  if (before + after > most)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-EMBED-MODEL",
                        "the tokenizer puts %zu tokens around a text; the model takes %zu", before + after,
                        most);
  memmove(s->ids + most - after, s->ids + s->n - after, after * sizeof *s->ids);
  s->n = most;
  e->out->cut++;
  return BS_OK;
}

static int32_t read_text(embedding *e, const char *text, sentence *s, bs_error *err) {
  uint64_t n = 0;
  int32_t rc = bs_tokenizer_encode(e->tokenizer, text, strlen(text), 0, NULL, 0, &n, err);
  if (rc == BS_OK && n == 0)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "a text without a token: '%.40s'", text);
  if (rc == BS_OK && (s->ids = malloc((size_t)n * sizeof *s->ids)) == NULL) rc = no_memory(err);
  if (rc == BS_OK) rc = bs_tokenizer_encode(e->tokenizer, text, strlen(text), 0, s->ids, n, &n, err);
  if (rc != BS_OK) return rc;
  s->n = (size_t)n;
  int64_t most = e->kind.most;
  if (e->tokens > 0 && (most == 0 || e->tokens < most)) most = e->tokens;
  if (most > 0 && s->n > (size_t)most) rc = cut(e, text, s, (size_t)most, err);
  e->out->most = most;
  e->out->tokens[s->index] = (int64_t)s->n;
  return rc;
}

static int by_length(const void *a, const void *b) {
  const sentence *x = a, *y = b;
  if (x->n != y->n) return x->n < y->n ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

static int32_t read_texts(embedding *e, const char *const *texts, bs_error *err) {
  int32_t rc = bs_tokenizer_open(e->kind.folder, &e->tokenizer, err);
  for (size_t i = 0; i < e->n && rc == BS_OK; i++) {
    e->sentences[i].index = i;
    rc = read_text(e, texts[i], &e->sentences[i], err);
    if (rc != BS_OK) bs_error_where(err, "text %zu", i + 1);
  }
  if (rc == BS_OK && e->n > 1) qsort(e->sentences, e->n, sizeof *e->sentences, by_length);
  return rc;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void put(uint32_t dtype, void *memory, size_t at, int64_t value) {
  if (dtype == BS_I64)
    ((int64_t *)memory)[at] = value;
  else if (dtype == BS_I32)
    ((int32_t *)memory)[at] = (int32_t)value;
  else if (dtype == BS_F32)
    ((float *)memory)[at] = (float)value;
  else
    ((uint8_t *)memory)[at] = value != 0;
}

/* Rows of `rows` texts, the last one again where the model has more. */
static int32_t set_input(embedding *e, uint32_t port, const sentence *s, size_t rows, int64_t batch,
                         int64_t tokens, bs_error *err) {
  const int64_t pad = bs_tokenizer_special(e->tokenizer, BS_TOKEN_PAD);
  bs_tensor_desc desc = {.struct_size = sizeof desc};
  int32_t rc = bs_session_port(e->session, port, NULL, &desc, err);
  if (rc != BS_OK) return rc;
  const size_t bytes = (size_t)batch * (size_t)tokens * BS_DTYPE_BYTES(desc.dtype);
  void *memory = realloc(e->memory[port], bytes);
  if (memory == NULL) return no_memory(err);
  e->memory[port] = memory;
  for (size_t b = 0; b < (size_t)batch; b++) {
    const sentence *of = &s[b < rows ? b : rows - 1];
    for (size_t t = 0; t < (size_t)tokens; t++) {
      const int there = t < of->n, role = e->roles[port];
      const int64_t id = there ? of->ids[t] : pad < 0 ? 0 : pad;
      put(desc.dtype, memory, b * (size_t)tokens + t,
          role == IDS      ? id
          : role == MASK   ? there
          : role == PLACES ? (int64_t)t
                           : 0);
    }
  }
  bs_tensor input = {.struct_size = sizeof input,
                     .dtype = desc.dtype,
                     .rank = 2,
                     .dims = {batch, tokens},
                     .strides = {tokens, 1},
                     .data = memory,
                     .bytes = bytes};
  return bs_session_set(e->session, port, &input, err);
}

static int is_float(uint32_t dtype) {
  return dtype == BS_F32 || dtype == BS_F16 || dtype == BS_BF16 || dtype == BS_F64;
}

/* Hidden states [batch, tokens, width] come first, then vectors [batch, width]; of several the known name. */
static int32_t find_output(embedding *e, bs_error *err) {
  static const char *const known[] = {"last_hidden_state", "token_embeddings", "sentence_embedding"};
  const uint32_t n = bs_session_port_count(e->session);
  int best = -1;
  for (uint32_t i = e->n_inputs; i < n; i++) {
    const char *name = NULL;
    bs_tensor_desc desc = {.struct_size = sizeof desc};
    const int32_t rc = bs_session_port(e->session, i, &name, &desc, err);
    if (rc != BS_OK) return rc;
    if (!is_float(desc.dtype) || (desc.rank != 2 && desc.rank != 3) || strcmp(name, "logits") == 0) continue;
    int worth = desc.rank == 3 ? 4 : 1;
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) worth += strcmp(name, known[k]) == 0;
    if (worth <= best) continue;
    best = worth;
    e->output = i;
    e->pools = desc.rank == 3;
    e->out->width = desc.dims[desc.rank - 1];
    const char *from = e->kind.from[0] != '\0' ? e->kind.from : "no file says it";
    if (e->pools)
      snprintf(e->out->how, sizeof e->out->how, "%s of %.80s (%s)", e->kind.name, name, from);
    else
      snprintf(e->out->how, sizeof e->out->how, "the model's output %.80s", name);
  }
  if (best < 0) return not_served(e, err, "has no output of hidden states or vectors", "");
  e->out->vectors = calloc(e->n * (size_t)e->out->width + 1, sizeof *e->out->vectors);
  return e->out->vectors != NULL ? BS_OK : no_memory(err);
}

static int32_t open_session(bs_context *context, embedding *e, const bs_dim *const *dims, uint32_t n,
                            bs_error *err) {
  const bs_model_request *r = e->request;
  bs_session_options options = bs_model_session_options(r, &e->model);
  options.dims = dims;
  options.n_dims = n;
  const int32_t rc = bs_session_open(context, e->model.graph, &options, &e->session, err);
  return rc == BS_OK ? find_output(e, err) : rc;
}

/* One vector of a row's hidden states. */
static void pool(const embedding *e, const bs_tensor *t, int64_t row, size_t n, double *vector) {
  const int kind = e->kind.pooling;
  const size_t begin = kind == BS_POOL_LAST ? n - 1 : 0, end = kind == BS_POOL_CLS ? 1 : n;
  for (int64_t d = 0; d < e->out->width; d++) {
    double sum = kind == BS_POOL_MAX ? -INFINITY : 0;
    for (size_t i = begin; i < end; i++) {
      const double v = bs_load_f64(t->dtype, t->data,
                                   row * t->strides[0] + (int64_t)i * t->strides[1] + d * t->strides[2]);
      sum = kind == BS_POOL_MAX ? fmax(sum, v) : sum + v;
    }
    vector[d] = kind == BS_POOL_MEAN        ? sum / (double)n
                : kind == BS_POOL_SQRT_MEAN ? sum / sqrt((double)n)
                                            : sum;
  }
}

static int32_t take_rows(embedding *e, const sentence *s, size_t rows, bs_error *err) {
  bs_tensor t = {.struct_size = sizeof t};
  int32_t rc = bs_session_get(e->session, e->output, &t, err);
  double *vector = rc == BS_OK ? malloc(((size_t)e->out->width + 1) * sizeof *vector) : NULL;
  if (rc != BS_OK) return rc;
  if (vector == NULL) return no_memory(err);
  for (size_t r = 0; r < rows && rc == BS_OK; r++) {
    float *to = e->out->vectors + s[r].index * (size_t)e->out->width;
    double square = 0;
    if (e->pools) pool(e, &t, (int64_t)r, s[r].n, vector);
    for (int64_t d = 0; d < e->out->width; d++) {
      if (!e->pools) vector[d] = bs_load_f64(t.dtype, t.data, (int64_t)r * t.strides[0] + d * t.strides[1]);
      square += vector[d] * vector[d];
    }
    if (!isfinite(square))
      rc = bs_error_set(err, BS_NUMERIC, "BS-EMBED-NAN", "the vector of text %zu is not finite",
                        s[r].index + 1);
    const double length = square > 0 ? sqrt(square) : 1;
    for (int64_t d = 0; d < e->out->width; d++) to[d] = (float)(vector[d] / length);
  }
  free(vector);
  return rc;
}

/* Runs `rows` texts of one length. */
static int32_t run(bs_context *context, embedding *e, const sentence *s, size_t rows, bs_error *err) {
  const int64_t batch = e->batch > 0 ? e->batch : (int64_t)rows,
                tokens = e->tokens > 0 ? e->tokens : (int64_t)s[0].n;
  const bs_dim by_rows = {.struct_size = sizeof by_rows, .name = e->batch_name, .size = batch},
               by_tokens = {.struct_size = sizeof by_tokens, .name = e->tokens_name, .size = tokens};
  const bs_dim *dims[2];
  uint32_t n = 0;
  if (e->batch_name != NULL) dims[n++] = &by_rows;
  if (e->tokens_name != NULL) dims[n++] = &by_tokens;
  int32_t rc =
      e->session == NULL ? open_session(context, e, dims, n, err) : bs_session_bind(e->session, dims, n, err);
  for (uint32_t i = 0; i < e->n_inputs && rc == BS_OK; i++) rc = set_input(e, i, s, rows, batch, tokens, err);
  if (rc == BS_OK) rc = bs_session_run(e->session, err);
  if (rc == BS_OK) return take_rows(e, s, rows, err);
  if (e->out->most == 0 && e->tokens == 0)
    bs_error_hint(err,
                  "text %zu has %lld tokens; if the model takes fewer, write {\"max_seq_length\": N} into "
                  "%.100s/sentence_bert_config.json",
                  s[0].index + 1, (long long)s[0].n, e->kind.folder);
  return rc;
}

static int32_t run_all(bs_context *context, embedding *e, bs_error *err) {
  const size_t most = e->batch > 0 ? (size_t)e->batch : e->batch_name != NULL ? AT_ONCE : 1;
  int32_t rc = BS_OK;
  for (size_t i = 0, rows; i < e->n && rc == BS_OK; i += rows) {
    for (rows = 1; rows < most && i + rows < e->n;) {
      if (e->tokens == 0 && e->sentences[i + rows].n != e->sentences[i].n) break;
      rows++;
    }
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = run(context, e, &e->sentences[i], rows, err);
  }
  bs_session_stats stats = {.struct_size = sizeof stats};
  if (rc == BS_OK) rc = bs_session_stats_get(e->session, &stats, err);
  e->out->fallback_nodes = stats.fallback_nodes;
  return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

int32_t bs_model_embed(bs_context *context, const bs_model_request *request, const char *const *texts,
                       size_t n, bs_embedded *out, bs_error *err) {
  embedding e = {.request = request, .n = n, .out = out};
  bs_model_request of_file = *request;
  char *file = NULL;
  *out = (bs_embedded){.n = n};
  e.sentences = calloc(n + 1, sizeof *e.sentences);
  out->tokens = calloc(n + 1, sizeof *out->tokens);
  int32_t rc = e.sentences != NULL && out->tokens != NULL ? BS_OK : no_memory(err);
  if (rc == BS_OK) rc = find_file(request->path, &file, err);
  if (file != NULL) of_file.path = file;
  if (rc == BS_OK) rc = bs_embed_kind_read(of_file.path, &e.kind, err);
  if (rc == BS_OK) rc = bs_model_open(context, &of_file, &e.model, err);
  if (rc == BS_OK) rc = read_inputs(&e, err);
  if (rc == BS_OK) rc = read_texts(&e, texts, err);
  if (rc == BS_OK) rc = run_all(context, &e, err);
  bs_session_close(e.session);
  bs_model_close(&e.model);
  bs_tokenizer_close(e.tokenizer);
  for (size_t i = 0; i < n && e.sentences != NULL; i++) free(e.sentences[i].ids);
  for (size_t i = 0; i < MAX_INPUTS; i++) free(e.memory[i]);
  free(e.sentences);
  bs_embed_kind_free(&e.kind);
  free(file);
  return rc;
}

void bs_embedded_free(bs_embedded *embedded) {
  free(embedded->vectors);
  free(embedded->tokens);
  memset(embedded, 0, sizeof *embedded);
}

double bs_embedded_cosine(const bs_embedded *e, size_t a, size_t b) {
  const float *x = e->vectors + a * (size_t)e->width, *y = e->vectors + b * (size_t)e->width;
  double sum = 0;
  for (int64_t d = 0; d < e->width; d++) sum += (double)x[d] * (double)y[d];
  return sum;
}
