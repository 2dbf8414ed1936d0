/* SPDX-License-Identifier: MIT
 * test_ref_grad.c - what matmul_dx, matmul_dw and matmul_update of ref mean: answers known by hand, their
 * counters, and refusals. The kit has their values and bits (kit_ref, test_kit_steps). */
#include <math.h>
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static const double hand_w[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                                    {-1, 0, 2, 1, 3, -2, 0, 4},
                                    {2, -3, 1, 0, 0, 1, -1, 2},
                                    {0, 5, -4, 2, 1, 1, 1, -6}};
static const double hand_x[2][8] = {{1, 0, 2, -1, 1, 1, 0, 2}, {0, 1, 1, 1, -1, 2, 3, 0}};

/* Y = X W^T with loss = sum of Y: dY is all ones. */
typedef struct hand {
  fx f;
  fx_tensor x, w, dy, dx, dw, alpha, y;
  uint32_t columns[8];
  bs_partition part;
  bs_packed *packed;
} hand;

static void hand_open(hand *h, uint32_t dtype, int masked) {
  const int64_t one = 1;
  memset(h, 0, sizeof *h);
  fx_open(&h->f, 2, 1);
  fx_matrix(&h->x, dtype, 2, 8);
  fx_matrix(&h->w, dtype, 4, 8);
  fx_matrix(&h->dy, dtype, 2, 4);
  fx_matrix(&h->dx, dtype, 2, 8);
  fx_matrix(&h->y, dtype, 2, 4);
  h->part = fx_gather(8, 4, masked ? 3 : 15, h->columns);
  fx_matrix(&h->dw, BS_F32, 4, h->part.count);
  fx_tensor_make(&h->alpha, BS_F32, 1, &one, NULL);
  fx_set(&h->alpha, 0, 0, -0.5);
  for (int64_t k = 0; k < 8; k++) {
    for (int64_t n = 0; n < 4; n++) fx_set(&h->w, n, k, hand_w[n][k]);
    for (int64_t b = 0; b < 2; b++) fx_set(&h->x, b, k, hand_x[b][k]);
    for (int64_t b = 0; b < 2; b++) fx_set(&h->dx, b, k, 0.0);
  }
  for (int64_t n = 0; n < 8; n++) fx_set(&h->dy, n / 4, n % 4, 1.0);
  const bs_tensor_desc *args[4] = {&h->x.d, NULL, NULL, &h->y.d};
  bs_op_query q = fx_query("matmul", args, 4);
  bs_error err = BS_ERROR_INIT;
  q.partition = &h->part;
  q.flags = BS_QUERY_X_FULL | BS_QUERY_TRAIN;
  q.weight_dtype = dtype;
  const bs_source source = fx_source(&h->w);
  ck_assert_msg(bs_dispatch_pack(&h->f.ops, &q, &source, &h->packed, &err) == BS_OK, "%s", err.message);
}

