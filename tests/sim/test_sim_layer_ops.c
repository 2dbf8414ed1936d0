/* SPDX-License-Identifier: MIT
 * test_sim_layer_ops.c - ops of ranks whose hardware.device is simulated inside (plugins/sim/inside_op.c):
 * each has the time that `sim explain --inside` shows of the same op, what a program does not have keeps the
 * roofline and is counted, and another value of one member is simulated again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "lab/config/device_file.h"
#include "lab/sim/inside.h"
#include "tests/run_tests.h"

enum { RANKS = 3, ARGS = 12 };

static bs_context *context;
static bs_device_file file;

static void open_with(const char *name) {
  char dir[512], device[4200];
  const char *source = getenv("BS_TEST_SOURCE_DIR");
  const char *params[] = {"sim.alpha_s=0.5e-6", "sim.bw_Bps=50e9", device};
  const bs_context_options o = {
      .struct_size = sizeof o, .log_level = BS_LOG_ERROR, .params = params, .n_params = 3};
  bs_error err = BS_ERROR_INIT;
  snprintf(dir, sizeof dir, "%s/configs", source != NULL ? source : ".");
  ck_assert_msg(bs_device_open(dir, name, &file, &err) == BS_OK, "%s", err.message);
  snprintf(device, sizeof device, "sim.device=%s", file.text.data);
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
}
static void open_context(void) {
  open_with("cube-pe");
}
static void close_context(void) {
  bs_context_close(context);
  bs_device_close(&file);
}

/* ---- an op of a rank ---------------------------------------------------------------------------- */

typedef struct arg {
  uint32_t dtype, rank; /* dtype 0: absent */
  int64_t dims[4];
  int64_t pitch; /* of the rows; 0: dense */
} arg;

typedef struct op_case {
  const char *text; /* of explain; NULL: no program has it */
  const char *op;
  uint32_t nargs;
  arg args[ARGS];
  int64_t attrs[3];
  double numbers[2];
  uint32_t weight_dtype; /* 0: no weight; its size is that of args[0] */
  uint32_t steps;        /* of the program of a map */
  uint32_t activation;
} op_case;

typedef struct held {
  bs_plan *plan;
  bs_packed *packed;
  bs_tensor tensors[ARGS], *args[ARGS];
} held;

typedef struct job {
  const op_case *c;
  held ranks[RANKS];
} job;

static void describe(const arg *a, bs_tensor_desc *out) {
  *out = (bs_tensor_desc){.struct_size = sizeof *out, .dtype = a->dtype, .rank = a->rank};
  memcpy(out->dims, a->dims, sizeof a->dims);
  if (a->pitch == 0) return;
  out->strides[a->rank - 1] = 1;
  int64_t stride = a->pitch;
  for (uint32_t d = a->rank - 1; d-- > 0; stride *= a->dims[d]) out->strides[d] = stride;
}

/* Each step negates the value before it. */
static void program(const op_case *c, bs_expr *expr, bs_expr_step *steps, uint8_t *outs) {
  *expr = (bs_expr){.struct_size = sizeof *expr,
                    .compute = BS_F32,
                    .n_in = c->nargs - 1,
                    .n_steps = c->steps,
                    .n_out = 1,
                    .max_op = c->steps > 0 ? BS_EXPR_NEG : 0,
                    .steps = steps,
                    .outs = outs};
  for (uint32_t i = 0; i < c->steps; i++)
    steps[i] = (bs_expr_step){.op = BS_EXPR_NEG, .a = (uint8_t)(i == 0 ? 0 : expr->n_in + i - 1)};
  outs[0] = (uint8_t)(c->steps > 0 ? expr->n_in + c->steps - 1 : 0);
}

