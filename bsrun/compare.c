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
    {"a", 0, "SPEC", 0,
     "one side: KEY=VALUE words over the configuration, 'method=row_parallel model.N=1024'"},
    {"b", 0, "SPEC|N", 0, "with --a the other side; else tokens B"},
    {"n", 0, "N", 0, "output features N"},
    {"k", 0, "N", 0, "input features K; default: N"},
    {"dtype", 0, "T", 0, "dtype of the model: bf16, f16, f32, f64, ..."},
    {"bias", 0, "on|off", 0, "a random bias; default: on"},
    {"world-size", 'P', "N", 0, "ranks; default: what each method needs"},
    {"threads-per-rank", 0, "N", 0, "threads of one rank; default: cores / ranks"},
    {"pass", 0, "NAME", 1, "forward (default), backward, sgd or adamw (a whole step of training)"},
    {"seconds", 0, "S", 0, "time of measuring, each pass; default: 8"},
    {"method", 0, "M", 0, "of both sides, where a SPEC names none"},
    {"mask", 0, "NAME", 0, "the mask of methods that take one; default: several fixed ones"},
    {"masks", 0, "LIST", 0, "methods: masks for those that take them, with commas between"},
    {"overlap", 0, "LIST", 0, "methods: off, auto or numbers of chunks, with commas between; default: off"},
    {"reduce-dtypes", 0, "LIST", 0,
     "methods: dtypes on the wire, with commas between; default: as configured"},
    {"vary", 0, "KEY=V1,V2", 1, "methods: each by every value of a key: method.kernel=gather,sparse24"},
    {"measure", 0, "N", 0, "methods: measure the N best by what is predicted, 0 to 16; default: 16"},
    {"baseline", 0, "NAME", 0,
     "RUN is held against this baseline (bsrun runs baseline); exit code 14 when slower"},
    {"junit", 0, "FILE", 0, "stored runs: write the verdicts as JUnit XML, too"},
    {"force", 0, NULL, 0, "stored runs: compare also those of other phases, passes, clocks, dtypes, devices"},
    {"backend", 0, "NAME", 0, "backend; default: cpu"},
    {"comm", 0, "NAME", 0, "communicator; default: threads"},
    {"workload", 0, "NAME", 0, "gaussian, file, ..."},
    {"hardware", 0, "NAME", 0, "cpu, or a YAML file"},
    {"out", 0, "DIR|off", 0, "root of the run folders (default results/raw); off: nothing is kept"},
    {"run-id", 0, "ID", 0, "name of the run folder"},
    {"cache", 0, "FILE|off", 0, "stored machine constants; default: the user's cache folder"},
    {"plugin", 0, "ID|PATH", 1, "use this plugin (its backend, if it has one); words are methods then"},
    {"config", 0, "FILE", 1, "merge a YAML file over the base"},
    {"set", 0, "KEY=VALUE", 1, "set one key, after all files"},
    ARGS_TABLE,
    {"verbose", 'v', NULL, 1, "say more on stderr"},
    {"quiet", 'q', NULL, 0, "no notes and no progress on stderr"},
    ARGS_HELP,
};

/* Words are methods when the first is the name of one, else runs. Where it is neither, it is what it looks
 * most like, for the error. */
static int32_t are_methods(const args *a, int *out, bs_error *err) {
  const char *word = a->n_words > 0 ? a->words[0] : "", *names[64];
  char *root = NULL, *run = NULL;
  json_t *methods = json_array();
  size_t n = 0;
  *out = a->n_words == 0 || args_has(a, "plugin");
  const int32_t rc = *out ? BS_OK : bsrun_names("methods", methods, err);
  for (; n < json_array_size(methods) && n < 64; n++) {
    names[n] = json_string_value(json_array_get(methods, n));
    *out |= strcmp(names[n], word) == 0;
  }
  if (rc == BS_OK && !*out && runs_find(a, word, &root, &run, NULL) != BS_OK)
    *out = bs_nearest(word, names, n) != NULL;
  free(root);
  free(run);
  json_decref(methods);
  return rc;
}

static int32_t refuse(const char *what, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-COMPARE-WHAT", "%s", what);
  bs_error_hint(err,
                "METHOD...; or --a SPEC --b SPEC; or RUN RUN; or RUN --baseline NAME (bsrun help compare)");
  return BS_USAGE;
}

