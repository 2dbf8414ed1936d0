/* SPDX-License-Identifier: MIT
 * test_gate_activation.c - the gates behind an activation: the slopes bound what passes, clean cases of every
 * method raise no alarm, T5 keeps relu, and an activation in the wrong place is caught. BS_TEST_BIG
 * multiplies the clean cases.
 *   test_gate_activation [portable|avx2|avx512|avx512_bf16|dnnl|amx_model|amx]
 * With a name only that kernel path of the cpu plugin serves, or the program is skipped (77). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/activation.h"
#include "lab/gate/faults.h"
#include "tests/gate/gate_case.h"
#include "tests/gate/one_path.h"
#include "tests/run_tests.h"

#define ONE_PRECISION (BS_FAULT_FORWARD_COUNT_ - BS_FAULT_MIXED_COUNT) /* test_gate_mixed has the others */

static const char *path; /* one_path.h */
static uint64_t refused; /* cases that oneDNN alone does not serve */

/* One path is given each activation with each method, dtype and shape in turn; with BS_TEST_BIG, all
 * together. */
static int thin(void) {
  return path != NULL && getenv("BS_TEST_BIG") == NULL;
}

static const struct {
  const char *method;
  uint32_t P;
} layers[] = {
    {"dense", 1},        {"column_parallel", 2}, {"column_parallel", 3},
    {"row_parallel", 1}, {"row_parallel", 2},    {"row_parallel", 3},
    {"masked_split", 2}, {"blockshock", 2},      {"blockshock", 4},
};
#define N_LAYERS (sizeof layers / sizeof layers[0])
static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
static const int64_t shapes[][3] = {{1, 1, 1},   {3, 7, 4},   {8, 16, 31},    {16, 33, 64}, {64, 24, 130},
                                    {9, 100, 3}, {8, 300, 1}, {33, 129, 520}, {130, 9, 40}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

static bs_case make_case(const char *method, uint32_t P, uint32_t dtype, uint32_t activation,
                         const int64_t shape[3]) {
  bs_case c = gate_case(method, P, dtype, shape, NULL);
  c.spec.activation = activation;
  return c;
}

/* Numerical slopes between points of a fine grid never pass the bound, and come close to it. */
START_TEST(slopes_bound_what_passes) {
  static const double whole[4] = {1.0, 1.1290, 1.0999, 1.1290};
  for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_GELU_TANH; ++a) {
    double most = 0;
    for (int i = -2000; i < 2000; ++i) {
      const double low = i * 0.005, high = low + 0.005, across = low + 1.7;
      const double rise = bs_activation_value(a, high) - bs_activation_value(a, low);
      const double far = bs_activation_value(a, across) - bs_activation_value(a, low);
      ck_assert_double_le(fabs(rise), bs_activation_slope(a, low, high) * 0.005 * (1 + 1e-9) + 1e-15);
      ck_assert_double_le(fabs(far), bs_activation_slope(a, low, across) * 1.7 * (1 + 1e-9) + 1e-15);
      most = fmax(most, fabs(rise) / 0.005);
    }
    ck_assert_double_eq_tol(bs_activation_slope(a, -INFINITY, INFINITY), whole[a - 1], 1e-4);
    ck_assert_double_eq_tol(most, whole[a - 1], 1e-3);
    ck_assert_double_le(bs_activation_slope(a, -60, -50), 1e-15); /* flat far below */
    ck_assert_double_eq_tol(bs_activation_slope(a, 50, 60), 1.0, 1e-12);
  }
  ck_assert(bs_activation_slope(BS_ACT_NONE, -3, 3) == 1.0);
  ck_assert(bs_activation_slope(BS_ACT_RELU, -1, -1e-300) == 0 &&
            bs_activation_slope(BS_ACT_RELU, -1, 0) == 1);
}
END_TEST

/* Run and judge one case of random numbers; 1 when every gate passed. */
static int run_case(const bs_case *like, uint64_t seed, uint32_t asked) {
  bs_error err;
  gate_data data;
  bs_case_result result;
  bs_verdict verdict;
  bs_case c = *like, judged_by;
  gate_data_open(&c, "random_normal", seed, seed, &data);
  judged_by = c;
  judged_by.spec.activation = asked;
  const int32_t rc = gate_run(&c, &judged_by, &result, &verdict, &err);
  gate_data_close(&data);
  if (rc == BS_UNSUPPORTED && path_is_dnnl(path)) { /* no f16, no K = 0, no gelu rounded to 16 bits */
    ++refused;
    return 1;
  }
  ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s", c.method, c.world_size, err.id, err.message);
  if (strcmp(c.backend, "cpu") == 0) path_must_have_run(path, result.algorithms);
  bs_case_result_free(&result);
  return asked == c.spec.activation ? !gate_alarm(&c, verdict.gates, verdict.n_gates)
                                    : bs_verdict_passed(verdict.gates, verdict.n_gates);
}

