/* SPDX-License-Identifier: MIT
 * npy.c - reading .npy files: preamble, header (npy_header.c), sizes, map. Called by the file workload, the
 * lab and tests. Sizes are checked before anything is mapped. */
#include "formats/npy.h"

#include <inttypes.h>
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

void bs_npy_close(bs_npy *npy) {
  bs_map_close(&npy->map);
  memset(npy, 0, sizeof *npy);
}
