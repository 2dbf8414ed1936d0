/* SPDX-License-Identifier: MIT
 * run.c - the run verb: compose, check everything, then run phase 0 and phase 1 (or the one asked for) of
 * every point, and print one table. */
#include "bsrun/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/compare.h"
#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "bsrun/screen.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/clock.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/measure/chunks.h"
#include "lab/peers/peers.h"
#include "lab/phase/simulated.h"
#include "lab/stop.h"
#include "lab/tune/tune.h"

#define MAX_POINTS 1024

typedef struct run_plan {
  bsrun_request request;
  int format;
  int screen;           /* no -o and one point: told as a page of text */
  bs_notes notes, told; /* of this point; of all, each once on stderr */
  size_t printed_notes;
  run_session session;
  char group[16];
  size_t n_phases; /* 1: as composed; 2: phase 0, then phase 1 */
  char *param;     /* sweep.param, NULL: one point */
  char **values;
  size_t n_values;
  char *cache; /* file of the machine's constants; NULL: none. Read once, before the first phase 1 */
  int cache_read;
  int is_rank;        /* of a job that has been started, and that this run is to be part of */
  const char *launch; /* how the ranks have yet to be started as processes; NULL: they need not */
  char *mpirun;       /* hardware.mpirun */
  int slurm;          /* hardware.launcher: slurm */
  char *tune_path;    /* the tuning file; NULL: none */
  bs_tuner *tuner;
  bsrun_progress tuning;
  auto_choice chosen; /* of --method auto, for the point */
  json_t *ladders;    /* rows of all points */
} run_plan;

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
}

static void show_notes(run_plan *p) {
  for (; p->printed_notes < p->notes.count; p->printed_notes++) {
    const size_t before = p->told.count;
    bs_note_add(&p->told, "%s", p->notes.items[p->printed_notes]);
    bsrun_note(p->session.quiet || p->told.count == before, p->notes.items[p->printed_notes]);
  }
}

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
  if (key == NULL || key->effect != BS_EFFECT_ACTIVE || strncmp(param, "sweep.", 6) == 0) {
    bs_error_set(err, BS_CONFIG, "BS-CFG-SWEEP", "sweep.param: '%.60s' is not a key that changes a run",
                 param);
    bs_error_hint(err, "for example model.N or model.B");
    return BS_CONFIG;
  }
  const bs_node *typed = bs_config_find(config, param);
  if (typed != NULL && !bs_node_from_file(typed) && bsrun_rank_how() == NULL) {
    bs_error_set(err, BS_CONFIG, "BS-CFG-SWEEP", "%s is given, and is also what the sweep varies", param);
    bs_error_hint(err, "leave one of both out; --set sweep.values=[...] replaces the sweep's values");
    return BS_CONFIG;
  }
  p->param = bs_strdup(param);
  p->values = calloc(MAX_POINTS, sizeof *p->values);
  if (p->param == NULL || p->values == NULL) return no_memory(err);
  for (const bs_node *item = values->first; item != NULL; item = item->next) {
    if (item->kind != BS_NODE_SCALAR || p->n_values == MAX_POINTS) {
      return bs_error_set(err, BS_CONFIG, "BS-CFG-SWEEP", "sweep.values must be at most %d scalars",
                          MAX_POINTS);
    }
    p->values[p->n_values] = bs_strdup(item->text);
    if (p->values[p->n_values++] == NULL) return no_memory(err);
  }
  return BS_OK;
}

/* Compose once to see what is asked, and open the context that the rest shares. */
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
  p->session.quiet |= bsrun_following();
}

