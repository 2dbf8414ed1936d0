/* SPDX-License-Identifier: MIT
 * test_op_schema24.c - the schema of the ops over 2:4 weights: what is refused, what a run costs, and the key
 * that a choice of implementation goes by. */
#include <string.h>

#include "core/op/choice.h"
#include "op_actor.h"
#include "tests/run_tests.h"

enum { ROWS = 6, COLS = 10 }; /* three groups, the last one half empty */

static unsigned char bits[ROWS * 3];
static fx_kept_table table = {bits, 3};
static bs_tensor_desc x, dy, y, kept_dw, wide;
static bs_kept kept;

static bs_op_query query_of(const char *op, const bs_tensor_desc *const *args, uint32_t nargs) {
  uint64_t seed = 3;
  fx_kept_random(bits, ROWS, 3, &seed);
  kept = fx_kept(&table, ROWS, COLS);
  x = bs_desc_2d(BS_BF16, 4, COLS);
  wide = bs_desc_2d(BS_BF16, ROWS, COLS);
  dy = y = bs_desc_2d(BS_F32, 4, ROWS);
  kept_dw = bs_desc_2d(BS_F32, ROWS, 6);
  bs_op_query q = fx_query(op, args, nargs);
  q.weight_dtype = BS_BF16;
  q.kept = &kept;
  return q;
}

static void refused(const bs_op_query *q, const char *id, const char *word) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_op_check(q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, id);
  ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" does not say \"%s\"", err.message, word);
}

static void costs(const bs_op_query *q, uint64_t flops, uint64_t bytes) {
  bs_error err = BS_ERROR_INIT;
  uint64_t f = 0, b = 0;
  ck_assert_msg(bs_op_check(q, &err) == BS_OK, "%s", err.message);
  bs_op_cost(q, &f, &b);
  ck_assert_uint_eq(f, flops);
  ck_assert_uint_eq(b, bytes);
}

/* 4 tokens, 6 rows of 6 kept values with 2 bits each (9 bytes). */
START_TEST(costs_are_those_of_kept_weights) {
  const bs_tensor_desc *forward[4] = {&x, NULL, NULL, &y}, *dx[2] = {&dy, &x}, *dw[3] = {&x, &dy, &kept_dw};
  bs_tensor_desc alpha = {.struct_size = sizeof alpha, .dtype = BS_F32, .rank = 1, .dims = {1}};
  const bs_tensor_desc *update[3] = {&x, &dy, &alpha};
  bs_tensor_desc values = bs_desc_2d(BS_BF16, ROWS, 6);
  const bs_tensor_desc *expand[2] = {&values, &wide};
  const uint64_t flops = 2 * 4 * ROWS * 6, moved = 4 * COLS * 2 + 4 * ROWS * 4;
  bs_op_query q = query_of("matmul24", forward, 4);
  costs(&q, flops, moved + ROWS * 6 * 2 + 9);
  q = query_of("matmul24_dx", dx, 2);
  costs(&q, flops, moved + ROWS * 6 * 2 + 9);
  q = query_of("matmul24_dw", dw, 3);
  costs(&q, flops, moved + ROWS * 6 * 4 + 9);
  q = query_of("matmul24_update", update, 3);
  costs(&q, flops, moved + 2 * ROWS * 6 * 2 + 9);
  q = query_of("expand24", expand, 2);
  costs(&q, 0, ROWS * (6 * 2 + COLS * 2 + 2));
}
END_TEST

START_TEST(positions_must_fit) {
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  bs_op_query q = query_of("matmul24", args, 4);
  q.kept = NULL;
  refused(&q, "BS-OP-KEPT", "needs the positions");
  q = query_of("matmul24", args, 4);
  kept.rows++;
  refused(&q, "BS-OP-KEPT", "[7,10]");
  q = query_of("matmul24", args, 4);
  kept.struct_size--;
  refused(&q, "BS-OP-KEPT", "struct_size");
  q = query_of("matmul24", args, 4);
  q.op = "matmul";
  refused(&q, "BS-OP-KEPT", "takes no positions");
  const bs_tensor_desc *dw[3] = {&x, &dy, &kept_dw};
  q = query_of("matmul24_dw", dw, 3);
  kept_dw = bs_desc_2d(BS_F32, ROWS, COLS);
  refused(&q, "BS-OP-SHAPE", "[6,6]");
  const bs_tensor_desc *expand[2] = {&kept_dw, &wide};
  q = query_of("expand24", expand, 2);
  refused(&q, "BS-OP-DTYPE", "must be equal");
  kept_dw.dtype = BS_BF16;
  kept_dw.dims[1] = 5;
  refused(&q, "BS-OP-SHAPE", "[6,5]");
}
END_TEST

