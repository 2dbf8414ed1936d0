/* SPDX-License-Identifier: MIT
 * index.c - values at computed places: Gather and Scatter in their forms, TensorScatter, TopK. */
#include <string.h>

#include "graph/lower/build.h"

static void check_index(build *b, uint32_t index) {
  const uint32_t dtype = build_dtype(b, index);
  build_check(b, dtype == BS_I64 || dtype == BS_I32, "the indices are not i32 or i64");
}

/* One place that is known now is a view: what `logits[:, -1]` becomes in an export. */
static uint32_t one_place(build *b, uint32_t data, uint32_t index, uint32_t axis) {
  const build_shape from = build_shape_of(b, data), at = build_shape_of(b, index);
  int64_t place = 0;
  if (b->rc != BS_OK || at.rank > 1 || (at.rank == 1 && at.dims[0] != 1) || from.dims[axis] < 1 ||
      lower_is_const(b->c, data) || !lower_is_const(b->c, index) ||
      build_read_ints(b, index, "its indices", &place, 1) != 1)
    return GNONE;
  place += place < 0 ? from.dims[axis] : 0;
  if (place < 0 || place >= from.dims[axis]) return GNONE;
  const uint32_t part = build_slice(b, data, axis, place, 1, 1);
  return at.rank == 1 ? part : build_squeeze(b, part, axis);
}

/* Rows of a quantised table; GNONE: it is none. */
static uint32_t quant_rows(build *b, uint32_t data, uint32_t index) {
  uint32_t quant = GNONE, y = GNONE;
  if (b->rc != BS_OK || build_rank(b, data) != 2 || lower_is_const(b->c, index) ||
      !build_is_float(build_dtype(b, data)))
    return GNONE;
  b->rc = lower_quant_weight(b->c, b->node, data, 1, &quant, b->err);
  if (b->rc == BS_OK && quant != GNONE)
    b->rc = lower_take_q(b->c, quant, index, lower_float_dtype(b->c, data), &y, b->err);
  return b->rc == BS_OK ? y : GNONE;
}

static int32_t gather(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t data = build_in(&b, 0), index = build_in(&b, 1);
  const uint32_t rank = build_rank(&b, data), axis = build_axis(&b, lower_int(node, "axis", 0), rank);
  check_index(&b, index);
  const uint32_t rows = axis == 0 ? quant_rows(&b, data, index) : GNONE;
  if (rows != GNONE) {
    build_out(&b, 0, rows);
    return b.rc;
  }
  if (b.rc == BS_OK) b.rc = lower_wide(c, node, data, &data, err);
  if (b.rc == BS_OK) b.rc = lower_wide(c, node, index, &index, err);
  if (b.rc == BS_OK && rank + build_rank(&b, index) - 1 > BS_MAX_DIMS)
    build_refuse(&b, 0, "its output has more than 6 dims");
  const uint32_t view = one_place(&b, data, index, axis);
  build_out(&b, 0, view != GNONE ? view : build_take(&b, data, index, axis));
  return b.rc;
}

static int32_t gather_elements(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t y = GNONE;
  const uint32_t data = build_in(&b, 0), index = build_in(&b, 1);
  const build_shape from = build_shape_of(&b, data), to = build_shape_of(&b, index);
  const uint32_t axis = build_axis(&b, lower_int(node, "axis", 0), from.rank);
  check_index(&b, index);
  build_check(&b, from.rank == to.rank, "data and indices differ in rank");
  for (uint32_t i = 0; i < from.rank; ++i)
    build_check(&b, i == axis || to.dims[i] <= from.dims[i], "indices reach beyond data");
  if (b.rc == BS_OK) b.rc = lower_take(c, BS_INDEX_ELEMENTS, data, index, axis, 0, &y, err);
  build_out(&b, 0, y);
  return b.rc;
}

