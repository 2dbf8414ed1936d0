/* SPDX-License-Identifier: MIT
 * test_gate_judge.c - the reference, the predictions and the bounds by themselves, on outputs made here by
 * exact rounding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "lab/gate/judge.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { B = 64, N = 96, K = 128 };

typedef struct world {
  float *x, *w, *bias;
  bs_source sx, sw, sb;
  uint32_t owner[K];
  bs_reference ref;
} world;

static void make_world(world *s, uint32_t ranks, uint32_t dtype, double offset) {
  bs_error err;
  memset(s, 0, sizeof *s);
  s->x = malloc(sizeof(float) * B * K);
  s->w = malloc(sizeof(float) * N * K);
  s->bias = malloc(sizeof(float) * N);
  bs_rng_normal(1, BS_STREAM_X, 0, B * K, s->x);
  bs_rng_normal(1, BS_STREAM_W, 0, N * K, s->w);
  bs_rng_normal(1, BS_STREAM_BIAS, 0, N, s->bias);
  for (int i = 0; i < B * K; ++i) bs_store_f64(BS_F32, s->x, i, s->x[i] + offset);
  uint16_t h;
  for (int i = 0; dtype == BS_BF16 && i < B * K; ++i)
    h = bs_f32_to_bf16(s->x[i]), s->x[i] = bs_bf16_to_f32(h);
  for (int i = 0; dtype == BS_BF16 && i < N * K; ++i)
    h = bs_f32_to_bf16(s->w[i]), s->w[i] = bs_bf16_to_f32(h);
  for (int k = 0; k < K; ++k) s->owner[k] = (uint32_t)k % ranks;
  ck_assert_int_eq(bs_source_from_memory(s->x, BS_F32, B, K, K, &s->sx, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(s->w, BS_F32, N, K, K, &s->sw, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(s->bias, BS_F32, 1, N, N, &s->sb, &err), BS_OK);
  const bs_reference_request request = {.x = &s->sx,
                                        .w = &s->sw,
                                        .bias = &s->sb,
                                        .world_size = ranks,
                                        .column_rank = ranks > 1 ? s->owner : NULL,
                                        .threads = 2};
  ck_assert_int_eq(bs_reference_compute(&request, &s->ref, &err), BS_OK);
}

static void free_world(world *s) {
  bs_reference_free(&s->ref);
  bs_source_release(&s->sx);
  bs_source_release(&s->sw);
  bs_source_release(&s->sb);
  free(s->x);
  free(s->w);
  free(s->bias);
}

/* Outputs as a perfect machine would give them: fp64 partials, rounded as `a` says. */
static void perfect(const world *s, const bs_arithmetic *a, void *y) {
  uint64_t cell;
  for (int64_t i = 0; i < (int64_t)B * N; ++i) {
    if (!s->ref.partial) {
      bs_store_f64(a->y_dtype, y, i, s->ref.y[i]);
      continue;
    }
    double sum = 0.0;
    for (uint32_t r = 0; r < s->ref.world_size; ++r) {
      bs_store_f64(a->reduce_dtype, &cell, 0, s->ref.partial[r][i]);
      sum += bs_load_f64(a->reduce_dtype, &cell, 0);
      if (r > 0) {
        bs_store_f64(a->reduce_dtype, &cell, 0, sum);
        sum = bs_load_f64(a->reduce_dtype, &cell, 0);
      }
    }
    bs_store_f64(a->y_dtype, y, i, sum);
  }
}

static void judge(const world *s, const bs_arithmetic *a, const void *y, bs_gate gates[4], bs_judgement *j,
                  double *out_prediction) {
  bs_prediction p;
  bs_error err;
  ck_assert_int_eq(bs_predict(&s->ref, a, &p, &err), BS_OK);
  bs_judge(&s->ref, a, &p, y, N, 0, N, j);
  ck_assert_uint_eq(bs_gates_from_judgement(&s->ref, j, 0, gates, 4), 4);
  if (out_prediction) *out_prediction = p.relative;
  bs_prediction_free(&p);
}

