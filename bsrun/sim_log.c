/* SPDX-License-Identifier: MIT
 * sim_log.c - `bsrun sim log`, `sim replay` and `sim retime`: the op log of one op on a device, its data and
 * hazards, and its times on another device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/sim_inside.h"
#include "core/base/error.h"
#include "lab/config/compose.h"
#include "lab/config/device_file.h"
#include "lab/json.h"
#include "lab/sim/replay.h"

static int32_t open_device(const char *word, bs_device_file *out, bs_error *err) {
  char *dir = NULL;
  int32_t rc = bs_configs_dir(&dir, err);
  if (rc == BS_OK) rc = bs_device_open(dir, word, out, err);
  free(dir);
  return rc;
}

/* ---- log --------------------------------------------------------------------------------------- */

static const args_option log_options[] = {
    {OPT_WITH, NULL, 0},
    {OPT_WITH_DEVICE, NULL, 0},
    {OPT_KNOB, "of the program: tm, tn, tk, stages, group, accumulators, grain, layout", 0},
    {OPT_TO, "the log", 0},
    ARGS_HELP,
};

static int32_t must_have(const args *a, const char *option, bs_error *err) {
  if (args_has(a, option)) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s is missing", option);
  bs_error_hint(err, "bsrun sim log 'matmul n256k256b256:bf16' --device cube-pe --to product.log");
  return BS_USAGE;
}

static int32_t run_log(const args *a, bs_error *err) {
  bs_device_file file = {0};
  bs_inside_ask ask = {0};
  bs_inside_answer answer = {.op = ""};
  sim_oplog log = {.op = ""};
  int32_t rc = must_have(a, "device", err);
  if (rc == BS_OK) rc = must_have(a, "to", err);
  if (rc == BS_OK) rc = sim_inside_ask(a, a->words[0], &ask, err);
  if (rc == BS_OK) rc = open_device(args_value(a, "device"), &file, err);
  if (rc == BS_OK) rc = bs_inside_open(&file.device, &ask, &answer, err);
  bs_device_place_error(&file, rc, err);
  if (rc == BS_OK) rc = bs_oplog_make(&answer, &log, err);
  if (rc == BS_OK) rc = sim_oplog_write(&log, args_value(a, "to"), err);
  if (rc == BS_OK) {
    char text[512];
    snprintf(text, sizeof text, "simulated, not measured: %s on device %s (%s), %s: %llu jobs, %.6f us",
             answer.op, file.device.name, file.device.label, answer.knobs, (unsigned long long)log.n,
             (double)answer.result.end * 1e-6);
    bsrun_note(0, text);
  }
  sim_oplog_free(&log);
  bs_inside_close(&answer);
  bs_device_close(&file);
  return rc;
}

const bsrun_verb sim_log_verb = {
    .name = "log",
    .words = "OP --device D --to FILE [options]",
    .summary = "what each job of a simulated program read and wrote, and when",
    .about =
        "A line is a job of the fastest tile program of the op on the device, in the order of their\n"
        "ends: its begin and end in ps, its lane and number there, and the bytes that it reads and writes.\n"
        "The log has no values: `bsrun sim replay` runs the data, `bsrun sim retime` finds other times.\n",
    .examples =
        "  bsrun sim log 'matmul n256k256b256:bf16' --device cube-pe --to product.log\n"
        "  bsrun sim log 'matmul n256k256b256:f32' --device cube-pe --knob 'tm=64;tn=64;tk=32' --to -\n",
    .options = log_options,
    .run = run_log,
    .min_words = 1,
    .max_words = 1,
};

/* ---- what replay and retime share -------------------------------------------------------------- */

typedef struct opened {
  sim_oplog log;
  bs_device_file file;
  bs_oplog_plan plan;
} opened;

/* A log that was cut has fewer jobs than its program. */
static int32_t check_complete(const args *a, const opened *o, bs_error *err) {
  const uint64_t jobs = sim_product_jobs(&o->plan.program);
  if (o->log.n == jobs) return BS_OK;
  bs_error_set(err, BS_INPUT, "BS-OPLOG-JOBS", "the log has %llu jobs, %s has %llu",
               (unsigned long long)o->log.n, o->log.op, (unsigned long long)jobs);
  bs_error_where(err, "%s", a->words[0]);
  bs_error_hint(err, "it was cut or changed: make it again by `bsrun sim log`");
  return BS_INPUT;
}

/* The device is --device, or the one of the log. */
static int32_t open_log(const args *a, opened *o, bs_error *err) {
  memset(o, 0, sizeof *o);
  int32_t rc = sim_oplog_read(a->words[0], &o->log, err);
  if (rc != BS_OK) return rc;
  const int given = args_has(a, "device");
  rc = open_device(given ? args_value(a, "device") : o->log.device, &o->file, err);
  if (rc != BS_OK && !given)
    bs_error_hint(err, "%s is the log's device: --device FILE names its file", o->log.device);
  if (rc == BS_OK && !given && o->file.device.hash != o->log.hash) {
    char text[200];
    snprintf(text, sizeof text, "the log is of another device named %.47s; --device FILE names its file",
             o->log.device);
    bsrun_note(0, text);
  }
  if (rc == BS_OK) rc = bs_oplog_plan_open(&o->log, &o->file.device, &o->plan, err);
  return bs_device_place_error(&o->file, rc, err);
}

