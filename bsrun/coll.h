/* SPDX-License-Identifier: MIT
 * coll.h - the verb of collective algorithms: list, explain, check (coll.c), bench (coll_bench.c). */
#ifndef BSRUN_COLL_H
#define BSRUN_COLL_H
#include "bsrun/bsrun.h"
#include "lab/coll/ccl.h"

extern const bsrun_verb coll_bench_verb; /* coll_bench.c */

/* The file of --to, which needs a single algorithm; NULL: no file. */
int32_t coll_trace(const args *a, const char **out_file, bs_error *err);
/* A note on the trace that a row of bs_ccl_explain tells of. */
void coll_note_trace(const char *file, const json_t *row);
/* --coll (default: all_reduce, or what the algorithm has first), -P, --size, --dtype, --rank. */
int32_t coll_place(const args *a, const bs_ccl *ccl, bs_ccl_place *out_place, bs_error *err);
#endif
