/* SPDX-License-Identifier: MIT
 * test_bsrun_original.c - the original harness's configuration files run unchanged on a CPU. The original's
 * are looked for as original.h says; without them the program is skipped and says so (77). */
#include "tests/bsrun/combinations.h"
#include "tests/bsrun/original.h"
#include "tests/run_tests.h"

START_TEST(the_originals_files_run_unchanged) {
  const char *configs = original_configs();
  run_combinations(configs);
}
END_TEST

START_TEST(decorative_keys_are_noted) {
  const char *configs = original_configs();
  char base[1200], phase[1200];
  snprintf(base, sizeof base, "%s/base.yaml", configs);
  snprintf(phase, sizeof phase, "%s/phases/phase0_correctness.yaml", configs);
  ran r = bsrun(dir, "--config", base, "--phase", phase, SMALL, NULL);
  must_be(&r, 0);
  const char *at = strstr(r.err, "note: no effect, and left out: ");
  ck_assert_msg(at != NULL && strstr(at + 20, "no effect, and") == NULL, "%s",
                r.err); /* one note names all */
  static const char *const named[] = {"phase.tol_max_abs", "logging.table_dir", "phase.forward_only"};
  for (size_t i = 0; i < 3; i++) ck_assert_msg(strstr(at, named[i]) != NULL, "%s: %s", named[i], r.err);
  ran_free(&r);
  r = bsrun(dir, "--config", base, "--quiet", SMALL, NULL);
  must_be(&r, 0);
  ck_assert_str_eq(r.err, "");
  ran_free(&r);
}
END_TEST

/* The phase, by every method, and by Block-Shock's with the mask that differs by row. */
static void phase_runs(const char *name) {
  static const char *const every[] = {"dense_single", "dense_tp", "masked_split_dense", "block_shock_2gpu"};
  const char *configs = original_configs();
  char phase[1200], method[1200], mask[1200];
  snprintf(phase, sizeof phase, "%s/phases/%s.yaml", configs, name);
  snprintf(mask, sizeof mask, "%s/masks/random_2of4.yaml", configs);
  ran r = bsrun(dir, "--phase", phase, SMALL, NULL);
  must_be(&r, 0);
  ran_free(&r);
  for (size_t m = 0; m < sizeof every / sizeof every[0]; m++) {
    snprintf(method, sizeof method, "%s/methods/%s.yaml", configs, every[m]);
    r = bsrun(dir, "--phase", phase, "--method", method, SMALL, NULL);
    must_be(&r, 0);
    ran_free(&r);
  }
  r = bsrun(dir, "--phase", phase, "--method", method, "--mask", mask, SMALL, NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "random_2of4") != NULL, "%s", r.out);
  ran_free(&r);
}

START_TEST(the_training_phase_runs) {
  phase_runs("phase3_train_step");
}
END_TEST

START_TEST(the_backward_phase_runs) {
  phase_runs("phase2_backward_input");
}
END_TEST

int main(void) {
  if (original_configs() == NULL) return 77;
  const test_case tests[] = {{the_originals_files_run_unchanged},
                             {decorative_keys_are_noted},
                             {the_training_phase_runs},
                             {the_backward_phase_runs},
                             {0}};
  return run_tests("bsrun_original", tests, (test_setup){dir_make, dir_remove});
}
