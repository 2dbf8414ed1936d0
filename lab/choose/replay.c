/* SPDX-License-Identifier: MIT
 * replay.c - see replay.h. */
#include "lab/choose/replay.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/rng.h"
#include "core/base/text.h"
#include "lab/choose/history.h"
#include "lab/error.h"

static const bs_lines_words words = {"BS-TUNE-IO", "BS-TUNE-LOCK", "--simulate FILE names another one", 0};

/* ---- reading -------------------------------------------------------------------------------- */

static enum bs_line judge(void *user, const json_t *e) {
  (void)user;
  return bs_history_is_entry(e) ? BS_LINE_HOLDS : BS_LINE_BROKEN;
}

static const char *text_of(const json_t *object, const char *key) {
  return json_string_value(json_object_get(object, key));
}

static int is_alike(const json_t *a, const json_t *b) {
  static const char *const keys[] = {"problem", "provider", "plugin",  "how",    "backend",
                                     "regime",  "settings", "threads", "machine"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    const json_t *of_a = json_object_get(a, keys[i]), *of_b = json_object_get(b, keys[i]);
    if ((of_a != NULL || of_b != NULL) && !json_equal(of_a, of_b)) return 0;
  }
  return 1;
}

static int is_of(const json_t *e, const char *key, const char *wanted) {
  return wanted == NULL || strcmp(text_of(e, key), wanted) == 0;
}

/* The newest line of the problem and the implementation. */
static const json_t *sample_of(const json_t *lines, const char *problem, const char *provider) {
  for (size_t i = json_array_size(lines); i-- > 0;) {
    const json_t *e = json_array_get(lines, i);
    if (is_of(e, "problem", problem) && is_of(e, "provider", provider)) return e;
  }
  return NULL;
}

/* The values of a knob: numbers in rising order, then words. */
typedef struct value_list {
  char name[32];
  char value[BS_SPACE_VALUES][BS_SPACE_WORD];
  uint32_t n;
} value_list;

/* Numbers first, rising. */
static int by_number(const void *a, const void *b) {
  double x = 0, y = 0;
  const int is_x = bs_parse_f64(a, &x), is_y = bs_parse_f64(b, &y);
  if (is_x != is_y) return is_y - is_x;
  if (!is_x) return strcmp(a, b);
  return x < y ? -1 : x > y;
}

static int add_value(value_list *list, const char *value) {
  for (uint32_t i = 0; i < list->n; i++)
    if (strcmp(list->value[i], value) == 0) return 1;
  if (list->n == BS_SPACE_VALUES || strlen(value) >= BS_SPACE_WORD) return 0;
  memcpy(list->value[list->n++], value, strlen(value) + 1);
  return 1;
}

/* "a=1;b=x" into the lists; 0: it does not fit into them. */
static int add_config(value_list *lists, uint32_t *n, const char *config) {
  for (const char *at = config; *at != '\0';) {
    char name[32], value[BS_SPACE_WORD];
    const size_t piece = strcspn(at, ";"), length = strcspn(at, "=;");
    uint32_t k = 0;
    if (length == 0 || length >= piece || length >= sizeof name || piece - length > sizeof value) return 0;
    snprintf(name, sizeof name, "%.*s", (int)length, at);
    snprintf(value, sizeof value, "%.*s", (int)(piece - length - 1), at + length + 1);
    while (k < *n && strcmp(lists[k].name, name) != 0) k++;
    if (k == BS_SPACE_KNOBS) return 0;
    if (k == *n) snprintf(lists[(*n)++].name, sizeof name, "%s", name);
    if (!add_value(&lists[k], value)) return 0;
    at += piece + (at[piece] == ';');
  }
  return 1;
}

