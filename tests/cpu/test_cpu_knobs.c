/* SPDX-License-Identifier: MIT
 *
 * test_cpu_knobs.c - the knobs of the matmuls: every value of each gives the very bits that none gives, the
 * plan says what it was told, and the knob reaches it: what it works in and how many members work change. */
#include <stdio.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

/* The team of the kit, one member after the other, and counted. */
static ch c;
static kit_actor a;
static int teams;
static int32_t counted(void *ctx, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg) {
  teams++;
  for (uint32_t m = 0; m < a.exec.width; m++) body(arg, m, a.exec.width);
  (void)ctx;
  return BS_OK;
}

/* "amx": matmul by tiles, which everybody has as a model. */
static void open_counted(const char *op) {
  const int tiles = strcmp(op, "amx") == 0;
  ch_open(&c, tiles ? "amx_model" : "auto", "off");
  ch_actor(&c, &a, tiles ? "matmul" : op, tiles ? "amx" : "packed", 4);
  a.exec.parallel_for = counted;
  ck_assert_uint_gt(a.impl->n_knobs, 0);
}

static void close_counted(void) {
  kit_actor_close(&a);
  ch_close(&c);
}

/* Calls each with "name=value" for every value of every knob, and then with "name=auto". */
static void every_setting(void (*each)(void *user, const char *setting), void *user) {
  const bs_op_impl *impl = a.impl;
  for (uint32_t k = 0; k < impl->n_knobs; k++)
    for (uint32_t v = 0; v <= bs_knob_count(impl->knobs[k]); v++) {
      char value[32] = "auto", setting[64];
      if (v < bs_knob_count(impl->knobs[k]))
        ck_assert_int_eq(bs_knob_value(impl->knobs[k], v, value, sizeof value, NULL), BS_OK);
      snprintf(setting, sizeof setting, "%s=%s", impl->knobs[k]->name, value);
      each(user, setting);
    }
}

static void must_echo(const void *plan, const char *setting) {
  bs_op_echo echo = {.struct_size = sizeof echo};
  ck_assert_int_eq(a.impl->echo(plan, &echo), BS_OK);
  ck_assert_int_eq(echo.registers, -1);
  if (strpbrk(setting, ";") == NULL && strstr(setting, "auto") == NULL)
    ck_assert_msg(strstr(echo.knobs, setting) != NULL, "%s: the plan tells %s", setting, echo.knobs);
}

/* A query and its bits without a knob. */
typedef struct known {
  kit_data d;
  void *packed;
  unsigned char *bits;
} known;

static void one_setting(void *user, const char *setting) {
  known *t = user;
  void *plan = NULL;
  size_t bytes = 0;
  bs_error err = BS_ERROR_INIT;
  t->d.query.knobs = setting;
  kit_poison_outputs(&t->d, 0xFF);
  const int32_t rc = a.impl->prepare(a.state, &a.exec, &t->d.query, t->packed, &plan, &err);
  if (bs_knob_int(setting, "threads", 1) > 4) { /* there are four */
    ck_assert_int_eq(rc, BS_CONFIG);
    ck_assert_str_eq(err.id, "BS-CPU-KNOB");
    return;
  }
  ck_assert_msg(rc == BS_OK, "%s: %s", setting, err.message);
  must_echo(plan, setting);
  ck_assert_int_eq(kit_data_run_plan(&a, &t->d, plan, &err), BS_OK);
  unsigned char *bits = kit_data_bits(&t->d, &bytes);
  ck_assert_msg(memcmp(bits, t->bits, bytes) == 0, "%s: other bits", setting);
  free(bits);
  a.impl->plan_free(plan);
}

