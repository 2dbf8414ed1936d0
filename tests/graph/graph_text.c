/* SPDX-License-Identifier: MIT
 * graph_text.c - graphs of kernel ops as texts. */
#include "tests/graph/graph_text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/pass/match.h"
#include "tests/graph/program_text.h"

enum { MAX_VALUES = 24 };

graph *gt_graph;
static struct {
  char name[16];
  uint32_t value;
} names[MAX_VALUES];
static uint32_t n_names;
static gport port; /* the output */

void gt_begin(void) {
  ck_assert_int_eq(graph_new(&gt_graph, NULL), BS_OK);
  n_names = 0;
}

void gt_end(void) {
  gt_graph->outputs = NULL;
  gt_graph->n_outputs = 0;
  graph_free(gt_graph);
}

/* ---- values ---------------------------------------------------------------------------------- */

uint32_t gt_numbers(const char *text, int64_t out[BS_MAX_DIMS]) {
  uint32_t n = 0;
  for (char *at = (char *)text; *at != '\0' && *at != ':'; at += *at == ',') {
    ck_assert_uint_lt(n, BS_MAX_DIMS);
    out[n++] = strtoll(at, &at, 10);
  }
  return n;
}

uint32_t gt_root(uint32_t kind, uint32_t dtype, const char *dims) {
  static const double data[64];
  int64_t sizes[BS_MAX_DIMS];
  uint32_t value = GNONE;
  const uint32_t rank = gt_numbers(dims, sizes);
  ck_assert_int_eq(
      graph_add_root(gt_graph, kind, dtype, rank, sizes, kind == GV_CONST ? data : NULL, "", &value, NULL),
      BS_OK);
  ck_assert(kind != GV_CONST || graph_count(&gt_graph->values[value]) <= 64);
  return value;
}

uint32_t gt_view(uint32_t of, const char *dims, const char *strides, int64_t offset) {
  int64_t sizes[BS_MAX_DIMS], steps[BS_MAX_DIMS];
  uint32_t value = GNONE;
  const uint32_t rank = gt_numbers(dims, sizes);
  ck_assert_uint_eq(gt_numbers(strides, steps), rank);
  ck_assert_int_eq(
      graph_add_view(gt_graph, of, gt_graph->values[of].dtype, rank, sizes, steps, offset, &value, NULL),
      BS_OK);
  return value;
}

uint32_t gt_named(const char *name) {
  for (uint32_t i = 0; i < n_names; i++)
    if (strcmp(names[i].name, name) == 0) return names[i].value;
  ck_abort_msg("no value '%s'", name);
  return GNONE;
}

static void name_it(const char *name, uint32_t value) {
  ck_assert_uint_lt(n_names, MAX_VALUES);
  snprintf(names[n_names].name, sizeof names[0].name, "%s", name);
  names[n_names++].value = value;
}

