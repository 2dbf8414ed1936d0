/* SPDX-License-Identifier: MIT
 *
 * method_fixture.c - see method_fixture.h.
 */
#include "kit/method_fixture.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "core/partition/partition.h"
#include "tests/marks.h"

/* A source over f32 values that records which of them were read, by rank. */
typedef struct recorder {
  const float *data;
  int64_t cols;
  _Atomic uint8_t *read_by;
  uint8_t bit;
} recorder;

typedef struct run {
  const mf_case *c;
  mf_result *out;
  bs_world *world;
  _Atomic uint8_t *read_by;
  int64_t rows;
} run;

static int64_t source_column(const bs_partition *cols, int64_t j) {
  if (cols == NULL) return j;
  return cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[j] : cols->begin + j;
}

static int32_t recorded_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                             void *out, int64_t out_stride, bs_error *err) {
  (void)err;
  const recorder *r = ctx;
  const int64_t n = cols != NULL ? cols->count : r->cols;
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  float picked[256];
  for (int64_t i = 0; i < nrows; i++)
    for (int64_t first = 0; first < n; first += 256) {
      const int64_t count = n - first < 256 ? n - first : 256;
      for (int64_t j = 0; j < count; j++) {
        const int64_t at = (row + i) * r->cols + source_column(cols, first + j);
        picked[j] = r->data[at];
        if (r->read_by != NULL) atomic_fetch_or_explicit(&r->read_by[at], r->bit, memory_order_relaxed);
      }
      bs_convert(dtype, (char *)out + (uint64_t)(i * out_stride + first) * size, BS_F32, picked,
                 (uint64_t)count);
    }
  return BS_OK;
}

static bs_source recorder_source(recorder *r, int64_t rows, uint32_t dtype) {
  bs_source s = {.struct_size = sizeof s,
                 .dtype = dtype,
                 .rows = rows,
                 .cols = r->cols,
                 .ctx = r,
                 .read = recorded_read};
  return s;
}

static uint32_t hook_before(void *user, uint32_t rank, const bs_coll_call *call) {
  run *u = user;
  mf_rank *r = &u->out->rank[rank];
  if (call->kind == BS_COLL_BARRIER) return 1;
  uint64_t width = call->count;
  uint32_t place, ranks;
  bs_hook_place(call, &place, &ranks);
  if (call->kind == BS_COLL_ALL_GATHER) width = call->counts[place];
  if (call->kind == BS_COLL_REDUCE_SCATTER)
    for (uint32_t i = (uint32_t)(width = 0); i < ranks; i++) width += call->counts[i];
  if (r->collectives < BS_MAX_PROPOSED) r->kinds[r->collectives] = call->kind;
  r->collectives++;
  free(r->partial);
  r->partial_count = call->rows * width;
  r->partial = calloc(r->partial_count + 1, sizeof *r->partial);
  const uint64_t size = BS_DTYPE_BYTES(call->dtype_in);
  for (uint64_t i = 0; i < call->rows; i++)
    bs_convert(BS_F32, r->partial + i * width, call->dtype_in,
               (const char *)call->in + i * (uint64_t)call->in_stride * size, width);
  return 1;
}

static int32_t fill_x(bs_rank *rank, const run *u, const bs_ownership *own, bs_tensor *x, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const bs_layer_spec *s = &u->c->spec;
  recorder r = {.data = u->c->x, .cols = s->K};
  bs_source source = recorder_source(&r, s->B, s->x_dtype);
  const bs_partition *cols = s->x_placement == BS_SPLIT ? own->columns : NULL;
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = s->x_dtype, .rank = 2};
  d.dims[0] = d.dims[1] = 0;
  d.dims[0] = u->rows;
  d.dims[1] = cols != NULL ? cols->count : s->K;
  d.strides[0] = d.dims[1] > 0 ? d.dims[1] : 1;
  d.strides[1] = 1;
  int32_t rc = api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, x, err);
  if (rc != BS_OK || d.dims[1] == 0) return rc;
  return api->tensor_read(rank, &source, 0, cols, x, err);
}

static void keep_y(mf_rank *r, const bs_tensor *y) {
  const uint64_t size = BS_DTYPE_BYTES(y->dtype), n = (uint64_t)(y->dims[0] * y->dims[1]);
  r->y_cols = y->dims[1];
  r->y_bytes = n * size;
  r->y_bits = calloc(1, r->y_bytes + 1);
  r->y = calloc(n + 1, sizeof *r->y);
  if (n > 0) memcpy(r->y_bits, y->data, r->y_bytes);
  for (uint64_t i = 0; i < n; i++) r->y[i] = bs_load_f64(y->dtype, r->y_bits, (int64_t)i);
}

