/* SPDX-License-Identifier: MIT
 * flush.c - see flush.h. The bytes are one block, written once and only read afterwards, so that all threads
 * can share it. */
#include "lab/measure/flush.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/error.h"

#define UNKNOWN_CACHE (32u << 20) /* if the machine does not report it */
enum { LINE = 64 };

struct bs_flush {
  size_t bytes;
  unsigned char *data;
};

static size_t last_level_bytes(void) {
  const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return l3 > 0 ? (size_t)l3 : l2 > 0 ? (size_t)l2 : UNKNOWN_CACHE;
}

int32_t bs_flush_make(bs_flush **out, bs_error *err) {
  bs_flush *f = calloc(1, sizeof *f);
  *out = NULL;
  if (f != NULL) {
    f->bytes = 2 * last_level_bytes();
    f->data = malloc(f->bytes);
  }
  if (f == NULL || f->data == NULL) {
    bs_no_memory(err, "the %zu bytes that flush the caches", f != NULL ? f->bytes : sizeof *f);
    bs_error_hint(err, "phase.cold=false goes without cold samples");
    bs_flush_free(f);
    return BS_NO_MEMORY;
  }
  memset(f->data, 1, f->bytes); /* gives it real pages: untouched pages would all map to the zero page */
  *out = f;
  return BS_OK;
}

uint64_t bs_flush_bytes(const bs_flush *f) {
  return f->bytes;
}

static void read_all(void *arg, uint32_t member, uint32_t width) {
  const bs_flush *f = arg;
  const volatile unsigned char *data = f->data;
  unsigned sum = 0;
  (void)member;
  (void)width;
  for (size_t i = 0; i < f->bytes; i += LINE) sum += data[i];
  (void)sum;
}

int32_t bs_flush_run(bs_flush *f, bs_rank *rank, bs_error *err) {
  return bs_rank_get_api()->parallel_for(rank, read_all, f) == BS_OK
             ? BS_OK
             : bs_error_set(err, BS_INTERNAL, "BS-FLUSH-TEAM", "the rank's threads did not flush the caches");
}

void bs_flush_free(bs_flush *f) {
  if (f == NULL) return;
  free(f->data);
  free(f);
}
