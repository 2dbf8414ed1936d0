/* SPDX-License-Identifier: MIT
 * test_wrap_world.c - names of wrapped things, what the host makes of them, and a rank that hangs in a
 * backend's op: the run ends at the deadline and half a second, and the rank is left behind. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static bs_context *open_with(const char *param) {
  bs_context_options o = {.struct_size = sizeof o, .log_level = BS_LOG_ERROR};
  bs_context *context = NULL;
  bs_error err = BS_ERROR_INIT;
  if (param != NULL) {
    o.params = &param;
    o.n_params = 1;
  }
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
  return context;
}

START_TEST(a_wrapped_communicator_is_the_inner_one_by_another_name) {
  bs_context *context = open_with(NULL);
  const bs_comm *plain, *wrapped, *again, *nested;
  void *state, *other;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_find_comm(context, "threads", &plain, &state, &err), BS_OK);
  ck_assert_msg(bs_find_comm(context, "fault:threads", &wrapped, &state, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_find_comm(context, "fault:threads", &again, &other, &err), BS_OK);
  ck_assert_msg(bs_find_comm(context, "fault:slow:threads", &nested, &other, &err) == BS_OK, "%s",
                err.message);
  ck_assert_ptr_eq(wrapped, again);
  ck_assert_str_eq(wrapped->name, "fault:threads");
  ck_assert_str_eq(nested->name, "fault:slow:threads");
  ck_assert_uint_eq(wrapped->launch, plain->launch);
  ck_assert(plain->world_drive == NULL); /* what the inner one lacks is lacking */
  ck_assert(wrapped->world_drive == NULL && nested->world_drive == NULL);
  ck_assert(wrapped->all_reduce != NULL && wrapped->group_open != NULL);
  ck_assert(wrapped->wrap == NULL && wrapped->unwrap == NULL);
  bs_context_close(context);
}
END_TEST

START_TEST(a_wrapped_backend_has_the_inner_ones_ops) {
  bs_context *context = open_with(NULL);
  const bs_backend *plain, *wrapped;
  void *state;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_find_backend(context, "ref", &plain, &state, &err), BS_OK);
  ck_assert_msg(bs_find_backend(context, "fault:slow:ref", &wrapped, &state, &err) == BS_OK, "%s",
                err.message);
  ck_assert_uint_eq(wrapped->flags, plain->flags);
  ck_assert_str_eq(wrapped->name, "fault:slow:ref");
  ck_assert((wrapped->native_handle == NULL) == (plain->native_handle == NULL));
  bs_context_close(context);
}
END_TEST

static const struct {
  const char *name;
  int32_t code;
  const char *id, *says;
} names[] = {
    {"fault", BS_CONFIG, "BS-PLG-WRAP", "needs an inner"},
    {"fault:", BS_CONFIG, "BS-PLG-WRAP", "empty"},
    {":threads", BS_CONFIG, "BS-PLG-WRAP", "empty"},
    {"threads:fault", BS_CONFIG, "BS-PLG-WRAP", "wraps nothing"},
    {"fault:slow", BS_CONFIG, "BS-PLG-WRAP", "'slow' needs an inner"},
    {"fault:nope", BS_NOT_FOUND, "BS-PLG-NOTFOUND", "'nope'"},
    {"nope:threads", BS_NOT_FOUND, "BS-PLG-NOTFOUND", "'nope'"},
    {"falt:threads", BS_NOT_FOUND, "BS-PLG-NOTFOUND", "fault:"},
};

START_TEST(bad_names_are_told) {
  bs_context *context = open_with(NULL);
  const bs_comm *comm;
  void *state;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_find_comm(context, names[_i].name, &comm, &state, &err), names[_i].code);
  ck_assert_str_eq(err.id, names[_i].id);
  /* A plugin for tests is not listed in the message; the hint offers it where its name is near. */
  const char *place = strcmp(names[_i].name, "falt:threads") == 0 ? err.hint : err.message;
  ck_assert_msg(strstr(place, names[_i].says) != NULL, "%s: %s; %s", names[_i].name, err.message, err.hint);
  bs_context_close(context);
}
END_TEST

