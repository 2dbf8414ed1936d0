/* SPDX-License-Identifier: MIT
 *
 * test_method_memory.c - tracked memory of a layer: while building and running at P = 2 a method may hold
 * at most 1.10 times its own half of W plus X plus Y, and forward may take nothing at all. What an optimiser
 * remembers is what the proposal says, of columns and of 2:4 values.
 */
#include <stdlib.h>
#include <string.h>

#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { N = 2048, K = 2048, TILES = 2 };

typedef struct point {
  const char *method, *mask, *backend;
  uint32_t dtype;
  int64_t b, n, k;
  int amx; /* 1: oneDNN multiplies, as on a processor with AMX; TILES: our kernels, by the model of tiles */
} point;

/* The cpu kernels' scratch is a constant, some 130 KiB a thread: its points are those where a constant is
 * small. 16-bit layers keep an f32 partial of Y: few tokens, where it is small too. */
static const point points[] = {
    {"blockshock", NULL, "ref", BS_F32, 64, N, K},
    {"blockshock", "interleave", "ref", BS_F32, 64, N, K},
    {"row_parallel", NULL, "ref", BS_F32, 64, N, K},
    {"column_parallel", NULL, "ref", BS_F32, 64, N, K},
    {"blockshock", NULL, "cpu", BS_F32, 64, N, K},
    {"blockshock", "1001", "cpu", BS_F32, 64, N, K},
    {"row_parallel", NULL, "cpu", BS_F32, 64, N, K},
    {"column_parallel", NULL, "cpu", BS_F32, 64, N, K},
    {"blockshock", NULL, "cpu", BS_BF16, 16, N, K},
    {"blockshock", NULL, "cpu", BS_BF16, 16, N, K, TILES},
    {"row_parallel", NULL, "cpu", BS_BF16, 16, N, K, TILES},
    {"column_parallel", NULL, "cpu", BS_BF16, 64, N, K, TILES},
#ifdef TEST_DNNL_WITH_AMX
    {"blockshock", NULL, "cpu", BS_BF16, 16, N, K, 1},
    {"row_parallel", NULL, "cpu", BS_BF16, 16, N, K, 1},
    {"column_parallel", NULL, "cpu", BS_BF16, 64, N, K, 1},
    {"column_parallel", NULL, "cpu", BS_F32, 64, N, K, 1},
    {"row_parallel", NULL, "cpu", BS_F32, 64, 2000, 2072, 1},
#endif
};
#define N_POINTS ((int)(sizeof points / sizeof points[0]))

static bs_context *context_of(const point *p) {
  static const char *const tiles[] = {"cpu.isa=amx_model"};
  if (p->amx == TILES) return mf_context_with(tiles, 1);
#ifdef TEST_DNNL_WITH_AMX
  static const char *const params[] = {"cpu.matmul=dnnl", "cpu.dnnl_library=" TEST_DNNL_WITH_AMX};
  if (p->amx) return mf_context_with(params, 2);
#endif
  return mf_context();
}

START_TEST(peak_of_build_and_forward) {
  const point *p = &points[_i];
  const int64_t B = p->b;
  if (p->amx && p->dtype == BS_BF16 && !__builtin_cpu_supports("avx512bw")) return; /* oneDNN has none */
  bs_context *context = context_of(p);
  float *x = mf_integers(1, B * p->k), *w = mf_integers(2, p->n * p->k);
  bs_mask mask;
  mf_case c = {.method = p->method, .backend = p->backend, .world = 2, .forwards = 2, .x = x, .w = w};
  c.spec = mf_spec(B, p->n, p->k, p->dtype);
  c.spec.mask = mf_mask_in(p->mask, &mask);
  mf_result result;
  mf_run_ok(context, &c, &result);
  if (p->amx == TILES) ck_assert_ptr_nonnull(strstr(result.algorithms, "matmul@cpu/amx"));
  const uint64_t size = BS_DTYPE_BYTES(p->dtype);
  const uint64_t half_w = (uint64_t)p->n * (uint64_t)p->k / 2 * size;
  const uint64_t both = 2 * (half_w + (uint64_t)(B * (p->n + p->k)) * size);
  ck_assert_msg(result.memory_peak >= both,
                "tracked %llu bytes, the tensors alone are %llu: not everything is counted",
                (unsigned long long)result.memory_peak, (unsigned long long)both);
  ck_assert_msg((double)result.memory_peak <= 1.10 * (double)both, "%s on %s: peak %llu is %.3f of %llu",
                p->method, p->backend, (unsigned long long)result.memory_peak,
                (double)result.memory_peak / (double)both, (unsigned long long)both);
  ck_assert_uint_eq(result.memory_peak_forward, result.memory_after_build);
  for (uint32_t r = 0; r < 2; r++) {
    const bs_proposal *proposal = &result.rank[r].proposal;
    ck_assert_uint_eq(proposal->weight_bytes, half_w);
    /* The proposal bounds what the layer holds beside weights: half of the tracked rest belongs to a rank. */
    ck_assert_uint_ge(
        2 * (proposal->weight_bytes + proposal->workspace_bytes) + both - 2 * half_w + both / 20,
        result.memory_after_build);
  }
  free(x);
  free(w);
  mf_free(&result);
  bs_context_close(context);
}
END_TEST

static const struct {
  const char *mask;
  uint32_t flags;
  uint64_t state; /* bytes of a weight that are remembered */
} steps[] = {{NULL, BS_LAYER_SGD, 0},          {NULL, BS_LAYER_ADAMW, 8},
             {"magnitude", BS_LAYER_SGD, 0},   {"magnitude", BS_LAYER_SGD | BS_LAYER_MOMENTUM, 4},
             {"magnitude", BS_LAYER_ADAMW, 8}, {"random_2of4", BS_LAYER_ADAMW, 8}};

START_TEST(what_a_step_remembers) {
  const int64_t B = 4, n = 1024, k = 1024;
  bs_context *context = mf_context();
  float *x = mf_integers(1, B * k), *w = mf_integers(2, n * k);
  bs_mask mask;
  mf_case c = {.method = "blockshock", .backend = "ref", .world = 2, .forwards = 1, .x = x, .w = w};
  c.spec = mf_spec(B, n, k, BS_F32);
  c.spec.flags = BS_LAYER_BACKWARD | steps[_i].flags;
  c.spec.mask = mf_mask_in(steps[_i].mask, &mask);
  mf_result result;
  mf_run_ok(context, &c, &result);
  uint64_t proposed = 0;
  const uint64_t tensors = 2 * (uint64_t)(B * (n + k)) * 4, own = (uint64_t)(n * k / 2);
  for (uint32_t r = 0; r < 2; r++) {
    const bs_proposal *p = &result.rank[r].proposal;
    ck_assert_uint_ge(p->workspace_bytes, own * steps[_i].state);
    /* And scratch of B tokens; positions of magnitude, half a byte for two kept weights. */
    ck_assert_uint_le(p->workspace_bytes, own * steps[_i].state + own / 8 + own / 4);
    proposed += p->weight_bytes + p->workspace_bytes;
  }
  ck_assert_msg(
      result.memory_after_build >= proposed && result.memory_after_build <= proposed + tensors + proposed / 8,
      "tracked %llu bytes, proposed %llu and %llu of tensors", (unsigned long long)result.memory_after_build,
      (unsigned long long)proposed, (unsigned long long)tensors);
  free(x);
  free(w);
  mf_free(&result);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {peak_of_build_and_forward, N_POINTS}, {what_a_step_remembers, TEST_COUNT(steps)}, {0}};
  return run_tests("method_memory", tests, (test_setup){.timeout = 120});
}
