/* SPDX-License-Identifier: MIT
 * folder.c - one folder of a run, verified (see folder.h). */
#include "lab/store/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/store/sha256.h"

#define MAX_FILE ((off_t)1 << 30)

static int32_t cannot_read(const char *name, int number, bs_error *err) {
  bs_error_errno(err, BS_IO, "BS-STO-READ", number, "cannot read %.200s", name);
  bs_error_hint(err, "may this user read the results folder?");
  return BS_IO;
}

static int32_t read_all(int fd, size_t size, const char *name, char **out, size_t *out_size, bs_error *err) {
  size_t used = 0;
  char *text = malloc(size + 1);
  if (text == NULL) return bs_no_memory(err, "%s", name);
  while (used < size) {
    const ssize_t n = read(fd, text + used, size - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      free(text);
      return cannot_read(name, errno, err);
    }
    if (n == 0) break;
    used += (size_t)n;
  }
  text[used] = '\0';
  *out = text;
  *out_size = used;
  return BS_OK;
}

int32_t bs_folder_file(int fd, const char *name, char **out, size_t *out_size, bs_error *err) {
  struct stat st;
  *out = NULL;
  *out_size = 0;
  const int file = openat(fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return errno == ENOENT ? BS_OK : cannot_read(name, errno, err);
  int32_t rc;
  if (fstat(file, &st) != 0) {
    rc = cannot_read(name, errno, err);
  } else if (!S_ISREG(st.st_mode) || st.st_size > MAX_FILE) {
    rc = bs_error_set(err, BS_CORRUPT, "BS-STO-DAMAGED", "%s is no regular file of at most 1 GiB", name);
  } else {
    rc = read_all(file, (size_t)st.st_size, name, out, out_size, err);
  }
  close(file);
  return rc;
}

static int32_t damaged(const char *path, const char *what, bs_error *err) {
  bs_error_set(err, BS_CORRUPT, "BS-STO-DAMAGED", "run %.250s is damaged: %s", path, what);
  bs_error_hint(err, "it is in no list or report; restore the folder from a copy, or delete it");
  return BS_CORRUPT;
}

static int32_t read_done(int fd, const char *path, bs_folder_run *out, bs_error *err) {
  char *text;
  size_t size;
  int32_t rc = bs_folder_file(fd, "DONE", &text, &size, err);
  if (rc != BS_OK) return rc;
  if (text == NULL) {
    bs_error_set(err, BS_NOT_FOUND, "BS-STO-NOTDONE", "run %.250s is not committed: it has no DONE", path);
    bs_error_hint(err, "it is at work, or was killed or interrupted");
    return BS_NOT_FOUND;
  }
  out->done = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
  free(text);
  const int whole = json_is_string(json_object_get(out->done, "status")) &&
                    json_is_integer(json_object_get(out->done, "records")) &&
                    json_is_string(json_object_get(json_object_get(out->done, "sha256"), "metrics.jsonl"));
  return whole ? BS_OK : damaged(path, "DONE cannot be read", err);
}

int32_t bs_folder_read(int fd, const char *path, bs_folder_run *out, bs_error *err) {
  char *text = NULL, hex[65];
  size_t size;
  bs_sha256 h;
  *out = (bs_folder_run){0};
  int32_t rc = read_done(fd, path, out, err);
  if (rc == BS_OK) rc = bs_folder_file(fd, "metrics.jsonl", &text, &size, err);
  if (rc == BS_OK && text == NULL) rc = damaged(path, "metrics.jsonl is missing", err);
  if (rc == BS_OK) rc = bs_metrics_read(text, size, &out->metrics, err);
  if (rc == BS_OK && out->metrics.why[0] != '\0') {
    char what[128];
    snprintf(what, sizeof what, "metrics.jsonl: %s", out->metrics.why);
    rc = damaged(path, what, err);
  }
  if (rc == BS_OK) {
    bs_sha256_init(&h);
    bs_sha256_add(&h, text, size);
    bs_sha256_hex(&h, hex);
    const json_t *sums = json_object_get(out->done, "sha256");
    const json_int_t records = json_integer_value(json_object_get(out->done, "records"));
    if (strcmp(hex, json_string_value(json_object_get(sums, "metrics.jsonl"))) != 0 ||
        records != (json_int_t)json_array_size(out->metrics.records))
      rc = damaged(path, "metrics.jsonl is not what DONE has the sum of", err);
  }
  free(text);
  return rc;
}

void bs_folder_run_free(bs_folder_run *run) {
  json_decref(run->done);
  bs_metrics_free(&run->metrics);
  run->done = NULL;
}

json_t *bs_folder_note(int fd) {
  char *text;
  size_t size;
  if (bs_folder_file(fd, "notes.jsonl", &text, &size, NULL) != BS_OK || text == NULL) return NULL;
  json_t *found = NULL;
  for (char *end = text + size; found == NULL && end > text;) { /* the newest line is the last */
    char *line = end - 1;
    while (line > text && line[-1] != '\n') line--;
    json_t *note = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
    json_t *words = json_object_get(note, "text");
    if (json_is_string(words)) found = json_incref(words);
    json_decref(note);
    end = line;
  }
  free(text);
  return found;
}
