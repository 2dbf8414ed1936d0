/* SPDX-License-Identifier: MIT
 *
 * reduce.c - sums, products, largest and smallest values and their places of f32, bf16 and f16, folded in
 * double. Where the last dimension is reduced, lines are folded to a number each, in eight chains; else
 * lines are folded into one another, a piece at a time. Outputs are divided over the team. */
#include <math.h>
#include <stdlib.h>

#include "panels.h"

enum { IN, OUT };
enum { PIECE = 256, CHAINS = 8, MEMBERS = 64, LONG = 4096 };
#define ALONE 16384 /* elements up to which the team is not woken */

typedef struct reduce_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  int64_t fold, axis, last; /* last: of equal places the last one */
  double factor;
} reduce_plan;

typedef struct reduce_call {
  const reduce_plan *plan;
  const bs_tensor *in, *out;
  uint32_t outer;                /* dims but the last */
  int64_t over[BS_MAX_DIMS];     /* sizes of reduced dims, else 1 */
  int64_t columns, lines, folds; /* of in's lines: elements, outputs, and how many are folded to each */
  int whole;                     /* the last dimension is reduced */
  double parts[MEMBERS];         /* one largest or smallest value: of each member's lines */
} reduce_call;

static int is_place(int64_t fold) {
  return fold == BS_FOLD_ARGMAX || fold == BS_FOLD_ARGMIN;
}

static int is_end(int64_t fold) {
  return fold == BS_FOLD_MAX || fold == BS_FOLD_MIN;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *answer) {
  (void)state;
  const bs_tensor_desc *in = q->args[IN], *out = q->args[OUT];
  const int place = is_place(q->attrs[0]);
  if (cpu_type_index(in->dtype) < 0 || (!place && cpu_type_index(out->dtype) < 0))
    cpu_answer_no(answer, BS_REASON_DTYPE, "f32, bf16 and f16 only");
  else if (q->attrs[0] == BS_FOLD_CUMSUM || (place && q->attrs[1] + 1 != (int64_t)in->rank))
    cpu_answer_no(answer, BS_REASON_NOT_BUILT, "no running sums, and places along the last dimension only");
  else {
    cpu_answer_yes(answer, 800, place ? BS_TOL_EXACT : BS_TOL_ACC_F32, "lines", "lines folded in double");
    answer->bits = 1;
  }
  return BS_OK;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  const cpu_state *state = opaque;
  (void)packed;
  const int32_t rc = cpu_require(supports, opaque, q, err);
  if (rc != BS_OK) return rc;
  reduce_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = (reduce_plan){exec, &state->kernels, q->attrs[0], q->attrs[1], q->attrs[2], q->numbers[0]};
  *out_plan = plan;
  return BS_OK;
}

/* ---- folding ---------------------------------------------------------------------------------- */

static double begin_of(int64_t fold) {
  return fold == BS_FOLD_PROD ? 1.0 : fold == BS_FOLD_MAX ? -INFINITY : fold == BS_FOLD_MIN ? INFINITY : 0.0;
}

/* so_far[i] becomes the fold with v[i]; NaN is passed on. */
static void fold_each(int64_t fold, double *so_far, const float *v, int64_t n) {
  switch (fold) {
    case BS_FOLD_MAX:
      for (int64_t i = 0; i < n; i++)
        if ((double)v[i] > so_far[i] || isnan(v[i])) so_far[i] = (double)v[i];
      return;
    case BS_FOLD_MIN:
      for (int64_t i = 0; i < n; i++)
        if ((double)v[i] < so_far[i] || isnan(v[i])) so_far[i] = (double)v[i];
      return;
    case BS_FOLD_PROD:
      for (int64_t i = 0; i < n; i++) so_far[i] *= (double)v[i];
      return;
    case BS_FOLD_SUMSQ:
      for (int64_t i = 0; i < n; i++) so_far[i] += (double)v[i] * (double)v[i];
      return;
    default:
      for (int64_t i = 0; i < n; i++) so_far[i] += (double)v[i];
      return;
  }
}

/* The chains' ends by the same fold; of sums of squares they are added. */
static double join(int64_t fold, const double *chains) {
  double all = chains[0];
  for (int i = 1; i < CHAINS; i++) {
    const double v = chains[i];
    if (fold == BS_FOLD_MAX)
      all = v > all || isnan(v) ? v : all;
    else if (fold == BS_FOLD_MIN)
      all = v < all || isnan(v) ? v : all;
    else
      all = fold == BS_FOLD_PROD ? all * v : all + v;
  }
  return all;
}

