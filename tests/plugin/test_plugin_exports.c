/* SPDX-License-Identifier: MIT
 * test_plugin_exports.c - a plugin exports one symbol and needs none of ours: the fixture, and every plugin
 * of this tree. */
#include "core/plugin/note.h"
#include "kit/symbols.h"
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

static void check_plugin(const char *path) {
  kit_symbols s;
  ck_assert_msg(kit_symbols_read(path, &s) == 0, "%s cannot be read", path);
  ck_assert_msg(s.exported == 1 && s.undefined_ours == 0, "%s: exported or undefined:%s", path, s.text);
  ck_assert_has(s.text, BS_PLUGIN_QUERY_SYMBOL);
}

START_TEST(fixture_exports_one) {
  check_plugin(fixture("good"));
  kit_symbols s; /* the check notices: this one exports another name */
  ck_assert_int_eq(kit_symbols_read(fixture("nosymbol"), &s), 0);
  ck_assert_int_ge(s.exported, 1);
  ck_assert_lacks(s.text, BS_PLUGIN_QUERY_SYMBOL);
}
END_TEST

START_TEST(own_plugins_export_one) {
  const char *dir = getenv("BS_TEST_PLUGIN_DIR");
  ck_assert_ptr_nonnull(dir);
  DIR *d = opendir(dir);
  if (d == NULL) return; /* all of them are built in */
  const struct dirent *e;
  while ((e = readdir(d)) != NULL) {
    char path[1024];
    size_t n = strlen(e->d_name);
    if (n < 7 || strncmp(e->d_name, "bs_", 3) != 0 || strcmp(e->d_name + n - 3, ".so") != 0) continue;
    ck_assert_uint_lt((size_t)snprintf(path, sizeof path, "%s/%s", dir, e->d_name), sizeof path);
    check_plugin(path);
    bs_elf_info info;
    bs_error err = BS_ERROR_INIT;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_msg(bs_elf_read(fd, &info, &err) == BS_OK && bs_note_accept(&info, &err) == BS_OK, "%s: %s",
                  path, err.message);
    close(fd);
  }
  closedir(d);
}
END_TEST

/* Every plugin of this tree activates, and what it registers is what its note lists. */
START_TEST(own_plugins_register_what_they_list) {
  const char *dir = getenv("BS_TEST_PLUGIN_DIR");
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *c = NULL;
  bs_context_options o = test_options(&log);
  o.plugin_dirs = &dir;
  o.n_plugin_dirs = access(dir, R_OK) == 0;
  o.log_level = BS_LOG_WARN;
  ck_assert_int_eq(bs_context_open(&o, &c, &err), BS_OK);
  for (uint32_t i = 0; i < bs_plugin_count(c); i++) {
    bs_plugin_info row;
    memset(&row, 0, sizeof row);
    row.struct_size = (uint32_t)sizeof row;
    ck_assert_int_eq(bs_plugin_get(c, i, &row, NULL), BS_OK);
    if (row.state == BS_PLUGIN_SHADOWED) continue;
    ck_assert_msg(row.state == BS_PLUGIN_FOUND, "%s: %s", row.path, row.why);
    ck_assert_msg(bs_plugin_activate(c, row.id, &err) == BS_OK, "%s: %s", row.id, err.message);
    ck_assert_uint_gt(bs_thing_count(c, row.id), 0);
  }
  ck_assert_lacks(log.text, "which its note does not list");
  bs_context_close(c);
}
END_TEST

/* The folder beside the library needs no option, wherever the library lies: by default each of our plugins is
 * found there under `owner`. */
START_TEST(own_folder_by_default) {
  const char *dir = getenv("BS_TEST_PLUGIN_DIR");
  bs_error err = BS_ERROR_INIT;
  bs_context *c = NULL;
  DIR *d = opendir(dir);
  if (d == NULL) return; /* all of them are built in */
  unsetenv("BS_PLUGIN_PATH");
  ck_assert_int_eq(bs_context_open(NULL, &c, &err), BS_OK);
  const struct dirent *e;
  while ((e = readdir(d)) != NULL) {
    char id[64];
    size_t n = strlen(e->d_name);
    if (n < 7 || n > 40 || strncmp(e->d_name, "bs_", 3) != 0) continue;
    snprintf(id, sizeof id, "%.*s", (int)(n - 6), e->d_name + 3);
    bs_plugin_info row = test_row(c, id, 0);
    ck_assert_msg(row.state == BS_PLUGIN_FOUND, "%s: %s", id, row.why);
    ck_assert_str_eq(row.origin, "the library's folder");
  }
  closedir(d);
  bs_context_close(c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{fixture_exports_one},
                             {own_plugins_export_one},
                             {own_plugins_register_what_they_list},
                             {own_folder_by_default},
                             {0}};
  return run_tests("plugin_exports", tests, (test_setup){0});
}
