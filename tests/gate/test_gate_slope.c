/* SPDX-License-Identifier: MIT
 * test_gate_slope.c - gradients through an activation: bounds of slopes hold, clean backward passes of every
 * method raise no alarm (dtypes x P x placements x losses x reduce dtypes x odd shapes), an activation's own
 * faults are caught, and gradients are finite differences of the loss. BS_TEST_BIG multiplies the clean
 * cases. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/gate/activation.h"
#include "lab/gate/faults.h"
#include "lab/gate/gradient.h"
#include "lab/gate/slope.h"
#include "lab/phase/owners.h"
#include "tests/gate/slope_cases.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static int print_gates(const bs_case *c, const bs_gradient_verdict *v, uint32_t loss, const char *workload,
                       uint64_t seed) {
  if (bs_verdict_passed(v->gates, v->n_gates)) return 0;
  for (uint32_t g = 0; g < v->n_gates; ++g)
    if (v->gates[g].state != BS_GATE_PASS && v->gates[g].state != BS_GATE_SKIPPED)
      printf(
          "%s P=%u %s %s %s seed %llu B=%lld N=%lld K=%lld x %u y %u loss %u reduce 0x%x: %s value %g "
          "limit %g (%s)\n",
          c->method, c->world_size, bs_dtype_name(c->spec.x_dtype), bs_activation_name(c->spec.activation),
          workload, (unsigned long long)seed, (long long)c->spec.B, (long long)c->spec.N,
          (long long)c->spec.K, c->spec.x_placement, c->spec.y_placement, loss, c->spec.reduce_dtype,
          v->gates[g].name, v->gates[g].value, v->gates[g].limit, v->gates[g].text);
  return 1;
}

/* 1: an alarm. -1: the method does not do this. */
static int run_clean(const bs_case *c, uint32_t loss, const bs_source *target, const char *workload,
                     uint64_t seed) {
  bs_error err = BS_ERROR_INIT;
  bs_gradient_result result;
  bs_gradient_verdict verdict;
  int32_t rc = bs_gradient_run(c, loss, target, &result, &err);
  if (refused_here(c, rc, &err)) return -1;
  ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s (%s)", c->method, c->world_size, err.id, err.message,
                err.where);
  rc = bs_gradient_judge(c, &result, 0, &verdict, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  const int alarm = print_gates(c, &verdict, loss, workload, seed);
  bs_gradient_result_free(&result);
  return alarm;
}

START_TEST(clean_cases_pass) {
  static const uint32_t reduces[] = {0, 0, BS_BF16, BS_I8, BS_F16};
  const char *big = getenv("BS_TEST_BIG");
  const uint64_t turns = big ? (uint64_t)atoi(big) : 1;
  bs_mask mask;
  uint64_t alarms = 0, cases = 0, at = 0;
  open_subject(_i, &mask);
  for (uint64_t turn = 0; turn < turns; ++turn)
    for (size_t shape = 0; shape < N_SHAPES; ++shape)
      for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d)
        for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_SILU; ++a, ++at) {
          if (!big && (at + at / 6 + (uint64_t)_i) % 3) continue;
          data numbers;
          const char *workload = workloads[(at + turn) % 4];
          const uint32_t loss = (uint32_t)((at + turn / 2) % 3);
          bs_case c = make_case(_i, subjects[_i].mask ? &mask : NULL, dtypes[d], a, shapes[shape]);
          c.spec.has_bias = (uint32_t)((at / 2 + turn) % 2);
          c.spec.x_placement = (at + turn) % 3 == 1 ? BS_SPLIT : BS_REPLICATED;
          c.spec.y_placement = (at + turn) % 5 == 2 ? BS_SPLIT : BS_REPLICATED;
          c.spec.reduce_dtype = dtypes[d] == BS_F64 ? 0 : reduces[(at / 3 + turn) % 5];
          open_data(&c, workload, 1000 * turn + at, &numbers);
          const int alarm = run_clean(&c, loss, &numbers.target, workload, 1000 * turn + at);
          alarms += alarm > 0;
          cases += alarm >= 0;
          close_data(&numbers);
        }
  printf("%s: %llu clean cases, %llu alarms\n", subjects[_i].method, (unsigned long long)cases,
         (unsigned long long)alarms);
  ck_assert_uint_ge(cases, 16);
  ck_assert_uint_eq(alarms, 0);
  bs_context_close(context);
}
END_TEST

