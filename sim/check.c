/* SPDX-License-Identifier: MIT
 * check.c - the ladder: which worlds and sizes each level takes, and its verdict. */
#include "sim/check.h"

#include <stdio.h>
#include <string.h>

#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "core/base/steps.h"
#include "sim/values.h"

const char *const sim_level_names[SIM_LEVELS] = {"V4", "V0", "V1 V3", "V2", "V6"};

enum { MAX_SIZES = 24, EACH_COUNT = 4352, EACH_COUNT_FULL = 1 << 17 };
/* The element sizes of the nine dtypes; every shape is checked with the first one. */
static const uint32_t element_sizes[] = {4, 2, 1, 8};
enum { N_ELEMENT_SIZES = sizeof element_sizes / sizeof element_sizes[0] };

/* ---- the worlds of a level -------------------------------------------------------------------- */

/* Every number up to `dense`, then those of a list; `full` for make verify. */
typedef struct worlds {
  uint32_t dense[2];
  uint32_t more[2][20];
} worlds;

static const worlds level_worlds[SIM_LEVELS] = {
    [SIM_V4] = {{64, 64}, {{0}, {96, 127, 128, 255, 256, 511, 512, 1000, 1024}}},
    [SIM_V0] = {{17, 17}, {{31, 32, 33}, {31, 32, 33}}},
    [SIM_V1] = {{17, 33},
                {{31, 32, 33, 64, 100, 128, 255, 256, 1000, 1024, 4096},
                 {64, 100, 128, 255, 256, 1000, 1024, 1025, 4096, 16384, 65535, 65536}}},
    [SIM_V2] = {{17, 33}, {{32, 33, 64}, {64, 100, 128, 255, 256, 1000, 1024}}},
    [SIM_V6] = {{5, 9}, {{8, 17, 33, 64}, {17, 33, 64, 128, 256, 1000, 1024}}},
};

static uint32_t next_world(const worlds *w, int full, uint32_t p) {
  if (p < w->dense[full]) return p + 1;
  for (const uint32_t *more = w->more[full]; *more != 0; ++more)
    if (*more > p) return *more;
  return 0;
}

/* Large counts, for few ranks. They lie near the powers of two at which code takes another path (4,096; 64
 * Ki; 1 Mi; 16 Mi; 2^31 and 2^32, where a count of 32 bits ends), and between them. Neither ranks nor chunks
 * divide them, but for one. Levels that keep a vector take those of `kept`. */
static const uint64_t large[] = {4095,   4097,    12345,    65537,      100003,
                                 131072, 1048583, 16777259, 2147483659, 4294967311};
static const uint64_t kept[] = {4097, 12345, 100003};
enum { N_LARGE = sizeof large / sizeof large[0], N_KEPT = sizeof kept / sizeof kept[0] };

static uint32_t add_sizes(uint64_t *out, uint32_t n, const uint64_t *more, uint32_t n_more) {
  memcpy(out + n, more, n_more * sizeof *more);
  return n + n_more;
}

static uint32_t sizes_of(uint32_t level, uint32_t p, int full, uint64_t out[MAX_SIZES]) {
  const uint64_t small[] = {0, 1, p - 1u, p, p + 1u, 4096}, few[] = {1, p + 1u, 64u * p + 3};
  const uint64_t one = level == SIM_V2 ? p + 1u : level == SIM_V6 ? 64 : 2u * p + 67;
  const int little = p <= 17, pair = p == 2 || p == 3;
  if (level == SIM_V0) return add_sizes(out, add_sizes(out, 0, small, 6), kept, pair ? N_KEPT - !full : 0);
  if (level == SIM_V2) return add_sizes(out, add_sizes(out, 0, &one, 1), kept, pair ? N_KEPT : 0);
  if (level == SIM_V6) return add_sizes(out, 0, &one, 1);
  const uint32_t n = level == SIM_V4 && (little || full) ? add_sizes(out, 0, few, p <= 64 ? 3 : 2)
                                                         : add_sizes(out, 0, &one, 1);
  /* Worlds of more ranks get one large count each, one after the other. */
  return add_sizes(out, n, little ? large : &large[p % N_LARGE], little ? N_LARGE : p <= 64 ? 1 : 0);
}

/* ---- how much is affordable ------------------------------------------------------------------- */

int32_t sim_case_steps(const sim_case *c, uint32_t rank,
                       int32_t (*each)(void *user, const bs_coll_step *step), void *user, bs_error *err) {
  const bs_steps_call call = {
      .algorithm = c->request->algorithm, .state = c->request->state, .shape = c->shape, .rank = rank};
  return bs_steps_each(&call, each, user, err);
}