START_TEST(reference_equals_a_plain_product) {
  world s;
  make_world(&s, 3, BS_F32, 0.0);
  for (int b = 0; b < B; ++b) {
    for (int n = 0; n < N; ++n) {
      double want = s.bias[n];
      double magnitude = fabs((double)s.bias[n]);
      double parts[3] = {s.bias[n], 0, 0};
      for (int k = 0; k < K; ++k) {
        const double product = (double)s.x[b * K + k] * s.w[n * K + k];
        want += product;
        magnitude += fabs(product);
        parts[k % 3] += product;
      }
      ck_assert_double_eq_tol(s.ref.y[b * N + n], want, 1e-12 * magnitude);
      ck_assert_double_eq_tol(s.ref.magnitude[b * N + n], magnitude, 1e-12 * magnitude);
      for (int r = 0; r < 3; ++r)
        ck_assert_double_eq_tol(s.ref.partial[r][b * N + n], parts[r], 1e-12 * magnitude);
    }
  }
  free_world(&s);
}
END_TEST

START_TEST(reference_samples_first_and_last_feature) {
  world s;
  make_world(&s, 1, BS_F32, 0.0);
  bs_reference some;
  bs_error err;
  const bs_reference_request request = {
      .x = &s.sx, .w = &s.sw, .bias = &s.sb, .world_size = 1, .max_features = 7};
  ck_assert_int_eq(bs_reference_compute(&request, &some, &err), BS_OK);
  ck_assert_int_eq(some.features, 7);
  ck_assert_int_eq(some.feature[0], 0);
  ck_assert_int_eq(some.feature[6], N - 1);
  for (int f = 0; f < 7; ++f) ck_assert_double_eq(some.y[3 * 7 + f], s.ref.y[3 * N + some.feature[f]]);
  bs_reference_free(&some);
  free_world(&s);
}
END_TEST

START_TEST(gaussian_rounding_is_0425_u) {
  world s;
  make_world(&s, 1, BS_BF16, 0.0);
  const bs_arithmetic a = {BS_BF16, BS_F32, BS_ACC_F64, BS_ACT_NONE, 0, 0};
  bs_prediction p;
  bs_error err;
  ck_assert_int_eq(bs_predict(&s.ref, &a, &p, &err), BS_OK);
  ck_assert_double_eq_tol(p.relative / 0x1p-8, 0.425, 0.03);
  bs_prediction_free(&p);
  free_world(&s);
}
END_TEST

/* docs/gates.md: factor sqrt(1 + (P(P+1)/2 - 1)/P) for sums reduced in the output's dtype, sqrt 1 for fp32
 * partials. */
START_TEST(prediction_follows_the_reduce_dtype) {
  const uint32_t ranks[] = {2, 4, 8};
  for (int i = 0; i < 3; ++i) {
    world s;
    bs_prediction p;
    bs_error err;
    const double P = ranks[i];
    make_world(&s, ranks[i], BS_BF16, 0.0);
    const bs_arithmetic low = {BS_BF16, BS_BF16, BS_ACC_F64, BS_ACT_NONE, 0, 0};
    ck_assert_int_eq(bs_predict(&s.ref, &low, &p, &err), BS_OK);
    ck_assert_double_eq_tol(p.relative / (0.425 * 0x1p-8), sqrt(1.0 + (P * (P + 1) / 2 - 1) / P),
                            0.1 * P / 2);
    bs_prediction_free(&p);
    const bs_arithmetic high = {BS_BF16, BS_F32, BS_ACC_F64, BS_ACT_NONE, 0, 0};
    ck_assert_int_eq(bs_predict(&s.ref, &high, &p, &err), BS_OK);
    ck_assert_double_eq_tol(p.relative / (0.425 * 0x1p-8), 1.0, 0.06);
    bs_prediction_free(&p);
    free_world(&s);
  }
}
END_TEST

START_TEST(perfect_outputs_pass) {
  const bs_arithmetic kinds[] = {
      {BS_BF16, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0}, {BS_BF16, BS_BF16, BS_ACC_F32, BS_ACT_NONE, 0, 0},
      {BS_F16, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0},  {BS_F32, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0},
      {BS_F16, BS_F16, BS_ACC_F32, BS_ACT_NONE, 0, 0},  {BS_F64, BS_F64, BS_ACC_F64, BS_ACT_NONE, 0, 0},
      {BS_BF16, BS_F16, BS_ACC_F32, BS_ACT_NONE, 0, 0}};
  void *y = malloc(sizeof(double) * B * N);
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
    for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
      for (int positive = 0; positive < 2; ++positive) {
        world s;
        bs_gate gates[4];
        bs_judgement j;
        make_world(&s, ranks, kinds[i].y_dtype, positive ? 3.0 : 0.0);
        perfect(&s, &kinds[i], y);
        judge(&s, &kinds[i], y, gates, &j, NULL);
        for (int g = 0; g < 4; ++g) {
          ck_assert_msg(gates[g].state == BS_GATE_PASS,
                        "%s: %g > %g, dtype %x reduce %x ranks %u positive %d", gates[g].name, gates[g].value,
                        gates[g].limit, kinds[i].y_dtype, kinds[i].reduce_dtype, ranks, positive);
        }
        free_world(&s);
      }
    }
  }
  free(y);
}
END_TEST

