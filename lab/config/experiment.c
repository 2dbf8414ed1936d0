/* SPDX-License-Identifier: MIT
 * experiment.c - turns a configuration tree into a bs_experiment: defaults, ranges over several keys, older
 * spellings, and their values on this machine. */
#include "lab/config/experiment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/named.h"
#include "lab/activation.h"
#include "lab/clock.h"
#include "lab/config/experiment_read.h"
#include "lab/config/schema.h"
#include "lab/cores.h"
#include "lab/place_name.h"
#include "lab/word.h"

/* The dtypes of a layer; the last one, int8, is only for sums between ranks. */
static const uint32_t wire_dtypes[BS_FLOAT_DTYPES + 1] = {BS_F64,    BS_F32,    BS_F16, BS_BF16,
                                                          BS_F8E4M3, BS_F8E5M2, BS_I8};

static int32_t read_dtype(const bs_node *config, const char *path, size_t n_dtypes, uint32_t *out,
                          bs_error *err) {
  const char *words[BS_WORDS_MAX], *text = bs_schema_str(config, path);
  bs_text all = {0};
  if (bs_word_read(BS_NAMES_DTYPE, wire_dtypes, n_dtypes, text, out)) return BS_OK;
  const size_t n = bs_word_list(BS_NAMES_DTYPE, wire_dtypes, n_dtypes, words);
  const char *nearest = bs_word_nearest(BS_NAMES_DTYPE, wire_dtypes, n_dtypes, text);
  for (size_t i = 0; i < n; i++) bs_text_printf(&all, "%s%s", i > 0 ? ", " : "one of ", words[i]);
  (void)bs_schema_refuse(bs_config_find(config, path), err, "BS-CFG-DTYPE",
                         n_dtypes == BS_FLOAT_DTYPES ? "%s: '%.60s' is not a floating dtype"
                                                     : "%s: '%.60s' is not a dtype of sums",
                         path, text);
  if (nearest != NULL)
    bs_error_hint(err, "did you mean '%s'?", nearest);
  else
    bs_error_hint(err, "%s", all.failed ? "" : all.data);
  bs_text_free(&all);
  return BS_CONFIG;
}

/* Older files have two of these below method. */
static void read_training(bs_experiment *e) {
  const bs_node *config = e->config;
  const int older = given(config, "method.lr") && !given(config, "phase.lr");
  e->optimizer = strcmp(bs_schema_str(config, "phase.optimizer"), "adamw") == 0 ? BS_OPT_ADAMW : BS_OPT_SGD;
  e->lr = bs_schema_f64(config, older ? "method.lr" : "phase.lr");
  e->momentum = e->optimizer == BS_OPT_SGD ? bs_schema_f64(config, "phase.momentum") : 0.0;
  e->beta1 = bs_schema_f64(config, "phase.beta1");
  e->beta2 = bs_schema_f64(config, "phase.beta2");
  e->eps = bs_schema_f64(config, "phase.eps");
  e->weight_decay = bs_schema_f64(config, "phase.weight_decay");
  e->remask = given(config, "phase.remask") ? bs_schema_i64(config, "phase.remask")
                                            : bs_schema_bool(config, "method.recompress_each_step");
}

/* Reads the dtype of sums; int8 means two steps by groups. 0 by default: the layer's own rule
 * (docs/methods.md). */
static int32_t read_reduce_dtype(bs_experiment *e, bs_error *err) {
  static const char path[] = "method.reduce_dtype";
  const char *text = bs_schema_str(e->config, path);
  e->reduce_dtype = 0;
  if (text == NULL || text[0] == '\0') return BS_OK;
  return read_dtype(e->config, path, BS_FLOAT_DTYPES + 1, &e->reduce_dtype, err);
}

