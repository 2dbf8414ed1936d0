/* SPDX-License-Identifier: MIT
 * test_op_schema.c - bs_op_check refuses what no implementation should have to look at, naming the argument,
 * and bs_op_cost is the formula of docs/ops.md. */
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

typedef struct matmul_query {
  bs_tensor_desc x, bias, residual, y;
  const bs_tensor_desc *args[4];
  bs_op_query q;
} matmul_query;

static bs_tensor_desc vector(uint32_t dtype, int64_t n) {
  bs_tensor_desc d = bs_desc_2d(dtype, n, 0);
  d.rank = 1;
  d.dims[1] = 0;
  d.strides[0] = 1;
  d.strides[1] = 0;
  return d;
}

static void matmul_make(matmul_query *m) {
  memset(m, 0, sizeof *m);
  m->x = bs_desc_2d(BS_F32, 4, 8);
  m->bias = vector(BS_F32, 6);
  m->residual = bs_desc_2d(BS_F32, 4, 6);
  m->y = bs_desc_2d(BS_F32, 4, 6);
  m->args[0] = &m->x;
  m->args[1] = &m->bias;
  m->args[2] = &m->residual;
  m->args[3] = &m->y;
  m->q = fx_query("matmul", m->args, 4);
  m->q.weight_dtype = BS_F32;
}

static void refused(const bs_op_query *q, const char *id, const char *word) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_op_check(q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, id);
  ck_assert_msg(strstr(err.message, word) != NULL, "\"%s\" does not say \"%s\"", err.message, word);
  ck_assert_uint_gt(strlen(err.hint), 0);
  ck_assert_int_eq(bs_op_check(q, NULL), BS_INVALID_ARGUMENT);
}

static void accepted(const bs_op_query *q) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_op_check(q, &err) == BS_OK, "%s", err.message);
}

START_TEST(matmul_arity_and_presence) {
  matmul_query m;
  matmul_make(&m);
  accepted(&m.q);
  m.args[1] = m.args[2] = NULL;
  accepted(&m.q);
  m.q.nargs = 3;
  refused(&m.q, "BS-OP-ARITY", "3 args, need 4");
  matmul_make(&m);
  m.args[0] = NULL;
  refused(&m.q, "BS-OP-ARITY", "arg 0 is missing");
  matmul_make(&m);
  m.args[3] = NULL;
  refused(&m.q, "BS-OP-ARITY", "arg 3 is missing");
  matmul_make(&m);
  m.q.struct_size = 8;
  refused(&m.q, "BS-OP-ARG", "struct_size 8");
  matmul_make(&m);
  m.q.args = NULL;
  refused(&m.q, "BS-OP-ARG", "args missing");
  refused(NULL, "BS-OP-ARG", "struct_size 0");
}
END_TEST

START_TEST(matmul_shapes) {
  matmul_query m;
  matmul_make(&m);
  m.bias.dims[0] = 5;
  refused(&m.q, "BS-OP-SHAPE", "bias has 5");
  matmul_make(&m);
  m.residual.dims[0] = 3;
  refused(&m.q, "BS-OP-SHAPE", "residual is [3,6]");
  matmul_make(&m);
  m.y.dims[0] = m.residual.dims[0] = 5;
  refused(&m.q, "BS-OP-SHAPE", "X has 4 rows, Y 5");
  matmul_make(&m);
  m.x.rank = 3;
  refused(&m.q, "BS-OP-RANK", "arg 0: 3 dimensions, need 2");
  matmul_make(&m);
  m.x.dims[1] = -1;
  refused(&m.q, "BS-OP-SHAPE", "size -1");
  matmul_make(&m);
  m.x.strides[0] = -8;
  refused(&m.q, "BS-OP-SHAPE", "stride -8");
  matmul_make(&m);
  m.y.strides[0] = 5; /* rows of 6 overlap */
  refused(&m.q, "BS-OP-SHAPE", "overlaps itself");
  matmul_make(&m);
  m.y.strides[0] = 0;
  m.y.strides[1] = 1;
  refused(&m.q, "BS-OP-SHAPE", "stride 0");
  matmul_make(&m);
  m.x.strides[0] = 0; /* an input may repeat a row */
  m.x.strides[1] = 1;
  accepted(&m.q);
  matmul_make(&m);
  m.y.strides[0] = m.y.strides[1] = 0; /* both zero: dense */
  accepted(&m.q);
  m.x = bs_desc_2d(BS_F32, 4, 0);
  m.y = m.residual = bs_desc_2d(BS_F32, 4, 0);
  m.bias = vector(BS_F32, 0);
  accepted(&m.q);
}
END_TEST

