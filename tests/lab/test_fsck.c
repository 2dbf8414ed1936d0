/* SPDX-License-Identifier: MIT
 * test_fsck.c - damage and remains below a results folder: found, repaired where that loses nothing, told of
 * where not; the plans of sweeps; notes, baselines, names and conditions; the cache of rows. */
#include "lab/store/fsck.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "core/base/text.h"
#include "lab/store/find.h"
#include "lab/store/notes.h"
#include "lab/store/read.h"
#include "lab/store/sha256.h"
#include "lab/store/store.h"
#include "lab/store/why.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static const char *dir;
static bs_node *config;

static void setup(void) {
  dir = scratch_dir();
  config = parse_tree("model: {N: 4}\n");
}

static void teardown(void) {
  bs_config_free(config);
  remove_dir(dir);
}

static bs_run *begin(const char *id) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run;
  const bs_run_request q = {.out_dir = dir,
                            .phase = "phase0_correctness",
                            .method = "dense",
                            .run_id = id,
                            .key = KEY,
                            .config = config,
                            .env = "{}\n",
                            .seed = 7};
  ck_assert_msg(bs_store_begin(&q, &run, &err) == BS_OK, "%s", err.message);
  return run;
}

/* Commits a run of two records with this request key. */
static void keep(const char *id, const char *key) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run = begin(id);
  for (int i = 0; i < 2; i++) {
    json_t *record = json_pack("{s:f, s:s?, s:i, s:s, s:i}", "timestamp_unix", 5.0, "request_key", key,
                               "seed", 7, "method", "dense", "N", 4 + i);
    ck_assert_int_eq(bs_store_append(run, record, &err), BS_OK);
    json_decref(record);
  }
  ck_assert_int_eq(bs_store_commit(run, "ok", &err), BS_OK);
}

static const char *file_of(const char *id, const char *name) {
  static char path[1024];
  snprintf(path, sizeof path, "%s/phase0_correctness/dense/%s/%s", dir, id, name);
  return path;
}

static void append_text(const char *path, const char *text) {
  FILE *f = fopen(path, "a");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
}

static int fsck(int repair, bs_fsck *out) {
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_fsck_run(dir, repair, out, &err);
  return rc == BS_OK ? 0 : (int)bs_status_exit_code(rc);
}

/* The row of a run, or NULL. */
static const json_t *row_of(const bs_fsck *f, const char *id) {
  for (size_t i = 0; i < json_array_size(f->rows); i++) {
    const json_t *row = json_array_get(f->rows, i);
    if (strstr(json_string_value(json_object_get(row, "run")), id) != NULL) return row;
  }
  return NULL;
}

static void must_be(const bs_fsck *f, const char *id, const char *state, const char *done) {
  const json_t *row = row_of(f, id);
  const char *did = json_string_value(json_object_get(row, "done"));
  ck_assert_msg(row != NULL, "%s: no row", id);
  ck_assert_str_eq(json_string_value(json_object_get(row, "state")), state);
  ck_assert_msg(done == NULL ? did == NULL : did != NULL && strstr(did, done) != NULL, "%s: %s", id, did);
}

START_TEST(whole_runs_are_counted_and_nothing_is_written) {
  bs_fsck f;
  keep("a", NULL);
  keep("b", NULL);
  ck_assert_int_eq(fsck(1, &f), 0);
  ck_assert_uint_eq(f.runs, 2);
  ck_assert_uint_eq(f.whole, 2);
  ck_assert_uint_eq(json_array_size(f.rows), 0);
  bs_fsck_free(&f);
}
END_TEST

