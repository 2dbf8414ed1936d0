/* SPDX-License-Identifier: MIT
 * test_op_supports.c - supports keeps its word: over a grid of queries (dtypes, shapes, zero dims, limits,
 * some of them nonsense) ref's NATIVE packs, prepares and runs, ref's NO refuses in pack and in prepare, and
 * both answers occur. The vtables are called directly, as a host other than ours might. */
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

typedef struct tally {
  int yes, no;
} tally;

static bs_op_answer ask(const bs_op_impl *impl, void *state, const bs_op_query *q) {
  bs_op_answer a, b;
  memset(&a, 0, sizeof a);
  a.struct_size = (uint32_t)sizeof a;
  b = a;
  if (impl->supports(state, q, &a) != BS_OK || impl->supports(state, q, &b) != BS_OK)
    ck_abort_msg("supports failed");
  if (memcmp(&a, &b, sizeof a) != 0) ck_abort_msg("supports is not pure");
  if (a.level == BS_LEVEL_NO && (a.reason == BS_REASON_NONE || a.text[0] == '\0'))
    ck_abort_msg("NO without a reason or text");
  return a;
}

static void matmul_serves(fx *f, const bs_op_impl *impl, void *state, const bs_op_query *q, fx_tensor *w,
                          bs_tensor *const *args, uint64_t workspace) {
  const bs_source source = fx_source(w);
  void *packed = NULL, *plan = NULL;
  uint64_t bytes = 0;
  bs_error err = BS_ERROR_INIT;
  if (impl->pack(state, &f->exec, q, &source, &packed, &bytes, &err) != BS_OK ||
      impl->prepare(state, &f->exec, q, packed, &plan, &err) != BS_OK ||
      impl->run(plan, args, 4, NULL, &err) != BS_OK)
    ck_abort_msg("NATIVE, but: %s", err.message);
  if (q->workspace_limit > 0 && workspace > q->workspace_limit) ck_abort_msg("workspace above the limit");
  impl->plan_free(plan);
  impl->packed_free(packed);
}

static void matmul_refuses(fx *f, const bs_op_impl *impl, void *state, const bs_op_query *q, fx_tensor *w) {
  const bs_source source = fx_source(w);
  void *packed = NULL, *plan = NULL;
  uint64_t bytes = 0;
  bs_error err = BS_ERROR_INIT;
  if (impl->pack(state, &f->exec, q, &source, &packed, &bytes, &err) != BS_UNSUPPORTED || packed != NULL)
    ck_abort_msg("NO, but pack did not refuse");
  if (err.message[0] == '\0') ck_abort_msg("pack refused without a message");
  if (impl->prepare(state, &f->exec, q, w, &plan, &err) != BS_UNSUPPORTED || plan != NULL)
    ck_abort_msg("NO, but prepare did not refuse");
}

static void matmul_point(fx *f, uint64_t *seed, tally *t) {
  static const uint32_t dtypes[11] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                      BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};
  static const int64_t sizes[5] = {0, 1, 3, 64, 65};
  static const uint64_t limits[4] = {0, 1, 1 << 17, UINT64_MAX};
  void *state = NULL;
  const bs_op_impl *impl = fx_impl("matmul", &state);
  const int64_t rows = sizes[fx_below(seed, 5)], outputs = sizes[fx_below(seed, 5)],
                k = sizes[fx_below(seed, 5)];
  const int integers = fx_below(seed, 3) == 0, wild = fx_below(seed, 4) == 0;
  uint32_t d[5];
  for (int i = 0; i < 5; i++)
    d[i] = wild       ? dtypes[fx_below(seed, 11)]
           : integers ? dtypes[6 + fx_below(seed, 4)]
                      : dtypes[fx_below(seed, 6)];
  if (integers && !wild) d[4] = fx_below(seed, 2) ? BS_I32 : BS_I64;
  fx_tensor x, w, bias, residual, y;
  const int64_t n[1] = {outputs};
  fx_matrix(&x, d[0], rows, k);
  fx_matrix(&w, d[1], outputs, k);
  fx_tensor_make(&bias, d[2], 1, n, NULL);
  fx_matrix(&residual, d[3], rows, outputs);
  fx_matrix(&y, d[4], rows, outputs);
  fx_fill(&x, seed);
  fx_fill(&w, seed);
  fx_fill(&bias, seed);
  fx_fill(&residual, seed);
  const int with_bias = fx_below(seed, 2) == 0, with_residual = fx_below(seed, 2) == 0;
  const bs_tensor_desc *descs[4] = {&x.d, with_bias ? &bias.d : NULL, with_residual ? &residual.d : NULL,
                                    &y.d};
  bs_tensor *args[4] = {&x.t, with_bias ? &bias.t : NULL, with_residual ? &residual.t : NULL, &y.t};
  bs_op_query q = fx_query("matmul", descs, 4);
  q.weight_dtype = d[1];
  q.activation = (uint32_t)fx_below(seed, wild ? 6 : 4);
  q.accumulate = (uint32_t)fx_below(seed, wild ? 5 : 3);
  q.workspace_limit = limits[fx_below(seed, 4)];
  if (fx_below(seed, 12) == 0) x.d.dims[1]++; /* shapes that do not fit */
  if (fx_below(seed, 12) == 0) y.d.rank = 1;
  const bs_op_answer answer = ask(impl, state, &q);
  if (answer.level == BS_LEVEL_NATIVE) {
    x.d.dims[1] = k;
    matmul_serves(f, impl, state, &q, &w, args, answer.workspace);
    fx_check_guards(&y, "Y");
    t->yes++;
  } else {
    if (answer.level != BS_LEVEL_NO) ck_abort_msg("level %u", answer.level);
    matmul_refuses(f, impl, state, &q, &w);
    t->no++;
  }
  fx_tensor_free(&x);
  fx_tensor_free(&w);
  fx_tensor_free(&bias);
  fx_tensor_free(&residual);
  fx_tensor_free(&y);
}

