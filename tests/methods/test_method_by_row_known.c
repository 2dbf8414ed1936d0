/* SPDX-License-Identifier: MIT
 *
 * test_method_by_row_known.c - blockshock by 2:4 values, known answers: K4-K6 through kernel=sparse24, K9-K11
 * forward and K12 backward of the magnitude mask, on 1, 2 and 4 ranks, slices of rows and of columns, floats
 * and integers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "tests/marks.h"
#include "tests/methods/by_row_options.h"
#include "tests/run_tests.h"

static const float W[32] = {1, 2,  3, 4, 5, 6, 7,  8, -1, 0, 2,  1, 3, -2, 0, 4,
                            2, -3, 1, 0, 0, 1, -1, 2, 0,  5, -4, 2, 1, 1,  1, -6};
static const float X[16] = {1, 0, 2, -1, 1, 1, 0, 2, 0, 1, 1, 1, -1, 2, 3, 0};
static const double K1[8] = {30, 11, 9, -20, 37, -4, -3, 7};
static const char *const backends[] = {"ref", "cpu"};

static const struct {
  const char *id, *mask;
  float half[2][8];
} answers[] = {
    {"K4", "1100", {{12, 0, 3, 2, 9, -7, -1, 6}, {18, 11, 6, -22, 28, 3, -2, 1}}},
    {"K5", "1010", {{12, 6, 4, -7, 19, -1, -2, -2}, {18, 5, 5, -13, 18, -3, -1, 9}}},
    {"K6", "1001", {{18, 9, 6, -13, -1, -2, 0, 1}, {12, 2, 3, -7, 38, -2, -3, 6}}},
    {"K11", "magnitude", {{18, 14, 7, -19, 28, -1, -1, 0}, {12, -3, 2, -1, 9, -3, -2, 7}}},
};
#define N_ANSWERS ((int)(sizeof answers / sizeof answers[0]))

static const struct {
  uint32_t in, out;
} dtypes[] = {{BS_F32, BS_F32}, {BS_BF16, BS_BF16}, {BS_F16, BS_F16}, {BS_F64, BS_F64}, {BS_I8, BS_I32}};
#define N_DTYPES (sizeof dtypes / sizeof dtypes[0])

static mf_case known_case(const char *backend, size_t dtype, uint32_t P) {
  mf_case c = {.method = "blockshock", .backend = backend, .world = P, .x = X, .w = W};
  c.spec = mf_spec(2, 4, 8, dtypes[dtype].in);
  c.spec.y_dtype = dtypes[dtype].out;
  return c;
}

static void known_point(bs_context *context, int a, const char *backend, size_t dtype, uint32_t P,
                        const char *slices) {
  const bs_mask mask = mf_mask(answers[a].mask);
  mf_case c = known_case(backend, dtype, P);
  const options o = choose(&c.spec, mask.kind == BS_MASK_COMPLEMENT ? "sparse24" : NULL, slices, NULL);
  give(&c.spec, &o);
  c.spec.mask = &mask;
  mf_result result;
  mf_run_ok(context, &c, &result);
  for (uint32_t r = 0; r < P; r++) {
    const mf_rank *k = &result.rank[r];
    for (int i = 0; i < 8; i++)
      ck_assert_msg(k->y[i] == K1[i], "%s %s on %s, P=%u rank %u: y[%d] is %g, not %g", answers[a].id,
                    bs_dtype_name(dtypes[dtype].in), backend, P, r, i, k->y[i], K1[i]);
    ck_assert_uint_eq(k->regions[BS_REGION_COMPRESS], P > 1);
    if (P == 1) ck_assert(strstr(k->proposal.text, "dense product") != NULL); /* both halves: said so */
    if (P != 2) continue;
    ck_assert_uint_eq(k->partial_count, 8);
    for (int i = 0; i < 8; i++)
      ck_assert_msg(k->partial[i] == answers[a].half[r][i], "%s %s on %s, half %u: [%d] is %g, not %g",
                    answers[a].id, bs_dtype_name(dtypes[dtype].in), backend, r, i, (double)k->partial[i],
                    (double)answers[a].half[r][i]);
  }
  mf_check_counters(&c, &result);
  mf_check_ownership(&c, &result, 0);
  mf_free(&result);
}

