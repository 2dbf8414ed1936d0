/* SPDX-License-Identifier: MIT
 * run.c - the run verb: its command line, the points of a sweep, ranks that are processes, and one table.
 * lab/run defines a point and runs it. */
#include "bsrun/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/compare.h"
#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "bsrun/run_host.h"
#include "bsrun/screen.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/error.h"
#include "lab/peers/peers.h"
#include "lab/run/planned.h"
#include "lab/stop.h"

#define MAX_POINTS 1024

typedef struct run_plan {
  bsrun_request request;
  int format;
  int screen; /* no -o and one point: printed as a page of text */
  run_host host;
  lab_run run;
  lab_point point; /* what all points have in common */
  char group[16];
  char *param; /* sweep.param, NULL: one point */
  char **values;
  size_t n_values;
  int is_rank;        /* of a job that has been started, and that this run is to be part of */
  const char *launch; /* how the ranks have yet to be started as processes; NULL: they need not */
  char *mpirun;       /* hardware.mpirun */
  int slurm;          /* hardware.launcher: slurm */
  char *cache, *tune_path, *command;
  lab_planned planned; /* --planned */
} run_plan;

/* The sweep of the composed tree: any key of the schema, one scalar a point. */
static int32_t read_sweep(run_plan *p, const bs_node *config, bs_error *err) {
  const char *param = bs_schema_str(config, "sweep.param");
  const bs_node *values = bs_config_find(config, "sweep.values");
  if (param == NULL && (values == NULL || values->kind == BS_NODE_NULL)) return BS_OK;
  if (param == NULL || values == NULL || values->kind != BS_NODE_LIST || values->first == NULL) {
    bs_error_set(err, BS_CONFIG, "BS-CFG-SWEEP", "a sweep needs sweep.param and a list sweep.values");
    return BS_CONFIG;
  }
  const bs_key *key = bs_schema_find(param);
  if (key == NULL || !bs_key_varies(key) || strncmp(param, "sweep.", 6) == 0) {
    bs_error_set(err, BS_CONFIG, "BS-CFG-SWEEP", "sweep.param: '%.60s' is not a key that changes a run",
                 param);
    bs_error_hint(err, "for example model.N or model.B");
    return BS_CONFIG;
  }
  const bs_node *typed = bs_config_find(config, param);
  if (typed != NULL && !bs_node_from_file(typed) && bsrun_rank_how() == NULL) {
    bs_error_set(err, BS_CONFIG, "BS-CFG-SWEEP", "%s is given, and is also what the sweep varies", param);
    bs_error_hint(err, "leave out one of them; --set sweep.values=[...] replaces the sweep's values");
    return BS_CONFIG;
  }
  p->param = bs_strdup(param);
  p->values = calloc(MAX_POINTS, sizeof *p->values);
  if (p->param == NULL || p->values == NULL) return bs_out_of_memory(err);
  for (const bs_node *item = values->first; item != NULL; item = item->next) {
    if (item->kind != BS_NODE_SCALAR || p->n_values == MAX_POINTS) {
      return bs_error_set(err, BS_CONFIG, "BS-CFG-SWEEP", "sweep.values must be at most %d scalars",
                          MAX_POINTS);
    }
    p->values[p->n_values] = bs_strdup(item->text);
    if (p->values[p->n_values++] == NULL) return bs_out_of_memory(err);
  }
  return BS_OK;
}

/* Ranks that are to be processes and are not yet. */
static const char *find_launch(const char *asked) {
  static const char *const ways[] = {"processes", "mpi"};
  const char *how = bsrun_rank_how();
  for (size_t i = 0; i < 2; i++)
    if (strcmp(asked, ways[i]) == 0 && (how == NULL || strcmp(how, asked) != 0)) return ways[i];
  return NULL;
}

/* A process that something has started as a rank is one unless the run asks for its ranks in another way. */
static void join_as(run_plan *p, const char *asked) {
  const char *how = bsrun_rank_how();
  p->is_rank = how != NULL && strcmp(asked, how) == 0;
  if (!p->is_rank) return;
  if (bsrun_rank_follows()) bsrun_follow();
  if (strcmp(how, "mpi") == 0) bsrun_mpi_enter();
  p->host.quiet |= bsrun_following();
}

