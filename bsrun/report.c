/* SPDX-License-Identifier: MIT
 * report.c - `bsrun report`: runs as one HTML page, as SVG charts, as CSV or as a table; and the records of
 * the original harness next to them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"
#include "lab/report/original.h"

enum { MOST_OURS = 400 }; /* runs whose records are shown next to the original's */

static const args_option report_options[] = {
    {OPT_OUTPUT, "html (the page, the default), table, md, csv, json or jsonl", 0},
    {OPT_TO, "the page, as HTML; default: report.html, with another -o none", 0},
    {OPT_TO_SVG, NULL, 0},
    {OPT_TO_CSV, NULL, 0},
    {OPT_ORIGINAL, NULL, 0},
    {OPT_OUT, NULL, ARGS_STORE},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

/* All that one call makes. */
typedef struct report {
  const args *a;
  json_t *model, *original, *table, *problems; /* NULL: not asked for */
  json_t *flat;                                /* rows of the CSV and of the original's plots */
  bs_chart *charts, *plots;
  size_t n_charts, n_plots;
} report;

static void report_free(report *r) {
  bs_charts_free(r->charts, r->n_charts);
  bs_charts_free(r->plots, r->n_plots);
  json_decref(r->model);
  json_decref(r->original);
  json_decref(r->table);
  json_decref(r->problems);
  json_decref(r->flat);
}

static int32_t read_runs(report *r, bs_error *err) {
  const char *root = args_value(r->a, "out");
  char *command = bsrun_command_line();
  const bs_report_request request = {.root = root != NULL ? root : "results/raw",
                                     .words = r->a->words,
                                     .n_words = r->a->n_words,
                                     .command = command};
  const int32_t rc = bs_report_model(&request, &r->model, err);
  free(command);
  return rc;
}

/* Reads the original's rows, and adds ours as the same kind of rows after them. */
static int32_t read_original(report *r, bs_error *err) {
  const char *dir = args_value(r->a, "original");
  json_t *row;
  size_t i;
  int32_t rc = bs_original_read(dir, &r->original, r->problems, err);
  if (rc != BS_OK) return rc;
  r->table = bs_original_table(r->original);
  json_array_foreach(r->problems, i, row) {
    char note[600];
    snprintf(note, sizeof note, "%.300s is left out: %.200s", bs_row_text(row, "what"),
             bs_row_text(row, "why"));
    bsrun_note(args_has(r->a, "quiet"), note);
  }
  return r->table != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a table");
}

/* most: of our runs. */
static int32_t flat_rows(report *r, size_t most, bs_error *err) {
  json_t *row;
  size_t i;
  json_decref(r->flat);
  r->flat = json_array();
  int32_t rc = r->model != NULL ? bs_report_flat_rows(r->model, most, r->flat, err) : BS_OK;
  json_array_foreach(r->flat, i, row) bs_original_derive(row, "ours");
  if (rc == BS_OK && r->original != NULL) json_array_extend(r->flat, r->original);
  return rc;
}

static int32_t write_csv(report *r, const char *path, bs_error *err) {
  char *data = NULL;
  size_t size = 0;
  int32_t rc = flat_rows(r, SIZE_MAX, err);
  FILE *file = rc == BS_OK ? open_memstream(&data, &size) : NULL;
  if (rc == BS_OK && file == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for the CSV");
  if (rc == BS_OK) rc = bs_report_csv(file, r->flat, err);
  if (file != NULL && fclose(file) != 0 && rc == BS_OK)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for the CSV");
  const bs_text text = {.data = data, .size = size};
  if (rc == BS_OK) rc = bs_report_write(path, &text, err);
  free(data);
  return rc;
}

static int32_t make_charts(report *r, bs_error *err) {
  int32_t rc = r->model != NULL ? bs_report_charts(r->model, &r->charts, &r->n_charts, err) : BS_OK;
  if (rc != BS_OK || r->original == NULL) return rc;
  rc = flat_rows(r, MOST_OURS, err);
  return rc == BS_OK ? bs_original_charts(r->flat, &r->plots, &r->n_plots, err) : rc;
}

static int32_t write_page(report *r, const char *path, bs_error *err) {
  const bs_page page = {r->model, r->charts, r->n_charts, r->table, r->plots, r->n_plots};
  bs_text text = {0};
  int32_t rc = bs_report_html(&page, &text, err);
  if (rc == BS_OK) rc = bs_report_write(path, &text, err);
  bs_text_free(&text);
  return rc;
}

static int32_t print_original(const report *r, int format, bs_error *err) {
  const int people = format == BS_FORMAT_TABLE || format == BS_FORMAT_MD;
  char words[500];
  bs_original_words(r->table, words, sizeof words);
  if (people) bs_print(stdout, "%s\n\n", words);
  return bs_report_print(stdout, format, people ? bs_original_cells : bs_original_numbers,
                         people ? bs_original_n_cells : bs_original_n_numbers,
                         json_object_get(r->table, "rows"), err);
}

static int32_t print_runs(const report *r, int format, bs_error *err) {
  char words[900];
  json_t *rows = bs_report_rows(json_object_get(r->model, "latest"));
  bs_report_verdict(r->model, words, sizeof words);
  if (format == BS_FORMAT_TABLE || format == BS_FORMAT_MD) bs_print(stdout, "%s\n\n", words);
  const int32_t rc = bs_report_print(stdout, format, bs_report_fields, bs_report_n_fields, rows, err);
  json_decref(rows);
  return rc;
}

/* Prints to stdout: rows if a format was asked for, else the first sentence of the page. */
static int32_t print(const report *r, int format, const char *page, bs_error *err) {
  char words[900];
  int32_t rc = BS_OK;
  if (format >= 0 && r->model != NULL) rc = print_runs(r, format, err);
  if (format >= 0 && rc == BS_OK && r->table != NULL) rc = print_original(r, format, err);
  if (format >= 0 || page == NULL) return rc;
  if (r->model != NULL) {
    bs_report_verdict(r->model, words, sizeof words);
    bs_print(stdout, "%s\n", words);
  }
  bs_print(stdout, "report: %s\n", page);
  return BS_OK;
}

static int32_t make(report *r, bs_error *err) {
  const char *output = args_value(r->a, "output"), *svg = args_value(r->a, "svg"),
             *csv = args_value(r->a, "csv"), *page = args_value(r->a, "to");
  static const char *const formats[] = {"html", "table", "md", "csv", "json", "jsonl"};
  const int html = output != NULL && strcmp(output, "html") == 0;
  int format = output != NULL && !html ? bs_format_parse(output) : -1;
  if (output != NULL && !html && format < 0) return bsrun_unknown("output format", output, formats, 6, err);
  if (args_has(r->a, "original") && output == NULL && page == NULL && r->a->n_words == 0)
    format = BS_FORMAT_TABLE;
  if (format < 0 && page == NULL && (html || (svg == NULL && csv == NULL))) page = "report.html";
  int32_t rc = !args_has(r->a, "original") || r->a->n_words > 0 ? read_runs(r, err) : BS_OK;
  if (rc == BS_OK && args_has(r->a, "original")) rc = read_original(r, err);
  if (rc == BS_OK && (page != NULL || svg != NULL)) rc = make_charts(r, err);
  if (rc == BS_OK && page != NULL) rc = write_page(r, page, err);
  if (rc == BS_OK && svg != NULL) rc = bs_report_write_charts(svg, r->charts, r->n_charts, err);
  if (rc == BS_OK && svg != NULL) rc = bs_report_write_charts(svg, r->plots, r->n_plots, err);
  if (rc == BS_OK && csv != NULL) rc = write_csv(r, csv, err);
  return rc == BS_OK ? print(r, format, page, err) : rc;
}

static int32_t run(const args *a, bs_error *err) {
  report r = {.a = a, .problems = json_array()};
  const int32_t rc = make(&r, err);
  report_free(&r);
  return rc;
}

const bsrun_verb verb_report = {
    .name = "report",
    .summary = "runs as one HTML page, as charts, as CSV",
    .words =
        "[ROOT|SWEEP|RUN...] [-o FORMAT] [--to FILE.html] [--to svg=DIR] [--to csv=FILE] [--original DIR]",
    .about =
        "Runs as one HTML page: what was measured and where, the answer in one sentence, a table that "
        "sorts,\n"
        "warnings, what is unclear, the commands to repeat it, and charts with their data: six are open. "
        "The\n"
        "file loads nothing and can be sent by mail. share/doc/blockshock/report.md describes the page.\n"
        "\n"
        "A word is a folder of runs, or a name below the root (--out): a sweep, a run_id, or the beginning "
        "of a\n"
        "run's path. Without words it is the whole root. Only committed runs are read. No run is changed; "
        "the\n"
        "index of the runs (index.jsonl, share/doc/blockshock/runs.md) is brought up to date in the root.\n"
        "With --original and no words only the original's records are read, and its table is printed.\n",
    .examples =
        "  bsrun report                                   # results/raw as report.html\n"
        "  bsrun report --out results/raw phase1_forward/blockshock -o table\n"
        "  bsrun report results/raw --to runs.html --to svg=charts --to csv=runs.csv\n"
        "  bsrun report --original official               # the original's table, with predictions\n"
        "  bsrun report results/raw --original official --to both.html\n",
    .exits = "0 done; 2 usage; 4 nothing of that name, no record; 10 a file cannot be read or written\n",
    .options = report_options,
    .run = run,
    .max_words = SIZE_MAX,
    .takes = "runs :dir",
};
