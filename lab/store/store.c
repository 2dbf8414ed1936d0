/* SPDX-License-Identifier: MIT
 * store.c - making run folders in the commit order of docs/runs.md. Below out_dir every folder is opened with
 * O_NOFOLLOW, so a planted link leads nowhere. */
#include "lab/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/world/flight.h"
#include "lab/error.h"
#include "lab/store/env.h"
#include "lab/store/internal.h"
#include "lab/store/record.h"

#define MAX_ATTEMPTS 1000

int32_t bs_store_check_name(const char *option, const char *name, bs_error *err) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  const size_t good = strspn(name, allowed), length = strlen(name);
  if (length == 0) {
    bs_error_set(err, BS_USAGE, "BS-USE-NAME", "%s: the name is empty", option);
  } else if (good < length) {
    const unsigned char c = (unsigned char)name[good];
    if (c > 0x20 && c < 0x7f) {
      bs_error_set(err, BS_USAGE, "BS-USE-NAME", "%s: '%c' not allowed", option, c);
    } else {
      bs_error_set(err, BS_USAGE, "BS-USE-NAME", "%s: byte 0x%02x not allowed", option, c);
    }
  } else if (length > 64) {
    bs_error_set(err, BS_USAGE, "BS-USE-NAME", "%s: the name is %zu bytes long, 64 are allowed", option,
                 length);
  } else if (name[0] == '.') {
    /* Folders with a dot are those of runs that are being made: no reader looks into them. */
    bs_error_set(err, BS_USAGE, "BS-USE-NAME", "%s: '%s' begins with a dot", option, name);
  } else if (name[0] == '-') {
    bs_error_set(err, BS_USAGE, "BS-USE-NAME", "%s: '%s' begins with a dash, as options do", option, name);
  } else {
    return BS_OK;
  }
  bs_error_hint(err, "1 to 64 of A-Z a-z 0-9 . _ -, the first no dot and no dash");
  return BS_USAGE;
}

void bs_store_stamp(char out_stamp[16]) {
  const time_t now = time(NULL);
  struct tm tm;
  gmtime_r(&now, &tm);
  strftime(out_stamp, 16, "%Y%m%d_%H%M%S", &tm);
}

int bs_store_write_all(int fd, const char *data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return ENOSPC;
    data += n;
    size -= (size_t)n;
  }
  return 0;
}

