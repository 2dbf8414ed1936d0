/* SPDX-License-Identifier: MIT
 * open.c - a model with the command line's settings: constants, inputs, sizes of dimensions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "graph/api.h"
#include "lab/model/builtin.h"
#include "lab/model/inputs.h"
#include "lab/model/model.h"
#include "lab/model/tuned.h"
#include "lab/model/vectors.h"
#include "lab/stop.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the model's words");
}

/* ---- names that the model has ---------------------------------------------------------------- */

/* The names of its inputs, or the symbols of their dimensions, each once. The caller frees the array. */
static int32_t known_names(const bs_graph *g, int symbols, const char ***out_names, size_t *out_n,
                           bs_error *err) {
  const uint32_t n_ports = bs_graph_port_count(g, 1);
  size_t n = 0;
  const char **names = calloc((size_t)n_ports * BS_MAX_DIMS + 1, sizeof *names);
  int32_t rc = names == NULL ? no_memory(err) : BS_OK;
  for (uint32_t i = 0; i < n_ports && rc == BS_OK; i++) {
    bs_port port = {.struct_size = sizeof port};
    rc = bs_graph_port(g, 1, i, &port, err);
    if (rc == BS_OK && !symbols) names[n++] = port.name;
    for (uint32_t d = 0; rc == BS_OK && symbols && port.rank <= BS_MAX_DIMS && d < port.rank; d++) {
      size_t k = 0;
      if (port.symbols[d] == NULL) continue;
      while (k < n && strcmp(names[k], port.symbols[d]) != 0) k++;
      if (k == n) names[n++] = port.symbols[d];
    }
  }
  *out_names = names;
  *out_n = n;
  return rc;
}

enum { INPUTS = 0, SYMBOLS = 1, OTHERS = 2 }; /* the kind of name in a word */

/* 1: the model has the name of `size` bytes. */
static int has_name(const bs_model *m, int of, const char *const *names, size_t n, const char *word,
                    size_t size) {
  char *name = strndup(word, size);
  int has = of == INPUTS && name != NULL && bs_graph_has_default(m->graph, name);
  for (size_t i = 0; i < n && name != NULL; i++) has |= strcmp(names[i], name) == 0;
  free(name);
  return has;
}

/* Finds the '=' after the longest name that the model has; for a word without such a name the first '='. */
static int32_t find_equals(const bs_model *m, int of, const char *word, const char **out_equals,
                           bs_error *err) {
  const char **names = NULL, *equals = strchr(word, '=');
  size_t n = 0;
  *out_equals = equals;
  if (of == OTHERS || equals == NULL || strchr(equals + 1, '=') == NULL) return BS_OK;
  const int32_t rc = known_names(m->graph, of == SYMBOLS, &names, &n, err);
  for (; rc == BS_OK && equals != NULL; equals = strchr(equals + 1, '='))
    if (has_name(m, of, names, n, word, (size_t)(equals - word))) *out_equals = equals;
  free(names);
  return rc;
}

static int32_t keep_name(bs_model *m, const char *text, size_t size, const char **out_name, bs_error *err) {
  char *name = strndup(text, size);
  char **texts = realloc(m->texts, (m->n_texts + 1) * sizeof *texts);
  if (texts != NULL) m->texts = texts;
  if (name == NULL || texts == NULL) {
    free(name);
    return no_memory(err);
  }
  m->texts[m->n_texts++] = name;
  *out_name = name;
  return BS_OK;
}

/* "NAME=VALUE": the name (owned by the model) and the value. */
static int32_t split_word(bs_model *m, int of, const char *option, const char *form, const char *word,
                          const char **out_name, const char **out_value, bs_error *err) {
  const char *equals = NULL;
  const int32_t rc = find_equals(m, of, word, &equals, err);
  if (rc != BS_OK) return rc;
  if (equals == NULL || equals == word || equals[1] == '\0') {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--%s '%.100s' is not of the form %s", option, word, form);
    return BS_USAGE;
  }
  *out_value = equals + 1;
  return keep_name(m, word, (size_t)(equals - word), out_name, err);
}

