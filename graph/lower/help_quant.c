/* SPDX-License-Identifier: MIT
 * help_quant.c - quantised constants in the lowering: products and embeddings take them as they are, all
 * other rules get their floats. bs_session_options.weights makes them of the model's float weights. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/op/quant.h"
#include "graph/ir/arena.h"
#include "graph/lower/frame.h"

/* Data types of ONNX that nothing computes with. */
enum { DTYPE_I4 = 0x0004, DTYPE_U4 = 0x0104 };

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to lower the model");
}

static int32_t note_quant(lower_ctx *c, const lower_quant *q, bs_error *err) {
  if (!ARRAY_GROW(c->quants, c->n_quants, c->cap_quants)) return no_memory(err);
  c->quants[c->n_quants++] = *q;
  return BS_OK;
}

lower_quant *lower_quant_find(const lower_ctx *c, uint32_t root) {
  for (uint32_t i = c->n_quants; i-- > 0;)
    if (c->quants[i].value == root) return &c->quants[i];
  return NULL;
}

int lower_is_quant(const lower_ctx *c, uint32_t value) {
  return value != GNONE && !lower_is_compound(value) && graph_quant(c->g, value) != NULL;
}

uint32_t lower_float_dtype(const lower_ctx *c, uint32_t value) {
  if (value == GNONE) return 0;
  return lower_is_quant(c, value) ? lower_quant_find(c, c->g->values[value].base)->dtype
                                  : lower_dtype(c, value);
}

/* A view [K,N] of a root [N,K]. */
static int is_turned(const gvalue *v, const gvalue *root) {
  return v->kind == GV_VIEW && v->rank == 2 && v->dims[0] == root->dims[1] && v->dims[1] == root->dims[0] &&
         v->strides[0] == 1 && v->strides[1] == root->dims[1];
}

static int32_t turn(lower_ctx *c, uint32_t value, uint32_t *out_value, bs_error *err) {
  const uint32_t order[2] = {1, 0};
  return lower_transpose(c, value, order, out_value, err);
}

/* ---- which rules take them -------------------------------------------------------------------- */

static int is_one_of(const gmodel_node *node, const char *const *ops, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(node->op, ops[i]) == 0) return 1;
  return 0;
}

int lower_takes_nibbles(const gmodel_node *node, uint32_t dtype) {
  static const char *const ops[] = {"DequantizeLinear", "GatherBlockQuantized"};
  return (dtype == DTYPE_I4 || dtype == DTYPE_U4) && is_one_of(node, ops, sizeof ops / sizeof ops[0]);
}

int32_t lower_quant_inputs(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  static const char *const ops[] = {"MatMul",   "Gemm", "FusedMatMul", "Gather",
                                    "Identity", "Cast", "Transpose"};
  c->takes_quant = 1; /* lower_in gives what there is */
  const int takes = is_one_of(node, ops, sizeof ops / sizeof ops[0]);
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < node->n_in && !takes && rc == BS_OK && c->n_quants > 0; i++) {
    uint32_t value = lower_in(c, node, i);
    if (lower_is_quant(c, value)) rc = lower_wide(c, node, value, &value, err);
  }
  c->takes_quant = takes;
  return rc;
}

/* ---- as floats -------------------------------------------------------------------------------- */

int32_t lower_unpacked(lower_ctx *c, uint32_t *io_value, bs_error *err) {
  const gvalue v = c->g->values[*io_value];
  if (v.dtype != DTYPE_I4 && v.dtype != DTYPE_U4) return BS_OK;
  const int64_t count = graph_count(&v);
  const unsigned char *from = v.data;
  unsigned char *to = graph_data(c->g, (uint64_t)count);
  if (to == NULL) return no_memory(err);
  for (int64_t i = 0; i < count; i++) {
    const int code = from[i / 2] >> 4 * (i % 2) & 15;
    to[i] = (unsigned char)(v.dtype == DTYPE_I4 && code > 7 ? code - 16 : code);
  }
  return lower_const_model(c, v.dtype == DTYPE_I4 ? BS_I8 : BS_U8, v.rank, v.dims, to, io_value, err);
}

