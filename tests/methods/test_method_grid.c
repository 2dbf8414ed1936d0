/* SPDX-License-Identifier: MIT
 *
 * test_method_grid.c - every method x mask x P x odd shape x placement x dtype x backend on small integers,
 * whose sums are exact: y must be the exact product, bit for bit; each weight is read by its owner and by
 * nobody else; read_weights returns them; the counters are those that were proposed.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

static const struct {
  const char *method, *mask;
} subjects[] = {
    {"dense", NULL},
    {"column_parallel", NULL},
    {"row_parallel", NULL},
    {"row_parallel", "uneven"},
    {"blockshock", NULL},
    {"blockshock", "0011"},
    {"blockshock", "1010"},
    {"blockshock", "0101"},
    {"blockshock", "1001"},
    {"blockshock", "0110"},
    {"blockshock", "interleave"},
    {"blockshock", "contiguous"},
    {"blockshock", "uneven"},
    {"masked_split", NULL},
    {"masked_split", "1001"},
    {"masked_split", "interleave"},
    {"masked_split", "uneven"},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))

/* B, N, K: odd, smaller than P, not multiples of 4, and one plain. */
static const int64_t shapes[][3] = {{1, 1, 1},   {3, 5, 7},   {2, 3, 2}, {4, 9, 13},
                                    {5, 17, 33}, {8, 16, 32}, {7, 2, 5}};
static const double shares[5] = {5, 1, 2, 0.25, 3};

typedef struct variant {
  uint32_t dtype, x_placement, y_placement, reduce_dtype, bias, fewer_rows, gather;
  const char *backend;
} variant;
static const variant variants[] = {
    {BS_F32, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, 0, "ref"},
    {BS_BF16, BS_REPLICATED, BS_REPLICATED, 0, 0, 1, 0, "cpu"},
    {BS_F16, BS_SPLIT, BS_REPLICATED, BS_F64, 1, 0, 0, "ref"},
    {BS_F32, BS_REPLICATED, BS_SPLIT, 0, 1, 1, 1, "cpu"},
    {BS_BF16, BS_SPLIT, BS_SPLIT, 0, 1, 0, 0, "ref"},
    {BS_F64, BS_REPLICATED, BS_PARTIAL, 0, 1, 0, 0, "ref"},
    {BS_F16, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, 1, "cpu"},
    {BS_F32, BS_SPLIT, BS_PARTIAL, 0, 0, 0, 0, "cpu"},
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

/* column_parallel needs the whole x and makes whole features. */
static int refuses(const mf_case *c) {
  return c->world > 1 && strcmp(c->method, "column_parallel") == 0 &&
         (c->spec.x_placement == BS_SPLIT || c->spec.y_placement == BS_PARTIAL);
}

/* What our methods do besides: one pack a rank that holds weights, and a region around each collective. */
static void check_regions(const mf_case *c, const mf_result *result) {
  const uint64_t times = c->forwards > 0 ? c->forwards : 1;
  for (uint32_t r = 0; r < c->world; r++) {
    const mf_rank *k = &result->rank[r];
    ck_assert_uint_eq(k->regions[BS_REGION_BUILD], 1);
    ck_assert_uint_eq(k->regions[BS_REGION_PACK], k->row_count > 0);
    ck_assert_uint_eq(k->regions[BS_REGION_ALLREDUCE], times * k->proposal.n_collectives);
  }
}

static void run_point(bs_context *context, const bs_mask *mask, int subject, uint32_t P, size_t shape,
                      size_t v) {
  static const char *const keys[] = {"kernel"}, *const values[] = {"gather"};
  const variant *var = &variants[v];
  const int64_t B = shapes[shape][0], N = shapes[shape][1], K = shapes[shape][2];
  mf_case c = {.method = subjects[subject].method,
               .backend = var->backend,
               .world = P,
               .forwards = 1 + (uint32_t)(v % 2)};
  c.spec = mf_spec(B, N, K, var->dtype);
  c.spec.x_placement = var->x_placement;
  c.spec.y_placement = var->y_placement;
  c.spec.reduce_dtype = var->reduce_dtype;
  c.spec.has_bias = var->bias;
  c.spec.mask = mask;
  if (var->gather && strcmp(c.method, "blockshock") == 0) {
    c.spec.n_options = 1;
    c.spec.option_keys = keys;
    c.spec.option_values = values;
  }
  c.rows = var->fewer_rows && B > 1 ? B - 1 : 0;
  float *x = mf_integers(1 + shape, B * K), *w = mf_integers(100 + shape, N * K),
        *bias = mf_integers(200 + shape, N);
  c.x = x;
  c.w = w;
  c.bias = var->bias ? bias : NULL;
  mf_result result;
  if (refuses(&c)) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(mf_run(context, &c, &result, &err), BS_UNSUPPORTED);
    ck_assert_str_eq(err.id, "BS-METHOD-PLACEMENT");
    ck_assert(err.hint[0] != '\0');
  } else {
    mf_run_ok(context, &c, &result);
    mf_check_outputs(&c, &result);
    mf_check_ownership(&c, &result, 0);
    mf_check_counters(&c, &result);
    check_regions(&c, &result);
  }
  mf_free(&result);
  free(x);
  free(w);
  free(bias);
}

