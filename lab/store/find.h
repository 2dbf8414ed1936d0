/* SPDX-License-Identifier: MIT
 * find.h - one run by what a person types, and rows by a condition. */
#ifndef BS_LAB_STORE_FIND_H
#define BS_LAB_STORE_FIND_H
#include <jansson.h>
#include <stdint.h>

#include "blockshock/abi.h"

/* `text` is a run's folder (as printed behind "run:", or relative to root), its run_id, or the beginning of a
 * run_id that no other run below root has; committed or not. *out_root is a copy of root and *out_run the
 * path from there; of a folder that does not lie below root they are the folder above it and its name. The
 * caller frees both. BS_NOT_FOUND with the nearest, BS_USAGE where several runs are meant, BS_IO. */
int32_t bs_run_find(const char *root, const char *text, char **out_root, char **out_run, bs_error *err);

/* A condition on a row of bs_runs_index: KEY=VALUE, KEY!=VALUE, KEY>NUMBER, <, >=, <=; a key of regions as
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
