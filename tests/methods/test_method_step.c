/* SPDX-License-Identifier: MIT
 *
 * test_method_step.c - steps of SGD (fused, plain with decay, with momentum) and AdamW behind the backward
 * pass of every method x mask x P x odd shape x placement x dtype x backend: exact on small integers where
 * the arithmetic is. K14, and what is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "kit/method_gradient.h"
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
    {"blockshock", "0110"},
    {"blockshock", "interleave"},
    {"blockshock", "uneven"},
    {"masked_split", NULL},
    {"masked_split", "uneven"},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))

static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {5, 17, 33}, {7, 2, 5}};
static const double shares[5] = {5, 1, 2, 0.25, 3};

typedef struct variant {
  uint32_t dtype, x_placement, y_placement, bias, fewer_rows;
  const char *backend;
} variant;
static const variant variants[] = {
    {BS_F32, BS_REPLICATED, BS_REPLICATED, 1, 0, "ref"}, {BS_BF16, BS_REPLICATED, BS_REPLICATED, 1, 1, "cpu"},
    {BS_F16, BS_SPLIT, BS_REPLICATED, 1, 0, "ref"},      {BS_F32, BS_REPLICATED, BS_SPLIT, 1, 1, "cpu"},
    {BS_F64, BS_REPLICATED, BS_PARTIAL, 1, 0, "ref"},    {BS_F32, BS_SPLIT, BS_SPLIT, 0, 0, "cpu"},
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

static void run_point(bs_context *context, const bs_mask *mask, int subject, uint32_t P, size_t shape,
                      size_t v, uint32_t step) {
  const variant *var = &variants[v];
  const int64_t B = shapes[shape][0], N = shapes[shape][1], K = shapes[shape][2];
  mg_case g = {.backend = var->backend,
               .method = subjects[subject].method,
               .world = P,
               .step = step,
               .rows = var->fewer_rows && B > 1 ? B - 1 : B};
  g.spec = mf_spec(B, N, K, var->dtype);
  g.spec.x_placement = var->x_placement;
  g.spec.y_placement = var->y_placement;
  g.spec.has_bias = var->bias;
  g.spec.mask = mask;
  float *x = mf_integers(1 + shape, B * K), *w = mf_integers(100 + shape, N * K),
        *dy = mf_integers(300 + shape, B * N);
  g.x = x;
  g.w = w;
  g.dy = dy;
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = mg_run(context, &g, &err);
  const int refused = P > 1 && strcmp(g.method, "column_parallel") == 0 &&
                      (var->x_placement == BS_SPLIT || var->y_placement == BS_PARTIAL);
  ck_assert_msg(rc == (refused ? BS_UNSUPPORTED : BS_OK), "%s on %s, P=%u, B=%lld N=%lld K=%lld: %s %s (%s)",
                g.method, var->backend, P, (long long)B, (long long)N, (long long)K, err.id, err.message,
                err.where);
  free(x);
  free(w);
  free(dy);
}

START_TEST(steps) {
  bs_context *context = mf_context();
  const char *name = subjects[_i].mask;
  for (uint32_t P = 1; P <= 5; P += P < 3 ? 1 : 2) {
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
        for (uint32_t step = MG_FUSED; step < MG_STEPS_; step++)
          run_point(context, name != NULL ? &mask : NULL, _i, P, shape, v, step);
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{steps, N_SUBJECTS}, {0}};
  return run_tests("method_step", tests, (test_setup){.timeout = 200});
}
