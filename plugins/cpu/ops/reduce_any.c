/* SPDX-License-Identifier: MIT
 *
 * reduce_any.c - what the "lines" of reduce.c leave: integers, bool, f64 and floats of eight bits, running
 * sums, and places along any axis. Integers are folded in 64 bits, modulo 2^64, floats in double. A piece of
 * up to 256 outputs that lie in one line is folded together; a line that is reduced itself is folded to 256
 * numbers, which are then joined. Pieces are divided over the team. */
#include <math.h>
#include <stdlib.h>

#include "integers.h"
#include "places.h"

enum { IN, OUT };
enum { PIECE = 256 };
#define ALONE 16384 /* elements up to which the team is not woken */

typedef struct reduce_plan {
  const bs_exec *exec;
  const cpu_state *state;
  int64_t fold, axis, flags;
  double factor;
} reduce_plan;

/* Numbers of a piece: f of floats, i of all else. */
typedef union numbers {
  double f[PIECE];
  int64_t i[PIECE];
} numbers;

typedef struct reduce_call {
  const reduce_plan *plan;
  const bs_tensor *in, *out;
  int integers;
  int along;                    /* the last dimension is folded, or its running sums are made */
  uint32_t outer;               /* dims but the last */
  int64_t over[BS_MAX_DIMS];    /* of outer dims: sizes of those that are folded, else 1 */
  int64_t kept[BS_MAX_DIMS];    /* the others */
  int64_t columns, in_step;     /* of in's lines */
  int64_t lines, folds, pieces; /* lines of outputs; how many of in's belong to each; pieces of one */
} reduce_call;

static int is_place(int64_t fold) {
  return fold == BS_FOLD_ARGMAX || fold == BS_FOLD_ARGMIN;
}

static int is_whole(uint32_t dtype) {
  return cpu_is_integer(dtype) || dtype == BS_BOOL;
}

static int is_float(uint32_t dtype) {
  return dtype == BS_F64 || cpu_wide_index(dtype) >= 0;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  const uint32_t in = q->args[IN]->dtype, out = q->args[OUT]->dtype;
  const int exact = is_whole(in) || is_place(q->attrs[0]);
  if ((!is_whole(in) && !is_float(in)) || (!is_whole(out) && !is_float(out)))
    cpu_answer_no(answer, BS_REASON_DTYPE, "dtypes 0x%04x to 0x%04x", in, out);
  else if (q->attrs[0] < BS_FOLD_SUM || q->attrs[0] > BS_FOLD_CUMSUM)
    cpu_answer_no(answer, BS_REASON_NOT_BUILT, "fold %lld", (long long)q->attrs[0]);
  else
    cpu_answer_yes(answer, 700, exact ? BS_TOL_EXACT : BS_TOL_ACC_F64, "pieces",
                   exact ? "in 64 bits" : "in double");
  return BS_OK;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cpu_require(supports, opaque, q, err);
  if (rc != BS_OK) return rc;
  reduce_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = (reduce_plan){exec, opaque, q->attrs[0], q->attrs[1], q->attrs[2], q->numbers[0]};
  *out_plan = plan;
  return BS_OK;
}

/* ---- numbers ---------------------------------------------------------------------------------- */

static void load(const reduce_call *c, const uint8_t *from, int64_t stride, int64_t n, numbers *out) {
  const uint32_t dtype = c->in->dtype, size = BS_DTYPE_BYTES(dtype);
  if (c->integers && stride == 1 && cpu_whole_index(dtype) >= 0) {
    c->plan->state->kernels.i64_load[cpu_whole_index(dtype)](out->i, from, n);
  } else if (c->integers) {
    cpu_integers_load(dtype, from, stride, n, out->i);
  } else if (dtype == BS_F64) {
    cpu_copy_strided(out->f, 1, from, stride, n, size);
  } else {
    float narrow[PIECE], v[PIECE];
    if (stride != 1) {
      cpu_copy_strided(narrow, 1, from, stride, n, size);
      from = (const uint8_t *)narrow;
    }
    c->plan->state->kernels.load[cpu_wide_index(dtype)](v, from, n);
    for (int64_t i = 0; i < n; i++) out->f[i] = (double)v[i];
  }
}

