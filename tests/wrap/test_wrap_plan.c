/* SPDX-License-Identifier: MIT
 * test_wrap_plan.c - plan strings of the plugins fault and slow: what they mean, and what is said of bad
 * ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/wrap/common/plan.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static wrap_plan parsed(const char *text, int slow) {
  wrap_plan plan;
  wrap_complaint c;
  ck_assert_msg(wrap_plan_parse(text, slow, &plan, &c), "'%s': character %u: %s", text, c.at, c.what);
  return plan;
}

START_TEST(steps_mean_what_they_say) {
  const wrap_plan plan =
      parsed("rank=1,op=all_reduce,seq=37,do=hang; rank=*,op=matmul.prepare,seq=*,do=delay,ms=3", 0);
  ck_assert_uint_eq(plan.n, 2);
  ck_assert_uint_eq(plan.steps[0].rank, 1);
  ck_assert_uint_eq(plan.steps[0].op, BS_COLL_ALL_REDUCE);
  ck_assert_uint_eq(plan.steps[0].seq, 37);
  ck_assert_uint_eq(plan.steps[0].what, WRAP_HANG);
  ck_assert_uint_eq(plan.steps[1].rank, WRAP_ANY);
  ck_assert_uint_eq(plan.steps[1].op, wrap_op_of("matmul", WRAP_PREPARE));
  ck_assert_uint_eq(plan.steps[1].seq, WRAP_ANY);
  ck_assert_uint_eq(plan.steps[1].what, WRAP_DELAY);
  ck_assert_int_eq(plan.steps[1].ns, 3000000);
}
END_TEST

START_TEST(what_is_left_out_is_every) {
  const wrap_plan plan = parsed("do=err", 0), slow = parsed("ms=5 ; op=send, ms=0;", 1);
  ck_assert_uint_eq(parsed("", 0).n, 0);
  ck_assert_uint_eq(parsed("  ", 0).n, 0);
  ck_assert_uint_eq(plan.n, 1);
  ck_assert_uint_eq(plan.steps[0].rank, WRAP_ANY);
  ck_assert_uint_eq(plan.steps[0].op, WRAP_ANY);
  ck_assert_uint_eq(plan.steps[0].seq, WRAP_ANY);
  ck_assert_uint_eq(slow.n, 2);
  ck_assert_uint_eq(slow.steps[0].what, WRAP_DELAY);
  ck_assert_int_eq(slow.steps[0].ns, 5000000);
  ck_assert_uint_eq(slow.steps[1].op, BS_COLL_SEND);
}
END_TEST

/* Every op's name is one that a plan takes, except of those without a name. */
START_TEST(names_go_round) {
  char name[40], text[96];
  for (uint32_t op = 0; op < WRAP_OP_COUNT_; op++) {
    wrap_op_name(op, name);
    if (strncmp(name, "other", 5) == 0) continue;
    if (strstr(name, ".pack") != NULL && strcmp(name, "matmul.pack") != 0) continue;
    snprintf(text, sizeof text, "op=%s,do=err", name);
    ck_assert_uint_eq(parsed(text, 0).steps[0].op, op);
  }
  ck_assert_uint_eq(wrap_op_of("a_plugins_own", WRAP_RUN), wrap_op_of("another", WRAP_RUN));
  ck_assert_uint_eq(wrap_op_of("MATMUL", WRAP_RUN), wrap_op_of("another", WRAP_RUN)); /* a plugin's */
  /* the ops of the core's table */
  for (uint32_t i = 0; i < BS_CORE_OPS; i++) {
    const char *name_of = bs_name_of(BS_NAMES_OP, i);
    ck_assert_uint_ne(wrap_op_of(name_of, WRAP_RUN), wrap_op_of("another", WRAP_RUN));
    snprintf(text, sizeof text, "op=%s,do=flip", name_of);
    ck_assert_uint_eq(parsed(text, 0).steps[0].op, wrap_op_of(name_of, WRAP_RUN));
  }
}
END_TEST

