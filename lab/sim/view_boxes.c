/* SPDX-License-Identifier: MIT
 * view_boxes.c - a device as nested boxes: see view_parts.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/json.h"
#include "lab/report/svg.h"
#include "lab/sim/inside_words.h"
#include "lab/sim/view_parts.h"

/* One way through all boxes, which counts them, fills them or prints them. */
typedef struct walk {
  view_run *r;
  bs_text *html;   /* NULL: nothing is printed */
  int fill;        /* boxes are new */
  uint32_t n, end; /* end: of the place where the walk is */
} walk;

/* ---- what a box is ----------------------------------------------------------------------------- */

/* The level whose places have the parts of a class. */
static uint32_t level_of(const sim_class *c) {
  return c->level + (c->kind == SIM_MEMORY && c->node == SIM_NODE_OWN);
}

static int on_way(const sim_device *d, uint32_t class) {
  for (uint32_t w = 0; w < SIM_WAY_SEND; w++)
    for (uint32_t i = 0; i < d->ways[w].n; i++)
      if (d->ways[w].classes[i] == class) return 1;
  return 0;
}

/* A place of lanes, or a memory that data comes from: those of probe_inside.c. */
static int is_end(const sim_device *d, const view_box *b) {
  if (b->kind == VIEW_PLACE) return b->level == d->lane_level && b->level > 0;
  const sim_class *c = &d->classes[b->class];
  return c->kind == SIM_MEMORY && !sim_device_is_hit(d, b->class) && on_way(d, b->class) &&
         (b->kind == VIEW_CHANNEL || c->node != SIM_NODE_OWN);
}

void view_box_name(const view_run *r, const view_box *b, char *out, uint32_t size) {
  const sim_class *c = &r->l->device->classes[b->class];
  sim_place place = {b->level, b->place, b->class, VIEW_NONE};
  if (b->kind == VIEW_PLACE) {
    place.class = SIM_CLASSES;
  } else if (b->kind == VIEW_CHANNEL) {
    place.unit = b->channel;
    if (c->node == SIM_NODE_OWN) {
      const uint32_t each = r->l->device->levels[b->level].each;
      place.unit += b->place % each * r->l->parts[b->part].workers;
      place.level = c->level;
      place.index = b->place / each;
    }
  }
  sim_layout_place_name(r->l, &place, out, size);
}

/* ---- what it did ------------------------------------------------------------------------------- */

static uint64_t units_of(const view_run *r, const view_box *b) {
  const sim_class *c = &r->l->device->classes[b->class];
  if (b->kind == VIEW_CHANNEL) return 1;
  return c->kind == SIM_NET ? sim_layout_units(r->l, b->class) / r->l->device->levels[c->level].places
                            : r->l->parts[b->part].workers;
}

static double share_of_part(const view_run *r, const view_box *b) {
  const double units = (double)units_of(r, b);
  double busy = 0;
  if (b->kind == VIEW_CHANNEL)
    busy = (double)r->l->parts[b->part].served[b->channel];
  else
    for (uint32_t i = 0; i < b->parts; i++) busy += (double)r->l->parts[b->part + i].busy;
  return r->time > 0 && units > 0 ? busy / units / (double)r->time : 0;
}

/* The busiest part of a place, which follows it; of another box itself. NULL: a place without parts. */
static const view_box *busiest(const view_run *r, const view_box *b) {
  const view_box *most = NULL;
  if (b->kind != VIEW_PLACE) return b;
  for (const view_box *p = b + 1; p < r->boxes + r->n_boxes && p->kind != VIEW_PLACE; p++)
    if (p->kind == VIEW_PART && (most == NULL || share_of_part(r, p) > share_of_part(r, most))) most = p;
  return most;
}

/* The share of the time in which a box is busy. */
static double share_of(const view_run *r, const view_box *b) {
  const view_box *most = busiest(r, b);
  return most != NULL ? share_of_part(r, most) : 0;
}

/* The number of the row of a class; VIEW_NONE: it did nothing. */
static uint32_t row_of(const view_run *r, const view_box *b) {
  const char *name = r->l->device->classes[b->class].name;
  for (size_t i = 0; i < json_array_size(r->of->rows); i++)
    if (strcmp(bs_get_text(json_array_get(r->of->rows, i), "part"), name) == 0) return (uint32_t)i;
  return VIEW_NONE;
}

