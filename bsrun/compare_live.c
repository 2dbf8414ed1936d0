/* SPDX-License-Identifier: MIT
 * compare_live.c - `bsrun compare SPEC SPEC`: two arms in one sampling, kept as a run. */
#include <stdio.h>
#include <string.h>

#include "bsrun/compare.h"
#include "bsrun/compare_run.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/json.h"
#include "lab/report/rows.h"
#include "lab/stop.h"

static const bs_field fields[] = {
    {"pass", "pass", BS_FIELD_FOLD, 0},
    {"candidate", "side", 0, 0},
    {"settings", "settings", 0, 0},
    {"measured_ms", "ms", BS_FIELD_RIGHT, 3},
    {"predicted_ms", "predicted ms", BS_FIELD_RIGHT | BS_FIELD_SPARE, 3},
    {"verdict", "it is", 0, 0},
    {"speedup", "speedup", BS_FIELD_RIGHT, 3},
    {"speedup_low", "from", BS_FIELD_RIGHT, 3},
    {"speedup_high", "to", BS_FIELD_RIGHT, 3},
    {"pairs", "pairs", BS_FIELD_RIGHT | BS_FIELD_LEAST, 0},
    {"builds", "builds", BS_FIELD_RIGHT | BS_FIELD_LEAST, 0},
    {"world_size", "P", BS_FIELD_RIGHT | BS_FIELD_SPARE, 0},
    {"threads_per_rank", "threads/rank", BS_FIELD_RIGHT | BS_FIELD_SPARE, 0},
    {"limit", "limit", BS_FIELD_LEAST, 0},
    {"cause", "cause", BS_FIELD_WIDE, 0},
    {"next", "to do", BS_FIELD_WIDE, 0},
    {"bound_ms", "bound ms", BS_FIELD_RIGHT | BS_FIELD_WIDE, 3},
    {"why", "why", BS_FIELD_WIDE, 0},
};

/* The rows of each pass are by place: A first. */
static void put_in_order(json_t *rows) {
  for (size_t i = 0; i + 1 < json_array_size(rows); i += 2) {
    json_t *first = json_array_get(rows, i);
    if (strcmp(bs_get_text(first, "candidate"), "A") == 0) continue;
    json_incref(first);
    json_array_set(rows, i, json_array_get(rows, i + 1));
    json_array_set_new(rows, i + 1, first);
  }
}

/* A list of settings as the SPEC that it was. */
static void join_settings(json_t *rows) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *list = json_object_get(json_array_get(rows, i), "settings");
    bs_text text = {0};
    for (size_t k = 0; k < json_array_size(list); k++)
      bs_text_printf(&text, "%s%s", k > 0 ? " " : "", json_string_value(json_array_get(list, k)));
    if (text.data != NULL && !text.failed)
      json_object_set_new(json_array_get(rows, i), "settings", json_string(text.data));
    bs_text_free(&text);
  }
}

static int is_readable(int format) {
  return format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE || format == BS_FORMAT_MD;
}

/* "forward: B is FASTER: speedup 1.23 [1.2, 1.26] against A (48 pairs, 4 builds)"; of equal sides "forward:
 * both sides are the same configuration: speedup of B 1.002 [0.99, 1.01] against A ...". */
static void print_words(int format, const json_t *rows) {
  if (!is_readable(format)) return;
  printf("\n");
  for (size_t i = 1; i < json_array_size(rows); i += 2) {
    const json_t *b = json_array_get(rows, i);
    const char *cause = bs_get_text(b, "cause"), *next = bs_get_text(b, "next");
    const int none = bs_get_text(b, "verdict")[0] == '\0';
    bs_print(stdout, "%s: %s%s%s%s%s: %s%.3g [%.3g, %.3g] against A (%lld pairs, %lld builds)\n",
             bs_get_text(b, "pass"), none ? "" : "B is ", bs_get_text(b, "verdict"),
             cause[0] != '\0' && !none ? " (" : "", cause, cause[0] != '\0' && !none ? ")" : "",
             none ? "speedup of B " : "speedup ", json_number_value(json_object_get(b, "speedup")),
             json_number_value(json_object_get(b, "speedup_low")),
             json_number_value(json_object_get(b, "speedup_high")),
             (long long)json_integer_value(json_object_get(b, "pairs")),
             (long long)json_integer_value(json_object_get(b, "builds")));
    if (next[0] != '\0') bs_print(stdout, "%s: unclear: %s\n", bs_get_text(b, "pass"), next);
  }
}

static int32_t compare(const args *a, compare_run *r, bs_error *err) {
  const char *const specs[] = {a->words[0], a->words[1]};
  const bs_ladder_options o = {.in_order = 1, .specs = specs, .n_specs = 2};
  int format = 0;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = compare_run_open(a, 8.0, r, err);
  if (rc == BS_OK) rc = compare_run_measure(r, 2, &o, err);
  if (rc != BS_OK && bs_stop_asked() == 0) return rc;
  put_in_order(r->host.ladders);
  join_settings(r->host.ladders);
  if (is_readable(format)) bs_speedup_caption(stdout, r->host.ladders);
  const int32_t printed =
      bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], r->host.ladders, err);
  if (printed == BS_OK) print_words(format, r->host.ladders);
  if (rc == BS_OK) rc = printed;
  if (rc != BS_OK) return rc;
  compare_run_print_folder(r, format);
  return BS_OK;
}

int compare_live(const args *a) {
  bs_error err = BS_ERROR_INIT;
  compare_run run = {.host.progress.busy = ATOMIC_FLAG_INIT};
  const int32_t rc = compare(a, &run, &err);
  const int code = rc == BS_OK ? 0 : bsrun_fail(&err);
  compare_run_free(&run);
  return code;
}
