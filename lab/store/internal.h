/* SPDX-License-Identifier: MIT
 * internal.h - shared parts of store.c and commit.c: an open run, and writing below its folder. */
#ifndef BS_LAB_STORE_INTERNAL_H
#define BS_LAB_STORE_INTERNAL_H
#include <signal.h>
#include <sys/types.h>

#include "lab/store/sha256.h"
#include "lab/store/store.h"

struct bs_run {
  int parent_fd; /* the method's folder */
  int fd;        /* the run's own */
  int metrics_fd;
  int lock_fd;
  uint64_t records;
  off_t metrics_size;
  bs_sha256 metrics_sum; /* of what was appended */
  char samples_sum[65];  /* of samples.bin; "": no such file */
  json_t *first;         /* fields that the first record gets: schema, config, env, argv, result_key */
  json_t *keys;          /* for DONE: request_key, result_key */
  int recorded;          /* the flight recorder writes into the folder */
  uint64_t steal;        /* ticks that other guests took before the run; of all processors */
  char id[96];
  char *path;
  char *scratch; /* the parent folder, which is removed with the run; NULL: the run is kept */
};

/* BS_IO with a hint that depends on errno. */
int32_t bs_store_io_error(bs_error *err, int saved_errno, const char *what, const char *path);
/* Opens a results folder, and creates it with its parents if missing; it may be a link. */
int32_t bs_store_open_root(const char *out_dir, int *out_fd, bs_error *err);
/* A new file of the folder `dir`; synced: it is on the disk when this returns. */
int32_t bs_store_write_file(int dir, const char *name, const char *data, size_t size, int synced,
                            bs_error *err);
/* Blocks SIGINT and SIGTERM. */
void bs_store_hold_signals(sigset_t *old);
/* Removes the files that the store writes into a run's folder. */
void bs_store_remove_files(int dir);
/* Closes all of it and frees it; drops the lock last. */
void bs_store_close(bs_run *run);
#endif
