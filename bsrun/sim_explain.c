/* SPDX-License-Identifier: MIT
 * sim_explain.c - `bsrun sim explain`: one pass in virtual time, step by step along the rank that ends last:
 * the parts of each step's time, next to its closed form. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/opening.h"
#include "bsrun/sim_inside.h"
#include "bsrun/simulated.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/json.h"
#include "lab/phase/simulated.h"

static const args_option options[] = {
    BSRUN_RUN_ROWS,
    {OPT_WITH, NULL, 0},
    {OPT_WITH_INSIDE, NULL, 0},
    {OPT_WITH_DEVICE, NULL, 0},
    {OPT_KNOB, "of the inside: tm, tn, tk, stages, group, accumulators, grain, layout", 0},
    ARGS_HELP,
};

/* The formula of a step's closed form, as docs/dev/latency-model.md has it. */
static const char *formula_of(const json_t *step) {
  static const char *const formulas[][2] = {
      {"all_reduce", "2 (P-1) (alpha + n/P beta)"},
      {"all_gather", "(P-1) (alpha + block beta)"},
      {"reduce_scatter", "(P-1) (alpha + block beta)"},
      {"all_to_all", "(P-1) alpha + bytes beta"},
      {"broadcast", "lg P (alpha + n beta)"},
      {"barrier", "lg P alpha"},
      {"exchange", ""},
      {"send", ""},
      {"recv", "alpha + n beta"},
  };
  const char *what = bs_get_text(step, "step");
  for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++)
    if (strncmp(what, formulas[i][0], strlen(formulas[i][0])) == 0) return formulas[i][1];
  return "launch + max(F/flops, Q/mem_Bps)";
}

static void set_fixed(json_t *row, const char *key, double value) {
  char text[48];
  snprintf(text, sizeof text, "%.3f", value);
  json_object_set_new(row, key, json_string(text));
}

static json_t *shown(const json_t *step) {
  static const char *const times[] = {"began",        "took",       "compute", "memory", "launch",
                                      "wire_latency", "wire_bytes", "wait",    "closed"};
  json_t *row = json_object();
  json_object_set(row, "step", json_object_get(step, "step"));
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
    if (i < 2 || bs_get_number(step, times[i]) > 0) set_fixed(row, times[i], bs_get_number(step, times[i]));
  json_object_set_new(row, "bytes", json_integer((json_int_t)bs_get_number(step, "bytes")));
  if (bs_get_number(step, "flops") > 0)
    json_object_set_new(row, "flops", json_integer((json_int_t)bs_get_number(step, "flops")));
  json_object_set_new(row, "formula", json_string(bs_get_number(step, "closed") > 0 ? formula_of(step) : ""));
  return row;
}

static const bs_field fields[] = {
    {"began", "at us", BS_FIELD_RIGHT, 0},
    {"step", "step", 0, 0},
    {"took", "us", BS_FIELD_RIGHT, 0},
    {"compute", "compute", BS_FIELD_RIGHT, 0},
    {"memory", "memory", BS_FIELD_RIGHT, 0},
    {"launch", "launch", BS_FIELD_RIGHT, 0},
    {"wire_latency", "latency", BS_FIELD_RIGHT, 0},
    {"wire_bytes", "bytes on wire", BS_FIELD_RIGHT, 0},
    {"wait", "wait", BS_FIELD_RIGHT, 0},
    {"closed", "closed form us", BS_FIELD_RIGHT, 0},
    {"bytes", "bytes", BS_FIELD_RIGHT, 0},
    {"flops", "FLOPs", BS_FIELD_RIGHT | BS_FIELD_WIDE, 0},
    {"formula", "closed form", 0, 0},
};

static void print_path(const json_t *s) {
  static const char *const terms[][2] = {
      {"compute_us", "compute"},       {"memory_us", "memory"},
      {"launch_us", "launch"},         {"wire_latency_us", "wire latency"},
      {"wire_bytes_us", "wire bytes"}, {"wait_us", "held back by buffering"}};
  const json_t *path = json_object_get(s, "path");
  printf("critical path over all ranks: %.3f us =", bs_get_number(s, "us"));
  const char *plus = " ";
  for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++) {
    if (!(bs_get_number(path, terms[i][0]) > 0)) continue;
    bs_print(stdout, "%s%s %.3f", plus, terms[i][1], bs_get_number(path, terms[i][0]));
    plus = " + ";
  }
  bs_print(stdout, "; limit: %s\n", bs_get_text(s, "limit"));
}

