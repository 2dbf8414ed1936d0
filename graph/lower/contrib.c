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

/* y by the activation that a fused node names; activation_params are its numbers, in the order of ONNX. */
static uint32_t activated(build *b, const char *name, uint32_t y) {
  static const struct {
    const char *name, *numbers[2];
  } known[] = {{"Relu", {NULL}},
               {"Tanh", {NULL}},
               {"Sigmoid", {NULL}},
               {"LeakyRelu", {"alpha", NULL}},
               {"HardSigmoid", {"alpha", "beta"}},
               {"Clip", {"min", "max"}},
               {"", {NULL}}};
  const bs_attr *params = gmodel_attr(b->node, "activation_params");
  uint32_t i = 0;
  while (known[i].name[0] != '\0' && strcmp(known[i].name, name) != 0) ++i;
  if (name[0] == '\0' || b->rc != BS_OK) return y;
  if (known[i].name[0] == '\0')
    build_refuse(b, 0, "an activation other than Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid, Clip");
  const uint64_t n = params != NULL && params->type == BS_ATTR_FLOATS ? params->count : 0;
  const uint32_t wanted = known[i].numbers[0] == NULL ? 0 : known[i].numbers[1] == NULL ? 1 : 2;
  build_check(b, n == wanted || n == 0,
              "activation_params has another length than the activation has numbers");
  if (b->rc != BS_OK) return GNONE;
  if (strcmp(name, "Clip") == 0) {
    if (n == 0) return y;
    const uint32_t low = build_real(b, build_dtype(b, y), params->floats[0]),
                   high = build_real(b, build_dtype(b, y), params->floats[1]);
    const uint32_t above = build_binary(b, BS_EXPR_MAX, y, low, build_dtype(b, y));
    return build_binary(b, BS_EXPR_MIN, above, high, build_dtype(b, y));
  }
  bs_attr attrs[2] = {{0}};
  for (uint32_t k = 0; k < n; ++k)
    attrs[k] = (bs_attr){.name = known[i].numbers[k], .type = BS_ATTR_FLOAT, .f = params->floats[k]};
  uint32_t out = GNONE;
  b->rc = lower_call(b->c, b->node, name, &y, 1, attrs, (uint32_t)n, &out, 1, b->err);
  return b->rc == BS_OK ? out : GNONE;
}

/* A convolution, a sum with Z where it is there, and an activation if one is named. */
static int32_t fused_conv(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t in[3] = {build_in(&b, 0), build_in(&b, 1), build_optional(&b, 2)}, z = build_optional(&b, 3);
  const char *name = lower_text(node, "activation", "");
  uint32_t y = call(&b, "Conv", in, in[2] != GNONE ? 3 : 2);
  if (z != GNONE) y = build_binary(&b, BS_EXPR_ADD, y, z, build_dtype(&b, y));
  build_out(&b, 0, activated(&b, name, y));
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

/* Y = act(Gemm): the attributes are those of Gemm. */
static int32_t fused_gemm(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t in[3] = {build_in(&b, 0), build_in(&b, 1), build_optional(&b, 2)};
  const char *name = lower_text(node, "activation", "");
  bs_attr attrs[2] = {{.name = "alpha", .type = BS_ATTR_FLOAT, .f = lower_float(node, "activation_alpha", 0)},
                      {.name = "beta", .type = BS_ATTR_FLOAT, .f = lower_float(node, "activation_beta", 0)}};
  uint32_t n = 0, out = GNONE;
  if (strcmp(name, "LeakyRelu") == 0) n = 1;
  if (strcmp(name, "HardSigmoid") == 0) n = 2;
  if (n == 0 && strcmp(name, "Relu") != 0 && strcmp(name, "Tanh") != 0 && strcmp(name, "Sigmoid") != 0)
    build_refuse(&b, 0, "an activation other than Relu, Tanh, Sigmoid, LeakyRelu and HardSigmoid");
  const uint32_t y = call(&b, "Gemm", in, in[2] != GNONE ? 3 : 2);
  if (b.rc == BS_OK) b.rc = lower_call(c, node, name, &y, 1, attrs, n, &out, 1, err);
  build_out(&b, 0, out);
  return b.rc;
}

/* (x + bias) of which the first half is multiplied by the gelu of the second. */
static int32_t bias_split_gelu(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), bias = build_in(&b, 1), dtype = build_dtype(&b, x),
                 last = build_rank(&b, x) - 1;
  build_check(&b, build_is_float(dtype) && build_rank(&b, x) > 0 && build_dim(&b, x, last) % 2 == 0,
              "X must be of floats with an even last dim");
  if (b.rc != BS_OK) return b.rc;
  const uint32_t sum = build_binary(&b, BS_EXPR_ADD, x, bias, dtype);
  const int64_t half = build_dim(&b, sum, last) / 2;
  const uint32_t gate = build_unary(&b, BS_EXPR_GELU, build_slice(&b, sum, last, half, half, 1), dtype);
  build_out(&b, 0, build_binary(&b, BS_EXPR_MUL, build_slice(&b, sum, last, 0, half, 1), gate, dtype));
  return b.rc;
}

