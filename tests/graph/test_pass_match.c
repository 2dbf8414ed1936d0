/* SPDX-License-Identifier: MIT
 * What passes ask of a graph (match.h), question by question, on small graphs made by the mutators: who
 * writes a value, is a value the other one, which nodes may go when a new one does their work. */
#include <string.h>

#include "graph/pass/match.h"
#include "tests/graph/graph_text.h"
#include "tests/graph/program_text.h"
#include "tests/run_tests.h"

static gnode node_of(uint32_t op, uint32_t in, uint32_t out) {
  gnode n = match_node(op, 1, 1);
  n.in[0] = in;
  n.out[0] = out;
  return n;
}
static uint32_t add(const gnode *n) {
  uint32_t id = GNONE;
  ck_assert_int_eq(graph_add_node(gt_graph, n, GNONE, &id, NULL), BS_OK);
  return id;
}
/* A map of one input, after all nodes that there are. */
static gnode map_of(uint32_t in, uint32_t out) {
  const gexpr e = program_of("exp a; t0");
  gnode n = node_of(GOP_MAP, in, out);
  n.expr = graph_expr(gt_graph, &e);
  return n;
}
static uint32_t map(uint32_t in, uint32_t out) {
  const gnode n = map_of(in, out);
  return add(&n);
}
static uint32_t temp(void) {
  return gt_root(GV_TEMP, BS_F32, "2,3");
}

/* ---- who writes a value, who reads it --------------------------------------------------------- */

START_TEST(producers) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), y = temp(), flat = gt_view(y, "6", "1", 0);
  const uint32_t by = map(x, y);
  ck_assert_uint_eq(match_producer(gt_graph, y), by);
  ck_assert_uint_eq(match_producer(gt_graph, flat), by);
  ck_assert_uint_eq(match_producer(gt_graph, x), GNONE);
  ck_assert_uint_eq(match_producer(gt_graph, GNONE), GNONE);
  ck_assert_uint_eq(match_producer(gt_graph, gt_view(y, "1,3", "3,1", 0)), GNONE); /* a part */
  ck_assert_uint_eq(match_producer(gt_graph, gt_view(y, "1,3", "3,1", 3)), GNONE);
  ck_assert_uint_eq(match_producer(gt_graph, gt_view(y, "3,2", "1,3", 0)), GNONE); /* turned */
}
END_TEST

/* Written through a view: of all of it, of a part; a state is what it was before, too. */
START_TEST(producers_of_views) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), whole = temp(), parts = temp();
  const uint32_t state = gt_root(GV_STATE, BS_F32, "2,3");
  const uint32_t by = map(x, gt_view(whole, "6", "1", 0));
  map(gt_view(x, "1,3", "3,1", 0), gt_view(parts, "1,3", "3,1", 0));
  map(gt_view(x, "1,3", "3,1", 3), gt_view(parts, "1,3", "3,1", 3));
  map(x, gt_view(state, "2,3", "3,1", 0));
  ck_assert_uint_eq(match_producer(gt_graph, whole), by);
  ck_assert_uint_eq(match_producer(gt_graph, parts), GNONE);
  ck_assert_uint_eq(match_producer(gt_graph, state), GNONE);
}
END_TEST

START_TEST(only_readers) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), y = temp(), z = temp(), w = temp(), v = temp();
  const uint32_t first = map(x, y), second = map(y, z), third = map(z, w);
  map(z, v);
  ck_assert_uint_eq(match_only(gt_graph, y, GOP_MAP, second), first);
  ck_assert_uint_eq(match_only(gt_graph, y, GOP_MAP, GNONE), first);
  ck_assert_uint_eq(match_only(gt_graph, y, GOP_MAP, third), GNONE);
  ck_assert_uint_eq(match_only(gt_graph, y, GOP_REDUCE, second), GNONE);
  ck_assert_uint_eq(match_only(gt_graph, x, GOP_MAP, first), GNONE);
  ck_assert_uint_eq(match_only(gt_graph, z, GOP_MAP, GNONE), GNONE); /* two readers */
  ck_assert_uint_eq(match_only(gt_graph, z, GOP_MAP, third), GNONE);
  ck_assert_uint_eq(match_only(gt_graph, w, GOP_MAP, GNONE), GNONE); /* none */
}
END_TEST

