/* SPDX-License-Identifier: MIT
 * bundle.c - see bundle.h. */
#include "lab/store/bundle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blockshock/blockshock.h"
#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/folder.h"
#include "lab/store/read.h"
#include "lab/store/sha256.h"

enum { BUNDLE_SCHEMA = 1, PATH_SIZE = 4096 };
static const char *const run_files[] = {"DONE",          "config.yaml", "env.json",    "log.txt",
                                        "metrics.jsonl", "notes.jsonl", "samples.bin", "seed.txt"};

/* ---- making ------------------------------------------------------------------------------------- */

static int32_t cannot_write(const char *path, int why, bs_error *err) {
  bs_error_errno(err, BS_IO, "BS-OUT-WRITE", why, "cannot write %.200s", path);
  bs_error_hint(err, "choose a folder that can be made and has room");
  return BS_IO;
}

static int32_t make_folder(const char *path, bs_error *err) {
  if (mkdir(path, 0777) == 0) return BS_OK;
  if (errno != EEXIST) return cannot_write(path, errno, err);
  bs_error_set(err, BS_USAGE, "BS-BUNDLE-EXISTS", "%.200s is there already", path);
  bs_error_hint(err, "choose a new folder; a bundle has each run_id once");
  return BS_USAGE;
}

/* Writes dir/name, and its sum into the manifest (NULL: it is the manifest). */
static int32_t write_file(const char *dir, const char *name, const char *data, size_t size, json_t *manifest,
                          bs_error *err) {
  char path[PATH_SIZE], hex[65];
  if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
    return cannot_write(dir, ENAMETOOLONG, err);
  FILE *file = fopen(path, "wx");
  if (file == NULL) return cannot_write(path, errno, err);
  int why = size > 0 && fwrite(data, 1, size, file) != size ? errno : 0;
  if (fclose(file) != 0 && why == 0) why = errno;
  if (why != 0) return cannot_write(path, why, err);
  if (manifest == NULL) return BS_OK;
  bs_sha256 h;
  bs_sha256_init(&h);
  bs_sha256_add(&h, data, size);
  bs_sha256_hex(&h, hex);
  return json_object_set_new(manifest, name, json_string(hex)) == 0 ? BS_OK : bs_no_memory(err, "a bundle");
}

static int32_t copy_files(const char *dir, const char *name, int fd, json_t *manifest, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < sizeof run_files / sizeof run_files[0]; i++) {
    char to[512], *text = NULL;
    size_t size = 0;
    snprintf(to, sizeof to, "runs/%.255s/%s", name, run_files[i]);
    rc = bs_folder_file(fd, run_files[i], &text, &size, err);
    if (rc == BS_OK && text != NULL) rc = write_file(dir, to, text, size, manifest, err);
    free(text);
  }
  return rc;
}

/* The entry of a run in BUNDLE.json. */
static json_t *about(const char *name, const json_t *record, const json_t *env) {
  static const char *const keys[] = {"phase", "method", "status", "library_build_id", "result_key"};
  const json_t *build = json_object_get(env, "build");
  json_t *run = json_object();
  int bad = json_object_set_new(run, "run", json_string(name));
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    json_t *value = json_object_get(record, keys[i]);
    bad |= json_object_set_new(run, keys[i], value != NULL ? json_incref(value) : json_null());
  }
  json_t *of_env[] = {json_object_get(build, "commit"), json_object_get(build, "diff_sha256"),
                      json_object_get(env, "command")};
  static const char *const names[] = {"commit", "diff_sha256", "command"};
  for (size_t i = 0; i < 3; i++)
    bad |= json_object_set_new(run, names[i], of_env[i] != NULL ? json_incref(of_env[i]) : json_null());
  if (!bad) return run;
  json_decref(run);
  return NULL;
}

static int32_t add_run(const char *dir, const bs_bundle_run *from, json_t *manifest, json_t *runs,
                       bs_error *err) {
  const char *slash = strrchr(from->path, '/'), *name = slash != NULL ? slash + 1 : from->path;
  char folder[PATH_SIZE];
  json_t *records = NULL, *env = NULL;
  int fd = -1;
  if (snprintf(folder, sizeof folder, "%s/runs/%s", dir, name) >= (int)sizeof folder)
    return cannot_write(dir, ENAMETOOLONG, err);
  int32_t rc = bs_run_read(from->root, from->path, &records, &env, err);
  if (rc == BS_OK) rc = bs_folder_open(from->root, from->path, &fd, err);
  if (rc == BS_OK) rc = make_folder(folder, err);
  if (rc == BS_OK) rc = copy_files(dir, name, fd, manifest, err);
  if (rc == BS_OK && json_array_append_new(runs, about(name, json_array_get(records, 0), env)) != 0)
    rc = bs_no_memory(err, "a bundle");
  if (fd >= 0) close(fd);
  json_decref(records);
  json_decref(env);
  return rc;
}

/* Writes BUNDLE.json, then MANIFEST; BUNDLE.json has the number of files in MANIFEST. */
static int32_t finish(const char *dir, json_t *runs, json_t *manifest, bs_error *err) {
  const char *name;
  json_t *sum, *whole = json_pack("{s:i, s:s, s:I, s:O}", "schema", BUNDLE_SCHEMA, "blockshock", bs_version(),
                                  "files", (json_int_t)json_object_size(manifest) + 1, "runs", runs);
  char *text = whole != NULL ? json_dumps(whole, JSON_INDENT(2)) : NULL;
  bs_text lines = {0};
  json_decref(whole);
  if (text == NULL) return bs_no_memory(err, "a bundle");
  int32_t rc = write_file(dir, "BUNDLE.json", text, strlen(text), manifest, err);
  free(text);
  json_object_foreach(manifest, name, sum) bs_text_printf(&lines, "%s  %s\n", json_string_value(sum), name);
  if (rc == BS_OK && lines.failed) rc = bs_no_memory(err, "a bundle");
  if (rc == BS_OK) rc = write_file(dir, "MANIFEST", lines.data, lines.size, NULL, err);
  bs_text_free(&lines);
  return rc;
}

