/* SPDX-License-Identifier: MIT
 * bench.c - see bench.h: the entrants, the stages before timing, and the handling of a failure. */
#include "lab/kernel/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/kernel/bench_point.h"
#include "lab/stop.h"
#include "lab/store/env.h"

/* ---- gates -------------------------------------------------------------------------------------- */

static int32_t add_gates(bs_entrant *e, const bs_rules_outcome *o, bs_error *err) {
  json_t *rows = bs_rules_outcome_json(o);
  if (rows == NULL) return bs_no_memory(err, "gates");
  const int bad = json_array_extend(e->gates, rows);
  json_decref(rows);
  return bad ? bs_no_memory(err, "gates") : BS_OK;
}

int32_t bs_entrant_judge(const bs_point *point, bs_entrant *e, uint32_t stage, bs_error *err) {
  bs_rules_outcome o;
  int32_t rc = bs_rules_judge_stage(point->rules, stage, e->record, &o, err);
  if (rc == BS_OK) rc = add_gates(e, &o, err);
  const bs_rule_result *failed = rc == BS_OK ? bs_rules_first(&o, BS_GATE_FAIL) : NULL;
  if (rc == BS_OK) e->unknown += o.unknown;
  if (rc == BS_OK) e->ran += o.ran;
  if (failed != NULL) {
    const json_t *build = json_object_get(e->record, "build");
    const char *why = json_string_value(json_object_get(build, "message"));
    e->failed = (int32_t)stage;
    snprintf(e->cause, sizeof e->cause, "gate %s: %s: %s", failed->rule->name, failed->text,
             stage == BS_STAGE_BUILD && why != NULL ? why : failed->rule->says);
  }
  bs_rules_outcome_free(&o);
  return rc;
}

/* ---- entrants ---------------------------------------------------------------------------------- */

static void label(bs_entrant *e) {
  const int told = e->knobs[0] != '\0';
  snprintf(e->label, sizeof e->label, "%s%s%s%s%s%s", e->name[0] != '\0' ? e->name : "(none)",
           told ? "{" : "", e->knobs, told ? "}" : "", e->vary[0] != '\0' ? "@" : "", e->vary);
}

/* Parses "cpu:online{keys=64;exp=fast}@f32": the provider and its knobs; "": the default. */
static void set_provider(bs_entrant *e, const char *text) {
  const char *brace = strchr(text, '{');
  snprintf(e->name, sizeof e->name, "%.*s", (int)strcspn(text, "{@"), text);
  snprintf(e->knobs, sizeof e->knobs, "%.*s", brace != NULL ? (int)strcspn(brace + 1, "}") : 0,
           brace != NULL ? brace + 1 : "");
  e->setup.provider = e->name[0] != '\0' ? e->name : NULL;
  e->setup.knobs = e->knobs;
  label(e);
}

bs_entrant *bs_point_add(bs_point *point, const char *text) {
  if (point->n == sizeof point->of / sizeof point->of[0]) return NULL;
  bs_entrant *e = &point->of[point->n];
  const bs_kernel_bench *q = point->bench;
  *e = (bs_entrant){.failed = -1, .paired = -1, .problem = *point->problem, .seeds = &point->seeds};
  e->record = json_object();
  e->gates = json_array();
  if (e->record == NULL || e->gates == NULL) {
    json_decref(e->record);
    json_decref(e->gates);
    return NULL;
  }
  e->setup = (bs_kernel_setup){.context = q->context,
                               .problem = &e->problem,
                               .backend = q->backend,
                               .threads = q->threads,
                               .bind = q->bind};
  set_provider(e, text);
  point->n++;
  return e;
}

/* "cpu@f32": its problem is another one, with other numbers. */
static int32_t vary(const bs_point *point, bs_entrant *e, const char *text, bs_error *err) {
  const char *brace = strchr(text, '}'), *at = strchr(brace != NULL ? brace : text, '@');
  if (at == NULL) return BS_OK;
  const int32_t rc = bs_kernel_problem_vary(point->problem, at + 1, &e->problem, err);
  if (rc != BS_OK) return rc;
  snprintf(e->vary, sizeof e->vary, "%s", at + 1);
  e->own = point->seeds;
  memset(e->own.of, 0, sizeof e->own.of);
  e->own.problem = e->problem;
  e->seeds = &e->own;
  label(e);
  return BS_OK;
}

