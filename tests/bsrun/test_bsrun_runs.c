/* SPDX-License-Identifier: MIT
 * test_bsrun_runs.c - runs list, show, note and baseline, fsck, why and replay, on runs that bsrun made: one
 * that ended well, and one in which a rank hung, whose last collectives the flight recorder has. */
#include <jansson.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static void make_run(const char *id) {
  ran r = bsrun(dir, "-q", "--method", "dense", "--phase", "0", "-P", "1", "--run-id", id, "--set",
                "hardware.backend=ref", SMALL, NULL);
  must_be(&r, 0);
  ran_free(&r);
}

static json_t *read_json(ran *r, int code) {
  must_be(r, code);
  json_t *value = json_loads(r->out, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(value != NULL, "%s", r->out);
  ran_free(r);
  return value;
}

#define RUN(...) bsrun(dir, __VA_ARGS__, NULL)

static void must_say(ran r, int code, const char *on_out, const char *on_err) {
  must_be(&r, code);
  ck_assert_msg(strstr(r.out, on_out) != NULL, "%s", r.out);
  ck_assert_msg(strstr(r.err, on_err) != NULL, "%s", r.err);
  ran_free(&r);
}

START_TEST(runs_are_listed_shown_and_annotated) {
  make_run("first_run");
  make_run("second_run");
  ran r = RUN("runs", "list", "-o", "json");
  json_t *rows = read_json(&r, 0);
  ck_assert_uint_eq(json_array_size(rows), 2);
  const json_t *row = json_array_get(rows, 0);
  ck_assert_str_eq(json_string_value(json_object_get(row, "run_id")), "second_run");
  ck_assert_str_eq(json_string_value(json_object_get(row, "word")), "RIGHT");
  ck_assert_uint_eq(strlen(json_string_value(json_object_get(row, "result_key"))), 64);
  ck_assert(json_is_string(json_object_get(row, "host")));
  json_decref(rows);
  must_say(RUN("runs", "list"), 0, "first_run", "");
  must_say(RUN("runs", "list", "--limit", "1"), 0, "second_run", "1 of 2 rows");
  r = RUN("runs", "list", "--where", "run_id=first_run", "--where", "N<=64", "-o", "json");
  rows = read_json(&r, 0);
  ck_assert_uint_eq(json_array_size(rows), 1);
  json_decref(rows);
  must_say(RUN("runs", "list", "--where", "methode=dense"), 2, "", "did you mean 'method'");
  must_say(RUN("runs", "note", "first", "--observation", "as expected"), 0, "noted", "");
  must_say(RUN("runs", "note", "first"), 2, "", "BS-USE-NOTE");
  must_say(RUN("runs", "list"), 0, "as expected", "");
  must_say(RUN("runs", "show", "first"), 0, "observation, 20", "");
  must_say(RUN("runs", "show", "_run"), 5, "", "BS-STO-NORUN");
  r = RUN("runs", "show", "first", "-o", "json");
  json_t *whole = read_json(&r, 0);
  const json_t *record = json_array_get(json_object_get(whole, "records"), 0);
  ck_assert_int_eq(json_integer_value(json_object_get(record, "schema")), 2);
  ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(record, "config")), "run_id: first_run"));
  ck_assert_str_eq(json_string_value(json_array_get(json_object_get(record, "argv"), 1)), "-q");
  json_decref(whole);
  must_say(RUN("runs", "baseline", "main", "first"), 0, "baseline main is", "");
  must_say(RUN("runs", "baseline"), 0, "main phase0_correctness/dense/first_run", "");
  must_say(RUN("runs", "baseline", "next", "results/raw/phase0_correctness/dense/second_run"), 0, "next is",
           "");
  must_say(RUN("runs", "baseline"), 0, "next phase0_correctness/dense/second_run", "");
  must_say(RUN("runs", "baseline", "x", "results/raw/phase0_correctness/dense/first_run", "--out", "configs"),
           2, "", "BS-USE-BASELINE");
  must_say(RUN("why", "first"), 0, "committed: ok", "");
  must_say(RUN("fsck"), 0, "2 of 2 runs are whole", "");
  must_say(RUN("fsck", "results/rwa"), 10, "", "BS-STO-READ");
  must_say(RUN("fsck", "/dev/null"), 10, "", "Not a directory");
}
END_TEST

