/* SPDX-License-Identifier: MIT
 * program_attention.c - see program.h. A lane takes blocks of queries one after the other. Of each block:
 * load Q; of each block of keys load K, load V, scores (Q K^T), exp, values (P V); then store. The scores of
 * later steps may go ahead of the values. Steps of a lane are numbered through all of its blocks. */
#include <stdlib.h>

#include "core/base/error.h"
#include "sim/program_parts.h"

enum phase { PHASE_Q = 0, PHASE_K, PHASE_V, PHASE_SCORES, PHASE_EXP, PHASE_VALUES, PHASE_STORE };
enum { RING = SIM_PROGRAM_STAGES, Q_SLOTS = 2 };

/* Where the operands begin. */
#define K_BEGINS (UINT64_C(1) << 40)
#define V_BEGINS (UINT64_C(2) << 40)
#define O_BEGINS (UINT64_C(3) << 40)

/* One step: a block of queries with a block of keys. */
typedef struct step {
  uint64_t turn, number; /* of the lane's blocks, of its steps */
  uint64_t key, end;     /* blocks of keys */
  uint32_t first, over;  /* the first of its block; there are no more */
} step;

/* Where a lane is, and the numbers of its last jobs. */
typedef struct sim_attention_lane {
  step scores, values;
  uint32_t phase;
  uint64_t q, k, v, score;                           /* the last of each */
  uint64_t exp_at[RING], v_at[RING], value_at[RING]; /* by step */
  uint64_t read_at[Q_SLOTS], store_at[RING];         /* by block: its last scores, its store */
  step made[SIM_OPEN];                               /* of the newest jobs */
} sim_attention_lane;

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* ---- steps ------------------------------------------------------------------------------------- */

static uint64_t clipped(int64_t key, uint64_t t) {
  return key < 0 ? 0 : least((uint64_t)key, t);
}

/* The blocks of keys that a block of queries sees; at least one. */
static void keys_of(const sim_attention *a, uint64_t block, uint64_t *out_first, uint64_t *out_end) {
  const sim_attention_shape *s = &a->shape;
  const uint64_t from = block % a->query_blocks * a->plan.knobs.tm,
                 last = least(from + a->plan.knobs.tm, s->s) - 1;
  const uint64_t first = clipped((int64_t)from + s->sees_from, s->t),
                 end = clipped((int64_t)last + s->sees_end, s->t);
  *out_first = least(first, s->t - 1) / a->plan.knobs.tn;
  *out_end = sim_divided(end, a->plan.knobs.tn);
  if (*out_end <= *out_first) *out_end = *out_first + 1;
}

/* Every second turn goes the other way round: where later queries see more keys, lanes have equal work. An
 * idle lane has a block that is not there. */
static uint64_t block_of(const sim_attention *a, uint32_t lane, uint64_t turn) {
  const uint32_t lanes = sim_working(a->plan.layout, &a->plan.knobs);
  uint32_t number;
  if (!sim_works(a->plan.layout, &a->plan.knobs, lane, &number)) return a->blocks;
  return turn * lanes + (turn % 2 == 0 ? number : lanes - 1 - number);
}

/* The first step of the block of a turn. */
static void begin_block(const sim_attention *a, uint32_t lane, step *s) {
  const uint64_t block = block_of(a, lane, s->turn);
  s->first = 1;
  s->over = block >= a->blocks;
  if (!s->over) keys_of(a, block, &s->key, &s->end);
}

static int is_last(const step *s) {
  return s->key + 1 == s->end;
}

static void advance(const sim_attention *a, uint32_t lane, step *s) {
  s->number++;
  s->first = 0;
  if (++s->key < s->end) return;
  s->turn++;
  begin_block(a, lane, s);
}

static void start(sim_program *p) {
  sim_attention *a = &p->attention;
  for (uint32_t l = 0; l < a->plan.layout->device->lanes; l++) {
    a->lanes[l] = (sim_attention_lane){.phase = PHASE_Q};
    begin_block(a, l, &a->lanes[l].scores);
    begin_block(a, l, &a->lanes[l].values);
  }
}