static int32_t count_step(void *user, const bs_coll_step *step) {
  uint64_t *n = user;
  (void)step;
  ++*n;
  return 0;
}

/* Steps of all ranks, as many as the busiest of three has, times what SCRATCH has of vectors: what a level
 * costs. UINT64_MAX: the algorithm refuses. 0: it fails, which the level is to tell. */
static uint64_t work_of(const sim_case *c) {
  const sim_check_request *q = c->request;
  const bs_coll_shape *shape = c->shape;
  uint64_t most = 0, scratch = 0;
  const uint32_t ranks[] = {0, shape->world_size / 2, shape->world_size - 1};
  for (int i = 0; i < 3; ++i) {
    uint64_t n = 0, room = 0;
    int32_t rc = sim_case_steps(c, ranks[i], count_step, &n, NULL);
    if (rc == BS_OK) rc = sim_scratch_of(q->algorithm, q->state, shape, ranks[i], &room, NULL);
    if (rc != BS_OK) return rc == BS_UNSUPPORTED ? UINT64_MAX : 0;
    most = n > most ? n : most;
    scratch = room > scratch ? room : scratch;
  }
  const uint64_t vectors = shape->count > 0 ? scratch / shape->count : 0;
  return shape->world_size * (most + 1) * (vectors + 1);
}

static int affordable(const sim_case *c) {
  static const uint64_t steps[SIM_LEVELS][2] = {[SIM_V4] = {1u << 20, 1u << 24},
                                                [SIM_V0] = {1u << 30, 1u << 30},
                                                [SIM_V1] = {5u << 20, 80u << 20},
                                                [SIM_V2] = {1u << 20, 1u << 24},
                                                [SIM_V6] = {1u << 20, 1u << 24}};
  const int full = c->request->full != 0, many = c->shape->count > 4096;
  const uint32_t level = c->row->level;
  if (c->shape->world_size <= 17 && !many) return 1;
  if (work_of(c) > steps[level][full]) return 0;
  if (level != SIM_V2 && (level != SIM_V0 || !many)) return 1;
  const uint32_t element = 8u + (level == SIM_V2 ? (c->shape->world_size + 63) / 64 * 8 : 0);
  return sim_values_bytes(c->request->algorithm, c->request->state, c->shape, element) <
         (full ? UINT64_C(1) << 30 : UINT64_C(1) << 26);
}

/* ---- two sizes of elements, one schedule -------------------------------------------------------- */

typedef struct print {
  uint64_t sum;
} print;

static int32_t add_step(void *user, const bs_coll_step *s) {
  print *p = user;
  const uint64_t a = (uint64_t)s->round << 32 | s->peer;
  const uint64_t b = (uint64_t)s->action << 32 | (uint64_t)s->buffer << 16 | s->from_buffer;
  const uint64_t step = (a + 1) * UINT64_C(0x9e3779b97f4a7c15) + (b + 3) * UINT64_C(0xbf58476d1ce4e5b9) +
                        (s->first + 5) * UINT64_C(0x94d049bb133111eb) +
                        (s->count + 7) * UINT64_C(0xd6e8feb86659fd93) +
                        (s->from_first + 9) * UINT64_C(0xa0761d6478bd642f);
  p->sum = (p->sum ^ step ^ step >> 31) * UINT64_C(0xe7037ed1a0b428db);
  p->sum ^= p->sum >> 29;
  return 0;
}

/* In large worlds of some ranks: the first and the last, and others in even distances. */
uint64_t sim_case_print(const sim_case *c, uint32_t element_bytes) {
  enum { RANKS = 128 };
  bs_coll_shape shape = *c->shape;
  const sim_case other = {c->request, &shape, c->row};
  const uint32_t p = shape.world_size, n = p > RANKS ? RANKS : p;
  print sum = {1};
  shape.element_bytes = element_bytes;
  for (uint32_t i = 0; i < n && sim_case_stop(c, NULL) == BS_OK; ++i) {
    const uint32_t rank = n == p ? i : (uint32_t)((uint64_t)i * (p - 1) / (RANKS - 1));
    uint64_t scratch = 0;
    const int32_t rc = sim_case_steps(&other, rank, add_step, &sum, NULL);
    sim_scratch_of(c->request->algorithm, c->request->state, &shape, rank, &scratch, NULL);
    sum.sum = sim_mix(sum.sum ^ scratch ^ (uint64_t)(uint32_t)rc << 32);
  }
  return sum.sum;
}

