/* SPDX-License-Identifier: MIT
 *
 * map.h - the steps of f32 programs (blockshock/expr.h), a loop each, from one source for every instruction
 * set. Sums, products, quotients and roots are rounded once. Functions use double as in activate.h, or the C
 * library's f32, and stay within 4 units in the last place. The last few elements go through a whole vector:
 * a value's bits do not depend on its place. `out` may be an operand. */
#ifndef BS_PLUGINS_CPU_ISA_MAP_H
#define BS_PLUGINS_CPU_ISA_MAP_H

#include <math.h>

#include "blockshock/expr.h"

/* One word of 32 bits a lane, as comparisons give it: all bits set is true. */
typedef int32_t masks __attribute__((vector_size(sizeof(vec))));
typedef uint32_t mask_words __attribute__((vector_size(sizeof(vec))));
typedef int64_t dbl_masks __attribute__((vector_size(sizeof(dbl))));

INLINE vec masks_choose(masks which, vec yes, vec no) {
  return (vec)((which & (masks)yes) | (~which & (masks)no));
}

INLINE dbl dbl_choose(dbl_masks which, dbl yes, dbl no) {
  return (dbl)((which & (dbl_masks)yes) | (~which & (dbl_masks)no));
}

INLINE vec masks_truth(masks which) {
  return (vec)(which & (masks)vec_set1(1.0f));
}

INLINE masks vec_true(vec v) {
  return (masks)(v != vec_set1(0.0f));
}

/* The lanes in which v is NaN. */
INLINE masks vec_nan(vec v) {
  return (masks)(((mask_words)v << 1) > 0xff000000u);
}

INLINE vec vec_abs(vec v) {
  return (vec)((masks)v & ~(masks)vec_set1(-0.0f));
}

INLINE vec vec_signed(vec size, vec sign) {
  return (vec)((masks)size | ((masks)sign & (masks)vec_set1(-0.0f)));
}

INLINE dbl dbl_abs(dbl v) {
  return (dbl)((dbl_masks)v & ~(dbl_masks)dbl_set1(-0.0));
}

INLINE dbl dbl_signed(dbl size, dbl sign) {
  return (dbl)((dbl_masks)size | ((dbl_masks)sign & (dbl_masks)dbl_set1(-0.0)));
}

/* ---- steps on vectors ----------------------------------------------------------------------- */

INLINE vec step_mov(vec a) {
  return a;
}

INLINE vec step_neg(vec a) {
  return (vec)((masks)a ^ (masks)vec_set1(-0.0f));
}

INLINE vec step_sign(vec a) {
  const vec zero = vec_set1(0.0f), one = vec_signed(vec_set1(1.0f), a);
  return masks_choose((masks)(a > zero) | (masks)(a < zero), one, a); /* zeros and NaN stay */
}

/* Rounds to the nearest, ties to even; values of 2^23 or larger are whole, and NaN stays. */
INLINE vec step_round(vec a) {
  const vec size = vec_abs(a), big = vec_set1(8388608.0f);
  const vec whole = vec_signed((size + big) - big, a);
  return masks_choose((masks)(size < big), whole, a);
}

INLINE vec step_floor(vec a) {
  const vec near = step_round(a);
  return masks_choose((masks)(near > a), near - vec_set1(1.0f), near);
}

INLINE vec step_ceil(vec a) {
  const vec near = step_round(a);
  return masks_choose((masks)(near < a), vec_signed(near + vec_set1(1.0f), a), near);
}

INLINE vec step_rsqrt(vec a) {
  return vec_set1(1.0f) / vec_sqrt(a);
}

INLINE vec step_recip(vec a) {
  return vec_set1(1.0f) / a;
}

#define MAP_LOG2_E 1.4426950408889634

/* e^a; beyond -110 and 100 it is 0 and infinity as f32. NaN stays: it is the second of max and min. */
INLINE dbl dbl_exp(dbl a) {
  return dbl_exp2(dbl_min(dbl_set1(100.0), dbl_max(dbl_set1(-110.0), a)), dbl_set1(MAP_LOG2_E));
}

INLINE dbl dbl_sigmoid(dbl a) {
  const dbl one = dbl_set1(1.0), v = dbl_max(dbl_set1(-700.0), dbl_min(dbl_set1(700.0), a));
  return one / (one + dbl_exp2(v, dbl_set1(-MAP_LOG2_E)));
}