static int32_t prepare(run_plan *p, bs_error *err) {
  bs_composed composed;
  int32_t rc = bs_compose(&p->request.compose, &composed, err);
  if (rc != BS_OK) {
    if (bsrun_rank_found()) join_as(p, bsrun_rank_how()); /* rank 0 says it */
    return rc;
  }
  join_as(p, bs_schema_str(composed.config, "hardware.launch"));
  rc = bs_schema_check(composed.config, p->request.configs_dir, NULL, err);
  if (rc == BS_OK) rc = read_sweep(p, composed.config, err);
  if (rc == BS_OK) {
    p->n_phases = composed.phase_given ? 1 : 2;
    p->slurm = strcmp(bs_schema_str(composed.config, "hardware.launcher"), "slurm") == 0;
    p->launch = find_launch(bs_schema_str(composed.config, "hardware.launch"));
    p->mpirun = bs_strdup(bs_schema_str(composed.config, "hardware.mpirun"));
    if (bs_schema_str(composed.config, "logging.run_group") == NULL &&
        bs_schema_bool(composed.config, "logging.auto_group")) {
      bs_store_stamp(p->group);
    }
    const int32_t level = p->session.verbose >= 2   ? BS_LOG_DEBUG
                          : p->session.verbose == 1 ? BS_LOG_INFO
                          : p->session.quiet        ? BS_LOG_ERROR
                                                    : BS_LOG_WARN;
    rc = bs_context_of_config(composed.config, level, bsrun_log, NULL, &p->session.context, err);
  }
  bs_config_free(composed.config);
  return rc;
}

static const json_t *constants_of(run_plan *p) {
  if (!p->cache_read) p->session.constants = bsrun_constants(p->cache, p->session.quiet);
  p->cache_read = 1;
  return p->session.constants;
}

/* --method auto: decided once a point, for its first phase or, of both, for the forward pass. */
static int32_t choose_method(run_plan *p, bs_node *config, bs_error *err) {
  if (!auto_asked(config)) return BS_OK;
  if (p->launch != NULL) return auto_stand_in(config, err); /* the ranks that are started choose */
  if (!p->chosen.made) {
    run_session *s = &p->session;
    const char *dir = p->request.configs_dir;
    int32_t rc = bs_schema_check(config, dir, NULL, err);
    if (rc == BS_OK && p->is_rank) rc = run_join_undecided(s, config, dir, err);
    if (rc == BS_OK)
      rc = auto_choose(s->context, config, dir, bs_peers_lead(s->peers) ? constants_of(p) : NULL, s->peers,
                       s->quiet, &p->chosen, err);
    if (rc != BS_OK) return rc;
    bs_note_add(&p->notes, "auto: %s", p->chosen.name);
    if (p->chosen.rows != NULL) json_array_extend(p->ladders, p->chosen.rows);
  }
  return auto_apply(&p->chosen, config, err);
}

/* The experiment of one phase of one point. */
static int32_t make_experiment(run_plan *p, size_t phase, size_t point, bs_experiment *out, bs_error *err) {
  bs_compose_request q = p->request.compose;
  bs_composed composed;
  q.context = p->session.context;
  if (p->n_phases == 2) q.phase = phase == 0 ? "phase0_correctness" : "phase1_forward";
  int32_t rc = bs_compose(&q, &composed, err);
  if (rc == BS_OK && p->param != NULL) {
    rc = bs_config_set_text(composed.config, p->param, p->values[point], err);
    if (rc == BS_OK) rc = bs_config_set(composed.config, "sweep", "{}", err); /* the run is one point */
  }
  if (rc == BS_OK && p->group[0] != '\0') {
    rc = bs_config_set_text(composed.config, "logging.run_group", p->group, err);
  }
  if (composed.config == NULL) return rc;
  if (rc != BS_OK) {
    bs_config_free(composed.config);
    return rc;
  }
  rc = choose_method(p, composed.config, err);
  if (rc != BS_OK) {
    bs_config_free(composed.config);
    return rc;
  }
  rc = bs_experiment_make(p->session.context, composed.config, p->request.configs_dir, &p->notes, out, err);
  if (rc == BS_OK && p->chosen.rows != NULL) out->ladder = json_incref(p->chosen.rows);
  if (rc != BS_OK || (out->phase != BS_PHASE_FORWARD && !bs_overlap_asked(out))) return rc;
  out->machine_constants = constants_of(p);
  return BS_OK;
}

static void on_tuner_note(void *user, const char *text) {
  run_plan *p = user;
  bsrun_progress_end(&p->tuning);
  bs_note_add(&p->notes, "%s", text);
  show_notes(p);
}

