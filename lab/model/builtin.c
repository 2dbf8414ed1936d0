/* SPDX-License-Identifier: MIT
 * builtin.c - see builtin.h. Blocks as GPT-2 and ViT have them: normalisation, attention, a residual,
 * normalisation, two products with GELU, a residual. */
#include "lab/model/builtin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "lab/error.h"
#include "lab/stop.h"

/* The largest weights of a built-in model. */
static const double MOST_BYTES = 8e9;
enum { WORDS = 8192, PLACES = 1024, PATCHES = 196, PATCH = 768, CLASSES = 1000, HEAD = 64, MOST_ATTRS = 3 };

typedef struct maker {
  bs_model *m;
  uint64_t seed;
  int64_t layers, width;
  int32_t rc;
  bs_error *err;
} maker;

/* ---- operators: after an error the following ones do nothing ------------------------------------ */

static uint32_t op(maker *k, const char *name, const uint32_t *in, uint32_t n_in, const bs_attr *attrs,
                   uint32_t n_attrs) {
  const bs_attr *list[MOST_ATTRS] = {NULL};
  uint32_t out = BS_GRAPH_NONE;
  for (uint32_t i = 0; i < n_attrs && i < MOST_ATTRS; i++) list[i] = &attrs[i];
  if (k->rc == BS_OK) k->rc = bs_graph_op(k->m->graph, name, in, n_in, list, n_attrs, &out, 1, k->err);
  return out;
}

static uint32_t op2(maker *k, const char *name, uint32_t a, uint32_t b) {
  const uint32_t in[2] = {a, b};
  return op(k, name, in, 2, NULL, 0);
}

static bs_attr number(const char *name, int64_t value) {
  return (bs_attr){.struct_size = sizeof(bs_attr), .type = BS_ATTR_INT, .name = name, .i = value};
}

/* Memory that the model frees after its graph. */
static void *room(maker *k, size_t bytes) {
  char **texts = k->rc == BS_OK ? realloc(k->m->texts, (k->m->n_texts + 1) * sizeof *texts) : NULL;
  if (texts != NULL) k->m->texts = texts;
  char *data = texts != NULL ? malloc(bytes) : NULL;
  if (data != NULL) k->m->texts[k->m->n_texts++] = data;
  if (data == NULL && k->rc == BS_OK) k->rc = bs_no_memory(k->err, "weights");
  return data;
}

static uint32_t constant(maker *k, uint32_t dtype, uint32_t rank, const int64_t *dims, const void *data) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = rank};
  uint32_t value = BS_GRAPH_NONE;
  for (uint32_t i = 0; i < rank; i++) d.dims[i] = dims[i];
  if (k->rc == BS_OK) k->rc = bs_graph_constant(k->m->graph, "", &d, data, &value, k->err);
  return value;
}

/* Normal numbers of deviation `scale` around `mean`. */
static uint32_t weights(maker *k, int64_t rows, int64_t cols, float mean, float scale) {
  const int64_t dims[2] = {rows, cols};
  const uint64_t n = (uint64_t)rows * (uint64_t)(cols > 0 ? cols : 1);
  if (k->rc == BS_OK) k->rc = bs_stop_check(k->err); /* all together take seconds */
  float *data = room(k, n * sizeof *data);
  if (data == NULL) return BS_GRAPH_NONE;
  bs_rng_normal(k->seed++, 0, 0, n, data);
  for (uint64_t i = 0; i < n; i++) data[i] = mean + scale * data[i];
  return constant(k, BS_F32, cols > 0 ? 2 : 1, dims, data);
}

static uint32_t whole(maker *k, int64_t value) {
  int64_t *data = room(k, sizeof *data);
  if (data == NULL) return BS_GRAPH_NONE;
  *data = value;
  return constant(k, BS_I64, 0, NULL, data);
}

/* x W + b */
static uint32_t product(maker *k, uint32_t x, int64_t from, int64_t to) {
  const uint32_t p = op2(k, "MatMul", x, weights(k, from, to, 0, 0.02F));
  return op2(k, "Add", p, weights(k, to, 0, 0, 0.02F));
}

static uint32_t normalised(maker *k, uint32_t x) {
  const uint32_t in[3] = {x, weights(k, k->width, 0, 1, 0.02F), weights(k, k->width, 0, 0, 0.02F)};
  return op(k, "LayerNormalization", in, 3, NULL, 0);
}

static uint32_t block(maker *k, uint32_t x, int causal) {
  const int64_t d = k->width, heads = d / HEAD > 0 ? d / HEAD : 1;
  const bs_attr of_attention[] = {number("q_num_heads", heads), number("kv_num_heads", heads),
                                  number("is_causal", causal)};
  const uint32_t n = normalised(k, x);
  const uint32_t qkv[3] = {product(k, n, d, d), product(k, n, d, d), product(k, n, d, d)};
  const uint32_t a = op(k, "Attention", qkv, 3, of_attention, 3);
  const uint32_t y = op2(k, "Add", x, product(k, a, d, d));
  const uint32_t up = product(k, normalised(k, y), d, 4 * d);
  const uint32_t h = op(k, "Gelu", &up, 1, NULL, 0);
  return op2(k, "Add", y, product(k, h, 4 * d, d));
}

