/* SPDX-License-Identifier: MIT
 * compare.c - `bsrun compare [METHOD]...`: every way to split one layer that is asked about, predicted and
 * measured in one sampling, with a sentence each. */
#include "bsrun/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/run_host.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/measure/sampler.h"
#include "lab/run/keep.h"

const args_option compare_options[] = {
    {"pass", 0, "NAME", 1, "forward, backward, sgd or adamw (a whole step of training); default: forward"},
    {"masks", 0, "LIST", 0, "masks for the methods that take them, with commas between"},
    {"overlap", 0, "LIST", 0, "off, auto or numbers of chunks, with commas between; default: off"},
    {"reduce-dtypes", 0, "LIST", 0, "dtypes on the wire, with commas between; default: as configured"},
    {"vary", 0, "KEY=V1,V2", 1, "each candidate by every value of a key: method.kernel=gather,sparse24"},
    {"measure", 0, "N", 0, "measure the N best by what is predicted, 0 to 16; default: 16"},
    {"seconds", 0, "S", 0, "time of measuring, each pass; default: 8"},
    {"world-size", 'P', "N", 0, "ranks; default: what each method needs"},
    {"threads-per-rank", 0, "N", 0, "threads of one rank; default: cores / ranks"},
    {"b", 0, "N", 0, "tokens B"},
    {"n", 0, "N", 0, "output features N"},
    {"k", 0, "N", 0, "input features K; default: N"},
    {"dtype", 0, "T", 0, "dtype of the model: bf16, f16, f32, f64, ..."},
    {"bias", 0, "on|off", 0, "a random bias; default: on"},
    {"backend", 0, "NAME", 0, "backend; default: cpu"},
    {"comm", 0, "NAME", 0, "communicator; default: threads"},
    {"workload", 0, "NAME", 0, "gaussian, file, ..."},
    {"hardware", 0, "NAME", 0, "cpu, or a YAML file"},
    {"out", 0, "DIR", 0, "root of the run folder (default results/raw)"},
    {"run-id", 0, "ID", 0, "name of the run folder"},
    {"cache", 0, "FILE|off", 0, "stored machine constants; default: the user's cache folder"},
    {"plugin", 0, "ID|PATH", 1, "use this plugin (its backend, if it has one)"},
    {"config", 0, "FILE", 1, "merge a YAML file over the base"},
    {"set", 0, "KEY=VALUE", 1, "set one key, after all files"},
    {"output", 'o', "FORMAT", 0, "table, md, csv, json or jsonl"},
    {"wide", 0, NULL, 0, "a table of all columns, however wide"},
    {"verbose", 'v', NULL, 1, "say more on stderr"},
    {"quiet", 'q', NULL, 0, "no notes and no progress on stderr"},
    {"help", 'h', NULL, 0, "this help"},
};
const size_t compare_n_options = sizeof compare_options / sizeof compare_options[0];

/* "a,b" as a list of the configuration. */
static int32_t set_list(bs_node *config, const char *path, const char *words, bs_error *err) {
  bs_text text = {0};
  bs_text_printf(&text, "[%s]", words);
  const int32_t rc = text.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
                                 : bs_config_set(config, path, text.data, err);
  bs_text_free(&text);
  return rc;
}

static int32_t set_words(const args *a, bs_node *config, bs_error *err) {
  static const char *const lists[][2] = {
      {"masks", "auto.masks"}, {"overlap", "auto.overlap"}, {"reduce-dtypes", "auto.reduce_dtypes"}};
  bs_text methods = {0};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < a->n_words; i++) bs_text_printf(&methods, "%s%s", i > 0 ? ", " : "", a->words[i]);
  if (a->n_words > 0) rc = set_list(config, "auto.methods", methods.data != NULL ? methods.data : "", err);
  bs_text_free(&methods);
  for (size_t i = 0; rc == BS_OK && i < sizeof lists / sizeof lists[0]; i++) {
    const char *value = args_value(a, lists[i][0]);
    if (value != NULL) rc = set_list(config, lists[i][1], value, err);
  }
  if (rc == BS_OK && bs_config_find(config, "auto.overlap") == NULL)
    rc = set_list(config, "auto.overlap", "off", err);
  return rc;
}

