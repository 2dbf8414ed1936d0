/* SPDX-License-Identifier: MIT
 * sim_validate.c - `bsrun sim validate`: measured times of ops, and those that the inside of a device gives.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/model.h"
#include "core/base/error.h"
#include "core/base/out_file.h"
#include "core/base/text.h"
#include "lab/config/compose.h"
#include "lab/sim/validate.h"

static const args_option options[] = {
    {OPT_WITH, NULL, 0},
    {OPT_WITH_DEVICE, NULL, 0},
    {OPT_WITH_NAME, NULL, 0},
    {OPT_TO, "the device with the fitted constants (--device FILE)", 0},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"op", "OP", 0, 0},
    {"measured_us", "MEASURED us", BS_FIELD_RIGHT, 6},
    {"simulated_us", "SIMULATED us", BS_FIELD_RIGHT, 6},
    {"error_percent", "ERROR %", BS_FIELD_RIGHT, 3},
    {"roofline_us", "ROOFLINE us", BS_FIELD_RIGHT, 6},
    {"roofline_percent", "ITS ERROR %", BS_FIELD_RIGHT, 3},
    {"busiest", "BUSIEST", 0, 0},
    {"note", "NOTE", 0, 0},
    {"rows", "ROWS", BS_FIELD_WIDE, 0},
    {"knobs", "KNOBS", BS_FIELD_WIDE, 0},
};

static const bs_field class_fields[] = {
    {"op", "OP, NOT FITTED", 0, 0},
    {"rows", "ROWS", BS_FIELD_RIGHT, 0},
    {"mean_percent", "MEAN |e| %", BS_FIELD_RIGHT, 3},
    {"bias_percent", "BIAS %", BS_FIELD_RIGHT, 3},
    {"worst_percent", "WORST %", BS_FIELD_RIGHT, 3},
    {"roofline_mean_percent", "ROOFLINE'S MEAN %", BS_FIELD_RIGHT, 3},
    {"roofline_bias_percent", "BIAS %", BS_FIELD_RIGHT, 3},
    {"roofline_worst_percent", "WORST %", BS_FIELD_RIGHT, 3},
};

static json_t *row_of(const bs_validate_rows *rows, uint32_t i) {
  const bs_validate_row *r = &rows->row[i];
  json_t *row = json_pack("{s:s, s:f}", "op", r->op, "measured_us", 1e6 * r->measured_s);
  if (!r->has_program) {
    json_object_set_new(row, "note", json_string(r->why_not));
    return row;
  }
  json_object_set_new(row, "rows",
                      json_string(!r->in_fit                      ? "not fitted"
                                  : bs_validate_held_out(rows, i) ? "held out"
                                                                  : "fitted"));
  json_object_set_new(row, "simulated_us", json_real(1e6 * r->simulated_s));
  json_object_set_new(row, "error_percent", json_real(100 * (r->simulated_s / r->measured_s - 1)));
  json_object_set_new(row, "roofline_us", json_real(1e6 * r->roofline_s));
  json_object_set_new(row, "roofline_percent", json_real(100 * (r->roofline_s / r->measured_s - 1)));
  json_object_set_new(row, "busiest", json_string(r->busiest));
  json_object_set_new(row, "note", json_string(r->assumed ? "assumed" : r->in_fit ? "" : "not fitted"));
  json_object_set_new(row, "knobs", json_string(r->knobs));
  return row;
}

/* A constant that no row informs is null. */
static json_t *constant_json(const bs_validation *v, uint32_t which, double value) {
  return (v->fitted & which) != 0 ? json_real(value) : json_null();
}

static json_t *error_json(const bs_validate_error *e) {
  return json_pack("{s:I, s:f, s:f, s:f}", "rows", (json_int_t)e->rows, "mean_percent", 100 * e->mean,
                   "bias_percent", 100 * e->bias, "worst_percent", 100 * e->worst);
}