static int32_t wide_codes(lower_ctx *c, const lower_quant *q, uint32_t *out_value, bs_error *err) {
  lower_codes codes = q->codes;
  if (codes.axis < 0) codes.axis = 1; /* of one scale it does not count */
  const int32_t rc = lower_floats_of(c, &codes, out_value, err);
  return rc == BS_OK && q->turned ? turn(c, *out_value, out_value, err) : rc;
}

static int32_t wide_read(lower_ctx *c, const lower_quant *q, uint32_t *out_value, bs_error *err) {
  const gvalue v = c->g->values[q->value];
  float *data = graph_data(c->g, graph_bytes(&v));
  if (data == NULL) return no_memory(err);
  const int32_t rc = graph_read_const(c->g, q->value, data, err);
  return rc == BS_OK ? lower_const_model(c, BS_F32, 2, v.dims, data, out_value, err) : rc;
}

/* The floats [N,K] of a root. */
static int32_t wide_root(lower_ctx *c, uint32_t root, uint32_t *out_value, bs_error *err) {
  const lower_quant q = *lower_quant_find(c, root);
  *out_value = q.wide;
  if (q.wide != GNONE) return BS_OK;
  uint32_t value = GNONE;
  int32_t rc = q.from != GNONE      ? wide_root(c, q.from, &value, err)
               : q.codes.x != GNONE ? wide_codes(c, &q, &value, err)
                                    : wide_read(c, &q, &value, err);
  if (rc == BS_OK && lower_dtype(c, value) != q.dtype) rc = lower_cast(c, value, q.dtype, &value, err);
  if (rc == BS_OK) *out_value = lower_quant_find(c, root)->wide = value;
  return rc;
}

uint32_t lower_known_wide(const lower_ctx *c, uint32_t value) {
  const gvalue *v = &c->g->values[value];
  const uint32_t wide = lower_quant_find(c, v->base)->wide;
  const gvalue *w = wide != GNONE ? &c->g->values[wide] : NULL;
  if (w == NULL || v->kind != GV_VIEW) return wide;
  for (uint32_t i = c->g->values[w->base].next_view; i != GNONE; i = c->g->values[i].next_view) {
    const gvalue *t = &c->g->values[i];
    if (t->rank == 2 && t->dims[0] == w->dims[1] && t->dims[1] == w->dims[0] && t->offset == w->offset &&
        t->strides[0] == w->strides[1] && t->strides[1] == w->strides[0])
      return i;
  }
  return GNONE;
}

static int32_t note_wide(lower_ctx *c, const gmodel_node *node, uint32_t root, uint32_t wide, bs_error *err) {
  char text[300];
  snprintf(text, sizeof text, "%.64s dequantised at load: %llu bytes, read by %.60s%s%.80s",
           graph_text_of(c->g, c->g->values[root].name), (unsigned long long)graph_bytes(&c->g->values[wide]),
           node->op, node->name[0] != '\0' ? " " : "", node->name);
  const uint32_t note = graph_origin(c->g, text + (text[0] == ' '), c->g->notes);
  if (note == GNONE) return no_memory(err);
  c->g->notes = note;
  return BS_OK;
}

int32_t lower_wide(lower_ctx *c, const gmodel_node *node, uint32_t value, uint32_t *out_value,
                   bs_error *err) {
  *out_value = value;
  if (value == GNONE || !lower_is_quant(c, value)) return BS_OK;
  const uint32_t root = c->g->values[value].base;
  const int made = lower_quant_find(c, root)->wide != GNONE;
  uint32_t wide;
  int32_t rc = wide_root(c, root, &wide, err);
  if (rc == BS_OK && !made) rc = note_wide(c, node, root, wide, err);
  if (rc != BS_OK) return rc;
  *out_value = wide;
  if (is_turned(&c->g->values[value], &c->g->values[root])) rc = turn(c, wide, out_value, err);
  return rc;
}

/* ---- where they come from --------------------------------------------------------------------- */