/* BS_USAGE with the nearest name if the model does not have it. */
static int32_t must_know(const bs_graph *g, int symbols, const char *name, bs_error *err) {
  const char **names = NULL;
  size_t n = 0, k = 0;
  int32_t rc = known_names(g, symbols, &names, &n, err);
  while (rc == BS_OK && k < n && strcmp(names[k], name) != 0) k++;
  if (rc == BS_OK && k == n) {
    const char *nearest = bs_nearest(name, names, n);
    bs_text list = {0};
    for (k = 0; k < n; k++) bs_text_printf(&list, "%s%s", k == 0 ? "" : ", ", names[k]);
    bs_error_set(err, BS_USAGE, symbols ? "BS-MODEL-DIM" : "BS-MODEL-INPUT", "the model has no %s '%.100s'",
                 symbols ? "dimension" : "input", name);
    if (nearest != NULL) {
      bs_error_hint(err, "did you mean '%s'?", nearest);
    } else if (n > 0 && list.data != NULL) {
      bs_error_hint(err, "it has %.200s", list.data);
    } else {
      bs_error_hint(err, "it has none");
    }
    bs_text_free(&list);
    rc = BS_USAGE;
  }
  free(names);
  return rc;
}

/* ---- sizes of dimensions --------------------------------------------------------------------- */

static bs_dim *find_dim(bs_model *m, const char *name) {
  for (size_t i = 0; i < m->n_dims; i++)
    if (strcmp(m->dims[i].name, name) == 0) return &m->dims[i];
  return NULL;
}

static int32_t add_dim(bs_model *m, const char *name, int64_t size, bs_error *err) {
  bs_dim *dims = realloc(m->dims, (m->n_dims + 1) * sizeof *dims);
  if (dims == NULL) return no_memory(err);
  m->dims = dims;
  m->dims[m->n_dims++] = (bs_dim){.struct_size = sizeof *dims, .name = name, .size = size};
  return BS_OK;
}

static int32_t read_dims(bs_model *m, const bs_model_words *words, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; i < words->n && rc == BS_OK; i++) {
    const char *name, *value;
    int64_t size;
    rc = split_word(m, SYMBOLS, "dim", "NAME=N", words->words[i], &name, &value, err);
    if (rc == BS_OK && (!bs_parse_size(value, &size) || size < 0 || size > INT32_MAX))
      rc = bs_error_set(err, BS_USAGE, "BS-USE-NUMBER",
                        "--dim %.60s: '%.60s' is not a whole number from 0 to %d", name, value, INT32_MAX);
    if (rc == BS_OK) rc = must_know(m->graph, 1, name, err);
    if (rc == BS_OK && find_dim(m, name) != NULL)
      rc = bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "--dim %.100s is given twice", name);
    if (rc == BS_OK) rc = add_dim(m, name, size, err);
  }
  return rc;
}

