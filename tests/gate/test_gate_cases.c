/* SPDX-License-Identifier: MIT
 * test_gate_cases.c - the methods through the gates: no false alarm on clean cases (methods x fixed masks x
 * dtypes x P x odd shapes x seeds), integers bit for bit, and each injected fault caught. BS_TEST_BIG
 * multiplies the cases (make verify).
 *   test_gate_cases [portable|avx2|avx512|avx512_bf16|dnnl|amx_model|amx]
 * With a name only that kernel path of the cpu plugin serves, or the program is skipped (77). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/case/owners.h"
#include "lab/gate/faults.h"
#include "tests/gate/gate_case.h"
#include "tests/gate/one_path.h"
#include "tests/run_tests.h"

#define ONE_PRECISION (BS_FAULT_FORWARD_COUNT_ - BS_FAULT_MIXED_COUNT) /* test_gate_mixed has the others */

static const char *path; /* one_path.h */

static const char *const methods[] = {"dense", "column_parallel", "row_parallel", "masked_split",
                                      "blockshock"};
static const char *const masks[] = {"complement_1100_0011", "complement_1010_0101", "complement_1001_0110",
                                    "interleave"};
static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
static const int64_t shapes[][3] = {{1, 1, 1},    {2, 3, 5},    {3, 7, 4},     {5, 17, 9},  {8, 16, 31},
                                    {16, 33, 64}, {17, 65, 63}, {64, 24, 130}, {9, 100, 3}, {4, 256, 257}};
/* For one path: more than two K blocks, more tokens than a chunk. */
static const int64_t large[][3] = {{130, 40, 600}, {512, 17, 33}, {100, 72, 520}, {97, 33, 513}};
enum { PATH_SEEDS = 4 };
#define N_SHAPES (sizeof shapes / sizeof shapes[0])
#define N_LARGE (sizeof large / sizeof large[0])

static bs_case make_case(const char *method, uint32_t P, const bs_mask *mask, uint32_t dtype,
                         const int64_t shape[3], int has_bias) {
  bs_case c = gate_case(method, P, dtype, shape, mask);
  c.iterations = 2;
  c.spec.has_bias = (uint32_t)has_bias;
  return c;
}

static int is_masked(const char *method) {
  return strcmp(method, "masked_split") == 0 || strcmp(method, "blockshock") == 0;
}

/* 1 when the combination is one that the table of docs/methods.md offers. */
static int offered(const char *method, const char *mask, uint32_t P) {
  if (strcmp(method, "dense") == 0) return P == 1;
  if (!is_masked(method)) return strcmp(mask, masks[0]) == 0; /* the mask is not theirs: once is enough */
  if (strcmp(mask, "interleave") == 0) return 1;
  return P == 1 || P % 2 == 0;
}

static uint64_t refused; /* cases that the forced path does not serve */

static int run_clean(const char *method, const char *mask_name, uint32_t P, uint32_t dtype,
                     const int64_t shape[3], uint64_t seed) {
  bs_error err;
  bs_case_result result;
  bs_verdict verdict;
  gate_data w;
  const bs_mask mask = gate_mask(mask_name);
  bs_case c = make_case(method, P, is_masked(method) ? &mask : NULL, dtype, shape, seed % 2 == 0);
  if (path == NULL && seed % 4 == 3) c.backend = "ref";
  c.spec.reduce_dtype = seed % 3 == 2 ? dtype : 0;
  gate_data_open(&c, "random_normal", seed, seed, &w);
  const int32_t rc = gate_run(&c, &c, &result, &verdict, &err);
  gate_data_close(&w);
  if (rc == BS_UNSUPPORTED && path_is_dnnl(path)) { /* alone it has no f16, no K = 0 */
    ++refused;
    return 1;
  }
  ck_assert_msg(rc == BS_OK, "%s %s P=%u: %s: %s", method, mask_name, P, err.id, err.message);
  path_must_have_run(path, result.algorithms);
  gate_claims_hold(&result);
  bs_case_result_free(&result);
  return !gate_alarm(&c, verdict.gates, verdict.n_gates);
}

