/* SPDX-License-Identifier: MIT
 *
 * test_method_known.c - the known answers K1-K8 and K16, in f32, f16 and bf16 on ref and cpu: outputs of
 * every rank, and the partials that go into the collective.
 */
#include <stdlib.h>
#include <string.h>

#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const float W[32] = {1, 2,  3, 4, 5, 6, 7,  8, -1, 0, 2,  1, 3, -2, 0, 4,
                            2, -3, 1, 0, 0, 1, -1, 2, 0,  5, -4, 2, 1, 1,  1, -6};
static const float X[16] = {1, 0, 2, -1, 1, 1, 0, 2, 0, 1, 1, 1, -1, 2, 3, 0};
static const double K1[8] = {30, 11, 9, -20, 37, -4, -3, 7};

typedef struct answer {
  const char *id, *method, *mask;
  uint32_t world;
  float partial[4][8]; /* by rank, [2,4] or the rank's own block */
} answer;

static const answer answers[] = {
    {"K1", "dense", NULL, 1, {{0}}},
    {"K2", "row_parallel", NULL, 2, {{3, 2, 4, -10, 9, 3, -2, 3}, {27, 9, 5, -10, 28, -7, -1, 4}}},
    {"K3", "column_parallel", NULL, 2, {{30, 11, 37, -4}, {9, -20, -3, 7}}},
    {"K4", "blockshock", "1100", 2, {{12, 0, 3, 2, 9, -7, -1, 6}, {18, 11, 6, -22, 28, 3, -2, 1}}},
    {"K5", "blockshock", "1010", 2, {{12, 6, 4, -7, 19, -1, -2, -2}, {18, 5, 5, -13, 18, -3, -1, 9}}},
    {"K6", "blockshock", "1001", 2, {{18, 9, 6, -13, -1, -2, 0, 1}, {12, 2, 3, -7, 38, -2, -3, 6}}},
    {"K4", "masked_split", NULL, 2, {{12, 0, 3, 2, 9, -7, -1, 6}, {18, 11, 6, -22, 28, 3, -2, 1}}},
    {"K6", "masked_split", "1001", 2, {{18, 9, 6, -13, -1, -2, 0, 1}, {12, 2, 3, -7, 38, -2, -3, 6}}},
    {"K11", "masked_split", "magnitude", 2, {{18, 14, 7, -19, 28, -1, -1, 0}, {12, -3, 2, -1, 9, -3, -2, 7}}},
    {"K8",
     "blockshock",
     "interleave",
     4,
     {{6, 2, 2, 1, -5, -3, 0, -1},
      {6, -2, 1, 1, 14, -4, -1, 7},
      {6, 4, 2, -8, 24, 2, -2, -1},
      {12, 7, 4, -14, 4, 1, 0, 2}}},
};
#define N_ANSWERS ((int)(sizeof answers / sizeof answers[0]))

static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
static const char *const backends[] = {"ref", "cpu"};

static void check_answer(bs_context *context, const answer *a, const char *backend, uint32_t dtype) {
  bs_mask mask;
  mf_case c = {.method = a->method, .backend = backend, .world = a->world, .x = X, .w = W};
  c.spec = mf_spec(2, 4, 8, dtype);
  if (a->mask != NULL) {
    mask = mf_mask(a->mask);
    c.spec.mask = &mask;
  }
  mf_result result;
  mf_run_ok(context, &c, &result);
  for (uint32_t r = 0; r < a->world; r++) {
    const mf_rank *k = &result.rank[r];
    ck_assert_int_eq(k->y_cols, 4);
    for (int i = 0; i < 8; i++)
      ck_assert_msg(k->y[i] == K1[i], "%s %s on %s, rank %u: y[%d] is %g, not %g", a->id,
                    bs_dtype_name(dtype), backend, r, i, k->y[i], K1[i]);
    ck_assert_uint_eq(k->collectives, a->world > 1);
    if (a->world == 1) continue;
    ck_assert_uint_eq(k->partial_count, strcmp(a->method, "column_parallel") == 0 ? 4 : 8);
    for (uint64_t i = 0; i < k->partial_count; i++)
      ck_assert_msg(k->partial[i] == a->partial[r][i], "%s %s on %s, rank %u: partial[%d] is %g, not %g",
                    a->id, bs_dtype_name(dtype), backend, r, (int)i, (double)k->partial[i],
                    (double)a->partial[r][i]);
  }
  mf_free(&result);
}

