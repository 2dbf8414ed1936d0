/* SPDX-License-Identifier: MIT
 * ccl.c - rows on an algorithm: its properties, the results of its proof, and the time of a collective. */
#include "lab/coll/ccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/coll/comm_bench.h"
#include "lab/stop.h"
#include "sim/schedule.h"
#include "sim/trace.h"

uint32_t bs_ccl_kind(const char *name) {
  uint32_t kind = 0;
  while (kind < BS_COLL_COUNT_ && strcmp(name, bs_name_of(BS_NAMES_COLL, kind)) != 0) ++kind;
  return kind;
}

static json_t *text_of(const bs_text *text) {
  json_t *value = json_string(text->data != NULL ? text->data : "");
  return value != NULL ? value : json_string("(not UTF-8)");
}

static json_t *string_of(const char *text) {
  json_t *value = json_string(text != NULL ? text : "");
  return value != NULL ? value : json_string("(not UTF-8)");
}

/* A source file without the folders that it was built in. */
static const char *source_of(const char *file) {
  const char *found = file != NULL ? file : "";
  for (const char *at = found; (at = strstr(at, "/plugins/")) != NULL; ++at) found = at + 1;
  return found;
}

static void add_place(json_t *row, const bs_ccl *ccl) {
  char at[300];
  snprintf(at, sizeof at, "%.250s:%u", source_of(ccl->thing.at.file), ccl->thing.at.line);
  json_object_set_new(row, "algorithm", string_of(ccl->algorithm->name));
  json_object_set_new(row, "plugin", string_of(ccl->thing.plugin));
  json_object_set_new(row, "file", string_of(at));
}

json_t *bs_ccl_row(const bs_ccl *ccl) {
  const bs_algorithm *a = ccl->algorithm;
  bs_text kinds = {0}, params = {0};
  json_t *row = json_object();
  for (uint32_t kind = 0; kind < BS_COLL_COUNT_; ++kind)
    if ((a->kinds >> kind & 1) != 0)
      bs_text_printf(&kinds, "%s%s", kinds.size > 0 ? " " : "", bs_name_of(BS_NAMES_COLL, kind));
  for (uint32_t i = 0; a->params != NULL && i < BS_ALGORITHM_MAX_OPTIONS && a->params[i] != NULL; ++i)
    bs_text_printf(&params, "%s%s=%s", i > 0 ? " " : "", a->params[i]->name, a->params[i]->default_text);
  add_place(row, ccl);
  json_object_set_new(row, "kinds", text_of(&kinds));
  json_object_set_new(row, "runs", json_string(a->schedule != NULL ? "yes" : "formula only"));
  json_object_set_new(row, "same_order",
                      json_string((a->flags & BS_ALGORITHM_SAME_ORDER) != 0 ? "yes" : "no"));
  json_object_set_new(row, "params", text_of(&params));
  json_object_set_new(row, "aliases", string_of(a->aliases));
  json_object_set_new(row, "summary", string_of(a->summary));
  bs_text_free(&kinds);
  bs_text_free(&params);
  return row;
}

/* ---- check ------------------------------------------------------------------------------------ */

typedef struct checking {
  const bs_ccl *ccl;
  json_t *rows;
} checking;

static void add_level(void *user, const sim_check_row *r) {
  const checking *c = user;
  json_t *row = json_object();
  char range[48];
  const char *result = r->code == BS_OK                                      ? "right"
                       : r->code == BS_ABORTED && r->cases > 0               ? "right so far"
                       : r->code == BS_ABORTED || r->code == BS_INCONCLUSIVE ? "not run"
                                                                             : "WRONG";
  snprintf(range, sizeof range, "p <= %u", r->ranks);
  add_place(row, c->ccl);
  json_object_set_new(row, "collective", json_string(bs_name_of(BS_NAMES_COLL, r->kind)));
  json_object_set_new(row, "level", json_string(sim_level_names[r->level]));
  json_object_set_new(row, "range", json_string(r->cases > 0 ? range : ""));
  json_object_set_new(row, "ranks", json_integer(r->ranks));
  json_object_set_new(row, "cases", json_integer((json_int_t)r->cases));
  json_object_set_new(row, "refused", json_integer((json_int_t)r->refused));
  json_object_set_new(row, "result", json_string(result));
  if (r->level == SIM_V6 && r->code == BS_OK) {
    json_object_set_new(row, "bf16_max", json_real(r->error_max));
    json_object_set_new(row, "bf16_rms", json_real(r->error_rms));
  }
  json_object_set_new(row, "id", string_of(r->why.id));
  json_object_set_new(row, "why", string_of(r->why.message));
  json_object_set_new(row, "step", string_of(r->why.hint));
  json_array_append_new(c->rows, row);
}

