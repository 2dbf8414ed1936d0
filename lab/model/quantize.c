/* SPDX-License-Identifier: MIT
 * quantize.c - see quantize.h. One weight is held at a time: it is rounded when the first piece of its codes
 * is written, and its codes are freed with the last. */
#include "lab/model/quantize.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/op/quant.h"
#include "lab/model/quantize_x.h"
#include "lab/stop.h"

enum { SLAB = 16, NAME = 1200 };
/* Numbers of types that are newer than the reader's list. */
enum { TYPE_UINT4 = 21, TYPE_INT4 = 22 };

typedef struct weight {
  bs_quantize_weight of;
  bs_quant form;
  uint32_t nbits; /* 1: MatMulNBits in the place of its MatMuls */
  char scheme[16];
  char name[NAME], codes_name[NAME + 16], scales_name[NAME + 16], zeros_name[NAME + 16];
  uint64_t codes_bytes, scales_bytes, zeros_bytes;
  uint8_t *codes; /* as the file has them */
  float *scales;  /* [rows][groups] */
  uint8_t *zeros; /* the same; of forms with zeros */
  double error;
} weight;

typedef struct job {
  const bs_quantize_request *request;
  bs_onnx model;
  int64_t opset;
  bs_quantize_weight *picked;
  size_t n_picked;
  weight *weights; /* room for all that were picked */
  size_t n_weights;
  int has_nbits; /* 1: MatMulNBits stands in the copy */
  bs_span *dropped;
  bs_onnx_new_tensor *tensors;
  bs_onnx_new_node *nodes;
  bs_quantize_x x;
  char **texts; /* names of the file, terminated */
  size_t n_tensors, n_nodes, n_texts;
} job;

/* ---- schemes ------------------------------------------------------------------------------------ */

void bs_quantize_scheme_of(const char *list, const char *name, char *out, size_t size) {
  out[0] = '\0';
  for (const char *at = list; *at != '\0'; at += strcspn(at, ";"), at += *at == ';') {
    const size_t length = strcspn(at, ";"), pattern = strcspn(at, "=;");
    char text[256];
    const int whole = pattern == length;
    snprintf(text, sizeof text, "%.*s", (int)(pattern < 255 ? pattern : 255), at);
    if (!whole && fnmatch(text, name, 0) != 0) continue;
    const char *scheme = whole ? at : at + pattern + 1;
    snprintf(out, size, "%.*s", (int)(length - (size_t)(scheme - at)), scheme);
    return;
  }
}

static int32_t form_of(const bs_quantize_weight *w, const char *scheme, bs_quant *out, bs_error *err) {
  const int32_t rc = bs_quant_scheme(scheme, w->rows, w->cols, out, err);
  if (rc != BS_OK) {
    if (err != NULL) err->code = BS_USAGE;
    return BS_USAGE;
  }
  if ((out->flags & (BS_QUANT_LOWS | BS_QUANT_STEPS)) == 0) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-QUANT-SCHEME", "%s cannot be written as ONNX", scheme);
  bs_error_hint(err,
                "w8, w8g32, w4g32, w4g128, w4z32; w4k and w6k are for --weights of run, bench, generate");
  return BS_USAGE;
}

/* ---- rounding ----------------------------------------------------------------------------------- */

static void read_rows(const weight *w, int64_t row, int64_t n, float *out) {
  const bs_onnx_tensor *t = w->of.tensor;
  const int64_t cols = w->of.cols, rows = w->of.rows;
  const uint32_t dtype = t->type == BS_ONNX_FLOAT ? BS_F32 : BS_F16;
  const char *data = t->data;
  const int64_t size = (int64_t)BS_DTYPE_BYTES(dtype);
  if (!w->of.turned) {
    bs_convert(BS_F32, out, dtype, data + row * cols * size, (uint64_t)(n * cols));
    return;
  }
  float line[SLAB];
  for (int64_t k = 0; k < cols; k++) {
    bs_convert(BS_F32, line, dtype, data + (k * rows + row) * size, (uint64_t)n);
    for (int64_t r = 0; r < n; r++) out[r * cols + k] = line[r];
  }
}

