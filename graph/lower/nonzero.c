/* SPDX-License-Identifier: MIT
 * nonzero.c - NonZero of a constant, and of data: the places that it finds, how many they are, and the
 * programs that use this number in the run. counted.h says how. */
#include <stdlib.h>
#include <string.h>

#include "graph/ir/arena.h"
#include "graph/lower/counted.h"
#include "graph/lower/rules.h"

enum { MOST = 1 << 24 };

static const lower_count *count_at(const build *b, uint32_t count) {
  return &b->c->counts[count];
}

int count_same_view(const build *b, uint32_t x, uint32_t y) {
  const gvalue *v = lower_value(b->c, x), *w = lower_value(b->c, y);
  if (v->base == w->base && v->dtype == w->dtype && v->offset == w->offset && graph_is_dense(v) &&
      graph_is_dense(w) && graph_count(v) == graph_count(w))
    return 1;
  int same = v->base == w->base && v->dtype == w->dtype && v->offset == w->offset && v->rank == w->rank;
  for (uint32_t i = 0; i < v->rank && same; ++i)
    same = v->dims[i] == w->dims[i] && v->strides[i] == w->strides[i];
  return same;
}

static uint32_t add_count(build *b, const lower_count *count) {
  lower_ctx *c = b->c;
  if (b->rc != BS_OK) return GNONE;
  if (!ARRAY_GROW(c->counts, c->n_counts, c->cap_counts)) {
    build_no_memory(b);
    return GNONE;
  }
  c->counts[c->n_counts] = *count;
  return c->n_counts++;
}

static uint32_t valid_rows(build *b, uint32_t rows, int64_t bound) {
  const build_shape shape = {1, {bound}};
  lower_map m;
  const uint32_t all = build_expand(b, rows, &shape);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t n = lower_map_in(&m, all), i = lower_map_step(&m, BS_EXPR_INDEX, 0, 0, 0);
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_LT, i, n, 0), BS_BOOL);
}

/* The order that brings the places of what is not 0 to the front: place i goes to the number of those before
 * it, or of all of them and the others before it. */
static uint32_t places_in_order(build *b, uint32_t mask, int64_t n, uint32_t *out_rows) {
  const build_shape flat = {1, {n}}, scalar = {0};
  uint32_t sums = GNONE, list = GNONE;
  lower_map m;
  const uint32_t x = build_reshape(b, mask, &flat), dtype = build_dtype(b, x);
  int64_t *numbers = malloc((size_t)n * sizeof *numbers);
  if (numbers == NULL) build_no_memory(b);
  for (int64_t i = 0; i < n && numbers != NULL; ++i) numbers[i] = i;
  const uint32_t places = numbers != NULL ? build_const(b, BS_I64, &flat, numbers) : GNONE;
  free(numbers);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(dtype));
  const uint8_t zero = lower_map_step(&m, BS_EXPR_EQ, lower_map_in(&m, x), lower_map_const(&m, 0), 0);
  const uint32_t found = build_map(b, &m, lower_map_step(&m, BS_EXPR_NOT, zero, 0, 0), BS_I64);
  if (b->rc == BS_OK) b->rc = lower_cumsum(b->c, found, 0, 0, 0, &sums, b->err);
  const uint32_t total = build_slice(b, sums, 0, n - 1, 1, 1);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t is = lower_map_in(&m, found), sum = lower_map_in(&m, sums), all = lower_map_in(&m, total);
  const uint8_t i = lower_map_step(&m, BS_EXPR_INDEX, 0, 0, 0);
  const uint8_t front = lower_map_step(&m, BS_EXPR_SUB, sum, lower_map_const_int(&m, 1), 0);
  const uint8_t other = lower_map_step(&m, BS_EXPR_SUB, i, sum, 0);
  const uint8_t back = lower_map_step(&m, BS_EXPR_ADD, all, other, 0);
  const uint32_t to = build_map(b, &m, lower_map_step(&m, BS_EXPR_SELECT, is, front, back), BS_I64);
  /* These indices are right in every branch, and the list may be used in others. */
  lower_guard *guard = b->c->guard;
  b->c->guard = NULL;
  if (b->rc == BS_OK)
    b->rc = lower_put(b->c, BS_INDEX_ELEMENTS, BS_PUT_SET, places, to, places, 0, &list, b->err);
  b->c->guard = guard;
  *out_rows = build_reshape(b, total, &scalar);
  return list;
}

uint32_t count_found(const build *b, uint32_t mask) {
  for (uint32_t i = 0; i < b->c->n_counts && b->rc == BS_OK; ++i) {
    if (count_at(b, i)->root == i && count_same_view(b, count_at(b, i)->mask, mask)) return i;
  }
  return GNONE;
}

