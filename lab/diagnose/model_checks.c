/* SPDX-License-Identifier: MIT
 * model_checks.c - checks of a model that look at its plan: its inputs, the implementations of its nodes, and
 * waits of its runs. */
#include "lab/diagnose/model_checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/json.h"
#include "lab/model/inputs.h"

static const double BLOCKED = 20e-6; /* of a run of a node, in which its thread slept */

/* ---- inputs ---------------------------------------------------------------------------------- */

int32_t diag_model_inputs(bs_diagnosis *d, diag_model *m, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < m->n_inputs; i++) {
    const bs_model_domain *in = &m->model->domains[i];
    bs_tensor_desc desc = {.struct_size = sizeof desc};
    char domain[80] = "any number", shape[120] = "";
    size_t at = 0, given = 0;
    rc = bs_session_port(m->model->session, i, NULL, &desc, err);
    for (uint32_t k = 0; k < desc.rank && at < sizeof shape - 24; k++)
      at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%lld", k > 0 ? "," : "",
                             (long long)desc.dims[k]);
    for (size_t k = 0; k < m->model->n_inputs; k++) given += strcmp(m->model->names[k], in->name) == 0;
    if (in->picks) snprintf(domain, sizeof domain, "ids of rows that are not known");
    if (in->below > 0) snprintf(domain, sizeof domain, "ids below %lld", (long long)in->below);
    if (in->is_mask) snprintf(domain, sizeof domain, "0 and 1");
    bs_fact_text(d, in->name, "%s[%s], %s: %s", bs_dtype_name(desc.dtype), shape, domain,
                 given > 0 ? "the file's are right" : "made");
  }
  return rc;
}

/* ---- implementations --------------------------------------------------------------------------- */

static int on_ref(const json_t *node) {
  return strncmp(bs_get_text(node, "serves"), "ref:", 4) == 0;
}

/* The best candidate for a node, other than ref; NULL: none. */
static const char *better_than_ref(const json_t *node) {
  const json_t *c;
  size_t i;
  json_array_foreach(json_object_get(node, "candidates"), i,
                     c) if (strncmp(bs_get_text(c, "name"), "ref:", 4) != 0) return bs_get_text(c, "name");
  return NULL;
}

/* "slow:cpu:packed" is cpu:packed in a wrapper. */
static int is_served_by(const json_t *node, const char *name) {
  const char *serves = bs_get_text(node, "serves");
  const size_t all = strlen(serves), n = strlen(name);
  return all >= n && strcmp(serves + all - n, name) == 0 && (all == n || serves[all - n - 1] == ':');
}

/* A node that a choice gave to another than the first that could serve it. */
static int is_forced(const json_t *node) {
  const json_t *first = json_array_get(json_object_get(node, "candidates"), 0);
  return first != NULL && !is_served_by(node, bs_get_text(first, "name"));
}

/* Seconds of a run in the nodes that `take` selects, by their places. Time in which the thread has no
 * processor belongs to other programs. */
static double seconds_of(const json_t *profile, const json_t *nodes, int (*take)(const json_t *node)) {
  const json_t *node;
  double sum = 0;
  size_t i;
  json_array_foreach(nodes, i, node) {
    const json_t *row = json_array_get(json_object_get(profile, "nodes"), i);
    const double runs = bs_get_number(row, "runs");
    if (take(node) && runs > 0) sum += (bs_get_number(row, "cpu_s") + bs_get_number(row, "asleep_s")) / runs;
  }
  return sum;
}

static int is_lacking(const json_t *node) {
  return on_ref(node) && better_than_ref(node) == NULL;
}

static int32_t profile_of(const bs_diagnosis *d, const diag_model *m, const diag_change *change, json_t **out,
                          bs_error *err) {
  diag_session s = {0};
  int32_t rc = diag_session_open(m, change, &s, err);
  if (rc == BS_OK) rc = diag_session_profile(d, &s, out, err);
  diag_session_close(&s);
  return rc;
}

