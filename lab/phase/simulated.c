/* SPDX-License-Identifier: MIT
 * simulated.c - see simulated.h. */
#include "lab/phase/simulated.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/activation.h"
#include "lab/case/arms.h"
#include "lab/case/place.h"
#include "lab/clock.h"
#include "lab/error.h"
#include "lab/phase/frame.h"
#include "lab/phase/simulated_et.h"
#include "lab/place_name.h"
#include "lab/stop.h"
#include "lab/store/record.h"
#include "sim/trace.h"

const char *const bs_sim_term_names[BS_SIM_TERMS] = {"compute",      "memory",     "launch",
                                                     "wire_latency", "wire_bytes", "wait"};

/* ---- figures ------------------------------------------------------------------------------------- */

/* State while a world reports its figures. */
typedef struct taking {
  bs_simulated *s;
  sim_trace *trace; /* NULL: spans are dropped */
  sim_trace_span span;
  bs_simulated_et *et; /* NULL: no Chakra trace */
} taking;

static void take_span(taking *t, const char *name, double value) {
  const uint64_t n = (uint64_t)value;
  if (strcmp(name, "rank") == 0) t->span.rank = (uint32_t)n;
  if (strcmp(name, "lane") == 0) t->span.lane = (uint32_t)n;
  if (strcmp(name, "begin") == 0) t->span.begin = n;
  if (strcmp(name, "end") == 0) t->span.end = n;
  if (strcmp(name, "arrow") == 0) t->span.arrow = n;
}

static void take_text(taking *t, const char *name, const char *text) {
  bs_simulated *s = t->s;
  if (strcmp(name, "span") == 0 && t->trace != NULL) {
    snprintf(t->span.name, sizeof t->span.name, "%s", text);
    sim_trace_put(t->trace, &t->span);
  }
  if (strcmp(name, "step") == 0) {
    if (s->steps == NULL) s->steps = json_array();
    json_array_append_new(s->steps, json_pack("{s:s}", "step", text));
  }
  if (strcmp(name, "engine") == 0) snprintf(s->engine, sizeof s->engine, "%.47s", text);
  if (strcmp(name, "device") == 0) snprintf(s->device, sizeof s->device, "%.47s", text);
  if (strcmp(name, "label") == 0) snprintf(s->label, sizeof s->label, "%.15s", text);
}

static void take(void *user, const char *name, double value, const char *unit, const char *text) {
  taking *t = user;
  bs_simulated *s = t->s;
  if (t->et != NULL) bs_simulated_et_take(t->et, name, value, text);
  if (text != NULL) {
    take_text(t, name, text);
    return;
  }
  if (strncmp(name, "span.", 5) == 0) {
    take_span(t, name + 5, value);
    return;
  }
  if (strncmp(name, "step.", 5) == 0) { /* of the step that was named last */
    json_t *step = json_array_get(s->steps, json_array_size(s->steps) - 1);
    json_object_set_new(step, name + 5, json_real(strcmp(unit, "ps") == 0 ? value / 1e6 : value));
    return;
  }
  for (int i = 0; i < BS_SIM_TERMS; ++i) {
    if (strcmp(name, bs_sim_term_names[i]) == 0) s->own[i] = value;
    if (strncmp(name, "path_", 5) == 0 && strcmp(name + 5, bs_sim_term_names[i]) == 0) s->path[i] = value;
  }
  const struct {
    const char *name;
    double *to;
  } numbers[] = {{"simulated", &s->ps},
                 {"compute_side", &s->compute_side},
                 {"memory_side", &s->memory_side},
                 {"messages", &s->messages},
                 {"message_bytes", &s->message_bytes},
                 {"ops", &s->ops},
                 {"ops_not_costed", &s->ops_not_costed},
                 {"device_bytes", &s->device_bytes},
                 {"outside_domain", &s->outside_domain},
                 {"switch_ranks", &s->switch_ranks},
                 {"inside_simulated", &s->inside_simulated},
                 {"inside_known", &s->inside_known},
                 {"ops_by_roofline", &s->ops_by_roofline},
                 {"domain", &s->domain_most}};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i)
    if (strcmp(name, numbers[i].name) == 0) *numbers[i].to = value;
  if (strcmp(name, "spans_left_out") == 0 && t->trace != NULL) sim_trace_leave_out(t->trace, (uint64_t)value);
  if (strcmp(name, "last_rank") == 0) s->last_rank = (uint32_t)value;
}

