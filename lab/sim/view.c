/* SPDX-License-Identifier: MIT
 * view.c - see view.h. The page; view_boxes.c, view_jobs.c and view_probes.c make its parts. */
#include "lab/sim/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/json.h"
#include "lab/report/model.h"
#include "lab/sim/inside_svg.h"
#include "lab/sim/inside_words.h"
#include "lab/sim/view_page.h"
#include "lab/sim/view_parts.h"

enum { MOST_ROWS = 200 };

typedef struct page {
  const bs_view *of;
  view_run runs[2];
  bs_text *out;
} page;

static const json_t *total_of(const json_t *rows) {
  return json_array_get(rows, json_array_size(rows) - 1);
}

static void heading(bs_text *out, const char *id, const char *text) {
  bs_text_printf(out, "<h2 id=\"%s\">%s</h2>\n", id, text);
}

/* "A: " of the first of two runs. */
static const char *letter_of(const page *p, uint32_t run) {
  return p->of->n < 2 ? "" : run == 0 ? "A: " : "B: ";
}

/* ---- the head ---------------------------------------------------------------------------------- */

static void print_head(const page *p) {
  char title[400] = "";
  size_t n = 0;
  for (uint32_t i = 0; i < p->of->n && n < sizeof title; i++) {
    const json_t *total = total_of(p->of->runs[i].rows);
    n += (size_t)snprintf(title + n, sizeof title - n, "%s%.120s on %.60s", i > 0 ? "; " : "",
                          bs_get_text(total, "op"), bs_get_text(total, "device"));
  }
  bs_html_head(p->out, title, "simulation", view_style);
  bs_text_printf(p->out, "<header>\n<h1>");
  bs_svg_escape(p->out, title);
  bs_text_printf(p->out, "</h1>\n");
  for (uint32_t i = 0; i < p->of->n; i++) {
    bs_text text = {0};
    bs_inside_sentences(p->of->runs[i].rows, &text);
    bs_text_printf(p->out, "<p class=\"verdict\">%s", letter_of(p, i));
    bs_svg_escape(p->out, text.data != NULL ? text.data : "");
    bs_text_printf(p->out, "</p>\n");
    bs_text_free(&text);
  }
  bs_text_printf(p->out, "</header>\n<main>\n");
}

/* ---- differences ------------------------------------------------------------------------------- */

/* KEYa, KEYb, and of both KEYd (the difference) and KEYr (the ratio) of what the rows have. */
static void add_pair(json_t *out, const char *key, const json_t *a, const json_t *b) {
  const double x = json_number_value(a), y = json_number_value(b);
  const struct {
    char end;
    int known;
    double value;
  } pairs[] = {{'a', json_is_number(a), x},
               {'b', json_is_number(b), y},
               {'d', json_is_number(a) && json_is_number(b), y - x},
               {'r', json_is_number(a) && json_is_number(b) && x != 0, x != 0 ? y / x : 0}};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    char name[32];
    snprintf(name, sizeof name, "%.24s%c", key, pairs[i].end);
    if (pairs[i].known) json_object_set_new(out, name, json_real(pairs[i].value));
  }
}

/* The whole run, a row a number. Energy that no part declares is 0, and has no row. */
static json_t *whole_differences(const json_t *a, const json_t *b) {
  static const char *const keys[][2] = {{"us", "simulated us"}, {"whole_us", "with launch us"},
                                        {"TFLOPs", "TFLOP/s"},  {"of_units_pct", "of the units %"},
                                        {"jobs", "jobs"},       {"mJ", "mJ"}};
  json_t *rows = json_array();
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
    const json_t *x = json_object_get(a, keys[k][0]), *y = json_object_get(b, keys[k][0]);
    if (!json_is_number(x) || !json_is_number(y) || json_number_value(x) == 0 || json_number_value(y) == 0)
      continue;
    json_t *row = json_pack("{s:s}", "what", keys[k][1]);
    add_pair(row, "", x, y);
    json_array_append_new(rows, row);
  }
  return rows;
}

