/* SPDX-License-Identifier: MIT
 * tune.c - `bsrun tune PROBLEM`: which implementation with which knobs is the fastest (lab/race), and
 * `--simulate FILE`: strategies on points that were measured before (lab/choose). tune_inside.c has
 * `--device D`. This process opens no plugin; a candidate is a separate process, `bsrun tune --candidate
 * FILE`. */
#include "bsrun/tune.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/opening.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"

static const args_option tune_options[] = {
    {OPT_STRATEGY, "default: elite", 0},
    {OPT_SAMPLES, "at most so many points; default: the strategy's own; of --simulate points of a replay", 0},
    {OPT_SECONDS, "of the search; default: the strategy's own", 0},
    {OPT_PROVIDER, "only this one; default: all that serve", 0},
    {OPT_THREADS, "default: all cores", 0},
    {OPT_BACKEND, "default: cpu", 0},
    {OPT_KNOB, NULL, 0},
    {OPT_WHERE, "of knobs: 'rows*keys <= 16384 && exp != fast'", 0},
    {OPT_START, NULL, 0},
    {OPT_WITH, NULL, 0},
    {OPT_WITH_SURVIVORS, NULL, 0},
    {OPT_WITH_FINALISTS, NULL, 0},
    {OPT_WITH_MARGIN, NULL, 0},
    {OPT_WITH_CANDIDATE_SECONDS, NULL, 0},
    {OPT_WITH_PAIR_SECONDS, NULL, 0},
    {OPT_WITH_REPLAYS, NULL, 0},
    {OPT_WITH_DEVICE, NULL, 0},
    {OPT_SEED, "of the search; default: 1", 0},
    {OPT_TIMEOUT, "of a candidate; default: 60", 0},
    {OPT_STORED, NULL, 0},
    {OPT_STORED_ONLY, NULL, 0},
    {OPT_STORED_CONTINUE, NULL, 0},
    {OPT_STORED_ANEW, NULL, 0},
    {OPT_TUNE_CACHE, NULL, 0},
    {OPT_POINTS, NULL, 0},
    {OPT_SIMULATE, NULL, 0},
    {OPT_PLUGIN, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    {OPT_CANDIDATE, NULL, ARGS_HIDDEN},
    ARGS_TABLE,
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

enum { STRATEGY_ALL = BS_STRATEGIES };
static const double GOAL = 0.95;

/* ---- options -------------------------------------------------------------------------------- */

/* --strategy point: no search; is the point of --start faster than the default? */
static int is_point(const args *a) {
  const char *name = args_value(a, "strategy");
  return name != NULL && strcmp(name, "point") == 0;
}

static int32_t read_strategy(const args *a, uint32_t *out, int all, bs_error *err) {
  const char *name = args_value(a, "strategy");
  const char *const names[] = {"full", "random", "fast", "elite", "mixed", all ? "all" : "point"};
  *out = all ? STRATEGY_ALL : BS_STRATEGY_ELITE;
  if (name == NULL || (all && strcmp(name, "all") == 0)) return BS_OK;
  if (!all && is_point(a)) {
    if (args_has(a, "start")) return BS_OK;
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--strategy point takes a point, and --start names none");
    bs_error_hint(err, "as in --strategy point --start 'keys=16;exp=exact'");
    return BS_USAGE;
  }
  const int found = bs_strategy_find(name);
  if (found < 0) return bsrun_unknown("strategy", name, names, 6, err);
  *out = (uint32_t)found;
  return BS_OK;
}

/* --samples and --seconds; 0: the strategy's own. */
static int32_t read_budget(const args *a, uint64_t *out_points, double *out_seconds, bs_error *err) {
  int64_t points = 0;
  int32_t rc = args_integer(a, "samples", 1, INT64_MAX, 0, &points, err);
  if (rc == BS_OK) rc = args_real(a, "seconds", 1e-3, 1e8, 0.0, out_seconds, err);
  *out_points = (uint64_t)points;
  return rc;
}

/* "a", "b" of several --where: "(a) && (b)". */
static int32_t read_where(tune_verb *v, bs_error *err) {
  const char **given = NULL;
  size_t n = 0;
  const int32_t rc = args_values(v->a, "where", &given, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++)
    bs_text_printf(&v->where, n == 1 ? "%s%s" : "%s(%s)", i > 0 ? " && " : "", given[i]);
  free(given);
  return v->where.failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : rc;
}

/* One NAME=VALUES of `text`, whose end is at text[length]. */
static int32_t add_knob(tune_verb *v, const char *text, size_t length, bs_error *err) {
  const size_t i = v->race.n_knobs;
  char *piece = strndup(text, length), *equals = piece != NULL ? strchr(piece, '=') : NULL;
  v->names[i] = piece;
  if (piece == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  v->race.n_knobs = i + 1;
  if (equals == NULL || equals == piece || equals[1] == '\0')
    return bs_error_set(err, BS_USAGE, "BS-USE-KNOB", "--knob: '%.60s' is not NAME=VALUES", piece);
  *equals = '\0';
  v->knobs[i] = (bs_race_knob){piece, equals + 1};
  for (size_t j = 0; j < i; j++)
    if (strcmp(v->names[j], piece) == 0)
      return bs_error_set(err, BS_USAGE, "BS-USE-TWICE",
                          "--knob %.60s is given twice: give all values in one (%.60s=%.60s,%.60s)", piece,
                          piece, v->knobs[j].values, v->knobs[i].values);
  return BS_OK;
}

/* "tm=64,128;tn=64" is two knobs. */
static int32_t read_knobs(tune_verb *v, bs_error *err) {
  const char **given = NULL;
  size_t n = 0, pieces = 1;
  int32_t rc = args_values(v->a, "knob", &given, &n, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++, pieces++)
    for (const char *at = given[i]; *at != '\0'; at++) pieces += *at == ';';
  if (rc == BS_OK) {
    v->knobs = calloc(pieces, sizeof *v->knobs);
    v->names = calloc(pieces, sizeof *v->names);
    if (v->knobs == NULL || v->names == NULL) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  for (size_t i = 0; i < n && rc == BS_OK; i++)
    for (const char *at = given[i]; rc == BS_OK; at++) {
      const size_t length = strcspn(at, ";");
      rc = add_knob(v, at, length, err);
      at += length;
      if (*at == '\0') break;
    }
  v->race.knobs = v->knobs;
  free(given);
  return rc;
}

int32_t tune_read_words(const args *a, bs_text *out, bs_error *err) {
  if (a->n_words == 0) {
    bs_error_set(err, BS_USAGE, "BS-USE-WORD", "tune takes a problem");
    bs_error_hint(err, "bsrun tune b2h8s512d64:bf16:full, bsrun tune 'matmul24 n4096k4096b64:f32'");
    return BS_USAGE;
  }
  for (size_t i = 0; i < a->n_words; i++) bs_text_printf(out, "%s%s", i > 0 ? " " : "", a->words[i]);
  return out->failed ? bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory") : BS_OK;
}

/* The problem may be several words: "matmul24 n4096k4096b64:f32". */
static int32_t read_problem(tune_verb *v, bs_error *err) {
  bs_kernel_problem problem;
  bs_text words = {0};
  int32_t rc = tune_read_words(v->a, &words, err);
  if (rc == BS_OK) rc = bs_kernel_problem_parse(words.data, &problem, err);
  if (rc == BS_OK) bs_kernel_problem_text(&problem, v->problem, sizeof v->problem);
  bs_text_free(&words);
  return rc;
}

/* Makes the configuration by which a child opens plugins, with absolute paths of files. */
static int32_t read_config(tune_verb *v, bs_error *err) {
  bs_node *config = NULL;
  int32_t rc = bsrun_base_config(v->a, &config, err);
  if (rc == BS_OK) bs_config_print(config, &v->config);
  if (rc == BS_OK && v->config.failed) rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  bs_config_free(config);
  return rc;
}

static int32_t check_beside(const args *a, bs_error *err) {
  static const char *const alone[][2] = {{"continue", "anew"}, {"continue", "only"}, {"anew", "only"}};
  for (size_t i = 0; i < 3; i++)
    if (args_has(a, alone[i][0]) && args_has(a, alone[i][1]))
      return bs_error_set(err, BS_USAGE, "BS-USE-TWICE", "--stored %s and --stored %s: give one of them",
                          alone[i][0], alone[i][1]);
  return BS_OK;
}

int32_t tune_read_search(tune_verb *v, bs_error *err) {
  const args *a = v->a;
  bs_race_options *o = &v->race;
  int64_t survivors = 0, seed = 0;
  int32_t rc = read_strategy(a, &o->strategy, 0, err);
  if (rc == BS_OK) rc = read_budget(a, &o->points, &o->seconds, err);
  if (rc == BS_OK) rc = args_integer(a, "survivors", 1, 64, 6, &survivors, err);
  if (rc == BS_OK) rc = args_integer(a, "seed", 0, INT64_MAX, 1, &seed, err);
  if (rc == BS_OK) rc = read_knobs(v, err);
  if (rc == BS_OK) rc = read_where(v, err);
  o->survivors = (uint32_t)survivors;
  o->seed = (uint64_t)seed;
  return rc;
}

static int32_t read_options(tune_verb *v, bs_error *err) {
  const args *a = v->a;
  bs_race_options *o = &v->race;
  int64_t threads = 0, finalists = 0;
  const int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
  int32_t rc = check_beside(a, err);
  if (rc == BS_OK) rc = read_problem(v, err);
  if (rc == BS_OK) rc = tune_read_search(v, err);
  if (rc == BS_OK) rc = args_integer(a, "threads", 1, 1024, cores > 0 ? cores : 1, &threads, err);
  if (rc == BS_OK) rc = args_integer(a, "finalists", 0, 32, 4, &finalists, err);
  if (rc == BS_OK) rc = args_real(a, "margin", 0.0, 1.0, 0.02, &o->margin, err);
  if (rc == BS_OK) rc = args_real(a, "candidate-seconds", 0.001, 3600.0, 0.25, &o->sample_seconds, err);
  if (rc == BS_OK) rc = args_real(a, "pair-seconds", 0.05, 3600.0, 4.0, &o->pair_seconds, err);
  if (rc == BS_OK) rc = args_real(a, "timeout", 0.1, 86400.0, 60.0, &o->deadline_s, err);
  if (rc == BS_OK) rc = bsrun_tune_path(a, &v->tune_path, err);
  if (rc == BS_OK) rc = bsrun_points_path(a, &v->points_path, err);
  if (rc == BS_OK) rc = read_config(v, err);
  o->threads = (uint32_t)threads;
  o->finalists = (uint32_t)finalists;
  return rc;
}

/* ---- one tuning ----------------------------------------------------------------------------- */

static const char nothing_kept[] = "no point is kept; the same command measures again";

static void on_note(void *user, const char *text) {
  bsrun_note(((const tune_verb *)user)->quiet, text);
}

static void on_warn(void *user, const char *text) {
  tune_verb *v = user;
  if (v->shown) fputs("\r\033[K", stderr);
  bsrun_warn(text);
  v->go_on = nothing_kept;
}

void tune_on_progress(void *user, const char *what, uint64_t done, uint64_t most, double left_s) {
  tune_verb *v = user;
  char left[32] = "", of[32] = "";
  if (v->quiet || !isatty(STDERR_FILENO)) return;
  if (most > 0) snprintf(of, sizeof of, "/%llu", (unsigned long long)most);
  if (left_s > 0) snprintf(left, sizeof left, ", about %.0f s left", left_s);
  bs_print(stderr, "\r\033[Ktune: %llu%s%s: %.60s", (unsigned long long)done, of, left, what);
  fflush(stderr);
  v->shown = 1;
}

static int tune(tune_verb *v, bs_error *err) {
  static const char *const words[] = {"bsrun", "tune", "--candidate", NULL};
  bs_race_options *o = &v->race;
  json_t *report = NULL;
  int number = 0;
  int32_t rc = read_options(v, err);
  v->go_on = v->points_path != NULL ? "the same command goes on with what was measured" : nothing_kept;
  bsrun_interruptible(v->go_on);
  o->problem = v->problem;
  o->backend = args_value(v->a, "backend");
  o->provider = args_value(v->a, "provider");
  o->config = v->config.data != NULL ? v->config.data : "";
  o->where = v->where.data;
  o->start = is_point(v->a) ? NULL : args_value(v->a, "start");
  o->point = is_point(v->a) ? args_value(v->a, "start") : NULL;
  o->tune_path = v->tune_path;
  o->points_path = v->points_path;
  o->go_on = args_has(v->a, "continue");
  o->anew = args_has(v->a, "anew");
  o->cache_only = args_has(v->a, "only");
  o->program = "/proc/self/exe";
  o->words = words;
  o->user = v;
  o->note = on_note;
  o->warn = on_warn;
  o->progress = tune_on_progress;
  if (rc == BS_OK) rc = bs_race_run(o, &report, &number, err);
  if (v->shown) fputs("\r\033[K", stderr);
  if (report != NULL) { /* of a search that a signal ended, what was found until then */
    bs_error why = BS_ERROR_INIT;
    const int32_t printed = tune_print(v->format, report, &why);
    if (rc == BS_OK && printed != BS_OK) {
      *err = why;
      rc = printed;
    }
  }
  json_decref(report);
  if (number != 0) {
    char line[128];
    snprintf(line, sizeof line, "stopped by a signal; %s", v->go_on);
    bsrun_note(v->quiet, line);
    return 128 + number;
  }
  return rc == BS_OK ? 0 : bsrun_fail(err);
}

/* ---- replays -------------------------------------------------------------------------------- */

static int32_t replay_all(const bs_replay *replay, bs_replay_options *o, uint32_t which, json_t *rows,
                          bs_error *err) {
  for (uint32_t s = 0; s < BS_STRATEGIES; s++) {
    bs_replayed got;
    if (which != STRATEGY_ALL && s != which) continue;
    o->strategy = s;
    const int32_t rc = bs_replay_run(replay, o, &got, err);
    if (rc != BS_OK) return rc;
    if (json_array_append_new(rows, tune_replay_row(replay, s, &got)) != 0)
      return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  }
  return BS_OK;
}

int32_t tune_check_options(const args *a, const char *const *taken, size_t n, const char *what,
                           const char *hint, bs_error *err) {
  for (size_t i = 0; tune_options[i].id != OPT_END; i++) {
    size_t t = 0;
    while (t < n && strcmp(taken[t], args_name(&tune_options[i])) != 0) t++;
    if (t < n || !args_has(a, args_name(&tune_options[i]))) continue;
    bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s: %s has no use for it", args_name(&tune_options[i]),
                 what);
    bs_error_hint(err, "%s", hint);
    return BS_USAGE;
  }
  return BS_OK;
}

/* A replay starts nothing: what says how to measure is an error, not ignored. */
static int32_t check_replay_options(const args *a, bs_error *err) {
  static const char *const taken[] = {"simulate", "strategy", "samples", "provider", "finalists", "seed",
                                      "replays",  "output",   "wide",    "quiet",    "help"};
  return tune_check_options(
      a, taken, sizeof taken / sizeof taken[0], "a replay of stored points (--simulate)",
      "it takes PROBLEM, --provider, --strategy, --samples, --seed, --with finalists=N,replays=N", err);
}

static int32_t simulate(tune_verb *v, bs_error *err) {
  bs_replay replay = {0};
  bs_replay_options o = {.goal = GOAL};
  int64_t repeats = 0, finalists = 0, seed = 0;
  double seconds = 0;
  uint32_t which = 0;
  json_t *rows = json_array();
  int32_t rc = check_replay_options(v->a, err);
  if (rc == BS_OK && v->a->n_words > 0) rc = read_problem(v, err);
  if (rc == BS_OK) rc = read_strategy(v->a, &which, 1, err);
  if (rc == BS_OK) rc = read_budget(v->a, &o.points, &seconds, err);
  if (rc == BS_OK) rc = args_integer(v->a, "replays", 1, 100000, 20, &repeats, err);
  if (rc == BS_OK) rc = args_integer(v->a, "finalists", 0, 32, 4, &finalists, err);
  if (rc == BS_OK) rc = args_integer(v->a, "seed", 0, INT64_MAX, 1, &seed, err);
  o.repeats = (uint32_t)repeats;
  o.finalists = (uint32_t)finalists;
  o.seed = (uint64_t)seed;
  if (rc == BS_OK)
    rc = bs_replay_open(args_value(v->a, "simulate"), v->a->n_words > 0 ? v->problem : NULL,
                        args_value(v->a, "provider"), &replay, err);
  if (rc == BS_OK) rc = replay_all(&replay, &o, which, rows, err);
  if (rc == BS_OK) rc = tune_print_replays(v->format, rows, err);
  bs_replay_free(&replay);
  json_decref(rows);
  return rc;
}

/* ---- a candidate ---------------------------------------------------------------------------- */

/* The answer's own descriptor is stdout's; what plugins and libraries print to stdout goes to stderr. */
static FILE *take_stdout(void) {
  const int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (fd >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) {
    FILE *out = fdopen(fd, "w");
    if (out != NULL) return out;
  }
  if (fd >= 0) close(fd);
  return NULL;
}

/* The child that `bsrun tune` starts: its file is the request, the answer is one line of JSON. */
static int candidate(const char *path) {
  bs_error err = BS_ERROR_INIT;
  json_t *asked = NULL, *answer = NULL;
  json_error_t why;
  FILE *out = take_stdout();
  asked = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
  char *text = asked != NULL ? json_dumps(asked, JSON_COMPACT) : NULL;
  int32_t rc = text != NULL ? bs_race_child(text, &answer, &err)
                            : bs_error_set(&err, BS_USAGE, "BS-TUNE-CHILD",
                                           "%.200s is not a request written by bsrun tune", path);
  int written = out != NULL;
  if (out != NULL && answer != NULL)
    written = json_dumpf(answer, out, JSON_COMPACT) == 0 && fputc('\n', out) != EOF;
  if (out != NULL && fclose(out) != 0) written = 0;
  if (rc == BS_OK && !written) rc = bs_error_set(&err, BS_IO, "BS-OUT", "cannot write the answer");
  free(text);
  json_decref(asked);
  json_decref(answer);
  return rc == BS_OK ? bsrun_finish(0) : bsrun_fail(&err);
}

static int run(const args *a, bs_error *err) {
  if (args_has(a, "candidate")) return candidate(args_value(a, "candidate"));
  tune_verb v = {.a = a, .quiet = args_has(a, "quiet")};
  int32_t rc = bsrun_format(a, &v.format, err);
  if (rc == BS_OK && args_has(a, "simulate")) rc = simulate(&v, err);
  int code = rc == BS_OK ? 0 : bsrun_fail(err);
  if (rc == BS_OK && !args_has(a, "simulate"))
    code = args_has(a, "device") ? tune_inside(&v, err) : tune(&v, err);
  for (size_t i = 0; i < v.race.n_knobs; i++) free(v.names[i]);
  free(v.names);
  free(v.knobs);
  bs_text_free(&v.where);
  bs_text_free(&v.config);
  free(v.tune_path);
  free(v.points_path);
  return code;
}

const bsrun_verb verb_tune = {
    .name = "tune",
    .summary = "find the fastest implementation and knobs of a kernel",
    .words =
        "PROBLEM [options]\n"
        "PROBLEM --device D [options]\n"
        "[PROBLEM] --simulate FILE [--strategy NAME|all] [--with replays=N] [-o FORMAT]",
    .about =
        "Finds the implementation and the values of its knobs that are the fastest at one problem of a\n"
        "kernel: attention (b2h8s512d64:bf16:causal, mission), matmul or matmul24 ('matmul24\n"
        "n4096k4096b64:f32'). Each candidate is a process: its plan must show its knobs, its numbers must\n"
        "pass the gates on two shapes, then it is timed. The finalists are timed for longer, and the\n"
        "fastest is measured in pairs against the default, twice. What is FASTER by the margin goes into\n"
        "the tuning file, and runs take it from there. A choice that is stored is not measured again: its\n"
        "plan is opened, and must be of the build that was measured.\n"
        "With --device each point is an op simulated inside of that device, with the knobs of `sim explain\n"
        "--inside`. Nothing is measured and no file is written: no run takes a simulated choice.\n",
    .examples =
        "  bsrun tune mission\n"
        "  bsrun tune b1h8s256d64:f32 --seconds 60 --strategy mixed\n"
        "  bsrun tune matmul24 n1024k1024b64 --provider cpu:packed --threads 1\n"
        "  bsrun tune mission --strategy full --points points.jsonl --tune-cache off\n"
        "  bsrun tune 'matmul n1024k1024b1024:bf16' --device cube-pe --strategy full\n"
        "  bsrun tune --simulate points.jsonl --strategy all --with replays=100\n",
    .exits =
        "0 a choice is made or stored; 2 usage; 3 configuration, or no candidate passed; 4 no\n"
        "file to replay, or --stored only and nothing is stored; 5 no implementation serves the problem;\n"
        "6 the numbers of --strategy point are wrong, or the stored choice is not what was measured;\n"
        "8 a deadline; 10 memory or disk; 130, 143 signals: what was measured is kept, and printed.\n",
    .options = tune_options,
    .exit = run,
    .max_words = SIZE_MAX,
    .takes = "small|mission|long|gqa|decode|matmul|matmul24",
};
