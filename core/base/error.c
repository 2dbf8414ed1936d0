/* SPDX-License-Identifier: MIT
 * error.c - filling and printing bs_error, and the table of status codes (abi.h's X-macro).
 * Called by every part of the core, the lab and bsrun. Touches only the caller's record: thread-safe.
 * Arguments may point into the record that is being filled (wrapping an error is common). */
#define BS_ERROR_DEFINITIONS 1
#include "core/base/error.h"

#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/text.h"

#define ROW(name, value, exit_code, text) {value, exit_code, #name, text},
static const struct {
  int32_t code;
  int32_t exit_code;
  const char *name;
  const char *text;
} status_rows[] = {BS_STATUS_MAP(ROW)};
#undef ROW

enum { STATUS_COUNT = sizeof status_rows / sizeof status_rows[0] };

/* A code of a newer plugin that we do not know is treated as INTERNAL (abi.h). */
static int status_index(int32_t code) {
  for (int i = 0; i < STATUS_COUNT; i++) {
    if (status_rows[i].code == code) return i;
  }
  for (int i = 0; i < STATUS_COUNT; i++) {
    if (status_rows[i].code == BS_INTERNAL) return i;
  }
  return 0;
}

const char *bs_status_name(int32_t code) {
  return status_rows[status_index(code)].name;
}

const char *bs_status_text(int32_t code) {
  return status_rows[status_index(code)].text;
}

int32_t bs_status_exit_code(int32_t code) {
  return status_rows[status_index(code)].exit_code;
}

static void copy_text(char *dst, size_t size, const char *src) {
  size_t n = strnlen(src, size - 1);
  memcpy(dst, src, n);
  dst[n] = '\0';
}

void bs_error_clear(bs_error *err) {
  if (err == NULL) return;
  memset(err, 0, sizeof *err);
  err->struct_size = (uint32_t)sizeof *err;
  err->rank = -1;
}

static void fill(bs_error *err, int32_t code, const char *id, const char *message) {
  char id_copy[sizeof err->id];
  copy_text(id_copy, sizeof id_copy, id);
  bs_error_clear(err);
  err->code = code;
  copy_text(err->id, sizeof err->id, id_copy);
  copy_text(err->message, sizeof err->message, message);
}

int32_t bs_error_set(bs_error *err, int32_t code, const char *id, const char *fmt, ...) {
  if (err == NULL) return code;
  char message[sizeof err->message];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  fill(err, code, id, message);
  return code;
}

int32_t bs_error_errno(bs_error *err, int32_t code, const char *id, int saved_errno, const char *fmt, ...) {
  if (err == NULL) return code;
  char message[sizeof err->message], reason_space[128];
  const char *reason = strerror_r(saved_errno, reason_space, sizeof reason_space);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  fill(err, code, id, message);
  err->native_code = saved_errno;
  copy_text(err->domain, sizeof err->domain, "errno");
  size_t used = strlen(err->message);
  snprintf(err->message + used, sizeof err->message - used, ": %s (errno %d)", reason, saved_errno);
  return code;
}

void bs_error_where(bs_error *err, const char *fmt, ...) {
  if (err == NULL) return;
  char where[sizeof err->where];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(where, sizeof where, fmt, ap);
  va_end(ap);
  copy_text(err->where, sizeof err->where, where);
}

/* 1: the message begins with the place. */
static int is_named(const bs_error *err) {
  const size_t n = strnlen(err->where, sizeof err->where);
  return n > 0 && strncmp(err->message, err->where, n) == 0 &&
         (err->message[n] == ':' || n == sizeof err->where - 1);
}

void bs_error_file(bs_error *err, const char *path) {
  if (err == NULL || is_named(err)) return;
  char place[2 * sizeof err->where], message[sizeof err->message];
  const size_t n = strnlen(err->where, sizeof err->where);
  copy_text(message, sizeof message, err->message);
  if (strncmp(path, err->where, n) == 0) /* `where` is empty, or as much of the path as fits */
    copy_text(place, sizeof place, path);
  else if (strncmp(path, err->where, strlen(path)) == 0) /* a line of it, or a file in the folder */
    copy_text(place, sizeof place, err->where);
  else
    snprintf(place, sizeof place, "%.150s: %s", path, err->where);
  copy_text(err->where, sizeof err->where, place);
  snprintf(err->message, sizeof err->message, "%s: ", place);
  const size_t used = strlen(err->message);
  copy_text(err->message + used, sizeof err->message - used, message);
}

void bs_error_hint(bs_error *err, const char *fmt, ...) {
  if (err == NULL) return;
  char hint[sizeof err->hint];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(hint, sizeof hint, fmt, ap);
  va_end(ap);
  copy_text(err->hint, sizeof err->hint, hint);
}

/* One line, whatever a hostile file or plugin put into the strings: control bytes become '?', and a
 * UTF-8 sequence cut by the record's size loses its torn end. */
typedef struct line_out {
  char *text;
  size_t size, used;
} line_out;

static void put(line_out *out, const char *src, size_t max) {
  size_t start = out->used;
  for (size_t i = 0; i < max && src[i] != '\0'; i++) {
    unsigned char c = (unsigned char)src[i];
    if (out->used + 1 >= out->size) break;
    out->text[out->used++] = (c < 0x20 || c == 0x7f) ? (c == '\n' || c == '\t' ? ' ' : '?') : (char)c;
  }
  size_t back = 0; /* continuation bytes at the end, then what their lead byte asks for */
  while (back < 3 && out->used - back > start &&
         ((unsigned char)out->text[out->used - back - 1] & 0xc0) == 0x80)
    back++;
  if (out->used - back > start) {
    unsigned char lead = (unsigned char)out->text[out->used - back - 1];
    size_t want = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0xc0 ? 1 : 0;
    if (want > back) out->used -= back + 1;
  }
  out->text[out->used] = '\0';
}

void bs_error_format(const bs_error *err, const char *program, char *out_text, size_t size) {
  if (size == 0) return;
  line_out out = {out_text, size, 0};
  out_text[0] = '\0';
  if (err == NULL) return;
  if (program != NULL && program[0] != '\0') {
    put(&out, program, SIZE_MAX);
    put(&out, ": ", 2);
  }
  put(&out, "error[", 6);
  /* Never "error[]": a plugin that gave no id still gets a greppable one, its status. */
  if (err->id[0] != '\0') {
    put(&out, err->id, sizeof err->id);
  } else {
    put(&out, "BS-", 3);
    put(&out, bs_status_name(err->code), SIZE_MAX);
  }
  put(&out, "] ", 2);
  if (err->where[0] != '\0' && !is_named(err)) {
    put(&out, err->where, sizeof err->where);
    put(&out, ": ", 2);
  }
  if (err->message[0] != '\0') {
    char message[sizeof err->message + 1];
    snprintf(message, sizeof message, "%.*s", (int)sizeof message - 1, err->message);
    bs_dtype_name_codes(message);
    put(&out, message, sizeof message);
  } else {
    put(&out, bs_status_text(err->code), SIZE_MAX);
  }
  if (err->rank >= 0) {
    char rank[32];
    snprintf(rank, sizeof rank, "; rank %d", (int)err->rank);
    put(&out, rank, sizeof rank);
  }
  if (err->hint[0] != '\0') {
    put(&out, "; hint: ", 8);
    put(&out, err->hint, sizeof err->hint);
  }
}