int32_t bs_ccl_check(const bs_ccl *ccl, const sim_check_request *request, json_t *rows, bs_error *err) {
  sim_check_request q = *request;
  checking c = {ccl, rows};
  q.algorithm = ccl->algorithm;
  q.state = ccl->state;
  q.options = ccl->options;
  q.stop = bs_stop_check;
  return sim_check(&q, add_level, &c, err);
}

/* ---- explain ---------------------------------------------------------------------------------- */

int32_t bs_sim_param(bs_context *context, const char *name, char *out_text, size_t size, bs_error *err) {
  const int32_t rc = bs_plugin_activate(context, "sim", err);
  for (uint32_t i = 0; rc == BS_OK && i < bs_param_count(context, "sim"); ++i) {
    bs_param_info info = {.struct_size = sizeof info};
    if (bs_param_info_get(context, "sim", i, &info, NULL) != BS_OK || strcmp(info.desc.name, name) != 0)
      continue;
    snprintf(out_text, size, "%s", info.value_text);
    return BS_OK;
  }
  if (rc != BS_OK) return rc;
  return bs_error_set(err, BS_UNAVAILABLE, "BS-CCL-LINK", "the plugin sim has no parameter %s", name);
}

static int32_t param_of(bs_context *context, const char *name, double *out_value, bs_error *err) {
  char text[64];
  const int32_t rc = bs_sim_param(context, name, text, sizeof text, err);
  if (rc != BS_OK || bs_parse_f64(text, out_value)) return rc;
  return bs_error_set(err, BS_UNAVAILABLE, "BS-CCL-LINK", "the parameter %s of the plugin sim is no number",
                      name);
}

int32_t bs_ccl_place_link(bs_context *context, bs_ccl_place *place, bs_error *err) {
  int32_t rc = param_of(context, "alpha_s", &place->alpha_s, err);
  if (rc == BS_OK) rc = param_of(context, "bw_Bps", &place->bytes_per_s, err);
  if (rc == BS_OK) rc = param_of(context, "reduce_Bps", &place->reduce_bytes_per_s, err);
  double events = 0;
  if (rc == BS_OK) rc = param_of(context, "trace_events", &events, err);
  place->trace_events = (uint64_t)events;
  return rc;
}

static bs_coll_shape shape_of(const bs_ccl *ccl, const bs_ccl_place *place) {
  return (bs_coll_shape){.struct_size = sizeof(bs_coll_shape),
                         .kind = place->kind,
                         .world_size = place->world_size,
                         .root = place->root,
                         .count = place->count,
                         .element_bytes = place->element_bytes,
                         .options = ccl->options};
}

static void add_times(json_t *row, const sim_schedule_result *r, const bs_ccl_place *place) {
  const double us = (double)r->ps * 1e-6, latency = (double)r->latency_ps * 1e-6;
  const double reduce = (double)r->reduce_ps * 1e-6;
  const double bytes = (double)place->count * place->element_bytes;
  json_object_set_new(row, "rounds", json_integer(r->rounds));
  json_object_set_new(row, "messages", json_integer((json_int_t)r->messages));
  json_object_set_new(row, "bytes", json_integer((json_int_t)r->bytes));
  json_object_set_new(row, "simulated_ps", json_integer((json_int_t)r->ps));
  json_object_set_new(row, "simulated_us", json_real(us));
  json_object_set_new(row, "latency_us", json_real(latency));
  json_object_set_new(row, "bytes_us", json_real(us - latency - reduce));
  json_object_set_new(row, "reduce_us", json_real(reduce));
  if (us > 0) {
    json_object_set_new(row, "algbw_GBps", json_real(bytes / us * 1e-3));
    json_object_set_new(row, "busbw_GBps",
                        json_real(bytes / us * 1e-3 * bs_bus_factor(place->kind, place->world_size)));
  }
}

