/* SPDX-License-Identifier: MIT
 * topk.c - the k largest (falling) or smallest (rising) values of each line along an axis, and their places.
 * Equal values are ordered by their index, the lower first; NaN counts as the largest. A line is copied to
 * the rank's scratch and sorted there by a heap, whose time is bounded for all values. Lines are divided over
 * the team. */
#include <math.h>

#include "../ref.h"

enum { IN, VALUES, INDICES, ARGS };
enum { PIECE = 128 };

typedef struct entry {
  union {
    double f;
    int64_t i;
  } v;
  int64_t index;
} entry;

typedef struct topk_plan {
  ref_plan base;
  int64_t longest; /* line that was prepared */
} topk_plan;

typedef struct topk_job {
  const topk_plan *plan;
  uint32_t axis, integers;
  int64_t k;
  entry *scratch;
  ref_spread in, values, indices;
} topk_job;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != ARGS || q->args[IN] == NULL || q->args[VALUES] == NULL || q->args[INDICES] == NULL ||
      q->attrs[0] < 0 || q->attrs[0] >= q->args[IN]->rank)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs an input with the axis, and two outputs");
  if (!ref_args_known(q) || !ref_is_integer(q->args[INDICES]->dtype))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "the indices must be of integers");
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  void *made = NULL;
  int32_t rc = ref_plan_make(&ref_topk, state, exec, q, sizeof(topk_plan), &made, err);
  if (rc != BS_OK) return rc;
  topk_plan *plan = made;
  plan->longest = q->args[IN]->dims[q->attrs[0]];
  rc = ref_scratch_reserve(
      &plan->base, plan->longest >> 40 != 0 ? UINT64_MAX : (uint64_t)plan->longest * sizeof(entry), err);
  if (rc != BS_OK) {
    ref_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* ---- order ------------------------------------------------------------------------------------ */

/* -1: x's value is below y's, 1: above. */
static int compare(const topk_job *job, const entry *x, const entry *y) {
  if (job->integers) return (x->v.i > y->v.i) - (x->v.i < y->v.i);
  if (isnan(x->v.f) || isnan(y->v.f)) return (isnan(x->v.f) != 0) - (isnan(y->v.f) != 0);
  return (x->v.f > y->v.f) - (x->v.f < y->v.f);
}

static int before(const topk_job *job, const entry *x, const entry *y) {
  const int above = compare(job, x, y);
  if (above == 0) return x->index < y->index;
  return job->plan->base.attrs[1] != 0 ? above < 0 : above > 0;
}

/* Moves entry `at` down until none of its children comes after it: the last one of the order is on top. */
static void sink(const topk_job *job, entry *heap, int64_t n, int64_t at) {
  for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
    if (child + 1 < n && before(job, &heap[child], &heap[child + 1])) child++;
    if (!before(job, &heap[at], &heap[child])) return;
    const entry held = heap[at];
    heap[at] = heap[child];
    heap[child] = held;
    at = child;
  }
}

static void sort(const topk_job *job, entry *heap, int64_t n) {
  for (int64_t i = n / 2; i-- > 0;) sink(job, heap, n, i);
  for (int64_t left = n - 1; left > 0; left--) {
    const entry last = heap[0];
    heap[0] = heap[left];
    heap[left] = last;
    sink(job, heap, left, 0);
  }
}

/* ---- lines ------------------------------------------------------------------------------------ */

static int32_t read_line(const topk_job *job, const ref_view *in, entry *out) {
  const bs_host *host = job->plan->base.host;
  int32_t rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < in->cols; c += PIECE) {
    _Alignas(8) unsigned char piece[PIECE * sizeof out->v];
    const int64_t n = in->cols - c < PIECE ? in->cols - c : PIECE;
    rc = ref_load(host, in, 0, NULL, c, n, job->integers ? BS_I64 : BS_F64, piece);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      memcpy(&out[c + i].v, piece + (size_t)i * sizeof out->v, sizeof out->v);
      out[c + i].index = c + i;
    }
  }
  return rc;
}

static int32_t one_line(const topk_job *job, int64_t line, entry *heap) {
  const bs_host *host = job->plan->base.host;
  int64_t at[BS_MAX_DIMS] = {0}, dims[BS_MAX_DIMS];
  memcpy(dims, job->in.dims, sizeof dims);
  dims[job->axis] = 1;
  ref_coordinates(line, job->in.rank, dims, at);
  const ref_view in = ref_line_along(&job->in, job->axis, at);
  const ref_view values = ref_line_along(&job->values, job->axis, at);
  const ref_view indices = ref_line_along(&job->indices, job->axis, at);
  int32_t rc = read_line(job, &in, heap);
  if (rc == BS_OK) sort(job, heap, in.cols);
  for (int64_t i = 0; rc == BS_OK && i < job->k; i++) {
    rc = ref_store(host, &values, 0, i, 1, job->integers ? BS_I64 : BS_F64, &heap[i].v);
    if (rc == BS_OK) rc = ref_store(host, &indices, 0, i, 1, BS_I64, &heap[i].index);
  }
  return rc;
}

static int32_t part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)err;
  const topk_job *job = items->user;
  int32_t rc = BS_OK;
  for (int64_t i = begin; rc == BS_OK && i < end; i++)
    rc = one_line(job, i, job->scratch + job->plan->longest * (int64_t)member);
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const topk_plan *plan = opaque;
  const bs_tensor *in = args[IN];
  topk_job job = {.plan = plan, .axis = (uint32_t)plan->base.attrs[0]};
  int64_t dims[BS_MAX_DIMS];
  memcpy(dims, in->dims, sizeof dims);
  dims[job.axis] = 1;
  job.integers = (uint32_t)!ref_is_float(in->dtype);
  job.k = args[VALUES]->dims[job.axis];
  job.in = ref_spread_of(in, in->rank, in->dims);
  job.values = ref_spread_of(args[VALUES], in->rank, args[VALUES]->dims);
  job.indices = ref_spread_of(args[INDICES], in->rank, args[INDICES]->dims);
  job.scratch = ref_scratch(&plan->base);
  ref_items items = {.plan = &plan->base, .part = part, .user = &job};
  items.count = job.k > 0 ? ref_elements(in->rank, dims) : 0;
  return ref_items_run(&items, err);
}

const bs_src_loc ref_topk_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_topk = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "topk",
    .backend = "ref",
    .name = "portable",
    .summary = "the largest or smallest values of lines",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
