/* SPDX-License-Identifier: MIT
 * ask.h - lists the products that a world will need, and their candidates: by a rehearsal of its build, which
 * packs nothing. */
#ifndef BS_LAB_CASE_ASK_H
#define BS_LAB_CASE_ASK_H
#include <jansson.h>

#include "blockshock/blockshock.h"
#include "lab/case/case.h"

/* Adds {key, default, candidates} for each key that the list lacks: candidates as bs_tune_candidate makes
 * them, those that can serve, best first. */
int32_t bs_tune_ask(const bs_case *c, json_t *list, bs_error *err);
/* Makes the world of a rehearsal with the case's choices; it records all queries. The caller destroys it,
 * also after an error. */
int32_t bs_tune_rehearse(const bs_case *c, bs_world **out_world, bs_error *err);
/* Prepares a plan of the query with `choice` ("cpu:packed{tokens=48}") on a single rank of `threads` threads,
 * with zeros as weights, and returns its echo: the implementation and settings that the plan reports.
 * BS_UNSUPPORTED: the weights are above 256 MiB. */
int32_t bs_tune_echo(bs_context *context, const char *backend, uint32_t threads, const bs_op_query *query,
                     const char *choice, bs_op_echo *out_echo, bs_error *err);
/* {name, how, plugin} of a candidate as entries of the tuning file have it: name "cpu:packed". plugins: of
 * bs_env_plugins. */
json_t *bs_tune_candidate(const json_t *plugins, const char *name, const char *how);
/* The candidates of a bs_choice_info ("NAME<tab>HOW" lines), each as bs_tune_candidate makes it. */
json_t *bs_tune_candidates(const json_t *plugins, const char *lines);
/* The text under `key` of such an object; "": missing. */
const char *bs_tune_text(const json_t *object, const char *key);
/* Does a choice ("cpu:online", "cpu:online{keys=128}") name this implementation? */
int bs_tune_names(const char *choice, const char *name);
/* The row of a list that has the name; NULL: none. */
const json_t *bs_tune_row(const json_t *list, const char *name);
#endif
