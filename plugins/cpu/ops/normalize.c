/* SPDX-License-Identifier: MIT
 *
 * normalize.c - layer and rms normalisation, softmax and log_softmax of rows, in f32: X and add are summed up
 * into a row that stays in cache, its statistics are one or two passes over it (isa/rows.h), the last step
 * writes Y. The team shares the rows. */
#include <math.h>
#include <stdlib.h>

#include "spread.h"

enum { X, ADD, GAMMA, BETA, Y, SUM, ARGS };

#define ALONE (1 << 14) /* elements below which the team is not woken */

typedef struct normalize_plan {
  const bs_exec *exec;
  const cpu_state *state;
  int64_t kind;
  double eps;
  uint64_t each;  /* floats of a member: the row, gamma, beta, and a buffer of conversions */
  int64_t length; /* of a row in scratch, on whole cache lines */
} normalize_plan;

typedef struct normalize_call {
  const normalize_plan *plan;
  cpu_spread space;
  float *scratch;
  int32_t failed;
} normalize_call;

/* The data of one member. */
typedef struct member {
  const normalize_call *call;
  float *row, *other;        /* [length] each */
  const float *gamma, *beta; /* NULL: none */
  int64_t n;
} member;

/* ---- a row ---------------------------------------------------------------------------------- */

static int32_t load(const member *m, uint32_t arg, const uint8_t *line, float *out) {
  const cpu_view_of_space *v = &m->call->space.args[arg];
  const int64_t stride = v->strides[m->call->space.rank - 1];
  return cpu_run_load(m->call->plan->state, BS_F32, out, v->dtype, line, stride, m->n, m->other);
}

/* f32 elements side by side are used where they are. */
static int lies_ready(const member *m, uint32_t arg) {
  const cpu_view_of_space *v = &m->call->space.args[arg];
  return v->dtype == BS_F32 && (v->strides[m->call->space.rank - 1] == 1 || m->n == 1);
}

static int32_t store(const member *m, uint32_t arg, int64_t line, const float *from) {
  const cpu_view_of_space *v = &m->call->space.args[arg];
  const int64_t stride = v->strides[m->call->space.rank - 1];
  return cpu_run_store(m->call->plan->state, v->dtype, cpu_spread_line(&m->call->space, arg, line),
                       m->n == 1 ? 1 : stride, BS_F32, from, m->n, m->other);
}

static int32_t add_to_row(const member *m, const uint8_t *add) {
  const cpu_spread *space = &m->call->space;
  const cpu_kernels *kernels = &m->call->plan->state->kernels;
  if (lies_ready(m, ADD)) {
    kernels->add(m->row, (const float *)(const void *)add, m->n);
    return BS_OK;
  }
  float *buffer = m->other + m->call->plan->length; /* of conversions: `other` takes their result */
  const int32_t rc = cpu_run_load(m->call->plan->state, BS_F32, m->other, space->args[ADD].dtype, add,
                                  space->args[ADD].strides[space->rank - 1], m->n, buffer);
  if (rc == BS_OK) kernels->add(m->row, m->other, m->n);
  return rc;
}

/* The row, X or X + add, which `sum` gets. */
static int32_t read_row(const member *m, int64_t line, const float **out_row) {
  const cpu_spread *space = &m->call->space;
  const uint8_t *x = cpu_spread_line(space, X, line);
  *out_row = m->row;
  if (space->args[ADD].data == NULL && lies_ready(m, X)) {
    *out_row = (const float *)(const void *)x;
  } else {
    int32_t rc = load(m, X, x, m->row);
    if (rc == BS_OK && space->args[ADD].data != NULL) rc = add_to_row(m, cpu_spread_line(space, ADD, line));
    if (rc != BS_OK) return rc;
  }
  return space->args[SUM].data != NULL ? store(m, SUM, line, *out_row) : BS_OK;
}

/* Mean and mean of squares in f64, for a row whose sums overflow in f32: squares beyond 1e38. */
static double wide_power(const float *row, int64_t n, int centred, float *out_shift) {
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; i < n && centred; i++) sum += (double)row[i];
  *out_shift = (float)(sum / (double)n);
  for (int64_t i = 0; i < n; i++) {
    const double d = (double)row[i] - (double)*out_shift;
    squares += d * d;
  }
  return squares / (double)n;
}

static void normalize(const member *m, const float *row, float *out) {
  const normalize_plan *plan = m->call->plan;
  const cpu_rows_fns *rows = plan->state->kernels.rows;
  const double n = (double)m->n;
  float shift = 0.0f;
  if (plan->kind >= BS_NORMALIZE_SOFTMAX) {
    const float most = rows->largest(row, m->n);
    if (plan->kind == BS_NORMALIZE_SOFTMAX) {
      const float sum = rows->powers(out, row, most, m->n);
      rows->finish(out, out, 0.0f, 1.0f / sum, NULL, NULL, m->n);
    } else {
      const float sum = rows->powers(m->other, row, most, m->n);
      const double by = (double)most + log((double)sum);
      for (int64_t i = 0; i < m->n; i++) out[i] = (float)((double)row[i] - by);
    }
    return;
  }
  if (plan->kind == BS_NORMALIZE_LAYER) shift = (float)((double)rows->sum(row, m->n) / n);
  double power = (double)rows->squares(row, shift, m->n) / n;
  if (!isfinite(power)) power = wide_power(row, m->n, plan->kind == BS_NORMALIZE_LAYER, &shift);
  rows->finish(out, row, shift, (float)(1.0 / sqrt(power + plan->eps)), m->gamma, m->beta, m->n);
}

