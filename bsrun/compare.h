/* SPDX-License-Identifier: MIT
 * compare.h - the parts of `bsrun compare`: two specs that are measured now (compare_live.c), and runs that
 * are stored (compare_stored.c). */
#ifndef BSRUN_COMPARE_H
#define BSRUN_COMPARE_H
#include "bsrun/args.h"

/* The exit code of the verb; an error is printed. */
int compare_live(args *a); /* takes --b out of them */
int compare_stored(const args *a);
/* A stored run was slower than its baseline. */
enum { COMPARE_REGRESSED = 14 };
#endif
