/* SPDX-License-Identifier: MIT
 * test_ccl_ladder.c - every algorithm of plugins/algorithms against every level. BS_TEST_BIG: the ranges of
 * `make verify`, up to 65,536 ranks. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/coll/ccl.h"
#include "tests/run_tests.h"

static bs_context *context;

static void open_context(void) {
  bs_error err = BS_ERROR_INIT;
  const bs_context_options o = {.struct_size = sizeof o, .log_level = BS_LOG_ERROR};
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
}
static void close_context(void) {
  bs_context_close(context);
}

/* The most ranks in make test: the ring and one of log2 p rounds go to the level's own end. IN_KIT: there the
 * conformance kit takes the same levels on 33 ranks (the test kit_algorithms), and here only BS_TEST_BIG. */
enum { IN_KIT = 33 };
static const struct {
  const char *name, *option;
  uint32_t ranks, same_order;
} rows[] = {
    {"ring", NULL, 0, 1},
    {"doubling", NULL, 0, 1},
    {"ring_bidir", NULL, IN_KIT, 1},
    {"halving_doubling", NULL, 4096, 1},
    {"binomial", NULL, IN_KIT, 1},
    {"one_shot", NULL, IN_KIT, 1},
    {"two_shot", NULL, IN_KIT, 1},
    {"pairwise", NULL, IN_KIT, 0},
    {"chain", NULL, IN_KIT, 1},
    {"double_tree", NULL, IN_KIT, 1},
    {"hierarchical", NULL, IN_KIT, 1},
    {"hierarchical", "outer=ring", 32, 1},
    {"torus2d", NULL, IN_KIT, 1},
};

static void judge(void *user, const sim_check_row *row) {
  uint64_t *cases = user;
  ck_assert_msg(row->code == BS_OK, "%s %s: [%s] %s (%s)", sim_level_names[row->level],
                bs_name_of(BS_NAMES_COLL, row->kind), row->why.id, row->why.message, row->why.hint);
  ck_assert_uint_eq(row->refused, 0);
  *cases += row->cases;
}

START_TEST(every_level_finds_it_right) {
  bs_error err = BS_ERROR_INIT;
  bs_ccl ccl;
  uint64_t cases = 0;
  const int32_t rc =
      bs_ccl_open(context, rows[_i].name, &rows[_i].option, rows[_i].option != NULL, &ccl, &err);
  ck_assert_msg(rc == BS_OK, "%s", err.message);
  const int big = getenv("BS_TEST_BIG") != NULL;
  const sim_check_request q = {.algorithm = ccl.algorithm,
                               .state = ccl.state,
                               .options = ccl.options,
                               .max_ranks = big ? 0 : rows[_i].ranks,
                               .kinds = big || _i > 0 ? 0 : 1u << BS_COLL_ALL_REDUCE,
                               .full = (uint32_t)big};
  if (big || rows[_i].ranks != IN_KIT) {
    ck_assert_msg(sim_check(&q, judge, &cases, &err) == BS_OK, "%s", err.message);
    ck_assert_uint_gt(cases, 200);
  }
  ck_assert_uint_eq((ccl.algorithm->flags & BS_ALGORITHM_SAME_ORDER) != 0, rows[_i].same_order);
  bs_ccl_free(&ccl);
}
END_TEST

/* A group that does not divide the ranks is refused with what to do. */
START_TEST(options_are_read_and_judged) {
  static const struct {
    const char *name, *option;
    int32_t code;
  } given[] = {{"chain", "chunks=4", BS_OK},   {"chain", "chunks=0", BS_USAGE},
               {"chain", "chunk=4", BS_USAGE}, {"hierarchical", "outer=tree", BS_USAGE},
               {"ring", "chunks=4", BS_USAGE}, {"rings", "", BS_NOT_FOUND}};
  for (int i = 0; i < TEST_COUNT(given); ++i) {
    bs_error err = BS_ERROR_INIT;
    bs_ccl ccl;
    const int32_t rc = bs_ccl_open(context, given[i].name, &given[i].option, 1, &ccl, &err);
    ck_assert_msg(rc == given[i].code, "%s %s: %d %s", given[i].name, given[i].option, rc, err.message);
    if (rc == BS_OK) bs_ccl_free(&ccl);
    if (rc != BS_OK) ck_assert_str_ne(err.hint, "");
  }
  bs_error err = BS_ERROR_INIT;
  const char *option = "group=3";
  bs_ccl ccl;
  ck_assert_int_eq(bs_ccl_open(context, "hierarchical", &option, 1, &ccl, &err), BS_OK);
  const bs_ccl_place place = {
      .kind = BS_COLL_ALL_REDUCE, .world_size = 8, .element_bytes = 4, .count = 100, .bytes_per_s = 1e9};
  ck_assert_ptr_null(bs_ccl_explain(&ccl, &place, &err));
  ck_assert_int_eq(err.code, BS_UNSUPPORTED);
  bs_ccl_free(&ccl);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {every_level_finds_it_right, TEST_COUNT(rows)}, {options_are_read_and_judged}, {0}};
  return run_tests("ccl_ladder", tests, (test_setup){open_context, close_context, 600});
}
