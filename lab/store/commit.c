/* SPDX-License-Identifier: MIT
 * commit.c - records, samples and the end of an open run: committed, abandoned or interrupted. A committed
 * run costs four syncs, all of them here: metrics.jsonl, DONE.tmp, the run's folder, and the folder above it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/out_file.h"
#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/env.h"
#include "lab/store/internal.h"
#include "lab/store/metrics.h"

#define MAX_LINE (16u << 20) /* a record with every sample of the largest phase 1 */

const char *bs_run_get_id(const bs_run *run) {
  return run->id;
}
const char *bs_run_get_path(const bs_run *run) {
  return run->path;
}
int bs_store_keeps(const char *out_dir) {
  return strcmp(out_dir, "off") != 0;
}
int bs_run_is_kept(const bs_run *run) {
  return run->scratch == NULL;
}
int bs_run_get_fd(const bs_run *run) {
  return run->fd;
}

void bs_store_hold_signals(sigset_t *old) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, old);
}

/* The line with its number, and for a run's first line the store's own fields. */
static json_t *numbered(bs_run *run, const json_t *record) {
  json_t *line = json_copy((json_t *)(uintptr_t)record);
  int bad = line == NULL;
  if (!bad && run->records == 0) bad = json_object_update(line, run->first) != 0;
  bad = bad || json_object_set_new(line, "seq", json_integer((json_int_t)run->records)) != 0;
  if (!bad) return line;
  json_decref(line);
  return NULL;
}

/* Makes the bytes of a record's line: its checksum covers the line before the checksum's own field. */
static int32_t frame(bs_run *run, const json_t *record, bs_text *out, bs_error *err) {
  json_t *line = numbered(run, record);
  if (line == NULL) return bs_no_memory(err, "a run's files");
  char *body = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(17));
  json_decref(line);
  if (body == NULL)
    return bs_error_set(err, BS_INTERNAL, "BS-STO-JSON", "the record cannot be written as JSON");
  bs_line_print(body, out);
  free(body);
  if (out->failed) return bs_no_memory(err, "a run's files");
  return out->size <= MAX_LINE
             ? BS_OK
             : bs_error_set(err, BS_INTERNAL, "BS-STO-LINE", "a record of %zu bytes is too long", out->size);
}

static int keep_keys(bs_run *run, const json_t *record) {
  static const char *const names[] = {"request_key", "result_key"};
  int bad = 0;
  if (run->keys != NULL) return 0;
  run->keys = json_object();
  for (size_t i = 0; i < 2; i++) {
    json_t *key = json_object_get(record, names[i]);
    if (key == NULL) key = json_object_get(run->first, names[i]);
    bad |= json_object_set(run->keys, names[i], key != NULL ? key : json_null());
  }
  return bad;
}

int32_t bs_store_append(bs_run *run, const json_t *record, bs_error *err) {
  bs_text text = {0};
  int32_t rc = frame(run, record, &text, err);
  if (rc == BS_OK && keep_keys(run, record)) rc = bs_no_memory(err, "a run's files");
  if (rc == BS_OK) {
    int bad = bs_store_write_all(run->metrics_fd, text.data, text.size);
    if (bad != 0) {
      if (ftruncate(run->metrics_fd, run->metrics_size) != 0) bad = errno;
      rc = bs_store_io_error(err, bad, "append to the metrics of", run->path);
    } else {
      bs_sha256_add(&run->metrics_sum, text.data, text.size);
      run->metrics_size += (off_t)text.size;
      run->records++;
    }
  }
  bs_text_free(&text);
  return rc;
}

int32_t bs_store_samples(bs_run *run, const void *data, size_t size, bs_error *err) {
  bs_sha256 h;
  const int32_t rc = bs_store_write_file(run->fd, "samples.bin", data, size, 0, err);
  if (rc != BS_OK) return rc;
  bs_sha256_init(&h);
  bs_sha256_add(&h, data, size);
  bs_sha256_hex(&h, run->samples_sum);
  return BS_OK;
}

