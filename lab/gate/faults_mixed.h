/* SPDX-License-Identifier: MIT
 * faults_mixed.h - faults of layers in two precisions, for faults.c. */
#ifndef BS_LAB_GATE_FAULTS_MIXED_H
#define BS_LAB_GATE_FAULTS_MIXED_H
#include "lab/gate/faults.h"
#include "lab/gate/small.h"

typedef struct bs_fault_mixed {
  uint8_t *high; /* [K] */
  uint8_t *hit;  /* [K]: columns that get another column's scale */
  int64_t row;   /* of W */
  double ratio;  /* of the other scale to that which is theirs */
  int64_t edge;  /* high columns, one fewer or more than there should be */
  uint32_t *order;
  bs_mask mask; /* the case's, in that order */
  const char *values[BS_SMALL_OPTIONS];
  char count[24];
} bs_fault_mixed;

int bs_fault_is_mixed(uint32_t kind);
/* NULL, or why not. */
const char *bs_fault_mixed_skip(uint32_t kind, const bs_case *c);
/* Prepares a fault of the kind; SCALE_OTHER changes row `row` of W. */
int32_t bs_fault_mixed_make(uint32_t kind, const bs_case *c, int64_t row, bs_fault_mixed *out, bs_error *err);
void bs_fault_mixed_free(bs_fault_mixed *fault);
/* SEGMENT_EDGE, SEGMENT_SWAPPED: changes the spec that the method gets. Several ranks may call it at the same
 * time. */
void bs_fault_mixed_layer(uint32_t kind, const bs_fault_mixed *fault, bs_layer_spec *spec);
/* SCALE_OTHER, SCALE_BLOCK: the same 8 bits by another scale are weights that are so much larger. */
void bs_fault_mixed_scale(const bs_fault_mixed *fault, double *row, int64_t K);
#endif
