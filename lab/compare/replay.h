/* SPDX-License-Identifier: MIT
 * replay.h - compares a stored run with a later run of the same configuration. Nothing is run. */
#ifndef BS_LAB_COMPARE_REPLAY_H
#define BS_LAB_COMPARE_REPLAY_H
#include "lab/compare/stored.h"

/* Can `run` be repeated from its config.yaml? BS_UNSUPPORTED, BS-REPLAY-KIND: the run is of a ladder, a
 * comparison or a model, which have separate verbs. BS_CORRUPT, BS-REPLAY-CONFIG: config.yaml is missing or
 * differs from the record. BS_IO. */
int32_t bs_replay_check(const bs_stored_run *run, bs_error *err);

/* The parts of its configuration that are code of its author, and how `bsrun run` avoids them. */
typedef struct bs_replay_code {
  json_t *code;  /* [{key, value}]: as bs_config_code has it */
  json_t *words; /* arguments of `bsrun run` in addition to --config: they unset such keys and name plugins */
  json_t *opens; /* plugin files that the words name: the record lists each with its SHA-256 */
} bs_replay_code;
/* trusted: words and opens stay empty. Otherwise BS_PLUGIN, BS-REPLAY-CODE: the configuration opens a plugin
 * file that the record does not list with the file's SHA-256, or a file inside the bundle or results folder
 * itself. Folders of plugins are not used; a plugin that was found in one is named by its file. Free it in
 * any case. */
int32_t bs_replay_code_of(const bs_stored_run *run, int trusted, bs_replay_code *out, bs_error *err);
void bs_replay_code_free(bs_replay_code *code);

/* [{part, what, is, stored, replay}]. part: config (also input files and algorithms), env (differences),
 * verdict (status and gates), numbers (errors, losses and counts, bit by bit), time (the verdict of the
 * times, if both runs have them and may be compared). *out_unlike counts the rows that make the replay
 * another result: those of the verdict, and of simulated times, which must agree to the picosecond. Other
 * differences are only reported. The caller releases the rows. BS_NO_MEMORY. */
int32_t bs_replay_rows(const bs_stored_run *stored, const bs_stored_run *replay, json_t **out_rows,
                       uint32_t *out_unlike, bs_error *err);
#endif
