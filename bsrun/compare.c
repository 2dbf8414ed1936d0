/* SPDX-License-Identifier: MIT
 * compare.c - `bsrun compare [METHOD]...`: every way to split one layer that is asked about, predicted and
 * measured in one sampling, with a sentence each; and what `--method auto` takes of them (compare.h). */
#include "bsrun/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/run.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/measure/sampler.h"
#include "lab/peers/peers.h"

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

static int32_t one_pass(bs_context *context, bs_node *config, bs_ladder_options *o, int64_t most,
                        double seconds, int quiet, compare_keeper *keeper, json_t *rows, bs_error *err) {
  bs_ladder ladder;
  bs_notes crowd = {0};
  int32_t rc = bs_ladder_make(context, config, o, &ladder, err);
  for (uint32_t i = 0; rc == BS_OK && i < ladder.n; i++)
    if (ladder.rungs[i].e.oversubscribed && ladder.rungs[i].opened)
      bs_note_crowd(ladder.rungs[i].c.world_size, ladder.rungs[i].c.threads_per_rank, &crowd);
  for (size_t i = 0; i < crowd.count; i++) bsrun_note(quiet, crowd.items[i]);
  bs_notes_free(&crowd);
  if (rc == BS_OK && most > 0) rc = bs_ladder_measure(&ladder, (uint32_t)most, seconds, o, err);
  if (rc == BS_OK) {
    json_t *more = bs_ladder_rows(&ladder);
    if (more == NULL || json_array_extend(rows, more) != 0)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    if (rc == BS_OK) rc = compare_keep(keeper, &ladder, config, more, err);
    json_decref(more);
  }
  bs_ladder_free(&ladder);
  return rc;
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
  bs_context *context;
  bs_node *config;
  char *cache;
  json_t *constants, *rows;
  const char **passes, **vary;
  bsrun_progress progress;
} compare_run;

static int32_t compare(const args *a, compare_run *r, bs_error *err) {
  static const char *const forward[] = {"forward"};
  int format = 0;
  int64_t most = BS_SAMPLER_ARMS;
  double seconds = 8.0;
  size_t n = 0, n_vary = 0;
  const char *text = args_value(a, "seconds");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = args_integer(a, "measure", 0, BS_SAMPLER_ARMS, BS_SAMPLER_ARMS, &most, err);
  if (rc == BS_OK && text != NULL && (!bs_parse_f64(text, &seconds) || seconds < 0.01 || seconds > 86400))
    rc = bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--seconds: '%.60s' is not a number from 0.01 to 86400",
                      text);
  if (rc == BS_OK) rc = args_values(a, "pass", &r->passes, &n, err);
  if (rc == BS_OK) rc = args_values(a, "vary", &r->vary, &n_vary, err);
  const char *const *passes = n > 0 ? r->passes : forward;
  if (n == 0) n = 1;
  uint32_t pass = 0;
  for (size_t i = 0; rc == BS_OK && i < n; i++) rc = pass_of(passes[i], &pass, err);
  if (rc == BS_OK) rc = bsrun_cache_path(a, &r->cache, err);
  if (rc == BS_OK) rc = open_config(a, &r->request, &r->context, &r->config, err);
  if (rc != BS_OK) return rc;
  r->constants = bsrun_constants(r->cache, args_has(a, "quiet"));
  r->rows = json_array();
  r->progress.of = "compare";
  bs_ladder_options o = {.dense = 1,
                         .in_order = 1,
                         .vary = r->vary,
                         .n_vary = n_vary,
                         .quiet_dir = r->request.configs_dir,
                         .constants = r->constants,
                         .progress = bsrun_progress_to(args_has(a, "quiet")),
                         .progress_user = &r->progress};
  compare_keeper *keeper = NULL;
  char *folder = NULL;
  rc = compare_keeper_open(r->context, args_value(a, "run-id"), args_has(a, "quiet"), &keeper, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    rc = pass_of(passes[i], &o.pass, err);
    if (rc == BS_OK)
      rc = one_pass(r->context, r->config, &o, most, seconds, i > 0 || args_has(a, "quiet"), keeper, r->rows,
                    err);
  }
  bsrun_progress_end(&r->progress);
  const int32_t kept = compare_keeper_close(keeper, rc, &folder, err);
  if (rc == BS_OK) rc = kept;
  if (rc == BS_OK) rc = ladder_print(format, r->rows, 0, err);
  const int readable = format == BS_FORMAT_TABLE || format == BS_FORMAT_WIDE || format == BS_FORMAT_MD;
  if (rc == BS_OK && folder != NULL && readable)
    printf("\n%srun: %s\n", format == BS_FORMAT_MD ? "- " : "", folder);
  free(folder);
  return rc;
}

