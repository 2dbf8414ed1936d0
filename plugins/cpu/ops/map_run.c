/* SPDX-License-Identifier: MIT
 *
 * map_run.c - a run of map: the space is cut into lines and these into chunks, which the team shares. Of a
 * chunk the inputs are read (in place where they lie as the program computes), then each step is one loop,
 * then the outputs are written; an output that no later step could harm is written by its step. */
#include "map.h"
#include "spread.h"

#include <math.h>

#define ALONE (1 << 14) /* elements below which the team is not woken */
#define FEW 16          /* elements of a line for which a call of memcpy is not worth it */

typedef struct map_call {
  const cpu_map_plan *plan;
  cpu_spread space;
  int64_t pieces; /* chunks of a line */
  uint8_t *scratch;
  uint8_t direct[BS_EXPR_MAX_OUT]; /* of this call: the step writes the output's memory */
  int32_t failed;
} map_call;

/* One member's data: the place of each value of the chunk. */
typedef struct map_member {
  const map_call *call;
  uint8_t *slots;
  void *at[CPU_MAP_VALUES];
  int64_t coordinates[BS_MAX_DIMS]; /* of the line */
  int64_t first, n;                 /* of the chunk in its line */
  _Alignas(64) uint8_t buffer[CPU_MAP_CHUNK * 8];
} map_member;

static void *slot(const map_member *m, uint32_t value) {
  const cpu_map_plan *plan = m->call->plan;
  return m->slots + (size_t)plan->slot[value] * CPU_MAP_CHUNK * plan->size;
}

static void fill(void *out, const void *value, uint32_t size, int64_t n) {
  if (size == 4) {
    float f, *to = out;
    memcpy(&f, value, sizeof f);
    for (int64_t i = 0; i < n; i++) to[i] = f;
  } else {
    uint64_t u, *to = out;
    memcpy(&u, value, sizeof u);
    for (int64_t i = 0; i < n; i++) to[i] = u;
  }
}

static void make_constants(map_member *m) {
  const cpu_map_plan *plan = m->call->plan;
  for (uint32_t i = 0; i < plan->n_const; i++) {
    const uint32_t low = (uint32_t)plan->consts[i];
    void *to = slot(m, plan->n_in + i);
    fill(to, plan->size == 4 ? (const void *)&low : (const void *)&plan->consts[i], plan->size,
         CPU_MAP_CHUNK);
    m->at[plan->n_in + i] = to;
  }
}

/* ---- a chunk -------------------------------------------------------------------------------- */

static int32_t read_input(map_member *m, uint32_t i, const uint8_t *line) {
  const cpu_map_plan *plan = m->call->plan;
  const cpu_view_of_space *v = &m->call->space.args[i];
  const int64_t stride = v->strides[m->call->space.rank - 1];
  const uint8_t *from = line + m->first * stride * (int64_t)v->size;
  if (v->dtype == plan->compute && stride == 1) {
    m->at[i] = (void *)(uintptr_t)from; /* only read */
    return BS_OK;
  }
  m->at[i] = slot(m, i);
  if (stride != 0)
    return cpu_run_load(plan->state, plan->compute, m->at[i], v->dtype, from, stride, m->n, m->buffer);
  uint64_t one = 0;
  const int32_t rc = cpu_run_load(plan->state, plan->compute, &one, v->dtype, from, 1, 1, m->buffer);
  fill(m->at[i], &one, plan->size, m->n);
  return rc;
}

static void indices(const map_member *m, uint32_t axis, void *out) {
  const cpu_map_plan *plan = m->call->plan;
  const int last = axis + 1 == m->call->space.rank;
  for (int64_t i = 0; i < m->n; i++) {
    const int64_t index = last ? m->first + i : m->coordinates[axis];
    if (plan->compute == BS_F32)
      ((float *)out)[i] = (float)index;
    else if (plan->compute == BS_F64)
      ((double *)out)[i] = (double)index;
    else
      ((int64_t *)out)[i] = index;
  }
}

/* Converts values to the dtype of an output and back. */
static int32_t through(map_member *m, uint32_t dtype, const void *in, void *out) {
  const cpu_map_plan *plan = m->call->plan;
  _Alignas(8) uint8_t narrow[CPU_MAP_CHUNK * 8];
  const int32_t rc = cpu_run_store(plan->state, dtype, narrow, 1, plan->compute, in, m->n, m->buffer);
  if (rc != BS_OK) return rc;
  return cpu_run_load(plan->state, plan->compute, out, dtype, narrow, 1, m->n, m->buffer);
}

