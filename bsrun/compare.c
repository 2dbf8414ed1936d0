/* SPDX-License-Identifier: MIT
 * compare.c - `bsrun compare`: two specs that are measured now, in turn, or two runs that are stored. Its
 * older form, methods as words, is `bsrun ladder` now. */
#include "bsrun/compare.h"

#include <stdio.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"

static const args_option compare_options[] = {
    {"a", 0, "SPEC", 0,
     "one side: KEY=VALUE words over the configuration, 'method=row_parallel model.N=1024'"},
    {"b", 0, "SPEC", 0, "the other side"},
    {"pass", 0, "NAME", 1, "--a --b: forward (default), backward, sgd or adamw (a whole step of training)"},
    {"seconds", 0, "S", 0, "--a --b: time of measuring, each pass; default: 8"},
    {"baseline", 0, "NAME", 0,
     "RUN is held against this baseline (bsrun runs baseline); exit code 14 when slower"},
    {"junit", 0, "FILE", 0, "stored runs: write the verdicts as JUnit XML, too"},
    {"force", 0, NULL, 0, "stored runs: compare also those of other phases, passes, clocks, dtypes, devices"},
    {"method", 0, "M", 0, "--a --b: of both sides, where a SPEC names none"},
    {"world-size", 'P', "N", 0, "--a --b: ranks of both sides; default: what each method needs"},
    {"threads-per-rank", 0, "N", 0, "--a --b: threads of one rank; default: cores / ranks"},
    {"n", 0, "N", 0, "--a --b: output features N"},
    {"k", 0, "N", 0, "--a --b: input features K; default: N"},
    {"dtype", 0, "T", 0, "--a --b: dtype of the model: bf16, f16, f32, f64, ..."},
    {"mask", 0, "NAME", 0, "--a --b: which columns a rank keeps"},
    {"backend", 0, "NAME", 0, "--a --b: backend; default: cpu"},
    {"comm", 0, "NAME", 0, "--a --b: communicator; default: threads"},
    {"workload", 0, "NAME", 0, "--a --b: gaussian, file, ..."},
    {"hardware", 0, "NAME", 0, "--a --b: cpu, or a YAML file"},
    {"out", 0, "DIR|off", 0, "root of the run folders (default results/raw); off: nothing is kept"},
    {"run-id", 0, "ID", 0, "--a --b: name of the run folder"},
    {"cache", 0, "FILE|off", 0, "stored machine constants; default: the user's cache folder"},
    {"plugin", 0, "ID|PATH", 1, "use this plugin (its backend, if it has one)"},
    {"config", 0, "FILE", 1, "merge a YAML file over the base"},
    {"set", 0, "KEY=VALUE", 1, "set one key of both sides, after all files (model.B=8: tokens)"},
    ARGS_TABLE,
    {"verbose", 'v', NULL, 1, "say more on stderr"},
    {"quiet", 'q', NULL, 0, "no notes and no progress on stderr"},
    ARGS_HELP,
};

static const char *const methods[] = {"dense",        "column_parallel", "row_parallel",
                                      "masked_split", "blockshock",      "auto"};

/* An option that the older form did not have. Its --b was a number of tokens. */
static int is_new_option(int argc, char **argv, int i) {
  static const char *const own[] = {"--a", "--baseline", "--junit", "--force", "--b"};
  for (size_t k = 0; k < sizeof own / sizeof own[0]; k++) {
    const size_t n = strlen(own[k]);
    if (strncmp(argv[i], own[k], n) != 0 || (argv[i][n] != '\0' && argv[i][n] != '=')) continue;
    const char *value = argv[i][n] == '=' ? argv[i] + n + 1 : i + 1 < argc ? argv[i + 1] : "";
    return strcmp(own[k], "--b") != 0 || strchr(value, '=') != NULL;
  }
  return 0;
}

/* Methods as words, or no words at all: what `bsrun ladder` does. parsed: as options of this verb, NULL: they
 * are not. */
