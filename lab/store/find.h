/* SPDX-License-Identifier: MIT
 * find.h - finds one run by the text that a user types, and rows by a condition. */
#ifndef BS_LAB_STORE_FIND_H
#define BS_LAB_STORE_FIND_H
#include <jansson.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* A short id: the first digits of the SHA-256 of a run's path below its root. */
enum { BS_SHORT_ID = 13 };
void bs_run_short_id(const char *run, char out[BS_SHORT_ID]);
/* The number of digits that tell all runs of these rows (bs_runs_index) apart: 6 or more. */
size_t bs_run_short_digits(const json_t *rows);

/* Finds a run. `text` is its folder (as printed after "run:", or relative to root), or "latest" (the newest
 * committed run), or a beginning of a run_id, of a key or of a short id that is unique below root; committed
 * or not. *out_root is a copy of root and *out_run the path from there. For a folder outside root they are
 * its parent folder and its name. The caller frees both. BS_NOT_FOUND with the nearest, BS_USAGE for several
 * matches, BS_IO. */
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
