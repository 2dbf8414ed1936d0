/* SPDX-License-Identifier: MIT
 * common.c - helpers of the cuda plugin's ops: answers, what a query's arguments are, views, a partition's
 * columns in device memory, and the plan that most ops' plans begin with. */
#include "ops.h"

int32_t cuda_answer_no(bs_op_answer *out_answer, uint32_t reason, const char *fmt, ...) {
  va_list ap;
  out_answer->level = BS_LEVEL_NO;
  out_answer->reason = reason;
  va_start(ap, fmt);
  vsnprintf(out_answer->text, sizeof out_answer->text, fmt, ap);
  va_end(ap);
  return BS_OK;
}

int32_t cuda_answer(bs_op_answer *out_answer, uint32_t level, uint32_t score, uint32_t tolerance,
                    uint64_t workspace, const char *algo, const char *text) {
  out_answer->level = level;
  out_answer->score = score;
  out_answer->reason = BS_REASON_NONE;
  out_answer->tolerance = tolerance;
  out_answer->workspace = workspace;
  snprintf(out_answer->algo, sizeof out_answer->algo, "%s", algo);
  snprintf(out_answer->text, sizeof out_answer->text, "%s", text);
  return BS_OK;
}

int32_t cuda_require(const bs_op_impl *impl, void *state, const bs_op_query *query, bs_error *err) {
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  const int32_t rc = impl->supports(state, query, &answer);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-CUDA-QUERY", "%s: the query cannot be read", impl->op);
  if (answer.level != BS_LEVEL_NO) return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-UNSUPPORTED", "%s@cuda: %s", impl->op, answer.text);
}

int cuda_is_float(uint32_t dtype) {
  return dtype == BS_F64 || dtype == BS_F32 || dtype == BS_F16 || dtype == BS_BF16 || dtype == BS_F8E4M3 ||
         dtype == BS_F8E5M2;
}

int cuda_is_integer(uint32_t dtype) {
  return dtype == BS_I64 || dtype == BS_I32 || dtype == BS_I8 || dtype == BS_U8;
}

int cuda_arg_ok(const bs_op_query *query, uint32_t i, uint32_t rank) {
  if (query->args == NULL || i >= query->nargs || query->args[i] == NULL) return 0;
  const bs_tensor_desc *d = query->args[i];
  if (d->rank != rank || !(cuda_is_float(d->dtype) || cuda_is_integer(d->dtype) || d->dtype == BS_BOOL))
    return 0;
  for (uint32_t j = 0; j < rank; j++)
    if (d->dims[j] < 0 || d->strides[j] < 0) return 0;
  return 1;
}

cuda_view cuda_view_of(const bs_tensor *tensor) {
  cuda_view v = {0};
  if (tensor == NULL) return v;
  const int matrix = tensor->rank == 2;
  v.data = tensor->data;
  v.rows = matrix ? tensor->dims[0] : 1;
  v.cols = matrix ? tensor->dims[1] : tensor->dims[0];
  v.row = matrix ? tensor->strides[0] : 0;
  v.col = matrix ? tensor->strides[1] : tensor->strides[0];
  v.dtype = tensor->dtype;
  v.size = BS_DTYPE_BYTES(tensor->dtype);
  return v;
}

int32_t cuda_columns_make(const bs_exec *exec, const bs_host *host, const bs_partition *partition,
                          int64_t total, cuda_columns *out_columns, bs_error *err) {
  (void)host;
  const cuda_device *device = exec->device;
  memset(out_columns, 0, sizeof *out_columns);
  out_columns->count = out_columns->total = total;
  if (partition == NULL) return BS_OK;
  out_columns->total = partition->total;
  out_columns->count = partition->count;
  out_columns->begin = partition->begin;
  if (partition->kind != BS_PARTITION_GATHER || partition->count == 0) return BS_OK;
  const uint64_t bytes = (uint64_t)partition->count * sizeof *partition->columns;
  out_columns->begin = 0;
  void *list = exec->alloc(exec->ctx, bytes);
  if (list == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for a list of %lld columns",
                   (long long)partition->count);
  out_columns->list = list;
  int32_t rc = cuda_upload(device, list, partition->columns, bytes, device->stream, err);
  /* The list is the asker's, and streams of other calls do not wait for this one. */
  if (rc == BS_OK) rc = cuda_wait(device, device->stream, err);
  if (rc != BS_OK) cuda_columns_free(exec, out_columns);
  return rc;
}

void cuda_columns_free(const bs_exec *exec, cuda_columns *columns) {
  if (columns->list != NULL) exec->free(exec->ctx, (void *)(uintptr_t)columns->list);
  columns->list = NULL;
}

int32_t cuda_plan_new(const bs_op_impl *impl, void *opaque, const bs_exec *exec, const bs_op_query *query,
                      uint64_t bytes, void **out_plan, bs_error *err) {
  cuda_state *state = opaque;
  const int32_t rc = cuda_require(impl, state, query, err);
  if (rc != BS_OK) return rc;
  cuda_plan *plan = state->host->alloc(state->host->ctx, bytes, 64);
  if (plan == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a plan of %s", impl->op);
  plan->state = state;
  plan->host = state->host;
  plan->exec = exec;
  plan->device = exec->device;
  plan->op = impl->op;
  *out_plan = plan;
  return BS_OK;
}

void cuda_plan_free(void *opaque) {
  cuda_plan *plan = opaque;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
}

/* FNV-1a. */
static uint64_t hash_of(const cuda_image *image) {
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (const unsigned char *at = image->data; at != (const unsigned char *)image->end; at++)
    h = (h ^ *at) * UINT64_C(0x100000001b3);
  return h;
}

void cuda_echo_kernel(const cuda_device *device, uint32_t kernel, uint32_t dynamic, bs_op_echo *echo) {
  const cuda_needs *needs = &device->needs[kernel];
  const cuda_image *image = device->images[kernel];
  if (needs->threads > 0) { /* else it was not asked for */
    echo->registers = needs->registers;
    echo->shared_bytes = (int64_t)needs->shared + dynamic;
    echo->spill_bytes = needs->local;
  }
  if (image != NULL)
    snprintf(echo->build, sizeof echo->build, "%.40s %016llx", image->name,
             (unsigned long long)hash_of(image));
}

int32_t cuda_echo_op(const void *opaque, bs_op_echo *out_echo) {
  const cuda_plan *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  for (uint32_t k = 0; k < CUDA_KERNEL_COUNT_; k++)
    if (strcmp(cuda_kernel_table[k].name, plan->op) == 0) cuda_echo_kernel(plan->device, k, 0, &mine);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}
