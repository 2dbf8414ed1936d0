/* SPDX-License-Identifier: MIT
 * explain.h - the parts of the explain verb: ops (explain_op.c), masks and methods (explain_split.c). */
#ifndef BSRUN_EXPLAIN_H
#define BSRUN_EXPLAIN_H
#include "bsrun/bsrun.h"

/* Weights of `explain mask` that no model has as its dtype: integers that were quantised, and fp4. */
typedef struct explained_weights {
  const char *name; /* NULL: of the model's dtype */
  uint32_t dtype;   /* 0: none of ours */
  uint32_t bits;
} explained_weights;

/* What the options lead to, as a run would see it. */
typedef struct explained {
  const args *a;
  int format;
  bs_context *context;
  bs_experiment e;
  char *cache; /* file of the machine's constants; NULL: none */
  char *tune;  /* the tuning file; NULL: none */
  explained_weights weights;
} explained;

/* Each prints rows on stdout. `name`: the op, the mask, the method. */
int32_t explain_op(const explained *x, const char *name, bs_error *err);
int32_t explain_mask(const explained *x, bs_error *err);
int32_t explain_method(const explained *x, bs_error *err);
#endif
