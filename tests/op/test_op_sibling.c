/* SPDX-License-Identifier: MIT
 * test_op_sibling.c - the rules of matmul's derivatives, and who serves them: the implementation of the
 * plugin, backend and name that packed the weight; BS_QUERY_TRAIN. Implementations are actors (op_actor.h).
 */
#include <string.h>

#include "op_actor.h"
#include "tests/run_tests.h"

/* X [4,8], dY [4,6], dX [4,8], dW [6,8], alpha [1]. */
typedef struct grad {
  bs_tensor_desc x, dy, dx, dw, alpha;
  const bs_tensor_desc *args[3][3];
  bs_op_query q[3]; /* matmul_dx, matmul_dw, matmul_update */
} grad;

enum { DX = 0, DW = 1, UPDATE = 2 };

static void grad_make(grad *g) {
  memset(g, 0, sizeof *g);
  g->x = g->dx = bs_desc_2d(BS_F32, 4, 8);
  g->dy = bs_desc_2d(BS_F32, 4, 6);
  g->dw = bs_desc_2d(BS_F32, 6, 8);
  g->alpha = (bs_tensor_desc){.struct_size = sizeof g->alpha, .dtype = BS_F32, .rank = 1, .dims = {1}};
  const bs_tensor_desc *const args[3][3] = {
      {&g->dy, &g->dx, NULL}, {&g->x, &g->dy, &g->dw}, {&g->x, &g->dy, &g->alpha}};
  static const char *const ops[3] = {"matmul_dx", "matmul_dw", "matmul_update"};
  memcpy(g->args, args, sizeof args);
  for (int i = 0; i < 3; i++) {
    g->q[i] = fx_query(ops[i], g->args[i], i == DX ? 2 : 3);
    g->q[i].weight_dtype = BS_F32;
  }
}

static void refused(const bs_op_query *q, const char *id, const char *word) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_op_check(q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, id);
  ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" lacks \"%s\"", err.message, word);
}

static void accepted(const bs_op_query *q) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_op_check(q, &err) == BS_OK, "%s", err.message);
}

START_TEST(shapes_and_attributes) {
  grad g;
  grad_make(&g);
  for (int i = 0; i < 3; i++) {
    accepted(&g.q[i]);
    g.q[i].nargs++;
    refused(&g.q[i], "BS-OP-ARITY", i == DX ? "3 args, need 2" : "4 args, need 3");
    g.q[i].nargs--;
    g.q[i].activation = BS_ACT_RELU;
    refused(&g.q[i], "BS-OP-ATTR", "takes no activation");
    g.q[i].activation = BS_ACT_NONE;
    g.q[i].accumulate = 3;
    refused(&g.q[i], "BS-OP-ATTR", "accumulate 3");
    g.q[i].accumulate = BS_ACC_F32;
    g.q[i].flags = BS_QUERY_BITS << 1;
    refused(&g.q[i], "BS-OP-ATTR", "unknown flags");
    g.q[i].flags = BS_QUERY_TRAIN | BS_QUERY_DETERMINISTIC;
    accepted(&g.q[i]);
  }
  g.dy.dims[0] = 3;
  refused(&g.q[DX], "BS-OP-SHAPE", "dX has 4 rows, dY 3");
  refused(&g.q[DW], "BS-OP-SHAPE", "X has 4 rows, dY 3");
  refused(&g.q[UPDATE], "BS-OP-SHAPE", "X has 4 rows, dY 3");
  g.dy.dims[0] = 4;
  g.dw.dims[1] = 7;
  refused(&g.q[DW], "BS-OP-SHAPE", "dW is [6,7], dY^T X [6,8]");
  g.alpha.dims[0] = 2;
  refused(&g.q[UPDATE], "BS-OP-SHAPE", "alpha is f32[2]");
  g.alpha.dims[0] = 1;
  g.args[UPDATE][2] = NULL;
  refused(&g.q[UPDATE], "BS-OP-ARITY", "arg 2 is missing");
  g.dx.strides[0] = 0; /* written: rows may not lie on each other */
  g.dx.strides[1] = 1;
  refused(&g.q[DX], "BS-OP-SHAPE", "stride 0");
}
END_TEST

START_TEST(columns) {
  grad g;
  uint32_t list[16];
  grad_make(&g);
  const bs_partition p = fx_gather(16, 4, 3, list);
  for (int i = 0; i < 3; i++) {
    g.q[i].partition = &p;
    accepted(&g.q[i]);
    g.q[i].flags = BS_QUERY_X_FULL;
    refused(&g.q[i], "BS-OP-SHAPE", i == DX ? "dX has 8 columns" : "X has 8 columns");
  }
  g.x.dims[1] = g.dx.dims[1] = 16;
  for (int i = 0; i < 3; i++) {
    g.x.strides[0] = g.x.strides[1] = g.dx.strides[0] = g.dx.strides[1] = 0;
    accepted(&g.q[i]); /* dW stays [6,8] */
  }
}
END_TEST

