/* SPDX-License-Identifier: MIT
 * oplog.c - see oplog.h. The log in memory; oplog_text.c reads and writes it, oplog_product.c and oplog_map.c
 * make it. */
#include "sim/oplog.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for an op log");
}

/* ---- lanes ------------------------------------------------------------------------------------- */

static uint32_t hash_of(const char *name) {
  uint32_t h = 2166136261u;
  for (; *name != '\0'; name++) h = (h ^ (unsigned char)*name) * 16777619u;
  return h;
}

/* The entry of a name, or the empty one where it goes. Half of the table is empty. */
static uint32_t *entry_of(const sim_oplog *log, const char *name) {
  const uint32_t mask = 2 * log->lanes_capacity - 1;
  uint32_t at = hash_of(name) & mask;
  while (log->names[at] != 0 && strcmp(log->lanes[log->names[at] - 1], name) != 0) at = (at + 1) & mask;
  return &log->names[at];
}

static int grow_lanes(sim_oplog *log) {
  const uint32_t capacity = log->lanes_capacity > 0 ? 2 * log->lanes_capacity : 64;
  char(*lanes)[64] = realloc(log->lanes, capacity * sizeof *lanes);
  if (lanes == NULL) return 0;
  log->lanes = lanes;
  uint32_t *names = calloc(2 * (size_t)capacity, sizeof *names);
  if (names == NULL) return 0;
  free(log->names);
  log->names = names;
  log->lanes_capacity = capacity;
  for (uint32_t l = 0; l < log->n_lanes; l++) *entry_of(log, log->lanes[l]) = l + 1;
  return 1;
}

uint32_t sim_oplog_lane(const sim_oplog *log, const char *name) {
  return log->lanes_capacity > 0 ? *entry_of(log, name) - 1 : UINT32_MAX;
}

uint32_t sim_oplog_add_lane(sim_oplog *log, const char *name) {
  if (log->n_lanes == log->lanes_capacity && !grow_lanes(log)) return UINT32_MAX;
  uint32_t *entry = entry_of(log, name);
  if (*entry != 0) return *entry - 1;
  if (log->n_lanes == SIM_OPLOG_LANES) return UINT32_MAX;
  snprintf(log->lanes[log->n_lanes], sizeof log->lanes[0], "%s", name);
  *entry = ++log->n_lanes;
  return log->n_lanes - 1;
}

/* ---- the log ----------------------------------------------------------------------------------- */

int32_t sim_oplog_open(sim_oplog *out, const sim_layout *layout, const char *op, const char *knobs,
                       bs_error *err) {
  char name[64];
  memset(out, 0, sizeof *out);
  snprintf(out->op, sizeof out->op, "%s", op);
  snprintf(out->knobs, sizeof out->knobs, "%s", knobs);
  snprintf(out->device, sizeof out->device, "%s", layout->device->name);
  out->hash = layout->device->hash;
  for (uint32_t l = 0; l < layout->device->lanes; l++) {
    sim_layout_lane_name(layout, l, name, sizeof name);
    if (sim_oplog_add_lane(out, name) != l) return no_memory(err);
  }
  return BS_OK;
}

void sim_oplog_free(sim_oplog *log) {
  free(log->lanes);
  free(log->names);
  free(log->jobs);
  free(log->first);
  free(log->at);
  memset(log, 0, sizeof *log);
}

int32_t sim_oplog_add(sim_oplog *log, const sim_logged *job, bs_error *err) {
  if (log->n == SIM_OPLOG_JOBS) {
    bs_error_set(err, BS_CONFIG, "BS-OPLOG-SIZE", "the log has more than %d jobs", SIM_OPLOG_JOBS);
    bs_error_hint(err, "larger tiles, a larger grain, or a smaller shape");
    return BS_CONFIG;
  }
  if (log->n == log->capacity) {
    const uint64_t capacity = log->capacity > 0 ? 2 * log->capacity : 256;
    sim_logged *jobs = realloc(log->jobs, capacity * sizeof *jobs);
    if (jobs == NULL) return no_memory(err);
    log->jobs = jobs;
    log->capacity = capacity;
  }
  log->jobs[log->n++] = *job;
  return BS_OK;
}

static int32_t bad_job(const sim_oplog *log, uint64_t i, const char *what, bs_error *err) {
  const sim_logged *j = &log->jobs[i];
  return bs_error_set(err, BS_INPUT, "BS-OPLOG-JOBS", "lane %s: job %u %s", log->lanes[j->lane], j->job,
                      what);
}

int32_t sim_oplog_index(sim_oplog *log, bs_error *err) {
  free(log->first);
  free(log->at);
  log->first = calloc((size_t)log->n_lanes + 1, sizeof *log->first);
  log->at = malloc((log->n > 0 ? log->n : 1) * sizeof *log->at);
  if (log->first == NULL || log->at == NULL) return no_memory(err);
  for (uint64_t i = 0; i < log->n; i++) {
    log->first[log->jobs[i].lane + 1]++;
    log->at[i] = UINT64_MAX;
  }
  for (uint32_t l = 0; l < log->n_lanes; l++) log->first[l + 1] += log->first[l];
  for (uint64_t i = 0; i < log->n; i++) {
    const sim_logged *j = &log->jobs[i];
    if (j->job >= sim_oplog_jobs(log, j->lane))
      return bad_job(log, i, "is there, and one before it is not", err);
    uint64_t *at = &log->at[log->first[j->lane] + j->job];
    if (*at != UINT64_MAX) return bad_job(log, i, "is there twice", err);
    *at = i;
  }
  return BS_OK;
}

