/* SPDX-License-Identifier: MIT
 * test_world_algorithm.c - collectives that the host runs by a named algorithm over exchange: the values of
 * every kind, dtype, size and layout are those of the communicator; wrong schedules are refused or end in an
 * error, never in a hang; names and options that cannot be are refused. */
#include <malloc.h>
#include <math.h>

#include "tests/run_tests.h"
#include "world_help.h"

static const bs_rank_api *api;
/* The fixture, and the algorithms that are shipped. */
static void open_all(void) {
  static char path[4096];
  const char *plugins[1] = {path}, *dirs[1] = {getenv("BS_TEST_PLUGIN_DIR")};
  const bs_context_options o = {.struct_size = sizeof o,
                                .plugins = plugins,
                                .n_plugins = 1,
                                .plugin_dirs = dirs,
                                .n_plugin_dirs = 1,
                                .trust = BS_TRUST_ANY};
  snprintf(path, sizeof path, "%s/tests/world_fixtures/bs_testalgorithm.so", getenv("BS_TEST_BINARY_DIR"));
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s: %s", err.id, err.message);
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
  uint32_t reduce_op, dtype_out; /* 0: dtype */
} sizes;

static uint32_t out_of(const sizes *s) {
  return s->dtype_out != 0 ? s->dtype_out : s->dtype;
}
static int has_one_vector(uint32_t kind) {
  return kind == BS_COLL_ALL_REDUCE || kind == BS_COLL_BROADCAST;
}

static uint64_t block_of(const sizes *s, uint32_t r) {
  return s->count + r;
}
static uint64_t total_of(const sizes *s, uint32_t P) {
  uint64_t total = 0;
  for (uint32_t r = 0; r < P; ++r) total += block_of(s, r);
  return has_one_vector(s->kind) ? s->count : total;
}

static bs_tensor matrix(const sizes *s, uint32_t dtype, void *data, uint64_t cols) {
  const int64_t stride = (int64_t)cols + s->gap;
  return view_of(data, dtype, (int64_t)s->rows, (int64_t)cols, stride);
}

enum { ROOM = 65536 }; /* elements */

static void fill(const sizes *s, uint32_t rank, void *data, uint64_t cols) {
  float values[64];
  for (uint64_t row = 0; row < s->rows; ++row)
    for (uint64_t c = 0; c < cols; c += 64) {
      const uint64_t n = cols - c < 64 ? cols - c : 64;
      for (uint64_t i = 0; i < n; ++i) /* sums of few of them are exact in every dtype */
        values[i] = (float)((int)((row * 7 + (c + i) * 3 + rank * 5) % 5) - (s->dtype == BS_U8 ? 0 : 2));
      if (s->reduce_op != BS_REDUCE_SUM && s->dtype == BS_F32 && rank == 1) values[0] = NAN;
      const uint64_t at = (row * (cols + (uint64_t)s->gap) + c) * BS_DTYPE_BYTES(s->dtype);
      ck_assert_int_eq(bs_convert(s->dtype, (char *)data + at, BS_F32, values, n), BS_OK);
    }
}

