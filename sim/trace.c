/* SPDX-License-Identifier: MIT
 * trace.c - see trace.h. */
#include "sim/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/out_file.h"

enum { MESSAGE_EVENTS = 4 }; /* two slices, an arrow's beginning and end */

typedef sim_trace_span slice;

struct sim_trace {
  slice *slices;
  uint64_t n, room, events, cap, dropped, messages;
  uint32_t first, last;
  void (*name)(void *user, uint32_t rank, uint32_t lane, char *out, uint32_t size);
  void *user;
};

sim_trace *sim_trace_new(uint64_t cap, uint32_t first_rank, uint32_t last_rank) {
  sim_trace *t = calloc(1, sizeof *t);
  if (t == NULL) return NULL;
  t->cap = cap > 0 ? cap : SIM_TRACE_CAP;
  t->first = first_rank;
  t->last = last_rank;
  return t;
}

void sim_trace_free(sim_trace *t) {
  if (t == NULL) return;
  free(t->slices);
  free(t);
}

void sim_trace_names(sim_trace *t,
                     void (*name)(void *user, uint32_t rank, uint32_t lane, char *out, uint32_t size),
                     void *user) {
  t->name = name;
  t->user = user;
}

/* Whether n slices of so many events fit; else they are counted as dropped. */
static int room_for(sim_trace *t, uint64_t n, uint64_t events) {
  if (t->events + events <= t->cap && t->n + n > t->room) {
    const uint64_t room = t->room > 0 ? 2 * t->room : 256;
    slice *slices = realloc(t->slices, room * sizeof *slices);
    if (slices != NULL) {
      t->slices = slices;
      t->room = room;
    }
  }
  if (t->events + events > t->cap || t->n + n > t->room) {
    t->dropped += events;
    return 0;
  }
  t->events += events;
  return 1;
}

static int traced(const sim_trace *t, uint32_t rank) {
  return rank >= t->first && rank <= t->last;
}

static void add(sim_trace *t, uint32_t rank, uint32_t lane, const char *name, uint64_t begin, uint64_t end,
                uint64_t arrow) {
  slice *s = &t->slices[t->n++];
  *s = (slice){.begin = begin, .end = end, .arrow = arrow, .rank = rank, .lane = lane};
  snprintf(s->name, sizeof s->name, "%s", name != NULL ? name : "message");
}

void sim_trace_slice(sim_trace *t, uint32_t rank, uint32_t lane, const char *name, uint64_t begin,
                     uint64_t end) {
  if (traced(t, rank) && room_for(t, 1, 1)) add(t, rank, lane, name, begin, end, 0);
}

void sim_trace_message(sim_trace *t, uint32_t from, uint32_t to, const char *site,
                       const sim_trace_ports *ports) {
  if (!traced(t, from) || !traced(t, to) || !room_for(t, 2, MESSAGE_EVENTS)) return;
  t->messages++;
  add(t, from, SIM_LANE_SEND, site, ports->send_begin, ports->send_end, t->messages);
  add(t, to, SIM_LANE_RECEIVE, site, ports->receive_begin, ports->receive_end, t->messages);
}

uint64_t sim_trace_spans(const sim_trace *t) {
  return t->n;
}

const sim_trace_span *sim_trace_at(const sim_trace *t, uint64_t index) {
  return &t->slices[index];
}

void sim_trace_put(sim_trace *t, const sim_trace_span *span) {
  const uint64_t events = span->arrow != 0 ? MESSAGE_EVENTS / 2 : 1;
  if (traced(t, span->rank) && span->lane < SIM_LANES && room_for(t, 1, events)) t->slices[t->n++] = *span;
}

void sim_trace_leave_out(sim_trace *t, uint64_t events) {
  t->dropped += events;
}

uint64_t sim_trace_events(const sim_trace *t) {
  return t->events;
}

uint64_t sim_trace_dropped(const sim_trace *t) {
  return t->dropped;
}

/* ---- the file ---------------------------------------------------------------------------------- */

static void write_time(FILE *f, const char *key, uint64_t ps) {
  fprintf(f, ",\"%s\":%" PRIu64 ".%06" PRIu64, key, ps / 1000000, ps % 1000000);
}

