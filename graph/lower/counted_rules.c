/* SPDX-License-Identifier: MIT
 * counted_rules.c - which operators keep rows apart, and along which axis their outputs have them. */
#include <string.h>

#include "graph/lower/counted.h"

static build_shape shape_in(const count_walk *w, uint32_t i) {
  return build_shape_of(&w->b, lower_in(w->b.c, w->node, i));
}

static void keep(count_walk *w, uint32_t axis) {
  w->keeps = 1;
  w->axis = axis;
  w->count = w->first->count;
}

/* Only input `i` has rows. */
static void only(count_walk *w, uint32_t i) {
  if (w->n_rows != 1 || w->at != i) count_refuse(w, "another input has such rows too");
}

static uint32_t axis_of(count_walk *w, int64_t otherwise) {
  return build_axis(&w->b, lower_int(w->node, "axis", otherwise), shape_in(w, 0).rank);
}

/* The axes of input i or of the attribute, of a value of `rank` dims, as bits. */
static uint32_t axes_of(count_walk *w, uint32_t i, uint32_t rank, uint32_t *out_n) {
  int64_t axes[BS_MAX_DIMS] = {0};
  int there;
  uint32_t bits = 0;
  *out_n = build_list(&w->b, i, "axes", axes, BS_MAX_DIMS, &there);
  for (uint32_t k = 0; k < *out_n && w->b.rc == BS_OK; ++k) bits |= 1u << build_axis(&w->b, axes[k], rank);
  return bits;
}

/* Elements by themselves, with broadcasting. A dim of 1 goes with any number of rows, another one with none.
 */
static void each(count_walk *w) {
  uint32_t rank = 0, axis = 0;
  if (strcmp(w->node->op, "CastLike") == 0) only(w, 0);
  for (uint32_t i = 0; i < w->node->n_in; ++i) {
    if (lower_has(w->node, i) && shape_in(w, i).rank > rank) rank = shape_in(w, i).rank;
  }
  axis = w->first->axis + rank - shape_in(w, w->at).rank;
  for (uint32_t i = 0; i < w->node->n_in && w->b.rc == BS_OK; ++i) {
    if (!lower_has(w->node, i)) continue;
    const build_shape s = shape_in(w, i);
    const lower_mark *mark = count_mark(w, i, MARK_ROWS);
    if (mark != NULL && (mark->count != w->first->count || mark->axis + rank - s.rank != axis))
      count_refuse(w, "its inputs have different rows");
    if (mark == NULL && axis + s.rank >= rank && s.dims[axis + s.rank - rank] != 1)
      count_refuse(w, "it joins rows with a dim of a known size");
  }
  keep(w, axis);
}

/* Along axes that are not the rows' one. */
static void normalize(count_walk *w) {
  const int old = strstr(w->node->op, "oftmax") != NULL && w->node->opset < 13;
  const int one = strstr(w->node->op, "oftmax") != NULL && !old;
  const uint32_t axis = axis_of(w, old ? 1 : -1);
  only(w, 0);
  if (one ? w->first->axis == axis : w->first->axis >= axis) count_refuse(w, "it goes along the rows");
  for (uint32_t i = 1; i < w->node->n_in && w->b.rc == BS_OK; ++i) { /* scales and biases */
    if (!lower_has(w->node, i)) continue;
    const build_shape s = shape_in(w, i);
    const uint32_t at = w->first->axis + s.rank, rank = shape_in(w, 0).rank;
    if (at >= rank && s.dims[at - rank] != 1) count_refuse(w, "it joins rows with a dim of a known size");
  }
  keep(w, w->first->axis);
}

static void reduce(count_walk *w) {
  const uint32_t rank = shape_in(w, 0).rank;
  uint32_t n = 1, axes = 0, axis = w->first->axis;
  only(w, 0);
  if (strncmp(w->node->op, "Arg", 3) == 0) {
    axes = 1u << axis_of(w, 0);
  } else {
    axes = axes_of(w, 1, rank, &n);
  }
  if (n == 0 || axes >> w->first->axis & 1) count_refuse(w, "it goes along the rows");
  for (uint32_t i = 0; i < w->first->axis && lower_int(w->node, "keepdims", 1) == 0; ++i)
    axis -= axes >> i & 1;
  keep(w, axis);
}

