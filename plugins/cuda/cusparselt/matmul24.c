/* SPDX-License-Identifier: MIT
 * matmul24.c - Y = act(X W^T) + residual of a 2:4 weight by cuSPARSELt, on sparse tensor cores. Its plans are
 * for one B: fewer rows than prepared, or pointers that are not aligned to 16 bytes, use this plugin's own
 * tiles. Weights that it has packed have no backward pass: each step would compress them again. */
#include "choose.h"

typedef struct splt_plan {
  cuda_plan plan;
  cuda_splt_product product;
  cuda_splt_shape shape;
  const cuda_splt_weight *weight;
  uint64_t offset;
  void *workspace;
  void *own;         /* a plan of our own tiles */
  uint32_t own_only; /* 1: cuSPARSELt does not multiply this */
  uint32_t reserved;
} splt_plan;

static uint32_t tolerance_of(const cuda_splt_shape *s) {
  if (s->compute == SPLT_COMPUTE_32I) return BS_TOL_EXACT;
  return s->in == SPLT_R_8F_E4M3 || s->in == SPLT_R_8F_E5M2 ? BS_TOL_ACC_LOW : BS_TOL_ACC_F32;
}

/* Plans of every B and every X share a weight: products that cuSPARSELt does not serve use this plugin's own
 * tiles, and the answer says so. */
static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out) {
  enum { SCORE = 800, EMULATED = 50, WHY = 120 };
  cuda_splt_shape s;
  char text[sizeof out->text];
  uint64_t offset = 0;
  const int32_t rc = cuda_matmul24.supports(state, q, out);
  if (rc != BS_OK || out->level == BS_LEVEL_NO)
    return rc; /* shapes and dtypes that no implementation
                * serves */
  const uint32_t tolerance = out->tolerance;
  if (!cuda_splt_weight_legal(state, q, out)) return BS_OK;
  if (cuda_splt_product_legal(q, &s, &offset, out))
    return cuda_answer(out, BS_LEVEL_NATIVE, SCORE, tolerance_of(&s), s.workspace, CUDA_SPLT,
                       "sparse tensor cores; fewer rows than prepared, pointers off 16 bytes: our own tiles");
  snprintf(text, sizeof text, "by our own tiles: %.*s", WHY, out->text);
  return cuda_answer(out, BS_LEVEL_EMULATED, EMULATED, tolerance, 0, "tiles", text);
}

/* ---- plans -------------------------------------------------------------------------------------- */

static void plan_free(void *opaque) {
  splt_plan *plan = opaque;
  if (plan == NULL) return;
  const bs_exec *exec = plan->plan.exec;
  cuda_splt_product_end(&plan->product);
  if (plan->workspace != NULL) exec->free(exec->ctx, plan->workspace);
  if (plan->own != NULL) cuda_matmul24.plan_free(plan->own);
  cuda_plan_free(plan);
}

static int32_t fill_library(splt_plan *plan, bs_error *err) {
  const bs_exec *exec = plan->plan.exec;
  const cuda_splt_opaque *handle = NULL;
  uint64_t bytes = 0;
  int32_t rc = cuda_splt_handle(plan->plan.device, &handle, err);
  if (rc == BS_OK)
    rc = cuda_splt_product_begin(plan->plan.state->splt, handle, &plan->shape, &plan->product, err);
  if (rc == BS_OK)
    rc = cuda_splt_choose(exec, &plan->product, &plan->shape, plan->weight->compressed, &bytes, err);
  if (rc != BS_OK || bytes == 0) return rc;
  plan->workspace = exec->alloc(exec->ctx, bytes);
  if (plan->workspace != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for a workspace of %llu bytes",
                 (unsigned long long)bytes);
}

static void leave_to_tiles(splt_plan *plan, const bs_error *why) {
  plan->own_only = 1;
  cuda_splt_note(plan->plan.exec, why);
}

static int32_t fill(splt_plan *plan, void *state, const bs_op_query *q, bs_error *err) {
  bs_op_answer answer;
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  plan->own_only =
      plan->weight->compressed == NULL || !cuda_splt_product_legal(q, &plan->shape, &plan->offset, &answer);
  int32_t rc = cuda_matmul24.prepare(state, plan->plan.exec, q, plan->weight->own, &plan->own, err);
  if (rc != BS_OK || plan->own_only) return rc;
  rc = fill_library(plan, &why);
  if (rc != BS_OK && cuda_splt_refused(&why)) {
    cuda_splt_product_end(&plan->product);
    leave_to_tiles(plan, &why);
    return BS_OK;
  }
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  void *made = NULL;
  if (packed == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-WEIGHT", "matmul24 needs a packed weight");
  int32_t rc = cuda_plan_new(&cuda_splt_matmul24, state, exec, q, sizeof(splt_plan), &made, err);
  if (rc != BS_OK) return rc;
  splt_plan *plan = made;
  plan->weight = packed;
  rc = fill(plan, state, q, err);
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* ---- running ------------------------------------------------------------------------------------ */

static int fits(const splt_plan *plan, const bs_tensor *x, const cuda_splt_operands *o) {
  const uintptr_t all = (uintptr_t)o->x | (uintptr_t)o->y | (uintptr_t)o->residual;
  return !plan->own_only && plan->weight->compressed != NULL && !plan->weight->zeros &&
         x->dims[0] == plan->shape.n && all % CUDA_SPLT_ALIGN == 0;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  splt_plan *plan = opaque;
  const cuda_splt_operands o = {.weight = plan->weight->compressed,
                                .x = (const char *)args[0]->data + plan->offset,
                                .residual = args[2] != NULL ? args[2]->data : NULL,
                                .y = args[3]->data,
                                .workspace = plan->workspace};
  if (args[0]->dims[0] == 0) return BS_OK;
  if (!fits(plan, args[0], &o)) return cuda_matmul24.run(plan->own, args, nargs, stream, err);
  const int32_t rc = cuda_enter(plan->plan.device, err);
  if (rc != BS_OK) return rc;
  const int status =
      cuda_splt_multiply(&plan->product, &plan->shape, &o, cuda_stream(plan->plan.device, stream));
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  const int32_t code = cuda_splt_check(plan->plan.state->splt, status, "cusparseLtMatmul", &why);
  if (cuda_splt_refuses(status)) {
    leave_to_tiles(plan, &why);
    return cuda_matmul24.run(plan->own, args, nargs, stream, err);
  }
  if (code != BS_OK && err != NULL) *err = why;
  return code;
}

const bs_op_impl cuda_splt_matmul24 = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul24",
    .backend = "cuda",
    .name = CUDA_SPLT,
    .summary = "cuSPARSELt on sparse tensor cores, with relu and residual in its epilogue",
    .supports = supports,
    .pack = cuda_splt_pack,
    .packed_update = cuda_splt_packed_update,
    .packed_read = cuda_splt_packed_read,
    .packed_free = cuda_splt_packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
