/* SPDX-License-Identifier: MIT
 * html.c - the page of a report: see model.h. It loads nothing, a policy in its head (html_head.c) forbids
 * it, and it can be read without its script, which only sorts tables. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/original.h"

enum { MOST_ROWS = 500, MOST_DATA = 240, MOST_LISTED = 60, MOST_SHOWN = 4, MOST_ENV = 160 };

static void heading(bs_text *out, const char *id, const char *text) {
  bs_text_printf(out, "<h2 id=\"%s\">%s</h2>\n", id, text);
}

/* ---- the gate strip ---- */

static size_t count(const json_t *rows, const char *key, const char *word) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(rows); i++)
    n += strcmp(bs_row_text(json_array_get(rows, i), key), word) == 0;
  return n;
}

static size_t count_simulated(const json_t *rows) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(rows); i++)
    n += (size_t)bs_row_true(json_array_get(rows, i), "simulated");
  return n;
}

static void chip(bs_text *out, const char *colour, size_t n, const char *what) {
  if (n > 0) bs_text_printf(out, "<li class=\"%s\"><b>%zu</b> %s</li>\n", colour, n, what);
}

static void strip(bs_text *out, const json_t *model) {
  const json_t *latest = json_object_get(model, "latest"),
               *comparisons = json_object_get(model, "comparisons");
  static const struct {
    const char *colour, *key, *word;
    int compared;
  } chips[] = {{"good", "word", "RIGHT", 0},          {"bad", "word", "WRONG", 0},
               {"bad", "word", "NOT PASSED", 0},      {"none", "word", "NOT SHOWN RIGHT", 0},
               {"good", "speedup_word", "FASTER", 1}, {"bad", "speedup_word", "SLOWER", 1},
               {"none", "speedup_word", "SAME", 1},   {"none", "speedup_word", "UNCLEAR", 1},
               {"bad", "status", "failed", 0}};
  bs_text_printf(out, "<ul class=\"strip\">\n");
  for (size_t i = 0; i < sizeof chips / sizeof chips[0]; i++)
    chip(out, chips[i].colour, count(chips[i].compared ? comparisons : latest, chips[i].key, chips[i].word),
         chips[i].word);
  chip(out, "s2", count_simulated(latest), "simulated");
  chip(out, "none", json_array_size(json_object_get(model, "untried")), "not tried");
  chip(out, "bad", (size_t)json_integer_value(json_object_get(model, "damaged")), "damaged");
  chip(out, "none", (size_t)json_integer_value(json_object_get(model, "unfinished")), "not finished");
  bs_text_printf(out, "</ul>\n");
}

/* ---- the table ---- */

/* K is N in every row: the caption says so. */
static void drop_square(json_t *rows) {
  json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    if (json_object_get(row, "K") != NULL) json_object_set_new(row, "K", json_string("= N"));
  }
}

static void settings_table(bs_text *out, const json_t *latest) {
  json_t *rows = bs_report_rows(latest);
  if (bs_rows_square(rows)) drop_square(rows);
  heading(out, "settings", "Settings, the newest run of each");
  bs_html_table(out, bs_report_fields, bs_report_n_fields, rows, MOST_ROWS);
  json_decref(rows);
  if (count_simulated(latest) == 0) return;
  bs_text_printf(out,
                 "<p class=\"soft\">Rows in italics are simulated: their clock is virtual, and no ratio is "
                 "made between them and measured times.</p>\n");
}

/* ---- charts ---- */

/* `told` has the captions of the charts before: a caption is printed once. */
static void figure(bs_text *out, const bs_chart *chart, json_t *told) {
  bs_text_printf(out, "<figure id=\"chart-%s\">\n<h3>", chart->id);
  bs_svg_escape(out, chart->title);
  bs_text_printf(out, "</h3>\n<div class=\"draw\">\n");
  bs_text_append(out, chart->svg.data, chart->svg.size);
  bs_text_printf(out, "</div>\n");
  if (json_object_get(told, chart->what) == NULL) {
    bs_text_printf(out, "<figcaption>");
    bs_svg_escape(out, chart->what);
    bs_text_printf(out, "</figcaption>\n");
    json_object_set_new(told, chart->what, json_true());
  }
  bs_text_printf(out, "<details><summary>The data as a table</summary>\n");
  bs_html_table(out, chart->fields, chart->n_fields, chart->data, MOST_DATA);
  bs_text_printf(out, "</details>\n</figure>\n");
}

static void figures_that(bs_text *out, const bs_chart *charts, size_t n, int open, json_t *told) {
  bs_text_printf(out, "<div class=\"charts\">\n");
  for (size_t i = 0; i < n; i++)
    if (charts[i].open == open) figure(out, &charts[i], told);
  bs_text_printf(out, "</div>\n");
}

