/* SPDX-License-Identifier: MIT
 *
 * elementwise.c - see elementwise.h. Rows are cut into pieces, so that few long rows occupy a whole team. */
#include "elementwise.h"

#include <stdlib.h>

typedef struct call {
  const cpu_elementwise *plan;
  const bs_tensor *in, *out;
} call;

int32_t cpu_elementwise_make(const cpu_state *state, const bs_exec *exec, const bs_op_query *query,
                             int64_t alone,
                             void (*piece)(const cpu_elementwise *plan, void *dst, const void *src,
                                           int64_t count),
                             void **out_plan, bs_error *err) {
  cpu_elementwise *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = (cpu_elementwise){exec,  state, query->args[0]->dtype, query->args[1]->dtype, query->activation,
                            alone, piece};
  *out_plan = plan;
  return BS_OK;
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const call *c = arg;
  const cpu_elementwise *plan = c->plan;
  const int64_t n = c->in->dims[1], pieces = (n + CPU_PIECE - 1) / CPU_PIECE;
  int64_t begin, end;
  cpu_share(c->in->dims[0] * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = i / pieces, first = i % pieces * CPU_PIECE;
    const int64_t from = row * c->in->strides[0] + first, to = row * c->out->strides[0] + first;
    plan->piece(plan, (uint8_t *)c->out->data + (size_t)to * BS_DTYPE_BYTES(plan->to),
                (const uint8_t *)c->in->data + (size_t)from * BS_DTYPE_BYTES(plan->from),
                n - first < CPU_PIECE ? n - first : CPU_PIECE);
  }
}

int32_t cpu_elementwise_run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                            bs_error *err) {
  const cpu_elementwise *plan = opaque;
  call c = {plan, args[0], args[1]};
  (void)nargs;
  (void)stream;
  if (args[0]->dims[0] <= 0 || args[0]->dims[1] <= 0) return BS_OK;
  return cpu_team(plan->exec, args[0]->dims[0] * args[0]->dims[1] < plan->alone, run_share, &c, err);
}

void cpu_elementwise_free(void *plan) {
  free(plan);
}