static void close_log(opened *o) {
  bs_oplog_plan_close(&o->plan);
  bs_device_close(&o->file);
  sim_oplog_free(&o->log);
}

static int is_same_device(const opened *o) {
  return o->file.device.hash == o->log.hash;
}

static int32_t print(const args *a, const bs_field *fields, size_t n, const json_t *rows, bs_error *err) {
  int format = 0;
  const int32_t rc = bsrun_format(a, &format, err);
  return rc == BS_OK ? bs_report_print(stdout, format, fields, n, rows, err) : rc;
}

static void print_head(const args *a, const opened *o) {
  const char *output = args_value(a, "output");
  if (output != NULL && strcmp(output, "table") != 0) return;
  bs_print(stdout, "simulated, not measured: log of %s, %s, from device %s: %llu jobs on %u lanes\n\n",
           o->log.op, o->log.knobs, o->log.device, (unsigned long long)o->log.n, o->log.n_lanes);
}

/* ---- replay ------------------------------------------------------------------------------------ */

static const args_option replay_options[] = {
    {OPT_WITH, NULL, 0},
    {OPT_WITH_DEVICE, "whose rates are drawn; default: that of the log", 0},
    {OPT_SEED, "of the numbers and of the drawn rates; default: 1", 0},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field replay_fields[] = {
    {"check", "CHECK", 0, 0},
    {"found", "FOUND", BS_FIELD_RIGHT, 8},
    {"limit", "LIMIT", BS_FIELD_RIGHT, 8},
    {"ok", "OK", 0, 0},
    {"of", "OF", 0, 0},
};

static void add_row(json_t *rows, const char *check, double found, double limit, const char *of) {
  json_array_append_new(rows, json_pack("{s:s, s:f, s:f, s:s, s:s}", "check", check, "found", found, "limit",
                                        limit, "ok", found <= limit ? "yes" : "no", "of", of));
}

/* r NULL: the data were not run. */
static json_t *replay_rows(const bs_oplog_hazards *h, const bs_oplog_replayed *r) {
  json_t *rows = json_array();
  char of[128];
  for (uint32_t k = 1; k < SIM_HAZARD_KINDS; k++) {
    char check[16];
    snprintf(check, sizeof check, "H%u", k);
    add_row(rows, check, (double)h->logged.count[k], 0, sim_hazard_text(k));
  }
  snprintf(of, sizeof of, "all of these on %d machines with rates times 2^-1 to 2^1, seed %llu",
           SIM_RETIME_DRAWN, (unsigned long long)h->seed);
  add_row(rows, "drawn", (double)h->drawn.total, 0, of);
  if (r == NULL) return rows;
  snprintf(of, sizeof of, "outputs of %llu with other bits than the untiled loop",
           (unsigned long long)r->values);
  add_row(rows, "untiled", (double)r->untiled, 0, of);
  add_row(rows, "ref", (double)r->ref, 0, "outputs with other bits than ref, on whole numbers");
  snprintf(of, sizeof of, "relative error on normal numbers; predicted %.4g", r->predicted);
  add_row(rows, "error", r->error, r->predicted * r->limit, of);
  return rows;
}

static int32_t judge(const json_t *rows, const bs_oplog_hazards *h, bs_error *err) {
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    if (strcmp(bs_get_text(row, "ok"), "yes") == 0) continue;
    bs_error_set(err, BS_NUMERIC, "BS-REPLAY-WRONG", "%s: %.6g, at most %.6g: %s", bs_get_text(row, "check"),
                 bs_get_number(row, "found"), bs_get_number(row, "limit"), bs_get_text(row, "of"));
    if (h->first[0] != '\0')
      bs_error_hint(err, "%s", h->first);
    else if (h->first_drawn[0] != '\0')
      bs_error_hint(err, "machine %u: %s", h->machine, h->first_drawn);
    return BS_NUMERIC;
  }
  return BS_OK;
}

static int32_t run_replay(const args *a, bs_error *err) {
  opened o;
  bs_oplog_hazards hazards = {0};
  bs_oplog_replayed replayed = {0};
  bs_context *context = NULL;
  const bs_context_options options = {.struct_size = sizeof options, .log = bsrun_log};
  bs_error why = BS_ERROR_INIT;
  int64_t seed = 1;
  json_t *rows = NULL;
  int32_t rc = open_log(a, &o, err);
  if (rc == BS_OK) rc = args_integer(a, "seed", 0, INT64_MAX, 1, &seed, err);
  if (rc == BS_OK) rc = bs_oplog_hazards_find(&o.log, &o.plan, (uint64_t)seed, &hazards, err);
  if (rc == BS_OK) rc = bs_context_open(&options, &context, err);
  if (rc == BS_OK) rc = bs_oplog_replay(context, &o.log, &o.plan, (uint64_t)seed, &replayed, &why);
  const int too_large = strcmp(why.id, "BS-REPLAY-SIZE") == 0;
  if (too_large) {
    bsrun_note(0, why.message);
    rc = BS_OK;
  } else if (why.code != BS_OK) {
    *err = why;
  }
  if (rc == BS_OK) {
    rows = replay_rows(&hazards, too_large ? NULL : &replayed);
    print_head(a, &o);
    rc = print(a, replay_fields, sizeof replay_fields / sizeof replay_fields[0], rows, err);
  }
  if (rc == BS_OK) rc = judge(rows, &hazards, err);
  json_decref(rows);
  fflush(stdout); /* a plugin that is closed may end the process */
  bsrun_close_context(context);
  close_log(&o);
  return rc;
}

