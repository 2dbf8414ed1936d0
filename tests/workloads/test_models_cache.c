/* SPDX-License-Identifier: MIT
 * test_models_cache.c - the cache of the model-like workloads: each unit is made once while there is room,
 * the bound holds, units in use stay, failures are passed on and tried again, and many threads read right
 * values. */
#include <pthread.h>
#include <stdatomic.h>

#include "plugins/workloads/models/cache.h"
#include "tests/formats/files.h"
#include "tests/run_tests.h"

enum { WORDS = 16, UNITS = 40 };

typedef struct maker {
  atomic_int made[UNITS], busy[UNITS];
  atomic_int fail; /* this many builds fail */
} maker;

static void *take(void *ctx, uint64_t bytes, uint64_t align) {
  (void)ctx;
  (void)align;
  return calloc(1, bytes);
}
static void give(void *ctx, void *p) {
  (void)ctx;
  free(p);
}
static const bs_host host = {.struct_size = sizeof host, .alloc = take, .free = give};

static int32_t build(void *ctx, int64_t unit, void *out, bs_error *err) {
  maker *m = ctx;
  uint32_t *words = out;
  if (atomic_fetch_add(&m->busy[unit], 1) != 0)
    return bs_fail(err, BS_INTERNAL, "BS-TEST", "unit %d is made twice at once", (int)unit);
  for (uint32_t i = 0; i < WORDS; i++) words[i] = (uint32_t)unit * 1000u + i;
  atomic_fetch_add(&m->made[unit], 1);
  atomic_fetch_sub(&m->busy[unit], 1);
  if (atomic_load(&m->fail) > 0) {
    atomic_fetch_sub(&m->fail, 1);
    return bs_fail(err, BS_NO_MEMORY, "BS-TEST", "as asked");
  }
  return BS_OK;
}

static models_cache *make(maker *m, uint64_t max_bytes, int64_t min_kept) {
  const models_cache_spec spec = {&host, UNITS, WORDS * sizeof(uint32_t), max_bytes, min_kept, build, m};
  models_cache *c = NULL;
  bs_error err;
  ck_assert_int_eq(models_cache_make(&spec, &c, &err), BS_OK);
  return c;
}

/* Reads a unit; returns whether its words are right. */
static int right(models_cache *c, int64_t unit) {
  const void *data = NULL;
  int64_t slot = -1;
  bs_error err;
  if (models_cache_get(c, unit, &data, &slot, &err) != BS_OK) return 0;
  const uint32_t *words = data;
  int good = words[0] == (uint32_t)unit * 1000u && words[WORDS - 1] == (uint32_t)unit * 1000u + WORDS - 1;
  models_cache_release(c, slot);
  return good;
}

START_TEST(each_unit_is_made_once) {
  maker m = {0};
  bs_error err;
  models_cache *c = make(&m, 1 << 20, 1);
  ck_assert_uint_eq(models_cache_bytes(c), 0);
  ck_assert_int_eq(models_cache_share(c, 10, 5, &err), BS_OK);
  for (int turn = 0; turn < 3; turn++)
    for (int u = 0; u < UNITS; u++) ck_assert(right(c, u));
  for (int u = 0; u < UNITS; u++) ck_assert_int_eq(atomic_load(&m.made[u]), 1);
  ck_assert_uint_eq(models_cache_bytes(c), UNITS * WORDS * sizeof(uint32_t));
  models_cache_free(c);
}
END_TEST