START_TEST(exact_on_integers) {
  bs_context *context = mf_context();
  const char *name = subjects[_i].mask;
  for (uint32_t P = 1; P <= 5; P++) {
    bs_mask mask;
    if (name != NULL) mask = mf_mask(name);
    if (name != NULL && mask.kind == BS_MASK_UNEVEN) {
      mask.n_shares = P;
      mask.shares = shares;
    }
    const int masked =
        strcmp(subjects[_i].method, "blockshock") == 0 || strcmp(subjects[_i].method, "masked_split") == 0;
    const int complement = masked && (name == NULL || mask.kind == BS_MASK_COMPLEMENT);
    if (complement && P > 2 && P % 2 != 0) continue; /* refused: test_method_refuse */
    if (strcmp(subjects[_i].method, "dense") == 0 && P > 1) break;
    for (size_t shape = 0; shape < sizeof shapes / sizeof shapes[0]; shape++)
      for (size_t v = BS_SLOW ? (shape + P) % 3 : 0; v < N_VARIANTS; v += BS_SLOW ? 3 : 1)
        run_point(context, name != NULL ? &mask : NULL, _i, P, shape, v);
  }
  bs_context_close(context);
}
END_TEST

/* On real numbers the sum is rounded, but every rank must round it to the same bits. */
START_TEST(same_bits_on_every_rank) {
  static const char *const methods[] = {"column_parallel", "row_parallel", "masked_split", "blockshock"};
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
  bs_context *context = mf_context();
  const int64_t B = 9, N = 37, K = 53;
  float *x = mf_normals(7, B * K), *w = mf_normals(8, N * K), *bias = mf_normals(9, N);
  for (size_t d = 0; d < 3; d++)
    for (uint32_t P = 2; P <= 4; P += 2) {
      mf_case c = {.method = methods[_i], .backend = "cpu", .world = P, .x = x, .w = w, .bias = bias};
      c.spec = mf_spec(B, N, K, dtypes[d]);
      c.spec.has_bias = 1;
      mf_result result;
      mf_run_ok(context, &c, &result);
      for (uint32_t r = 1; r < P; r++)
        ck_assert_mem_eq(result.rank[r].y_bits, result.rank[0].y_bits, result.rank[0].y_bytes);
      double *want = mf_reference(&c), error = 0, norm = 0;
      for (int64_t i = 0; i < B * N; i++) {
        error += (result.rank[0].y[i] - want[i]) * (result.rank[0].y[i] - want[i]);
        norm += want[i] * want[i];
      }
      const double u = bs_dtype_unit_roundoff(dtypes[d]);
      ck_assert_msg(error <= u * u * norm * (dtypes[d] == BS_F32 ? 64.0 : 1.0), "%s: relative error %g u",
                    methods[_i], error / (u * u * norm));
      free(want);
      mf_free(&result);
    }
  free(x);
  free(w);
  free(bias);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{exact_on_integers, N_SUBJECTS}, {same_bits_on_every_rank, 4}, {0}};
  return run_tests("method_grid", tests, (test_setup){.timeout = 200});
}
