/* SPDX-License-Identifier: MIT
 * charts.c - the charts of a model: those of chart.h, and lines of row values over each size that varies. */
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/model.h"

enum { MOST_FACETS = 64, MOST_PEERS = 4, LEAST_PLACES = 3, MOST_OPEN = 6 };

void bs_charts_free(bs_chart *charts, size_t n) {
  for (size_t i = 0; charts != NULL && i < n; i++) bs_chart_free(&charts[i]);
  free(charts);
}

/* Takes the chart over; one with nothing to draw is freed. */
static int32_t keep(bs_chart *chart, bs_chart **charts, size_t *n, bs_error *err) {
  bs_chart *grown = chart->svg.size > 0 ? realloc(*charts, (*n + 1) * sizeof **charts) : NULL;
  if (grown == NULL) {
    const int drawn = chart->svg.size > 0;
    bs_chart_free(chart);
    return drawn ? bs_no_memory(err, "charts") : BS_OK;
  }
  *charts = grown;
  grown[(*n)++] = *chart;
  return BS_OK;
}

static const char *const what_lines =
    "A line is one way to split the layer; several runs at one place are their median, and the band is their "
    "spread "
    "or the 95 % interval. The thin dashed line of the same colour is the machine's limit.";
static const char *const what_error =
    "A line is one way to split the layer; several runs at one place are their median, and the band is their "
    "spread. The thin dashed line of the same colour is the error that the dtype and the shape predict.";
static const char *const what_plain =
    "A line is one way to split the layer; several runs at one place are their median, and the band is their "
    "spread.";

typedef struct axis {
  const char *key, *name, *facet;
} axis;
static const axis axes[] = {{"N", "N (output features)", "facet_N"},
                            {"B", "B (tokens)", "facet_B"},
                            {"K", "K (input features)", "facet_K"},
                            {"world_size", "P (ranks)", "facet_world_size"}};

/* A value that may be drawn over an axis; most: figures an axis. The scales are those of sizes and times. */
typedef struct measure {
  size_t most;
  const char *y, *title, *unit;
  double factor;
  const char *low, *high, *ceiling;
} measure;
static const measure measures[] = {
    {4, "gflops", "Throughput", "GFLOP/s", 0, "gflops_low", "gflops_high", "bound_gflops"},
    {4, "median_s", "Time", "ms", 1e3, "low_s", "high_s", "bound_s"},
    {2, "regions.allreduce", "Time of the exchange", "ms", 0, NULL, NULL, NULL},
    {2, "regions.layout_fix", "Time of the change of layout", "ms", 0, NULL, NULL, NULL},
    {2, "regions.backward", "Time of the backward pass", "ms", 0, NULL, NULL, NULL},
    {2, "forward_ns_per_byte", "Time of a forward over weight bytes", "ns/byte", 0, NULL, NULL, NULL},
    {2, "memory_peak_bytes", "Peak memory", "MiB", 1.0 / 1048576, NULL, NULL, NULL},
    {2, "weight_bytes_total", "Packed weights", "MiB", 1.0 / 1048576, NULL, NULL, NULL},
    {2, "relative_error", "Error of Y", "relative", 0, NULL, NULL, "relative_error_predicted"},
};

static const char *what_of(const measure *m) {
  if (m->ceiling == NULL) return what_plain;
  return strcmp(m->y, "relative_error") == 0 ? what_error : what_lines;
}

/* ---- facets: one figure for each setting of all that is neither series nor axis ---- */

typedef struct facet {
  const char *text;
  json_t *rows;
  double places[LEAST_PLACES]; /* different x, at most these */
  size_t n_places;
} facet;

static int by_size(const void *a, const void *b) {
  const facet *x = a, *y = b;
  const size_t n = json_array_size(x->rows), m = json_array_size(y->rows);
  return n != m ? (n < m) - (n > m) : strcmp(y->text, x->text); /* phase 1 before phase 0 */
}

static int usable(const json_t *row, const bs_lines_spec *spec) {
  const double y = bs_row_number(row, spec->y), x = bs_row_number(row, spec->x);
  return x > 0 && (y > 0 || (spec->y_scale == BS_SCALE_LINEAR && y == 0));
}

static void add_place(facet *f, double x) {
  size_t k = 0;
  while (k < f->n_places && f->places[k] != x) ++k;
  if (k == f->n_places && k < LEAST_PLACES) f->places[f->n_places++] = x;
}

static size_t split(const json_t *rows, const bs_lines_spec *spec, const char *key,
                    facet facets[MOST_FACETS]) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t *row = json_array_get(rows, i);
    const char *text = bs_row_text(row, key);
    size_t f = 0;
    if (!usable(row, spec)) continue;
    while (f < n && strcmp(facets[f].text, text) != 0) ++f;
    if (f == MOST_FACETS) continue;
    if (f == n) facets[n++] = (facet){.text = text, .rows = json_array()};
    add_place(&facets[f], bs_row_number(row, spec->x));
    json_array_append(facets[f].rows, row);
  }
  qsort(facets, n, sizeof *facets, by_size);
  return n;
}

