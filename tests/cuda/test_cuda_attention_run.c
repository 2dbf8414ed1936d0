/* SPDX-License-Identifier: MIT
 * test_cuda_attention_run.c - attention of the cuda plugin in a world over the stand-in: launched with the
 * shared memory that it asks for, judged by the lab beside the fp64 reference and the predicted error, and
 * what its plans say of the kernels that were loaded. */
#include <string.h>

#include "lab/kernel/oracle.h"
#include "lab/kernel/record.h"
#include "tests/cuda/backend.h"
#include "tests/run_tests.h"

typedef struct run {
  const char *problem, *provider, *knobs;
  const char *chosen, *echo; /* of knobs: a part */
  const char *build;         /* begins with the file of the kernel */
  int64_t shared;
} run;
static const run runs[] = {
    {"b2h2s70d64:bf16:causal", NULL, NULL, "cuda:mma", "keys=64;stages=2", "attention_bf16_64 ", 40960},
    {"b1h2s64d128:f16:full", "cuda:mma", NULL, "cuda:mma", "keys=64;stages=2", "attention_f16_128 ", 81920},
    {"b1h1s40d256:fp8:causal", NULL, NULL, "cuda:mma", "keys=32;stages=2", "attention_f16_256 ", 98304},
    {"b1h4g1s1t1100d64:bf16:full", "cuda:mma", NULL, "cuda:mma", "split=4", "attention_bf16_64 ", 40960},
    {"b1h2s64d64:bf16:full", "cuda:mma", "rows=128;stages=3;persistent=on", "cuda:mma",
     "rows=128;keys=64;stages=3", "attention_bf16_64 ", 65536},
    {"b1h2s33d64:f32:causal", NULL, NULL, "cuda:rows", "", "attention_rows ", 0},
    {"b1h2s33d64:bf16:causal", "cuda:rows", NULL, "cuda:rows", "", "attention_rows ", 0},
};
enum { RUNS = sizeof runs / sizeof runs[0] };

static void judge(const run *r, bs_kernel_arm *arm) {
  bs_error err = BS_ERROR_INIT;
  bs_kernel_numbers got;
  double rmse = 0.0;
  bs_tail tail;
  uint64_t differing = 1;
  ck_assert_msg(bs_kernel_arm_judge(arm, &got, &err) == BS_OK, "%s: %s", r->problem, err.message);
  ck_assert_msg(bs_kernel_predict(arm, bs_kernel_arm_data(arm), &rmse, &tail, &err) == BS_OK, "%s",
                err.message);
  ck_assert_msg(got.relative_rmse > 0 && got.relative_rmse <= BS_SDPA_SLACK * rmse && got.nonfinite == 0,
                "%s by %s: relative RMSE %.3g, %.3g predicted", r->problem, r->chosen, got.relative_rmse,
                rmse);
  ck_assert_msg(bs_kernel_arm_repeat(arm, &differing, &err) == BS_OK && differing == 0,
                "%s: %llu bytes differ", r->problem, (unsigned long long)differing);
}

START_TEST(in_a_world) {
  const run *r = &runs[_i];
  bs_error err = BS_ERROR_INIT;
  bs_kernel_problem problem;
  bs_kernel_arm *arm = NULL;
  over o = over_open(NULL, "devices=1;capability=90");
  ck_assert_msg(bs_kernel_problem_parse(r->problem, &problem, &err) == BS_OK, "%s", err.message);
  const bs_kernel_setup setup = {.context = o.context,
                                 .problem = &problem,
                                 .backend = "cuda",
                                 .provider = r->provider,
                                 .knobs = r->knobs,
                                 .seed = 7};
  ck_assert_msg(bs_kernel_arm_open(&setup, &arm, &err) == BS_OK, "%s: %s", r->problem, err.message);
  ck_assert_str_eq(bs_kernel_arm_provider(arm), r->chosen);
  judge(r, arm);
  const bs_op_echo *echo = bs_kernel_arm_echo(arm);
  ck_assert_ptr_nonnull(echo);
  ck_assert_msg(strstr(echo->knobs, r->echo) != NULL, "%s: %s", r->problem, echo->knobs);
  ck_assert_msg(
      strncmp(echo->build, r->build, strlen(r->build)) == 0 && strlen(echo->build) == strlen(r->build) + 16,
      "%s: build '%s'", r->problem, echo->build);
  ck_assert_int_eq(echo->shared_bytes, r->shared);
  ck_assert_int_eq(echo->spill_bytes, 0);
  ck_assert(echo->registers > 16 && echo->registers <= 255);
  bs_kernel_arm_close(arm);
  bs_context_close(o.context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{in_a_world, .end = RUNS}, {0}};
  return run_tests("cuda attention in a world", tests, (test_setup){.timeout = 60});
}
