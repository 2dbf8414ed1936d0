/* SPDX-License-Identifier: MIT
 * test_gate_slope.c - gradients and training through an activation: clean backward passes and trainings of
 * every method raise no alarm (dtypes x P x placements x losses x optimisers x reduce dtypes x odd shapes),
 * an activation's own faults are caught, gradients are finite differences of the loss, bounds of slopes hold.
 * BS_TEST_BIG multiplies the clean cases and injects every fault everywhere. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/activation.h"
#include "lab/case/owners.h"
#include "lab/gate/faults.h"
#include "lab/gate/gradient.h"
#include "lab/gate/slope.h"
#include "lab/gate/step.h"
#include "lab/gate/step_judging.h"
#include "tests/gate/gate_case.h"
#include "tests/run_tests.h"

static const struct {
  const char *method, *mask;
  uint32_t P;
  const char *key, *value; /* an option */
} subjects[] = {
    {"dense", NULL, 1, NULL, NULL},
    {"column_parallel", NULL, 2, NULL, NULL},
    {"column_parallel", NULL, 3, NULL, NULL},
    {"row_parallel", NULL, 2, NULL, NULL},
    {"row_parallel", NULL, 3, NULL, NULL},
    {"blockshock", "complement_1100_0011", 2, NULL, NULL},
    {"blockshock", "complement_1001_0110", 4, NULL, NULL},
    {"blockshock", "interleave", 3, NULL, NULL},
    {"masked_split", "complement_1010_0101", 2, NULL, NULL},
    {"blockshock", "magnitude", 2, NULL, NULL},
    {"blockshock", "random_2of4", 4, "slices", "row"},
    {"blockshock", "transposable", 4, "slices", "column"},
    {"blockshock", "magnitude", 1, "half", "0"},
    {"blockshock", "random_2of4", 3, "half", "1"},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))
static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16, BS_F64};
static const int64_t shapes[][3] = {{1, 1, 2},     {3, 7, 4},   {17, 65, 63}, {64, 24, 130}, {8, 3, 700},
                                    {40, 200, 16}, {9, 1, 300}, {2, 900, 33}, {128, 16, 90}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])
static const char *const workloads[] = {"random_normal", "uniform", "activation_like", "transformer_mlp"};

static bs_case make_case(int subject, const bs_mask *mask, uint32_t dtype, uint32_t activation,
                         const int64_t shape[3]) {
  bs_case c = gate_case(subjects[subject].method, subjects[subject].P, dtype, shape, mask);
  c.spec.activation = activation;
  c.spec.flags = BS_LAYER_BACKWARD;
  c.spec.n_options = subjects[subject].key != NULL;
  c.spec.option_keys = &subjects[subject].key;
  c.spec.option_values = &subjects[subject].value;
  return c;
}

/* What the method says it does not do. */
static int refused_here(const bs_case *c, int32_t rc, const bs_error *err) {
  if (rc != BS_UNSUPPORTED) return 0;
  if (c->spec.x_placement == BS_SPLIT && strcmp(err->id, "BS-METHOD-PLACEMENT") == 0)
    return strcmp(c->method, "column_parallel") == 0 || c->spec.n_options > 0 ||
           c->spec.mask->kind == BS_MASK_MAGNITUDE;
  return c->spec.reduce_dtype == BS_I8 && strcmp(err->id, "BS-METHOD-SLICES") == 0;
}

/* The numbers of a workload by a seed, and targets: X of another layer, [B,N]. */
typedef struct data {
  gate_data layer, of_target;
  bs_source target;
} data;

static void open_data(bs_case *c, const char *name, uint64_t seed, data *d) {
  bs_case other = *c;
  gate_data_open(c, name, seed, seed + 7, &d->layer);
  other.spec.K = c->spec.N;
  gate_data_open(&other, "uniform", seed + 1, seed + 7, &d->of_target);
  d->target = d->of_target.x;
}

static void close_data(data *d) {
  gate_data_close(&d->layer);
  gate_data_close(&d->of_target);
}

