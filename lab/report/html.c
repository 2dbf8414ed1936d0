/* SPDX-License-Identifier: MIT
 * html.c - the page of a report: see model.h. It loads nothing, a policy in its head forbids it, and it can
 * be read without its script, which only sorts tables. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/original.h"

enum { MOST_ROWS = 500, MOST_DATA = 240, MOST_LISTED = 60, MOST_ENV = 160 };

static const char page_style[] =
    "*{box-sizing:border-box}html{color-scheme:light dark}body{margin:0 auto;max-width:1280px;padding:24px "
    "16px 64px;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:15px;font-weight:600;color:var(--soft);margin:0 0 4px;letter-spacing:.02em}"
    ".verdict{font-size:clamp(19px,2.4vw,26px);line-height:1.3;font-weight:600;margin:0 0 "
    "16px;max-width:60ch}\n"
    "h2{font-size:19px;margin:40px 0 10px;padding-top:10px;border-top:1px solid var(--grid)}"
    "h3{font-size:15px;margin:0 0 4px}p{margin:0 0 "
    "10px}.soft,caption,figcaption{color:var(--soft);font-size:13px}\n"
    ".strip{display:flex;flex-wrap:wrap;gap:8px;list-style:none;margin:0 0 8px;padding:0}.strip "
    "li{border:1px solid "
    "var(--grid);border-left:4px solid var(--c,var(--soft));border-radius:6px;padding:4px "
    "10px;background:var(--panel)}"
    ".strip b{font-size:17px}\n"
    ".charts{display:grid;gap:18px;grid-template-columns:repeat(auto-fill,minmax(min(100%,520px),1fr));align-"
    "items:start}"
    "figure{margin:0;padding:14px;border:1px solid "
    "var(--grid);border-radius:8px;background:var(--paper);min-width:0;"
    "break-inside:avoid}.draw{overflow-x:auto}figure "
    "svg{display:block;width:100%;min-width:440px;height:auto}\n"
    ".wide{overflow:auto;max-height:70vh}table{border-collapse:collapse;font-size:13px;font-variant-numeric:"
    "tabular-nums}"
    "caption{text-align:left;padding:0 0 6px}th,td{padding:4px 10px;text-align:left;border-bottom:1px solid "
    "var(--grid);"
    "white-space:nowrap}th{position:sticky;top:0;background:var(--panel);font-weight:600}.n{text-align:right}"
    "tbody tr:hover{background:var(--panel)}tr.sim "
    "td{font-style:italic;color:var(--soft)}b.good,b.bad{color:var(--c)}\n"
    "th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer}"
    "th[aria-sort=ascending] button::after{content:\" \\25B2\"}th[aria-sort=descending] "
    "button::after{content:\" "
    "\\25BC\"}:focus-visible{outline:2px solid var(--s0);outline-offset:2px}\n"
    "details{margin:8px 0}summary{cursor:pointer;color:var(--soft);font-size:13px}pre{white-space:pre-wrap;"
    "overflow-wrap:anywhere;background:var(--panel);padding:10px;border-radius:6px;font-size:13px;margin:0 0 "
    "8px}"
    "li{overflow-wrap:anywhere}\n"
    "@media "
    "print{body{max-width:none;font-size:11px}.wide{max-height:none;overflow:visible}th{position:static}"
    ".charts{grid-template-columns:1fr 1fr}figure svg{min-width:0}}\n";

/* Sorts by number where both cells begin with one, else by text; a second press turns the order round. */
static const char page_script[] =
    "for (const table of document.querySelectorAll('table')) {\n"
    "  const head = [...table.tHead.rows[0].cells];\n"
    "  head.forEach((th, column) => {\n"
    "    const button = document.createElement('button');\n"
    "    button.type = 'button';\n"
    "    button.append(...th.childNodes);\n"
    "    th.append(button);\n"
    "    th.setAttribute('aria-sort', 'none');\n"
    "    button.addEventListener('click', () => {\n"
    "      const up = th.getAttribute('aria-sort') !== 'ascending';\n"
    "      head.forEach((other) => other.setAttribute('aria-sort', 'none'));\n"
    "      th.setAttribute('aria-sort', up ? 'ascending' : 'descending');\n"
    "      const text = (row) => row.cells[column].textContent;\n"
    "      const order = (a, b) => {\n"
    "        const x = parseFloat(a), y = parseFloat(b);\n"
    "        return isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y;\n"
    "      };\n"
    "      const rows = [...table.tBodies[0].rows];\n"
    "      rows.sort((a, b) => (up ? 1 : -1) * order(text(a), text(b)));\n"
    "      table.tBodies[0].append(...rows);\n"
    "    });\n"
    "  });\n"
    "}\n";

static void heading(bs_text *out, const char *id, const char *text) {
  bs_text_printf(out, "<h2 id=\"%s\">%s</h2>\n", id, text);
}