/* The open charts, then the others, which one line folds. */
static void figures(bs_text *out, const char *id, const char *title, const bs_chart *charts, size_t n) {
  json_t *told = json_object();
  size_t open = 0;
  for (size_t i = 0; i < n; i++) open += charts[i].open != 0;
  if (n > 0) heading(out, id, title);
  if (open > 0) figures_that(out, charts, n, 1, told);
  if (open < n) {
    bs_text_printf(out, "<details class=\"more\"><summary>%zu%s chart%s</summary>\n", n - open,
                   open > 0 ? " more" : "", n - open == 1 ? "" : "s");
    figures_that(out, charts, n, 0, told);
    bs_text_printf(out, "</details>\n");
  }
  json_decref(told);
}

/* ---- the lower sections ---- */

static void fold(bs_text *out, size_t at, size_t all) {
  if (at == MOST_SHOWN && all > MOST_SHOWN + 1)
    bs_text_printf(out, "</ul>\n<details><summary>%zu more</summary>\n<ul>\n", all - MOST_SHOWN);
}

static void fold_end(bs_text *out, size_t all) {
  if (all > MOST_LISTED) bs_text_printf(out, "<li>and %zu more</li>\n", all - MOST_LISTED);
  bs_text_printf(out, "</ul>\n%s", all > MOST_SHOWN + 1 ? "</details>\n" : "");
}

/* [{first, second}] with one row for all that say the same: "12 runs: ...". */
static json_t *grouped(const json_t *rows, const char *first, const char *second) {
  json_t *groups = json_object(), *list = json_array(), *one, *row;
  const char *text;
  char words[64];
  size_t i;
  json_array_foreach((json_t *)rows, i, row) {
    text = bs_row_text(row, second);
    one = json_object_get(groups, text);
    if (one == NULL) {
      json_object_set_new(groups, text,
                          json_pack("{s:s, s:s, s:i}", "what", bs_row_text(row, first), "why", text, "n", 1));
      json_array_append(list, json_object_get(groups, text));
      continue;
    }
    const int n = (int)json_integer_value(json_object_get(one, "n")) + 1;
    json_object_set_new(one, "n", json_integer(n));
    snprintf(words, sizeof words, "%d times", n);
    json_object_set_new(one, "what", json_string(words));
  }
  json_decref(groups);
  return list;
}

static void list(bs_text *out, const char *id, const char *title, const json_t *all, const char *first,
                 const char *second) {
  if (json_array_size(all) == 0) return;
  json_t *rows = grouped(all, first, second);
  const size_t n = json_array_size(rows);
  heading(out, id, title);
  bs_text_printf(out, "<ul>\n");
  for (size_t i = 0; i < n && i < MOST_LISTED; i++) {
    fold(out, i, n);
    bs_text_printf(out, "<li><b>");
    bs_svg_escape(out, bs_row_text(json_array_get(rows, i), "what"));
    bs_text_printf(out, "</b>: ");
    bs_svg_escape(out, bs_row_text(json_array_get(rows, i), "why"));
    bs_text_printf(out, "</li>\n");
  }
  fold_end(out, n);
  json_decref(rows);
}

/* The findings of `bsrun diagnose`, in the order of the runs and of their cost. */
static void diagnosis(bs_text *out, const json_t *findings) {
  static const bs_field fields[] = {{"run", "run", 0, 0},
                                    {"severity", "severity", 0, 0},
                                    {"check", "check", 0, 0},
                                    {"cost_s", "cost, s a pass", BS_FIELD_RIGHT, 3},
                                    {"share", "share", BS_FIELD_RIGHT, 3},
                                    {"evidence", "evidence", 0, 0},
                                    {"command", "command", 0, 0}};
  if (json_array_size(findings) == 0) return;
  heading(out, "diagnosis", "Diagnosis");
  bs_html_table(out, fields, sizeof fields / sizeof fields[0], findings, MOST_ROWS);
}

static void unclear(bs_text *out, const json_t *comparisons) {
  const uint32_t differ = bs_rows_differ(comparisons);
  json_t *rows = json_array(), *row;
  char label[200], why[280], against[64];
  size_t i;
  json_array_foreach((json_t *)comparisons, i, row) {
    if (strcmp(bs_row_text(row, "speedup_word"), "UNCLEAR") != 0) continue;
    bs_row_words(row, differ | BS_ROW_METHOD, NULL, label, sizeof label);
    const char *cause = bs_row_text(row, "cause");
    snprintf(why, sizeof why, "speedup between %.3g and %.3g against %.60s%s%.100s",
             bs_row_number(row, "speedup_low"), bs_row_number(row, "speedup_high"),
             bs_against_words(bs_row_text(row, "against"), against, sizeof against),
             cause[0] != '\0' ? "; " : "", cause);
    json_array_append_new(rows, json_pack("{s:s, s:s}", "what", label, "why", why));
  }
  list(out, "unclear", "Unclear", rows, "what", "why");
  json_decref(rows);
}

