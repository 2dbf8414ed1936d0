/* SPDX-License-Identifier: MIT
 * test_bsrun_cli.c - a layer that is too large for the memory, and the table of keys in docs/config.md. What
 * else the command line takes and refuses is in tests/cases. */
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

START_TEST(the_documents_table_is_the_programs) {
  ran r = bsrun(dir, "config", "keys", "-o", "md", NULL);
  must_be(&r, 0);
  char *options = strstr(r.out, " | plugin | "), docs[1024]; /* of plugins: not those of every build */
  ck_assert_msg(options != NULL && strstr(options, "\n| workload.weights |") != NULL, "%s", r.out);
  while (options[-1] != '\n') options--;
  *options = '\0';
  ck_assert_ptr_nonnull(strstr(r.out, "| model.dtype | dtype | bf16 |")); /* as a run has it */
  ck_assert_ptr_null(strstr(r.out, "tol_max_abs"));
  snprintf(docs, sizeof docs, "%s/docs", getenv("BS_TEST_SOURCE_DIR"));
  char *text = read_text(docs, "config.md");
  ck_assert_ptr_nonnull(text);
  ck_assert_msg(strstr(text, r.out) != NULL, "docs/config.md differs from `bsrun config keys -o md`");
  free(text);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{memory_is_looked_at_first}, {the_documents_table_is_the_programs}, {0}};
  return run_tests("bsrun_cli", tests, (test_setup){dir_make, dir_remove});
}
