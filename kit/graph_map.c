/* SPDX-License-Identifier: MIT
 * graph_map.c - queries and oracle of map. There are three kinds of programs: single steps, four a program;
 * long ones of steps whose results expr.h defines to the bit; and the forms. The oracle is a separate
 * evaluator in the program's type, with functions in long double. */
#include <math.h>
#include <stdio.h>

#include "kit/graph.h"

typedef struct kit_program {
  bs_expr expr;
  bs_expr_step steps[BS_EXPR_MAX_STEPS];
  uint64_t consts[BS_EXPR_MAX_CONST];
  uint8_t outs[BS_EXPR_MAX_OUT];
} kit_program;

enum { MAX_VALUES = BS_EXPR_MAX_IN + BS_EXPR_MAX_CONST + BS_EXPR_MAX_STEPS };

static const uint8_t exact_floats[] = {
    BS_EXPR_MOV, BS_EXPR_NEG,   BS_EXPR_ABS, BS_EXPR_SIGN, BS_EXPR_FLOOR, BS_EXPR_CEIL,   BS_EXPR_ROUND,
    BS_EXPR_ADD, BS_EXPR_SUB,   BS_EXPR_MUL, BS_EXPR_DIV,  BS_EXPR_SQRT,  BS_EXPR_SELECT, BS_EXPR_LT,
    BS_EXPR_LE,  BS_EXPR_EQ,    BS_EXPR_AND, BS_EXPR_OR,   BS_EXPR_XOR,   BS_EXPR_NOT,    BS_EXPR_ISNAN,
    BS_EXPR_TO,  BS_EXPR_INDEX, BS_EXPR_ADD, BS_EXPR_MUL,  BS_EXPR_ISINF};
static const uint8_t exact_integers[] = {
    BS_EXPR_MOV, BS_EXPR_NEG,    BS_EXPR_ABS,  BS_EXPR_SIGN,  BS_EXPR_ADD, BS_EXPR_SUB,
    BS_EXPR_MUL, BS_EXPR_DIV,    BS_EXPR_FMOD, BS_EXPR_MIN,   BS_EXPR_MAX, BS_EXPR_LT,
    BS_EXPR_LE,  BS_EXPR_EQ,     BS_EXPR_AND,  BS_EXPR_OR,    BS_EXPR_XOR, BS_EXPR_NOT,
    BS_EXPR_FMA, BS_EXPR_SELECT, BS_EXPR_TO,   BS_EXPR_INDEX, BS_EXPR_POW};
static const uint32_t float_dtypes[] = {BS_F32, BS_F16, BS_BF16, BS_F64, BS_I32,
                                        BS_I8,  BS_U8,  BS_BOOL, BS_I64};
static const uint32_t integer_dtypes[] = {BS_I64, BS_I32, BS_I8, BS_U8, BS_BOOL};
#define PICK(seed, list) (list)[kit_below((seed), (int64_t)(sizeof(list) / sizeof(list)[0]))]

/* ---- programs --------------------------------------------------------------------------------- */

static int of_integers(const kit_data *d) {
  return !bs_dtype_is_float(d->shape.x);
}

static uint8_t add_step(kit_program *p, uint8_t op, uint8_t a, uint8_t b, uint8_t c) {
  bs_expr *e = &p->expr;
  p->steps[e->n_steps] = (bs_expr_step){op, a, b, c};
  if (op > e->max_op) e->max_op = op;
  return (uint8_t)(e->n_in + e->n_const + e->n_steps++);
}

static int operands(uint8_t op) {
  return op == BS_EXPR_FMA || op == BS_EXPR_SELECT ? 3 : op >= BS_EXPR_ADD && op <= BS_EXPR_XOR ? 2 : 1;
}

