/* SPDX-License-Identifier: MIT
 * run_host.h - bsrun as the host of a run (lab/run): notes and progress on stderr, log.txt, signals, the rank
 * board, and what a table will be made of. */
#ifndef BSRUN_RUN_HOST_H
#define BSRUN_RUN_HOST_H
#include "bsrun/bsrun.h"
#include "lab/run/run.h"

typedef struct run_host {
  lab_run_host table; /* for lab_run; points here: not to be moved */
  int quiet, verbose;
  const char *cache; /* file of the machine's constants; NULL: none. Read once, when first asked for */
  int cache_read;
  json_t *constants;
  bs_notes told; /* of all points, each once on stderr */
  bsrun_progress progress;
  bs_progress_fn show; /* NULL: no progress */
  json_t *rows;        /* for the table */
  json_t *records;     /* of the runs that exist, in order, for the screen */
  json_t *folders;     /* paths of the runs that exist, in order */
  json_t *ladders;     /* rows of --method auto, of all points */
} run_host;

/* quiet, verbose and cache are set. The caller closes. */
void run_host_open(run_host *host);
void run_host_close(run_host *host);
#endif
