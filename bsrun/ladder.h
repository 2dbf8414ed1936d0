/* SPDX-License-Identifier: MIT
 * ladder.h - rows of ladders on the screen (ladder_table.c). */
#ifndef BSRUN_LADDER_H
#define BSRUN_LADDER_H
#include "bsrun/bsrun.h"

/* Rows of ladders in a format. only_measured: a table leaves the others out and counts them. */
int32_t ladder_print(int format, const json_t *rows, int only_measured, bs_error *err);
#endif
