/* SPDX-License-Identifier: MIT
 * check.c - a model's outputs held against vectors that lie beside it (vectors.txt), and its nodes against
 * f64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/model/model.h"
#include "lab/model/text_file.h"

enum { MAX_PORTS = 64 };

/* A port of a case and its file. */
typedef struct port_file {
  const char *name, *file;
} port_file;

typedef struct checking {
  bs_context *context;
  const bs_model_request *request;
  const char *folder, *index; /* vectors.txt */
  uint32_t line;
  int nodes;
  bs_model model; /* opened with the first case */
  char *path;     /* of the model */
  /* Of all cases, until a case says otherwise. */
  double tolerance, cosine; /* cosine < 0: not asked */
  /* The case that is read. */
  const char *name;
  double case_tolerance, case_cosine;
  bs_dim dims[MAX_PORTS];
  port_file inputs[MAX_PORTS], outputs[MAX_PORTS];
  uint32_t n_dims, n_inputs, n_outputs, n_prompts;
  /* Results. */
  json_t *rows, *node_rows;
  uint64_t cases, failed;
} checking;

static int32_t line_error(checking *c, bs_error *err, const char *what, const char *word) {
  bs_error_set(err, BS_INPUT, "BS-MODEL-VECTORS", "%s '%.80s'", what, word);
  bs_error_where(err, "%.120s:%u", c->index, c->line);
  return BS_INPUT;
}

static char *path_in(const checking *c, const char *file, bs_error *err) {
  bs_text path = {0};
  if (file[0] == '/') {
    bs_text_printf(&path, "%s", file);
  } else {
    bs_text_printf(&path, "%s/%s", c->folder, file);
  }
  if (!path.failed) return path.data;
  bs_text_free(&path);
  bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a path");
  return NULL;
}

static int32_t open_npy(const checking *c, const char *file, bs_npy *out, bs_error *err) {
  char *path = path_in(c, file, err);
  if (path == NULL) return BS_NO_MEMORY;
  const int32_t rc = bs_npy_open(path, out, err);
  free(path);
  return rc;
}

/* ---- comparing ------------------------------------------------------------------------------- */

typedef struct judged {
  double deviation, limit; /* of the largest expected number */
  double cosine;           /* the largest cosine distance of a row; < 0: not asked */
  const char *reason;      /* NULL: as expected */
} judged;

/* The largest 1 - cos of the rows (the last dimension). Rows of zeros have the distance 0 from themselves. */
static double cosine_distance(uint32_t dtype, const void *got, const void *want, uint64_t count,
                              uint64_t row) {
  double worst = 0;
  for (uint64_t begin = 0; row > 0 && begin < count; begin += row) {
    double dot = 0, a2 = 0, b2 = 0;
    for (uint64_t i = begin; i < begin + row; i++) {
      const double a = bs_load_f64(dtype, got, (int64_t)i), b = bs_load_f64(dtype, want, (int64_t)i);
      dot += a * b;
      a2 += a * a;
      b2 += b * b;
    }
    const double distance = a2 == 0 && b2 == 0 ? 0 : a2 == 0 || b2 == 0 ? 1 : 1 - dot / sqrt(a2 * b2);
    if (!(distance <= worst)) worst = distance;
  }
  return worst;
}

static void compare(uint32_t dtype, const void *got, const void *want, uint64_t count, uint64_t row,
                    double tolerance, double cosine, judged *out) {
  const int is_float = bs_dtype_is_float(dtype);
  double largest = 0, deviation = 0;
  *out = (judged){.limit = is_float ? tolerance : 0, .cosine = -1};
  for (uint64_t i = 0; i < count; i++) {
    const double a = bs_load_f64(dtype, got, (int64_t)i), b = bs_load_f64(dtype, want, (int64_t)i);
    if (isnan(b) ? !isnan(a) : isinf(b) ? a != b : !isfinite(a)) {
      out->reason = "infinities or NaN are not where they are expected";
      out->deviation = INFINITY;
      return;
    }
    if (!isfinite(b)) continue;
    if (fabs(b) > largest) largest = fabs(b);
    if (fabs(a - b) > deviation) deviation = fabs(a - b);
  }
  out->deviation = deviation == 0 ? 0 : deviation / (largest > 0 ? largest : 1);
  if (!is_float && memcmp(got, want, count * BS_DTYPE_BYTES(dtype)) != 0) {
    out->reason = "numbers differ";
  } else if (out->deviation > out->limit) {
    out->reason = "the deviation is over its limit";
  }
  if (!is_float || cosine < 0) return;
  out->cosine = cosine_distance(dtype, got, want, count, row);
  if (!(out->cosine <= cosine) && out->reason == NULL) out->reason = "the cosine distance is over its limit";
}