/* Sets symbols of a port from the shape of its input file. */
static int32_t dims_of_input(bs_model *m, const bs_port *port, const bs_npy *file, const char *path,
                             bs_error *err) {
  for (uint32_t d = 0; port->rank == file->rank && d < port->rank && d < BS_MAX_DIMS; d++) {
    if (port->symbols[d] == NULL) continue;
    const bs_dim *known = find_dim(m, port->symbols[d]);
    if (known == NULL) {
      const int32_t rc = add_dim(m, port->symbols[d], file->dims[d], err);
      if (rc != BS_OK) return rc;
    } else if (known->size != file->dims[d]) {
      bs_error_set(err, BS_USAGE, "BS-MODEL-DIM",
                   "dimension '%.60s' is %lld in %.200s (dimension %u of input '%.60s'), and %lld elsewhere",
                   known->name, (long long)file->dims[d], path, d, port->name, (long long)known->size);
      bs_error_hint(err, "--dim and the shapes of all inputs must agree");
      return BS_USAGE;
    }
  }
  return BS_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* "f32 [batch, 4]" of a port. */
static void put_port(bs_text *out, const bs_port *port) {
  bs_text_printf(out, "%s [", port->dtype != 0 ? bs_dtype_name(port->dtype) : "?");
  for (uint32_t d = 0; port->rank <= BS_MAX_DIMS && d < port->rank; d++) {
    const char *comma = d == 0 ? "" : ", ";
    if (port->dims[d] >= 0) {
      bs_text_printf(out, "%s%lld", comma, (long long)port->dims[d]);
    } else {
      bs_text_printf(out, "%s%s", comma, port->symbols[d] != NULL ? port->symbols[d] : "?");
    }
  }
  bs_text_printf(out, "]");
}

int32_t bs_model_shape_error(bs_error *err, const bs_port *port, const bs_npy *file, const char *path) {
  bs_text want = {0}, has = {0};
  put_port(&want, port);
  for (uint32_t d = 0; d < file->rank; d++)
    bs_text_printf(&has, "%s%lld", d == 0 ? "" : ", ", (long long)file->dims[d]);
  bs_error_set(err, BS_INPUT, "BS-MODEL-INPUT", "%.160s holds %s [%.80s]; input '%.60s' is %.100s", path,
               bs_dtype_name(file->dtype), has.data != NULL ? has.data : "", port->name,
               want.data != NULL ? want.data : "");
  bs_text_free(&want);
  bs_text_free(&has);
  return BS_INPUT;
}

/* The port of an input by its name; must_know has found it. */
static int32_t find_port(const bs_graph *g, const char *name, bs_port *out, bs_error *err) {
  const uint32_t n = bs_graph_port_count(g, 1);
  for (uint32_t i = 0; i < n; i++) {
    *out = (bs_port){.struct_size = sizeof *out};
    const int32_t rc = bs_graph_port(g, 1, i, out, err);
    if (rc != BS_OK || strcmp(out->name, name) == 0) return rc;
  }
  return bs_error_set(err, BS_INTERNAL, "BS-MODEL-INPUT", "no input '%.100s'", name);
}

int bs_model_fits(const bs_port *port, const bs_npy *file) {
  int fits = file->rank <= BS_MAX_DIMS && (port->dtype == 0 || port->dtype == file->dtype) &&
             (port->rank > BS_MAX_DIMS || port->rank == file->rank);
  for (uint32_t d = 0; fits && port->rank == file->rank && d < port->rank; d++)
    fits = port->dims[d] < 0 || port->dims[d] == file->dims[d];
  return fits;
}

bs_tensor bs_model_npy_tensor(const bs_npy *file) {
  bs_tensor t = {.struct_size = sizeof t, .dtype = file->dtype, .rank = file->rank};
  int64_t stride = 1;
  for (uint32_t d = file->rank; d-- > 0; stride *= file->dims[d]) {
    t.dims[d] = file->dims[d];
    t.strides[d] = stride;
  }
  t.data = (void *)(uintptr_t)file->data;
  t.bytes = file->count * BS_DTYPE_BYTES(file->dtype);
  return t;
}

/* Opens the file of an input and holds it against the port. */
static int32_t open_file(const bs_model *m, const char *name, const char *path, bs_port *out_port,
                         bs_npy *out_file, bs_error *err) {
  int32_t rc = must_know(m->graph, 0, name, err);
  if (rc == BS_OK) rc = find_port(m->graph, name, out_port, err);
  if (rc == BS_OK) rc = bs_npy_open(path, out_file, err);
  if (rc != BS_OK) return rc;
  if (bs_model_fits(out_port, out_file)) return BS_OK;
  rc = bs_model_shape_error(err, out_port, out_file, path);
  bs_npy_close(out_file);
  return rc;
}

/* An input becomes a constant with the file's elements; an initializer that is an input too gets them. */
static int32_t make_constant(bs_model *m, const char *name, const char *path, bs_error *err) {
  bs_port port;
  bs_npy file;
  int32_t rc = bs_graph_has_default(m->graph, name) ? bs_npy_open(path, &file, err)
                                                    : open_file(m, name, path, &port, &file, err);
  if (rc != BS_OK) return rc;
  const bs_tensor tensor = bs_model_npy_tensor(&file);
  rc = bs_graph_fix(m->graph, name, &tensor, err);
  if (rc == BS_INVALID_ARGUMENT)
    rc = bs_error_set(err, BS_INPUT, "BS-MODEL-INPUT",
                      "%.160s holds another dtype or shape than input '%.60s'", path, name);
  bs_npy_close(&file);
  return rc;
}

static int32_t make_constants(bs_model *m, const bs_model_words *words, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; i < words->n && rc == BS_OK; i++) {
    const char *name, *path;
    rc = split_word(m, INPUTS, "constant", "NAME=FILE.npy", words->words[i], &name, &path, err);
    if (rc == BS_OK) rc = make_constant(m, name, path, err);
  }
  return rc;
}

