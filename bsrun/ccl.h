/* SPDX-License-Identifier: MIT
 * ccl.h - the verb of collective algorithms: list, check, explain (ccl.c). */
#ifndef BSRUN_CCL_H
#define BSRUN_CCL_H
#include "bsrun/bsrun.h"
#include "lab/coll/ccl.h"

extern const bsrun_subverb ccl_bench; /* ccl_bench.c */

/* The context of --hardware, --plugin, --config and --set. */
int32_t ccl_context(const args *a, const char *extra_plugin, bs_context **out_context, bs_error *err);
/* The file of --trace, which is of one algorithm; NULL: none. */
int32_t ccl_trace(const args *a, const char **out_file, bs_error *err);
/* A note on the trace that a row of bs_ccl_explain tells of. */
void ccl_note_trace(const char *file, const json_t *row);
/* --coll (default: all_reduce, or what the algorithm has first), -P, --count, --dtype, --root. */
int32_t ccl_place(const args *a, const bs_ccl *ccl, bs_ccl_place *out_place, bs_error *err);
#endif
