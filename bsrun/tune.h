/* SPDX-License-Identifier: MIT
 * tune.h - what the tune verb's files share: tune.c (options, one tuning), tune_inside.c (one inside of a
 * device), tune_show.c (what they print). */
#ifndef BSRUN_TUNE_H
#define BSRUN_TUNE_H
#include "bsrun/bsrun.h"
#include "core/base/text.h"
#include "lab/choose/replay.h"
#include "lab/kernel/problem.h"
#include "lab/race/race.h"

typedef struct tune_verb {
  const args *a;
  int format, quiet, shown;
  char problem[BS_KERNEL_TEXT];
  char *tune_path, *points_path;
  const char *go_on; /* after a signal */
  bs_text config, where;
  bs_race_knob *knobs;
  char **names; /* of the knobs */
  bs_race_options race;
} tune_verb;

/* --strategy, --samples, --seconds, --with survivors=K, --seed, --knob and --where into v->race and v->where.
 */
int32_t tune_read_search(tune_verb *v, bs_error *err);
/* Joins the words of the problem with spaces. BS_USAGE: the problem is missing. The caller frees in every
 * case.
 */
int32_t tune_read_words(const args *a, bs_text *out, bs_error *err);
/* BS_USAGE: an option is given that is not in taken[0..n); `what` has no use for it, `hint` says what it
 * takes. */
int32_t tune_check_options(const args *a, const char *const *taken, size_t n, const char *what,
                           const char *hint, bs_error *err);
/* The line on a terminal; user is the tune_verb. */
void tune_on_progress(void *user, const char *what, uint64_t done, uint64_t most, double left_s);
/* --device D: simulates, and keeps nothing. Returns the exit code. */
int tune_inside(tune_verb *v, bs_error *err);
/* The report of bs_inside_tune_run. */
int32_t tune_print_inside(int format, const json_t *report, bs_error *err);
/* The report of bs_race_run: the choice in one sentence and the elite; json is all of it. */
int32_t tune_print(int format, const json_t *report, bs_error *err);
/* A row of a strategy's replays, and the table of all. */
json_t *tune_replay_row(const bs_replay *replay, uint32_t strategy, const bs_replayed *replayed);
int32_t tune_print_replays(int format, const json_t *rows, bs_error *err);
#endif
