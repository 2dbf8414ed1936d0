/* SPDX-License-Identifier: MIT
 * sim_probe_inside.c - `bsrun sim probe A B --device D`: data between two places of a device, stop by stop.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/sim_inside.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/compose.h"
#include "lab/config/device_file.h"
#include "lab/sim/probe_inside.h"

static const bs_field fields[] = {
    {"hop", "HOP", 0, 0},
    {"link", "PART", 0, 0},
    {"GBps", "GB/s", BS_FIELD_RIGHT, 5},
    {"reached_us", "REACHED us", BS_FIELD_RIGHT, 9},
    {"wait_us", "WAIT us", BS_FIELD_RIGHT, 9},
    {"latency_us", "LATENCY us", BS_FIELD_RIGHT, 9},
    {"bytes_us", "BYTES us", BS_FIELD_RIGHT, 9},
    {"closed_us", "CLOSED FORM us", BS_FIELD_RIGHT, 9},
    {"lane_us", "LANE us", BS_FIELD_WIDE | BS_FIELD_RIGHT, 9},
    {"simulated_us", "SIMULATED us", BS_FIELD_WIDE | BS_FIELD_RIGHT, 9},
    {"way", "WAY", BS_FIELD_WIDE, 0},
    {"from", "FROM", BS_FIELD_WIDE, 0},
    {"to", "TO", BS_FIELD_WIDE, 0},
    {"bytes", "BYTES", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"device", "DEVICE", BS_FIELD_WIDE, 0},
    {"label", "LABEL", BS_FIELD_WIDE, 0},
};

/* The transfers; those of --beside have copies of their texts, split at the colon. */
typedef struct flows {
  bs_inside_flow flow[BS_PROBE_FLOWS];
  char *texts[BS_PROBE_FLOWS];
  uint32_t n;
} flows;

static int32_t add_beside(flows *f, const char *text, bs_error *err) {
  char *copy = bs_strdup(text), *colon = copy != NULL ? strchr(copy, ':') : NULL;
  if (copy == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a message");
  if (colon == NULL || f->n == BS_PROBE_FLOWS) {
    free(copy);
    return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--beside: '%.60s' is not %s", text,
                        colon == NULL ? "FROM:TO, as in pe1.cube0:hbm3" : "one of at most 63 messages");
  }
  *colon = '\0';
  f->texts[f->n] = copy;
  f->flow[f->n++] = (bs_inside_flow){copy, colon + 1};
  return BS_OK;
}

static int32_t read_flows(flows *f, const args *a, bs_error *err) {
  const char **beside = NULL;
  size_t n = 0;
  f->flow[f->n++] = (bs_inside_flow){a->words[0], a->words[1]};
  int32_t rc = args_values(a, "beside", &beside, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) rc = add_beside(f, beside[i], err);
  free(beside);
  return rc;
}

static int32_t refuse_ranks(const args *a, bs_error *err) {
  static const char *const ranks[] = {"world-size", "hardware", "plugin", "config", "set"};
  for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
    if (args_has(a, ranks[i]))
      return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s has no effect on a probe inside of --device",
                          ranks[i]);
  return BS_OK;
}

static int32_t print(const sim_device *d, const args *a, uint32_t beside, json_t *rows, bs_error *err) {
  const json_t *total = json_array_get(rows, json_array_size(rows) - 1);
  int format = 0;
  size_t i;
  json_t *row;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc != BS_OK) return rc;
  json_array_foreach(rows, i, row) {
    json_object_set_new(row, "device", json_string(d->name));
    json_object_set_new(row, "label", json_string(d->label));
  }
  if (format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE)
    bs_print(stdout,
             "simulated, not measured: device %s (%s), way %s\n"
             "%.0f bytes from %s to %s, beside %u other%s: %.6f us; alone %.6f us by the closed form\n\n",
             d->name, d->label, json_string_value(json_object_get(total, "way")),
             json_number_value(json_object_get(total, "bytes")),
             json_string_value(json_object_get(total, "from")),
             json_string_value(json_object_get(total, "to")), beside, beside == 1 ? "" : "s",
             json_number_value(json_object_get(total, "simulated_us")),
             json_number_value(json_object_get(total, "closed_us")));
  return bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
}

int32_t sim_inside_probe(const args *a, bs_error *err) {
  bs_device_file file = {0};
  sim_layout layout = {0};
  flows f = {.n = 0};
  json_t *rows = NULL;
  char *dir = NULL;
  int64_t bytes = 0;
  int32_t rc = refuse_ranks(a, err);
  if (rc == BS_OK) rc = args_integer(a, "size", 0, INT64_C(1) << 30, 4096, &bytes, err);
  if (rc == BS_OK) rc = read_flows(&f, a, err);
  if (rc == BS_OK) rc = bs_configs_dir(&dir, err);
  if (rc == BS_OK) rc = bs_device_open(dir, args_value(a, "device"), &file, err);
  if (rc == BS_OK) rc = sim_layout_make(&file.device, 0, &layout, err);
  const bs_inside_probe probe = {f.n, f.flow, (uint64_t)bytes};
  if (rc == BS_OK) rc = bs_inside_probe_run(&layout, &probe, &rows, err);
  bs_device_place_error(&file, rc, err);
  if (rc == BS_OK) rc = print(&file.device, a, f.n - 1, rows, err);
  json_decref(rows);
  sim_layout_free(&layout);
  bs_device_close(&file);
  for (uint32_t i = 0; i < f.n; i++) free(f.texts[i]);
  free(dir);
  return rc;
}
