/* SPDX-License-Identifier: MIT
 * notes.c - see notes.h. */
#include "lab/store/notes.h"
#include "lab/store/fsck.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/out_file.h"
#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/folder.h"
#include "lab/store/internal.h"
#include "lab/store/lines.h"

const char *const bs_note_kinds[] = {"plan", "observation", "retrospective", NULL};
static const bs_lines_words words = {"BS-STO-IO", "BS-STO-LOCK", "may this user write the results folder?",
                                     1};

/* Checks that a run is committed and whole: only such runs may be referred to. */
static int32_t need_run(const char *root, const char *run, bs_error *err) {
  bs_folder_run content = {0};
  int fd;
  int32_t rc = bs_folder_open(root, run, &fd, err);
  if (rc != BS_OK) return rc;
  rc = bs_folder_read(fd, run, &content, err);
  bs_folder_run_free(&content);
  close(fd);
  return rc;
}

int32_t bs_run_note(const char *root, const char *run, const char *kind, const char *text, bs_error *err) {
  char date[32];
  const time_t now = time(NULL);
  struct tm tm;
  bs_text path = {0};
  int32_t rc = need_run(root, run, err);
  if (rc != BS_OK) return rc;
  gmtime_r(&now, &tm);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
  json_t *note =
      json_pack("{s:I, s:s, s:s, s:s}", "time", (json_int_t)now, "date", date, "kind", kind, "text", text);
  bs_text_printf(&path, "%s/%s/notes.jsonl", root, run);
  if (path.failed) {
    rc = bs_no_memory(err, "a note");
  } else if (note == NULL || text[strspn(text, " \t\n")] == '\0') {
    rc = bs_error_set(err, BS_USAGE, "BS-USE-NOTE", "the note is empty, or not UTF-8");
    bs_error_hint(err, "bsrun runs note RUN observation 'what was seen'");
  } else {
    bs_lines lines = {.words = &words, .path = path.data};
    rc = bs_lines_append(&lines, note, err);
  }
  json_decref(note);
  bs_text_free(&path);
  return rc;
}

static enum bs_line judge(void *user, const json_t *entry) {
  (void)user;
  return json_is_string(json_object_get(entry, "text")) ? BS_LINE_HOLDS : BS_LINE_BROKEN;
}

int32_t bs_run_notes(const char *root, const char *run, json_t **out_notes, bs_error *err) {
  bs_text path = {0};
  bs_lines lines;
  *out_notes = NULL;
  bs_text_printf(&path, "%s/%s/notes.jsonl", root, run);
  if (path.failed) {
    bs_text_free(&path);
    return bs_no_memory(err, "notes");
  }
  const int32_t rc = bs_lines_open(&words, path.data, judge, NULL, &lines, err);
  if (rc == BS_OK) *out_notes = json_incref(lines.entries);
  bs_lines_close(&lines);
  bs_text_free(&path);
  return rc;
}

static int32_t open_root(const char *root, int *out_fd, bs_error *err) {
  *out_fd = -1;
  const int32_t rc = bs_runs_root_check(root, err);
  if (rc != BS_OK) return rc;
  *out_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return *out_fd >= 0 ? BS_OK : bs_store_io_error(err, errno, "open the folder", root);
}

static int32_t read_names(int fd, const char *root, json_t **out_names, bs_error *err) {
  char *text;
  size_t size;
  int32_t rc = bs_folder_file(fd, "baselines.json", &text, &size, err);
  if (rc != BS_OK) return rc;
  *out_names = text != NULL ? json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL) : json_object();
  free(text);
  if (json_is_object(*out_names)) return BS_OK;
  json_decref(*out_names);
  *out_names = NULL;
  bs_error_set(err, BS_CORRUPT, "BS-STO-BASELINES", "%.300s/baselines.json is no JSON object", root);
  bs_error_hint(err, "mend it, or delete it and name the runs again: bsrun runs baseline NAME RUN");
  return BS_CORRUPT;
}

int32_t bs_baselines_read(const char *root, json_t **out_names, bs_error *err) {
  int fd;
  *out_names = NULL;
  int32_t rc = open_root(root, &fd, err);
  if (rc != BS_OK) return rc;
  rc = read_names(fd, root, out_names, err);
  close(fd);
  return rc;
}

/* Writes by one rename: a reader at the same time reads the old or the new file. */
static int32_t write_names(int fd, const char *root, const json_t *names, bs_error *err) {
  char temporary[64];
  char *text = json_dumps(names, JSON_INDENT(2) | JSON_SORT_KEYS);
  if (text == NULL) return bs_no_memory(err, "baselines");
  snprintf(temporary, sizeof temporary, ".baselines.%ld", (long)getpid());
  unlinkat(fd, temporary, 0);
  int32_t rc = bs_store_write_file(fd, temporary, text, strlen(text), 1, err);
  int why = rc == BS_OK ? bs_out_rename(fd, temporary, "baselines.json") : 0;
  if (rc == BS_OK && why == 0 && fsync(fd) != 0) why = errno;
  if (why != 0) rc = bs_store_io_error(err, why, "write baselines.json in", root);
  if (rc != BS_OK) unlinkat(fd, temporary, 0);
  free(text);
  return rc;
}

int32_t bs_baseline_set(const char *root, const char *name, const char *run, bs_error *err) {
  json_t *names = NULL;
  int fd;
  int32_t rc = bs_store_check_name("the baseline", name, err);
  if (rc == BS_OK) rc = need_run(root, run, err);
  if (rc == BS_OK) rc = open_root(root, &fd, err);
  if (rc != BS_OK) return rc;
  rc = read_names(fd, root, &names, err);
  if (rc == BS_OK && json_object_set_new(names, name, json_string(run)) != 0)
    rc = bs_no_memory(err, "baselines");
  if (rc == BS_OK) rc = write_names(fd, root, names, err);
  json_decref(names);
  close(fd);
  return rc;
}
