/* SPDX-License-Identifier: MIT
 * attention.c - attention by cuDNN's one-descriptor operation: plain softmax(scale Q K^T) V of bf16 and f16.
 * A plan of the library is for one shape. This plugin's own kernels run smaller shapes, and queries that the
 * library refuses when it is prepared; the record says so. A run makes a variant pack of the library's, which
 * allocates on the host. */
#include "../ops/attention.h"
#include "blocklist.h"
#include "library.h"

#define NAME "cudnn"
enum { Q_ID = 1, K_ID, V_ID, O_ID, SCALE_ID, IDS = 5, CONFIGS = 4, MADE = 16, MOST_WIDTH = 128 };
/* The largest workspace of a plan of the library, which is not known before the plan is made. */
static const uint64_t most_workspace = UINT64_C(32) << 20;

typedef struct dnn_plan {
  cuda_plan plan;
  const bs_op_impl *own_impl; /* what runs where the library does not */
  void *own;
  void *handle, *execution; /* execution NULL: own alone */
  void *made[MADE];         /* descriptors, in the order that they were made */
  uint32_t n_made;
  uint32_t refused; /* 1: the library refused a run, and the record has a note */
  void *workspace;
  int64_t S, T, B;
  int64_t strides[4][3]; /* of Q, K, V, Y */
  float scale;
} dnn_plan;

static const uint32_t operands[4] = {CUDA_ATTEND_Q, CUDA_ATTEND_K, CUDA_ATTEND_V, CUDA_ATTEND_Y};

/* ---- what is served ------------------------------------------------------------------------------ */

static int shape_legal(const bs_op_query *q, bs_op_answer *out) {
  const uint32_t x = q->args[CUDA_ATTEND_Q]->dtype;
  if (q->args[CUDA_ATTEND_Q]->dims[2] == 1) {
    (void)cuda_answer_no(out, BS_REASON_SHAPE, "one query a sequence: releases of cuDNN 9 refuse it");
    return 0;
  }
  for (int i = 0; i < 4; i++) {
    const bs_tensor_desc *d = q->args[operands[i]];
    if (d->dtype != x || (x != BS_BF16 && x != BS_F16)) {
      (void)cuda_answer_no(out, BS_REASON_DTYPE, "Q, K, V and Y of bf16, or of f16");
      return 0;
    }
    if (d->dims[3] % 8 != 0 || d->dims[3] > MOST_WIDTH ||
        d->dims[0] * d->dims[1] * d->dims[2] * d->dims[3] == 0) {
      (void)cuda_answer_no(out, BS_REASON_SHAPE,
                           "rows of %lld elements: 8 to %d in eights, and nothing is empty",
                           (long long)d->dims[3], MOST_WIDTH);
      return 0;
    }
    for (uint32_t dim = 0; dim < 4; dim++) {
      const int64_t stride = cuda_attend_stride(d, dim);
      if (dim == 3 ? stride == 1 : stride % 8 == 0) continue;
      (void)cuda_answer_no(out, BS_REASON_ALIGNMENT, "rows that begin on 16 bytes, elements side by side");
      return 0;
    }
  }
  return 1;
}

/* The implementation that runs if the library does not, and the bytes that it promises. */
static const bs_op_impl *own_of(void *state, const bs_op_query *q, uint64_t *out_workspace) {
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  const int mma = cuda_attention.supports(state, q, &answer) == BS_OK && answer.level != BS_LEVEL_NO;
  *out_workspace = mma ? answer.workspace : 0;
  return mma ? &cuda_attention : &cuda_attention_rows;
}

/* Bytes that remain for the library in addition to `own`. */
static uint64_t room_of(const bs_op_query *q, uint64_t own) {
  if (q->workspace_limit == 0) return most_workspace;
  const uint64_t left = q->workspace_limit > own ? q->workspace_limit - own : 0;
  return left < most_workspace ? left : most_workspace;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out) {
  uint64_t own = 0;
  if (!cuda_attend_legal(q, out)) return BS_OK;
  if (q->args[CUDA_ATTEND_DESCALE] == NULL && (q->flags & BS_QUERY_TOKENWISE) != 0)
    return cuda_answer_no(out, BS_REASON_DISABLED, "cuDNN promises no bits by the query alone");
  const cuda_dnn *dnn = cuda_dnn_open(state);
  if (!dnn->usable) return cuda_answer_no(out, dnn->reason, "%s", dnn->text);
  const cuda_dnn_block *block =
      cuda_dnn_block_of(dnn->version, q->args[CUDA_ATTEND_Q]->dtype, cuda_dnn_features(q));
  if (block != NULL) return cuda_answer_no(out, block->reason, "%s: not by %s", block->why, dnn->text);
  if (!shape_legal(q, out)) return BS_OK;
  (void)own_of(state, q, &own);
  return cuda_answer(out, BS_LEVEL_NATIVE, 850, BS_TOL_ACC_LOW, own + room_of(q, own), NAME,
                     "cuDNN's fused attention; other shapes than prepared: our own kernels");
}