/* An odd series below 0.25, else (1 - e) / (1 + e), e = exp(-2 |x|). */
INLINE dbl dbl_tanh(dbl x) {
  const dbl size = dbl_abs(x), one = dbl_set1(1.0), q = x * x;
  dbl p = dbl_set1(-1382.0 / 155925.0);
  p = dbl_fma(p, q, dbl_set1(62.0 / 2835.0));
  p = dbl_fma(p, q, dbl_set1(-17.0 / 315.0));
  p = dbl_fma(p, q, dbl_set1(2.0 / 15.0));
  p = dbl_fma(p, q, dbl_set1(-1.0 / 3.0));
  p = dbl_fma(p * q, x, x);
  const dbl e = dbl_exp(dbl_set1(-2.0) * size);
  return dbl_choose((dbl_masks)(size < dbl_set1(0.25)), p, dbl_signed((one - e) / (one + e), x));
}

/* An odd series below 0.6, else 1 - 2 Phi(-sqrt(2) |x|). */
INLINE dbl dbl_erf(dbl x) {
  const dbl size = dbl_abs(x), one = dbl_set1(1.0), q = x * x, k = dbl_set1(3.75);
  dbl p = dbl_set1(-1.0 / 75600.0);
  p = dbl_fma(p, q, dbl_set1(1.0 / 9360.0));
  p = dbl_fma(p, q, dbl_set1(-1.0 / 1320.0));
  p = dbl_fma(p, q, dbl_set1(1.0 / 216.0));
  p = dbl_fma(p, q, dbl_set1(-1.0 / 42.0));
  p = dbl_fma(p, q, dbl_set1(1.0 / 10.0));
  p = dbl_fma(p, q, dbl_set1(-1.0 / 3.0));
  p = dbl_set1(1.12837916709551257390) * dbl_fma(p * q, x, x);
  const dbl y = dbl_max(dbl_set1(-14.0), dbl_set1(-1.41421356237309504880) * size); /* NaN stays */
  const dbl w = one / (k - y), e = dbl_exp2(y * y, dbl_set1(-0.5 * MAP_LOG2_E));
  const dbl phi = dbl_tail((k + y) * w) * w * e;
  return dbl_choose((dbl_masks)(size < dbl_set1(0.6)), p, dbl_signed(one - phi - phi, x));
}

INLINE vec step_exp(vec a) {
  return vec_narrow(dbl_exp(dbl_first(a)), dbl_exp(dbl_second(a)));
}

INLINE vec step_tanh(vec a) {
  return vec_narrow(dbl_tanh(dbl_first(a)), dbl_tanh(dbl_second(a)));
}

INLINE vec step_erf(vec a) {
  return vec_narrow(dbl_erf(dbl_first(a)), dbl_erf(dbl_second(a)));
}

INLINE vec step_sigmoid(vec a) {
  return vec_narrow(dbl_sigmoid(dbl_first(a)), dbl_sigmoid(dbl_second(a)));
}

/* a / (1 + e^-a), within 4 units in the last place. With e = e^-|a|, in (0, 1], it is a / (1 + e), and below
 * zero a e / (1 + e). e is stored as 2^40 e, so that it is only subnormal where a e is too. -Infinity gives
 * NaN; NaN stays. */
INLINE vec step_silu(vec a) {
  const vec one = vec_set1(1.0f), round = vec_set1(0x1.8p23f), back = vec_set1(0x1p-40f);
  const vec x = vec_max(vec_set1(-110.0f), (vec)((masks)a | (masks)vec_set1(-0.0f)));
  const vec t = vec_fma(x, vec_set1(1.44269504f), round), n = t - round;
  const vec r = vec_fma(n, vec_set1(-1.42860677e-06f), vec_fma(n, vec_set1(-0.693145752f), x));
  vec p = vec_set1(1.9875691500e-4f);
  p = vec_fma(p, r, vec_set1(1.3981999507e-3f));
  p = vec_fma(p, r, vec_set1(8.3334519073e-3f));
  p = vec_fma(p, r, vec_set1(4.1665795894e-2f));
  p = vec_fma(p, r, vec_set1(1.6666665459e-1f));
  p = vec_fma(p, r, vec_set1(5.0000001201e-1f));
  p = vec_fma(p * r, r, r) + one;
  const vec e = (vec)((mask_words)p + ((mask_words)t << 23) + (40u << 23));
  const vec below = masks_choose((masks)(a == vec_set1(-INFINITY)), vec_set1(NAN), x * e * back);
  return masks_choose((masks)(a < vec_set1(0.0f)), below, a) / vec_fma(e, back, one);
}

INLINE vec step_not(vec a) {
  return masks_truth((masks)(a == vec_set1(0.0f)));
}

