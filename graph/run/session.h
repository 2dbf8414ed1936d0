/* SPDX-License-Identifier: MIT
 * session.h - inside of bs_session. */
#ifndef BS_GRAPH_RUN_SESSION_H
#define BS_GRAPH_RUN_SESSION_H
#include "graph/api.h"
#include "graph/ir/arena.h"
#include "graph/pass/pass.h"
#include "graph/run/run.h"

enum {
  GSESSION_BINDINGS = 16,
  GSESSION_BINDINGS_MAX = 65536,
  GSESSION_DROPPED = 256,
  GSESSION_REFUSED = 64,
  GSESSION_SYMBOLS = 64 /* further ones never vary within a plan */
};
/* A range of sizes that has no plan in common: a hash of its largest sizes. */
typedef struct gsession_refused {
  uint64_t range;
  char why[200];
} gsession_refused;
/* Texts of the last bs_verify_report. */
enum { GVERIFIED_OFF = 0, GVERIFIED_NODE = 1, GVERIFIED_SERVES = 2, GVERIFIED_COUNT = 3 };

typedef struct gfront gfront; /* graph/split/front.h */

struct bs_session {
  gfront *front; /* of a session over a world, which has nothing else; NULL: a session of one rank */
  bs_context *context;
  bs_graph *graph;
  gcore *core;     /* with the sessions that it shares with */
  grank *rank;     /* its own */
  gbinding *bound; /* one of bindings */
  gbinding **bindings;
  uint32_t n_bindings; /* places */
  uint32_t passes_off, f64, profile, tokenwise, exact;
  int64_t slot;       /* that row 0 of a run uses */
  char *weights;      /* as the options; NULL */
  uint32_t x_bytes;   /* lower_options */
  void **memory;      /* of each port, the caller's; NULL: not set */
  void *workspace;    /* the caller's; NULL: the binding's own */
  struct glead *tell; /* graph/split/echo.h: other ranks follow this one; NULL */
  uint64_t clock;
  uint64_t dropped[GSESSION_DROPPED]; /* hashes of the sizes of bindings that made room, the last ones */
  uint64_t n_dropped;
  uint64_t moved;                             /* bit i: symbol i has had several sizes */
  gsession_refused refused[GSESSION_REFUSED]; /* the last ones */
  uint64_t n_refused;
  bs_session_stats stats;
  char verified[GVERIFIED_COUNT][160];
};

/* misses.c: what passes say of a node of the model that they left; pass NULL: of each node, once. */
typedef struct gmiss {
  const char *node, *text, *pass;
} gmiss;
typedef struct gmisses {
  gmiss *rows;
  uint32_t n, cap;
  int failed; /* no memory */
  arena texts;
} gmisses;
void gmiss_add(void *misses, const graph *g, uint32_t node, const char *pass, const char *text);
void gmisses_put(const gmisses *misses, int json, bs_text *io_text);
void gmisses_free(gmisses *misses);
/* Lowers the model again for the bound sizes, and runs the session's passes over it. */
int32_t gsession_misses(bs_session *session, gmisses *out_misses, bs_error *err);

/* bs_session_open, of a rank that tells others what it builds (graph/split/echo.h); tell NULL: of any. */
int32_t gsession_open(bs_context *context, bs_graph *model, const bs_session_options *options,
                      struct glead *tell, bs_session **out_session, bs_error *err);
/* The member of rank 0 of a session over a world; any other session itself. */
bs_session *gsession_lead(const bs_session *session);
/* session.c: each run from here on compares the outputs of all ranks of a session over a world, or no more:
 * BS_NUMERIC (BS-GRAPH-RANKS) names a rank whose bits differ. Returns what it was. Other sessions: no effect.
 */
uint32_t gsession_compare_ranks(bs_session *session, uint32_t on);
/* bind.c: frees a binding. */
void gsession_drop(bs_session *session, gbinding *binding);
/* Checks a bound plan that serves a range of sizes: its graph must be that of a plan for these sizes alone.
 */
int32_t gsession_verify_bucket(bs_session *session, bs_error *err);
/* The value of a port of the bound graph; GNONE: there is no such port. */
uint32_t gsession_value(const bs_session *session, uint32_t port);
/* Memory for the arena: the caller's, or the binding's own. */
int32_t gsession_arena(bs_session *session, bs_error *err);
/* The arena lies there; outputs that the caller gave memory for lie in that. */
void gsession_place(bs_session *session, void *memory);
/* All inputs are set, and the tokens fit into the cache. *out_tokens: how many the run adds. */
int32_t gsession_ready(bs_session *session, int64_t *out_tokens, bs_error *err);
#endif