int32_t bs_bundle_make(const char *dir, const bs_bundle_run *from, size_t n, json_t **out_runs,
                       bs_error *err) {
  char folder[PATH_SIZE];
  json_t *manifest = json_object(), *runs = json_array();
  *out_runs = NULL;
  int32_t rc = make_folder(dir, err);
  if (rc == BS_OK && snprintf(folder, sizeof folder, "%s/runs", dir) >= (int)sizeof folder)
    rc = cannot_write(dir, ENAMETOOLONG, err);
  if (rc == BS_OK) rc = make_folder(folder, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) rc = add_run(dir, &from[i], manifest, runs, err);
  if (rc == BS_OK) rc = finish(dir, runs, manifest, err);
  json_decref(manifest);
  if (rc == BS_OK)
    *out_runs = runs;
  else
    json_decref(runs);
  return rc;
}

/* ---- checking ----------------------------------------------------------------------------------- */

static int32_t damaged(const char *dir, const char *name, const char *what, bs_error *err) {
  bs_error_set(err, BS_CORRUPT, "BS-BUNDLE-SUM", "%.200s: %.200s %s", dir, name, what);
  bs_error_hint(err, "copy the bundle again from where it was made");
  return BS_CORRUPT;
}

/* A line "<64 hex digits>  <path below the bundle>". */
static int32_t check_line(const char *dir, char *line, json_t *seen, bs_error *err) {
  char path[PATH_SIZE], hex[65];
  const char *name = line + 66;
  if (strlen(line) < 67 || strspn(line, "0123456789abcdef") != 64 || strncmp(line + 64, "  ", 2) != 0 ||
      name[0] == '/' || strstr(name, "..") != NULL ||
      snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
    return damaged(dir, "MANIFEST", "has a line that is none", err);
  line[64] = '\0';
  if (bs_sha256_file(path, hex, NULL) != BS_OK) return damaged(dir, name, "cannot be read", err);
  if (strcmp(hex, line) != 0) return damaged(dir, name, "is not what MANIFEST has the sum of", err);
  return json_object_set_new(seen, name, json_true()) == 0
             ? BS_OK
             : damaged(dir, "MANIFEST", "has a name that is no text", err);
}

static int32_t check_lines(const char *dir, char *text, size_t size, json_t *seen, bs_error *err) {
  int32_t rc = BS_OK;
  if (size == 0 || text[size - 1] != '\n' || strlen(text) != size)
    return damaged(dir, "MANIFEST", "has no whole last line", err);
  for (char *line = text, *end; rc == BS_OK && *line != '\0'; line = end + 1) {
    end = strchr(line, '\n');
    *end = '\0';
    rc = check_line(dir, line, seen, err);
  }
  return rc;
}

/* Checks that each run in BUNDLE.json is also whole by its own sums. */
static int32_t check_runs(const char *dir, const json_t *runs, bs_error *err) {
  char root[PATH_SIZE];
  int32_t rc = BS_OK;
  snprintf(root, sizeof root, "%s/runs", dir);
  for (size_t i = 0; rc == BS_OK && i < json_array_size(runs); i++) {
    const char *name = json_string_value(json_object_get(json_array_get(runs, i), "run"));
    json_t *records = NULL;
    if (name == NULL) return damaged(dir, "BUNDLE.json", "has a run without a name", err);
    rc = bs_run_read(root, name, &records, NULL, err);
    json_decref(records);
  }
  return rc;
}

static int32_t check_whole(const char *dir, int fd, const json_t *seen, json_t **out_runs, bs_error *err) {
  char *text = NULL;
  size_t size = 0;
  int32_t rc = bs_folder_file(fd, "BUNDLE.json", &text, &size, err);
  json_t *whole = rc == BS_OK && text != NULL ? json_loadb(text, size, 0, NULL) : NULL;
  json_t *runs = json_object_get(whole, "runs");
  if (rc == BS_OK &&
      (!json_is_array(runs) || json_object_get(seen, "BUNDLE.json") == NULL ||
       json_integer_value(json_object_get(whole, "files")) != (json_int_t)json_object_size(seen)))
    rc = damaged(dir, "MANIFEST", "does not name all files", err);
  if (rc == BS_OK) rc = check_runs(dir, runs, err);
  if (rc == BS_OK) *out_runs = json_incref(runs);
  json_decref(whole);
  free(text);
  return rc;
}

int32_t bs_bundle_check(const char *dir, json_t **out_runs, bs_error *err) {
  char *text = NULL;
  size_t size = 0;
  int fd = -1;
  json_t *seen = json_object();
  *out_runs = NULL;
  int32_t rc = bs_folder_open(dir, ".", &fd, err);
  if (rc == BS_OK) rc = bs_folder_file(fd, "MANIFEST", &text, &size, err);
  if (rc == BS_NOT_FOUND || (rc == BS_OK && text == NULL)) {
    rc = bs_error_set(err, BS_NOT_FOUND, "BS-BUNDLE-NONE", "%.200s has no MANIFEST: it is no bundle", dir);
    bs_error_hint(err, "bsrun runs bundle RUN... --to DIR makes one");
  }
  if (rc == BS_OK) rc = check_lines(dir, text, size, seen, err);
  if (rc == BS_OK) rc = check_whole(dir, fd, seen, out_runs, err);
  if (fd >= 0) close(fd);
  json_decref(seen);
  free(text);
  return rc;
}
