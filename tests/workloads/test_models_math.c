/* SPDX-License-Identifier: MIT
 * test_models_math.c - exp, erfc, gelu and silu against the C library's long double, golden bits, the known
 * answers K20 of the activations, and the two versions of the inner loop bit by bit. */
#include <math.h>

#include "core/base/math.h"
#include "core/base/rng.h"
#include "plugins/workloads/models/kernels.h"
#include "plugins/workloads/models/row.h"
#include "tests/formats/files.h"
#include "tests/run_tests.h"

/* Largest relative error of f against g over a grid of `points` from low to high, in units of 2^-52; where g
 * is not normal its smallest step is allowed. */
static double worst(double (*f)(double), long double (*g)(long double), double low, double high, int points) {
  double most = 0;
  for (int i = 0; i <= points; i++) {
    double x = low + (high - low) * i / points;
    long double want = g(x), got = f(x), slack = fabsl(want) * 0x1p-52L;
    if (slack < 0x1p-1074L) slack = 0x1p-1074L;
    double error = (double)(fabsl(got - want) / slack);
    if (!(error <= most) && !isnan(most)) most = error;
  }
  return most;
}

static long double exact_gelu(long double x) {
  return x * erfcl(-x / sqrtl(2.0L)) / 2.0L;
}
static long double exact_silu(long double x) {
  return x / (1.0L + expl(-x));
}

START_TEST(accuracy) {
  static const struct {
    const char *name;
    double (*f)(double);
    long double (*g)(long double);
    double low, high, limit;
  } rows[] = {{"exp", bs_exp, expl, -1, 1, 2},
              {"exp", bs_exp, expl, -708, 709.5, 2},
              {"exp", bs_exp, expl, -745, -708, 2},
              {"erfc", bs_erfc, erfcl, -7, 0, 4},
              {"erfc", bs_erfc, erfcl, 0, 2, 8},
              {"erfc", bs_erfc, erfcl, 2, 26.5, 8},
              {"gelu", bs_gelu, exact_gelu, -1e-3, 1e-3, 8},
              {"gelu", bs_gelu, exact_gelu, 0, 40, 8},
              /* The argument's own rounding counts x^2 times in the tail. */
              {"gelu", bs_gelu, exact_gelu, -4, 0, 24},
              {"gelu", bs_gelu, exact_gelu, -16, -4, 400},
              {"silu", bs_silu, exact_silu, -700, 0, 4},
              {"silu", bs_silu, exact_silu, 0, 700, 4}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double error = worst(rows[i].f, rows[i].g, rows[i].low, rows[i].high, 40000);
    ck_assert_msg(error <= rows[i].limit, "%s in %g .. %g: %g ulp", rows[i].name, rows[i].low, rows[i].high,
                  error);
  }
}
END_TEST

START_TEST(ends_and_special_values) {
  ck_assert(bs_exp(0.0) == 1.0 && bs_exp(-0.0) == 1.0);
  ck_assert(isinf(bs_exp(709.79)) && isinf(bs_exp(INFINITY)) && isfinite(bs_exp(709.782)));
  ck_assert(bs_exp(-745.2) == 0.0 && bs_exp(-INFINITY) == 0.0 && bs_exp(-745.1) > 0.0);
  ck_assert(isnan(bs_exp(NAN)) && isnan(bs_erfc(NAN)));
  ck_assert(fabs(bs_erfc(0.0) - 1.0) <= 0x1p-52 && bs_erfc(30.0) == 0.0 && bs_erfc(-30.0) == 2.0);
  ck_assert(bs_gelu(0.0) == 0.0 && bs_gelu(50.0) == 50.0 && bs_gelu(-50.0) == 0.0);
  ck_assert(bs_gelu(1e38) == 1e38 && bs_gelu(-1e38) == 0.0);
  ck_assert(bs_silu(0.0) == 0.0 && bs_silu(1e38) == 1e38 && bs_silu(-1e38) == 0.0);
}
END_TEST

static uint64_t fold(uint64_t h, double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (h ^ bits) * UINT64_C(1099511628211);
}

/* Stored runs are repeated from their seeds: these bits may not change, with any compiler or C library. */
START_TEST(golden) {
  uint64_t h[4] = {1, 1, 1, 1};
  for (int i = -4000; i <= 4000; i++) {
    h[0] = fold(h[0], bs_exp(i * 0.1875));
    h[1] = fold(h[1], bs_erfc(i * 0.00787353515625));
    h[2] = fold(h[2], bs_gelu(i * 0.0029296875));
    h[3] = fold(h[3], bs_silu(i * 0.0029296875));
  }
  static const uint64_t want[4] = {UINT64_C(0x3105256468ec4b6c), UINT64_C(0x9f699833f459e2a9),
                                   UINT64_C(0x4ca53cb9473048de), UINT64_C(0x329c4cf824c43027)};
  for (int i = 0; i < 4; i++)
    ck_assert_msg(h[i] == want[i], "function %d: 0x%016llx", i, (unsigned long long)h[i]);
}
END_TEST

