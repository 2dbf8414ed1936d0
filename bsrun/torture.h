/* SPDX-License-Identifier: MIT
 * torture.h - the torture verb: torture.c (options, subjects), torture_plan.c (--plan); the rest is
 * lab/torture. */
#ifndef BSRUN_TORTURE_H
#define BSRUN_TORTURE_H
#include "bsrun/bsrun.h"
#include "lab/torture/torture.h"

/* --plan: the program once; its exit code. */
int torture_run_planned(const args *a, const bs_torture *t, const char *plan, bs_error *err);
#endif
