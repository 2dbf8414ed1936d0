/* SPDX-License-Identifier: MIT
 * runs_fsck.c - `bsrun runs fsck`: is what lies below a results folder what it claims to be? */
#include <stdio.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"
#include "lab/store/fsck.h"

static const args_option fsck_options[] = {
    {OPT_REPAIR, NULL, 0},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"state", "STATE", 0, 0}, {"run", "RUN", 0, 0}, {"what", "WHAT", 0, 0}, {"done", "DONE", 0, 0}};

static unsigned long long count_of(const json_t *row, const char *key) {
  return (unsigned long long)json_integer_value(json_object_get(row, key));
}

static void print_sums(const bs_fsck *f, const char *root) {
  for (size_t i = 0; i < json_array_size(f->sweeps); i++) {
    const json_t *sweep = json_array_get(f->sweeps, i);
    const char *name = json_string_value(json_object_get(sweep, "sweep"));
    bs_print(stdout, "%s: %llu of %llu keys, %llu foreign, %llu torn\n", name[0] != '\0' ? name : root,
             count_of(sweep, "committed"), count_of(sweep, "planned"), count_of(sweep, "foreign"),
             count_of(sweep, "torn"));
  }
  printf("%llu of %llu runs are whole, %llu damaged, %llu torn, %llu repaired\n",
         (unsigned long long)f->whole, (unsigned long long)f->runs, (unsigned long long)f->damaged,
         (unsigned long long)f->torn, (unsigned long long)f->repaired);
}

static int32_t run(const args *a, bs_error *err) {
  const char *root = a->n_words > 0 ? a->words[0] : "results/raw";
  bs_error printing = BS_ERROR_INIT;
  bs_fsck f = {0};
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc != BS_OK) return rc;
  rc = bs_fsck_run(root, args_has(a, "repair"), &f, err);
  const int readable = format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE || format == BS_FORMAT_MD;
  const int told = rc == BS_OK || rc == BS_CORRUPT || f.closed > 0;
  if (told && (!readable || json_array_size(f.rows) > 0)) {
    const int32_t printed = bs_report_print(stdout, format, fields, 4, f.rows, &printing);
    if (rc == BS_OK && printed != BS_OK) *err = printing;
    if (rc == BS_OK) rc = printed;
  }
  if (told && readable) print_sums(&f, root);
  bs_fsck_free(&f);
  return rc;
}

const bsrun_verb runs_fsck_verb = {
    .name = "fsck",
    .summary = "check the run folders below a results folder, and repair them",
    .words = "[--repair] [DIR]",
    .about =
        "Reads every run below the results folder DIR (default: results/raw): a run counts when DONE is "
        "there\n"
        "and metrics.jsonl is what DONE has the SHA-256 of. Prints a row for each folder that is not such a\n"
        "run, a line for each sweep's plan, and a sum. Without --repair nothing is written.\n"
        "\n"
        "States: damaged (never listed or reported), torn (the process ended within a record: the part after "
        "the last whole one is incomplete), copy differs, samples lost, index differs (the cache "
        "index.jsonl; "
        "--repair "
        "removes\n"
        "it, and the next list makes it again), killed, interrupted, at work, left over, closed (this user "
        "may\n"
        "not look into it).\n",
    .examples =
        "  bsrun runs fsck\n"
        "  bsrun runs fsck --repair results/official/runs\n",
    .exits =
        "0 nothing that counts is damaged; 10 DIR is no folder, or one cannot be read or written; 13 a run "
        "is\n"
        "damaged, or a committed run has a torn tail that was not cut\n",
    .options = fsck_options,
    .run = run,
    .max_words = 1,
    .takes = ":dir",
};