/* ---- a case ----------------------------------------------------------------------------------- */

int32_t sim_case_stop(const sim_case *c, bs_error *err) {
  return c->request->stop != NULL ? c->request->stop(err) : BS_OK;
}

int32_t sim_case_run(const sim_case *c, const sim_data *data, bs_error *err) {
  const sim_schedule_config config = {.algorithm = c->request->algorithm,
                                      .state = c->request->state,
                                      .shape = c->shape,
                                      .link = sim_link_of(1e-6, 1e9),
                                      .data = data,
                                      .stop = c->request->stop};
  sim_schedule_result result;
  return sim_schedule_run(&config, &result, err);
}

typedef struct blame {
  uint64_t index;
  bs_coll_step step;
  int found;
} blame;

static int32_t note_writer(void *user, const bs_coll_step *step) {
  blame *b = user;
  if (step->action == BS_STEP_SEND || step->buffer != BS_BUFFER_OUT) return 0;
  if (b->index < step->first || b->index - step->first >= step->count) return 0;
  b->step = *step;
  b->found = 1;
  return 0;
}

void sim_case_blame(const sim_case *c, uint32_t rank, uint64_t index, bs_error *err) {
  blame b = {.index = index};
  char text[160];
  sim_case_steps(c, rank, note_writer, &b, NULL);
  if (!b.found) {
    bs_error_hint(err, "no step of rank %u writes this element", rank);
    return;
  }
  sim_step_text(rank, &b.step, text, sizeof text);
  bs_error_hint(err, "the last step that wrote it is %s", text);
}

