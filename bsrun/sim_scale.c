/* SPDX-License-Identifier: MIT
 * sim_scale.c - `bsrun sim scale`: methods over numbers of ranks of one simulated machine, as a table or a
 * plot. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/bsrun.h"
#include "bsrun/sim_scale_model.h"
#include "bsrun/simulated.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/clock.h"
#include "lab/config/compose.h"
#include "lab/config/experiment.h"
#include "lab/config/schema.h"
#include "lab/phase/simulated.h"
#include "lab/report/rows.h"
#include "lab/sim/scale_svg.h"
#include "lab/stop.h"

enum { METHODS_MAX = 64, RANKS_MAX = 64, NAME_BYTES = 128 };

static const args_option options[] = {
    {OPT_METHOD,
     "several with commas; of a model all: every one and every pair F+S; default: "
     "blockshock,row_parallel,column_parallel",
     0},
    {OPT_WORLD_SIZE, "2,4,8, or FIRST:LAST*FACTOR, FIRST:LAST+STEP; default: 1:64*2", 0},
    {OPT_HARDWARE, NULL, 0},
    {OPT_ALGORITHM, NULL, 0},
    {OPT_PHASE, "without numbers; default: time", 0},
    {OPT_AT_LEAST, "each row is X times as fast as dense on one rank", 0},
    {OPT_FORCE, "--at-least judges rows outside of what the machine was fitted to", 0},
    {OPT_PLUGIN, "default: sim", 0},
    {OPT_WITH, NULL, 0},
    {OPT_WITH_WEAK, NULL, 0},
    {OPT_WITH_MODEL, NULL, 0},
    {OPT_DIM, NULL, 0},
    {OPT_CACHE_TOKENS, NULL, 0},
    {OPT_MASK, NULL, 0},
    ARGS_SHAPE,
    {OPT_CONFIG, NULL, 0},
    {OPT_SET, NULL, 0},
    {OPT_OUTPUT, "table, md, csv, json, jsonl or svg", 0},
    {OPT_WIDE, NULL, 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"method", "METHOD", 0, 0},
    {"world_size", "P", BS_FIELD_RIGHT, 0},
    {"B", "B", BS_FIELD_FOLD, 0},
    {"N", "N", BS_FIELD_FOLD, 0},
    {"K", "K", BS_FIELD_FOLD, 0},
    {"simulated_us", "us", BS_FIELD_RIGHT, 7},
    {"compute_us", "compute", BS_FIELD_RIGHT, 6},
    {"memory_us", "memory", BS_FIELD_RIGHT, 6},
    {"launch_us", "launch", BS_FIELD_RIGHT | BS_FIELD_LEAST, 6},
    {"wire_latency_us", "latency", BS_FIELD_RIGHT, 6},
    {"wire_bytes_us", "wire", BS_FIELD_RIGHT, 6},
    {"wait_us", "wait", BS_FIELD_RIGHT | BS_FIELD_LEAST, 6},
    {"limit", "limit", 0, 0},
    {"simulated_speedup", "x dense", BS_FIELD_RIGHT, 4},
    {"efficiency", "/ P", BS_FIELD_RIGHT | BS_FIELD_SPARE, 3},
    {"domain", "domain", BS_FIELD_FOLD, 0},
    {"algorithm", "algorithm", 0, 0},
    {"machine", "machine", BS_FIELD_FOLD, 0},
    {"label", "label", BS_FIELD_FOLD, 0},
    {"values", "values", BS_FIELD_WIDE, 0},
    {"engine", "engine", BS_FIELD_WIDE, 0},
    {"dense_us", "dense on 1: us", BS_FIELD_WIDE | BS_FIELD_RIGHT, 7},
    {"bytes_per_device", "bytes/device", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"messages", "messages", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"message_bytes", "message bytes", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"ops_not_costed", "ops not costed", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    /* Shown where the machine has a device. */
    {"device", "device", BS_FIELD_FOLD, 0},
    {"inside_simulated", "simulated inside", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"inside_known", "known inside", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
    {"ops_by_roofline", "by roofline", BS_FIELD_WIDE | BS_FIELD_RIGHT, 0},
};
enum { FIELDS = sizeof fields / sizeof fields[0], OF_DEVICE = 4 };