START_TEST(a_port_reads) {
  gport port = {GNONE, 0};
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), y = temp(), flat = gt_view(y, "6", "1", 0), z = temp();
  const uint32_t first = map(x, y), second = map(y, z);
  ck_assert_uint_eq(match_only(gt_graph, y, GOP_MAP, second), first);
  gt_graph->outputs = &port;
  gt_graph->n_outputs = 1;
  for (int i = 0; i < 2; i++) {
    port.value = i == 0 ? y : flat;
    ck_assert_uint_eq(match_only(gt_graph, y, GOP_MAP, second), GNONE);
  }
}
END_TEST

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Two views of a root of 4 x 4 numbers. */
static const struct {
  const char *dims, *strides;
  int64_t offset;
  const char *other_dims, *other_strides;
  int64_t other_offset;
  int same;
} pairs[] = {
    {"2,3", "4,1", 0, "2,3", "4,1", 0, 1},     {"2,3", "4,1", 0, "2,3", "4,1", 4, 0},
    {"2,3", "4,1", 0, "2,3", "1,4", 0, 0},     {"2,3", "3,1", 0, "3,2", "2,1", 0, 0},
    {"1,4", "4,1", 0, "4,1", "1,1", 0, 0},     {"1,4", "4,1", 0, "1,4", "9,1", 0, 1},
    {"2,3", "4,1", 0, "2,3,1", "4,1,1", 0, 0}, {"", "", 3, "", "", 3, 1},
};

START_TEST(same_elements) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "4,4"), y = gt_root(GV_INPUT, BS_F32, "4,4");
  const uint32_t a = gt_view(x, pairs[_i].dims, pairs[_i].strides, pairs[_i].offset);
  const uint32_t b = gt_view(x, pairs[_i].other_dims, pairs[_i].other_strides, pairs[_i].other_offset);
  ck_assert_int_eq(match_same(gt_graph, a, b), pairs[_i].same);
  ck_assert_int_eq(match_same(gt_graph, b, a), pairs[_i].same);
  ck_assert_int_eq(match_same(gt_graph, a, a), 1);
  ck_assert_int_eq(match_same(gt_graph, a, gt_view(y, pairs[_i].dims, pairs[_i].strides, pairs[_i].offset)),
                   0);
}
END_TEST

static const struct {
  const char *dims, *rows;
  int is;
} row_numbers[] = {{"2,3,1", "2,3,4", 1}, {"1", "4", 1},           {"2,1", "2,3,4", 0}, {"2,3,4", "2,3,4", 0},
                   {"1,3,1", "2,3,4", 0}, {"2,1,1", "2,3,4", 0},   {"", "", 0},         {"", "4", 0},
                   {"2,3,1", "2,3,1", 1}, {"2,3,1,1", "2,3,4", 0}, {"1", "", 0}};

START_TEST(numbers_of_rows) {
  const uint32_t a = gt_root(GV_INPUT, BS_F32, row_numbers[_i].dims);
  const uint32_t b = gt_root(GV_INPUT, BS_F32, row_numbers[_i].rows);
  ck_assert_int_eq(match_row_number(gt_graph, a, b), row_numbers[_i].is);
}
END_TEST

/* Is a value between of the first dtype rounded no coarser than one of the second? */
static const struct {
  uint32_t between, out;
  int keeps;
} dtypes[] = {{BS_F32, BS_F32, 1},  {BS_F16, BS_F16, 1}, {BS_I32, BS_I32, 1}, {BS_F64, BS_F32, 1},
              {BS_F64, BS_BF16, 1}, {BS_F64, BS_I64, 0}, {BS_F32, BS_F16, 1}, {BS_F32, BS_BF16, 1},
              {BS_F32, BS_F64, 0},  {BS_F32, BS_I32, 0}, {BS_F16, BS_F32, 0}, {BS_BF16, BS_F16, 0},
              {BS_F16, BS_BF16, 0}, {BS_I32, BS_F32, 0}, {BS_BOOL, BS_F16, 0}};

