/* SPDX-License-Identifier: MIT
 * constants_file.c - the file of the machine's constants: its key, reading it with distrust, replacing it
 * whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/out_file.h"
#include "core/base/text.h"
#include "lab/cores.h"
#include "lab/error.h"
#include "lab/measure/constants.h"
#include "lab/store/env.h"
#include "lab/store/lines.h"
#include "lab/store/store.h"

#define MAX_FILE 1048576

const char *const bs_constants_lists[BS_CONSTANTS_LISTS] = {"arithmetic", "memory", "exchange", "host",
                                                            "kernels"};

json_t *bs_constants_key(void) {
  json_t *env = bs_env_collect(NULL);
  const char *model = json_string_value(json_object_get(json_object_get(env, "cpu"), "model"));
  json_t *key = json_pack("{s:s,s:i,s:s}", "cpu", model != NULL ? model : "unknown", "cores",
                          (int)bs_machine_cores(), "library_build_id", bs_build_id());
  json_decref(env);
  return key;
}

static const bs_lines_words words = {.io_id = "BS-CONSTANTS-IO",
                                     .hint = "--cache FILE chooses another place, --cache off none"};

static int32_t io_error(bs_error *err, int number, const char *verb, const char *path) {
  bs_error_errno(err, BS_IO, words.io_id, number, "cannot %s %.300s", verb, path);
  bs_error_hint(err, "%s", words.hint);
  return BS_IO;
}

int32_t bs_constants_store(const char *path, const json_t *constants, bs_error *err) {
  char *text = json_dumps(constants, JSON_INDENT(2) | JSON_SORT_KEYS);
  int32_t rc = text == NULL ? bs_no_memory(err, "constants") : bs_lines_folders(&words, path, err);
  bs_out_file out;
  int why = rc == BS_OK ? bs_out_open(path, &out) : 0;
  if (rc == BS_OK && why == 0) why = bs_out_close(&out, bs_out_write(&out, text, strlen(text)), 1);
  if (why != 0) rc = io_error(err, why, "write", path);
  free(text);
  return rc;
}

static int32_t corrupt(bs_error *err, const char *path, const char *why) {
  bs_error_set(err, BS_CORRUPT, "BS-CONSTANTS-FILE", "%.300s is not a file of machine constants: %.120s",
               path, why);
  bs_error_hint(err, "bsrun doctor --measure writes it again");
  return BS_CORRUPT;
}

/* A regular file of a sane size; a fifo or device would block or never end. */
static int32_t read_file(const char *path, char **out, size_t *out_size, bs_error *err) {
  struct stat st;
  uint64_t unread = 0;
  if (stat(path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE))
    return corrupt(err, path, "no regular file of at most 1 MiB");
  const int32_t rc = bs_lines_read(&words, path, out, out_size, &unread, err);
  if (rc != BS_OK || *out != NULL) return rc;
  return bs_error_set(err, BS_NOT_FOUND, "BS-CONSTANTS-NONE", "there is no %.300s", path);
}

static int32_t other_machine(bs_error *err, const char *path, const json_t *have, const json_t *want) {
  static const char *const parts[] = {"cpu", "cores", "library_build_id"};
  char *a = NULL, *b = NULL;
  const char *what = "key";
  for (size_t i = 0; i < 3 && a == NULL; i++) {
    const json_t *x = json_object_get(have, parts[i]), *y = json_object_get(want, parts[i]);
    if (json_equal(x, y)) continue;
    what = parts[i];
    a = json_dumps(x, JSON_ENCODE_ANY);
    b = json_dumps(y, JSON_ENCODE_ANY);
  }
  bs_error_set(err, BS_MISMATCH, "BS-CONSTANTS-KEY",
               "%.200s belongs to another machine or build: %s is %.60s there, %.60s here", path, what,
               a != NULL ? a : "none", b != NULL ? b : "none");
  bs_error_hint(err, "bsrun doctor --measure writes it again");
  free(a);
  free(b);
  return BS_MISMATCH;
}

static int has_lists(const json_t *constants) {
  for (size_t i = 0; i < BS_CONSTANTS_LISTS; i++)
    if (!json_is_array(json_object_get(constants, bs_constants_lists[i]))) return 0;
  return 1;
}

int32_t bs_constants_load(const char *path, json_t **out, bs_error *err) {
  json_error_t why;
  char *text = NULL;
  size_t size = 0;
  *out = NULL;
  int32_t rc = read_file(path, &text, &size, err);
  if (rc != BS_OK) return rc;
  json_t *constants = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
  free(text);
  if (constants == NULL) return corrupt(err, path, why.text);
  json_t *key = bs_constants_key();
  const json_t *stored = json_object_get(constants, "key");
  if (key == NULL) {
    rc = bs_no_memory(err, "constants");
  } else if (json_integer_value(json_object_get(constants, "format")) != BS_CONSTANTS_FORMAT ||
             !json_is_object(stored) || !has_lists(constants)) {
    rc = corrupt(err, path, "fields are missing, or it has another format");
  } else if (!json_equal(key, stored)) {
    rc = other_machine(err, path, stored, key);
  }
  json_decref(key);
  if (rc != BS_OK) {
    json_decref(constants);
    return rc;
  }
  *out = constants;
  return BS_OK;
}
