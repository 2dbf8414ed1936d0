/* SPDX-License-Identifier: MIT
 * why.c - `bsrun why RUN`: what became of a run. */
#include <stdio.h>
#include <stdlib.h>

#include "bsrun/bsrun.h"
#include "bsrun/runs.h"
#include "core/base/error.h"
#include "lab/store/why.h"

const args_option why_options[] = {
    {"out", 0, "DIR", 0, "the results folder; default: results/raw"},
    {"output", 'o', "FORMAT", 0, "table, md, csv, json or jsonl"},
    {"wide", 0, NULL, 0, "a table of all columns, however wide"},
    {"help", 'h', NULL, 0, "this help"},
};
const size_t why_n_options = sizeof why_options / sizeof why_options[0];

static const bs_field fields[] = {{"what", "WHAT", 0, 0}, {"answer", "ANSWER", 0, 0}};

void help_why(void) {
  printf(
      "usage: bsrun why RUN [options]\n\n"
      "Says what became of a run: committed, at work, interrupted, killed or damaged; its error and the "
      "gates\n"
      "that did not pass; of a run that died what each rank did last, from the flight recorder in its "
      "folder;\n"
      "and what to do next. RUN is a run's folder, its run_id, or the beginning of one. Of a plugin\n"
      "`bsrun plugins why` tells the same.\n\n"
      "Options:\n");
  args_print_options(why_options, why_n_options);
  printf(
      "\nexamples:\n"
      "  bsrun why 20260131_120000\n"
      "  bsrun why results/raw/phase1_forward/dense/ID -o json\n\n"
      "exit codes: 0 told; 2 several runs are meant; 5 there is no such run; 10 its folder cannot be read\n");
}

static int32_t run(const args *a, bs_error *err) {
  char *root = NULL, *path = NULL;
  json_t *rows = NULL;
  int format;
  if (a->n_words != 1) {
    bs_error_set(err, BS_USAGE, "BS-USE-WORD", "why takes one run");
    bs_error_hint(err, "bsrun why RUN; bsrun runs list shows them");
    return BS_USAGE;
  }
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = runs_find(a, a->words[0], &root, &path, err);
  if (rc == BS_OK) rc = bs_run_why(root, path, &rows, err);
  if (rc == BS_OK) rc = bs_report_print(stdout, format, fields, 2, rows, err);
  json_decref(rows);
  free(root);
  free(path);
  return rc;
}

int verb_why(int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  args a;
  int32_t rc = args_parse(argc, argv, why_options, why_n_options, &a, &err);
  if (rc == BS_OK && args_has(&a, "help")) {
    help_why();
  } else if (rc == BS_OK) {
    rc = run(&a, &err);
  }
  args_free(&a);
  return rc == BS_OK ? 0 : bsrun_fail(&err);
}
