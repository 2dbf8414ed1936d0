/* SPDX-License-Identifier: MIT
 * update.c - see update.h. */
#include "update.h"

int cuda_update_fits(const bs_op_query *q, uint32_t states, int optional, bs_op_answer *out_answer) {
  if (q->nargs != states + 2 || !cuda_arg_ok(q, 0, 2) || !cuda_arg_ok(q, states + 1, 1)) {
    cuda_answer_no(out_answer, BS_REASON_SHAPE, "needs dW [N,K], %u states and hyper", states);
    return 0;
  }
  const bs_tensor_desc *dw = q->args[0];
  for (uint32_t i = 1; i <= states; i++) {
    if (q->args[i] == NULL && optional) continue;
    if (!cuda_arg_ok(q, i, 2) || q->args[i]->dims[0] != dw->dims[0] || q->args[i]->dims[1] != dw->dims[1] ||
        q->args[i]->dtype != BS_F32) {
      cuda_answer_no(out_answer, BS_REASON_SHAPE, "arg %u is no f32 matrix of dW's shape", i);
      return 0;
    }
  }
  if (cuda_is_float(q->weight_dtype) && (dw->dtype == BS_F32 || dw->dtype == BS_F64) &&
      q->args[states + 1]->dtype == BS_F32)
    return 1;
  cuda_answer_no(out_answer, BS_REASON_DTYPE, "needs a float weight, dW of f32 or f64 and f32 numbers");
  return 0;
}

int32_t cuda_update_prepare(const bs_op_impl *impl, void *state, const bs_exec *exec, const bs_op_query *q,
                            void *packed, void **out_plan, bs_error *err) {
  const cuda_packed *weight = packed;
  void *made = NULL;
  if (weight == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-WEIGHT", "%s needs a packed weight", impl->op);
  const int32_t rc = cuda_plan_new(impl, state, exec, q, sizeof(cuda_update_plan), &made, err);
  if (rc != BS_OK) return rc;
  if (weight->rows != q->args[0]->dims[0] || weight->cols != q->args[0]->dims[1]) {
    cuda_plan_free(made);
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-WEIGHT",
                   "%s: dW is [%lld,%lld], the weight [%lld,%lld]", impl->op, (long long)q->args[0]->dims[0],
                   (long long)q->args[0]->dims[1], (long long)weight->rows, (long long)weight->cols);
  }
  cuda_update_plan *plan = made;
  plan->weight = weight;
  *out_plan = plan;
  return BS_OK;
}

void cuda_update_lay(const cuda_update_plan *plan, cuda_view *views, uint32_t count, cuda_walk *out_walk,
                     cuda_beyond *out_beyond) {
  const cuda_places *places = plan->weight->places;
  views[count - 1] = cuda_packed_view(plan->weight);
  memset(out_beyond, 0, sizeof *out_beyond);
  if (places != NULL && places->cols % 4 != 0) {
    out_beyond->codes = places->codes;
    out_beyond->groups = places->groups;
    out_beyond->cols = places->cols;
  }
  /* Rows and columns keep their meaning where a value's place is asked for. */
  cuda_walk_make(views, count, out_beyond->codes == NULL, 4, 0, out_walk);
}
