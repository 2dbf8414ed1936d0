/* SPDX-License-Identifier: MIT
 * test_bsrun_sim.c - messages of the simulator hop by hop, and traces whose slices add up to the run.
 * tests/cases/sim_verbs.case has the simulator's other verbs. Nothing is measured. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

/* bsrun of a line of words. */
static ran run_line(const char *line) {
  static char copy[1024];
  char *argv[64] = {(char *)(uintptr_t) "bsrun"};
  int n = 1;
  snprintf(copy, sizeof copy, "%s", line);
  for (char *word = strtok(copy, " "); word != NULL && n < 63; word = strtok(NULL, " ")) argv[n++] = word;
  return finish_spawn(dir, start_bsrun(dir, argv));
}

static int said(const ran *r, const char *words) {
  return r->err != NULL && strstr(r->err, words) != NULL;
}

static json_t *rows_of(const char *line) {
  ran r = run_line(line);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, 0, NULL);
  ck_assert_msg(json_is_array(rows), "%s: %s", line, r.out);
  ran_free(&r);
  return rows;
}

static double number(const json_t *row, const char *key) {
  return json_number_value(json_object_get(row, key));
}

static const char *text(const json_t *row, const char *key) {
  const char *value = json_string_value(json_object_get(row, key));
  return value != NULL ? value : "";
}

static json_t *load(const char *file) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", dir, file);
  json_error_t why;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(root != NULL, "%s: line %d: %s", file, why.line, why.text);
  return root;
}

/* ---- probe ------------------------------------------------------------------------------------- */

/* Rows 19 and 20 of the known answers, and sums of other ways; wait, latency, bytes of the total. */
static const struct {
  const char *words;
  double us, closed_us, wait, latency, bytes;
  size_t rows;
} ways[] = {
    {"0 1", 21.471520, 21.471520, 0, 0.5, 20.971520, 4},
    {"0 5 -P 8 --set hardware.topology=nvswitch", 21.471520, 21.471520, 0, 0.5, 20.971520, 5},
    {"1 2 -P 8 --set hardware.topology=nvswitch --beside 0:2", 42.443040, 21.471520, 20.971520, 0.5,
     20.971520, 5},
    {"0 2 -P 8 --set hardware.topology=nvswitch --beside 1:2", 21.471520, 21.471520, 0, 0.5, 20.971520, 5},
    {"1 2 --beside 0:2", 42.443040, 21.471520, 20.971520, 0.5, 20.971520, 4},
    {"0 2 -P 8 --set hardware.topology=ring --beside 1:2", 42.443040, 21.971520, 20.471520, 1, 20.971520, 5},
    {"0 5 -P 16 --size 4Ki --set hardware.topology=fat_tree", 3.081920, 3.081920, 0, 3, 0.081920, 9},
    {"1 9 -P 16 --size 4800 --set "
     "hardware.topology=hier:outer_latency_s=5e-6,outer_bw_Bps=48e9 --hardware h100-dgx",
     5.1, 5.1, 0, 5, 0.1, 0},
    {"0 1 --size 0", 0.5, 0.5, 0, 0.5, 0, 4},
};

START_TEST(a_message_hop_by_hop) {
  char line[256];
  snprintf(line, sizeof line, "sim probe %s -o json", ways[_i].words);
  json_t *rows = rows_of(line);
  const size_t n = json_array_size(rows);
  const json_t *total = json_array_get(rows, n - 1);
  double wait = 0, latency = 0;
  for (size_t i = 0; i + 1 < n; i++) {
    wait += number(json_array_get(rows, i), "wait_us");
    latency += number(json_array_get(rows, i), "latency_us");
  }
  ck_assert_msg(ways[_i].rows == 0 || n == ways[_i].rows, "%s: %zu rows", line, n);
  ck_assert_str_eq(text(total, "hop"), "total");
  ck_assert_msg(fabs(number(total, "simulated_us") - ways[_i].us) < 1e-9, "%s: %.9f us", line,
                number(total, "simulated_us"));
  ck_assert_msg(fabs(number(total, "closed_us") - ways[_i].closed_us) < 1e-6, "%s: %.9f us", line,
                number(total, "closed_us"));
  ck_assert(fabs(number(total, "wait_us") - ways[_i].wait) < 1e-9 && fabs(wait - ways[_i].wait) < 1e-9);
  ck_assert(fabs(number(total, "latency_us") - ways[_i].latency) < 1e-9 &&
            fabs(latency - ways[_i].latency) < 1e-9);
  ck_assert(fabs(number(total, "bytes_us") - ways[_i].bytes) < 1e-9);
  json_decref(rows);
}
END_TEST

/* ---- traces ------------------------------------------------------------------------------------ */

enum { RANKS = 4, LANES = 8 };

/* Of each lane: the time of its slices together, and when the last one ends. */
typedef struct lanes {
  double sum[RANKS][LANES], end[RANKS][LANES];
  int slices;
} lanes;

typedef struct slice {
  int rank, lane;
  double begin, dur;
} slice;

