/* SPDX-License-Identifier: MIT
 * lines.h - files of JSON lines in the user's cache folder. Several processes may append to one at the same
 * time, under a lock; nothing else changes them. Every line is checked on reading, because users may have
 * edited a file and crashes may have cut it. */
#ifndef BS_LAB_STORE_LINES_H
#define BS_LAB_STORE_LINES_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* The ids of errors of one such file, and the advice for them. */
typedef struct bs_lines_words {
  const char *io_id, *lock_id; /* "BS-TUNE-IO", "BS-TUNE-LOCK" */
  const char *hint;            /* "--tune-cache FILE chooses another place, --tune-cache off none" */
  int below_results;           /* 1: the file is below a results folder, where links are not followed */
} bs_lines_words;

/* Reads the file's text; for one above 16 MiB only the end, from the start of a line: later lines are the
 * valid ones. *out NULL: there is no file. *out_unread: bytes before the text. The caller frees. BS_IO: the
 * file cannot be read, or is not a regular file. */
int32_t bs_lines_read(const bs_lines_words *words, const char *path, char **out, size_t *out_size,
                      uint64_t *out_unread, bs_error *err);
enum bs_line { BS_LINE_BROKEN, BS_LINE_FOREIGN, BS_LINE_HOLDS };
/* Judges a line's object, which may be anything; NULL: not JSON. */
typedef enum bs_line (*bs_lines_judge_fn)(void *user, const json_t *entry);
typedef struct bs_lines {
  const bs_lines_words *words;
  char *path;      /* NULL: none, nothing is written */
  json_t *entries; /* those that hold, in order */
  size_t foreign, broken;
  uint64_t unread; /* bytes before the last 16 MiB, which are all that is read */
} bs_lines;
/* The file's lines; path NULL: an empty one that writes nowhere. BS_IO when a file is there and cannot be
 * read (out is usable then, and writes nowhere). Close it in any case. */
int32_t bs_lines_open(const bs_lines_words *words, const char *path, bs_lines_judge_fn judge, void *user,
                      bs_lines *out, bs_error *err);
void bs_lines_close(bs_lines *lines);
/* Nothing is written from here on; the entries stay. */
void bs_lines_forget_path(bs_lines *lines);
/* mkdir -p of the folder that holds `path`. BS_IO. */
int32_t bs_lines_folders(const bs_lines_words *words, const char *path, bs_error *err);
/* Appends one entry as one line, in one write under a lock; folders are created. A line that another process
 * left incomplete is ended first. BS_IO; lock_id: another process held the lock for two seconds. */
int32_t bs_lines_append(const bs_lines *lines, const json_t *entry, bs_error *err);
#endif
