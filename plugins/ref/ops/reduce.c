/* SPDX-License-Identifier: MIT
 * reduce.c - folds over the dims where out has 1: sum, max, min, product, sum of squares, places of the
 * largest and smallest value; and running sums along one dim. Floats are folded in f64 in ascending order of
 * the elements, row-major, multiplied with the factor, and rounded once; integers are exact, modulo 2^64, and
 * a narrower output keeps the low bits. NaN is passed on. Elements of out are divided over the team. */
#include <math.h>

#include "../ref.h"

enum { PIECE = 128 };

typedef union number {
  double f;
  int64_t i;
} number;

typedef struct reduce_job {
  const ref_plan *plan;
  uint32_t rank, integers;
  uint32_t axis, reserved;   /* the last dim that is reduced; of places and running sums theirs */
  int64_t dims[BS_MAX_DIMS]; /* of the input; 1 where it is not reduced */
  int64_t lines;             /* along axis, for one element of out */
  ref_spread in, out;
} reduce_job;

static int is_place(int64_t fold) {
  return fold == BS_FOLD_ARGMAX || fold == BS_FOLD_ARGMIN;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 2 || q->args[0] == NULL || q->args[1] == NULL)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs an input and an output");
  if (!ref_args_known(q)) return ref_answer_no(out_answer, BS_REASON_DTYPE, "an unknown dtype");
  if (q->attrs[0] < BS_FOLD_SUM || q->attrs[0] > BS_FOLD_CUMSUM)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "fold %lld", (long long)q->attrs[0]);
  const int exact = !ref_is_float(q->args[0]->dtype) || is_place(q->attrs[0]);
  return ref_answer_native(out_answer, exact ? BS_TOL_EXACT : BS_TOL_ACC_F64, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_reduce, state, exec, q, sizeof(ref_plan), out_plan, err);
}

/* ---- folding ---------------------------------------------------------------------------------- */

/* The result over no elements: min and max give the end of the input dtype's range. */
static number begin_of(const reduce_job *job) {
  const int64_t fold = job->plan->attrs[0];
  const uint32_t dtype = job->in.dtype;
  number v = {.i = 0};
  if (fold == BS_FOLD_PROD) {
    if (job->integers)
      v.i = 1;
    else
      v.f = 1.0;
  } else if (fold == BS_FOLD_MAX && !job->integers) {
    v.f = -INFINITY;
  } else if (fold == BS_FOLD_MIN && !job->integers) {
    v.f = INFINITY;
  } else if (fold == BS_FOLD_MAX) {
    v.i = dtype == BS_I64 ? INT64_MIN : dtype == BS_I32 ? INT32_MIN : dtype == BS_I8 ? INT8_MIN : 0;
  } else if (fold == BS_FOLD_MIN) {
    v.i = dtype == BS_I64   ? INT64_MAX
          : dtype == BS_I32 ? INT32_MAX
          : dtype == BS_I8  ? INT8_MAX
          : dtype == BS_U8  ? UINT8_MAX
                            : 1;
  }
  return v;
}

static double fold_float(int64_t fold, double so_far, double v) {
  switch (fold) {
    case BS_FOLD_MAX:
      return v > so_far || isnan(v) ? v : so_far;
    case BS_FOLD_MIN:
      return v < so_far || isnan(v) ? v : so_far;
    case BS_FOLD_PROD:
      return so_far * v;
    case BS_FOLD_SUMSQ:
      return so_far + v * v;
    default:
      return so_far + v;
  }
}

static int64_t fold_integer(int64_t fold, int64_t so_far, int64_t v) {
  uint64_t u = (uint64_t)v;
  switch (fold) {
    case BS_FOLD_MAX:
      return v > so_far ? v : so_far;
    case BS_FOLD_MIN:
      return v < so_far ? v : so_far;
    case BS_FOLD_PROD:
      u = (uint64_t)so_far * u;
      break;
    case BS_FOLD_SUMSQ:
      u = (uint64_t)so_far + u * u;
      break;
    default:
      u = (uint64_t)so_far + u;
      break;
  }
  memcpy(&v, &u, sizeof v);
  return v;
}

static int32_t load(const reduce_job *job, const ref_view *line, int64_t first, int64_t n, number *out) {
  return ref_load(job->plan->host, line, 0, NULL, first, n, job->integers ? BS_I64 : BS_F64, out);
}

static int32_t fold_line(const reduce_job *job, const ref_view *line, number *so_far) {
  const int64_t fold = job->plan->attrs[0];
  number v[PIECE];
  int32_t rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < line->cols; c += PIECE) {
    const int64_t n = line->cols - c < PIECE ? line->cols - c : PIECE;
    rc = load(job, line, c, n, v);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      if (job->integers)
        so_far->i = fold_integer(fold, so_far->i, v[i].i);
      else
        so_far->f = fold_float(fold, so_far->f, v[i].f);
    }
  }
  return rc;
}

/* Is v a better place than the best so far? NaN is the best, the first one of two. */
static int better(const reduce_job *job, number v, number best) {
  const int least = job->plan->attrs[0] == BS_FOLD_ARGMIN, last = job->plan->attrs[2] != 0;
  if (job->integers) return (least ? v.i < best.i : v.i > best.i) || (last && v.i == best.i);
  if (isnan(v.f) || isnan(best.f)) return isnan(v.f) && (last || !isnan(best.f));
  return (least ? v.f < best.f : v.f > best.f) || (last && v.f == best.f);
}

