/* SPDX-License-Identifier: MIT
 * test_run_bad_plugin.c - broken, old, foreign and unsafe plugin files through bsrun: exit 5, one error line
 * that names the file, never a signal. The fixtures are those of tests/plugin; a real plugin of ours is cut
 * short. test_plugin_damage.c overwrites each byte without a bsrun for each. BS_TEST_BIG: more cuts, and
 * every value in every byte. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run_help.h"
#include "tests/run_tests.h"

static int is_big(void) {
  return getenv("BS_TEST_BIG") != NULL && !BS_SLOW;
}

static char folder[64];
static void setup(void) {
  run_make_folder(folder);
}
static void teardown(void) {
  run_remove(folder);
}

static const char *const small[] = {"--phase",
                                    "0",
                                    "-q",
                                    "--out",
                                    "out",
                                    "--set",
                                    "model.N=16",
                                    "--set",
                                    "model.B=4",
                                    "--set",
                                    "phase.fault_gate=false",
                                    NULL};

typedef struct fixture_case {
  const char *id, *error, *says;
} fixture_case;
static const fixture_case fixtures[] = {
    {"nosymbol", "BS-PLG-SYMBOL", "bs_plugin_query_0"},
    {"major", "BS-PLG-ABI", "host"},
    {"minor", "BS-PLG-ABI", "host"},
    {"abizero", "BS-PLG-ABI", NULL},
    {"newer", "BS-PLG-ABI", NULL},
    {"ledger", "BS-PLG-ABI", NULL},
    {"sanitizer", "BS-PLG-SANITIZER", NULL},
    {"wrongid", "BS-PLG-ID", NULL},
    {"differ", "BS-PLG-NOTE", NULL},
    {"missing", "BS-PLG-LOAD", NULL},
    {"failing", "BS-", NULL},
    {"driver", "BS-", "no driver"},
    {"short", "BS-PLG-SIZE", "struct_size of bs_method is 16"},
    {"slot", "BS-PLG-SLOT", NULL},
    {"twice", "BS-PLG-DUP", NULL},
    {"kind", "BS-PLG-KIND", NULL},
};

START_TEST(bad_fixture) {
  const fixture_case *c = &fixtures[_i];
  char path[512], id[64];
  snprintf(path, sizeof path, "%s/tests/fixtures/bs_%s.so", run_env("BS_TEST_BINARY_DIR"), c->id);
  const char *args[] = {"--plugin", path,    "--method",   "bad_method", "--phase", "0",
                        "-q",       "--set", "model.N=16", "--out",      "out",     NULL};
  run_result r;
  run_bsrun(&r, folder, NULL, args);
  run_expect(&r, 5, c->id);
  run_expect_error(&r, 1, id, c->id);
  ck_assert_msg(strncmp(id, c->error, strlen(c->error)) == 0, "%s: %s", c->id, r.err);
  ck_assert_msg(strstr(r.err, c->id) != NULL, "%s: the line does not name the file: %s", c->id, r.err);
  if (c->says != NULL)
    ck_assert_msg(strstr(r.err, c->says) != NULL, "%s: no '%s': %s", c->id, c->says, r.err);
  ck_assert_uint_eq(run_count_files(folder, NULL), 0);
  run_free(&r);
}
END_TEST

static char *copy_plugin(const char *from, const char *to_folder, const char *name, size_t *out_size) {
  char dir[512];
  snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(from, '/') - from), from);
  char *bytes = run_read(dir, strrchr(from, '/') + 1, out_size);
  ck_assert_msg(bytes != NULL, "no %s", from);
  run_write(to_folder, name, bytes, *out_size);
  return bytes;
}

static const char *row_parallel_path(void) {
  static char path[512];
  snprintf(path, sizeof path, "%s/bs_row_parallel.so", run_env("BS_TEST_PLUGIN_DIR"));
  return path;
}

static void run_copy(run_result *r) {
  const char *args[32] = {"--plugin", "./bs_row_parallel.so", "--method", "row_parallel"};
  size_t n = 4;
  for (size_t i = 0; small[i] != NULL; i++) args[n++] = small[i];
  args[n] = NULL;
  run_bsrun(r, folder, NULL, args);
}

/* A plugin of ours, whole and then cut at every 16 KiB (512 bytes): it runs or is refused with exit 5, never
 * a signal. Cuts past the last byte that the loader needs are refused too: the section table is at the end.
 */
START_TEST(cut_short) {
  const size_t step = is_big() ? 512 : 16384;
  size_t size, cuts = 0;
  char id[64], path[128];
  run_result r;
  char *bytes = copy_plugin(row_parallel_path(), folder, "bs_row_parallel.so", &size);
  snprintf(path, sizeof path, "%s/bs_row_parallel.so", folder);
  run_copy(&r);
  run_expect(&r, 0, "the whole plugin");
  run_free(&r);
  char out[80];
  snprintf(out, sizeof out, "%s/out", folder);
  run_remove(out);
  for (size_t keep = (size - 1) / step * step;; keep -= step, cuts++) {
    char what[64];
    snprintf(what, sizeof what, "cut after %zu of %zu bytes", keep, size);
    ck_assert_int_eq(truncate(path, (off_t)keep), 0);
    run_copy(&r);
    run_expect(&r, 5, what);
    run_expect_error(&r, 1, id, what);
    run_free(&r);
    if (keep == 0) break;
  }
  ck_assert_uint_ge(cuts, 4);
  ck_assert_uint_eq(run_count_files(folder, NULL), 1);
  free(bytes);
}
END_TEST

