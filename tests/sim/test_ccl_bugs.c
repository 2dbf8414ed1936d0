/* SPDX-License-Identifier: MIT
 * test_ccl_bugs.c - planted bugs: algorithms that are wrong in one way each, and the level of the ladder that
 * must be the first to find it, with the step named. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/check.h"
#include "tests/run_tests.h"

typedef int32_t (*emit_fn)(void *user, const bs_coll_step *step);

/* Emits one step; 0 or what emit returned. */
static int32_t step(emit_fn emit, void *user, uint32_t round, uint32_t action, uint32_t peer, uint32_t buffer,
                    uint64_t first, uint64_t count) {
  const bs_coll_step s = {.struct_size = sizeof s,
                          .round = round,
                          .action = action,
                          .peer = peer,
                          .buffer = buffer,
                          .first = first,
                          .count = count};
  return count == 0 ? 0 : emit(user, &s);
}
static int32_t take(emit_fn emit, void *user, uint32_t round, uint32_t action, uint32_t rank, uint32_t buffer,
                    uint32_t from_buffer, uint64_t from_first, uint64_t count) {
  const bs_coll_step s = {.struct_size = sizeof s,
                          .round = round,
                          .action = action,
                          .peer = action == BS_STEP_COPY ? 0 : rank,
                          .buffer = buffer,
                          .from_buffer = from_buffer,
                          .count = count,
                          .from_first = from_first};
  return count == 0 ? 0 : emit(user, &s);
}

enum bug {
  NONE,
  LOST_CHUNK,
  WRONG_ORDER,
  OVERLAP,
  UNMATCHED,
  WRONG_ROOT,
  WAITS,
  OUTSIDE,
  DOUBLED,
  /* of `loses`: the last element, where the elements or their count are so */
  TWO_BYTES,
  EIGHT_BYTES_MANY,
  ONE_BYTE_ODD,
  BEYOND_100000,
  ONE_COUNT,
  ODD_COUNT,
  COUNT_32_BITS,
  /* of `endless` */
  ONE_ROUND,
  MANY_ROUNDS,
  NO_ELEMENTS,
  MANY_RANKS,
  /* of `deaf` */
  DEAF
};

static int32_t scratch(void *state, const bs_coll_shape *shape, uint32_t rank, uint64_t *out, bs_error *err) {
  (void)state;
  (void)rank;
  (void)err;
  *out = shape->count * shape->world_size;
  return BS_OK;
}

/* An all-reduce in one round: all vectors into SCRATCH, summed in rank order. */
static int32_t direct(void *state, const bs_coll_shape *shape, uint32_t me, emit_fn emit, void *user,
                      bs_error *err) {
  const enum bug bug = *(const enum bug *)state;
  const uint32_t p = shape->world_size;
  const uint64_t n = shape->count;
  bs_coll_step own = {.struct_size = sizeof own,
                      .action = BS_STEP_COPY,
                      .buffer = BS_BUFFER_SCRATCH,
                      .first = me * n,
                      .count = n};
  int32_t rc = n > 0 ? emit(user, &own) : 0;
  (void)err;
  for (uint32_t i = 1; i < p && rc == 0; ++i) {
    const uint32_t to = (me + i) % p, from = (me + p - i) % p;
    rc = step(emit, user, 0, BS_STEP_SEND, to, BS_BUFFER_IN, 0, n);
    if (rc == 0) rc = step(emit, user, 0, BS_STEP_RECV, from, BS_BUFFER_SCRATCH, from * n, n);
  }
  if (rc == 0 && bug == UNMATCHED && p > 2 && me == 0)
    rc = step(emit, user, 0, BS_STEP_SEND, 1, BS_BUFFER_IN, 0, 1 < n ? 1 : n);
  if (rc == 0 && bug == OUTSIDE && p > 2 && me == 2)
    rc = step(emit, user, 1, BS_STEP_SEND, 0, BS_BUFFER_IN, n, 1);
  /* Each rank begins with its own vector: two ranks differ by no more than a + b and b + a. */
  const uint32_t begin = bug == WRONG_ORDER && p % 2 == 1 ? me : 0;
  if (rc == 0) rc = take(emit, user, 1, BS_STEP_COPY, me, BS_BUFFER_OUT, BS_BUFFER_SCRATCH, begin * n, n);
  for (uint32_t i = 1; i < p && rc == 0; ++i) {
    const uint32_t from = (begin + i) % p;
    if (bug == LOST_CHUNK && p > 4 && me == 3 && from == 4) continue;
    const uint32_t which = bug == DOUBLED && p > 4 && me == 1 && from == 2 ? 3 : from;
    rc = take(emit, user, 1, BS_STEP_REDUCE, me, BS_BUFFER_OUT, BS_BUFFER_SCRATCH, which * n, n);
  }
  return rc;
}