START_TEST(every_fault_is_caught) {
  static const int64_t shape[3] = {16, 96, 256};
  static const uint32_t reduces[] = {0, BS_BF16, BS_I8};
  const int all = getenv("BS_TEST_BIG") != NULL; /* else each with each over the subjects */
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  open_subject(_i, &mask);
  for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_SILU; ++a)
    for (size_t d = 0; d < 3; ++d)
      for (size_t r = 0; r < (subjects[_i].P > 1 && d == 0 && a != BS_ACT_NONE ? 3 : 1); ++r) {
        if (!all && (r == 0 ? (a + (size_t)_i) % 3 != d : (a + (size_t)_i + r) % 3 != 0)) continue;
        uint32_t injected = 0, caught = 0;
        char missed[200];
        bs_case c = make_case(_i, subjects[_i].mask ? &mask : NULL, dtypes[d], a, shape);
        c.spec.reduce_dtype = reduces[r];
        c.spec.y_placement = (a + d + r) % 3 == 2 ? BS_SPLIT : BS_REPLICATED;
        if (subjects[_i].key && reduces[r] == BS_I8) continue; /* slices of rows of W */
        const int32_t rc = bs_gradient_fault_gate(&c, &injected, &caught, missed, sizeof missed, &err);
        ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
        ck_assert_msg(caught == injected, "%s P=%u %s %s reduce 0x%x: missed %s", c.method, c.world_size,
                      bs_dtype_name(dtypes[d]), bs_activation_name(a), reduces[r], missed);
        ck_assert_uint_ge(injected,
                          (bs_fault_alone(&c) ? 5 : 8) + 2 * (a != BS_ACT_NONE) + (a > BS_ACT_RELU));
      }
  bs_context_close(context);
}
END_TEST

/* Where rounding dZ is coarse one weight or the bias is seen only if what rounding does to each dZ is known,
 * not just how much it may. */
START_TEST(faults_are_caught_in_fp8) {
  static const int64_t shape[3] = {16, 96, 256};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_context_open(NULL, &context, NULL), BS_OK);
  for (uint32_t a = BS_ACT_GELU; a <= BS_ACT_SILU; ++a) {
    uint32_t injected = 0, caught = 0;
    char missed[200];
    bs_case c = make_case(0, NULL, BS_F8E4M3, a, shape);
    c.backend = "ref";
    c.spec.has_bias = 1;
    const int32_t rc = bs_gradient_fault_gate(&c, &injected, &caught, missed, sizeof missed, &err);
    ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
    ck_assert_msg(caught == injected, "%s: missed %s", bs_activation_name(a), missed);
    ck_assert_uint_ge(injected, 10);
  }
  bs_context_close(context);
}
END_TEST

/* Which of them can be made. */
START_TEST(faults_of_the_slope) {
  static const int64_t shape[3] = {16, 96, 256};
  const bs_proposal none = {.struct_size = sizeof none};
  ck_assert_int_eq(bs_context_open(NULL, &context, NULL), BS_OK);
  for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_SILU; ++a) {
    const bs_case c = make_case(0, NULL, BS_F32, a, shape);
    ck_assert_int_eq(bs_fault_skip_backward(BS_FAULT_SLOPE_LOST, &c, &none) != NULL, a == BS_ACT_NONE);
    ck_assert_int_eq(bs_fault_skip_backward(BS_FAULT_SLOPE_AT_Y, &c, &none) != NULL, a <= BS_ACT_RELU);
    ck_assert_ptr_nonnull(bs_fault_skip(BS_FAULT_SLOPE_LOST, &c, BS_SPLIT_NONE));
    ck_assert_uint_eq(bs_fault_activation(BS_FAULT_SLOPE_LOST, &c.spec), BS_ACT_NONE);
  }
  bs_context_close(context);
}
END_TEST

/* ---- slopes ------------------------------------------------------------------------------------- */

