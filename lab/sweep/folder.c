/* SPDX-License-Identifier: MIT
 * folder.c - the folder of a sweep and its lock (plan.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/lines.h"
#include "lab/store/store.h"
#include "lab/sweep/plan.h"

static const bs_lines_words words = {"BS-SWEEP-IO", "BS-SWEEP-LOCK", "--out DIR chooses another root", 0};

static int32_t io_error(const bs_sweep_folder *folder, int saved, const char *what, bs_error *err) {
  bs_error_errno(err, BS_IO, "BS-SWEEP-IO", saved, "cannot %s %.200s", what, folder->path);
  bs_error_hint(err, "%s", words.hint);
  return BS_IO;
}

static int32_t make(const bs_sweep_folder *folder, bs_error *err) {
  const int32_t rc = bs_lines_folders(&words, folder->path, err);
  if (rc != BS_OK || mkdir(folder->path, 0755) == 0 || errno == EEXIST) return rc;
  return io_error(folder, errno, "make", err);
}

/* One without a plan is left of a process that was killed before it had one: it is taken. */
static int32_t must_be_new(const bs_sweep_folder *folder, const char *id, bs_error *err) {
  if (faccessat(folder->fd, "plan.jsonl", F_OK, 0) != 0) return BS_OK;
  bs_error_set(err, BS_BUSY, "BS-SWEEP-EXISTS", "%.200s is there already", folder->path);
  bs_error_hint(err, "--resume %.64s goes on with it, --run-id NAME gives this one another name", id);
  return BS_BUSY;
}

/* Takes the lock. The file has the holder's number, for the next process. */
static int32_t lock(bs_sweep_folder *folder, bs_error *err) {
  char text[32] = "";
  folder->lock_fd = openat(folder->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (folder->lock_fd < 0) return io_error(folder, errno, "lock", err);
  if (flock(folder->lock_fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return io_error(folder, errno, "lock", err);
    const ssize_t n = pread(folder->lock_fd, text, sizeof text - 1, 0);
    text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
    close(folder->lock_fd);
    folder->lock_fd = -1; /* it is another's */
    const int known = text[0] != '\0' && strspn(text, "0123456789") == strlen(text);
    bs_error_set(err, BS_BUSY, "BS-SWEEP-LOCK", "%.200s is being run by %s%s", folder->path,
                 known ? "process " : "another process", known ? text : "");
    bs_error_hint(err, "wait for it, or begin another sweep without --resume");
    return BS_BUSY;
  }
  const int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
  if (ftruncate(folder->lock_fd, 0) != 0 || pwrite(folder->lock_fd, text, (size_t)n, 0) != n)
    return io_error(folder, errno, "write to", err);
  return BS_OK;
}

int32_t bs_sweep_folder_open(const char *root, const char *id, int existing, bs_sweep_folder *out,
                             bs_error *err) {
  bs_text path = {0};
  *out = (bs_sweep_folder){.fd = -1, .lock_fd = -1};
  int32_t rc = bs_store_check_name(existing ? "--resume" : "--run-id", id, err);
  if (rc != BS_OK) return rc;
  bs_text_printf(&path, "%s/%s", root, id);
  if (path.failed) {
    bs_text_free(&path);
    return bs_no_memory(err, "a sweep");
  }
  out->path = path.data;
  if (!existing) rc = make(out, err);
  if (rc != BS_OK) return rc;
  out->fd = open(out->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (out->fd < 0 && errno == ENOENT)
    return bs_error_set(err, BS_INPUT, "BS-SWEEP-NONE", "there is no sweep %.200s", out->path);
  if (out->fd < 0) return io_error(out, errno, "open", err);
  rc = lock(out, err);
  return rc == BS_OK && !existing ? must_be_new(out, id, err) : rc;
}

void bs_sweep_folder_close(bs_sweep_folder *folder) {
  if (folder->lock_fd >= 0) close(folder->lock_fd);
  if (folder->fd >= 0) close(folder->fd);
  free(folder->path);
  *folder = (bs_sweep_folder){.fd = -1, .lock_fd = -1};
}

void bs_sweep_folder_drop(bs_sweep_folder *folder) {
  if (folder->fd < 0 || folder->lock_fd < 0 || faccessat(folder->fd, "plan.jsonl", F_OK, 0) == 0) return;
  unlinkat(folder->fd, "lock", 0);
  rmdir(folder->path);
}

int32_t bs_sweep_folder_probe(const bs_sweep_folder *folder, bs_error *err) {
  static const char block[65536] = {1};
  const int fd = openat(folder->fd, ".probe", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  int failed = fd < 0 ? errno : bs_store_write_all(fd, block, sizeof block);
  if (failed == 0 && fsync(fd) != 0) failed = errno;
  if (fd >= 0) close(fd);
  if (fd >= 0) unlinkat(folder->fd, ".probe", 0);
  if (failed == 0) return BS_OK;
  return io_error(folder, failed, "write to", err);
}
