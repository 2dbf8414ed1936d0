/* SPDX-License-Identifier: MIT
 * run.h - the parts of the run verb: rows on the screen (run_table.c), and the signals that may end a run
 * (run_signal.c). */
#ifndef BSRUN_RUN_H
#define BSRUN_RUN_H
#include "bsrun/bsrun.h"

/* Prints rows in a format: a table has the columns of each phase, the other formats have all fields. */
int32_t run_print_rows(int format, const json_t *rows, bs_error *err);
void run_signals_watch(int run_fd); /* -1: none */
/* Leaves INTERRUPTED with this number in the run that is open. Async-signal-safe. */
void run_signals_mark(int number);
void run_signals_tell(void); /* prints how to go on after an interrupted run */
#endif
