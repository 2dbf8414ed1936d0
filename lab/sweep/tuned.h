/* SPDX-License-Identifier: MIT
 * tuned.h - tuning as separate points, before all others. Each layer of a sweep is tuned once, and every
 * point of it pins the choice, so the order of the points changes no result. */
#ifndef BS_LAB_SWEEP_TUNED_H
#define BS_LAB_SWEEP_TUNED_H
#include "lab/sweep/sweep.h"

/* Fills sweep->choices. Choices of an earlier process come from <sweep>/tuned.jsonl; the others are made by
 * one child a layer, in the order of the layers' sums, and are written to that file. A layer that cannot be
 * tuned has no choices: its points report the reason. Errors and *out_signal as bs_tasks_run. */
int32_t bs_tuned_make(bs_sweep *sweep, const bs_sweep_options *options, int *out_signal, bs_error *err);
#endif