/* "NAME=FILE.npy"; of a model with one input also the file alone. */
static int32_t split_input(bs_model *m, const char *word, const char **out_name, const char **out_path,
                           bs_error *err) {
  bs_port port = {.struct_size = sizeof port};
  if (strchr(word, '=') != NULL || word[0] == '\0' || bs_graph_port_count(m->graph, 1) != 1)
    return split_word(m, INPUTS, "input", "NAME=FILE.npy", word, out_name, out_path, err);
  *out_path = word;
  const int32_t rc = bs_graph_port(m->graph, 1, 0, &port, err);
  return rc == BS_OK ? keep_name(m, port.name, strlen(port.name), out_name, err) : rc;
}

static int32_t read_inputs(bs_model *m, const bs_model_words *words, bs_error *err) {
  const size_t before = m->n_texts;
  int32_t rc = BS_OK;
  m->n_inputs = 0;
  m->names = calloc(words->n + 1, sizeof *m->names);
  m->files = calloc(words->n + 1, sizeof *m->files);
  if (m->names == NULL || m->files == NULL) return no_memory(err);
  for (size_t i = 0; i < words->n && rc == BS_OK; i++) {
    const char *name, *path;
    bs_port port;
    rc = split_input(m, words->words[i], &name, &path, err);
    for (size_t k = 0; k < i && rc == BS_OK; k++)
      if (strcmp(m->texts[before + k], name) == 0)
        rc = bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "--input %.100s is given twice", name);
    if (rc == BS_OK && bs_graph_has_default(m->graph, name)) {
      rc = make_constant(m, name, path, err);
      continue;
    }
    if (rc == BS_OK) rc = open_file(m, name, path, &port, &m->files[m->n_inputs], err);
    if (rc != BS_OK) break;
    m->names[m->n_inputs++] = name;
    rc = dims_of_input(m, &port, &m->files[m->n_inputs - 1], path, err);
  }
  return rc;
}

/* ---- passes ---------------------------------------------------------------------------------- */

int32_t bs_model_read_passes(bs_model *m, const bs_model_words *words, bs_error *err) {
  int32_t rc = BS_OK;
  m->passes_off = calloc(words->n + 1, sizeof *m->passes_off);
  if (m->passes_off == NULL) return no_memory(err);
  for (size_t i = 0; i < words->n && rc == BS_OK; i++) {
    const char *name = words->words[i], *names[64];
    size_t n = 0, k = 0;
    names[n++] = "all";
    for (; n < 64 && bs_graph_pass_name((uint32_t)n - 1) != NULL; n++)
      names[n] = bs_graph_pass_name((uint32_t)n - 1);
    while (k < n && strcmp(names[k], name) != 0) k++;
    if (k < n) {
      m->passes_off[m->n_passes_off++] = names[k];
      continue;
    }
    const char *nearest = bs_nearest(name, names, n);
    bs_error_set(err, BS_USAGE, "BS-MODEL-PASS", "there is no pass '%.100s'", name);
    if (nearest != NULL) {
      bs_error_hint(err, "did you mean '%s'?", nearest);
    } else {
      bs_error_hint(err, "bsrun model explain lists the passes");
    }
    rc = BS_USAGE;
  }
  return rc;
}

/* ---- the model ------------------------------------------------------------------------------- */

