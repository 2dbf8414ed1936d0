/* SPDX-License-Identifier: MIT
 * bsrun.h - what the verbs share. Results go to stdout, all else to stderr. */
#ifndef BSRUN_BSRUN_H
#define BSRUN_BSRUN_H
#include <stdatomic.h>

#include <jansson.h>

#include "blockshock/blockshock.h"
#include "bsrun/verb.h"
#include "core/base/text.h"
#include "lab/config/compose.h"
#include "lab/config/notes.h"
#include "lab/progress.h"
#include "lab/report/report.h"
#include "lab/store/grade.h"

extern const bsrun_verb verb_run, verb_compare, verb_sweep, verb_model, verb_runs, verb_report, verb_explain,
    verb_check, verb_profile, verb_diagnose, verb_bench, verb_tune, verb_coll, verb_sim, verb_doctor,
    verb_config, verb_plugins, verb_torture, verb_completion, verb_version, verb_help;
/* Second words of verb_bench and verb_sim. */
extern const bsrun_verb bench_matmul, bench_sdpa, sim_explain_verb, sim_fit_verb, sim_probe_verb,
    sim_run_verb, sim_scale_verb, sim_score_verb, sim_seal_verb, sim_validate_verb, sim_log_verb,
    sim_replay_verb, sim_retime_verb, sim_view_verb;
int32_t config_print(const args *a, bs_error *err);   /* of verb_config; also run --print-config */
int32_t check_selftest(const args *a, bs_error *err); /* of verb_check */
void help_main(void);
/* Adds the names of a kind (`bsrun completion words kinds`) to `names`, each once. */
int32_t bsrun_names(const char *kind, json_t *names, bs_error *err);
/* Does a name match a PATTERN of the command line: a part of it, or with * ? [ a glob of all of it? Case is
 * ignored. */
int bsrun_matches(const char *pattern, const char *name);

/* The words of the command line as typed, for the line that repeats a run. */
void bsrun_set_command_line(int argc, char **argv);
/* Prints them quoted for a shell into a malloc'd text; NULL when out of memory. */
char *bsrun_command_line(void);
/* The words themselves, NULL at their end. */
char **bsrun_command_words(void);

/* bs_context_close. What a plugin says then makes an exit code of 0 an error. */
void bsrun_close_context(bs_context *context);
/* Is a run folder kept? Not with --out off. */
int bsrun_keeps(const args *a);

/* The error line on stderr; returns the exit code of err->code. */
int bsrun_fail(const bs_error *err);
/* "bsrun: note: ..." unless quiet; and into log.txt. */
void bsrun_note(int quiet, const char *text);
/* A note that tells nothing to do: on stderr only when `verbose`, and into log.txt. */
void bsrun_detail(int verbose, const char *text);
/* "bsrun: warning: ...", and into log.txt. */
void bsrun_warn(const char *text);
/* Warns when others had the processors during a measurement: its bs_load_json. */
void bsrun_warn_load(const json_t *conditions);
/* The unknown word of a list of choices: BS_USAGE with the nearest. BS-USE-VERB of a verb, BS-USE-FORMAT of
 * an output format, BS-USE-CHOICE of anything else. */
int32_t bsrun_unknown(const char *what, const char *word, const char *const *known, size_t n, bs_error *err);
/* -o of a verb, or --wide where it has that; BS_FORMAT_TABLE when neither is given. */
int32_t bsrun_format(const args *a, int *out_format, bs_error *err);
/* Everything printed so far reaches stdout, or exit 10. */
int bsrun_finish(int exit_code);