static int32_t pass_of(const char *name, uint32_t *out, bs_error *err) {
  const char *known[BS_ARM_WORKS_];
  for (uint32_t i = 0; i < BS_ARM_WORKS_; i++) {
    known[i] = bs_ladder_pass_name(i);
    if (strcmp(name, known[i]) == 0) return *out = i, BS_OK;
  }
  return bsrun_unknown("pass", name, known, BS_ARM_WORKS_, err);
}

/* The composed tree and its plugins, as run and explain make them. */
static int32_t open_config(const args *a, bsrun_request *request, bs_context **out_context,
                           bs_node **out_config, bs_error *err) {
  bs_composed composed = {0};
  args options = *a; /* the words are ours */
  options.n_words = 0;
  int32_t rc = bsrun_request_make(&options, request, err);
  if (rc == BS_OK) rc = bs_compose(&request->compose, &composed, err);
  if (rc == BS_OK) rc = bs_schema_check(composed.config, request->configs_dir, NULL, err);
  if (rc == BS_OK)
    rc = bs_context_of_config(composed.config, args_has(a, "verbose") ? BS_LOG_DEBUG : BS_LOG_WARN, bsrun_log,
                              NULL, out_context, err);
  if (rc == BS_OK) rc = bs_compose_with(&request->compose, *out_context, &composed, err);
  if (rc == BS_OK) rc = set_words(a, composed.config, err);
  *out_config = composed.config;
  return rc;
}

typedef struct compare_run {
  bsrun_request request;
  run_host host;
  lab_run run;
  bs_node *config;
  char *cache, *command;
  const char **passes, **vary;
  size_t n_passes, n_vary;
  int64_t most; /* measured; the others are predicted alone */
  double seconds;
} compare_run;

/* Ranks that share cores, said once for all passes. */
static void note_crowd(const compare_run *r, const bs_ladder *ladder) {
  bs_notes crowd = {0};
  for (uint32_t i = 0; i < ladder->n; i++)
    if (ladder->rungs[i].e.oversubscribed && ladder->rungs[i].opened)
      bs_note_crowd(ladder->rungs[i].c.world_size, ladder->rungs[i].c.threads_per_rank, &crowd);
  for (size_t i = 0; i < crowd.count; i++) r->host.table.note(r->host.table.user, crowd.items[i]);
  bs_notes_free(&crowd);
}

static int32_t one_pass(compare_run *r, const bs_ladder_options *o, lab_keeper *keeper, bs_error *err) {
  bs_ladder ladder;
  int32_t rc = bs_ladder_make(r->run.context, r->config, o, &ladder, err);
  if (rc == BS_OK) note_crowd(r, &ladder);
  if (rc == BS_OK && r->most > 0) rc = bs_ladder_measure(&ladder, (uint32_t)r->most, r->seconds, o, err);
  if (rc == BS_OK) {
    json_t *more = bs_ladder_rows(&ladder);
    if (more == NULL || json_array_extend(r->host.ladders, more) != 0)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    if (rc == BS_OK) rc = lab_keep_ladder(keeper, &ladder, r->config, more, err);
    json_decref(more);
  }
  bs_ladder_free(&ladder);
  return rc;
}

static int32_t read_options(const args *a, compare_run *r, bs_error *err) {
  const char *text = args_value(a, "seconds");
  r->most = BS_SAMPLER_ARMS;
  r->seconds = 8.0;
  int32_t rc = args_integer(a, "measure", 0, BS_SAMPLER_ARMS, BS_SAMPLER_ARMS, &r->most, err);
  if (rc == BS_OK && text != NULL &&
      (!bs_parse_f64(text, &r->seconds) || r->seconds < 0.01 || r->seconds > 86400))
    rc = bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--seconds: '%.60s' is not a number from 0.01 to 86400",
                      text);
  if (rc == BS_OK) rc = args_values(a, "pass", &r->passes, &r->n_passes, err);
  if (rc == BS_OK) rc = args_values(a, "vary", &r->vary, &r->n_vary, err);
  uint32_t pass = 0;
  for (size_t i = 0; rc == BS_OK && i < r->n_passes; i++) rc = pass_of(r->passes[i], &pass, err);
  if (rc == BS_OK) rc = bsrun_cache_path(a, &r->cache, err);
  return rc;
}