static int compare(const args *given, bs_error *err) {
  args a = *given; /* --b is taken out */
  const char *b = args_value(&a, "b");
  const int is_spec = b != NULL && strchr(b, '=') != NULL;
  const int baseline = args_has(&a, "baseline"),
            stored = baseline || args_has(&a, "junit") || args_has(&a, "force");
  int methods = 0;
  if (args_has(&a, "a") || is_spec) {
    if (args_has(&a, "a") && b != NULL && a.n_words == 0 && !stored) return compare_live(&a);
    refuse("--a SPEC and --b SPEC belong together, and take neither methods nor runs", err);
    return bsrun_fail(err);
  }
  if (!stored && are_methods(&a, &methods, err) != BS_OK) return bsrun_fail(err);
  if (methods) return compare_methods(&a);
  if (a.n_words == (baseline ? 1u : 2u)) return compare_stored(&a);
  refuse(baseline ? "--baseline NAME takes one run" : "two runs are compared", err);
  return bsrun_fail(err);
}

const bsrun_verb verb_compare = {
    .name = "compare",
    .words =
        "[METHOD]... [options]\n"
        "--a SPEC --b SPEC [options]\n"
        "RUN RUN [--force] [--junit FILE]\n"
        "RUN --baseline NAME [--junit FILE]",
    .summary = "ways to split a layer, two configurations, or two stored runs",
    .about =
        "Words are methods when the first is the name of one; other words are stored runs.\n"
        "\n"
        "METHOD: every way to split one layer that METHOD (none: all methods), --masks, --overlap and "
        "--vary\n"
        "give, and the dense layer beside them: what each should take by this machine's constants, what it\n"
        "takes (all in turn, in one sampling; the first named is what the others are held against), and\n"
        "where its time goes. `bsrun --method auto` takes the best of the same list.\n"
        "\n"
        "--a SPEC --b SPEC: two configurations in turn, in one sampling. The answer says what B is beside "
        "A:\n"
        "FASTER, SLOWER, SAME or UNCLEAR, with the ratio and its 95 % interval. Sides that are the same\n"
        "configuration have numbers and no word. On a machine that other programs keep busy the comparison\n"
        "is UNCLEAR. A SPEC is KEY=VALUE words over the configuration of the other options; method, mask,\n"
        "backend, comm, workload, dtype, bias, P, b, n and k are short for their keys.\n"
        "\n"
        "What was measured is kept as a run. Nothing is judged: `bsrun run` proves numbers.\n"
        "\n"
        "RUN: runs that are stored, each a run's folder, its run_id below --out or the beginning of one, or\n"
        "@NAME for a baseline. The answer lists what differs between both, and gives the ratio of each "
        "arm's\n"
        "times with a 95 % interval. What changed on the machine between the runs is in the ratio and not "
        "in\n"
        "the interval. Runs of different phases, passes, clocks (host, device, virtual), dtypes or devices\n"
        "are refused unless --force.\n",
    .examples =
        "  bsrun compare row_parallel column_parallel -P 2\n"
        "  bsrun compare --n 4096 --b 64 -P 2               every method\n"
        "  bsrun compare --a n=512 --b n=1024 --method row_parallel --seconds 2\n"
        "  bsrun compare before after                       two stored runs\n"
        "  bsrun compare after --baseline nightly --junit compare.xml\n"
        "  bsrun compare blockshock row_parallel --masks complement_1100_0011,interleave --pass forward\n"
        "  bsrun compare blockshock column_parallel --pass backward --pass sgd -o md\n"
        "  bsrun compare blockshock --masks complement_1100_0011 --vary method.kernel=gather,sparse24\n"
        "  bsrun compare --measure 0 --n 32768 -P 8         only predicted\n"
        "  bsrun compare --a 'method=dense P=1' --b 'method=blockshock P=2 mask=interleave' --n 1024\n"
        "  bsrun compare results/raw/phase1_forward/dense/before results/raw/phase1_forward/dense/after\n",
    .options = compare_options,
    .exit = compare,
    .max_words = SIZE_MAX,
    .exits =
        "0; 2 usage; 3 configuration, no candidate can run (the first reason is printed),\n"
        "or runs that are not alike; 5 no such run, or RUN lacks an arm of its baseline; 13 a damaged run;\n"
        "14 RUN is SLOWER than its baseline. The dense arms beside a method do not decide.\n",
    .takes = "methods runs",
};
