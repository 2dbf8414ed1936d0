/* SPDX-License-Identifier: MIT
 * config_file.c - bs_config_load: a YAML file from disk. Only regular files are read, so that a FIFO or a
 * device named by mistake is an error and not a hang, and never more than the cap. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "lab/yaml/config.h"
#include "lab/yaml/config_internal.h"

/* A file that is not there is no wrong configuration. */
static int32_t fail_read(bs_error *err, const char *path, int saved_errno) {
  const int32_t code = saved_errno == ENOENT || saved_errno == ENOTDIR ? BS_INPUT : BS_CONFIG;
  bs_error_errno(err, code, "BS-CFG-READ", saved_errno, "cannot be read");
  bs_error_where(err, "%.150s", path);
  return code;
}

/* Reads one byte more than the cap, so that a file that grows meanwhile is noticed, too. */
static int32_t read_all(int fd, const char *path, char **out_data, size_t *out_size, bs_error *err) {
  size_t capacity = (size_t)BS_CFG_MAX_BYTES + 1, size = 0;
  char *data = malloc(capacity);
  if (data == NULL) return bs_config_no_memory(err);
  while (size < capacity) {
    ssize_t n = read(fd, data + size, capacity - size);
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int saved = errno;
      free(data);
      return fail_read(err, path, saved);
    }
    size += (size_t)n;
  }
  *out_data = data;
  *out_size = size;
  return BS_OK;
}

int32_t bs_config_load(const char *path, bs_node **out_root, bs_error *err) {
  char *data = NULL;
  size_t size = 0;
  struct stat st;
  int32_t rc;
  *out_root = NULL;
  /* O_NONBLOCK: opening a FIFO without a writer must return. */
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return fail_read(err, path, errno);
  if (fstat(fd, &st) != 0) {
    rc = fail_read(err, path, errno);
  } else if (!S_ISREG(st.st_mode)) {
    rc = bs_error_set(err, BS_CONFIG, "BS-CFG-READ", "%s, not a regular file",
                      S_ISDIR(st.st_mode)    ? "a folder"
                      : S_ISFIFO(st.st_mode) ? "a FIFO"
                                             : "a device or socket");
    bs_error_where(err, "%.150s", path);
  } else if (st.st_size > BS_CFG_MAX_BYTES) {
    rc = bs_error_set(err, BS_CONFIG, "BS-CFG-SIZE", "%lld bytes, at most %d are accepted",
                      (long long)st.st_size, BS_CFG_MAX_BYTES);
    bs_error_where(err, "%.150s", path);
  } else {
    rc = read_all(fd, path, &data, &size, err);
  }
  close(fd);
  if (rc == BS_OK) rc = bs_config_parse(path, data, size, out_root, err);
  free(data);
  return rc;
}
