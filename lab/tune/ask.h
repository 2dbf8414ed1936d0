/* SPDX-License-Identifier: MIT
 * ask.h - which products a world will need, and who can serve them: a rehearsal of its build, which packs
 * nothing. */
#ifndef BS_LAB_TUNE_ASK_H
#define BS_LAB_TUNE_ASK_H
#include "lab/case/case.h"

/* Adds {key, default, candidates} for each key that the list lacks: candidates as bs_tune_candidate makes
 * them, those that can serve, best first. */
int32_t bs_tune_ask(const bs_case *c, json_t *list, bs_error *err);
/* The world of a rehearsal with the case's choices, which knows what was asked; the caller destroys it, also
 * after an error. */
int32_t bs_tune_rehearse(const bs_case *c, bs_world **out_world, bs_error *err);
/* The candidates of a bs_choice_info ("NAME<tab>HOW" lines), each as bs_tune_candidate makes it. */
json_t *bs_tune_candidates(const json_t *plugins, const char *lines);
#endif
