/* SPDX-License-Identifier: MIT
 * topk.c - the k largest (falling) or smallest (rising) values of each line along an axis, and their places.
 * A block a line; the arithmetic is in topk_body.h. */
#include "ops.h"
#include "topk_body.h"

enum { IN, VALUES, INDICES, ARGS };

typedef struct topk_plan {
  cuda_plan plan;
  uint32_t axis, smallest;
  uint32_t shared; /* bytes, of the line that was prepared */
} topk_plan;

static int is_integer(uint32_t dtype) {
  return cuda_is_integer(dtype) || dtype == BS_BOOL;
}

static int64_t most_of(uint32_t dtype) {
  return BS_DTYPE_BYTES(dtype) > 4 ? TOPK_WIDE : TOPK_MOST;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != ARGS || q->args == NULL || q->args[IN] == NULL || q->attrs[0] < 0 ||
      q->attrs[0] >= (int64_t)q->args[IN]->rank)
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs an input with the axis, and two outputs");
  const bs_tensor_desc *in = q->args[IN];
  for (uint32_t i = 0; i < ARGS; i++)
    if (in->rank > BS_MAX_DIMS || !cuda_arg_ok(q, i, in->rank))
      return cuda_answer_no(out_answer, BS_REASON_RANK, "needs three tensors of one rank, of known dtypes");
  const uint32_t indices = q->args[INDICES]->dtype;
  if (q->args[VALUES]->dtype != in->dtype || (indices != BS_I32 && indices != BS_I64))
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "values are of the input's dtype, indices i32 or i64");
  if (in->dims[q->attrs[0]] > most_of(in->dtype))
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "lines of %lld values: at most %d",
                          (long long)in->dims[q->attrs[0]], (int)most_of(in->dtype));
  if (q->args[VALUES]->dims[q->attrs[0]] > in->dims[q->attrs[0]])
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "more values than a line has");
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_EXACT, 0, "bitonic", "a kernel of its own");
}

static uint32_t words_of(int64_t n) {
  uint32_t words = 1;
  while (words < n && words < TOPK_MOST) words *= 2;
  return words;
}

static uint32_t shared_of(uint32_t words, uint32_t dtype) {
  return words * (BS_DTYPE_BYTES(dtype) > 4 ? 12 : 8);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_topk, state, exec, query, sizeof(topk_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  topk_plan *plan = *out_plan;
  plan->axis = (uint32_t)query->attrs[0];
  plan->smallest = query->attrs[1] != 0;
  const bs_tensor_desc *in = query->args[IN];
  plan->shared = shared_of(words_of(in->dims[plan->axis]), in->dtype);
  return BS_OK;
}

static void lay(const topk_plan *plan, bs_tensor *const *args, topk_args *a) {
  const bs_tensor *in = args[IN];
  cuda_spread v[ARGS];
  int64_t dims[BS_MAX_DIMS];
  memset(a, 0, sizeof *a);
  memcpy(dims, in->dims, sizeof dims);
  dims[plan->axis] = 1; /* a line is a place of the space */
  for (uint32_t i = 0; i < ARGS; i++) v[i] = cuda_spread_of(args[i], in->rank, dims);
  cuda_space_make(in->rank, dims, 0, v, ARGS, &a->lines);
  a->in = v[IN];
  a->values = v[VALUES];
  a->indices = v[INDICES];
  a->in_along = in->strides[plan->axis];
  a->values_along = args[VALUES]->strides[plan->axis];
  a->indices_along = args[INDICES]->strides[plan->axis];
  a->n = (uint32_t)in->dims[plan->axis];
  a->k = (uint32_t)args[VALUES]->dims[plan->axis];
  a->words = words_of(a->n);
  a->smallest = plan->smallest;
  a->floats = !is_integer(in->dtype);
  a->wide = BS_DTYPE_BYTES(in->dtype) > 4;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  const topk_plan *plan = opaque;
  topk_args a;
  lay(plan, args, &a);
  if (a.k == 0 || a.lines.count == 0) return BS_OK;
  if (a.lines.count > INT32_MAX || args[IN]->dims[plan->axis] > most_of(a.in.dtype))
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "%lld lines of %lld values are more than a grid has",
                   (long long)a.lines.count, (long long)args[IN]->dims[plan->axis]);
  uint32_t threads = 32;
  while (threads < a.words / 2 && threads < TOPK_THREADS) threads *= 2;
  const cuda_shape shape = {(uint32_t)a.lines.count, 1, 1, threads, shared_of(a.words, a.in.dtype)};
  return cuda_launch(plan->plan.device, CUDA_TOPK, &shape, cuda_stream(plan->plan.device, stream), &a, err);
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const topk_plan *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  cuda_echo_kernel(plan->plan.device, CUDA_TOPK, plan->shared, &mine);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

const bs_op_impl cuda_topk = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "topk",
    .backend = "cuda",
    .name = "kernels",
    .summary = "the largest or smallest values of lines",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = echo,
};