void bs_simulated_take(bs_world *world, bs_simulated *out) {
  taking told = {.s = out};
  bs_world_figures(world, take, &told);
}

const char *bs_simulated_term(const double terms[BS_SIM_TERMS]) {
  const double of[] = {terms[BS_SIM_COMPUTE], terms[BS_SIM_MEMORY], terms[BS_SIM_LAUNCH],
                       terms[BS_SIM_LATENCY] + terms[BS_SIM_WIRE], terms[BS_SIM_WAIT]};
  enum { EXCHANGE = 3 };
  static const char *const names[] = {"compute", "memory", "launch", "wire", "wait"};
  size_t most = 0;
  for (size_t i = 1; i < sizeof of / sizeof of[0]; ++i)
    if (of[i] > of[most]) most = i;
  if (most == EXCHANGE && terms[BS_SIM_LATENCY] > terms[BS_SIM_WIRE]) return "latency";
  return of[most] > 0 ? names[most] : "nothing";
}

const char *bs_simulated_limit(const bs_simulated *s) {
  return bs_simulated_term(s->own);
}

/* ---- one case ------------------------------------------------------------------------------------ */

typedef struct built {
  bs_layer *layer;
  bs_tensor x, y;
  bs_arm_tensors work;
} built;

typedef struct simulation {
  bs_case c;
  uint32_t work, phantom;
  built *ranks;
} simulation;

/* The rank's layer and what it works on. */
static int32_t build(bs_rank *rank, void *arg, bs_error *err) {
  simulation *s = arg;
  const bs_case *c = &s->c;
  const uint32_t index = bs_rank_get_api()->rank(rank);
  built *b = &s->ranks[index];
  int64_t first = 0, rows = 0, cols = 0;
  int32_t rc = bs_stop_check(err);
  if (rc == BS_OK) rc = bs_layer_build(rank, c->method, &c->spec, c->w, c->bias, &b->layer, err);
  if (rc == BS_OK) rc = bs_case_input(c, rank, b->layer, c->x, &b->x, err);
  if (rc == BS_OK) rc = bs_case_features(c, b->layer, index, &first, &cols, err);
  bs_place_tokens(c, c->spec.y_placement, index, &first, &rows);
  if (rc == BS_OK) rc = bs_case_tensor(rank, c->spec.y_dtype, 2, rows, cols, &b->y, err);
  b->work.work = s->work;
  b->work.no_values = s->phantom;
  if (rc == BS_OK) rc = bs_arm_work_take(rank, b->layer, &c->spec, &b->x, &b->y, &b->work, err);
  bs_rank_counters_reset(rank);
  return rc;
}

static int32_t pass(bs_rank *rank, void *arg, bs_error *err) {
  simulation *s = arg;
  built *b = &s->ranks[bs_rank_get_api()->rank(rank)];
  int32_t rc = bs_stop_check(err);
  if (rc == BS_OK) rc = bs_arm_work_once(&b->work, b->layer, &b->x, &b->y, err);
  return rc == BS_OK ? bs_rank_sync(rank, err) : rc;
}

static void drop(const simulation *s, bs_world *world) {
  for (uint32_t r = 0; r < s->c.world_size; ++r) {
    built *b = &s->ranks[r];
    bs_rank *rank = bs_world_rank(world, r);
    if (b->layer == NULL) continue;
    bs_arm_work_free(rank, &b->work);
    if (b->y.data) bs_rank_get_api()->tensor_free(rank, &b->y);
    if (b->x.data) bs_rank_get_api()->tensor_free(rank, &b->x);
    bs_layer_free(b->layer);
  }
}

/* Compares rank 0's proposal for a forward with what the host counted. */
static int32_t count(const simulation *s, bs_world *world, bs_simulated *out, bs_error *err) {
  const bs_rank *first = bs_world_rank(world, 0);
  bs_proposal p;
  uint64_t payload = 0;
  const int32_t rc = bs_case_propose(&s->c, 0, &p, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < p.n_collectives; ++i) payload += p.coll_payload[i];
  out->claims =
      s->work != BS_ARM_FORWARD || (bs_rank_counter(first, BS_COUNT_COLLECTIVES) == p.n_collectives &&
                                    bs_rank_counter(first, BS_COUNT_PAYLOAD_BYTES) == payload &&
                                    bs_rank_counter(first, BS_COUNT_FLOPS) == p.flops);
  for (uint32_t r = 0; r < s->c.world_size; ++r) {
    out->flops += bs_rank_counter(bs_world_rank(world, r), BS_COUNT_FLOPS);
    out->wire_bytes += bs_rank_counter(bs_world_rank(world, r), BS_COUNT_WIRE_BYTES);
  }
  return BS_OK;
}