static int32_t place_line(const reduce_job *job, const ref_view *line, number *out_place) {
  number v[PIECE], best = {.i = 0};
  int32_t rc = BS_OK;
  out_place->i = 0;
  for (int64_t c = 0; rc == BS_OK && c < line->cols; c += PIECE) {
    const int64_t n = line->cols - c < PIECE ? line->cols - c : PIECE;
    rc = load(job, line, c, n, v);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      if (c + i > 0 && !better(job, v[i], best)) continue;
      best = v[i];
      out_place->i = c + i;
    }
  }
  return rc;
}

/* ---- elements of out -------------------------------------------------------------------------- */

static int32_t store(const reduce_job *job, const ref_view *v, int64_t at, number value) {
  const double factor = job->plan->numbers[0];
  const int integers = job->integers || is_place(job->plan->attrs[0]);
  if (!integers) value.f *= factor;
  return ref_store_value(job->plan->host, v, at, 1, integers ? BS_I64 : BS_F64, &value);
}

static int32_t one_element(const reduce_job *job, int64_t element) {
  int64_t at[BS_MAX_DIMS] = {0};
  ref_coordinates(element, job->rank, job->out.dims, at);
  ref_view out = {.data = ref_at(&job->out, at), .dtype = job->out.dtype, .size = job->out.size, .cols = 1};
  number value = begin_of(job);
  int32_t rc = BS_OK;
  for (int64_t i = 0; rc == BS_OK && i < job->lines; i++) {
    int64_t from[BS_MAX_DIMS] = {0}, left = i;
    for (uint32_t d = job->rank; d-- > 0;) {
      from[d] = at[d];
      if (d == job->axis || job->dims[d] == 1) continue;
      from[d] = left % job->dims[d];
      left /= job->dims[d];
    }
    ref_view line = ref_line_along(&job->in, job->axis, from);
    if (job->dims[job->axis] == 1) line.cols = 1; /* not reduced: the element alone */
    rc = is_place(job->plan->attrs[0]) ? place_line(job, &line, &value) : fold_line(job, &line, &value);
  }
  return rc == BS_OK ? store(job, &out, 0, value) : rc;
}

/* Running sums along one line. attrs[2] bit 0: without the element itself, bit 1: from the end. */
static int32_t one_running(const reduce_job *job, int64_t line) {
  const int without = (job->plan->attrs[2] & 1) != 0, back = (job->plan->attrs[2] & 2) != 0;
  int64_t at[BS_MAX_DIMS] = {0}, dims[BS_MAX_DIMS];
  memcpy(dims, job->in.dims, sizeof dims);
  if (job->rank > 0) dims[job->axis] = 1;
  ref_coordinates(line, job->rank, dims, at);
  const ref_view in = ref_line_along(&job->in, job->axis, at);
  const ref_view out = ref_line_along(&job->out, job->axis, at);
  number sum = {.i = 0};
  int32_t rc = BS_OK;
  for (int64_t i = 0; rc == BS_OK && i < in.cols; i++) {
    const int64_t c = back ? in.cols - 1 - i : i;
    number v;
    rc = load(job, &in, c, 1, &v);
    const number before = sum;
    if (job->integers)
      sum.i = fold_integer(BS_FOLD_SUM, sum.i, v.i);
    else
      sum.f += v.f;
    if (rc == BS_OK) rc = store(job, &out, c, without ? before : sum);
  }
  return rc;
}

static int32_t part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)member;
  (void)err;
  const reduce_job *job = items->user;
  int32_t rc = BS_OK;
  for (int64_t i = begin; rc == BS_OK && i < end; i++)
    rc = job->plan->attrs[0] == BS_FOLD_CUMSUM ? one_running(job, i) : one_element(job, i);
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_plan *plan = opaque;
  const bs_tensor *in = args[0], *out = args[1];
  const int64_t fold = plan->attrs[0];
  reduce_job job = {.plan = plan, .rank = in->rank, .lines = 1};
  job.integers = (uint32_t)!ref_is_float(in->dtype);
  job.in = ref_spread_of(in, in->rank, in->dims);
  job.out = ref_spread_of(out, out->rank, out->dims);
  for (uint32_t d = 0; d < in->rank; d++) {
    job.dims[d] = out->dims[d] == 1 ? in->dims[d] : 1;
    if (job.dims[d] != 1) job.axis = d;
  }
  if (is_place(fold) || fold == BS_FOLD_CUMSUM) job.axis = (uint32_t)plan->attrs[1];
  for (uint32_t d = 0; d < in->rank; d++)
    if (d != job.axis) job.lines *= job.dims[d];
  ref_items items = {.plan = plan, .part = part, .user = &job};
  items.count = ref_elements(out->rank, out->dims);
  if (fold == BS_FOLD_CUMSUM && in->rank > 0 && items.count > 0) items.count /= in->dims[job.axis];
  return ref_items_run(&items, err);
}

const bs_src_loc ref_reduce_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_reduce = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "reduce",
    .backend = "ref",
    .name = "portable",
    .summary = "sums, largest and smallest values, running sums",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
