/* SPDX-License-Identifier: MIT
 * bundle.h - copies committed runs into one folder that another machine can verify: runs/<run_id>/ with all
 * files of each run, BUNDLE.json (the runs, their builds and commands) and MANIFEST (the SHA-256 of every
 * file, as sha256sum -c reads it; written last). runs/ is a results folder. */
#ifndef BS_LAB_STORE_BUNDLE_H
#define BS_LAB_STORE_BUNDLE_H
#include <jansson.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* A run's folder: root/path. */
typedef struct bs_bundle_run {
  char *root, *path;
} bs_bundle_run;

/* Creates the folder `dir`, which must not exist. Every run is verified before it is copied. On failure the
 * copied files stay, without MANIFEST: that is not a bundle. *out_runs: see bs_bundle_check. BS_USAGE: dir
 * exists, or two runs have one name; BS_NOT_FOUND, BS_CORRUPT: of a run; BS_IO. */
int32_t bs_bundle_make(const char *dir, const bs_bundle_run *runs, size_t n, json_t **out_runs,
                       bs_error *err);

/* Verifies each file against MANIFEST, and each run against its own sums. *out_runs, the caller's: [{run,
 * phase, method, status, library_build_id, commit, diff_sha256, result_key, command}]. Files that MANIFEST
 * does not name are not looked at. BS_NOT_FOUND: no MANIFEST; BS_CORRUPT, BS-BUNDLE-SUM: a file is missing or
 * is another one; BS_IO. */
int32_t bs_bundle_check(const char *dir, json_t **out_runs, bs_error *err);
#endif
