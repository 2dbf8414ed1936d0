/* SPDX-License-Identifier: MIT
 * test_read.c - reading run folders: rows, damage of every kind, the environment, samples. */
#include "lab/store/read.h"

#include <sys/stat.h>

#include "core/base/text.h"
#include "lab/store/metrics.h"
#include "lab/store/samples.h"
#include "lab/store/store.h"
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

/* Commits a run with these records, and what `add` (NULL: nothing) writes; out: its folder relative to `dir`.
 */
static void keep_with(const char *id, const char *status, const char *records, void (*add)(bs_run *run),
                      char *out, size_t size) {
  bs_error err = BS_ERROR_INIT;
  bs_run *run;
  const bs_run_request q = {.out_dir = dir,
                            .phase = "phase1_forward",
                            .method = "dense",
                            .run_id = id,
                            .key = KEY,
                            .config = config,
                            .env = "{\"system\": {\"kernel\": \"6.1\"}}\n"};
  json_t *list = json_loads(records, 0, NULL), *record;
  size_t i;
  ck_assert_ptr_nonnull(list);
  ck_assert_msg(bs_store_begin(&q, &run, &err) == BS_OK, "%s", err.message);
  snprintf(out, size, "%s", bs_run_get_path(run) + strlen(dir) + 1);
  json_array_foreach(list, i, record) ck_assert_int_eq(bs_store_append(run, record, &err), BS_OK);
  json_decref(list);
  if (add != NULL) add(run);
  if (status != NULL)
    ck_assert_int_eq(bs_store_commit(run, status, &err), BS_OK);
  else
    bs_store_interrupt(run, 15);
}

static void keep(const char *id, const char *status, const char *records, char *out, size_t size) {
  keep_with(id, status, records, NULL, out, size);
}

#define TIMED                                                                                               \
  "[{\"timestamp_unix\": 100.5, \"run_id\": \"a\", \"phase\": \"phase1_forward\", \"method\": \"row\","     \
  " \"N\": 8, \"passed\": true, \"gates\": [], \"relative_error\": 0.5, \"flops_per_forward\": 64,"         \
  " \"timings_ms\": {\"forward\": {\"count\": 2.0, \"p50_ms\": 3.5}, \"backward\": {\"count\": 0.0,"        \
  " \"p50_ms\": 0.0}}, \"comparisons\": [{\"against\": \"dense\", \"speedup\": 1.25, \"low\": 1.0,"         \
  " \"high\": 1.5, \"word\": \"FASTER\"}], \"arms\": [{\"name\": \"method\", \"method\": \"row\","          \
  " \"world_size\": 2, \"median_s\": 0.002, \"phase\": \"steady-hot\", \"bound_s\": {\"total\": 0.001},"    \
  " \"limit\": \"memory\", \"samples_s\": [8, 1, 7, 2, 6, 3, 5, 4], \"discarded_s\": [9], \"cold\": null}," \
  " {\"name\": \"dense\", \"method\": \"dense\", \"world_size\": 1, \"median_s\": 0.0025}]}]"

static const char *text_of(const json_t *rows, size_t i, const char *key) {
  const char *text = json_string_value(json_object_get(json_array_get(rows, i), key));
  return text != NULL ? text : "null";
}

static double number_of(const json_t *rows, size_t i, const char *key) {
  return json_number_value(json_object_get(json_array_get(rows, i), key));
}

