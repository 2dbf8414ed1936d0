/* SPDX-License-Identifier: MIT
 * test_gate_slope_step.c - training of layers with an activation: right trainings raise no alarm (methods x
 * dtypes x P x placements x losses x optimisers x odd shapes), integers are exact behind relu, and wrong
 * slopes are caught by the weights. BS_TEST_BIG multiplies the right ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/dtype.h"
#include "lab/gate/activation.h"
#include "lab/gate/step.h"
#include "lab/gate/step_follow.h"
#include "tests/gate/slope_cases.h"
#include "tests/run_tests.h"

#define SAFE(text) ((text) ? (text) : "")

static bs_train_options options_of(uint32_t turn) {
  bs_train_options o = {.optimizer = BS_OPT_SGD, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .steps = 3};
  switch (turn % 4) {
    case 0:
      o.lr = 0.5;
      break;
    case 1:
      o.lr = 0.1;
      o.momentum = 0.9;
      o.weight_decay = 0.125;
      break;
    case 2:
      o.optimizer = BS_OPT_ADAMW;
      o.lr = 0.01;
      break;
    default:
      o.optimizer = BS_OPT_ADAMW;
      o.lr = 1.0; /* steps of this length make round-off of moments large */
      o.weight_decay = 0.01;
  }
  return o;
}

static int print_gates(const bs_case *c, const bs_train_options *o, const bs_step_verdict *v,
                       const char *workload, uint64_t seed) {
  if (bs_verdict_passed(v->gates, v->n_gates)) return 0;
  for (uint32_t g = 0; g < v->n_gates; ++g)
    if (v->gates[g].state != BS_GATE_PASS && v->gates[g].state != BS_GATE_SKIPPED)
      printf(
          "%s P=%u %s %s %s seed %llu B=%lld N=%lld K=%lld x %u y %u loss %u reduce 0x%x opt %u lr %g: %s "
          "value %g limit %g (%s)\n",
          c->method, c->world_size, bs_dtype_name(c->spec.x_dtype), bs_activation_name(c->spec.activation),
          workload, (unsigned long long)seed, (long long)c->spec.B, (long long)c->spec.N,
          (long long)c->spec.K, c->spec.x_placement, c->spec.y_placement, o->loss, c->spec.reduce_dtype,
          o->optimizer, o->lr, v->gates[g].name, v->gates[g].value, v->gates[g].limit, v->gates[g].text);
  return 1;
}

static int run_clean(const bs_case *c, const bs_train_options *o, const char *workload, uint64_t seed) {
  bs_error err = BS_ERROR_INIT;
  bs_train_result result;
  bs_step_verdict verdict;
  int32_t rc = bs_train_run(c, o, &result, &err);
  if (refused_here(c, rc, &err)) return -1;
  ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s (%s)", c->method, c->world_size, err.id, err.message,
                err.where);
  rc = bs_step_judge(c, o, &result, &verdict, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  const int alarm = print_gates(c, o, &verdict, workload, seed);
  bs_train_result_free(&result);
  return alarm;
}

START_TEST(right_trainings_pass) {
  static const uint32_t reduces[] = {0, 0, BS_BF16, BS_I8, BS_F16};
  const char *big = getenv("BS_TEST_BIG");
  const uint32_t turns = big ? (uint32_t)atoi(big) : 1;
  bs_mask mask;
  uint64_t alarms = 0, cases = 0;
  uint32_t at = 0;
  open_subject(_i, &mask);
  for (uint32_t turn = 0; turn < turns; ++turn)
    for (size_t shape = 0; shape < N_SHAPES; ++shape)
      for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d)
        for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_SILU; ++a, ++at) {
          if (!big && (at + at / 6 + (uint32_t)_i) % 3) continue;
          data numbers;
          const char *workload = workloads[(at + turn) % 4];
          const uint64_t seed = 1000 * (uint64_t)turn + at;
          bs_case c = make_case(_i, subjects[_i].mask ? &mask : NULL, dtypes[d], a, shapes[shape]);
          bs_train_options o = options_of(at / 2 + turn);
          c.spec.has_bias = (at / 3 + turn) % 2;
          c.spec.x_placement = (at + turn) % 3 == 1 ? BS_SPLIT : BS_REPLICATED;
          c.spec.y_placement = (at + turn) % 5 == 2 ? BS_SPLIT : BS_REPLICATED;
          c.spec.reduce_dtype = dtypes[d] == BS_F64 ? 0 : reduces[(at / 3 + turn) % 5];
          open_data(&c, workload, seed, &numbers);
          o.loss = (at + turn / 2) % 3;
          o.target = &numbers.target;
          o.max_features = at % 7 == 5 ? 11 : 0;
          if (!c.spec.has_bias && c.spec.mask && at % 2 && strcmp(SAFE(subjects[_i].key), "half") != 0)
            o.remask = 1; /* half a mask has no other weights to choose */
          const int alarm = run_clean(&c, &o, workload, seed);
          alarms += alarm > 0;
          cases += alarm >= 0;
          close_data(&numbers);
        }
  printf("%s: %llu right trainings, %llu alarms\n", subjects[_i].method, (unsigned long long)cases,
         (unsigned long long)alarms);
  ck_assert_uint_ge(cases, 16);
  ck_assert_uint_eq(alarms, 0);
  bs_context_close(context);
}
END_TEST

