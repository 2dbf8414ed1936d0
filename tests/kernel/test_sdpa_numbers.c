/* SPDX-License-Identifier: MIT
 * test_sdpa_numbers.c - the errors of the cpu plugin's attention are those that its formats explain: not more
 * than the slack, and not so few that it computes something else. */
#include "core/base/error.h"
#include "lab/kernel/case.h"
#include "lab/kernel/oracle.h"
#include "lab/kernel/record.h"
#include "tests/run_tests.h"

static const char *const dtypes[] = {"f32", "bf16", "f16", "fp8"};
static const int keys[] = {512, 2048, 8192};
enum { DTYPES = 4, KEYS = BS_SLOW ? 1 : 3 };

START_TEST(errors_are_as_predicted) {
  char text[64];
  bs_kernel_problem p;
  bs_kernel_data *data = NULL;
  bs_kernel_arm *arm = NULL;
  bs_kernel_numbers n;
  bs_context *context = NULL;
  bs_error err = BS_ERROR_INIT;
  const bs_context_options o = {.struct_size = sizeof o};
  double rmse = 0.0;
  bs_tail tail;
  snprintf(text, sizeof text, "b1h2s16t%dd64:%s", keys[_i / DTYPES], dtypes[_i % DTYPES]);
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_kernel_problem_parse(text, &p, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_kernel_data_make(&p, 11, &data, &err) == BS_OK, "%s", err.message);
  const bs_kernel_setup s = {
      .context = context, .problem = &p, .backend = "cpu", .provider = "cpu:online", .data = data};
  ck_assert_msg(bs_kernel_arm_open(&s, &arm, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_kernel_arm_judge(arm, &n, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_kernel_predict(arm, data, &rmse, &tail, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(n.relative_rmse <= BS_SDPA_SLACK * rmse, "%s: %g, predicted %g", text, n.relative_rmse, rmse);
  ck_assert_msg(n.relative_rmse >= rmse / 3.0, "%s: %g, predicted %g: too good", text, n.relative_rmse, rmse);
  /* The largest one is within its limit, and the limit is no wide one: what is 50 times as wrong as the mean
   * does not pass. */
  const double largest = BS_SDPA_SLACK * bs_tail_largest(&tail, (double)n.values, BS_TAIL_ODDS);
  ck_assert_msg(n.worst <= largest, "%s: %g is the largest, the limit is %g", text, n.worst, largest);
  ck_assert_msg(largest <= 50.0 * rmse, "%s: the limit of the largest is %g, of %g", text, largest, rmse);
  bs_kernel_arm_close(arm);
  bs_kernel_data_free(data);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{errors_are_as_predicted, DTYPES * KEYS}, {0}};
  return run_tests("sdpa_numbers", tests, (test_setup){0});
}