/* The shapes of one row of methods, masks, ranks and dtypes. Bias, dtype of the reduction and backend go
 * round with row, shape and seed. With one path each row meets each shape with one of the seeds, every
 * second row with a bias, and each second large one. */
static uint64_t run_shapes(const char *method, const char *mask, uint32_t P, uint32_t dtype, uint64_t seed,
                           uint64_t row, uint64_t *cases) {
  uint64_t alarms = 0;
  for (uint64_t s = 0; s < N_SHAPES + (path != NULL ? N_LARGE : 0); ++s) {
    const int in_turn = (row / 2 + s + seed) % PATH_SEEDS == 0 && (s < N_SHAPES || (row + s) % 2 == 0);
    if (path != NULL && !in_turn) continue;
    const int64_t *shape = s < N_SHAPES ? shapes[s] : large[s - N_SHAPES];
    alarms += !run_clean(method, mask, P, dtype, shape, seed * 1001 + row * 11 + s);
    ++*cases;
  }
  return alarms;
}

START_TEST(clean_cases_raise_no_alarm) {
  const char *big = getenv("BS_TEST_BIG");
  const uint64_t seeds = (big ? (uint64_t)atoi(big) : 1) * (path != NULL ? PATH_SEEDS : 1);
  uint64_t cases = 0, alarms = 0;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    uint64_t row = 0;
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m)
      for (size_t k = 0; k < sizeof masks / sizeof masks[0]; ++k)
        for (uint32_t P = 1; P <= 4; ++P) {
          if (!offered(methods[m], masks[k], P)) continue;
          for (size_t d = 0; d < 3; ++d, ++row)
            if (path_has(path, dtypes[d]))
              alarms += run_shapes(methods[m], masks[k], P, dtypes[d], seed, row, &cases);
        }
  }
  printf("%llu clean cases, %llu not served, %llu alarms\n", (unsigned long long)cases,
         (unsigned long long)refused, (unsigned long long)alarms);
  ck_assert_uint_ge(cases - refused, path_is_dnnl(path) ? 500 : path_is_tiles(path) ? 330 : 1000);
  ck_assert_uint_eq(alarms, 0);
}
END_TEST

START_TEST(integers_are_exact) {
  const int64_t shape[3] = {13, 37, 250};
  for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
    for (size_t d = 0; d < 3; ++d) {
      if (!path_has(path, dtypes[d])) continue;
      for (uint32_t P = 1; P <= 4; P += strcmp(methods[m], "dense") == 0 ? 4 : 1) {
        bs_error err;
        bs_gate gate;
        const bs_mask mask = gate_mask("interleave");
        bs_case c = make_case(methods[m], P, is_masked(methods[m]) ? &mask : NULL, dtypes[d], shape, 1);
        const int32_t rc = bs_integer_gate(&c, BS_FAULT_COUNT_, 0, &gate, &err);
        ck_assert_msg(rc == BS_OK, "%s P=%u: %s", methods[m], P, err.message);
        ck_assert_msg(gate.state == BS_GATE_PASS, "%s P=%u %s: %g inexact", methods[m], P,
                      bs_dtype_name(dtypes[d]), gate.value);
      }
    }
  }
}
END_TEST

