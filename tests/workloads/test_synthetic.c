/* SPDX-License-Identifier: MIT
 * test_synthetic.c - the generated workloads: the same bits however they are read, parts that never share a
 * stream, laws and roundings as documented, exact integers, and strict options. */
#include <math.h>

#include "core/base/rng.h"
#include "tests/run_tests.h"
#include "tests/workloads/workload.h"

static const struct {
  const char *name;
  uint32_t dtype;
} kinds[] = {{"random_normal", BS_F32}, {"random_normal", BS_BF16}, {"random_normal", BS_F16},
             {"uniform", BS_F64},       {"uniform", BS_F8E4M3},     {"integer", BS_BF16},
             {"gaussian", BS_F8E5M2}};

START_TEST(the_same_bits_twice_and_in_any_panels) {
  ask a = {.name = kinds[_i].name,
           .dtype = kinds[_i].dtype,
           .B = 5,
           .N = 9,
           .K = 2100,
           .seed = 7,
           .weight_seed = 7,
           .has_bias = 1};
  uint32_t reads[] = {a.dtype, BS_F32, BS_F64};
  opened w, again;
  workload_must_open(&a, &w);
  workload_must_open(&a, &again);
  for (uint32_t part = BS_PART_X; part <= BS_PART_BIAS; part++) {
    bs_source s = workload_source(&w, part), t = workload_source(&again, part);
    ck_assert_uint_eq(s.dtype, a.dtype);
    ck_assert_int_eq(s.rows, part == BS_PART_X ? 5 : part == BS_PART_W ? 9 : 1);
    ck_assert_int_eq(s.cols, part == BS_PART_BIAS ? 9 : 2100);
    for (size_t d = 0; d < 3; d++) {
      void *first = workload_read(&s, reads[d]), *second = workload_read(&t, reads[d]);
      ck_assert_int_eq(memcmp(first, second, (size_t)(s.rows * s.cols) * BS_DTYPE_BYTES(reads[d])), 0);
      workload_check_panels(&s, reads[d], first);
      free(first);
      free(second);
    }
    workload_check_bounds(&s);
  }
  workload_close(&w);
  workload_close(&again);
}
END_TEST

/* Read wider, a value is what the model dtype holds: no hidden precision. */
START_TEST(values_are_rounded_to_the_model_dtype) {
  ask a = {.name = kinds[_i].name, .dtype = kinds[_i].dtype, .B = 4, .N = 4, .K = 64, .has_bias = 1};
  opened w;
  workload_must_open(&a, &w);
  bs_source s = workload_source(&w, BS_PART_X);
  void *own = workload_read(&s, a.dtype);
  double *wide = workload_read(&s, BS_F64), *widened = calloc(256, sizeof *widened);
  ck_assert_int_eq(bs_convert(BS_F64, widened, a.dtype, own, 256), BS_OK);
  ck_assert_int_eq(memcmp(wide, widened, 256 * sizeof *wide), 0);
  free(own);
  free(wide);
  free(widened);
  workload_close(&w);
}
END_TEST

START_TEST(parts_and_seeds_have_streams_of_their_own) {
  ask a = {.name = "random_normal",
           .B = 32,
           .N = 32,
           .K = 32,
           .seed = 5,
           .weight_seed = 5,
           .has_bias = 1,
           .options = {"target=random_normal"}};
  opened w, other;
  workload_must_open(&a, &w);
  a.seed = 6;
  workload_must_open(&a, &other);
  float *parts[4];
  for (uint32_t part = 0; part < 4; part++) {
    bs_source s = workload_source(&w, part), t = workload_source(&other, part);
    parts[part] = workload_read(&s, BS_F32);
    float *changed = workload_read(&t, BS_F32);
    /* X and targets follow the workload's seed; W and bias the weights' seed. */
    int equal = memcmp(parts[part], changed, (size_t)(s.rows * s.cols) * sizeof(float)) == 0;
    ck_assert_int_eq(equal, part == BS_PART_W || part == BS_PART_BIAS);
    free(changed);
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < i; j++) {
      /* Not equal rows, and not correlated: 1,024 products of unit variance. */
      double dot = 0;
      int n = i == BS_PART_BIAS || j == BS_PART_BIAS ? 32 : 1024;
      for (int k = 0; k < n; k++) dot += (double)parts[i][k] * parts[j][k];
      ck_assert_msg(fabs(dot) < 5 * sqrt(n), "parts %d and %d: %g", i, j, dot);
      ck_assert_int_ne(memcmp(parts[i], parts[j], 32 * sizeof(float)), 0);
    }
  for (int i = 0; i < 4; i++) free(parts[i]);
  workload_close(&w);
  workload_close(&other);
}
END_TEST