START_TEST(sizes_that_overflow) {
  matmul_query m;
  matmul_make(&m);
  m.x.dims[0] = INT64_MAX / 4;
  m.y.dims[0] = m.residual.dims[0] = INT64_MAX / 4;
  refused(&m.q, "BS-OP-SIZE", "overflows");
  matmul_make(&m);
  m.x.strides[0] = INT64_MAX / 2;
  refused(&m.q, "BS-OP-SIZE", "overflows");
  matmul_make(&m);
  m.x = bs_desc_2d(BS_F64, INT64_C(1) << 31, INT64_C(1) << 30); /* 2^61 elements, 2^64 bytes */
  refused(&m.q, "BS-OP-SIZE", "bytes");
}
END_TEST

START_TEST(matmul_dtypes) {
  matmul_query m;
  matmul_make(&m);
  m.x.dtype = 0x1234;
  refused(&m.q, "BS-OP-DTYPE", "arg 0: unknown dtype 0x1234");
  matmul_make(&m);
  m.q.weight_dtype = 0;
  refused(&m.q, "BS-OP-DTYPE", "weight_dtype");
  matmul_make(&m);
  m.q.weight_dtype = BS_I8;
  refused(&m.q, "BS-OP-DTYPE", "weight is i8 beside X f32");
  matmul_make(&m);
  m.bias.dtype = BS_I32;
  refused(&m.q, "BS-OP-DTYPE", "bias is i32");
  matmul_make(&m);
  m.x.dtype = BS_BOOL;
  refused(&m.q, "BS-OP-DTYPE", "X is bool");
  matmul_make(&m);
  m.x.dtype = m.q.weight_dtype = BS_I8;
  m.y.dtype = m.bias.dtype = m.residual.dtype = BS_I32;
  accepted(&m.q);
  m.q.activation = BS_ACT_GELU;
  refused(&m.q, "BS-OP-DTYPE", "gelu");
  m.q.activation = BS_ACT_NONE;
  m.y.dtype = BS_I8;
  refused(&m.q, "BS-OP-DTYPE", "Y of an integer product");
  matmul_make(&m);
  m.q.activation = 9;
  refused(&m.q, "BS-OP-ATTR", "activation 9");
  matmul_make(&m);
  m.q.flags = 1u << 9;
  refused(&m.q, "BS-OP-ATTR", "flags 0x200");
}
END_TEST

START_TEST(partitions) {
  matmul_query m;
  uint32_t columns[16];
  matmul_make(&m);
  bs_partition p = fx_gather(16, 4, 3, columns); /* 8 of 16 */
  m.q.partition = &p;
  accepted(&m.q);
  m.q.flags = BS_QUERY_X_FULL;
  refused(&m.q, "BS-OP-SHAPE", "the partition asks for 16 (X full)");
  m.x = bs_desc_2d(BS_F32, 4, 16);
  accepted(&m.q);
  m.q.flags = 0;
  refused(&m.q, "BS-OP-SHAPE", "asks for 8");
  m.x = bs_desc_2d(BS_F32, 4, 8);
  columns[3] = columns[2];
  refused(&m.q, "BS-OP-PARTITION", "not ascending");
  p = fx_gather(16, 4, 3, columns);
  columns[7] = 16;
  refused(&m.q, "BS-OP-PARTITION", "not below 16");
  p.columns = NULL;
  refused(&m.q, "BS-OP-PARTITION", "without a list");
  p = fx_gather(16, 4, 3, columns); /* the window of its period */
  const struct {
    int64_t begin, span;
    int fits;
  } windows[] = {{0, 0, 1},         {0, 16, 1},         {16, 0, 1},        {4, 12, 1}, {-1, 4, 0},
                 {0, -1, 0},        {17, 0, 0},         {4, 13, 0},        {0, 17, 0}, {INT64_MAX, 1, 0},
                 {1, INT64_MAX, 0}, {INT64_MIN, -1, 0}, {16, INT64_MAX, 0}};
  for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
    p.begin = windows[i].begin;
    p.span = windows[i].span;
    for (p.period = 0; p.period <= 4; p.period += 4) {
      if (windows[i].fits)
        accepted(&m.q);
      else
        refused(&m.q, "BS-OP-PARTITION", "has its period in");
    }
  }
  p = fx_contiguous(16, 9, 8);
  refused(&m.q, "BS-OP-PARTITION", "begins at 9");
  p = fx_contiguous(16, 8, 8);
  accepted(&m.q);
  p.kind = 7;
  refused(&m.q, "BS-OP-PARTITION", "kind 7");
  p = fx_contiguous(4, 0, 8);
  refused(&m.q, "BS-OP-PARTITION", "keeps 8 of 4");
}
END_TEST

