/* SPDX-License-Identifier: MIT
 * test_kit_wrong.c - the kit itself: plugins that are wrong in one way each fail in the right group with the
 * right sentence, and the right ones that they are made of grade clean. */
#include "tests/kit/kit_test.h"

static const struct {
  const char *plugin, *group, *check, *sentence;
} wrongs[] = {
    {"wrong1", "truth", "FAIL        truth.supports.matmul@wrong/naive", "answers native, and pack refuses"},
    {"wrong2", "truth", "FAIL        truth.supports.matmul@wrong/naive",
     "answers NO (N must be even), and it runs"},
    {"wrong3", "hygiene", "FAIL        hygiene.output", "writes to standard output or error: 'RUDE WORDS"},
    {"wrong4", "hygiene", "FAIL        hygiene.environment",
     "changes the environment: WRONG_PLUGIN=was here"},
    {"wrong5", "hygiene", "FAIL        hygiene.files", "open (/dev/null)"},
    {"wrong6", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive", "the fp64 oracle says"},
    {"wrong7", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "writes outside of its output"},
    {"wrong8", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive", "the input is changed"},
    {"wrong9", "lifecycle", "FAIL        lifecycle.failures",
     "activate whose host call 2 (register_thing) fails leaves 1 blocks of host memory"},
    {"wrong10", "truth", "FAIL        truth.supports.matmul@wrong/naive", "NO without a reason"},
    {"wrong11", "truth", "FAIL        truth.supports.matmul@wrong/naive", "answers two things to one query"},
    {"wrong12", "hygiene", "FAIL        hygiene.signals", "installs a handler of signal 10"},
    {"wrong13", "hygiene", "FAIL        hygiene.process", "changes the rounding mode"},
    {"wrong14", "lifecycle", "FAIL        lifecycle.repeat", "signal 6"},
    {"wrong15", "abi", "FAIL        abi.things", "lists op:convert@wrong, it is not registered"},
    {"wrong16", "lifecycle", "FAIL        lifecycle.repeat", "activation 2 fails: BS-WRONG-ONCE"},
    {"wrong17", "numerics", "FAIL        numerics.special.matmul@wrong/naive", "the fp64 oracle says nan"},
    {"wrong18", "numerics", "FAIL        numerics.subnormal.matmul@wrong/naive",
     "is 0, the fp64 oracle says"},
    {"wrong19", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive",
     "blocks of device memory"},
    {"wrong20", "abi", "FAIL        abi.symbols", "exports 2 symbols, one is allowed"},
    {"wrong21", "abi", "FAIL        abi.host", "BS-PLG-SIZE"},
    {"wrong22", "numerics", "FAIL        numerics.values.float.matmul@wrong/naive", "bias=f32"},
    {"wrong23", "lifecycle", "FAIL        lifecycle.repeat",
     "the plugin ends the process: it may not call exit"},
    {"wrongm1", "method", "FAIL        method.exact.2.wrong_row", "payload bytes, it proposed"},
    {"wrongm2", "method", "FAIL        method.exact.2.wrong_row", "y["},
    {"wrongm3", "method", "FAIL        method.exact.2.wrong_row", "not today"},
    {"wrongm4", "method", "FAIL        method.exact.2.wrong_row", "y["},
    {"wrongw1", "workload", "FAIL        workload.stream.wrong_work", "differs"},
    {"wrongw2", "workload", "FAIL        workload.parts.wrong_work", "info declares"},
    {"wrongw3", "workload", "FAIL        workload.stream.wrong_work", "other values when it is opened again"},
    {"liar", "communicator", "FAIL        communicator.values.all_reduce.liar", "the serial oracle says"},
    {"liar", "communicator", "FAIL        communicator.faults.late.liar", "it must be DEADLINE"},
};

START_TEST(wrong_plugins_fail_with_the_right_sentence) {
  static kit_ran r;
  kit_shell(&r, "'%s' '%s/bs_%s.so' --group %s 2>&1", kit_bin("bs-conformance"), BS_TEST_KIT_DIR,
            wrongs[_i].plugin, wrongs[_i].group);
  ck_assert_msg(r.code == 5, "%s: exit %d: %s", wrongs[_i].plugin, r.code, r.text);
  ck_assert_msg(kit_line_has(r.text, wrongs[_i].check, wrongs[_i].sentence), "%s: no '%s' with '%s' in %s",
                wrongs[_i].plugin, wrongs[_i].check, wrongs[_i].sentence, r.text);
  ck_assert_ptr_nonnull(strstr(r.text, "NOT blockshock-conformant"));
  ck_assert_ptr_nonnull(strstr(r.text, "error[BS-KIT-FAILED]"));
}
END_TEST

START_TEST(the_right_ones_grade_clean) {
  static const char *const rights[] = {"wrong0", "wrongw0"};
  static kit_ran r;
  kit_shell(&r, "'%s' '%s/bs_%s.so' 2>&1", kit_bin("bs-conformance"), BS_TEST_KIT_DIR, rights[_i]);
  ck_assert_msg(r.code == 0, "%s: exit %d: %s", rights[_i], r.code, r.text);
  ck_assert_ptr_nonnull(strstr(r.text, "\nblockshock-conformant "));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("kit_wrong");
  TCase *tc = tcase_create("wrong");
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, wrong_plugins_fail_with_the_right_sentence, 0,
                      (int)(sizeof wrongs / sizeof wrongs[0]));
  tcase_add_loop_test(tc, the_right_ones_grade_clean, 0, 2);
  suite_add_tcase(suite, tc);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed != 0;
}
