/* SPDX-License-Identifier: MIT
 * bench_peers.c - the peers of a bench: PyTorch, which is the machine's other provider, and the baseline, a
 * stored build of the subject's plugin. Both compute the point's own numbers, and are judged on them. */
#include <stdio.h>
#include <string.h>

#include "lab/error.h"
#include "lab/kernel/bench_point.h"
#include "lab/kernel/torch.h"
#include "lab/store/env.h"

/* ---- PyTorch ------------------------------------------------------------------------------------ */

/* Handles the failure of the Python that the user named with --torch. */
static int32_t torch_ended(const bs_kernel_bench *q, const bs_error *why, bs_error *err) {
  if (err == NULL) return why->code;
  *err = *why;
  bs_error_where(err, "--torch %.200s", q->torch);
  if (err->hint[0] == '\0')
    bs_error_hint(err, "try: %.120s -c 'import torch'; --torch off compares without it", q->torch);
  return why->code;
}

static json_t *numbers_json(const bs_kernel_numbers *n) {
  return json_pack("{s:o, s:o, s:o, s:o, s:I}", "relative_rmse", bs_kernel_number(n->relative_rmse), "worst",
                   bs_kernel_number(n->worst), "max_error", bs_kernel_number(n->max_error), "rms",
                   bs_kernel_number(n->rms), "rows", (json_int_t)n->rows);
}

/* Tests PyTorch on the same input bytes. It has no gates: it serves as the machine's other provider. PyTorch
 * is left out if it computes something else. */
static int32_t examine_torch(bs_point *point, bs_kernel_peer *torch, bs_error *err) {
  const bs_kernel_bench *q = point->bench;
  bs_kernel_numbers n = {0};
  bs_kernel_data *data = NULL;
  char text[420];
  if (torch == NULL) return BS_OK;
  bs_error why = BS_ERROR_INIT;
  int32_t rc = bs_kernel_seeds_get(&point->seeds, 0, &data, err);
  if (rc != BS_OK) return rc;
  rc = bs_kernel_peer_load(torch, data, &why);
  if (rc == BS_OK) rc = bs_kernel_peer_judge(torch, &n, &why);
  if (rc == BS_UNAVAILABLE && strcmp(q->torch, "auto") != 0) return torch_ended(q, &why, err);
  if (rc != BS_OK) {
    snprintf(text, sizeof text, "%s: without PyTorch: %.200s", point->text, why.message);
    bs_bench_tell(q, text);
    return BS_OK;
  }
  const bs_entrant *alike = point->of;
  while (alike < point->of + point->n && memcmp(&alike->problem, point->problem, sizeof alike->problem) != 0)
    alike++;
  const json_t *numeric = alike < point->of + point->n ? json_object_get(alike->record, "numeric") : NULL;
  const double predicted = json_number_value(json_object_get(numeric, "predicted_rmse"));
  if (!(n.relative_rmse <= 100.0 * predicted) && predicted > 0.0) {
    snprintf(text, sizeof text, "%s: PyTorch's outputs are off by %.3g, %.3g is predicted: it is left out",
             point->text, n.relative_rmse, predicted);
    bs_bench_tell(q, text);
    return BS_OK;
  }
  bs_entrant *e = bs_point_add(point, "torch");
  if (e == NULL) return bs_no_memory(err, "a provider");
  e->peer = torch;
  json_object_set_new(e->record, "numeric", numbers_json(&n));
  json_object_set_new(
      e->record, "build",
      json_pack("{s:s, s:o}", "provider", "torch", "id", bs_env_string(bs_kernel_peer_version(torch))));
  return BS_OK;
}

static int32_t start_torch(const bs_kernel_bench *q, bs_kernel_peer **out, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  char text[300];
  *out = NULL;
  if (q->torch == NULL) return BS_OK;
  const int asked = strcmp(q->torch, "auto") != 0;
  const char *device = q->backend != NULL && strcmp(q->backend, "cuda") == 0 ? "cuda" : "cpu";
  const int32_t rc = bs_kernel_torch_start(asked ? q->torch : "python3", q->threads, device, out, &why);
  if (rc == BS_OK) return BS_OK;
  if (asked) return torch_ended(q, &why, err);
  snprintf(text, sizeof text, "without PyTorch: python3: %.200s (--torch PYTHON names another)", why.message);
  bs_bench_tell(q, text);
  return BS_OK;
}