static int32_t gather_nd(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t y = GNONE;
  const uint32_t data = build_in(&b, 0), index = build_in(&b, 1);
  const build_shape from = build_shape_of(&b, data), to = build_shape_of(&b, index);
  const int64_t batch = lower_int(node, "batch_dims", 0);
  check_index(&b, index);
  build_check(
      &b,
      from.rank > 0 && to.rank > 0 && batch >= 0 && batch < (int64_t)to.rank && batch < (int64_t)from.rank,
      "batch_dims is beyond the ranks");
  if (b.rc != BS_OK) return b.rc;
  const int64_t coordinates = to.dims[to.rank - 1];
  build_check(&b, coordinates >= 1 && coordinates <= (int64_t)from.rank - batch,
              "the tuples are longer than data has dims");
  for (int64_t i = 0; i < batch; ++i) build_check(&b, from.dims[i] == to.dims[i], "the batch dims differ");
  if (b.rc == BS_OK && (int64_t)to.rank - 1 + from.rank - batch - coordinates > BS_MAX_DIMS)
    build_refuse(&b, 0, "its output has more than 6 dims");
  if (b.rc == BS_OK) b.rc = lower_take(c, BS_INDEX_TUPLES, data, index, 0, (uint32_t)batch, &y, err);
  build_out(&b, 0, y);
  return b.rc;
}

static uint32_t reduction_of(build *b) {
  static const char *const names[] = {"none", "add", "mul", "max", "min"};
  const char *name = lower_text(b->node, "reduction", "none");
  for (uint32_t i = 0; i < 5; ++i) {
    if (strcmp(name, names[i]) == 0) return BS_PUT_SET + i;
  }
  build_check(b, 0, "reduction is none of none, add, mul, max, min");
  return 0;
}

static int32_t scatter_elements(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t y = GNONE;
  const uint32_t base = build_in(&b, 0), index = build_in(&b, 1), updates = build_in(&b, 2);
  const build_shape from = build_shape_of(&b, base), to = build_shape_of(&b, index),
                    with = build_shape_of(&b, updates);
  const uint32_t axis = build_axis(&b, lower_int(node, "axis", 0), from.rank), reduction = reduction_of(&b);
  check_index(&b, index);
  build_check(&b, from.rank == to.rank && build_same(&to, &with), "indices and updates differ in shape");
  build_check(&b, build_dtype(&b, base) == build_dtype(&b, updates),
              "data and updates have different dtypes");
  for (uint32_t i = 0; i < from.rank; ++i)
    build_check(&b, i == axis || to.dims[i] <= from.dims[i], "indices reach beyond data");
  if (b.rc == BS_OK) b.rc = lower_put(c, BS_INDEX_ELEMENTS, reduction, base, index, updates, axis, &y, err);
  build_out(&b, 0, y);
  return b.rc;
}

static int32_t scatter_nd(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t y = GNONE;
  const uint32_t base = build_in(&b, 0), index = build_in(&b, 1), updates = build_in(&b, 2);
  const build_shape from = build_shape_of(&b, base), to = build_shape_of(&b, index),
                    with = build_shape_of(&b, updates);
  const uint32_t reduction = reduction_of(&b);
  check_index(&b, index);
  build_check(&b, build_dtype(&b, base) == build_dtype(&b, updates),
              "data and updates have different dtypes");
  build_check(&b, from.rank > 0 && to.rank > 0, "a rank is 0");
  if (b.rc != BS_OK) return b.rc;
  const int64_t coordinates = to.dims[to.rank - 1];
  build_check(&b, coordinates >= 1 && coordinates <= (int64_t)from.rank,
              "the tuples are longer than data has dims");
  if (b.rc != BS_OK) return b.rc;
  build_check(&b, with.rank == to.rank - 1 + from.rank - (uint32_t)coordinates,
              "updates has another rank than indices and data ask for");
  for (uint32_t i = 0; i < with.rank && b.rc == BS_OK; ++i) {
    const int64_t dim = i + 1 < to.rank ? to.dims[i] : from.dims[(uint32_t)coordinates + i + 1 - to.rank];
    build_check(&b, with.dims[i] == dim, "updates has another shape than indices and data ask for");
  }
  if (b.rc == BS_OK) b.rc = lower_put(c, BS_INDEX_TUPLES, reduction, base, index, updates, 0, &y, err);
  build_out(&b, 0, y);
  return b.rc;
}

