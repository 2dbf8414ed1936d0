/* SPDX-License-Identifier: MIT
 * compare_run.h - what `bsrun compare` and `bsrun compare SPEC SPEC` share: a composed configuration with its
 * plugins, and a ladder over it that is measured and kept. */
#ifndef BSRUN_COMPARE_RUN_H
#define BSRUN_COMPARE_RUN_H
#include "bsrun/run_host.h"
#include "lab/run/ladder.h"

typedef struct compare_run {
  bsrun_request request;
  run_host host; /* host.ladders: the rows */
  lab_run run;
  bs_node *config;
  char *cache, *command, *folder; /* folder: of what was measured; NULL: nothing was */
  uint32_t passes[BS_ARM_WORKS_];
  size_t n_passes;
  double seconds;
} compare_run;

/* Reads --phase, --seconds and --cache (`seconds`: what stands for the second where it is not given),
 * composes the configuration of the other options and opens its plugins. The caller frees, also after an
 * error. */
int32_t compare_run_open(const args *a, double seconds, compare_run *run, bs_error *err);
/* lab_run_ladders with what was read. */
int32_t compare_run_measure(compare_run *run, int64_t most, const bs_ladder_options *options, bs_error *err);
/* The line that says where it is kept, below a table. */
void compare_run_print_folder(const compare_run *run, int format);
void compare_run_free(compare_run *run);
#endif
