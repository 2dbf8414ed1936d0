/* SPDX-License-Identifier: MIT
 * original_table.c - the original's table of forward times and its plots: see original.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/original.h"

enum { METHODS = 4, MOST_N = 64 };

/* `reads`: which part of the weight a device reads in one forward. dense_tp reads its half of the columns,
 * masked_split the whole weight with zeros in it, block_shock half of the values and the positions of 2:4. */
static const struct {
  const char *name, *key, *cell, *predicted, *runs, *ratio;
  double reads;
  int exchange, layout;
} methods[METHODS] = {{"dense_single", "dense_single_ms", "dense_single", "dense_single_predicted_ms",
                       "dense_single_runs", "dense_single_predicted_over_measured", 1, 0, 0},
                      {"dense_tp", "dense_tp_ms", "dense_tp", "dense_tp_predicted_ms", "dense_tp_runs",
                       "dense_tp_predicted_over_measured", 0.5, 1, 0},
                      {"masked_split_dense", "masked_split_ms", "masked_split", "masked_split_predicted_ms",
                       "masked_split_runs", "masked_split_predicted_over_measured", 1, 1, 0},
                      {"block_shock_2gpu", "block_shock_ms", "block_shock", "block_shock_predicted_ms",
                       "block_shock_runs", "block_shock_predicted_over_measured", 9.0 / 16, 1, 1}};

#define R BS_FIELD_RIGHT
const bs_field bs_original_cells[] = {{"N", "N", R, 0},
                                      {"dense_single", "dense_single", R, 0},
                                      {"dense_single_predicted_ms", "predicted", R, 4},
                                      {"dense_tp", "dense_tp", R, 0},
                                      {"dense_tp_predicted_ms", "predicted", R, 4},
                                      {"masked_split", "masked_split", R, 0},
                                      {"masked_split_predicted_ms", "predicted", R, 4},
                                      {"block_shock", "block_shock", R, 0},
                                      {"block_shock_predicted_ms", "predicted", R, 4},
                                      {"allreduce_ms", "all-reduce", R, 4},
                                      {"layout_fix_ms", "layout_fix", R, 3}};
const bs_field bs_original_numbers[] = {{"N", "N", R, 0},
                                        {"dense_single_ms", "dense_single ms", R, 5},
                                        {"dense_single_runs", "runs", R, 0},
                                        {"dense_single_predicted_ms", "predicted ms", R, 5},
                                        {"dense_single_predicted_over_measured", "ratio", R, 4},
                                        {"dense_tp_ms", "dense_tp ms", R, 5},
                                        {"dense_tp_runs", "runs", R, 0},
                                        {"dense_tp_predicted_ms", "predicted ms", R, 5},
                                        {"dense_tp_predicted_over_measured", "ratio", R, 4},
                                        {"masked_split_ms", "masked_split ms", R, 5},
                                        {"masked_split_runs", "runs", R, 0},
                                        {"masked_split_predicted_ms", "predicted ms", R, 5},
                                        {"masked_split_predicted_over_measured", "ratio", R, 4},
                                        {"block_shock_ms", "block_shock ms", R, 5},
                                        {"block_shock_runs", "runs", R, 0},
                                        {"block_shock_predicted_ms", "predicted ms", R, 5},
                                        {"block_shock_predicted_over_measured", "ratio", R, 4},
                                        {"allreduce_ms", "all-reduce ms", R, 5},
                                        {"layout_fix_ms", "layout_fix ms", R, 5}};
#undef R
const size_t bs_original_n_cells = sizeof bs_original_cells / sizeof bs_original_cells[0];
const size_t bs_original_n_numbers = sizeof bs_original_numbers / sizeof bs_original_numbers[0];

/* The rows that the table counts: forward times of sweeps, of the dtype and B that most of them have. */
typedef struct chosen {
  const json_t *rows;
  int sweeps;
  char dtype[16];
  double B;
} chosen;

static int counts(const chosen *c, const json_t *row) {
  return strcmp(bs_row_text(row, "phase"), "phase1_forward") == 0 &&
         bs_row_number(row, "forward_p50_ms") > 0 &&
         (!c->sweeps || strstr(bs_row_text(row, "path"), "sweeps/") != NULL) &&
         (c->dtype[0] == '\0' || strcmp(bs_row_text(row, "dtype"), c->dtype) == 0) &&
         (isnan(c->B) || bs_row_number(row, "B") == c->B);
}