/* Writes the rows of the update one after another, from the write index of each batch on. */
static int32_t tensor_scatter(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  uint32_t y = GNONE, first = build_optional(&b, 2);
  const uint32_t cache = build_in(&b, 0), update = build_in(&b, 1);
  const build_shape from = build_shape_of(&b, cache), with = build_shape_of(&b, update);
  const uint32_t axis = build_axis(&b, lower_int(node, "axis", -2), from.rank);
  const int circular = strcmp(lower_text(node, "mode", "linear"), "circular") == 0;
  build_check(&b, axis > 0, "the axis is the batch");
  build_check(&b, from.rank == with.rank, "the cache and the update differ in rank");
  for (uint32_t i = 0; i < from.rank; ++i)
    build_check(&b, i == axis ? with.dims[i] <= from.dims[i] : with.dims[i] == from.dims[i],
                "the update does not fit the cache");
  build_check(&b, build_dtype(&b, cache) == build_dtype(&b, update),
              "the cache and the update have different dtypes");
  if (b.rc != BS_OK) return b.rc;
  const build_shape places = {2, {from.dims[0], with.dims[axis]}}, column = {2, {build_dim(&b, first, 0), 1}};
  if (first == GNONE) {
    first = build_real(&b, BS_I64, 0);
  } else {
    check_index(&b, first);
    build_check(&b, build_rank(&b, first) == 1, "write_indices must have one dim");
    first = build_reshape(&b, first, &column);
  }
  const uint32_t wide = build_expand(&b, first, &places);
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, BS_I64);
  uint8_t place =
      lower_map_step(&m, BS_EXPR_ADD, lower_map_in(&m, wide), lower_map_step(&m, BS_EXPR_INDEX, 1, 0, 0), 0);
  if (circular) place = lower_map_step(&m, BS_EXPR_FMOD, place, lower_map_const_int(&m, from.dims[axis]), 0);
  const uint32_t index = build_map(&b, &m, place, BS_I64);
  if (b.rc == BS_OK) b.rc = lower_put(c, BS_INDEX_ROWS, BS_PUT_SET, cache, index, update, axis, &y, err);
  build_out(&b, 0, y);
  return b.rc;
}

static int32_t topk(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  uint32_t values = GNONE, places = GNONE;
  const uint32_t x = build_in(&b, 0), axis = build_axis(&b, lower_int(node, "axis", -1), build_rank(&b, x));
  const int64_t k = node->opset < 10 ? lower_int(node, "k", 0) : build_read_int(&b, build_in(&b, 1), "its k");
  build_check(&b, k >= 0 && k <= build_dim(&b, x, axis), "k is beyond the axis");
  if (b.rc == BS_OK)
    b.rc = lower_topk(c, x, axis, k, lower_int(node, "largest", 1) != 0, &values, &places, err);
  build_out(&b, 0, values);
  build_out(&b, 1, places);
  return b.rc;
}

const lower_rule lower_rules_index[] = {{"Gather", 1, 0, gather, NULL},
                                        {"GatherElements", 11, 0, gather_elements, NULL},
                                        {"GatherND", 11, 0, gather_nd, NULL},
                                        {"Scatter", 9, 10, scatter_elements, NULL},
                                        {"ScatterElements", 11, 0, scatter_elements, NULL},
                                        {"ScatterND", 11, 0, scatter_nd, NULL},
                                        {"TensorScatter", 24, 0, tensor_scatter, NULL},
                                        {"TopK", 1, 0, topk, NULL},
                                        {0}};