/* Prints how many ops the inside of the device gave a time. */
static void print_inside(const json_t *s) {
  const char *device = bs_get_text(s, "device");
  if (device[0] == '\0') return;
  bs_print(stdout, "inside of %s: %.0f ops simulated, %.0f known by then, %.0f by the roofline\n", device,
           bs_get_number(s, "inside_simulated"), bs_get_number(s, "inside_known"),
           bs_get_number(s, "ops_by_roofline"));
}

static int32_t print(const bs_experiment *e, const json_t *record, int format, bs_error *err) {
  const json_t *s = json_object_get(record, "simulated"), *steps = json_object_get(s, "steps");
  json_t *rows = json_array();
  for (size_t i = 0; i < json_array_size(steps); i++)
    json_array_append_new(rows, format == BS_FORMAT_TABLE ? shown(json_array_get(steps, i))
                                                          : json_incref(json_array_get(steps, i)));
  if (format == BS_FORMAT_TABLE) {
    bs_print(stdout, "simulated, not measured: machine %s (%s, %s), %s\n", bs_get_text(s, "machine"),
             bs_get_text(s, "label"), bs_get_text(s, "domain"), bs_get_text(s, "engine"));
    bs_print(stdout, "%s on %.0f ranks, B %.0f, N %.0f, K %.0f, %s, %s: %.3f us; rank %.0f ends last\n\n",
             e->method, bs_get_number(record, "world_size"), bs_get_number(record, "B"),
             bs_get_number(record, "N"), bs_get_number(record, "K"), bs_get_text(record, "dtype"),
             e->phase_name, bs_get_number(s, "us"), bs_get_number(s, "last_rank"));
  }
  int32_t rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
  if (rc == BS_OK && format == BS_FORMAT_TABLE) {
    printf("\n");
    print_path(s);
    print_inside(s);
  }
  json_decref(rows);
  return rc;
}

static int32_t explain(const args *a, bs_error *err) {
  bsrun_request request;
  bs_context *context = NULL;
  bs_experiment e = {0};
  bs_phase_result result = {0};
  int format = BS_FORMAT_TABLE;
  if (args_has(a, "inside") || args_has(a, "device")) return sim_inside_explain(a, err);
  int32_t rc = bsrun_request_make(a, &request, err);
  if (request.compose.phase == NULL) request.compose.phase = "phase1_forward";
  if (rc == BS_OK) rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = bsrun_request_add(&request, "plugins.sim.steps", "true", err);
  if (rc == BS_OK) rc = bsrun_open_experiment(&request, BS_LOG_WARN, args_has(a, "quiet"), &context, &e, err);
  e.trace_file = args_value(a, "trace");
  e.et_prefix = args_value(a, "et");
  if (rc == BS_OK) rc = bs_simulated_run(context, &e, NULL, NULL, &result, err);
  char traced[512];
  if (rc == BS_OK && bs_simulated_trace_text(result.record, traced, sizeof traced))
    bsrun_note(args_has(a, "quiet"), traced);
  if (rc == BS_OK) rc = print(&e, result.record, format, err);
  bs_phase_result_free(&result);
  bs_experiment_free(&e);
  bsrun_request_free(&request);
  fflush(stdout); /* a plugin that is closed may end the process */
  bsrun_close_context(context);
  return rc;
}

const bsrun_verb sim_explain_verb = {
    .name = "explain",
    .words = "[--inside OP --device D] [options]",
    .summary = "where the simulated time of a layer, or of an op, goes",
    .about =
        "The options are those of `bsrun run`. One pass is simulated (--phase time: forward, backward, "
        "train: a "
        "training\n"
        "step). Each op and collective of the rank that ends last is a row: when it began, what its time "
        "went\n"
        "into, and what its closed form says. The last line is the critical path over all ranks.\n"
        "With --inside one op runs on the parts of one device: a row is a class of parts, what it did, and "
        "the\n"
        "time if it were 10 % faster. The device's tiles are tried; the fastest is shown. --to trace=FILE "
        "has\n"
        "each lane's spans, -o svg draws them.\n",
    .examples =
        "  bsrun sim explain --plugin sim --hardware h100-dgx --method blockshock -P 64\n"
        "  bsrun sim explain --plugin sim --hardware sim-flat --method row_parallel -P 8 --phase train -o "
        "json\n"
        "  bsrun sim explain --inside 'matmul n4096k4096b4096:bf16' --device cube-pe\n",
    .options = options,
    .run = explain,
};
