/* SPDX-License-Identifier: MIT
 * drop.c - pages of a mapped weight that was packed are given back: the file has them still. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "graph/run/run.h"

/* Is first .. end - 1 in one mapping of a file that this process cannot write? Only there are dropped pages
 * read again from the file. */
static int is_read_only_file(uintptr_t first, uintptr_t end) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char line[512];
  int found = 0;
  /* "55d0a000-55d0b000 r--p 00000000 fe:01 1234  /path": an inode of 0 is no file */
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    char *at = line;
    const uintptr_t from = strtoull(at, &at, 16);
    if (*at != '-') continue;
    const uintptr_t to = strtoull(at + 1, &at, 16);
    if (first < from || end > to) continue;
    if (at[0] != ' ' || at[1] != 'r' || at[2] != '-') break;
    at += 5;                /* after the rights */
    strtoull(at, &at, 16);  /* offset */
    at += strcspn(at, ":"); /* device */
    if (*at != ':') break;
    strtoull(at + 1, &at, 16);
    found = strtoull(at, NULL, 10) != 0; /* inode */
    break;
  }
  if (maps != NULL) fclose(maps);
  return found;
}

void gdrop_mapped(const void *data, uint64_t bytes) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t first = ((uintptr_t)data + page - 1u) & ~(page - 1u),
                  end = ((uintptr_t)data + bytes) & ~(page - 1u);
  if (end <= first || end - first < 64u * page || !is_read_only_file(first, end)) return;
  madvise((void *)first, end - first, MADV_DONTNEED);
}
