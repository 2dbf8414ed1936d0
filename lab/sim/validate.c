/* SPDX-License-Identifier: MIT
 * validate.c - see validate.h. */
#include "lab/sim/validate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/sim/inside.h"
#include "lab/sim/inside_op.h"
#include "sim/choose.h"

#define LEAST_GAIN 0.01 /* a tile that can gain less is not simulated */
#define COUNTS 0.01     /* of the time: an assumed class that takes less off it does not count */

/* ---- reading ----------------------------------------------------------------------------------- */

static int32_t bad_line(const char *path, uint32_t line, const char *what, bs_error *err) {
  bs_error_set(err, BS_INPUT, "BS-VALIDATE-FILE", "%s", what);
  bs_error_where(err, "%s:%u", path, line);
  bs_error_hint(err,
                "the first line is op,seconds or op,seconds,launch_s; then lines as in: matmul "
                "n4096k4096b64:f16,0.0001");
  return BS_INPUT;
}

static const char *const heads[] = {"op,seconds", "op,seconds,launch_s"};
enum { NO_HEAD = sizeof heads / sizeof heads[0] };

/* Without the blanks around it. */
static char *trimmed(char *field) {
  static const char blanks[] = " \t";
  size_t n;
  field += strspn(field, blanks);
  for (n = strlen(field); n > 0 && strchr(blanks, field[n - 1]) != NULL; n--) field[n - 1] = '\0';
  return field;
}

/* Cuts a field off at the next comma; *inout_at NULL: there is none left. */
static char *next_field(char **inout_at) {
  char *field = *inout_at, *comma = strchr(field, ',');
  *inout_at = comma != NULL ? comma + 1 : NULL;
  if (comma != NULL) *comma = '\0';
  return trimmed(field);
}

static int is_seconds(const char *text, double *out) {
  return bs_parse_f64(text, out) && *out >= 0 && *out <= 1e4;
}

/* `head` is one of heads[]: the second has a launch in each row. */
static int32_t read_row(const char *path, int head, char *text, uint32_t line, bs_validate_rows *rows,
                        bs_error *err) {
  if (rows->n == BS_VALIDATE_MOST) return bad_line(path, line, "more than 512 rows", err);
  bs_validate_row *row = &rows->row[rows->n];
  char *at = text, *op = next_field(&at), *time = at != NULL ? next_field(&at) : NULL,
       *launch = at != NULL && head == 1 ? next_field(&at) : NULL;
  if (time == NULL || at != NULL || op[0] == '\0' || strlen(op) >= sizeof row->op ||
      (head == 1 && launch == NULL))
    return bad_line(path, line, head == 1 ? "this is not OP,SECONDS,LAUNCH" : "this is not OP,SECONDS", err);
  *row = (bs_validate_row){.path = path, .line = line, .launch_s = -1};
  memcpy(row->op, op, strlen(op) + 1);
  if (!is_seconds(time, &row->measured_s) || row->measured_s <= 0)
    return bad_line(path, line, "the time is not a number of seconds above 0", err);
  if (launch != NULL && !is_seconds(launch, &row->launch_s))
    return bad_line(path, line, "the launch is not a number of seconds", err);
  rows->n++;
  return BS_OK;
}

static int head_of(char *text) {
  char *at = text;
  int head = 0, n = 0;
  char squeezed[32] = "";
  for (; at != NULL && n < 3; n++) {
    const char *field = next_field(&at);
    const size_t used = strlen(squeezed);
    snprintf(squeezed + used, sizeof squeezed - used, "%s%s", n > 0 ? "," : "", field);
  }
  while (head < NO_HEAD && (at != NULL || strcmp(squeezed, heads[head]) != 0)) head++;
  return head;
}

/* Takes the end of the line off. NULL: it is a line; else what is wrong. */
static const char *end_line(char *text, size_t size, FILE *f) {
  size_t n = strcspn(text, "\n");
  if (text[n] == '\0' && n + 1 == size) return "the line is too long";
  if (text[n] == '\0' && !feof(f)) return "there is a byte 0 in the line";
  if (n > 0 && text[n - 1] == '\r') n--;
  text[n] = '\0';
  return strchr(text, '\r') == NULL ? NULL
                                    : "there is a carriage return in the line: lines end with LF or CRLF";
}