/* Bytes of the ELF header overwritten, each with a value in turn: refused, or still good; never a signal. */
START_TEST(overwritten) {
  size_t size;
  run_result r;
  char *bytes = copy_plugin(row_parallel_path(), folder, "bs_row_parallel.so", &size);
  static const unsigned char values[] = {0x00, 0xff, 0x7f};
  for (size_t at = 0; at < 64; at += BS_SLOW ? 17 : 1) {
    for (size_t v = 0; v < sizeof values; v++) {
      if (!is_big() && v != at % sizeof values) continue;
      const char kept = bytes[at];
      bytes[at] = (char)values[v];
      run_write(folder, "bs_row_parallel.so", bytes, size);
      bytes[at] = kept;
      run_copy(&r);
      ck_assert_msg(r.signal == 0 && (r.code == 0 || r.code == 5), "byte %zu = 0x%02x: exit %d signal %d: %s",
                    at, values[v], r.code, r.signal, r.err);
      run_free(&r);
    }
  }
  free(bytes);
}
END_TEST

/* Found on the search path in a folder that others may write: refused, and `plugins list` says why. */
START_TEST(unsafe_folder) {
  size_t size;
  char dir[80], setting[128];
  snprintf(dir, sizeof dir, "%s/open", folder);
  ck_assert_int_eq(mkdir(dir, 0777), 0);
  ck_assert_int_eq(chmod(dir, 0777), 0);
  char good[512];
  snprintf(good, sizeof good, "%s/tests/fixtures/bs_good.so", run_env("BS_TEST_BINARY_DIR"));
  free(copy_plugin(good, dir, "bs_good.so", &size));
  snprintf(setting, sizeof setting, "BS_PLUGIN_PATH=%s", dir);
  const char *const env[] = {setting, NULL};
  static const char *const list[] = {"plugins", "list", "-o", "jsonl", NULL};
  static const run_bad use = {
      "a plugin of a folder that all may write",
      5,
      "BS-PLG-TRUST",
      "world-writable",
      {"--plugin", "good", "--method", "dense", "--phase", "0", "-q", "--out", "out", NULL}};
  run_result r;
  run_bsrun(&r, folder, env, list);
  run_expect(&r, 0, "list");
  json_t *rows = run_rows(r.out);
  int refused = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(run_str(row, "id"), "good") == 0) refused = strcmp(run_str(row, "state"), "refused") == 0;
  }
  ck_assert_msg(refused, "%s", r.out);
  json_decref(rows);
  run_free(&r);
  run_check_bad(folder, env, NULL, &use);
}
END_TEST

/* What cannot be a plugin at all. */
START_TEST(not_a_plugin) {
  static const run_bad rows[] = {
      {"no file", 5, "BS-PLG-NOTFOUND", "bs_none.so", {"--plugin", "./bs_none.so", NULL}},
      {"an empty file", 5, "BS-PLG-TRUNCATED", "bs_empty.so", {"--plugin", "./bs_empty.so", NULL}},
      {"a text", 5, "BS-PLG-ELF", "bs_text.so", {"--plugin", "./bs_text.so", NULL}},
      {"a name that is no plugin's", 5, "BS-PLG-ID", "plugin.so", {"--plugin", "./plugin.so", NULL}},
      {"a folder", 5, "BS-PLG-PATH", "bs_dir.so", {"--plugin", "./bs_dir.so", NULL}},
      {"a pipe", 5, "BS-PLG-PATH", "bs_pipe.so", {"--plugin", "./bs_pipe.so", NULL}},
  };
  char path[128];
  run_write(folder, "bs_empty.so", "", 0);
  run_write(folder, "bs_text.so",
            "int main(void) { return 0; }\n/* long enough for an ELF header, but a text */\n", 76);
  run_write(folder, "plugin.so", "", 0);
  snprintf(path, sizeof path, "%s/bs_dir.so", folder);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  snprintf(path, sizeof path, "%s/bs_pipe.so", folder);
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  run_check_bad(folder, NULL, small, &rows[_i]);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("run_bad_plugin");
  TCase *tc = tcase_create("plugin files");
  tcase_set_timeout(tc, 180);
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_add_loop_test(tc, bad_fixture, 0, TEST_COUNT(fixtures));
  if (access(row_parallel_path(), R_OK) == 0) { /* not where all plugins are linked in */
    tcase_add_test(tc, cut_short);
    tcase_add_test(tc, overwritten);
  }
  tcase_add_test(tc, unsafe_folder);
  tcase_add_loop_test(tc, not_a_plugin, 0, 6);
  suite_add_tcase(suite, tc);
  return run_suite(suite);
}
