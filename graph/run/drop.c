/* SPDX-License-Identifier: MIT
 * drop.c - pages of mapped constants that were read to pack or to lower are given back: the file has them
 * still. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "graph/run/run.h"

typedef struct span {
  uintptr_t first, end;
} span;

/* A line of /proc/self/maps: the next mapping of a file that this process cannot write. Only there are
 * dropped pages read again from the file. */
static int next_read_only(FILE *maps, span *out) {
  char line[512];
  /* "55d0a000-55d0b000 r--p 00000000 fe:01 1234  /path": an inode of 0 is no file */
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    char *at = line;
    out->first = strtoull(at, &at, 16);
    if (*at != '-') continue;
    out->end = strtoull(at + 1, &at, 16);
    if (at[0] != ' ' || at[1] != 'r' || at[2] != '-') continue;
    at += 5;                /* after the rights */
    strtoull(at, &at, 16);  /* offset */
    at += strcspn(at, ":"); /* device */
    if (*at != ':') continue;
    strtoull(at + 1, &at, 16);
    if (strtoull(at, NULL, 10) != 0) return 1; /* inode */
  }
  return 0;
}

static span whole_pages(const void *data, uint64_t bytes) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  return (span){((uintptr_t)data + page - 1u) & ~(page - 1u), ((uintptr_t)data + bytes) & ~(page - 1u)};
}

static void give_back(const span *s) {
  madvise((void *)s->first, s->end - s->first, MADV_DONTNEED);
}

static int is_mapped(const span *own) {
  span map;
  int found = 0;
  FILE *maps = fopen("/proc/self/maps", "re");
  while (!found && next_read_only(maps, &map)) found = own->first >= map.first && own->end <= map.end;
  if (maps != NULL) fclose(maps);
  return found;
}

void gdrop_mapped(const void *data, uint64_t bytes) {
  enum { LEAST = 256 << 10 };
  const span own = whole_pages(data, bytes);
  if (own.end > own.first && own.end - own.first >= LEAST && is_mapped(&own)) give_back(&own);
}

/* Pages of small constants stay: a run reads them, and a page that is read maps those around it again. */
void gdrop_constants(const gmodel *m) {
  enum { LEAST = 64 << 10 };
  span map;
  FILE *maps = fopen("/proc/self/maps", "re");
  while (next_read_only(maps, &map))
    for (uint32_t i = 0; i < m->n_values; i++) {
      const gmodel_value *v = &m->values[i];
      if (v->kind != GMODEL_CONSTANT || v->bytes < LEAST) continue;
      const span own = whole_pages(v->data, v->bytes);
      if (own.first >= map.first && own.end <= map.end && own.end > own.first) give_back(&own);
    }
  if (maps != NULL) fclose(maps);
}
