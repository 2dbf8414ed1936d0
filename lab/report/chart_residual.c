/* SPDX-License-Identifier: MIT
 * chart_residual.c - measured times compared with earlier ones: the prediction of the same run, and the
 * simulated time of the same layer if a simulated run is among the rows. A residual is the error of the
 * prediction, in percent of the measured time; it is not a speed-up. A simulated time has no residual: the
 * rows do not show whether the simulated machine is the measured one. */
#include <math.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/chart.h"

enum { WIDTH = 420, ROW = 34, LEFT = 18, NAME = 54, MOST = 16 };

static const bs_field fields[] = {
    {"label", "what", 0, 0},
    {"measured_ms", "measured ms", BS_FIELD_RIGHT, 4},
    {"predicted_ms", "predicted ms", BS_FIELD_RIGHT, 4},
    {"residual", "predicted: off by %", BS_FIELD_RIGHT, 3},
    {"simulated_ms", "simulated ms", BS_FIELD_RIGHT, 4},
    {"machine", "simulated machine", 0, 0},
};

static int same_layer(const json_t *a, const json_t *b) {
  static const char *const keys[] = {"method", "phase",      "N",    "K",         "B",
                                     "dtype",  "world_size", "mask", "activation"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    const json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
    if ((json_is_null(x) ? NULL : x) == NULL && (json_is_null(y) ? NULL : y) == NULL) continue;
    if (x == NULL || y == NULL || !json_equal(x, y)) return 0;
  }
  return 1;
}

static const json_t *simulated_of(const json_t *simulated, const json_t *row) {
  const char *arm = bs_row_text(row, "arm");
  if (arm[0] != '\0' && strcmp(arm, "method") != 0) return NULL;
  for (size_t i = 0; i < json_array_size(simulated); i++)
    if (same_layer(json_array_get(simulated, i), row)) return json_array_get(simulated, i);
  return NULL;
}

static json_t *one_of(const json_t *row, const json_t *simulated, const char *label) {
  const double measured = bs_row_number(row, "median_s"), predicted = bs_row_number(row, "predicted_s"),
               other = simulated != NULL ? bs_row_number(simulated, "median_s") : NAN;
  json_t *one = json_pack("{s:s, s:s}", "label", label, "machine",
                          simulated != NULL ? bs_row_text(simulated, "backend") : "");
  bs_row_set(one, "measured_ms", measured * 1e3);
  bs_row_set(one, "predicted_ms", predicted * 1e3);
  bs_row_set(one, "residual", 100 * (predicted / measured - 1));
  bs_row_set(one, "simulated_ms", other * 1e3);
  return one;
}

static int is_dense(const json_t *row) {
  return strncmp(bs_row_text(row, "arm"), "dense, ", 7) == 0;
}

/* The settings in which the layers differ that have no dense layer's name, which says its ranks and threads.
 */
static uint32_t differ_of(const json_t *rows) {
  json_t *own = json_array();
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t *row = json_array_get(rows, i);
    if (!is_dense(row) && bs_row_number(row, "median_s") > 0) json_array_append(own, row);
  }
  const uint32_t differ = bs_rows_differ(own) | BS_ROW_METHOD;
  json_decref(own);
  return differ;
}

static void label_of(const json_t *row, uint32_t differ, char *out, size_t size) {
  static const char *const but[] = {"method", "arm", "mask", "world_size", "threads_per_rank", NULL};
  char words[120];
  bs_row_words(row, differ, is_dense(row) ? but : NULL, words, sizeof words);
  if (!is_dense(row))
    snprintf(out, size, "%s", words);
  else
    snprintf(out, size, "%s%s%s", bs_row_text(row, "arm"), words[0] != '\0' ? ", " : "", words);
}

