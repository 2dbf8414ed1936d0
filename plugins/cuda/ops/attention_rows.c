/* SPDX-License-Identifier: MIT
 * attention_rows.c - attention by a warp a query, sums in f32: every float but f64, in any mixture and
 * layout. What one query gives hangs on nothing but that query and its keys. */
#include <math.h>

#include "attention.h"

enum { MOST_Z = 65535 };

static const char *const names[CUDA_ATTEND_ARGS] = {"Q", "K", "V", "mask", "kv_len", "descale", "Y", "LSE"};

static int is_served(uint32_t i, uint32_t dtype) {
  if (i == CUDA_ATTEND_LENGTHS) return dtype == BS_I32;
  if (i == CUDA_ATTEND_DESCALE || i == CUDA_ATTEND_LSE) return dtype == BS_F32;
  return (cuda_is_float(dtype) && dtype != BS_F64) || (i == CUDA_ATTEND_MASK && dtype == BS_BOOL);
}

static int sizes_legal(const bs_op_query *q, bs_op_answer *out) {
  const int64_t *x = q->args[CUDA_ATTEND_Q]->dims, T = q->args[CUDA_ATTEND_K]->dims[2];
  const int64_t D = x[3], E = q->args[CUDA_ATTEND_V]->dims[3];
  if (D > ATTENTION_MOST || E > ATTENTION_MOST) {
    (void)cuda_answer_no(out, BS_REASON_SHAPE, "rows of %lld and %lld elements: at most %d", (long long)D,
                         (long long)E, ATTENTION_MOST);
    return 0;
  }
  if (x[0] <= MOST_Z && x[1] <= MOST_Z && x[2] < INT32_MAX - 256 && T < INT32_MAX - 256) return 1;
  (void)cuda_answer_no(out, BS_REASON_SHAPE,
                       "%lld sequences, %lld heads: at most %d; queries and keys below 2^31", (long long)x[0],
                       (long long)x[1], MOST_Z);
  return 0;
}

int cuda_attend_legal(const bs_op_query *q, bs_op_answer *out) {
  static const uint32_t ranks[CUDA_ATTEND_ARGS] = {4, 4, 4, 4, 1, 1, 4, 3};
  if (q->nargs != CUDA_ATTEND_ARGS) {
    (void)cuda_answer_no(out, BS_REASON_RANK, "needs eight arguments");
    return 0;
  }
  for (uint32_t i = 0; i < CUDA_ATTEND_ARGS; i++) {
    const int optional = i >= CUDA_ATTEND_MASK && i != CUDA_ATTEND_Y;
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL && optional) continue;
    if (d == NULL || !cuda_arg_ok(q, i, ranks[i])) {
      (void)cuda_answer_no(out, BS_REASON_RANK, "%s: %u dimensions of a known dtype", names[i], ranks[i]);
      return 0;
    }
    if (!is_served(i, d->dtype)) {
      (void)cuda_answer_no(out, BS_REASON_DTYPE, "%s of dtype 0x%04x", names[i], d->dtype);
      return 0;
    }
  }
  if (q->accumulate == BS_ACC_F64) {
    (void)cuda_answer_no(out, BS_REASON_DTYPE, "sums are in f32; ref has f64");
    return 0;
  }
  return sizes_legal(q, out);
}

cuda_attend cuda_attend_of(const bs_op_query *q) {
  const cuda_attend of = {q->numbers[0], q->numbers[1], q->attrs[0], q->attrs[1], q->attrs[2], q->attrs[3]};
  return of;
}

int64_t cuda_attend_stride(const bs_tensor_desc *d, uint32_t dim) {
  int64_t step = 1;
  int given = 0;
  if (d->dims[dim] <= 1) return dim + 1 == d->rank ? 1 : 0;
  for (uint32_t i = 0; i < d->rank; i++) given |= d->strides[i] != 0;
  if (given) return d->strides[dim];
  for (uint32_t i = dim + 1; i < d->rank; i++) step *= d->dims[i];
  return step;
}

/* ---- a run --------------------------------------------------------------------------------------- */

static attention_view view_of(const bs_tensor *t) {
  attention_view v = {.data = NULL};
  if (t == NULL) return v;
  v.data = t->data;
  v.dtype = t->dtype;
  v.size = BS_DTYPE_BYTES(t->dtype);
  for (uint32_t i = 0; i < t->rank; i++)
    v.strides[i] = t->dims[i] == 1 ? i == 3 && t->dims[3] == 1 : t->strides[i];
  return v;
}