/* Makes the configuration: composed from the options, or read from the planned point. */
static int32_t compose(run_plan *p, const char *point, bs_composed *out, bs_error *err) {
  if (point == NULL) return bs_compose(&p->request.compose, out, err);
  const int32_t rc = lab_planned_read(point, &p->planned, err);
  *out = (bs_composed){.config = rc == BS_OK ? bs_config_clone(p->planned.trees[0]) : NULL, .phase_given = 1};
  return rc == BS_OK && out->config == NULL ? bs_out_of_memory(err) : rc;
}

static int32_t prepare(run_plan *p, const char *point, bs_error *err) {
  bs_composed composed;
  int32_t rc = compose(p, point, &composed, err);
  if (rc != BS_OK) {
    if (bsrun_rank_found()) join_as(p, bsrun_rank_how()); /* rank 0 says it */
    return rc;
  }
  join_as(p, bs_schema_str(composed.config, "hardware.launch"));
  rc = bs_schema_check(composed.config, p->request.configs_dir, NULL, err);
  if (rc == BS_OK) rc = read_sweep(p, composed.config, err);
  if (rc == BS_OK) {
    p->point.n_phases = composed.phase_given ? 1 : 2;
    p->slurm = strcmp(bs_schema_str(composed.config, "hardware.launcher"), "slurm") == 0;
    p->launch = find_launch(bs_schema_str(composed.config, "hardware.launch"));
    p->mpirun = bs_strdup(bs_schema_str(composed.config, "hardware.mpirun"));
    lab_run_auto_group(composed.config, p->group);
    const int32_t level = p->host.verbose >= 2   ? BS_LOG_DEBUG
                          : p->host.verbose == 1 ? BS_LOG_INFO
                          : p->host.quiet        ? BS_LOG_ERROR
                                                 : BS_LOG_WARN;
    rc = bs_context_of_config(composed.config, level, bsrun_log, NULL, &p->run.context, err);
  }
  bs_config_free(composed.config);
  return rc;
}

static size_t count_points(const run_plan *p) {
  return p->param == NULL ? 1 : p->n_values;
}

static lab_point point_of(const run_plan *p, size_t i) {
  lab_point point = p->point;
  point.param = p->param;
  point.value = p->param != NULL ? p->values[i] : NULL;
  return point;
}

/* Every point; the exit code of the only one, or 12 when some of several failed. */
static int run_points(run_plan *p, bs_error *err) {
  const size_t points = count_points(p);
  size_t failed = 0;
  int code = 0;
  p->host.progress.points = points;
  if (points > 1 && (p->point.trace_file != NULL || p->point.et_prefix != NULL)) {
    bs_error_set(err, BS_USAGE, "BS-SIM-TRACE",
                 "--to trace or et needs a single run; this sweep has %zu points", points);
    return bsrun_fail(err);
  }
  for (size_t i = 0; i < points; i++) {
    const lab_point point = point_of(p, i);
    p->host.progress.point = i + 1;
    bsrun_rank_begin();
    bsrun_log_point();
    const int32_t rc = lab_run_point(&p->run, &point, err);
    if (bs_stop_asked() != 0) { /* nothing more is begun */
      if (rc != BS_OK) bsrun_fail(err);
      if (!bsrun_following()) run_signals_tell();
      return 128 + bs_stop_asked();
    }
    if (rc == BS_OK) continue;
    failed++;
    code = bsrun_fail(err);
    if (bs_context_stuck(p->run.context) > 0) return code; /* no further point is begun next to it */
    if (bs_peers_lost(p->run.peers)) return code;          /* nor with ranks that are gone */
    if (p->param != NULL && !bsrun_following())
      bs_print(stderr, "bsrun: %s=%s failed with %d\n", p->param, p->values[i], code);
    bs_error_clear(err);
    lab_run_tell_notes(&p->run);
  }
  if (points == 1 || failed == 0) return code;
  bs_error_set(err, BS_SOME_FAILED, "BS-SWEEP-FAILED", "%zu of %zu points failed", failed, points);
  return bsrun_fail(err);
}

/* The launcher's part: as many copies of this command as the first point that can run has ranks. They say
 * what is wrong with the others; without any it is said here. */
static int launch(run_plan *p, bs_error *err) {
  const size_t points = count_points(p);
  uint32_t world = 0;
  double timeout_s = 0;
  size_t i = 0;
  for (; i < points; i++) {
    const lab_point point = point_of(p, i);
    if (lab_run_ranks(&p->run, &point, &world, &timeout_s, err) == BS_OK) break;
  }
  bs_error_clear(err);
  if (i == points) return run_points(p, err);
  if (strcmp(p->launch, "mpi") == 0) return bsrun_launch_mpi(world, timeout_s, p->mpirun);
  return bsrun_launch(world, timeout_s);
}

