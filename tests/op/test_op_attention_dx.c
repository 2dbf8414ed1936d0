/* SPDX-License-Identifier: MIT
 * test_op_attention_dx.c - the gradients of attention are those of attention: on ref and on cpu, each element
 * of dQ, dK and dV beside the difference of two runs of attention in f64, with groups of heads, causal masks,
 * windows, softcaps, masks and lengths. On cpu its bits are those of any team. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "blockshock/plugin.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/run_tests.h"

enum { Q, K, V, MASK, LENGTHS, DESCALE, Y, LSE, DY, DQ, DK, DV, ARGS };
enum { B = 2, H = 4, G = 2, S = 5, T = 7, D = 3, E = 4, MOST = B * H * S * T };

typedef struct variant {
  const char *name;
  int64_t attrs[3];
  double softcap;
  int masked, bools, lengths;
} variant;
static const variant variants[] = {
    {"plain", {0}, 0, 0, 0, 0},
    {"causal", {BS_CAUSAL_UPPER_LEFT}, 0, 0, 0, 0},
    {"causal to the end, windows", {BS_CAUSAL_LOWER_RIGHT, 3, 0}, 0, 0, 0, 1},
    {"windows on both sides", {BS_CAUSAL_NONE, 3, 2}, 0, 0, 0, 0},
    {"softcap", {0}, 1.5, 0, 0, 0},
    {"a mask of floats, softcap", {0}, 2.0, 1, 0, 0},
    {"a mask of bools, lengths", {0}, 0, 1, 1, 1},
};

typedef struct job {
  const variant *v;
  uint32_t dtype;
  double at[ARGS][MOST]; /* inputs as f64 */
  double grad[3][MOST];  /* dQ, dK, dV by attention_dx */
} job;

static const int64_t dims[ARGS][4] = {{B, H, S, D}, {B, G, T, D}, {B, G, T, E}, {B, H, S, T},
                                      {B},          {3},          {B, H, S, E}, {B, H, S},
                                      {B, H, S, E}, {B, H, S, D}, {B, G, T, D}, {B, G, T, E}};
static int64_t count_of(uint32_t arg) {
  int64_t n = 1;
  for (int i = 0; i < 4; i++) n *= dims[arg][i] > 0 ? dims[arg][i] : 1;
  return n;
}

/* Every argument in memory of its own. */
typedef struct call {
  double memory[ARGS][MOST];
  bs_tensor t[ARGS], *args[ARGS];
  bs_tensor_desc desc[ARGS];
  const bs_tensor_desc *descs[ARGS];
} call;

static uint32_t dtype_of(const job *j, uint32_t arg, uint32_t wide) {
  return arg == LENGTHS ? BS_I32 : arg == LSE ? BS_F32 : arg == MASK && j->v->bools ? BS_BOOL : wide;
}

static void put(call *c, const job *j, uint32_t arg, uint32_t wide) {
  bs_tensor *t = &c->t[arg];
  bs_tensor_desc *d = &c->desc[arg];
  *t = (bs_tensor){.struct_size = sizeof *t, .dtype = dtype_of(j, arg, wide), .data = c->memory[arg]};
  for (; t->rank < 4 && dims[arg][t->rank] > 0; t->rank++) t->dims[t->rank] = dims[arg][t->rank];
  int64_t stride = 1;
  for (uint32_t i = t->rank; i-- > 0; stride *= t->dims[i]) t->strides[i] = stride;
  t->bytes = (uint64_t)stride * BS_DTYPE_BYTES(t->dtype);
  *d = (bs_tensor_desc){.struct_size = sizeof *d, .dtype = t->dtype, .rank = t->rank};
  memcpy(d->dims, t->dims, sizeof d->dims);
  memcpy(d->strides, t->strides, sizeof d->strides);
  for (int64_t i = 0; i < count_of(arg); i++) bs_store_f64(t->dtype, t->data, i, j->at[arg][i]);
  c->args[arg] = t;
  c->descs[arg] = d;
}

