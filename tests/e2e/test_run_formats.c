/* SPDX-License-Identifier: MIT
 * test_run_formats.c - `-o csv|json|jsonl` of one run: each parses, all hold the same fields in the same
 * order and, for what does not depend on the clock, the same values. tests/cases/formats.case has the rest.
 */
#include <stdio.h>
#include <string.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

enum { MAX_FIELDS = 128, MAX_ROWS = 8 };

static char *output_of(const char *format, const char *phase) {
  const char **args = run_words(
      "--plugin cpu --method blockshock -o %s --phase %s --out %s --run-id it --set model.N=256 --set "
      "model.B=16 --set phase.pairs_min=5 --set phase.pairs_max=5 --set phase.pairs_seconds=0.1",
      format, phase, format);
  ran r;
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 0, format);
  char *text = r.out;
  r.out = NULL;
  ran_free(&r);
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

/* Fields that are the same from run to run. */
static int repeats(const char *key) {
  static const char clocked[] =
      " median_ms min_ms p90_ms p99_ms predicted_ms bound_ms measured_over_predicted forward_p50_ms "
      "allreduce_ms build_ms pack_ms first_ms gflops share_of_limit limit speedup speedup_low speedup_high "
      "verdict cause next result needs_pairs disturbed_pairs measuring_warnings stopped_by load_average "
      "break_even_forwards run_dir ";
  char word[80];
  snprintf(word, sizeof word, " %s ", key);
  return strstr(clocked, word) == NULL;
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

static void same_csv(const json_t *rows, char *text) {
  char *names[MAX_FIELDS], *fields[MAX_FIELDS];
  size_t n_names, n;
  char *at = csv_line(text, names, &n_names);
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
}

START_TEST(same_values) {
  const char *phase = _i == 0 ? "0" : "1";
  json_error_t why;
  char *json = output_of("json", phase), *jsonl = output_of("jsonl", phase), *csv = output_of("csv", phase);
  json_t *rows = json_loads(json, JSON_REJECT_DUPLICATES, &why), *lines = run_rows(jsonl);
  ck_assert_msg(json_is_array(rows), "-o json: %s", why.text);
  ck_assert_uint_eq(json_array_size(rows), _i == 0 ? 1 : 3);
  ck_assert_uint_eq(json_array_size(lines), json_array_size(rows));
  for (size_t i = 0; i < json_array_size(rows); i++)
    same_row(json_array_get(rows, i), json_array_get(lines, i), "jsonl");
  same_csv(rows, csv);
  json_decref(lines);
  json_decref(rows);
  free(json);
  free(jsonl);
  free(csv);
}
END_TEST

int main(void) {
  const test_case tests[] = {{same_values, 2}, {0}};
  return run_tests("run_formats", tests, (test_setup){dir_make, dir_remove, 120});
}
