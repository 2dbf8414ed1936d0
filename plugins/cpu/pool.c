/* SPDX-License-Identifier: MIT
 *
 * pool.c - see pool.h. Blocks of a region follow each other, each behind a header; free neighbours are one
 * block. An allocation takes the first free block that is large enough. */
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LINE = 64, SPLIT = CPU_POOL_LEAST / 4 /* a smaller rest stays with its block */ };

typedef struct block {
  uint64_t bytes; /* with the header */
  uint64_t used;
  unsigned char rest[LINE - 16];
} block;
_Static_assert(sizeof(block) == LINE, "the bytes behind a header are aligned");

typedef struct region {
  struct region *next;
  unsigned node;   /* of the memory that its pages are wanted on */
  uint64_t blocks; /* in use */
  unsigned char *memory;
} region;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static region *regions;

static block *block_at(const region *r, uint64_t at) {
  return (block *)(void *)(r->memory + at);
}

/* The node of the processor that runs this thread; 0 where the system does not say. */
static unsigned node_here(void) {
  unsigned cpu = 0, node = 0;
  return getcpu(&cpu, &node) == 0 ? node : 0;
}

static region *region_new(unsigned node) {
  region *r = malloc(sizeof *r);
  void *memory = NULL;
  if (r == NULL || posix_memalign(&memory, HUGE_PAGE, CPU_POOL_REGION) != 0) {
    free(r);
    return NULL;
  }
  (void)madvise(memory, CPU_POOL_REGION, MADV_HUGEPAGE); /* advice only */
  *r = (region){.next = regions, .node = node, .memory = memory};
  *block_at(r, 0) = (block){.bytes = CPU_POOL_REGION};
  regions = r;
  return r;
}

/* The first free block of the region that has so many bytes; NULL: none. */
static block *region_take(region *r, uint64_t bytes) {
  for (uint64_t at = 0; at < CPU_POOL_REGION; at += block_at(r, at)->bytes) {
    block *b = block_at(r, at);
    if (b->used || b->bytes < bytes) continue;
    if (b->bytes - bytes >= SPLIT) {
      *block_at(r, at + bytes) = (block){.bytes = b->bytes - bytes};
      b->bytes = bytes;
    }
    b->used = 1;
    r->blocks++;
    return b;
  }
  return NULL;
}

/* A region is of one node, until it is empty. */
static int region_serves(region *r, unsigned node) {
  if (r->node == node) return 1;
  if (r->blocks > 0) return 0;
  r->node = node;
  (void)madvise(r->memory, HUGE_PAGE, MADV_DONTNEED); /* the page may lie far from this thread */
  *block_at(r, 0) = (block){.bytes = CPU_POOL_REGION};
  return 1;
}

void *cpu_pool_alloc(uint64_t bytes) {
  const uint64_t whole = LINE + (bytes + LINE - 1) / LINE * LINE;
  const unsigned node = node_here();
  block *b = NULL;
  pthread_mutex_lock(&lock);
  for (region *r = regions; b == NULL && r != NULL; r = r->next)
    if (region_serves(r, node)) b = region_take(r, whole);
  if (b == NULL) {
    region *r = region_new(node);
    if (r != NULL) b = region_take(r, whole);
  }
  pthread_mutex_unlock(&lock);
  return b != NULL ? b + 1 : NULL;
}

static void join_free(region *r) {
  for (uint64_t at = 0; at < CPU_POOL_REGION;) {
    block *b = block_at(r, at);
    const uint64_t next = at + b->bytes;
    if (!b->used && next < CPU_POOL_REGION && !block_at(r, next)->used)
      b->bytes += block_at(r, next)->bytes;
    else
      at = next;
  }
}

static void region_free(region **place) {
  region *r = *place;
  *place = r->next;
  free(r->memory);
  free(r);
}

/* One empty region stays, with its first huge page. */
static void region_drop(region **place) {
  for (const region *other = regions; other != NULL; other = other->next)
    if (other != *place && other->blocks == 0) {
      region_free(place);
      return;
    }
  (void)madvise((*place)->memory + HUGE_PAGE, CPU_POOL_REGION - HUGE_PAGE, MADV_DONTNEED); /* advice only */
}

int cpu_pool_free(void *ptr) {
  unsigned char *bytes = ptr;
  region **place = &regions;
  pthread_mutex_lock(&lock);
  while (*place != NULL && !(bytes > (*place)->memory && bytes < (*place)->memory + CPU_POOL_REGION))
    place = &(*place)->next;
  region *r = *place;
  if (r != NULL) {
    (((block *)ptr) - 1)->used = 0;
    r->blocks--;
    join_free(r);
    if (r->blocks == 0) region_drop(place);
  }
  pthread_mutex_unlock(&lock);
  return r != NULL;
}

void cpu_pool_trim(void) {
  pthread_mutex_lock(&lock);
  for (region **place = &regions; *place != NULL;)
    if ((*place)->blocks == 0)
      region_free(place);
    else
      place = &(*place)->next;
  pthread_mutex_unlock(&lock);
}

uint64_t cpu_pool_regions(void) {
  uint64_t n = 0;
  pthread_mutex_lock(&lock);
  for (const region *r = regions; r != NULL; r = r->next) n++;
  pthread_mutex_unlock(&lock);
  return n;
}
