/* SPDX-License-Identifier: MIT
 * files.h - a temporary folder for a test program, and writing and checking files in it. */
#ifndef BS_TESTS_FORMATS_FILES_H
#define BS_TESTS_FORMATS_FILES_H
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blockshock/blockshock.h"
#include "tests/marks.h"

static char files_folder[256];

static inline void files_begin(void) {
  const char *base = getenv("TMPDIR");
  snprintf(files_folder, sizeof files_folder, "%s/bs-test-XXXXXX", base != NULL ? base : "/tmp");
  ck_assert_ptr_nonnull(mkdtemp(files_folder));
}

/* Entries of the folder; `name` of the first one that contains `part`, "" when none does. */
static inline int files_count(const char *part, char *name, size_t size) {
  DIR *d = opendir(files_folder);
  int n = 0;
  ck_assert_ptr_nonnull(d);
  if (size > 0) name[0] = '\0';
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || strstr(e->d_name, part) == NULL)
      continue;
    if (n++ == 0 && size > 0) snprintf(name, size, "%s", e->d_name);
  }
  closedir(d);
  return n;
}

/* The path of a name in the folder; up to eight results are valid at a time. */
static inline const char *files_path(const char *name) {
  static char paths[8][1024];
  static unsigned turn;
  char *path = paths[turn++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", files_folder, name);
  return path;
}

static inline void files_end(void) {
  char name[300];
  while (files_count("", name, sizeof name) > 0) {
    if (remove(files_path(name)) != 0) break;
  }
  rmdir(files_folder);
}

static inline const char *files_write(const char *name, const void *data, size_t size) {
  const char *path = files_path(name);
  unlink(path);
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(data, 1, size, f), size);
  ck_assert_int_eq(fclose(f), 0);
  return path;
}

/* The error has this id and code, a message, and names the file. */
static inline void files_expect(const bs_error *err, int32_t rc, int32_t code, const char *id,
                                const char *what) {
  ck_assert_msg(rc == code && strcmp(err->id, id) == 0, "%s: got %d %s (%s), want %d %s", what, rc, err->id,
                err->message, code, id);
  ck_assert_int_eq(err->code, code);
  ck_assert_msg(err->message[0] != '\0', "%s: no message", what);
}
#endif
