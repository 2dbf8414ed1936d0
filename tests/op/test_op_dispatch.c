/* SPDX-License-Identifier: MIT
 * test_op_dispatch.c - which implementation is chosen and what is said when none is; packed weights stay with
 * their packer. Implementations here are actors (op_actor.h). */
#include <string.h>

#include "op_actor.h"
#include "tests/run_tests.h"

/* Who of `n` actors, registered in the given order, is chosen for convert? */
static int chosen(actor *actors, const bs_op_impl *impls, int n, const int *order) {
  fx f;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  int who = -1;
  fx_open(&f, 1, 0);
  for (int i = 0; i < n; i++) {
    actors[order[i]].prepares = 0;
    fx_add("stage", &impls[order[i]], &actors[order[i]]);
  }
  const bs_op_query q = fx_convert_query();
  ck_assert_msg(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
  for (int i = 0; i < n; i++)
    if (actors[i].prepares == 1) who = i;
  fx_close(&f);
  return who;
}

START_TEST(order_of_choice) {
  /* Best first: level, then score, then priority, then the name's bytes. */
  actor actors[7] = {{.level = BS_LEVEL_NATIVE, .score = 10},
                     {.level = BS_LEVEL_NATIVE, .score = 9},
                     {.level = BS_LEVEL_NATIVE, .score = 9},
                     {.level = BS_LEVEL_NATIVE, .score = 9},
                     {.level = BS_LEVEL_EMULATED, .score = 999},
                     {.level = BS_LEVEL_UNKNOWN, .score = 1000},
                     {.level = BS_LEVEL_NO, .score = 1000, .text = "never"}};
  const bs_op_impl impls[7] = {fx_actor_impl("convert", "zeta", 0),  fx_actor_impl("convert", "yak", 5),
                               fx_actor_impl("convert", "Alpha", 4), fx_actor_impl("convert", "alpha", 4),
                               fx_actor_impl("convert", "a", 9),     fx_actor_impl("convert", "a0", 9),
                               fx_actor_impl("convert", "a1", 9)};
  static const int forwards[7] = {0, 1, 2, 3, 4, 5, 6}, backwards[7] = {6, 5, 4, 3, 2, 1, 0};
  static const int mixed[7] = {3, 6, 1, 5, 0, 4, 2};
  for (int best = 0; best < 6; best++) {
    ck_assert_int_eq(chosen(actors, impls, 7, forwards), best);
    ck_assert_int_eq(chosen(actors, impls, 7, backwards), best);
    ck_assert_int_eq(chosen(actors, impls, 7, mixed), best);
    actors[best].level = BS_LEVEL_NO; /* take the winner away */
  }
}
END_TEST

START_TEST(none_serves_lists_reasons) {
  fx f;
  actor a = {.level = BS_LEVEL_NO, .reason = BS_REASON_DTYPE, .text = "no f16 stores"};
  actor b = {.level = BS_LEVEL_NO, .reason = BS_REASON_ARCH, .text = "needs AVX-512"};
  actor c = {.supports_rc = BS_INTERNAL}, d = {.level = 77}, e = {.level = BS_LEVEL_NO};
  const bs_op_impl impls[5] = {fx_actor_impl("convert", "one", 0), fx_actor_impl("convert", "two", 0),
                               fx_actor_impl("convert", "three", 0), fx_actor_impl("convert", "four", 0),
                               fx_actor_impl("convert", "five", 0)};
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  const bs_op_query q = fx_convert_query();
  fx_open(&f, 1, 0);
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-NONE");
  ck_assert_ptr_nonnull(strstr(err.message, "no plugin offers op convert on backend ref"));
  ck_assert_int_eq(bs_dispatch_supports(&f.ops, &q, &answer, &err), BS_OK);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  ck_assert_uint_eq(answer.reason, BS_REASON_NOT_BUILT);
  actor *const actors[5] = {&a, &b, &c, &d, &e};
  for (int i = 0; i < 5; i++) fx_add("stage", &impls[i], actors[i]);
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err), BS_UNSUPPORTED);
  ck_assert_ptr_null(plan);
  ck_assert_str_eq(err.id, "BS-OP-NONE");
  static const char *const words[] = {"f32[4,8] f16[4,8]",
                                      "one (stage): dtype: no f16 stores",
                                      "two (stage): arch: needs AVX-512",
                                      "three (stage)",
                                      "supports failed: INTERNAL",
                                      "unknown level 77",
                                      "five (stage)",
                                      "gave no text"};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    ck_assert_msg(strstr(err.message, words[i]) != NULL, "\"%s\" lacks \"%s\"", err.message, words[i]);
  ck_assert_int_eq(bs_dispatch_supports(&f.ops, &q, &answer, &err), BS_OK);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  ck_assert_ptr_nonnull(strstr(answer.text, "five (stage)"));
  a.level = BS_LEVEL_EMULATED;
  a.score = 5000;
  ck_assert_int_eq(bs_dispatch_supports(&f.ops, &q, &answer, &err), BS_OK);
  ck_assert_uint_eq(answer.level, BS_LEVEL_EMULATED);
  ck_assert_uint_eq(answer.score, 1000);
  fx_close(&f);
}
END_TEST

