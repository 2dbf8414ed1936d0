/* SPDX-License-Identifier: MIT
 * test_gate_gradient.c - backward passes through the gates: no false alarm on clean cases (methods x masks x
 * dtypes x P x placements x losses x odd shapes), every injected fault caught, and gradients equal to finite
 * differences of the loss, which share nothing with the products that they are judged by. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/gate/gradient.h"
#include "lab/gate/small.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static bs_context *context;

static const struct {
  const char *method, *mask;
} subjects[] = {
    {"dense", NULL},
    {"column_parallel", NULL},
    {"row_parallel", NULL},
    {"blockshock", "complement_1100_0011"},
    {"blockshock", "complement_1001_0110"},
    {"blockshock", "interleave"},
    {"masked_split", "complement_1010_0101"},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))
static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16, BS_F64};
static const int64_t shapes[][3] = {{1, 1, 1}, {3, 7, 4}, {17, 65, 63}, {64, 24, 130}, {512, 24, 256}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

static bs_case make_case(int subject, const bs_mask *mask, uint32_t P, uint32_t dtype,
                         const int64_t shape[3]) {
  bs_case c;
  memset(&c, 0, sizeof c);
  c.context = context;
  c.method = subjects[subject].method;
  c.backend = dtype == BS_F64 ? "ref" : "cpu";
  c.comm = "threads";
  c.world_size = P;
  c.threads_per_rank = 1;
  c.timeout_s = 60;
  c.iterations = 2;
  c.spec.struct_size = sizeof c.spec;
  c.spec.B = shape[0];
  c.spec.N = shape[1];
  c.spec.K = shape[2];
  c.spec.x_dtype = c.spec.w_dtype = c.spec.y_dtype = dtype;
  c.spec.mask = mask;
  c.spec.flags = BS_LAYER_BACKWARD;
  return c;
}

static void print_gates(const bs_case *c, const bs_gradient_verdict *v, uint32_t loss) {
  for (uint32_t g = 0; g < v->n_gates; ++g)
    if (v->gates[g].state != BS_GATE_PASS && v->gates[g].state != BS_GATE_SKIPPED)
      printf("%s P=%u %s B=%lld N=%lld K=%lld x %u y %u loss %u reduce 0x%x: %s value %g limit %g (%s)\n",
             c->method, c->world_size, bs_dtype_name(c->spec.x_dtype), (long long)c->spec.B,
             (long long)c->spec.N, (long long)c->spec.K, c->spec.x_placement, c->spec.y_placement, loss,
             c->spec.reduce_dtype, v->gates[g].name, v->gates[g].value, v->gates[g].limit, v->gates[g].text);
}

static int run_clean(bs_case *c, const bs_small *data, uint32_t loss) {
  bs_error err = BS_ERROR_INIT;
  bs_gradient_result result;
  bs_gradient_verdict verdict;
  bs_case run;
  bs_small_case(c, &c->spec, data, &run);
  run.iterations = 2;
  int32_t rc = bs_gradient_run(&run, loss, NULL, &result, &err);
  if (rc == BS_UNSUPPORTED && strcmp(c->method, "column_parallel") == 0 && c->spec.x_placement == BS_SPLIT)
    return 1;
  ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s (%s)", c->method, c->world_size, err.id, err.message,
                err.where);
  rc = bs_gradient_judge(&run, &result, 0, &verdict, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  const int passed = bs_verdict_passed(verdict.gates, verdict.n_gates);
  if (!passed) print_gates(c, &verdict, loss);
  bs_gradient_result_free(&result);
  return passed;
}

static int refused_here(int subject, uint32_t P) {
  if (strcmp(subjects[subject].method, "dense") == 0) return P > 1;
  return subjects[subject].mask != NULL && strncmp(subjects[subject].mask, "comp", 4) == 0 && P == 3;
}

START_TEST(clean_cases_pass) {
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  int alarms = 0, seed = 0;
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
  if (subjects[_i].mask != NULL)
    ck_assert_int_eq(bs_mask_parse(subjects[_i].mask, NULL, NULL, &mask, &err), BS_OK);
  for (uint32_t P = 1; P <= 3; ++P) {
    if (refused_here(_i, P)) continue;
    for (size_t shape = 0; shape < N_SHAPES; ++shape)
      for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d, ++seed) {
        if (shape == N_SHAPES - 1 && d % 2 != 0) continue; /* many tokens: two dtypes tell */
        bs_small data;
        bs_case c = make_case(_i, subjects[_i].mask != NULL ? &mask : NULL, P, dtypes[d], shapes[shape]);
        c.spec.has_bias = (uint32_t)(seed % 2);
        c.spec.x_placement = seed % 3 == 1 ? BS_SPLIT : BS_REPLICATED;
        c.spec.y_placement = seed % 5 == 2 ? BS_SPLIT : BS_REPLICATED;
        c.spec.reduce_dtype = seed % 7 == 3 ? dtypes[d] : 0;
        ck_assert_int_eq(bs_small_open(context, "random_normal", &c.spec, &data, &err), BS_OK);
        alarms += !run_clean(&c, &data, BS_LOSS_SUM);
        alarms += !run_clean(&c, &data, BS_LOSS_MSE_ZERO);
        bs_small_close(&data);
      }
  }
  ck_assert_int_eq(alarms, 0);
  bs_context_close(context);
}
END_TEST

