/* SPDX-License-Identifier: MIT
 * selftest_kernel.c - the gates of kernels and the controls that they name. The plugin bad_attention makes
 * faults of a kernel, which are handled like every kernel: examined on this machine, judged by the rules.
 * Faults of measuring use a synthetic clock (3 % drift, 0.4 % noise, a spike in 30) for the sampler and its
 * verdict, so that they are also caught on a busy machine. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/base/text.h"
#include "lab/check/selftest_parts.h"
#include "lab/error.h"
#include "lab/kernel/record.h"
#include "lab/measure/sampler.h"

#define PLUGIN "bad_attention"
#define PROBLEM "b2h2s96d32:f32"
#define CALL_S 1e-3    /* of the kernel that is right */
#define BOUND_S 0.8e-3 /* and its bound */

/* The construction of a control. */
static const struct control {
  const char *name;
  const char *problem; /* NULL: PROBLEM */
  const char *knobs;
  double slower;     /* its time as a multiple of its twin's; 0: 1 */
  double share;      /* the time's share of the bound's; 0: unchanged */
  uint32_t items;    /* the reported time is that of one of so many items of a call; 0: of the call */
  uint32_t few;      /* samples are lost */
  const char *fault; /* of the plugin; NULL: none */
  uint32_t stored;   /* it is compared with the build id of the right one */
  uint32_t baseline; /* its twin is a stored build */
} controls[] = {
    {.name = "refused", .fault = "refused"},
    {.name = "lost_knob", .fault = "lost_knob", .knobs = "keys=32"},
    {.name = "rebuilt", .fault = "rebuilt", .stored = 1},
    {.name = "spilled", .fault = "spilled"},
    {.name = "many_registers", .fault = "many_registers"},
    {.name = "much_shared", .fault = "much_shared"},
    {.name = "nan", .fault = "nan"},
    {.name = "zero", .fault = "zero"},
    {.name = "zero_long", .fault = "zero", .problem = "b1h1s4t32kd16:bf16"},
    {.name = "half_lsb", .fault = "half_lsb", .problem = "b1h1s128d32:fp8"},
    {.name = "taylor_exp", .fault = "taylor_exp"},
    {.name = "last_tile", .fault = "last_tile"},
    {.name = "batch", .fault = "batch"},
    {.name = "unsteady", .fault = "unsteady"},
    {.name = "greedy", .fault = "greedy"},
    {.name = "one_output", .fault = "one_output"},
    {.name = "much_slower_twin", .slower = 1.15},
    {.name = "slow_twin", .slower = 1.05},
    {.name = "no_progress", .slower = 0.97, .baseline = 1},
    {.name = "too_fast", .share = 0.5},
    {.name = "per_item", .items = 32},
    {.name = "no_samples", .few = 1},
};
enum { N_CONTROLS = sizeof controls / sizeof controls[0] };
/* The right control, in each format that a control has, with its knob and with stored times. It is 3 % faster
 * than its twin: with equal times the promotion would be undecided; and 15 % faster than a stored build. */
static const struct control right_ones[] = {
    {.name = "none: f32", .stored = 1, .knobs = "keys=32", .slower = 0.97},
    {.name = "none: fp8", .problem = "b1h1s128d32:fp8", .slower = 0.97},
    {.name = "none: progress", .slower = 0.85, .baseline = 1}};

static const struct control *control_of(const char *name) {
  for (size_t i = 0; i < N_CONTROLS; i++) {
    if (strcmp(controls[i].name, name) == 0) return &controls[i];
  }
  return NULL;
}

/* ---- the clock ---------------------------------------------------------------------------------- */

typedef struct clock_arm {
  double seconds;
  double *now; /* of both */
  uint64_t *drawn;
} clock_arm;