INLINE vec step_isnan(vec a) {
  return masks_truth(vec_nan(a));
}

INLINE vec step_isinf(vec a) {
  return masks_truth((masks)(vec_abs(a) == vec_set1(INFINITY)));
}

INLINE vec step_sub(vec a, vec b) {
  return a - b;
}

INLINE vec step_mul(vec a, vec b) {
  return a * b;
}

INLINE vec step_div(vec a, vec b) {
  return a / b;
}

INLINE vec step_min(vec a, vec b) {
  return masks_choose((masks)(a < b) | vec_nan(a), a, b);
}

INLINE vec step_max(vec a, vec b) {
  return masks_choose((masks)(a > b) | vec_nan(a), a, b);
}

INLINE vec step_lt(vec a, vec b) {
  return masks_truth((masks)(a < b));
}

INLINE vec step_le(vec a, vec b) {
  return masks_truth((masks)(a <= b));
}

INLINE vec step_eq(vec a, vec b) {
  return masks_truth((masks)(a == b));
}

INLINE vec step_and(vec a, vec b) {
  return masks_truth(vec_true(a) & vec_true(b));
}

INLINE vec step_or(vec a, vec b) {
  return masks_truth(vec_true(a) | vec_true(b));
}

INLINE vec step_xor(vec a, vec b) {
  return masks_truth(vec_true(a) ^ vec_true(b));
}

INLINE vec step_select(vec a, vec b, vec c) {
  return masks_choose(vec_true(a), b, c);
}

/* ---- loops ---------------------------------------------------------------------------------- */

INLINE void map_one(vec (*f)(vec), float *out, const float *a, int64_t n) {
  float last[VEC] = {0};
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store(out + i, f(vec_load(a + i)));
  if (i == n) return;
  memcpy(last, a + i, (size_t)(n - i) * sizeof *a);
  vec_store(last, f(vec_load(last)));
  memcpy(out + i, last, (size_t)(n - i) * sizeof *out);
}

INLINE void map_two(vec (*f)(vec, vec), float *out, const float *a, const float *b, int64_t n) {
  float x[VEC] = {0}, y[VEC] = {0};
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store(out + i, f(vec_load(a + i), vec_load(b + i)));
  if (i == n) return;
  memcpy(x, a + i, (size_t)(n - i) * sizeof *a);
  memcpy(y, b + i, (size_t)(n - i) * sizeof *b);
  vec_store(x, f(vec_load(x), vec_load(y)));
  memcpy(out + i, x, (size_t)(n - i) * sizeof *out);
}

INLINE void map_three(vec (*f)(vec, vec, vec), float *out, const float *a, const float *b, const float *c,
                      int64_t n) {
  float x[VEC] = {0}, y[VEC] = {0}, z[VEC] = {0};
  int64_t i = 0;
  for (; i + VEC <= n; i += VEC) vec_store(out + i, f(vec_load(a + i), vec_load(b + i), vec_load(c + i)));
  if (i == n) return;
  memcpy(x, a + i, (size_t)(n - i) * sizeof *a);
  memcpy(y, b + i, (size_t)(n - i) * sizeof *b);
  memcpy(z, c + i, (size_t)(n - i) * sizeof *c);
  vec_store(x, f(vec_load(x), vec_load(y), vec_load(z)));
  memcpy(out + i, x, (size_t)(n - i) * sizeof *out);
}

/* `out`, `a`, `b` and `c` are floats; those that a step does not read are not looked at. */
static void map_mov(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_mov, out, a, n);
}

static void map_neg(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_neg, out, a, n);
}

static void map_abs(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(vec_abs, out, a, n);
}

static void map_sign(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_sign, out, a, n);
}

static void map_floor(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_floor, out, a, n);
}

static void map_ceil(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_ceil, out, a, n);
}

static void map_round(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_round, out, a, n);
}

static void map_sqrt(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(vec_sqrt, out, a, n);
}

static void map_rsqrt(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_rsqrt, out, a, n);
}

static void map_recip(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_recip, out, a, n);
}

static void map_exp(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_exp, out, a, n);
}

static void map_tanh(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_tanh, out, a, n);
}

static void map_erf(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_erf, out, a, n);
}

static void map_sigmoid(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_sigmoid, out, a, n);
}

static void map_gelu(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(gelu, out, a, n);
}

static void map_gelu_tanh(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(gelu_tanh, out, a, n);
}

static void map_silu(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_silu, out, a, n);
}

static void map_not(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_not, out, a, n);
}

