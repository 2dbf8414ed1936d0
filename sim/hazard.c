/* SPDX-License-Identifier: MIT
 * hazard.c - see hazard.h. The scratch of each lane is followed moment by moment; places of Y are compared
 * in hazard_places.c. */
#include "sim/hazard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/hazard_parts.h"

#define NO_JOB UINT64_MAX

enum { LIVE = 1024, PIECES = 4096 };

/* Bytes begin <= b < end of a scratch, and the job whose version is there. */
typedef struct piece {
  uint64_t begin, end, writer;
} piece;

typedef struct lane_state {
  uint32_t n_open, n_live, n_pieces, room;
  uint64_t open[SIM_OPEN]; /* jobs that have begun and not ended */
  uint64_t live[LIVE];     /* jobs whose version someone still reads */
  piece *pieces;           /* by begin, apart */
} lane_state;

typedef struct finder {
  const sim_oplog *log;
  sim_hazards *out;
  uint64_t
      *before; /* of each job: which of the 64 before it in its lane are ordered before it; bit 0: the last */
  uint64_t *read_end; /* of each job: when the last one that needs its version has read it */
  uint64_t *reader;   /* and which one */
  lane_state *lanes;
  bs_error *err;
  int32_t rc;
} finder;

void sim_hazard_add(sim_hazards *out, const sim_hazard *h) {
  out->total++;
  out->count[h->kind]++;
  if (out->n < SIM_HAZARDS_KEPT) out->kept[out->n++] = *h;
}

/* ---- order ------------------------------------------------------------------------------------- */

static uint64_t at_of(const finder *f, uint32_t lane, uint64_t job) {
  return f->log->at[f->log->first[lane] + job];
}

/* A lane has at most SIM_OPEN jobs open: one so far back has ended, whatever the needs are. */
int sim_hazard_ordered(const sim_oplog *log, const uint64_t *before, uint64_t a, uint64_t b) {
  const sim_logged *x = &log->jobs[a], *y = &log->jobs[b];
  if (x->lane != y->lane) return 0;
  if (x->job > y->job) return sim_hazard_ordered(log, before, b, a);
  const uint32_t back = y->job - x->job;
  return back == 0 || back >= SIM_OPEN || (before[b] >> (back - 1) & 1) != 0;
}

static int needs(const sim_logged *j, uint32_t job) {
  for (uint32_t k = 0; k < j->n_needs; k++)
    if (j->needs[k] == job) return 1;
  return 0;
}

static int reads_of(const sim_logged *j, const sim_range *range) {
  for (uint32_t i = 0; i < j->n_reads; i++)
    if (sim_ranges_meet(&j->reads[i], range)) return 1;
  return 0;
}

static void prepare_job(finder *f, uint64_t at) {
  const sim_logged *j = &f->log->jobs[at];
  for (uint32_t k = 0; k < j->n_needs; k++) {
    const uint32_t back = j->job - j->needs[k];
    const uint64_t other = at_of(f, j->lane, j->needs[k]);
    const sim_logged *of = &f->log->jobs[other];
    if (back < SIM_OPEN) f->before[at] |= UINT64_C(1) << (back - 1) | f->before[other] << back;
    if (of->n_writes == 0 || !reads_of(j, &of->writes) || j->end < f->read_end[other]) continue;
    f->read_end[other] = j->end;
    f->reader[other] = at;
  }
}

/* ---- what is found ----------------------------------------------------------------------------- */

static void found(finder *f, uint32_t kind, uint64_t time, uint64_t job, uint64_t other, uint64_t need,
                  const sim_range *where) {
  sim_hazard_add(f->out, &(sim_hazard){kind, time, job, other, need, *where});
}

/* The newest job before it in its lane that writes to the range; NO_JOB: none of the 256 before it. */
static uint64_t should_write(const finder *f, uint64_t at, const sim_range *range) {
  const sim_logged *j = &f->log->jobs[at];
  for (uint32_t back = 1; back <= j->job && back <= 256; back++) {
    const uint64_t other = at_of(f, j->lane, j->job - back);
    const sim_logged *of = &f->log->jobs[other];
    if (of->n_writes > 0 && sim_ranges_meet(&of->writes, range)) return other;
  }
  return NO_JOB;
}

/* A need of the same kind as the writer wrote elsewhere. */
static uint64_t need_of_kind(const finder *f, const sim_logged *j, uint32_t what) {
  for (uint32_t k = 0; k < j->n_needs; k++) {
    const uint64_t other = at_of(f, j->lane, j->needs[k]);
    if (f->log->jobs[other].what == what) return other;
  }
  return NO_JOB;
}

static void check_version(finder *f, uint64_t time, uint64_t at, uint64_t writer, const sim_range *range) {
  const sim_logged *j = &f->log->jobs[at], *w = &f->log->jobs[writer];
  if (needs(j, w->job)) return;
  const uint64_t meant = need_of_kind(f, j, w->what);
  if (meant == NO_JOB && sim_hazard_ordered(f->log, f->before, writer, at)) return;
  const uint64_t should = should_write(f, at, range);
  const uint64_t lacks = should != writer ? should : meant != NO_JOB ? meant : writer;
  found(f, SIM_READ_OF_ANOTHER, time, at, writer, lacks, range);
}

