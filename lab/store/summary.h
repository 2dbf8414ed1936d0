/* SPDX-License-Identifier: MIT
 * summary.h - a record as rows of plain values (read.h says which). */
#ifndef BS_LAB_STORE_SUMMARY_H
#define BS_LAB_STORE_SUMMARY_H
#include <jansson.h>

/* What the gates of a record say, or NULL where none ran: "RIGHT", "WRONG", "NOT SHOWN RIGHT". */
const char *bs_record_word(const json_t *record);
/* Appends the rows of one record of the run in `path`, whose DONE says `status`; note: its newest note, or
 * NULL. 0: out of memory. */
int bs_summary_add(json_t *rows, const char *path, const json_t *status, const json_t *record, json_t *note);
#endif
