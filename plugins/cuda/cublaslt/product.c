/* SPDX-License-Identifier: MIT
 * product.c - see product.h. */
#include "product.h"

#include <stdint.h>

enum { MOST = INT32_MAX };

/* ---- answers ------------------------------------------------------------------------------------ */

int cuda_lt_ready(cuda_state *state, const bs_op_query *q, bs_op_answer *out) {
  const cuda_lt *lt = cuda_lt_open(state);
  if (!lt->usable) {
    (void)cuda_answer_no(out, lt->reason, "%s", lt->text);
    return 0;
  }
  if (q->flags & BS_QUERY_TOKENWISE) {
    (void)cuda_answer_no(out, BS_REASON_DISABLED, "%s: its kernels depend on B: not token by token",
                         lt->text);
    return 0;
  }
  return 1;
}

static int dense(const bs_tensor_desc *d) {
  return d->strides[0] == 0 && d->strides[1] == 0;
}

int cuda_lt_matrix_of(const bs_op_query *q, uint32_t i, int picked, cuda_lt_matrix *out, int *out_list,
                      bs_op_answer *answer) {
  enum { ALONE = 16 }; /* a single row has no stride: take one that suits every alignment */
  const bs_tensor_desc *d = q->args[i];
  const bs_partition *p = picked && (q->flags & BS_QUERY_X_FULL) ? q->partition : NULL;
  const uint64_t size = BS_DTYPE_BYTES(d->dtype);
  *out_list = 0;
  *out = (cuda_lt_matrix){d->dims[0], d->dims[1], dense(d) ? d->dims[1] : d->strides[0], d->dtype, 0};
  if (p != NULL && p->kind == BS_PARTITION_GATHER) {
    *out_list = 1;
    out->cols = p->count;
    out->line = (int64_t)(((uint64_t)p->count * size + 15) / 16 * 16 / size);
    return 1;
  }
  const int along = dense(d) || d->dims[1] <= 1 || d->strides[1] == 1;
  if (d->dims[0] <= 1) out->line = (d->dims[1] + ALONE - 1) / ALONE * ALONE;
  if (!along || out->line < d->dims[1] || out->line > MOST) {
    (void)cuda_answer_no(
        answer, BS_REASON_LAYOUT, "arg %u [%lld,%lld] has strides %lld, %lld: rows must be dense", i,
        (long long)d->dims[0], (long long)d->dims[1], (long long)d->strides[0], (long long)d->strides[1]);
    return 0;
  }
  if (p == NULL) return 1;
  out->cols = p->count;
  out->offset = (uint64_t)p->begin * size;
  return 1;
}

