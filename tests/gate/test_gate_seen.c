/* SPDX-License-Identifier: MIT
 * test_gate_seen.c - the injected faults in layers that hide them: each is large enough to be seen there, and
 * small against the outputs all the same; one that has nothing to hit is not counted as missed. */
#include <math.h>

#include "lab/gate/faults.h"
#include "lab/gate/judge.h"
#include "tests/gate/gate_case.h"
#include "tests/run_tests.h"

#define SMALL "model: {B: 16, N: 96, K: 64, dtype: float32"

static const char *const runs[] = {
    /* a half that keeps, or drops, both of the columns in the middle */
    "method: {name: blockshock, half: 0}\nmask: {name: complement_1001_0110}\n"
    "hardware: {backend: cpu, world_size: 2}\n" SMALL "}",
    "method: {name: blockshock, half: 1}\nmask: {name: complement_1001_0110}\n"
    "hardware: {backend: cpu, world_size: 2}\n" SMALL "}",
    /* terms too coarse for a bias of 0.01, or for 0.044 of the spread */
    "method: {name: row_parallel, reduce_dtype: bf16}\nhardware: {backend: cpu, world_size: 6}\n" SMALL
    ", activation: silu}",
    "method: {name: row_parallel, reduce_dtype: bf16}\nhardware: {backend: cpu, world_size: 16}\n" SMALL "}",
    "method: {name: blockshock, y_placement: partial}\nmask: {name: interleave}\n"
    "hardware: {backend: cpu, world_size: 8}\nmodel: {B: 16, N: 96, K: 256, dtype: bf16}",
    "method: {name: row_parallel, reduce_dtype: int8}\nhardware: {backend: cpu, world_size: 8}\n" SMALL "}",
    /* without the sum of Y in steps there is no gradient that could be wrong */
    "method: {name: masked_split, y_placement: split, reduce_dtype: int8}\n"
    "phase: {name: phase2_backward_input}\nhardware: {backend: cpu, world_size: 2}\n" SMALL "}",
    /* dY is gathered, dX is not; and both */
    "method: {name: masked_split, y_placement: split}\nphase: {name: phase2_backward_input}\n"
    "hardware: {backend: cpu, world_size: 2}\n" SMALL "}",
    "method: {name: blockshock, y_placement: split}\nmask: {name: random_2of4}\n"
    "phase: {name: phase2_backward_input}\nhardware: {backend: cpu, world_size: 2}\n" SMALL "}",
    "method: {name: blockshock, y_placement: split}\nmask: {name: random_2of4}\n"
    "phase: {name: phase2_backward_input}\nhardware: {backend: cpu, world_size: 4}\n" SMALL "}",
    "method: {name: row_parallel, y_placement: split}\nphase: {name: phase2_backward_input}\n"
    "hardware: {backend: cpu, world_size: 2}\n" SMALL "}",
    /* a segment edge that moves no output by more than its round-off, or by nothing: all columns are high */
    "method: {name: row_parallel, mixed: 64}\nhardware: {backend: cpu, world_size: 2}\n" SMALL "}",
    "method: {name: dense, mixed: 4080}\nhardware: {backend: cpu}\n"
    "model: {B: 16, N: 64, K: 4096, dtype: bf16}",
    /* terms, sums or outputs of a byte */
    "method: {name: row_parallel, reduce_dtype: bf16}\nhardware: {backend: ref, world_size: 4}\n"
    "model: {B: 16, N: 64, K: 64, dtype: f8e5m2}",
    "method: {name: row_parallel, y_placement: partial}\nhardware: {backend: ref, world_size: 8}\n"
    "model: {B: 16, N: 64, K: 64, dtype: f8e4m3}",
    "method: {name: row_parallel, y_placement: partial}\nhardware: {backend: ref, world_size: 4}\n"
    "model: {B: 16, N: 64, K: 64, dtype: f8e5m2}",
};

START_TEST(no_fault_is_missed) {
  must_be_right(context, runs[_i]);
}
END_TEST

/* ---- sums that are zero, or nearly ------------------------------------------------------------------ */

