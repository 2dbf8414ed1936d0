/* SPDX-License-Identifier: MIT
 * torture.c - `bsrun torture`: injects every fault at every call of every rank, each in a child process, and
 * checks that each ends as specified. With --plan it is such a child: it runs the program once. */
#include "bsrun/torture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/died.h"
#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/stop.h"

static const args_option torture_options[] = {
    {OPT_PLUGIN, "what it offers is tortured: communicators, methods, backends", 0},
    {OPT_COMM, "with --method: run the method over it", 0},
    {OPT_METHOD, "several with commas", 0},
    {OPT_BACKEND, "several with commas", 0},
    {OPT_LAUNCH, "default: as --comm has them", 0},
    {OPT_WORLD_SIZE, "several with commas; default: 2,3,4", 0},
    {OPT_TIMEOUT, "of every wait between ranks; default: 0.5", 0},
    {OPT_OP, "only these: give it again for each", 0},
    {OPT_FAULT, NULL, 0},
    {OPT_PRESET, "default: full", 0},
    {OPT_PRESET_QUICK, "only the last rank, and the first call of each op", 0},
    {OPT_PRESET_FULL, NULL, 0},
    {OPT_JOBS, "default: 4", 0},
    {OPT_PLAN, NULL, 0},
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    {OPT_OUTPUT, "text, tap or json", 0},
    {OPT_VERBOSE, NULL, 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

static int32_t read_ranks(const args *a, bs_torture *t, bs_error *err) {
  const char *text = args_value(a, "world-size");
  if (text == NULL) text = "2,3,4";
  for (const char *p = text; *p != '\0';) {
    char number[16];
    int64_t value = 0;
    const size_t n = strcspn(p, ",");
    snprintf(number, sizeof number, "%.*s", (int)(n < 15 ? n : 15), p);
    if (t->n_worlds == BS_TORTURE_WORLDS || !bs_parse_i64(number, &value) || value < 1 || value > 64)
      return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER",
                          "-P: '%.60s' is no list of at most %d numbers from 1 to 64", text,
                          BS_TORTURE_WORLDS);
    t->worlds[t->n_worlds++] = (uint32_t)value;
    p += n + (p[n] == ',');
  }
  if (t->n_worlds == 0) return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "-P: the list is empty");
  return BS_OK;
}

static int32_t check_fault(const char *name, bs_error *err) {
  for (size_t i = 0; i < BS_TORTURE_FAULTS; i++)
    if (strcmp(name, bs_torture_fault_names[i]) == 0) return BS_OK;
  return bsrun_unknown("fault", name, bs_torture_fault_names, BS_TORTURE_FAULTS, err);
}

static int32_t read_launch(const args *a, bs_torture *t, bs_error *err) {
  const char *launch = args_value(a, "launch");
  t->launch = -1;
  for (int i = 0; launch != NULL && i < BS_TORTURE_LAUNCHES; i++)
    if (strcmp(launch, bs_torture_launch_names[i]) == 0) t->launch = i;
  if (launch == NULL || t->launch >= 0) return BS_OK;
  return bsrun_unknown("way to launch", launch, bs_torture_launch_names, BS_TORTURE_LAUNCHES, err);
}

/* All options: some are passed to the children, others choose the cases. */
static bs_torture_given *list_given(const args *a) {
  bs_torture_given *given = calloc(a->n_given + 1, sizeof *given);
  for (size_t i = 0; given != NULL && i < a->n_given; i++)
    given[i] = (bs_torture_given){args_name(args_given(a, i)), a->given[i].value};
  return given;
}

static int32_t read_options(const args *a, bs_torture *t, bs_error *err) {
  const char *format = args_value(a, "output");
  static const char *const formats[] = {"text", "tap", "json"};
  const char **faults = NULL;
  size_t n_faults = 0;
  int64_t jobs = 4;
  t->quick = args_has(a, "quick");
  int32_t launch_rc = read_launch(a, t, err);
  if (launch_rc != BS_OK) return launch_rc;
  t->quiet = args_has(a, "quiet");
  int32_t rc = read_ranks(a, t, err);
  if (rc == BS_OK) rc = args_integer(a, "jobs", 1, 64, 4, &jobs, err);
  t->jobs = (size_t)jobs;
  if (rc == BS_OK) rc = args_values(a, "fault", &faults, &n_faults, err);
  for (size_t i = 0; rc == BS_OK && i < n_faults; i++) rc = check_fault(faults[i], err);
  free(faults);
  if (rc == BS_OK) rc = args_real(a, "timeout", 0.05, 3600, 0.5, &t->deadline, err);
  t->format = BS_FORMAT_TABLE;
  if (rc == BS_OK && format != NULL) {
    if (strcmp(format, "tap") == 0)
      t->format = BS_FORMAT_MD; /* the two that are not tables */
    else if (strcmp(format, "json") == 0)
      t->format = BS_FORMAT_JSON;
    else if (strcmp(format, "text") != 0)
      rc = bsrun_unknown("output format", format, formats, 3, err);
  }
  return rc;
}

