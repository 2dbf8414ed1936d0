/* SPDX-License-Identifier: MIT
 * explain.h - the parts of the explain verb: ops (explain_op.c, explain_kernel.c), masks and methods
 * (explain_split.c). */
#ifndef BSRUN_EXPLAIN_H
#define BSRUN_EXPLAIN_H
#include "bsrun/bsrun.h"
#include "lab/experiment.h"
#include "lab/kernel/query.h"

/* Weights of `explain mask` that no model has as its dtype: integers that were quantised, and fp4. */
typedef struct explained_weights {
  const char *name; /* NULL: of the model's dtype */
  uint32_t dtype;   /* 0: none of ours */
  uint32_t bits;
} explained_weights;

/* The configuration that the options lead to, as a run would use it. */
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

/* Does a shape say what is asked of the op (explain_kernel.c)? */
/* The word after the op: its sizes; NULL: not given. */
const char *explain_shape(const explained *x);
int explain_takes_shape(const char *op);
/* The query of such an op. *out_kept, which it points to: the caller frees it; NULL: none. */
int32_t explain_kernel_ask(const explained *x, const char *op, bs_kernel_query *out, const bs_kept **out_kept,
                           bs_error *err);
/* `bsrun explain gates` and `bsrun explain words`; with a second word the glosses of that word alone. */
int32_t explain_words(const args *a, bs_error *err);
#endif
