/* SPDX-License-Identifier: MIT
 * test_plugin_own_folder.c - the plugins beside the library are found from the library's place, which does
 * not change with the folder that the process works in. */
#include <dlfcn.h>

#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

/* A tree with the library and one plugin beside it. */
static void plant(const char *tree, const char *plugin) {
  char folder[1200], name[64];
  Dl_info info;
  ck_assert_int_ne(dladdr((void *)(uintptr_t)bs_version, &info), 0);
  ck_assert_int_eq(mkdir(tree, 0700), 0);
  snprintf(folder, sizeof folder, "%s/lib", tree);
  ck_assert_int_eq(mkdir(folder, 0700), 0);
  (void)test_copy(info.dli_fname, folder, "libblockshock.so");
  snprintf(folder, sizeof folder, "%s/lib/blockshock", tree);
  ck_assert_int_eq(mkdir(folder, 0700), 0);
  snprintf(folder, sizeof folder, "%s/lib/blockshock/plugins-0", tree);
  ck_assert_int_eq(mkdir(folder, 0700), 0);
  snprintf(name, sizeof name, "bs_%s.so", plugin);
  (void)test_copy(fixture(plugin), folder, name);
}

/* The library's own folder stays where the library is, wherever the process goes. */
START_TEST(never_the_current_folder) {
  char dir[200], here[300], there[300], command[1500], text[256];
  test_dir(dir, sizeof dir);
  snprintf(here, sizeof here, "%s/here", dir);
  snprintf(there, sizeof there, "%s/there", dir);
  plant(here, "good");
  plant(there, "other");
  const char *const places[] = {there, "/"};
  for (size_t i = 0; i < 2; i++) {
    snprintf(command, sizeof command, "cd '%s' && '%s/bs_elsewhere' '%s'", here, BS_TEST_FIXTURE_DIR,
             places[i]);
    FILE *out = popen(command, "r");
    ck_assert_ptr_nonnull(out);
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    ck_assert_int_eq(pclose(out), 0);
    ck_assert_msg(strstr(text, "good\n") != NULL && strstr(text, "other\n") == NULL, "%s: %s", places[i],
                  text);
  }
  test_remove(dir);
}
END_TEST

int main(void) {
  const test_case tests[] = {{never_the_current_folder}, {0}};
  return run_tests("plugin_own_folder", tests, (test_setup){0});
}
