/* SPDX-License-Identifier: MIT
 * fields.h - the fields of the rows that rows.h makes of records, in the order in which tables, csv and json
 * have them. Static data. */
#ifndef BS_LAB_REPORT_FIELDS_H
#define BS_LAB_REPORT_FIELDS_H
#include "lab/report/report.h"

enum { BS_PHASE_FIELDS = 32 };

extern const bs_field bs_run_fields[];
extern const size_t bs_n_run_fields;
/* By its key; NULL: there is none. "what" is a field of tables alone: an arm in words. */
const bs_field *bs_run_field(const char *key);
/* What a table shows of phase 0 to 3: how many. What is empty in all rows is to be left out. */
size_t bs_phase_fields(size_t phase, bs_field out_fields[BS_PHASE_FIELDS]);
#endif