uint32_t count_of_mask(build *b, uint32_t mask, uint32_t given, const char *name, int64_t *out_mul) {
  build_shape s = build_shape_of(b, mask);
  const gvalue v = *lower_value(b->c, mask);
  *out_mul = 1;
  while (s.rank > 1 && v.strides[s.rank - 1] == 0) *out_mul *= s.dims[--s.rank]; /* each one so many times */
  const uint32_t part = s.rank == v.rank ? mask : build_view(b, mask, &s, v.strides, 0);
  const uint32_t found = count_found(b, part);
  if (found != GNONE || b->rc != BS_OK) return found;
  lower_count count = {given, part, GNONE, b->c->n_counts, 1, 1, build_elements(&s), GNONE, GNONE, name};
  count.list = places_in_order(b, part, count.bound, &count.rows);
  count.valid = valid_rows(b, count.rows, count.bound);
  return add_count(b, &count);
}

uint32_t count_made(build *b, uint32_t root, int64_t mul, int64_t div) {
  if (b->rc != BS_OK) return GNONE;
  for (uint32_t i = 0; i < b->c->n_counts; ++i) {
    const lower_count *k = count_at(b, i);
    if (k->root == root && k->mul == mul && k->div == div) return i;
  }
  lower_count count = *count_at(b, root);
  lower_map m;
  count.mul = mul;
  count.div = div;
  if (__builtin_mul_overflow(count.bound, mul, &count.bound)) build_refuse(b, 0, "too many rows");
  count.bound /= div;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  uint8_t n = lower_map_in(&m, count.rows);
  n = lower_map_step(&m, BS_EXPR_MUL, n, lower_map_const_int(&m, mul), 0);
  n = lower_map_step(&m, BS_EXPR_DIV, n, lower_map_const_int(&m, div), 0);
  count.rows = build_map(b, &m, n, BS_I64);
  count.valid = valid_rows(b, count.rows, count.bound);
  return add_count(b, &count);
}

uint32_t count_where(build *b, uint32_t x, uint32_t axis, int64_t k, uint32_t holds) {
  const build_shape shape = {1, {k}};
  lower_map m;
  const uint32_t wide = build_expand(b, holds, &shape);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t is = lower_map_in(&m, wide), i = lower_map_step(&m, BS_EXPR_INDEX, 0, 0, 0);
  const uint8_t place = lower_map_step(&m, BS_EXPR_SELECT, is, i, lower_map_const_int(&m, GRAPH_NO_ROW));
  return build_take(b, x, build_map(b, &m, place, BS_I64), axis);
}

uint32_t count_exactly(build *b, uint32_t x, uint32_t axis, uint32_t count, int64_t k) {
  if (b->rc != BS_OK) return GNONE;
  const lower_count of = *count_at(b, count);
  if (k < 1 || k > of.bound) build_refuse(b, 0, "it asks for a number of rows that there never are");
  if (of.div == 1 && k % of.mul == 0) lower_fix(b, count_at(b, of.root)->given, k / of.mul);
  const uint32_t all = build_real(b, BS_I64, (double)k);
  const uint32_t holds = build_binary(b, BS_EXPR_EQ, of.rows, all, BS_I64);
  lower_check(b, holds);
  return count_where(b, x, axis, k, holds);
}

/* Row j of group g is row g q + j, where q is the length of a group. Beyond the length of a group any row
 * will do. */
uint32_t count_in_groups(build *b, uint32_t x, uint32_t axis, uint32_t count, int64_t groups,
                         uint32_t *out_count) {
  const lower_count whole = *count_at(b, count);
  lower_map m;
  *out_count = GNONE;
  if (groups > whole.bound) build_refuse(b, 0, "it asks for more groups than there are rows");
  *out_count = count_made(b, whole.root, whole.mul, whole.div * groups);
  if (b->rc != BS_OK) return GNONE;
  const build_shape shape = {2, {groups, count_at(b, *out_count)->bound}};
  const uint32_t one = count_at(b, *out_count)->rows, each = build_expand(b, one, &shape);
  const build_shape flat = {1, {build_elements(&shape)}};
  const uint32_t product = build_binary(b, BS_EXPR_MUL, one, build_real(b, BS_I64, (double)groups), BS_I64);
  lower_check(b, build_binary(b, BS_EXPR_EQ, product, whole.rows, BS_I64));
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t q = lower_map_in(&m, each), all = lower_map_in(&m, whole.rows);
  const uint8_t g = lower_map_step(&m, BS_EXPR_INDEX, 0, 0, 0),
                j = lower_map_step(&m, BS_EXPR_INDEX, 1, 0, 0);
  uint8_t place = lower_map_step(&m, BS_EXPR_ADD, lower_map_step(&m, BS_EXPR_MUL, g, q, 0), j, 0);
  place = lower_map_step(&m, BS_EXPR_MIN, place, lower_map_const_int(&m, whole.bound - 1), 0);
  const uint8_t sum = lower_map_step(&m, BS_EXPR_MUL, q, lower_map_const_int(&m, groups), 0);
  const uint8_t is = lower_map_step(&m, BS_EXPR_EQ, sum, all, 0);
  place = lower_map_step(&m, BS_EXPR_SELECT, is, place, lower_map_const_int(&m, GRAPH_NO_ROW));
  return build_take(b, x, build_reshape(b, build_map(b, &m, place, BS_I64), &flat), axis);
}

