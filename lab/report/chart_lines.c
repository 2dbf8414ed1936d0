/* SPDX-License-Identifier: MIT
 * chart_lines.c - lines over one field (a sweep), a line a series: see chart.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/chart.h"

enum { WIDTH = 460, HEIGHT = 300, SERIES = 8 };

static const bs_field fields[] = {
    {"series", "series", 0, 0},          {"x", "x", BS_FIELD_RIGHT, 0},
    {"y", "median", BS_FIELD_RIGHT, 5},  {"low", "low", BS_FIELD_RIGHT, 5},
    {"high", "high", BS_FIELD_RIGHT, 5}, {"ceiling", "limit", BS_FIELD_RIGHT, 5},
    {"runs", "runs", BS_FIELD_RIGHT, 0},
};

typedef struct sample {
  char series[120];
  double x, y, low, high, ceiling;
  int simulated;
} sample;

static int by_place(const void *a, const void *b) {
  const sample *p = a, *q = b;
  const int order = strcmp(p->series, q->series);
  return order != 0 ? order : (p->x > q->x) - (p->x < q->x);
}

/* Rows that have x and y, as samples in order of series and x. The caller frees. */
static sample *samples_of(const json_t *rows, const bs_lines_spec *spec, size_t *out_n) {
  const char *but[] = {spec->x, strcmp(spec->x, "N") == 0 ? "K" : NULL, NULL};
  const double factor = spec->factor != 0 ? spec->factor : 1;
  const uint32_t differ = bs_rows_differ(rows);
  sample *samples = calloc(json_array_size(rows) + 1, sizeof *samples);
  *out_n = 0;
  for (size_t i = 0; samples != NULL && i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    sample *s = &samples[*out_n];
    s->x = bs_row_number(row, spec->x);
    s->y = bs_row_number(row, spec->y) * factor;
    if (isnan(s->x) || isnan(s->y) || (spec->y_scale != BS_SCALE_LINEAR && s->y <= 0)) continue;
    s->low = bs_row_number(row, spec->low) * factor;
    s->high = bs_row_number(row, spec->high) * factor;
    s->ceiling = bs_row_number(row, spec->ceiling) * factor;
    s->simulated = bs_row_true(row, "simulated");
    snprintf(s->series, sizeof s->series, "%.110s", bs_row_text(row, "series"));
    if (s->series[0] == '\0') bs_row_words(row, differ, but, s->series, sizeof s->series);
    if (s->series[0] == '\0') snprintf(s->series, sizeof s->series, "%s", bs_row_text(row, "method"));
    ++*out_n;
  }
  if (samples != NULL) qsort(samples, *out_n, sizeof *samples, by_place);
  return samples;
}

static double median_field(const sample *s, size_t n, size_t offset, double *room) {
  size_t m = 0;
  for (size_t i = 0; i < n; i++) {
    const double value = *(const double *)((const char *)&s[i] + offset);
    if (!isnan(value)) room[m++] = value;
  }
  return m > 0 ? bs_median_of(room, m) : NAN;
}

/* One row of data of the samples at one place. */
static json_t *point_of(const sample *s, size_t n, const bs_lines_spec *spec, double *room) {
  json_t *row = json_pack("{s:s, s:b, s:i}", "series", s->series, "simulated", s->simulated, "runs", (int)n);
  bs_row_set(row, "x", s->x);
  bs_row_set(row, "y", median_field(s, n, offsetof(sample, y), room));
  const double least = room[0], largest = room[n - 1];
  if (spec->low != NULL) {
    bs_row_set(row, "low", median_field(s, n, offsetof(sample, low), room));
    bs_row_set(row, "high", median_field(s, n, offsetof(sample, high), room));
  } else {
    bs_row_set(row, "low", n > 1 ? least : NAN);
    bs_row_set(row, "high", n > 1 ? largest : NAN);
  }
  bs_row_set(row, "ceiling", median_field(s, n, offsetof(sample, ceiling), room));
  return row;
}

static int32_t make_data(const json_t *rows, const bs_lines_spec *spec, json_t *data, bs_error *err) {
  size_t n;
  sample *samples = samples_of(rows, spec, &n);
  double *room = calloc(json_array_size(rows) + 1, sizeof *room);
  int32_t rc = samples != NULL && room != NULL ? BS_OK : bs_no_memory(err, "a chart of %s", spec->id);
  for (size_t i = 0, last; rc == BS_OK && i < n; i = last) {
    for (last = i + 1; last < n && by_place(&samples[i], &samples[last]) == 0;) ++last;
    if (json_array_append_new(data, point_of(&samples[i], last - i, spec, room)) != 0)
      rc = bs_no_memory(err, "a chart of %s", spec->id);
  }
  free(samples);
  free(room);
  return rc;
}

/* The data's series: their names and first places; at most SERIES. */
typedef struct runs_of {
  const char *names[SERIES];
  int colours[SERIES], shapes[SERIES]; /* shape: of those with one colour */
  size_t begin[SERIES + 1], n;
} runs_of;

