/* SPDX-License-Identifier: MIT
 * pass.h - the passes: each rewrites a graph into one of the same function. To add a pass: write a file with
 * its function, put a row into the table of run.c, and a test on a model that fails without it. */
#ifndef BS_GRAPH_PASS_PASS_H
#define BS_GRAPH_PASS_PASS_H
#include "graph/ir/graph.h"

/* The arguments of a pass besides the graph. */
typedef struct gpass_ctx {
  /* Computes a node over constants: out_data[i] of output i, which outlives the graph. BS_UNSUPPORTED,
   * BS_UNAVAILABLE, BS_NOT_FOUND: the node stays for the run. NULL: nothing is folded. */
  int32_t (*fold)(void *user, const graph *g, const gnode *node, void **out_data, bs_error *err);
  void *fold_user;
  /* Told why a pass left a node that it looks for (gpass_miss); node GNONE: the pass begins, and what it said
   * in an earlier round is void. NULL: no one asks. */
  void (*miss)(void *user, const graph *g, uint32_t node, const char *pass, const char *text);
  void *miss_user;
  uint32_t layers; /* 1: products become layers of a method, which take no residual */
  const graph *g;  /* of the run, and the pass that runs */
  const char *pass;
} gpass_ctx;

/* Says at an exit behind a pass's anchor what kept it from a node, in a few words that name the node's part.
 */
void gpass_miss(const gpass_ctx *ctx, uint32_t node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* match_replace for the node old[0], that says when it did nothing. */
int32_t gpass_replace(graph *g, const gpass_ctx *ctx, const gnode *node, const uint32_t *old, uint32_t n,
                      uint32_t *io_changes, bs_error *err);

typedef struct gpass {
  const char *name, *summary;
  int32_t (*run)(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
} gpass;

/* The table, in the order of the run. NULL beyond the last. */
const gpass *gpass_get(uint32_t index);
enum { GPASS_MAX = 16 };

/* A record of what a pass did, in all rounds. */
enum { GPASS_ROUNDS = 4 };
typedef struct gpass_trace {
  uint32_t off, changes, nodes;    /* nodes: after it, in the last round */
  uint32_t by_round[GPASS_ROUNDS]; /* changes */
  double seconds;
} gpass_trace;

/* Bit i: pass i is off. names: "all" or names of passes; BS_CONFIG for another one. */
int32_t gpass_mask(const char *const *names, uint32_t n, uint32_t *out_off, bs_error *err);
/* Runs the passes that are on, in order, and checks the graph after each; again until nothing changes, in
 * GPASS_ROUNDS rounds at most. A pass is left out while nothing has changed since it found nothing to do.
 * out_traces: GPASS_MAX of them. */
int32_t gpass_run(graph *g, const gpass_ctx *ctx, uint32_t off, gpass_trace *out_traces, bs_error *err);

/* Only for tests of the checks: called after each pass that ran, with its name. Its changes count as the
 * pass's. NULL: not called. */
extern int32_t (*gpass_fault)(graph *g, const char *pass, uint32_t *io_changes, bs_error *err);

/* Removes nodes whose results are never read; every pass may call it when it is done. */
int32_t gpass_dce(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_fold(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_weights(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_alpha(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_view(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_fuse_map(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_expr(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_fuse_norm(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_fuse_attention(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_rope(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_cse(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_merge(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_epilogue(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
int32_t gpass_last_token(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
#endif