/* Neighbours exchange their vectors: in OUT itself, or each waiting for the other first. */
static int32_t exchange(void *state, const bs_coll_shape *shape, uint32_t me, emit_fn emit, void *user,
                        bs_error *err) {
  const int waits = *(const enum bug *)state == WAITS;
  const uint32_t other = me ^ 1u;
  (void)err;
  if (shape->world_size != 2) return BS_UNSUPPORTED;
  int32_t rc = take(emit, user, 0, BS_STEP_COPY, me, BS_BUFFER_OUT, BS_BUFFER_IN, 0, shape->count);
  if (rc == 0 && waits) rc = step(emit, user, 0, BS_STEP_REDUCE, other, BS_BUFFER_OUT, 0, shape->count);
  if (rc == 0) rc = step(emit, user, 1, BS_STEP_SEND, other, BS_BUFFER_OUT, 0, shape->count);
  if (rc == 0 && !waits) rc = step(emit, user, 1, BS_STEP_RECV, other, BS_BUFFER_OUT, 0, shape->count);
  return rc;
}

/* Elements that the sum of these elements takes. */
static uint64_t taken(enum bug bug, const bs_coll_shape *shape) {
  const uint64_t n = shape->count, bytes = shape->element_bytes;
  const int loses = (bug == TWO_BYTES && bytes == 2 && n > 3) ||
                    (bug == EIGHT_BYTES_MANY && bytes == 8 && n > 4096) ||
                    (bug == ONE_BYTE_ODD && bytes == 1 && n % 2 == 1 && n > 64) ||
                    (bug == BEYOND_100000 && n > 100000) || (bug == ONE_COUNT && n == 12345) ||
                    (bug == ODD_COUNT && n == 3001) || (bug == COUNT_32_BITS && n > UINT32_MAX);
  return n - (uint64_t)loses;
}

/* An all-reduce over rank 0. */
static int32_t loses(void *state, const bs_coll_shape *shape, uint32_t me, emit_fn emit, void *user,
                     bs_error *err) {
  const uint64_t n = shape->count, m = taken(*(const enum bug *)state, shape);
  const uint32_t p = shape->world_size;
  (void)err;
  int32_t rc = take(emit, user, 0, BS_STEP_COPY, me, BS_BUFFER_OUT, BS_BUFFER_IN, 0, n);
  if (me > 0 && rc == 0) rc = step(emit, user, 0, BS_STEP_SEND, 0, BS_BUFFER_OUT, 0, m);
  for (uint32_t r = 1; me == 0 && r < p && rc == 0; ++r)
    rc = step(emit, user, 0, BS_STEP_REDUCE, r, BS_BUFFER_OUT, 0, m);
  for (uint32_t r = 1; me == 0 && r < p && rc == 0; ++r)
    rc = step(emit, user, 1, BS_STEP_SEND, r, BS_BUFFER_OUT, 0, m);
  if (me > 0 && rc == 0) rc = step(emit, user, 1, BS_STEP_RECV, 0, BS_BUFFER_OUT, 0, m);
  return rc;
}

/* Emits for as long as it may. */
static int32_t endless(void *state, const bs_coll_shape *shape, uint32_t me, emit_fn emit, void *user,
                       bs_error *err) {
  const enum bug bug = *(const enum bug *)state;
  enum bug none = NONE;
  bs_coll_step s = {.struct_size = sizeof s,
                    .action = BS_STEP_COPY,
                    .buffer = BS_BUFFER_OUT,
                    .count = bug == NO_ELEMENTS ? 0 : shape->count};
  int32_t rc = 0;
  if (bug == MANY_RANKS && shape->world_size < 20) return loses(&none, shape, me, emit, user, err);
  while (rc == 0) {
    rc = emit(user, &s);
    s.round += bug == MANY_ROUNDS && s.round < UINT32_MAX;
  }
  return rc;
}

/* A step outside of OUT first, and no heed to what emit says of it. */
static int32_t deaf(void *state, const bs_coll_shape *shape, uint32_t me, emit_fn emit, void *user,
                    bs_error *err) {
  enum bug none = NONE;
  (void)state;
  if (shape->world_size > 1) (void)step(emit, user, 0, BS_STEP_COPY, 0, BS_BUFFER_OUT, shape->count, 7);
  loses(&none, shape, me, emit, user, err);
  return BS_OK;
}

