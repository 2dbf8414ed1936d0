/* SPDX-License-Identifier: MIT
 * experiment.h - turns a checked configuration tree into a bs_experiment (lab.h), and makes the plugin
 * context of the tree. Called by bsrun's verbs and by tests. */
#ifndef BS_LAB_CONFIG_EXPERIMENT_H
#define BS_LAB_CONFIG_EXPERIMENT_H
#include "lab/config/notes.h"
#include "lab/experiment.h"

/* Open a context by the tree's plugin, plugin_dirs, plugin_trust and plugins.<id>.<name>. log may be NULL. */
int32_t bs_context_of_config(const bs_node *config, int32_t log_level,
                             void (*log)(void *, int32_t, const char *, int32_t, const char *),
                             void *log_user, bs_context **out_context, bs_error *err);

/* Checks `config` against the schema and the chosen plugins and reads it. Takes the tree in every case (it is
 * freed on failure). Decisions (backend, communicator, clamped world size) are written into the tree, so that
 * the tree repeats the run. quiet_dir: as in bs_schema_check. notes may be NULL. context NULL: names of
 * methods and workloads and their options are not checked. */
int32_t bs_experiment_make(bs_context *context, bs_node *config, const char *quiet_dir, bs_notes *notes,
                           bs_experiment *out_experiment, bs_error *err);
void bs_experiment_free(bs_experiment *experiment);
/* settle.c: a copy of the tree for the record, which the caller frees: with the backend, the communicator, K,
 * the ranks and the bias that were decided, and absolute paths of files. */
int32_t bs_experiment_settle(const bs_experiment *experiment, uint32_t world, bs_node **out_tree,
                             bs_error *err);
/* Translates the `rc` of a look-up of the name at path. An unregistered name is a mistake of the
 * configuration (BS_CONFIG); a plugin that cannot be used is not. Adds to err where the name was written. */
int32_t bs_config_name_error(const bs_node *config, const char *path, int32_t rc, bs_error *err);
/* Notes that more threads than cores share the cores (experiment->oversubscribed). */
void bs_note_crowd(uint32_t ranks, uint32_t threads_of_each, bs_notes *notes);
/* mask.c: the value of the method's option mixed; -1 without it. A text that is not a number gives 0, which
 * the method refuses. */
int64_t bs_mixed_wanted(uint32_t n_options, const char *const *keys, const char *const *values);
/* The number of ranks: as configured, else the method's own. */
uint32_t bs_experiment_world(const bs_experiment *experiment, const bs_method *method);

/* The communicator built with the MPI that started this process; if none did, that of the machine's own
 * MPI. */
const char *bs_mpi_of_environment(void);

/* options.c: passes the keys of `section` ("method", "workload") that the schema lacks to the plugin. A key
 * that option_docs lacks is BS-CFG-KEY. It is only a note if it comes from another file than the plugin's
 * name (it was meant for another plugin). any: 1 accepts every key. */
int32_t bs_options_collect(const bs_node *config, const char *section, const char *option_docs, int any,
                           const bs_node *chosen_by, bs_notes *notes, uint32_t *out_count,
                           const char ***out_keys, const char ***out_values, bs_error *err);
/* Texts in an array, both malloc'd. */
void bs_choices_free(uint32_t count, const char **choices);
void bs_options_free(uint32_t count, const char **keys, const char **values);

/* The plugin id that a --plugin value names: itself, or <id> of .../bs_<id>.so. */
void bs_plugin_id_of(const char *value, char *out_id, size_t size);
#endif