static void map_isnan(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_isnan, out, a, n);
}

static void map_isinf(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)b, (void)c;
  map_one(step_isinf, out, a, n);
}

static void map_add(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(vec_add, out, a, b, n);
}

static void map_sub(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_sub, out, a, b, n);
}

static void map_mul(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_mul, out, a, b, n);
}

static void map_div(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_div, out, a, b, n);
}

static void map_min(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_min, out, a, b, n);
}

static void map_max(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_max, out, a, b, n);
}

static void map_lt(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_lt, out, a, b, n);
}

static void map_le(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_le, out, a, b, n);
}

static void map_eq(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_eq, out, a, b, n);
}

static void map_and(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_and, out, a, b, n);
}

static void map_or(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_or, out, a, b, n);
}

static void map_xor(void *out, const void *a, const void *b, const void *c, int64_t n) {
  (void)c;
  map_two(step_xor, out, a, b, n);
}

static void map_fma(void *out, const void *a, const void *b, const void *c, int64_t n) {
  map_three(vec_fma, out, a, b, c, n);
}

static void map_select(void *out, const void *a, const void *b, const void *c, int64_t n) {
  map_three(step_select, out, a, b, c, n);
}

static float softplus_of(float x) {
  const double v = (double)x;
  return (float)((v > 0.0 ? v : 0.0) + log1p(exp(-fabs(v))));
}

static void map_log(void *out, const void *a, const void *b, const void *c, int64_t n) {
  const float *x = a;
  float *v = out;
  (void)b, (void)c;
  for (int64_t i = 0; i < n; i++) v[i] = logf(x[i]);
}

static void map_sin(void *out, const void *a, const void *b, const void *c, int64_t n) {
  const float *x = a;
  float *v = out;
  (void)b, (void)c;
  for (int64_t i = 0; i < n; i++) v[i] = sinf(x[i]);
}

static void map_cos(void *out, const void *a, const void *b, const void *c, int64_t n) {
  const float *x = a;
  float *v = out;
  (void)b, (void)c;
  for (int64_t i = 0; i < n; i++) v[i] = cosf(x[i]);
}

static void map_softplus(void *out, const void *a, const void *b, const void *c, int64_t n) {
  const float *x = a;
  float *v = out;
  (void)b, (void)c;
  for (int64_t i = 0; i < n; i++) v[i] = softplus_of(x[i]);
}

static void map_fmod(void *out, const void *a, const void *b, const void *c, int64_t n) {
  const float *x = a, *y = b;
  float *v = out;
  (void)c;
  for (int64_t i = 0; i < n; i++) v[i] = fmodf(x[i], y[i]);
}

static void map_pow(void *out, const void *a, const void *b, const void *c, int64_t n) {
  const float *x = a, *y = b;
  float *v = out;
  (void)c;
  for (int64_t i = 0; i < n; i++) v[i] = powf(x[i], y[i]);
}

/* The steps by their op codes; TO and INDEX do not depend on the instruction set. */
static const cpu_map_fn map_steps[BS_EXPR_OP_COUNT_] = {
    [BS_EXPR_MOV] = map_mov,     [BS_EXPR_NEG] = map_neg,
    [BS_EXPR_ABS] = map_abs,     [BS_EXPR_SIGN] = map_sign,
    [BS_EXPR_FLOOR] = map_floor, [BS_EXPR_CEIL] = map_ceil,
    [BS_EXPR_ROUND] = map_round, [BS_EXPR_SQRT] = map_sqrt,
    [BS_EXPR_RSQRT] = map_rsqrt, [BS_EXPR_RECIP] = map_recip,
    [BS_EXPR_EXP] = map_exp,     [BS_EXPR_TANH] = map_tanh,
    [BS_EXPR_ERF] = map_erf,     [BS_EXPR_SIGMOID] = map_sigmoid,
    [BS_EXPR_GELU] = map_gelu,   [BS_EXPR_GELU_TANH] = map_gelu_tanh,
    [BS_EXPR_SILU] = map_silu,   [BS_EXPR_NOT] = map_not,
    [BS_EXPR_ISNAN] = map_isnan, [BS_EXPR_ISINF] = map_isinf,
    [BS_EXPR_ADD] = map_add,     [BS_EXPR_SUB] = map_sub,
    [BS_EXPR_MUL] = map_mul,     [BS_EXPR_DIV] = map_div,
    [BS_EXPR_MIN] = map_min,     [BS_EXPR_MAX] = map_max,
    [BS_EXPR_LT] = map_lt,       [BS_EXPR_LE] = map_le,
    [BS_EXPR_EQ] = map_eq,       [BS_EXPR_AND] = map_and,
    [BS_EXPR_OR] = map_or,       [BS_EXPR_XOR] = map_xor,
    [BS_EXPR_FMA] = map_fma,     [BS_EXPR_SELECT] = map_select,
    [BS_EXPR_LOG] = map_log,     [BS_EXPR_SIN] = map_sin,
    [BS_EXPR_COS] = map_cos,     [BS_EXPR_SOFTPLUS] = map_softplus,
    [BS_EXPR_FMOD] = map_fmod,   [BS_EXPR_POW] = map_pow,
};

