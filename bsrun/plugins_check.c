/* SPDX-License-Identifier: MIT
 * plugins_check.c - `bsrun plugins check ID|PATH`: grades a plugin by the conformance kit, the command
 * bs-conformance, as a child process. Its report is standard output, its exit status is bsrun's, and its
 * grade is kept for this file (lab/store/grade.h). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/process/process.h"
#include "lab/stop.h"
#include "lab/store/file_sum.h"
#include "lab/store/sha256.h"

enum { MAX_WORDS = 288 }; /* the kit takes 64 parameters and 64 options */

static const args_option plugins_check_options[] = {
    {OPT_PRESET, "generated cases; default: quick", 0},
    {OPT_ONLY, "groups of checks", 0},
    {OPT_BACKEND, "what methods are graded on; default: ref", 0},
    {OPT_MPIRUN, NULL, 0},
    {OPT_XFAIL, NULL, 0},
    {OPT_PARAM, NULL, 0},
    {OPT_OPTION, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    {OPT_OUTPUT, "text, tap or json", 0},
    {OPT_VERBOSE, NULL, 0},
    ARGS_HELP,
};

/* The kit next to this program, or in the folder of programs that other programs call (libexec). */
static int32_t find_kit(char *out, size_t size, bs_error *err) {
  static const char *const places[] = {"bs-conformance", "../libexec/blockshock/bs-conformance"};
  char self[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = '\0';
  char *slash = strrchr(self, '/');
  if (slash != NULL) slash[1] = '\0';
  for (size_t i = 0; slash != NULL && i < sizeof places / sizeof places[0]; i++) {
    if ((size_t)snprintf(out, size, "%s%s", self, places[i]) < size && access(out, X_OK) == 0) return BS_OK;
  }
  bs_error_set(err, BS_UNAVAILABLE, "BS-CHK-KIT", "the conformance kit is not installed: no bs-conformance");
  bs_error_where(err, "%s", self);
  bs_error_hint(err, "it is built where libcheck is (apt: check), and installed next to bsrun");
  return BS_UNAVAILABLE;
}

/* The configuration chooses the file that an id means. It is read for a path, too, so that a mistake in it is
 * reported; the parameters that it sets would have no effect here. */
static int32_t check_config(const args *a, const char *what, bs_error *err) {
  char id[64], path[80];
  bs_node *config = NULL;
  bs_plugin_id_of(what, id, sizeof id);
  snprintf(path, sizeof path, "plugins.%s", id);
  int32_t rc = plugins_compose(a, NULL, NULL, 0, &config, err);
  const bs_node *map = rc == BS_OK ? bs_config_find(config, path) : NULL;
  if (map != NULL && map->kind == BS_NODE_MAP && map->first != NULL) {
    rc = bs_error_set(err, BS_CONFIG, "BS-CHK-PARAM", "plugins.%s.%s has no effect on a check", id,
                      map->first->key);
    bs_error_hint(err, "--param %s=VALUE", map->first->key);
  }
  bs_config_free(config);
  return rc;
}

/* A value with a slash is a file, anything else the id of a plugin that is found. */
static int32_t find_file(const args *a, const char *what, char *out, size_t size, bs_error *err) {
  bs_plugin_info info = {0};
  bs_context *context = NULL;
  snprintf(out, size, "%s", what);
  int32_t rc = check_config(a, what, err);
  if (rc != BS_OK || strchr(what, '/') != NULL) return rc;
  rc = plugins_open_context(a, NULL, 0, &context, err);
  if (rc == BS_OK) rc = plugins_find(context, what, &info, err);
  if (rc == BS_OK && info.builtin) {
    rc = bs_error_set(err, BS_UNAVAILABLE, "BS-CHK-BUILTIN",
                      "%s is linked into the library: there is no file", info.id);
    bs_error_hint(err, "the library's own tests grade its sources as a file (ctest -R kit_%s)", info.id);
  }
  if (rc == BS_OK) snprintf(out, size, "%s", info.path);
  if (context != NULL) bs_context_close(context);
  return rc;
}

/* option: with its dashes; the kit has it under the same name. */
static int32_t add_all(const args *a, const char *option, char **words, size_t *n, bs_error *err) {
  const char **values = NULL;
  size_t count = 0;
  int32_t rc = args_values(a, option + 2, &values, &count, err);
  if (rc == BS_OK && 2 * count > MAX_WORDS - 1 - *n)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "%s: %zu values are more than a check takes", option,
                      count);
  for (size_t i = 0; rc == BS_OK && i < count; i++) {
    words[(*n)++] = (char *)(uintptr_t)option;
    words[(*n)++] = (char *)(uintptr_t)values[i];
  }
  free(values);
  return rc;
}

/* The exit status of the kit, and its standard output, which is also printed at the end. A kit that a signal
 * ended is a failure. A process that a plugin left running may hold the pipe: the end of the kit counts. */
static int32_t run_kit(char *const words[], bs_text *report, int *out_code, bs_error *err) {
  const bs_child child = {.program = words[0],
                          .words = words,
                          .stdio = {BS_CHILD_KEEP, BS_CHILD_PIPE, BS_CHILD_KEEP},
                          .group = BS_CHILD_KEEP};
  bs_process p, *const one = &p;
  const int failed = bs_process_start(&child, &p);
  if (failed != 0) return bs_error_errno(err, BS_NO_MEMORY, "BS-CHK-FORK", failed, "cannot start the kit");
  p.whole = 1;
  while (!p.ended && bs_process_wait(&one, 1, -1, 200)) {
    if (bs_stop_asked() != 0) bs_process_kill(&p); /* the signal may have come to this process alone */
  }
  const int status = bs_process_take(&p);
  *report = p.out;
  if (report->size > 0) fwrite(report->data, 1, report->size, stdout);
  if (report->failed) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  if (WIFSIGNALED(status))
    return bs_error_set(err, BS_RANK_FAILED, "BS-CHK-DIED", "the kit died of signal %d (%s)",
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == BS_CHILD_NOT_RUN)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-CHK-KIT", "%s cannot be run", words[0]);
  *out_code = WEXITSTATUS(status);
  return BS_OK;
}

/* ---- the grade ------------------------------------------------------------------------------ */

/* The grade of a report: "grade" of JSON, else the last line, after "# " in TAP. "": it has no grade. */
static void grade_line(const args *a, const bs_text *report, char *out, size_t size) {
  const char *format = args_value(a, "output");
  out[0] = '\0';
  if (report->size == 0) return;
  if (format != NULL && strcmp(format, "json") == 0) {
    json_t *root = json_loadb(report->data, report->size, 0, NULL);
    const char *line = json_string_value(json_object_get(root, "grade"));
    snprintf(out, size, "%s", line != NULL ? line : "");
    json_decref(root);
    return;
  }
  size_t end = report->size;
  while (end > 0 && report->data[end - 1] == '\n') end--;
  size_t begin = end;
  while (begin > 0 && report->data[begin - 1] != '\n') begin--;
  if (strncmp(report->data + begin, "# ", 2) == 0) begin += 2;
  snprintf(out, size, "%.*s", (int)(end - begin), report->data + begin);
}

/* A grade holds for the parameters and options that it was given with. */
static json_t *settings_of(const args *a) {
  static const char *const names[] = {"param", "option"};
  json_t *list = json_array();
  for (size_t i = 0; i < 2; i++) {
    const char **values = NULL;
    size_t n = 0;
    if (args_values(a, names[i], &values, &n, NULL) != BS_OK) continue;
    for (size_t k = 0; k < n; k++) {
      json_t *text = json_sprintf("%s %s", names[i], values[k]);
      json_array_append_new(list, text != NULL ? text : json_string("(not UTF-8)"));
    }
    free(values);
  }
  return list;
}

/* before, stamp: the file's before it was graded, "" when it could not be read. A file that changed meanwhile
 * is another one, and a part of the groups is no grade. */
static void keep_grade(const args *a, const char *file, const char *before, const char *stamp,
                       const bs_text *report) {
  char line[300], id[64], after[65], stamp_after[BS_FILE_STAMP], told[1024];
  const char *kit = args_value(a, "preset");
  bs_error err = BS_ERROR_INIT;
  bs_grades grades;
  grade_line(a, report, line, sizeof line);
  if (line[0] == '\0' || before[0] == '\0' || args_has(a, "only")) return;
  bs_plugin_id_of(file, id, sizeof id);
  bs_grade grade = {.plugin = id, .sha256 = before, .line = line, .kit = kit != NULL ? kit : "quick"};
  int32_t rc = bs_sha256_file(file, after, &err);
  if (rc == BS_OK && strcmp(before, after) != 0)
    rc = bs_error_set(&err, BS_MISMATCH, "BS-GRADE-CHANGED", "the file changed while it was graded");
  if (bs_file_stamp(file, stamp_after) && strcmp(stamp, stamp_after) == 0) grade.stamp = stamp;
  bsrun_grades(0, &grades);
  grade.settings = settings_of(a);
  if (rc == BS_OK) rc = bs_grades_add(&grades, &grade, &err);
  json_decref(grade.settings);
  bs_grades_close(&grades);
  if (rc == BS_OK) return;
  snprintf(told, sizeof told, "[%s] %s; the grade is not kept%s%s", err.id, err.message,
           err.hint[0] != '\0' ? ": " : "", err.hint);
  bsrun_warn(told);
}

const json_t *plugins_grade(const bs_grades *grades, const bs_plugin_info *info) {
  return info->builtin ? NULL : bs_grades_of_file(grades, info->id, info->path);
}

void plugins_grade_text(const json_t *grade, int builtin, char *out, size_t size) {
  if (builtin) {
    snprintf(out, size, "built in");
  } else if (grade == NULL) {
    snprintf(out, size, "not graded");
  } else {
    snprintf(out, size, "%s (%.16s)",
             json_is_true(json_object_get(grade, "conformant")) ? "conformant" : "NOT conformant",
             json_string_value(json_object_get(grade, "kit")));
  }
}

/* ----------------------------------------------------------------------------------------------- */

static int32_t check(const args *a, int *out_code, bs_error *err) {
  static const char *const passed[] = {"--preset", "--only",  "--backend", "--mpirun",
                                       "--xfail",  "--param", "--option",  "--output"};
  char program[PATH_MAX], file[PATH_MAX], *words[MAX_WORDS], before[65], stamp[BS_FILE_STAMP];
  bs_text report = {0};
  size_t n = 0;
  int32_t rc = find_file(a, a->words[0], file, sizeof file, err);
  if (rc == BS_OK) rc = find_kit(program, sizeof program, err);
  words[n++] = program;
  words[n++] = file;
  for (size_t i = 0; rc == BS_OK && i < sizeof passed / sizeof passed[0]; i++)
    rc = add_all(a, passed[i], words, &n, err);
  words[n] = NULL;
  if (rc != BS_OK) return rc;
  bs_file_stamp(file, stamp);
  if (bs_sha256_file(file, before, NULL) != BS_OK) before[0] = '\0'; /* the kit says what is wrong with it */
  rc = run_kit(words, &report, out_code, err);
  if (rc == BS_OK) keep_grade(a, file, before, stamp, &report);
  bs_text_free(&report);
  return rc;
}

static int run(const args *a, bs_error *err) {
  int code = 0;
  bsrun_interruptible("a part gives no grade; --only GROUP checks one group, --preset quick fewer cases");
  return check(a, &code, err) == BS_OK ? code : bsrun_fail(err);
}

const bsrun_verb plugins_check = {
    .name = "check",
    .words = "ID|PATH [options]",
    .summary = "grade a plugin by the conformance kit, in a child process",
    .about =
        "The grade is kept for this very file, shown by list, inspect and why, and stored in the records of "
        "runs.\n"
        "\n"
        "A group of --only is abi, lifecycle, truth, numerics, method, communicator, workload, algorithm, "
        "threads or\n"
        "hygiene, or the beginning of names of checks in one (method.gradient). A listed check of --xfail "
        "that\n"
        "passes counts as a failure.\n",
    .examples =
        "  bsrun plugins check ./build/bs_acme.so --preset full\n"
        "  bsrun plugins check ./build/bs_acme.so --only method --backend cpu\n"
        "  bsrun plugins check acme --xfail xfail.txt -o json\n",
    .options = plugins_check_options,
    .exit = run,
    .min_words = 1,
    .max_words = 1,
    .exits = "0 conformant; 5 not\n",
    .takes = "plugins :file",
};
