/* SPDX-License-Identifier: MIT
 * test_bsrun_scale.c - `bsrun sim scale`: strong and weak scaling. tests/cases/scale.case has the rest. */
#include <jansson.h>
#include <math.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

static json_t *rows_of(ran *r, size_t n) {
  must_be(r, 0);
  json_t *rows = json_loads(r->out, 0, NULL);
  ck_assert_msg(json_array_size(rows) == n, "%zu rows: %s", json_array_size(rows), r->out);
  ran_free(r);
  return rows;
}

static double number(const json_t *rows, size_t i, const char *key) {
  return json_number_value(json_object_get(json_array_get(rows, i), key));
}

/* Strong: the arithmetic of a rank falls with P. Weak: it stays as it is. */
START_TEST(strong_and_weak) {
  ran r = bsrun(dir, "sim", "scale", "--method", "row_parallel", "-P", "1:8*2", "--hardware", "h100-dgx",
                "--n", "16384", "--b", "4096", "-o", "json", NULL);
  json_t *rows = rows_of(&r, 4);
  for (size_t i = 1; i < 4; i++)
    ck_assert(
        fabs(number(rows, 0, "compute_us") / number(rows, i, "compute_us") / number(rows, i, "world_size") -
             1) < 1e-3);
  ck_assert(number(rows, 0, "efficiency") == 1 && number(rows, 3, "efficiency") < 1);
  json_decref(rows);
  r = bsrun(dir, "sim", "scale", "--method", "row_parallel", "-P", "1:7+3", "--hardware", "h100-dgx", "--b",
            "4096", "--weak", "b", "-o", "json", NULL);
  rows = rows_of(&r, 3);
  ck_assert(number(rows, 2, "world_size") == 7 && number(rows, 2, "B") == 7 * 4096);
  ck_assert(fabs(number(rows, 0, "compute_us") / number(rows, 1, "compute_us") - 1) < 1e-3);
  json_decref(rows);
}
END_TEST

int main(void) {
  const test_case tests[] = {{strong_and_weak}, {0}};
  return run_tests("bsrun_scale", tests, (test_setup){dir_make, dir_remove});
}
