/* SPDX-License-Identifier: MIT
 * test_bsrun_off.c - --out off in every verb that has --out: nothing is kept, or it is refused; no folder has
 * that name. */
#include <dirent.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static char temporary[600], work[600];

static void setup(void) {
  dir = scratch_dir();
  snprintf(temporary, sizeof temporary, "%s/tmp", dir);
  snprintf(work, sizeof work, "%s/work", dir);
  ck_assert_int_eq(mkdir(temporary, 0700) | mkdir(work, 0700), 0);
  ck_assert_int_eq(setenv("TMPDIR", temporary, 1), 0);
}
static void teardown(void) {
  remove_dir(dir);
}

static int entries(const char *path) {
  DIR *d = opendir(path);
  int n = 0;
  for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
    n += strspn(e->d_name, ".") != strlen(e->d_name);
  closedir(d);
  return n;
}

#define QUICK "--n 64 --set phase.pairs_seconds=0.1 --set phase.pairs_min=5 --set phase.pairs_max=5"
static const struct {
  const char *words;
  int code;
} verbs[] = {
    {"run " QUICK, 0},
    {"run --phase 0 --method row_parallel --launch processes --n 64", 0},
    {"run --phase 0 --sweep batch_sweep --n 64", 0},
    {"run --phase 0 --n 64 --backend fault:cpu --set plugins.fault.plan=rank=0,op=matmul,seq=0,do=flip", 6},
    {"run --phase 0 --n 64 --method row_parallel --backend fault:cpu --timeout 1 --set "
     "plugins.fault.plan=rank=0,op=matmul,seq=0,do=error",
     -1},
    {"ladder --n 64 --seconds 0.1 --measure 2", 0},
    {"compare --n 64 --seconds 0.1 row_parallel column_parallel", 0},
    {"compare --n 64 --seconds 0.1 --a method=dense --b method=row_parallel", 0},
    {"profile layer --n 64 --method row_parallel -P 2", 0},
    {"profile kernel b1h1s4d8", 0},
    {"diagnose --preset quick --n 64", 0},
    {"bench sdpa b1h1s4d8 --torch off --seconds 0.05", 0},
    {"doctor", 0},
    {"compare one two", 2},
    {"sweep -x N=64,128", 2},
    {"report", 2},
    {"runs list", 2},
    {"runs show x", 2},
    {"why x", 2},
    {"replay x", 2},
    {"bundle x --to d", 2},
};

START_TEST(nothing_is_kept) {
  char command[2048];
  snprintf(command, sizeof command, "cd '%s' && '%s' %s --out off >../out 2>../err", work, bsrun_path(),
           verbs[_i].words);
  const int code = WEXITSTATUS(system(command));
  char *out = read_text(dir, "out"), *err = read_text(dir, "err");
  ck_assert_msg(verbs[_i].code < 0 ? code != 0 : code == verbs[_i].code, "%s: exit %d: %s", verbs[_i].words,
                code, err);
  ck_assert_msg(strstr(out, "\nrun: ") == NULL, "%s", out);
  if (code == 2) ck_assert_msg(strstr(err, "BS-USE-FOLDER") != NULL, "%s", err);
  ck_assert_msg(entries(work) == 0, "%s", verbs[_i].words);
  ck_assert_msg(entries(temporary) == 0, "%s", verbs[_i].words);
  free(out);
  free(err);
}
END_TEST

/* The key means what the option means. */
START_TEST(the_key_is_the_same) {
  ran r = bsrun(work, "--phase", "0", "--n", "64", "--set", "logging={out_dir: off}", NULL);
  must_be(&r, 0);
  ck_assert_ptr_null(strstr(r.out, "\nrun: "));
  ran_free(&r);
  r = bsrun(work, "sweep", "-x", "N=64,128", "--set", "logging.out_dir=off", NULL);
  must_be(&r, 3);
  ran_free(&r);
  ck_assert_int_eq(entries(work), 2); /* what the test keeps of the outputs */
}
END_TEST

int main(void) {
  const test_case tests[] = {{nothing_is_kept, TEST_COUNT(verbs)}, {the_key_is_the_same}, {0}};
  return run_tests("bsrun_off", tests,
                   (test_setup){.before = setup, .after = teardown, .timeout = 60, .at_once = 4});
}
