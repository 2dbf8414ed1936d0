/* SPDX-License-Identifier: MIT
 * skeleton_test.h - a context with the five skeleton plugins, each named by its path. */
#ifndef TESTS_SKELETON_SKELETON_TEST_H
#define TESTS_SKELETON_SKELETON_TEST_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "tests/marks.h"

static const char *const skeleton_kinds[] = {"activate", "normalize",    "backend",
                                             "method",   "communicator", "workload"};

static inline bs_context *skeleton_context(void) {
  static char paths[6][600];
  const char *plugins[6], *dir = getenv("BS_TEST_PLUGIN_DIR");
  bs_context *context = NULL;
  bs_error err = BS_ERROR_INIT;
  for (int i = 0; i < 6; i++) {
    snprintf(paths[i], sizeof paths[i], "%s/bs_skel_%s.so", BS_TEST_SKELETON_DIR, skeleton_kinds[i]);
    plugins[i] = paths[i];
  }
  const bs_context_options o = {.struct_size = sizeof o,
                                .trust = BS_TRUST_ANY,
                                .plugins = plugins,
                                .n_plugins = 6,
                                .plugin_dirs = &dir,
                                .n_plugin_dirs = dir != NULL,
                                .log_level = BS_LOG_ERROR};
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s: %s", err.id, err.message);
  return context;
}

#define ck_assert_has(text, part) \
  ck_assert_msg(strstr((text), (part)) != NULL, "'%s' is not in '%s'", (part), (text))
#endif
