/* SPDX-License-Identifier: MIT
 * comma_locale.h - a locale whose numbers have a decimal comma, as a program that embeds the libraries may
 * have set one: of the system, else made by localedef in a folder of the test's own. */
#ifndef BS_TESTS_COMMA_LOCALE_H
#define BS_TESTS_COMMA_LOCALE_H
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

static inline int comma_is_set(void) {
  char text[8];
  snprintf(text, sizeof text, "%.1f", 0.5);
  return text[1] == ',';
}

/* 1: the locale of this process has a comma; 0: this machine can make none, and nothing was changed. */
static inline int comma_locale(void) {
  static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8"};
  char folder[512], command[1600];
  const char *tmp = getenv("TMPDIR");
  for (int i = 0; i < 3; i++)
    if (setlocale(LC_ALL, names[i]) != NULL && comma_is_set()) return 1;
  snprintf(folder, sizeof folder, "%s/bs_comma_XXXXXX", tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
  if (mkdtemp(folder) == NULL) return 0;
  snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' >/dev/null 2>&1", folder);
  int made = system(command) == 0 && setenv("LOCPATH", folder, 1) == 0 &&
             setlocale(LC_ALL, "de_DE.UTF-8") != NULL && comma_is_set();
  snprintf(command, sizeof command, "rm -rf -- '%s'", folder); /* it is loaded */
  if (system(command) != 0 || !made) {
    setlocale(LC_ALL, "C");
    made = 0;
  }
  return made;
}
#endif
