/* SPDX-License-Identifier: MIT
 *
 * bare.h - a matmul of a plugin called without the library in between: the plugin's file opened by a host of
 * a few functions, one implementation packed, prepared and run on the calling thread. bench_host subtracts it
 * from a whole forward. */
#ifndef BS_BENCH_BARE_H
#define BS_BENCH_BARE_H

#include "blockshock/blockshock.h"

typedef struct bench_plugin bench_plugin; /* an activated plugin; used by any number of threads */

/* `context` says where the plugin's file lies; one that is built in has none (BS_UNAVAILABLE). */
int32_t bench_plugin_open(const bs_context *context, const char *id, bench_plugin **out_plugin,
                          bs_error *err);
void bench_plugin_close(bench_plugin *plugin);

/* A prepared kernel of one thread. run(plan, args, 4, NULL, err) is all that a call costs. */
typedef struct bench_kernel {
  const bs_op_impl *impl;
  bs_exec exec;
  void *packed, *plan, *scratch;
} bench_kernel;

/* The implementation `name` of op "matmul". `kernel` stays at its address until bench_kernel_free. */
int32_t bench_kernel_make(const bench_plugin *plugin, const char *name, const bs_op_query *query,
                          const bs_source *weights, bench_kernel *kernel, bs_error *err);
void bench_kernel_free(bench_kernel *kernel);

#endif
