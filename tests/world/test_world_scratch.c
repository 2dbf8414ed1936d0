/* SPDX-License-Identifier: MIT
 * Scratch of a rank: many plans have one block, it is the largest that was asked for, an executor may lend
 * another, and it goes with the last plan. On the cpu backend, whose matmul works in it. */
#include "core/op/dispatch.h"
#include "core/world/executor.h"
#include "tests/run_tests.h"
#include "world_help.h"

enum { LAYERS = 48, B = 40, N = 300, K = 260 };

typedef struct layers {
  const bs_rank_api *api;
  bs_rank *rank;
  bs_packed *packed;
  bs_plan *plans[LAYERS];
  bs_tensor x, y;
} layers;

static float weights[N * K];

static bs_tensor_desc matrix(int64_t rows, int64_t cols) {
  return (bs_tensor_desc){
      .struct_size = sizeof(bs_tensor_desc), .dtype = BS_F32, .rank = 2, .dims = {rows, cols}};
}

static void prepare(layers *l, int i, int64_t tokens) {
  const bs_tensor_desc x = matrix(tokens, K), y = matrix(tokens, N);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  bs_error e = {.struct_size = sizeof e};
  bs_source source;
  bs_op_query q = {.struct_size = sizeof q, .op = "matmul", .nargs = 4, .args = args, .weight_dtype = BS_F32};
  if (l->packed == NULL) {
    ck_assert_int_eq(bs_source_from_memory(weights, BS_F32, N, K, K, &source, &e), BS_OK);
    ck_assert_msg(l->api->pack(l->rank, &q, &source, &l->packed, &e) == BS_OK, "%s", e.message);
    bs_source_release(&source);
  }
  ck_assert_msg(l->api->op_prepare(l->rank, &q, l->packed, &l->plans[i], &e) == BS_OK, "%s", e.message);
}

static void run_plan(layers *l, int i, float *out) {
  bs_tensor *args[4] = {&l->x, NULL, NULL, &l->y};
  bs_error e = {.struct_size = sizeof e};
  memset(l->y.data, 0xA5, l->y.bytes);
  ck_assert_msg(l->api->op_run(l->plans[i], args, 4, NULL, &e) == BS_OK, "%s", e.message);
  memcpy(out, l->y.data, l->y.bytes);
}

static int32_t many_main(bs_rank *rank, void *arg, bs_error *e) {
  static float first[B * N], other[B * N];
  const bs_world *world = *(bs_world *const *)arg;
  layers l = {.api = bs_rank_get_api(), .rank = rank};
  const bs_tensor_desc x = matrix(B, K), y = matrix(B, N);
  for (int i = 0; i < N * K; i++) weights[i] = (float)(i % 23 - 11);
  ck_assert_int_eq(l.api->tensor_alloc(rank, &x, BS_LIFE_ACTIVATION, &l.x, e), BS_OK);
  ck_assert_int_eq(l.api->tensor_alloc(rank, &y, BS_LIFE_ACTIVATION, &l.y, e), BS_OK);
  for (int i = 0; i < B * K; i++) ((float *)l.x.data)[i] = (float)(i % 7 - 3);
  ck_assert_uint_eq(bs_rank_scratch_bytes(rank), 0);
  prepare(&l, 0, B);
  const uint64_t one = bs_world_memory_now(world), bytes = bs_rank_scratch_bytes(rank);
  ck_assert_uint_gt(bytes, 0);
  ck_assert_uint_eq(bs_dispatch_scratch(l.plans[0]), bytes);
  for (int i = 1; i < LAYERS; i++) prepare(&l, i, B);
  ck_assert_uint_eq(bs_world_memory_now(world), one); /* 48 layers, one scratch */
  for (int i = 0; i < LAYERS; i++) {
    run_plan(&l, i, i == 0 ? first : other);
    if (i > 0) ck_assert_mem_eq(first, other, sizeof first);
  }
  void *block = l.api->alloc(rank, bytes); /* an executor's own block, exactly as large */
  ck_assert_ptr_nonnull(block);
  bs_rank_lend_scratch(rank, block);
  run_plan(&l, 5, other);
  ck_assert_mem_eq(first, other, sizeof first);
  const unsigned char *used = block;
  uint64_t touched = 0;
  for (uint64_t i = 0; i < bytes; i++) touched += used[i] != 0;
  ck_assert_uint_gt(touched, 0);
  bs_rank_lend_scratch(rank, NULL);
  l.api->free(rank, block);
  run_plan(&l, 5, other);
  ck_assert_mem_eq(first, other, sizeof first);
  for (int i = 1; i < LAYERS; i++) l.api->op_release(l.plans[i]);
  prepare(&l, 1, 4 * B); /* a larger one: the block grows, and the small plan finds it */
  ck_assert_uint_gt(bs_rank_scratch_bytes(rank), bytes);
  run_plan(&l, 0, other);
  ck_assert_mem_eq(first, other, sizeof first);
  l.api->op_release(l.plans[0]);
  ck_assert_uint_gt(bs_rank_scratch_bytes(rank), 0);
  l.api->op_release(l.plans[1]);
  ck_assert_uint_eq(bs_rank_scratch_bytes(rank), 0);
  l.api->packed_release(l.packed);
  l.api->tensor_free(rank, &l.x);
  l.api->tensor_free(rank, &l.y);
  return BS_OK;
}

START_TEST(many_plans_have_one_scratch) {
  bs_world_options o = options(1, "cpu");
  o.threads_per_rank = (uint32_t)_i + 1;
  bs_world *world = world_of(&o);
  run(world, many_main, &world, BS_OK);
  ck_assert_uint_eq(bs_world_memory_now(world), 0);
  bs_world_destroy(world);
}
END_TEST

int main(void) {
  const test_case tests[] = {{many_plans_have_one_scratch, 2}, {0}};
  return run_tests("world_scratch", tests, (test_setup){open_context, close_context, 30});
}