int32_t bs_simulate_case(const bs_case *c, uint32_t work, bs_simulated *out, bs_error *err) {
  return bs_simulate_traced(c, work, NULL, NULL, out, err);
}

int32_t bs_simulate_traced(const bs_case *c, uint32_t work, sim_trace *trace, bs_simulated_et *et,
                           bs_simulated *out, bs_error *err) {
  taking told = {.s = out, .trace = trace, .et = et};
  simulation s = {.c = *c, .work = work};
  bs_world *world = NULL;
  memset(out, 0, sizeof *out);
  if (!bs_clock_is_virtual(c->context, c->comm)) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-SIM-CLOCK", "communicator %s has no clock of its own", c->comm);
    bs_error_hint(err, "--plugin sim");
    return BS_UNSUPPORTED;
  }
  s.c.threads_per_rank = 1;
  s.c.bind = 0;
  s.c.sync_mode = BS_SYNC_NONE;
  s.c.spec.flags |= bs_arm_work_flags(work);
  s.ranks = calloc(c->world_size, sizeof *s.ranks);
  if (s.ranks == NULL) return bs_no_memory(err, "%u ranks", c->world_size);
  int32_t rc = bs_case_world(&s.c, &world, err);
  s.phantom = out->phantom = (uint32_t)bs_backend_is_phantom(c->context, c->backend);
  if (rc == BS_OK) rc = bs_world_run(world, build, &s, err);
  if (rc == BS_OK) rc = bs_world_run(world, pass, &s, err);
  if (rc == BS_OK) bs_world_figures(world, take, &told);
  if (rc == BS_OK) rc = count(&s, world, out, err);
  if (world != NULL) drop(&s, world);
  bs_world_destroy(world);
  free(s.ranks);
  if (rc != BS_OK) {
    json_decref(out->steps);
    out->steps = NULL;
  }
  return rc;
}

/* ---- an experiment ------------------------------------------------------------------------------- */

/* The dense layer has none of the method's mask, placement and options, and runs on one rank. */
bs_case bs_simulated_dense(const bs_case *like) {
  bs_case c = *like;
  c.method = "dense";
  c.world_size = 1;
  c.spec.mask = NULL;
  c.spec.x_placement = c.spec.y_placement = BS_REPLICATED;
  c.spec.n_options = 0;
  c.algorithm = c.topology = NULL;
  return c;
}

static json_t *us(double ps) {
  return json_real(ps / 1e6);
}

const char *bs_simulated_domain(const bs_simulated *s) {
  const int fitted = strcmp(s->label, "calibrated") == 0 && s->domain_most > 0;
  return fitted && !(s->outside_domain > 0) ? "in-domain" : "extrapolated";
}

json_t *bs_simulated_json(const bs_simulated *s, const char *machine) {
  json_t *out = json_object(), *path = json_object();
  json_object_set_new(out, "us", us(s->ps));
  for (int i = 0; i < BS_SIM_TERMS; ++i) {
    char name[32];
    snprintf(name, sizeof name, "%s_us", bs_sim_term_names[i]);
    json_object_set_new(out, name, us(s->own[i]));
    json_object_set_new(path, name, us(s->path[i]));
  }
  json_object_set_new(out, "path", path);
  if (s->steps != NULL) json_object_set(out, "steps", s->steps);
  json_object_update_new(
      out, json_pack("{s:o,s:o,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:s,s:s,s:s,s:s?}", "compute_side_us",
                     us(s->compute_side), "memory_side_us", us(s->memory_side), "limit",
                     bs_simulated_limit(s), "last_rank", (json_int_t)s->last_rank, "messages",
                     (json_int_t)s->messages, "message_bytes", (json_int_t)s->message_bytes, "ops",
                     (json_int_t)s->ops, "ops_not_costed", (json_int_t)s->ops_not_costed, "bytes_per_device",
                     (json_int_t)s->device_bytes, "engine", s->engine, "label", s->label, "domain",
                     bs_simulated_domain(s), "values", s->phantom ? "none" : "real", "machine", machine));
  if (s->device[0] != '\0')
    json_object_update_new(
        out, json_pack("{s:s, s:I, s:I, s:I}", "device", s->device, "inside_simulated",
                       (json_int_t)s->inside_simulated, "inside_known", (json_int_t)s->inside_known,
                       "ops_by_roofline", (json_int_t)s->ops_by_roofline));
  return out;
}

