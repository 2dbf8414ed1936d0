/* SPDX-License-Identifier: MIT
 * bench_rows.c - the results of a problem: a row for each arm, and a stored run with a record for each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/error.h"
#include "lab/kernel/bench_point.h"
#include "lab/store/env.h"
#include "lab/store/keep.h"
#include "lab/store/samples.h"

/* The source of a row's values: an object of the record and its key. */
static const struct {
  const char *key, *object, *from;
} columns[] = {
    {"p50_us", "performance", "p50_us"},
    {"p90_us", "performance", "p90_us"},
    {"p99_us", "performance", "p99_us"},
    {"min_us", "performance", "min_us"},
    {"unit", "performance", "unit"},
    {"p50_us_per_item", "performance", "p50_us_per_item"},
    {"items", "performance", "items"},
    {"calls", "performance", "calls"},
    {"queued_us", "performance", "queued_us"},
    {"copy_us", "performance", "copy_us"},
    {"gflops", "performance", "gflops"},
    {"bound_percent", "performance", "bound_percent"},
    {"binding", "performance", "binding"},
    {"bound_us", "performance", "bound_us"},
    {"fma_and_exp_percent", "performance", "fma_and_exp_percent"},
    {"against", "comparison", "against"},
    {"ratio", "comparison", "ratio"},
    {"ratio_low", "comparison", "ratio_low"},
    {"ratio_high", "comparison", "ratio_high"},
    {"word", "comparison", "word"},
    {"cause", "comparison", "cause"},
    {"next", "comparison", "next"},
    {"standing", "comparison", "standing"},
    {"pairs", "comparison", "pairs"},
    {"progress", "performance", "progress"},
    {"progress_low", "performance", "progress_low"},
    {"progress_high", "performance", "progress_high"},
    {"of_subject", "of_subject", "ratio"},
    {"of_subject_low", "of_subject", "low"},
    {"of_subject_high", "of_subject", "high"},
    {"of_subject_word", "of_subject", "word"},
    {"loop", "bound", "loop"},
    {"fma_us", "bound", "fma_us"},
    {"exp_us", "bound", "exp_us"},
    {"bytes_us", "bound", "bytes_us"},
    {"launch_us", "bound", "launch_us"},
    {"relative_rmse", "numeric", "relative_rmse"},
    {"predicted_rmse", "numeric", "predicted_rmse"},
    {"max_error", "numeric", "max_error"},
    {"worst", "numeric", "worst"},
    {"rows_judged", "numeric", "rows"},
    {"seeds", "numeric", "seeds"},
    {"plan_bytes", "memory", "plan_bytes"},
    {"algorithm", "build", "algorithm"},
    {"knobs", "build", "knobs"},
    {"build_id", "build", "id"},
};

static json_int_t gates_in(const bs_entrant *e, const char *state) {
  json_int_t n = 0;
  for (size_t i = 0; i < json_array_size(e->gates); i++) {
    const char *is = json_string_value(json_object_get(json_array_get(e->gates, i), "state"));
    n += is != NULL && strcmp(is, state) == 0;
  }
  return n;
}

/* Writes "10 passed, 6 not applicable" or "numeric failed"; nothing for a peer. gates_skipped, gates_unknown
 * and gates_not_reached name the others. */
static void gate_words(const bs_entrant *e, char *out, size_t size) {
  const json_int_t skipped = gates_in(e, "skipped");
  char more[40] = "";
  out[0] = '\0';
  if (e->failed >= 0) {
    snprintf(out, size, "%s failed", bs_rule_stage_names[e->failed]);
    return;
  }
  if (e->peer != NULL) return;
  if (e->unknown > 0)
    snprintf(more, sizeof more, ", %u UNKNOWN", e->unknown);
  else if (skipped > 0)
    snprintf(more, sizeof more, ", %lld not applicable", (long long)skipped);
  snprintf(out, size, "%lld passed%s", (long long)gates_in(e, "pass"), more);
}