START_TEST(columns_and_convert) {
  uint32_t columns[16];
  bs_partition p = fx_gather(16, 4, 3, columns);
  bs_tensor_desc full = bs_desc_2d(BS_BOOL, 3, 16), kept = bs_desc_2d(BS_BOOL, 3, 8);
  const bs_tensor_desc *args[2] = {&full, &kept}, *back[2] = {&kept, &full};
  bs_op_query gather = fx_query("gather_columns", args, 2), scatter = fx_query("scatter_columns", back, 2);
  refused(&gather, "BS-OP-PARTITION", "needs a partition");
  gather.partition = scatter.partition = &p;
  accepted(&gather);
  accepted(&scatter);
  gather.args = back;
  refused(&gather, "BS-OP-SHAPE", "full side [3,8]");
  gather.args = args;
  kept.dtype = BS_U8;
  refused(&gather, "BS-OP-DTYPE", "input bool, output u8");
  refused(&scatter, "BS-OP-DTYPE", "input u8, output bool");
  bs_op_query convert = fx_query("convert", args, 2);
  refused(&convert, "BS-OP-SHAPE", "input [3,16], output [3,8]");
  kept = bs_desc_2d(BS_F16, 3, 16);
  accepted(&convert);
}
END_TEST

START_TEST(activate) {
  bs_tensor_desc in = bs_desc_2d(BS_F32, 3, 16), out = bs_desc_2d(BS_BF16, 3, 16);
  const bs_tensor_desc *args[2] = {&in, &out};
  bs_op_query q = fx_query("activate", args, 2);
  for (q.activation = BS_ACT_NONE; q.activation <= BS_ACT_GELU_TANH; q.activation++) accepted(&q);
  refused(&q, "BS-OP-ATTR", "activation 5");
  q.activation = BS_ACT_GELU;
  out.dims[1] = 15;
  refused(&q, "BS-OP-SHAPE", "output [3,15]");
  out = bs_desc_2d(BS_I32, 3, 16);
  refused(&q, "BS-OP-DTYPE", "input f32, output i32");
  in.dtype = BS_I32;
  refused(&q, "BS-OP-DTYPE", "gelu and silu need float");
  q.activation = BS_ACT_RELU;
  accepted(&q);
  in.dtype = out.dtype = BS_I8;
  refused(&q, "BS-OP-DTYPE", "input i8, output i8");
}
END_TEST

START_TEST(plugin_ops) {
  bs_tensor_desc d = bs_desc_2d(BS_F32, 2, 2);
  const bs_tensor_desc *args[BS_MAX_OP_ARGS + 1];
  uint64_t flops = 1, bytes = 1;
  for (int i = 0; i <= BS_MAX_OP_ARGS; i++) args[i] = &d;
  bs_op_query q = fx_query("acme_softmax", args, 1);
  accepted(&q);
  bs_op_cost(&q, &flops, &bytes);
  ck_assert_uint_eq(flops, 0);
  ck_assert_uint_eq(bytes, 0);
  q.nargs = 16;
  accepted(&q);
  q.nargs = 17;
  refused(&q, "BS-OP-ARITY", "17 args, need 1 to 16");
  q.nargs = 0;
  refused(&q, "BS-OP-ARITY", "0 args");
  q.nargs = 1;
  d.rank = 7;
  refused(&q, "BS-OP-RANK", "7 dimensions");
  q.op = "";
  refused(&q, "BS-OP-ARG", "op missing");
}
END_TEST

