/* SPDX-License-Identifier: MIT
 * counted_shape.c - rows whose number depends on values, under operators that read shapes. */
#include "graph/lower/counted.h"

static build_shape data_of(const count_walk *w) {
  return build_shape_of(&w->b, lower_in(w->b.c, w->node, 0));
}

static int64_t product(const int64_t *dims, uint32_t from, uint32_t to) {
  int64_t all = 1;
  for (uint32_t i = from; i < to; ++i) {
    if (__builtin_mul_overflow(all, dims[i], &all)) return 0;
  }
  return all;
}

/* The count of the shape's numbers; GNONE: it has none. */
static uint32_t numbers_of(const count_walk *w, uint32_t i) {
  const lower_mark *mark = count_mark(w, i, MARK_NUMBERS);
  return mark != NULL ? mark->count : GNONE;
}

/* Rows of `before` x n x `after` elements as a dim with `front` elements before it and `behind` after it.
 * What is not a whole number of rows, or would stand between others, is refused. Sets w->count, and the
 * number of groups that the rows are cut into. */
static int64_t dim_of_rows(count_walk *w, int64_t before, int64_t after, int64_t front, int64_t behind) {
  const lower_count k = w->b.c->counts[w->first->count];
  w->count = w->first->count;
  if (before < 1 || after < 1 || front < 1 || behind < 1) {
    count_refuse(w, "a dim is 0, or the shape is too large");
  } else if (front == before && after % behind == 0) {
    w->count = count_made(&w->b, k.root, k.mul * (after / behind), k.div);
  } else if (front == before && behind % after == 0 && k.mul % (behind / after) == 0 && k.div == 1) {
    w->count = count_made(&w->b, k.root, k.mul / (behind / after), k.div);
  } else if (front % before == 0 && after == behind) {
    return front / before;
  } else {
    count_refuse(w, "it puts elements of several rows into one");
  }
  return 1;
}

typedef struct target {
  uint32_t rank, open, n_open, rows, n_rows; /* places of -1 and of a number of rows, and how many */
  int64_t dims[BS_MAX_DIMS];
} target;

static target target_of(count_walk *w, const build_shape *old) {
  target t = {0};
  int64_t shadow[BS_MAX_DIMS] = {0};
  const int n = count_read(w, 1, t.dims, shadow);
  const int rows = count_mark(w, 0, MARK_ROWS) != NULL;
  t.rank = n > 0 ? (uint32_t)n : 0;
  for (uint32_t i = 0; i < t.rank; ++i) {
    const int kept = t.dims[i] == 0 && lower_int(w->node, "allowzero", 0) == 0 && i < old->rank;
    if (kept) t.dims[i] = old->dims[i];
    if (t.dims[i] == -1) {
      t.open = i;
      ++t.n_open;
    } else if (shadow[i] == MARK_SHADOW || (kept && rows && i == w->first->axis)) {
      t.rows = i;
      ++t.n_rows;
    }
  }
  if (t.n_rows > 1 || t.n_open > 1) count_refuse(w, "its shape has such numbers more than once");
  return t;
}

/* A shape without open dims says how many rows there are. */
static void reshape_fixed(count_walk *w, const target *t, int64_t each) {
  const int64_t all = product(t->dims, 0, t->rank);
  if (each < 1 || all < 1 || all % each != 0) count_refuse(w, "its shape does not hold whole rows");
  if (w->b.rc != BS_OK) return;
  w->in[0] = count_exactly(&w->b, lower_in(w->b.c, w->node, 0), w->first->axis, w->first->count, all / each);
}

void count_reshape(count_walk *w) {
  const build_shape old = data_of(w);
  const lower_mark *mark = count_mark(w, 0, MARK_ROWS);
  if (mark == NULL) {
    count_refuse(w, "its shape has a number of rows, but its data has none");
    return;
  }
  target t = target_of(w, &old);
  const int64_t before = product(old.dims, 0, mark->axis),
                after = product(old.dims, mark->axis + 1, old.rank);
  if (w->b.rc != BS_OK) return;
  if (t.n_open + t.n_rows == 0) {
    reshape_fixed(w, &t, before * after);
    return;
  }
  if (t.n_rows > 0 && t.n_open > 0) { /* the open one has a known size */
    t.dims[t.rows] = 1;
    t.dims[t.open] = 1;
    const int64_t known = product(t.dims, 0, t.rank);
    if (known < 1 || (before * after) % known != 0) count_refuse(w, "its shape does not hold whole rows");
    if (w->b.rc != BS_OK) return;
    t.dims[t.open] = before * after / known;
  }
  const uint32_t at = t.n_rows > 0 ? t.rows : t.open;
  const int64_t groups =
      dim_of_rows(w, before, after, product(t.dims, 0, at), product(t.dims, at + 1, t.rank));
  const uint32_t number = numbers_of(w, 1);
  if (groups > 1 && t.n_rows > 0) count_refuse(w, "it puts elements of several rows into one");
  if (t.n_rows > 0 && number != GNONE && number != w->count) count_refuse(w, "its shape has another number");
  if (groups > 1 && w->b.rc == BS_OK)
    w->in[0] =
        count_in_groups(&w->b, lower_in(w->b.c, w->node, 0), mark->axis, mark->count, groups, &w->count);
  w->keeps = 1;
  w->axis = at;
}

