/* SPDX-License-Identifier: MIT
 * test_split_view.c - local views of split roots, against brute force. A made root has rows, parts and units
 * of made sizes; a made view has its dims in any order, a piece of each unit, and rows of its own. A rank's
 * elements are those whose unit it keeps, in the order in which the view shows them. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/split/pair.h"
#include "tests/run_tests.h"

enum { VIEWS = 1300, MOST = 8192 };

static uint32_t seed;

static int64_t pick(int64_t n) {
  seed = seed * 1664525u + 1013904223u;
  return (int64_t)(seed >> 8) % n;
}

/* ---- a made view ----------------------------------------------------------------------------- */

typedef struct made {
  gsplit_root root;
  int64_t rows, ranks;
  gvalue view;
} made;

static void add_dim(gvalue *v, int64_t n, int64_t stride) {
  v->dims[v->rank] = n;
  v->strides[v->rank++] = stride;
}

static void turn(gvalue *v) {
  for (uint32_t i = v->rank; i > 1; i--) {
    const uint32_t k = (uint32_t)pick(i);
    const int64_t n = v->dims[k], s = v->strides[k];
    v->dims[k] = v->dims[i - 1];
    v->strides[k] = v->strides[i - 1];
    v->dims[i - 1] = n;
    v->strides[i - 1] = s;
  }
}

/* Units may be seen several at a time, or in pieces that are whole. */
static made make(void) {
  made m = {.ranks = 1 + pick(4), .rows = 1 + pick(3)};
  m.root.n_parts = 1 + (uint32_t)pick(3);
  for (uint32_t i = 0; i < m.root.n_parts; i++) {
    m.root.parts[i] = (gsplit_part){m.root.period, m.ranks * (1 + pick(3)), 2 * (1 + pick(4))};
    m.root.period += m.root.parts[i].units * m.root.parts[i].width;
  }
  const gsplit_part *p = &m.root.parts[pick(m.root.n_parts)];
  int64_t width = p->width, n = p->units;
  if (pick(4) == 0) width = 1, n = p->units * p->width;
  if (pick(4) == 0) width = p->units / m.ranks * p->width, n = m.ranks;
  const int64_t inner = 1 + pick(width), skip = pick(width - inner + 1), rows = 1 + pick(m.rows);
  m.view.offset = pick(m.rows - rows + 1) * m.root.period + p->begin + skip;
  if (pick(3) == 0) add_dim(&m.view, 1 + pick(3), 0); /* expanded */
  add_dim(&m.view, rows, m.root.period);
  add_dim(&m.view, n, width);
  if (inner % 2 == 0 && pick(2) == 0) {
    add_dim(&m.view, inner / 2, 2);
    add_dim(&m.view, 2, 1);
  } else {
    add_dim(&m.view, inner, 1);
  }
  turn(&m.view);
  return m;
}

/* ---- brute force ----------------------------------------------------------------------------- */

/* The elements of a view in its order. */
static int64_t elements(const gvalue *v, int64_t *out) {
  int64_t index[BS_MAX_DIMS] = {0}, at = v->offset;
  const int64_t count = graph_count(v);
  ck_assert_int_le(count, MOST);
  for (int64_t i = 0; i < count; i++) {
    out[i] = at;
    for (uint32_t d = v->rank; d-- > 0;) {
      at += v->strides[d];
      if (++index[d] < v->dims[d]) break;
      at -= v->dims[d] * v->strides[d];
      index[d] = 0;
    }
  }
  return count;
}

/* Which element of the whole root lies at each element of a rank's root. */
static int64_t local_root(const made *m, int64_t rank, int64_t *out) {
  int64_t n = 0;
  for (int64_t row = 0; row < m->rows; row++)
    for (uint32_t i = 0; i < m->root.n_parts; i++) {
      const gsplit_part *p = &m->root.parts[i];
      for (int64_t unit = 0; unit < p->units; unit++)
        for (int64_t k = 0; k < p->width && unit * m->ranks / p->units == rank; k++)
          out[n++] = row * m->root.period + p->begin + unit * p->width + k;
    }
  return n;
}

static int keeps(const made *m, int64_t rank, int64_t element) {
  const int64_t at = element % m->root.period;
  for (uint32_t i = 0; i < m->root.n_parts; i++) {
    const gsplit_part *p = &m->root.parts[i];
    if (at >= p->begin && at < p->begin + p->units * p->width)
      return (at - p->begin) / p->width * m->ranks / p->units == rank;
  }
  return 0;
}

static void compare(const made *m, int number) {
  static int64_t whole[MOST], local[MOST], root[MOST];
  const int64_t count = elements(&m->view, whole);
  gvalue own = m->view;
  const char *why = NULL;
  ck_assert_msg(gsplit_view_local(&m->root, (uint32_t)m->ranks, &own, &why) == BS_OK, "%d: %s", number, why);
  const int64_t n = elements(&own, local);
  ck_assert_int_eq(n * m->ranks, count);
  for (int64_t rank = 0; rank < m->ranks; rank++) {
    const int64_t room = local_root(m, rank, root);
    int64_t next = 0;
    for (int64_t i = 0; i < count; i++) {
      if (!keeps(m, rank, whole[i])) continue;
      ck_assert_msg(next < n && local[next] < room && root[local[next]] == whole[i],
                    "view %d, rank %d: element %d is another one", number, (int)rank, (int)next);
      next++;
    }
    ck_assert_int_eq(next, n);
  }
}

/* A view that shows one unit has none to cut, unless there is one rank. */
static int has_units(const made *m) {
  gsplit_view how;
  return gsplit_view_of(&m->root, &m->view, &how) == NULL;
}