/* A step whose struct_size leaves fields out. */
static int32_t short_steps(void *state, const bs_coll_shape *shape, uint32_t me, emit_fn emit, void *user,
                           bs_error *err) {
  const bs_coll_step s = {.struct_size = sizeof s - 8, .action = BS_STEP_COPY, .buffer = BS_BUFFER_OUT};
  (void)state;
  (void)shape;
  (void)me;
  (void)err;
  return emit(user, &s);
}

static int32_t no_size(void *state, const bs_coll_shape *shape, uint32_t me, emit_fn emit, void *user,
                       bs_error *err) {
  const bs_coll_step s = {.action = BS_STEP_COPY, .buffer = BS_BUFFER_OUT, .count = shape->count};
  (void)state;
  (void)me;
  (void)err;
  return emit(user, &s);
}

/* A broadcast that always begins at rank 0. */
static int32_t from_zero(void *state, const bs_coll_shape *shape, uint32_t me, emit_fn emit, void *user,
                         bs_error *err) {
  int32_t rc = 0;
  (void)state;
  (void)err;
  if (me == shape->root)
    rc = take(emit, user, 0, BS_STEP_COPY, me, BS_BUFFER_OUT, BS_BUFFER_IN, 0, shape->count);
  for (uint32_t to = 1; me == 0 && to < shape->world_size && rc == 0; ++to)
    rc = step(emit, user, 0, BS_STEP_SEND, to, BS_BUFFER_OUT, 0, shape->count);
  if (me != 0 && rc == 0) rc = step(emit, user, 0, BS_STEP_RECV, 0, BS_BUFFER_OUT, 0, shape->count);
  return rc;
}

static const struct {
  const char *name;
  enum bug bug;
  int32_t (*schedule)(void *, const bs_coll_shape *, uint32_t, emit_fn, void *, bs_error *);
  uint32_t kind;
  int level;        /* that finds it; -1: none */
  const char *says; /* a part of its text, or of the hint */
} bugs[] = {
    {"right", NONE, direct, BS_COLL_ALL_REDUCE, -1, ""},
    {"lost chunk", LOST_CHUNK, direct, BS_COLL_ALL_REDUCE, SIM_V0, "rank 3 element 0"},
    {"doubled chunk", DOUBLED, direct, BS_COLL_ALL_REDUCE, SIM_V0, "rank 1 round 1: REDUCE"},
    {"wrong order for odd p", WRONG_ORDER, direct, BS_COLL_ALL_REDUCE, SIM_V1, "different orders"},
    {"overlap of buffers", OVERLAP, exchange, BS_COLL_ALL_REDUCE, SIM_V4,
     "rank 0 round 1: RECV from 1, OUT[0..1): it overwrites"},
    {"unmatched pair", UNMATCHED, direct, BS_COLL_ALL_REDUCE, SIM_V4, "rank 1 has no RECV or REDUCE for it"},
    {"wrong root", WRONG_ROOT, from_zero, BS_COLL_BROADCAST, SIM_V0, "root 1"},
    {"each waits for the other", WAITS, exchange, BS_COLL_ALL_REDUCE, SIM_V4, "0"},
    {"outside of a buffer", OUTSIDE, direct, BS_COLL_ALL_REDUCE, SIM_V4, "outside of the buffer"},
    {"two bytes", TWO_BYTES, loses, BS_COLL_ALL_REDUCE, SIM_V0, "bf16"},
    {"eight bytes, many", EIGHT_BYTES_MANY, loses, BS_COLL_ALL_REDUCE, SIM_V0, "n=4097"},
    {"one byte, odd", ONE_BYTE_ODD, loses, BS_COLL_ALL_REDUCE, SIM_V0, "i8"},
    {"beyond 100,000", BEYOND_100000, loses, BS_COLL_ALL_REDUCE, SIM_V1, "n=100003"},
    {"12,345", ONE_COUNT, loses, BS_COLL_ALL_REDUCE, SIM_V0, "n=12345"},
    {"one odd count", ODD_COUNT, loses, BS_COLL_ALL_REDUCE, SIM_V1, "n=3001"},
    {"32 bits", COUNT_32_BITS, loses, BS_COLL_ALL_REDUCE, SIM_V1, "n=4294967311"},
    {"endless round", ONE_ROUND, endless, BS_COLL_ALL_REDUCE, SIM_V4, "more steps than any use"},
    {"endless rounds", MANY_ROUNDS, endless, BS_COLL_ALL_REDUCE, SIM_V4, "more steps than any use"},
    {"endless nothing", NO_ELEMENTS, endless, BS_COLL_ALL_REDUCE, SIM_V4, "more steps than any use"},
    {"endless for many", MANY_RANKS, endless, BS_COLL_ALL_REDUCE, SIM_V4, "p=20"},
    {"does not heed emit", DEAF, deaf, BS_COLL_ALL_REDUCE, SIM_V4, "outside of the buffer"},
    {"no struct_size", NONE, no_size, BS_COLL_ALL_REDUCE, SIM_V4, "leaves out fields"},
    {"short struct_size", NONE, short_steps, BS_COLL_ALL_REDUCE, SIM_V4, "leaves out fields"},
};