/* Syncs the metrics to the disk, and checks that they hold only this process's lines. */
static int32_t sync_metrics(bs_run *run, bs_error *err) {
  struct stat st;
  char shown[400];
  snprintf(shown, sizeof shown, "%.300s/metrics.jsonl", run->path);
  if (fdatasync(run->metrics_fd) != 0 || fstatat(run->fd, "metrics.jsonl", &st, AT_SYMLINK_NOFOLLOW) != 0)
    return bs_store_io_error(err, errno, "finish", shown);
  if (st.st_size == run->metrics_size) return BS_OK;
  return bs_error_set(err, BS_IO, "BS-STO-IO", "%s has %lld bytes and not the %lld that were written", shown,
                      (long long)st.st_size, (long long)run->metrics_size);
}

/* The text of DONE; NULL: out of memory. */
static char *done_text(bs_run *run, const char *status) {
  char hex[65];
  bs_sha256 sum = run->metrics_sum;
  bs_sha256_hex(&sum, hex);
  json_t *done =
      json_pack("{s:i, s:s, s:I, s:{s:s}, s:o}", "schema", BS_RECORD_SCHEMA, "status", status, "records",
                (json_int_t)run->records, "sha256", "metrics.jsonl", hex, "after", bs_env_after(run->steal));
  int bad = done == NULL || (run->keys != NULL && json_object_update(done, run->keys) != 0);
  if (!bad && run->samples_sum[0] != '\0')
    bad = json_object_set_new(json_object_get(done, "sha256"), "samples.bin", json_string(run->samples_sum));
  char *text = bad ? NULL : json_dumps(done, JSON_INDENT(2) | JSON_SORT_KEYS);
  json_decref(done);
  return text;
}

static int32_t write_done(bs_run *run, const char *status, bs_error *err) {
  int32_t rc = sync_metrics(run, err);
  /* The last steps of the ranks are of no interest after a good end. */
  if (strcmp(status, "failed") != 0) unlinkat(run->fd, "flight", 0);
  char *text = rc == BS_OK ? done_text(run, status) : NULL;
  if (rc == BS_OK && text == NULL) rc = bs_no_memory(err, "a run's files");
  if (rc == BS_OK) rc = bs_store_write_file(run->fd, "DONE.tmp", text, strlen(text), 1, err);
  const int why = rc == BS_OK ? bs_out_rename(run->fd, "DONE.tmp", "DONE") : 0;
  if (why != 0) rc = bs_store_io_error(err, why, "finish", run->path);
  if (rc == BS_OK && (fsync(run->fd) != 0 || fsync(run->parent_fd) != 0))
    rc = bs_store_io_error(err, errno, "sync", run->path);
  if (rc != BS_OK) bs_error_where(err, "%.300s", run->path);
  free(text);
  return rc;
}

static void remove_run(bs_run *run) {
  bs_store_remove_files(run->fd);
  unlinkat(run->parent_fd, run->id, AT_REMOVEDIR);
}

int32_t bs_store_commit(bs_run *run, const char *status, bs_error *err) {
  sigset_t old;
  bs_store_hold_signals(&old);
  const int32_t rc = run->scratch == NULL ? write_done(run, status, err) : BS_OK;
  if (rc != BS_OK || run->scratch != NULL) remove_run(run);
  bs_store_close(run);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return rc;
}

void bs_store_interrupt(bs_run *run, int signal_number) {
  if (run->scratch != NULL) {
    bs_store_abandon(run);
    return;
  }
  bs_store_mark_interrupted(run->fd, signal_number);
  bs_store_close(run);
}

void bs_store_abandon(bs_run *run) {
  sigset_t old;
  bs_store_hold_signals(&old);
  remove_run(run);
  bs_store_close(run);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}
