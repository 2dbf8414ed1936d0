/* SPDX-License-Identifier: MIT
 * test_op_dynamic.c - what a run of the ops of graphs may change of what was prepared, what it costs, and
 * which views may be written. The implementation is an actor (op_actor.h). */
#include "op_asked.h"
#include "tests/run_tests.h"

/* ---- runs ----------------------------------------------------------------------------------- */

/* A plan of attention by an actor and the args of a run, each in memory of its own. */
typedef struct stage {
  fx f;
  actor a;
  bs_op_impl impl;
  bs_plan *plan;
  fx_tensor tensors[BS_MAX_OP_ARGS];
  bs_tensor args[BS_MAX_OP_ARGS];
  bs_tensor *list[BS_MAX_OP_ARGS];
  uint32_t nargs;
} stage;

static void raise_stage(stage *s, asked *a) {
  bs_error err = BS_ERROR_INIT;
  memset(s, 0, sizeof *s);
  s->a.level = BS_LEVEL_NATIVE;
  s->impl = fx_actor_impl(a->q.op, "a", 0);
  fx_open(&s->f, 1, 0);
  fx_add("stage", &s->impl, &s->a);
  ck_assert_msg(bs_dispatch_prepare(&s->f.ops, &a->q, NULL, &s->plan, &err) == BS_OK, "%s", err.message);
  s->nargs = a->q.nargs;
  for (uint32_t i = 0; i < s->nargs; i++) {
    if (a->args[i] == NULL) continue;
    fx_tensor_make(&s->tensors[i], a->descs[i].dtype, a->descs[i].rank, a->descs[i].dims, NULL);
  }
}

static void set_args(stage *s) {
  for (uint32_t i = 0; i < s->nargs; i++) {
    s->args[i] = s->tensors[i].t;
    s->list[i] = s->tensors[i].block != NULL ? &s->args[i] : NULL;
  }
}

static void strike_stage(stage *s) {
  bs_dispatch_release(s->plan);
  for (uint32_t i = 0; i < s->nargs; i++) fx_tensor_free(&s->tensors[i]);
  fx_close(&s->f);
}

