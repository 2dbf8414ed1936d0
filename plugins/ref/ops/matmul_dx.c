/* SPDX-License-Identifier: MIT
 * matmul_dx.c - dX = dY W over matmul's packed weight: dX[b,k] is the sum of dY[b,n] W[n,k], n ascending.
 * With X_FULL the partition's columns of a whole dX are written and no others. */
#include "matmul_grad.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 2 || !ref_grad_shapes(q, 1, 0))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs dY [B,N], dX [B,K]");
  return ref_grad_answer(q, q->args[0]->dtype, q->weight_dtype, q->args[1]->dtype, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  ref_grad_plan *plan = NULL;
  if (packed == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT", "matmul_dx needs a packed weight");
  const uint32_t compute = ref_grad_compute(q, q->args[0]->dtype, q->weight_dtype, q->args[1]->dtype);
  const int32_t rc = ref_grad_prepare(&ref_matmul_dx, state, exec, q, compute, 1, 0, packed, &plan, err);
  *out_plan = plan;
  return rc;
}

/* Sum c of a full dX belongs to column plan->columns[j + c]. */
static int32_t finish(const ref_grad_job *job, int64_t i, int64_t j, int64_t n, unsigned char *sums) {
  const ref_grad_plan *plan = job->plan;
  if (!plan->full) return ref_grad_store(job, i, j, n, sums);
  int32_t rc = BS_OK;
  for (int64_t c = 0; c < n && rc == BS_OK; c++)
    rc = ref_grad_store(job, i, ref_column(&plan->columns, j + c), 1,
                        sums + c * (int64_t)BS_DTYPE_BYTES(plan->compute));
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_grad_plan *plan = opaque;
  const ref_packed *w = plan->weight;
  ref_grad_job job;
  memset(&job, 0, sizeof job);
  job.plan = plan;
  job.left = ref_view_of(args[0]);
  job.right = (ref_view){w->data, w->dtype, w->size, w->rows, w->cols, w->cols, 1};
  job.out = ref_view_of(args[1]);
  job.rows = job.left.rows;
  job.cols = w->cols;
  job.depth = w->rows;
  job.finish = finish;
  return ref_grad_run(&job, err);
}

const bs_src_loc ref_matmul_dx_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_matmul_dx = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul_dx",
    .backend = "ref",
    .name = "portable",
    .summary = "tiles in portable C, sums in order of the outputs",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_grad_plan_free,
};
