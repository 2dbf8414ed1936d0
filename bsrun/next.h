/* SPDX-License-Identifier: MIT
 * next.h - what to type next about the layer of this command: the words that were typed, with one change. */
#ifndef BSRUN_NEXT_H
#define BSRUN_NEXT_H
#include "bsrun/bsrun.h"

/* All return a malloc'd text, NULL where there is no such command (or no memory). */

/* This command with another phase (a number) and, where it is not NULL, with --to FOLDER. */
char *bsrun_next_phase(int phase, const char *dump);
/* Another verb about the same layer: `verb` and its own words ("explain method"), with those options of a run
 * that it has. One that it lacks becomes a --set where a key means the same; those that name results are left
 * out. subject: NULL, or the method, which the verb takes as a word: the typed one comes before it. */
char *bsrun_next_verb(const char *verb, const char *subject, const args_option *options);
#endif
