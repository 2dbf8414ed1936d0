/* SPDX-License-Identifier: MIT
 * test_bsrun_original.c - the original harness's configuration files run unchanged on a CPU, and ours
 * of the same names say the same. The original's are looked for as original.h says; without them the program
 * is skipped and says so (77). */
#include "tests/bsrun/combinations.h"
#include "tests/bsrun/original.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

START_TEST(the_originals_files_run_unchanged) {
  const char *configs = original_configs();
  run_combinations(dir, configs);
}
END_TEST

START_TEST(decorative_keys_are_noted) {
  const char *configs = original_configs();
  char base[1200], phase[1200];
  snprintf(base, sizeof base, "%s/base.yaml", configs);
  snprintf(phase, sizeof phase, "%s/phases/phase0_correctness.yaml", configs);
  ran r = bsrun(dir, "--config", base, "--phase", phase, SMALL, NULL);
  must_be(&r, 0);
  static const char *const notes[] = {"phase.tol_max_abs has no effect", "phase.tol_max_rel has no effect",
                                      "logging.table_dir has no effect", "phase.forward_only has no effect"};
  for (size_t i = 0; i < 4; i++) {
    const char *at = strstr(r.err, notes[i]);
    ck_assert_msg(at != NULL, "%s: %s", notes[i], r.err);
    ck_assert_ptr_null(strstr(at + 1, notes[i])); /* once */
  }
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

/* The keys and values of the original's files are those of ours, file by file. */
static void same_values(const bs_node *theirs, const bs_node *ours_root, const char *prefix,
                        const char *file) {
  for (const bs_node *node = theirs->first; node != NULL; node = node->next) {
    char path[256];
    snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".", node->key);
    if (node->kind == BS_NODE_MAP) {
      same_values(node, ours_root, path, file);
      continue;
    }
    const bs_node *mine = bs_config_find(ours_root, path);
    ck_assert_msg(mine != NULL, "%s lacks %s", file, path);
    ck_assert_uint_eq(mine->kind, node->kind);
    if (node->kind == BS_NODE_SCALAR)
      ck_assert_msg(strcmp(mine->text, node->text) == 0, "%s: %s", file, path);
    const bs_node *b = mine->first;
    for (const bs_node *a = node->first; a != NULL; a = a->next, b = b->next) {
      ck_assert_msg(b != NULL && strcmp(a->text, b->text) == 0, "%s: %s", file, path);
    }
  }
}

START_TEST(ours_have_the_originals_keys_and_values) {
  static const char *const files[] = {"base",
                                      "official",
                                      "fp32_override",
                                      "phases/phase0_correctness",
                                      "phases/phase1_forward",
                                      "phases/phase3_train_step",
                                      "methods/dense_single",
                                      "methods/dense_tp",
                                      "methods/masked_split_dense",
                                      "methods/block_shock_2gpu",
                                      "masks/complement_1100_0011",
                                      "masks/complement_1010_0101",
                                      "masks/complement_1001_0110",
                                      "masks/random_2of4",
                                      "workloads/gaussian",
                                      "workloads/fixed_seed",
                                      "hardware/local_2gpu",
                                      "hardware/slurm_cluster",
                                      "sweeps/N_sweep",
                                      "sweeps/batch_sweep"};
  const char *configs = original_configs();
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    char a[1300], b[1300];
    bs_error err = BS_ERROR_INIT;
    bs_node *theirs = NULL, *ours = NULL;
    snprintf(a, sizeof a, "%s/%s.yaml", configs, files[i]);
    snprintf(b, sizeof b, "%s/%s.yaml", our_configs(), files[i]);
    ck_assert_msg(bs_config_load(a, &theirs, &err) == BS_OK, "%s", err.message);
    ck_assert_msg(bs_config_load(b, &ours, &err) == BS_OK, "%s", err.message);
    same_values(theirs, ours, "", files[i]);
    bs_config_free(theirs);
    bs_config_free(ours);
  }
}
END_TEST

int main(void) {
  if (original_configs() == NULL) return 77;
  const test_case tests[] = {{the_originals_files_run_unchanged},
                             {decorative_keys_are_noted},
                             {the_training_phase_runs},
                             {the_backward_phase_runs},
                             {ours_have_the_originals_keys_and_values},
                             {0}};
  return run_tests("bsrun_original", tests, (test_setup){setup, teardown});
}
