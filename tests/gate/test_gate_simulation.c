/* SPDX-License-Identifier: MIT
 * test_gate_simulation.c - the simulation behind T1's constant and T2's factor: clean roundings of Gaussian
 * outputs must stay under the limits, and not so far under them that the limits say nothing. BS_TEST_BIG
 * multiplies the number of trials (make verify). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "lab/gate/judge.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static int trials(int small) {
  const char *big = getenv("BS_TEST_BIG");
  return big ? small * atoi(big) : small;
}

typedef struct spread {
  double worst;   /* of the trials: relative error / prediction */
  double feature; /* worst feature / its prediction */
} spread;

/* Clean outputs of `tokens` x `features`: Gaussian values rounded once to bf16. */
static spread clean_trials(int64_t tokens, int64_t features, int count, uint64_t seed) {
  const int64_t n = tokens * features;
  spread out = {0, 0};
  float *z = malloc(sizeof(float) * (size_t)n);
  for (int t = 0; t < count; ++t) {
    bs_rng_normal(seed, 40 + (uint32_t)tokens, (uint64_t)t * (uint64_t)n, (uint64_t)n, z);
    double error2 = 0.0, predicted2 = 0.0;
    for (int64_t f = 0; f < features; ++f) {
      double e_f = 0.0, p_f = 0.0;
      for (int64_t b = 0; b < tokens; ++b) {
        const double y = 45.0 * z[b * features + f];
        const double e = (double)bs_bf16_to_f32(bs_f64_to_bf16(y)) - y;
        const double ulp = bs_ulp(BS_BF16, y);
        e_f += e * e;
        p_f += ulp * ulp / 12.0;
      }
      out.feature = fmax(out.feature, sqrt(e_f / p_f));
      error2 += e_f;
      predicted2 += p_f;
    }
    out.worst = fmax(out.worst, sqrt(error2 / predicted2));
  }
  free(z);
  return out;
}

START_TEST(t1_constant_covers_few_outputs) {
  const int64_t tokens[] = {2, 4, 8, 16, 64};
  for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; ++i) {
    const int64_t features = BS_T1_MIN_OUTPUTS / tokens[i];
    const spread s = clean_trials(tokens[i], features, trials(4000), 11);
    const double limit = 1.3 + BS_T1_C / sqrt((double)BS_T1_MIN_OUTPUTS);
    printf("outputs %d: worst clean %.3f, limit %.3f\n", BS_T1_MIN_OUTPUTS, s.worst, limit);
    ck_assert_double_lt(s.worst, limit);
    ck_assert_double_gt(s.worst, 1.0);
  }
  const spread many = clean_trials(64, 256, trials(100), 12);
  printf("outputs 16384: worst clean %.3f, limit %.3f\n", many.worst, 1.3 + BS_T1_C / 128.0);
  ck_assert_double_lt(many.worst, 1.06);
}
END_TEST

START_TEST(t2_factor_covers_the_worst_feature) {
  const int64_t tokens[] = {8, 16, 32, 64, 256};
  for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; ++i) {
    const spread s = clean_trials(tokens[i], 4096, trials(5), 13);
    const double limit = 1.0 + 9.0 / sqrt((double)tokens[i]);
    printf("B %lld: worst clean feature of 20480 %.3f, limit %.3f\n", (long long)tokens[i], s.feature, limit);
    ck_assert_double_lt(s.feature, limit);
    ck_assert_double_gt(s.feature, 1.0);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{t1_constant_covers_few_outputs}, {t2_factor_covers_the_worst_feature}, {0}};
  return run_tests("gate simulation", tests, (test_setup){.timeout = 3600});
}
