/* SPDX-License-Identifier: MIT
 *
 * test_method_masked.c - masked_split under masks that keep other columns in each row: a grid of masks x
 * dtypes x P x placements x odd shapes on small integers, with zeros and -0.0 among the weights. y, dX, dW
 * and db must be the exact products, every weight owned, read and read back by one rank, what was proposed
 * counted by the host. Behind the backward pass two steps of SGD and of AdamW. An infinite weight reaches the
 * ranks that keep it alone. And the chunks, tokens and refusals of such layers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/method_gradient.h"
#include "tests/marks.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

static const char *const masks[] = {"magnitude", "random_2of4", "transposable"};
#define N_MASKS 3
/* B, N, K: K no multiple of 4 or less than 4, one feature, fewer features and groups than ranks. */
static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {4, 9, 13}, {5, 17, 33}, {7, 2, 5}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

typedef struct variant {
  uint32_t dtype, x_placement, y_placement, reduce_dtype, bias, fewer_rows;
  const char *backend, *key, *value;
} variant;
static const variant variants[] = {
    {BS_F32, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, "ref", NULL, NULL},
    {BS_BF16, BS_REPLICATED, BS_REPLICATED, 0, 0, 1, "cpu", NULL, NULL},
    {BS_F32, BS_REPLICATED, BS_SPLIT, 0, 1, 1, "cpu", NULL, NULL},
    {BS_F16, BS_REPLICATED, BS_SPLIT, BS_F64, 1, 0, "ref", "repro", "R2"},
    {BS_F64, BS_REPLICATED, BS_PARTIAL, 0, 1, 0, "ref", NULL, NULL},
    {BS_F32, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, "cpu", "overlap", "3"}, /* of features, or tokens */
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

typedef struct point {
  const bs_mask *mask;
  const variant *v;
  uint32_t P, step;
  const int64_t *shape;
} point;

static bs_layer_spec spec_of(const point *p) {
  bs_layer_spec spec = mf_spec(p->shape[0], p->shape[1], p->shape[2], p->v->dtype);
  spec.x_placement = p->v->x_placement;
  spec.y_placement = p->v->y_placement;
  spec.reduce_dtype = p->v->reduce_dtype;
  spec.has_bias = p->v->bias;
  spec.mask = p->mask;
  spec.n_options = p->v->key != NULL;
  spec.option_keys = &p->v->key;
  spec.option_values = &p->v->value;
  return spec;
}

static void forward_point(bs_context *context, const point *p) {
  const int64_t B = p->shape[0], N = p->shape[1], K = p->shape[2];
  float *x = mf_integers(1, B * K), *w = mf_signed_zeros(100, N * K), *bias = mf_integers(200, N);
  mf_case c = {.method = "masked_split",
               .backend = p->v->backend,
               .world = p->P,
               .forwards = 2,
               .rows = p->v->fewer_rows && B > 1 ? B - 1 : 0,
               .x = x,
               .w = w,
               .bias = p->v->bias ? bias : NULL};
  c.spec = spec_of(p);
  mf_result result;
  mf_run_ok(context, &c, &result);
  mf_check_outputs(&c, &result);
  mf_check_ownership(&c, &result, 0);
  mf_check_counters(&c, &result);
  for (uint32_t r = 0; r < p->P; r++) {
    const mf_rank *k = &result.rank[r];
    /* All K columns are multiplied and stored, whatever is kept of them. */
    ck_assert_uint_eq(k->proposal.flops, (uint64_t)(2 * B * N * K));
    ck_assert_uint_eq(k->proposal.weight_bytes, (uint64_t)(N * K) * BS_DTYPE_BYTES(p->v->dtype));
    ck_assert_uint_eq(k->regions[BS_REGION_COMPRESS], p->P > 1);
    ck_assert_uint_eq(k->regions[BS_REGION_PACK], 1);
    mf_check_signs(k, w, K); /* -0.0 stays, and 0 is no less */
  }
  mf_free(&result);
  free(x);
  free(w);
  free(bias);
}

static void backward_point(bs_context *context, const point *p) {
  const int64_t B = p->shape[0], N = p->shape[1], K = p->shape[2];
  float *x = mf_integers(1, B * K), *w = mf_signed_zeros(100, N * K), *dy = mf_integers(300, B * N);
  mg_case g = {.method = "masked_split",
               .backend = p->v->backend,
               .world = p->P,
               .step = p->step,
               .rows = p->v->fewer_rows && B > 1 ? B - 1 : B,
               .x = x,
               .w = w,
               .dy = dy};
  g.spec = spec_of(p);
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = mg_run(context, &g, &err);
  ck_assert_msg(rc == BS_OK, "backward and step %u of %s on %s, P=%u, B=%lld N=%lld K=%lld: %s %s (%s)",
                p->step, p->mask->name, p->v->backend, p->P, (long long)B, (long long)N, (long long)K, err.id,
                err.message, err.where);
  free(x);
  free(w);
  free(dy);
}

static void grid(int m, uint32_t step, void (*run)(bs_context *context, const point *p)) {
  bs_context *context = mf_context();
  bs_mask mask = mf_mask(masks[m]);
  mask.seed = 7;
  for (uint32_t P = step != MG_NONE ? 2 : 1; P <= 6; P += P == 1 ? 1 : 2)
    for (size_t v = 0; v < N_VARIANTS; v++)
      for (size_t shape = BS_SLOW ? (v + P + step) % 4 : 0; shape < N_SHAPES; shape += BS_SLOW ? 4
                                                                                       : step != MG_NONE
                                                                                           ? 2
                                                                                           : 1) {
        const point p = {&mask, &variants[v], P, step, shapes[shape]};
        run(context, &p);
      }
  bs_context_close(context);
}

START_TEST(exact_forward) {
  grid(_i, MG_NONE, forward_point);
}
END_TEST

START_TEST(exact_backward) {
  grid(_i, MG_NONE, backward_point);
}
END_TEST

START_TEST(exact_steps) {
  grid(_i / (MG_STEPS_ - 1), MG_FUSED + (uint32_t)(_i % (MG_STEPS_ - 1)), backward_point);
}
END_TEST

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
  const test_case tests[] = {{exact_forward, N_MASKS},
                             {exact_backward, N_MASKS},
                             {exact_steps, N_MASKS * (MG_STEPS_ - 1)},
                             {others_do_not_leak, 3},
                             {same_bits_in_chunks, N_MASKS},
                             {proposals_say_how, N_MASKS},
                             {0}};
  return run_tests("method_masked", tests, (test_setup){.timeout = 120});
}