/* The rows are those of a matrix, or matrices by themselves. */
static void matmul(count_walk *w) {
  const build_shape x = shape_in(w, 0), y = shape_in(w, 1), mine = w->at == 0 ? x : y,
                    other = w->at == 0 ? y : x;
  const uint32_t rank = x.rank > y.rank ? x.rank : y.rank, axis = w->first->axis + rank - mine.rank;
  only(w, w->at);
  if (x.rank < 2 || y.rank < 2) count_refuse(w, "it sums over rows, or has a vector");
  const uint32_t summed = w->at == 0 ? mine.rank - 1 : mine.rank - 2;
  if (w->first->axis == summed) count_refuse(w, "it sums over the rows");
  if (axis + 2 < rank && axis + other.rank >= rank && other.dims[axis + other.rank - rank] != 1)
    count_refuse(w, "it joins rows with a dim of a known size");
  keep(w, axis);
}

static void gemm(count_walk *w) {
  only(w, 0);
  if (w->first->axis != 0 || lower_int(w->node, "transA", 0) != 0) count_refuse(w, "it sums over the rows");
  if (lower_has(w->node, 2) && shape_in(w, 2).rank == 2 && shape_in(w, 2).dims[0] != 1)
    count_refuse(w, "it joins rows with a dim of a known size");
  keep(w, 0);
}

static void transpose(count_walk *w) {
  const bs_attr *perm = lower_ints(w->node, "perm");
  const uint32_t rank = shape_in(w, 0).rank;
  uint32_t to = rank - 1 - w->first->axis;
  only(w, 0);
  for (uint32_t i = 0; perm != NULL && i < perm->count; ++i) {
    if (perm->ints[i] == (int64_t)w->first->axis) to = i;
  }
  keep(w, to);
}

static void squeeze(count_walk *w) {
  uint32_t n = 0, axis = w->first->axis;
  const uint32_t axes = axes_of(w, 1, shape_in(w, 0).rank, &n);
  only(w, 0);
  if (n == 0) count_refuse(w, "without axes it may take away the dim of the rows");
  if (w->b.rc == BS_OK && axes >> w->first->axis & 1) {
    w->in[0] = count_exactly(&w->b, lower_in(w->b.c, w->node, 0), axis, w->first->count, 1);
    return;
  }
  for (uint32_t i = 0; i < w->first->axis; ++i) axis -= axes >> i & 1;
  keep(w, axis);
}

static void unsqueeze(count_walk *w) {
  int64_t axes[BS_MAX_DIMS] = {0};
  int there;
  only(w, 0);
  const uint32_t n = build_list(&w->b, 1, "axes", axes, BS_MAX_DIMS, &there), rank = shape_in(w, 0).rank + n;
  uint32_t bits = 0, axis = 0, left = w->first->axis;
  for (uint32_t k = 0; k < n && w->b.rc == BS_OK; ++k) bits |= 1u << build_axis(&w->b, axes[k], rank);
  for (; axis < rank && ((bits >> axis & 1) || left > 0); ++axis) left -= !(bits >> axis & 1);
  keep(w, axis);
}

static void concat(count_walk *w) {
  const uint32_t axis = axis_of(w, 0);
  for (uint32_t i = 0; i < w->node->n_in; ++i) {
    const lower_mark *mark = count_mark(w, i, MARK_ROWS);
    if (mark == NULL || mark->count != w->first->count || mark->axis != w->first->axis)
      count_refuse(w, "its inputs have different rows");
  }
  if (axis == w->first->axis) count_refuse(w, "it joins rows with others");
  keep(w, w->first->axis);
}

/* Parts of known lengths along the rows say how many there are. */
static void split(count_walk *w) {
  const uint32_t axis = axis_of(w, 0);
  int64_t lengths[256] = {0}, sum = 0;
  int there = 0;
  only(w, 0);
  if (axis != w->first->axis) {
    keep(w, w->first->axis);
    return;
  }
  const uint32_t n = build_list(&w->b, 1, "split", lengths, 256, &there);
  if (!there) count_refuse(w, "it cuts rows into equal parts");
  for (uint32_t i = 0; i < n; ++i) {
    if (lengths[i] < 0 || lengths[i] > INT32_MAX) count_refuse(w, "a part's length is out of range");
    if (w->b.rc == BS_OK) sum += lengths[i];
  }
  w->in[0] = count_exactly(&w->b, lower_in(w->b.c, w->node, 0), axis, w->first->count, sum);
}

/* ---- places ------------------------------------------------------------------------------------ */

static void safe_index(count_walk *w) {
  w->in[1] = count_safe_index(&w->b, lower_in(w->b.c, w->node, 1), w->first->axis, w->first->count);
}

