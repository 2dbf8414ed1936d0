/* SPDX-License-Identifier: MIT
 * contrib.c - operators of com.microsoft that the optimiser of ONNX Runtime writes: an operator of ai.onnx
 * and what follows it in one node. Their definitions are public (ContribOperators.md of ONNX Runtime). */
#include <string.h>

#include "graph/lower/build.h"
#include "graph/lower/rules.h"

/* Gelu, BiasGelu (by erf), FastGelu (by tanh) and QuickGelu: of x, or of x and a bias. */
static int32_t gelu(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t x = build_in(&b, 0), bias = build_optional(&b, 1), dtype = build_dtype(&b, x);
  build_check(&b, build_is_float(dtype), "the operator takes floats");
  build_check(&b, bias == GNONE || build_dtype(&b, bias) == dtype, "its inputs have different dtypes");
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, lower_compute(dtype));
  uint8_t v = lower_map_in(&m, x);
  if (bias != GNONE) v = lower_map_step(&m, BS_EXPR_ADD, v, lower_map_in(&m, bias), 0);
  if (node->op[0] == 'Q') {
    const uint8_t by = lower_map_const(&m, lower_float(node, "alpha", 1.702f));
    const uint8_t power = lower_map_step(&m, BS_EXPR_MUL, v, by, 0);
    v = lower_map_step(&m, BS_EXPR_MUL, v, lower_map_step(&m, BS_EXPR_SIGMOID, power, 0, 0), 0);
  } else {
    v = lower_map_step(&m, node->op[0] == 'F' ? BS_EXPR_GELU_TANH : BS_EXPR_GELU, v, 0, 0);
  }
  build_out(&b, 0, build_map(&b, &m, v, dtype));
  return b.rc;
}

/* y of an operator of ai.onnx over these inputs, with the attributes of the node. */
static uint32_t call(build *b, const char *op, const uint32_t *in, uint32_t n_in) {
  uint32_t y = GNONE;
  if (b->rc == BS_OK)
    b->rc = lower_call(b->c, b->node, op, in, n_in, b->node->attrs, b->node->n_attr, &y, 1, b->err);
  return b->rc == BS_OK ? y : GNONE;
}

/* alpha A B, each turned where the node says so. */
static int32_t fused_matmul(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  static const char *const turns[2] = {"transA", "transB"};
  build b = build_begin(c, node, err);
  uint32_t in[2];
  for (uint32_t i = 0; i < 2; ++i) {
    in[i] = build_in(&b, i);
    const uint32_t rank = build_rank(&b, in[i]);
    if (rank >= 2 && lower_int(node, turns[i], 0) != 0) in[i] = build_swap(&b, in[i], rank - 2, rank - 1);
  }
  if (lower_int(node, "transBatchA", 0) != 0 || lower_int(node, "transBatchB", 0) != 0)
    build_refuse(&b, 0, "transBatchA or transBatchB");
  const double alpha = lower_float(node, "alpha", 1);
  const uint32_t y = call(&b, "MatMul", in, 2);
  build_out(&b, 0, alpha == 1 ? y : build_scale(&b, y, alpha));
  return b.rc;
}

/* A convolution, a sum with Z where it is there, and an activation if one is named. */
static int32_t fused_conv(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t in[3] = {build_in(&b, 0), build_in(&b, 1), build_optional(&b, 2)}, z = build_optional(&b, 3);
  const char *name = lower_text(node, "activation", "");
  if (name[0] != '\0' && strcmp(name, "Relu") != 0 && strcmp(name, "Tanh") != 0 &&
      strcmp(name, "Sigmoid") != 0)
    build_refuse(&b, 0, "an activation other than Relu, Tanh and Sigmoid");
  uint32_t y = call(&b, "Conv", in, in[2] != GNONE ? 3 : 2);
  if (z != GNONE) y = build_binary(&b, BS_EXPR_ADD, y, z, build_dtype(&b, y));
  build_out(&b, 0, name[0] != '\0' ? call(&b, name, &y, 1) : y);
  return b.rc;
}

/* The norm of input + skip + bias over the last dim, and that sum. */
static int32_t skip_norm(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const int layer = strcmp(node->op, "SkipLayerNormalization") == 0;
  const uint32_t x = build_in(&b, 0), skip = build_in(&b, 1), gamma = build_in(&b, 2);
  const uint32_t beta = layer ? build_optional(&b, 3) : GNONE, bias = build_optional(&b, layer ? 4 : 3);
  const uint32_t dtype = build_dtype(&b, x), rank = build_rank(&b, x);
  build_check(&b, build_is_float(dtype) && rank >= 2, "the input must be of floats, with 2 dims at least");
  if (b.rc != BS_OK) return b.rc;
  const int64_t n = build_dim(&b, x, rank - 1);
  const uint32_t rows[] = {gamma, beta, bias};
  for (uint32_t i = 0; i < 3; ++i)
    build_check(&b, rows[i] == GNONE || (build_rank(&b, rows[i]) == 1 && build_dim(&b, rows[i], 0) == n),
                "gamma, beta or bias is not a row");
  if (lower_wants(node, 1) || lower_wants(node, 2)) build_refuse(&b, 0, "the outputs mean and inv_std_var");
  uint32_t sum = build_binary(&b, BS_EXPR_ADD, x, skip, dtype);
  if (bias != GNONE) sum = build_binary(&b, BS_EXPR_ADD, sum, bias, dtype);
  build_out(&b, 0,
            build_normalize(&b, layer ? BS_NORMALIZE_LAYER : BS_NORMALIZE_RMS,
                            lower_float(node, "epsilon", 1e-12f), sum, gamma, beta));
  if (lower_wants(node, 3)) build_out(&b, 3, sum);
  return b.rc;
}

const lower_rule lower_rules_contrib[] = {
    {"Gelu", 1, 0, gelu, "com.microsoft"},
    {"BiasGelu", 1, 0, gelu, "com.microsoft"},
    {"FastGelu", 1, 0, gelu, "com.microsoft"},
    {"QuickGelu", 1, 0, gelu, "com.microsoft"},
    {"FusedMatMul", 1, 0, fused_matmul, "com.microsoft"},
    {"FusedConv", 1, 0, fused_conv, "com.microsoft"},
    {"GatherBlockQuantized", 1, 0, lower_gather_blocks, "com.microsoft"},
    {"MatMulNBits", 1, 0, lower_matmul_nbits, "com.microsoft"},
    {"SkipLayerNormalization", 1, 0, skip_norm, "com.microsoft"},
    {"SkipSimplifiedLayerNormalization", 1, 0, skip_norm, "com.microsoft"},
    {0}};
