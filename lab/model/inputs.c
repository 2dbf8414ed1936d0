/* SPDX-License-Identifier: MIT
 * inputs.c - see inputs.h. Domains are token ids below the size of their table, and masks of 0 and 1. */
#include "lab/model/inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "core/base/text.h"
#include "lab/error.h"
#include "lab/hash.h"

static void note(const bs_model_request *request, const char *before, const bs_text *list,
                 const char *after) {
  char line[600];
  if (request->note == NULL || list->data == NULL) return;
  snprintf(line, sizeof line, "%s%.400s%s", before, list->data, after);
  request->note(request->note_user, line);
}

static const bs_npy *file_of(const bs_model *model, const char *name) {
  for (size_t i = 0; i < model->n_inputs; i++)
    if (strcmp(model->names[i], name) == 0) return &model->files[i];
  return NULL;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int has_size(const bs_model *m, const char *symbol) {
  for (size_t i = 0; i < m->n_dims; i++)
    if (strcmp(m->dims[i].name, symbol) == 0) return 1;
  return 0;
}

static int32_t size_port(bs_model *m, uint32_t number, int64_t batch, int64_t others, bs_text *made,
                         bs_error *err) {
  bs_port port = {.struct_size = sizeof port};
  int32_t rc = bs_graph_port(m->graph, 1, number, &port, err);
  for (uint32_t d = 0; rc == BS_OK && port.rank <= BS_MAX_DIMS && d < port.rank; d++) {
    const char *symbol = port.symbols[d];
    if (symbol == NULL || has_size(m, symbol)) continue;
    const int64_t size = strstr(symbol, "batch") != NULL ? batch : others;
    rc = bs_model_set_dim(m, symbol, size, err);
    bs_text_printf(made, "%s%.60s=%lld", made->size > 0 ? ", " : "", symbol, (long long)size);
  }
  return rc;
}

int32_t bs_model_size_dims(const bs_model_request *request, bs_model *m, int64_t batch, int64_t others,
                           bs_error *err) {
  bs_graph_info info = {.struct_size = sizeof info};
  bs_text made = {0};
  int32_t rc = bs_graph_info_get(m->graph, &info, err);
  if (rc == BS_OK && info.cache_tokens > 0 && info.cache_tokens <= others)
    others = info.cache_tokens > 1 ? info.cache_tokens - 1 : 1;
  for (uint32_t i = 0; rc == BS_OK && i < bs_graph_port_count(m->graph, 1); i++)
    rc = size_port(m, i, batch, others, &made, err);
  if (rc == BS_OK && made.size > 0) note(request, "made sizes: ", &made, "; --dim NAME=N gives another");
  bs_text_free(&made);
  return rc;
}

/* ---- domains --------------------------------------------------------------------------------- */

/* "%12" at the beginning of a dumped value. */
static long number_at(const char *text) {
  return text[0] == '%' ? strtol(text + 1, NULL, 10) : -1;
}

/* Reads size number `axis` of the dims "[40,3]"; 0: none. */
static int64_t dim_of(const char *type, int64_t axis) {
  const char *at = type != NULL ? strchr(type, '[') : NULL;
  for (int64_t i = 0; at != NULL && i < axis; i++) {
    at = strpbrk(at + 1, ",]");
    if (at != NULL && *at == ']') at = NULL;
  }
  return at != NULL ? strtoll(at + 1, NULL, 10) : 0;
}

/* The type "f32[40,3]" of the root `number`: a constant, an input, or a node's output. */
static const char *type_of(const json_t *dump, long number, int *out_constant) {
  const json_t *line;
  char start[32];
  size_t i;
  snprintf(start, sizeof start, "%%%ld ", number);
  *out_constant = 0;
  json_array_foreach(dump, i, line) {
    const char *kinds[] = {"const", "input", "state", "text"}, *at = NULL;
    for (size_t k = 0; at == NULL && k < sizeof kinds / sizeof kinds[0]; k++) {
      const char *text = json_string_value(json_object_get(line, kinds[k]));
      at = text != NULL ? strstr(text, start) : NULL;
      *out_constant = at != NULL && k == 0;
    }
    if (at != NULL && at[strlen(start)] != '=') return at + strlen(start);
  }
  return NULL;
}

/* "take(%table, %ids) [kind,axis]": the rows among which ids choose; 0: not known (places of several dims).
 */
static int64_t rows_of(const json_t *dump, const char *take, int *out_constant) {
  const char *table = take + strlen("take("), *end = strchr(table, ')');
  const char *settings = end != NULL && strncmp(end, ") [", 3) == 0 ? end : NULL;
  const char *type = table + 1 + strspn(table + 1, "0123456789");
  const char *of_root = type_of(dump, number_at(table), out_constant);
  if (dim_of(settings, 0) == BS_INDEX_TUPLES) return 0;
  return dim_of(*type == '{' ? type : of_root, dim_of(settings, 1));
}

/* The same of "take_q(%ids{..}; %table)", when its ids are value `number`. */
static int64_t quant_rows_of(const json_t *dump, const char *op, const char *text, long number) {
  const char *ids = strcmp(op, "take_q") == 0 ? strstr(text, "take_q(") : NULL;
  const char *table = ids != NULL && number_at(ids + strlen("take_q(")) == number ? strstr(ids, "; %") : NULL;
  int constant = 0;
  return table != NULL ? dim_of(type_of(dump, number_at(table + 2), &constant), 0) : 0;
}

/* The limit that nodes that read value `number` as ids set: the rows of the smallest table. */
static void read_takes(const json_t *dump, long number, bs_model_domain *out) {
  const json_t *line;
  size_t i;
  json_array_foreach(dump, i, line) {
    const char *op = json_string_value(json_object_get(line, "op"));
    const char *text = json_string_value(json_object_get(line, "text"));
    const char *at = op != NULL && text != NULL && strcmp(op, "take") == 0 ? strstr(text, "take(") : NULL;
    const char *comma = at != NULL ? strstr(at, ", %") : NULL;
    int constant = 1;
    int64_t rows = op != NULL && text != NULL ? quant_rows_of(dump, op, text, number) : 0;
    if (rows == 0 && (comma == NULL || number_at(comma + 2) != number)) continue;
    if (rows == 0) rows = rows_of(dump, at, &constant);
    if (rows > 0 && (out->below == 0 || rows < out->below)) out->below = rows;
    out->picks = 1;
    out->moves |= !constant;
  }
}

static int ends_in_mask(const char *name) {
  const size_t n = strlen(name);
  return n >= 4 && strcmp(name + n - 4, "mask") == 0;
}

/* The number of an input's value in a dump. */
static long value_of(const json_t *dump, const char *name) {
  const json_t *line;
  size_t i;
  json_array_foreach(dump, i, line) {
    const char *text = json_string_value(json_object_get(line, "input"));
    const char *is = json_string_value(json_object_get(line, "name"));
    if (text != NULL && is != NULL && strcmp(is, name) == 0) return number_at(text);
  }
  return -1;
}

int bs_model_makes_inputs(const bs_model *m) {
  return m->n_inputs < bs_graph_port_count(m->graph, 1);
}

/* Sends a note of the inputs that have no file. */
static void tell_made(const bs_model_request *request, const bs_model *m) {
  bs_text list = {0};
  if (request->ranks != NULL && request->ranks->phantom) return; /* nothing reads them */
  for (uint32_t i = 0; i < bs_graph_port_count(m->graph, 1); i++) {
    const bs_model_domain *d = &m->domains[i];
    if (file_of(m, d->name) != NULL) continue;
    bs_text_printf(&list, "%s%.60s", list.size > 0 ? ", " : "", d->name);
    if (d->below > 0) bs_text_printf(&list, " (ids below %lld)", (long long)d->below);
    if (d->is_mask) bs_text_printf(&list, " (ones)");
  }
  note(request, "made inputs: ", &list, "; --input NAME=FILE.npy gives your own");
  bs_text_free(&list);
}

int32_t bs_model_find_domains(const bs_model_request *request, bs_model *m, bs_error *err) {
  const uint32_t n = bs_graph_port_count(m->graph, 1);
  char *text = NULL;
  free(m->domains);
  m->domains = calloc(n + 1u, sizeof *m->domains);
  int32_t rc =
      m->domains != NULL ? bs_model_text(m, BS_REPORT_DUMP, 1, &text, err) : bs_no_memory(err, "domains");
  json_t *dump = text != NULL ? json_loads(text, 0, NULL) : NULL;
  for (uint32_t i = 0; rc == BS_OK && i < n; i++) {
    bs_model_domain *d = &m->domains[i];
    bs_tensor_desc desc = {.struct_size = sizeof desc};
    rc = bs_session_port(m->session, i, &d->name, &desc, err);
    const int whole = desc.dtype == BS_I64 || desc.dtype == BS_I32;
    if (rc == BS_OK && whole) read_takes(dump, value_of(dump, d->name), d);
    d->is_mask = rc == BS_OK && !d->picks && ends_in_mask(d->name) &&
                 (whole || desc.dtype == BS_BOOL || desc.dtype == BS_U8);
  }
  json_decref(dump);
  free(text);
  if (rc == BS_OK && bs_model_makes_inputs(m)) tell_made(request, m);
  return rc;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int32_t outside(const bs_model_domain *d, uint64_t i, double value, bs_error *err) {
  if (d->is_mask) {
    bs_error_set(err, BS_INPUT, "BS-MODEL-INPUT", "input '%.60s': element %llu is %.17g; a mask has 0 and 1",
                 d->name, (unsigned long long)i, value);
    bs_error_hint(err, "1: the token counts, 0: it does not");
  } else {
    bs_error_set(err, BS_INPUT, "BS-MODEL-INPUT",
                 "input '%.60s': element %llu is %.17g; it picks rows of a table with %lld", d->name,
                 (unsigned long long)i, value, (long long)d->below);
    bs_error_hint(err, "ids are from -%lld to %lld", (long long)d->below, (long long)d->below - 1);
  }
  return BS_INPUT;
}

static int32_t check_file(const bs_model_domain *d, const bs_npy *file, bs_error *err) {
  const int64_t below = d->below > 0 ? d->below : d->is_mask ? 2 : 0;
  const double least = d->below > 0 ? -(double)d->below : 0; /* a negative id counts from the end */
  for (uint64_t i = 0; below > 0 && i < file->count; i++) {
    const double value = bs_load_f64(file->dtype, file->data, (int64_t)i);
    if (value < least || value >= (double)below) return outside(d, i, value, err);
  }
  return BS_OK;
}

int32_t bs_model_check_domains(const bs_model *m, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < bs_graph_port_count(m->graph, 1); i++) {
    const bs_npy *file = file_of(m, m->domains[i].name);
    if (file != NULL) rc = check_file(&m->domains[i], file, err);
  }
  return rc;
}

int32_t bs_model_blame_input(const bs_model_request *request, bs_model *m, int32_t rc, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  if (rc == BS_OK || err == NULL || strcmp(err->id, "BS-OP-INDEX") != 0) return rc;
  if (m->domains == NULL && bs_model_find_domains(request, m, NULL) != BS_OK) return rc;
  for (uint32_t i = 0; i < bs_graph_port_count(m->graph, 1); i++)
    m->domains[i].is_mask = 0; /* a run takes other numbers in a mask too */
  if (bs_model_check_domains(m, &why) != BS_INPUT) return rc;
  *err = why;
  return BS_INPUT;
}

/* ---- made ------------------------------------------------------------------------------------ */

/* Different ids (0 if the table's rows are not known or change with the shapes), masks that hide nothing.
 * Floats are normal numbers, as the "ordinary numbers" of lab/model/made.c. */
static double made_value(const bs_model_domain *d, uint64_t seed, uint32_t number, uint32_t dtype,
                         uint64_t i) {
  float z;
  if (bs_dtype_is_float(dtype)) {
    bs_rng_normal((seed << 32) + number + 1u, 0, i, 1, &z);
    return (double)z;
  }
  if (d->moves || (d->picks && d->below == 0)) return 0;
  if (d->below == 0) return 1;
  return (double)(((i + 1 + (seed << 32)) * UINT64_C(0x9e3779b97f4a7c15) >> 33) % (uint64_t)d->below);
}

static int fits(const bs_npy *file, const bs_tensor_desc *desc) {
  int same = file != NULL && file->dtype == desc->dtype && file->rank == desc->rank;
  for (uint32_t i = 0; same && i < desc->rank; i++) same = file->dims[i] == desc->dims[i];
  return same;
}

static int32_t make(const bs_model *m, uint32_t number, const bs_tensor_desc *desc, void **memory,
                    bs_tensor *out, bs_error *err) {
  const bs_model_domain *d = &m->domains[number];
  uint64_t count = 1;
  for (uint32_t i = 0; i < desc->rank; i++) count *= (uint64_t)desc->dims[i];
  void *data = aligned_alloc(64, ((size_t)count * BS_DTYPE_BYTES(desc->dtype) + 64u) & ~(size_t)63u);
  if (data == NULL) return bs_no_memory(err, "an input");
  for (uint64_t i = 0; i < count; i++)
    bs_store_f64(desc->dtype, data, (int64_t)i, made_value(d, m->seed, number, desc->dtype, i));
  free(memory[number]);
  memory[number] = data;
  *out = (bs_tensor){.struct_size = sizeof *out, .dtype = desc->dtype, .rank = desc->rank};
  memcpy(out->dims, desc->dims, sizeof out->dims);
  memcpy(out->strides, desc->strides, sizeof out->strides);
  out->data = data;
  out->bytes = count * BS_DTYPE_BYTES(desc->dtype);
  return BS_OK;
}

int32_t bs_model_fill(const bs_model *m, bs_session *session, int any_size, void **memory, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < bs_graph_port_count(m->graph, 1); i++) {
    bs_tensor_desc desc = {.struct_size = sizeof desc};
    bs_tensor tensor = {0};
    const char *name;
    rc = bs_session_port(session, i, &name, &desc, err);
    const bs_npy *file = rc == BS_OK ? file_of(m, name) : NULL;
    if (file != NULL && (!any_size || fits(file, &desc)))
      tensor = bs_model_npy_tensor(file);
    else if (rc == BS_OK)
      rc = make(m, i, &desc, memory, &tensor, err);
    if (rc == BS_OK) rc = bs_session_set(session, i, &tensor, err);
  }
  return rc;
}