START_TEST(clean_cases_raise_no_alarm) {
  const char *big = getenv("BS_TEST_BIG");
  const uint64_t seeds = big ? (uint64_t)atoi(big) : 1;
  uint64_t cases = 0, alarms = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed)
    for (size_t l = 0; l < N_LAYERS; ++l)
      for (size_t d = 0; d < 3; ++d)
        for (size_t s = 0; s < N_SHAPES; ++s)
          for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_GELU_TANH; ++a) {
            if (!path_has(path, dtypes[d]) || (thin() && (l + d + s + a) % 3 != 0)) continue;
            bs_case c = make_case(layers[l].method, layers[l].P, dtypes[d], a, shapes[s]);
            c.backend = path == NULL && cases % 4 == 3 ? "ref" : "cpu";
            c.spec.has_bias = cases % 2 == 0;
            c.spec.reduce_dtype = cases % 3 == 2 ? dtypes[d] : 0;
            c.spec.y_placement = cases % 5 == 4 ? BS_SPLIT : BS_REPLICATED;
            alarms += !run_case(&c, seed * 100000 + cases, a);
            ++cases;
          }
  printf("%llu clean cases, %llu not served, %llu alarms\n", (unsigned long long)cases,
         (unsigned long long)refused, (unsigned long long)alarms);
  ck_assert_uint_ge(cases - refused, path_is_dnnl(path) ? 50
                                     : thin()           ? (path_is_tiles(path) ? 90 : 200)
                                                        : 600);
  ck_assert_uint_eq(alarms, 0);
}
END_TEST

/* Another activation than the one that was asked for is a wrong answer, in each dtype. */
START_TEST(another_activation_is_caught) {
  const int64_t shape[3] = {16, 96, 64};
  for (uint32_t made = BS_ACT_NONE; made <= BS_ACT_SILU; ++made)
    for (uint32_t asked = BS_ACT_NONE; asked <= BS_ACT_SILU; ++asked)
      for (size_t d = 0; d < 3; ++d) {
        if (!path_has(path, dtypes[d])) continue;
        const bs_case c = make_case("blockshock", 2, dtypes[d], made, shape);
        ck_assert_msg(run_case(&c, 5, asked) == (made == asked), "made %u, asked %u, %s", made, asked,
                      bs_dtype_name(dtypes[d]));
      }
}
END_TEST

START_TEST(every_fault_is_caught) {
  const int64_t shape[3] = {16, 96, 256};
  for (size_t l = 0; l < N_LAYERS; ++l)
    for (size_t d = 0; d < 3; ++d)
      for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_SILU; ++a) {
        if (!path_has(path, dtypes[d]) || (thin() && (l + d + a) % 4 != 0)) continue;
        bs_error err;
        bs_fault_report faults;
        const bs_case c = make_case(layers[l].method, layers[l].P, dtypes[d], a, shape);
        const int32_t rc = bs_fault_gate(&c, &faults, &err);
        ck_assert_msg(rc == BS_OK, "%s: %s: %s", c.method, err.id, err.message);
        ck_assert_msg(faults.caught == faults.injected, "%s P=%u %s %s: missed %s", c.method, c.world_size,
                      bs_dtype_name(dtypes[d]), bs_name_of(BS_NAMES_ACTIVATION, a), faults.missed);
        /* With a reduction all faults but those of masks are made; the two of the activation where there is
         * one.
         */
        if (c.world_size > 1 && strcmp(c.method, "column_parallel") != 0)
          ck_assert_uint_eq(faults.injected, ONE_PRECISION + 2 - 2 - (a == BS_ACT_NONE ? 2 : 0));
      }
}
END_TEST

