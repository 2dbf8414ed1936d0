/* SPDX-License-Identifier: MIT
 * runs_bundle.c - `bsrun runs bundle`: runs copied into a folder that another machine can verify. */
#include <stdio.h>
#include <stdlib.h>

#include "bsrun/bsrun.h"
#include "bsrun/runs.h"
#include "core/base/error.h"
#include "lab/store/bundle.h"

static const args_option bundle_options[] = {
    {OPT_TO, "make the bundle in this folder, which must be new", ARGS_FOLDER},
    {OPT_CHECK, NULL, 0},
    {OPT_OUT, NULL, ARGS_STORE},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"run", "run", 0, 0},
    {"phase", "phase", 0, 0},
    {"method", "method", 0, 0},
    {"status", "status", 0, 0},
    {"commit", "commit", 0, 0},
    {"command", "command", 0, 0},
    {"diff_sha256", "changes of the commit", BS_FIELD_WIDE, 0},
    {"library_build_id", "build", BS_FIELD_WIDE, 0},
    {"result_key", "result key", BS_FIELD_WIDE, 0},
};

static int32_t make(const args *a, const char *to, json_t **out_runs, bs_error *err) {
  bs_bundle_run *runs = calloc(a->n_words, sizeof *runs);
  int32_t rc = runs != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  for (size_t i = 0; rc == BS_OK && i < a->n_words; i++)
    rc = runs_find(a, a->words[i], &runs[i].root, &runs[i].path, err);
  if (rc == BS_OK) rc = bs_bundle_make(to, runs, a->n_words, out_runs, err);
  for (size_t i = 0; runs != NULL && i < a->n_words; i++) {
    free(runs[i].root);
    free(runs[i].path);
  }
  free(runs);
  return rc;
}

static int32_t run(const args *a, bs_error *err) {
  const char *to = args_value(a, "to"), *check = args_value(a, "check");
  json_t *runs = NULL;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK && ((to == NULL) == (check == NULL) || (a->n_words > 0) != (to != NULL))) {
    rc = bs_error_set(err, BS_USAGE, "BS-USE-WORD", "bundle takes runs and --to, or --check alone");
    bs_error_hint(err, "bsrun runs bundle RUN... --to DIR; bsrun runs bundle --check DIR");
  }
  if (rc == BS_OK) rc = to != NULL ? make(a, to, &runs, err) : bs_bundle_check(check, &runs, err);
  if (rc == BS_OK) rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], runs, err);
  json_decref(runs);
  return rc;
}

const bsrun_verb runs_bundle_verb = {
    .name = "bundle",
    .summary = "copy runs into a folder that another machine can verify",
    .words =
        "RUN... --to DIR [options]\n"
        "--check DIR [options]",
    .about =
        "Copies committed runs with all their files into the new folder DIR: runs/RUN_ID/, BUNDLE.json "
        "(what\n"
        "the runs are, commit and build of each, its command) and MANIFEST, the SHA-256 of every file as\n"
        "sha256sum -c reads it. --check verifies every file and every run, on any machine, and lists the\n"
        "runs. DIR/runs is a results folder: runs list, report and replay read it with --out DIR/runs.\n",
    .examples =
        "  bsrun runs bundle 20260131_120000 20260131_120500 --to paper\n"
        "  bsrun runs bundle --check paper\n",
    .exits =
        "0 done; 2 usage, or DIR is there; 4 there is no such run or bundle; 10 a folder cannot be\n"
        "read or written; 13 a file of the bundle, or a run, is damaged\n",
    .options = bundle_options,
    .run = run,
    .max_words = SIZE_MAX,
    .takes = "runs :dir",
};