uint32_t count_index(build *b, uint32_t index, uint32_t count) {
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t i = lower_map_in(&m, index), n = lower_map_in(&m, count_at(b, count)->rows);
  const uint8_t zero = lower_map_const_int(&m, 0), minus = lower_map_step(&m, BS_EXPR_LT, i, zero, 0);
  const uint8_t last = lower_map_step(&m, BS_EXPR_ADD, i, n, 0);
  const uint8_t at = lower_map_step(&m, BS_EXPR_SELECT, minus, last, i);
  const uint8_t above = lower_map_step(&m, BS_EXPR_LE, zero, at, 0);
  const uint8_t within = lower_map_step(&m, BS_EXPR_AND, above, lower_map_step(&m, BS_EXPR_LT, at, n, 0), 0);
  return build_map(
      b, &m, lower_map_step(&m, BS_EXPR_SELECT, within, at, lower_map_const_int(&m, GRAPH_NO_ROW)), BS_I64);
}

/* `valid` as a value that broadcasts to index along an axis. */
static uint32_t valid_along(build *b, uint32_t index, uint32_t axis, uint32_t count) {
  build_shape shape = build_shape_of(b, index);
  for (uint32_t i = 0; i < shape.rank; ++i) shape.dims[i] = i == axis ? shape.dims[i] : 1;
  return build_reshape(b, count_at(b, count)->valid, &shape);
}

uint32_t count_safe_index(build *b, uint32_t index, uint32_t axis, uint32_t count) {
  return build_select(b, valid_along(b, index, axis, count), index, build_real(b, build_dtype(b, index), 0));
}

uint32_t count_with_slot(build *b, uint32_t base, uint32_t dim) {
  build_shape shape = build_shape_of(b, base);
  shape.dims[dim] = 1;
  const uint32_t parts[2] = {base, build_expand(b, build_real(b, build_dtype(b, base), 0), &shape)};
  return build_concat(b, parts, 2, dim);
}

/* A negative first coordinate counts from the end of the base without the slot. One that is outside of it
 * must not reach the slot. Coordinates of dims behind the first stay as they are. */
uint32_t count_put_index(build *b, uint32_t index, uint32_t axis, uint32_t count, int64_t size,
                         int64_t width) {
  int64_t slot[BS_MAX_DIMS] = {size}, low[BS_MAX_DIMS] = {0}, high[BS_MAX_DIMS] = {size};
  for (int64_t i = 1; i < width; ++i) {
    low[i] = INT64_MIN;
    high[i] = INT64_MAX;
  }
  const build_shape shape = {1, {width > 0 ? width : 1}};
  const uint32_t valid = valid_along(b, index, axis, count), slots = build_const(b, BS_I64, &shape, slot),
                 lows = build_const(b, BS_I64, &shape, low), highs = build_const(b, BS_I64, &shape, high);
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  const uint8_t i = lower_map_in(&m, index), is = lower_map_in(&m, valid), to = lower_map_in(&m, slots),
                lo = lower_map_in(&m, lows), hi = lower_map_in(&m, highs);
  const uint8_t minus = lower_map_step(&m, BS_EXPR_LT, i, lower_map_const_int(&m, 0), 0);
  const uint8_t at = lower_map_step(&m, BS_EXPR_SELECT, minus, lower_map_step(&m, BS_EXPR_ADD, i, to, 0), i);
  const uint8_t within = lower_map_step(&m, BS_EXPR_AND, lower_map_step(&m, BS_EXPR_LE, lo, at, 0),
                                        lower_map_step(&m, BS_EXPR_LT, at, hi, 0), 0);
  const uint8_t safe = lower_map_step(&m, BS_EXPR_SELECT, within, at, lower_map_const_int(&m, GRAPH_NO_ROW));
  return build_map(b, &m, lower_map_step(&m, BS_EXPR_SELECT, is, safe, to), BS_I64);
}

/* ---- the operator ------------------------------------------------------------------------------ */