static int32_t print_results(const run_plan *p, bs_error *err) {
  if (json_array_size(p->host.rows) == 0) return BS_OK; /* an error line has the reason */
  const int readable =
      p->format == BS_FORMAT_TABLE || p->format == BS_FORMAT_WIDE || p->format == BS_FORMAT_MD;
  int32_t rc = BS_OK;
  if (readable && json_array_size(p->host.ladders) > 0) {
    rc = compare_print_methods(p->format, p->host.ladders, 1, err);
    putchar('\n');
  }
  if (rc == BS_OK && p->screen) return screen_print(p->host.records, p->host.folders, err);
  if (rc == BS_OK) rc = run_print_rows(p->format, p->host.rows, err);
  if (rc != BS_OK || !readable) return rc;
  const char *lead = p->format == BS_FORMAT_MD ? "- " : "";
  char *shown = p->command == NULL ? NULL : bs_report_printable(p->command);
  putchar('\n');
  for (size_t i = 0; i < json_array_size(p->host.folders); i++) {
    bs_print(stdout, "%srun: %s\n", lead, json_string_value(json_array_get(p->host.folders, i)));
  }
  if (shown != NULL) bs_print(stdout, "%srepeat: %s\n", lead, shown);
  free(shown);
  return BS_OK;
}

static void plan_free(run_plan *p) {
  lab_run_close(&p->run);
  free(p->mpirun);
  fflush(stdout); /* a plugin that is closed may end the process */
  bsrun_close_context(p->run.context);
  run_host_close(&p->host);
  free(p->cache);
  free(p->tune_path);
  free(p->command);
  bsrun_log_free();
  for (size_t i = 0; i < p->n_values; i++) free(p->values[i]);
  free(p->values);
  free(p->param);
  lab_planned_free(&p->planned);
  bsrun_request_free(&p->request);
}

/* Sets the fields that all points share, once the plan is known. */
static void set_run(run_plan *p, const char *run_id) {
  p->run.argv = p->planned.argv;
  p->command = p->planned.command != NULL ? bs_strdup(p->planned.command) : bsrun_command_line();
  p->run.host = &p->host.table;
  p->run.run_id = run_id;
  p->run.command = p->command;
  p->run.configs_dir = p->request.configs_dir;
  p->run.tune_path = p->tune_path;
  p->host.cache = p->cache;
  p->point.compose = &p->request.compose;
  p->point.group = p->group[0] != '\0' ? p->group : NULL;
  p->point.is_rank = p->is_rank;
  p->point.ranks_choose = p->launch != NULL;
  if (p->planned.input != NULL) lab_planned_point(&p->planned, &p->point);
}

/* A layer of a sweep is tuned: what serves is one line. */
static int tune(run_plan *p, bs_error *err) {
  json_t *choices = NULL;
  if (lab_run_tune(&p->run, &p->point, &choices, err) != BS_OK) return bsrun_fail(err);
  json_t *line = json_pack("{s:o}", "choices", choices);
  char *text = json_dumps(line, bs_report_json(stdout) | JSON_COMPACT);
  if (text != NULL && !bsrun_following()) puts(text);
  free(text);
  json_decref(line);
  return 0;
}

/* Follows the job of Slurm that the hardware asks for, unless an option overrules it. */
static void follow_slurm(run_plan *p, const args *a) {
  if (p->launch != NULL || !p->slurm || args_value(a, "launch") != NULL || getenv("SLURM_JOB_ID") == NULL ||
      bsrun_rank_how() != NULL)
    return;
  p->launch = "mpi";
  bsrun_note(p->host.quiet, "hardware.launcher slurm: --launch mpi");
}

/* Refuses options that a planned point has in its file. */
static int32_t check_point(const args *a, bs_error *err) {
  static const char *const beside[] = {"planned", "cache", "tune-cache", "quiet", "verbose"};
  if (!args_has(a, "planned")) return BS_OK;
  for (size_t i = 0; i < a->n_given; i++) {
    const char *name = args_name(args_given(a, i));
    size_t k = 0;
    while (k < sizeof beside / sizeof beside[0] && strcmp(beside[k], name) != 0) k++;
    if (k < sizeof beside / sizeof beside[0]) continue;
    bs_error_set(err, BS_USAGE, "BS-POINT-OPTION",
                 "--planned runs what a sweep has planned, and --%s would change it", name);
    bs_error_hint(err, "only --cache, --tune-cache, --quiet and --verbose may be given with it");
    return BS_USAGE;
  }
  return BS_OK;
}

