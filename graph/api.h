/* SPDX-License-Identifier: MIT
 * api.h - inside of bs_graph, for api.c and graph/run. */
#ifndef BS_GRAPH_API_H
#define BS_GRAPH_API_H
#include "graph/model.h"
#include "graph/run/run.h"

struct bs_graph {
  bs_context *context;
  gmodel *model;
  gfold fold;
  _Atomic uint32_t finished;    /* checked: nothing is added any more, any thread may read the model */
  _Atomic uint32_t has_session; /* one was opened: no input becomes a constant any more */
};
/* A graph of a model, which it takes over, also when it fails. */
int32_t bs_graph_of(bs_context *context, gmodel *model, bs_graph **out_graph, bs_error *err);
/* Checks a model that was built by calls, once. */
int32_t bs_graph_finish(bs_graph *graph, bs_error *err);
/* The parts of the model's files that are not used, in one line; "" when all are used. */
const char *bs_graph_warning(const bs_graph *graph);
/* 1: the model has an initializer of that name that is an input too (bs_graph_fix). */
int bs_graph_has_default(const bs_graph *graph, const char *name);
#endif
