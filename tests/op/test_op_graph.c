/* SPDX-License-Identifier: MIT
 * test_op_graph.c - the ops of graphs, of scales, losses and trees: which queries and programs the host lets
 * pass, and keys that tell programs and numbers apart. */
#include "core/op/choice.h"
#include "core/op/expr.h"
#include "op_asked.h"
#include "tests/run_tests.h"

/* ---- queries -------------------------------------------------------------------------------- */

/* As read_args takes them: args; attrs; numbers. Without an id (BS-OP-..) the query passes. */
static const struct {
  const char *op, *text, *id, *says;
  uint32_t activation;
} queries[] = {
    {"map", "f32[2,3] f32[1,3] bf16[2,3]", NULL, NULL},
    {"map", "f32[] f32[] f32[]", NULL, NULL},
    {"map", "i64[2,1,1,1,1,6] bool[2,3,4,5,1,6] f32[2,3,4,5,1,6]", NULL, NULL},
    {"map", "f32[2,3] f32[2,3]", "ARITY", "2 args, need 3"},
    {"map", "f32[2,3] - f32[2,3]", "ARITY", "arg 1 is missing"},
    {"map", "f32[2,3] f32[3] f32[2,3]", "RANK", "arg 1: 1 dimensions, need 2"},
    {"map", "f32[2,3] f32[2,2] f32[2,3]", "SHAPE", "arg 1 has 2 in dimension 1"},
    {"map", "f32[2,3] f32[2,3] f32[1,3]", "SHAPE", "arg 0 has 2"},
    {"normalize", "f32[2,5,8] f32[1,5,8] f32[8] f32[8] f32[2,5,8] f32[2,5,8] ; 1 ; 1e-5", NULL, NULL},
    {"normalize", "bf16[8] - f32[8] - bf16[8] - ; 2", NULL, NULL},
    {"normalize", "f32[2,8] - - - f32[2,8] - ; 3", NULL, NULL},
    {"normalize", "f32[2,8] - - - f32[2,8] -", "ATTR", "kind, attrs[0], is 0: 1 to 4"},
    {"normalize", "f32[2,8] - f32[8] - f32[2,8] - ; 4", "ARITY", "no gamma or beta"},
    {"normalize", "f32[2,8] - f32[7] - f32[2,8] - ; 1", "SHAPE", "arg 2 has 7"},
    {"normalize", "f32[2,8] - - - f32[2,8] - ; 1 ; -1.0", "ATTR", "eps"},
    {"normalize", "f32[2,8] f32[2,4] - - f32[2,8] - ; 1", "SHAPE", "arg 1"},
    {"normalize", "i32[2,8] - - - f32[2,8] - ; 1", "DTYPE", "arg 0 is i32"},
    {"attention",
     "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] bool[1,1,5,7] i32[2] - f32[2,6,5,4] f32[2,6,5] ; 2 4 0 ; 0.5 "
     "30.0",
     NULL, NULL},
    {"attention", "f8e4m3[1,2,5,8] f8e4m3[1,2,5,8] f8e4m3[1,2,5,8] - - f32[3] bf16[1,2,5,8] - ; 1 ; 0.1",
     NULL, NULL},
    {"attention", "f32[2,5,5,8] f32[2,3,7,8] f32[2,3,7,4] - - - f32[2,5,5,4] - ; 0 ; 0.5", "SHAPE",
     "5 heads of Q, 3 of K"},
    {"attention", "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] - - - f32[2,6,5,8] - ; 0 ; 0.5", "SHAPE",
     "arg 6 has 8 in dimension 3"},
    {"attention", "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] f32[2,6,5,6] - - f32[2,6,5,4] - ; 0 ; 0.5", "SHAPE",
     "arg 3 has 6"},
    {"attention", "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] - i64[2] - f32[2,6,5,4] - ; 0 ; 0.5", "DTYPE",
     "arg 4 is i64"},
    {"attention", "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] - - - f32[2,6,5,4] -", "ATTR",
     "scale, numbers[0], is 0"},
    {"attention", "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] - - - f32[2,6,5,4] - ; 3 ; 1", "ATTR", "causal"},
    {"attention", "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] - - f32[2] f32[2,6,5,4] - ; 0 ; 1", "SHAPE",
     "descale has 2"},
    {"attention_dx",
     "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] bool[1,1,5,7] i32[2] - f32[2,6,5,4] f32[2,6,5] bf16[2,6,5,4] "
     "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] ; 2 4 0 ; 0.5 30.0",
     NULL, NULL},
    {"attention_dx",
     "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] - - - f32[2,6,5,4] f32[2,6,5] f32[2,6,5,4] f32[2,6,5,8] "
     "f32[2,6,7,8] f32[2,3,7,4] ; 0 ; 0.5",
     "SHAPE", "arg 10 has 6 in dimension 1"},
    {"attention_dx",
     "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] - - f32[3] f32[2,6,5,4] f32[2,6,5] f32[2,6,5,4] f32[2,6,5,8] "
     "f32[2,3,7,8] f32[2,3,7,4] ; 0 ; 0.5",
     "ARITY", "descale"},
    {"attention_dx",
     "f32[2,6,5,8] f32[2,3,7,8] f32[2,3,7,4] - - - f32[2,6,5,4] f32[2,6,5] f32[2,6,5,4] i32[2,6,5,8] "
     "f32[2,3,7,8] f32[2,3,7,4] ; 0 ; 0.5",
     "DTYPE", "arg 9 is i32"},
    {"contract", "f32[4,1,3,5] f32[1,2,5,7] f32[1,1,1,7] f32[4,2,3,7] ; 0 ; 1.0", NULL, NULL},
    {"contract", "i8[3,5] u8[5,7] - i32[3,7] ; 0 ; 1.0", NULL, NULL},
    {"contract", "i8[3,5] u8[5,7] - i8[3,7] ; 0 ; 1.0", "DTYPE", "arg 3 is i8"},
    {"contract", "f32[3,5] f32[4,7] - f32[3,7] ; 0 ; 1.0", "SHAPE", "arg 1 has 4"},
    {"contract", "f32[3,5] f32[5,7] - f32[3,7] ; 0 ; 0.0", "ATTR", "alpha"},
    {"contract", "f32[5] f32[5] - f32[1] ; 0 ; 1.0", "RANK", "need 2 to 6"},
    {"reduce", "f32[4,5,6] f32[4,1,6] ; 1 ; 0.2", NULL, NULL},
    {"reduce", "bool[4,5] bool[1,1] ; 2", NULL, NULL},
    {"reduce", "f32[4,5] i64[4,1] ; 6 1 1", NULL, NULL},
    {"reduce", "i64[4,5] i64[4,5] ; 8 0 3", NULL, NULL},
    {"reduce", "f32[4,5] f32[4] ; 1 ; 1", "RANK", "1 dimensions, need 2"},
    {"reduce", "f32[4,5] f32[4,2] ; 1 ; 1", "SHAPE", "arg 1 has 2"},
    {"reduce", "f32[4,5] f32[4,1] ; 1", "ATTR", "factor"},
    {"reduce", "f32[4,5] i64[1,1] ; 7 1", "SHAPE", "axis is 1"},
    {"reduce", "f32[4,5] f32[4,1] ; 8 1", "SHAPE", "axis is 1"},
    {"reduce", "f32[4,5] f64[4,1] ; 2", "DTYPE", "in f32, out f64"},
    {"take", "f32[9,4] i64[2,3] f32[2,3,4] ; 0 0", NULL, NULL},
    {"take", "f32[9,4] i64[] f32[9] ; 0 1", NULL, NULL},
    {"take", "f32[9,4] i64[2] f32[2,3] ; 0 0", "SHAPE", "arg 2 has 3"},
    {"take", "f32[9,4] i64[2] f32[9,2] ; 0 2", "ATTR", "axis"},
    {"take", "f32[9,4] f32[2] f32[2,4] ; 0 0", "DTYPE", "index f32"},
    {"take", "f32[9,4] i64[9,2] f32[9,2] ; 1 1", NULL, NULL},
    {"take", "f32[9,4] i64[10,2] f32[10,2] ; 1 1", "SHAPE", "index has 10"},
    {"take", "f32[2,9,4] i32[2,5,1] f32[2,5,4] ; 2 0 1", NULL, NULL},
    {"take", "f32[2,9,4] i32[2,5,3] f32[2,5] ; 2 0 1", "SHAPE", "a tuple"},
    {"take", "f32[2,9,4] i32[3,5,1] f32[3,5,4] ; 2 0 1", "SHAPE", "arg 1 has 3"},
    {"put", "f32[2,3,9,4] i64[5] f32[2,3,5,4] f32[2,3,9,4] ; 0 2", NULL, NULL},
    {"put", "f32[2,3,9,4] i64[2,5] f32[2,3,5,4] f32[2,3,9,4] ; 0 2", NULL, NULL},
    {"put", "f32[9,4] i64[9,5] f32[5,4] f32[9,4] ; 0 0", "RANK", "behind axis 0"},
    {"put", "f32[9,4] i64[5,2] f32[5] f32[9,4] ; 2 0 0 1", NULL, NULL},
    {"put", "f32[9,4] i64[5] f32[5,4] f32[9,5] ; 0 0", "SHAPE", "arg 3 has 5"},
    {"put", "f32[9,4] i64[5] f32[5,4] f32[9,4] ; 0 0 0 5", "ATTR", "reduction"},
    {"topk", "f32[3,9] f32[3,2] i64[3,2] ; 1 0", NULL, NULL},
    {"topk", "f32[3,9] f32[3,10] i64[3,10] ; 1 0", "SHAPE", "k is 10 of 9"},
    {"topk", "f32[3,9] f32[3,2] f32[3,2] ; 1 0", "DTYPE", "indices f32"},
    {"loss_gradient", "f32[4,8] - f32[4,8] f64[4,1] ; 2 8", "ATTR", ""},
    {"loss_gradient", "f32[4,8] - f32[4,8] f64[4,1] ; 1 0", "ATTR", ""},
    {"loss_gradient", "f32[4,8] f32[4,8] f32[4,8] f64[4,1] ; 0 8", "ARG", ""},
    {"loss_gradient", "i32[4,8] - f32[4,8] f64[4,1] ; 1 8", "DTYPE", ""},
    {"loss_gradient", "f32[4,8] f32[4,7] f32[4,8] f64[4,1] ; 1 8", "SHAPE", ""},
    {"loss_gradient", "f32[4,8] - f32[4,8] f32[4,1] ; 1 8", "DTYPE", ""},
    {"loss_gradient", "f32[4,8] - f32[4,8] f64[4,2] ; 1 8", "SHAPE", ""},
    {"tree_sum", "f32[2,12] f32[2,4]", "SHAPE", ""}, /* three blocks */
    {"tree_sum", "f32[2,64] f32[2,4]", "SHAPE", ""}, /* sixteen */
    {"tree_sum", "f32[2,9] f32[2,4]", "SHAPE", ""},
    {"tree_sum", "f32[2,3] f32[2,4]", "SHAPE", ""},
    {"tree_sum", "f32[2,8] i32[2,4]", "DTYPE", ""},
    {"tree_sum", "i8[2,8] i8[2,4]", "DTYPE", ""},
    {"tree_sum", "f32[2,16] f32[2,4] ; 0 1 1 3", "ATTR", ""},
    {"tree_sum", "f32[2,16] f32[2,4] ; 0 1 2 4", "ATTR", ""},
    {"quantize_groups", "f32[2,8] i8[2,8] f32[2,2]", "ATTR", ""},
    {"quantize_groups", "f32[2,8] f8e4m3[2,8] f32[2,2] ; 4 2", "ATTR", ""},
    {"quantize_groups", "f32[2,8] i8[2,8] f32[2,3] ; 4", "SHAPE", ""},
    {"quantize_groups", "f32[2,8] u8[2,8] f32[2,2] ; 4", "DTYPE", ""},
    {"quantize_groups", "f16[2,8] i8[2,8] f32[2,2] ; 4", "DTYPE", ""},
    {"dequantize_sum", "i8[2,16] f32[2,4] f32[2,8] ; 4 0", "ATTR", ""},
    {"dequantize_sum", "i8[2,16] f32[2,4] f32[2,8] ; 4 3", "SHAPE", ""},
    {"dequantize_sum", "i8[2,16] f32[2,4] i32[2,8] ; 4 2", "DTYPE", ""},
    {"dequantize_sum", "i8[2,16] f32[1,4] f32[2,8] ; 4 2", "SHAPE", ""},
    {"dequantize_product", "i64[4,8] f32[4,1] f32[8] f32[8] f32[4,8] f32[4,8]", "DTYPE", ""},
    {"dequantize_product", "i32[4,8] f32[4,2] f32[8] f32[8] f32[4,8] f32[4,8]", "SHAPE", ""},
    {"dequantize_product", "i32[4,8] f32[4,1] f32[7] f32[8] f32[4,8] f32[4,8]", "SHAPE", ""},
    {"dequantize_product", "i32[4,8] f32[4,1] f32[8] f64[8] f32[4,8] f32[4,8]", "DTYPE", ""},
    {"dequantize_product", "i32[4,8] f32[4,1] f32[8] f32[8] f32[4,8] i32[4,8]", "DTYPE", ""},
    {"dequantize_product", "i32[4,8] f32[4,1] f32[8] f32[8] f32[4,1] f32[4,8]", "SHAPE", ""},
    {"dequantize_product", "i32[4,8] f32[4,1] f32[8] f32[8] f32[4,8] f32[4,8]", "ATTR", "",
     BS_ACT_GELU_TANH + 1},
    {"scaled_matmul", "f8e4m3[4,32] f64[4,2] f8e4m3[8,32] f32[8,2] f32[8] f32[4,8] f32[4,8] ; 16", "DTYPE",
     ""},
    {"scaled_matmul", "i8[4,32] f32[4,2] f8e4m3[8,32] f32[8,2] f32[8] f32[4,8] f32[4,8] ; 16", "DTYPE", ""},
    {"scaled_matmul", "f8e4m3[4,32] f32[4,2] f8e4m3[8,31] f32[8,2] f32[8] f32[4,8] f32[4,8] ; 16", "SHAPE",
     ""},
    {"scaled_matmul", "f8e4m3[4,32] f32[4,2] f8e4m3[8,32] f32[8,3] f32[8] f32[4,8] f32[4,8] ; 16", "SHAPE",
     ""},
    {"scaled_matmul", "f8e4m3[4,32] f32[4,2] f8e4m3[8,32] f32[8,2] f32[7] f32[4,8] f32[4,8] ; 16", "SHAPE",
     ""},
    {"scaled_matmul", "f8e4m3[4,32] f32[4,2] f8e4m3[8,32] f32[8,2] f32[8] f32[4,8] i32[4,8] ; 16", "DTYPE",
     ""},
    {"scaled_matmul", "f8e4m3[4,32] f32[4,2] f8e4m3[8,32] f32[8,2] f32[8] f32[4,8] f32[4,8] ; 0", "ATTR", ""},
    {"scaled_matmul", "f8e4m3[4,32] f32[4,2] f8e4m3[8,32] f32[8,2] f32[8] f32[4,8] f32[4,8] ; 16", "ATTR", "",
     BS_ACT_GELU_TANH + 1},
};

