/* SPDX-License-Identifier: MIT
 * test_sim_world.c - worlds of the communicator sim through the public interface: messages and collectives in
 * virtual time, ranks that are stuck or disagree, groups, and layers with values against worlds of threads.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static bs_context *context;

/* 0.5 us and 50 GB/s, and ops that take no time. */
static void open_with(const char *param) {
  const char *params[] = {"sim.alpha_s=0.5e-6", "sim.bw_Bps=50e9", param};
  const bs_context_options o = {.struct_size = sizeof o,
                                .log_level = BS_LOG_ERROR,
                                .params = params,
                                .n_params = param != NULL ? 3 : 2};
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
}
static void open_context(void) {
  open_with(NULL);
}
static void close_context(void) {
  bs_context_close(context);
}

static bs_world *world_of(uint32_t size, const char *backend, const char *comm) {
  const bs_world_options o = {.struct_size = sizeof o,
                              .world_size = size,
                              .backend = backend,
                              .comm = comm,
                              .threads_per_rank = 1,
                              .sync_mode = BS_SYNC_NONE};
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  ck_assert_msg(bs_world_create(context, &o, &world, &err) == BS_OK, "%s: %s", err.id, err.message);
  return world;
}

/* One call of `count` f32. */
typedef struct act {
  uint32_t kind, root;
  uint64_t count;
  const char *site;
} act;

static int32_t call(bs_rank *rank, const act *a, float *in, float *out, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_collective desc = {.struct_size = sizeof desc,
                              .kind = a->kind,
                              .dtype_in = BS_F32,
                              .root = a->root,
                              .rows = 1,
                              .count = a->count,
                              .site = a->site};
  bs_tensor x = {.struct_size = sizeof x, .dtype = BS_F32, .rank = 2}, y = x;
  bs_coll_plan *plan = NULL;
  x.dims[0] = y.dims[0] = 1;
  x.dims[1] = y.dims[1] = (int64_t)a->count;
  x.strides[0] = y.strides[0] = (int64_t)a->count;
  x.strides[1] = y.strides[1] = 1;
  x.data = in;
  y.data = out;
  x.bytes = y.bytes = a->count * sizeof(float);
  int32_t rc = api->collective_prepare(rank, &desc, &plan, err);
  if (rc == BS_OK)
    rc = api->collective_run(plan, a->kind == BS_COLL_RECV ? NULL : &x, a->kind == BS_COLL_SEND ? NULL : &y,
                             NULL, err);
  api->collective_release(plan);
  return rc;
}

enum { MOST = 4096 };

/* What each rank does, in order; ends at NONE. */
typedef struct script {
  act acts[4][4]; /* of rank */
} script;
#define NONE \
  { BS_COLL_COUNT_, 0, 0, NULL }

static int32_t follow(bs_rank *rank, void *arg, bs_error *err) {
  const script *s = arg;
  const uint32_t me = bs_rank_get_api()->rank(rank);
  float *in = bs_rank_get_api()->alloc(rank, MOST * sizeof *in),
        *out = bs_rank_get_api()->alloc(rank, MOST * sizeof *out);
  int32_t rc = BS_OK;
  for (int i = 0; i < MOST; i++) in[i] = (float)(me + 1) * (float)i;
  for (int k = 0; rc == BS_OK && k < 4 && s->acts[me][k].kind != BS_COLL_COUNT_; k++)
    rc = call(rank, &s->acts[me][k], in, out, err);
  bs_rank_get_api()->free(rank, in);
  bs_rank_get_api()->free(rank, out);
  return rc;
}

/* ---- what ends a world --------------------------------------------------------------------------- */

static const struct {
  const char *what;
  uint32_t ranks;
  int32_t code;
  const char *id, *says[3];
  script s;
} endings[] = {
    {"both ranks receive first",
     2,
     BS_DEADLINE,
     "BS-SIM-STUCK",
     {"cycle", "ping", "pong"},
     {{{{BS_COLL_RECV, 1, 8, "ping"}, {BS_COLL_SEND, 1, 8, "pong"}, NONE},
       {{BS_COLL_RECV, 0, 8, "pong"}, {BS_COLL_SEND, 0, 8, "ping"}, NONE}}}},
    {"a rank does not come",
     3,
     BS_DEADLINE,
     "BS-SIM-STUCK",
     {"all_reduce", "sums", "2"},
     {{{{BS_COLL_ALL_REDUCE, 0, 8, "sums"}, NONE}, {{BS_COLL_ALL_REDUCE, 0, 8, "sums"}, NONE}, {NONE}}}},
    {"other counts",
     2,
     BS_MISMATCH,
     "BS-SIM-MISMATCH",
     {"sums", "8", "9"},
     {{{{BS_COLL_ALL_REDUCE, 0, 8, "sums"}, NONE}, {{BS_COLL_ALL_REDUCE, 0, 9, "sums"}, NONE}}}},
    {"other call sites",
     2,
     BS_MISMATCH,
     "BS-SIM-MISMATCH",
     {"here", "there", ""},
     {{{{BS_COLL_ALL_REDUCE, 0, 8, "here"}, NONE}, {{BS_COLL_ALL_REDUCE, 0, 8, "there"}, NONE}}}},
    {"a message of another size",
     2,
     BS_MISMATCH,
     "BS-SIM-MISMATCH",
     {"a", "", ""},
     {{{{BS_COLL_SEND, 1, 8, "a"}, NONE}, {{BS_COLL_RECV, 0, 9, "a"}, NONE}}}},
    {"a message that nobody receives",
     2,
     BS_MISMATCH,
     "BS-SIM-LEFTOVER",
     {"0", "1", ""},
     {{{{BS_COLL_SEND, 1, 8, "a"}, NONE}, {NONE}}}},
};

