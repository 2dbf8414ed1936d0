/* SPDX-License-Identifier: MIT
 * model.h - the content of a report, as one JSON object made from run folders: rows for its charts and
 * tables, and the data around them. Reads only. */
#ifndef BS_LAB_REPORT_MODEL_H
#define BS_LAB_REPORT_MODEL_H
#include "lab/report/chart.h"

/* The request. A word is a root of runs, the folder of a sweep or of a run, or a name below `root`: a sweep,
 * a run_id, or the beginning of a run's path. No words: all of root. */
typedef struct bs_report_request {
  const char *root;
  const char *const *words;
  size_t n_words;
  const char *command; /* the command that makes the report again; NULL: unknown */
} bs_report_request;

/* The object has:
 *   rows         of bs_runs_index, each also with root and with what follows from it: gflops, gflops_low,
 *                gflops_high, bound_gflops, forward_ns_per_byte, sent_bytes, bus_GBps, place (in a sweep)
 *   latest       of rows the newest of each setting, in the order of the settings, without dense peers
 *   arms         of latest each row and the dense layers that its run measured, too
 *   comparisons  of latest one row for each dense layer that it was set against, the first 500
 *   lines        rows for lines over a size: rows and their peers, with series and facets (charts.h), the
 *                newest 2,000 or few more
 *   compared, lined   how many comparisons and lines there would be without these limits
 *   samples      [{run, rows}]: rows of bs_chart_samples
 *   warnings, refused, untried   [{what, why}]
 *   notes        [{run, text}]
 *   findings     of `bsrun diagnose`: [{run, rank, check, severity, cost_s, share, evidence, command}]
 *   profiles     [{run, profile}]: of runs of bsrun profile (lab/profile/profile.h), the newest 20
 *   env          of the newest run; commands: texts
 *   unfinished, damaged: numbers
 * The caller releases it. BS_INPUT: a word names nothing; BS_IO. */
int32_t bs_report_model(const bs_report_request *request, json_t **out_model, bs_error *err);

/* The charts of a model in the order of the page, those with nothing to draw left out. Each and the array are
 * the caller's (bs_charts_free). */
int32_t bs_report_charts(const json_t *model, bs_chart **out_charts, size_t *out_n, bs_error *err);
void bs_charts_free(bs_chart *charts, size_t n);
/* Appends the lines of `specs` over rows (grouped by their text `facet_key`), those with at least
 * spec->least_places of x. The array grows. */
int32_t bs_charts_add_lines(const json_t *rows, const bs_lines_spec *spec, const char *facet_key, size_t most,
                            bs_chart **charts, size_t *n, bs_error *err);

/* The page: one HTML file that loads nothing. */
typedef struct bs_page {
  const json_t *model; /* NULL: none */
  const bs_chart *charts;
  size_t n_charts;
  const json_t *original; /* bs_original_table; NULL: none */
  const bs_chart *original_charts;
  size_t n_original_charts;
} bs_page;
int32_t bs_report_html(const bs_page *page, bs_text *out, bs_error *err);
/* A table of at most `most` rows. Columns that no row fills are left out; of those flagged BS_FIELD_FOLD the
 * ones that all rows share stand in the caption. */
void bs_html_table(bs_text *out, const bs_field *fields, size_t n_fields, const json_t *rows, size_t most);
/* The section of profiles; nothing without any. */
void bs_html_profiles(bs_text *out, const json_t *profiles);
/* The model's latest as rows of the first table, and its fields. The rows are the caller's. */
extern const bs_field bs_report_fields[];
extern const size_t bs_report_n_fields;
json_t *bs_report_rows(const json_t *latest);
/* The sentence above the page: what is right; the speedup against each dense layer, the widest first; what is
 * faster. */
void bs_report_verdict(const json_t *model, char *out, size_t size);
/* The title names what was measured ("Sweep s12: blockshock, row_parallel, N 512 to 2048, ..."),
 * the place says when, where and against what. */
void bs_report_title(const json_t *model, char *out, size_t size);
void bs_report_place(const json_t *model, char *out, size_t size);
/* "dense, all cores": "dense on all cores". Returns out. */
const char *bs_against_words(const char *arm, char *out, size_t size);
/* Prints the beginning of a page, up to <body>. of: what the page is ("report"); style: CSS behind that of
 * all pages. */
void bs_html_head(bs_text *out, const char *title, const char *of, const char *style);
/* The script that sorts the tables of a page. */
extern const char bs_html_script[];

/* Rows as CSV with the columns of the original harness: the sorted union of all keys of the records (values
 * that are texts, numbers or truths), timings_ms as text, and <region>_<stat>. */
int32_t bs_report_csv(FILE *out, const json_t *rows, bs_error *err);
/* A record with its regions flattened as <region>_<stat>: what CSV and the charts of the original's plots
 * read. The caller releases it; NULL: out of memory. */
json_t *bs_report_flat(const json_t *record);
/* Writes a file completely or not at all: to a temporary file, then renamed over it. BS_IO. */
int32_t bs_report_write(const char *path, const bs_text *text, bs_error *err);
/* Each chart as DIR/<id>.svg; DIR is made. BS_IO. */
int32_t bs_report_write_charts(const char *dir, const bs_chart *charts, size_t n, bs_error *err);
/* The flat records of the model's newest rows of methods, at most `most`. */
int32_t bs_report_flat_rows(const json_t *model, size_t most, json_t *out_rows, bs_error *err);
#endif
