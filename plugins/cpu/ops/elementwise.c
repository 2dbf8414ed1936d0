/* SPDX-License-Identifier: MIT
 *
 * elementwise.c - see elementwise.h. */
#include "elementwise.h"

#include <stdlib.h>

typedef struct call {
  const cpu_elementwise *plan;
  bs_tensor *const *args;
} call;

int32_t cpu_elementwise_make(const cpu_elementwise *like, size_t size,
                             int32_t (*supports)(void *, const bs_op_query *, bs_op_answer *), void *state,
                             const bs_exec *exec, const bs_op_query *query, void **out_plan, bs_error *err) {
  const int32_t rc = cpu_require(supports, state, query, err);
  if (rc != BS_OK) return rc;
  cpu_elementwise *plan = calloc(1, size);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = *like;
  plan->exec = exec;
  plan->state = state;
  plan->activation = query->activation;
  *out_plan = plan;
  return BS_OK;
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const call *c = arg;
  const cpu_elementwise *plan = c->plan;
  const int64_t n = c->args[plan->cut]->dims[1], most = plan->most, pieces = (n + most - 1) / most;
  int64_t begin, end;
  cpu_share(c->args[plan->cut]->dims[0] * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t first = i % pieces * most;
    plan->piece(plan, c->args, i / pieces, first, n - first < most ? n - first : most);
  }
}

int32_t cpu_elementwise_run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                            bs_error *err) {
  const cpu_elementwise *plan = opaque;
  call c = {plan, args};
  const int64_t *dims = args[plan->cut]->dims;
  (void)nargs;
  (void)stream;
  if (dims[0] <= 0 || dims[1] <= 0) return BS_OK;
  return cpu_team(plan->exec, dims[0] * dims[1] < plan->alone, run_share, &c, err);
}
