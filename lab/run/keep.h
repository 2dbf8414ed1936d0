/* SPDX-License-Identifier: MIT
 * keep.h - ladders that were measured, as one run folder like any other: a record for each, with every
 * sample.
 */
#ifndef BS_LAB_RUN_KEEP_H
#define BS_LAB_RUN_KEEP_H
#include "lab/ladder/ladder.h"
#include "lab/run/run.h"

typedef struct lab_keeper lab_keeper;
/* Before anything is measured. The caller closes, also after an error. run outlives the keeper. */
int32_t lab_keep_open(lab_run *run, lab_keeper **out_keeper, bs_error *err);
/* Appends the record of a ladder that was measured; `rows` are its rows. One that was not leaves nothing. */
int32_t lab_keep_ladder(lab_keeper *keeper, const bs_ladder *ladder, bs_node *config, json_t *rows,
                        bs_error *err);
/* Writes DONE, with status failed when rc is an error. The folder's path is the caller's to free, NULL: none.
 */
int32_t lab_keep_close(lab_keeper *keeper, int32_t rc, char **out_path, bs_error *err);
#endif
