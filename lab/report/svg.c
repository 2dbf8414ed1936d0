/* SPDX-License-Identifier: MIT
 * svg.c - see svg.h. */
#include "lab/report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double MOST_SCALE = 1.25; /* wider a chart is not drawn: its letters would be too large */
enum { LEFT = 62, RIGHT = 14, TOP = 14, BOTTOM = 42, LINE = 18, LETTER = 7 };

const char bs_svg_style[] =
    ":root{--paper:#fff;--ink:#1c2430;--soft:#5b6675;--grid:#e3e7ec;--panel:#f6f8fa;--good:#15803d;--bad:#"
    "b91c1c;"
    "--s0:#0f62c4;--s1:#d9480f;--s2:#0b8a5f;--s3:#9333ad;--s4:#6b7280;--s5:#b8860b;--s6:#0e93b0;--s7:#c2185b;"
    "--s8:#5f8000;--s9:#8d5a3b;--p0:#7c93ad;--p1:#e08e79;--p2:#c9b458;--p3:#9d85c0;--p4:#a9a9a9;--p5:#6fa898;"
    "--p6:#b78a6b;--p7:#cf93b4}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#12161c;--ink:#e6eaf0;--soft:#9aa5b4;--grid:#2a313b;"
    "--panel:#1a2028;--good:#4ade80;--bad:#f87171;--s0:#6cb0ff;--s1:#ff9a5c;--s2:#4cd3a1;--s3:#d49bf0;--s4:#"
    "a3adba;"
    "--s5:#e6c04d;--s6:#5fd4ea;--s7:#ff7fb0;--s8:#a8cf3e;--s9:#d9a27c}}\n"
    "@media print{:root{--paper:#fff;--ink:#000;--soft:#444;--grid:#ccc;--panel:#fff;--good:#060;--bad:#900;"
    "--s0:#0f62c4;--s1:#d9480f;--s2:#0b8a5f;--s3:#9333ad;--s4:#6b7280;--s5:#b8860b;--s6:#0e93b0;--s7:#c2185b;"
    "--s8:#5f8000;--s9:#8d5a3b}}\n"
    "svg text{font:12px system-ui,sans-serif;fill:var(--ink)}svg .soft{fill:var(--soft)}svg text.good,svg "
    "text.bad{fill:var(--c);font-weight:600}svg .on{fill:#fff}svg "
    ".label{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}\n"
    "svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--soft)}svg .one{stroke:var(--ink);stroke-dasharray:2 "
    "3}\n"
    ".s0{--c:var(--s0)}.s1{--c:var(--s1)}.s2{--c:var(--s2)}.s3{--c:var(--s3)}.s4{--c:var(--s4)}.s5{--c:var(--"
    "s5)}"
    ".s6{--c:var(--s6)}.s7{--c:var(--s7)}.s8{--c:var(--s8)}.s9{--c:var(--s9)}"
    ".p0{--c:var(--p0)}.p1{--c:var(--p1)}.p2{--c:var(--p2)}.p3{--c:var(--p3)}.p4{--c:var(--p4)}.p5{--c:var(--"
    "p5)}.p6{--c:var(--p6)}.p7{--c:var(--p7)}.good{--c:var(--good)}.bad{--c:var(--bad)}.none{--c:var(--soft)}"
    "\n"
    "svg .line{fill:none;stroke:var(--c);stroke-width:2}svg .thin{stroke-width:1.2;opacity:.75}"
    "svg .dash{stroke-dasharray:6 4;stroke-width:1.5}svg .band{fill:var(--c);opacity:.16}"
    "svg .fill{fill:var(--c)}svg .open{fill:var(--paper);stroke:var(--c);stroke-width:2}"
    "svg .hatching{stroke:var(--ink);opacity:.4}\n"
    "svg .tile0{fill:var(--grid)}svg .tile1{fill:var(--c);opacity:.18}svg .tile2{fill:var(--c);opacity:.33}"
    "svg .tile3{fill:var(--c);opacity:.48}svg .tile4{fill:var(--c);opacity:.62}\n";

void bs_svg_escape(bs_text *out, const char *text) {
  static const struct {
    char byte;
    const char *as;
  } table[] = {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  for (; *text != '\0'; text++) {
    const char *as = (unsigned char)*text < 0x20 && *text != '\n' && *text != '\t' ? " " : NULL;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
      if (table[i].byte == *text) as = table[i].as;
    bs_text_append(out, as != NULL ? as : text, as != NULL ? strlen(as) : 1);
  }
}

void bs_svg_begin(bs_svg *svg, bs_text *out, double width, double height, const char *title) {
  memset(svg, 0, sizeof *svg);
  svg->out = out;
  svg->width = width;
  svg->height = height;
  svg->left = LEFT;
  svg->top = TOP;
  svg->right = width - RIGHT;
  svg->bottom = height - BOTTOM;
  bs_text_printf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
                 "style=\"max-width:%.0fpx\">\n<title>",
                 width, height, MOST_SCALE * width);
  bs_svg_escape(out, title);
  bs_text_printf(out, "</title>\n");
}

