/* SPDX-License-Identifier: MIT
 * spectral.c - Fourier transforms, as products with a constant matrix of cosines and sines, and the windows
 * that go with them. */
#include <math.h>
#include <stdlib.h>

#include "graph/lower/build.h"

static const double PI = 3.14159265358979323846;

/* A transform over n points: it reads `rows` of them, of `parts` numbers each (2: real and imaginary), and
 * writes `columns` of `outs` numbers. */
typedef struct transform {
  int64_t n, rows, columns;
  uint32_t parts, outs;
  int inverse, halved; /* halved: of a spectrum that has the first n/2 + 1 points alone */
} transform;

enum { MOST_NUMBERS = 1 << 25 };

/* The weight of part `in` of row j in part `out` of column k. */
static double weight_of(const transform *t, int64_t j, uint32_t in, int64_t k, uint32_t out) {
  const double turn = 2 * PI * (double)(j * k % t->n) / (double)t->n;
  const double sine = t->inverse ? sin(turn) : -sin(turn);
  const double number = in == out ? cos(turn) : in == 0 ? sine : -sine;
  const int twice = t->halved && j > 0 && 2 * j != t->n;
  return number * (twice ? 2 : 1) / (t->inverse ? (double)t->n : 1);
}

/* The matrix [columns outs, rows parts] of f32, or of f64. */
static uint32_t matrix_of(build *b, const transform *t, uint32_t dtype) {
  const build_shape shape = {2, {t->columns * t->outs, t->rows * t->parts}};
  const size_t count = (size_t)(shape.dims[0] * shape.dims[1]);
  if (b->rc != BS_OK) return GNONE;
  void *data = malloc((count + 1) * BS_DTYPE_BYTES(dtype));
  if (data == NULL) {
    build_no_memory(b);
    return GNONE;
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t column = (int64_t)i / shape.dims[1], row = (int64_t)i % shape.dims[1];
    const double w = weight_of(t, row / t->parts, (uint32_t)(row % t->parts), column / t->outs,
                               (uint32_t)(column % t->outs));
    if (dtype == BS_F64)
      ((double *)data)[i] = w;
    else
      ((float *)data)[i] = (float)w;
  }
  const uint32_t value = build_const(b, dtype, &shape, data);
  free(data);
  return value;
}

/* x [.., rows parts] to [.., columns outs]. */
static uint32_t transformed(build *b, const transform *t, uint32_t x) {
  const uint32_t dtype = build_dtype(b, x), wide = dtype == BS_F64 ? BS_F64 : BS_F32;
  uint32_t y = GNONE;
  if (b->rc == BS_OK && t->columns * t->outs > MOST_NUMBERS / (t->rows * t->parts + 1))
    build_refuse(b, 0, "a Fourier transform whose matrix has more than 33554432 numbers");
  const uint32_t matrix = matrix_of(b, t, wide), rows = build_cast(b, x, wide);
  if (b->rc != BS_OK) return GNONE;
  b->rc = lower_matmul(b->c, rows, matrix, GNONE, 0, wide, &y, b->err);
  return build_cast(b, y, dtype);
}

/* The points along the axis before the last: those that are there and asked for; what is absent is 0. */
static int32_t dft(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x = build_in(&b, 0);
  const uint32_t rank = build_rank(&b, x), length = build_optional(&b, 1), at = build_optional(&b, 2);
  build_check(&b, build_is_float(build_dtype(&b, x)), "the operator takes floats");
  build_check(&b, rank >= 2, "its input needs two dims or more");
  const int64_t asked =
      at != GNONE ? build_read_int(&b, at, "its axis") : lower_int(node, "axis", node->opset < 20 ? 1 : -2);
  const uint32_t axis = build_axis(&b, asked, rank);
  build_check(&b, axis + 1 < rank, "its axis is that of the real and imaginary parts");
  transform t = {.inverse = lower_int(node, "inverse", 0) != 0, .parts = 1, .outs = 2};
  if (b.rc != BS_OK) return b.rc;
  t.parts = (uint32_t)build_dim(&b, x, rank - 1);
  build_check(&b, t.parts == 1 || t.parts == 2, "its last dim is neither 1 nor 2");
  const int one_sided = lower_int(node, "onesided", 0) != 0;
  t.halved = one_sided && t.inverse;
  build_check(&b, !one_sided || t.parts == (t.inverse ? 2 : 1),
              "onesided takes real points, or complex ones of an inverse");
  const int64_t there = build_dim(&b, x, axis);
  t.n = length != GNONE ? build_read_int(&b, length, "its length") : t.halved ? 2 * (there - 1) : there;
  build_check(&b, t.n > 0 && t.n < 1 << 30, "its length is not positive, or too large");
  if (b.rc != BS_OK) return b.rc;
  const int64_t needed = t.halved ? t.n / 2 + 1 : t.n;
  t.rows = there < needed ? there : needed;
  t.columns = one_sided && !t.inverse ? t.n / 2 + 1 : t.n;
  t.outs = t.halved ? 1 : 2;
  /* [.., points, .., parts] as [.., .., points parts] and back. */
  x = build_slice(&b, x, axis, 0, t.rows, 1);
  x = build_swap(&b, build_move(&b, x, axis, 1), rank - 2, rank - 1);
  const uint32_t y = transformed(&b, &t, build_join_dims(&b, x, rank - 2, 2));
  x = build_split_dim(&b, y, rank - 2, t.columns, t.outs);
  x = build_swap(&b, x, rank - 2, rank - 1);
  build_out(&b, 0, build_move(&b, x, axis, 0));
  return b.rc;
}