START_TEST(unknown_is_tried_and_failures_are_said) {
  fx f;
  actor maybe = {.level = BS_LEVEL_UNKNOWN, .score = 9, .prepare_rc = BS_UNSUPPORTED};
  actor sure = {.level = BS_LEVEL_UNKNOWN, .score = 8};
  const bs_op_impl impls[4] = {fx_actor_impl("convert", "maybe", 0), fx_actor_impl("convert", "sure", 0),
                               fx_actor_impl("matmul", "maybe", 0), fx_actor_impl("matmul", "sure", 0)};
  bs_plan *plan = NULL;
  bs_packed *packed = NULL;
  bs_error err = BS_ERROR_INIT;
  fx_open(&f, 1, 0);
  for (int i = 0; i < 4; i++) fx_add("stage", &impls[i], i % 2 == 0 ? &maybe : &sure);
  bs_op_query q = fx_convert_query();
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err), BS_OK);
  ck_assert_int_eq(sure.prepares, 1);
  bs_dispatch_release(plan);
  q = fx_matmul_query(); /* pack settles UNKNOWN by a trial plan, which leaves no trace */
  const bs_source w = fx_source_of(6, 8);
  f.notes[0] = '\0';
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &packed, &err), BS_OK);
  ck_assert_int_eq(maybe.packs, 1);
  ck_assert_int_eq(maybe.packed_frees, 1);
  ck_assert_int_eq(sure.plan_frees, 2);
  ck_assert_str_eq(f.notes, "");
  bs_dispatch_packed_release(packed);
  ck_assert_int_eq(sure.packed_frees, 1);
  sure.prepare_rc = BS_UNSUPPORTED;
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &packed, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-NONE");
  ck_assert_ptr_nonnull(strstr(err.message, "tried: the actor was told to fail"));
  ck_assert_ptr_null(packed);
  /* Anything but UNSUPPORTED, and any failure of a NATIVE answer, is not papered over. */
  maybe.prepare_rc = BS_NO_MEMORY;
  sure.prepare_rc = BS_OK;
  q = fx_convert_query();
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err), BS_NO_MEMORY);
  ck_assert_str_eq(err.id, "FX-ACTOR");
  maybe.level = BS_LEVEL_NATIVE;
  maybe.prepare_rc = BS_UNSUPPORTED;
  maybe.silent = 1;
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-FAILED");
  ck_assert_str_eq(err.plugin, "stage");
  ck_assert_ptr_nonnull(strstr(err.message, "prepare of convert@ref/maybe"));
  fx_close(&f);
}
END_TEST

START_TEST(packed_weight_stays_with_its_packer) {
  fx f;
  actor packer = {.level = BS_LEVEL_EMULATED, .text = "slow"},
        better = {.level = BS_LEVEL_NO, .text = "later"};
  const bs_op_impl impls[2] = {fx_actor_impl("matmul", "packer", 0), fx_actor_impl("matmul", "better", 0)};
  bs_packed *packed = NULL;
  bs_plan *plan = NULL, *second = NULL;
  bs_error err = BS_ERROR_INIT;
  fx_open(&f, 1, 0);
  fx_add("stage", &impls[0], &packer);
  fx_add("stage", &impls[1], &better);
  bs_op_query q = fx_matmul_query();
  const bs_source w = fx_source_of(6, 8);
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &packed, &err), BS_OK);
  ck_assert_uint_eq(bs_dispatch_packed_bytes(packed), 123);
  better.level = BS_LEVEL_NATIVE;
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, packed, &plan, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, packed, &second, &err), BS_OK);
  ck_assert_int_eq(packer.prepares, 2);
  ck_assert_int_eq(better.prepares, 0);
  ck_assert_str_eq(f.notes, "matmul@ref/packer (slow)\nmatmul@ref/packer (slow)\n");
  bs_dispatch_packed_release(packed); /* the plans keep it alive */
  bs_dispatch_release(plan);
  ck_assert_int_eq(packer.packed_frees, 0);
  bs_dispatch_release(second);
  ck_assert_int_eq(packer.packed_frees, 1);
  /* The packer refuses another class of B: said, not given to someone who cannot read its layout. */
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &packed, &err), BS_OK);
  bs_dispatch_packed_release(packed);
  better.level = BS_LEVEL_NO;
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &packed, &err), BS_OK);
  packer.level = BS_LEVEL_NO;
  packer.text = "B is too large";
  better.level = BS_LEVEL_NATIVE;
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, packed, &plan, &err), BS_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(err.message, "B is too large"));
  ck_assert_ptr_nonnull(strstr(err.hint, "packed by packer"));
  bs_dispatch_packed_release(packed);
  fx_close(&f);
}
END_TEST