static void runs(stage *s, uint64_t flops, uint64_t bytes) {
  bs_error err = BS_ERROR_INIT;
  const uint64_t f = s->f.counters[BS_COUNT_FLOPS], b = s->f.counters[BS_COUNT_OP_BYTES];
  const int before = s->a.runs;
  ck_assert_msg(bs_dispatch_run(s->plan, s->list, s->nargs, NULL, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(s->a.runs, before + 1);
  ck_assert_uint_eq(s->f.counters[BS_COUNT_FLOPS] - f, flops);
  ck_assert_uint_eq(s->f.counters[BS_COUNT_OP_BYTES] - b, bytes);
}

static void refuses(stage *s, const char *id, const char *says) {
  bs_error err = BS_ERROR_INIT;
  const int before = s->a.runs;
  ck_assert_msg(bs_dispatch_run(s->plan, s->list, s->nargs, NULL, &err) == BS_INVALID_ARGUMENT,
                "a run that should say \"%s\"", says);
  ck_assert_str_eq(err.id, id);
  ck_assert_msg(strstr(err.message, says) != NULL, "\"%s\" does not say \"%s\"", err.message, says);
  ck_assert_int_eq(s->a.runs, before);
  set_args(s);
}

START_TEST(a_run_brings_its_own_dims) {
  static stage s;
  asked a;
  uint64_t flops = 0, bytes = 0;
  read_args(&a, "attention", "f32[2,4,6,8] f32[2,2,7,8] f32[2,2,7,3] bool[1,1,6,7] - - f32[2,4,6,3] -");
  a.q.numbers[0] = 1.0;
  raise_stage(&s, &a);
  set_args(&s);
  bs_op_cost(&a.q, &flops, &bytes);
  ck_assert_uint_eq(flops, 2 * 2 * 4 * 6 * 7 * (8 + 3));
  ck_assert_uint_eq(bytes, 4 * (2 * 4 * 6 * (8 + 3) + 2 * 2 * 7 * (8 + 3)) + 6 * 7);
  runs(&s, flops, bytes);
  s.args[0].dims[2] = s.args[3].dims[2] = s.args[6].dims[2] = 1; /* one query, five keys, one sequence */
  s.args[1].dims[2] = s.args[2].dims[2] = s.args[3].dims[3] = 5;
  s.args[0].dims[0] = s.args[1].dims[0] = s.args[2].dims[0] = s.args[6].dims[0] = 1;
  runs(&s, 2 * 4 * 5 * (8 + 3), 4 * (4 * (8 + 3) + 2 * 5 * (8 + 3)) + 5);
  set_args(&s);
  s.args[0].strides[0] = 3; /* of one query of one head: any outer stride */
  s.args[0].dims[0] = s.args[1].dims[0] = s.args[2].dims[0] = s.args[6].dims[0] = 1;
  runs(&s, 2 * 4 * 6 * 7 * (8 + 3), 4 * (4 * 6 * (8 + 3) + 2 * 7 * (8 + 3)) + 42);
  set_args(&s);
  s.args[0].strides[1] = 8; /* token-major: heads beside each other */
  s.args[0].strides[2] = 4 * 8;
  runs(&s, flops, bytes);
  set_args(&s);
  s.args[0].dims[1] = 2;
  refuses(&s, "BS-OP-RUN", "arg 0 has 2 in dimension 1, prepared for 4");
  s.args[0].dims[2] = 7;
  refuses(&s, "BS-OP-RUN", "arg 0 has 7 in dimension 2, prepared for at most 6");
  s.args[0].dims[2] = 5;
  refuses(&s, "BS-OP-RUN", "arg 3 has 6 in dimension 2, an arg before");
  s.args[1].dims[2] = -1;
  refuses(&s, "BS-OP-RUN", "arg 1 has -1");
  s.args[0].strides[3] = 2;
  refuses(&s, "BS-OP-RUN", "stride 2 in its last dimension");
  s.args[0].strides[0] = 1 << 20;
  refuses(&s, "BS-OP-RUN", "arg 0 does not lie within");
  s.args[0].strides[0] = INT64_MAX;
  refuses(&s, "BS-OP-RUN", "arg 0 does not lie within");
  s.args[6].strides[1] = 0;
  refuses(&s, "BS-OP-RUN", "arg 6 is written but overlaps");
  s.args[6].strides[2] = 2;
  refuses(&s, "BS-OP-RUN", "arg 6 is written but overlaps");
  s.args[1].data = NULL;
  refuses(&s, "BS-OP-RUN", "has no data");
  s.args[1].data = (char *)s.args[1].data + 1;
  refuses(&s, "BS-OP-ALIGN", "no multiple of its 4 bytes");
  s.args[3].dtype = BS_F32;
  refuses(&s, "BS-OP-RUN", "arg 3 is f32 of rank 4, prepared for bool");
  s.list[3] = NULL;
  refuses(&s, "BS-OP-RUN", "arg 3 is absent, prepared with it");
  s.list[4] = &s.args[0];
  refuses(&s, "BS-OP-RUN", "arg 4 is there, prepared without it");
  s.nargs = 7;
  refuses(&s, "BS-OP-RUN", "7 args, prepared for 8");
  s.nargs = 8;
  strike_stage(&s);
}
END_TEST

START_TEST(checked_once_and_run_often) {
  static stage s;
  asked a;
  program p;
  uint64_t flops = 0, bytes = 0;
  bs_error err = BS_ERROR_INIT;
  read_args(&a, "map", "f32[5,4] f32[1,4] f32[5,4]");
  a.q.expr = sum_of_two(&p);
  raise_stage(&s, &a);
  set_args(&s);
  s.args[0].dims[0] = s.args[2].dims[0] = 3;
  ck_assert_int_eq(bs_dispatch_check_args(s.plan, s.list, 3, &flops, &bytes, &err), BS_OK);
  ck_assert_uint_eq(flops, 12);
  ck_assert_uint_eq(bytes, 4 * (12 + 4 + 12));
  for (int i = 0; i < 3; i++) ck_assert_int_eq(bs_dispatch_run_unchecked(s.plan, s.list, NULL, &err), BS_OK);
  ck_assert_int_eq(s.a.runs, 3);
  ck_assert_uint_eq(s.f.counters[BS_COUNT_FLOPS], 0); /* the executor counts */
  s.a.run_rc = BS_IO;
  s.a.silent = 1;
  ck_assert_int_eq(bs_dispatch_run_unchecked(s.plan, s.list, NULL, &err), BS_IO);
  ck_assert_str_eq(err.id, "BS-OP-FAILED");
  s.args[1].dims[0] = 0; /* a broadcast dim stays 1 */
  refuses(&s, "BS-OP-RUN", "arg 1 has 0 in dimension 0, prepared for 1");
  strike_stage(&s);
}
END_TEST

/* ---- attention ------------------------------------------------------------------------------ */

/* What docs/ops.md says that query s of S sees, counted one by one. */
static void count_seen(const bs_op_query *q, int64_t S, int64_t T, uint64_t *out_pairs, uint64_t *out_keys) {
  int64_t first = T, last = -1;
  *out_pairs = 0;
  for (int64_t s = 0; s < S; s++) {
    const int64_t p = s + (q->attrs[0] == BS_CAUSAL_LOWER_RIGHT ? T - S : 0);
    for (int64_t t = 0; t < T; t++) {
      if (q->attrs[0] != BS_CAUSAL_NONE && t > p) continue;
      if (q->attrs[1] > 0 && p - t > q->attrs[1] - 1) continue;
      if (q->attrs[2] > 0 && t - p > q->attrs[2] - 1) continue;
      ++*out_pairs;
      if (t < first) first = t;
      if (t > last) last = t;
    }
  }
  *out_keys = last < first ? 0 : (uint64_t)(last - first + 1);
}

/* The cost of attention is that of what its queries see: causal or not, with windows, more or fewer keys than
 * queries; and so is that of its gradient. */
static void check_attention(int S, int T) {
  static const int64_t windows[] = {0, 1, 2, 5, INT64_MAX};
  asked a, g;
  uint64_t flops = 0, bytes = 0, pairs = 0, keys = 0;
  char text[256];
  snprintf(text, sizeof text, "f32[2,4,%d,8] f32[2,2,%d,8] f32[2,2,%d,3] - - - f32[2,4,%d,3] -", S, T, T, S);
  read_args(&a, "attention", text);
  snprintf(text, sizeof text,
           "f32[2,4,%d,8] f32[2,2,%d,8] f32[2,2,%d,3] - - - f32[2,4,%d,3] f32[2,4,%d] f32[2,4,%d,3] "
           "f32[2,4,%d,8] f32[2,2,%d,8] f32[2,2,%d,3]",
           S, T, T, S, S, S, S, T, T);
  read_args(&g, "attention_dx", text);
  a.q.numbers[0] = g.q.numbers[0] = 1.0;
  for (int i = 0; i < 3 * 5 * 5; i++) {
    a.q.attrs[0] = g.q.attrs[0] = i / 25;
    a.q.attrs[1] = g.q.attrs[1] = windows[i / 5 % 5];
    a.q.attrs[2] = g.q.attrs[2] = windows[i % 5];
    count_seen(&a.q, S, T, &pairs, &keys);
    const uint64_t q = 4 * 2 * 4 * (uint64_t)S, kv = 4 * 2 * 2 * (8 + 3);
    bs_op_cost(&a.q, &flops, &bytes);
    ck_assert_msg(flops == 2 * 2 * 4 * pairs * (8 + 3), "%d x %d, mask %d: %llu of %llu pairs", S, T, i,
                  (unsigned long long)flops / (2 * 2 * 4 * (8 + 3)), (unsigned long long)pairs);
    ck_assert_msg(bytes == q * (8 + 3) + kv * keys, "%d x %d, mask %d: %llu bytes, %llu keys", S, T, i,
                  (unsigned long long)bytes, (unsigned long long)keys);
    bs_op_cost(&g.q, &flops, &bytes);
    ck_assert_uint_eq(flops, 2 * 4 * pairs * (6 * 8 + 4 * 3));
    ck_assert_uint_eq(bytes, q * (8 + 3 + 1 + 3 + 8) + kv * (keys + (uint64_t)T));
  }
}

START_TEST(attention_costs_what_is_seen) {
  for (int S = 0; S < 9; S++)
    for (int T = 0; T < 9; T++) check_attention(S, T);
}
END_TEST

/* In a cache: the call's own keys count, and a query sees what lies before it. And sizes near the limit. */
START_TEST(attention_of_a_call_counts_its_keys) {
  static stage s;
  asked a;
  uint64_t flops = 0, bytes = 0;
  read_args(&a, "attention", "f32[1,4,6,8] f32[1,2,64,8] f32[1,2,64,3] - i32[1] - f32[1,4,6,3] -");
  a.q.numbers[0] = 1.0;
  a.q.attrs[0] = BS_CAUSAL_LOWER_RIGHT;
  raise_stage(&s, &a);
  set_args(&s);
  runs(&s, 2 * 4 * (6 * 64 - 15) * (8 + 3), 4 * (4 * 6 * (8 + 3) + 2 * 64 * (8 + 3) + 1));
  s.args[1].dims[2] = s.args[2].dims[2] = 10; /* cut to the length */
  runs(&s, 2 * 4 * (6 * 10 - 15) * (8 + 3), 4 * (4 * 6 * (8 + 3) + 2 * 10 * (8 + 3) + 1));
  s.args[0].dims[2] = s.args[6].dims[2] = 1; /* the last token alone sees all of it */
  runs(&s, 2 * 4 * 10 * (8 + 3), 4 * (4 * (8 + 3) + 2 * 10 * (8 + 3) + 1));
  strike_stage(&s);
  read_args(&a, "attention",
            "f32[1,1,1000000000000,1] f32[1,1,4000000000000,1] f32[1,1,4000000000000,1] - - - "
            "f32[1,1,1000000000000,1] -");
  a.q.numbers[0] = 1.0;
  a.q.attrs[0] = BS_CAUSAL_UPPER_LEFT;
  bs_op_cost(&a.q, &flops, &bytes);
  ck_assert_uint_eq(flops, UINT64_MAX);
  ck_assert_uint_eq(bytes, UINT64_C(4) * 4 * 1000000000000);
}
END_TEST

/* ---- overlap -------------------------------------------------------------------------------- */

static const struct {
  uint32_t rank;
  int64_t dims[4], strides[4];
  int overlaps;
} views[] = {
    {1, {5}, {1}, 0},
    {1, {5}, {3}, 0},
    {1, {1}, {0}, 0},
    {3, {2, 3, 4}, {12, 4, 1}, 0},
    {3, {2, 3, 4}, {4, 8, 1}, 0},   /* permuted */
    {3, {2, 3, 4}, {1, 2, 6}, 0},   /* the other way round */
    {3, {2, 3, 4}, {40, 10, 2}, 0}, /* with gaps */
    {3, {2, 3, 4}, {11, 4, 1}, 1},  /* the last row of one and the first of the next */
    {3, {2, 3, 4}, {12, 3, 1}, 1},  /* rows overlap by one */
    {3, {2, 3, 4}, {12, 12, 1}, 1}, /* two dimensions on each other */
    {4, {2, 1, 3, 4}, {12, 0, 4, 1}, 0},
    {3, {2, 0, 4}, {1, 1, 1}, 0}, /* nothing */
    {2, {2, 2}, {INT64_MAX, INT64_MAX - 1}, 1},
    {3, {5, 3, 4}, {4, 1, 1}, 1}, /* windows of a convolution: fine to read, not to write */
};

START_TEST(overlap_in_any_rank) {
  ck_assert_int_eq(bs_op_overlaps(views[_i].rank, views[_i].dims, views[_i].strides), views[_i].overlaps);
  if (views[_i].strides[0] > 1000) return;
  asked a;
  program p;
  bs_error err = BS_ERROR_INIT;
  read_args(&a, "map", "f32[] f32[] f32[]");
  a.q.expr = sum_of_two(&p);
  for (int i = 0; i < 3; i++) {
    a.descs[i].rank = views[_i].rank;
    for (uint32_t d = 0; d < views[_i].rank; d++) a.descs[i].dims[d] = views[_i].dims[d];
  }
  memcpy(a.descs[2].strides, views[_i].strides, sizeof views[_i].strides);
  ck_assert_int_eq(bs_op_check(&a.q, &err), views[_i].overlaps ? BS_INVALID_ARGUMENT : BS_OK);
  if (views[_i].overlaps) ck_assert_msg(strstr(err.message, "overlaps itself") != NULL, "%s", err.message);
  memcpy(a.descs[0].strides, views[_i].strides, sizeof views[_i].strides); /* read, it may overlap */
  memset(a.descs[2].strides, 0, sizeof a.descs[2].strides);
  ck_assert_int_eq(bs_op_check(&a.q, &err), BS_OK);
}
END_TEST

/* The cost of a product whose matrices are shared: each is in memory once, however often it is read. */
START_TEST(shared_matrices_cost_once) {
  asked a;
  uint64_t flops = 0, bytes = 0;
  const uint64_t want = 4 * (5 * 4 * 6 + 2 * 6 * 3 + 2 * 5 * 4 * 3);
  read_args(&a, "contract", "f32[1,5,4,6] f32[2,1,6,3] - f32[2,5,4,3]");
  a.q.numbers[0] = 1.0;
  bs_op_cost(&a.q, &flops, &bytes);
  ck_assert_uint_eq(flops, 2 * 2 * 5 * 4 * 3 * 6);
  ck_assert_uint_eq(bytes, want);
  read_args(&a, "contract", "f32[2,5,4,6] f32[2,5,6,3] - f32[2,5,4,3]");
  a.q.numbers[0] = 1.0;
  for (int i = 0; i < 2; i++) { /* the same by strides of 0 */
    const int64_t row = i == 0 ? 6 : 3, matrix = i == 0 ? 24 : 18;
    const int64_t strides[4] = {i == 0 ? 0 : matrix, i == 0 ? matrix : 0, row, 1};
    memcpy(a.descs[i].strides, strides, sizeof strides);
  }
  bs_op_cost(&a.q, &flops, &bytes);
  ck_assert_uint_eq(flops, 2 * 2 * 5 * 4 * 3 * 6);
  ck_assert_uint_eq(bytes, want);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_run_brings_its_own_dims},
                             {checked_once_and_run_often},
                             {attention_costs_what_is_seen},
                             {attention_of_a_call_counts_its_keys},
                             {overlap_in_any_rank, TEST_COUNT(views)},
                             {shared_matrices_cost_once},
                             {0}};
  return run_tests("op_dynamic", tests, (test_setup){0});
}
