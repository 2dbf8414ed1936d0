/* SPDX-License-Identifier: MIT
 * drop.c - pages of a mapped weight that was packed are given back: the file has them still. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "graph/run/run.h"

/* Is first .. end - 1 in one mapping of a file that this process cannot write? Only there are dropped pages
 * read again from the file. */
static int is_read_only_file(uintptr_t first, uintptr_t end) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char line[512], rights[8];
  uintptr_t from = 0, to = 0;
  uint64_t offset = 0, inode = 0;
  int found = 0;
  while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %" SCNx64 " %*s %" SCNu64, &from, &to, rights, &offset,
               &inode) != 5)
      continue;
    if (first < from || end > to) continue;
    found = 1;
  }
  if (maps != NULL) fclose(maps);
  return found && inode != 0 && rights[0] == 'r' && rights[1] == '-';
}

void gdrop_mapped(const void *data, uint64_t bytes) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t first = ((uintptr_t)data + page - 1u) & ~(page - 1u),
                  end = ((uintptr_t)data + bytes) & ~(page - 1u);
  if (end <= first || end - first < 64u * page || !is_read_only_file(first, end)) return;
  madvise((void *)first, end - first, MADV_DONTNEED);
}
