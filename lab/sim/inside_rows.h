/* SPDX-License-Identifier: MIT
 * inside_rows.h - the table of `bsrun sim explain --inside`. */
#ifndef BS_LAB_SIM_INSIDE_ROWS_H
#define BS_LAB_SIM_INSIDE_ROWS_H
#include "lab/sim/inside.h"

/* Makes answer->rows of what its run left in the layout; then runs the program once more for each class that
 * has a rate, 10 % faster. */
int32_t bs_inside_rows(bs_inside_answer *answer, bs_error *err);
#endif