static int32_t point_at_dims(bs_model *m, bs_error *err) {
  const bs_dim **pointers = realloc(m->dim_pointers, (m->n_dims + 1) * sizeof *pointers);
  if (pointers == NULL) return no_memory(err);
  m->dim_pointers = pointers;
  for (size_t i = 0; i < m->n_dims; i++) pointers[i] = &m->dims[i];
  return BS_OK;
}

void bs_model_warn(const bs_model_request *request, const bs_graph *g) {
  char line[1200];
  if (request->note == NULL || bs_graph_warning(g)[0] == '\0') return;
  snprintf(line, sizeof line, "%.150s: %.1000s", request->path, bs_graph_warning(g));
  request->note(request->note_user, line);
}

static int32_t open_graph(bs_context *context, const bs_model_request *request, const char *path,
                          bs_model *out, bs_error *err) {
  const bs_graph_options options = {.struct_size = sizeof options,
                                    .cache_tokens = request->cache_tokens,
                                    .slots = request->slots,
                                    .cache_dtype = request->cache_dtype,
                                    .last_logits = request->last_logits,
                                    .shapes = request->shapes};
  return bs_model_is_builtin(path) ? bs_model_builtin(context, path, out, err)
                                   : bs_graph_open(context, path, &options, &out->graph, err);
}

/* A folder with vectors.txt: its model, and the words of its first case unless the request has own ones. */
static int32_t take_vectors(const bs_model_request *request, bs_vectors *vectors, bs_model_words *io_dims,
                            bs_model_words *io_inputs, bs_error *err) {
  char line[300];
  const int32_t rc = bs_vectors_read(request->path, vectors, err);
  if (rc != BS_OK || request->dims.n + request->inputs.n + request->constants.n > 0) return rc;
  *io_dims = (bs_model_words){(const char *const *)vectors->dims, vectors->n_dims};
  *io_inputs = (bs_model_words){(const char *const *)vectors->inputs, vectors->n_inputs};
  if (vectors->n_inputs == 0 || request->note == NULL) return rc;
  snprintf(line, sizeof line, "inputs of the case '%.60s' of %.160s/vectors.txt", vectors->name,
           request->path);
  request->note(request->note_user, line);
  return rc;
}

int32_t bs_model_open(bs_context *context, const bs_model_request *request, bs_model *out, bs_error *err) {
  bs_model_words dims = request->dims, inputs = request->inputs;
  bs_vectors vectors = {0};
  int32_t rc = BS_OK;
  memset(out, 0, sizeof *out);
  out->seed = request->seed;
  if (request->path[0] == '\0') {
    bs_error_set(err, BS_USAGE, "BS-USE-EMPTY", "the name of the model is empty");
    bs_error_hint(err, "a file .onnx or .gguf, a folder, or builtin:NAME");
    return BS_USAGE;
  }
  if (request->progress != NULL) request->progress(request->progress_user, "read", 0, 0);
  if (bs_vectors_in(request->path)) rc = take_vectors(request, &vectors, &dims, &inputs, err);
  const char *path = vectors.model != NULL ? vectors.model : request->path;
  if (rc == BS_OK) rc = open_graph(context, request, path, out, err);
  if (rc == BS_OK) bs_model_warn(request, out->graph);
  if (rc == BS_OK) rc = bs_model_read_passes(out, &request->passes, err);
  if (rc == BS_OK) rc = make_constants(out, &request->constants, err);
  if (rc == BS_OK) rc = read_dims(out, &dims, err);
  if (rc == BS_OK) rc = read_inputs(out, &inputs, err);
  bs_vectors_free(&vectors);
  return rc == BS_OK ? point_at_dims(out, err) : rc;
}

int32_t bs_model_set_dim(bs_model *model, const char *symbol, int64_t size, bs_error *err) {
  bs_dim *known = find_dim(model, symbol);
  if (known != NULL && known->size != size)
    return bs_error_set(err, BS_USAGE, "BS-MODEL-DIM", "dimension '%.60s' is %lld, not %lld", symbol,
                        (long long)size, (long long)known->size);
  int32_t rc = known == NULL ? add_dim(model, symbol, size, err) : BS_OK;
  if (rc == BS_OK) rc = point_at_dims(model, err);
  return rc;
}

