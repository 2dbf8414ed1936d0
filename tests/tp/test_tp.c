/* SPDX-License-Identifier: MIT
 *
 * test_tp.c - libblockshock-tp on ranks that are threads, coroutines of one thread, and simulated: T1
 * parallel state, T2 layers, T3 drain, T4 spawn, T5 host-read barrier, T6 MLP. The bodies are in bodies*.c.
 */
#include <sched.h>
#include <stdatomic.h>

#include "core/base/error.h"
#include "kit/driven.h"
#include "tests/comma_locale.h"
#include "tests/run_tests.h"
#include "tests/tp/bodies.h"

/* Ranks are threads; coroutines of the kit, which turn their order around; simulated, with real values. */
enum { THREADS, DRIVEN, SIMULATED, WAYS };

static bs_context *context;
static int way_now;

static void open_context(int way) {
  way_now = way;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(NULL, &context, &err) == BS_OK, "%s", err.message);
  if (way == DRIVEN) kit_driven_use(context);
}

typedef struct told {
  uint32_t n, ranks[16];
  char ids[16][32];
} told;
static void hear(void *user, uint32_t rank, const bs_error *err) {
  told *t = user;
  ck_assert_uint_lt(t->n, 16);
  snprintf(t->ids[t->n], sizeof t->ids[0], "%s", err->id);
  t->ranks[t->n++] = rank;
  ck_assert_int_eq(err->rank, (int32_t)rank);
}

/* After open_context. */
static bs_world_options world_of(uint32_t size) {
  bs_world_options o = {.struct_size = sizeof o, .world_size = size, .backend = "ref", .threads_per_rank = 1};
  if (way_now == SIMULATED) {
    o.backend = "virtual:ref";
    o.comm = "sim";
    o.sync_mode = BS_SYNC_NONE;
  }
  return o;
}

/* Every body, on threads and driven. */
START_TEST(test_bodies) {
  open_context(_i % WAYS);
  const tp_body *b = &tp_bodies[_i / WAYS];
  const bs_world_options world = world_of(b->world);
  bs_tp_spawn_options o = {.struct_size = sizeof o, .tensor_size = b->tensor_size, .world = &world};
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = bs_tp_spawn(context, &o, b->fn, NULL, &err);
  if (b->fails == NULL)
    ck_assert_msg(rc == BS_OK, "%s: rank %d: [%s] %s", b->name, err.rank, err.id, err.message);
  else
    ck_assert_msg(rc != BS_OK && strcmp(err.message, b->fails) == 0, "%s says '%s', not '%s'", b->name,
                  err.message, b->fails);
  bs_context_close(context);
}
END_TEST