START_TEST(the_laws_are_those_of_the_generator) {
  ask a = {.name = "normal",
           .B = 3,
           .N = 2,
           .K = 100,
           .seed = 11,
           .weight_seed = 12,
           .options = {"mean=1.5", "std=0.25", "weight_mean=-2", "weight_std=0.5"}};
  float z[300];
  opened w;
  workload_must_open(&a, &w);
  bs_source s = workload_source(&w, BS_PART_X), ws = workload_source(&w, BS_PART_W);
  float *x = workload_read(&s, BS_F32), *weights = workload_read(&ws, BS_F32);
  bs_rng_normal(11, BS_STREAM_X, 0, 300, z);
  for (int i = 0; i < 300; i++) {
    volatile float scaled = z[i] * 0.25f; /* rounded before the sum */
    ck_assert_float_eq(x[i], scaled + 1.5f);
  }
  bs_rng_normal(12, BS_STREAM_W, 0, 200, z);
  for (int i = 0; i < 200; i++) ck_assert_float_eq(weights[i], z[i] * 0.5f - 2.0f);
  free(x);
  free(weights);
  workload_close(&w);
  a = (ask){.name = "uniform", .B = 3, .N = 2, .K = 100, .seed = 11, .options = {"low=2", "high=6"}};
  workload_must_open(&a, &w);
  s = workload_source(&w, BS_PART_X);
  x = workload_read(&s, BS_F32);
  bs_rng_uniform(11, BS_STREAM_X, 0, 300, z);
  for (int i = 0; i < 300; i++) {
    volatile float scaled = z[i] * 4.0f;
    ck_assert_float_eq(x[i], scaled + 2.0f);
    ck_assert(x[i] >= 2.0f && x[i] <= 6.0f);
  }
  free(x);
  workload_close(&w);
}
END_TEST

START_TEST(targets_and_losses) {
  static const struct {
    const char *target, *loss;
    uint32_t has_target, want_loss;
  } cases[] = {{"target=none", "loss=sum", 0, BS_LOSS_SUM},
               {"target=zeros", "loss=mse_target", 1, BS_LOSS_MSE_TARGET},
               {"target=uniform", "loss=mse", 1, BS_LOSS_MSE_ZERO},
               {"target=gaussian", "loss=mse_zero", 1, BS_LOSS_MSE_ZERO},
               {"target=random_normal", "loss=mse_target", 1, BS_LOSS_MSE_TARGET}};
  bs_error err = BS_ERROR_INIT;
  bs_source s = {.struct_size = sizeof s};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ask a = {.name = "random_normal",
             .B = 8,
             .N = 16,
             .K = 8,
             .options = {cases[i].target, cases[i].loss, "target_low=3", "target_high=4"}};
    opened w;
    workload_must_open(&a, &w);
    ck_assert_uint_eq(w.info.has_target, cases[i].has_target);
    ck_assert_uint_eq(w.info.loss, cases[i].want_loss);
    if (!cases[i].has_target) {
      ck_assert_int_eq(w.vtable->source(w.instance, BS_PART_TARGET, &s, &err), BS_INVALID_ARGUMENT);
    } else {
      s = workload_source(&w, BS_PART_TARGET);
      ck_assert_int_eq(s.rows, 8);
      ck_assert_int_eq(s.cols, 16);
      float *t = workload_read(&s, BS_F32), sum = 0;
      for (int k = 0; k < 128; k++) {
        sum += fabsf(t[k]);
        if (strcmp(cases[i].target, "target=uniform") == 0) ck_assert(t[k] >= 3.0f && t[k] <= 4.0f);
      }
      ck_assert_int_eq(sum == 0.0f, strcmp(cases[i].target, "target=zeros") == 0);
      free(t);
    }
    ck_assert_int_eq(w.vtable->source(w.instance, BS_PART_BIAS, &s, &err), BS_INVALID_ARGUMENT);
    ck_assert_int_eq(w.vtable->source(w.instance, 4, &s, &err), BS_INVALID_ARGUMENT);
    workload_close(&w);
  }
}
END_TEST