typedef struct scale {
  const args *a;
  args options; /* those of a request: `a` has lists, too */
  bsrun_request request;
  bs_context *context;
  bs_notes notes;
  char methods[METHODS_MAX][NAME_BYTES];
  size_t n_methods;
  uint32_t ranks[RANKS_MAX];
  size_t n_ranks;
  const char *algorithm; /* NULL: as configured; "best" */
  double at_least;       /* 0: no gate */
  const char *weak;      /* the key; NULL: strong scaling */
  int64_t weak_base;
  json_t *rows;
  size_t refused;
  int quiet, format, svg;
} scale;

/* ---- options ----------------------------------------------------------------------------------- */

static int32_t bad_ranks(const char *text, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-USE-NUMBER",
               "-P (--world-size): '%.60s' is no list of at most %d numbers from 1 to 1048576", text,
               RANKS_MAX);
  bs_error_hint(err, "2,4,8, or 1:4096*2, or 8:64+8");
  return BS_USAGE;
}

static int32_t add_ranks(scale *s, int64_t value, const char *text, bs_error *err) {
  if (s->n_ranks == RANKS_MAX || value < 1 || value > 1 << 20) return bad_ranks(text, err);
  s->ranks[s->n_ranks++] = (uint32_t)value;
  return BS_OK;
}

static int read_number(const char **at, int64_t *out) {
  char digits[16];
  const size_t n = strspn(*at, "0123456789");
  if (n == 0 || n >= sizeof digits) return 0;
  snprintf(digits, sizeof digits, "%.*s", (int)n, *at);
  *at += n;
  return bs_parse_i64(digits, out) && !__builtin_mul_overflow(*out, bs_size_unit(at), out);
}

static int32_t read_ranks(scale *s, bs_error *err) {
  const char *text = args_value(s->a, "world-size"), *at;
  int64_t first = 0, last = 0, step = 0;
  if (text == NULL) text = "1:64*2";
  at = text;
  if (!read_number(&at, &first)) return bad_ranks(text, err);
  int32_t rc = BS_OK;
  if (*at != ':') {
    rc = add_ranks(s, first, text, err);
    while (rc == BS_OK && *at == ',') {
      ++at;
      if (!read_number(&at, &first)) return bad_ranks(text, err);
      rc = add_ranks(s, first, text, err);
    }
    return rc != BS_OK || *at == '\0' ? rc : bad_ranks(text, err);
  }
  ++at;
  if (!read_number(&at, &last)) return bad_ranks(text, err);
  const char how = *at == '\0' ? '*' : *at++;
  if ((how != '*' && how != '+') || (*at != '\0' && !read_number(&at, &step)) || *at != '\0')
    return bad_ranks(text, err);
  if (step == 0) step = 2;
  if (how == '*' && step < 2) return bad_ranks(text, err);
  for (int64_t p = first; rc == BS_OK && p <= last; p = how == '*' ? p * step : p + step)
    rc = add_ranks(s, p, text, err);
  return rc != BS_OK || s->n_ranks > 0 ? rc : bad_ranks(text, err);
}

