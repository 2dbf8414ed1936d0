/* SPDX-License-Identifier: MIT
 * explain_kernel.c - `bsrun explain OP SHAPE`: the query of an op that no layer of a method makes, of
 * a problem in one line of text, as `bsrun bench sdpa` and `bsrun tune` take it. */
#include <stdio.h>
#include <string.h>

#include "bsrun/explain.h"
#include "core/base/error.h"

static const struct {
  const char *op, *word, *example;
} kernels[] = {
    {"attention", "sdpa", "mission:bf16:causal"},
    {"attention_dx", "sdpa_dx", "mission:bf16"},
    {"matmul24", "matmul24", "n4096k4096b64:f32"},
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

static size_t index_of(const char *op) {
  size_t i = 0;
  while (i < KERNELS && strcmp(kernels[i].op, op) != 0) i++;
  return i;
}

const char *explain_shape(const explained *x) {
  return x->a->n_words == 2 ? x->a->words[1] : NULL;
}

int explain_takes_shape(const char *op) {
  return index_of(op) < KERNELS;
}

/* Only what such a query can say. */
static int32_t only_shape(const explained *x, size_t i, bs_error *err) {
  char shown[64];
  static const char *const others[] = {"dtype",    "b",        "n",         "k",          "mask",
                                       "rank",     "weights",  "y",         "activation", "bias",
                                       "residual", "gathered", "tokenwise", "train"};
  for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
    if (!args_has(x->a, others[k])) continue;
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "%s is not for %s: the shape says all of it",
                 args_shown(x->a, others[k], shown), kernels[i].op);
    bs_error_hint(err, "for example bsrun explain %s %s", kernels[i].op, kernels[i].example);
    return BS_USAGE;
  }
  return BS_OK;
}

/* "mission", or with the kind in front: "sdpa mission". */
static int32_t parse(size_t i, const char *shape, bs_kernel_problem *out, bs_error *err) {
  char text[2 * BS_KERNEL_TEXT];
  snprintf(text, sizeof text, "%s %s", kernels[i].word, shape);
  const int32_t rc = bs_kernel_problem_parse(strchr(shape, ' ') != NULL ? shape : text, out, err);
  if (rc != BS_OK || strcmp(bs_kernel_problem_op(out->kind), kernels[i].op) == 0) return rc;
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "the shape '%.80s' is one of %s, and %s is asked", shape,
               bs_kernel_problem_op(out->kind), kernels[i].op);
  bs_error_hint(err, "for example bsrun explain %s %s", kernels[i].op, kernels[i].example);
  return BS_USAGE;
}

int32_t explain_kernel_ask(const explained *x, const char *op, bs_kernel_query *out, const bs_kept **out_kept,
                           bs_error *err) {
  const size_t i = index_of(op);
  bs_kernel_problem p;
  int64_t workspace = 0;
  *out_kept = NULL;
  int32_t rc = only_shape(x, i, err);
  if (rc == BS_OK) rc = args_integer(x->a, "workspace", 0, INT64_MAX, 0, &workspace, err);
  if (rc == BS_OK) rc = parse(i, explain_shape(x), &p, err);
  if (rc == BS_OK && p.kind == BS_KERNEL_MATMUL24) rc = bs_kernel_kept_make(&p, 0, out_kept, err);
  if (rc != BS_OK) return rc;
  bs_kernel_query_make(&p, *out_kept, NULL, 0, out);
  out->query.workspace_limit = (uint64_t)workspace;
  if (args_has(x->a, "deterministic")) out->query.flags |= BS_QUERY_DETERMINISTIC;
  return BS_OK;
}