static int64_t place_of(const bs_partition *cols, int64_t j) {
  if (cols == NULL) return j;
  return cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[j] : cols->begin + j;
}

int64_t *mf_places(const bs_ownership *own, int64_t K, int64_t *out_width) {
  const bs_kept *k = own->kept;
  const int64_t cols = own->columns != NULL ? own->columns->count : K, groups = (cols + 3) / 4;
  *out_width = k != NULL ? 2 * groups : cols;
  int64_t *places = calloc((size_t)(own->row_count * *out_width) + 1, sizeof *places);
  uint8_t *bits = calloc((size_t)groups + 1, 1);
  if (k != NULL) {
    ck_assert_int_eq(k->rows, own->row_count);
    ck_assert_int_eq(k->cols, cols);
  }
  for (int64_t i = 0; i < own->row_count; i++) {
    int64_t *row = places + i * *out_width, n = 0;
    for (int64_t j = 0; k == NULL && j < cols; j++) row[j] = place_of(own->columns, j);
    if (k == NULL) continue;
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(k->read(k->ctx, i, 1, 0, groups, bits, groups, &err) == BS_OK, "%s", err.message);
    for (int64_t g = 0; g < groups; g++) {
      ck_assert_int_eq(__builtin_popcount(bits[g]), 2);
      for (int64_t j = 0; j < 4; j++)
        if (bits[g] >> j & 1) row[n++] = 4 * g + j < cols ? place_of(own->columns, 4 * g + j) : -1;
    }
  }
  free(bits);
  return places;
}

int64_t mf_column(const mf_rank *r, int64_t i, int64_t j) {
  return r->places != NULL ? r->places[i * r->k_own + j] : r->columns[j];
}

static void keep_ownership(mf_rank *r, const bs_ownership *own, int64_t K) {
  r->row_begin = own->row_begin;
  r->row_count = own->row_count;
  r->k_own = own->columns != NULL ? own->columns->count : K;
  if (own->kept != NULL) {
    r->places = mf_places(own, K, &r->k_own);
    r->first_group = own->columns != NULL ? own->columns->begin / 4 : 0;
    return;
  }
  r->columns = calloc((size_t)r->k_own + 1, sizeof *r->columns);
  for (int64_t i = 0; i < r->k_own; i++) r->columns[i] = place_of(own->columns, i);
}

/* A layer by name through the embedding API, or through a table that the test brought along. */
typedef struct either_layer {
  bs_layer *named;
  const bs_method *table;
  void *layer;
} either_layer;

static int32_t layer_build(bs_rank *rank, const mf_case *c, const bs_source *w, const bs_source *b,
                           either_layer *l, bs_error *err) {
  l->table = c->table;
  if (c->table != NULL)
    return c->table->build(c->table_state, bs_rank_get_api(), rank, &c->spec, w, b, &l->layer, err);
  return bs_layer_build(rank, c->method, &c->spec, w, b, &l->named, err);
}
static int32_t layer_owns(either_layer *l, bs_ownership *own, bs_error *err) {
  return l->table != NULL ? l->table->owns(l->layer, own, err) : bs_layer_owns(l->named, own, err);
}
static int32_t layer_forward(either_layer *l, const bs_tensor *x, bs_tensor *y, bs_error *err) {
  return l->table != NULL ? l->table->forward(l->layer, x, y, NULL, err)
                          : bs_layer_forward(l->named, x, y, NULL, err);
}
static int32_t layer_read(either_layer *l, bs_tensor *out, bs_error *err) {
  return l->table != NULL ? l->table->read_weights(l->layer, 0, out, err)
                          : bs_layer_read_weights(l->named, 0, out, err);
}
static void layer_free(either_layer *l) {
  if (l->table != NULL && l->layer != NULL) l->table->layer_free(l->layer);
  if (l->named != NULL) bs_layer_free(l->named);
}

static int32_t keep_weights(bs_rank *rank, either_layer *l, mf_rank *r, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  r->weights = calloc((size_t)(r->row_count * r->k_own) + 1, sizeof *r->weights);
  if (r->row_count * r->k_own == 0) return BS_OK;
  bs_tensor t;
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = 2};
  d.dims[0] = r->row_count;
  d.dims[1] = d.strides[0] = r->k_own;
  d.strides[1] = 1;
  int32_t rc = api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t, err);
  if (rc != BS_OK) return rc;
  rc = layer_read(l, &t, err);
  if (rc == BS_OK) memcpy(r->weights, t.data, (size_t)(r->row_count * r->k_own) * sizeof(float));
  api->tensor_free(rank, &t);
  return rc;
}