START_TEST(fsck_tells_of_damage_and_repairs_copies) {
  char path[1024];
  make_run("run");
  snprintf(path, sizeof path, "%s/results/raw/phase0_correctness/dense/run/config.yaml", dir);
  ck_assert_int_eq(unlink(path), 0);
  must_say(RUN("fsck"), 0, "copy differs", "");
  must_say(RUN("fsck", "--repair"), 0, "written anew", "");
  ran r = RUN("fsck", "-o", "json");
  json_t *rows = read_json(&r, 0);
  ck_assert_uint_eq(json_array_size(rows), 0);
  json_decref(rows);
  r = bsrun(dir, "-q", "--config", path, "--print-config", NULL); /* it is a configuration again */
  must_be(&r, 0);
  ran_free(&r);
  snprintf(path, sizeof path, "%s/results/raw/phase0_correctness/dense/run/metrics.jsonl", dir);
  FILE *f = fopen(path, "r+");
  ck_assert_ptr_nonnull(f);
  fputc(' ', f);
  fclose(f);
  must_say(RUN("fsck", "--repair"), 13, "damaged", "BS-STO-DAMAGED");
  must_say(RUN("runs", "list", "-o", "csv"), 0, "run,", "1 damaged runs are left out");
  must_say(RUN("why", "run"), 0, "damaged: ", "");
  must_say(RUN("runs", "show", "run"), 13, "", "BS-STO-DAMAGED");
}
END_TEST

/* Rank 1 hangs in its third collective: what both ranks did last is read from the folder, also where they are
 * processes. */
START_TEST(why_names_what_the_ranks_did_last) {
  ran r =
      bsrun(dir, "-q", "--method", "row_parallel", "-P", "2", "--phase", "0", "--run-id", "hung", "--launch",
            _i == 0 ? "threads" : "processes", "--comm", _i == 0 ? "fault:threads" : "fault:shm", "--timeout",
            "1", "--set", "plugins.fault.plan=rank=1,op=all_reduce,seq=0,do=hang", SMALL, NULL);
  must_be(&r, 8);
  ran_free(&r);
  r = RUN("why", "hung", "-o", "json");
  json_t *rows = read_json(&r, 0), *row;
  size_t i;
  int error = 0, ranks = 0, inside = 0;
  json_array_foreach(rows, i, row) {
    const char *what = json_string_value(json_object_get(row, "what"));
    const char *answer = json_string_value(json_object_get(row, "answer"));
    error |= strcmp(what, "error") == 0 && strstr(answer, "BS-COLL-DEADLINE") != NULL;
    ranks += strncmp(what, "rank ", 5) == 0 && strstr(answer, "all_reduce") != NULL;
    inside += strncmp(what, "rank ", 5) == 0 && strstr(answer, "in it") != NULL;
    ck_assert_msg(strcmp(what, "behind") != 0, "%s", answer); /* all count the same collectives */
  }
  ck_assert_int_eq(error, 1);
  ck_assert_int_eq(ranks, 2);
  ck_assert_int_ge(inside, 1);
  json_decref(rows);
}
END_TEST

/* A process that SIGKILL ends inside a collective leaves a folder without DONE: it is told from one that is
 * at work, its recorder is read, and it is in no list. */
