/* SPDX-License-Identifier: MIT
 * A rank that is the caller's own thread (bs_world_enter), of a world of one or of processes, and the
 * reference backend behind the world's own (bs_world_options.fallback). */
#include <pthread.h>

#include "core/op/dispatch.h"
#include "core/world/executor.h"
#include "core/world/world.h"
#include "tests/run_tests.h"
#include "world_help.h"

static bs_tensor_desc matrix(uint32_t dtype, int64_t rows, int64_t cols) {
  return (bs_tensor_desc){
      .struct_size = sizeof(bs_tensor_desc), .dtype = dtype, .rank = 2, .dims = {rows, cols}};
}

/* An f64 product of ones, [2,3] by [4,3], which only ref computes. Returns what pack says. */
static int32_t product(bs_rank *rank, bs_error *e) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_tensor_desc x = matrix(BS_F64, 2, 3), y = matrix(BS_F64, 2, 4);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  const double ones[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  bs_op_query q = {.struct_size = sizeof q, .op = "matmul", .nargs = 4, .args = args, .weight_dtype = BS_F64};
  bs_source source;
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  bs_tensor tx = {0}, ty = {0};
  bs_tensor *tensors[4] = {&tx, NULL, NULL, &ty};
  ck_assert_int_eq(bs_source_from_memory(ones, BS_F64, 4, 3, 3, &source, e), BS_OK);
  int32_t rc = api->pack(rank, &q, &source, &packed, e);
  bs_source_release(&source);
  if (rc != BS_OK) return rc;
  ck_assert_int_eq(api->op_prepare(rank, &q, packed, &plan, e), BS_OK);
  ck_assert(bs_dispatch_is_fallback(plan));
  ck_assert_int_eq(api->tensor_alloc(rank, &x, BS_LIFE_ACTIVATION, &tx, e), BS_OK);
  ck_assert_int_eq(api->tensor_alloc(rank, &y, BS_LIFE_ACTIVATION, &ty, e), BS_OK);
  memcpy(tx.data, ones, 6 * sizeof *ones);
  ck_assert_int_eq(api->op_run(plan, tensors, 4, NULL, e), BS_OK);
  for (int i = 0; i < 8; i++) ck_assert_double_eq(((double *)ty.data)[i], 3.0);
  api->op_release(plan);
  api->packed_release(packed);
  api->tensor_free(rank, &tx);
  api->tensor_free(rank, &ty);
  return BS_OK;
}

/* ---- entering ------------------------------------------------------------------------------- */

static void count_members(void *arg, uint32_t member, uint32_t width) {
  atomic_fetch_add((_Atomic uint32_t *)arg, 1u + (member == 0 && width == 2) * 100u);
}

static void use(bs_world *world) {
  bs_error e = {.struct_size = sizeof e};
  bs_rank *rank = NULL;
  _Atomic uint32_t seen = 0;
  ck_assert_msg(bs_world_enter(world, &rank, &e) == BS_OK, "%s", e.message);
  ck_assert_ptr_eq(rank, bs_world_rank(world, 0));
  ck_assert(pthread_equal(rank->thread, pthread_self()));
  ck_assert_int_eq(bs_rank_get_api()->parallel_for(rank, count_members, &seen), BS_OK);
  ck_assert_uint_eq(seen, 102);
  ck_assert_msg(product(rank, &e) == BS_OK, "%s", e.message);
  ck_assert_int_eq(bs_world_enter(world, &rank, &e), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(e.id, "BS-WORLD-ENTER");
  ck_assert_int_eq(bs_world_run(world, NULL, NULL, &e), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(e.id, "BS-WORLD-ENTER");
  ck_assert_int_eq(bs_world_leave(world, &e), BS_OK);
  ck_assert_int_eq(bs_world_leave(world, &e), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_log_rank(), -1);
}

static void *use_there(void *world) {
  use(world);
  return NULL;
}

static int32_t product_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)arg;
  return product(rank, e);
}

START_TEST(the_caller_is_the_rank) {
  pthread_t other;
  cpu_set_t before, after;
  bs_world_options o = options(1, "cpu");
  o.threads_per_rank = 2;
  o.bind = _i > 0;
  o.fallback = 1;
  bs_world *world = world_of(&o);
  CPU_ZERO(&before);
  CPU_SET(*bs_world_cores(world, 0), &before); /* where it would be pinned */
  if (_i == 2) ck_assert_int_eq(pthread_setaffinity_np(pthread_self(), sizeof before, &before), 0);
  pthread_getaffinity_np(pthread_self(), sizeof before, &before);
  use(world);
  pthread_getaffinity_np(pthread_self(), sizeof after, &after);
  ck_assert(CPU_EQUAL(&before, &after)); /* a pinned caller gets its cores back */
  run(world, product_main, NULL, BS_OK);
  ck_assert_int_eq(pthread_create(&other, NULL, use_there, world), 0);
  pthread_join(other, NULL);
  ck_assert_uint_eq(bs_world_memory_now(world), 0);
  bs_world_destroy(world);
}
END_TEST