/* Puts a code at its place in the file. */
static void put_code(const weight *w, int64_t n, int64_t k, uint32_t code) {
  const int nbits = w->nbits != 0, zeros = (w->form.flags & BS_QUANT_ZEROS) != 0;
  const int64_t group = w->form.group, blocks = bs_quant_groups(&w->form);
  const int64_t at = nbits          ? (n * blocks + k / group) * group + k % group
                     : w->of.turned ? k * w->of.rows + n
                                    : n * w->of.cols + k;
  if (!nbits && !zeros) code ^= w->form.bits == 8 ? 128u : 8u; /* signed: code - 128, code - 8 */
  if (w->form.bits == 8)
    w->codes[at] = (uint8_t)code;
  else
    w->codes[at / 2] = (uint8_t)(w->codes[at / 2] | code << (at % 2 * 4));
}

static void take_rows(weight *w, int64_t row, int64_t n, const float *values, const uint8_t *codes,
                      double *changed, double *size) {
  const int64_t cols = w->of.cols, groups = bs_quant_groups(&w->form);
  for (int64_t r = 0; r < n; r++)
    for (int64_t k = 0; k < cols; k++) {
      const int64_t g = (row + r) * groups + k / w->form.group;
      const int32_t zero = w->zeros != NULL ? w->zeros[g] : w->form.zero;
      const double was = (double)values[r * cols + k];
      const double is = (double)w->scales[g] * (double)((int32_t)codes[r * cols + k] - zero);
      *changed += (is - was) * (is - was);
      *size += was * was;
      put_code(w, row + r, k, codes[r * cols + k]);
    }
}

/* The scales of an f16 model are f16. */
static void as_halves(float *scales, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint16_t half;
    bs_convert(BS_F16, &half, BS_F32, &scales[i], 1);
    bs_convert(BS_F32, &scales[i], BS_F16, &half, 1);
  }
}

static int32_t round_weight(weight *w, bs_error *err) {
  const int64_t cols = w->of.cols, groups = bs_quant_groups(&w->form);
  float *values = malloc((size_t)(SLAB * cols) * sizeof *values);
  uint8_t *codes = malloc((size_t)(SLAB * cols));
  double changed = 0.0, size = 0.0;
  int32_t rc = BS_OK;
  w->codes = calloc(w->codes_bytes, 1);
  w->scales = malloc((size_t)(w->of.rows * groups) * sizeof *w->scales);
  if (w->zeros_bytes > 0) w->zeros = malloc((size_t)(w->of.rows * groups));
  if (values == NULL || codes == NULL || w->codes == NULL || w->scales == NULL ||
      (w->zeros_bytes > 0 && w->zeros == NULL))
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory to round %.100s", w->name);
  for (int64_t row = 0; rc == BS_OK && row < w->of.rows; row += SLAB) {
    const int64_t n = w->of.rows - row < SLAB ? w->of.rows - row : SLAB;
    const bs_quant_rows out = {.struct_size = (uint32_t)sizeof out,
                               .codes = codes,
                               .codes_stride = cols,
                               .scales = w->scales + row * groups,
                               .zeros = w->zeros != NULL ? w->zeros + row * groups : NULL};
    read_rows(w, row, n, values);
    bs_quant_round(&w->form, values, cols, n, &out);
    if (w->of.tensor->type == BS_ONNX_FLOAT16) as_halves(out.scales, n * groups);
    take_rows(w, row, n, values, codes, &changed, &size);
    rc = bs_stop_check(err);
  }
  w->error = size > 0.0 ? sqrt(changed / size) : 0.0;
  free(values);
  free(codes);
  return rc;
}

/* ---- tensors of the copy ------------------------------------------------------------------------- */

static int32_t fill_codes(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  weight *w = ctx;
  if (offset == 0) {
    const int32_t rc = round_weight(w, err);
    if (rc != BS_OK) return rc;
  }
  memcpy(out, w->codes + offset, bytes);
  if (offset + bytes < w->codes_bytes) return BS_OK;
  free(w->codes);
  w->codes = NULL;
  return BS_OK;
}

/* Element i of the scales, or the zeros, of the file: it has the groups of a column one above the other where
 * the weight is turned. */
static int64_t group_at(const weight *w, int64_t i) {
  const int64_t rows = w->of.rows, groups = bs_quant_groups(&w->form);
  return w->of.turned && !w->nbits ? i % rows * groups + i / rows : i;
}

