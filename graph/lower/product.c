/* SPDX-License-Identifier: MIT
 * product.c - MatMul and Gemm: by a constant matrix they are `matmul` with a packed weight, else `contract`.
 */
#include <string.h>

#include "graph/lower/rules.h"

/* Whether a value can be the packed weight of a product with x. */
static int is_weight(const build *b, uint32_t x, uint32_t w) {
  return b->rc == BS_OK && lower_is_const(b->c, w) && build_rank(b, w) == 2 &&
         build_is_float(build_dtype(b, w)) && build_dtype(b, w) == build_dtype(b, x) &&
         !lower_is_const(b->c, x);
}

/* x W^T + bias, W [N,K]. */
static uint32_t by_weight(build *b, uint32_t x, uint32_t w, uint32_t bias) {
  uint32_t y = GNONE;
  if (b->rc == BS_OK) b->rc = lower_matmul(b->c, x, w, bias, BS_ACT_NONE, build_dtype(b, x), &y, b->err);
  return b->rc == BS_OK ? y : GNONE;
}

/* The quantised weight [N,K] of a product with x; GNONE: it is none. */
static uint32_t quant_of(build *b, uint32_t x, uint32_t w) {
  uint32_t quant = GNONE;
  if (b->rc == BS_OK && !lower_is_const(b->c, x) && build_rank(b, w) == 2 &&
      build_is_float(build_dtype(b, x)))
    b->rc = lower_quant_weight(b->c, b->node, w, 0, &quant, b->err);
  return b->rc == BS_OK ? quant : GNONE;
}

/* The longest row whose sums of bytes, with zero points, fit i32. */
enum { MOST_COLUMNS = 1 << 15 };

/* Activations (q - zx) sx by a weight of one scale a row: whole numbers, then (sum - zx of the weight's
 * codes) sx s, in f64 so that nothing is lost. GNONE: x or the weight is another. */
static uint32_t by_bytes(build *b, uint32_t x, uint32_t quant, uint32_t bias) {
  lower_map m;
  lower_codes q;
  uint32_t sum = GNONE, scales = GNONE, sums = GNONE;
  const bs_quant *form = b->rc == BS_OK ? lower_quant_form(b->c, quant) : NULL;
  if (form == NULL || !lower_is_dequantised(b->c, x, &q) || form->group != form->cols ||
      (form->flags & BS_QUANT_LOWS) != 0 || form->cols > MOST_COLUMNS)
    return GNONE;
  const uint32_t dtype = build_dtype(b, x);
  const double sx = build_read_real(b, q.scale, "the scale");
  const int64_t zx = q.zero != GNONE ? build_read_int(b, q.zero, "the zero point") : 0;
  if (b->rc == BS_OK) b->rc = lower_matmul_q(b->c, q.x, quant, GNONE, BS_I32, &sum, b->err);
  if (b->rc == BS_OK) b->rc = lower_quant_sums(b->c, quant, &scales, &sums, b->err);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_F64);
  uint8_t v = lower_map_in(&m, sum);
  if (zx != 0) {
    const uint8_t less =
        lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, sums), lower_map_const(&m, (double)zx), 0);
    v = lower_map_step(&m, BS_EXPR_SUB, v, less, 0);
  }
  const uint8_t scale = lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, scales), lower_map_const(&m, sx), 0);
  v = lower_map_step(&m, BS_EXPR_MUL, v, scale, 0);
  if (bias != GNONE) v = lower_map_step(&m, BS_EXPR_ADD, v, lower_map_in(&m, bias), 0);
  return build_map(b, &m, v, dtype);
}

/* x W^T + bias, W quantised. */
static uint32_t by_quant(build *b, uint32_t x, uint32_t quant, uint32_t bias) {
  uint32_t y = by_bytes(b, x, quant, bias);
  if (b->rc == BS_OK && y == GNONE)
    b->rc = lower_matmul_q(b->c, x, quant, bias, build_dtype(b, x), &y, b->err);
  return b->rc == BS_OK ? y : GNONE;
}

/* The floats of a quantised constant; another value is itself. */
static uint32_t wide(build *b, uint32_t value) {
  if (b->rc == BS_OK) b->rc = lower_wide(b->c, b->node, value, &value, b->err);
  return b->rc == BS_OK ? value : GNONE;
}

/* The value with leading dims of 1 up to that rank. */
static uint32_t lead(build *b, uint32_t value, uint32_t rank) {
  while (b->rc == BS_OK && build_rank(b, value) < rank) value = build_unsqueeze(b, value, 0);
  return value;
}

