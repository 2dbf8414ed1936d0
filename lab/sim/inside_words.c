/* SPDX-License-Identifier: MIT
 * inside_words.c - see inside_words.h. */
#include "lab/sim/inside_words.h"

#include <stdio.h>
#include <string.h>

#include "lab/json.h"

const bs_field bs_inside_fields[] = {
    {"part", "PART", 0, 0},
    {"units", "UNITS", BS_FIELD_RIGHT, 0},
    {"jobs", "JOBS", BS_FIELD_RIGHT, 0},
    {"amount", "AMOUNT", BS_FIELD_RIGHT, 0},
    {"busy_pct", "BUSY %", BS_FIELD_RIGHT, 3},
    {"most_pct", "MOST %", BS_FIELD_RIGHT, 3},
    {"mean_wait_us", "MEAN WAIT us", BS_FIELD_RIGHT, 3},
    {"closed_us", "CLOSED us", BS_FIELD_RIGHT, 6},
    {"mJ", "mJ", BS_FIELD_RIGHT, 5},
    {"faster_us", "10 % FASTER us", BS_FIELD_RIGHT, 6},
    {"kind", "KIND", BS_FIELD_WIDE, 0},
    {"unit", "UNIT", BS_FIELD_WIDE, 0},
    {"us", "SIMULATED us", BS_FIELD_WIDE | BS_FIELD_RIGHT, 9},
    {"launch_us", "LAUNCH us", BS_FIELD_WIDE | BS_FIELD_RIGHT, 9},
    {"whole_us", "WITH LAUNCH us", BS_FIELD_WIDE | BS_FIELD_RIGHT, 9},
    {"bound_us", "BOUND us", BS_FIELD_WIDE | BS_FIELD_RIGHT, 9},
    {"TFLOPs", "TFLOP/s", BS_FIELD_WIDE | BS_FIELD_RIGHT, 5},
    {"of_units_pct", "OF THE UNITS %", BS_FIELD_WIDE | BS_FIELD_RIGHT, 4},
    {"flops", "FLOP", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"binds", "BINDS", BS_FIELD_WIDE, 0},
    {"op", "OP", BS_FIELD_WIDE, 0},
    {"knobs", "KNOBS", BS_FIELD_WIDE, 0},
    {"candidates", "CANDIDATES", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"lanes", "LANES", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"events", "EVENTS", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"device", "DEVICE", BS_FIELD_WIDE, 0},
    {"label", "LABEL", BS_FIELD_WIDE, 0},
};
const size_t bs_inside_n_fields = sizeof bs_inside_fields / sizeof bs_inside_fields[0];

/* 137.4 G of 137438953472; the unit follows. */
void bs_inside_amount(const json_t *row, char out[32]) {
  static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
  double x = bs_get_number(row, "amount");
  size_t p = 0;
  for (; x >= 999.95 && p < 5; p++) x /= 1000;
  snprintf(out, 32, "%.4g %s%.8s", x, prefixes[p], bs_get_text(row, "unit"));
}

static void say_closed_forms(const json_t *rows, double time, bs_text *out) {
  const char *comma = "closed forms:";
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    if (bs_get_number(row, "closed_us") < 0.1 * time || strcmp(bs_get_text(row, "kind"), "net") == 0)
      continue;
    bs_text_printf(out, "%s %s %.3f", comma, bs_get_text(row, "part"), bs_get_number(row, "closed_us"));
    comma = ",";
  }
  if (comma[0] == ',') bs_text_printf(out, "; ");
}

static void say_binding(const json_t *rows, const char *binds, bs_text *out) {
  const json_t *row;
  size_t i;
  bs_text_printf(out, "binds: ");
  if (binds[0] == '\0') bs_text_printf(out, "latencies");
  json_array_foreach(rows, i, row) {
    if (binds[0] == '\0' || strcmp(bs_get_text(row, "part"), binds) != 0) continue;
    bs_text_printf(out, "%s (10 %% faster: %.3f us)", binds, bs_get_number(row, "faster_us"));
  }
}

void bs_inside_sentences(const json_t *rows, bs_text *out) {
  const json_t *total = json_array_get(rows, json_array_size(rows) - 1);
  const double time = bs_get_number(total, "us");
  bs_text_printf(out, "simulated, not measured: device %s (%s), %.0f lanes, %s\n",
                 bs_get_text(total, "device"), bs_get_text(total, "label"), bs_get_number(total, "lanes"),
                 bs_get_text(total, "knobs"));
  bs_text_printf(out, "%s: %.3f us; ", bs_get_text(total, "op"), time);
  say_closed_forms(rows, time, out);
  say_binding(rows, bs_get_text(total, "binds"), out);
  if (bs_get_number(total, "flops") > 0)
    bs_text_printf(out, "; %.4g TFLOP/s, %.1f %% of the units", bs_get_number(total, "TFLOPs"),
                   bs_get_number(total, "of_units_pct"));
  bs_text_printf(out, "\n");
  if (bs_get_number(total, "whole_us") > time)
    bs_text_printf(out, "launch: every lane begins at %.3f us; the last answer is back at %.3f us\n",
                   bs_get_number(total, "launch_us"), bs_get_number(total, "whole_us"));
}