static void store(const reduce_call *c, uint8_t *to, int64_t stride, int64_t n, numbers *v) {
  const uint32_t dtype = c->out->dtype, size = BS_DTYPE_BYTES(dtype);
  if (!is_float(dtype)) {
    cpu_integers_store(dtype, to, stride, n, v->i);
    return;
  }
  double narrow[PIECE];
  for (int64_t i = 0; i < n; i++) v->f[i] *= c->plan->factor;
  (void)c->plan->state->host->convert(dtype, stride == 1 ? (void *)to : narrow, BS_F64, v->f, (uint64_t)n);
  if (stride != 1) cpu_copy_strided(to, stride, narrow, 1, n, size);
}

/* The fold of nothing: of max and min the end of in's range. */
static void begin_with(const reduce_call *c, int64_t n, numbers *out) {
  const int64_t fold = c->plan->fold;
  const uint32_t dtype = c->in->dtype, bits = 8 * BS_DTYPE_BYTES(dtype);
  const int64_t most = dtype == BS_BOOL ? 1 : dtype == BS_U8 ? 255 : (int64_t)(UINT64_MAX >> (65 - bits));
  const int64_t least = dtype == BS_BOOL || dtype == BS_U8 ? 0 : -most - 1;
  const int64_t i = fold == BS_FOLD_PROD ? 1 : fold == BS_FOLD_MAX ? least : fold == BS_FOLD_MIN ? most : 0;
  const double f = fold == BS_FOLD_PROD  ? 1.0
                   : fold == BS_FOLD_MAX ? -INFINITY
                   : fold == BS_FOLD_MIN ? INFINITY
                                         : 0.0;
  for (int64_t k = 0; k < n; k++) {
    if (c->integers)
      out->i[k] = i;
    else
      out->f[k] = f;
  }
}

/* so_far[i] becomes the fold with v[i]; NaN is passed on. */
static void fold_floats(int64_t fold, double *so_far, const double *v, int64_t n) {
  switch (fold) {
    case BS_FOLD_MAX:
      for (int64_t i = 0; i < n; i++) so_far[i] = v[i] > so_far[i] || isnan(v[i]) ? v[i] : so_far[i];
      return;
    case BS_FOLD_MIN:
      for (int64_t i = 0; i < n; i++) so_far[i] = v[i] < so_far[i] || isnan(v[i]) ? v[i] : so_far[i];
      return;
    case BS_FOLD_PROD:
      for (int64_t i = 0; i < n; i++) so_far[i] *= v[i];
      return;
    case BS_FOLD_SUMSQ:
      for (int64_t i = 0; i < n; i++) so_far[i] += v[i] * v[i];
      return;
    default:
      for (int64_t i = 0; i < n; i++) so_far[i] += v[i];
      return;
  }
}

/* Modulo 2^64. */
static void fold_integers(int64_t fold, int64_t *so_far, const int64_t *v, int64_t n) {
  uint64_t *sums = (uint64_t *)so_far;
  switch (fold) {
    case BS_FOLD_MAX:
      for (int64_t i = 0; i < n; i++) so_far[i] = v[i] > so_far[i] ? v[i] : so_far[i];
      return;
    case BS_FOLD_MIN:
      for (int64_t i = 0; i < n; i++) so_far[i] = v[i] < so_far[i] ? v[i] : so_far[i];
      return;
    case BS_FOLD_PROD:
      for (int64_t i = 0; i < n; i++) sums[i] *= (uint64_t)v[i];
      return;
    case BS_FOLD_SUMSQ:
      for (int64_t i = 0; i < n; i++) sums[i] += (uint64_t)v[i] * (uint64_t)v[i];
      return;
    default:
      for (int64_t i = 0; i < n; i++) sums[i] += (uint64_t)v[i];
      return;
  }
}

static void fold_each(const reduce_call *c, int64_t fold, numbers *so_far, int64_t at, const numbers *v,
                      int64_t from, int64_t n) {
  if (c->integers && fold == BS_FOLD_SUM)
    c->plan->state->kernels.i64_add(so_far->i + at, so_far->i + at, v->i + from, n);
  else if (c->integers)
    fold_integers(fold, so_far->i + at, v->i + from, n);
  else
    fold_floats(fold, so_far->f + at, v->f + from, n);
}

/* ---- lines ------------------------------------------------------------------------------------ */

/* Offset in elements of t's line for output line `at` and folded line `fold`. */
static int64_t offset_of(const reduce_call *c, const bs_tensor *t, int64_t at, int64_t fold) {
  int64_t offset = 0;
  for (uint32_t d = c->outer; d-- > 0;) {
    if (c->kept[d] > 1) {
      offset += at % c->kept[d] * t->strides[d];
      at /= c->kept[d];
    } else if (c->over[d] > 1) {
      offset += fold % c->over[d] * t->strides[d];
      fold /= c->over[d];
    }
  }
  return offset;
}