static int32_t read_lines(const char *path, FILE *f, bs_validate_rows *rows, bs_error *err) {
  static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8 */
  char text[512];
  uint32_t line = 0;
  int head = NO_HEAD;
  while (fgets(text, sizeof text, f) != NULL) {
    const char *wrong = end_line(text, sizeof text, f);
    char *at = text;
    if (++line == 1 && strncmp(at, mark, sizeof mark - 1) == 0) at += sizeof mark - 1;
    if (wrong != NULL) return bad_line(path, line, wrong, err);
    at = trimmed(at);
    if (at[0] == '#' || at[0] == '\0') continue;
    if (head != NO_HEAD) {
      const int32_t rc = read_row(path, head, at, line, rows, err);
      if (rc != BS_OK) return rc;
      continue;
    }
    head = head_of(at);
    if (head == NO_HEAD) return bad_line(path, line, "the head is not op,seconds", err);
  }
  if (ferror(f)) return bs_error_errno(err, BS_INPUT, "BS-VALIDATE-FILE", errno, "%s cannot be read", path);
  return BS_OK;
}

int32_t bs_validate_read(const char *path, bs_validate_rows *inout, bs_error *err) {
  FILE *f = fopen(path, "re");
  if (f == NULL) {
    bs_error_errno(err, BS_INPUT, "BS-VALIDATE-FILE", errno, "%s cannot be opened", path);
    bs_error_hint(err, "a file of lines OP,SECONDS");
    return BS_INPUT;
  }
  const int32_t rc = read_lines(path, f, inout, err);
  fclose(f);
  return rc;
}

/* ---- one row ----------------------------------------------------------------------------------- */

static double busy_of(const bs_inside_answer *a, uint32_t class) {
  const sim_layout *l = &a->layout;
  double busy = 0;
  for (uint32_t i = 0; i < l->n[class]; i++) busy += (double)l->parts[l->base[class] + i].busy;
  return busy / (double)sim_layout_units(l, class) / (double)a->result.settled;
}

static int is_memory(const sim_device *d, uint32_t class) {
  return d->classes[class].kind == SIM_MEMORY && !sim_device_is_hit(d, class);
}

static void read_busy(const bs_inside_answer *a, bs_validate_row *row) {
  const sim_device *d = a->layout.device;
  double most = 0;
  row->unit_busy = row->memory_busy = 0;
  for (uint32_t c = 0; c < d->n_classes; c++) {
    const double busy = a->layout.n[c] > 0 && d->classes[c].kind != SIM_CACHE ? busy_of(a, c) : 0;
    if (c == sim_program_unit(&a->program)) row->unit_busy = busy;
    if (is_memory(d, c)) row->memory_busy = fmax(row->memory_busy, busy);
    if (busy <= most) continue;
    most = busy;
    memcpy(row->busiest, d->classes[c].name, sizeof row->busiest);
  }
}

/* The two terms of a roofline, at the rates of the layout: FLOPs by all units, each operand's bytes once. */
static void read_roofline(const bs_inside_answer *a, bs_validate_row *row) {
  const sim_layout *l = &a->layout;
  const uint32_t unit = sim_program_unit(&a->program);
  double copied, divided;
  bs_inside_op_bytes(&a->what, &copied, &divided);
  row->units_s = row->memory_s = 0;
  for (uint32_t c = 0; c < l->device->n_classes; c++) {
    if (c != unit && !is_memory(l->device, c)) continue;
    const double of = c == unit ? sim_op_flops(&a->what) : copied + divided;
    const double s_of =
        of * ((double)l->parts[l->base[c]].q32 / 4294967296.0) / (double)sim_layout_units(l, c) * 1e-12;
    if (c == unit)
      row->units_s = s_of;
    else
      row->memory_s = fmax(row->memory_s, s_of);
  }
}

