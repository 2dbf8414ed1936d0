/* SPDX-License-Identifier: MIT
 * test_world_algorithm.c - collectives that the host runs by a named algorithm over exchange: the values of
 * every kind, dtype, size and layout are those of the communicator; wrong schedules are refused or end in an
 * error, never in a hang; names and options that cannot be are refused. */
#include "tests/run_tests.h"
#include "world_help.h"

static const bs_rank_api *api;
static void open_all(void) {
  open_plugin("testalgorithm");
  api = bs_rank_get_api();
}

static bs_world *world_by(uint32_t size, const char *algorithm, double timeout_s) {
  bs_world_options o = options(size, "ref");
  o.algorithm = algorithm;
  o.timeout_s = timeout_s;
  return world_of(&o);
}

typedef struct sizes {
  uint32_t kind;
  uint32_t dtype;
  uint64_t rows, count; /* count: of a rank's block, + its number, where there are blocks */
  int64_t gap;          /* between rows */
  uint32_t in_place;
} sizes;

static uint64_t block_of(const sizes *s, uint32_t r) {
  return s->count + r;
}
static uint64_t total_of(const sizes *s, uint32_t P) {
  uint64_t total = 0;
  for (uint32_t r = 0; r < P; ++r) total += block_of(s, r);
  return s->kind == BS_COLL_ALL_REDUCE ? s->count : total;
}

static bs_tensor matrix(const sizes *s, void *data, uint64_t cols) {
  const int64_t stride = (int64_t)cols + s->gap;
  const uint64_t elements = s->rows * (uint64_t)stride;
  bs_tensor t = {.struct_size = sizeof t,
                 .dtype = s->dtype,
                 .rank = 2,
                 .dims = {(int64_t)s->rows, (int64_t)cols},
                 .strides = {stride, 1},
                 .data = data,
                 .bytes = elements * BS_DTYPE_BYTES(s->dtype)};
  return t;
}

enum { ROOM = 65536 }; /* elements */

static void fill(const sizes *s, uint32_t rank, void *data, uint64_t cols) {
  float values[64];
  for (uint64_t row = 0; row < s->rows; ++row)
    for (uint64_t c = 0; c < cols; c += 64) {
      const uint64_t n = cols - c < 64 ? cols - c : 64;
      for (uint64_t i = 0; i < n; ++i) /* sums of few of them are exact in every dtype */
        values[i] = (float)((int)((row * 7 + (c + i) * 3 + rank * 5) % 5) - (s->dtype == BS_U8 ? 0 : 2));
      const uint64_t at = (row * (cols + (uint64_t)s->gap) + c) * BS_DTYPE_BYTES(s->dtype);
      ck_assert_int_eq(bs_convert(s->dtype, (char *)data + at, BS_F32, values, n), BS_OK);
    }
}

/* Runs the collective into `out` of ROOM elements, all bits set before. */
static void collective(bs_rank *rank, const sizes *s, uint32_t P, void *in, void *out, bs_error *e) {
  const uint32_t me = rank_of(rank);
  const uint64_t total = total_of(s, P), mine = block_of(s, me);
  uint64_t counts[8];
  for (uint32_t r = 0; r < P; ++r) counts[r] = block_of(s, r);
  const int blocks = s->kind != BS_COLL_ALL_REDUCE;
  const uint64_t in_cols = s->kind == BS_COLL_ALL_GATHER ? mine : total;
  const uint64_t out_cols = s->kind == BS_COLL_REDUCE_SCATTER ? mine : total;
  const bs_collective d = {.struct_size = sizeof d,
                           .kind = s->kind,
                           .dtype_in = s->dtype,
                           .rows = s->rows,
                           .count = blocks ? 0 : s->count,
                           .counts = blocks ? counts : NULL,
                           .ncounts = blocks ? P : 0,
                           .site = "tested"};
  bs_coll_plan *plan = NULL;
  memset(out, 0xff, ROOM * 8);
  fill(s, me, in, in_cols);
  if (s->in_place) fill(s, me, out, in_cols);
  const bs_tensor from = matrix(s, s->in_place ? out : in, in_cols);
  bs_tensor to = matrix(s, out, out_cols);
  ck_assert_msg(api->collective_prepare(rank, &d, &plan, e) == BS_OK, "%s", e->message);
  for (int again = 0; again < (s->in_place ? 1 : 2); ++again)
    ck_assert_msg(api->collective_run(plan, &from, &to, NULL, e) == BS_OK, "%s", e->message);
  if (s->rows > 1 && !s->in_place) { /* fewer rows, and all of them again */
    bs_tensor less = from, few = to;
    less.dims[0] = few.dims[0] = (int64_t)s->rows - 1;
    ck_assert_msg(api->collective_run(plan, &less, &few, NULL, e) == BS_OK, "%s", e->message);
    ck_assert_msg(api->collective_run(plan, &from, &to, NULL, e) == BS_OK, "%s", e->message);
  }
  api->collective_release(plan);
}