static const json_t *row_of(const json_t *rows, const char *part) {
  for (size_t i = 0; i < json_array_size(rows); i++)
    if (strcmp(bs_get_text(json_array_get(rows, i), "part"), part) == 0) return json_array_get(rows, i);
  return NULL;
}

static void add_part(json_t *out, const char *part, const json_t *a, const json_t *b) {
  static const char *const keys[] = {"amount", "busy_pct", "mean_wait_us", "mJ", "faster_us"};
  json_t *row = json_pack("{s:o}", "part", bs_json_of_text(part));
  for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
    add_pair(row, keys[k], json_object_get(a, keys[k]), json_object_get(b, keys[k]));
  json_array_append_new(out, row);
}

/* A row for each part that one of them has. */
static json_t *part_differences(const json_t *a, const json_t *b) {
  json_t *rows = json_array();
  for (size_t i = 0; i + 1 < json_array_size(a); i++) {
    const char *part = bs_get_text(json_array_get(a, i), "part");
    add_part(rows, part, json_array_get(a, i), row_of(b, part));
  }
  for (size_t i = 0; i + 1 < json_array_size(b); i++) {
    const char *part = bs_get_text(json_array_get(b, i), "part");
    if (row_of(a, part) == NULL) add_part(rows, part, NULL, json_array_get(b, i));
  }
  return rows;
}

static void print_differences(const page *p) {
  static const bs_field whole[] = {{"what", "what", 0, 0},
                                   {"a", "A", BS_FIELD_RIGHT, 9},
                                   {"b", "B", BS_FIELD_RIGHT, 9},
                                   {"d", "B - A", BS_FIELD_RIGHT, 6},
                                   {"r", "B / A", BS_FIELD_RIGHT, 4}};
  static const bs_field parts[] = {{"part", "part", 0, 0},
                                   {"busy_pcta", "busy % A", BS_FIELD_RIGHT, 3},
                                   {"busy_pctb", "B", BS_FIELD_RIGHT, 3},
                                   {"busy_pctd", "B - A", BS_FIELD_RIGHT, 3},
                                   {"mean_wait_usa", "mean wait us A", BS_FIELD_RIGHT, 3},
                                   {"mean_wait_usb", "B", BS_FIELD_RIGHT, 3},
                                   {"mean_wait_usd", "B - A", BS_FIELD_RIGHT, 3},
                                   {"amounta", "amount A", BS_FIELD_RIGHT, 6},
                                   {"amountb", "B", BS_FIELD_RIGHT, 6},
                                   {"amountr", "B / A", BS_FIELD_RIGHT, 4},
                                   {"mJa", "mJ A", BS_FIELD_RIGHT, 5},
                                   {"mJb", "B", BS_FIELD_RIGHT, 5},
                                   {"mJr", "B / A", BS_FIELD_RIGHT, 4},
                                   {"faster_usa", "10 % faster us A", BS_FIELD_RIGHT, 6},
                                   {"faster_usb", "B", BS_FIELD_RIGHT, 6}};
  if (p->of->n < 2) return;
  const json_t *a = p->of->runs[0].rows, *b = p->of->runs[1].rows;
  json_t *all = whole_differences(total_of(a), total_of(b)), *each = part_differences(a, b);
  heading(p->out, "differences", "Differences");
  bs_html_table(p->out, whole, sizeof whole / sizeof whole[0], all, MOST_ROWS);
  bs_text_printf(p->out, "<p></p>\n");
  bs_html_table(p->out, parts, sizeof parts / sizeof parts[0], each, MOST_ROWS);
  json_decref(all);
  json_decref(each);
}

/* ---- boxes ------------------------------------------------------------------------------------- */

