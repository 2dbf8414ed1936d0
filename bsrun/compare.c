/* SPDX-License-Identifier: MIT
 * compare.c - `bsrun compare`: methods that split one layer, two specs, or runs that are stored. Which of
 * them is meant stands in the options and in the first word. */
#include "bsrun/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/runs.h"
#include "core/base/error.h"
#include "lab/word.h"

static const args_option compare_options[] = {
    ARGS_SHAPE,
    {OPT_SEED, "default: 725", 0},
    {OPT_WORLD_SIZE, "default: what each method needs", 0},
    {OPT_THREADS, "default: cores / ranks", 0},
    {OPT_PHASE, "several with commas, without numbers; default: time", 0},
    {OPT_SECONDS, "of each phase; default: 8", 0},
    {OPT_SAMPLES, "pairs of each phase at most, from 20 on; default: 300", ARGS_PAIRS},
    {OPT_WARMUP, "of each arm at least, unless they take 2 s (less of a short --seconds); default: 10", 0},
    {OPT_METHOD, "of SPECs that name none", 0},
    {OPT_MASK, "of methods: several with commas; default: several fixed ones", 0},
    {OPT_VARY, "of methods, as method.kernel=gather,sparse24 or method.overlap=off,2", 0},
    {OPT_LIMIT, "of methods: the best by what is predicted are measured; 0 to 16, default: 16", 0},
    {OPT_BASELINE, "a name of `bsrun runs baseline`; exit 14 when the run is slower", 0},
    {OPT_TO, "junit=FILE", 0},
    {OPT_TO_JUNIT, NULL, 0},
    {OPT_FORCE, "of stored runs: those of other phases, clocks, dtypes, devices are compared too", 0},
    {OPT_BACKEND, "default: cpu", 0},
    {OPT_COMM, "default: threads", 0},
    {OPT_WORKLOAD, NULL, 0},
    {OPT_HARDWARE, NULL, 0},
    {OPT_OUT, NULL, 0},
    {OPT_RUN_ID, NULL, 0},
    {OPT_CACHE, NULL, 0},
    {OPT_PLUGIN, "words are methods then", 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    ARGS_TABLE,
    {OPT_VERBOSE, NULL, 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

/* The three forms, and which of them take an option. */
enum form { METHODS = 1, SPECS = 2, RUNS = 4 };
static const struct {
  int option, forms;
} takes[] = {
    {OPT_VARY, METHODS},
    {OPT_LIMIT, METHODS},
    {OPT_BASELINE, RUNS},
    {OPT_TO_JUNIT, RUNS},
    {OPT_FORCE, RUNS},
    {OPT_OUT, METHODS | SPECS | RUNS},
    {OPT_OUTPUT, METHODS | SPECS | RUNS},
    {OPT_WIDE, METHODS | SPECS | RUNS},
    {OPT_QUIET, METHODS | SPECS | RUNS},
    {OPT_VERBOSE, METHODS | SPECS | RUNS},
    {OPT_TO, METHODS | SPECS | RUNS},
};

static int forms_of(int option) {
  for (size_t i = 0; i < sizeof takes / sizeof takes[0]; i++)
    if (takes[i].option == option) return takes[i].forms;
  return METHODS | SPECS; /* what is measured, and how */
}

static const char *form_words(int form) {
  return form == METHODS           ? "METHOD..."
         : form == SPECS           ? "SPEC SPEC"
         : form == RUNS            ? "RUN RUN"
         : form == METHODS + SPECS ? "METHOD... and SPEC SPEC"
                                   : "every form";
}

/* An option of another form is an error: it would be ignored. */
static int32_t check_options(const args *a, enum form form, bs_error *err) {
  char shown[64];
  for (size_t i = 0; i < a->n_given; i++) {
    const args_option *option = args_given(a, i);
    const int forms = forms_of(option->id);
    if ((forms & (int)form) != 0) continue;
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "%s is not for `bsrun compare %s`",
                 args_shown(a, args_name(option), shown), form_words((int)form));
    bs_error_hint(err, "%s take%s it", form_words(forms), forms == METHODS + SPECS ? "" : "s");
    return BS_USAGE;
  }
  if (args_has(a, "to")) {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--to: '%.100s' is not junit=FILE", args_value(a, "to"));
    return BS_USAGE;
  }
  if (form != METHODS || a->n_words == 0 || !args_has(a, "method")) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--method: the words are the methods");
  bs_error_hint(err, "leave it out, or name all methods as words");
  return BS_USAGE;
}

static int is_run(const args *a, const char *word) {
  char *root = NULL, *run = NULL;
  const int found = runs_find(a, word, &root, &run, NULL) == BS_OK;
  free(root);
  free(run);
  return found;
}

/* SPECs have an =. Words are methods when the first is the name of one, else runs. Where it is neither, it is
 * what it looks most like, for the error. An option that only runs have makes a run of both. */
static int32_t find_form(const args *a, enum form *out, bs_error *err) {
  const char *word = a->n_words > 0 ? a->words[0] : "", *names[64];
  const int of_runs = args_has(a, "baseline") || args_has(a, "junit") || args_has(a, "force");
  json_t *methods = json_array();
  size_t n = 0;
  const int is_spec = strchr(word, '=') != NULL, all = a->n_words == 0 && !of_runs,
            open = !is_spec && a->n_words > 0 && !args_has(a, "plugin");
  *out = is_spec ? SPECS : all || args_has(a, "plugin") ? METHODS : RUNS;
  const int32_t rc = open ? bsrun_names("methods", methods, err) : BS_OK;
  for (; n < json_array_size(methods) && n < 64; n++) {
    names[n] = json_string_value(json_array_get(methods, n));
    if (strcmp(names[n], word) == 0) *out = METHODS;
  }
  if (rc == BS_OK && open && of_runs && *out == METHODS && is_run(a, word)) *out = RUNS;
  if (rc == BS_OK && open && !of_runs && *out == RUNS && !is_run(a, word) &&
      bs_nearest(word, names, n) != NULL)
    *out = METHODS;
  json_decref(methods);
  return rc;
}

static int32_t refuse(const char *what, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-COMPARE-WHAT", "%s", what);
  bs_error_hint(err, "METHOD...; or SPEC SPEC; or RUN RUN; or RUN --baseline NAME (bsrun help compare)");
  return BS_USAGE;
}

static int32_t check_words(const args *a, enum form form, bs_error *err) {
  const int baseline = args_has(a, "baseline");
  if (form == SPECS && (a->n_words != 2 || strchr(a->words[1], '=') == NULL))
    return refuse("two SPECs are compared, and neither methods nor runs beside them", err);
  if (form == RUNS && a->n_words != (baseline ? 1u : 2u))
    return refuse(baseline ? "--baseline NAME takes one run" : "two runs are compared", err);
  return BS_OK;
}

static int compare(const args *given, bs_error *err) {
  const args a = *given;
  enum form form = METHODS;
  int32_t rc = find_form(&a, &form, err);
  if (rc == BS_OK) rc = check_options(&a, form, err);
  if (rc == BS_OK) rc = check_words(&a, form, err);
  if (rc != BS_OK) return bsrun_fail(err);
  return form == METHODS ? compare_methods(&a) : form == SPECS ? compare_live(&a) : compare_stored(&a);
}

const bsrun_verb verb_compare = {
    .name = "compare",
    .words =
        "[METHOD]... [options]\n"
        "SPEC SPEC [options]\n"
        "RUN RUN [--out DIR] [--force] [--to junit=FILE]\n"
        "RUN --baseline NAME [--out DIR] [--force] [--to junit=FILE]",
    .summary = "ways to split a layer, two configurations, or two runs",
    .about =
        "Words are methods when the first is the name of one, SPECs when it has an =, else stored runs.\n"
        "An option that the form has no use for is an error.\n"
        "\n"
        "METHOD: compares every way to split one layer that METHOD (none: all methods), --mask, --vary\n"
        "and the keys auto.* allow, and the dense layer. Each has a predicted time, from this machine's\n"
        "constants, a measured time, and a sentence on where it goes. All are measured one after the\n"
        "other, in one sampling. Speedups are against the way that is named first. `bsrun --method auto`\n"
        "takes the best of the same list.\n"
        "\n"
        "SPEC SPEC: measures two configurations A and B alternately, in one sampling. The answer says\n"
        "whether B is FASTER, SLOWER or the SAME compared with A, or UNCLEAR, with the ratio and its 95\n"
        "% interval. Sides that are the same configuration have numbers and no verdict. On a machine\n"
        "that other programs keep busy the comparison is UNCLEAR. A SPEC is KEY=VALUE words over the\n"
        "configuration of the other options; method, mask, backend, comm, workload, dtype, bias, P, b, n\n"
        "and k are short for their keys.\n"
        "\n"
        "METHOD and SPEC keep what they measure as a run. Nothing is judged: `bsrun run` proves numbers.\n"
        "\n"
        "RUN RUN: compares stored runs. A RUN is a run's folder, its run_id below --out or the beginning\n"
        "of one, or @NAME for a baseline. The answer lists what differs between both, and gives the\n"
        "ratio of each arm's times with a 95 % interval. What changed on the machine between the runs is\n"
        "in the ratio and not in the interval. Runs of different phases, passes, clocks (host, device,\n"
        "virtual), dtypes or devices are refused unless --force.\n",
    .examples =
        "  bsrun compare row_parallel column_parallel -P 2\n"
        "  bsrun compare --n 4096 --b 64 -P 2               every method\n"
        "  bsrun compare n=512 n=1024 --method row_parallel --seconds 2\n"
        "  bsrun compare before after                       two stored runs\n"
        "  bsrun compare after --baseline nightly --to junit=compare.xml\n"
        "  bsrun compare blockshock row_parallel --mask 1100/0011,interleave --phase time\n"
        "  bsrun compare blockshock column_parallel --phase backward,train -o md\n"
        "  bsrun compare blockshock --mask 1100/0011 --vary method.kernel=gather,sparse24\n"
        "  bsrun compare --limit 0 --n 32768 -P 8           only predicted\n"
        "  bsrun compare 'method=dense P=1' 'method=blockshock P=2 mask=interleave' --n 1024\n"
        "  bsrun compare results/raw/phase1_forward/dense/before results/raw/phase1_forward/dense/after\n",
    .options = compare_options,
    .exit = compare,
    .max_words = SIZE_MAX,
    .exits =
        "0; 2 usage; 3 configuration, no candidate can run (the first reason is printed), or runs that\n"
        "are not alike; 4 no such run, or RUN lacks an arm of its baseline; 13 a damaged run; 14 RUN is\n"
        "SLOWER than its baseline. The dense arms of a run do not decide.\n",
    .takes = "methods runs specs :dir",
};