static void write_text(FILE *f, const char *text) {
  for (; *text != 0; text++) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      fprintf(f, "\\%c", c);
    else if (c < 32 || c > 126) /* a name may end within a character of UTF-8 */
      fprintf(f, "?");
    else
      fputc(c, f);
  }
}

static void write_slice(FILE *f, const slice *s) {
  fprintf(f, ",\n{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"name\":\"", s->rank, s->lane);
  write_text(f, s->name);
  fputc('"', f);
  write_time(f, "ts", s->begin);
  write_time(f, "dur", s->end - s->begin);
  fputc('}', f);
  if (s->arrow == 0) return;
  const int begins = s->lane == SIM_LANE_SEND;
  fprintf(f,
          ",\n{\"ph\":\"%s\",\"cat\":\"message\",\"name\":\"message\",\"id\":%" PRIu64
          ",\"pid\":%u,\"tid\":%u",
          begins ? "s" : "f", s->arrow, s->rank, s->lane);
  write_time(f, "ts", begins ? s->begin : s->end);
  fprintf(f, "%s}", begins ? "" : ",\"bp\":\"e\"");
}

static void lane_name(const sim_trace *t, uint32_t rank, uint32_t lane, char *out, uint32_t size) {
  static const char *const lanes[] = {"host", "stream", "send port", "receive port"};
  if (t->name != NULL)
    t->name(t->user, rank, lane, out, size);
  else if (lane == UINT32_MAX)
    snprintf(out, size, "rank %u", rank);
  else if (lane == SIM_LANE_COLLECTIVES)
    snprintf(out, size, "collectives");
  else if (lane < SIM_LANE_STREAMS)
    snprintf(out, size, "%s", lanes[lane]);
  else
    snprintf(out, size, "stream %u", lane - SIM_LANE_STREAMS + 2);
}

static void write_lane(FILE *f, const sim_trace *t, uint32_t rank, uint32_t lane) {
  char name[48] = "";
  lane_name(t, rank, lane, name, sizeof name);
  fprintf(f, ",\n{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
          rank, lane, name);
}

static void write_rank(FILE *f, const sim_trace *t, uint32_t rank) {
  char name[48] = "";
  lane_name(t, rank, UINT32_MAX, name, sizeof name);
  fprintf(f, ",\n{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}", rank, name);
}

/* The names of the ranks and lanes that have slices. */
static void write_names(FILE *f, const sim_trace *t) {
  uint64_t ranks = 0;
  for (uint64_t i = 0; i < t->n; i++)
    if (t->slices[i].rank >= ranks) ranks = (uint64_t)t->slices[i].rank + 1;
  uint64_t *seen = calloc(ranks + 1, sizeof *seen);
  for (uint64_t i = 0; i < t->n && seen != NULL; i++) {
    const slice *s = &t->slices[i];
    const uint64_t bit = UINT64_C(1) << (s->lane % SIM_LANES);
    if ((seen[s->rank] & bit) == 0) write_lane(f, t, s->rank, s->lane);
    if (seen[s->rank] == 0) write_rank(f, t, s->rank);
    seen[s->rank] |= bit;
  }
  free(seen);
}

int32_t sim_trace_write(const sim_trace *t, const char *path, bs_error *err) {
  bs_out_file out;
  int why = bs_out_open(path, &out);
  FILE *f = why == 0 ? fdopen(dup(out.fd), "w") : NULL;
  if (why == 0 && f == NULL) why = bs_out_close(&out, errno, 0);
  if (f == NULL) return bs_error_errno(err, BS_IO, "BS-SIM-TRACE", why, "cannot write the trace %s", path);
  fprintf(f,
          "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"simulated\":true,\"events\":%" PRIu64
          ",\"dropped\":%" PRIu64
          "},\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":0,\"name\":\"trace\",\"args\":{}}",
          t->events, t->dropped);
  write_names(f, t);
  for (uint64_t i = 0; i < t->n; i++) write_slice(f, &t->slices[i]);
  fputs("\n]}\n", f);
  const int bad = ferror(f);
  if (fclose(f) != 0) why = errno;
  why = bs_out_close(&out, why == 0 && bad ? EIO : why, 0);
  if (why != 0) return bs_error_errno(err, BS_IO, "BS-SIM-TRACE", why, "cannot write the trace %s", path);
  return BS_OK;
}
