/* SPDX-License-Identifier: MIT
 * test_run_bad_cli.c - wrong command lines and hostile environments: exit 2 (or what the table says), one
 * error line, no partial work; and hundreds of random command lines that never end by a signal. */
#include <stdio.h>
#include <string.h>

#include "run_help.h"
#include "tests/run_tests.h"

static char folder[64];
static void setup(void) {
  run_make_folder(folder);
}
static void teardown(void) {
  run_remove(folder);
}

#define LONG_65 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
static const run_bad rows[] = {
    {"unknown verb", 2, "BS-USE-VERB", "run", {"rum", NULL}},
    {"unknown option", 2, "BS-USE-OPTION", "--method", {"--methd", "dense", NULL}},
    {"unknown letter", 2, "BS-USE-OPTION", NULL, {"-z", NULL}},
    {"a word too many", 2, "BS-USE-WORD", "dense", {"--method", "dense", "dense", NULL}},
    {"no value", 2, "BS-USE-VALUE", "--method", {"--method", NULL}},
    {"an option for a value", 2, "BS-USE-VALUE", "--method", {"--method", "--phase", "0", NULL}},
    {"a value for a flag", 2, "BS-USE-VALUE", "--quiet", {"--quiet=yes", NULL}},
    {"one option twice", 2, "BS-USE-TWICE", "--method", {"--method", "dense", "--method", "dense", NULL}},
    {"no ranks", 2, "BS-USE-NUMBER", "-P", {"-P", "0", NULL}},
    {"-1 ranks", 2, "BS-USE-NUMBER", "-P", {"-P", "-1", NULL}},
    {"1e9 ranks", 2, "BS-USE-NUMBER", "1e9", {"-P", "1e9", NULL}},
    {"ranks beyond 64 bits", 2, "BS-USE-NUMBER", NULL, {"-P", "99999999999999999999999", NULL}},
    {"65537 ranks", 2, "BS-USE-NUMBER", NULL, {"-P", "65537", NULL}},
    {"two and a bit ranks", 2, "BS-USE-NUMBER", NULL, {"-P", "2x", NULL}},
    {"no time", 2, "BS-USE-NUMBER", "--timeout", {"--timeout", "0", NULL}},
    {"a time that is no number", 2, "BS-USE-NUMBER", NULL, {"--timeout", "nan", NULL}},
    {"endless", 2, "BS-USE-NUMBER", NULL, {"--timeout", "inf", NULL}},
    {"threads", 2, "BS-USE-NUMBER", NULL, {"--threads-per-rank", "4097", NULL}},
    {"an id that climbs", 2, "BS-USE-NAME", "'/'", {"--run-id", "../up", NULL}},
    {"the id ..", 2, "BS-USE-NAME", NULL, {"--run-id", "..", NULL}},
    {"an empty id", 2, "BS-USE-NAME", NULL, {"--run-id", "", NULL}},
    {"an id of 65 letters", 2, "BS-USE-NAME", "65", {"--run-id", LONG_65, NULL}},
    {"control bytes in an id", 2, "BS-USE-NAME", "0x1b", {"--run-id", "a\x1b[31m", NULL}},
    {"no folder", 2, "BS-USE-EMPTY", "--out", {"--out", "", NULL}},
    {"control bytes in a folder", 2, "BS-USE-NAME", "0x0a", {"--out", "a\nb", NULL}},
    {"no output format of that name", 2, "BS-USE-FORMAT", "json", {"-o", "jsn", NULL}},
    {"--set without a value", 2, "BS-USE-SET", NULL, {"--set", "model.N", NULL}},
    {"--set without a key", 2, "BS-USE-SET", NULL, {"--set", "=8", NULL}},
    {"help on nothing", 2, "BS-USE-VERB", NULL, {"help", "rum", NULL}},
    {"plugins, unknown word", 2, "BS-USE-VERB", "list", {"plugins", "lst", NULL}},
    {"plugins inspect nothing", 2, "BS-USE-WORD", NULL, {"plugins", "inspect", NULL}},
    {"inspect what is not there", 5, "BS-PLG-NONE", "no_such", {"plugins", "inspect", "no_such", NULL}},
    {"a plugin that is a folder", 5, "BS-PLG-ID", NULL, {"--plugin", "./", NULL}},
    {"more ranks than dense takes", 3, "BS-METHOD-WORLD", "dense", {"--method", "dense", "-P", "2", NULL}},
    {"a mask for three ranks that there is not",
     3,
     "BS-MASK-WORLD",
     "interleave",
     {"--method", "blockshock", "-P", "3", NULL}},
    {"a layer of an exabyte",
     10,
     "BS-RUN-MEMORY",
     "needs at least",
     {"--method", "row_parallel", "--set", "model.N=1073741824", "--set", "model.B=1", "--out", "out", NULL}},
};

START_TEST(bad_command_line) {
  run_check_bad(folder, NULL, NULL, &rows[_i]);
  ck_assert_uint_eq(run_count_files(folder, NULL), 0);
}
END_TEST

/* ---- environment ------------------------------------------------------------------------------------------
 */

