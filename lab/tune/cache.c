/* SPDX-License-Identifier: MIT
 * cache.c - see cache.h. The file is read with distrust: anyone may have edited or torn it. */
#include "lab/tune/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/measure/constants.h"
#include "lab/store/store.h"

#define MAX_FILE (16 * 1048576)
/* The lock is held for one write: whoever has it for two seconds is stopped or hangs. */
enum { LOCK_TRIES = 200, LOCK_STEP_NS = 10000000 };

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
}

static int32_t io_error(bs_error *err, int number, const char *verb, const char *path) {
  bs_error_errno(err, BS_IO, "BS-TUNE-IO", number, "cannot %s %.300s", verb, path);
  bs_error_hint(err, "--tune-cache FILE chooses another place, --tune-cache off none");
  return BS_IO;
}

static int is_text(const json_t *object, const char *key) {
  return json_is_string(json_object_get(object, key));
}

/* Everything that the rest relies on. */
static int is_entry(const json_t *e) {
  size_t i;
  const json_t *candidates = json_object_get(e, "candidates"), *c;
  if (json_integer_value(json_object_get(e, "format")) != 1 || !is_text(e, "key") || !is_text(e, "choice") ||
      !is_text(e, "default") || !json_is_object(json_object_get(e, "machine")) ||
      json_array_size(candidates) == 0)
    return 0;
  json_array_foreach(candidates, i, c) {
    if (!is_text(c, "name") || !is_text(c, "how") || !is_text(c, "plugin")) return 0;
  }
  return 1;
}

static int32_t take_line(bs_tune_cache *cache, const char *line, size_t size, bs_error *err) {
  json_t *entry = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);
  if (!is_entry(entry)) {
    cache->broken++;
  } else if (!json_equal(json_object_get(entry, "machine"), cache->machine)) {
    cache->foreign++;
  } else {
    return bs_tune_cache_remember(cache, entry, err);
  }
  json_decref(entry);
  return BS_OK;
}

/* `size` bytes from `at` on, or as many as there are. */
static int32_t read_part(int fd, const char *path, off_t at, size_t size, char *out, size_t *out_size,
                         bs_error *err) {
  *out_size = 0;
  while (*out_size < size) {
    const ssize_t n = pread(fd, out + *out_size, size - *out_size, at + (off_t)*out_size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(err, errno, "read", path);
    if (n == 0) break;
    *out_size += (size_t)n;
  }
  return BS_OK;
}

/* Drop the line that `text` begins within; its first byte is the one before what is wanted. */
static size_t skip_torn(char *text, size_t size) {
  const char *end = memchr(text, '\n', size);
  const size_t skipped = end != NULL ? (size_t)(end - text) + 1 : size;
  memmove(text, text + skipped, size - skipped);
  return skipped;
}

/* A regular file; a fifo or device would block or never end. Of a long one the end, from where a line begins:
 * the later lines are those that count. */
static int32_t read_file(const char *path, char **out, size_t *out_size, uint64_t *out_unread,
                         bs_error *err) {
  struct stat st;
  int32_t rc = BS_OK;
  *out = NULL;
  *out_size = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? BS_OK : io_error(err, errno, "read", path);
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    rc = bs_error_set(err, BS_IO, "BS-TUNE-IO", "%.300s is no regular file", path);
    bs_error_hint(err, "remove it, or choose another with --tune-cache FILE");
  } else {
    const off_t from = st.st_size > MAX_FILE ? st.st_size - MAX_FILE - 1 : 0;
    const size_t size = (size_t)(st.st_size - from);
    *out = malloc(size + 1);
    rc = *out == NULL ? no_memory(err) : read_part(fd, path, from, size, *out, out_size, err);
    if (rc == BS_OK && from > 0) {
      const size_t skipped = skip_torn(*out, *out_size);
      *out_size -= skipped;
      *out_unread = (uint64_t)from + skipped;
    }
  }
  close(fd);
  return rc;
}

static json_t *machine_key(void) {
  json_t *key = bs_constants_key();
  json_object_del(key, "library_build_id"); /* each candidate has its plugin's */
  return key;
}

int32_t bs_tune_cache_open(const char *path, bs_tune_cache *out, bs_error *err) {
  char *text = NULL;
  size_t size = 0;
  memset(out, 0, sizeof *out);
  out->machine = machine_key();
  out->entries = json_array();
  if (out->machine == NULL || out->entries == NULL) return no_memory(err);
  if (path == NULL) return BS_OK;
  int32_t rc = read_file(path, &text, &size, &out->unread, err);
  for (size_t at = 0; rc == BS_OK && at < size;) {
    const char *end = memchr(text + at, '\n', size - at);
    const size_t length = end != NULL ? (size_t)(end - text) - at : size - at;
    if (length > 0) rc = take_line(out, text + at, length, err);
    at += length + 1;
  }
  free(text);
  if (rc != BS_OK) return rc;
  out->path = bs_strdup(path);
  return out->path != NULL ? BS_OK : no_memory(err);
}

