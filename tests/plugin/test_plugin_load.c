/* SPDX-License-Identifier: MIT
 * test_plugin_load.c - the specified answer for each bad plugin, truncation at every 512 bytes, and that
 * refusing leaks no file. */
#include <signal.h>

#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

typedef struct bad_case {
  const char *id, *fault; /* NULL: the plugin has no other */
  int at_open;            /* refused by what the file says; else when it is opened as code */
  int32_t code;
  const char *error;
  const char *text;
} bad_case;

static const bad_case bad_cases[] = {
    {"minor", NULL, 1, BS_ABI, "BS-PLG-ABI", "host has 0."},
    {"major", NULL, 1, BS_ABI, "BS-PLG-ABI", "built for plugin ABI 2, host has 0"},
    {"abizero", NULL, 1, BS_ABI, "BS-PLG-ABI", "states no plugin ABI version (0)"},
    {"newer", NULL, 1, BS_ABI, "BS-PLG-ABI", "needs plugin ABI 0.77 or newer"},
    {"ledger", NULL, 1, BS_ABI, "BS-PLG-ABI", "same ABI number"},
    {"sanitizer", NULL, 1, BS_ABI, "BS-PLG-SANITIZER", "built with"},
    {"wrongid", NULL, 1, BS_PLUGIN, "BS-PLG-ID",
     "file is named bs_wrongid.so, its plugin id is 'somebody_else'"},
    {"nosymbol", NULL, 1, BS_PLUGIN, "BS-PLG-SYMBOL", "has no bs_plugin_query_0"},
    {"shallow", NULL, 1, BS_PLUGIN, "BS-PLG-SYMBOL", "has no bs_plugin_query_0"},
    {"null", NULL, 0, BS_ABI, "BS-PLG-ABI", "query returned NULL"},
    {"desc", NULL, 0, BS_ABI, "BS-PLG-SIZE", "struct_size of bs_plugin_desc is 40"},
    {"differ", NULL, 0, BS_PLUGIN, "BS-PLG-NOTE", "differ in version: '1.0.0' and '2.0.0'"},
    {"bad", "short", 0, BS_ABI, "BS-PLG-SIZE", "struct_size of bs_method is 16"},
    {"bad", "slot", 0, BS_PLUGIN, "BS-PLG-SLOT", "method slot 'forward' is NULL"},
    {"bad", "failing", 0, BS_PLUGIN, "BS-PLG-ACTIVATE", "the moon is in the wrong phase"},
    {"bad", "ignore", 0, BS_PLUGIN, "BS-PLG-SLOT", "method slot 'forward' is NULL"},
    {"bad", "twice", 0, BS_PLUGIN, "BS-PLG-DUP", "method 'bad_method' of plugin bad is already registered"},
    {"bad", "kind", 0, BS_PLUGIN, "BS-PLG-KIND", "registers a backend"},
    {"bad", "param", 0, BS_PLUGIN, "BS-PLG-PARAM", "level=11 (default): must be an integer of 0..10"},
    {"bad", "name", 0, BS_PLUGIN, "BS-PLG-ID", "'Bad Method'"},
    {"driver", NULL, 0, BS_UNAVAILABLE, "BS-PLG-ACTIVATE", "no driver on this machine"},
    {"missing", NULL, 0, BS_UNAVAILABLE, "BS-PLG-LOAD", "fixture_symbol_that_no_library_has"},
};

static const char *bad_fixture(const bad_case *c) {
  if (c->fault != NULL) setenv("BS_BAD_FAULT", c->fault, 1);
  return fixture(c->id);
}

static void check_error(const bad_case *c, int32_t rc, const bs_error *err) {
  ck_assert_msg(rc == c->code, "%s: code %s, not %s: %s", c->id, bs_status_name(rc), bs_status_name(c->code),
                err->message);
  ck_assert_int_eq(bs_status_exit_code(rc), 5);
  ck_assert_str_eq(err->id, c->error);
  ck_assert_has(err->message, c->text);
  ck_assert_has(err->where, c->id);
  ck_assert_str_eq(err->plugin, c->id);
}

