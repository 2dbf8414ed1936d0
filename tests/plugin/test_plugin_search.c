/* SPDX-License-Identifier: MIT
 * test_plugin_search.c - where plugins are looked for, in which order, and what a row says of each. */
#include "core/plugin/note.h"
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

typedef struct place {
  char root[512], first[600], second[600];
  test_log log;
  bs_error err;
  bs_context *context;
} place;

static void place_make(place *p) {
  memset(p, 0, sizeof *p);
  pthread_mutex_init(&p->log.lock, NULL);
  test_dir(p->root, sizeof p->root);
  snprintf(p->first, sizeof p->first, "%s/first", p->root);
  snprintf(p->second, sizeof p->second, "%s/second", p->root);
  ck_assert_int_eq(mkdir(p->first, 0755), 0);
  ck_assert_int_eq(mkdir(p->second, 0755), 0);
}

static void place_open(place *p, const char *variable, const char *const *dirs, uint32_t n) {
  bs_context_options o = test_options(&p->log);
  o.plugin_dirs = dirs;
  o.n_plugin_dirs = n;
  if (variable != NULL)
    setenv("BS_PLUGIN_PATH", variable, 1);
  else
    unsetenv("BS_PLUGIN_PATH");
  ck_assert_int_eq(bs_context_open(&o, &p->context, &p->err), BS_OK);
}

static void place_free(place *p) {
  bs_context_close(p->context);
  test_remove(p->root);
}

START_TEST(order_and_shadowing) {
  place p;
  char variable[600];
  place_make(&p);
  test_copy(fixture("good"), p.first, "bs_good.so");
  test_copy(fixture("good"), p.second, "bs_good.so");
  const char *path = fixture("good");
  const char *dirs[1] = {p.second};
  snprintf(variable, sizeof variable, "%s", p.first);
  place_open(&p, variable, dirs, 1); /* the variable goes before the configuration */
  ck_assert_uint_eq(test_row(p.context, "good", 0).state, BS_PLUGIN_FOUND);
  ck_assert_str_eq(test_row(p.context, "good", 0).origin, "BS_PLUGIN_PATH[0]");
  ck_assert_uint_eq(test_row(p.context, "good", 1).state, BS_PLUGIN_SHADOWED);
  ck_assert_str_eq(test_row(p.context, "good", 1).origin, "config[0]");
  ck_assert_has(test_row(p.context, "good", 1).why, "shadowed by ");
  ck_assert_has(test_row(p.context, "good", 1).why, p.first);
  bs_context_close(p.context);
  bs_context_options o = test_options(&p.log); /* and --plugin PATH before both */
  o.plugins = &path;
  o.n_plugins = 1;
  ck_assert_int_eq(bs_context_open(&o, &p.context, &p.err), BS_OK);
  ck_assert_str_eq(test_row(p.context, "good", 0).origin, "--plugin");
  ck_assert_uint_eq(test_row(p.context, "good", 0).state, BS_PLUGIN_FOUND);
  ck_assert_uint_eq(test_row(p.context, "good", 1).state, BS_PLUGIN_SHADOWED);
  place_free(&p);
}
END_TEST

START_TEST(same_inode_once) {
  place p;
  char a[700], b[700], c[700];
  place_make(&p);
  const char *dirs[2] = {p.first, p.second};
  test_copy(fixture("good"), p.first, "bs_good.so");
  snprintf(a, sizeof a, "%s/bs_good.so", p.first);
  snprintf(b, sizeof b, "%s/bs_good.so", p.second);
  snprintf(c, sizeof c, "%s/bs_alike.so", p.second);
  ck_assert_int_eq(link(a, b), 0);
  ck_assert_int_eq(symlink(a, c), 0);
  place_open(&p, NULL, dirs, 2);
  ck_assert_uint_eq(test_row(p.context, "good", 0).state, BS_PLUGIN_FOUND);
  ck_assert_uint_eq(test_row(p.context, "good", 1).state, BS_PLUGIN_SHADOWED);
  ck_assert_has(test_row(p.context, "good", 1).why, "same file as ");
  ck_assert_uint_eq(test_row(p.context, "alike", 0).state, BS_PLUGIN_SHADOWED);
  ck_assert_has(test_row(p.context, "alike", 0).why, a);
  place_free(&p);
}
END_TEST

