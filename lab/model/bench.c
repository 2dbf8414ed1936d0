/* SPDX-License-Identifier: MIT
 * bench.c - times a model's flat runs by the lab's sampler (lab/measure/sampler.h): a run of any model; of a
 * model with a key-value cache the prompt in one run, then single tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/clock.h"
#include "core/base/text.h"
#include "lab/cores.h"
#include "lab/error.h"
#include "lab/measure/arm.h"
#include "lab/measure/constants.h"
#include "lab/measure/sampler.h"
#include "lab/model/bench.h"
#include "lab/model/bench_memory.h"
#include "lab/model/inputs.h"
#include "lab/model/simulated.h"
#include "lab/stop.h"

enum { SAMPLES = 200, LEAST_SAMPLES = 5 };
/* How far a peer's outputs may be from ours (peer.h): of floats, of quantised weights with X in bytes, which
 * runtimes round differently, and of a model of the peer's own. */
static const double APART = 1e-3, APART_QUANTISED = 0.05, APART_OTHER = 0.3;
static const double LONGEST_SAMPLE = 0.05, SHORTEST_SAMPLE = 2e-3, WARM_SECONDS = 2, PROFILE_SECONDS = 1;

typedef struct benching {
  bs_context *context;
  const bs_model_request *request;
  const bs_model_bench *asked;
  bs_model *model;
  uint32_t each, threads;     /* each: of one rank; threads: of all */
  const char *backend, *work; /* "run", "prefill", "decode" */
  int64_t tokens;             /* of a run; 0: the model has no key-value cache */
  int64_t before;             /* tokens in the cache before each run */
  const int64_t *ids;         /* of the prompt; the model has them */
  bs_session_stats told;      /* statistics of the session after the previous rows */
  bs_model_peer *peer;        /* NULL: none */
  double apart;               /* of its outputs from ours */
  uint64_t arena;             /* the largest of a row */
  json_t *rows;
} benching;

/* ---- samples --------------------------------------------------------------------------------- */

/* One run with as many tokens in the cache as in every other. */
static int32_t run_once(const benching *b, bs_session *session, bs_error *err) {
  const int32_t rc = b->tokens > 0 ? bs_session_cache(session, b->before, err) : BS_OK;
  return rc == BS_OK ? bs_session_run(session, err) : rc;
}

static uint64_t involuntary_switches(void) {
  struct rusage used;
  return getrusage(RUSAGE_SELF, &used) == 0 ? (uint64_t)used.ru_nivcsw : 0;
}

static int32_t take_sample(void *user, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err) {
  const benching *b = user;
  bs_session *session = b->model->session;
  int32_t rc = BS_OK;
  for (uint64_t i = 0; rc == BS_OK && i < lead; i++) rc = run_once(b, session, err);
  const uint64_t switches = involuntary_switches();
  const double began = bs_clock_s();
  for (uint64_t i = 0; rc == BS_OK && i < n; i++) rc = run_once(b, session, err);
  out->seconds = (bs_clock_s() - began) / (double)n;
  out->switches = involuntary_switches() - switches;
  return rc;
}

static void tell(void *user, const char *what, uint64_t done, uint64_t total) {
  const benching *b = user;
  char text[48];
  snprintf(text, sizeof text, "%s, %s", b->work, what);
  if (b->asked->progress != NULL) b->asked->progress(b->asked->user, text, done, total);
}

/* The 95 % interval of the median: the medians of groups of consecutive samples count as one observation
 * each, as in comparisons (bs_compare_pairs, here with an arm that always takes a second). */
