/* SPDX-License-Identifier: MIT
 * folder.h - the folders of runs below a root, and the content of one: shared by the readers and fsck. */
#ifndef BS_LAB_STORE_FOLDER_H
#define BS_LAB_STORE_FOLDER_H
#include "lab/store/metrics.h"

enum bs_folder_kind {
  BS_FOLDER_RUN,       /* has DONE */
  BS_FOLDER_OPEN,      /* a run's folder without DONE */
  BS_FOLDER_TEMPORARY, /* its name begins with a dot: never published */
  BS_FOLDER_CLOSED     /* this user may not look into it; fd is -1 */
};
/* Called with an open folder, which the walk closes, and its path relative to the root. Not BS_OK ends the
 * walk. */
typedef int32_t (*bs_folder_fn)(void *user, enum bs_folder_kind kind, int fd, const char *path,
                                bs_error *err);
/* Visits every run's folder below root, in the order of their names, at most 8 deep. Links are not followed.
 * A root that does not exist has none. BS_IO. */
int32_t bs_folders_walk(const char *root, bs_folder_fn visit, void *user, bs_error *err);
/* Opens <root>/<path> without following links below root. BS_NOT_FOUND, BS_IO. */
int32_t bs_folder_open(const char *root, const char *path, int *out_fd, bs_error *err);

/* Reads a regular file of the folder, NUL-terminated; *out NULL: there is no file. At most 1 GiB. The caller
 * frees. */
int32_t bs_folder_file(int fd, const char *name, char **out, size_t *out_size, bs_error *err);

/* A committed run as DONE promises it. */
typedef struct bs_folder_run {
  json_t *done;       /* {status, records, sha256, ...} */
  bs_metrics metrics; /* all of it good */
} bs_folder_run;
/* Reads and verifies DONE and metrics.jsonl. BS_NOT_FOUND: no DONE; BS_CORRUPT with the fault; BS_IO. Release
 * with bs_folder_run_free in any case. */
int32_t bs_folder_read(int fd, const char *path, bs_folder_run *out, bs_error *err);
void bs_folder_run_free(bs_folder_run *run);
/* read.c: the rows of a verified run, for the caller to release; NULL: no memory. */
json_t *bs_folder_rows(int fd, const char *path, const bs_folder_run *run);
/* The text of the newest line of notes.jsonl, or NULL. The caller releases it. */
json_t *bs_folder_note(int fd);
#endif
