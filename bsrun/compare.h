/* SPDX-License-Identifier: MIT
 * compare.h - rows of ladders on the screen (compare_table.c). */
#ifndef BSRUN_COMPARE_H
#define BSRUN_COMPARE_H
#include "bsrun/bsrun.h"

/* Rows of ladders in a format. only_measured: a table leaves the others out and counts them. */
int32_t ladder_print(int format, const json_t *rows, int only_measured, bs_error *err);
#endif