static void print_boxes(const page *p) {
  int some = 0;
  for (uint32_t i = 0; i < p->of->n; i++) some |= p->runs[i].l != NULL;
  if (!some) return;
  heading(p->out, "device", "The device");
  bs_text_printf(
      p->out,
      "<p class=\"soft\">The number of a box is the share of the time, in percent, in which it is "
      "busy; that of a place is of its busiest part. A press on a box shows its row and its queue. "
      "A press on a second box also shows the probe from the first to the second.</p>\n");
  for (uint32_t i = 0; i < p->of->n; i++) {
    if (p->runs[i].l == NULL) continue;
    if (p->of->n > 1) bs_text_printf(p->out, "<h3>%c</h3>\n", 'A' + (int)i);
    bs_text_printf(p->out, "<div class=\"device\" data-run=\"%u\">\n", i);
    view_boxes_html(&p->runs[i], p->out);
    bs_text_printf(p->out, "</div>\n");
  }
  bs_text_printf(p->out,
                 "<section id=\"panel\" aria-live=\"polite\"><p class=\"soft\">No box has been pressed. "
                 "A press needs the page's script.</p></section>\n");
}

/* ---- tables ------------------------------------------------------------------------------------ */

static json_t *shown(const json_t *rows) {
  json_t *some = json_array();
  char amount[32];
  for (size_t i = 0; i + 1 < json_array_size(rows); i++) { /* the sentence has the total */
    json_t *row = json_copy(json_array_get(rows, i));
    bs_inside_amount(row, amount);
    if (json_object_get(row, "amount") != NULL) json_object_set_new(row, "amount", bs_json_of_text(amount));
    json_array_append_new(some, row);
  }
  return some;
}

static void print_rows(const page *p) {
  heading(p->out, "parts", "Parts");
  for (uint32_t i = 0; i < p->of->n; i++) {
    json_t *rows = shown(p->of->runs[i].rows);
    if (p->of->n > 1) bs_text_printf(p->out, "<h3>%c</h3>\n", 'A' + (int)i);
    bs_html_table(p->out, bs_inside_fields, bs_inside_n_fields, rows, MOST_ROWS);
    json_decref(rows);
  }
}

static void print_kinds(const page *p, const view_run *r, uint32_t run) {
  static const bs_field fields[] = {{"kind", "kind of job", 0, 0},
                                    {"jobs", "jobs", BS_FIELD_RIGHT, 0},
                                    {"mean", "mean us", BS_FIELD_RIGHT, 6},
                                    {"sum", "sum us", BS_FIELD_RIGHT, 6}};
  json_t *rows = json_array();
  for (uint32_t w = 0; w < SIM_WHATS; w++) {
    const double us = (double)r->kinds[w].ps * 1e-6;
    if (r->kinds[w].jobs == 0) continue;
    json_array_append_new(
        rows, json_pack("{s:s, s:I, s:f, s:f}", "kind", sim_what_name(w), "jobs",
                        (json_int_t)r->kinds[w].jobs, "mean", us / (double)r->kinds[w].jobs, "sum", us));
  }
  if (p->of->n > 1) bs_text_printf(p->out, "<h3>%c</h3>\n", 'A' + (int)run);
  bs_html_table(p->out, fields, sizeof fields / sizeof fields[0], rows, MOST_ROWS);
  if (r->left > 0)
    bs_text_printf(p->out,
                   "<p class=\"soft\">%sThe picture has the first %u jobs, those that end by %.6f us, of the "
                   "first %u lanes at most. It leaves out %llu jobs.</p>\n",
                   letter_of(p, run), r->n_jobs, (double)r->until * 1e-6, VIEW_LANES,
                   (unsigned long long)r->left);
  json_decref(rows);
}

static void print_lanes(const page *p) {
  int has[SIM_WHATS] = {0}, some = 0;
  for (uint32_t i = 0; i < p->of->n; i++)
    for (uint32_t w = 0; w < SIM_WHATS; w++) has[w] |= p->runs[i].kinds[w].jobs > 0, some |= has[w];
  if (!some) return;
  heading(p->out, "lanes", "Lanes");
  bs_text_printf(p->out, "<p class=\"key\">");
  for (uint32_t w = 0; w < SIM_WHATS; w++)
    if (has[w])
      bs_text_printf(p->out, "<i class=\"p%u\"></i>%s", bs_inside_looks[w].colour, sim_what_name(w));
  bs_text_printf(p->out,
                 "</p>\n<canvas id=\"gantt\" tabindex=\"0\" aria-label=\"Jobs of each lane over time\">"
                 "</canvas>\n<p class=\"soft\"><b id=\"axis\"></b> <span id=\"under\"></span> The wheel "
                 "and the keys + - 0 and arrows change the part of the time that is shown. A job begins "
                 "when its needs are met.</p>\n<noscript><p>The picture needs the page's script. bsrun "
                 "sim explain --inside OP --device D -o svg draws one without.</p></noscript>\n");
  for (uint32_t i = 0; i < p->of->n; i++)
    if (p->runs[i].l != NULL) print_kinds(p, &p->runs[i], i);
}

