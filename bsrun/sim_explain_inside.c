/* SPDX-License-Identifier: MIT
 * sim_explain_inside.c - `bsrun sim explain --inside OP --device D`: one op on the parts of one device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/sim_inside.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/compose.h"
#include "lab/config/device_file.h"
#include "lab/json.h"
#include "lab/report/svg.h"
#include "lab/sim/inside.h"
#include "lab/sim/inside_svg.h"
#include "lab/sim/inside_words.h"

/* ---- options ----------------------------------------------------------------------------------- */

static int32_t check_options(const args *a, bs_error *err) {
  static const char *const taken[] = {"inside", "device", "knob",  "activation", "bias",   "trace",
                                      "output", "wide",   "quiet", "verbose",    "version"};
  const char *missing = !args_has(a, "inside") ? "inside" : !args_has(a, "device") ? "device" : NULL;
  if (missing != NULL) {
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--inside and --device go together: --%s is missing",
                 missing);
    bs_error_hint(err, "bsrun sim explain --inside 'matmul n4096k4096b4096:bf16' --device cube-pe");
    return BS_USAGE;
  }
  for (size_t i = 0; i < a->n_given; i++) {
    const char *name = args_name(args_given(a, i));
    size_t k = 0;
    while (k < sizeof taken / sizeof taken[0] && strcmp(taken[k], name) != 0) k++;
    if (k == sizeof taken / sizeof taken[0])
      return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s has no effect on --inside", name);
  }
  return BS_OK;
}

/* Further ops on each element of Y: the activation and the bias. */
static int32_t read_epilogue(const args *a, const char *op, uint32_t *out, bs_error *err) {
  static const char *const given[] = {"activation", "bias"}, *const switches[] = {"on", "off"};
  const char *word = args_value(a, "bias");
  bs_error unused = BS_ERROR_INIT; /* what is wrong in the op, the run says */
  uint32_t kind = SIM_OP_PRODUCT, activation = BS_ACT_NONE;
  int bias = 0;
  int32_t rc = args_word(a, "activation", BS_NAMES_ACTIVATION, NULL, 0, &activation, err);
  if (rc == BS_OK && word != NULL && !bs_parse_bool(word, &bias)) {
    rc = bsrun_unknown("bias", word, switches, 2, err);
    bs_error_where(err, "--bias");
  }
  if (rc != BS_OK) return rc;
  *out = (activation != BS_ACT_NONE) + (uint32_t)bias;
  if (bs_inside_kind(op, &kind, &unused) != BS_OK || kind == SIM_OP_PRODUCT) return BS_OK;
  for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
    if (args_value(a, given[i]) != NULL)
      return bs_error_set(err, BS_USAGE, "BS-USE-OPTION",
                          "--%s has no effect on %.40s: only products take it", given[i], op);
  return BS_OK;
}

int32_t sim_inside_ask(const args *a, const char *op, bs_inside_ask *ask, bs_error *err) {
  const char **knobs = NULL;
  size_t n = 0;
  ask->op = op;
  int32_t rc = read_epilogue(a, op, &ask->epilogue, err);
  if (rc == BS_OK) rc = args_values(a, "knob", &knobs, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) rc = bs_inside_knobs_read(knobs[i], &ask->knobs, err);
  free(knobs);
  return rc;
}

/* ---- what is printed --------------------------------------------------------------------------- */

static json_t *shown(const json_t *row) {
  json_t *copy = json_copy((json_t *)(uintptr_t)row);
  char amount[32];
  bs_inside_amount(row, amount);
  json_object_set_new(copy, "amount", json_string(amount));
  if (json_is_null(json_object_get(row, "mJ"))) json_object_set_new(copy, "mJ", json_string("-"));
  return copy;
}

static void print_head(const json_t *rows) {
  bs_text text = {0};
  bs_inside_sentences(rows, &text);
  if (!text.failed) bs_print_lines(stdout, text.data);
  printf("\n");
  bs_text_free(&text);
}