int32_t bs_charts_add_lines(const json_t *rows, const bs_lines_spec *spec, const char *facet_key, size_t most,
                            bs_chart **charts, size_t *n, bs_error *err) {
  facet facets[MOST_FACETS];
  const size_t count = split(rows, spec, facet_key, facets);
  const size_t least = spec->least_places > 0 ? spec->least_places : LEAST_PLACES;
  size_t drawn = 0;
  int32_t rc = BS_OK;
  for (size_t f = 0; rc == BS_OK && f < count && drawn < most; f++) {
    bs_chart chart;
    if (facets[f].n_places < least) continue;
    rc = bs_chart_lines(facets[f].rows, spec, &chart, err);
    if (rc != BS_OK) break;
    snprintf(chart.title, sizeof chart.title, "%s%s%s", spec->title, facets[f].text[0] != '\0' ? ": " : "",
             facets[f].text);
    if (drawn > 0) snprintf(chart.id, sizeof chart.id, "%.40s-%d", spec->id, (int)(drawn + 1) % 1000);
    rc = keep(&chart, charts, n, err);
    ++drawn;
  }
  for (size_t f = 0; f < count; f++) json_decref(facets[f].rows);
  return rc;
}

static int32_t add_measure(const json_t *lines, const measure *m, bs_chart **charts, size_t *n,
                           bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t a = 0; rc == BS_OK && a < sizeof axes / sizeof axes[0]; a++) {
    const char *short_name = strcmp(axes[a].key, "world_size") == 0 ? "P" : axes[a].key;
    char title[96], id[48];
    snprintf(title, sizeof title, "%s over %s", m->title, short_name);
    snprintf(id, sizeof id, "%s-over-%s", m->y, short_name);
    for (char *dot = strchr(id, '.'); dot != NULL; dot = strchr(dot, '.')) *dot = '-';
    const bs_lines_spec spec = {.id = id,
                                .title = title,
                                .what = what_of(m),
                                .x = axes[a].key,
                                .x_name = axes[a].name,
                                .x_scale = BS_SCALE_LOG2,
                                .y_scale = BS_SCALE_LOG10,
                                .y = m->y,
                                .y_name = m->unit,
                                .factor = m->factor,
                                .low = m->low,
                                .high = m->high,
                                .ceiling = m->ceiling};
    rc = bs_charts_add_lines(lines, &spec, axes[a].facet, m->most, charts, n, err);
  }
  return rc;
}

/* Lines over something else than a size. */
static const struct {
  const char *facet;
  bs_lines_spec spec;
} over_others[] = {
    {"none",
     {.id = "bus-over-bytes",
      .title = "Bus bandwidth over the bytes of an exchange",
      .what = "What a rank sends in a forward, and how fast: busbw of nccl-tests. A rising line is latency, "
              "a flat "
              "one the rate of the wire. The time is the median of the exchange, waiting for the others "
              "included.",
      .x = "sent_bytes",
      .x_name = "bytes that a rank sends",
      .x_scale = BS_SCALE_LOG2,
      .y_scale = BS_SCALE_LOG10,
      .y = "bus_GBps",
      .y_name = "GB/s"}},
    {"sweep",
     {.id = "memory-over-points",
      .title = "Peak memory over the points of a sweep",
      .what = "Bytes of all ranks, in the order in which the sweep ran its points.",
      .x = "place",
      .x_name = "point, from 1",
      .x_scale = BS_SCALE_LINEAR,
      .y_scale = BS_SCALE_LOG10,
      .y = "memory_peak_bytes",
      .y_name = "MiB",
      .factor = 1.0 / 1048576}},
};

/* ---- the whole list ---- */

/* Does the first table say the same? It does where the chart has one or two marks. */
static int in_table(const bs_chart *chart) {
  return json_array_size(chart->data) < 3 &&
         (strcmp(chart->id, "forest") == 0 || strcmp(chart->id, "heat") == 0 ||
          strcmp(chart->id, "roofline") == 0);
}

static int32_t add(bs_chart_fn draw, const json_t *rows, bs_chart **charts, size_t *n, bs_error *err) {
  bs_chart chart;
  const int32_t rc = draw(rows, &chart, err);
  if (rc == BS_OK && in_table(&chart)) bs_text_free(&chart.svg);
  return rc == BS_OK ? keep(&chart, charts, n, err) : rc;
}

