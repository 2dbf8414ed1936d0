/* SPDX-License-Identifier: MIT
 * lab_test.h - what the lab's tests share: a scratch folder, small files, running a suite. */
#ifndef TESTS_LAB_LAB_TEST_H
#define TESTS_LAB_LAB_TEST_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "lab/yaml/config.h"
#include "tests/marks.h"

/* A new folder under TMPDIR, in a static buffer. */
static inline const char *scratch_dir(void) {
  static char path[512];
  const char *tmp = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/bs_test_XXXXXX", tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
  ck_assert_ptr_nonnull(mkdtemp(path));
  return path;
}

static inline void remove_dir(const char *path) {
  char command[600];
  snprintf(command, sizeof command, "rm -rf -- '%s'", path);
  ck_assert_int_eq(system(command), 0);
}

static inline void write_text(const char *dir, const char *name, const char *text) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_ge(fputs(text, f), 0);
  ck_assert_int_eq(fclose(f), 0);
}

/* The whole file, NUL-terminated; the caller frees. NULL when there is none. */
static inline char *read_text(const char *dir, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "r");
  if (f == NULL) return NULL;
  char *text = calloc(1, 1u << 20);
  const size_t n = fread(text, 1, (1u << 20) - 1, f);
  text[n] = '\0';
  fclose(f);
  return text;
}

static inline bs_node *parse_tree(const char *yaml) {
  bs_error err = BS_ERROR_INIT;
  bs_node *root = NULL;
  ck_assert_msg(bs_config_parse("test.yaml", yaml, strlen(yaml), &root, &err) == BS_OK, "%s", err.message);
  return root;
}
#endif