START_TEST(dtypes) {
  grad g;
  grad_make(&g);
  g.dw.dtype = BS_BF16;
  refused(&g.q[DW], "BS-OP-DTYPE", "f32 or f64, not bf16");
  g.dw.dtype = BS_F64;
  accepted(&g.q[DW]);
  g.q[DX].weight_dtype = 0;
  refused(&g.q[DX], "BS-OP-DTYPE", "unknown weight_dtype");
  g.q[DX].weight_dtype = BS_I8;
  refused(&g.q[DX], "BS-OP-DTYPE", "dY, weight and dX are f32, i8, f32");
  g.alpha.dtype = BS_F64;
  refused(&g.q[UPDATE], "BS-OP-SHAPE", "alpha is f64[1]");
  g.alpha.dtype = BS_F32;
  g.x.dtype = g.dy.dtype = g.dx.dtype = BS_I8;
  refused(&g.q[DX], "BS-OP-DTYPE", "a result of i32 or i64");
  g.dx.dtype = BS_I32;
  accepted(&g.q[DX]);
  g.dw.dtype = BS_I64;
  accepted(&g.q[DW]);
  g.q[UPDATE].weight_dtype = BS_I32;
  refused(&g.q[UPDATE], "BS-OP-DTYPE", "integer weights are not updated");
}
END_TEST

START_TEST(costs) {
  grad g;
  uint64_t flops = 0, bytes = 0;
  grad_make(&g);
  g.q[DX].weight_dtype = g.q[UPDATE].weight_dtype = BS_BF16;
  static const uint64_t want[3] = {4 * (4 * 6 + 4 * 8) + 2 * 6 * 8, 4 * (4 * 6 + 4 * 8) + 4 * 6 * 8,
                                   4 * (4 * 6 + 4 * 8) + 2 * 2 * 6 * 8};
  for (int i = 0; i < 3; i++) {
    bs_op_cost(&g.q[i], &flops, &bytes);
    ck_assert_uint_eq(flops, 2 * 4 * 6 * 8);
    ck_assert_uint_eq(bytes, want[i]);
    const bs_op_schema *schema = bs_op_schema_find(g.q[i].op);
    ck_assert(schema->outputs != 0 || schema->needs_weights == 2); /* each op writes something */
  }
}
END_TEST

/* Two implementations of matmul in two plugins; each has some of the siblings. */
typedef struct stage {
  fx f;
  actor one, two;
  bs_op_impl impls[8];
  int count;
} stage;

static void add(stage *s, const char *plugin, const char *op, const char *name, actor *a) {
  s->impls[s->count] = fx_actor_impl(op, name, 0);
  fx_add(plugin, &s->impls[s->count++], a);
}

static void stage_open(stage *s) {
  memset(s, 0, sizeof *s);
  s->one = (actor){.level = BS_LEVEL_NATIVE, .score = 9};
  s->two = (actor){.level = BS_LEVEL_NATIVE, .score = 8};
  fx_open(&s->f, 1, 0);
  add(s, "acme", "matmul", "one", &s->one);
  add(s, "acme", "matmul", "two", &s->two);
}

static bs_packed *pack(stage *s, uint32_t flags) {
  bs_packed *packed = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_op_query q = fx_matmul_query();
  const bs_source w = fx_source_of(6, 8);
  q.flags = flags;
  ck_assert_msg(bs_dispatch_pack(&s->f.ops, &q, &w, &packed, &err) == BS_OK, "%s", err.message);
  return packed;
}

