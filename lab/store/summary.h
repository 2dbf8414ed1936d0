/* SPDX-License-Identifier: MIT
 * summary.h - a record as rows of plain values (read.h says which). */
#ifndef BS_LAB_STORE_SUMMARY_H
#define BS_LAB_STORE_SUMMARY_H
#include <jansson.h>

/* What the gates of a record say, or NULL where none ran: "RIGHT", "WRONG", "NOT SHOWN RIGHT". */
const char *bs_record_word(const json_t *record);
/* Which clock its times are of: "virtual" (simulated), "device" (events of an accelerator), "host". */
const char *bs_record_clock(const json_t *record);
/* What all rows of a run share, besides what its records say. Borrowed; NULL: not known. */
/* One more whenever a row of the same record gets other values: older rows of index.jsonl are made anew. */
enum { BS_ROWS_VERSION = 3 };

typedef struct bs_summary_run {
  const char *path;
  const json_t *done; /* of DONE */
  json_t *host;       /* name of the machine: the first record has the environment */
  json_t *note;       /* its newest one */
} bs_summary_run;
/* Appends the rows of one record. 0: out of memory. */
int bs_summary_add(json_t *rows, const bs_summary_run *run, const json_t *record);
#endif
