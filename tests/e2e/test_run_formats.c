/* SPDX-License-Identifier: MIT
 * test_run_formats.c - `-o table|md|csv|json|jsonl` of one run: each parses, all hold the same fields in the
 * same order and, for what does not depend on the clock, the same values. */
#include <stdio.h>
#include <string.h>

#include "run_help.h"
#include "tests/run_tests.h"

enum { MAX_FIELDS = 128, MAX_ROWS = 8 };

static char folder[64];

static void setup(void) {
  run_make_folder(folder);
}
static void teardown(void) {
  run_remove(folder);
}

static char *output_of(const char *format, const char *phase) {
  const char **args = run_words(
      "--plugin cpu --method blockshock -o %s --phase %s --out %s --run-id it --set model.N=256 --set "
      "model.B=16 --set phase.pairs_min=5 --set phase.pairs_max=5 --set phase.pairs_seconds=0.1",
      format, phase, format);
  run_result r;
  run_bsrun(&r, folder, NULL, args);
  run_expect(&r, 0, format);
  char *text = r.out;
  r.out = NULL;
  run_free(&r);
  return text;
}

/* RFC 4180: fields of one line; quotes doubled. Cuts `line` in place, returns the start of the next line. */
static char *csv_line(char *line, char *fields[MAX_FIELDS], size_t *out_count) {
  char *at = line;
  *out_count = 0;
  for (;;) {
    char *to = at;
    ck_assert_uint_lt(*out_count, MAX_FIELDS);
    fields[(*out_count)++] = to;
    if (*at == '"') {
      for (at++; *at != '\0' && (*at != '"' || at[1] == '"'); at++) {
        if (*at == '"') at++;
        *to++ = *at;
      }
      ck_assert_int_eq(*at, '"');
      at++;
    } else {
      while (*at != ',' && *at != '\n' && *at != '\r' && *at != '\0') *to++ = *at++;
    }
    while (*at == '\r') at++;
    const char end = *at;
    ck_assert_msg(end == ',' || end == '\n', "csv: a field ends with byte %d", end);
    at++;
    *to = '\0';
    if (end == '\n') return at;
  }
}

/* The JSON value as csv writes it: text bare, null empty, truth as true and false. */
static void value_text(const json_t *value, char out[64]) {
  out[0] = '\0';
  if (json_is_string(value)) snprintf(out, 64, "%.60s", json_string_value(value));
  if (json_is_true(value)) snprintf(out, 64, "true");
  if (json_is_false(value)) snprintf(out, 64, "false");
  if (json_is_integer(value)) snprintf(out, 64, "%lld", (long long)json_integer_value(value));
}

static json_t *json_of(const char *phase) {
  char *text = output_of("json", phase);
  json_error_t why;
  json_t *rows = json_loads(text, JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(json_is_array(rows), "-o json: %s", why.text);
  free(text);
  return rows;
}

/* Fields that are the same from run to run. */
static int repeats(const char *key) {
  static const char *const clocked[] = {"median_ms",
                                        "min_ms",
                                        "p90_ms",
                                        "p99_ms",
                                        "predicted_ms",
                                        "speedup",
                                        "speedup_low",
                                        "speedup_high",
                                        "forward_p50_ms",
                                        "allreduce_ms",
                                        "gflops",
                                        "share_of_limit",
                                        "verdict",
                                        "cause",
                                        "next",
                                        "needs_pairs",
                                        "disturbed_pairs",
                                        "measuring_warnings",
                                        "load_average",
                                        "run_dir",
                                        "limit",
                                        "result",
                                        "build_ms",
                                        "pack_ms",
                                        "first_ms",
                                        "bound_ms",
                                        "measured_over_predicted",
                                        "stopped_by",
                                        "break_even_forwards"};
  for (size_t i = 0; i < sizeof clocked / sizeof clocked[0]; i++) {
    if (strcmp(key, clocked[i]) == 0) return 0;
  }
  return 1;
}

static void same_row(const json_t *a, const json_t *b, const char *what) {
  void *at = json_object_iter((json_t *)(size_t)a), *bt = json_object_iter((json_t *)(size_t)b);
  ck_assert_uint_eq(json_object_size(a), json_object_size(b));
  ck_assert_uint_ge(json_object_size(a), 20);
  for (; at != NULL && bt != NULL; at = json_object_iter_next((json_t *)(size_t)a, at),
                                   bt = json_object_iter_next((json_t *)(size_t)b, bt)) {
    const char *key = json_object_iter_key(at);
    ck_assert_str_eq(key, json_object_iter_key(bt));
    if (!repeats(key)) continue;
    ck_assert_msg(json_equal(json_object_iter_value(at), json_object_iter_value(bt)), "%s: %s differs", what,
                  key);
  }
}

START_TEST(json_and_jsonl) {
  json_t *rows = json_of(_i == 0 ? "0" : "1");
  char *text = output_of("jsonl", _i == 0 ? "0" : "1");
  json_t *lines = run_rows(text);
  ck_assert_uint_eq(json_array_size(rows), _i == 0 ? 1 : 3);
  ck_assert_uint_eq(json_array_size(lines), json_array_size(rows));
  for (size_t i = 0; i < json_array_size(rows); i++)
    same_row(json_array_get(rows, i), json_array_get(lines, i), "jsonl");
  json_decref(lines);
  json_decref(rows);
  free(text);
}
END_TEST

/* Which rule ended the pairs, and when the method has made up for its build: in all but the table. */
START_TEST(wide_columns) {
  json_t *rows = json_of("1");
  char *text = output_of("table", "1");
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const json_t *even = json_object_get(row, "break_even_forwards");
    const char *stop = run_str(row, "stopped_by");
    ck_assert_msg(strcmp(stop, "max_pairs") == 0 || strcmp(stop, "interval") == 0, "%s", stop);
    ck_assert_ptr_nonnull(even);
    if (json_is_null(json_object_get(row, "speedup"))) ck_assert(json_is_null(even)); /* the method's own */
    ck_assert(json_is_null(even) || (json_is_integer(even) && json_integer_value(even) >= 0));
  }
  ck_assert_ptr_null(strstr(text, "stopped by"));
  ck_assert_ptr_null(strstr(text, "break-even"));
  json_decref(rows);
  free(text);
}
END_TEST

