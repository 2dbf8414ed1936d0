/* SPDX-License-Identifier: MIT
 * chakra_files.c - the files of a Chakra trace (chakra.h): which there are, and one after another. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/chakra.h"

/* The rank of a file PREFIX.RANK.et; -1: another name. */
static int64_t rank_of(const char *name, const char *prefix, size_t size) {
  char digits[8];
  const size_t length = strlen(name);
  int64_t rank = -1;
  if (length < size + 5 || length > size + 9 || strncmp(name, prefix, size) != 0 || name[size] != '.' ||
      strcmp(name + length - 3, ".et") != 0)
    return -1;
  snprintf(digits, sizeof digits, "%.*s", (int)(length - size - 4), name + size + 1);
  return digits[strspn(digits, "0123456789")] == '\0' && bs_parse_i64(digits, &rank) ? rank : -1;
}

/* The highest rank + 1; 0: there is no such file, or no folder. */
static uint32_t count_ranks(const char *prefix, size_t size) {
  size_t folder = size;
  int64_t ranks = 0;
  while (folder > 0 && prefix[folder - 1] != '/') folder--;
  char *path = folder > 0 ? strndup(prefix, folder) : strdup(".");
  DIR *dir = path != NULL ? opendir(path) : NULL;
  free(path);
  if (dir == NULL) return 0;
  for (struct dirent *e; (e = readdir(dir)) != NULL;) {
    const int64_t rank = rank_of(e->d_name, prefix + folder, size - folder);
    if (rank >= ranks) ranks = rank + 1;
  }
  closedir(dir);
  return (uint32_t)ranks;
}

/* The length of the prefix in PREFIX.RANK.et or PREFIX. */
static size_t prefix_size(const char *path) {
  size_t size = strlen(path);
  if (size < 6 || strcmp(path + size - 3, ".et") != 0) return size;
  size_t at = size - 3;
  while (at > 0 && path[at - 1] >= '0' && path[at - 1] <= '9') at--;
  return at < size - 3 && at > 1 && path[at - 1] == '.' ? at - 1 : size;
}

int32_t bs_chakra_read(const char *path, bs_et *out_et, bs_error *err) {
  const size_t size = prefix_size(path);
  const uint32_t ranks = count_ranks(path, size);
  memset(out_et, 0, sizeof *out_et);
  if (ranks == 0) {
    bs_error_set(err, BS_INPUT, "BS-CHAKRA-OPEN", "there is no file %.200s.RANK.et", path);
    bs_error_hint(err,
                  "TRACE is a GOAL file, or the beginning PREFIX of the files PREFIX.0.et, PREFIX.1.et, ...");
    return BS_INPUT;
  }
  char *file = malloc(size + 32);
  int32_t rc = file != NULL ? bs_et_begin(out_et, ranks, err)
                            : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a path");
  for (uint32_t r = 0; rc == BS_OK && r < ranks; r++) {
    snprintf(file, size + 32, "%.*s.%u.et", (int)size, path, r);
    rc = bs_chakra_read_rank(out_et, file, r, err);
  }
  free(file);
  return rc;
}