START_TEST(why_reads_what_a_killed_process_left) {
  ran r =
      bsrun(dir, "-q", "--method", "row_parallel", "-P", "2", "--phase", "0", "--run-id", "killed", "--comm",
            "fault:threads", "--set", "plugins.fault.plan=rank=1,op=all_reduce,seq=1,do=kill", SMALL, NULL);
  ck_assert_int_ne(r.code, 0);
  ran_free(&r);
  must_say(RUN("why", "killed"), 0, "killed: its process ended", "");
  must_say(RUN("why", "killed"), 0, "rank 1  collective 1, all_reduce", "");
  must_say(RUN("fsck"), 0, "0 of 0 runs are whole", "");
  r = RUN("runs", "list", "-o", "json");
  json_t *rows = read_json(&r, 0);
  ck_assert_uint_eq(json_array_size(rows), 0);
  json_decref(rows);
}
END_TEST

/* Row of a replay, or NULL. */
static const json_t *find_row(const json_t *rows, const char *part, const char *what) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(json_string_value(json_object_get(row, "part")), part) == 0 &&
        strcmp(json_string_value(json_object_get(row, "what")), what) == 0)
      return row;
  }
  return NULL;
}

static void row_is(const json_t *rows, const char *part, const char *what, const char *is) {
  const json_t *row = find_row(rows, part, what);
  ck_assert_msg(row != NULL, "no row %s %s", part, what);
  ck_assert_str_eq(json_string_value(json_object_get(row, "is")), is);
}

/* The record of the newest run, in the folder that the rows name. */
static json_t *replay_record(const json_t *rows) {
  char folder[1200];
  snprintf(folder, sizeof folder, "%s/results/raw/%s", dir,
           json_string_value(json_object_get(json_array_get(rows, 0), "b")));
  char *text = read_text(folder, "metrics.jsonl");
  json_t *record = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
  ck_assert_msg(record != NULL, "%s", folder);
  free(text);
  return record;
}

/* Phase 0 has the same gates and bits; ranks that are processes are started as they were. */
static const char *const launches[] = {"threads", "processes"};
START_TEST(a_run_is_replayed) {
  ran r = RUN("-q", "--method", "row_parallel", "--phase", "0", "-P", "2", "--run-id", "first", "--launch",
              launches[_i], "--dtype", "f32", SMALL);
  must_be(&r, 0);
  ran_free(&r);
  setenv("OMP_NUM_THREADS", "1", 1); /* what differs in the environment is told, and is no failure */
  r = RUN("replay", "first", "-o", "json");
  unsetenv("OMP_NUM_THREADS");
  json_t *rows = read_json(&r, 0), *record = replay_record(rows);
  row_is(rows, "verdict", "gates", "same");
  row_is(rows, "verdict", "passed", "same");
  row_is(rows, "numbers", "relative_error", "same");
  row_is(rows, "env", "variables.OMP_NUM_THREADS", "differs");
  ck_assert_str_eq(json_string_value(json_object_get(record, "replay_of")), "first");
  ck_assert_str_eq(json_string_value(json_object_get(record, "launch")), launches[_i]);
  json_decref(record);
  json_decref(rows);
  must_say(RUN("replay", "first"), 0, "status, gates and simulated times are the same", "");
}
END_TEST

/* Simulated times repeat to the picosecond: a record that says another time is another result. */
START_TEST(a_simulated_run_repeats_exactly) {
  ran r = RUN("-q", "--plugin", "sim", "--hardware", "sim-flat", "--method", "row_parallel", "-P", "2",
              "--phase", "1", "--n", "256", "--run-id", "sim_run");
  must_be(&r, 0);
  ran_free(&r);
  r = RUN("replay", "sim_run", "-o", "json");
  json_t *rows = read_json(&r, 0);
  row_is(rows, "time", "simulated us", "same");
  json_decref(rows);
}
END_TEST

/* A stored library of a plugin is left out, unless the reader trusts the configuration. */
START_TEST(a_replay_leaves_code_out) {
  ran r = RUN("-q", "--method", "dense", "--phase", "0", "--run-id", "first", "--set",
              "plugins.cpu.dnnl_library=/nowhere.so", SMALL);
  must_be(&r, 0);
  ran_free(&r);
  must_say(RUN("replay", "first"), 0, "status, gates and simulated times are the same",
           "note: the stored configuration names code or a command, which is left out: "
           "plugins.cpu.dnnl_library=/nowhere.so (--trust-config runs it)");
  must_say(RUN("replay", "first", "--trust-config"), 0, "status, gates", "which is run: plugins.cpu.dnnl");
}
END_TEST

