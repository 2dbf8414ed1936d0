/* SPDX-License-Identifier: MIT
 * made.h - made inputs for a comparison: with sizes that show errors of rewrites which ordinary inputs hide.
 * Integers and bools stay as given, or are 0 and 1: the values that a model accepts are not known. */
#ifndef BS_LAB_MODEL_MADE_H
#define BS_LAB_MODEL_MADE_H
#include "graph/api.h"

/* One set of inputs. */
typedef struct bs_made {
  uint32_t kind, port; /* port: the only input with such numbers; UINT32_MAX: all inputs */
  char name[96];       /* "made: rows of 0, 1e-8 to 1e30" */
} bs_made;
enum { BS_MADE_MOST = 24 };

/* The sets for a model; returns how many. */
uint32_t bs_made_list(const bs_graph *g, bs_made *out, uint32_t size);
/* Fills the dense elements of input `port`; another seed makes other numbers of the same kind. given (may be
 * NULL): its elements as the user gave them. */
void bs_made_fill(const bs_made *of, const bs_graph *g, uint32_t seed, uint32_t port,
                  const bs_tensor_desc *desc, const void *given, void *out);
#endif