START_TEST(every_fault_is_caught) {
  static const int64_t shape[3] = {16, 96, 256};
  const int all = getenv("BS_TEST_BIG") != NULL; /* else each with each over the subjects */
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  open_subject(_i, &mask);
  for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_SILU; ++a)
    for (uint32_t d = 0; d < 3; ++d)
      for (uint32_t turn = 0; turn < 3; ++turn) {
        if (!all && ((a + turn + (uint32_t)_i) % 3 != d || (a + turn + (uint32_t)_i / 3) % 3 == 1)) continue;
        uint32_t injected = 0, caught = 0;
        char missed[200];
        bs_case c = make_case(_i, subjects[_i].mask ? &mask : NULL, dtypes[d], a, shape);
        const bs_train_options o = options_of(turn);
        c.spec.y_placement = (a + d + turn) % 3 == 2 ? BS_SPLIT : BS_REPLICATED;
        if (subjects[_i].P > 1 && d == 0) c.spec.reduce_dtype = turn == 1 ? BS_BF16 : turn == 2 ? BS_I8 : 0;
        if (subjects[_i].key && c.spec.reduce_dtype == BS_I8)
          c.spec.reduce_dtype = 0; /* slices of rows of W */
        const int32_t rc = bs_step_fault_gate(&c, &o, &injected, &caught, missed, sizeof missed, &err);
        ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
        ck_assert_msg(caught == injected, "%s P=%u %s %s options %u reduce 0x%x: missed %s", c.method,
                      c.world_size, bs_dtype_name(dtypes[d]), bs_activation_name(a), turn,
                      c.spec.reduce_dtype, missed);
        ck_assert_uint_eq(injected, 8 + (turn > 0) + 1 + (a > BS_ACT_RELU));
      }
  bs_context_close(context);
}
END_TEST

static void names_of_failed(const bs_step_verdict *v, char out[200]) {
  out[0] = '\0';
  for (uint32_t g = 0; g < v->n_gates; ++g)
    if (v->gates[g].state == BS_GATE_FAIL)
      snprintf(out + strlen(out), 200 - strlen(out), "%s ", v->gates[g].name);
}

/* What was trained with another slope is seen where it went: in the weights, not only in outputs and biases
 * that are read through an activation outside of the layer. */
START_TEST(weights_show_a_wrong_slope) {
  static const int64_t shape[3] = {16, 48, 64};
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  open_subject(3, &mask);
  for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_SILU; ++a)
    for (uint32_t turn = 0; turn < 3; ++turn)
      for (uint32_t fault = BS_TRAIN_SLOPE_LOST; fault <= BS_TRAIN_SLOPE_AT_Y; ++fault) {
        data numbers;
        char failed[200];
        bs_train_result result;
        bs_step_verdict verdict;
        bs_case c = make_case(3, NULL, turn == 1 ? BS_BF16 : BS_F32, a, shape);
        bs_train_options o = options_of(turn);
        if (a == BS_ACT_RELU && fault == BS_TRAIN_SLOPE_AT_Y) continue;
        o.fault = fault;
        o.loss = BS_LOSS_SUM;
        open_data(&c, "random_normal", 5, &numbers);
        ck_assert_int_eq(bs_train_run(&c, &o, &result, &err), BS_OK);
        ck_assert_int_eq(bs_step_judge(&c, &o, &result, &verdict, &err), BS_OK);
        names_of_failed(&verdict, failed);
        ck_assert_msg(strstr(failed, "W.T3 ") != NULL, "%s fault %u options %u: only %s",
                      bs_activation_name(a), fault, turn, failed);
        bs_train_result_free(&result);
        close_data(&numbers);
      }
  bs_context_close(context);
}
END_TEST

