/* SPDX-License-Identifier: MIT
 * scale_svg.c - see scale_svg.h. Bars are stacked; all panels share one axis of time, from zero. */
#include "lab/sim/scale_svg.h"

#include <string.h>

enum {
  BAR = 34,
  GAP = 14,
  LEFT = 70,
  TOP = 64,
  HEIGHT = 300,
  PANEL_GAP = 60,
  LEGEND = 28,
  MOST_METHODS = 16
};

static const struct {
  const char *key, *name, *colour;
} terms[] = {{"compute_us", "compute", "#4477aa"},       {"memory_us", "memory", "#66ccee"},
             {"launch_us", "launch", "#bbbbbb"},         {"wire_latency_us", "wire latency", "#ccbb44"},
             {"wire_bytes_us", "wire bytes", "#ee6677"}, {"wait_us", "wait", "#aa3377"}};
enum { TERMS = sizeof terms / sizeof terms[0] };

static double number(const json_t *row, const char *key) {
  return json_number_value(json_object_get(row, key));
}

static const char *method_of(const json_t *row) {
  const char *name = json_string_value(json_object_get(row, "method"));
  return name != NULL ? name : "";
}

static void text(FILE *out, double x, double y, const char *anchor, const char *words) {
  fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
  for (; *words != '\0'; ++words) {
    if (*words == '<' || *words == '&')
      fputs(*words == '<' ? "&lt;" : "&amp;", out);
    else
      fputc(*words, out);
  }
  fputs("</text>\n", out);
}

static void bar(FILE *out, const json_t *row, double x, double most) {
  char label[32];
  double y = TOP + HEIGHT;
  for (int t = 0; t < TERMS; ++t) {
    const double h = most > 0 ? number(row, terms[t].key) / most * HEIGHT : 0;
    if (!(h > 0)) continue;
    y -= h;
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" fill=\"%s\"><title>%s: %.3f "
            "us</title></rect>\n",
            x, y, BAR, h, terms[t].colour, terms[t].name, number(row, terms[t].key));
  }
  snprintf(label, sizeof label, "%.4g", number(row, "simulated_us"));
  text(out, x + BAR / 2.0, y - 4, "middle", label);
  snprintf(label, sizeof label, "%.0f", number(row, "world_size"));
  text(out, x + BAR / 2.0, TOP + HEIGHT + 16, "middle", label);
}

static void axis(FILE *out, double most, double width) {
  for (int i = 0; i <= 4; ++i) {
    char label[32];
    const double y = TOP + HEIGHT - i * HEIGHT / 4.0;
    fprintf(out, "<line x1=\"%d\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n", LEFT, width, y,
            y);
    snprintf(label, sizeof label, "%.4g", most * i / 4);
    text(out, LEFT - 6, y + 4, "end", label);
  }
  text(out, LEFT - 6, TOP - 12, "end", "us");
}

static void legend(FILE *out) {
  double x = LEFT;
  for (int t = 0; t < TERMS; ++t) {
    fprintf(out, "<rect x=\"%.1f\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, LEGEND,
            terms[t].colour);
    text(out, x + 16, LEGEND + 11, "start", terms[t].name);
    x += 110;
  }
}

int bs_scale_svg(FILE *out, const json_t *rows, const char *title) {
  const size_t n = json_array_size(rows);
  double most = 0, x = LEFT + GAP;
  size_t panels = 1;
  for (size_t i = 0; i < n; ++i) {
    const double us = number(json_array_get(rows, i), "simulated_us");
    if (us > most) most = us;
    if (i > 0 && strcmp(method_of(json_array_get(rows, i)), method_of(json_array_get(rows, i - 1))) != 0)
      ++panels;
  }
  const double width = LEFT + 2 * GAP + (double)n * (BAR + GAP) + (double)(panels - 1) * PANEL_GAP,
               whole = width > 760 ? width : 760;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\" font-family=\"sans-serif\" "
          "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
          whole, TOP + HEIGHT + 52);
  text(out, LEFT, 16, "start", title);
  legend(out);
  axis(out, most, width);
  for (size_t i = 0; i < n; ++i) {
    const json_t *row = json_array_get(rows, i);
    const int first = i == 0 || strcmp(method_of(row), method_of(json_array_get(rows, i - 1))) != 0;
    if (first && i > 0) x += PANEL_GAP;
    if (first) text(out, x, TOP + HEIGHT + 36, "start", method_of(row));
    bar(out, row, x, most);
    x += BAR + GAP;
  }
  fputs("</svg>\n", out);
  return ferror(out) ? -1 : 0;
}
