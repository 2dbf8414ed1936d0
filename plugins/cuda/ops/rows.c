/* SPDX-License-Identifier: MIT
 * rows.c - matmul@cuda/rows: products of at most 16 tokens by a kernel that reads the weight once, at the
 * speed of memory (rows.h). The weight is packed as for this plugin's own tiles. These serve the other
 * queries: more tokens, other pairs of dtypes, sums in f64, and token-wise bits. */
#include "rows.h"

#include "products.h"
#include "walk.h"

#define CUDA_ROWS "rows"

typedef struct rows_plan {
  cuda_plan plan;
  const cuda_packed *weight;
  void *own;        /* by our own tiles: refuses a weight that does not fit, and serves what rows do not */
  uint32_t by_rows; /* 0: only the plugin's own tiles */
  uint32_t activation;
  uint32_t picks;    /* 1: X has all columns */
  int64_t begin;     /* of a run */
  void *gather;      /* of a list: the plan that lays its columns side by side */
  bs_tensor columns; /* where to */
} rows_plan;

/* NULL, or what rows do not take. */
static const char *problem(const bs_op_query *q) {
  enum { EXACT = 131071 }; /* so many products of bytes cannot leave 32 bits */
  const bs_tensor_desc *x = q->args[0];
  const int bytes = x->dtype == BS_I8 && q->weight_dtype == BS_I8;
  const int floats = x->dtype == q->weight_dtype &&
                     (x->dtype == BS_F32 || x->dtype == BS_F16 || x->dtype == BS_BF16) &&
                     cuda_matmul_compute(q) == BS_F32;
  if (!bytes && !floats) return "X and weight must be f32, f16, bf16 or i8 alike, sums in f32";
  if (x->dims[0] > ROWS_TOKENS) return "more than 16 tokens";
  if (bytes && cuda_product_columns(q, 0) > EXACT)
    return "sums of so many products of bytes may leave 32 bits";
  if (x->dims[1] > 1 && x->strides[1] > 1) return "the columns of X are not adjacent";
  if (q->flags & BS_QUERY_TOKENWISE) return "token-wise bits for more than 16 tokens are those of the tiles";
  return NULL;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  enum { FEW = 850, SOME = 150, OTHERS = 40 };
  const int32_t rc = cuda_matmul_supports(state, q, out_answer);
  if (rc != BS_OK || out_answer->level == BS_LEVEL_NO) return rc;
  const uint32_t tolerance = out_answer->tolerance;
  const char *why = problem(q);
  char text[sizeof out_answer->text];
  if (why == NULL)
    return cuda_answer(out_answer, BS_LEVEL_NATIVE, q->args[0]->dims[0] <= ROWS_FEW ? FEW : SOME, tolerance,
                       0, CUDA_ROWS, "the weight is read once for all tokens");
  snprintf(text, sizeof text, "by our own tiles: %s", why);
  return cuda_answer(out_answer, BS_LEVEL_EMULATED, OTHERS, tolerance, 0, CUDA_TILES, text);
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  return cuda_packed_make(&cuda_rows, state, exec, query, weights, out_packed, out_bytes, err);
}

static void plan_free(void *opaque) {
  rows_plan *plan = opaque;
  if (plan == NULL) return;
  const bs_exec *exec = plan->plan.exec;
  if (plan->columns.data != NULL) exec->free(exec->ctx, plan->columns.data);
  if (plan->gather != NULL) cuda_gather_columns.plan_free(plan->gather);
  if (plan->own != NULL) cuda_matmul.plan_free(plan->own);
  cuda_plan_free(plan);
}

