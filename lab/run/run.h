/* SPDX-License-Identifier: MIT
 * run.h - one resolved point as committed run folders: its phases are composed, joined with the other
 * processes of the run, tuned, run, judged and stored. This code does not print and does not know a command
 * line: it reports everything through a table of functions. */
#ifndef BS_LAB_RUN_RUN_H
#define BS_LAB_RUN_RUN_H
#include "core/base/text.h"
#include "lab/config/compose.h"
#include "lab/config/notes.h"
#include "lab/experiment.h"
#include "lab/progress.h"
#include "lab/result.h"
#include "lab/store/grade.h"
#include "lab/store/store.h"

/* The progress of a process in joining the others of its run. */
enum lab_run_stage { LAB_RUN_WAITS = 0, LAB_RUN_JOINED = 1, LAB_RUN_FOLLOWS = 2 };

/* The receiver of reports. Each function may be NULL. All are called on the thread that runs the point,
 * except progress (any thread, several at the same time). Texts are valid only during the call. */
typedef struct lab_run_host {
  void *user; /* first argument of each */
  void (*note)(void *user, const char *text);
  void (*detail)(void *user, const char *text); /* a note with nothing to do about it */
  void (*warn)(void *user, const char *text);
  void (*gate)(void *user, const bs_gate *gate); /* each of a phase, when it is over */
  bs_progress_fn progress;
  /* The current work: a step ("phase1_forward", "tuning", "auto") and, if known, a sentence with the plugins
   * in use. Both NULL: none. */
  void (*doing)(void *user, const char *step, const char *what);
  void (*opened)(void *user, int run_fd); /* a run folder is open: messages now go into its log.txt */
  void (*closed)(void *user);             /* log.txt is complete */
  /* A run is committed. record and folder (null: it is not kept) are the callee's to keep by a reference. */
  int32_t (*row)(void *user, json_t *record, json_t *folder, bs_error *err);
  void (*ladder)(void *user, json_t *rows);        /* the candidates of --method auto */
  const json_t *(*constants)(void *user);          /* of this machine; NULL: they are measured */
  void (*stage)(void *user, uint32_t stage);       /* enum lab_run_stage */
  void (*failed)(void *user, const bs_error *err); /* this process is not rank 0, which may have ended */
} lab_run_host;

/* State shared by the points of one command. Zero-initialized; the caller sets context and host, and closes
 * the context after lab_run_close. The caller owns the strings. Not thread-safe. */
typedef struct lab_run {
  bs_context *context;
  const lab_run_host *host;
  const char *run_id;  /* NULL: made */
  const char *command; /* for env.json; NULL: none */
  json_t *argv;        /* for the record: the words that run the point alone; NULL: those of the process */
  const char *configs_dir; /* as in bs_experiment_make */
  const char *tune_path;   /* the tuning file; NULL: none */
  bs_grades grades;        /* of plugin files, for the records */
  struct bs_peers *peers;  /* ranks that are other processes; NULL: none */
  struct bs_tuner *tuner;
  bs_notes notes; /* of the point; the first `told` have been reported */
  size_t told;
} lab_run;
void lab_run_close(lab_run *run);

typedef struct lab_point {
  const bs_compose_request *compose;
  size_t n_phases;           /* 1: as composed; 2: phase 0, then phase 1 */
  const char *param, *value; /* a key of the schema and its value; NULL: as composed */
  const char *group;         /* logging.run_group; NULL: as composed */
  const char *trace_file;    /* of the last phase, in virtual time; NULL: none */
  const char *et_prefix;     /* in the same way: Chakra files */
  /* Texts for the records. request_key NULL: each phase's key is made from its own tree. sweep NULL: not in a
   * sweep. */
  const char *request_key, *sweep;
  int64_t number; /* in the sweep */
  /* For a planned point (planned.h): a composed tree for each phase instead of `compose`, their request keys
   * at that time (BS_MISMATCH: the plugins have changed since), and texts that are pinned as tune.choices.
   * NULL: none. */
  const bs_node *const *trees;
  const char *const *keys;
  const json_t *choices;
  int is_rank;      /* this process is one of several of the run */
  int ranks_choose; /* of --method auto: ranks that are yet to be started, and a method stands in */
} lab_point;