/* Every output, and every partial sum over a prefix of the columns, is an integer the dtype holds. */
static void check_exact(const ask *a, double limit) {
  opened w;
  workload_must_open(a, &w);
  bs_source xs = workload_source(&w, BS_PART_X), ws = workload_source(&w, BS_PART_W);
  bs_source bs = workload_source(&w, BS_PART_BIAS);
  float *x = workload_read(&xs, BS_F32), *v = workload_read(&ws, BS_F32), *b = workload_read(&bs, BS_F32);
  int counts[3] = {0}, bias_seen = 0;
  for (int64_t i = 0; i < a->B * a->K; i++) {
    if (x[i] != -1.0f && x[i] != 0.0f && x[i] != 1.0f) ck_abort_msg("an entry is %g", (double)x[i]);
    counts[(int)x[i] + 1]++;
  }
  /* Both signs, equally often within six standard deviations. */
  ck_assert(counts[0] > 0 && counts[2] > 0);
  ck_assert(abs(counts[0] - counts[2]) < 6 * sqrt((double)(counts[0] + counts[2])) + 1);
  for (int64_t n = 0; n < a->N; n++) {
    ck_assert(b[n] == rintf(b[n]) && fabsf(b[n]) <= 2.0f);
    bias_seen |= b[n] != 0.0f;
    for (int64_t t = 0; t < a->B; t++) {
      double y = 0;
      for (int64_t k = 0; k < a->K; k++) {
        y += (double)x[t * a->K + k] * v[n * a->K + k];
        if (fabs(y) >= limit) ck_abort_msg("partial %g at K=%d", y, (int)k);
      }
      ck_assert_msg(fabs(y + b[n]) <= limit, "output %g", y + b[n]);
    }
  }
  ck_assert(bias_seen);
  free(x);
  free(v);
  free(b);
  workload_close(&w);
}

START_TEST(integers_stay_exact) {
  static const int64_t depths[] = {1, 100, 253, 1000, 4096, 40960};
  for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
    ask a = {.name = i & 1 ? "small_int" : "integer",
             .dtype = BS_BF16,
             .B = 12,
             .N = 30,
             .K = depths[i],
             .seed = 3,
             .weight_seed = 4,
             .has_bias = 1};
    if (a.K == 1) a.B = 64;
    check_exact(&a, 256.0);
  }
  ask e4m3 = {.name = "integer", .dtype = BS_F8E4M3, .B = 12, .N = 30, .K = 1024, .has_bias = 1};
  check_exact(&e4m3, 16.0);
  ask e5m2 = {.name = "integer", .dtype = BS_F8E5M2, .B = 12, .N = 30, .K = 1024, .has_bias = 1};
  check_exact(&e5m2, 8.0);
}
END_TEST

START_TEST(density_is_kept_and_bounded) {
  ask a = {.name = "integer", .dtype = BS_BF16, .B = 50, .N = 4, .K = 4000, .options = {"density=0.25"}};
  opened w;
  workload_must_open(&a, &w);
  bs_source s = workload_source(&w, BS_PART_X);
  float *x = workload_read(&s, BS_F32);
  int nonzero = 0;
  for (int i = 0; i < 200000; i++) nonzero += x[i] != 0.0f;
  /* 50,000 expected, standard deviation 194. */
  ck_assert_int_gt(nonzero, 48800);
  ck_assert_int_lt(nonzero, 51200);
  free(x);
  workload_close(&w);
  /* K d^2 <= 1800: 4000 x 0.67^2 = 1795.6, 4000 x 0.68^2 = 1849.6. */
  a.options[0] = "density=0.67";
  workload_must_open(&a, &w);
  workload_close(&w);
  a.options[0] = "density=0.68";
  workload_refused(&a, BS_CONFIG, "BS-WL-DENSITY", "1849.6");
  a.options[0] = "density=0";
  workload_refused(&a, BS_CONFIG, "BS-WL-VALUE", "density");
  a.options[0] = "density=1.01";
  workload_refused(&a, BS_CONFIG, "BS-WL-VALUE", "density");
  a.options[0] = "density=1";
  a.K = 200;
  workload_must_open(&a, &w);
  workload_close(&w);
}
END_TEST