/* The state of a gate; "not_reached": its stage has not been judged. */
static const char *state_of(const bs_entrant *e, const char *gate) {
  for (size_t i = 0; i < json_array_size(e->gates); i++) {
    const json_t *g = json_array_get(e->gates, i);
    if (strcmp(json_string_value(json_object_get(g, "gate")), gate) == 0)
      return json_string_value(json_object_get(g, "state"));
  }
  return "not_reached";
}

/* The names of all gates of a state, "spills, registers"; "": none. */
static int add_gates_of(json_t *row, const char *key, const bs_point *point, const bs_entrant *e,
                        const char *state) {
  bs_text names = {0};
  for (uint32_t i = 0; e->peer == NULL && i < point->rules->n; i++)
    if (strcmp(state_of(e, point->rules->rule[i].name), state) == 0)
      bs_text_printf(&names, "%s%s", names.size > 0 ? ", " : "", point->rules->rule[i].name);
  const int bad =
      names.failed || json_object_set_new(row, key, json_string(names.data != NULL ? names.data : "")) != 0;
  bs_text_free(&names);
  return bad;
}

/* Adds the missing facts of each gate that is UNKNOWN, "kept: performance.ratio is not known: ..."; "" if
 * there are none. */
static int add_reasons(json_t *row, const bs_entrant *e) {
  bs_text reasons = {0};
  for (size_t i = 0; i < json_array_size(e->gates); i++) {
    const json_t *g = json_array_get(e->gates, i);
    if (strcmp(json_string_value(json_object_get(g, "state")), "unknown") != 0) continue;
    bs_text_printf(&reasons, "%s%s: %s", reasons.size > 0 ? "; " : "",
                   json_string_value(json_object_get(g, "gate")),
                   json_string_value(json_object_get(g, "text")));
  }
  const int bad =
      reasons.failed ||
      json_object_set_new(row, "unknown_reasons", json_string(reasons.data != NULL ? reasons.data : "")) != 0;
  bs_text_free(&reasons);
  return bad;
}

/* The convention for counting FLOP, by enum bs_kernel_kind. */
static const char *const conventions[BS_KERNEL_KINDS_] = {
    [BS_KERNEL_SDPA] = "exact pairs x 2 (D + E)",
    [BS_KERNEL_MATMUL] = "2 B N K",
    [BS_KERNEL_MATMUL24] = "B N K, kept weights alone",
    [BS_KERNEL_SDPA_DX] = "exact pairs x 2 (3 D + 2 E)",
    [BS_KERNEL_MATMUL_DX] = "2 B N K",
    [BS_KERNEL_MATMUL_DW] = "2 B N K",
    [BS_KERNEL_MATMUL24_DX] = "B N K, kept weights alone",
    [BS_KERNEL_MATMUL24_DW] = "B N K, kept weights alone"};

static const char *mask_of(const bs_kernel_problem *p) {
  return bs_kernel_is_product(p) ? "none" : bs_kernel_mask_name(p->causal);
}

static json_t *shape_of(const bs_point *point, const bs_entrant *e) {
  const bs_kernel_problem *p = &e->problem;
  char text[BS_KERNEL_TEXT], shape[BS_KERNEL_TEXT], gates[48];
  bs_kernel_problem_text(p, text, sizeof text);
  snprintf(shape, sizeof shape, "%.*s", (int)strcspn(text, ":"), text);
  gate_words(e, gates, sizeof gates);
  return json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:s, s:i, s:f, s:f, s:s, s:s, s:s, s:o}", "place",
                   (int)(e - point->of), "problem", text, "shape", shape, "dtype", bs_dtype_name(p->dtype),
                   "mask", mask_of(p), "threads", (int)point->bench->threads, "provider", e->label,
                   "unknown_gates", (int)e->unknown, "flops", bs_kernel_flops(p), "pairs_of_keys",
                   bs_kernel_pairs(p), "flops_convention", conventions[p->kind], "gates", gates,
                   "failed_stage", e->failed >= 0 ? bs_rule_stage_names[e->failed] : "", "cause",
                   e->failed >= 0 ? bs_env_string(e->cause) : json_null());
}