static int32_t run(bs_rank *rank, const job *j, const char *op, uint32_t wide, call *c, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t n = strcmp(op, "attention") == 0 ? LSE + 1 : ARGS;
  bs_plan *plan = NULL;
  memset(c, 0, sizeof *c);
  for (uint32_t i = 0; i < n; i++)
    if (i != DESCALE && (i != MASK || j->v->masked) && (i != LENGTHS || j->v->lengths)) put(c, j, i, wide);
  bs_op_query q = {.struct_size = sizeof q, .op = op, .nargs = n, .args = c->descs};
  memcpy(q.attrs, j->v->attrs, sizeof j->v->attrs);
  q.numbers[0] = 0.7;
  q.numbers[1] = j->v->softcap;
  int32_t rc = api->op_prepare(rank, &q, NULL, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, c->args, n, NULL, err);
  if (plan != NULL) api->op_release(plan);
  return rc;
}

static int32_t on_rank(bs_rank *rank, void *arg, bs_error *err) {
  job *j = arg;
  call *c = malloc(sizeof *c);
  ck_assert_ptr_nonnull(c);
  int32_t rc = run(rank, j, "attention", j->dtype, c, err);
  for (uint32_t i = Y; i <= LSE && rc == BS_OK; i++)
    for (int64_t n = 0; n < count_of(i); n++) j->at[i][n] = bs_load_f64(c->t[i].dtype, c->memory[i], n);
  if (rc == BS_OK) rc = run(rank, j, "attention_dx", j->dtype, c, err);
  for (uint32_t i = 0; i < 3 && rc == BS_OK; i++)
    for (int64_t n = 0; n < count_of(DQ + i); n++)
      j->grad[i][n] = bs_load_f64(c->t[DQ + i].dtype, c->memory[DQ + i], n);
  free(c);
  return rc;
}

/* The loss, sum of dY Y, by attention in f64. */
static int32_t add_loss(bs_rank *rank, const job *j, call *c, double *out, bs_error *err) {
  const int32_t rc = run(rank, j, "attention", BS_F64, c, err);
  *out = 0.0;
  for (int64_t n = 0; n < count_of(Y) && rc == BS_OK; n++) *out += j->at[DY][n] * c->memory[Y][n];
  return rc;
}

static int32_t differences(bs_rank *rank, void *arg, bs_error *err) {
  job *j = arg;
  const double h = 1e-5;
  call *c = malloc(sizeof *c);
  int32_t rc = BS_OK;
  ck_assert_ptr_nonnull(c);
  for (uint32_t i = 0; i < 3 && rc == BS_OK; i++)
    for (int64_t n = 0; n < count_of(i) && rc == BS_OK; n++) {
      const double was = j->at[i][n];
      double more = 0.0, less = 0.0;
      j->at[i][n] = was + h;
      rc = add_loss(rank, j, c, &more, err);
      j->at[i][n] = was - h;
      if (rc == BS_OK) rc = add_loss(rank, j, c, &less, err);
      j->at[i][n] = was;
      const double want = (more - less) / (2 * h), got = j->grad[i][n];
      ck_assert_msg(rc != BS_OK || fabs(got - want) < 3e-6, "%s: element %lld of argument %u: %.9g, not %.9g",
                    j->v->name, (long long)n, DQ + i, got, want);
    }
  free(c);
  return rc;
}

static void in_world(bs_context *context, const char *backend, uint32_t threads,
                     int32_t (*body)(bs_rank *, void *, bs_error *), void *j) {
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  const bs_world_options o = {
      .struct_size = sizeof o, .world_size = 1, .backend = backend, .threads_per_rank = threads};
  int32_t rc = bs_world_create(context, &o, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, body, j, &err);
  if (world != NULL) bs_world_destroy(world);
  ck_assert_msg(rc == BS_OK, "%s: %s %s", backend, err.id, err.message);
}

