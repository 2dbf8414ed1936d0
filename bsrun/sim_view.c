/* SPDX-License-Identifier: MIT
 * sim_view.c - `bsrun sim view`: one or two runs of an op inside of a device as a page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/sim_inside.h"
#include "core/base/error.h"
#include "core/base/out_file.h"
#include "lab/config/compose.h"
#include "lab/config/device_file.h"
#include "lab/json.h"
#include "lab/report/model.h"
#include "lab/sim/view.h"

static const args_option options[] = {
    {OPT_WITH, NULL, 0},
    {OPT_WITH_DEVICE, NULL, 0},
    {OPT_BESIDE, "a device, knobs as tm=128;stages=2, or both of them: the second run of the page", 0},
    {OPT_KNOB, "of the inside: tm, tn, tk, stages, group, accumulators, grain, layout", 0},
    {OPT_ACTIVATION, "default: none", 0},
    {OPT_BIAS, "default: off", 0},
    {OPT_TO, "the page", 0},
    {OPT_OUTPUT, "FILE.html is the same as --to FILE.html", 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

/* One run, its device and its ask. */
typedef struct run_of {
  bs_device_file file;
  bs_inside_answer answer;
  bs_inside_ask ask;
  const char *device;
  char op[160], knobs[160]; /* of a file of rows */
  json_t *rows;             /* of a file */
  int is_open;              /* the answer is that of a run */
} run_of;

typedef struct request {
  const args *a;
  const char *path; /* of the page */
  char *configs;
  run_of runs[2];
  uint32_t n;
} request;

/* ---- options ----------------------------------------------------------------------------------- */

static int32_t bad_use(const char *what, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "%s", what);
  bs_error_hint(err, "bsrun sim view 'matmul n1024k1024b1024:bf16' --device cube-pe --to page.html");
  return BS_USAGE;
}

static int is_page(const char *name) {
  const size_t n = strlen(name);
  return n > 5 && strcmp(name + n - 5, ".html") == 0;
}

static int32_t read_path(request *q, bs_error *err) {
  const char *to = args_value(q->a, "to"), *output = args_value(q->a, "output");
  if (to == NULL && output == NULL) return bad_use("--to FILE.html is missing", err);
  if (to != NULL && output != NULL) return bad_use("--to and -o both name a page", err);
  if (output != NULL && !is_page(output)) {
    bs_error_set(err, BS_USAGE, "BS-USE-FORMAT", "-o %.60s: a page is FILE.html", output);
    bs_error_hint(err, "--to FILE takes any name; bsrun sim explain --inside OP --device D has -o json");
    return BS_USAGE;
  }
  q->path = to != NULL ? to : output;
  return BS_OK;
}

/* A word with a '=' is knobs. They stand in the place of all --knob. */
static int32_t read_beside(request *q, bs_error *err) {
  run_of *second = &q->runs[1];
  const char **texts = NULL;
  size_t n = 0;
  int devices = 0, knobs = 0;
  int32_t rc = args_values(q->a, "beside", &texts, &n, err);
  *second = (run_of){.device = q->runs[0].device, .ask = q->runs[0].ask};
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    if (strchr(texts[i], '=') == NULL) {
      second->device = texts[i];
      if (devices++ > 0) rc = bad_use("--beside names two devices", err);
      continue;
    }
    if (knobs++ == 0) second->ask.knobs = (bs_inside_knobs){.where = ""};
    rc = bs_inside_knobs_read(texts[i], &second->ask.knobs, err);
  }
  q->n = n > 0 ? 2 : 1;
  free(texts);
  return rc;
}

static int32_t read_op(request *q, bs_error *err) {
  if (q->a->n_words > 1) return bad_use("--device has one op", err);
  q->runs[0].device = args_value(q->a, "device");
  const int32_t rc = sim_inside_ask(q->a, q->a->words[0], &q->runs[0].ask, err);
  return rc == BS_OK ? read_beside(q, err) : rc;
}

/* ---- runs -------------------------------------------------------------------------------------- */

static int32_t simulate(const request *q, run_of *r, bs_error *err) {
  int32_t rc = bs_device_open(q->configs, r->device, &r->file, err);
  if (rc == BS_OK) {
    rc = bs_inside_open(&r->file.device, &r->ask, &r->answer, err);
    r->is_open = 1;
  }
  return bs_device_place_error(&r->file, rc, err);
}

static void forget(run_of *r) {
  if (r->is_open) bs_inside_close(&r->answer);
  bs_device_close(&r->file);
  r->is_open = 0;
  r->file = (bs_device_file){0};
}

/* Simulates the run of the rows again, for its boxes and lanes, on a device of configs/devices. If that takes
 * another time, the page shows the rows alone. */
static void repeat(const request *q, run_of *r) {
  const json_t *total = json_array_get(r->rows, json_array_size(r->rows) - 1);
  bs_error why = BS_ERROR_INIT;
  r->device = bs_get_text(total, "device");
  snprintf(r->op, sizeof r->op, "%s", bs_get_text(total, "op"));
  snprintf(r->knobs, sizeof r->knobs, "%s", bs_get_text(total, "knobs"));
  r->ask.op = r->op;
  if (strchr(r->device, '/') != NULL || r->device[0] == '\0') return;
  int32_t rc = bs_inside_knobs_read(r->knobs, &r->ask.knobs, &why);
  if (rc == BS_OK) rc = simulate(q, r, &why);
  const size_t n = rc == BS_OK ? json_array_size(r->answer.rows) : 0;
  const double us = bs_get_number(json_array_get(r->answer.rows, n > 0 ? n - 1 : 0), "us");
  if (rc == BS_OK && us == bs_get_number(total, "us")) return;
  forget(r);
}

