/* SPDX-License-Identifier: MIT
 * model_costs.c - checks of a model that compare it with a variant in which one thing is changed, and the
 * costs of its plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "lab/cores.h"
#include "lab/diagnose/model_checks.h"
#include "lab/error.h"

static const double DECIDED = 1.05;

int32_t diag_model_threads(bs_diagnosis *d, diag_model *m, bs_error *err) {
  const uint32_t cores = bs_machine_cores(), ranks = diag_model_ranks(m);
  const uint32_t threads = m->request.threads * ranks, share = cores > ranks ? cores / ranks : 1;
  const diag_change change = {.threads = threads > cores ? share : 1};
  bs_pair_times t;
  bs_fact(d, "cores", cores, "");
  bs_fact(d, "threads of a run", threads, "");
  if (threads == 1) return BS_OK;
  if (m->request.threads == 1) return bs_skip(d, "each rank has one thread: the check split looks at ranks");
  const int32_t rc = diag_model_pair(d, m, &change, &t, NULL, NULL, err);
  if (rc == BS_OK && (threads > cores || bs_pair_is_slower(&t)))
    bs_find_pair(d, &t, "%u threads on %u cores: %.3g ms a run; with %u: %.3g ms", threads, cores,
                 1e3 * t.as_is, change.threads * ranks, 1e3 * t.other);
  return rc;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static int is_off(const diag_model *m, const char *name) {
  for (size_t i = 0; i < m->model->n_passes_off; i++)
    if (strcmp(m->model->passes_off[i], name) == 0 || strcmp(m->model->passes_off[i], "all") == 0) return 1;
  return 0;
}

/* Bias, activation and residual that are nodes of their own because a pass is off. */
int32_t diag_model_epilogue(bs_diagnosis *d, diag_model *m, bs_error *err) {
  static const char *const passes[] = {"fuse_map", "expr",     "fuse_norm", "fuse_attention",
                                       "rope",     "epilogue", "merge"};
  const diag_change change = {.all_passes = 1, .share = 1};
  const uint32_t now = bs_session_node_count(m->model->session);
  bs_pair_times t;
  uint32_t then = 0;
  bs_text off = {0};
  for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++)
    if (is_off(m, passes[i])) bs_text_printf(&off, "%s%s", off.size > 0 ? ", " : "", passes[i]);
  bs_fact(d, "nodes of the plan", now, "");
  int32_t rc = BS_OK;
  if (off.size == 0) {
    bs_fact_text(d, "passes that fuse", "all on");
  } else {
    rc = diag_model_pair(d, m, &change, &t, NULL, &then, err);
    if (rc == BS_OK && then < now)
      bs_find_pair(
          d, &t,
          "%u nodes where %u do: %s off, so bias, activation and residual are nodes of their own; %.3g "
          "ms a run, "
          "%.3g ms with all passes",
          now, then, off.data, 1e3 * t.as_is, 1e3 * t.other);
  }
  bs_text_free(&off);
  return rc;
}

/* Runs it node by node: every operator of the model is an op, every value has separate memory. */
int32_t diag_model_nodes(bs_diagnosis *d, diag_model *m, bs_error *err) {
  const diag_change change = {.pass_off = "all", .share = 1};
  bs_session_stats stats;
  bs_pair_times t;
  uint32_t nodes = 0;
  const int32_t rc = diag_model_pair(d, m, &change, &t, &stats, &nodes, err);
  if (rc != BS_OK) return rc;
  bs_fact(d, "planned: nodes", bs_session_node_count(m->model->session), "");
  bs_fact(d, "node by node: nodes", nodes, "");
  bs_fact(d, "planned: a run", t.as_is, "s");
  bs_fact(d, "node by node: a run", t.other, "s");
  bs_fact_text(d, "node by node over planned", "%.3g [%.3g, %.3g], planned is %s", t.comparison.ratio,
               t.comparison.low, t.comparison.high, bs_comparison_name(t.comparison.word));
  bs_fact(d, "planned: memory of intermediate values", (double)m->stats.arena_bytes, "bytes");
  bs_fact(d, "node by node: memory of intermediate values, each its own", (double)stats.naive_bytes, "bytes");
  if (bs_pair_is_slower(&t))
    bs_find_pair(d, &t, "the planned model is slower than its nodes one by one: %.3g ms, %.3g ms",
                 1e3 * t.as_is, 1e3 * t.other);
  return BS_OK;
}

