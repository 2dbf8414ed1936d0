/* SPDX-License-Identifier: MIT
 * case.c - runs one layer on one world and collects the results for the gates and the record. Slow work
 * (references, JSON) is done outside rank_main. */
#include "lab/case/case.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/text.h"
#include "core/plugin/registry.h"
#include "lab/case/ask.h"
#include "lab/case/joint.h"
#include "lab/case/owners.h"
#include "lab/case/place.h"
#include "lab/case/watch.h"
#include "lab/error.h"
#include "lab/peers/peers.h"
#include "lab/stop.h"
#include "lab/store/env.h"

typedef struct case_run {
  bs_case_kept kept;
  const bs_case *c;
  bs_case_result *out;
  bs_watch watch;
  pthread_mutex_t lock; /* of the next two, which keep_stopped needs */
  int64_t begun;        /* the last forward that a rank has begun; those of the warm-up are below 0 */
  int stopping;         /* no rank begins another one */
  bs_case copy;
  bs_case_result result;
} case_run;

void bs_case_keep(bs_case_kept *run) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bs_case_kept *kept;
  pthread_mutex_lock(&lock);
  run->next = kept;
  kept = run;
  pthread_mutex_unlock(&lock);
}

void bs_case_tell(const bs_case *c, const char *what, uint64_t done, uint64_t total) {
  char text[48];
  if (!c->progress) return;
  if (c->gate) snprintf(text, sizeof text, "%s %s", c->gate, what);
  c->progress(c->progress_user, c->gate ? text : what, done, total);
}

void bs_case_tell_user(void *user, const char *what, uint64_t done, uint64_t total) {
  bs_case_tell(user, what, done, total);
}

const char *bs_case_option(const bs_layer_spec *spec, const char *key) {
  for (uint32_t i = 0; i < spec->n_options; ++i)
    if (strcmp(spec->option_keys[i], key) == 0) return spec->option_values[i];
  return "";
}

int32_t bs_case_read_changed(const bs_source *inner, int64_t room,
                             void (*change)(void *user, int64_t row, double *values), void *user, int64_t row,
                             int64_t nrows, const bs_partition *cols, uint32_t dtype, void *out,
                             int64_t out_stride, bs_error *err) {
  double *values = malloc((size_t)(inner->cols + room + 1) * sizeof *values);
  int32_t rc = values ? BS_OK : bs_no_memory(err, "a row of %lld", (long long)inner->cols);
  for (int64_t i = 0; rc == BS_OK && i < nrows; ++i) {
    rc = inner->read(inner->ctx, row + i, 1, NULL, BS_F64, values, inner->cols, err);
    if (rc != BS_OK) break;
    change(user, row + i, values);
    const int64_t count = cols ? cols->count : inner->cols;
    for (int64_t j = 0; j < count; ++j)
      bs_store_f64(dtype, out, i * out_stride + j, values[bs_view_column(cols, j)]);
  }
  free(values);
  return rc;
}

int32_t bs_case_propose(const bs_case *c, uint32_t rank, bs_proposal *out, bs_error *err) {
  *out = (bs_proposal){.struct_size = sizeof *out};
  return bs_method_propose(c->context, c->method, &c->spec, rank, c->world_size, out, err);
}

uint32_t bs_case_wide(const bs_layer_spec *s) {
  return s->x_dtype == BS_F64 || s->w_dtype == BS_F64 || s->y_dtype == BS_F64 ? BS_F64 : BS_F32;
}

bs_layer_spec bs_case_spec(const bs_case *c, uint32_t rank) {
  bs_layer_spec spec = c->spec;
  if (c->fault && c->fault->layer) c->fault->layer(c->fault->user, rank, &spec);
  return spec;
}

static int32_t view_of(const bs_case *c, uint32_t rank, uint32_t part, const bs_source *in, bs_source *out,
                       bs_error *err) {
  *out = *in;
  if (!c->fault || !c->fault->wrap) return BS_OK;
  return c->fault->wrap(c->fault->user, rank, part, in, out, err);
}

int32_t bs_case_tensor(bs_rank *rank, uint32_t dtype, uint32_t dims, int64_t rows, int64_t cols,
                       bs_tensor *out, bs_error *err) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = dims};
  d.dims[0] = rows;
  if (dims > 1) d.dims[1] = cols;
  return bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, out, err);
}