static const uint8_t *in_line(const reduce_call *c, int64_t at, int64_t fold) {
  return (const uint8_t *)c->in->data + offset_of(c, c->in, at, fold) * (int64_t)BS_DTYPE_BYTES(c->in->dtype);
}

/* Elements k .. k + n of a line of in. */
static void load_at(const reduce_call *c, const uint8_t *line, int64_t k, int64_t n, numbers *out) {
  load(c, line + k * c->in_step * (int64_t)BS_DTYPE_BYTES(c->in->dtype), c->in_step, n, out);
}

static uint8_t *out_line(const reduce_call *c, int64_t at, int64_t fold) {
  return (uint8_t *)c->out->data + offset_of(c, c->out, at, fold) * (int64_t)BS_DTYPE_BYTES(c->out->dtype);
}

/* Whole lines are folded to the output `at`. */
static void fold_lines(const reduce_call *c, int64_t at) {
  const int64_t fold = c->plan->fold, join = fold == BS_FOLD_SUMSQ ? BS_FOLD_SUM : fold;
  const int64_t most = c->columns < PIECE ? c->columns : PIECE;
  numbers so_far, v;
  begin_with(c, most > 0 ? most : 1, &so_far);
  for (int64_t f = 0; f < c->folds; f++) {
    const uint8_t *line = in_line(c, at, f);
    for (int64_t k = 0; k < c->columns; k += PIECE) {
      const int64_t n = c->columns - k < PIECE ? c->columns - k : PIECE;
      load_at(c, line, k, n, &v);
      fold_each(c, fold, &so_far, 0, &v, 0, n);
    }
  }
  for (int64_t n = most; n > 1; n -= n / 2) fold_each(c, join, &so_far, 0, &so_far, n - n / 2, n / 2);
  store(c, out_line(c, at, 0), 1, 1, &so_far);
}

/* Running sums of line `at`. flags: 1 without the element itself, 2 from the end. */
static void run_line(const reduce_call *c, int64_t at) {
  const int without = (c->plan->flags & 1) != 0, back = (c->plan->flags & 2) != 0;
  const uint8_t *line = in_line(c, at, 0);
  uint8_t *to = out_line(c, at, 0);
  const int64_t step = c->out->strides[c->outer], size = BS_DTYPE_BYTES(c->out->dtype);
  numbers sum, v;
  begin_with(c, 1, &sum);
  for (int64_t done = 0, n; done < c->columns; done += n) {
    n = c->columns - done < PIECE ? c->columns - done : PIECE;
    const int64_t k = back ? c->columns - done - n : done;
    load_at(c, line, k, n, &v);
    for (int64_t i = 0; i < n; i++) {
      const int64_t e = back ? n - 1 - i : i;
      if (c->integers) {
        const int64_t before = sum.i[0];
        sum.i[0] = (int64_t)((uint64_t)before + (uint64_t)v.i[e]);
        v.i[e] = without ? before : sum.i[0];
      } else {
        const double before = sum.f[0];
        sum.f[0] += v.f[e];
        v.f[e] = without ? before : sum.f[0];
      }
    }
    store(c, to + k * step * size, step, n, &v);
  }
}

/* Is element i of v a better place than the best so far? NaN is the best, the first one of two. */
static int is_better(const reduce_call *c, const numbers *v, int64_t i, const numbers *best, int64_t b) {
  const int least = c->plan->fold == BS_FOLD_ARGMIN, last = c->plan->flags != 0;
  if (c->integers) {
    const int64_t x = v->i[i], y = best->i[b];
    return (least ? x < y : x > y) || (last && x == y);
  }
  const double x = v->f[i], y = best->f[b];
  if (isnan(x) || isnan(y)) return isnan(x) && (last || !isnan(y));
  return (least ? x < y : x > y) || (last && x == y);
}

static void place_in_line(const reduce_call *c, int64_t at) {
  const uint8_t *line = in_line(c, at, 0);
  numbers best, v;
  int64_t place = 0;
  for (int64_t k = 0; k < c->columns; k += PIECE) {
    const int64_t n = c->columns - k < PIECE ? c->columns - k : PIECE;
    load_at(c, line, k, n, &v);
    for (int64_t i = 0; i < n; i++) {
      if (k + i > 0 && !is_better(c, &v, i, &best, 0)) continue;
      best.i[0] = v.i[i];
      place = k + i;
    }
  }
  cpu_integers_store(c->out->dtype, out_line(c, at, 0), 1, 1, &place);
}