static int32_t interval_of(const bs_sampled_arm *arm, size_t n, double *out_low, double *out_high,
                           bs_error *err) {
  bs_comparison c;
  double *seconds = malloc((n + 1) * sizeof *seconds);
  for (size_t i = 0; seconds != NULL && i < n; i++) seconds[i] = 1;
  const int known = seconds != NULL && bs_compare_pairs(seconds, arm->seconds, n, 0.01, &c);
  free(seconds);
  if (!known) return bs_no_memory(err, "an interval");
  *out_low = fmin(c.low, arm->look.p50);
  *out_high = fmax(c.high, arm->look.p50);
  return BS_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

int32_t bs_model_count_work(const bs_session *session, uint64_t *out_flops, uint64_t *out_bytes,
                            bs_error *err) {
  bs_session_stats stats = {.struct_size = sizeof stats};
  int32_t rc = bs_session_stats_get(session, &stats, err);
  *out_flops = *out_bytes = 0;
  for (uint32_t i = 0; rc == BS_OK && i < bs_session_node_count(session); i++) {
    bs_node_info node = {.struct_size = sizeof node};
    rc = bs_session_node(session, i, &node, err);
    *out_flops += node.flops * (node.method[0] != '\0' ? stats.ranks : 1); /* of all ranks, as of rank 0 */
    *out_bytes += node.bytes;
  }
  return rc;
}

/* The seconds of what was bound since the row before; those of loading are the model's. */
static int add_seconds(benching *b, json_t *row) {
  bs_session_stats t = {.struct_size = sizeof t};
  const bs_session_stats last = b->told;
  if (bs_session_stats_get(b->model->session, &t, NULL) != BS_OK) return -1;
  b->told = t;
  if (t.arena_bytes > b->arena) b->arena = t.arena_bytes;
  json_t *seconds =
      json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "load_s", t.load_s, "lower_s", t.lower_s - last.lower_s,
                "pass_s", t.pass_s - last.pass_s, "plan_s", t.plan_s - last.plan_s, "pack_s",
                t.pack_s - last.pack_s, "prepare_s", t.prepare_s - last.prepare_s);
  const int bad = seconds == NULL || json_object_update(row, seconds) != 0;
  json_decref(seconds);
  return bad ? -1 : 0;
}

/* The peer's time, compared with ours. */
static json_t *peer_json(const benching *b, const bs_sampled *s) {
  json_t *peer = bs_sampling_comparison_json(s, 1);
  json_object_set_new(peer, "name", json_string(b->asked->peer->name));
  json_object_set_new(peer, "version", json_string(bs_model_peer_version(b->peer)));
  json_object_set_new(peer, "median_s", json_real(s->arm[1].look.p50));
  json_object_set_new(peer, "apart", json_real(b->apart));
  return peer;
}

/* Threads of one rank. A world knows them best: some of its ranks may be on other machines. */
static int each_of(const benching *b) {
  return (int)(b->model->world != NULL ? bs_world_threads_per_rank(b->model->world) : b->each);
}

/* How the model is split, in the fields that a run of a phase has. Replicas have set their world_size. */
static int add_ranks(json_t *row, const benching *b) {
  const bs_model_ranks *k = b->request->ranks;
  int bad = json_object_set_new(row, "threads_per_rank", json_integer(each_of(b)));
  if (json_object_get(row, "world_size") == NULL)
    bad |= json_object_set_new(row, "world_size", json_integer(k != NULL ? k->n : 1));
  if (k == NULL || k->method == NULL) return bad;
  return bad | json_object_set_new(row, "method", json_string(k->method)) |
         json_object_set_new(row, "comm", json_string(k->comm != NULL ? k->comm : "threads")) |
         json_object_set_new(row, "launch", json_string(k->launch != NULL ? k->launch : "threads"));
}

