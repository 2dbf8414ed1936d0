/* SPDX-License-Identifier: MIT
 * sweep.h - the parts of the sweep verb: the command line (sweep.c), what is varied (sweep_axes.c) and what
 * is shown (sweep_show.c). */
#ifndef BSRUN_SWEEP_H
#define BSRUN_SWEEP_H
#include "bsrun/bsrun.h"
#include "lab/sweep/sweep.h"

/* The settings of all points ({key: value}), in order: the product of the axes, of each line of a batch file
 * times the others. BS_USAGE when nothing varies. */
int32_t sweep_settings(const args *a, const bs_node *base, json_t *settings, bs_error *err);

extern const args_option sweep_options[];

/* The progress of a sweep. */
typedef struct sweep_shown {
  int quiet, terminal;
  size_t points;
  int open; /* a line is on the terminal that will be rewritten */
} sweep_shown;
/* A bs_sweep_options.tell; user: the above. */
void sweep_tell(void *user, const json_t *point, const bs_point_outcome *outcome, size_t done, double left_s);
void sweep_tell_end(sweep_shown *shown);

/* The points of a plan, and what is predicted of them or why they are refused. */
int32_t sweep_print_plan(int format, const json_t *points, bs_error *err);
/* A row a point, from the committed runs below the sweep's folder; in a table those that failed once more,
 * with the reason. *out_failed, *out_left: how many failed or were refused, and how many were not run. */
int32_t sweep_print_results(int format, const bs_sweep *sweep, size_t *out_failed, size_t *out_left,
                            bs_error *err);
/* "N=512 method=dense", in a static buffer. */
const char *sweep_settings_text(const json_t *point);
#endif
