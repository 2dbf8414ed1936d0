/* SPDX-License-Identifier: MIT
 * test_kit_command.c - the commands around the kit: forms of the report, expected failures, wrong use, and
 * `bsrun plugins check`, which runs it as a child and passes on its status. */
#include <jansson.h>
#include <unistd.h>

#include "core/base/error.h"
#include "formats/npy.h"
#include "tests/kit/kit_test.h"
#include "tests/run_tests.h"

static kit_ran r;
static char folder[64];

static void setup(void) {
  snprintf(folder, sizeof folder, "/tmp/bs-kit-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}
static void teardown(void) {
  kit_shell(&r, "rm -rf '%s'", folder);
}

static void write_xfail(const char *text) {
  char path[96];
  snprintf(path, sizeof path, "%s/xfail.txt", folder);
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
}

static void run_kit(const char *plugin, const char *words) {
  char program[4096];
  snprintf(program, sizeof program, "%s", kit_bin("bs-conformance"));
  kit_shell(&r, "cd '%s' && '%s' '%s/bs_%s.so' %s 2>err", folder, program, BS_TEST_KIT_DIR, plugin, words);
}

START_TEST(json_has_every_check_and_the_grade) {
  run_kit("wrong_op", "--param fault='off-by-one sum' --only numerics -o json");
  ck_assert_int_eq(r.code, 5);
  json_t *root = json_loads(r.text, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(root != NULL, "%s", r.text);
  ck_assert_str_eq(json_string_value(json_object_get(root, "plugin")), "wrong_op");
  ck_assert(json_is_false(json_object_get(root, "conformant")));
  ck_assert_uint_gt(json_array_size(json_object_get(root, "checks")), 4);
  ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(root, "grade")), "FAIL"));
  json_decref(root);
}
END_TEST

START_TEST(tap_counts_its_lines) {
  run_kit("wrong_op", "--only abi -o tap");
  ck_assert_int_eq(r.code, 0);
  ck_assert_ptr_nonnull(strstr(r.text, "TAP version 13\n1..5\n"));
  ck_assert_ptr_nonnull(strstr(r.text, "ok 5 - abi.later_host\n"));
  ck_assert_ptr_null(strstr(r.text, "not ok"));
}
END_TEST

START_TEST(a_part_of_a_group_is_run_alone) {
  run_kit("wrong_op", "--only lifecycle.rep -o tap");
  ck_assert_int_eq(r.code, 0);
  ck_assert_ptr_nonnull(strstr(r.text, "\n1..1\nok 1 - lifecycle.repeat\n"));
  run_kit("wrong_op", "--only lifecycle.repeat");
  ck_assert_ptr_nonnull(strstr(r.text, "partial: group lifecycle.repeat "));
}
END_TEST

/* Several groups, with commas or one after another. */
START_TEST(several_groups_are_run) {
  static const char *const words[] = {"--only abi,lifecycle.repeat", "--only abi --only lifecycle.repeat"};
  for (size_t i = 0; i < 2; i++) {
    run_kit("wrong_op", words[i]);
    ck_assert_int_eq(r.code, 0);
    ck_assert_msg(strstr(r.text, "partial: group abi,lifecycle.repeat ") != NULL, "%s", r.text);
    ck_assert_msg(strstr(r.text, "(6 pass, ") != NULL, "%s", r.text);
  }
}
END_TEST

/* Two parts have each check of the group in one of them. */
START_TEST(parts_share_the_checks) {
  for (int i = 0; i < 2; i++) {
    char words[64];
    snprintf(words, sizeof words, "--only abi --part %d/2", i + 1);
    run_kit("wrong_op", words);
    ck_assert_msg(r.code == 0 && strstr(r.text, "partial: group abi, part") != NULL, "%s", r.text);
    ck_assert_msg((strstr(r.text, "abi.host") != NULL) != (strstr(r.text, "abi.symbols") != NULL), "%s",
                  r.text);
    ck_assert_msg(strstr(r.text, i == 0 ? "(3 pass, " : "(2 pass, ") != NULL, "%s", r.text);
  }
}
END_TEST

