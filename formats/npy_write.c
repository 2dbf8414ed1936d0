/* SPDX-License-Identifier: MIT
 * npy_write.c - writing .npy files so that a reader sees the old file, the new one, or none: a temporary
 * name beside the target, fsync, rename, fsync of the folder. Called by the lab's dumps and by tests. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
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

static int write_all(int fd, const void *data, uint64_t bytes) {
  const char *from = data;
  while (bytes > 0) {
    ssize_t put = write(fd, from, bytes > ((size_t)1 << 30) ? (size_t)1 << 30 : (size_t)bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      if (put == 0) errno = EIO;
      return 0;
    }
    from += put;
    bytes -= (uint64_t)put;
  }
  return 1;
}

/* The elements as NumPy knows them: in one go, or widened to f32 in chunks. */
static int write_data(int fd, uint32_t dtype, const void *data, uint64_t count) {
  float chunk[CONVERT_CHUNK];
  const char *from = data;
  if (dtype != BS_BF16 && dtype != BS_F8E4M3 && dtype != BS_F8E5M2)
    return write_all(fd, data, count * BS_DTYPE_BYTES(dtype));
  for (uint64_t done = 0; done < count;) {
    uint64_t n = count - done < CONVERT_CHUNK ? count - done : CONVERT_CHUNK;
    if (bs_convert(BS_F32, chunk, dtype, from + done * BS_DTYPE_BYTES(dtype), n) != BS_OK) {
      errno = EINVAL;
      return 0;
    }
    if (!write_all(fd, chunk, n * sizeof(float))) return 0;
    done += n;
  }
  return 1;
}

/* Create "<path>.tmp-<pid>-<n>" that did not exist. The descriptor, or -1 with errno. */
static int create_temp(const char *path, char *out_name, size_t room) {
  static atomic_uint counter;
  for (int tries = 0; tries < 100; tries++) {
    snprintf(out_name, room, "%s.tmp-%ld-%u", path, (long)getpid(), atomic_fetch_add(&counter, 1u));
    int fd = open(out_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

/* Make the rename durable. File systems that cannot sync a folder say EINVAL: that is no failure. */
static int sync_folder(const char *path, char *scratch, size_t room) {
  snprintf(scratch, room, "%s", path);
  char *slash = strrchr(scratch, '/');
  if (slash == NULL)
    snprintf(scratch, room, ".");
  else if (slash == scratch)
    slash[1] = '\0';
  else
    *slash = '\0';
  int fd = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES; /* a folder one may write but not list */
  int ok = fsync(fd) == 0 || errno == EINVAL || errno == EROFS;
  int saved_errno = errno;
  close(fd);
  errno = saved_errno;
  return ok;
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
  size_t room = strlen(path) + 48;
  char *temp = malloc(room);
  if (temp == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "%zu bytes are not to be had", room);
  int32_t rc = BS_OK;
  int fd = create_temp(path, temp, room);
  if (fd < 0) {
    rc = write_error(err, path, errno);
    goto out;
  }
  size_t header_bytes = make_header(header, descr, rank, dims);
  int ok = write_all(fd, header, header_bytes) && write_data(fd, dtype, data, count) && fsync(fd) == 0;
  int saved_errno = errno;
  if (close(fd) != 0 && ok) {
    ok = 0;
    saved_errno = errno;
  }
  if (ok && rename(temp, path) != 0) {
    ok = 0;
    saved_errno = errno;
  }
  if (!ok) {
    unlink(temp);
    rc = write_error(err, path, saved_errno);
  } else if (!sync_folder(path, temp, room)) {
    rc = write_error(err, path, errno);
  }
out:
  free(temp);
  return rc;
}