/* Options that choose an experiment: run and config print share them. */
#define BSRUN_RUN_ROWS                                                                                    \
  {OPT_PLUGIN, NULL, 0}, {OPT_METHOD, NULL, 0},                                                           \
      {OPT_WORLD_SIZE, "default: the method's own (2; dense: 1)", 0}, {OPT_BACKEND, "default: cpu", 0},   \
      {OPT_COMM, "default: threads, or what the backend names", 0}, {OPT_LAUNCH, NULL, 0},                \
      {OPT_PHASE, "default: numbers, then time", 0}, {OPT_MASK, NULL, 0}, ARGS_SHAPE,                     \
      {OPT_WORKLOAD, NULL, 0}, {OPT_HARDWARE, NULL, 0}, {OPT_SWEEP, NULL, 0}, {OPT_CONFIG, NULL, 0},      \
      {OPT_SET, NULL, 0}, {OPT_THREADS, "default: cores / ranks", 0},                                     \
      {OPT_TIMEOUT, "of every wait between ranks", 0},                                                    \
      {OPT_SECONDS, "of the pairs of phase time; default: 4", 0},                                         \
      {OPT_SAMPLES, "timed forwards of phase numbers, steps of phase train; default: 100", 0},            \
      {OPT_WARMUP, "default: 10", 0}, {OPT_SEED, "default: 725", 0}, {OPT_OUT, NULL, 0},                  \
      {OPT_RUN_ID, NULL, 0},                                                                              \
      {OPT_TO, "of phase numbers: X, W, bias, partials and Y as .npy files in this folder", ARGS_FOLDER}, \
      {OPT_TO_TRACE, NULL, 0}, {OPT_TO_ET, NULL, 0}, {OPT_CACHE, NULL, 0}, {OPT_TUNE_CACHE, NULL, 0},     \
      {OPT_PLANNED, NULL, ARGS_HIDDEN}, {OPT_PRINT_CONFIG, NULL, 0}, ARGS_TABLE,                          \
      {OPT_VERBOSE, "twice: everything", 0}, {OPT_QUIET, NULL, 0}, {                                      \
    OPT_VERSION, NULL, 0                                                                                  \
  }
extern const args_option bsrun_run_options[];
/* The compose request of parsed run options. `request` points into `a` and into *out_block (the caller frees
 * both; bsrun_request_free). */
enum { BSRUN_MAX_TEXTS = 24 };
typedef struct bsrun_request {
  bs_compose_request compose;
  char *configs_dir;
  const char **lists[4];
  char *texts[BSRUN_MAX_TEXTS];
} bsrun_request;
int32_t bsrun_request_make(const args *a, bsrun_request *out, bs_error *err);
/* Adds "key=value" to a request, taken literally. At most BSRUN_MAX_TEXTS, with those of the options. */
int32_t bsrun_request_add(bsrun_request *request, const char *key, const char *value, bs_error *err);
void bsrun_request_free(bsrun_request *request);

/* The file of the machine's constants: --cache FILE, else the user's cache folder; NULL: off, or no such
 * folder. The caller frees. */
int32_t bsrun_cache_path(const args *a, char **out_path, bs_error *err);
/* The tuning file in the same way: --tune-cache. */
int32_t bsrun_tune_path(const args *a, char **out_path, bs_error *err);
/* The file of measured points in the same way: --points. */
int32_t bsrun_points_path(const args *a, char **out_path, bs_error *err);
/* The key by which this user's plans are known (lab/store/own.h); NULL: there is no cache folder. */
int32_t bsrun_own_key_path(char **out_path, bs_error *err);
/* The grades that `plugins check` has kept in the user's cache folder. A file that is damaged or cannot be
 * read is noted; what is not read is not graded. The caller closes. */
void bsrun_grades(int quiet, bs_grades *out);
/* The constants in it; NULL when there are none that this machine and build can use. A corrupt file is warned
 * of, one of another machine is a note. The caller releases. */
json_t *bsrun_constants(const char *path, int quiet);

/* Progress on a terminal: one line, rewritten for each new step and at most ten times a second within one;
 * NULL elsewhere or when quiet. Any thread may call it; of several calls at the same time one is shown. user:
 * a bsrun_progress with `of` and, of a sweep, the point set. */
typedef struct bsrun_progress {
  const char *of;
  size_t point, points; /* from 1; shown when there are several */
  double last;
  int shown;
  char step[48]; /* the newest */
  atomic_flag busy;
} bsrun_progress;
bs_progress_fn bsrun_progress_to(int quiet);
void bsrun_progress_end(bsrun_progress *progress);

/* run_signal.c. SIGINT and SIGTERM from now on: the first ends the measurement (lab/stop.h), the second ends
 * bsrun immediately; the exit code is 130 or 143. go_on: how the user continues, printed at the end; static.
 * A measurement that does not end within seconds is killed. NULL: a run, which leaves INTERRUPTED in its
 * folder; while no run is open the first signal ends bsrun. */
void bsrun_interruptible(const char *go_on);
/* Was the verb interrupted? Tells it once, and gives the exit code; 0: no. */
int bsrun_interrupted(void);

/* log.txt of the run that is open (its folder's descriptor), else of all that follow: "note: ...". */
void bsrun_log_line(const char *text);
void bsrun_log_point(void); /* a point of a sweep begins: lines of the one before are not its own */
void bsrun_log_begin(int run_fd);
void bsrun_log_end(void); /* before DONE */
void bsrun_log_free(void);
/* Log lines of the context. user: NULL. */
void bsrun_log(void *user, int32_t level, const char *plugin, int32_t rank, const char *message);
#endif
