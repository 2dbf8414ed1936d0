/* SPDX-License-Identifier: MIT
 * compound.c - results that no value of the graph holds: sequences of tensors, and tensors of more than six
 * dims between a Reshape and the next one. They last while a model is lowered. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"
#include "graph/ir/arena.h"
#include "graph/lower/build.h"
#include "graph/lower/frame.h"

/* Which input of an operator may be one. */
static const struct {
  const char *op;
  uint32_t first, last;
  int sequence, deep;
} takers[] = {
    {"Identity", 0, 0, 1, 1},       {"Loop", 2, UINT32_MAX, 1, 0}, {"SequenceInsert", 0, 0, 1, 0},
    {"SequenceErase", 0, 0, 1, 0},  {"SequenceAt", 0, 0, 1, 0},    {"ConcatFromSequence", 0, 0, 1, 0},
    {"SequenceLength", 0, 0, 1, 0}, {"Reshape", 0, 0, 0, 1},       {"Transpose", 0, 0, 0, 1},
    {"Shape", 0, 0, 0, 1},          {"Squeeze", 0, 0, 0, 1},       {"Unsqueeze", 0, 0, 0, 1}};

/* Operators of elements, which are computed over fewer dims: neighbours that are broadcast alike become one.
 */
static const char *const by_element[] = {
    "Add",       "Sub",       "Mul",        "Div",        "Pow",     "Max",         "Min",
    "Mod",       "Where",     "Equal",      "Less",       "Greater", "LessOrEqual", "GreaterOrEqual",
    "And",       "Or",        "Xor",        "Not",        "Neg",     "Abs",         "Sign",
    "Exp",       "Log",       "Sqrt",       "Reciprocal", "Sigmoid", "Tanh",        "Relu",
    "Gelu",      "Erf",       "Cast",       "Clip",       "Floor",   "Ceil",        "Round",
    "LeakyRelu", "HardSwish", "HardSigmoid"};

static int is_by_element(const char *op) {
  for (size_t i = 0; i < sizeof by_element / sizeof by_element[0]; i++)
    if (strcmp(by_element[i], op) == 0) return 1;
  return 0;
}

const lower_compound *lower_compound_of(const lower_ctx *c, uint32_t value) {
  return lower_is_compound(value) ? &c->compounds[value & ~LOWER_COMPOUND] : NULL;
}

static int32_t compound_add(lower_ctx *c, const lower_compound *one, uint32_t *out_value, bs_error *err) {
  if (c->n_compounds >= LOWER_COMPOUND - 1u || !ARRAY_GROW(c->compounds, c->n_compounds, c->cap_compounds))
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to lower the model");
  *out_value = c->n_compounds | LOWER_COMPOUND;
  c->compounds[c->n_compounds++] = *one;
  return BS_OK;
}

void lower_compounds_free(lower_ctx *c) {
  for (uint32_t i = 0; i < c->n_compounds; i++) free(c->compounds[i].items);
  free(c->compounds);
}

int32_t lower_compound_inputs(lower_ctx *c, const gmodel_node *node, int *out_by_element, bs_error *err) {
  *out_by_element = 0;
  for (uint32_t i = 0; i < node->n_in && c->n_compounds > 0; i++) {
    const lower_compound *one = lower_compound_of(c, lower_in(c, node, i));
    int takes = one == NULL;
    if (!takes && !one->is_sequence && is_by_element(node->op) && node->domain[0] == '\0')
      takes = *out_by_element = 1;
    for (size_t k = 0; !takes && k < sizeof takers / sizeof takers[0]; k++)
      takes = strcmp(takers[k].op, node->op) == 0 && i >= takers[k].first && i <= takers[k].last &&
              (one->is_sequence ? takers[k].sequence : takers[k].deep);
    if (!takes && one->is_sequence)
      return lower_unsupported(c, node, 0, err, "its input %u is a sequence", i);
    if (!takes)
      return lower_unsupported(c, node, 0, err, "its input %u has %u dims, at most %d are supported", i,
                               one->rank, BS_MAX_DIMS);
  }
  return BS_OK;
}

/* ---- sequences --------------------------------------------------------------------------------- */

uint32_t build_sequence(build *b, const uint32_t *items, uint32_t n) {
  lower_compound one = {.is_sequence = 1, .n = n};
  uint32_t value = GNONE;
  if (b->rc != BS_OK) return GNONE;
  one.items = calloc((size_t)n + 1, sizeof *one.items);
  if (one.items == NULL) {
    build_no_memory(b);
    return GNONE;
  }
  if (n > 0) memcpy(one.items, items, n * sizeof *items);
  b->rc = compound_add(b->c, &one, &value, b->err);
  if (b->rc == BS_OK) return value;
  free(one.items);
  return GNONE;
}