static void gather(count_walk *w) {
  const uint32_t axis = axis_of(w, 0), index_rank = shape_in(w, 1).rank;
  only(w, w->at);
  if (w->b.rc != BS_OK) return;
  if (w->at == 1) {
    safe_index(w);
    keep(w, axis + w->first->axis);
  } else if (w->first->axis != axis) {
    keep(w, w->first->axis < axis ? w->first->axis : w->first->axis + index_rank - 1);
  } else {
    w->in[1] = count_index(&w->b, lower_in(w->b.c, w->node, 1), w->first->count);
  }
}

static void gather_nd(count_walk *w) {
  only(w, 1);
  if (w->b.rc == BS_OK && (w->first->axis + 1 >= shape_in(w, 1).rank ||
                           (int64_t)w->first->axis < lower_int(w->node, "batch_dims", 0)))
    count_refuse(w, "the rows are no tuples");
  safe_index(w);
  keep(w, w->first->axis);
}

static void gather_elements(count_walk *w) {
  only(w, 1);
  safe_index(w);
  keep(w, w->first->axis);
}

/* Rows that do not count go into one more slot of the base, which is cut off. */
static void scatter(count_walk *w) {
  const int tuples = strcmp(w->node->op, "ScatterND") == 0;
  const lower_mark *index = count_mark(w, 1, MARK_ROWS), *updates = count_mark(w, 2, MARK_ROWS);
  const build_shape s = shape_in(w, 1), base = shape_in(w, 0);
  if (count_mark(w, 0, MARK_ROWS) != NULL) count_refuse(w, "its base has such rows");
  if (index == NULL || updates == NULL || index->count != updates->count || index->axis != updates->axis)
    count_refuse(w, "its indices and updates have different rows");
  if (base.rank == 0 || s.rank == 0 || (tuples && w->first->axis + 1 >= s.rank))
    count_refuse(w, "the rows are no tuples");
  w->cut_axis = tuples ? 0 : axis_of(w, 0);
  if (w->b.rc != BS_OK || index == NULL) return;
  w->cut = base.dims[w->cut_axis];
  const int64_t width = tuples ? s.dims[s.rank - 1] : 0;
  if (w->cut < 1 || width > (int64_t)base.rank) count_refuse(w, "its base has no elements, or fewer dims");
  if (w->b.rc != BS_OK) return;
  w->in[0] = count_with_slot(&w->b, lower_in(w->b.c, w->node, 0), w->cut_axis);
  w->in[1] = count_put_index(&w->b, lower_in(w->b.c, w->node, 1), index->axis, index->count, w->cut, width);
}

/* ---- the table --------------------------------------------------------------------------------- */

static const struct {
  const char *op;
  count_rule rule;
} rules[] = {{"Identity", each},
             {"Dropout", each},
             {"Softmax", normalize},
             {"LogSoftmax", normalize},
             {"LayerNormalization", normalize},
             {"SimplifiedLayerNormalization", normalize},
             {"RMSNormalization", normalize},
             {"ArgMax", reduce},
             {"ArgMin", reduce},
             {"MatMul", matmul},
             {"Gemm", gemm},
             {"Transpose", transpose},
             {"Squeeze", squeeze},
             {"Unsqueeze", unsqueeze},
             {"Concat", concat},
             {"Split", split},
             {"Slice", count_slice},
             {"Reshape", count_reshape},
             {"Flatten", count_flatten},
             {"Expand", count_expand},
             {"ConstantOfShape", count_constant_of_shape},
             {"Range", count_range},
             {"Gather", gather},
             {"GatherND", gather_nd},
             {"GatherElements", gather_elements},
             {"ScatterND", scatter},
             {"ScatterElements", scatter},
             {"Scatter", scatter}};

static int in_family(const lower_rule *family, const char *op) {
  for (; family->op != NULL; ++family) {
    if (strcmp(family->op, op) == 0) return 1;
  }
  return 0;
}

count_rule count_rule_of(const gmodel_node *node) {
  if (node->domain[0] != '\0' && strcmp(node->domain, "ai.onnx") != 0) return NULL;
  for (uint32_t i = 0; i < sizeof rules / sizeof rules[0]; ++i) {
    if (strcmp(rules[i].op, node->op) == 0) return rules[i].rule;
  }
  if (strncmp(node->op, "Reduce", 6) == 0) return reduce;
  return in_family(lower_rules_elementwise, node->op) || in_family(lower_rules_compare, node->op) ? each
                                                                                                  : NULL;
}