void bs_store_mark_interrupted(int run_fd, int signal_number) {
  const int fd = openat(run_fd, "INTERRUPTED", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return;
  char text[16] = "signal 00\n";
  text[7] = (char)('0' + signal_number / 10 % 10);
  text[8] = (char)('0' + signal_number % 10);
  if (bs_store_write_all(fd, text, 10) == 0) fsync(fd);
  close(fd);
  fsync(run_fd);
}

int32_t bs_store_io_error(bs_error *err, int saved_errno, const char *what, const char *path) {
  bs_error_errno(err, BS_IO, "BS-STO-IO", saved_errno, "cannot %s %.300s", what, path);
  if (saved_errno == ENOSPC || saved_errno == EDQUOT || saved_errno == EFBIG) {
    bs_error_hint(err, "free some space, or choose another folder with --out DIR");
  } else if (saved_errno == EACCES || saved_errno == EPERM || saved_errno == EROFS ||
             saved_errno == ENOTDIR || saved_errno == ENOENT) {
    bs_error_hint(err, "choose a folder you may write with --out DIR");
  } else if (saved_errno == ELOOP) {
    bs_error_hint(err, "links below the results folder are not followed");
  }
  return BS_IO;
}

/* Opens out_dir itself, and creates it with its parents if missing; it may be a link, folders below it may
 * not. */
int32_t bs_store_open_root(const char *out_dir, int *out_fd, bs_error *err) {
  char path[4096];
  const size_t length = strlen(out_dir);
  if (length == 0 || length >= sizeof path) {
    return bs_error_set(err, BS_CONFIG, "BS-STO-DIR", "logging.out_dir is empty or too long");
  }
  int denied = 0; /* of a folder that may be there all the same */
  size_t denied_at = 0;
  for (size_t i = 1; i <= length; i++) {
    if (out_dir[i] != '/' && out_dir[i] != '\0') continue;
    memcpy(path, out_dir, i);
    path[i] = '\0';
    if (mkdir(path, 0755) == 0 || errno == EEXIST) continue;
    if (errno != EROFS && errno != EACCES && denied == 0)
      return bs_store_io_error(err, errno, "make the folder", path);
    if (denied == 0) denied = errno, denied_at = i;
  }
  *out_fd = open(out_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (*out_fd >= 0) return BS_OK;
  if (errno != ENOENT || denied == 0) return bs_store_io_error(err, errno, "open the folder", out_dir);
  path[denied_at] = '\0';
  return bs_store_io_error(err, denied, "make the folder", path);
}

/* Replaces *fd by its folder `name`, which is created (and synced) if missing. */
static int32_t descend(int *fd, const char *name, const char *shown, bs_error *err) {
  const int made = mkdirat(*fd, name, 0755) == 0;
  if (!made && errno != EEXIST) return bs_store_io_error(err, errno, "make a folder below", shown);
  if (made && fsync(*fd) != 0) return bs_store_io_error(err, errno, "sync the folder", shown);
  const int next = openat(*fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (next < 0) return bs_store_io_error(err, errno == ENOTDIR ? ELOOP : errno, "open a folder below", shown);
  close(*fd);
  *fd = next;
  return BS_OK;
}

int32_t bs_store_write_file(int dir, const char *name, const char *data, size_t size, int synced,
                            bs_error *err) {
  const int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return bs_store_io_error(err, errno, "create", name);
  int bad = bs_store_write_all(fd, data, size);
  if (bad == 0 && synced && fsync(fd) != 0) bad = errno;
  if (close(fd) != 0 && bad == 0) bad = errno;
  return bad == 0 ? BS_OK : bs_store_io_error(err, bad, "write", name);
}

void bs_store_remove_files(int dir) {
  static const char *const files[] = {"DONE",          "config.yaml", "env.json",    "seed.txt",
                                      "metrics.jsonl", "log.txt",     "samples.bin", "flight",
                                      "DONE.tmp",      "INTERRUPTED", "lock"};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) unlinkat(dir, files[i], 0);
}

void bs_store_close(bs_run *run) {
  if (run->recorded) bs_flight_close();
  if (run->metrics_fd >= 0) close(run->metrics_fd);
  if (run->fd >= 0) close(run->fd);
  if (run->parent_fd >= 0) close(run->parent_fd);
  if (run->lock_fd >= 0) close(run->lock_fd); /* drops the lock last */
  json_decref(run->first);
  json_decref(run->keys);
  if (run->scratch != NULL) rmdir(run->scratch);
  free(run->scratch);
  free(run->path);
  free(run);
}

/* Fields on the run that the first record gets, so that metrics.jsonl alone is enough. */
static int32_t set_first(const bs_run_request *q, bs_run *run, const char *config, bs_error *err) {
  json_t *env = json_loads(q->env, JSON_REJECT_DUPLICATES, NULL), *text = json_string(config);
  json_decref(run->first);
  run->first = json_pack("{s:i, s:o, s:o, s:o, s:s}", "schema", BS_RECORD_SCHEMA, "config",
                         text != NULL ? text : json_null(), "env", env != NULL ? env : json_null(), "argv",
                         q->argv != NULL ? json_incref(q->argv) : bs_env_argv(), "result_key", q->key);
  return run->first != NULL ? BS_OK : bs_no_memory(err, "a run's files");
}

/* Writes config.yaml for the id that is tried next. */
static int32_t write_config(const bs_run_request *q, bs_run *run, bs_error *err) {
  bs_text text = {0};
  int32_t rc = bs_config_set_text(q->config, "run_id", run->id, err);
  if (rc != BS_OK) return rc;
  bs_config_print(q->config, &text);
  unlinkat(run->fd, "config.yaml", 0);
  rc = text.failed ? bs_no_memory(err, "a run's files")
                   : bs_store_write_file(run->fd, "config.yaml", text.data, text.size, 0, err);
  if (rc == BS_OK) rc = set_first(q, run, text.data, err);
  bs_text_free(&text);
  return rc;
}

static int32_t open_files(const bs_run_request *q, bs_run *run, bs_error *err) {
  const int flags = O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  run->lock_fd = openat(run->fd, "lock", O_RDWR | flags, 0644);
  if (run->lock_fd < 0) return bs_store_io_error(err, errno, "create a lock below", q->out_dir);
  /* A check of the folder (fsck) may hold the lock for a moment. */
  while (flock(run->lock_fd, LOCK_EX) != 0)
    if (errno != EINTR) return bs_store_io_error(err, errno, "lock a new run below", q->out_dir);
  run->metrics_fd = openat(run->fd, "metrics.jsonl", O_WRONLY | O_APPEND | flags, 0644);
  return run->metrics_fd < 0 ? bs_store_io_error(err, errno, "create a run below", q->out_dir) : BS_OK;
}

/* Takes the lock first: fsck assumes that the writer of a temporary folder with a free lock has ended. */
static int32_t fill(const bs_run_request *q, bs_run *run, bs_error *err) {
  char seed[32];
  const int n = snprintf(seed, sizeof seed, "%llu\n", (unsigned long long)q->seed);
  int32_t rc = open_files(q, run, err);
  if (rc == BS_OK) rc = bs_store_write_file(run->fd, "env.json", q->env, strlen(q->env), 0, err);
  if (rc == BS_OK) rc = bs_store_write_file(run->fd, "seed.txt", seed, (size_t)n, 0, err);
  if (rc == BS_OK) rc = bs_store_write_file(run->fd, "log.txt", "", 0, 0, err);
  return rc;
}

/* Rename the temporary folder to a free id: never over another run. */
static int32_t publish(const bs_run_request *q, bs_run *run, const char *temporary, bs_error *err) {
  char base[80], stamp[16];
  bs_store_stamp(stamp);
  if (q->run_id != NULL) {
    snprintf(base, sizeof base, "%s", q->run_id);
  } else {
    snprintf(base, sizeof base, "%s_%.12s", stamp, q->key);
  }
  for (int attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    if (attempt == 1) {
      snprintf(run->id, sizeof run->id, "%s", base);
    } else {
      snprintf(run->id, sizeof run->id, "%s-%d", base, attempt);
    }
    struct stat st;
    if (fstatat(run->parent_fd, run->id, &st, AT_SYMLINK_NOFOLLOW) == 0) continue;
    int32_t rc = write_config(q, run, err);
    if (rc != BS_OK) return rc;
    if (renameat2(run->parent_fd, temporary, run->parent_fd, run->id, RENAME_NOREPLACE) == 0) return BS_OK;
    if (errno != EEXIST) return bs_store_io_error(err, errno, "name the folder", run->id);
  }
  bs_error_set(err, BS_BUSY, "BS-STO-CLASH", "%d runs are named %s already", MAX_ATTEMPTS, base);
  bs_error_hint(err, "choose another --run-id");
  return BS_BUSY;
}

static int32_t set_path(const bs_run_request *q, bs_run *run, bs_error *err) {
  bs_text text = {0};
  size_t root = strlen(q->out_dir);
  while (root > 1 && q->out_dir[root - 1] == '/') root--;
  if (run->scratch != NULL)
    bs_text_printf(&text, "%s/%s", run->scratch, run->id);
  else
    bs_text_printf(&text, "%.*s/%s%s%s/%s/%s", (int)root, q->out_dir, q->group == NULL ? "" : q->group,
                   q->group == NULL ? "" : "/", q->phase, q->method, run->id);
  if (text.failed) {
    bs_text_free(&text);
    return bs_no_memory(err, "a run's files");
  }
  run->path = text.data;
  return BS_OK;
}

/* A run that is not kept has a folder while it is open: the flight recorder and log.txt are in it. */
static int32_t open_scratch(bs_run *run, bs_error *err) {
  const char *tmp = getenv("TMPDIR");
  bs_text text = {0};
  bs_text_printf(&text, "%s/bsrun_off_XXXXXX", tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
  if (text.failed) return bs_no_memory(err, "a run's files");
  if (mkdtemp(text.data) == NULL) {
    const int32_t rc = bs_store_io_error(err, errno, "make the folder", text.data);
    bs_text_free(&text);
    return rc;
  }
  run->scratch = text.data;
  run->parent_fd = open(run->scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return run->parent_fd < 0 ? bs_store_io_error(err, errno, "open the folder", run->scratch) : BS_OK;
}

static int32_t open_parents(const bs_run_request *q, bs_run *run, bs_error *err) {
  if (!bs_store_keeps(q->out_dir)) return open_scratch(run, err);
  int32_t rc = bs_store_open_root(q->out_dir, &run->parent_fd, err);
  if (rc == BS_OK && q->group != NULL) rc = descend(&run->parent_fd, q->group, q->out_dir, err);
  if (rc == BS_OK) rc = descend(&run->parent_fd, q->phase, q->out_dir, err);
  return rc == BS_OK ? descend(&run->parent_fd, q->method, q->out_dir, err) : rc;
}

static int32_t begin(const bs_run_request *q, bs_run *run, bs_error *err) {
  char temporary[80];
  int32_t rc = open_parents(q, run, err);
  if (rc != BS_OK) return rc;
  snprintf(temporary, sizeof temporary, ".tmp.%.12s.%ld.%llu", q->key, (long)getpid(),
           (unsigned long long)bs_env_process_start((long)getpid()));
  if (mkdirat(run->parent_fd, temporary, 0755) != 0)
    return bs_store_io_error(err, errno, "make a run folder in", q->out_dir);
  run->fd = openat(run->parent_fd, temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  rc = run->fd < 0 ? bs_store_io_error(err, errno, "open a run folder in", q->out_dir) : fill(q, run, err);
  if (rc == BS_OK) rc = publish(q, run, temporary, err);
  const char *name = rc == BS_OK ? run->id : temporary;
  if (rc == BS_OK) rc = set_path(q, run, err);
  if (rc != BS_OK) {
    if (run->fd >= 0) bs_store_remove_files(run->fd);
    unlinkat(run->parent_fd, name, AT_REMOVEDIR);
  }
  return rc;
}

int32_t bs_store_begin(const bs_run_request *request, bs_run **out_run, bs_error *err) {
  sigset_t old;
  *out_run = NULL;
  int32_t rc = bs_store_check_name("the phase", request->phase, err);
  if (rc == BS_OK) rc = bs_store_check_name("--method", request->method, err);
  if (rc == BS_OK && request->group != NULL &&
      bs_store_check_name("logging.run_group", request->group, err) != BS_OK) {
    rc = BS_CONFIG; /* a key, not an option */
    if (err != NULL) err->code = rc;
  }
  if (rc == BS_OK && request->run_id != NULL) rc = bs_store_check_name("--run-id", request->run_id, err);
  if (rc != BS_OK) return rc;
  bs_run *run = calloc(1, sizeof *run);
  if (run == NULL) return bs_no_memory(err, "a run's files");
  run->parent_fd = run->fd = run->metrics_fd = run->lock_fd = -1;
  run->steal = bs_env_steal();
  bs_sha256_init(&run->metrics_sum);
  bs_store_hold_signals(&old);
  rc = begin(request, run, err);
  if (rc == BS_OK) {
    run->recorded = bs_flight_open(run->fd, NULL) == BS_OK;
    *out_run = run;
  } else {
    bs_store_close(run);
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return rc;
}