/* Rounded once too often, or in a coarser dtype than claimed: T1 or T3 must see it. */
START_TEST(wrong_dtype_fails) {
  world s;
  bs_gate gates[4];
  bs_judgement j;
  make_world(&s, 2, BS_BF16, 0.0);
  float *y = malloc(sizeof(float) * B * N);
  const bs_arithmetic claimed = {BS_F32, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0};
  for (int i = 0; i < B * N; ++i) y[i] = bs_bf16_to_f32(bs_f32_to_bf16((float)s.ref.y[i]));
  judge(&s, &claimed, y, gates, &j, NULL);
  ck_assert_int_eq(gates[0].state, BS_GATE_FAIL);
  ck_assert_int_eq(gates[3].state, BS_GATE_FAIL);
  free(y);
  free_world(&s);
}
END_TEST

START_TEST(one_wrong_element_fails_t3_and_is_named) {
  world s;
  bs_gate gates[4];
  bs_judgement j;
  make_world(&s, 2, BS_BF16, 0.0);
  uint16_t *y = malloc(sizeof(uint16_t) * B * N);
  const bs_arithmetic a = {BS_BF16, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0};
  perfect(&s, &a, y);
  const int at = 5 * N + 17;
  y[at] = bs_f32_to_bf16(bs_bf16_to_f32(y[at]) + 0.5f);
  judge(&s, &a, y, gates, &j, NULL);
  ck_assert_int_eq(gates[3].state, BS_GATE_FAIL);
  ck_assert_int_eq(j.at_token, 5);
  ck_assert_int_eq(j.at_feature, 17);
  ck_assert_uint_eq(j.wrong, 1);
  free(y);
  free_world(&s);
}
END_TEST

/* Tensor cores' sums of fp8 keep 13 bits: what they lose passes where the record says so, and nowhere else.
 */
START_TEST(low_sums_are_bounded_by_their_bits) {
  world s;
  bs_gate gates[4];
  bs_judgement j;
  make_world(&s, 1, BS_BF16, 0.0);
  uint16_t *y = malloc(sizeof(uint16_t) * B * N);
  bs_arithmetic a = {.y_dtype = BS_BF16, .reduce_dtype = BS_F32, .accumulate = BS_ACC_F32};
  perfect(&s, &a, y);
  int64_t least = 0; /* where little is left of large terms */
  for (int64_t i = 1; i < (int64_t)B * N; ++i)
    if (fabs(s.ref.y[i]) < fabs(s.ref.y[least])) least = i;
  y[least] = bs_f32_to_bf16((float)(s.ref.y[least] + 0x1p-13 * sqrt((double)K) * s.ref.magnitude[least]));
  judge(&s, &a, y, gates, &j, NULL);
  ck_assert_int_eq(gates[3].state, BS_GATE_FAIL);
  a.low_sums = 1;
  judge(&s, &a, y, gates, &j, NULL);
  ck_assert_int_eq(gates[3].state, BS_GATE_PASS);
  free(y);
  free_world(&s);
}
END_TEST

START_TEST(one_bad_feature_fails_t2) {
  world s;
  bs_gate gates[4];
  bs_judgement j;
  make_world(&s, 1, BS_BF16, 0.0);
  uint16_t *y = malloc(sizeof(uint16_t) * B * N);
  const bs_arithmetic a = {BS_BF16, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0};
  perfect(&s, &a, y);
  for (int b = 0; b < B; ++b) y[b * N + 9] = bs_f64_to_bf16(s.ref.y[b * N + 9] * 1.02);
  judge(&s, &a, y, gates, &j, NULL);
  ck_assert_int_eq(gates[1].state, BS_GATE_FAIL);
  free(y);
  free_world(&s);
}
END_TEST

