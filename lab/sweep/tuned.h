/* SPDX-License-Identifier: MIT
 * tuned.h - tuning as separate points, before all others. Each layer of a sweep is tuned once, and every
 * point of it pins the choice, so the order of the points changes no result. */
#ifndef BS_LAB_SWEEP_TUNED_H
#define BS_LAB_SWEEP_TUNED_H
#include "lab/sweep/sweep.h"

/* Fills sweep->choices: from <sweep>/tuned.jsonl what an earlier process has tuned, the rest by one child a
 * layer, in the order of the layers' sums; each is written there. A layer that cannot be tuned has none: its
 * points say why. Errors and *out_signal as bs_tasks_run. */
int32_t bs_tuned_make(bs_sweep *sweep, const bs_sweep_options *options, int *out_signal, bs_error *err);
#endif