static void head(bs_text *out) {
  bs_text_printf(out,
                 "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                 "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
                 "<title>Block-Shock report</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n");
  bs_text_append(out, bs_svg_style, strlen(bs_svg_style));
  bs_text_append(out, page_style, strlen(page_style));
  bs_text_printf(out, "</style>\n</head>\n<body>\n");
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

static void comparison_table(bs_text *out, const json_t *latest) {
  json_t *rows = bs_report_rows(latest);
  bs_html_table(out, bs_report_fields, bs_report_n_fields, rows, MOST_ROWS);
  json_decref(rows);
}

/* ---- charts ---- */

static void figure(bs_text *out, const bs_chart *chart) {
  bs_text_printf(out, "<figure id=\"chart-%s\">\n<h3>", chart->id);
  bs_svg_escape(out, chart->title);
  bs_text_printf(out, "</h3>\n<div class=\"draw\" tabindex=\"0\">\n");
  bs_text_append(out, chart->svg.data, chart->svg.size);
  bs_text_printf(out, "</div>\n<figcaption>");
  bs_svg_escape(out, chart->what);
  bs_text_printf(out, "</figcaption>\n<details><summary>The data as a table</summary>\n");
  bs_html_table(out, chart->fields, chart->n_fields, chart->data, MOST_DATA);
  bs_text_printf(out, "</details>\n</figure>\n");
}

/* ---- what stands below ---- */

static void list(bs_text *out, const char *id, const char *title, const json_t *rows, const char *first,
                 const char *second) {
  if (json_array_size(rows) == 0) return;
  heading(out, id, title);
  bs_text_printf(out, "<ul>\n");
  for (size_t i = 0; i < json_array_size(rows) && i < MOST_LISTED; i++) {
    bs_text_printf(out, "<li><b>");
    bs_svg_escape(out, bs_row_text(json_array_get(rows, i), first));
    bs_text_printf(out, "</b>: ");
    bs_svg_escape(out, bs_row_text(json_array_get(rows, i), second));
    bs_text_printf(out, "</li>\n");
  }
  if (json_array_size(rows) > MOST_LISTED)
    bs_text_printf(out, "<li>and %zu more</li>\n", json_array_size(rows) - MOST_LISTED);
  bs_text_printf(out, "</ul>\n");
}

/* What `bsrun diagnose` has found, in the order of the runs and of what it costs. */
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
  char label[200], why[280];
  size_t i;
  json_array_foreach((json_t *)comparisons, i, row) {
    if (strcmp(bs_row_text(row, "speedup_word"), "UNCLEAR") != 0) continue;
    bs_row_words(row, differ | BS_ROW_METHOD, NULL, label, sizeof label);
    const char *cause = bs_row_text(row, "cause");
    snprintf(why, sizeof why, "speedup between %.3g and %.3g against %.60s%s%.100s",
             bs_row_number(row, "speedup_low"), bs_row_number(row, "speedup_high"),
             bs_row_text(row, "against"), cause[0] != '\0' ? "; " : "", cause);
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
    bs_text_printf(out, "<details open><summary>%zu facts</summary>\n", json_array_size(rows));
    bs_html_table(out, fields, 2, rows, MOST_ENV);
    bs_text_printf(out, "</details>\n");
  }
  json_decref(rows);
}

static void commands(bs_text *out, const json_t *texts) {
  if (json_array_size(texts) == 0) return;
  heading(out, "repeat", "Commands to repeat it");
  for (size_t i = 0; i < json_array_size(texts) && i < MOST_LISTED; i++) {
    bs_text_printf(out, "<pre>");
    bs_svg_escape(out, json_string_value(json_array_get(texts, i)));
    bs_text_printf(out, "</pre>\n");
  }
}

/* Says which rows the charts leave out. */
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

static void figures(bs_text *out, const char *id, const char *title, const bs_chart *charts, size_t n) {
  if (n == 0) return;
  heading(out, id, title);
  bs_text_printf(out, "<div class=\"charts\">\n");
  for (size_t i = 0; i < n; i++) figure(out, &charts[i]);
  bs_text_printf(out, "</div>\n");
}

int32_t bs_report_html(const bs_page *page, bs_text *out, bs_error *err) {
  const json_t *model = page->model;
  char verdict[700] = "Records of the original harness.";
  if (model != NULL) bs_report_verdict(model, verdict, sizeof verdict);
  head(out);
  bs_text_printf(out, "<header>\n<h1>Block-Shock report</h1>\n<p class=\"verdict\">");
  bs_svg_escape(out, verdict);
  bs_text_printf(out, "</p>\n");
  if (model != NULL) strip(out, model);
  bs_text_printf(out, "</header>\n<main>\n");
  if (model != NULL) {
    heading(out, "settings", "Settings, the newest run of each");
    comparison_table(out, json_object_get(model, "latest"));
    if (count_simulated(json_object_get(model, "latest")) > 0)
      bs_text_printf(
          out,
          "<p class=\"soft\">Rows in italics are simulated: their clock is virtual, and no ratio is "
          "made between them and measured times.</p>\n");
    left_out(out, model);
    bs_html_profiles(out, json_object_get(model, "profiles"));
  }
  figures(out, "charts", "Charts", page->charts, page->n_charts);
  if (page->original != NULL) bs_original_section(out, page->original);
  figures(out, "original-charts", "The original's plots", page->original_charts, page->n_original_charts);
  if (model != NULL) {
    diagnosis(out, json_object_get(model, "findings"));
    list(out, "warnings", "Warnings of the newest runs", json_object_get(model, "warnings"), "what", "why");
    list(out, "refused", "Failed, refused or damaged", json_object_get(model, "refused"), "what", "why");
    unclear(out, json_object_get(model, "comparisons"));
    list(out, "untried", "Not tried", json_object_get(model, "untried"), "what", "why");
    list(out, "notes", "Notes", json_object_get(model, "notes"), "run", "text");
    environment(out, json_object_get(model, "env"));
    commands(out, json_object_get(model, "commands"));
  }
  bs_text_printf(out, "</main>\n<script>\n");
  bs_text_append(out, page_script, strlen(page_script));
  bs_text_printf(out, "</script>\n</body>\n</html>\n");
  return out->failed ? bs_no_memory(err, "the page") : BS_OK;
}
