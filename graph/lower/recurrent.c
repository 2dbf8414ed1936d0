/* SPDX-License-Identifier: MIT
 * recurrent.c - LSTM, GRU and RNN. One product multiplies the inputs of all steps. Then each step has a
 * product of the state and one map (GRU with linear_before_reset 0: two of each). The number of steps is
 * known, because shapes are known. */
#include <string.h>

#include "graph/lower/build.h"

enum { MOST_STEPS = 8192, MOST_GATES = 4 };

/* The operands of a direction. Gates: LSTM i o f c, GRU z r h, RNN one. */
typedef struct cell {
  build *b;
  int64_t steps, batch, hidden;
  uint32_t gates, dtype;
  uint8_t acts[3];      /* 0: relu */
  uint32_t x;           /* [steps, batch, input] */
  uint32_t w, r;        /* [gates hidden, ..] */
  uint32_t bw, br;      /* [gates hidden]; GNONE */
  uint32_t peepholes;   /* [3 hidden]; GNONE */
  uint32_t h, c;        /* the state: [batch, hidden] */
  uint32_t last;        /* [batch, 1]: the steps of each row; GNONE: all */
  int linear, reversed; /* linear: linear_before_reset */
} cell;

/* x w^T + bias. */
static uint32_t product(build *b, uint32_t x, uint32_t w, uint32_t bias) {
  uint32_t y = GNONE;
  if (b->rc != BS_OK) return GNONE;
  if (lower_is_const(b->c, w)) {
    b->rc = lower_matmul(b->c, x, w, bias, 0, 0, &y, b->err);
    return y;
  }
  return build_contract(b, x, build_swap(b, w, 0, 1), bias, 1);
}

static uint32_t part(build *b, uint32_t value, uint32_t axis, int64_t i, int64_t n) {
  return build_slice(b, value, axis, i * n, n, 1);
}

static uint32_t rows_of(build *b, uint32_t value, const cell *s) {
  const build_shape shape = {2, {s->batch, s->hidden}};
  return build_expand(b, value, &shape);
}

static uint8_t acted(lower_map *m, uint8_t step, uint8_t x) {
  return step == 0 ? lower_map_step(m, BS_EXPR_MAX, x, lower_map_const(m, 0), 0)
                   : lower_map_step(m, step, x, 0, 0);
}

static uint8_t plus(lower_map *m, uint8_t x, uint8_t y) {
  return lower_map_step(m, BS_EXPR_ADD, x, y, 0);
}
static uint8_t by(lower_map *m, uint8_t x, uint8_t y) {
  return lower_map_step(m, BS_EXPR_MUL, x, y, 0);
}

/* Gate i of two sums [batch, gates hidden]: what the input and what the state adds. */
static uint8_t gate(lower_map *m, const cell *s, uint32_t from_x, uint32_t from_h, uint32_t i) {
  const uint8_t x = lower_map_in(m, part(s->b, from_x, 1, i, s->hidden));
  return from_h == GNONE ? x : plus(m, x, lower_map_in(m, part(s->b, from_h, 1, i, s->hidden)));
}

/* Emits the new h (and c), and y: where a row has ended, the state stays and y is 0. */
static void finish(cell *s, lower_map *m, uint8_t h, uint8_t c, int64_t t, uint32_t y) {
  build *b = s->b;
  uint8_t outs[3] = {h, h, c};
  uint32_t into[3] = {y, y, GNONE};
  const build_shape state = {2, {s->batch, s->hidden}};
  const int has_c = s->c != GNONE;
  uint32_t from = 1;
  if (s->last != GNONE) { /* y apart from the state */
    const uint8_t there = lower_map_step(m, BS_EXPR_LT, lower_map_const(m, (double)t),
                                         lower_map_in(m, rows_of(b, s->last, s)), 0);
    outs[0] = lower_map_step(m, BS_EXPR_SELECT, there, h, lower_map_const(m, 0));
    outs[1] = lower_map_step(m, BS_EXPR_SELECT, there, h, lower_map_in(m, s->h));
    if (has_c) outs[2] = lower_map_step(m, BS_EXPR_SELECT, there, c, lower_map_in(m, s->c));
    into[1] = build_temp(b, s->dtype, &state);
    from = 0;
  }
  if (has_c) into[2] = build_temp(b, s->dtype, &state);
  if (b->rc == BS_OK)
    b->rc = lower_map_emit_into(m, b->node, (has_c ? 3 : 2) - from, outs + from, into + from, b->err);
  s->h = into[1];
  if (has_c) s->c = into[2];
}

