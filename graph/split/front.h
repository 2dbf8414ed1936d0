/* SPDX-License-Identifier: MIT
 * front.h - a session over a world: what each call of graph.h does where `world` was given. */
#ifndef BS_GRAPH_SPLIT_FRONT_H
#define BS_GRAPH_SPLIT_FRONT_H
#include "graph/run/session.h"

/* Opens a member session on each rank of options->world. The front belongs to the session. */
int32_t gfront_open(bs_context *context, bs_graph *model, const bs_session_options *options,
                    gfront **out_front, bs_error *err);
void gfront_close(gfront *front);
/* Rank 0's member, or that of this process. */
bs_session *gfront_lead(const gfront *front);
bs_session *gfront_member(const gfront *front, uint32_t rank); /* NULL: of another process */
/* Each is the call of graph.h on every member, in one run of the world, or without a run where ranks need not
 * meet. Callbacks are called for the lead alone. */
int32_t gfront_bind(gfront *front, const bs_dim *const *dims, uint32_t n, bs_error *err);
int32_t gfront_set(gfront *front, uint32_t port, const bs_tensor *tensor, bs_error *err);
int32_t gfront_run(gfront *front, bs_error *err);
/* Each run from here on compares the outputs of the ranks (gates.h), or no more. Returns what it was. */
uint32_t gfront_compare(gfront *front, uint32_t on);
int32_t gfront_cache(gfront *front, int64_t length, bs_error *err);
int32_t gfront_slot(gfront *front, int64_t first, bs_error *err);
int32_t gfront_slot_copy(gfront *front, int64_t from, int64_t to, int64_t tokens, bs_error *err);
int32_t gfront_check(gfront *front, void (*each)(void *user, const bs_node_check *row), void *user,
                     bs_error *err);
int32_t gfront_trace(gfront *front, void (*each)(void *user, const bs_node_trace *row), void *user,
                     bs_error *err);
/* BS_INVALID_ARGUMENT: ranks are processes, and another one than this makes the session's calls. */
int32_t gfront_leads(const gfront *front, bs_error *err);
#endif
