/* SPDX-License-Identifier: MIT
 * schema.c - a node against the schema of its operator. */
#include "graph/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

/* The letters of attribute types in a row. */
static const struct type_row {
  char letter;
  uint32_t type; /* enum bs_attr_type; GMODEL_ATTR_OTHER */
  const char *name;
} types[] = {{'i', BS_ATTR_INT, "an integer"},
             {'f', BS_ATTR_FLOAT, "a float"},
             {'s', BS_ATTR_TEXT, "a text"},
             {'I', BS_ATTR_INTS, "a list of integers"},
             {'F', BS_ATTR_FLOATS, "a list of floats"},
             {'S', BS_ATTR_TEXTS, "a list of texts"},
             {'t', BS_ATTR_TENSOR, "a tensor"},
             {'g', BS_ATTR_GRAPH, "a graph"},
             {'p', GMODEL_ATTR_OTHER, "a sparse tensor"}};

static const struct type_row *type_of_letter(char letter) {
  uint32_t i = 0;
  while (i + 1u < sizeof types / sizeof types[0] && types[i].letter != letter) i++;
  return &types[i];
}

static const char *type_name(uint32_t type) {
  for (uint32_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (types[i].type == type && type != GMODEL_ATTR_OTHER) return types[i].name;
  return "of a type that no operator takes";
}

/* One attribute of a row: where its name, its marks and its values lie in the text. */
typedef struct attr_spec {
  const char *name, *values; /* values NULL: any */
  int name_size, values_size;
  const struct type_row *type;
  int needed;
} attr_spec;

/* Reads the attribute at *io_at and moves on to the next one. 0: no attribute is left. */
static int next_attr(const char **io_at, attr_spec *out) {
  const char *at = *io_at + strspn(*io_at, " ");
  if (*at == '\0') return 0;
  const int all = (int)strcspn(at, " ");
  out->name = at;
  out->name_size = (int)strcspn(at, ":");
  const char *mark = at + out->name_size + 1;
  out->type = type_of_letter(*mark++);
  out->needed = *mark == '!';
  mark += out->needed;
  out->values = *mark == '=' ? mark + 1 : NULL;
  out->values_size = out->values != NULL ? (int)(at + all - out->values) : 0;
  *io_at = at + all;
  return 1;
}

static int find_attr(const schema_row *row, const char *name, attr_spec *out) {
  const char *at = row->attrs;
  while (next_attr(&at, out))
    if (strlen(name) == (size_t)out->name_size && memcmp(name, out->name, (size_t)out->name_size) == 0)
      return 1;
  return 0;
}

static int has_value(const attr_spec *spec, const char *value) {
  const size_t size = strlen(value);
  const char *at = spec->values, *end = at + spec->values_size;
  while (at < end) {
    const size_t one = strcspn(at, "| ");
    if (one == size && memcmp(at, value, size) == 0) return 1;
    at += one + 1;
  }
  return 0;
}

static int compare_rows(const void *key, const void *row) {
  return strcmp(((const schema_row *)key)->op, ((const schema_row *)row)->op);
}

/* The newest version of the operator that is not newer than the node's. */
static const schema_row *find_row(const char *op, const char *domain, uint32_t opset) {
  const schema_row key = {.op = op}, *best = NULL;
  const schema_row *row = bsearch(&key, schema_rows, schema_n_rows, sizeof *schema_rows, compare_rows);
  if (row == NULL) return NULL;
  while (row > schema_rows && strcmp(row[-1].op, op) == 0) row--;
  if (strcmp(domain, "ai.onnx") == 0) domain = "";
  for (; row < schema_rows + schema_n_rows && strcmp(row->op, op) == 0; row++)
    if (strcmp(row->domain, domain) == 0 && row->since <= opset) best = row;
  return best;
}

/* ---- one node -------------------------------------------------------------------------------- */

typedef struct checking {
  const gmodel *model;
  const gmodel_node_desc *desc;
  const uint32_t *out;
  const schema_row *row;
  uint32_t opset;
  bs_error *err;
} checking;

static int32_t bad(const checking *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int32_t bad(const checking *k, const char *fmt, ...) {
  char reason[400];
  va_list args;
  va_start(args, fmt);
  vsnprintf(reason, sizeof reason, fmt, args);
  va_end(args);
  bs_error_set(k->err, BS_INPUT, "BS-GRAPH-BAD", "%s of opset %u: %s", k->row->op, k->opset, reason);
  const char *name = k->desc->name, *output = "";
  for (uint32_t i = 0; i < k->desc->n_out && output[0] == '\0'; i++)
    if (k->out[i] != GMODEL_NONE) output = k->model->values[k->out[i]].name;
  if (name != NULL && name[0] != '\0')
    bs_error_where(k->err, "node '%.80s' (%.40s)", name, k->row->op);
  else
    bs_error_where(k->err, "the node (%.40s) that gives '%.80s'", k->row->op, output);
  return BS_INPUT;
}

static void hint_names(const checking *k) {
  char names[300] = "";
  size_t used = 0;
  attr_spec spec;
  for (const char *at = k->row->attrs;
       next_attr(&at, &spec) && used + (size_t)spec.name_size + 3 < sizeof names;)
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%.*s", used > 0 ? ", " : "",
                             spec.name_size, spec.name);
  if (used > 0)
    bs_error_hint(k->err, "its attributes of this opset are: %s", names);
  else
    bs_error_hint(k->err, "the operator has no attributes in this opset");
}

static int32_t check_value(const checking *k, const attr_spec *spec, const bs_attr *a) {
  char number[32] = "";
  const char *seen = number;
  if (spec->values == NULL) return BS_OK;
  const uint64_t n = a->type == BS_ATTR_INTS ? a->count : 1;
  for (uint64_t i = 0; i < n; i++) {
    if (a->type == BS_ATTR_TEXT)
      seen = a->text != NULL ? a->text : "";
    else
      snprintf(number, sizeof number, "%lld", (long long)(a->type == BS_ATTR_INTS ? a->ints[i] : a->i));
    if (has_value(spec, seen)) continue;
    bad(k, "its attribute '%.64s' has the value '%.64s'", a->name, seen);
    bs_error_hint(k->err, "its values are: %.*s", spec->values_size, spec->values);
    return BS_INPUT;
  }
  return BS_OK;
}

static int32_t check_attr(const checking *k, uint32_t i) {
  const bs_attr *a = k->desc->attrs[i];
  attr_spec spec;
  for (uint32_t j = 0; j < i; j++)
    if (strcmp(k->desc->attrs[j]->name, a->name) == 0)
      return bad(k, "its attribute '%.64s' is given twice", a->name);
  if (!find_attr(k->row, a->name, &spec)) {
    bad(k, "it has no attribute '%.64s'", a->name);
    hint_names(k);
    return BS_INPUT;
  }
  if (spec.type->type != a->type)
    return bad(k, "its attribute '%.64s' is %s, the operator takes %s", a->name, type_name(a->type),
               spec.type->name);
  return check_value(k, &spec, a);
}

static int32_t check_attrs(const checking *k) {
  attr_spec spec;
  for (uint32_t i = 0; i < k->desc->n_attr; i++) {
    const int32_t rc = check_attr(k, i);
    if (rc != BS_OK) return rc;
  }
  for (const char *at = k->row->attrs; next_attr(&at, &spec);) {
    uint32_t i = 0;
    while (i < k->desc->n_attr && (strncmp(k->desc->attrs[i]->name, spec.name, (size_t)spec.name_size) != 0 ||
                                   k->desc->attrs[i]->name[spec.name_size] != '\0'))
      i++;
    if (spec.needed && i == k->desc->n_attr)
      return bad(k, "its attribute '%.*s' is absent; the operator needs it", spec.name_size, spec.name);
  }
  return BS_OK;
}

/* Absent values at the end do not count. */
static uint32_t given(const uint32_t *values, uint32_t n) {
  while (n > 0 && values[n - 1] == GMODEL_NONE) n--;
  return n;
}

/* 1: any number. */
static int is_variadic(const char *places) {
  return strpbrk(places, "*+") != NULL;
}

static int32_t check_ports(const checking *k) {
  const uint32_t n_in = given(k->desc->in, k->desc->n_in), n_out = given(k->out, k->desc->n_out);
  const size_t most_in = strlen(k->row->in), most_out = strlen(k->row->out);
  if (!is_variadic(k->row->in) && n_in > most_in)
    return bad(k, "it has %u inputs, the operator takes at most %zu", n_in, most_in);
  if (!is_variadic(k->row->out) && n_out > most_out)
    return bad(k, "it has %u outputs, the operator gives at most %zu", n_out, most_out);
  for (uint32_t i = 0; i < most_in; i++) {
    const int absent = i >= n_in || k->desc->in[i] == GMODEL_NONE;
    if (absent && (k->row->in[i] == '1' || (k->row->in[i] == '+' && i >= n_in)))
      return bad(k, "its input %u is absent; the operator needs it", i);
  }
  return BS_OK;
}

int32_t schema_check(const gmodel *model, const gmodel_node_desc *desc, const uint32_t *out, bs_error *err) {
  checking k = {.model = model, .desc = desc, .out = out, .err = err};
  k.opset = desc->opset != 0 ? desc->opset : model->opset;
  if (desc->op == NULL) return BS_OK;
  k.row = find_row(desc->op, desc->domain != NULL ? desc->domain : "", k.opset);
  if (k.row == NULL) return BS_OK;
  const int32_t rc = check_attrs(&k);
  return rc == BS_OK ? check_ports(&k) : rc;
}