/* ---- the plan ---------------------------------------------------------------------------------- */

uint32_t sim_attention_q_slots(const sim_attention *a) {
  return a->plan.knobs.stages > 1 ? Q_SLOTS : 1;
}

/* Q, K and V in their slots, scores and sums in f32, and a tile of O that leaves. */
static uint64_t scratch_of(const sim_attention *a) {
  const sim_attention_shape *s = &a->shape;
  const sim_knobs *k = &a->plan.knobs;
  return sim_attention_q_slots(a) * k->tm * s->d * s->in_bytes +
         k->stages * k->tn * (s->d + s->e) * s->in_bytes + UINT64_C(4) * (1 + k->ahead) * k->tm * k->tn +
         k->tm * s->e * (UINT64_C(4) * k->accumulators + s->out_bytes);
}

/* Steps of all blocks. */
static uint64_t steps_of(const sim_attention *a) {
  uint64_t steps = 0, first, end;
  for (uint64_t b = 0; b < a->query_blocks; b++) {
    keys_of(a, b, &first, &end);
    steps += end - first;
  }
  return steps * a->shape.heads;
}

static int32_t make(const sim_layout *layout, const sim_op *op, const sim_knobs *knobs, sim_program *p,
                    bs_error *err) {
  sim_attention *a = &p->attention;
  const sim_attention_shape *s = &a->shape;
  a->shape = op->attention;
  int32_t rc = sim_plan_make(layout, knobs, 1, &a->plan, err);
  if (rc == BS_OK)
    rc = sim_plan_has(&a->plan, a->plan.unit, "unit for products", "a server with does: product", err);
  if (rc == BS_OK)
    rc = sim_plan_has(&a->plan, a->plan.vector, "unit for exp", "a server with does: map", err);
  if (rc != BS_OK) return rc;
  const sim_knobs *k = &a->plan.knobs;
  const uint32_t *grain = layout->device->classes[a->plan.unit].grain;
  a->query_blocks = sim_divided(s->s, k->tm);
  a->blocks = s->heads * a->query_blocks;
  a->scores = 2 * sim_grained(k->tm, grain[0]) * sim_grained(k->tn, grain[1]) * sim_grained(s->d, grain[2]);
  a->values = 2 * sim_grained(k->tm, grain[0]) * sim_grained(s->e, grain[1]) * sim_grained(k->tn, grain[2]);
  rc = sim_plan_tokens((double)a->blocks, err);
  if (rc == BS_OK) rc = sim_plan_tokens((double)steps_of(a) * 5 + 2.0 * (double)a->blocks, err);
  if (rc == BS_OK) rc = sim_device_fits(layout->device, layout->device->lanes_each * scratch_of(a), err);
  if (rc != BS_OK) return rc;
  a->lanes = calloc(layout->device->lanes, sizeof *a->lanes);
  if (a->lanes == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for %u lanes", layout->device->lanes);
  start(p);
  return BS_OK;
}

static void close(sim_program *p) {
  free(p->attention.lanes);
  p->attention.lanes = NULL;
}

/* ---- jobs -------------------------------------------------------------------------------------- */

/* `rows` of an operand of a head, from row `from`. */
static void move(sim_attention *a, uint32_t way, uint32_t lane, uint64_t begins, uint64_t head, uint64_t from,
                 uint64_t rows, uint64_t in_head, uint64_t row_bytes, sim_job *j) {
  sim_plan_move(&a->plan, way, lane, begins + (head * in_head + from) * row_bytes,
                least(rows, in_head - from) * row_bytes, j);
}

static void move_queries(sim_attention *a, uint32_t way, uint32_t lane, uint64_t turn, sim_job *j) {
  const sim_attention_shape *s = &a->shape;
  const uint64_t block = block_of(a, lane, turn), head = block / a->query_blocks,
                 from = block % a->query_blocks * a->plan.knobs.tm;
  if (way == SIM_WAY_LOAD)
    move(a, way, lane, 0, head, from, a->plan.knobs.tm, s->s, s->d * s->in_bytes, j);
  else
    move(a, way, lane, O_BEGINS, head, from, a->plan.knobs.tm, s->s, s->e * s->out_bytes, j);
}

static void load_keys(sim_attention *a, uint32_t lane, const step *at, int of_v, sim_job *j) {
  const sim_attention_shape *s = &a->shape;
  const uint64_t head = block_of(a, lane, at->turn) / a->query_blocks / s->group;
  move(a, SIM_WAY_LOAD, lane, of_v ? V_BEGINS : K_BEGINS, head, at->key * a->plan.knobs.tn, a->plan.knobs.tn,
       s->t, (of_v ? s->e : s->d) * s->in_bytes, j);
}

/* Scores need K, Q, the scores before and a buffer: the order of the unit is that of the program. */
static void scores(sim_attention *a, sim_attention_lane *l, uint32_t lane, uint64_t index, sim_job *j) {
  const step *s = &l->scores;
  const uint64_t buffers = 1 + a->plan.knobs.ahead;
  j->what = SIM_SCORES;
  sim_need(j, index - l->k);
  if (s->first) sim_need(j, index - l->q);
  if (s->number > 0) sim_need(j, index - l->score);
  if (s->number >= buffers) sim_need(j, index - l->value_at[(s->number - buffers) % RING]);
  sim_serve(a->plan.layout, a->plan.unit, lane, a->scores, j);
  l->score = index;
  if (is_last(s)) l->read_at[s->turn % Q_SLOTS] = index;
}

/* Values need exp, V, the values before, the scores that go ahead, and a tile of sums. */
static void values(sim_attention *a, sim_attention_lane *l, uint32_t lane, uint64_t index, sim_job *j) {
  const step *s = &l->values;
  const uint64_t sums = a->plan.knobs.accumulators;
  j->what = SIM_VALUES;
  sim_need(j, index - l->exp_at[s->number % RING]);
  sim_need(j, index - l->v_at[s->number % RING]);
  if (s->number > 0) sim_need(j, index - l->value_at[(s->number - 1) % RING]);
  if (l->scores.number > s->number + 1) sim_need(j, index - l->score);
  if (s->first && s->turn >= sums) sim_need(j, index - l->store_at[(s->turn - sums) % RING]);
  sim_serve(a->plan.layout, a->plan.unit, lane, a->values, j);
  l->value_at[s->number % RING] = index;
}

static void load(sim_attention *a, sim_attention_lane *l, uint32_t lane, uint64_t index, sim_job *j) {
  const uint64_t stages = a->plan.knobs.stages, slots = sim_attention_q_slots(a);
  const step *s = &l->scores;
  if (l->phase == PHASE_Q) {
    j->what = SIM_LOAD_Q;
    if (s->turn >= slots) sim_need(j, index - l->read_at[(s->turn - slots) % Q_SLOTS]);
    move_queries(a, SIM_WAY_LOAD, lane, s->turn, j);
    l->q = index;
    return;
  }
  j->what = l->phase == PHASE_K ? SIM_LOAD_K : SIM_LOAD_V;
  if (s->number >= stages) sim_need(j, index - l->value_at[(s->number - stages) % RING]);
  load_keys(a, lane, s, l->phase == PHASE_V, j);
  if (l->phase == PHASE_K)
    l->k = index;
  else
    l->v_at[s->number % RING] = index;
}

/* Is there a job in this phase? Then the lane stays in it until the job is made. */
static int has_job(const sim_attention *a, const sim_attention_lane *l) {
  switch (l->phase) {
    case PHASE_Q:
      return !l->scores.over && l->scores.first;
    case PHASE_VALUES:
      return !l->values.over && (l->scores.over || l->scores.number > l->values.number + a->plan.knobs.ahead);
    case PHASE_STORE:
      return 0;
    default:
      return !l->scores.over;
  }
}

static int next(sim_program *p, uint32_t lane, uint64_t index, sim_job *j) {
  sim_attention *a = &p->attention;
  sim_attention_lane *l = &a->lanes[lane];
  if (a->plan.rc != BS_OK || l->values.over) return 0;
  while (l->phase < PHASE_STORE && !has_job(a, l)) l->phase = (l->phase + 1) % PHASE_STORE;
  l->made[index % SIM_OPEN] = l->phase >= PHASE_VALUES ? l->values : l->scores;
  switch (l->phase) {
    case PHASE_SCORES:
      scores(a, l, lane, index, j);
      break;
    case PHASE_EXP:
      j->what = SIM_EXP;
      sim_need(j, index - l->score);
      sim_serve(a->plan.layout, a->plan.vector, lane, (uint64_t)a->plan.knobs.tm * a->plan.knobs.tn, j);
      l->exp_at[l->scores.number % RING] = index;
      advance(a, lane, &l->scores);
      break;
    case PHASE_VALUES:
      values(a, l, lane, index, j);
      if (is_last(&l->values)) break; /* its store follows */
      advance(a, lane, &l->values);
      l->phase = PHASE_Q;
      return 1;
    case PHASE_STORE:
      j->what = SIM_STORE;
      sim_need(j, 1);
      move_queries(a, SIM_WAY_STORE, lane, l->values.turn, j);
      l->store_at[l->values.turn % RING] = index;
      advance(a, lane, &l->values);
      l->phase = PHASE_Q;
      return 1;
    default:
      load(a, l, lane, index, j);
      break;
  }
  l->phase++;
  return 1;
}

void sim_attention_spot_of(const sim_attention *a, uint32_t lane, uint64_t index, sim_attention_spot *out) {
  const step *s = &a->lanes[lane].made[index % SIM_OPEN];
  const uint64_t from = block_of(a, lane, s->turn) % a->query_blocks * a->plan.knobs.tm,
                 key = s->key * a->plan.knobs.tn;
  *out = (sim_attention_spot){.step = s->number,
                              .turn = s->turn,
                              .queries = least(a->plan.knobs.tm, a->shape.s - from),
                              .keys = least(a->plan.knobs.tn, a->shape.t - key),
                              .first = s->first};
}

/* ------------------------------------------------------------------------------------------------ */

static uint64_t bound(const sim_program *p) {
  const sim_attention *a = &p->attention;
  const sim_attention_shape *s = &a->shape;
  const uint64_t steps = steps_of(a);
  sim_amounts sum = {{0}};
  /* Blocks at the edge are shorter: what is counted is at most what moves. */
  sim_plan_moved(&a->plan, SIM_WAY_LOAD, s->heads * s->s * s->d * s->in_bytes, &sum);
  sim_plan_moved(&a->plan, SIM_WAY_STORE, s->heads * s->s * s->e * s->out_bytes, &sum);
  sum.of[a->plan.unit] = steps * (a->scores + a->values);
  sum.of[a->plan.vector] = steps * a->plan.knobs.tm * a->plan.knobs.tn;
  return sim_plan_bound(&a->plan, &sum);
}

/* Pairs of a query and a key that it sees. */
static double flops(const sim_op *op) {
  const sim_attention_shape *s = &op->attention;
  double pairs = 0;
  for (uint64_t q = 0; q < s->s; q++) {
    const uint64_t first = clipped((int64_t)q + s->sees_from, s->t),
                   end = clipped((int64_t)q + s->sees_end, s->t);
    pairs += end > first ? (double)(end - first) : 0;
  }
  return 2.0 * pairs * (double)s->heads * (double)(s->d + s->e);
}

static uint64_t jobs(const sim_program *p) {
  const sim_attention *a = &p->attention;
  return 5 * steps_of(a) + 2 * a->blocks;
}

const sim_program_kind sim_program_attention = {make, next, bound, flops, jobs, start, close};