START_TEST(cost_formulas) {
  matmul_query m;
  uint32_t columns[16];
  uint64_t flops = 0, bytes = 0;
  matmul_make(&m);
  bs_op_cost(&m.q, &flops, &bytes);
  ck_assert_uint_eq(flops, 2 * 4 * 6 * 8);
  ck_assert_uint_eq(bytes, 4 * (4 * 8 + 6 * 8 + 6 + 4 * 6 + 4 * 6)); /* X W bias residual Y */
  const bs_partition p = fx_gather(16, 4, 3, columns);
  m.q.partition = &p;
  m.q.flags = BS_QUERY_X_FULL;
  m.x = bs_desc_2d(BS_F16, 4, 16);
  m.q.weight_dtype = BS_F16;
  m.args[1] = m.args[2] = NULL;
  bs_op_cost(&m.q, &flops, &bytes);
  ck_assert_uint_eq(flops, 2 * 4 * 6 * 8);
  ck_assert_uint_eq(bytes, 2 * (4 * 8) + 2 * (6 * 8) + 4 * (4 * 6)); /* only the kept columns of X */
  m.x.dims[0] = m.y.dims[0] = 0;
  bs_op_cost(&m.q, &flops, &bytes);
  ck_assert_uint_eq(flops, 0);
  ck_assert_uint_eq(bytes, 0);
  bs_tensor_desc full = bs_desc_2d(BS_F64, 3, 16), kept = bs_desc_2d(BS_F64, 3, 8),
                 half = bs_desc_2d(BS_F16, 3, 16);
  const bs_tensor_desc *args[2] = {&full, &kept}, *pair[2] = {&full, &half};
  bs_op_query gather = fx_query("gather_columns", args, 2), convert = fx_query("convert", pair, 2);
  gather.partition = &p;
  bs_op_cost(&gather, &flops, &bytes);
  ck_assert_uint_eq(bytes, 2 * 3 * 8 * 8);
  bs_op_cost(&convert, &flops, &bytes);
  ck_assert_uint_eq(bytes, 3 * 16 * (8 + 2));
  ck_assert_uint_eq(flops, 0);
  m.q.nargs = 2; /* not a query: no cost */
  bs_op_cost(&m.q, &flops, &bytes);
  ck_assert_uint_eq(bytes, 0);
}
END_TEST

/* bs_host.op_cost: what a run of other rows costs follows from the parts. */
START_TEST(cost_parts) {
  matmul_query m;
  bs_op_rate rate = {.struct_size = sizeof rate};
  bs_error err = {.struct_size = sizeof err};
  matmul_make(&m);
  ck_assert_int_eq(bs_op_cost_parts(&m.q, &rate, &err), BS_OK);
  ck_assert_uint_eq(rate.struct_size, sizeof rate);
  ck_assert_uint_eq(rate.batch_arg, 0);
  ck_assert_uint_eq(rate.rows, 4);
  ck_assert_uint_eq(rate.flops_row, 2 * 6 * 8);
  ck_assert_uint_eq(rate.flops_fixed, 0);
  ck_assert_uint_eq(rate.bytes_row, 4 * (8 + 6 + 6));   /* X, residual and Y */
  ck_assert_uint_eq(rate.bytes_fixed, 4 * (6 * 8 + 6)); /* W and bias */
  struct {
    bs_op_rate rate;
    uint64_t behind;
  } shorter = {.rate = {.struct_size = offsetof(bs_op_rate, flops_fixed), .flops_fixed = 7}, .behind = 9};
  ck_assert_int_eq(bs_op_cost_parts(&m.q, &shorter.rate, &err), BS_OK);
  ck_assert_uint_eq(shorter.rate.bytes_row, rate.bytes_row);
  ck_assert(shorter.rate.flops_fixed == 7 &&
            shorter.behind == 9); /* of an older plugin: nothing there is written */
  bs_tensor_desc d = bs_desc_2d(BS_F32, 2, 3), out = bs_desc_2d(BS_F32, 2, 1);
  const bs_tensor_desc *args[2] = {&d, &out};
  bs_op_query reduce = fx_query("reduce", args, 2);
  uint64_t flops = 0, bytes = 0;
  reduce.attrs[0] = BS_FOLD_SUM;
  reduce.numbers[0] = 1.0;
  ck_assert_int_eq(bs_op_cost_parts(&reduce, &rate, &err), BS_OK);
  bs_op_cost(&reduce, &flops, &bytes);
  ck_assert(rate.batch_arg == UINT32_MAX && rate.rows == 1 && rate.flops_row == 0 && rate.bytes_row == 0);
  ck_assert_uint_eq(bytes, 4 * (2 * 3 + 2));
  ck_assert(bytes == rate.bytes_fixed && flops == rate.flops_fixed && flops > 0);
  bs_op_query mine = fx_query("acme_softmax", args, 1);
  ck_assert_int_eq(bs_op_cost_parts(&mine, &rate, &err), BS_UNSUPPORTED);
  ck_assert_uint_eq(rate.rows + rate.bytes_fixed + rate.flops_fixed, 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{matmul_arity_and_presence},
                             {matmul_shapes},
                             {sizes_that_overflow},
                             {matmul_dtypes},
                             {partitions},
                             {columns_and_convert},
                             {activate},
                             {plugin_ops},
                             {cost_formulas},
                             {cost_parts},
                             {0}};
  return run_tests("op_schema", tests, (test_setup){0});
}