void bs_tune_cache_close(bs_tune_cache *cache) {
  free(cache->path);
  json_decref(cache->machine);
  json_decref(cache->entries);
  memset(cache, 0, sizeof *cache);
}

int32_t bs_tune_cache_remember(bs_tune_cache *cache, json_t *entry, bs_error *err) {
  return json_array_append_new(cache->entries, entry) == 0 ? BS_OK : no_memory(err);
}

/* Is `c` among the entry's candidates, the same plugin file answering the same? */
static int known(const json_t *entry, const json_t *c) {
  static const char *const parts[] = {"name", "how", "plugin"};
  size_t i;
  const json_t *row;
  json_array_foreach(json_object_get(entry, "candidates"), i, row) {
    int same = 1;
    for (size_t k = 0; k < 3; k++)
      same = same && json_equal(json_object_get(row, parts[k]), json_object_get(c, parts[k]));
    if (same) return 1;
  }
  return 0;
}

static int fits(const json_t *entry, const json_t *asked) {
  size_t i;
  const json_t *c;
  int chosen = 0;
  if (!json_equal(json_object_get(entry, "key"), json_object_get(asked, "key"))) return 0;
  json_array_foreach(json_object_get(asked, "candidates"), i, c) {
    if (!known(entry, c)) return 0;
    chosen = chosen || json_equal(json_object_get(c, "name"), json_object_get(entry, "choice"));
  }
  return chosen;
}

const json_t *bs_tune_cache_find(const bs_tune_cache *cache, const json_t *asked) {
  for (size_t i = json_array_size(cache->entries); i-- > 0;) {
    const json_t *entry = json_array_get(cache->entries, i);
    if (fits(entry, asked)) return entry;
  }
  return NULL;
}

/* mkdir -p of the folder that holds `path`. */
static int32_t make_folders(const char *path, bs_error *err) {
  char *folder = bs_strdup(path);
  int32_t rc = folder != NULL ? BS_OK : no_memory(err);
  if (rc != BS_OK) return rc;
  for (char *slash = strchr(folder, '/'); slash != NULL && rc == BS_OK; slash = strchr(slash + 1, '/')) {
    if (slash == folder) continue;
    *slash = '\0';
    if (mkdir(folder, 0755) != 0 && errno != EEXIST) rc = io_error(err, errno, "make the folder", folder);
    *slash = '/';
  }
  free(folder);
  return rc;
}

/* 0 or the errno. Where a file system has no locks, appending in one write has to do. */
static int lock_file(int fd) {
  const struct timespec step = {0, LOCK_STEP_NS};
  for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
    if (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP) return 0;
    if ((errno != EWOULDBLOCK && errno != EINTR) || tries >= LOCK_TRIES) return errno;
    if (errno == EWOULDBLOCK) nanosleep(&step, NULL);
  }
  return 0;
}

/* A line that another process tore (killed, disk full) ends here, not in ours. */
static int write_line(int fd, const char *line, size_t size) {
  char last = '\n';
  struct stat st;
  const int locked = lock_file(fd);
  if (locked != 0) return locked;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return EINVAL;
  if (st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) != 1) return EIO;
  return bs_store_write_all(fd, line + (last == '\n'), size - (last == '\n'));
}

int32_t bs_tune_cache_append(const bs_tune_cache *cache, const json_t *entry, bs_error *err) {
  if (cache->path == NULL) return BS_OK;
  char *body = json_dumps(entry, JSON_COMPACT | JSON_SORT_KEYS);
  bs_text line = {0};
  if (body != NULL) bs_text_printf(&line, "\n%s\n", body);
  int32_t rc = body == NULL || line.failed ? no_memory(err) : make_folders(cache->path, err);
  free(body);
  if (rc == BS_OK) {
    const int fd = open(cache->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
    int bad = fd < 0 ? errno : write_line(fd, line.data, line.size);
    if (fd >= 0 && close(fd) != 0 && bad == 0) bad = errno;
    if (bad == EWOULDBLOCK) {
      rc = bs_error_set(err, BS_IO, "BS-TUNE-LOCK", "another process holds the lock of %.300s", cache->path);
      bs_error_hint(err, "a stopped or hanging bsrun? --tune-cache FILE chooses another place");
    } else if (bad != 0) {
      rc = io_error(err, bad, "write", cache->path);
    }
  }
  bs_text_free(&line);
  return rc;
}
