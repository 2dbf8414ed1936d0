/* SPDX-License-Identifier: MIT
 * chart_roofline.c - one roofline for all machines, dtypes and numbers of ranks: both axes are in units of
 * the ridge. x is the compute bound over the memory bound (FLOPs a byte over those at which both limits are
 * equal), y the rate over the limit of arithmetic; so the ceilings are y = 1 and y = x. */
#include <math.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/chart.h"

enum { WIDTH = 460, HEIGHT = 300, MOST = 200, NAMES = 8 };

static const bs_field fields[] = {
    {"label", "what", 0, 0},
    {"method", "method", 0, 0},
    {"intensity", "FLOPs/byte over the ridge's", BS_FIELD_RIGHT, 4},
    {"rate", "share of the compute limit", BS_FIELD_RIGHT, 4},
    {"gflops", "GFLOP/s", BS_FIELD_RIGHT, 4},
    {"compute_gflops", "compute limit GFLOP/s", BS_FIELD_RIGHT, 4},
    {"memory_gflops", "memory limit GFLOP/s", BS_FIELD_RIGHT, 4},
};

static int32_t make_data(const json_t *rows, json_t *data, bs_error *err) {
  const uint32_t differ = bs_rows_differ(rows);
  for (size_t i = 0; i < json_array_size(rows) && json_array_size(data) < MOST; i++) {
    const json_t *row = json_array_get(rows, i);
    const double compute = bs_row_number(row, "bound_compute_s"),
                 memory = bs_row_number(row, "bound_memory_s"), median = bs_row_number(row, "median_s"),
                 flops = bs_row_number(row, "flops") / 1e9;
    char label[120];
    if (!(compute > 0) || !(memory > 0) || !(median > 0) || bs_row_true(row, "simulated")) continue;
    bs_row_words(row, differ, NULL, label, sizeof label);
    const char *arm = bs_row_text(row, "arm");
    const int of_method = arm[0] == '\0' || strcmp(arm, "method") == 0;
    json_t *one =
        json_pack("{s:s, s:s}", "label", label, "method", of_method ? bs_row_text(row, "method") : arm);
    bs_row_set(one, "intensity", compute / memory);
    bs_row_set(one, "rate", compute / median);
    bs_row_set(one, "gflops", flops / median);
    bs_row_set(one, "compute_gflops", flops / compute);
    bs_row_set(one, "memory_gflops", flops / memory);
    if (one == NULL || json_array_append_new(data, one) != 0) return bs_no_memory(err, "a roofline");
  }
  return BS_OK;
}

static size_t methods_of(const json_t *data, const char *names[NAMES], int colours[NAMES],
                         int shapes[NAMES]) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(data); i++) {
    const char *name = bs_row_text(json_array_get(data, i), "method");
    size_t k = 0;
    while (k < n && strcmp(names[k], name) != 0) ++k;
    if (k < n || n == NAMES) continue;
    names[n] = name;
    colours[n] = bs_series_colour(name);
    shapes[n] = 0;
    for (k = 0; k < n; k++) shapes[n] += colours[k] == colours[n];
    ++n;
  }
  return n;
}

static void ceilings(bs_svg *svg) {
  const bs_svg_point memory[] = {{svg->x.low, svg->x.low, 0, 0}, {1, 1, 0, 0}},
                     compute[] = {{1, 1, 0, 0}, {svg->x.high, 1, 0, 0}};
  bs_svg_line(svg, memory, 2, "none line");
  bs_svg_line(svg, compute, 2, "none line");
  if (svg->x.high > 1)
    bs_svg_text(svg, svg->right - 10, bs_scale_at(&svg->y, 1) - 6, "end", "soft", "arithmetic");
  if (svg->x.low < 1)
    bs_svg_text(svg, bs_scale_at(&svg->x, 1) - 12, bs_scale_at(&svg->y, 1) - 6, "end", "soft", "memory");
}

static void draw(const json_t *data, const char *title, bs_text *out) {
  const char *names[NAMES];
  int colours[NAMES] = {0}, shapes[NAMES] = {0};
  const size_t n = methods_of(data, names, colours, shapes);
  bs_svg svg;
  bs_svg_begin(&svg, out, WIDTH, HEIGHT, title);
  svg.x = bs_scale_of(BS_SCALE_LOG10);
  svg.y = bs_scale_of(BS_SCALE_LOG10);
  bs_scale_fit(&svg.x, 0.5);
  bs_scale_fit(&svg.x, 2);
  bs_scale_fit(&svg.y, 1.5);
  for (size_t i = 0; i < json_array_size(data); i++) {
    bs_scale_fit(&svg.x, bs_row_number(json_array_get(data, i), "intensity"));
    bs_scale_fit(&svg.y, bs_row_number(json_array_get(data, i), "rate"));
  }
  bs_svg_legend(&svg, 's', names, colours, shapes, n);
  bs_svg_axes(&svg, "FLOPs a byte, over the ridge's", "rate over the compute limit");
  ceilings(&svg);
  for (size_t i = 0; i < json_array_size(data); i++) {
    const json_t *row = json_array_get(data, i);
    size_t k = 0;
    char css[16], tip[200];
    while (k + 1 < n && strcmp(names[k], bs_row_text(row, "method")) != 0) ++k;
    snprintf(css, sizeof css, "s%d fill", colours[k] % BS_SVG_COLOURS);
    snprintf(tip, sizeof tip, "%.120s: %.4g GFLOP/s", bs_row_text(row, "label"),
             bs_row_number(row, "gflops"));
    bs_svg_dot(&svg, bs_row_number(row, "intensity"), bs_row_number(row, "rate"), shapes[k], css, tip);
  }
  bs_svg_end(&svg);
}

int32_t bs_chart_roofline(const json_t *rows, bs_chart *out, bs_error *err) {
  int32_t rc = bs_chart_begin(out, "roofline", "Roofline", rows, NULL, err);
  out->what =
      "A mark is one measurement. The lines are the machine's limits: memory (rising) and arithmetic (flat); "
      "they "
      "meet at 1. A mark far below both is limited by something else: the exchange, the host, or the kernel.";
  out->fields = fields;
  out->n_fields = sizeof fields / sizeof fields[0];
  if (rc == BS_OK) rc = make_data(rows, out->data, err);
  if (rc == BS_OK && json_array_size(out->data) > 0) draw(out->data, out->title, &out->svg);
  return bs_chart_end(out, rc, err);
}