static void of_constant(build *b, uint32_t x, const build_shape *s) {
  const int64_t n = build_elements(s);
  if (b->rc == BS_OK && n > MOST) build_refuse(b, 0, "a constant of more than 2^24 elements");
  if (b->rc != BS_OK) return;
  const int64_t rank = s->rank > 0 ? s->rank : 1;
  double *numbers = calloc((size_t)n + 1, sizeof *numbers);
  int64_t *places = calloc((size_t)(n * rank) + 1, sizeof *places), count = 0, at = 0;
  uint32_t read = 0;
  if (numbers == NULL || places == NULL) {
    build_no_memory(b);
  } else {
    b->rc = lower_read_floats(b->c, b->node, x, "its input", numbers, (uint32_t)n, &read, b->err);
  }
  for (int64_t i = 0; b->rc == BS_OK && i < n; ++i) count += numbers[i] != 0;
  for (int64_t i = 0; b->rc == BS_OK && i < n; ++i) {
    if (numbers[i] == 0) continue;
    int64_t rest = i;
    for (int64_t d = rank; d-- > 0;) {
      const int64_t dim = s->rank > 0 ? s->dims[d] : 1;
      places[d * count + at] = rest % dim;
      rest /= dim;
    }
    ++at;
  }
  const build_shape shape = {2, {s->rank, count}};
  if (b->rc == BS_OK) build_out(b, 0, build_const(b, BS_I64, &shape, places));
  free(numbers);
  free(places);
}

/* The coordinates of places: [rank, count]. */
static uint32_t coordinates(build *b, uint32_t list, int64_t mul, const build_shape *s) {
  const int64_t n = build_elements(s);
  const build_shape pairs = {2, {n / mul, mul}}, one = {2, {n / mul, 1}}, line = {2, {1, n}},
                    column = {2, {s->rank, 1}};
  int64_t dims[BS_MAX_DIMS], strides[BS_MAX_DIMS], stride = 1;
  lower_map m;
  for (uint32_t d = s->rank; d-- > 0; stride *= s->dims[d]) {
    strides[d] = stride;
    dims[d] = s->dims[d];
  }
  const uint32_t wide = build_expand(b, build_reshape(b, list, &one), &pairs);
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  uint8_t v = lower_map_step(&m, BS_EXPR_MUL, lower_map_in(&m, wide), lower_map_const_int(&m, mul), 0);
  v = lower_map_step(&m, BS_EXPR_ADD, v, lower_map_step(&m, BS_EXPR_INDEX, 1, 0, 0), 0);
  const uint32_t places = build_reshape(b, mul > 1 ? build_map(b, &m, v, BS_I64) : list, &line);
  const uint32_t by = build_const(b, BS_I64, &column, strides), of = build_const(b, BS_I64, &column, dims);
  if (b->rc != BS_OK || s->rank == 1) return places;
  lower_map_begin(&m, b->c, BS_I64);
  v = lower_map_step(&m, BS_EXPR_DIV, lower_map_in(&m, places), lower_map_in(&m, by), 0);
  v = lower_map_step(&m, BS_EXPR_FMOD, v, lower_map_in(&m, of), 0);
  return build_map(b, &m, v, BS_I64);
}

/* The places of values that are not 0, [rank, count]. */
int32_t lower_non_zero(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  int64_t mul = 1;
  const uint32_t x = build_in(&b, 0);
  const build_shape s = build_shape_of(&b, x);
  const int64_t n = build_elements(&s);
  if (b.rc != BS_OK) return b.rc;
  if (n == 0 || lower_is_const(c, x)) {
    if (n == 0) {
      const build_shape none = {2, {s.rank, 0}};
      build_out(&b, 0, build_const(&b, BS_I64, &none, ""));
    } else {
      of_constant(&b, x, &s);
    }
    return b.rc;
  }
  if (s.rank == 0 || n > MOST || c->frame != NULL)
    build_refuse(&b, 0, "its output's shape depends on values");
  const char *name = node->name;
  if (name[0] == '\0' && lower_wants(node, 0)) name = c->model->values[node->out[0]].name;
  lower_fixed *fixed = lower_fixed_of(&b, x);
  const uint32_t root = b.rc == BS_OK ? count_of_mask(&b, x, node->in[0], name, &mul) : GNONE;
  const uint32_t count = count_made(&b, root, mul, 1);
  uint32_t y = b.rc == BS_OK ? coordinates(&b, count_at(&b, root)->list, mul, &s) : GNONE;
  if (fixed != NULL && b.rc == BS_OK) {
    fixed->rows = count_at(&b, root)->rows;
    y = count_exactly(&b, y, 1, count, fixed->n * mul);
  }
  build_out(&b, 0, y);
  if (fixed == NULL) lower_mark_rows(&b, 0, 1, count);
  return b.rc;
}
