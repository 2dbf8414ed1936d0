/* SPDX-License-Identifier: MIT
 * kit_test.h - runs the command bs-conformance (or bsrun) as a user would, and keeps its output and status.
 */
#ifndef BS_TESTS_KIT_KIT_TEST_H
#define BS_TESTS_KIT_KIT_TEST_H
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/marks.h"

typedef struct kit_ran {
  int code;
  char text[1 << 18]; /* stdout and stderr */
} kit_ran;

static inline const char *kit_bin(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/bin/%s", getenv("BS_TEST_BINARY_DIR"), name);
  return path;
}

/* A shell command; `%s` of the format are the caller's. */
static inline void __attribute__((format(printf, 2, 3))) kit_shell(kit_ran *out, const char *fmt, ...) {
  char command[8192];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(command, sizeof command, fmt, ap);
  va_end(ap);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  const size_t n = fread(out->text, 1, sizeof out->text - 1, f);
  out->text[n] = '\0';
  const int status = pclose(f);
  out->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Is there a line that contains both? */
static inline int kit_line_has(const char *text, const char *first, const char *second) {
  for (const char *p = text; *p != '\0'; p += strcspn(p, "\n"), p += *p == '\n') {
    char line[2048];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
    if (strstr(line, first) != NULL && strstr(line, second) != NULL) return 1;
  }
  return 0;
}
#endif