static void check_read(finder *f, const lane_state *l, uint64_t time, uint64_t at, const sim_range *range) {
  uint64_t from = range->start;
  const uint64_t end = range->start + range->bytes;
  int nothing = 0;
  for (uint32_t i = 0; i < l->n_pieces && from < end; i++) {
    const piece *p = &l->pieces[i];
    if (p->end <= from || p->begin >= end) continue;
    nothing |= p->begin > from;
    from = p->end;
    check_version(f, time, at, p->writer, range);
  }
  if (nothing || from < end) {
    const uint64_t should = should_write(f, at, range);
    found(f, SIM_READ_OF_NOTHING, time, at, should, should, range);
  }
}

/* ---- moments ----------------------------------------------------------------------------------- */

static void read_begins(finder *f, const lane_state *l, uint64_t time, uint64_t at) {
  const sim_logged *j = &f->log->jobs[at];
  for (uint32_t i = 0; i < j->n_reads; i++) {
    if (j->reads[i].space != SIM_SPACE_SCRATCH) continue;
    check_read(f, l, time, at, &j->reads[i]);
    for (uint32_t o = 0; o < l->n_open; o++) {
      const sim_logged *w = &f->log->jobs[l->open[o]];
      if (w->n_writes == 0 || !sim_ranges_meet(&w->writes, &j->reads[i])) continue;
      /* The later one of the lane lacks a need of the earlier. */
      const uint64_t late = w->job > j->job ? l->open[o] : at, early = w->job > j->job ? at : l->open[o];
      found(f, SIM_WRITE_WHILE_READ, time, late, early, early, &j->reads[i]);
    }
  }
}

static void check_live(finder *f, lane_state *l, uint64_t time, uint64_t at) {
  const sim_logged *j = &f->log->jobs[at];
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->n_live; i++) {
    const uint64_t other = l->live[i];
    const sim_logged *of = &f->log->jobs[other];
    if (f->read_end[other] <= time) continue;
    l->live[n++] = other;
    const int same = of->writes.start == j->writes.start && of->what == j->what;
    if (same || !sim_ranges_meet(&of->writes, &j->writes)) continue;
    if (needs(j, of->job) && reads_of(j, &of->writes)) continue; /* in place */
    found(f, SIM_BUFFERS_SHARE, time, at, other, f->reader[other], &of->writes);
  }
  l->n_live = n;
  if (f->read_end[at] <= time || n == LIVE) return;
  l->live[l->n_live++] = at;
}

static void unordered(finder *f, uint64_t time, uint64_t at, uint64_t other, const sim_range *where) {
  if (other == at || sim_hazard_ordered(f->log, f->before, at, other)) return;
  const int later = f->log->jobs[at].job > f->log->jobs[other].job;
  found(f, SIM_WRITES_UNORDERED, time, later ? at : other, later ? other : at, later ? other : at, where);
}

static void write_begins(finder *f, lane_state *l, uint64_t time, uint64_t at) {
  const sim_range *range = &f->log->jobs[at].writes;
  for (uint32_t o = 0; o < l->n_open; o++) {
    const sim_logged *r = &f->log->jobs[l->open[o]];
    if (reads_of(r, range)) found(f, SIM_WRITE_WHILE_READ, time, at, l->open[o], l->open[o], range);
    if (r->n_writes > 0 && sim_ranges_meet(&r->writes, range)) unordered(f, time, at, l->open[o], range);
  }
  for (uint32_t i = 0; i < l->n_pieces; i++)
    if (l->pieces[i].begin < range->start + range->bytes && range->start < l->pieces[i].end)
      unordered(f, time, at, l->pieces[i].writer, range);
  check_live(f, l, time, at);
}

static int32_t too_many(finder *f, uint64_t at, const char *what) {
  const sim_logged *j = &f->log->jobs[at];
  return bs_error_set(f->err, BS_INPUT, "BS-OPLOG-SIZE", "lane %s, job %u: more %s than a program has",
                      f->log->lanes[j->lane], j->job, what);
}

static void begins(finder *f, lane_state *l, uint64_t time, uint64_t at) {
  const sim_logged *j = &f->log->jobs[at];
  read_begins(f, l, time, at);
  if (j->n_writes > 0 && j->writes.space == SIM_SPACE_SCRATCH) write_begins(f, l, time, at);
  if (l->n_open == SIM_OPEN)
    f->rc = too_many(f, at, "jobs at one time");
  else
    l->open[l->n_open++] = at;
}