static void check_row(const double *got, const double *want, const char *name) {
  for (int i = 0; i < 4; i++)
    ck_assert_msg(fabs(got[i] - want[i]) <= 1e-6, "%s[%d] = %.9g, not %.6f", name, i, got[i], want[i]);
}

/* K20: [1 2 3 4], eps 1e-5. */
START_TEST(known_answers_of_the_mlp) {
  static const double normalised[4] = {-1.161886, -0.387295, 0.387295, 1.161886};
  static const struct {
    uint32_t activation;
    const char *name;
    double want[4];
  } rows[] = {{MODELS_LINEAR, "linear", {-1.161886, -0.387295, 0.387295, 1.161886}},
              {MODELS_GELU, "gelu", {-0.142495, -0.135270, 0.252025, 1.019391}},
              {MODELS_SILU, "silu", {-0.276906, -0.156610, 0.230685, 0.884980}},
              {MODELS_RELU, "relu", {0, 0, 0.387295, 1.161886}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double x[4] = {1, 2, 3, 4};
    models_normalise(x, 4, 1e-5);
    check_row(x, normalised, "normalised");
    models_activate(rows[i].activation, x, 4);
    check_row(x, rows[i].want, rows[i].name);
  }
  /* silu(x1) * x2, not x1 * sigmoid(x2). */
  double x1[4], gate[4] = {1, 2, 3, 4}, want[4];
  memcpy(x1, normalised, sizeof x1);
  for (int i = 0; i < 4; i++) want[i] = rows[2].want[i] * gate[i];
  models_swiglu(x1, gate, 4);
  for (int i = 0; i < 4; i++) ck_assert(fabs(x1[i] - want[i]) <= 4e-6);
}
END_TEST

START_TEST(normalisation) {
  /* The divisor is n - 1, and eps is outside the root: [0 2] has deviation sqrt 2. */
  double two[2] = {0, 2}, equal[3] = {5, 5, 5}, also[3] = {5, 5, 5}, wide[2] = {0, 2};
  models_normalise(two, 2, 0.0);
  ck_assert(fabs(two[1] - 1.0 / sqrt(2.0)) < 1e-15);
  models_normalise(wide, 2, 1.0);
  ck_assert(fabs(wide[1] - 1.0 / (sqrt(2.0) + 1.0)) < 1e-15);
  models_normalise(equal, 3, 0.0);
  models_normalise(also, 3, 1e-5);
  for (int i = 0; i < 3; i++) ck_assert(equal[i] == 0.0 && also[i] == 0.0);
}
END_TEST

START_TEST(the_loops_agree_bit_by_bit) {
  enum { ROWS = 11, LD = 77, N = 71 };
  const models_kernels *portable = models_kernels_portable(), *avx2 = models_kernels_avx2();
  float x[ROWS * LD + 1], z[ROWS + N];
  double a[ROWS], start[N];
  bs_rng_normal(1, 1, 0, ROWS * LD + 1, x);
  bs_rng_normal(2, 1, 0, ROWS + N, z);
  for (int i = 0; i < ROWS; i++) a[i] = z[i] / 3.0;
  for (int i = 0; i < N; i++) start[i] = z[ROWS + i] / 7.0;
  for (int rows = 0; rows <= ROWS; rows++)
    for (int n = 0; n <= N; n += n < 10 ? 1 : 7) {
      double want[N], p[N], v[N];
      memcpy(want, start, sizeof want);
      memcpy(p, start, sizeof p);
      memcpy(v, start, sizeof v);
      for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) {
          volatile double term = a[r] * (double)x[1 + r * LD + i];
          want[i] += term;
        }
      portable->add_rows(p, a, x + 1, LD, rows, n);
      ck_assert_mem_eq(p, want, sizeof want);
      if (avx2 == NULL) continue;
      avx2->add_rows(v, a, x + 1, LD, rows, n);
      ck_assert_mem_eq(v, want, sizeof want);
    }
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {accuracy},      {ends_and_special_values},    {golden}, {known_answers_of_the_mlp},
      {normalisation}, {the_loops_agree_bit_by_bit}, {0}};
  return run_tests("models_math", tests, (test_setup){0});
}
