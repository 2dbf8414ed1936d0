/* SPDX-License-Identifier: MIT
 * noise_x.c - see noise_x.h. Numbers x share one scale s. With t = x / s, rounding changes t by
 * r = round(t) - t. The noise is s u sqrt(sum r^2 / sum u^2) with u = sin(c t). It depends on the number
 * alone, so a run of the copy can be repeated. It has no mean, and it does not change zeros. */
#include "lab/model/noise_x.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

enum { NODES = 34, TENSORS = 18, TEXTS = NODES + TENSORS, NAME = 48, BYTES = 16 };
enum { LEAST_OPSET = 13, AXES_AS_INPUT = 18 };

typedef struct bs_noise_constant {
  unsigned char bytes[BYTES];
} bs_noise_constant;

/* The nodes of one X. */
typedef struct maker {
  bs_noise_x *to;
  const bs_x_grid *x;
  size_t number;
  int64_t opset;
} maker;

static const char *text(maker *m, const char *what, size_t serial) {
  char *name = malloc(NAME);
  if (name == NULL) {
    m->to->failed = 1;
    return "";
  }
  snprintf(name, NAME, "bs_noise_%zu_%zu_%s", m->number, serial, what);
  m->to->texts[m->to->n_texts++] = name;
  return name;
}

static int32_t fill(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  (void)err;
  memcpy(out, ((const bs_noise_constant *)ctx)->bytes + offset, bytes);
  return BS_OK;
}

static const char *constant(maker *m, uint32_t type, uint32_t rank, int64_t count, const void *data,
                            uint64_t bytes) {
  bs_noise_x *to = m->to;
  bs_noise_constant *c = &to->constants[to->n_constants++];
  const char *name = text(m, "c", to->n_texts);
  memcpy(c->bytes, data, bytes);
  to->tensors[to->n_tensors++] = (bs_onnx_new_tensor){
      .name = name, .type = type, .rank = rank, .dims = {count}, .bytes = bytes, .ctx = c, .fill = fill};
  return name;
}

static const char *number(maker *m, double value) {
  const float v = (float)value;
  return constant(m, BS_ONNX_FLOAT, 0, 0, &v, sizeof v);
}

static const char *two(maker *m, int64_t a, int64_t b) {
  const int64_t v[2] = {a, b};
  return constant(m, BS_ONNX_INT64, 1, 2, v, sizeof v);
}

static const char *one(maker *m, int64_t a) {
  return constant(m, BS_ONNX_INT64, 1, 1, &a, sizeof a);
}

static bs_onnx_new_node *add(maker *m, const char *op, uint32_t n, const char *a, const char *b) {
  bs_onnx_new_node *node = &m->to->nodes[m->to->n_nodes++];
  const char *name = text(m, op, m->to->n_texts);
  *node = (bs_onnx_new_node){.op = op,
                             .domain = "",
                             .name = name,
                             .inputs = {a, b},
                             .n_inputs = n,
                             .outputs = {name},
                             .n_outputs = 1,
                             .before = m->x->node};
  return node;
}

static const char *of_one(maker *m, const char *op, const char *a) {
  return add(m, op, 1, a, NULL)->outputs[0];
}

static const char *of_two(maker *m, const char *op, const char *a, const char *b) {
  return add(m, op, 2, a, b)->outputs[0];
}

static void attribute(bs_onnx_new_node *node, const char *name, int64_t value, uint32_t is_list) {
  node->attr_lists |= is_list << node->n_attrs;
  node->attr_names[node->n_attrs] = name;
  node->attr_values[node->n_attrs++] = value;
}

static const char *cast(maker *m, const char *a, uint32_t to) {
  bs_onnx_new_node *node = add(m, "Cast", 1, a, NULL);
  attribute(node, "to", to, 0);
  return node->outputs[0];
}

/* Over the columns of a matrix. */
static const char *reduce(maker *m, const char *op, const char *a) {
  bs_onnx_new_node *node = add(m, op, 1, a, NULL);
  if (m->opset < AXES_AS_INPUT) {
    attribute(node, "axes", 1, 1);
  } else {
    node->inputs[1] = one(m, 1);
    node->n_inputs = 2;
  }
  return node->outputs[0];
}

/* X as a matrix with a row for each scale; columns are filled up with zeros. */
static const char *as_groups(maker *m, const char *x, int64_t group, int64_t padding) {
  const char *flat = of_two(m, "Reshape", x, two(m, -1, m->x->cols));
  if (padding > 0) {
    const int64_t pads[4] = {0, 0, 0, padding};
    const char *sizes = of_two(m, "Concat", two(m, pads[0], pads[1]), two(m, pads[2], pads[3]));
    attribute(&m->to->nodes[m->to->n_nodes - 1], "axis", 0, 0);
    flat = of_two(m, "Pad", flat, sizes);
  }
  return group == m->x->cols ? flat : of_two(m, "Reshape", flat, two(m, -1, group));
}

static const char *as_before(maker *m, const char *noisy, const char *x, int64_t padding) {
  if (padding > 0) {
    bs_onnx_new_node *node;
    const char *flat = of_two(m, "Reshape", noisy, two(m, -1, m->x->cols + padding));
    const char *from = one(m, 0), *to = one(m, m->x->cols), *axis = one(m, 1);
    node = add(m, "Slice", 4, flat, from);
    node->inputs[2] = to;
    node->inputs[3] = axis;
    noisy = node->outputs[0];
  }
  const char *shape = of_one(m, "Shape", x);
  return of_two(m, "Reshape", noisy, shape);
}

