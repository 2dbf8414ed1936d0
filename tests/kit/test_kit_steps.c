/* SPDX-License-Identifier: MIT
 * test_kit_steps.c - the products of ref are the bits of docs/ops.md: sums in their order, each step rounded
 * to the dtype that it is made in, for any team. Its answers promise the bound of a sum, to which the kit
 * holds every plugin; here the kit's queries are judged as those of class EXACT are. And the kit has queries
 * of every core op. */
#include <stdio.h>

#include "core/op/schema.h"
#include "kit/op.h"
#include "tests/run_tests.h"

static const char *const ops[] = {"matmul",   "matmul_dx",   "matmul_dw",   "matmul_update",
                                  "matmul24", "matmul24_dx", "matmul24_dw", "matmul24_update"};

static void open_op(kit_actor *a, kit_plugin *p, const char *op) {
  kit_plugin_open(p);
  for (uint32_t i = 0; i < p->host.n_things; i++) {
    const bs_op_impl *impl = p->host.things[i].vtable;
    if (p->host.things[i].kind != BS_KIND_OP || strcmp(impl->op, op) != 0) continue;
    ck_assert_ptr_null(kit_actor_attach(a, p, i, 1));
    return;
  }
  ck_abort_msg("ref has no op %s", op);
}

/* 1: the query is served, and its outputs have these bits. */
static uint32_t has_bits(kit_actor *a, const kit_shape *shape) {
  bs_error err = BS_ERROR_INIT;
  const char *stage = "";
  bs_op_answer answer;
  kit_data d;
  kit_data_make(&d, a->impl->op, shape);
  kit_data_ask(a, &d, &answer);
  const uint32_t served = answer.level == BS_LEVEL_NATIVE;
  kit_poison_outputs(&d, 0xA5);
  if (served) ck_assert_msg(kit_data_run(a, &d, &stage, &err) == BS_OK, "%s: %s", stage, err.message);
  if (served) kit_data_judge(&d, BS_TOL_EXACT, 0);
  kit_data_free(a, &d);
  return served;
}

START_TEST(sums_are_rounded_in_their_order) {
  static kit_actor a;
  static kit_plugin p;
  const bs_kit_options options = {.plugin = BS_TEST_KIT_DIR "/bs_ref.so"};
  kit_shape s;
  uint32_t served = 0;
  kit.options = &options;
  open_op(&a, &p, ops[_i]);
  for (uint32_t i = 0; kit_grid(ops[_i], i, 0, &s); i++) {
    a.exec.width = 1 + i % 5;
    served += has_bits(&a, &s);
  }
  ck_assert_uint_gt(served, kit_grid_size() / 2);
  kit_actor_close(&a);
  kit_plugin_deactivate(&p);
}
END_TEST

/* The grid has few queries of mixed dtypes whose sums need more digits than f32 has. */
START_TEST(every_mixture_of_floats) {
  static const uint32_t floats[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2};
  static kit_actor a;
  static kit_plugin p;
  const bs_kit_options options = {.plugin = BS_TEST_KIT_DIR "/bs_ref.so"};
  const int n = TEST_COUNT(floats);
  uint32_t served = 0;
  kit.options = &options;
  open_op(&a, &p, ops[_i]);
  for (int i = 0; i < 2 * n * n * n; i++) {
    kit_shape s = {
        .x = floats[i % n], .w = floats[i / n % n], .y = floats[i / n / n % n], .B = 17, .N = 19, .K = 23};
    s.seed = (uint64_t)i;
    s.accumulate = i / n / n / n > 0 ? BS_ACC_F64 : BS_ACC_DEFAULT;
    if (kit_op_is(ops[_i], "matmul") && s.accumulate != 0) s.bias = s.residual = floats[(i + 1) % n];
    if (kit_op_is(ops[_i], "matmul_dw")) s.w = s.x == BS_F64 ? BS_F64 : BS_F32;
    served += has_bits(&a, &s);
  }
  ck_assert_uint_gt(served, (uint32_t)n * n);
  kit_actor_close(&a);
  kit_plugin_deactivate(&p);
}
END_TEST

START_TEST(every_core_op_has_queries) {
  for (uint32_t i = 0; i < bs_op_schema_count(); i++)
    ck_assert_msg(kit_op_known(bs_op_schema_at(i)->name), "kit/op_case.c has no case of the op %s",
                  bs_op_schema_at(i)->name);
}
END_TEST

int main(void) {
  const test_case tests[] = {{sums_are_rounded_in_their_order, TEST_COUNT(ops)},
                             {every_mixture_of_floats, TEST_COUNT(ops)},
                             {every_core_op_has_queries},
                             {0}};
  return run_tests("kit_steps", tests, (test_setup){.timeout = 60});
}
