/* SPDX-License-Identifier: MIT
 * check.c - the ladder: which worlds and sizes each level takes, and its verdict. */
#include "sim/check.h"

#include <stdio.h>
#include <string.h>

#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "sim/values.h"

const char *const sim_level_names[SIM_LEVELS] = {"V4", "V0", "V1 V3", "V2", "V6"};

enum { MAX_SIZES = 8 };

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

static uint32_t sizes_of(uint32_t level, uint32_t p, int full, uint64_t out[MAX_SIZES]) {
  const uint64_t small[] = {0, 1, p - 1u, p, p + 1u, 4096};
  if (level == SIM_V0) {
    memcpy(out, small, sizeof small);
    return 6;
  }
  if (level == SIM_V4 && (p <= 17 || full)) {
    out[0] = 1;
    out[1] = p + 1u;
    out[2] = 64u * p + 3;
    return p <= 64 ? 3 : 2;
  }
  out[0] = level == SIM_V2 ? p + 1u : level == SIM_V6 ? 64 : 2u * p + 67;
  return 1;
}

/* ---- how much is affordable ------------------------------------------------------------------- */

static int32_t count_step(void *user, const bs_coll_step *step) {
  uint64_t *n = user;
  (void)step;
  ++*n;
  return 0;
}

/* Steps of all ranks, as many as the busiest of three has, times what SCRATCH has of vectors: what a level
 * costs. UINT64_MAX: the algorithm refuses. */
static uint64_t work_of(const sim_check_request *q, const bs_coll_shape *shape) {
  uint64_t most = 0, scratch = 0;
  const uint32_t ranks[] = {0, shape->world_size / 2, shape->world_size - 1};
  for (int i = 0; i < 3; ++i) {
    uint64_t n = 0, room = 0;
    if (q->algorithm->schedule(q->state, shape, ranks[i], count_step, &n, NULL) != BS_OK) return UINT64_MAX;
    if (sim_scratch_of(q->algorithm, q->state, shape, ranks[i], &room, NULL) != BS_OK) return UINT64_MAX;
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
  const int full = c->request->full != 0;
  if (c->shape->world_size <= 17) return 1;
  if (work_of(c->request, c->shape) > steps[c->row->level][full]) return 0;
  if (c->row->level != SIM_V2) return 1;
  const uint32_t element = 8u + (c->shape->world_size + 63) / 64 * 8;
  return sim_values_bytes(c->request->algorithm, c->request->state, c->shape, element) <
         (full ? UINT64_C(1) << 30 : UINT64_C(1) << 26);
}

/* ---- a case ----------------------------------------------------------------------------------- */

int32_t sim_case_run(const sim_case *c, const sim_data *data, bs_error *err) {
  const sim_schedule_config config = {.algorithm = c->request->algorithm,
                                      .state = c->request->state,
                                      .shape = c->shape,
                                      .link = sim_link_of(1e-6, 1e9),
                                      .data = data};
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
  c->request->algorithm->schedule(c->request->state, c->shape, rank, note_writer, &b, NULL);
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
  char root[32] = "", message[sizeof why->message];
  if (shape->kind == BS_COLL_BROADCAST) snprintf(root, sizeof root, " root %u", shape->root);
  snprintf(message, sizeof message, "%s p=%u n=%llu%s: %.380s", sim_kind_name(shape->kind), shape->world_size,
           (unsigned long long)shape->count, root, why->message);
  memcpy(why->message, message, sizeof message);
}

static int32_t one_case(const sim_check_request *q, const bs_coll_shape *shape, sim_check_row *row) {
  const sim_case c = {q, shape, row};
  bs_error why = BS_ERROR_INIT;
  if (!affordable(&c)) return BS_OK;
  const int32_t rc = level_checks[row->level](&c, &why);
  if (rc == BS_UNSUPPORTED) {
    ++row->refused;
    return BS_OK;
  }
  ++row->cases;
  if (shape->world_size > row->ranks) row->ranks = shape->world_size;
  if (rc == BS_OK) return BS_OK;
  row->code = rc;
  row->why = why;
  place(shape, &row->why);
  return rc;
}

/* All sizes and roots of one world. */
static int32_t one_world(const sim_check_request *q, uint32_t p, sim_check_row *row) {
  uint64_t sizes[MAX_SIZES];
  const uint32_t n = sizes_of(row->level, p, q->full != 0, sizes), roots[] = {0, p - 1, p / 2};
  const uint32_t n_roots = row->kind != BS_COLL_BROADCAST || p == 1 ? 1 : p == 2 ? 2 : 3;
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t k = 0; k < n_roots; ++k) {
      const bs_coll_shape shape = {.struct_size = (uint32_t)sizeof shape,
                                   .kind = row->kind,
                                   .world_size = p,
                                   .root = roots[k],
                                   .count = sizes[i],
                                   .element_bytes = 4,
                                   .options = q->options};
      const int32_t rc = one_case(q, &shape, row);
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
    }
    faults |= failed;
  }
  if (faults) return bs_error_set(err, BS_NUMERIC, "BS-CCL-WRONG", "the algorithm %s is wrong", a->name);
  return ran ? BS_OK : bs_error_set(err, BS_INCONCLUSIVE, "BS-CCL-NONE", "nothing ran");
}
