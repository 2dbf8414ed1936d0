/* SPDX-License-Identifier: MIT
 * model_ranks.c - the words of a model over many ranks: --method, -P, --comm, --launch, --mask and
 * method.KEY. Ranks that are to be processes are started here (launch.h). A process that was started as a
 * rank opens the same model: rank 0 goes on with its verb, the others follow it (lab/model/ranks.c) and print
 * nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/board.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "bsrun/model.h"
#include "bsrun/opening.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/op/knob.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/config/short_names.h"
#include "lab/cores.h"
#include "lab/error.h"

static const char *value_of(const args *a, const char *name) {
  for (size_t i = 0; i < a->n_options; i++)
    if (strcmp(args_name(&a->options[i]), name) == 0) return args_value(a, name);
  return NULL;
}

/* ---- ranks that are processes ---------------------------------------------------------------- */

static const char *const hows[] = {"threads", "processes", "mpi"};

/* How the ranks are to be started: as --launch says, else as this process was, else as --comm needs it. */
static const char *how_of(const args *a) {
  const char *asked = value_of(a, "launch"), *comm = value_of(a, "comm"), *found = bsrun_rank_how();
  if (asked != NULL || found != NULL) return asked != NULL ? asked : found;
  return comm != NULL && strcmp(bs_innermost(comm), "shm") == 0 ? hows[1] : hows[0];
}

/* 1: this process was started as a rank of that kind. */
static int joins(const args *a) {
  const char *found = bsrun_rank_how();
  return value_of(a, "method") != NULL && found != NULL && strcmp(how_of(a), found) == 0;
}

const char *model_ranks_joined(const args *a) {
  return joins(a) ? how_of(a) : NULL;
}

void model_ranks_join(const args *a, model_asked *io) {
  if (!joins(a)) return;
  bsrun_rank_begin();
  if (bsrun_rank_follows()) bsrun_follow();
  if (strcmp(how_of(a), "mpi") == 0) bsrun_mpi_enter();
  if (!bsrun_following()) return;
  io->quiet = 1;
  io->show = NULL;
  io->request.progress = NULL;
}

/* The communicator, where --comm names none. */
static int32_t read_comm(const args *a, bs_model_ranks *out, bs_error *err) {
  const char *how = how_of(a);
  size_t i = 0;
  while (i < 3 && strcmp(how, hows[i]) != 0) i++;
  if (i == 3) return bsrun_unknown("way to launch", how, hows, 3, err);
  if (value_of(a, "comm") != NULL) out->comm = value_of(a, "comm");
  if (out->comm == NULL && i > 0) out->comm = i == 1 ? "shm" : bs_mpi_of_environment();
  return args_real(a, "timeout", 0.001, 86400, 60, &out->timeout_s, err);
}

/* Starts the ranks and waits for them: this process has done its part then. */
static int32_t start(const args *a, const bs_model_ranks *k, bs_error *err) {
  if (strcmp(how_of(a), "mpi") != 0) return bs_model_done(bsrun_launch(k->n, k->timeout_s), err);
  bs_node *config = NULL;
  const int32_t rc = bsrun_base_config(a, &config, err);
  const int code =
      rc == BS_OK ? bsrun_launch_mpi(k->n, k->timeout_s, bs_schema_str(config, "hardware.mpirun")) : 0;
  bs_config_free(config);
  return rc == BS_OK ? bs_model_done(code, err) : rc;
}

/* Joins the others, so that a rank that does not come is missed here. */
static int32_t attach(bs_context *context, const bs_model_ranks *k, bs_error *err) {
  bs_attachment here = {.struct_size = sizeof here};
  bsrun_mpi_stage(BSRUN_WAITS);
  const int32_t rc = bs_context_attach(context, k->comm, &here, err);
  if (rc != BS_OK) return rc;
  bsrun_mpi_stage(BSRUN_JOINED);
  if (here.world_size > 0) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-CFG-COMM", "the communicator %.60s does not join processes", k->comm);
  bs_error_hint(err, "leave --comm out, or --launch threads");
  return BS_CONFIG;
}

/* Processes, as far as the ranks are to be some. */
static int32_t launch(const args *a, bs_context *context, const bs_model_ranks *k, bs_error *err) {
  if (joins(a)) return attach(context, k, err);
  return strcmp(how_of(a), hows[0]) == 0 ? BS_OK : start(a, k, err);
}

