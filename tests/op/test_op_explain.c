/* SPDX-License-Identifier: MIT
 * test_op_explain.c - bs_op_explain tells every candidate in the order in which pack and prepare choose,
 * refused ones with their reasons, and what would be chosen. */
#include <string.h>

#include "op_actor.h"
#include "tests/run_tests.h"

typedef struct told {
  uint32_t count;
  struct {
    char name[64];
    uint32_t chosen, level, reason, place;
    char text[64];
  } of[8];
} told;

static void keep(void *user, const bs_op_candidate *c) {
  told *t = user;
  ck_assert_uint_lt(t->count, 8);
  ck_assert_uint_eq(c->struct_size, sizeof *c);
  snprintf(t->of[t->count].name, sizeof t->of[0].name, "%s %s", c->plugin, c->name);
  snprintf(t->of[t->count].text, sizeof t->of[0].text, "%.60s", c->answer->text);
  t->of[t->count].chosen = c->chosen;
  t->of[t->count].level = c->answer->level;
  t->of[t->count].reason = c->answer->reason;
  t->of[t->count++].place = c->place;
}

static bs_context *context_of(const fx *f) {
  return f->ops.context != NULL ? f->ops.context : (bs_context *)(uintptr_t)f;
}

START_TEST(the_ladder_in_order) {
  fx f;
  told t = {0};
  bs_error err = BS_ERROR_INIT;
  actor no = {.level = BS_LEVEL_NO, .reason = BS_REASON_SHAPE, .text = "K too odd"},
        slow = {.level = BS_LEVEL_NATIVE, .score = 100}, fast = {.level = BS_LEVEL_NATIVE, .score = 900},
        soft = {.level = BS_LEVEL_EMULATED, .score = 1000},
        maybe = {.level = BS_LEVEL_UNKNOWN, .score = 1000}, broken = {.supports_rc = BS_INTERNAL};
  actor *const actors[] = {&no, &slow, &fast, &soft, &maybe, &broken};
  static const char *const names[] = {"no", "slow", "fast", "soft", "maybe", "broken"};
  bs_op_impl impls[6];
  fx_open(&f, 1, 0);
  for (size_t i = 0; i < 6; i++) {
    impls[i] = fx_actor_impl("matmul", names[i], 0);
    fx_add("p", &impls[i], actors[i]);
  }
  const bs_op_query q = fx_matmul_query();
  ck_assert_int_eq(bs_op_explain(context_of(&f), f.ops.backend, &q, keep, &t, &err), BS_OK);
  static const char *const order[] = {"/fast", "/slow", "/soft", "/maybe", "/broken", "/no"};
  ck_assert_uint_eq(t.count, 6);
  for (uint32_t i = 0; i < 6; i++) {
    ck_assert_msg(strstr(t.of[i].name, order[i]) != NULL, "place %u is %s", i, t.of[i].name);
    ck_assert_uint_eq(t.of[i].chosen, i == 0);
    ck_assert_uint_eq(t.of[i].place, i);
  }
  ck_assert_str_eq(t.of[5].text, "K too odd");
  ck_assert_uint_eq(t.of[5].reason, BS_REASON_SHAPE);
  ck_assert_ptr_nonnull(strstr(t.of[4].text, "INTERNAL"));
  for (size_t i = 0; i < 6; i++) ck_assert_int_eq(actors[i]->packs + actors[i]->prepares, 0); /* only asked */
  fx_close(&f);
}
END_TEST

START_TEST(none_that_serves) {
  fx f;
  told t = {0};
  bs_error err = BS_ERROR_INIT;
  actor no = {.level = BS_LEVEL_NO, .reason = BS_REASON_DTYPE, .text = "integers only"};
  const bs_op_impl impl = fx_actor_impl("matmul", "no", 0);
  fx_open(&f, 1, 0);
  fx_add("p", &impl, &no);
  const bs_op_query q = fx_matmul_query();
  ck_assert_int_eq(bs_op_explain(context_of(&f), f.ops.backend, &q, keep, &t, &err), BS_UNSUPPORTED);
  ck_assert_uint_eq(t.count, 1);
  ck_assert_uint_eq(t.of[0].chosen, 0);
  ck_assert_str_eq(err.id, "BS-OP-NONE");
  ck_assert_ptr_nonnull(strstr(err.message, "integers only"));
  t.count = 0;
  const bs_op_query c = fx_convert_query(); /* nobody offers it */
  ck_assert_int_eq(bs_op_explain(context_of(&f), f.ops.backend, &c, keep, &t, &err), BS_UNSUPPORTED);
  ck_assert_uint_eq(t.count, 0);
  fx_close(&f);
}
END_TEST

START_TEST(a_broken_query_asks_nobody) {
  fx f;
  told t = {0};
  bs_error err = BS_ERROR_INIT;
  actor yes = {.level = BS_LEVEL_NATIVE};
  const bs_op_impl impl = fx_actor_impl("matmul", "yes", 0);
  fx_open(&f, 1, 0);
  fx_add("p", &impl, &yes);
  bs_op_query q = fx_matmul_query();
  q.nargs = 3;
  ck_assert_int_eq(bs_op_explain(context_of(&f), f.ops.backend, &q, keep, &t, &err), BS_INVALID_ARGUMENT);
  q = fx_matmul_query();
  ck_assert_int_eq(bs_op_explain(NULL, f.ops.backend, &q, keep, &t, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_op_explain(context_of(&f), NULL, &q, keep, &t, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_op_explain(context_of(&f), f.ops.backend, &q, NULL, &t, &err), BS_INVALID_ARGUMENT);
  ck_assert_uint_eq(t.count, 0);
  fx_close(&f);
}
END_TEST

START_TEST(words) {
  ck_assert_str_eq(bs_level_name(BS_LEVEL_NATIVE), "native");
  ck_assert_str_eq(bs_level_name(99), "?");
  ck_assert_str_eq(bs_reason_name(BS_REASON_DTYPE), "dtype");
  ck_assert_str_eq(bs_reason_name(BS_REASON_DEVICE_NOT_OPEN), "no device");
  ck_assert_str_eq(bs_reason_name(99), "unknown reason");
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {the_ladder_in_order}, {none_that_serves}, {a_broken_query_asks_nobody}, {words}, {0}};
  return run_tests("op_explain", tests, (test_setup){0});
}