static const struct {
  const char *text;
  int slow;
  uint32_t at;
  const char *what, *words;
} bad[] = {
    {"rank=1,op=al_reduce,do=hang", 0, 11, "'al_reduce' is no op", "all_reduce"},
    {"rank=1,do=explode", 0, 11, "'explode' is nothing to do",
     "hang, err, delay, flip, nan, truncate, kill, stop"},
    {"do=err;rank=x,do=err", 0, 13, "'x' is no rank", "*, 0..65535"},
    {"rank=-1,do=err", 0, 6, "'-1' is no rank", "0..65535"},
    {"rank=,do=err", 0, 6, "is no rank", "0..65535"},
    {"seq=1e3,do=err", 0, 5, "'1e3' is no number of a call", "0..1000000000"},
    {"seq=99999999999999999999999,do=err", 0, 5, "is no number of a call", ""},
    {"color=red,do=err", 0, 1, "'color' is no key", "rank, op, seq, do, ms"},
    {"rank", 0, 5, "'rank' needs a value", "KEY=VALUE"},
    {"do=err,", 0, 8, "a key is missing", "rank"},
    {"do=err;;do=err", 0, 8, "a key is missing", "rank"},
    {"do=err,do=hang", 0, 8, "'do' is given twice", "once"},
    {"rank=1,op=send", 0, 1, "a step needs do=", "hang"},
    {"do=delay", 0, 1, "a delay needs ms=", "ms="},
    {"do=hang,ms=3", 0, 1, "only a delay takes ms=", "delay"},
    {"do=delay,ms=*", 0, 13, "'*' is no number of milliseconds", "0..3600000"},
    {"op=barrier,do=flip", 0, 1, "no result", "barrier"},
    {"op=alloc,do=truncate", 0, 1, "no result", "alloc|hang"},
    {"op=matmul.prepare,do=nan", 0, 1, "no result", ""},
    {"op=copy,do=nan", 0, 1, "no result", "copy but nan"},
    {"op=exchanges,do=err", 0, 4, "'exchanges' is no op", "exchange"},
    {"op=other,do=err", 0, 4, "'other' is no op", "matmul"},
    {"op=activate.pack,do=err", 0, 4, "'activate.pack' is no op", "OP.prepare, matmul.pack, matmul24.pack"},
    {"op=Matmul,do=err", 0, 4, "'Matmul' is no op", "completion words ops"},
    {"do=hang", 1, 4, "'hang' is nothing to do", "delay"},
    {"rank=1", 1, 1, "a delay needs ms=", "ms="},
};

START_TEST(bad_plans_are_told) {
  wrap_plan plan;
  wrap_complaint c;
  ck_assert_msg(!wrap_plan_parse(bad[_i].text, bad[_i].slow, &plan, &c), "'%s' is taken", bad[_i].text);
  ck_assert_msg(c.at == bad[_i].at, "'%s': character %u, not %u (%s)", bad[_i].text, c.at, bad[_i].at,
                c.what);
  ck_assert_msg(strstr(c.what, bad[_i].what) != NULL, "'%s': %s", bad[_i].text, c.what);
  ck_assert_msg(strlen(c.words) + 1 < sizeof((bs_error *)0)->hint, "cut: %s", c.words);
  if (strchr(bad[_i].words, '|') == NULL)
    ck_assert_msg(strstr(c.words, bad[_i].words) != NULL, "'%s': %s", bad[_i].text, c.words);
}
END_TEST

START_TEST(too_many_steps_are_refused) {
  char text[8 * (WRAP_STEPS_MAX + 2)] = "";
  wrap_plan plan;
  wrap_complaint c;
  for (int i = 0; i < WRAP_STEPS_MAX; i++) strcat(text, "do=err;");
  ck_assert_int_eq(wrap_plan_parse(text, 0, &plan, &c), 1);
  strcat(text, "do=err;");
  ck_assert_int_eq(wrap_plan_parse(text, 0, &plan, &c), 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{steps_mean_what_they_say},
                             {what_is_left_out_is_every},
                             {names_go_round},
                             {bad_plans_are_told, TEST_COUNT(bad)},
                             {too_many_steps_are_refused},
                             {0}};
  return run_tests("wrap_plan", tests, (test_setup){0});
}
