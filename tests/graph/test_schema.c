/* SPDX-License-Identifier: MIT
 * test_schema.c - nodes against the schemas of their operators: for every row of the table a whole node is
 * taken, and each way to break it is refused with the name of what is wrong. */
#include "core/base/error.h"
#include "graph/schema.h"
#include "tests/graph/onnx_case.h"

enum { MOST = 24 };

/* A node of a row with all that its schema needs. */
typedef struct made {
  gmodel *model;
  uint32_t value, block;
  uint32_t in[MOST], n_in, n_out;
  bs_attr attrs[MOST];
  uint32_t n_attr;
} made;

static const int64_t ints[2] = {0, 0};
static const double floats[2] = {0, 0};
static const char *const texts[1] = {"a"};
static const bs_tensor_desc one = {.struct_size = sizeof one, .dtype = BS_F32};
static const float number = 1;

static const struct {
  char letter;
  uint32_t type;
} letters[] = {{'i', BS_ATTR_INT},    {'f', BS_ATTR_FLOAT},  {'s', BS_ATTR_TEXT},
               {'I', BS_ATTR_INTS},   {'F', BS_ATTR_FLOATS}, {'S', BS_ATTR_TEXTS},
               {'t', BS_ATTR_TENSOR}, {'g', BS_ATTR_GRAPH},  {'p', GMODEL_ATTR_OTHER}};
enum { LETTERS = sizeof letters / sizeof letters[0] };

static uint32_t type_of(char letter) {
  for (uint32_t i = 0; i < LETTERS; i++)
    if (letters[i].letter == letter) return letters[i].type;
  ck_abort_msg("a row has the type '%c'", letter);
  return 0;
}

static bs_attr attr_of(const made *m, const char *name, uint32_t type) {
  return (bs_attr){.struct_size = sizeof(bs_attr),
                   .type = type,
                   .name = name,
                   .i = type == BS_ATTR_GRAPH ? m->block : 0,
                   .text = "",
                   .count = 1,
                   .ints = ints,
                   .floats = floats,
                   .texts = texts,
                   .tensor = &one,
                   .data = &number};
}

/* The node is added; BS_OK, or the refusal must hold `wanted`. */
static void add(made *m, const schema_row *row, const char *wanted) {
  bs_error err = BS_ERROR_INIT;
  const bs_attr *list[MOST];
  uint32_t out[MOST];
  for (uint32_t i = 0; i < m->n_attr; i++) list[i] = &m->attrs[i];
  for (uint32_t i = 0; i < m->n_out; i++)
    ck_assert_int_eq(gmodel_computed(m->model, NULL, &out[i], &err), BS_OK);
  const gmodel_node_desc desc = {.op = row->op,
                                 .domain = row->domain,
                                 .name = "here",
                                 .opset = row->since,
                                 .in = m->in,
                                 .n_in = m->n_in,
                                 .n_out = m->n_out,
                                 .n_attr = m->n_attr,
                                 .attrs = list};
  const int32_t rc = gmodel_node_add(m->model, &desc, out, &err);
  if (wanted == NULL) {
    ck_assert_msg(rc == BS_OK, "%s %u: %s", row->op, row->since, err.message);
    return;
  }
  ck_assert_msg(rc == BS_INPUT && strcmp(err.id, "BS-GRAPH-BAD") == 0, "%s %u: %s is not refused: %d %s",
                row->op, row->since, wanted, rc, err.message);
  ck_assert_msg(strstr(err.message, wanted) != NULL && strstr(err.message, row->op) != NULL, "%s",
                err.message);
  ck_assert_msg(strstr(err.where, "'here'") != NULL, "%s", err.where);
}

/* All attributes of the row (needed 0), or those that it needs, each with a value that it may have. */
static void take_attrs(made *m, const schema_row *row, char *text, int needed) {
  strcpy(text, row->attrs);
  m->n_attr = 0;
  for (char *at = strtok(text, " "); at != NULL; at = strtok(NULL, " ")) {
    char *mark = strchr(at, ':'), *values = strchr(mark, '=');
    *mark = '\0';
    if (needed && mark[2] != '!') continue;
    bs_attr a = attr_of(m, at, type_of(mark[1]));
    if (values != NULL) {
      values[strcspn(values, "|")] = '\0';
      a.text = values + 1;
      a.i = strtoll(values + 1, NULL, 10);
    }
    ck_assert_uint_lt(m->n_attr, MOST - 1);
    m->attrs[m->n_attr++] = a;
  }
}

