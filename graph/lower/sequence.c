/* SPDX-License-Identifier: MIT
 * sequence.c - sequences of tensors: lists of values while a model is lowered. Their lengths and places are
 * constants. */
#include <stdlib.h>
#include <string.h>

#include "graph/lower/counted.h"
#include "graph/lower/rules.h"

static int32_t sequence_empty(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  build_out(&b, 0, build_sequence(&b, NULL, 0));
  return b.rc;
}

static int32_t sequence_construct(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t *items = calloc((size_t)node->n_in + 1, sizeof *items);
  if (items == NULL) build_no_memory(&b);
  for (uint32_t i = 0; items != NULL && i < node->n_in && b.rc == BS_OK; ++i) items[i] = build_in(&b, i);
  build_out(&b, 0, build_sequence(&b, items, node->n_in));
  free(items);
  return b.rc;
}

/* A place from -n to n - 1; `end` 1: n too. Absent: `otherwise`. */
static uint32_t place(build *b, uint32_t input, uint32_t n, int end, uint32_t otherwise) {
  const uint32_t value = build_optional(b, input);
  if (value == GNONE) return otherwise;
  int64_t at = build_read_int(b, value, "its position");
  if (at < 0) at += n;
  build_check(b, at >= 0 && at < (int64_t)n + end, "its position is beyond the sequence");
  return b->rc == BS_OK ? (uint32_t)at : 0;
}

static int32_t sequence_at(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  if (!lower_is_compound(lower_in(c, node, 0))) return lower_sequence_at(c, node, err);
  build b = build_begin(c, node, err);
  const uint32_t *items;
  const uint32_t n = build_items(&b, build_in(&b, 0), &items);
  build_check(&b, lower_has(node, 1), "input 1 is absent");
  const uint32_t at = place(&b, 1, n, 0, 0);
  if (b.rc == BS_OK) build_out(&b, 0, items[at]);
  return b.rc;
}

/* SequenceInsert, and SequenceErase with `erase`: the sequence itself stays as it is. */
static int32_t changed(lower_ctx *c, const gmodel_node *node, int erase, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t *items;
  const uint32_t n = build_items(&b, build_in(&b, 0), &items);
  const uint32_t item = erase ? GNONE : build_in(&b, 1);
  build_check(&b, !erase || n > 0, "the sequence is empty");
  const uint32_t at = place(&b, erase ? 1 : 2, n, !erase, erase ? n - 1 : n);
  uint32_t *list = calloc((size_t)n + 1, sizeof *list);
  if (list == NULL) build_no_memory(&b);
  for (uint32_t i = 0, to = 0; list != NULL && i < n && b.rc == BS_OK; ++i) {
    if (erase && i == at) continue;
    to += !erase && i == at;
    list[to++] = items[i];
  }
  if (list != NULL && b.rc == BS_OK && !erase) list[at] = item;
  build_out(&b, 0, build_sequence(&b, list, erase ? n - 1 : n + 1));
  free(list);
  return b.rc;
}

static int32_t sequence_insert(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  return changed(c, node, 0, err);
}

static int32_t sequence_erase(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  return changed(c, node, 1, err);
}

static int32_t sequence_length(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const build_shape scalar = {0};
  const uint32_t *items;
  const int64_t n = build_items(&b, build_in(&b, 0), &items);
  build_out(&b, 0, build_const(&b, BS_I64, &scalar, &n));
  return b.rc;
}