uint32_t build_items(build *b, uint32_t value, const uint32_t **out_items) {
  const lower_compound *one = lower_compound_of(b->c, value);
  *out_items = NULL;
  build_check(b, one != NULL && one->is_sequence, "its input is no sequence");
  if (b->rc != BS_OK || one == NULL) return 0;
  *out_items = one->items;
  return one->n;
}

/* ---- more than six dims -------------------------------------------------------------------------- */

lower_dims build_dims_of(const build *b, uint32_t value) {
  const lower_compound *one = lower_compound_of(b->c, value);
  lower_dims dims = {0};
  if (value == GNONE) return dims;
  if (one == NULL) {
    const gvalue *v = lower_value(b->c, value);
    dims.rank = v->rank;
    memcpy(dims.dims, v->dims, sizeof v->dims);
    return dims;
  }
  dims.rank = one->rank;
  for (uint32_t i = 0; i < one->rank; ++i) dims.dims[i] = one->dims[one->order[i]];
  return dims;
}

static int64_t product(build *b, const int64_t *dims, uint32_t n) {
  int64_t count = 1;
  for (uint32_t i = 0; i < n; ++i)
    if (!bs_mul_i64(count, dims[i], &count)) build_refuse(b, 0, "its dims are too large");
  return b->rc == BS_OK ? count : 0;
}

/* Dims that stay neighbours become one: the groups in the order of the source, and which of them comes when.
 */
static uint32_t join_neighbours(build *b, const lower_compound *one, int64_t *out_dims, uint32_t *out_order) {
  uint32_t first[LOWER_DEEP_DIMS] = {0}, size[LOWER_DEEP_DIMS] = {0}, n = 0;
  for (uint32_t i = 0; i < one->rank; ++i) {
    if (i > 0 && one->order[i] == one->order[i - 1] + 1) {
      ++size[n - 1];
    } else {
      first[n] = one->order[i];
      size[n++] = 1;
    }
  }
  for (uint32_t i = 0; i < n; ++i) {
    out_order[i] = 0;
    for (uint32_t k = 0; k < n; ++k) out_order[i] += first[k] < first[i];
    out_dims[out_order[i]] = product(b, &one->dims[first[i]], size[i]);
  }
  return n;
}

/* The elements in the order of a deep tensor: one permutation of at most six dims, or several of four. */
static uint32_t in_order(build *b, const lower_compound *one) {
  int64_t dims[LOWER_DEEP_DIMS] = {0};
  uint32_t order[LOWER_DEEP_DIMS] = {0}, value = one->source;
  const uint32_t n = join_neighbours(b, one, dims, order);
  if (n <= BS_MAX_DIMS) {
    build_shape shape = {.rank = n};
    memcpy(shape.dims, dims, sizeof shape.dims);
    return build_permute(b, build_reshape(b, value, &shape), order);
  }
  uint32_t now[LOWER_DEEP_DIMS];
  for (uint32_t i = 0; i < n; ++i) now[i] = i;
  for (uint32_t i = 0; i < n && b->rc == BS_OK; ++i) {
    static const uint32_t swap[4] = {0, 2, 1, 3};
    uint32_t at = i;
    while (at + 1 < n && now[at] != order[i]) ++at;
    if (at == i) continue;
    const build_shape parts = {
        4,
        {product(b, dims, i), product(b, &dims[i], at - i), dims[at], product(b, &dims[at + 1], n - at - 1)}};
    value = build_permute(b, build_reshape(b, value, &parts), swap);
    const int64_t dim = dims[at];
    memmove(&now[i + 1], &now[i], (at - i) * sizeof now[0]);
    memmove(&dims[i + 1], &dims[i], (at - i) * sizeof dims[0]);
    now[i] = order[i];
    dims[i] = dim;
  }
  return value;
}

uint32_t build_reshape_dims(build *b, uint32_t value, const lower_dims *dims) {
  const lower_dims old = build_dims_of(b, value);
  if (b->rc != BS_OK) return GNONE;
  build_check(b, product(b, old.dims, old.rank) == product(b, dims->dims, dims->rank),
              "a reshape changes the number of elements");
  if (lower_is_compound(value)) {
    const lower_compound from = *lower_compound_of(b->c, value);
    value = in_order(b, &from);
  }
  if (dims->rank <= BS_MAX_DIMS) {
    build_shape shape = {.rank = dims->rank};
    memcpy(shape.dims, dims->dims, sizeof shape.dims);
    return build_reshape(b, value, &shape);
  }
  if (b->rc != BS_OK) return GNONE;
  lower_compound one = {.source = value, .rank = dims->rank};
  memcpy(one.dims, dims->dims, sizeof one.dims);
  for (uint32_t i = 0; i < one.rank; ++i) one.order[i] = i;
  b->rc = compound_add(b->c, &one, &value, b->err);
  return b->rc == BS_OK ? value : GNONE;
}

