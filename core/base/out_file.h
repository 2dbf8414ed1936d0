/* SPDX-License-Identifier: MIT
 * out_file.h - the one way to write a file that the user named. A regular or new file is written under
 * another name in the same folder and renamed at the end, so that no reader sees half of it. A symbolic link
 * is followed. "-" is stdout. Anything else (a device, a FIFO, a terminal) is written to and never replaced.
 */
#ifndef BS_CORE_BASE_OUT_FILE_H
#define BS_CORE_BASE_OUT_FILE_H
#include <stddef.h>

#include "blockshock/blockshock.h"

typedef struct bs_out_file {
  int fd;
  char *beside, *target; /* the first becomes the second at the end; NULL: written in place */
} bs_out_file;

/* All return 0 or an errno. */
BS_API int bs_out_open(const char *path, bs_out_file *out);
BS_API int bs_out_write(const bs_out_file *out, const void *data, size_t size);
/* why: an errno of before, which drops the file. durable: it is on the disk before anything is renamed. */
BS_API int bs_out_close(bs_out_file *out, int why, int durable);
/* The three of them. */
BS_API int bs_out_text(const char *path, const char *data, size_t size);

/* Renames within the folder, but over a regular file alone: EEXIST. For files whose names are our own. */
BS_API int bs_out_rename(int folder_fd, const char *from, const char *to);

/* Does the path mean this program's stdout: "-", or what stdout is by another name? */
BS_API int bs_out_is_stdout(const char *path);
/* From now on "-" alone writes to stdout, and all other prints go to stderr. A second call changes nothing.
 */
BS_API int bs_out_claim_stdout(void);
#endif