/* ---- planning -------------------------------------------------------------------------------- */

/* Plans the whole model again with packed weights available, in a separate session. */
static int32_t plan_warm(const diag_model *m, double *out_s, bs_session_stats *out, bs_error *err) {
  const diag_change change = {.share = 1};
  diag_session s = {0};
  const double began = bs_clock_s();
  int32_t rc = diag_session_open(m, &change, &s, err);
  *out_s = bs_clock_s() - began;
  *out = (bs_session_stats){.struct_size = sizeof *out};
  if (rc == BS_OK) rc = bs_session_stats_get(s.session, out, err);
  diag_session_close(&s);
  return rc;
}

int32_t diag_model_plan(bs_diagnosis *d, diag_model *m, bs_error *err) {
  const bs_session_stats *t = &m->stats;
  const json_t *node, *worst = NULL;
  bs_session_stats warm;
  double whole = 0, slowest = 0, sum = 0;
  size_t i;
  json_array_foreach(json_object_get(m->explain, "nodes"), i, node) {
    const double s = json_number_value(json_object_get(node, "prepare_s"));
    sum += s;
    if (worst != NULL && s <= slowest) continue;
    slowest = s;
    worst = node;
  }
  const int32_t rc = plan_warm(m, &whole, &warm, err);
  if (rc != BS_OK) return rc;
  bs_fact(d, "cold: read the model", t->load_s, "s");
  bs_fact(d, "cold: lower",
          json_number_value(json_object_get(json_object_get(m->explain, "seconds"), "lower")), "s");
  bs_fact(d, "cold: passes",
          json_number_value(json_object_get(json_object_get(m->explain, "seconds"), "passes")), "s");
  bs_fact(d, "cold: plan the memory",
          json_number_value(json_object_get(json_object_get(m->explain, "seconds"), "plan")), "s");
  bs_fact(d, "cold: pack the weights", t->pack_s, "s");
  bs_fact(d, "cold: prepare the ops, packing included",
          json_number_value(json_object_get(json_object_get(m->explain, "seconds"), "prepare")), "s");
  bs_fact(d, "cold: of these an op takes", i > 0 ? sum / (double)i : 0, "s");
  if (worst != NULL)
    bs_fact_text(d, "cold: the op that takes longest", "%s of '%.100s', %.3g s",
                 json_string_value(json_object_get(worst, "op")),
                 json_string_value(json_object_get(worst, "origin")), slowest);
  bs_fact(d, "warm: all of it, weights packed", whole, "s");
  bs_fact(d, "warm: lower, passes, plan", warm.lower_s + warm.pass_s + warm.plan_s, "s");
  bs_fact(d, "warm: prepare the ops", warm.prepare_s, "s");
  bs_fact(d, "first run", t->first_run_s, "s");
  bs_fact(d, "steady run", m->steady, "s");
  return BS_OK;
}

int32_t diag_model_memory(bs_diagnosis *d, diag_model *m, bs_error *err) {
  const bs_session_stats *t = &m->stats;
  (void)err;
  if (m->request.ranks != NULL) bs_fact_text(d, "bytes", "of rank 0; of %u ranks", m->ranks.n);
  bs_fact(d, "intermediate values, planned", (double)t->arena_bytes, "bytes");
  bs_fact(d, "the most that live at one time", (double)t->bound_bytes, "bytes");
  bs_fact(d, "each value memory of its own", (double)t->naive_bytes, "bytes");
  bs_fact(d, "packed weights", (double)t->packed_bytes, "bytes");
  bs_fact(d, "constants that ops read", (double)t->constant_bytes, "bytes");
  bs_fact(d, "scratch of ops", (double)t->scratch_bytes, "bytes");
  bs_fact(d, "key-value cache", (double)t->state_bytes, "bytes");
  if ((double)t->arena_bytes > DECIDED * (double)t->bound_bytes)
    bs_find(d, 0, "--only memory", "the plan takes %llu bytes, %llu live at one time",
            (unsigned long long)t->arena_bytes, (unsigned long long)t->bound_bytes);
  return BS_OK;
}

/* ---- ablation -------------------------------------------------------------------------------- */