int32_t bs_model_start(bs_context *context, const bs_model_request *request, bs_model *model, bs_error *err) {
  return bs_model_start_beside(context, request, model, NULL, err);
}

static int32_t open_session(bs_context *context, const bs_model_request *request, bs_model *model,
                            const char *const *choices, size_t n_choices, bs_session *share, bs_error *err) {
  bs_session_options options = bs_model_session_options(request, model);
  options.share = share;
  if (model->world == NULL) {
    options.choices = choices;
    options.n_choices = (uint32_t)n_choices;
  }
  int32_t rc = bs_session_open(context, model->graph, &options, &model->session, err);
  if (rc == BS_CONFIG && err != NULL && strcmp(err->id, "BS-QUANT-SCHEME") == 0) rc = err->code = BS_USAGE;
  return rc == BS_OK ? bs_model_follow(model, model->session, err) : rc;
}

/* Opens the model repeatedly until each of the file's choices holds. Choices that cannot be read are
 * reported, and then none is used. */
static int32_t open_tuned(bs_context *context, const bs_model_request *request, bs_model *model,
                          bs_model_tuned *tuned, bs_error *err) {
  size_t taken = 1;
  int32_t rc = BS_OK;
  while (rc == BS_OK && taken > 0) {
    bs_error why = BS_ERROR_INIT;
    taken = 0;
    rc = open_session(context, request, model, tuned->words, tuned->n_own + tuned->n, NULL, &why);
    if (rc != BS_OK && tuned->n > 0 &&
        (strncmp(why.id, "BS-OP-KNOB", 10) == 0 || strcmp(why.id, "BS-OP-CHOICE") == 0)) {
      char text[800];
      snprintf(text, sizeof text, "%.300s: [%s] %.300s; its choices are not taken", request->tuning, why.id,
               why.message);
      if (request->note != NULL) request->note(request->note_user, text);
      bs_model_tuned_drop(tuned);
      taken = 1;
      rc = BS_OK;
      continue;
    }
    if (rc != BS_OK && err != NULL) *err = why;
    if (rc == BS_OK && tuned->n > 0) rc = bs_model_tuned_check(tuned, request, context, model, &taken, err);
    if (rc == BS_OK && taken > 0) {
      bs_session_close(model->session);
      model->session = NULL;
    }
  }
  return rc;
}

int32_t bs_model_start_beside(bs_context *context, const bs_model_request *request, bs_model *model,
                              bs_session *share, bs_error *err) {
  bs_model_tuned tuned;
  int32_t rc = bs_stop_check(err);
  if (rc == BS_OK) rc = bs_model_size_dims(request, model, BS_MODEL_MADE_BATCH, BS_MODEL_MADE_SIZE, err);
  if (rc == BS_OK) rc = bs_model_world(context, request, model, err);
  if (rc != BS_OK) return rc;
  if (share != NULL || request->tuning == NULL ||
      model->world != NULL) /* a shared session has the choices of the other */
    return open_session(context, request, model, request->choices.words, request->choices.n, share, err);
  rc = bs_model_tuned_open(context, request, &tuned, err);
  if (rc == BS_OK) rc = open_tuned(context, request, model, &tuned, err);
  bs_model_tuned_close(&tuned);
  return rc;
}

void bs_model_close(bs_model *model) {
  bs_session_close(model->session);
  bs_world_destroy(model->world);
  bs_model_free_made(model);
  bs_graph_close(model->graph);
  for (size_t i = 0; i < model->n_inputs; i++) bs_npy_close(&model->files[i]);
  for (size_t i = 0; i < model->n_texts; i++) free(model->texts[i]);
  free(model->texts);
  free(model->names);
  free(model->files);
  free(model->dims);
  free(model->dim_pointers);
  free(model->passes_off);
  free(model->domains);
  json_decref(model->tuned);
  memset(model, 0, sizeof *model);
}