/* ---- a plan of the library ------------------------------------------------------------------------ */

static int create(const cuda_dnn *dnn, dnn_plan *plan, int kind, void **out) {
  if (plan->n_made == MADE) return DNN_INTERNAL_ERROR;
  const int status = dnn->call.descriptor_create(kind, out);
  if (status == DNN_SUCCESS) plan->made[plan->n_made++] = *out;
  return status;
}

static int tensor(const cuda_dnn *dnn, dnn_plan *plan, int64_t id, int dtype, const int64_t *dims,
                  const int64_t *strides, void **out) {
  const int64_t alignment = 16;
  const cuda_dnn_functions *call = &dnn->call;
  const unsigned char by_value = id == SCALE_ID;
  int status = create(dnn, plan, DNN_TENSOR, out);
  if (status == DNN_SUCCESS) status = call->set(*out, DNN_TENSOR_DTYPE, DNN_TYPE_DTYPE, 1, &dtype);
  if (status == DNN_SUCCESS) status = call->set(*out, DNN_TENSOR_DIMS, DNN_TYPE_INT64, 4, dims);
  if (status == DNN_SUCCESS) status = call->set(*out, DNN_TENSOR_STRIDES, DNN_TYPE_INT64, 4, strides);
  if (status == DNN_SUCCESS) status = call->set(*out, DNN_TENSOR_ID, DNN_TYPE_INT64, 1, &id);
  if (status == DNN_SUCCESS) status = call->set(*out, DNN_TENSOR_ALIGNMENT, DNN_TYPE_INT64, 1, &alignment);
  if (status == DNN_SUCCESS && by_value)
    status = call->set(*out, DNN_TENSOR_BY_VALUE, DNN_TYPE_BOOL, 1, &by_value);
  return status == DNN_SUCCESS ? call->finalize(*out) : status;
}

/* A dimension of one element has the stride that it would have if it were packed: the library takes no 0. */
static void library_strides(const bs_tensor_desc *d, int64_t out[4]) {
  for (int dim = 3; dim >= 0; dim--)
    out[dim] =
        d->dims[dim] > 1 || dim == 3 ? cuda_attend_stride(d, (uint32_t)dim) : out[dim + 1] * d->dims[dim + 1];
}

static int operation(const cuda_dnn *dnn, dnn_plan *plan, const bs_op_query *q, void **out) {
  static const int attributes[4] = {DNN_SDPA_Q, DNN_SDPA_K, DNN_SDPA_V, DNN_SDPA_O};
  static const int64_t ones[4] = {1, 1, 1, 1};
  const int dtype = q->args[CUDA_ATTEND_Q]->dtype == BS_BF16 ? DNN_BF16 : DNN_F16;
  void *tensors[IDS];
  int status = DNN_SUCCESS;
  for (int i = 0; i < 4 && status == DNN_SUCCESS; i++) {
    const bs_tensor_desc *d = q->args[operands[i]];
    int64_t strides[4];
    library_strides(d, strides);
    memcpy(plan->strides[i], strides, sizeof plan->strides[i]);
    status = tensor(dnn, plan, Q_ID + i, dtype, d->dims, strides, &tensors[i]);
  }
  if (status == DNN_SUCCESS) status = tensor(dnn, plan, SCALE_ID, DNN_F32, ones, ones, &tensors[4]);
  if (status == DNN_SUCCESS) status = create(dnn, plan, DNN_SDPA, out);
  for (int i = 0; i < IDS && status == DNN_SUCCESS; i++)
    status = dnn->call.set(*out, i < 4 ? attributes[i] : DNN_SDPA_SCALE, DNN_TYPE_DESCRIPTOR, 1, &tensors[i]);
  return status == DNN_SUCCESS ? dnn->call.finalize(*out) : status;
}

static int graph_of(const cuda_dnn *dnn, dnn_plan *plan, void *const *operation_at, void **out) {
  int status = create(dnn, plan, DNN_GRAPH, out);
  if (status == DNN_SUCCESS)
    status = dnn->call.set(*out, DNN_GRAPH_HANDLE, DNN_TYPE_HANDLE, 1, &plan->handle);
  if (status == DNN_SUCCESS)
    status = dnn->call.set(*out, DNN_GRAPH_OPERATIONS, DNN_TYPE_DESCRIPTOR, 1, operation_at);
  return status == DNN_SUCCESS ? dnn->call.finalize(*out) : status;
}

