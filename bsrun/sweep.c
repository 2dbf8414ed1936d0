/* SPDX-License-Identifier: MIT
 * sweep.c - the sweep verb: what is varied becomes a plan, and the plan is run by children (lab/sweep). This
 * process opens no plugin. */
#include "bsrun/sweep.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/error.h"
#include "lab/store/plan_text.h"
#include "lab/store/sha256.h"
#include "lab/store/store.h"
#include "lab/sweep/declared.h"
#include "lab/sweep/owned.h"
#include "lab/sweep/points.h"

typedef struct sweep_verb {
  const args *a;
  int format, quiet;
  double deadline_s, budget_s;
  int64_t jobs;
  bsrun_request request;
  bs_node *base; /* what all points have in common */
  char *cache, *tune_cache, *own_key;
  json_t *constants;
  bs_context *context;
  bs_sweep sweep;
} sweep_verb;

/* ---- a new sweep ----------------------------------------------------------------------------- */

static int32_t open_context(sweep_verb *v, bs_error *err) {
  v->constants = bsrun_constants(v->cache, v->quiet);
  return bs_context_of_config(v->base, BS_LOG_ERROR, bsrun_log, NULL, &v->context, err);
}

static void tell_unchecked(const sweep_verb *v, const json_t *points) {
  char text[200];
  const size_t n = bs_points_unchecked(points);
  snprintf(
      text, sizeof text,
      "%zu point%s could not be checked: a plugin ended or hung the process that opened it; whether they "
      "can run is told when they run",
      n, n == 1 ? "" : "s");
  if (n > 0) bsrun_note(v->quiet, text);
}

static int32_t make_points(sweep_verb *v, json_t **out_points, bs_error *err) {
  bs_composed composed;
  json_t *settings = json_array();
  int32_t rc = settings == NULL ? bs_out_of_memory(err) : bsrun_request_make(v->a, &v->request, err);
  if (rc == BS_OK) rc = bs_compose(&v->request.compose, &composed, err);
  if (rc == BS_OK) v->base = composed.config;
  if (rc == BS_OK) rc = bs_schema_check(v->base, v->request.configs_dir, NULL, err);
  if (rc == BS_OK) rc = sweep_settings(v->a, v->base, settings, err);
  if (rc == BS_OK) rc = open_context(v, err);
  if (rc == BS_OK) rc = bs_settings_expand(&v->request.compose, v->context, settings, err);
  if (rc == BS_OK) rc = bs_points_make(&v->request.compose, v->context, settings, out_points, err);
  if (rc == BS_OK) rc = bs_points_check(v->context, v->request.configs_dir, v->constants, *out_points, err);
  if (rc == BS_OK) tell_unchecked(v, *out_points);
  json_decref(settings);
  return rc;
}

/* The time and the sum of the plan's keys. */
static void make_id(const json_t *points, char out[64]) {
  char stamp[16], hex[65];
  size_t i;
  const json_t *point;
  bs_sha256 h;
  bs_sha256_init(&h);
  json_array_foreach(points, i, point)
      bs_sha256_field(&h, json_string_value(json_object_get(point, "request_key")));
  bs_sha256_hex(&h, hex);
  bs_store_stamp(stamp);
  snprintf(out, 64, "%s_sweep_%.8s", stamp, hex);
}

/* `bsrun run` with the options that it has in common with this sweep, but not those that say how, or name one
 * run. */
static json_t *words_of_run(const args *a) {
  static const char *const left_out[] = {"sweep",  "cache", "tune-cache", "output",
                                         "run-id", "wide",  "verbose",    "quiet"};
  json_t *words = json_pack("[s, s]", "bsrun", "run");
  for (size_t i = 0; i < a->n_given; i++) {
    const args_option *option = args_given(a, i);
    char name[64], *value = NULL;
    size_t of_run = 0, out = 0;
    while (bsrun_run_options[of_run].id != OPT_END && bsrun_run_options[of_run].id != option->id) of_run++;
    while (out < sizeof left_out / sizeof left_out[0] && strcmp(left_out[out], args_name(option)) != 0) out++;
    if (bsrun_run_options[of_run].id == OPT_END || out < sizeof left_out / sizeof left_out[0]) continue;
    args_typed(a, i, name, &value);
    json_array_append_new(words, json_string(name));
    if (value != NULL) json_array_append_new(words, json_string(value));
    free(value);
  }
  return words;
}

