/* SPDX-License-Identifier: MIT
 * patterns.h - what passes look for, in many spellings. */
#ifndef TESTS_GRAPH_FUZZ_PASSES_PATTERNS_H
#define TESTS_GRAPH_FUZZ_PASSES_PATTERNS_H
#include "tests/graph/fuzz_passes/spec.h"

typedef struct pattern {
  const char *name;
  int (*make)(spec *s, int x); /* a value from x, SPEC_NONE: from a source of its own */
} pattern;

const pattern *pattern_get(uint32_t index); /* NULL beyond the last */

/* The graph of these choices; `only`: a pattern's number, UINT32_MAX any. 0: they give none. */
int make_spec(spec *s, choices *c, uint32_t only, uint32_t stable);

/* ---- parts, of patterns_*.c ------------------------------------------------------------------- */
int64_t draw_dim(spec *s);
/* dims[0..rank): of one size all, often, so that a wrong axis has the right shape too. */
void draw_dims(spec *s, uint32_t rank, int64_t *dims);
/* An input, or a constant. */
int draw_source(spec *s, uint32_t role, uint32_t rank, const int64_t *dims);
/* The same with some dims 1, or fewer of them. */
int draw_broadcast(spec *s, uint32_t role, uint32_t dtype, uint32_t rank, const int64_t *dims);
/* x where it is one; else a source of that rank or more. */
int or_source(spec *s, int x, uint32_t rank);
int reduced(spec *s, const char *name, int x, int64_t axis);
int activated(spec *s, int x);
int softmax(spec *s, int x);
int turned_by(spec *s, int x, const char *perm);
int seen_as(spec *s, int x, uint32_t rank, const int64_t *dims);
int sliced(spec *s, int x, int64_t axis, int64_t from, int64_t to, int64_t step);

int pattern_product(spec *s, int x);
int pattern_activation(spec *s, int x);
int pattern_chain(spec *s, int x);
int pattern_softmax(spec *s, int x);
int pattern_norm(spec *s, int x);
int pattern_norm_op(spec *s, int x);
int pattern_attention(spec *s, int x);
int pattern_rope(spec *s, int x);
int pattern_views(spec *s, int x);
int pattern_merge(spec *s, int x);
int pattern_last_token(spec *s, int x);
int pattern_fold(spec *s, int x);
int pattern_twice(spec *s, int x);
int pattern_weights(spec *s, int x);
int pattern_alpha(spec *s, int x);
int pattern_quant(spec *s, int x);
#endif