typedef struct found {
  int level; /* the first that failed */
  uint64_t cases;
  bs_error why;
} found;

static void note(void *user, const sim_check_row *row) {
  found *f = user;
  f->cases += row->cases;
  if (f->level >= 0 || row->code == BS_OK || row->code == BS_INCONCLUSIVE) return;
  f->level = (int)row->level;
  f->why = row->why;
}

START_TEST(each_bug_is_found_by_its_level) {
  enum bug bug = bugs[_i].bug;
  const bs_algorithm a = {.struct_size = sizeof a,
                          .flags = BS_ALGORITHM_SAME_ORDER,
                          .name = bugs[_i].name,
                          .kinds = UINT64_C(1) << bugs[_i].kind,
                          .schedule = bugs[_i].schedule,
                          .scratch = scratch};
  const sim_check_request q = {.algorithm = &a, .state = &bug, .max_ranks = bug == MANY_RANKS ? 21 : 9};
  found f = {.level = -1, .why = BS_ERROR_INIT};
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = sim_check(&q, note, &f, &err);
  ck_assert_msg(f.level == bugs[_i].level, "%s: found by level %d, not %d: %s", bugs[_i].name, f.level,
                bugs[_i].level, f.why.message);
  ck_assert_int_eq(rc, bugs[_i].level < 0 ? BS_OK : BS_NUMERIC);
  ck_assert_uint_gt(f.cases, 0);
  ck_assert_msg(strstr(f.why.message, bugs[_i].says) != NULL || strstr(f.why.hint, bugs[_i].says) != NULL,
                "%s: '%s' (%s) does not say '%s'", bugs[_i].name, f.why.message, f.why.hint, bugs[_i].says);
}
END_TEST

/* Formulas that are none, of some shapes alone, are found at every level. */
static double formula; /* seconds; for more than 5 ranks and 8 bytes, else 1e-6 */
static int32_t cost(void *state, const bs_coll_shape *shape, const bs_link *link, double *out,
                    bs_error *err) {
  (void)state;
  (void)link;
  (void)err;
  *out = shape->world_size > 5 && shape->element_bytes == 8 ? formula : 1e-6;
  return BS_OK;
}

START_TEST(bad_formulas_are_found) {
  static const double bad[] = {-1, -1e-30, NAN, INFINITY, -INFINITY, 1e308, 1e30};
  for (uint32_t level = 0; level < SIM_LEVELS; level++) {
    enum bug bug = NONE;
    const bs_algorithm a = {.struct_size = sizeof a,
                            .name = "formula",
                            .kinds = 1u << BS_COLL_ALL_REDUCE,
                            .schedule = loses,
                            .cost = cost};
    const sim_check_request q = {.algorithm = &a, .state = &bug, .max_ranks = 9, .levels = 1u << level};
    found f = {.level = -1, .why = BS_ERROR_INIT};
    bs_error err = BS_ERROR_INIT;
    formula = bad[_i];
    ck_assert_int_eq(sim_check(&q, note, &f, &err), BS_NUMERIC);
    ck_assert_int_eq(f.level, (int)level);
    ck_assert_str_eq(f.why.id, "BS-CCL-COST");
    ck_assert_ptr_nonnull(strstr(f.why.message, "of 8 bytes"));
  }
}
END_TEST

/* A level that cannot run anything says so: that is no proof. */
START_TEST(nothing_that_runs_is_no_proof) {
  enum bug bug = WAITS;
  const bs_algorithm a = {
      .struct_size = sizeof a, .name = "two", .kinds = 1u << BS_COLL_ALL_REDUCE, .schedule = exchange};
  const sim_check_request q = {.algorithm = &a, .state = &bug, .max_ranks = 1};
  found f = {.level = -1, .why = BS_ERROR_INIT};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(sim_check(&q, note, &f, &err), BS_INCONCLUSIVE);
  ck_assert_uint_eq(f.cases, 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_bug_is_found_by_its_level, TEST_COUNT(bugs)},
                             {bad_formulas_are_found, 7},
                             {nothing_that_runs_is_no_proof},
                             {0}};
  return run_tests("ccl_bugs", tests, (test_setup){.timeout = 30});
}