START_TEST(every_fault_is_caught) {
  const int64_t shape[3] = {16, 96, 256};
  for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
    for (size_t d = 0; d < 3; ++d) {
      if (!path_has(path, dtypes[d])) continue;
      const uint32_t most = strcmp(methods[m], "dense") == 0 ? 1 : 4;
      for (uint32_t P = 1; P <= most; P += P == 1 ? 1 : 2) {
        bs_error err;
        bs_fault_report faults;
        const bs_case c = make_case(methods[m], P, NULL, dtypes[d], shape, 1);
        const int32_t rc = bs_fault_gate(&c, &faults, &err);
        ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s", methods[m], P, err.id, err.message);
        ck_assert_msg(faults.caught == faults.injected, "%s P=%u %s: missed %s", methods[m], P,
                      bs_dtype_name(dtypes[d]), faults.missed);
        ck_assert_uint_ge(faults.injected, 7);
        ck_assert_str_eq(faults.hidden, "");
        for (int g = 0; g < 4; ++g) ck_assert_uint_ge(faults.n_by[g], 1);
        ck_assert_int_eq(faults.n_by[4] > 0, P > 1);
        /* All but those of an activation and of masks (test_gate_by_row), T5, and no fault at all. */
        if (m >= 2 && P > 1) ck_assert_uint_eq(faults.injected, ONE_PRECISION - 2 - 2 + 2);
      }
    }
  }
}
END_TEST

/* 8-bit weights and outputs, a rank without columns, and outputs that stay split. */
START_TEST(every_fault_is_caught_in_odd_places) {
  static const double shares[2] = {1e300, 1.0};
  static const struct {
    const char *method;
    uint32_t P, dtype, y_placement, uneven;
  } at[] = {
      {"blockshock", 2, BS_F8E4M3, BS_REPLICATED, 0}, {"dense", 1, BS_F8E5M2, BS_REPLICATED, 0},
      {"blockshock", 2, BS_BF16, BS_REPLICATED, 1},   {"row_parallel", 3, BS_BF16, BS_SPLIT, 0},
      {"blockshock", 2, BS_F32, BS_SPLIT, 0},         {"column_parallel", 4, BS_F16, BS_SPLIT, 0},
      {"masked_split", 4, BS_BF16, BS_SPLIT, 0},
  };
  const int64_t shape[3] = {16, 96, 256};
  for (size_t i = 0; i < sizeof at / sizeof at[0]; ++i) {
    bs_error err;
    bs_fault_report faults;
    bs_mask mask = gate_mask("uneven");
    mask.shares = shares;
    mask.n_shares = 2;
    bs_case c = make_case(at[i].method, at[i].P, at[i].uneven ? &mask : NULL, at[i].dtype, shape, 1);
    c.spec.y_placement = at[i].y_placement;
    const int32_t rc = bs_fault_gate(&c, &faults, &err);
    ck_assert_msg(rc == BS_OK, "case %zu: %s: %s", i, err.id, err.message);
    ck_assert_msg(faults.caught == faults.injected && faults.injected >= 7, "case %zu: %u of %u, missed %s",
                  i, faults.caught, faults.injected, faults.missed);
    /* A reduce-scatter left out, or biased on each rank, is among them; there is no activation, no mask. */
    if (at[i].y_placement == BS_SPLIT && strcmp(at[i].method, "column_parallel") != 0)
      ck_assert_uint_eq(faults.injected, ONE_PRECISION + 2 - 2 - 2 - 2);
  }
}
END_TEST

/* Where there are more ranks than columns, the wrong inputs must not go to a rank that multiplies none. */
START_TEST(other_inputs_go_where_they_matter) {
  const int64_t shape[3] = {2, 8, 16};
  for (uint32_t P = 2; P <= 60; P += 29) {
    bs_error err;
    gate_data w;
    bs_fault *fault = NULL;
    bs_case_fault hooks;
    bs_case c = make_case("row_parallel", P, NULL, BS_F32, shape, 0);
    gate_data_open(&c, "random_normal", 3, 3, &w);
    ck_assert_int_eq(bs_fault_make(BS_FAULT_OTHER_X, &c, &fault, &hooks, &err), BS_OK);
    for (uint32_t r = 0; r < P; ++r) {
      bs_source view;
      ck_assert_int_eq(hooks.wrap(hooks.user, r, BS_PART_X, c.x, &view, &err), BS_OK);
      ck_assert_int_eq(view.read != c.x->read, r == 1); /* rank 1 owns a column here, the last may not */
    }
    bs_fault_free(fault);
    gate_data_close(&w);
  }
}
END_TEST

