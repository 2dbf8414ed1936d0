/* SPDX-License-Identifier: MIT
 * runs.h - `bsrun runs` and the verbs next to it, which show the contents of a results folder. */
#ifndef BSRUN_RUNS_H
#define BSRUN_RUNS_H
#include <jansson.h>

#include "bsrun/verb.h"

extern const bsrun_verb runs_list_verb, runs_show_verb, runs_note_verb, runs_baseline_verb, runs_why_verb,
    runs_fsck_verb, runs_replay_verb, runs_bundle_verb;

/* --out, else where runs lie by default. */
const char *runs_root(const args *a);
/* The run that the word `text` means (lab/store/find.h); the caller frees both. */
int32_t runs_find(const args *a, const char *text, char **out_root, char **out_run, bs_error *err);
/* A row {what, answer} of a list that explains one thing. */
void runs_add(json_t *rows, const char *what, const char *answer);
#endif