/* W = [A, -A] and X = [x, x]: Y is 0. And 1e-20 times both: Y is of the size of f32's least step. */
START_TEST(sums_of_nothing_are_judged) {
  enum { SB = 16, SN = 64, SK = 64 };
  static const uint32_t dtype_of[] = {BS_F32, BS_F16, BS_BF16, BS_F32};
  const uint32_t dtype = dtype_of[_i % 4];
  const int tiny = _i % 4 == 3, of_ref = _i / 4;
  float x[SB * SK], w[SN * SK];
  static const int64_t shape[3] = {SB, SN, SK};
  bs_error err = BS_ERROR_INIT;
  gate_data data;
  bs_case_result r;
  bs_verdict v;
  for (int i = 0; i < SB * SK; ++i) {
    const int k = i % SK % (tiny ? SK : SK / 2), b = i / SK;
    x[i] = (float)((b * 37 + k * 11) % 101 - 50) / 64.0f * (tiny ? 1e-20f : 1.0f);
  }
  for (int i = 0; i < SN * SK; ++i) {
    const int k = i % SK % (tiny ? SK : SK / 2), n = i / SK;
    w[i] = (float)((n * 29 + k * 53) % 127 - 63) / 64.0f * (tiny ? 1e-20f : i % SK == k ? 1.0f : -1.0f);
  }
  for (uint32_t P = 1; P <= 3; ++P) {
    bs_case c = gate_case("row_parallel", P, dtype, shape, NULL);
    if (of_ref) c.backend = "ref";
    gate_memory_open(&c, x, w, &data);
    ck_assert_msg(gate_run(&c, &c, &r, &v, &err) == BS_OK, "%s", err.message);
    for (uint32_t g = 0; g < v.n_gates; ++g)
      ck_assert_msg(v.gates[g].state == BS_GATE_PASS, "P=%u: %s %g of %g", P, v.gates[g].name,
                    v.gates[g].value, v.gates[g].limit);
    bs_store_f64(dtype, r.ranks[0].y, 70, tiny ? 4e-39 : 0.01); /* and what is wrong is wrong */
    r.ranks[0].hash ^= 1;
    ck_assert_int_eq(bs_verdict_make(&c, &r, 0, &v, &err), BS_OK);
    ck_assert_int_eq(v.gates[0].state, BS_GATE_FAIL);
    ck_assert_int_eq(v.gates[3].state, BS_GATE_FAIL);
    bs_case_result_free(&r);
    gate_memory_close(&data);
  }
}
END_TEST

/* ---- how large a fault is ------------------------------------------------------------------------- */

enum { B = 16, N = 96, K = 256 };

static int32_t read_noise(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  const int64_t count = cols ? cols->count : K;
  (void)ctx, (void)err;
  for (int64_t i = 0; i < nrows; ++i)
    for (int64_t j = 0; j < count; ++j) {
      const int64_t k = !cols                               ? j
                        : cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[j]
                                                            : cols->begin + j;
      bs_store_f64(dtype, out, i * out_stride + j, (double)(((row + i) * 131 + k * 57) % 97 - 48) / 28.0);
    }
  return BS_OK;
}

static const bs_source
    noise_x = {.struct_size = sizeof noise_x, .dtype = BS_F32, .rows = B, .cols = K, .read = read_noise},
    noise_w = {.struct_size = sizeof noise_w, .dtype = BS_F32, .rows = N, .cols = K, .read = read_noise};

static bs_case case_of(const char *method, uint32_t P, uint32_t dtype, uint32_t reduce_dtype,
                       uint32_t placement, const bs_mask *mask) {
  static const int64_t shape[3] = {B, N, K};
  bs_case c = gate_case(method, P, dtype, shape, mask);
  c.x = &noise_x;
  c.w = &noise_w;
  c.spec.reduce_dtype = reduce_dtype;
  c.spec.y_placement = placement;
  return c;
}

