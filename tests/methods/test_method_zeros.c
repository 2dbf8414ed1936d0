/* SPDX-License-Identifier: MIT
 * test_method_zeros.c - zero weights stay zeros and stay where they are (the predecessor replaced them before
 * compressing). The arithmetic of the epsilon that it put in is checked here, and that nothing of the kind
 * happens: zeros and -0.0 stay what they are in what each rank holds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { N = 4, K = 8, P = 2 };
static const float weights[N * K] = {0.0f, -0.0f, 1, -2, 0, 0, 3, -0.0f, 1, 2, 3, 4, 5, 6, 7, 8,
                                     0,    0,     0, 0,  0, 0, 0, 0,     1, 0, 2, 0, 3, 0, 4, -0.0f};

typedef struct held {
  uint32_t dtype;
  bs_source w;
  double value[P][N * K / P];
} held;

static int32_t read_back(bs_rank *rank, void *arg, bs_error *err) {
  held *h = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const bs_layer_spec spec = {.struct_size = sizeof spec,
                              .B = 1,
                              .N = N,
                              .K = K,
                              .x_dtype = h->dtype,
                              .w_dtype = h->dtype,
                              .y_dtype = h->dtype};
  bs_layer *layer = NULL;
  bs_tensor out = {0};
  bs_tensor_desc desc = {.struct_size = sizeof desc, .dtype = h->dtype, .rank = 2};
  desc.dims[0] = N;
  desc.dims[1] = K / P;
  unsigned char bytes[8 * N * K / P];
  int32_t rc = bs_layer_build(rank, "blockshock", &spec, &h->w, NULL, &layer, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &desc, BS_LIFE_SCRATCH, &out, err);
  if (rc == BS_OK) rc = bs_layer_read_weights(layer, 0, &out, err);
  if (rc == BS_OK) rc = bs_rank_copy_out(rank, &out, bytes, err);
  for (int i = 0; rc == BS_OK && i < N * K / P; ++i)
    h->value[api->rank(rank)][i] = bs_load_f64(h->dtype, bytes, i);
  if (out.data) api->tensor_free(rank, &out);
  bs_layer_free(layer);
  return rc;
}

START_TEST(zeros_survive_on_every_rank) {
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
  static const char *const backends[] = {"ref", "cpu"};
  bs_error err;
  bs_context *context = NULL;
  ck_assert_int_eq(bs_context_open(NULL, &context, &err), BS_OK);
  for (int d = 0; d < 3; ++d) {
    for (int b = 0; b < 2; ++b) {
      held h = {.dtype = dtypes[d]};
      const bs_world_options options = {
          .struct_size = sizeof options, .world_size = P, .backend = backends[b], .threads_per_rank = 1};
      bs_world *world = NULL;
      ck_assert_int_eq(bs_source_from_memory(weights, BS_F32, N, K, K, &h.w, &err), BS_OK);
      ck_assert_int_eq(bs_world_create(context, &options, &world, &err), BS_OK);
      const int32_t rc = bs_world_run(world, read_back, &h, &err);
      ck_assert_msg(rc == BS_OK, "%s", err.message);
      for (int r = 0; r < P; ++r) {
        for (int n = 0; n < N; ++n) {
          for (int i = 0; i < K / P; ++i) {
            const int k = (i / 2) * 4 + 2 * r + i % 2; /* 1100 for rank 0, 0011 for rank 1 */
            const double got = h.value[r][n * K / P + i];
            ck_assert_double_eq(got, weights[n * K + k]);
            ck_assert_int_eq(signbit(got) != 0, signbit(weights[n * K + k]) != 0);
          }
        }
      }
      bs_world_destroy(world);
      bs_source_release(&h.w);
    }
  }
  bs_context_close(context);
}
END_TEST

/* K19: [0, -0.0, 1, -2] nudged is [eps, eps, 1, -2]. */
START_TEST(the_originals_epsilon) {
  ck_assert_double_eq(2 * bs_dtype_unit_roundoff(BS_BF16), 0.0078125);
  ck_assert_double_eq(2 * bs_dtype_unit_roundoff(BS_F16), 0.0009765625);
  ck_assert_double_eq_tol(2 * bs_dtype_unit_roundoff(BS_F32), 1.1920929e-7, 1e-14);
  const uint32_t dtypes[] = {BS_BF16, BS_F16, BS_F32};
  for (int d = 0; d < 3; ++d) {
    unsigned char cell[8];
    const double eps = 2 * bs_dtype_unit_roundoff(dtypes[d]);
    bs_store_f64(dtypes[d], cell, 0, eps);
    ck_assert_double_eq(bs_load_f64(dtypes[d], cell, 0),
                        eps); /* representable: adding it would change the matrix */
    bs_store_f64(dtypes[d], cell, 0, 1.0 + eps);
    ck_assert_double_eq(bs_load_f64(dtypes[d], cell, 0), 1.0 + eps); /* and it is the step above one */
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{zeros_survive_on_every_rank}, {the_originals_epsilon}, {0}};
  return run_tests("method_zeros", tests, (test_setup){0});
}