static void find_series(const json_t *data, runs_of *out) {
  const char *name = NULL;
  size_t i;
  memset(out, 0, sizeof *out);
  for (i = 0; i < json_array_size(data); i++) {
    const char *series = bs_row_text(json_array_get(data, i), "series");
    if (name != NULL && strcmp(series, name) == 0) continue;
    if (out->n == SERIES) break;
    name = series;
    out->colours[out->n] = bs_series_colour(series);
    for (size_t k = 0; k < out->n; k++) out->shapes[out->n] += out->colours[k] == out->colours[out->n];
    out->begin[out->n] = i;
    out->names[out->n++] = series;
  }
  out->begin[out->n] = i;
}

static void draw_one(bs_svg *svg, const json_t *data, const runs_of *all, size_t s) {
  bs_svg_point points[BS_SVG_POINTS], tops[BS_SVG_POINTS];
  const size_t first = all->begin[s], count = all->begin[s + 1] - first;
  size_t n = 0, m = 0, bands = 0;
  char css[32], tip[200], text[32];
  for (size_t i = 0; i < count && n < BS_SVG_POINTS; i++) {
    const json_t *row =
        json_array_get(data, first + (count <= BS_SVG_POINTS ? i : i * count / BS_SVG_POINTS));
    bs_svg_point p = {bs_row_number(row, "x"), bs_row_number(row, "y"), bs_row_number(row, "low"),
                      bs_row_number(row, "high")};
    bands += !isnan(p.low) && !isnan(p.high);
    if (isnan(p.low) || isnan(p.high)) p.low = p.high = p.y;
    points[n++] = p;
    if (!isnan(bs_row_number(row, "ceiling")))
      tops[m++] = (bs_svg_point){p.x, bs_row_number(row, "ceiling"), 0, 0};
  }
  const int simulated = bs_row_true(json_array_get(data, first), "simulated");
  snprintf(css, sizeof css, "s%d band", all->colours[s]);
  if (bands > 0) bs_svg_band(svg, points, n, css);
  snprintf(css, sizeof css, "s%d line dash thin", all->colours[s]);
  if (m > 1) bs_svg_line(svg, tops, m, css);
  snprintf(css, sizeof css, "s%d line%s", all->colours[s], simulated ? " dash" : "");
  if (n > 1) bs_svg_line(svg, points, n, css);
  snprintf(css, sizeof css, "s%d %s", all->colours[s], simulated ? "open" : "fill");
  for (size_t i = 0; i < n; i++) {
    bs_svg_number(text, points[i].y);
    snprintf(tip, sizeof tip, "%s: %s at %.6g", all->names[s], text, points[i].x);
    bs_svg_dot(svg, points[i].x, points[i].y, all->shapes[s], css, tip);
  }
}

static void draw(const json_t *data, const bs_lines_spec *spec, const char *title, bs_text *out) {
  static const char *const fitted[] = {"y", "low", "high", "ceiling"};
  runs_of all;
  bs_svg svg;
  bs_svg_begin(&svg, out, WIDTH, HEIGHT, title);
  svg.x = bs_scale_of(spec->x_scale);
  svg.y = bs_scale_of(spec->y_scale);
  for (size_t i = 0; i < json_array_size(data); i++) {
    const json_t *row = json_array_get(data, i);
    bs_scale_fit(&svg.x, bs_row_number(row, "x"));
    for (size_t k = 0; k < 4; k++) bs_scale_fit(&svg.y, bs_row_number(row, fitted[k]));
  }
  if (spec->y_scale == BS_SCALE_LINEAR) bs_scale_fit(&svg.y, 0);
  find_series(data, &all);
  bs_svg_legend(&svg, 's', all.names, all.colours, all.shapes, all.n);
  bs_svg_axes(&svg, spec->x_name, spec->y_name);
  for (size_t s = 0; s < all.n; s++) draw_one(&svg, data, &all, s);
  if (all.begin[all.n] < json_array_size(data))
    bs_svg_text(&svg, svg.left, svg.height - 8, "start", "soft", "further series: in the table");
  bs_svg_end(&svg);
}

int32_t bs_chart_lines(const json_t *rows, const bs_lines_spec *spec, bs_chart *out, bs_error *err) {
  const char *but[] = {spec->x, strcmp(spec->x, "N") == 0 ? "K" : NULL, NULL};
  int32_t rc = bs_chart_begin(out, spec->id, spec->title, rows, but, err);
  out->what = spec->what;
  out->fields = fields;
  out->n_fields = sizeof fields / sizeof fields[0];
  if (rc == BS_OK) rc = make_data(rows, spec, out->data, err);
  if (rc == BS_OK && json_array_size(out->data) > 0) draw(out->data, spec, out->title, &out->svg);
  return bs_chart_end(out, rc, err);
}