static int32_t read_phase(bs_experiment *e, bs_error *err) {
  const bs_node *config = e->config;
  e->phase_name = bs_schema_str(config, "phase.name");
  e->phase = (uint32_t)(e->phase_name[5] - '0');
  e->warmup_iters = bs_schema_i64(config, "phase.warmup_iters");
  e->timed_iters = bs_schema_i64(config, "phase.timed_iters");
  e->pairs_min = bs_schema_i64(config, "phase.pairs_min");
  e->pairs_max = bs_schema_i64(config, "phase.pairs_max");
  e->pairs_seconds = bs_schema_f64(config, "phase.pairs_seconds");
  e->record_timings = (uint32_t)bs_schema_bool(config, "phase.record_timings");
  e->dense_arm = (uint32_t)bs_schema_bool(config, "phase.dense_arm");
  e->cold = (uint32_t)bs_schema_bool(config, "phase.cold");
  e->integer_gate = (uint32_t)bs_schema_bool(config, "phase.integer_gate");
  e->fault_gate = (uint32_t)bs_schema_bool(config, "phase.fault_gate");
  e->reference_features = bs_schema_i64(config, "phase.reference_features");
  read_training(e);
  if (e->pairs_min > e->pairs_max) {
    return bs_schema_refuse(bs_config_find(config, "phase.pairs_min"), err, "BS-CFG-RANGE",
                            "phase.pairs_min %lld is more than phase.pairs_max %lld", (long long)e->pairs_min,
                            (long long)e->pairs_max);
  }
  return BS_OK;
}

static void read_sync(bs_experiment *e) {
  const char *mode = bs_schema_str(e->config, "phase.sync_mode");
  e->sync_mode = strcmp(mode, "sync") == 0   ? BS_SYNC_SYNC
                 : strcmp(mode, "none") == 0 ? BS_SYNC_NONE
                                             : BS_SYNC_EVENTS;
}

/* Is the thing the one inside the configured wrapper? */
static int is_inside(const bs_experiment *e, const char *path, const char *name) {
  const char *configured = bs_schema_str(e->config, path);
  return configured != NULL && strchr(configured, ':') != NULL && strcmp(bs_innermost(configured), name) == 0;
}

/* Is the value at path more than a default: an option, or from a file that also sets `rival`? A file's value
 * is replaced by a rival from elsewhere. */
static int stays(const bs_node *config, const char *path, const char *rival, const char *quiet_dir) {
  const bs_node *node = bs_config_find(config, path), *other = bs_config_find(config, rival);
  if (node == NULL || node->kind == BS_NODE_NULL || is_shipped(node, quiet_dir)) return 0;
  if (!bs_node_from_file(node)) return 1;
  return other != NULL && bs_node_from_file(other) && strcmp(node->file, other->file) == 0;
}

/* Takes the backend and the communicator that an open plugin registered, unless `keeps` (a bit for each kind)
 * marks one as named. A wrapper needs another plugin below it and is not taken alone. */
static int32_t take_things(bs_context *context, bs_experiment *e, const char *id, uint32_t keeps,
                           bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < bs_thing_count(context, id) && rc == BS_OK; i++) {
    bs_thing_info thing = {.struct_size = sizeof thing};
    rc = bs_thing_get(context, id, i, &thing, err);
    if (rc == BS_OK && (thing.wrapper || (keeps >> thing.kind & 1u))) continue;
    if (rc == BS_OK && thing.kind == BS_KIND_BACKEND && !is_inside(e, "hardware.backend", thing.name)) {
      rc = bs_config_set_text(e->config, "hardware.backend", thing.name, err);
    } else if (rc == BS_OK && thing.kind == BS_KIND_COMM && !is_inside(e, "hardware.comm", thing.name)) {
      rc = bs_config_set_text(e->config, "hardware.comm", thing.name, err);
    }
  }
  return rc;
}

/* Uses the backend and communicator of the plugins that --plugin names, unless --backend or --comm names
 * others. A plugin that cannot be opened is an error with the reason. */
static int32_t selected_plugins(bs_context *context, bs_experiment *e, uint32_t keeps, bs_error *err) {
  const bs_node *list = bs_config_find(e->config, "plugin");
  int32_t rc = BS_OK;
  if (context == NULL || list == NULL || list->kind != BS_NODE_LIST) return BS_OK;
  for (const bs_node *item = list->first; item != NULL && rc == BS_OK; item = item->next) {
    char id[64];
    bs_plugin_id_of(item->text, id, sizeof id);
    rc = bs_plugin_activate(context, id, err);
    if (rc == BS_OK) rc = take_things(context, e, id, keeps, err);
  }
  return rc;
}

/* Ranks that are processes talk through `comm` unless one of their own is named; a wrapper stays around it.
 */