static const sizes cases[] = {
    {BS_COLL_ALL_REDUCE, BS_F32, 1, 1000, 0, 0},  {BS_COLL_ALL_REDUCE, BS_F32, 1, 1, 0, 0},
    {BS_COLL_ALL_REDUCE, BS_F32, 1, 0, 0, 0},     {BS_COLL_ALL_REDUCE, BS_F32, 0, 5, 0, 0},
    {BS_COLL_ALL_REDUCE, BS_F64, 3, 7, 0, 1},     {BS_COLL_ALL_REDUCE, BS_F64, 3, 7, 5, 0},
    {BS_COLL_ALL_REDUCE, BS_BF16, 4, 33, 0, 0},   {BS_COLL_ALL_REDUCE, BS_F16, 1, 100, 0, 1},
    {BS_COLL_ALL_REDUCE, BS_F8E4M3, 1, 70, 0, 0}, {BS_COLL_ALL_REDUCE, BS_I64, 2, 11, 1, 1},
    {BS_COLL_ALL_REDUCE, BS_I32, 2, 500, 0, 1},   {BS_COLL_ALL_REDUCE, BS_I8, 1, 6, 0, 0},
    {BS_COLL_ALL_REDUCE, BS_U8, 1, 65, 0, 0},     {BS_COLL_ALL_REDUCE, BS_F32, 1, 40000, 0, 1},
    {BS_COLL_ALL_GATHER, BS_F32, 1, 0, 0, 0},     {BS_COLL_ALL_GATHER, BS_F32, 3, 4, 2, 0},
    {BS_COLL_ALL_GATHER, BS_BF16, 1, 100, 0, 0},  {BS_COLL_REDUCE_SCATTER, BS_F32, 1, 0, 0, 0},
    {BS_COLL_REDUCE_SCATTER, BS_F32, 3, 4, 2, 0}, {BS_COLL_REDUCE_SCATTER, BS_BF16, 2, 100, 0, 0},
};
enum { CASES = sizeof cases / sizeof cases[0] };

typedef struct results {
  const sizes *s;
  uint32_t P;
  char *out[8];
} results;

static int32_t run_main(bs_rank *rank, void *arg, bs_error *e) {
  results *r = arg;
  void *in = malloc(ROOM * 8);
  collective(rank, r->s, r->P, in, r->out[rank_of(rank)], e);
  free(in);
  return BS_OK;
}