static int32_t clock_batch(void *user, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  const clock_arm *a = user;
  float noise, spike;
  (void)err;
  bs_rng_normal(7, 1, *a->drawn, 1, &noise);
  bs_rng_uniform(7, 2, (*a->drawn)++, 1, &spike);
  const double slow =
      (1.0 + 0.03 * *a->now) * (1.0 + 0.004 * (double)noise) * (spike < 1.0f / 30 ? 1.2 : 1.0);
  out->seconds = a->seconds * slow;
  *a->now += (double)(lead + n) * out->seconds;
  return BS_OK;
}

static double clock_now(void *user) {
  return *(double *)user;
}

/* Measures a control against its twin, which is right. */
static int32_t measure(const struct control *c, json_t *record, bs_error *err) {
  double now = 0.0;
  uint64_t drawn = 0;
  bs_sampler_options o;
  bs_sampled *s = NULL;
  clock_arm mine = {CALL_S * (c->slower > 0 ? c->slower : 1.0), &now, &drawn}, twin = {CALL_S, &now, &drawn};
  const bs_sampler_arm arms[] = {{.name = "this", .user = &mine, .batch = clock_batch},
                                 {.name = "twin", .user = &twin, .batch = clock_batch}};
  const bs_sampler_host host = {.user = &now, .now = clock_now};
  const bs_kernel_bound bound = {.seconds = c->share > 0 ? CALL_S / c->share : BOUND_S};
  bs_sampler_defaults(&o);
  o.pairs_max = 60;
  const int32_t rc = bs_sampler_run(&o, &host, arms, 2, &s, err);
  if (rc != BS_OK) return rc;
  const bs_kernel_timed timed = {
      .seconds = bs_median(s->arm[0].seconds, s->pairs) / (c->items > 0 ? c->items : 1),
      .samples = c->few ? 1 : s->pairs,
      .bound = &bound,
      .peers = 1,
      .best = &s->arm[1].comparison,
      .baseline = c->baseline,
      .progress = &s->arm[1].comparison,
      .candidate = 1};
  const int32_t told = bs_kernel_record_times(&timed, record, err);
  bs_sampling_free(s);
  return told;
}

/* ---- one control -------------------------------------------------------------------------------- */

/* Examines one kernel with a fault. If the control is compared with a stored build, `stored` is the right
 * kernel's build id. `build`: the id that the kernel reports. */
static int32_t examine(const bs_selftest_request *r, const struct control *c, const char *fault,
                       const char *stored, json_t *record, char build[80], bs_error *err) {
  bs_context *context = NULL;
  bs_kernel_arm *arm = NULL;
  bs_kernel_seeds seeds = {.first = 1, .n = 1};
  int32_t rc = bs_kernel_problem_parse(c->problem != NULL ? c->problem : PROBLEM, &seeds.problem, err);
  if (rc == BS_OK) rc = bs_selftest_context(r, "plugins." PLUGIN ".fault", fault, &context, err);
  if (rc != BS_OK) return rc;
  const bs_backend *backend = NULL;
  void *state = NULL;
  rc = bs_find_backend(context, PLUGIN, &backend, &state, err); /* a missing plugin is not a refusal of a
                                                                 * kernel */
  if (rc != BS_OK) {
    bs_context_close(context);
    return rc;
  }
  const bs_kernel_setup setup = {.context = context,
                                 .problem = &seeds.problem,
                                 .backend = PLUGIN,
                                 .knobs = c->knobs,
                                 .threads = 1,
                                 .stored_id = stored};
  rc = bs_kernel_examine(&setup, &seeds, &arm, record, err);
  const bs_op_echo *echo = arm != NULL ? bs_kernel_arm_echo(arm) : NULL;
  snprintf(build, 80, "%s", echo != NULL ? echo->build : "");
  bs_kernel_arm_close(arm);
  bs_kernel_seeds_free(&seeds);
  bs_context_close(context);
  return rc;
}

/* The record of a control. */
static int32_t make_record(const bs_selftest_request *r, const struct control *c, json_t *record,
                           bs_error *err) {
  char stored[80] = "", build[80];
  json_t *right = json_object();
  int32_t rc = right != NULL ? BS_OK : bs_no_memory(err, "the record of a kernel");
  if (rc == BS_OK && c->stored) rc = examine(r, c, "none", NULL, right, stored, err);
  json_decref(right);
  if (rc == BS_OK)
    rc = examine(r, c, c->fault != NULL ? c->fault : "none", c->stored ? stored : NULL, record, build, err);
  return rc == BS_OK ? measure(c, record, err) : rc;
}

