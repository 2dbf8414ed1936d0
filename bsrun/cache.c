/* SPDX-License-Identifier: MIT
 * cache.c - where the machine's constants, measured choices and points, and grades are kept: --cache,
 * --tune-cache, --points, else the user's cache folder. The one place that knows XDG_CACHE_HOME and HOME. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/measure/constants.h"

/* --OPTION FILE (NULL: there is no such option), else `file` in the user's cache folder; NULL: off, or no
 * such folder. */
static int32_t cache_file(const args *a, const char *option, const char *file, char **out_path,
                          bs_error *err) {
  const char *given = option != NULL ? args_value(a, option) : NULL, *home = getenv("HOME"),
             *xdg = getenv("XDG_CACHE_HOME");
  bs_text text = {0};
  *out_path = NULL;
  if (given != NULL && given[0] == '\0')
    return bs_error_set(err, BS_USAGE, "BS-USE-EMPTY", "--%s: the file's name is empty", option);
  if (given != NULL && strcmp(given, "off") == 0) return BS_OK;
  if (given != NULL) {
    bs_text_printf(&text, "%s", given);
  } else if (xdg != NULL && xdg[0] == '/') { /* the XDG rule: a relative one counts as not set */
    bs_text_printf(&text, "%s/blockshock/%s", xdg, file);
  } else if (home != NULL && home[0] == '/') {
    bs_text_printf(&text, "%s/.cache/blockshock/%s", home, file);
  } else {
    return BS_OK;
  }
  if (text.failed) {
    bs_text_free(&text);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  *out_path = text.data;
  return BS_OK;
}

int32_t bsrun_cache_path(const args *a, char **out_path, bs_error *err) {
  return cache_file(a, "cache", "machine.json", out_path, err);
}

int32_t bsrun_tune_path(const args *a, char **out_path, bs_error *err) {
  return cache_file(a, "tune-cache", "tuning.jsonl", out_path, err);
}

int32_t bsrun_points_path(const args *a, char **out_path, bs_error *err) {
  return cache_file(a, "points", "tuning-points.jsonl", out_path, err);
}

int32_t bsrun_own_key_path(char **out_path, bs_error *err) {
  return cache_file(NULL, NULL, "own.key", out_path, err);
}

void bsrun_grades(int quiet, bs_grades *out) {
  bs_error err = BS_ERROR_INIT;
  char *path = NULL, line[1024];
  int32_t rc = cache_file(NULL, NULL, "grades.jsonl", &path, &err);
  memset(out, 0, sizeof *out);
  if (rc == BS_OK) rc = bs_grades_open(path, out, &err);
  if (rc != BS_OK) {
    snprintf(line, sizeof line, "[%s] %s; no plugin counts as graded: %s", err.id, err.message, err.hint);
    bsrun_note(quiet, line);
  }
  if (out->lines.broken > 0) {
    snprintf(line, sizeof line, "%zu line%s of %.600s cannot be read as a grade: skipped", out->lines.broken,
             out->lines.broken == 1 ? "" : "s", path);
    bsrun_note(quiet, line);
  }
  free(path);
}

json_t *bsrun_constants(const char *path, int quiet) {
  bs_error err = BS_ERROR_INIT;
  json_t *constants = NULL;
  char line[1024];
  if (path == NULL) return NULL;
  const int32_t rc = bs_constants_load(path, &constants, &err);
  if (rc == BS_OK || rc == BS_NOT_FOUND) return constants;
  snprintf(line, sizeof line, "[%s] %s; it is not used: %s", err.id, err.message, err.hint);
  if (rc == BS_MISMATCH) {
    bsrun_note(quiet, line);
    return NULL;
  }
  bsrun_warn(line);
  return NULL;
}