START_TEST(known_answers) {
  bs_context *context = mf_context();
  for (size_t b = 0; b < 2; b++)
    for (size_t d = 0; d < 3; d++) check_answer(context, &answers[_i], backends[b], dtypes[d]);
  bs_context_close(context);
}
END_TEST

/* K7: what blockshock packs for 1100 are columns 0 1 4 5 of W, and nothing else was read. */
START_TEST(k7_packed_columns) {
  static const int64_t columns[4] = {0, 1, 4, 5};
  static const float packed[16] = {1, 2, 5, 6, -1, 0, 3, -2, 2, -3, 0, 1, 0, 5, 1, 1};
  bs_context *context = mf_context();
  for (size_t b = 0; b < 2; b++) {
    mf_case c = {.method = "block_shock_2gpu", .backend = backends[b], .world = 2, .x = X, .w = W};
    c.spec = mf_spec(2, 4, 8, BS_F32);
    mf_result result;
    mf_run_ok(context, &c, &result);
    ck_assert_int_eq(result.rank[0].k_own, 4);
    ck_assert_int_eq(result.rank[0].row_count, 4);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(result.rank[0].columns[i], columns[i]);
    for (int i = 0; i < 16; i++) ck_assert(result.rank[0].weights[i] == packed[i]);
    for (int i = 0; i < 32; i++) ck_assert_uint_eq(result.read_by[i], i % 4 < 2 ? 1 : 2);
    mf_free(&result);
  }
  bs_context_close(context);
}
END_TEST

/* K16: W row [256 1 1 0], X ones. f32 partials keep 257 + 1 = 258; a bf16 wire rounds 257 to 256 and the
 * sum to 256. The exact sum is a bf16 number, so only the reduce dtype can lose it. */
START_TEST(k16_reduce_dtype) {
  static const float w[4] = {256, 1, 1, 0}, ones[4] = {1, 1, 1, 1};
  bs_context *context = mf_context();
  for (size_t b = 0; b < 2; b++) {
    mf_case c = {.method = "blockshock", .backend = backends[b], .world = 2, .x = ones, .w = w};
    c.spec = mf_spec(1, 1, 4, BS_BF16);
    mf_result result;
    mf_run_ok(context, &c, &result);
    for (uint32_t r = 0; r < 2; r++) ck_assert(result.rank[r].y[0] == 258);
    ck_assert(result.rank[0].partial[0] == 257 && result.rank[1].partial[0] == 1);
    ck_assert_uint_eq(result.rank[0].counters[BS_COUNT_PAYLOAD_BYTES], 4);
    mf_free(&result);
    c.spec.reduce_dtype = BS_BF16;
    mf_run_ok(context, &c, &result);
    for (uint32_t r = 0; r < 2; r++) ck_assert(result.rank[r].y[0] == 256);
    ck_assert(result.rank[0].partial[0] == 256 && result.rank[1].partial[0] == 1);
    ck_assert_uint_eq(result.rank[0].counters[BS_COUNT_PAYLOAD_BYTES], 2);
    mf_free(&result);
  }
  bs_context_close(context);
}
END_TEST

/* The original's names give the same layers. */
START_TEST(aliases) {
  static const char *const pairs[][2] = {{"dense", "dense_single"},
                                         {"row_parallel", "dense_tp"},
                                         {"masked_split", "masked_split_dense"},
                                         {"blockshock", "block_shock_2gpu"}};
  bs_context *context = mf_context();
  for (size_t i = 0; i < 4; i++) {
    const bs_method *a = NULL, *b = NULL;
    void *state;
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_find_method(context, pairs[i][1], &b, &state, &err) == BS_OK, "%s", err.message);
    ck_assert_int_eq(bs_find_method(context, pairs[i][0], &a, &state, &err), BS_OK);
    ck_assert_ptr_eq(a, b);
    ck_assert_str_eq(a->name, pairs[i][0]);
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {known_answers, N_ANSWERS}, {k7_packed_columns}, {k16_reduce_dtype}, {aliases}, {0}};
  return run_tests("method_known", tests, (test_setup){.timeout = 120});
}