/* Test _i: case _i / 2 by the ring or the two-shot; every rank's bytes are those of the communicator. */
START_TEST(values_are_the_communicators) {
  static const char *const names[] = {"testring", "testtwo:times=3"};
  const sizes *s = &cases[_i / 2];
  for (uint32_t P = 1; P <= 5; ++P) {
    results native = {.s = s, .P = P}, rounds = {.s = s, .P = P};
    for (uint32_t r = 0; r < P; ++r) {
      native.out[r] = malloc(ROOM * 8);
      rounds.out[r] = malloc(ROOM * 8);
    }
    bs_world *one = world_by(P, NULL, 5), *other = world_by(P, names[_i % 2], 5);
    run(one, run_main, &native, BS_OK);
    run(other, run_main, &rounds, BS_OK);
    const char *note = _i % 2 ? "all_reduce@algorithm/testtwo" : "@algorithm/testring";
    const int by_rounds = P > 1 && (_i % 2 == 0 || s->kind == BS_COLL_ALL_REDUCE);
    ck_assert_int_eq(strstr(bs_world_algorithms(other), note) != NULL, by_rounds);
    for (uint32_t r = 0; r < P; ++r) {
      ck_assert_msg(memcmp(native.out[r], rounds.out[r], ROOM * 8) == 0, "case %d, P %u: rank %u", _i / 2, P,
                    r);
      free(native.out[r]);
      free(rounds.out[r]);
    }
    bs_world_destroy(one);
    bs_world_destroy(other);
  }
}
END_TEST

/* More steps than a part keeps (600 rounds of 4 ranks): the same values, part after part. */
START_TEST(long_schedules_are_run_in_parts) {
  static const sizes s = {BS_COLL_ALL_REDUCE, BS_F32, 1, 64, 0, 0};
  results native = {.s = &s, .P = 4}, rounds = {.s = &s, .P = 4};
  for (uint32_t r = 0; r < 4; ++r) {
    native.out[r] = malloc(ROOM * 8);
    rounds.out[r] = malloc(ROOM * 8);
  }
  bs_world *one = world_by(4, NULL, 5), *other = world_by(4, "testtwo:times=600", 5);
  run(one, run_main, &native, BS_OK);
  run(other, run_main, &rounds, BS_OK);
  for (uint32_t r = 0; r < 4; ++r) {
    ck_assert_int_eq(memcmp(native.out[r], rounds.out[r], ROOM * 8), 0);
    free(native.out[r]);
    free(rounds.out[r]);
  }
  bs_world_destroy(one);
  bs_world_destroy(other);
}
END_TEST

/* ---- what is wrong -------------------------------------------------------------------------- */

static int32_t wrong_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[64] = {0};
  bs_tensor t = {.struct_size = sizeof t,
                 .dtype = BS_F32,
                 .rank = 1,
                 .dims = {*(const int64_t *)arg},
                 .strides = {1},
                 .data = x,
                 .bytes = sizeof x};
  const bs_collective d = {.struct_size = sizeof d,
                           .kind = BS_COLL_ALL_REDUCE,
                           .dtype_in = BS_F32,
                           .rows = 1,
                           .count = (uint64_t)t.dims[0],
                           .site = "wrong"};
  bs_coll_plan *plan = NULL;
  int32_t rc = api->collective_prepare(rank, &d, &plan, e);
  if (rc != BS_OK) return rc;
  for (int i = 0; i < 3 && rc == BS_OK; ++i) rc = api->collective_run(plan, &t, &t, NULL, e);
  api->collective_release(plan);
  return rc;
}
START_TEST(wrong_schedules_end_in_an_error) {
  static const struct {
    const char *algorithm;
    int64_t n;
    int32_t code;
    const char *id, *text;
  } rows[] = {
      {"testlost", 60, BS_MISMATCH, "BS-COLL-MISMATCH", "ranks disagree"},
      {"testcrooked", 60, BS_DEADLINE, "BS-COLL-DEADLINE", "missing: rank"},
      {"testshorter", 60, BS_MISMATCH, "BS-COLL-MISMATCH", "at 'wrong'"},
      {"testoutside", 60, BS_PLUGIN, "BS-COLL-STEP", "20 elements from 60 on: out has 60"},
      {"testbackwards", 60, BS_PLUGIN, "BS-COLL-STEP", "behind a later round"},
      {"testinput", 60, BS_PLUGIN, "BS-COLL-STEP", "writes into the input"},
      {"testitself", 60, BS_PLUGIN, "BS-COLL-STEP", "peer is no other rank"},
      {"testring", 13, BS_UNSUPPORTED, "BS-TEST-THIRTEEN", "bad luck"},
  };
  int64_t n = rows[_i].n;
  bs_world *world = world_by(3, rows[_i].algorithm, 0.3);
  run(world, wrong_main, &n, rows[_i].code);
  ck_assert_str_eq(err.id, rows[_i].id);
  ck_assert_msg(strstr(err.message, rows[_i].text) != NULL, "%s", err.message);
  bs_world_destroy(world);
}
END_TEST

