/* SPDX-License-Identifier: MIT
 * lines.c - see lines.h. */
#include "lab/store/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/store.h"

#define MAX_FILE (16 * 1048576)
/* The lock is held for one write: a process that holds it for two seconds is stopped or hangs. */
enum { LOCK_TRIES = 200, LOCK_STEP_NS = 10000000 };

static int32_t io_error(const bs_lines_words *words, int number, const char *verb, const char *path,
                        bs_error *err) {
  bs_error_errno(err, BS_IO, words->io_id, number, "cannot %s %.300s", verb, path);
  bs_error_hint(err, "%s",
                number == ELOOP && words->below_results ? "links below the results folder are not followed"
                                                        : words->hint);
  return BS_IO;
}

static int link_flag(const bs_lines_words *words) {
  return words->below_results ? O_NOFOLLOW : 0;
}

/* `size` bytes from `at` on, or as many as there are. */
static int read_part(int fd, off_t at, size_t size, char *out, size_t *out_size) {
  *out_size = 0;
  while (*out_size < size) {
    const ssize_t n = pread(fd, out + *out_size, size - *out_size, at + (off_t)*out_size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) break;
    *out_size += (size_t)n;
  }
  return 0;
}

/* Drops the incomplete line at the start of `text`; its first byte is the one before the wanted text. */
static size_t skip_torn(char *text, size_t size) {
  const char *end = memchr(text, '\n', size);
  const size_t skipped = end != NULL ? (size_t)(end - text) + 1 : size;
  memmove(text, text + skipped, size - skipped);
  return skipped;
}

static int32_t read_end(const bs_lines_words *words, const char *path, int fd, off_t whole, char **out,
                        size_t *out_size, uint64_t *out_unread, bs_error *err) {
  const off_t from = whole > MAX_FILE ? whole - MAX_FILE - 1 : 0;
  *out = malloc((size_t)(whole - from) + 1);
  if (*out == NULL) return bs_no_memory(err, "a line of a file");
  const int bad = read_part(fd, from, (size_t)(whole - from), *out, out_size);
  if (bad != 0) return io_error(words, bad, "read", path, err);
  if (from == 0) return BS_OK;
  const size_t skipped = skip_torn(*out, *out_size);
  *out_size -= skipped;
  *out_unread = (uint64_t)from + skipped;
  return BS_OK;
}

/* A regular file; a fifo or device would block or never end. */
int32_t bs_lines_read(const bs_lines_words *words, const char *path, char **out, size_t *out_size,
                      uint64_t *out_unread, bs_error *err) {
  struct stat st;
  int32_t rc;
  *out = NULL;
  *out_size = 0;
  *out_unread = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | link_flag(words));
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? BS_OK : io_error(words, errno, "read", path, err);
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    rc = bs_error_set(err, BS_IO, words->io_id, "%.300s is no regular file", path);
    bs_error_hint(err, "%s", words->hint);
  } else {
    rc = read_end(words, path, fd, st.st_size, out, out_size, out_unread, err);
  }
  close(fd);
  if (rc != BS_OK) {
    free(*out);
    *out = NULL;
    *out_size = 0;
  }
  return rc;
}

static int32_t take_line(bs_lines *lines, const char *text, size_t size, bs_lines_judge_fn judge, void *user,
                         bs_error *err) {
  json_t *entry = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
  const enum bs_line line = judge(user, entry);
  lines->broken += line == BS_LINE_BROKEN;
  lines->foreign += line == BS_LINE_FOREIGN;
  if (line == BS_LINE_HOLDS)
    return json_array_append_new(lines->entries, entry) == 0 ? BS_OK : bs_no_memory(err, "an entry");
  json_decref(entry);
  return BS_OK;
}

int32_t bs_lines_open(const bs_lines_words *words, const char *path, bs_lines_judge_fn judge, void *user,
                      bs_lines *out, bs_error *err) {
  char *text = NULL;
  size_t size = 0;
  *out = (bs_lines){.words = words, .entries = json_array()};
  if (out->entries == NULL) return bs_no_memory(err, "entries");
  if (path == NULL) return BS_OK;
  int32_t rc = bs_lines_read(words, path, &text, &size, &out->unread, err);
  for (size_t at = 0; rc == BS_OK && at < size;) {
    const char *end = memchr(text + at, '\n', size - at);
    const size_t length = end != NULL ? (size_t)(end - text) - at : size - at;
    if (length > 0) rc = take_line(out, text + at, length, judge, user, err);
    at += length + 1;
  }
  free(text);
  if (rc == BS_OK && (out->path = bs_strdup(path)) == NULL) rc = bs_no_memory(err, "entries");
  return rc;
}

void bs_lines_close(bs_lines *lines) {
  free(lines->path);
  json_decref(lines->entries);
  memset(lines, 0, sizeof *lines);
}

void bs_lines_forget_path(bs_lines *lines) {
  free(lines->path);
  lines->path = NULL;
}

int32_t bs_lines_folders(const bs_lines_words *words, const char *path, bs_error *err) {
  char *folder = bs_strdup(path);
  int32_t rc = folder != NULL ? BS_OK : bs_no_memory(err, "a line of a file");
  if (rc != BS_OK) return rc;
  for (char *slash = strchr(folder, '/'); slash != NULL && rc == BS_OK; slash = strchr(slash + 1, '/')) {
    if (slash == folder) continue;
    *slash = '\0';
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
      rc = io_error(words, errno, "make the folder", folder, err);
    *slash = '/';
  }
  free(folder);
  return rc;
}

/* 0 or the errno. If a file system has no locks, appending in one write must be enough. */
static int lock_file(int fd) {
  const struct timespec step = {0, LOCK_STEP_NS};
  for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
    if (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP) return 0;
    if ((errno != EWOULDBLOCK && errno != EINTR) || tries >= LOCK_TRIES) return errno;
    if (errno == EWOULDBLOCK) nanosleep(&step, NULL);
  }
  return 0;
}

/* Ends a line that another process left incomplete (killed, disk full) before the new one. */
static int write_line(int fd, const char *line, size_t size) {
  char last = '\n';
  struct stat st;
  const int locked = lock_file(fd);
  if (locked != 0) return locked;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return EINVAL;
  if (st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) != 1) return EIO;
  return bs_store_write_all(fd, line + (last == '\n'), size - (last == '\n'));
}

int32_t bs_lines_append(const bs_lines *lines, const json_t *entry, bs_error *err) {
  const bs_lines_words *words = lines->words;
  const char *path = lines->path;
  bs_text framed = {0};
  if (path == NULL) return BS_OK;
  char *line = json_dumps(entry, JSON_COMPACT | JSON_SORT_KEYS);
  bs_text_printf(&framed, "\n%s\n", line != NULL ? line : "");
  int32_t rc = line == NULL || framed.failed ? bs_no_memory(err, "a line of a file")
                                             : bs_lines_folders(words, path, err);
  if (rc == BS_OK) {
    const int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK;
    const int fd = open(path, flags | link_flag(words), 0644);
    int bad = fd < 0 ? errno : write_line(fd, framed.data, framed.size);
    if (fd >= 0 && close(fd) != 0 && bad == 0) bad = errno;
    if (bad == EWOULDBLOCK) {
      rc = bs_error_set(err, BS_IO, words->lock_id, "another process holds the lock of %.300s", path);
      bs_error_hint(err, "a stopped or hanging bsrun? %s", words->hint);
    } else if (bad != 0) {
      rc = io_error(words, bad, "write", path, err);
    }
  }
  free(line);
  bs_text_free(&framed);
  return rc;
}