static json_t *class_json(const bs_validate_class *c) {
  return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "op", c->op, "rows",
                   (json_int_t)c->inside.rows, "mean_percent", 100 * c->inside.mean, "bias_percent",
                   100 * c->inside.bias, "worst_percent", 100 * c->inside.worst, "roofline_mean_percent",
                   100 * c->roofline.mean, "roofline_bias_percent", 100 * c->roofline.bias,
                   "roofline_worst_percent", 100 * c->roofline.worst);
}

static json_t *classes_json(const bs_validation *v) {
  json_t *all = json_array();
  for (uint32_t i = 0; i < v->n_classes; i++) json_array_append_new(all, class_json(&v->classes[i]));
  return all;
}

static int32_t print_json(const sim_device *d, const bs_validation *v, json_t *rows, bs_error *err) {
  const bs_device_constants *c = &v->constants;
  json_t *all =
      json_pack("{s:s, s:s, s:{s:o, s:o, s:o}, s:o, s:o, s:I, s:o, s:O}", "device", d->name, "label",
                d->label, "constants", "launch_us", constant_json(v, BS_VALIDATE_LAUNCH, 1e6 * c->launch_s),
                "units", constant_json(v, BS_VALIDATE_UNITS, c->units), "memory",
                constant_json(v, BS_VALIDATE_MEMORY, c->memory), "inside", error_json(&v->inside), "roofline",
                error_json(&v->roofline), "repeated", (json_int_t)v->repeated, "classes", classes_json(v),
                "rows", rows);
  const int32_t rc = model_print_json(all, err);
  json_decref(all);
  return rc;
}

static const char *constant_text(const bs_validation *v, uint32_t which, char out[32]) {
  const bs_device_constants *c = &v->constants;
  if ((v->fitted & which) == 0)
    snprintf(out, 32, "not fitted");
  else if (which == BS_VALIDATE_LAUNCH)
    snprintf(out, 32, "%.1f us", 1e6 * c->launch_s);
  else
    snprintf(out, 32, "%.3f", which == BS_VALIDATE_UNITS ? c->units : c->memory);
  return out;
}

static void print_head(const sim_device *d, const bs_validation *v, const bs_validate_rows *rows) {
  const uint32_t fitted = rows->n_in_fit - v->inside.rows;
  char launch[32], units[32], memory[32];
  if (fitted == 0) {
    bs_print(stdout, "device %s (%s): its own constants, for no row is fitted\n\n", d->name, d->label);
    return;
  }
  bs_print(stdout, "device %s (%s): launch %s; shares of the rates: units %s, memory %s; fitted to %u rows",
           d->name, d->label, constant_text(v, BS_VALIDATE_LAUNCH, launch),
           constant_text(v, BS_VALIDATE_UNITS, units), constant_text(v, BS_VALIDATE_MEMORY, memory), fitted);
  if (v->repeated > 0) bs_print(stdout, "; %u held-out rows have the op of a fitted one", v->repeated);
  bs_print(stdout, "\n");
  if (v->fitted != BS_VALIDATE_ALL)
    bs_print(stdout, "no row informs what is not fitted: the device's own value counts\n");
  bs_print(stdout, "the %u rows that the fit has not seen:\n\n", rows->n - fitted);
}

static void print_error(const char *what, const bs_validate_error *e) {
  bs_print(stdout, "%s: mean |e| %.1f %%, bias %+.1f %%, worst %+.1f %%\n", what, 100 * e->mean,
           100 * e->bias, 100 * e->worst);
}

/* Prints the errors of the products, and a table of each op where there are others. */
static int32_t print_errors(const bs_validation *v, bs_error *err) {
  if (v->inside.rows > 0) {
    print_error("inside of the device", &v->inside);
    print_error("roofline, same constants", &v->roofline);
  }
  if (v->n_classes == 1 && v->inside.rows > 0) return BS_OK;
  json_t *rows = classes_json(v);
  if (v->inside.rows > 0) bs_print(stdout, "\n");
  const int32_t rc = bs_report_print(stdout, BS_FORMAT_TABLE, class_fields,
                                     sizeof class_fields / sizeof class_fields[0], rows, err);
  json_decref(rows);
  return rc;
}