/* A symbolic link of the right name is followed; the name that counts is the link's. */
START_TEST(symbolic_links) {
  place p;
  char link_path[700], target[700];
  place_make(&p);
  const char *dirs[2] = {p.first, p.second};
  test_copy(fixture("good"), p.second, "libgood-1.2.3");
  snprintf(target, sizeof target, "%s/libgood-1.2.3", p.second);
  snprintf(link_path, sizeof link_path, "%s/bs_good.so", p.first);
  ck_assert_int_eq(symlink(target, link_path), 0);
  snprintf(link_path, sizeof link_path, "%s/bs_gone.so", p.first);
  ck_assert_int_eq(symlink("/nowhere/at/all", link_path), 0);
  place_open(&p, NULL, dirs, 2);
  ck_assert_uint_eq(test_row(p.context, "good", 0).state, BS_PLUGIN_FOUND);
  ck_assert_int_eq(bs_plugin_activate(p.context, "good", &p.err), BS_OK);
  ck_assert_uint_eq(test_row(p.context, "gone", 0).state, BS_PLUGIN_REFUSED);
  place_free(&p);
}
END_TEST

START_TEST(wrong_elements) {
  place p;
  char variable[2048];
  place_make(&p);
  test_copy(fixture("good"), p.first, "bs_good.so");
  ck_assert_int_eq(chdir(p.root), 0);
  snprintf(variable, sizeof variable, "first::%s/absent:%s:./second:", p.root, p.first);
  place_open(&p, variable, NULL, 0);
  /* 'first' is relative, though it exists in the current directory: only the absolute one counts */
  ck_assert_str_eq(test_row(p.context, "good", 0).origin, "BS_PLUGIN_PATH[3]");
  ck_assert_uint_eq(test_row(p.context, "good", 0).state, BS_PLUGIN_FOUND);
  ck_assert_has(p.log.text, "BS_PLUGIN_PATH[0]: relative path 'first' is refused");
  ck_assert_has(p.log.text, "BS_PLUGIN_PATH[1]: empty element '' is refused");
  ck_assert_has(p.log.text, "BS_PLUGIN_PATH[2]: cannot search the folder");
  ck_assert_has(p.log.text, "BS_PLUGIN_PATH[4]: relative path './second' is refused");
  ck_assert_has(p.log.text, "BS_PLUGIN_PATH[5]: empty element '' is refused");
  uint32_t refused = 0;
  for (uint32_t i = 0; i < bs_plugin_count(p.context); i++) {
    bs_plugin_info row;
    memset(&row, 0, sizeof row);
    row.struct_size = (uint32_t)sizeof row;
    ck_assert_int_eq(bs_plugin_get(p.context, i, &row, NULL), BS_OK);
    if (strncmp(row.origin, "BS_PLUGIN_PATH", 14) == 0 && row.state == BS_PLUGIN_REFUSED) refused++;
  }
  ck_assert_uint_eq(refused, 5);
  place_free(&p);
}
END_TEST

/* A folder that is named twice, also through a link, is scanned once. */
START_TEST(a_folder_twice) {
  place p;
  char alias[700];
  place_make(&p);
  test_copy(fixture("good"), p.first, "bs_good.so");
  snprintf(alias, sizeof alias, "%s/alias", p.root);
  ck_assert_int_eq(symlink(p.first, alias), 0);
  const char *dirs[3] = {p.first, alias, p.first};
  place_open(&p, NULL, dirs, 3);
  uint32_t rows = 0;
  for (uint32_t i = 0; i < bs_plugin_count(p.context); i++) {
    bs_plugin_info row;
    memset(&row, 0, sizeof row);
    row.struct_size = (uint32_t)sizeof row;
    ck_assert_int_eq(bs_plugin_get(p.context, i, &row, NULL), BS_OK);
    rows += strcmp(row.id, "good") == 0;
  }
  ck_assert_uint_eq(rows, 1);
  place_free(&p);
}
END_TEST

START_TEST(names_that_do_not_count) {
  place p;
  char path[700];
  place_make(&p);
  const char *dirs[1] = {p.first};
  test_copy(fixture("good"), p.first, "libbs_good.so");
  test_copy(fixture("good"), p.first, "bs_good.so.1");
  test_copy(fixture("good"), p.first, "bs_Good.so");
  snprintf(path, sizeof path, "%s/bs_folder.so", p.first);
  ck_assert_int_eq(mkdir(path, 0755), 0);
  snprintf(path, sizeof path, "%s/bs_pipe.so", p.first);
  ck_assert_int_eq(mkfifo(path, 0644), 0); /* must not stop the search */
  place_open(&p, NULL, dirs, 1);
  ck_assert_has(test_row(p.context, "Good", 0).why, "file name is not bs_<id>.so");
  ck_assert_has(test_row(p.context, "folder", 0).why, "not a regular file");
  ck_assert_has(test_row(p.context, "pipe", 0).why, "not a regular file");
  ck_assert_int_eq(bs_plugin_activate(p.context, "good", &p.err), BS_NOT_FOUND);
  place_free(&p);
}
END_TEST

