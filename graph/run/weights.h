/* SPDX-License-Identifier: MIT
 * weights.h - constant weights as sources: for packed weights (weights.c) and layers of methods (layer.c). */
#ifndef BS_GRAPH_RUN_WEIGHTS_H
#define BS_GRAPH_RUN_WEIGHTS_H
#include "graph/run/run.h"

/* Which elements the weight of a product is, and what decides how it is packed. */
gweight gweight_key(const graph *g, const gnode *node, const gquery *query);
/* A constant [n] as a weight of one row. */
gweight gweight_row(const graph *g, uint32_t value);
int gweight_same(const gweight *a, const gweight *b);
/* The elements of a weight's parts are there to be read, until gfold_leave. */
int32_t gweight_ask(const graph *g, uint32_t weight, bs_error *err);
/* bs_source.read of a gweight, which is its ctx. */
int32_t gweight_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                     void *out, int64_t out_stride, bs_error *err);
/* Gives back the pages of what was packed. quant NULL: a weight of floats. */
void gweight_drop(const gweight *key, const gquant *quant);
#endif