/* The formula leaves reducing out: it is compared with the rest. */
static int32_t add_formula(json_t *row, const bs_ccl *ccl, const bs_coll_shape *shape,
                           const bs_ccl_place *place, const sim_schedule_result *ran, bs_error *err) {
  const bs_link link = {
      .struct_size = sizeof link, .latency_s = place->alpha_s, .bytes_per_s = place->bytes_per_s};
  double seconds = 0;
  if (ccl->algorithm->cost == NULL) return BS_OK;
  const int32_t rc = sim_cost_of(ccl->algorithm, ccl->state, shape, &link, &seconds, err);
  if (rc != BS_OK) return rc;
  json_object_set_new(row, "formula_us", json_real(seconds * 1e6));
  if (ran != NULL && !(place->late_s > 0))
    json_object_set_new(row, "difference_ps",
                        json_real((double)ran->ps - (double)ran->reduce_ps - seconds * 1e12));
  return BS_OK;
}

/* Runs the schedule, and writes its messages as a trace where one is asked for. */
static int32_t run_schedule(const bs_ccl_place *place, sim_schedule_config *config, json_t *row,
                            sim_schedule_result *out_result, bs_error *err) {
  if (place->trace_file == NULL) return sim_schedule_run(config, out_result, err);
  config->trace = sim_trace_new(place->trace_events, 0, place->world_size - 1);
  if (config->trace == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a trace");
  int32_t rc = sim_schedule_run(config, out_result, err);
  if (rc == BS_OK) rc = sim_trace_write(config->trace, place->trace_file, err);
  if (rc == BS_OK) {
    json_object_set_new(row, "trace_events", json_integer((json_int_t)sim_trace_events(config->trace)));
    json_object_set_new(row, "trace_left_out", json_integer((json_int_t)sim_trace_dropped(config->trace)));
  }
  sim_trace_free(config->trace);
  return rc;
}

json_t *bs_ccl_explain(const bs_ccl *ccl, const bs_ccl_place *place, bs_error *err) {
  const bs_coll_shape shape = shape_of(ccl, place);
  sim_schedule_config config = {
      .algorithm = ccl->algorithm,
      .state = ccl->state,
      .shape = &shape,
      .link = sim_link_of(place->alpha_s, place->bytes_per_s > 0 ? place->bytes_per_s : 1e300),
      .gamma_q32 = place->reduce_bytes_per_s > 0 ? sim_rate_q32(place->reduce_bytes_per_s) : 0,
      .late_rank = place->late_rank,
      .late_ps = sim_seconds_ps(place->late_s),
      .follow = 1,
      .stop = bs_stop_check};
  sim_schedule_result result = {0};
  const int runs = ccl->algorithm->schedule != NULL;
  if (!runs && (place->trace_file != NULL || place->late_s > 0)) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-CCL-FORMULA",
                 "%s is a formula alone: it sends no messages, so there is no trace and no late rank",
                 ccl->algorithm->name);
    return NULL;
  }
  json_t *row = json_object();
  int32_t rc = runs ? run_schedule(place, &config, row, &result, err) : BS_OK;
  add_place(row, ccl);
  json_object_set_new(row, "collective", json_string(bs_name_of(BS_NAMES_COLL, place->kind)));
  json_object_set_new(row, "world_size", json_integer(place->world_size));
  json_object_set_new(row, "count", json_integer((json_int_t)place->count));
  json_object_set_new(row, "size_bytes", json_integer((json_int_t)place->count * place->element_bytes));
  json_object_set_new(row, "element_bytes", json_integer(place->element_bytes));
  json_object_set_new(row, "alpha_us", json_real(place->alpha_s * 1e6));
  json_object_set_new(row, "link_GBps", json_real(place->bytes_per_s * 1e-9));
  if (place->late_s > 0) {
    json_object_set_new(row, "late_rank", json_integer(place->late_rank));
    json_object_set_new(row, "late_us", json_real(place->late_s * 1e6));
  }
  const int stopped = rc != BS_OK && bs_stop_asked() != 0; /* the formula is known all the same */
  if (stopped) rc = BS_OK;
  if (rc == BS_OK && runs && !stopped) add_times(row, &result, place);
  if (rc == BS_OK) rc = add_formula(row, ccl, &shape, place, runs && !stopped ? &result : NULL, err);
  if (rc == BS_OK) return row;
  json_decref(row);
  return NULL;
}
