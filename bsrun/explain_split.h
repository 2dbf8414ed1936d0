/* SPDX-License-Identifier: MIT
 * explain_split.h - what `bsrun explain mask` and `bsrun explain method` have in common (explain_split.c). */
#ifndef BSRUN_EXPLAIN_SPLIT_H
#define BSRUN_EXPLAIN_SPLIT_H
#include "bsrun/explain.h"
#include "lab/lab.h"
#include "lab/measure/kernel.h"

/* Everything that is the same on all ranks. */
typedef struct split {
  const explained *x;
  bs_experiment e; /* x's, with the constants */
  bs_subject subject;
  uint32_t threads;
  json_t *constants;  /* NULL: no predictions */
  int lacking;        /* there are constants, but not for this run */
  bs_kernel kernel;   /* who serves; name "" when it is not known */
  bs_error no_kernel; /* why there is no predicted time of the kernel */
  json_t *rows;
} split;

int32_t split_open(split *s, const explained *x, bs_error *err);
void split_close(split *s);
int32_t split_print(const split *s, const bs_field *fields, size_t n, bs_error *err);
int32_t split_propose(const split *s, uint32_t rank, bs_proposal *out, bs_error *err);
/* Adds predicted_s, bound_s and limit; null without constants that serve. The rates are those of the
 * method's own product. For a proposal with a product of another kind they do not apply: no predicted_s.
 * BOUND_ALONE: the product was not measured. */
enum split_product { SPLIT_OWN_PRODUCT, SPLIT_DENSE_PRODUCT, SPLIT_PRODUCT_24, SPLIT_BOUND_ALONE };
void split_predict(split *s, json_t *row, const bs_proposal *proposal, uint32_t kind);
#endif
