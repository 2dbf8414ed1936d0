/* SPDX-License-Identifier: MIT
 * trace.c - a run that shows the inputs and outputs of each node: for statistics of what lies inside. */
#include "core/base/error.h"
#include "graph/run/args.h"
#include "graph/run/session.h"
#include "graph/split/front.h"

typedef struct tracing {
  void (*each)(void *user, const bs_node_trace *row);
  void *user;
} tracing;

static const char *weight_name(const graph *g, const gnode *n) {
  if (n->weight == GNONE) return "";
  return graph_text_of(g, g->values[g->values[n->weight].base].name);
}

static void show(void *user, const gbinding *b, const gstep *s) {
  const tracing *t = user;
  const gnode *n = &b->g->nodes[s->node];
  const bs_tensor *args[GNODE_IN + GNODE_OUT] = {NULL};
  for (uint32_t i = 0; i < n->n_in; i++)
    if (n->in[i] != GNONE) args[i] = s->args[i];
  for (uint32_t i = 0; i < n->n_out; i++)
    if (n->out[i] != GNONE) args[n->n_in + i] = s->args[n->n_in + i];
  const bs_node_trace row = {
      .struct_size = (uint32_t)sizeof row,
      .index = (uint32_t)(s - b->steps),
      .op = graph_op_name(n->op),
      .origin = n->origin != GNONE ? graph_text_of(b->g, b->g->origins[n->origin].text) : "",
      .weight = weight_name(b->g, n),
      .n_inputs = n->n_in,
      .n_outputs = n->n_out,
      .inputs = args,
      .outputs = args + n->n_in};
  t->each(t->user, &row);
}

static int32_t trace_once(bs_session *s, tracing *t, bs_error *err) {
  int64_t tokens = 0;
  int32_t rc = gsession_ready(s, &tokens, err);
  if (rc == BS_OK) rc = gbinding_check(s->bound, err);
  if (rc == BS_OK) rc = gflat_watch(s->bound, show, t, err);
  if (rc == BS_OK) rc = gmodel_unchanged(s->graph->model, err);
  if (rc == BS_OK && tokens > 0) s->core->length += tokens;
  return rc;
}

BS_API int32_t bs_session_trace(bs_session *s, void (*each)(void *user, const bs_node_trace *row), void *user,
                                bs_error *err) {
  tracing t = {each, user};
  if (s == NULL || each == NULL) return gargs_null("bs_session_trace", "session and each", err);
  if (s->front != NULL) return gfront_trace(s->front, each, user, err);
  int32_t rc = gdevice_has_values(s->rank, "a run with the values of its nodes", err);
  if (rc == BS_OK) rc = gcore_take_states(s->core, s->graph->model, err);
  if (rc != BS_OK) return rc;
  rc = trace_once(s, &t, err);
  gcore_give_states(s->core, s->graph->model);
  if (rc == BS_OK) s->stats.runs++;
  return rc;
}