uint64_t sim_oplog_jobs(const sim_oplog *log, uint32_t lane) {
  return log->first[lane + 1] - log->first[lane];
}

const sim_logged *sim_oplog_job(const sim_oplog *log, uint32_t lane, uint64_t job) {
  return &log->jobs[log->at[log->first[lane] + job]];
}

/* ---- moments ----------------------------------------------------------------------------------- */

/* 0: ends of jobs that took time; 1: begins, and the ends of the others. */
static uint32_t phase_of(const sim_logged *jobs, const sim_moment *m) {
  return !m->ends || jobs[m->job].begin == jobs[m->job].end;
}

typedef struct keyed {
  sim_moment m;
  uint32_t phase;
} keyed;

static int by_order(const void *a, const void *b) {
  const keyed *x = a, *y = b;
  if (x->m.time != y->m.time) return x->m.time < y->m.time ? -1 : 1;
  if (x->phase != y->phase) return x->phase < y->phase ? -1 : 1;
  if (x->m.job != y->m.job) return x->m.job < y->m.job ? -1 : 1;
  return x->m.ends < y->m.ends ? -1 : x->m.ends > y->m.ends;
}

sim_moment *sim_oplog_moments(const sim_oplog *log) {
  const uint64_t n = 2 * log->n;
  keyed *all = malloc((n > 0 ? n : 1) * sizeof *all);
  sim_moment *out = malloc((n > 0 ? n : 1) * sizeof *out);
  for (uint64_t i = 0; all != NULL && i < n; i++) {
    const sim_logged *j = &log->jobs[i / 2];
    const uint32_t ends = i % 2 != 0;
    all[i].m = (sim_moment){ends ? j->end : j->begin, i / 2, ends};
    all[i].phase = phase_of(log->jobs, &all[i].m);
  }
  if (all != NULL && out != NULL) {
    qsort(all, n, sizeof *all, by_order);
    for (uint64_t i = 0; i < n; i++) out[i] = all[i].m;
  } else {
    free(out);
    out = NULL;
  }
  free(all);
  return out;
}

/* ---- spaces ------------------------------------------------------------------------------------ */

static const struct {
  const char *name;
  uint8_t kind, number, output; /* the kind of programs; SIM_OPS: all */
} spaces[SIM_SPACES] = {{"A", SIM_OP_PRODUCT, 0, 0},
                        {"B", SIM_OP_PRODUCT, 1, 0},
                        {"Y", SIM_OP_PRODUCT, 2, 1},
                        {"scratch", SIM_OPS, 0, 0},
                        {"X0", SIM_OP_MAP, 0, 0},
                        {"X1", SIM_OP_MAP, 1, 0},
                        {"X2", SIM_OP_MAP, 2, 0},
                        {"X3", SIM_OP_MAP, 3, 0},
                        {"X4", SIM_OP_MAP, 4, 0},
                        {"X5", SIM_OP_MAP, 5, 0},
                        {"X6", SIM_OP_MAP, 6, 0},
                        {"X7", SIM_OP_MAP, 7, 0},
                        {"Y0", SIM_OP_MAP, SIM_MAP_INPUTS, 1},
                        {"Y1", SIM_OP_MAP, SIM_MAP_INPUTS + 1, 1},
                        {"Y2", SIM_OP_MAP, SIM_MAP_INPUTS + 2, 1},
                        {"Q", SIM_OP_ATTENTION, 0, 0},
                        {"K", SIM_OP_ATTENTION, 1, 0},
                        {"V", SIM_OP_ATTENTION, 2, 0},
                        {"O", SIM_OP_ATTENTION, 3, 1}};

const char *sim_space_name(uint32_t space) {
  return space < SIM_SPACES ? spaces[space].name : "?";
}

int sim_space_is_output(uint32_t space) {
  return space < SIM_SPACES && spaces[space].output;
}

uint64_t sim_space_begins(uint32_t space) {
  return space < SIM_SPACES ? spaces[space].number * SIM_OPLOG_BYTES : 0;
}

uint32_t sim_space_at(uint32_t kind, uint64_t address) {
  uint32_t s = 0;
  while (s < SIM_SPACES && (spaces[s].kind != kind || spaces[s].number != address / SIM_OPLOG_BYTES)) s++;
  return s;
}

/* ---- ranges ------------------------------------------------------------------------------------ */

static int rows_meet(const sim_range *a, const sim_range *b) {
  for (uint32_t i = 0; i < a->rows; i++) {
    const uint64_t begin = a->start + i * a->pitch, end = begin + a->bytes;
    if (end <= b->start) continue;
    const uint64_t row = b->rows > 1 && begin > b->start ? (begin - b->start) / b->pitch : 0;
    for (uint64_t r = row; r < b->rows && r <= row + 1; r++) {
      const uint64_t other = b->start + r * b->pitch;
      if (begin < other + b->bytes && other < end) return 1;
    }
  }
  return 0;
}

int sim_ranges_meet(const sim_range *a, const sim_range *b) {
  if (a->space != b->space) return 0;
  if (a->rows > 1 || b->rows > 1) return rows_meet(a, b);
  return a->start < b->start + b->bytes && b->start < a->start + a->bytes;
}

void sim_range_say(const sim_range *r, char *out, uint32_t size) {
  const char *space = sim_space_name(r->space);
  if (r->rows > 1)
    snprintf(out, size, "%s:%" PRIu64 "+%" PRIu64 "*%u/%" PRIu64, space, r->start, r->bytes, r->rows,
             r->pitch);
  else
    snprintf(out, size, "%s:%" PRIu64 "+%" PRIu64, space, r->start, r->bytes);
}