int32_t bs_entrant_row(const bs_point *point, const bs_entrant *e, json_t *rows, bs_error *err) {
  json_t *row = shape_of(point, e);
  if (row != NULL &&
      (add_gates_of(row, "gates_failed", point, e, "fail") ||
       add_gates_of(row, "gates_skipped", point, e, "skipped") ||
       add_gates_of(row, "gates_unknown", point, e, "unknown") ||
       add_gates_of(row, "gates_not_reached", point, e, "not_reached") || add_reasons(row, e))) {
    json_decref(row);
    return bs_no_memory(err, "a row");
  }
  for (size_t i = 0; row != NULL && i < sizeof columns / sizeof columns[0]; i++) {
    json_t *value = json_object_get(json_object_get(e->record, columns[i].object), columns[i].from);
    if (value != NULL) json_object_set(row, columns[i].key, value);
  }
  const json_t *low = json_object_get(row, "ratio_low"), *high = json_object_get(row, "ratio_high");
  if (low != NULL) {
    char interval[48];
    snprintf(interval, sizeof interval, "%.3g-%.3g", json_number_value(low), json_number_value(high));
    json_object_set_new(row, "interval", json_string(interval));
  }
  /* Above 100 % there is an error, and no number. */
  const json_t *percent = json_object_get(row, "bound_percent");
  if (json_number_value(percent) > 100.0) json_object_set_new(row, "bound_percent", json_null());
  return row != NULL && json_array_append_new(rows, row) == 0 ? BS_OK : bs_no_memory(err, "a row");
}

/* ---- the run ------------------------------------------------------------------------------------ */

static int32_t set_number(bs_node *config, const char *key, double value, bs_error *err) {
  char text[40];
  snprintf(text, sizeof text, "%.17g", value);
  return bs_config_set(config, key, text, err);
}

static int32_t make_config(const bs_point *point, bs_node **out, bs_error *err) {
  const bs_kernel_bench *q = point->bench;
  bs_node *config = *out = bs_config_new_map();
  bs_text providers = {0};
  bs_text_printf(&providers, "[");
  for (size_t i = 0; i < q->n_providers; i++)
    bs_text_printf(&providers, "%s\"%s\"", i > 0 ? ", " : "", q->providers[i]);
  bs_text_printf(&providers, "]");
  int32_t rc = config == NULL || providers.failed ? bs_no_memory(err, "a configuration") : BS_OK;
  if (rc == BS_OK) rc = bs_config_set_text(config, "kernel.problem", point->text, err);
  if (rc == BS_OK)
    rc = bs_config_set_text(config, "kernel.backend", q->backend != NULL ? q->backend : "cpu", err);
  if (rc == BS_OK) rc = bs_config_set(config, "kernel.providers", providers.data, err);
  if (rc == BS_OK) rc = bs_config_set_text(config, "kernel.gates", point->rules->name, err);
  if (rc == BS_OK) rc = set_number(config, "kernel.threads", q->threads, err);
  if (rc == BS_OK) rc = set_number(config, "kernel.seeds", q->seeds, err);
  if (rc == BS_OK) rc = set_number(config, "kernel.seed", (double)q->seed, err);
  if (rc == BS_OK) rc = set_number(config, "kernel.warmup", (double)q->warmup, err);
  if (rc == BS_OK) rc = set_number(config, "kernel.iters", (double)q->iters, err);
  bs_text_free(&providers);
  return rc;
}