/* Errors of the stored run and of the new one. */
START_TEST(what_cannot_be_replayed_is_told) {
  make_run("first");
  must_say(RUN("replay"), 2, "", "BS-USE-WORD");
  must_say(RUN("replay", "nobody"), 5, "", "BS-STO-NORUN");
  char path[1200];
  snprintf(path, sizeof path, "%s/results/raw/phase0_correctness/dense/first", dir);
  write_text(path, "config.yaml", "model: {N: 32}\n");
  must_say(RUN("replay", "first"), 13, "", "BS-REPLAY-CONFIG");
  ran r = RUN("compare", "--a", "P=2", "--b", "P=2", "--method", "row_parallel", "--n", "32", "--seconds",
              "0.05", "--dtype", "f32", "--run-id", "ab");
  must_be(&r, 0);
  ran_free(&r);
  must_say(RUN("replay", "ab"), 3, "", "BS-REPLAY-KIND");
}
END_TEST

/* Every flipped byte of a bundle is found. */
static void flip_each(const char *folder, const char *name, size_t step) {
  char path[1400];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "r+");
  ck_assert_ptr_nonnull(file);
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  for (long at = 0; at < size; at += (long)step) {
    for (int back = 0; back < 2; back++) {
      fseek(file, at, SEEK_SET);
      const int byte = fgetc(file) ^ 1;
      fseek(file, at, SEEK_SET);
      fputc(byte, file);
      fflush(file);
      if (back == 0) must_say(RUN("bundle", "--check", "paper"), 13, "", "BS-BUNDLE-SUM");
    }
  }
  fclose(file);
}

START_TEST(a_bundle_is_made_and_verified) {
  char folder[1200];
  make_run("first_run");
  make_run("second_run");
  must_say(RUN("bundle", "first_run", "second_run", "--to", "paper"), 0, "second_run", "");
  must_say(RUN("bundle", "first_run", "--to", "paper"), 2, "", "BS-BUNDLE-EXISTS");
  must_say(RUN("bundle", "--check", "paper"), 0, "phase0_correctness", "");
  must_say(RUN("runs", "list", "--out", "paper/runs"), 0, "second_run", "");
  must_say(RUN("replay", "first_run", "--out", "paper/runs"), 0, "status, gates", "");
  must_say(RUN("bundle", "--check", "paper"), 0, "first_run", ""); /* what is beside it is not its own */
  must_say(RUN("bundle", "--check", "results"), 5, "", "BS-BUNDLE-NONE");
  must_say(RUN("bundle", "--check", "nowhere"), 5, "", "BS-BUNDLE-NONE");
  must_say(RUN("bundle", "first_run"), 2, "", "BS-USE-WORD");
  snprintf(folder, sizeof folder, "%s/paper", dir);
  flip_each(folder, "MANIFEST", 67);
  flip_each(folder, "BUNDLE.json", 97);
  flip_each(folder, "runs/first_run/metrics.jsonl", 1997);
  must_say(RUN("bundle", "--check", "paper"), 0, "first_run", "");
}
END_TEST

int main(void) {
  const test_case tests[] = {{runs_are_listed_shown_and_annotated},
                             {fsck_tells_of_damage_and_repairs_copies},
                             {why_names_what_the_ranks_did_last, 2},
                             {why_reads_what_a_killed_process_left},
                             {a_run_is_replayed, TEST_COUNT(launches)},
                             {a_simulated_run_repeats_exactly},
                             {a_replay_leaves_code_out},
                             {what_cannot_be_replayed_is_told},
                             {a_bundle_is_made_and_verified},
                             {0}};
  return run_tests("bsrun_runs", tests, (test_setup){setup, teardown});
}