/* Sorted by name, whatever the file system says. */
START_TEST(sorted) {
  static const char *const ids[] = {"zeta", "alpha", "mid", "beta"};
  place p;
  char last[64] = "";
  place_make(&p);
  const char *dirs[1] = {p.first};
  for (int i = 0; i < 4; i++) {
    char name[64];
    snprintf(name, sizeof name, "bs_%s.so", ids[i]);
    test_copy(fixture("good"), p.first, name);
  }
  place_open(&p, NULL, dirs, 1);
  uint32_t seen = 0;
  for (uint32_t i = 0; i < bs_plugin_count(p.context); i++) {
    bs_plugin_info row;
    memset(&row, 0, sizeof row);
    row.struct_size = (uint32_t)sizeof row;
    ck_assert_int_eq(bs_plugin_get(p.context, i, &row, NULL), BS_OK);
    if (strcmp(row.origin, "config[0]") != 0) continue;
    ck_assert_int_gt(strcmp(row.id, last), 0);
    snprintf(last, sizeof last, "%s", row.id);
    ck_assert_has(row.why, "its plugin id is 'good'");
    seen++;
  }
  ck_assert_uint_eq(seen, 4);
  place_free(&p);
}
END_TEST

static int32_t open_named(place *p, const char *name) {
  const char *dirs[2] = {p->first, p->second};
  bs_context_options o = test_options(&p->log);
  o.plugin_dirs = dirs;
  o.n_plugin_dirs = 2;
  o.plugins = &name;
  o.n_plugins = 1;
  bs_error_clear(&p->err);
  return bs_context_open(&o, &p->context, &p->err);
}

START_TEST(named_plugins) {
  place p;
  char path[700];
  place_make(&p);
  test_copy(fixture("good"), p.first, "bs_good.so");
  test_copy(fixture("minor"), p.first, "bs_minor.so");
  ck_assert_int_eq(open_named(&p, "good"), BS_OK);
  bs_context_close(p.context);
  ck_assert_int_eq(open_named(&p, "goood"), BS_NOT_FOUND);
  ck_assert_str_eq(p.err.id, "BS-PLG-NOTFOUND");
  ck_assert_has(p.err.message, "no plugin 'goood'");
  ck_assert_has(p.err.hint, "did you mean 'good'?");
  ck_assert_int_eq(open_named(&p, "minor"), BS_ABI); /* found, but refused: says why */
  ck_assert_str_eq(p.err.id, "BS-PLG-ABI");
  ck_assert_str_eq(p.err.plugin, "minor");
  snprintf(path, sizeof path, "%s/bs_none.so", p.first);
  ck_assert_int_eq(open_named(&p, path), BS_INPUT); /* no such file: exit 4 */
  ck_assert_str_eq(p.err.id, "BS-PLG-NOTFOUND");
  ck_assert_int_eq(bs_status_exit_code(BS_PLUGIN), 5);
  ck_assert_int_eq(open_named(&p, p.first), BS_PLUGIN); /* a folder is no plugin */
  ck_assert_int_eq(chdir(p.first), 0);
  ck_assert_int_eq(open_named(&p, "bs_good.so"), BS_NOT_FOUND); /* never by bare name from here */
  ck_assert_int_eq(open_named(&p, "./bs_good.so"), BS_OK);
  ck_assert_str_eq(test_row(p.context, "good", 0).origin, "--plugin");
  place_free(&p);
}
END_TEST

/* A refused file does not take the id; a usable one behind it serves, and that is said. */
START_TEST(usable_behind_refused) {
  place p;
  place_make(&p);
  ck_assert_int_eq(truncate(test_copy(fixture("good"), p.first, "bs_good.so"), 3000), 0);
  test_copy(fixture("good"), p.second, "bs_good.so");
  ck_assert_int_eq(open_named(&p, "good"), BS_OK);
  ck_assert_uint_eq(test_row(p.context, "good", 0).state, BS_PLUGIN_REFUSED);
  ck_assert_uint_eq(test_row(p.context, "good", 1).state, BS_PLUGIN_FOUND);
  ck_assert_has(p.log.text, "file is cut short");
  ck_assert_has(p.log.text, "using ");
  ck_assert_int_eq(bs_plugin_activate(p.context, "good", &p.err), BS_OK);
  ck_assert_uint_eq(test_row(p.context, "good", 1).state, BS_PLUGIN_ACTIVE);
  place_free(&p);
}
END_TEST

START_TEST(same_path_twice) {
  const char *good = fixture("good");
  const char *plugins[3] = {good, good, "good"};
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *c = test_open(&log, plugins, 3);
  ck_assert_int_eq(bs_plugin_activate(c, "good", &err), BS_OK);
  bs_context_close(c);
}
END_TEST