START_TEST(arms_are_rows_and_the_newest_run_is_first) {
  bs_error err = BS_ERROR_INIT;
  bs_runs_stats stats;
  json_t *rows;
  char path[256];
  keep("later", "not passed",
       "[{\"timestamp_unix\": 200, \"phase\": \"phase3_train_step\", \"passed\": false, \"gates\": "
       "[{\"state\":"
       " \"fail\"}], \"timings_ms\": {\"total_step\": {\"count\": 1, \"p50_ms\": 5}}}]",
       path, sizeof path);
  keep("first", "ok", TIMED, path, sizeof path);
  ck_assert_msg(bs_runs_index(dir, &rows, &stats, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(json_array_size(rows), 3);
  ck_assert_uint_eq(stats.runs, 2);
  ck_assert_str_eq(text_of(rows, 0, "word"), "WRONG");
  ck_assert_str_eq(text_of(rows, 0, "status"), "not passed");
  ck_assert_double_eq_tol(number_of(rows, 0, "median_s"), 0.005, 1e-12);
  ck_assert_str_eq(text_of(rows, 1, "run"), path);
  ck_assert_str_eq(text_of(rows, 1, "arm"), "method");
  ck_assert_str_eq(text_of(rows, 1, "word"), "null");
  ck_assert_str_eq(text_of(rows, 1, "clock"), "host");
  ck_assert_str_eq(text_of(rows, 1, "against"), "dense");
  ck_assert_double_eq(number_of(rows, 1, "bound_s"), 0.001);
  ck_assert_double_eq(number_of(rows, 1, "flops"), 64);
  ck_assert_double_eq(number_of(rows, 1, "low_s"), 1); /* of 8 samples the second to the seventh hold 93 % */
  ck_assert_double_eq(number_of(rows, 1, "high_s"), 8);
  const json_t *regions = json_object_get(json_array_get(rows, 1), "regions");
  ck_assert_uint_eq(json_object_size(regions), 1);
  ck_assert_double_eq(json_number_value(json_object_get(regions, "forward")), 3.5);
  ck_assert_str_eq(text_of(rows, 2, "arm"), "dense");
  ck_assert_str_eq(text_of(rows, 2, "speedup_word"), "FASTER");
  ck_assert(json_is_null(json_object_get(json_array_get(rows, 2), "relative_error")));
  for (size_t i = 0; bs_run_row_keys[i] != NULL; i++) /* every key is there, null or not */
    ck_assert_ptr_nonnull(json_object_get(json_array_get(rows, 2), bs_run_row_keys[i]));
  json_decref(rows);
  bs_runs_stats_free(&stats);
}
END_TEST

/* Arms of a comparison: the second is what the others are held against. */
#define HELD                                                                                                \
  "[{\"timestamp_unix\": 1, \"phase\": \"compare\", \"pass\": \"backward\", \"method\": \"row\", \"mask\":" \
  " \"half\", \"comparisons\": [{\"against\": \"B\", \"speedup\": 0.8, \"low\": 0.5, \"high\": 1.0, "       \
  "\"word\":"                                                                                               \
  " \"SLOWER\"}], \"arms\": [{\"name\": \"B\", \"method\": \"column\"}, {\"name\": \"A\", \"method\": "     \
  "\"row\"}]}]"

START_TEST(rows_of_a_comparison_speak_of_their_own_arm) {
  bs_error err = BS_ERROR_INIT;
  json_t *rows;
  char path[256];
  keep("ab", "ok", HELD, path, sizeof path);
  ck_assert_int_eq(bs_runs_index(dir, &rows, NULL, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(rows), 2);
  ck_assert_str_eq(text_of(rows, 0, "arm"), "B");
  ck_assert_str_eq(text_of(rows, 0, "pass"), "backward");
  ck_assert_str_eq(text_of(rows, 0, "mask"), "null"); /* the record has that of A */
  ck_assert_str_eq(text_of(rows, 0, "against"), "A");
  ck_assert_str_eq(text_of(rows, 0, "speedup_word"), "FASTER");
  ck_assert_double_eq(number_of(rows, 0, "speedup"), 1.25);
  ck_assert_double_eq(number_of(rows, 0, "speedup_low"), 1.0);
  ck_assert_double_eq(number_of(rows, 0, "speedup_high"), 2.0);
  ck_assert_str_eq(text_of(rows, 1, "arm"), "A");
  ck_assert_str_eq(text_of(rows, 1, "mask"), "half");
  ck_assert(json_is_null(json_object_get(json_array_get(rows, 1), "speedup")));
  ck_assert_str_eq(text_of(rows, 1, "against"), "null");
  json_decref(rows);
}
END_TEST

START_TEST(a_simulated_run_has_a_row_for_its_dense_peer) {
  bs_error err = BS_ERROR_INIT;
  json_t *rows;
  char path[256];
  keep("sim", "ok",
       "[{\"timestamp_unix\": 1, \"phase\": \"phase1_forward\", \"method\": \"row\", \"gates\": [],"
       " \"simulated\": {\"us\": 4.0, \"limit\": \"wire\", \"speedup\": 0.5, \"dense\": {\"us\": 2.0}}}]",
       path, sizeof path);
  ck_assert_int_eq(bs_runs_index(dir, &rows, NULL, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(rows), 2);
  for (size_t i = 0; i < 2; i++) {
    ck_assert_str_eq(text_of(rows, i, "clock"), "virtual");
    ck_assert(json_is_true(json_object_get(json_array_get(rows, i), "simulated")));
  }
  ck_assert_double_eq_tol(number_of(rows, 0, "median_s"), 4e-6, 1e-15);
  ck_assert_str_eq(text_of(rows, 1, "method"), "dense");
  json_decref(rows);
}
END_TEST

START_TEST(only_committed_and_whole_runs_count) {
  bs_error err = BS_ERROR_INIT;
  bs_runs_stats stats;
  json_t *rows;
  char path[256], file[1024];
  keep("open", NULL, TIMED, path, sizeof path);
  keep("flipped", "ok", TIMED, path, sizeof path);
  snprintf(file, sizeof file, "%s/%s/metrics.jsonl", dir, path);
  FILE *f = fopen(file, "r+");
  ck_assert_ptr_nonnull(f);
  fseek(f, 20, SEEK_SET);
  fputc('9', f);
  fclose(f);
  snprintf(file, sizeof file, "%s/elsewhere", dir);
  ck_assert_int_eq(symlink("/", file), 0); /* not followed */
  ck_assert_int_eq(bs_runs_index(dir, &rows, &stats, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(rows), 0);
  ck_assert_uint_eq(stats.unfinished, 1);
  ck_assert_uint_eq(stats.damaged, 1);
  ck_assert_str_eq(text_of(stats.problems, 0, "run"), path);
  ck_assert_ptr_nonnull(strstr(text_of(stats.problems, 0, "message"), "line 1: its crc32c does not match"));
  json_decref(rows);
  bs_runs_stats_free(&stats);
  ck_assert_int_eq(bs_run_read(dir, path, &rows, NULL, &err), BS_CORRUPT);
  ck_assert_ptr_null(rows);
  ck_assert_int_eq(bs_run_read(dir, "phase1_forward/dense/open", &rows, NULL, &err), BS_NOT_FOUND);
  ck_assert_int_eq(bs_run_read(dir, "phase1_forward/../phase1_forward", &rows, NULL, &err), BS_NOT_FOUND);
  ck_assert_int_eq(bs_run_read(dir, "none", &rows, NULL, &err), BS_NOT_FOUND);
  snprintf(file, sizeof file, "%s/none", dir);
  ck_assert_int_eq(bs_runs_index(file, &rows, NULL, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(rows), 0);
  json_decref(rows);
}
END_TEST

START_TEST(records_environment_and_samples_are_read_whole) {
  bs_error err = BS_ERROR_INIT;
  json_t *records, *env, *samples;
  char path[256];
  keep("run", "ok", TIMED, path, sizeof path);
  ck_assert_int_eq(bs_run_read(dir, path, &records, &env, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(records), 1);
  const json_t *kernel = json_object_get(json_object_get(env, "system"), "kernel");
  ck_assert_str_eq(json_string_value(kernel), "6.1");
  json_decref(records);
  json_decref(env);
  ck_assert_int_eq(bs_run_samples(dir, path, &samples, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(samples), 1);
  ck_assert_str_eq(text_of(samples, 0, "arm"), "method");
  ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(samples, 0), "seconds")), 8);
  json_decref(samples);
}
END_TEST

/* Rows of samples.bin: two of the method that are kept, one that was discarded, and the echo of one. */
static void write_samples(bs_run *run) {
  static const unsigned flags[] = {BS_SAMPLE_HOT, BS_SAMPLE_HOT | BS_SAMPLE_DISCARDED,
                                   BS_SAMPLE_HOT | BS_SAMPLE_ECHO, BS_SAMPLE_HOT | BS_SAMPLE_AFTER_OWN,
                                   BS_SAMPLE_COLD};
  bs_error err = BS_ERROR_INIT;
  bs_samples list = {0};
  const bs_samples *const lists[] = {&list};
  void *data;
  size_t size;
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
    const bs_sample_row row = {.flags = (uint16_t)flags[i], .seconds = 10.0 + (double)i};
    ck_assert(bs_samples_add(&list, &row));
  }
  ck_assert_int_eq(bs_samples_encode(lists, 1, 2, &data, &size, &err), BS_OK);
  ck_assert_int_eq(bs_store_samples(run, data, size, &err), BS_OK);
  bs_samples_free(&list);
  free(data);
}

START_TEST(samples_are_those_of_the_file_where_it_is_whole) {
  static const size_t want[2][2] = {{2, 1}, {8, 1}}; /* kept, discarded: of the file; of the record */
  bs_error err = BS_ERROR_INIT;
  char path[256], file[1024];
  keep_with("run", "ok", TIMED, write_samples, path, sizeof path);
  snprintf(file, sizeof file, "%s/%s", dir, path);
  for (int damaged = 0; damaged < 2; damaged++) {
    json_t *samples;
    if (damaged) write_text(file, "samples.bin", "");
    ck_assert_msg(bs_run_samples(dir, path, &samples, &err) == BS_OK, "%s", err.message);
    const json_t *row = json_array_get(samples, 0), *seconds = json_object_get(row, "seconds");
    ck_assert_uint_eq(json_array_size(samples), 1);
    ck_assert_uint_eq(json_array_size(seconds), want[damaged][0]);
    ck_assert_uint_eq(json_array_size(json_object_get(row, "discarded")), want[damaged][1]);
    if (!damaged) ck_assert_double_eq(json_number_value(json_array_get(seconds, 1)), 13);
    json_decref(samples);
  }
}
END_TEST

/* 50 small records as bytes; the caller frees. */
static char *fifty(size_t *out_size) {
  char path[256];
  bs_text list = {0};
  bs_text_printf(&list, "[");
  for (int i = 0; i < 50; i++) bs_text_printf(&list, "%s{\"v\": %d}", i > 0 ? "," : "", i * 7);
  bs_text_printf(&list, "]");
  keep("fifty", "ok", list.data, path, sizeof path);
  bs_text_free(&list);
  char folder[1024];
  snprintf(folder, sizeof folder, "%s/%s", dir, path);
  char *text = read_text(folder, "metrics.jsonl");
  *out_size = strlen(text);
  return text;
}

START_TEST(every_prefix_is_told_from_the_whole) {
  size_t size, lines = 0, ends = 0;
  char *text = fifty(&size);
  for (size_t cut = 0; cut <= size; cut++) {
    bs_error err = BS_ERROR_INIT;
    bs_metrics m;
    if (cut > 0 && text[cut - 1] == '\n') {
      lines++;
      ends = cut;
    }
    ck_assert_int_eq(bs_metrics_read(text, cut, &m, &err), BS_OK);
    ck_assert_uint_eq(json_array_size(m.records), lines);
    ck_assert_uint_eq(m.good_bytes, ends);
    ck_assert_uint_eq(m.torn_bytes, cut - ends);
    ck_assert_uint_eq(m.bad_line, 0);
    bs_metrics_free(&m);
  }
  ck_assert_uint_eq(lines, 50);
  free(text);
}
END_TEST

START_TEST(every_flipped_bit_is_seen) {
  size_t size, begin = 0;
  char *text = fifty(&size);
  for (int i = 0; i < 20; i++) begin = (size_t)(strchr(text + begin, '\n') - text) + 1;
  const size_t end = (size_t)(strchr(text + begin, '\n') - text) + 1;
  for (size_t bit = 8 * begin; bit < 8 * end; bit++) {
    bs_error err = BS_ERROR_INIT;
    bs_metrics m;
    text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
    ck_assert_int_eq(bs_metrics_read(text, size, &m, &err), BS_OK);
    ck_assert_msg(m.bad_line == 21, "bit %zu: line %zu", bit, m.bad_line);
    ck_assert_uint_eq(json_array_size(m.records), 20);
    bs_metrics_free(&m);
    text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
  }
  free(text);
}
END_TEST

int main(void) {
  const test_case cases[] = {{arms_are_rows_and_the_newest_run_is_first},
                             {rows_of_a_comparison_speak_of_their_own_arm},
                             {a_simulated_run_has_a_row_for_its_dense_peer},
                             {only_committed_and_whole_runs_count},
                             {records_environment_and_samples_are_read_whole},
                             {samples_are_those_of_the_file_where_it_is_whole},
                             {every_prefix_is_told_from_the_whole},
                             {every_flipped_bit_is_seen},
                             {0}};
  return run_tests("read", cases, (test_setup){setup, teardown});
}
