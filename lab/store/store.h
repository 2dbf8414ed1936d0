/* SPDX-License-Identifier: MIT
 * store.h - run folders: <out_dir>[/<group>]/<phase>/<method>/<run_id>/ with config.yaml, env.json, seed.txt,
 * metrics.jsonl, log.txt, lock and, last, DONE (docs/runs.md). A run counts only if DONE exists and its sum
 * of metrics.jsonl is right; config.yaml, env.json and seed.txt are copies of data in the first record. One
 * process writes a run; several may write below one out_dir. */
#ifndef BS_LAB_STORE_STORE_H
#define BS_LAB_STORE_STORE_H
#include <jansson.h>

#include "lab/yaml/config.h"

typedef struct bs_run bs_run;

typedef struct bs_run_request {
  const char
      *out_dir; /* "off" (bs_store_keeps): the folder is a temporary one, removed when the run is closed */
  const char *group; /* NULL: none */
  const char *phase; /* folder names: see bs_store_check_name */
  const char *method;
  const char *run_id; /* NULL: made from the time and the key */
  const char *key;    /* 64 hex digits */
  bs_node *config;    /* run_id is written into it */
  const char *env;    /* text of env.json */
  json_t *argv;       /* words of a command that runs only this; NULL: those of this process */
  uint64_t seed;
} bs_run_request;

/* The schema of records that this version writes. */
enum { BS_RECORD_SCHEMA = 2 };

/* Creates the folder with everything except the records: a temporary folder, locked, then one rename that
 * never replaces; a clash of names gets the suffix -2, -3, ... Nothing is synced before bs_store_commit,
 * because a run without DONE does not count. On failure nothing stays (BS_IO). Blocks SIGINT and SIGTERM
 * meanwhile. */
int32_t bs_store_begin(const bs_run_request *request, bs_run **out_run, bs_error *err);
/* Is anything kept below this out_dir? Not below "off". */
int bs_store_keeps(const char *out_dir);
/* Will the folder stay? */
int bs_run_is_kept(const bs_run *run);
const char *bs_run_get_id(const bs_run *run);
const char *bs_run_get_path(const bs_run *run); /* out_dir/.../run_id */
int bs_run_get_fd(const bs_run *run);           /* of the folder, for a signal handler */
/* One line, one write, not synced: bs_store_commit makes all lines last. A line that cannot be written whole
 * is cut off again. The first record of a run also gets schema, config (text), env, argv and result_key. */
int32_t bs_store_append(bs_run *run, const json_t *record, bs_error *err);
/* Writes samples.bin (lab/store/samples.h makes the bytes). Once a run; DONE has its sum. */
int32_t bs_store_samples(bs_run *run, const void *data, size_t size, bs_error *err);
/* Syncs the records, writes DONE {schema, status, records, sha256 of metrics.jsonl and samples.bin, keys,
 * after} and closes. status: "ok", "failed", ... The run is closed in every case; if DONE cannot be written
 * the folder is removed. */
int32_t bs_store_commit(bs_run *run, const char *status, bs_error *err);
/* Closes and removes a run that has reported nothing. */
void bs_store_abandon(bs_run *run);

/* Close a run that a signal ended: INTERRUPTED, no DONE. */
void bs_store_interrupt(bs_run *run, int signal_number);

/* [A-Za-z0-9._-]{1,64}, the first no dot and no dash: BS_USAGE naming the option otherwise. */
int32_t bs_store_check_name(const char *option, const char *name, bs_error *err);
/* UTC YYYYMMDD_HHMMSS. */
void bs_store_stamp(char out_stamp[16]);
/* Async-signal-safe: leave INTERRUPTED in the folder. */
void bs_store_mark_interrupted(int run_fd, int signal_number);
/* Writes all of it to the descriptor: 0, or the errno. */
int bs_store_write_all(int fd, const char *data, size_t size);
#endif