static uint32_t dtype_of(const char *shape) {
  static const struct {
    const char *name;
    uint32_t dtype;
  } dtypes[] = {{":f16", BS_F16}, {":f64", BS_F64}, {":i64", BS_I64}};
  const char *name = strchr(shape, ':');
  for (size_t i = 0; name != NULL && i < sizeof dtypes / sizeof dtypes[0]; i++)
    if (strcmp(dtypes[i].name, name) == 0) return dtypes[i].dtype;
  ck_assert_msg(name == NULL, "no dtype '%s'", name);
  return BS_F32;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static gnode node_by_word(const char *word, uint32_t in) {
  static const struct {
    const char *name;
    uint32_t op, kind;
  } kinds[] = {{"sum", GOP_REDUCE, BS_FOLD_SUM},
               {"mean", GOP_REDUCE, BS_FOLD_SUM},
               {"sumsq", GOP_REDUCE, BS_FOLD_SUMSQ},
               {"meansq", GOP_REDUCE, BS_FOLD_SUMSQ},
               {"max", GOP_REDUCE, BS_FOLD_MAX},
               {"min", GOP_REDUCE, BS_FOLD_MIN},
               {"layer", GOP_NORMALIZE, BS_NORMALIZE_LAYER},
               {"softmax", GOP_NORMALIZE, BS_NORMALIZE_SOFTMAX}};
  const size_t length = strcspn(word, "*");
  size_t i = 0;
  while (i < sizeof kinds / sizeof kinds[0] &&
         (strlen(kinds[i].name) != length || strncmp(kinds[i].name, word, length) != 0))
    i++;
  ck_assert_msg(i < sizeof kinds / sizeof kinds[0], "no op '%s'", word);
  const gvalue *v = &gt_graph->values[in];
  const int folds = kinds[i].op == GOP_REDUCE;
  gnode n = match_node(kinds[i].op, folds ? 1 : 4, folds ? 1 : 2);
  n.attrs[0] = kinds[i].kind;
  n.in[0] = in;
  n.numbers[0] = word[length] == '*' ? strtod(word + length + 1, NULL) : 1;
  if (strncmp(word, "mean", 4) == 0) n.numbers[0] = 1 / (double)v->dims[v->rank - 1];
  return n;
}

/* "{program} a b" or "sum a". */
static gnode node_of(char *text) {
  char *rest = NULL, *close = text[0] == '{' ? strchr(text, '}') : NULL;
  if (close == NULL) {
    const char *word = strtok_r(text, " ", &rest);
    return node_by_word(word, gt_named(strtok_r(NULL, " ", &rest)));
  }
  *close = '\0';
  gnode n = match_node(GOP_MAP, 0, 0);
  const gexpr e = program_of(text + 1);
  for (char *w = strtok_r(close + 1, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest))
    n.in[n.n_in++] = gt_named(w);
  ck_assert_uint_eq(n.n_in, e.n_in);
  n.expr = graph_expr(gt_graph, &e);
  return n;
}

static void add_node(char *all_names, const char *shape, char *text) {
  char *rest = NULL;
  gnode n = node_of(text);
  uint32_t n_out = 0;
  for (char *name = strtok_r(all_names, "+", &rest); name != NULL; name = strtok_r(NULL, "+", &rest)) {
    n.out[n_out] = gt_root(GV_TEMP, dtype_of(shape), shape);
    name_it(name, n.out[n_out++]);
  }
  if (n.op == GOP_MAP) n.n_out = (uint8_t)n_out;
  ck_assert_int_eq(graph_add_node(gt_graph, &n, GNONE, NULL, NULL), BS_OK);
}

static void add_view(const char *name, const char *shape, char *text) {
  char *rest = NULL, *of = NULL;
  const char *strides = strtok_r(text, " ", &rest);
  const int64_t offset = strtoll(rest, &of, 10);
  ck_assert_msg(strides != NULL && *of == ' ', "no view '%s'", name);
  name_it(name, gt_view(gt_named(of + 1), shape, strides, offset));
}

static void add_line(char *line) {
  char *rest = NULL, *text = strstr(line, " = ");
  if (text != NULL) {
    *text = '\0';
    text += 3;
  }
  char *name = strtok_r(line, " ", &rest);
  const char *shape = strtok_r(NULL, " ", &rest);
  if (shape == NULL) shape = "";
  if (text == NULL)
    name_it(name, gt_root(GV_INPUT, dtype_of(shape), shape));
  else if (strcmp(text, "const") == 0)
    name_it(name, gt_root(GV_CONST, dtype_of(shape), shape));
  else if (strncmp(text, "view ", 5) == 0)
    add_view(name, shape, text + 5);
  else
    add_node(name, shape, text);
}

void gt_make(const char *text) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  char *copy = strdup(text), *rest = NULL;
  for (char *line = strtok_r(copy, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
    add_line(line);
  free(copy);
  port = (gport){GNONE, names[n_names - 1].value};
  gt_graph->outputs = &port;
  gt_graph->n_outputs = 1;
  gt_graph->values[gt_graph->values[port.value].base].flags |= GV_OUTPUT;
  ck_assert_msg(graph_validate(gt_graph, "as made", &err) == BS_OK, "%s\n%s", err.message, text);
}