static void on_tuner_detail(void *user, const char *text) {
  run_plan *p = user;
  bsrun_progress_end(&p->tuning);
  bsrun_detail(p->session.verbose, text);
}

static int32_t open_tuner(run_plan *p, bs_error *err) {
  const bs_tuner_options options = {.path = p->tune_path,
                                    .note = on_tuner_note,
                                    .detail = on_tuner_detail,
                                    .note_user = p,
                                    .progress = bsrun_progress_to(p->session.quiet),
                                    .progress_user = &p->tuning};
  p->tuning.of = "tuning";
  p->tuning.point = p->session.point;
  p->tuning.points = p->session.points;
  return p->tuner != NULL ? BS_OK : bs_tuner_open(p->session.context, &options, &p->tuner, err);
}

/* Decides what serves in all phases of the point, the timed one first: it measures, and phase 0 then judges
 * what was chosen. */
static int32_t choose(run_plan *p, bs_experiment *experiments, size_t n, bs_error *err) {
  const int leads = bs_peers_lead(p->session.peers);
  if (bs_clock_is_virtual(p->session.context, experiments[0].comm)) return BS_OK; /* nothing is measured */
  int32_t rc = leads ? open_tuner(p, err) : BS_OK;
  run_tell_of(&p->session, &experiments[0], "tuning");
  for (size_t i = n; rc == BS_OK && leads && i-- > 0;) rc = bs_tuner_choose(p->tuner, &experiments[i], err);
  bsrun_progress_end(&p->tuning);
  for (size_t i = 0; rc == BS_OK && i < n; i++) rc = run_share_choices(&p->session, &experiments[i], err);
  return rc;
}

/* After a phase of the point: what was measured for it is kept, with what the gates said of it. Without a
 * verdict nothing is: the next point's gates would judge it. */
static void keep_choices(run_plan *p, const bs_experiment *e, int32_t rc, const bs_error *err) {
  if (rc == BS_NUMERIC) {
    bs_tuner_keep(p->tuner, 1, err->message);
  } else if (rc == BS_OK) {
    bs_tuner_keep(p->tuner, e->phase == BS_PHASE_CORRECTNESS, NULL);
  }
}

/* Without values there is nothing to judge: of both phases the timed one alone is run. */
static size_t leave_out_judging(run_plan *p, bs_experiment *experiments, size_t made) {
  if (made != 2 || !bs_backend_is_phantom(p->session.context, experiments[0].backend)) return made;
  bs_note_add(&p->notes,
              "backend %s holds no values: phase 0 is not run (--backend virtual:ref judges numbers)",
              experiments[0].backend);
  bs_experiment_free(&experiments[0]);
  experiments[0] = experiments[1];
  memset(&experiments[1], 0, sizeof experiments[1]);
  return 1;
}

/* Both phases of a point. Everything is checked before anything runs; times of wrong numbers are not taken.
 */
static int32_t run_point(run_plan *p, size_t point, bs_error *err) {
  bs_experiment experiments[2] = {{0}};
  size_t made = 0;
  int32_t rc = BS_OK;
  while (rc == BS_OK && made < p->n_phases) {
    rc = make_experiment(p, made, point, &experiments[made], err);
    if (rc == BS_OK) made++;
  }
  if (rc == BS_OK && p->n_phases == 1 && experiments[0].dump_dir != NULL &&
      experiments[0].phase != BS_PHASE_CORRECTNESS) {
    bs_note_add(&p->notes, "logging.dump_dir has no effect: only phase 0 writes tensors");
  }
  if (rc == BS_OK) made = leave_out_judging(p, experiments, made);
  for (size_t i = 0; rc == BS_OK && i < made; i++)
    rc = bs_simulated_check(p->session.context, &experiments[i], err);
  show_notes(p);
  for (size_t i = 0; rc == BS_OK && i < made; i++) rc = run_join(&p->session, &experiments[i], err);
  for (size_t i = 0; rc == BS_OK && p->session.peers == NULL && i < made; i++)
    rc = run_check_memory(&p->session, &experiments[i], err);
  if (rc == BS_OK) rc = choose(p, experiments, made, err);
  for (size_t i = 0; rc == BS_OK && bs_stop_asked() == 0 && i < made; i++) {
    p->session.group = experiments[i].run_group;
    rc = run_phase(&p->session, &experiments[i], err);
    if (p->tuner != NULL) keep_choices(p, &experiments[i], rc, err);
    if (rc != BS_OK && i + 1 < made) bs_note_add(&p->notes, "%s is not run", experiments[i + 1].phase_name);
  }
  if (bs_context_stuck(p->session.context) > 0) return rc; /* what it is given stays as it is */
  if (p->tuner != NULL) bs_tuner_drop(p->tuner);
  auto_free(&p->chosen);
  for (size_t i = 0; i < made; i++) bs_experiment_free(&experiments[i]);
  return rc;
}