static uint32_t input(maker *k, const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                      const char *const *symbols) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = rank};
  uint32_t value = BS_GRAPH_NONE;
  for (uint32_t i = 0; i < rank; i++) d.dims[i] = dims[i];
  if (k->rc == BS_OK) k->rc = bs_graph_input(k->m->graph, name, &d, symbols, &value, k->err);
  return value;
}

/* ---- models ---------------------------------------------------------------------------------- */

static void language_model(maker *k) {
  static const char *const symbols[] = {"batch", "tokens"};
  const bs_attr axis[] = {number("start", 1), number("end", 2)};
  const uint32_t ids = input(k, "input_ids", BS_I64, 2, (const int64_t[]){-1, -1}, symbols);
  const uint32_t shape = op(k, "Shape", &ids, 1, axis, 2), count = op(k, "Squeeze", &shape, 1, NULL, 0);
  const uint32_t range[3] = {whole(k, 0), count, whole(k, 1)};
  const uint32_t places = op(k, "Range", range, 3, NULL, 0);
  uint32_t x = op2(k, "Add", op2(k, "Gather", weights(k, WORDS, k->width, 0, 0.02F), ids),
                   op2(k, "Gather", weights(k, PLACES, k->width, 0, 0.02F), places));
  for (int64_t i = 0; i < k->layers; i++) x = block(k, x, 1);
  const uint32_t logits = op2(k, "MatMul", normalised(k, x), weights(k, k->width, WORDS, 0, 0.02F));
  if (k->rc == BS_OK) k->rc = bs_graph_output(k->m->graph, "logits", logits, k->err);
}

static void vision_encoder(maker *k) {
  static const char *const symbols[] = {"batch", NULL, NULL};
  const uint32_t patches = input(k, "patches", BS_F32, 3, (const int64_t[]){-1, PATCHES, PATCH}, symbols);
  uint32_t x = op2(k, "Add", product(k, patches, PATCH, k->width), weights(k, PATCHES, k->width, 0, 0.02F));
  for (int64_t i = 0; i < k->layers; i++) x = block(k, x, 0);
  const uint32_t classes = product(k, normalised(k, x), k->width, CLASSES);
  if (k->rc == BS_OK) k->rc = bs_graph_output(k->m->graph, "classes", classes, k->err);
}

static const struct {
  const char *name;
  int64_t layers, width;
  void (*make)(maker *k);
} models[] = {{"lm", 12, 768, language_model}, {"vit", 8, 512, vision_encoder}};

int bs_model_is_builtin(const char *path) {
  return strncmp(path, "builtin:", 8) == 0;
}

/* Reads ":2x64" after a name; without it the sizes of the table are used. */
static int read_sizes(const char *text, maker *k) {
  char *end = NULL;
  if (*text == '\0') return 1;
  if (*text != ':') return 0;
  k->layers = strtoll(text + 1, &end, 10);
  if (end == text + 1 || *end != 'x') return 0;
  const char *width = end + 1;
  k->width = strtoll(width, &end, 10);
  return end != width && *end == '\0' && k->layers >= 1 && k->layers <= 96 && k->width >= 8 &&
         k->width <= 8192 && (k->width <= HEAD || k->width % HEAD == 0);
}

/* A layer has 12 matrices of width x width, in f32. */
static int32_t fits(const maker *k, const char *path, bs_error *err) {
  const double bytes = 48.0 * (double)k->layers * (double)k->width * (double)k->width;
  if (bytes <= MOST_BYTES) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-MODEL-BUILTIN",
               "'%.100s' would have %.3g GB of weights; at most %.3g are made", path, 1e-9 * bytes,
               1e-9 * MOST_BYTES);
  bs_error_hint(err, "give fewer layers or a smaller width");
  return BS_USAGE;
}

int32_t bs_model_builtin(bs_context *context, const char *path, bs_model *out, bs_error *err) {
  const char *name = path + strlen("builtin:");
  const size_t length = strcspn(name, ":");
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
    maker k = {.m = out, .seed = 1, .layers = models[i].layers, .width = models[i].width, .err = err};
    if (strlen(models[i].name) != length || strncmp(models[i].name, name, length) != 0) continue;
    if (!read_sizes(name + length, &k)) break;
    k.rc = fits(&k, path, err);
    if (k.rc == BS_OK) k.rc = bs_graph_new(context, &out->graph, err);
    if (k.rc == BS_OK) models[i].make(&k);
    return k.rc;
  }
  bs_error_set(err, BS_INPUT, "BS-MODEL-BUILTIN", "there is no model '%.100s'", path);
  bs_error_hint(err,
                "builtin:lm, builtin:vit, with sizes as in builtin:lm:2x64 (LAYERSxWIDTH, of heads of 64)");
  return BS_INPUT;
}