/* What the fault adds to rank 0's outputs of spread 1, in units of it. */
static double off_by(const bs_case *c) {
  static float y[B * N];
  unsigned char stored[B * N * 4];
  bs_error err = BS_ERROR_INIT;
  bs_fault *fault;
  bs_case_fault hooks;
  double most = 0.0;
  ck_assert_msg(bs_fault_make(BS_FAULT_OUTPUT_OFF, c, &fault, &hooks, &err) == BS_OK, "%s", err.message);
  for (int i = 0; i < B * N; ++i) {
    y[i] = (float)((i * 53 + 11) % 101 - 50) / 29.15f;
    bs_store_f64(c->spec.y_dtype, stored, i, y[i]);
    y[i] = (float)bs_load_f64(c->spec.y_dtype, stored, i);
  }
  hooks.output(hooks.user, 0, stored, B, N, c->spec.y_dtype);
  for (int i = 0; i < B * N; ++i) most = fmax(most, fabs(bs_load_f64(c->spec.y_dtype, stored, i) - y[i]));
  bs_fault_free(fault);
  return most;
}

START_TEST(an_output_is_off_by_little) {
  const bs_mask mask = gate_mask("interleave");
  bs_case c = case_of("row_parallel", 4, BS_F32, 0, BS_REPLICATED, NULL);
  ck_assert_double_eq_tol(off_by(&c), 0.044, 1e-3);
  c = case_of("column_parallel", 16, BS_F32, BS_BF16, BS_REPLICATED, NULL); /* no sums of outputs */
  ck_assert_double_eq_tol(off_by(&c), 0.044, 1e-3);
  c = case_of("row_parallel", 16, BS_F32, BS_BF16, BS_REPLICATED, NULL);
  ck_assert_double_gt(off_by(&c), 0.1); /* four times 0.043 */
  ck_assert_double_lt(off_by(&c), 0.25);
  c = case_of("blockshock", 8, BS_BF16, 0, BS_PARTIAL, &mask); /* of the sum over ranks, which is sqrt 8 */
  ck_assert_double_gt(off_by(&c) / sqrt(8.0), 0.08);
  ck_assert_double_lt(off_by(&c) / sqrt(8.0), 0.15);
  c = case_of("row_parallel", 8, BS_F32, BS_I8, BS_REPLICATED, NULL);
  ck_assert_double_gt(off_by(&c), 0.1);
  ck_assert_double_lt(off_by(&c), 0.25);
}
END_TEST

/* One row of X as a rank gets it, with the columns of each four that the fault exchanges. */
START_TEST(a_kept_column_meets_a_dropped_one) {
  static const char *const masks[] = {"complement_1100_0011", "complement_1010_0101", "complement_1001_0110",
                                      "complement_0110_1001"};
  bs_error err = BS_ERROR_INIT;
  const bs_mask mask = gate_mask(masks[_i]);
  const bs_case c = case_of("blockshock", 2, BS_F32, 0, BS_REPLICATED, &mask);
  bs_fault *fault;
  bs_case_fault hooks;
  bs_source wrong;
  double as_is[K], moved[K];
  ck_assert_msg(bs_fault_make(BS_FAULT_WRONG_COLUMNS, &c, &fault, &hooks, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(hooks.wrap(hooks.user, 0, BS_PART_X, &noise_x, &wrong, &err), BS_OK);
  ck_assert_int_eq(noise_x.read(noise_x.ctx, 3, 1, NULL, BS_F64, as_is, K, &err), BS_OK);
  ck_assert_int_eq(wrong.read(wrong.ctx, 3, 1, NULL, BS_F64, moved, K, &err), BS_OK);
  for (int g = 0; g < K; g += 4) {
    int kept = 0, dropped = 0;
    for (int j = 0; j < 4; ++j) {
      const int changed = as_is[g + j] != moved[g + j];
      kept += changed && (mask.pattern_a >> j & 1u);
      dropped += changed && !(mask.pattern_a >> j & 1u);
    }
    ck_assert_msg(kept == 1 && dropped == 1, "%s: group %d: %d kept, %d dropped", masks[_i], g / 4, kept,
                  dropped);
  }
  bs_fault_free(fault);
}
END_TEST

int main(void) {
  const test_case tests[] = {{no_fault_is_missed, TEST_COUNT(runs)},
                             {sums_of_nothing_are_judged, 8},
                             {an_output_is_off_by_little},
                             {a_kept_column_meets_a_dropped_one, 4},
                             {0}};
  return run_tests("gate_seen", tests, (test_setup){open_context, close_context, 60});
}
