/* SPDX-License-Identifier: MIT
 * take.c - out = the places of data that an index names: whole rows of an axis, single elements along it, or
 * what tuples of coordinates name. Bits are copied, of any dtype; the arithmetic is in take_body.h. */
#include "indexed.h"
#include "take_body.h"

typedef struct take_plan {
  cuda_plan plan;
  cuda_indexed how;
} take_plan;

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  if (!cuda_indexed_legal(query, 0, out_answer)) return BS_OK;
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_EXACT, 0, "units", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_take, state, exec, query, sizeof(take_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  take_plan *plan = *out_plan;
  plan->how = cuda_indexed_of(query, 0);
  plan->how.op = cuda_take.op;
  return BS_OK;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  const take_plan *plan = opaque;
  take_args walk;
  cuda_indexed_lay(&plan->how, args[0], args[1], args[2], NULL, &walk);
  const int32_t rc = cuda_indexed_check(&plan->how, &walk, err);
  if (rc != BS_OK) return rc;
  cuda_indexed_widen(&walk);
  return cuda_launch_items(plan->plan.device, CUDA_TAKE, walk.space.count,
                           cuda_stream(plan->plan.device, stream), &walk, err);
}

const bs_op_impl cuda_take = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "take",
    .backend = "cuda",
    .name = "kernels",
    .summary = "the places that an index names",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
