/* SPDX-License-Identifier: MIT
 * onnx_text.c - the parser of ONNX's text syntax (onnx_text.h). It writes protobuf records as it reads: a
 * nested message is written first, and its length is put before it when it ends. Called by tests and by the
 * fuzz target of the ONNX reader. */
#include "tests/graph/onnx_text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/onnx.h"
#include "tests/graph/text_scan.h"

enum { MAX_RANK = 16, MAX_DEPTH = 16 };

typedef struct type {
  uint32_t elem, kind; /* kind: the field of TypeProto; 0: no type was given */
  int has_shape, rank;
  struct {
    int known;
    int64_t size;
    word symbol;
  } dims[MAX_RANK];
} type;

static uint32_t type_of_word(word w) {
  for (uint32_t i = 1; bs_onnx_type_of(i) != NULL; i++) {
    const char *name = bs_onnx_type_of(i)->name;
    if (strlen(name) == w.size && strncasecmp(name, w.data, w.size) == 0 && islower((unsigned char)w.data[0]))
      return i;
  }
  return 0;
}

static uint32_t kind_of_word(word w) {
  static const struct {
    const char *name;
    uint32_t kind;
  } kinds[] = {{"seq", BS_ONNX_KIND_SEQUENCE},
               {"map", BS_ONNX_KIND_MAP},
               {"optional", BS_ONNX_KIND_OPTIONAL},
               {"sparse_tensor", BS_ONNX_KIND_SPARSE},
               {"opaque", BS_ONNX_KIND_OPAQUE}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (word_is(w, kinds[i].name)) return kinds[i].kind;
  return type_of_word(w) == 0 ? 0 : BS_ONNX_KIND_TENSOR;
}

static void read_dim(parser *p, void *user) {
  type *t = user;
  int i = t->rank++;
  if (t->rank > MAX_RANK) {
    fail(p, "too many dimensions");
    t->rank = MAX_RANK;
    return;
  }
  if (match(p, '?')) return;
  t->dims[i].symbol = read_word(p);
  if (p->failed || t->dims[i].symbol.size > 0) return;
  t->dims[i].size = read_int(p);
  t->dims[i].known = 1;
}

/* A type, when the next word is one. Of sequences and the like, what is in the brackets is not kept. */
static type read_type(parser *p) {
  type t = {0};
  skip_space(p);
  const char *before = p->at;
  word w = *before == '"' ? (word){before, 0} : read_word(p);
  t.kind = w.size == 0 ? 0 : kind_of_word(w);
  t.elem = w.size == 0 ? 0 : type_of_word(w);
  if (t.kind == 0) p->at = before;
  if (t.kind != BS_ONNX_KIND_TENSOR) {
    int open = t.kind != 0 && match(p, '(');
    for (; open > 0 && *p->at != '\0'; p->at++) open += (*p->at == '(') - (*p->at == ')');
    return t;
  }
  t.has_shape = 1;
  if (!next_is(p, '[')) return t;
  read_list(p, '[', ']', read_dim, &t);
  t.has_shape = t.rank > 0;
  return t;
}

static void put_type(parser *p, uint32_t field, const type *t) {
  size_t outer = open_message(p, field), tensor = open_message(p, t->kind);
  if (t->kind == BS_ONNX_KIND_TENSOR) put_number(p, 1, t->elem);
  if (t->has_shape) {
    size_t shape = open_message(p, 2);
    for (int i = 0; i < t->rank; i++) {
      size_t dim = open_message(p, 1);
      if (t->dims[i].known) put_number(p, 1, (uint64_t)t->dims[i].size);
      if (t->dims[i].symbol.size > 0) put_word(p, 2, t->dims[i].symbol);
      close_message(p, dim);
    }
    close_message(p, shape);
  }
  close_message(p, tensor);
  close_message(p, outer);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static uint32_t data_field(uint32_t elem) {
  switch (elem) {
    case 1:
    case 14:
      return 4;
    case 7:
      return 7;
    case 8:
      return 6;
    case 11:
    case 15:
      return 10;
    case 12:
    case 13:
      return 11;
    default:
      return 5;
  }
}

static void read_element(parser *p, void *user) {
  uint32_t elem = *(const uint32_t *)user, field = data_field(elem), bits = bs_onnx_type_of(elem)->bits;
  float single = 0;
  if (field == 6) {
    put_word(p, 6, want_word(p));
  } else if (field == 4 || field == 10) {
    double value = read_float(p, &single);
    put(p, field == 4 ? (const void *)&single : &value, field == 4 ? 4 : 8);
  } else {
    int64_t value = read_int(p);
    if (p->flags & ONNX_TEXT_RAW)
      put(p, &value, bits < 8 ? 1 : bits / 8);
    else
      put_varint(p, (uint64_t)value);
  }
}

static void read_pair(parser *p, void *user) {
  size_t pair = open_message(p, *(const uint32_t *)user);
  put_word(p, 1, want_word(p));
  want(p, ':');
  put_word(p, 2, want_word(p));
  close_message(p, pair);
}

/* The fields of a tensor: its type and name were read, its elements follow. */
static void read_tensor(parser *p, const type *t, word name) {
  uint32_t external = 13, elem = t->elem, raw = (p->flags & ONNX_TEXT_RAW) && elem != 8;
  if (elem == 0) {
    fail(p, "expected a tensor's type");
    return;
  }
  for (int i = 0; i < t->rank; i++) {
    if (!t->dims[i].known) fail(p, "a tensor's dimension without size");
    put_number(p, 1, (uint64_t)t->dims[i].size);
  }
  put_number(p, 2, elem);
  if (name.size > 0) put_word(p, 8, name);
  if (next_is(p, '[')) {
    read_list(p, '[', ']', read_pair, &external);
    put_number(p, 14, 1);
  } else if (elem == 8) {
    read_list(p, '{', '}', read_element, &elem);
  } else {
    size_t data = open_message(p, raw ? 9 : data_field(elem));
    read_list(p, '{', '}', read_element, &elem);
    close_message(p, data);
  }
}

/* Of a graph's lists: a value's type and name, or with '=' a tensor, which goes into the field 5. */
static void read_value(parser *p, void *user) {
  uint32_t field = *(const uint32_t *)user;
  type t = read_type(p);
  word name = want_word(p);
  int tensor = match(p, '=');
  if (!tensor || field == 11) {
    size_t value = open_message(p, field);
    put_word(p, 1, name);
    if (t.kind != 0) put_type(p, 2, &t);
    close_message(p, value);
  }
  if (!tensor) return;
  size_t initializer = open_message(p, 5);
  read_tensor(p, &t, name);
  close_message(p, initializer);
}

/* ---- nodes and graphs ----------------------------------------------------------------------- */

static void read_graph(parser *p);

static const char *const attr_types[] = {
    "",        "float",   "int",    "string",        "tensor",         "graph",      "floats",     "ints",
    "strings", "tensors", "graphs", "sparse_tensor", "sparse_tensors", "type_proto", "type_protos"};
enum { FLOAT = 1, INT, STRING, TENSOR, GRAPH, FLOATS, TYPE = 13 };

static int is_float(const char *at) {
  for (at += *at == '-'; isalnum((unsigned char)*at) || *at == '.' || *at == '-' || *at == '+'; at++)
    if (!isdigit((unsigned char)*at)) return 1;
  return 0;
}

static int is_special(const char *at) {
  size_t n = 0;
  while (isalpha((unsigned char)at[n])) n++;
  return (n == 3 && (strncasecmp(at, "nan", 3) == 0 || strncasecmp(at, "inf", 3) == 0)) ||
         (n == 8 && strncasecmp(at, "infinity", 8) == 0);
}

/* One value, into the field of a single one or of a list. Its type: the one of a single value. */
static uint32_t read_attr_value(parser *p, uint32_t expected, int list) {
  float single = 0;
  skip_space(p);
  char ch = *p->at;
  if (ch == '@') {
    p->at++;
    put_word(p, 21, want_word(p));
    return expected;
  }
  if (ch == '"') {
    put_word(p, list ? 9 : 4, want_word(p));
    return STRING;
  }
  if (isdigit((unsigned char)ch) || ch == '-' || is_special(p->at)) {
    if (expected != FLOAT && !is_float(p->at)) {
      put_number(p, list ? 8 : 3, (uint64_t)read_int(p));
      return INT;
    }
    read_float(p, &single);
    put_varint(p, (list ? 7u : 2u) << 3 | FIXED32);
    put(p, &single, 4);
    return FLOAT;
  }
  type t = read_type(p);
  skip_space(p);
  if (t.kind != 0 && strchr("{=[\"_", *p->at) == NULL && !isalpha((unsigned char)*p->at)) {
    put_type(p, list ? 15 : 14, &t);
    return TYPE;
  }
  size_t begin = open_message(p, t.kind != 0 ? (list ? 10 : 5) : (list ? 11 : 6));
  if (t.kind != 0) {
    word name = read_word(p);
    match(p, '=');
    read_tensor(p, &t, name);
  } else {
    read_graph(p);
  }
  close_message(p, begin);
  return t.kind != 0 ? TENSOR : GRAPH;
}

static void read_attr(parser *p, void *user) {
  uint32_t seen = 0, said = 0;
  size_t attr = open_message(p, *(const uint32_t *)user);
  put_word(p, 1, want_word(p));
  if (match(p, ':')) {
    word w = want_word(p);
    for (uint32_t i = 1; i < sizeof attr_types / sizeof *attr_types; i++)
      if (word_is(w, attr_types[i])) said = i;
    if (said == 0) fail(p, "an unknown type of attribute");
  }
  want(p, '=');
  if (match(p, '[')) {
    uint32_t one = said >= FLOATS && said < FLOATS + 5 ? said - 5 : said;
    while (!p->failed && !match(p, ']')) {
      seen = read_attr_value(p, one, 1) + 5;
      if (!next_is(p, ']')) want(p, ',');
    }
  } else {
    seen = read_attr_value(p, said, 0);
  }
  put_number(p, 20, said != 0 ? said : seen);
  close_message(p, attr);
}

/* Names separated by commas; none may stand where a comma does. */
static void read_names(parser *p, uint32_t field, char end) {
  while (!p->failed && !next_is(p, end)) {
    put_word(p, field, read_word(p));
    if (!match(p, ',')) return;
  }
}

static void read_node(parser *p) {
  uint32_t field = 5;
  if (match(p, '[')) {
    put_word(p, 3, read_word(p));
    want(p, ']');
  }
  read_names(p, 2, '=');
  want(p, '=');
  word op = want_word(p), domain = {op.data, 0};
  while (match(p, '.')) {
    domain.size = (size_t)(op.data + op.size - domain.data);
    op = want_word(p);
  }
  put_word(p, 4, op);
  if (domain.size > 0) put_word(p, 7, domain);
  if (match(p, ':')) put_word(p, 8, want_word(p));
  if (next_is(p, '<')) read_list(p, '<', '>', read_attr, &field);
  want(p, '(');
  read_names(p, 1, ')');
  want(p, ')');
  if (next_is(p, '<')) read_list(p, '<', '>', read_attr, &field);
}

static void read_nodes(parser *p, uint32_t field) {
  want(p, '{');
  while (!p->failed && !match(p, '}')) {
    size_t node = open_message(p, field);
    read_node(p);
    close_message(p, node);
  }
}

static void read_graph(parser *p) {
  uint32_t inputs = 11, outputs = 12, values = 13;
  if (++p->depth > MAX_DEPTH) fail(p, "graphs nest too deep");
  if (p->failed) return;
  put_word(p, 2, want_word(p));
  read_list(p, '(', ')', read_value, &inputs);
  want(p, '=');
  want(p, '>');
  read_list(p, '(', ')', read_value, &outputs);
  if (next_is(p, '<')) read_list(p, '<', '>', read_value, &values);
  read_nodes(p, 1);
  p->depth--;
}

static void read_opset(parser *p, void *user) {
  size_t opset = open_message(p, *(const uint32_t *)user);
  put_word(p, 1, want_word(p));
  want(p, ':');
  put_number(p, 2, (uint64_t)read_int(p));
  close_message(p, opset);
}

/* Keys before a model (25: the field of functions is a model's) or before a function. */
static void read_key(parser *p, void *user) {
  int function = *(const int *)user;
  uint32_t opsets = function ? 9 : 8, metadata = 14;
  word key = want_word(p);
  want(p, ':');
  if (word_is(key, "ir_version"))
    put_number(p, 1, (uint64_t)read_int(p));
  else if (word_is(key, "opset_import"))
    read_list(p, '[', ']', read_opset, &opsets);
  else if (word_is(key, "producer_name"))
    put_word(p, 2, want_word(p));
  else if (word_is(key, "producer_version"))
    put_word(p, 3, want_word(p));
  else if (word_is(key, "domain"))
    put_word(p, function ? 10 : 4, want_word(p));
  else if (word_is(key, "overload"))
    put_word(p, 13, want_word(p));
  else if (word_is(key, "model_version"))
    put_number(p, 5, (uint64_t)read_int(p));
  else if (word_is(key, "doc_string"))
    put_word(p, function ? 8 : 6, want_word(p));
  else if (word_is(key, "metadata_props"))
    read_list(p, '[', ']', read_pair, &metadata);
  else
    fail(p, "an unknown key");
}

/* A function's attribute: a name, or with a value one that has a default. */
static void read_parameter(parser *p, void *user) {
  const char *before = p->at;
  uint32_t with_default = 11;
  word name = want_word(p);
  (void)user;
  if (next_is(p, ':') || next_is(p, '=')) {
    p->at = before;
    read_attr(p, &with_default);
  } else {
    put_word(p, 6, name);
  }
}

static void read_port(parser *p, void *user) {
  (void)read_type(p);
  put_word(p, *(const uint32_t *)user, want_word(p));
}

static void read_function(parser *p) {
  uint32_t inputs = 4, outputs = 5;
  int function = 1;
  if (next_is(p, '<')) read_list(p, '<', '>', read_key, &function);
  put_word(p, 1, want_word(p));
  if (next_is(p, '<')) read_list(p, '<', '>', read_parameter, NULL);
  read_list(p, '(', ')', read_port, &inputs);
  want(p, '=');
  want(p, '>');
  read_list(p, '(', ')', read_port, &outputs);
  read_nodes(p, 7);
}

static void read_model(parser *p) {
  int function = 0;
  if (next_is(p, '<')) read_list(p, '<', '>', read_key, &function);
  size_t graph = open_message(p, 7);
  read_graph(p);
  close_message(p, graph);
  for (skip_space(p); !p->failed && *p->at != '\0'; skip_space(p)) {
    size_t begin = open_message(p, 25);
    read_function(p);
    close_message(p, begin);
  }
}

static int finish(parser *p, unsigned char **out_bytes, size_t *out_size) {
  if (p->failed) free(p->out);
  *out_bytes = p->failed ? NULL : p->out;
  *out_size = p->failed ? 0 : p->size;
  return !p->failed;
}

int onnx_text(const char *text, uint32_t flags, unsigned char **out_bytes, size_t *out_size, char *why,
              size_t why_size) {
  parser p = {.begin = text, .at = text, .flags = flags, .why = why, .why_size = why_size};
  read_model(&p);
  return finish(&p, out_bytes, out_size);
}

int onnx_text_tensor(const char **text, uint32_t flags, unsigned char **out_bytes, size_t *out_size,
                     char *why, size_t why_size) {
  parser p = {.begin = *text, .at = *text, .flags = flags, .why = why, .why_size = why_size};
  type t = read_type(&p);
  word name = read_word(&p);
  match(&p, '=');
  read_tensor(&p, &t, name);
  *text = p.at;
  return finish(&p, out_bytes, out_size);
}