START_TEST(known_answers) {
  bs_context *context = mf_context();
  for (size_t b = 0; b < 2; b++)
    for (size_t d = 0; d < N_DTYPES; d++) {
      if (b == 1 && dtypes[d].in == BS_F64) continue; /* none on cpu */
      known_point(context, _i, backends[b], d, 1, NULL);
      known_point(context, _i, backends[b], d, 2, NULL);
      known_point(context, _i, backends[b], d, 4, "row");
      known_point(context, _i, backends[b], d, 4, "column");
    }
  bs_context_close(context);
}
END_TEST

/* K10: what the ranks hold of the magnitude mask, zeros of the complement among it: as 2:4 values, and in
 * dense storage. */
START_TEST(k10_packed_values) {
  static const char *const methods[] = {"blockshock", "masked_split"};
  static const float packed[2][16] = {{3, 4, 7, 8, -1, 2, 3, 4, 2, -3, 1, 2, 5, -4, 1, -6},
                                      {1, 2, 5, 6, 0, 1, -2, 0, 1, 0, 0, -1, 0, 2, 1, 1}};
  const bs_mask mask = mf_mask("magnitude");
  bs_context *context = mf_context();
  for (size_t b = 0; b < 2; b++) {
    mf_case c = known_case(backends[b], 0, 2);
    c.method = methods[_i];
    c.spec.mask = &mask;
    mf_result result;
    mf_run_ok(context, &c, &result);
    for (int r = 0; r < 2; r++) {
      ck_assert_int_eq(result.rank[r].k_own, 4);
      for (int i = 0; i < 16; i++) ck_assert(result.rank[r].weights[i] == packed[r][i]);
    }
    mf_free(&result);
  }
  bs_context_close(context);
}
END_TEST

/* One half alone: its product, the error of dropping the other, on any number of ranks. */
START_TEST(halves_alone) {
  static const char *const names[2] = {"0", "1"}, *const slices[] = {NULL, "row", "column"};
  static const double errors[N_ANSWERS] = {0.7071, 0.7071, 0.7071, 0.3647};
  const bs_mask mask = mf_mask(answers[_i].mask);
  bs_context *context = mf_context();
  for (uint32_t P = 1; P <= 3; P++)
    for (int h = 0; h < 2; h++)
      for (size_t s = 0; s < 3; s++) {
        mf_case c = known_case(backends[P % 2], 0, P);
        const options o = choose(&c.spec, NULL, slices[s], names[h]);
        give(&c.spec, &o);
        c.spec.mask = &mask;
        mf_result result;
        mf_run_ok(context, &c, &result);
        mf_check_counters(&c, &result);
        for (uint32_t r = 0; r < P; r++) {
          const double e = errors[_i], want = h == 0 ? e : sqrt(1.0 - e * e);
          ck_assert_double_eq_tol(result.rank[r].proposal.prune_error, want, 1e-3);
          ck_assert(strstr(result.rank[r].proposal.text, "half alone") != NULL);
          for (int i = 0; i < 8; i++)
            ck_assert_msg(result.rank[r].y[i] == (double)answers[_i].half[h][i],
                          "%s half %d alone on %u ranks: [%d] is %g, not %g", answers[_i].id, h, P, i,
                          result.rank[r].y[i], (double)answers[_i].half[h][i]);
        }
        mf_free(&result);
      }
  bs_context_close(context);
}
END_TEST

/* ---- K12 ----------------------------------------------------------------------------------------- */

typedef struct backward_of {
  const bs_mask *mask;
  const char *half;
  double dx[16], dw[16];
} backward_of;

