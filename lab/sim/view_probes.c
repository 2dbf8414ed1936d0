/* SPDX-License-Identifier: MIT
 * view_probes.c - probes between the boxes of a page: see view_parts.h. Those of the first lanes, with all
 * lanes before and all memories, as far as there is room. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/json.h"
#include "lab/sim/probe_inside.h"
#include "lab/sim/view_parts.h"

/* PARTS: at most so many parts are made free for probes, so that a large device takes a second or two. */
enum { BYTES = 4096, TRIED = 4 * VIEW_PAIRS, PARTS = 1 << 24 };

typedef struct probes {
  const view_run *r;
  sim_layout layout;
  json_t *names, *profiles, *pairs, *of_lane; /* of_lane: pairs of the lane that is being tried */
  json_t *known;                              /* text of a name or a profile to its number */
  uint32_t tried, most_tried;
} probes;

/* The number of a text in a list, where it is added once. */
static json_int_t number_of(probes *p, json_t *list, const char *text, json_t *value) {
  const json_t *known = json_object_get(p->known, text);
  if (known == NULL) {
    json_object_set_new(p->known, text, json_integer((json_int_t)json_array_size(list)));
    json_array_append(list, value);
    known = json_object_get(p->known, text);
  }
  json_decref(value);
  return json_integer_value(known);
}

/* One row of a profile: [hop, reached, wait, latency, bytes, closed form]. */
static json_t *cells_of(const json_t *row) {
  static const char *const keys[] = {"reached_us", "wait_us", "latency_us", "bytes_us", "closed_us"};
  json_t *cells = json_pack("[s]", bs_get_text(row, "hop"));
  char text[32];
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
    text[0] = '\0';
    if (json_object_get(row, keys[k]) != NULL)
      snprintf(text, sizeof text, "%.6f", bs_get_number(row, keys[k]));
    json_array_append_new(cells, json_string(text));
  }
  return cells;
}

static int32_t keep_pair(probes *p, uint32_t from, uint32_t to, const json_t *rows, bs_error *err) {
  json_t *profile = json_array();
  bs_text names = {0}, value = {0};
  char key[32];
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const char *link = bs_get_text(row, "link");
    json_array_append_new(profile, cells_of(row));
    if (link[0] == '\0') continue;
    bs_text_printf(&names, "%s%lld", names.size > 0 ? "." : "",
                   (long long)number_of(p, p->names, link, json_string(link)));
  }
  char *text = json_dumps(profile, JSON_COMPACT);
  if (text != NULL)
    bs_text_printf(&value, "%lld:%s", (long long)number_of(p, p->profiles, text, json_incref(profile)),
                   names.data != NULL ? names.data : "");
  snprintf(key, sizeof key, "%u %u", from, to);
  const int failed = text == NULL || names.failed || value.failed ||
                     json_object_set_new(p->of_lane, key, json_string(value.data)) != 0;
  free(text);
  bs_text_free(&names);
  bs_text_free(&value);
  json_decref(profile);
  return failed ? bs_no_memory(err, "a probe of a page") : BS_OK;
}

/* A pair without a way between it is left out. */
static int32_t try_pair(probes *p, uint32_t from, uint32_t to, bs_error *err) {
  char names[2][64];
  json_t *rows = NULL;
  bs_error why = BS_ERROR_INIT;
  view_box_name(p->r, &p->r->boxes[p->r->end_boxes[from]], names[0], sizeof names[0]);
  view_box_name(p->r, &p->r->boxes[p->r->end_boxes[to]], names[1], sizeof names[1]);
  const bs_inside_flow flow = {names[0], names[1]};
  const bs_inside_probe probe = {1, &flow, BYTES};
  p->tried++;
  int32_t rc = bs_inside_probe_run(&p->layout, &probe, &rows, &why);
  if (rc == BS_OK)
    rc = keep_pair(p, from, to, rows, err);
  else if (rc == BS_NO_MEMORY)
    *err = why;
  else
    rc = BS_OK;
  json_decref(rows);
  return rc;
}

static int is_lane(const probes *p, uint32_t end) {
  return p->r->boxes[p->r->end_boxes[end]].kind == VIEW_PLACE;
}

/* Both directions, with all lanes before and with all memories. */
static int32_t try_lane(probes *p, uint32_t lane, uint32_t most, int *out_full, bs_error *err) {
  int32_t rc = BS_OK;
  p->of_lane = json_object();
  for (uint32_t other = 0; rc == BS_OK && other < p->r->n_ends && p->tried < p->most_tried; other++) {
    if (other == lane || (is_lane(p, other) && other > lane)) continue;
    rc = try_pair(p, lane, other, err);
    if (rc == BS_OK) rc = try_pair(p, other, lane, err);
    if (json_object_size(p->pairs) + json_object_size(p->of_lane) > most) break;
  }
  *out_full = json_object_size(p->pairs) + json_object_size(p->of_lane) > most || p->tried >= p->most_tried;
  if (!*out_full) json_object_update(p->pairs, p->of_lane);
  json_decref(p->of_lane);
  return rc;
}

int32_t view_probes_json(const view_run *r, uint32_t most, json_t **out, bs_error *err) {
  probes p = {.r = r,
              .names = json_array(),
              .profiles = json_array(),
              .pairs = json_object(),
              .known = json_object()};
  json_t *ends = json_array();
  uint32_t lanes = 0, all = 0;
  int full = 0;
  p.most_tried = r->l->n_parts > PARTS / TRIED ? PARTS / r->l->n_parts : TRIED;
  int32_t rc = sim_layout_make(r->l->device, 0, &p.layout, err);
  for (uint32_t end = 0; rc == BS_OK && end < r->n_ends; end++) {
    char name[64];
    view_box_name(r, &r->boxes[r->end_boxes[end]], name, sizeof name);
    json_array_append_new(ends, json_string(name));
    if (!is_lane(&p, end)) continue;
    all++;
    if (full) continue;
    rc = try_lane(&p, end, most, &full, err);
    lanes += !full;
  }
  sim_layout_free(&p.layout);
  json_decref(p.known);
  *out = json_pack("{s:o, s:o, s:o, s:o, s:i, s:i, s:i}", "ends", ends, "names", p.names, "profiles",
                   p.profiles, "pairs", p.pairs, "bytes", BYTES, "lanes", (int)lanes, "of", (int)all);
  if (rc == BS_OK && *out == NULL) rc = bs_no_memory(err, "the probes of a page");
  return rc;
}
