/* SPDX-License-Identifier: MIT
 * test_cuda_graph_train.c - backward passes and steps as graphs over the stand-in: several rounds of training
 * have the bits that they have without, the host launches each pass once, and what may not be kept, or not
 * any longer, is not. */
#include "tests/cuda/graph_layer.h"
#include "tests/run_tests.h"

enum { ROUNDS = 6 };

/* What the rounds of one layer gave, in the order in which it came. */
typedef struct trace {
  float values[ROUNDS * (B * N + B * K + N * K + N)];
  size_t count;
  uint64_t flops;
} trace;
static trace traces[2][2]; /* without and with graphs, of each rank */

static int32_t note(bs_rank *rank, const bs_tensor *t, trace *out, bs_error *err) {
  const size_t n = (size_t)(t->dims[0] * (t->rank > 1 ? t->dims[1] : 1));
  ck_assert(out->count + n <= sizeof out->values / sizeof out->values[0]);
  const int32_t rc = bs_rank_copy_out(rank, t, out->values + out->count, err);
  out->count += n;
  return rc;
}

/* How a layer is trained. rates: of each round. */
typedef struct training {
  layer_case layer;
  uint32_t optimizer;
  uint32_t fused, no_dx; /* dW is made on the way; dX is not asked for */
  double momentum;
  double rates[ROUNDS];
  const char *kept;  /* passes that are graphs at the end */
  uint64_t launched; /* graphs from the third round on; 0: each that is kept, in each round */
} training;

static int32_t round_of(bs_rank *rank, made *m, const training *t, int i, trace *out, bs_error *err) {
  bs_tensor *dw = t->fused ? NULL : &m->dw, *dx = t->no_dx ? NULL : &m->dx;
  bs_tensor *db = t->layer.has_bias ? &m->db : NULL;
  const bs_step step = {.struct_size = sizeof step,
                        .optimizer = t->optimizer,
                        .t = (uint64_t)i + 1,
                        .lr = t->rates[i],
                        .momentum = t->momentum,
                        .beta1 = 0.875,
                        .beta2 = 0.75,
                        .eps = 1e-3,
                        .weight_decay = t->fused ? 0.0 : 0.125,
                        .dw = dw,
                        .db = db,
                        .x = &m->x,
                        .dy = &m->dy};
  int32_t rc = fill(rank, &m->x, i, err);
  if (rc == BS_OK) rc = bs_layer_forward(m->layer, &m->x, &m->y, NULL, err);
  if (rc == BS_OK) rc = note(rank, &m->y, out, err);
  if (rc == BS_OK) rc = fill(rank, &m->dy, 20 + 3 * i, err);
  if (rc == BS_OK) rc = bs_layer_backward(m->layer, &m->x, &m->dy, dx, dw, db, NULL, err);
  if (rc == BS_OK && dx != NULL) rc = note(rank, dx, out, err);
  if (rc == BS_OK && dw != NULL) rc = note(rank, dw, out, err);
  if (rc == BS_OK && db != NULL) rc = note(rank, db, out, err);
  return rc == BS_OK ? bs_layer_step(m->layer, &step, NULL, err) : rc;
}

static int is_kept(const bs_layer *layer, uint32_t pass) {
  return strcmp(bs_layer_capture(layer, pass), "captured") == 0;
}

/* The first round has none, the second captures, the others launch. */
static int32_t train_main(bs_rank *rank, void *arg, bs_error *err) {
  const training *t = arg;
  const int graphs = (t->layer.flags & BS_LAYER_CAPTURE) != 0;
  trace *out = &traces[graphs][api->rank(rank)];
  const int alone = api->world_size(rank) == 1; /* whose calls are counted */
  const uint64_t before = calls_of("cuGraphLaunch");
  uint64_t launches = 0, graph_launches = 0;
  made m;
  memset(out, 0, sizeof *out);
  int32_t rc = make(rank, &t->layer, &m, err);
  for (int i = 0; rc == BS_OK && i < ROUNDS; i++) {
    rc = round_of(rank, &m, t, i, out, err);
    if (i == 1) launches = calls_of("cuLaunchKernel"), graph_launches = calls_of("cuGraphLaunch");
  }
  out->flops = bs_rank_counter(rank, BS_COUNT_FLOPS);
  if (graphs && rc == BS_OK) {
    const char *const passes[] = {"forward", "backward", "step"};
    int n = 0;
    for (uint32_t p = 0; p < BS_PASS_COUNT_; p++) {
      ck_assert_msg(is_kept(m.layer, p) == (strstr(t->kept, passes[p]) != NULL), "%s: %s", passes[p],
                    bs_layer_capture(m.layer, p));
      n += is_kept(m.layer, p);
    }
    const uint64_t expected = t->launched > 0 ? t->launched : (uint64_t)(n * (ROUNDS - 2));
    if (alone) ck_assert_uint_eq(calls_of("cuGraphLaunch") - graph_launches, expected);
    if (alone && n == BS_PASS_COUNT_ && t->launched == 0)
      ck_assert_uint_eq(calls_of("cuLaunchKernel"), launches);
  } else {
    ck_assert_ptr_null(bs_layer_capture(m.layer, BS_PASS_STEP));
    ck_assert_uint_eq(calls_of("cuGraphLaunch"), before);
  }
  unmake(rank, &m);
  if (alone) ck_assert_int_eq(living(SI_GRAPH), 0);
  return rc;
}