/* As `bsrun --plugin PATH` meets it: refused at open, or at the first look-up. */
START_TEST(bad_by_path) {
  const bad_case *c = &bad_cases[_i];
  const char *path = bad_fixture(c);
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  const bs_method *method = NULL;
  bs_context_options o = test_options(&log);
  o.plugins = &path;
  o.n_plugins = 1;
  int32_t rc = bs_context_open(&o, &context, &err);
  if (c->at_open) {
    check_error(c, rc, &err);
    ck_assert_ptr_null(context);
    return;
  }
  ck_assert_msg(rc == BS_OK, "%s: %s", c->id, err.message);
  for (int again = 0; again < 2; again++) { /* the second look-up gives the same answer */
    bs_error_clear(&err);
    rc = bs_find_method(context, "bad_method", &method, NULL, &err);
    check_error(c, rc, &err);
  }
  ck_assert_ptr_null(method);
  bs_plugin_info row = test_row(context, c->id, 0);
  ck_assert(row.state == BS_PLUGIN_REFUSED || row.state == BS_PLUGIN_UNAVAILABLE);
  ck_assert_has(row.why, c->text);
  ck_assert_uint_eq(bs_thing_count(context, c->id), 0); /* nothing stayed */
  ck_assert_uint_eq(bs_param_count(context, c->id), 0);
  bs_context_close(context);
}
END_TEST

/* As an unnamed file of a searched folder: a row with the reason, and no error at open. */
START_TEST(bad_by_search) {
  const bad_case *c = &bad_cases[_i];
  char dir[512], name[64];
  const char *dirs[1] = {dir};
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  const bs_method *method = NULL;
  test_dir(dir, sizeof dir);
  snprintf(name, sizeof name, "bs_%s.so", c->id);
  test_copy(bad_fixture(c), dir, name);
  bs_context_options o = test_options(&log);
  o.plugin_dirs = dirs;
  o.n_plugin_dirs = 1;
  ck_assert_int_eq(bs_context_open(&o, &context, &err), BS_OK);
  bs_plugin_info row = test_row(context, c->id, 0);
  ck_assert_uint_eq(row.state, c->at_open ? BS_PLUGIN_REFUSED : BS_PLUGIN_FOUND);
  if (c->at_open) ck_assert_has(row.why, c->text);
  /* Without a name on the command line it disturbs nobody who asks for something else. */
  int32_t rc = bs_find_method(context, "no_such_method", &method, NULL, &err);
  ck_assert_int_eq(rc, BS_NOT_FOUND);
  ck_assert_uint_eq(test_row(context, c->id, 0).state, row.state);
  rc = bs_plugin_activate(context, c->id, &err);
  check_error(c, rc, &err);
  bs_context_close(context);
  test_remove(dir);
}
END_TEST

/* Asking for what a failed plugin offers gives that plugin's reason, not "not found". */
START_TEST(offer_that_cannot_load_says_why) {
  char dir[512];
  const char *dirs[1] = {dir};
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  const bs_method *method = NULL;
  test_dir(dir, sizeof dir);
  test_copy(fixture("driver"), dir, "bs_driver.so");
  test_copy(fixture("null"), dir, "bs_null.so"); /* offers the same: must not be tried instead */
  bs_context_options o = test_options(&log);
  o.plugin_dirs = dirs;
  o.n_plugin_dirs = 1;
  ck_assert_int_eq(bs_context_open(&o, &context, &err), BS_OK);
  ck_assert_int_eq(bs_find_method(context, "bad_method", &method, NULL, &err), BS_UNAVAILABLE);
  ck_assert_has(err.message, "no driver on this machine");
  ck_assert_uint_eq(test_row(context, "driver", 0).state, BS_PLUGIN_UNAVAILABLE);
  ck_assert_uint_eq(test_row(context, "null", 0).state, BS_PLUGIN_FOUND);
  bs_context_close(context);
  test_remove(dir);
}
END_TEST

START_TEST(note_that_promises_too_much) {
  const char *path = fixture("nothing");
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  const bs_method *method = NULL;
  bs_context *context = test_open(&log, &path, 1);
  ck_assert_int_eq(bs_find_method(context, "bad_method", &method, NULL, &err), BS_NOT_FOUND);
  ck_assert_int_eq(bs_find_method(context, "bad_another", &method, NULL, &err), BS_OK);
  ck_assert_has(log.text, "registers method:bad_another, which its note does not list");
  bs_context_close(context);
}
END_TEST

/* No note: by path with a warning, by search refused. */
START_TEST(without_note) {
  char dir[512];
  const char *path = fixture("nonote");
  const char *dirs[1] = {dir};
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  const bs_method *method = NULL;
  bs_context *context = test_open(&log, &path, 1);
  ck_assert_has(log.text, "has no .note.blockshock note");
  ck_assert_int_eq(bs_find_method(context, "symbol_method", &method, NULL, &err), BS_OK);
  ck_assert_str_eq(method->name, "symbol_method");
  ck_assert_str_eq(test_row(context, "nonote", 0).things, "method:symbol_method\n");
  bs_context_close(context);
  test_dir(dir, sizeof dir);
  test_copy(path, dir, "bs_nonote.so");
  bs_context_options o = test_options(&log);
  o.plugin_dirs = dirs;
  o.n_plugin_dirs = 1;
  ck_assert_int_eq(bs_context_open(&o, &context, &err), BS_OK);
  ck_assert_uint_eq(test_row(context, "nonote", 0).state, BS_PLUGIN_REFUSED);
  ck_assert_has(test_row(context, "nonote", 0).why, "note");
  bs_context_close(context);
  test_remove(dir);
}
END_TEST

