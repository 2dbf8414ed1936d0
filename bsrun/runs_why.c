/* SPDX-License-Identifier: MIT
 * runs_why.c - `bsrun runs why RUN`: what became of a run. */
#include <stdio.h>
#include <stdlib.h>

#include "bsrun/bsrun.h"
#include "bsrun/runs.h"
#include "core/base/error.h"
#include "lab/store/why.h"

static const args_option why_options[] = {
    {OPT_OUT, NULL, ARGS_STORE},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field fields[] = {{"what", "WHAT", 0, 0}, {"answer", "ANSWER", 0, 0}};

static int32_t run(const args *a, bs_error *err) {
  char *root = NULL, *path = NULL;
  json_t *rows = NULL;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = runs_find(a, a->words[0], &root, &path, err);
  if (rc == BS_OK) rc = bs_run_why(root, path, &rows, err);
  if (rc == BS_OK) rc = bs_report_print(stdout, format, fields, 2, rows, err);
  json_decref(rows);
  free(root);
  free(path);
  return rc;
}

const bsrun_verb runs_why_verb = {
    .name = "why",
    .summary = "how a run ended, and what to do next",
    .words = "RUN [options]",
    .about =
        "Says how a run ended: committed, at work, interrupted, killed or damaged; its error and the\n"
        "gates that did not pass; for a run that died what each rank did last, from the flight recorder\n"
        "in its folder; and what to do next. RUN is a run's folder, its run_id, or the beginning of one.\n"
        "`bsrun plugins why` does the same for a plugin.\n",
    .examples =
        "  bsrun runs why 20260131_120000\n"
        "  bsrun runs why results/raw/phase1_forward/dense/ID -o json\n",
    .exits = "0 done; 2 several runs are meant; 4 there is no such run; 10 its folder cannot be read\n",
    .options = why_options,
    .run = run,
    .min_words = 1,
    .max_words = 1,
    .takes = "runs :dir",
};