/* f' is what f rises by; what it changes by never passes the bound of f'', and comes close to it. */
START_TEST(bends_bound_what_slopes_change) {
  static const double farthest[] = {0.0, 0.0, 0.79788, 0.5};
  for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_SILU; ++a) {
    double most = 0.0;
    for (int i = -2000; i < 2000; ++i) {
      const double low = i * 0.005 + 1e-4, high = low + 0.005, across = low + 1.3;
      const double at = bs_activation_slope_at(a, low), h = 0x1p-16;
      const double rise = (bs_activation_value(a, low + h) - bs_activation_value(a, low - h)) / (2 * h);
      ck_assert_double_eq_tol(at, rise, 1e-9);
      ck_assert_double_le(fabs(at), bs_activation_slope(a, low, low) * (1 + 1e-12));
      if (a == BS_ACT_RELU && low <= 0) continue; /* over the kink nothing is bounded */
      const double turn = fabs(bs_activation_slope_at(a, high) - at);
      ck_assert_double_le(turn, bs_activation_bend(a, low, high) * 0.005 * (1 + 1e-9) + 1e-15);
      ck_assert_double_le(fabs(bs_activation_slope_at(a, across) - at),
                          bs_activation_bend(a, low, across) * 1.3 * (1 + 1e-9) + 1e-15);
      most = fmax(most, turn / 0.005);
    }
    ck_assert_double_eq_tol(most, farthest[a], 1e-3);
    ck_assert_double_eq_tol(bs_activation_bend(a, -INFINITY, INFINITY), farthest[a], 1e-4);
    ck_assert_double_le(bs_activation_bend(a, 60, 70), 1e-15);
  }
  ck_assert(bs_activation_slope_at(BS_ACT_RELU, 0.0) == 0.0 &&
            bs_activation_slope_at(BS_ACT_RELU, 1e-300) == 1.0);
  ck_assert(isnan(bs_activation_slope_at(BS_ACT_RELU, NAN)) &&
            isnan(bs_activation_slope_at(BS_ACT_GELU, INFINITY)));
}
END_TEST

/* ---- the kink ----------------------------------------------------------------------------------- */

enum { KB = 2, KN = 3, KK = 4 };

/* z of [0][0] is a little above 0 as fp64 has it, and of [0][1] a little below, nearer than f32 can tell;
 * [1][0] is far above. The layer's side is the one that its y tells, and the fp64 one where no rounding
 * leads. */
START_TEST(at_the_kink_y_tells_the_side) {
  float x[KB * KK] = {1, 1, 1, 1, 1, 0, 0, 0},
               w[KN * KK] = {1, -1, 0x1p-30f, 0, 1, -1, -0x1p-30f, 0, 1, 1, 1, 1};
  double y[KB * KN], dy[KB * KN] = {3, 5, 7, 11, 13, 17};
  bs_error err = BS_ERROR_INIT;
  bs_source sx, sw;
  bs_case_rank rank = {0};
  const bs_case_result result = {.world_size = 1, .ranks = &rank};
  ck_assert_int_eq(bs_source_from_memory(x, BS_F32, KB, KK, KK, &sx, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(w, BS_F32, KN, KK, KK, &sw, &err), BS_OK);
  static const int64_t shape[3] = {KB, KN, KK};
  bs_case c = make_case(0, NULL, BS_F32, BS_ACT_RELU, shape);
  c.x = &sx;
  c.w = &sw;
  const bs_slopes_given given = {.y = y, .dy = dy, .dtype = BS_F64};
  for (int side = 0; side < 4; ++side) {
    bs_slopes s;
    for (int i = 0; i < KB * KN; ++i) y[i] = 1.0;
    y[0] = side & 1 ? 0x1p-30 : 0.0;
    y[1] = side & 2 ? 0x1p-30 : 0.0;
    y[3] = 0.0; /* z is 1: not to be believed */
    ck_assert_msg(bs_slopes_make(&c, &result, &given, &s, &err) == BS_OK, "%s", err.message);
    ck_assert(s.dz[0] == (side & 1 ? 3.0 : 0.0));
    ck_assert(s.dz[1] == (side & 2 ? 5.0 : 0.0));
    ck_assert(s.dz[3] == 11.0);
    for (int i = 0; i < KB * KN; ++i) ck_assert(s.bound2[i] == 0.0 && s.variance[i] == 0.0);
    bs_slopes_free(&s);
  }
  /* a positive z that f16 rounds to zero may have either slope */
  c.spec.y_dtype = BS_F16;
  bs_slopes s;
  y[0] = y[1] = 0.0;
  ck_assert_int_eq(bs_slopes_make(&c, &result, &given, &s, &err), BS_OK);
  ck_assert(s.dz[0] == 0.0 && s.bound2[0] == 9.0 && s.bound2[3] == 0.0);
  bs_slopes_free(&s);
  bs_source_release(&sx);
  bs_source_release(&sw);
}
END_TEST

/* ---- finite differences -------------------------------------------------------------------------- */

enum { FB = 3, FN = 5, FK = 8 };

typedef struct problem {
  double x[FB * FK], w[FN * FK], bias[FN], target[FB * FN];
  uint32_t loss, activation;
} problem;

/* A weight that is NaN is none. */
static double loss_of(const problem *p) {
  double sum = 0.0;
  for (int b = 0; b < FB; ++b)
    for (int n = 0; n < FN; ++n) {
      double z = p->bias[n];
      for (int k = 0; k < FK; ++k)
        if (!isnan(p->w[n * FK + k])) z += p->x[b * FK + k] * p->w[n * FK + k];
      double y = z; /* by the formulas of docs/ops.md */
      if (p->activation == BS_ACT_RELU) y = z > 0 ? z : 0;
      if (p->activation == BS_ACT_GELU) y = 0.5 * z * erfc(-z / sqrt(2.0));
      if (p->activation == BS_ACT_SILU) y = z / (1 + exp(-z));
      const double d = p->loss == BS_LOSS_MSE_TARGET ? y - p->target[b * FN + n] : y;
      sum += p->loss == BS_LOSS_SUM ? y : d * d / (FB * FN);
    }
  return sum;
}

/* Central differences of two widths, without their error of second order. */
static double slope(problem *p, double *value) {
  const double keep = *value;
  double rise[2];
  for (int i = 0; i < 2; ++i) {
    const double h = i ? 0x1p-11 : 0x1p-10;
    *value = keep + h;
    const double up = loss_of(p);
    *value = keep - h;
    rise[i] = (up - loss_of(p)) / (2.0 * h);
    *value = keep;
  }
  return (4.0 * rise[1] - rise[0]) / 3.0;
}

static void must_be(const bs_case *c, const char *what, int i, double got, double want) {
  ck_assert_msg(fabs(got - want) <= 1e-9 * (1.0 + fabs(want)), "%s %s: %s[%d] is %.15g, the difference %.15g",
                c->method, bs_activation_name(c->spec.activation), what, i, got, want);
}

static void read_all(const bs_source *s, double *out) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(s->read(s->ctx, 0, s->rows, NULL, BS_F64, out, s->cols, &err), BS_OK);
}