int32_t bs_case_sources(const bs_case *c, uint32_t rank, bs_watch *watch, bs_case_source *out,
                        bs_error *err) {
  int32_t rc = view_of(c, rank, BS_PART_X, c->x, &out->x, err);
  if (rc == BS_OK) rc = view_of(c, rank, BS_PART_W, c->w, &out->unwatched, err);
  if (rc == BS_OK && c->bias) rc = view_of(c, rank, BS_PART_BIAS, c->bias, &out->bias_view, err);
  if (rc != BS_OK) return rc;
  out->bias = c->bias ? &out->bias_view : NULL;
  if (rank == 0) bs_case_tell(c, "build", 0, (uint64_t)c->spec.N);
  bs_watch_source(watch, &out->view, &out->unwatched, rank == 0, &out->w);
  return BS_OK;
}

int32_t bs_case_ownership(bs_layer *layer, bs_case_rank *out, bs_error *err) {
  out->owns.struct_size = sizeof out->owns;
  const int32_t rc = bs_layer_owns(layer, &out->owns, err);
  if (rc != BS_OK) return rc;
  if (!out->owns.columns) return bs_owners_copy(out, err);
  out->columns_storage = *out->owns.columns;
  out->owns.columns = &out->columns_storage;
  if (out->columns_storage.kind != BS_PARTITION_GATHER) return bs_owners_copy(out, err);
  const size_t bytes = (size_t)out->columns_storage.count * sizeof(uint32_t);
  out->columns = malloc(bytes ? bytes : 1);
  if (!out->columns) return bs_no_memory(err, "a column list");
  if (bytes) memcpy(out->columns, out->columns_storage.columns, bytes);
  out->columns_storage.columns = out->columns;
  return bs_owners_copy(out, err);
}

int32_t bs_case_features(const bs_case *c, bs_layer *layer, uint32_t rank, int64_t *out_begin,
                         int64_t *out_count, bs_error *err) {
  *out_begin = 0;
  *out_count = c->spec.N;
  if (c->spec.y_placement != BS_SPLIT) return BS_OK;
  bs_proposal proposal;
  int32_t rc = bs_case_propose(c, rank, &proposal, err);
  if (rc != BS_OK) return rc;
  if (proposal.split == BS_SPLIT_K) {
    const int64_t P = c->world_size, each = c->spec.N / P, more = c->spec.N % P;
    *out_count = each + (rank < more);
    *out_begin = each * rank + (rank < more ? rank : more);
    return BS_OK;
  }
  bs_ownership owns = {.struct_size = sizeof owns};
  rc = bs_layer_owns(layer, &owns, err);
  *out_begin = owns.row_begin;
  *out_count = owns.row_count;
  return rc;
}

int32_t bs_case_input(const bs_case *c, bs_rank *rank, bs_layer *layer, const bs_source *source,
                      bs_tensor *out_x, bs_error *err) {
  bs_ownership owns = {.struct_size = sizeof owns};
  int32_t rc = c->spec.x_placement == BS_SPLIT ? bs_layer_owns(layer, &owns, err) : BS_OK;
  const bs_partition *cols = owns.columns; /* NULL: all */
  int64_t first = 0, tokens = 0;
  bs_place_tokens(c, c->spec.x_placement, bs_rank_get_api()->rank(rank), &first, &tokens);
  if (rc == BS_OK)
    rc = bs_case_tensor(rank, c->spec.x_dtype, 2, tokens, cols ? cols->count : c->spec.K, out_x, err);
  return rc == BS_OK ? bs_place_read(c, rank, source, cols, first, out_x, err) : rc;
}

/* May the rank begin forward i? After a request to stop every rank still runs those that another one has
 * begun and may wait for it in; then it ends, with an error unless the case keeps what was timed. */
static int32_t may_begin(case_run *run, int64_t i, int *out_may, bs_error *err) {
  *out_may = 1;
  if (!run->c->keep_stopped) return bs_stop_check(err);
  pthread_mutex_lock(&run->lock);
  if (bs_stop_asked() != 0) run->stopping = 1;
  if (!run->stopping && i > run->begun) run->begun = i;
  *out_may = i <= run->begun;
  const int timed = run->begun >= 0;
  pthread_mutex_unlock(&run->lock);
  return *out_may || timed ? BS_OK : bs_stop_check(err);
}

/* Forwards: warm-up, then the timed ones; every output is hashed after its own timing, and is the first
 * one's. */
