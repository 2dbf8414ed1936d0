/* SPDX-License-Identifier: MIT
 * memory.c - see memory.h. */
#include "core/base/memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

enum { LITTLE = 4 << 20 };

/* The names that one version of cgroups uses. */
typedef struct version {
  const char *folders[2]; /* where the hierarchy is mounted; NULL: there is no second place */
  const char *limit, *used, *inactive, *active;
} version;

static const version versions[] = {
    {{"/sys/fs/cgroup/memory", NULL},
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     "total_inactive_file ",
     "total_active_file "},
    {{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"},
     "memory.max",
     "memory.current",
     "inactive_file ",
     "active_file "},
};

/* A number at the beginning of the file; 0: there is no file, or another word ("max"). */
static int read_number(const char *folder, const char *name, uint64_t *out) {
  char path[PATH_MAX], line[64];
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return 0;
  FILE *f = fopen(path, "re");
  if (f == NULL) return 0;
  const int found = fgets(line, sizeof line, f) != NULL && line[0] >= '0' && line[0] <= '9';
  fclose(f);
  if (found) *out = strtoull(line, NULL, 10);
  return found;
}

/* The number after the first word `word` of a line; 0: no such line. */
static uint64_t read_field(const char *folder, const char *name, const char *word) {
  char path[PATH_MAX], line[256];
  uint64_t value = 0;
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return 0;
  FILE *f = fopen(path, "re");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    if (strncmp(line, word, strlen(word)) != 0) continue;
    value = strtoull(line + strlen(word), NULL, 10);
    break;
  }
  if (f != NULL) fclose(f);
  return value;
}

/* The bytes that one group may still take; UINT64_MAX: it has no limit. */
static uint64_t left_in(const version *v, const char *folder) {
  uint64_t limit = 0, used = 0;
  if (!read_number(folder, v->limit, &limit) || !read_number(folder, v->used, &used)) return UINT64_MAX;
  const uint64_t files =
      read_field(folder, "memory.stat", v->inactive) + read_field(folder, "memory.stat", v->active);
  used = used > files ? used - files : 0;
  return limit > used ? limit - used : 0;
}

/* The least that the group `path` and all groups above it may still take. A path that does not exist, or
 * that leads out of what this process sees, is a path of the machine: its group is the root here. */
static uint64_t left_along(const char *prefix, const version *v, const char *mount, const char *path) {
  char folder[PATH_MAX];
  uint64_t least = UINT64_MAX;
  const int root = snprintf(folder, sizeof folder, "%s%s", prefix, mount);
  if (root >= (int)sizeof folder) return least;
  if (strstr(path, "..") == NULL) snprintf(folder + root, sizeof folder - (size_t)root, "%s", path);
  for (;;) {
    const uint64_t left = left_in(v, folder);
    if (left < least) least = left;
    char *slash = strrchr(folder + root, '/');
    if (slash == NULL) return least;
    *slash = '\0';
  }
}

/* "4:memory:/a/b" is of v1, "0::/a/b" of v2. */
static uint64_t left_by_line(const char *prefix, char *line) {
  uint64_t least = UINT64_MAX;
  char *kinds = strchr(line, ':'), *path = kinds != NULL ? strchr(kinds + 1, ':') : NULL;
  if (path == NULL) return least;
  path[strcspn(path, "\n")] = '\0';
  *path++ = '\0';
  const int second = kinds[1] == '\0';
  int is_memory = second;
  for (char *save = NULL, *kind = strtok_r(kinds + 1, ",", &save); kind != NULL;
       kind = strtok_r(NULL, ",", &save))
    is_memory |= strcmp(kind, "memory") == 0;
  const version *v = &versions[second];
  for (int i = 0; i < 2 && is_memory && v->folders[i] != NULL; i++) {
    const uint64_t left = left_along(prefix, v, v->folders[i], path);
    if (left < least) least = left;
  }
  return least;
}

uint64_t bs_memory_available(const char *prefix) {
  char path[PATH_MAX], line[PATH_MAX];
  snprintf(path, sizeof path, "%s/proc", prefix);
  const uint64_t machine = read_field(path, "meminfo", "MemAvailable:") * 1024u;
  uint64_t least = machine > 0 ? machine : UINT64_MAX;
  snprintf(path, sizeof path, "%s/proc/self/cgroup", prefix);
  FILE *f = fopen(path, "re");
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    const uint64_t left = left_by_line(prefix, line);
    if (left < least) least = left;
  }
  if (f != NULL) fclose(f);
  if (least == 0) return 1; /* 0 would mean "not known" */
  return least == UINT64_MAX ? 0 : least;
}

int32_t bs_memory_fits(uint64_t bytes, const char *id, const char *what, bs_error *err) {
  const double mib = 1024.0 * 1024.0;
  if (bytes < LITTLE) return BS_OK;
  const uint64_t available = bs_memory_available("");
  if (available == 0 || bytes <= available) return BS_OK;
  bs_error_set(err, BS_NO_MEMORY, id, "%s need %.1f MiB, and %.1f MiB are free", what, (double)bytes / mib,
               (double)available / mib);
  bs_error_hint(err, "smaller dimensions, or more memory for this process (its cgroup, or the machine)");
  return BS_NO_MEMORY;
}
