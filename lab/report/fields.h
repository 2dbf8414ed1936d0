/* SPDX-License-Identifier: MIT
 * fields.h - the fields of the rows that rows.h makes from records, in their order in tables, csv and json.
 * Static data. */
#ifndef BS_LAB_REPORT_FIELDS_H
#define BS_LAB_REPORT_FIELDS_H
#include "lab/report/report.h"

enum { BS_PHASE_FIELDS = 32 };

extern const bs_field bs_run_fields[];
extern const size_t bs_n_run_fields;
/* Finds a field by its key; NULL: unknown key. "what" is only a field of tables: an arm in words. */
const bs_field *bs_run_field(const char *key);
/* The fields in a table of phase 0 to 3; returns their number. The caller leaves out those that are empty in
 * all rows. */
size_t bs_phase_fields(size_t phase, bs_field out_fields[BS_PHASE_FIELDS]);
#endif
