/* SPDX-License-Identifier: MIT
 * check.c - compares a model's outputs with vectors in its folder (vectors.txt), and its nodes with f64. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "graph/run/session.h"
#include "lab/model/checking.h"
#include "lab/model/inputs.h"
#include "lab/model/text_file.h"
#include "lab/model/verify.h"

char *bs_check_path(const bs_checking *c, const char *file, bs_error *err) {
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

static int32_t open_npy(const bs_checking *c, const char *file, bs_npy *out, bs_error *err) {
  char *path = bs_check_path(c, file, err);
  if (path == NULL) return BS_NO_MEMORY;
  const int32_t rc = bs_npy_open(path, out, err);
  free(path);
  return rc;
}

static json_t *number_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static void add_row(bs_checking *c, const char *output, const bs_model_judged *j) {
  json_t *row = json_pack("{s:o, s:o, s:o, s:o, s:b, s:s}", "case", bs_model_json_text(c->name), "output",
                          bs_model_json_text(output), "deviation", number_or_null(j->deviation), "limit",
                          number_or_null(j->limit), "ok", j->reason == NULL, "reason",
                          j->reason != NULL ? j->reason : "");
  json_object_set_new(row, "cosine", j->cosine >= 0 ? json_real(j->cosine) : json_null());
  json_object_set_new(row, "cosine_limit", j->cosine >= 0 ? json_real(c->case_limits.cosine) : json_null());
  json_array_append_new(c->rows, row);
  c->failed += j->reason != NULL;
}

/* The port of that name. BS_INPUT at the line of vectors.txt, with the nearest name. */
static int32_t find_port(const bs_checking *c, uint32_t inputs, const bs_port_file *wanted,
                         uint32_t *out_port, bs_error *err) {
  const char *names[BS_CHECK_PORTS];
  const uint32_t count = bs_graph_port_count(c->model.graph, inputs);
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++) {
    bs_port port = {.struct_size = sizeof port};
    const int32_t rc = bs_graph_port(c->model.graph, inputs, i, &port, err);
    if (rc != BS_OK) return rc;
    if (strcmp(port.name, wanted->name) == 0) {
      *out_port = inputs ? i : bs_graph_port_count(c->model.graph, 1) + i;
      return BS_OK;
    }
    if (n < BS_CHECK_PORTS) names[n++] = port.name;
  }
  const char *nearest = bs_nearest(wanted->name, names, n);
  bs_error_set(err, BS_INPUT, "BS-MODEL-VECTORS", "the model has no %s '%.80s'", inputs ? "input" : "output",
               wanted->name);
  bs_error_where(err, "%.120s:%u", c->index, wanted->line);
  bs_error_hint(err, nearest != NULL ? "the nearest one is %.80s" : "`bsrun model info` lists them%.0s",
                nearest != NULL ? nearest : "");
  return BS_INPUT;
}

