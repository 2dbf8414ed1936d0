/* SPDX-License-Identifier: MIT
 * convert.c - out[b,n] = in[b,n] rounded to out's dtype (docs/numbers.md). Any pair of dtypes, any strides;
 * the arithmetic is in convert_body.h. */
#include "convert.h"

#include "convert_body.h"

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  if (query->nargs != 2 || !cuda_arg_ok(query, 0, 2) || !cuda_arg_ok(query, 1, 2))
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs two matrices of known dtypes");
  if (query->args[0]->dims[0] != query->args[1]->dims[0] ||
      query->args[0]->dims[1] != query->args[1]->dims[1])
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "input and output differ in shape");
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_EXACT, 0, "vectors", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  return cuda_plan_new(&cuda_convert, state, exec, query, sizeof(cuda_plan), out_plan, err);
}

uint32_t cuda_convert_by(uint32_t from, uint32_t to) {
  if (from == to) return CUDA_BY_COPY;
  if (!cuda_is_float(from)) return CUDA_BY_I64;
  return from == BS_F64 ? CUDA_BY_F64 : CUDA_BY_F32;
}

int32_t cuda_convert_views(const cuda_device *device, const cuda_view *in, const cuda_view *out,
                           CUstream stream, bs_error *err) {
  cuda_view views[2] = {*in, *out};
  convert_args args = {.by = cuda_convert_by(in->dtype, out->dtype)};
  cuda_walk_make(views, 2, 1, args.by == CUDA_BY_I64 ? 4 : CUDA_WALK_WIDTH, 0, &args.walk);
  args.in = views[0];
  args.out = views[1];
  return cuda_launch_items(device, CUDA_CONVERT, cuda_walk_threads(&args.walk), stream, &args, err);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  const cuda_plan *plan = opaque;
  const cuda_view in = cuda_view_of(args[0]), out = cuda_view_of(args[1]);
  return cuda_convert_views(plan->device, &in, &out, cuda_stream(plan->device, stream), err);
}

const bs_op_impl cuda_convert = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "convert",
    .backend = "cuda",
    .name = "kernels",
    .summary = "rounds to another dtype",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