static int32_t forwards(case_run *run, bs_rank *rank, uint32_t index, bs_layer *layer, const bs_tensor *x,
                        bs_tensor *y, bs_error *err) {
  const bs_case *c = run->c;
  bs_case_rank *mine = &run->out->ranks[index];
  const size_t bytes = (size_t)(mine->y_rows * mine->y_cols) * BS_DTYPE_BYTES(c->spec.y_dtype);
  const int64_t iterations = c->iterations > 0 ? c->iterations : 1;
  uint64_t first_hash = 0;
  mine->same_each_time = 1;
  for (int64_t i = -c->warmup; i < iterations; ++i) {
    if (i == 0) {
      bs_rank_regions_reset(rank);
      bs_rank_counters_reset(rank);
    }
    int may = 1;
    int32_t rc = may_begin(run, i, &may, err);
    if (!may) return rc;
    if (rc == BS_OK) rc = bs_layer_forward(layer, x, y, NULL, err);
    if (rc != BS_OK) return rc;
    if (i == 0) {
      for (uint32_t k = 0; k < BS_COUNT_COUNT_; ++k) mine->counters[k] = bs_rank_counter(rank, k);
    }
    if (index == 0 && i < 0) bs_case_tell(c, "warm-up", (uint64_t)(i + c->warmup) + 1, (uint64_t)c->warmup);
    rc = bs_rank_copy_out(rank, y, mine->y, err);
    if (rc != BS_OK) return rc;
    mine->hash = bs_hash64(mine->y, bytes);
    if (i == -c->warmup) first_hash = mine->hash;
    if (mine->hash != first_hash) mine->same_each_time = 0;
    if (index == 0 && i >= 0) bs_case_tell(c, "forward", (uint64_t)i + 1, (uint64_t)iterations);
  }
  return BS_OK;
}

static int32_t build_and_run(case_run *run, bs_rank *rank, uint32_t index, const bs_case_source *s,
                             bs_error *err) {
  const bs_case *c = run->c;
  const bs_rank_api *api = bs_rank_get_api();
  bs_case_rank *mine = &run->out->ranks[index];
  bs_layer *layer = NULL;
  bs_tensor x = {0};
  bs_tensor y = {0};
  const bs_layer_spec spec = bs_case_spec(c, index);
  int32_t rc = bs_layer_build(rank, c->method, &spec, &s->w, s->bias, &layer, err);
  if (rc == BS_OK) rc = bs_case_ownership(layer, mine, err);
  if (rc == BS_OK) rc = bs_case_features(c, layer, index, &mine->y_begin, &mine->y_cols, err);
  if (rc == BS_OK) {
    int64_t begin = 0;
    bs_place_tokens(c, c->spec.y_placement, index, &begin, &mine->y_rows);
    const size_t bytes = (size_t)(mine->y_rows * mine->y_cols) * BS_DTYPE_BYTES(c->spec.y_dtype);
    mine->y = calloc(1, bytes ? bytes : 1);
    mine->y_bytes = bytes;
    if (!mine->y) rc = bs_no_memory(err, "an output of %zu bytes", bytes);
  }
  if (rc == BS_OK) rc = bs_case_input(c, rank, layer, &s->x, &x, err);
  if (rc == BS_OK) rc = bs_case_tensor(rank, c->spec.y_dtype, 2, mine->y_rows, mine->y_cols, &y, err);
  if (rc == BS_OK) rc = forwards(run, rank, index, layer, &x, &y, err);
  if (y.data) api->tensor_free(rank, &y);
  if (x.data) api->tensor_free(rank, &x);
  bs_layer_free(layer);
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  case_run *run = arg;
  const uint32_t index = bs_rank_get_api()->rank(rank);
  bs_case_source s;
  const int32_t rc = bs_case_sources(run->c, index, &run->watch, &s, err);
  return rc == BS_OK ? build_and_run(run, rank, index, &s, err) : rc;
}

static void add_timing(json_t *timings, const bs_region_stats *s) {
  json_object_set_new(timings, s->name,
                      json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "count", (double)s->count, "sum_ms",
                                s->sum_ms, "avg_ms", s->avg_ms, "p50_ms", s->p50_ms, "p95_ms", s->p95_ms,
                                "min_ms", s->min_ms, "max_ms", s->max_ms));
  if (!s->device_clock) return;
  json_t *timing = json_object_get(timings, s->name);
  json_object_set_new(timing, "enqueue_p50_ms", json_real(s->enqueue_p50_ms));
  json_object_set_new(timing, "host_avg_ms", s->host_avg_ms > 0 ? json_real(s->host_avg_ms) : json_null());
}

/* Adds the samples of a region that has no arms (lab/store/run_samples.c), as "samples_ms". */
static void add_pass_samples(bs_rank *rank, uint32_t region, json_t *timings, const char *name) {
  enum { MOST = 256 };
  double ms[MOST];
  if (strcmp(name, "backward") != 0 && strcmp(name, "total_step") != 0) return;
  const uint64_t n = bs_rank_region_samples(rank, region, ms, MOST);
  json_t *list = json_array();
  for (uint64_t i = 0; i < n; ++i) json_array_append_new(list, json_real(ms[i]));
  if (n > 0) json_object_set(json_object_get(timings, name), "samples_ms", list);
  json_decref(list);
}