/* ---- the baseline ------------------------------------------------------------------------------- */

static int32_t baseline_failed(const bs_kernel_bench *q, int32_t code, const bs_error *why, bs_error *err) {
  if (err == NULL) return code;
  *err = *why;
  err->code = code;
  bs_error_where(err, "--baseline %.200s", q->baseline->name);
  return code;
}

static int32_t start_baseline(const bs_kernel_bench *q, bs_kernel_peer **out, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  if (q->baseline == NULL) return BS_OK;
  const int32_t rc = bs_kernel_stored_start(q->baseline, q->backend, q->threads, out, &why);
  if (rc == BS_OK) return BS_OK;
  bs_error_hint(&why,
                "build that state again with the headers of this version, and keep it: bsrun plugins keep");
  return baseline_failed(q, rc, &why, err);
}

static int32_t other_plugin(const bs_kernel_bench *q, const bs_entrant *subject, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-KERNEL-BASELINE", "%.60s is a build of the plugin %.60s, the subject is %s",
               q->baseline->name, q->baseline->plugin, subject->name);
  bs_error_hint(err, "--provider %.60s makes an implementation of it the subject", q->baseline->plugin);
  return BS_USAGE;
}

/* Notes that the build has not what the subject has. */
static void tell_provider(const bs_point *point, const bs_entrant *subject, const char *provider) {
  char asked[BS_KERNEL_STORED_NAME], text[2 * BS_KERNEL_STORED_NAME];
  const int some = subject->knobs[0] != '\0';
  snprintf(asked, sizeof asked, "%s%s%s%s", subject->name, some ? "{" : "", subject->knobs, some ? "}" : "");
  if (strcmp(asked, provider) == 0) return;
  snprintf(text, sizeof text, "%s: %.60s does not serve %.200s: its %.200s is the baseline", point->text,
           point->bench->baseline->name, asked, provider);
  bs_bench_tell(point->bench, text);
}

/* The facts that the gates of the stage numeric need; the predictions are the subject's. */
static json_t *baseline_numbers(const bs_kernel_numbers *n, const bs_entrant *subject) {
  static const char *const predicted[] = {"predicted_rmse", "predicted_worst_rmse", "predicted_worst",
                                          "predicted_slice_rmse"};
  const json_t *of = json_object_get(subject->record, "numeric");
  json_t *numeric = numbers_json(n);
  if (numeric == NULL) return NULL;
  json_object_set_new(numeric, "worst_slice_rmse", bs_kernel_number(n->worst_slice));
  json_object_set_new(numeric, "nonfinite", json_integer((json_int_t)n->nonfinite));
  for (size_t i = 0; i < sizeof predicted / sizeof predicted[0]; i++)
    json_object_set(numeric, predicted[i], json_object_get(of, predicted[i]));
  return numeric;
}

int32_t bs_entrant_peer_failed(bs_entrant *e, uint32_t stage, const char *cause, bs_error *err) {
  json_t *build = json_object_get(e->record, "build");
  e->failed = (int32_t)stage;
  if (e->cause != cause) snprintf(e->cause, sizeof e->cause, "%.290s", cause);
  if (json_object_set_new(build, "code", json_string("UNAVAILABLE")) != 0 ||
      json_object_set_new(build, "message", bs_env_string(e->cause)) != 0)
    return bs_no_memory(err, "a provider");
  return BS_OK;
}

