/* SPDX-License-Identifier: MIT
 * patterns_quant.c - products and rows of weights that DequantizeLinear makes: the weights stay quantised. */
#include <stdio.h>

#include "tests/graph/fuzz_passes/changes.h"
#include "tests/graph/fuzz_passes/data.h"
#include "tests/graph/fuzz_passes/patterns.h"

/* How the codes of a matrix share scales. */
typedef struct scheme {
  uint32_t kind; /* 0: one scale; 1: one an index of `axis`; 2: one a block of `block` indices along `axis` */
  uint32_t axis;
  int64_t block;
} scheme;

static scheme draw_scheme(spec *s, int64_t k, uint32_t k_axis) {
  scheme out = {draw(s, 3), 1 - k_axis, 0};
  if (out.kind == 1 && seldom(s, 4)) out.axis = k_axis; /* is widened */
  if (out.kind != 2) return out;
  out.axis = seldom(s, 6) ? 1 - k_axis : k_axis;
  out.block = draw(s, 2) == 0 ? 16 : 32;
  if (out.axis != k_axis || k % out.block != 0) out.block = 1;
  return out;
}

/* A matrix of these dims as codes, scales and perhaps zeros. */
static int dequantized(spec *s, const int64_t *dims, const scheme *how) {
  char attrs[48] = "";
  int64_t groups[2] = {dims[how->axis], 1};
  uint32_t rank = how->kind;
  if (how->kind == 1) snprintf(attrs, sizeof attrs, "axis=%u", how->axis);
  if (how->kind == 2) {
    snprintf(attrs, sizeof attrs, "axis=%u block_size=%lld", how->axis, (long long)how->block);
    groups[0] = dims[0];
    groups[1] = dims[1];
    groups[how->axis] /= how->block;
  }
  const uint32_t dtype = draw(s, 2) == 0 ? BS_I8 : BS_U8;
  const int in[3] = {
      add_source(s, VALUE_CONST, ROLE_CODE, dtype, 2, dims),
      add_source(s, VALUE_CONST, ROLE_SCALE, s->dtype, rank, groups),
      draw(s, 2) == 0 ? SPEC_NONE : add_source(s, VALUE_CONST, ROLE_CODE, dtype, rank, groups)};
  return change_here(s, raw_op(s, "DequantizeLinear", attrs, in, in[2] == SPEC_NONE ? 2 : 3));
}

/* [K,N] for MatMul; stored so, or turned. */
static int weight_of(spec *s, int64_t k, int64_t n) {
  const uint32_t k_axis = draw(s, 2);
  const int64_t dims[2] = {k_axis == 0 ? k : n, k_axis == 0 ? n : k};
  const scheme how = draw_scheme(s, k, k_axis);
  const int w = dequantized(s, dims, &how);
  return k_axis == 0 || s->bad ? w : turned_by(s, w, "1,0");
}

static int numbered(spec *s, int v) {
  return s->bad || draw(s, 3) > 0 ? v : op2(s, "Mul", v, change_number(s, 0.5));
}

static int product(spec *s, int x, int w, int64_t n) {
  int y = op2(s, "MatMul", numbered(s, x), numbered(s, w));
  y = numbered(s, y);
  if (draw(s, 2) == 0 && !s->bad) y = op2(s, "Add", y, draw_source(s, ROLE_ROW, 1, &n));
  if (draw(s, 3) == 0 && !s->bad) y = activated(s, y);
  return y;
}

/* Rows of a table. */
static int rows_of(spec *s, int64_t k, int64_t n) {
  const int64_t dims[2] = {n, k}, picked[3] = {n - 1, 0, -1}, count = 1 + draw(s, 3);
  const scheme how = draw_scheme(s, k, 1);
  const int table = dequantized(s, dims, &how);
  const int at = add_ints(s, (uint32_t)count, picked);
  return s->bad ? table : op(s, "Gather", "axis=0", table, at, SPEC_NONE);
}

int pattern_quant(spec *s, int x) {
  static const int64_t sizes[] = {4, 16, 3, 32, 48, 64};
  const int64_t k = sizes[draw(s, 6)], n = draw_dim(s), x_dims[3] = {draw_dim(s), draw_dim(s), k};
  const uint32_t lead = draw(s, 2);
  (void)x;
  if (s->dtype == BS_F64) s->bad = 1; /* DequantizeLinear has no f64 */
  if (s->bad) return 0;
  x = draw(s, 4) == 0 ? rows_of(s, k, n + 1)
                      : add_source(s, VALUE_INPUT, ROLE_VALUE, s->dtype, 2 + lead, x_dims + 1 - lead);
  if (s->bad) return x;
  const int w = weight_of(s, k, n);
  int y = product(s, x, w, n);
  if (draw(s, 3) == 0 && !s->bad) { /* the same weight again, or another one of the same input */
    const int other = draw(s, 2) == 0 ? w : weight_of(s, k, n);
    add_output(s, product(s, x, other, n));
  }
  return y;
}
