/* SPDX-License-Identifier: MIT
 * column.h - a few sampled elements of every rank's memory, followed through a schedule of any length: each
 * has a weight modulo 2^61 - 1 and a hash of the order that it was added in. Memory and time do not grow with
 * the vector. Tracked elements move with the ranges that hold them. */
#ifndef BS_SIM_COLUMN_H
#define BS_SIM_COLUMN_H
#include "sim/schedule.h"

typedef struct sim_columns sim_columns;

enum { SIM_COLUMNS_MAX = 8 };

/* Samples `n` elements (at most SIM_COLUMNS_MAX) of the vector, chosen by `seed`, among them the first and
 * the last, and writes every rank's IN. `shape` must outlive the columns. */
int32_t sim_columns_new(const bs_coll_shape *shape, uint32_t n, uint64_t seed, sim_columns **out_columns,
                        bs_error *err);
void sim_columns_free(sim_columns *c);
const sim_data *sim_columns_data(sim_columns *c);
/* Every rank's OUT against the sums that the collective must give: BS_NUMERIC (BS-CCL-SUM), rank and element
 * named. A wrong sum passes with a chance below 2^-60. */
int32_t sim_columns_check(sim_columns *c, bs_error *err);
/* Whether every rank added each element in the same order (up to a collision of hashes): BS_NUMERIC
 * (BS-CCL-ORDER) names two ranks that differ. */
int32_t sim_columns_same_order(sim_columns *c, bs_error *err);
#endif