static chosen choose(const json_t *rows) {
  chosen c = {.rows = rows, .B = NAN};
  size_t best = 0;
  for (size_t i = 0; i < json_array_size(rows); i++)
    c.sweeps |= strstr(bs_row_text(json_array_get(rows, i), "path"), "sweeps/") != NULL;
  for (size_t i = 0; i < json_array_size(rows) && best < json_array_size(rows) / 2; i++) {
    const json_t *row = json_array_get(rows, i);
    chosen trial = c;
    size_t n = 0;
    trial.B = NAN;
    trial.dtype[0] = '\0';
    if (!counts(&trial, row)) continue;
    trial.B = bs_row_number(row, "B");
    snprintf(trial.dtype, sizeof trial.dtype, "%s", bs_row_text(row, "dtype"));
    for (size_t k = 0; k < json_array_size(rows); k++) n += (size_t)counts(&trial, json_array_get(rows, k));
    if (n <= best) continue;
    best = n;
    c.B = trial.B;
    memcpy(c.dtype, trial.dtype, sizeof c.dtype);
  }
  return c;
}

/* Median of a field over the rows of one N and method (NULL: all of the split methods); NaN: none. */
static double median_at(const chosen *c, double N, const char *method, const char *key, size_t *out_runs) {
  double *values = calloc(json_array_size(c->rows) + 1, sizeof *values), median = NAN;
  size_t n = 0;
  for (size_t i = 0; values != NULL && i < json_array_size(c->rows); i++) {
    const json_t *row = json_array_get(c->rows, i);
    const char *of = bs_row_text(row, "method");
    if (!counts(c, row) || bs_row_number(row, "N") != N) continue;
    if (method != NULL ? strcmp(of, method) != 0 : strcmp(of, "dense_single") == 0) continue;
    if (bs_row_number(row, key) > 0) values[n++] = bs_row_number(row, key);
  }
  if (n > 0) median = bs_median_of(values, n);
  if (out_runs != NULL) *out_runs = n;
  free(values);
  return median;
}

static int by_value(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static size_t sizes_of(const chosen *c, double sizes[MOST_N]) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(c->rows); i++) {
    const json_t *row = json_array_get(c->rows, i);
    const double N = bs_row_number(row, "N");
    size_t k = 0;
    if (!counts(c, row)) continue;
    while (k < n && sizes[k] != N) ++k;
    if (k == n && n < MOST_N && N > 0) sizes[n++] = N;
  }
  qsort(sizes, n, sizeof *sizes, by_value);
  return n;
}

static double element_bytes(const char *dtype) {
  return strstr(dtype, "32") != NULL ? 4 : strstr(dtype, "64") != NULL ? 8 : 2;
}

static json_t *row_of(const chosen *c, double N, double bandwidth) {
  json_t *row = json_pack("{s:I}", "N", (json_int_t)N);
  const double bytes = N * N * element_bytes(c->dtype);
  const double exchange = median_at(c, N, NULL, "allreduce_p50_ms", NULL),
               layout = median_at(c, N, "block_shock_2gpu", "layout_fix_p50_ms", NULL);
  for (size_t m = 0; m < METHODS; m++) {
    size_t runs;
    char cell[48];
    const double measured = median_at(c, N, methods[m].name, "forward_p50_ms", &runs);
    double predicted = methods[m].reads * bytes / bandwidth * 1e3;
    if (methods[m].exchange && exchange > 0) predicted += exchange;
    if (methods[m].layout && layout > 0) predicted += layout;
    if (runs == 0) continue;
    snprintf(cell, sizeof cell, "%.3f (%zu)", measured, runs);
    json_object_set_new(row, methods[m].cell, json_string(cell));
    bs_row_set(row, methods[m].key, measured);
    json_object_set_new(row, methods[m].runs, json_integer((json_int_t)runs));
    bs_row_set(row, methods[m].predicted, predicted);
    bs_row_set(row, methods[m].ratio, predicted / measured);
  }
  bs_row_set(row, "allreduce_ms", exchange);
  bs_row_set(row, "layout_fix_ms", layout);
  return row;
}

json_t *bs_original_table(const json_t *rows) {
  const chosen c = choose(rows);
  double sizes[MOST_N], bandwidth = NAN, from = NAN;
  const size_t n = sizes_of(&c, sizes);
  json_t *table = json_pack("{s:[], s:s}", "rows", "dtype", c.dtype);
  for (size_t i = n; i-- > 0 && isnan(bandwidth);) {
    const double ms = median_at(&c, sizes[i], "dense_single", "forward_p50_ms", NULL);
    if (isnan(ms)) continue;
    bandwidth = sizes[i] * sizes[i] * element_bytes(c.dtype) / (ms / 1e3);
    from = sizes[i];
  }
  bs_row_set(table, "bandwidth_bytes_per_s", bandwidth);
  bs_row_set(table, "from_N", from);
  bs_row_set(table, "B", c.B);
  for (size_t i = 0; i < n; i++)
    json_array_append_new(json_object_get(table, "rows"), row_of(&c, sizes[i], bandwidth));
  return table;
}