static int32_t pack_weight(bs_rank *rank, const op_case *c, held *h, bs_error *err) {
  static float values[1 << 16];
  const int64_t n = c->args[0].dims[0], k = c->args[0].dims[1];
  bs_tensor_desc x = {.struct_size = sizeof x, .dtype = BS_F32, .rank = 2, .dims = {4, k}}, y = x;
  bs_source source;
  y.dims[1] = n;
  const bs_tensor_desc *args[] = {&x, NULL, NULL, &y};
  const bs_op_query q = {.struct_size = sizeof q,
                         .op = "matmul",
                         .nargs = 4,
                         .args = args,
                         .flags = BS_QUERY_TRAIN,
                         .weight_dtype = c->weight_dtype};
  ck_assert_int_le(n * k, 1 << 16);
  int32_t rc = bs_source_from_memory(values, BS_F32, n, k, k, &source, err);
  if (rc != BS_OK) return rc;
  rc = bs_rank_get_api()->pack(rank, &q, &source, &h->packed, err);
  bs_source_release(&source);
  return rc;
}

static int32_t build(bs_rank *rank, void *user, bs_error *err) {
  job *j = user;
  const op_case *c = j->c;
  const bs_rank_api *api = bs_rank_get_api();
  held *h = &j->ranks[api->rank(rank)];
  bs_tensor_desc descs[ARGS];
  const bs_tensor_desc *args[ARGS] = {NULL};
  bs_expr expr;
  bs_expr_step steps[8];
  uint8_t outs[1];
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < c->nargs; i++) {
    if (c->args[i].dtype == 0) continue;
    describe(&c->args[i], &descs[i]);
    args[i] = &descs[i];
    rc = api->tensor_alloc(rank, &descs[i], BS_LIFE_ACTIVATION, &h->tensors[i], err);
    h->args[i] = &h->tensors[i];
  }
  bs_op_query q = {.struct_size = sizeof q,
                   .op = c->op,
                   .nargs = c->nargs,
                   .args = args,
                   .weight_dtype = c->weight_dtype,
                   .activation = c->activation};
  memcpy(q.attrs, c->attrs, sizeof c->attrs);
  memcpy(q.numbers, c->numbers, sizeof c->numbers);
  if (strcmp(c->op, "map") == 0) {
    program(c, &expr, steps, outs);
    q.expr = &expr;
  }
  if (rc == BS_OK && c->weight_dtype != 0) rc = pack_weight(rank, c, h, err);
  return rc == BS_OK ? api->op_prepare(rank, &q, h->packed, &h->plan, err) : rc;
}

static int32_t once(bs_rank *rank, void *user, bs_error *err) {
  job *j = user;
  held *h = &j->ranks[bs_rank_get_api()->rank(rank)];
  return bs_rank_get_api()->op_run(h->plan, h->args, j->c->nargs, NULL, err);
}

static int32_t drop(bs_rank *rank, void *user, bs_error *err) {
  job *j = user;
  const bs_rank_api *api = bs_rank_get_api();
  held *h = &j->ranks[api->rank(rank)];
  (void)err;
  api->op_release(h->plan);
  if (h->packed != NULL) api->packed_release(h->packed);
  for (uint32_t i = 0; i < ARGS; i++)
    if (h->args[i] != NULL) api->tensor_free(rank, h->args[i]);
  return BS_OK;
}

typedef struct figures {
  double ps, simulated, known, by_roofline;
} figures;

static void take(void *user, const char *name, double value, const char *unit, const char *text) {
  figures *f = user;
  (void)unit, (void)text;
  if (strcmp(name, "simulated") == 0) f->ps = value;
  if (strcmp(name, "inside_simulated") == 0) f->simulated = value;
  if (strcmp(name, "inside_known") == 0) f->known = value;
  if (strcmp(name, "ops_by_roofline") == 0) f->by_roofline = value;
}

