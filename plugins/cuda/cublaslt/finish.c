/* SPDX-License-Identifier: MIT
 * finish.c - parts of a product that cuBLASLt's epilogues lack or compute differently: activations, a bias of
 * another dtype than Y's (methods keep theirs in f32) or one that would be rounded twice, a residual of
 * another dtype, a Y in fp8. The product is summed into f32, and one kernel of this plugin processes it: with
 * few tokens the sums are small compared with the weight. */
#include "../ops/finish_product_body.h"
#include "../ops/ops.h"
#include "product.h"

static int fine(const bs_tensor_desc *d) {
  return d == NULL || (cuda_is_float(d->dtype) && d->dtype != BS_F64);
}

int cuda_lt_finishes(const bs_op_query *q) {
  return q->activation <= BS_ACT_GELU_TANH && fine(q->args[1]) && fine(q->args[2]) && fine(q->args[3]);
}

uint64_t cuda_lt_sums_bytes(const cuda_lt_shape *s) {
  return (uint64_t)s->n * (uint64_t)s->ldd * sizeof(float);
}

int cuda_lt_sums_fit(const bs_op_query *q, cuda_lt_shape *s, bs_op_answer *out) {
  const uint64_t sums = cuda_lt_sums_bytes(s);
  if (q->workspace_limit == 0) return 1;
  if (sums > q->workspace_limit) {
    (void)cuda_answer_no(out, BS_REASON_WORKSPACE, "sums of %llu bytes, the limit is %llu",
                         (unsigned long long)sums, (unsigned long long)q->workspace_limit);
    return 0;
  }
  if (s->workspace > q->workspace_limit - sums) s->workspace = q->workspace_limit - sums;
  return 1;
}

int32_t cuda_lt_take_sums(cuda_lt_plan *plan, bs_error *err) {
  const bs_exec *exec = plan->plan.exec;
  const uint64_t bytes = cuda_lt_sums_bytes(&plan->ask.shape);
  plan->sums = exec->alloc(exec->ctx, bytes);
  if (plan->sums != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for sums of %llu bytes",
                 (unsigned long long)bytes);
}

bs_tensor cuda_lt_sums_of(const cuda_lt_plan *plan, int64_t rows) {
  const cuda_lt_shape *s = &plan->ask.shape;
  return (bs_tensor){.struct_size = (uint32_t)sizeof(bs_tensor),
                     .dtype = BS_F32,
                     .rank = 2,
                     .dims = {rows, s->m},
                     .strides = {s->ldd, 1},
                     .data = plan->sums};
}

int32_t cuda_lt_finish(const cuda_lt_plan *plan, bs_tensor *const *args, bs_stream *stream, bs_error *err) {
  const bs_tensor sums = cuda_lt_sums_of(plan, args[3]->dims[0]);
  cuda_view views[4] = {cuda_view_of(&sums), cuda_view_of(args[1]), cuda_view_of(args[2]),
                        cuda_view_of(args[3])};
  finish_product_args a = {.activation = plan->activation};
  cuda_walk_make(views, 4, 0, 4, 0, &a.walk);
  a.sums = views[0];
  a.bias = views[1];
  a.residual = views[2];
  a.out = views[3];
  return cuda_launch_items(plan->plan.device, CUDA_FINISH_PRODUCT, cuda_walk_threads(&a.walk),
                           cuda_stream(plan->plan.device, stream), &a, err);
}
