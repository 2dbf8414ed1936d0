/* SPDX-License-Identifier: MIT
 * internal.h - what the files of graph/ir share. */
#ifndef BS_GRAPH_IR_INTERNAL_H
#define BS_GRAPH_IR_INTERNAL_H
#include "graph/ir/arena.h"
#include "graph/ir/graph.h"

/* Interned texts by a hash table, and the memory of texts and computed constants. */
struct gtexts {
  arena arena;
  char **texts;
  uint32_t *table;
  uint32_t n, cap, table_size;
};

int32_t graph_no_memory(bs_error *err);
/* quant.c: the f32 that all elements stand for. */
int32_t gquant_read(const bs_quant *quant, float *out, bs_error *err);
#endif
