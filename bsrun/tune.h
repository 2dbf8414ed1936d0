/* SPDX-License-Identifier: MIT
 * tune.h - what the tune verb's files share: tune.c (options, one tuning), tune_show.c (what it prints). */
#ifndef BSRUN_TUNE_H
#define BSRUN_TUNE_H
#include "bsrun/bsrun.h"
#include "lab/choose/replay.h"

/* The report of bs_race_run: the choice in one sentence and the elite; json is all of it. */
int32_t tune_print(int format, const json_t *report, bs_error *err);
/* A row of a strategy's replays, and the table of all. */
json_t *tune_replay_row(const bs_replay *replay, uint32_t strategy, const bs_replayed *replayed);
int32_t tune_print_replays(int format, const json_t *rows, bs_error *err);
#endif
