/* SPDX-License-Identifier: MIT
 * plugin_test.h - helpers of the plugin tests: scratch folders, copies of fixtures, a context with a
 * captured log. */
#ifndef BS_TESTS_PLUGIN_TEST_H
#define BS_TESTS_PLUGIN_TEST_H
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "tests/marks.h"

typedef struct test_log {
  pthread_mutex_t lock;
  char text[16384];
} test_log;
#define TEST_LOG_INIT \
  { PTHREAD_MUTEX_INITIALIZER, "" }

static inline void test_log_write(void *user, int32_t level, const char *plugin, int32_t rank,
                                  const char *message) {
  test_log *log = user;
  pthread_mutex_lock(&log->lock);
  size_t n = strlen(log->text);
  snprintf(log->text + n, sizeof log->text - n, "%d %s %d: %s\n", level, plugin, rank, message);
  pthread_mutex_unlock(&log->lock);
}

static inline bs_context_options test_options(test_log *log) {
  bs_context_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = (uint32_t)sizeof o;
  o.trust = BS_TRUST_ANY; /* scratch folders lie in a world-writable place */
  o.log_level = BS_LOG_INFO;
  o.log = test_log_write;
  o.log_user = log;
  return o;
}

/* A context with these --plugin values; must open. */
static inline bs_context *test_open(test_log *log, const char *const *plugins, uint32_t n) {
  bs_context *c = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_context_options o = test_options(log);
  o.plugins = plugins;
  o.n_plugins = n;
  int32_t rc = bs_context_open(&o, &c, &err);
  ck_assert_msg(rc == BS_OK, "open: %s %s: %s", err.id, err.where, err.message);
  return c;
}

static inline const char *fixture(const char *id) {
  static char paths[8][512];
  static int next;
  char *p = paths[next++ % 8];
  snprintf(p, sizeof paths[0], "%s/bs_%s.so", BS_TEST_FIXTURE_DIR, id);
  return p;
}

static inline void test_dir(char *out, size_t size) {
  const char *base = getenv("TMPDIR");
  snprintf(out, size, "%s/bs_plugin_test_XXXXXX", base != NULL && base[0] == '/' ? base : "/tmp");
  ck_assert_msg(mkdtemp(out) != NULL, "mkdtemp %s", out);
}

static inline int test_remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
  (void)st, (void)flag, (void)ftw;
  return remove(path);
}
static inline void test_remove(const char *dir) {
  (void)nftw(dir, test_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Copies a file to dir/name, mode 0644; the path is the result. */
static inline const char *test_copy(const char *from, const char *dir, const char *name) {
  static char path[1024];
  char buffer[65536];
  ssize_t n;
  ck_assert_uint_lt((size_t)snprintf(path, sizeof path, "%s/%s", dir, name), sizeof path);
  int in = open(from, O_RDONLY | O_CLOEXEC);
  ck_assert_msg(in >= 0, "open %s", from);
  int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  ck_assert_msg(out >= 0, "create %s", path);
  while ((n = read(in, buffer, sizeof buffer)) > 0) ck_assert_int_eq(write(out, buffer, (size_t)n), n);
  ck_assert_int_eq(n, 0);
  ck_assert_int_eq(fchmod(out, 0644), 0);
  close(in);
  close(out);
  return path;
}

/* The nth (from 0) row of an id. */
static inline bs_plugin_info test_row(const bs_context *c, const char *id, uint32_t nth) {
  bs_plugin_info info;
  for (uint32_t i = 0; i < bs_plugin_count(c); i++) {
    memset(&info, 0, sizeof info);
    info.struct_size = (uint32_t)sizeof info;
    ck_assert_int_eq(bs_plugin_get(c, i, &info, NULL), BS_OK);
    if (strcmp(info.id, id) == 0 && nth-- == 0) return info;
  }
  ck_abort_msg("no row of plugin %s", id);
  return info;
}

static inline int test_open_files(void) {
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  ck_assert_ptr_nonnull(d);
  while (readdir(d) != NULL) n++;
  closedir(d);
  return n;
}

#define ck_assert_has(text, part) \
  ck_assert_msg(strstr((text), (part)) != NULL, "'%s' is not in '%s'", (part), (text))
#define ck_assert_lacks(text, part) \
  ck_assert_msg(strstr((text), (part)) == NULL, "'%s' is in '%s'", (part), (text))
#endif