static int run_parsed(const args *a, run_plan *p, bs_error *err) {
  int32_t rc = check_point(a, err);
  if (rc == BS_OK) rc = bsrun_format(a, &p->format, err);
  if (rc == BS_OK) rc = bsrun_cache_path(a, &p->cache, err);
  if (rc == BS_OK) rc = bsrun_tune_path(a, &p->tune_path, err);
  if (rc == BS_OK) rc = bsrun_request_make(a, &p->request, err);
  for (size_t i = 0; i < a->n_given; i++) {
    p->host.verbose += strcmp(args_name(args_given(a, i)), "verbose") == 0;
  }
  p->host.quiet = args_has(a, "quiet");
  if (rc == BS_OK) rc = prepare(p, args_value(a, "planned"), err);
  run_host_open(&p->host);
  p->screen = !args_has(a, "output") && !args_has(a, "wide") && p->param == NULL;
  if (rc != BS_OK) return bsrun_fail(err);
  follow_slurm(p, a);
  set_run(p, args_value(a, "run-id"));
  p->point.trace_file = args_value(a, "trace");
  p->point.et_prefix = args_value(a, "et");
  if (p->launch != NULL) return launch(p, err);
  bsrun_grades(p->host.quiet, &p->run.grades);
  bsrun_interruptible(NULL);
  if (p->planned.tune) return tune(p, err);
  int code = run_points(p, err);
  bs_error_clear(err);
  if (p->planned.input == NULL && print_results(p, err) != BS_OK) {
    const int print_code = bsrun_fail(err);
    if (code == 0) code = print_code;
  }
  return code;
}

static int run(const args *a, bs_error *err) {
  run_plan plan = {.host.progress.busy = ATOMIC_FLAG_INIT};
  if (args_has(a, "version")) return bsrun_verb_run(&verb_version, 0, NULL);
  if (args_has(a, "print-config")) return config_print(a, err) == BS_OK ? 0 : bsrun_fail(err);
  const int code = run_parsed(a, &plan, err);
  /* The thread of a rank that hangs in a plugin may go on at any time: it finds everything as it was. */
  if (bs_context_stuck(plan.run.context) > 0) bsrun_leave(bsrun_finish(code));
  plan_free(&plan);
  return code;
}

const bsrun_verb verb_run = {
    .name = "run",
    .summary = "prove that a split layer is right, then time it",
    .words = "[options]",
    .about =
        "Runs phase 0 (every rank's output is judged against an fp64 reference, and injected errors are "
        "shown\n"
        "to be detected), then phase 1 (the method timed against the dense layer in interleaved pairs). Each "
        "phase is one run folder:\n"
        "<out>/[<group>/]<phase>/<method>/<run id>/ with config.yaml, env.json, seed.txt, metrics.jsonl, "
        "log.txt\n"
        "and DONE.\n"
        "\n"
        "Order of configuration, later wins: base.yaml, --config files, --phase, --method, --mask, "
        "--workload,\n"
        "--hardware, --sweep, then --plugin, -P and the other options, then --set.\n",
    .examples =
        "  bsrun --plugin cpu --method blockshock\n"
        "  bsrun --method masked_split --mask complement_1010_0101 --set model.N=1024 --set model.dtype=f32\n"
        "  bsrun --method row_parallel -P 3 --mask interleave --phase numbers -o json\n"
        "  bsrun --method blockshock --phase backward        the backward pass: dX, dW and db judged\n"
        "  bsrun --method blockshock --workload file --set workload.weights=model.safetensors#layer.weight\n"
        "  bsrun --method blockshock --phase numbers --to tensors\n"
        "  bsrun --method blockshock --launch processes -P 2   ranks are processes, not threads\n"
        "  bsrun --method dense --sweep batch_sweep -o csv\n"
        "  bsrun --config results/raw/phase0_correctness/blockshock/RUN/config.yaml\n",
    .exits =
        "0 done; 2 usage; 3 configuration; 4 input file; 5 plugin, device or library; 6 numbers wrong;\n"
        "7 a rank died; 8 deadline; 9 ranks disagree; 10 memory or disk; 11 store busy; 12 some points of a "
        "sweep\n"
        "failed; 13 store corrupt; 14 performance gate; 15 inconclusive; 70 internal; 130, 143 signals.\n",
    .options = bsrun_run_options,
    .exit = run,
};
