/* SPDX-License-Identifier: MIT
 *
 * test_cpu_world.c - the cpu plugin as a user meets it: a context finds it, a world of ranks with teams runs
 * its ops, the record says which implementation ran, and its bits do not depend on the teams. */
#include <math.h>
#include <string.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

enum { B = 33, N = 140, K = 520 };

typedef struct job {
  kit_tensor x, w;
  bs_partition partition;
  float y[2][B * N]; /* of each rank */
} job;

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  job *j = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const bs_tensor_desc xd = bs_desc_2d(BS_F32, B, K), yd = bs_desc_2d(BS_F32, B, N);
  const bs_tensor_desc *args[4] = {&xd, NULL, NULL, &yd};
  const bs_op_query q = {.struct_size = sizeof q,
                         .nargs = 4,
                         .op = "matmul",
                         .args = args,
                         .partition = &j->partition,
                         .flags = BS_QUERY_X_FULL,
                         .weight_dtype = BS_F32};
  const bs_source source = kit_tensor_source(&j->w);
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  bs_tensor x = {.struct_size = sizeof x}, y = {.struct_size = sizeof y};
  int32_t rc = api->pack(rank, &q, &source, &packed, err);
  if (rc == BS_OK) rc = api->op_prepare(rank, &q, packed, &plan, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &xd, BS_LIFE_ACTIVATION, &x, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &yd, BS_LIFE_ACTIVATION, &y, err);
  if (rc == BS_OK) {
    bs_tensor *call[4] = {&x, NULL, NULL, &y};
    memcpy(x.data, j->x.t.data, sizeof(float) * B * K);
    rc = api->op_run(plan, call, 4, NULL, err);
    memcpy(j->y[api->rank(rank)], y.data, sizeof j->y[0]);
  }
  if (plan != NULL) api->op_release(plan);
  if (packed != NULL) api->packed_release(packed);
  if (x.data != NULL) api->tensor_free(rank, &x);
  if (y.data != NULL) api->tensor_free(rank, &y);
  return rc;
}

static void run_world(bs_context *context, job *j, uint32_t ranks, uint32_t threads) {
  bs_error err = {.struct_size = sizeof err};
  bs_world *world = NULL;
  const bs_world_options options = {
      .struct_size = sizeof options, .world_size = ranks, .backend = "cpu", .threads_per_rank = threads};
  memset(j->y, 0xff, sizeof j->y);
  ck_assert_msg(bs_world_create(context, &options, &world, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_world_run(world, rank_main, j, &err) == BS_OK, "%s: %s", err.id, err.message);
  ck_assert_msg(strstr(bs_world_algorithms(world), "matmul@cpu/packed") != NULL, "%s",
                bs_world_algorithms(world));
  ck_assert_uint_eq(bs_world_memory_now(world), 0);
  bs_world_destroy(world);
}

START_TEST(a_world_runs_it) {
  bs_error err = {.struct_size = sizeof err};
  const char *dir = getenv("BS_TEST_PLUGIN_DIR");
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY};
  bs_context *context = NULL;
  uint64_t seed = 1;
  static job j;
  float first[B * N];
  options.plugin_dirs = &dir;
  options.n_plugin_dirs = dir != NULL ? 1 : 0;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
  kit_tensor_make(&j.x, BS_F32, 2, B, K, 0);
  kit_tensor_make(&j.w, BS_F32, 2, N, K, 0);
  for (int64_t i = 0; i < K; i++) {
    for (int64_t b = 0; b < B; b++) kit_set(&j.x, b, i, (double)kit_below(&seed, 2001) * 1e-3 - 1);
    for (int64_t n = 0; n < N; n++) kit_set(&j.w, n, i, (double)kit_below(&seed, 2001) * 1e-3 - 1);
  }
  j.partition = ch_pattern(K, 4, 9, 0, K);
  for (uint32_t ranks = 1; ranks <= 2; ranks++)
    for (uint32_t threads = 1; threads <= 3; threads++) {
      run_world(context, &j, ranks, threads);
      if (ranks == 1 && threads == 1) memcpy(first, j.y[0], sizeof first);
      for (uint32_t r = 0; r < ranks; r++) ck_assert_int_eq(memcmp(first, j.y[r], sizeof first), 0);
    }
  for (int64_t b = 0; b < B; b++)
    for (int64_t n = 0; n < N; n++) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < j.partition.count; i++) {
        const int64_t k = ch_column(&j.partition, i);
        sum += kit_get(&j.x, b, k) * kit_get(&j.w, n, k);
        size += fabs(kit_get(&j.x, b, k) * kit_get(&j.w, n, k));
      }
      ck_assert_double_le(fabs((double)first[b * N + n] - sum), 4 * sqrt(K / 2.0) * 0x1p-24 * size);
    }
  ch_partition_free(&j.partition);
  kit_tensor_free(NULL, &j.x);
  kit_tensor_free(NULL, &j.w);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_world_runs_it}, {0}};
  return run_tests("cpu_world", tests, (test_setup){.timeout = 120});
}