/* The same communicator under a second name is opened by it; what it does is checked once. */
START_TEST(a_second_name_is_not_graded_again) {
  run_kit("wrong_comm", "--only communicator.exchange -o tap");
  ck_assert_ptr_nonnull(strstr(r.text, " communicator.exchange.wrong_exchange\n"));
  ck_assert_ptr_nonnull(strstr(r.text, " communicator.exchange.exchange_other\n"));
  ck_assert_msg(strstr(r.text, "exchange_again") == NULL, "%s", r.text);
  run_kit("wrong_comm", "--only lifecycle.world -o tap");
  ck_assert_ptr_nonnull(strstr(r.text, " lifecycle.world.exchange_again"));
}
END_TEST

START_TEST(an_expected_failure_is_no_failure) {
  write_xfail("# known\nhygiene.environment: waits for a release of its vendor's library\n");
  run_kit("wrong_op", "--param fault='calls setenv' --only hygiene --xfail xfail.txt");
  ck_assert_msg(r.code == 0, "%s", r.text);
  ck_assert(kit_line_has(r.text, "xfail", "hygiene.environment: waits for a release"));
  ck_assert_ptr_nonnull(strstr(r.text, "1 xfail)"));
}
END_TEST

START_TEST(an_unexpected_pass_fails) {
  write_xfail("hygiene.environment: was broken once\n");
  run_kit("wrong_op", "--only hygiene --xfail xfail.txt");
  ck_assert_int_eq(r.code, 5);
  ck_assert(kit_line_has(r.text, "FAIL", "does not fail any more, but is expected to: was broken once"));
}
END_TEST

/* What libcheck would read: checks are neither left out nor run in the kit's own process. */
START_TEST(the_environment_of_libcheck_is_not_obeyed) {
  static const char *const settings[] = {"CK_RUN_SUITE=abi", "CK_RUN_CASE=abi.file", "CK_INCLUDE_TAGS=none",
                                         "CK_FORK=no", "CK_DEFAULT_TIMEOUT=0.0001"};
  char program[4096];
  snprintf(program, sizeof program, "%s", kit_bin("bs-conformance"));
  for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
    kit_shell(&r, "%s '%s' '%s/bs_wrong_op.so' --param fault=aborts --only lifecycle 2>&1", settings[i],
              program, BS_TEST_KIT_DIR);
    ck_assert_msg(r.code == 5, "%s: exit %d: %s", settings[i], r.code, r.text);
    ck_assert_msg(kit_line_has(r.text, "FAIL        lifecycle.repeat", "signal 6"), "%s: %s", settings[i],
                  r.text);
    kit_shell(&r, "%s '%s' '%s/bs_wrong_op.so' --only abi 2>&1", settings[i], program, BS_TEST_KIT_DIR);
    ck_assert_msg(r.code == 0 && strstr(r.text, "(5 pass, ") != NULL, "%s: %s", settings[i], r.text);
  }
}
END_TEST

/* Words, exit code, part of the error line. */
static const struct {
  const char *xfail, *words;
  int code;
  const char *error;
} refusals[] = {
    {"hygiene.enviroment: a slip\n", "--xfail xfail.txt", 4, "did you mean 'hygiene.environment'?"},
    {"hygiene.environment\n", "--xfail xfail.txt", 4, "is not NAME: REASON"},
    {"", "--xfail none.txt", 4, "BS-KIT-XFAIL"},
    {"", "--xfail /tmp", 4, "cannot be read"},
    {"", "--preset ful", 2, "did you mean 'full'?"},
    {"", "--only numeric", 2, "did you mean 'numerics'?"},
    {"", "--only abi.nothing", 2, "abi.nothing has no check"},
    {"", "--only abi,numeric.x", 2, "'numeric.x' is not known"},
    {"", "--only abi,numeric", 2, "did you mean 'numerics'?"},
    {"", "--only abi,abi.nothing", 2, "abi.nothing has no check"},
    {"", "--only abi,", 2, "'' is not known"},
    {"", "--kit quick", 2, "unrecognized option '--kit'"},
    {"", "--group abi", 2, "unrecognized option '--group'"},
    {"", "--part 3/2", 2, "part 3 of 2"},
    {"", "--part two", 2, "'two' is not known"},
    {"", "--part 1/-1", 2, "'1/-1' is not known"},
    {"", "-o yaml", 2, "-o: 'yaml' is not known"},
    {"", "more", 2, "takes one plugin file, 2 given"},
    {"", "--nothing", 2, "--help"},
    {"", "--param half", 2, "is not NAME=VALUE"},
};