/* Room for two more pieces. */
static int has_room(finder *f, lane_state *l, uint64_t at) {
  if (l->n_pieces + 2 <= l->room) return 1;
  const uint32_t room = l->room > 0 ? 2 * l->room : 32;
  piece *pieces = room <= PIECES ? realloc(l->pieces, room * sizeof *pieces) : NULL;
  if (pieces == NULL) {
    f->rc = room > PIECES ? too_many(f, at, "buffers")
                          : bs_error_set(f->err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for hazards");
    return 0;
  }
  memset(&pieces[l->room], 0, (room - l->room) * sizeof *pieces);
  l->pieces = pieces;
  l->room = room;
  return 1;
}

/* The range is now the job's version; what was there keeps its rest on both sides. */
static void set_version(finder *f, lane_state *l, uint64_t at, const sim_range *range) {
  const uint64_t begin = range->start, end = begin + range->bytes;
  if (!has_room(f, l, at)) return;
  uint32_t first = 0, last = 0;
  while (first < l->n_pieces && l->pieces[first].end <= begin) first++;
  for (last = first; last < l->n_pieces && l->pieces[last].begin < end; last++) {
  }
  piece now[3];
  uint32_t n = 0;
  if (last > first && l->pieces[first].begin < begin)
    now[n++] = (piece){l->pieces[first].begin, begin, l->pieces[first].writer};
  now[n++] = (piece){begin, end, at};
  if (last > first && l->pieces[last - 1].end > end)
    now[n++] = (piece){end, l->pieces[last - 1].end, l->pieces[last - 1].writer};
  memmove(&l->pieces[first + n], &l->pieces[last], (l->n_pieces - last) * sizeof *l->pieces);
  memcpy(&l->pieces[first], now, n * sizeof *now);
  l->n_pieces = l->n_pieces - (last - first) + n;
}

static void ends(finder *f, lane_state *l, uint64_t at) {
  const sim_logged *j = &f->log->jobs[at];
  for (uint32_t o = 0; o < l->n_open; o++)
    if (l->open[o] == at) l->open[o] = l->open[--l->n_open];
  if (j->n_writes > 0 && j->writes.space == SIM_SPACE_SCRATCH) set_version(f, l, at, &j->writes);
}

static void follow(finder *f) {
  sim_moment *moments = sim_oplog_moments(f->log);
  if (moments == NULL) {
    f->rc = bs_error_set(f->err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for hazards");
    return;
  }
  for (uint64_t i = 0; f->rc == BS_OK && i < 2 * f->log->n; i++) {
    lane_state *l = &f->lanes[f->log->jobs[moments[i].job].lane];
    if (moments[i].ends)
      ends(f, l, moments[i].job);
    else
      begins(f, l, moments[i].time, moments[i].job);
  }
  free(moments);
}

/* ------------------------------------------------------------------------------------------------ */

int32_t sim_hazards_find(const sim_oplog *log, sim_hazards *out, bs_error *err) {
  const uint64_t n = log->n > 0 ? log->n : 1;
  finder f = {.log = log, .out = out, .err = err};
  memset(out, 0, sizeof *out);
  f.before = calloc(n, sizeof *f.before);
  f.read_end = calloc(n, sizeof *f.read_end);
  f.reader = calloc(n, sizeof *f.reader);
  f.lanes = calloc(log->n_lanes > 0 ? log->n_lanes : 1, sizeof *f.lanes);
  if (f.before == NULL || f.read_end == NULL || f.reader == NULL || f.lanes == NULL)
    f.rc = bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for hazards");
  for (uint32_t l = 0; f.rc == BS_OK && l < log->n_lanes; l++)
    for (uint64_t j = 0; j < sim_oplog_jobs(log, l); j++) prepare_job(&f, at_of(&f, l, j));
  if (f.rc == BS_OK) follow(&f);
  if (f.rc == BS_OK) f.rc = sim_hazard_places(log, f.before, out, err);
  for (uint32_t l = 0; f.lanes != NULL && l < log->n_lanes; l++) free(f.lanes[l].pieces);
  free(f.lanes);
  free(f.before);
  free(f.read_end);
  free(f.reader);
  return f.rc;
}

const char *sim_hazard_text(uint32_t kind) {
  static const char *const texts[SIM_HAZARD_KINDS] = {"",
                                                      "read of bytes that no job has written",
                                                      "read of a version that its need did not write",
                                                      "write and read of the same bytes at one time",
                                                      "two live buffers share bytes",
                                                      "two writes of one place that no need orders"};
  return kind < SIM_HAZARD_KINDS ? texts[kind] : "?";
}

static void say_job(const sim_oplog *log, uint64_t at, char *out, size_t size) {
  const sim_logged *j = at < log->n ? &log->jobs[at] : NULL;
  if (j != NULL)
    snprintf(out, size, "%s job %u (%s)", log->lanes[j->lane], j->job, sim_what_name(j->what));
  else
    snprintf(out, size, "no job");
}

void sim_hazard_say(const sim_oplog *log, const sim_hazard *h, char *out, uint32_t size) {
  char job[96], other[96], need[96], where[128];
  say_job(log, h->job, job, sizeof job);
  say_job(log, h->other, other, sizeof other);
  say_job(log, h->needs, need, sizeof need);
  sim_range_say(&h->where, where, sizeof where);
  snprintf(out, size, "H%u %s: %s and %s, %s, at %" PRIu64 " ps; the first lacks a need of %s", h->kind,
           sim_hazard_text(h->kind), job, other, where, h->time, need);
}