static const bs_mask *mask_of(int subject, bs_mask *room) {
  if (subjects[subject].mask == NULL) return NULL;
  *room = gate_mask(subjects[subject].mask);
  return room;
}

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

/* The names of what failed, and a space behind each. */
static const char *names_of_failed(const bs_gate *gates, uint32_t count) {
  static char out[400];
  out[0] = '\0';
  for (uint32_t g = 0; g < count; ++g)
    if (gates[g].state != BS_GATE_PASS && gates[g].state != BS_GATE_SKIPPED)
      snprintf(out + strlen(out), sizeof out - strlen(out), "%s ", gates[g].name);
  return out;
}

static int32_t run_gradient(const bs_case *c, uint32_t loss, const data *numbers, const char **failed,
                            bs_error *err) {
  bs_gradient_result result;
  bs_gradient_verdict verdict = {0};
  int32_t rc = bs_gradient_run(c, loss, &numbers->target, &result, err);
  if (rc == BS_OK) rc = bs_gradient_judge(c, &result, 0, &verdict, err);
  *failed = names_of_failed(verdict.gates, verdict.n_gates);
  bs_gradient_result_free(&result);
  return rc;
}

static int32_t run_training(const bs_case *c, const bs_train_options *o, const char **failed, bs_error *err) {
  bs_train_result result;
  bs_step_verdict verdict = {0};
  int32_t rc = bs_train_run(c, o, &result, err);
  if (rc == BS_OK) rc = bs_step_judge(c, o, &result, &verdict, err);
  *failed = names_of_failed(verdict.gates, verdict.n_gates);
  bs_train_result_free(&result);
  return rc;
}

/* Every sixth case of each subject, a training after a backward pass. */
START_TEST(clean_cases_pass) {
  static const uint32_t reduces[] = {0, 0, BS_BF16, BS_I8, BS_F16};
  const char *big = getenv("BS_TEST_BIG");
  const uint32_t turns = big ? (uint32_t)atoi(big) : 1;
  const char *const key = subjects[_i].key;
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  uint32_t cases = 0, at = 0;
  for (uint32_t turn = 0; turn < turns; ++turn)
    for (size_t shape = 0; shape < N_SHAPES; ++shape)
      for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d)
        for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_SILU; ++a, ++at) {
          for (int trains = 0; trains < 2; ++trains) {
            if (!big && (at + at / 6 + (uint32_t)_i) % 6 != 3 * (uint32_t)trains) continue;
            data numbers;
            const char *failed = "", *const workload = workloads[(at + turn) % 4];
            bs_case c = make_case(_i, mask_of(_i, &mask), dtypes[d], a, shapes[shape]);
            bs_train_options o = options_of(at / 2 + turn);
            c.spec.has_bias = (at / (2 + (uint32_t)trains) + turn) % 2;
            c.spec.x_placement = (at + turn) % 3 == 1 ? BS_SPLIT : BS_REPLICATED;
            c.spec.y_placement = (at + turn) % 5 == 2 ? BS_SPLIT : BS_REPLICATED;
            c.spec.reduce_dtype = dtypes[d] == BS_F64 ? 0 : reduces[(at / 3 + turn) % 5];
            open_data(&c, workload, 1000 * turn + at, &numbers);
            o.loss = (at + turn / 2) % 3;
            o.target = &numbers.target;
            o.max_features = at % 7 == 5 ? 11 : 0;
            if (!c.spec.has_bias && c.spec.mask && at % 2 && !(key && strcmp(key, "half") == 0))
              o.remask = 1; /* half a mask has no other weights to choose */
            const int32_t rc = trains ? run_training(&c, &o, &failed, &err)
                                      : run_gradient(&c, o.loss, &numbers, &failed, &err);
            close_data(&numbers);
            if (refused_here(&c, rc, &err)) continue;
            ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s (%s)", c.method, c.world_size, err.id, err.message,
                          err.where);
            ck_assert_msg(failed[0] == '\0',
                          "%s P=%u %s %s %s case %u turn %u B=%lld N=%lld K=%lld trains %d: %s", c.method,
                          c.world_size, bs_dtype_name(dtypes[d]), bs_name_of(BS_NAMES_ACTIVATION, a),
                          workload, at, turn, (long long)c.spec.B, (long long)c.spec.N, (long long)c.spec.K,
                          trains, failed);
            ++cases;
          }
        }
  ck_assert_uint_ge(cases, 16);
}
END_TEST