static void print_energy(const json_t *rows) {
  const json_t *total = json_array_get(rows, json_array_size(rows) - 1), *row;
  const char *comma = "; not declared: ";
  size_t i;
  bs_print(stdout, "\nenergy: %.6f mJ", bs_get_number(total, "mJ"));
  json_array_foreach(rows, i, row) {
    if (!json_is_null(json_object_get(row, "mJ")) || json_object_get(row, "mJ") == NULL) continue;
    bs_print(stdout, "%s%s", comma, bs_get_text(row, "part"));
    comma = ", ";
  }
  bs_print(stdout, "\n");
}

static int32_t print_rows(const json_t *rows, int format, bs_error *err) {
  const size_t n = json_array_size(rows);
  const int table = format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE;
  json_t *some = json_array();
  for (size_t i = 0; i < n; i++) {
    if (table && format == BS_FORMAT_TABLE && i + 1 == n) continue; /* its sentence stands above */
    json_array_append_new(some,
                          table ? shown(json_array_get(rows, i)) : json_incref(json_array_get(rows, i)));
  }
  if (table) print_head(rows);
  const int32_t rc = bs_report_print(stdout, format, bs_inside_fields, bs_inside_n_fields, some, err);
  if (rc == BS_OK && table) print_energy(rows);
  json_decref(some);
  return rc;
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for the spans of a device");
}

static int32_t write_trace(bs_inside_answer *answer, const args *a, bs_error *err) {
  sim_trace *trace = sim_trace_new(0, 0, UINT32_MAX - 1);
  int32_t rc = trace != NULL ? bs_inside_trace(answer, trace, err) : no_memory(err);
  if (rc == BS_OK) rc = sim_trace_write(trace, args_value(a, "trace"), err);
  if (rc == BS_OK && sim_trace_dropped(trace) > 0) {
    char text[128];
    snprintf(text, sizeof text, "the trace has %llu events; %llu more are left out",
             (unsigned long long)sim_trace_events(trace), (unsigned long long)sim_trace_dropped(trace));
    bsrun_note(args_has(a, "quiet"), text);
  }
  sim_trace_free(trace);
  return rc;
}

static int32_t print_svg(bs_inside_answer *answer, bs_error *err) {
  bs_text chart = {0}, file = {0};
  sim_trace *trace = sim_trace_new(0, 0, 63);
  int32_t rc = trace != NULL ? bs_inside_trace(answer, trace, err) : no_memory(err);
  if (rc == BS_OK) {
    bs_inside_svg(answer, trace, &chart);
    if (!chart.failed) bs_svg_document(&file, chart.data);
    rc = chart.failed || file.failed ? no_memory(err) : BS_OK;
    if (rc == BS_OK) fwrite(file.data, 1, file.size, stdout);
  }
  sim_trace_free(trace);
  bs_text_free(&chart);
  bs_text_free(&file);
  return rc;
}

/* ------------------------------------------------------------------------------------------------ */

int32_t sim_inside_explain(const args *a, bs_error *err) {
  const char *output = args_value(a, "output");
  const int svg = output != NULL && strcmp(output, "svg") == 0;
  bs_device_file file = {0};
  bs_inside_ask ask = {0};
  bs_inside_answer answer = {.op = ""};
  char *dir = NULL;
  int format = BS_FORMAT_TABLE;
  int32_t rc = check_options(a, err);
  if (rc == BS_OK && !svg) rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = sim_inside_ask(a, args_value(a, "inside"), &ask, err);
  if (rc == BS_OK) rc = bs_configs_dir(&dir, err);
  if (rc == BS_OK) rc = bs_device_open(dir, args_value(a, "device"), &file, err);
  if (rc == BS_OK) rc = bs_inside_open(&file.device, &ask, &answer, err);
  bs_device_place_error(&file, rc, err);
  if (rc == BS_OK && args_has(a, "trace")) rc = write_trace(&answer, a, err);
  if (rc == BS_OK) rc = svg ? print_svg(&answer, err) : print_rows(answer.rows, format, err);
  bs_inside_close(&answer);
  bs_device_close(&file);
  free(dir);
  return rc;
}
