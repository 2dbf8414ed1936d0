/* SPDX-License-Identifier: MIT
 *
 * test_cpu_knobs.c - the knobs of the matmuls: every value of each gives the very bits that none gives, the
 * plan says what it was told, and the knob reaches it: what it works in and how many members work change. */
#include <stdio.h>
#include <string.h>

#include "cpu_24_case.h"
#include "cpu_matmul_case.h"
#include "tests/run_tests.h"

/* The team of the fixture, with the members counted that do something. */
static cx c;
static int teams;
static int32_t counted(void *ctx, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg) {
  teams++;
  for (uint32_t m = 0; m < c.exec.width; m++) body(arg, m, c.exec.width);
  (void)ctx;
  return BS_OK;
}

static void open_counted(void) {
  cx_open(&c, "auto", "off", 4);
  c.exec.parallel_for = counted;
}

static const bs_op_impl *impl_of(const char *op) {
  void *state = NULL;
  const bs_op_impl *impl = cx_impl(&c, op, "packed", &state);
  ck_assert_ptr_nonnull(impl);
  ck_assert_uint_gt(impl->n_knobs, 0);
  return impl;
}

/* Calls each with "name=value" for every value of every knob, and then with "name=auto". */
static void every_setting(const bs_op_impl *impl, void (*each)(void *user, const char *setting), void *user) {
  for (uint32_t k = 0; k < impl->n_knobs; k++)
    for (uint32_t v = 0; v <= bs_knob_count(impl->knobs[k]); v++) {
      char value[32] = "auto", setting[64];
      if (v < bs_knob_count(impl->knobs[k]))
        ck_assert_int_eq(bs_knob_value(impl->knobs[k], v, value, sizeof value, NULL), BS_OK);
      snprintf(setting, sizeof setting, "%s=%s", impl->knobs[k]->name, value);
      each(user, setting);
    }
}

static void must_echo(const bs_op_impl *impl, const void *plan, const char *setting) {
  bs_op_echo echo = {.struct_size = sizeof echo};
  ck_assert_int_eq(impl->echo(plan, &echo), BS_OK);
  ck_assert_int_eq(echo.registers, -1);
  if (strstr(setting, "auto") == NULL)
    ck_assert_msg(strstr(echo.knobs, setting) != NULL, "%s: the plan tells %s", setting, echo.knobs);
}

/* threads=6 and more: there are four. */
static int too_many(const char *setting) {
  return bs_knob_int(setting, "threads", 1) > 4;
}

/* ---- matmul --------------------------------------------------------------------------------- */

typedef struct dense {
  mc_data d;
  void *bits; /* without a knob */
  size_t bytes;
} dense;

static void one_dense(void *user, const char *setting) {
  dense *t = user;
  mc_plan p;
  bs_error err = BS_ERROR_INIT;
  t->d.shape.knobs = setting;
  mc_clear_y(&t->d);
  const int32_t rc = mc_prepare(&c, "packed", &t->d, &p, &err);
  if (too_many(setting)) {
    ck_assert_int_eq(rc, BS_CONFIG);
    ck_assert_str_eq(err.id, "BS-CPU-KNOB");
    mc_end(&p);
    return;
  }
  ck_assert_msg(rc == BS_OK, "%s: %s", setting, err.message);
  must_echo(p.impl, p.plan, setting);
  ck_assert_int_eq(mc_call(&p, &t->d, &err), BS_OK);
  ck_assert_msg(memcmp(t->d.y.t.data, t->bits, t->bytes) == 0, "%s: other bits", setting);
  mc_end(&p);
}

START_TEST(each_value_of_matmul_gives_the_same_bits) {
  static const struct {
    uint32_t dtype, x_full, columns;
    int64_t B, N, K;
  } cases[] = {{BS_F32, 0, MC_ALL, 101, 1031, 700},
               {BS_BF16, 0, MC_ALL, 101, 603, 300},
               {BS_F16, 1, MC_LIST, 19, 603, 600},
               {BS_F32, 0, MC_ALL, 3, 77, 513}};
  open_counted();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const mc s = {.dtype = cases[i].dtype,
                  .y_type = BS_F32,
                  .B = cases[i].B,
                  .N = cases[i].N,
                  .K = cases[i].K,
                  .columns = cases[i].columns,
                  .x_full = cases[i].x_full,
                  .seed = 5};
    dense t;
    mc_make(&t.d, &s);
    mc_run(&c, "packed", &t.d);
    t.bytes = (size_t)(s.B * s.N) * sizeof(float);
    t.bits = malloc(t.bytes);
    ck_assert_ptr_nonnull(t.bits);
    memcpy(t.bits, t.d.y.t.data, t.bytes);
    every_setting(impl_of("matmul"), one_dense, &t);
    free(t.bits);
    mc_free(&t.d);
  }
  cx_close(&c);
}
END_TEST

/* ---- matmul24 ------------------------------------------------------------------------------- */

typedef struct sparse {
  f24_data d;
  void *packed, *bits;
  size_t bytes;
} sparse;