int bs_simulated_trace_text(const json_t *record, char *out_text, size_t size) {
  const json_t *trace = json_object_get(json_object_get(record, "simulated"), "trace");
  const json_int_t left_out = json_integer_value(json_object_get(trace, "left_out"));
  if (trace == NULL) return 0;
  snprintf(out_text, size, "wrote the trace %.300s: %lld events, %lld left out%s",
           json_string_value(json_object_get(trace, "file")),
           (long long)json_integer_value(json_object_get(trace, "events")), (long long)left_out,
           left_out > 0 ? " (--set plugins.sim.trace_events=N keeps more)" : "");
  return 1;
}

static uint32_t work_of(const bs_experiment *e) {
  if (e->phase == BS_PHASE_BACKWARD) return BS_ARM_BACKWARD;
  if (e->phase != BS_PHASE_TRAIN) return BS_ARM_FORWARD;
  return e->optimizer == BS_OPT_ADAMW ? BS_ARM_ADAMW : BS_ARM_SGD;
}

static int32_t add_layer(json_t *record, const bs_case *c, const bs_subject *subject, const bs_simulated *s,
                         bs_error *err) {
  const bs_layer_spec *spec = &c->spec;
  bs_proposal p;
  uint64_t weights = 0;
  int32_t rc = BS_OK;
  for (uint32_t r = 0; rc == BS_OK && r < c->world_size; ++r) {
    rc = bs_case_propose(c, r, &p, err);
    weights += p.weight_bytes;
  }
  if (rc == BS_OK) rc = bs_case_propose(c, 0, &p, err);
  if (rc != BS_OK) return rc;
  return bs_record_add(
      record,
      json_pack("{s:s,s:I,s:I,s:I,s:b,s:s,s:s,s:s,s:I,s:I,s:s,s:s,s:I,s:I,s:I,s:b}", "dtype",
                bs_dtype_name(spec->y_dtype), "B", (json_int_t)spec->B, "N", (json_int_t)spec->N, "K",
                (json_int_t)spec->K, "bias", (int)spec->has_bias, "activation",
                bs_name_of(BS_NAMES_ACTIVATION, spec->activation), "x_placement",
                bs_place_name(spec->x_placement), "y_placement", bs_place_name(spec->y_placement),
                "world_size", (json_int_t)c->world_size, "threads_per_rank", (json_int_t)1, "workload_text",
                subject->info.text, "split", p.text, "weight_bytes_total", (json_int_t)weights,
                "flops_per_forward", (json_int_t)s->flops, "wire_bytes_per_forward",
                (json_int_t)s->wire_bytes, "claims_match_counts", (int)s->claims),
      err);
}

/* The machine's file, from hardware.name. */
static const char *machine_of(const bs_experiment *e) {
  const char *name = NULL;
  bs_config_str(e->config, "hardware.name", NULL, &name, NULL);
  return name;
}

/* Simulates the method's pass, and writes its traces on request. */
static int32_t simulate_method(const bs_experiment *e, const bs_case *c, uint32_t work, bs_simulated *out,
                               bs_error *err) {
  sim_trace *trace = NULL;
  bs_simulated_et *et = NULL;
  int32_t rc = BS_OK;
  memset(out, 0, sizeof *out);
  if (e->trace_file != NULL && (trace = sim_trace_new(UINT64_MAX, 0, c->world_size - 1)) == NULL)
    rc = bs_no_memory(err, "a trace");
  if (rc == BS_OK && e->et_prefix != NULL) rc = bs_simulated_et_begin(c->world_size, &et, err);
  if (rc == BS_OK) rc = bs_simulate_traced(c, work, trace, et, out, err);
  if (rc == BS_OK && trace != NULL) rc = sim_trace_write(trace, e->trace_file, err);
  if (rc == BS_OK && et != NULL) rc = bs_simulated_et_write(et, e->et_prefix, err);
  if (rc != BS_OK) json_decref(out->steps);
  if (trace != NULL) {
    out->trace_events = sim_trace_events(trace);
    out->trace_left_out = sim_trace_dropped(trace);
  }
  sim_trace_free(trace);
  bs_simulated_et_free(et);
  return rc;
}