static int32_t check_output(bs_checking *c, const bs_port_file *output, bs_error *err) {
  bs_npy want;
  bs_tensor got = {.struct_size = sizeof got};
  bs_model_judged j = {.cosine = -1, .limit = c->case_limits.deviation, .deviation = INFINITY};
  uint32_t port, dtype = 0;
  uint64_t count = 0;
  int32_t rc = find_port(c, 0, output, &port, err);
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
    bs_model_compare(dtype, dense, want.data, count, got.rank > 0 ? (uint64_t)got.dims[got.rank - 1] : 1,
                     &c->case_limits, &j);
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
  bs_model_verified verified = {0};
  const int made = bs_model_makes_inputs(model);
  *out = NULL;
  gsession_compare_ranks(model->session, 1);
  int32_t rc = bs_model_set_inputs(request, model, err);
  if (rc == BS_OK) rc = bs_model_verified_init(&verified, err);
  if (rc == BS_OK)
    rc = bs_model_verify(request, model->session, "", made ? BS_VERIFY_MADE : BS_VERIFY_ALL, &verified, err);
  if (rc == BS_OK) rc = check_nodes(model->session, &rows, err);
  rc = bs_model_blame_input(request, model, rc, err);
  if (rc == BS_OK)
    *out = json_pack("{s:o, s:s, s:o, s:b, s:I, s:I, s:[], s:O}", "model", bs_model_json_text(request->path),
                     "backend", request->backend != NULL ? request->backend : "cpu", "dims",
                     bs_model_dims(model), "made_inputs", made, "cases", (json_int_t)rows.n, "failed",
                     (json_int_t)(rows.failed + verified.failed), "rows", "nodes", rows.rows);
  if (*out != NULL) {
    json_object_set_new(*out, "stats", bs_model_stats(model->session));
    bs_model_verified_put(&verified, *out);
  }
  json_decref(rows.rows);
  bs_model_verified_free(&verified);
  return rc;
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* Turns an error on a size or a port into BS_INPUT at the line of vectors.txt. */
static int32_t blame_line(const bs_checking *c, uint32_t line, int32_t rc, bs_error *err) {
  if (rc == BS_OK || err == NULL) return rc;
  if (strcmp(err->id, "BS-GRAPH-DIM") != 0 && strcmp(err->id, "BS-GRAPH-PORT") != 0) return rc;
  bs_error_where(err, "%.120s:%u", c->index, line);
  return err->code = BS_INPUT;
}

/* Opens the session with the first case, and binds it to the sizes of each. */
static int32_t start_session(bs_checking *c, const bs_dim *dims, uint32_t n_dims, bs_error *err) {
  const bs_dim *pointers[BS_CHECK_PORTS];
  for (uint32_t i = 0; i < n_dims; i++) pointers[i] = &dims[i];
  if (c->model.session != NULL) return bs_session_bind(c->model.session, pointers, n_dims, err);
  const int32_t rc = bs_model_world(c->context, c->request, &c->model, err);
  if (rc != BS_OK) return rc;
  bs_session_options options = bs_model_session_options(c->request, &c->model);
  options.dims = pointers;
  options.n_dims = n_dims;
  const int32_t opened = bs_session_open(c->context, c->model.graph, &options, &c->model.session, err);
  if (opened != BS_OK) return opened;
  gsession_compare_ranks(c->model.session, 1);
  return bs_model_follow(&c->model, c->model.session, err);
}

/* Sizes that the case does not name are those of its inputs' files, as in `model run`. */
static int32_t infer_dims(bs_checking *c, const bs_port_file *input, const bs_npy *file, bs_error *err) {
  uint32_t number = 0;
  bs_port port = {.struct_size = sizeof port};
  int32_t rc = find_port(c, 1, input, &number, err);
  if (rc == BS_OK) rc = bs_graph_port(c->model.graph, 1, number, &port, err);
  for (uint32_t d = 0; rc == BS_OK && port.rank == file->rank && d < port.rank; d++) {
    uint32_t k = 0;
    while (port.symbols[d] != NULL && k < c->n_dims && strcmp(c->dims[k].name, port.symbols[d]) != 0) k++;
    if (port.symbols[d] == NULL || k < c->n_dims || k == BS_CHECK_PORTS) continue;
    c->dims[c->n_dims++] =
        (bs_dim){.struct_size = sizeof(bs_dim), .name = port.symbols[d], .size = file->dims[d]};
  }
  return rc;
}

static int32_t open_inputs(bs_checking *c, bs_npy *files, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < c->n_inputs && rc == BS_OK; i++) {
    rc = open_npy(c, c->inputs[i].file, &files[i], err);
    if (rc == BS_OK) rc = infer_dims(c, &c->inputs[i], &files[i], err);
  }
  return rc;
}

static int32_t set_input(bs_checking *c, const bs_port_file *input, const bs_npy *file, bs_error *err) {
  uint32_t number = 0;
  bs_tensor_desc desc = {.struct_size = sizeof desc};
  int32_t rc = find_port(c, 1, input, &number, err);
  if (rc == BS_OK) rc = bs_session_port(c->model.session, number, NULL, &desc, err);
  if (rc != BS_OK) return rc;
  bs_port port = {.struct_size = sizeof port, .dtype = desc.dtype, .name = input->name, .rank = desc.rank};
  memcpy(port.dims, desc.dims, sizeof port.dims);
  if (!bs_model_fits(&port, file)) {
    rc = bs_model_shape_error(err, &port, file, input->file);
    bs_error_where(err, "%.120s:%u", c->index, input->line);
    return rc;
  }
  const bs_tensor tensor = bs_model_npy_tensor(file);
  return blame_line(c, input->line, bs_session_set(c->model.session, number, &tensor, err), err);
}

static int32_t run_nodes(bs_checking *c, bs_error *err) {
  node_rows rows = {.rows = c->node_rows, .name = c->name, .request = c->request};
  const int32_t rc = check_nodes(c->model.session, &rows, err);
  c->failed += rows.failed;
  return rc;
}

/* Checks that a case has prompts, or inputs and outputs. A case that compares nothing would always pass. */
static int32_t complete(bs_checking *c, bs_error *err) {
  const uint32_t line = c->line;
  int32_t rc = BS_OK;
  c->line = c->case_line;
  if (c->n_prompts > 0 && c->n_dims + c->n_inputs + c->n_outputs > 0)
    rc = bs_check_line_error(c, err, "prompts together with sizes, inputs or outputs in case", c->name);
  if (c->n_prompts == 0 && c->n_outputs == 0)
    rc = bs_check_line_error(c, err, "neither an output nor a prompt in case", c->name);
  c->line = line;
  return rc;
}

/* Checks that a case names all inputs: the session keeps the ports of the case before, whose files are
 * closed. */
