/* SPDX-License-Identifier: MIT
 * test_gate_wire.c - gates of sums in int8 steps and in chunks: the statistics behind the prediction hold on
 * simulated values; clean runs pass, as near the prediction as promised; every injected fault is caught; a
 * wire that rounds more than was said is not let through. */
#include <math.h>

#include "lab/lab.h"
#include "tests/gate/gate_case.h"
#include "tests/run_tests.h"

static uint64_t seed = 7;
static double uniform(void) {
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return ((double)(seed >> 11) + 0.5) * 0x1p-53;
}
static double normal(void) {
  return sqrt(-2.0 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* Groups of normal values: the mean square of the largest, and of the error of one rounding. */
static void simulate(int n, double *largest2, double *error2) {
  enum { TRIALS = 3000 };
  double v[128];
  *largest2 = *error2 = 0.0;
  for (int t = 0; t < TRIALS; ++t) {
    double most = 0.0;
    for (int i = 0; i < n; ++i) {
      v[i] = normal();
      most = fmax(most, fabs(v[i]));
    }
    const double scale = most / 127.0;
    for (int i = 0; i < n; ++i) {
      const double d = rint(v[i] / scale) * scale - v[i];
      *error2 += d * d / n / TRIALS;
    }
    *largest2 += most * most / TRIALS;
  }
}

/* The constant of wire.c, and what a method tells for whole and partial groups: N over two ranks, two steps.
 */
START_TEST(the_statistics_hold) {
  static const int sizes[] = {128, 43, 8, 2, 1};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    double largest2, error2;
    bs_error err = BS_ERROR_INIT;
    bs_proposal p = {.struct_size = sizeof p};
    bs_layer_spec spec = {.struct_size = sizeof spec, .B = 4, .N = 2 * sizes[i], .K = 8};
    spec.x_dtype = spec.w_dtype = spec.y_dtype = BS_F32;
    spec.reduce_dtype = BS_I8;
    simulate(sizes[i], &largest2, &error2);
    if (sizes[i] == 128) ck_assert_msg(fabs(largest2 / 8.15 - 1.0) < 0.02, "%g", largest2);
    ck_assert_msg(bs_method_propose(context, "row_parallel", &spec, 0, 2, &p, &err) == BS_OK, "%s",
                  err.message);
    ck_assert_msg(fabs(p.wire_error - sqrt(2.0 * error2)) <= 0.03 * p.wire_error + 1e-9,
                  "%d: %g, simulated %g", sizes[i], p.wire_error, sqrt(2.0 * error2));
  }
}
END_TEST

static double number(const json_t *record, const char *key) {
  ck_assert_msg(json_is_number(json_object_get(record, key)), "%s is missing", key);
  return json_number_value(json_object_get(record, key));
}

static const char *const cases[] = {
    "method: {name: row_parallel, reduce_dtype: int8}\nhardware: {backend: cpu, world_size: 2}",
    "method: {name: row_parallel, reduce_dtype: i8, bias: true}\nhardware: {backend: cpu, world_size: 3}",
    "method: {name: blockshock, reduce_dtype: int8}\nhardware: {backend: cpu, world_size: 4}",
    "method: {name: masked_split, reduce_dtype: int8, y_placement: split}\nhardware: {backend: ref, "
    "world_size: 2}",
    "method: {name: row_parallel, reduce_dtype: int8, bias: true}\nhardware: {backend: cpu, world_size: 2}\n"
    "phase: {reference_features: 60}",
    "method: {name: row_parallel, reduce_dtype: bf16}\nhardware: {backend: cpu, world_size: 4}",
    "method: {name: row_parallel, reduce_dtype: f16, overlap: 3}\nhardware: {backend: cpu, world_size: 3}",
    "method: {name: column_parallel, reduce_dtype: int8, overlap: 4}\nhardware: {backend: cpu, world_size: "
    "2}",
    "method: {name: blockshock, overlap: 8, bias: true}\nhardware: {backend: cpu, world_size: 2}",
    "method: {name: blockshock, reduce_dtype: int8, bias: true}\nmask: {name: magnitude}\nhardware: "
    "{backend: cpu, world_size: 2}",
    "method: {name: blockshock, reduce_dtype: int8, y_placement: split}\nmask: {name: "
    "random_2of4}\nhardware: {backend: cpu, world_size: 4}",
    "method: {name: masked_split, reduce_dtype: int8, bias: true}\nmask: {name: magnitude}\nhardware: "
    "{backend: cpu, world_size: 4}",
};
static const char *const models[] = {"dtype: float32", "dtype: bf16", "dtype: float32, activation: gelu"};

/* All gates of phase 0, integers and injected faults among them. */
START_TEST(clean_runs_pass) {
  for (size_t m = 0; m < sizeof models / sizeof models[0]; ++m) {
    char yaml[512];
    bs_phase_result result;
    snprintf(yaml, sizeof yaml, "%s\nmodel: {B: 32, N: 288, K: 64, %s}\n", cases[_i], models[m]);
    right_run(context, yaml, 0, 2, &result);
    ck_assert(json_is_true(json_object_get(result.record, "claims_match_counts")));
    if (m == 0 && strstr(cases[_i], "reduce_dtype") != NULL && strstr(cases[_i], "column") == NULL)
      ck_assert(number(result.record, "wire_error_predicted") > 1e-5);
    bs_phase_result_free(&result);
  }
}
END_TEST

/* Gradients of such layers are summed in f32; their steps are judged by outputs that travel in int8. */
START_TEST(gradients_and_steps_pass) {
  static const char *const runs[] = {
      "method: {name: row_parallel, reduce_dtype: int8, bias: true}\nhardware: {backend: cpu, world_size: 3}",
      "method: {name: masked_split, reduce_dtype: int8, bias: true}\nmask: {name: interleave}\n"
      "hardware: {backend: cpu, world_size: 3}",
      "method: {name: blockshock, reduce_dtype: int8, bias: true}\nhardware: {backend: cpu, world_size: 4}",
      "method: {name: row_parallel, reduce_dtype: int8, bias: true, y_placement: split}\n"
      "hardware: {backend: ref, world_size: 2}\nphase: {reference_features: 9}",
      "method: {name: row_parallel, reduce_dtype: int8, bias: true}\nhardware: {backend: cpu, world_size: "
      "2}\n"
      "phase: {optimizer: adamw}",
      "method: {name: blockshock, reduce_dtype: int8, bias: true}\nmask: {name: transposable}\n"
      "hardware: {backend: cpu, world_size: 4}\nphase: {remask: 1}",
  };
  for (int phase = 2; phase <= 3; ++phase) {
    char yaml[512];
    bs_phase_result result;
    snprintf(yaml, sizeof yaml,
             "%s\nmodel: {B: 11, N: 37, K: 36, dtype: float32}\nworkload: {loss: mse_zero}\n", runs[_i]);
    right_run(context, yaml, phase, 2, &result);
    ck_assert(right_gate(&result, "T6"));
    ck_assert(right_gate(&result, phase == 2 ? "db.T3" : "b.T3"));
    bs_phase_result_free(&result);
  }
}
END_TEST

/* Half the levels, or a rank's term twice rounded: beyond what was predicted. */
START_TEST(coarser_steps_are_caught) {
  enum { B = 32, N = 256, P = 2 };
  double *partial[P], *y = calloc(B * N, sizeof *y), *got = calloc(B * N, sizeof *got);
  double energy[N] = {0}, *magnitude = calloc(B * N, sizeof *magnitude);
  int64_t feature[N];
  for (int p = 0; p < P; ++p) {
    partial[p] = calloc(B * N, sizeof **partial);
    for (int i = 0; i < B * N; ++i) y[i] += partial[p][i] = normal();
  }
  for (int f = 0; f < N; ++f) feature[f] = f;
  for (int levels = 127; levels >= 63; levels -= 64) {
    const bs_arithmetic a = {
        .y_dtype = BS_F64, .reduce_dtype = BS_I8, .accumulate = BS_ACC_F64, .wire_steps = 1};
    const bs_reference ref = {.B = B,
                              .N = N,
                              .K = 1,
                              .features = N,
                              .feature = feature,
                              .y = y,
                              .magnitude = magnitude,
                              .partial = partial,
                              .energy = energy,
                              .world_size = P,
                              .distinct = B};
    bs_prediction prediction;
    bs_judgement j;
    bs_gate gates[4];
    bs_error err = BS_ERROR_INIT;
    memset(got, 0, B * N * sizeof *got);
    for (int p = 0; p < P; ++p)
      for (int g = 0; g < B * N; g += 128) {
        double most = 0.0;
        for (int i = g; i < g + 128; ++i) most = fmax(most, fabs(partial[p][i]));
        for (int i = g; i < g + 128; ++i) got[i] += rint(partial[p][i] / most * levels) * most / levels;
      }
    ck_assert_msg(bs_predict(&ref, &a, &prediction, &err) == BS_OK, "%s", err.message);
    bs_judge(&ref, &a, &prediction, got, N, 0, N, &j);
    ck_assert_msg(levels < 127 || fabs(j.relative / prediction.relative - 1.0) < 0.02, "%g of %g", j.relative,
                  prediction.relative);
    uint32_t failed = 0;
    const uint32_t n = bs_gates_from_judgement(&ref, &j, 0, gates, 4);
    for (uint32_t i = 0; i < n; ++i) failed += gates[i].state == BS_GATE_FAIL;
    ck_assert_msg(levels == 127 ? failed == 0 : failed > 0, "%d levels: %u gates fail", levels, failed);
    bs_prediction_free(&prediction);
  }
  for (int p = 0; p < P; ++p) free(partial[p]);
  free(magnitude);
  free(got);
  free(y);
}
END_TEST

/* One value of a group is not finite: the rest of its group must not be let through when the wire lost it,
 * nor be called wrong when it did not. */
START_TEST(a_lost_group_is_caught) {
  enum { B = 8, N = 256, P = 2 };
  static const double bad[] = {INFINITY, -INFINITY, NAN};
  double partial[P][B * N], y[B * N], got[B * N], magnitude[B * N] = {0}, energy[N] = {0};
  double *partials[P] = {partial[0], partial[1]};
  int64_t feature[N];
  for (int f = 0; f < N; ++f) feature[f] = f;
  for (int i = 0; i < B * N; ++i) y[i] = (partial[0][i] = normal()) + (partial[1][i] = normal());
  partial[0][3 * N + 5] = bad[_i];
  y[3 * N + 5] = bad[_i];
  const bs_arithmetic a = {
      .y_dtype = BS_F32, .reduce_dtype = BS_I8, .accumulate = BS_ACC_F64, .wire_steps = 2};
  const bs_reference ref = {.B = B,
                            .N = N,
                            .K = 1,
                            .features = N,
                            .feature = feature,
                            .y = y,
                            .magnitude = magnitude,
                            .partial = partials,
                            .energy = energy,
                            .world_size = P,
                            .distinct = B};
  for (int lost = 0; lost < 3; ++lost) { /* nothing; to NaN; to zero */
    bs_prediction prediction;
    bs_judgement j;
    bs_gate gates[4];
    float out[B * N];
    bs_error err = BS_ERROR_INIT;
    memcpy(got, y, sizeof got);
    for (int f = 0; lost > 0 && f < 128; ++f)
      if (f != 5) got[3 * N + f] = lost == 1 ? NAN : 0.0;
    for (int i = 0; i < B * N; ++i) out[i] = (float)got[i];
    ck_assert_msg(bs_predict(&ref, &a, &prediction, &err) == BS_OK, "%s", err.message);
    bs_judge(&ref, &a, &prediction, out, N, 0, N, &j);
    ck_assert_uint_eq(bs_gates_from_judgement(&ref, &j, 0, gates, 4), 4);
    for (int g = 0; g < 4; ++g) ck_assert_msg(isfinite(gates[g].limit), "%s", gates[g].name);
    ck_assert_uint_eq(j.propagated, 1);
    ck_assert_uint_eq(j.nonfinite, lost == 1 ? 127 : 0);
    ck_assert_msg(lost == 0 ? j.wrong == 0 : j.wrong > 100, "%d: %llu", lost, (unsigned long long)j.wrong);
    ck_assert_int_eq(gates[3].state, lost == 0 ? BS_GATE_PASS : BS_GATE_FAIL);
    bs_prediction_free(&prediction);
  }
}
END_TEST

/* The same through a layer: what shares an int8 group with Inf or NaN is lost, and the run is not right. In
 * f32 it is. */
START_TEST(a_layer_that_loses_a_group_is_wrong) {
  enum { B = 16, N = 96, K = 64 };
  static float x[B * K], w[N * K];
  static const float bad[] = {INFINITY, NAN};
  static const int64_t shape[3] = {B, N, K};
  bs_error err = BS_ERROR_INIT;
  gate_data data;
  for (int i = 0; i < B * K; ++i) x[i] = (float)normal();
  for (int i = 0; i < N * K; ++i) w[i] = (float)normal();
  w[7 * K + 3] = bad[_i / 2];
  bs_case c = gate_case("row_parallel", 2, BS_F32, shape, NULL);
  gate_memory_open(&c, x, w, &data);
  c.spec.reduce_dtype = _i % 2 ? BS_I8 : 0;
  bs_case_result result;
  bs_verdict v;
  ck_assert_msg(gate_run(&c, &c, &result, &v, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_verdict_passed(v.gates, v.n_gates), _i % 2 == 0);
  bs_case_result_free(&result);
  gate_memory_close(&data);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_statistics_hold},
                             {clean_runs_pass, TEST_COUNT(cases)},
                             {gradients_and_steps_pass, 6},
                             {coarser_steps_are_caught},
                             {a_lost_group_is_caught, 3},
                             {a_layer_that_loses_a_group_is_wrong, 4},
                             {0}};
  return run_tests("gate_wire", tests, (test_setup){open_context, close_context, 60});
}
