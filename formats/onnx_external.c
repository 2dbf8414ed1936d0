/* SPDX-License-Identifier: MIT
 * onnx_external.c - files of external data. Each is opened beneath the model's folder alone: the location is
 * walked name by name from an open folder, no name may be "..", and no symbolic link is followed, so that the
 * kernel and no comparison of texts keeps it inside. A file with a second hard link is refused, as ONNX's own
 * checker does: the other name may lie anywhere. Called by onnx_tensor.c. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "formats/onnx_parse.h"

enum { MAX_LOCATION = 4095 };

typedef struct entries {
  const bs_onnx_tensor *tensor;
  bs_span key, value, location, length_text;
  uint64_t offset, length;
  uint32_t has_length;
} entries;

static int32_t bad(const entries *e, const char *what, bs_span seen, bs_error *err) {
  return bs_error_set(err, BS_INPUT, "BS-ONNX-EXT",
                      "at byte %" PRIu64 ": external data of tensor '%.*s': %s '%.*s'", e->tensor->offset,
                      BS_SPAN_PRINT(e->tensor->name), what, BS_SPAN_PRINT(seen));
}

/* A decimal number without sign, below 2^63. */
static int32_t read_number(const entries *e, bs_span text, uint64_t *out, bs_error *err) {
  uint64_t value = 0;
  if (text.size == 0 || text.size > 19) return bad(e, "no number of bytes:", text, err);
  for (uint64_t i = 0; i < text.size; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return bad(e, "no number of bytes:", text, err);
    value = value * 10 + (uint64_t)(text.data[i] - '0');
  }
  if (value > INT64_MAX) return bad(e, "no number of bytes:", text, err);
  *out = value;
  return BS_OK;
}

static int32_t pair_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  entries *e = record;
  (void)r;
  if (f->number == 1) return bs_onnx_name(f, &e->key, err);
  if (f->number == 2) return bs_onnx_name(f, &e->value, err);
  return BS_OK;
}

static int32_t entry_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  entries *e = record;
  if (f->number != 13) return BS_OK;
  int32_t rc = bs_pb_want(f, BS_PB_BYTES, err);
  e->key = e->value = (bs_span){0};
  if (rc == BS_OK) rc = bs_onnx_fields(r, f->body, pair_field, e, err);
  if (rc != BS_OK) return rc;
  if (bs_span_is(e->key, "location")) {
    e->location = e->value;
  } else if (bs_span_is(e->key, "offset")) {
    return read_number(e, e->value, &e->offset, err);
  } else if (bs_span_is(e->key, "length")) {
    e->has_length = 1;
    return read_number(e, e->value, &e->length, err);
  } else if (!bs_span_is(e->key, "checksum")) {
    bad(e, "the unknown key", e->key, err);
    bs_error_hint(err, "keys of the format: location offset length checksum");
    return BS_INPUT;
  }
  return BS_OK;
}

/* The descriptor of a file beneath `folder`, -1 with errno. `location` is cut into its names on the way. */
static int open_beneath(int folder, char *location) {
  int at = folder, fd = -1;
  char *save = NULL, *name = strtok_r(location, "/", &save);
  if (name == NULL) errno = EINVAL;
  while (name != NULL) {
    char *next = strtok_r(NULL, "/", &save);
    int flags = next != NULL ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK | O_NOCTTY;
    fd = openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC);
    int saved = errno;
    if (at != folder) close(at);
    errno = saved;
    if (fd < 0) return -1;
    at = fd;
    name = next;
  }
  return fd;
}

/* No absolute path, no ".." among its names. */
static int is_beneath(bs_span location) {
  if (location.size == 0 || location.size > MAX_LOCATION || location.data[0] == '/') return 0;
  for (uint64_t i = 0; i < location.size; i++) {
    uint64_t begin = i;
    while (i < location.size && location.data[i] != '/') i++;
    if (i - begin == 2 && location.data[begin] == '.' && location.data[begin + 1] == '.') return 0;
  }
  return memchr(location.data, 0, (size_t)location.size) == NULL;
}

