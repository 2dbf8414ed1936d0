/* SPDX-License-Identifier: MIT
 * simulated.c - see simulated.h. */
#include "bsrun/simulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/json.h"

void simulated_print_head(const json_t *row, int of_layer) {
  const int none = strcmp(bs_get_text(row, "values"), "none") == 0;
  char *machine = bs_report_printable(bs_get_text(row, "machine"));
  bs_print(stdout, "simulated, not measured: machine %s (%s), %s, %s\n", machine != NULL ? machine : "",
           bs_get_text(row, "label"), bs_get_text(row, "engine"),
           !none      ? "real values in virtual time"
           : of_layer ? "no values; --backend virtual:ref judges numbers"
                      : "no values");
  free(machine);
}

/* A time or a size with three decimals or one. */
static void set_fixed(json_t *to, const char *name, const json_t *value, double scale, int decimals) {
  char text[64];
  if (!json_is_number(value)) return;
  snprintf(text, sizeof text, "%.*f", decimals, json_number_value(value) * scale);
  json_object_set_new(to, name, json_string(text));
}

static const char *pass_of(const json_t *row) {
  const char *phase = bs_get_text(row, "phase");
  if (strncmp(phase, "phase2", 6) == 0) return "backward";
  return strncmp(phase, "phase3", 6) == 0 ? "step" : "forward";
}

static json_t *shown_row(const json_t *row) {
  static const char *const kept[] = {"method", "world_size", "B", "N", "K", "limit"};
  static const char *const times[] = {"simulated_us",    "compute_us",    "memory_us", "launch_us",
                                      "wire_latency_us", "wire_bytes_us", "wait_us",   "dense_us"};
  json_t *shown = json_object();
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
    if (json_object_get(row, kept[i]) != NULL) json_object_set(shown, kept[i], json_object_get(row, kept[i]));
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
    set_fixed(shown, times[i], json_object_get(row, times[i]), 1.0, 3);
  if (!(json_number_value(json_object_get(row, "wait_us")) > 0)) json_object_del(shown, "wait_us");
  set_fixed(shown, "bytes_per_device", json_object_get(row, "bytes_per_device"), 1.0 / (1 << 20), 1);
  if (strcmp(pass_of(row), "forward") != 0) json_object_set_new(shown, "pass", json_string(pass_of(row)));
  return shown;
}

int32_t simulated_print(const json_t *rows, bs_error *err) {
  static const bs_field fields[] = {{"method", "METHOD", 0, 0},
                                    {"pass", "pass", BS_FIELD_FOLD, 0},
                                    {"world_size", "P", BS_FIELD_RIGHT, 0},
                                    {"B", "B", BS_FIELD_RIGHT, 0},
                                    {"N", "N", BS_FIELD_RIGHT, 0},
                                    {"K", "K", BS_FIELD_RIGHT, 0},
                                    {"simulated_us", "us", BS_FIELD_RIGHT, 0},
                                    {"compute_us", "compute", BS_FIELD_RIGHT, 0},
                                    {"memory_us", "memory", BS_FIELD_RIGHT, 0},
                                    {"launch_us", "launch", BS_FIELD_RIGHT, 0},
                                    {"wire_latency_us", "wire latency", BS_FIELD_RIGHT, 0},
                                    {"wire_bytes_us", "wire bytes", BS_FIELD_RIGHT, 0},
                                    {"wait_us", "wait", BS_FIELD_RIGHT, 0},
                                    {"limit", "limit", 0, 0},
                                    {"bytes_per_device", "MiB/device", BS_FIELD_RIGHT, 0},
                                    {"dense_us", "dense on 1: us", BS_FIELD_RIGHT, 0}};
  json_t *shown = json_array();
  double not_costed = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_array_append_new(shown, shown_row(json_array_get(rows, i)));
    not_costed += json_number_value(json_object_get(json_array_get(rows, i), "ops_not_costed"));
  }
  simulated_print_head(json_array_get(rows, 0), 1);
  const int32_t rc =
      bs_report_print(stdout, BS_FORMAT_TABLE, fields, sizeof fields / sizeof fields[0], shown, err);
  for (size_t i = json_array_size(rows); rc == BS_OK && i > 0; i--) { /* the last one has most ranks */
    const char *beyond = bs_get_text(json_array_get(rows, i - 1), "beyond");
    if (beyond[0] == '\0') continue;
    printf("%s\n", beyond);
    break;
  }
  if (rc == BS_OK && not_costed > 0)
    printf("%.0f ops have no cost in the core's table of ops: they took no time here\n", not_costed);
  json_decref(shown);
  return rc;
}