static int by_lane(const void *a, const void *b) {
  const slice *x = a, *y = b;
  if (x->rank != y->rank) return x->rank - y->rank;
  if (x->lane != y->lane) return x->lane - y->lane;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

/* None of a lane begins before the one before has ended. */
static lanes read_lanes(const char *file) {
  static slice slices[1000];
  json_t *root = load(file), *event;
  lanes l = {0};
  size_t i;
  json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
    if (strcmp(text(event, "ph"), "X") != 0) continue;
    const slice s = {(int)number(event, "pid"), (int)number(event, "tid"), number(event, "ts"),
                     number(event, "dur")};
    ck_assert(s.rank >= 0 && s.rank < RANKS && s.lane >= 0 && s.lane < LANES && l.slices < 1000);
    ck_assert(s.dur > 0 && text(event, "name")[0] != '\0');
    slices[l.slices++] = s;
  }
  json_decref(root);
  qsort(slices, (size_t)l.slices, sizeof slices[0], by_lane);
  for (int k = 0; k < l.slices; k++) {
    const slice *s = &slices[k];
    double *end = &l.end[s->rank][s->lane];
    ck_assert_msg(s->begin > *end - 1e-9, "%s: rank %d lane %d: the slice at %.6f overlaps", file, s->rank,
                  s->lane, s->begin);
    l.sum[s->rank][s->lane] += s->dur;
    *end = s->begin + s->dur;
  }
  return l;
}

static double last_end(const lanes *l) {
  double last = 0;
  for (int r = 0; r < RANKS; r++)
    for (int k = 0; k < LANES; k++) last = fmax(last, l->end[r][k]);
  return last;
}

#define TRACED "--plugin sim --hardware sim-flat --method row_parallel -P 4 --to trace=t.json "

/* With one stream the slices of a rank's stream have no gaps: together they are the time of the run. */
static const struct {
  const char *line;
  int overlaps; /* several streams */
} traced[] = {
    {TRACED "-o json --phase train", 0},
    {TRACED "-o json --set hardware.algorithm=ring --phase backward", 0},
    {TRACED "-o json --set hardware.algorithm=two_shot --set hardware.topology=nvswitch", 0},
    {TRACED "-o json --set plugins.sim.launch_s=5e-6", 0},
    {TRACED "-o json --set method.overlap=4", 1},
    {TRACED "-o json --phase time --backend virtual:ref --n 64 --b 16 --set hardware.algorithm=ring", 0},
};

START_TEST(a_trace_adds_up_to_the_run) {
  json_t *rows = rows_of(traced[_i].line);
  const double us = number(json_array_get(rows, 0), "simulated_us");
  const lanes l = read_lanes("t.json");
  double most = 0;
  for (int r = 0; r < RANKS; r++) most = fmax(most, l.sum[r][1]);
  ck_assert_msg(fabs(last_end(&l) - us) < 1e-6, "%s: %.6f us of %.6f", traced[_i].line, last_end(&l), us);
  if (traced[_i].overlaps)
    ck_assert(most < us && l.sum[0][4] > 0);
  else
    ck_assert_msg(fabs(most - us) < 1e-6, "%s: %.6f us of %.6f", traced[_i].line, most, us);
  json_decref(rows);
}
END_TEST

START_TEST(a_trace_of_a_schedule) {
  json_t *rows = rows_of("coll explain ring -P 4 --hardware sim-flat --to c.json -o json");
  const lanes l = read_lanes("c.json");
  ck_assert_int_eq(l.slices, 2 * 24);
  ck_assert(fabs(last_end(&l) - number(json_array_get(rows, 0), "simulated_us")) < 1e-6);
  json_decref(rows);
  rows = rows_of("coll bench ring --comm sim -P 4 --hardware sim-flat --to b.json --size 8:8192*2 -o json");
  const json_t *last = json_array_get(rows, json_array_size(rows) - 1);
  const lanes b = read_lanes("b.json");
  ck_assert(fabs(last_end(&b) - number(last, "simulated_us")) < 1e-6);
  ck_assert(fabs(number(last, "measured_us") - number(last, "simulated_us")) < 1e-3);
  ck_assert_str_eq(text(last, "times"), "simulated");
  json_decref(rows);
}
END_TEST

/* What goes beyond the cap is counted, in the file and on the screen. */
START_TEST(a_trace_has_a_cap) {
  ran r = run_line(TRACED "--phase train --set hardware.algorithm=ring --set plugins.sim.trace_events=50");
  must_be(&r, 0);
  ck_assert_msg(said(&r, "wrote the trace t.json: 50 events, ") && !said(&r, " 0 left"), "%s", r.err);
  json_t *root = load("t.json");
  const json_t *other = json_object_get(root, "otherData");
  ck_assert(number(other, "events") == 50 && number(other, "dropped") > 50);
  json_decref(root);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_message_hop_by_hop, TEST_COUNT(ways)},
                             {a_trace_adds_up_to_the_run, TEST_COUNT(traced)},
                             {a_trace_of_a_schedule},
                             {a_trace_has_a_cap},
                             {0}};
  return run_tests("bsrun_sim", tests, (test_setup){dir_make, dir_remove});
}
