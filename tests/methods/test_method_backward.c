/* SPDX-License-Identifier: MIT
 *
 * test_method_backward.c - the backward pass of every method x mask x P x odd shape x placement x dtype x
 * backend on small integers, whose sums are exact: dX, dW and db must be the exact products, bit for bit, dX
 * the same on every rank; the counters are those that were proposed, and nothing is allocated while it runs.
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
    {"blockshock", "1010"},
    {"blockshock", "0110"},
    {"blockshock", "interleave"},
    {"blockshock", "contiguous"},
    {"blockshock", "uneven"},
    {"masked_split", NULL},
    {"masked_split", "1001"},
    {"masked_split", "uneven"},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))

static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {2, 3, 2}, {4, 9, 13}, {5, 17, 33}, {7, 2, 5}};
static const double shares[5] = {5, 1, 2, 0.25, 3};

typedef struct variant {
  uint32_t dtype, x_placement, y_placement, reduce_dtype, bias, fewer_rows;
  const char *backend;
} variant;
static const variant variants[] = {
    {BS_F32, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, "ref"},
    {BS_BF16, BS_REPLICATED, BS_REPLICATED, 0, 0, 1, "cpu"},
    {BS_F16, BS_SPLIT, BS_REPLICATED, BS_F64, 1, 0, "ref"},
    {BS_F32, BS_REPLICATED, BS_SPLIT, 0, 1, 1, "cpu"},
    {BS_BF16, BS_SPLIT, BS_SPLIT, 0, 1, 0, "ref"},
    {BS_F64, BS_REPLICATED, BS_PARTIAL, 0, 1, 0, "ref"},
    {BS_F32, BS_SPLIT, BS_PARTIAL, 0, 0, 0, "cpu"},
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

static void run_point(bs_context *context, const bs_mask *mask, int subject, uint32_t P, size_t shape,
                      size_t v) {
  const variant *var = &variants[v];
  const int64_t B = shapes[shape][0], N = shapes[shape][1], K = shapes[shape][2];
  mg_case g = {.backend = var->backend,
               .method = subjects[subject].method,
               .world = P,
               .rows = var->fewer_rows && B > 1 ? B - 1 : B};
  g.spec = mf_spec(B, N, K, var->dtype);
  g.spec.x_placement = var->x_placement;
  g.spec.y_placement = var->y_placement;
  g.spec.reduce_dtype = var->reduce_dtype;
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

static bs_tensor take(bs_rank *rank, int64_t rows, int64_t cols) {
  bs_tensor t;
  bs_error err = BS_ERROR_INIT;
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = 2, .dims = {rows, cols}};
  ck_assert_int_eq(bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t, &err), BS_OK);
  return t;
}

static int32_t forward_only(bs_rank *rank, void *arg, bs_error *err) {
  const mg_case *g = arg;
  bs_source w;
  bs_layer *layer = NULL;
  int32_t rc = bs_source_from_memory(g->w, BS_F32, g->spec.N, g->spec.K, g->spec.K, &w, err);
  if (rc == BS_OK) rc = bs_layer_build(rank, g->method, &g->spec, &w, NULL, &layer, err);
  if (rc != BS_OK) return rc;
  bs_tensor x = take(rank, 2, g->spec.K), dy = take(rank, 2, g->spec.N), dx = take(rank, 2, g->spec.K);
  rc = bs_layer_backward(layer, &x, &dy, &dx, NULL, NULL, NULL, err);
  bs_tensor *const all[] = {&x, &dy, &dx};
  for (size_t i = 0; i < 3; i++) bs_rank_get_api()->tensor_free(rank, all[i]);
  bs_layer_free(layer);
  bs_source_release(&w);
  return rc;
}

/* What has no backward pass says so, and how to have one. */
START_TEST(refusals) {
  bs_context *context = mf_context();
  float *w = mf_integers(1, 64);
  mg_case g = {.method = "dense", .world = 1, .rows = 2, .w = w};
  bs_proposal p = {.struct_size = sizeof p};
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  bs_world_options options = {
      .struct_size = sizeof options, .world_size = 1, .backend = "ref", .threads_per_rank = 1};
  g.spec = mf_spec(2, 8, 8, BS_F32);
  ck_assert_int_eq(bs_world_create(context, &options, &world, &err), BS_OK);
  ck_assert_int_eq(bs_world_run(world, forward_only, &g, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-METHOD-BACKWARD");
  ck_assert(strstr(err.hint, "BS_LAYER_BACKWARD") != NULL);
  bs_world_destroy(world);
  g.spec.flags = BS_LAYER_BACKWARD;
  g.spec.activation = BS_ACT_GELU;
  ck_assert_int_eq(bs_method_propose(context, "dense", &g.spec, 0, 1, &p, &err), BS_OK);
  g.spec = mf_spec(2, 8, 8, BS_I32);
  g.spec.flags = BS_LAYER_BACKWARD;
  ck_assert_int_eq(bs_method_propose(context, "dense", &g.spec, 0, 1, &p, &err), BS_UNSUPPORTED);
  g.spec = mf_spec(2, 8, 8, BS_F32);
  g.spec.flags = 64;
  ck_assert_int_eq(bs_method_propose(context, "dense", &g.spec, 0, 1, &p, &err), BS_CONFIG);
  free(w);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{exact_on_integers, N_SUBJECTS}, {refusals}, {0}};
  return run_tests("method_backward", tests, (test_setup){.timeout = 200});
}