/* One record: the provider, the stages, the gates, and after a failure its cause: a valid negative. */
static json_t *record_of(const bs_point *point, bs_entrant *e) {
  const bs_kernel_problem *p = &e->problem;
  const int failed = e->failed >= 0;
  char text[BS_KERNEL_TEXT];
  bs_kernel_problem_text(p, text, sizeof text);
  json_t *r =
      json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:i, s:I, s:f, s:s, s:b, s:O}", "problem", text, "method",
                e->label, "backend", point->bench->backend != NULL ? point->bench->backend : "cpu", "dtype",
                bs_dtype_name(p->dtype), "B", (json_int_t)p->B, "mask", mask_of(p), "threads_per_rank",
                (int)point->bench->threads, "seed", (json_int_t)point->bench->seed, "flops",
                bs_kernel_flops(p), "status", failed ? "failed" : "ok", "passed",
                !failed && e->unknown == 0 && e->peer == NULL, "gates", e->gates);
  if (r == NULL || json_object_update(r, e->record) != 0) {
    json_decref(r);
    return NULL;
  }
  if (failed)
    json_object_set_new(
        r, "error",
        json_pack("{s:s, s:s, s:s, s:o}", "code", bs_status_name(bs_entrant_code(e)), "id", "BS-KERNEL-GATE",
                  "stage", bs_rule_stage_names[e->failed], "message", bs_env_string(e->cause)));
  if (e->n_calls > 0) json_object_set_new(r, "median_s", json_real(e->look.p50));
  if (e->paired < 0) return r;
  json_t *samples = json_object();
  if (samples != NULL && bs_sampling_arm_json(samples, point->sampling, (uint32_t)e->paired) == 0)
    json_object_set(r, "paired", samples);
  json_decref(samples);
  json_object_set_new(r, "pairing", bs_sampling_pairs_json(point->sampling));
  return r;
}

/* A folder's name of a problem's text. */
static void name_of(const char *text, char out[65]) {
  snprintf(out, 65, "%.64s", text);
  for (char *c = out; *c != '\0'; c++)
    if (*c == ':' || *c == ' ') *c = '-';
}

static int32_t encode(const bs_point *point, void **out, size_t *out_bytes, bs_error *err) {
  *out = NULL;
  *out_bytes = 0;
  if (point->sampling == NULL) return BS_OK;
  const bs_samples *trails[] = {&point->sampling->trail};
  return bs_samples_encode(trails, 1, point->sampling->n_arms, out, out_bytes, err);
}

int32_t bs_point_keep(bs_point *point, json_t *runs, bs_error *err) {
  const bs_kernel_bench *q = point->bench;
  char name[65], *folder = NULL;
  void *samples = NULL;
  size_t bytes = 0;
  bs_node *config = NULL;
  json_t *records = json_array();
  int passed = 1;
  name_of(point->text, name);
  int32_t rc = records != NULL ? make_config(point, &config, err) : bs_no_memory(err, "records");
  if (rc == BS_OK) rc = encode(point, &samples, &bytes, err);
  for (uint32_t i = 0; rc == BS_OK && i < point->n; i++) {
    passed = passed && point->of[i].failed < 0;
    json_t *record = record_of(point, &point->of[i]);
    if (record == NULL || json_array_append_new(records, record) != 0) rc = bs_no_memory(err, "a record");
  }
  const bs_keep_request keep = {.context = q->context,
                                .out_dir = q->out_dir,
                                .run_id = q->run_id,
                                .phase = bs_kernel_is_product(point->problem) ? "bench_matmul" : "bench_sdpa",
                                .method = name,
                                .command = q->command,
                                .config = config,
                                .grades = q->grades,
                                .status = passed ? "ok" : "not passed",
                                .samples = samples,
                                .samples_bytes = bytes,
                                .opened = q->opened,
                                .closed = q->closed};
  if (rc == BS_OK) rc = bs_keep(&keep, records, &folder, err);
  if (rc == BS_OK) json_array_append_new(runs, bs_env_string(folder));
  free(folder);
  free(samples);
  bs_config_free(config);
  json_decref(records);
  return rc;
}
