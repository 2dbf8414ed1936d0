/* SPDX-License-Identifier: MIT
 * bsrun.h - what the verbs share. Results go to stdout, all else to stderr. */
#ifndef BSRUN_BSRUN_H
#define BSRUN_BSRUN_H
#include <stdatomic.h>

#include <jansson.h>
#include "blockshock/blockshock.h"
#include "bsrun/args.h"
#include "core/base/text.h"
#include "lab/config/compose.h"
#include "lab/config/notes.h"
#include "lab/progress.h"
#include "lab/report/report.h"
#include "lab/store/grade.h"

/* A verb: argc and argv without the program and the verb's words; returns the exit code. */
typedef struct bsrun_verb {
  const char *name;
  const char *summary;
  int (*run)(int argc, char **argv);
  void (*help)(void);
} bsrun_verb;
extern const bsrun_verb bsrun_verbs[];
extern const size_t bsrun_n_verbs;
/* The verb of this name. NULL, with BS-USE-VERB and the nearest name in err: there is none. */
const bsrun_verb *bsrun_find_verb(const char *name, bs_error *err);

int verb_run(int argc, char **argv);
int verb_plugins(int argc, char **argv);
int verb_config(int argc, char **argv);
int verb_config_print(int argc, char **argv); /* also run --print-config */
int verb_doctor(int argc, char **argv);
int verb_explain(int argc, char **argv);
int verb_ladder(int argc, char **argv);
int verb_compare(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_diagnose(int argc, char **argv);
int verb_torture(int argc, char **argv);
int verb_model(int argc, char **argv);
int verb_bench(int argc, char **argv);
int verb_profile(int argc, char **argv);
int verb_sim(int argc, char **argv);
int verb_ccl(int argc, char **argv);
int verb_runs(int argc, char **argv);
int verb_fsck(int argc, char **argv);
int verb_check(int argc, char **argv);
int32_t check_selftest(const args *a, bs_error *err); /* of verb_check */
int verb_why(int argc, char **argv);
int verb_tune(int argc, char **argv);
int verb_sweep(int argc, char **argv);
int verb_replay(int argc, char **argv);
int verb_bundle(int argc, char **argv);
int verb_completion(int argc, char **argv);
int verb_version(int argc, char **argv);
int verb_help(int argc, char **argv);

void help_main(void);
void help_run(void);
void help_plugins(void);
void help_config(void);
void help_doctor(void);
void help_explain(void);
void help_ladder(void);
void help_compare(void);
void help_report(void);
void help_diagnose(void);
void help_torture(void);
void help_model(void);
void help_bench(void);
void help_profile(void);
void help_sim(void);
void help_ccl(void);
void help_runs(void);
void help_fsck(void);
void help_check(void);
void help_why(void);
void help_tune(void);
void help_sweep(void);
void help_replay(void);
void help_bundle(void);
void help_completion(void);
void help_version(void);
void help_help(void);

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
/* The unknown word of a list of choices: BS_USAGE with the nearest. BS-USE-VERB of a verb, BS-USE-FORMAT of
 * an output format, BS-USE-CHOICE of anything else. */
int32_t bsrun_unknown(const char *what, const char *word, const char *const *known, size_t n, bs_error *err);
/* -o of a verb, or --wide where it has that; BS_FORMAT_TABLE when neither is given. */
int32_t bsrun_format(const args *a, int *out_format, bs_error *err);
/* Everything printed so far reaches stdout, or exit 10. */
int bsrun_finish(int exit_code);

/* Options that choose an experiment: run and config print share them. */
extern const args_option bsrun_run_options[];
extern const size_t bsrun_n_run_options;
/* The compose request of parsed run options. `request` points into `a` and into *out_block (the caller frees
 * both; bsrun_request_free). */
enum { BSRUN_MAX_TEXTS = 16 };
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

/* Options of every verb, for help and completion: "plugins list" and its like are one name. */
typedef struct bsrun_words {
  const char *verb;
  const args_option *options;
  const size_t *n_options;
} bsrun_words;
extern const bsrun_words bsrun_all_words[];
extern const size_t bsrun_n_words;
extern const args_option tune_options[];
extern const size_t tune_n_options;
extern const args_option diagnose_options[];
extern const size_t diagnose_n_options;
extern const args_option sweep_options[];
extern const size_t sweep_n_options;
extern const args_option plugins_list_options[], plugins_inspect_options[], plugins_why_options[],
    plugins_knobs_options[], plugins_new_options[], plugins_check_options[], config_keys_options[],
    doctor_options[], explain_options[], torture_options[], ladder_options[], compare_options[],
    model_info_options[], model_run_options[], model_check_options[], model_bench_options[],
    model_explain_options[], model_generate_options[], model_plan_options[], fsck_options[], why_options[],
    report_options[], replay_options[], bundle_options[], check_options[];
extern const size_t plugins_n_list_options, plugins_n_inspect_options, plugins_n_why_options,
    plugins_n_knobs_options, plugins_n_new_options, plugins_n_check_options, config_n_keys_options,
    doctor_n_options, explain_n_options, torture_n_options, ladder_n_options, compare_n_options,
    model_info_n_options, model_run_n_options, model_check_n_options, model_bench_n_options,
    model_explain_n_options, model_generate_n_options, model_plan_n_options, fsck_n_options, why_n_options,
    report_n_options, replay_n_options, bundle_n_options, check_n_options;

/* Progress on a terminal: one line, rewritten for each new step and at most ten times a second within one;
 * NULL elsewhere or when quiet. Any thread may call it; of several at once one is heard. user: a
 * bsrun_progress with `of` and, of a sweep, the point set. */
typedef struct bsrun_progress {
  const char *of;
  size_t point, points; /* from 1; told when there are several */
  double last;
  int shown;
  char step[48]; /* the newest */
  atomic_flag busy;
} bsrun_progress;
bs_progress_fn bsrun_progress_to(int quiet);
void bsrun_progress_end(bsrun_progress *progress);

/* log.txt of the run that is open (its folder's descriptor), else of all that follow: "note: ...". */
void bsrun_log_line(const char *text);
void bsrun_log_point(void); /* a point of a sweep begins: lines of the one before are not its own */
void bsrun_log_begin(int run_fd);
void bsrun_log_end(void); /* before DONE */
void bsrun_log_free(void);
/* Log lines of the context. user: NULL. */
void bsrun_log(void *user, int32_t level, const char *plugin, int32_t rank, const char *message);
#endif