/* Steps on integers are exact through relu too; gelu and silu are left out, which the gate says. */
START_TEST(integers_are_stepped_exactly) {
  static const int64_t shape[3] = {9, 21, 30};
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  open_subject(_i, &mask);
  for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_SILU; ++a)
    for (uint32_t turn = 0; turn < 2; ++turn)
      for (uint32_t d = 0; d < 3; ++d) {
        bs_gate gate;
        bs_case c = make_case(_i, subjects[_i].mask ? &mask : NULL, dtypes[d], a, shape);
        const bs_train_options o = options_of(turn);
        if (turn == 1 && subjects[_i].P > 1) c.spec.reduce_dtype = dtypes[d];
        ck_assert_int_eq(bs_step_integer_gate(&c, &o, &gate, &err), BS_OK);
        ck_assert_msg(gate.state == BS_GATE_PASS, "%s %s: %s", c.method, bs_activation_name(a), gate.text);
        ck_assert_int_eq(strstr(gate.text, "; without ") != NULL, a > BS_ACT_RELU);
      }
  bs_context_close(context);
}
END_TEST

/* A bias that the steps left elsewhere is seen behind an activation, where it is not flat. */
START_TEST(a_wrong_bias_is_caught_behind_an_activation) {
  static const int64_t shape[3] = {16, 48, 64};
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  open_subject(3, &mask);
  for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_SILU; ++a) {
    data numbers;
    char failed[200];
    bs_train_result result;
    bs_step_verdict verdict;
    bs_case c = make_case(3, NULL, BS_F32, a, shape);
    bs_train_options o = options_of(0);
    c.spec.has_bias = 1;
    o.loss = BS_LOSS_MSE_ZERO;
    open_data(&c, "random_normal", 5, &numbers);
    ck_assert_int_eq(bs_train_run(&c, &o, &result, &err), BS_OK);
    ck_assert_int_eq(bs_step_judge(&c, &o, &result, &verdict, &err), BS_OK);
    names_of_failed(&verdict, failed);
    ck_assert_str_eq(failed, "");
    int seen = 0;
    for (int n = 0; n < 48 && !seen; ++n) {
      double *zero = &result.zero[result.steps * result.features + n];
      if (!(seen = *zero > 0.25)) continue;
      *zero += 1e-4;
      ck_assert_int_eq(bs_step_judge(&c, &o, &result, &verdict, &err), BS_OK);
      names_of_failed(&verdict, failed);
      ck_assert_str_eq(failed, "b.T3 ");
    }
    ck_assert(seen);
    bs_train_result_free(&result);
    close_data(&numbers);
  }
  bs_context_close(context);
}
END_TEST

/* A gradient that may be nothing but its own error: the step has some sign, and AdamW's length at most. */
START_TEST(an_unknown_gradient_steps_no_farther_than_adamw_does) {
  const bs_train_options o = options_of(3);
  for (int64_t t = 1; t <= 40; ++t) {
    bs_followed state = {0}, real = {0};
    double w = 1.0, bound = 0, var = 0, ignored;
    for (int64_t i = 1; i <= t; ++i) {
      const bs_stepper step = bs_stepper_make(&o, i, 0, 0);
      const bs_slope seen = {.g = 1e-6, .bound = 1e-3, .var = 1e-7};
      const bs_slope is = {.g =
                               i < t ? 1e-6 : -9e-4}; /* the longest step is the one behind small gradients */
      const double want = bs_follow(&step, &state, w, seen, &bound, &var);
      const double got = bs_follow(&step, &real, w, is, &ignored, &ignored);
      ck_assert_double_le(fabs(got - want), bound);
      ck_assert_double_le(bound, 3.1 * 2 + 1.1);
      ck_assert_double_le(sqrt(var), bound);
    }
  }
  /* and one that is known is bounded by what is known of it */
  bs_followed state = {0};
  double bound, var;
  const bs_stepper step = bs_stepper_make(&o, 1, 0, 0);
  bs_follow(&step, &state, 1.0, (bs_slope){.g = 1.0, .bound = 1e-6, .var = 1e-14}, &bound, &var);
  ck_assert_double_le(bound, 1e-5);
}
END_TEST

int main(void) {
  const test_case tests[] = {{right_trainings_pass, N_SUBJECTS},
                             {every_fault_is_caught, N_SUBJECTS},
                             {weights_show_a_wrong_slope},
                             {an_unknown_gradient_steps_no_farther_than_adamw_does},
                             {integers_are_stepped_exactly, N_SUBJECTS},
                             {a_wrong_bias_is_caught_behind_an_activation},
                             {0}};
  return run_tests("gate_slope_step", tests, (test_setup){.timeout = 7200});
}