START_TEST(roundings) {
  const uint32_t a = gt_root(GV_INPUT, dtypes[_i].between, "1"), b = gt_root(GV_INPUT, dtypes[_i].out, "1");
  ck_assert_int_eq(match_keeps(gt_graph, a, b), dtypes[_i].keeps);
}
END_TEST

START_TEST(single_numbers) {
  double number = -1;
  ck_assert(match_number(gt_graph, gt_root(GV_CONST, BS_F32, ""), &number) && number == 0);
  ck_assert(match_number(gt_graph, gt_root(GV_CONST, BS_F32, "1,1"), &number));
  ck_assert(match_number(gt_graph, gt_view(gt_root(GV_CONST, BS_F32, "2,3"), "1", "1", 5), &number));
  ck_assert(!match_number(gt_graph, gt_root(GV_CONST, BS_F32, "2"), &number));
  ck_assert(!match_number(gt_graph, gt_root(GV_CONST, BS_F32, "0"), &number));
  ck_assert(!match_number(gt_graph, gt_root(GV_INPUT, BS_F32, "1"), &number));
}
END_TEST

/* A view of 8 x 8 numbers as one row of n. */
static const struct {
  const char *dims, *strides;
  int64_t n;
  int is;
} rows[] = {{"4", "1", 4, 1},     {"1,4", "8,1", 4, 1}, {"4,1", "1,1", 4, 0}, {"2,4", "8,1", 4, 0},
            {"4", "8", 4, 0},     {"4", "0", 4, 0},     {"4", "1", 3, 0},     {"1", "8", 1, 1},
            {"1,1", "8,8", 1, 1}, {"", "", 1, 0}};

START_TEST(one_row) {
  const uint32_t x = gt_root(GV_CONST, BS_F32, "8,8");
  ck_assert_int_eq(match_row(gt_graph, gt_view(x, rows[_i].dims, rows[_i].strides, 0), rows[_i].n),
                   rows[_i].is);
}
END_TEST

/* A view of 4 x 4 numbers seen with other dims; NULL: it would need a copy. */
static const struct {
  const char *dims, *strides, *seen, *seen_strides;
} reshapes[] = {{"2,3", "4,1", "2,1,3", "4,3,1"}, {"2,3", "4,1", "6", NULL},        {"4,4", "4,1", "16", "1"},
                {"2,3", "4,1", "2,3,2", NULL},    {"2,1", "4,1", "2", "4"},         {"2", "4", "2,1", "4,4"},
                {"4,4", "1,4", "2,8", NULL},      {"4,4", "4,1", "4,2,2", "4,2,1"}, {"1", "1", "", ""}};

START_TEST(reshapes_are_views) {
  int64_t dims[BS_MAX_DIMS], strides[BS_MAX_DIMS];
  uint32_t seen = 0;
  const uint32_t x = gt_view(gt_root(GV_INPUT, BS_F32, "4,4"), reshapes[_i].dims, reshapes[_i].strides, 0);
  const uint32_t rank = gt_numbers(reshapes[_i].seen, dims);
  ck_assert_int_eq(match_reshape(gt_graph, x, rank, dims, &seen, NULL), BS_OK);
  ck_assert_int_eq(seen == GNONE, reshapes[_i].seen_strides == NULL);
  if (seen == GNONE) return;
  const gvalue *v = &gt_graph->values[seen];
  ck_assert_uint_eq(v->rank, rank);
  ck_assert_uint_eq(gt_numbers(reshapes[_i].seen_strides, strides), rank);
  for (uint32_t i = 0; i < rank; i++)
    ck_assert(v->dims[i] == dims[i] && (dims[i] == 1 || v->strides[i] == strides[i]));
  const uint32_t n_values = gt_graph->n_values;
  ck_assert_int_eq(match_reshape(gt_graph, seen, rank, dims, &seen, NULL),
                   BS_OK); /* itself, no further view */
  ck_assert_uint_eq(gt_graph->n_values, n_values);
}
END_TEST

