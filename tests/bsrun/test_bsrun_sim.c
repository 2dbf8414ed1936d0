/* SPDX-License-Identifier: MIT
 * test_bsrun_sim.c - the simulator's verbs as a user calls them: `bench comm` in virtual time, `sim probe`,
 * traces, gates, and worlds that cannot go on. Times are known answers of the model; nothing is measured. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

/* bsrun of a line of words. */
static ran run_line(const char *line) {
  static char copy[1024];
  char *argv[64] = {(char *)(uintptr_t) "bsrun"};
  int n = 1;
  snprintf(copy, sizeof copy, "%s", line);
  for (char *word = strtok(copy, " "); word != NULL && n < 63; word = strtok(NULL, " ")) argv[n++] = word;
  return finish_bsrun(dir, start_bsrun(dir, argv));
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

/* ---- bench comm -------------------------------------------------------------------------------- */

#define COMM "bench comm --coll all_reduce --min-bytes 1M --max-bytes 1M -o json "
#define LINK "--set plugins.sim.alpha_s=0.5e-6 --set plugins.sim.bw_Bps=50e9 "

/* Row 1 of the known answers, to the ns of a communicator's clock. */
static const struct {
  const char *line;
  double us;
} comms[] = {
    {COMM "--plugin sim -P 2 " LINK, 21.971520},
    {COMM "--hardware sim-flat -P 8", 43.700160},
    {"bench comm --coll all_reduce --min-bytes 64k --max-bytes 64k -o json --plugin sim --comm sim -P "
     "64 " LINK,
     65.580480},
    {COMM "--hardware sim-flat -P 8 --set hardware.algorithm=halving_doubling", 39.700160},
};

START_TEST(a_simulated_communicator_is_timed_by_its_clock) {
  json_t *rows = rows_of(comms[_i].line);
  const json_t *row = json_array_get(rows, 0);
  ck_assert_uint_eq(json_array_size(rows), 1);
  ck_assert_str_eq(text(row, "times"), "simulated");
  ck_assert_str_eq(text(row, "comm"), "sim");
  ck_assert_msg(fabs(number(row, "time_us") - comms[_i].us) < 1e-3, "%s: %.6f us", comms[_i].line,
                number(row, "time_us"));
  ck_assert(number(row, "wrong") == 0 && number(row, "samples") == 1);
  json_decref(rows);
}
END_TEST

START_TEST(no_calibrated_machine_is_made_of_simulated_times) {
  ran r = run_line("bench comm --hardware sim-flat --coll all_reduce --factor 4 -o jsonl");
  must_be(&r, 0);
  write_text(dir, "sim.jsonl", r.out);
  ran_free(&r);
  r = run_line("sim fit sim.jsonl");
  must_be(&r, 0);
  ran_free(&r);
  r = run_line("sim fit sim.jsonl --write m.yaml");
  must_be(&r, 4);
  ck_assert_msg(said(&r, "BS-FIT-SIMULATED"), "%s", r.err);
  ran_free(&r);
}
END_TEST

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
    {"0 5 -P 16 --size 4k --set hardware.topology=fat_tree", 3.081920, 3.081920, 0, 3, 0.081920, 9},
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

static const struct {
  const char *line, *id;
  int exit;
} wrong[] = {
    {"sim probe 0", "BS-USE-WORD", 2},
    {"sim probe 0 x", "BS-USE-NUMBER", 2},
    {"sim probe 3 3", "BS-SIM-PEER", 2},
    {"sim probe 0 9 -P 4", "BS-SIM-PEER", 2},
    {"sim probe 0 1 --beside 2", "BS-USE-NUMBER", 2},
    {"sim probe 0 1 --size -1", "BS-USE-NUMBER", 2},
    {"sim probe 0 1 --hardware cpu", "BS-SIM-MACHINE", 3},
    {"sim probe 0 1 --set hardware.topology=rng", "did you mean 'ring'", 3},
    {"sim probe 0 1 --hardware h100", "h100", 3},
    {"--plugin sim --hardware sim-flat --method row_parallel -P 8 --set hardware.topology=nvswitch",
     "BS-SIM-TOPOLOGY", 3},
    {"sim explain --plugin sim --hardware sim-flat --method row_parallel -P 8 --set "
     "hardware.topology=nvswitch --set hardware.algorithm=native",
     "BS-SIM-TOPOLOGY", 3},
    {"bench comm --plugin sim -P 2 --max-bytes 64", "BS-SIM-MACHINE", 3},
    {"ccl bench ring --comm sim --max-bytes 1024", "BS-SIM-MACHINE", 3},
    {"ladder --plugin sim -P 2 --n 64", "nothing takes time", 3},
    {"ladder --plugin sim --hardware sim-flat -P 2 --n 64 row_parallel --vary hardware.comm=sim,threads",
     "BS-SPAN-CLOCK", 3},
    {"ladder --plugin sim --hardware sim-flat -P 2 --n 64 row_parallel --vary hardware.comm=threads,sim",
     "comm=threads is timed by the clock of communicator threads", 3},
    {"ccl explain nccl230 -P 8 --late 3:1", "BS-CCL-FORMULA", 3},
    {"ccl explain nccl230 -P 8 --trace t.json", "BS-CCL-FORMULA", 3},
    {"ccl explain ring -P 8 --late 8:1", "BS-USE-NUMBER", 2},
    {"ccl explain ring -P 8 --late 1", "BS-USE-NUMBER", 2},
    {"ccl explain ring two_shot --trace t.json", "BS-SIM-TRACE", 2},
    {"--method dense --phase 1 --trace t.json", "BS-SIM-TRACE", 3},
    {"--plugin sim --hardware sim-flat --backend virtual:ref --phase 0 --trace t.json", "BS-SIM-TRACE", 2},
    {"--plugin sim --hardware sim-flat --sweep N_sweep --trace t.json", "BS-SIM-TRACE", 2},
    {"sim explain --plugin sim --hardware sim-flat --trace no/such/folder.json", "BS-SIM-TRACE", 10},
};

/* A topology of eight ranks says nothing of the one that runs the dense layer. */
START_TEST(the_dense_layer_of_a_ladder_needs_no_topology) {
  ran r = run_line(
      "ladder --plugin sim --hardware h100-dgx -P 8 --n 512 --set hardware.algorithm=hierarchical "
      "--set hardware.topology=hier:group=4 -o csv");
  ck_assert_msg(r.code == 0, "%s", r.err);
  ck_assert_ptr_nonnull(strstr(r.out, ",dense,0."));
  ran_free(&r);
}
END_TEST

START_TEST(what_is_wrong_is_named) {
  ran r = run_line(wrong[_i].line);
  ck_assert_msg(r.code == wrong[_i].exit && said(&r, wrong[_i].id), "%s: exit %d: %s", wrong[_i].line, r.code,
                r.err);
  ran_free(&r);
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

#define TRACED "--plugin sim --hardware sim-flat --method row_parallel -P 4 --trace t.json "

/* With one stream the slices of a rank's stream have no gaps: together they are the time of the run. */
static const struct {
  const char *line;
  int overlaps; /* several streams */
} traced[] = {
    {TRACED "-o json --phase 3", 0},
    {TRACED "-o json --set hardware.algorithm=ring --phase 2", 0},
    {TRACED "-o json --set hardware.algorithm=two_shot --set hardware.topology=nvswitch", 0},
    {TRACED "-o json --set plugins.sim.launch_s=5e-6", 0},
    {TRACED "-o json --set method.overlap=4", 1},
    {TRACED "-o json --phase 1 --backend virtual:ref --n 64 --b 16 --set hardware.algorithm=ring", 0},
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
  json_t *rows = rows_of("ccl explain ring -P 4 --hardware sim-flat --trace c.json -o json");
  const lanes l = read_lanes("c.json");
  ck_assert_int_eq(l.slices, 2 * 24);
  ck_assert(fabs(last_end(&l) - number(json_array_get(rows, 0), "simulated_us")) < 1e-6);
  json_decref(rows);
  rows =
      rows_of("ccl bench ring --comm sim -P 4 --hardware sim-flat --trace b.json --max-bytes 8192 -o json");
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
  ran r = run_line(TRACED "--phase 3 --set hardware.algorithm=ring --set plugins.sim.trace_events=50");
  must_be(&r, 0);
  ck_assert_msg(said(&r, "wrote the trace t.json: 50 events, ") && !said(&r, " 0 left"), "%s", r.err);
  json_t *root = load("t.json");
  const json_t *other = json_object_get(root, "otherData");
  ck_assert(number(other, "events") == 50 && number(other, "dropped") > 50);
  json_decref(root);
  ran_free(&r);
}
END_TEST

/* ---- worlds that cannot go on ------------------------------------------------------------------ */

#define STUCK "--plugin " BS_TEST_RUDE_DIR "/bs_stuck.so "
#define LAYER                                                                          \
  "--plugin sim --hardware sim-flat --method row_parallel -P 2 --n 64 --b 4 -q " STUCK \
  "--set hardware.algorithm="
#define THREADS \
  "--method row_parallel -P 2 --n 64 --b 4 --phase 0 -q --timeout 3 " STUCK "--set hardware.algorithm="
#define EXPLAIN "ccl explain --hardware sim-flat -P 4 --count 1024 " STUCK

/* A deadlocked pair, a count that differs, a message that nobody receives: in a layer, and as a schedule. */
static const struct {
  const char *line;
  int exit;
  const char *said;
} stuck[] = {
    {LAYER "receives_first", 8,
     "error[BS-SIM-STUCK] row_parallel.y: no rank can go on: 2 of 2 wait; cycle 0 -> 1 -> 0; rank 0 waits "
     "for a "
     "message of rank 1 (1024 bytes) at row_parallel.y; rank 1 waits for a message of rank 0 (1024 bytes)"},
    {LAYER "short_count", 9,
     "error[BS-SIM-MISMATCH] row_parallel.y: rank 0 sends 1024 bytes at row_parallel.y, rank 1 receives 1020 "
     "bytes at row_parallel.y: the sizes differ"},
    {LAYER "left_over", 9,
     "error[BS-SIM-LEFTOVER] all ranks have ended, and 1 message was not received: the first is of rank 0 to "
     "rank 1, 4 bytes, sent at row_parallel.y"},
    {EXPLAIN "receives_first", 8,
     "error[BS-SIM-STUCK] no rank can go on: 4 of 4 wait; cycle 0 -> 1 -> 0; ranks 0, 2 wait for a message "
     "of "
     "rank r+1 (4096 bytes) at receives_first, round 1; ranks 1, 3 wait for a message of rank r-1"},
    {EXPLAIN "short_count", 9,
     "error[BS-SIM-MISMATCH] rank 0 sends 4096 bytes at short_count, rank 1 receives "
     "4092 bytes at short_count: the sizes differ"},
    {EXPLAIN "left_over", 9, "error[BS-SIM-LEFTOVER] all ranks have ended, and 1 message was not received"},
    {LAYER "endless", 5,
     "error[BS-ALG-STEPS] row_parallel.y: algorithm endless, rank 0 of 2, step 1048641: a rank has more "
     "steps than any use of them (1048640)"},
    {THREADS "endless", 5, "error[BS-ALG-STEPS] row_parallel.y: algorithm endless"},
    {EXPLAIN "endless", 5, "error[BS-ALG-STEPS] algorithm endless, rank 0 of 4, step 1048706"},
    {"ccl bench endless --hardware sim-flat --timeout 3 -P 2 --samples 3 --max-bytes 4096 " STUCK, 5,
     "error[BS-ALG-STEPS]"},
    {EXPLAIN "negative", 5,
     "error[BS-CCL-COST] the formula of negative says -1 s for all_reduce of 1024 elements of 4 bytes on 4 "
     "ranks: only 0 to"},
    {"ccl check " BS_TEST_RUDE_DIR "/bs_stuck.so", 6, "BS-CCL-WRONG"},
};

START_TEST(a_world_that_cannot_go_on_says_why) {
  ran r = run_line(stuck[_i].line);
  ck_assert_msg(r.code == stuck[_i].exit && said(&r, stuck[_i].said), "%s: exit %d: %s", stuck[_i].line,
                r.code, r.err);
  ran_free(&r);
}
END_TEST

/* ---- known answers ----------------------------------------------------------------------------- */

/* Row 15: the last rank ends when the late one begins, and the time of the collective after it. Row 13: a
 * flat ring on slow links. Row 18: what SimGrid's SMPI says of rows 1 and 2, to 0.1 %. */
static const struct {
  const char *line;
  double us, within; /* of us */
} known[] = {
    {"ccl explain ring -P 8 --hardware sim-flat -o json --late 3:1e-3", 1043.700160, 1e-12},
    {"ccl explain ring -P 8 --hardware sim-flat -o json --late 0:1e-3", 1043.700160, 1e-12},
    {"ccl explain doubling -P 64 --hardware sim-flat -o json --late 63:1e-3", 1128.829120, 1e-12},
    {"ccl explain ring -P 1024 --count 16777216 --set plugins.sim.alpha_s=5e-6 --set plugins.sim.bw_Bps=48e9 "
     "-o "
     "json",
     13023.472, 1e-7},
    {"ccl explain ring -P 8 --hardware sim-flat -o json", 43.715, 1e-3},
    {"ccl explain ring -P 64 --hardware sim-flat -o json", 104.338, 1e-3},
    {"ccl explain ring -P 1024 --hardware sim-flat -o json", 1065.567, 1e-3},
};

START_TEST(schedules_take_the_known_time) {
  json_t *rows = rows_of(known[_i].line);
  const double us = number(json_array_get(rows, 0), "simulated_us");
  ck_assert_msg(fabs(us / known[_i].us - 1) < known[_i].within, "%s: %.6f us", known[_i].line, us);
  json_decref(rows);
}
END_TEST

/* 2 * 8192^3 FLOPs at the rate of the dtype, and a launch of 5 us. */
static const struct {
  const char *dtype;
  double compute_us;
} dtypes[] = {{"bf16", 1111.291316},
              {"f16", 1111.291316},
              {"f32", 16435.151387},
              {"f64", 32870.302774},
              {"f8e4m3", 555.617579}};

START_TEST(each_dtype_has_its_rate) {
  char line[512];
  snprintf(line, sizeof line,
           "sim scale --method dense -P 1 --n 8192 --b 8192 --bias off --hardware h100-dgx --set "
           "plugins.sim.launch_s=5e-6 --set plugins.sim.flops_f64=33.45e12 -o json --dtype %s",
           dtypes[_i].dtype);
  json_t *rows = rows_of(line);
  const json_t *row = json_array_get(rows, 0);
  ck_assert_msg(fabs(number(row, "compute_us") - dtypes[_i].compute_us) < 1e-6, "%s: %.6f us", line,
                number(row, "compute_us"));
  ck_assert(number(row, "launch_us") == 5);
  ck_assert(fabs(number(row, "simulated_us") - dtypes[_i].compute_us - 5) < 1e-6);
  json_decref(rows);
}
END_TEST

/* ---- gates ------------------------------------------------------------------------------------- */

#define GATE "sim scale --method column_parallel -P 2,4 --b 4096 --n 4096 --at-least "
#define FITTED                                                                       \
  " --set plugins.sim.label=calibrated --set plugins.sim.domain_least_B=1024 --set " \
  "plugins.sim.domain_most_B=1e9 --set plugins.sim.domain_ranks="

static const struct {
  const char *line;
  int exit;
  const char *said;
} gates[] = {
    {GATE "1.01", 15,
     "BS-SIM-EXTRAPOLATED] column_parallel on 2 ranks: the row is extrapolated (the machine is "
     "published, not calibrated), so no gate judges it"},
    {GATE "0.1 --accept-extrapolated", 0, ""},
    {GATE "1000 --accept-extrapolated", 14, "BS-SIM-GATE] 2 of 2 rows are below 1000 x dense"},
    {GATE "0.1" FITTED "4", 0, ""},
    {GATE "1000" FITTED "4", 14, "BS-SIM-GATE] 2 of 2"},
    {GATE "0.1" FITTED "2", 15, "column_parallel on 4 ranks: the row is extrapolated (a collective has"},
    {GATE "0.1 --accept-extrapolated" FITTED "2", 0, ""},
    {GATE "0.1" FITTED "2 --set hardware.algorithm=ring", 15,
     "column_parallel on 4 ranks: the row is extrapolated"},
    {GATE "0.1 --accept-extrapolated --set phase.dense_arm=false", 3, "BS-SIM-DENSE"},
    {GATE "x", 2, "BS-USE-NUMBER"},
    {"sim scale -P 2 --accept-extrapolated", 2, "BS-USE-OPTION"},
};

START_TEST(a_gate_refuses_extrapolated_rows) {
  ran r = run_line(gates[_i].line);
  ck_assert_msg(r.code == gates[_i].exit && said(&r, gates[_i].said), "%s: exit %d: %s", gates[_i].line,
                r.code, r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_simulated_communicator_is_timed_by_its_clock, TEST_COUNT(comms)},
                             {no_calibrated_machine_is_made_of_simulated_times},
                             {a_message_hop_by_hop, TEST_COUNT(ways)},
                             {the_dense_layer_of_a_ladder_needs_no_topology},
                             {what_is_wrong_is_named, TEST_COUNT(wrong)},
                             {a_trace_adds_up_to_the_run, TEST_COUNT(traced)},
                             {a_trace_of_a_schedule},
                             {a_trace_has_a_cap},
                             {a_world_that_cannot_go_on_says_why, TEST_COUNT(stuck)},
                             {schedules_take_the_known_time, TEST_COUNT(known)},
                             {each_dtype_has_its_rate, TEST_COUNT(dtypes)},
                             {a_gate_refuses_extrapolated_rows, TEST_COUNT(gates)},
                             {0}};
  return run_tests("bsrun_sim", tests, (test_setup){setup, teardown});
}