START_TEST(matmul_grid) {
  uint64_t seed = 31;
  tally t = {0, 0};
  fx f;
  fx_open(&f, 2, 1);
  for (int i = 0; i < 1500; i++) matmul_point(&f, &seed, &t);
  ck_assert_msg(t.yes > 300 && t.no > 300, "the grid is lopsided: %d yes, %d no", t.yes, t.no);
  fx_close(&f);
}
END_TEST

START_TEST(other_ops_grid) {
  static const char *const ops[4] = {"gather_columns", "scatter_columns", "convert", "activate"};
  static const uint32_t dtypes[4] = {BS_F32, BS_BF16, BS_U8, BS_BOOL};
  uint64_t seed = 8;
  tally t = {0, 0};
  uint32_t columns[32];
  fx f;
  fx_open(&f, 2, 1);
  for (int i = 0; i < 1600; i++) {
    void *state = NULL, *plan = NULL;
    const char *op = ops[i % 4];
    const bs_op_impl *impl = fx_impl(op, &state);
    const bs_partition p = fx_gather(fx_below(&seed, 20), 4, (uint32_t)fx_below(&seed, 16), columns);
    const int64_t rows = fx_below(&seed, 4);
    int64_t cols[2] = {p.total, p.count};
    if (i % 4 == 1) cols[0] = p.count, cols[1] = p.total;
    if (i % 4 >= 2) cols[1] = cols[0];
    if (fx_below(&seed, 4) == 0) cols[fx_below(&seed, 2)]++;
    const uint32_t dtype = dtypes[fx_below(&seed, 4)];
    fx_tensor in, out;
    fx_matrix(&in, dtype, rows, cols[0]);
    fx_matrix(&out, fx_below(&seed, 3) == 0 ? dtypes[fx_below(&seed, 4)] : dtype, rows, cols[1]);
    fx_fill(&in, &seed);
    const bs_tensor_desc *descs[2] = {&in.d, &out.d};
    bs_tensor *args[2] = {&in.t, &out.t};
    bs_op_query q = fx_query(op, descs, 2);
    q.partition = fx_below(&seed, 8) == 0 ? NULL : &p;
    q.activation = i % 4 == 3 ? (uint32_t)fx_below(&seed, 5) : 0;
    const bs_op_answer answer = ask(impl, state, &q);
    bs_error err = BS_ERROR_INIT;
    const int32_t rc = impl->prepare(state, &f.exec, &q, NULL, &plan, &err);
    if (answer.level == BS_LEVEL_NATIVE) {
      t.yes++;
      if (rc != BS_OK || impl->run(plan, args, 2, NULL, &err) != BS_OK)
        ck_abort_msg("%s: %s", op, err.message);
      impl->plan_free(plan);
      fx_check_guards(&out, op);
    } else {
      t.no++;
      if (rc != BS_UNSUPPORTED || plan != NULL) ck_abort_msg("%s: NO, but prepare gave %d", op, rc);
    }
    fx_tensor_free(&in);
    fx_tensor_free(&out);
  }
  ck_assert_msg(t.yes > 200 && t.no > 200, "the grid is lopsided: %d yes, %d no", t.yes, t.no);
  fx_close(&f);
}
END_TEST

/* A limit below one workspace a member: fewer members, the same numbers. */
START_TEST(workspace_limit_narrows_the_team) {
  fx f;
  fx_tensor x, w, y, z;
  uint64_t seed = 2;
  fx_open(&f, 4, 1);
  f.threads = 1;
  fx_matrix(&x, BS_F32, 70, 20);
  fx_matrix(&w, BS_F32, 300, 20);
  fx_matrix(&y, BS_F32, 70, 300);
  fx_matrix(&z, BS_F32, 70, 300);
  fx_fill(&x, &seed);
  fx_fill(&w, &seed);
  const bs_source source = fx_source(&w);
  for (int limited = 0; limited < 2; limited++) {
    fx_tensor *out = limited ? &z : &y;
    const bs_tensor_desc *descs[4] = {&x.d, NULL, NULL, &out->d};
    bs_tensor *args[4] = {&x.t, NULL, NULL, &out->t};
    bs_op_query q = fx_query("matmul", descs, 4);
    bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
    bs_packed *packed = NULL;
    bs_plan *plan = NULL;
    bs_error err = BS_ERROR_INIT;
    q.weight_dtype = BS_F32;
    ck_assert_int_eq(bs_dispatch_supports(&f.ops, &q, &answer, &err), BS_OK);
    if (limited) q.workspace_limit = answer.workspace * 2 + 1;
    ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &source, &packed, &err), BS_OK);
    ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, packed, &plan, &err), BS_OK);
    ck_assert_int_eq(bs_dispatch_run(plan, args, 4, NULL, &err), BS_OK);
    bs_dispatch_release(plan);
    bs_dispatch_packed_release(packed);
  }
  ck_assert_int_eq(memcmp(y.t.data, z.t.data, y.t.bytes), 0);
  fx_tensor_free(&x);
  fx_tensor_free(&w);
  fx_tensor_free(&y);
  fx_tensor_free(&z);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{matmul_grid}, {other_ops_grid}, {workspace_limit_narrows_the_team}, {0}};
  return run_tests("op_supports", tests, (test_setup){0});
}
