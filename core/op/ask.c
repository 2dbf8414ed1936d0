/* SPDX-License-Identifier: MIT
 * ask.c - see ask.h. The roles of a row of the schema table are read here. A dim is a letter or a digit:
 *   B tokens, N output features, K input features, O the rank's own columns, C those of X (K with
 *   BS_QUERY_X_FULL, else O), P places of 2:4 values of O columns, T two blocks of N, S the smaller of N and
 * 8, G and J groups of 64 columns of N and of K, 1 to 9 themselves. A dtype is one, too: t the layer's, o of
 * its output, m of a bias or a gradient (f32, or f64 where the layer's has 64 bits), 8 the layer's where it
 * has 8 bits, else f8e4m3, s f32, d f64, i i32, l i64, q i8. */
#include "core/op/ask.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/op/quant.h"

enum { GROUP = 64, LARGEST = 8 };

static int64_t dim_of(const bs_op_sizes *s, char letter) {
  const int64_t own = s->partition != NULL ? s->partition->count : s->K;
  switch (letter) {
    case 'B':
      return s->B;
    case 'N':
      return s->N;
    case 'K':
      return s->K;
    case 'O':
      return own;
    case 'C':
      return (s->flags & BS_QUERY_X_FULL) != 0 ? s->K : own;
    case 'P':
      return bs_op_kept_length(own);
    case 'T':
      return 2 * s->N;
    case 'S':
      return s->N < LARGEST ? s->N : LARGEST;
    case 'G':
      return (s->N + GROUP - 1) / GROUP;
    case 'J':
      return (s->K + GROUP - 1) / GROUP;
    default:
      return letter - '0';
  }
}

static uint32_t dtype_of(const bs_op_sizes *s, char letter) {
  switch (letter) {
    case 't':
      return s->dtype;
    case 'o':
      return s->out_dtype;
    case 'm':
      return BS_DTYPE_BYTES(s->dtype) > 4 ? BS_F64 : BS_F32;
    case '8':
      return BS_DTYPE_BYTES(s->dtype) == 1 ? s->dtype : (uint32_t)BS_F8E4M3;
    case 'd':
      return BS_F64;
    case 'i':
      return BS_I32;
    case 'l':
      return BS_I64;
    case 'q':
      return BS_I8;
    default:
      return BS_F32;
  }
}

/* An optional argument is given where its name is one of the sizes'. */
static int is_given(const bs_op_sizes *s, const char *name, size_t size) {
  if (name[size - 1] != '?') return 1;
  if (strncmp(name, "bias?", size) == 0) return s->bias != 0;
  return strncmp(name, "residual?", size) == 0 && s->residual != 0;
}

static bs_tensor_desc desc_of(const bs_op_sizes *s, const char *dims, char dtype) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype_of(s, dtype)};
  for (; *dims != ':'; dims++) d.dims[d.rank++] = dim_of(s, *dims);
  int64_t stride = 1;
  for (uint32_t i = d.rank; i-- > 0;) {
    d.strides[i] = stride;
    stride *= d.dims[i] > 0 ? d.dims[i] : 1;
  }
  return d;
}

/* Arguments by the roles. */
static void put_args(const bs_op_schema *schema, const bs_op_sizes *s, bs_op_question *q) {
  uint32_t n = 0;
  for (const char *at = schema->roles; *at != '\0'; n++) {
    const size_t name = strcspn(at, ":");
    const char *dims = at + name + 1, *dtype = strchr(dims, ':') + 1;
    if (is_given(s, at, name)) {
      q->desc[n] = desc_of(s, dims, *dtype);
      q->args[n] = &q->desc[n];
    }
    at = dtype + 1 + strspn(dtype + 1, " ");
  }
  q->query.nargs = n;
}

/* The program has one step: the activation, or without one the sum of a number with itself. relu is the
 * larger one of value 0, the input, and value 1, the constant 0. */
static void put_program(const bs_op_sizes *s, bs_op_question *q) {
  static const uint8_t steps[] = {[BS_ACT_NONE] = BS_EXPR_ADD,
                                  [BS_ACT_RELU] = BS_EXPR_MAX,
                                  [BS_ACT_GELU] = BS_EXPR_GELU,
                                  [BS_ACT_SILU] = BS_EXPR_SILU,
                                  [BS_ACT_GELU_TANH] = BS_EXPR_GELU_TANH};
  const int relu = s->activation == BS_ACT_RELU;
  q->step = (bs_expr_step){.op = steps[s->activation], .b = (uint8_t)relu};
  q->out = (uint8_t)(1 + relu);
  q->expr = (bs_expr){.struct_size = sizeof q->expr,
                      .compute = BS_DTYPE_BYTES(s->dtype) > 4 ? BS_F64 : BS_F32,
                      .n_in = 1,
                      .n_const = (uint32_t)relu,
                      .n_steps = 1,
                      .n_out = 1,
                      .max_op = q->step.op,
                      .consts = &q->zero,
                      .steps = &q->step,
                      .outs = &q->out};
  q->query.expr = &q->expr;
}

