/* SPDX-License-Identifier: MIT
 *
 * elementwise.h - what ops of one input [B,N] and one output [B,N] share: the plan and the division of
 * the work over the team. The op itself is a function of one piece of a row. */
#ifndef BS_PLUGINS_CPU_OPS_ELEMENTWISE_H
#define BS_PLUGINS_CPU_OPS_ELEMENTWISE_H

#include "../cpu.h"

#define CPU_PIECE 2048 /* elements of a piece at most */

typedef struct cpu_elementwise {
  const bs_exec *exec;
  const cpu_state *state;
  uint32_t from, to, activation;
  int64_t alone; /* elements below which the team is not woken */
  void (*piece)(const struct cpu_elementwise *plan, void *dst, const void *src, int64_t count);
} cpu_elementwise;

/* A plan for the query; piece and alone are the op's. */
int32_t cpu_elementwise_make(const cpu_state *state, const bs_exec *exec, const bs_op_query *query,
                             int64_t alone,
                             void (*piece)(const cpu_elementwise *plan, void *dst, const void *src,
                                           int64_t count),
                             void **out_plan, bs_error *err);
/* run and plan_free of bs_op_impl. */
int32_t cpu_elementwise_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                            bs_error *err);
void cpu_elementwise_free(void *plan);

#endif