static void one_sparse(void *user, const char *setting) {
  sparse *t = user;
  bs_error err = BS_ERROR_INIT;
  t->d.shape.knobs = setting;
  memset(t->d.y.t.data, 0xFF, t->bytes);
  const int32_t rc = f24_try(&c, &t->d, t->packed, &err);
  if (too_many(setting)) {
    ck_assert_int_eq(rc, BS_CONFIG);
    ck_assert_str_eq(err.id, "BS-CPU-KNOB");
    return;
  }
  ck_assert_msg(rc == BS_OK, "%s: %s", setting, err.message);
  ck_assert_msg(memcmp(t->d.y.t.data, t->bits, t->bytes) == 0, "%s: other bits", setting);
  const bs_tensor_desc *args[4];
  const bs_op_query q = f24_query(&t->d, "matmul24", args);
  void *state = NULL, *plan = NULL;
  const bs_op_impl *impl = cx_impl(&c, "matmul24", "packed", &state);
  ck_assert_int_eq(impl->prepare(state, &c.exec, &q, t->packed, &plan, &err), BS_OK);
  must_echo(impl, plan, setting);
  impl->plan_free(plan);
}

START_TEST(each_value_of_matmul24_gives_the_same_bits) {
  static const struct {
    uint32_t x, y;
    int64_t B, N, K;
  } cases[] = {{BS_F32, BS_F32, 101, 1031, 300},
               {BS_F16, BS_F32, 70, 603, 260},
               {BS_F32, BS_F32, 5, 603, 300},
               {BS_I8, BS_I32, 33, 205, 130}};
  open_counted();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const f24 s = {.op = F24_FORWARD,
                   .x_type = cases[i].x,
                   .w_type = cases[i].x,
                   .y_type = cases[i].y,
                   .B = cases[i].B,
                   .N = cases[i].N,
                   .K = cases[i].K,
                   .seed = 5};
    sparse t;
    bs_error err = BS_ERROR_INIT;
    f24_make(&t.d, &s);
    t.packed = f24_pack(&c, &t.d);
    ck_assert_int_eq(f24_try(&c, &t.d, t.packed, &err), BS_OK);
    t.bytes = (size_t)(s.B * s.N) * 4; /* f32 or i32 */
    t.bits = malloc(t.bytes);
    ck_assert_ptr_nonnull(t.bits);
    memcpy(t.bits, t.d.y.t.data, t.bytes);
    every_setting(impl_of("matmul24"), one_sparse, &t);
    free(t.bits);
    f24_packed_free(&c, t.packed);
    f24_free(&t.d);
  }
  cx_close(&c);
}
END_TEST

/* ---- what a knob changes -------------------------------------------------------------------- */

static uint64_t workspace(const char *op, const char *knobs) {
  bs_op_answer a = {.struct_size = sizeof a};
  void *state = NULL;
  const bs_op_impl *impl = cx_impl(&c, op, "packed", &state);
  const bs_tensor_desc *args[4];
  if (strcmp(op, "matmul") == 0) {
    const mc s = {
        .dtype = BS_F32, .y_type = BS_F32, .B = 200, .N = 2048, .K = 1024, .seed = 3, .knobs = knobs};
    mc_data d = {.shape = s, .kept = s.K};
    bs_op_query q;
    d.x.d = bs_desc_2d(BS_F32, s.B, s.K);
    d.y.d = bs_desc_2d(BS_F32, s.B, s.N);
    mc_query(&d, args, &q);
    ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  } else {
    f24_data d = {
        .shape = {.op = F24_FORWARD, .w_type = BS_F32, .B = 200, .N = 2048, .K = 1024, .knobs = knobs}};
    d.x.d = bs_desc_2d(BS_F32, 200, 1024);
    d.y.d = bs_desc_2d(BS_F32, 200, 2048);
    d.kept = (bs_kept){.struct_size = sizeof d.kept, .rows = 2048, .cols = 1024};
    const bs_op_query q = f24_query(&d, op, args);
    ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  }
  ck_assert_msg(a.level == BS_LEVEL_NATIVE, "%s", a.text);
  return a.workspace;
}

START_TEST(knobs_change_what_is_worked_in) {
  open_counted();
  ck_assert_uint_lt(workspace("matmul", "tokens=12"), workspace("matmul", "tokens=192"));
  ck_assert_uint_lt(workspace("matmul", "panels=8"), workspace("matmul", "panels=128"));
  ck_assert_uint_lt(workspace("matmul", "keep=off"), workspace("matmul", "keep=on"));
  ck_assert_uint_eq(workspace("matmul", "tokens=96"), workspace("matmul", NULL));
  ck_assert_uint_lt(workspace("matmul24", "panels=4"), workspace("matmul24", "panels=32"));
  ck_assert_uint_lt(workspace("matmul24", "keep=off"), workspace("matmul24", "keep=on"));
  ck_assert_uint_lt(workspace("matmul24", "form=narrow;tokens=16"), workspace("matmul24", "form=narrow"));
  cx_close(&c);
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
  const mc s = {.dtype = BS_F32, .y_type = BS_F32, .B = 20, .N = 300, .K = 400, .seed = 3};
  bs_op_answer a;
  mc_data d;
  open_counted();
  mc_make(&d, &s);
  mc_ask(&c, "packed", &d, &a);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    d.shape.knobs = cases[i].knobs;
    teams = 0;
    mc_run(&c, "packed", &d);
    ck_assert_int_eq(teams, cases[i].teams);
    ck_assert_uint_le(c.newest, cases[i].members * a.workspace);
    ck_assert_uint_gt(c.newest, (cases[i].members - 1) * a.workspace);
  }
  mc_free(&d);
  cx_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_value_of_matmul_gives_the_same_bits},
                             {each_value_of_matmul24_gives_the_same_bits},
                             {knobs_change_what_is_worked_in},
                             {threads_is_how_many_work},
                             {0}};
  return run_tests("cpu_knobs", tests, (test_setup){0});
}