int32_t bs_case_time(bs_rank *rank, bs_case_rank *out, bs_error *err) {
  if (out->timings) return BS_OK;
  out->timings = json_object();
  if (!out->timings) return bs_no_memory(err, "timings");
  for (uint32_t i = 0; i < bs_rank_region_count(rank); ++i) {
    bs_region_stats s = {.struct_size = sizeof s};
    const int32_t rc = bs_rank_region_stats(rank, i, &s, err);
    if (rc != BS_OK) return rc;
    add_timing(out->timings, &s);
    add_pass_samples(rank, i, out->timings, s.name);
    if (i != BS_REGION_FORWARD) continue;
    out->forward_sum_ms = s.sum_ms;
    out->by_events = s.device_clock;
    out->forward_p50_ms = s.p50_ms;
    out->enqueue_p50_ms = s.enqueue_p50_ms;
    out->host_avg_ms = s.host_avg_ms;
  }
  bs_device_state state;
  out->has_device_state = bs_rank_device_state(rank, &state, NULL) == BS_OK;
  out->device_peak = out->has_device_state ? state.memory_peak_bytes : 0;
  return BS_OK;
}

/* Numbers that are not known are left out. */
static json_t *plan_json(const bs_choice_info *info) {
  const bs_op_echo *echo = info->echo;
  json_t *row = json_pack("{s:o,s:o,s:o}", "key", bs_env_string(info->key), "implementation",
                          bs_env_string(info->chosen), "knobs", bs_env_string(echo->knobs));
  if (info->knobs[0] != '\0') json_object_set_new(row, "given", bs_env_string(info->knobs));
  if (echo->registers >= 0) json_object_set_new(row, "registers", json_integer(echo->registers));
  if (echo->shared_bytes >= 0) json_object_set_new(row, "shared_bytes", json_integer(echo->shared_bytes));
  if (echo->spill_bytes >= 0) json_object_set_new(row, "spill_bytes", json_integer(echo->spill_bytes));
  if (echo->build[0] != '\0') json_object_set_new(row, "build", bs_env_string(echo->build));
  return row;
}

/* Collects the plans sorted by key: the ranks prepare in any order. */
static int32_t collect_plans(const bs_world *world, json_t **out, bs_error *err) {
  json_t *list = json_array();
  for (uint32_t i = 0; list != NULL && i < bs_world_choice_count(world); i++) {
    bs_choice_info info = {.struct_size = sizeof info};
    if (bs_world_choice_get(world, i, &info, NULL) != BS_OK || info.echo == NULL) continue;
    size_t at = 0;
    while (at < json_array_size(list) && strcmp(bs_tune_text(json_array_get(list, at), "key"), info.key) < 0)
      at++;
    if (json_array_insert_new(list, at, plan_json(&info)) != 0) return bs_no_memory(err, "the plans");
  }
  *out = list;
  return list != NULL ? BS_OK : bs_no_memory(err, "the plans");
}

int32_t bs_case_collect(const bs_case *c, bs_world *world, bs_case_result *out, bs_error *err) {
  if (!out->ranks) {
    out->world_size = c->world_size;
    out->ranks = calloc(c->world_size, sizeof *out->ranks);
    if (!out->ranks) return bs_no_memory(err, "%u ranks", c->world_size);
  }
  out->memory_peak = bs_world_memory_peak(world);
  out->threads_per_rank = bs_world_threads_per_rank(world);
  out->shared_device = bs_world_shared_device(world);
  out->algorithms = bs_strdup(bs_world_algorithms(world));
  if (!out->algorithms) return bs_no_memory(err, "the algorithms");
  if (out->plans == NULL) {
    const int32_t listed = collect_plans(world, &out->plans, err);
    if (listed != BS_OK) return listed;
  }
  const int assembles = !out->whole && bs_place_assembles(c);
  int32_t rc = BS_OK;
  for (uint32_t r = 0; rc == BS_OK && r < out->world_size; ++r)
    if (bs_world_rank(world, r)) rc = bs_case_time(bs_world_rank(world, r), &out->ranks[r], err);
  if (rc == BS_OK) rc = bs_joint_collect(world, out, err);
  for (uint32_t r = 0; rc == BS_OK && r < out->world_size; ++r) {
    bs_case_rank *mine = &out->ranks[r];
    rc = bs_case_propose(c, r, &mine->proposal, err);
    if (rc != BS_OK) return rc;
    mine->proposal.repro = bs_world_repro(world, mine->proposal.repro);
    out->weight_bytes += mine->proposal.weight_bytes;
    const int64_t rows = assembles ? mine->y_rows : c->spec.B;
    if (c->fault && c->fault->output && mine->y && rows > 0) {
      c->fault->output(c->fault->user, r, mine->y, rows, mine->y_cols, c->spec.y_dtype);
      mine->hash = bs_hash64(mine->y, (size_t)(rows * mine->y_cols) * BS_DTYPE_BYTES(c->spec.y_dtype));
    }
  }
  return rc == BS_OK && assembles && bs_case_judged(c) ? bs_place_assemble(c, out, err) : rc;
}

