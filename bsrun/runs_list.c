/* SPDX-License-Identifier: MIT
 * runs_list.c - `bsrun runs list`: the committed runs of a results folder, the newest first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bsrun/bsrun.h"
#include "bsrun/runs.h"
#include "core/base/error.h"
#include "lab/report/rows.h"
#include "lab/store/find.h"
#include "lab/store/fsck.h"
#include "lab/store/read.h"

static const args_option options[] = {
    {OPT_WHERE, "KEY=VALUE, KEY!=VALUE, KEY>NUMBER, ...", 0},
    {OPT_SHOW, NULL, 0},
    {OPT_SHOW_ARMS, NULL, 0},
    {OPT_LIMIT, "default: 20 in a table, else all", 0},
    {OPT_OUT, NULL, ARGS_STORE},
    ARGS_TABLE,
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

/* Names of columns are those of --where, in capitals. */
static const bs_field fields[] = {
    {"id", "ID", 0, 0},
    {"date", "DATE (UTC)", 0, 0},
    {"phase", "PHASE", 0, 0},
    {"word", "RESULT", 0, 0},
    {"method", "METHOD", 0, 0},
    {"problem", "PROBLEM", BS_FIELD_SPARE, 0},
    {"arm", "ARM", 0, 0},
    {"world_size", "P", BS_FIELD_RIGHT, 0},
    {"N", "N", BS_FIELD_RIGHT, 0},
    {"K", "K", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"speedup", "SPEEDUP", BS_FIELD_RIGHT, 3},
    {"B", "B", BS_FIELD_RIGHT | BS_FIELD_SPARE, 0},
    {"dtype", "DTYPE", BS_FIELD_SPARE, 0},
    {"median_s", "MEDIAN s", BS_FIELD_RIGHT | BS_FIELD_SPARE, 4},
    {"against", "AGAINST", BS_FIELD_WIDE, 0},
    {"run_id", "RUN", BS_FIELD_LEAST, 0},
    {"note", "NOTE", BS_FIELD_LEAST, 0},
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

/* Adds the columns of a table. A run without gates shows the word of its DONE file, NOT PASSED also the
 * stage.
 */
static void dress(json_t *row, size_t digits) {
  const char *stage = json_string_value(json_object_get(row, "failed_stage"));
  const char *word = json_string_value(json_object_get(row, "word"));
  const char *run = json_string_value(json_object_get(row, "run"));
  const char *phase = json_string_value(json_object_get(row, "phase"));
  char date[32], result[64], id[BS_SHORT_ID];
  const time_t seconds = (time_t)json_number_value(json_object_get(row, "time"));
  struct tm tm;
  gmtime_r(&seconds, &tm);
  strftime(date, sizeof date, "%Y-%m-%d %H:%M", &tm);
  json_object_set_new(row, "date", json_string(date));
  bs_run_short_id(run != NULL ? run : "", id);
  json_object_set_new(row, "id", json_stringn(id, digits));
  if (phase != NULL) json_object_set_new(row, "phase", json_string(bs_phase_word(phase)));
  if (word != NULL && stage != NULL && strcmp(word, "NOT PASSED") == 0) {
    snprintf(result, sizeof result, "%.20s: %.40s", word, stage);
    json_object_set_new(row, "word", json_string(result));
  } else if (word == NULL)
    json_object_set(row, "word", json_object_get(row, "status"));
}

static int is_first_arm(const json_t *row) {
  const char *arm = json_string_value(json_object_get(row, "arm"));
  return arm == NULL || strncmp(arm, "dense", 5) != 0;
}

static int wanted(const args *a, const json_t *row, const bs_condition *conditions, size_t n) {
  if (!args_has(a, "arms") && !is_first_arm(row)) return 0;
  for (size_t i = 0; i < n; i++)
    if (!bs_condition_holds(&conditions[i], row)) return 0;
  return 1;
}

/* The arms prefill and decode of a model are not compared with each other: each gets a separate row. */
static int is_work(const json_t *row) {
  const char *phase = json_string_value(json_object_get(row, "phase"));
  return phase != NULL && strcmp(phase, "model_bench") == 0;
}

static int is_same_run(const json_t *a, const json_t *b) {
  return a != NULL && json_equal(json_object_get(a, "run"), json_object_get(b, "run"));
}

/* A comparison has a row for each of its arms. In a table it is one line: that of the largest speedup. */
static void keep_faster(json_t *shown, json_t *row) {
  const size_t n = json_array_size(shown);
  const json_t *before = n > 0 ? json_array_get(shown, n - 1) : NULL;
  const json_t *speedup = json_object_get(row, "speedup"), *known = json_object_get(before, "speedup");
  if (is_same_run(before, row) && json_is_number(speedup) &&
      (!json_is_number(known) || json_number_value(speedup) > json_number_value(known)))
    json_array_set(shown, n - 1, row);
}

static int32_t read_conditions(const args *a, bs_condition **out, size_t *out_n, bs_error *err) {
  const char **texts = NULL;
  *out = NULL;
  int32_t rc = args_values(a, "where", &texts, out_n, err);
  if (rc == BS_OK && *out_n > 0 && (*out = calloc(*out_n, sizeof **out)) == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; rc == BS_OK && i < *out_n; i++) rc = bs_condition_parse(texts[i], &(*out)[i], err);
  free(texts);
  return rc;
}

static void tell(const args *a, const bs_runs_stats *stats, size_t shown, size_t matched) {
  char text[200];
  const int quiet = args_has(a, "quiet");
  if (shown < matched) {
    snprintf(text, sizeof text, "%zu of %zu rows are shown: --limit N shows more", shown, matched);
    bsrun_note(quiet, text);
  }
  if (stats->damaged > 0) {
    snprintf(text, sizeof text, "%llu damaged runs are left out: bsrun runs fsck tells which",
             (unsigned long long)stats->damaged);
    bsrun_warn(text);
  }
  if (stats->closed > 0) {
    snprintf(text, sizeof text, "this user may not look into %llu folders: bsrun runs fsck tells which",
             (unsigned long long)stats->closed);
    bsrun_warn(text);
  }
}

static int32_t print(int format, const json_t *rows, bs_error *err) {
  if (format == BS_FORMAT_TABLE || format == BS_FORMAT_MD) {
    bs_speedup_caption(stdout, rows);
    return bs_report_print(stdout, format, fields, N_FIELDS, rows, err);
  }
  bs_field all[128] = {{0}};
  size_t n = 0;
  for (; bs_run_row_keys[n] != NULL && n < 128; n++)
    all[n] = (bs_field){bs_run_row_keys[n], bs_run_row_keys[n], 0, 0};
  return bs_report_print(stdout, format, all, n, rows, err);
}

static int32_t run(const args *a, bs_error *err) {
  bs_condition *conditions = NULL;
  bs_runs_stats stats = {0};
  json_t *rows = NULL, *shown = json_array(), *row, *last = NULL;
  size_t n = 0, i, matched = 0;
  int64_t limit = 0;
  int format = BS_FORMAT_TABLE;
  int32_t rc = bsrun_format(a, &format, err);
  const int64_t most = format == BS_FORMAT_TABLE ? 20 : INT64_MAX;
  if (rc == BS_OK) rc = args_integer(a, "limit", 1, INT64_MAX, most, &limit, err);
  if (rc == BS_OK) rc = read_conditions(a, &conditions, &n, err);
  if (rc == BS_OK && args_has(a, "out")) rc = bs_runs_root_check(runs_root(a), err);
  if (rc == BS_OK) rc = bs_runs_index(runs_root(a), &rows, &stats, err);
  const size_t digits = bs_run_short_digits(rows);
  json_array_foreach(rows, i, row) {
    const int shows = format == BS_FORMAT_TABLE || format == BS_FORMAT_MD;
    const int one_a_run = shows && !args_has(a, "arms") && !is_work(row);
    if (!wanted(a, row, conditions, n)) continue;
    if (shows) dress(row, digits);
    if (one_a_run) json_object_del(row, "arm");
    if (one_a_run && is_same_run(last, row)) {
      keep_faster(shown, row);
      continue;
    }
    last = row;
    if ((int64_t)++matched <= limit) json_array_append(shown, row);
  }
  if (rc == BS_OK) rc = print(format, shown, err);
  if (rc == BS_OK) tell(a, &stats, json_array_size(shown), matched);
  free(conditions);
  json_decref(rows);
  json_decref(shown);
  bs_runs_stats_free(&stats);
  return rc;
}

const bsrun_verb runs_list_verb = {
    .name = "list",
    .words = "[--where CONDITION]... [options]",
    .summary = "the committed runs of a results folder, the newest first",
    .about =
        "The first column is a short id of the run. Where a verb takes a RUN, this id, the run_id, the "
        "run's\n"
        "folder and the word `latest` name it: bsrun runs show latest.\n"
        "A condition names a field of `-o json` (share/doc/blockshock/runs.md): method=dense, N>=1024, "
        "word=WRONG,\n"
        "note!=null, regions.allreduce>0.1. Several must all hold. Whole numbers take k, M, G (1000) and "
        "Ki,\n"
        "Mi, Gi (1024).\n",
    .examples =
        "  bsrun runs list -n 3\n  bsrun runs list --where method=blockshock --where 'N>1Ki' -o csv\n",
    .options = options,
    .run = run,
    .min_words = 0,
    .max_words = 0,
};