void bs_svg_end(bs_svg *svg) {
  bs_text_printf(svg->out, "</svg>\n");
}

void bs_svg_text(bs_svg *svg, double x, double y, const char *anchor, const char *css, const char *text) {
  bs_text_printf(svg->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor, css);
  bs_svg_escape(svg->out, text);
  bs_text_printf(svg->out, "</text>\n");
}

void bs_svg_label(bs_svg *svg, double x, double y, const char *anchor, size_t most, const char *text) {
  size_t n = strlen(text);
  const int cut = n > most;
  if (cut) n = most - 3;
  while (cut && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) --n; /* not within a character */
  bs_text_printf(svg->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"label\">", x, y, anchor);
  if (cut) bs_text_printf(svg->out, "<title>");
  bs_svg_escape(svg->out, text);
  if (cut) {
    char part[128];
    snprintf(part, sizeof part, "%.*s...", (int)(n < 120 ? n : 120), text);
    bs_text_printf(svg->out, "</title>");
    bs_svg_escape(svg->out, part);
  }
  bs_text_printf(svg->out, "</text>\n");
}

void bs_svg_more(bs_svg *svg, size_t n, size_t all) {
  char text[96];
  if (n >= all) return;
  snprintf(text, sizeof text, "the first %zu of %zu", n, all);
  bs_svg_text(svg, 4, svg->height - 8, "start", "soft", text);
}

void bs_svg_rule(bs_svg *svg, double x1, double y1, double x2, double y2, const char *css) {
  bs_text_printf(svg->out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1,
                 x2, y2, css);
}

static void close_mark(bs_svg *svg, const char *name, const char *tip) {
  if (tip == NULL) {
    bs_text_printf(svg->out, "/>\n");
    return;
  }
  bs_text_printf(svg->out, "><title>");
  bs_svg_escape(svg->out, tip);
  bs_text_printf(svg->out, "</title></%s>\n", name);
}

void bs_svg_bar(bs_svg *svg, double x, double y, double width, double height, const char *css,
                const char *tip) {
  if (!(width >= 0) || !(height >= 0)) return;
  bs_text_printf(svg->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"", x, y,
                 width, height, css);
  close_mark(svg, "rect", tip);
}

/* At pixels. */
static void put_dot(bs_svg *svg, double px, double py, int shape, const char *css, const char *tip) {
  static const char *const paths[] = {"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "M-3.5 -3.5h7v7h-7z",
                                      "M0 -4.8L4.6 3.6H-4.6z", "M0 -5L5 0L0 5L-5 0z"};
  bs_text_printf(svg->out, "<path transform=\"translate(%.1f %.1f)\" d=\"%s\" class=\"%s\"", px, py,
                 paths[shape & 3], css);
  close_mark(svg, "path", tip);
}

void bs_svg_dot(bs_svg *svg, double x, double y, int shape, const char *css, const char *tip) {
  const double px = bs_scale_at(&svg->x, x), py = bs_scale_at(&svg->y, y);
  if (!isnan(px) && !isnan(py)) put_dot(svg, px, py, shape, css, tip);
}

/* Chooses all of n points, or BS_SVG_POINTS of them: the number of the i-th drawn point. */
static size_t chosen(size_t n) {
  return n < BS_SVG_POINTS ? n : BS_SVG_POINTS;
}
static size_t choice(size_t i, size_t n) {
  return n <= BS_SVG_POINTS ? i : i * (n - 1) / (BS_SVG_POINTS - 1);
}

static int place(const bs_svg *svg, double x, double y, double *px, double *py) {
  *px = bs_scale_at(&svg->x, x);
  *py = bs_scale_at(&svg->y, y);
  return !isnan(*px) && !isnan(*py);
}

static void draw_path(bs_svg *svg, const bs_svg_point *points, size_t n, const char *css, int steps) {
  size_t drawn = 0;
  double px, py;
  bs_text_printf(svg->out, "<path class=\"%s\" d=\"", css);
  for (size_t i = 0; i < chosen(n); i++) {
    const bs_svg_point *p = &points[choice(i, n)];
    if (!place(svg, p->x, p->y, &px, &py)) continue;
    if (drawn > 0 && steps) bs_text_printf(svg->out, "H%.1f", px);
    if (drawn > 0 && steps)
      bs_text_printf(svg->out, "V%.1f", py);
    else
      bs_text_printf(svg->out, "%c%.1f %.1f", drawn == 0 ? 'M' : 'L', px, py);
    drawn++;
  }
  bs_text_printf(svg->out, "\"/>\n");
}

