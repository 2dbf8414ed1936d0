/* SPDX-License-Identifier: MIT
 * walk.c - finds the folders of runs below a root (see folder.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/folder.h"

enum { MAX_DEPTH = 8 };

typedef struct walk {
  bs_folder_fn visit;
  void *user;
  bs_error *err;
} walk;

static int32_t cannot_list(const char *path, int number, bs_error *err) {
  bs_error_errno(err, BS_IO, "BS-STO-READ", number, "cannot list the folder %.300s", path);
  bs_error_hint(err, "may this user read the results folder?");
  return BS_IO;
}

static int is_there(int fd, const char *name) {
  struct stat st;
  return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ".tmp.<key>.<pid>.<start time>", and ".<key>.<pid>" of older versions, with 12 hex digits of the key. */
static int is_temporary(const char *name) {
  const char *key = strncmp(name, ".tmp.", 5) == 0 ? name + 5 : name + 1;
  return strspn(key, "0123456789abcdef") == 12 && key[12] == '.';
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct names {
  char **name;
  size_t n, room;
} names;

static void names_free(names *list) {
  for (size_t i = 0; i < list->n; i++) free(list->name[i]);
  free(list->name);
}

static int names_add(names *list, const char *name) {
  if (list->n == list->room) {
    const size_t room = list->room == 0 ? 64 : 2 * list->room;
    char **grown = realloc(list->name, room * sizeof *grown);
    if (grown == NULL) return 0;
    list->name = grown;
    list->room = room;
  }
  list->name[list->n] = bs_strdup(name);
  return list->name[list->n] != NULL && ++list->n > 0;
}

/* Lists the subfolders of a folder, sorted; files and links are left out. */
static int32_t list_folders(int fd, const char *path, names *out, bs_error *err) {
  const int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = own < 0 ? NULL : fdopendir(own);
  if (dir == NULL) {
    const int number = errno;
    if (own >= 0) close(own);
    return cannot_list(path, number, err);
  }
  int32_t rc = BS_OK;
  const struct dirent *entry;
  while (rc == BS_OK && (entry = readdir(dir)) != NULL) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    if (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN) continue;
    if (!names_add(out, name)) rc = bs_no_memory(err, "the list of runs");
  }
  closedir(dir);
  if (out->n > 1) qsort(out->name, out->n, sizeof *out->name, by_name);
  return rc;
}

static int32_t walk_into(const walk *w, int fd, const char *path, int depth);

/* Opens the folder `name`; *out_closed: this user may not list it, or not read its entries. */
static int open_below(int fd, const char *name, int *out_closed) {
  struct stat st;
  int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  *out_closed = next < 0 ? errno == EACCES : fstatat(next, "DONE", &st, 0) != 0 && errno == EACCES;
  if (next < 0 || !*out_closed) return next;
  close(next);
  errno = EACCES;
  return -1;
}

/* Visits one folder `name` of the folder `fd`: a run's, or one that holds others. A folder that has vanished
 * was removed or renamed by its writer. */
static int32_t walk_one(const walk *w, int fd, const char *path, const char *name, int depth) {
  bs_text below = {0};
  int closed = 0;
  const int next = open_below(fd, name, &closed);
  if (next < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return BS_OK;
  bs_text_printf(&below, "%s%s%s", path, path[0] == '\0' ? "" : "/", name);
  int32_t rc = BS_OK;
  if (below.failed) {
    rc = bs_no_memory(w->err, "the list of runs");
  } else if (closed) {
    rc = w->visit(w->user, BS_FOLDER_CLOSED, -1, below.data, w->err);
  } else if (next < 0) {
    rc = cannot_list(below.data, errno, w->err);
  } else if (name[0] == '.') {
    if (is_temporary(name)) rc = w->visit(w->user, BS_FOLDER_TEMPORARY, next, below.data, w->err);
  } else if (is_there(next, "DONE")) {
    rc = w->visit(w->user, BS_FOLDER_RUN, next, below.data, w->err);
  } else if (is_there(next, "metrics.jsonl")) {
    rc = w->visit(w->user, BS_FOLDER_OPEN, next, below.data, w->err);
  } else if (depth < MAX_DEPTH) {
    rc = walk_into(w, next, below.data, depth + 1);
  }
  if (next >= 0) close(next);
  bs_text_free(&below);
  return rc;
}

static int32_t walk_into(const walk *w, int fd, const char *path, int depth) {
  names list = {0};
  int32_t rc = list_folders(fd, path, &list, w->err);
  for (size_t i = 0; rc == BS_OK && i < list.n; i++) rc = walk_one(w, fd, path, list.name[i], depth);
  names_free(&list);
  return rc;
}

int32_t bs_folders_walk(const char *root, bs_folder_fn visit, void *user, bs_error *err) {
  const walk w = {visit, user, err};
  const int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? BS_OK : cannot_list(root, errno, err);
  const int32_t rc = walk_into(&w, fd, "", 0);
  close(fd);
  return rc;
}

int32_t bs_folder_open(const char *root, const char *path, int *out_fd, bs_error *err) {
  int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (const char *at = path; fd >= 0 && *at != '\0';) {
    char name[256];
    const size_t size = strcspn(at, "/");
    const int usable = size < sizeof name && !(size == 2 && strncmp(at, "..", 2) == 0);
    snprintf(name, sizeof name, "%.*s", (int)(size < sizeof name ? size : 0), at);
    const int next = !usable     ? -1
                     : size == 0 ? openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                 : openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int number = usable ? errno : ENOENT;
    close(fd);
    fd = next;
    errno = number;
    at += size + (at[size] == '/');
  }
  *out_fd = fd;
  if (fd >= 0) return BS_OK;
  if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) return cannot_list(path, errno, err);
  bs_error_set(err, BS_NOT_FOUND, "BS-STO-NORUN", "there is no run %.200s below %.200s", path, root);
  bs_error_hint(err, "runs are folders [GROUP/]PHASE/METHOD/RUN_ID below a results folder");
  return BS_NOT_FOUND;
}