static int32_t add_row(benching *b, const bs_sampled *s, bs_error *err) {
  const bs_sampled_arm *arm = &s->arm[0];
  uint64_t flops, bytes;
  double low = 0, high = 0;
  int32_t rc = bs_model_count_work(b->model->session, &flops, &bytes, err);
  if (rc == BS_OK) rc = interval_of(arm, s->pairs, &low, &high, err);
  if (rc != BS_OK) return rc;
  const double each = arm->look.p50;
  json_t *stats = bs_model_stats(b->model->session), *pairs = bs_sampling_pairs_json(s);
  json_t *row =
      json_pack("{s:s, s:s, s:i, s:I, s:I, s:O, s:I, s:I, s:f, s:f, s:f, s:o, s:o}", "work", b->work,
                "backend", b->backend, "threads", each_of(b), "cache_tokens", (json_int_t)b->before, "nodes",
                (json_int_t)bs_session_node_count(b->model->session), "fallback_nodes",
                json_object_get(stats, "fallback_nodes"), "flops", (json_int_t)flops, "bytes",
                (json_int_t)bytes, "low_s", low, "high_s", high, "first_s", arm->warm.first.seconds, "gflops",
                flops > 0 ? json_real(1e-9 * (double)flops / each) : json_null(), "tokens_per_s",
                b->tokens > 0 ? json_real((double)b->tokens / each) : json_null());
  int bad = row == NULL || bs_sampling_arm_json(row, s, 0) != 0 || json_object_update(row, pairs) != 0;
  if (!bad) bad = add_seconds(b, row) != 0;
  const int unclear = bs_disturbance_decides(&s->disturbance);
  if (!bad)
    bad =
        json_object_set_new(row, "unclear",
                            unclear ? json_string(bs_unclear_name(BS_UNCLEAR_DISTURBED)) : json_null()) != 0;
  if (!bad && b->tokens > 0) bad = json_object_set_new(row, "tokens", json_integer(b->tokens)) != 0;
  if (!bad) bad = add_ranks(row, b) != 0;
  if (!bad && b->peer != NULL) bad = json_object_set_new(row, "peer", peer_json(b, s)) != 0;
  json_decref(stats);
  json_decref(pairs);
  if (!bad && json_array_append_new(b->rows, row) == 0) return BS_OK;
  if (bad) json_decref(row);
  return bs_no_memory(err, "a row");
}

static int is_simulated(const benching *b) {
  return b->request->ranks != NULL && b->request->ranks->simulated;
}

/* Refuses a session in its present binding if ref serves a node, unless that is allowed. */
static int32_t refuse_fallback(const benching *b, bs_error *err) {
  bs_session_stats stats = {.struct_size = sizeof stats};
  bs_node_info node = {.struct_size = sizeof node};
  const bs_session *session = b->model->session;
  int32_t rc = bs_session_stats_get(session, &stats, err);
  if (rc != BS_OK || stats.fallback_nodes == 0 || b->asked->allow_fallback || strcmp(b->backend, "ref") == 0)
    return rc;
  for (uint32_t i = 0; rc == BS_OK && i < bs_session_node_count(session); i++) {
    rc = bs_session_node(session, i, &node, err);
    if (node.reason[0] != '\0') break;
  }
  if (rc != BS_OK) return rc;
  bs_error_set(err, BS_UNSUPPORTED, "BS-MODEL-FALLBACK",
               "%.40s does not serve %llu of %u nodes; the first is %s of node %.100s", b->backend,
               (unsigned long long)stats.fallback_nodes, bs_session_node_count(session), node.op,
               node.origin);
  bs_error_hint(err, "--force times them where they run; bsrun model explain lists them");
  return BS_UNSUPPORTED;
}

/* One run in virtual time: nothing varies. */
static int32_t simulate_one(benching *b, bs_error *err) {
  json_t *row = NULL;
  int32_t rc = bs_stop_check(err);
  if (rc == BS_OK) rc = refuse_fallback(b, err);
  if (rc == BS_OK) rc = run_once(b, b->model->session, err);
  if (rc == BS_OK)
    rc = bs_model_simulated_row(b->model, b->request->ranks, b->work, b->tokens, b->before, &row, err);
  if (rc != BS_OK) return rc;
  if (json_object_set_new(row, "backend", json_string(b->backend)) == 0 &&
      json_object_set_new(row, "threads", json_integer(each_of(b))) == 0 && add_ranks(row, b) == 0 &&
      add_seconds(b, row) == 0 && json_array_append(b->rows, row) == 0)
    rc = BS_OK;
  else
    rc = bs_no_memory(err, "a row");
  json_decref(row);
  return rc;
}

