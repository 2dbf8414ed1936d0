/* SPDX-License-Identifier: MIT
 * read.h - reads the committed runs below a root: as one row of plain values for each record or arm (the list
 * of runs, reports), and as whole records. Reading takes no lock, follows no link below the root and changes
 * only index.jsonl, a cache of rows that is never authoritative. */
#ifndef BS_LAB_STORE_READ_H
#define BS_LAB_STORE_READ_H
#include <jansson.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* Counts of the runs below a root. Release with bs_runs_stats_free. */
typedef struct bs_runs_stats {
  uint64_t runs;       /* committed and whole: in the rows */
  uint64_t unfinished; /* folders of runs without DONE: at work, killed or interrupted */
  uint64_t damaged;    /* DONE exists, but its sums do not match: never in the rows */
  uint64_t closed;     /* folders that this user may not look into */
  json_t *problems;    /* of the damaged and the closed ones: [{run, message}] */
} bs_runs_stats;
void bs_runs_stats_free(bs_runs_stats *stats);

/* The keys of a row, in the order in which a table shows them; NULL ends the list. */
extern const char *const bs_run_row_keys[];

/* One row for each record of each committed run, the newest run first. A record with arms gives one row an
 * arm (`arm` is its name); one of a simulated run gives a second row for the dense layer it was compared
 * with. Rows have the keys of bs_run_row_keys, null if a value is missing (docs/runs.md lists them). A root
 * that does not exist has no rows. *out_rows is the caller's. BS_IO: the root cannot be read. A damaged run
 * is not an error: `out_stats` (NULL: not wanted) counts it. */
int32_t bs_runs_index(const char *root, json_t **out_rows, bs_runs_stats *out_stats, bs_error *err);

/* Like bs_runs_index, for one committed run. The errors are those of bs_run_read. */
int32_t bs_run_rows(const char *root, const char *run, json_t **out_rows, bs_error *err);

/* The records of one committed run, and its environment (NULL: not wanted); `run` is the folder, relative to
 * root. Sums are verified. Both are the caller's. BS_NOT_FOUND: no run, or not committed; BS_CORRUPT: it is
 * damaged; BS_IO. */
int32_t bs_run_read(const char *root, const char *run, json_t **out_records, json_t **out_env, bs_error *err);

/* The samples of one committed run: [{record, arm, phase, seconds: [...], discarded: [...]}], seconds of one
 * forward in the order of time. They come from samples.bin if that is whole, else from the records. The
 * caller's; empty for a run without samples. Errors as bs_run_read. */
int32_t bs_run_samples(const char *root, const char *run, json_t **out_samples, bs_error *err);
#endif
