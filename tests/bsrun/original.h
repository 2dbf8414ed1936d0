/* SPDX-License-Identifier: MIT
 * original.h - where the original harness's files are: in BS_TEST_ORIGINAL_DIR, else beside the
 * specifications. Tests that need them are programs of their own, which are skipped where they are not at
 * hand; a folder that was named has to be there. */
#ifndef TESTS_BSRUN_ORIGINAL_H
#define TESTS_BSRUN_ORIGINAL_H
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The folder of its configs in a static buffer; NULL, said on stdout, when it is not at hand. */
static inline const char *original_configs(void) {
  static char path[1024];
  const char *given = getenv("BS_TEST_ORIGINAL_DIR"), *source = getenv("BS_TEST_SOURCE_DIR");
  if (given != NULL && given[0] != '\0') {
    snprintf(path, sizeof path, "%s/configs", given);
    return path;
  }
  snprintf(path, sizeof path, "%s/../shared/data/original-harness/configs", source != NULL ? source : ".");
  if (access(path, R_OK | X_OK) == 0) return path;
  printf("skipped: the original harness's files are not at hand (%s); BS_TEST_ORIGINAL_DIR names a folder\n",
         path);
  return NULL;
}
#endif
