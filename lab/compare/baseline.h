/* SPDX-License-Identifier: MIT
 * baseline.h - named runs to hold others against: <root>/baselines.json, {"name": "path of the run below
 * root"}; and a comparison with one as a JUnit file. */
#ifndef BS_LAB_COMPARE_BASELINE_H
#define BS_LAB_COMPARE_BASELINE_H
#include <jansson.h>

#include "blockshock/blockshock.h"

/* The path of the run, malloc'd. BS_NOT_FOUND with the nearest name; BS_CORRUPT: the file is not such an
 * object. */
int32_t bs_baseline_find(const char *root, const char *name, char **out_run, bs_error *err);
/* The first arm that is SLOWER, except a dense layer next to the method; and the first that the run lacks.
 * rows: of bs_stored_rows, with the baseline as A. NULL: none. */
const json_t *bs_baseline_slower(const json_t *rows);
const json_t *bs_baseline_missing(const json_t *rows);
/* Writes one test suite with one test case a row and replaces the file. SLOWER fails, except for a dense
 * layer next to the method; UNCLEAR is skipped with its cause; MISSING is an error. BS_IO. */
int32_t bs_junit_write(const char *path, const char *suite, const json_t *rows, bs_error *err);
#endif