static int32_t open_file(struct bs_onnx_store *store, const entries *e, bs_onnx_file *file, bs_error *err) {
  char text[MAX_LOCATION + 1], path[160];
  struct stat st;
  memcpy(text, e->location.data, (size_t)e->location.size);
  text[e->location.size] = '\0';
  snprintf(path, sizeof path, "%.150s", text);
  if (store->folder_fd < 0) store->folder_fd = open(store->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (store->folder_fd < 0)
    return bs_error_errno(err, BS_INPUT, "BS-ONNX-EXT", errno, "the model's folder cannot be opened");
  int fd = open_beneath(store->folder_fd, text);
  if (fd < 0) {
    int saved = errno;
    bad(e, saved == ELOOP || saved == ENOTDIR ? "a link or no folder on the way to" : "cannot open",
        e->location, err);
    bs_error_hint(err, "%s",
                  saved == ENOENT ? "the file must lie beside the model, under this name" : strerror(saved));
    if (saved == ELOOP || saved == ENOTDIR)
      bs_error_hint(err, "links are not followed: copy the folder with its files (cp -rL)");
    return BS_INPUT;
  }
  int32_t rc = bs_map_adopt(fd, path, "BS-ONNX-EXT", &file->map, err);
  if (rc != BS_OK) return rc;
  if (fstat(fd, &st) != 0 || st.st_nlink > 1) {
    bad(e, "there is a second hard link to", e->location, err);
    bs_error_hint(err, "copy the file: another name of it may lie outside of the model's folder");
    return BS_INPUT;
  }
  return bs_map_guard(&file->map, path, err);
}

static int32_t add_file(struct bs_onnx_store *store, const entries *e, bs_onnx_file **out_file,
                        bs_error *err) {
  if (store->n_files == store->capacity) {
    uint32_t capacity = store->capacity == 0 ? 4 : store->capacity * 2;
    bs_onnx_file **files = realloc(store->files, capacity * sizeof *files);
    if (files == NULL)
      return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "memory for %u files is not to be had", capacity);
    store->files = files;
    store->capacity = capacity;
  }
  bs_onnx_file *file = calloc(1, sizeof *file);
  if (file == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "memory for a file is not to be had");
  file->location = e->location;
  store->files[store->n_files++] = file;
  int32_t rc = open_file(store, e, file, err);
  if (rc != BS_OK) return rc;
  if (bs_names_add(&store->by_location, &file->location, store->n_files - 1) < 0)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "memory for a file is not to be had");
  *out_file = file;
  return BS_OK;
}

int32_t bs_onnx_external(bs_onnx_reader *r, bs_pb message, bs_onnx_tensor *tensor, bs_error *err) {
  entries e = {.tensor = tensor};
  bs_onnx_file *file = NULL;
  int32_t rc = bs_onnx_fields(r, message, entry_field, &e, err);
  if (rc != BS_OK) return rc;
  if (bs_onnx_type_of(tensor->type)->bits == 0)
    return bad(&e, "strings do not stand there:", e.location, err);
  if (!is_beneath(e.location)) return bad(&e, "its location leaves the model's folder:", e.location, err);
  if (r->store->folder == NULL) return bad(&e, "it is not read here:", e.location, err);
  const uint32_t *known = bs_names_find(&r->store->by_location, e.location);
  if (known != NULL) file = r->store->files[*known];
  if (file == NULL && (rc = add_file(r->store, &e, &file, err)) != BS_OK) return rc;
  if (e.offset > file->map.bytes || tensor->bytes > file->map.bytes - e.offset ||
      (e.has_length && e.length != tensor->bytes))
    return bs_error_set(err, BS_INPUT, "BS-ONNX-SIZE",
                        "at byte %" PRIu64 ": tensor '%.*s' needs %" PRIu64 " bytes at %" PRIu64
                        " of '%.*s', which has %" PRIu64 "; the model says length %" PRIu64,
                        tensor->offset, BS_SPAN_PRINT(tensor->name), tensor->bytes, e.offset,
                        BS_SPAN_PRINT(e.location), file->map.bytes, e.has_length ? e.length : tensor->bytes);
  if (tensor->bytes > 0) tensor->data = (const char *)file->map.data + e.offset;
  return BS_OK;
}
