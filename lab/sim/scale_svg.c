/* SPDX-License-Identifier: MIT
 * scale_svg.c - see scale_svg.h. Bars are stacked; all panels share one axis of time, from zero. */
#include "lab/sim/scale_svg.h"

#include <string.h>

#include "lab/report/chart.h"

enum { BAR = 34, GAP = 14, PANEL_GAP = 60, WIDTH = 760, HEIGHT = 420, EDGES = 90 };

static const struct {
  const char *key, *name;
  int colour;
} terms[] = {{"compute_us", "compute", 0},       {"memory_us", "memory", 6},
             {"launch_us", "launch", 4},         {"wire_latency_us", "wire latency", 5},
             {"wire_bytes_us", "wire bytes", 1}, {"wait_us", "wait", 3}};
enum { TERMS = sizeof terms / sizeof terms[0] };

static void draw_bar(bs_svg *svg, const json_t *row, double x) {
  char text[96], css[16];
  double sum = 0;
  for (int t = 0; t < TERMS; ++t) {
    const double us = bs_row_number(row, terms[t].key);
    if (!(us > 0)) continue;
    const double foot = bs_scale_at(&svg->y, sum), head = bs_scale_at(&svg->y, sum + us);
    snprintf(text, sizeof text, "%s: %.3f us", terms[t].name, us);
    snprintf(css, sizeof css, "p%d fill", terms[t].colour);
    bs_svg_bar(svg, x, head, BAR, foot - head, css, text);
    sum += us;
  }
  bs_svg_number(text, bs_row_number(row, "simulated_us"));
  bs_svg_text(svg, x + BAR / 2.0, bs_scale_at(&svg->y, sum) - 4, "middle", "name", text);
  snprintf(text, sizeof text, "%.0f", bs_row_number(row, "world_size"));
  bs_svg_text(svg, x + BAR / 2.0, svg->bottom + 16, "middle", "soft", text);
}

/* Is row i the first of its method? */
static int begins(const json_t *rows, size_t i) {
  return i == 0 || strcmp(bs_row_text(json_array_get(rows, i), "method"),
                          bs_row_text(json_array_get(rows, i - 1), "method")) != 0;
}

static void draw(const json_t *rows, const char *title, bs_text *out) {
  const char *names[TERMS];
  int colours[TERMS];
  const size_t n = json_array_size(rows);
  size_t panels = 0;
  bs_svg svg;
  for (size_t i = 0; i < n; ++i) panels += (size_t)begins(rows, i);
  const double width = EDGES + (double)n * (BAR + GAP) + (double)panels * PANEL_GAP;
  bs_svg_begin(&svg, out, width > WIDTH ? width : WIDTH, HEIGHT, title);
  bs_svg_text(&svg, 4, svg.top, "start", "name", title);
  svg.top += 2 * GAP;
  for (int t = 0; t < TERMS; ++t) {
    names[t] = terms[t].name;
    colours[t] = terms[t].colour;
  }
  bs_svg_legend(&svg, 'p', names, colours, NULL, TERMS);
  svg.y = bs_scale_of(BS_SCALE_LINEAR);
  bs_scale_fit(&svg.y, 0);
  for (size_t i = 0; i < n; ++i) bs_scale_fit(&svg.y, bs_row_number(json_array_get(rows, i), "simulated_us"));
  bs_svg_axes(&svg, NULL, "us");
  double x = svg.left + GAP;
  for (size_t i = 0; i < n; ++i) {
    const json_t *row = json_array_get(rows, i);
    if (begins(rows, i) && i > 0) x += PANEL_GAP;
    if (begins(rows, i)) bs_svg_text(&svg, x, svg.bottom + 34, "start", "name", bs_row_text(row, "method"));
    draw_bar(&svg, row, x);
    x += BAR + GAP;
  }
  bs_svg_end(&svg);
}

int bs_scale_svg(FILE *out, const json_t *rows, const char *title) {
  bs_text chart = {0}, file = {0};
  draw(rows, title, &chart);
  if (!chart.failed) bs_svg_document(&file, chart.data);
  const int wrong = chart.failed || file.failed || fwrite(file.data, 1, file.size, out) != file.size;
  bs_text_free(&chart);
  bs_text_free(&file);
  return wrong || ferror(out) ? -1 : 0;
}