START_TEST(each_query_passes_or_is_named) {
  asked a;
  program p;
  bs_error err = BS_ERROR_INIT;
  read_args(&a, queries[_i].op, queries[_i].text);
  a.q.activation = queries[_i].activation;
  if (strcmp(a.q.op, "map") == 0) a.q.expr = sum_of_two(&p);
  const int32_t rc = bs_op_check(&a.q, &err);
  if (queries[_i].id == NULL) {
    ck_assert_msg(rc == BS_OK, "%s %s: %s", a.q.op, queries[_i].text, err.message);
    return;
  }
  ck_assert_msg(rc == BS_INVALID_ARGUMENT, "%s %s passes", a.q.op, queries[_i].text);
  ck_assert_str_eq(err.id + strlen("BS-OP-"), queries[_i].id);
  ck_assert_msg(strstr(err.message, queries[_i].says) != NULL, "\"%s\" does not say \"%s\"", err.message,
                queries[_i].says);
}
END_TEST

/* ---- programs ------------------------------------------------------------------------------- */

static void wrong_sizes(program *p) {
  p->e.n_in = 13;
}
static void wrong_compute(program *p) {
  p->e.compute = BS_F16;
}
static void no_steps(program *p) {
  p->e.steps = NULL;
}
static void no_output(program *p) {
  p->e.n_out = 0;
}
static void unknown_op(program *p) {
  p->steps[0].op = BS_EXPR_OP_COUNT_, p->e.max_op = BS_EXPR_OP_COUNT_;
}
static void op_zero(program *p) {
  p->steps[0].op = 0;
}
static void reads_itself(program *p) {
  p->steps[0].b = 2;
}
static void stray_operand(program *p) {
  p->steps[0].c = 1;
}
static void beyond_max_op(program *p) {
  p->e.max_op = BS_EXPR_ADD - 1;
}
static void output_beyond(program *p) {
  p->outs[0] = 3;
}
static void another_form(program *p) {
  p->e.form = BS_MAP_MUL;
}
static void unknown_form(program *p) {
  p->e.form = BS_MAP_COUNT_;
}
static void float_step(program *p) {
  p->e.compute = BS_I64, p->e.form = 0, p->steps[0] = (bs_expr_step){BS_EXPR_EXP, 0, 0, 0};
  p->e.max_op = BS_EXPR_EXP;
}
static void far_index(program *p) {
  p->e.form = 0, p->steps[0] = (bs_expr_step){BS_EXPR_INDEX, 2, 0, 0};
  p->e.max_op = BS_EXPR_INDEX;
}
static void to_nothing(program *p) {
  p->e.form = 0, p->steps[0] = (bs_expr_step){BS_EXPR_TO, 0, 0x77, 0x20};
  p->e.max_op = BS_EXPR_TO;
}

