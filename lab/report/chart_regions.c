/* SPDX-License-Identifier: MIT
 * chart_regions.c - the parts of the time of a step: a bar a row, its parts by region. The time of the
 * exchange is subtracted from the forward. With a backward pass the exchange is in both regions, and is not a
 * separate part. */
#include <math.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/chart.h"

enum { WIDTH = 420, ROW = 36, LEFT = 18, NAME = 60, MOST = 16, PARTS = 8 };

static const struct {
  const char *key, *name;
  int colour;
} parts[PARTS] = {{"forward", "forward", 0}, {"allreduce", "exchange", 1}, {"layout_fix", "layout", 2},
                  {"loss", "loss", 4},       {"backward", "backward", 3},  {"opt_step", "optimizer", 5},
                  {"remask", "remask", 6},   {"compress", "compress", 7}};

static const bs_field fields[] = {
    {"label", "what", 0, 0},
    {"forward", "forward ms", BS_FIELD_RIGHT, 4},
    {"allreduce", "exchange ms", BS_FIELD_RIGHT, 4},
    {"layout_fix", "layout ms", BS_FIELD_RIGHT, 4},
    {"loss", "loss ms", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"backward", "backward ms", BS_FIELD_RIGHT, 4},
    {"opt_step", "optimizer ms", BS_FIELD_RIGHT, 4},
    {"remask", "remask ms", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"compress", "compress ms", BS_FIELD_RIGHT | BS_FIELD_WIDE, 4},
    {"total", "sum ms", BS_FIELD_RIGHT, 4},
};

static double region(const json_t *row, const char *key) {
  const double value = json_number_value(json_object_get(json_object_get(row, "regions"), key));
  return value > 0 ? value : 0;
}

static json_t *parts_of(const json_t *row, const char *label) {
  json_t *one = json_pack("{s:s, s:b}", "label", label, "simulated", bs_row_true(row, "simulated"));
  const int backward = region(row, "backward") > 0;
  const double exchange = backward ? 0 : region(row, "allreduce"),
               layout = backward ? 0 : region(row, "layout_fix");
  double total = 0;
  for (size_t i = 0; i < PARTS; i++) {
    double value = region(row, parts[i].key);
    if (i == 0) value = value - exchange - layout > 0 ? value - exchange - layout : 0;
    if (i == 1) value = exchange;
    if (i == 2) value = layout;
    if (strcmp(parts[i].key, "compress") == 0 && region(row, "remask") > 0) value = 0; /* inside it */
    total += value;
    if (value > 0) bs_row_set(one, parts[i].key, value);
  }
  bs_row_set(one, "total", total);
  return one;
}

/* Is the row of phase 0? Its forward was run once, to be judged. */
static int is_numbers(const json_t *row) {
  return strncmp(bs_row_text(row, "phase"), "phase0", 6) == 0;
}

/* The rows that are drawn: where runs were timed, those of phase 0 are left out. */
static json_t *drawn_of(const json_t *rows) {
  json_t *drawn = json_array();
  int timed = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    timed |= region(row, "forward") > 0 && !is_numbers(row);
  }
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t *row = json_array_get(rows, i);
    if (region(row, "forward") > 0 && !(timed && is_numbers(row))) json_array_append(drawn, row);
  }
  return drawn;
}

static int32_t make_data(const json_t *all, json_t *data, bs_error *err) {
  json_t *rows = drawn_of(all);
  const uint32_t differ = bs_rows_differ(rows);
  int32_t rc = rows != NULL ? BS_OK : bs_no_memory(err, "a chart of regions");
  for (size_t i = 0; rc == BS_OK && i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    char label[120];
    bs_row_words(row, differ, NULL, label, sizeof label);
    json_t *one = parts_of(row, label[0] != '\0' ? label : bs_row_text(row, "method"));
    if (one == NULL || json_array_append_new(data, one) != 0) rc = bs_no_memory(err, "a chart of regions");
  }
  json_decref(rows);
  return rc;
}

static void draw_row(bs_svg *svg, const json_t *row, double y) {
  double x = 0;
  char text[96], css[16], number[32];
  bs_svg_label(svg, LEFT, y - 3, "start", NAME, bs_row_text(row, "label"));
  y += 7;
  for (size_t i = 0; i < PARTS; i++) {
    const double value = bs_row_number(row, parts[i].key);
    if (isnan(value)) continue;
    const double from = bs_scale_at(&svg->x, x), to = bs_scale_at(&svg->x, x + value);
    bs_svg_number(number, value);
    snprintf(text, sizeof text, "%s: %s ms", parts[i].name, number);
    snprintf(css, sizeof css, "p%d fill", parts[i].colour);
    bs_svg_bar(svg, from, y - 7, to - from, 14, css, text);
    x += value;
  }
  bs_svg_number(number, bs_row_number(row, "total"));
  bs_svg_text(svg, bs_scale_at(&svg->x, x) + 5, y + 4, "start", "soft label", number);
}

static void draw(const json_t *data, const char *title, bs_text *out) {
  const size_t all = json_array_size(data), n = all < MOST ? all : MOST;
  const char *names[PARTS];
  int colours[PARTS];
  size_t used = 0;
  bs_svg svg;
  for (size_t p = 0; p < PARTS; p++) {
    int seen = 0;
    for (size_t i = 0; i < n; i++) seen |= !isnan(bs_row_number(json_array_get(data, i), parts[p].key));
    if (!seen) continue;
    names[used] = parts[p].name;
    colours[used++] = parts[p].colour;
  }
  bs_svg_begin(&svg, out, WIDTH, 92 + ROW * (double)n, title);
  svg.left = LEFT;
  bs_svg_legend(&svg, 'p', names, colours, NULL, used);
  svg.right -= 42;
  svg.x = bs_scale_of(BS_SCALE_LINEAR);
  bs_scale_fit(&svg.x, 0);
  for (size_t i = 0; i < n; i++) bs_scale_fit(&svg.x, bs_row_number(json_array_get(data, i), "total"));
  bs_svg_axes(&svg, "ms, medians", NULL);
  for (size_t i = 0; i < n; i++) draw_row(&svg, json_array_get(data, i), svg.top + ROW * ((double)i + 0.5));
  bs_svg_more(&svg, n, all);
  bs_svg_end(&svg);
}

int32_t bs_chart_regions(const json_t *rows, bs_chart *out, bs_error *err) {
  int32_t rc = bs_chart_begin(out, "regions", "Time by region", rows, NULL, err);
  out->what =
      "A bar is one step of the slowest rank, split by the medians of its regions. \"exchange\" is what the "
      "ranks "
      "spend in collectives; in a step with a backward pass it is a part of forward and backward.";
  out->fields = fields;
  out->n_fields = sizeof fields / sizeof fields[0];
  if (rc == BS_OK) rc = make_data(rows, out->data, err);
  if (rc == BS_OK && json_array_size(out->data) > 0) draw(out->data, out->title, &out->svg);
  return bs_chart_end(out, rc, err);
}