START_TEST(csv) {
  char *names[MAX_FIELDS], *fields[MAX_FIELDS];
  size_t n_names, n;
  json_t *rows = json_of(_i == 0 ? "0" : "1");
  char *text = output_of("csv", _i == 0 ? "0" : "1"), *at = csv_line(text, names, &n_names);
  ck_assert_uint_eq(n_names, json_object_size(json_array_get(rows, 0)));
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    at = csv_line(at, fields, &n);
    ck_assert_uint_eq(n, n_names);
    void *it = json_object_iter((json_t *)(size_t)row);
    for (size_t k = 0; k < n; k++, it = json_object_iter_next((json_t *)(size_t)row, it)) {
      const json_t *value = json_object_iter_value(it);
      char wanted[64];
      ck_assert_str_eq(json_object_iter_key(it), names[k]);
      if (!repeats(names[k]) || json_is_array(value)) continue;
      if (json_is_real(value)) {
        ck_assert_double_eq(strtod(fields[k], NULL), json_real_value(value)); /* every digit is there */
        continue;
      }
      value_text(value, wanted);
      ck_assert_msg(strcmp(fields[k], wanted) == 0, "csv: %s is '%s', json has '%s'", names[k], fields[k],
                    wanted);
    }
  }
  ck_assert_int_eq(*at, '\0');
  json_decref(rows);
  free(text);
}
END_TEST

/* What a reader judges a row by is in it, whatever the phase: sizes by options as in compare, what ran and
 * how, the error of the whole product, and of phases 2 and 3 errors, times by region and losses. */