START_TEST(faults_that_need_an_activation) {
  const int64_t shape[3] = {16, 96, 256};
  bs_case c = make_case("blockshock", 2, BS_F32, BS_ACT_GELU, shape);
  ck_assert_ptr_null(bs_fault_skip(BS_FAULT_ACTIVATION_EARLY, &c, BS_SPLIT_K));
  ck_assert_ptr_null(bs_fault_skip(BS_FAULT_ACTIVATION_LOST, &c, BS_SPLIT_N));
  ck_assert_ptr_nonnull(strstr(bs_fault_skip(BS_FAULT_ACTIVATION_EARLY, &c, BS_SPLIT_N), "no reduction"));
  c.spec.activation = BS_ACT_NONE;
  ck_assert_str_eq(bs_fault_skip(BS_FAULT_ACTIVATION_EARLY, &c, BS_SPLIT_K), "no activation");
  ck_assert_str_eq(bs_fault_skip(BS_FAULT_ACTIVATION_LOST, &c, BS_SPLIT_K), "no activation");
}
END_TEST

/* relu of an integer is one; gelu and silu are left out of T5, which says so. A bias is always there. */
START_TEST(integers_with_an_activation) {
  const int64_t shape[3] = {13, 37, 250};
  for (size_t l = 0; l < N_LAYERS; ++l)
    for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_GELU_TANH; ++a) {
      bs_error err;
      bs_gate gate;
      const bs_case c = make_case(layers[l].method, layers[l].P, BS_BF16, a, shape);
      const int32_t rc = bs_integer_gate(&c, BS_FAULT_COUNT_, 0, &gate, &err);
      ck_assert_msg(rc == BS_OK, "%s: %s", c.method, err.message);
      ck_assert_msg(gate.state == BS_GATE_PASS, "%s: %g inexact", c.method, gate.value);
      ck_assert_int_eq(strstr(gate.text, "; without ") != NULL, a > BS_ACT_RELU);
      if (a == BS_ACT_GELU) ck_assert_ptr_nonnull(strstr(gate.text, "; without gelu"));
    }
  bs_error err;
  bs_gate gate;
  const bs_case c = make_case("row_parallel", 2, BS_BF16, BS_ACT_RELU, shape);
  const uint32_t kinds[] = {BS_FAULT_ACTIVATION_EARLY, BS_FAULT_ACTIVATION_LOST};
  for (size_t i = 0; i < 2; ++i) { /* exact arithmetic sees them too */
    ck_assert_int_eq(bs_integer_gate(&c, kinds[i], 0, &gate, &err), BS_OK);
    ck_assert_int_eq(gate.state, BS_GATE_FAIL);
  }
}
END_TEST

/* A run without a bias: T5 and T6 still have one, so a bias added on every rank is seen. */
START_TEST(a_bias_is_always_there) {
  const int64_t shape[3] = {13, 37, 250};
  for (int has_bias = 0; has_bias < 2; ++has_bias) {
    bs_error err;
    bs_gate gate;
    bs_case c = make_case("row_parallel", 2, BS_F32, BS_ACT_NONE, shape);
    c.spec.has_bias = (uint32_t)has_bias;
    ck_assert_int_eq(bs_integer_gate(&c, BS_FAULT_BIAS_LOST, 0, &gate, &err), BS_OK);
    ck_assert_msg(gate.state == BS_GATE_FAIL, "run %s a bias", has_bias ? "with" : "without");
    ck_assert_int_eq(bs_integer_gate(&c, BS_FAULT_COUNT_, 0, &gate, &err), BS_OK);
    ck_assert_int_eq(gate.state, BS_GATE_PASS);
  }
}
END_TEST

static void setup(void) {
  path_setup(path, &context);
}

int main(int argc, char **argv) {
  path = argc > 1 ? argv[1] : NULL;
  if (path != NULL && path_missing(path)) return 77;
  Suite *suite = suite_create("gate activation");
  TCase *tc = tcase_create("activation");
  tcase_set_timeout(tc, 7200);
  tcase_add_checked_fixture(tc, setup, close_context);
  if (path == NULL) tcase_add_test(tc, slopes_bound_what_passes);
  tcase_add_test(tc, clean_cases_raise_no_alarm);
  if (!path_is_dnnl(path)) tcase_add_test(tc, another_activation_is_caught);
  if (!path_is_dnnl(path)) tcase_add_test(tc, every_fault_is_caught);
  if (path == NULL) tcase_add_test(tc, faults_that_need_an_activation);
  if (!path_is_dnnl(path)) tcase_add_test(tc, integers_with_an_activation);
  if (path == NULL) tcase_add_test(tc, a_bias_is_always_there);
  suite_add_tcase(suite, tc);
  return run_suite(suite);
}