/* The scales of X in bytes: the largest magnitude is 127 of them. */
static const char *scales_of(maker *m, const char *x) {
  const char *most = reduce(m, "ReduceMax", of_one(m, "Abs", x));
  return of_two(m, "Max", of_two(m, "Mul", most, number(m, 1.0 / 127.0)), number(m, 1e-30));
}

/* Cuts t off at the ends of a static range. The loss of the cut is known exactly, so it is no noise. */
static const char *inside(maker *m, const char *t) {
  const bs_x_grid *x = m->x;
  if (x->group != 0) return t;
  t = of_two(m, "Max", t, number(m, x->low - x->zero));
  return of_two(m, "Min", t, number(m, x->high - x->zero));
}

static const char *noisy(maker *m, const char *x, uint64_t seed) {
  const char *scale = m->x->group != 0 ? scales_of(m, x) : number(m, m->x->scale);
  const char *t = inside(m, of_two(m, "Div", x, scale));
  const char *r = of_two(m, "Sub", of_one(m, "Round", t), t);
  const char *u = of_one(m, "Sin", of_two(m, "Mul", t, number(m, 811.0 + 97.31 * (double)seed)));
  const char *r2 = reduce(m, "ReduceMean", of_two(m, "Mul", r, r));
  const char *u2 = reduce(m, "ReduceMean", of_two(m, "Mul", u, u));
  const char *ratio = of_two(m, "Div", r2, of_two(m, "Max", u2, number(m, 1e-30)));
  const char *size = of_two(m, "Mul", of_one(m, "Sqrt", ratio), scale);
  return of_two(m, "Add", of_two(m, "Mul", t, scale), of_two(m, "Mul", u, size));
}

/* The noisy X. */
static const char *add_x(maker *m, const char *x, uint64_t seed) {
  const int64_t group = m->x->group != 0 && m->x->group < m->x->cols ? m->x->group : m->x->cols;
  const int64_t padding = (group - m->x->cols % group) % group;
  const int wide = m->x->type == BS_ONNX_FLOAT;
  const char *value = wide ? x : cast(m, x, BS_ONNX_FLOAT);
  const char *out = as_before(m, noisy(m, as_groups(m, value, group, padding), seed), x, padding);
  return wide ? out : cast(m, out, m->x->type);
}

static int64_t opset_of(const bs_onnx *model) {
  for (uint32_t i = 0; i < model->n_opsets; i++)
    if (model->opsets[i].domain.size == 0) return model->opsets[i].version;
  return 0;
}

/* The row before `i` that takes the same X in the same way; n: no row does. */
static size_t same_before(const bs_grids *grids, size_t i) {
  const bs_x_grid *a = &grids->xs[i];
  for (size_t k = 0; k < i; k++) {
    const bs_x_grid *b = &grids->xs[k];
    if (bs_span_same(a->x, b->x) && a->group == b->group && a->cols == b->cols && !(a->scale < b->scale) &&
        !(a->scale > b->scale) && !(a->zero < b->zero) && !(a->zero > b->zero))
      return k;
  }
  return grids->n_xs;
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for the noise of X");
}

int32_t bs_noise_x_make(const bs_onnx *floats, const bs_grids *grids, uint64_t seed, bs_noise_x *out,
                        bs_error *err) {
  const size_t n = grids->n_xs;
  const int64_t opset = opset_of(floats);
  *out = (bs_noise_x){0};
  if (n > 0 && opset < LEAST_OPSET)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-OPSET",
                        "the prediction of X in bytes needs opset %d, the model has %lld", LEAST_OPSET,
                        (long long)opset);
  out->nodes = calloc(n * NODES + 1, sizeof *out->nodes);
  out->tensors = calloc(n * TENSORS + 1, sizeof *out->tensors);
  out->constants = calloc(n * TENSORS + 1, sizeof *out->constants);
  out->inputs = calloc(n + 1, sizeof *out->inputs);
  out->texts = calloc(n * (TEXTS + 1) + 1, sizeof *out->texts);
  if (out->nodes == NULL || out->tensors == NULL || out->constants == NULL || out->inputs == NULL ||
      out->texts == NULL)
    return no_memory(err);
  for (size_t i = 0; i < n; i++) {
    maker m = {.to = out, .x = &grids->xs[i], .number = i, .opset = opset};
    const size_t same = same_before(grids, i);
    const char *name = same < n ? out->inputs[same].name : NULL;
    if (name == NULL) {
      char *x = strndup(m.x->x.data, m.x->x.size);
      if (x == NULL) return no_memory(err);
      out->texts[out->n_texts++] = x;
      name = add_x(&m, x, seed);
    }
    out->inputs[out->n_inputs++] = (bs_onnx_new_input){.node = m.x->node, .input = 0, .name = name};
  }
  return out->failed ? no_memory(err) : BS_OK;
}

void bs_noise_x_free(bs_noise_x *noise) {
  for (size_t i = 0; i < noise->n_texts; i++) free(noise->texts[i]);
  free(noise->nodes);
  free(noise->tensors);
  free(noise->constants);
  free(noise->inputs);
  free(noise->texts);
}