/* One activation, dtype and sum of each subject, by turns; of backward passes and of trainings. */
START_TEST(every_fault_is_caught) {
  static const int64_t shape[3] = {16, 96, 256};
  static const uint32_t reduces[] = {0, BS_BF16, BS_I8};
  const int all = getenv("BS_TEST_BIG") != NULL;
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_SILU; ++a)
    for (uint32_t d = 0; d < 3; ++d)
      for (uint32_t turn = 0; turn < 3; ++turn) {
        if (!all && (a != 1 + (uint32_t)_i % 3 || turn != (uint32_t)_i / 3 % 3 || d != (turn + a) % 3))
          continue;
        bs_fault_tally tally;
        bs_case c = make_case(_i, mask_of(_i, &mask), dtypes[d], a, shape);
        const bs_train_options o = options_of(turn);
        c.spec.y_placement = (a + d + turn) % 3 == 2 ? BS_SPLIT : BS_REPLICATED;
        if (subjects[_i].P > 1 && d == 0) c.spec.reduce_dtype = reduces[turn];
        if (subjects[_i].key && c.spec.reduce_dtype == BS_I8)
          c.spec.reduce_dtype = 0; /* slices of rows of W */
        int32_t rc = bs_gradient_fault_gate(&c, &tally, &err);
        ck_assert_msg(rc == BS_OK && tally.caught == tally.injected,
                      "%s P=%u %s %s reduce 0x%x: missed %s %s", c.method, c.world_size,
                      bs_dtype_name(dtypes[d]), bs_name_of(BS_NAMES_ACTIVATION, a), c.spec.reduce_dtype,
                      tally.missed, rc == BS_OK ? "" : err.message);
        ck_assert_uint_ge(tally.injected, (bs_fault_alone(&c) ? 7 : 10) + (a > BS_ACT_RELU));
        rc = bs_step_fault_gate(&c, &o, &tally, &err);
        ck_assert_msg(rc == BS_OK && tally.caught == tally.injected, "%s P=%u %s %s options %u: missed %s %s",
                      c.method, c.world_size, bs_dtype_name(dtypes[d]), bs_name_of(BS_NAMES_ACTIVATION, a),
                      turn, tally.missed, rc == BS_OK ? "" : err.message);
        ck_assert_uint_eq(tally.injected, 8 + (turn > 0) + 1 + (a > BS_ACT_RELU));
      }
}
END_TEST

/* Where rounding dZ is coarse one weight or the bias is seen only if what rounding does to each dZ is known,
 * not just how much it may. */
START_TEST(faults_are_caught_in_fp8) {
  static const int64_t shape[3] = {16, 96, 256};
  bs_error err = BS_ERROR_INIT;
  for (uint32_t a = BS_ACT_GELU; a <= BS_ACT_SILU; ++a) {
    bs_fault_tally tally;
    bs_case c = make_case(0, NULL, BS_F8E4M3, a, shape);
    c.backend = "ref";
    c.spec.has_bias = 1;
    const int32_t rc = bs_gradient_fault_gate(&c, &tally, &err);
    ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
    ck_assert_msg(tally.caught == tally.injected, "%s: missed %s", bs_name_of(BS_NAMES_ACTIVATION, a),
                  tally.missed);
    ck_assert_uint_ge(tally.injected, 10);
  }
}
END_TEST

