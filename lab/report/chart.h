/* SPDX-License-Identifier: MIT
 * chart.h - charts of a report. Each is a pure function: rows (those of bs_runs_index, lab/store/read.h;
 * newest first) give data, an array of flat objects that is also shown as a table, and the data give an SVG.
 * If the rows have nothing to draw, the data and the text are empty. */
#ifndef BS_LAB_REPORT_CHART_H
#define BS_LAB_REPORT_CHART_H
#include <jansson.h>

#include "core/base/text.h"
#include "lab/report/report.h"
#include "lab/report/svg.h"

typedef struct bs_chart {
  char id[48];            /* also the name of its file */
  char title[160];        /* with the settings that all its rows share */
  const char *what;       /* sentences: the meaning of the chart, and how to read it */
  const bs_field *fields; /* of the data */
  size_t n_fields;
  json_t *data;
  bs_text svg;
  int open; /* the page shows it open; it folds the others */
} bs_chart;
void bs_chart_free(bs_chart *chart);

/* Charts that need only rows. out: emptied by bs_chart_free. BS_NO_MEMORY. */
typedef int32_t (*bs_chart_fn)(const json_t *rows, bs_chart *out, bs_error *err);
int32_t bs_chart_forest(const json_t *rows, bs_chart *out, bs_error *err);   /* ratios with intervals */
int32_t bs_chart_regions(const json_t *rows, bs_chart *out, bs_error *err);  /* time by region */
int32_t bs_chart_heat(const json_t *rows, bs_chart *out, bs_error *err);     /* ratios: method x shape */
int32_t bs_chart_residual(const json_t *rows, bs_chart *out, bs_error *err); /* measured against predicted */
int32_t bs_chart_roofline(const json_t *rows, bs_chart *out, bs_error *err);

/* The charts of one run's samples: rows {series, seconds, discarded (bool), at (place in time, from 0)}. */
int32_t bs_chart_ecdf(const json_t *rows, bs_chart *out, bs_error *err);
int32_t bs_chart_samples(const json_t *rows, bs_chart *out, bs_error *err);

/* Lines over one field: y of each row over x, a line a series. Several rows at one x are one point, their
 * median, with a band from the least to the largest; or, if `low` and `high` are given, between the medians
 * of those. */
typedef struct bs_lines_spec {
  const char *id, *title, *what;
  const char *x, *x_name;
  enum bs_scale_kind x_scale, y_scale;
  const char *y, *y_name; /* fields of a row; "a.b": b of the object a */
  double factor;          /* y is multiplied by it; 0: 1 */
  const char *low, *high; /* NULL: none */
  size_t least_places;    /* of x that a chart in a list of charts needs; 0: 3 */
  const char *ceiling;    /* a limit, drawn dashed in addition to the line. NULL: none */
} bs_lines_spec;
/* Rows without y or x are left out. Fields that differ among the rows beyond x are part of a series' name. */
int32_t bs_chart_lines(const json_t *rows, const bs_lines_spec *spec, bs_chart *out, bs_error *err);

/* ---- shared parts of charts ---- */
double bs_row_number(const json_t *row, const char *path);   /* NaN: null, absent, no number */
const char *bs_row_text(const json_t *row, const char *key); /* "": null, absent, no text */
int bs_row_true(const json_t *row, const char *key);
/* The colour of a series by the method or dense layer that it begins with: the same in all charts and
 * reports. */
int bs_series_colour(const char *series);
/* A mask as everything that is drawn and printed spells it: 1100/0011. out may not overlap. Returns out. */
const char *bs_mask_words(const char *mask, char *out, size_t size);
/* Median of n > 0 numbers; sorts them. */
double bs_median_of(double *values, size_t n);
/* The settings in which rows differ, as bits for bs_row_words. */
enum { BS_ROW_METHOD = 1u << 0, BS_ROW_SIMULATED = 1u << 16 };
uint32_t bs_rows_differ(const json_t *rows);
int bs_rows_square(const json_t *rows); /* N = K in all rows */
/* "blockshock, N 4096, B 64, bf16, P 2": those settings of a row that are in `which` (bits), without the keys
 * in `but` (NULL: none; else NULL-terminated). */
void bs_row_words(const json_t *row, uint32_t which, const char *const *but, char *out, size_t size);
/* Empties out, names it, and makes its data an empty array; title: with the settings that all rows share. */
int32_t bs_chart_begin(bs_chart *out, const char *id, const char *title, const json_t *rows,
                       const char *const *but, bs_error *err);
/* Ends a chart function: rc, or BS_NO_MEMORY if the text or the data are incomplete. Frees on errors. */
int32_t bs_chart_end(bs_chart *chart, int32_t rc, bs_error *err);
void bs_row_set(json_t *row, const char *key, double value); /* null for a value that is not finite */
#endif
