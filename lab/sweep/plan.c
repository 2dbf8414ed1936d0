/* SPDX-License-Identifier: MIT
 * plan.c - see plan.h. */
#include "lab/sweep/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/out_file.h"
#include "core/base/text.h"
#include "lab/error.h"
#include "lab/store/plan_text.h"
#include "lab/store/sha256.h"
#include "lab/store/store.h"

enum { PLAN_BYTES = BS_PLAN_BYTES };

/* ---- writing --------------------------------------------------------------------------------- */

static int32_t add_line(bs_text *text, const json_t *object, bs_error *err) {
  char *line = json_dumps(object, JSON_COMPACT);
  if (line == NULL) return bs_no_memory(err, "a plan");
  bs_text_append(text, line, strlen(line));
  bs_text_append(text, "\n", 1);
  free(line);
  return text->failed ? bs_no_memory(err, "a plan") : BS_OK;
}

static void sum_of(const char *data, size_t size, char out_hex[65]) {
  bs_sha256 h;
  bs_sha256_init(&h);
  bs_sha256_add(&h, data, size);
  bs_sha256_hex(&h, out_hex);
}

static int32_t make_text(const json_t *header, const json_t *points, bs_text *out, bs_error *err) {
  char hex[65];
  size_t i;
  const json_t *point;
  int32_t rc = add_line(out, header, err);
  json_array_foreach(points, i, point) {
    if (rc == BS_OK) rc = add_line(out, point, err);
  }
  if (rc != BS_OK) return rc;
  sum_of(out->data, out->size, hex);
  json_t *last = json_pack("{s:I, s:s}", "n", (json_int_t)json_array_size(points), "sha256", hex);
  rc = add_line(out, last, err);
  json_decref(last);
  if (rc == BS_OK && out->size > PLAN_BYTES)
    return bs_error_set(err, BS_USAGE, "BS-SWEEP-POINTS", "the plan has %zu MiB, the most is %d",
                        out->size >> 20, PLAN_BYTES >> 20);
  return rc;
}

int32_t bs_plan_write(const bs_sweep_folder *folder, const json_t *header, const json_t *points,
                      bs_error *err) {
  bs_text text = {0};
  int32_t rc = make_text(header, points, &text, err);
  if (rc != BS_OK) {
    bs_text_free(&text);
    return rc;
  }
  const int fd =
      openat(folder->fd, "plan.jsonl.tmp", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  int failed = fd < 0 ? errno : bs_store_write_all(fd, text.data, text.size);
  if (failed == 0 && fsync(fd) != 0) failed = errno;
  if (fd >= 0 && close(fd) != 0 && failed == 0) failed = errno;
  if (failed == 0) failed = bs_out_rename(folder->fd, "plan.jsonl.tmp", "plan.jsonl");
  if (failed == 0 && fsync(folder->fd) != 0) {
    failed = errno;
    unlinkat(folder->fd, "plan.jsonl", 0); /* the caller gets an error, so no plan may remain */
  }
  bs_text_free(&text);
  if (failed == 0) return BS_OK;
  unlinkat(folder->fd, "plan.jsonl.tmp", 0);
  return bs_error_errno(err, BS_IO, "BS-SWEEP-IO", failed, "cannot write %.200s/plan.jsonl", folder->path);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int32_t bad_plan(const bs_sweep_folder *folder, int32_t code, const char *what, bs_error *err) {
  bs_error_set(err, code, "BS-SWEEP-PLAN", "%.200s/plan.jsonl: %s", folder->path, what);
  bs_error_hint(err, "its runs are whole without it: begin another sweep");
  return code;
}

/* Up to `size`, less at the end of the file: 0, or the errno. */
static int read_bytes(int fd, char *out, size_t size, size_t *out_got) {
  while (*out_got < size) {
    const ssize_t n = read(fd, out + *out_got, size - *out_got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) break;
    *out_got += (size_t)n;
  }
  return 0;
}

static int32_t read_all(const bs_sweep_folder *folder, char **out, size_t *out_size, bs_error *err) {
  struct stat st;
  const int fd = openat(folder->fd, "plan.jsonl", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT)
    return bs_error_set(err, BS_INPUT, "BS-SWEEP-NONE", "%.200s has no plan: no point of it has run",
                        folder->path);
  if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    const int saved = fd < 0 ? errno : EINVAL;
    if (fd >= 0) close(fd);
    return bs_error_errno(err, BS_IO, "BS-SWEEP-IO", saved, "cannot read %.200s/plan.jsonl", folder->path);
  }
  if (st.st_size > PLAN_BYTES) {
    close(fd);
    return bad_plan(folder, BS_CORRUPT, "it has more than 64 MiB", err);
  }
  const size_t size = (size_t)st.st_size;
  char *text = malloc(size + 1);
  size_t got = 0;
  const int failed = text == NULL ? 0 : read_bytes(fd, text, size, &got);
  close(fd);
  if (failed != 0) {
    free(text);
    return bs_error_errno(err, BS_IO, "BS-SWEEP-IO", failed, "cannot read %.200s/plan.jsonl", folder->path);
  }
  if (text == NULL) return bs_no_memory(err, "a plan");
  text[got] = '\0';
  *out = text;
  *out_size = got;
  return BS_OK;
}

int32_t bs_plan_read(const bs_sweep_folder *folder, json_t **out_header, json_t **out_points, bs_error *err) {
  char *text = NULL;
  size_t size = 0;
  const char *why = NULL;
  *out_header = *out_points = NULL;
  int32_t rc = read_all(folder, &text, &size, err);
  if (rc == BS_OK) rc = bs_plan_text_read(text, size, out_header, out_points, &why, err);
  free(text);
  return why != NULL ? bad_plan(folder, rc, why, err) : rc;
}
