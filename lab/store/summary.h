/* SPDX-License-Identifier: MIT
 * summary.h - turns a record into rows of plain values (read.h lists them). */
#ifndef BS_LAB_STORE_SUMMARY_H
#define BS_LAB_STORE_SUMMARY_H
#include <jansson.h>

/* gates.c. The verdict of a record's gates; NULL: none ran. "RIGHT"; "WRONG": a gate of its numbers failed
 * (for a layer every gate, for a kernel those of the stages numeric and determinism); "NOT PASSED": another
 * one failed, for example on speed; "NOT SHOWN RIGHT". */
const char *bs_record_word(const json_t *record);
/* The stage of the first gate that failed; NULL: none failed, or the gates have no stages, as those of
 * layers. */
const char *bs_record_failed_stage(const json_t *record);
/* The number of a record's gates in a state: "pass", "fail", "unknown", "skipped". */
json_int_t bs_record_gates(const json_t *record, const char *state);
/* The name of one gate of a record; "": it has none. */
const char *bs_gate_name(const json_t *gate);
/* 1: of one provider of `bsrun bench sdpa`. */
int bs_record_is_kernel(const json_t *record);
/* The clock of its times: "virtual" (simulated), "device" (events of an accelerator), "host". */
const char *bs_record_clock(const json_t *record);
/* Increase it when a row of an unchanged record gets other values: then older rows of index.jsonl are made
 * again. */
enum { BS_ROWS_VERSION = 5 };

/* Data that all rows of a run share, in addition to its records. Borrowed; NULL: not known. */
typedef struct bs_summary_run {
  const char *path;
  const json_t *done; /* of DONE */
  json_t *host;       /* name of the machine: the first record has the environment */
  json_t *note;       /* its newest one */
} bs_summary_run;
/* Appends the rows of one record. 0: out of memory. */
int bs_summary_add(json_t *rows, const bs_summary_run *run, const json_t *record);
#endif
