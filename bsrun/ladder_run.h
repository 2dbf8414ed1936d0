/* SPDX-License-Identifier: MIT
 * ladder_run.h - what `bsrun ladder` and `bsrun compare --a --b` share: a composed configuration with its
 * plugins, and a ladder over it that is measured and kept. */
#ifndef BSRUN_LADDER_RUN_H
#define BSRUN_LADDER_RUN_H
#include "bsrun/run_host.h"
#include "lab/run/ladder.h"

typedef struct ladder_run {
  bsrun_request request;
  run_host host; /* host.ladders: the rows */
  lab_run run;
  bs_node *config;
  char *cache, *command, *folder; /* folder: of what was measured; NULL: nothing was */
  uint32_t passes[BS_ARM_WORKS_];
  size_t n_passes;
  double seconds;
} ladder_run;

/* Reads --pass, --seconds and --cache (`seconds`: what stands for the second where it is not given), composes
 * the configuration of the other options and opens its plugins. The caller frees, also after an error. */
int32_t ladder_run_open(const args *a, double seconds, ladder_run *run, bs_error *err);
/* lab_run_ladders with what was read. */
int32_t ladder_run_measure(ladder_run *run, const char *phase, int64_t most, const bs_ladder_options *options,
                           bs_error *err);
/* The line that says where it is kept, below a table. */
void ladder_run_print_folder(const ladder_run *run, int format);
void ladder_run_free(ladder_run *run);
#endif
