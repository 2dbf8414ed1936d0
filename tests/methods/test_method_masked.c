/* SPDX-License-Identifier: MIT
 *
 * test_method_masked.c - masked_split under masks that keep other columns in each row, in addition to
 * test_method_exact: an infinite weight reaches only the ranks that keep it, chunks of features
 * have the bits of the whole, and what such a layer proposes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const char *const masks[] = {"magnitude", "random_2of4", "transposable"};
#define N_MASKS 3

/* Half 1 of a magnitude mask never keeps an infinite weight: no NaN (inf times the zeros of x) may come of it
 * there, and half 0 has the only one. A column of x is zero where half 0 keeps 2:4 neighbours of it. */
START_TEST(others_do_not_leak) {
  static const float extremes[] = {INFINITY, -INFINITY, NAN};
  const int64_t B = 3, N = 5, K = 14;
  bs_context *context = mf_context();
  const bs_mask mask = mf_mask("magnitude");
  float *x = mf_integers(1, B * K), *w = mf_integers(2, N * K);
  w[2 * K + 5] = extremes[_i];
  mf_case c = {.method = "masked_split", .backend = "cpu", .world = 4, .x = x, .w = w};
  c.spec = mf_spec(B, N, K, BS_F32);
  c.spec.mask = &mask;
  c.spec.y_placement = BS_PARTIAL;
  mf_result result;
  mf_run_ok(context, &c, &result);
  for (uint32_t r = 0; r < 4; r++)
    for (int64_t i = 0; i < B * N; i++) {
      const int has = r == 0 && i % N == 2 && !(isinf(extremes[_i]) && x[i / N * K + 5] == 0.0f);
      ck_assert_msg(isfinite(result.rank[r].y[i]) || (r == 0 && i % N == 2), "rank %u, y[%lld] is %g", r,
                    (long long)i, result.rank[r].y[i]);
      ck_assert(!has || !isfinite(result.rank[r].y[i]));
    }
  mf_free(&result);
  free(x);
  free(w);
  bs_context_close(context);
}
END_TEST

/* Chunks of features are pieces of the masked weight, and the bits of y are those of the whole. */
START_TEST(same_bits_in_chunks) {
  static const char *const key[] = {"overlap"}, *const value[] = {"4"};
  const int64_t B = 9, N = 130, K = 53;
  bs_context *context = mf_context();
  bs_mask mask = mf_mask(masks[_i]);
  float *x = mf_normals(7, B * K), *w = mf_normals(8, N * K);
  mf_case c = {.method = "masked_split", .backend = "cpu", .world = 4, .x = x, .w = w};
  c.spec = mf_spec(B, N, K, BS_F32);
  c.spec.mask = &mask;
  mf_result whole, chunks;
  mf_run_ok(context, &c, &whole);
  c.spec.n_options = 1;
  c.spec.option_keys = key;
  c.spec.option_values = value;
  mf_run_ok(context, &c, &chunks);
  ck_assert_uint_eq(chunks.rank[0].proposal.chunks, 4);
  for (uint32_t r = 0; r < 4; r++) {
    ck_assert_mem_eq(chunks.rank[r].y_bits, whole.rank[0].y_bits, whole.rank[0].y_bytes);
    ck_assert_mem_eq(chunks.rank[r].weights, whole.rank[r].weights,
                     (size_t)(N * whole.rank[r].k_own) * sizeof *w);
  }
  double *want = mf_reference(&c), error = 0, norm = 0;
  for (int64_t i = 0; i < B * N; i++) {
    error += (whole.rank[0].y[i] - want[i]) * (whole.rank[0].y[i] - want[i]);
    norm += want[i] * want[i];
  }
  ck_assert_double_le(error, 1e-12 * norm);
  free(want);
  mf_free(&whole);
  mf_free(&chunks);
  free(x);
  free(w);
  bs_context_close(context);
}
END_TEST

/* One rank has both halves, which is the dense layer; the proposal says how more of them share it. */
START_TEST(proposals_say_how) {
  bs_context *context = mf_context();
  bs_mask mask = mf_mask(masks[_i]);
  bs_layer_spec spec = mf_spec(8, 16, 40, BS_BF16);
  spec.mask = &mask;
  bs_proposal p = {.struct_size = sizeof p};
  ck_assert_int_eq(bs_method_propose(context, "masked_split", &spec, 0, 1, &p, NULL), BS_OK);
  ck_assert_str_eq(p.text, "all of W on one rank");
  ck_assert_int_eq(bs_method_propose(context, "masked_split", &spec, 3, 4, &p, NULL), BS_OK);
  ck_assert_str_eq(p.text,
                   "half 1 of columns 20..+20, other ones in each row, zeros multiplied too, all_reduce");
  ck_assert_uint_eq(p.split, BS_SPLIT_K);
  ck_assert_uint_eq(p.n_collectives, 1);
  /* Positions that look at the weights are remembered: half a byte a group of four. */
  ck_assert_uint_eq(p.workspace_bytes, 8 * 16 * 4 + (strcmp(masks[_i], "random_2of4") != 0 ? 16 * 3 : 0));
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {others_do_not_leak, 3}, {same_bits_in_chunks, N_MASKS}, {proposals_say_how, N_MASKS}, {0}};
  return run_tests("method_masked", tests, (test_setup){.timeout = 120});
}
