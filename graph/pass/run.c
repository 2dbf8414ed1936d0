/* SPDX-License-Identifier: MIT
 * run.c - the table of passes, and what runs them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"

static const gpass table[] = {
    {"fold", "computes what is over constants alone", gpass_fold},
    {"weights", "packs the matrix of a product by a constant that was computed", gpass_weights},
    {"dce", "removes nodes whose results nobody reads", gpass_dce},
    {"view", "lets a node write its result where a copy would put it", gpass_view},
    {"fuse_map", "makes one map of two where only the second reads the first", gpass_fuse_map},
    {"expr", "brings programs into their normal form and names gelu, silu and the like", gpass_expr},
    {"fuse_norm", "makes softmax, RMS and layer normalisation of reductions and maps", gpass_fuse_norm},
    {"fuse_attention", "makes attention of two products and a softmax", gpass_fuse_attention},
    {"rope", "makes one map of the rotation of halves", gpass_rope},
    {"alpha", "puts a number before or after a product into its alpha or its weight", gpass_alpha},
    {"epilogue", "puts bias, activation and residual into products, sums into normalisations",
     gpass_epilogue},
    {"cse", "computes once what several nodes compute alike", gpass_cse},
    {"merge", "makes one product of several that read the same rows: Q, K and V, gate and up", gpass_merge},
    {"last_token", "makes products of the rows alone that are read", gpass_last_token},
};
#define N_PASSES ((uint32_t)(sizeof table / sizeof table[0]))
_Static_assert(sizeof table / sizeof table[0] <= (size_t)GPASS_MAX, "traces have room for every pass");

const gpass *gpass_get(uint32_t index) {
  return index < N_PASSES ? &table[index] : NULL;
}

BS_API const char *bs_graph_pass_name(uint32_t index) {
  return index < N_PASSES ? table[index].name : NULL;
}
BS_API const char *bs_graph_pass_summary(uint32_t index) {
  return index < N_PASSES ? table[index].summary : NULL;
}

int32_t gpass_mask(const char *const *names, uint32_t n, uint32_t *out_off, bs_error *err) {
  *out_off = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t p = 0;
    while (p < N_PASSES && strcmp(table[p].name, names[i]) != 0) p++;
    if (strcmp(names[i], "all") == 0) {
      *out_off = UINT32_MAX;
    } else if (p < N_PASSES) {
      *out_off |= 1u << p;
    } else {
      const char *all[N_PASSES + 1] = {"all"};
      for (uint32_t k = 0; k < N_PASSES; k++) all[k + 1] = table[k].name;
      const char *nearest = bs_nearest(names[i], all, N_PASSES + 1);
      bs_error_set(err, BS_CONFIG, "BS-GRAPH-PASS", "there is no pass '%.64s'", names[i]);
      bs_error_hint(err, "%s%s",
                    nearest != NULL ? "the nearest one is " : "`bsrun model explain` lists the passes",
                    nearest != NULL ? nearest : "");
      return BS_CONFIG;
    }
  }
  return BS_OK;
}

int32_t (*gpass_fault)(graph *g, const char *pass, uint32_t *io_changes, bs_error *err);

void gpass_miss(const gpass_ctx *ctx, uint32_t node, const char *format, ...) {
  char text[160];
  va_list args;
  if (ctx == NULL || ctx->miss == NULL) return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  ctx->miss(ctx->miss_user, ctx->g, node, ctx->pass, text);
}

int32_t gpass_replace(graph *g, const gpass_ctx *ctx, const gnode *node, const uint32_t *old, uint32_t n,
                      uint32_t *io_changes, bs_error *err) {
  const uint32_t before = *io_changes;
  const int32_t rc = match_replace(g, node, old, n, NULL, io_changes, err);
  if (rc == BS_OK && *io_changes == before)
    gpass_miss(ctx, old[0], "%s does not take these arguments, or a state that is read changes in between",
               graph_op_name(node->op));
  return rc;
}

/* One pass in one round. */
static int32_t run_pass(graph *g, const gpass_ctx *given, uint32_t index, uint32_t round,
                        gpass_trace *io_trace, bs_error *err) {
  const double began = bs_clock_s();
  gpass_ctx ctx = *given;
  uint32_t changes = 0;
  ctx.g = g;
  ctx.pass = table[index].name;
  if (ctx.miss != NULL) ctx.miss(ctx.miss_user, g, GNONE, ctx.pass, "");
  int32_t rc = table[index].run(g, &ctx, &changes, err);
  if (rc == BS_OK && gpass_fault != NULL) rc = gpass_fault(g, table[index].name, &changes, err);
  io_trace->seconds += bs_clock_s() - began;
  char when[64] = "after the pass ";
  strncat(when, table[index].name, 32);
  if (rc == BS_OK && changes > 0) rc = graph_validate(g, when, err);
  io_trace->changes += changes;
  io_trace->by_round[round] = changes;
  return rc;
}

int32_t gpass_run(graph *g, const gpass_ctx *ctx, uint32_t off, gpass_trace *out_traces, bs_error *err) {
  uint32_t quiet = 0; /* passes in a row that changed nothing, or are off */
  int32_t rc = graph_validate(g, "after the lowering", err);
  for (uint32_t i = 0; i < N_PASSES; i++) out_traces[i] = (gpass_trace){.off = off >> i & 1u};
  for (uint32_t k = 0; k < N_PASSES * GPASS_ROUNDS && quiet < N_PASSES && rc == BS_OK; k++) {
    gpass_trace *t = &out_traces[k % N_PASSES];
    if (!t->off) rc = run_pass(g, ctx, k % N_PASSES, k / N_PASSES, t, err);
    quiet = t->by_round[k / N_PASSES] > 0 ? 0 : quiet + 1;
    t->nodes = g->n_live;
  }
  return rc;
}