static void take_ports(made *m, const schema_row *row) {
  m->n_in = (uint32_t)strlen(row->in);
  while (m->n_in > 0 && strchr("?*", row->in[m->n_in - 1]) != NULL) m->n_in--;
  for (uint32_t i = 0; i < MOST; i++) m->in[i] = m->value;
  m->n_out = 1;
}

static void begin(made *m, const schema_row *row) {
  const int64_t dim = 1;
  *m = (made){0};
  ck_assert_int_eq(gmodel_new(28, &m->model, NULL), BS_OK);
  ck_assert_int_eq(gmodel_input(m->model, "x", BS_F32, 1, &dim, NULL, &m->value, NULL), BS_OK);
  ck_assert_int_eq(gmodel_block_new(m->model, &m->block, NULL), BS_OK);
  take_ports(m, row);
}

START_TEST(whole_nodes) {
  for (uint32_t r = 0; r < schema_n_rows; r++) {
    const schema_row *row = &schema_rows[r];
    made m;
    char text[1000];
    begin(&m, row);
    take_attrs(&m, row, text, 1);
    add(&m, row, NULL);
    take_attrs(&m, row, text, 0);
    m.n_in = (uint32_t)strlen(row->in);
    if (strpbrk(row->in, "*+") != NULL) m.n_in += 3;
    m.n_out = (uint32_t)strlen(row->out);
    add(&m, row, NULL);
    m.in[m.n_in++] = GMODEL_NONE; /* an absent one at the end is none */
    add(&m, row, NULL);
    gmodel_free(m.model);
  }
}
END_TEST

START_TEST(broken_attributes) {
  for (uint32_t r = 0; r < schema_n_rows; r++) {
    const schema_row *row = &schema_rows[r];
    made m;
    char text[1000], wanted[100];
    begin(&m, row);
    take_attrs(&m, row, text, 0);
    const uint32_t n = m.n_attr;
    for (uint32_t i = 0; i < n; i++) { /* of each other type, twice, misspelt */
      const bs_attr kept = m.attrs[i];
      snprintf(wanted, sizeof wanted, "attribute '%s'", kept.name);
      for (uint32_t t = 0; t < LETTERS; t++) {
        if (letters[t].type == kept.type) continue;
        m.attrs[i] = attr_of(&m, kept.name, letters[t].type);
        add(&m, row, wanted);
      }
      m.attrs[i] = m.attrs[m.n_attr++] = kept;
      add(&m, row, wanted);
      m.n_attr--;
      char name[64];
      snprintf(name, sizeof name, "%sx", kept.name);
      m.attrs[i].name = name;
      add(&m, row, name);
      m.attrs[i] = kept;
    }
    m.attrs[m.n_attr++] = attr_of(&m, "axsi", BS_ATTR_INT);
    add(&m, row, "no attribute 'axsi'");
    take_attrs(&m, row, text, 1);
    while (m.n_attr > 0) { /* needed ones, absent from the last on */
      snprintf(wanted, sizeof wanted, "attribute '%s' is absent", m.attrs[m.n_attr - 1].name);
      m.n_attr--;
      if (m.n_attr == 0) add(&m, row, wanted);
    }
    gmodel_free(m.model);
  }
}
END_TEST

START_TEST(broken_values) {
  for (uint32_t r = 0; r < schema_n_rows; r++) {
    const schema_row *row = &schema_rows[r];
    made m;
    char text[1000], wanted[100], mark[70];
    begin(&m, row);
    take_attrs(&m, row, text, 0);
    for (uint32_t i = 0; i < m.n_attr; i++) {
      static const int64_t far[2] = {0, 77};
      bs_attr *a = &m.attrs[i], kept = *a;
      snprintf(mark, sizeof mark, "%s:", a->name);
      const char *at = strstr(row->attrs, mark), *end = at + strcspn(at, " "), *values = strchr(at, '=');
      if (values == NULL || values > end) continue;
      static const char *const odd[] = {"Tanh", "", "none|tanh", "non", "nonex"};
      snprintf(wanted, sizeof wanted, "attribute '%s' has the value", a->name);
      for (uint32_t k = 0; k < sizeof odd / sizeof odd[0]; k++) {
        a->text = odd[k];
        a->i = 77 + k;
        a->ints = far;
        a->count = 2;
        add(&m, row, wanted);
      }
      *a = kept;
    }
    gmodel_free(m.model);
  }
}
END_TEST

