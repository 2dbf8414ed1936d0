/* SPDX-License-Identifier: MIT
 * expr.c - the programs of the op `map`: is one well formed, which named form is it, its text for keys of
 * choices. Called by bs_op_check before any implementation sees a program. Pure. */
#include "core/op/expr.h"

#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/op/schema.h"

enum { UNARY = 1, BINARY = 2, TERNARY = 3, CONVERT = 4, PLACE = 5 };

/* One row an op code: its name, its operands, and whether an I64 program may have it. */
static const struct {
  const char *name;
  uint8_t kind, integers;
} ops[BS_EXPR_OP_COUNT_] = {
    [BS_EXPR_MOV] = {"mov", UNARY, 1},         [BS_EXPR_NEG] = {"neg", UNARY, 1},
    [BS_EXPR_ABS] = {"abs", UNARY, 1},         [BS_EXPR_SIGN] = {"sign", UNARY, 1},
    [BS_EXPR_FLOOR] = {"floor", UNARY, 0},     [BS_EXPR_CEIL] = {"ceil", UNARY, 0},
    [BS_EXPR_ROUND] = {"round", UNARY, 0},     [BS_EXPR_SQRT] = {"sqrt", UNARY, 0},
    [BS_EXPR_RSQRT] = {"rsqrt", UNARY, 0},     [BS_EXPR_RECIP] = {"recip", UNARY, 0},
    [BS_EXPR_EXP] = {"exp", UNARY, 0},         [BS_EXPR_LOG] = {"log", UNARY, 0},
    [BS_EXPR_SIN] = {"sin", UNARY, 0},         [BS_EXPR_COS] = {"cos", UNARY, 0},
    [BS_EXPR_TANH] = {"tanh", UNARY, 0},       [BS_EXPR_ERF] = {"erf", UNARY, 0},
    [BS_EXPR_SIGMOID] = {"sigmoid", UNARY, 0}, [BS_EXPR_SOFTPLUS] = {"softplus", UNARY, 0},
    [BS_EXPR_GELU] = {"gelu", UNARY, 0},       [BS_EXPR_GELU_TANH] = {"gelu_tanh", UNARY, 0},
    [BS_EXPR_SILU] = {"silu", UNARY, 0},       [BS_EXPR_NOT] = {"not", UNARY, 1},
    [BS_EXPR_ISNAN] = {"isnan", UNARY, 0},     [BS_EXPR_ISINF] = {"isinf", UNARY, 0},
    [BS_EXPR_ADD] = {"add", BINARY, 1},        [BS_EXPR_SUB] = {"sub", BINARY, 1},
    [BS_EXPR_MUL] = {"mul", BINARY, 1},        [BS_EXPR_DIV] = {"div", BINARY, 1},
    [BS_EXPR_FMOD] = {"fmod", BINARY, 1},      [BS_EXPR_POW] = {"pow", BINARY, 1},
    [BS_EXPR_MIN] = {"min", BINARY, 1},        [BS_EXPR_MAX] = {"max", BINARY, 1},
    [BS_EXPR_LT] = {"lt", BINARY, 1},          [BS_EXPR_LE] = {"le", BINARY, 1},
    [BS_EXPR_EQ] = {"eq", BINARY, 1},          [BS_EXPR_AND] = {"and", BINARY, 1},
    [BS_EXPR_OR] = {"or", BINARY, 1},          [BS_EXPR_XOR] = {"xor", BINARY, 1},
    [BS_EXPR_FMA] = {"fma", TERNARY, 1},       [BS_EXPR_SELECT] = {"select", TERNARY, 1},
    [BS_EXPR_TO] = {"to", CONVERT, 1},         [BS_EXPR_INDEX] = {"index", PLACE, 1},
};

