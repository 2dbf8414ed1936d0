/* SPDX-License-Identifier: MIT
 * dispatch.c - the host's work other than arithmetic: a plan that runs on one row, with the checks of a call
 * and without; for a model, chains of operators on one number; for a layer, its method on one token and few
 * features. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/op/dispatch.h"
#include "lab/diagnose/layer_checks.h"
#include "lab/diagnose/model_checks.h"
#include "lab/error.h"

enum { CALLS = 2000, RUNS = 200, ROUNDS = 15, LEAST = 3, BATCH = 16, WIDTH = 64, CHAIN = 33, FEATURES = 8 };
/* The host's share of a pass from which it is reported. */
static const double MUCH = 0.2;

/* ---- calls ------------------------------------------------------------------------------------ */

typedef struct call_costs {
  double checked, unchecked;
} call_costs;

typedef struct timed {
  const bs_rank_api *api; /* of a call */
  bs_plan *plan;
  bs_tensor *const *args;
  bs_session *session; /* of a run */
} timed;
typedef int32_t (*timed_fn)(const timed *t, bs_error *err);

static int32_t checked_call(const timed *t, bs_error *err) {
  return t->api->op_run(t->plan, t->args, 2, NULL, err);
}
static int32_t unchecked_call(const timed *t, bs_error *err) {
  return bs_dispatch_run_unchecked(t->plan, t->args, NULL, err);
}
static int32_t one_run(const timed *t, bs_error *err) {
  return bs_session_run(t->session, err);
}

/* Seconds of one call: the median of rounds of `most` calls, or of fewer and fewer rounds where the time of
 * one timing is over before. The clock is read once a BATCH of calls, for it takes as long as one. */
static int32_t time_rounds(const bs_diagnosis *d, timed_fn call, const timed *t, int most, double *out,
                           bs_error *err) {
  const double first = bs_clock_s();
  double each[ROUNDS];
  int32_t rc = BS_OK;
  int rounds = 0;
  while (rc == BS_OK && rounds < ROUNDS && (rounds < LEAST || bs_clock_s() - first < d->seconds)) {
    const double began = bs_clock_s();
    int calls = 0;
    do rc = call(t, err);
    while (++calls < most && rc == BS_OK &&
           (calls % BATCH != 0 || bs_clock_s() - began < d->seconds / LEAST));
    each[rounds++] = (bs_clock_s() - began) / calls;
  }
  *out = rc == BS_OK ? bs_median(each, (size_t)rounds) : 0;
  return rc;
}

/* An activation of one row: next to all of the call is the host's. */
static int32_t on_rank(const bs_diagnosis *d, bs_rank *rank, call_costs *out, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_tensor_desc square = {
      .struct_size = sizeof square, .dtype = BS_F32, .rank = 2, .dims = {WIDTH, WIDTH}};
  const bs_tensor_desc *const descs[] = {&square, &square};
  const bs_op_query q = {
      .struct_size = sizeof q, .op = "activate", .nargs = 2, .args = descs, .activation = BS_ACT_RELU};
  bs_tensor in = {0}, to = {0};
  bs_tensor *const args[] = {&in, &to};
  bs_plan *plan = NULL;
  int32_t rc = api->tensor_alloc(rank, &square, BS_LIFE_ACTIVATION, &in, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &square, BS_LIFE_ACTIVATION, &to, err);
  if (rc == BS_OK) rc = api->op_prepare(rank, &q, NULL, &plan, err);
  in.dims[0] = to.dims[0] = 1;
  const timed t = {.api = api, .plan = plan, .args = args};
  if (rc == BS_OK) rc = time_rounds(d, checked_call, &t, CALLS, &out->checked, err);
  if (rc == BS_OK) rc = time_rounds(d, unchecked_call, &t, CALLS, &out->unchecked, err);
  api->op_release(plan);
  api->tensor_free(rank, &in);
  api->tensor_free(rank, &to);
  return rc;
}