static void print_command(const page *p) {
  if (p->of->command == NULL) return;
  heading(p->out, "repeat", "Command to make the page again");
  bs_text_printf(p->out, "<pre>");
  bs_svg_escape(p->out, p->of->command);
  bs_text_printf(p->out, "</pre>\n");
}

/* ---- data of the script ------------------------------------------------------------------------ */

/* A row of explain as texts of six digits, in the order of bs_inside_fields. */
static json_t *cells_of(const json_t *row) {
  json_t *cells = json_array();
  char text[64];
  for (size_t f = 0; f < bs_inside_n_fields; f++) {
    const json_t *value = json_object_get(row, bs_inside_fields[f].key);
    if (bs_inside_fields[f].flags & BS_FIELD_WIDE) continue;
    text[0] = '\0';
    if (strcmp(bs_inside_fields[f].key, "amount") == 0 && value != NULL)
      bs_inside_amount(row, text);
    else if (json_is_integer(value))
      snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
      snprintf(text, sizeof text, "%.9g", json_real_value(value));
    else if (json_is_string(value))
      snprintf(text, sizeof text, "%.60s", json_string_value(value));
    json_array_append_new(cells, bs_json_of_text(text));
  }
  return cells;
}

static json_t *heads(void) {
  json_t *all = json_array();
  for (size_t f = 0; f < bs_inside_n_fields; f++)
    if (!(bs_inside_fields[f].flags & BS_FIELD_WIDE))
      json_array_append_new(all, json_string(bs_inside_fields[f].title));
  return all;
}

/* Both runs are on one device: its probes are needed once. */
static int is_same_device(const page *p) {
  return p->runs[0].l != NULL && p->runs[1].l != NULL &&
         p->runs[0].l->device->hash == p->runs[1].l->device->hash;
}

static int32_t add_probes(const page *p, uint32_t run, json_t *one, bs_error *err) {
  json_t *probes = NULL;
  const uint32_t two = p->runs[0].l != NULL && p->runs[1].l != NULL && !is_same_device(p);
  if (run == 1 && is_same_device(p)) return BS_OK;
  const int32_t rc = view_probes_json(&p->runs[run], VIEW_PAIRS / (1 + two), &probes, err);
  json_object_set_new(one, "probes", probes);
  return rc;
}

/* A word of a command, quoted for a shell where it must be. */
static json_t *quoted(const char *word) {
  bs_text text = {0};
  bs_text_word(&text, word != NULL ? word : "");
  json_t *value = text.data != NULL && !text.failed ? bs_json_of_text(text.data + 1) : NULL;
  bs_text_free(&text);
  return value;
}

static int32_t run_json(const page *p, uint32_t run, json_t **out, bs_error *err) {
  const view_run *r = &p->runs[run];
  json_t *cells = json_array(), *row;
  char us[32];
  size_t i;
  snprintf(us, sizeof us, "%.6f", (double)r->time * 1e-6);
  json_array_foreach((json_t *)(uintptr_t)r->of->rows, i, row) json_array_append_new(cells, cells_of(row));
  *out = json_pack("{s:s, s:O, s:o, s:s, s:I, s:I}", "name", letter_of(p, run), "rows", r->of->rows, "cells",
                   cells, "us", us, "time", (json_int_t)r->time, "until", (json_int_t)r->until);
  if (*out == NULL) return bs_no_memory(err, "the data of a page");
  if (r->l == NULL) return BS_OK;
  if (json_object_set_new(*out, "word", quoted(r->of->device)) != 0 ||
      json_object_set_new(*out, "boxes", view_boxes_json(r)) != 0 ||
      json_object_set_new(*out, "series", view_series_json(r)) != 0 ||
      json_object_set_new(*out, "lanes", view_lanes_json(r)) != 0)
    return bs_no_memory(err, "the data of a page");
  return add_probes(p, run, *out, err);
}

