/* SPDX-License-Identifier: MIT
 *
 * test_cpu_pool.c - regions of huge pages: blocks do not overlap, freed bytes are used again, empty regions
 * go, and threads have regions of their own. */
#include "plugins/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "tests/run_tests.h"

enum { BLOCKS = 200, ROUNDS = 6000 };

static uint64_t next_number(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return *seed >> 33;
}

/* Allocates and frees blocks of random sizes; each holds its own byte. 1: all did. */
static int blocks_keep_bytes(uint64_t seed) {
  unsigned char *blocks[BLOCKS] = {0};
  uint64_t sizes[BLOCKS] = {0}, wrong = 0;
  for (int i = 0; i < ROUNDS + BLOCKS; i++) {
    const uint64_t k = i < ROUNDS ? next_number(&seed) % BLOCKS : (uint64_t)(i - ROUNDS);
    if (blocks[k] != NULL) {
      for (uint64_t at = 0; at < sizes[k]; at += 4093) wrong += blocks[k][at] != (unsigned char)k;
      wrong += blocks[k][sizes[k] - 1] != (unsigned char)k || !cpu_pool_free(blocks[k]);
      blocks[k] = NULL;
    } else if (i < ROUNDS) {
      sizes[k] =
          CPU_POOL_LEAST + next_number(&seed) % (next_number(&seed) % 8 ? 60000 : CPU_POOL_MOST - 70000);
      blocks[k] = cpu_pool_alloc(sizes[k]);
      if (blocks[k] == NULL || (uintptr_t)blocks[k] % 64 != 0) return 0;
      memset(blocks[k], (int)k, sizes[k]);
    }
  }
  return wrong == 0;
}

static void *run_thread(void *seed) {
  return blocks_keep_bytes(*(uint64_t *)seed) ? seed : NULL;
}

START_TEST(keeps_bytes_of_threads) {
  pthread_t threads[2];
  uint64_t seeds[2] = {1, 2};
  for (int i = 0; i < 2; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, run_thread, &seeds[i]), 0);
  for (int i = 0; i < 2; i++) {
    void *right = NULL;
    ck_assert_int_eq(pthread_join(threads[i], &right), 0);
    ck_assert_msg(right != NULL, "thread %d: a block lost its bytes", i);
  }
  ck_assert_uint_eq(cpu_pool_regions(), 1); /* the empty one that stays */
  ck_assert(blocks_keep_bytes(3));          /* and serves this thread */
  cpu_pool_trim();
  ck_assert_uint_eq(cpu_pool_regions(), 0);
}
END_TEST

/* One processor is one memory node. */
static void stay_here(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(sched_getcpu(), &set);
  ck_assert_int_eq(sched_setaffinity(0, sizeof set, &set), 0);
}

static void *leave_a_block(void *unused) {
  (void)unused;
  return cpu_pool_alloc(CPU_POOL_LEAST);
}

/* A model that a thread has opened stays when the thread has ended. */
START_TEST(shares_a_region_with_ended_threads) {
  void *blocks[20];
  pthread_t thread;
  stay_here();
  for (int i = 0; i < TEST_COUNT(blocks); i++) {
    ck_assert_int_eq(pthread_create(&thread, NULL, leave_a_block, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, &blocks[i]), 0);
    ck_assert(blocks[i] != NULL && cpu_pool_alloc(CPU_POOL_LEAST) != NULL);
    ck_assert_uint_eq(cpu_pool_regions(), 1);
  }
  for (int i = 0; i < TEST_COUNT(blocks); i++) ck_assert(cpu_pool_free(blocks[i]));
}
END_TEST

/* Blocks that are freed and allocated again for hours need no more regions. */
START_TEST(uses_freed_bytes_again) {
  void *kept[30], *again[30];
  stay_here();
  for (int i = 0; i < 30; i++) {
    kept[i] = cpu_pool_alloc(CPU_POOL_LEAST);
    again[i] = cpu_pool_alloc(700000);
    ck_assert(kept[i] != NULL && again[i] != NULL);
  }
  ck_assert_uint_eq(cpu_pool_regions(), 1);
  for (int round = 0; round < 100; round++) {
    for (int i = 0; i < 30; i++) ck_assert(cpu_pool_free(again[i]));
    for (int i = 0; i < 30; i++) again[i] = cpu_pool_alloc(700000 - (uint64_t)round);
    ck_assert_uint_eq(cpu_pool_regions(), 1);
  }
  void *large = cpu_pool_alloc(CPU_POOL_MOST);
  for (int i = 0; i < 3; i++) ck_assert((again[i] = cpu_pool_alloc(CPU_POOL_MOST)) != NULL);
  ck_assert_uint_eq(cpu_pool_regions(), 2); /* 22 MB and 16 MiB */
  ck_assert(large != NULL && cpu_pool_free(large));
  ck_assert(!cpu_pool_free(&large)); /* of no region */
}
END_TEST

int main(void) {
  const test_case rows[] = {
      {keeps_bytes_of_threads}, {shares_a_region_with_ended_threads}, {uses_freed_bytes_again}, {0}};
  return run_tests("cpu pool", rows, (test_setup){0});
}