static int32_t make_space(const json_t *lines, const json_t *sample, bs_space *out, bs_error *err) {
  value_list *lists = calloc(BS_SPACE_KNOBS, sizeof *lists);
  uint32_t n = 0;
  size_t i;
  const json_t *e;
  int32_t rc = lists == NULL ? bs_no_memory(err, "a replay") : BS_OK;
  bs_space_init(out);
  json_array_foreach(lines, i, e) {
    if (rc == BS_OK && is_alike(e, sample) && !add_config(lists, &n, text_of(e, "config")))
      rc = bs_error_set(err, BS_IO, "BS-TUNE-REPLAY", "'%.100s' is no point", text_of(e, "config"));
  }
  for (uint32_t k = 0; k < n && rc == BS_OK; k++) {
    bs_text values = {0};
    qsort(lists[k].value, lists[k].n, sizeof lists[k].value[0], by_number);
    for (uint32_t v = 0; v < lists[k].n; v++)
      bs_text_printf(&values, "%s%s", v > 0 ? "," : "", lists[k].value[v]);
    rc = values.failed
             ? bs_no_memory(err, "a replay")
             : bs_space_add(out, lists[k].name, values.data != NULL ? values.data : "", "auto", err);
    bs_text_free(&values);
  }
  free(lists);
  return rc;
}

/* Later lines of a point replace earlier ones of no higher effort. */
static int32_t fill(bs_replay *r, const json_t *lines, const json_t *sample, bs_error *err) {
  size_t i;
  const json_t *e;
  json_int_t *effort = calloc(r->space.size, sizeof *effort);
  r->seconds = malloc(r->space.size * sizeof *r->seconds);
  if (r->seconds == NULL || effort == NULL) {
    free(effort);
    return bs_no_memory(err, "a replay of %llu points", (unsigned long long)r->space.size);
  }
  for (uint64_t p = 0; p < r->space.size; p++) r->seconds[p] = NAN;
  json_array_foreach(lines, i, e) {
    uint64_t p = 0;
    const json_int_t of = json_integer_value(json_object_get(e, "effort"));
    if (!is_alike(e, sample) || !bs_space_find(&r->space, text_of(e, "config"), &p)) continue;
    if (!isnan(r->seconds[p]) && of < effort[p]) continue;
    effort[p] = of;
    r->seconds[p] = bs_history_seconds(e);
  }
  free(effort);
  double least = INFINITY;
  for (uint64_t p = 0; p < r->space.size; p++) {
    r->present += !isnan(r->seconds[p]);
    r->failed += !isnan(r->seconds[p]) && isinf(r->seconds[p]);
    if (!(r->seconds[p] < least)) continue;
    least = r->seconds[p];
    r->best = p;
  }
  return isfinite(least)
             ? BS_OK
             : bs_error_set(err, BS_NOT_FOUND, "BS-TUNE-REPLAY", "no point of %.200s has a time", r->of);
}

static int32_t no_points(int32_t code, bs_error *err) {
  bs_error_hint(err, "bsrun tune PROBLEM --strategy full --points FILE measures them");
  return code;
}

int32_t bs_replay_open(const char *path, const char *problem, const char *provider, bs_replay *out,
                       bs_error *err) {
  bs_lines lines;
  memset(out, 0, sizeof *out);
  if (access(path, F_OK) != 0)
    return no_points(
        bs_error_errno(err, BS_INPUT, "BS-TUNE-REPLAY", errno, "cannot read the points of %.200s", path),
        err);
  int32_t rc = bs_lines_open(&words, path, judge, NULL, &lines, err);
  const json_t *sample = rc == BS_OK ? sample_of(lines.entries, problem, provider) : NULL;
  if (rc == BS_OK && sample == NULL)
    rc = no_points(bs_error_set(err, BS_NOT_FOUND, "BS-TUNE-REPLAY", "%.200s has no points of %.100s%s%.60s",
                                path, problem != NULL ? problem : "any problem",
                                provider != NULL ? " by " : "", provider != NULL ? provider : ""),
                   err);
  if (rc == BS_OK) {
    snprintf(out->of, sizeof out->of, "%s %s", text_of(sample, "problem"), text_of(sample, "provider"));
    rc = make_space(lines.entries, sample, &out->space, err);
  }
  if (rc == BS_OK) rc = fill(out, lines.entries, sample, err);
  bs_lines_close(&lines);
  return rc;
}

void bs_replay_free(bs_replay *r) {
  free(r->seconds);
  r->seconds = NULL;
}

/* ---- replaying ------------------------------------------------------------------------------ */

