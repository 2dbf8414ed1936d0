/* SPDX-License-Identifier: MIT
 * ask.h - which products a world will need, and who can serve them: a rehearsal of its build, which packs
 * nothing. */
#ifndef BS_LAB_TUNE_ASK_H
#define BS_LAB_TUNE_ASK_H
#include "lab/phase/case.h"

/* Adds {key, default, candidates} for each key that the list lacks: candidates as bs_tune_candidate makes
 * them, those that can serve, best first. */
int32_t bs_tune_ask(const bs_case *c, json_t *list, bs_error *err);
#endif