static int64_t y_columns(const bs_layer_spec *s, uint32_t rank, uint32_t world) {
  int64_t begin, count = s->N;
  if (s->y_placement == BS_SPLIT) bs_share(s->N, rank, world, &begin, &count);
  return count;
}

static int32_t rank_forward(bs_rank *rank, run *u, either_layer *l, mf_rank *r, const bs_ownership *own,
                            bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const mf_case *c = u->c;
  bs_tensor x, y;
  memset(&x, 0, sizeof x);
  memset(&y, 0, sizeof y);
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = c->spec.y_dtype, .rank = 2};
  d.dims[0] = u->rows;
  d.dims[1] = y_columns(&c->spec, api->rank(rank), c->world);
  d.strides[0] = d.dims[1] > 0 ? d.dims[1] : 1;
  d.strides[1] = 1;
  int32_t rc = fill_x(rank, u, own, &x, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &y, err);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "mf.forward", err);
  if (rc == BS_OK && api->rank(rank) == 0) {
    u->out->memory_after_build = bs_world_memory_now(u->world);
    u->out->memory_peak = bs_world_memory_peak(u->world);
    bs_world_memory_peak_reset(u->world);
  }
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "mf.reset", err);
  bs_rank_counters_reset(rank);
  for (uint32_t i = 0; rc == BS_OK && i < (c->forwards > 0 ? c->forwards : 1); i++)
    rc = layer_forward(l, &x, &y, err);
  for (uint32_t i = 0; i < BS_COUNT_COUNT_; i++) r->counters[i] = bs_rank_counter(rank, i);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "mf.done", err);
  if (rc == BS_OK && api->rank(rank) == 0) u->out->memory_peak_forward = bs_world_memory_peak(u->world);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "mf.read", err); /* no rank may allocate before it is read */
  if (rc == BS_OK) keep_y(r, &y);
  if (y.data != NULL) api->tensor_free(rank, &y);
  if (x.data != NULL) api->tensor_free(rank, &x);
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  run *u = arg;
  const uint32_t me = bs_rank_get_api()->rank(rank);
  const mf_case *c = u->c;
  mf_rank *r = &u->out->rank[me];
  recorder wr = {.data = c->w, .cols = c->spec.K, .read_by = u->read_by, .bit = (uint8_t)(1u << me)};
  recorder br = {.data = c->bias, .cols = c->spec.N};
  bs_source w = recorder_source(&wr, c->spec.N, c->spec.w_dtype), b = recorder_source(&br, 1, BS_F32);
  either_layer l = {0};
  bs_ownership own = {.struct_size = sizeof own};
  int32_t rc = layer_build(rank, c, &w, c->bias != NULL ? &b : NULL, &l, err);
  if (rc == BS_OK) rc = layer_owns(&l, &own, err);
  if (rc == BS_OK) {
    keep_ownership(r, &own, c->spec.K);
    rc = rank_forward(rank, u, &l, r, &own, err);
  }
  if (rc == BS_OK) rc = keep_weights(rank, &l, r, err);
  for (uint32_t i = 0; rc == BS_OK && i < BS_REGION_BUILTIN_COUNT_; i++) {
    bs_region_stats stats = {.struct_size = sizeof stats};
    if (bs_rank_region_stats(rank, i, &stats, NULL) == BS_OK) r->regions[i] = stats.count;
  }
  layer_free(&l);
  return rc;
}

bs_context *mf_context(void) {
  return mf_context_with(NULL, 0);
}

bs_context *mf_context_with(const char *const *params, uint32_t count) {
  const char *dir = getenv("BS_TEST_PLUGIN_DIR");
  bs_context_options options = {
      .struct_size = sizeof options, .trust = BS_TRUST_ANY, .params = params, .n_params = count};
  if (dir != NULL) {
    options.plugin_dirs = &dir;
    options.n_plugin_dirs = 1;
  }
  bs_context *context = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s: %s", err.id, err.message);
  return context;
}

bs_layer_spec mf_spec(int64_t B, int64_t N, int64_t K, uint32_t dtype) {
  bs_layer_spec s = {.struct_size = sizeof s, .B = B, .N = N, .K = K};
  s.x_dtype = s.w_dtype = s.y_dtype = dtype;
  return s;
}

