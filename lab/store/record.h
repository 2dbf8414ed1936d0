/* SPDX-License-Identifier: MIT
 * record.h - the line of metrics.jsonl (docs/runs.md lists every field) and the key that names a run. */
#ifndef BS_LAB_STORE_RECORD_H
#define BS_LAB_STORE_RECORD_H
#include "lab/experiment.h"
#include "lab/result.h"

/* sha256 over the stored configuration (without run_id and config_paths, and the results folders), plugin
 * sums, library build id, world size, seed and the contents of files that workload options name. These files
 * are appended to out_inputs (NULL: not wanted) as {key, file, sha256}. */
int32_t bs_record_key(const bs_experiment *experiment, const bs_node *config, const json_t *plugins,
                      uint32_t world_size, json_t *out_inputs, char out_key[65], bs_error *err);

/* The first fields of every record. The caller owns it. NULL: out of memory. */
json_t *bs_record_start(const bs_experiment *experiment, const char *run_id, const json_t *plugins);
/* Adds the phase's fields. Unknown keys are copied; a key that is already set is kept, except that the phase
 * knows better what ran (N, B, K, world_size). Then adds the verdict. */
int32_t bs_record_finish(json_t *record, const bs_phase_result *result, bs_error *err);
/* The record of a phase that failed: status "failed" and the error. */
int32_t bs_record_failed(json_t *record, const bs_error *why);
/* A finite number, else null; NaN and infinities never reach JSON. */
json_t *bs_record_number(double value);
/* Moves the fields of an object, which is released, into the record; NULL: the object could not be made. */
int32_t bs_record_add(json_t *record, json_t *fields, bs_error *err);
#endif
