/* SPDX-License-Identifier: MIT
 * tune_show.c - see tune.h. */
#include "bsrun/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/json.h"

#define ELITE_FIELDS                                                                                      \
  {"problem", "PROBLEM", BS_FIELD_FOLD, 0}, {"provider", "PROVIDER", BS_FIELD_FOLD, 0},                   \
      {"place", "#", BS_FIELD_RIGHT, 0}, {"config", "KNOBS", 0, 0}, {"us", "TIME us", BS_FIELD_RIGHT, 5}, \
      {"looks", "LOOKS", BS_FIELD_RIGHT, 0}, {"found_by", "FOUND BY", 0, 0}, {                            \
    "chosen", "", 0, 0                                                                                    \
  }
static const bs_field elite_fields[] = {ELITE_FIELDS};
static const bs_field inside_fields[] = {ELITE_FIELDS, {"how", "HOW", 0, 0}, {"reason", "REFUSED", 0, 0}};
static const bs_field replay_fields[] = {
    {"of", "OF", BS_FIELD_FOLD, 0},
    {"points", "POINTS", BS_FIELD_FOLD, 0},
    {"repeats", "REPEATS", BS_FIELD_FOLD, 0},
    {"strategy", "STRATEGY", 0, 0},
    {"found_5", "AFTER 5 %", BS_FIELD_RIGHT, 3},
    {"found_10", "10 %", BS_FIELD_RIGHT, 3},
    {"found_25", "25 %", BS_FIELD_RIGHT, 3},
    {"found", "AT THE END", BS_FIELD_RIGHT, 3},
    {"low", "WORST", BS_FIELD_RIGHT, 3},
    {"measured", "MEASURED", BS_FIELD_RIGHT, 3},
    {"goal_cost", "0.95 AFTER", BS_FIELD_RIGHT, 3},
    {"reached", "REACHED", BS_FIELD_RIGHT, 0},
};
#define COUNT(fields) (sizeof(fields) / sizeof(fields)[0])
enum { REFUSED_SHOWN = 8 };

static int by_time(const void *a, const void *b) {
  const double x = bs_get_number(*(json_t *const *)a, "us"), y = bs_get_number(*(json_t *const *)b, "us");
  return x < y ? -1 : x > y;
}

/* The shortest time first; takes the rows. */
static json_t *in_order(json_t *rows) {
  const size_t n = json_array_size(rows);
  json_t **order = calloc(n + 1, sizeof *order), *sorted = json_array();
  for (size_t i = 0; order != NULL && i < n; i++) order[i] = json_array_get(rows, i);
  if (order != NULL) qsort(order, n, sizeof *order, by_time);
  for (size_t i = 0; order != NULL && i < n; i++) {
    json_object_set_new(order[i], "place", json_integer((json_int_t)i + 1));
    json_array_append(sorted, order[i]);
  }
  free(order);
  json_decref(rows);
  return sorted;
}

static json_t *elite_rows(const json_t *report) {
  json_t *rows = json_array();
  size_t i;
  const json_t *e;
  json_array_foreach(json_object_get(report, "elite"), i, e) {
    char full[1024];
    json_t *row = json_copy((json_t *)(uintptr_t)e);
    snprintf(full, sizeof full, bs_get_text(e, "config")[0] != '\0' ? "%s{%s}" : "%s%s",
             bs_get_text(e, "provider"), bs_get_text(e, "config"));
    json_object_set(row, "problem", json_object_get(report, "problem"));
    json_object_set_new(row, "us", json_real(bs_get_number(e, "seconds") * 1e6));
    json_object_set_new(row, "chosen",
                        json_string(strcmp(full, bs_get_text(report, "choice")) == 0 ? "chosen" : ""));
    json_array_append_new(rows, row);
  }
  return in_order(rows);
}