/* Ranks with the bits of the one before are not judged twice; one that differs, in the middle, is. */
START_TEST(a_rank_in_the_middle_is_judged) {
  const int64_t shape[3] = {16, 32, 64};
  bs_error err;
  bs_case_result result;
  bs_verdict clean, bad;
  gate_data w;
  bs_case c = make_case("row_parallel", 6, NULL, BS_F32, shape, 0);
  gate_data_open(&c, "random_normal", 7, 7, &w);
  ck_assert_int_eq(gate_run(&c, &c, &result, &clean, &err), BS_OK);
  ck_assert(bs_verdict_passed(clean.gates, clean.n_gates));
  float *y = result.ranks[3].y;
  y[40] += 1.0f;
  y[41] = INFINITY;
  result.ranks[3].hash ^= 1;
  ck_assert_int_eq(bs_verdict_make(&c, &result, 0, &bad, &err), BS_OK);
  ck_assert_int_eq(bad.gates[3].state, BS_GATE_FAIL); /* T3 */
  ck_assert_int_eq(bad.gates[3].rank, 3);
  ck_assert_uint_eq(bad.nonfinite, 1);
  for (uint32_t r = 0; r < 6; ++r) { /* what is counted over all ranks still is */
    ((float *)result.ranks[r].y)[41] = INFINITY;
    result.ranks[r].hash = r == 3 ? 5 : 6;
  }
  ck_assert_int_eq(bs_verdict_make(&c, &result, 0, &bad, &err), BS_OK);
  ck_assert_uint_eq(bad.nonfinite, 6);
  bs_case_result_free(&result);
  gate_data_close(&w);
}
END_TEST

static const struct {
  const char *method, *mask;
  uint32_t world, dtype, activation;
} infinite[] = {
    {"dense", NULL, 1, BS_F32, BS_ACT_NONE},
    {"row_parallel", NULL, 3, BS_BF16, BS_ACT_NONE},
    {"column_parallel", NULL, 2, BS_F16, BS_ACT_SILU},
    {"blockshock", "complement_1100_0011", 2, BS_F32, BS_ACT_RELU},
    {"blockshock", "random_2of4", 2, BS_F32, BS_ACT_NONE},
    {"masked_split", "interleave", 4, BS_F32, BS_ACT_RELU},
    {"masked_split", "random_2of4", 2, BS_BF16, BS_ACT_NONE},
    {"row_parallel", NULL, 2, BS_F8E5M2, BS_ACT_NONE},
};

