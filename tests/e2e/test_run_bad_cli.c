/* SPDX-License-Identifier: MIT
 * test_run_bad_cli.c - huge values in the environment, and hundreds of random command lines that never end by
 * a signal. Wrong command lines, each with its answer, are in tests/cases/hostile.case. */
#include <stdio.h>
#include <string.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

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
    ran r;
    run_bsrun(&r, dir, env, args);
    run_expect(&r, 0, names[i]);
    ran_free(&r);
    free(setting);
  }
}
END_TEST

/* Three of four lines end with --print-config and the others with a small layer, so that lines which happen
 * to be right are fast. */
START_TEST(random_command_lines) {
  const char **words = run_words(
      "run plugins list inspect config print keys version help --help --version --plugin cpu ref --method "
      "dense blockshock row_parallel --phase numbers phase0_correctness --mask interleave --workload file "
      "gaussian "
      "--hardware --set model.N=8 model.K= = a.b=c -P 2 3 -1 1e9 --config /dev/null /dev/zero / . -- - -o "
      "json csv -v -vv -q --run-id ../x --timeout 0.001 --print-config --sweep N_sweep model.dtype=f16 "
      "mask.pattern_a=1100 workload.weights=/dev/null --to d --out o --load --threads a=b --- "
      "/dev/null/x ../.. 1e308 %s %s %s",
      "", "%s%n", "\xff\xfe");
  unsigned long long state = 88172645463325252ull + (unsigned)_i;
  size_t n_words = 0;
  while (words[n_words] != NULL) ++n_words;
  size_t ended_well = 0;
  for (int line = 0; line < 60; line++) {
    const char *args[16];
    size_t n = 0;
    ran r;
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
    run_bsrun(&r, dir, NULL, args);
    char text[512] = "";
    for (size_t i = 0, used = 0; i < n && used < 400; i++)
      used += (size_t)snprintf(text + used, sizeof text - used, " '%.40s'", args[i]);
    ck_assert_msg(!r.killed && r.code != 1 && (r.code <= 6 || r.code == 8 || r.code == 10),
                  "exit %d, signal %d:%s\n%s", r.code, r.killed, text, r.err);
    if (r.code == 0) {
      ended_well++;
    } else {
      ck_assert_msg(strstr(r.err, "bsrun: error[BS-") != NULL || strstr(r.out, "bsrun") != NULL,
                    "exit %d says nothing:%s", r.code, text);
    }
    ran_free(&r);
  }
  ck_assert_uint_gt(ended_well, 0);
}
END_TEST

int main(void) {
  const test_case tests[] = {{huge_environment}, {random_command_lines, 4}, {0}};
  return run_tests("run_bad_cli", tests, (test_setup){dir_make, dir_remove, 120});
}