START_TEST(test_t4_nothing_to_spawn) {
  open_context(THREADS);
  const bs_world_options world = world_of(1);
  const bs_tp_spawn_options o = {.struct_size = sizeof o, .world = &world}, no_size = {.world = &world};
  bs_tp_job *job;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_tp_spawn(NULL, &o, t4_once, NULL, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-TP-NULL");
  ck_assert_int_eq(bs_tp_spawn(context, NULL, t4_once, NULL, NULL), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_tp_spawn(context, &no_size, t4_once, NULL, NULL), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_tp_spawn(context, &o, NULL, NULL, NULL), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_tp_spawn_start(NULL, &o, t4_once, NULL, &job, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_tp_spawn_start(context, &o, t4_once, NULL, NULL, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-TP-NULL");
  bs_context_close(context);
}
END_TEST

START_TEST(test_t4_runs_once_a_rank) {
  open_context(_i);
  const bs_world_options world = world_of(4);
  bs_tp_spawn_options o = {.struct_size = sizeof o, .world = &world};
  uint32_t counts[4] = {0};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_tp_spawn(context, &o, t4_once, counts, &err), BS_OK);
  for (int r = 0; r < 4; ++r) ck_assert_uint_eq(counts[r], 1);
  bs_context_close(context);
}
END_TEST

START_TEST(test_t4_root_causes) {
  open_context(_i);
  const bs_world_options world = world_of(4);
  told heard = {.n = 0};
  bs_tp_spawn_options o = {.struct_size = sizeof o, .world = &world, .failed = hear, .failed_user = &heard};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_tp_spawn(context, &o, t4_roots, NULL, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "T4-FIRST");
  ck_assert_int_eq(err.rank, 1);
  ck_assert_uint_eq(heard.n, 2);
  ck_assert_uint_eq(heard.ranks[0], 1);
  ck_assert_uint_eq(heard.ranks[1], 3);
  ck_assert_str_eq(heard.ids[1], "T4-SECOND");
  bs_context_close(context);
}
END_TEST

/* ---- T6 in virtual time, without values ------------------------------------------------------- */

/* 64 tokens, 4096 outputs in f32: the one all-reduce of a forward has 1 MiB. */
static int32_t timed_mlp(bs_rank *rank, void *user, bs_error *err) {
  static const float none[4096 * 64];
  uint64_t *ns = user;
  const bs_tp_mlp_spec spec = {.struct_size = sizeof spec,
                               .tokens = 64,
                               .in_features = 64,
                               .hidden_features = 64,
                               .out_features = 4096,
                               .activation = BS_ACT_RELU};
  bs_source w1, w2;
  bs_tp_mlp *mlp = NULL;
  bs_tensor x = {.struct_size = sizeof x}, y = x;
  int32_t rc = bs_source_from_memory(none, BS_F32, 64, 64, 64, &w1, err);
  if (rc == BS_OK) rc = bs_source_from_memory(none, BS_F32, 4096, 64, 64, &w2, err);
  if (rc == BS_OK) rc = bs_tp_mlp_make(rank, &spec, &w1, NULL, &w2, NULL, &mlp, err);
  if (rc == BS_OK) rc = bs_tp_tensor_make(rank, BS_F32, 64, 64, &x, err);
  if (rc == BS_OK) rc = bs_tp_tensor_make(rank, BS_F32, 64, 4096, &y, err);
  const uint64_t began = bs_rank_clock_ns(rank);
  if (rc == BS_OK) rc = bs_tp_mlp_forward(mlp, &x, &y, err);
  if (rc == BS_OK) rc = bs_rank_sync(rank, err);
  ns[bs_rank_get_api()->rank(rank)] = bs_rank_clock_ns(rank) - began;
  bs_tp_tensor_free(rank, &x);
  bs_tp_tensor_free(rank, &y);
  bs_tp_mlp_free(mlp);
  bs_source_release(&w1);
  bs_source_release(&w2);
  return rc;
}

/* On 0.5 us and 50 GB/s a ring of 2 ranks takes 21.971520 us for it, one of 8 43.700160 us, one of 64
 * 104.287680 us: that of the tensor group, and not of the world. */
START_TEST(test_t6_simulated_time) {
  static const char *const params[] = {"sim.alpha_s=0.5e-6", "sim.bw_Bps=50e9"};
  static const struct {
    uint32_t tensor_size;
    uint64_t ns;
  } rows[] = {{2, 21972}, {8, 43700}, {64, 104288}};
  const bs_context_options c = {.struct_size = sizeof c, .params = params, .n_params = 2};
  const bs_world_options world = {.struct_size = sizeof world,
                                  .world_size = 64,
                                  .backend = "sim",
                                  .comm = "sim",
                                  .sync_mode = BS_SYNC_NONE};
  const bs_tp_spawn_options o = {
      .struct_size = sizeof o, .tensor_size = rows[_i].tensor_size, .world = &world};
  uint64_t ns[64] = {0};
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(&c, &context, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_tp_spawn(context, &o, timed_mlp, ns, &err) == BS_OK, "%s", err.message);
  for (int r = 0; r < 64; ++r) ck_assert_uint_eq(ns[r], rows[_i].ns);
  bs_context_close(context);
}
END_TEST

/* ---- T3 and T5, with memory that the ranks share ------------------------------------------------ */

/* A collective that nobody waited for has been done, in memory that outlives the rank. */
START_TEST(test_t3_orphan_is_done) {
  open_context(_i);
  const bs_world_options world = world_of(2);
  bs_tp_spawn_options o = {.struct_size = sizeof o, .tensor_size = 2, .world = &world};
  float out[2][30] = {{0}};
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_tp_spawn(context, &o, t3_orphan, out, &err) == BS_OK, "%s", err.message);
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 30; ++i) ck_assert_float_eq(out[r][i], 1.0f + 2.0f * (float)i);
  bs_context_close(context);
}
END_TEST

/* Threads: rank 1 starts its sum when rank 0 has written into the tensor that its own sum writes. */
START_TEST(test_t5_write_waits_for_nothing) {
  open_context(THREADS);
  const bs_world_options world = world_of(2);
  bs_tp_spawn_options o = {.struct_size = sizeof o, .tensor_size = 2, .world = &world};
  _Atomic uint32_t written = 0;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_tp_spawn(context, &o, t5_writers, &written, &err) == BS_OK, "%s", err.message);
  bs_context_close(context);
}
END_TEST