static void same_trace(const char *what, const trace *a, const trace *b) {
  ck_assert_msg(a->count == b->count && a->flops == b->flops, "%s: other counts", what);
  for (size_t i = 0; i < a->count; i++)
    ck_assert_msg(memcmp(&a->values[i], &b->values[i], sizeof(float)) == 0, "%s: value %zu is %g, not %g",
                  what, i, (double)b->values[i], (double)a->values[i]);
}

static void same_traces(const char *what, uint32_t ranks) {
  ck_assert_uint_gt(traces[0][0].count, 0);
  for (uint32_t r = 0; r < ranks; r++) same_trace(what, &traces[0][r], &traces[1][r]);
}

static void train(training t, const char *setup, uint32_t ranks) {
  char what[160];
  snprintf(what, sizeof what, "%s %s, optimiser %u, momentum %g, fused %u", t.layer.method,
           t.layer.mask != NULL ? t.layer.mask : "-", t.optimizer, t.momentum, t.fused);
  with_world(setup, ranks, train_main, &t, "");
  t.layer.flags |= BS_LAYER_CAPTURE;
  with_world(setup, ranks, train_main, &t, t.kept);
  same_traces(what, ranks);
}

static const layer_case layers[] = {{.method = "dense", .has_bias = 1},
                                    {.method = "dense", .activation = BS_ACT_GELU},
                                    {.method = "row_parallel", .has_bias = 1, .activation = BS_ACT_RELU},
                                    {.method = "column_parallel", .has_bias = 1, .activation = BS_ACT_SILU},
                                    {.method = "masked_split", .mask = "interleave", .has_bias = 1},
                                    {.method = "blockshock", .has_bias = 1, .activation = BS_ACT_GELU},
                                    {.method = "blockshock", .mask = "random_2of4", .has_bias = 1},
                                    {.method = "blockshock", .mask = "magnitude", .activation = BS_ACT_GELU},
                                    {.method = "blockshock", .mask = "transposable", .has_bias = 1}};
enum { LAYERS = sizeof layers / sizeof layers[0] };

START_TEST(rounds_have_the_same_bits) {
  const training ways[] = {
      {.optimizer = BS_OPT_SGD, .fused = 1, .layer = {.flags = BS_LAYER_SGD}},
      {.optimizer = BS_OPT_SGD, .layer = {.flags = BS_LAYER_SGD}},
      {.optimizer = BS_OPT_SGD, .momentum = 0.5, .layer = {.flags = BS_LAYER_SGD | BS_LAYER_MOMENTUM}},
      {.optimizer = BS_OPT_ADAMW, .layer = {.flags = BS_LAYER_ADAMW}}};
  for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
    training t = ways[w];
    const uint32_t flags = t.layer.flags;
    t.layer = layers[_i];
    t.layer.flags = flags | BS_LAYER_BACKWARD;
    t.kept = t.optimizer == BS_OPT_ADAMW ? "forward,backward" : "forward,backward,step";
    for (int i = 0; i < ROUNDS; i++) t.rates[i] = 0.125;
    train(t, NULL, 1);
  }
}
END_TEST

/* Each change of the rate writes the numbers that a kept step would read. */
START_TEST(other_numbers_end_a_step) {
  const training t = {.layer = {.method = "dense", .has_bias = 1, .flags = BS_LAYER_BACKWARD | BS_LAYER_SGD},
                      .optimizer = BS_OPT_SGD,
                      .rates = {0.125, 0.125, 0.5, 0.125, 0.125, 0.125},
                      .kept = "forward,backward,step",
                      .launched = 4 + 4 + 2};
  train(t, NULL, 1);
}
END_TEST

/* The third capture is the step's: it is taken all the same, and once. */
START_TEST(a_step_that_cannot_be_kept_is_taken_once) {
  const training t = {.layer = {.method = "dense", .has_bias = 1, .flags = BS_LAYER_BACKWARD | BS_LAYER_SGD},
                      .optimizer = BS_OPT_SGD,
                      .rates = {0.125, 0.125, 0.125, 0.125, 0.125, 0.125},
                      .kept = "forward,backward"};
  train(t, "plan=cuStreamEndCapture:3=901", 1);
}
END_TEST

/* Of two ranks, what does not meet: all of a column_parallel layer that stays split, and the products of dW
 * of a row_parallel one, whose forward sums. */