/* ---- forms ---------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  uint8_t n_in, n_steps, n_out;
  bs_expr_step steps[6];
  uint8_t outs[2];
} forms[BS_MAP_COUNT_] = {
    [BS_MAP_COPY] = {"copy", 1, 0, 1, {{0, 0, 0, 0}}, {0}},
    [BS_MAP_ADD] = {"add", 2, 1, 1, {{BS_EXPR_ADD, 0, 1, 0}}, {2}},
    [BS_MAP_MUL] = {"mul", 2, 1, 1, {{BS_EXPR_MUL, 0, 1, 0}}, {2}},
    [BS_MAP_GELU] = {"gelu", 1, 1, 1, {{BS_EXPR_GELU, 0, 0, 0}}, {1}},
    [BS_MAP_GELU_TANH] = {"gelu_tanh", 1, 1, 1, {{BS_EXPR_GELU_TANH, 0, 0, 0}}, {1}},
    [BS_MAP_SILU] = {"silu", 1, 1, 1, {{BS_EXPR_SILU, 0, 0, 0}}, {1}},
    [BS_MAP_SILU_MUL] = {"silu_mul", 2, 2, 1, {{BS_EXPR_SILU, 0, 0, 0}, {BS_EXPR_MUL, 2, 1, 0}}, {3}},
    [BS_MAP_ROPE] = {"rope",
                     4,
                     6,
                     2,
                     {{BS_EXPR_MUL, 0, 2, 0},
                      {BS_EXPR_MUL, 1, 3, 0},
                      {BS_EXPR_SUB, 4, 5, 0},
                      {BS_EXPR_MUL, 1, 2, 0},
                      {BS_EXPR_MUL, 0, 3, 0},
                      {BS_EXPR_ADD, 7, 8, 0}},
                     {6, 9}},
};

static int is_form(const bs_expr *e, uint32_t form) {
  if (e->n_in != forms[form].n_in || e->n_const != 0 || e->n_steps != forms[form].n_steps ||
      e->n_out != forms[form].n_out || (e->compute == BS_I64 && form != BS_MAP_COPY))
    return 0;
  for (uint32_t i = 0; i < e->n_steps; i++)
    if (memcmp(&e->steps[i], &forms[form].steps[i], sizeof e->steps[i]) != 0) return 0;
  return memcmp(e->outs, forms[form].outs, e->n_out) == 0;
}

uint32_t bs_expr_form_of(const bs_expr *expr) {
  for (uint32_t form = 1; form < BS_MAP_COUNT_; form++)
    if (is_form(expr, form)) return form;
  return BS_MAP_NONE;
}

const char *bs_expr_op_name(uint32_t op) {
  return op > 0 && op < BS_EXPR_OP_COUNT_ ? ops[op].name : "?";
}

const char *bs_expr_form_name(uint32_t form) {
  return form > 0 && form < BS_MAP_COUNT_ ? forms[form].name : "none";
}

/* ---- check ---------------------------------------------------------------------------------- */

static int32_t check_sizes(const char *op, const bs_expr *e, bs_error *err) {
  if (e->struct_size < sizeof *e)
    return bs_op_refuse(err, "BS-OP-EXPR", op, "program: struct_size %u, need %zu", e->struct_size,
                        sizeof *e);
  if (e->compute != BS_F32 && e->compute != BS_F64 && e->compute != BS_I64)
    return bs_op_refuse(err, "BS-OP-EXPR", op, "program computes in 0x%04x: f32, f64 or i64", e->compute);
  if (e->n_in > BS_EXPR_MAX_IN || e->n_const > BS_EXPR_MAX_CONST || e->n_steps > BS_EXPR_MAX_STEPS ||
      e->n_out < 1 || e->n_out > BS_EXPR_MAX_OUT)
    return bs_op_refuse(err, "BS-OP-EXPR", op,
                        "program has %u inputs, %u constants, %u steps, %u outputs: at most %d, %d, %d, %d, "
                        "one output at least",
                        e->n_in, e->n_const, e->n_steps, e->n_out, BS_EXPR_MAX_IN, BS_EXPR_MAX_CONST,
                        BS_EXPR_MAX_STEPS, BS_EXPR_MAX_OUT);
  if ((e->n_const > 0 && e->consts == NULL) || (e->n_steps > 0 && e->steps == NULL) || e->outs == NULL)
    return bs_op_refuse(err, "BS-OP-EXPR", op, "program without its %s",
                        e->outs == NULL  ? "outputs"
                        : e->n_steps > 0 ? "steps"
                                         : "constants");
  return BS_OK;
}

static int32_t check_convert(const char *op, const bs_expr *e, uint32_t i, bs_error *err) {
  const uint32_t dtype = (uint32_t)e->steps[i].b << 8 | e->steps[i].c;
  if (!bs_dtype_known(dtype))
    return bs_op_refuse(err, "BS-OP-EXPR", op, "program step %u converts to the unknown dtype 0x%04x", i,
                        dtype);
  if (e->compute == BS_I64 && bs_dtype_is_float(dtype))
    return bs_op_refuse(err, "BS-OP-EXPR", op, "program step %u converts to %s in an i64 program", i,
                        bs_dtype_name(dtype));
  return BS_OK;
}

