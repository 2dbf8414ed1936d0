/* SPDX-License-Identifier: MIT
 * compare.h - the parts of `bsrun compare`: ways to split a layer (compare_methods.c), two specs
 * (compare_live.c), and runs that are stored (compare_stored.c). */
#ifndef BSRUN_COMPARE_H
#define BSRUN_COMPARE_H
#include "bsrun/bsrun.h"

/* Each is the exit code of the verb; an error is printed. */
int compare_methods(const args *a);
int compare_live(const args *a); /* takes --b out of them */
int compare_stored(const args *a);
/* Rows of compare_methods, or of a run with --method auto, in a format (compare_table.c). only_measured: a
 * table leaves the others out and counts them. */
int32_t compare_print_methods(int format, const json_t *rows, int only_measured, bs_error *err);
/* A stored run was slower than its baseline. */
enum { COMPARE_REGRESSED = 14 };
#endif