/* Inf in X and in W comes out with its sign, as NaN where zeros of the split meet it; turned it is wrong. */
START_TEST(infinities_come_out_as_they_must) {
  enum { B = 5, N = 12, K = 16 };
  const uint32_t dtype = infinite[_i].dtype;
  float x[B * K], w[N * K];
  bs_error err = BS_ERROR_INIT;
  gate_data data;
  bs_mask mask;
  bs_case_result r;
  bs_verdict v;
  for (int i = 0; i < B * K; ++i) x[i] = (float)((i * 7) % 11) - 5.0f;
  for (int i = 0; i < N * K; ++i) w[i] = (float)((i * 5) % 13) / 4.0f - 1.5f;
  x[3 * K + 5] = w[7 * K + 2] = INFINITY;
  if (infinite[_i].mask) mask = gate_mask(infinite[_i].mask);
  const int64_t shape[3] = {B, N, K};
  bs_case c =
      make_case(infinite[_i].method, infinite[_i].world, infinite[_i].mask ? &mask : NULL, dtype, shape, 0);
  c.spec.activation = infinite[_i].activation;
  gate_memory_open(&c, x, w, &data);
  ck_assert_msg(gate_run(&c, &c, &r, &v, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_verdict_passed(v.gates, v.n_gates), "%s", v.gates[3].text);
  int turned = 0;
  for (uint32_t p = 0; p < r.world_size; ++p)
    for (int64_t i = 0; i < B * r.ranks[p].y_cols; ++i) {
      const double y = bs_load_f64(dtype, r.ranks[p].y, i);
      if (!isinf(y)) continue;
      bs_store_f64(dtype, r.ranks[p].y, i, -y);
      ++turned;
    }
  ck_assert_int_gt(turned, 0);
  for (uint32_t p = 0; p < r.world_size; ++p) r.ranks[p].hash = 1;
  ck_assert_int_eq(bs_verdict_make(&c, &r, 0, &v, &err), BS_OK);
  ck_assert_int_eq(v.gates[3].state, BS_GATE_FAIL);
  bs_case_result_free(&r);
  gate_memory_close(&data);
}
END_TEST

/* Two ranks' parts of 8 x 16 weights: where one is missing or double the run ends with the numbers. */
static const struct {
  const char *says; /* NULL: right */
  int64_t rows[2][2], columns[2][2];
} parts[] = {
    {NULL, {{0, 8}, {0, 8}}, {{0, 5}, {5, 11}}},
    {NULL, {{0, 3}, {3, 5}}, {{0, 16}, {0, 16}}},
    {"column 4 of W is owned by rank 0 and by rank 1, in rows 0..7", {{0, 8}, {0, 8}}, {{0, 5}, {4, 12}}},
    {"column 5 of W is owned by no rank, in rows 0..7", {{0, 8}, {0, 8}}, {{0, 5}, {6, 10}}},
    {"column 0 of W is owned by rank 0 and by rank 1, in rows 2..2", {{0, 3}, {2, 6}}, {{0, 16}, {0, 16}}},
    {"column 0 of W is owned by no rank, in rows 3..3", {{0, 3}, {4, 4}}, {{0, 16}, {0, 16}}},
};

START_TEST(every_weight_has_one_owner) {
  const int64_t shape[3] = {1, 8, 16};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; ++i) {
    bs_error err = BS_ERROR_INIT;
    bs_case_rank ranks[2] = {0};
    bs_partition columns[2] = {0};
    bs_case_result result = {.world_size = 2, .ranks = ranks};
    const bs_case c = make_case("row_parallel", 2, NULL, BS_F32, shape, 0);
    for (int r = 0; r < 2; ++r) {
      columns[r].begin = parts[i].columns[r][0];
      columns[r].count = parts[i].columns[r][1];
      ranks[r].proposal.split = BS_SPLIT_K;
      ranks[r].owns.row_begin = parts[i].rows[r][0];
      ranks[r].owns.row_count = parts[i].rows[r][1];
      ranks[r].owns.columns = &columns[r];
    }
    const int32_t rc = bs_owners_check(&c, &result, &err);
    ck_assert_int_eq(rc, parts[i].says ? BS_PLUGIN : BS_OK);
    if (parts[i].says) ck_assert_str_eq(err.message, parts[i].says);
  }
}
END_TEST

