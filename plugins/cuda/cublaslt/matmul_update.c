/* SPDX-License-Identifier: MIT
 * matmul_update.c - W += alpha dY^T X by cuBLASLt, the packed weight being its C and its D: alpha times the
 * sum and the weight are added in the type of the sums, and rounded once to the weight's. alpha is read where
 * it lies, in device memory, and so must beta be. */
#include "../ops/convert.h"
#include "../ops/products.h"
#include "gradient.h"

enum { ALPHA_AT = 8, SCALARS = 16 }; /* bytes: beta first, alpha where it is made f64 */

static int ask_of(cuda_state *state, const bs_op_query *q, cuda_lt_ask *ask, bs_op_answer *out) {
  cuda_lt_shape *s = &ask->shape;
  if (!cuda_lt_gradient(state, q, q->weight_dtype, ask, out)) return 0;
  const uint64_t size = BS_DTYPE_BYTES(q->weight_dtype);
  s->ldc = s->ldd = (int64_t)(((uint64_t)s->m * size + 15) / 16 * 16 / size);
  s->align_c = s->align_d = 16;
  s->adds = 1;
  s->scalars = 1;
  return 1;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  cuda_lt_ask ask;
  const int32_t rc = cuda_matmul_update.supports(state, q, out_answer);
  if (rc != BS_OK || out_answer->level == BS_LEVEL_NO) return rc;
  const bs_op_answer tiles = *out_answer;
  if (ask_of(state, q, &ask, out_answer)) return cuda_lt_yes(q, &ask.shape, out_answer);
  return cuda_lt_emulated(state, &tiles, out_answer);
}

static int32_t make_scalars(cuda_lt_plan *plan, bs_error *err) {
  const float one = 1.0f;
  const double wide_one = 1.0;
  const cuda_device *device = plan->plan.device;
  const int wide = plan->ask.shape.scale == CUDA_R_64F;
  plan->scalars = plan->plan.exec->alloc(plan->plan.exec->ctx, SCALARS);
  if (plan->scalars == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for beta");
  const int32_t rc = cuda_upload(device, plan->scalars, wide ? (const void *)&wide_one : (const void *)&one,
                                 wide ? sizeof wide_one : sizeof one, device->stream, err);
  return rc == BS_OK ? cuda_wait(device, device->stream, err) : rc;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  bs_op_answer answer;
  cuda_lt_ask ask;
  cuda_lt_plan *plan = NULL;
  int32_t rc = cuda_require(&cuda_lt_matmul_update, state, q, err);
  if (rc != BS_OK) return rc;
  const int served = ask_of(state, q, &ask, &answer);
  rc = cuda_lt_prepare(&cuda_lt_matmul_update, &cuda_matmul_update, &cuda_gather_columns, 0, state, exec, q,
                       packed, served ? &ask : NULL, &plan, err);
  if (rc == BS_OK && served) rc = make_scalars(plan, err);
  if (rc != BS_OK) {
    cuda_lt_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* Widens alpha to f64 and stores it next to beta. */
static int32_t widen(const cuda_lt_plan *plan, const bs_tensor *alpha, CUstream stream, bs_error *err) {
  const cuda_view from = cuda_view_of(alpha);
  cuda_view to = from;
  to.data = (char *)plan->scalars + ALPHA_AT;
  to.dtype = BS_F64;
  to.size = BS_DTYPE_BYTES(BS_F64);
  return cuda_convert_views(plan->plan.device, &from, &to, stream, err);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_lt_plan *plan = opaque;
  const CUstream native = cuda_stream(plan->plan.device, stream);
  cuda_lt_shape shape;
  cuda_lt_operands o;
  int refused = 0;
  if (plan->own_only) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  int32_t rc = cuda_lt_gradient_begin(plan, args, stream, &shape, &o, err);
  if (rc != BS_OK || shape.k == 0) return rc;
  o.c = o.d = plan->weight->data;
  o.alpha = args[2]->data;
  o.beta = plan->scalars;
  if (!cuda_lt_fits(&shape, &o)) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  if (shape.scale == CUDA_R_64F) {
    rc = widen(plan, args[2], native, err);
    o.alpha = (const char *)plan->scalars + ALPHA_AT;
  }
  if (rc == BS_OK) rc = cuda_lt_run(plan, &shape, &o, native, &refused, err);
  return refused ? plan->own_impl->run(plan->own, args, nargs, stream, err) : rc;
}

const bs_op_impl cuda_lt_matmul_update = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul_update",
    .backend = "cuda",
    .name = CUDA_LT,
    .summary = "cuBLASLt, into the packed weight",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_lt_plan_free,
};
