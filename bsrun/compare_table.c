/* SPDX-License-Identifier: MIT
 * ladder_table.c - the rows of a ladder as a table: how fast first, the sentences on why below it, each
 * once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/compare.h"
#include "core/base/error.h"
#include "lab/json.h"
#include "lab/report/rows.h"

#define RIGHT BS_FIELD_RIGHT
#define WIDE BS_FIELD_WIDE
#define SPARE BS_FIELD_SPARE
#define LEAST BS_FIELD_LEAST

static const bs_field fields[] = {
    {"pass", "PASS", BS_FIELD_FOLD, 0},
    {"place", "#", RIGHT, 0},
    {"speedup", "SPEEDUP", RIGHT, 3},
    {"speedup_low", "FROM", RIGHT | SPARE, 3},
    {"speedup_high", "TO", RIGHT | SPARE, 3},
    {"verdict", "IT IS", 0, 0},
    {"candidate", "CANDIDATE", 0, 0},
    {"simulated_us", "SIMULATED us", RIGHT, 3},
    {"measured_ms", "ms", RIGHT, 3},
    {"predicted_ms", "PREDICTED ms", RIGHT | SPARE, 3},
    {"world_size", "P", RIGHT | LEAST, 0},
    {"threads_per_rank", "THREADS/RANK", RIGHT | LEAST, 0},
    {"limit", "LIMIT", LEAST, 0},
    {"label", "LABEL", WIDE, 0},
    {"domain", "DOMAIN", WIDE, 0},
    {"against", "AGAINST", WIDE, 0},
    {"cause", "CAUSE", WIDE, 0},
    {"next", "TO DO", WIDE, 0},
    {"wire_bytes", "SENT", RIGHT | WIDE | BS_FIELD_BYTES, 0},
    {"wire_error", "WIRE ERROR", RIGHT | WIDE, 3},
    {"bound_ms", "BOUND ms", RIGHT | WIDE, 3},
    {"share_of_limit", "% OF LIMIT", RIGHT | WIDE | BS_FIELD_PERCENT, 2},
    {"below_bound", "BELOW BOUND", WIDE, 0},
    {"measured_over_predicted", "ms/PREDICTED", RIGHT | WIDE, 3},
    {"settings", "SETTINGS", WIDE, 0},
    {"why", "WHY", WIDE, 0},
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static int is_simulated(const json_t *row) {
  return json_is_number(json_object_get(row, "simulated_us"));
}

static int is_timed(const json_t *row) {
  return json_is_number(json_object_get(row, "measured_ms")) || is_simulated(row);
}

/* "  1, 3: text", in lines of a table's width. */
static void print_wrapped(const char *places, const char *text) {
  bs_text line = {0};
  bs_text_printf(&line, "  %s: ", places);
  const size_t indent = line.size;
  bs_text_printf(&line, "%s", text);
  if (!line.failed) bs_print_folded(stdout, indent, line.data);
  bs_text_free(&line);
}

/* Each sentence under `key` once, with the places or names of the rows that have it. */
static void print_sentences(const char *title, const char *key, const json_t *rows) {
  const size_t n = json_array_size(rows);
  int titled = 0;
  for (size_t i = 0; i < n; i++) {
    const char *text = bs_get_text(json_array_get(rows, i), key);
    char places[256] = "";
    size_t used = 0, k = 0;
    while (k < i && strcmp(bs_get_text(json_array_get(rows, k), key), text) != 0) k++;
    if (text[0] == '\0' || k < i) continue;
    for (k = i; k < n && used + 1 < sizeof places; k++) {
      const json_t *row = json_array_get(rows, k), *place = json_object_get(row, "place");
      if (strcmp(bs_get_text(row, key), text) != 0) continue;
      const char *between = used > 0 ? ", " : "";
      const int wrote = json_is_integer(place) ? snprintf(places + used, sizeof places - used, "%s%lld",
                                                          between, (long long)json_integer_value(place))
                                               : snprintf(places + used, sizeof places - used, "%s%.80s",
                                                          between, bs_get_text(row, "candidate"));
      if (wrote > 0) used += (size_t)wrote;
    }
    if (!titled++) bs_print(stdout, "\n%s\n", title);
    print_wrapped(places, text);
  }
}

/* The rows of one pass. */
static int32_t print_pass(const json_t *rows, int only_measured, bs_error *err) {
  json_t *mine = json_array();
  size_t left_out = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t *row = json_array_get(rows, i);
    if (only_measured && !is_timed(row))
      left_out++;
    else
      json_array_append(mine, row);
  }
  const json_t *first = json_array_get(mine, 0);
  const char *domain = bs_get_text(first, "domain");
  for (size_t k = 1; k < json_array_size(mine); k++) {
    const char *other = bs_get_text(json_array_get(mine, k), "domain"); /* "": it was refused */
    if (other[0] != '\0' && strcmp(other, domain) != 0) domain = "some rows are extrapolated: --wide";
  }
  if (is_simulated(first))
    bs_print(stdout, "simulated, not measured: a machine of %s numbers (%s)\n", bs_get_text(first, "label"),
             domain);
  bs_speedup_caption(stdout, mine);
  int32_t rc = bs_report_print(stdout, BS_FORMAT_TABLE, fields, N_FIELDS, mine, err);
  if (!only_measured) print_sentences("why:", "why", mine);
  if (!only_measured) print_sentences("unclear, and what to do:", "next", mine);
  if (!only_measured) print_sentences("no verdict:", "note", mine);
  if (left_out > 0)
    printf("(%zu more candidates are predicted to be slower or cannot run: --wide, -o json)\n", left_out);
  json_decref(mine);
  return rc;
}

int32_t compare_print_methods(int format, const json_t *rows, int only_measured, bs_error *err) {
  int32_t rc = BS_OK;
  if (format != BS_FORMAT_TABLE) return bs_report_print(stdout, format, fields, N_FIELDS, rows, err);
  for (size_t i = 0; i < json_array_size(rows) && rc == BS_OK;) {
    json_t *pass = json_array();
    const char *name = bs_get_text(json_array_get(rows, i), "pass");
    size_t first = i, place = 0;
    for (; i < json_array_size(rows); i++) { /* one ladder: a pass, with its places in order */
      const json_t *row = json_array_get(rows, i), *at = json_object_get(row, "place");
      if (strcmp(bs_get_text(row, "pass"), name) != 0 || (place > 0 && json_integer_value(at) == 1)) break;
      place = (size_t)json_integer_value(at) > place ? (size_t)json_integer_value(at) : place;
      json_array_append(pass, json_array_get(rows, i));
    }
    if (first > 0) printf("\n");
    rc = print_pass(pass, only_measured, err);
    json_decref(pass);
  }
  return rc;
}
