/* SPDX-License-Identifier: MIT
 * run_table.c - rows of runs (lab/report/rows.h) on the screen: a table of each phase. */
#include <stdio.h>
#include <string.h>

#include "bsrun/run.h"
#include "bsrun/simulated.h"
#include "lab/report/fields.h"
#include "lab/report/rows.h"

/* The number in "phase2_backward_input". */
static size_t phase_of(const json_t *row) {
  const char *name = json_string_value(json_object_get(row, "phase"));
  return name != NULL && strncmp(name, "phase", 5) == 0 && name[5] >= '0' && name[5] <= '3'
             ? (size_t)(name[5] - '0')
             : 0;
}

/* Simulated rows have a table of their own. */
static int32_t print_simulated(const json_t *rows, int *out_printed, bs_error *err) {
  json_t *mine = json_array();
  for (size_t i = 0; i < json_array_size(rows); i++)
    if (bs_row_is_simulated(json_array_get(rows, i))) json_array_append(mine, json_array_get(rows, i));
  *out_printed = json_array_size(mine) > 0;
  const int32_t rc = *out_printed ? simulated_print(mine, err) : BS_OK;
  json_decref(mine);
  return rc;
}

/* One table a phase, in the order in which they ran. */
static int32_t print_tables(int format, const json_t *rows, bs_error *err) {
  int printed = 0;
  int32_t rc = format == BS_FORMAT_TABLE ? print_simulated(rows, &printed, err) : BS_OK;
  for (size_t phase = 0; phase < 4 && rc == BS_OK; phase++) {
    bs_field shown[BS_PHASE_FIELDS];
    const size_t n = bs_phase_fields(phase, shown);
    json_t *mine = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++)
      if (phase_of(json_array_get(rows, i)) == phase &&
          (format != BS_FORMAT_TABLE || !bs_row_is_simulated(json_array_get(rows, i))))
        json_array_append(mine, json_array_get(rows, i));
    if (json_array_size(mine) > 0) {
      const char *name = json_string_value(json_object_get(json_array_get(mine, 0), "phase"));
      bs_print(stdout, printed++ > 0 ? "\n%s\n" : "%s\n", name);
      rc = format == BS_FORMAT_TABLE
               ? bs_report_print(stdout, format, shown, n, mine, err)
               : bs_report_print(stdout, format, bs_run_fields, bs_n_run_fields, mine, err);
    }
    json_decref(mine);
  }
  return rc;
}

int32_t run_print_rows(int format, const json_t *rows, bs_error *err) {
  if (format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE) return print_tables(format, rows, err);
  return bs_report_print(stdout, format, bs_run_fields, bs_n_run_fields, rows, err);
}