typedef struct env_case {
  const char *set[3];
  run_bad want;
} env_case;
#define RUN_DENSE \
  { "--method", "dense", "--phase", "0", "--plugin", "cpu", "--out", "out", NULL }
static const env_case envs[] = {
    {{"BS_CPU_ISA=8087", NULL},
     {"a parameter out of its values", 3, "BS-PLG-PARAM", "BS_CPU_ISA", RUN_DENSE}},
    {{"BS_CONFIG_DIR=/nowhere/at/all", NULL},
     {"a configs folder that is not there", 3, "BS-CFG-DIR", NULL, RUN_DENSE}},
};

START_TEST(bad_environment) {
  run_check_bad(folder, envs[_i].set, NULL, &envs[_i].want);
}
END_TEST

/* Relative and empty elements of BS_PLUGIN_PATH are refused and said; the run goes on with what may be
 * trusted. */
START_TEST(relative_plugin_path) {
  static const char *const env[] = {"BS_PLUGIN_PATH=plugins::./here:/nonexistent", NULL};
  static const char *const args[] = {"plugins", "list", NULL};
  run_result r;
  run_bsrun(&r, folder, env, args);
  run_expect(&r, 0, "relative BS_PLUGIN_PATH");
  ck_assert_ptr_nonnull(strstr(r.err, "plugins"));
  ck_assert_ptr_nonnull(strstr(r.err, "./here"));
  ck_assert_ptr_nonnull(strstr(r.out, "blockshock"));
  run_free(&r);
}
END_TEST

/* Values of 100,000 bytes: none overflows anything, none changes a run that does not read it. */
START_TEST(huge_environment) {
  static const char *const names[] = {"BS_PLUGIN_PATH", "TZ", "LANG", "OMP_NUM_THREADS", "HOME"};
  static const char *const args[] = {"--method", "dense", "--plugin",   "ref",   "--phase", "0",
                                     "-q",       "--set", "model.N=16", "--out", "out",     NULL};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char *setting = malloc(100100);
    ck_assert_ptr_nonnull(setting);
    const int n = sprintf(setting, "%s=", names[i]);
    memset(setting + n, '/', 100000);
    setting[n + 100000] = '\0';
    const char *const env[] = {setting, NULL};
    run_result r;
    run_bsrun(&r, folder, env, args);
    run_expect(&r, 0, names[i]);
    run_free(&r);
    free(setting);
  }
}
END_TEST

/* ---- random command lines
 * ------------------------------------------------------------------------------------ */

/* Three of four lines end with --print-config and the others with a small layer, so that lines which happen
 * to be right are fast. */
START_TEST(random_command_lines) {
  const char **words = run_words(
      "run plugins list inspect config print keys version help --help --version --plugin cpu ref --method "
      "dense blockshock row_parallel --phase 0 phase0_correctness --mask interleave --workload file gaussian "
      "--hardware --set model.N=8 model.K= = a.b=c -P 2 3 -1 1e9 --config /dev/null /dev/zero / . -- - -o "
      "json csv -v -vv -q --run-id ../x --timeout 0.001 --print-config --sweep N_sweep model.dtype=f16 "
      "mask.pattern_a=1100 workload.weights=/dev/null --dump d --out o --load --threads-per-rank a=b --- "
      "/dev/null/x ../.. 1e308 %s %s %s",
      "", "%s%n", "\xff\xfe");
  unsigned long long state = 88172645463325252ull + (unsigned)_i;
  size_t n_words = 0;
  while (words[n_words] != NULL) ++n_words;
  size_t ended_well = 0;
  for (int line = 0; line < 60; line++) {
    const char *args[16];
    size_t n = 0;
    run_result r;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const size_t length = 1 + state % 6;
    while (n < length) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      args[n++] = words[(state >> 11) % n_words];
    }
    args[n++] = line % 4 != 0 ? "--print-config" : "--set=sweep=null";
    args[n++] = "--set=model={N: 16, B: 2}";
    args[n++] = "--set=phase.timed_iters=1";
    args[n++] = "--set=phase.pairs_seconds=0.01";
    args[n] = NULL;
    run_bsrun(&r, folder, NULL, args);
    char text[512] = "";
    for (size_t i = 0, used = 0; i < n && used < 400; i++)
      used += (size_t)snprintf(text + used, sizeof text - used, " '%.40s'", args[i]);
    ck_assert_msg(r.signal == 0 && r.code != 1 && (r.code <= 6 || r.code == 8 || r.code == 10),
                  "exit %d, signal %d:%s\n%s", r.code, r.signal, text, r.err);
    if (r.code == 0) {
      ended_well++;
    } else {
      ck_assert_msg(strstr(r.err, "bsrun: error[BS-") != NULL || strstr(r.out, "bsrun") != NULL,
                    "exit %d says nothing:%s", r.code, text);
    }
    run_free(&r);
  }
  ck_assert_uint_gt(ended_well, 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{bad_command_line, TEST_COUNT(rows)},
                             {bad_environment, TEST_COUNT(envs)},
                             {relative_plugin_path},
                             {huge_environment},
                             {random_command_lines, 4},
                             {0}};
  return run_tests("run_bad_cli", tests, (test_setup){setup, teardown, 120});
}
