/* SPDX-License-Identifier: MIT
 * inside_svg.c - see inside_svg.h. A row a lane; products stand over loads, stores and epilogues. */
#include "lab/sim/inside_svg.h"

#include <stdio.h>
#include <string.h>

#include "lab/report/svg.h"

enum { LANES = 64, SPANS = 200, ROW = 14, WIDTH = 900, EDGES = 110 };

/* What the units do stands over loads, stores and the vector unit. */
const bs_inside_look bs_inside_looks[SIM_WHATS] = {
    [SIM_LOAD_A] = {6, 0},   [SIM_LOAD_B] = {5, 0}, [SIM_PRODUCT] = {0, 1}, [SIM_EPILOGUE] = {4, 0},
    [SIM_STORE] = {1, 0},    [SIM_LOAD] = {6, 0},   [SIM_MAP] = {0, 1},     [SIM_SEND_PUT] = {5, 0},
    [SIM_SEND_GET] = {1, 0}, [SIM_LOAD_Q] = {2, 0}, [SIM_LOAD_K] = {6, 0},  [SIM_LOAD_V] = {5, 0},
    [SIM_SCORES] = {0, 1},   [SIM_EXP] = {4, 0},    [SIM_VALUES] = {3, 1}};

static int what_of(const char *name) {
  int what = 0;
  while (what < SIM_WHATS - 1 && strcmp(sim_what_name((uint32_t)what), name) != 0) what++;
  return what;
}

static void draw_span(bs_svg *svg, const sim_trace_span *s, double top) {
  const int what = what_of(s->name);
  char tip[96], css[16];
  const double from = bs_scale_at(&svg->x, (double)s->begin * 1e-6),
               to = bs_scale_at(&svg->x, (double)s->end * 1e-6);
  const double height = bs_inside_looks[what].upper ? ROW * 0.5 : ROW * 0.3;
  snprintf(tip, sizeof tip, "%s: %.6f to %.6f us", s->name, (double)s->begin * 1e-6, (double)s->end * 1e-6);
  snprintf(css, sizeof css, "p%d fill", bs_inside_looks[what].colour);
  bs_svg_bar(svg, from, bs_inside_looks[what].upper ? top : top + ROW * 0.55, to - from, height, css, tip);
}

/* The first spans of each lane; their number and the latest end. */
static uint64_t drawn(const sim_trace *trace, uint32_t counts[LANES], uint64_t *out_left) {
  uint64_t end = 1;
  *out_left = 0;
  for (uint64_t i = 0; i < sim_trace_spans(trace); i++) {
    const sim_trace_span *s = sim_trace_at(trace, i);
    if (s->rank >= LANES || counts[s->rank] == SPANS) {
      ++*out_left;
      continue;
    }
    counts[s->rank]++;
    if (s->end > end) end = s->end;
  }
  return end;
}

/* What the trace has. Returns how many. */
static int named(const sim_trace *trace, const char *names[SIM_WHATS], int colours[SIM_WHATS]) {
  int has[SIM_WHATS] = {0}, n = 0;
  for (uint64_t i = 0; i < sim_trace_spans(trace); i++) has[what_of(sim_trace_at(trace, i)->name)] = 1;
  for (int w = 0; w < SIM_WHATS; w++) {
    if (!has[w]) continue;
    names[n] = sim_what_name((uint32_t)w);
    colours[n++] = bs_inside_looks[w].colour;
  }
  return n;
}

void bs_inside_svg(const bs_inside_answer *a, const sim_trace *trace, bs_text *out) {
  const uint32_t all = a->layout.device->lanes, n = all < LANES ? all : LANES;
  const char *names[SIM_WHATS];
  int colours[SIM_WHATS];
  uint32_t counts[LANES] = {0}, seen[LANES] = {0};
  uint64_t left = 0;
  char title[256];
  bs_svg svg;
  const uint64_t end = drawn(trace, counts, &left);
  const int n_names = named(trace, names, colours);
  snprintf(title, sizeof title, "%s on %s, simulated: %.3f us", a->op, a->layout.device->name,
           (double)a->result.settled * 1e-6);
  bs_svg_begin(&svg, out, WIDTH, (double)n * ROW + EDGES, title);
  bs_svg_text(&svg, 4, svg.top, "start", "name", title);
  svg.top += 24;
  bs_svg_legend(&svg, 'p', names, colours, NULL, n_names);
  svg.left += 50;
  svg.x = bs_scale_of(BS_SCALE_LINEAR);
  bs_scale_fit(&svg.x, 0);
  bs_scale_fit(&svg.x, (double)end * 1e-6);
  bs_svg_axes(&svg, "us", NULL);
  for (uint32_t l = 0; l < n; l++) {
    char name[48];
    sim_layout_lane_name(&a->layout, l, name, sizeof name);
    bs_svg_label(&svg, svg.left - 6, svg.top + (l + 0.7) * ROW, "end", 14, name);
  }
  for (uint64_t i = 0; i < sim_trace_spans(trace); i++) {
    const sim_trace_span *s = sim_trace_at(trace, i);
    if (s->rank < LANES && seen[s->rank]++ < SPANS) draw_span(&svg, s, svg.top + (double)s->rank * ROW);
  }
  if (left + sim_trace_dropped(trace) > 0) {
    snprintf(title, sizeof title, "%llu later spans, or spans of other lanes, are left out",
             (unsigned long long)(left + sim_trace_dropped(trace)));
    bs_svg_text(&svg, 4, svg.bottom + 40, "start", "soft", title);
  }
  bs_svg_end(&svg);
}
