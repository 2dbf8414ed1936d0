/* SPDX-License-Identifier: MIT
 * out_file.c - see out_file.h. Thread-safe on distinct files. */
#include "core/base/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int claimed = -1; /* stdout, where bs_out_claim_stdout was called */

static int same_file(const struct stat *a, int fd) {
  struct stat b;
  return fstat(fd, &b) == 0 && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

int bs_out_is_stdout(const char *path) {
  static const char *const names[] = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
  struct stat at;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(path, names[i]) == 0) return 1;
  return stat(path, &at) == 0 && same_file(&at, claimed >= 0 ? claimed : STDOUT_FILENO);
}

int bs_out_claim_stdout(void) {
  if (claimed >= 0) return 0;
  if (fflush(stdout) != 0) return errno;
  claimed = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  return claimed >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0 ? 0 : errno;
}

static int open_again(int fd, bs_out_file *out) {
  if (fd == STDOUT_FILENO && fflush(stdout) != 0) return errno;
  out->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  return out->fd >= 0 ? 0 : errno;
}

/* A name of an open descriptor: who has it open must see what is written. */
static int names_descriptor(const char *path) {
  return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/", 5) == 0;
}

/* "<target>.tmp-<pid>-<n>" that did not exist. */
static int open_beside(bs_out_file *out) {
  static atomic_uint counter;
  const size_t room = strlen(out->target) + 48;
  out->fd = -1;
  out->beside = malloc(room);
  if (out->beside == NULL) return ENOMEM;
  for (int tries = 0; tries < 100 && out->fd < 0; tries++) {
    snprintf(out->beside, room, "%s.tmp-%ld-%u", out->target, (long)getpid(), atomic_fetch_add(&counter, 1u));
    out->fd = open(out->beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (out->fd < 0 && errno != EEXIST) return errno;
  }
  return out->fd >= 0 ? 0 : EEXIST;
}

static void forget(bs_out_file *out) {
  free(out->beside);
  free(out->target);
  out->beside = out->target = NULL;
}

static int open_in_place(const char *path, int flags, bs_out_file *out) {
  forget(out);
  out->fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
  return out->fd >= 0 ? 0 : errno;
}

/* A regular file keeps its mode; one in a folder where nothing can be made is written in place. */
static int open_regular(const char *path, const struct stat *at, bs_out_file *out) {
  out->target = realpath(path, NULL);
  if (out->target == NULL) return errno;
  if (access(path, W_OK) != 0) return errno;
  const int why = open_beside(out);
  if (why == EACCES || why == EPERM || why == EROFS) return open_in_place(path, O_TRUNC, out);
  if (why == 0) (void)fchmod(out->fd, at->st_mode & 0777);
  return why;
}

static int open_path(const char *path, bs_out_file *out) {
  struct stat at, link;
  if (stat(path, &at) == 0) {
    if (same_file(&at, STDERR_FILENO)) return open_again(STDERR_FILENO, out);
    if (S_ISDIR(at.st_mode)) return EISDIR;
    if (!S_ISREG(at.st_mode)) return open_in_place(path, 0, out);
    return names_descriptor(path) ? open_in_place(path, O_TRUNC, out) : open_regular(path, &at, out);
  }
  if (errno != ENOENT) return errno;
  if (lstat(path, &link) == 0) return open_in_place(path, O_CREAT | O_TRUNC, out); /* a link to nothing yet */
  out->target = strdup(path);
  return out->target == NULL ? ENOMEM : open_beside(out);
}

int bs_out_open(const char *path, bs_out_file *out) {
  *out = (bs_out_file){.fd = -1};
  const int why =
      bs_out_is_stdout(path) ? open_again(claimed >= 0 ? claimed : STDOUT_FILENO, out) : open_path(path, out);
  if (why != 0) forget(out);
  return why;
}

int bs_out_write(const bs_out_file *out, const void *data, size_t size) {
  const char *from = data;
  while (size > 0) {
    const ssize_t put = write(out->fd, from, size > ((size_t)1 << 30) ? (size_t)1 << 30 : size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put < 0 ? errno : EIO;
    from += put;
    size -= (size_t)put;
  }
  return 0;
}

/* Makes the renaming durable, too. A file system that cannot sync a folder returns EINVAL; that is not a
 * failure. */
static int sync_folder(char *path) {
  char *slash = strrchr(path, '/');
  if (slash != NULL) slash[slash == path] = '\0';
  const int fd = open(slash != NULL ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES ? 0 : errno; /* a folder one may write but not list */
  const int why = fsync(fd) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
  close(fd);
  return why;
}

int bs_out_close(bs_out_file *out, int why, int durable) {
  if (why == 0 && durable && out->beside != NULL && fsync(out->fd) != 0) why = errno;
  if (close(out->fd) != 0 && why == 0) why = errno;
  if (out->beside != NULL) {
    if (why == 0 && rename(out->beside, out->target) != 0) why = errno;
    if (why != 0) unlink(out->beside);
    if (why == 0 && durable) why = sync_folder(out->target);
  }
  forget(out);
  return why;
}

int bs_out_rename(int folder_fd, const char *from, const char *to) {
  struct stat at;
  if (fstatat(folder_fd, to, &at, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(at.st_mode)) return EEXIST;
  return renameat(folder_fd, from, folder_fd, to) == 0 ? 0 : errno;
}

int bs_out_text(const char *path, const char *data, size_t size) {
  bs_out_file out;
  const int why = bs_out_open(path, &out);
  return why != 0 ? why : bs_out_close(&out, bs_out_write(&out, data, size), 0);
}
