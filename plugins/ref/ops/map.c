/* SPDX-License-Identifier: MIT
 * map.c - a small program for each element (include/blockshock/expr.h says what each step means). Values are
 * held as doubles or as 64-bit integers; in F32 each step's result is rounded to f32, which for sums,
 * products, quotients and roots is the correctly rounded result. An output may be an input: a piece is read
 * whole before any of it is written. Pieces of lines are divided over the team. */
#include "blockshock/expr_value.h"

#include "../ref.h"

enum {
  CHUNK = 16,  /* elements that a program processes together: its values are on the stack */
  PIECE = 1024 /* elements of an item */
};
enum { MAX_VALUES = BS_EXPR_MAX_IN + BS_EXPR_MAX_CONST + BS_EXPR_MAX_STEPS };

typedef union cell {
  double f;
  int64_t i;
} cell;

typedef struct map_plan {
  ref_plan base;
  uint32_t compute, n_in, n_const, n_steps, n_out, reserved;
  uint64_t consts[BS_EXPR_MAX_CONST];
  bs_expr_step steps[BS_EXPR_MAX_STEPS];
  uint8_t outs[BS_EXPR_MAX_OUT];
} map_plan;

typedef struct map_job {
  const map_plan *plan;
  uint32_t rank;
  int64_t dims[BS_MAX_DIMS];
  int64_t cols, pieces; /* of a line: elements, items */
  ref_spread args[BS_EXPR_MAX_IN + BS_EXPR_MAX_OUT];
} map_job;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  const bs_expr *e = q->expr;
  if (e == NULL || e->max_op >= BS_EXPR_OP_COUNT_)
    return ref_answer_no(out_answer, BS_REASON_LIB_VERSION, "step %u of a program: known up to %d",
                         e != NULL ? e->max_op : 0, BS_EXPR_OP_COUNT_ - 1);
  if (e->n_in > BS_EXPR_MAX_IN || e->n_const > BS_EXPR_MAX_CONST || e->n_steps > BS_EXPR_MAX_STEPS ||
      e->n_out > BS_EXPR_MAX_OUT || q->nargs != e->n_in + e->n_out)
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "a program larger than those of expr.h");
  if (!ref_args_known(q)) return ref_answer_no(out_answer, BS_REASON_DTYPE, "an unknown dtype");
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  void *made = NULL;
  const int32_t rc = ref_plan_make(&ref_map, state, exec, q, sizeof(map_plan), &made, err);
  if (rc != BS_OK) return rc;
  map_plan *plan = made;
  const bs_expr *e = q->expr;
  plan->compute = e->compute;
  plan->n_in = e->n_in;
  plan->n_const = e->n_const;
  plan->n_steps = e->n_steps;
  plan->n_out = e->n_out;
  if (e->n_const > 0) memcpy(plan->consts, e->consts, e->n_const * sizeof *e->consts);
  if (e->n_steps > 0) memcpy(plan->steps, e->steps, e->n_steps * sizeof *e->steps);
  memcpy(plan->outs, e->outs, e->n_out);
  *out_plan = plan;
  return BS_OK;
}

/* ---- values ----------------------------------------------------------------------------------- */

/* Between values of a program and elements of its `compute`. */
static void cells_of(uint32_t compute, int64_t n, const void *in, cell *out) {
  if (compute == BS_F32) {
    const float *v = in;
    for (int64_t i = 0; i < n; i++) out[i].f = (double)v[i];
  } else {
    memcpy(out, in, (size_t)n * sizeof *out);
  }
}

static void cells_to(uint32_t compute, int64_t n, const cell *in, void *out) {
  if (compute == BS_F32) {
    float *v = out;
    for (int64_t i = 0; i < n; i++) v[i] = (float)in[i].f;
  } else {
    memcpy(out, in, (size_t)n * sizeof *in);
  }
}

static int32_t load(const map_plan *plan, const ref_view *v, int64_t first, int64_t n, cell *out) {
  _Alignas(8) unsigned char piece[CHUNK * 8];
  const int32_t rc = ref_load(plan->base.host, v, 0, NULL, first, n, plan->compute, piece);
  if (rc == BS_OK) cells_of(plan->compute, n, piece, out);
  return rc;
}

static int32_t store(const map_plan *plan, const ref_view *v, int64_t first, int64_t n, const cell *in) {
  _Alignas(8) unsigned char piece[CHUNK * 8];
  cells_to(plan->compute, n, in, piece);
  return ref_store_value(plan->base.host, v, first, n, plan->compute, piece);
}

/* Converted to a dtype as an output of it would be, and back. */
static int32_t through(const map_plan *plan, uint32_t dtype, int64_t n, const cell *in, cell *out) {
  _Alignas(8) unsigned char narrow[CHUNK * 8];
  const ref_view v = {
      .data = narrow, .dtype = dtype, .size = BS_DTYPE_BYTES(dtype), .rows = 1, .cols = n, .col = 1};
  const int32_t rc = store(plan, &v, 0, n, in);
  return rc == BS_OK ? load(plan, &v, 0, n, out) : rc;
}