static int32_t run_row(const member *m, int64_t line) {
  const float *row = NULL;
  int32_t rc = read_row(m, line, &row);
  if (rc != BS_OK) return rc;
  if (lies_ready(m, Y)) {
    normalize(m, row, (float *)(void *)cpu_spread_line(&m->call->space, Y, line));
    return BS_OK;
  }
  normalize(m, row, m->row);
  return store(m, Y, line, m->row);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static int32_t ready_factor(const member *m, uint32_t arg, float *room, const float **out) {
  const uint8_t *data = m->call->space.args[arg].data;
  *out = NULL;
  if (data == NULL) return BS_OK;
  if (lies_ready(m, arg)) {
    *out = (const float *)(const void *)data;
    return BS_OK;
  }
  *out = room;
  return load(m, arg, data, room);
}

static void run_share(void *arg, uint32_t index, uint32_t width) {
  normalize_call *call = arg;
  const int64_t length = call->plan->length;
  float *base = call->scratch + call->plan->each * index;
  member m = {.call = call, .row = base, .n = call->space.dims[call->space.rank - 1]};
  m.other = base + 3 * length;
  int64_t begin, end;
  cpu_share(call->space.lines, index, width, &begin, &end);
  if (begin == end) return;
  int32_t rc = ready_factor(&m, GAMMA, base + length, &m.gamma);
  if (rc == BS_OK) rc = ready_factor(&m, BETA, base + 2 * length, &m.beta);
  for (int64_t line = begin; rc == BS_OK && line < end; line++) rc = run_row(&m, line);
  if (rc != BS_OK) __atomic_store_n(&call->failed, rc, __ATOMIC_RELAXED);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const normalize_plan *plan = opaque;
  normalize_call call = {.plan = plan, .scratch = plan->exec->scratch(plan->exec->ctx)};
  (void)stream;
  int64_t elements = 1;
  for (uint32_t d = 0; d < args[X]->rank; d++) elements *= args[X]->dims[d];
  if (elements == 0) return BS_OK;
  cpu_spread_make(&call.space, args, nargs, args[X], 1);
  const int32_t rc = cpu_team(plan->exec, elements < ALONE, run_share, &call, err);
  if (rc != BS_OK) return rc;
  if (call.failed == BS_OK) return BS_OK;
  return bs_fail(err, call.failed, "BS-CPU-CONVERT", "the host does not convert these dtypes");
}

/* ---- plans ---------------------------------------------------------------------------------- */

static int64_t length_of(const bs_op_query *query) {
  return (query->args[X]->dims[query->args[X]->rank - 1] + 15) / 16 * 16;
}

/* The row, gamma, beta, `other`, and eight bytes an element to convert in. */
static uint64_t member_floats(const bs_op_query *query) {
  return (uint64_t)length_of(query) * 6;
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  char algo[48];
  for (uint32_t i = 0; i < ARGS; i++)
    if (query->args[i] != NULL && cpu_type_index(query->args[i]->dtype) < 0) {
      cpu_answer_no(answer, BS_REASON_DTYPE, "arg %u of dtype 0x%04x: f32, bf16 and f16 only", i,
                    query->args[i]->dtype);
      return BS_OK;
    }
  if (query->accumulate == BS_ACC_F64) {
    cpu_answer_no(answer, BS_REASON_DTYPE, "sums in f32; the ref backend has f64");
    return BS_OK;
  }
  if (query->args[X]->dims[query->args[X]->rank - 1] > INT64_C(1) << 40) {
    cpu_answer_no(answer, BS_REASON_SHAPE, "rows of more than 2^40 elements");
    return BS_OK;
  }
  if (!cpu_workspace_fits(query, member_floats(query) * sizeof(float), answer)) return BS_OK;
  snprintf(algo, sizeof algo, "rows-%s", state->kernels.name);
  cpu_answer_yes(answer, 700, BS_TOL_ACC_F32, algo, "own kernels, a row at a time");
  answer->bits = 1;
  return BS_OK;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  int32_t rc = cpu_require(supports, opaque, query, err);
  if (rc != BS_OK) return rc;
  normalize_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->state = opaque;
  plan->kind = query->attrs[0];
  plan->eps = query->numbers[0];
  plan->length = length_of(query);
  plan->each = member_floats(query);
  rc = cpu_reserve(exec, plan->each * (exec->width > 0 ? exec->width : 1) * sizeof(float), err);
  if (rc != BS_OK) {
    free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

const bs_src_loc cpu_normalize_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_normalize = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "normalize",
    .backend = "cpu",
    .name = "cpu",
    .summary = "layer, rms, softmax and log_softmax of rows: f32, bf16, f16",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