static void of_the_program(int number) {
  (void)number;
}

/* What a library installs while it is loaded with the plugin is not what the program has then. */
START_TEST(handlers_are_put_back) {
  static const int numbers[] = {SIGHUP, SIGSEGV, SIGUSR2};
  const char *path = fixture("needy");
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  const bs_method *method = NULL;
  struct sigaction before[3], after;
  signal(SIGUSR2, of_the_program);
  for (int i = 0; i < 3; i++) sigaction(numbers[i], NULL, &before[i]);
  bs_context *context = test_open(&log, &path, 1);
  ck_assert_int_eq(bs_find_method(context, "needy_method", &method, NULL, &err), BS_OK);
  for (int i = 0; i < 3; i++) {
    sigaction(numbers[i], NULL, &after);
    ck_assert_msg(after.sa_handler == before[i].sa_handler, "signal %d has another handler", numbers[i]);
    ck_assert_int_eq(after.sa_flags & SA_SIGINFO,
                     before[i].sa_flags & SA_SIGINFO); /* Linux adds one of its own */
  }
  ck_assert_has(log.text, "3 signal handlers that were installed while it was opened are put back");
  bs_context_close(context);
}
END_TEST

static void check_cut(const char *path, off_t size) {
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *context = NULL;
  bs_context_options o = test_options(&log);
  o.plugins = &path;
  o.n_plugins = 1;
  int32_t rc = bs_context_open(&o, &context, &err);
  ck_assert_msg(rc != BS_OK, "cut to %lld bytes it opens", (long long)size);
  ck_assert_int_eq(bs_status_exit_code(rc), 5);
  ck_assert_str_eq(err.id, "BS-PLG-TRUNCATED");
  ck_assert_ptr_null(context);
}

START_TEST(cut_at_every_512_bytes) {
  char dir[512];
  struct stat st;
  int cuts = 0;
  test_dir(dir, sizeof dir);
  const char *path = test_copy(fixture("good"), dir, "bs_good.so");
  ck_assert_int_eq(stat(path, &st), 0);
  ck_assert_int_eq(truncate(path, st.st_size - 1), 0);
  check_cut(path, st.st_size - 1);
  for (off_t size = (st.st_size - 1) / 512 * 512; size >= 0; size -= 512, cuts++) {
    ck_assert_int_eq(truncate(path, size), 0); /* ever shorter */
    check_cut(path, size);
  }
  ck_assert_int_ge(cuts, 16);
  path = test_copy(fixture("good"), dir, "bs_good.so");
  for (off_t size = 63; size >= 0; size--) { /* inside the ELF header */
    ck_assert_int_eq(truncate(path, size), 0);
    check_cut(path, size);
  }
  test_remove(dir);
}
END_TEST

/* Found whole, cut before it is opened as code: still no signal. */
START_TEST(cut_between_search_and_open) {
  char dir[512];
  struct stat st;
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  const bs_method *method = NULL;
  test_dir(dir, sizeof dir);
  const char *path = test_copy(fixture("good"), dir, "bs_good.so");
  bs_context *context = test_open(&log, &path, 1);
  ck_assert_int_eq(stat(path, &st), 0);
  ck_assert_int_eq(truncate(path, st.st_size / 2), 0);
  ck_assert_int_eq(bs_find_method(context, "good_method", &method, NULL, &err), BS_PLUGIN);
  ck_assert_str_eq(err.id, "BS-PLG-TRUNCATED");
  bs_context_close(context);
  test_remove(dir);
}
END_TEST

START_TEST(exchanged_between_search_and_open) {
  char dir[512];
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  test_dir(dir, sizeof dir);
  const char *path = test_copy(fixture("good"), dir, "bs_good.so");
  bs_context *context = test_open(&log, &path, 1);
  char other[1024];
  snprintf(other, sizeof other, "%s", path);
  path = test_copy(fixture("good"), dir, "new");
  ck_assert_int_eq(rename(path, other), 0);
  ck_assert_int_eq(bs_plugin_activate(context, "good", &err), BS_PLUGIN);
  ck_assert_str_eq(err.id, "BS-PLG-LOAD");
  ck_assert_has(err.message, "changed after it was found");
  bs_context_close(context);
  test_remove(dir);
}
END_TEST

