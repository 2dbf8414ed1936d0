/* SPDX-License-Identifier: MIT
 * follow.c - which constants follow the sizes of the model's dimensions, so that one plan can serve a range
 * of sizes (graph/run/bucket.h). The range is looked at in few places. What holds there holds within the
 * range where every number of a shape's arithmetic is a linear function of the sizes, or does not vary: the
 * result of an operator that is linear needs no look; those of others are kept in the graph (gkept), with the
 * signs that decide about them. Of an operator that is not known here the numbers must not vary, or each size
 * is looked at. */
#include <string.h>

#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/lower/follow.h"

static const struct {
  const char *op;
  uint8_t kind;
} rules[] = {{"Shape", SOURCE},
             {"Size", SOURCE},
             {"Identity", EXACT},
             {"Add", EXACT},
             {"Sub", EXACT},
             {"Sum", EXACT},
             {"Neg", EXACT},
             {"Cast", EXACT},
             {"CastLike", EXACT},
             {"Where", EXACT},
             {"Not", EXACT},
             {"And", EXACT},
             {"Or", EXACT},
             {"Xor", EXACT},
             {"Mul", KEPT},
             {"Pow", KEPT},
             {"Sqrt", KEPT},
             {"Reciprocal", KEPT},
             {"Floor", KEPT},
             {"Ceil", KEPT},
             {"Round", KEPT},
             {"Abs", SIGNED},
             {"Sign", SIGNED},
             {"Relu", SIGNED},
             {"Equal", COMPARE},
             {"Less", COMPARE},
             {"LessOrEqual", COMPARE},
             {"Greater", COMPARE},
             {"GreaterOrEqual", COMPARE},
             {"Min", COMPARE},
             {"Max", COMPARE},
             {"Clip", CLIP},
             {"Div", DIVIDE},
             {"Mod", REMAINDER},
             {"BitShift", EACH},
             {"BitwiseAnd", EACH},
             {"BitwiseOr", EACH},
             {"BitwiseXor", EACH},
             {"BitwiseNot", EACH},
             {"Exp", EACH},
             {"Log", EACH},
             {"Sin", EACH},
             {"Cos", EACH},
             {"Tanh", EACH},
             {"Sigmoid", EACH},
             {"Erf", EACH},
             {"Unsqueeze", MOVED},
             {"Squeeze", MOVED},
             {"Transpose", MOVED},
             {"Expand", EXPAND},
             {"ConstantOfShape", FILL},
             {"Range", RANGE},
             {"Concat", CONCAT},
             {"Gather", GATHER},
             {"GatherElements", GATHER},
             {"GatherND", GATHER},
             {"Slice", SLICE},
             {"Reshape", RESHAPE},
             {"Flatten", RESHAPE},
             {"CumSum", CUMSUM},
             {"Trilu", TRILU},
             {"ReduceSum", SUM},
             {"ReduceProd", PRODUCT},
             {"Tile", TILE},
             {"Pad", PAD},
             {"MatMul", DATA},
             {"Gemm", DATA},
             {"Softmax", DATA},
             {"LogSoftmax", DATA},
             {"LayerNormalization", DATA},
             {"Attention", DATA},
             {"Conv", DATA},
             {"If", BRANCH},
             {"Loop", LOOP}};

/* ---- a node ---------------------------------------------------------------------------------- */

static int32_t note(lower_ctx *c, uint32_t value, unsigned is, bs_error *err) {
  if (value == GNONE) return BS_OK;
  while (c->n_follows <= value)
    if (!ARRAY_GROW(c->follows, c->n_follows, c->cap_follows))
      return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to lower the model");
    else
      c->follows[c->n_follows++] = 0;
  c->follows[value] |= (unsigned char)is;
  if (is & (DIMS | NUMBERS)) c->g->values[c->g->values[value].base].flags |= GV_FOLLOWS;
  return BS_OK;
}

static int kind_of(const char *op) {
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (strcmp(rules[i].op, op) == 0) return rules[i].kind;
  return -1;
}

/* What a node's results are; what it needs is kept. */
static unsigned of_results(follow *f, int kind) {
  if (kind != SOURCE && kind != SLICE && kind != LOOP && !(f->all & (DIMS | NUMBERS)))
    return f->is_known && kind != BRANCH ? KNOWN : 0;
  if (kind >= EXACT && kind <= EACH) {
    if (f->is_known) follow_elements(f, (uint32_t)kind);
    return f->is_known ? f->all : 0;
  }
  if (kind == SOURCE || (kind >= MOVED && kind < TILE)) {
    const unsigned is = follow_apply(f, (uint32_t)kind);
    return f->is_known ? is | KNOWN : 0;
  }
  if (kind >= TILE) follow_run(f, kind);
  if (kind == LOOP || kind == BRANCH) return 0; /* the nodes inside tell */
  if (kind < 0 || f->is_known) follow_keep_all_fixed(f);
  return f->is_known ? f->all : 0;
}

/* Its inputs, as many as have room. */
static void read_inputs(follow *f) {
  const uint32_t room = sizeof f->in / sizeof f->in[0];
  for (uint32_t i = 0; i < f->node->n_in; i++) {
    const uint32_t value = lower_in(f->c, f->node, i);
    const unsigned is = follow_value(f->c, value);
    f->is_known &= (is & KNOWN) != 0;
    f->all |= is & KNOWN ? is : 0;
    if (i < room) f->in[f->n_in++] = value;
  }
  if (f->node->n_in > room && f->all & (DIMS | NUMBERS)) follow_keep(f, 0, GKEPT_UNKNOWN);
}

int32_t lower_follow(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  follow f = {.c = c, .node = node, .is_known = 1, .rc = BS_OK, .err = err};
  const int kind = kind_of(node->op);
  int compound = 0;
  for (uint32_t i = 0; i < node->n_in; i++) compound |= lower_is_compound(lower_in(c, node, i));
  for (uint32_t i = 0; i < node->n_out; i++) compound |= lower_is_compound(follow_output(&f, i));
  if (compound) { /* what it holds is not followed */
    follow_keep(&f, 0, GKEPT_UNKNOWN);
    return f.rc;
  }
  read_inputs(&f);
  f.is_known |= kind == SOURCE;
  const unsigned is = of_results(&f, kind);
  for (uint32_t i = 0; i < node->n_out && f.rc == BS_OK; i++) {
    const uint32_t out = follow_output(&f, i);
    if (kind == LOOP && out != GNONE && lower_is_const(c, out))
      f.rc = note(c, out, KNOWN | DIMS | NUMBERS, err);
    else if (is != 0)
      f.rc = note(c, out, is, err);
  }
  return f.rc;
}
