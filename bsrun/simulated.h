/* SPDX-License-Identifier: MIT
 * simulated.h - runs in virtual time: their row, and the table with the line that says what it is. */
#ifndef BS_BSRUN_SIMULATED_H
#define BS_BSRUN_SIMULATED_H
#include "bsrun/bsrun.h"
#include "lab/report/report.h"

/* 1: a record, or a row, of a simulated run. */
int simulated_is(const json_t *record_or_row);
/* The fields of the record's "simulated" as those of a row. */
void simulated_add(json_t *row, const json_t *record);
/* The line and the table of rows, all of them simulated: on a screen. */
int32_t simulated_print(const json_t *rows, bs_error *err);
#endif
