/* SPDX-License-Identifier: MIT
 * columns.c - the common part of gather_columns and scatter_columns: checks, plans and launches. A run of
 * columns is copied as a part of the full matrix; columns that repeat are described by their period; for
 * others the plan keeps the list in device memory. */
#include "columns.h"

#include "columns_body.h"
#include "convert.h"

typedef struct columns_plan {
  cuda_plan plan;
  cuda_columns columns; /* list NULL: a run, or they repeat */
  uint32_t repeats;
  uint32_t slots_count;
  int64_t period, skip;
  uint64_t slots;
} columns_plan;

int32_t cuda_columns_supports(const bs_op_query *query, uint32_t full_arg, bs_op_answer *out_answer) {
  const uint32_t kept_arg = 1 - full_arg;
  const bs_partition *p = query->partition;
  if (query->nargs != 2 || !cuda_arg_ok(query, 0, 2) || !cuda_arg_ok(query, 1, 2))
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs two matrices of known dtypes");
  if (p == NULL) return cuda_answer_no(out_answer, BS_REASON_SHAPE, "needs a partition");
  const bs_tensor_desc *full = query->args[full_arg], *kept = query->args[kept_arg];
  if (full->dtype != kept->dtype)
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "input and output differ in dtype");
  if (full->dims[0] != kept->dims[0] || full->dims[1] != p->total || kept->dims[1] != p->count)
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "[%lld,%lld] and [%lld,%lld] for %lld of %lld columns",
                          (long long)full->dims[0], (long long)full->dims[1], (long long)kept->dims[0],
                          (long long)kept->dims[1], (long long)p->count, (long long)p->total);
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_EXACT, 0, "columns", "a kernel of its own");
}

/* The pattern without the list, where there is one that a word of slots holds and that is the list. */
static void take_pattern(columns_plan *plan, const bs_partition *p) {
  if (p->kind != BS_PARTITION_GATHER || p->period == 0 || p->period > 32) return;
  uint32_t kept = 0;
  for (uint32_t j = 0; j < p->period; j++) {
    if ((p->pattern_bits >> j & 1u) == 0) continue;
    if (kept == CUDA_COLUMNS_SLOTS) return;
    plan->slots |= (uint64_t)j << (5 * kept++);
  }
  if (kept == 0) return;
  for (int64_t k = p->begin - p->begin % p->period; k < p->begin; k++)
    plan->skip += p->pattern_bits >> (k % p->period) & 1u;
  plan->skip += p->begin / p->period * kept;
  for (int64_t i = 0; i < p->count; i++) {
    const int64_t n = plan->skip + i;
    if ((int64_t)p->columns[i] != n / kept * p->period + (int64_t)(plan->slots >> (5 * (n % kept)) & 31u))
      return;
  }
  plan->period = p->period;
  plan->slots_count = kept;
  plan->repeats = 1;
}

int32_t cuda_columns_prepare(const bs_op_impl *impl, void *state, const bs_exec *exec,
                             const bs_op_query *query, void **out_plan, bs_error *err) {
  void *made = NULL;
  int32_t rc = cuda_plan_new(impl, state, exec, query, sizeof(columns_plan), &made, err);
  if (rc != BS_OK) return rc;
  columns_plan *plan = made;
  take_pattern(plan, query->partition);
  if (!plan->repeats)
    rc = cuda_columns_make(exec, plan->plan.host, query->partition, query->partition->total, &plan->columns,
                           err);
  if (rc != BS_OK) {
    cuda_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t move_run(const columns_plan *plan, cuda_view full, const cuda_view *kept, uint32_t kernel,
                        CUstream stream, bs_error *err) {
  full.data = (char *)full.data + plan->columns.begin * full.col * (int64_t)full.size;
  full.cols = kept->cols;
  return kernel == CUDA_GATHER_COLUMNS ? cuda_convert_views(plan->plan.device, &full, kept, stream, err)
                                       : cuda_convert_views(plan->plan.device, kept, &full, stream, err);
}

/* Reads two of each four columns, in pieces of 16 bytes of the full matrix that do not reach beyond it. */
static void take_pairs(const columns_plan *plan, columns_args *args) {
  const cuda_view *full = &args->full;
  const int64_t width = CUDA_COLUMNS_BYTES / full->size;
  if (plan->period != 4 || plan->slots_count != 2 || full->size > 4 || plan->skip % width != 0 ||
      args->walk.width != width || !cuda_view_fits(full, 16 / full->size) ||
      2 * (plan->skip + args->walk.vectors * width) > full->cols)
    return;
  const uint32_t first = plan->slots & 31u, second = plan->slots >> 5 & 31u;
  args->pairs = 1;
  if (full->size == 1)
    args->select = first | second << 4 | (4 + first) << 8 | (4 + second) << 12;
  else if (full->size == 2)
    args->select = 2 * first | (2 * first + 1) << 4 | 2 * second << 8 | (2 * second + 1) << 12;
  else
    args->select = first | second << 4;
}

int32_t cuda_columns_run(void *opaque, const bs_tensor *full, const bs_tensor *kept, uint32_t kernel,
                         bs_stream *stream, bs_error *err) {
  const columns_plan *plan = opaque;
  const cuda_device *device = plan->plan.device;
  columns_args args = {.full = cuda_view_of(full),
                       .kept = cuda_view_of(kept),
                       .list = plan->columns.list,
                       .period = plan->period,
                       .slots = plan->slots,
                       .skip = plan->skip,
                       .by_slots = cuda_divisor_make(plan->repeats ? plan->slots_count : 1)};
  if (args.kept.rows == 0 || args.kept.cols == 0) return BS_OK;
  if (!plan->repeats && args.list == NULL)
    return move_run(plan, args.full, &args.kept, kernel, cuda_stream(device, stream), err);
  const uint32_t width = CUDA_COLUMNS_BYTES / args.kept.size;
  cuda_walk_lay((args.kept.rows - 1) / CUDA_COLUMNS_ROWS + 1, args.kept.cols,
                cuda_view_fits(&args.kept, width) ? width : 1, &args.walk);
  if (plan->repeats && kernel == CUDA_GATHER_COLUMNS) take_pairs(plan, &args);
  return cuda_launch_items(device, kernel, cuda_walk_threads(&args.walk), cuda_stream(device, stream), &args,
                           err);
}

void cuda_columns_plan_free(void *opaque) {
  columns_plan *plan = opaque;
  if (plan == NULL) return;
  cuda_columns_free(plan->plan.exec, &plan->columns);
  cuda_plan_free(plan);
}