int32_t lower_quant_given(lower_ctx *c, uint32_t model_value, uint32_t *out_value, bs_error *err) {
  const gmodel_value *v = &c->model->values[model_value];
  gquant q = {.quant = *v->quant, .n_keys = 1, .x_bytes = v->x_bytes};
  int32_t rc = bs_quant_check(&q.quant, v->name, err);
  if (rc != BS_OK) return rc;
  const int64_t rows = q.quant.rows;
  q.places[0] = (gquant_place){v->data, v->bytes, rows, rows > 0 ? (int64_t)v->bytes / rows : 0};
  q.keys[0].at[0] = (uint64_t)(uintptr_t)v->quant->ctx;
  q.keys[0].at[1] = (uint64_t)(uintptr_t)v->data;
  rc = graph_add_quant(c->g, &q, v->name, out_value, err);
  const lower_quant known = {
      .value = *out_value, .from = GNONE, .wide = GNONE, .dtype = BS_F32, .codes = {.x = GNONE}};
  return rc == BS_OK ? note_quant(c, &known, err) : rc;
}

static int32_t add_codes(lower_ctx *c, const lower_codes *codes, int turned, uint32_t *out_root,
                         bs_error *err) {
  gquant q = {.n_keys = 1};
  int ok = 0;
  *out_root = GNONE;
  int32_t rc = lower_read_codes(c, codes, turned, &q, &ok, err);
  if (rc != BS_OK || !ok) return rc;
  rc = graph_add_quant(c->g, &q, graph_text_of(c->g, c->g->values[codes->x].name), out_root, err);
  const lower_quant known = {.value = *out_root,
                             .from = GNONE,
                             .wide = GNONE,
                             .dtype = codes->dtype,
                             .turned = turned,
                             .codes = *codes};
  return rc == BS_OK ? note_quant(c, &known, err) : rc;
}

int32_t lower_quant_codes(lower_ctx *c, const lower_codes *codes, uint32_t *out_value, bs_error *err) {
  const int turned = codes->block > 0 ? codes->axis == 0 : codes->axis == 1;
  uint32_t root;
  const int32_t rc = add_codes(c, codes, turned, &root, err);
  *out_value = root;
  return rc == BS_OK && root != GNONE && turned ? turn(c, root, out_value, err) : rc;
}

int32_t lower_quant_cast(lower_ctx *c, uint32_t value, uint32_t dtype, uint32_t *out_value, bs_error *err) {
  const uint32_t root = c->g->values[value].base;
  const lower_quant *from = lower_quant_find(c, root);
  *out_value = value;
  if (from->dtype == dtype) return BS_OK;
  const gquant q = *graph_quant(c->g, root);
  const lower_codes codes = from->codes;
  const int turned = from->turned;
  uint32_t again;
  int32_t rc = graph_add_quant(c->g, &q, graph_text_of(c->g, c->g->values[root].name), &again, err);
  const lower_quant known = {
      .value = again, .from = root, .wide = GNONE, .dtype = dtype, .turned = turned, .codes = codes};
  if (rc == BS_OK) rc = note_quant(c, &known, err);
  if (rc != BS_OK) return rc;
  *out_value = again;
  return is_turned(&c->g->values[value], &c->g->values[root]) ? turn(c, again, out_value, err) : rc;
}

int32_t lower_quant_blocks(lower_ctx *c, const lower_blocks *blocks, uint32_t *out_value, bs_error *err) {
  gquant q = {.n_keys = 1, .x_bytes = blocks->x_bytes != 0};
  int32_t rc = lower_read_blocks(c, blocks, &q, err);
  const char *name = graph_text_of(c->g, c->g->values[blocks->codes].name);
  if (rc == BS_OK) rc = graph_add_quant(c->g, &q, name, out_value, err);
  const lower_quant known = {.value = *out_value,
                             .from = GNONE,
                             .wide = GNONE,
                             .dtype = lower_dtype(c, blocks->scale),
                             .codes = {.x = GNONE}};
  return rc == BS_OK ? note_quant(c, &known, err) : rc;
}

int32_t lower_note_dequantised(lower_ctx *c, uint32_t value, const lower_codes *codes, bs_error *err) {
  const lower_quant known = {.value = value, .from = GNONE, .wide = GNONE, .codes = *codes};
  return c->g->values[value].kind == GV_VIEW ? BS_OK : note_quant(c, &known, err);
}