/* Runs the phases of a point; each leaves a committed folder. Everything is checked before anything runs; a
 * time of wrong numbers is not taken. BS_NUMERIC: a gate failed; BS_INCONCLUSIVE: none could judge; both have
 * a committed run. With BS_ABORTED (lab/stop.h) the open run is marked INTERRUPTED. Where a rank hangs in a
 * plugin (bs_context_stuck) what it was given is not freed. */
int32_t lab_run_point(lab_run *run, const lab_point *point, bs_error *err);
/* Decides what serves the point, as lab_run_point does, and runs nothing: *out_choices is a list of texts for
 * tune.choices, the caller's. */
int32_t lab_run_tune(lab_run *run, const lab_point *point, json_t **out_choices, bs_error *err);
/* Notes of the point that came after its error. */
void lab_run_tell_notes(lab_run *run);
/* The group of all points of a command if the configuration names none and logging.auto_group is on: the time
 * now; else "". */
void lab_run_auto_group(const bs_node *config, char out_group[16]);
/* Leaves INTERRUPTED in the folder of the run that is open. Async-signal-safe. */
void lab_run_interrupted(int run_fd, int signal_number);
/* Ranks and deadline of the point, as its first phase has them. Nothing runs. */
int32_t lab_run_ranks(lab_run *run, const lab_point *point, uint32_t *out_world, double *out_timeout_s,
                      bs_error *err);

/* phase.c: one phase of one experiment. */
int32_t lab_run_phase(lab_run *run, bs_experiment *experiment, bs_error *err);
/* Waits in a process that is not rank 0, after it has followed `what` with rc, for the end on rank 0. */
int32_t lab_run_follow_end(lab_run *run, const char *what, int32_t rc, bs_error *err);
/* Id of the error of a phase that rank 0 has ended. */
#define LAB_RUN_FOLLOWS_ID "BS-RANK-FOLLOWS"

/* begin.c: opens the folder of a run: its key, environment and plugins. *out_load: the load before it, or
 * NULL. Files that the workload reads are added to the array out_inputs. */
int32_t lab_run_begin(lab_run *run, bs_experiment *experiment, uint32_t world, json_t **out_plugins,
                      json_t **out_load, json_t *out_inputs, bs_run **out_run, bs_error *err);

/* parts.c: opens what the run will use, so that a missing part is reported before a folder exists and every
 * plugin is in the run's key. */
int32_t lab_run_open_parts(bs_context *context, const bs_experiment *experiment, uint32_t *out_world,
                           bs_error *err);
/* BS_NO_MEMORY, with the numbers, where the machine has less than the experiment must hold. */
int32_t lab_run_check_memory(bs_context *context, const bs_experiment *experiment, bs_error *err);
/* Reports the current step, with the plugins in use, to the host. */
void lab_run_doing(lab_run *run, const bs_experiment *experiment, const char *step);

/* join.c: ranks that an experiment has, by its method where nothing else says. */
int32_t lab_run_world(bs_context *context, const bs_experiment *experiment, uint32_t *out_world,
                      bs_error *err);
/* Joins the other processes of the run, once, and checks that all have the same configuration. */
int32_t lab_run_join(lab_run *run, bs_experiment *experiment, bs_error *err);
/* Like lab_run_join, for a configuration whose method is not chosen yet. */
int32_t lab_run_join_undecided(lab_run *run, const bs_node *config, bs_error *err);
/* Makes all ranks use rank 0's implementations. */
int32_t lab_run_share_choices(lab_run *run, bs_experiment *experiment, bs_error *err);
/* same.c: lines of what ranks that are processes must have in common: the program, the plugins that are open,
 * and the files of the workload. */
int32_t lab_run_same_text(bs_context *context, const bs_experiment *experiment, bs_text *out, bs_error *err);

/* host.c: to the host, where it listens. */
void lab_run_note(const lab_run *run, const char *text);
void lab_run_detail(const lab_run *run, const char *text);
void lab_run_warn(const lab_run *run, const char *text);
#endif