static json_t *number_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static void add_row(checking *c, const char *output, const judged *j) {
  json_t *row = json_pack("{s:o, s:o, s:o, s:o, s:b, s:s}", "case", bs_model_json_text(c->name), "output",
                          bs_model_json_text(output), "deviation", number_or_null(j->deviation), "limit",
                          number_or_null(j->limit), "ok", j->reason == NULL, "reason",
                          j->reason != NULL ? j->reason : "");
  json_object_set_new(row, "cosine", j->cosine >= 0 ? json_real(j->cosine) : json_null());
  json_object_set_new(row, "cosine_limit", j->cosine >= 0 ? json_real(c->case_cosine) : json_null());
  json_array_append_new(c->rows, row);
  c->failed += j->reason != NULL;
}

static int32_t check_output(checking *c, const port_file *output, bs_error *err) {
  bs_npy want;
  bs_tensor got = {.struct_size = sizeof got};
  judged j = {.cosine = -1, .limit = c->case_tolerance, .deviation = INFINITY};
  uint32_t port, dtype = 0;
  uint64_t count = 0;
  int32_t rc = bs_session_find(c->model.session, output->name, &port, err);
  if (rc == BS_OK) rc = bs_session_get(c->model.session, port, &got, err);
  if (rc == BS_OK) rc = open_npy(c, output->file, &want, err);
  if (rc != BS_OK) return rc;
  int same = got.rank == want.rank;
  for (uint32_t d = 0; same && d < got.rank; d++) same = got.dims[d] == want.dims[d];
  void *dense = bs_model_dense(&got, &dtype, &count);
  if (dense == NULL) {
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for output '%.100s'", output->name);
  } else if (!same || dtype != want.dtype) {
    j.reason = "another dtype or shape";
  } else {
    compare(dtype, dense, want.data, count, got.rank > 0 ? (uint64_t)got.dims[got.rank - 1] : 1,
            c->case_tolerance, c->case_cosine, &j);
  }
  if (rc == BS_OK) add_row(c, output->name, &j);
  free(dense);
  bs_npy_close(&want);
  return rc;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

typedef struct node_rows {
  json_t *rows;
  const char *name; /* of the case */
  const bs_model_request *request;
  uint64_t n, failed, of; /* nodes; wrong ones; of the plan */
} node_rows;

static void take_node(void *user, const bs_node_check *node) {
  node_rows *r = user;
  r->n++;
  r->failed += !node->ok;
  if (r->request->progress != NULL) r->request->progress(r->request->progress_user, "nodes", r->n, r->of);
  json_t *row =
      json_pack("{s:o, s:i, s:s, s:s, s:o, s:o, s:o, s:b, s:o}", "case", bs_model_json_text(r->name), "node",
                (int)node->index, "op", node->op, "serves", node->serves, "origin",
                bs_model_json_text(node->origin), "deviation", number_or_null(node->deviation), "limit",
                number_or_null(node->bound), "ok", (int)node->ok, "reason", bs_model_json_text(node->reason));
  json_array_append_new(r->rows, row);
}

/* Node by node; that numbers are wrong is in the rows. */
static int32_t check_nodes(bs_session *session, node_rows *rows, bs_error *err) {
  rows->of = bs_session_node_count(session);
  const int32_t rc = bs_session_check(session, take_node, rows, err);
  if (rc != BS_NUMERIC) return rc;
  if (rows->failed == 0) { /* the outputs are not those of a run */
    rows->failed++;
    json_array_append_new(
        rows->rows,
        json_pack("{s:o, s:s, s:b, s:o}", "case", bs_model_json_text(rows->name), "origin", "(outputs)", "ok",
                  0, "reason", bs_model_json_text(err != NULL ? err->message : "")));
  }
  bs_error_clear(err);
  return BS_OK;
}

int32_t bs_model_check_nodes(const bs_model_request *request, bs_model *model, json_t **out, bs_error *err) {
  node_rows rows = {.rows = json_array(), .name = "", .request = request};
  *out = NULL;
  int32_t rc = bs_model_set_inputs(model, err);
  if (rc == BS_OK) rc = check_nodes(model->session, &rows, err);
  if (rc == BS_OK)
    *out = json_pack("{s:o, s:s, s:I, s:I, s:[], s:O}", "model", bs_model_json_text(request->path), "backend",
                     request->backend != NULL ? request->backend : "cpu", "cases", (json_int_t)rows.n,
                     "failed", (json_int_t)rows.failed, "rows", "nodes", rows.rows);
  json_decref(rows.rows);
  return rc;
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* Opens the session with the first case, and binds it to the sizes of each. */
static int32_t start_session(checking *c, const bs_dim *dims, uint32_t n_dims, bs_error *err) {
  const bs_dim *pointers[MAX_PORTS];
  for (uint32_t i = 0; i < n_dims; i++) pointers[i] = &dims[i];
  if (c->model.session != NULL) return bs_session_bind(c->model.session, pointers, n_dims, err);
  const bs_session_options options = {.struct_size = sizeof options,
                                      .threads = c->request->threads,
                                      .backend = c->request->backend,
                                      .dims = pointers,
                                      .n_dims = n_dims,
                                      .passes_off = c->model.passes_off,
                                      .n_passes_off = (uint32_t)c->model.n_passes_off,
                                      .progress = c->request->progress,
                                      .progress_user = c->request->progress_user};
  return bs_session_open(c->context, c->model.graph, &options, &c->model.session, err);
}

static int32_t set_input(checking *c, const port_file *input, bs_npy *file, bs_error *err) {
  uint32_t port;
  int32_t rc = open_npy(c, input->file, file, err);
  if (rc == BS_OK) rc = bs_session_find(c->model.session, input->name, &port, err);
  if (rc != BS_OK) return rc;
  bs_tensor t = {.struct_size = sizeof t, .dtype = file->dtype, .rank = file->rank};
  int64_t stride = 1;
  for (uint32_t d = file->rank; d-- > 0; stride *= file->dims[d]) {
    t.dims[d] = file->dims[d];
    t.strides[d] = stride;
  }
  t.data = (void *)(uintptr_t)file->data;
  t.bytes = file->count * BS_DTYPE_BYTES(file->dtype);
  return bs_session_set(c->model.session, port, &t, err);
}

/* The case that has been read, if there is one. */
static int32_t run_case(checking *c, bs_error *err) {
  if (c->name == NULL) return BS_OK;
  if (c->n_prompts > 0 && c->n_inputs == 0) { /* its prompts have run */
    c->cases++;
    c->name = NULL;
    return BS_OK;
  }
  bs_npy files[MAX_PORTS] = {0};
  int32_t rc = start_session(c, c->dims, c->n_dims, err);
  for (uint32_t i = 0; i < c->n_inputs && rc == BS_OK; i++) rc = set_input(c, &c->inputs[i], &files[i], err);
  if (rc == BS_OK) rc = bs_session_run(c->model.session, err);
  for (uint32_t i = 0; i < c->n_outputs && rc == BS_OK; i++) rc = check_output(c, &c->outputs[i], err);
  if (rc == BS_OK && c->nodes) {
    node_rows rows = {.rows = c->node_rows, .name = c->name, .request = c->request};
    rc = check_nodes(c->model.session, &rows, err);
    c->failed += rows.failed;
  }
  for (uint32_t i = 0; i < c->n_inputs; i++) bs_npy_close(&files[i]);
  c->cases += rc == BS_OK;
  c->name = NULL;
  return rc;
}

/* Token ids of a file: i64, of any shape. */
static int32_t open_ids(checking *c, const char *file, bs_npy *out, bs_error *err) {
  int32_t rc = open_npy(c, file, out, err);
  if (rc != BS_OK || (out->dtype == BS_I64 && out->count > 0)) return rc;
  bs_npy_close(out);
  return line_error(c, err, "no i64 token ids in", file);
}

/* "generate PROMPT TOKENS": greedy tokens from a prompt are those of the file. "logits PROMPT FILE": the last
 * rows of the prompt's logits are. */
static int32_t run_prompt(checking *c, int generate, const char *prompt, const char *file, bs_error *err) {
  const char *symbol;
  bs_npy ids, want = {0};
  int64_t *tokens = NULL;
  size_t n = 0;
  bs_model_times times;
  judged j = {.cosine = -1};
  int32_t rc = bs_model_token_dim(c->model.graph, &symbol, err);
  if (rc == BS_OK) rc = open_ids(c, prompt, &ids, err);
  if (rc != BS_OK) return rc;
  const bs_dim dim = {.struct_size = sizeof dim, .name = symbol, .size = (int64_t)ids.count};
  rc = generate ? open_ids(c, file, &want, err) : open_npy(c, file, &want, err);
  if (rc == BS_OK) rc = start_session(c, &dim, 1, err);
  if (rc == BS_OK) rc = bs_session_cache(c->model.session, 0, err);
  if (rc == BS_OK && generate) {
    tokens = calloc(want.count + 1, sizeof *tokens);
    rc = tokens == NULL ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for tokens")
                        : bs_model_generate(c->model.session, symbol, ids.data, ids.count, want.count, -1,
                                            tokens, &n, &times, err);
    if (rc == BS_OK && memcmp(tokens, want.data, want.count * sizeof *tokens) != 0) j.reason = "other tokens";
  } else if (rc == BS_OK) {
    bs_tensor got;
    uint32_t dtype = 0;
    uint64_t count = 0;
    rc = bs_model_feed(c->model.session, symbol, ids.data, ids.count, &got, err);
    unsigned char *dense = rc == BS_OK ? bs_model_dense(&got, &dtype, &count) : NULL;
    if (rc == BS_OK && dense == NULL)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for logits");
    j = (judged){
        .cosine = -1, .deviation = INFINITY, .limit = c->case_tolerance, .reason = "another dtype or shape"};
    if (rc == BS_OK && dtype == want.dtype && want.rank > 0 &&
        want.dims[want.rank - 1] == got.dims[got.rank - 1] && want.count <= count)
      compare(dtype, dense + (count - want.count) * BS_DTYPE_BYTES(dtype), want.data, want.count,
              (uint64_t)want.dims[want.rank - 1], c->case_tolerance, -1, &j);
    free(dense);
  }
  if (rc == BS_OK) add_row(c, file, &j);
  c->n_prompts++;
  free(tokens);
  bs_npy_close(&ids);
  bs_npy_close(&want);
  return rc;
}

/* ---- vectors.txt ----------------------------------------------------------------------------- */

/* Cuts the next word off *rest; "" at the end. */
static char *next_word(char **rest) {
  char *word = *rest + strspn(*rest, " \t");
  const size_t n = strcspn(word, " \t");
  *rest = word + n;
  if (**rest != '\0') *(*rest)++ = '\0';
  return word;
}

static char *rest_of(char *rest) {
  rest += strspn(rest, " \t");
  for (size_t n = strlen(rest); n > 0 && strchr(" \t", rest[n - 1]) != NULL; n--) rest[n - 1] = '\0';
  return rest;
}

static int32_t open_graph(checking *c, const char *file, bs_error *err) {
  const bs_graph_options options = {.struct_size = sizeof options, .cache_tokens = c->request->cache_tokens};
  if (c->path != NULL) return line_error(c, err, "a second model:", file);
  c->path = path_in(c, file, err);
  if (c->path == NULL) return BS_NO_MEMORY;
  return bs_graph_open(c->context, c->path, &options, &c->model.graph, err);
}

static int32_t add_port(checking *c, port_file *ports, uint32_t *n, char *rest, bs_error *err) {
  const char *file = next_word(&rest), *name = rest_of(rest);
  if (name[0] == '\0') return line_error(c, err, "no name behind the file", file);
  if (*n == MAX_PORTS) return line_error(c, err, "more than 64 of a kind in the case", c->name);
  ports[(*n)++] = (port_file){name, file};
  return BS_OK;
}

static int32_t add_dim(checking *c, char *rest, bs_error *err) {
  const char *size = next_word(&rest), *name = rest_of(rest);
  int64_t value;
  if (!bs_parse_i64(size, 0, &value) || value < 0 || name[0] == '\0')
    return line_error(c, err, "dim wants a size and a name:", size);
  if (c->n_dims == MAX_PORTS) return line_error(c, err, "more than 64 sizes in the case", c->name);
  c->dims[c->n_dims++] = (bs_dim){.struct_size = sizeof(bs_dim), .name = name, .size = value};
  return BS_OK;
}

static int32_t begin_case(checking *c, char *name, bs_error *err) {
  if (name[0] == '\0') return line_error(c, err, "a case without a name", "");
  c->name = name;
  c->case_tolerance = c->tolerance;
  c->case_cosine = c->cosine;
  c->n_dims = c->n_inputs = c->n_outputs = c->n_prompts = 0;
  return BS_OK;
}

static int32_t read_line(checking *c, char *line, bs_error *err) {
  char *rest = line;
  const char *word = next_word(&rest);
  double *limit = strcmp(word, "tolerance") == 0 ? (c->name != NULL ? &c->case_tolerance : &c->tolerance)
                  : strcmp(word, "cosine") == 0  ? (c->name != NULL ? &c->case_cosine : &c->cosine)
                                                 : NULL;
  const int generate = strcmp(word, "generate") == 0;
  if (word[0] == '\0' || word[0] == '#') return BS_OK;
  if (strcmp(word, "model") == 0) return open_graph(c, rest_of(rest), err);
  if (limit != NULL) {
    if (bs_parse_f64(rest_of(rest), limit) && *limit >= 0) return BS_OK;
    return line_error(c, err, "not a limit:", rest_of(rest));
  }
  if (c->model.graph == NULL) return line_error(c, err, "no model before", word);
  if (strcmp(word, "case") == 0) {
    const int32_t rc = run_case(c, err);
    return rc == BS_OK ? begin_case(c, rest_of(rest), err) : rc;
  }
  if (c->name == NULL) return line_error(c, err, "no case before", word);
  if (generate || strcmp(word, "logits") == 0) {
    const char *prompt = next_word(&rest), *file = rest_of(rest);
    return file[0] == '\0' ? line_error(c, err, "two files are wanted behind", word)
                           : run_prompt(c, generate, prompt, file, err);
  }
  if (strcmp(word, "dim") == 0) return add_dim(c, rest, err);
  if (strcmp(word, "input") == 0) return add_port(c, c->inputs, &c->n_inputs, rest, err);
  if (strcmp(word, "output") == 0) return add_port(c, c->outputs, &c->n_outputs, rest, err);
  return line_error(c, err, "unknown word", word);
}

static int32_t read_index(checking *c, char *text, bs_error *err) {
  char *rest = text, *line = bs_text_file_line(&rest);
  c->line = 1;
  if (line == NULL || strcmp(line, "blockshock-vectors 1") != 0) {
    line_error(c, err, "the first line is not blockshock-vectors 1 but", line != NULL ? line : "");
    bs_error_hint(err, "tools/bs-export writes such a folder");
    return BS_INPUT;
  }
  int32_t rc = BS_OK;
  while (rc == BS_OK && (line = bs_text_file_line(&rest)) != NULL) {
    c->line++;
    rc = read_line(c, line, err);
  }
  if (rc == BS_OK) rc = run_case(c, err);
  if (rc == BS_OK && c->cases == 0) rc = line_error(c, err, "no case in", c->index);
  return rc;
}

int32_t bs_model_check_folder(bs_context *context, const bs_model_request *request, int nodes, json_t **out,
                              bs_error *err) {
  checking c = {
      .context = context, .request = request, .folder = request->path, .nodes = nodes, .cosine = -1};
  char *text = NULL;
  *out = NULL;
  c.tolerance = 1e-4;
  char *index = path_in(&c, "vectors.txt", err);
  if (index == NULL) return BS_NO_MEMORY;
  c.index = index;
  c.rows = json_array();
  c.node_rows = json_array();
  int32_t rc = bs_text_file_read(index, "BS-MODEL-VECTORS", &text, err);
  if (rc == BS_OK) rc = bs_model_read_passes(&c.model, &request->passes, err);
  if (rc == BS_OK) rc = read_index(&c, text, err);
  if (rc == BS_OK)
    *out = json_pack("{s:o, s:o, s:s, s:I, s:I, s:O, s:O}", "folder", bs_model_json_text(request->path),
                     "model", bs_model_json_text(c.path), "backend",
                     request->backend != NULL ? request->backend : "cpu", "cases", (json_int_t)c.cases,
                     "failed", (json_int_t)c.failed, "rows", c.rows, "nodes", c.node_rows);
  json_decref(c.rows);
  json_decref(c.node_rows);
  bs_model_close(&c.model);
  free(c.path);
  free(index);
  free(text);
  return rc;
}