/* Characters that end a script or begin a tag become escapes of JSON. JSON has them in texts alone. */
static void print_json(bs_text *out, const char *text) {
  for (size_t n; *text != '\0'; text += n) {
    n = strcspn(text, "<>&");
    bs_text_append(out, text, n);
    if (text[n] != '\0') bs_text_printf(out, "\\u%04x", (unsigned)text[n++]);
  }
}

static int32_t print_data(const page *p, bs_error *err) {
  json_t *runs = json_array(), *looks = json_array(), *whats = json_array();
  uint64_t axis = 1;
  int32_t rc = BS_OK;
  for (uint32_t w = 0; w < SIM_WHATS; w++) {
    json_array_append_new(looks, json_pack("[i, i]", bs_inside_looks[w].colour, bs_inside_looks[w].upper));
    json_array_append_new(whats, json_string(sim_what_name(w)));
  }
  for (uint32_t i = 0; rc == BS_OK && i < p->of->n; i++) {
    json_t *one = NULL;
    rc = run_json(p, i, &one, err);
    json_array_append_new(runs, one);
    if (p->runs[i].time > axis) axis = p->runs[i].time;
  }
  json_t *data = json_pack("{s:i, s:o, s:I, s:o, s:o, s:o}", "version", 1, "heads", heads(), "axis",
                           (json_int_t)axis, "looks", looks, "whats", whats, "runs", runs);
  char *text = data != NULL && rc == BS_OK ? json_dumps(data, JSON_COMPACT) : NULL;
  if (rc == BS_OK && text == NULL) rc = bs_no_memory(err, "the data of a page");
  if (rc == BS_OK) {
    bs_text_printf(p->out, "<script type=\"application/json\" id=\"data\">");
    print_json(p->out, text);
    bs_text_printf(p->out, "</script>\n");
  }
  free(text);
  json_decref(data);
  return rc;
}

static void print_script(bs_text *out) {
  bs_text_printf(out, "<script>\n");
  bs_text_append(out, bs_html_script, strlen(bs_html_script));
  for (size_t i = 0; i < sizeof view_script / sizeof view_script[0]; i++)
    bs_text_append(out, view_script[i], strlen(view_script[i]));
  bs_text_printf(out, "</script>\n</body>\n</html>\n");
}

/* ------------------------------------------------------------------------------------------------ */

static int32_t open_run(page *p, uint32_t run, bs_error *err) {
  view_run *r = &p->runs[run];
  r->of = &p->of->runs[run];
  r->time = (uint64_t)(bs_get_number(total_of(r->of->rows), "us") * 1e6 + 0.5);
  if (r->of->answer == NULL) return BS_OK;
  r->l = &r->of->answer->layout;
  r->time = r->of->answer->result.settled;
  r->most_jobs = VIEW_JOBS / p->of->n;
  const int32_t rc = view_boxes_make(r, err);
  return rc == BS_OK ? view_watch(r, err) : rc;
}

int32_t bs_view_page(const bs_view *view, bs_text *out, bs_error *err) {
  page p = {.of = view, .out = out};
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < view->n; i++) rc = open_run(&p, i, err);
  if (rc == BS_OK) {
    print_head(&p);
    print_differences(&p);
    print_boxes(&p);
    print_rows(&p);
    print_lanes(&p);
    print_command(&p);
    bs_text_printf(out, "<output id=\"selftest\" hidden></output>\n</main>\n");
    rc = print_data(&p, err);
  }
  if (rc == BS_OK) print_script(out);
  for (uint32_t i = 0; i < 2; i++) view_run_free(&p.runs[i]);
  return rc == BS_OK && out->failed ? bs_no_memory(err, "the page") : rc;
}