static void environment(bs_text *out, const json_t *env) {
  static const bs_field fields[] = {{"key", "what", 0, 0}, {"value", "value", 0, 0}};
  json_t *rows = json_array(), *value, *inner;
  const char *key, *name;
  char path[160];
  json_object_foreach((json_t *)env, key, value) {
    if (!json_is_object(value)) {
      json_array_append_new(rows, json_pack("{s:s, s:O}", "key", key, "value", value));
      continue;
    }
    json_object_foreach(value, name, inner) {
      snprintf(path, sizeof path, "%.60s.%.80s", key, name);
      if (!json_is_null(inner) && json_array_size(rows) < MOST_ENV)
        json_array_append_new(rows, json_pack("{s:s, s:O}", "key", path, "value", inner));
    }
  }
  if (json_array_size(rows) > 0) {
    heading(out, "environment", "Environment of the newest run");
    bs_text_printf(out, "<details><summary>%zu facts</summary>\n", json_array_size(rows));
    bs_html_table(out, fields, 2, rows, MOST_ENV);
    bs_text_printf(out, "</details>\n");
  }
  json_decref(rows);
}

static void commands(bs_text *out, const json_t *texts) {
  const size_t n = json_array_size(texts);
  if (n == 0) return;
  heading(out, "repeat", "Commands to repeat it");
  for (size_t i = 0; i < n && i < MOST_LISTED; i++) {
    if (i == MOST_SHOWN && n > MOST_SHOWN + 1)
      bs_text_printf(out, "<details><summary>%zu more</summary>\n", n - MOST_SHOWN);
    bs_text_printf(out, "<pre>");
    bs_svg_escape(out, json_string_value(json_array_get(texts, i)));
    bs_text_printf(out, "</pre>\n");
  }
  if (n > MOST_SHOWN + 1) bs_text_printf(out, "</details>\n");
}

/* Lists the rows that the charts leave out. */
static void left_out(bs_text *out, const json_t *model) {
  static const char *const lists[][4] = {
      {"comparisons", "compared", "ratios have the first", "in the order of the settings"},
      {"lines", "lined", "lines have the newest", "measurements"}};
  for (size_t i = 0; i < 2; i++) {
    const size_t n = json_array_size(json_object_get(model, lists[i][0]));
    const long long all = json_integer_value(json_object_get(model, lists[i][1]));
    if (all > (long long)n)
      bs_text_printf(out,
                     "<p class=\"soft\">Charts of %s %zu of %lld %s. bsrun report PART has fewer rows.</p>\n",
                     lists[i][2], n, all, lists[i][3]);
  }
}

static void header(bs_text *out, const json_t *model) {
  char title[400] = "Records of the original harness", place[600] = "", verdict[900] = "";
  if (model != NULL) {
    bs_report_title(model, title, sizeof title);
    bs_report_place(model, place, sizeof place);
    bs_report_verdict(model, verdict, sizeof verdict);
  }
  bs_html_head(out, title, "report", "");
  bs_text_printf(out, "<header>\n<h1>");
  bs_svg_escape(out, title);
  bs_text_printf(out, "</h1>\n<p class=\"soft\">");
  bs_svg_escape(out, place);
  bs_text_printf(out, "</p>\n<p class=\"verdict\">");
  bs_svg_escape(out, verdict);
  bs_text_printf(out, "</p>\n");
  if (model != NULL) strip(out, model);
  bs_text_printf(out, "</header>\n<main>\n");
}

/* A reader must know these before he believes a chart. */
static void above_charts(bs_text *out, const json_t *model) {
  settings_table(out, json_object_get(model, "latest"));
  list(out, "warnings", "Warnings of the newest runs", json_object_get(model, "warnings"), "what", "why");
  list(out, "refused", "Failed, refused or damaged", json_object_get(model, "refused"), "what", "why");
  unclear(out, json_object_get(model, "comparisons"));
  list(out, "untried", "Not tried", json_object_get(model, "untried"), "what", "why");
  diagnosis(out, json_object_get(model, "findings"));
  commands(out, json_object_get(model, "commands"));
  bs_html_profiles(out, json_object_get(model, "profiles"));
}

int32_t bs_report_html(const bs_page *page, bs_text *out, bs_error *err) {
  const json_t *model = page->model;
  header(out, model);
  if (model != NULL) above_charts(out, model);
  figures(out, "charts", "Charts", page->charts, page->n_charts);
  if (model != NULL) left_out(out, model);
  if (page->original != NULL) bs_original_section(out, page->original);
  figures(out, "original-charts", "The original's plots", page->original_charts, page->n_original_charts);
  if (model != NULL) {
    list(out, "notes", "Notes", json_object_get(model, "notes"), "run", "text");
    environment(out, json_object_get(model, "env"));
  }
  bs_text_printf(out, "</main>\n<script>\n");
  bs_text_append(out, bs_html_script, strlen(bs_html_script));
  bs_text_printf(out, "</script>\n</body>\n</html>\n");
  return out->failed ? bs_no_memory(err, "the page") : BS_OK;
}
