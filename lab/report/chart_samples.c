/* SPDX-License-Identifier: MIT
 * chart_samples.c - the samples of one run: their distribution (ECDF), and the samples in the order of time
 * with those that were discarded marked. rows: {series, at, seconds, discarded}, in order of series and time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/chart.h"

enum { WIDTH = 460, HEIGHT = 300, SERIES = 8 };

static const bs_field ecdf_fields[] = {{"series", "arm", 0, 0},
                                       {"ms", "ms a forward", BS_FIELD_RIGHT, 5},
                                       {"share", "share of samples", BS_FIELD_RIGHT, 3}};
static const bs_field samples_fields[] = {{"series", "arm", 0, 0},
                                          {"at", "place", BS_FIELD_RIGHT, 0},
                                          {"ms", "ms a forward", BS_FIELD_RIGHT, 5},
                                          {"discarded", "discarded", 0, 0}};

/* The series of the rows; out[n] is after the last. At most SERIES. */
static size_t series_of(const json_t *rows, const char *names[SERIES], size_t begin[SERIES + 1]) {
  size_t n = 0, i;
  for (i = 0; i < json_array_size(rows); i++) {
    const char *series = bs_row_text(json_array_get(rows, i), "series");
    if (n > 0 && strcmp(series, names[n - 1]) == 0) continue;
    if (n == SERIES) break;
    begin[n] = i;
    names[n++] = series;
  }
  begin[n] = i;
  return n;
}

static void legend(bs_svg *svg, const char *const *names, int dots, size_t n) {
  int colours[SERIES], shapes[SERIES];
  for (size_t s = 0; s < n; s++) {
    colours[s] = bs_series_colour(names[s]);
    shapes[s] = (int)(s % 3);
  }
  bs_svg_legend(svg, 's', names, colours, dots ? shapes : NULL, n);
}

/* One series as points of its ECDF: at most BS_SVG_POINTS rows of data. */
static int32_t add_ecdf(const json_t *rows, size_t first, size_t last, json_t *data, bs_error *err) {
  double *values = calloc(last - first + 1, sizeof *values);
  int32_t rc = values != NULL ? BS_OK : bs_no_memory(err, "samples");
  size_t n = 0;
  for (size_t i = first; rc == BS_OK && i < last; i++) {
    const json_t *row = json_array_get(rows, i);
    const double s = bs_row_number(row, "seconds");
    if (!isnan(s) && !bs_row_true(row, "discarded")) values[n++] = s * 1e3;
  }
  if (n > 0) bs_median_of(values, n); /* sorts */
  const size_t shown = n < BS_SVG_POINTS ? n : BS_SVG_POINTS;
  for (size_t i = 0; rc == BS_OK && i < shown; i++) {
    const size_t k = n <= BS_SVG_POINTS ? i : i * (n - 1) / (BS_SVG_POINTS - 1);
    json_t *one = json_pack("{s:s, s:f, s:f}", "series", bs_row_text(json_array_get(rows, first), "series"),
                            "ms", values[k], "share", (double)(k + 1) / (double)n);
    if (one == NULL || json_array_append_new(data, one) != 0) rc = bs_no_memory(err, "samples");
  }
  free(values);
  return rc;
}

static void draw_ecdf(const json_t *data, const char *title, bs_text *out) {
  const char *names[SERIES];
  size_t begin[SERIES + 1];
  const size_t n = series_of(data, names, begin);
  bs_svg svg;
  bs_svg_begin(&svg, out, WIDTH, HEIGHT, title);
  legend(&svg, names, 0, n);
  svg.x = bs_scale_of(BS_SCALE_LOG10);
  svg.y = bs_scale_of(BS_SCALE_LINEAR);
  bs_scale_fit(&svg.y, 0);
  bs_scale_fit(&svg.y, 1);
  for (size_t i = 0; i < json_array_size(data); i++)
    bs_scale_fit(&svg.x, bs_row_number(json_array_get(data, i), "ms"));
  bs_svg_axes(&svg, "ms a forward", "share of samples at most this long");
  for (size_t s = 0; s < n; s++) {
    bs_svg_point points[BS_SVG_POINTS + 1];
    size_t m = 0;
    char css[16];
    snprintf(css, sizeof css, "s%d line", bs_series_colour(names[s]));
    points[m++] = (bs_svg_point){bs_row_number(json_array_get(data, begin[s]), "ms"), 0, 0, 0};
    for (size_t i = begin[s]; i < begin[s + 1] && m < BS_SVG_POINTS; i++) {
      const json_t *row = json_array_get(data, i);
      points[m++] = (bs_svg_point){bs_row_number(row, "ms"), bs_row_number(row, "share"), 0, 0};
    }
    bs_svg_step(&svg, points, m, css);
  }
  bs_svg_end(&svg);
}