/* Opening and listing runs no plugin code: a plugin whose activate fails is only FOUND. */
START_TEST(listing_runs_nothing) {
  place p;
  place_make(&p);
  test_copy(fixture("failing"), p.first, "bs_failing.so");
  ck_assert_int_eq(open_named(&p, "failing"), BS_OK);
  bs_plugin_info row = test_row(p.context, "failing", 0);
  ck_assert_uint_eq(row.state, BS_PLUGIN_FOUND);
  ck_assert_str_eq(row.things, "method:bad_method\n");
  ck_assert_uint_eq(row.kinds, 1u << BS_KIND_METHOD);
  ck_assert_uint_eq(row.abi, BS_ABI_VERSION);
  ck_assert_str_eq(row.version, "1.0.0");
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[1024];
  ck_assert_ptr_nonnull(maps);
  while (fgets(line, sizeof line, maps) != NULL) ck_assert_lacks(line, "bs_failing.so");
  fclose(maps);
  const bs_backend *backend = NULL; /* but the first look-up of anything opens what was named */
  ck_assert_int_eq(bs_find_backend(p.context, "anything", &backend, NULL, &p.err), BS_PLUGIN);
  ck_assert_str_eq(p.err.id, "BS-PLG-ACTIVATE");
  place_free(&p);
}
END_TEST

START_TEST(built_ins) {
  place p;
  place_make(&p);
  place_open(&p, NULL, NULL, 0);
  for (uint32_t i = 0; i < bs_plugin_count(p.context); i++) {
    bs_plugin_info row;
    memset(&row, 0, sizeof row);
    row.struct_size = (uint32_t)sizeof row;
    ck_assert_int_eq(bs_plugin_get(p.context, i, &row, NULL), BS_OK);
    if (!row.builtin || row.state == BS_PLUGIN_SHADOWED) continue;
    ck_assert_str_eq(row.path, "");
    ck_assert_str_eq(row.origin, "built in");
    ck_assert_msg(row.state == BS_PLUGIN_FOUND, "%s: %s", row.id, row.why);
    ck_assert_msg(bs_plugin_activate(p.context, row.id, &p.err) == BS_OK, "%s: %s", row.id, p.err.message);
    ck_assert_uint_gt(bs_thing_count(p.context, row.id), 0);
    ck_assert_uint_gt(strlen(test_row(p.context, row.id, 0).things), 0);
  }
  place_free(&p);
}
END_TEST

START_TEST(arguments) {
  bs_error err = BS_ERROR_INIT;
  bs_context *c = NULL;
  bs_context_options o;
  bs_plugin_info row;
  memset(&o, 0, sizeof o);
  ck_assert_int_eq(bs_context_open(&o, &c, &err), BS_INVALID_ARGUMENT); /* struct_size not set */
  o.struct_size = (uint32_t)sizeof o;
  o.trust = 9;
  ck_assert_int_eq(bs_context_open(&o, &c, &err), BS_INVALID_ARGUMENT);
  o.trust = BS_TRUST_ANY;
  o.n_plugins = 1;
  ck_assert_int_eq(bs_context_open(&o, &c, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_context_open(NULL, NULL, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_context_open(NULL, &c, &err), BS_OK); /* all defaults */
  memset(&row, 0, sizeof row);
  ck_assert_int_eq(bs_plugin_get(c, 0, &row, &err), BS_INVALID_ARGUMENT);
  row.struct_size = (uint32_t)sizeof row;
  ck_assert_int_eq(bs_plugin_get(c, bs_plugin_count(c), &row, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_find_method(c, NULL, NULL, NULL, &err), BS_INVALID_ARGUMENT);
  bs_context_close(c);
  bs_context_close(NULL);
}
END_TEST

START_TEST(library_version) {
  const char *id = bs_build_id();
  ck_assert_uint_gt(strlen(bs_version()), 0);
  ck_assert_uint_eq(strspn(id, "0123456789abcdef"), strlen(id));
  ck_assert_uint_eq(strlen(id), 40); /* linked with --build-id=sha1 */
  ck_assert_ptr_eq(id, bs_build_id());
}
END_TEST

int main(void) {
  const test_case tests[] = {{order_and_shadowing},
                             {same_inode_once},
                             {symbolic_links},
                             {wrong_elements},
                             {a_folder_twice},
                             {names_that_do_not_count},
                             {sorted},
                             {named_plugins},
                             {usable_behind_refused},
                             {same_path_twice},
                             {listing_runs_nothing},
                             {built_ins},
                             {arguments},
                             {library_version},
                             {0}};
  return run_tests("plugin_search", tests, (test_setup){0});
}