static int32_t time_dispatch(const bs_diagnosis *d, bs_context *context, const char *backend, call_costs *out,
                             bs_error *err) {
  const bs_world_options options = {
      .struct_size = sizeof options, .world_size = 1, .backend = backend, .threads_per_rank = 1};
  bs_world *world = NULL;
  bs_rank *rank = NULL;
  *out = (call_costs){0};
  int32_t rc = bs_world_create(context, &options, &world, err);
  if (rc == BS_OK) rc = bs_world_enter(world, &rank, err);
  if (rc == BS_OK) {
    rc = on_rank(d, rank, out, err);
    const int32_t left = bs_world_leave(world, rc == BS_OK ? err : NULL);
    if (rc == BS_OK) rc = left;
  }
  bs_world_destroy(world);
  return rc;
}

/* A layer's calls are checked each time; a session's were checked when it bound its shapes. */
static int32_t tell_calls(bs_diagnosis *d, bs_context *context, const char *backend, bs_error *err) {
  call_costs t;
  const int32_t rc = time_dispatch(d, context, backend, &t, err);
  if (rc != BS_OK) return rc;
  bs_fact(d, "call of an op on one row, with checks", t.checked, "s");
  bs_fact(d, "call of an op on one row, without", t.unchecked, "s");
  return BS_OK;
}

/* ---- models ---------------------------------------------------------------------------------- */

/* So many operators in a row, of one number each. */
static int32_t make_chain(bs_context *context, uint32_t n, bs_graph **out, bs_error *err) {
  const bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = 1, .dims = {1}};
  uint32_t value = BS_GRAPH_NONE;
  int32_t rc = bs_graph_new(context, out, err);
  if (rc == BS_OK) rc = bs_graph_input(*out, "x", &d, NULL, &value, err);
  for (uint32_t i = 0; rc == BS_OK && i < n; i++)
    rc = bs_graph_op(*out, "Sigmoid", &value, 1, NULL, 0, &value, 1, err);
  return rc == BS_OK ? bs_graph_output(*out, "y", value, err) : rc;
}

/* Seconds of a run of a chain, and how many nodes it became. Over ranks each has the whole chain. */
static int32_t time_chain(const bs_diagnosis *d, const diag_model *m, uint32_t n, double *out_s,
                          uint32_t *out_nodes, bs_error *err) {
  static const char *const off[] = {"all"};
  const int ranks = m->model->world != NULL;
  const bs_session_options o = {.struct_size = sizeof o,
                                .world = m->model->world,
                                .threads = ranks ? 0 : m->request.threads,
                                .backend = ranks ? NULL : m->request.backend,
                                .passes_off = off,
                                .n_passes_off = 1};
  bs_tensor x = {.struct_size = sizeof x, .dtype = BS_F32, .rank = 1, .dims = {1}, .strides = {1}};
  float number = 1;
  bs_graph *graph = NULL;
  bs_session *session = NULL;
  x.data = &number;
  x.bytes = sizeof number;
  int32_t rc = make_chain(m->context, n, &graph, err);
  if (rc == BS_OK) rc = bs_session_open(m->context, graph, &o, &session, err);
  if (rc == BS_OK) rc = bs_session_set(session, 0, &x, err);
  if (rc == BS_OK) rc = time_rounds(d, one_run, &(timed){.session = session}, RUNS, out_s, err);
  *out_nodes = rc == BS_OK ? bs_session_node_count(session) : 0;
  bs_session_close(session);
  bs_graph_close(graph);
  return rc;
}