START_TEST(slots) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), y = gt_root(GV_INPUT, BS_F32, "2,3"), z = temp();
  gnode n = match_node(GOP_MAP, 3, 1);
  n.in[0] = x;
  n.in[1] = gt_view(y, "2,3", "3,1", 0);
  n.in[2] = gt_view(x, "3", "1", 3);
  n.out[0] = z;
  ck_assert_uint_eq(match_slot(gt_graph, &n, y), 1);
  ck_assert_uint_eq(match_slot(gt_graph, &n, x), 3); /* twice */
  ck_assert_uint_eq(match_slot(gt_graph, &n, z), 3);
}
END_TEST

/* ---- a new node for old ones ------------------------------------------------------------------ */

/* `node` for old[0..n): was it done? */
static int replaces(const gnode *node, const uint32_t *old, uint32_t n) {
  uint32_t changes = 0, id = GNONE;
  ck_assert_int_eq(match_replace(gt_graph, node, old, n, &id, &changes, NULL), BS_OK);
  ck_assert_int_eq(changes == 1, id != GNONE);
  return changes == 1;
}
static int is_there(uint32_t node) {
  for (uint32_t i = gt_graph->first; i != GNONE; i = gt_graph->nodes[i].next)
    if (i == node) return 1;
  return 0;
}

START_TEST(what_is_unread_goes) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), y = temp(), z = temp();
  const uint32_t first = map(x, y), old[] = {map(y, z), first};
  const gnode n = map_of(x, z);
  ck_assert(replaces(&n, old, 2) && !is_there(old[0]) && !is_there(old[1]));
}
END_TEST

/* A reader of the value or of a view of it, a port, a state: the node that writes it stays. */
START_TEST(what_is_read_stays) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"),
                 y = _i == 3 ? gt_root(GV_STATE, BS_F32, "2,3") : temp();
  const uint32_t z = temp(), seen = gt_view(y, "6", "1", 0);
  const uint32_t first = map(x, y), second = map(y, z), old[] = {second, first};
  if (_i == 0) map(y, temp());
  if (_i == 1) map(seen, gt_root(GV_TEMP, BS_F32, "6"));
  if (_i == 2) gt_graph->values[y].flags |= GV_OUTPUT;
  const gnode n = map_of(x, z);
  ck_assert(replaces(&n, old, 2) && !is_there(second) && is_there(first));
}
END_TEST

static gnode normalised(uint32_t in, uint32_t out, uint32_t statistics) {
  gnode n = match_node(GOP_NORMALIZE, 4, 2);
  n.attrs[0] = BS_NORMALIZE_SOFTMAX;
  n.in[0] = in;
  n.out[0] = out;
  n.out[1] = statistics;
  return n;
}

/* An output that neither node has is no output of both. */
START_TEST(absent_outputs) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), y = temp(), z = temp();
  const gnode first = normalised(x, y, GNONE), last = normalised(y, z, GNONE), both = normalised(x, z, GNONE);
  const uint32_t first_id = add(&first), old[] = {add(&last), first_id, GNONE};
  map(y, temp());
  ck_assert(replaces(&both, old, 3) && is_there(old[1]));
}
END_TEST

/* A node of several outputs of which the new node writes one is gone, though the other ones are read. */
START_TEST(an_output_of_both) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), y = temp(), z = temp(), w = temp();
  const gexpr e = program_of("exp a; neg a; t0, t1");
  gnode two = match_node(GOP_MAP, 1, 2);
  two.in[0] = x;
  two.out[0] = y;
  two.out[1] = z;
  two.expr = graph_expr(gt_graph, &e);
  const uint32_t first = add(&two), old[] = {map(z, w), first};
  two.out[1] = w;
  ck_assert(replaces(&two, old, 2) && !is_there(old[1]));
}
END_TEST