START_TEST(each_value_gives_the_same_bits) {
  static const struct {
    const char *op;
    uint32_t x, y, x_full, part;
    int64_t B, N, K;
  } cases[] = {{"matmul", BS_F32, BS_F32, 0, KIT_ALL, 101, 1031, 700},
               {"matmul", BS_BF16, BS_F32, 0, KIT_ALL, 101, 603, 300},
               {"matmul", BS_F16, BS_F32, 1, KIT_LIST, 19, 603, 600},
               {"matmul", BS_F32, BS_F32, 0, KIT_ALL, 3, 77, 513},
               {"amx", BS_BF16, BS_F32, 0, KIT_ALL, 69, 300, 300},
               {"amx", BS_BF16, BS_BF16, 1, KIT_LIST, 20, 340, 530},
               {"amx", BS_BF16, BS_F32, 0, KIT_ALL, 9, 300, 513},
               {"matmul24", BS_F32, BS_F32, 0, KIT_ALL, 101, 1031, 300},
               {"matmul24", BS_F16, BS_F32, 0, KIT_ALL, 70, 603, 260},
               {"matmul24", BS_F32, BS_F32, 0, KIT_ALL, 5, 603, 300},
               {"matmul24", BS_I8, BS_I32, 0, KIT_ALL, 33, 205, 130}};
  const kit_shape s = {.x = cases[_i].x,
                       .w = cases[_i].x,
                       .y = cases[_i].y,
                       .B = cases[_i].B,
                       .N = cases[_i].N,
                       .K = cases[_i].K,
                       .part = cases[_i].part,
                       .x_full = cases[_i].x_full,
                       .seed = 5};
  known t;
  size_t bytes;
  bs_error err = BS_ERROR_INIT;
  open_counted(cases[_i].op);
  kit_data_make(&t.d, a.impl->op, &s);
  t.packed = kit_data_pack(&a, &t.d);
  ck_assert_int_eq(ch_try_plan(&a, &t.d, t.packed, &err), BS_OK);
  t.bits = kit_data_bits(&t.d, &bytes);
  every_setting(one_setting, &t);
  /* One member with several chunks of panels: X of all blocks is kept from the first one. */
  if (strcmp(a.impl->op, "matmul") == 0) one_setting(&t, "panels=8;keep=on;threads=1");
  free(t.bits);
  a.impl->packed_free(t.packed);
  kit_data_free(&a, &t.d);
  close_counted();
}
END_TEST

/* ---- what a knob changes -------------------------------------------------------------------- */

static uint64_t workspace(const char *op, const char *knobs) {
  const uint32_t type = strcmp(op, "amx") == 0 ? BS_BF16 : BS_F32;
  const kit_shape s = {.x = type, .w = type, .y = BS_F32, .B = 1, .N = 4, .K = 4, .seed = 3};
  bs_op_answer answer;
  kit_data d;
  open_counted(op);
  kit_data_make(&d, a.impl->op, &s);
  ch_sizes(&d, 200, 2048, 1024);
  d.query.knobs = knobs;
  kit_data_ask(&a, &d, &answer);
  ck_assert_msg(answer.level == BS_LEVEL_NATIVE, "%s", answer.text);
  kit_data_free(&a, &d);
  close_counted();
  return answer.workspace;
}

START_TEST(knobs_change_what_is_worked_in) {
  ck_assert_uint_lt(workspace("matmul", "tokens=12"), workspace("matmul", "tokens=192"));
  ck_assert_uint_lt(workspace("matmul", "panels=8"), workspace("matmul", "panels=128"));
  ck_assert_uint_lt(workspace("matmul", "keep=off"), workspace("matmul", "keep=on"));
  ck_assert_uint_eq(workspace("matmul", "tokens=96"), workspace("matmul", NULL));
  ck_assert_uint_lt(workspace("amx", "tokens=16"), workspace("amx", "tokens=32"));
  ck_assert_uint_lt(workspace("amx", "panels=8"), workspace("amx", "panels=128"));
  ck_assert_uint_lt(workspace("amx", "keep=off"), workspace("amx", "keep=on"));
  ck_assert_uint_eq(workspace("amx", "tokens=64"), workspace("amx", NULL));
  ck_assert_uint_lt(workspace("matmul24", "panels=4"), workspace("matmul24", "panels=32"));
  ck_assert_uint_lt(workspace("matmul24", "keep=off"), workspace("matmul24", "keep=on"));
  ck_assert_uint_lt(workspace("matmul24", "form=narrow;tokens=16"), workspace("matmul24", "form=narrow"));
}
END_TEST

/* With one member the team is not asked for, with two the others find nothing to do: their scratch is not
 * there. */
START_TEST(threads_is_how_many_work) {
  static const struct {
    const char *knobs;
    uint64_t members;
    int teams;
  } cases[] = {{"threads=1", 1, 1}, {"threads=2", 2, 2}, {NULL, 4, 2}}; /* the first team packs */
  const kit_shape s = {.x = BS_F32, .w = BS_F32, .y = BS_F32, .B = 20, .N = 300, .K = 400, .seed = 3};
  bs_op_answer answer;
  kit_data d;
  open_counted("matmul");
  kit_data_make(&d, "matmul", &s);
  kit_data_ask(&a, &d, &answer);
  for (int i = 0; i < TEST_COUNT(cases); i++) {
    d.query.knobs = cases[i].knobs;
    teams = 0;
    const uint64_t scratch = ch_scratch(&a, &d);
    ck_assert_int_eq(teams, cases[i].teams);
    ck_assert_uint_le(scratch, cases[i].members * answer.workspace);
    ck_assert_uint_gt(scratch, (cases[i].members - 1) * answer.workspace);
  }
  kit_data_free(&a, &d);
  close_counted();
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_value_gives_the_same_bits, 11},
                             {knobs_change_what_is_worked_in},
                             {threads_is_how_many_work},
                             {0}};
  return run_tests("cpu_knobs", tests, (test_setup){0});
}
