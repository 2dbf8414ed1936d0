/* SPDX-License-Identifier: MIT
 * test_models_original.c - bsrun with the original's workload files activation_like, attention_like,
 * transformer_mlp_like and vision_conv, unchanged, at its own size (N = 4096, B = 64). They are looked for as
 * tests/bsrun/original.h says; without them the program is skipped and says so (77). */
#include "tests/bsrun/original.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

static const char *const names[] = {"activation_like", "attention_like", "transformer_mlp_like",
                                    "vision_conv"};
static const char *const types[] = {"activation_like", "attention_like", "transformer_mlp", "vision_conv"};

START_TEST(the_originals_files_run_unchanged) {
  char path[1200];
  snprintf(path, sizeof path, "%s/workloads/%s.yaml", original_configs(), names[_i]);
  ran r = bsrun(dir, "--plugin", "cpu", "--method", "blockshock", "--phase", "0", "--workload", path, "--set",
                "model.N=4096", "--set", "model.B=64", "--set", "phase.reference_features=16", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, types[_i]) != NULL && strstr(r.out, "RIGHT") != NULL, "%s", r.out);
  ck_assert_msg(strstr(r.err, "unknown") == NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  if (original_configs() == NULL) return 77;
  const test_case tests[] = {{the_originals_files_run_unchanged, 4}, {0}};
  return run_tests("models_original", tests, (test_setup){dir_make, dir_remove});
}
