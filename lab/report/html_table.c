/* SPDX-License-Identifier: MIT
 * html_table.c - tables of the page: see model.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/report/model.h"
#include "lab/store/find.h"

enum { MOST_COLUMNS = 40, LONG = 40 }; /* longer texts take several lines */

static void cell_text(bs_text *out, const json_t *value, int digits) {
  char number[40];
  if (value == NULL || json_is_null(value)) return;
  if (json_is_string(value)) {
    bs_svg_escape(out, json_string_value(value));
  } else if (json_is_boolean(value)) {
    bs_text_printf(out, "%s", json_is_true(value) ? "yes" : "no");
  } else if (json_is_integer(value)) {
    bs_text_printf(out, "%lld", (long long)json_integer_value(value));
  } else if (json_is_real(value)) {
    snprintf(number, sizeof number, "%.*g", digits > 0 ? digits : 6, json_real_value(value));
    bs_svg_escape(out, number);
  } else {
    char *dump = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (dump != NULL) bs_svg_escape(out, dump);
    free(dump);
  }
}

/* 0: no row has it; 1: all have the same; 2: they differ. */
static int variety(const json_t *rows, const char *key) {
  const json_t *first = json_object_get(json_array_get(rows, 0), key);
  int some = first != NULL && !json_is_null(first), differ = 0;
  for (size_t i = 1; i < json_array_size(rows); i++) {
    const json_t *value = json_object_get(json_array_get(rows, i), key);
    some |= value != NULL && !json_is_null(value);
    differ |= value != first && (value == NULL || first == NULL || !json_equal(value, first));
  }
  return !some ? 0 : differ ? 2 : 1;
}

static void caption(bs_text *out, const bs_field *fields, const int *kind, size_t n, const json_t *rows,
                    size_t most) {
  const char *before = "All rows: ";
  bs_text_printf(out, "<caption>");
  for (size_t i = 0; i < n; i++) {
    if (kind[i] != 1) continue;
    bs_text_printf(out, "%s", before);
    bs_svg_escape(out, fields[i].title);
    bs_text_printf(out, " ");
    cell_text(out, json_object_get(json_array_get(rows, 0), fields[i].key), fields[i].digits);
    before = "; ";
  }
  if (before[0] == ';') bs_text_printf(out, ". ");
  if (json_array_size(rows) > most)
    bs_text_printf(out, "The first %zu of %zu rows.", most, json_array_size(rows));
  bs_text_printf(out, "</caption>\n");
}

static const char *class_of(const json_t *value) {
  static const char *const words[][2] = {{"FASTER", "good"}, {"SLOWER", "bad"},     {"RIGHT", "good"},
                                         {"WRONG", "bad"},   {"NOT PASSED", "bad"}, {"failed", "bad"}};
  const char *text = json_string_value(value);
  for (size_t i = 0; text != NULL && i < sizeof words / sizeof words[0]; i++)
    if (strcmp(text, words[i][0]) == 0) return words[i][1];
  return "";
}

/* Prints the short id of a run, as `bsrun runs list` has it. */
static void run_cell(bs_text *out, const char *path) {
  char shown[BS_SHORT_ID];
  bs_run_short_id(path, shown);
  shown[6] = '\0';
  bs_text_printf(out, "<td title=\"");
  bs_svg_escape(out, path);
  bs_text_printf(out, "\">");
  bs_svg_escape(out, shown);
  bs_text_printf(out, "</td>");
}

static void table_row(bs_text *out, const bs_field *fields, const int *kind, size_t n, const json_t *row) {
  bs_text_printf(out, bs_row_true(row, "simulated") ? "<tr class=\"sim\">" : "<tr>");
  for (size_t i = 0; i < n; i++) {
    if (kind[i] != 2) continue;
    const json_t *value = json_object_get(row, fields[i].key);
    const char *colour = class_of(value), *text = json_string_value(value);
    if (strcmp(fields[i].key, "run") == 0 && text != NULL) {
      run_cell(out, text);
      continue;
    }
    const int right = (fields[i].flags & BS_FIELD_RIGHT) != 0, words = text != NULL && strlen(text) > LONG;
    bs_text_printf(out, right ? "<td class=\"n\">" : words ? "<td class=\"text\">" : "<td>");
    if (colour[0] != '\0') bs_text_printf(out, "<b class=\"%s\">", colour);
    cell_text(out, value, fields[i].digits);
    bs_text_printf(out, "%s</td>", colour[0] != '\0' ? "</b>" : "");
  }
  bs_text_printf(out, "</tr>\n");
}

void bs_html_table(bs_text *out, const bs_field *fields, size_t n_fields, const json_t *rows, size_t most) {
  int kind[MOST_COLUMNS];
  const size_t n = n_fields < MOST_COLUMNS ? n_fields : MOST_COLUMNS;
  for (size_t i = 0; i < n; i++) {
    kind[i] = variety(rows, fields[i].key);
    if (kind[i] == 1 && (json_array_size(rows) == 1 || !(fields[i].flags & BS_FIELD_FOLD))) kind[i] = 2;
  }
  bs_text_printf(out, "<div class=\"wide\" tabindex=\"0\"><table>\n");
  caption(out, fields, kind, n, rows, most);
  bs_text_printf(out, "<thead><tr>");
  for (size_t i = 0; i < n; i++) {
    if (kind[i] != 2) continue;
    bs_text_printf(out, "<th scope=\"col\"%s>", fields[i].flags & BS_FIELD_RIGHT ? " class=\"n\"" : "");
    bs_svg_escape(out, fields[i].title);
    bs_text_printf(out, "</th>");
  }
  bs_text_printf(out, "</tr></thead>\n<tbody>\n");
  for (size_t i = 0; i < json_array_size(rows) && i < most; i++)
    table_row(out, fields, kind, n, json_array_get(rows, i));
  bs_text_printf(out, "</tbody></table></div>\n");
}