START_TEST(a_torn_tail_is_cut_and_kept) {
  bs_fsck f;
  keep("committed", NULL);
  bs_run *run = begin("killed");
  bs_error err = BS_ERROR_INIT;
  json_t *record = json_pack("{s:i}", "v", 1);
  ck_assert_int_eq(bs_store_append(run, record, &err), BS_OK);
  json_decref(record);
  append_text(file_of("committed", "metrics.jsonl"), "{\"torn\": ");
  append_text(file_of("killed", "metrics.jsonl"), "{\"torn\": ");
  ck_assert_int_eq(fsck(1, &f), 0);
  must_be(&f, "killed", "at work", NULL); /* its lock is held: not touched */
  must_be(&f, "committed", "torn", "cut");
  bs_fsck_free(&f);
  char *kept = read_text(file_of("committed", ""), "metrics.jsonl.torn");
  ck_assert_str_eq(kept, "{\"torn\": ");
  free(kept);
  bs_store_interrupt(run, 15);
  ck_assert_int_eq(fsck(0, &f), 0);
  must_be(&f, "killed", "torn", NULL); /* told, not repaired */
  ck_assert_ptr_null(row_of(&f, "committed"));
  bs_fsck_free(&f);
  ck_assert_int_eq(fsck(1, &f), 0);
  must_be(&f, "killed", "torn", "cut");
  bs_fsck_free(&f);
  ck_assert_int_eq(fsck(1, &f), 0);
  must_be(&f, "killed", "interrupted", NULL);
  bs_fsck_free(&f);
}
END_TEST

START_TEST(damage_in_the_middle_is_never_repaired) {
  bs_fsck f;
  keep("good", NULL);
  keep("bad", NULL);
  FILE *file = fopen(file_of("bad", "metrics.jsonl"), "r+");
  ck_assert_ptr_nonnull(file);
  fseek(file, 10, SEEK_SET);
  fputc('7', file);
  fclose(file);
  for (int repair = 0; repair < 2; repair++) {
    ck_assert_int_eq(fsck(repair, &f), 13);
    must_be(&f, "bad", "damaged", NULL);
    ck_assert_uint_eq(f.damaged, 1);
    ck_assert_uint_eq(f.whole, 1);
    bs_fsck_free(&f);
  }
}
END_TEST

START_TEST(copies_are_written_anew) {
  bs_fsck f;
  static const char *const names[] = {"config.yaml", "env.json", "seed.txt"};
  keep("run", NULL);
  char *before[3];
  for (int i = 0; i < 3; i++) {
    before[i] = read_text(file_of("run", ""), names[i]);
    if (i == 0)
      ck_assert_int_eq(unlink(file_of("run", names[i])), 0);
    else
      append_text(file_of("run", names[i]), "x");
  }
  ck_assert_int_eq(fsck(0, &f), 0);
  must_be(&f, "run", "copy differs", NULL);
  ck_assert_uint_eq(json_array_size(f.rows), 3);
  bs_fsck_free(&f);
  ck_assert_int_eq(fsck(1, &f), 0);
  ck_assert_uint_eq(f.repaired, 3);
  bs_fsck_free(&f);
  for (int i = 0; i < 3; i++) {
    char *after = read_text(file_of("run", ""), names[i]);
    ck_assert_str_eq(after, before[i]);
    free(after);
    free(before[i]);
  }
}
END_TEST

/* A run that is being made has a temporary folder under a lock; one that was killed then leaves it free. */
START_TEST(folders_that_were_left_over_are_removed) {
  bs_fsck f;
  char path[700];
  struct stat st;
  keep("run", NULL);
  snprintf(path, sizeof path, "%s/phase0_correctness/dense/.tmp.0123456789ab.1.2", dir);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  write_text(path, "lock", "");
  write_text(path, "metrics.jsonl", "");
  ck_assert_int_eq(fsck(0, &f), 0);
  must_be(&f, ".tmp.", "left over", NULL);
  bs_fsck_free(&f);
  ck_assert_int_eq(fsck(1, &f), 0);
  must_be(&f, ".tmp.", "left over", "removed");
  bs_fsck_free(&f);
  ck_assert_int_ne(stat(path, &st), 0);
}
END_TEST

static void write_plan(const char *points) {
  char hex[65];
  bs_text text = {0};
  bs_sha256 h;
  bs_text_printf(&text, "{\"n\": 3}\n%s", points);
  bs_sha256_init(&h);
  bs_sha256_add(&h, text.data, text.size);
  bs_sha256_hex(&h, hex);
  bs_text_printf(&text, "{\"n\": 3, \"sha256\": \"%s\"}\n", hex);
  write_text(dir, "plan.jsonl", text.data);
  bs_text_free(&text);
}

