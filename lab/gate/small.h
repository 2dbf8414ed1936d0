/* SPDX-License-Identifier: MIT
 * small.h - a case of a few thousand values like another one: for gates that run a layer again, on integers
 * or with a fault. */
#ifndef BS_LAB_GATE_SMALL_H
#define BS_LAB_GATE_SMALL_H
#include "lab/case/case.h"

#define BS_SMALL_OPTIONS 16

typedef struct bs_small {
  const bs_workload *workload;
  void *instance;
  bs_source x, w, bias;
  bs_mask mask; /* of the spec, if its order of columns had to be adapted */
  uint32_t *order;
  const char *values[BS_SMALL_OPTIONS]; /* of the spec's options, if one had to be adapted */
  char mixed[24];
} bs_small;

/* like's layer of 16 tokens, 96 x 256 and a bias, with these flags too. */
bs_layer_spec bs_small_spec(const bs_case *like, uint32_t flags);
/* Opens the workload `name` at the sizes of spec, with its sources. A mask of spec that is an order of more
 * or fewer columns is replaced by one that fits, and so is the number of high columns of a layer in two
 * precisions. Call it before a method is asked about spec. */
int32_t bs_small_open(bs_context *context, const char *name, bs_layer_spec *spec, bs_small *out_small,
                      bs_error *err);
void bs_small_close(bs_small *small);
/* One iteration of `like` over it: no hook, no fault. Points into small. */
void bs_small_case(const bs_case *like, const bs_layer_spec *spec, const bs_small *small, bs_case *out_case);
#endif