/* One NaN among the inputs: its token's outputs are NaN in the reference too. They must stay NaN, and the
 * others are judged as ever. */
START_TEST(nan_inputs_are_followed) {
  world s;
  bs_gate gates[4];
  bs_judgement j;
  double predicted, clean;
  make_world(&s, 2, BS_BF16, 0.0);
  uint16_t *y = malloc(sizeof(uint16_t) * B * N);
  const bs_arithmetic a = {BS_BF16, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0};
  perfect(&s, &a, y);
  judge(&s, &a, y, gates, &j, &clean);
  for (int n = 0; n < N; ++n) {
    s.ref.y[3 * N + n] = NAN;
    s.ref.magnitude[3 * N + n] = NAN;
    s.ref.partial[1][3 * N + n] = NAN;
    y[3 * N + n] = 0x7fc0;
  }
  judge(&s, &a, y, gates, &j, &predicted);
  for (int g = 0; g < 4; ++g)
    ck_assert_msg(gates[g].state == BS_GATE_PASS, "%s %g", gates[g].name, gates[g].value);
  ck_assert_uint_eq(j.propagated, N);
  ck_assert_uint_eq(j.nonfinite, 0);
  ck_assert_double_eq_tol(predicted, clean, 0.1 * clean);
  y[3 * N + 4] = bs_f32_to_bf16(1.0f); /* a NaN that was lost */
  judge(&s, &a, y, gates, &j, NULL);
  ck_assert_int_eq(gates[3].state, BS_GATE_FAIL);
  ck_assert_int_eq(j.at_feature, 4);
  free(y);
  free_world(&s);
}
END_TEST

/* What the reference's sum is, what the layer gave, and whether that is right: alone, where zeros of the
 * split meet the token's X, and where finite terms of the other sign may have overflowed on the way. */
typedef struct class_case {
  double sum, got;
  int right, with_zeros, with_overflow;
} class_case;
static const class_case classes[] = {
    {INFINITY, INFINITY, 1, 1, 1},
    {INFINITY, -INFINITY, 0, 0, 0},
    {INFINITY, NAN, 0, 1, 1},
    {INFINITY, 1.0, 0, 0, 0},
    {-INFINITY, -INFINITY, 1, 1, 1},
    {-INFINITY, INFINITY, 0, 0, 0},
    {-INFINITY, NAN, 0, 1, 1},
    {NAN, NAN, 1, 1, 1},
    {NAN, INFINITY, 0, 0, 0},
    {NAN, -INFINITY, 0, 0, 0},
    {NAN, 0.0, 0, 0, 0},
    {INFINITY, 3.4e38, 0, 0, 0},
};

START_TEST(what_is_not_finite_keeps_its_class) {
  world s;
  make_world(&s, 2, BS_F32, 0.0);
  float *y = malloc(sizeof(float) * B * N);
  bs_arithmetic a = {BS_F32, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0};
  perfect(&s, &a, y);
  s.ref.token_nonfinite[0] = 1;
  for (size_t i = 0; i < sizeof classes / sizeof classes[0]; ++i) {
    const class_case *c = &classes[i];
    const int wanted[3] = {c->right, c->with_zeros, c->with_overflow};
    for (int way = 0; way < 3; ++way) {
      bs_judgement j;
      bs_gate gates[4];
      s.ref.y[7] = c->sum;
      s.ref.magnitude[7] = way == 2 ? 4e38 : 1.0;
      y[7] = (float)c->got;
      a.zero_products = way == 1;
      judge(&s, &a, y, gates, &j, NULL);
      ck_assert_msg((gates[3].state == BS_GATE_PASS) == wanted[way], "%g for %g, %d", c->got, c->sum, way);
      ck_assert_uint_eq(j.propagated, wanted[way]);
    }
  }
  free(y);
  free_world(&s);
}
END_TEST

