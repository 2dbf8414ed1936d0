/* SPDX-License-Identifier: MIT
 * view_jobs.c - the jobs of lanes, and what waits at parts over time: see view_parts.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/sim/view_parts.h"

/* ---- the run ----------------------------------------------------------------------------------- */

/* Adds a token that is there from `from` to `to` to the bins of a series. */
static void add(const view_run *r, uint64_t *bins, uint64_t from, uint64_t to) {
  for (uint64_t i = from / r->bin; from < to && i < VIEW_BINS; i++) {
    const uint64_t end = (i + 1) * r->bin, until = to < end ? to : end;
    bins[i] += until - from;
    from = until;
  }
}

static void pass(void *user, const sim_passed *at) {
  const sim_program *p = user;
  const view_run *r = p->told;
  const uint32_t part = at->job->stops[at->stop].part, series = r->series_of[part];
  const sim_part *of = &r->l->parts[part];
  if (series == VIEW_NONE) return;
  const uint64_t begin = sim_add(at->reached, at->waited);
  add(r, &r->waiting[(size_t)series * VIEW_BINS], at->reached, begin);
  if (of->kind == SIM_QUEUE || of->kind == SIM_CACHE) return;
  /* Latencies follow when the part is free again. */
  const uint64_t latency = of->kind == SIM_SERVER ? 0 : of->first;
  if (at->after.whole > latency)
    add(r, &r->working[(size_t)series * VIEW_BINS], begin, at->after.whole - latency);
}

static void done(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                 uint64_t end) {
  const sim_program *p = user;
  view_run *r = p->told;
  (void)index;
  r->kinds[job->what].jobs++;
  r->kinds[job->what].ps += end - begin;
  if (lane >= VIEW_LANES || r->n_jobs == r->most_jobs) {
    r->left++;
    return;
  }
  r->jobs[r->n_jobs++] = (view_job){begin, end, lane, job->what};
  r->until = end;
}

static int by_lane(const void *a, const void *b) {
  const view_job *x = a, *y = b;
  if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return (int)x->what - (int)y->what;
}

int32_t view_watch(view_run *r, bs_error *err) {
  const sim_inside_config hooks = {.pass = pass, .done = done};
  r->bin = r->time / VIEW_BINS + 1;
  r->jobs = calloc(r->most_jobs, sizeof *r->jobs);
  if (r->jobs == NULL) return bs_no_memory(err, "the jobs of a page");
  const int32_t rc = bs_inside_rerun(r->of->answer, &hooks, r, err);
  qsort(r->jobs, r->n_jobs, sizeof *r->jobs, by_lane);
  return rc;
}

/* ---- as JSON ----------------------------------------------------------------------------------- */

static uint64_t most_of(const uint64_t *bins) {
  uint64_t most = 0;
  for (int i = 0; i < VIEW_BINS; i++)
    if (bins[i] > most) most = bins[i];
  return most;
}

static json_t *letters_of(const uint64_t *bins, uint64_t most) {
  static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  char text[VIEW_BINS + 1] = "";
  for (int i = 0; i < VIEW_BINS; i++)
    text[i] = letters[most > 0 ? (int)((double)bins[i] / (double)most * 61 + 0.5) : 0];
  return json_string(text);
}

json_t *view_series_json(const view_run *r) {
  json_t *all = json_array();
  for (uint32_t s = 0; s < r->n_series; s++) {
    const uint64_t *waiting = &r->waiting[(size_t)s * VIEW_BINS],
                   *working = &r->working[(size_t)s * VIEW_BINS];
    const uint64_t waits = most_of(waiting), works = most_of(working);
    char most[2][32];
    if (waits + works == 0) {
      json_array_append_new(all, json_null());
      continue;
    }
    snprintf(most[0], sizeof most[0], "%.3g", (double)waits / (double)r->bin);
    snprintf(most[1], sizeof most[1], "%.3g", (double)works / (double)r->bin);
    json_array_append_new(all, json_pack("[s, s, o, o]", most[0], most[1], letters_of(waiting, waits),
                                         letters_of(working, works)));
  }
  return all;
}

static void say_base36(uint64_t n, bs_text *out) {
  char text[16];
  int at = (int)sizeof text;
  do {
    text[--at] = "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36];
    n /= 36;
  } while (n > 0);
  bs_text_append(out, text + at, sizeof text - (size_t)at);
}

json_t *view_lanes_json(const view_run *r) {
  const uint32_t lanes = r->l->device->lanes < VIEW_LANES ? r->l->device->lanes : VIEW_LANES;
  json_t *names = json_array(), *spans = json_array();
  uint32_t at = 0;
  for (uint32_t lane = 0; lane < lanes; lane++) {
    bs_text text = {0};
    uint64_t before = 0;
    char name[64];
    sim_layout_lane_name(r->l, lane, name, sizeof name);
    json_array_append_new(names, json_string(name));
    for (; at < r->n_jobs && r->jobs[at].lane == lane; at++) {
      const view_job *j = &r->jobs[at];
      say_base36(j->begin - before, &text);
      bs_text_printf(&text, ".");
      say_base36(j->end - j->begin, &text);
      bs_text_printf(&text, "%c", 'A' + (int)j->what);
      before = j->begin;
    }
    json_array_append_new(spans, json_string(text.data != NULL && !text.failed ? text.data : ""));
    bs_text_free(&text);
  }
  return json_pack("{s:o, s:o}", "names", names, "spans", spans);
}