static void hand_run(hand *h, const char *op, fx_tensor *a, fx_tensor *b, fx_tensor *c) {
  const bs_tensor_desc *args[3] = {&a->d, &b->d, c != NULL ? &c->d : NULL};
  bs_op_query q = fx_query(op, args, c != NULL ? 3 : 2);
  bs_tensor *call[3] = {&a->t, &b->t, c != NULL ? &c->t : NULL};
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  q.partition = &h->part;
  q.flags = BS_QUERY_X_FULL;
  q.weight_dtype = h->w.d.dtype;
  bs_packed *packed = strcmp(op, "matmul_dw") == 0 ? NULL : h->packed;
  ck_assert_msg(bs_dispatch_prepare(&h->f.ops, &q, packed, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_run(plan, call, q.nargs, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
}

static void hand_close(hand *h) {
  bs_dispatch_packed_release(h->packed);
  fx_tensor *const all[] = {&h->x, &h->w, &h->dy, &h->dx, &h->dw, &h->alpha, &h->y};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) fx_tensor_free(all[i]);
  fx_close(&h->f);
}

static const uint32_t hand_types[] = {BS_F64, BS_F32, BS_BF16, BS_F16};

START_TEST(known_gradients) {
  static const double dx[2][8] = {{2, 4, 2, 7, 9, 6, 7, 8}, {2, 4, 0, 0, 9, 6, 0, 0}};
  static const double dw[8] = {1, 1, 3, 0, 0, 3, 3, 2};
  for (int masked = 0; masked < 2; masked++) {
    hand h;
    hand_open(&h, hand_types[_i], masked);
    hand_run(&h, "matmul_dx", &h.dy, &h.dx, NULL);
    hand_run(&h, "matmul_dw", &h.x, &h.dy, &h.dw);
    for (int64_t b = 0; b < 2; b++)
      for (int64_t k = 0; k < 8; k++) ck_assert_double_eq(fx_get(&h.dx, b, k), dx[masked][k]);
    for (int64_t n = 0; n < 4; n++)
      for (int64_t i = 0; i < h.part.count; i++)
        ck_assert_double_eq(fx_get(&h.dw, n, i), dw[bs_op_partition_column(&h.part, i)]);
    ck_assert_uint_eq(h.f.counters[BS_COUNT_FLOPS], (uint64_t)(2 * 2 * 2 * 4 * h.part.count));
    hand_close(&h);
  }
}
END_TEST

START_TEST(known_step) {
  static const double first[4] = {0.5, 1.5, 5, 4.5};
  hand h;
  bs_error err = BS_ERROR_INIT;
  fx_tensor row;
  hand_open(&h, hand_types[_i], 1);
  hand_run(&h, "matmul_update", &h.x, &h.dy, &h.alpha);
  fx_matrix(&row, BS_F64, 1, 4);
  ck_assert_int_eq(bs_dispatch_packed_read(h.packed, 0, &row.t, &err), BS_OK);
  for (int64_t i = 0; i < 4; i++) ck_assert_double_eq(fx_get(&row, 0, i), first[i]);
  fx_tensor_free(&row);
  hand_close(&h);
}
END_TEST

START_TEST(refusals) {
  void *state = NULL, *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_op_answer a = {.struct_size = sizeof a};
  hand h;
  hand_open(&h, BS_F32, 1);
  const bs_op_impl *impl = fx_impl("matmul_dw", &state);
  const bs_tensor_desc *args[3] = {&h.x.d, &h.dy.d, &h.dw.d};
  bs_op_query q = fx_query("matmul_dw", args, 3);
  q.partition = &h.part;
  q.flags = BS_QUERY_X_FULL;
  q.workspace_limit = 100;
  ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  ck_assert_uint_eq(a.reason, BS_REASON_WORKSPACE);
  q.workspace_limit = 0;
  q.accumulate = BS_ACC_F32;
  h.x.d.dtype = BS_F64;
  ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  ck_assert_ptr_nonnull(strstr(a.text, "not summed in f32"));
  ck_assert_int_eq(impl->prepare(state, &h.f.exec, &q, NULL, &plan, &err), BS_UNSUPPORTED);
  h.x.d.dtype = BS_F32;
  for (int64_t at = 1; at <= 2; at++) { /* the plan, its workspace */
    h.f.fail_alloc_at = at;
    ck_assert_int_eq(impl->prepare(state, &h.f.exec, &q, NULL, &plan, &err), BS_NO_MEMORY);
  }
  impl = fx_impl("matmul_update", &state);
  args[2] = &h.alpha.d;
  q.op = "matmul_update";
  q.weight_dtype = BS_F32;
  ck_assert_int_eq(impl->prepare(state, &h.f.exec, &q, NULL, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-REF-WEIGHT");
  hand_close(&h);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_gradients, 4}, {known_step, 4}, {refusals}, {0}};
  return run_tests("ref_grad", tests, (test_setup){0});
}