static int32_t fill_scales(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  const weight *w = ctx;
  const uint32_t dtype = w->of.tensor->type == BS_ONNX_FLOAT ? BS_F32 : BS_F16;
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  (void)err;
  for (uint64_t i = 0; i < bytes / size; i++)
    bs_convert(dtype, (char *)out + i * size, BS_F32, &w->scales[group_at(w, (int64_t)(offset / size + i))],
               1);
  return BS_OK;
}

/* Zeros of 8 bits as they are, of 4 bits two a byte; of MatMulNBits each row begins a byte. */
static int32_t fill_zeros(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  const weight *w = ctx;
  const int64_t groups = bs_quant_groups(&w->form), all = w->of.rows * groups;
  const int64_t line = (groups + 1) / 2;
  uint8_t *to = out;
  (void)err;
  for (uint64_t b = 0; b < bytes; b++) {
    const int64_t at = (int64_t)(offset + b);
    uint32_t byte = 0;
    for (int64_t half = 0; half < 2; half++) {
      const int64_t g = at % line * 2 + half, flat = w->nbits ? at / line * groups + g : at * 2 + half;
      if (w->nbits ? g < groups : flat < all) byte |= (uint32_t)w->zeros[group_at(w, flat)] << (4 * half);
    }
    to[b] = (uint8_t)byte;
  }
  return BS_OK;
}

static bs_onnx_new_tensor *add_tensor(job *j, const char *name, uint32_t type, uint64_t bytes, weight *w,
                                      int32_t (*fill)(void *, uint64_t, uint64_t, void *, bs_error *)) {
  bs_onnx_new_tensor *t = &j->tensors[j->n_tensors++];
  *t = (bs_onnx_new_tensor){.name = name, .type = type, .bytes = bytes, .ctx = w, .fill = fill};
  return t;
}

static void set_dims(bs_onnx_new_tensor *t, uint32_t rank, int64_t a, int64_t b, int64_t c) {
  const int64_t dims[3] = {a, b, c};
  t->rank = rank;
  memcpy(t->dims, dims, sizeof dims);
}

/* MatMulNBits: codes [rows, groups, bytes of a group], scales and zeros flat. */
static void add_nbits(job *j, weight *w) {
  const int64_t rows = w->of.rows, groups = bs_quant_groups(&w->form);
  const int64_t line = w->form.group * w->form.bits / 8;
  const uint32_t type = w->of.tensor->type;
  w->codes_bytes = (uint64_t)(rows * groups * line);
  w->scales_bytes = (uint64_t)(rows * groups) * (type == BS_ONNX_FLOAT ? 4u : 2u);
  w->zeros_bytes = w->form.flags & BS_QUANT_ZEROS ? (uint64_t)(rows * ((groups + 1) / 2)) : 0;
  set_dims(add_tensor(j, w->codes_name, BS_ONNX_UINT8, w->codes_bytes, w, fill_codes), 3, rows, groups, line);
  set_dims(add_tensor(j, w->scales_name, type, w->scales_bytes, w, fill_scales), 1, rows * groups, 0, 0);
  if (w->zeros_bytes > 0)
    set_dims(add_tensor(j, w->zeros_name, BS_ONNX_UINT8, w->zeros_bytes, w, fill_zeros), 1,
             (int64_t)w->zeros_bytes, 0, 0);
}

/* DequantizeLinear: codes as the weight lies, a scale for each row, or for each group of each row. */
static void add_qdq(job *j, weight *w) {
  const bs_onnx_tensor *t = w->of.tensor;
  const int64_t rows = w->of.rows, groups = bs_quant_groups(&w->form);
  const int by_row = w->form.group == w->form.cols, zeros = (w->form.flags & BS_QUANT_ZEROS) != 0;
  const int64_t high = w->of.turned ? groups : rows, wide = w->of.turned ? rows : groups;
  const uint32_t type = w->form.bits == 8 ? BS_ONNX_INT8 : zeros ? TYPE_UINT4 : TYPE_INT4;
  w->codes_bytes = w->form.bits == 8 ? t->count : (t->count + 1) / 2;
  w->scales_bytes = (uint64_t)(rows * groups) * (t->type == BS_ONNX_FLOAT ? 4u : 2u);
  w->zeros_bytes = zeros ? ((uint64_t)(rows * groups) + 1) / 2 : 0;
  set_dims(add_tensor(j, w->codes_name, type, w->codes_bytes, w, fill_codes), 2, t->dims[0], t->dims[1], 0);
  bs_onnx_new_tensor *scales = add_tensor(j, w->scales_name, t->type, w->scales_bytes, w, fill_scales);
  set_dims(scales, by_row ? 1 : 2, by_row ? rows : high, wide, 0);
  if (zeros) set_dims(add_tensor(j, w->zeros_name, type, w->zeros_bytes, w, fill_zeros), 2, high, wide, 0);
}