START_TEST(what_ends_a_world_is_told) {
  bs_world *world = world_of(endings[_i].ranks, "ref", "sim");
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_world_run(world, follow, (void *)(uintptr_t)&endings[_i].s, &err);
  ck_assert_msg(rc == endings[_i].code, "%s: %s %s: %s", endings[_i].what, bs_status_name(rc), err.id,
                err.message);
  ck_assert_msg(strcmp(err.id, endings[_i].id) == 0, "%s: %s: %s", endings[_i].what, err.id, err.message);
  for (int k = 0; k < 3; k++)
    ck_assert_msg(endings[_i].says[k] == NULL || strstr(err.message, endings[_i].says[k]) != NULL,
                  "%s: '%s' is not in: %s", endings[_i].what, endings[_i].says[k], err.message);
  bs_world_destroy(world);
}
END_TEST

/* ---- times --------------------------------------------------------------------------------------- */

typedef struct figures {
  int64_t simulated, latency, bytes, wait, path_wait, messages;
} figures;

static void take(void *user, const char *name, double value, const char *unit, const char *text) {
  figures *f = user;
  (void)unit;
  (void)text;
  if (strcmp(name, "simulated") == 0) f->simulated = (int64_t)value;
  if (strcmp(name, "wire_latency") == 0) f->latency = (int64_t)value;
  if (strcmp(name, "wire_bytes") == 0) f->bytes = (int64_t)value;
  if (strcmp(name, "wait") == 0) f->wait = (int64_t)value;
  if (strcmp(name, "path_wait") == 0) f->path_wait = (int64_t)value;
  if (strcmp(name, "messages") == 0) f->messages = (int64_t)value;
}

/* n f32 take 500,000 + 80 n ps. */
static const struct {
  const char *what;
  uint32_t ranks;
  figures want;
  script s;
} timings[] = {
    {"one message",
     2,
     {580000, 500000, 80000, 0, 0, 1},
     {{{{BS_COLL_SEND, 1, 1000, "a"}, NONE}, {{BS_COLL_RECV, 0, 1000, "a"}, NONE}}}},
    {"two messages share the sender's port",
     2,
     {660000, 500000, 160000, 0, 0, 2},
     {{{{BS_COLL_SEND, 1, 1000, "a"}, {BS_COLL_SEND, 1, 1000, "b"}, NONE},
       {{BS_COLL_RECV, 0, 1000, "a"}, {BS_COLL_RECV, 0, 1000, "b"}, NONE}}}},
    {"there and back",
     2,
     {1160000, 500000, 80000, 580000, 0, 2},
     {{{{BS_COLL_SEND, 1, 1000, "a"}, {BS_COLL_RECV, 1, 1000, "b"}, NONE},
       {{BS_COLL_RECV, 0, 1000, "a"}, {BS_COLL_SEND, 0, 1000, "b"}, NONE}}}},
    {"a ring of four",
     4,
     {3240000, 3000000, 240000, 0, 0, 24},
     {{{{BS_COLL_ALL_REDUCE, 0, 2000, "s"}, NONE},
       {{BS_COLL_ALL_REDUCE, 0, 2000, "s"}, NONE},
       {{BS_COLL_ALL_REDUCE, 0, 2000, "s"}, NONE},
       {{BS_COLL_ALL_REDUCE, 0, 2000, "s"}, NONE}}}},
    {"a tree of three",
     3,
     {1160000, 1000000, 160000, 0, 0, 2},
     {{{{BS_COLL_BROADCAST, 1, 1000, "b"}, NONE},
       {{BS_COLL_BROADCAST, 1, 1000, "b"}, NONE},
       {{BS_COLL_BROADCAST, 1, 1000, "b"}, NONE}}}},
};

