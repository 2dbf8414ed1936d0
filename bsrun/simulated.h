/* SPDX-License-Identifier: MIT
 * simulated.h - runs in virtual time: the table, and the line which states that its times are simulated. */
#ifndef BS_BSRUN_SIMULATED_H
#define BS_BSRUN_SIMULATED_H
#include "bsrun/bsrun.h"
#include "lab/report/report.h"

/* The line: which machine, and that nothing is measured. row has machine, label, engine and values. of_layer:
 * a backend with values can judge it. */
void simulated_print_head(const json_t *row, int of_layer);
/* The line and the table of rows, all of them simulated: on a screen. */
int32_t simulated_print(const json_t *rows, bs_error *err);
#endif
