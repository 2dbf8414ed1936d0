/* SPDX-License-Identifier: MIT
 *
 * test_method_by_row.c - blockshock by 2:4 values over a grid of masks x dtypes x P x slices x odd shapes on
 * small integers, with zeros and -0.0 among the weights: y, dX, dW and db must be the exact products, every
 * weight read back from the one rank that owns it, what was proposed counted by the host. Behind the backward
 * pass two steps of SGD (fused, with decay, with momentum) and of AdamW.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/method_gradient.h"
#include "tests/marks.h"
#include "tests/methods/by_row_options.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

static const char *const masks[] = {"magnitude", "random_2of4", "transposable", "1010"};
/* B, N, K: K no multiple of 4 or less than 4, one feature, fewer features and groups than ranks. */
static const int64_t shapes[][3] = {{1, 1, 1},   {3, 5, 7},   {2, 1, 8}, {4, 9, 13},
                                    {5, 17, 33}, {8, 16, 32}, {7, 2, 5}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

typedef struct variant {
  uint32_t dtype, y_placement, reduce_dtype, bias, fewer_rows, activation;
  const char *backend;
} variant;
static const variant variants[] = {
    {BS_F32, BS_REPLICATED, 0, 1, 0, BS_ACT_NONE, "ref"},
    {BS_BF16, BS_REPLICATED, 0, 0, 1, BS_ACT_NONE, "cpu"},
    {BS_F16, BS_REPLICATED, BS_F64, 1, 0, BS_ACT_NONE, "ref"},
    {BS_F32, BS_SPLIT, 0, 1, 1, BS_ACT_NONE, "cpu"},
    {BS_BF16, BS_SPLIT, 0, 1, 0, BS_ACT_NONE, "ref"},
    {BS_F64, BS_PARTIAL, 0, 1, 0, BS_ACT_NONE, "ref"},
    {BS_F32, BS_REPLICATED, 0, 1, 1, BS_ACT_NONE, "cpu"},
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

typedef struct point {
  const bs_mask *mask;
  const variant *v;
  const char *slices;
  uint32_t P, step;
  const int64_t *shape;
} point;

static bs_layer_spec spec_of(const point *p) {
  bs_layer_spec spec = mf_spec(p->shape[0], p->shape[1], p->shape[2], p->v->dtype);
  spec.y_placement = p->v->y_placement;
  spec.reduce_dtype = p->v->reduce_dtype;
  spec.has_bias = p->v->bias;
  spec.activation = p->v->activation;
  spec.mask = p->mask;
  return spec;
}

static void forward_point(bs_context *context, const point *p) {
  const int64_t B = p->shape[0], N = p->shape[1], K = p->shape[2];
  float *x = mf_integers(1, B * K), *w = mf_signed_zeros(100, N * K), *bias = mf_integers(200, N);
  mf_case c = {.method = "blockshock",
               .backend = p->v->backend,
               .world = p->P,
               .forwards = 2,
               .rows = p->v->fewer_rows && B > 1 ? B - 1 : 0,
               .x = x,
               .w = w,
               .bias = p->v->bias ? bias : NULL};
  c.spec = spec_of(p);
  const options o = choose(&c.spec, p->mask->kind == BS_MASK_COMPLEMENT ? "sparse24" : NULL, p->slices, NULL);
  give(&c.spec, &o);
  mf_result result;
  mf_run_ok(context, &c, &result);
  mf_check_outputs(&c, &result);
  mf_check_ownership(&c, &result, 0);
  mf_check_counters(&c, &result);
  for (uint32_t r = 0; r < p->P; r++) {
    const mf_rank *k = &result.rank[r];
    ck_assert_uint_eq(k->regions[BS_REGION_PACK], k->row_count > 0);
    ck_assert_uint_eq(k->regions[BS_REGION_COMPRESS], p->P > 1 && k->row_count > 0 && k->k_own > 0);
    mf_check_signs(k, w, K); /* -0.0 stays, and 0 is no less */
  }
  mf_free(&result);
  free(x);
  free(w);
  free(bias);
}

/* overlap=auto divides what sums columns; of halves it divides nothing, and their weights can be read. */
START_TEST(auto_overlap_leaves_halves_whole) {
  static const char *const key[] = {"overlap", "overlap_axis"}, *const value[] = {"auto", "features"};
  const int64_t B = 2048, N = 2048, K = 64;
  bs_context *context = mf_context();
  float *x = mf_integers(1, B * K), *w = mf_integers(2, N * K);
  bs_mask mask;
  ck_assert_int_eq(bs_mask_parse("random_2of4", NULL, NULL, &mask, NULL), BS_OK);
  mf_case c = {
      .method = "blockshock", .backend = "cpu", .world = 2, .forwards = 1, .rows = 1, .x = x, .w = w};
  c.spec = mf_spec(B, N, K, BS_F32);
  c.spec.mask = &mask;
  c.spec.n_options = 2;
  c.spec.option_keys = key;
  c.spec.option_values = value;
  bs_mask columns = mf_mask("interleave"); /* which would be divided here, in runs of features */
  bs_layer_spec divided = c.spec;
  bs_proposal p = {.struct_size = sizeof p};
  bs_error err = BS_ERROR_INIT;
  divided.mask = &columns;
  ck_assert_int_eq(bs_method_propose(context, "blockshock", &divided, 0, 2, &p, &err), BS_OK);
  ck_assert_uint_gt(p.chunks, 1);
  ck_assert_ptr_nonnull(strstr(p.text, "features"));
  mf_result result;
  mf_run_ok(context, &c, &result);
  for (uint32_t r = 0; r < 2; r++) {
    const mf_rank *k = &result.rank[r];
    for (int64_t i = 0; i < k->row_count * k->k_own; i += 997)
      ck_assert_float_eq(k->weights[i],
                         w[(k->row_begin + i / k->k_own) * K + mf_column(k, i / k->k_own, i % k->k_own)]);
  }
  mf_free(&result);
  free(x);
  free(w);
  bs_context_close(context);
}
END_TEST

static void backward_point(bs_context *context, const point *p) {
  const int64_t B = p->shape[0], N = p->shape[1], K = p->shape[2];
  float *x = mf_integers(1, B * K), *w = mf_signed_zeros(100, N * K), *dy = mf_integers(300, B * N);
  mg_case g = {.method = "blockshock",
               .backend = p->v->backend,
               .world = p->P,
               .step = p->step,
               .rows = p->v->fewer_rows && B > 1 ? B - 1 : B,
               .x = x,
               .w = w,
               .dy = dy};
  g.spec = spec_of(p);
  const options o = choose(&g.spec, p->mask->kind == BS_MASK_COMPLEMENT ? "sparse24" : NULL, p->slices, NULL);
  give(&g.spec, &o);
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = mg_run(context, &g, &err);
  ck_assert_msg(rc == BS_OK, "backward and step %u of %s on %s, P=%u %s, B=%lld N=%lld K=%lld: %s %s (%s)",
                p->step, p->mask->name, p->v->backend, p->P, p->slices, (long long)B, (long long)N,
                (long long)K, err.id, err.message, err.where);
  free(x);
  free(w);
  free(dy);
}

static void grid(int m, uint32_t step, void (*run)(bs_context *context, const point *p)) {
  static const char *const slices[] = {"row", "column"};
  bs_context *context = mf_context();
  bs_mask mask = mf_mask(masks[m]);
  mask.seed = 7;
  for (uint32_t P = 1; P <= 6; P += P == 1 ? 1 : 2)
    for (size_t s = 0; s < (P > 2 ? 2 : 1); s++)
      for (size_t v = 0; v < N_VARIANTS; v++)
        for (size_t shape = BS_SLOW ? (v + P + step) % 4 : 0; shape < N_SHAPES; shape += BS_SLOW ? 4
                                                                                         : step != MG_NONE
                                                                                             ? 2
                                                                                             : 1) {
          if (variants[v].y_placement == BS_PARTIAL && s == 1) continue; /* refused: by_row_refuse */
          const point p = {&mask, &variants[v], P > 2 ? slices[s] : "auto", P, step, shapes[shape]};
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

/* relu of a sum of integers is exact too, in each place where it is applied. */
START_TEST(activation_after_the_sum) {
  static const char *const backends[] = {"ref", "cpu"};
  static const uint32_t places[] = {BS_REPLICATED, BS_SPLIT};
  const bs_mask mask = mf_mask("magnitude");
  bs_context *context = mf_context();
  const int64_t B = 5, N = 11, K = 22;
  float *x = mf_integers(1, B * K), *w = mf_integers(2, N * K);
  for (uint32_t P = 2; P <= 4; P += 2)
    for (int i = 0; i < 8; i++) {
      const options none = {.n = 0};
      mf_case c = {.method = "blockshock", .backend = backends[i % 2], .world = P, .x = x, .w = w};
      c.spec = mf_spec(B, N, K, i / 2 % 2 ? BS_BF16 : BS_F32);
      options o = none;
      option(&o, "slices", i / 4 ? "column" : "row");
      c.spec.n_options = o.n;
      give(&c.spec, &o);
      c.spec.mask = &mask;
      c.spec.activation = BS_ACT_RELU;
      double *want = mf_reference(&c);
      for (size_t y = 0; y < 2; y++) {
        mf_result result;
        c.spec.y_placement = places[y];
        mf_run_ok(context, &c, &result);
        int64_t begin = 0;
        for (uint32_t r = 0; r < P; r++) {
          const mf_rank *k = &result.rank[r];
          for (int64_t t = 0; t < B; t++)
            for (int64_t n = 0; n < k->y_cols; n++) {
              const double z = want[t * N + begin + n];
              ck_assert_double_eq(k->y[t * k->y_cols + n], z < 0 ? 0 : z);
            }
          if (places[y] == BS_SPLIT) begin += k->y_cols;
        }
        mf_check_counters(&c, &result);
        mf_free(&result);
      }
      free(want);
    }
  free(x);
  free(w);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{exact_forward, 4},
                             {exact_backward, 4},
                             {exact_steps, 4 * (MG_STEPS_ - 1)},
                             {activation_after_the_sum},
                             {auto_overlap_leaves_halves_whole},
                             {0}};
  return run_tests("method_by_row", tests, (test_setup){.timeout = 120});
}
