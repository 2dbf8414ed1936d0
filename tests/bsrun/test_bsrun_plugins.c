/* SPDX-License-Identifier: MIT
 * test_bsrun_plugins.c - plugins that crash, exit, print or fail while opening: `plugins list --load` gives
 * them a row and goes on; a limit on processes. tests/cases/plugins.case has the rest. */
#include <jansson.h>
#include <sys/resource.h>

#include "tests/run_tests.h"
#include "tests/slow.h"
#include "tests/spawn.h"

static void setup(void) {
  dir = scratch_dir();
  ck_assert_int_eq(chmod(dir, 0700), 0);
  for (int i = 1; i <= 9; i++) { /* copied, so that the folder's mode is ours */
    char command[1500];
    snprintf(command, sizeof command, "cp '%s/bs_rude%d.so' '%s/' && chmod 0644 '%s/bs_rude%d.so'",
             BS_TEST_RUDE_DIR, i, dir, dir, i);
    ck_assert_int_eq(system(command), 0);
  }
  setenv("BS_PLUGIN_PATH", dir, 1);
}

static json_t *row_of(const json_t *rows, const char *id) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    json_t *row = json_array_get(rows, i);
    if (strcmp(json_string_value(json_object_get(row, "id")), id) == 0) return row;
  }
  return NULL;
}

static const char *text_of(const json_t *rows, const char *id, const char *key) {
  const char *text = json_string_value(json_object_get(row_of(rows, id), key));
  ck_assert_msg(text != NULL, "%s has no %s", id, key);
  return text;
}

START_TEST(loading_costs_a_row_not_the_list) {
  ran r = bsrun(dir, "plugins", "list", "--load", "--plugin", "./bs_rude1.so", "--set", "plugin_trust=any",
                "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_ptr_null(strstr(r.out, "RUDE WORDS"));
  json_t *rows = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_ptr_nonnull(rows);
  static const char *const why[] = {"", "died", "ended the process", "died"};
#if !defined(__SANITIZE_ADDRESS__)
  for (int i = 1; i <= 3; i++) { /* a sanitizer turns the deaths into exits of its own */
    char id[16];
    snprintf(id, sizeof id, "rude%d", i);
    ck_assert_msg(strstr(text_of(rows, id, "why"), why[i]) != NULL, "%s: %s", id, text_of(rows, id, "why"));
  }
#else
  (void)why;
#endif
  ck_assert_str_eq(text_of(rows, "rude1", "state"), "unavailable");
  ck_assert_str_eq(text_of(rows, "rude2", "state"), "unavailable");
  ck_assert_str_eq(text_of(rows, "rude3", "state"), "unavailable");
  ck_assert_str_eq(text_of(rows, "rude5", "state"), "unavailable");
  ck_assert_str_eq(text_of(rows, "rude9", "state"), "unavailable"); /* as `plugins inspect` finds it */
  ck_assert(strstr(text_of(rows, "rude5", "why"), "asleep") != NULL);
  ck_assert_str_eq(text_of(rows, "blockshock", "state"), "ok"); /* the rest is as it was */
  ck_assert_str_eq(text_of(rows, "ref", "state"), "ok");        /* its devices are asked for without rude1 */
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* A limit on processes is a lack of room, not a mistake of bsrun. Root has no such limit: another user has.
 */
static const struct {
  const char *program, *words[3], *id;
} childless[] = {{"bsrun", {"plugins", "inspect", "row_parallel"}, "error[BS-PRB-FORK]"},
                 {"bsrun", {"plugins", "check", "row_parallel"}, "error[BS-CHK-FORK]"},
                 {"bs-conformance", {"./bs_rude4.so"}, "error[BS-KIT-FORK]"}};

START_TEST(no_process_is_exit_ten) {
  const struct rlimit none = {1, 1};
  char program[4096];
  int status = 0;
  if (BS_SLOW) return; /* a sanitizer starts one itself */
  snprintf(program, sizeof program, "%.*s%s", (int)(strrchr(bsrun_path(), '/') + 1 - bsrun_path()),
           bsrun_path(), childless[_i].program);
  const pid_t pid = fork();
  if (pid == 0) {
    if (chdir(dir) != 0 || chmod(dir, 0755) != 0 || freopen(".stdout", "w", stdout) == NULL ||
        freopen(".stderr", "w", stderr) == NULL)
      _exit(98);
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || (getuid() == 0 && setuid(65534) != 0)) _exit(97);
    execl(program, program, childless[_i].words[0], childless[_i].words[1], childless[_i].words[2], NULL);
    _exit(97); /* the other user may not read the build */
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 97) return;
  char *err = read_text(dir, ".stderr");
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 10, "status %x: %s", (unsigned)status, err);
  ck_assert_msg(strstr(err, childless[_i].id) != NULL, "%s", err);
  free(err);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {loading_costs_a_row_not_the_list}, {no_process_is_exit_ten, TEST_COUNT(childless)}, {0}};
  return run_tests("bsrun_plugins", tests, (test_setup){setup, dir_remove});
}
