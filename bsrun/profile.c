/* SPDX-License-Identifier: MIT
 * profile.c - `bsrun profile`: the table of its second words, and what they share. */
#include "bsrun/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/json.h"
#include "lab/stop.h"
#include "lab/store/keep.h"

static const bsrun_verb *const verbs[] = {&profile_layer, &profile_kernel, &profile_model, &profile_ncu,
                                          NULL};
const bsrun_verb verb_profile = {
    .name = "profile",
    .summary = "where the time of a layer, a kernel or a model goes",
    .subverbs = verbs,
};

enum { SLOWEST = 20 };

static const bs_field parts[] = {{"part", "PART", 0, 0},
                                 {"rank", "RANK", BS_FIELD_RIGHT, 0},
                                 {"seconds", "s", BS_FIELD_RIGHT, 4},
                                 {"share", "SHARE", BS_FIELD_RIGHT, 3},
                                 {"flops", "FLOP", BS_FIELD_RIGHT, 4},
                                 {"bytes", "BYTES", BS_FIELD_RIGHT, 4},
                                 {"gflops", "GFLOP/s", BS_FIELD_RIGHT, 4},
                                 {"gbytes_s", "GB/s", BS_FIELD_RIGHT, 4},
                                 {"bound_percent", "% OF BOUND", BS_FIELD_RIGHT, 3}};
static const bs_field findings[] = {{"rule", "FINDING", 0, 0},
                                    {"state", "STATE", 0, 0},
                                    {"cost_s", "COST s", BS_FIELD_RIGHT, 3},
                                    {"text", "MEASURED", 0, 0},
                                    {"says", "WHAT IT MEANS", 0, 0}};

int32_t profile_options(const args *a, bs_profile_options *out, bs_error *err) {
  const char *counters = args_value(a, "counters");
  int on = 1;
  out->trace = args_value(a, "to");
  if (counters != NULL && !bs_parse_bool(counters, &on))
    return bs_error_set(err, BS_USAGE, "BS-USE-CHOICE", "--counters: '%.60s' is neither on nor off",
                        counters);
  out->counters = on;
  return args_real(a, "seconds", 0.01, 3600, 1, &out->seconds, err);
}

/* ---- printing ----------------------------------------------------------------------------------- */

static void print_head(const json_t *record) {
  const json_t *subject = json_object_get(record, "subject"), *bound = json_object_get(record, "bound"),
               *calls = json_object_get(record, "calls");
  bs_print(stdout, "%s %s: %.4g s", bs_get_text(subject, "kind"), bs_get_text(subject, "name"),
           bs_get_number(record, "call_s"));
  if (calls != NULL)
    printf(" (median of %.0f; shortest %.4g, 95 %% at most %.4g)", bs_get_number(calls, "n"),
           bs_get_number(calls, "min_s"), bs_get_number(calls, "p95_s"));
  if (json_object_get(bound, "limit") != NULL)
    bs_print(stdout, ", %.3g %% of the bound by %s", bs_get_number(bound, "percent"),
             bs_get_text(bound, "limit"));
  printf("\n\n");
}

static const bs_field kernels[] = {{"kernel", "KERNEL", 0, 0},
                                   {"launches", "LAUNCHES", BS_FIELD_RIGHT, 0},
                                   {"seconds", "s BY NCU", BS_FIELD_RIGHT, 4},
                                   {"tensor_percent", "% TENSOR", BS_FIELD_RIGHT, 3},
                                   {"sm_percent", "% SM", BS_FIELD_RIGHT, 3},
                                   {"dram_percent", "% DRAM", BS_FIELD_RIGHT, 3},
                                   {"warps_percent", "% WARPS", BS_FIELD_RIGHT, 3},
                                   {"registers", "REGISTERS", BS_FIELD_RIGHT, 4},
                                   {"bank_conflicts", "BANK CONFLICTS", BS_FIELD_RIGHT, 4},
                                   {"long_scoreboard", "LONG SCOREBOARD", BS_FIELD_RIGHT, 3}};

/* Prints the metrics that ncu gave each kernel (profile kernel --with ncu). */
static int32_t print_kernels(const json_t *record, int format, bs_error *err) {
  json_t *rows = json_array(), *kernel;
  size_t i;
  json_array_foreach(json_object_get(record, "ncu_kernels"), i, kernel) {
    json_t *row = json_copy(kernel);
    json_object_update(row, json_object_get(kernel, "ncu"));
    json_array_append_new(rows, row);
  }
  int32_t rc = BS_OK;
  if (json_array_size(rows) > 0) {
    rc = bs_report_print(stdout, format, kernels, sizeof kernels / sizeof kernels[0], rows, err);
    printf("\n");
  }
  json_decref(rows);
  return rc;
}

/* Findings that hold or are not known; those that do not hold are for machines. */
static json_t *shown_findings(const json_t *record) {
  json_t *rows = json_array(), *row;
  size_t i;
  json_array_foreach(json_object_get(record, "findings"), i, row) {
    if (strcmp(bs_get_text(row, "state"), "no") == 0) continue;
    json_t *shown = json_copy(row);
    if (strcmp(bs_get_text(row, "state"), "UNKNOWN") == 0)
      json_object_del(shown, "says"); /* it is not known */
    json_array_append_new(rows, shown);
  }
  return rows;
}

