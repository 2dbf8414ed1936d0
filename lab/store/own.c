/* SPDX-License-Identifier: MIT
 * own.c - see own.h. */
#include "lab/store/own.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/text.h"
#include "lab/store/lines.h"
#include "lab/store/sha256.h"
#include "lab/store/store.h"

enum { KEY = 64 }; /* hex digits of 32 random bytes */

static int read_key(const char *path, char out[KEY + 1]) {
  struct stat st;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const int alone = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                    (st.st_mode & 077) == 0 && st.st_size == KEY;
  const int whole = alone && read(fd, out, KEY) == KEY;
  if (fd >= 0) close(fd);
  out[KEY] = '\0';
  return whole && strspn(out, "0123456789abcdef") == KEY;
}

/* Writes the key under a temporary name first: if two processes make a key, the second takes the key of the
 * first. */
static int make_key(const char *path) {
  static const bs_lines_words words = {"BS-OWN-IO", "BS-OWN-LOCK", "", 0};
  unsigned char bytes[KEY / 2];
  char text[KEY + 1];
  bs_text other = {0};
  if (bs_lines_folders(&words, path, NULL) != BS_OK) return 0;
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return 0;
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
  bs_text_printf(&other, "%s.%ld", path, (long)getpid());
  const int fd =
      other.failed ? -1 : open(other.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  int made = fd >= 0 && bs_store_write_all(fd, text, KEY) == 0 && fsync(fd) == 0;
  if (fd >= 0) close(fd);
  made = made && (link(other.data, path) == 0 || errno == EEXIST);
  if (fd >= 0) unlink(other.data);
  bs_text_free(&other);
  return made;
}

/* A keyed sum of a keyed sum, so that a known mark does not allow to extend its text. */
static void sum_with(const char *key, const char *side, const char *text, char out[65]) {
  bs_sha256 h;
  bs_sha256_init(&h);
  bs_sha256_field(&h, key);
  bs_sha256_field(&h, side);
  bs_sha256_field(&h, text);
  bs_sha256_hex(&h, out);
}

int bs_own_mark(const char *key_path, int make, const char *text, char out_mark[65]) {
  char key[KEY + 1], inner[65];
  if (key_path == NULL) return 0;
  if (!read_key(key_path, key) && !(make && make_key(key_path) && read_key(key_path, key))) return 0;
  sum_with(key, "inner", text, inner);
  sum_with(key, "outer", inner, out_mark);
  return 1;
}