START_TEST(the_plan_of_a_sweep_is_counted) {
  bs_fsck f;
  keep("one", "k1");
  keep("foreign", "other");
  write_plan(
      "{\"i\": 0, \"request_key\": \"p0\", \"keys\": [\"k1\"], \"duplicate_of\": null, \"refused\": null}\n"
      "{\"i\": 1, \"request_key\": \"p1\", \"keys\": [\"k2\"], \"duplicate_of\": null, \"refused\": null}\n"
      "{\"i\": 2, \"request_key\": \"p0\", \"keys\": [\"k1\"], \"duplicate_of\": 0, \"refused\": null}\n");
  ck_assert_int_eq(fsck(0, &f), 0);
  const json_t *sweep = json_array_get(f.sweeps, 0);
  ck_assert_int_eq(json_integer_value(json_object_get(sweep, "planned")), 2);
  ck_assert_int_eq(json_integer_value(json_object_get(sweep, "committed")), 1);
  ck_assert_int_eq(json_integer_value(json_object_get(sweep, "foreign")), 1);
  bs_fsck_free(&f);
  char path[700];
  snprintf(path, sizeof path, "%s/plan.jsonl", dir);
  append_text(path, "x");
  ck_assert_int_eq(fsck(0, &f), 13);
  bs_fsck_free(&f);
}
END_TEST

START_TEST(notes_are_dated_and_baselines_named) {
  bs_error err = BS_ERROR_INIT;
  const char *run = "phase0_correctness/dense/run";
  json_t *notes, *names, *rows;
  keep("run", NULL);
  ck_assert_int_eq(bs_run_note(dir, run, "plan", "it will be fast", &err), BS_OK);
  ck_assert_int_eq(bs_run_note(dir, run, "observation", "it was not", &err), BS_OK);
  ck_assert_int_eq(bs_run_note(dir, run, "observation", " ", &err), BS_USAGE);
  ck_assert_int_eq(bs_run_note(dir, "phase0_correctness/dense/no", "plan", "x", &err), BS_NOT_FOUND);
  ck_assert_int_eq(bs_run_notes(dir, run, &notes, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(notes), 2);
  ck_assert_ptr_nonnull(json_object_get(json_array_get(notes, 0), "date"));
  json_decref(notes);
  ck_assert_int_eq(bs_runs_index(dir, &rows, NULL, &err), BS_OK);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 0), "note")), "it was not");
  json_decref(rows);
  ck_assert_int_eq(bs_baseline_set(dir, "main", run, &err), BS_OK);
  ck_assert_int_eq(bs_baseline_set(dir, "no/name", run, &err), BS_USAGE);
  ck_assert_int_eq(bs_baselines_read(dir, &names, &err), BS_OK);
  ck_assert_str_eq(json_string_value(json_object_get(names, "main")), run);
  json_decref(names);
  write_text(dir, "baselines.json", "[]");
  ck_assert_int_eq(bs_baselines_read(dir, &names, &err), BS_CORRUPT);
}
END_TEST

START_TEST(a_run_is_found_by_what_a_person_types) {
  static const struct {
    const char *text;
    int32_t rc;
  } cases[] = {{"2026_aa", BS_OK},     {"phase0_correctness/dense/2026_aa", BS_OK},
               {"2026_a", BS_OK},      {"2026_", BS_USAGE},
               {"none", BS_NOT_FOUND}, {"", BS_NOT_FOUND},
               {"2026_b", BS_USAGE},   {"2026_bb", BS_OK}};
  keep("2026_aa", NULL);
  keep("2026_bb", NULL);
  keep("2026_bbb", NULL);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    char *root, *run;
    ck_assert_msg(bs_run_find(dir, cases[i].text, &root, &run, &err) == cases[i].rc, "%s", cases[i].text);
    if (cases[i].rc == BS_OK) ck_assert_ptr_nonnull(strstr(run, "2026_"));
    free(root);
    free(run);
  }
  bs_error err = BS_ERROR_INIT;
  char path[700], *root, *run;
  snprintf(path, sizeof path, "%s/phase0_correctness/dense/2026_aa/", dir);
  ck_assert_int_eq(bs_run_find("elsewhere", path, &root, &run, &err), BS_OK);
  ck_assert_str_eq(run, "2026_aa");
  free(root);
  free(run);
}
END_TEST

