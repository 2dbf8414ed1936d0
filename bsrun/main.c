/* SPDX-License-Identifier: MIT
 * main.c - bsrun: finds the verb and hands it the rest. A first word that begins with a dash, or none,
 * means run. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/measure/constants.h"
#include "lab/model/model.h"
#include "lab/run/run.h"

/* Verbs that are nothing but their second words. */
static const bsrun_verb *const bench_second[] = {&bench_matmul, &bench_sdpa, NULL};
const bsrun_verb verb_bench = {
    .name = "bench",
    .summary = "check and time implementations of attention or a product",
    .subverbs = bench_second,
};

static const bsrun_verb *const sim_second[] = {&sim_explain_verb,
                                               &sim_scale_verb,
                                               &sim_probe_verb,
                                               &sim_run_verb,
                                               &sim_fit_verb,
                                               &sim_view_verb,
                                               &sim_validate_verb,
                                               &sim_seal_verb,
                                               &sim_score_verb,
                                               &sim_log_verb,
                                               &sim_replay_verb,
                                               &sim_retime_verb,
                                               NULL};
const bsrun_verb verb_sim = {
    .name = "sim",
    .summary = "simulate machines, and fit them to measured times",
    .subverbs = sim_second,
};

static const bsrun_verb *const split[] = {&verb_run, &verb_compare, &verb_sweep, &verb_model, NULL};
static const bsrun_verb *const results[] = {&verb_runs, &verb_report, &verb_explain, &verb_check, NULL};
static const bsrun_verb *const speed[] = {&verb_profile, &verb_diagnose, &verb_bench, &verb_tune, NULL};
static const bsrun_verb *const cluster[] = {&verb_coll, &verb_sim, NULL};
static const bsrun_verb *const extend[] = {&verb_doctor, &verb_config, &verb_plugins, &verb_torture, NULL};
static const bsrun_verb *const unlisted[] = {&verb_completion, &verb_version, &verb_help, NULL};
const bsrun_verb_group bsrun_verb_groups[] = {{"run", split},     {"results", results}, {"speed", speed},
                                              {"ranks", cluster}, {"setup", extend},    {NULL, unlisted},
                                              {.title = NULL}};

static int command_argc;
static char **command_argv;

void bsrun_set_command_line(int argc, char **argv) {
  command_argc = argc;
  command_argv = argv;
}

char **bsrun_command_words(void) {
  return command_argv;
}

char *bsrun_command_line(void) {
  bs_text text = {0};
  bs_text_printf(&text, "bsrun");
  for (int i = 1; i < command_argc; i++) bs_text_word(&text, command_argv[i]);
  if (text.failed) {
    bs_text_free(&text);
    return NULL;
  }
  return text.data;
}

static bs_error at_end = BS_ERROR_INIT; /* what a plugin said when it was closed */

void bsrun_close_context(bs_context *context) {
  bs_error err = BS_ERROR_INIT;
  if (bs_context_end(context, &err) != BS_OK && at_end.code == BS_OK) at_end = err;
}

/* The other processes of a run have their own part of it: only a program that has all ranks knows. */
static int end_of_plugins(int code) {
  return code != 0 || at_end.code == BS_OK || bsrun_rank_how() != NULL ? code : bsrun_fail(&at_end);
}

/* The exit code of a thing that does not exist: 3 for a name in a configuration, 4 for a file, a run or
 * another stored thing. */
static int exit_code_of(const bs_error *err) {
  if (err->code != BS_NOT_FOUND) return (int)bs_status_exit_code(err->code);
  return (int)bs_status_exit_code(strncmp(err->id, "BS-PLG-", 7) == 0 ? BS_CONFIG : BS_INPUT);
}

int bsrun_fail(const bs_error *given) {
  if (strcmp(given->id, BS_MODEL_DONE_ID) == 0) return (int)given->native_code;
  const int interrupted = bsrun_interrupted(); /* the error is what the signal made */
  if (interrupted != 0) return interrupted;
  char line[2048];
  bs_error room = BS_ERROR_INIT, *err = &room;
  if (!bsrun_mpi_cause(given, &room)) room = *given;
  bsrun_name_page(err);
  if (bsrun_mpi_was_missed()) return exit_code_of(err); /* the others have said it */
  bs_error_format(err, "bsrun", line, sizeof line);
  if (bsrun_following()) {
    const int echo = err->code == BS_ABORTED || strcmp(err->id, LAB_RUN_FOLLOWS_ID) == 0;
    if (echo || bsrun_rank_error(err) || bsrun_mpi_error(err)) return exit_code_of(err);
  } else {
    bsrun_mpi_error(err);
  }
  char *shown = bs_report_printable(line);
  bs_print(stderr, "%s\n", shown != NULL ? shown : line);
  free(shown);
  return exit_code_of(err);
}

/* One line of a kind, on stderr and in log.txt. */
static void tell(int quiet, const char *kind, const char *text) {
  bs_text line = {0};
  char *shown = bs_report_printable(text);
  bs_text_printf(&line, "%s: %s", kind, shown != NULL ? shown : "");
  if (line.data != NULL && !quiet) bs_print(stderr, "bsrun: %s\n", line.data);
  if (line.data != NULL) bsrun_log_line(line.data);
  bs_text_free(&line);
  free(shown);
}