START_TEST(every_fault_is_caught) {
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
  if (subjects[_i].mask != NULL)
    ck_assert_int_eq(bs_mask_parse(subjects[_i].mask, NULL, NULL, &mask, &err), BS_OK);
  for (uint32_t P = 1; P <= 2; ++P) {
    if (refused_here(_i, P)) continue;
    for (size_t d = 0; d < 3; ++d)
      for (uint32_t x = BS_REPLICATED; x <= BS_SPLIT; ++x) {
        if (x == BS_SPLIT && P > 1 && strcmp(subjects[_i].method, "column_parallel") == 0) continue;
        bs_fault_tally tally;
        bs_case c = make_case(_i, subjects[_i].mask != NULL ? &mask : NULL, P, dtypes[d], shapes[2]);
        c.spec.x_placement = x;
        const int32_t rc = bs_gradient_fault_gate(&c, &tally, &err);
        ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
        ck_assert_uint_ge(tally.injected, 8);
        ck_assert_msg(tally.caught == tally.injected, "%s P=%u %s x %u: missed %s", c.method, P,
                      bs_dtype_name(dtypes[d]), x, tally.missed);
      }
  }
  bs_context_close(context);
}
END_TEST

/* ---- finite differences -------------------------------------------------------------------------- */

enum { FB = 3, FN = 5, FK = 8 };

typedef struct problem {
  double x[FB * FK], w[FN * FK], bias[FN], target[FB * FN];
  uint32_t loss;
} problem;

static double loss_of(const problem *p) {
  double sum = 0.0;
  for (int b = 0; b < FB; ++b)
    for (int n = 0; n < FN; ++n) {
      double y = p->bias[n];
      for (int k = 0; k < FK; ++k) y += p->x[b * FK + k] * p->w[n * FK + k];
      const double d = p->loss == BS_LOSS_MSE_TARGET ? y - p->target[b * FN + n] : y;
      sum += p->loss == BS_LOSS_SUM ? y : d * d / (FB * FN);
    }
  return sum;
}

/* Central differences: the losses are quadratic at most, so that only rounding is left. */
static double slope(problem *p, double *value) {
  const double h = 0x1p-10, keep = *value;
  *value = keep + h;
  const double up = loss_of(p);
  *value = keep - h;
  const double down = loss_of(p);
  *value = keep;
  return (up - down) / (2.0 * h);
}

static void must_be(const char *what, int i, double got, double want) {
  ck_assert_msg(fabs(got - want) <= 1e-10 * (1.0 + fabs(want)), "%s[%d] is %.15g, the difference %.15g", what,
                i, got, want);
}

static void read_all(const bs_source *s, double *out) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(s->read(s->ctx, 0, s->rows, NULL, BS_F64, out, s->cols, &err), BS_OK);
}

START_TEST(gradients_are_finite_differences) {
  static const int64_t shape[3] = {FB, FN, FK};
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
  if (subjects[_i].mask != NULL)
    ck_assert_int_eq(bs_mask_parse(subjects[_i].mask, NULL, NULL, &mask, &err), BS_OK);
  for (uint32_t loss = BS_LOSS_SUM; loss <= BS_LOSS_MSE_TARGET; ++loss) {
    const uint32_t P = strcmp(subjects[_i].method, "dense") == 0 ? 1 : 2;
    bs_case like = make_case(_i, subjects[_i].mask != NULL ? &mask : NULL, P, BS_F64, shape), c;
    bs_layer_spec targets = like.spec;
    bs_small data, other;
    problem p = {.loss = loss};
    like.spec.has_bias = 1;
    targets.K = FN; /* X of another layer, [FB,FN], as target */
    ck_assert_int_eq(bs_small_open(context, "random_normal", &like.spec, &data, &err), BS_OK);
    ck_assert_int_eq(bs_small_open(context, "uniform", &targets, &other, &err), BS_OK);
    bs_small_case(&like, &like.spec, &data, &c);
    read_all(&data.x, p.x);
    read_all(&data.w, p.w);
    read_all(&data.bias, p.bias);
    read_all(&other.x, p.target);
    bs_gradient_result result;
    void *dw = NULL, *db = NULL;
    ck_assert_int_eq(bs_gradient_run(&c, loss, &other.x, &result, &err), BS_OK);
    ck_assert_int_eq(bs_gradient_assemble(&c, &result, &dw, &db, &err), BS_OK);
    for (uint32_t r = 0; r < P; ++r)
      for (int i = 0; i < FB * FK; ++i)
        must_be("dx", i, bs_load_f64(BS_F64, result.run.ranks[r].y, i), slope(&p, &p.x[i]));
    for (int i = 0; i < FN * FK; ++i) must_be("dw", i, bs_load_f64(BS_F64, dw, i), slope(&p, &p.w[i]));
    for (int i = 0; i < FN; ++i) must_be("db", i, bs_load_f64(BS_F64, db, i), slope(&p, &p.bias[i]));
    free(dw);
    free(db);
    bs_gradient_result_free(&result);
    bs_small_close(&data);
    bs_small_close(&other);
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{clean_cases_pass, N_SUBJECTS},
                             {every_fault_is_caught, N_SUBJECTS},
                             {gradients_are_finite_differences, N_SUBJECTS},
                             {0}};
  return run_tests("gate_gradient", tests, (test_setup){.timeout = 300});
}