/* Every method, and every pair. */
static int32_t all_methods(scale *s, bs_error *err) {
  uint32_t most = 2;
  json_t *names = json_array(), *name;
  size_t i;
  for (i = 0; i < s->n_ranks; i++)
    if (s->ranks[i] > most) most = s->ranks[i];
  const int32_t rc = sim_scale_model_methods(s->a, most, names, err);
  const size_t n = json_array_size(names);
  json_array_foreach(names, i, name) if (s->n_methods < METHODS_MAX)
      snprintf(s->methods[s->n_methods++], NAME_BYTES, "%.127s", json_string_value(name));
  json_decref(names);
  if (rc != BS_OK || n <= METHODS_MAX) return rc;
  bs_error_set(err, BS_USAGE, "BS-USE-CHOICE", "--method all: %zu methods and pairs, at most %d are compared",
               n, METHODS_MAX);
  bs_error_hint(err, "name some: --method column_parallel+row_parallel,row_parallel");
  return BS_USAGE;
}

static int32_t read_methods(scale *s, bs_error *err) {
  const char *text = args_value(s->a, "method");
  if (text == NULL && args_has(s->a, "model")) text = "column_parallel+row_parallel";
  if (text == NULL) text = "blockshock,row_parallel,column_parallel";
  if (strcmp(text, "all") == 0 && args_has(s->a, "model")) return all_methods(s, err);
  while (*text != '\0') {
    const size_t n = strcspn(text, ",");
    if (n == 0 || n >= NAME_BYTES || s->n_methods == METHODS_MAX)
      return bs_error_set(err, BS_USAGE, "BS-USE-CHOICE", "--method: '%.60s' is no list of at most %d names",
                          text, METHODS_MAX);
    snprintf(s->methods[s->n_methods++], NAME_BYTES, "%.*s", (int)n, text);
    text += n + (text[n] == ',');
  }
  return BS_OK;
}

static int32_t read_weak(scale *s, bs_error *err) {
  static const char *const names[] = {"b", "n", "k"}, *const keys[] = {"model.B", "model.N", "model.K"};
  const char *text = args_value(s->a, "weak");
  for (size_t i = 0; text != NULL && i < 3; i++)
    if (strcmp(text, names[i]) == 0) s->weak = keys[i];
  return text == NULL || s->weak != NULL ? BS_OK : bsrun_unknown("size", text, names, 3, err);
}

static int32_t read_gate(scale *s, bs_error *err) {
  const char *text = args_value(s->a, "at-least");
  if (text == NULL && args_has(s->a, "force"))
    return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--force has an effect with --at-least only");
  if (text == NULL || (bs_parse_f64(text, &s->at_least) && s->at_least > 0 && s->at_least < 1e9))
    return BS_OK;
  return bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--at-least: '%.60s' is not a number above 0", text);
}

static int32_t read_options(scale *s, bs_error *err) {
  static const char *const sim[] = {"sim"};
  const char *output = args_value(s->a, "output");
  s->quiet = args_has(s->a, "quiet");
  s->svg = output != NULL && strcmp(output, "svg") == 0;
  const int model = args_has(s->a, "model");
  int32_t rc = s->svg ? BS_OK : bsrun_format(s->a, &s->format, err);
  if (rc == BS_OK) rc = read_ranks(s, err);
  if (rc == BS_OK) rc = read_methods(s, err);
  if (rc != BS_OK || model) return rc == BS_OK ? sim_scale_model_check(s->a, err) : rc;
  if (rc == BS_OK) rc = read_weak(s, err);
  if (rc == BS_OK) rc = read_gate(s, err);
  static const char *const lists[] = {"world-size", NULL};
  if (rc == BS_OK) rc = args_without(s->a, lists, &s->options, err);
  if (rc == BS_OK) rc = bsrun_request_make(&s->options, &s->request, err);
  if (rc != BS_OK) return rc;
  bs_compose_request *q = &s->request.compose;
  if (q->n_plugins == 0) {
    q->plugins = sim;
    q->n_plugins = 1;
  }
  if (q->hardware == NULL) q->hardware = "sim-flat";
  s->algorithm = args_value(s->a, "algorithm");
  bs_node *sets = bs_sets_tree(q->sets, q->n_sets);
  const int twice =
      s->algorithm != NULL && sets != NULL && bs_config_find(sets, "hardware.algorithm") != NULL;
  bs_config_free(sets);
  if (twice)
    return bs_error_set(err, BS_USAGE, "BS-USE-TWICE",
                        "hardware.algorithm is given twice: by --algorithm and by --set");
  if (q->phase == NULL) q->phase = "phase1_forward";
  return BS_OK;
}