/* "256 jobs, 34.6 MB; busy 99.6 % of the time; mean wait 0.664 us". */
static void say_did(const view_run *r, const view_box *b, char *out, size_t size) {
  uint64_t jobs = 0, amount = 0, waited = 0, waits = 0;
  char did[32];
  if (b->kind != VIEW_PART) {
    const view_box *most = busiest(r, b);
    const char *name = most != NULL ? r->l->device->classes[most->class].name : "none";
    if (b->kind == VIEW_PLACE)
      snprintf(out, size, "busiest part: %s, busy %.4g %% of the time; the queue is its", name,
               100 * share_of(r, b));
    else
      snprintf(out, size, "busy %.4g %% of the time; the queue is that of all of %s", 100 * share_of(r, b),
               name);
    return;
  }
  for (uint32_t i = 0; i < b->parts; i++) {
    const sim_part *p = &r->l->parts[b->part + i];
    jobs += p->jobs, amount += p->amount, waited += p->waited, waits += p->waits;
  }
  const uint32_t row = row_of(r, b);
  json_t *one = json_pack("{s:f, s:s}", "amount", (double)amount, "unit",
                          row != VIEW_NONE ? bs_get_text(json_array_get(r->of->rows, row), "unit") : "");
  bs_inside_amount(one, did);
  json_decref(one);
  snprintf(out, size, "%llu jobs, %s; busy %.4g %% of the time; mean wait %.4g us", (unsigned long long)jobs,
           did, 100 * share_of(r, b), waits > 0 ? (double)waited / (double)waits * 1e-6 : 0);
}

/* ---- the way through --------------------------------------------------------------------------- */

static void print_box(const walk *w, const view_box *b) {
  const sim_device *d = w->r->l->device;
  const double share = share_of(w->r, b);
  int heat = (int)(share * 10 + 0.999);
  char name[64];
  if (b->kind == VIEW_CHANNEL)
    snprintf(name, sizeof name, "%u", b->channel);
  else if (b->kind == VIEW_PART)
    snprintf(name, sizeof name, "%s", d->classes[b->class].name);
  else if (b->level == 0)
    snprintf(name, sizeof name, "%s", d->levels[0].name);
  else
    snprintf(name, sizeof name, "%s%u", d->levels[b->level].name, b->place % d->levels[b->level].each);
  if (heat > 10) heat = 10;
  bs_text_printf(w->html, "<button class=h%d>", heat);
  bs_svg_escape(w->html, name);
  bs_text_printf(w->html, b->kind == VIEW_CHANNEL ? " <b>%.0f</b></button>" : " <b>%.1f</b></button>",
                 100 * share);
}

static void visit(walk *w, view_box box) {
  view_run *r = w->r;
  const uint32_t at = w->n++;
  if (w->fill) {
    if (is_end(r->l->device, &box)) {
      box.end = r->n_ends;
      r->end_boxes[r->n_ends++] = at;
    }
    if (box.kind == VIEW_PLACE) w->end = box.end;
    if (box.kind == VIEW_PART && box.end == VIEW_NONE) box.end = w->end;
    if (box.kind == VIEW_PART) {
      for (uint32_t i = 0; i < box.parts; i++) r->series_of[box.part + i] = r->n_series;
      r->n_series++;
    }
    r->boxes[at] = box;
  }
  if (w->html != NULL) print_box(w, &r->boxes[at]);
}

static void print(const walk *w, const char *text) {
  if (w->html != NULL) bs_text_printf(w->html, "%s", text);
}

static void visit_part(walk *w, uint32_t class, uint32_t level, uint32_t place) {
  const sim_layout *l = w->r->l;
  const sim_class *c = &l->device->classes[class];
  const uint32_t each = c->kind == SIM_NET ? l->n[class] / l->device->levels[c->level].places : 1;
  view_box box = {.kind = VIEW_PART,
                  .level = level,
                  .place = place,
                  .class = class,
                  .part = l->base[class] + place * each,
                  .parts = each,
                  .end = VIEW_NONE};
  const uint32_t channels = c->kind == SIM_MEMORY ? l->parts[box.part].workers : 1;
  visit(w, box);
  if (channels == 1) return;
  box.kind = VIEW_CHANNEL;
  print(w, "<span>");
  for (; box.channel < channels && box.channel < w->r->channels; box.channel++) visit(w, box);
  if (w->html != NULL && box.channel < channels)
    bs_text_printf(w->html, " and %u more", channels - box.channel);
  print(w, "</span>");
}