/* Outputs that stay split: each rank's features judged, all of them somewhere. */
START_TEST(split_outputs_are_judged) {
  const int64_t shapes_of_two[2][3] = {{9, 37, 50}, {2, 2, 16}};
  for (size_t m = 0; m < sizeof methods / sizeof methods[0]; ++m) {
    for (uint32_t P = 1; P <= 4; ++P) {
      for (size_t s = 0; s < 2; ++s) {
        bs_error err;
        bs_case_result result;
        bs_verdict verdict;
        bs_gate gate;
        gate_data w;
        if (m == 0 && P > 1) continue;
        const bs_mask mask = gate_mask("interleave");
        bs_case c = make_case(methods[m], P, m >= 3 ? &mask : NULL, BS_BF16, shapes_of_two[s], 1);
        c.spec.y_placement = BS_SPLIT;
        gate_data_open(&c, "random_normal", 7, 7, &w);
        int32_t rc = gate_run(&c, &c, &result, &verdict, &err);
        ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s", methods[m], P, err.id, err.message);
        int64_t features = 0;
        for (uint32_t r = 0; r < P; ++r) features += result.ranks[r].y_cols;
        ck_assert_int_eq(features, c.spec.N);
        ck_assert(bs_verdict_passed(verdict.gates, verdict.n_gates));
        if (P > 1) { /* rank 1 says that it begins one feature further on */
          result.ranks[1].y_begin += 1;
          ck_assert_int_eq(bs_verdict_make(&c, &result, 0, &verdict, &err), BS_OK);
          ck_assert(!bs_verdict_passed(verdict.gates, verdict.n_gates));
        }
        bs_case_result_free(&result);
        gate_data_close(&w);
        rc = bs_integer_gate(&c, BS_FAULT_COUNT_, s == 0 ? 7 : 0, &gate, &err);
        ck_assert_msg(rc == BS_OK && gate.state == BS_GATE_PASS, "%s P=%u: %g inexact", methods[m], P,
                      gate.value);
        ck_assert_ptr_nonnull(
            strstr(gate.text, s == 0 ? "of 63 outputs" : "of 4 outputs")); /* 9 x 7, 2 x 2 */
      }
    }
  }
}
END_TEST

/* Inputs that are split: each rank gets its own columns of x alone, some none. Same sums, same faults. */
START_TEST(split_inputs_are_judged) {
  const int64_t shape[3] = {9, 37, 50}, narrow[3] = {9, 37, 3};
  for (size_t m = 2; m < sizeof methods / sizeof methods[0]; ++m) {
    for (uint32_t P = 1; P <= 4; ++P) {
      for (int few = 0; few < 2; ++few) {
        bs_error err;
        bs_case_result whole, split;
        bs_verdict verdict;
        bs_gate gate;
        gate_data w;
        bs_fault_report faults;
        const bs_mask mask = gate_mask("interleave");
        bs_case c = make_case(methods[m], P, m >= 3 ? &mask : NULL, BS_BF16, few ? narrow : shape, 1);
        gate_data_open(&c, "random_normal", 7, 7, &w);
        ck_assert_int_eq(bs_case_run(&c, &whole, &err), BS_OK);
        c.spec.x_placement = BS_SPLIT;
        int32_t rc = gate_run(&c, &c, &split, &verdict, &err);
        ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s", methods[m], P, err.id, err.message);
        ck_assert(bs_verdict_passed(verdict.gates, verdict.n_gates));
        ck_assert_msg(P == 1 || m == 3 || split.memory_peak < whole.memory_peak, "%s P=%u: x is not split",
                      methods[m], P);
        bs_case_result_free(&whole);
        bs_case_result_free(&split);
        gate_data_close(&w);
        rc = bs_integer_gate(&c, BS_FAULT_COUNT_, 0, &gate, &err);
        ck_assert_msg(rc == BS_OK && gate.state == BS_GATE_PASS, "%s P=%u: %g inexact", methods[m], P,
                      gate.value);
        rc = bs_fault_gate(&c, &faults, &err);
        ck_assert_msg(rc == BS_OK && faults.caught == faults.injected, "%s P=%u: missed %s", methods[m], P,
                      faults.missed);
      }
    }
  }
}
END_TEST

/* On one rank a split x is the whole; on more, column_parallel has no use for a part of it. */
START_TEST(split_inputs_are_refused_where_k_is_whole) {
  const int64_t shape[3] = {9, 37, 50};
  for (uint32_t P = 1; P <= 2; ++P) {
    bs_error err;
    bs_case_result result;
    gate_data w;
    bs_case c = make_case("column_parallel", P, NULL, BS_F32, shape, 0);
    gate_data_open(&c, "random_normal", 7, 7, &w);
    c.spec.x_placement = BS_SPLIT;
    const int32_t rc = bs_case_run(&c, &result, &err);
    ck_assert_int_eq(rc, P == 1 ? BS_OK : BS_UNSUPPORTED);
    if (rc == BS_OK) bs_case_result_free(&result);
    if (rc != BS_OK) ck_assert_str_eq(err.id, "BS-METHOD-PLACEMENT");
    if (rc != BS_OK) ck_assert_ptr_nonnull(strstr(err.hint, "row_parallel"));
    gate_data_close(&w);
  }
}
END_TEST