/* The first engine that the library proposes and can make. */
static int engine(const cuda_dnn *dnn, dnn_plan *plan, void *const *graph, void **out) {
  const int mode = DNN_MODE_A;
  void *heuristics = NULL, *configs[CONFIGS];
  int64_t found = 0;
  int status = create(dnn, plan, DNN_HEURISTICS, &heuristics);
  if (status == DNN_SUCCESS)
    status = dnn->call.set(heuristics, DNN_HEURISTICS_GRAPH, DNN_TYPE_DESCRIPTOR, 1, graph);
  if (status == DNN_SUCCESS) status = dnn->call.set(heuristics, DNN_HEURISTICS_MODE, DNN_TYPE_MODE, 1, &mode);
  if (status == DNN_SUCCESS) status = dnn->call.finalize(heuristics);
  for (int i = 0; i < CONFIGS && status == DNN_SUCCESS; i++)
    status = create(dnn, plan, DNN_ENGINE_CONFIG, &configs[i]);
  if (status == DNN_SUCCESS)
    status = dnn->call.get(heuristics, DNN_HEURISTICS_RESULTS, DNN_TYPE_DESCRIPTOR, CONFIGS, &found, configs);
  if (status != DNN_SUCCESS) return status;
  status = DNN_NOT_SUPPORTED;
  for (int64_t i = 0; i < found && i < CONFIGS && status != DNN_SUCCESS; i++) {
    status = dnn->call.descriptor_create(DNN_PLAN, out);
    if (status != DNN_SUCCESS) return status;
    status = dnn->call.set(*out, DNN_PLAN_HANDLE, DNN_TYPE_HANDLE, 1, &plan->handle);
    if (status == DNN_SUCCESS)
      status = dnn->call.set(*out, DNN_PLAN_CONFIG, DNN_TYPE_DESCRIPTOR, 1, &configs[i]);
    if (status == DNN_SUCCESS) status = dnn->call.finalize(*out);
    if (status != DNN_SUCCESS) {
      (void)dnn->call.descriptor_destroy(*out);
      *out = NULL;
    }
  }
  return status;
}

static void library_end(dnn_plan *plan) {
  const cuda_dnn_functions *call = &plan->plan.state->dnn->call;
  if (plan->execution != NULL) (void)call->descriptor_destroy(plan->execution);
  while (plan->n_made > 0) (void)call->descriptor_destroy(plan->made[--plan->n_made]);
  if (plan->workspace != NULL) plan->plan.exec->free(plan->plan.exec->ctx, plan->workspace);
  plan->execution = plan->workspace = NULL;
}

static int32_t library_begin(dnn_plan *plan, const bs_op_query *q, uint64_t room, bs_error *err) {
  const cuda_dnn *dnn = plan->plan.state->dnn;
  const bs_exec *exec = plan->plan.exec;
  void *op = NULL, *graph = NULL;
  int64_t bytes = 0, count = 0;
  int32_t rc = cuda_dnn_handle(plan->plan.device, &plan->handle, err);
  if (rc != BS_OK) return rc;
  int status = operation(dnn, plan, q, &op);
  if (status == DNN_SUCCESS) status = graph_of(dnn, plan, &op, &graph);
  if (status == DNN_SUCCESS) status = engine(dnn, plan, &graph, &plan->execution);
  if (status == DNN_SUCCESS)
    status = dnn->call.get(plan->execution, DNN_PLAN_WORKSPACE, DNN_TYPE_INT64, 1, &count, &bytes);
  rc = cuda_dnn_check(dnn, status, "cuDNN's attention", err);
  if (rc != BS_OK || bytes <= 0) return rc;
  if ((uint64_t)bytes > room)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-DNN-UNSUPPORTED",
                   "cuDNN's attention wants %lld bytes of workspace", (long long)bytes);
  plan->workspace = exec->alloc(exec->ctx, (uint64_t)bytes);
  if (plan->workspace != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for a workspace of %lld bytes",
                 (long long)bytes);
}

/* ---- plans ---------------------------------------------------------------------------------------- */

static void plan_free(void *opaque) {
  dnn_plan *plan = opaque;
  if (plan == NULL) return;
  library_end(plan);
  if (plan->own != NULL) plan->own_impl->plan_free(plan->own);
  cuda_plan_free(plan);
}

static void note(const bs_exec *exec, const bs_op_impl *impl, const bs_error *why) {
  char text[256];
  if (exec->note == NULL) return;
  snprintf(text, sizeof text, "attention@cuda/%s (%.200s)", impl->name, why->message);
  exec->note(exec->ctx, text);
}