/* ---- whole programs ------------------------------------------------------------------------- */

INLINE vec step_silu_mul(vec gate, vec up) {
  return step_silu(gate) * up;
}

INLINE void form_two(vec (*f)(vec, vec), const cpu_form *form) {
  for (int64_t i = 0; i < form->lines; i++)
    map_two(f, form->at[2] + i * form->step[2], form->at[0] + i * form->step[0],
            form->at[1] + i * form->step[1], form->n);
}

static void form_add(const cpu_form *form) {
  form_two(vec_add, form);
}

static void form_mul(const cpu_form *form) {
  form_two(step_mul, form);
}

static void form_silu_mul(const cpu_form *form) {
  form_two(step_silu_mul, form);
}

/* Pairs of a line: all of them are read before one is written, as an output may be an input. */
INLINE void rope_one(const float *x, const float *y, const float *c, const float *s, float *first,
                     float *second) {
  const vec a = vec_load(x), b = vec_load(y), cosine = vec_load(c), sine = vec_load(s);
  vec_store(first, a * cosine - b * sine);
  vec_store(second, b * cosine + a * sine);
}

INLINE void rope_two(const float *x, const float *y, const float *c, const float *s, float *first,
                     float *second) {
  const vec a = vec_load(x), b = vec_load(y), cosine = vec_load(c), sine = vec_load(s);
  const vec a2 = vec_load(x + VEC), b2 = vec_load(y + VEC), cosine2 = vec_load(c + VEC),
            sine2 = vec_load(s + VEC);
  vec_store(first, a * cosine - b * sine);
  vec_store(first + VEC, a2 * cosine2 - b2 * sine2);
  vec_store(second, b * cosine + a * sine);
  vec_store(second + VEC, b2 * cosine2 + a2 * sine2);
}

/* The last n pairs of a line, fewer than a vector. */
static void rope_rest(const float *x, const float *y, const float *c, const float *s, float *first,
                      float *second, int64_t n) {
  float in[4][VEC] = {{0}}, out[2][VEC];
  const float *const from[4] = {x, y, c, s};
  for (int k = 0; k < 4; k++) memcpy(in[k], from[k], (size_t)n * sizeof(float));
  rope_one(in[0], in[1], in[2], in[3], out[0], out[1]);
  memcpy(first, out[0], (size_t)n * sizeof(float));
  memcpy(second, out[1], (size_t)n * sizeof(float));
}

/* Pointers and steps are local copies: stores could otherwise alias them, and each line would read all of
 * them again. */
static void form_rope(const cpu_form *form) {
  const int64_t n = form->n, lines = form->lines;
  const int64_t dx = form->step[0], dy = form->step[1], dc = form->step[2], ds = form->step[3];
  const int64_t d1 = form->step[4], d2 = form->step[5];
  const float *x = form->at[0], *y = form->at[1], *c = form->at[2], *s = form->at[3];
  float *first = form->at[4], *second = form->at[5];
  for (int64_t line = 0; line < lines; line++) {
    int64_t i = 0;
    for (; i + 2 * VEC <= n; i += 2 * VEC) rope_two(x + i, y + i, c + i, s + i, first + i, second + i);
    if (i + VEC <= n) {
      rope_one(x + i, y + i, c + i, s + i, first + i, second + i);
      i += VEC;
    }
    if (i < n) rope_rest(x + i, y + i, c + i, s + i, first + i, second + i, n - i);
    x += dx, y += dy, c += dc, s += ds, first += d1, second += d2;
  }
}

static const cpu_form_fn map_forms[BS_MAP_COUNT_] = {
    [BS_MAP_ADD] = form_add,
    [BS_MAP_MUL] = form_mul,
    [BS_MAP_SILU_MUL] = form_silu_mul,
    [BS_MAP_ROPE] = form_rope,
};

#undef MAP_LOG2_E
#endif