/* Byte changes in the header and tables: refused or found, never a crash of the reader. A search takes a
 * tenth of a second under sanitizers: there it is each byte of the ELF header and every fifth of the tables.
 */
START_TEST(damaged_tables) {
  const int every = BS_SLOW ? 5 : 1;
  char dir[512];
  const char *dirs[1] = {dir};
  unsigned char byte, wrong;
  int refused = 0;
  test_dir(dir, sizeof dir);
  const char *path = test_copy(fixture("good"), dir, "bs_good.so");
  int fd = open(path, O_RDWR | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  for (off_t at = 0; at < 1024; at += at < 64 ? 1 : every) {
    test_log log = TEST_LOG_INIT;
    bs_error err = BS_ERROR_INIT;
    bs_context *context = NULL;
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    wrong = (unsigned char)(byte ^ 0xff);
    ck_assert_int_eq(pwrite(fd, &wrong, 1, at), 1);
    bs_context_options o = test_options(&log);
    o.plugin_dirs = dirs;
    o.n_plugin_dirs = 1;
    ck_assert_int_eq(bs_context_open(&o, &context, &err), BS_OK);
    if (test_row(context, "good", 0).state == BS_PLUGIN_REFUSED) refused++;
    bs_context_close(context);
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
  }
  ck_assert_int_ge(refused, 100); /* at least the ELF header's and the tables' offsets */
  close(fd);
  test_remove(dir);
}
END_TEST

START_TEST(not_elf) {
  static const char *const texts[] = {"", "#!/bin/sh\n", "!<arch>\n", "\177ELF\001\001\001"};
  char dir[512], path[1024];
  test_dir(dir, sizeof dir);
  snprintf(path, sizeof path, "%s/bs_text.so", dir);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    const char *plugin = path;
    test_log log = TEST_LOG_INIT;
    bs_error err = BS_ERROR_INIT;
    bs_context *context = NULL;
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    for (int line = 0; line < (i == 0 ? 0 : 40); line++) fputs(texts[i], f);
    fclose(f);
    bs_context_options o = test_options(&log);
    o.plugins = &plugin;
    o.n_plugins = 1;
    ck_assert_int_eq(bs_context_open(&o, &context, &err), BS_PLUGIN);
    ck_assert_str_eq(err.id, i == 0 ? "BS-PLG-TRUNCATED" : "BS-PLG-ELF");
  }
  test_remove(dir);
}
END_TEST

START_TEST(no_file_stays_open) {
  char dir[512];
  const char *dirs[1] = {dir};
  const bs_method *method = NULL;
  test_dir(dir, sizeof dir);
  test_copy(fixture("good"), dir, "bs_good.so");
  test_copy(fixture("minor"), dir, "bs_minor.so");
  test_copy(fixture("bad"), dir, "bs_bad.so");
  setenv("BS_BAD_FAULT", "failing", 1);
  ck_assert_int_eq(truncate(test_copy(fixture("other"), dir, "bs_other.so"), 5000), 0);
  int before = test_open_files();
  for (int i = 0; i < 3; i++) {
    test_log log = TEST_LOG_INIT;
    bs_error err = BS_ERROR_INIT;
    bs_context *context = NULL;
    bs_context_options o = test_options(&log);
    o.plugin_dirs = dirs;
    o.n_plugin_dirs = 1;
    ck_assert_int_eq(bs_context_open(&o, &context, &err), BS_OK);
    ck_assert_int_eq(bs_find_method(context, "good_method", &method, NULL, &err), BS_OK);
    ck_assert_int_eq(bs_plugin_activate(context, "bad", &err), BS_PLUGIN);
    bs_context_close(context);
  }
  ck_assert_int_eq(test_open_files(), before);
  test_remove(dir);
}
END_TEST

int main(void) {
  int n = (int)(sizeof bad_cases / sizeof bad_cases[0]);
  const test_case tests[] = {{bad_by_path, n},
                             {bad_by_search, n},
                             {offer_that_cannot_load_says_why},
                             {note_that_promises_too_much},
                             {without_note},
                             {handlers_are_put_back},
                             {cut_at_every_512_bytes},
                             {cut_between_search_and_open},
                             {exchanged_between_search_and_open},
                             {damaged_tables},
                             {not_elf},
                             {no_file_stays_open},
                             {0}};
  return run_tests("plugin_load", tests, (test_setup){0});
}