/* ---- points ------------------------------------------------------------------------------------ */

/* Checks the algorithm's name once, so that an unknown name is not reported for each point. */
static int32_t check_algorithm(const scale *s, bs_error *err) {
  const bs_algorithm *found = NULL;
  char name[NAME_BYTES];
  if (s->algorithm == NULL || strcmp(s->algorithm, "best") == 0) return BS_OK;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(s->algorithm, ":"), s->algorithm);
  if (name[0] == '\0') return bs_error_set(err, BS_USAGE, "BS-USE-EMPTY", "--algorithm: the name is empty");
  const int32_t rc = bs_find_algorithm(s->context, name, &found, NULL, err);
  if (rc == BS_NOT_FOUND && err != NULL) err->code = BS_CONFIG;
  return rc == BS_NOT_FOUND ? BS_CONFIG : rc;
}

static int32_t open_context(scale *s, bs_error *err) {
  bs_compose_request q = s->request.compose;
  bs_composed composed = {0};
  q.method = s->methods[0];
  int32_t rc = bs_compose(&q, &composed, err);
  if (rc == BS_OK) rc = bs_schema_check(composed.config, s->request.configs_dir, NULL, err);
  if (rc == BS_OK) rc = bs_context_of_config(composed.config, BS_LOG_WARN, bsrun_log, NULL, &s->context, err);
  if (rc == BS_OK && s->weak != NULL) rc = bs_config_i64(composed.config, s->weak, 0, &s->weak_base, err);
  if (rc == BS_OK) rc = check_algorithm(s, err);
  bs_config_free(composed.config);
  return rc;
}

/* algorithm: NULL as configured; "" the communicator's own. */
static int32_t make_point(scale *s, const char *method, uint32_t P, const char *algorithm, bs_experiment *out,
                          bs_error *err) {
  bs_compose_request q = s->request.compose;
  bs_composed composed = {0};
  char size[32];
  q.context = s->context;
  q.method = method;
  q.world_size = P;
  int32_t rc = bs_compose(&q, &composed, err);
  if (rc == BS_OK && s->weak != NULL) {
    snprintf(size, sizeof size, "%lld", (long long)s->weak_base * P);
    rc = bs_config_set_text(composed.config, s->weak, size, err);
  }
  if (rc == BS_OK && algorithm != NULL && algorithm[0] == '\0')
    bs_config_remove(composed.config, "hardware.algorithm");
  else if (rc == BS_OK && algorithm != NULL)
    rc = bs_config_set_text(composed.config, "hardware.algorithm", algorithm, err);
  if (rc != BS_OK) {
    bs_config_free(composed.config);
    return rc;
  }
  return bs_experiment_make(s->context, composed.config, s->request.configs_dir, &s->notes, out, err);
}

static json_t *make_row(const char *method, uint32_t P, const char *algorithm, const bs_experiment *e,
                        const json_t *record) {
  static const char *const sizes[] = {"B", "N", "K"};
  json_t *row =
      json_pack("{s:s, s:I, s:s}", "method", method, "world_size", (json_int_t)P, "phase", e->phase_name);
  bs_row_add_simulated(row, record);
  for (size_t i = 0; i < 3; i++) {
    json_t *size = json_object_get(record, sizes[i]);
    if (size != NULL) json_object_set(row, sizes[i], size);
  }
  const json_t *speedup = json_object_get(row, "simulated_speedup");
  if (json_is_number(speedup))
    json_object_set_new(row, "efficiency", json_real(json_number_value(speedup) / P));
  if (algorithm != NULL)
    json_object_set_new(row, "algorithm", json_string(algorithm[0] != '\0' ? algorithm : "ring"));
  return row;
}