static int32_t window(int64_t n) {
  return n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

/* Rows that begin on four elements, as those of `v` are read. */
static int by_four(const attention_view *v) {
  const int64_t all = v->strides[0] | v->strides[1] | v->strides[2];
  return v->strides[3] == 1 && all % 4 == 0 && (uintptr_t)v->data % (4 * (uintptr_t)v->size) == 0;
}

void cuda_attend_args(const cuda_attend *of, bs_tensor *const *t, attention_args *out) {
  const int64_t *q = t[CUDA_ATTEND_Q]->dims, *k = t[CUDA_ATTEND_K]->dims;
  const bs_tensor *lengths = t[CUDA_ATTEND_LENGTHS], *descale = t[CUDA_ATTEND_DESCALE];
  memset(out, 0, sizeof *out);
  out->q = view_of(t[CUDA_ATTEND_Q]);
  out->k = view_of(t[CUDA_ATTEND_K]);
  out->v = view_of(t[CUDA_ATTEND_V]);
  out->mask = view_of(t[CUDA_ATTEND_MASK]);
  out->y = view_of(t[CUDA_ATTEND_Y]);
  out->lse = view_of(t[CUDA_ATTEND_LSE]);
  if (t[CUDA_ATTEND_MASK] != NULL && t[CUDA_ATTEND_MASK]->dims[3] == 1) out->mask.strides[3] = 0;
  out->lengths = lengths != NULL ? lengths->data : NULL;
  out->lengths_step = lengths != NULL && lengths->dims[0] > 1 ? lengths->strides[0] : 0;
  out->descale = descale != NULL ? descale->data : NULL;
  out->descale_step = descale != NULL ? descale->strides[0] : 0;
  out->B = (uint32_t)q[0];
  out->H = (uint32_t)q[1];
  out->repeat = k[1] > 0 ? (uint32_t)(q[1] / k[1]) : 1;
  out->S = (int32_t)q[2];
  out->T = (int32_t)k[2];
  out->D = (int32_t)q[3];
  out->E = (int32_t)t[CUDA_ATTEND_V]->dims[3];
  out->left = window(of->left);
  out->right = window(of->right);
  out->causal = (uint32_t)of->causal;
  out->scale = (float)of->scale;
  out->softcap = (float)of->softcap;
  out->nan_gives_0 = of->nan_gives_0 != 0;
  out->pieces = out->D % 4 == 0 && by_four(&out->q) && by_four(&out->k);
  out->splits = 1;
}

int32_t cuda_attend_rows(const cuda_device *device, attention_args *a, CUstream stream, bs_error *err) {
  const cuda_shape shape = {((uint32_t)a->S + ATTENTION_ROWS_WARPS - 1) / ATTENTION_ROWS_WARPS, a->H, a->B,
                            ATTENTION_ROWS_THREADS, 0};
  return cuda_launch(device, CUDA_ATTENTION_ROWS, &shape, stream, a, err);
}

/* ---- the implementation -------------------------------------------------------------------------- */

typedef struct rows_plan {
  cuda_plan plan;
  cuda_attend of;
} rows_plan;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out) {
  (void)state;
  if (!cuda_attend_legal(q, out)) return BS_OK;
  return cuda_answer(out, BS_LEVEL_NATIVE, 600, BS_TOL_ACC_F32, 0, "rows", "a warp a query, sums in f32");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_attention_rows, state, exec, q, sizeof(rows_plan), out_plan, err);
  if (rc == BS_OK) ((rows_plan *)*out_plan)->of = cuda_attend_of(q);
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  const rows_plan *plan = opaque;
  attention_args args;
  (void)nargs;
  cuda_attend_args(&plan->of, tensors, &args);
  return cuda_attend_rows(plan->plan.device, &args, cuda_stream(plan->plan.device, stream), err);
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const rows_plan *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  cuda_echo_kernel(plan->plan.device, CUDA_ATTENTION_ROWS, 0, &mine);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

const bs_op_impl cuda_attention_rows = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "attention",
    .backend = "cuda",
    .name = "rows",
    .summary = "softmax(Q K^T) V, a warp a query, sums in f32",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = echo,
};
