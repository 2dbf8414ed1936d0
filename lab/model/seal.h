/* SPDX-License-Identifier: MIT
 * seal.h - predictions that are written before anything is measured (`bsrun sim seal`), and how far they were
 * from the measured times (`bsrun sim score`). */
#ifndef BS_LAB_MODEL_SEAL_H
#define BS_LAB_MODEL_SEAL_H
#include <jansson.h>

#include "blockshock/blockshock.h"

enum { BS_SEAL_COMMANDS = 256 };

/* Reads a grid: a YAML map of options of `model bench` with their values, and `model`. A value is a text or a
 * list of texts; null stands for an option without a value. *out_commands: a list of the combinations, each
 * the list of its words, ["gpt2", "--world-size", "2", ...]; the last option varies fastest. The caller
 * releases it. BS_INPUT, BS-SEAL-GRID: no `model`, no value, or over BS_SEAL_COMMANDS combinations. */
int32_t bs_seal_grid(const char *path, json_t **out_commands, bs_error *err);

/* Sets seal["sha256"], the hash of all other fields. *out_text, malloc'd, is the seal as a file has it, and
 * out_hex the hash of that text, which is to be published. */
int32_t bs_seal_text(json_t *seal, char **out_text, char out_hex[65], bs_error *err);

/* Reads a seal and checks its fields and its hash. out_hex is the hash of the file, as it was published. The
 * caller releases *out. BS_INPUT: BS-SEAL-BAD, no seal; BS-SEAL-CHANGED, its fields were changed. */
int32_t bs_seal_read(const char *path, json_t **out, char out_hex[65], bs_error *err);

/* Adds to a cell what was measured: `measured` is a row of `model bench`, or NULL with the reason in `why`.
 * *out is the row of a score: the fields of the cell, measured_s, low_s, high_s, error_percent, `why` (what
 * disturbed it, or that ranks shared cores), and `word`: "covered", "UNCLEAR" (the machine was disturbed),
 * "no prediction" or "not measured". BS_INPUT, BS-SEAL-MODEL: the measured run has other work than the sealed
 * one. */
int32_t bs_seal_judge(const json_t *cell, const json_t *measured, const char *why, json_t **out,
                      bs_error *err);

/* {registered, measured, covered, within_10, within_15, within_30 (cells that are covered and whose error is
 * at most so many percent), mean_percent (of |error|), bias_percent, worst_percent, worst (the cell's number
 * from 1)} of rows of bs_seal_judge. Without a covered cell the last four are null. */
json_t *bs_seal_score(const json_t *rows);
#endif