static int32_t make_data(const json_t *rows, json_t *data, bs_error *err) {
  const uint32_t differ = differ_of(rows);
  int32_t rc = BS_OK;
  json_t *simulated = json_array();
  for (size_t i = 0; i < json_array_size(rows); i++)
    if (bs_row_true(json_array_get(rows, i), "simulated"))
      json_array_append(simulated, json_array_get(rows, i));
  for (size_t i = 0; rc == BS_OK && i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    char label[200];
    if (bs_row_true(row, "simulated") || !(bs_row_number(row, "median_s") > 0)) continue;
    const json_t *twin = simulated_of(simulated, row);
    if (twin == NULL && !(bs_row_number(row, "predicted_s") > 0)) continue;
    label_of(row, differ, label, sizeof label);
    json_t *one = one_of(row, twin, label);
    if (one == NULL || json_array_append_new(data, one) != 0) rc = bs_no_memory(err, "a chart of residuals");
  }
  json_decref(simulated);
  return rc;
}

static void mark(bs_svg *svg, const json_t *row, const char *key, double y, const char *css,
                 const char *name) {
  const double x = bs_scale_at(&svg->x, bs_row_number(row, key));
  char tip[96];
  if (isnan(x)) return;
  snprintf(tip, sizeof tip, "%s: %.4g ms", name, bs_row_number(row, key));
  bs_svg_bar(svg, x - 4, y - 4, 8, 8, css, tip);
}

static void draw_row(bs_svg *svg, const json_t *row, double y) {
  const double measured = bs_scale_at(&svg->x, bs_row_number(row, "measured_ms")),
               predicted = bs_scale_at(&svg->x, bs_row_number(row, "predicted_ms"));
  const double off = bs_row_number(row, "residual");
  char text[96];
  bs_svg_label(svg, LEFT, y - 3, "start", NAME, bs_row_text(row, "label"));
  y += 7;
  if (!isnan(predicted)) bs_svg_rule(svg, measured, y, predicted, y, "none line thin");
  mark(svg, row, "measured_ms", y, "p0 fill", "measured");
  mark(svg, row, "predicted_ms", y, "p1 open", "predicted");
  mark(svg, row, "simulated_ms", y, "p5 open", "simulated");
  if (isnan(off)) return;
  snprintf(text, sizeof text, "%+.0f %%", off);
  bs_svg_text(svg, svg->right, y - 10, "end", "soft label", text);
}

static void draw(const json_t *data, const char *title, bs_text *out) {
  static const char *const names[] = {"measured", "predicted", "simulated"}, *const keys[] = {"measured_ms",
                                                                                              "predicted_ms",
                                                                                              "simulated_ms"};
  static const int colours[] = {0, 1, 5};
  const size_t all = json_array_size(data), n = all < MOST ? all : MOST;
  bs_svg svg;
  bs_svg_begin(&svg, out, WIDTH, 92 + ROW * (double)n, title);
  svg.left = LEFT;
  bs_svg_legend(&svg, 'p', names, colours, NULL, 3);
  svg.x = bs_scale_of(BS_SCALE_LOG10);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < 3; k++) bs_scale_fit(&svg.x, bs_row_number(json_array_get(data, i), keys[k]));
  bs_svg_axes(&svg, "ms a forward", NULL);
  for (size_t i = 0; i < n; i++) draw_row(&svg, json_array_get(data, i), svg.top + ROW * ((double)i + 0.5));
  bs_svg_more(&svg, n, all);
  bs_svg_end(&svg);
}

int32_t bs_chart_residual(const json_t *rows, bs_chart *out, bs_error *err) {
  int32_t rc = bs_chart_begin(out, "residual", "Measured beside predicted and simulated", rows, NULL, err);
  out->what =
      "Filled: measured. Hollow: what the run predicted from the kernel's rates, and the time of the same "
      "layer on a simulated machine, which may be another one. The number is the error of the prediction, in "
      "percent of the measured time.";
  out->fields = fields;
  out->n_fields = sizeof fields / sizeof fields[0];
  if (rc == BS_OK) rc = make_data(rows, out->data, err);
  if (rc == BS_OK && json_array_size(out->data) > 0) draw(out->data, out->title, &out->svg);
  return bs_chart_end(out, rc, err);
}