static int32_t launch_comm(bs_experiment *e, const char *comm, int named, bs_error *err) {
  const char *inner = bs_innermost(e->comm);
  char name[128];
  if (strcmp(inner, "threads") != 0) return BS_OK;
  if (named && inner == e->comm) {
    (void)bs_schema_refuse(bs_config_find(e->config, "hardware.comm"), err, "BS-CFG-COMM",
                           "communicator threads: ranks that are processes cannot use it");
    bs_error_hint(err, "leave --comm out (%s is taken), or take --launch threads", comm);
    return BS_CONFIG;
  }
  snprintf(name, sizeof name, "%.*s%s", (int)(inner - e->comm), e->comm, comm);
  const int32_t rc = bs_config_set_text(e->config, "hardware.comm", name, err);
  e->comm = bs_schema_str(e->config, "hardware.comm");
  return rc;
}

const char *bs_mpi_of_environment(void) {
  if (getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMIX_RANK") != NULL) return "openmpi";
  return getenv("PMI_RANK") != NULL ? "mpich" : "mpi";
}

/* The run verb makes --launch mpi of it inside a Slurm job. */
static void note_slurm(const bs_experiment *e, bs_notes *notes) {
  if (strcmp(bs_schema_str(e->config, "hardware.launch"), "threads") == 0)
    bs_note_add(notes, "hardware.launcher slurm: %s; the ranks are threads of this process",
                getenv("SLURM_JOB_ID") == NULL ? "not inside a Slurm job" : "--launch threads");
}

int32_t bs_config_name_error(const bs_node *config, const char *path, int32_t rc, bs_error *err) {
  if (rc != BS_OK) bs_schema_where(bs_config_find(config, path), err);
  if (rc != BS_NOT_FOUND || strcmp(err->id, "BS-PLG-NOTFOUND") != 0) return rc;
  return err->code = BS_CONFIG;
}

/* The algorithm and the topology, without their options. */
static int32_t known_rounds(bs_context *context, const bs_experiment *e, bs_error *err) {
  static const char *const paths[] = {"hardware.algorithm", "hardware.topology"};
  const char *const texts[] = {e->algorithm, e->topology};
  for (size_t i = 0; context != NULL && i < 2; i++) {
    const bs_algorithm *algorithm = NULL;
    const bs_topology *topology = NULL;
    bs_named named = {0};
    if (texts[i] == NULL || texts[i][0] == '\0' || (i == 0 && strcmp(texts[i], "native") == 0)) continue;
    int32_t rc = bs_named_read(texts[i], &named, err);
    if (rc == BS_OK)
      rc = i == 0 ? bs_find_algorithm(context, named.name, &algorithm, NULL, err)
                  : bs_find_topology(context, named.name, &topology, NULL, err);
    bs_named_free(&named);
    if (rc != BS_OK) return bs_config_name_error(e->config, paths[i], rc, err);
  }
  return BS_OK;
}

/* Rejects a typed name of a backend or communicator that no plugin registered. Whoever makes the world
 * reports one that cannot be used. */
static int32_t known_names(bs_context *context, const bs_experiment *e, const char *quiet_dir,
                           bs_error *err) {
  static const char *const paths[] = {"hardware.backend", "hardware.comm"};
  for (size_t i = 0; context != NULL && i < 2; i++) {
    const bs_backend *backend = NULL;
    const bs_comm *comm = NULL;
    void *state = NULL;
    bs_error why = BS_ERROR_INIT;
    if (!given(e->config, paths[i]) || is_shipped(bs_config_find(e->config, paths[i]), quiet_dir)) continue;
    const int32_t rc = i == 0 ? bs_find_backend(context, e->backend, &backend, &state, &why)
                              : bs_find_comm(context, e->comm, &comm, &state, &why);
    if (rc != BS_NOT_FOUND) continue;
    *err = why;
    return bs_config_name_error(e->config, paths[i], rc, err);
  }
  return BS_OK;
}

/* Starts no rank if the communicator serves fewer. Whoever makes the world reports a missing communicator. */
static int32_t few_enough(bs_context *context, const bs_experiment *e, bs_error *err) {
  const bs_comm *comm = NULL;
  void *state = NULL;
  if (context == NULL || bs_find_comm(context, e->comm, &comm, &state, NULL) != BS_OK) return BS_OK;
  if (comm->max_ranks == 0 || e->world_size <= comm->max_ranks) return BS_OK;
  return bs_schema_refuse(bs_config_find(e->config, "hardware.world_size"), err, "BS-CFG-RANGE",
                          "hardware.world_size %u: the communicator %s serves at most %u ranks",
                          e->world_size, comm->name, comm->max_ranks);
}

static int32_t read_hardware(bs_context *context, bs_experiment *e, const char *quiet_dir, bs_notes *notes,
                             bs_error *err) {
  const char *backend = bs_schema_str(e->config, "hardware.backend");
  const char *launch = bs_schema_str(e->config, "hardware.launch");
  const int comm_named = stays(e->config, "hardware.comm", "hardware.launch", quiet_dir);
  char asked[16] = ""; /* older files name a communicator here */
  if (strcmp(backend, "nccl") == 0 || strcmp(backend, "gloo") == 0 || strcmp(backend, "mpi") == 0) {
    snprintf(asked, sizeof asked, "%s", backend);
  }
  uint32_t keeps = asked[0] == '\0' && stays(e->config, "hardware.backend", "plugin", quiet_dir)
                       ? 1u << BS_KIND_BACKEND
                       : 0;
  if (stays(e->config, "hardware.comm", "plugin", quiet_dir)) keeps |= 1u << BS_KIND_COMM;
  int32_t rc = asked[0] != '\0' ? bs_config_set_text(e->config, "hardware.backend", "cpu", err) : BS_OK;
  if (rc == BS_OK) rc = selected_plugins(context, e, keeps, err);
  if (rc != BS_OK) return rc;
  e->comm_given =
      given(e->config, "hardware.comm") && !is_shipped(bs_config_find(e->config, "hardware.comm"), quiet_dir);
  backend = bs_schema_str(e->config, "hardware.backend");
  if (asked[0] != '\0') {
    bs_note_add(notes, "hardware.backend %s is a communicator: on backend %s ranks talk through %s", asked,
                backend, bs_schema_str(e->config, "hardware.comm"));
  }
  e->backend = backend;
  e->comm = bs_schema_str(e->config, "hardware.comm");
  e->algorithm = bs_schema_str(e->config, "hardware.algorithm");
  e->topology = bs_schema_str(e->config, "hardware.topology");
  rc = known_names(context, e, quiet_dir, err);
  if (rc == BS_OK) rc = known_rounds(context, e, err);
  if (rc == BS_OK && strcmp(launch, "processes") == 0) rc = launch_comm(e, "shm", comm_named, err);
  if (rc == BS_OK && strcmp(launch, "mpi") == 0)
    rc = launch_comm(e, bs_mpi_of_environment(), comm_named, err);
  if (rc != BS_OK) return rc;
  if (strcmp(bs_schema_str(e->config, "hardware.launcher"), "slurm") == 0) note_slurm(e, notes);
  e->world_size = (uint32_t)bs_schema_i64(e->config, "hardware.world_size");
  e->threads_per_rank = (uint32_t)bs_schema_i64(e->config, "hardware.threads_per_rank");
  e->bind = (uint32_t)bs_schema_bool(e->config, "hardware.bind");
  e->graph = (uint32_t)bs_schema_bool(e->config, "hardware.graph");
  e->timeout_s = bs_schema_f64(e->config, "hardware.timeout_s");
  return few_enough(context, e, err);
}

static int32_t read_method(bs_context *context, bs_experiment *e, bs_notes *notes, bs_error *err) {
  const bs_method *method = NULL;
  void *state = NULL;
  e->method = bs_schema_str(e->config, "method.name");
  if (e->method == NULL || e->method[0] == '\0') {
    bs_error_set(err, BS_CONFIG, "BS-CFG-METHOD", "no method is chosen");
    bs_error_hint(err, "for example --method blockshock");
    return BS_CONFIG;
  }
  int32_t rc = context == NULL ? BS_OK : bs_find_method(context, e->method, &method, &state, err);
  if (rc != BS_OK) return bs_config_name_error(e->config, "method.name", rc, err);
  const bs_node *chosen_by = bs_config_find(e->config, "method.name");
  rc = bs_options_collect(e->config, "method", method == NULL ? NULL : method->option_docs, context == NULL,
                          chosen_by, notes, &e->n_method_options, &e->method_keys, &e->method_values, err);
  if (rc != BS_OK || method == NULL) return rc;
  /* Older hardware files set 2 for every method, but dense runs on one rank. */
  const bs_node *world = bs_config_find(e->config, "hardware.world_size");
  if (method->max_world != 0 && e->world_size > method->max_world && world != NULL &&
      bs_node_from_file(world)) {
    char text[16];
    bs_note_add(notes, "hardware.world_size %u: %s runs on %u rank%s", e->world_size, e->method,
                method->max_world, method->max_world == 1 ? "" : "s");
    e->world_size = method->max_world;
    snprintf(text, sizeof text, "%u", e->world_size);
    rc = bs_config_set_text(e->config, "hardware.world_size", text, err);
  }
  return rc;
}

static int32_t read_workload(bs_context *context, bs_experiment *e, bs_notes *notes, bs_error *err) {
  const bs_workload *workload = NULL;
  void *state = NULL;
  const char *by = given(e->config, "workload.type") ? "workload.type" : "workload.name";
  e->workload = bs_schema_str(e->config, by);
  int32_t rc = context == NULL ? BS_OK : bs_find_workload(context, e->workload, &workload, &state, err);
  if (rc != BS_OK) return bs_config_name_error(e->config, by, rc, err);
  e->workload_seed =
      given(e->config, "workload.seed") ? (uint64_t)bs_schema_i64(e->config, "workload.seed") : e->seed;
  return bs_options_collect(e->config, "workload", workload == NULL ? NULL : workload->option_docs,
                            context == NULL, bs_config_find(e->config, by), notes, &e->n_workload_options,
                            &e->workload_keys, &e->workload_values, err);
}

uint32_t bs_experiment_world(const bs_experiment *e, const bs_method *method) {
  if (e->world_size != 0) return e->world_size;
  return method->default_world != 0 ? method->default_world : 1;
}

/* Takes the backend's own wrapper around the launch's communicator if the user named no communicator. */
static int32_t device_comm(bs_context *context, bs_experiment *e, bs_notes *notes, bs_error *err) {
  const bs_backend *backend = NULL;
  const bs_method *method = NULL;
  void *state = NULL;
  char name[128];
  const int processes = strcmp(bs_schema_str(e->config, "hardware.launch"), "threads") != 0;
  if (context == NULL || e->comm_given || bs_find_method(context, e->method, &method, &state, NULL) != BS_OK)
    return BS_OK;
  /* Whoever makes the world reports a missing backend. */
  if (bs_find_backend(context, e->backend, &backend, &state, NULL) != BS_OK || backend->comm_for == NULL)
    return BS_OK;
  const char *wrapper = backend->comm_for(state, bs_experiment_world(e, method), (uint32_t)processes);
  if (wrapper == NULL) return BS_OK;
  snprintf(name, sizeof name, "%s:%s", wrapper, e->comm);
  bs_note_add(notes, "ranks on backend %s talk through %s; --comm %s takes the host's memory instead",
              e->backend, name, e->comm);
  const int32_t rc = bs_config_set_text(e->config, "hardware.comm", name, err);
  e->comm = bs_schema_str(e->config, "hardware.comm");
  return rc;
}

void bs_note_crowd(uint32_t ranks, uint32_t each, bs_notes *notes) {
  const uint32_t cores = bs_machine_cores();
  bs_note_add(notes,
              "%u rank%s of %u thread%s share %u core%s: results are valid, times are not those of %" PRIu64
              " cores",
              ranks, ranks == 1 ? "" : "s", each, each == 1 ? "" : "s", cores, cores == 1 ? "" : "s",
              (uint64_t)ranks * each);
}

/* Notes that threads share cores: results are then right, but slow, and the user should know why. Ranks of an
 * MPI job may be on several machines. */
static void count_threads(bs_context *context, bs_experiment *e, bs_notes *notes) {
  const bs_method *method = NULL;
  void *state = NULL;
  if (bs_clock_is_virtual(context, e->comm)) return; /* its times are not those of these cores */
  const uint32_t each = e->threads_per_rank > 0 ? e->threads_per_rank : 1;
  uint32_t ranks = e->world_size > 0 ? e->world_size : 1;
  if (context != NULL && bs_find_method(context, e->method, &method, &state, NULL) == BS_OK)
    ranks = bs_experiment_world(e, method);
  e->oversubscribed = (uint64_t)ranks * each > bs_machine_cores() &&
                      strcmp(bs_schema_str(e->config, "hardware.launch"), "mpi") != 0;
  if (e->oversubscribed) bs_note_crowd(ranks, each, notes);
}

static int32_t read_all(bs_context *context, bs_experiment *e, const char *quiet_dir, bs_notes *notes,
                        bs_error *err) {
  const char *accumulate = bs_schema_str(e->config, "method.accumulate");
  e->name = bs_schema_str(e->config, "experiment.name");
  e->seed = (uint64_t)bs_schema_i64(e->config, "experiment.seed");
  e->N = bs_schema_i64(e->config, "model.N");
  e->K = given(e->config, "model.K") ? bs_schema_i64(e->config, "model.K") : e->N;
  e->B = bs_schema_i64(e->config, "model.B");
  e->activation = BS_ACT_NONE; /* the schema lets no other word through */
  bs_name_read(BS_NAMES_ACTIVATION, bs_schema_str(e->config, "model.activation"), &e->activation);
  e->has_bias = (uint32_t)bs_schema_bool(e->config, "method.bias");
  e->accumulate = strcmp(accumulate, "f32") == 0   ? BS_ACC_F32
                  : strcmp(accumulate, "f64") == 0 ? BS_ACC_F64
                                                   : BS_ACC_DEFAULT;
  e->x_placement = bs_place_of(bs_schema_str(e->config, "method.x_placement"));
  e->y_placement = bs_place_of(bs_schema_str(e->config, "method.y_placement"));
  e->out_dir = bs_schema_str(e->config, "logging.out_dir");
  e->run_group = bs_schema_str(e->config, "logging.run_group");
  e->dump_dir = bs_schema_str(e->config, "logging.dump_dir");
  e->run_id = bs_schema_str(e->config, "run_id");
  e->tune_measure = (uint32_t)bs_schema_bool(e->config, "tune.measure");
  e->tune_seconds = bs_schema_f64(e->config, "tune.seconds");
  e->tune_margin = bs_schema_f64(e->config, "tune.margin");
  e->tune_min_work = bs_schema_i64(e->config, "tune.min_work");
  int32_t rc = read_dtype(e->config, "model.dtype", BS_FLOAT_DTYPES, &e->dtype, err);
  if (rc == BS_OK) rc = read_reduce_dtype(e, err);
  if (rc == BS_OK) rc = read_phase(e, err);
  if (rc == BS_OK) rc = read_hardware(context, e, quiet_dir, notes, err);
  if (rc == BS_OK) rc = read_method(context, e, notes, err);
  if (rc == BS_OK) rc = device_comm(context, e, notes, err);
  if (rc == BS_OK) rc = read_workload(context, e, notes, err);
  if (rc == BS_OK) rc = bs_experiment_mask(context, e, quiet_dir, notes, err);
  if (rc == BS_OK) read_sync(e);
  if (rc == BS_OK) count_threads(context, e, notes);
  return rc;
}

int32_t bs_experiment_make(bs_context *context, bs_node *config, const char *quiet_dir, bs_notes *notes,
                           bs_experiment *out_experiment, bs_error *err) {
  memset(out_experiment, 0, sizeof *out_experiment);
  out_experiment->config = config;
  int32_t rc = bs_config_full_names(config, err);
  if (rc == BS_OK) rc = bs_schema_check(config, quiet_dir, notes, err);
  if (rc == BS_OK) rc = bs_schema_canonical(context, config, notes, err);
  bs_schema_drop_idle(config);
  if (rc == BS_OK) rc = read_all(context, out_experiment, quiet_dir, notes, err);
  if (rc != BS_OK) bs_experiment_free(out_experiment);
  return rc;
}

void bs_experiment_free(bs_experiment *e) {
  bs_options_free(e->n_method_options, e->method_keys, e->method_values);
  bs_options_free(e->n_workload_options, e->workload_keys, e->workload_values);
  bs_choices_free(e->n_choices, e->choices);
  json_decref(e->choice_record);
  json_decref(e->ladder);
  free((void *)(uintptr_t)e->mask.shares);
  bs_config_free(e->config);
  memset(e, 0, sizeof *e);
}