/* Room for the columns of a list, rows on 16 bytes. */
static int32_t prepare_gather(rows_plan *plan, const bs_op_query *q, bs_error *err) {
  const bs_exec *exec = plan->plan.exec;
  const bs_tensor_desc *x = q->args[0];
  const int64_t size = BS_DTYPE_BYTES(x->dtype), unit = 16 / size;
  bs_tensor_desc side = bs_desc_2d(x->dtype, x->dims[0], q->partition->count);
  side.strides[0] = (side.dims[1] + unit - 1) / unit * unit;
  const bs_tensor_desc *args[2] = {x, &side};
  const bs_op_query move = {.struct_size = (uint32_t)sizeof move,
                            .op = "gather_columns",
                            .nargs = 2,
                            .args = args,
                            .partition = q->partition};
  const int32_t rc = cuda_gather_columns.prepare(plan->plan.state, exec, &move, NULL, &plan->gather, err);
  if (rc != BS_OK) return rc;
  bs_tensor *t = &plan->columns;
  t->struct_size = (uint32_t)sizeof *t;
  t->dtype = side.dtype;
  t->rank = 2;
  memcpy(t->dims, side.dims, sizeof t->dims);
  memcpy(t->strides, side.strides, sizeof t->strides);
  t->bytes = (uint64_t)(side.dims[0] * side.strides[0] * size);
  t->data = exec->alloc(exec->ctx, t->bytes > 0 ? t->bytes : 1);
  if (t->data != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for %lld columns of %lld rows",
                 (long long)side.dims[1], (long long)side.dims[0]);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  void *made = NULL;
  int32_t rc = cuda_plan_new(&cuda_rows, state, exec, q, sizeof(rows_plan), &made, err);
  if (rc != BS_OK) return rc;
  rows_plan *plan = made;
  plan->weight = packed;
  plan->activation = q->activation;
  plan->by_rows = problem(q) == NULL;
  rc = cuda_matmul.prepare(state, exec, q, packed, &plan->own, err);
  if (rc == BS_OK && plan->by_rows && q->partition != NULL && (q->flags & BS_QUERY_X_FULL) != 0) {
    plan->picks = 1;
    plan->begin = q->partition->begin;
    if (q->partition->kind == BS_PARTITION_GATHER) rc = prepare_gather(plan, q, err);
  }
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* Warps that share four rows: as many as fill a large device, while each lane has two pieces. */
static uint32_t splits_of(int64_t rows, int64_t pieces) {
  enum { WARPS = 2048, LANES = 32 };
  const int64_t groups = (rows + ROWS_EACH - 1) / ROWS_EACH;
  int64_t splits = 1;
  while (splits < ROWS_WARPS && groups * splits < WARPS && pieces >= 2 * LANES * splits) splits *= 2;
  return (uint32_t)splits;
}

static int32_t launch(const rows_plan *plan, rows_args *a, CUstream stream, bs_error *err) {
  const cuda_device *device = plan->plan.device;
  const int64_t each = (int64_t)ROWS_EACH * ROWS_WARPS / a->splits, blocks = (a->p.cols + each - 1) / each;
  if (blocks > INT32_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "%lld outputs are more than a grid has blocks for",
                   (long long)a->p.cols);
  const cuda_shape shape = {(uint32_t)blocks, 1, 1, ROWS_THREADS, 0};
  const int few = a->p.rows <= ROWS_FEW, bytes = plan->weight->dtype == BS_I8;
  const uint32_t kernel =
      bytes ? (few ? CUDA_ROWS_I32_4 : CUDA_ROWS_I32_16) : (few ? CUDA_ROWS_F32_4 : CUDA_ROWS_F32_16);
  return cuda_launch(device, kernel, &shape, stream, a, err);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const rows_plan *plan = opaque;
  const cuda_packed *w = plan->weight;
  if (!plan->by_rows) return cuda_matmul.run(plan->own, args, nargs, stream, err);
  if (args[3]->dims[0] == 0 || w->rows == 0) return BS_OK;
  cuda_view x = cuda_view_of(args[0]);
  if (plan->gather != NULL) {
    bs_tensor side = plan->columns;
    side.dims[0] = args[0]->dims[0];
    const int32_t rc = cuda_gather_columns.run(plan->gather, (bs_tensor *[]){args[0], &side}, 2, stream, err);
    if (rc != BS_OK) return rc;
    x = cuda_view_of(&side);
  } else if (plan->picks) {
    x.data = (unsigned char *)x.data + plan->begin * x.size;
    x.cols = w->cols;
  }
  rows_args a;
  memset(&a, 0, sizeof a);
  a.p.a.at = x;
  a.p.a.wide = cuda_view_fits(&x, 16 / x.size);
  a.p.b.at = cuda_packed_view(w);
  a.p.bias = cuda_view_of(args[1]);
  a.p.residual = cuda_view_of(args[2]);
  a.p.c = cuda_view_of(args[3]);
  a.p.rows = a.p.c.rows;
  a.p.cols = w->rows;
  a.p.depth = w->cols;
  a.p.activation = plan->activation;
  a.pieces = (w->cols * w->size + 15) / 16;
  a.splits = splits_of(w->rows, a.pieces);
  return launch(plan, &a, cuda_stream(plan->plan.device, stream), err);
}

const bs_op_impl cuda_rows = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul",
    .backend = "cuda",
    .name = CUDA_ROWS,
    .summary = "few tokens: the weight is read once, at the speed of memory",
    .supports = supports,
    .pack = pack,
    .packed_update = cuda_packed_update,
    .packed_read = cuda_packed_read,
    .packed_free = cuda_packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