void bs_original_words(const json_t *table, char *out, size_t size) {
  snprintf(out, size,
           "Forward, ms: medians over runs of the p50 (number of runs), %s, B %.0f, and what bytes predict: "
           "weight bytes "
           "read / %.0f GB/s (of dense_single at N %.0f) + all-reduce + layout_fix. dense_tp reads 8/16 of "
           "the weight, "
           "block_shock 9/16, the others all of it.",
           bs_row_text(table, "dtype"), bs_row_number(table, "B"),
           bs_row_number(table, "bandwidth_bytes_per_s") / 1e9, bs_row_number(table, "from_N"));
}

void bs_original_section(bs_text *out, const json_t *table) {
  char words[500];
  bs_original_words(table, words, sizeof words);
  bs_text_printf(out, "<h2 id=\"original\">The original harness: its table, with predictions</h2>\n<p>");
  bs_svg_escape(out, words);
  bs_text_printf(out, "</p>\n");
  bs_html_table(out, bs_original_cells, bs_original_n_cells, json_object_get(table, "rows"), MOST_N);
}

/* ---- its plots ---- */

static const struct {
  const char *y, *title, *unit;
} plots[] = {
    {"forward_avg_ms", "Forward, mean", "ms"},
    {"forward_p50_ms", "Forward, median", "ms"},
    {"forward_p95_ms", "Forward, 95th percentile", "ms"},
    {"allreduce_avg_ms", "All-reduce, mean", "ms"},
    {"allreduce_p50_ms", "All-reduce, median", "ms"},
    {"allreduce_p95_ms", "All-reduce, 95th percentile", "ms"},
    {"layout_fix_avg_ms", "Change of layout, mean", "ms"},
    {"layout_fix_p50_ms", "Change of layout, median", "ms"},
    {"layout_fix_p95_ms", "Change of layout, 95th percentile", "ms"},
    {"forward_minus_layout_fix_avg_ms", "Forward without the change of layout, mean", "ms"},
    {"forward_minus_layout_fix_p50_ms", "Forward without the change of layout, median", "ms"},
    {"forward_minus_layout_fix_p95_ms", "Forward without the change of layout, 95th percentile", "ms"},
    {"memory_peak_bytes", "Peak memory", "bytes"},
    {"weight_bytes_total_gib", "Weights, total", "GiB"},
    {"weight_bytes_dense_gib", "Weights, dense", "GiB"},
    {"weight_bytes_sparse_est_gib", "Weights, sparse, estimated", "GiB"},
    {"weight_bytes_total", "Weight bytes, estimated", "bytes"},
    {"weight_bytes_total_actual", "Weight bytes, as stored", "bytes"},
    {"weight_bytes_total_actual_gib", "Weights as stored, total", "GiB"},
    {"weight_bytes_dense_actual_gib", "Weights as stored, dense", "GiB"},
    {"weight_bytes_masked_actual_gib", "Weights as stored, masked", "GiB"},
    {"weight_bytes_shard_actual_gib", "Weights as stored, shard", "GiB"},
    {"weight_bytes_sparse_actual_gib", "Weights as stored, sparse", "GiB"},
    {"forward_ns_per_weight_byte", "Forward over weight bytes", "ns/byte"},
    {"max_abs_error", "Largest absolute error", "of Y"},
    {"mean_abs_error", "Mean absolute error", "of Y"},
    {"max_rel_error", "Largest relative error", "relative"},
    {"quality", "Quality: 1 / forward / (1 + mean error)", "1/ms"}};

int32_t bs_original_charts(const json_t *rows, bs_chart **charts, size_t *n, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < sizeof plots / sizeof plots[0]; i++) {
    char id[48];
    snprintf(id, sizeof id, "original-%.38s", plots[i].y);
    const bs_lines_spec spec = {
        .id = id,
        .title = plots[i].title,
        .what =
            "A line is a method of the original harness, and of this one where its name "
            "ends in \"ours\". Several runs are their median; the band is from the least to "
            "the largest. Machines differ: lines of both are no comparison of speed.",
        .x = "N",
        .x_name = "N",
        .x_scale = BS_SCALE_LOG2,
        .y_scale = BS_SCALE_LOG10,
        .least_places = 2,
        .y = plots[i].y,
        .y_name = plots[i].unit};
    rc = bs_charts_add_lines(rows, &spec, "facet", 1, charts, n, err);
  }
  return rc;
}