/* A point that is not in the file counts as failed. */
static int32_t measure(void *user, uint64_t point, uint32_t effort, double *out_seconds, bs_error *err) {
  const bs_replay *r = user;
  (void)effort, (void)err;
  *out_seconds = isnan(r->seconds[point]) ? INFINITY : r->seconds[point];
  return BS_OK;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values, size_t n) {
  qsort(values, n, sizeof *values, by_value);
  return n == 0 ? 0.0 : n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
}

/* One of the slowest quarter, that seed's. */
static int32_t bad_start(const bs_replay *r, uint64_t seed, uint64_t *out, bs_error *err) {
  uint32_t bits = 0;
  size_t n = 0;
  double *times = malloc(r->space.size * sizeof *times);
  if (times == NULL) return bs_no_memory(err, "a replay");
  for (uint64_t p = 0; p < r->space.size; p++)
    if (isfinite(r->seconds[p])) times[n++] = r->seconds[p];
  qsort(times, n, sizeof *times, by_value);
  bs_rng_bits(seed, 0x57a7, 0, 1, &bits);
  if (n == 0) {
    free(times);
    return bs_error_set(err, BS_NOT_FOUND, "BS-TUNE-REPLAY", "no point of %.200s has a time", r->of);
  }
  const double wanted = times[n - 1 - bits % ((n + 3) / 4)];
  free(times);
  for (*out = 0; *out + 1 < r->space.size && r->seconds[*out] != wanted; (*out)++) {
  }
  return BS_OK;
}

enum { CURVES = 6 }; /* after 5, 10, 25 %, at the end, measured, cost of the goal */

static void follow(const bs_replay *r, const bs_searched *found, double goal, double *out) {
  static const double shares[] = {0.05, 0.10, 0.25};
  const double size = (double)r->present, best = r->seconds[r->best];
  double least = INFINITY;
  for (int c = 0; c < CURVES; c++) out[c] = 0.0;
  out[5] = INFINITY;
  for (size_t i = 0; i < found->n; i++) {
    if (found->rows[i].seconds < least) least = found->rows[i].seconds;
    const double speed = best / least, cost = (double)(i + 1) / size;
    for (int c = 0; c < 3; c++)
      if ((double)(i + 1) <= fmax(1.0, shares[c] * size)) out[c] = speed;
    if (speed >= goal && isinf(out[5])) out[5] = cost;
    out[3] = speed;
  }
  out[4] = (double)found->measured / size;
}

int32_t bs_replay_run(const bs_replay *r, const bs_replay_options *o, bs_replayed *out, bs_error *err) {
  double *curve[CURVES] = {NULL};
  int32_t rc = BS_OK;
  *out = (bs_replayed){.repeats = o->repeats > 0 ? o->repeats : 1, .low = INFINITY};
  for (int c = 0; c < CURVES; c++) {
    curve[c] = calloc(out->repeats, sizeof *curve[c]);
    if (curve[c] == NULL) rc = bs_no_memory(err, "a replay");
  }
  for (uint32_t i = 0; i < out->repeats && rc == BS_OK; i++) {
    bs_search search = {.strategy = o->strategy,
                        .finalists = o->finalists,
                        .seed = o->seed + i,
                        .points = o->points,
                        .user = (void *)(uintptr_t)r,
                        .measure = measure};
    bs_searched found = {0};
    double at[CURVES];
    rc = bad_start(r, search.seed, &search.start, err);
    if (rc == BS_OK) rc = bs_search_run(&r->space, &search, &found, err);
    if (rc == BS_OK) {
      follow(r, &found, o->goal, at);
      for (int c = 0; c < CURVES; c++) curve[c][i] = at[c];
      out->reached += isfinite(at[5]) != 0;
      out->low = fmin(out->low, at[3]);
    }
    bs_searched_free(&found);
  }
  if (rc == BS_OK) {
    double *const results[CURVES] = {&out->found_5, &out->found_10, &out->found_25,
                                     &out->found,   &out->measured, &out->goal_cost};
    for (int c = 0; c < CURVES; c++) *results[c] = median(curve[c], out->repeats);
  }
  for (int c = 0; c < CURVES; c++) free(curve[c]);
  return rc;
}