/* ---- pieces of lines -------------------------------------------------------------------------- */

/* Outputs k .. k + n of line `at`; running sums: those of all lines that belong to it. */
static void fold_piece(const reduce_call *c, int64_t at, int64_t k, int64_t n) {
  const reduce_plan *plan = c->plan;
  const int64_t step = c->out->rank > 0 ? c->out->strides[c->outer] : 1, size = BS_DTYPE_BYTES(c->out->dtype);
  const int running = plan->fold == BS_FOLD_CUMSUM;
  const int without = (plan->flags & 1) != 0, back = running && (plan->flags & 2) != 0;
  numbers so_far, v;
  begin_with(c, n, &so_far);
  for (int64_t i = 0; i < c->folds; i++) {
    const int64_t f = back ? c->folds - 1 - i : i;
    load_at(c, in_line(c, at, f), k, n, &v);
    if (!running) {
      fold_each(c, plan->fold, &so_far, 0, &v, 0, n);
      continue;
    }
    numbers shown = so_far;
    fold_each(c, plan->fold, &so_far, 0, &v, 0, n);
    if (!without) shown = so_far;
    store(c, out_line(c, at, f) + k * step * size, step, n, &shown);
  }
  if (!running) store(c, out_line(c, at, 0) + k * step * size, step, n, &so_far);
}

static void place_piece(const reduce_call *c, int64_t at, int64_t k, int64_t n) {
  const int64_t step = c->out->strides[c->outer], size = BS_DTYPE_BYTES(c->out->dtype);
  numbers best, v;
  int64_t places[PIECE] = {0};
  for (int64_t f = 0; f < c->folds; f++) {
    load_at(c, in_line(c, at, f), k, n, &v);
    for (int64_t i = 0; i < n; i++) {
      if (f > 0 && !is_better(c, &v, i, &best, i)) continue;
      best.i[i] = v.i[i];
      places[i] = f;
    }
  }
  cpu_integers_store(c->out->dtype, out_line(c, at, 0) + k * step * size, step, n, places);
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const reduce_call *c = arg;
  const int64_t fold = c->plan->fold;
  int64_t begin, end;
  cpu_share(c->lines * c->pieces, member, width, &begin, &end);
  for (int64_t item = begin; item < end; item++) {
    const int64_t at = item / c->pieces, k = item % c->pieces * PIECE;
    const int64_t n = c->columns - k < PIECE ? c->columns - k : PIECE;
    if (is_place(fold) && c->along)
      place_in_line(c, at);
    else if (is_place(fold))
      place_piece(c, at, k, n);
    else if (fold == BS_FOLD_CUMSUM && c->along)
      run_line(c, at);
    else if (c->along)
      fold_lines(c, at);
    else
      fold_piece(c, at, k, n);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const reduce_plan *plan = opaque;
  const bs_tensor *in = args[IN], *out = args[OUT];
  const uint32_t rank = in->rank;
  reduce_call c = {.plan = plan, .in = in, .out = out, .columns = 1, .in_step = 1};
  (void)nargs;
  (void)stream;
  c.integers = is_whole(in->dtype);
  c.outer = rank > 0 ? rank - 1 : 0;
  c.lines = c.folds = c.pieces = 1;
  for (uint32_t d = 0; d < c.outer; d++) {
    const int one = plan->fold == BS_FOLD_CUMSUM ? d == plan->axis : out->dims[d] == 1;
    c.over[d] = one ? in->dims[d] : 1;
    c.kept[d] = one ? 1 : in->dims[d];
    c.folds *= c.over[d];
    c.lines *= c.kept[d];
  }
  if (rank > 0) {
    c.columns = in->dims[rank - 1];
    c.in_step = in->strides[rank - 1];
    c.along = plan->fold == BS_FOLD_CUMSUM || is_place(plan->fold) ? plan->axis + 1 == (int64_t)rank
                                                                   : out->dims[rank - 1] == 1;
  }
  if (!c.along) c.pieces = (c.columns + PIECE - 1) / PIECE;
  if (c.lines * c.pieces == 0) return BS_OK;
  return cpu_team(plan->exec, c.lines * c.folds * (c.columns + 1) < ALONE, share, &c, err);
}

const bs_src_loc cpu_reduce_any_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_reduce_any = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "reduce",
    .backend = "cpu",
    .name = "any",
    .summary = "integers, bool, f64, running sums, places along any axis",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
