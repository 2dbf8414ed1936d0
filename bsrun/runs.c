/* SPDX-License-Identifier: MIT
 * runs.c - the table of `bsrun runs`, and the two verbs that write: note and baseline. */
#include "bsrun/runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"
#include "lab/store/env.h"
#include "lab/store/find.h"
#include "lab/store/notes.h"

const char *runs_root(const args *a) {
  const char *out = args_value(a, "out");
  return out != NULL ? out : "results/raw";
}

int32_t runs_find(const args *a, const char *text, char **out_root, char **out_run, bs_error *err) {
  return bs_run_find(runs_root(a), text, out_root, out_run, err);
}

void runs_add(json_t *rows, const char *what, const char *answer) {
  json_array_append_new(rows, json_pack("{s:o, s:o}", "what", bs_env_string(what), "answer",
                                        answer != NULL ? bs_env_string(answer) : json_null()));
}

static const args_option note_options[] = {
    {OPT_OUT, NULL, ARGS_STORE},
    ARGS_HELP,
};

static int32_t run_note(const args *a, bs_error *err) {
  char *root, *run;
  size_t kind = 0, kinds = 0;
  while (bs_note_kinds[kinds] != NULL) kinds++;
  while (kind < kinds && strcmp(a->words[1], bs_note_kinds[kind]) != 0) kind++;
  if (kind == kinds) return bsrun_unknown("kind of note", a->words[1], bs_note_kinds, kinds, err);
  int32_t rc = runs_find(a, a->words[0], &root, &run, err);
  if (rc == BS_OK) rc = bs_run_note(root, run, bs_note_kinds[kind], a->words[2], err);
  if (rc == BS_OK) bs_print(stdout, "%s of %s/%s is noted\n", bs_note_kinds[kind], root, run);
  free(root);
  free(run);
  return rc;
}

const bsrun_verb runs_note_verb = {
    .name = "note",
    .words = "RUN plan|observation|retrospective TEXT",
    .summary = "add a dated note to a committed run",
    .about =
        "RUN is a run's folder, its run_id, or the beginning of one. Notes are only ever added to; the run\n"
        "and its sums do not change. `runs show` has all notes, `runs list` the newest.\n",
    .examples = "  bsrun runs note 20260131_120000 observation 'the bound is memory, as planned'\n",
    .options = note_options,
    .run = run_note,
    .min_words = 3,
    .max_words = 3,
    .takes = "runs :dir",
};

static const args_option baseline_options[] = {
    {OPT_OUT, NULL, ARGS_STORE},
    ARGS_HELP,
};

static int32_t print_baselines(const args *a, bs_error *err) {
  json_t *names, *run;
  const char *name;
  const int32_t rc = bs_baselines_read(runs_root(a), &names, err);
  json_object_foreach(names, name, run) bs_print(stdout, "%s %s\n", name, json_string_value(run));
  json_decref(names);
  return rc;
}

static int32_t run_baseline(const args *a, bs_error *err) {
  char *root, *run;
  if (a->n_words == 0) return print_baselines(a, err);
  if (a->n_words == 1) {
    bs_error_set(err, BS_USAGE, "BS-USE-WORD", "runs baseline: 1 word given");
    bs_error_hint(err, "bsrun runs baseline NAME RUN");
    return BS_USAGE;
  }
  int32_t rc = runs_find(a, a->words[1], &root, &run, err);
  if (rc == BS_OK && strcmp(root, runs_root(a)) != 0) {
    rc = bs_error_set(err, BS_USAGE, "BS-USE-BASELINE", "%.200s/%.160s is no run of %.200s", root, run,
                      runs_root(a));
    bs_error_hint(err, "--out DIR: the results folder that the run lies in, which keeps the names");
  }
  if (rc == BS_OK) rc = bs_baseline_set(root, a->words[0], run, err);
  if (rc == BS_OK) bs_print(stdout, "baseline %s is %s/%s\n", a->words[0], root, run);
  free(root);
  free(run);
  return rc;
}

const bsrun_verb runs_baseline_verb = {
    .name = "baseline",
    .words = "[NAME RUN]",
    .summary = "name a run that others are compared with; list the names",
    .about = "The names stand in baselines.json of the results folder. A name that is taken is moved.\n",
    .examples = "  bsrun runs baseline main 20260131_120000\n  bsrun runs baseline\n",
    .options = baseline_options,
    .run = run_baseline,
    .min_words = 0,
    .max_words = 2,
    .takes = "runs",
};

static const bsrun_verb *const verbs[] = {&runs_list_verb,   &runs_show_verb,     &runs_why_verb,
                                          &runs_replay_verb, &runs_bundle_verb,   &runs_fsck_verb,
                                          &runs_note_verb,   &runs_baseline_verb, NULL};
const bsrun_verb verb_runs = {
    .name = "runs",
    .summary = "list, show, explain, repeat, bundle and check what was run",
    .subverbs = verbs,
};