START_TEST(names_that_cannot_be_are_refused) {
  static const struct {
    const char *algorithm;
    int32_t code;
    const char *text, *hint;
  } rows[] = {
      {"testrin", BS_NOT_FOUND, "no algorithm 'testrin'", "'testring'"},
      {"nativ", BS_NOT_FOUND, "no algorithm 'nativ'", "'native'"},
      {"testcost", BS_UNSUPPORTED, "a cost alone", "ccl list"},
      {"testtwo:", BS_CONFIG, "nothing is behind the colon", "key=value"},
      {":times=2", BS_CONFIG, "a name is missing", "key=value"},
      {"testtwo:times", BS_CONFIG, "no key=value", "key=value"},
      {"testtwo:time=3", BS_CONFIG, "no option 'time'", "'times'"},
      {"testtwo:times=0", BS_CONFIG, "must be an integer of 1..600", "how often"},
      {"testring:times=1", BS_CONFIG, "no option 'times'", "it has none"},
  };
  bs_world_options o = options(2, "ref");
  bs_world *world = NULL;
  o.algorithm = rows[_i].algorithm;
  ck_assert_int_eq(bs_world_create(context, &o, &world, &err), rows[_i].code);
  ck_assert_msg(strstr(err.message, rows[_i].text) != NULL, "%s", err.message);
  ck_assert_msg(strstr(err.hint, rows[_i].hint) != NULL, "%s", err.hint);
}
END_TEST

START_TEST(a_communicator_needs_exchange) {
  close_context();
  open_plugins("testalgorithm", "testworld");
  bs_world_options o = options(2, "ref");
  bs_world *world = NULL;
  o.algorithm = "testring";
  o.comm = "driven";
  ck_assert_int_eq(bs_world_create(context, &o, &world, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.message,
                   "communicator driven has no exchange, over which the host runs algorithm testring");
  o.algorithm = "native"; /* any communicator */
  ck_assert_int_eq(bs_world_create(context, &o, &world, &err), BS_OK);
  bs_world_destroy(world);
}
END_TEST

START_TEST(what_is_promised_of_the_bits) {
  static const struct {
    const char *algorithm;
    uint32_t promised, kept;
  } rows[] = {{NULL, BS_REPRO_R2, BS_REPRO_R2},       {"native", BS_REPRO_R1, BS_REPRO_R0},
              {"native", BS_REPRO_R3, BS_REPRO_R3},   {"testring", BS_REPRO_R2, BS_REPRO_R1},
              {"testring", BS_REPRO_R0, BS_REPRO_R0}, {"testring", BS_REPRO_R4, BS_REPRO_R4}};
  bs_world *world = world_by(2, rows[_i].algorithm, 5);
  ck_assert_uint_eq(bs_world_repro(world, rows[_i].promised), rows[_i].kept);
  bs_world_destroy(world);
}
END_TEST

int main(void) {
  const test_case tests[] = {{values_are_the_communicators, 2 * CASES},
                             {long_schedules_are_run_in_parts},
                             {wrong_schedules_end_in_an_error, 8},
                             {names_that_cannot_be_are_refused, 9},
                             {a_communicator_needs_exchange},
                             {what_is_promised_of_the_bits, 6},
                             {0}};
  return run_tests("world_algorithm", tests, (test_setup){open_all, close_context, 15, 4});
}