/* The verdict first. */
static void print_sentence(const json_t *r) {
  const char *word = bs_get_text(r, "word"), *standard = bs_get_text(r, "default");
  if (strcmp(bs_get_text(r, "origin"), "stopped") == 0) {
    bs_print(stdout, "stopped before there was a choice: %s stays the default\n", standard);
    return;
  }
  bs_print(stdout, "%s\n", bs_get_text(r, "choice"));
  if (word[0] == '\0' && json_is_number(json_object_get(r, "ratio")))
    bs_print(stdout, "%s: speedup %.3f (%.3f to %.3f)\n", bs_get_text(r, "cause"), bs_get_number(r, "ratio"),
             bs_get_number(r, "low"), bs_get_number(r, "high"));
  else if (word[0] == '\0')
    printf("the default: nothing that was found differs from it\n");
  else if (strcmp(bs_get_text(r, "choice"), standard) == 0)
    bs_print(stdout, "the default stays: the fastest candidate is %s (speedup %.3f, %.3f to %.3f)\n", word,
             bs_get_number(r, "ratio"), bs_get_number(r, "low"), bs_get_number(r, "high"));
  else
    bs_print(stdout, "speedup %.3f against %s (%.3f to %.3f, %lld pairs): %s\n", bs_get_number(r, "ratio"),
             standard, bs_get_number(r, "low"), bs_get_number(r, "high"),
             (long long)json_integer_value(json_object_get(r, "pairs")), word);
  const char *disturbed = bs_get_text(r, "disturbed"), *cause = bs_get_text(r, "cause");
  if (strcmp(word, "UNCLEAR") == 0 && cause[0] != '\0')
    bs_print(stdout, "unclear: %s%s%s\n", cause, disturbed[0] != '\0' ? ": " : "", disturbed);
}

static void print_counts(const json_t *r) {
  size_t i;
  const json_t *s;
  if (strcmp(bs_get_text(r, "origin"), "stored") == 0) {
    bs_print(stdout, "stored on %s; nothing was measured\n", bs_get_text(r, "measured_at"));
    return;
  }
  const long long refused = (long long)json_integer_value(json_object_get(r, "not_applicable"));
  bs_print(
      stdout,
      "%lld measured, %lld known before, %lld not applicable to the judged shapes, %lld failed; %s; %.3g s\n",
      (long long)json_integer_value(json_object_get(r, "measured")),
      (long long)json_integer_value(json_object_get(r, "known")), refused,
      (long long)json_integer_value(json_object_get(r, "failed")) - refused, bs_get_text(r, "strategy"),
      bs_get_number(r, "spent_s"));
  json_array_foreach(json_object_get(r, "spaces"), i, s)
      bs_print(stdout, "%s: %lld of %lld points, %lld measurements, ended by: %s; default %s%s\n",
               bs_get_text(s, "provider"), (long long)json_integer_value(json_object_get(s, "seen")),
               (long long)json_integer_value(json_object_get(s, "points")),
               (long long)json_integer_value(json_object_get(s, "measured")), bs_get_text(s, "end"),
               bs_get_text(s, "default")[0] != '\0' ? bs_get_text(s, "default") : "(no knobs)",
               json_is_true(json_object_get(s, "outside")) ? " (outside of what was searched)" : "");
  putchar('\n');
}

static int is_json(int format) {
  return format == BS_FORMAT_JSON || format == BS_FORMAT_JSONL;
}

static int32_t print_json(int format, const json_t *report, bs_error *err) {
  const size_t flags = format == BS_FORMAT_JSON ? JSON_INDENT(2) : JSON_COMPACT;
  if (json_dumpf(report, stdout, bs_report_json(stdout) | flags | JSON_REAL_PRECISION(9)) != 0 ||
      putchar('\n') == EOF)
    return bs_error_set(err, BS_IO, "BS-OUT", "cannot write the report");
  return BS_OK;
}