static int32_t matmul(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x = wide(&b, build_in(&b, 0)), w = build_in(&b, 1), y;
  const uint32_t rx = build_rank(&b, x), rw = build_rank(&b, w);
  build_check(&b, lower_float_dtype(c, x) == lower_float_dtype(c, w), "its inputs have different dtypes");
  build_check(&b, build_dtype(&b, x) != BS_BOOL, "the operator takes numbers, not bool");
  build_check(&b, rx > 0 && rw > 0, "an input has rank 0");
  const uint32_t quant = rw == 2 ? quant_of(&b, x, build_swap(&b, w, 0, 1)) : GNONE;
  if (quant == GNONE) w = wide(&b, w);
  if (rx == 1) x = build_unsqueeze(&b, x, 0);
  if (rw == 1) w = build_unsqueeze(&b, w, 1);
  build_check(&b, build_dim(&b, x, build_rank(&b, x) - 1) == build_dim(&b, w, build_rank(&b, w) - 2),
              "the inner dims differ");
  if (quant != GNONE) {
    y = by_quant(&b, x, quant, GNONE);
  } else if (is_weight(&b, x, w)) {
    y = by_weight(&b, x, build_swap(&b, w, 0, 1), GNONE);
  } else {
    const uint32_t rank = build_rank(&b, x) > build_rank(&b, w) ? build_rank(&b, x) : build_rank(&b, w);
    y = build_contract(&b, lead(&b, x, rank), lead(&b, w, rank), GNONE, 1);
  }
  if (rw == 1) y = build_squeeze(&b, y, build_rank(&b, y) - 1);
  if (rx == 1) y = build_squeeze(&b, y, build_rank(&b, y) - (rw == 1 ? 1 : 2));
  build_out(&b, 0, y);
  return b.rc;
}

/* y alpha + term, in floats. */
static uint32_t scaled_sum(build *b, uint32_t y, double alpha, uint32_t term) {
  lower_map m;
  if (b->rc != BS_OK || (alpha == 1 && term == GNONE)) return y;
  lower_map_begin(&m, b->c, lower_compute(build_dtype(b, y)));
  uint8_t v = lower_map_in(&m, y);
  if (alpha != 1) v = lower_map_step(&m, BS_EXPR_MUL, v, lower_map_const(&m, alpha), 0);
  if (term != GNONE) v = lower_map_step(&m, BS_EXPR_ADD, v, lower_map_in(&m, term), 0);
  return build_map(b, &m, v, build_dtype(b, y));
}

static int32_t gemm(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t x = wide(&b, build_in(&b, 0)), w = build_in(&b, 1), term = wide(&b, build_optional(&b, 2));
  const double alpha = lower_float(node, "alpha", 1), beta = lower_float(node, "beta", 1);
  const uint32_t dtype = build_dtype(&b, x);
  build_check(&b, build_rank(&b, x) == 2 && build_rank(&b, w) == 2, "A and B must have 2 dims");
  build_check(&b, dtype == lower_float_dtype(c, w) && (term == GNONE || dtype == build_dtype(&b, term)),
              "its inputs have different dtypes");
  if (!build_is_float(dtype) && (alpha != 1 || beta != 1))
    build_refuse(&b, dtype, "alpha or beta of integers");
  if (b.rc != BS_OK) return b.rc;
  if (lower_int(node, "transA", 0)) x = build_swap(&b, x, 0, 1);
  if (!lower_int(node, "transB", 0)) w = build_swap(&b, w, 0, 1);
  const uint32_t quant = quant_of(&b, x, w);
  if (quant == GNONE) w = wide(&b, w);
  const int64_t n = build_dim(&b, w, 0);
  build_check(&b, build_dim(&b, x, 1) == build_dim(&b, w, 1), "the inner dims differ");
  build_check(&b, build_rank(&b, term) <= 2, "C has more than 2 dims");
  if (beta == 0) term = GNONE;
  if (term != GNONE && beta != 1) term = build_scale(&b, term, beta);
  if (term != GNONE) term = lead(&b, term, 2);
  uint32_t y;
  if (quant != GNONE || is_weight(&b, x, w)) {
    const int row = term != GNONE && alpha == 1 && build_dim(&b, term, 0) == 1 && build_dim(&b, term, 1) == n;
    const uint32_t bias = row ? build_squeeze(&b, term, 0) : GNONE;
    y = quant != GNONE ? by_quant(&b, x, quant, bias) : by_weight(&b, x, w, bias);
    y = scaled_sum(&b, y, alpha, row ? GNONE : term);
  } else {
    y = alpha == 0 ? scaled_sum(&b, build_contract(&b, x, build_swap(&b, w, 0, 1), GNONE, 1), 0, term)
                   : build_contract(&b, x, build_swap(&b, w, 0, 1), term, alpha);
  }
  build_out(&b, 0, y);
  return b.rc;
}

const lower_rule lower_rules_product[] = {
    {"MatMul", 1, 0, matmul, NULL}, {"Gemm", 7, 0, gemm, NULL}, {"Einsum", 12, 0, lower_einsum, NULL}, {0}};