/* The first node, and how many there are. */
static const json_t *first_of(const json_t *nodes, int (*take)(const json_t *node), size_t *out_n) {
  const json_t *node, *first = NULL;
  size_t i;
  *out_n = 0;
  json_array_foreach(nodes, i, node) {
    if (!take(node)) continue;
    if (first == NULL) first = node;
    ++*out_n;
  }
  return first;
}

static int32_t tell_forced(bs_diagnosis *d, const diag_model *m, const json_t *nodes, const json_t *as_is,
                           bs_error *err) {
  json_t *open = NULL;
  size_t n = 0;
  const json_t *first = first_of(nodes, is_forced, &n);
  const diag_change change = {.profile = 1, .no_choices = 1};
  if (first == NULL) return BS_OK;
  const int32_t rc = profile_of(d, m, &change, &open, err);
  if (rc != BS_OK) return rc;
  const double now = seconds_of(as_is, nodes, is_forced), then = seconds_of(open, nodes, is_forced);
  const char *best = bs_get_text(json_array_get(json_object_get(first, "candidates"), 0), "name");
  bs_fact(d, "nodes for which a choice was given", (double)n, "");
  if (now > 1.05 * then)
    bs_find(
        d, now - then, NULL,
        "a choice gives %zu node%s to a slower implementation, %.3g ms a run in place of %.3g ms; the first "
        "is %s of '%.100s': %s, where %s can serve",
        n, n == 1 ? "" : "s", 1e3 * now, 1e3 * then, bs_get_text(first, "op"), bs_get_text(first, "origin"),
        bs_get_text(first, "serves"), best);
  json_decref(open);
  return BS_OK;
}

