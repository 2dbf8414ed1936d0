/* SPDX-License-Identifier: MIT
 * test_run_bad_plugin.c - a plugin of ours, cut short and overwritten, through bsrun: it runs or is refused
 * with exit 5, never a signal. test_plugin_damage.c overwrites each byte without a bsrun for each.
 * tests/cases/bad_plugin.case has broken and foreign files. BS_TEST_BIG: more cuts, and every value in every
 * byte. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

static int is_big(void) {
  return getenv("BS_TEST_BIG") != NULL && !BS_SLOW;
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

static char *copy_plugin(const char *from, const char *to_folder, const char *name, size_t *out_size) {
  char *bytes = run_read("/", from, out_size);
  ck_assert_msg(bytes != NULL, "no %s", from);
  run_write(to_folder, name, bytes, *out_size);
  return bytes;
}

static const char *row_parallel_path(void) {
  static char path[512];
  snprintf(path, sizeof path, "%s/bs_row_parallel.so", run_env("BS_TEST_PLUGIN_DIR"));
  return path;
}

static void run_copy(ran *r) {
  const char *args[32] = {"--plugin", "./bs_row_parallel.so", "--method", "row_parallel"};
  size_t n = 4;
  for (size_t i = 0; small[i] != NULL; i++) args[n++] = small[i];
  args[n] = NULL;
  run_bsrun(r, dir, NULL, args);
}

/* A plugin of ours, whole and then cut at every 16 KiB (512 bytes): it runs or is refused with exit 5, never
 * a signal. Cuts past the last byte that the loader needs are refused too: the section table is at the end.
 */
START_TEST(cut_short) {
  const size_t step = is_big() ? 512 : 16384;
  size_t size, cuts = 0;
  char id[64], path[128];
  ran r;
  char *bytes = copy_plugin(row_parallel_path(), dir, "bs_row_parallel.so", &size);
  snprintf(path, sizeof path, "%s/bs_row_parallel.so", dir);
  run_copy(&r);
  run_expect(&r, 0, "the whole plugin");
  ran_free(&r);
  char out[80];
  snprintf(out, sizeof out, "%s/out", dir);
  remove_dir(out);
  for (size_t keep = (size - 1) / step * step;; keep -= step, cuts++) {
    char what[64];
    snprintf(what, sizeof what, "cut after %zu of %zu bytes", keep, size);
    ck_assert_int_eq(truncate(path, (off_t)keep), 0);
    run_copy(&r);
    run_expect(&r, 5, what);
    run_expect_error(&r, 1, id, what);
    ran_free(&r);
    if (keep == 0) break;
  }
  ck_assert_uint_ge(cuts, 4);
  ck_assert_uint_eq(run_count_files(dir, NULL), 1);
  free(bytes);
}
END_TEST

/* Bytes of the ELF header overwritten, each with a value in turn: refused, or still good; never a signal. */
START_TEST(overwritten) {
  size_t size;
  ran r;
  char *bytes = copy_plugin(row_parallel_path(), dir, "bs_row_parallel.so", &size);
  static const unsigned char values[] = {0x00, 0xff, 0x7f};
  for (size_t at = 0; at < 64; at += BS_SLOW ? 17 : 1) {
    for (size_t v = 0; v < sizeof values; v++) {
      if (!is_big() && v != at % sizeof values) continue;
      const char kept = bytes[at];
      bytes[at] = (char)values[v];
      run_write(dir, "bs_row_parallel.so", bytes, size);
      bytes[at] = kept;
      run_copy(&r);
      ck_assert_msg(!r.killed && (r.code == 0 || r.code == 5), "byte %zu = 0x%02x: exit %d signal %d: %s", at,
                    values[v], r.code, r.killed, r.err);
      ran_free(&r);
    }
  }
  free(bytes);
}
END_TEST

int main(void) {
  const test_case tests[] = {{cut_short}, {overwritten}, {0}};
  if (access(row_parallel_path(), R_OK) != 0) return 0; /* where all plugins are linked in */
  return run_tests("run_bad_plugin", tests, (test_setup){dir_make, dir_remove, 180});
}
