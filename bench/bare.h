/* SPDX-License-Identifier: MIT
 *
 * bare.h - an op of a plugin called without the library in between: the plugin's file opened by a host of
 * a few functions, one implementation packed, prepared and run. bench_host subtracts it from a whole forward;
 * bench_matmul_q times it. */
#ifndef BS_BENCH_BARE_H
#define BS_BENCH_BARE_H

#include "blockshock/blockshock.h"

typedef struct bench_plugin bench_plugin; /* an activated plugin; used by any number of threads */

/* `context` says where the plugin's file lies; one that is built in has none (BS_UNAVAILABLE). isa: the
 * parameter of that name; NULL: its default. */
int32_t bench_plugin_open(const bs_context *context, const char *id, const char *isa,
                          bench_plugin **out_plugin, bs_error *err);
void bench_plugin_close(bench_plugin *plugin);

/* The threads that run kernels: a rank's team of `width` (bs_rank_get_api), or the calling thread if there is
 * no rank. All kernels share the scratch. */
typedef struct bench_team {
  bs_exec exec;
  bs_rank *rank;
  void *scratch;
  uint64_t bytes;
} bench_team;

/* `team` stays at its address while kernels use it. */
void bench_team_make(const bench_plugin *plugin, bs_rank *rank, uint32_t width, bench_team *team);
void bench_team_free(bench_team *team);

/* A prepared kernel. run(plan, args, 4, NULL, err) is all that a call costs. */
typedef struct bench_kernel {
  const bs_op_impl *impl;
  void *state;
  void *packed, *plan;
  uint64_t bytes; /* packed */
} bench_kernel;

/* The implementation `name` of the query's op. */
int32_t bench_kernel_make(const bench_plugin *plugin, const bench_team *team, const char *name,
                          const bs_op_query *query, const bs_source *weights, bench_kernel *kernel,
                          bs_error *err);
/* A plan for another query of the same weight, in place of the kernel's. */
int32_t bench_kernel_plan(const bench_team *team, const bs_op_query *query, bench_kernel *kernel,
                          bs_error *err);
void bench_kernel_free(bench_kernel *kernel);

#endif