/* The frames [batch, frames, length] of a signal [batch, points], which overlap. */
static uint32_t frames_of(build *b, uint32_t x, int64_t step, int64_t length) {
  const int64_t points = build_dim(b, x, 1);
  build_check(b, step > 0 && length > 0 && length <= points,
              "its frames are empty, or longer than the signal");
  if (b->rc != BS_OK) return GNONE;
  const build_shape shape = {3, {build_dim(b, x, 0), (points - length) / step + 1, length}};
  const uint32_t dense = build_copy(b, x);
  const int64_t strides[3] = {points, step, 1};
  return build_view(b, dense, &shape, strides, 0);
}

static int32_t stft(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x = build_in(&b, 0);
  const uint32_t window = build_optional(&b, 2), size = build_optional(&b, 3), rank = build_rank(&b, x);
  const int64_t step = build_read_int(&b, build_in(&b, 1), "the step of its frames");
  build_check(&b, build_is_float(build_dtype(&b, x)) && (rank == 2 || rank == 3),
              "the operator takes signals of floats");
  build_check(&b, window != GNONE || size != GNONE, "it has neither a window nor a length of frames");
  if (b.rc == BS_OK && rank == 3 && build_dim(&b, x, 2) == 2) build_refuse(&b, 0, "a complex signal");
  if (b.rc != BS_OK) return b.rc;
  if (rank == 3) x = build_squeeze(&b, x, 2);
  const int64_t length =
      size != GNONE ? build_read_int(&b, size, "the length of its frames") : build_dim(&b, window, 0);
  uint32_t frames = frames_of(&b, x, step, length);
  if (window != GNONE) {
    build_check(&b, build_rank(&b, window) == 1 && build_dim(&b, window, 0) == length,
                "its window is not as long as a frame");
    frames = build_binary(&b, BS_EXPR_MUL, frames, window, build_dtype(&b, x));
  }
  const int64_t columns = lower_int(node, "onesided", 1) != 0 ? length / 2 + 1 : length;
  const transform t = {.n = length, .rows = length, .columns = columns, .parts = 1, .outs = 2};
  const uint32_t y = transformed(&b, &t, frames);
  build_out(&b, 0, build_split_dim(&b, y, 2, columns, 2));
  return b.rc;
}

/* a0 - a1 cos + a2 cos of the double angle: the windows' numbers in ONNX. */
static int32_t cosine_window(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const int64_t n = build_read_int(&b, build_in(&b, 0), "its size");
  const uint32_t dtype = build_onnx_dtype(lower_int(node, "output_datatype", 1));
  const double a[3] = {node->op[0] == 'B'                         ? 0.42
                       : node->op[1] == 'a' && node->op[2] == 'm' ? 25.0 / 46
                                                                  : 0.5,
                       node->op[0] == 'B'                         ? 0.5
                       : node->op[1] == 'a' && node->op[2] == 'm' ? 21.0 / 46
                                                                  : 0.5,
                       node->op[0] == 'B' ? 0.08 : 0};
  build_check(&b, n >= 0 && n < 1 << 24, "its size is negative or too large");
  if (b.rc == BS_OK && !build_is_float(dtype)) build_refuse(&b, dtype, "a window of integers");
  if (b.rc != BS_OK) return b.rc;
  double *data = malloc(((size_t)n + 1) * sizeof *data);
  if (data == NULL) {
    build_no_memory(&b);
    return b.rc;
  }
  const double last = (double)(lower_int(node, "periodic", 1) != 0 || n == 1 ? n : n - 1);
  for (int64_t i = 0; i < n; ++i) {
    const double turn = 2 * PI * (double)i / last;
    data[i] = a[0] - a[1] * cos(turn) + a[2] * cos(2 * turn);
  }
  const build_shape shape = {1, {n}};
  build_out(&b, 0, build_cast(&b, build_const(&b, BS_F64, &shape, data), dtype));
  free(data);
  return b.rc;
}

const lower_rule lower_rules_spectral[] = {{"DFT", 17, 0, dft, NULL},
                                           {"STFT", 17, 0, stft, NULL},
                                           {"BlackmanWindow", 17, 0, cosine_window, NULL},
                                           {"HammingWindow", 17, 0, cosine_window, NULL},
                                           {"HannWindow", 17, 0, cosine_window, NULL},
                                           {0}};