void bsrun_note(int quiet, const char *text) {
  tell(quiet, "note", text);
}

void bsrun_detail(int verbose, const char *text) {
  tell(!verbose, "note", text);
}

void bsrun_warn(const char *text) {
  tell(0, "warning", text);
}

void bsrun_warn_load(const json_t *conditions) {
  char busy[200];
  if (bs_load_was_high(conditions, busy, sizeof busy)) bsrun_warn(busy);
}

void bsrun_log(void *user, int32_t level, const char *plugin, int32_t rank, const char *message) {
  static const char *const names[] = {"log", "error", "warning", "info", "debug"};
  char who[64] = "", at[32] = "";
  (void)user;
  if (plugin != NULL && plugin[0] != '\0') snprintf(who, sizeof who, " %.40s:", plugin);
  if (rank >= 0) snprintf(at, sizeof at, " rank %d:", rank);
  char kind[128];
  snprintf(kind, sizeof kind, "%s:%s%s", names[level >= 1 && level <= 4 ? level : 0], who, at);
  if (kind[strlen(kind) - 1] == ':') kind[strlen(kind) - 1] = '\0';
  tell(0, kind, message);
}

int32_t bsrun_unknown(const char *what, const char *word, const char *const *known, size_t n, bs_error *err) {
  const char *id = strcmp(what, "verb") == 0            ? "BS-USE-VERB"
                   : strcmp(what, "output format") == 0 ? "BS-USE-FORMAT"
                                                        : "BS-USE-CHOICE";
  const char *nearest = bs_nearest(word, known, n);
  bs_error_set(err, BS_USAGE, id, "unknown %s '%.100s'", what, word);
  if (nearest != NULL) {
    bs_error_hint(err, "did you mean '%s'?", nearest);
    return BS_USAGE;
  }
  char list[200];
  size_t used = 0;
  list[0] = '\0';
  for (size_t i = 0; i < n && used + 1 < sizeof list; i++) {
    const char *more = i + 1 < n ? ", ..." : ""; /* a word is shown whole or not at all */
    if (used + strlen(known[i]) + 2 + strlen(more) >= sizeof list) {
      snprintf(list + used, sizeof list - used, ", ...");
      break;
    }
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", known[i]);
  }
  bs_error_hint(err, "one of %s", list);
  return BS_USAGE;
}

int32_t bsrun_format(const args *a, int *out_format, bs_error *err) {
  const char *name = args_value(a, "output");
  *out_format = args_has(a, "wide") ? BS_FORMAT_WIDE : BS_FORMAT_TABLE;
  if (name == NULL) return BS_OK;
  const int format = bs_format_parse(name);
  if (format < 0) {
    bsrun_unknown("output format", name, bs_format_names, 5, err);
    if (bs_nearest(name, bs_format_names, 5) == NULL)
      bs_error_hint(err, "-o takes table, md, csv, json or jsonl; into a file: -o json > FILE");
    return BS_USAGE;
  }
  if (format != BS_FORMAT_TABLE && args_has(a, "wide"))
    return bs_error_set(err, BS_USAGE, "BS-USE-FORMAT",
                        "--wide affects tables only; -o %s always prints all fields", name);
  if (format != BS_FORMAT_TABLE) *out_format = format;
  return BS_OK;
}

int bsrun_finish(int exit_code) {
  if (bsrun_interrupted() != 0) exit_code = bsrun_interrupted();
  if (fflush(stdout) == 0 && !ferror(stdout)) return exit_code;
  if (exit_code != 0) return exit_code;
  bs_error err = BS_ERROR_INIT;
  bs_error_set(&err, BS_IO, "BS-OUT-WRITE", "cannot write the results to stdout");
  return bsrun_fail(&err);
}

static int run_verb(int argc, char **argv) {
  if (argc < 2) return bsrun_finish(bsrun_verb_run(&verb_run, 0, argv + argc));
  const char *word = argv[1];
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
    help_main();
    return bsrun_finish(0);
  }
  if (strcmp(word, "--version") == 0) return bsrun_finish(bsrun_verb_run(&verb_version, argc - 2, argv + 2));
  if (word[0] == '-') return bsrun_finish(bsrun_verb_run(&verb_run, argc - 1, argv + 1));
  bs_error err = BS_ERROR_INIT;
  const bsrun_verb *verb = bsrun_find_verb(word, &err);
  if (verb != NULL) return bsrun_finish(bsrun_verb_run(verb, argc - 2, argv + 2));
  return bsrun_fail(&err);
}

int main(int argc, char **argv) {
  signal(SIGCHLD, SIG_DFL); /* where the caller ignores it, the kernel would take the status of children */
  signal(SIGXFSZ, SIG_IGN); /* a file limit is an error of write(2), reported like a full disk */
  bsrun_set_command_line(argc, argv);
  bsrun_died_install(argc < 2 || argv[1][0] == '-' ? "run" : argv[1]);
  return bsrun_end(end_of_plugins(run_verb(argc, argv)));
}