START_TEST(nan_fails_and_overflow_is_told_apart) {
  world s;
  bs_gate gates[4];
  bs_judgement j;
  make_world(&s, 1, BS_F32, 0.0);
  uint16_t *y = malloc(sizeof(uint16_t) * B * N);
  const bs_arithmetic a = {BS_F16, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0};
  perfect(&s, &a, y);
  y[7] = 0x7e00; /* NaN */
  judge(&s, &a, y, gates, &j, NULL);
  ck_assert_int_eq(gates[0].state, BS_GATE_FAIL);
  ck_assert_int_eq(gates[3].state, BS_GATE_FAIL);
  ck_assert_uint_eq(j.nonfinite, 1);
  s.ref.y[7] = 1e6; /* beyond f16: infinity is the right answer */
  y[7] = 0x7c00;
  judge(&s, &a, y, gates, &j, NULL);
  ck_assert_int_eq(gates[3].state, BS_GATE_PASS);
  ck_assert_uint_eq(j.nonfinite, 0);
  ck_assert_uint_eq(j.overflow, 1);
  free(y);
  free_world(&s);
}
END_TEST

/* A bound that is not finite lets nothing through. */
START_TEST(an_infinite_bound_bounds_nothing) {
  world s;
  bs_judgement j;
  bs_gate gates[4];
  bs_prediction p;
  bs_error err;
  const bs_arithmetic a = {BS_F32, BS_F32, BS_ACC_F32, BS_ACT_NONE, 0, 0};
  static const double bounds[] = {INFINITY, NAN};
  static const float wrong[] = {NAN, INFINITY, 1e30f};
  make_world(&s, 1, BS_F32, 0.0);
  float *y = malloc(sizeof(float) * B * N);
  ck_assert_int_eq(bs_predict(&s.ref, &a, &p, &err), BS_OK);
  for (int i = 0; i < 6; ++i) {
    perfect(&s, &a, y);
    p.bound[7] = bounds[i / 3];
    y[7] = wrong[i % 3];
    bs_judge(&s.ref, &a, &p, y, N, 0, N, &j);
    ck_assert_uint_eq(bs_gates_from_judgement(&s.ref, &j, 0, gates, 4), 4);
    ck_assert_int_eq(gates[3].state, BS_GATE_FAIL);
    ck_assert_uint_eq(j.wrong, 1);
    ck_assert_uint_eq(j.overflow, 0);
    y[7] = (float)s.ref.y[7];
  }
  bs_prediction_free(&p);
  free(y);
  free_world(&s);
}
END_TEST

START_TEST(ulp_of_each_dtype) {
  ck_assert_double_eq(bs_ulp(BS_F32, 1.0), 0x1p-23);
  ck_assert_double_eq(bs_ulp(BS_BF16, 1.5), 0x1p-7);
  ck_assert_double_eq(bs_ulp(BS_F16, 2048.0), 2.0);
  ck_assert_double_eq(bs_ulp(BS_F16, 0.0), 0x1p-24);
  ck_assert_double_eq(bs_ulp(BS_F8E4M3, 1.0), 0.125);
  ck_assert_double_eq(bs_ulp(BS_I32, 5.0), 0.0);
}
END_TEST

/* K17: relative error divided by near-zero outputs says nothing. */
START_TEST(known_answer_metrics) {
  const double ref[] = {1, -2, 0, 4};
  const double got[] = {1.5, -2, 0.001, 3};
  bs_metrics m = {0};
  for (int i = 0; i < 4; ++i) bs_metrics_add(&m, ref[i], got[i], 1e-12);
  ck_assert_double_eq(m.max_abs, 1.0);
  ck_assert_double_eq_tol(bs_metrics_mean_abs(&m), 0.37525, 1e-12);
  ck_assert_double_eq_tol(m.max_rel, 1e9, 1.0);
  ck_assert_double_eq_tol(bs_metrics_frobenius(&m), 0.24398, 1e-5);
}
END_TEST

int main(void) {
  const test_case tests[] = {{reference_equals_a_plain_product},
                             {reference_samples_first_and_last_feature},
                             {gaussian_rounding_is_0425_u},
                             {prediction_follows_the_reduce_dtype},
                             {perfect_outputs_pass},
                             {wrong_dtype_fails},
                             {one_wrong_element_fails_t3_and_is_named},
                             {low_sums_are_bounded_by_their_bits},
                             {one_bad_feature_fails_t2},
                             {nan_inputs_are_followed},
                             {what_is_not_finite_keeps_its_class},
                             {nan_fails_and_overflow_is_told_apart},
                             {an_infinite_bound_bounds_nothing},
                             {ulp_of_each_dtype},
                             {known_answer_metrics},
                             {0}};
  return run_tests("gate", tests, (test_setup){.timeout = 120});
}