static int32_t open_run(const args *a, compare_run *r, bs_error *err) {
  const int32_t rc = open_config(a, &r->request, &r->run.context, &r->config, err);
  if (rc != BS_OK) return rc;
  r->host.quiet = args_has(a, "quiet");
  r->host.cache = r->cache;
  run_host_open(&r->host);
  r->command = bsrun_command_line();
  r->run.host = &r->host.table;
  r->run.run_id = args_value(a, "run-id");
  r->run.command = r->command;
  bsrun_grades(r->host.quiet, &r->run.grades);
  r->host.table.doing(&r->host, "compare", NULL);
  return BS_OK;
}

/* Each pass, and the folder of what was measured. */
static int32_t measure(compare_run *r, char **out_folder, bs_error *err) {
  bs_ladder_options o = {.dense = 1,
                         .in_order = 1,
                         .vary = r->vary,
                         .n_vary = r->n_vary,
                         .quiet_dir = r->request.configs_dir,
                         .constants = r->host.table.constants(&r->host),
                         .progress = r->host.table.progress,
                         .progress_user = &r->host};
  lab_keeper *keeper = NULL;
  int32_t rc = lab_keep_open(&r->run, &keeper, err);
  for (size_t i = 0; rc == BS_OK && i < (r->n_passes > 0 ? r->n_passes : 1); i++) {
    if (r->n_passes > 0) rc = pass_of(r->passes[i], &o.pass, err);
    if (rc == BS_OK) rc = one_pass(r, &o, keeper, err);
  }
  r->host.table.doing(&r->host, NULL, NULL);
  const int32_t kept = lab_keep_close(keeper, rc, out_folder, err);
  return rc == BS_OK ? kept : rc;
}

static int32_t compare(const args *a, compare_run *r, bs_error *err) {
  int format = 0;
  char *folder = NULL;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = read_options(a, r, err);
  if (rc == BS_OK) rc = open_run(a, r, err);
  if (rc == BS_OK) rc = measure(r, &folder, err);
  if (rc == BS_OK) rc = ladder_print(format, r->host.ladders, 0, err);
  const int readable = format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE || format == BS_FORMAT_MD;
  if (rc == BS_OK && folder != NULL && readable)
    printf("\n%srun: %s\n", format == BS_FORMAT_MD ? "- " : "", folder);
  free(folder);
  return rc;
}

static void compare_free(compare_run *r) {
  lab_run_close(&r->run);
  free(r->passes);
  free(r->vary);
  free(r->cache);
  free(r->command);
  bs_config_free(r->config);
  fflush(stdout); /* a plugin that is closed may end the process */
  if (r->run.context != NULL) bs_context_close(r->run.context);
  run_host_close(&r->host);
  bsrun_request_free(&r->request);
  bsrun_log_free();
}

void help_compare(void) {
  fputs(
      "usage: bsrun compare [METHOD]... [options]\n"
      "\n"
      "Every way to split one layer that METHOD, --masks, --overlap and --vary give, and the dense layer\n"
      "beside them: what each should take by this machine's constants, what it takes (all in turn, in one "
      "sampling; the first named "
      "is\n"
      "what the others are held against), and where its time goes. Nothing is judged: `bsrun run` proves "
      "numbers.\n"
      "Without METHOD: all five. `bsrun --method auto` takes the best of the same ladder.\n"
      "\n",
      stdout);
  args_print_options(compare_options, compare_n_options);
  fputs(
      "\n"
      "examples:\n"
      "  bsrun compare --n 4096 --b 64 -P 2\n"
      "  bsrun compare blockshock row_parallel --masks complement_1100_0011,interleave --pass forward\n"
      "  bsrun compare blockshock column_parallel --pass backward --pass sgd -o md\n"
      "  bsrun compare blockshock --masks complement_1100_0011 --vary method.kernel=gather,sparse24\n"
      "  bsrun compare --measure 0 --n 32768 -P 8   only predicted\n"
      "\n"
      "exit codes: 0; 2 usage; 3 configuration, or no candidate can run (the first reason is printed).\n",
      stdout);
}

int verb_compare(int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  compare_run run = {.host.progress.busy = ATOMIC_FLAG_INIT};
  args a;
  int32_t rc = args_parse(argc, argv, compare_options, compare_n_options, &a, &err);
  if (rc == BS_OK && args_has(&a, "help")) {
    help_compare();
    args_free(&a);
    return 0;
  }
  if (rc == BS_OK) rc = compare(&a, &run, &err);
  const int code = rc == BS_OK ? 0 : bsrun_fail(&err);
  compare_free(&run);
  args_free(&a);
  return code;
}