START_TEST(partitions_are_runs_of_groups) {
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  uint32_t columns[COLS];
  bs_partition p = fx_contiguous(18, 8, COLS);
  bs_op_query q = query_of("matmul24", args, 4);
  bs_error err = BS_ERROR_INIT;
  q.partition = &p;
  ck_assert_msg(bs_op_check(&q, &err) == BS_OK, "%s", err.message);
  p.begin = 6;
  refused(&q, "BS-OP-PARTITION", "whole groups");
  p = fx_contiguous(20, 8, COLS);
  refused(&q, "BS-OP-PARTITION", "whole groups");
  p = fx_gather(20, 2, 1, columns);
  refused(&q, "BS-OP-PARTITION", "need a run");
}
END_TEST

START_TEST(keys_name_the_positions) {
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  char key[BS_CHOICE_KEY];
  const bs_op_host host = {.backend = "ref"};
  bs_op_query q = query_of("matmul24", args, 4);
  bs_choice_key(&host, &q, key, sizeof key);
  ck_assert_str_eq(key, "matmul24@ref x=bf16 w=bf16 y=f32 N=6 K=10 B=4 kept=2:4 threads=1 P=1");
  kept.transposable = 1;
  bs_choice_key(&host, &q, key, sizeof key);
  ck_assert_ptr_nonnull(strstr(key, " kept=2:4t "));
}
END_TEST

/* A step over the weight of `packed`, dW [ROWS,width] of the length of a packed row and no other. */
static int32_t step_of(fx *f, bs_packed *packed, int64_t width, bs_error *err) {
  const bs_tensor_desc dw = {.struct_size = sizeof dw, .dtype = BS_F32, .rank = 2, .dims = {ROWS, width}};
  const bs_tensor_desc hyper = {.struct_size = sizeof hyper, .dtype = BS_F32, .rank = 1, .dims = {4}};
  const bs_tensor_desc *const args[3] = {&dw, NULL, &hyper};
  bs_op_query q = query_of("sgd_update", args, 3);
  bs_plan *plan = NULL;
  q.kept = NULL;
  const int32_t rc = bs_dispatch_prepare(&f->ops, &q, packed, &plan, err);
  bs_dispatch_release(plan);
  return rc;
}

/* The dispatcher: rows of packed values, siblings for training, plans of other positions. */
START_TEST(packed_rows_are_kept_values) {
  fx f;
  bs_packed *packed = NULL;
  bs_error err = BS_ERROR_INIT;
  actor a = {.level = BS_LEVEL_NATIVE};
  bs_op_impl impl = fx_actor_impl("matmul24", "own", 1), dx = fx_actor_impl("matmul24_dx", "own", 1),
             update = fx_actor_impl("matmul24_update", "own", 1), sgd = fx_actor_impl("sgd_update", "own", 1);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  fx_tensor values;
  fx_open(&f, 1, 0);
  fx_add("p", &impl, &a);
  bs_op_query q = query_of("matmul24", args, 4);
  const bs_source source = fx_source_of(ROWS, COLS);
  q.flags = BS_QUERY_TRAIN;
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &source, &packed, &err), BS_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(err.message, "no matmul24_dx@ref/own"));
  fx_add("p", &dx, &a);
  fx_add("p", &update, &a);
  ck_assert_msg(bs_dispatch_pack(&f.ops, &q, &source, &packed, &err) == BS_OK, "%s", err.message);
  fx_matrix(&values, BS_F32, ROWS, 6);
  ck_assert_int_eq(bs_dispatch_packed_read(packed, 0, &values.t, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_packed_update(packed, &values.t, &err), BS_OK);
  values.t.dims[1] = 5;
  ck_assert_int_eq(bs_dispatch_packed_read(packed, 0, &values.t, &err), BS_INVALID_ARGUMENT);
  const bs_tensor_desc *backward[2] = {&dy, &x};
  bs_plan *plan = NULL;
  q = query_of("matmul24_dx", backward, 2);
  ck_assert_msg(bs_dispatch_prepare(&f.ops, &q, packed, &plan, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
  ck_assert_int_eq(step_of(&f, packed, 6, &err), BS_UNSUPPORTED); /* nobody serves it */
  ck_assert_str_eq(err.id, "BS-OP-SIBLING");
  fx_add("p", &sgd, &a);
  ck_assert_msg(step_of(&f, packed, 6, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(step_of(&f, packed, COLS, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-PACKED");
  bits[3 * 5] ^= 15; /* the last row's */
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, packed, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-PACKED");
  bs_dispatch_packed_release(packed);
  fx_tensor_free(&values);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{costs_are_those_of_kept_weights}, {positions_must_fit},
                             {partitions_are_runs_of_groups},   {keys_name_the_positions},
                             {packed_rows_are_kept_values},     {0}};
  return run_tests("op_schema24", tests, (test_setup){0});
}
