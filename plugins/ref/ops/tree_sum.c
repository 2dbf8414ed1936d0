/* SPDX-License-Identifier: MIT
 * tree_sum.c - out[b,n] = act(p0 + p1 + ..) rounded to out's dtype, over L blocks of N columns of the input,
 * taken in the order of attrs: neighbours are added, then the sums of neighbours, until one is left. Each sum
 * is rounded to f32, to f64 when either side is f64; integers are added modulo 2^64. Any strides. */
#include "../ref.h"

enum { CHUNK = 128, MAX_BLOCKS = 8 };

typedef struct tree_plan {
  ref_plan base;
  int64_t blocks;
  int64_t order[MAX_BLOCKS];
} tree_plan;

typedef struct tree {
  const tree_plan *plan;
  const ref_view *in;
  uint32_t compute; /* BS_F32, BS_F64 or BS_I64 */
} tree;

/* The number of blocks of the query's input; 0: not a valid input. */
static int64_t blocks_of(const bs_op_query *q) {
  const int64_t n = q->args[1]->dims[1], blocks = n > 0 ? q->args[0]->dims[1] / n : 1;
  if (blocks < 1 || blocks > MAX_BLOCKS || (blocks & (blocks - 1)) != 0) return 0;
  return q->args[0]->dims[1] == blocks * n ? blocks : 0;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 2 || !ref_arg_ok(q, 0, 2) || !ref_arg_ok(q, 1, 2))
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs two matrices of known dtypes");
  const bs_tensor_desc *in = q->args[0], *out = q->args[1];
  const int integers = in->dtype == out->dtype && (in->dtype == BS_I32 || in->dtype == BS_I64);
  if (in->dims[0] != out->dims[0] || blocks_of(q) == 0)
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "the input is 1, 2, 4 or 8 times the output");
  if (!integers && !(ref_is_float(in->dtype) && ref_is_float(out->dtype)))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "two floats, or i32 or i64 twice");
  if (q->activation > (integers ? (uint32_t)BS_ACT_RELU : (uint32_t)BS_ACT_GELU_TANH))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "activation %u of these dtypes", q->activation);
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  void *made = NULL;
  const int32_t rc = ref_plan_make(&ref_tree_sum, state, exec, q, sizeof(tree_plan), &made, err);
  if (rc != BS_OK) return rc;
  tree_plan *plan = made;
  plan->blocks = blocks_of(q);
  int given = 0;
  for (int64_t i = 0; i < plan->blocks; i++) given |= q->attrs[i] != 0;
  for (int64_t i = 0; i < plan->blocks; i++) plan->order[i] = given ? q->attrs[i] : i;
  *out_plan = plan;
  return BS_OK;
}

static void add(uint32_t compute, unsigned char *to, const unsigned char *from, int64_t n) {
  if (compute == BS_F32) {
    float *a = (float *)(void *)to;
    const float *b = (const float *)(const void *)from;
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
  } else if (compute == BS_F64) {
    double *a = (double *)(void *)to;
    const double *b = (const double *)(const void *)from;
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
  } else {
    uint64_t *a = (uint64_t *)(void *)to;
    const uint64_t *b = (const uint64_t *)(const void *)from;
    for (int64_t i = 0; i < n; i++) a[i] += b[i];
  }
}

static void apply(const tree *t, unsigned char *sums, int64_t n) {
  const uint32_t activation = t->plan->base.activation;
  if (activation == BS_ACT_NONE) return;
  for (int64_t i = 0; i < n; i++) {
    if (t->compute == BS_F32) {
      float *v = (float *)(void *)sums + i;
      *v = (float)ref_activation(activation, (double)*v);
    } else if (t->compute == BS_F64) {
      double *v = (double *)(void *)sums + i;
      *v = ref_activation(activation, *v);
    } else {
      int64_t *v = (int64_t *)(void *)sums + i;
      *v = *v < 0 ? 0 : *v;
    }
  }
}

/* An i32 output keeps the low 32 bits, as sums in 32 bits would. */
static int32_t store(const ref_rows *job, const tree *t, int64_t row, int64_t c, int64_t n,
                     const unsigned char *sums) {
  uint32_t low[CHUNK];
  if (job->out.dtype != BS_I32) return ref_store(job->host, &job->out, row, c, n, t->compute, sums);
  for (int64_t i = 0; i < n; i++) {
    uint64_t v;
    memcpy(&v, sums + i * 8, sizeof v);
    low[i] = (uint32_t)v;
  }
  return ref_store(job->host, &job->out, row, c, n, BS_I32, low);
}

static int32_t tree_part(const ref_rows *job, int64_t row, int64_t begin, int64_t end) {
  const tree *t = job->user;
  const tree_plan *plan = t->plan;
  const int64_t size = BS_DTYPE_BYTES(t->compute), step = CHUNK * size;
  _Alignas(64) unsigned char block[MAX_BLOCKS * CHUNK * 8] = {0};
  for (int64_t c = begin; c < end; c += CHUNK) {
    const int64_t n = end - c < CHUNK ? end - c : CHUNK;
    int32_t rc = BS_OK;
    for (int64_t i = 0; rc == BS_OK && i < plan->blocks; i++)
      rc = ref_load(job->host, t->in, row, NULL, plan->order[i] * job->out.cols + c, n, t->compute,
                    block + i * step);
    for (int64_t apart = 1; rc == BS_OK && apart < plan->blocks; apart *= 2)
      for (int64_t i = 0; i < plan->blocks; i += 2 * apart)
        add(t->compute, block + i * step, block + (i + apart) * step, n);
    if (rc != BS_OK) return rc;
    apply(t, block, n);
    rc = store(job, t, row, c, n, block);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const tree_plan *plan = opaque;
  const ref_view in = ref_view_of(args[0]), out = ref_view_of(args[1]);
  const tree t = {plan, &in, ref_compute_of(in.dtype, out.dtype)};
  /* Rows are walked over the output's columns: the blocks of the input are the tree's. */
  ref_rows rows = {plan->base.host, out, out, tree_part, &t, BS_OK};
  return ref_rows_run(&rows, plan->base.exec, err);
}

const bs_src_loc ref_tree_sum_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_tree_sum = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "tree_sum",
    .backend = "ref",
    .name = "portable",
    .summary = "adds a few blocks in the order of a binary tree",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