START_TEST(broken_ports) {
  for (uint32_t r = 0; r < schema_n_rows; r++) {
    const schema_row *row = &schema_rows[r];
    made m;
    char text[1000];
    begin(&m, row);
    take_attrs(&m, row, text, 1);
    const uint32_t least = m.n_in;
    for (uint32_t i = 0; i < least; i++) {
      if (row->in[i] == '1') { /* absent by an empty name */
        m.in[i] = GMODEL_NONE;
        add(&m, row, "is absent");
        m.in[i] = m.value;
      }
    }
    if (least > 0 && row->in[least - 1] != '+') {
      m.n_in = least - 1;
      add(&m, row, "is absent");
    }
    m.n_in = (uint32_t)strlen(row->in) + 1;
    if (strpbrk(row->in, "*+") == NULL) add(&m, row, "inputs, the operator takes at most");
    m.n_in = least;
    m.n_out = (uint32_t)strlen(row->out) + 1;
    if (strpbrk(row->out, "*+") == NULL) add(&m, row, "outputs, the operator gives at most");
    gmodel_free(m.model);
  }
}
END_TEST

#define HEAD(opset) "<ir_version: 10, opset_import: [\"\" : " #opset "]> "
/* What onnxruntime refuses too, and what it takes (wanted NULL). */
static const struct {
  const char *text, *wanted;
} files[] = {
    {HEAD(20) "g (float[2,2] x) => (float[2,2] y) { y = Gemm <transb: int = 1> (x, x) }",
     "no attribute 'transb'"},
    {HEAD(20) "g (float[2,2] x) => (float[2,2] y) { y = Gemm <transB: float = 1.0> (x, x) }",
     "'transB' is a float"},
    {HEAD(20) "g (float[2,2] x) => (float[2,2] y) { y = Gemm <alpha: int = 2> (x, x) }",
     "'alpha' is an integer"},
    {HEAD(20) "g (float[2,2] x) => (float[2,2] y) { y = Add (x, x, x) }", "it has 3 inputs"},
    {HEAD(13) "g (float[2,2] x) => (float[2,2] y) { y = Clip <min: float = 0.0> (x) }", "no attribute 'min'"},
    {HEAD(13) "g (float[2,2] x) => (float[2,2] y) { y = Softmax <axis: string = \"0\"> (x) }",
     "'axis' is a text"},
    {HEAD(13) "g (float[2,2] x) => (float[2,2] y) { y = Transpose <perm: floats = [0.0, 1.0]> (x) }",
     "'perm' is a list of floats"},
    {HEAD(13) "g (float[2,2] x) => (float[2,2] y) { y = ReduceSum <axes: ints = [0]> (x) }",
     "no attribute 'axes'"},
    {HEAD(12) "g (float[2,2] x) => (float y) { y = ReduceSum <axes: ints = [0]> (x) }", NULL},
    {HEAD(18) "g (float[2,2] x) => (float y) { y = Pad <mode: string = \"wrap\"> (x, x) }",
     "has the value 'wrap'"},
    {HEAD(19) "g (float[2,2] x) => (float y) { y = Pad <mode: string = \"wrap\"> (x, x) }", NULL},
    {HEAD(10) "g (float[2,2] x) => (float y) { y = Gemm (x, x) }", "its input 2 is absent"},
    {HEAD(11) "g (float[2,2] x) => (float y) { y = Gemm (x, x, \"\") }", NULL},
    {HEAD(13) "g (float[2,2] x) => (float y) { y = TopKx <k: int = 1> (x, x, x, x) }", NULL},
    {HEAD(24) "g (float[2,2] x) => (float y) { y = Cast <to: int = 1, round_mode: string = \"up\", saturate: "
              "int = 0> (x) }",
     NULL},
    {HEAD(21) "g (bool c, float[2] x) => (float[2] y) { y = If <then_branch: graph = t () => (float[2] a) { "
              "a = Relu <alpha: "
              "float = 1.0> (x) }, else_branch: graph = e () => (float[2] b) { b = Relu (x) }> (c) }",
     "no attribute 'alpha'"},
};