static int32_t print_readable(const json_t *record, int format, bs_error *err) {
  const json_t *all = json_object_get(record, "parts"), *counters = json_object_get(record, "counters");
  json_t *most = json_array(), *held = shown_findings(record);
  for (size_t i = 0; i < json_array_size(all) && i < SLOWEST; i++)
    json_array_append(most, json_array_get(all, i));
  print_head(record);
  int32_t rc = BS_OK;
  if (json_array_size(most) > 0)
    rc = bs_report_print(stdout, format, parts, sizeof parts / sizeof parts[0], most, err);
  if (json_array_size(all) > SLOWEST)
    printf("and %zu more parts (-o json)\n", json_array_size(all) - SLOWEST);
  if (json_array_size(most) > 0) printf("\n");
  if (rc == BS_OK) rc = print_kernels(record, format, err);
  if (rc == BS_OK && json_array_size(held) > 0)
    rc = bs_report_print(stdout, format, findings, sizeof findings / sizeof findings[0], held, err);
  else if (rc == BS_OK)
    printf("no rule holds\n");
  if (json_object_get(counters, "reason") != NULL)
    bs_print(stdout, "\ncounters are UNKNOWN: %s\n", bs_get_text(counters, "reason"));
  json_decref(most);
  json_decref(held);
  return rc;
}

static void print_json(const json_t *record, size_t at, size_t all) {
  if (all > 1) printf("%s", at == 0 ? "[\n" : ",\n");
  json_dumpf(record, stdout, bs_report_json(stdout) | JSON_INDENT(2));
  printf("%s", all > 1 && at + 1 == all ? "\n]\n" : all > 1 ? "" : "\n");
}

int32_t profile_print(const args *a, const json_t *record, size_t at, size_t all, bs_error *err) {
  int format;
  const int32_t rc = bsrun_format(a, &format, err);
  if (rc != BS_OK) return rc;
  if (format == BS_FORMAT_CSV)
    return bs_report_print(stdout, format, parts, sizeof parts / sizeof parts[0],
                           json_object_get(record, "parts"), err);
  if (format == BS_FORMAT_JSON) {
    print_json(record, at, all);
  } else if (format == BS_FORMAT_JSONL) {
    json_dumpf(record, stdout, bs_report_json(stdout) | JSON_COMPACT);
    printf("\n");
  } else {
    if (at > 0) printf("\n");
    return print_readable(record, format, err);
  }
  return BS_OK;
}

/* ---- keeping ------------------------------------------------------------------------------------ */

static void folder_name(const char *name, char out[65]) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
  snprintf(out, 65, "%.64s", name);
  for (char *c = out; *c != '\0'; c++)
    if (strchr(plain, *c) == NULL) *c = '_';
  if (out[0] == '\0') snprintf(out, 65, "profile");
}

static int32_t keep(const args *a, const json_t *record, const profile_kept *kept, char **out_folder,
                    bs_error *err) {
  const char *out_dir = args_value(a, "out");
  char name[65], *command = bsrun_command_line();
  bs_grades grades;
  json_t *records =
      json_pack("[{s:O,s:O,s:O}]", "profile", record, "call_s", json_object_get(record, "call_s"), "subject",
                json_object_get(json_object_get(record, "subject"), "name"));
  folder_name(kept->name, name);
  bsrun_grades(1, &grades);
  const bs_keep_request q = {.context = kept->context,
                             .out_dir = out_dir != NULL ? out_dir : "results/raw",
                             .run_id = args_value(a, "run-id"),
                             .phase = kept->phase,
                             .method = name,
                             .command = command,
                             .config = kept->config,
                             .grades = &grades,
                             .status = "ok",
                             .opened = bsrun_log_begin,
                             .closed = bsrun_log_end};
  const int32_t rc = records != NULL
                         ? bs_keep(&q, records, out_folder, err)
                         : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a record");
  json_decref(records);
  bs_grades_close(&grades);
  free(command);
  return rc;
}

int32_t profile_finish(const args *a, json_t *record, const profile_kept *kept, bs_error *err) {
  const char *rules = args_value(a, "rules");
  char *folder = NULL;
  int format;
  const int stopped = bs_stop_asked() != 0;
  if (stopped)
    bsrun_interruptible(
        "what was timed until then is above, and is not kept; the same command profiles again");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK)
    rc = bs_profile_judge(record, rules != NULL ? rules : args_has(a, "ncu") ? "ncu" : "cpu", err);
  if (rc == BS_OK && bsrun_keeps(a) && !stopped) rc = keep(a, record, kept, &folder, err);
  if (rc == BS_OK) bsrun_warn_load(json_object_get(record, "conditions"));
  if (rc == BS_OK) rc = profile_print(a, record, 0, 1, err);
  if (rc == BS_OK && folder != NULL && (format == BS_FORMAT_TABLE || format == BS_FORMAT_MD))
    bs_print(stdout, "\n%srun: %s\n", format == BS_FORMAT_MD ? "- " : "", folder);
  free(folder);
  return rc;
}
