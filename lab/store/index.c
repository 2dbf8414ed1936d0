/* SPDX-License-Identifier: MIT
 * index.c - see index.h. Lines are only added to, in one write; the newest line of a run counts. */
#include "lab/store/index.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/store/folder.h"
#include "lab/store/metrics.h"
#include "lab/store/read.h"
#include "lab/store/sha256.h"
#include "lab/store/store.h"
#include "lab/store/summary.h"

enum { STAMP = 352 };
static const char *const stamped[] = {"DONE", "metrics.jsonl", "notes.jsonl"};

/* Rows that another version made may lack a key. */
static uint32_t sum_of_keys(void) {
  uint32_t sum = 0;
  for (size_t k = 0; bs_run_row_keys[k] != NULL; k++)
    sum = 31 * sum + bs_crc32c(bs_run_row_keys[k], strlen(bs_run_row_keys[k]));
  return sum;
}

/* The stamp of a run's rows: the program's version and the files from which they were made. */
static void stamp_of(int fd, char out[STAMP]) {
  size_t used = 0;
  const int head = snprintf(out, STAMP, "v%d.%08x ", BS_ROWS_VERSION, (unsigned)sum_of_keys());
  used += head > 0 ? (size_t)head : 0;
  for (size_t i = 0; i < sizeof stamped / sizeof stamped[0] && used < STAMP; i++) {
    struct stat st;
    if (fstatat(fd, stamped[i], &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const int n = snprintf(out + used, STAMP - used, "%c%llx.%llx.%llx.%lx.%llx.%lx", stamped[i][0],
                           (unsigned long long)st.st_ino, (unsigned long long)st.st_size,
                           (unsigned long long)st.st_mtim.tv_sec, (unsigned long)st.st_mtim.tv_nsec,
                           (unsigned long long)st.st_ctim.tv_sec, (unsigned long)st.st_ctim.tv_nsec);
    used += n > 0 ? (size_t)n : 0;
  }
}

static void take_line(bs_rows_index *index, const char *line, size_t size) {
  json_t *entry = bs_line_holds(line, size) ? json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
  const char *run = json_string_value(json_object_get(entry, "run"));
  if (run != NULL)
    json_object_set(index->entries, run, entry);
  else
    index->bad++;
  json_decref(entry);
}

void bs_rows_index_open(bs_rows_index *index, const char *root) {
  char *text = NULL;
  size_t size = 0;
  *index = (bs_rows_index){.entries = json_object()};
  const int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  const int32_t rc = bs_folder_file(fd, "index.jsonl", &text, &size, NULL);
  close(fd);
  for (size_t at = 0; rc == BS_OK && text != NULL && at < size;) {
    const char *end = memchr(text + at, '\n', size - at);
    if (end == NULL) break; /* torn */
    take_line(index, text + at, (size_t)(end - text) - at);
    index->lines++;
    at = (size_t)(end - text) + 1;
  }
  free(text);
}

/* Missing values are left out of the file: they are null in a row. */
static int whole_rows(json_t *rows) {
  json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    if (!json_is_object(row)) return 0;
    for (size_t k = 0; bs_run_row_keys[k] != NULL; k++)
      if (json_object_get(row, bs_run_row_keys[k]) == NULL)
        json_object_set_new(row, bs_run_row_keys[k], json_null());
  }
  return json_array_size(rows) > 0;
}

json_t *bs_rows_index_find(bs_rows_index *index, int fd, const char *run) {
  char stamp[STAMP];
  const json_t *entry = json_object_get(index->entries, run);
  const char *known = json_string_value(json_object_get(entry, "stamp"));
  json_t *rows = json_object_get(entry, "rows");
  if (known == NULL || !json_is_array(rows)) return NULL;
  stamp_of(fd, stamp);
  if (strcmp(known, stamp) != 0 || !whole_rows(rows)) return NULL;
  index->used++;
  json_incref(rows);
  json_object_del(index->entries, run); /* one copy in memory */
  return rows;
}

static json_t *without_nulls(const json_t *rows) {
  json_t *out = json_array(), *row, *value;
  const char *key;
  size_t i;
  json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
    json_t *slim = json_object();
    json_object_foreach(row, key, value) {
      if (!json_is_null(value)) json_object_set(slim, key, value);
    }
    json_array_append_new(out, slim);
  }
  return out;
}

void bs_rows_index_add(bs_rows_index *index, int fd, const char *run, const json_t *rows) {
  char stamp[STAMP];
  if (rows == NULL) return;
  stamp_of(fd, stamp);
  json_t *entry = json_pack("{s:s, s:s, s:o}", "run", run, "stamp", stamp, "rows", without_nulls(rows));
  char *line = entry != NULL ? json_dumps(entry, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
  if (line != NULL) bs_line_print(line, &index->added);
  free(line);
  json_decref(entry);
}

static void append(const char *root, const bs_text *added) {
  bs_text path = {0};
  bs_text_printf(&path, "%s/index.jsonl", root);
  if (path.failed) return;
  const int fd = open(path.data, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  struct stat st;
  char last = '\n';
  if (fd >= 0 && fstat(fd, &st) == 0) {
    /* Ends a line that a crash or a full disk cut off, before new lines follow. */
    if (st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n')
      (void)bs_store_write_all(fd, "\n", 1);
    (void)bs_store_write_all(fd, added->data, added->size);
  }
  if (fd >= 0) close(fd);
  bs_text_free(&path);
}

void bs_rows_index_remove(const char *root) {
  bs_text path = {0};
  bs_text_printf(&path, "%s/index.jsonl", root);
  if (!path.failed) unlink(path.data);
  bs_text_free(&path);
}

void bs_rows_index_close(bs_rows_index *index, const char *root, int keep) {
  /* Most lines are of runs that are gone or changed: the next list makes a new index. */
  const int stale = index->lines > 64 && index->used < index->lines / 2;
  if (keep && (stale || index->bad > 0)) bs_rows_index_remove(root);
  if (keep && !stale && index->added.size > 0 && !index->added.failed) append(root, &index->added);
  bs_text_free(&index->added);
  json_decref(index->entries);
  *index = (bs_rows_index){0};
}
