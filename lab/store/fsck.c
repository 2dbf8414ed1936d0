/* SPDX-License-Identifier: MIT
 * fsck.c - each folder is judged by one function of its kind (see fsck.h). */
#include "lab/store/fsck.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/out_file.h"
#include "lab/error.h"
#include "lab/store/env.h"
#include "lab/store/folder.h"
#include "lab/store/fsck_plan.h"
#include "lab/store/index.h"
#include "lab/store/internal.h"

typedef struct check {
  bs_fsck *out;
  const char *root;
  json_t *keys; /* [{run, request_key}] of the whole runs, for the plans of sweeps */
  int repair;
  bs_rows_index index;
  size_t lies; /* entries of the index that contradict the records */
} check;

enum bs_lock_state bs_folder_lock(int fd, int *out_fd) {
  *out_fd = openat(fd, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (*out_fd < 0) return BS_LOCK_MISSING;
  if (flock(*out_fd, LOCK_EX | LOCK_NB) == 0) return BS_LOCK_FREE;
  close(*out_fd);
  *out_fd = -1;
  return BS_LOCK_HELD;
}

static int32_t add_row(check *c, const char *path, const char *state, const char *what, const char *done,
                       bs_error *err) {
  json_t *row = json_pack("{s:o, s:s, s:o, s:s?}", "run", bs_env_string(path), "state", state, "what",
                          bs_env_string(what), "done", done);
  if (done != NULL) c->out->repaired++;
  return row != NULL && json_array_append_new(c->out->rows, row) == 0 ? BS_OK : bs_no_memory(err, "rows");
}

/* Replaces a file of the folder by one rename. */
static int32_t replace(int fd, const char *name, const char *data, size_t size, bs_error *err) {
  unlinkat(fd, "fsck.tmp", 0);
  int32_t rc = bs_store_write_file(fd, "fsck.tmp", data, size, 1, err);
  const int why = rc == BS_OK ? bs_out_rename(fd, "fsck.tmp", name) : 0;
  if (why != 0) rc = bs_store_io_error(err, why, "replace", name);
  return rc;
}

/* ---- copies of the first record's data ------------------------------------------------------------- */

/* The right content of a copy; NULL: the record does not have it. */
static char *copy_text(const json_t *record, const char *name) {
  char number[32];
  if (strcmp(name, "config.yaml") == 0) {
    const char *config = json_string_value(json_object_get(record, "config"));
    return config != NULL ? strdup(config) : NULL;
  }
  if (strcmp(name, "env.json") == 0) {
    const json_t *env = json_object_get(record, "env");
    return json_is_object(env) ? bs_env_text(env) : NULL;
  }
  const json_t *seed = json_object_get(record, "seed");
  if (!json_is_integer(seed)) return NULL;
  snprintf(number, sizeof number, "%lld\n", (long long)json_integer_value(seed));
  return strdup(number);
}

static int32_t check_copy(check *c, int fd, const char *path, const json_t *record, const char *name,
                          bs_error *err) {
  char *want = copy_text(record, name), *have = NULL, what[64];
  size_t size = 0;
  if (want == NULL) return BS_OK;
  int32_t rc = bs_folder_file(fd, name, &have, &size, NULL);
  const int same = rc == BS_OK && have != NULL && strcmp(have, want) == 0;
  rc = BS_OK;
  if (!same) {
    snprintf(what, sizeof what, "%s is not what the first record says", name);
    if (c->repair) rc = replace(fd, name, want, strlen(want), err);
    if (rc == BS_OK) rc = add_row(c, path, "copy differs", what, c->repair ? "written anew" : NULL, err);
  }
  free(have);
  free(want);
  return rc;
}

static int32_t check_copies(check *c, int fd, const char *path, const bs_folder_run *run, bs_error *err) {
  static const char *const names[] = {"config.yaml", "env.json", "seed.txt"};
  const json_t *first = json_array_get(run->metrics.records, 0);
  int32_t rc = BS_OK;
  if (json_integer_value(json_object_get(first, "schema")) < 2) return BS_OK;
  for (size_t i = 0; rc == BS_OK && i < 3; i++) rc = check_copy(c, fd, path, first, names[i], err);
  return rc;
}

/* The samples are not synced, and their medians are in the records: a run without them counts. */
static int32_t check_samples(check *c, int fd, const char *path, const bs_folder_run *run, bs_error *err) {
  const json_t *sums = json_object_get(run->done, "sha256");
  const char *want = json_string_value(json_object_get(sums, "samples.bin"));
  char *text = NULL, hex[65];
  size_t size = 0;
  bs_sha256 h;
  if (want == NULL) return BS_OK;
  if (bs_folder_file(fd, "samples.bin", &text, &size, NULL) == BS_OK && text != NULL) {
    bs_sha256_init(&h);
    bs_sha256_add(&h, text, size);
    bs_sha256_hex(&h, hex);
  } else {
    hex[0] = '\0';
  }
  free(text);
  if (strcmp(hex, want) == 0) return BS_OK;
  return add_row(c, path, "samples lost",
                 hex[0] == '\0' ? "samples.bin is missing; the records are whole"
                                : "samples.bin is not what DONE has the sum of; the records are whole",
                 NULL, err);
}

/* ---- torn tails ------------------------------------------------------------------------------------ */

/* Moves the bytes after the whole lines into metrics.jsonl.torn. The caller holds the lock. */
static int32_t cut_tail(int fd, const char *text, size_t good, size_t size, bs_error *err) {
  const int torn =
      openat(fd, "metrics.jsonl.torn", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  int bad = torn < 0 ? errno : bs_store_write_all(torn, text + good, size - good);
  if (bad == 0 && fsync(torn) != 0) bad = errno;
  if (torn >= 0) close(torn);
  const int metrics = bad == 0 ? openat(fd, "metrics.jsonl", O_WRONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
  if (bad == 0 && (metrics < 0 || ftruncate(metrics, (off_t)good) != 0 || fsync(metrics) != 0)) bad = errno;
  if (metrics >= 0) close(metrics);
  if (bad == 0 && fsync(fd) != 0) bad = errno;
  return bad == 0 ? BS_OK : bs_store_io_error(err, bad, "cut the torn tail of", "metrics.jsonl");
}

static int32_t found_torn(check *c, int fd, const char *path, const char *text, size_t size,
                          const bs_metrics *m, int *out_cut, bs_error *err) {
  int lock = -1;
  int32_t rc = BS_OK;
  const int mine = c->repair && bs_folder_lock(fd, &lock) != BS_LOCK_HELD;
  if (mine) rc = cut_tail(fd, text, m->good_bytes, size, err);
  if (lock >= 0) close(lock);
  *out_cut = mine && rc == BS_OK;
  c->out->torn++;
  return rc == BS_OK ? add_row(c, path, "torn", m->why, mine ? "cut; kept in metrics.jsonl.torn" : NULL, err)
                     : rc;
}

static int32_t found_damage(check *c, const char *path, const char *what, bs_error *err) {
  c->out->damaged++;
  return add_row(c, path, "damaged", what, NULL, err);
}

/* 1: the sum in DONE covers the whole lines, and only the bytes after them are extra. */
static int only_tail(const bs_folder_run *run, const char *text, const bs_metrics *m) {
  char hex[65];
  bs_sha256 h;
  const json_t *sums = json_object_get(run->done, "sha256");
  const char *want = json_string_value(json_object_get(sums, "metrics.jsonl"));
  if (m->torn_bytes == 0 || want == NULL) return 0;
  bs_sha256_init(&h);
  bs_sha256_add(&h, text, m->good_bytes);
  bs_sha256_hex(&h, hex);
  return strcmp(hex, want) == 0;
}

/* ---- the three kinds of folders -------------------------------------------------------------------- */

/* *out_cut: its torn tail was cut, and the run is to be read again. */
static int32_t check_bad_run(check *c, int fd, const char *path, const bs_folder_run *run,
                             const bs_error *why, int *out_cut, bs_error *err) {
  char *text = NULL;
  size_t size = 0;
  bs_metrics m = {0};
  int32_t rc = bs_folder_file(fd, "metrics.jsonl", &text, &size, NULL) == BS_OK && text != NULL
                   ? bs_metrics_read(text, size, &m, err)
                   : BS_OK;
  if (rc == BS_OK && text != NULL && only_tail(run, text, &m)) {
    rc = found_torn(c, fd, path, text, size, &m, out_cut, err);
    c->out->uncut += !*out_cut;
  } else if (rc == BS_OK) {
    rc = found_damage(c, path, why->message, err);
  }
  bs_metrics_free(&m);
  free(text);
  return rc;
}

/* Compares the index, a cache that lists and reports trust, with the records of a run. */
static int32_t check_index(check *c, int fd, const char *path, const bs_folder_run *run, bs_error *err) {
  json_t *kept = bs_rows_index_find(&c->index, fd, path), *rows;
  if (kept == NULL) return BS_OK;
  rows = bs_folder_rows(fd, path, run);
  const int same = rows != NULL && json_equal(kept, rows), known = rows != NULL;
  json_decref(kept);
  json_decref(rows);
  if (!known) return bs_no_memory(err, "rows");
  c->lies += (size_t)!same;
  return same ? BS_OK
              : add_row(c, path, "index differs", "index.jsonl says otherwise than the records",
                        c->repair ? "the index is removed" : NULL, err);
}

/* Lines without a right checksum are not read. A bad index is removed, and the next list makes a new one. */
static int32_t close_index(check *c, int32_t rc, bs_error *err) {
  char what[120];
  const size_t bad = c->index.bad;
  if (rc == BS_OK && bad > 0) {
    snprintf(what, sizeof what, "%zu of %zu lines have no right crc32c and are not read", bad,
             c->index.lines);
    rc = add_row(c, "index.jsonl", "index differs", what, c->repair ? "the index is removed" : NULL, err);
  }
  bs_rows_index_close(&c->index, c->root, 0);
  if (rc == BS_OK && c->repair && bad + c->lies > 0) bs_rows_index_remove(c->root);
  return rc;
}

static int32_t check_whole(check *c, int fd, const char *path, const bs_folder_run *run, bs_error *err) {
  json_t *key = json_object_get(run->done, "request_key");
  json_t *row = json_pack("{s:o, s:O?}", "run", bs_env_string(path), "request_key", key);
  c->out->whole++;
  int32_t rc = row != NULL && json_array_append_new(c->keys, row) == 0 ? BS_OK : bs_no_memory(err, "keys");
  if (rc == BS_OK) rc = check_copies(c, fd, path, run, err);
  if (rc == BS_OK) rc = check_samples(c, fd, path, run, err);
  if (rc == BS_OK) rc = check_index(c, fd, path, run, err);
  return rc;
}

static int32_t check_run(check *c, int fd, const char *path, bs_error *err) {
  bs_folder_run run;
  bs_error why = BS_ERROR_INIT;
  int cut = 0;
  int32_t rc = bs_folder_read(fd, path, &run, &why);
  if (rc != BS_NOT_FOUND) c->out->runs++;
  if (rc == BS_CORRUPT) {
    rc = check_bad_run(c, fd, path, &run, &why, &cut, err);
    bs_folder_run_free(&run);
    if (rc != BS_OK || !cut) return rc;
    rc = bs_folder_read(fd, path, &run, &why);
  }
  if (rc == BS_OK) {
    rc = check_whole(c, fd, path, &run, err);
  } else if (rc == BS_NOT_FOUND) {
    rc = BS_OK;
  } else if (err != NULL) {
    *err = why;
  }
  bs_folder_run_free(&run);
  return rc;
}

/* Checks a run without DONE: in progress, or its process was killed or interrupted. */
static int32_t check_open(check *c, int fd, const char *path, bs_error *err) {
  struct stat st;
  char *text = NULL;
  size_t size = 0;
  bs_metrics m = {0};
  int lock, cut;
  const enum bs_lock_state state = bs_folder_lock(fd, &lock);
  if (lock >= 0) close(lock);
  if (state == BS_LOCK_HELD) return add_row(c, path, "at work", "its lock is held", NULL, err);
  int32_t rc = bs_folder_file(fd, "metrics.jsonl", &text, &size, err);
  if (rc == BS_OK && text != NULL) rc = bs_metrics_read(text, size, &m, err);
  if (rc == BS_OK && m.bad_line > 0) {
    rc = found_damage(c, path, m.why, err);
  } else if (rc == BS_OK && m.torn_bytes > 0) {
    rc = found_torn(c, fd, path, text, size, &m, &cut, err);
  } else if (rc == BS_OK) {
    const int stopped = fstatat(fd, "INTERRUPTED", &st, AT_SYMLINK_NOFOLLOW) == 0;
    rc = add_row(c, path, stopped ? "interrupted" : "killed",
                 stopped ? "a signal ended it; it does not count"
                         : "its process ended without a word; it does not count",
                 NULL, err);
  }
  bs_metrics_free(&m);
  free(text);
  return rc;
}

static int32_t remove_folder(const check *c, int fd, const char *path, bs_error *err) {
  char whole[4096];
  snprintf(whole, sizeof whole, "%s/%s", c->root, path);
  bs_store_remove_files(fd);
  return rmdir(whole) == 0 ? BS_OK : bs_store_io_error(err, errno, "remove the folder", whole);
}

/* Does the process that makes the folder ".tmp.<key>.<pid>.<start time>" still run? Between the creation of
 * the folder and the lock on it, only the name shows that. */
static int is_being_made(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
  const char *numbers = strncmp(name, ".tmp.", 5) == 0 ? strchr(name + 5, '.') : NULL;
  char *end;
  if (numbers == NULL) return 0;
  const long pid = strtol(numbers + 1, &end, 10);
  const uint64_t start = *end == '.' ? strtoull(end + 1, NULL, 10) : 0;
  return pid > 0 && start > 0 && bs_env_process_start(pid) == start;
}

static int32_t check_temporary(check *c, int fd, const char *path, bs_error *err) {
  int lock;
  int32_t rc = BS_OK;
  if (is_being_made(path)) return add_row(c, path, "at work", "a run is being made", NULL, err);
  const enum bs_lock_state state = bs_folder_lock(fd, &lock);
  if (state != BS_LOCK_HELD && c->repair) rc = remove_folder(c, fd, path, err);
  if (lock >= 0) close(lock);
  if (rc != BS_OK) return rc;
  if (state == BS_LOCK_HELD) return add_row(c, path, "at work", "a run is being made", NULL, err);
  return add_row(c, path, "left over", "a run that was never begun: its process was killed",
                 c->repair ? "removed" : NULL, err);
}

static int32_t visit(void *user, enum bs_folder_kind kind, int fd, const char *path, bs_error *err) {
  check *c = user;
  if (kind == BS_FOLDER_CLOSED) {
    c->out->closed++;
    return add_row(c, path, "closed", "this user may not look into the folder: it is not checked", NULL, err);
  }
  return kind == BS_FOLDER_RUN    ? check_run(c, fd, path, err)
         : kind == BS_FOLDER_OPEN ? check_open(c, fd, path, err)
                                  : check_temporary(c, fd, path, err);
}

/* The verdict on the whole root. */
static int32_t judge(const char *root, const bs_fsck *f, bs_error *err) {
  if (f->damaged > 0) {
    bs_error_set(err, BS_CORRUPT, "BS-STO-DAMAGED", "%llu of %llu runs below %.200s are damaged",
                 (unsigned long long)f->damaged, (unsigned long long)(f->whole + f->damaged), root);
    bs_error_hint(err, "they are in no list or report; restore their folders from a copy, or delete them");
    return BS_CORRUPT;
  }
  if (f->uncut > 0) {
    bs_error_set(err, BS_CORRUPT, "BS-STO-TORN",
                 "bytes stand behind the records of %llu committed runs below %.200s",
                 (unsigned long long)f->uncut, root);
    bs_error_hint(
        err,
        "they are in no list or report; bsrun runs fsck --repair keeps those bytes beside and cuts them");
    return BS_CORRUPT;
  }
  if (f->closed == 0) return BS_OK;
  bs_error_set(err, BS_IO, "BS-STO-READ", "this user may not look into %llu folders below %.200s",
               (unsigned long long)f->closed, root);
  bs_error_hint(err, "all others are checked; let their owner run bsrun runs fsck");
  return BS_IO;
}

int32_t bs_runs_root_check(const char *root, bs_error *err) {
  struct stat st;
  if (stat(root, &st) == 0 && !S_ISDIR(st.st_mode))
    errno = ENOTDIR;
  else if (stat(root, &st) == 0)
    return BS_OK;
  const int32_t code = errno == ENOENT ? BS_INPUT : BS_IO;
  bs_error_errno(err, code, "BS-STO-READ", errno, "cannot read the results folder %.300s", root);
  bs_error_hint(err, "name a folder that --out has named; nothing was read");
  return code;
}

int32_t bs_fsck_run(const char *root, int repair, bs_fsck *out, bs_error *err) {
  check c = {.out = out, .root = root, .keys = json_array(), .repair = repair};
  *out = (bs_fsck){.rows = json_array(), .sweeps = json_array()};
  int32_t rc = out->rows == NULL || out->sweeps == NULL || c.keys == NULL ? bs_no_memory(err, "rows") : BS_OK;
  if (rc == BS_OK) rc = bs_runs_root_check(root, err);
  bs_rows_index_open(&c.index, root);
  if (rc == BS_OK) rc = bs_folders_walk(root, visit, &c, err);
  rc = close_index(&c, rc, err);
  if (rc == BS_OK) rc = bs_fsck_plans(root, c.keys, out, err);
  json_decref(c.keys);
  return rc == BS_OK ? judge(root, out, err) : rc;
}

void bs_fsck_free(bs_fsck *fsck) {
  json_decref(fsck->rows);
  json_decref(fsck->sweeps);
  *fsck = (bs_fsck){0};
}