/* Finds from two chains the fixed time of a run and of a node, which do not depend on the numbers. */
int32_t diag_model_dispatch(bs_diagnosis *d, diag_model *m, bs_error *err) {
  const uint32_t nodes = bs_session_node_count(m->model->session);
  double few = 0, many = 0;
  uint32_t n_few = 0, n_many = 0;
  int32_t rc = tell_calls(d, m->context, m->request.backend, err);
  if (rc == BS_OK) rc = time_chain(d, m, 1, &few, &n_few, err);
  if (rc == BS_OK) rc = time_chain(d, m, CHAIN, &many, &n_many, err);
  if (rc != BS_OK) return rc;
  if (n_many <= n_few) return bs_skip(d, "a chain of %d operators became %u nodes", CHAIN, n_many);
  const double node = fmax(0, (many - few) / (n_many - n_few)),
               all = fmax(0, few - n_few * node) + nodes * node;
  bs_fact(d, "a run of no nodes", fmax(0, few - n_few * node), "s");
  bs_fact(d, "a node on one number", node, "s");
  bs_fact(d, "nodes of a run", nodes, "");
  bs_fact(d, "the host's part of a run", all, "s");
  if (all > MUCH * d->pass_s)
    bs_find(d, all, NULL,
            "a run of %.3g us, of %u nodes, takes %.3g us on single numbers: its ops are too small",
            1e6 * d->pass_s, nodes, 1e6 * all);
  return BS_OK;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* The layer for one token and so few features that next to all of its pass is the host's. */
static int32_t open_least(const diag_layer *l, diag_layer *out, bs_error *err) {
  static const char *const sizes[] = {"model.N", "model.K"};
  char features[16];
  bs_node *tree = bs_config_clone(l->config);
  snprintf(features, sizeof features, "%u", FEATURES * l->c.world_size);
  int32_t rc = tree != NULL ? bs_config_set(tree, "model.B", "1", err) : bs_no_memory(err, "a configuration");
  for (int i = 0; rc == BS_OK && i < 2; i++) rc = bs_config_set(tree, sizes[i], features, err);
  if (rc == BS_OK) rc = diag_layer_open(l->context, tree, l->quiet_dir, out, err);
  bs_config_free(tree);
  return rc;
}

/* Seconds of rank 0's pass without the collectives, in which ranks wait for each other. */
static double without_collectives(const diag_layer *l, const bs_case_result *result, double steady) {
  const json_t *timings = result->ranks[0].timings;
  const char *const names[] = {"forward", "allreduce"};
  double p50[2];
  if (l->c.world_size == 1) return steady;
  for (int i = 0; i < 2; i++)
    p50[i] = 1e-3 * json_number_value(json_object_get(json_object_get(timings, names[i]), "p50_ms"));
  return fmax(0, p50[0] - p50[1]);
}

static int32_t time_least(const bs_diagnosis *d, const diag_layer *l, double *out_s, bs_error *err) {
  diag_layer least = {0};
  bs_case_result result = {0};
  bs_span once[2];
  double steady = 0, first = 0;
  int32_t rc = open_least(l, &least, err);
  if (rc == BS_OK) rc = diag_layer_time(d, &least.c, BS_ARM_FORWARD, &steady, &first, once, &result, err);
  if (rc == BS_OK) *out_s = without_collectives(&least, &result, steady);
  bs_case_result_free(&result);
  diag_layer_close(&least);
  return rc;
}

int32_t diag_layer_dispatch(bs_diagnosis *d, diag_layer *l, bs_error *err) {
  const uint32_t features = FEATURES * l->c.world_size;
  bs_error why = BS_ERROR_INIT;
  double host = 0;
  int32_t rc = tell_calls(d, l->context, l->c.backend, err);
  if (rc != BS_OK) return rc;
  rc = time_least(d, l, &host, &why);
  if (rc == BS_NO_MEMORY || rc == BS_DEADLINE) {
    *err = why;
    return rc;
  }
  if (rc != BS_OK) return bs_skip(d, "no layer of one token and %u features: %.100s", features, why.message);
  bs_fact(d, "the host's part: a pass of one token and few features, collectives left out", host, "s");
  if (host > MUCH * d->pass_s)
    bs_find(
        d, host, NULL,
        "a pass of %.3g us; on one token and %u features, collectives left out, it takes %.3g us: the layer "
        "is too small",
        1e6 * d->pass_s, features, 1e6 * host);
  return BS_OK;
}