/* A step over drawn values below `values`. */
static uint8_t draw_step(kit_program *p, uint8_t op, int64_t values, uint32_t rank, uint64_t *seed) {
  static const uint32_t integers[] = {BS_I32, BS_I8, BS_U8, BS_BOOL, BS_I64};
  static const uint32_t any[] = {BS_F16, BS_BF16, BS_F32, BS_I32, BS_I8, BS_U8, BS_BOOL};
  const uint8_t a = (uint8_t)kit_below(seed, values), b = (uint8_t)kit_below(seed, values);
  const uint8_t c = (uint8_t)kit_below(seed, values);
  if (op == BS_EXPR_INDEX && rank == 0) op = BS_EXPR_MOV;
  if (op == BS_EXPR_INDEX) return add_step(p, op, (uint8_t)kit_below(seed, rank), 0, 0);
  if (op == BS_EXPR_TO) {
    const uint32_t dtype = p->expr.compute == BS_I64 ? PICK(seed, integers) : PICK(seed, any);
    return add_step(p, op, a, (uint8_t)(dtype >> 8), (uint8_t)dtype);
  }
  return add_step(p, op, a, operands(op) > 1 ? b : 0, operands(op) > 2 ? c : 0);
}

static int is_float_only(uint8_t op) {
  return (op >= BS_EXPR_FLOOR && op <= BS_EXPR_SILU) || op == BS_EXPR_ISNAN || op == BS_EXPR_ISINF;
}

/* Four independent steps; successive programs of the grid cover all kinds of steps. */
static void make_singles(kit_data *d, kit_program *p, uint32_t rank, uint64_t *seed) {
  const uint32_t groups = (BS_EXPR_OP_COUNT_ - 1 + 3) / 4;
  p->expr.n_out = 0;
  for (uint32_t k = 0; k < 4; k++) {
    uint8_t op = (uint8_t)(1 + d->shape.index / 3 % groups * 4 + k);
    if (op >= BS_EXPR_OP_COUNT_ || (of_integers(d) && is_float_only(op))) op = BS_EXPR_MOV;
    p->outs[p->expr.n_out++] = draw_step(p, op, p->expr.n_in, rank, seed);
  }
  for (uint32_t k = 0; k < 4; k++) /* one reads the first input, which the checks of threads watch */
    if (p->steps[k].op != BS_EXPR_INDEX) {
      p->steps[k].a = 0;
      break;
    }
}

static uint64_t constant(const kit_program *p, uint64_t *seed) {
  const double v = ldexp((double)(kit_below(seed, 2001) - 1000), (int)kit_below(seed, 12) - 10);
  uint64_t bits = 0;
  if (p->expr.compute == BS_I64)
    return kit_below(seed, 3) == 0 ? kit_next(seed) : (uint64_t)kit_below(seed, 9);
  bs_store_f64(p->expr.compute, &bits, 0, v); /* little-endian: f32 in the low half */
  return bits;
}

static void make_long(kit_data *d, kit_program *p, uint32_t rank, uint64_t *seed) {
  bs_expr *e = &p->expr;
  e->n_const = (uint32_t)kit_below(seed, BS_EXPR_MAX_CONST + 1);
  for (uint32_t i = 0; i < e->n_const; i++) p->consts[i] = constant(p, seed);
  const uint32_t n = 1 + (uint32_t)kit_below(seed, BS_EXPR_MAX_STEPS);
  while (e->n_steps < n) {
    const int64_t values = e->n_in + e->n_const + e->n_steps;
    const uint8_t op = of_integers(d) ? PICK(seed, exact_integers) : PICK(seed, exact_floats);
    draw_step(p, op, values, rank, seed);
  }
  e->n_out = 1 + (uint32_t)kit_below(seed, BS_EXPR_MAX_OUT);
  for (uint32_t i = 0; i < e->n_out; i++) /* late values, which depend on many */
    p->outs[i] = (uint8_t)(e->n_in + e->n_const + n - 1 - kit_below(seed, n < 6 ? n : 6));
}