/* By one algorithm. */
static int32_t simulate(scale *s, const char *method, uint32_t P, const char *algorithm, json_t **out_row,
                        bs_error *err) {
  bs_experiment e;
  bs_phase_result result = {0};
  int32_t rc = make_point(s, method, P, algorithm, &e, err);
  const int made = rc == BS_OK;
  *out_row = NULL;
  if (rc == BS_OK && !bs_clock_is_virtual(s->context, e.comm)) {
    rc = bs_error_set(err, BS_USAGE, "BS-SIM-CLOCK", "communicator %s has no clock of its own", e.comm);
    bs_error_hint(err, "--plugin sim --hardware sim-flat");
  }
  if (rc == BS_OK) rc = bs_simulated_run(s->context, &e, NULL, NULL, &result, err);
  if (rc == BS_OK) {
    *out_row = make_row(method, P, algorithm, &e, result.record);
    bs_phase_result_free(&result);
  }
  if (made) bs_experiment_free(&e);
  return rc;
}

/* The fastest; one that does not take the point is passed over. Those with a message from each rank to each
 * other would take minutes of many ranks. */
static int32_t simulate_best(scale *s, const char *method, uint32_t P, json_t **out_row, bs_error *err) {
  enum { MANY = 64, FEW_ONLY = 1 };
  static const char *const names[] = {"two_shot",    "", "halving_doubling", "doubling", "double_tree",
                                      "hierarchical"};
  int32_t first = BS_OK;
  *out_row = NULL;
  for (size_t i = P > MANY ? FEW_ONLY : 0; i < sizeof names / sizeof names[0]; i++) {
    bs_error why = BS_ERROR_INIT;
    json_t *row = NULL;
    const int32_t rc = simulate(s, method, P, names[i], &row, &why);
    if (rc != BS_OK && rc != BS_CONFIG && rc != BS_UNSUPPORTED) return *err = why, json_decref(*out_row), rc;
    if (rc != BS_OK && first == BS_OK) first = rc, *err = why;
    if (row == NULL) continue;
    const double us = json_number_value(json_object_get(row, "simulated_us"));
    if (*out_row == NULL || us < json_number_value(json_object_get(*out_row, "simulated_us"))) {
      json_decref(*out_row);
      *out_row = json_incref(row);
    }
    json_decref(row);
  }
  if (*out_row == NULL) return first;
  bs_error_clear(err);
  return BS_OK;
}

/* A point that the method refuses is a note; anything else ends the scale. */
static int32_t left_out(scale *s, const char *method, uint32_t P, int32_t rc, bs_error *err) {
  const int unknown = rc != BS_OK && strcmp(err->id, "BS-PLG-NOTFOUND") == 0; /* of every point */
  if ((rc != BS_CONFIG && rc != BS_UNSUPPORTED) || unknown || s->n_ranks * s->n_methods == 1) return rc;
  char note[512];
  snprintf(note, sizeof note, "%s on %u ranks is left out: %.400s", method, P, err->message);
  bsrun_note(s->quiet, note);
  s->refused++;
  return BS_OK;
}

static int32_t model_point(scale *s, const char *method, uint32_t P, bs_error *err) {
  return left_out(s, method, P, sim_scale_model_point(s->a, method, P, s->rows, err), err);
}

static int32_t run_point(scale *s, const char *method, uint32_t P, bs_error *err) {
  json_t *row = NULL;
  if (args_has(s->a, "model")) return model_point(s, method, P, err);
  const int best = s->algorithm != NULL && strcmp(s->algorithm, "best") == 0;
  const int32_t rc =
      best ? simulate_best(s, method, P, &row, err) : simulate(s, method, P, s->algorithm, &row, err);
  if (rc == BS_OK) json_array_append_new(s->rows, row);
  return left_out(s, method, P, rc, err);
}

