/* SPDX-License-Identifier: MIT
 *
 * expr.h - the program of the op `map`: what is computed for each element.
 *
 * A program has numbered values: the inputs first (0 .. n_in-1), then the constants, then the result of each
 * step, in order. A step reads values with smaller numbers only. outs[i] is the value that output i gets.
 *
 * All values of a program have one type, `compute`. An input is converted to it when it is read, each step's
 * result is rounded to it, and an output is converted to its own dtype once. Conversions:
 *   number to float      as bs_convert: to the nearest, ties to even; what is too large becomes an
 *                        infinity, in f8e4m3 448
 *   float to integer     towards zero; what is beyond the dtype's range becomes its nearest end; NaN
 *                        becomes 0
 *   integer to integer   the low bits (mod 2^bits)
 *   anything to bool     0 where the value is 0, else 1 (of NaN 1)
 * Inputs of an I64 program are integers or bool; its outputs may be floats.
 *
 * In F32 and F64 add, sub, mul, div, sqrt are rounded correctly; the steps with functions (rsqrt and recip
 * among them) are within 4 ulp; fma is rounded once or twice. In I64 all is mod 2^64.
 *
 * Units: values have none. An ulp is the distance between two neighbouring floats.
 * Ownership: a program and its arrays belong to the asker. A plan copies what its run needs.
 * Threads: a program does not change while it is asked about, so any thread may read it.
 * Errors: the host refuses a program that breaks these rules before it asks a plugin.
 */
#ifndef BLOCKSHOCK_EXPR_H
#define BLOCKSHOCK_EXPR_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most of each that a program has. */
#define BS_EXPR_MAX_IN 12
#define BS_EXPR_MAX_CONST 16
#define BS_EXPR_MAX_STEPS 64
#define BS_EXPR_MAX_OUT 4

/* A step computes this from its operands x, y, z (the values numbered a, b, c). An I64 program refuses the
 * steps marked F. Truth is 1, falsehood 0; every value but 0 is true, NaN too. Unused operands are 0.
 * Numbers are never reused; new steps get larger numbers, so that max_op tells whether one is there. */
enum bs_expr_op {
  BS_EXPR_MOV = 1,        /* x */
  BS_EXPR_NEG = 2,        /* -x */
  BS_EXPR_ABS = 3,        /* |x| */
  BS_EXPR_SIGN = 4,       /* -1, 0 or 1; NaN of NaN */
  BS_EXPR_FLOOR = 5,      /* F */
  BS_EXPR_CEIL = 6,       /* F */
  BS_EXPR_ROUND = 7,      /* F, to the nearest integer, ties to even */
  BS_EXPR_SQRT = 8,       /* F */
  BS_EXPR_RSQRT = 9,      /* F, 1 / sqrt(x) */
  BS_EXPR_RECIP = 10,     /* F, 1 / x */
  BS_EXPR_EXP = 11,       /* F */
  BS_EXPR_LOG = 12,       /* F, natural */
  BS_EXPR_SIN = 13,       /* F */
  BS_EXPR_COS = 14,       /* F */
  BS_EXPR_TANH = 15,      /* F */
  BS_EXPR_ERF = 16,       /* F */
  BS_EXPR_SIGMOID = 17,   /* F, 1 / (1 + e^-x) */
  BS_EXPR_SOFTPLUS = 18,  /* F, log(1 + e^x) */
  BS_EXPR_GELU = 19,      /* F, x (1 + erf(x / sqrt 2)) / 2 */
  BS_EXPR_GELU_TANH = 20, /* F, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
  BS_EXPR_SILU = 21,      /* F, x sigmoid(x) */
  BS_EXPR_NOT = 22,       /* 1 where x is 0, else 0 */
  BS_EXPR_ISNAN = 23,     /* F */
  BS_EXPR_ISINF = 24,     /* F, of either sign */
  BS_EXPR_ADD = 25,       /* x + y */
  BS_EXPR_SUB = 26,       /* x - y */
  BS_EXPR_MUL = 27,       /* x y */
  BS_EXPR_DIV = 28,       /* x / y; I64: towards zero, 0 where y is 0 */
  BS_EXPR_FMOD = 29,      /* x - y trunc(x / y), the sign of x; I64: 0 where y is 0 */
  BS_EXPR_POW = 30,       /* x^y as C's pow; I64: mod 2^64; y < 0: 0, but of x = 1 and -1 their power */
  BS_EXPR_MIN = 31,       /* NaN where either is */
  BS_EXPR_MAX = 32,       /* NaN where either is */
  BS_EXPR_LT = 33,        /* x < y; 0 where either is NaN */
  BS_EXPR_LE = 34,        /* x <= y; 0 where either is NaN */
  BS_EXPR_EQ = 35,        /* x = y; 0 where either is NaN */
  BS_EXPR_AND = 36,       /* both true; I64: bit by bit */
  BS_EXPR_OR = 37,        /* one true; I64: bit by bit */
  BS_EXPR_XOR = 38,       /* exactly one true; I64: bit by bit */
  BS_EXPR_FMA = 39,       /* x y + z */
  BS_EXPR_SELECT = 40,    /* y where x is true, else z */
  BS_EXPR_TO = 41,        /* x converted to the dtype (b << 8 | c) and back; I64: to integers and bool only */
  BS_EXPR_INDEX = 42,     /* the element's index along dimension a of the outputs; a is no value here */
  BS_EXPR_OP_COUNT_ = 43
};

/* One step. Fixed size for ever. */
typedef struct bs_expr_step {
  uint8_t op; /* enum bs_expr_op */
  uint8_t a, b, c;
} bs_expr_step;

/* Programs that have a name, so that a backend can serve them by a table and answer NO to the rest. The host
 * checks that a program that says a form is exactly that one, in F32 or F64, without constants. Values by
 * their numbers: */
enum bs_map_form {
  BS_MAP_NONE = 0,
  BS_MAP_COPY = 1,      /* outs 0; in any `compute` */
  BS_MAP_ADD = 2,       /* 2 = add 0 1; outs 2 */
  BS_MAP_MUL = 3,       /* 2 = mul 0 1; outs 2 */
  BS_MAP_GELU = 4,      /* 1 = gelu 0; outs 1 */
  BS_MAP_GELU_TANH = 5, /* 1 = gelu_tanh 0; outs 1 */
  BS_MAP_SILU = 6,      /* 1 = silu 0; outs 1 */
  BS_MAP_SILU_MUL = 7,  /* gate, up: 2 = silu 0, 3 = mul 2 1; outs 3 */
  BS_MAP_ROPE = 8,      /* x, y, cos, sin: 4 = mul 0 2, 5 = mul 1 3, 6 = sub 4 5, 7 = mul 1 2, 8 = mul 0 3,
                         * 9 = add 7 8; outs 6, 9 */
  BS_MAP_COUNT_ = 9
};

/* A program. Owned by the asker and valid during the call: who prepares a plan copies what run needs. */
typedef struct bs_expr {
  uint32_t struct_size;
  uint32_t compute; /* BS_F32, BS_F64 or BS_I64 */
  uint32_t n_in, n_const, n_steps, n_out;
  uint32_t form;          /* enum bs_map_form */
  uint32_t max_op;        /* the largest op of the steps, 0 without steps; who does not know it answers NO */
  const uint64_t *consts; /* bits of `compute`: f32 in the low half */
  const bs_expr_step *steps;
  const uint8_t *outs;
} bs_expr;

#ifdef __cplusplus
}
#endif
#endif
