/* SPDX-License-Identifier: MIT
 *
 * elementwise.h - shared parts of ops over the rows of matrices: the plan and the division of the work over
 * the team. Rows are cut into pieces, so that few long rows occupy a whole team. The op itself is a function
 * of one piece of a row. */
#ifndef BS_PLUGINS_CPU_OPS_ELEMENTWISE_H
#define BS_PLUGINS_CPU_OPS_ELEMENTWISE_H

#include "../cpu.h"

typedef struct cpu_elementwise {
  uint32_t cut;  /* the arg whose rows are cut */
  uint32_t most; /* elements of a piece at most */
  int64_t alone; /* elements of that arg below which the team is not woken */
  /* Elements first .. first+count of row `row`. */
  void (*piece)(const struct cpu_elementwise *plan, bs_tensor *const *args, int64_t row, int64_t first,
                int64_t count);
  const bs_exec *exec; /* from here on filled in by cpu_elementwise_make */
  const cpu_state *state;
  uint32_t activation;
} cpu_elementwise;

/* The address of element `first` of a row of a matrix. */
static inline void *cpu_row_at(const bs_tensor *t, int64_t row, int64_t first) {
  return (uint8_t *)t->data + (size_t)(row * t->strides[0] + first) * BS_DTYPE_BYTES(t->dtype);
}

/* Makes a plan of `size` bytes that begins with `like`, followed by zeros; refuses the queries that supports
 * refuses. free() releases it. */
int32_t cpu_elementwise_make(const cpu_elementwise *like, size_t size,
                             int32_t (*supports)(void *, const bs_op_query *, bs_op_answer *), void *state,
                             const bs_exec *exec, const bs_op_query *query, void **out_plan, bs_error *err);
/* run of bs_op_impl. */
int32_t cpu_elementwise_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                            bs_error *err);

#endif
