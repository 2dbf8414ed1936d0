/* SPDX-License-Identifier: MIT
 * program.c - parts of programs of map, two programs as one, the normal form. */
#include "graph/pass/program.h"

#include <math.h>
#include <string.h>

#include "blockshock/expr_value.h"
#include "core/base/dtype.h"
#include "graph/ir/query.h"

uint32_t program_inputs(const gexpr *e, uint8_t operand) {
  uint32_t sets[GX_STEP + GX_MAX_STEPS] = {0};
  for (uint32_t i = 0; i < e->n_in; i++) sets[GX_IN + i] = 1u << i;
  for (uint32_t i = 0; i < e->n_steps; i++) {
    const uint32_t arity = gexpr_arity(e->steps[i].op);
    uint32_t set = e->steps[i].op == BS_EXPR_INDEX ? UINT32_MAX : 0;
    if (arity > 0) set |= sets[e->steps[i].a];
    if (arity > 1) set |= sets[e->steps[i].b];
    if (arity > 2) set |= sets[e->steps[i].c];
    sets[GX_STEP + i] = set;
  }
  return sets[operand];
}

int program_has(const gexpr *e, uint8_t op) {
  for (uint32_t i = 0; i < e->n_steps; i++)
    if (e->steps[i].op == op) return 1;
  return 0;
}

/* ---- two programs as one --------------------------------------------------------------------- */

static int add_const(gexpr *e, uint64_t bits, uint8_t *out_operand) {
  uint32_t i = 0;
  while (i < e->n_const && e->consts[i] != bits) i++;
  if (i == GX_MAX_CONST) return 0;
  if (i == e->n_const) e->consts[e->n_const++] = bits;
  *out_operand = (uint8_t)(GX_CONST + i);
  return 1;
}

/* a, b or c of a step. */
static uint8_t *operand_of(gexpr *e, uint32_t step, uint32_t k) {
  if (k == 0) return &e->steps[step].a;
  return k == 1 ? &e->steps[step].b : &e->steps[step].c;
}

static uint8_t moved(uint8_t o, uint32_t by) {
  return o >= GX_STEP ? (uint8_t)(o + by) : o;
}

int program_join(gexpr *c, uint8_t input, const gexpr *p, const uint8_t *maps, uint32_t round) {
  gexpr e = *c;
  uint8_t consts[GX_MAX_CONST];
  const uint32_t extra = p->n_steps + (round != 0 ? 1u : 0u);
  if (c->n_steps + extra > GX_MAX_STEPS) return 0;
  for (uint32_t i = 0; i < p->n_const; i++)
    if (!add_const(&e, p->consts[i], &consts[i])) return 0;
  memmove(&e.steps[extra], &e.steps[0], c->n_steps * sizeof e.steps[0]);
  for (uint32_t i = 0; i < p->n_steps; i++) {
    e.steps[i] = p->steps[i];
    const uint32_t arity = gexpr_arity(p->steps[i].op);
    for (uint32_t k = 0; k < arity; k++) {
      const uint8_t o = *operand_of(&e, i, k);
      if (o < GX_CONST)
        *operand_of(&e, i, k) = maps[o];
      else if (o < GX_STEP)
        *operand_of(&e, i, k) = consts[o - GX_CONST];
    }
  }
  uint8_t result = p->outs[0];
  if (result < GX_CONST)
    result = maps[result];
  else if (result < GX_STEP)
    result = consts[result - GX_CONST];
  if (round != 0) {
    e.steps[p->n_steps].op = BS_EXPR_TO;
    e.steps[p->n_steps].a = result;
    e.steps[p->n_steps].b = (uint8_t)(round >> 8);
    e.steps[p->n_steps].c = (uint8_t)round;
    result = (uint8_t)(GX_STEP + p->n_steps);
  }
  e.n_steps = (uint8_t)(c->n_steps + extra);
  for (uint32_t i = extra; i < e.n_steps; i++) {
    const uint32_t arity = gexpr_arity(e.steps[i].op);
    for (uint32_t k = 0; k < arity; k++)
      *operand_of(&e, i, k) = *operand_of(&e, i, k) == input ? result : moved(*operand_of(&e, i, k), extra);
  }
  for (uint32_t i = 0; i < e.n_out; i++) e.outs[i] = e.outs[i] == input ? result : moved(e.outs[i], extra);
  *c = e;
  return 1;
}

void program_drop_input(gexpr *e, uint8_t input) {
  for (uint32_t i = 0; i < e->n_steps; i++) {
    const uint32_t arity = gexpr_arity(e->steps[i].op);
    for (uint32_t k = 0; k < arity; k++)
      if (*operand_of(e, i, k) < GX_CONST && *operand_of(e, i, k) > input) --*operand_of(e, i, k);
  }
  for (uint32_t i = 0; i < e->n_out; i++)
    if (e->outs[i] < GX_CONST && e->outs[i] > input) --e->outs[i];
  e->n_in--;
}

/* ---- normal form ----------------------------------------------------------------------------- */