/* ---- nodes of the copy --------------------------------------------------------------------------- */

static void add_dequantize(job *j, const weight *w) {
  bs_onnx_new_node *n = &j->nodes[j->n_nodes++];
  const int by_row = w->form.group == w->form.cols;
  *n = (bs_onnx_new_node){.op = "DequantizeLinear",
                          .domain = "",
                          .name = w->codes_name,
                          .inputs = {w->codes_name, w->scales_name, w->zeros_name},
                          .n_inputs = w->zeros_bytes > 0 ? 3 : 2,
                          .outputs = {w->name},
                          .n_outputs = 1,
                          .n_attrs = by_row ? 1 : 2,
                          .attr_names = {"axis", "block_size"}};
  n->attr_values[0] = by_row ? w->of.turned : !w->of.turned;
  n->attr_values[1] = w->form.group;
}

/* A text of the file, terminated; NULL: out of memory. */
static char *text_of(bs_span span) {
  char *text = malloc(span.size + 1);
  if (text == NULL) return NULL;
  if (span.size > 0) memcpy(text, span.data, span.size);
  text[span.size] = '\0';
  return text;
}

static weight *weight_named(const job *j, bs_span name) {
  for (size_t i = 0; i < j->n_weights; i++)
    if (bs_span_same(j->dropped[i], name)) return &j->weights[i];
  return NULL;
}