/* Prints the note of the row with most ranks that exceeds the machine. */
static void tell_beyond(const scale *s) {
  const json_t *most = NULL, *row;
  size_t i;
  json_array_foreach(s->rows, i, row) {
    if (json_object_get(row, "beyond") == NULL) continue;
    if (most == NULL || json_integer_value(json_object_get(row, "world_size")) >
                            json_integer_value(json_object_get(most, "world_size")))
      most = row;
  }
  if (most != NULL) bsrun_note(s->quiet, json_string_value(json_object_get(most, "beyond")));
}

static int32_t run_points(scale *s, bs_error *err) {
  const int shown = !s->quiet && isatty(STDERR_FILENO);
  int32_t rc = BS_OK;
  for (size_t m = 0; rc == BS_OK && m < s->n_methods; m++) {
    for (size_t i = 0; rc == BS_OK && i < s->n_ranks && bs_stop_asked() == 0; i++) {
      if (shown) bs_print(stderr, "\r\033[K%s, %u ranks", s->methods[m], s->ranks[i]);
      rc = run_point(s, s->methods[m], s->ranks[i], err);
    }
  }
  if (shown) fputs("\r\033[K", stderr);
  if (bs_stop_asked() != 0 && json_array_size(s->rows) > 0) return BS_OK; /* the rows until then */
  if (rc != BS_OK || json_array_size(s->rows) > 0) return rc;
  bs_error_set(err, BS_UNSUPPORTED, "BS-SIM-NONE", "no method takes any of these numbers of ranks");
  bs_error_hint(err, "the notes say why; give other ranks with -P, or another --method");
  return BS_UNSUPPORTED;
}

static int32_t print(const scale *s, bs_error *err) {
  if (!s->svg) {
    if (s->format == BS_FORMAT_TABLE) printf("simulated, not measured\n");
    const int device = json_object_get(json_array_get(s->rows, 0), "device") != NULL;
    return bs_report_print(stdout, s->format, fields, device ? FIELDS : FIELDS - OF_DEVICE, s->rows, err);
  }
  char title[256];
  const json_t *row = json_array_get(s->rows, 0);
  snprintf(title, sizeof title, "simulated, not measured: machine %s (%s), us over ranks, %s scaling",
           json_string_value(json_object_get(row, "machine")),
           json_string_value(json_object_get(row, "label")), s->weak != NULL ? "weak" : "strong");
  return bs_scale_svg(stdout, s->rows, title) == 0
             ? BS_OK
             : bs_error_set(err, BS_IO, "BS-OUT-WRITE", "cannot write the results to stdout");
}

/* The first row that may not be judged, or else the first that is too slow. */
static int32_t judge(const scale *s, bs_error *err) {
  const int accept = args_has(s->a, "force");
  size_t i, slow = 0;
  json_t *row;
  char what[128], first[128] = "";
  json_array_foreach(s->rows, i, row) {
    const double speedup = json_number_value(json_object_get(row, "simulated_speedup"));
    snprintf(what, sizeof what, "%s on %lld ranks", json_string_value(json_object_get(row, "method")),
             (long long)json_integer_value(json_object_get(row, "world_size")));
    const int32_t rc = bs_simulated_judgeable(what, json_string_value(json_object_get(row, "domain")),
                                              json_string_value(json_object_get(row, "label")), accept, err);
    if (rc != BS_OK) return rc;
    if (!json_is_number(json_object_get(row, "simulated_speedup"))) {
      bs_error_set(err, BS_CONFIG, "BS-SIM-DENSE", "%s has no dense layer to be compared with", what);
      bs_error_hint(err, "--at-least wants phase.dense_arm=true");
      return BS_CONFIG;
    }
    if (speedup >= s->at_least) continue;
    if (slow++ == 0) snprintf(first, sizeof first, "%.60s is %.4g x dense", what, speedup);
  }
  if (slow == 0) return BS_OK;
  return bs_error_set(err, BS_PERF, "BS-SIM-GATE", "%zu of %zu rows are below %.4g x dense: %s", slow,
                      json_array_size(s->rows), s->at_least, first);
}

