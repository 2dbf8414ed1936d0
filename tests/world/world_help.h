/* SPDX-License-Identifier: MIT
 * world_help.h - a context with the fixture plugin, and worlds in one line. Used by the tests here. */
#ifndef BS_TESTS_WORLD_HELP_H
#define BS_TESTS_WORLD_HELP_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "tests/marks.h"

static bs_context *context;
static bs_error err;

static inline void open_plugins(const char *id, const char *other) {
  static char path[4096], second[4096];
  const char *binary = getenv("BS_TEST_BINARY_DIR");
  const char *plugins[2] = {path, second};
  ck_assert_msg(binary != NULL, "BS_TEST_BINARY_DIR is not set");
  snprintf(path, sizeof path, "%s/tests/world_fixtures/bs_%s.so", binary, id);
  if (other != NULL) snprintf(second, sizeof second, "%s/tests/world_fixtures/bs_%s.so", binary, other);
  bs_context_options o = {
      .struct_size = sizeof o, .plugins = plugins, .n_plugins = other != NULL ? 2 : 1, .trust = BS_TRUST_ANY};
  int32_t rc = bs_context_open(&o, &context, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
}
static inline void open_plugin(const char *id) {
  open_plugins(id, NULL);
}
static inline void open_context(void) {
  open_plugin("testworld");
}
static inline void close_context(void) {
  bs_context_close(context);
}

static inline bs_world_options options(uint32_t size, const char *backend) {
  bs_world_options o = {
      .struct_size = sizeof o, .world_size = size, .backend = backend, .threads_per_rank = 1};
  return o;
}
static inline bs_world *world_of(const bs_world_options *o) {
  bs_world *world = NULL;
  int32_t rc = bs_world_create(context, o, &world, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  return world;
}
/* Run and expect a status; the world stays. */
static inline void run(bs_world *world, int32_t (*rank_main)(bs_rank *, void *, bs_error *), void *arg,
                       int32_t want) {
  memset(&err, 0, sizeof err);
  int32_t rc = bs_world_run(world, rank_main, arg, &err);
  ck_assert_msg(rc == want, "status %d, not %d: %s %s", rc, want, err.id, err.message);
}
/* The same in a new world, which ends with it. */
static inline void run_by(const bs_world_options *o, int32_t (*rank_main)(bs_rank *, void *, bs_error *),
                          void *arg, int32_t want) {
  bs_world *world = world_of(o);
  run(world, rank_main, arg, want);
  bs_world_destroy(world);
}
static inline void run_once(uint32_t size, const char *backend,
                            int32_t (*rank_main)(bs_rank *, void *, bs_error *), void *arg, int32_t want) {
  const bs_world_options o = options(size, backend);
  run_by(&o, rank_main, arg, want);
}
static inline uint32_t rank_of(bs_rank *rank) {
  return bs_rank_get_api()->rank(rank);
}

/* A matrix in memory of the test. */
static inline bs_tensor view_of(void *data, uint32_t dtype, int64_t rows, int64_t cols, int64_t stride) {
  const bs_tensor t = {.struct_size = sizeof t,
                       .dtype = dtype,
                       .rank = 2,
                       .dims = {rows, cols},
                       .strides = {stride, 1},
                       .data = data,
                       .bytes = (uint64_t)(rows * stride) * BS_DTYPE_BYTES(dtype)};
  return t;
}
/* A collective of f32 values. */
static inline bs_collective collective_of(uint32_t kind, uint64_t rows, uint64_t count, const char *site) {
  const bs_collective d = {
      .struct_size = sizeof d, .kind = kind, .dtype_in = BS_F32, .rows = rows, .count = count, .site = site};
  return d;
}

#endif