int lower_is_dequantised(const lower_ctx *c, uint32_t value, lower_codes *out_codes) {
  const lower_quant *q = lower_quant_find(c, value);
  if (q == NULL || q->codes.x == GNONE || lower_is_quant(c, value)) return 0;
  *out_codes = q->codes;
  return 1;
}

const bs_quant *lower_quant_form(const lower_ctx *c, uint32_t quant) {
  return c->options->x_bytes == 1 ? NULL : &graph_quant(c->g, quant)->quant;
}

int32_t lower_quant_sums(lower_ctx *c, uint32_t quant, uint32_t *out_scales, uint32_t *out_sums,
                         bs_error *err) {
  const bs_quant *q = &graph_quant(c->g, quant)->quant;
  const int64_t rows = q->rows;
  float *scales = graph_data(c->g, (uint64_t)rows * sizeof *scales);
  int32_t *sums = graph_data(c->g, (uint64_t)rows * sizeof *sums);
  uint8_t *codes = malloc((size_t)q->cols + 1u);
  int32_t rc = scales == NULL || sums == NULL || codes == NULL ? no_memory(err) : BS_OK;
  for (int64_t n = 0; n < rows && rc == BS_OK; n++) {
    uint8_t zero = (uint8_t)q->zero;
    const bs_quant_rows out = {.struct_size = (uint32_t)sizeof out,
                               .codes = codes,
                               .codes_stride = q->cols,
                               .scales = &scales[n],
                               .zeros = q->flags & BS_QUANT_ZEROS ? &zero : NULL};
    rc = q->read(q->ctx, n, 1, &out, err);
    sums[n] = 0;
    for (int64_t k = 0; k < q->cols && rc == BS_OK; k++) sums[n] += (int32_t)codes[k] - zero;
  }
  free(codes);
  if (rc == BS_OK) rc = lower_const_model(c, BS_F32, 1, &rows, scales, out_scales, err);
  return rc == BS_OK ? lower_const_model(c, BS_I32, 1, &rows, sums, out_sums, err) : rc;
}

int32_t lower_note_cast(lower_ctx *c, uint32_t value, uint32_t from, bs_error *err) {
  if (c->g->values[from].kind == GV_VIEW || c->g->values[value].kind == GV_VIEW) return BS_OK;
  const lower_quant known = {.value = value, .from = from, .wide = GNONE, .codes = {.x = GNONE}};
  return c->options->weights != NULL ? note_quant(c, &known, err) : BS_OK;
}

/* ---- bs_session_options.weights --------------------------------------------------------------- */

enum { SCHEME = 32, PATTERN = 200, NAMES = 3 };

/* The next "PATTERN=SCHEME" or "SCHEME" of a list; 0: it ends, or an entry is too long. */
static int next_entry(const char **io_list, char pattern[PATTERN], char scheme[SCHEME]) {
  const char *at = *io_list, *end = at + strcspn(at, ";,");
  if (*at == '\0') return 0;
  const char *equals = end;
  while (equals > at && equals[-1] != '=') equals--;
  const size_t letters = equals > at ? (size_t)(equals - 1 - at) : 1u, rest = (size_t)(end - equals);
  if (letters >= PATTERN || rest >= SCHEME) return 0;
  memcpy(pattern, equals > at ? at : "*", letters);
  pattern[letters] = '\0';
  memcpy(scheme, equals, rest);
  scheme[rest] = '\0';
  *io_list = *end != '\0' ? end + 1 : end;
  return 1;
}

int32_t lower_weights_check(const char *list, bs_error *err) {
  char pattern[PATTERN], scheme[SCHEME];
  const char *at = list;
  bs_quant form;
  int32_t rc = BS_OK;
  while (at != NULL && rc == BS_OK && next_entry(&at, pattern, scheme))
    rc = strcmp(scheme, "float") == 0 ? BS_OK : bs_quant_scheme(scheme, 16, 256, &form, err);
  if (rc == BS_OK && at != NULL && (*at != '\0' || *list == '\0')) {
    rc = bs_error_set(err, BS_CONFIG, "BS-QUANT-SCHEME", "weights: '%.60s' is no list of schemes", list);
    bs_error_hint(err, "w8, or NAMES=w8;*=w4g32, where * stands for any text");
  }
  if (rc != BS_INVALID_ARGUMENT) return rc;
  if (err != NULL) err->code = BS_CONFIG;
  return BS_CONFIG;
}