int32_t diag_model_fallback(bs_diagnosis *d, diag_model *m, bs_error *err) {
  const json_t *nodes = json_object_get(m->explain, "nodes");
  const char *backend = m->request.backend != NULL ? m->request.backend : "cpu";
  const diag_change change = {.profile = 1, .share = 1}, cpu = {.backend = "cpu", .no_choices = 1};
  json_t *as_is = NULL;
  bs_pair_times t;
  size_t n = 0;
  int32_t rc = BS_OK;
  const json_t *first = first_of(nodes, is_lacking, &n);
  bs_fact(d, "nodes", (double)json_array_size(nodes), "");
  if (strcmp(bs_innermost(backend), "ref") == 0) {
    rc = diag_model_pair(d, m, &cpu, &t, NULL, NULL, err);
    if (rc == BS_OK)
      bs_find_pair(
          d, &t,
          "the backend ref computes all nodes, in the order of their definition: %.3g ms a run; on cpu: "
          "%.3g ms",
          1e3 * t.as_is, 1e3 * t.other);
    return rc;
  }
  bs_fact(d, "nodes that only ref can serve", (double)n, "");
  size_t forced = 0;
  first_of(nodes, is_forced, &forced);
  if (n + forced > 0) rc = profile_of(d, m, &change, &as_is, err);
  if (rc == BS_OK && n > 0)
    bs_find(d, seconds_of(as_is, nodes, is_lacking), "--only fallback",
            "%s does not serve %zu node%s, ref does: the first is %s of '%.100s' (%.160s)", backend, n,
            n == 1 ? "" : "s", bs_get_text(first, "op"), bs_get_text(first, "origin"),
            bs_get_text(first, "reason"));
  if (rc == BS_OK) rc = tell_forced(d, m, nodes, as_is, err);
  json_decref(as_is);
  return rc;
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Nodes without collectives in which the thread slept, by a run's mean; *out_worst: the one that slept
 * longest. */
static double asleep(const json_t *profile, size_t *out_n, const json_t **out_worst, double *out_longest) {
  const json_t *node;
  double sum = 0;
  size_t i;
  *out_n = 0;
  *out_worst = NULL;
  *out_longest = 0;
  json_array_foreach(json_object_get(profile, "nodes"), i, node) {
    const double runs = bs_get_number(node, "runs");
    if (runs <= 0 || bs_get_number(node, "collectives") > 0 || 2 * bs_get_number(node, "waits") <= runs)
      continue;
    const double each = bs_get_number(node, "asleep_s") / runs;
    if (each < BLOCKED) continue;
    ++*out_n;
    sum += each;
    if (each > *out_longest) {
      *out_longest = each;
      *out_worst = node;
    }
  }
  return sum;
}

static int on_host(const json_t *node) {
  return strncmp(bs_get_text(node, "serves"), "cpu:", 4) == 0 || on_ref(node);
}

/* Counts what one run of the whole plan waits for a device and copies. No waits: there is no device. */
static int32_t one_run(const diag_model *m, uint64_t *out_waits, uint64_t *out_copied, bs_error *err) {
  enum { BEFORE = 2 }; /* node by node, and captured */
  bs_session_stats before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
  diag_session s = {0};
  int32_t rc = diag_session_asked(m, &s, err);
  for (int i = 0; rc == BS_OK && i < BEFORE; i++) rc = diag_session_run(&s, err);
  if (rc == BS_OK) rc = bs_session_stats_get(s.session, &before, err);
  if (rc == BS_OK) rc = diag_session_run(&s, err);
  if (rc == BS_OK) rc = bs_session_stats_get(s.session, &after, err);
  *out_waits = after.host_waits - before.host_waits;
  *out_copied = after.copied_bytes - before.copied_bytes;
  diag_session_close(&s);
  return rc;
}

/* A run waits for a device once, at its end, and twice for each node between that the host computes. */
static int32_t device_waits(bs_diagnosis *d, const diag_model *m, uint64_t waits, uint64_t copied,
                            bs_error *err) {
  const diag_change change = {.profile = 1, .share = 1};
  const json_t *nodes = json_object_get(m->explain, "nodes");
  json_t *profile = NULL;
  size_t n = 0;
  const json_t *first = first_of(nodes, on_host, &n);
  bs_fact(d, "waits for the device in a run", (double)waits, "");
  bs_fact(d, "copied between host and device in a run", (double)copied, "bytes");
  bs_fact(d, "nodes on the host", (double)n, "");
  if (first == NULL) return BS_OK;
  const int32_t rc = profile_of(d, m, &change, &profile, err);
  if (rc == BS_OK)
    bs_find(
        d, seconds_of(profile, nodes, on_host), NULL,
        "%zu node%s of the host between those of the device: a run waits %llu times and copies %llu bytes; "
        "the first is %s of '%.100s' (%.160s)",
        n, n == 1 ? "" : "s", (unsigned long long)waits, (unsigned long long)copied, bs_get_text(first, "op"),
        bs_get_text(first, "origin"), bs_get_text(first, "reason"));
  json_decref(profile);
  return rc;
}

/* A profile of a device waits for each node. So the waits of a device are counted in a run of the plan. */
int32_t diag_model_waits(bs_diagnosis *d, diag_model *m, bs_error *err) {
  /* One thread: members of a team sleep between products. */
  const diag_change change = {.profile = 1, .threads = 1, .share = m->request.threads == 1};
  json_t *profile = NULL;
  const json_t *worst = NULL;
  size_t n = 0;
  double longest = 0;
  uint64_t waits = 0, copied = 0;
  int32_t rc = one_run(m, &waits, &copied, err);
  if (rc != BS_OK || waits > 0) return rc != BS_OK ? rc : device_waits(d, m, waits, copied, err);
  rc = profile_of(d, m, &change, &profile, err);
  if (rc != BS_OK) return rc;
  const double sum = asleep(profile, &n, &worst, &longest);
  bs_fact(d, "nodes in which the thread sleeps", (double)n, "");
  if (n > 0)
    bs_find(d, sum, NULL,
            "in %zu node%s the thread sleeps in most runs, %.3g ms a run: a host wait; the longest is %s of "
            "'%.100s', %.3g ms",
            n, n == 1 ? "" : "s", 1e3 * sum, bs_get_text(worst, "op"), bs_get_text(worst, "origin"),
            1e3 * longest);
  json_decref(profile);
  return BS_OK;
}
