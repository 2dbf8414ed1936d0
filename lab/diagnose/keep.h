/* SPDX-License-Identifier: MIT
 * keep.h - stores a diagnosis as a run folder (docs/runs.md): phase `diagnose`, one record whose field
 * `diagnosis` has all results. It is written at the end. */
#ifndef BS_LAB_DIAGNOSE_KEEP_H
#define BS_LAB_DIAGNOSE_KEEP_H
#include "lab/run/run.h"

/* Stores the diagnosis of a layer with its composed tree. *out_folder: malloc'd; NULL: nothing was stored. */
int32_t bs_diagnose_keep(lab_run *run, const bs_node *config, json_t *diagnosis, char **out_folder,
                         bs_error *err);
#endif
