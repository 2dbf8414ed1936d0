/* SPDX-License-Identifier: MIT
 * safetensors.c - opening a safetensors file: sizes, header (st_header.c), the sweep over its byte ranges,
 * map. Called by the file workload and tests. */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/st_header.h"

static int by_offset(const void *a, const void *b) {
  const bs_st_tensor *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* Every byte of the data belongs to exactly one tensor. */
static int32_t sweep(const bs_st *st, uint64_t data_bytes, bs_error *err) {
  uint64_t at = 0;
  for (uint64_t i = 0; i < st->count; i++) {
    const bs_st_tensor *t = &st->tensors[i];
    if (t->offset < at)
      return bs_error_set(err, BS_INPUT, "BS-ST-OVERLAP",
                          "tensor '%.200s' starts at byte %" PRIu64
                          " inside '%.200s', which ends at %" PRIu64,
                          t->name, t->offset, st->tensors[i - 1].name, at);
    if (t->offset > at)
      return bs_error_set(err, BS_INPUT, "BS-ST-HOLE", "bytes %" PRIu64 "..%" PRIu64 " belong to no tensor",
                          at, t->offset);
    at = t->offset + t->bytes; /* both were checked against data_bytes */
  }
  if (at != data_bytes)
    return bs_error_set(err, BS_INPUT, "BS-ST-TRAILING",
                        "%" PRIu64 " bytes after the last tensor, which ends at %" PRIu64, data_bytes - at,
                        at);
  return BS_OK;
}

static int32_t read_header(const char *path, bs_st *st, uint64_t *out_data, bs_error *err) {
  unsigned char p[8];
  uint64_t length = 0;
  if (st->map.bytes < sizeof p)
    return bs_error_set(err, BS_INPUT, "BS-ST-SIZE", "file of %" PRIu64 " bytes, at least 8 are needed",
                        st->map.bytes);
  int32_t rc = bs_map_pread(&st->map, path, 0, p, sizeof p, err);
  if (rc != BS_OK) return rc;
  for (int i = 7; i >= 0; i--) length = length << 8 | p[i];
  if (length > BS_ST_MAX_HEADER)
    return bs_error_set(err, BS_INPUT, "BS-ST-HEADER", "header of %" PRIu64 " bytes, cap %u", length,
                        BS_ST_MAX_HEADER);
  if (length > st->map.bytes - sizeof p)
    return bs_error_set(err, BS_INPUT, "BS-ST-HEADER",
                        "header of %" PRIu64 " bytes, but only %" PRIu64 " follow", length,
                        st->map.bytes - sizeof p);
  char *text = malloc(length == 0 ? 1 : (size_t)length);
  if (text == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate %" PRIu64 " bytes", length);
  rc = bs_map_pread(&st->map, path, sizeof p, text, length, err);
  *out_data = sizeof p + length;
  if (rc == BS_OK) rc = bs_st_parse_header(text, (size_t)length, st->map.bytes - *out_data, st, err);
  free(text);
  return rc;
}

static int32_t open_parts(const char *path, bs_st *st, bs_error *err) {
  uint64_t data = 0;
  int32_t rc = read_header(path, st, &data, err);
  if (rc != BS_OK) return rc;
  if (st->count > 1) qsort(st->tensors, (size_t)st->count, sizeof *st->tensors, by_offset);
  rc = sweep(st, st->map.bytes - data, err);
  if (rc != BS_OK) return rc;
  rc = bs_map_guard(&st->map, path, err);
  if (rc != BS_OK) return rc;
  for (uint64_t i = 0; i < st->count; i++) {
    st->tensors[i].offset += data;
    st->tensors[i].data = (const char *)st->map.data + st->tensors[i].offset;
  }
  return BS_OK;
}

int32_t bs_st_open(const char *path, bs_st *out_st, bs_error *err) {
  memset(out_st, 0, sizeof *out_st);
  int32_t rc = bs_map_open(path, "BS-ST-READ", &out_st->map, err);
  if (rc != BS_OK) return rc;
  rc = open_parts(path, out_st, err);
  if (rc != BS_OK) {
    bs_error_where(err, "%s", path);
    bs_st_close(out_st);
  }
  return rc;
}

void bs_st_close(bs_st *st) {
  for (uint64_t i = 0; i < st->count; i++) free(st->tensors[i].name);
  free(st->tensors);
  bs_map_close(&st->map);
  memset(st, 0, sizeof *st);
}

/* The nearest of the first 10,000 names: enough for a hint, bounded for hostile files. */
static void hint_nearest(const bs_st *st, const char *name, bs_error *err) {
  size_t count = st->count < 10000 ? (size_t)st->count : 10000;
  const char **names = malloc((count == 0 ? 1 : count) * sizeof *names);
  if (names == NULL) return;
  for (size_t i = 0; i < count; i++) names[i] = st->tensors[i].name;
  const char *near = bs_nearest(name, names, count);
  if (near != NULL)
    bs_error_hint(err, "did you mean '%.200s'?", near);
  else if (count > 0)
    bs_error_hint(err, "the file starts with '%.200s'", names[0]);
  else
    bs_error_hint(err, "the file has no tensor");
  free(names);
}

int32_t bs_st_find(const bs_st *st, const char *name, const bs_st_tensor **out_tensor, bs_error *err) {
  for (uint64_t i = 0; i < st->count; i++) {
    const bs_st_tensor *t = &st->tensors[i];
    if (strcmp(t->name, name) != 0) continue;
    if (t->dtype == 0) {
      bs_error_set(err, BS_INPUT, "BS-ST-DTYPE", "tensor '%.200s' has dtype %s", name, t->type_name);
      bs_error_hint(err, "dtypes read: F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I8 U8 BOOL");
      return BS_INPUT;
    }
    *out_tensor = t;
    return BS_OK;
  }
  bs_error_set(err, BS_INPUT, "BS-ST-NOTFOUND", "no tensor '%.200s' among %" PRIu64, name, st->count);
  hint_nearest(st, name, err);
  return BS_INPUT;
}
