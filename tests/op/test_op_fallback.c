/* SPDX-License-Identifier: MIT
 * test_op_fallback.c - implementations of another backend as the last candidates (bs_op_host.fallback):
 * behind everything that the backend itself may serve, and never without being asked for. */
#include <string.h>

#include "op_actor.h"
#include "tests/run_tests.h"

typedef struct stage {
  fx f;
  actor own, other;
  bs_op_impl impls[2];
} stage;

static stage s;

/* "convert" by acme itself, whose answer is `level`, and by ref, which could do it natively. */
static void raise_stage(uint32_t level, const char *fallback) {
  memset(&s, 0, sizeof s);
  s.own = (actor){.level = level, .score = 1, .reason = BS_REASON_DTYPE, .text = "not these"};
  s.other = (actor){.level = BS_LEVEL_NATIVE, .score = 1000};
  s.impls[0] = fx_actor_impl("convert", "own", 0);
  s.impls[0].backend = "acme";
  s.impls[1] = fx_actor_impl("convert", "portable", 90);
  fx_open(&s.f, 1, 0);
  fx_add("acme", &s.impls[0], &s.own);
  fx_add("ref", &s.impls[1], &s.other);
  s.f.ops.backend = "acme";
  s.f.ops.fallback = fallback;
}

static int32_t prepared(const char *algorithm, int is_fallback) {
  bs_error err = BS_ERROR_INIT;
  bs_plan *plan = NULL;
  const bs_op_query q = fx_convert_query();
  const int32_t rc = bs_dispatch_prepare(&s.f.ops, &q, NULL, &plan, &err);
  if (rc != BS_OK) {
    ck_assert_str_eq(err.id, "BS-OP-NONE");
    ck_assert_msg(strstr(err.message, "not these") != NULL, "%s", err.message);
    return rc;
  }
  ck_assert_int_eq(bs_dispatch_is_fallback(plan), is_fallback);
  ck_assert_ptr_nonnull(strstr(s.f.notes, algorithm));
  bs_dispatch_release(plan);
  fx_close(&s.f);
  return rc;
}

START_TEST(the_backend_comes_first) {
  static const uint32_t levels[] = {BS_LEVEL_NATIVE, BS_LEVEL_EMULATED, BS_LEVEL_UNKNOWN};
  raise_stage(levels[_i], "ref");
  ck_assert_int_eq(prepared("convert@acme/own", 0), BS_OK);
  ck_assert_int_eq(s.other.prepares, 0);
}
END_TEST

START_TEST(the_fallback_comes_last) {
  bs_op_answer answer = {.struct_size = sizeof answer};
  bs_error err = BS_ERROR_INIT;
  const bs_op_query q = fx_convert_query();
  raise_stage(BS_LEVEL_NO, "ref");
  ck_assert_int_eq(bs_dispatch_supports(&s.f.ops, &q, &answer, &err), BS_OK);
  ck_assert_uint_eq(answer.level, BS_LEVEL_EMULATED);
  ck_assert_uint_eq(answer.score, 0);
  /* why the backend itself does not serve, and not what the fallback says of itself */
  ck_assert_msg(strstr(answer.text, "not these") != NULL && strstr(answer.text, "portable") == NULL, "%s",
                answer.text);
  ck_assert_int_eq(prepared("convert@ref/portable", 1), BS_OK);
  raise_stage(BS_LEVEL_UNKNOWN, "ref"); /* tried in vain */
  s.own.prepare_rc = BS_UNSUPPORTED;
  ck_assert_int_eq(prepared("convert@ref/portable", 1), BS_OK);
}
END_TEST

START_TEST(without_it_nothing_serves) {
  raise_stage(BS_LEVEL_NO, NULL);
  ck_assert_int_eq(prepared("", 0), BS_UNSUPPORTED);
  raise_stage(BS_LEVEL_NO, "ref");
  s.other = (actor){.level = BS_LEVEL_NO, .reason = BS_REASON_SHAPE, .text = "nor here"};
  ck_assert_int_eq(prepared("", 0), BS_UNSUPPORTED);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {the_backend_comes_first, 3}, {the_fallback_comes_last}, {without_it_nothing_serves}, {0}};
  return run_tests("op_fallback", tests, (test_setup){0});
}