static int32_t all_inputs(const bs_checking *c, bs_error *err) {
  for (uint32_t i = 0; i < bs_graph_port_count(c->model.graph, 1); i++) {
    bs_port port = {.struct_size = sizeof port};
    const int32_t rc = bs_graph_port(c->model.graph, 1, i, &port, err);
    uint32_t k = 0;
    if (rc != BS_OK) return rc;
    while (k < c->n_inputs && strcmp(c->inputs[k].name, port.name) != 0) k++;
    if (k < c->n_inputs) continue;
    bs_error_set(err, BS_INPUT, "BS-MODEL-VECTORS", "input '%.64s' is not set", port.name);
    bs_error_where(err, "%.120s:%u", c->index, c->case_line);
    return BS_INPUT;
  }
  return BS_OK;
}

/* Compares the outputs with those of the graph as written; made inputs with the first case. */
static int32_t verify_case(bs_checking *c, bs_error *err) {
  const int first = json_array_size(c->verified.rows) == 0;
  return bs_model_verify(c->request, c->model.session, c->name, first ? BS_VERIFY_ALL : BS_VERIFY_GIVEN,
                         &c->verified, err);
}

int32_t bs_check_case(bs_checking *c, bs_error *err) {
  if (c->name == NULL) return BS_OK;
  bs_npy files[BS_CHECK_PORTS] = {0};
  int32_t rc = complete(c, err);
  if (rc == BS_OK && c->n_prompts == 0) {
    rc = open_inputs(c, files, err);
    if (rc == BS_OK) rc = blame_line(c, c->case_line, start_session(c, c->dims, c->n_dims, err), err);
    for (uint32_t i = 0; i < c->n_inputs && rc == BS_OK; i++)
      rc = set_input(c, &c->inputs[i], &files[i], err);
    if (rc == BS_OK) rc = all_inputs(c, err);
    if (rc == BS_OK) rc = blame_line(c, c->case_line, bs_session_run(c->model.session, err), err);
    for (uint32_t i = 0; i < c->n_outputs && rc == BS_OK; i++) rc = check_output(c, &c->outputs[i], err);
    if (rc == BS_OK) rc = verify_case(c, err);
    if (rc == BS_OK && c->nodes) rc = run_nodes(c, err);
  }
  for (uint32_t i = 0; i < c->n_inputs; i++) bs_npy_close(&files[i]);
  c->cases += rc == BS_OK;
  c->name = NULL;
  return rc;
}

/* ---- prompts --------------------------------------------------------------------------------- */

int bs_model_are_ids(const bs_npy *file) {
  int are = file->dtype == BS_I64 && file->count > 0 && file->count <= INT32_MAX;
  for (uint64_t i = 0; are && i < file->count; i++) are = ((const int64_t *)file->data)[i] >= 0;
  return are;
}

/* Token ids of a file: i64, of any shape. */
static int32_t open_ids(bs_checking *c, const char *file, bs_npy *out, bs_error *err) {
  int32_t rc = open_npy(c, file, out, err);
  if (rc != BS_OK || bs_model_are_ids(out)) return rc;
  bs_npy_close(out);
  return bs_check_line_error(c, err, "no i64 token ids in", file);
}

/* Runs the prompt alone, from an empty cache, and compares it with the graph as written. */
static int32_t verify_prompt(bs_checking *c, const bs_npy *ids, bs_error *err) {
  bs_tensor t = bs_model_npy_tensor(ids);
  t.rank = 2;
  t.dims[0] = 1;
  t.dims[1] = t.strides[0] = (int64_t)ids->count;
  t.strides[1] = 1;
  int32_t rc = bs_session_set(c->model.session, 0, &t, err);
  return rc == BS_OK
             ? bs_model_verify(c->request, c->model.session, c->name, BS_VERIFY_GIVEN, &c->verified, err)
             : rc;
}