int32_t bs_chart_ecdf(const json_t *rows, bs_chart *out, bs_error *err) {
  const char *names[SERIES];
  size_t begin[SERIES + 1];
  int32_t rc = bs_chart_begin(out, "ecdf", "Distribution of the samples", NULL, NULL, err);
  out->what =
      "A step line rises to the share of samples that took at most so long. Left is faster; a steep line is "
      "a steady "
      "time, a long tail to the right is disturbance. Discarded samples are left out.";
  out->fields = ecdf_fields;
  out->n_fields = sizeof ecdf_fields / sizeof ecdf_fields[0];
  const size_t n = rc == BS_OK ? series_of(rows, names, begin) : 0;
  for (size_t s = 0; rc == BS_OK && s < n; s++) rc = add_ecdf(rows, begin[s], begin[s + 1], out->data, err);
  if (rc == BS_OK && json_array_size(out->data) > 0) draw_ecdf(out->data, out->title, &out->svg);
  return bs_chart_end(out, rc, err);
}

/* Adds an even selection of each series' samples. */
static int32_t add_samples(const json_t *rows, size_t first, size_t last, json_t *data, bs_error *err) {
  const size_t n = last - first, shown = n < BS_SVG_POINTS ? n : BS_SVG_POINTS;
  for (size_t i = 0; i < shown; i++) {
    const json_t *row =
        json_array_get(rows, first + (n <= BS_SVG_POINTS ? i : i * (n - 1) / (BS_SVG_POINTS - 1)));
    json_t *one = json_pack("{s:s, s:b}", "series", bs_row_text(row, "series"), "discarded",
                            bs_row_true(row, "discarded"));
    bs_row_set(one, "at", bs_row_number(row, "at"));
    bs_row_set(one, "ms", bs_row_number(row, "seconds") * 1e3);
    if (one == NULL || json_array_append_new(data, one) != 0) return bs_no_memory(err, "samples");
  }
  return BS_OK;
}

static void draw_samples(const json_t *data, const char *title, bs_text *out) {
  const char *names[SERIES];
  size_t begin[SERIES + 1];
  const size_t n = series_of(data, names, begin);
  bs_svg svg;
  bs_svg_begin(&svg, out, WIDTH, HEIGHT, title);
  legend(&svg, names, 1, n);
  svg.x = bs_scale_of(BS_SCALE_LINEAR);
  svg.y = bs_scale_of(BS_SCALE_LOG10);
  for (size_t i = 0; i < json_array_size(data); i++) {
    bs_scale_fit(&svg.x, bs_row_number(json_array_get(data, i), "at"));
    bs_scale_fit(&svg.y, bs_row_number(json_array_get(data, i), "ms"));
  }
  bs_svg_axes(&svg, "sample, in the order of time", "ms a forward");
  for (size_t s = 0; s < n; s++) {
    for (size_t i = begin[s]; i < begin[s + 1]; i++) {
      const json_t *row = json_array_get(data, i);
      const int discarded = bs_row_true(row, "discarded");
      char css[32];
      snprintf(css, sizeof css, discarded ? "bad open" : "s%d fill", bs_series_colour(names[s]));
      bs_svg_dot(&svg, bs_row_number(row, "at"), bs_row_number(row, "ms"), discarded ? 3 : (int)(s % 3), css,
                 discarded ? "discarded" : NULL);
    }
  }
  bs_svg_end(&svg);
}

int32_t bs_chart_samples(const json_t *rows, bs_chart *out, bs_error *err) {
  const char *names[SERIES];
  size_t begin[SERIES + 1];
  int32_t rc = bs_chart_begin(out, "samples", "Samples in time", NULL, NULL, err);
  out->what =
      "Every sample in the order in which it was taken. A slope or a step is drift of the machine. A red "
      "diamond was "
      "discarded, with its partner, because the machine was disturbed.";
  out->fields = samples_fields;
  out->n_fields = sizeof samples_fields / sizeof samples_fields[0];
  const size_t n = rc == BS_OK ? series_of(rows, names, begin) : 0;
  for (size_t s = 0; rc == BS_OK && s < n; s++)
    rc = add_samples(rows, begin[s], begin[s + 1], out->data, err);
  if (rc == BS_OK && json_array_size(out->data) > 0) draw_samples(out->data, out->title, &out->svg);
  return bs_chart_end(out, rc, err);
}