/* Of half a mask: the weights that nobody has are zero, and so is what dW was left at there. */
static void leave_out(const bs_case *c, const bs_case_result *run, double *w) {
  bs_owners owners = bs_owners_of(c, run);
  for (int n = 0; bs_owners_pruned(run) && n < FN; ++n) {
    uint32_t owner[FK], first;
    ck_assert_int_eq(bs_owners_read(&owners, n, owner, &first, NULL), BS_OK);
    for (int k = 0; k < FK; ++k)
      if (owner[k] == BS_OWNER_NONE) w[n * FK + k] = NAN;
  }
}

START_TEST(gradients_are_finite_differences) {
  static const int64_t shape[3] = {FB, FN, FK};
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  open_subject(_i, &mask);
  for (uint32_t i = 0; i < 12; ++i) {
    data numbers;
    bs_case c = make_case(_i, subjects[_i].mask ? &mask : NULL, BS_F64, BS_ACT_NONE + i / 3, shape);
    problem p = {.loss = i % 3, .activation = c.spec.activation};
    c.spec.has_bias = 1;
    open_data(&c, "random_normal", 3, &numbers);
    read_all(c.x, p.x);
    read_all(c.w, p.w);
    read_all(c.bias, p.bias);
    read_all(&numbers.target, p.target);
    bs_gradient_result result;
    bs_gradient_verdict verdict;
    void *dw = NULL, *db = NULL;
    ck_assert_int_eq(bs_gradient_run(&c, p.loss, &numbers.target, &result, &err), BS_OK);
    ck_assert_int_eq(bs_gradient_judge(&c, &result, 0, &verdict, &err), BS_OK);
    ck_assert_int_eq(print_gates(&c, &verdict, p.loss, "random_normal", 3), 0);
    ck_assert_int_eq(bs_gradient_assemble(&c, &result, &dw, &db, &err), BS_OK);
    leave_out(&c, &result.run, p.w);
    for (uint32_t r = 0; r < c.world_size; ++r)
      for (int k = 0; k < FB * FK; ++k)
        must_be(&c, "dx", k, bs_load_f64(BS_F64, result.run.ranks[r].y, k), slope(&p, &p.x[k]));
    for (int k = 0; k < FN * FK; ++k)
      must_be(&c, "dw", k, bs_load_f64(BS_F64, dw, k), isnan(p.w[k]) ? 0.0 : slope(&p, &p.w[k]));
    for (int n = 0; n < FN; ++n) must_be(&c, "db", n, bs_load_f64(BS_F64, db, n), slope(&p, &p.bias[n]));
    free(dw);
    free(db);
    bs_gradient_result_free(&result);
    close_data(&numbers);
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{clean_cases_pass, N_SUBJECTS},
                             {every_fault_is_caught, N_SUBJECTS},
                             {faults_are_caught_in_fp8},
                             {faults_of_the_slope},
                             {bends_bound_what_slopes_change},
                             {at_the_kink_y_tells_the_side},
                             {gradients_are_finite_differences, N_SUBJECTS},
                             {0}};
  return run_tests("gate_slope", tests, (test_setup){.timeout = 7200});
}