static int32_t bench_one(benching *b, const char *work, int64_t tokens, int64_t before, bs_error *err) {
  const bs_sampler_host host = {.user = b, .disturb = bs_disturb_host, .progress = tell};
  const uint32_t threads = bs_host_threads(b->context, b->backend, 1, b->threads);
  bs_sampler_arm arms[2] = {{.name = work, .user = b, .batch = take_sample, .threads = threads}};
  if (b->peer != NULL) {
    bs_model_peer_work(b->peer, work);
    arms[1] = bs_model_peer_arm(b->peer, threads);
  }
  bs_sampler_options o;
  bs_sampled *s = NULL;
  b->work = work;
  b->tokens = tokens;
  b->before = before;
  if (is_simulated(b)) return simulate_one(b, err);
  bs_sampler_defaults(&o);
  o.batch_seconds = fmin(fmax(b->asked->seconds / SAMPLES, SHORTEST_SAMPLE), LONGEST_SAMPLE);
  o.pairs_min = LEAST_SAMPLES;
  o.seconds = b->asked->seconds;
  o.warm_seconds = fmin(b->asked->seconds, WARM_SECONDS);
  o.keep_stopped = 1;
  int32_t rc = bs_stop_check(err);
  if (rc == BS_OK) rc = refuse_fallback(b, err);
  if (rc == BS_OK) rc = bs_sampler_run(&o, &host, arms, b->peer != NULL ? 2 : 1, &s, err);
  if (rc == BS_OK) rc = add_row(b, s, err);
  bs_sampling_free(s);
  return rc;
}

static double allowed_apart(const benching *b) {
  bs_node_info node = {.struct_size = sizeof node};
  if (b->asked->peer->model != NULL) return APART_OTHER;
  for (uint32_t i = 0; i < bs_session_node_count(b->model->session); i++)
    if (bs_session_node(b->model->session, i, &node, NULL) == BS_OK && strcmp(node.op, "matmul_q") == 0)
      return APART_QUANTISED;
  return APART;
}

/* Starts the peer, and compares its outputs with those of one run of ours. */
static int32_t open_peer(benching *b, int64_t tokens, int64_t cache_tokens, bs_error *err) {
  if (b->asked->peer == NULL) return BS_OK;
  tell(b, "peer", 0, 0);
  b->tokens = tokens;
  b->before = 0;
  bs_graph_info info = {.struct_size = sizeof info};
  int32_t rc = bs_graph_info_get(b->model->graph, &info, err);
  if (rc == BS_OK)
    rc = bs_model_peer_open(b->asked->peer, b->model, info.path, b->threads, cache_tokens, &b->peer, err);
  if (rc == BS_OK) rc = run_once(b, b->model->session, err);
  return rc == BS_OK ? bs_model_peer_compare(b->peer, b->model, allowed_apart(b), &b->apart, err) : rc;
}

/* ---- models with a key-value cache ------------------------------------------------------------ */

/* The tokens of the prompt: a size like any other, and one more token must fit. */
static int32_t prompt_length(const benching *b, const char *symbol, int64_t limit, int64_t *out,
                             bs_error *err) {
  for (size_t i = 0; i < b->model->n_dims; i++)
    if (strcmp(b->model->dims[i].name, symbol) == 0) *out = b->model->dims[i].size;
  if (*out >= 1 && *out < limit) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-MODEL-BENCH", "a prompt of %lld tokens and one more: the cache holds %lld",
               (long long)*out, (long long)limit);
  bs_error_hint(err, "--dim %.60s=N gives the prompt, --cache-tokens N the cache", symbol);
  return BS_USAGE;
}

/* The n ids are the input of the next runs. */
static int32_t set_ids(const benching *b, const char *symbol, const int64_t *ids, int64_t n, bs_error *err) {
  const bs_dim dim = {.struct_size = sizeof dim, .name = symbol, .size = n};
  const bs_dim *dims[] = {&dim};
  bs_tensor input = {
      .struct_size = sizeof input, .dtype = BS_I64, .rank = 2, .dims = {1, n}, .strides = {n, 1}};
  input.data = (void *)(uintptr_t)ids;
  input.bytes = (uint64_t)n * sizeof *ids;
  int32_t rc = bs_session_bind(b->model->session, dims, 1, err);
  if (rc == BS_OK) rc = bs_model_ids_check(b->model->session, ids, (size_t)n, err);
  return rc == BS_OK ? bs_session_set(b->model->session, 0, &input, err) : rc;
}