void bs_svg_line(bs_svg *svg, const bs_svg_point *points, size_t n, const char *css) {
  draw_path(svg, points, n, css, 0);
}

void bs_svg_step(bs_svg *svg, const bs_svg_point *points, size_t n, const char *css) {
  draw_path(svg, points, n, css, 1);
}

void bs_svg_band(bs_svg *svg, const bs_svg_point *points, size_t n, const char *css) {
  size_t drawn = 0;
  double px, py;
  bs_text_printf(svg->out, "<path class=\"%s\" d=\"", css);
  for (size_t i = 0; i < chosen(n); i++) {
    const bs_svg_point *p = &points[choice(i, n)];
    if (place(svg, p->x, p->high, &px, &py))
      bs_text_printf(svg->out, "%c%.1f %.1f", drawn++ == 0 ? 'M' : 'L', px, py);
  }
  for (size_t i = chosen(n); i-- > 0;) {
    const bs_svg_point *p = &points[choice(i, n)];
    if (place(svg, p->x, p->low, &px, &py))
      bs_text_printf(svg->out, "%c%.1f %.1f", drawn++ == 0 ? 'M' : 'L', px, py);
  }
  bs_text_printf(svg->out, "%s\"/>\n", drawn > 0 ? "z" : "");
}

void bs_svg_legend(bs_svg *svg, char palette, const char *const *names, const int *colours, const int *shapes,
                   size_t n) {
  double x = svg->left;
  char css[16];
  for (size_t i = 0; i < n; i++) {
    const double wide = 28 + LETTER * (double)strlen(names[i]);
    if (x > svg->left && x + wide > svg->right) {
      x = svg->left;
      svg->top += LINE;
    }
    snprintf(css, sizeof css, "%c%d fill", palette, colours[i] % BS_SVG_COLOURS);
    if (shapes != NULL)
      put_dot(svg, x + 5, svg->top - 4, shapes[i], css, NULL);
    else
      bs_svg_bar(svg, x, svg->top - 9, 10, 10, css, NULL);
    bs_svg_text(svg, x + 15, svg->top, "start", "name", names[i]);
    x += wide;
  }
  if (n > 0) svg->top += LINE - 4;
}

static void x_axis(bs_svg *svg, const char *name) {
  double ticks[BS_SVG_TICKS];
  char text[32];
  const size_t n = bs_scale_ticks(&svg->x, ticks);
  double last = -1e9;
  for (size_t i = 0; i < n; i++) {
    const double x = bs_scale_at(&svg->x, ticks[i]);
    bs_svg_rule(svg, x, svg->top, x, svg->bottom, "grid");
    bs_svg_number(text, ticks[i]);
    const double half = LETTER * (double)strlen(text) / 2;
    if (x - half < last + 4) continue;
    bs_svg_text(svg, x, svg->bottom + 16, "middle", "soft", text);
    last = x + half;
  }
  bs_svg_text(svg, svg->right, svg->bottom + 34, "end", "soft", name);
}

static void y_axis(bs_svg *svg, const char *name) {
  double ticks[BS_SVG_TICKS];
  char text[32];
  const size_t n = bs_scale_ticks(&svg->y, ticks);
  double last = 1e9;
  for (size_t i = 0; i < n; i++) {
    const double y = bs_scale_at(&svg->y, ticks[i]);
    bs_svg_rule(svg, svg->left, y, svg->right, y, "grid");
    if (y + 13 > last) continue;
    bs_svg_number(text, ticks[i]);
    bs_svg_text(svg, svg->left - 7, y + 4, "end", "soft", text);
    last = y;
  }
  bs_svg_text(svg, 4, svg->top - 8, "start", "soft", name);
}

void bs_svg_axes(bs_svg *svg, const char *x_name, const char *y_name) {
  if (y_name != NULL) svg->top += 12;
  svg->x.from = svg->left;
  svg->x.to = svg->right - 8;
  svg->y.from = svg->bottom;
  svg->y.to = svg->top;
  if (x_name != NULL) {
    bs_scale_round(&svg->x);
    x_axis(svg, x_name);
  }
  if (y_name != NULL) {
    bs_scale_round(&svg->y);
    y_axis(svg, y_name);
  }
  bs_svg_rule(svg, svg->left, svg->bottom, svg->right, svg->bottom, "axis");
}

void bs_svg_document(bs_text *out, const char *svg) {
  const char *title = strstr(svg, "<title>");
  const size_t head = title != NULL ? (size_t)(title - svg) : 0;
  bs_text_append(out, svg, head);
  bs_text_printf(out, "<style>\nsvg{background:var(--paper)}\n%s</style>\n", bs_svg_style);
  bs_text_append(out, svg + head, strlen(svg + head));
}