/* Does a class count whose figures are assumed? */
static int32_t read_assumed(bs_inside_answer *a, bs_validate_row *row, bs_error *err) {
  const sim_device *d = a->layout.device;
  int32_t rc = BS_OK;
  int some = 0;
  for (uint32_t c = 0; c < d->n_classes; c++) {
    some |= d->classes[c].assumed > 0;
    a->layout.speed[c] = d->classes[c].assumed ? SIM_FASTER : 0;
  }
  if (some) {
    uint64_t ps = 0;
    rc = bs_inside_again(a, &ps, err);
    row->assumed = rc == BS_OK && (double)ps < (1 - COUNTS) * (double)a->result.settled;
  }
  memset(a->layout.speed, 0, sizeof a->layout.speed);
  return rc;
}

static int32_t simulate(const sim_device *device, double fitted_launch_s, int judge, bs_validate_row *row,
                        bs_error *err) {
  const double launch_s = row->launch_s >= 0 ? row->launch_s : fitted_launch_s;
  const bs_inside_ask ask = {
      .op = row->op, .chosen = row->chosen.tm > 0 ? &row->chosen : NULL, .least_gain = LEAST_GAIN};
  bs_inside_answer answer;
  int32_t rc = bs_inside_best(device, &ask, &answer, err);
  if (rc == BS_OK) {
    row->simulated_s = launch_s + (double)answer.result.settled * 1e-12;
    row->chosen = *sim_program_knobs(&answer.program);
    memcpy(row->knobs, answer.knobs, sizeof row->knobs);
    read_busy(&answer, row);
    read_roofline(&answer, row);
    row->roofline_s = launch_s + fmax(row->units_s, row->memory_s);
    if (judge) rc = read_assumed(&answer, row, err);
  }
  bs_inside_close(&answer);
  return rc;
}

/* ---- the fit ----------------------------------------------------------------------------------- */