/* The elements' index along a dimension: `at` are the coordinates of their line, `first` the first one's. */
static void indices(const map_job *job, uint32_t axis, const int64_t *at, int64_t first, int64_t n,
                    cell *out) {
  for (int64_t i = 0; i < n; i++) {
    const int64_t index = axis + 1 == job->rank ? first + i : at[axis];
    if (job->plan->compute == BS_I64)
      out[i].i = index;
    else
      out[i].f = job->plan->compute == BS_F32 ? (double)(float)index : (double)index;
  }
}

static void constants(const map_plan *plan, cell (*values)[CHUNK]) {
  for (uint32_t k = 0; k < plan->n_const; k++) {
    cell value;
    if (plan->compute == BS_F32) {
      const uint32_t low = (uint32_t)plan->consts[k];
      float f;
      memcpy(&f, &low, sizeof f);
      value.f = (double)f;
    } else {
      memcpy(&value, &plan->consts[k], sizeof value);
    }
    for (int64_t i = 0; i < CHUNK; i++) values[plan->n_in + k][i] = value;
  }
}

static int32_t one_step(const map_job *job, const bs_expr_step *s, const int64_t *at, int64_t first,
                        int64_t n, cell (*values)[CHUNK], cell *out) {
  const map_plan *plan = job->plan;
  if (s->op == BS_EXPR_INDEX) {
    indices(job, s->a, at, first, n, out);
    return BS_OK;
  }
  if (s->op == BS_EXPR_TO) return through(plan, (uint32_t)s->b << 8 | s->c, n, values[s->a], out);
  const cell *x = values[s->a], *y = values[s->b], *z = values[s->c];
  for (int64_t i = 0; i < n; i++) {
    if (plan->compute == BS_I64) {
      out[i].i = bs_expr_value_i64(s->op, x[i].i, y[i].i, z[i].i);
    } else {
      const double v = bs_expr_value(s->op, x[i].f, y[i].f, z[i].f);
      out[i].f = plan->compute == BS_F32 ? (double)(float)v : v;
    }
  }
  return BS_OK;
}

/* Elements first .. first+n of a line; lines[i] is arg i's part of it. */
static int32_t chunk(const map_job *job, const ref_view *lines, const int64_t *at, int64_t first, int64_t n,
                     cell (*values)[CHUNK]) {
  const map_plan *plan = job->plan;
  const uint32_t steps = plan->n_in + plan->n_const;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < plan->n_in; i++) rc = load(plan, &lines[i], first, n, values[i]);
  for (uint32_t k = 0; rc == BS_OK && k < plan->n_steps; k++)
    rc = one_step(job, &plan->steps[k], at, first, n, values, values[steps + k]);
  for (uint32_t o = 0; rc == BS_OK && o < plan->n_out; o++)
    rc = store(plan, &lines[plan->n_in + o], first, n, values[plan->outs[o]]);
  return rc;
}

static int32_t part(const ref_items *items, int64_t begin, int64_t end, uint32_t member, bs_error *err) {
  (void)member;
  (void)err;
  const map_job *job = items->user;
  const map_plan *plan = job->plan;
  const uint32_t last = job->rank > 0 ? job->rank - 1 : 0;
  cell values[MAX_VALUES][CHUNK] = {{{0}}};
  int32_t rc = BS_OK;
  constants(plan, values);
  for (int64_t item = begin; rc == BS_OK && item < end; item++) {
    int64_t at[BS_MAX_DIMS] = {0};
    ref_view lines[BS_EXPR_MAX_IN + BS_EXPR_MAX_OUT];
    const int64_t from = item % job->pieces * PIECE;
    const int64_t to = job->cols - from < PIECE ? job->cols : from + PIECE;
    ref_coordinates(item / job->pieces, last, job->dims, at);
    for (uint32_t i = 0; i < plan->n_in + plan->n_out; i++)
      lines[i] = ref_line_along(&job->args[i], last, at);
    for (int64_t c = from; rc == BS_OK && c < to; c += CHUNK)
      rc = chunk(job, lines, at, c, to - c < CHUNK ? to - c : CHUNK, values);
  }
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)stream;
  const map_plan *plan = opaque;
  const bs_tensor *out = args[plan->n_in];
  map_job job = {.plan = plan, .rank = out->rank};
  memcpy(job.dims, out->dims, sizeof job.dims);
  job.cols = out->rank > 0 ? out->dims[out->rank - 1] : 1;
  job.pieces = job.cols / PIECE + (job.cols % PIECE != 0);
  for (uint32_t i = 0; i < nargs; i++) job.args[i] = ref_spread_of(args[i], out->rank, out->dims);
  ref_items items = {.plan = &plan->base, .part = part, .user = &job};
  items.count = ref_lines(out->rank, out->dims) * job.pieces;
  return ref_items_run(&items, err);
}

const bs_src_loc ref_map_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_map = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "map",
    .backend = "ref",
    .name = "portable",
    .summary = "a small program for each element",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