START_TEST(wrong_requests_are_refused) {
  static const struct {
    const char *name, *option, *id, *part;
  } cases[] = {{"random_normal", "meen=1", "BS-WL-KEY", "mean"},
               {"random_normal", "low=1", "BS-WL-KEY", "workload.low"},
               {"random_normal", "mean=one", "BS-WL-VALUE", "one"},
               {"random_normal", "mean=1e999", "BS-WL-VALUE", "mean"},
               {"random_normal", "mean=nan", "BS-WL-VALUE", "nan"},
               {"random_normal", "mean=0x10", "BS-WL-VALUE", "0x10"},
               {"random_normal", "mean=1 2", "BS-WL-VALUE", "1 2"},
               {"random_normal", "std=-1", "BS-WL-VALUE", "std"},
               {"random_normal", "std=1e38", "BS-WL-RANGE", "X"},
               {"random_normal", "weight_std=1e38", "BS-WL-RANGE", "W"},
               {"random_normal", "target=zeroes", "BS-WL-VALUE", "zeros"},
               {"random_normal", "loss=mse_targt", "BS-WL-VALUE", "mse_target"},
               {"random_normal", "loss=mse_target", "BS-WL-LOSS", "workload.target"},
               {"uniform", "low=2", "BS-WL-VALUE", "low"},
               {"uniform", "target_low=7", "BS-WL-VALUE", "target_low"},
               {"uniform", "hihg=2", "BS-WL-KEY", "high"},
               {"uniform", "mean=2", "BS-WL-KEY", "mean"},
               {"integer", "mean=2", "BS-WL-KEY", "integer"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ask a = {.name = cases[i].name, .B = 4, .N = 4, .K = 4, .options = {cases[i].option}};
    workload_refused(&a, BS_CONFIG, cases[i].id, cases[i].part);
  }
  ask half = {.name = "gaussian", .dtype = BS_F16, .B = 4, .N = 4, .K = 4, .options = {"std=10000"}};
  workload_refused(&half, BS_CONFIG, "BS-WL-RANGE", "65504");
  static const char *const names[] = {"random_normal", "uniform", "integer"};
  for (int i = 0; i < 3; i++) {
    ask no_b = {.name = names[i], .N = 4, .K = 4}, no_n = {.name = names[i], .B = 4, .K = 4};
    ask no_k = {.name = names[i], .B = 4, .N = 4}, minus = {.name = names[i], .B = -4, .N = 4, .K = 4};
    ask huge = {.name = names[i], .B = 4, .N = INT64_MAX / 2, .K = INT64_MAX / 2};
    workload_refused(&no_b, BS_CONFIG, "BS-WL-SIZE", "model.B");
    workload_refused(&no_n, BS_CONFIG, "BS-WL-SIZE", "model.N");
    workload_refused(&no_k, BS_CONFIG, "BS-WL-SIZE", "model.K");
    workload_refused(&minus, BS_CONFIG, "BS-WL-SIZE", "model.B");
    workload_refused(&huge, BS_CONFIG, "BS-WL-SIZE", "addressed");
  }
}
END_TEST

START_TEST(the_text_says_what_was_made) {
  ask a = {.name = "fixed_seed",
           .B = 2,
           .N = 3,
           .K = 4,
           .seed = 1234,
           .weight_seed = 725,
           .has_bias = 1,
           .options = {"std=2"}};
  opened w;
  workload_must_open(&a, &w);
  ck_assert_str_eq(w.vtable->name, "random_normal");
  ck_assert_ptr_nonnull(strstr(w.info.text, "normal(0, 2) seed 1234"));
  ck_assert_ptr_nonnull(strstr(w.info.text, "725"));
  ck_assert_int_eq(w.info.B * 100 + w.info.N * 10 + w.info.K, 234);
  ck_assert_uint_eq(w.info.has_bias, 1);
  workload_close(&w);
}
END_TEST

int main(void) {
  const int n = (int)(sizeof kinds / sizeof *kinds);
  const test_case tests[] = {{the_same_bits_twice_and_in_any_panels, n},
                             {values_are_rounded_to_the_model_dtype, n},
                             {parts_and_seeds_have_streams_of_their_own},
                             {the_laws_are_those_of_the_generator},
                             {targets_and_losses},
                             {integers_stay_exact},
                             {density_is_kept_and_bounded},
                             {wrong_requests_are_refused},
                             {the_text_says_what_was_made},
                             {0}};
  return run_tests("synthetic", tests, (test_setup){0});
}