int bs_validate_held_out(const bs_validate_rows *rows, uint32_t i) {
  uint32_t number = 0;
  for (uint32_t k = 0; k < i; k++) number += rows->row[k].in_fit > 0;
  return rows->row[i].in_fit && number % 2 == 1;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *x, uint32_t n) {
  qsort(x, n, sizeof *x, ascending);
  return n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Rows that take less than twice the shortest, and more than twice their simulated time, tell the launch. */
static void fit_launch(const bs_validate_rows *rows, double launch_s, bs_validation *inout) {
  double left[BS_VALIDATE_MOST], shortest = HUGE_VAL;
  uint32_t n = 0;
  for (uint32_t i = 0; i < rows->n; i++)
    if (rows->row[i].in_fit && !bs_validate_held_out(rows, i))
      shortest = fmin(shortest, rows->row[i].measured_s);
  for (uint32_t i = 0; i < rows->n; i++) {
    const bs_validate_row *row = &rows->row[i];
    const double inside_s = row->simulated_s - launch_s;
    if (!row->in_fit || bs_validate_held_out(rows, i)) continue;
    if (row->measured_s < 2 * shortest && inside_s < row->measured_s / 2)
      left[n++] = row->measured_s - inside_s;
  }
  if (n == 0) return;
  inout->constants.launch_s = median(left, n);
  inout->fitted |= BS_VALIDATE_LAUNCH;
}

static double within(double x) {
  return fmin(fmax(x, BS_VALIDATE_SHARE_LEAST), BS_VALIDATE_SHARE_MOST);
}

/* By the geometric mean of simulated over measured time, of rows whose units, or whose memory, are busier. */
static void fit_share(const bs_validate_rows *rows, double launch_s, uint32_t which, bs_validation *inout) {
  bs_device_constants *c = &inout->constants;
  const int units = which == BS_VALIDATE_UNITS;
  double *share = units ? &c->units : &c->memory;
  double sum = 0;
  uint32_t n = 0;
  for (uint32_t i = 0; i < rows->n; i++) {
    const bs_validate_row *row = &rows->row[i];
    const double inside_s = row->simulated_s - launch_s, measured_s = row->measured_s - c->launch_s;
    if (!row->in_fit || bs_validate_held_out(rows, i)) continue;
    if ((row->unit_busy >= row->memory_busy) != units || measured_s < c->launch_s) continue;
    sum += log(inside_s / measured_s);
    n++;
  }
  if (n == 0) return;
  *share = within(*share * exp(sum / n));
  inout->fitted |= which;
}

/* The row of the file; of an error in the device's file that place as well, in the message. */
static void place_error(const bs_device_file *file, const bs_validate_row *row, int32_t rc, bs_error *err) {
  const size_t n = strlen(err->message);
  bs_device_place_error(file, rc, err);
  if (strncmp(err->id, "BS-DEVICE-", 10) == 0 && err->where[0] != '\0')
    snprintf(err->message + n, sizeof err->message - n, " (%s)", err->where);
  bs_error_where(err, "%s:%u", row->path, row->line);
}

static int32_t simulate_rows(const bs_device_file *file, const bs_device_constants *c, int judge,
                             bs_validate_rows *rows, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  int32_t rc = BS_OK;
  sim_device *fitted = malloc(sizeof *fitted);
  if (fitted == NULL) return bs_no_memory(err, "a device");
  *fitted = file->device;
  fitted->of_units = c->units;
  fitted->of_memory = c->memory;
  for (uint32_t i = 0; rc == BS_OK && i < rows->n; i++) {
    bs_validate_row *row = &rows->row[i];
    const int is_fitted = row->in_fit && !bs_validate_held_out(rows, i);
    if (!row->has_program || is_fitted == judge) continue;
    rc = simulate(fitted, c->launch_s, judge, row, &why);
    if (rc != BS_OK) place_error(file, row, rc, &why);
  }
  free(fitted);
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
}

/* ---- errors ------------------------------------------------------------------------------------ */

static void add_error(bs_validate_error *e, double of) {
  e->rows++;
  e->mean += fabs(of);
  e->bias += of;
  if (fabs(of) > fabs(e->worst)) e->worst = of;
}

static void divide(bs_validate_error *e) {
  if (e->rows == 0) return;
  e->mean /= e->rows;
  e->bias /= e->rows;
}

/* The class of an op is the first word of what explain calls it. Where there are too many, it is the last. */
static bs_validate_class *class_of(bs_validation *v, const bs_validate_row *row) {
  const size_t n = strcspn(row->what, " ");
  bs_validate_class *c = v->classes;
  while (c < v->classes + v->n_classes && (strncmp(c->op, row->what, n) != 0 || c->op[n] != '\0')) c++;
  if (c < v->classes + v->n_classes) return c;
  if (v->n_classes == BS_VALIDATE_CLASSES) {
    c = &v->classes[BS_VALIDATE_CLASSES - 1];
    memcpy(c->op, "others", sizeof "others");
    return c;
  }
  snprintf(c->op, sizeof c->op, "%.*s", (int)n, row->what);
  v->n_classes++;
  return c;
}

/* Is there a fitted row with the op of this one? */
static int is_repeated(const bs_validate_rows *rows, const bs_validate_row *row) {
  for (uint32_t i = 0; i < rows->n; i++) {
    const bs_validate_row *other = &rows->row[i];
    if (other->in_fit && !bs_validate_held_out(rows, i) && strcmp(other->what, row->what) == 0) return 1;
  }
  return 0;
}

/* The errors of each op, and of all held-out products. Fitted rows are left out. */
static void find_errors(const bs_validate_rows *rows, bs_validation *v) {
  for (uint32_t i = 0; i < rows->n; i++) {
    const bs_validate_row *row = &rows->row[i];
    const int held_out = bs_validate_held_out(rows, i);
    const double of = row->simulated_s / row->measured_s - 1,
                 roofline = row->roofline_s / row->measured_s - 1;
    if (!row->has_program || (row->in_fit && !held_out)) continue;
    bs_validate_class *c = class_of(v, row);
    add_error(&c->inside, of);
    add_error(&c->roofline, roofline);
    if (!held_out) continue;
    v->repeated += is_repeated(rows, row) > 0;
    add_error(&v->inside, of);
    add_error(&v->roofline, roofline);
  }
  for (uint32_t i = 0; i < v->n_classes; i++) {
    divide(&v->classes[i].inside);
    divide(&v->classes[i].roofline);
  }
  divide(&v->inside);
  divide(&v->roofline);
}

/* ------------------------------------------------------------------------------------------------ */

static const char no_program[] = "no program yet";

/* The device cannot hold the op, whatever its tiles; 0: something is wrong in the file of the device. */
static int cannot_hold(const bs_error *why) {
  return sim_left_out(why) || strcmp(why->id, "BS-INSIDE-MEMORY") == 0 ||
         strcmp(why->id, "BS-INSIDE-OP") == 0;
}

/* Whether the row's op has a program that the device can hold. BS_USAGE: something is wrong in its text. */
static int32_t find_program(const bs_device_file *file, bs_validate_row *row, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  uint32_t dtype = 0;
  sim_op op = {0};
  const int32_t read = bs_inside_op_read(row->op, 0, &op, &dtype, row->what, sizeof row->what, &why);
  if (read == BS_UNSUPPORTED) {
    memcpy(row->why_not, no_program, sizeof no_program);
    return BS_OK;
  }
  const int32_t rc = read == BS_OK ? bs_inside_fits(&file->device, row->op, &why) : read;
  if (rc != BS_OK && (read != BS_OK || !cannot_hold(&why))) {
    place_error(file, row, rc, &why);
    if (err != NULL) *err = why;
    return rc;
  }
  if (rc != BS_OK)
    snprintf(row->why_not, sizeof row->why_not, "%.*s", (int)sizeof row->why_not - 1, why.message);
  row->has_program = rc == BS_OK;
  row->in_fit = rc == BS_OK && op.kind == SIM_OP_PRODUCT && row->launch_s < 0;
  return BS_OK;
}

/* The first row that the device cannot hold; NULL: there is none. */
static const bs_validate_row *first_not_held(const bs_validate_rows *rows) {
  for (uint32_t i = 0; i < rows->n; i++)
    if (strcmp(rows->row[i].why_not, no_program) != 0 && rows->row[i].why_not[0] != '\0')
      return &rows->row[i];
  return NULL;
}

static int32_t find_programs(const bs_device_file *file, bs_validate_rows *rows, bs_error *err) {
  uint32_t programs = 0;
  rows->n_in_fit = 0;
  for (uint32_t i = 0; i < rows->n; i++) {
    const int32_t rc = find_program(file, &rows->row[i], err);
    if (rc != BS_OK) return rc;
    rows->n_in_fit += rows->row[i].in_fit > 0;
    programs += rows->row[i].has_program > 0;
  }
  if (rows->n_in_fit >= BS_VALIDATE_LEAST || (rows->n_in_fit == 0 && programs > 0)) return BS_OK;
  const bs_validate_row *row = first_not_held(rows);
  bs_error_set(err, BS_INPUT, "BS-VALIDATE-FEW",
               "%u rows are products that have a program, at least %d are needed", rows->n_in_fit,
               BS_VALIDATE_LEAST);
  if (row != NULL)
    bs_error_hint(err, "%s:%u: %s", row->path, row->line, row->why_not);
  else
    bs_error_hint(err,
                  "three constants are fitted to every second row: fewer rows prove nothing; rows with a "
                  "launch_s are not fitted");
  return BS_INPUT;
}

int32_t bs_validate(const bs_device_file *file, bs_validate_rows *rows, bs_validation *out, bs_error *err) {
  const sim_device *d = &file->device;
  *out = (bs_validation){.constants = {(double)d->launch * 1e-12, d->of_units, d->of_memory}};
  int32_t rc = find_programs(file, rows, err);
  for (uint32_t round = 0; rc == BS_OK && rows->n_in_fit > 0 && round < BS_VALIDATE_ROUNDS; round++) {
    const double launch_s = out->constants.launch_s;
    rc = simulate_rows(file, &out->constants, 0, rows, err);
    if (rc != BS_OK) break;
    fit_launch(rows, launch_s, out);
    fit_share(rows, launch_s, BS_VALIDATE_UNITS, out);
    fit_share(rows, launch_s, BS_VALIDATE_MEMORY, out);
  }
  if (rc == BS_OK) rc = simulate_rows(file, &out->constants, 1, rows, err);
  if (rc == BS_OK) find_errors(rows, out);
  return rc;
}