/* The lines of in that belong to output line or element `at`, one after the other. */
static cpu_lines line_of(const reduce_call *c, int64_t at, int64_t fold) {
  const bs_tensor *in = c->in, *out = c->out;
  int64_t offset = 0;
  for (uint32_t d = c->outer; d-- > 0;) {
    const int64_t index = c->over[d] > 1 ? fold % c->over[d] : out->dims[d] > 1 ? at % out->dims[d] : 0;
    if (c->over[d] > 1)
      fold /= c->over[d];
    else
      at /= out->dims[d];
    offset += index * in->strides[d];
  }
  const uint32_t size = BS_DTYPE_BYTES(in->dtype);
  return (cpu_lines){(const uint8_t *)in->data + offset * (int64_t)size, (uint32_t)cpu_type_index(in->dtype),
                     size, 0, in->rank > 0 ? in->strides[in->rank - 1] : 1};
}

static uint8_t *out_at(const reduce_call *c, int64_t at) {
  int64_t offset = 0;
  for (uint32_t d = c->outer; d-- > 0; at /= c->out->dims[d])
    offset += at % c->out->dims[d] * c->out->strides[d];
  return (uint8_t *)c->out->data + offset * (int64_t)BS_DTYPE_BYTES(c->out->dtype);
}

/* The largest or the smallest of so_far and a line. */
static double end_of_line(const reduce_call *c, const cpu_lines *line, double so_far) {
  const int most = c->plan->fold == BS_FOLD_MAX, in_place = line->type == 0 && line->column == 1;
  const int64_t step = in_place ? c->columns : PIECE;
  float ends[2] = {INFINITY, -INFINITY}, v[PIECE];
  ends[most] = (float)so_far;
  for (int64_t k = 0; k < c->columns; k += step) {
    const int64_t n = c->columns - k < step ? c->columns - k : step;
    if (!in_place) cpu_lines_load(c->plan->kernels, line, 0, k, n, n, v);
    c->plan->kernels->ends(in_place ? (const float *)(const void *)line->data : v, n, &ends[0], &ends[1]);
  }
  return (double)ends[most];
}

static double fold_line(const reduce_call *c, const cpu_lines *line, double so_far) {
  const int64_t fold = c->plan->fold;
  double chains[CHAINS];
  float v[PIECE];
  if (is_end(fold)) return end_of_line(c, line, so_far);
  for (int i = 0; i < CHAINS; i++) chains[i] = begin_of(fold);
  chains[0] = so_far;
  for (int64_t k = 0; k < c->columns; k += PIECE) {
    const int64_t n = c->columns - k < PIECE ? c->columns - k : PIECE;
    cpu_lines_load(c->plan->kernels, line, 0, k, n, n, v);
    for (int64_t i = 0; i < n; i += CHAINS) fold_each(fold, chains, v + i, n - i < CHAINS ? n - i : CHAINS);
  }
  return join(fold, chains);
}

static int64_t place_in(const reduce_call *c, const cpu_lines *line) {
  const int least = c->plan->fold == BS_FOLD_ARGMIN, last = c->plan->last != 0;
  int64_t place = 0;
  float v[PIECE], best = 0.0f;
  for (int64_t k = 0; k < c->columns; k += PIECE) {
    const int64_t n = c->columns - k < PIECE ? c->columns - k : PIECE;
    cpu_lines_load(c->plan->kernels, line, 0, k, n, n, v);
    for (int64_t i = 0; i < n; i++) {
      const int ahead =
          isnan(v[i]) ? !isnan(best) || last : (least ? v[i] < best : v[i] > best) || (last && v[i] == best);
      if (k + i > 0 && !ahead) continue;
      best = v[i];
      place = k + i;
    }
  }
  return place;
}

/* ---- outputs ---------------------------------------------------------------------------------- */

static void whole_line(const reduce_call *c, int64_t at) {
  const reduce_plan *plan = c->plan;
  uint8_t *to = out_at(c, at);
  if (is_place(plan->fold)) {
    const cpu_lines line = line_of(c, at, 0);
    const int64_t place = place_in(c, &line);
    const int32_t narrow = (int32_t)place;
    if (c->out->dtype == BS_I64)
      memcpy(to, &place, sizeof place);
    else
      memcpy(to, &narrow, sizeof narrow);
    return;
  }
  double v = begin_of(plan->fold);
  for (int64_t f = 0; f < c->folds; f++) {
    const cpu_lines line = line_of(c, at, f);
    v = fold_line(c, &line, v);
  }
  const float result = (float)(v * plan->factor);
  plan->kernels->store[cpu_type_index(c->out->dtype)](to, &result, 1);
}