static int32_t run_steps(map_member *m) {
  const cpu_map_plan *plan = m->call->plan;
  const uint32_t first = plan->n_in + plan->n_const;
  int32_t rc = BS_OK;
  for (uint32_t s = 0; rc == BS_OK && s < plan->n_steps; s++) {
    const bs_expr_step *step = &plan->steps[s];
    void *out = m->at[first + s];
    if (step->op == BS_EXPR_INDEX)
      indices(m, step->a, out);
    else if (step->op == BS_EXPR_TO)
      rc = through(m, (uint32_t)step->b << 8 | step->c, m->at[step->a], out);
    else if (plan->steps_of != NULL)
      plan->steps_of[step->op](out, m->at[step->a], m->at[step->b], m->at[step->c], m->n);
    else
      cpu_map_wide(&plan->state->kernels, plan->compute, step->op, out, m->at[step->a], m->at[step->b],
                   m->at[step->c], m->n);
  }
  return rc;
}

static int32_t run_chunk(map_member *m, uint8_t *const *lines) {
  const map_call *call = m->call;
  const cpu_map_plan *plan = call->plan;
  const uint32_t last = call->space.rank - 1, first = plan->n_in + plan->n_const;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < plan->n_in; i++) rc = read_input(m, i, lines[i]);
  for (uint32_t i = 0; i < plan->n_out; i++) {
    const uint32_t arg = plan->n_in + i;
    if (plan->outs[i] < first) continue;
    m->at[plan->outs[i]] =
        call->direct[i] ? lines[arg] + m->first * (int64_t)plan->size : slot(m, plan->outs[i]);
  }
  if (rc == BS_OK) rc = run_steps(m);
  for (uint32_t i = 0; rc == BS_OK && i < plan->n_out; i++) {
    const cpu_view_of_space *v = &call->space.args[plan->n_in + i];
    const int64_t stride = v->strides[last];
    if (call->direct[i]) continue;
    rc = cpu_run_store(plan->state, v->dtype, lines[plan->n_in + i] + m->first * stride * (int64_t)v->size,
                       stride, plan->compute, m->at[plan->outs[i]], m->n, m->buffer);
  }
  return rc;
}

/* The bytes as they are. */
static void copy_chunk(const map_member *m, uint8_t *const *lines) {
  const cpu_spread *space = &m->call->space;
  const uint32_t last = space->rank - 1, size = space->args[0].size;
  const int64_t from = space->args[0].strides[last], to = space->args[1].strides[last];
  const uint8_t *x = lines[0] + m->first * from * (int64_t)size;
  uint8_t *y = lines[1] + m->first * to * (int64_t)size;
  if (from == 1 && to == 1 && (size != 4 || m->n > FEW)) {
    if (x != y) memcpy(y, x, (size_t)m->n * size);
    return;
  }
  for (int64_t i = 0; i < m->n && size == 4; i++) memcpy(y + i * to * 4, x + i * from * 4, 4);
  if (size == 4) return;
  for (int64_t i = 0; i < m->n; i++, x += from * (int64_t)size, y += to * (int64_t)size) {
    if (size == 2)
      memcpy(y, x, 2);
    else if (size == 8)
      memcpy(y, x, 8);
    else
      *y = *x;
  }
}

/* ---- the team ------------------------------------------------------------------------------- */

static void go_to_line(map_member *m, int64_t line, uint8_t **lines) {
  const cpu_spread *space = &m->call->space;
  int64_t rest = line;
  for (uint32_t i = 0; i < space->nargs; i++) lines[i] = cpu_spread_line(space, i, line);
  for (uint32_t d = space->rank - 1; d-- > 0; rest /= space->dims[d])
    m->coordinates[d] = rest % space->dims[d];
}