static size_t count_points(const run_plan *p) {
  return p->param == NULL ? 1 : p->n_values;
}

/* Every point; the exit code of the only one, or 12 when some of several failed. */
static int run_points(run_plan *p, bs_error *err) {
  const size_t points = count_points(p);
  size_t failed = 0;
  int code = 0;
  for (size_t i = 0; i < points; i++) {
    p->session.point = i + 1;
    p->session.points = points;
    bsrun_rank_begin();
    bsrun_log_point();
    bs_notes_free(&p->notes);
    p->printed_notes = 0;
    const int32_t rc = run_point(p, i, err);
    if (bs_stop_asked() != 0) { /* nothing more is begun */
      if (rc != BS_OK) bsrun_fail(err);
      return 128 + bs_stop_asked();
    }
    if (rc == BS_OK) continue;
    failed++;
    code = bsrun_fail(err);
    if (bs_context_stuck(p->session.context) > 0) return code; /* nothing more is begun beside it */
    if (bs_peers_lost(p->session.peers)) return code;          /* nor with ranks that are gone */
    if (p->param != NULL && !bsrun_following())
      fprintf(stderr, "bsrun: %s=%s failed with %d\n", p->param, p->values[i], code);
    bs_error_clear(err);
    show_notes(p);
  }
  if (points == 1 || failed == 0) return code;
  bs_error_set(err, BS_SOME_FAILED, "BS-SWEEP-FAILED", "%zu of %zu points failed", failed, points);
  return bsrun_fail(err);
}

/* ---- ranks that are processes ---------------------------------------------------------------- */

static int32_t find_world(run_plan *p, size_t point, uint32_t *out_world, double *out_timeout_s,
                          bs_error *err) {
  bs_experiment e = {0};
  int32_t rc = make_experiment(p, 0, point, &e, err);
  if (rc != BS_OK) return rc;
  rc = run_world(p->session.context, &e, out_world, err);
  *out_timeout_s = e.timeout_s;
  bs_experiment_free(&e);
  return rc;
}

/* The launcher's part: as many copies of this command as the first point that can run has ranks. They say
 * what is wrong with the others; without any it is said here. */
static int launch(run_plan *p, bs_error *err) {
  const size_t points = count_points(p);
  uint32_t world = 0;
  double timeout_s = 0;
  size_t i = 0;
  while (i < points && find_world(p, i, &world, &timeout_s, err) != BS_OK) ++i;
  bs_error_clear(err);
  if (i == points) return run_points(p, err);
  if (strcmp(p->launch, "mpi") == 0) return bsrun_launch_mpi(world, timeout_s, p->mpirun);
  return bsrun_launch(world, timeout_s);
}

static int32_t print_results(const run_plan *p, bs_error *err) {
  if (json_array_size(p->session.rows) == 0) return BS_OK; /* an error line told why */
  const int readable =
      p->format == BS_FORMAT_TABLE || p->format == BS_FORMAT_WIDE || p->format == BS_FORMAT_MD;
  int32_t rc = BS_OK;
  if (readable && json_array_size(p->ladders) > 0) {
    rc = ladder_print(p->format, p->ladders, 1, err);
    putchar('\n');
  }
  if (rc == BS_OK && p->screen) return screen_print(p->session.records, p->session.folders, err);
  if (rc == BS_OK) rc = run_print_rows(p->format, p->session.rows, err);
  if (rc != BS_OK || !readable) return rc;
  const char *lead = p->format == BS_FORMAT_MD ? "- " : "";
  char *command = bsrun_command_line();
  char *shown = command == NULL ? NULL : bs_report_printable(command);
  putchar('\n');
  for (size_t i = 0; i < json_array_size(p->session.folders); i++) {
    printf("%srun: %s\n", lead, json_string_value(json_array_get(p->session.folders, i)));
  }
  if (shown != NULL) printf("%srepeat: %s\n", lead, shown);
  free(shown);
  free(command);
  return BS_OK;
}