uint32_t build_permute_dims(build *b, uint32_t value, const uint32_t *order) {
  const lower_compound *from = lower_compound_of(b->c, value);
  if (from == NULL || b->rc != BS_OK) return build_permute(b, value, order);
  lower_compound one = *from;
  for (uint32_t i = 0; i < one.rank; ++i) one.order[i] = from->order[order[i]];
  b->rc = compound_add(b->c, &one, &value, b->err);
  return b->rc == BS_OK ? value : GNONE;
}

/* ---- operators over more than six dims ----------------------------------------------------------- */

/* Dim i of `dims` as if it had the rank of `all`: ones stand in front. */
static int64_t dim_of(const lower_dims *dims, const lower_dims *all, uint32_t i) {
  return i + dims->rank < all->rank ? 1 : dims->dims[i + dims->rank - all->rank];
}

/* Where groups of neighbours begin, as bits. In a group each input has all dims of the result, or is 1 in
 * all.
 */
static uint32_t groups_of(const lower_dims *inputs, uint32_t n, const lower_dims *all, uint32_t *out_groups) {
  uint32_t starts = 0, whole = 0, ones = 0;
  *out_groups = 0;
  for (uint32_t i = 0; i < all->rank; ++i) {
    uint32_t has = 0, one = 0;
    for (uint32_t k = 0; k < n; ++k) {
      const int64_t dim = dim_of(&inputs[k], all, i);
      has |= (uint32_t)(dim == all->dims[i]) << k;
      one |= (uint32_t)(dim == 1) << k;
    }
    const uint32_t every = (1u << n) - 1;
    if (i == 0 || ((whole & has) | (ones & one)) != every) {
      starts |= 1u << i;
      *out_groups += 1;
      whole = ones = every;
    }
    whole &= has;
    ones &= one;
  }
  return starts;
}

/* `dims` over the groups that begin at the bits of `starts`. */
static build_shape joined(build *b, const lower_dims *dims, const lower_dims *all, uint32_t starts) {
  build_shape shape = {0};
  for (uint32_t i = 0; i < all->rank; ++i) {
    if (starts >> i & 1) shape.dims[shape.rank++] = 1;
    if (!bs_mul_i64(shape.dims[shape.rank - 1], dim_of(dims, all, i), &shape.dims[shape.rank - 1]))
      build_refuse(b, 0, "its dims are too large");
  }
  return shape;
}

int32_t lower_by_element(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  enum { MOST = 8 };
  build b = build_begin(c, node, err);
  lower_dims dims[MOST] = {{0}}, all = {0};
  uint32_t in[MOST] = {0}, groups = 0, out = GNONE;
  if (node->n_in > MOST) build_refuse(&b, 0, "more than 8 inputs, of more than 6 dims");
  if (b.rc != BS_OK) return b.rc;
  for (uint32_t k = 0; k < node->n_in && b.rc == BS_OK; ++k) {
    in[k] = build_optional(&b, k);
    dims[k] = build_dims_of(&b, in[k]);
    if (dims[k].rank > all.rank) all.rank = dims[k].rank;
  }
  for (uint32_t i = 0; i < all.rank; ++i) all.dims[i] = 1;
  for (uint32_t i = 0; i < all.rank && b.rc == BS_OK; ++i)
    for (uint32_t k = 0; k < node->n_in; ++k) {
      const int64_t dim = dim_of(&dims[k], &all, i);
      build_check(&b, dim == 1 || all.dims[i] == 1 || dim == all.dims[i], "its inputs cannot be broadcast");
      if (dim != 1) all.dims[i] = dim;
    }
  const uint32_t starts = groups_of(dims, node->n_in, &all, &groups);
  if (groups > BS_MAX_DIMS) build_refuse(&b, 0, "its inputs have more than 6 dims that cannot be joined");
  for (uint32_t k = 0; k < node->n_in && b.rc == BS_OK; ++k) {
    if (in[k] == GNONE || dims[k].rank == 0) continue;
    const build_shape shape = joined(&b, &dims[k], &all, starts);
    lower_dims fewer = {.rank = shape.rank};
    memcpy(fewer.dims, shape.dims, sizeof shape.dims);
    in[k] = build_reshape_dims(&b, in[k], &fewer);
  }
  if (b.rc == BS_OK)
    b.rc = lower_call(c, node, node->op, in, node->n_in, node->attrs, node->n_attr, &out, 1, err);
  build_out(&b, 0, build_reshape_dims(&b, out, &all));
  return b.rc;
}