START_TEST(files_that_break_the_schema) {
  for (uint32_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    bs_context *context;
    bs_graph *g = NULL;
    bs_error err = BS_ERROR_INIT;
    size_t size;
    unsigned char *bytes = onnx_bytes(files[i].text, ONNX_TEXT_RAW, &size);
    const char *path = files_write("m.onnx", bytes, size);
    ck_assert_int_eq(bs_context_open(NULL, &context, NULL), BS_OK);
    const int32_t rc = bs_graph_open(context, path, NULL, &g, &err);
    if (files[i].wanted == NULL)
      ck_assert_msg(rc == BS_OK, "%u: %s", i, err.message);
    else
      ck_assert_msg(rc == BS_INPUT && strstr(err.message, files[i].wanted) != NULL &&
                        strstr(err.where, "that gives") != NULL,
                    "%u: %d %s", i, rc, err.message);
    if (rc == BS_OK) bs_graph_close(g);
    bs_context_close(context);
    free(bytes);
  }
}
END_TEST

/* bs_graph_check tries sizes for symbols. `note`: what it says of nodes that fit none of them. */
static const struct {
  const char *text, *dim, *note;
  int64_t size;
  int32_t rc;
} guesses[] = {
    {HEAD(17) "g (float[b,1,n] x, float[1,1,10] w) => (float y) { y = Conv (x, w) }", NULL, "", 0, BS_OK},
    {HEAD(17) "g (float[b,s,4] x, float[1,1,4] p) => (float y) { y = Add (x, p) }", NULL, "", 0, BS_OK},
    {HEAD(17) "g (float[b,s] x, float[1,77] p) => (float y) { t = Add (x, p) y = Relu (t) }", NULL, "", 0,
     BS_OK}, /* at 1 */
    {HEAD(17) "g (float[b,s] x, float[77] p, float[33] q) => (float y) { t = Concat <axis: int = 1> (x, x)"
              " y = Add (t, p) z = Add (x, q) }",
     NULL, "--dim b=N --dim s=N", 0, BS_OK},
    {HEAD(17) "g (float[b,s] x, float[77] p) => (float y) { t = Concat <axis: int = 1> (x, x, x, x, x, x, x)"
              " y = Add (t, p) }",
     "s", "", 11, BS_OK},
    {HEAD(17) "g (float[b,s] x, float[77] p) => (float y) { t = Concat <axis: int = 1> (x, x, x, x, x, x, x)"
              " y = Add (t, p) }",
     "s", "--dim b=N", 12, BS_OK},
    {HEAD(17) "g (float[b,2] x, float[3] z, float[2] p) => (float y) { y = Add (z, p) }", NULL, "", 0,
     BS_INPUT},
};

START_TEST(guessed_sizes_are_not_judged) {
  bs_context *context;
  bs_graph *g = NULL;
  bs_error err = BS_ERROR_INIT;
  size_t size;
  unsigned char *bytes = onnx_bytes(guesses[_i].text, 0, &size);
  const bs_dim dim = {.struct_size = sizeof dim, .name = guesses[_i].dim, .size = guesses[_i].size};
  const bs_dim *const dims[] = {&dim};
  ck_assert_int_eq(bs_context_open(NULL, &context, NULL), BS_OK);
  const char *path = files_write("m.onnx", bytes, size);
  ck_assert_msg(bs_graph_open(context, path, NULL, &g, &err) == BS_OK, "%s", err.message);
  const int32_t rc = bs_graph_check(g, NULL, dims, dim.name != NULL, NULL, NULL, &err);
  ck_assert_msg(rc == guesses[_i].rc, "%d %s", rc, err.message);
  if (rc == BS_OK) {
    ck_assert_str_eq(err.id, guesses[_i].note[0] != '\0' ? "BS-GRAPH-GUESS" : "");
    ck_assert_msg(strstr(err.hint, guesses[_i].note) != NULL, "%s", err.hint);
  }
  bs_graph_close(g);
  bs_context_close(context);
  free(bytes);
}
END_TEST

int main(void) {
  const test_case rows[] = {{whole_nodes},
                            {broken_attributes},
                            {broken_values},
                            {broken_ports},
                            {files_that_break_the_schema},
                            {guessed_sizes_are_not_judged, TEST_COUNT(guesses)},
                            {0}};
  return run_tests("schema", rows, (test_setup){files_begin, files_end, 20});
}