typedef struct row {
  uint32_t in, out; /* enum bs_dtype */
  uint32_t a, d, bias, compute, scale;
} row;
/* The dtypes of products whose operands have the same one. */
static const row rows[] = {
    {BS_F64, BS_F64, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F},
    {BS_F32, BS_F32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {BS_F16, BS_F16, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {BS_F16, BS_F32, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {BS_BF16, BS_BF16, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {BS_BF16, BS_F32, CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {BS_I8, BS_I32, CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I},
};

static int is_f8(uint32_t dtype) {
  return dtype == BS_F8E4M3 || dtype == BS_F8E5M2;
}

/* fp8: the bias of an f16 output is f16, of all others bf16; outputs of a byte would need scales. */
static int f8_types(uint32_t a, uint32_t b, uint32_t d, cuda_lt_shape *s) {
  if (!is_f8(a) || !is_f8(b) || (a == BS_F8E5M2 && b == BS_F8E5M2)) return 0;
  if (d != BS_F32 && d != BS_F16 && d != BS_BF16) return 0;
  s->a = a == BS_F8E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
  s->b = b == BS_F8E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
  s->d = d == BS_F32 ? CUDA_R_32F : d == BS_F16 ? CUDA_R_16F : CUDA_R_16BF;
  s->bias = d == BS_F16 ? CUDA_R_16F : CUDA_R_16BF;
  s->compute = CUBLAS_COMPUTE_32F;
  s->scale = CUDA_R_32F;
  return 1;
}

static int find_types(uint32_t a, uint32_t b, uint32_t d, cuda_lt_shape *s) {
  for (size_t i = 0; a == b && i < sizeof rows / sizeof rows[0]; i++) {
    if (rows[i].in != a || rows[i].out != d) continue;
    s->a = s->b = rows[i].a;
    s->d = rows[i].d;
    s->bias = rows[i].bias;
    s->compute = rows[i].compute;
    s->scale = rows[i].scale;
    return 1;
  }
  return f8_types(a, b, d, s);
}

int cuda_lt_types(const cuda_state *state, uint32_t a, uint32_t b, uint32_t d, int tn, uint32_t accumulate,
                  cuda_lt_shape *s, bs_op_answer *out) {
  const int32_t capability = cuda_lt_capability(state);
  if (!find_types(a, b, d, s)) {
    (void)cuda_answer_no(out, BS_REASON_DTYPE, "cuBLASLt multiplies no 0x%04x by 0x%04x into 0x%04x", b, a,
                         d);
    return 0;
  }
  const int floats = s->compute == CUBLAS_COMPUTE_32F;
  if ((accumulate == BS_ACC_F64 && floats) ||
      (accumulate == BS_ACC_F32 && s->compute == CUBLAS_COMPUTE_64F)) {
    (void)cuda_answer_no(out, BS_REASON_DTYPE, "cuBLASLt sums 0x%04x in %s", a, floats ? "f32" : "f64");
    return 0;
  }
  if (is_f8(a) && accumulate == BS_ACC_F32) {
    (void)cuda_answer_no(out, BS_REASON_DTYPE,
                         "sums of fp8 are kept in fewer bits than f32's, which are asked for");
    return 0;
  }
  if ((is_f8(a) || a == BS_I8) && !tn) {
    (void)cuda_answer_no(out, BS_REASON_LAYOUT, "bytes are multiplied along rows of both matrices only");
    return 0;
  }
  if (is_f8(a) && capability < 89) {
    (void)cuda_answer_no(out, BS_REASON_ARCH, "fp8 needs compute capability 8.9, there is %d.%d",
                         capability / 10, capability % 10);
    return 0;
  }
  if (a == BS_BF16 && capability < 80) {
    (void)cuda_answer_no(out, BS_REASON_ARCH, "bf16 needs compute capability 8.0, there is %d.%d",
                         capability / 10, capability % 10);
    return 0;
  }
  return 1;
}

/* The rules of kernels of bytes: int8 on 4 bytes and fours, fp8 on 16 bytes and sixteens; of the output too.
 */
int cuda_lt_aligned(const cuda_lt_shape *s, bs_op_answer *out) {
  const uint32_t size = cuda_lt_bytes(s->a);
  const int64_t unit = size > 1 ? 1 : s->a == CUDA_R_8I ? 4 : 16;
  const uint32_t bytes = (uint32_t)(unit == 16 ? 16 : unit);
  const int64_t line = (int64_t)cuda_lt_bytes(s->d) * s->ldd % 16;
  const int fit =
      unit == 1 || (s->m % unit == 0 && s->k % unit == 0 && s->lda % unit == 0 && s->ldb % unit == 0 &&
                    (unit == 16 ? line == 0 : s->ldd % unit == 0) && s->align_a >= bytes &&
                    s->align_b >= bytes && s->align_d >= bytes && s->align_c >= bytes);
  if (fit) return 1;
  (void)cuda_answer_no(out, BS_REASON_ALIGNMENT, "bytes of this type are multiplied in %llds, on %u bytes",
                       (long long)unit, bytes);
  return 0;
}

int cuda_lt_sizes(const cuda_lt_shape *s, bs_op_answer *out) {
  enum { EXACT = 131071 }; /* so many products of bytes cannot leave 32 bits */
  if (s->m <= 0 || s->n <= 0 || s->k <= 0 || s->m > MOST || s->n > MOST || s->k > MOST) {
    (void)cuda_answer_no(out, BS_REASON_SHAPE, "%lld x %lld x %lld: not empty, and below 2^31 each",
                         (long long)s->m, (long long)s->n, (long long)s->k);
    return 0;
  }
  if (s->a == CUDA_R_8I && s->k > EXACT) {
    (void)cuda_answer_no(out, BS_REASON_SHAPE, "sums of %lld products of bytes may leave 32 bits",
                         (long long)s->k);
    return 0;
  }
  return 1;
}

/* NVIDIA's advice for cuBLAS: 32 MiB from Hopper on, whose kernels keep whole tiles of split sums there, and
 * 4 MiB before. An upper limit: a plan allocates what its algorithm says it needs. */
uint64_t cuda_lt_workspace(const cuda_state *state, const bs_op_query *q) {
  const uint64_t advised = (uint64_t)(cuda_lt_capability(state) >= 90 ? 32 : 4) << 20;
  return q->workspace_limit != 0 && q->workspace_limit < advised ? q->workspace_limit : advised;
}

/* Sums of fp8 are kept in fewer bits than f32's inside a tensor core, for all that is promoted between. */
static uint32_t tolerance_of(const cuda_lt_shape *s) {
  if (s->compute == CUBLAS_COMPUTE_32I) return BS_TOL_EXACT;
  if (s->compute == CUBLAS_COMPUTE_64F) return BS_TOL_ACC_F64;
  return s->a == CUDA_R_8F_E4M3 || s->a == CUDA_R_8F_E5M2 ? BS_TOL_ACC_LOW : BS_TOL_ACC_F32;
}

int32_t cuda_lt_yes(const bs_op_query *q, const cuda_lt_shape *s, bs_op_answer *out) {
  enum { SCORE = 800 };
  (void)q;
  return cuda_answer(out, BS_LEVEL_NATIVE, SCORE, tolerance_of(s), s->workspace, CUDA_LT,
                     "algorithm by its heuristics; pointers off 16 bytes: our own tiles");
}

/* out has the reason why cuBLASLt does not serve, `tiles` the answer of this plugin's own tiles. */
int32_t cuda_lt_emulated(const cuda_state *state, const bs_op_answer *tiles, bs_op_answer *out) {
  enum { SCORE = 50, WHY = 120 };
  char text[sizeof out->text];
  if (!state->lt->usable) return BS_OK;
  snprintf(text, sizeof text, "by our own tiles: %.*s", WHY, out->text);
  return cuda_answer(out, BS_LEVEL_EMULATED, SCORE, tiles->tolerance, 0, "tiles", text);
}

/* ---- plans -------------------------------------------------------------------------------------- */

/* The partition's columns side by side, where the list is moved to or from. */
static int32_t prepare_move(cuda_lt_plan *plan, const bs_op_query *q, uint32_t moved, bs_error *err) {
  const bs_exec *exec = plan->plan.exec;
  const bs_tensor_desc *given = q->args[moved];
  const int scatters = strcmp(plan->move_impl->op, "scatter_columns") == 0;
  bs_tensor_desc side = *given;
  side.dims[1] = plan->ask.gathered;
  side.strides[1] = 1;
  side.strides[0] = (int64_t)(((uint64_t)side.dims[1] * BS_DTYPE_BYTES(side.dtype) + 15) / 16 * 16 /
                              BS_DTYPE_BYTES(side.dtype));
  const bs_tensor_desc *args[2] = {scatters ? &side : given, scatters ? given : &side};
  bs_op_query move;
  memset(&move, 0, sizeof move);
  move.struct_size = (uint32_t)sizeof move;
  move.op = plan->move_impl->op;
  move.args = args;
  move.nargs = 2;
  move.partition = q->partition;
  const int32_t rc = plan->move_impl->prepare(plan->plan.state, exec, &move, NULL, &plan->move, err);
  if (rc != BS_OK) return rc;
  bs_tensor *t = &plan->moved;
  t->struct_size = (uint32_t)sizeof *t;
  t->dtype = side.dtype;
  t->rank = 2;
  memcpy(t->dims, side.dims, sizeof t->dims);
  memcpy(t->strides, side.strides, sizeof t->strides);
  t->bytes = (uint64_t)side.dims[0] * (uint64_t)side.strides[0] * BS_DTYPE_BYTES(side.dtype);
  t->data = exec->alloc(exec->ctx, t->bytes);
  if (t->data != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for %lld columns of %lld rows",
                 (long long)side.dims[1], (long long)side.dims[0]);
}

static int32_t prepare_algorithm(cuda_lt_plan *plan, bs_error *err) {
  const bs_exec *exec = plan->plan.exec;
  const cuda_lt_shape *s = &plan->ask.shape;
  const void *weight = plan->weight != NULL && !s->scalars ? plan->weight->data : NULL;
  int32_t rc = cuda_lt_handle(plan->plan.device, &plan->handle, err);
  if (rc == BS_OK) rc = cuda_lt_choose(exec, plan->handle, s, weight, &plan->algo, err);
  if (rc != BS_OK || plan->algo.workspace == 0) return rc;
  plan->workspace = exec->alloc(exec->ctx, plan->algo.workspace);
  if (plan->workspace != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for a workspace of %llu bytes",
                 (unsigned long long)plan->algo.workspace);
}

/* If the library's tables allow a shape but its heuristics have no algorithm, this plugin's own tiles
 * multiply; the record names them with the reason. Every other error ends the preparation. */
static int32_t prepare_or_leave(cuda_lt_plan *plan, bs_error *err) {
  const bs_exec *exec = plan->plan.exec;
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  const int32_t rc = prepare_algorithm(plan, &why);
  if (rc == BS_OK) return rc;
  if (rc != BS_UNSUPPORTED) {
    if (err != NULL) *err = why;
    return rc;
  }
  plan->own_only = 1;
  if (exec->note != NULL) {
    char text[256];
    snprintf(text, sizeof text, "%s@cuda/tiles (%.160s)", plan->own_impl->op, why.message);
    exec->note(exec->ctx, text);
  }
  return BS_OK;
}

int32_t cuda_lt_prepare(const bs_op_impl *impl, const bs_op_impl *own, const bs_op_impl *move, uint32_t moved,
                        void *state, const bs_exec *exec, const bs_op_query *q, void *packed,
                        const cuda_lt_ask *ask, cuda_lt_plan **out_plan, bs_error *err) {
  void *made = NULL;
  int32_t rc = cuda_plan_new(impl, state, exec, q, sizeof(cuda_lt_plan), &made, err);
  if (rc != BS_OK) return rc;
  cuda_lt_plan *plan = made;
  plan->own_impl = own;
  plan->lt = plan->plan.state->lt;
  plan->weight = packed;
  plan->own_only = ask == NULL;
  if (ask != NULL) plan->ask = *ask;
  plan->move_impl = plan->ask.gathered > 0 ? move : NULL;
  rc = own->prepare(state, exec, q, packed, &plan->own, err);
  if (rc == BS_OK && plan->move_impl != NULL) rc = prepare_move(plan, q, moved, err);
  if (rc == BS_OK && ask != NULL) rc = prepare_or_leave(plan, err);
  if (rc != BS_OK) {
    cuda_lt_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

void cuda_lt_plan_free(void *opaque) {
  cuda_lt_plan *plan = opaque;
  if (plan == NULL) return;
  const bs_exec *exec = plan->plan.exec;
  void *const blocks[] = {plan->workspace, plan->scalars, plan->moved.data, plan->sums};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
    if (blocks[i] != NULL) exec->free(exec->ctx, blocks[i]);
  if (plan->move != NULL) plan->move_impl->plan_free(plan->move);
  if (plan->own != NULL) plan->own_impl->plan_free(plan->own);
  cuda_plan_free(plan);
}

/* ---- running ------------------------------------------------------------------------------------ */

bs_tensor cuda_lt_moved(const cuda_lt_plan *plan, const bs_tensor *given) {
  if (plan->move_impl == NULL) return *given;
  bs_tensor t = plan->moved;
  t.dims[0] = given->dims[0];
  return t;
}

int cuda_lt_fits(const cuda_lt_shape *s, const cuda_lt_operands *o) {
  enum { BIAS = 16 };
  return (uintptr_t)o->a % s->align_a == 0 && (uintptr_t)o->b % s->align_b == 0 &&
         (uintptr_t)o->d % s->align_d == 0 && (!s->adds || (uintptr_t)o->c % s->align_c == 0) &&
         (uintptr_t)o->bias % BIAS == 0;
}

int32_t cuda_lt_run(const cuda_lt_plan *plan, const cuda_lt_shape *s, cuda_lt_operands *o, CUstream stream,
                    int *out_refused, bs_error *err) {
  const int fewer = s->n != plan->ask.shape.n || s->k != plan->ask.shape.k;
  const int32_t rc = cuda_enter(plan->plan.device, err);
  *out_refused = 0;
  if (rc != BS_OK) return rc;
  o->workspace = plan->workspace;
  o->workspace_bytes = plan->algo.workspace;
  const cublasStatus_t status = cuda_lt_multiply(plan->lt, plan->handle, s, &plan->algo.algo, o, stream);
  *out_refused = fewer && (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE);
  return *out_refused ? BS_OK : cuda_lt_check(plan->lt, status, "cublasLtMatmul", err);
}