static int matches(const char *pattern, const char *name) {
  static const char weight[] = ".weight";
  char shorter[PATTERN];
  const size_t size = strlen(name), ending = sizeof weight - 1;
  if (name[0] == '\0') return 0;
  if (fnmatch(pattern, name, 0) == 0) return 1;
  if (size <= ending || size - ending >= PATTERN || strcmp(name + size - ending, weight) != 0) return 0;
  memcpy(shorter, name, size - ending);
  shorter[size - ending] = '\0';
  return fnmatch(pattern, shorter, 0) == 0;
}

/* The scheme of a weight by its names, the first that fits; 0: it stays float. named 1: not by `*`. */
static int find_scheme(const char *list, const char *const names[NAMES], int named, char scheme[SCHEME]) {
  char pattern[PATTERN];
  while (next_entry(&list, pattern, scheme)) {
    int found = strcmp(pattern, "*") == 0;
    const int all = found;
    for (uint32_t i = 0; i < NAMES && !found; i++) found = matches(pattern, names[i]);
    if (!found) continue;
    return strcmp(scheme, "float") != 0 && !(named && all);
  }
  return 0;
}

/* A product reads the constant too: the table is that of a tied head. */
static int has_product(const lower_ctx *c, uint32_t source) {
  static const char *const ops[] = {"MatMul", "Gemm", "FusedMatMul", "Transpose"};
  for (uint32_t i = 0; i < c->model->n_nodes && source != GNONE; i++) {
    const gmodel_node *n = &c->model->nodes[i];
    for (uint32_t k = 0; k < n->n_in; k++)
      if (n->in[k] == source && is_one_of(n, ops, sizeof ops / sizeof ops[0])) return 1;
  }
  return 0;
}

/* A float constant [N,K], or the cast of one, in the form that the list has for it. */
static int32_t make_quant(lower_ctx *c, const gmodel_node *node, uint32_t value, int table,
                          uint32_t *out_quant, bs_error *err) {
  char scheme[SCHEME];
  const gvalue v = c->g->values[value];
  const lower_quant *cast = lower_quant_find(c, v.base);
  uint32_t weight = value;
  int32_t rc = BS_OK;
  if (cast != NULL && cast->from != GNONE) { /* of the same shape, both dense */
    rc = graph_add_view(c->g, cast->from, lower_dtype(c, cast->from), 2, v.dims, v.strides, v.offset, &weight,
                        err);
    if (rc != BS_OK) return rc;
  }
  const gvalue root = c->g->values[c->g->values[weight].base];
  const char *const names[NAMES] = {graph_text_of(c->g, root.name), node->name,
                                    graph_text_of(c->g, c->g->values[v.base].name)};
  if (root.kind != GV_CONST || !bs_dtype_is_float(root.dtype) || root.dtype == BS_F64 ||
      root.source == GNONE || v.rank != 2 || v.dims[0] < 1 || v.dims[1] < 1 ||
      !find_scheme(c->options->weights, names, table && !has_product(c, root.source), scheme))
    return BS_OK;
  gquant q = {.n_keys = 1};
  bs_quant form;
  rc = bs_quant_scheme(scheme, v.dims[0], v.dims[1], &form, err);
  if (rc == BS_OK) rc = lower_read_rounded(c, weight, &form, &q, err);
  return rc == BS_OK ? graph_add_quant(c->g, &q, names[0], out_quant, err) : rc;
}

int32_t lower_quant_weight(lower_ctx *c, const gmodel_node *node, uint32_t value, int table,
                           uint32_t *out_quant, bs_error *err) {
  const gvalue v = c->g->values[value], root = c->g->values[v.base];
  *out_quant = GNONE;
  if (!lower_is_quant(c, value))
    return c->options->weights != NULL ? make_quant(c, node, value, table, out_quant, err) : BS_OK;
  if (!is_turned(&v, &root) || (v.dims[0] == 1 && v.dims[1] == 1)) {
    *out_quant = v.base;
    return BS_OK;
  }
  const lower_quant *q = lower_quant_find(c, v.base);
  if (q->codes.x == GNONE || q->codes.axis >= 0) return BS_OK; /* its groups lie along N */
  const lower_codes codes = q->codes;
  return add_codes(c, &codes, !q->turned, out_quant, err);
}