static bs_context *open_context(void) {
  bs_error err = BS_ERROR_INIT;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context *context = NULL;
  bs_context_options o = {.struct_size = sizeof o, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  o.n_plugin_dirs = dirs[0] != NULL;
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
  return context;
}

START_TEST(gradients_are_differences) {
  bs_context *context = open_context();
  job *j = calloc(1, sizeof *j);
  ck_assert_ptr_nonnull(j);
  j->v = &variants[_i / 2];
  j->dtype = _i % 2 == 0 ? BS_F64 : BS_F32;
  float drawn[MOST];
  for (uint32_t i = 0; i < ARGS; i++) {
    bs_rng_normal(7, i, 0, MOST, drawn);
    for (int64_t n = 0; n < MOST; n++) j->at[i][n] = (double)drawn[n];
  }
  for (int64_t n = 0; n < MOST; n++)
    if (j->v->bools || n % 5 == 0) j->at[MASK][n] = j->v->bools ? n % 3 != 0 : -INFINITY;
  j->at[LENGTHS][0] = T;
  j->at[LENGTHS][1] = T - 2;
  in_world(context, j->dtype == BS_F64 ? "ref" : "cpu", 2, on_rank, j);
  in_world(context, "ref", 2, differences, j);
  free(j);
  bs_context_close(context);
}
END_TEST

/* Work for more than one member: 3 batches of 2 groups, blocks of queries and keys with a rest. */
enum {
  LARGE_B = 3,
  LARGE_H = 4,
  LARGE_G = 2,
  LARGE_S = 150,
  LARGE_D = 24,
  LARGE = LARGE_B * LARGE_H * LARGE_S * LARGE_D
};

typedef struct large {
  float memory[ARGS][LARGE];
  bs_tensor t[ARGS], *args[ARGS];
  bs_tensor_desc desc[ARGS];
  const bs_tensor_desc *descs[ARGS];
} large;

static int32_t run_large(bs_rank *rank, void *arg, bs_error *err) {
  static const uint32_t of[] = {Q, K, V, Y, LSE, DY, DQ, DK, DV};
  const bs_rank_api *api = bs_rank_get_api();
  large *l = arg;
  bs_plan *plan = NULL;
  memset(l, 0, sizeof *l);
  for (uint32_t k = 0; k < TEST_COUNT(of); k++) {
    const uint32_t i = of[k];
    const int of_group = i == K || i == V || i == DK || i == DV;
    bs_tensor *t = &l->t[i];
    *t = (bs_tensor){
        .struct_size = sizeof *t, .dtype = BS_F32, .rank = i == LSE ? 3 : 4, .data = l->memory[i]};
    memcpy(t->dims, (const int64_t[]){LARGE_B, of_group ? LARGE_G : LARGE_H, LARGE_S, LARGE_D},
           t->rank * sizeof t->dims[0]);
    int64_t stride = 1;
    for (uint32_t n = t->rank; n-- > 0; stride *= t->dims[n]) t->strides[n] = stride;
    t->bytes = (uint64_t)stride * sizeof(float);
    l->desc[i] = (bs_tensor_desc){.struct_size = sizeof l->desc[i], .dtype = BS_F32, .rank = t->rank};
    memcpy(l->desc[i].dims, t->dims, sizeof t->dims);
    memcpy(l->desc[i].strides, t->strides, sizeof t->strides);
    if (i < DQ) bs_rng_normal(11, i, 0, (uint64_t)stride, l->memory[i]);
    l->args[i] = t;
    l->descs[i] = &l->desc[i];
  }
  for (int64_t n = 0; n < LARGE_B * LARGE_H * LARGE_S; n++) l->memory[LSE][n] += 9.0f; /* powers stay small */
  bs_op_query q = {.struct_size = sizeof q, .op = "attention_dx", .nargs = ARGS, .args = l->descs};
  q.attrs[0] = BS_CAUSAL_UPPER_LEFT;
  q.numbers[0] = 0.3;
  int32_t rc = api->op_prepare(rank, &q, NULL, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, l->args, ARGS, NULL, err);
  if (plan != NULL) api->op_release(plan);
  return rc;
}

START_TEST(bits_do_not_depend_on_the_team) {
  bs_context *context = open_context();
  large *one = malloc(sizeof *one), *more = malloc(sizeof *more);
  ck_assert(one != NULL && more != NULL);
  in_world(context, "cpu", 1, run_large, one);
  for (uint32_t threads = 2; threads <= 3; threads++) {
    in_world(context, "cpu", threads, run_large, more);
    for (uint32_t i = DQ; i <= DV; i++) {
      ck_assert(one->memory[i][LARGE / 3] != 0.0f);
      ck_assert_msg(memcmp(one->memory[i], more->memory[i], sizeof one->memory[i]) == 0,
                    "argument %u with %u threads", i, threads);
    }
  }
  free(one);
  free(more);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {gradients_are_differences, 2 * TEST_COUNT(variants)}, {bits_do_not_depend_on_the_team}, {0}};
  return run_tests("op_attention_dx", tests, (test_setup){0});
}
