/* SPDX-License-Identifier: MIT
 * cause.c - what most likely went wrong: each known mistake says what Y would be, and the one that Y fits
 * best is named. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/check/checking.h"
#include "lab/error.h"

enum mistake_kind {
  TURNED,
  BIASES,     /* `factor` more biases than one */
  OTHER,      /* activation `rank` */
  EARLY,      /* the activation of each partial */
  LOST,       /* rank's partial */
  TWICE,      /* rank's partial */
  ALONE,      /* rank's partial without the others' */
  MULTIPLIED, /* by factor */
};

typedef struct mistake {
  int kind;
  uint32_t rank;
  double factor;
  const char *text; /* printf text of rank, factor */
} mistake;

typedef struct search {
  const bs_checking *c;
  const double *turned; /* X W of a square W; or NULL */
  mistake best;
  double best_off; /* in bounds */
} search;

#define FITS 8.0 /* bounds: mistakes make sums of more terms than the right layer */

static int has_partials(const bs_checking *c) {
  return c->ranks > 1 && (c->set->partial.n == c->ranks ? c->terms : c->columns_known);
}

/* As it should be where the columns are known, since the file's may be the wrong one. */
static double partial_of(const bs_checking *c, uint32_t r, int64_t at) {
  return c->columns_known ? c->reference.partial[r][at] : bs_checking_partial(c, r, at);
}

static double bias_of(const bs_checking *c, int64_t at) {
  const bs_check_tensor *b = &c->set->bias.of[0];
  return c->set->bias.n > 0 ? bs_load_f64(b->dtype, b->data, c->reference.feature[at % c->reference.features])
                            : 0.0;
}

/* What Y would be there. */
static double would_be(const search *s, const mistake *m, int64_t at) {
  const bs_checking *c = s->c;
  const double sum = bs_checking_sum(c, at);
  uint32_t activation = c->options.activation;
  double z = sum;
  if (m->kind == TURNED) z = s->turned[at];
  if (m->kind == BIASES) z = sum + m->factor * bias_of(c, at);
  if (m->kind == OTHER) activation = m->rank;
  if (m->kind == LOST) z = sum - partial_of(c, m->rank, at);
  if (m->kind == TWICE) z = sum + partial_of(c, m->rank, at);
  if (m->kind == ALONE) z = partial_of(c, m->rank, at);
  if (m->kind == MULTIPLIED) z = sum * m->factor;
  if (m->kind != EARLY) return bs_activation_value(activation, z);
  double early = 0;
  for (uint32_t r = 0; r < c->ranks; r++) early += bs_activation_value(activation, partial_of(c, r, at));
  return early;
}

static void try_one(search *s, mistake m) {
  const bs_checking *c = s->c;
  const double u = bs_dtype_unit_roundoff(c->options.y_dtype);
  double worst = 0;
  for (int64_t at = 0; at < c->B * c->reference.features && worst < s->best_off; at++) {
    const double want = would_be(s, &m, at), error = fabs(bs_checking_y(c, c->worst_rank, at) - want);
    const double bound = c->bound[at] + u * fabs(want);
    worst = fmax(worst, error == 0 ? 0 : isfinite(error) && bound > 0 ? error / bound : INFINITY);
  }
  if (worst >= s->best_off) return;
  s->best_off = worst;
  s->best = m;
}

/* The factor by which Y is nearest to the right sums. */
static double factor_of(const bs_checking *c) {
  double both = 0, square = 0;
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    const double sum = bs_checking_sum(c, at), y = bs_checking_y(c, c->worst_rank, at);
    if (!isfinite(sum) || !isfinite(y)) continue;
    both += sum * y;
    square += sum * sum;
  }
  return square > 0 ? both / square : 1.0;
}

static void try_all(search *s) {
  static const char *const activations[] = {"no activation", "relu", "gelu", "silu", "gelu_tanh"};
  const bs_checking *c = s->c;
  if (s->turned) try_one(s, (mistake){TURNED, 0, 0, "W is transposed: Y is X W, not X W^T"});
  if (c->set->bias.n > 0) {
    try_one(s, (mistake){BIASES, 0, -1, "the bias is lost: Y has none"});
    try_one(s, (mistake){BIASES, 0, 1, "the bias is added twice"});
    if (c->ranks > 2) try_one(s, (mistake){BIASES, 0, c->ranks - 1.0, "the bias is added by every rank"});
  }
  for (uint32_t a = 0; a < sizeof activations / sizeof activations[0]; a++)
    if (a != c->options.activation) try_one(s, (mistake){OTHER, a, 0, activations[a]});
  const double factor = factor_of(c);
  if (c->options.activation == BS_ACT_NONE && fabs(factor - 1) > 1e-3)
    try_one(s, (mistake){MULTIPLIED, 0, factor, "Y is a multiple of the right outputs"});
  if (!has_partials(c)) return;
  if (c->options.activation != BS_ACT_NONE)
    try_one(s, (mistake){EARLY, 0, 0, "the activation is applied to each partial, not to their sum"});
  for (uint32_t r = 0; r < c->ranks; r++) {
    try_one(s, (mistake){LOST, r, 0, "the partial of a rank is missing in the sum"});
    try_one(s, (mistake){TWICE, r, 0, "the partial of a rank is counted twice"});
    if (c->ranks > 2) /* of two ranks it is the same as the other one lost */
      try_one(s, (mistake){ALONE, r, 0, "Y is the partial of one rank: the partials were not summed"});
  }
}