START_TEST(a_bad_plan_is_told_when_it_is_used) {
  bs_context *context = open_with("fault.plan=rank=1,do=sleep");
  const bs_comm *comm;
  void *state;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_find_comm(context, "threads", &comm, &state, &err), BS_OK);
  ck_assert_int_eq(bs_find_comm(context, "fault:threads", &comm, &state, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-WRAP-PLAN");
  ck_assert_msg(strstr(err.message, "character 11") != NULL, "%s", err.message);
  bs_context_close(context);
}
END_TEST

/* A stop would end no rank's wait: where ranks are threads, all of them stop. */
START_TEST(a_stop_of_threads_is_refused) {
  bs_context *context = open_with("fault.plan=rank=0,op=matmul,do=flip;rank=1,op=all_reduce,seq=0,do=stop");
  const bs_comm *comm;
  void *state;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_find_comm(context, "fault:threads", &comm, &state, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-WRAP-PLAN");
  ck_assert_msg(strstr(err.message, "step 2: do=stop") != NULL, "%s", err.message);
  ck_assert_int_eq(bs_find_comm(context, "fault:shm", &comm, &state, &err), BS_OK);
  bs_context_close(context);
}
END_TEST

START_TEST(wrappers_are_told_apart) {
  bs_context *context = open_with(NULL);
  bs_error err = BS_ERROR_INIT;
  bs_thing_info thing = {.struct_size = sizeof thing};
  ck_assert_int_eq(bs_plugin_activate(context, "fault", &err), BS_OK);
  ck_assert_uint_eq(bs_thing_count(context, "fault"), 2);
  ck_assert_int_eq(bs_thing_get(context, "fault", 0, &thing, &err), BS_OK);
  ck_assert_uint_eq(thing.wrapper, 1);
  ck_assert_int_eq(bs_plugin_activate(context, "threads", &err), BS_OK);
  ck_assert_int_eq(bs_thing_get(context, "threads", 0, &thing, &err), BS_OK);
  ck_assert_uint_eq(thing.wrapper, 0);
  bs_context_close(context);
}
END_TEST

/* ---- a hang that nothing ends --------------------------------------------------------------- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Every rank asks for memory; rank 1 does not come back from it. */
static int32_t allocate(bs_rank *rank, void *arg, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_tensor_desc desc = {.struct_size = sizeof desc, .dtype = BS_F32, .rank = 1, .dims = {100}};
  bs_tensor tensor;
  (void)arg;
  const int32_t rc = api->tensor_alloc(rank, &desc, BS_LIFE_SCRATCH, &tensor, err);
  if (rc != BS_OK) return rc;
  api->tensor_free(rank, &tensor);
  return bs_rank_barrier(rank, "behind alloc", err);
}

static int32_t run_world(bs_context *context, double *out_seconds, bs_error *err) {
  const bs_world_options o = {.struct_size = sizeof o,
                              .world_size = 3,
                              .backend = "fault:ref",
                              .comm = "threads",
                              .threads_per_rank = 1,
                              .timeout_s = 0.3};
  bs_world *world = NULL;
  ck_assert_msg(bs_world_create(context, &o, &world, err) == BS_OK, "%s", err->message);
  const double start = now();
  const int32_t rc = bs_world_run(world, allocate, NULL, err);
  *out_seconds = now() - start;
  bs_world_destroy(world);
  return rc;
}

/* A machine that does something else meanwhile makes such times longer: one that it has not is enough. */
enum { TURNS = 5 };

START_TEST(a_rank_that_hangs_is_left_behind) {
  double seconds = 9.0;
  for (int turn = 0; turn < TURNS && seconds >= 1.3; turn++) {
    bs_context *context = open_with("fault.plan=rank=1,op=alloc,do=hang");
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(run_world(context, &seconds, &err), BS_DEADLINE);
    ck_assert_msg(strstr(err.message, "missing: rank 1") != NULL, "%s", err.message);
    ck_assert_uint_eq(bs_context_stuck(context), 1);
    bs_context_close(context); /* frees nothing */
    ck_assert_uint_eq(bs_context_stuck(context), 1);
  }
  ck_assert_msg(seconds < 1.3, "%.2f s", seconds);
}
END_TEST

/* One who is only late, and less than the grace, is waited for: everything is freed. */
START_TEST(a_rank_that_is_late_is_waited_for) {
  int32_t rc = BS_OK;
  uint64_t stuck = 1;
  for (int turn = 0; turn < TURNS && (rc != BS_DEADLINE || stuck != 0); turn++) {
    bs_context *context = open_with("fault.plan=rank=1,op=alloc,do=delay,ms=500");
    bs_error err = BS_ERROR_INIT;
    double seconds = 0.0;
    rc = run_world(context, &seconds, &err);
    stuck = bs_context_stuck(context);
    bs_context_close(context);
  }
  ck_assert_int_eq(rc, BS_DEADLINE);
  ck_assert_uint_eq(stuck, 0);
}
END_TEST

/* A message between processes is neither counted by a plan nor struck; any site of a layer is, whatever its
 * name. */
static int32_t control_then_own(bs_rank *rank, void *arg, bs_error *err) {
  float x[2] = {1.0f, 2.0f};
  bs_collective d = {.struct_size = sizeof d,
                     .kind = BS_COLL_ALL_REDUCE,
                     .dtype_in = BS_F32,
                     .rows = 1,
                     .count = 2,
                     .site = "lab.peers",
                     .flags = BS_COLL_CONTROL};
  (void)arg;
  ck_assert_int_eq(bs_rank_collective_host(rank, &d, x, 2, x, 2, err), BS_OK);
  d.flags = 0;
  return bs_rank_collective_host(rank, &d, x, 2, x, 2, err);
}

START_TEST(messages_between_processes_are_not_struck) {
  bs_context *context = open_with("fault.plan=rank=0,op=all_reduce,seq=0,do=err");
  const bs_world_options o = {.struct_size = sizeof o,
                              .world_size = 2,
                              .backend = "ref",
                              .comm = "fault:threads",
                              .threads_per_rank = 1,
                              .timeout_s = 5};
  bs_world *world = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_world_create(context, &o, &world, &err) == BS_OK, "%s", err.message);
  ck_assert_int_ne(bs_world_run(world, control_then_own, NULL, &err), BS_OK);
  ck_assert_msg(strstr(err.message, "injected") != NULL, "%s: %s", err.id, err.message);
  bs_world_destroy(world);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_wrapped_communicator_is_the_inner_one_by_another_name},
                             {a_wrapped_backend_has_the_inner_ones_ops},
                             {bad_names_are_told, TEST_COUNT(names)},
                             {a_bad_plan_is_told_when_it_is_used},
                             {a_stop_of_threads_is_refused},
                             {wrappers_are_told_apart},
                             {a_rank_that_hangs_is_left_behind},
                             {a_rank_that_is_late_is_waited_for},
                             {messages_between_processes_are_not_struck},
                             {0}};
  return run_tests("wrap_world", tests, (test_setup){0});
}