/* Uses the choice of the tuning file instead of the default, if the user named no provider. */
static int32_t take_tuned(const bs_kernel_bench *q, bs_entrant *e, bs_error *err) {
  char text[sizeof e->name + sizeof e->knobs + 4] = "";
  if (e->arm == NULL || e->setup.provider != NULL || q->tuned == NULL) return BS_OK;
  q->tuned(q->tuned_user, bs_kernel_arm_key(e->arm), bs_kernel_arm_candidates(e->arm), text, sizeof text,
           e->stored_id, sizeof e->stored_id);
  const int other = strcmp(text, bs_kernel_arm_provider(e->arm)) != 0;
  if (text[0] == '\0' || (!other && e->stored_id[0] == '\0')) return BS_OK;
  if (e->stored_id[0] != '\0') e->setup.stored_id = e->stored_id;
  bs_kernel_arm_close(e->arm);
  e->arm = NULL;
  set_provider(e, text);
  const int32_t rc = bs_kernel_stage(BS_STAGE_BUILD, &e->setup, e->seeds, &e->arm, e->record, err);
  if (rc == BS_CONFIG || rc == BS_USAGE) { /* an entry that a user has edited */
    bs_error_where(err, "%s, choice %s", q->tuned_from, text);
    bs_error_hint(err, "remove its line, or take no choice: --tune-cache off");
  }
  return rc;
}

/* The stages that need no clock, up to the first that fails. */
static int32_t examine(bs_point *point, bs_entrant *e, bs_error *err) {
  const bs_kernel_bench *q = point->bench;
  int32_t rc = BS_OK;
  for (uint32_t stage = BS_STAGE_BUILD; rc == BS_OK && stage <= BS_STAGE_MEMORY && e->failed < 0; stage++) {
    if (q->progress != NULL) q->progress(q->user, bs_rule_stage_names[stage], stage, BS_STAGE_COUNT_);
    rc = bs_kernel_stage(stage, &e->setup, e->seeds, &e->arm, e->record, err);
    if (rc == BS_OK && stage == BS_STAGE_BUILD) rc = take_tuned(q, e, err);
    if (rc == BS_OK && stage == BS_STAGE_BUILD) rc = bs_entrant_check_build(point, e, err);
    if (rc == BS_OK && e->arm != NULL && stage == BS_STAGE_BUILD)
      snprintf(e->name, sizeof e->name, "%s", bs_kernel_arm_provider(e->arm));
    if (rc == BS_OK) rc = bs_entrant_judge(point, e, stage, err);
  }
  e->setup.provider = e->name[0] != '\0' ? e->name : NULL;
  label(e);
  return rc;
}

/* Examines all others that can serve, from the arm of the chosen one: lines of its name, a tab and its
 * answer. */
static int32_t examine_others(bs_point *point, bs_error *err) {
  const bs_kernel_arm *chosen = point->of[0].arm;
  const char *line = chosen != NULL ? bs_kernel_arm_candidates(chosen) : "";
  int32_t rc = BS_OK;
  for (const char *end; rc == BS_OK && (end = strchr(line, '\n')) != NULL; line = end + 1) {
    char name[160];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(line, "\t\n"), line);
    if (strcmp(name, point->of[0].name) == 0 || point->n >= BS_KERNEL_PROVIDERS) continue;
    bs_entrant *e = bs_point_add(point, name);
    rc = e != NULL ? examine(point, e, err) : bs_no_memory(err, "a provider");
  }
  return rc;
}

static int takes_part(const bs_point *point, const char *name, size_t length) {
  for (uint32_t i = 0; i < point->n; i++)
    if (strncmp(point->of[i].name, name, length) == 0 && strchr(":", point->of[i].name[length]) != NULL)
      return 1;
  return 0;
}

static void tell_absent(const bs_point *point, const char *plugin, const char *why) {
  char text[700];
  snprintf(text, sizeof text, "%s: the plugin %.60s takes no part: %.300s", point->text, plugin, why);
  bs_bench_tell(point->bench, text);
}

/* Examines all implementations of a plugin that the user named, for any score. */
static int32_t examine_plugin(bs_point *point, const char *plugin, bs_error *err) {
  char why[300], *lines = NULL, *save = NULL;
  if (point->bench->n_providers > 0) {
    if (!takes_part(point, plugin, strlen(plugin))) tell_absent(point, plugin, "--provider names others");
    return BS_OK;
  }
  int32_t rc = bs_kernel_named(point, plugin, &lines, why, err);
  for (char *name = lines != NULL ? strtok_r(lines, "\n", &save) : NULL; rc == BS_OK && name != NULL;
       name = strtok_r(NULL, "\n", &save)) {
    if (takes_part(point, name, strlen(name))) continue;
    if (point->n >= BS_KERNEL_PROVIDERS) {
      snprintf(why, sizeof why, "so many others serve; --provider %.100s", name);
      break;
    }
    bs_entrant *e = bs_point_add(point, name);
    rc = e != NULL ? examine(point, e, err) : bs_no_memory(err, "a provider");
  }
  if (rc == BS_OK && !takes_part(point, plugin, strlen(plugin))) tell_absent(point, plugin, why);
  free(lines);
  return rc;
}