static int32_t bench_tokens(bs_context *context, benching *b, int64_t limit, bs_error *err) {
  const char *symbol;
  const int64_t *ids = NULL;
  int64_t n = 0;
  int32_t rc = bs_model_token_dim(b->model->graph, &symbol, err);
  if (rc == BS_OK) rc = bs_model_start(context, b->request, b->model, err);
  if (rc == BS_OK) rc = prompt_length(b, symbol, limit, &n, err);
  if (rc == BS_OK) rc = bs_model_set_inputs(b->request, b->model, err);
  if (rc == BS_OK) ids = b->ids = b->model->n_inputs > 0 ? b->model->files[0].data : b->model->made[0];
  if (rc == BS_OK) rc = set_ids(b, symbol, ids, n, err);
  if (rc == BS_OK) rc = open_peer(b, n, limit, err);
  if (rc == BS_OK) rc = bench_one(b, "prefill", n, 0, err);
  if (rc == BS_OK) rc = set_ids(b, symbol, ids, 1, err);
  if (rc == BS_OK) rc = bench_one(b, "decode", 1, n, err);
  return rc;
}

/* ---- the nodes' times -------------------------------------------------------------------------- */

static int slower_first(const void *a, const void *b) {
  const double x = json_real_value(json_object_get(*(json_t *const *)a, "each_s"));
  const double y = json_real_value(json_object_get(*(json_t *const *)b, "each_s"));
  return x < y ? 1 : x > y ? -1 : 0;
}

json_t *bs_model_by_time(const json_t *nodes) {
  const size_t n = json_array_size(nodes);
  json_t **order = calloc(n + 1, sizeof *order), *rows = json_array();
  double all = 0;
  for (size_t i = 0; order != NULL && i < n; i++) {
    json_t *node = order[i] = json_array_get(nodes, i);
    const json_int_t runs = json_integer_value(json_object_get(node, "runs"));
    const double each = json_number_value(json_object_get(node, "seconds")) / (double)(runs > 0 ? runs : 1);
    json_object_set_new(node, "each_s", json_real(each));
    all += each;
  }
  if (order != NULL) qsort(order, n, sizeof *order, slower_first);
  for (size_t i = 0; order != NULL && i < n; i++) {
    const double each = json_real_value(json_object_get(order[i], "each_s"));
    const double flops = json_number_value(json_object_get(order[i], "flops"));
    json_object_set_new(order[i], "share", json_real(all > 0 ? each / all : 0));
    json_object_set_new(order[i], "gflops",
                        flops > 0 && each > 0 ? json_real(1e-9 * flops / each) : json_null());
    json_array_append(rows, order[i]);
  }
  free(order);
  return rows;
}

static int32_t read_profile(const bs_model *m, int simulated, json_t **out, bs_error *err) {
  char *text = NULL;
  const int32_t rc = bs_model_text(m, BS_REPORT_PROFILE, 1, &text, err);
  json_t *report = text != NULL ? json_loads(text, 0, NULL) : NULL;
  free(text);
  if (rc != BS_OK) return rc;
  if (simulated) bs_model_simulated_limits(m, json_object_get(report, "nodes"));
  *out = bs_model_by_time(json_object_get(report, "nodes"));
  const int read = report != NULL;
  json_decref(report);
  return read ? BS_OK : bs_error_set(err, BS_INTERNAL, "BS-MODEL-PROFILE", "the profile is no JSON");
}

