/* SPDX-License-Identifier: MIT
 * ladder.h - ladders that are measured and kept as one run folder like any other: a record for each pass,
 * with every sample. */
#ifndef BS_LAB_RUN_LADDER_H
#define BS_LAB_RUN_LADDER_H
#include "lab/ladder/ladder.h"
#include "lab/run/run.h"

typedef struct lab_ladder_request {
  const uint32_t *passes; /* enum bs_arm_work */
  size_t n_passes;
  int64_t most;              /* number of measured rungs, others are only predicted; 0: nothing is measured or
                              * stored */
  bs_ladder_options options; /* all except the fields that the run and the pass set */
} lab_ladder_request;

/* The phase of the records, and the folder of the runs. In older ones it is "ladder" where methods were
 * compared. */
#define LAB_LADDER_PHASE "compare"

/* Makes, measures and stores the ladder of each pass over a composed configuration; its rows (bs_ladder_rows)
 * are appended to `rows`. *out_folder: of the run, malloc'd; NULL: nothing was stored. With options.specs
 * each side must run; else one rung must. */
int32_t lab_run_ladders(lab_run *run, bs_node *config, const lab_ladder_request *request, json_t *rows,
                        char **out_folder, bs_error *err);
#endif
