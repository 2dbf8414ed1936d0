/* SPDX-License-Identifier: MIT
 * patterns.c - the table of patterns, graphs of one or two of them, and the parts that they share. */
#include "tests/graph/fuzz_passes/patterns.h"

#include <stdio.h>
#include <string.h>

#include "tests/graph/fuzz_passes/changes.h"
#include "tests/graph/fuzz_passes/data.h"

static const pattern table[] = {
    {"product", pattern_product},
    {"activation", pattern_activation},
    {"chain", pattern_chain},
    {"softmax", pattern_softmax},
    {"norm", pattern_norm},
    {"norm_op", pattern_norm_op},
    {"attention", pattern_attention},
    {"rope", pattern_rope},
    {"views", pattern_views},
    {"merge", pattern_merge},
    {"last_token", pattern_last_token},
    {"fold", pattern_fold},
    {"twice", pattern_twice},
    {"weights", pattern_weights},
    {"alpha", pattern_alpha},
    {"quant", pattern_quant},
};
enum { PATTERNS = (int)(sizeof table / sizeof table[0]) };

const pattern *pattern_get(uint32_t index) {
  return index < PATTERNS ? &table[index] : NULL;
}

int64_t draw_dim(spec *s) {
  static const int64_t dims[] = {2, 4, 3, 1, 5, 8};
  return dims[draw(s, 6)];
}

void draw_dims(spec *s, uint32_t rank, int64_t *dims) {
  const int square = draw(s, 2) == 0;
  for (uint32_t i = 0; i < rank; i++) dims[i] = square && i > 0 ? dims[0] : draw_dim(s);
}

int draw_source(spec *s, uint32_t role, uint32_t rank, const int64_t *dims) {
  const uint32_t often = role == ROLE_WEIGHT || role == ROLE_ROW ? 4 : 1;
  const uint32_t kind = draw(s, 5) < often ? VALUE_CONST : VALUE_INPUT;
  return add_source(s, kind, role, s->dtype, rank, dims);
}

int draw_broadcast(spec *s, uint32_t role, uint32_t dtype, uint32_t rank, const int64_t *dims) {
  int64_t out[SPEC_RANK];
  const uint32_t skip = seldom(s, 3) ? draw(s, rank + 1u) : 0;
  for (uint32_t i = skip; i < rank; i++) out[i - skip] = seldom(s, 3) ? 1 : dims[i];
  return add_source(s, draw(s, 3) == 0 ? VALUE_CONST : VALUE_INPUT, role, dtype, rank - skip, out);
}

int or_source(spec *s, int x, uint32_t rank) {
  int64_t dims[SPEC_RANK];
  if (x != SPEC_NONE && s->values[x].rank >= rank && s->values[x].dtype == s->dtype) return x;
  const uint32_t n = rank + draw(s, rank < 3 ? 3 : 2);
  draw_dims(s, n, dims);
  return add_source(s, VALUE_INPUT, ROLE_X, s->dtype, n, dims);
}

int reduced(spec *s, const char *name, int x, int64_t axis) {
  char attrs[48];
  int keep = 1;
  const value of = s->values[x];
  change_reduction(s, &of, &axis, &keep);
  snprintf(attrs, sizeof attrs, "keepdims=%d", keep);
  return op(s, name, attrs, x, add_ints(s, 1, &axis), SPEC_NONE);
}

int turned_by(spec *s, int x, const char *perm) {
  char attrs[48];
  snprintf(attrs, sizeof attrs, "perm=%s", perm);
  return op(s, "Transpose", attrs, x, SPEC_NONE, SPEC_NONE);
}

int seen_as(spec *s, int x, uint32_t rank, const int64_t *dims) {
  return op2(s, "Reshape", x, add_ints(s, rank, dims));
}

int sliced(spec *s, int x, int64_t axis, int64_t from, int64_t to, int64_t step) {
  const int in[5] = {x, add_ints(s, 1, &from), add_ints(s, 1, &to), add_ints(s, 1, &axis),
                     add_ints(s, 1, &step)};
  return change_here(s, raw_op(s, "Slice", "", in, step == 1 ? 4 : 5));
}

/* One or two patterns, the second behind the first. */
static void put_patterns(spec *s, uint32_t only) {
  const uint32_t n = 1 + (uint32_t)seldom(s, 4);
  int v = SPEC_NONE;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t number = draw(s, PATTERNS);
    if (only < PATTERNS && i == n - 1 && !s->bad) {
      number = only;
      s->choices->made[s->choices->n - 1] = only;
    }
    s->patterns[s->n_patterns++] = number;
    v = table[number].make(s, v);
    if (s->bad) return;
  }
  if (seldom(s, 8)) v = cast_value(s, v);
  const int in[1] = {v};
  if (s->values[v].kind != VALUE_NODE) v = raw_op(s, "Identity", "", in, 1);
  add_output(s, v);
}

int make_spec(spec *s, choices *c, uint32_t only, uint32_t stable) {
  static const uint32_t dtypes[] = {BS_F32, BS_F32, BS_F32, BS_F32, BS_F64, BS_F16, BS_F32, BS_BF16};
  static const uint32_t most[] = {0, 1, 1, 2};
  spec_clear(s);
  c->n = 0;
  s->choices = c;
  s->stable = stable;
  s->dtype = dtypes[draw(s, 8)];
  s->max_changes = most[draw(s, 4)];
  put_patterns(s, only);
  if (!s->bad) fill_data(s);
  return !s->bad && s->n_nodes > 0;
}