START_TEST(wrong_use_is_refused) {
  write_xfail(refusals[_i].xfail);
  run_kit("wrong_op", refusals[_i].words);
  ck_assert_msg(r.code == refusals[_i].code, "%s: exit %d: %s", refusals[_i].words, r.code, r.text);
  ck_assert_str_eq(r.text, "");
  kit_shell(&r, "cat '%s/err'", folder);
  ck_assert_msg(strstr(r.text, refusals[_i].error) != NULL, "%s: %s", refusals[_i].words, r.text);
}
END_TEST

START_TEST(a_file_that_is_not_there) {
  run_kit("nowhere", "");
  ck_assert_int_eq(r.code, 4);
  run_kit("wrong_op", "--help");
  ck_assert_int_eq(r.code, 0);
  ck_assert_ptr_nonnull(strstr(r.text, "examples:"));
}
END_TEST

/* A workload that needs an option of its own. */
START_TEST(options_reach_the_workload) {
  static float weights[12 * 192];
  const int64_t dims[2] = {12, 192};
  char path[4200];
  bs_error err = BS_ERROR_INIT;
  snprintf(path, sizeof path, "%s/bs_file.so", getenv("BS_TEST_PLUGIN_DIR"));
  if (access(path, R_OK) != 0) return; /* linked into the library */
  for (int i = 0; i < 12 * 192; i++) weights[i] = (float)(i % 7);
  snprintf(path, sizeof path, "%s/w.npy", folder);
  ck_assert_msg(bs_npy_write(path, BS_F32, 2, dims, weights, &err) == BS_OK, "%s", err.message);
  kit_shell(&r, "'%s' '%s/bs_file.so' --option weights='%s' 2>&1", kit_bin("bs-conformance"),
            getenv("BS_TEST_PLUGIN_DIR"), path);
  ck_assert_msg(r.code == 0, "%s", r.text);
  kit_shell(&r, "'%s' '%s/bs_file.so' --only workload 2>&1", kit_bin("bs-conformance"),
            getenv("BS_TEST_PLUGIN_DIR"));
  ck_assert_int_eq(r.code, 5);
  ck_assert_ptr_nonnull(strstr(r.text, "the least that its kind must do is not supported"));
}
END_TEST

/* ---- bsrun plugins check -------------------------------------------------------------------- */

static void check(const char *words) {
  kit_shell(&r, "'%s' plugins check %s 2>&1", kit_bin("bsrun"), words);
}

START_TEST(bsrun_passes_on_grade_and_status) {
  char words[4200];
  snprintf(words, sizeof words, "'%s/bs_wrong_op.so' --only abi", BS_TEST_KIT_DIR);
  check(words);
  ck_assert_msg(r.code == 0, "%s", r.text);
  ck_assert_ptr_nonnull(strstr(r.text, "\npartial: group abi "));
  ck_assert_ptr_null(strstr(r.text, "blockshock-conformant"));
  snprintf(words, sizeof words,
           "'%s/bs_wrong_op.so' --param fault='calls setenv' --preset quick --only hygiene -o json",
           BS_TEST_KIT_DIR);
  check(words);
  ck_assert_int_eq(r.code, 5);
  ck_assert_ptr_nonnull(strstr(r.text, "\"conformant\": false"));
}
END_TEST

/* Layers on the backend of users, or on one that is not there. */
START_TEST(methods_on_another_backend) {
  char words[4200];
  snprintf(words, sizeof words, "'%s/bs_wrong_method.so' --only threads --backend cpu", BS_TEST_KIT_DIR);
  check(words);
  ck_assert_msg(r.code == 0, "%s", r.text);
  snprintf(words, sizeof words, "'%s/bs_wrong_method.so' --only threads --backend cpuu", BS_TEST_KIT_DIR);
  check(words);
  ck_assert_int_eq(r.code, 5);
  ck_assert(kit_line_has(r.text, "FAIL        threads.worlds.wrong_row", "--backend: no backend 'cpuu'"));
}
END_TEST