START_TEST(local_views_are_the_ranks_parts) {
  int compared = 0;
  seed = 1;
  for (int i = 0; i < VIEWS; i++) {
    const made m = make();
    if (!has_units(&m)) continue;
    compare(&m, i);
    compared++;
  }
  ck_assert_int_ge(compared, 1000);
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

/* Rows of 12 units of 4 elements and 2 of 6, on 2 ranks. */
static const struct {
  const char *why;
  int64_t dims[3], strides[3], offset;
} refused[] = {
    {"one unit", {2, 1, 1}, {60, 4, 1}, 0},
    {"longer or shorter", {2, 11, 4}, {60, 4, 1}, 0},
    {"longer or shorter", {2, 12, 4}, {60, 4, 1}, 48},
    {"beyond the end of a unit", {2, 12, 4}, {60, 4, 1}, 1},
    {"beyond the end of a unit", {2, 12, 5}, {60, 4, 1}, 0},
    {"other steps than rows", {2, 12, 4}, {61, 4, 1}, 0},
    {"no elements", {2, 12, 0}, {60, 4, 1}, 0},
    {"do not divide", {2, 3, 4}, {60, 16, 1}, 0},
    {"longer or shorter", {1, 1, 60}, {60, 60, 1}, 0},
};

START_TEST(refused_views) {
  const gsplit_root root = {.period = 60, .n_parts = 2, .parts = {{0, 12, 4}, {48, 2, 6}}};
  gvalue v = {.rank = 3, .offset = refused[_i].offset};
  const char *why = NULL;
  memcpy(v.dims, refused[_i].dims, sizeof refused[_i].dims);
  memcpy(v.strides, refused[_i].strides, sizeof refused[_i].strides);
  ck_assert_int_eq(gsplit_view_local(&root, 2, &v, &why), BS_UNSUPPORTED);
  ck_assert_msg(strstr(why, refused[_i].why) != NULL, "%s, not %s", why, refused[_i].why);
}
END_TEST

/* ---- backwards ------------------------------------------------------------------------------- */

/* A root [2,5,60] that is read as the views say; the first one is written at dim 2. */
static const struct {
  const char *why;     /* NULL: these parts */
  int64_t views[4][7]; /* three dims of [tokens,units,width], their strides, the offset */
  gsplit_part parts[3];
} roots[] = {
    {NULL, {{10, 60, 1, 60, 1, 1, 0}}, {{0, 60, 1}}},
    {NULL, {{10, 12, 5, 60, 5, 1, 0}, {10, 60, 1, 60, 1, 1, 0}}, {{0, 12, 5}}}, /* the coarsest units */
    {NULL,
     {{10, 4, 5, 60, 5, 1, 40}, {10, 4, 5, 60, 5, 1, 0}, {10, 2, 10, 60, 10, 1, 20}},
     {{0, 4, 5}, {20, 2, 10}, {40, 4, 5}}},
    {NULL, {{10, 6, 5, 60, 10, 1, 5}, {10, 6, 5, 60, 10, 1, 0}}, {{0, 6, 10}}}, /* halves of units */
    {"disagree", {{10, 12, 5, 60, 5, 1, 0}, {10, 4, 5, 60, 5, 1, 20}}, {{0}}},
    {"no node reads", {{10, 6, 5, 60, 5, 1, 0}}, {{0}}},
    {"no node reads", {{10, 6, 5, 60, 5, 1, 30}}, {{0}}},
    {"one unit at a time", {{10, 12, 5, 60, 5, 1, 0}, {10, 1, 1, 60, 5, 1, 0}}, {{0}}},
};

START_TEST(roots_of_views) {
  const int64_t dims[3] = {2, 5, 60};
  bs_error err = BS_ERROR_INIT;
  graph *g;
  gsplit_root root;
  uint32_t base, first = GNONE, view, node;
  gnode reader = {.op = GOP_MAP, .weight = GNONE, .origin = GNONE, .expr = 0};
  ck_assert_int_eq(graph_new(&g, &err), BS_OK);
  ck_assert_int_eq(graph_add_root(g, GV_TEMP, BS_F32, 3, dims, NULL, NULL, &base, &err), BS_OK);
  for (uint32_t i = 0; i < 4 && roots[_i].views[i][0] > 0; i++) {
    const int64_t *v = roots[_i].views[i];
    ck_assert_int_eq(graph_add_view(g, base, BS_F32, 3, v, v + 3, v[6], &view, &err), BS_OK);
    if (first == GNONE) first = view;
    reader.in[reader.n_in++] = view;
  }
  ck_assert_int_eq(graph_add_node(g, &reader, GNONE, &node, &err), BS_OK);
  const char *why = gsplit_root_of(g, first, 1, &root);
  if (roots[_i].why == NULL) {
    ck_assert_msg(why == NULL, "%s", why);
    ck_assert_int_eq(root.period, 60);
    for (uint32_t i = 0; i < 3; i++)
      ck_assert_msg(i < root.n_parts ? memcmp(&root.parts[i], &roots[_i].parts[i], sizeof root.parts[i]) == 0
                                     : roots[_i].parts[i].units == 0,
                    "part %u", i);
  } else {
    ck_assert_msg(why != NULL && strstr(why, roots[_i].why) != NULL, "%s", why != NULL ? why : "no reason");
  }
  graph_free(g);
}
END_TEST

int main(void) {
  const test_case rows[] = {{local_views_are_the_ranks_parts},
                            {refused_views, TEST_COUNT(refused)},
                            {roots_of_views, TEST_COUNT(roots)},
                            {0}};
  return run_tests("split_view", rows, (test_setup){.timeout = 20});
}