static int is_older_form(int argc, char **argv, const args *parsed) {
  for (int i = 0; i < argc; i++)
    if (is_new_option(argc, argv, i)) return 0;
  if (parsed == NULL) return 1;
  if (args_has(parsed, "help")) return 0;
  for (size_t i = 0; i < parsed->n_words; i++)
    for (size_t k = 0; k < sizeof methods / sizeof methods[0]; k++)
      if (strcmp(parsed->words[i], methods[k]) == 0) return 1;
  return parsed->n_words == 0;
}

static int measure_or_read(args *a, bs_error *err) {
  const int sides = args_has(a, "a") + args_has(a, "b"), stored = args_has(a, "baseline") ? 1 : 2;
  if (sides == 2 && a->n_words == 0 && !args_has(a, "baseline")) return compare_live(a);
  if (sides == 0 && a->n_words == (size_t)stored) return compare_stored(a);
  bs_error_set(
      err, BS_USAGE, "BS-COMPARE-WHAT",
      sides > 0 ? "--a SPEC and --b SPEC belong together, and take no runs" : "%zu runs, %d are compared",
      a->n_words, stored);
  bs_error_hint(err, "--a SPEC --b SPEC; or RUN RUN; or RUN --baseline NAME (bsrun help compare)");
  return bsrun_fail(err);
}

static int compare_words(int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  args a;
  int code = 0;
  const int32_t rc = args_parse(argc, argv, compare_options, &a, &err);
  if (is_older_form(argc, argv, rc == BS_OK ? &a : NULL)) {
    bsrun_note(0, "bsrun compare of methods is bsrun ladder now; the next version has no other name for it");
    code = bsrun_verb_run(&verb_ladder, argc, argv);
  } else if (rc != BS_OK) {
    code = bsrun_fail(&err);
  } else if (args_has(&a, "help")) {
    bsrun_verb_help(&verb_compare);
  } else {
    code = measure_or_read(&a, &err);
  }
  args_free(&a);
  return code;
}

const bsrun_verb verb_compare = {
    .name = "compare",
    .summary = "two configurations measured in turn, or two stored runs",
    .usage =
        "usage: bsrun compare --a SPEC --b SPEC [options]\n"
        "       bsrun compare RUN RUN [--force] [--junit FILE]\n"
        "       bsrun compare RUN --baseline NAME [--junit FILE]\n"
        "\n"
        "The first form measures two configurations in turn, in one sampling, and says what B is beside A:\n"
        "FASTER, SLOWER, SAME or UNCLEAR, with the ratio and its 95 % interval. Sides that are the same\n"
        "configuration have numbers and no word. On a machine that other programs keep busy the comparison\n"
        "is UNCLEAR. A SPEC is KEY=VALUE words over the configuration of the other options; method, mask,\n"
        "backend, comm, workload, dtype, bias, P, b, n and k are short for their keys. What was measured is\n"
        "kept as a run. Nothing is judged: `bsrun run` proves numbers.\n"
        "\n"
        "The others read runs that are stored: a run's folder, its run_id below --out or the beginning\n"
        "of one, or @NAME for a baseline.\n"
        "They list what differs between both, and give the ratio of each arm's times with a 95 % interval.\n"
        "What changed on the machine between the runs is in the ratio and not in the interval. Runs of\n"
        "different phases, passes, clocks (host, device, virtual), dtypes or devices are refused unless\n"
        "--force.\n"
        "\n",
    .after =
        "\n"
        "examples:\n"
        "  bsrun compare --a method=row_parallel --b method=column_parallel -P 2 --n 512\n"
        "  bsrun compare --a 'method=dense P=1' --b 'method=blockshock P=2 mask=interleave' --n 1024\n"
        "  bsrun compare --a n=512 --b n=1024 --method row_parallel --seconds 2\n"
        "  bsrun compare results/raw/phase1_forward/dense/before results/raw/phase1_forward/dense/after\n"
        "  bsrun compare after --baseline nightly --junit compare.xml\n"
        "\n"
        "exit codes: 0; 2 usage; 3 configuration, a side that cannot run, or runs that are not alike;\n"
        "5 no such run, or RUN lacks an arm of its baseline; 13 a damaged run; 14 RUN is SLOWER than its\n"
        "baseline. The dense arms beside a method do not decide.\n",
    .options = compare_options,
    .words = compare_words,
};