/* Ratios to different dense layers are different questions: a chart each, that of all cores first. */
static int32_t add_compared(bs_chart_fn draw, const json_t *comparisons, bs_chart **charts, size_t *n,
                            bs_error *err) {
  const bs_lines_spec every = {.x = "speedup", .y = "speedup"};
  facet facets[MOST_FACETS];
  const size_t count = split(comparisons, &every, "against", facets);
  int32_t rc = BS_OK;
  for (size_t f = 1; f < count; f++) {
    if (strcmp(facets[f].text, "dense, all cores") != 0) continue;
    const facet first = facets[f];
    memmove(&facets[1], &facets[0], f * sizeof *facets);
    facets[0] = first;
  }
  for (size_t f = 0; f < count; f++) {
    const size_t before = *n;
    if (rc == BS_OK && f < MOST_PEERS) rc = add(draw, facets[f].rows, charts, n, err);
    if (rc == BS_OK && *n > before) {
      bs_chart *chart = &(*charts)[before];
      char title[sizeof chart->title], id[sizeof chart->id], against[48];
      snprintf(title, sizeof title, "%.100s, against %.46s", chart->title,
               bs_against_words(facets[f].text, against, sizeof against));
      snprintf(id, sizeof id, "%.40s-%d", chart->id, (int)f + 1);
      memcpy(chart->title, title, sizeof title);
      if (f > 0) memcpy(chart->id, id, sizeof id);
    }
    json_decref(facets[f].rows);
  }
  return rc;
}

static int32_t add_sampled(const json_t *model, bs_chart **charts, size_t *n, bs_error *err) {
  static const bs_chart_fn both[] = {bs_chart_ecdf, bs_chart_samples};
  const json_t *all = json_object_get(model, "samples");
  int32_t rc = BS_OK;
  for (size_t i = 0; i < json_array_size(all); i++) {
    const json_t *one = json_array_get(all, i);
    static const char *const but[] = {"phase",  "arm",  "backend",    "comm",
                                      "launch", "host", "activation", NULL};
    char words[96];
    bs_row_words(json_object_get(one, "row"), ~0u, but, words, sizeof words);
    for (size_t k = 0; rc == BS_OK && k < 2; k++) {
      const size_t before = *n;
      rc = add(both[k], json_object_get(one, "rows"), charts, n, err);
      if (rc != BS_OK || *n == before) continue;
      bs_chart *chart = &(*charts)[before];
      const size_t used = strlen(chart->title);
      snprintf(chart->title + used, sizeof chart->title - used, ": %s", words);
      if (i > 0) snprintf(chart->id, sizeof chart->id, "%s-%d", k == 0 ? "ecdf" : "samples", (int)i + 1);
    }
  }
  return rc;
}

/* Six charts are open: the first of each kind that answers most, then the others in their order. */
static void open_first(bs_chart *charts, size_t n) {
  static const char *const kinds[] = {"forest", "heat", "gflops-over-", "regions", "roofline", "residual"};
  size_t open = 0;
  for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
    const size_t length = strlen(kinds[k]), whole = length + (kinds[k][length - 1] != '-');
    size_t i = 0;
    while (i < n && strncmp(charts[i].id, kinds[k], whole) != 0) ++i;
    if (i == n) continue;
    charts[i].open = 1;
    open++;
  }
  for (size_t i = 0; i < n && open < MOST_OPEN; i++) {
    open += !charts[i].open;
    charts[i].open = 1;
  }
}

int32_t bs_report_charts(const json_t *model, bs_chart **out_charts, size_t *out_n, bs_error *err) {
  const json_t *latest = json_object_get(model, "latest"), *lines = json_object_get(model, "lines");
  *out_charts = NULL;
  *out_n = 0;
  int32_t rc = add_compared(bs_chart_forest, json_object_get(model, "comparisons"), out_charts, out_n, err);
  if (rc == BS_OK)
    rc = add_compared(bs_chart_heat, json_object_get(model, "comparisons"), out_charts, out_n, err);
  for (size_t i = 0; rc == BS_OK && i < sizeof measures / sizeof measures[0]; i++)
    rc = add_measure(lines, &measures[i], out_charts, out_n, err);
  for (size_t i = 0; rc == BS_OK && i < sizeof over_others / sizeof over_others[0]; i++)
    rc = bs_charts_add_lines(lines, &over_others[i].spec, over_others[i].facet, 2, out_charts, out_n, err);
  if (rc == BS_OK) rc = add(bs_chart_roofline, lines, out_charts, out_n, err);
  if (rc == BS_OK) rc = add(bs_chart_regions, latest, out_charts, out_n, err);
  if (rc == BS_OK) rc = add(bs_chart_residual, json_object_get(model, "arms"), out_charts, out_n, err);
  if (rc == BS_OK) rc = add_sampled(model, out_charts, out_n, err);
  if (rc == BS_OK) open_first(*out_charts, *out_n);
  if (rc != BS_OK) {
    bs_charts_free(*out_charts, *out_n);
    *out_charts = NULL;
    *out_n = 0;
  }
  return rc;
}
