/* SPDX-License-Identifier: MIT
 * index.h - <root>/index.jsonl: the rows of each committed run, so that a list of thousands of runs reads one
 * file. It is only a cache. An entry is valid if its line has the right CRC-32C, and if DONE, metrics.jsonl
 * and notes.jsonl of the run have the stored inode, size and time of change. A root that cannot be written
 * has no index, without a message. */
#ifndef BS_LAB_STORE_INDEX_H
#define BS_LAB_STORE_INDEX_H
#include <jansson.h>

#include "core/base/text.h"

typedef struct bs_rows_index {
  json_t *entries; /* {run: {stamp, rows}} of the file */
  size_t lines;    /* that the file has */
  size_t used;     /* that still count */
  size_t bad;      /* lines without a right checksum, as older versions wrote them: the file is written
                    * again */
  bs_text added;   /* lines to be added */
} bs_rows_index;
void bs_rows_index_open(bs_rows_index *index, const char *root);
/* The rows of the run in the open folder `fd`, for the caller to release; NULL: they must be read. */
json_t *bs_rows_index_find(bs_rows_index *index, int fd, const char *run);
/* Adds rows that were read; borrowed, NULL: none. */
void bs_rows_index_add(bs_rows_index *index, int fd, const char *run, const json_t *rows);
void bs_rows_index_remove(const char *root);
/* Releases it. keep: writes the added lines; removes a file with bad or mostly stale lines, so that the next
 * list makes it again. */
void bs_rows_index_close(bs_rows_index *index, const char *root, int keep);
#endif
