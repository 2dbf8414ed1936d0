/* SPDX-License-Identifier: MIT
 * test_bsrun_plugins.c - plugins that crash, exit, print or fail while opening: `plugins list --load` gives
 * them a row and goes on, `plugins inspect` and `why` end in exit 5, the plain list runs none of them. */
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

START_TEST(a_plain_list_runs_none) {
  ran r = bsrun(dir, "plugins", "list", "--set", "plugin_trust=any", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
  for (int i = 1; i <= 5; i++) {
    char id[16];
    snprintf(id, sizeof id, "rude%d", i);
    ck_assert_str_eq(text_of(rows, id, "state"), "found");
  }
  json_decref(rows);
  ran_free(&r);
}
END_TEST

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

START_TEST(inspecting_one_ends_in_five) {
  static const char *const ids[] = {"rude1", "rude2", "rude3", "rude5", "rude7", "rude8", "rude9"};
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
    ran r = bsrun(dir, "plugins", "inspect", ids[i], "--set", "plugin_trust=any", NULL);
    must_be(&r, 5);
    ck_assert(strstr(r.err, "bsrun: error[") != NULL);
    ck_assert_str_eq(r.out, "");
    ran_free(&r);
    r = bsrun(dir, "plugins", "why", ids[i], "--set", "plugin_trust=any", NULL);
    must_be(&r, 5);
    ck_assert_msg(strstr(r.err, "bsrun: error[") != NULL && strstr(r.out, "it cannot be") != NULL, "%s",
                  r.out);
    ran_free(&r);
  }
}
END_TEST

/* A process that it left behind holds its end of the pipe: it died all the same, and did not hang. */
START_TEST(a_process_left_behind_is_no_hang) {
  ran r = bsrun(dir, "plugins", "inspect", "rude6", "--set", "plugin_trust=any", NULL);
  must_be(&r, 5);
  ck_assert_msg(strstr(r.err, "error[BS-PLG-DIED] rude6 ended the process with 3") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* Its answer is the exit code; a file in a folder that others may write gets a warning from everybody else.
 */
START_TEST(exists_is_silent) {
  char path[700];
  snprintf(path, sizeof path, "%s/bs_rude4.so", dir);
  ck_assert_int_eq(chmod(dir, 0777), 0);
  ran r = bsrun(dir, "plugins", "inspect", path, NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.err, "trust") != NULL || strstr(r.err, "writable") != NULL, "no warning: %s", r.err);
  ran_free(&r);
  r = bsrun(dir, "plugins", "inspect", path, "--exists", NULL);
  must_be(&r, 0);
  ck_assert_str_eq(r.err, "");
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
}
END_TEST

START_TEST(a_refused_plugin_says_why) {
  char path[700];
  snprintf(path, sizeof path, "%s/bs_rude4.so", dir);
  ck_assert_int_eq(truncate(path, 1024), 0);
  ran r = bsrun(dir, "plugins", "list", "-o", "csv", NULL);
  must_be(&r, 0);
  const char *row = strstr(r.out, "rude4,");
  ck_assert_ptr_nonnull(row);
  ck_assert_ptr_nonnull(strstr(row, "refused"));
  ran_free(&r);
  r = bsrun(dir, "plugins", "inspect", "rude4", NULL);
  must_be(&r, 5);
  ck_assert_ptr_nonnull(strstr(r.err, "rude4"));
  ran_free(&r);
  r = bsrun(dir, "--plugin", path, SMALL, NULL);
  must_be(&r, 5);
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

/* Each op names the file that it is written in, below the sources. */
START_TEST(inspect_names_the_file_of_each_op) {
  static const char *const plugins[] = {"cpu", "ref"};
  for (size_t p = 0; p < 2; p++) {
    char path[64];
    int ops = 0;
    ran r = bsrun(dir, "plugins", "inspect", plugins[p], "-o", "csv", NULL);
    must_be(&r, 0);
    snprintf(path, sizeof path, ",,plugins/%s/", plugins[p]);
    for (const char *line = r.out; (line = strstr(line, "\nop,")) != NULL; line++, ops++) {
      const size_t name = strcspn(line + 4, ",");
      ck_assert_msg(strncmp(line + 4 + name, path, strlen(path)) == 0, "%.120s", line);
    }
    ck_assert_msg(ops > 15 && strstr(r.out, "plugin.c:") == NULL, "%s", r.out);
    ran_free(&r);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_plain_list_runs_none},
                             {loading_costs_a_row_not_the_list},
                             {inspecting_one_ends_in_five},
                             {a_process_left_behind_is_no_hang},
                             {exists_is_silent},
                             {a_refused_plugin_says_why},
                             {no_process_is_exit_ten, TEST_COUNT(childless)},
                             {inspect_names_the_file_of_each_op},
                             {0}};
  return run_tests("bsrun_plugins", tests, (test_setup){setup, dir_remove});
}