/* Greedy tokens from a prompt are those expected. */
static int32_t compare_tokens(bs_checking *c, const char *symbol, const bs_npy *ids, const bs_npy *want,
                              bs_model_judged *out, bs_error *err) {
  size_t n = 0;
  bs_model_times times;
  int64_t *tokens = calloc(want->count + 1, sizeof *tokens);
  *out = (bs_model_judged){.cosine = -1};
  if (tokens == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for tokens");
  int32_t rc = bs_model_generate(c->model.session, symbol, ids->data, ids->count, want->count, -1, tokens, &n,
                                 &times, err);
  if (rc == BS_OK && memcmp(tokens, want->data, want->count * sizeof *tokens) != 0)
    out->reason = "other tokens";
  /* Checks the nodes of the last run: one token after the others, or the prompt if one token is expected. */
  if (rc == BS_OK && c->nodes) {
    const int64_t ran = want->count > 1 ? 1 : (int64_t)ids->count;
    rc = bs_session_cache(c->model.session, bs_session_cache_length(c->model.session) - ran, err);
    if (rc == BS_OK) rc = run_nodes(c, err);
  }
  free(tokens);
  return rc;
}

/* The last rows of a prompt's logits are those expected. */
static int32_t compare_logits(bs_checking *c, const char *symbol, const bs_npy *ids, const bs_npy *want,
                              bs_model_judged *out, bs_error *err) {
  bs_tensor got;
  uint32_t dtype = 0;
  uint64_t count = 0;
  bs_model_limits limits = {c->case_limits.deviation, -1};
  int32_t rc = bs_model_feed(c->model.session, symbol, ids->data, ids->count, &got, err);
  unsigned char *dense = rc == BS_OK ? bs_model_dense(&got, &dtype, &count) : NULL;
  if (rc == BS_OK && dense == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for logits");
  *out = (bs_model_judged){
      .cosine = -1, .deviation = INFINITY, .limit = limits.deviation, .reason = "another dtype or shape"};
  if (rc == BS_OK && dtype == want->dtype && want->rank > 0 &&
      want->dims[want->rank - 1] == got.dims[got.rank - 1] && want->count <= count)
    bs_model_compare(dtype, dense + (count - want->count) * BS_DTYPE_BYTES(dtype), want->data, want->count,
                     (uint64_t)want->dims[want->rank - 1], &limits, out);
  free(dense);
  if (rc == BS_OK && c->nodes) rc = bs_session_cache(c->model.session, 0, err);
  return rc == BS_OK && c->nodes ? run_nodes(c, err) : rc;
}

int32_t bs_check_prompt(bs_checking *c, int generate, const char *prompt, const char *file, bs_error *err) {
  const char *symbol;
  bs_npy ids, want = {0};
  bs_model_judged j;
  int32_t rc = bs_model_token_dim(c->model.graph, &symbol, err);
  if (rc == BS_OK) rc = open_ids(c, prompt, &ids, err);
  if (rc != BS_OK) return rc;
  const bs_dim dim = {.struct_size = sizeof dim, .name = symbol, .size = (int64_t)ids.count};
  rc = generate ? open_ids(c, file, &want, err) : open_npy(c, file, &want, err);
  if (rc == BS_OK && want.count == 0) rc = bs_check_line_error(c, err, "no logits in", file);
  if (rc == BS_OK) rc = start_session(c, &dim, 1, err);
  if (rc == BS_OK) rc = bs_session_cache(c->model.session, 0, err);
  if (rc == BS_OK) rc = verify_prompt(c, &ids, err);
  if (rc == BS_OK)
    rc = generate ? compare_tokens(c, symbol, &ids, &want, &j, err)
                  : compare_logits(c, symbol, &ids, &want, &j, err);
  if (rc == BS_OK) add_row(c, file, &j);
  c->n_prompts++;
  bs_npy_close(&ids);
  bs_npy_close(&want);
  return rc;
}

/* ---- folders --------------------------------------------------------------------------------- */

int32_t bs_model_check_folder(bs_context *context, const bs_model_request *request, int nodes, json_t **out,
                              bs_error *err) {
  bs_checking c = {
      .context = context, .request = request, .folder = request->path, .nodes = nodes, .limits = {1e-4, -1}};
  char *text = NULL;
  *out = NULL;
  char *index = bs_check_path(&c, "vectors.txt", err);
  if (index == NULL) return BS_NO_MEMORY;
  c.index = index;
  c.rows = json_array();
  c.node_rows = json_array();
  int32_t rc = bs_text_file_read(index, "BS-MODEL-VECTORS", &text, err);
  if (rc == BS_OK) rc = bs_model_verified_init(&c.verified, err);
  if (rc == BS_OK) rc = bs_model_read_passes(&c.model, &request->passes, err);
  if (rc == BS_OK) rc = bs_check_read(&c, text, err);
  if (rc == BS_OK)
    *out =
        json_pack("{s:o, s:o, s:s, s:I, s:I, s:O, s:O}", "folder", bs_model_json_text(request->path), "model",
                  bs_model_json_text(c.path), "backend", request->backend != NULL ? request->backend : "cpu",
                  "cases", (json_int_t)c.cases, "failed", (json_int_t)(c.failed + c.verified.failed), "rows",
                  c.rows, "nodes", c.node_rows);
  if (*out != NULL && c.model.session != NULL)
    json_object_set_new(*out, "stats", bs_model_stats(c.model.session));
  if (*out != NULL) bs_model_verified_put(&c.verified, *out);
  bs_model_verified_free(&c.verified);
  json_decref(c.rows);
  json_decref(c.node_rows);
  bs_model_close(&c.model);
  free(c.path);
  free(index);
  free(text);
  return rc;
}