static int32_t fill(dnn_plan *plan, void *state, const bs_op_query *q, bs_error *err) {
  bs_error why = {.struct_size = (uint32_t)sizeof why};
  uint64_t workspace = 0;
  plan->own_impl = own_of(state, q, &workspace);
  int32_t rc = plan->own_impl->prepare(state, plan->plan.exec, q, NULL, &plan->own, err);
  if (rc != BS_OK) return rc;
  rc = library_begin(plan, q, room_of(q, workspace), &why);
  if (rc == BS_UNSUPPORTED) {
    library_end(plan);
    note(plan->plan.exec, plan->own_impl, &why);
    return BS_OK;
  }
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  void *made = NULL;
  (void)packed;
  int32_t rc = cuda_plan_new(&cuda_dnn_attention, state, exec, q, sizeof(dnn_plan), &made, err);
  if (rc != BS_OK) return rc;
  dnn_plan *plan = made;
  plan->B = q->args[CUDA_ATTEND_Q]->dims[0];
  plan->S = q->args[CUDA_ATTEND_Q]->dims[2];
  plan->T = q->args[CUDA_ATTEND_K]->dims[2];
  plan->scale = (float)q->numbers[0];
  rc = fill(plan, state, q, err);
  if (rc != BS_OK) {
    plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* ---- a run ---------------------------------------------------------------------------------------- */

static int fits(const dnn_plan *plan, bs_tensor *const *t) {
  if (plan->execution == NULL || t[CUDA_ATTEND_Q]->dims[0] != plan->B ||
      t[CUDA_ATTEND_Q]->dims[2] != plan->S || t[CUDA_ATTEND_K]->dims[2] != plan->T)
    return 0;
  for (int i = 0; i < 4; i++) {
    const bs_tensor *of = t[operands[i]];
    if ((uintptr_t)of->data % 16 != 0) return 0;
    for (uint32_t dim = 0; dim < 3; dim++)
      if (of->dims[dim] > 1 && of->strides[dim] != plan->strides[i][dim]) return 0;
  }
  return 1;
}

static int multiply(const dnn_plan *plan, bs_tensor *const *t, CUstream stream) {
  static const int64_t ids[IDS] = {Q_ID, K_ID, V_ID, O_ID, SCALE_ID};
  const cuda_dnn_functions *call = &plan->plan.state->dnn->call;
  const void *const pointers[IDS] = {t[CUDA_ATTEND_Q]->data, t[CUDA_ATTEND_K]->data, t[CUDA_ATTEND_V]->data,
                                     t[CUDA_ATTEND_Y]->data, &plan->scale};
  void *pack = NULL;
  int status = call->set_stream(plan->handle, stream);
  if (status == DNN_SUCCESS) status = call->descriptor_create(DNN_PACK, &pack);
  if (status != DNN_SUCCESS) return status;
  status = call->set(pack, DNN_PACK_POINTERS, DNN_TYPE_POINTER, IDS, pointers);
  if (status == DNN_SUCCESS) status = call->set(pack, DNN_PACK_IDS, DNN_TYPE_INT64, IDS, ids);
  if (status == DNN_SUCCESS)
    status = call->set(pack, DNN_PACK_WORKSPACE, DNN_TYPE_POINTER, 1, &plan->workspace);
  if (status == DNN_SUCCESS) status = call->finalize(pack);
  if (status == DNN_SUCCESS) status = call->execute(plan->handle, plan->execution, pack);
  (void)call->descriptor_destroy(pack);
  return status;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  dnn_plan *plan = opaque;
  if (!fits(plan, tensors)) return plan->own_impl->run(plan->own, tensors, nargs, stream, err);
  const int32_t rc = cuda_enter(plan->plan.device, err);
  if (rc != BS_OK) return rc;
  const int status = multiply(plan, tensors, cuda_stream(plan->plan.device, stream));
  if (status != DNN_SUCCESS && status < DNN_EXECUTION_FAILED) { /* it has started nothing */
    bs_error why = {.struct_size = (uint32_t)sizeof why};
    (void)cuda_dnn_check(plan->plan.state->dnn, status, "cudnnBackendExecute", &why);
    if (!plan->refused) note(plan->plan.exec, plan->own_impl, &why);
    plan->refused = 1;
    return plan->own_impl->run(plan->own, tensors, nargs, stream, err);
  }
  return cuda_dnn_check(plan->plan.state->dnn, status, "cudnnBackendExecute", err);
}

const bs_op_impl cuda_dnn_attention = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "attention",
    .backend = "cuda",
    .name = NAME,
    .summary = "cuDNN's fused attention of bf16 and f16",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
