/* SPDX-License-Identifier: MIT
 * map.c - safe opening, reading and mapping of input files (map.h). Called by npy.c, safetensors.c and
 * the file workload. */
#include "formats/map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "formats/guard.h"

static int32_t changed(bs_error *err, const char *path, uint64_t was, uint64_t is) {
  bs_error_set(err, BS_INPUT, "BS-FILE-CHANGED",
               "changed while in use (was %" PRIu64 " bytes, now %" PRIu64 ")", was, is);
  bs_error_where(err, "%s", path);
  bs_error_hint(err, "write to a new file and rename it over the old one");
  return BS_INPUT;
}

static const char *kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "not a regular file";
}

int32_t bs_map_adopt(int fd, const char *path, const char *id, bs_map *out_map, bs_error *err) {
  struct stat st;
  memset(out_map, 0, sizeof *out_map);
  if (fstat(fd, &st) != 0) {
    bs_error_errno(err, BS_INPUT, id, errno, "cannot be examined");
    bs_error_where(err, "%s", path);
    close(fd);
    return BS_INPUT;
  }
  if (!S_ISREG(st.st_mode) || st.st_size < 0) {
    bs_error_set(err, BS_INPUT, id, "it is %s", kind_of(st.st_mode));
    bs_error_where(err, "%s", path);
    bs_error_hint(err, "only regular files are read");
    close(fd);
    return BS_INPUT;
  }
  out_map->fd = fd;
  out_map->is_open = 1;
  out_map->bytes = (uint64_t)st.st_size;
  out_map->mtime_s = (int64_t)st.st_mtim.tv_sec;
  out_map->mtime_ns = (int64_t)st.st_mtim.tv_nsec;
  return BS_OK;
}

int32_t bs_map_open(const char *path, const char *id, bs_map *out_map, bs_error *err) {
  memset(out_map, 0, sizeof *out_map);
  if (path == NULL) return bs_error_set(err, BS_INVALID_ARGUMENT, id, "no path given");
  /* O_NONBLOCK: opening a FIFO without a writer returns immediately, and fstat then refuses it. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    bs_error_errno(err, BS_INPUT, id, errno, "cannot be opened");
    bs_error_where(err, "%s", path);
    return BS_INPUT;
  }
  return bs_map_adopt(fd, path, id, out_map, err);
}

int32_t bs_map_map(bs_map *map, const char *path, bs_error *err) {
  struct stat st;
  if (map->bytes > SIZE_MAX)
    return bs_error_set(err, BS_OVERFLOW, "BS-FILE-SIZE", "%" PRIu64 " bytes cannot be mapped", map->bytes);
  if (map->bytes > 0) {
    void *data = mmap(NULL, (size_t)map->bytes, PROT_READ, MAP_PRIVATE, map->fd, 0);
    if (data == MAP_FAILED) {
      bs_error_errno(err, BS_NO_MEMORY, "BS-FILE-MAP", errno, "%" PRIu64 " bytes cannot be mapped",
                     map->bytes);
      bs_error_where(err, "%s", path);
      return BS_NO_MEMORY;
    }
    map->data = data;
    /* Without large pages, a read of one byte makes 4 KiB of the file resident, and not 2 MiB. A large page
     * would bring back a weight whose pages were released, when the small tensor after it is read. */
    madvise(data, (size_t)map->bytes, MADV_NOHUGEPAGE);
  }
  if (fstat(map->fd, &st) != 0 || st.st_size < 0 || (uint64_t)st.st_size != map->bytes)
    return changed(err, path, map->bytes, st.st_size < 0 ? 0 : (uint64_t)st.st_size);
  return BS_OK;
}

int32_t bs_map_guard(bs_map *map, const char *path, bs_error *err) {
  int32_t rc = bs_map_map(map, path, err);
  if (rc != BS_OK || map->data == NULL) return rc;
  map->guard = bs_guard_add(map->data, map->bytes, map->fd);
  if (map->guard != 0) return BS_OK;
  bs_error_set(err, BS_NO_MEMORY, "BS-FILE-MAP", "too many files are mapped at once");
  bs_error_where(err, "%s", path);
  return BS_NO_MEMORY;
}

int32_t bs_map_pread(const bs_map *map, const char *path, uint64_t offset, void *out, uint64_t bytes,
                     bs_error *err) {
  char *to = out;
  if (offset > map->bytes || bytes > map->bytes - offset) {
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-FILE-RANGE",
                 "bytes %" PRIu64 "+%" PRIu64 " are outside the file's %" PRIu64, offset, bytes, map->bytes);
    bs_error_where(err, "%s", path);
    return BS_INVALID_ARGUMENT;
  }
  while (bytes > 0) {
    size_t step = bytes > ((size_t)1 << 30) ? (size_t)1 << 30 : (size_t)bytes;
    ssize_t got = pread(map->fd, to, step, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      bs_error_errno(err, BS_INPUT, "BS-FILE-READ", errno, "reading at byte %" PRIu64 " failed", offset);
      bs_error_where(err, "%s", path);
      return BS_INPUT;
    }
    if (got == 0) return changed(err, path, map->bytes, offset);
    to += got;
    offset += (uint64_t)got;
    bytes -= (uint64_t)got;
  }
  return BS_OK;
}

int32_t bs_map_unchanged(const bs_map *map, const char *path, bs_error *err) {
  struct stat st;
  if (fstat(map->fd, &st) != 0) {
    bs_error_errno(err, BS_INPUT, "BS-FILE-READ", errno, "cannot be examined");
    bs_error_where(err, "%s", path);
    return BS_INPUT;
  }
  if (bs_guard_lost(map->guard) || st.st_size < 0 || (uint64_t)st.st_size != map->bytes ||
      (int64_t)st.st_mtim.tv_sec != map->mtime_s || (int64_t)st.st_mtim.tv_nsec != map->mtime_ns)
    return changed(err, path, map->bytes, st.st_size < 0 ? 0 : (uint64_t)st.st_size);
  return BS_OK;
}

void bs_map_close(bs_map *map) {
  bs_guard_remove(map->guard);
  if (map->data != NULL) munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
  if (map->is_open) close(map->fd);
  memset(map, 0, sizeof *map);
}