static int32_t examine_all(bs_point *point, bs_error *err) {
  const bs_kernel_bench *q = point->bench;
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < (q->n_providers > 0 ? q->n_providers : 1); i++) {
    const char *text = q->n_providers > 0 ? q->providers[i] : "";
    bs_entrant *e = bs_point_add(point, text);
    rc = e != NULL ? vary(point, e, text, err) : bs_no_memory(err, "a provider");
    if (rc == BS_OK) rc = bs_stop_check(err);
    if (rc == BS_OK) rc = examine(point, e, err);
  }
  if (rc == BS_CONFIG && q->n_providers > 0 && err != NULL && strncmp(err->id, "BS-OP-KNOB", 10) == 0)
    rc = err->code = BS_USAGE; /* as --provider has it */
  if (rc == BS_OK && q->n_providers == 0) rc = examine_others(point, err);
  for (size_t i = 0; rc == BS_OK && i < q->n_plugins; i++) rc = examine_plugin(point, q->plugins[i], err);
  return rc;
}

/* ---- one problem -------------------------------------------------------------------------------- */

static int32_t judge_times(bs_point *point, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < point->n; i++) {
    bs_entrant *e = &point->of[i];
    if (!bs_entrant_runs(e) || e->peer != NULL) continue;
    rc = bs_entrant_judge(point, e, BS_STAGE_PERFORMANCE, err);
    if (rc == BS_OK && e->failed < 0 && i == 0) rc = bs_entrant_judge(point, e, BS_STAGE_EVIDENCE, err);
  }
  return rc;
}

static void free_point(bs_point *point) {
  for (uint32_t i = 0; i < point->n; i++) {
    bs_entrant *e = &point->of[i];
    bs_kernel_arm_close(e->arm);
    bs_kernel_seeds_free(&e->own);
    json_decref(e->record);
    json_decref(e->gates);
    free(e->calls);
  }
  bs_sampling_free(point->sampling);
  bs_kernel_seeds_free(&point->seeds);
}

int32_t bs_entrant_code(const bs_entrant *e) {
  const char *code = json_string_value(json_object_get(json_object_get(e->record, "build"), "code"));
  if (code != NULL && (strcmp(code, "UNSUPPORTED") == 0 || strcmp(code, "UNAVAILABLE") == 0))
    return BS_UNAVAILABLE;
  return e->failed >= BS_STAGE_PERFORMANCE ? BS_PERF : BS_NUMERIC;
}

/* The failure that ends the command: wrong numbers first, then a problem that is not served, then speed. */
static void first_failure(const bs_point *point, int32_t *inout_code, bs_error *err) {
  static const int32_t order[] = {BS_OK, BS_PERF, BS_UNAVAILABLE, BS_NUMERIC};
  for (uint32_t i = 0; i < point->n; i++) {
    const bs_entrant *e = &point->of[i];
    if (e->failed < 0) continue;
    const int32_t code = bs_entrant_code(e);
    int had = 0, is = 0;
    while (order[had] != *inout_code) had++;
    while (order[is] != code) is++;
    if (is <= had) continue;
    *inout_code = code;
    if (code == BS_UNAVAILABLE) {
      const char *why = json_string_value(json_object_get(json_object_get(e->record, "build"), "message"));
      bs_error_set(err, code, "BS-KERNEL-REFUSED", "%s: %s%s%s", point->text,
                   e->peer != NULL      ? e->label
                   : e->name[0] != '\0' ? ""
                                        : "no implementation serves it",
                   e->peer != NULL || e->name[0] == '\0' ? ": " : "", why != NULL ? why : e->cause);
      if (e->peer != NULL)
        bs_error_hint(err, "the other rows are whole; without %s they are alone",
                      e->baseline ? "--baseline" : "--torch");
      else
        bs_error_hint(err, "bsrun explain %s says which implementation serves what",
                      bs_kernel_problem_op(point->problem->kind));
      continue;
    }
    bs_error_set(err, code, "BS-KERNEL-GATE", "%s on %s: stage %s, %s", e->label, point->text,
                 bs_rule_stage_names[e->failed], e->cause);
    if (point->bench->out_dir != NULL)
      bs_error_hint(err, "the other stages and all numbers stand in the run's folder: bsrun runs show RUN");
    else
      bs_error_hint(err, "the other stages and all numbers: -o json, or a run's folder without --out off");
  }
}