/* c = f c + i g, h = o act(c); peepholes of c before (i, f) and after (o). */
static void lstm_step(cell *s, uint32_t from_x, int64_t t, uint32_t y) {
  build *b = s->b;
  uint32_t from_h = product(b, s->h, s->r, GNONE);
  lower_map m;
  if (s->peepholes != GNONE && s->last != GNONE) { /* a map has twelve inputs */
    from_x = build_binary(b, BS_EXPR_ADD, from_x, from_h, s->dtype);
    from_h = GNONE;
  }
  if (b->rc != BS_OK) return;
  lower_map_begin(&m, b->c, lower_compute(s->dtype));
  const uint8_t before = lower_map_in(&m, s->c);
  uint8_t sums[4], see[3] = {0};
  for (uint32_t i = 0; i < 4; i++) sums[i] = gate(&m, s, from_x, from_h, i);
  for (uint32_t i = 0; i < 3 && s->peepholes != GNONE; i++)
    see[i] = lower_map_in(&m, rows_of(b, part(b, s->peepholes, 0, i, s->hidden), s));
  if (b->rc != BS_OK) return;
  if (s->peepholes != GNONE) {
    sums[0] = plus(&m, sums[0], by(&m, see[0], before));
    sums[2] = plus(&m, sums[2], by(&m, see[2], before));
  }
  const uint8_t in = acted(&m, s->acts[0], sums[0]), forget = acted(&m, s->acts[0], sums[2]);
  const uint8_t c = plus(&m, by(&m, forget, before), by(&m, in, acted(&m, s->acts[1], sums[3])));
  if (s->peepholes != GNONE) sums[1] = plus(&m, sums[1], by(&m, see[1], c));
  const uint8_t h = by(&m, acted(&m, s->acts[0], sums[1]), acted(&m, s->acts[2], c));
  finish(s, &m, h, c, t, y);
}

/* r h, for the product that linear_before_reset 0 asks for. */
static uint32_t reset_state(cell *s, uint32_t from_x, uint32_t from_h) {
  lower_map m;
  if (s->b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, s->b->c, lower_compute(s->dtype));
  const uint8_t r = acted(&m, s->acts[0], gate(&m, s, from_x, from_h, 1));
  return s->b->rc == BS_OK ? build_map(s->b, &m, by(&m, r, lower_map_in(&m, s->h)), s->dtype) : GNONE;
}

/* h = (1 - z) g + z h. g is made from x and from r times the state's product (linear), or from the product of
 * r h. */
static void gru_step(cell *s, uint32_t from_x, int64_t t, uint32_t y) {
  build *b = s->b;
  const uint32_t two = 2; /* z and r */
  const uint32_t from_h =
      product(b, s->h, s->linear ? s->r : part(b, s->r, 0, 0, two * s->hidden),
              s->linear || s->br == GNONE ? s->br : part(b, s->br, 0, 0, two * s->hidden));
  uint32_t late = GNONE;
  if (!s->linear)
    late = product(b, reset_state(s, from_x, from_h), part(b, s->r, 0, two, s->hidden),
                   s->br == GNONE ? GNONE : part(b, s->br, 0, two, s->hidden));
  lower_map m;
  if (b->rc != BS_OK) return;
  lower_map_begin(&m, b->c, lower_compute(s->dtype));
  const uint8_t z = acted(&m, s->acts[0], gate(&m, s, from_x, from_h, 0));
  uint8_t more;
  if (s->linear)
    more = by(&m, acted(&m, s->acts[0], gate(&m, s, from_x, from_h, 1)),
              lower_map_in(&m, part(b, from_h, 1, two, s->hidden)));
  else
    more = lower_map_in(&m, late);
  const uint8_t g = acted(&m, s->acts[1], plus(&m, gate(&m, s, from_x, GNONE, two), more));
  const uint8_t kept = by(&m, z, lower_map_in(&m, s->h));
  const uint8_t rest = lower_map_step(&m, BS_EXPR_SUB, lower_map_const(&m, 1), z, 0);
  if (b->rc == BS_OK) finish(s, &m, lower_map_step(&m, BS_EXPR_FMA, rest, g, kept), 0, t, y);
}

static void rnn_step(cell *s, uint32_t from_x, int64_t t, uint32_t y) {
  const uint32_t from_h = product(s->b, s->h, s->r, GNONE);
  lower_map m;
  if (s->b->rc != BS_OK) return;
  lower_map_begin(&m, s->b->c, lower_compute(s->dtype));
  const uint8_t h = acted(&m, s->acts[0], gate(&m, s, from_x, from_h, 0));
  if (s->b->rc == BS_OK) finish(s, &m, h, 0, t, y);
}