static int32_t keep_text(job *j, bs_span span, const char **out, bs_error *err) {
  char *text = text_of(span);
  if (text == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for a name");
  j->texts[j->n_texts++] = text;
  *out = text;
  return BS_OK;
}

/* A MatMul by a weight of MatMulNBits becomes that. */
static int32_t add_matmul(job *j, uint32_t index, const weight *w, bs_error *err) {
  const bs_onnx_node *was = &j->model.graph->nodes[index];
  bs_onnx_new_node *n = &j->nodes[j->n_nodes++];
  *n = (bs_onnx_new_node){.op = "MatMulNBits",
                          .domain = "com.microsoft",
                          .inputs = {NULL, w->codes_name, w->scales_name, w->zeros_name},
                          .n_inputs = w->zeros_bytes > 0 ? 4 : 3,
                          .n_outputs = 1,
                          .before = index,
                          .replaces = 1,
                          .n_attrs = 4,
                          .attr_names = {"K", "N", "bits", "block_size"},
                          .attr_values = {w->of.cols, w->of.rows, w->form.bits, w->form.group}};
  int32_t rc = keep_text(j, was->name, &n->name, err);
  if (rc == BS_OK) rc = keep_text(j, was->inputs[0], &n->inputs[0], err);
  if (rc == BS_OK) rc = keep_text(j, was->outputs[0], &n->outputs[0], err);
  return rc;
}

static int32_t add_nodes(job *j, bs_error *err) {
  const bs_onnx_graph *g = j->model.graph;
  int32_t rc = BS_OK;
  for (size_t i = 0; i < j->n_weights; i++) {
    if (!j->weights[i].nbits) add_dequantize(j, &j->weights[i]);
    j->has_nbits |= j->weights[i].nbits != 0;
  }
  size_t x = 0;
  for (uint32_t n = 0; rc == BS_OK && n < g->n_nodes; n++) {
    while (x < j->x.n_nodes && j->x.nodes[x].before == n) j->nodes[j->n_nodes++] = j->x.nodes[x++];
    const weight *w = g->nodes[n].n_inputs == 2 ? weight_named(j, g->nodes[n].inputs[1]) : NULL;
    if (w != NULL && w->nbits) rc = add_matmul(j, n, w, err);
  }
  return rc;
}

/* ---- X -------------------------------------------------------------------------------------------- */

static int takes_bytes(const void *user, bs_span name) {
  const weight *w = weight_named(user, name);
  return w != NULL && !w->nbits && w->form.group == w->form.cols;
}

static int32_t add_x(job *j, bs_error *err) {
  if (j->request->ranges == NULL) return BS_OK;
  const int32_t rc = bs_quantize_x_make(&j->model, j->request->ranges, takes_bytes, j, &j->x, err);
  if (rc != BS_OK) return rc;
  bs_onnx_new_node *nodes =
      realloc(j->nodes, (j->n_picked + j->model.graph->n_nodes + j->x.n_nodes + 1) * sizeof *nodes);
  if (nodes != NULL) j->nodes = nodes;
  bs_onnx_new_tensor *tensors = realloc(j->tensors, (3 * j->n_picked + j->x.n_tensors + 1) * sizeof *tensors);
  if (tensors != NULL) j->tensors = tensors;
  if (nodes == NULL || tensors == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for the grids of X");
  for (size_t i = 0; i < j->x.n_tensors; i++) j->tensors[j->n_tensors++] = j->x.tensors[i];
  if (j->x.n > 0) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-STATIC", "no product can have X in whole numbers");
  bs_error_hint(err, "the scheme w8 gives weights one scale a row, which that needs");
  return BS_UNSUPPORTED;
}

/* ---- which weights ------------------------------------------------------------------------------- */

static int64_t opset_of(const bs_onnx *model) {
  for (uint32_t i = 0; i < model->n_opsets; i++)
    if (model->opsets[i].domain.size == 0) return model->opsets[i].version;
  return 0;
}

/* Whether the model can hold this form: how (*out_nbits), or why it cannot. */
static const char *refused(const job *j, const bs_quantize_weight *w, const bs_quant *form,
                           uint32_t *out_nbits) {
  const uint32_t format = j->request->format;
  const int by_row = form->group == form->cols;
  *out_nbits = !by_row && (format == BS_QUANTIZE_NBITS || (format == BS_QUANTIZE_AUTO && j->opset < 21));
  if (by_row && j->opset < 13) return "a scale a row needs opset 13";
  if (!by_row && !*out_nbits && j->opset < 21) return "blocks in DequantizeLinear need opset 21";
  if (*out_nbits && !w->nbits) return "MatMulNBits takes the place of MatMul alone";
  return NULL;
}

static int32_t add_weight(job *j, bs_quantize_weight *of, const char *scheme, bs_error *err) {
  bs_quant form;
  uint32_t nbits = 0;
  const int32_t rc = form_of(of, scheme, &form, err);
  if (rc != BS_OK) return rc;
  of->reason = refused(j, of, &form, &nbits);
  if (of->reason != NULL) return BS_OK;
  weight *w = &j->weights[j->n_weights];
  j->dropped[j->n_weights++] = of->tensor->name;
  w->of = *of;
  w->form = form;
  w->nbits = nbits;
  snprintf(w->scheme, sizeof w->scheme, "%s", scheme);
  snprintf(w->name, sizeof w->name, "%.*s", (int)of->tensor->name.size, of->tensor->name.data);
  snprintf(w->codes_name, sizeof w->codes_name, "%s_quantized", w->name);
  snprintf(w->scales_name, sizeof w->scales_name, "%s_scale", w->name);
  snprintf(w->zeros_name, sizeof w->zeros_name, "%s_zero_point", w->name);
  if (nbits)
    add_nbits(j, w);
  else
    add_qdq(j, w);
  return BS_OK;
}

static int32_t choose(job *j, bs_error *err) {
  int32_t rc = bs_quantize_pick(&j->model, &j->picked, &j->n_picked, err);
  const size_t nodes = j->model.graph->n_nodes, n = j->n_picked;
  if (rc != BS_OK) return rc;
  j->weights = calloc(n + 1, sizeof *j->weights);
  j->dropped = calloc(n + 1, sizeof *j->dropped);
  j->tensors = calloc(3 * n + 1, sizeof *j->tensors);
  j->nodes = calloc(n + nodes + 1, sizeof *j->nodes);
  j->texts = calloc(3 * nodes + 1, sizeof *j->texts);
  if (j->weights == NULL || j->dropped == NULL || j->tensors == NULL || j->nodes == NULL || j->texts == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for %zu weights", n);
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    char name[NAME], scheme[16];
    bs_quantize_weight *w = &j->picked[i];
    snprintf(name, sizeof name, "%.*s", (int)w->tensor->name.size, w->tensor->name.data);
    bs_quantize_scheme_of(j->request->weights, name, scheme, sizeof scheme);
    if (w->reason == NULL && (scheme[0] == '\0' || strcmp(scheme, "float") == 0)) w->reason = "as asked";
    if (w->reason == NULL) rc = add_weight(j, w, scheme, err);
  }
  if (rc != BS_OK || j->n_weights > 0) return rc;
  bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-NOTHING", "no weight of the model was quantised");
  if (n > 0)
    bs_error_hint(err, "the first one, %.*s, stays: %s", BS_SPAN_PRINT(j->picked[0].tensor->name),
                  j->picked[0].reason);
  return BS_UNSUPPORTED;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void put_sizes(json_t *row, const bs_quantize_weight *w) {
  json_object_set_new(row, "rows", json_integer((json_int_t)w->rows));
  json_object_set_new(row, "cols", json_integer((json_int_t)w->cols));
}

static json_t *report(const job *j) {
  json_t *weights = json_array(), *kept = json_array();
  uint64_t before = 0, after = 0;
  for (size_t i = 0; i < j->n_weights; i++) {
    const weight *w = &j->weights[i];
    const uint64_t bytes = w->codes_bytes + w->scales_bytes + w->zeros_bytes;
    json_t *row = json_pack("{s:s, s:s, s:s, s:I, s:I, s:f}", "name", w->name, "scheme", w->scheme, "format",
                            w->nbits ? "nbits" : "qdq", "bytes", (json_int_t)bytes, "bytes_before",
                            (json_int_t)w->of.tensor->bytes, "error", w->error);
    put_sizes(row, &w->of);
    json_array_append_new(weights, row);
    before += w->of.tensor->bytes;
    after += bytes;
  }
  for (size_t i = 0; i < j->n_picked; i++) {
    const bs_quantize_weight *w = &j->picked[i];
    if (w->reason == NULL) continue;
    json_t *row = json_pack("{s:s%, s:s, s:I}", "name", w->tensor->name.data, (size_t)w->tensor->name.size,
                            "reason", w->reason, "bytes", (json_int_t)w->tensor->bytes);
    put_sizes(row, w);
    json_array_append_new(kept, row);
  }
  return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "from", j->request->from, "to", j->request->to,
                   "opset", (json_int_t)j->opset, "bytes_before", (json_int_t)before, "bytes",
                   (json_int_t)after, "weights", weights, "kept", kept, "static",
                   bs_quantize_x_report(&j->x));
}

static void free_job(job *j) {
  for (size_t i = 0; i < j->n_weights; i++) {
    free(j->weights[i].codes);
    free(j->weights[i].scales);
    free(j->weights[i].zeros);
  }
  for (size_t i = 0; i < j->n_texts; i++) free(j->texts[i]);
  free(j->weights);
  free(j->dropped);
  free(j->tensors);
  free(j->nodes);
  free(j->texts);
  free(j->picked);
  bs_quantize_x_free(&j->x);
  bs_onnx_close(&j->model);
}

int32_t bs_model_quantize(const bs_quantize_request *request, json_t **out, bs_error *err) {
  job j = {.request = request};
  *out = NULL;
  int32_t rc = bs_onnx_open(request->from, &j.model, err);
  if (rc != BS_OK) return rc;
  j.opset = opset_of(&j.model);
  rc = choose(&j, err);
  if (rc == BS_OK) rc = add_x(&j, err);
  if (rc == BS_OK) rc = add_nodes(&j, err);
  int nbits = j.has_nbits;
  for (uint32_t i = 0; i < j.model.n_opsets; i++)
    if (bs_span_is(j.model.opsets[i].domain, "com.microsoft")) nbits = 0;
  const bs_onnx_edits edits = {.dropped = j.dropped,
                               .n_dropped = j.n_weights,
                               .tensors = j.tensors,
                               .n_tensors = j.n_tensors,
                               .nodes = j.nodes,
                               .n_nodes = j.n_nodes,
                               .inputs = j.x.inputs,
                               .n_inputs = j.x.n_inputs,
                               .domain = nbits ? "com.microsoft" : NULL,
                               .version = 1};
  if (rc == BS_OK) rc = bs_onnx_write(&j.model, &edits, request->to, err);
  if (rc == BS_OK) *out = report(&j);
  free_job(&j);
  return rc;
}
