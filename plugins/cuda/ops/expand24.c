/* SPDX-License-Identifier: MIT
 * expand24.c - the kept values of a 2:4 matrix back at their places, zeros elsewhere. Any dtype, any strides;
 * the positions lie in device memory as long as the plan. */
#include "expand24_body.h"

#include "ops.h"

typedef struct expand_plan {
  cuda_plan plan;
  cuda_places places;
} expand_plan;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 2 || !cuda_arg_ok(q, 0, 2) || !cuda_arg_ok(q, 1, 2) ||
      q->args[0]->dtype != q->args[1]->dtype || q->args[0]->dims[0] != q->args[1]->dims[0] ||
      q->args[0]->dims[1] != 2 * ((q->args[1]->dims[1] + 3) / 4))
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "needs V [N,2 ceil(K/4)], out [N,K] of one dtype");
  if (!cuda_kept_ok(q, q->args[1]->dims[0], q->args[1]->dims[1], out_answer)) return BS_OK;
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_EXACT, 0, "groups", "a kernel of its own");
}

static void plan_free(void *opaque) {
  expand_plan *plan = opaque;
  if (plan == NULL) return;
  cuda_places_free(&plan->places);
  cuda_plan_free(plan);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  void *made = NULL;
  int32_t rc = cuda_plan_new(&cuda_expand24, state, exec, q, sizeof(expand_plan), &made, err);
  if (rc != BS_OK) return rc;
  expand_plan *plan = made;
  rc = cuda_places_make(exec, plan->plan.host, q->kept, &plan->places, err);
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* Rows of pieces of `count` elements. */
static int pieces(const cuda_view *v, uint32_t count) {
  return v->size * count <= 16 ? cuda_view_fits(v, count) : cuda_view_fits(v, 16 / v->size);
}

int32_t cuda_expand24_views(const cuda_device *device, const cuda_view *values, const cuda_places *places,
                            const cuda_view *out, CUstream stream, bs_error *err) {
  expand24_args args = {.values = *values, .out = *out, .codes = places->codes, .groups = places->groups};
  if (args.groups == 0) return BS_OK;
  args.items = args.out.rows * args.groups;
  args.by_groups = cuda_divisor_make(args.groups);
  args.whole = pieces(&args.values, 2) && pieces(&args.out, 4);
  return cuda_launch_items(device, CUDA_EXPAND24, args.items, stream, &args, err);
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const expand_plan *plan = opaque;
  const cuda_view values = cuda_view_of(tensors[0]), out = cuda_view_of(tensors[1]);
  return cuda_expand24_views(plan->plan.device, &values, &plan->places, &out,
                             cuda_stream(plan->plan.device, stream), err);
}

const bs_op_impl cuda_expand24 = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "expand24",
    .backend = "cuda",
    .name = "kernels",
    .summary = "four columns a thread",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
    .echo = cuda_echo_op,
};