/* Runs the collective into `out` of ROOM elements, all bits set before. */
static void collective(bs_rank *rank, const sizes *s, uint32_t P, void *in, void *out, bs_error *e) {
  const uint32_t me = rank_of(rank);
  const uint64_t total = total_of(s, P), mine = block_of(s, me);
  uint64_t counts[8] = {0}, even[8] = {0}, first = 0;
  for (uint32_t r = 0; r < P; ++r) counts[r] = even[r] = block_of(s, r);
  for (uint32_t r = 0; r < me; ++r) first += counts[r];
  const int blocks = !has_one_vector(s->kind), all = s->kind == BS_COLL_ALL_TO_ALL;
  for (uint32_t r = 0; all && r < P; ++r) counts[r] = even[r] = s->count;
  const uint64_t in_cols = s->kind == BS_COLL_ALL_GATHER ? mine : all ? P * s->count : total;
  const uint64_t out_cols = s->kind == BS_COLL_REDUCE_SCATTER ? mine : all ? P * s->count : total;
  const bs_collective d = {.struct_size = sizeof d,
                           .kind = s->kind,
                           .dtype_in = s->dtype,
                           .dtype_out = s->dtype_out,
                           .reduce_op = s->reduce_op,
                           .root = s->kind == BS_COLL_BROADCAST ? P - 1 : 0,
                           .rows = s->rows,
                           .count = blocks ? 0 : s->count,
                           .counts = blocks ? counts : NULL,
                           .recv_counts = all ? even : NULL,
                           .ncounts = blocks ? P : 0,
                           .site = "tested"};
  bs_coll_plan *plan = NULL;
  memset(out, 0xff, ROOM * 8);
  fill(s, me, in, in_cols);
  /* In place an all_gather finds its block where it will lie. */
  char *own = (char *)out + (s->kind == BS_COLL_ALL_GATHER ? first * BS_DTYPE_BYTES(s->dtype) : 0);
  if (s->in_place) fill(s, me, own, in_cols);
  const bs_tensor from = matrix(s, s->dtype, s->in_place ? own : in, in_cols);
  bs_tensor to = matrix(s, out_of(s), out, out_cols);
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

/* By one_shot, whose sums are in rank order. */
static const sizes more_cases[] = {
    {BS_COLL_BROADCAST, BS_F32, 1, 100, 0, 0},
    {BS_COLL_BROADCAST, BS_BF16, 3, 7, 2, 0},
    {BS_COLL_BROADCAST, BS_F32, 2, 9, 0, 1},
    {BS_COLL_BROADCAST, BS_F32, 2, 9, 1, 0, 0, BS_BF16},
    {BS_COLL_ALL_TO_ALL, BS_F32, 1, 5, 0, 0},
    {BS_COLL_ALL_TO_ALL, BS_I64, 3, 4, 2, 0},
    {BS_COLL_ALL_TO_ALL, BS_BF16, 2, 3, 0, 0},
    {BS_COLL_ALL_REDUCE, BS_F32, 2, 33, 0, 0, BS_REDUCE_MAX},
    {BS_COLL_ALL_REDUCE, BS_F32, 2, 33, 3, 1, BS_REDUCE_MIN},
    {BS_COLL_ALL_REDUCE, BS_I32, 1, 64, 0, 0, BS_REDUCE_MIN},
    {BS_COLL_ALL_REDUCE, BS_BF16, 2, 64, 0, 1, BS_REDUCE_MAX},
    {BS_COLL_ALL_REDUCE, BS_BF16, 2, 64, 0, 0, 0, BS_F32},
    {BS_COLL_ALL_REDUCE, BS_F32, 2, 64, 1, 0, 0, BS_BF16},
    {BS_COLL_REDUCE_SCATTER, BS_F32, 2, 5, 0, 0, BS_REDUCE_MAX},
    {BS_COLL_REDUCE_SCATTER, BS_BF16, 2, 5, 1, 0, 0, BS_F32},
    {BS_COLL_ALL_GATHER, BS_F32, 1, 6, 0, 1},
    {BS_COLL_ALL_GATHER, BS_F32, 2, 6, 1, 0, 0, BS_BF16},
};
enum { MORE_CASES = sizeof more_cases / sizeof more_cases[0] };

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

/* Every rank's bytes by the algorithm are those of the communicator. `by_rounds`: the world's record names
 * it. */
static void compare(const sizes *s, uint32_t P, const char *algorithm, const char *note, int by_rounds) {
  results native = {.s = s, .P = P}, rounds = {.s = s, .P = P};
  for (uint32_t r = 0; r < P; ++r) {
    native.out[r] = malloc(ROOM * 8);
    rounds.out[r] = malloc(ROOM * 8);
  }
  bs_world *one = world_by(P, NULL, 5), *other = world_by(P, algorithm, 5);
  run(one, run_main, &native, BS_OK);
  run(other, run_main, &rounds, BS_OK);
  ck_assert_int_eq(strstr(bs_world_algorithms(other), note) != NULL, by_rounds);
  for (uint32_t r = 0; r < P; ++r) {
    ck_assert_msg(memcmp(native.out[r], rounds.out[r], ROOM * 8) == 0, "%s, P %u: rank %u", algorithm, P, r);
    free(native.out[r]);
    free(rounds.out[r]);
  }
  bs_world_destroy(one);
  bs_world_destroy(other);
}

/* Test _i: case _i / 2 by the ring or the two-shot. */
START_TEST(values_are_the_communicators) {
  static const char *const names[] = {"testring", "testtwo:times=3"};
  const sizes *s = &cases[_i / 2];
  const char *note = _i % 2 ? "all_reduce@algorithm/testtwo" : "@algorithm/testring";
  for (uint32_t P = 1; P <= 5; ++P)
    compare(s, P, names[_i % 2], note, P > 1 && (_i % 2 == 0 || s->kind == BS_COLL_ALL_REDUCE));
}
END_TEST

START_TEST(values_of_every_kind) {
  for (uint32_t P = 1; P <= 5; P += 2) compare(&more_cases[_i], P, "one_shot", "@algorithm/one_shot", P > 1);
}
END_TEST

/* More steps than a part keeps (600 rounds of 4 ranks): the same values, part after part. */
START_TEST(long_schedules_are_run_in_parts) {
  static const sizes s = {BS_COLL_ALL_REDUCE, BS_F32, 1, 64, 0, 0};
  compare(&s, 4, "testtwo:times=600", "@algorithm/testtwo", 1);
}
END_TEST

/* ---- memory --------------------------------------------------------------------------------- */

enum { ROWS = 3, COLS = 3000 };

static size_t allocated(void) {
  const struct mallinfo2 m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

/* What a communicator remembers of messages of a size is made by the first plan. The first run of a plan of
 * another dtype, with gaps between rows, then allocates nothing; rank 0 looks while the others wait. */
static int32_t first_run_main(bs_rank *rank, void *arg, bs_error *e) {
  static float x[4][ROWS * (COLS + 1)];
  size_t *grown = arg, before;
  bs_collective d = collective_of(BS_COLL_ALL_REDUCE, ROWS, COLS, "tested");
  const bs_collective g = {.struct_size = sizeof g, .kind = BS_COLL_BARRIER, .site = "gate"};
  bs_coll_plan *known = NULL, *fresh = NULL, *gate = NULL;
  void *data = x[rank_of(rank)];
  bs_tensor dense = view_of(data, BS_F32, ROWS, COLS, COLS),
            gaps = view_of(data, BS_BF16, ROWS, COLS, COLS + 1);
  memset(data, 0, sizeof x[0]);
  ck_assert_int_eq(api->collective_prepare(rank, &g, &gate, e), BS_OK);
  ck_assert_int_eq(api->collective_prepare(rank, &d, &known, e), BS_OK);
  d.dtype_in = BS_BF16;
  ck_assert_int_eq(api->collective_prepare(rank, &d, &fresh, e), BS_OK);
  for (int i = 0; i < 2; ++i) {
    ck_assert_int_eq(api->collective_run(known, &dense, &dense, NULL, e), BS_OK);
    ck_assert_int_eq(api->collective_run(gate, NULL, NULL, NULL, e), BS_OK);
  }
  before = allocated();
  ck_assert_int_eq(api->collective_run(gate, NULL, NULL, NULL, e), BS_OK);
  ck_assert_int_eq(api->collective_run(fresh, &gaps, &gaps, NULL, e), BS_OK);
  ck_assert_int_eq(api->collective_run(gate, NULL, NULL, NULL, e), BS_OK);
  if (rank_of(rank) == 0) *grown = allocated() - before;
  ck_assert_int_eq(api->collective_run(gate, NULL, NULL, NULL, e), BS_OK);
  api->collective_release(known);
  api->collective_release(fresh);
  api->collective_release(gate);
  return BS_OK;
}
START_TEST(the_first_run_allocates_nothing) {
  size_t grown = 1;
  bs_world *world = world_by(3, "testring", 5);
  run(world, first_run_main, &grown, BS_OK);
  ck_assert_uint_eq(grown, 0);
  bs_world_destroy(world);
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
  const bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 1, (uint64_t)t.dims[0], "wrong");
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

/* A site's name says nothing: every plugin may name its own "lab.peers". */
static int32_t site_main(bs_rank *rank, void *arg, bs_error *e) {
  float x[60] = {1.0f};
  bs_tensor t = view_of(x, BS_F32, ROWS, COLS, 60);
  t.rank = 1, t.dims[0] = 60, t.strides[0] = 1, t.bytes = sizeof x;
  bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 1, 60, "lab.peers");
  d.flags = *(const uint32_t *)arg;
  bs_coll_plan *plan = NULL;
  int32_t rc = api->collective_prepare(rank, &d, &plan, e);
  if (rc != BS_OK) return rc;
  rc = api->collective_run(plan, &t, &t, NULL, e);
  if (rc == BS_OK) ck_assert_float_eq(x[0], 3.0f);
  api->collective_release(plan);
  return rc;
}
START_TEST(flags_and_not_sites_choose_the_communicators_own) {
  static const struct {
    uint32_t flags;
    int32_t code;
  } rows[] = {{0, BS_PLUGIN}, /* the algorithm's schedule is wrong */
              {BS_COLL_NATIVE, BS_OK},
              {BS_COLL_CONTROL, BS_OK},
              {BS_COLL_DEVICE, BS_INVALID_ARGUMENT}, /* the host's to give */
              {64, BS_INVALID_ARGUMENT}};
  uint32_t flags = rows[_i].flags;
  bs_world *world = world_by(3, "testinput", 5);
  run(world, site_main, &flags, rows[_i].code);
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
      {"testcost", BS_UNSUPPORTED, "a cost alone", "coll list"},
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

/* Sums of the host's own are in rank order whatever the world was asked for. */
static int32_t host_sum_main(bs_rank *rank, void *arg, bs_error *e) {
  const bs_collective d = collective_of(BS_COLL_ALL_REDUCE, 1, 1, "host");
  float x = 1;
  (void)arg;
  return bs_rank_collective_host(rank, &d, &x, 1, &x, 1, e);
}
START_TEST(sums_of_the_host_keep_their_order) {
  bs_world *world = world_by(2, "native", 5);
  run(world, host_sum_main, NULL, BS_OK);
  ck_assert_ptr_null(strstr(bs_world_algorithms(world), "any order"));
  bs_world_destroy(world);
}
END_TEST

int main(void) {
  const test_case tests[] = {{values_are_the_communicators, 2 * CASES},
                             {values_of_every_kind, MORE_CASES},
                             {long_schedules_are_run_in_parts},
                             {the_first_run_allocates_nothing},
                             {sums_of_the_host_keep_their_order},
                             {wrong_schedules_end_in_an_error, 8},
                             {flags_and_not_sites_choose_the_communicators_own, 5},
                             {names_that_cannot_be_are_refused, 9},
                             {a_communicator_needs_exchange},
                             {what_is_promised_of_the_bits, 6},
                             {0}};
  return run_tests("world_algorithm", tests, (test_setup){open_all, close_context, 15, 4});
}
