/* SPDX-License-Identifier: MIT
 * sim_scale_model.h - `bsrun sim scale --with model=MODEL`: one point, and the table. */
#ifndef BSRUN_SIM_SCALE_MODEL_H
#define BSRUN_SIM_SCALE_MODEL_H
#include "bsrun/bsrun.h"

/* `--method all`: every method that serves so many ranks, then every pair F+S of those that split the rows,
 * and the columns, of a weight. Appends their names. */
int32_t sim_scale_model_methods(const args *a, uint32_t ranks, json_t *io_names, bs_error *err);
/* Refuses the words of a layer. BS_USAGE. */
int32_t sim_scale_model_check(const args *a, bs_error *err);
/* Adds the rows of the model on so many ranks to rows, with `speedup` over the first row of the same method
 * and work. */
int32_t sim_scale_model_point(const args *a, const char *method, uint32_t ranks, json_t *io_rows,
                              bs_error *err);
/* fastest 1: with a line of the fastest method of each work. */
int32_t sim_scale_model_print(int format, const json_t *rows, int fastest, bs_error *err);
#endif