/* ---- words ----------------------------------------------------------------------------------- */

static int32_t read_mask(const args *a, bs_model_ranks *out, bs_error *err) {
  const char *name = value_of(a, "mask");
  if (name == NULL) return BS_OK;
  out->has_mask = 1;
  const int32_t rc = bs_mask_parse(bs_full_name("mask.name", name), NULL, NULL, &out->mask, err);
  return rc == BS_CONFIG && err != NULL ? (err->code = BS_USAGE) : rc;
}

/* The settings method.KEY, of the options that one of the methods has. */
static int32_t read_options(const args *a, const bs_method *const *methods, size_t n, bs_model_ranks *out,
                            bs_error *err) {
  bs_node *config = NULL;
  bs_notes notes = {0};
  bs_text docs = {0};
  for (size_t i = 0; i < n; i++)
    if (methods[i]->option_docs != NULL) bs_text_printf(&docs, "%s", methods[i]->option_docs);
  int32_t rc = docs.failed ? bs_no_memory(err, "options") : bsrun_base_config(a, &config, err);
  if (rc == BS_OK)
    rc = bs_options_collect(config, "method", docs.data, 0, NULL, &notes, &out->n_options, &out->keys,
                            &out->values, err);
  bs_text_free(&docs);
  bs_notes_free(&notes);
  bs_config_free(config);
  return rc;
}

/* Keys that a layer reads from the configuration, and a model from options, or not at all. */
static int32_t refuse_sets(const args *a, const bs_method *const *methods, size_t n_methods, bs_error *err) {
  static const char *const sections[] = {"method.", "mask.", "hardware.world_size", "hardware.threads"};
  const char **sets = NULL;
  size_t n = 0;
  int32_t rc = args_values(a, "set", &sets, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    char key[80];
    int ours = 0, listed = 0;
    const int of_method = strncmp(sets[i], "method.", 7) == 0;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(sets[i], "="), sets[i]);
    for (size_t k = 0; k < sizeof sections / sizeof sections[0]; k++)
      ours |= strncmp(key, sections[k], strlen(sections[k])) == 0;
    for (size_t k = 0; k < n_methods && of_method; k++)
      listed |= bs_option_listed(methods[k]->option_docs, key + strlen("method."));
    if (!ours || listed || (bs_schema_find(key) == NULL && strcmp(key, "method.mask") != 0)) continue;
    rc = bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--set %s has no effect on a model over ranks", key);
    bs_error_hint(
        err, "--method, -P, --threads and --mask NAME are options; method.KEY is an option of the method");
  }
  free(sets);
  return rc;
}

/* "M" or "F+S". */
static int32_t find_methods(bs_context *context, const char *text, const bs_method **out_methods,
                            size_t *out_n, bs_error *err) {
  const char *plus = strchr(text, '+');
  char first[64];
  void *state;
  if (plus != NULL && (plus == text || plus[1] == '\0' || strchr(plus + 1, '+') != NULL)) {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--method '%.80s' is neither a method nor two as F+S", text);
    bs_error_hint(err, "for example column_parallel+row_parallel");
    return BS_USAGE;
  }
  snprintf(first, sizeof first, "%.*s", plus != NULL ? (int)(plus - text) : 63, text);
  *out_n = plus != NULL ? 2 : 1;
  const int32_t rc = bs_find_method(context, first, &out_methods[0], &state, err);
  return rc == BS_OK && plus != NULL ? bs_find_method(context, plus + 1, &out_methods[1], &state, err) : rc;
}

/* The number that was given, or that of the processes that were started, or the method's usual one. */
static int32_t read_size(const args *a, const bs_method *method, bs_model_ranks *out, bs_error *err) {
  const int64_t started = joins(a) ? bsrun_rank_count() : 0;
  const uint32_t usual = started > 0                  ? (uint32_t)started
                         : method->default_world != 0 ? method->default_world
                                                      : 2;
  int64_t ranks = usual;
  const int32_t rc = args_integer(a, "world-size", 1, INT32_MAX, usual, &ranks, err);
  out->n = (uint32_t)ranks;
  return rc;
}