static const char *cell_of(const bs_rule_result *result, int fault) {
  static const char *const words[] = {"caught", "let pass", "unknown", "not applicable"};
  return !fault && result->state == BS_GATE_PASS ? "passed" : words[result->state];
}

/* One row. rule NULL: of a kernel that is right. */
static int32_t add_row(bs_selftest *out, const struct control *c, const bs_rule *rule,
                       const bs_rules_outcome *outcome, bs_error *err) {
  char by[200] = "";
  const char *text = "";
  int caught = 0;
  json_t *row = json_pack("{ss,ss,ss}", "suite", "kernel", "fault", c->name, "gate",
                          rule != NULL ? rule->name : "none");
  for (uint32_t i = 0; row != NULL && i < outcome->n; i++) {
    const bs_rule_result *result = &outcome->result[i];
    const int failed = result->state == BS_GATE_FAIL, wrong = failed || result->state == BS_GATE_UNKNOWN;
    const size_t used = strlen(by);
    json_object_set_new(row, result->rule->name, json_string(cell_of(result, rule != NULL)));
    if (rule != NULL ? failed : wrong)
      snprintf(by + used, sizeof by - used, "%s%s", used > 0 ? ", " : "", result->rule->name);
    if (rule == NULL ? wrong : result->rule == rule) text = result->text;
    caught |= rule == NULL ? wrong : failed && result->rule == rule;
  }
  const char *state = rule != NULL ? caught ? "caught" : "MISSED" : caught ? "FALSE ALARM" : "clean";
  json_object_set_new(row, "state", json_string(state));
  json_object_set_new(row, "by", json_string(by));
  json_object_set_new(row, "text", json_string(text));
  return bs_selftest_add(out, row, err);
}

static int32_t one_control(const bs_selftest_request *r, const struct control *c, const bs_rule *rule,
                           bs_selftest *out, bs_error *err) {
  bs_rules_outcome outcome = {0};
  json_t *record = json_object();
  int32_t rc = record != NULL ? make_record(r, c, record, err) : bs_no_memory(err, "the record of a kernel");
  if (rc == BS_OK) rc = bs_rules_judge(out->rules, record, &outcome, err);
  if (rc == BS_OK) rc = add_row(out, c, rule, &outcome, err);
  bs_rules_outcome_free(&outcome);
  json_decref(record);
  return rc;
}

static int32_t unknown_control(const bs_rule *rule, const char *name, bs_error *err) {
  const char *names[N_CONTROLS];
  for (size_t i = 0; i < N_CONTROLS; i++) names[i] = controls[i].name;
  const char *nearest = bs_nearest(name, names, N_CONTROLS);
  bs_error_set(err, BS_CONFIG, "BS-RULES-CONTROL", "gate %.60s: there is no control '%.60s'", rule->name,
               name);
  if (nearest != NULL) bs_error_hint(err, "did you mean '%s'?", nearest);
  return BS_CONFIG;
}

int32_t bs_selftest_kernels(const bs_selftest_request *r, bs_selftest *out, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < sizeof right_ones / sizeof right_ones[0]; i++)
    rc = one_control(r, &right_ones[i], NULL, out, err);
  for (uint32_t i = 0; rc == BS_OK && i < out->rules->n; i++) {
    const bs_rule *rule = &out->rules->rule[i];
    if (r->progress != NULL) r->progress(r->user, rule->name, i, out->rules->n);
    for (uint32_t k = 0; rc == BS_OK && k < rule->n_controls; k++) {
      const struct control *c = control_of(rule->controls[k]);
      rc = c != NULL ? one_control(r, c, rule, out, err) : unknown_control(rule, rule->controls[k], err);
    }
  }
  return rc;
}
