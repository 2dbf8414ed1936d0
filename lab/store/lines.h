/* SPDX-License-Identifier: MIT
 * lines.h - files of JSON lines in the user's cache folder: only ever appended to, under a lock, by several
 * processes at once; read with distrust, for anyone may have edited or torn them. */
#ifndef BS_LAB_STORE_LINES_H
#define BS_LAB_STORE_LINES_H
#include <stddef.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* What the errors of one such file are called, and what to do about them. */
typedef struct bs_lines_words {
  const char *io_id, *lock_id; /* "BS-TUNE-IO", "BS-TUNE-LOCK" */
  const char *hint;            /* "--tune-cache FILE chooses another place, --tune-cache off none" */
} bs_lines_words;

/* The file's text, or of one beyond 16 MiB the end of it, from where a line begins: the later lines are those
 * that count. *out NULL: there is no file. *out_unread: bytes before what was read. The caller frees. BS_IO
 * for a file that cannot be read, or is none. */
int32_t bs_lines_read(const bs_lines_words *words, const char *path, char **out, size_t *out_size,
                      uint64_t *out_unread, bs_error *err);
/* The same, and calls each(user, line, size) for every line that is not empty; ends with what that returns
 * when not BS_OK. */
int32_t bs_lines_load(const bs_lines_words *words, const char *path, uint64_t *out_unread,
                      int32_t (*each)(void *user, const char *line, size_t size, bs_error *err), void *user,
                      bs_error *err);
/* mkdir -p of the folder that holds `path`. BS_IO. */
int32_t bs_lines_folders(const bs_lines_words *words, const char *path, bs_error *err);
/* One line in one write under a lock; folders are made. A line that another process tore ends before it.
 * BS_IO; lock_id after two seconds in which another process held the lock. */
int32_t bs_lines_append(const bs_lines_words *words, const char *path, const char *line, bs_error *err);
#endif