/* Which of them can be made. */
START_TEST(faults_of_the_slope) {
  static const int64_t shape[3] = {16, 96, 256};
  const bs_proposal none = {.struct_size = sizeof none};
  for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_SILU; ++a) {
    const bs_case c = make_case(0, NULL, BS_F32, a, shape);
    ck_assert_int_eq(bs_fault_skip_backward(BS_FAULT_SLOPE_LOST, &c, &none) != NULL, a == BS_ACT_NONE);
    ck_assert_int_eq(bs_fault_skip_backward(BS_FAULT_SLOPE_AT_Y, &c, &none) != NULL, a <= BS_ACT_RELU);
    ck_assert_ptr_nonnull(bs_fault_skip(BS_FAULT_SLOPE_LOST, &c, BS_SPLIT_NONE));
    ck_assert_uint_eq(bs_fault_activation(BS_FAULT_SLOPE_LOST, &c.spec), BS_ACT_NONE);
  }
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
  gate_data inputs;
  bs_case_rank rank = {0};
  const bs_case_result result = {.world_size = 1, .ranks = &rank};
  static const int64_t shape[3] = {KB, KN, KK};
  bs_case c = make_case(0, NULL, BS_F32, BS_ACT_RELU, shape);
  gate_memory_open(&c, x, w, &inputs);
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
    for (int i = 0; i < KB * KN; ++i) ck_assert(s.bound2[i] == 0.0);
    bs_slopes_free(&s);
  }
  /* a positive z that f16 rounds to zero may have either slope */
  c.spec.y_dtype = BS_F16;
  bs_slopes s;
  y[0] = y[1] = 0.0;
  ck_assert_int_eq(bs_slopes_make(&c, &result, &given, &s, &err), BS_OK);
  ck_assert(s.dz[0] == 0.0 && s.bound2[0] == 9.0 && s.bound2[3] == 0.0);
  bs_slopes_free(&s);
  gate_memory_close(&inputs);
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
  /* Without an activation only rounding is left of the differences: the losses are quadratic at most. */
  const double within = c->spec.activation == BS_ACT_NONE ? 1e-10 : 1e-9;
  ck_assert_msg(fabs(got - want) <= within * (1.0 + fabs(want)),
                "%s %s: %s[%d] is %.15g, the difference %.15g", c->method,
                bs_name_of(BS_NAMES_ACTIVATION, c->spec.activation), what, i, got, want);
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
  for (uint32_t i = 0; i < 12; ++i) {
    data numbers;
    bs_case c = make_case(_i, mask_of(_i, &mask), BS_F64, BS_ACT_NONE + i / 3, shape);
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
    ck_assert_str_eq(names_of_failed(verdict.gates, verdict.n_gates), "");
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
}
END_TEST

/* ---- training ------------------------------------------------------------------------------------ */

/* What was trained with another slope is seen where it went: in the weights, not only in outputs and biases
 * that are read through an activation outside of the layer. */
START_TEST(weights_show_a_wrong_slope) {
  static const int64_t shape[3] = {16, 48, 64};
  bs_error err = BS_ERROR_INIT;
  for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_SILU; ++a)
    for (uint32_t turn = 0; turn < 3; ++turn)
      for (uint32_t fault = BS_TRAIN_SLOPE_LOST; fault <= BS_TRAIN_SLOPE_AT_Y; ++fault) {
        data numbers;
        const char *failed;
        bs_case c = make_case(3, NULL, turn == 1 ? BS_BF16 : BS_F32, a, shape);
        bs_train_options o = options_of(turn);
        if (a == BS_ACT_RELU && fault == BS_TRAIN_SLOPE_AT_Y) continue;
        o.fault = fault;
        o.loss = BS_LOSS_SUM;
        open_data(&c, "random_normal", 5, &numbers);
        ck_assert_int_eq(run_training(&c, &o, &failed, &err), BS_OK);
        ck_assert_msg(strstr(failed, "W.T3 ") != NULL, "%s fault %u options %u: only %s",
                      bs_name_of(BS_NAMES_ACTIVATION, a), fault, turn, failed);
        close_data(&numbers);
      }
}
END_TEST