START_TEST(conditions_select_rows) {
  static const struct {
    const char *text;
    int holds; /* -1: refused */
  } cases[] = {{"method=dense", 1}, {"method!=dense", 0}, {"N>1k", 1},          {"N<=1024", 0},
               {"N=2k", 1},         {"note=null", 1},     {"passed=true", 1},   {"regions.forward<2", 1},
               {"regions.x>0", 0},  {"mathod=dense", -1}, {"method>dense", -1}, {"method", -1},
               {"=3", -1},          {"N=>3", -1},         {"speedup>=1.25", 1}, {"speedup>1.25", 0}};
  json_t *row = json_pack("{s:s, s:i, s:n, s:b, s:{s:f}, s:f}", "method", "dense", "N", 2048, "note",
                          "passed", 1, "regions", "forward", 1.5, "speedup", 1.25);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    bs_condition c;
    const int32_t rc = bs_condition_parse(cases[i].text, &c, &err);
    ck_assert_msg((rc == BS_OK) == (cases[i].holds >= 0), "%s", cases[i].text);
    if (rc == BS_OK) ck_assert_msg(bs_condition_holds(&c, row) == cases[i].holds, "%s", cases[i].text);
  }
  json_decref(row);
}
END_TEST

/* The cache makes no row that the runs do not have, and is made again whatever is in it. */
START_TEST(the_index_is_a_cache) {
  static const char *const broken[] = {NULL, "", "{\"run\": 3}\nnot json\n", "{\"torn"};
  bs_error err = BS_ERROR_INIT;
  json_t *first, *again;
  keep("a", "k");
  ck_assert_int_eq(bs_runs_index(dir, &first, NULL, &err), BS_OK);
  for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
    if (broken[i] != NULL) write_text(dir, "index.jsonl", broken[i]);
    ck_assert_int_eq(bs_runs_index(dir, &again, NULL, &err), BS_OK);
    ck_assert(json_equal(first, again));
    json_decref(again);
    char *text = read_text(dir, "index.jsonl");
    ck_assert_ptr_nonnull(strstr(text, "\"run\":\"phase0_correctness/dense/a\""));
    free(text);
  }
  ck_assert_int_eq(unlink(file_of("a", "DONE")), 0); /* it counts no longer */
  ck_assert_int_eq(bs_runs_index(dir, &again, NULL, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(again), 0);
  json_decref(again);
  json_decref(first);
}
END_TEST

static int says(const char *id, const char *what, const char *part) {
  bs_error err = BS_ERROR_INIT;
  char run[200];
  json_t *rows, *row;
  size_t i;
  int found = 0;
  snprintf(run, sizeof run, "phase0_correctness/dense/%s", id);
  ck_assert_msg(bs_run_why(dir, run, &rows, &err) == BS_OK, "%s", err.message);
  json_array_foreach(rows, i, row) {
    found |= strcmp(json_string_value(json_object_get(row, "what")), what) == 0 &&
             strstr(json_string_value(json_object_get(row, "answer")), part) != NULL;
  }
  json_decref(rows);
  return found;
}

START_TEST(why_tells_every_end_of_a_run) {
  keep("ok", NULL);
  ck_assert(says("ok", "status", "committed: ok"));
  bs_run *run = begin("stopped");
  ck_assert(says("stopped", "status", "at work"));
  bs_store_interrupt(run, 15);
  ck_assert(says("stopped", "status", "interrupted by signal 15"));
  ck_assert(says("stopped", "next", "--config"));
  const pid_t pid = fork();
  if (pid == 0) {
    begin("killed");
    raise(SIGKILL);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(says("killed", "status", "killed"));
  append_text(file_of("ok", "metrics.jsonl"), "{}\n");
  ck_assert(says("ok", "status", "damaged"));
}
END_TEST

int main(void) {
  const test_case tests[] = {{whole_runs_are_counted_and_nothing_is_written},
                             {a_torn_tail_is_cut_and_kept},
                             {damage_in_the_middle_is_never_repaired},
                             {copies_are_written_anew},
                             {folders_that_were_left_over_are_removed},
                             {the_plan_of_a_sweep_is_counted},
                             {notes_are_dated_and_baselines_named},
                             {a_run_is_found_by_what_a_person_types},
                             {conditions_select_rows},
                             {the_index_is_a_cache},
                             {why_tells_every_end_of_a_run},
                             {0}};
  return run_tests("fsck", tests, (test_setup){setup, teardown});
}
