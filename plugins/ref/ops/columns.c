/* SPDX-License-Identifier: MIT
 * columns.c - gather_columns, out[b,i] = X[b, columns[i]], and scatter_columns, out[b, columns[i]] = in[b,i],
 * which leaves the other columns of out as they are. Any dtype, any strides; bits are copied. One loop walks
 * the partition's columns in either direction. Rows are divided over the team, or columns when there are
 * fewer rows than members. */
#include "../ref.h"

typedef struct columns_plan {
  const bs_host *host;
  const bs_exec *exec;
  ref_columns columns;
} columns_plan;

typedef struct columns_job {
  const columns_plan *plan;
  ref_view full, kept;
  int scatter;
} columns_job;

static int32_t columns_supports(const bs_op_query *query, uint32_t full_arg, bs_op_answer *out_answer) {
  const uint32_t kept_arg = 1 - full_arg;
  const bs_partition *p = query->partition;
  if (query->nargs != 2 || !ref_arg_ok(query, 0, 2) || !ref_arg_ok(query, 1, 2))
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs two matrices of known dtypes");
  if (p == NULL) return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs a partition");
  const bs_tensor_desc *full = query->args[full_arg], *kept = query->args[kept_arg];
  if (full->dtype != kept->dtype)
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "input and output differ in dtype");
  if (full->dims[0] != kept->dims[0] || full->dims[1] != p->total || kept->dims[1] != p->count)
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "[%lld,%lld] and [%lld,%lld] for %lld of %lld columns",
                         (long long)full->dims[0], (long long)full->dims[1], (long long)kept->dims[0],
                         (long long)kept->dims[1], (long long)p->count, (long long)p->total);
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t columns_prepare(const bs_op_impl *impl, ref_state *state, const bs_exec *exec,
                               const bs_op_query *query, void **out_plan, bs_error *err) {
  int32_t rc = ref_require(impl, state, query, err);
  if (rc != BS_OK) return rc;
  const bs_host *host = state->host;
  columns_plan *plan = host->alloc(host->ctx, sizeof *plan, 64);
  if (plan == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a plan of %s", impl->op);
  plan->host = host;
  plan->exec = exec;
  rc = ref_columns_copy(host, query->partition, query->partition->total, &plan->columns, err);
  if (rc != BS_OK) {
    host->free(host->ctx, plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static void copy_part(const columns_job *job, int64_t row_begin, int64_t row_end, int64_t begin,
                      int64_t end) {
  const ref_columns *columns = &job->plan->columns;
  const uint32_t size = job->full.size;
  for (int64_t r = row_begin; r < row_end; r++) {
    unsigned char *full = job->full.data + (uint64_t)(r * job->full.row) * size;
    unsigned char *kept = job->kept.data + (uint64_t)(r * job->kept.row) * size;
    if (columns->columns == NULL && job->full.col == 1 && job->kept.col == 1) {
      unsigned char *in_full = full + (uint64_t)(columns->begin + begin) * size;
      unsigned char *in_kept = kept + (uint64_t)begin * size;
      memcpy(job->scatter ? in_full : in_kept, job->scatter ? in_kept : in_full,
             (uint64_t)(end - begin) * size);
      continue;
    }
    for (int64_t i = begin; i < end; i++) {
      unsigned char *in_full = full + (uint64_t)(ref_column(columns, i) * job->full.col) * size;
      unsigned char *in_kept = kept + (uint64_t)(i * job->kept.col) * size;
      if (job->scatter) {
        memcpy(in_full, in_kept, size);
      } else {
        memcpy(in_kept, in_full, size);
      }
    }
  }
}

static void body(void *arg, uint32_t member, uint32_t width) {
  const columns_job *job = arg;
  int64_t begin, end;
  if (job->kept.rows >= (int64_t)width) {
    ref_share(job->kept.rows, member, width, &begin, &end);
    if (begin < end) copy_part(job, begin, end, 0, job->kept.cols);
  } else {
    ref_share(job->kept.cols, member, width, &begin, &end);
    if (begin < end) copy_part(job, 0, job->kept.rows, begin, end);
  }
}

static int32_t columns_run(void *opaque, const bs_tensor *full, const bs_tensor *kept, int scatter,
                           bs_error *err) {
  columns_plan *plan = opaque;
  columns_job job = {plan, ref_view_of(full), ref_view_of(kept), scatter};
  if (job.kept.rows == 0 || job.kept.cols == 0) return BS_OK;
  return ref_team_run(plan->exec, body, &job, NULL, err);
}

static void plan_free(void *opaque) {
  columns_plan *plan = opaque;
  if (plan == NULL) return;
  const bs_host *host = plan->host;
  ref_columns_free(host, &plan->columns);
  host->free(host->ctx, plan);
}

static int32_t gather_supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  return columns_supports(query, 0, out_answer);
}

static int32_t gather_prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                              void **out_plan, bs_error *err) {
  (void)packed;
  return columns_prepare(&ref_gather_columns, state, exec, query, out_plan, err);
}

static int32_t gather_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                          bs_error *err) {
  (void)nargs;
  (void)stream;
  return columns_run(plan, args[0], args[1], 0, err);
}

const bs_src_loc ref_gather_columns_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_gather_columns = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "gather_columns",
    .backend = "ref",
    .name = "portable",
    .summary = "copies the partition's columns",
    .supports = gather_supports,
    .prepare = gather_prepare,
    .run = gather_run,
    .plan_free = plan_free,
};

static int32_t scatter_supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  return columns_supports(query, 1, out_answer);
}

static int32_t scatter_prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                               void **out_plan, bs_error *err) {
  (void)packed;
  return columns_prepare(&ref_scatter_columns, state, exec, query, out_plan, err);
}

static int32_t scatter_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                           bs_error *err) {
  (void)nargs;
  (void)stream;
  return columns_run(plan, args[1], args[0], 1, err);
}

const bs_src_loc ref_scatter_columns_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_scatter_columns = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "scatter_columns",
    .backend = "ref",
    .name = "portable",
    .summary = "copies the partition's columns",
    .supports = scatter_supports,
    .prepare = scatter_prepare,
    .run = scatter_run,
    .plan_free = plan_free,
};