int32_t mf_run(bs_context *context, const mf_case *c, mf_result *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  run u = {.c = c, .out = out, .rows = c->rows > 0 ? c->rows : c->spec.B};
  const size_t weights = (size_t)(c->spec.N * c->spec.K) + 1;
  if (weights <= 1u << 20) out->read_by = calloc(1, weights); /* large layers are not recorded: it is slow */
  u.read_by = (_Atomic uint8_t *)out->read_by;
  bs_collective_hook hook = {.user = &u, .before = hook_before};
  bs_world_options options = {.struct_size = sizeof options,
                              .world_size = c->world,
                              .backend = c->backend != NULL ? c->backend : "ref",
                              .threads_per_rank = 1,
                              .timeout_s = 60,
                              .hook = &hook};
  for (uint32_t r = 0; c->table == NULL && r < c->world; r++) {
    out->rank[r].proposal.struct_size = sizeof out->rank[r].proposal;
    int32_t rc = bs_method_propose(context, c->method, &c->spec, r, c->world, &out->rank[r].proposal, err);
    if (rc != BS_OK) return rc;
  }
  int32_t rc = bs_world_create(context, &options, &u.world, err);
  if (rc != BS_OK) return rc;
  rc = bs_world_run(u.world, rank_main, &u, err);
  snprintf(out->algorithms, sizeof out->algorithms, "%s", bs_world_algorithms(u.world));
  bs_world_destroy(u.world);
  return rc;
}

void mf_run_ok(bs_context *context, const mf_case *c, mf_result *out) {
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = mf_run(context, c, out, &err);
  ck_assert_msg(rc == BS_OK, "%s on %s, P=%u, B=%lld N=%lld K=%lld: %s %s (%s)", c->method,
                c->backend != NULL ? c->backend : "ref", c->world, (long long)c->spec.B, (long long)c->spec.N,
                (long long)c->spec.K, err.id, err.message, err.where);
}

void mf_free(mf_result *result) {
  for (uint32_t r = 0; r < MF_RANKS; r++) {
    mf_rank *k = &result->rank[r];
    free(k->y);
    free(k->y_bits);
    free(k->partial);
    free(k->columns);
    free(k->places);
    free(k->weights);
  }
  free(result->read_by);
  memset(result, 0, sizeof *result);
}

static double rounded(uint32_t dtype, float value) {
  uint64_t raw = 0;
  bs_convert(dtype, &raw, BS_F32, &value, 1);
  return bs_load_f64(dtype, &raw, 0);
}

double *mf_reference(const mf_case *c) {
  const bs_layer_spec *s = &c->spec;
  const int64_t rows = c->rows > 0 ? c->rows : s->B;
  double *y = calloc((size_t)(rows * s->N) + 1, sizeof *y);
  for (int64_t t = 0; t < rows; t++)
    for (int64_t n = 0; n < s->N; n++) {
      double sum = c->bias != NULL ? (double)c->bias[n] : 0.0;
      for (int64_t k = 0; k < s->K; k++)
        sum += rounded(s->x_dtype, c->x[t * s->K + k]) * rounded(s->w_dtype, c->w[n * s->K + k]);
      y[t * s->N + n] = sum;
    }
  return y;
}

float *mf_integers(uint64_t seed, int64_t count) {
  float *v = calloc((size_t)count + 1, sizeof *v);
  bs_rng_uniform(seed, 11, 0, (uint64_t)count, v);
  for (int64_t i = 0; i < count; i++) v[i] = (float)(int)(v[i] * 5.0f) - 2.0f;
  return v;
}

float *mf_signed_zeros(uint64_t seed, int64_t count) {
  float *w = mf_integers(seed, count);
  for (int64_t i = 0; i < count; i += 3)
    if (w[i] == 0.0f) w[i] = -0.0f;
  return w;
}

uint32_t mf_big(void) {
  const char *big = getenv("BS_TEST_BIG");
  const long times = big != NULL ? strtol(big, NULL, 10) : 0;
  return times > 0 && times <= INT32_MAX ? (uint32_t)times : 1u;
}

float *mf_normals(uint64_t seed, int64_t count) {
  float *v = calloc((size_t)count + 1, sizeof *v);
  bs_rng_normal(seed, 12, 0, (uint64_t)count, v);
  return v;
}

bs_mask mf_mask(const char *name) {
  bs_mask mask;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_mask_parse(name, NULL, NULL, &mask, &err) == BS_OK, "%s", err.message);
  return mask;
}

const bs_mask *mf_mask_in(const char *name, bs_mask *room) {
  if (name == NULL) return NULL;
  *room = mf_mask(name);
  return room;
}
