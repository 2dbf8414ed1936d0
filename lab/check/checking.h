/* SPDX-License-Identifier: MIT
 * checking.h - shared parts of lab/check, used while one set of tensors is judged. */
#ifndef BS_LAB_CHECK_CHECKING_H
#define BS_LAB_CHECK_CHECKING_H
#include "lab/check/check.h"
#include "lab/gate/judge.h"

enum bs_check_layout { BS_CHECK_ALIKE = 0, BS_CHECK_FEATURES = 1, BS_CHECK_TOKENS = 2 };

typedef struct bs_checking {
  const bs_check_set *set;
  bs_check_options options; /* settled */
  int reduce_given;         /* the caller gave the type of partials and sums */
  int64_t B, N, K;
  bs_source x, w, w_turned, bias; /* w_turned: only where N = K */
  void *turned;                   /* memory of W as [N,K] if the file has [K,N]; or of w_turned's */
  uint32_t layout;                /* of Y over ranks */
  void **y;                       /* n_whole of [B,N] in y_dtype: one, or each rank's own */
  uint32_t n_whole;
  uint32_t ranks;
  int terms;             /* the ranks' partials are [B,N]: terms of a sum */
  uint32_t *column_rank; /* [K]; NULL: one product */
  int columns_known;     /* 0: column_rank is a guess, good for a prediction and not for a judgement */
  char columns_why[128]; /* why they are not known */
  int was_turned;        /* the file's W is [K,N], but the caller did not say so */
  bs_arithmetic arithmetic;
  bs_reference reference;
  bs_prediction prediction;
  double *bound;       /* [B, features] before the activation */
  int sum_stored;      /* Y fits sums that were rounded to y_dtype before the activation; reference.y is so */
  uint32_t worst_rank; /* the rank whose Y is the worst */
  double noise;        /* its error, in units of the predicted one */
  double relative;     /* and of the size of Y */
  double worst_ratio;  /* and the worst one, in bounds */
  uint64_t wrong;      /* its outputs over their bound */
  uint64_t misplaced;  /* its outputs that should be NaN or Inf by the inputs, and are something else */
  int64_t at_token, at_feature;
} bs_checking;

/* layer.c: shapes, dtypes, ownership, and the reference. The caller closes, also on failure. */
int32_t bs_checking_open(const bs_check_set *set, const bs_check_options *options, bs_checking *out,
                         bs_error *err);
void bs_checking_close(bs_checking *c);
/* The sum before the activation, at = token * features + feature of the reference; and its bias. */
double bs_checking_sum(const bs_checking *c, int64_t at);
double bs_checking_bias(const bs_checking *c, int64_t at);
/* The value of whole Y number r at this place; and of rank r's partial, 0 if that is empty. */
double bs_checking_y(const bs_checking *c, uint32_t r, int64_t at);
double bs_checking_partial(const bs_checking *c, uint32_t r, int64_t at);
/* The right value of rank r's partial at this place, without a bias. Only if the columns are known. */
double bs_checking_product(const bs_checking *c, uint32_t r, int64_t at);
/* The value after conversion to a dtype. */
double bs_checking_stored(uint32_t dtype, double value);

/* allow.c: widens bounds and predictions for differences that layers of other programs may have. */
int32_t bs_checking_allow(bs_checking *c, bs_error *err);

/* stored.c: PyTorch and others round sums to Y's dtype before gelu and silu. If Y is wrong otherwise, judges
 * it with that rounding too, and takes over reference, prediction and *inout_judgement if they fit better. */
int32_t bs_checking_try_stored(bs_checking *c, bs_judgement *inout_judgement, bs_error *err);

/* drift.c, partial.c: one gate each. */
void bs_check_drift(const bs_checking *c, bs_gate *gate);
void bs_check_partials(const bs_checking *c, bs_gate *gate);
void bs_check_sum(const bs_checking *c, bs_gate *gate);

/* mistake.c: a sentence if Y fits a known mistake, else "". */
int32_t bs_check_mistake(const bs_checking *c, char *out_text, size_t size, bs_error *err);
/* cause.c: a sentence on the failure. */
int32_t bs_check_cause(const bs_checking *c, bs_check_result *result, bs_error *err);
#endif
