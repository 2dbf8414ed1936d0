/* SPDX-License-Identifier: MIT
 * split_inside.h - what the files of graph/split share. */
#ifndef BS_GRAPH_SPLIT_INSIDE_H
#define BS_GRAPH_SPLIT_INSIDE_H
#include "graph/split/pair.h"

/* "matmul of h.0.attn.c_attn", for messages. */
void gsplit_name(const graph *g, uint32_t node, char *out, size_t size);
/* The product that writes a value; GNONE. Its rows may be put in any order, so that what it writes is cut
 * without looking at parts. */
uint32_t gsplit_writer(const graph *g, uint32_t value);
#endif