/* One direction: y [steps, batch, hidden] is written, h and c are the last state. */
static void run_cell(cell *s, uint32_t y) {
  build *b = s->b;
  uint32_t bias = s->bw;
  /* GRU keeps the state's own bias, because r multiplies it. */
  if (s->gates != 3 && bias != GNONE) bias = build_binary(b, BS_EXPR_ADD, bias, s->br, s->dtype);
  const uint32_t flat = build_join_dims(b, s->x, 0, 2);
  const uint32_t all = build_split_dim(b, product(b, flat, s->w, bias), 0, s->steps, s->batch);
  for (int64_t k = 0; k < s->steps && b->rc == BS_OK; k++) {
    const int64_t t = s->reversed ? s->steps - 1 - k : k;
    const uint32_t from_x = build_squeeze(b, part(b, all, 0, t, 1), 0);
    const uint32_t to = build_squeeze(b, part(b, y, 0, t, 1), 0);
    if (s->gates == 4)
      lstm_step(s, from_x, t, to);
    else if (s->gates == 3)
      gru_step(s, from_x, t, to);
    else
      rnn_step(s, from_x, t, to);
  }
}

/* ---- the node -------------------------------------------------------------------------------- */

/* The activations of direction d; 255: one that is not served. */
static void read_activations(build *b, uint32_t d, cell *s) {
  static const struct {
    const char *name;
    uint8_t step;
  } known[] = {{"Sigmoid", BS_EXPR_SIGMOID}, {"Tanh", BS_EXPR_TANH}, {"Relu", 0}};
  const uint32_t n = s->gates == 4 ? 3 : s->gates == 3 ? 2 : 1;
  const bs_attr *given = NULL;
  for (uint32_t i = 0; i < b->node->n_attr; i++)
    if (strcmp(b->node->attrs[i].name, "activations") == 0) given = &b->node->attrs[i];
  for (uint32_t i = 0; i < n; i++) {
    s->acts[i] = i == 0 && n > 1 ? BS_EXPR_SIGMOID : BS_EXPR_TANH;
    if (given == NULL || given->type != BS_ATTR_TEXTS || d * n + i >= given->count) continue;
    uint32_t k = 0;
    while (k < 3 && strcmp(known[k].name, given->texts[d * n + i]) != 0) k++;
    if (k == 3) build_refuse(b, 0, "an activation that is not Sigmoid, Tanh or Relu");
    if (k < 3) s->acts[i] = known[k].step;
  }
}

/* The steps of each row [batch, 1] as floats; GNONE: they are all the steps. */
static uint32_t read_lengths(build *b, uint32_t value, const cell *s) {
  int64_t n[1024];
  int all = 1;
  if (value == GNONE || b->rc != BS_OK) return GNONE;
  if (s->batch <= 1024 && lower_is_const(b->c, value)) {
    const uint32_t count = build_read_ints(b, value, "its lengths", n, 1024);
    for (uint32_t i = 0; i < count; i++) all = all && n[i] >= s->steps;
    if (all) return GNONE;
  }
  return build_unsqueeze(b, build_cast(b, value, s->dtype), 1);
}

static uint32_t matrix_at(build *b, uint32_t value, uint32_t d) {
  return value == GNONE ? GNONE : build_squeeze(b, build_slice(b, value, 0, d, 1, 1), 0);
}

static uint32_t start_at(build *b, uint32_t value, uint32_t d, const cell *s) {
  const build_shape state = {2, {s->batch, s->hidden}};
  return value != GNONE ? matrix_at(b, value, d)
                        : build_copy(b, build_expand(b, build_real(b, s->dtype, 0), &state));
}

/* Inputs of the node; layout 1 is seen as 0. */
typedef struct operands {
  uint32_t x, w, r, bias, lengths, h, c, peepholes;
  uint32_t directions;
  int batch_first, reversed;
} operands;

static operands read_operands(build *b, uint32_t gates) {
  const gmodel_node *node = b->node;
  const char *direction = lower_text(node, "direction", "forward");
  operands o = {build_in(b, 0),
                build_in(b, 1),
                build_in(b, 2),
                build_optional(b, 3),
                build_optional(b, 4),
                build_optional(b, 5),
                GNONE,
                GNONE,
                1,
                0,
                0};
  if (gates == 4) o.c = build_optional(b, 6);
  if (gates == 4) o.peepholes = build_optional(b, 7);
  o.batch_first = lower_int(node, "layout", 0) != 0;
  o.reversed = strcmp(direction, "reverse") == 0;
  o.directions = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
  for (uint32_t i = 0; i < node->n_attr; i++)
    if (strcmp(node->attrs[i].name, "clip") == 0) build_refuse(b, 0, "clip");
  if (lower_int(node, "input_forget", 0) != 0) build_refuse(b, 0, "input_forget");
  build_check(b, build_is_float(build_dtype(b, o.x)), "the operator takes floats");
  build_check(b, build_rank(b, o.x) == 3 && build_rank(b, o.w) == 3 && build_rank(b, o.r) == 3,
              "X, W and R need three dims");
  if (o.batch_first && b->rc == BS_OK) {
    o.x = build_swap(b, o.x, 0, 1);
    if (o.h != GNONE) o.h = build_swap(b, o.h, 0, 1);
    if (o.c != GNONE) o.c = build_swap(b, o.c, 0, 1);
  }
  return o;
}

