/* SPDX-License-Identifier: MIT
 * test_models_run.c - bsrun with the workload files activation_like, attention_like, transformer_mlp_like and
 * vision_conv, at sizes that fit them. test_models_original.c has the original's. */
#include "tests/run_tests.h"
#include "tests/spawn.h"

static const char *const names[] = {"activation_like", "attention_like", "transformer_mlp_like",
                                    "vision_conv"};
static const char *const types[] = {"activation_like", "attention_like", "transformer_mlp", "vision_conv"};

#define FEW                                                                                            \
  "--set", "phase.timed_iters=2", "--set", "phase.warmup_iters=1", "--set", "phase.pairs_seconds=0.2", \
      "--set", "phase.pairs_min=5", "--set", "phase.pairs_max=10"

START_TEST(our_files_run) {
  static const char *const sizes[] = {"model.N=64", "model.N=64", "model.N=64", "model.N=64"};
  static const char *const fits[] = {"model.K=96", "model.K=96", "model.K=96", "model.K=64"};
  static const char *const more[] = {"workload.clip=1.5", "workload.heads=4", "workload.ln_eps=1e-3",
                                     "workload.H=4"};
  /* 4 x 4 x 4 values of the image files' 4 channels. */
  const char *last = _i == 3 ? "workload.W=4" : "model.B=64";
  ran r =
      bsrun(dir, "--plugin", "cpu", "--method", "blockshock", "-P", "2", "--phase", "0", "--workload",
            names[_i], "--set", sizes[_i], "--set", fits[_i], "--set", more[_i], "--set", last, FEW, NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, types[_i]) != NULL, "%s", r.out);
  ck_assert_msg(strstr(r.out, "RIGHT") != NULL, "%s", r.out);
  ran_free(&r);
  r = bsrun(dir, "--plugin", "cpu", "--method", "blockshock", "-P", "2", "--phase", "1", "--workload",
            names[_i], "--set", sizes[_i], "--set", fits[_i], "--set", more[_i], "--set", last, FEW, NULL);
  must_be(&r, 0);
  ran_free(&r);
}
END_TEST

/* Aliases and registered names serve without a file. */
START_TEST(names_run_without_files) {
  static const char *const aliases[] = {"transformer_mlp", "attention", "conv_like", "transformer_mlp_like"};
  for (int i = 0; i < 4; i++) {
    ran r = bsrun(dir, "--plugin", "cpu", "--phase", "0", "--workload", aliases[i], "--set", "model.N=16",
                  "--set", i == 2 ? "model.K=3072" : "model.K=64", "--set", "model.B=64", FEW, NULL);
    must_be(&r, 0);
    ran_free(&r);
  }
}
END_TEST

START_TEST(misfits_are_configuration_errors) {
  ran r = bsrun(dir, "--plugin", "cpu", "--phase", "0", "--workload", "vision_conv", "--set", "model.N=64",
                FEW, NULL);
  must_be(&r, 3);
  ck_assert_msg(strstr(r.err, "error[BS-WL-SHAPE]") != NULL && strstr(r.err, "4096") != NULL &&
                    strstr(r.err, "64") != NULL && strstr(r.err, "workload.out_channels") != NULL,
                "%s", r.err);
  ran_free(&r);
  r = bsrun(dir, "--plugin", "cpu", "--phase", "0", "--workload", "attention_like", "--set", "model.N=64",
            "--set", "model.B=16", FEW, NULL);
  must_be(&r, 3);
  ck_assert_msg(strstr(r.err, "error[BS-WL-SHAPE]") != NULL && strstr(r.err, "B=16") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {our_files_run, 4}, {names_run_without_files}, {misfits_are_configuration_errors}, {0}};
  return run_tests("models_run", tests, (test_setup){dir_make, dir_remove});
}
