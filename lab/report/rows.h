/* SPDX-License-Identifier: MIT
 * rows.h - from records (metrics.jsonl) to rows of the fields of fields.h, and to words. Functions of the
 * record alone. */
#ifndef BS_LAB_REPORT_ROWS_H
#define BS_LAB_REPORT_ROWS_H
#include <jansson.h>
#include <stdio.h>

#include "blockshock/blockshock.h"

/* The rows of a record, appended to an array: one for each arm of a record with arms, else one. BS_NO_MEMORY.
 */
int32_t bs_rows_add(json_t *rows, const json_t *record, const char *run_dir, bs_error *err);
/* Adds what is computed from a record's times to it: FLOPs, GFLOP/s and share of the limit of each arm. */
int32_t bs_rows_add_figures(json_t *record, bs_error *err);
/* 1: a record, or a row, of a run in virtual time. */
int bs_row_is_simulated(const json_t *record_or_row);
/* The fields of a record's "simulated" as those of a row. */
void bs_row_add_simulated(json_t *row, const json_t *record);

/* words.c: what the gates of a record say: the word of bs_record_word (NOT SHOWN RIGHT where there are none),
 * and of what is RIGHT in which way. */
const char *bs_gates_words(const json_t *record);
/* "FASTER: speedup 1.86 [1.70, 1.88] against dense on 1 core": a comparison of a record, the record's method
 * being the subject, in words. `other` is the arm that it was held against. Returns out. */
const char *bs_comparison_words(const json_t *comparison, const json_t *other, char *out, size_t size);
/* "dense on 1 core", "dense on all 2 cores": an arm of a record in words. Returns out. */
const char *bs_arm_words(const json_t *arm, char *out, size_t size);
/* "speedup: against dense on all cores": the line above a table of rows that have `against`; no line where no
 * row has it. */
void bs_speedup_caption(FILE *out, const json_t *rows);
#endif