void count_flatten(count_walk *w) {
  const build_shape old = data_of(w);
  int64_t axis = lower_int(w->node, "axis", 1);
  const uint32_t at = w->first->axis;
  if (axis < 0) axis += old.rank;
  build_check(&w->b, axis >= 0 && axis <= (int64_t)old.rank, "axis is beyond the rank");
  if (w->b.rc != BS_OK) return;
  const uint32_t cut = (uint32_t)axis;
  const int64_t front = at < cut ? 1 : product(old.dims, 0, cut),
                behind = at < cut ? product(old.dims, cut, old.rank) : 1;
  if (dim_of_rows(w, product(old.dims, 0, at), product(old.dims, at + 1, old.rank), front, behind) > 1)
    count_refuse(w, "it puts elements of several rows into one");
  w->keeps = 1;
  w->axis = at < cut ? 0 : 1;
}

/* A number of rows in the shape goes with such rows, or with a dim of 1. */
void count_expand(count_walk *w) {
  const build_shape old = data_of(w);
  const lower_mark *mark = count_mark(w, 0, MARK_ROWS);
  int64_t dims[BS_MAX_DIMS] = {0}, shadow[BS_MAX_DIMS] = {0};
  const int read = count_read(w, 1, dims, shadow);
  const uint32_t n = read > 0 ? (uint32_t)read : 0, rank = n > old.rank ? n : old.rank;
  uint32_t at = mark != NULL ? mark->axis + rank - old.rank : rank;
  for (uint32_t i = 0; i < n && w->b.rc == BS_OK; ++i) {
    const uint32_t axis = i + rank - n;
    const int64_t mine = axis + old.rank >= rank ? old.dims[axis + old.rank - rank] : 1;
    if (shadow[i] != MARK_SHADOW) {
      if (axis == at && mark != NULL && dims[i] != 1) count_refuse(w, "it gives the rows a known size");
      continue;
    }
    if (mark != NULL ? axis != at || numbers_of(w, 1) != mark->count : mine != 1 || at != rank)
      count_refuse(w, "its shape has another number");
    at = axis;
  }
  w->keeps = 1;
  w->axis = at;
  w->count = w->first->count;
}

void count_constant_of_shape(count_walk *w) {
  int64_t dims[BS_MAX_DIMS] = {0}, shadow[BS_MAX_DIMS] = {0};
  const int n = count_read(w, 0, dims, shadow);
  uint32_t found = 0;
  for (int i = 0; i < n; ++i) {
    if (shadow[i] != MARK_SHADOW) continue;
    w->axis = (uint32_t)i;
    ++found;
  }
  if (found != 1) count_refuse(w, "its shape has such numbers more than once");
  w->keeps = 1;
  w->count = w->first->count;
}

/* From 0 by 1 to the number. */
void count_range(count_walk *w) {
  int64_t list[3][BS_MAX_DIMS], shadow[3][BS_MAX_DIMS];
  for (uint32_t i = 0; i < 3; ++i) count_read(w, i, list[i], shadow[i]);
  if (w->b.rc != BS_OK) return;
  if (list[0][0] != 0 || shadow[1][0] != MARK_SHADOW || list[2][0] != 1 || numbers_of(w, 0) != GNONE)
    count_refuse(w, "it does not go from 0 to the number by 1");
  w->keeps = 1;
  w->axis = 0;
  w->count = w->first->count;
}

/* Along other axes; along the rows only from the first to the last. */
void count_slice(count_walk *w) {
  const lower_mark *mark = count_mark(w, 0, MARK_ROWS);
  int64_t list[4][BS_MAX_DIMS], shadow[4][BS_MAX_DIMS];
  static const char *const names[] = {"starts", "ends", "axes", "steps"};
  int n[4];
  if (mark == NULL || mark->kind != MARK_ROWS) {
    count_refuse(w, "a number of rows says where it cuts");
    return;
  }
  const uint32_t rank = data_of(w).rank;
  for (uint32_t k = 0; k < 4; ++k) {
    int there = 0;
    n[k] = count_read(w, 1 + k, list[k], shadow[k]);
    if (n[k] >= 0 || lower_has(w->node, 1 + k) || w->b.rc != BS_OK) continue;
    n[k] = (int)build_list(&w->b, 1 + k, names[k], list[k], BS_MAX_DIMS, &there);
    for (int i = 0; i < n[k]; ++i) shadow[k][i] = list[k][i];
    if (!there) n[k] = -1;
  }
  for (int i = 0; i < n[0] && i < n[1] && w->b.rc == BS_OK; ++i) {
    const uint32_t axis = n[2] > i ? build_axis(&w->b, list[2][i], rank) : (uint32_t)i;
    const int number = shadow[1][i] == MARK_SHADOW;
    if (axis != mark->axis) {
      if (number) count_refuse(w, "a number of rows says where it cuts");
      continue;
    }
    const int end =
        number ? numbers_of(w, 2) == mark->count : list[1][i] >= w->b.c->counts[mark->count].bound;
    if (list[0][i] != 0 || !end || (n[3] > i && list[3][i] != 1)) count_refuse(w, "it cuts rows off");
  }
  if (numbers_of(w, 1) != GNONE || numbers_of(w, 3) != GNONE || numbers_of(w, 4) != GNONE)
    count_refuse(w, "a number of rows says where it cuts");
  w->keeps = 1;
  w->axis = mark->axis;
  w->count = mark->count;
}