/* A list of numbers with commas in them could not be read. */
static int32_t written(bs_rank *rank, void *user, bs_error *err) {
  const float value[2] = {0.5f, -1.25f};
  bs_tensor t = {0};
  int32_t rc = bs_tp_tensor_make(rank, BS_F32, 1, 2, &t, err);
  if (rc == BS_OK) rc = bs_tp_copy_in(rank, value, &t, err);
  if (rc == BS_OK) rc = bs_tp_format(rank, &t, user, 64, err);
  bs_tp_tensor_free(rank, &t);
  return rc;
}

START_TEST(test_text_has_points_in_a_comma_locale) {
  open_context(THREADS);
  const bs_world_options world = world_of(1);
  bs_tp_spawn_options o = {.struct_size = sizeof o, .tensor_size = 1, .world = &world};
  char text[64] = "";
  bs_error err = BS_ERROR_INIT;
  (void)comma_locale();
  ck_assert_msg(bs_tp_spawn(context, &o, written, text, &err) == BS_OK, "%s", err.message);
  ck_assert_str_eq(text, "f32 [1, 2]\n[[0.5, -1.25]]\n");
  bs_context_close(context);
}
END_TEST

/* ---- join ------------------------------------------------------------------------------------- */

typedef struct gate {
  _Atomic uint32_t open, fail;
} gate;

/* Waits for the test; then rank 0 may fail. */
static int32_t gated(bs_rank *rank, void *user, bs_error *err) {
  gate *g = user;
  double sum = 0.0;
  while (!atomic_load(&g->open)) sched_yield();
  if (atomic_load(&g->fail) && bs_rank_get_api()->rank(rank) == 0)
    return bs_error_set(err, BS_NUMERIC, "T4-JOIN", "the gate says so");
  return body_sum(rank, NULL, 1.0, &sum, err);
}

START_TEST(test_t4_join) {
  open_context(_i % WAYS);
  const uint32_t fail = (uint32_t)_i / WAYS;
  const bs_world_options world = world_of(2);
  told heard = {.n = 0};
  bs_tp_spawn_options o = {.struct_size = sizeof o, .world = &world, .failed = hear, .failed_user = &heard};
  gate g = {.open = 0, .fail = fail};
  bs_tp_job *job = NULL;
  bs_error err = BS_ERROR_INIT;
  uint32_t done = 7;
  ck_assert_int_eq(bs_tp_spawn_start(context, &o, gated, &g, &job, &err), BS_OK);
  ck_assert_int_eq(bs_tp_join(job, 0.0, &done, &err), BS_OK);
  ck_assert_uint_eq(done, 0);
  ck_assert_int_eq(bs_tp_join(job, 0.001, &done, &err), BS_OK);
  ck_assert_uint_eq(done, 0);
  atomic_store(&g.open, 1);
  for (int again = 0; again < 2; ++again) {
    ck_assert_int_eq(bs_tp_join(job, -1.0, &done, &err), fail ? BS_NUMERIC : BS_OK);
    ck_assert_uint_eq(done, 1);
    ck_assert_uint_eq(heard.n, fail);
  }
  if (fail) ck_assert_str_eq(err.message, "1 of 2 ranks failed: rank 0: the gate says so");
  bs_tp_job_free(job);
  bs_tp_job_free(NULL);
  bs_context_close(context);
}
END_TEST

START_TEST(test_t4_refused) {
  open_context(THREADS);
  bs_world_options world = world_of(0);
  bs_tp_spawn_options o = {.struct_size = sizeof o};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_tp_spawn(context, &o, t4_once, NULL, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-TP-SPAWN");
  o.world = &world;
  ck_assert_int_eq(bs_tp_spawn(context, &o, NULL, NULL, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_tp_spawn(context, &o, t4_once, NULL, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "0 ranks"));
  world.world_size = 2;
  world.backend = "nosuch";
  ck_assert_int_eq(bs_tp_spawn(context, &o, t4_once, NULL, &err), BS_NOT_FOUND);
  world.backend = "ref";
  o.tensor_size = 3; /* each rank refuses it */
  ck_assert_int_eq(bs_tp_spawn(context, &o, t4_once, NULL, &err), BS_CONFIG);
  ck_assert_str_eq(err.message, "2 of 2 ranks failed: ranks 0-1: tensor groups of 3 ranks in a world of 2");
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{test_bodies, tp_n_bodies * WAYS},
                             {test_t6_simulated_time, 3},
                             {test_t3_orphan_is_done, WAYS},
                             {test_t5_write_waits_for_nothing},
                             {test_t4_nothing_to_spawn},
                             {test_t4_runs_once_a_rank, WAYS},
                             {test_t4_root_causes, WAYS},
                             {test_t4_join, 2 * WAYS},
                             {test_t4_refused},
                             {test_text_has_points_in_a_comma_locale},
                             {0}};
  return run_tests("tp", tests, (test_setup){0});
}
