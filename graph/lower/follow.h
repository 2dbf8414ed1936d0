/* SPDX-License-Identifier: MIT
 * follow.h - inside of follow.c: what its files share. */
#ifndef BS_GRAPH_LOWER_FOLLOW_H
#define BS_GRAPH_LOWER_FOLLOW_H
#include "graph/lower/frame.h"

/* Of a value: its dims follow the sizes, and the element at a place is the same; its elements follow them; no
 * run computes it. */
enum { DIMS = 1, NUMBERS = 2, KNOWN = 4, MOST = 8 };

enum follow_kind {
  SOURCE,  /* dims become numbers */
  EXACT,   /* element by element, linear */
  SIGNED,  /* element by element: the sign of the input decides */
  COMPARE, /* the order of two inputs decides */
  CLIP,
  KEPT, /* element by element, or of all of one: what it gives is kept */
  DIVIDE,
  REMAINDER,
  EACH, /* element by element, in no such way */
  MOVED,
  EXPAND,
  FILL,
  RANGE,
  CONCAT,
  GATHER,
  SLICE,
  RESHAPE,
  CUMSUM,
  TRILU,
  SUM,
  PRODUCT,
  TILE,
  PAD,
  DATA, /* its inputs are data of the run */
  BRANCH,
  LOOP
};

enum sign_kind { SIGN, NEGATIVE, SIDE };

typedef struct follow {
  lower_ctx *c;
  const gmodel_node *node;
  uint32_t in[16], n_in;
  unsigned all; /* what its inputs are, together */
  int is_known; /* no run computes its outputs */
  int32_t rc;
  bs_error *err;
} follow;

/* ---- follow_keep.c: what is kept ------------------------------------------------------------- */
unsigned follow_value(const lower_ctx *c, uint32_t value);
unsigned follow_input(const follow *f, uint32_t i);
uint32_t follow_output(const follow *f, uint32_t i);
int follow_sign(double x);
/* The elements of a constant of few, whose number does not follow the sizes. 0: it is none. */
uint32_t follow_read_few(follow *f, uint32_t value, double *out);
/* Two inputs as numbers, the smaller one spread; 0: more than few. */
uint32_t follow_read_pair(follow *f, uint32_t a, uint32_t b, double *x, double *y);
void follow_keep(follow *f, int64_t number, uint32_t kind);
/* Another function begins at 0. */
void follow_keep_sign(follow *f, double x);
/* The value must not vary, or each size is looked at. */
void follow_keep_fixed(follow *f, uint32_t value);
void follow_keep_all_fixed(follow *f); /* the inputs */
/* Whole numbers must be linear functions of the sizes, others must not vary. */
void follow_keep_numbers(follow *f, uint32_t value);
/* The order of two inputs. GKEPT_SIDE: what follows from it is the same where they are equal. */
void follow_keep_order(follow *f, uint32_t a, uint32_t b, uint32_t kind);
/* The signs of the numbers of an input, less `less`. */
void follow_keep_signs(follow *f, uint32_t i, double less, enum sign_kind kind);

/* ---- follow_ops.c: operators ----------------------------------------------------------------- */
/* Of EXACT to EACH, whose inputs no run computes. */
void follow_elements(follow *f, uint32_t kind);
/* Of SOURCE and MOVED to PRODUCT. Returns what the results are. */
unsigned follow_apply(follow *f, uint32_t kind);
/* Operators that move the elements of a run by numbers: which are linear in these, under their signs. */
void follow_run(follow *f, int kind);
#endif
