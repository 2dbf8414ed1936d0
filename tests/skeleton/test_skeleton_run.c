/* SPDX-License-Identifier: MIT
 * test_skeleton_run.c - each skeleton through bsrun, by the command that its Makefile has as `run` (of an op:
 * a layer that uses it): phase 0's gates pass, and the record names what the plugin offered. */
#include "tests/run_tests.h"
#include "tests/spawn.h"

static const struct {
  const char *kind, *used; /* what the record must have */
  const char *recipe;      /* NULL: that of the Makefile */
} rows[] = {{"activate", "\"activate@ref/skel_activate (relu)\"",
             "$(BSRUN) --plugin ref --plugin ./bs_ --method row_parallel -P 2 --phase numbers --n 256 --b 16 "
             "--dtype f32 "
             "--set model.activation=relu"},
            {"backend", "\"matmul@skel_backend/plain (plain loops)\"", NULL},
            {"method", "\"method\":\"skel_method\"", NULL},
            {"communicator", "\"comm\":\"skel_communicator\"", NULL},
            {"workload", "\"workload\":\"skel_workload\"", NULL}};

/* The words of the recipe `run`, with the plugin where it was built. Changes `text`. */
static int words_of(char *text, const char *path, char *out[], int max) {
  int n = 0, skip = 1;
  for (char *save = NULL, *word = strtok_r(text, " \t\n", &save); word != NULL && n < max;
       word = strtok_r(NULL, " \t\n", &save)) {
    if (strcmp(word, "\\") == 0) continue;
    if (skip) { /* $(BSRUN) */
      skip = 0;
      continue;
    }
    out[n++] = strncmp(word, "./bs_", 5) == 0 ? (char *)(uintptr_t)path : word;
  }
  return n;
}

START_TEST(the_makefiles_command_passes) {
  char folder[1024], path[1024], want[128];
  char *argv[40] = {(char *)(uintptr_t) "bsrun"};
  snprintf(folder, sizeof folder, "%s/plugins/skeleton/%s", getenv("BS_TEST_SOURCE_DIR"), rows[_i % 5].kind);
  snprintf(path, sizeof path, "%s/bs_skel_%s.so", BS_TEST_SKELETON_DIR, rows[_i % 5].kind);
  char *text = rows[_i % 5].recipe != NULL ? strdup(rows[_i % 5].recipe) : read_text(folder, "Makefile");
  char *recipe = strstr(text, "$(BSRUN) ");
  ck_assert_ptr_nonnull(recipe);
  char *end = strstr(recipe, "\n\n");
  if (end != NULL) *end = '\0';
  int n = 1 + words_of(recipe, path, argv + 1, 30);
  if (strcmp(rows[_i % 5].kind, "method") == 0) { /* its recipe times too: not here */
    argv[n++] = (char *)(uintptr_t) "--phase";
    argv[n++] = (char *)(uintptr_t) "0";
  }
  if (_i >= 5) { /* each rank's work is shared by a team */
    argv[n++] = (char *)(uintptr_t) "--threads";
    argv[n++] = (char *)(uintptr_t) "3";
  }
  ck_assert_int_gt(n, 8);
  ran r = finish_spawn(dir, start_bsrun(dir, argv));
  must_be(&r, 0);
  char *record = read_text(run_folder(&r, dir, 0), "metrics.jsonl");
  snprintf(want, sizeof want, "%s", rows[_i % 5].used);
  ck_assert_msg(strstr(record, want) != NULL, "no %s in %.2000s", want, record);
  ck_assert_msg(strstr(record, "\"passed\":true") != NULL, "%.2000s", record);
  ck_assert_msg(strstr(record, "\"claims_match_counts\":true") != NULL, "%.2000s", record);
  free(record);
  free(text);
  ran_free(&r);
}
END_TEST

START_TEST(inspected_where_they_are_registered) {
  char path[1024], at[64];
  snprintf(path, sizeof path, "%s/bs_skel_%s.so", BS_TEST_SKELETON_DIR, rows[_i % 5].kind);
  ran r = bsrun(dir, "plugins", "inspect", path, "--wide", NULL);
  must_be(&r, 0);
  snprintf(at, sizeof at, "skeleton/%s/plugin.c:", rows[_i % 5].kind);
  ck_assert_msg(strstr(r.out, at) != NULL, "no %s in %s", at, r.out);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {the_makefiles_command_passes, 10}, {inspected_where_they_are_registered, 5}, {0}};
  return run_tests("skeleton_run", tests, (test_setup){dir_make, dir_remove});
}