int bs_case_judged(const bs_case *c) {
  return bs_context_rank(c->context) == 0;
}

int32_t bs_case_world(const bs_case *c, bs_world **out_world, bs_error *err) {
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = c->world_size,
                                    .backend = c->backend,
                                    .comm = c->comm,
                                    .threads_per_rank = c->threads_per_rank,
                                    .bind = c->bind,
                                    .sync_mode = c->sync_mode,
                                    .timeout_s = c->timeout_s,
                                    .choices = c->choices,
                                    .n_choices = c->n_choices,
                                    .algorithm = c->algorithm,
                                    .topology = c->topology,
                                    .hook = c->fault && c->fault->hook ? c->fault->hook : c->hook};
  const int32_t rc = bs_peers_meet(c->peers, err);
  return rc == BS_OK ? bs_world_create(c->context, &options, out_world, err) : rc;
}

int32_t bs_case_run(const bs_case *c, bs_case_result *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  bs_world *world = NULL;
  out->world_size = c->world_size;
  out->iterations = c->iterations > 0 ? c->iterations : 1;
  out->ranks = calloc(c->world_size, sizeof *out->ranks);
  if (!out->ranks) return bs_no_memory(err, "%u ranks", c->world_size);
  case_run *run = calloc(1, sizeof *run);
  if (!run) {
    bs_case_result_free(out);
    return bs_no_memory(err, "a run");
  }
  run->c = &run->copy;
  run->copy = *c;
  run->result = *out;
  run->out = &run->result;
  run->begun = INT64_MIN;
  pthread_mutex_init(&run->lock, NULL);
  run->watch.tell = c->progress ? &run->copy : NULL;
  int32_t rc = bs_case_world(c, &world, err);
  if (rc == BS_OK) rc = bs_world_run(world, rank_main, run, err);
  if (bs_context_stuck(c->context) > 0) { /* a rank that has not returned may still use all of it */
    bs_case_keep(&run->kept);
    memset(out, 0, sizeof *out);
    return rc;
  }
  *out = run->result;
  if (run->stopping) out->iterations = run->begun + 1;
  pthread_mutex_destroy(&run->lock);
  free(run);
  if (rc == BS_OK) rc = bs_case_collect(c, world, out, err);
  if (rc == BS_OK) rc = bs_owners_check(c, out, err);
  bs_world_destroy(world);
  if (rc != BS_OK) bs_case_result_free(out);
  return rc;
}

void bs_case_result_free(bs_case_result *result) {
  for (uint32_t r = 0; result->ranks && r < result->world_size; ++r) {
    free(result->ranks[r].y);
    free(result->ranks[r].columns);
    bs_owners_free(&result->ranks[r]);
    json_decref(result->ranks[r].timings);
  }
  free(result->ranks);
  free(result->algorithms);
  json_decref(result->plans);
  memset(result, 0, sizeof *result);
}

int32_t bs_case_column_ranks(const bs_case *c, const bs_case_result *result, uint32_t **out, bs_error *err) {
  *out = NULL;
  if (result->world_size < 2 || result->ranks[0].proposal.split != BS_SPLIT_K) return BS_OK;
  if (bs_owners_by_row(result)) return BS_OK; /* columns are not enough: owners.h */
  uint32_t *ranks = calloc((size_t)(c->spec.K > 0 ? c->spec.K : 1), sizeof *ranks);
  if (!ranks) return bs_no_memory(err, "a column map");
  for (uint32_t r = 0; r < result->world_size; ++r) {
    const bs_partition *p = result->ranks[r].owns.columns;
    for (int64_t i = 0; p && i < p->count; ++i) ranks[bs_view_column(p, i)] = r;
  }
  *out = ranks;
  return BS_OK;
}