static void plan_free(run_plan *p) {
  bs_peers_close(p->session.peers);
  free(p->mpirun);
  bs_tuner_close(p->tuner);
  fflush(stdout); /* a plugin that is closed may end the process */
  if (p->session.context != NULL) bs_context_close(p->session.context);
  json_decref(p->ladders);
  auto_free(&p->chosen);
  json_decref(p->session.rows);
  json_decref(p->session.records);
  json_decref(p->session.folders);
  json_decref(p->session.constants);
  bs_grades_close(&p->session.grades);
  free(p->cache);
  free(p->tune_path);
  bsrun_log_free();
  bs_notes_free(&p->notes);
  bs_notes_free(&p->told);
  for (size_t i = 0; i < p->n_values; i++) free(p->values[i]);
  free(p->values);
  free(p->param);
  bsrun_request_free(&p->request);
}

static int run_parsed(const args *a, run_plan *p, bs_error *err) {
  int32_t rc = bsrun_format(a, &p->format, err);
  if (rc == BS_OK) rc = bsrun_cache_path(a, &p->cache, err);
  if (rc == BS_OK) rc = bsrun_tune_path(a, &p->tune_path, err);
  if (rc == BS_OK) rc = bsrun_request_make(a, &p->request, err);
  for (size_t i = 0; i < a->n_given; i++) {
    p->session.verbose += strcmp(a->options[a->given[i].option].name, "verbose") == 0;
  }
  p->session.quiet = args_has(a, "quiet");
  p->session.run_id = args_value(a, "run-id");
  if (rc == BS_OK) rc = prepare(p, err);
  p->session.rows = json_array();
  p->session.records = json_array();
  p->screen = !args_has(a, "output") && !args_has(a, "wide") && p->param == NULL;
  p->ladders = json_array();
  p->session.folders = json_array();
  if (rc != BS_OK) return bsrun_fail(err);
  if (p->launch == NULL && p->slurm && args_value(a, "launch") == NULL && getenv("SLURM_JOB_ID") != NULL &&
      bsrun_rank_how() == NULL) {
    p->launch = "mpi";
    bsrun_note(p->session.quiet, "hardware.launcher slurm: --launch mpi");
  }
  if (p->launch != NULL) return launch(p, err);
  bsrun_grades(p->session.quiet, &p->session.grades);
  if (!bsrun_following()) run_signals_install();
  int code = run_points(p, err);
  bs_error_clear(err);
  if (print_results(p, err) != BS_OK) {
    const int print_code = bsrun_fail(err);
    if (code == 0) code = print_code;
  }
  return code;
}

int verb_run(int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  run_plan plan = {.tuning.busy = ATOMIC_FLAG_INIT};
  args a;
  int code;
  const int32_t rc = args_parse(argc, argv, bsrun_run_options, bsrun_n_run_options, &a, &err);
  if (rc != BS_OK) {
    code = bsrun_fail(&err);
  } else if (args_has(&a, "help")) {
    help_run();
    code = 0;
  } else if (args_has(&a, "version")) {
    code = verb_version(0, argv);
  } else if (args_has(&a, "print-config")) {
    args_free(&a);
    return verb_config_print(argc, argv);
  } else {
    code = run_parsed(&a, &plan, &err);
    /* The thread of a rank that hangs in a plugin may go on at any time: it finds everything as it was. */
    if (bs_context_stuck(plan.session.context) > 0) bsrun_leave(bsrun_finish(code));
    plan_free(&plan);
  }
  args_free(&a);
  return code;
}
