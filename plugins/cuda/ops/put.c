/* SPDX-License-Identifier: MIT
 * put.c - out = base with updates at the places that an index names: set, or combined with what is there.
 * Base is copied by the kernel of take, unless out is its memory. The arithmetic is in put_set_body.h and
 * put_fold_body.h. */
#include "indexed.h"
#include "put_body.h"

enum { BASE, INDEX, UPDATES, OUT };

typedef struct put_plan {
  cuda_plan plan;
  cuda_indexed how;
  uint32_t fold; /* enum bs_put */
} put_plan;

/* Positions that may name one place: the updates' dims that the index replaces. Above PUT_POSITIONS the
 * number is not exact. */
static int64_t positions(const bs_op_query *q) {
  const bs_tensor_desc *index = q->args[INDEX];
  int64_t n = 1;
  if (q->attrs[0] == BS_INDEX_ELEMENTS) return index->dims[q->attrs[1]];
  if (q->attrs[0] == BS_INDEX_ROWS) return index->dims[index->rank - 1];
  for (uint32_t d = 0; d + 1 < index->rank; d++) {
    const int64_t dim = index->dims[d] > PUT_POSITIONS ? PUT_POSITIONS + 1 : index->dims[d];
    if (n <= PUT_POSITIONS || dim == 0) n *= dim;
  }
  return n;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (!cuda_indexed_legal(q, 1, out_answer)) return BS_OK;
  if (q->attrs[2] != 0 || q->attrs[3] < BS_PUT_SET || q->attrs[3] > BS_PUT_MIN)
    return cuda_answer_no(out_answer, BS_REASON_NOT_BUILT, "put %lld", (long long)q->attrs[3]);
  if (q->attrs[3] != BS_PUT_SET && q->args[BASE]->dtype == BS_BOOL)
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "bool can only be set");
  if (positions(q) > PUT_POSITIONS)
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "more than %d positions to search", PUT_POSITIONS);
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_EXACT, 0,
                     q->attrs[3] == BS_PUT_SET ? "set" : "fold", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_put_op, state, exec, query, sizeof(put_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  put_plan *plan = *out_plan;
  plan->how = cuda_indexed_of(query, 1);
  plan->how.op = cuda_put_op.op;
  plan->fold = (uint32_t)query->attrs[3];
  return BS_OK;
}

/* The numbers of positions, and where each of them lies in the index and in the updates. */
static void lay_order(const cuda_indexed *how, const bs_tensor *index, const bs_tensor *updates,
                      put_args *a) {
  cuda_spread v[2];
  int64_t dims[CUDA_SPACE_DIMS] = {0}, number = 1;
  uint32_t first = 0;
  const uint32_t n = cuda_indexed_run(how, index, &first);
  memset(v, 0, sizeof v);
  v[0].data = index->data;
  v[1].data = updates->data;
  for (uint32_t d = n; d-- > 0; number *= dims[d]) {
    dims[d] = updates->dims[first + d];
    v[0].strides[d] = index->strides[how->kind == BS_INDEX_ROWS ? index->rank - 1 : first + d];
    v[1].strides[d] = updates->strides[first + d];
    a->position.strides[first + d] = number;
  }
  a->position.data = updates->data; /* not read: it only is there */
  cuda_space_make(n, dims, 0, v, 2, &a->order);
  a->order_index = v[0];
  a->order_small = v[1];
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *opaque_stream,
                   bs_error *err) {
  (void)nargs;
  const put_plan *plan = opaque;
  const cuda_device *device = plan->plan.device;
  CUstream stream = cuda_stream(device, opaque_stream);
  put_args walk;
  memset(&walk, 0, sizeof walk);
  lay_order(&plan->how, args[INDEX], args[UPDATES], &walk);
  cuda_indexed_lay(&plan->how, args[OUT], args[INDEX], args[UPDATES], &walk.position, &walk.in);
  int32_t rc = cuda_indexed_check(&plan->how, &walk.in, err);
  if (rc == BS_OK && args[BASE]->data != args[OUT]->data)
    rc = cuda_indexed_copy_all(device, args[BASE], args[OUT], stream, err);
  if (rc != BS_OK) return rc;
  walk.how = plan->fold;
  if (plan->fold == BS_PUT_SET) cuda_indexed_widen(&walk.in);
  return cuda_launch_items(device, plan->fold == BS_PUT_SET ? CUDA_PUT_SET : CUDA_PUT_FOLD,
                           walk.in.space.count, stream, &walk, err);
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const put_plan *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  cuda_echo_kernel(plan->plan.device, plan->fold == BS_PUT_SET ? CUDA_PUT_SET : CUDA_PUT_FOLD, 0, &mine);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

const bs_op_impl cuda_put_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "put",
    .backend = "cuda",
    .name = "kernels",
    .summary = "writes updates to the places that an index names",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = echo,
};