START_TEST(ranks_keep_what_does_not_meet) {
  training t = {.layer = {.method = "column_parallel",
                          .y_placement = BS_SPLIT,
                          .has_bias = 1,
                          .activation = BS_ACT_RELU,
                          .flags = BS_LAYER_BACKWARD | BS_LAYER_SGD},
                .optimizer = BS_OPT_SGD,
                .no_dx = 1,
                .rates = {0.125, 0.125, 0.125, 0.125, 0.125, 0.125},
                .kept = "forward,backward,step"};
  train(t, NULL, 2);
  t.layer.method = "row_parallel";
  t.layer.y_placement = BS_REPLICATED;
  t.kept = "backward,step";
  train(t, NULL, 2);
}
END_TEST

/* Forwards of fewer tokens between: a backward pass goes by the last forward's number, which a graph would
 * not tell the layer. */
static const int64_t tokens[] = {B, B, B, 1, B, B, B, 2, 2, 2};
enum { PASSES = sizeof tokens / sizeof tokens[0] };
static int32_t shapes_main(bs_rank *rank, void *arg, bs_error *err) {
  const layer_case *c = arg;
  const int graphs = (c->flags & BS_LAYER_CAPTURE) != 0;
  trace *out = &traces[graphs][api->rank(rank)];
  made m;
  memset(out, 0, sizeof *out);
  int32_t rc = make(rank, c, &m, err);
  if (rc == BS_OK) rc = fill(rank, &m.dy, 5, err);
  for (int i = 0; rc == BS_OK && i < PASSES; i++) {
    made part = m;
    rc = fill(rank, &m.x, i, err);
    part.x.dims[0] = part.y.dims[0] = part.dy.dims[0] = tokens[i];
    if (rc == BS_OK) rc = bs_layer_forward(m.layer, &part.x, &part.y, NULL, err);
    if (rc == BS_OK) rc = bs_layer_backward(m.layer, &part.x, &part.dy, NULL, &m.dw, NULL, NULL, err);
    if (rc == BS_OK) rc = note(rank, &part.y, out, err);
    if (rc == BS_OK && i % 2 == 0) rc = note(rank, &m.dw, out, err);
    if (graphs && rc == BS_OK)
      ck_assert_int_eq(is_kept(m.layer, BS_PASS_BACKWARD), i == 1 || i == 2 || i == 5 || i == 6 || i > 7);
  }
  unmake(rank, &m);
  return rc;
}
START_TEST(other_shapes_end_graphs) {
  const uint32_t ranks = (uint32_t)_i + 1;
  layer_case c = {.method = "row_parallel", .activation = BS_ACT_GELU, .flags = BS_LAYER_BACKWARD};
  with_world(NULL, ranks, shapes_main, &c, "");
  c.flags |= BS_LAYER_CAPTURE;
  with_world(NULL, ranks, shapes_main, &c, ranks > 1 ? "backward" : "forward,backward");
  same_traces("tokens", ranks);
}
END_TEST

/* A kept pass without dX is not one with it, nor one into another dW. */
static int32_t tensors_main(bs_rank *rank, void *arg, bs_error *err) {
  const layer_case *c = arg;
  const int graphs = (c->flags & BS_LAYER_CAPTURE) != 0;
  trace *out = &traces[graphs][0];
  made m, other;
  memset(out, 0, sizeof *out);
  memset(&other, 0, sizeof other);
  int32_t rc = make(rank, c, &m, err);
  if (rc == BS_OK) rc = make(rank, c, &other, err);
  for (int i = 0; rc == BS_OK && i < 6; i++) {
    bs_tensor *dx = i == 3 ? &m.dx : NULL, *dw = i == 4 ? &other.dw : &m.dw;
    rc = fill(rank, &m.x, i, err);
    if (rc == BS_OK) rc = fill(rank, &m.dy, 30 - i, err);
    if (rc == BS_OK) rc = bs_layer_forward(m.layer, &m.x, &m.y, NULL, err);
    if (rc == BS_OK) rc = bs_layer_backward(m.layer, &m.x, &m.dy, dx, dw, NULL, NULL, err);
    if (rc == BS_OK && dx != NULL) rc = note(rank, dx, out, err);
    if (rc == BS_OK) rc = note(rank, dw, out, err);
  }
  if (graphs && rc == BS_OK) ck_assert(is_kept(m.layer, BS_PASS_BACKWARD));
  unmake(rank, &other);
  unmake(rank, &m);
  return rc;
}
START_TEST(other_tensors_are_run_as_any) {
  layer_case c = {.method = "dense", .activation = BS_ACT_GELU, .flags = BS_LAYER_BACKWARD};
  with_world(NULL, 1, tensors_main, &c, "");
  c.flags |= BS_LAYER_CAPTURE;
  with_world(NULL, 1, tensors_main, &c, "forward,backward");
  same_traces("tensors", 1);
}
END_TEST

int main(void) {
  const test_case tests[] = {{rounds_have_the_same_bits, LAYERS},
                             {other_numbers_end_a_step},
                             {a_step_that_cannot_be_kept_is_taken_once},
                             {ranks_keep_what_does_not_meet},
                             {other_shapes_end_graphs, 2},
                             {other_tensors_are_run_as_any},
                             {0}};
  return run_tests("cuda_graph_train", tests, (test_setup){.timeout = 120});
}