static bs_tensor take(bs_rank *rank, int64_t rows, int64_t cols, const float *values) {
  bs_tensor t;
  bs_error err = BS_ERROR_INIT;
  const bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = 2, .dims = {rows, cols}};
  ck_assert_int_eq(bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t, &err), BS_OK);
  if (values != NULL) memcpy(t.data, values, (size_t)(rows * cols) * sizeof *values);
  return t;
}

static int32_t half_backward(bs_rank *rank, void *arg, bs_error *err) {
  static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  backward_of *b = arg;
  bs_layer_spec spec = mf_spec(2, 4, 8, BS_F32);
  const options o = choose(&spec, NULL, NULL, b->half);
  give(&spec, &o);
  spec.mask = b->mask;
  spec.flags = BS_LAYER_BACKWARD;
  bs_source w;
  bs_layer *layer = NULL;
  int32_t rc = bs_source_from_memory(W, BS_F32, 4, 8, 8, &w, err);
  if (rc == BS_OK) rc = bs_layer_build(rank, "blockshock", &spec, &w, NULL, &layer, err);
  bs_tensor x = take(rank, 2, 8, X), dy = take(rank, 2, 4, ones), dx = take(rank, 2, 8, NULL),
            dw = take(rank, 4, 4, NULL);
  if (rc == BS_OK) rc = bs_layer_backward(layer, &x, &dy, &dx, &dw, NULL, NULL, err);
  for (int i = 0; i < 16; i++) {
    b->dx[i] = (double)((float *)dx.data)[i];
    b->dw[i] = (double)((float *)dw.data)[i];
  }
  bs_tensor *const all[] = {&x, &dy, &dx, &dw};
  for (size_t i = 0; i < 4; i++) bs_rank_get_api()->tensor_free(rank, all[i]);
  bs_layer_free(layer);
  bs_source_release(&w);
  return rc;
}

/* K12: dX of each half of K9 (not disjoint), and of 1100 and 0011 (disjoint); dW where weights are kept. */
START_TEST(k12_halves) {
  static const struct {
    const char *mask, *half;
    double dx[8], dw[16];
  } known[] = {
      {"magnitude", "0", {1, 2, 1, 4, 4, 1, 7, 8}, {3, 0, 3, 2, 1, 3, 0, 2, 1, 1, 3, 2, 1, 3, 0, 2}},
      {"magnitude", "1", {1, 2, 1, 3, 5, 5, 0, 0}, {1, 1, 0, 3, 1, 0, 3, 3, 3, 0, 0, 3, 1, 0, 3, 3}},
      {"1100", "0", {2, 4, 0, 0, 9, 6, 0, 0}, {1, 1, 0, 3, 1, 1, 0, 3, 1, 1, 0, 3, 1, 1, 0, 3}},
      {"1100", "1", {0, 0, 2, 7, 0, 0, 7, 8}, {3, 0, 3, 2, 3, 0, 3, 2, 3, 0, 3, 2, 3, 0, 3, 2}},
  };
  bs_context *context = mf_context();
  for (size_t b = 0; b < 2; b++) {
    const bs_mask mask = mf_mask(known[_i].mask);
    backward_of run = {.mask = &mask, .half = known[_i].half};
    const bs_world_options w = {
        .struct_size = sizeof w, .world_size = 1, .backend = backends[b], .threads_per_rank = 1};
    bs_world *world = NULL;
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(bs_world_create(context, &w, &world, &err), BS_OK);
    ck_assert_msg(bs_world_run(world, half_backward, &run, &err) == BS_OK, "%s: %s", err.id, err.message);
    bs_world_destroy(world);
    for (int i = 0; i < 16; i++) {
      ck_assert_double_eq(run.dx[i], known[_i].dx[i % 8]);
      ck_assert_double_eq(run.dw[i], known[_i].dw[i]);
    }
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {known_answers, N_ANSWERS}, {k10_packed_values, 2}, {halves_alone, N_ANSWERS}, {k12_halves, 4}, {0}};
  return run_tests("method_by_row_known", tests, (test_setup){.timeout = 120});
}
