/* SPDX-License-Identifier: MIT
 * chart_forest.c - ratios with their intervals, one row a comparison. The line at 1 is "as fast as the dense
 * layer". */
#include <math.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/chart.h"

/* Each row has its name in one line and its mark in the next, so that both can be read on a telephone. */
enum { WIDTH = 420, ROW = 34, LEFT = 18, NAME = 44, MOST = 24 };

static const bs_field fields[] = {
    {"label", "what", 0, 0},
    {"against", "against", 0, 0},
    {"speedup", "speedup", BS_FIELD_RIGHT, 4},
    {"low", "low", BS_FIELD_RIGHT, 4},
    {"high", "high", BS_FIELD_RIGHT, 4},
    {"word", "verdict", 0, 0},
    {"run", "run", BS_FIELD_WIDE, 0},
};

static int32_t make_data(const json_t *rows, json_t *data, bs_error *err) {
  const uint32_t differ = bs_rows_differ(rows);
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    char label[120];
    if (isnan(bs_row_number(row, "speedup"))) continue;
    bs_row_words(row, differ, NULL, label, sizeof label);
    const int simulated = bs_row_true(row, "simulated");
    json_t *one =
        json_pack("{s:s, s:s, s:s, s:s, s:b}", "label", label[0] != '\0' ? label : bs_row_text(row, "method"),
                  "against", bs_row_text(row, "against"), "word",
                  simulated ? "simulated" : bs_row_text(row, "speedup_word"), "run", bs_row_text(row, "run"),
                  "simulated", simulated);
    bs_row_set(one, "speedup", bs_row_number(row, "speedup"));
    bs_row_set(one, "low", bs_row_number(row, "speedup_low"));
    bs_row_set(one, "high", bs_row_number(row, "speedup_high"));
    if (one == NULL || json_array_append_new(data, one) != 0) return bs_no_memory(err, "a chart of ratios");
  }
  return BS_OK;
}

static const char *colour_of(const char *word) {
  return strcmp(word, "FASTER") == 0 ? "good" : strcmp(word, "SLOWER") == 0 ? "bad" : "none";
}

static void draw_row(bs_svg *svg, const json_t *row, double y) {
  const double x = bs_scale_at(&svg->x, bs_row_number(row, "speedup")),
               low = bs_scale_at(&svg->x, bs_row_number(row, "low")),
               high = bs_scale_at(&svg->x, bs_row_number(row, "high"));
  const char *word = bs_row_text(row, "word"), *colour = colour_of(word);
  char text[96], css[32];
  bs_svg_label(svg, LEFT, y - 3, "start", NAME, bs_row_text(row, "label"));
  y += 7;
  snprintf(css, sizeof css, "%s line", colour);
  if (!isnan(low) && !isnan(high)) bs_svg_rule(svg, low, y, high, y, css);
  snprintf(css, sizeof css, "%s %s", colour,
           bs_row_true(row, "simulated") || colour[0] == 'n' ? "open" : "fill");
  snprintf(text, sizeof text, "%.3g [%.3g, %.3g] against %.40s", bs_row_number(row, "speedup"),
           bs_row_number(row, "low"), bs_row_number(row, "high"), bs_row_text(row, "against"));
  bs_svg_bar(svg, x - 4, y - 4, 8, 8, css, text);
  snprintf(css, sizeof css, "%s label", colour);
  snprintf(text, sizeof text, "%.3g %.16s", bs_row_number(row, "speedup"), word);
  bs_svg_text(svg, svg->right, y - 10, "end", colour[0] == 'n' ? "soft label" : css, text);
}

static void draw(const json_t *data, const char *title, bs_text *out) {
  const size_t all = json_array_size(data), n = all < MOST ? all : MOST;
  bs_svg svg;
  bs_svg_begin(&svg, out, WIDTH, 66 + ROW * (double)n, title);
  svg.left = LEFT;
  svg.x = bs_scale_of(BS_SCALE_LOG10);
  bs_scale_fit(&svg.x, 0.8);
  bs_scale_fit(&svg.x, 1.25);
  for (size_t i = 0; i < n; i++) {
    static const char *const fitted[] = {"speedup", "low", "high"};
    for (size_t k = 0; k < 3; k++) bs_scale_fit(&svg.x, bs_row_number(json_array_get(data, i), fitted[k]));
  }
  bs_svg_axes(&svg, "speedup; right of 1 is faster", NULL);
  const double one = bs_scale_at(&svg.x, 1);
  bs_svg_rule(&svg, one, svg.top, one, svg.bottom, "one");
  for (size_t i = 0; i < n; i++) draw_row(&svg, json_array_get(data, i), svg.top + ROW * ((double)i + 0.5));
  bs_svg_more(&svg, n, all);
  bs_svg_end(&svg);
}

int32_t bs_chart_forest(const json_t *rows, bs_chart *out, bs_error *err) {
  int32_t rc = bs_chart_begin(out, "forest", "Speedup", rows, NULL, err);
  out->what =
      "Speedup is the time of the layer that the title names, divided by the method's time. A square is the "
      "speedup, and the line is its 95 % interval. A hollow square decides nothing, or is simulated.";
  out->fields = fields;
  out->n_fields = sizeof fields / sizeof fields[0];
  if (rc == BS_OK) rc = make_data(rows, out->data, err);
  if (rc == BS_OK && json_array_size(out->data) > 0) draw(out->data, out->title, &out->svg);
  return bs_chart_end(out, rc, err);
}