/* X + bias + skip. */
static int32_t bias_add(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), dtype = build_dtype(&b, x);
  const uint32_t sum = build_binary(&b, BS_EXPR_ADD, x, build_in(&b, 1), dtype);
  build_out(&b, 0, build_binary(&b, BS_EXPR_ADD, sum, build_in(&b, 2), dtype));
  return b.rc;
}

/* GroupNorm and SkipGroupNorm: channels come last unless channels_last is 0. Skip: X + skip + bias is
 * normalised. */
static int32_t contrib_group_norm(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const int skips = node->op[0] == 'S', channels_last = lower_int(node, "channels_last", 1) != 0;
  uint32_t x = build_in(&b, 0);
  const uint32_t gamma = build_in(&b, 1), beta = build_in(&b, 2), dtype = build_dtype(&b, x);
  build_check(&b, build_is_float(dtype) && build_rank(&b, x) == 4, "X must be of floats with 4 dims");
  if (skips) {
    uint32_t skip = build_in(&b, 3), bias = build_optional(&b, 4);
    if (build_rank(&b, skip) == 2 && b.rc == BS_OK) {
      const build_shape wide = {4, {build_dim(&b, skip, 0), 1, 1, build_dim(&b, skip, 1)}};
      skip = build_reshape(&b, skip, &wide);
    }
    x = build_binary(&b, BS_EXPR_ADD, x, skip, dtype);
    if (bias != GNONE) x = build_binary(&b, BS_EXPR_ADD, x, bias, dtype);
    if (lower_wants(node, 1)) build_out(&b, 1, x);
  }
  if (channels_last) x = build_move(&b, x, 1, 0);
  const build_shape shape = build_shape_of(&b, x);
  const int64_t groups = lower_int(node, "groups", 0);
  build_check(&b, groups > 0 && shape.dims[1] % groups == 0, "groups does not divide the channels");
  if (b.rc != BS_OK) return b.rc;
  const build_shape rows = {3, {shape.dims[0], groups, build_count(&b, x, ~1u) / groups}},
                    column = {3, {shape.dims[1], 1, 1}};
  uint32_t y = build_normalize(&b, BS_NORMALIZE_LAYER, lower_float(node, "epsilon", 1e-5f),
                               build_reshape(&b, x, &rows), GNONE, GNONE);
  y = build_binary(&b, BS_EXPR_MUL, build_reshape(&b, y, &shape), build_reshape(&b, gamma, &column), dtype);
  y = build_binary(&b, BS_EXPR_ADD, y, build_reshape(&b, beta, &column), dtype);
  if (lower_int(node, "activation", 0) != 0) y = build_unary(&b, BS_EXPR_SILU, y, dtype);
  build_out(&b, 0, channels_last ? build_move(&b, y, 1, 1) : y);
  return b.rc;
}

const lower_rule lower_rules_contrib[] = {
    {"Attention", 1, 0, lower_contrib_attention, "com.microsoft"},
    {"MultiHeadAttention", 1, 0, lower_multi_head_attention, "com.microsoft"},
    {"EmbedLayerNormalization", 1, 0, lower_embed_norm, "com.microsoft"},
    {"BiasSplitGelu", 1, 0, bias_split_gelu, "com.microsoft"},
    {"BiasAdd", 1, 0, bias_add, "com.microsoft"},
    {"GroupNorm", 1, 0, contrib_group_norm, "com.microsoft"},
    {"SkipGroupNorm", 1, 0, contrib_group_norm, "com.microsoft"},
    {"FusedGemm", 1, 0, fused_gemm, "com.microsoft"},
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
