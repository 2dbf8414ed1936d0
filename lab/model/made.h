/* SPDX-License-Identifier: MIT
 * made.h - inputs that are made for a comparison: sizes at which rewrites go wrong that ordinary inputs do
 * not show. Whole numbers and bools stay as they were given, or are 0 and 1: what a model accepts of them
 * cannot be known. */
#ifndef BS_LAB_MODEL_MADE_H
#define BS_LAB_MODEL_MADE_H
#include "graph/api.h"

/* One set of inputs. */
typedef struct bs_made {
  uint32_t kind, port; /* port: the only input that has such numbers; UINT32_MAX: all have */
  char name[96];       /* "made: rows of 0, 1e-8 to 1e30" */
} bs_made;
enum { BS_MADE_MOST = 24 };

/* The sets for a model; returns how many. */
uint32_t bs_made_list(const bs_graph *g, bs_made *out, uint32_t size);
/* Fills the dense elements of input `port`. given (may be NULL): its elements as the user gave them. */
void bs_made_fill(const bs_made *of, const bs_graph *g, uint32_t port, const bs_tensor_desc *desc,
                  const void *given, void *out);
#endif