static int32_t refuse_ranks(const args *a, bs_error *err) {
  static const char *const need[] = {"world-size", "comm", "launch", "timeout", "mask"};
  for (size_t i = 0; i < sizeof need / sizeof need[0]; i++) {
    if (value_of(a, need[i]) == NULL) continue;
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--%s is of a model over ranks, and no --method is given",
                 need[i]);
    bs_error_hint(err, "for example --method row_parallel -P 2");
    return BS_USAGE;
  }
  return BS_OK;
}

/* Simulated ranks are threads of one process, and their communicator is the machine's. */
static int32_t check_simulated(const args *a, const model_asked *asked, bs_error *err) {
  if (asked->machine != NULL && !asked->ranks.simulated) {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE",
                 "--comm %.60s: the simulated machine of --hardware has its own communicator",
                 asked->ranks.comm);
    bs_error_hint(err, "leave --comm out");
    return BS_USAGE;
  }
  if (!asked->ranks.simulated || strcmp(how_of(a), hows[0]) == 0) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--launch %.40s: simulated ranks are threads of one process",
               how_of(a));
  bs_error_hint(err, "--launch threads");
  return BS_USAGE;
}

/* Without a method there is one rank: in the world of a simulated machine, or in none. */
static int32_t one_rank(const args *a, model_asked *io, bs_error *err) {
  const int32_t rc = refuse_ranks(a, err);
  if (rc != BS_OK || !io->ranks.simulated) return rc;
  io->ranks.n = 1;
  io->request.ranks = &io->ranks;
  return BS_OK;
}

/* Ranks of a launcher without a method: each runs the whole model. */
static void note_copies(const args *a, const model_asked *asked) {
  char line[120];
  size_t i = 0;
  while (i < a->n_options && strcmp(args_name(&a->options[i]), "method") != 0) i++;
  if (i == a->n_options || bsrun_rank_count() < 2 || bsrun_rank_follows()) return;
  snprintf(line, sizeof line, "each of %lld processes runs the whole model; --method splits it over them",
           (long long)bsrun_rank_count());
  bsrun_note(asked->quiet, line);
}

int32_t model_ranks_read(const args *a, bs_context *context, int64_t threads, model_asked *io,
                         bs_error *err) {
  bs_model_ranks *out = &io->ranks;
  const bs_method *methods[2] = {NULL, NULL};
  size_t n = 0;
  out->method = value_of(a, "method");
  if (value_of(a, "comm") != NULL) out->comm = value_of(a, "comm");
  out->simulated = (uint32_t)bs_clock_is_virtual(context, out->comm);
  out->phantom = (uint32_t)bs_backend_is_phantom(context, io->request.backend);
  if (out->method == NULL) {
    note_copies(a, io);
    return one_rank(a, io, err);
  }
  out->threads = out->simulated ? 1 : (uint32_t)threads;
  int32_t rc = check_simulated(a, io, err);
  out->launch = how_of(a);
  if (rc == BS_OK) rc = read_comm(a, out, err);
  if (rc == BS_OK) rc = find_methods(context, out->method, methods, &n, err);
  if (rc == BS_OK) rc = refuse_sets(a, methods, n, err);
  if (rc == BS_OK) rc = read_size(a, methods[0], out, err);
  if (rc == BS_OK) rc = read_mask(a, out, err);
  if (rc == BS_OK) rc = read_options(a, methods, n, out, err);
  if (rc == BS_OK) rc = launch(a, context, out, err);
  if (rc != BS_OK) return rc;
  io->request.ranks = out;
  const uint32_t each = threads > 0 ? (uint32_t)threads : 1;
  if (!out->simulated && (uint64_t)out->n * each > bs_machine_cores()) {
    bs_notes notes = {0};
    bs_note_crowd(out->n, each, &notes);
    for (size_t i = 0; i < notes.count; i++) bsrun_note(io->quiet, notes.items[i]);
    bs_notes_free(&notes);
  }
  return BS_OK;
}

int32_t model_ranks_threads_only(const args *a, bs_error *err) {
  if (value_of(a, "method") == NULL || strcmp(how_of(a), hows[0]) == 0) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-WORLD",
               "this command opens several sessions, and ranks that are processes follow one");
  bs_error_hint(err, "--launch threads");
  return BS_UNSUPPORTED;
}

void model_ranks_free(bs_model_ranks *ranks) {
  bs_options_free(ranks->n_options, ranks->keys, ranks->values);
}