START_TEST(siblings_share_packed_weights) {
  stage s;
  grad g;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  grad_make(&g);
  stage_open(&s);
  bs_packed *packed = pack(&s, 0);
  /* Not another plugin's, not another name's. */
  add(&s, "other", "matmul_dx", "one", &s.one);
  add(&s, "acme", "matmul_dx", "two", &s.two);
  ck_assert_int_eq(bs_dispatch_prepare(&s.f.ops, &g.q[DX], packed, &plan, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-SIBLING");
  ck_assert_ptr_nonnull(strstr(err.message, "packed by matmul@ref/one of plugin acme"));
  ck_assert_ptr_nonnull(strstr(err.message, "no matmul_dx@ref/one"));
  ck_assert_ptr_nonnull(strstr(err.hint, "BS_QUERY_TRAIN"));
  ck_assert_ptr_null(plan);
  ck_assert_int_eq(s.one.prepares + s.two.prepares, 0);
  add(&s, "acme", "matmul_dx", "one", &s.one);
  s.f.notes[0] = '\0';
  ck_assert_int_eq(bs_dispatch_prepare(&s.f.ops, &g.q[DX], packed, &plan, &err), BS_OK);
  ck_assert_int_eq(s.one.prepares, 1);
  ck_assert_str_eq(s.f.notes, "matmul_dx@ref/one\n");
  bs_dispatch_packed_release(packed); /* the sibling's plan keeps it alive */
  ck_assert_int_eq(s.one.packed_frees, 0);
  bs_dispatch_release(plan);
  ck_assert_int_eq(s.one.plan_frees, 1);
  ck_assert_int_eq(s.one.packed_frees, 1);
  fx_close(&s.f);
}
END_TEST

START_TEST(a_sibling_may_refuse_and_must_fit) {
  stage s;
  grad g;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  actor picky = {.level = BS_LEVEL_NO, .reason = BS_REASON_DTYPE, .text = "no bf16 here"};
  grad_make(&g);
  stage_open(&s);
  bs_packed *packed = pack(&s, 0);
  add(&s, "acme", "matmul_dx", "one", &picky);
  add(&s, "acme", "matmul_update", "one", &s.one);
  ck_assert_int_eq(bs_dispatch_prepare(&s.f.ops, &g.q[DX], packed, &plan, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-NONE");
  ck_assert_ptr_nonnull(strstr(err.message, "no bf16 here"));
  g.dy.dims[1] = 7;
  ck_assert_int_eq(bs_dispatch_prepare(&s.f.ops, &g.q[UPDATE], packed, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "6 rows, dY 7 columns"));
  g.dy.dims[1] = 6;
  g.x.dims[1] = 9;
  ck_assert_int_eq(bs_dispatch_prepare(&s.f.ops, &g.q[UPDATE], packed, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "8 of 8, the query's are 9 of 9"));
  g.x.dims[1] = 8;
  g.q[UPDATE].weight_dtype = BS_F16;
  ck_assert_int_eq(bs_dispatch_prepare(&s.f.ops, &g.q[UPDATE], packed, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "packed as f32, asked as f16"));
  ck_assert_int_eq(bs_dispatch_prepare(&s.f.ops, &g.q[DW], packed, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "takes no packed weight"));
  ck_assert_int_eq(bs_dispatch_prepare(&s.f.ops, &g.q[DX], NULL, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "needs a packed weight"));
  bs_packed *none = NULL;
  const bs_source w = fx_source_of(6, 8);
  ck_assert_int_eq(bs_dispatch_pack(&s.f.ops, &g.q[DX], &w, &none, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-PACK");
  ck_assert_ptr_nonnull(strstr(err.message, "weights that are packed for matmul"));
  bs_dispatch_packed_release(packed);
  fx_close(&s.f);
}
END_TEST

START_TEST(training_needs_both_siblings) {
  stage s;
  bs_packed *packed = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  bs_op_query q = fx_matmul_query();
  const bs_source w = fx_source_of(6, 8);
  q.flags = BS_QUERY_TRAIN;
  stage_open(&s);
  add(&s, "acme", "matmul_dx", "two", &s.two);
  ck_assert_int_eq(bs_dispatch_pack(&s.f.ops, &q, &w, &packed, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-NONE");
  ck_assert_msg(strstr(err.message,
                       "one (acme): not built: cannot serve a backward pass: no matmul_dx@ref/one") != NULL,
                "%s", err.message);
  ck_assert_ptr_nonnull(strstr(err.message, "no matmul_update@ref/two"));
  ck_assert_int_eq(bs_dispatch_supports(&s.f.ops, &q, &answer, &err), BS_OK);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  ck_assert_uint_eq(answer.reason, BS_REASON_NOT_BUILT);
  add(&s, "acme", "matmul_update", "two", &s.two);
  packed = pack(&s, BS_QUERY_TRAIN); /* the lower score has what is needed */
  ck_assert_int_eq(s.two.packs, 1);
  ck_assert_int_eq(s.one.packs, 0);
  bs_dispatch_packed_release(packed);
  packed = pack(&s, 0);
  ck_assert_int_eq(s.one.packs, 1);
  bs_dispatch_packed_release(packed);
  fx_close(&s.f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{shapes_and_attributes},
                             {columns},
                             {dtypes},
                             {costs},
                             {siblings_share_packed_weights},
                             {a_sibling_may_refuse_and_must_fit},
                             {training_needs_both_siblings},
                             {0}};
  return run_tests("op_sibling", tests, (test_setup){0});
}