/* ---- ops -------------------------------------------------------------------------------------- */

static gnode node_of(uint32_t op, uint32_t n_in, uint32_t quant) {
  gnode n = {.op = (uint16_t)op, .n_in = (uint8_t)n_in, .n_out = 1, .weight = quant, .expr = GNONE};
  for (uint32_t i = 0; i < GNODE_IN; i++) n.in[i] = GNONE;
  for (uint32_t i = 0; i < GNODE_OUT; i++) n.out[i] = GNONE;
  return n;
}

/* The most columns whose sum of bytes fits 32 bits with one scale in X and W. */
enum { BYTES_COLUMNS = 65536 };

static int in_bytes(const lower_ctx *c, const gquant *q) {
  if (q->quant.group == q->quant.cols && q->quant.cols > BYTES_COLUMNS) return 0;
  return c->options->x_bytes == 0 ? q->x_bytes != 0 : c->options->x_bytes == 2;
}

int32_t lower_matmul_q(lower_ctx *c, uint32_t x, uint32_t quant, uint32_t bias, uint32_t dtype,
                       uint32_t *out_y, bs_error *err) {
  const gvalue v = c->g->values[x];
  const gquant *q = graph_quant(c->g, quant);
  if (v.rank == 0 || v.dims[v.rank - 1] != q->quant.cols)
    return bs_error_set(err, BS_INPUT, "BS-GRAPH-SHAPE", "a product with a weight of %lld columns",
                        (long long)q->quant.cols);
  int64_t rows = 1, dims[BS_MAX_DIMS] = {0};
  memcpy(dims, v.dims, sizeof dims);
  for (uint32_t i = 0; i + 1 < v.rank; i++) rows *= v.dims[i];
  dims[v.rank - 1] = q->quant.rows;
  const int64_t flat[2] = {rows, q->quant.cols}, out_flat[2] = {rows, q->quant.rows};
  gnode n = node_of(GOP_MATMUL_Q, 3, quant);
  n.in[1] = bias;
  n.attrs[0] = bs_dtype_is_float(v.dtype) && in_bytes(c, q);
  uint32_t dense = x, y;
  int32_t rc = BS_OK;
  if (v.dims[v.rank - 1] > 1 && v.strides[v.rank - 1] != 1) rc = lower_copy(c, x, &dense, err);
  if (rc == BS_OK) rc = lower_reshape(c, dense, 2, flat, &n.in[0], err);
  if (rc == BS_OK) rc = lower_temp(c, dtype, 2, out_flat, &y, err);
  if (rc != BS_OK) return rc;
  n.out[0] = y;
  rc = lower_emit(c, &n, err);
  return rc == BS_OK ? lower_reshape(c, y, v.rank, dims, out_y, err) : rc;
}

int32_t lower_take_q(lower_ctx *c, uint32_t quant, uint32_t index, uint32_t dtype, uint32_t *out_y,
                     bs_error *err) {
  int32_t rc = lower_guard_index(c, BS_INDEX_ROWS, quant, 0, &index, err);
  const gvalue x = c->g->values[index], w = c->g->values[quant];
  if (x.rank >= BS_MAX_DIMS)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-RANK",
                        "an index gives a value of more than %d dimensions", BS_MAX_DIMS);
  const int64_t count = graph_count(&x), flat[2] = {count, w.dims[1]};
  int64_t dims[BS_MAX_DIMS] = {0};
  memcpy(dims, x.dims, sizeof dims);
  dims[x.rank] = w.dims[1];
  gnode n = node_of(GOP_TAKE_Q, 1, quant);
  if (rc == BS_OK) rc = lower_reshape(c, index, 1, &count, &n.in[0], err);
  if (rc == BS_OK) rc = lower_temp(c, dtype, 2, flat, &n.out[0], err);
  if (rc == BS_OK) rc = lower_emit(c, &n, err);
  return rc == BS_OK ? lower_reshape(c, n.out[0], x.rank + 1u, dims, out_y, err) : rc;
}