/* ---- the table of settings ---- */

/* The verdict follows the method and its sizes, so that a narrow screen shows it. */
const bs_field bs_report_fields[] = {
    {"method", "method", BS_FIELD_FOLD, 0},
    {"N", "N", BS_FIELD_FOLD | BS_FIELD_RIGHT, 0},
    {"B", "B", BS_FIELD_FOLD | BS_FIELD_RIGHT, 0},
    {"speedup_word", "verdict", 0, 0},
    {"speedup", "speedup", BS_FIELD_RIGHT, 3},
    {"interval", "95 % interval", 0, 0},
    {"word", "numbers", BS_FIELD_FOLD, 0},
    {"ms", "ms", BS_FIELD_RIGHT, 4},
    {"K", "K", BS_FIELD_FOLD | BS_FIELD_RIGHT, 0},
    {"world_size", "P", BS_FIELD_FOLD | BS_FIELD_RIGHT, 0},
    {"dtype", "dtype", BS_FIELD_FOLD, 0},
    {"mask", "mask", BS_FIELD_FOLD, 0},
    {"phase", "phases", BS_FIELD_FOLD, 0},
    {"work", "work", BS_FIELD_FOLD, 0},
    {"against", "against", BS_FIELD_FOLD, 0},
    {"gflops", "GFLOP/s", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"limit_share", "% of limit", BS_FIELD_RIGHT | BS_FIELD_WIDE, 3},
    {"limit", "limit", BS_FIELD_FOLD | BS_FIELD_WIDE, 0},
    {"relative_error", "error", BS_FIELD_RIGHT | BS_FIELD_WIDE, 3},
    {"memory_mib", "peak MiB", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"clock", "clock", BS_FIELD_FOLD, 0},
    {"host", "host", BS_FIELD_FOLD | BS_FIELD_WIDE, 0},
    {"backend", "backend", BS_FIELD_FOLD | BS_FIELD_WIDE, 0},
    {"status", "status", BS_FIELD_FOLD | BS_FIELD_WIDE, 0},
    {"run", "run", BS_FIELD_WIDE, 0},
};
const size_t bs_report_n_fields = sizeof bs_report_fields / sizeof bs_report_fields[0];

static int phase_of(const json_t *row) {
  const char *phase = bs_row_text(row, "phase");
  return strncmp(phase, "phase", 5) == 0 && phase[5] >= '0' && phase[5] <= '3' ? phase[5] - '0' : -1;
}

/* All that names a setting but its phase. */
static void setting(const json_t *row, char *out, size_t size) {
  static const char *const but[] = {"phase", "arm", NULL};
  bs_row_words(row, ~0u, but, out, size);
}

static json_t *shown(const json_t *row) {
  static const char *const phases[] = {"0 numbers", "1 time", "2 backward", "3 training"};
  json_t *one = json_copy((json_t *)row);
  char interval[48], mask[96];
  bs_row_set(one, "ms", bs_row_number(row, "median_s") * 1e3);
  bs_row_set(one, "limit_share", bs_row_number(row, "share_of_limit") * 100);
  bs_row_set(one, "memory_mib", bs_row_number(row, "memory_peak_bytes") / 1048576);
  snprintf(interval, sizeof interval, "[%.3g, %.3g]", bs_row_number(row, "speedup_low"),
           bs_row_number(row, "speedup_high"));
  if (!isnan(bs_row_number(row, "speedup_low"))) json_object_set_new(one, "interval", json_string(interval));
  if (bs_row_text(row, "mask")[0] != '\0')
    json_object_set_new(one, "mask", json_string(bs_mask_words(bs_row_text(row, "mask"), mask, sizeof mask)));
  if (strcmp(bs_row_text(row, "phase"), "model_bench") == 0)
    json_object_set(one, "work", json_object_get(row, "arm"));
  const int phase = phase_of(row);
  if (phase >= 0) json_object_set_new(one, "phase", json_string(phases[phase]));
  return one;
}

/* Moves the numbers of phase 0 to the row of phase 1 with the same setting, if there is one. */
static void take_numbers(json_t *one, const json_t *numbers) {
  static const char *const keys[] = {"word", "relative_error", "relative_error_predicted"};
  for (size_t i = 0; i < 3; i++) json_object_set(one, keys[i], json_object_get(numbers, keys[i]));
  json_object_set_new(one, "phase", json_string("0, 1"));
}

json_t *bs_report_rows(const json_t *latest) {
  json_t *rows = json_array(), *numbers = json_object(), *timed = json_object(), *row;
  char key[400];
  size_t i;
  json_array_foreach((json_t *)latest, i, row) {
    setting(row, key, sizeof key);
    if (phase_of(row) == 0) json_object_set(numbers, key, row);
    if (phase_of(row) == 1) json_object_set(timed, key, row);
  }
  json_array_foreach((json_t *)latest, i, row) {
    const int phase = phase_of(row);
    setting(row, key, sizeof key);
    if (phase == 0 && json_object_get(timed, key) != NULL) continue;
    json_t *one = shown(row), *of = phase == 1 ? json_object_get(numbers, key) : NULL;
    if (of != NULL) take_numbers(one, of);
    json_array_append_new(rows, one);
  }
  json_decref(numbers);
  json_decref(timed);
  return rows;
}