static int32_t run(const args *a, bs_error *err) {
  scale *s = calloc(1, sizeof *s);
  if (s == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  s->a = a;
  s->rows = json_array();
  bsrun_interruptible("the rows above are done; fewer or smaller -P take less time");
  int32_t rc = read_options(s, err);
  const int model = args_has(a, "model");
  if (rc == BS_OK && !model && (args_has(a, "dim") || args_has(a, "cache-tokens")))
    rc = bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--dim and --cache-tokens are of --with model=MODEL");
  if (rc == BS_OK && !model) rc = open_context(s, err);
  if (rc == BS_OK) rc = run_points(s, err);
  const char *methods = args_value(a, "method");
  const int all = model && methods != NULL && strcmp(methods, "all") == 0;
  if (rc == BS_OK) rc = model ? sim_scale_model_print(s->format, s->rows, all, err) : print(s, err);
  if (rc == BS_OK) tell_beyond(s);
  if (rc == BS_OK && s->refused > 0)
    rc =
        bs_error_set(err, BS_SOME_FAILED, "BS-SIM-REFUSED", "%zu of %zu points were left out (see the notes)",
                     s->refused, s->n_methods * s->n_ranks);
  if (rc == BS_OK && s->at_least > 0) rc = judge(s, err);
  json_decref(s->rows);
  bs_notes_free(&s->notes);
  if (s->context != NULL) bs_context_close(s->context);
  bsrun_request_free(&s->request);
  free(s->options.given);
  free(s);
  return rc;
}

const bsrun_verb sim_scale_verb = {
    .name = "scale",
    .words = "[--hardware NAME] [--method LIST] [-P LIST] [--with weak=SIZE] [-o FORMAT]",
    .summary = "times of methods over numbers of ranks, and what takes them",
    .about =
        "Every row is a run in virtual time (share/doc/blockshock/simulator.md): nothing is measured. "
        "Without "
        "--with weak the\n"
        "layer stays as it is (strong scaling). \"x dense\" is the time of the dense layer on one rank over "
        "that "
        "of the\n"
        "row, \"/ P\" the same over the ranks. A method that takes no such number of ranks is named in a "
        "note, "
        "and "
        "the exit\n"
        "code is 12.\n"
        "With --at-least it is a gate: exit 14 when a row is slower, and 15 when a row is extrapolated and\n"
        "--force, which judges such rows too, is not given.\n"
        "-o svg draws a bar for each row.\n"
        "--with model=MODEL scales a model as `model bench --hardware` runs it: prefill and decode. \"x "
        "first\"\n"
        "is the time of the first number of ranks over that of the row. --method all compares every way to\n"
        "split it. --with weak=DIM gives --dim DIM times the ranks: \"x first\" is the efficiency then.\n",
    .examples =
        "  bsrun sim scale --hardware h100-dgx --method blockshock,row_parallel,column_parallel -P 1:512*2\n"
        "  bsrun sim scale --hardware h100-dgx -P 8,64,512 --n 16384 --b 4096 -o svg > scale.svg\n"
        "  bsrun sim scale --hardware h100-dgx --with model=qwen3-0.6b --dim sequence=128 -P 1:8*2\n"
        "  bsrun sim scale --hardware h100-dgx --with model=gpt2 --dim sequence=128 -P 8 --method all\n"
        "  bsrun sim scale --hardware ethernet-cluster --with weak=b -P 2:64*2 -o json\n"
        "  bsrun sim scale --with model=gpt2,weak=sequence --dim sequence=128 --hardware h100-dgx -P 1:8*2\n"
        "  bsrun sim scale --hardware a100-dgx -P 4 --b 4096 --n 16384 --at-least 1.5 "
        "--force\n",
    .options = options,
    .run = run,
};