static int failed(const bs_check_result *result, const char *name) {
  for (uint32_t g = 0; g < result->n_gates; g++)
    if (strcmp(result->gates[g].name, name) == 0) return result->gates[g].state == BS_GATE_FAIL;
  return 0;
}

static int32_t rank_of(const bs_check_result *result, const char *name) {
  for (uint32_t g = 0; g < result->n_gates; g++)
    if (strcmp(result->gates[g].name, name) == 0) return result->gates[g].rank;
  return -1;
}

/* The sentence of the mistake that fits. */
static void say_mistake(const search *s, char *text, size_t size) {
  const mistake *m = &s->best;
  if (m->kind == OTHER) {
    snprintf(text, size, "Y was made with %s, where %s was asked for (--activation)", m->text,
             bs_activation_name(s->c->options.activation));
  } else if (m->kind == MULTIPLIED) {
    snprintf(text, size, "%s: %.6g times", m->text, m->factor);
  } else if (m->kind == LOST || m->kind == TWICE || m->kind == ALONE) {
    snprintf(text, size, "%s: rank %u", m->text, m->rank);
  } else {
    snprintf(text, size, "%s", m->text);
  }
}

static int is_all_zero(const bs_checking *c) {
  for (int64_t at = 0; at < c->B * c->reference.features; at++)
    if (bs_checking_y(c, c->worst_rank, at) != 0.0) return 0;
  return 1;
}

/* The causes that a gate alone tells; 0: none does. */
static int say_gate(const bs_checking *c, const bs_check_result *result, char *text, size_t size) {
  if (failed(result, "finite")) {
    snprintf(text, size, "Y holds NaN or Inf where X W^T is finite: the first is at token %lld, feature %lld",
             (long long)c->at_token, (long long)c->at_feature);
  } else if (failed(result, "zero")) {
    snprintf(text, size,
             is_all_zero(c) ? "Y is all zeros: it was never written, or was cleared afterwards"
                            : "whole features of Y are zeros: a part of Y was never written");
  } else {
    return 0;
  }
  return 1;
}

/* The dtype whose rounding makes an error such as Y's; NULL: none does. A dtype of Y's own width may have
 * been rounded to more than once. */
static const char *narrower(const bs_checking *c) {
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2};
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
    if (c->relative <= bs_dtype_unit_roundoff(dtypes[i])) return bs_dtype_name(dtypes[i]);
  return NULL;
}

/* What is left where no known mistake fits. */
static void say_rest(const bs_checking *c, const bs_check_result *result, char *text, size_t size) {
  const double all = (double)(c->B * c->reference.features);
  if (failed(result, "partial")) {
    snprintf(text, size, "the partial of rank %d is not the product of its columns",
             rank_of(result, "partial"));
  } else if (c->wrong > 0 && (double)c->wrong <= 0.02 * all + 1) {
    snprintf(text, size,
             "%llu of %.0f outputs are wrong and the others right: the worst at token %lld, feature %lld",
             (unsigned long long)c->wrong, all, (long long)c->at_token, (long long)c->at_feature);
  } else if (failed(result, "dtype")) {
    snprintf(text, size, "Y was not rounded to %s", bs_dtype_name(c->options.y_dtype));
  } else if (failed(result, "T3") && narrower(c) == NULL) {
    snprintf(text, size,
             "Y is not X W^T (it is off by %.3g of its size), and no known mistake fits: look at W's rows "
             "and columns",
             c->relative);
  } else if (failed(result, "drift")) {
    snprintf(text, size,
             "the errors of Y lie to one side: values are cut off or rounded up instead of to nearest");
  } else if (failed(result, "T1") || failed(result, "T3")) {
    snprintf(text, size,
             "Y is %.3g times as far off as %s predicts: as if something was made in a narrower dtype, %s",
             c->noise, bs_dtype_name(c->options.y_dtype), narrower(c) ? narrower(c) : "in part");
  } else if (failed(result, "T4")) {
    snprintf(text, size, "rank %d holds other bits than rank 0", rank_of(result, "T4"));
  } else if (failed(result, "sum")) {
    snprintf(text, size, "Y is right, and the partials do not add up to it: a partial is wrong or missing");
  } else if (failed(result, "shape")) {
    snprintf(text, size, "W is transposed: it is [K,N] where a layer has [N,K]; else Y is right");
  } else {
    snprintf(text, size, "errors gather in one feature or token: no known mistake fits");
  }
}

/* X times W as it would be turned, at the judged features. */
static int32_t make_turned(const bs_checking *c, bs_reference *out, bs_error *err) {
  const bs_reference_request request = {
      .x = &c->x,
      .w = &c->w_turned,
      .bias = c->set->bias.n > 0 ? &c->bias : NULL,
      .world_size = 1,
      .max_features = c->options.max_features < c->N ? c->options.max_features : 0};
  return bs_reference_compute(&request, out, err);
}

int32_t bs_check_cause(const bs_checking *c, bs_check_result *result, bs_error *err) {
  bs_reference turned = {0};
  search s = {.c = c, .best_off = FITS};
  if (say_gate(c, result, result->cause, sizeof result->cause)) return BS_OK;
  const int wrong = failed(result, "T1") || failed(result, "T3");
  if (wrong && c->N == c->K) {
    const int32_t rc = make_turned(c, &turned, err);
    if (rc != BS_OK) return rc;
    s.turned = turned.y;
  }
  if (wrong && c->noise > 4) try_all(&s);
  if (s.best_off < FITS) {
    say_mistake(&s, result->cause, sizeof result->cause);
  } else {
    say_rest(c, result, result->cause, sizeof result->cause);
  }
  bs_reference_free(&turned);
  return BS_OK;
}