static int32_t hash_made(bs_model *m, bs_error *err) {
  int32_t rc = BS_OK;
  m->made_hash = 0;
  for (uint32_t i = 0; rc == BS_OK && i < bs_graph_port_count(m->graph, 1); i++) {
    bs_tensor_desc desc = {.struct_size = sizeof desc};
    if (m->made[i] == NULL) continue;
    rc = bs_session_port(m->session, i, NULL, &desc, err);
    uint64_t bytes = BS_DTYPE_BYTES(desc.dtype);
    for (uint32_t d = 0; d < desc.rank; d++) bytes *= (uint64_t)desc.dims[d];
    m->made_hash = (m->made_hash ^ bs_hash64(m->made[i], bytes)) * UINT64_C(0x100000001b3);
  }
  return rc;
}

int32_t bs_model_set_inputs(const bs_model_request *request, bs_model *m, bs_error *err) {
  int32_t rc = BS_OK;
  if (m->made == NULL) m->made = calloc(bs_graph_port_count(m->graph, 1) + 1u, sizeof *m->made);
  if (m->made == NULL) return bs_no_memory(err, "inputs");
  if (m->domains == NULL && bs_model_makes_inputs(m)) rc = bs_model_find_domains(request, m, err);
  if (rc == BS_OK) rc = bs_model_fill(m, m->session, 0, m->made, err);
  return rc == BS_OK ? hash_made(m, err) : rc;
}

void bs_model_free_made(bs_model *m) {
  for (uint32_t i = 0; m->made != NULL && i < bs_graph_port_count(m->graph, 1); i++) free(m->made[i]);
  free(m->made);
  m->made = NULL;
}
