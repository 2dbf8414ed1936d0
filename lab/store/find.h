/* SPDX-License-Identifier: MIT
 * find.h - one run by what a person types, and rows by a condition. */
#ifndef BS_LAB_STORE_FIND_H
#define BS_LAB_STORE_FIND_H
#include <jansson.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* A short id: the first digits of the SHA-256 of a run's path below its root. */
enum { BS_SHORT_ID = 13 };
void bs_run_short_id(const char *run, char out[BS_SHORT_ID]);
/* How many digits tell all runs of these rows (bs_runs_index) apart: 6, or as many more as it takes. */
size_t bs_run_short_digits(const json_t *rows);

/* `text` is a run's folder (as printed behind "run:", or relative to root), its run_id, the beginning of a
 * run_id, of its key or of a short id that no other run below root has, committed or not; or "latest", the
 * newest committed run. *out_root is a copy of root and *out_run the path from there; of a folder that does
 * not lie below root they are the folder above it and its name. The caller frees both. BS_NOT_FOUND,
 * BS_USAGE where several runs are meant, BS_IO. */
int32_t bs_run_find(const char *root, const char *text, char **out_root, char **out_run, bs_error *err);

/* "time" of "phase1_forward": a phase as tables and --where name it; other names are given back. */
const char *bs_phase_word(const char *phase);

/* A condition on a row of bs_runs_index, KEY being its name or the head of its column in `runs list`:
 * KEY=VALUE, KEY!=VALUE, KEY>NUMBER, <, >=, <=; a key of regions as
 * regions.forward; VALUE null: no value. BS_USAGE for an unknown key, no operator, or an order between
 * texts. */
typedef struct bs_condition {
  char key[64];
  char how[3]; /* "=", "!=", ">", "<", ">=", "<=" */
  const char *value;
  double number;
  int is_number;
} bs_condition;
int32_t bs_condition_parse(const char *text, bs_condition *out, bs_error *err);
int bs_condition_holds(const bs_condition *condition, const json_t *row);
#endif