static void line_of_outputs(const reduce_call *c, int64_t at) {
  const reduce_plan *plan = c->plan;
  const uint32_t rank = c->out->rank, size = BS_DTYPE_BYTES(c->out->dtype);
  const cpu_lines out = {out_at(c, at), (uint32_t)cpu_type_index(c->out->dtype), size, 0,
                         rank > 0 ? c->out->strides[rank - 1] : 1};
  for (int64_t k = 0; k < c->columns; k += PIECE) {
    const int64_t n = c->columns - k < PIECE ? c->columns - k : PIECE;
    double so_far[PIECE];
    float v[PIECE];
    for (int64_t i = 0; i < n; i++) so_far[i] = begin_of(plan->fold);
    for (int64_t f = 0; f < c->folds; f++) {
      const cpu_lines line = line_of(c, at, f);
      cpu_lines_load(plan->kernels, &line, 0, k, n, n, v);
      fold_each(plan->fold, so_far, v, n);
    }
    for (int64_t i = 0; i < n; i++) v[i] = (float)(so_far[i] * plan->factor);
    cpu_lines_store(plan->kernels, &out, 0, k, n, v);
  }
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const reduce_call *c = arg;
  int64_t begin, end;
  cpu_share(c->lines, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    if (c->whole)
      whole_line(c, i);
    else
      line_of_outputs(c, i);
  }
}

/* Lines of f32 without gaps are one. */
static int is_one_line(const reduce_call *c) {
  const bs_tensor *in = c->in;
  int64_t step = 1;
  if (in->dtype != BS_F32) return 0;
  for (uint32_t d = in->rank; d-- > 0; step *= in->dims[d])
    if (in->dims[d] > 1 && in->strides[d] != step) return 0;
  return 1;
}

/* Parts of the lines that are folded to one number; of one long line pieces of it. */
static void share_lines(void *arg, uint32_t member, uint32_t width) {
  reduce_call *c = arg;
  const uint32_t members = width < MEMBERS ? width : MEMBERS;
  const int64_t all = c->folds * c->columns;
  const int most = c->plan->fold == BS_FOLD_MAX, one = is_one_line(c);
  float ends[2] = {INFINITY, -INFINITY};
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(one ? (all + LONG - 1) / LONG : c->folds, member, members, &begin, &end);
  for (int64_t f = begin; one && f < end; f++)
    c->plan->kernels->ends((const float *)c->in->data + f * LONG,
                           all - f * LONG < LONG ? all - f * LONG : LONG, &ends[0], &ends[1]);
  double v = (double)ends[most];
  for (int64_t f = begin; !one && f < end; f++) {
    const cpu_lines line = line_of(c, 0, f);
    v = fold_line(c, &line, v);
  }
  c->parts[member] = v;
}

/* One largest or smallest value of many lines: which member sees a line does not matter. */
static int32_t run_end(reduce_call *c, int alone, bs_error *err) {
  const reduce_plan *plan = c->plan;
  const uint32_t width = plan->exec->width, members = width < MEMBERS ? width : MEMBERS;
  for (uint32_t i = 0; i == 0 || i < members; i++) c->parts[i] = begin_of(plan->fold);
  const int32_t rc = cpu_team(plan->exec, alone, share_lines, c, err);
  double v = c->parts[0];
  for (uint32_t i = 1; i < members; i++) fold_each(plan->fold, &v, &(float){(float)c->parts[i]}, 1);
  const float result = (float)(v * plan->factor);
  plan->kernels->store[cpu_type_index(c->out->dtype)](out_at(c, 0), &result, 1);
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const reduce_plan *plan = opaque;
  const bs_tensor *in = args[IN], *out = args[OUT];
  const uint32_t rank = in->rank;
  reduce_call c = {.plan = plan, .in = in, .out = out, .columns = 1, .lines = 1, .folds = 1};
  (void)nargs;
  (void)stream;
  c.outer = rank > 0 ? rank - 1 : 0;
  for (uint32_t d = 0; d < c.outer; d++) {
    c.over[d] = out->dims[d] == 1 ? in->dims[d] : 1;
    c.folds *= c.over[d];
    c.lines *= out->dims[d];
  }
  if (rank > 0) {
    c.columns = in->dims[rank - 1];
    c.whole = out->dims[rank - 1] == 1;
  }
  if (c.lines == 0 || (c.columns == 0 && !c.whole)) return BS_OK;
  const int alone = c.lines * c.folds * (c.columns + 1) < (is_end(plan->fold) ? 4 * ALONE : ALONE);
  if (c.whole && c.lines == 1 && is_end(plan->fold)) return run_end(&c, alone, err);
  return cpu_team(plan->exec, alone, share, &c, err);
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_src_loc cpu_reduce_op_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_reduce_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "reduce",
    .backend = "cpu",
    .name = "lines",
    .summary = "folds of lines in double",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
