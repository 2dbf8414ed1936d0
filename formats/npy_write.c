/* SPDX-License-Identifier: MIT
 * npy_write.c - writing .npy files so that a reader sees the old file, the new one, or none: a temporary
 * name next to the target, fsync, rename, fsync of the folder. Called by the lab's dumps and by tests. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/out_file.h"
#include "core/base/size.h"
#include "formats/npy.h"

enum { HEADER_ROOM = 1024, CONVERT_CHUNK = 4096 };

static const char *descr_of(uint32_t dtype) {
  switch (dtype) {
    case BS_F64:
      return "<f8";
    case BS_F16:
      return "<f2";
    case BS_I64:
      return "<i8";
    case BS_I32:
      return "<i4";
    case BS_I8:
      return "|i1";
    case BS_U8:
      return "|u1";
    case BS_BOOL:
      return "|b1";
    case BS_F32:
    case BS_BF16:
    case BS_F8E4M3:
    case BS_F8E5M2:
      return "<f4";
    default:
      return NULL;
  }
}

/* The whole preamble and header, padded with spaces to a multiple of 64, newline last. 32 dimensions of 19
 * digits fit. */
static size_t make_header(char out[HEADER_ROOM], const char *descr, uint32_t rank, const int64_t *dims) {
  static const unsigned char magic[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
  size_t n = 10;
  n +=
      (size_t)snprintf(out + n, HEADER_ROOM - n, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (uint32_t i = 0; i < rank; i++)
    n += (size_t)snprintf(out + n, HEADER_ROOM - n, "%s%" PRId64, i == 0 ? "" : ", ", dims[i]);
  n += (size_t)snprintf(out + n, HEADER_ROOM - n, "%s), }", rank == 1 ? "," : "");
  size_t total = (n + 1 + 63) / 64 * 64;
  memset(out + n, ' ', total - n - 1);
  out[total - 1] = '\n';
  memcpy(out, magic, sizeof magic);
  out[8] = (char)((total - 10) & 0xff);
  out[9] = (char)((total - 10) >> 8);
  return total;
}

static int32_t write_error(bs_error *err, const char *path, int saved_errno) {
  bs_error_errno(err, BS_IO, "BS-NPY-WRITE", saved_errno, "cannot be written");
  bs_error_where(err, "%s", path);
  return BS_IO;
}

/* The elements as NumPy knows them: in one go, or widened to f32 in chunks. 0 or an errno. */
static int write_data(const bs_out_file *out, uint32_t dtype, const void *data, uint64_t count) {
  float chunk[CONVERT_CHUNK];
  const char *from = data;
  int why = 0;
  if (dtype != BS_BF16 && dtype != BS_F8E4M3 && dtype != BS_F8E5M2)
    return bs_out_write(out, data, count * BS_DTYPE_BYTES(dtype));
  for (uint64_t done = 0; done < count && why == 0;) {
    uint64_t n = count - done < CONVERT_CHUNK ? count - done : CONVERT_CHUNK;
    if (bs_convert(BS_F32, chunk, dtype, from + done * BS_DTYPE_BYTES(dtype), n) != BS_OK) return EINVAL;
    why = bs_out_write(out, chunk, n * sizeof(float));
    done += n;
  }
  return why;
}

int32_t bs_npy_write(const char *path, uint32_t dtype, uint32_t rank, const int64_t *dims, const void *data,
                     bs_error *err) {
  char header[HEADER_ROOM];
  const char *descr = descr_of(dtype);
  uint64_t count = 1, bytes = 0;
  if (path == NULL || *path == '\0' || descr == NULL || rank > BS_NPY_MAX_DIMS || (rank > 0 && dims == NULL))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-NPY-WRITE",
                        "cannot write dtype 0x%04" PRIx32 " with %" PRIu32 " dimensions to '%s'", dtype, rank,
                        path == NULL ? "" : path);
  for (uint32_t i = 0; i < rank; i++) {
    if (dims[i] < 0)
      return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-NPY-WRITE", "dimension %" PRIu32 " is %" PRId64, i,
                          dims[i]);
    if (dims[i] == 0) count = 0;
  }
  for (uint32_t i = 0; i < rank && count != 0; i++)
    if (!bs_mul_u64(count, (uint64_t)dims[i], &count))
      return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-NPY-WRITE", "the product of the shape overflows");
  if (!bs_mul_u64(count, 8, &bytes) || (count > 0 && data == NULL))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-NPY-WRITE", "%" PRIu64 " elements cannot be written",
                        count);
  bs_out_file out;
  int why = bs_out_open(path, &out);
  if (why != 0) return write_error(err, path, why);
  why = bs_out_write(&out, header, make_header(header, descr, rank, dims));
  if (why == 0) why = write_data(&out, dtype, data, count);
  why = bs_out_close(&out, why, 1);
  return why == 0 ? BS_OK : write_error(err, path, why);
}
