/* SPDX-License-Identifier: MIT
 * test_bsrun_cli.c - a layer that is too large for the memory. What else the command line takes and refuses
 * is in tests/cases. */
#include <sys/resource.h>

#include "tests/run_tests.h"
#include "tests/slow.h"
#include "tests/spawn.h"

/* What is too large is refused before anything of it is made: with 3 GiB of addresses, too. */
START_TEST(memory_is_looked_at_first) {
  struct rlimit before, most;
  if (BS_SLOW) return; /* a sanitizer needs more addresses */
  ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
  most = before;
  most.rlim_cur = (rlim_t)3 << 30;
  ck_assert_int_eq(setrlimit(RLIMIT_AS, &most), 0);
  ran r = bsrun(dir, "--set", "model.N=1073741824", "--set", "model.K=64", NULL);
  setrlimit(RLIMIT_AS, &before);
  must_be(&r, 10);
  ck_assert_msg(strstr(r.err, "error[BS-RUN-MEMORY]") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{memory_is_looked_at_first}, {0}};
  return run_tests("bsrun_cli", tests, (test_setup){dir_make, dir_remove});
}