int32_t bs_simulated_takes_time(double time, bs_error *err) {
  if (time > 0) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-SIM-MACHINE", "nothing takes time on the simulated machine");
  bs_error_hint(err, "--hardware h100-dgx, sim-flat, ... or --set plugins.sim.flops=1e12");
  return BS_CONFIG;
}

int bs_simulated_beyond(const bs_simulated *s, const char *machine, uint32_t ranks, const char *algorithm,
                        const char *topology, char *out_text, size_t size) {
  const int ring = algorithm == NULL || algorithm[0] == '\0';
  if (!(s->switch_ranks > 0) || ranks <= s->switch_ranks || topology != NULL) return 0;
  snprintf(
      out_text, size,
      "%.60s has %.0f GPUs on one switch; %u were simulated %s: --set hardware.algorithm=%s%s",
      machine != NULL ? machine : "the machine", s->switch_ranks, ranks,
      ring ? "as one ring" : "on one switch", ring ? "halving_doubling" : "hierarchical",
      ring ? "; --hardware h100-cluster has nodes"
           : " --set hardware.topology=hier:outer_latency_s=S,outer_bw_Bps=R, as --hardware h100-cluster");
  return 1;
}

static int32_t simulate(bs_context *context, const bs_experiment *e, const bs_subject *subject,
                        bs_progress_fn progress, void *user, bs_phase_result *out, bs_error *err) {
  bs_arm_case arms[BS_ARMS_MAX];
  bs_simulated method, dense;
  const uint32_t work = work_of(e);
  (void)bs_arms_of(context, e, subject, arms);
  const bs_case *c = &arms[0].c;
  if (progress) progress(user, "simulate", 0, 0);
  int32_t rc = simulate_method(e, c, work, &method, err);
  if (rc == BS_OK && (rc = bs_simulated_takes_time(method.ps, err)) != BS_OK) json_decref(method.steps);
  if (rc != BS_OK) return rc;
  json_t *told = bs_simulated_json(&method, machine_of(e));
  char beyond[400];
  if (bs_simulated_beyond(&method, machine_of(e), c->world_size, e->algorithm, e->topology, beyond,
                          sizeof beyond))
    json_object_set_new(told, "beyond", json_string(beyond));
  if (e->trace_file != NULL)
    json_object_set_new(
        told, "trace",
        json_pack("{s:s, s:I, s:I}", "file", e->trace_file, "events", (json_int_t)method.trace_events,
                  "left_out", (json_int_t)method.trace_left_out));
  if (e->dense_arm) {
    const bs_case alone = bs_simulated_dense(c);
    rc = bs_simulate_case(&alone, work, &dense, err);
    if (rc == BS_OK) {
      json_object_set_new(told, "dense", bs_simulated_json(&dense, machine_of(e)));
      json_object_set_new(told, "speedup", method.ps > 0 ? json_real(dense.ps / method.ps) : json_null());
      json_decref(dense.steps);
    }
  }
  json_object_set_new(out->record, "simulated", told);
  if (rc == BS_OK) rc = add_layer(out->record, c, subject, &method, err);
  json_decref(method.steps);
  out->passed = 1; /* it ran; no gate judges it */
  return rc;
}

int32_t bs_simulated_run(bs_context *context, const bs_experiment *e, bs_progress_fn progress, void *user,
                         bs_phase_result *out, bs_error *err) {
  bs_subject subject;
  int32_t rc = bs_phase_result_open(out, err);
  if (rc != BS_OK) return rc;
  rc = bs_simulated_check(context, e, err);
  if (rc == BS_OK) rc = bs_subject_open(context, e, &subject, err);
  if (rc == BS_OK) {
    rc = simulate(context, e, &subject, progress, user, out, err);
    bs_subject_close(&subject);
  }
  if (rc != BS_OK) bs_phase_result_free(out);
  return rc;
}