static int32_t check_step(const char *op, const bs_expr *e, uint32_t i, uint32_t rank, bs_error *err) {
  const bs_expr_step s = e->steps[i];
  const uint32_t values = e->n_in + e->n_const + i;
  if (s.op == 0 || s.op >= BS_EXPR_OP_COUNT_)
    return bs_op_refuse(err, "BS-OP-EXPR", op, "program step %u has the unknown op %u, the largest is %d", i,
                        s.op, BS_EXPR_OP_COUNT_ - 1);
  if (e->compute == BS_I64 && !ops[s.op].integers)
    return bs_op_refuse(err, "BS-OP-EXPR", op, "program step %u, %s, needs floats, the program is i64", i,
                        ops[s.op].name);
  const uint32_t kind = ops[s.op].kind;
  if (kind == PLACE && s.a >= rank)
    return bs_op_refuse(err, "BS-OP-EXPR", op, "program step %u: index of dimension %u of %u", i, s.a, rank);
  if (kind != PLACE && (s.a >= values || (kind >= BINARY && kind <= TERNARY && s.b >= values) ||
                        (kind == TERNARY && s.c >= values)))
    return bs_op_refuse(err, "BS-OP-EXPR", op,
                        "program step %u, %s, reads value %u, %u, %u: there are %u before it", i,
                        ops[s.op].name, s.a, s.b, s.c, values);
  const int stray = kind == PLACE ? s.b != 0 || s.c != 0
                                  : (kind == UNARY && (s.b != 0 || s.c != 0)) || (kind == BINARY && s.c != 0);
  if (stray)
    return bs_op_refuse(err, "BS-OP-EXPR", op,
                        "program step %u, %s: an operand that it does not use is not 0", i, ops[s.op].name);
  return kind == CONVERT ? check_convert(op, e, i, err) : BS_OK;
}

int32_t bs_expr_check(const char *op, const bs_expr *e, uint32_t rank, bs_error *err) {
  int32_t rc = check_sizes(op, e, err);
  uint32_t max = 0;
  for (uint32_t i = 0; rc == BS_OK && i < e->n_steps; i++) {
    rc = check_step(op, e, i, rank, err);
    if (e->steps[i].op > max) max = e->steps[i].op;
  }
  for (uint32_t i = 0; rc == BS_OK && i < e->n_out; i++)
    if (e->outs[i] >= e->n_in + e->n_const + e->n_steps)
      rc = bs_op_refuse(err, "BS-OP-EXPR", op, "program output %u is value %u of %u", i, e->outs[i],
                        e->n_in + e->n_const + e->n_steps);
  if (rc == BS_OK && e->max_op != max)
    rc = bs_op_refuse(err, "BS-OP-EXPR", op, "program says max_op %u, its largest op is %u", e->max_op, max);
  if (rc == BS_OK && e->form >= BS_MAP_COUNT_)
    rc = bs_op_refuse(err, "BS-OP-EXPR", op, "program says the unknown form %u", e->form);
  if (rc == BS_OK && e->form != BS_MAP_NONE && !is_form(e, e->form))
    rc = bs_op_refuse(err, "BS-OP-EXPR", op, "program says that it is %s, but is another one",
                      forms[e->form].name);
  return rc;
}

/* ---- text ----------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t h, const void *data, size_t size) {
  const unsigned char *bytes = data;
  for (size_t i = 0; i < size; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
  return h;
}

void bs_expr_text(const bs_expr *e, bs_text *out) {
  const uint32_t form = bs_expr_form_of(e);
  bs_text_printf(out, "%s:", bs_dtype_name(e->compute));
  if (form != BS_MAP_NONE) {
    bs_text_printf(out, "%s", forms[form].name);
    return;
  }
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  if (e->n_const > 0) h = hash(h, e->consts, e->n_const * sizeof *e->consts);
  if (e->n_steps > 0) h = hash(h, e->steps, e->n_steps * sizeof *e->steps);
  h = hash(h, e->outs, e->n_out);
  bs_text_printf(out, "%u/%u/%u/%u:%016llx", e->n_in, e->n_const, e->n_steps, e->n_out,
                 (unsigned long long)h);
}
