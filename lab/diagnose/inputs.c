/* SPDX-License-Identifier: MIT
 * inputs.c - the domains of a model's inputs: token ids below the size of their table, masks of 0 and 1.
 * Files are checked against them before anything runs, and made inputs stay inside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/diagnose/model_subject.h"
#include "lab/error.h"

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

/* The limit that nodes that read value `number` as ids set: the rows of the smallest table. */
static void read_takes(const json_t *dump, long number, diag_domain *out) {
  const json_t *line;
  size_t i;
  json_array_foreach(dump, i, line) {
    const char *op = json_string_value(json_object_get(line, "op"));
    const char *text = json_string_value(json_object_get(line, "text"));
    const char *at = op != NULL && text != NULL && strcmp(op, "take") == 0 ? strstr(text, "take(") : NULL;
    const char *comma = at != NULL ? strstr(at, ", %") : NULL;
    int constant = 0;
    if (comma == NULL || number_at(comma + 2) != number) continue;
    const int64_t rows = rows_of(dump, at, &constant);
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

int32_t diag_domains_find(diag_model *m, bs_error *err) {
  char *text = NULL;
  m->n_inputs = bs_graph_port_count(m->model->graph, 1);
  m->domains = calloc(m->n_inputs + 1u, sizeof *m->domains);
  int32_t rc = m->domains != NULL ? bs_model_text(m->model, BS_REPORT_DUMP, 1, &text, err)
                                  : bs_no_memory(err, "domains");
  json_t *dump = text != NULL ? json_loads(text, 0, NULL) : NULL;
  for (uint32_t i = 0; rc == BS_OK && i < m->n_inputs; i++) {
    diag_domain *d = &m->domains[i];
    bs_tensor_desc desc = {.struct_size = sizeof desc};
    rc = bs_session_port(m->model->session, i, &d->name, &desc, err);
    const int whole = desc.dtype == BS_I64 || desc.dtype == BS_I32;
    if (rc == BS_OK && whole) read_takes(dump, value_of(dump, d->name), d);
    d->is_mask = rc == BS_OK && !d->picks && ends_in_mask(d->name) &&
                 (whole || desc.dtype == BS_BOOL || desc.dtype == BS_U8);
  }
  json_decref(dump);
  free(text);
  return rc;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int32_t check_file(const diag_domain *d, const bs_npy *file, bs_error *err) {
  const int64_t below = d->below > 0 ? d->below : d->is_mask ? 2 : 0;
  const double least = d->below > 0 ? -(double)d->below : 0; /* a negative id counts from the end */
  for (uint64_t i = 0; below > 0 && i < file->count; i++) {
    const double value = bs_load_f64(file->dtype, file->data, (int64_t)i);
    if (value >= least && value < (double)below) continue;
    if (d->is_mask) {
      bs_error_set(err, BS_INPUT, "BS-DIAG-INPUT", "input '%.60s': element %llu is %.17g; a mask has 0 and 1",
                   d->name, (unsigned long long)i, value);
      bs_error_hint(err, "1: the token counts, 0: it does not");
    } else {
      bs_error_set(err, BS_INPUT, "BS-DIAG-INPUT",
                   "input '%.60s': element %llu is %.17g; it picks rows of a table with %lld", d->name,
                   (unsigned long long)i, value, (long long)below);
      bs_error_hint(err, "ids are from -%lld to %lld", (long long)below, (long long)below - 1);
    }
    return BS_INPUT;
  }
  return BS_OK;
}

static const bs_npy *file_of(const bs_model *model, const char *name) {
  for (size_t i = 0; i < model->n_inputs; i++)
    if (strcmp(model->names[i], name) == 0) return &model->files[i];
  return NULL;
}

int32_t diag_domains_check(const diag_model *m, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < m->n_inputs; i++) {
    const bs_npy *file = file_of(m->model, m->domains[i].name);
    if (file != NULL) rc = check_file(&m->domains[i], file, err);
  }
  return rc;
}

/* ---- made ------------------------------------------------------------------------------------ */

/* A made value: different ids (0 if the table's rows are not known or change with the shapes), masks that
 * hide nothing, floats between -1 and 1. */
static double made_value(const diag_domain *d, uint32_t dtype, uint64_t i) {
  const uint64_t mixed = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 33;
  if (d->moves || (d->picks && d->below == 0)) return 0;
  if (d->below > 0) return (double)(mixed % (uint64_t)d->below);
  if (!bs_dtype_is_float(dtype)) return 1;
  return (double)(mixed % 2001) / 1000.0 - 1.0;
}

static int fits(const bs_npy *file, const bs_tensor_desc *desc) {
  int same = file != NULL && file->dtype == desc->dtype && file->rank == desc->rank;
  for (uint32_t i = 0; same && i < desc->rank; i++) same = file->dims[i] == desc->dims[i];
  return same;
}

static int32_t make(diag_session *s, uint32_t port, const bs_tensor_desc *desc, bs_tensor *out,
                    bs_error *err) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < desc->rank; i++) count *= (uint64_t)desc->dims[i];
  void *data = aligned_alloc(64, ((size_t)count * BS_DTYPE_BYTES(desc->dtype) + 64u) & ~(size_t)63u);
  if (data == NULL) return bs_no_memory(err, "an input");
  for (uint64_t i = 0; i < count; i++)
    bs_store_f64(desc->dtype, data, (int64_t)i, made_value(&s->m->domains[port], desc->dtype, i));
  free(s->memory[port]);
  s->memory[port] = data;
  *out = (bs_tensor){.struct_size = sizeof *out, .dtype = desc->dtype, .rank = desc->rank};
  memcpy(out->dims, desc->dims, sizeof out->dims);
  memcpy(out->strides, desc->strides, sizeof out->strides);
  out->data = data;
  out->bytes = count * BS_DTYPE_BYTES(desc->dtype);
  return BS_OK;
}

int32_t diag_inputs_set(diag_session *s, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < s->m->n_inputs; i++) {
    bs_tensor_desc desc = {.struct_size = sizeof desc};
    bs_tensor tensor = {0};
    const bs_npy *file = file_of(s->m->model, s->m->domains[i].name);
    rc = bs_session_port(s->session, i, NULL, &desc, err);
    if (rc == BS_OK && fits(file, &desc))
      tensor = bs_model_npy_tensor(file);
    else if (rc == BS_OK)
      rc = make(s, i, &desc, &tensor, err);
    if (rc == BS_OK) rc = bs_session_set(s->session, i, &tensor, err);
  }
  return rc;
}