const bsrun_verb sim_replay_verb = {
    .name = "replay",
    .words = "FILE [options]",
    .summary = "run the data of an op log, and find what is wrong with its order",
    .about =
        "The jobs of the log move and compute numbers: reads are taken at a job's begin, writes land at its\n"
        "end, of equal times writes come first. H1 to H5 are hazards of the log; `drawn` counts those\n"
        "of the same jobs on 8 machines with other rates, which one machine may hide by luck. Normal\n"
        "numbers are compared with one untiled loop and with f64, small whole ones with ref. Exit code 6\n"
        "says that a check fails; the hint then names the two jobs and the need that is missing.\n",
    .examples =
        "  bsrun sim replay product.log\n"
        "  bsrun sim replay product.log --seed 7 -o json\n",
    .options = replay_options,
    .run = run_replay,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};

/* ---- retime ------------------------------------------------------------------------------------ */

static const args_option retime_options[] = {
    {OPT_WITH, NULL, 0},
    {OPT_WITH_DEVICE, "default: that of the log", 0},
    {OPT_TO, "the log with the new times", 0},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field retime_fields[] = {
    {"device", "DEVICE", 0, 0},
    {"us", "SIMULATED us", BS_FIELD_RIGHT, 9},
    {"logged_us", "IN THE LOG us", BS_FIELD_RIGHT, 9},
    {"jobs", "JOBS", BS_FIELD_RIGHT, 0},
    {"equal", "EQUAL", 0, 0},
    {"hazards", "HAZARDS", BS_FIELD_RIGHT, 0},
};

static double ends_us(const sim_oplog *log) {
  return log->n > 0 ? (double)log->jobs[log->n - 1].end * 1e-6 : 0;
}

/* On the same device each time must be the same. */
static int32_t check_equal(const opened *o, int equal, uint64_t job, bs_error *err) {
  if (equal || !is_same_device(o)) return BS_OK;
  const sim_logged *j = &o->log.jobs[job];
  bs_error_set(err, BS_NUMERIC, "BS-RETIME-EQUAL", "lane %s, job %u has another time on the log's own device",
               o->log.lanes[j->lane], j->job);
  bs_error_hint(err, "the log was changed: make it again by `bsrun sim log`");
  return BS_NUMERIC;
}

static int32_t run_retime(const args *a, bs_error *err) {
  opened o;
  sim_oplog now = {.op = ""};
  sim_hazards hazards = {0};
  uint64_t job = 0;
  int equal = 0;
  int32_t rc = open_log(a, &o, err);
  if (rc == BS_OK) rc = check_complete(a, &o, err);
  if (rc == BS_OK) rc = sim_retime(&o.log, &o.plan.program, &o.plan.layout, &now, err);
  if (rc == BS_OK) rc = sim_hazards_find(&now, &hazards, err);
  if (rc == BS_OK) {
    equal = sim_retime_equal(&o.log, &now, &job);
    json_t *rows = json_pack("[{s:s, s:f, s:f, s:I, s:s, s:I}]", "device", o.file.device.name, "us",
                             ends_us(&now), "logged_us", ends_us(&o.log), "jobs", (json_int_t)now.n, "equal",
                             equal ? "yes" : "no", "hazards", (json_int_t)hazards.total);
    print_head(a, &o);
    rc = print(a, retime_fields, sizeof retime_fields / sizeof retime_fields[0], rows, err);
    json_decref(rows);
  }
  if (rc == BS_OK && args_has(a, "to")) rc = sim_oplog_write(&now, args_value(a, "to"), err);
  if (rc == BS_OK) rc = check_equal(&o, equal, job, err);
  sim_oplog_free(&now);
  close_log(&o);
  return rc;
}

const bsrun_verb sim_retime_verb = {
    .name = "retime",
    .words = "FILE [--device D] [options]",
    .summary = "the jobs of an op log on another device",
    .about =
        "Each job gets the device's way between the same spaces, and keeps its needs; lanes are those of "
        "the\n"
        "same names, or in the log's order. On the log's own device each time must be the same (exit code "
        "6).\n",
    .examples =
        "  bsrun sim retime product.log\n"
        "  bsrun sim retime product.log --device ./mine.yaml --to mine.log\n",
    .options = retime_options,
    .run = run_retime,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
