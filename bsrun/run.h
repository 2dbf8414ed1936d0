/* SPDX-License-Identifier: MIT
 * run.h - the parts of the run verb: one phase of one experiment (run_phase.c), its rows (run_table.c), and
 * the signals that may end it (run_signal.c). */
#ifndef BSRUN_RUN_H
#define BSRUN_RUN_H
#include "bsrun/bsrun.h"
#include "core/base/text.h"
#include "lab/lab.h"
#include "lab/store/store.h"

typedef struct run_session {
  bs_context *context;
  const char *group;  /* of this invocation; NULL: none */
  const char *run_id; /* --run-id, NULL: made */
  int quiet, verbose;
  size_t point, points;   /* of a sweep, from 1; for the progress */
  bs_grades grades;       /* of plugin files, for the records */
  json_t *constants;      /* of this machine, for phase 1; NULL: measure */
  struct bs_peers *peers; /* ranks that are other processes; NULL: none */
  json_t *rows;           /* for the table */
  json_t *records;        /* of the runs that exist, in order, for the screen */
  json_t *folders;        /* paths of the runs that exist, in order */
} run_session;

/* Run one phase: folder, phase, record, DONE. Adds its rows. A phase whose gates fail gives BS_NUMERIC, one
 * that nothing was judged in BS_INCONCLUSIVE; both have a committed run. */
int32_t run_phase(run_session *session, bs_experiment *experiment, bs_error *err);

/* What bsrun says is running when a plugin ends the process (died.h): `doing` of the method, and the plugins
 * that are open. */
void run_tell_of(const run_session *session, const bs_experiment *experiment, const char *doing);

/* BS_NO_MEMORY, with the numbers, where the machine has less than the experiment must hold. */
int32_t run_check_memory(const run_session *session, const bs_experiment *experiment, bs_error *err);

/* Opens the folder of a run: its key, environment and plugins. *out_load: the load before it, or NULL. Files
 * that the workload reads are added to the array out_inputs. */
int32_t run_begin(run_session *session, bs_experiment *experiment, uint32_t world, json_t **out_plugins,
                  json_t **out_load, json_t *out_inputs, bs_run **out_run, bs_error *err);

/* In a process that is not rank 0, after it has followed `what` with rc: hears how that ended there. */
int32_t run_follow_end(struct bs_peers *peers, const char *what, int32_t rc, bs_error *err);

/* What the gates of a record say: RIGHT, WRONG where one failed, NOT SHOWN RIGHT where none could judge. */
const char *run_word(const json_t *record);
/* Prints rows in a format: a table has the columns of each phase, the other formats have all fields. */
int32_t run_print_rows(int format, const json_t *rows, bs_error *err);
/* Adds what is computed from a record's times to it: FLOPs, GFLOP/s and share of the limit of each arm. */
int32_t run_add_figures(json_t *record, bs_error *err);
/* The rows of a record: one for phase 0, one for each arm of phase 1. */
int32_t run_add_rows(json_t *rows, const json_t *record, const char *run_dir, bs_error *err);

/* Lines of what ranks that are processes must have in common: the program, the plugins that are open, and the
 * files of the workload. */
int32_t run_same_text(bs_context *context, const bs_experiment *experiment, bs_text *out, bs_error *err);

/* run_join.c. Ranks that an experiment has, by its method where nothing else says. */
int32_t run_world(bs_context *context, const bs_experiment *experiment, uint32_t *out_world, bs_error *err);
/* Joins the other processes of the run, once, and sees that all are configured alike. */
int32_t run_join(run_session *session, bs_experiment *experiment, bs_error *err);
/* The same for a configuration of which the method is yet to be chosen. */
int32_t run_join_undecided(run_session *session, const bs_node *config, const char *configs_dir,
                           bs_error *err);
/* Rank 0's implementations become everybody's. */
int32_t run_share_choices(run_session *session, bs_experiment *experiment, bs_error *err);

/* While a run is open, SIGINT and SIGTERM end it after the sample in progress, the second at once;
 * INTERRUPTED stays in its folder, exit 130 / 143. */
void run_signals_install(void);
void run_signals_watch(int run_fd); /* -1: none */
/* Leaves INTERRUPTED with this number in the run that is open. Async-signal-safe. */
void run_signals_mark(int number);
#endif