START_TEST(the_bound_holds) {
  maker m = {0};
  bs_error err;
  models_cache *c = make(&m, 1000, 1); /* at most 15 units of 64 bytes; fewer with what describes them */
  for (int turn = 0; turn < 3; turn++)
    for (int u = 0; u < UNITS; u++) {
      ck_assert(right(c, u));
      ck_assert_uint_le(models_cache_bytes(c), 1000);
    }
  ck_assert_uint_ge(models_cache_bytes(c), 256);
  ck_assert_int_eq(atomic_load(&m.made[0]), 3);
  /* What was read last is still there; sharing makes nothing that cannot be kept. */
  ck_assert(right(c, UNITS - 1));
  ck_assert_int_eq(atomic_load(&m.made[UNITS - 1]), 3);
  ck_assert_int_eq(models_cache_share(c, 0, 8, &err), BS_OK);
  ck_assert_int_eq(atomic_load(&m.made[0]), 3);
  models_cache_free(c);
  maker few = {0};
  c = make(&few, 0, 7);
  for (int turn = 0; turn < 3; turn++)
    for (int u = 0; u < 7; u++) ck_assert(right(c, u));
  for (int u = 0; u < 7; u++) ck_assert_int_eq(atomic_load(&few.made[u]), 1);
  ck_assert_uint_eq(models_cache_bytes(c), 7 * WORDS * sizeof(uint32_t));
  models_cache_free(c);
}
END_TEST

START_TEST(a_unit_in_use_stays) {
  maker m = {0};
  const void *data = NULL;
  int64_t slot;
  bs_error err;
  models_cache *c = make(&m, 0, 2);
  ck_assert_int_eq(models_cache_get(c, 3, &data, &slot, &err), BS_OK);
  for (int u = 4; u < UNITS; u++) ck_assert(right(c, u));
  ck_assert_uint_eq(((const uint32_t *)data)[1], 3001);
  models_cache_release(c, slot);
  models_cache_free(c);
}
END_TEST

START_TEST(a_failure_is_passed_on_and_tried_again) {
  maker m = {0};
  const void *data = NULL;
  int64_t slot;
  bs_error err;
  for (int way = 0; way < 2; way++) {
    models_cache *c = make(&m, way == 0 ? 1 << 20 : 0, 2);
    atomic_store(&m.fail, 2);
    ck_assert_int_eq(models_cache_get(c, 5, &data, &slot, &err), BS_NO_MEMORY);
    ck_assert_str_eq(err.id, "BS-TEST");
    if (way == 0)
      ck_assert_int_eq(models_cache_share(c, 5, 2, &err), BS_NO_MEMORY);
    else
      ck_assert_int_eq(models_cache_get(c, 6, &data, &slot, &err), BS_NO_MEMORY);
    ck_assert(right(c, 5) && right(c, 6) && right(c, 7));
    models_cache_free(c);
  }
}
END_TEST

typedef struct reader {
  models_cache *cache;
  unsigned seed;
  int wrong, share;
} reader;

static void *read_many(void *arg) {
  reader *r = arg;
  bs_error err;
  for (int i = 0; i < 3000; i++) {
    r->seed = r->seed * 1103515245u + 12345u;
    int64_t unit = (r->seed >> 16) % UNITS;
    if (r->share && i % 50 == 0 && models_cache_share(r->cache, unit / 2, UNITS / 2, &err) != BS_OK)
      r->wrong++;
    if (!right(r->cache, unit)) r->wrong++;
  }
  return NULL;
}

/* More threads than slots: some must wait for one. */
START_TEST(many_readers) {
  enum { THREADS = 6 };
  static const struct {
    uint64_t bytes;
    int64_t kept;
  } sizes[] = {{1 << 20, 1}, {1000, 1}, {0, 3}, {0, 1}};
  maker m = {0};
  pthread_t threads[THREADS];
  reader readers[THREADS];
  models_cache *c = make(&m, sizes[_i].bytes, sizes[_i].kept);
  for (unsigned t = 0; t < THREADS; t++) {
    readers[t] = (reader){c, t * 77u + 1u, 0, t % 2 == 0};
    ck_assert_int_eq(pthread_create(&threads[t], NULL, read_many, &readers[t]), 0);
  }
  for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
  for (int t = 0; t < THREADS; t++) ck_assert_int_eq(readers[t].wrong, 0);
  for (int u = 0; u < UNITS && _i == 0; u++) ck_assert_int_eq(atomic_load(&m.made[u]), 1);
  models_cache_free(c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_unit_is_made_once}, {the_bound_holds},
                             {a_unit_in_use_stays},    {a_failure_is_passed_on_and_tried_again},
                             {many_readers, 4},        {0}};
  return run_tests("models_cache", tests, (test_setup){0});
}