static void compare_free(compare_run *r) {
  json_decref(r->rows);
  json_decref(r->constants);
  free(r->passes);
  free(r->vary);
  free(r->cache);
  bs_config_free(r->config);
  fflush(stdout); /* a plugin that is closed may end the process */
  if (r->context != NULL) bs_context_close(r->context);
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
  compare_run run = {.progress.busy = ATOMIC_FLAG_INIT};
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

/* ---- --method auto -------------------------------------------------------------------------- */

int auto_asked(const bs_node *config) {
  const char *name = bs_schema_str(config, "method.name");
  return name != NULL && strcmp(name, "auto") == 0;
}

static uint32_t pass_of_phase(const bs_node *config) {
  const char *phase = bs_schema_str(config, "phase.name");
  if (strcmp(phase, "phase2_backward_input") == 0) return BS_ARM_BACKWARD;
  if (strcmp(phase, "phase3_train_step") != 0) return BS_ARM_FORWARD;
  const char *optimizer = bs_schema_str(config, "phase.optimizer");
  return optimizer != NULL && strcmp(optimizer, "adamw") == 0 ? BS_ARM_ADAMW : BS_ARM_SGD;
}

static int32_t choose_best(bs_context *context, const bs_node *config, const bs_ladder_options *o,
                           auto_choice *out, bs_error *err) {
  const int64_t most = bs_schema_i64(config, "auto.measure");
  bs_ladder ladder;
  int32_t rc = bs_ladder_make(context, config, o, &ladder, err);
  if (rc == BS_OK && most > 0)
    rc = bs_ladder_measure(&ladder, (uint32_t)most, bs_schema_f64(config, "auto.seconds"), o, err);
  const bs_rung *best = rc == BS_OK ? bs_ladder_best(&ladder) : NULL;
  if (best != NULL) {
    memcpy(out->settings, best->settings, sizeof out->settings);
    out->n_settings = best->n_settings;
    snprintf(out->name, sizeof out->name, "%s", best->name);
    out->rows = bs_ladder_rows(&ladder);
    out->made = 1;
  }
  if (bs_context_stuck(context) == 0) bs_ladder_free(&ladder);
  return rc;
}

/* A line for each setting, behind the name. */
static int32_t tell_choice(struct bs_peers *peers, const auto_choice *choice, bs_error *err) {
  bs_text text = {0};
  char *mine = NULL;
  bs_text_printf(&text, "%s", choice->name);
  for (uint32_t i = 0; i < choice->n_settings; i++) bs_text_printf(&text, "\n%s", choice->settings[i]);
  const int32_t rc = text.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory")
                                 : bs_peers_text(peers, text.data, &mine, err);
  free(mine);
  bs_text_free(&text);
  return rc;
}

static int32_t hear_choice(struct bs_peers *peers, auto_choice *out, bs_error *err) {
  char *text = NULL, *rest = NULL;
  const int32_t rc = bs_peers_text(peers, "", &text, err);
  if (rc != BS_OK) return rc;
  const char *line = strtok_r(text, "\n", &rest);
  snprintf(out->name, sizeof out->name, "%s", line != NULL ? line : "");
  while ((line = strtok_r(NULL, "\n", &rest)) != NULL && out->n_settings < BS_RUNG_SETTINGS)
    snprintf(out->settings[out->n_settings++], sizeof out->settings[0], "%s", line);
  out->made = 1;
  free(text);
  return BS_OK;
}

int32_t auto_choose(bs_context *context, const bs_node *config, const char *quiet_dir,
                    const json_t *constants, struct bs_peers *peers, int quiet, auto_choice *out,
                    bs_error *err) {
  bsrun_progress progress = {.of = "auto", .busy = ATOMIC_FLAG_INIT};
  const bs_ladder_options o = {.pass = pass_of_phase(config),
                               .quiet_dir = quiet_dir,
                               .constants = constants,
                               .peers = peers,
                               .progress = bsrun_progress_to(quiet),
                               .progress_user = &progress};
  bs_error ignored = BS_ERROR_INIT;
  memset(out, 0, sizeof *out);
  if (!bs_peers_lead(peers)) {
    int32_t rc = bs_ladder_follow(context, config, &o, err);
    if (bs_context_stuck(context) == 0) rc = run_follow_end(peers, "auto", rc, err);
    return rc == BS_OK ? hear_choice(peers, out, err) : rc;
  }
  const int32_t rc = choose_best(context, config, &o, out, err);
  bsrun_progress_end(&progress);
  if (peers == NULL) return rc;
  const bs_told done = {.word = BS_WORD_CHOSEN, .status = rc};
  if (rc == BS_DEADLINE || rc == BS_RANK_FAILED) { /* one has been waited for already, or cannot come */
    bs_peers_tell_soon(peers, &done, 0.3, &ignored);
    return rc;
  }
  const int32_t telling = bs_peers_tell(peers, &done, rc == BS_OK ? err : &ignored);
  if (rc != BS_OK || telling != BS_OK) return rc != BS_OK ? rc : telling;
  return tell_choice(peers, out, err);
}

int32_t auto_apply(const auto_choice *choice, bs_node *config, bs_error *err) {
  static const char *const patterns[] = {"mask.pattern", "mask.pattern_a", "mask.pattern_b"};
  int32_t rc = BS_OK;
  int masked = 0;
  for (uint32_t i = 0; i < choice->n_settings; i++)
    masked |= strncmp(choice->settings[i], "mask.name=", 10) == 0;
  for (size_t i = 0; rc == BS_OK && masked && i < 3; i++)
    if (bs_config_find(config, patterns[i]) != NULL) rc = bs_config_set(config, patterns[i], "null", err);
  for (uint32_t i = 0; rc == BS_OK && i < choice->n_settings; i++) {
    const char *s = choice->settings[i];
    char path[64];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(s, "="), s);
    rc = bs_config_set_text(config, path, s + strlen(path) + 1, err);
  }
  return rc;
}

/* What one of the candidates alone may know: each is asked about it. */
static int32_t drop_options(bs_node *config, bs_error *err) {
  const bs_node *map = bs_config_find(config, "method");
  int32_t rc = BS_OK;
  const bs_node *n = map != NULL && map->kind == BS_NODE_MAP ? map->first : NULL;
  for (; rc == BS_OK && n != NULL; n = n->next) {
    char path[320];
    snprintf(path, sizeof path, "method.%.256s", n->key);
    if (bs_schema_find(path) == NULL) rc = bs_config_set(config, path, "null", err);
  }
  return rc;
}

int32_t auto_stand_in(bs_node *config, bs_error *err) {
  int32_t rc = drop_options(config, err);
  if (rc == BS_OK) rc = bs_config_set_text(config, "method.name", "row_parallel", err);
  if (rc == BS_OK && bs_schema_i64(config, "hardware.world_size") <= 0)
    rc = bs_config_set_text(config, "hardware.world_size", "2", err);
  return rc;
}

void auto_free(auto_choice *choice) {
  json_decref(choice->rows);
  memset(choice, 0, sizeof *choice);
}