static const struct {
  void (*spoil)(program *p);
  const char *says;
} programs[] = {
    {wrong_sizes, "13 inputs"},
    {wrong_compute, "computes in"},
    {no_steps, "without its steps"},
    {no_output, "0 outputs"},
    {unknown_op, "unknown op 43, the largest is 42"},
    {op_zero, "unknown op 0"},
    {reads_itself, "there are 2 before it"},
    {stray_operand, "an operand that it does not use"},
    {beyond_max_op, "max_op 24, its largest op is 25"},
    {output_beyond, "output 0 is value 3 of 3"},
    {another_form, "says that it is mul"},
    {unknown_form, "unknown form"},
    {float_step, "exp, needs floats"},
    {far_index, "index of dimension 2 of 2"},
    {to_nothing, "unknown dtype 0x7720"},
};

START_TEST(each_broken_program_is_named) {
  asked a;
  program p;
  bs_error err = BS_ERROR_INIT;
  read_args(&a, "map", "f32[2,3] f32[2,3] f32[2,3]");
  a.q.expr = sum_of_two(&p);
  ck_assert_int_eq(bs_op_check(&a.q, &err), BS_OK);
  programs[_i].spoil(&p);
  ck_assert_int_eq(bs_op_check(&a.q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-EXPR");
  ck_assert_msg(strstr(err.message, programs[_i].says) != NULL, "\"%s\" does not say \"%s\"", err.message,
                programs[_i].says);
}
END_TEST

START_TEST(programs_are_for_map) {
  asked a;
  program p;
  bs_error err = BS_ERROR_INIT;
  read_args(&a, "convert", "f32[2,3] f16[2,3]");
  a.q.expr = sum_of_two(&p);
  ck_assert_int_eq(bs_op_check(&a.q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-EXPR");
  a.q.op = "acme_map"; /* a plugin's op may have one, which is checked */
  ck_assert_int_eq(bs_op_check(&a.q, &err), BS_OK);
  p.e.max_op++;
  ck_assert_int_eq(bs_op_check(&a.q, &err), BS_INVALID_ARGUMENT);
  read_args(&a, "map", "f32[2,3] f32[2,3]");
  ck_assert_int_eq(bs_op_check(&a.q, &err), BS_INVALID_ARGUMENT);
  ck_assert_msg(strstr(err.message, "needs a program") != NULL, "%s", err.message);
  read_args(&a, "map", "f32[2,3] i64[2,3] i64[2,3]");
  a.q.expr = sum_of_two(&p);
  p.e.compute = BS_I64;
  p.e.form = BS_MAP_NONE;
  ck_assert_int_eq(bs_op_check(&a.q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-OP-DTYPE");
}
END_TEST

START_TEST(forms_are_recognised) {
  program p;
  sum_of_two(&p);
  ck_assert_uint_eq(bs_expr_form_of(&p.e), BS_MAP_ADD);
  p.steps[0].a = 1; /* y + y is none */
  ck_assert_uint_eq(bs_expr_form_of(&p.e), BS_MAP_NONE);
  ck_assert_str_eq(bs_expr_form_name(BS_MAP_ROPE), "rope");
  ck_assert_str_eq(bs_expr_op_name(BS_EXPR_GELU_TANH), "gelu_tanh");
  ck_assert_str_eq(bs_expr_op_name(BS_EXPR_OP_COUNT_), "?");
}
END_TEST

/* ---- who serves ----------------------------------------------------------------------------- */

/* As the rule says: an op that it does not know is none of its own. */
static int32_t knows_no_gelu_tanh(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  out_answer->level = query->expr->max_op > BS_EXPR_GELU ? BS_LEVEL_NO : BS_LEVEL_NATIVE;
  out_answer->reason = BS_REASON_NOT_BUILT;
  snprintf(out_answer->text, sizeof out_answer->text, "knows steps up to %d", BS_EXPR_GELU);
  return BS_OK;
}

START_TEST(a_program_beyond_what_a_backend_knows_is_refused) {
  fx f;
  actor a = {.level = BS_LEVEL_NATIVE};
  asked ask;
  program p;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_op_impl impl = fx_actor_impl("map", "old", 0);
  impl.supports = knows_no_gelu_tanh;
  fx_open(&f, 1, 0);
  fx_add("stage", &impl, &a);
  read_args(&ask, "map", "f32[2,3] f32[2,3]");
  sum_of_two(&p);
  p.e.n_in = 1;
  p.steps[0] = (bs_expr_step){BS_EXPR_GELU, 0, 0, 0};
  p.outs[0] = 1;
  p.e.form = BS_MAP_GELU;
  p.e.max_op = BS_EXPR_GELU;
  ask.q.expr = &p.e;
  ck_assert_msg(bs_dispatch_prepare(&f.ops, &ask.q, NULL, &plan, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
  p.steps[0].op = BS_EXPR_GELU_TANH;
  p.e.form = BS_MAP_GELU_TANH;
  p.e.max_op = BS_EXPR_GELU_TANH;
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &ask.q, NULL, &plan, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-OP-NONE");
  ck_assert_msg(strstr(err.message, "knows steps up to 19") != NULL, "%s", err.message);
  ck_assert_int_eq(a.prepares, 1);
  fx_close(&f);
}
END_TEST

START_TEST(keys_tell_programs_and_numbers_apart) {
  fx f;
  asked a;
  program p;
  char keys[8][BS_CHOICE_KEY];
  int n = 0;
  fx_open(&f, 1, 0);
  read_args(&a, "map", "f32[2,3] f32[2,3] f32[2,3]");
  a.q.expr = sum_of_two(&p);
  bs_choice_key(&f.ops, &a.q, keys[n++], BS_CHOICE_KEY);
  ck_assert_str_eq(keys[0], "map@ref f32[2,3] f32[2,3] f32[2,3] program f32:add threads=1 P=1");
  p.e.form = BS_MAP_NONE; /* the same program without its name: the same key */
  bs_choice_key(&f.ops, &a.q, keys[n], BS_CHOICE_KEY);
  ck_assert_str_eq(keys[0], keys[n]);
  p.steps[0].op = BS_EXPR_SUB;
  bs_choice_key(&f.ops, &a.q, keys[n++], BS_CHOICE_KEY);
  p.steps[0].b = 0;
  bs_choice_key(&f.ops, &a.q, keys[n++], BS_CHOICE_KEY);
  p.e.n_const = 1; /* x - constant, for two constants */
  p.consts[0] = 1;
  p.steps[0].b = 2;
  bs_choice_key(&f.ops, &a.q, keys[n++], BS_CHOICE_KEY);
  p.consts[0] = 2;
  bs_choice_key(&f.ops, &a.q, keys[n++], BS_CHOICE_KEY);
  read_args(&a, "contract", "f32[3,5] f32[5,7] - f32[3,7]");
  a.q.numbers[0] = 0.125;
  bs_choice_key(&f.ops, &a.q, keys[n++], BS_CHOICE_KEY);
  ck_assert_str_eq(keys[n - 1], "contract@ref f32[3,5] f32[5,7] f32[3,7] number0=0.125 threads=1 P=1");
  a.q.numbers[0] = 0.25;
  bs_choice_key(&f.ops, &a.q, keys[n++], BS_CHOICE_KEY);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) ck_assert_str_ne(keys[i], keys[j]);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_query_passes_or_is_named, TEST_COUNT(queries)},
                             {each_broken_program_is_named, TEST_COUNT(programs)},
                             {programs_are_for_map},
                             {forms_are_recognised},
                             {a_program_beyond_what_a_backend_knows_is_refused},
                             {keys_tell_programs_and_numbers_apart},
                             {0}};
  return run_tests("op_graph", tests, (test_setup){0});
}
