/* SPDX-License-Identifier: MIT
 * original.h - the stored records of the original harness (metrics.jsonl files below a folder): as rows, as
 * its table of forward times with predictions, and as the successors of its 28 plots. */
#ifndef BS_LAB_REPORT_ORIGINAL_H
#define BS_LAB_REPORT_ORIGINAL_H
#include "lab/report/model.h"

/* Reads every record below dir, flat (bs_report_flat), with path, origin ("original") and the values that its
 * plots derive. Links are not followed. A line that is not a record is added to `problems` ({what, why}). The
 * rows are the caller's. BS_INPUT: no records; BS_IO. */
int32_t bs_original_read(const char *dir, json_t **out_rows, json_t *problems, bs_error *err);
/* Adds the values that the plots derive to a flat record: forward_minus_layout_fix_*, *_gib,
 * forward_ns_per_weight_byte, quality; and series and facet. */
void bs_original_derive(json_t *flat, const char *origin);

/* {rows, bandwidth_bytes_per_s, from_N, dtype, B}: for each N the median of the p50 forward of each method
 * over the runs of sweeps (of all runs if there are no sweeps), all-reduce and layout_fix, and the prediction
 * from bytes: weight bytes that the method reads / bandwidth + all-reduce + layout_fix. The bandwidth is that
 * of dense_single at the largest N. The caller releases it; NULL: out of memory. */
json_t *bs_original_table(const json_t *rows);
/* Fields of its rows: the cells for people, and the numbers. */
extern const bs_field bs_original_cells[], bs_original_numbers[];
extern const size_t bs_original_n_cells, bs_original_n_numbers;
/* The sentence below the table. */
void bs_original_words(const json_t *table, char *out, size_t size);
/* The table as a section of the page. */
void bs_original_section(bs_text *out, const json_t *table);

/* One chart for each of the original's 28 plots that the rows can fill, over N. Added to the array. */
int32_t bs_original_charts(const json_t *rows, bs_chart **charts, size_t *n, bs_error *err);
#endif
