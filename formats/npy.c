/* SPDX-License-Identifier: MIT
 * npy.c - reading .npy files: preamble, header (npy_header.c), sizes, map. Called by the file workload, the
 * lab and tests. Sizes are checked before anything is mapped. */
#include "formats/npy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"
#include "formats/npy_header.h"

static uint32_t u16le(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

/* Magic, version and header length: 10 bytes in version 1, 12 in versions 2 and 3. */
static int32_t read_preamble(const bs_map *map, const char *path, uint64_t *out_start, uint64_t *out_length,
                             bs_error *err) {
  static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  unsigned char p[12] = {0};
  uint64_t have = map->bytes < sizeof p ? map->bytes : sizeof p;
  int32_t rc = bs_map_pread(map, path, 0, p, have, err);
  if (rc != BS_OK) return rc;
  if (have < sizeof magic || memcmp(p, magic, sizeof magic) != 0)
    return bs_error_set(err, BS_INPUT, "BS-NPY-MAGIC",
                        "not a .npy file: its %" PRIu64 " bytes do not start with \\x93NUMPY", map->bytes);
  if (have < 8)
    return bs_error_set(err, BS_INPUT, "BS-NPY-HEADER", "file of %" PRIu64 " bytes ends inside the version",
                        map->bytes);
  if (p[6] < 1 || p[6] > 3 || p[7] != 0)
    return bs_error_set(err, BS_INPUT, "BS-NPY-VERSION", "format version %u.%u; 1.0, 2.0 and 3.0 are read",
                        p[6], p[7]);
  uint64_t start = p[6] == 1 ? 10 : 12;
  if (map->bytes < start)
    return bs_error_set(err, BS_INPUT, "BS-NPY-HEADER",
                        "file of %" PRIu64 " bytes ends inside the header length", map->bytes);
  uint64_t length = p[6] == 1 ? u16le(p + 8) : (uint64_t)u16le(p + 8) | (uint64_t)u16le(p + 10) << 16;
  if (length > BS_NPY_MAX_HEADER)
    return bs_error_set(err, BS_INPUT, "BS-NPY-HEADER", "header of %" PRIu64 " bytes, cap %u", length,
                        BS_NPY_MAX_HEADER);
  if (length > map->bytes - start)
    return bs_error_set(err, BS_INPUT, "BS-NPY-HEADER",
                        "header of %" PRIu64 " bytes, but only %" PRIu64 " follow", length,
                        map->bytes - start);
  *out_start = start;
  *out_length = length;
  return BS_OK;
}

/* Elements and bytes by checked arithmetic; a zero anywhere makes the array empty before any product. */
static int32_t check_sizes(bs_npy *npy, bs_error *err) {
  uint64_t count = 1, bytes = 0, have = npy->map.bytes - npy->offset;
  for (uint32_t i = 0; i < npy->rank; i++)
    if (npy->dims[i] == 0) count = 0;
  for (uint32_t i = 0; i < npy->rank && count != 0; i++)
    if (!bs_mul_u64(count, (uint64_t)npy->dims[i], &count))
      return bs_error_set(err, BS_INPUT, "BS-NPY-SHAPE", "the product of %" PRIu32 " dimensions overflows",
                          npy->rank);
  if (!bs_mul_u64(count, BS_DTYPE_BYTES(npy->dtype), &bytes) || bytes > INT64_MAX)
    return bs_error_set(err, BS_INPUT, "BS-NPY-SHAPE", "%" PRIu64 " elements of %u bytes overflow", count,
                        BS_DTYPE_BYTES(npy->dtype));
  if (have < bytes)
    return bs_error_set(err, BS_INPUT, "BS-NPY-SHORT", "%" PRIu64 " bytes of data, its shape needs %" PRIu64,
                        have, bytes);
  if (have > bytes)
    return bs_error_set(err, BS_INPUT, "BS-NPY-TRAILING",
                        "%" PRIu64 " bytes after its %" PRIu64 " bytes of data", have - bytes, bytes);
  npy->count = count;
  return BS_OK;
}

/* out, in C order, from the elements of `in`, in Fortran order: the first index runs fastest there. */
static void to_c_order(const bs_npy *npy, const char *in, char *out) {
  const size_t size = BS_DTYPE_BYTES(npy->dtype);
  uint64_t strides[BS_NPY_MAX_DIMS], at = 0, stride = 1;
  int64_t index[BS_NPY_MAX_DIMS] = {0};
  for (uint32_t d = 0; d < npy->rank; stride *= (uint64_t)npy->dims[d++]) strides[d] = stride;
  for (uint64_t i = 0; i < npy->count; i++) {
    memcpy(out + i * size, in + at * size, size);
    for (uint32_t d = npy->rank; d-- > 0;) {
      at += strides[d];
      if (++index[d] < npy->dims[d]) break;
      at -= strides[d] * (uint64_t)npy->dims[d];
      index[d] = 0;
    }
  }
}

/* 1: the file's order of the elements is not that of C. */
static int is_transposed(const bs_npy *npy) {
  uint32_t long_dims = 0;
  for (uint32_t d = 0; d < npy->rank; d++) long_dims += npy->dims[d] > 1;
  return npy->fortran && long_dims > 1;
}

static int32_t copy_data(const char *path, bs_npy *npy, bs_error *err) {
  const uint64_t bytes = npy->count * BS_DTYPE_BYTES(npy->dtype);
  char *raw = malloc(bytes), *turned = is_transposed(npy) ? malloc(bytes) : NULL;
  int32_t rc = BS_OK;
  if (raw == NULL || (turned == NULL && is_transposed(npy)))
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a copy of %" PRIu64 " bytes", bytes);
  if (rc == BS_OK) rc = bs_map_pread(&npy->map, path, npy->offset, raw, bytes, err);
  if (rc == BS_OK && turned != NULL) to_c_order(npy, raw, turned);
  if (rc == BS_OK) {
    npy->copy = turned != NULL ? turned : raw;
    if (turned != NULL) free(raw);
    npy->data = npy->copy;
    return BS_OK;
  }
  free(raw);
  free(turned);
  return rc;
}

static int32_t open_parts(const char *path, bs_npy *npy, bs_error *err) {
  char header[BS_NPY_MAX_HEADER];
  uint64_t start = 0, length = 0;
  int32_t rc = read_preamble(&npy->map, path, &start, &length, err);
  if (rc != BS_OK) return rc;
  rc = bs_map_pread(&npy->map, path, start, header, length, err);
  if (rc != BS_OK) return rc;
  rc = bs_npy_parse_header(header, (size_t)length, npy, err);
  if (rc != BS_OK) return rc;
  npy->offset = start + length;
  rc = check_sizes(npy, err);
  if (rc != BS_OK) return rc;
  if (npy->count > 0 && (is_transposed(npy) || npy->offset % BS_DTYPE_BYTES(npy->dtype) != 0))
    return copy_data(path, npy, err);
  rc = bs_map_map(&npy->map, path, err);
  if (rc != BS_OK) return rc;
  npy->data = (const char *)npy->map.data + npy->offset;
  return BS_OK;
}

int32_t bs_npy_open(const char *path, bs_npy *out_npy, bs_error *err) {
  memset(out_npy, 0, sizeof *out_npy);
  int32_t rc = bs_map_open(path, "BS-NPY-READ", &out_npy->map, err);
  if (rc != BS_OK) return rc;
  rc = open_parts(path, out_npy, err);
  if (rc != BS_OK) {
    bs_error_where(err, "%s", path);
    bs_npy_close(out_npy);
  }
  return rc;
}

int32_t bs_npy_read(const bs_npy *npy, const char *path, uint64_t from, void *out, uint64_t bytes,
                    bs_error *err) {
  if (npy->copy == NULL) return bs_map_pread(&npy->map, path, npy->offset + from, out, bytes, err);
  if (bytes > 0) memcpy(out, (const char *)npy->copy + from, (size_t)bytes);
  return bs_map_unchanged(&npy->map, path, err);
}

void bs_npy_close(bs_npy *npy) {
  free(npy->copy);
  bs_map_close(&npy->map);
  memset(npy, 0, sizeof *npy);
}