/* A second session of the same weights, which reads a clock between nodes: its runs are not those timed. */
static int32_t profile(bs_context *context, benching *b, json_t **out, bs_error *err) {
  bs_model view = *b->model; /* the same inputs, another session */
  bs_model_request request = *b->request;
  request.profile = 1;
  view.session = NULL;
  view.made = NULL; /* its own */
  int32_t rc = bs_model_start_beside(context, &request, &view, b->model->session, err);
  if (rc == BS_OK && b->tokens == 0) rc = bs_model_set_inputs(&request, &view, err);
  if (rc == BS_OK && b->tokens > 0) {
    const benching of_view = {.model = &view};
    const char *symbol;
    rc = bs_model_token_dim(view.graph, &symbol, err);
    if (rc == BS_OK) rc = set_ids(&of_view, symbol, b->ids, b->tokens, err);
  }
  const double end = bs_clock_s() + fmin(b->asked->seconds, PROFILE_SECONDS);
  for (int i = 0; rc == BS_OK && (i < 3 || (bs_clock_s() < end && bs_stop_asked() == 0)); i++)
    rc = run_once(b, view.session, err);
  if (rc == BS_OK) rc = read_profile(&view, 0, out, err);
  bs_session_close(view.session);
  bs_model_free_made(&view);
  return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int32_t bench_plain(bs_context *context, benching *b, bs_error *err) {
  int32_t rc = bs_model_start(context, b->request, b->model, err);
  if (rc == BS_OK) rc = bs_model_set_inputs(b->request, b->model, err);
  if (rc == BS_OK) rc = open_peer(b, 0, 0, err);
  if (rc == BS_OK) rc = bench_one(b, "run", 0, 0, err);
  return bs_model_blame_input(b->request, b->model, rc, err);
}

int32_t bs_model_bench_run(bs_context *context, const bs_model_request *request, bs_model *model,
                           const bs_model_bench *asked, json_t **out, bs_error *err) {
  bs_model_request r = *request;
  bs_graph_info info = {.struct_size = sizeof info};
  json_t *nodes = NULL;
  bs_load before, after;
  const uint32_t each = bs_model_threads(&r);
  r.threads = each * (r.ranks != NULL ? r.ranks->n : 1);
  r.bind = asked->peer != NULL; /* on the cores that the peer has */
  r.profile =
      r.ranks != NULL && r.ranks->simulated && asked->profile; /* a virtual clock takes no time to read */
  benching b = {.context = context,
                .request = &r,
                .asked = asked,
                .model = model,
                .each = each,
                .threads = r.threads,
                .backend = r.backend != NULL ? r.backend : "cpu",
                .work = "run",
                .rows = json_array()};
  *out = NULL;
  if (asked->before != NULL)
    before = *asked->before;
  else
    bs_load_now(&before);
  int32_t rc = bs_graph_info_get(model->graph, &info, err);
  if (rc == BS_OK)
    rc = info.cache_tokens > 0 ? bench_tokens(context, &b, info.cache_tokens, err)
                               : bench_plain(context, &b, err);
  bs_load_now(&after);
  json_t *memory =
      is_simulated(&b) ? NULL : bs_model_bench_memory(model, b.arena, b.before, info.cache_tokens);
  if (bs_stop_asked() != 0 && json_array_size(b.rows) > 0) rc = BS_OK; /* the rows until then */
  if (rc == BS_OK && asked->profile && bs_stop_asked() == 0)
    rc = is_simulated(&b) ? read_profile(model, 1, &nodes, err) : profile(context, &b, &nodes, err);
  if (rc == BS_OK)
    *out = json_pack("{s:o, s:s, s:i, s:o, s:b, s:O?, s:O, s:o, s:o}", "model", bs_model_json_text(r.path),
                     "backend", b.backend, "threads", each_of(&b), "dims", bs_model_dims(model),
                     "made_inputs", bs_model_makes_inputs(model), "median_s",
                     json_object_get(json_array_get(b.rows, 0), "median_s"), "rows", b.rows, "conditions",
                     bs_load_json(&before, &after), "stats", bs_model_stats(model->session));
  if (*out != NULL && bs_model_makes_inputs(model)) {
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)model->made_hash);
    json_object_set_new(*out, "made_hash", json_string(hash));
  }
  if (*out != NULL && model->tuned != NULL) json_object_set(*out, "tuned", model->tuned);
  if (*out != NULL && memory != NULL) json_object_set(*out, "memory", memory);
  if (*out != NULL && b.peer != NULL && info.cache_tokens > 0)
    rc = bs_model_bench_read(model, b.before, info.cache_tokens, b.threads, json_array_get(b.rows, 1), err);
  if (*out != NULL && nodes != NULL) {
    json_object_set(*out, "profile", nodes);
    json_object_set_new(*out, "profile_work", json_string(b.work));
  }
  if (rc == BS_OK && *out == NULL) rc = bs_no_memory(err, "the rows");
  bs_model_peer_close(b.peer);
  json_decref(nodes);
  json_decref(memory);
  json_decref(b.rows);
  return rc;
}