/* Joined along an axis, or along a new one. */
static int32_t concat_from_sequence(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  const uint32_t *items;
  const uint32_t n = build_items(&b, build_in(&b, 0), &items);
  const int fresh = lower_int(node, "new_axis", 0) != 0;
  build_check(&b, gmodel_attr(node, "axis") != NULL, "its attribute axis is absent");
  build_check(&b, n > 0, "the sequence is empty");
  uint32_t *parts = calloc((size_t)n + 1, sizeof *parts);
  if (parts == NULL) build_no_memory(&b);
  const uint32_t rank = b.rc == BS_OK ? build_rank(&b, items[0]) + (uint32_t)fresh : 0;
  if (rank > BS_MAX_DIMS) build_refuse(&b, 0, "its output has more than 6 dims");
  const uint32_t axis = build_axis(&b, lower_int(node, "axis", 0), rank);
  for (uint32_t i = 0; parts != NULL && i < n && b.rc == BS_OK; ++i) {
    parts[i] = fresh ? build_unsqueeze(&b, items[i], axis) : items[i];
    const build_shape first = build_shape_of(&b, parts[0]);
    build_shape this = build_shape_of(&b, parts[i]);
    if (!fresh && this.rank == first.rank) this.dims[axis] = first.dims[axis];
    build_check(&b, build_same(&first, &this), "its parts differ in a dim that is not joined");
    build_check(&b, build_dtype(&b, items[i]) == build_dtype(&b, items[0]),
                "its parts have different dtypes");
  }
  if (parts != NULL && b.rc == BS_OK) build_out(&b, 0, n == 1 ? parts[0] : build_concat(&b, parts, n, axis));
  free(parts);
  return b.rc;
}

/* Parts of the lengths that are given, of one length, or (split absent) of length 1, then without the axis if
 * keepdims is 0. */
static int32_t split_to_sequence(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  enum { MOST = 4096 };
  if (c->frame == NULL && lower_has(node, 0) && c->marks[node->in[0]].kind != 0)
    return lower_split_to_sequence(c, node, err);
  build b = build_begin(c, node, err);
  const uint32_t x = build_in(&b, 0), split = build_optional(&b, 1);
  const uint32_t axis = build_axis(&b, lower_int(node, "axis", 0), build_rank(&b, x));
  const int64_t dim = build_dim(&b, x, axis);
  const int one_length = split == GNONE || build_rank(&b, split) == 0;
  int64_t *lengths = calloc(MOST, sizeof *lengths), at = 0;
  uint32_t *parts = calloc(MOST, sizeof *parts), n = 0;
  const int there = lengths != NULL && parts != NULL;
  if (!there) build_no_memory(&b);
  if (there && b.rc == BS_OK && one_length) {
    const int64_t each = split == GNONE ? 1 : build_read_int(&b, split, "its split");
    build_check(&b, each > 0, "a part has no length");
    if (b.rc == BS_OK && (dim - 1) / each >= MOST) build_refuse(&b, 0, "it has more than 4096 parts");
    for (; b.rc == BS_OK && at < dim; at += each) lengths[n++] = dim - at < each ? dim - at : each;
  } else if (there && b.rc == BS_OK) {
    n = build_read_ints(&b, split, "its split", lengths, MOST);
  }
  at = 0;
  for (uint32_t i = 0; there && i < n && b.rc == BS_OK; ++i) {
    build_check(&b, lengths[i] >= 0 && lengths[i] <= dim - at, "the parts are longer than the dim");
    if (b.rc == BS_OK) parts[i] = build_slice(&b, x, axis, at, lengths[i], 1);
    if (split == GNONE && lower_int(node, "keepdims", 1) == 0) parts[i] = build_squeeze(&b, parts[i], axis);
    at += lengths[i];
  }
  build_check(&b, at == dim, "the parts are shorter than the dim");
  build_out(&b, 0, build_sequence(&b, parts, n));
  free(lengths);
  free(parts);
  return b.rc;
}

const lower_rule lower_rules_sequence[] = {{"SequenceEmpty", 11, 0, sequence_empty, NULL},
                                           {"SequenceConstruct", 11, 0, sequence_construct, NULL},
                                           {"SequenceAt", 11, 0, sequence_at, NULL},
                                           {"SequenceInsert", 11, 0, sequence_insert, NULL},
                                           {"SequenceErase", 11, 0, sequence_erase, NULL},
                                           {"SequenceLength", 11, 0, sequence_length, NULL},
                                           {"ConcatFromSequence", 11, 0, concat_from_sequence, NULL},
                                           {"SplitToSequence", 11, 0, split_to_sequence, NULL},
                                           {0}};