uint64_t sim_mix(uint64_t x) {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* ---- a level ---------------------------------------------------------------------------------- */

static int32_t (*const level_checks[SIM_LEVELS])(const sim_case *c, bs_error *err) = {
    sim_check_static, sim_check_values, sim_check_columns, sim_check_sets, sim_check_rounding};

/* The case in front of what a level said of it. */
static void place(const bs_coll_shape *shape, bs_error *why) {
  char root[32] = "", bytes[32] = "", message[sizeof why->message];
  if (shape->kind == BS_COLL_BROADCAST) snprintf(root, sizeof root, " root %u", shape->root);
  if (shape->element_bytes != element_sizes[0])
    snprintf(bytes, sizeof bytes, " of %llu bytes", (unsigned long long)shape->element_bytes);
  snprintf(message, sizeof message, "%s p=%u n=%llu%s%s: %.380s", bs_name_of(BS_NAMES_COLL, shape->kind),
           shape->world_size, (unsigned long long)shape->count, bytes, root, why->message);
  memcpy(why->message, message, sizeof message);
}

static int32_t end_case(const sim_case *c, int32_t rc, const bs_error *why) {
  if (rc == BS_OK) return BS_OK;
  c->row->code = rc;
  c->row->why = *why;
  place(c->shape, &c->row->why);
  return rc;
}

/* The case is not counted: it has neither passed nor failed. */
static int32_t stopped(const sim_case *c) {
  return c->row->code = sim_case_stop(c, &c->row->why);
}

static int32_t prove(const sim_case *c) {
  sim_check_row *row = c->row;
  bs_error why = BS_ERROR_INIT;
  const int32_t rc = level_checks[row->level](c, &why);
  if (rc == BS_UNSUPPORTED) {
    ++row->refused;
    return BS_OK;
  }
  if (rc != BS_OK && sim_case_stop(c, NULL) != BS_OK) return stopped(c);
  ++row->cases;
  if (c->shape->world_size > row->ranks) row->ranks = c->shape->world_size;
  return end_case(c, rc, &why);
}

/* One shape for elements of each size: the formula of each, and each schedule once, which sizes may share. V0
 * and V6 take the size of each dtype themselves. */
static int32_t one_case(const sim_check_request *q, bs_coll_shape *shape, sim_check_row *row) {
  const sim_case c = {q, shape, row};
  const int all = row->level != SIM_V0 && row->level != SIM_V6, runs = affordable(&c);
  uint64_t prints[N_ELEMENT_SIZES] = {0};
  int32_t rc = stopped(&c);
  for (uint32_t i = 0; rc == BS_OK && i < N_ELEMENT_SIZES; ++i) {
    bs_error why = BS_ERROR_INIT;
    int known = i > 0 && !all;
    shape->element_bytes = element_sizes[i];
    rc = end_case(&c, sim_check_formula(&c, &why), &why);
    if (rc != BS_OK || !runs) continue;
    if (all) prints[i] = sim_case_print(&c, element_sizes[i]);
    for (uint32_t k = 0; k < i; ++k) known |= prints[k] == prints[i];
    if (!known) rc = prove(&c);
  }
  return rc;
}

static int32_t one_shape(const sim_check_request *q, uint32_t p, uint32_t root, uint64_t count,
                         sim_check_row *row) {
  bs_coll_shape shape = {.struct_size = (uint32_t)sizeof shape,
                         .kind = row->kind,
                         .world_size = p,
                         .root = root,
                         .count = count,
                         .element_bytes = element_sizes[0],
                         .options = q->options};
  return one_case(q, &shape, row);
}

/* All sizes and roots of one world; V1 takes each count up to EACH_COUNT for two ranks, since a fault may be
 * of one count alone; full: up to EACH_COUNT_FULL, for three ranks too. */
static int32_t one_world(const sim_check_request *q, uint32_t p, sim_check_row *row) {
  uint64_t sizes[MAX_SIZES];
  const uint32_t n = sizes_of(row->level, p, q->full != 0, sizes), roots[] = {0, p - 1, p / 2};
  const uint32_t n_roots = row->kind != BS_COLL_BROADCAST || p == 1 ? 1 : p == 2 ? 2 : 3;
  const uint64_t most = q->full ? EACH_COUNT_FULL : EACH_COUNT;
  const uint64_t each = row->level == SIM_V1 && (p == 2 || (p == 3 && q->full)) ? most : 0;
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t k = 0; k < n_roots; ++k) {
      const int32_t rc = one_shape(q, p, roots[k], sizes[i], row);
      if (rc != BS_OK) return rc;
    }
  for (uint64_t count = 0; count < each; ++count) {
    const int32_t rc = one_shape(q, p, roots[count % n_roots], count, row);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int is_sum(uint32_t kind) {
  return kind == BS_COLL_ALL_REDUCE || kind == BS_COLL_REDUCE_SCATTER;
}

static void one_level(const sim_check_request *q, sim_check_row *row, int failed) {
  const worlds *w = &level_worlds[row->level];
  row->code = BS_OK;
  if (failed) {
    row->code = BS_INCONCLUSIVE;
    bs_error_set(&row->why, BS_INCONCLUSIVE, "BS-CCL-NOT-RUN", "not run: an earlier level has failed");
    return;
  }
  for (uint32_t p = next_world(w, q->full != 0, 0); p != 0 && row->code == BS_OK;
       p = next_world(w, q->full != 0, p)) {
    if (q->max_ranks != 0 && p > q->max_ranks) break;
    one_world(q, p, row);
  }
  if (row->code != BS_OK || row->cases > 0) return;
  row->code = BS_INCONCLUSIVE;
  bs_error_set(&row->why, BS_INCONCLUSIVE, "BS-CCL-NONE", "no shape of this level is one that %s can do",
               q->algorithm->name);
}

int32_t sim_check(const sim_check_request *request, void (*row)(void *user, const sim_check_row *row),
                  void *user, bs_error *err) {
  const bs_algorithm *a = request->algorithm;
  int faults = 0, ran = 0;
  if (a->schedule == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-ALG-COST",
                        "the algorithm %s has a formula and no schedule: there is nothing to prove", a->name);
  for (uint32_t kind = 0; kind < BS_COLL_COUNT_; ++kind) {
    int failed = 0;
    if ((a->kinds >> kind & 1) == 0 || (request->kinds != 0 && (request->kinds >> kind & 1) == 0)) continue;
    for (uint32_t level = 0; level < SIM_LEVELS; ++level) {
      sim_check_row r = {.level = level, .kind = kind, .why = BS_ERROR_INIT};
      if (request->levels != 0 && (request->levels >> level & 1) == 0) continue;
      if (level == SIM_V6 && !is_sum(kind)) continue;
      one_level(request, &r, failed);
      failed |= r.code != BS_OK && r.code != BS_INCONCLUSIVE;
      ran |= r.cases > 0;
      row(user, &r);
      const int32_t ended = request->stop != NULL ? request->stop(err) : BS_OK;
      if (ended != BS_OK) return ended;
    }
    faults |= failed;
  }
  if (faults) return bs_error_set(err, BS_NUMERIC, "BS-CCL-WRONG", "the algorithm %s is wrong", a->name);
  return ran ? BS_OK : bs_error_set(err, BS_INCONCLUSIVE, "BS-CCL-NONE", "nothing ran");
}