START_TEST(times_are_known) {
  bs_world *world = world_of(timings[_i].ranks, "ref", "sim");
  bs_error err = BS_ERROR_INIT;
  figures got = {0};
  const figures *want = &timings[_i].want;
  const int32_t rc = bs_world_run(world, follow, (void *)(uintptr_t)&timings[_i].s, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s: %s", timings[_i].what, err.id, err.message);
  bs_world_figures(world, take, &got);
  ck_assert_msg(
      memcmp(&got, want, sizeof got) == 0,
      "%s: %lld ps (latency %lld, bytes %lld, wait %lld, %lld messages), not %lld (%lld, %lld, %lld, %lld)",
      timings[_i].what, (long long)got.simulated, (long long)got.latency, (long long)got.bytes,
      (long long)got.wait, (long long)got.messages, (long long)want->simulated, (long long)want->latency,
      (long long)want->bytes, (long long)want->wait, (long long)want->messages);
  bs_world_destroy(world);
}
END_TEST

/* Rank 0 receives from rank 1, which is late, before it receives from rank 2. */
static const script late_first = {
    {{{BS_COLL_SEND, 1, 2000, "c"}, {BS_COLL_RECV, 1, 1000, "a"}, {BS_COLL_RECV, 2, 1000, "b"}, NONE},
     {{BS_COLL_RECV, 0, 2000, "c"}, {BS_COLL_SEND, 0, 1000, "a"}, NONE},
     {{BS_COLL_SEND, 0, 1000, "b"}, NONE}}};

START_TEST(a_port_in_the_order_of_receives_or_of_time) {
  static const struct {
    const char *param;
    int64_t ps;
  } orders[] = {{NULL, 1320000}, {"sim.order=E", 1240000}};
  for (int i = 0; i < TEST_COUNT(orders); i++) {
    bs_error err = BS_ERROR_INIT;
    figures got = {0};
    bs_context_close(context);
    open_with(orders[i].param);
    bs_world *world = world_of(3, "ref", "sim");
    const int32_t rc = bs_world_run(world, follow, (void *)(uintptr_t)&late_first, &err);
    ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
    bs_world_figures(world, take, &got);
    ck_assert_int_eq(got.simulated, orders[i].ps);
    bs_world_destroy(world);
  }
}
END_TEST

/* ---- groups -------------------------------------------------------------------------------------- */

/* All ranks open two groups of all ranks, and meet in each; *arg: a rank that receives instead. */
static int32_t two_groups(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t ranks[] = {0, 1, 2};
  bs_group *groups[2] = {NULL, NULL};
  const uint32_t *receives = arg;
  int32_t rc = BS_OK;
  if (receives != NULL && *receives == api->rank(rank)) {
    const act receive = {BS_COLL_RECV, (*receives + 1) % 3, 1, "receive"};
    float in = 0, out = 0;
    return call(rank, &receive, &in, &out, err);
  }
  for (int g = 0; rc == BS_OK && g < 2; g++) rc = api->group_open(rank, ranks, 3, &groups[g], err);
  for (int g = 0; rc == BS_OK && g < 2; g++) {
    const bs_collective desc = {.struct_size = sizeof desc,
                                .kind = BS_COLL_BARRIER,
                                .group = groups[g],
                                .site = g == 0 ? "first" : "second"};
    bs_coll_plan *plan = NULL;
    rc = api->collective_prepare(rank, &desc, &plan, err);
    if (rc == BS_OK) rc = api->collective_run(plan, NULL, NULL, NULL, err);
    api->collective_release(plan);
  }
  for (int g = 0; g < 2; g++) api->group_close(groups[g]);
  return rc;
}

START_TEST(groups_of_the_same_ranks_are_told_apart) {
  bs_world *world = world_of(3, "ref", "sim");
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_world_run(world, two_groups, NULL, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  bs_world_destroy(world);
}
END_TEST

/* A rank hangs before it opens a group; the others wait for it in theirs. */
START_TEST(a_hang_meets_no_group_of_the_program) {
  uint32_t hangs = (uint32_t)_i;
  bs_error err = BS_ERROR_INIT;
  bs_context_close(context);
  open_with("fault.plan=op=recv,do=hang");
  bs_world *world = world_of(3, "ref", "fault:sim");
  ck_assert_int_eq(bs_world_run(world, two_groups, &hangs, &err), BS_DEADLINE);
  ck_assert_str_eq(err.id, "BS-SIM-STUCK");
  ck_assert_msg(strstr(err.message, "3 of 3 wait") != NULL, "%s", err.message);
  bs_world_destroy(world);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {what_ends_a_world_is_told, TEST_COUNT(endings)}, {times_are_known, TEST_COUNT(timings)},
      {a_port_in_the_order_of_receives_or_of_time},     {groups_of_the_same_ranks_are_told_apart},
      {a_hang_meets_no_group_of_the_program, 3},        {0}};
  return run_tests("sim_world", tests,
                   (test_setup){.before = open_context, .after = close_context, .timeout = 60});
}