START_TEST(figures) {
  static const struct {
    const char *phase, *set, *result, *numbers[8];
  } rows[] = {
      {"0", "phase.fault_gate=false", "RIGHT", {"relative_error", "whole_error", "forward_p50_ms"}},
      {"0", "method.half=0", "HALF ALONE, as expected", {"relative_error", "whole_error"}},
      {"1", "phase.pairs_seconds=0.1", NULL, {"median_ms", "gflops", "flops_per_forward", "pairs"}},
      {"2", "phase.fault_gate=false", "RIGHT", {"dx_error", "dw_error", "backward_ms", "allreduce_ms"}},
      {"3",
       "phase.fault_gate=false",
       "RIGHT",
       {"w_error", "loss_first", "loss_last", "opt_step_ms", "total_step_ms", "steps"}}};
  const char *const args[] = {"--n",     "64",
                              "--b",     "8",
                              "--dtype", "f32",
                              "--bias",  "off",
                              "--phase", rows[_i].phase,
                              "--mask",  "magnitude",
                              "--set",   rows[_i].set,
                              "-P",      "2",
                              "--set",   "phase.pairs_min=5",
                              "--set",   "phase.pairs_max=5",
                              "--set",   "phase.timed_iters=2",
                              "-o",      "jsonl",
                              "-q",      NULL};
  run_result r;
  run_bsrun(&r, folder, NULL, args);
  run_expect(&r, 0, rows[_i].set);
  json_t *list = run_rows(r.out);
  const json_t *row = json_array_get(list, 0);
  ck_assert(run_num(row, "N") == 64.0 && run_num(row, "B") == 8.0 &&
            json_is_false(json_object_get(row, "bias")));
  ck_assert_str_eq(run_str(row, "dtype"), "f32");
  ck_assert_str_eq(run_str(row, "comm"), "threads");
  ck_assert_str_eq(run_str(row, "launch"), "threads");
  ck_assert_uint_gt(strlen(run_str(row, "load_average")), 4);
  for (size_t i = 0; i < 8 && rows[_i].numbers[i] != NULL; i++)
    ck_assert_msg(json_is_number(json_object_get(row, rows[_i].numbers[i])), "no %s", rows[_i].numbers[i]);
  if (rows[_i].result != NULL) ck_assert_str_eq(run_str(row, "result"), rows[_i].result);
  if (_i == 1) ck_assert_double_gt(run_num(row, "whole_error"), 0.1); /* half of W is missing */
  if (_i == 2) ck_assert(json_is_array(json_object_get(row, "measuring_warnings")));
  if (_i == 2) ck_assert(json_is_object(json_object_get(row, "disturbed_pairs")));
  if (_i == 2) ck_assert(json_is_number(json_object_get(json_array_get(list, 1), "gflops"))); /* dense too */
  json_decref(list);
  run_free(&r);
}
END_TEST

static size_t pipes_in(const char *line) {
  size_t n = 0;
  for (; *line != '\0' && *line != '\n'; line++) n += *line == '|' && line[-1] != '\\';
  return n;
}

/* Markdown: a header, a rule of dashes, one line a row, all with the same number of cells. */
START_TEST(markdown) {
  char *text = output_of("md", "1"), *line = strstr(text, "\n|");
  size_t rows = 0;
  line = text[0] == '|' ? text : line == NULL ? NULL : line + 1;
  ck_assert_msg(line != NULL, "no table in: %s", text);
  const size_t cells = pipes_in(line + 1);
  ck_assert_uint_ge(cells, 8);
  for (; line[0] == '|'; line += strcspn(line, "\n"), line += *line == '\n') {
    ck_assert_uint_eq(pipes_in(line + 1), cells);
    if (rows++ == 1) ck_assert_uint_gt(strspn(line, "|-: \n"), strcspn(line, "\n"));
  }
  ck_assert_uint_eq(rows, 2 + 3);
  ck_assert_ptr_nonnull(strstr(text, "run: md/phase1_forward/blockshock/it"));
  free(text);
}
END_TEST

/* The table: what holds of all rows stands above it, and its numbers are those of json, to fewer digits. */
START_TEST(table) {
  char error[32];
  json_t *rows = json_of("0");
  char *text = output_of("table", "0");
  const json_t *row = json_array_get(rows, 0);
  snprintf(error, sizeof error, "%.3g", run_num(row, "relative_error"));
  ck_assert_msg(strstr(text, error) != NULL, "no %s in: %s", error, text);
  ck_assert_ptr_nonnull(strstr(text, "7 of 7"));
  ck_assert_ptr_nonnull(strstr(text, "complement_1100_0011"));
  ck_assert_ptr_nonnull(strstr(text, "RIGHT"));
  ck_assert_ptr_nonnull(strstr(text, "\nrepeat: bsrun "));
  for (const char *p = text; *p != '\0'; p++) ck_assert_int_ne(*p, '\t');
  json_decref(rows);
  free(text);
  text = output_of("table", "1");
  ck_assert_msg(strncmp(text, "phase1_forward\nB 16, N 256, K 256, dtype bf16", 45) == 0, "%s", text);
  ck_assert_ptr_nonnull(strstr(text, "dense on "));
  ck_assert_ptr_nonnull(strstr(text, "dense on all "));
  free(text);
}
END_TEST

int main(void) {
  const test_case tests[] = {{json_and_jsonl, 2}, {csv, 2}, {figures, 5}, {wide_columns},
                             {markdown},          {table},  {0}};
  return run_tests("run_formats", tests, (test_setup){setup, teardown, 120});
}