/* ---- subjects ------------------------------------------------------------------------------- */

static void add_subject(bs_torture *t, uint32_t kind, const char *name) {
  for (size_t i = 0; i < t->n_subjects; i++)
    if (t->subjects[i].kind == kind && strcmp(t->subjects[i].name, name) == 0) return;
  if (t->n_subjects == BS_TORTURE_SUBJECTS) return;
  t->subjects[t->n_subjects].kind = kind;
  snprintf(t->subjects[t->n_subjects++].name, sizeof t->subjects[0].name, "%s", name);
}

static void add_things(bs_torture *t, bs_context *context, const char *id) {
  for (uint32_t i = 0; i < bs_thing_count(context, id); i++) {
    bs_thing_info thing = {.struct_size = sizeof thing};
    if (bs_thing_get(context, id, i, &thing, NULL) != BS_OK || thing.wrapper) continue;
    if (thing.kind == BS_KIND_COMM) add_subject(t, BS_TORTURE_COMM, thing.name);
    if (thing.kind == BS_KIND_METHOD) add_subject(t, BS_TORTURE_METHOD, thing.name);
    if (thing.kind == BS_KIND_BACKEND) add_subject(t, BS_TORTURE_BACKEND, thing.name);
  }
}

/* Finds the subjects that the options name; without one, those that the plugins offer. */
static int32_t find_subjects(const args *a, bs_torture *t, bs_error *err) {
  static const char *const options[] = {"method", "backend"};
  static const uint32_t kinds[] = {BS_TORTURE_METHOD, BS_TORTURE_BACKEND};
  for (size_t k = 0; k < 2; k++) {
    const char **names = NULL;
    size_t n = 0;
    const int32_t read = args_list(a, options[k], &names, &n, err);
    for (size_t i = 0; read == BS_OK && i < n; i++) add_subject(t, kinds[k], names[i]);
    free(names);
    if (read != BS_OK) return read;
  }
  if (t->n_subjects == 0 && args_has(a, "comm")) add_subject(t, BS_TORTURE_COMM, args_value(a, "comm"));
  if (t->n_subjects == 0 && !args_has(a, "plugin") && t->launch > BS_TORTURE_THREADS)
    add_subject(t, BS_TORTURE_COMM, bs_torture_comm_of(t->launch));
  if (t->n_subjects > 0) return BS_OK;
  if (!args_has(a, "plugin")) {
    bs_error_set(err, BS_USAGE, "BS-USE-WORD", "torture needs --plugin, --comm, --method or --backend");
    bs_error_hint(err, "for example bsrun torture --comm threads");
    return BS_USAGE;
  }
  bs_context *context = NULL;
  int32_t rc = plugins_open_context(a, NULL, 0, &context, err);
  for (size_t i = 0; rc == BS_OK && i < a->n_given; i++) {
    char id[64];
    if (strcmp(args_name(args_given(a, i)), "plugin") != 0) continue;
    bs_plugin_id_of(a->given[i].value, id, sizeof id);
    rc = plugins_probe(context, id, err); /* in a child first: it is about to be tortured for a reason */
    if (rc == BS_OK) rc = bs_plugin_activate(context, id, err);
    if (rc == BS_OK) add_things(t, context, id);
  }
  if (context != NULL) bs_context_close(context);
  if (rc != BS_OK || t->n_subjects > 0) return rc;
  bs_error_set(err, BS_USAGE, "BS-TORTURE-NOTHING", "the plugin offers no communicator, method or backend");
  return BS_USAGE;
}

static int is_offered(bs_context *context, uint32_t kind, const char *name) {
  json_t *names = json_array(), *one;
  size_t i;
  int found = 0;
  for (uint32_t k = 0; k < bs_plugin_count(context); k++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, k, &info, NULL) == BS_OK) plugins_add_names(names, context, &info, kind);
  }
  json_array_foreach(names, i, one) found |= strcmp(json_string_value(one), name) == 0;
  json_decref(names);
  return found;
}