START_TEST(the_op_takes_it) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), z = temp(), old[] = {map(x, z)};
  const gnode wrong = normalised(GNONE, z, GNONE),
              other = normalised(gt_root(GV_INPUT, BS_F32, "3,2"), z, GNONE);
  const gnode right = normalised(x, z, GNONE);
  ck_assert(!match_accepts(gt_graph, &wrong) && !match_accepts(gt_graph, &other) &&
            match_accepts(gt_graph, &right));
  ck_assert(!replaces(&wrong, old, 1) && !replaces(&other, old, 1) && is_there(old[0]));
  ck_assert(replaces(&right, old, 1) && !is_there(old[0]));
}
END_TEST

/* What lies between the first node, which reads a state or a part of a value, and the last one. */
static const struct {
  uint32_t kind; /* of what the first node reads */
  int before;    /* the node between stands before both */
  int writes;    /* what it writes: the rest of it, another state, a normalisation's only output */
  int done;
} between[] = {
    {GV_STATE, 0, 0, 0}, {GV_STATE, 1, 0, 1}, {GV_STATE, 0, 1, 1}, {GV_STATE, 0, 2, 1}, {GV_TEMP, 0, 0, 1}};

START_TEST(states_between) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "1,3"), whole = gt_root(between[_i].kind, BS_F32, "2,3");
  const uint32_t read = gt_view(whole, "1,3", "3,1", 0), rest = gt_view(whole, "1,3", "3,1", 3);
  const uint32_t other = gt_root(between[_i].writes == 1 ? GV_STATE : GV_TEMP, BS_F32, "1,3");
  const uint32_t y = gt_root(GV_TEMP, BS_F32, "1,3"), z = gt_root(GV_TEMP, BS_F32, "1,3");
  const gnode middle = between[_i].writes == 2 ? normalised(x, other, GNONE)
                                               : map_of(x, between[_i].writes == 0 ? rest : other);
  if (between[_i].kind == GV_TEMP) map(x, read);
  if (between[_i].before) add(&middle);
  const uint32_t first = map(read, y);
  if (!between[_i].before) add(&middle);
  const uint32_t old[] = {map(y, z), first};
  const gnode n = map_of(read, z);
  ck_assert_int_eq(replaces(&n, old, 2), between[_i].done);
  ck_assert_int_eq(is_there(old[0]), !between[_i].done);
}
END_TEST

/* A first node with an absent input. */
START_TEST(absent_inputs) {
  const uint32_t x = gt_root(GV_INPUT, BS_F32, "2,3"), y = temp(), z = temp();
  const gnode first = normalised(x, y, GNONE), both = normalised(x, z, GNONE);
  const uint32_t first_id = add(&first), old[] = {map(y, z), first_id};
  ck_assert(replaces(&both, old, 2) && !is_there(first_id));
}
END_TEST

int main(void) {
  const test_case cases[] = {{producers},
                             {producers_of_views},
                             {only_readers},
                             {a_port_reads},
                             {same_elements, TEST_COUNT(pairs)},
                             {numbers_of_rows, TEST_COUNT(row_numbers)},
                             {roundings, TEST_COUNT(dtypes)},
                             {single_numbers},
                             {one_row, TEST_COUNT(rows)},
                             {reshapes_are_views, TEST_COUNT(reshapes)},
                             {slots},
                             {what_is_unread_goes},
                             {what_is_read_stays, 4},
                             {absent_outputs},
                             {an_output_of_both},
                             {the_op_takes_it},
                             {states_between, TEST_COUNT(between)},
                             {absent_inputs},
                             {0}};
  return run_tests("pass match", cases, (test_setup){.before = gt_begin, .after = gt_end});
}