static json_t *make_header(const sweep_verb *v, const char *id, size_t n) {
  char here[PATH_MAX] = "";
  bs_text base = {0};
  char *command = bsrun_command_line();
  bs_config_print(v->base, &base);
  json_t *header =
      json_pack("{s:i, s:s, s:s?, s:o, s:s?, s:s?, s:s, s:s, s:I}", "format", BS_PLAN_FORMAT, "sweep", id,
                "command", command, "words", words_of_run(v->a), "folder", getcwd(here, sizeof here), "base",
                base.data, "blockshock", bs_version(), "library_build_id", bs_build_id(), "n", (json_int_t)n);
  bs_text_free(&base);
  free(command);
  return header;
}

/* Is there anything to run? With one reason for all: it is the error. */
static int32_t some_can_run(const json_t *points, bs_error *err) {
  size_t i;
  const json_t *point;
  const char *why = NULL;
  json_array_foreach(points, i, point) {
    const char *refused = json_string_value(json_object_get(point, "refused"));
    if (!json_is_null(json_object_get(point, "duplicate_of"))) continue;
    if (refused == NULL) return BS_OK;
    if (why == NULL) why = refused;
  }
  return bs_error_set(err, BS_CONFIG, "BS-SWEEP-REFUSED", "no point can run: %.400s", why != NULL ? why : "");
}

/* Marks the plan as this user's. Without the mark only a plan that names no code is resumed as it is. */
static void own_plan(const sweep_verb *v) {
  const bs_sweep *s = &v->sweep;
  json_t *code = NULL;
  bs_plan_own(&s->folder, v->own_key);
  bs_plan_judge(&s->folder, v->own_key, 1, s->header, s->points, &code, NULL);
  if (json_object_size(code) > 0) {
    bs_text line = {0};
    bs_text_printf(&line,
                   "the plan has no mark of yours, because %s cannot be written: --resume will need "
                   "--trust-config; XDG_CACHE_HOME chooses another cache folder",
                   v->own_key != NULL ? v->own_key : "the cache folder");
    if (!line.failed) bsrun_warn(line.data);
    bs_text_free(&line);
  }
  json_decref(code);
}

static int32_t begin(sweep_verb *v, json_t *points, bs_error *err) {
  char made[64];
  const char *id = args_value(v->a, "run-id"), *root = bs_schema_str(v->base, "logging.out_dir");
  make_id(points, made);
  if (id == NULL) id = made;
  int32_t rc = bs_store_keeps(root)
                   ? some_can_run(points, err)
                   : bs_error_set(err, BS_CONFIG, "BS-CFG-RANGE",
                                  "logging.out_dir=off: a sweep keeps its plan and its points");
  json_t *header = make_header(v, id, json_array_size(points));
  if (rc != BS_OK || header == NULL) {
    json_decref(header);
    json_decref(points);
    return rc != BS_OK ? rc : bs_out_of_memory(err);
  }
  rc = bs_sweep_begin(root, id, header, points, &v->sweep, err);
  if (rc == BS_OK) own_plan(v);
  return rc;
}

/* ---- one that goes on ------------------------------------------------------------------------ */

/* Refuses options that the plan has already. */
static int32_t only_how(const args *a, bs_error *err) {
  static const char *const how[] = {"resume",    "force", "point-timeout", "seconds",     "jobs",
                                    "fail-fast", "out",   "cache",         "tune-cache",  "output",
                                    "wide",      "quiet", "config",        "trust-config"};
  for (size_t i = 0; i < a->n_given; i++) {
    const char *name = args_name(args_given(a, i));
    size_t k = 0;
    while (k < sizeof how / sizeof how[0] && strcmp(how[k], name) != 0) k++;
    if (k < sizeof how / sizeof how[0]) continue;
    bs_error_set(err, BS_USAGE, "BS-SWEEP-RESUME", "--resume goes on with a plan, and --%s would change it",
                 name);
    bs_error_hint(err, "leave it out, or begin a sweep without --resume");
    return BS_USAGE;
  }
  return BS_OK;
}

static void tell_code(const json_t *code) {
  const char *key;
  json_t *unused;
  json_object_foreach((json_t *)(uintptr_t)code, key, unused) {
    bs_text line = {0};
    bs_text_printf(
        &line, "the plan is not one that you have written here; code or a command of it is run: %.600s", key);
    if (!line.failed) bsrun_note(0, line.data);
    bs_text_free(&line);
  }
}