/* From a line to the next one, without a division: windows of a convolution have lines of 3 elements. */
static void go_on(map_member *m, uint8_t **lines) {
  const cpu_spread *space = &m->call->space;
  for (uint32_t d = space->rank - 1; d-- > 0;) {
    const int turned = m->coordinates[d] + 1 == space->dims[d];
    const int64_t steps = turned ? -m->coordinates[d] : 1;
    m->coordinates[d] += steps;
    for (uint32_t i = 0; i < space->nargs; i++)
      lines[i] += steps * space->args[i].strides[d] * (int64_t)space->args[i].size;
    if (!turned) return;
  }
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  map_call *call = arg;
  const cpu_map_plan *plan = call->plan;
  const int64_t length = call->space.dims[call->space.rank - 1];
  int64_t begin, end;
  uint8_t *lines[CPU_MAP_ARGS];
  map_member m;
  for (uint32_t i = 0; i < CPU_MAP_ARGS; i++) lines[i] = call->space.args[i].data;
  cpu_share(call->space.lines * call->pieces, member, width, &begin, &end);
  if (begin == end) return;
  m.call = call;
  m.slots = call->scratch + plan->each * member;
  memset(m.at, 0, sizeof m.at);
  for (uint32_t v = 0; v < plan->n_in + plan->n_const + plan->n_steps; v++) m.at[v] = slot(&m, v);
  make_constants(&m);
  int64_t line = begin / call->pieces;
  go_to_line(&m, line, lines);
  for (int64_t i = begin; i < end; i++) {
    if (i >= (line + 1) * call->pieces) {
      go_on(&m, lines);
      line++;
    }
    m.first = (i - line * call->pieces) * CPU_MAP_CHUNK;
    m.n = length - m.first < CPU_MAP_CHUNK ? length - m.first : CPU_MAP_CHUNK;
    if (plan->copies) {
      copy_chunk(&m, lines);
      continue;
    }
    const int32_t rc = run_chunk(&m, lines);
    if (rc != BS_OK) __atomic_store_n(&call->failed, rc, __ATOMIC_RELAXED);
  }
}

#define CUT 16 /* elements: members get multiples of it */

/* Lines are shared in pieces of CUT elements, so that a few long lines serve a whole team too. A member's
 * share is the end of a line, blocks of whole lines of the same outer dimensions, and the begin of a line. */
static void run_form(void *arg, uint32_t member, uint32_t width) {
  const map_call *call = arg;
  const cpu_spread *space = &call->space;
  const uint32_t last = space->rank - 1, outer = last > 0 ? last - 1 : 0;
  const int64_t length = space->dims[last], cuts = (length + CUT - 1) / CUT;
  int64_t begin, end;
  cpu_share(space->lines * cuts, member, width, &begin, &end);
  while (begin < end) {
    const int64_t line = begin / cuts, first = begin % cuts, left = end - begin;
    cpu_form form = {.lines = 1, .n = length};
    int64_t pieces = cuts;
    if (first > 0 || left < cuts) {
      pieces = cuts - first < left ? cuts - first : left;
      form.n = first + pieces < cuts ? pieces * CUT : length - first * CUT;
    } else if (last > 0) {
      form.lines = space->dims[outer] - line % space->dims[outer];
      if (form.lines > left / cuts) form.lines = left / cuts;
    }
    for (uint32_t i = 0; i < space->nargs; i++) {
      form.at[i] = (float *)(void *)cpu_spread_line(space, i, line) + first * CUT;
      form.step[i] = space->args[i].strides[outer];
    }
    call->plan->form(&form);
    begin += form.lines * pieces;
  }
}

static int has_form(const map_call *call) {
  if (call->plan->form == NULL) return 0;
  for (uint32_t i = 0; i < call->space.nargs; i++)
    if (call->space.args[i].strides[call->space.rank - 1] != 1) return 0;
  return 1;
}

/* An output that is an input is not written before that is read for the last time. */
static void choose_direct(map_call *call) {
  const cpu_map_plan *plan = call->plan;
  const uint32_t last = call->space.rank - 1;
  for (uint32_t i = 0; i < plan->n_out; i++) {
    const cpu_view_of_space *v = &call->space.args[plan->n_in + i];
    int direct = plan->direct[i] && v->dtype == plan->compute && v->strides[last] == 1;
    for (uint32_t j = 0; j < plan->n_in; j++)
      if ((plan->read_later[i] >> j & 1u) && call->space.args[j].data == v->data) direct = 0;
    call->direct[i] = (uint8_t)direct;
  }
}

int32_t cpu_map_run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cpu_map_plan *plan = opaque;
  const bs_tensor *like = args[plan->n_in];
  map_call call = {.plan = plan, .scratch = plan->exec->scratch(plan->exec->ctx)};
  (void)stream;
  int64_t elements = 1;
  for (uint32_t d = 0; d < like->rank; d++) elements *= like->dims[d];
  if (elements == 0) return BS_OK;
  cpu_spread_make(&call.space, args, nargs, like, plan->places ? like->rank : 0);
  const int64_t length = call.space.dims[call.space.rank - 1];
  call.pieces = (length + CPU_MAP_CHUNK - 1) / CPU_MAP_CHUNK;
  choose_direct(&call);
  void (*const share)(void *, uint32_t, uint32_t) = has_form(&call) ? run_form : run_share;
  const int32_t rc = cpu_team(plan->exec, elements < ALONE, share, &call, err);
  if (rc != BS_OK) return rc;
  if (call.failed == BS_OK) return BS_OK;
  return bs_fail(err, call.failed, "BS-CPU-CONVERT", "the host does not convert these dtypes");
}