/* The subject's problem and numbers, and the provider that the build has for it. */
static bs_entrant *add_baseline(bs_point *point, bs_kernel_peer *peer, const char *provider,
                                const char *knobs) {
  const bs_kernel_stored *stored = point->bench->baseline;
  bs_entrant *e = bs_point_add(point, "");
  if (e == NULL) return NULL;
  const bs_entrant *subject = &point->of[0];
  e->peer = peer;
  e->baseline = 1;
  e->problem = subject->problem;
  e->seeds = subject->seeds;
  snprintf(e->name, sizeof e->name, "%.158s", provider);
  snprintf(e->vary, sizeof e->vary, "%s", subject->vary);
  snprintf(e->label, sizeof e->label, "%.300s of %.100s", provider, stored->name);
  json_t *build =
      json_pack("{s:s, s:s, s:s}", "provider", provider, "baseline", stored->name, "id", stored->sha256);
  if (knobs[0] != '\0') json_object_set_new(build, "knobs", bs_env_string(knobs));
  return build != NULL && json_object_set_new(e->record, "build", build) == 0 ? e : NULL;
}

static int32_t judge_baseline(bs_point *point, bs_entrant *e, const bs_kernel_numbers *n, bs_error *err) {
  json_t *numeric = baseline_numbers(n, &point->of[0]);
  if (numeric == NULL || json_object_set_new(e->record, "numeric", numeric) != 0)
    return bs_no_memory(err, "the baseline");
  return bs_entrant_judge(point, e, BS_STAGE_NUMERIC, err);
}

static int is_of_plugin(const bs_entrant *subject, const char *plugin) {
  const size_t length = strlen(plugin);
  return subject->name[0] == '\0' ||
         (strncmp(subject->name, plugin, length) == 0 && strchr(":", subject->name[length]) != NULL);
}

/* A problem that the build does not serve fails as that of another provider does: the others go on. */
static int32_t examine_baseline(bs_point *point, bs_kernel_peer *peer, bs_error *err) {
  const bs_kernel_bench *q = point->bench;
  const bs_entrant *subject = &point->of[0];
  char provider[BS_KERNEL_STORED_NAME], knobs[BS_KERNEL_STORED_KNOBS] = "";
  bs_kernel_numbers n = {0};
  bs_kernel_data *data = NULL;
  bs_error why = BS_ERROR_INIT;
  if (peer == NULL) return BS_OK;
  if (!is_of_plugin(subject, q->baseline->plugin)) return other_plugin(q, subject, err);
  if (subject->arm == NULL || subject->failed >= 0) return BS_OK; /* nothing to compare */
  int32_t rc = bs_kernel_seeds_get(subject->seeds, 0, &data, err);
  if (rc != BS_OK) return rc;
  snprintf(provider, sizeof provider, "%s", subject->name);
  rc = bs_kernel_stored_choose(peer, subject->name, subject->knobs, &why);
  if (rc == BS_OK) rc = bs_kernel_peer_load(peer, data, &why);
  if (rc == BS_OK) rc = bs_kernel_stored_provider(peer, provider, &why);
  if (rc == BS_OK) rc = bs_kernel_stored_knobs(peer, knobs, &why);
  if (rc == BS_OK) rc = bs_kernel_peer_judge(peer, &n, &why);
  if (rc == BS_ABORTED || rc == BS_NO_MEMORY) return baseline_failed(q, rc, &why, err);
  bs_entrant *e = add_baseline(point, peer, provider, knobs);
  if (e == NULL) return bs_no_memory(err, "the baseline");
  if (rc != BS_OK) return bs_entrant_peer_failed(e, BS_STAGE_BUILD, why.message, err);
  tell_provider(point, subject, provider);
  return judge_baseline(point, e, &n, err);
}

/* ---- both --------------------------------------------------------------------------------------- */

int32_t bs_bench_peers_start(const bs_kernel_bench *q, bs_bench_peers *out, bs_error *err) {
  const int32_t rc = start_baseline(q, &out->baseline, err);
  return rc == BS_OK ? start_torch(q, &out->torch, err) : rc;
}

void bs_bench_peers_close(bs_bench_peers *peers) {
  bs_kernel_peer_close(peers->torch);
  bs_kernel_peer_close(peers->baseline);
}

int32_t bs_point_add_peers(bs_point *point, const bs_bench_peers *peers, bs_error *err) {
  const int32_t rc = examine_baseline(point, peers->baseline, err);
  return rc == BS_OK ? examine_torch(point, peers->torch, err) : rc;
}