/* The context is that of the plan's base; the folder is locked only when its points are read. */
static int32_t context_of_plan(sweep_verb *v, const char *root, const char *id, bs_error *err) {
  bs_sweep_folder folder;
  json_t *header = NULL, *points = NULL, *code = NULL;
  int32_t rc = bs_sweep_folder_open(root, id, 1, &folder, err);
  if (rc == BS_OK) rc = bs_plan_read(&folder, &header, &points, err);
  if (rc == BS_OK)
    rc = bs_plan_judge(&folder, v->own_key, args_has(v->a, "trust-config"), header, points, &code, err);
  if (rc == BS_OK) tell_code(code);
  json_decref(code);
  const char *base = json_string_value(json_object_get(header, "base"));
  bs_config_free(v->base);
  v->base = NULL;
  if (rc == BS_OK)
    rc = bs_config_parse("plan.jsonl", base != NULL ? base : "", base != NULL ? strlen(base) : 0, &v->base,
                         err);
  if (rc == BS_OK) rc = open_context(v, err);
  json_decref(header);
  json_decref(points);
  bs_sweep_folder_close(&folder);
  return rc;
}

static void tell_other_build(const sweep_verb *v) {
  char text[200];
  const size_t n = v->sweep.other_build;
  snprintf(text, sizeof text,
           "%zu point%s done by another build of the library or a plugin, and run%s again (--force: not)", n,
           n == 1 ? " is" : "s are", n == 1 ? "s" : "");
  if (n > 0 && !args_has(v->a, "force")) bsrun_note(v->quiet, text);
}

static int32_t resume(sweep_verb *v, const char *id, bs_error *err) {
  bs_composed composed;
  int32_t rc = only_how(v->a, err);
  if (rc == BS_OK) rc = bsrun_request_make(v->a, &v->request, err);
  if (rc == BS_OK) rc = bs_compose(&v->request.compose, &composed, err);
  if (rc != BS_OK) return rc;
  v->base = composed.config;
  char *root = bs_strdup(bs_schema_str(v->base, "logging.out_dir"));
  if (root == NULL) return bs_out_of_memory(err);
  rc = context_of_plan(v, root, id, err);
  if (rc == BS_OK) rc = bs_sweep_resume(root, id, v->context, args_has(v->a, "force"), &v->sweep, err);
  if (rc == BS_OK) tell_other_build(v);
  if (rc == BS_OK) rc = bs_sweep_ask_again(&v->sweep, v->context, v->request.configs_dir, v->constants, err);
  free(root);
  return rc;
}

/* ---- running --------------------------------------------------------------------------------- */

static int32_t read_options(sweep_verb *v, bs_error *err) {
  int32_t rc = bsrun_format(v->a, &v->format, err);
  if (rc == BS_OK) rc = args_real(v->a, "point-timeout", 1e-4, 1e8, 3600, &v->deadline_s, err);
  if (rc == BS_OK) rc = args_real(v->a, "seconds", 1e-4, 1e8, 0, &v->budget_s, err);
  if (rc == BS_OK) rc = args_integer(v->a, "jobs", 1, 64, 1, &v->jobs, err);
  if (rc == BS_OK) rc = bsrun_cache_path(v->a, &v->cache, err);
  if (rc == BS_OK) rc = bsrun_tune_path(v->a, &v->tune_cache, err);
  if (rc == BS_OK) rc = bsrun_own_key_path(&v->own_key, err);
  return rc;
}

static int32_t run(sweep_verb *v, int *out_signal, bs_error *err) {
  sweep_shown shown = {
      .quiet = v->quiet, .terminal = isatty(STDERR_FILENO), .points = json_array_size(v->sweep.points)};
  const char *const words[] = {"bsrun",
                               "run",
                               "-q",
                               "--cache",
                               v->cache != NULL ? v->cache : "off",
                               "--tune-cache",
                               v->tune_cache != NULL ? v->tune_cache : "off",
                               "--planned",
                               NULL};
  const bs_sweep_options o = {.program = "/proc/self/exe",
                              .words = words,
                              .jobs = (uint32_t)v->jobs,
                              .deadline_s = v->deadline_s,
                              .budget_s = v->budget_s,
                              .fail_fast = args_has(v->a, "fail-fast"),
                              .tell = sweep_tell,
                              .user = &shown};
  const int32_t rc = bs_sweep_run(&v->sweep, &o, out_signal, err);
  sweep_tell_end(&shown);
  return rc;
}