static int32_t open_file(request *q, uint32_t i, bs_error *err) {
  uint32_t kind = 0;
  const char *word = q->a->words[i];
  const int32_t rc = bs_view_rows_read(word, &q->runs[i].rows, err);
  if (rc == BS_OK) {
    repeat(q, &q->runs[i]);
    return BS_OK;
  }
  bs_error unused = BS_ERROR_INIT;
  return bs_inside_kind(word, &kind, &unused) == BS_OK ? bad_use("--device is missing", err) : rc;
}

static int32_t open_files(request *q, bs_error *err) {
  static const char *const without[] = {"beside", "knob", "activation", "bias"};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < sizeof without / sizeof without[0]; i++)
    if (args_has(q->a, without[i]))
      return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s needs --device and an op", without[i]);
  q->n = (uint32_t)q->a->n_words;
  for (uint32_t i = 0; rc == BS_OK && i < q->n; i++) rc = open_file(q, i, err);
  return rc;
}

static int32_t open_runs(request *q, bs_error *err) {
  int32_t rc = bs_configs_dir(&q->configs, err);
  if (rc != BS_OK) return rc;
  if (!args_has(q->a, "device")) return open_files(q, err);
  rc = read_op(q, err);
  for (uint32_t i = 0; rc == BS_OK && i < q->n; i++) rc = simulate(q, &q->runs[i], err);
  return rc;
}

/* ---- the page ---------------------------------------------------------------------------------- */

static int32_t write_page(request *q, bs_error *err) {
  char *command = bsrun_command_line();
  bs_view view = {.n = q->n, .command = command};
  bs_text text = {0};
  for (uint32_t i = 0; i < q->n; i++) {
    run_of *r = &q->runs[i];
    view.runs[i] = (bs_view_run){.rows = r->rows != NULL ? r->rows : r->answer.rows,
                                 .answer = r->is_open ? &r->answer : NULL,
                                 .device = r->device};
  }
  int32_t rc = bs_view_page(&view, &text, err);
  if (rc == BS_OK) rc = bs_report_write(q->path, &text, err);
  if (rc == BS_OK && !bs_out_is_stdout(q->path)) {
    char note[300];
    snprintf(note, sizeof note, "wrote %.200s, %zu bytes; a browser opens it", q->path, text.size);
    bsrun_note(args_has(q->a, "quiet"), note);
  }
  bs_text_free(&text);
  free(command);
  return rc;
}

/* The rows of a file whose run could not be repeated have neither boxes nor lanes. */
static void tell_rows_alone(const request *q) {
  for (uint32_t i = 0; i < q->n; i++) {
    char note[300];
    if (q->runs[i].is_open) continue;
    snprintf(note, sizeof note,
             "%.200s: its run could not be repeated to the same time; the page has its rows alone",
             q->a->words[i]);
    bsrun_note(args_has(q->a, "quiet"), note);
  }
}

static int32_t run(const args *a, bs_error *err) {
  request *q = calloc(1, sizeof *q);
  if (q == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a page");
  q->a = a;
  int32_t rc = read_path(q, err);
  if (rc == BS_OK) rc = open_runs(q, err);
  if (rc == BS_OK) rc = write_page(q, err);
  if (rc == BS_OK) tell_rows_alone(q);
  for (uint32_t i = 0; i < 2; i++) {
    forget(&q->runs[i]);
    json_decref(q->runs[i].rows);
  }
  free(q->configs);
  free(q);
  return rc;
}

const bsrun_verb sim_view_verb = {
    .name = "view",
    .words = "OP --device D [--beside D2|KNOBS] --to FILE.html\nROWS.json [ROWS.json] --to FILE.html",
    .summary = "an op inside of a device as a page: boxes, probes and lanes",
    .about =
        "The page is one file that loads nothing. It has the sentence and the table of `bsrun sim explain\n"
        "--inside`, the device as nested boxes with the share of the time in which each is busy, and the\n"
        "jobs of each lane over time. A press on a box shows its queue; a press on a second box shows the\n"
        "probe between the two. --beside adds a second run with the same time axis, and a table of\n"
        "differences. ROWS are files of `bsrun sim explain --inside OP --device D -o json`.\n",
    .examples =
        "  bsrun sim view 'matmul n1024k1024b1024:bf16' --device cube-pe --to page.html\n"
        "  bsrun sim view 'attention b1h16s512d64:bf16' --device cube-pe --beside stages=2 --to page.html\n"
        "  bsrun sim view 'matmul n1024k1024b1024:bf16' --device cube-pe --beside a100-sxm --to page.html\n"
        "  bsrun sim view one.json other.json --to page.html\n",
    .options = options,
    .run = run,
    .min_words = 1,
    .max_words = 2,
    .takes = ":file",
};