/* No child is started for a name that no plugin offers. A plugin that does offer it is not opened here: it is
 * about to be tortured for a reason. */
static int32_t known_subjects(const args *a, const bs_torture *t, bs_error *err) {
  bs_context *context = NULL;
  int32_t rc = plugins_open_context(a, NULL, 0, &context, err);
  for (size_t i = 0; rc == BS_OK && i < t->n_subjects; i++) {
    const char *name = bs_innermost(t->subjects[i].name);
    const uint32_t kind = t->subjects[i].kind;
    const bs_backend *backend = NULL;
    const bs_method *method = NULL;
    const bs_comm *comm = NULL;
    void *state = NULL;
    if (kind == BS_TORTURE_BACKEND && !is_offered(context, BS_KIND_BACKEND, name))
      rc = bs_find_backend(context, name, &backend, &state, err);
    else if (kind == BS_TORTURE_METHOD && !is_offered(context, BS_KIND_METHOD, name))
      rc = bs_find_method(context, name, &method, &state, err);
    else if (kind == BS_TORTURE_COMM && !is_offered(context, BS_KIND_COMM, name))
      rc = bs_find_comm(context, name, &comm, &state, err);
  }
  if (context != NULL) bs_context_close(context);
  return rc;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static void on_ended(const bs_torture *t, const bs_torture_case *c) {
  static size_t done; /* of one command */
  if (c->fault == BS_TORTURE_NONE || t->quiet) return;
  if (isatty(STDERR_FILENO))
    bs_print(stderr, "\r\033[K%zu of %zu: %s of %s", ++done, t->n_cases, bs_torture_fault_names[c->fault],
             c->op);
  if (c->why[0] == '\0') return;
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
  bs_print(stderr, "bsrun: note: %s of %s, rank %u of %u, call %llu: %s\n", bs_torture_fault_names[c->fault],
           c->op, c->rank, c->world_size, (unsigned long long)c->seq, c->why);
}

static int32_t make_scratch(bs_torture *t, bs_error *err) {
  const char *base = getenv("TMPDIR");
  if (base == NULL || base[0] != '/' || strlen(base) > 30) base = "/tmp";
  snprintf(t->scratch, sizeof t->scratch, "%s/bs_torture_XXXXXX", base);
  if (mkdtemp(t->scratch) != NULL) return BS_OK;
  t->scratch[0] = '\0';
  return bs_error_set(err, BS_IO, "BS-TORTURE-FOLDER", "cannot make a folder below %s", base);
}

/* Finds how each subject's ranks are started: by the subject if it is a communicator, else by --comm. */
static void find_launches(bs_torture *t) {
  const char *comm = bs_torture_value(t, "comm");
  int driven;
  const int of_comm = bs_torture_launch_of(t, comm, &driven);
  for (size_t i = 0; i < t->n_subjects; i++) {
    bs_torture_subject *s = &t->subjects[i];
    const int own = s->kind == BS_TORTURE_COMM && (comm == NULL || strcmp(comm, s->name) != 0);
    s->launch = of_comm;
    s->driven = driven;
    if (own) s->launch = bs_torture_launch_of(t, s->name, &s->driven);
    if (s->driven)
      bsrun_note(t->quiet, s->kind == BS_TORTURE_BACKEND
                               ? "one thread drives all ranks: it cannot hang in a backend, nor be late"
                               : "one thread drives all ranks: none of them can be late (no delay, no late)");
  }
}

/* After an interruption: the cases that have ended. */
static void keep_ended(bs_torture *t) {
  size_t n = 0;
  for (size_t i = 0; i < t->n_cases; i++)
    if (t->cases[i].seconds > 0) t->cases[n++] = t->cases[i];
  t->n_cases = n;
}

static int run_all(const args *a, bs_torture *t, bs_error *err) {
  size_t failed = 0;
  int32_t rc = find_subjects(a, t, err);
  if (rc == BS_OK) rc = known_subjects(a, t, err);
  if (rc == BS_OK) find_launches(t);
  /* the children end, and no folder is left */
  bsrun_interruptible(
      "the card has the faults until then; --fault FAULT or fewer --comm and --backend take less time");
  if (rc == BS_OK) rc = make_scratch(t, err);
  t->began = bs_process_now();
  t->ended = on_ended;
  t->note = bsrun_note;
  for (size_t i = 0; rc == BS_OK && i < t->n_subjects; i++) {
    const size_t first = t->n_cases;
    rc = bs_torture_list(t, &t->subjects[i], err);
    if (rc == BS_OK) rc = bs_torture_run(t, first, err);
  }
  if (isatty(STDERR_FILENO) && !t->quiet) fputs("\r\033[K", stderr);
  if (t->scratch[0] != '\0') bs_torture_remove(t->scratch);
  if (bs_stop_asked() != 0) {
    keep_ended(t);
    if (t->n_cases > 0) bs_torture_card(t, &failed, err);
    free(t->cases);
    return bsrun_interrupted();
  }
  if (rc == BS_OK && t->n_cases == 0)
    rc = bs_error_set(err, BS_USAGE, "BS-TORTURE-NOTHING", "there is no call to inject a fault at");
  if (rc == BS_OK) rc = bs_torture_card(t, &failed, err);
  if (rc == BS_OK && failed > 0) {
    rc = bs_error_set(err, BS_PLUGIN, "BS-TORTURE-SCORE", "%zu of %zu faults did not end as specified",
                      failed, t->n_cases);
    bs_error_hint(err, "the card has a command that repeats the first of each kind");
  }
  free(t->cases);
  return rc == BS_OK ? 0 : bsrun_fail(err);
}

/* If the configuration cannot be made, the first child that needs it reports the error. */
static int torture_with(const args *a, bs_torture *t, bs_error *err) {
  const char *plan = args_value(a, "plan");
  bs_node *config = NULL;
  int32_t rc = read_options(a, t, err);
  if (rc != BS_OK) return bsrun_fail(err);
  plugins_compose(a, NULL, NULL, 0, &config, NULL);
  t->config = config;
  const int code = plan != NULL ? torture_run_planned(a, t, plan, err) : run_all(a, t, err);
  bs_config_free(config);
  return code;
}

static int run(const args *a, bs_error *err) {
  bs_torture *t = calloc(1, sizeof *t);
  bs_torture_given *given = list_given(a);
  int code = 0;
  if (t == NULL || given == NULL) {
    bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
    code = bsrun_fail(err);
  } else {
    t->given = given;
    t->n_given = a->n_given;
    code = torture_with(a, t, err);
  }
  if (t != NULL) bs_text_free(&t->clean);
  free(given);
  free(t);
  return code;
}

const bsrun_verb verb_torture = {
    .name = "torture",
    .summary = "inject every fault into a communicator, method or backend",
    .words =
        "[--plugin ID|PATH] [--comm NAME] [--method M] [--backend NAME] [-P 2,3,4] [--timeout S] [--op "
        "OP] [--fault FAULT] [--preset quick] [-o text|tap|json] [--launch threads|processes|mpi]\n"
        "--comm NAME -P P --plan PLAN",
    .about =
        "Runs the subject without a fault, then once for every rank, op, call and fault, each in a child "
        "process, and\n"
        "checks that each ends as specified: the exit code, within the deadline and a second, one error line "
        "that\n"
        "names the culprit, and no file or process left over. Prints a score card; 0 when all is as "
        "specified, 5 when "
        "not.\n"
        "\n"
        "  fault     exit  what is done\n"
        "  err       7     the call of one rank returns an error\n"
        "  hang      8     it does not return\n"
        "  delay     0     it is late, but within the deadline\n"
        "  late      8     it is later than the deadline\n"
        "  flip      6     one bit of its result is wrong\n"
        "  nan       6     a NaN is in its result\n"
        "  truncate  9     it is made with a row less (of a backend's op: 6)\n"
        "  kill      7     the rank's process dies there (--launch processes, mpi)\n"
        "  stop      8     it stands still there (--launch processes, mpi)\n"
        "\n"
        "A communicator runs a program of all its collectives, checked against one rank alone; a method and "
        "a\n"
        "backend (under row_parallel) run phase 0.\n",
    .examples =
        "  bsrun torture --comm threads -P 2,3,4 --timeout 0.5\n"
        "  bsrun torture --comm shm --fault kill --fault stop\n"
        "  bsrun torture --launch mpi -P 3 --preset quick --fault kill --fault stop\n"
        "  bsrun torture --plugin ./bs_acme.so --preset quick -o tap\n"
        "  bsrun torture --method blockshock -P 2 -o json\n"
        "  bsrun torture --comm threads -P 2 --plan rank=1,op=all_reduce,seq=0,do=hang\n"
        "  bsrun --method row_parallel --comm fault:threads --set "
        "plugins.fault.plan=rank=1,op=*,seq=0,do=err\n",
    .options = torture_options,
    .exit = run,
};