static void prepare_refused(fx *f, const bs_op_query *q, bs_packed *packed, const char *word) {
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_dispatch_prepare(&f->ops, q, packed, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" lacks \"%s\"", err.message, word);
  ck_assert_ptr_null(plan);
}

START_TEST(packed_weight_must_match_the_query) {
  fx f;
  actor a = {.level = BS_LEVEL_NATIVE};
  const bs_op_impl impls[2] = {fx_actor_impl("matmul", "a", 0), fx_actor_impl("convert", "a", 0)};
  uint32_t columns[16], others[16];
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  fx_open(&f, 1, 0);
  fx_add("stage", &impls[0], &a);
  fx_add("stage", &impls[1], &a);
  bs_op_query q = fx_matmul_query();
  bs_partition low = fx_gather(16, 16, 0x00ff, columns), odd = fx_gather(16, 2, 2, others);
  bs_partition same = fx_contiguous(16, 0, 8);
  q.partition = &low;
  const bs_source w = fx_source_of(6, 16), narrow = fx_source_of(6, 8), few = fx_source_of(5, 16);
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &narrow, &packed, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &few, &packed, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, NULL, &packed, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &packed, &err), BS_OK);
  q.partition = &same; /* the same columns said another way */
  ck_assert_msg(bs_dispatch_prepare(&f.ops, &q, packed, &plan, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
  q.partition = &odd;
  prepare_refused(&f, &q, packed, "others");
  q.partition = NULL;
  prepare_refused(&f, &q, packed, "8 of 16");
  q.partition = &low;
  q.weight_dtype = BS_F16;
  prepare_refused(&f, &q, packed, "packed as f32, asked as f16");
  q.weight_dtype = BS_F32;
  fx_desc_y = bs_desc_2d(BS_F32, 4, 7);
  prepare_refused(&f, &q, packed, "6 rows, Y 7");
  q = fx_matmul_query();
  prepare_refused(&f, &q, NULL, "needs a packed weight");
  q = fx_convert_query();
  prepare_refused(&f, &q, packed, "takes no packed weight");
  bs_packed *none = NULL;
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &w, &none, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(a.packs - a.packed_frees, 1);
  bs_dispatch_packed_release(packed);
  ck_assert_int_eq(a.packs - a.packed_frees, 0);
  fx_close(&f);
}
END_TEST

/* What the plan of a convert of `in` into `out` is counted as. */
static uint32_t counted_as(fx *f, const bs_tensor_desc *in, const bs_tensor_desc *out) {
  const bs_tensor_desc *const args[2] = {in, out};
  const bs_op_query q = {.struct_size = sizeof q, .op = "convert", .nargs = 2, .args = args};
  const bs_watch before = *f->ops.watch;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  uint32_t reason = 0;
  ck_assert_msg(bs_dispatch_prepare(&f->ops, &q, NULL, &plan, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
  while (reason < BS_REPLAN_COUNT_ && f->ops.watch->plans[reason] == before.plans[reason]) reason++;
  return reason;
}

START_TEST(plans_are_counted_with_their_reason) {
  static bs_watch watch;
  fx f;
  actor a = {.level = BS_LEVEL_NATIVE};
  const bs_op_impl impl = fx_actor_impl("convert", "a", 0);
  const bs_tensor_desc y = bs_desc_2d(BS_F32, 4, 6), fewer = bs_desc_2d(BS_F32, 3, 6),
                       half = bs_desc_2d(BS_F16, 4, 6);
  bs_tensor_desc wide = y;
  wide.strides[0] = 8;
  wide.strides[1] = 1;
  fx_open(&f, 1, 0);
  fx_add("stage", &impl, &a);
  f.ops.watch = &watch;
  ck_assert_uint_eq(counted_as(&f, &y, &y), BS_REPLAN_FIRST);
  ck_assert_uint_eq(counted_as(&f, &y, &y), BS_REPLAN_AGAIN);
  ck_assert_uint_eq(counted_as(&f, &fewer, &fewer), BS_REPLAN_DIM);
  ck_assert_str_eq(watch.last, "convert: arg 0 is f32[3:6,6:1], was f32[4:6,6:1]");
  ck_assert_uint_eq(counted_as(&f, &y, &y), BS_REPLAN_DIM);
  ck_assert_uint_eq(counted_as(&f, &half, &y), BS_REPLAN_DTYPE);
  ck_assert_uint_eq(counted_as(&f, &y, &y), BS_REPLAN_DTYPE);
  ck_assert_uint_eq(counted_as(&f, &wide, &y), BS_REPLAN_STRIDE);
  ck_assert(watch.plan_seconds >= 0);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{order_of_choice},
                             {none_serves_lists_reasons},
                             {unknown_is_tried_and_failures_are_said},
                             {packed_weight_stays_with_its_packer},
                             {packed_weight_must_match_the_query},
                             {plans_are_counted_with_their_reason},
                             {0}};
  return run_tests("op_dispatch", tests, (test_setup){0});
}