static int32_t ablate_with(bs_diagnosis *d, const diag_model *m, const diag_change *change,
                           const char *setting, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  bs_pair_times t;
  const int32_t rc = diag_model_pair(d, m, change, &t, NULL, NULL, &why);
  return rc == BS_OK ? bs_ablated(d, setting, &t, err) : bs_ablation_failed(d, setting, rc, &why, err);
}

static int32_t known_pass(const char *name, bs_error *err) {
  const char *names[64];
  size_t n = 0;
  for (; n < 64 && bs_graph_pass_name((uint32_t)n) != NULL; n++) {
    names[n] = bs_graph_pass_name((uint32_t)n);
    if (strcmp(names[n], name) == 0) return BS_OK;
  }
  const char *nearest = bs_nearest(name, names, n);
  bs_error_set(err, BS_USAGE, "BS-DIAG-ABLATE", "--ablate: '%.60s' is no pass, nor threads=N or backend=NAME",
               name);
  bs_error_hint(err, nearest != NULL ? "did you mean '%s'?" : "bsrun model explain lists the passes%.0s",
                nearest != NULL ? nearest : "");
  return BS_USAGE;
}

/* Ablates "fuse_map", "fuse_map=off", "all=on": a pass without a value is inverted. */
static int32_t ablate_pass(bs_diagnosis *d, const diag_model *m, const char *pass, const char *value,
                           bs_error *err) {
  const int off = is_off(m, pass);
  int on = off;
  char setting[64];
  int32_t rc = strcmp(pass, "all") == 0 ? BS_OK : known_pass(pass, err);
  if (rc != BS_OK) return rc;
  if (value != NULL && !bs_parse_bool(value, &on))
    return bs_error_set(err, BS_USAGE, "BS-DIAG-ABLATE", "--ablate %.40s=%.40s: a pass is on or off", pass,
                        value);
  if (on == !off && strcmp(pass, "all") != 0) {
    bs_error_set(err, BS_USAGE, "BS-DIAG-ABLATE", "--ablate %.40s: the pass is %s already", pass,
                 on ? "on" : "off");
    bs_error_hint(err, "--ablate %.40s=%s", pass, on ? "off" : "on");
    return BS_USAGE;
  }
  const diag_change change = {.share = 1, .pass_off = on ? NULL : pass, .pass_on = on ? pass : NULL};
  snprintf(setting, sizeof setting, "%.40s=%s", pass, on ? "on" : "off");
  return ablate_with(d, m, &change, setting, err);
}

/* A pass, "threads=1", "backend=ref", "KEY -> cpu:online{exp=fast}". */
static int32_t ablate_word(bs_diagnosis *d, const diag_model *m, const char *word, bs_error *err) {
  char name[64];
  const char *value = strchr(word, '=');
  int64_t threads = 0;
  diag_change change = {0};
  int32_t rc = BS_OK;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
  if (strstr(word, " -> ") != NULL) {
    change.choice = word;
    rc = bs_choice_known(json_object_get(m->explain, "nodes"), "--ablate", word, err);
  } else if (strcmp(name, "threads") == 0 && value != NULL && bs_parse_i64(value + 1, &threads) &&
             threads > 0 && threads <= 4096) {
    change.threads = (uint32_t)threads;
  } else if (strcmp(name, "backend") == 0 && value != NULL) {
    const bs_backend *backend = NULL;
    void *state = NULL;
    change.backend = value + 1;
    if (bs_find_backend(m->context, value + 1, &backend, &state, err) != BS_OK) rc = BS_USAGE;
    if (rc != BS_OK && err != NULL) err->code = BS_USAGE; /* a requested word is wrong */
  } else {
    return ablate_pass(d, m, name, value != NULL ? value + 1 : NULL, err);
  }
  return rc == BS_OK ? ablate_with(d, m, &change, word, err) : rc;
}

int32_t diag_model_ablate(bs_diagnosis *d, diag_model *m, bs_error *err) {
  const json_t *pass;
  size_t i;
  int32_t rc = BS_OK;
  for (size_t k = 0; rc == BS_OK && k < d->asked->n_ablate; k++)
    rc = ablate_word(d, m, d->asked->ablate[k], err);
  if (d->asked->n_ablate > 0) return rc;
  json_array_foreach(json_object_get(m->explain, "passes"), i, pass) {
    if (rc != BS_OK || json_integer_value(json_object_get(pass, "changes")) == 0) continue;
    rc = ablate_pass(d, m, json_string_value(json_object_get(pass, "name")), "off", err);
  }
  return rc;
}