static int has_shape(const build *b, uint32_t value, uint32_t rank, const int64_t *dims) {
  const build_shape s = build_shape_of(b, value);
  int same = s.rank == rank;
  for (uint32_t i = 0; same && i < rank; i++) same = s.dims[i] == dims[i];
  return value == GNONE || same;
}

static void check_operands(build *b, const operands *o, const cell *s) {
  if (b->rc != BS_OK) return;
  const int64_t g = s->gates, n = s->hidden, D = o->directions;
  const int64_t w[3] = {D, g * n, build_dim(b, o->x, 2)}, r[3] = {D, g * n, n}, bias[2] = {D, 2 * g * n};
  const int64_t h[3] = {D, s->batch, n}, p[2] = {D, 3 * n}, lengths[1] = {s->batch};
  build_check(b, has_shape(b, o->w, 3, w) && has_shape(b, o->r, 3, r) && has_shape(b, o->bias, 2, bias),
              "the shapes of W, R or B do not fit X and hidden_size");
  build_check(b,
              has_shape(b, o->h, 3, h) && has_shape(b, o->c, 3, h) && has_shape(b, o->peepholes, 2, p) &&
                  has_shape(b, o->lengths, 1, lengths),
              "the shapes of a state, of P or of sequence_lens do not fit");
  if (s->steps * D > MOST_STEPS) build_refuse(b, 0, "more than 8192 steps");
}

/* The first directions' states, one after another. */
static void put_states(build *b, const operands *o, uint32_t i, const uint32_t *states) {
  uint32_t parts[2] = {GNONE, GNONE};
  if (!lower_wants(b->node, i)) return;
  for (uint32_t d = 0; d < o->directions; d++) parts[d] = build_unsqueeze(b, states[d], 0);
  const uint32_t all = build_concat(b, parts, o->directions, 0);
  build_out(b, i, o->batch_first ? build_swap(b, all, 0, 1) : all);
}

static int32_t recurrent(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t gates = node->op[0] == 'L' ? 4 : node->op[0] == 'G' ? 3 : 1;
  const operands o = read_operands(&b, gates);
  if (b.rc != BS_OK) return b.rc;
  cell s = {.b = &b, .gates = gates, .x = o.x, .dtype = build_dtype(&b, o.x)};
  s.steps = build_dim(&b, o.x, 0);
  s.batch = build_dim(&b, o.x, 1);
  s.hidden = build_dim(&b, o.r, 2);
  s.linear = gates == 3 && lower_int(node, "linear_before_reset", 0) != 0;
  check_operands(&b, &o, &s);
  s.last = read_lengths(&b, o.lengths, &s);
  const build_shape shape = {4, {s.steps, o.directions, s.batch, s.hidden}};
  const uint32_t y = build_temp(&b, s.dtype, &shape);
  uint32_t h[2] = {GNONE, GNONE}, last_c[2] = {GNONE, GNONE};
  for (uint32_t d = 0; d < o.directions && b.rc == BS_OK; d++) {
    const uint32_t bias = matrix_at(&b, o.bias, d);
    const int64_t n = (int64_t)gates * s.hidden;
    s.w = matrix_at(&b, o.w, d);
    s.r = matrix_at(&b, o.r, d);
    s.bw = bias != GNONE ? part(&b, bias, 0, 0, n) : GNONE;
    s.br = bias != GNONE ? part(&b, bias, 0, 1, n) : GNONE;
    s.peepholes = matrix_at(&b, o.peepholes, d);
    s.h = start_at(&b, o.h, d, &s);
    s.c = gates == 4 ? start_at(&b, o.c, d, &s) : GNONE;
    s.reversed = o.reversed || d == 1;
    read_activations(&b, d, &s);
    run_cell(&s, build_squeeze(&b, build_slice(&b, y, 1, d, 1, 1), 1));
    h[d] = s.h;
    last_c[d] = s.c;
  }
  static const uint32_t batch_first[4] = {2, 0, 1, 3};
  build_out(&b, 0, o.batch_first ? build_permute(&b, y, batch_first) : y);
  put_states(&b, &o, 1, h);
  if (gates == 4) put_states(&b, &o, 2, last_c);
  return b.rc;
}

const lower_rule lower_rules_recurrent[] = {
    {"GRU", 7, 0, recurrent, NULL}, {"LSTM", 7, 0, recurrent, NULL}, {"RNN", 7, 0, recurrent, NULL}, {0}};