static void visit_place(walk *w, uint32_t level, uint32_t place) {
  const sim_device *d = w->r->l->device;
  print(w, "<div>");
  visit(w, (view_box){.kind = VIEW_PLACE, .level = level, .place = place, .end = VIEW_NONE});
  for (uint32_t c = 0; c < d->n_classes; c++)
    if (level_of(&d->classes[c]) == level) visit_part(w, c, level, place);
  if (level + 1 < d->n_levels) {
    const uint32_t each = d->levels[level + 1].each, shown = w->r->shown[level + 1];
    print(w, "<br>");
    for (uint32_t i = 0; i < each && i < shown; i++) visit_place(w, level + 1, place * each + i);
    if (w->html != NULL && shown < each)
      bs_text_printf(w->html, "<p class=\"soft\">and %u more %s</p>", each - shown,
                     d->levels[level + 1].name);
  }
  print(w, "</div>\n");
}

static uint32_t count(view_run *r) {
  walk w = {.r = r};
  visit_place(&w, 0, 0);
  return w.n;
}

/* Halves what there is most of in a place, until all boxes have room. */
static void choose_shown(view_run *r, uint32_t most) {
  const sim_device *d = r->l->device;
  r->channels = 1;
  for (uint32_t c = 0; c < d->n_classes; c++)
    if (d->classes[c].kind == SIM_MEMORY && d->classes[c].workers > r->channels)
      r->channels = d->classes[c].workers;
  for (uint32_t level = 1; level < d->n_levels; level++) r->shown[level] = d->levels[level].each;
  while (count(r) > most) {
    uint32_t *widest = &r->channels;
    for (uint32_t level = 1; level < d->n_levels; level++)
      if (r->shown[level] > *widest) widest = &r->shown[level];
    if (*widest == 1) break;
    *widest = (*widest + 1) / 2;
  }
}

int32_t view_boxes_make(view_run *r, bs_error *err) {
  const uint32_t parts = r->l->n_parts;
  choose_shown(r, VIEW_BOXES);
  r->n_boxes = count(r);
  r->boxes = calloc(r->n_boxes, sizeof *r->boxes);
  r->end_boxes = calloc(r->n_boxes, sizeof *r->end_boxes);
  r->series_of = malloc((parts > 0 ? parts : 1) * sizeof *r->series_of);
  r->waiting = calloc((size_t)r->n_boxes * VIEW_BINS, sizeof *r->waiting);
  r->working = calloc((size_t)r->n_boxes * VIEW_BINS, sizeof *r->working);
  if (r->boxes == NULL || r->end_boxes == NULL || r->series_of == NULL || r->waiting == NULL ||
      r->working == NULL)
    return bs_no_memory(err, "the boxes of a device");
  for (uint32_t i = 0; i < parts; i++) r->series_of[i] = VIEW_NONE;
  walk w = {.r = r, .fill = 1, .end = VIEW_NONE};
  visit_place(&w, 0, 0);
  return BS_OK;
}

void view_run_free(view_run *r) {
  free(r->boxes);
  free(r->end_boxes);
  free(r->series_of);
  free(r->waiting);
  free(r->working);
  free(r->jobs);
}

void view_boxes_html(const view_run *r, bs_text *out) {
  view_run copy = *r;
  walk w = {.r = &copy, .html = out};
  visit_place(&w, 0, 0);
}

static json_t *number(uint32_t n) {
  return n == VIEW_NONE ? json_integer(-1) : json_integer((json_int_t)n);
}

json_t *view_boxes_json(const view_run *r) {
  json_t *names = json_array(), *dids = json_array(), *rows = json_array(), *series = json_array(),
         *ends = json_array();
  char text[160];
  for (uint32_t i = 0; i < r->n_boxes; i++) {
    const view_box *b = &r->boxes[i];
    view_box_name(r, b, text, sizeof text);
    json_array_append_new(names, json_string(text));
    say_did(r, b, text, sizeof text);
    json_array_append_new(dids, json_string(text));
    const view_box *most = busiest(r, b);
    json_array_append_new(rows, number(most != NULL ? row_of(r, most) : VIEW_NONE));
    json_array_append_new(series, number(most != NULL ? r->series_of[most->part] : VIEW_NONE));
    json_array_append_new(ends, number(b->end));
  }
  return json_pack("{s:o, s:o, s:o, s:o, s:o}", "names", names, "did", dids, "row", rows, "series", series,
                   "end", ends);
}