/* Steps on integers are exact through relu too; gelu and silu are left out, which the gate says. */
START_TEST(integers_are_stepped_exactly) {
  static const int64_t shape[3] = {9, 21, 30};
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  for (uint32_t a = BS_ACT_NONE; a <= BS_ACT_SILU; ++a)
    for (uint32_t turn = 0; turn < 2; ++turn)
      for (uint32_t d = (a + turn + (uint32_t)_i) % 3; d < 3; d += 3) {
        bs_gate gate;
        bs_case c = make_case(_i, mask_of(_i, &mask), dtypes[d], a, shape);
        const bs_train_options o = options_of(turn);
        if (turn == 1 && subjects[_i].P > 1) c.spec.reduce_dtype = dtypes[d];
        ck_assert_int_eq(bs_step_integer_gate(&c, &o, &gate, &err), BS_OK);
        ck_assert_msg(gate.state == BS_GATE_PASS, "%s %s: %s", c.method, bs_name_of(BS_NAMES_ACTIVATION, a),
                      gate.text);
        ck_assert_int_eq(strstr(gate.text, "; without ") != NULL, a > BS_ACT_RELU);
      }
}
END_TEST

/* A bias that the steps left elsewhere is seen behind an activation, where it is not flat. */
START_TEST(a_wrong_bias_is_caught_behind_an_activation) {
  static const int64_t shape[3] = {16, 48, 64};
  bs_error err = BS_ERROR_INIT;
  for (uint32_t a = BS_ACT_RELU; a <= BS_ACT_SILU; ++a) {
    data numbers;
    bs_train_result result;
    bs_step_verdict verdict;
    bs_case c = make_case(3, NULL, BS_F32, a, shape);
    bs_train_options o = options_of(0);
    c.spec.has_bias = 1;
    o.loss = BS_LOSS_MSE_ZERO;
    open_data(&c, "random_normal", 5, &numbers);
    ck_assert_int_eq(bs_train_run(&c, &o, &result, &err), BS_OK);
    ck_assert_int_eq(bs_step_judge(&c, &o, &result, &verdict, &err), BS_OK);
    ck_assert_str_eq(names_of_failed(verdict.gates, verdict.n_gates), "");
    int seen = 0;
    for (int n = 0; n < 48 && !seen; ++n) {
      double *zero = &result.zero[result.steps * result.features + n];
      if (!(seen = *zero > 0.25)) continue;
      *zero += 1e-4;
      ck_assert_int_eq(bs_step_judge(&c, &o, &result, &verdict, &err), BS_OK);
      ck_assert_str_eq(names_of_failed(verdict.gates, verdict.n_gates), "b.T3 ");
    }
    ck_assert(seen);
    bs_train_result_free(&result);
    close_data(&numbers);
  }
}
END_TEST

/* A gradient that may be nothing but its own error: the step has some sign, and AdamW's length at most. */
START_TEST(an_unknown_gradient_steps_no_farther_than_adamw_does) {
  const bs_train_options o = options_of(3);
  for (int64_t t = 1; t <= 40; ++t) {
    bs_followed state = {0}, real = {0};
    double w = 1.0, bound = 0, ignored;
    for (int64_t i = 1; i <= t; ++i) {
      const bs_stepper step = bs_stepper_make(&o, i, 0, 0);
      const bs_slope seen = {.g = 1e-6, .bound = 1e-3};
      const bs_slope is = {.g =
                               i < t ? 1e-6 : -9e-4}; /* the longest step is the one behind small gradients */
      const double want = bs_follow(&step, &state, w, seen, &bound);
      const double got = bs_follow(&step, &real, w, is, &ignored);
      ck_assert_double_le(fabs(got - want), bound);
      ck_assert_double_le(bound, 3.1 * 2 + 1.1);
    }
  }
  /* and one that is known is bounded by what is known of it */
  bs_followed state = {0};
  double bound;
  const bs_stepper step = bs_stepper_make(&o, 1, 0, 0);
  bs_follow(&step, &state, 1.0, (bs_slope){.g = 1.0, .bound = 1e-6}, &bound);
  ck_assert_double_le(bound, 1e-5);
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
                             {weights_show_a_wrong_slope},
                             {an_unknown_gradient_steps_no_farther_than_adamw_does},
                             {integers_are_stepped_exactly, N_SUBJECTS},
                             {a_wrong_bias_is_caught_behind_an_activation},
                             {0}};
  return run_tests("gate_slope", tests, (test_setup){open_context, close_context, 7200});
}