/* What is an MPI's is skipped where nothing starts its ranks, and says why. */
START_TEST(without_an_mpirun_the_reason_is_told) {
  static const struct {
    const char *before, *words, *why;
  } missing[] = {{"PATH=/nowhere ", "", "no mpirun of Open MPI or MPICH is in PATH"},
                 {"", "--mpirun /nowhere/mpirun", "/nowhere/mpirun started no process (exit 127)"}};
  char path[4200];
  snprintf(path, sizeof path, "%s/bs_mpi.so", getenv("BS_TEST_PLUGIN_DIR"));
  if (access(path, R_OK) != 0) return; /* no MPI was found when this was configured */
  for (size_t i = 0; i < 2; i++) {
    kit_shell(&r, "%s'%s' '%s' --only communicator %s 2>&1", missing[i].before, kit_bin("bs-conformance"),
              path, missing[i].words);
    ck_assert_msg(r.code == 5, "exit %d: %s", r.code, r.text); /* nothing passed */
    ck_assert_msg(kit_line_has(r.text, "unsupported communicator.values.barrier.mpi", missing[i].why), "%s",
                  r.text);
    ck_assert_ptr_null(strstr(r.text, "FAIL  "));
  }
  kit_shell(&r, "'%s' plugins check '%s' --only communicator --mpirun /nowhere/mpirun 2>&1", kit_bin("bsrun"),
            path);
  ck_assert_msg(strstr(r.text, "/nowhere/mpirun started no process") != NULL, "%s", r.text);
}
END_TEST

/* Importers and topologies have no checks of their own; the algorithm has no formula. */
START_TEST(kinds_of_one_plugin) {
  kit_shell(&r, "'%s' '%s/tests/fixtures/bs_kinds.so' 2>&1", kit_bin("bs-conformance"),
            getenv("BS_TEST_BINARY_DIR"));
  ck_assert_msg(r.code == 0, "%s", r.text);
  ck_assert_ptr_nonnull(strstr(r.text, ": importer,algorithm,topology (22 pass, 1 unsupported, 0 xfail)"));
}
END_TEST

START_TEST(bsrun_finds_plugins_by_id) {
  kit_shell(&r, "BS_PLUGIN_PATH='%s' '%s' plugins check wrong_op --only abi --set plugin_trust=any 2>&1",
            BS_TEST_KIT_DIR, kit_bin("bsrun"));
  ck_assert_msg(r.code == 0, "%s", r.text);
  check("nosuchplugin");
  ck_assert_int_eq(r.code, 3);
  ck_assert_ptr_nonnull(strstr(r.text, "there is no plugin 'nosuchplugin'"));
  check("threads");
  ck_assert_msg(r.code == 5, "%s", r.text);
  ck_assert_ptr_nonnull(strstr(r.text, "linked into the library"));
  check("");
  ck_assert_int_eq(r.code, 2);
}
END_TEST

START_TEST(bsrun_says_when_the_kit_is_missing) {
  kit_shell(&r,
            "mkdir '%s/bin' && cp '%s' '%s/bin/' && LD_LIBRARY_PATH='%s/lib' '%s/bin/bsrun' plugins check "
            "'%s/bs_wrong_op.so' 2>&1",
            folder, kit_bin("bsrun"), folder, getenv("BS_TEST_BINARY_DIR"), folder, BS_TEST_KIT_DIR);
  ck_assert_msg(r.code == 5, "%s", r.text);
  ck_assert_ptr_nonnull(strstr(r.text, "error[BS-CHK-KIT]"));
}
END_TEST

int main(void) {
  const test_case tests[] = {{json_has_every_check_and_the_grade},
                             {tap_counts_its_lines},
                             {the_environment_of_libcheck_is_not_obeyed},
                             {a_part_of_a_group_is_run_alone},
                             {several_groups_are_run},
                             {parts_share_the_checks},
                             {a_second_name_is_not_graded_again},
                             {an_expected_failure_is_no_failure},
                             {an_unexpected_pass_fails},
                             {wrong_use_is_refused, TEST_COUNT(refusals)},
                             {a_file_that_is_not_there},
                             {options_reach_the_workload},
                             {bsrun_passes_on_grade_and_status},
                             {methods_on_another_backend},
                             {without_an_mpirun_the_reason_is_told},
                             {kinds_of_one_plugin},
                             {bsrun_finds_plugins_by_id},
                             {bsrun_says_when_the_kit_is_missing},
                             {0}};
  return run_tests("kit_command", tests, (test_setup){setup, teardown, 120});
}