int32_t tune_print(int format, const json_t *report, bs_error *err) {
  if (is_json(format)) return print_json(format, report, err);
  if (format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE) {
    print_sentence(report);
    print_counts(report);
  }
  json_t *rows = elite_rows(report);
  const int32_t rc = json_array_size(rows) > 0 || format == BS_FORMAT_CSV
                         ? bs_report_print(stdout, format, elite_fields, COUNT(elite_fields), rows, err)
                         : BS_OK;
  json_decref(rows);
  return rc;
}

/* ---- inside of a device ------------------------------------------------------------------------ */

static void print_inside_sentence(const json_t *r) {
  const json_t *s = json_array_get(json_object_get(r, "spaces"), 0);
  const long long refused = (long long)json_integer_value(json_object_get(r, "refused"));
  bs_print(stdout, "simulated, not measured: device %s (%s); nothing is kept, and no run takes this choice\n",
           bs_get_text(r, "device"), bs_get_text(r, "label"));
  bs_print(stdout, "%s%s\n", strcmp(bs_get_text(r, "origin"), "stopped") == 0 ? "stopped; until then: " : "",
           bs_get_text(r, "choice"));
  if (bs_get_number(r, "ratio") == 1.0)
    bs_print(stdout, "no simulated point is faster than %s, the fastest of the device's tiles: %.6g us\n",
             bs_get_text(r, "default"), 1e6 * bs_get_number(r, "default_s"));
  else if (json_is_number(json_object_get(r, "ratio")))
    bs_print(stdout, "simulated speedup %.3f against %s, the fastest of the device's tiles: %.6g us\n",
             bs_get_number(r, "ratio"), bs_get_text(r, "default"), 1e6 * bs_get_number(r, "default_s"));
  bs_print(stdout, "%lld simulated, %lld refused, of %lld points; %s, ended by: %s; %.3g s\n",
           (long long)json_integer_value(json_object_get(r, "simulated")), refused,
           (long long)json_integer_value(json_object_get(s, "points")), bs_get_text(r, "strategy"),
           bs_get_text(s, "end"), bs_get_number(r, "spent_s"));
  if (refused > REFUSED_SHOWN)
    bs_print(stdout, "the first %d of the refused points are shown; -o json has all\n", REFUSED_SHOWN);
  putchar('\n');
}

/* The fastest, then those that were refused: in a table some of them. */
static json_t *inside_rows(const json_t *report, int some) {
  json_t *rows = elite_rows(report);
  size_t i;
  const json_t *e;
  json_array_foreach(json_object_get(report, "refused_points"), i, e) {
    if (some && i == REFUSED_SHOWN) break;
    json_t *row = json_copy((json_t *)(uintptr_t)e);
    json_object_set(row, "problem", json_object_get(report, "problem"));
    json_array_append_new(rows, row);
  }
  return rows;
}

int32_t tune_print_inside(int format, const json_t *report, bs_error *err) {
  const int table = format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE;
  if (is_json(format)) return print_json(format, report, err);
  if (table) print_inside_sentence(report);
  json_t *rows = inside_rows(report, table);
  const int32_t rc = bs_report_print(stdout, format, inside_fields, COUNT(inside_fields), rows, err);
  json_decref(rows);
  return rc;
}

json_t *tune_replay_row(const bs_replay *r, uint32_t strategy, const bs_replayed *d) {
  json_t *row =
      json_pack("{s:s,s:I,s:i,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:i}", "of", r->of, "points",
                (json_int_t)r->present, "repeats", (int)d->repeats, "strategy", bs_strategy_names[strategy],
                "found_5", d->found_5, "found_10", d->found_10, "found_25", d->found_25, "found", d->found,
                "low", d->low, "measured", d->measured, "reached", (int)d->reached);
  if (row != NULL && isfinite(d->goal_cost)) json_object_set_new(row, "goal_cost", json_real(d->goal_cost));
  return row;
}

int32_t tune_print_replays(int format, const json_t *rows, bs_error *err) {
  return bs_report_print(stdout, format, replay_fields, COUNT(replay_fields), rows, err);
}