/* The exit code of a sweep: the error that ended it counts most, then a signal, then points that failed. */
static int outcome(const sweep_verb *v, int32_t rc, int number, size_t failed, size_t left, bs_error *err) {
  if (rc != BS_OK) {
    if (left > 0) bs_error_hint(err, "%zu points are left: bsrun sweep --resume %.64s", left, v->sweep.id);
    return bsrun_fail(err);
  }
  if (number != 0) {
    char text[200];
    snprintf(text, sizeof text, "%zu points are left: bsrun sweep --resume %.64s", left, v->sweep.id);
    bsrun_note(v->quiet, text);
    return 128 + number;
  }
  if (failed == 0) return 0;
  bs_error_set(err, BS_SOME_FAILED, "BS-SWEEP-FAILED", "%zu of %zu points failed or were refused", failed,
               json_array_size(v->sweep.points));
  return bsrun_fail(err);
}

static int run_and_show(sweep_verb *v, bs_error *err) {
  bs_error shown = BS_ERROR_INIT;
  int number = 0;
  size_t failed = 0, left = 0;
  const int32_t rc = run(v, &number, err);
  if (sweep_print_results(v->format, &v->sweep, &failed, &left, &shown) != BS_OK) {
    const int code = bsrun_fail(&shown);
    return rc == BS_OK && number == 0 ? code : outcome(v, rc, number, failed, left, err);
  }
  if (v->format == BS_FORMAT_TABLE || v->format == BS_FORMAT_WIDE || v->format == BS_FORMAT_MD)
    bs_print(stdout, "\nsweep: %s\nreport: bsrun report %s\n", v->sweep.folder.path, v->sweep.folder.path);
  return outcome(v, rc, number, failed, left, err);
}

static int sweep(sweep_verb *v, bs_error *err) {
  json_t *points = NULL;
  const char *id = args_value(v->a, "resume");
  int32_t rc = read_options(v, err);
  if (rc == BS_OK && id != NULL) {
    rc = resume(v, id, err);
    return rc == BS_OK ? run_and_show(v, err) : bsrun_fail(err);
  }
  if (rc == BS_OK) rc = make_points(v, &points, err);
  if (rc == BS_OK && args_has(v->a, "dry-run")) {
    rc = sweep_print_plan(v->format, points, err);
    json_decref(points);
    return rc == BS_OK ? 0 : bsrun_fail(err);
  }
  if (rc == BS_OK)
    rc = begin(v, points, err);
  else
    json_decref(points);
  return rc == BS_OK ? run_and_show(v, err) : bsrun_fail(err);
}

static int run_verb(const args *a, bs_error *err) {
  sweep_verb v = {.a = a, .quiet = args_has(a, "quiet"), .sweep.folder = {.fd = -1, .lock_fd = -1}};
  const int code = sweep(&v, err);
  bs_sweep_close(&v.sweep);
  if (v.context != NULL) bs_context_close(v.context);
  bs_config_free(v.base);
  json_decref(v.constants);
  free(v.cache);
  free(v.tune_cache);
  free(v.own_key);
  bsrun_request_free(&v.request);
  return code;
}

const bsrun_verb verb_sweep = {
    .name = "sweep",
    .summary = "run every combination of values; go on after a crash",
    .words =
        "-x KEY=VALUES [-x KEY=VALUES ...] [options]\n"
        "--batch FILE [-x KEY=VALUES ...] [options]\n"
        "--resume NAME [options]",
    .about =
        "Runs every combination of the axes' values, each in a separate process. The plan is written\n"
        "first: after a crash, a signal or a full disk --resume runs what is not done. Points that are\n"
        "equal run once. Layers are tuned before the first point, and all their points use what was\n"
        "chosen.\n"
        "\n"
        "KEY is a configuration key, an option of a method, or short: N, K, B, P, dtype, activation,\n"
        "bias, seed, phase, method, mask, workload, hardware, backend, comm, launch. A line of a batch\n"
        "file has axes with blanks between; the sweep runs all combinations of each line.\n"
        "method.OPTION=all and algorithm=all stand for all declared values (bsrun plugins knobs\n"
        "PATTERN).\n",
    .examples =
        "  bsrun sweep -x N=512:4096*2 -x method=dense,blockshock --dry-run\n"
        "  bsrun sweep -x N=64,128 -x method=dense,blockshock --phase numbers\n"
        "  bsrun sweep -x mask=complement_1100_0011,interleave -x B=1,64 --n 256 --phase numbers --jobs 2\n"
        "  bsrun sweep --sweep N_sweep --method dense --dry-run -o csv\n"
        "  bsrun sweep --resume 20260101_120000_sweep_0123abcd\n",
    .exits =
        "0 all points done; 2 usage; 3 configuration, or no point can run; 8 the budget is used up;\n"
        "10 memory or disk; 11 another process runs the sweep; 12 some points failed or were refused; 13 the "
        "plan\n"
        "is damaged; 130, 143 signals.\n",
    .options = sweep_options,
    .exit = run_verb,
};