static int32_t print(const args *a, const sim_device *d, const bs_validation *v, const bs_validate_rows *rows,
                     bs_error *err) {
  int format = 0;
  json_t *shown = json_array(), *all = json_array();
  int32_t rc = bsrun_format(a, &format, err);
  const int table = format == BS_FORMAT_TABLE;
  for (uint32_t i = 0; i < rows->n; i++) {
    json_t *row = row_of(rows, i);
    if (!rows->row[i].in_fit || bs_validate_held_out(rows, i)) json_array_append(shown, row);
    json_array_append_new(all, row);
  }
  if (rc == BS_OK && format == BS_FORMAT_JSON) {
    rc = print_json(d, v, all, err);
  } else if (rc == BS_OK) {
    if (table) print_head(d, v, rows);
    rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], table ? shown : all, err);
    if (rc == BS_OK && table) {
      bs_print(stdout, "\n");
      rc = print_errors(v, err);
    }
  }
  json_decref(shown);
  json_decref(all);
  return rc;
}

static int32_t name_of(const args *a, const sim_device *d, char *out, size_t size, bs_error *err) {
  const char *name = args_value(a, "name");
  const int n = snprintf(out, size, "%s%s", name != NULL ? name : d->name, name != NULL ? "" : "-fitted");
  if (n > 0 && (size_t)n < size && out[0] >= 'a' && out[0] <= 'z' &&
      out[strspn(out, "abcdefghijklmnopqrstuvwxyz0123456789-_")] == '\0')
    return BS_OK;
  return bs_error_set(err, BS_USAGE, "BS-USE-CHOICE",
                      "--with name: '%.60s' is no name of at most %zu of a-z 0-9 - _, the first a letter",
                      out, size - 1);
}

/* A launch of a second, or a share at a limit of the fit, is of other units, rows or another device. */
static int32_t check_constants(const bs_validation *v, bs_error *err) {
  const bs_device_constants *c = &v->constants;
  if (v->inside.rows == 0) {
    bs_error_set(err, BS_INPUT, "BS-VALIDATE-FIT", "no row is fitted: nothing is written");
    bs_error_hint(err, "give products without a launch_s, at least %d", BS_VALIDATE_LEAST);
    return BS_INPUT;
  }
  const double least = fmin(c->units, c->memory), most = fmax(c->units, c->memory);
  if (c->launch_s <= 1 && least > BS_VALIDATE_SHARE_LEAST && most < BS_VALIDATE_SHARE_MOST) return BS_OK;
  bs_error_set(
      err, BS_INPUT, "BS-VALIDATE-FIT",
      "a launch of %.3g s, units at %.3f and memory at %.3f of their rates are no device: nothing is "
      "written",
      c->launch_s, c->units, c->memory);
  bs_error_hint(err, "times are in seconds; without --to the rows are shown");
  return BS_INPUT;
}

/* A word of the command line in a comment: a line break would end the comment. */
static void put_word(bs_text *out, const char *word) {
  bs_text_append(out, " ", 1);
  for (; *word != '\0'; word++)
    bs_text_append(out, (unsigned char)*word < 0x20 || *word == 0x7f ? "?" : word, 1);
}