/* One run of the op on each rank. */
static figures run(const op_case *c) {
  const bs_world_options o = {.struct_size = sizeof o,
                              .world_size = RANKS,
                              .backend = "sim",
                              .comm = "sim",
                              .threads_per_rank = 1,
                              .sync_mode = BS_SYNC_NONE};
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  job j = {.c = c};
  figures f = {0};
  int32_t rc = bs_world_create(context, &o, &world, &err);
  if (rc == BS_OK) rc = bs_world_run(world, build, &j, &err);
  if (rc == BS_OK) rc = bs_world_run(world, once, &j, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s: %s", c->op, err.id, err.message);
  bs_world_figures(world, take, &f);
  ck_assert_int_eq(bs_world_run(world, drop, &j, &err), BS_OK);
  bs_world_destroy(world);
  return f;
}

static uint64_t explained(const char *op) {
  const bs_inside_ask ask = {.op = op};
  bs_inside_answer answer;
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_inside_open(&file.device, &ask, &answer, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s: %s", op, err.id, err.message);
  const uint64_t whole = answer.whole;
  bs_inside_close(&answer);
  return whole;
}

/* ---- each class --------------------------------------------------------------------------------- */

#define M2(type, rows, columns) \
  { type, 2, {rows, columns}, 0 }
#define M4(type, a, b, c, d) \
  { type, 4, {a, b, c, d}, 0 }
#define NO \
  { 0 }

static const op_case inside[] = {
    {"attention b2h4g2s192t320d64e32:bf16:causal_br",
     "attention",
     8,
     {M4(BS_BF16, 2, 4, 192, 64),
      M4(BS_BF16, 2, 2, 320, 64),
      M4(BS_BF16, 2, 2, 320, 32),
      NO,
      NO,
      NO,
      M4(BS_BF16, 2, 4, 192, 32),
      {BS_F32, 3, {2, 4, 192}, 0}},
     {BS_CAUSAL_LOWER_RIGHT, 0, 0},
     {0.125, 0},
     0,
     0,
     0},
    {"attention b1h2s300d64:bf16:causal:w64",
     "attention",
     8,
     {M4(BS_BF16, 1, 2, 300, 64), M4(BS_BF16, 1, 2, 300, 64), M4(BS_BF16, 1, 2, 300, 64), NO, NO, NO,
      M4(BS_BF16, 1, 2, 300, 64), NO},
     {BS_CAUSAL_UPPER_LEFT, 64, 0},
     {0.125, 0},
     0,
     0,
     0},
    {"map n1000b60:bf16", "map", 2, {M2(BS_BF16, 60, 1000), M2(BS_BF16, 60, 1000)}, {0}, {0}, 0, 1, 0},
    {"copy n1000b60:bf16", "map", 2, {M2(BS_BF16, 60, 1000), M2(BS_BF16, 60, 1000)}, {0}, {0}, 0, 0, 0},
    {"convert n1000b60:bf16", "convert", 2, {M2(BS_BF16, 60, 1000), M2(BS_F32, 60, 1000)}, {0}, {0}, 0, 0, 0},
    {"activate n1000b60:bf16",
     "activate",
     2,
     {M2(BS_BF16, 60, 1000), M2(BS_BF16, 60, 1000)},
     {0},
     {0},
     0,
     0,
     BS_ACT_GELU},
    {"normalize n1000b60:bf16",
     "normalize",
     6,
     {M4(BS_BF16, 2, 3, 10, 1000),
      NO,
      {BS_BF16, 1, {1000}, 0},
      {BS_BF16, 1, {1000}, 0},
      M4(BS_BF16, 2, 3, 10, 1000),
      NO},
     {BS_NORMALIZE_LAYER},
     {1e-5, 0},
     0,
     0,
     0},
    {"softmax n1000b60:bf16",
     "normalize",
     6,
     {M2(BS_BF16, 60, 1000), NO, NO, NO, M2(BS_BF16, 60, 1000), NO},
     {BS_NORMALIZE_SOFTMAX},
     {0},
     0,
     0,
     0},
    {"reduce n1000b60:bf16",
     "reduce",
     2,
     {M4(BS_BF16, 1, 60, 20, 50), M4(BS_BF16, 1, 60, 1, 1)},
     {BS_FOLD_SUM},
     {1, 0},
     0,
     0,
     0},
    {"quantize_groups n1024b60:f32",
     "quantize_groups",
     3,
     {M2(BS_F32, 60, 1024), M2(BS_I8, 60, 1024), M2(BS_F32, 60, 16)},
     {64},
     {0},
     0,
     0,
     0},
    {"sgd_update n200b300:f32",
     "sgd_update",
     3,
     {M2(BS_F32, 300, 200), NO, {BS_F32, 1, {4}, 0}},
     {0},
     {0},
     BS_F32,
     0,
     0},
    {"adamw_update n200b300:f32",
     "adamw_update",
     4,
     {M2(BS_F32, 300, 200), M2(BS_F32, 300, 200), M2(BS_F32, 300, 200), {BS_F32, 1, {8}, 0}},
     {0},
     {0},
     BS_F32,
     0,
     0},
};

START_TEST(an_op_of_a_layer_has_the_time_of_explain) {
  const op_case *c = &inside[_i];
  const figures f = run(c);
  ck_assert_msg(f.simulated == 1 && f.known == RANKS - 1 && f.by_roofline == 0,
                "%s: %.0f simulated, %.0f known, %.0f by the roofline", c->text, f.simulated, f.known,
                f.by_roofline);
  const uint64_t whole = explained(c->text);
  ck_assert_msg((uint64_t)f.ps == whole, "%s: %.0f ps in a layer, %llu explained", c->text, f.ps,
                (unsigned long long)whole);
  ck_assert_double_eq_tol(run(c).known, RANKS, 0.1); /* another world of the plugin */
}
END_TEST

/* Four lanes share the scratch of an SM. The device has no tiles of attention. */
START_TEST(a_device_of_lanes_that_share_a_place) {
  close_context();
  open_with("h100-sxm");
  for (int i = 0; i < TEST_COUNT(inside); i++) {
    const op_case *c = &inside[i];
    const figures f = run(c);
    const int attends = strcmp(c->op, "attention") == 0;
    ck_assert_msg(f.simulated == (attends ? 0 : 1) && f.by_roofline == (attends ? RANKS : 0),
                  "%s: %.0f simulated, %.0f by the roofline", c->text, f.simulated, f.by_roofline);
    ck_assert_msg(attends || (uint64_t)f.ps == explained(c->text), "%s: %.0f ps in a layer", c->text, f.ps);
  }
}
END_TEST

/* ---- what stays with the roofline --------------------------------------------------------------- */

static const op_case outside[] = {
    {"a mask",
     "attention",
     8,
     {M4(BS_BF16, 1, 2, 64, 64), M4(BS_BF16, 1, 2, 64, 64), M4(BS_BF16, 1, 2, 64, 64),
      M4(BS_BF16, 1, 1, 64, 64), NO, NO, M4(BS_BF16, 1, 2, 64, 64), NO},
     {0},
     {0.125, 0},
     0,
     0,
     0},
    {"a softcap",
     "attention",
     8,
     {M4(BS_BF16, 1, 2, 64, 64), M4(BS_BF16, 1, 2, 64, 64), M4(BS_BF16, 1, 2, 64, 64), NO, NO, NO,
      M4(BS_BF16, 1, 2, 64, 64), NO},
     {0},
     {0.125, 30},
     0,
     0,
     0},
    {"keys of another dtype",
     "attention",
     8,
     {M4(BS_BF16, 1, 2, 64, 64), M4(BS_F32, 1, 2, 64, 64), M4(BS_BF16, 1, 2, 64, 64), NO, NO, NO,
      M4(BS_BF16, 1, 2, 64, 64), NO},
     {0},
     {0.125, 0},
     0,
     0,
     0},
    {"queries whose rows lie apart",
     "attention",
     8,
     {{BS_BF16, 4, {1, 2, 64, 64}, 128},
      M4(BS_BF16, 1, 2, 64, 64),
      M4(BS_BF16, 1, 2, 64, 64),
      NO,
      NO,
      NO,
      M4(BS_BF16, 1, 2, 64, 64),
      NO},
     {0},
     {0.125, 0},
     0,
     0,
     0},
    {"no rate for f64",
     "attention",
     8,
     {M4(BS_F64, 1, 2, 64, 64), M4(BS_F64, 1, 2, 64, 64), M4(BS_F64, 1, 2, 64, 64), NO, NO, NO,
      M4(BS_F64, 1, 2, 64, 64), NO},
     {0},
     {0.125, 0},
     0,
     0,
     0},
    {"backward attention",
     "attention_dx",
     12,
     {M4(BS_BF16, 1, 2, 64, 64),
      M4(BS_BF16, 1, 2, 64, 64),
      M4(BS_BF16, 1, 2, 64, 64),
      NO,
      NO,
      NO,
      M4(BS_BF16, 1, 2, 64, 64),
      {BS_F32, 3, {1, 2, 64}, 0},
      M4(BS_BF16, 1, 2, 64, 64),
      M4(BS_BF16, 1, 2, 64, 64),
      M4(BS_BF16, 1, 2, 64, 64),
      M4(BS_BF16, 1, 2, 64, 64)},
     {0},
     {0.125, 0},
     0,
     0,
     0},
    {"rows of a map apart",
     "map",
     2,
     {{BS_BF16, 2, {60, 1000}, 2000}, M2(BS_BF16, 60, 1000)},
     {0},
     {0},
     0,
     1,
     0},
    {"an input that broadcasts",
     "map",
     3,
     {M2(BS_BF16, 60, 1000), M2(BS_BF16, 1, 1000), M2(BS_BF16, 60, 1000)},
     {0},
     {0},
     0,
     1,
     0},
    {"a sum that broadcasts",
     "normalize",
     6,
     {M2(BS_BF16, 60, 1000), M2(BS_BF16, 1, 1000), NO, NO, M2(BS_BF16, 60, 1000), NO},
     {BS_NORMALIZE_LAYER},
     {1e-5, 0},
     0,
     0,
     0},
    {"the first dimension folded",
     "reduce",
     2,
     {M2(BS_BF16, 60, 1000), M2(BS_BF16, 1, 1000)},
     {BS_FOLD_SUM},
     {1, 0},
     0,
     0,
     0},
    {"a cumulative sum",
     "reduce",
     2,
     {M2(BS_BF16, 60, 1000), M2(BS_BF16, 60, 1000)},
     {BS_FOLD_CUMSUM, 1},
     {1, 0},
     0,
     0,
     0},
    {"a row that no tile holds",
     "reduce",
     2,
     {M2(BS_BF16, 1, 4000000), M2(BS_BF16, 1, 1)},
     {BS_FOLD_SUM},
     {1, 0},
     0,
     0,
     0},
    {"a weight of another width",
     "sgd_update",
     3,
     {M2(BS_F32, 300, 200), NO, {BS_F32, 1, {4}, 0}},
     {0},
     {0},
     BS_BF16,
     0,
     0},
    {"the largest ones",
     "topk",
     3,
     {M2(BS_F32, 60, 100), M2(BS_F32, 60, 8), M2(BS_I64, 60, 8)},
     {1, 0},
     {0},
     0,
     0,
     0},
    {"rows by an index",
     "take",
     3,
     {M2(BS_F32, 60, 100), {BS_I64, 1, {8}, 0}, M2(BS_F32, 8, 100)},
     {0},
     {0},
     0,
     0,
     0},
};

START_TEST(what_no_program_has_is_counted) {
  const op_case *c = &outside[_i];
  for (int again = 0; again < 2; again++) {
    const figures f = run(c);
    ck_assert_msg(f.simulated == 0 && f.known == 0 && f.by_roofline == RANKS,
                  "%s: %.0f simulated, %.0f known, %.0f by the roofline", c->text, f.simulated, f.known,
                  f.by_roofline);
    ck_assert(f.ps > 0);
  }
}
END_TEST

/* ---- the key ------------------------------------------------------------------------------------ */

static void is_new(const op_case *c, const char *what) {
  const figures f = run(c);
  ck_assert_msg(f.simulated == 1, "%s with another %s: %.0f simulated, %.0f known", c->op, what, f.simulated,
                f.known);
}

static void set_dims(op_case *c, uint32_t dim, int64_t value, uint32_t args) {
  for (uint32_t i = 0; i < c->nargs; i++)
    if (args >> i & 1) c->args[i].dims[dim] = value;
}

START_TEST(each_size_of_attention_alone_is_new) {
  const op_case base = inside[0];
  const struct {
    const char *what;
    uint32_t dim, args;
    int64_t value;
  } sizes[] = {{"batch", 0, 0xc7, 1},
               {"number of heads", 1, 0xc1, 6},
               {"group", 1, 6, 4},
               {"number of queries", 2, 0xc1, 256},
               {"number of keys", 2, 6, 384},
               {"width of keys", 3, 3, 32},
               {"width of values", 3, 0x44, 64}};
  op_case c = base;
  is_new(&base, "nothing");
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    c = base;
    set_dims(&c, sizes[i].dim, sizes[i].value, sizes[i].args);
    is_new(&c, sizes[i].what);
  }
  const int64_t attrs[][3] = {
      {BS_CAUSAL_UPPER_LEFT}, {BS_CAUSAL_NONE}, {BS_CAUSAL_LOWER_RIGHT, 64, 0}, {BS_CAUSAL_NONE, 0, 16}};
  for (size_t i = 0; i < sizeof attrs / sizeof attrs[0]; i++) {
    c = base;
    memcpy(c.attrs, attrs[i], sizeof c.attrs);
    is_new(&c, "window");
  }
  c = base;
  c.args[6].dtype = BS_F32;
  is_new(&c, "dtype of O");
  c = base;
  c.args[0].dtype = c.args[1].dtype = c.args[2].dtype = BS_F32;
  is_new(&c, "dtype of Q, K and V");
}
END_TEST

START_TEST(each_size_of_a_map_alone_is_new) {
  const op_case base = {NULL,
                        "normalize",
                        6,
                        {M2(BS_BF16, 60, 1000), NO, NO, NO, M2(BS_BF16, 60, 1000), NO},
                        {BS_NORMALIZE_LAYER},
                        {1e-5, 0},
                        0,
                        0,
                        0};
  op_case c = base;
  is_new(&base, "nothing");
  set_dims(&c, 0, 30, 0x11);
  set_dims(&c, 1, 2000, 0x11); /* as many elements */
  is_new(&c, "row");
  c = base;
  set_dims(&c, 0, 61, 0x11);
  is_new(&c, "number of rows");
  c = base;
  c.args[1] = c.args[0];
  is_new(&c, "number of inputs");
  c = base;
  c.args[5] = c.args[0];
  is_new(&c, "number of outputs");
  c = base;
  c.attrs[0] = BS_NORMALIZE_SOFTMAX;
  is_new(&c, "number of ops");
  c = base;
  c.args[4].dtype = BS_F32;
  is_new(&c, "dtype of Y");
  c = base;
  c.args[0].dtype = BS_F32;
  is_new(&c, "dtype of X");
  op_case map = inside[2];
  is_new(&map, "nothing");
  map.steps = 2;
  is_new(&map, "number of steps");
}
END_TEST

int main(void) {
  const test_case tests[] = {{an_op_of_a_layer_has_the_time_of_explain, TEST_COUNT(inside)},
                             {a_device_of_lanes_that_share_a_place},
                             {what_no_program_has_is_counted, TEST_COUNT(outside)},
                             {each_size_of_attention_alone_is_new},
                             {each_size_of_a_map_alone_is_new},
                             {0}};
  return run_tests("sim_layer_ops", tests,
                   (test_setup){.before = open_context, .after = close_context, .timeout = 60});
}