/* The size of the specification's sensitivity table; the subtle faults must be caught there too. */
START_TEST(subtle_faults_are_caught_at_2048) {
  const int64_t shape[3] = {64, 2048, 2048};
  const uint32_t kinds[] = {BS_FAULT_INDEX_SWAPPED, BS_FAULT_WEIGHT_LOST, BS_FAULT_OUTPUT_OFF,
                            BS_FAULT_BIAS_EACH_RANK, BS_FAULT_HALF_FP8};
  bs_error err;
  gate_data w;
  bs_case c = make_case("blockshock", 2, NULL, BS_BF16, shape, 1);
  c.iterations = 1;
  gate_data_open(&c, "random_normal", 3, 3, &w);
  for (size_t i = 0; i <= sizeof kinds / sizeof kinds[0]; ++i) {
    const int clean = i == sizeof kinds / sizeof kinds[0];
    bs_case faulty = c;
    bs_case_fault hooks;
    bs_case_result result;
    bs_verdict verdict;
    bs_fault *fault = NULL;
    if (!clean) {
      ck_assert_int_eq(bs_fault_make(kinds[i], &c, &fault, &hooks, &err), BS_OK);
      faulty.fault = &hooks;
    }
    ck_assert_int_eq(gate_run(&faulty, &faulty, &result, &verdict, &err), BS_OK);
    printf("%-14s T1 %.3g/%.3g  T2 %.3g/%.3g  T3 %.3g\n", clean ? "none" : bs_fault_name(kinds[i]),
           verdict.gates[0].value, verdict.gates[0].limit, verdict.gates[1].value, verdict.gates[1].limit,
           verdict.gates[3].value);
    ck_assert_msg(bs_verdict_passed(verdict.gates, verdict.n_gates) == clean, "%s",
                  clean ? "clean" : bs_fault_name(kinds[i]));
    bs_case_result_free(&result);
    bs_fault_free(fault);
  }
  gate_data_close(&w);
}
END_TEST

static void add_rest(TCase *tc) {
  tcase_add_test(tc, every_fault_is_caught_in_odd_places);
  tcase_add_test(tc, other_inputs_go_where_they_matter);
  tcase_add_test(tc, a_rank_in_the_middle_is_judged);
  tcase_add_test(tc, every_weight_has_one_owner);
  tcase_add_loop_test(tc, infinities_come_out_as_they_must, 0, (int)(sizeof infinite / sizeof infinite[0]));
  tcase_add_test(tc, split_outputs_are_judged);
  tcase_add_test(tc, split_inputs_are_judged);
  tcase_add_test(tc, split_inputs_are_refused_where_k_is_whole);
  tcase_add_test(tc, subtle_faults_are_caught_at_2048);
}

static void setup(void) {
  path_setup(path, &context);
}

int main(int argc, char **argv) {
  path = argc > 1 ? argv[1] : NULL;
  if (path != NULL && path_missing(path)) return 77;
  Suite *suite = suite_create("gate cases");
  TCase *tc = tcase_create("cases");
  tcase_set_timeout(tc, 7200);
  tcase_add_checked_fixture(tc, setup, close_context);
  tcase_add_test(tc, clean_cases_raise_no_alarm);
  if (!path_is_dnnl(path)) tcase_add_test(tc, integers_are_exact);
  if (!path_is_dnnl(path)) tcase_add_test(tc, every_fault_is_caught);
  if (!path) add_rest(tc);
  suite_add_tcase(suite, tc);
  return run_suite(suite);
}
