/* SPDX-License-Identifier: MIT
 * svg.h - charts as SVG text: scales, axes with ticks, and marks (line, band, bar, step, tile, dot, text). A
 * mark's style only depends on its class; bs_svg_style has the colours as CSS variables, dark ones after a
 * media query. Numbers are printed with fixed digits: the same rows give the same text. */
#ifndef BS_LAB_REPORT_SVG_H
#define BS_LAB_REPORT_SVG_H
#include "core/base/text.h"

enum bs_scale_kind { BS_SCALE_LINEAR, BS_SCALE_LOG2, BS_SCALE_LOG10 };
/* Maps values low..high to from..to (pixels). Begin with bs_scale_of, then fit every value. */
typedef struct bs_scale {
  enum bs_scale_kind kind;
  double low, high, from, to;
} bs_scale;
enum { BS_SVG_TICKS = 24, BS_SVG_POINTS = 200, BS_SVG_COLOURS = 10 };

bs_scale bs_scale_of(enum bs_scale_kind kind);
/* Widens the scale to the value. Values that are not finite, and those <= 0 on a log scale, are left out. */
void bs_scale_fit(bs_scale *scale, double value);
/* Rounds low and high outwards to ticks; gives an empty scale 0..1 (log: 1..10), and one value some room. */
void bs_scale_round(bs_scale *scale);
/* Pixels of a value, kept within the scale. NaN for values that the scale cannot show. */
double bs_scale_at(const bs_scale *scale, double value);
/* Between low and high, at most BS_SVG_TICKS, in rising order; their number. */
size_t bs_scale_ticks(const bs_scale *scale, double out_ticks[BS_SVG_TICKS]);
/* A value of a tick or a label: 4096, 1.5, 20k, 3M, 1e-06. */
void bs_svg_number(char out_text[32], double value);

typedef struct bs_svg_point {
  double x, y, low, high; /* low, high: of a band */
} bs_svg_point;

/* One chart: the frame of its axes is between left, top, right and bottom. The text is the caller's. */
typedef struct bs_svg {
  bs_text *out;
  double width, height, left, top, right, bottom;
  bs_scale x, y;
} bs_svg;

/* `title` is read by screen readers. The frame leaves room for the labels of both axes. */
void bs_svg_begin(bs_svg *svg, bs_text *out, double width, double height, const char *title);
void bs_svg_end(bs_svg *svg);
/* Takes the pixels of the frame into both scales, rounds them, and draws grid, ticks and names. A NULL name:
 * that axis has no ticks (the chart draws its own). */
void bs_svg_axes(bs_svg *svg, const char *x_name, const char *y_name);
/* Text at pixels; css: classes. anchor: "start", "middle" or "end". */
void bs_svg_text(bs_svg *svg, double x, double y, const char *anchor, const char *css, const char *text);
/* The name of a row, at most `most` bytes of it; all of it under the pointer. */
void bs_svg_label(bs_svg *svg, double x, double y, const char *anchor, size_t most, const char *text);
/* "the first n of all" at the foot where n is less; the table of the chart has the others. */
void bs_svg_more(bs_svg *svg, size_t n, size_t all);
/* A straight line between pixels. */
void bs_svg_rule(bs_svg *svg, double x1, double y1, double x2, double y2, const char *css);
/* A rectangle between pixels; `tip` (NULL: none) is shown under the pointer. */
void bs_svg_bar(bs_svg *svg, double x, double y, double width, double height, const char *css,
                const char *tip);
/* A dot at values. shape 0..3: circle, square, triangle, diamond. */
void bs_svg_dot(bs_svg *svg, double x, double y, int shape, const char *css, const char *tip);
/* Lines through values in rising order of x: of more than BS_SVG_POINTS an even choice, with both ends. */
void bs_svg_line(bs_svg *svg, const bs_svg_point *points, size_t n, const char *css);
void bs_svg_step(bs_svg *svg, const bs_svg_point *points, size_t n, const char *css);
/* The area between low and high. */
void bs_svg_band(bs_svg *svg, const bs_svg_point *points, size_t n, const char *css);
/* Names of series above the frame, in lines; the frame's top moves down. Call before bs_svg_axes. palette:
 * 's' (methods) or 'p' (parts of a time). shapes: those of bs_svg_dot; NULL: squares. */
void bs_svg_legend(bs_svg *svg, char palette, const char *const *names, const int *colours, const int *shapes,
                   size_t n);

/* The text with <, >, &, quotes and bytes that HTML or XML does not allow replaced. */
void bs_svg_escape(bs_text *out, const char *text);
/* CSS of the classes: colours s0..s9 of methods and p0..p7 of parts of a time, marks, dark mode. */
extern const char bs_svg_style[];
/* Makes a complete file from a chart's text, including the style. */
void bs_svg_document(bs_text *out, const char *svg);
#endif