/* Programs in the forms that expr.h describes. */
static void make_form(kit_program *p, uint32_t form) {
  static const struct {
    uint32_t n_in, n_steps, n_out;
    bs_expr_step steps[6];
    uint8_t outs[2];
  } forms[BS_MAP_COUNT_] = {
      [BS_MAP_COPY] = {1, 0, 1, {{0}}, {0}},
      [BS_MAP_ADD] = {2, 1, 1, {{BS_EXPR_ADD, 0, 1, 0}}, {2}},
      [BS_MAP_MUL] = {2, 1, 1, {{BS_EXPR_MUL, 0, 1, 0}}, {2}},
      [BS_MAP_GELU] = {1, 1, 1, {{BS_EXPR_GELU, 0, 0, 0}}, {1}},
      [BS_MAP_GELU_TANH] = {1, 1, 1, {{BS_EXPR_GELU_TANH, 0, 0, 0}}, {1}},
      [BS_MAP_SILU] = {1, 1, 1, {{BS_EXPR_SILU, 0, 0, 0}}, {1}},
      [BS_MAP_SILU_MUL] = {2, 2, 1, {{BS_EXPR_SILU, 0, 0, 0}, {BS_EXPR_MUL, 2, 1, 0}}, {3}},
      [BS_MAP_ROPE] = {4,
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
  bs_expr *e = &p->expr;
  e->form = form;
  e->n_in = forms[form].n_in;
  for (uint32_t i = 0; i < forms[form].n_steps; i++)
    add_step(p, forms[form].steps[i].op, forms[form].steps[i].a, forms[form].steps[i].b, 0);
  e->n_out = forms[form].n_out;
  memcpy(p->outs, forms[form].outs, sizeof forms[form].outs);
}

static kit_program *make_program(kit_data *d, uint32_t rank, uint64_t *seed) {
  kit_program *p = calloc(1, sizeof *p);
  kit_assert(p != NULL, "no memory");
  bs_expr *e = &p->expr;
  *e = (bs_expr){.struct_size = sizeof *e,
                 .compute = of_integers(d)         ? (uint32_t)BS_I64
                            : d->shape.x == BS_F64 ? (uint32_t)BS_F64
                                                   : (uint32_t)BS_F32,
                 .consts = p->consts,
                 .steps = p->steps,
                 .outs = p->outs};
  e->n_in = 1 + (uint32_t)kit_below(seed, d->shape.in_place ? 3 : BS_EXPR_MAX_IN);
  const uint32_t kind = d->shape.index % 3;
  if (kind == 0)
    make_singles(d, p, rank, seed);
  else if (kind == 1)
    make_long(d, p, rank, seed);
  else
    make_form(p, of_integers(d) ? (uint32_t)BS_MAP_COPY : 1 + d->shape.index / 3 % (BS_MAP_COUNT_ - 1));
  return p;
}

static void make(kit_data *d, uint64_t *seed) {
  int64_t dims[BS_MAX_DIMS], in[BS_MAX_DIMS];
  uint32_t repeats = 0;
  const uint32_t rank = kit_graph_dims(d, seed, 0, BS_MAX_DIMS, d->shape.B, d->shape.N, dims);
  d->program = make_program(d, rank, seed);
  const bs_expr *e = &d->program->expr;
  d->query.expr = e;
  for (uint32_t i = 0; i < e->n_in + e->n_out; i++) {
    uint32_t dtype = d->shape.x;
    if (kit_below(seed, 3) == 0 && !d->shape.in_place && e->form == BS_MAP_NONE)
      dtype = of_integers(d) ? PICK(seed, integer_dtypes) : PICK(seed, float_dtypes);
    if (i < e->n_in) {
      kit_graph_broadcast(d, seed, rank, dims, in, &repeats);
      kit_graph_arg(d, i, dtype, rank, in, repeats);
      kit_graph_fill(d, i);
      uint64_t own = kit_graph_seed(d, 100 + i);
      /* Larger numbers too, of which functions overflow, and of integers their low bits count. */
      for (int64_t k = 0; k < kit_elements(&d->a[i]) && d->shape.values == KIT_PLAIN && i % 2 == 0; k += 3)
        kit_set_at(&d->a[i], k, trunc(kit_get_at(&d->a[i], k) * (double)(kit_next(&own) % 4096)) / 8.0);
    } else {
      kit_graph_arg(d, i, dtype, rank, dims, 0);
      d->outs |= 1u << i;
    }
  }
}

/* ---- the oracle ------------------------------------------------------------------------------- */

/* A value and what it may be off by; of integers `i`. */
typedef struct value {
  double v, slack;
  int64_t i;
} value;

static long double function(uint8_t op, long double x, long double y) {
  const long double root = 0.70710678118654752440084436210485L;
  switch (op) {
    case BS_EXPR_RSQRT:
      return 1.0L / sqrtl(x);
    case BS_EXPR_RECIP:
      return 1.0L / x;
    case BS_EXPR_EXP:
      return expl(x);
    case BS_EXPR_LOG:
      return logl(x);
    case BS_EXPR_SIN:
      return sinl(x);
    case BS_EXPR_COS:
      return cosl(x);
    case BS_EXPR_TANH:
      return tanhl(x);
    case BS_EXPR_ERF:
      return erfl(x);
    case BS_EXPR_SIGMOID:
      return 1.0L / (1.0L + expl(-x));
    case BS_EXPR_SOFTPLUS:
      return x > 40.0L ? x + expl(-x) : log1pl(expl(x));
    case BS_EXPR_GELU:
      return 0.5L * x * erfcl(-x * root);
    case BS_EXPR_GELU_TANH:
      return x / (1.0L + expl(-2.0L * 0.797884560802865355879892119868764L * (x + 0.044715L * x * x * x)));
    case BS_EXPR_SILU:
      return x / (1.0L + expl(-x));
    default:
      return powl(x, y);
  }
}

static int is_function(uint8_t op) {
  return (op >= BS_EXPR_RSQRT && op <= BS_EXPR_SILU) || op == BS_EXPR_POW;
}

/* The unit of the last place of v in the program's type. */
static double last_place(uint32_t compute, double v) {
  const int bits = compute == BS_F32 ? 23 : 52, least = compute == BS_F32 ? -149 : -1074;
  int exponent = 0;
  if (!isfinite(v)) return 0.0;
  if (v == 0.0) return ldexp(1.0, least);
  (void)frexp(v, &exponent);
  return ldexp(1.0, exponent - 1 - bits > least ? exponent - 1 - bits : least);
}

static double rounded(uint32_t compute, double v) {
  return compute == BS_F32 ? (double)(float)v : v;
}

/* Sums and products of f32 in float, so that they are rounded once. */
static double arithmetic(uint32_t compute, uint8_t op, double x, double y) {
  if (compute == BS_F32) {
    const float a = (float)x, b = (float)y;
    const float r = op == BS_EXPR_ADD   ? a + b
                    : op == BS_EXPR_SUB ? a - b
                    : op == BS_EXPR_MUL ? a * b
                    : op == BS_EXPR_DIV ? a / b
                                        : sqrtf(a);
    return (double)r;
  }
  return op == BS_EXPR_ADD   ? x + y
         : op == BS_EXPR_SUB ? x - y
         : op == BS_EXPR_MUL ? x * y
         : op == BS_EXPR_DIV ? x / y
                             : sqrt(x);
}

/* Steps whose result is one of a few, or one of the operands. */
static double choice(uint8_t op, double x, double y, double z) {
  switch (op) {
    case BS_EXPR_NEG:
      return -x;
    case BS_EXPR_ABS:
      return fabs(x);
    case BS_EXPR_SIGN:
      return isnan(x) ? x : (double)((x > 0) - (x < 0));
    case BS_EXPR_FLOOR:
      return floor(x);
    case BS_EXPR_CEIL:
      return ceil(x);
    case BS_EXPR_ROUND:
      return fabs(x) < 0x1p52 ? copysign(fabs(x) + 0x1p52 - 0x1p52, x) : x;
    case BS_EXPR_NOT:
      return x == 0;
    case BS_EXPR_ISNAN:
      return isnan(x) ? 1.0 : 0.0;
    case BS_EXPR_ISINF:
      return isinf(x) ? 1.0 : 0.0;
    case BS_EXPR_FMOD:
      return fmod(x, y);
    case BS_EXPR_MIN:
      return isnan(x) || isnan(y) ? NAN : fmin(x, y);
    case BS_EXPR_MAX:
      return isnan(x) || isnan(y) ? NAN : fmax(x, y);
    case BS_EXPR_LT:
      return x < y;
    case BS_EXPR_LE:
      return x <= y;
    case BS_EXPR_EQ:
      return x == y;
    case BS_EXPR_AND:
      return x != 0 && y != 0;
    case BS_EXPR_OR:
      return x != 0 || y != 0;
    case BS_EXPR_XOR:
      return (x != 0) != (y != 0);
    case BS_EXPR_SELECT:
      return x != 0 ? y : z;
    default:
      return x;
  }
}

/* The value after conversion to an output of this dtype. */
static double as_dtype(uint32_t compute, uint32_t dtype, double v) {
  unsigned char in[8] = {0}, out[8] = {0};
  bs_store_f64(compute, in, 0, bs_dtype_is_float(dtype) || dtype == BS_BOOL ? v : trunc(v));
  bs_convert(dtype, out, compute, in, 1);
  return bs_load_f64(dtype, out, 0);
}

static value float_step(uint32_t compute, const bs_expr_step *s, const value *of) {
  const value x = of[s->a], y = of[s->b], z = of[s->c];
  value r = {.v = 0.0};
  if (s->op == BS_EXPR_TO) {
    r.v = rounded(compute, as_dtype(compute, (uint32_t)s->b << 8 | s->c, x.v));
  } else if (is_function(s->op)) {
    const double want = (double)function(s->op, (long double)x.v, (long double)y.v);
    r.v = rounded(compute, want);
    r.slack = isfinite(want) ? 4.5 * last_place(compute, want) : 0.0;
  } else if (s->op == BS_EXPR_FMA) {
    r.v = rounded(compute, fma(x.v, y.v, z.v));
    r.slack = last_place(compute, x.v * y.v) + 2 * last_place(compute, r.v);
  } else if ((s->op >= BS_EXPR_ADD && s->op <= BS_EXPR_DIV) || s->op == BS_EXPR_SQRT) {
    r.v = arithmetic(compute, s->op, x.v, y.v);
    if (s->op == BS_EXPR_MUL && x.slack > 0) r.slack = x.slack * fabs(y.v) + last_place(compute, r.v);
  } else {
    r.v = choice(s->op, x.v, y.v, z.v);
  }
  return r;
}

static int64_t power(int64_t x, int64_t y) {
  uint64_t r = 1;
  if (y < 0) return x == 1 || (x == -1 && y % 2 == 0) ? 1 : x == -1 ? -1 : 0;
  for (int bit = 62; bit >= 0; bit--) {
    r *= r;
    if ((y >> bit & 1) != 0) r *= (uint64_t)x;
  }
  return (int64_t)r;
}

static int64_t low_bits(uint32_t dtype, int64_t v) {
  switch (dtype) {
    case BS_I32:
      return (int64_t)(int32_t)(uint32_t)v;
    case BS_I8:
      return (int64_t)(int8_t)(uint8_t)v;
    case BS_U8:
      return (int64_t)(uint8_t)v;
    case BS_BOOL:
      return v != 0;
    default:
      return v;
  }
}

static int64_t integer_step(const bs_expr_step *s, int64_t x, int64_t y, int64_t z) {
  const uint64_t a = (uint64_t)x, b = (uint64_t)y;
  switch (s->op) {
    case BS_EXPR_NEG:
      return (int64_t)-a;
    case BS_EXPR_ABS:
      return x < 0 ? (int64_t)-a : x;
    case BS_EXPR_SIGN:
      return x > 0 ? 1 : x < 0 ? -1 : 0;
    case BS_EXPR_NOT:
      return !x;
    case BS_EXPR_ADD:
      return (int64_t)(a + b);
    case BS_EXPR_SUB:
      return (int64_t)(a - b);
    case BS_EXPR_MUL:
      return (int64_t)(a * b);
    case BS_EXPR_DIV:
      return y == 0 ? 0 : y == -1 ? (int64_t)-a : x / y;
    case BS_EXPR_FMOD:
      return y == 0 || y == -1 ? 0 : x - x / y * y;
    case BS_EXPR_POW:
      return power(x, y);
    case BS_EXPR_MIN:
      return y < x ? y : x;
    case BS_EXPR_MAX:
      return y > x ? y : x;
    case BS_EXPR_LT:
      return x < y;
    case BS_EXPR_LE:
      return x <= y;
    case BS_EXPR_EQ:
      return x == y;
    case BS_EXPR_AND:
      return (int64_t)(a & b);
    case BS_EXPR_OR:
      return (int64_t)(a | b);
    case BS_EXPR_XOR:
      return (int64_t)(a ^ b);
    case BS_EXPR_FMA:
      return (int64_t)(a * b + (uint64_t)z);
    case BS_EXPR_SELECT:
      return x ? y : z;
    case BS_EXPR_TO:
      return low_bits((uint32_t)s->b << 8 | s->c, x);
    default:
      return x;
  }
}

/* Element `i` of an input as a value of the program. */
static value read_value(uint32_t compute, const kit_tensor *m, uint32_t rank, const int64_t *at) {
  const int64_t number = kit_graph_number(m, rank, at);
  value r = {.v = 0.0};
  if (compute == BS_I64) {
    bs_convert(BS_I64, &r.i, m->t.dtype, kit_place_at(m, number), 1);
  } else {
    unsigned char in[8];
    bs_convert(compute, in, m->t.dtype, kit_place_at(m, number), 1);
    r.v = bs_load_f64(compute, in, 0);
  }
  return r;
}

static void evaluate(const kit_data *d, const int64_t *at, value *values) {
  const bs_expr *e = d->query.expr;
  const uint32_t rank = d->a[e->n_in].t.rank;
  uint32_t n = 0;
  for (uint32_t i = 0; i < e->n_in; i++) values[n++] = read_value(e->compute, &d->a[i], rank, at);
  for (uint32_t i = 0; i < e->n_const; i++) {
    values[n] = (value){.v = 0.0};
    if (e->compute == BS_I64)
      memcpy(&values[n].i, &e->consts[i], sizeof values[n].i);
    else
      values[n].v = bs_load_f64(e->compute, &e->consts[i], 0);
    n++;
  }
  for (uint32_t i = 0; i < e->n_steps; i++) {
    const bs_expr_step *s = &e->steps[i];
    if (s->op == BS_EXPR_INDEX)
      values[n] = (value){.v = rounded(e->compute, (double)at[s->a]), .i = at[s->a]};
    else if (e->compute == BS_I64)
      values[n] = (value){.i = integer_step(s, values[s->a].i, values[s->b].i, values[s->c].i)};
    else
      values[n] = float_step(e->compute, s, values);
    n++;
  }
}

/* Compares bit by bit, because values of I64 have more digits than a double. */
static void check_integer(const kit_data *d, uint32_t arg, int64_t i, int64_t want) {
  const uint32_t dtype = d->a[arg].t.dtype;
  const int64_t low = low_bits(dtype, want);
  unsigned char expected[8] = {0};
  bs_convert(dtype, expected, BS_I64, &low, 1);
  if (memcmp(expected, kit_place_at(&d->a[arg], i), BS_DTYPE_BYTES(dtype)) != 0)
    kit_fail("%s: element %lld of arg %u is %.17g, the oracle says %lld", kit_data_text(d), (long long)i, arg,
             kit_get_at(&d->a[arg], i), (long long)want);
}

static void judge(const kit_data *d, uint32_t tolerance, int special) {
  (void)tolerance;
  const bs_expr *e = d->query.expr;
  const kit_tensor *first = &d->a[e->n_in];
  const int64_t n = kit_elements(first);
  for (int64_t i = 0; i < n; i++) {
    int64_t at[BS_MAX_DIMS];
    value values[MAX_VALUES];
    kit_graph_at(i, first->t.rank, first->t.dims, at);
    evaluate(d, at, values);
    for (uint32_t o = 0; o < e->n_out; o++) {
      const value *v = &values[e->outs[o]];
      const uint32_t arg = e->n_in + o;
      if (e->compute == BS_I64)
        check_integer(d, arg, i, v->i);
      else
        kit_graph_check(d, arg, i, v->v, v->slack, special);
    }
  }
}

static void in_place(const kit_data *d, uint32_t way, uint32_t *out_output, uint32_t *out_input) {
  (void)way;
  *out_input = d->shape.index % d->query.expr->n_in;
  *out_output = d->query.expr->n_in;
}

const kit_graph_op kit_graph_map = {"map", 1, 1, 1, 1, make, judge, in_place};
