/* SPDX-License-Identifier: MIT
 * chart_heat.c - ratios as tiles, a row a method and a column a shape. UNCLEAR ratios are hatched, because
 * their colour decides nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/chart.h"

enum { WIDTH = 460, LABEL = 158, ROW = 32, MOST = 16, NAME = 96 };

static const bs_field fields[] = {
    {"line", "method", 0, 0},     {"shape", "shape", 0, 0},
    {"against", "against", 0, 0}, {"speedup", "speedup", BS_FIELD_RIGHT, 4},
    {"word", "verdict", 0, 0},
};

/* Takes measured ratios; against: the comparison of the first of them, so that all tiles have the same
 * one. */
static int32_t make_data(const json_t *rows, json_t *data, bs_error *err) {
  static const char *const shapes[] = {"method", "mask",   "arm",  "origin",           "backend",
                                       "comm",   "launch", "host", "threads_per_rank", NULL};
  static const char *const lines[] = {"N", "K", "B", "dtype", "phase", "world_size", "activation", NULL};
  const uint32_t differ = bs_rows_differ(rows);
  const char *against = NULL;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    char line[NAME], shape[NAME];
    if (isnan(bs_row_number(row, "speedup")) || bs_row_true(row, "simulated")) continue;
    if (against == NULL) against = bs_row_text(row, "against");
    if (strcmp(against, bs_row_text(row, "against")) != 0) continue;
    bs_row_words(row, differ, lines, line, sizeof line);
    bs_row_words(row, differ, shapes, shape, sizeof shape);
    json_t *one = json_pack(
        "{s:s, s:s, s:s, s:s}", "line", line[0] != '\0' ? line : bs_row_text(row, "method"), "shape",
        shape[0] != '\0' ? shape : "all", "against", against, "word", bs_row_text(row, "speedup_word"));
    bs_row_set(one, "speedup", bs_row_number(row, "speedup"));
    if (one == NULL || json_array_append_new(data, one) != 0) return bs_no_memory(err, "a heat map");
  }
  return BS_OK;
}

/* The different texts of a key, in order, at most MOST; their number. */
static size_t names_of(const json_t *data, const char *key, const char *out[MOST]) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(data); i++) {
    const char *text = bs_row_text(json_array_get(data, i), key);
    size_t k = 0;
    while (k < n && strcmp(out[k], text) != 0) ++k;
    if (k == n && n < MOST) out[n++] = text;
  }
  return n;
}

static size_t place_of(const char *const *names, size_t n, const char *text) {
  size_t k = 0;
  while (k < n && strcmp(names[k], text) != 0) ++k;
  return k;
}

/* Diagonal lines within a rectangle. */
static void hatch(bs_svg *svg, double x, double y, double wide, double high) {
  bs_text_printf(svg->out, "<path class=\"hatching\" d=\"");
  for (int i = 1; 8 * i < wide + high; i++) {
    const double d = 8.0 * i;
    bs_text_printf(svg->out, "M%.1f %.1fL%.1f %.1f", x + (d > high ? d - high : 0), y + (d > high ? high : d),
                   x + (d > wide ? wide : d), y + (d > wide ? d - wide : 0));
  }
  bs_text_printf(svg->out, "\"/>\n");
}

static void tile(bs_svg *svg, const json_t *row, double x, double y, double wide) {
  const double ratio = bs_row_number(row, "speedup"), size = fabs(log2(ratio));
  const int depth = size < 0.02 ? 0 : size < 0.15 ? 1 : size < 0.5 ? 2 : size < 1 ? 3 : 4;
  const char *word = bs_row_text(row, "word");
  char css[32], text[160];
  snprintf(css, sizeof css, "%s tile%d", depth == 0 ? "none" : ratio > 1 ? "good" : "bad", depth);
  snprintf(text, sizeof text, "%.60s, %.60s: %.3g %.16s", bs_row_text(row, "line"), bs_row_text(row, "shape"),
           ratio, word);
  bs_svg_bar(svg, x + 1, y + 1, wide - 2, ROW - 2, css, text);
  if (strcmp(word, "UNCLEAR") == 0) hatch(svg, x + 1, y + 1, wide - 2, ROW - 2);
  snprintf(text, sizeof text, "%.3g", ratio);
  if (wide >= 30) bs_svg_text(svg, x + wide / 2, y + ROW / 2.0 + 4, "middle", "label", text);
}

/* Rotates names of columns if there is little room. */
static void column_name(bs_svg *svg, double x, double y, const char *name, int turned) {
  if (!turned) {
    bs_svg_text(svg, x, y, "middle", "soft", name);
    return;
  }
  bs_text_printf(svg->out, "<g transform=\"translate(%.1f %.1f) rotate(-50)\">\n", x + 4, y);
  bs_svg_text(svg, 0, 0, "start", "soft", name);
  bs_text_printf(svg->out, "</g>\n");
}

static void draw(const json_t *data, const char *title, bs_text *out) {
  const char *lines[MOST], *shapes[MOST];
  const size_t n_lines = names_of(data, "line", lines), n_shapes = names_of(data, "shape", shapes);
  size_t longest = 0;
  for (size_t i = 0; i < n_shapes; i++)
    if (strlen(shapes[i]) > longest) longest = strlen(shapes[i]);
  double wide = (WIDTH - LABEL - 40) / (double)n_shapes;
  if (wide > 110) wide = 110;
  const int turned = 7 * (double)longest > wide;
  const double top = turned ? 5.6 * (double)longest + 20 : 30;
  bs_svg svg;
  bs_svg_begin(&svg, out, WIDTH, top + ROW * (double)n_lines + 12, title);
  for (size_t i = 0; i < n_shapes; i++)
    column_name(&svg, LABEL + wide * ((double)i + 0.5), top - 8, shapes[i], turned);
  for (size_t i = 0; i < n_lines; i++) {
    bs_svg_label(&svg, LABEL - 8, top + ROW * ((double)i + 0.5) + 4, "end", 24, lines[i]);
  }
  for (size_t i = json_array_size(data); i-- > 0;) { /* the first of a tile, the newest, is drawn last */
    const json_t *row = json_array_get(data, i);
    const size_t l = place_of(lines, n_lines, bs_row_text(row, "line")),
                 s = place_of(shapes, n_shapes, bs_row_text(row, "shape"));
    if (l < n_lines && s < n_shapes) tile(&svg, row, LABEL + wide * (double)s, top + ROW * (double)l, wide);
  }
  bs_svg_end(&svg);
}

int32_t bs_chart_heat(const json_t *rows, bs_chart *out, bs_error *err) {
  int32_t rc = bs_chart_begin(out, "heat", "Speedup by method and shape", rows, NULL, err);
  out->what =
      "A tile is a speedup: green where the method is faster, red where it is slower. Hatched means UNCLEAR: "
      "the measurement does not decide. An empty place was not measured.";
  out->fields = fields;
  out->n_fields = sizeof fields / sizeof fields[0];
  if (rc == BS_OK) rc = make_data(rows, out->data, err);
  if (rc == BS_OK && json_array_size(out->data) > 1) draw(out->data, out->title, &out->svg);
  return bs_chart_end(out, rc, err);
}
