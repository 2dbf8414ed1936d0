/* SPDX-License-Identifier: MIT
 * test_ref_world.c - ops as a method sees them: a world of two ranks on backend ref, through blockshock.h and
 * the rank's table only. Known answer K4 in three dtypes, counters, memory, names of what ran, and errors. */
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const float known_w[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                                    {-1, 0, 2, 1, 3, -2, 0, 4},
                                    {2, -3, 1, 0, 0, 1, -1, 2},
                                    {0, 5, -4, 2, 1, 1, 1, -6}};
static const float known_x[2][8] = {{1, 0, 2, -1, 1, 1, 0, 2}, {0, 1, 1, 1, -1, 2, 3, 0}};
static const float want[2][2][4] = {{{12, 0, 3, 2}, {9, -7, -1, 6}}, {{18, 11, 6, -22}, {28, 3, -2, 1}}};

typedef struct job {
  uint32_t dtype;
  bs_source weights;
  float got[2][2][4]; /* rank, row, output */
  uint64_t flops[2];
} job;

static bs_tensor_desc matrix(uint32_t dtype, int64_t rows, int64_t cols) {
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = dtype, .rank = 2};
  d.dims[0] = rows;
  d.dims[1] = d.strides[0] = cols;
  d.strides[1] = 1;
  return d;
}

static int32_t multiply(bs_rank *rank, job *j, const bs_partition *p, bs_tensor *x, bs_tensor *y,
                        bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_tensor_desc xd = matrix(j->dtype, 2, 8), yd = matrix(BS_F32, 2, 4);
  const bs_tensor_desc *descs[4] = {&xd, NULL, NULL, &yd};
  bs_tensor *args[4] = {x, NULL, NULL, y};
  const bs_op_query q = {.struct_size = (uint32_t)sizeof q,
                         .nargs = 4,
                         .op = "matmul",
                         .args = descs,
                         .partition = p,
                         .flags = BS_QUERY_X_FULL,
                         .weight_dtype = j->dtype};
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  int32_t rc = api->pack(rank, &q, &j->weights, &packed, err);
  if (rc == BS_OK) rc = api->op_prepare(rank, &q, packed, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, args, 4, NULL, err);
  if (plan != NULL) api->op_release(plan);
  if (packed != NULL) api->packed_release(packed);
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  job *j = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  const bs_tensor_desc xd = matrix(j->dtype, 2, 8), yd = matrix(BS_F32, 2, 4);
  const bs_mask mask = {.struct_size = (uint32_t)sizeof mask,
                        .kind = BS_MASK_COMPLEMENT,
                        .pattern_len = 4,
                        .pattern_a = 3,
                        .pattern_b = 12};
  const bs_partition *p = NULL;
  bs_tensor x = {0}, y = {0};
  int32_t rc = api->partition_make(rank, &mask, 8, me, 2, &p, err);
  if (rc != BS_OK) return rc;
  bs_rank_counters_reset(rank);
  rc = api->tensor_alloc(rank, &xd, BS_LIFE_ACTIVATION, &x, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &yd, BS_LIFE_ACTIVATION, &y, err);
  if (rc == BS_OK) rc = bs_convert(j->dtype, x.data, BS_F32, known_x, 16);
  if (rc == BS_OK) rc = multiply(rank, j, p, &x, &y, err);
  if (rc == BS_OK) {
    memcpy(j->got[me], y.data, sizeof j->got[me]);
    j->flops[me] = bs_rank_counter(rank, BS_COUNT_FLOPS);
  }
  if (x.data != NULL) api->tensor_free(rank, &x);
  if (y.data != NULL) api->tensor_free(rank, &y);
  api->partition_free(p);
  return rc;
}

static bs_world *open_world(bs_context **out_context) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const bs_context_options options = {.struct_size = (uint32_t)sizeof options};
  const bs_world_options world_options = {.struct_size = (uint32_t)sizeof world_options,
                                          .world_size = 2,
                                          .backend = "ref",
                                          .threads_per_rank = 2,
                                          .timeout_s = 60};
  bs_world *world = NULL;
  ck_assert_msg(bs_context_open(&options, out_context, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_world_create(*out_context, &world_options, &world, &err) == BS_OK, "%s", err.message);
  return world;
}

START_TEST(known_answer_on_two_ranks) {
  static const uint32_t dtypes[3] = {BS_F32, BS_F16, BS_BF16};
  bs_context *context = NULL;
  bs_world *world = open_world(&context);
  for (int d = 0; d < 3; d++) {
    job j = {.dtype = dtypes[d]};
    bs_error err = {.struct_size = (uint32_t)sizeof err};
    ck_assert_int_eq(bs_source_from_memory(known_w, BS_F32, 4, 8, 8, &j.weights, &err), BS_OK);
    ck_assert_msg(bs_world_run(world, rank_main, &j, &err) == BS_OK, "%s: %s", err.id, err.message);
    for (int r = 0; r < 2; r++) {
      ck_assert_uint_eq(j.flops[r], 2 * 2 * 4 * 4);
      for (int b = 0; b < 2; b++)
        for (int n = 0; n < 4; n++)
          ck_assert_msg(j.got[r][b][n] == want[r][b][n], "%s rank %d Y[%d,%d] = %g, want %g",
                        bs_dtype_name(dtypes[d]), r, b, n, (double)j.got[r][b][n], (double)want[r][b][n]);
    }
    bs_source_release(&j.weights);
  }
  ck_assert_str_eq(bs_world_algorithms(world), "matmul@ref/portable (portable C, f32 sums in order)");
  ck_assert_uint_eq(bs_world_memory_now(world), 0);
  ck_assert_uint_gt(bs_world_memory_peak(world), 0);
  bs_world_destroy(world);
  bs_context_close(context);
}
END_TEST

static int32_t ask_unknown_op(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_tensor_desc d = matrix(BS_F32, 2, 2);
  const bs_tensor_desc *descs[1] = {&d};
  const bs_op_query q = {.struct_size = (uint32_t)sizeof q, .nargs = 1, .op = arg, .args = descs};
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer, .level = BS_LEVEL_NATIVE};
  bs_plan *plan = NULL;
  const int32_t rc = api->op_supports(rank, &q, &answer, err);
  if (rc != BS_OK || answer.level != BS_LEVEL_NO || answer.text[0] == '\0') return BS_INTERNAL;
  return api->op_prepare(rank, &q, NULL, &plan, err);
}

START_TEST(unknown_op_is_refused_by_name) {
  bs_context *context = NULL;
  bs_world *world = open_world(&context);
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  char op[] = "acme_softmax";
  ck_assert_int_eq(bs_world_run(world, ask_unknown_op, op, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-NONE");
  ck_assert_ptr_nonnull(strstr(err.message, "acme_softmax"));
  ck_assert_ptr_nonnull(strstr(err.message, "ref"));
  bs_world_destroy(world);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_answer_on_two_ranks}, {unknown_op_is_refused_by_name}, {0}};
  return run_tests("ref_world", tests, (test_setup){.timeout = 60});
}