START_TEST(worlds_that_cannot_be_entered) {
  bs_error e = {.struct_size = sizeof e};
  bs_rank *rank = NULL;
  bs_world_options o = options(2, "cpu");
  bs_world *world = world_of(&o);
  ck_assert_int_eq(bs_world_enter(world, &rank, &e), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(e.id, "BS-WORLD-ENTER");
  ck_assert_ptr_null(rank);
  bs_world_destroy(world);
  o.world_size = 1;
  world = world_of(&o);
  ck_assert_int_eq(bs_world_enter(world, &rank, &e), BS_OK);
  bs_rank_get_api()->region_end(rank, BS_REGION_FORWARD); /* was not begun: a misuse */
  ck_assert_int_ne(bs_world_leave(world, &e), BS_OK);
  ck_assert_str_ne(e.message, "");
  ck_assert_int_eq(bs_world_enter(world, &rank, &e), BS_INVALID_ARGUMENT);
  bs_world_destroy(world);
}
END_TEST

/* ---- the own rank of processes: 1 of 3 ------------------------------------------------------- */

static int32_t seen_main(bs_rank *rank, void *arg, bs_error *e) {
  (void)e;
  *(uint32_t *)arg += rank_of(rank);
  return BS_OK;
}
static bs_world *joined_world(uint32_t bind) {
  bs_world_options o = options(3, "ref");
  o.comm = "joined";
  o.config_hash = 77;
  o.bind = bind;
  return world_of(&o);
}
static bs_rank *enter(bs_world *world) {
  bs_error e = {.struct_size = sizeof e};
  bs_rank *rank = NULL;
  ck_assert_msg(bs_world_enter(world, &rank, &e) == BS_OK, "%s", e.message);
  ck_assert_ptr_eq(rank, bs_world_rank(world, 1));
  return rank;
}

START_TEST(the_own_rank_of_processes_is_entered) {
  bs_error e = {.struct_size = sizeof e};
  cpu_set_t before, now;
  uint32_t runs = 0;
  bs_world *world = joined_world((uint32_t)_i);
  pthread_getaffinity_np(pthread_self(), sizeof before, &before);
  for (int i = 0; i < 100; ++i) {
    bs_rank *rank = enter(world);
    ck_assert_uint_eq(rank_of(rank), 1);
    ck_assert(pthread_equal(rank->thread, pthread_self()));
    ck_assert_int_eq(bs_log_rank(), 1);
    pthread_getaffinity_np(pthread_self(), sizeof now, &now);
    ck_assert(_i == 0 || (CPU_COUNT(&now) == 1 && CPU_ISSET(*bs_world_cores(world, 1), &now)));
    ck_assert_int_eq(bs_world_leave(world, &e), BS_OK);
    ck_assert_int_eq(bs_log_rank(), -1);
    if (i % 10 == 0) run(world, seen_main, &runs, BS_OK);
  }
  ck_assert_uint_eq(runs, 10);
  pthread_getaffinity_np(pthread_self(), sizeof now, &now);
  ck_assert(CPU_EQUAL(&before, &now));
  bs_world_destroy(world);
}
END_TEST

/* The error of another process comes to the caller. The world fails when the caller says so. */
START_TEST(the_caller_fails_its_world) {
  bs_error e = {.struct_size = sizeof e};
  bs_rank *rank = NULL;
  bs_world *world = joined_world(0);
  ck_assert_int_eq(bs_rank_barrier(enter(world), "meet", &e), BS_ABORTED);
  ck_assert_int_eq(bs_world_leave(world, NULL), BS_OK);
  enter(world);
  bs_world_fail(world, BS_ABORTED, &e);
  ck_assert_int_eq(bs_world_leave(world, &e), BS_NUMERIC); /* the code that the other process ended with */
  ck_assert_int_eq(e.rank, 2);
  ck_assert_int_eq(bs_world_enter(world, &rank, &e), BS_INVALID_ARGUMENT);
  run(world, seen_main, NULL, BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-WORLD-FAILED");
  bs_world_destroy(world);
  world = joined_world(0);
  bs_world_fail(world, BS_NUMERIC, &e);                           /* not entered: nothing */
  bs_rank_get_api()->region_end(enter(world), BS_REGION_FORWARD); /* was not begun: a misuse */
  ck_assert_int_ne(bs_world_leave(world, &e), BS_OK);
  ck_assert_int_eq(e.rank, 1);
  ck_assert_int_eq(bs_world_enter(world, &rank, &e), BS_INVALID_ARGUMENT);
  bs_world_destroy(world);
}
END_TEST

/* ---- fallback ------------------------------------------------------------------------------- */

START_TEST(ref_serves_where_it_is_asked_to) {
  bs_choice_info info = {.struct_size = sizeof info};
  bs_world_options o = options(1, "cpu");
  bs_world *world = world_of(&o);
  run(world, product_main, NULL, BS_UNSUPPORTED); /* not by default */
  ck_assert_str_eq(err.id, "BS-OP-NONE");
  bs_world_destroy(world);
  o.fallback = 1;
  world = world_of(&o);
  run(world, product_main, NULL, BS_OK);
  ck_assert_ptr_nonnull(strstr(bs_world_algorithms(world), "matmul@ref/portable"));
  ck_assert_int_eq(bs_world_choice_get(world, 0, &info, &err), BS_OK);
  ck_assert_str_eq(info.chosen, "ref:portable");
  bs_world_destroy(world);
  o.backend = "evdev"; /* its memory is none that ref may touch */
  world = world_of(&o);
  run(world, product_main, NULL, BS_UNSUPPORTED);
  bs_world_destroy(world);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_caller_is_the_rank, 3},
                             {worlds_that_cannot_be_entered},
                             {the_own_rank_of_processes_is_entered, 2},
                             {the_caller_fails_its_world},
                             {ref_serves_where_it_is_asked_to},
                             {0}};
  return run_tests("world_enter", tests, (test_setup){open_context, close_context, 30});
}
