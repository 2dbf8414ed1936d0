/* SPDX-License-Identifier: MIT
 * cause.c - the likely cause of a failure, in a sentence: from one gate, from a known mistake, or a
 * description. No sentence claims more than was measured. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/check/checking.h"

static const bs_gate *gate_of(const bs_check_result *result, const char *name) {
  for (uint32_t g = 0; g < result->n_gates; g++)
    if (strcmp(result->gates[g].name, name) == 0) return &result->gates[g];
  return NULL;
}

static int failed(const bs_check_result *result, const char *name) {
  const bs_gate *gate = gate_of(result, name);
  return gate != NULL && gate->state == BS_GATE_FAIL;
}

static int is_all_zero(const bs_checking *c) {
  for (int64_t at = 0; at < c->B * c->reference.features; at++)
    if (bs_checking_y(c, c->worst_rank, at) != 0.0) return 0;
  return 1;
}

/* Are all wrong outputs zero and all others right? */
static int only_zeros_are_wrong(const bs_checking *c) {
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    const double y = bs_checking_y(c, c->worst_rank, at);
    if (y != 0.0 && !(fabs(y - c->reference.y[at]) <= c->prediction.bound[at])) return 0;
  }
  return 1;
}

/* Names an output that NaN or Inf of the inputs reach, and its wrong value. */
static void say_misplaced(const bs_checking *c, char *text, size_t size) {
  int64_t f = 0;
  while (f + 1 < c->reference.features && c->reference.feature[f] != c->at_feature) f++;
  const int64_t at = c->at_token * c->reference.features + f;
  snprintf(text, size,
           "NaN or Inf of X, W or the bias make outputs NaN or Inf, and %llu of these are something else: at "
           "token %lld, feature %lld Y is %g, and the sum is %g",
           (unsigned long long)c->misplaced, (long long)c->at_token, (long long)c->at_feature,
           bs_checking_y(c, c->worst_rank, at), bs_checking_sum(c, at));
}

/* Describes causes that a single gate shows; 0: none. */
static int say_gate(const bs_checking *c, const bs_check_result *result, char *text, size_t size) {
  if (c->misplaced > 0) {
    say_misplaced(c, text, size);
  } else if (failed(result, "finite")) {
    snprintf(text, size, "Y holds NaN or Inf where X W^T is finite: the first is at token %lld, feature %lld",
             (long long)c->at_token, (long long)c->at_feature);
  } else if (failed(result, "zero") && only_zeros_are_wrong(c)) {
    snprintf(text, size, "%s",
             is_all_zero(c) ? "Y is all zeros, as if it was never written, or was cleared afterwards"
                            : "whole features of Y are zeros, as if a part of Y was never written");
  } else {
    return 0;
  }
  return 1;
}

/* The dtype, with fewer bits than Y's, that can hold all values of Y; NULL: no such dtype. */
static const char *narrower(const bs_checking *c) {
  static const uint32_t dtypes[] = {BS_F8E5M2, BS_F8E4M3, BS_BF16, BS_F16, BS_F32};
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
    int64_t at = 0;
    if (bs_dtype_unit_roundoff(dtypes[i]) <= bs_dtype_unit_roundoff(c->options.y_dtype)) continue;
    while (at < c->B * c->reference.features &&
           bs_checking_stored(dtypes[i], bs_checking_y(c, c->worst_rank, at)) ==
               bs_checking_y(c, c->worst_rank, at))
      at++;
    if (at == c->B * c->reference.features) return bs_dtype_name(dtypes[i]);
  }
  return NULL;
}

static int is_large(const bs_checking *c) {
  return c->relative > bs_dtype_unit_roundoff(BS_F8E5M2);
}

/* T1 or T3 failed, and no known mistake fits. */
static void say_size(const bs_checking *c, char *text, size_t size) {
  const char *dtype = bs_dtype_name(c->options.y_dtype), *less = narrower(c);
  const double all = (double)(c->B * c->reference.features);
  if (is_large(c)) {
    snprintf(text, size,
             "Y is not X W^T (it is off by %.3g of its size), and no known mistake fits: look at W's rows "
             "and columns",
             c->relative);
  } else if (!(c->noise > 1.0)) {
    snprintf(
        text, size,
        "%llu of %.0f outputs are over their bound, the worst %.3g times at token %lld, feature %lld; as a "
        "whole Y is no farther off than %s predicts",
        (unsigned long long)c->wrong, all, c->worst_ratio, (long long)c->at_token, (long long)c->at_feature,
        dtype);
  } else if (less != NULL) {
    snprintf(text, size,
             "Y is %.3g times as far off as %s predicts: all its values are those of a narrower dtype, %s",
             c->noise, dtype, less);
  } else {
    snprintf(text, size, "Y is %.3g times as far off as %s predicts, and no known mistake fits", c->noise,
             dtype);
  }
}

static void say_partial(const bs_checking *c, const bs_gate *gate, char *text, size_t size) {
  if (c->columns_known && strstr(gate->text, "whole bias") != NULL)
    snprintf(text, size, "the partial of every rank holds the whole bias, which their sum counts %u times",
             c->set->partial.n);
  else if (c->columns_known)
    snprintf(text, size, "the partial of rank %d is not the product of its columns", gate->rank);
  else
    snprintf(text, size, "the partial of rank %d is all zeros, and the other partials do not make X W^T",
             gate->rank);
}

/* Describes the failure if no known mistake fits. */
static void say_rest(const bs_checking *c, const bs_check_result *result, char *text, size_t size) {
  const double all = (double)(c->B * c->reference.features);
  if (failed(result, "partial")) {
    say_partial(c, gate_of(result, "partial"), text, size);
  } else if (c->wrong > 0 && (double)c->wrong <= 0.02 * all + 1) {
    snprintf(text, size,
             "%llu of %.0f outputs are wrong and the others right: the worst at token %lld, feature %lld",
             (unsigned long long)c->wrong, all, (long long)c->at_token, (long long)c->at_feature);
  } else if (failed(result, "dtype")) {
    snprintf(text, size, "Y was not rounded to %s", bs_dtype_name(c->options.y_dtype));
  } else if (failed(result, "T3") && is_large(c)) {
    say_size(c, text, size);
  } else if (failed(result, "zero")) {
    snprintf(text, size, "whole features of Y are zeros and should not be, and other outputs are wrong too");
  } else if (failed(result, "drift")) {
    snprintf(text, size,
             "the errors of Y have one sign, as if values were cut off or rounded up instead of to nearest");
  } else if (failed(result, "T1") || failed(result, "T3")) {
    say_size(c, text, size);
  } else if (failed(result, "T4")) {
    snprintf(text, size, "rank %d holds other bits than rank 0", gate_of(result, "T4")->rank);
  } else if (failed(result, "sum")) {
    snprintf(text, size, "Y is right, and the partials do not add up to it: a partial is wrong or missing");
  } else if (failed(result, "shape")) {
    snprintf(text, size, "W is transposed: it is [K,N] where a layer has [N,K]; else Y is right");
  } else {
    snprintf(text, size, "errors gather in one feature or token: no known mistake fits");
  }
}

int32_t bs_check_cause(const bs_checking *c, bs_check_result *result, bs_error *err) {
  if (say_gate(c, result, result->cause, sizeof result->cause)) return BS_OK;
  if (failed(result, "T1") || failed(result, "T3")) {
    const int32_t rc = bs_check_mistake(c, result->cause, sizeof result->cause, err);
    if (rc != BS_OK) return rc;
  }
  if (result->cause[0] == '\0') say_rest(c, result, result->cause, sizeof result->cause);
  return BS_OK;
}
