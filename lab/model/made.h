/* SPDX-License-Identifier: MIT
 * made.h - inputs that are made for a comparison: sizes at which rewrites go wrong that ordinary inputs do not
 * show. Whole numbers and bools stay as they were given, or are 0 and 1: what a model accepts of them cannot
 * be known. */
#ifndef BS_LAB_MODEL_MADE_H
#define BS_LAB_MODEL_MADE_H
#include "graph/api.h"

/* The kinds of made inputs; NULL beyond the last. */
const char *bs_made_name(uint32_t kind);
/* 1: the model has numbers that this kind needs: near its own constants, and it has some. */
int bs_made_applies(uint32_t kind, const bs_graph *g);
/* Fills the dense elements of input `port`. given (may be NULL): its elements as the user gave them. */
void bs_made_fill(uint32_t kind, const bs_graph *g, uint32_t port, const bs_tensor_desc *desc,
                  const void *given, void *out);
#endif
