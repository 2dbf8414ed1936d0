/* SPDX-License-Identifier: MIT
 * notes.h - users' remarks on runs: dated notes in a run's folder, and names of baseline runs in
 * <root>/baselines.json. Neither changes a run. */
#ifndef BS_LAB_STORE_NOTES_H
#define BS_LAB_STORE_NOTES_H
#include <jansson.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* "plan", "observation", "retrospective"; NULL ends the list. */
extern const char *const bs_note_kinds[];
/* Appends {time, date, kind, text} to notes.jsonl of a committed run. BS_NOT_FOUND, BS_IO; BS_USAGE for an
 * empty text or one that is not UTF-8. */
int32_t bs_run_note(const char *root, const char *run, const char *kind, const char *text, bs_error *err);
/* All notes of a run, the oldest first; lines that cannot be read are left out. The caller's. */
int32_t bs_run_notes(const char *root, const char *run, json_t **out_notes, bs_error *err);

/* Names a committed run; a name that is taken is moved to this run. */
int32_t bs_baseline_set(const char *root, const char *name, const char *run, bs_error *err);
/* {name: run folder, relative to root}; empty without a file. The caller's. BS_CORRUPT: it is not such an
 * object; BS_IO. */
int32_t bs_baselines_read(const char *root, json_t **out_names, bs_error *err);
#endif