/* Usual attributes of an op, and which options of a layer it takes. */
static const struct usual {
  const char *op;
  int64_t attrs[2];
  double numbers[1];
  uint32_t activation; /* 1: takes the layer's; 2: the same, and relu where the layer has none */
  uint32_t partition;  /* 1: takes the layer's, 2: needs one */
} usuals[] = {
    {"matmul", {0}, {0}, 1, 1},
    {"matmul_dx", {0}, {0}, 0, 1},
    {"matmul_dw", {0}, {0}, 0, 1},
    {"matmul_update", {0}, {0}, 0, 1},
    {"matmul24", {0}, {0}, 1, 0},
    {"matmul_q", {0}, {0}, 1, 0},
    {"gather_columns", {0}, {0}, 0, 2},
    {"scatter_columns", {0}, {0}, 0, 2},
    {"activate", {0}, {0}, 1, 0},
    {"activate_dx", {0}, {0}, 2, 0},
    {"tree_sum", {0}, {0}, 1, 0},
    {"quantize_groups", {GROUP}, {0}, 0, 0},
    {"dequantize_sum", {GROUP, 1}, {0}, 0, 0},
    {"dequantize_product", {0}, {0}, 1, 0},
    {"scaled_matmul", {GROUP}, {0}, 1, 0},
    {"loss_gradient", {1, 1}, {0}, 0, 0},
    {"normalize", {BS_NORMALIZE_LAYER}, {1e-5}, 0, 0},
    {"attention", {0}, {1}, 0, 0},
    {"attention_dx", {0}, {1}, 0, 0},
    {"contract", {0}, {1}, 1, 0},
    {"reduce", {BS_FOLD_SUM}, {1}, 0, 0},
    {"topk", {1}, {0}, 0, 0},
    {"map", {0}, {0}, 1, 0},
};

static struct usual usual_of(const char *op) {
  for (size_t i = 0; i < sizeof usuals / sizeof usuals[0]; i++)
    if (strcmp(usuals[i].op, op) == 0) return usuals[i];
  return (struct usual){.op = op};
}

int bs_op_takes(const char *op, const char *option) {
  char optional[32];
  const bs_op_schema *schema = bs_op_schema_find(op);
  if (strcmp(option, "activation") == 0) return usual_of(op).activation != 0;
  snprintf(optional, sizeof optional, "%.30s?", option);
  return schema != NULL && strstr(schema->roles, optional) != NULL;
}
int bs_op_needs_partition(const char *op) {
  return usual_of(op).partition == 2;
}
int bs_op_needs_kept(const char *op) {
  return bs_op_schema_find(op) != NULL && bs_op_takes_kept(op) && strstr(op, "24") != NULL;
}

int32_t bs_op_ask(const char *op, const bs_op_sizes *sizes, bs_op_question *q, bs_error *err) {
  const bs_op_schema *schema = bs_op_schema_find(op);
  const struct usual usual = usual_of(op);
  bs_op_sizes s = *sizes;
  memset(q, 0, sizeof *q);
  if (schema == NULL) return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-NAME", "%.60s is no core op", op);
  if (usual.partition == 0) s.partition = NULL;
  if (usual.partition == 2 && s.partition == NULL)
    return bs_op_refuse(err, "BS-OP-PARTITION", op, "needs a partition: the columns that it moves");
  if (bs_op_needs_kept(op) && s.kept == NULL)
    return bs_op_refuse(err, "BS-OP-KEPT", op, "needs the places of a 2:4 weight");
  if (s.partition == NULL) s.flags &= ~(uint32_t)BS_QUERY_X_FULL;
  put_args(schema, &s, q);
  q->query.struct_size = sizeof q->query;
  q->query.op = schema->name;
  q->query.args = q->args;
  q->query.partition = s.partition;
  q->query.kept = bs_op_needs_kept(op) ? s.kept : NULL;
  q->query.accumulate = s.accumulate;
  q->query.flags = s.flags;
  q->query.weight_dtype = schema->needs_weights != 0 ? s.weight_dtype : 0;
  if (bs_op_takes_quant(op)) {
    if (s.quant != NULL) q->quant = *s.quant;
    const int32_t rc = s.quant != NULL ? BS_OK : bs_quant_scheme("w8g32", s.N, s.K, &q->quant, err);
    if (rc != BS_OK) return rc;
    q->query.quant = &q->quant;
    q->query.weight_dtype = BS_F32;
  }
  if (usual.activation != 0) q->query.activation = s.activation;
  if (usual.activation == 2 && s.activation == BS_ACT_NONE) q->query.activation = BS_ACT_RELU;
  memcpy(q->query.attrs, usual.attrs, sizeof usual.attrs);
  memcpy(q->query.numbers, usual.numbers, sizeof usual.numbers);
  if (strncmp(op, "attention", 9) == 0) q->query.numbers[0] = 1 / sqrt((double)(s.K > 0 ? s.K : 1));
  if (schema->nargs == 0) put_program(&s, q);
  return BS_OK;
}
