/* SPDX-License-Identifier: MIT
 * diagnose.c - `bsrun diagnose [MODEL]`: finds avoidable time in a pass of a layer or a model. */
#include "lab/diagnose/diagnose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/compare_run.h"
#include "bsrun/model.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/diagnose/keep.h"
#include "lab/stop.h"

static const args_option diagnose_options[] = {
    {OPT_PRESET, "quick (under a minute), full (the default) or large (models and layers as in use)", 0},
    {OPT_ONLY, NULL, 0},
    {OPT_SKIP, NULL, 0},
    {OPT_SECONDS, "of one timing; default: 0.5 of quick, 1.5 of full, 4 of large", 0},
    {OPT_SAMPLES, "of one timing at most, pairs where two are compared; from 6 on; default: 300", 0},
    {OPT_DRY_RUN, "list the checks", 0},
    {OPT_ABLATE, NULL, 0},
    {OPT_STRICT, "exit 14", 0},
    {OPT_VARY, "sizes of a model's dimension, in the order of calls", 0},
    {OPT_INPUT, "default: made numbers", 0},
    {OPT_DIM, "default: 2 of a batch, 32 of others", 0},
    {OPT_CONSTANT, NULL, 0},
    {OPT_NO_PASS, NULL, 0},
    {OPT_WITH, "of a model", 0},
    {OPT_WITH_SHAPES, NULL, 0},
    {OPT_CHOICE, NULL, 0},
    {OPT_THREADS, "default: cores / ranks", 0},
    {OPT_CACHE_TOKENS, NULL, 0},
    {OPT_METHOD, "of a model also F+S, for pairs; default: one rank", 0},
    {OPT_WORLD_SIZE, NULL, 0},
    {OPT_COMM, NULL, 0},
    {OPT_LAUNCH, "of a model: threads", 0},
    {OPT_MASK, NULL, 0},
    ARGS_SHAPE,
    {OPT_SEED, "default: 725", 0},
    {OPT_WORKLOAD, NULL, 0},
    {OPT_HARDWARE, NULL, 0},
    {OPT_TIMEOUT, "of every wait between ranks", 0},
    {OPT_BACKEND, "default: cpu", 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    {OPT_OUT, NULL, 0},
    {OPT_RUN_ID, NULL, 0},
    ARGS_TABLE,
    {OPT_VERBOSE, "and print the facts of each check", 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

static const bs_field finding_fields[] = {{"rank", "", BS_FIELD_RIGHT, 0},
                                          {"severity", "SEVERITY", 0, 0},
                                          {"check", "CHECK", 0, 0},
                                          {"cost_s", "COST s", BS_FIELD_RIGHT, 3},
                                          {"share", "SHARE", BS_FIELD_RIGHT, 3},
                                          {"evidence", "EVIDENCE", 0, 0},
                                          {"command", "COMMAND", BS_FIELD_WIDE, 0}};
static const bs_field check_fields[] = {{"check", "CHECK", 0, 0},
                                        {"state", "STATE", 0, 0},
                                        {"title", "LOOKS AT", 0, 0},
                                        {"seconds", "TOOK s", BS_FIELD_RIGHT, 3},
                                        {"why", "WHY", 0, 0}};
static const bs_field ablation_fields[] = {{"setting", "SETTING", 0, 0},
                                           {"as_is_s", "AS IS s", BS_FIELD_RIGHT, 4},
                                           {"seconds", "CHANGED s", BS_FIELD_RIGHT, 4},
                                           {"ratio", "RATIO OF PAIRS", BS_FIELD_RIGHT, 4},
                                           {"low", "95 % FROM", BS_FIELD_RIGHT, 4},
                                           {"high", "TO", BS_FIELD_RIGHT, 4},
                                           {"verdict", "CHANGED IS", 0, 0}};
static const bs_field list_fields[] = {{"check", "CHECK", 0, 0},
                                       {"layer", "LAYER", 0, 0},
                                       {"model", "MODEL", 0, 0},
                                       {"preset", "FROM PRESET", 0, 0},
                                       {"title", "LOOKS AT", 0, 0}};
#define N_OF(fields) (sizeof(fields) / sizeof(fields)[0])

/* ---- words ----------------------------------------------------------------------------------- */

/* The words of a repeatable option, cut at a separator. */
typedef struct cut_words {
  char **texts;
  size_t n;
} cut_words;

static void cut_free(cut_words *w) {
  for (size_t i = 0; i < w->n; i++) free(w->texts[i]);
  free(w->texts);
  *w = (cut_words){0};
}

static int32_t cut_add(cut_words *w, const char *text, size_t length, bs_error *err) {
  char **more = realloc(w->texts, (w->n + 1) * sizeof *more);
  if (more != NULL) w->texts = more;
  char *copy = more != NULL ? strndup(text, length) : NULL;
  if (copy == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  w->texts[w->n++] = copy;
  return BS_OK;
}

/* The length of a word: it ends at a separator outside of braces, which enclose knobs. */
static size_t word_length(const char *text, char separator) {
  size_t n = 0;
  int depth = 0;
  for (; text[n] != '\0' && (text[n] != separator || depth > 0); n++)
    depth += (text[n] == '{') - (text[n] == '}');
  return n;
}

/* Values with `separator` between their words, and blanks around them. */
static int32_t cut(const args *a, const char *option, char separator, cut_words *out, bs_error *err) {
  const char **values = NULL;
  size_t n = 0;
  int32_t rc = args_values(a, option, &values, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    for (const char *at = values[i]; rc == BS_OK && *at != '\0';) {
      at += strspn(at, " ");
      const size_t whole = word_length(at, separator);
      size_t length = whole;
      while (length > 0 && at[length - 1] == ' ') length--;
      if (length > 0) rc = cut_add(out, at, length, err);
      at += whole + (at[whole] != '\0');
    }
  }
  free(values);
  return rc;
}

/* The subject's words alone: what a finding's command begins with. */
static char *subject_command(const args *a) {
  static const char *const others[] = {"preset", "seconds", "samples", "only", "skip",   "dry-run",
                                       "ablate", "strict",  "vary",    "out",  "run-id", "output",
                                       "wide",   "verbose", "quiet",   "help"};
  bs_text text = {0};
  bs_text_printf(&text, "bsrun diagnose");
  for (size_t i = 0; i < a->n_words; i++) bs_text_word(&text, a->words[i]);
  for (size_t i = 0; i < a->n_given; i++) {
    char name[64], *value = NULL;
    size_t k = 0;
    while (k < N_OF(others) && strcmp(others[k], args_name(args_given(a, i))) != 0) k++;
    if (k < N_OF(others)) continue;
    args_typed(a, i, name, &value);
    bs_text_word(&text, name);
    if (value != NULL) bs_text_word(&text, value);
    free(value);
  }
  if (!text.failed) return text.data;
  bs_text_free(&text);
  return NULL;
}

/* ---- printing -------------------------------------------------------------------------------- */

static int32_t print_list(int format, bs_error *err) {
  bs_check_info c;
  json_t *rows = json_array();
  for (size_t i = 0; bs_diagnose_check(i, &c); i++)
    json_array_append_new(
        rows, json_pack("{s:s, s:s, s:s, s:s, s:s}", "check", c.id, "layer", c.layer ? "yes" : "", "model",
                        c.model ? "yes" : "", "preset", c.quick ? "quick" : "full", "title", c.title));
  const int32_t rc = bs_report_print(stdout, format, list_fields, N_OF(list_fields), rows, err);
  json_decref(rows);
  return rc;
}

static void print_commands(const json_t *findings) {
  const json_t *f;
  size_t i;
  if (json_array_size(findings) > 0) fputs("\nto see one alone:\n", stdout);
  json_array_foreach(findings, i, f)
      bs_print(stdout, "%zu: %s\n", i + 1, json_string_value(json_object_get(f, "command")));
}

/* A line each: their texts are too long for columns. */
static void print_facts(int format, const json_t *checks) {
  const json_t *check, *fact;
  size_t i, k;
  json_array_foreach(checks, i, check) {
    bs_print(stdout, "\n%s%s: %s\n", format == BS_FORMAT_MD ? "- " : "",
             json_string_value(json_object_get(check, "check")),
             json_string_value(json_object_get(check, "title")));
    json_array_foreach(json_object_get(check, "facts"), k, fact) {
      const json_t *value = json_object_get(fact, "value");
      char number[40] = "?";
      if (json_is_number(value)) snprintf(number, sizeof number, "%.4g", json_number_value(value));
      bs_print(stdout, "  %s%s: %s%s%s\n", format == BS_FORMAT_MD ? "- " : "",
               json_string_value(json_object_get(fact, "fact")),
               json_is_string(value) ? json_string_value(value) : number,
               json_string_length(json_object_get(fact, "unit")) > 0 ? " " : "",
               json_string_value(json_object_get(fact, "unit")));
    }
  }
}

static int32_t print_readable(int format, int verbose, const json_t *result, bs_error *err) {
  const json_t *findings = json_object_get(result, "findings"), *checks = json_object_get(result, "checks");
  const json_t *ablations = json_object_get(result, "ablations");
  const size_t n = json_array_size(findings);
  int32_t rc = BS_OK;
  bs_print(stdout, "%zu finding%s in a %s whose pass takes %.4g ms\n", n, n == 1 ? "" : "s",
           json_string_value(json_object_get(result, "kind")),
           1e3 * json_number_value(json_object_get(result, "pass_s")));
  if (n > 0) printf("\n");
  if (n > 0) rc = bs_report_print(stdout, format, finding_fields, N_OF(finding_fields), findings, err);
  if (rc == BS_OK && n > 0) print_commands(findings);
  printf("\n");
  if (rc == BS_OK) rc = bs_report_print(stdout, format, check_fields, N_OF(check_fields), checks, err);
  if (rc == BS_OK && json_array_size(ablations) > 0) {
    printf("\n");
    rc = bs_report_print(stdout, format, ablation_fields, N_OF(ablation_fields), ablations, err);
  }
  if (rc == BS_OK && verbose) print_facts(format, checks);
  return rc;
}

static int is_readable(int format) {
  return format == BS_FORMAT_TABLE || format == BS_FORMAT_MD;
}

/* All results as data: one is an object, several are an array; rows are the findings of all. */
static int32_t print_data(int format, const json_t *results, bs_error *err) {
  if (is_readable(format) || json_array_size(results) == 0) return BS_OK;
  if (format == BS_FORMAT_JSON)
    return model_print_json(json_array_size(results) == 1 ? json_array_get(results, 0) : results, err);
  json_t *rows = json_array();
  const json_t *result;
  size_t i;
  json_array_foreach(results, i, result) json_array_extend(rows, json_object_get(result, "findings"));
  const int32_t rc = bs_report_print(stdout, format, finding_fields, N_OF(finding_fields), rows, err);
  json_decref(rows);
  return rc;
}

/* ---- the subjects ---------------------------------------------------------------------------- */

static int32_t of_layer(const args *a, const bs_diagnose_request *asked, json_t **out, char **out_folder,
                        bs_error *err) {
  static const char *const own[] = {"samples", NULL}; /* of each timing, and no key of the layer */
  compare_run r = {.host.progress.busy = ATOMIC_FLAG_INIT};
  const int keep = bsrun_keeps(a);
  args options;
  int32_t rc = args_without(a, own, &options, err);
  if (rc == BS_OK) rc = compare_run_open(&options, 1.0, &r, err);
  free(options.given);
  bs_diagnose_request q = *asked;
  q.progress = r.host.table.progress;
  q.progress_user = &r.host;
  if (rc == BS_OK) r.host.table.doing(&r.host, "diagnose", NULL);
  if (rc == BS_OK) rc = bs_diagnose_layer(r.run.context, r.config, r.request.configs_dir, &q, out, err);
  if (rc == BS_OK && keep && bs_stop_asked() == 0)
    rc = bs_diagnose_keep(&r.run, r.config, *out, out_folder, err);
  if (r.run.host != NULL) r.host.table.doing(&r.host, NULL, NULL);
  compare_run_free(&r);
  return rc;
}

/* Nothing that varies is to be found in virtual time. */
static int32_t refuse_simulated(const model_asked *asked, bs_error *err) {
  if (!asked->ranks.simulated) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "diagnose times runs, and simulated ranks have virtual time");
  bs_error_hint(err, "bsrun model bench MODEL --hardware M has the parts of a simulated run");
  return BS_USAGE;
}

static int32_t of_model(const args *a, const bs_diagnose_request *of, json_t **out, char **out_folder,
                        bs_error *err) {
  model_asked asked = {0};
  int32_t rc = model_ranks_threads_only(a, err);
  if (rc == BS_OK) rc = model_asked_read(a, &asked, err);
  if (rc == BS_OK) rc = refuse_simulated(&asked, err);
  if (rc == BS_OK) rc = bs_model_open(asked.context, &asked.request, &asked.model, err);
  bs_diagnose_request q = *of;
  q.progress = asked.request.progress;
  q.progress_user = asked.request.progress_user;
  if (rc == BS_OK) rc = bs_diagnose_model(asked.context, &asked.request, &asked.model, &q, out, err);
  model_progress_end(&asked);
  if (rc == BS_OK && bs_stop_asked() == 0) {
    json_t *record = json_pack("{s:O}", "diagnosis", *out);
    rc = model_keep(a, &asked, "model_diagnose", 1, record, out_folder, err);
    json_decref(record);
  }
  model_asked_free(&asked);
  return rc;
}

/* The first of these are of models over ranks too. */
enum { OF_RANKS = 4 };
static const char *const of_layers[] = {"method", "world-size", "comm",    "mask", "b",
                                        "n",      "k",          "dtype",   "bias", "activation",
                                        "seed",   "workload",   "hardware"};
static const char *const of_models[] = {"vary",    "input",  "dim",          "constant",
                                        "no-pass", "choice", "cache-tokens", "launch"};

/* The first option of a list that was given; NULL: none. */
static const char *given_of(const args *a, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (args_has(a, names[i])) return names[i];
  return NULL;
}

/* Without a subject the preset large applies to the two built-in models. */
static int wants_builtin(const args *a, uint32_t preset) {
  return preset == BS_PRESET_LARGE && a->n_words == 0 && !args_has(a, "config") && !args_has(a, "set") &&
         given_of(a, of_layers, N_OF(of_layers)) == NULL;
}

/* Options of a subject that is not there. */
static int32_t check_subject(const args *a, int model, bs_error *err) {
  const char *wrong = model ? given_of(a, of_layers + OF_RANKS, N_OF(of_layers) - OF_RANKS)
                            : given_of(a, of_models, N_OF(of_models));
  if (wrong == NULL) return BS_OK;
  if (model) {
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s applies to layers only; you gave the model '%.100s'",
                 wrong, a->words[0]);
    bs_error_hint(err, "bsrun diagnose --%s .. without MODEL looks at a layer", wrong);
  } else {
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s is of a model, and no model was given", wrong);
    bs_error_hint(err, "bsrun diagnose MODEL --%s ..", wrong);
  }
  return BS_USAGE;
}

static int32_t read_preset(const args *a, uint32_t *out, bs_error *err) {
  const char *name = args_value(a, "preset");
  *out = BS_PRESET_FULL;
  for (uint32_t i = 0; name != NULL && i < BS_PRESETS_; i++) {
    *out = i;
    if (strcmp(name, bs_preset_names[i]) == 0) return BS_OK;
  }
  return name == NULL ? BS_OK : bsrun_unknown("preset", name, bs_preset_names, BS_PRESETS_, err);
}

/* Checks that could not do their work; returns how many. */
static size_t tell_failed(const json_t *result) {
  const json_t *check;
  char line[600];
  size_t i, n = 0;
  json_array_foreach(json_object_get(result, "checks"), i, check) {
    if (strcmp(json_string_value(json_object_get(check, "state")), "failed") != 0) continue;
    snprintf(line, sizeof line, "check %.40s failed: %.500s",
             json_string_value(json_object_get(check, "check")),
             json_string_value(json_object_get(check, "why")));
    bsrun_warn(line);
    n++;
  }
  return n;
}

static int32_t strict_error(const json_t *result, size_t failed, bs_error *err) {
  const json_t *findings = json_object_get(result, "findings");
  const size_t n = json_array_size(findings);
  if (n == 0 && failed > 0)
    return bs_error_set(err, BS_INCONCLUSIVE, "BS-DIAG-FAILED", "%zu checks failed, so nothing is shown",
                        failed);
  if (n == 0) return BS_OK;
  bs_error_set(err, BS_PERF, "BS-DIAG-FOUND", "%zu finding%s; the most expensive: %.300s", n,
               n == 1 ? "" : "s",
               json_string_value(json_object_get(json_array_get(findings, 0), "evidence")));
  bs_error_hint(err, "without --strict findings are no error");
  return BS_PERF;
}

/* Diagnoses one subject and adds it to `results`; tables are printed immediately. */
static int32_t one_subject(const args *a, const bs_diagnose_request *q, int format, json_t *results,
                           bs_error *err) {
  char *folder = NULL, *command = subject_command(a);
  json_t *result = NULL;
  bs_diagnose_request own = *q;
  own.command = command != NULL ? command : "bsrun diagnose";
  int32_t rc =
      a->n_words > 0 ? of_model(a, &own, &result, &folder, err) : of_layer(a, &own, &result, &folder, err);
  if (rc == BS_OK) json_array_append(results, result);
  if (rc == BS_OK) bsrun_warn_load(json_object_get(result, "conditions"));
  if (rc == BS_OK && is_readable(format)) rc = print_readable(format, args_has(a, "verbose"), result, err);
  if (rc == BS_OK) model_print_folder(format, folder);
  const size_t failed = rc == BS_OK ? tell_failed(result) : 0;
  if (rc == BS_OK && args_has(a, "strict")) rc = strict_error(result, failed, err);
  free(command);
  free(folder);
  json_decref(result);
  return rc;
}

/* A finding or a failed check of one does not keep the next from being looked at. */
static int32_t of_builtin(const args *a, const bs_diagnose_request *q, int format, json_t *results,
                          bs_error *err) {
  static const char *names[] = {"builtin:lm", "builtin:vit"};
  int32_t first = BS_OK;
  for (size_t i = 0; i < N_OF(names) && (first == BS_OK || first == BS_PERF || first == BS_INCONCLUSIVE);
       i++) {
    args of = *a;
    bs_error why = BS_ERROR_INIT;
    of.words = &names[i];
    of.n_words = 1;
    if (is_readable(format)) bs_print(stdout, i > 0 ? "\n%s\n" : "%s\n", names[i]);
    const int32_t rc = one_subject(&of, q, format, results, &why);
    if (rc == BS_OK || (first != BS_OK && (rc == BS_PERF || rc == BS_INCONCLUSIVE))) continue;
    first = rc;
    *err = why;
  }
  return first;
}

static int32_t subjects(const args *a, const bs_diagnose_request *q, int format, bs_error *err) {
  const int builtin = wants_builtin(a, q->preset);
  json_t *results = json_array();
  bs_error why = BS_ERROR_INIT;
  int32_t rc = builtin ? BS_OK : check_subject(a, a->n_words > 0, err);
  if (rc == BS_OK)
    rc = builtin ? of_builtin(a, q, format, results, err) : one_subject(a, q, format, results, err);
  const int32_t printed = print_data(format, results, &why);
  json_decref(results);
  if (rc != BS_OK || printed == BS_OK) return rc;
  *err = why;
  return printed;
}

static int32_t diagnose(const args *a, bs_error *err) {
  cut_words words[3] = {{0}};
  bs_diagnose_request q = {0};
  const char **vary = NULL;
  int format = 0;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = read_preset(a, &q.preset, err);
  if (rc == BS_OK) rc = args_real(a, "seconds", 0.01, 3600, q.seconds, &q.seconds, err);
  if (rc == BS_OK) rc = args_integer(a, "samples", 6, 100000, 0, &q.samples, err);
  if (rc == BS_OK) rc = cut(a, "only", ',', &words[0], err);
  if (rc == BS_OK) rc = cut(a, "skip", ',', &words[1], err);
  if (rc == BS_OK) rc = cut(a, "ablate", ';', &words[2], err);
  if (rc == BS_OK) rc = args_values(a, "vary", &vary, &q.n_vary, err);
  q.only = (const char *const *)words[0].texts;
  q.n_only = words[0].n;
  q.skip = (const char *const *)words[1].texts;
  q.n_skip = words[1].n;
  q.ablate = (const char *const *)words[2].texts;
  q.n_ablate = words[2].n;
  q.vary = vary;
  bsrun_interruptible("no more checks are done, and nothing is kept; --only CHECK does those that are left");
  if (rc == BS_OK) rc = args_has(a, "dry-run") ? print_list(format, err) : subjects(a, &q, format, err);
  for (int i = 0; i < 3; i++) cut_free(&words[i]);
  free(vary);
  return rc;
}

const bsrun_verb verb_diagnose = {
    .name = "diagnose",
    .summary = "find wasted time in a layer or a model, by its cost",
    .words = "[MODEL] [options]",
    .about =
        "Finds time of a pass that is wasted: in ops that a slow implementation serves, waits of the\n"
        "host, copies, plans that are made again, activations outside of products, threads that hurt,\n"
        "ranks that wait or differ, pairs that are refused, and in what `bsrun profile` finds far from the "
        "limit of the machine.\n"
        "Without MODEL the subject is a layer, chosen as for `bsrun run`. MODEL is a file .onnx or\n"
        ".gguf, a folder with config.json, or builtin:lm or builtin:vit (made in memory: builtin:lm:2x64\n"
        "has 2 layers of 64). All checks run unless --only, --skip or --preset say otherwise. Findings are\n"
        "ordered by the seconds of a pass that they cost; each has the command that shows it alone. A\n"
        "finding is no error unless --strict is given. share/doc/blockshock/profile.md has every check.\n",
    .examples =
        "  bsrun diagnose --method row_parallel -P 2 --dtype f32\n"
        "  bsrun diagnose --method dense --b 64 --preset quick --ablate "
        "'method.bias=false;model.dtype=bf16'\n"
        "  bsrun diagnose model.onnx --dim batch=2 --dim tokens=12\n"
        "  bsrun diagnose builtin:lm:2x64 --method column_parallel+row_parallel -P 2 --only split -v\n"
        "  bsrun diagnose --preset large               built-in models of 12 layers of 768, and of 8 of 512\n"
        "  bsrun diagnose model.onnx --only shapes --vary tokens=4:12+1 -o json\n",
    .exits =
        "0 done, with findings or without; 2 usage; 3 configuration; 4 a model or an input is wrong;\n"
        "5 plugin or device; 7 a rank died; 8 deadline; 10 memory or disk; 14 --strict and there are "
        "findings;\n"
        "15 --strict, no finding, and a check that failed.\n",
    .options = diagnose_options,
    .run = diagnose,
    .max_words = 1,
    .takes = "builtin:lm|builtin:vit :file",
};