/* Not min and max: of 0 and -0 each of them may give its first. */
static int commutes(uint8_t op) {
  return op == BS_EXPR_ADD || op == BS_EXPR_MUL || op == BS_EXPR_EQ || op == BS_EXPR_AND ||
         op == BS_EXPR_OR || op == BS_EXPR_XOR;
}

static int is_const(uint8_t o) {
  return o >= GX_CONST && o < GX_STEP;
}

/* The constant that a step over constants is: its value in f64, rounded to the compute dtype once. A
 * function's bits may differ from the run's, which is within 4 ulp. */
static int fold_step(gexpr *e, uint32_t i, uint8_t *out_operand) {
  const uint8_t op = e->steps[i].op;
  const uint32_t arity = gexpr_arity(op);
  if (e->compute == BS_I64 || arity == 0 || op == BS_EXPR_TO) return 0;
  const uint8_t operands[3] = {e->steps[i].a, e->steps[i].b, e->steps[i].c};
  double v[3] = {0};
  for (uint32_t k = 0; k < arity && k < 3; k++) {
    if (!is_const(operands[k])) return 0;
    v[k] = program_const(e, operands[k] - GX_CONST);
    if (e->compute == BS_F32) v[k] = (double)(float)v[k];
  }
  double value = bs_expr_value(op, v[0], v[1], v[2]);
  if (e->compute == BS_F32) value = (double)(float)value;
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return add_const(e, bits, out_operand);
}

static void put_in_order(gexpr *e, uint32_t i) {
  if (!commutes(e->steps[i].op) || e->steps[i].a <= e->steps[i].b) return;
  const uint8_t a = e->steps[i].a;
  e->steps[i].a = e->steps[i].b;
  e->steps[i].b = a;
}

/* The replacement of a step: an earlier equal step, a constant, the operand of a mov, or the step itself. */
static uint8_t same_as(gexpr *e, uint32_t i) {
  uint8_t constant;
  if (e->steps[i].op == BS_EXPR_MOV) return e->steps[i].a;
  if (fold_step(e, i, &constant)) return constant;
  for (uint32_t k = 0; k < i; k++)
    if (memcmp(&e->steps[k], &e->steps[i], sizeof e->steps[0]) == 0) return (uint8_t)(GX_STEP + k);
  return (uint8_t)(GX_STEP + i);
}

static void keep_needed(gexpr *e) {
  uint8_t needed[GX_STEP + GX_MAX_STEPS] = {0}, number[GX_STEP + GX_MAX_STEPS];
  gexpr out = {.compute = e->compute, .n_in = e->n_in, .n_out = e->n_out};
  for (uint32_t i = 0; i < e->n_out; i++) needed[e->outs[i]] = 1;
  for (uint32_t i = e->n_steps; i-- > 0;) {
    if (!needed[GX_STEP + i]) continue;
    const uint32_t arity = gexpr_arity(e->steps[i].op);
    if (arity > 0) needed[e->steps[i].a] = 1;
    if (arity > 1) needed[e->steps[i].b] = 1;
    if (arity > 2) needed[e->steps[i].c] = 1;
  }
  for (uint32_t i = 0; i < GX_CONST; i++) number[i] = (uint8_t)i;
  for (uint32_t i = 0; i < e->n_const; i++)
    if (needed[GX_CONST + i]) {
      number[GX_CONST + i] = (uint8_t)(GX_CONST + out.n_const);
      out.consts[out.n_const++] = e->consts[i];
    }
  for (uint32_t i = 0; i < e->n_steps; i++) {
    if (!needed[GX_STEP + i]) continue;
    const uint32_t arity = gexpr_arity(e->steps[i].op);
    number[GX_STEP + i] = (uint8_t)(GX_STEP + out.n_steps);
    out.steps[out.n_steps] = e->steps[i];
    if (arity > 0) out.steps[out.n_steps].a = number[e->steps[i].a];
    if (arity > 1) out.steps[out.n_steps].b = number[e->steps[i].b];
    if (arity > 2) out.steps[out.n_steps].c = number[e->steps[i].c];
    out.n_steps++;
  }
  for (uint32_t i = 0; i < e->n_out; i++) out.outs[i] = number[e->outs[i]];
  *e = out;
}

int program_tidy(gexpr *e) {
  const gexpr before = *e;
  uint8_t same[GX_STEP + GX_MAX_STEPS];
  for (uint32_t i = 0; i < GX_STEP + GX_MAX_STEPS; i++) same[i] = (uint8_t)i;
  for (uint32_t i = 0; i < e->n_steps; i++) {
    const uint32_t arity = gexpr_arity(e->steps[i].op);
    if (arity > 0) e->steps[i].a = same[e->steps[i].a];
    if (arity > 1) e->steps[i].b = same[e->steps[i].b];
    if (arity > 2) e->steps[i].c = same[e->steps[i].c];
    put_in_order(e, i);
    same[GX_STEP + i] = same_as(e, i);
  }
  for (uint32_t i = 0; i < e->n_out; i++) e->outs[i] = same[e->outs[i]];
  keep_needed(e);
  return memcmp(&before, e, sizeof before) != 0;
}