static int32_t write_device(const args *a, const bs_device_file *file, const bs_validation *v,
                            bs_error *err) {
  const char *path = args_value(a, "to");
  char name[sizeof file->device.name];
  bs_text text = {0};
  int32_t rc = check_constants(v, err);
  if (rc == BS_OK) rc = name_of(a, &file->device, name, sizeof name, err);
  if (rc != BS_OK) return rc;
  bs_text_printf(&text, "# Made by `bsrun sim validate");
  for (size_t i = 0; i < a->n_words; i++) put_word(&text, a->words[i]);
  bs_text_printf(&text, " --device");
  put_word(&text, args_value(a, "device"));
  bs_text_printf(&text,
                 "`. Constants were fitted to measured times%s%s%s.\n"
                 "# On %u rows that the fit had not seen: mean |e| %.1f %%, bias %+.1f %%, worst %+.1f %%;\n"
                 "# a roofline with the same constants: %.1f, %+.1f, %+.1f %%.\n",
                 v->fitted & BS_VALIDATE_LAUNCH ? "" : "; launch: not fitted",
                 v->fitted & BS_VALIDATE_UNITS ? "" : "; units: not fitted",
                 v->fitted & BS_VALIDATE_MEMORY ? "" : "; memory: not fitted", v->inside.rows,
                 100 * v->inside.mean, 100 * v->inside.bias, 100 * v->inside.worst, 100 * v->roofline.mean,
                 100 * v->roofline.bias, 100 * v->roofline.worst);
  if (v->repeated > 0) bs_text_printf(&text, "# %u of them have the op of a fitted row.\n", v->repeated);
  bs_device_calibrated(file, name, &v->constants, &text);
  const int why = text.failed ? ENOMEM : bs_out_text(path, text.data, text.size);
  bs_text_free(&text);
  if (why != 0)
    return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "%s cannot be written: %s", path, strerror(why));
  if (!bs_out_is_stdout(path))
    bs_print(stderr, "bsrun: note: wrote %s; use it with --device %s\n", path, path);
  return BS_OK;
}

/* Shares above 1 are no efficiency. */
static void tell_beyond(const args *a, const bs_validation *v) {
  char text[200], units[32], memory[32];
  if (v->constants.units <= 1 && v->constants.memory <= 1) return;
  snprintf(
      text, sizeof text,
      "shares of the rates: units %s, memory %s: above 1 another figure of the device, or its tiles, are "
      "wrong",
      constant_text(v, BS_VALIDATE_UNITS, units), constant_text(v, BS_VALIDATE_MEMORY, memory));
  bsrun_note(args_has(a, "quiet"), text);
}

static int32_t run(const args *a, bs_error *err) {
  bs_device_file file = {0};
  bs_validation v = {0};
  bs_validate_rows *rows = calloc(1, sizeof *rows);
  char *dir = NULL;
  int32_t rc = rows != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for rows");
  if (rc == BS_OK && !args_has(a, "device")) {
    rc = bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--device is missing");
    bs_error_hint(err, "bsrun sim validate docs/data/llmcompass-a100-gemm.csv --device a100-sxm");
  }
  for (size_t i = 0; rc == BS_OK && i < a->n_words; i++) rc = bs_validate_read(a->words[i], rows, err);
  if (rc == BS_OK) rc = bs_configs_dir(&dir, err);
  if (rc == BS_OK) rc = bs_device_open(dir, args_value(a, "device"), &file, err);
  if (rc == BS_OK) rc = bs_validate(&file, rows, &v, err);
  if (rc == BS_OK && args_has(a, "to")) rc = write_device(a, &file, &v, err);
  if (rc == BS_OK) rc = print(a, &file.device, &v, rows, err);
  if (rc == BS_OK) tell_beyond(a, &v);
  bs_device_close(&file);
  free(dir);
  free(rows);
  return rc;
}

const bsrun_verb sim_validate_verb = {
    .name = "validate",
    .words = "ROWS.csv... --device D [--to FILE]",
    .summary = "hold the inside of a device to measured times of ops",
    .about =
        "ROWS has a head, op,seconds, and a line for each measured op. Three constants are fitted to\n"
        "every second product: the launch, and the shares of their rates that units and memories\n"
        "reach. The errors are those of the other rows, of the device and of a roofline with the same\n"
        "constants. With the head op,seconds,launch_s each row has its own launch, and is not fitted.\n"
        "A row whose time an assumed figure of the device changes says so. A row that the device cannot\n"
        "hold says why and does not count. --to writes a calibrated device; with '-' the table goes to\n"
        "stderr.\n",
    .examples =
        "  bsrun sim validate docs/data/llmcompass-a100-{gemm,maps}.csv --device a100-sxm\n"
        "  bsrun sim validate rows.csv --device a100-sxm --to mine.yaml\n"
        "  bsrun sim explain --inside 'matmul n4096k4096b4096:f16' --device ./mine.yaml\n",
    .options = options,
    .run = run,
    .min_words = 1,
    .max_words = 16,
    .takes = ":file",
};