/* Refuses a file of gates that judges nothing. */
static int32_t check_ran(const bs_point *point, bs_error *err) {
  for (uint32_t i = 0; i < point->n; i++)
    if (point->of[i].ran > 0) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-RULES-NONE", "%s: none of the %u gates of %s ran", point->text,
               point->rules->n, point->rules->name);
  bs_error_hint(err, "each was skipped or lacks its number: add a gate that applies, or take --gates sdpa");
  return BS_USAGE;
}

static int32_t run_point(bs_point *point, const bs_bench_peers *peers, json_t *out, bs_error *err) {
  int32_t rc = examine_all(point, err);
  if (rc == BS_OK) rc = bs_point_add_peers(point, peers, err);
  if (rc == BS_OK) rc = bs_point_time(point, err);
  if (rc == BS_OK) rc = judge_times(point, err);
  if (rc == BS_OK) rc = check_ran(point, err);
  for (uint32_t i = 0; rc == BS_OK && i < point->n; i++)
    rc = bs_entrant_row(point, &point->of[i], json_object_get(out, "rows"), err);
  for (uint32_t i = 0; rc != BS_OK && bs_stop_asked() != 0 && i < point->n; i++) /* what is known */
    if (point->of[i].ran > 0) bs_entrant_row(point, &point->of[i], json_object_get(out, "rows"), NULL);
  return rc == BS_OK && point->bench->out_dir != NULL
             ? bs_point_keep(point, json_object_get(out, "runs"), err)
             : rc;
}

/* ---- all of them -------------------------------------------------------------------------------- */

/* Rejects an unclosed "cpu:online{rows=48": the missing part cannot be guessed. */
static int32_t check_braces(const bs_kernel_bench *q, bs_error *err) {
  for (size_t i = 0; i < q->n_providers; i++) {
    const char *brace = strchr(q->providers[i], '{'), *end = brace != NULL ? strchr(brace, '}') : NULL;
    if (brace == NULL || (end != NULL && (end[1] == '\0' || end[1] == '@'))) continue;
    bs_error_set(err, BS_USAGE, "BS-KERNEL-PROVIDER", "provider '%.200s': the knobs do not end in '}'",
                 q->providers[i]);
    bs_error_hint(err, "as in 'cpu:online{rows=48;keys=64}'");
    return BS_USAGE;
  }
  return BS_OK;
}

int32_t bs_kernel_bench_run(const bs_kernel_bench *q, json_t **out, uint32_t *out_unknown, bs_error *err) {
  bs_rules *rules = NULL;
  bs_bench_peers peers = {NULL, NULL};
  int32_t failed = BS_OK;
  bs_error why = BS_ERROR_INIT;
  *out_unknown = 0;
  *out = json_pack("{s:[], s:[], s:n, s:n}", "rows", "runs", "torch", "baseline");
  if (*out == NULL) return bs_no_memory(err, "rows");
  if (q->n_problems == 0 || q->seeds < 1 || q->seeds > BS_KERNEL_SEEDS ||
      q->n_providers > BS_KERNEL_PROVIDERS)
    return bs_error_set(err, BS_USAGE, "BS-KERNEL-EMPTY",
                        "%zu problems, %u seeds (1 to %d), %zu providers (at most %d)", q->n_problems,
                        q->seeds, BS_KERNEL_SEEDS, q->n_providers, BS_KERNEL_PROVIDERS);
  int32_t rc = check_braces(q, err);
  if (rc == BS_OK) rc = bs_rules_load(q->gates != NULL ? q->gates : "sdpa", "gates", &rules, err);
  if (rc == BS_OK) rc = bs_bench_peers_start(q, &peers, err);
  if (peers.torch != NULL)
    json_object_set_new(*out, "torch", bs_env_string(bs_kernel_peer_version(peers.torch)));
  if (peers.baseline != NULL) json_object_set_new(*out, "baseline", bs_env_string(q->baseline->name));
  for (size_t i = 0; rc == BS_OK && i < q->n_problems; i++) {
    bs_point *point = calloc(1, sizeof *point);
    if (point == NULL) {
      rc = bs_no_memory(err, "a problem");
      break;
    }
    point->bench = q;
    point->rules = rules;
    point->problem = &q->problems[i];
    point->seeds = (bs_kernel_seeds){.problem = q->problems[i], .first = q->seed, .n = q->seeds};
    bs_kernel_problem_text(point->problem, point->text, sizeof point->text);
    rc = run_point(point, &peers, *out, err);
    if (rc == BS_OK) first_failure(point, &failed, &why);
    for (uint32_t k = 0; k < point->n; k++) *out_unknown += point->of[k].unknown;
    free_point(point);
    free(point);
  }
  bs_bench_peers_close(&peers);
  bs_rules_free(rules);
  if (rc != BS_OK || failed == BS_OK) return rc;
  if (err != NULL) *err = why;
  return failed;
}
