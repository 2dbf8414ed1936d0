/* SPDX-License-Identifier: MIT
 *
 * method_gradient.c - see method_gradient.h.
 */
#include "kit/method_gradient.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "tests/marks.h"

typedef struct gradients {
  const mg_case *c;
  const char *method;
  bs_layer_spec spec;
  uint32_t world;
  int64_t rows;
  const float *x, *w, *dy;
  double *dx, *dw, *db; /* what must come out: [rows,K], [N,K], [N] */
  bs_world *running;
  bs_proposal proposals[MF_RANKS];
} gradients;

typedef struct values {
  const float *data;
  int64_t cols, first;
} values;

static int32_t read_values(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t out_stride, bs_error *err) {
  (void)err;
  const values *v = ctx;
  const int64_t n = cols != NULL ? cols->count : v->cols;
  for (int64_t i = 0; i < nrows; i++)
    for (int64_t j = 0; j < n; j++) {
      const int64_t col = cols == NULL                        ? j
                          : cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[j]
                                                              : cols->begin + j;
      bs_convert(dtype, (char *)out + (uint64_t)(i * out_stride + j) * BS_DTYPE_BYTES(dtype), BS_F32,
                 &v->data[(row + i) * v->cols + col], 1);
    }
  return BS_OK;
}

static bs_source source_of(values *v, int64_t rows, uint32_t dtype) {
  bs_source s = {
      .struct_size = sizeof s, .dtype = dtype, .rows = rows, .cols = v->cols, .ctx = v, .read = read_values};
  return s;
}

/* A tensor of rubbish that no product of small integers gives. */
static bs_tensor take(bs_rank *rank, uint32_t dtype, int64_t rows, int64_t cols, uint32_t dims) {
  bs_tensor t;
  bs_error err = BS_ERROR_INIT;
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = dims};
  d.dims[0] = rows;
  d.dims[1] = dims > 1 ? cols : 0;
  d.strides[0] = dims > 1 ? (cols > 0 ? cols : 1) : 1;
  d.strides[1] = dims > 1;
  ck_assert_msg(bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t, &err) == BS_OK, "%s",
                err.message);
  memset(t.data, 0x5a, (size_t)(rows * (dims > 1 ? cols : 1)) * BS_DTYPE_BYTES(dtype));
  return t;
}

static double value(const bs_tensor *t, int64_t row, int64_t col) {
  return bs_load_f64(t->dtype, t->data, row * t->strides[0] + col);
}

static int64_t column(const bs_partition *cols, int64_t j) {
  if (cols == NULL) return j;
  return cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[j] : cols->begin + j;
}

static void expect(const gradients *g, uint32_t rank, const char *what, int64_t i, int64_t j, double got,
                   double want) {
  if (got != want)
    ck_abort_msg("%s P=%u B=%lld N=%lld K=%lld %s rank %u: %s[%lld,%lld] is %g, not %g", g->method, g->world,
                 (long long)g->spec.B, (long long)g->spec.N, (long long)g->spec.K,
                 bs_dtype_name(g->spec.x_dtype), rank, what, (long long)i, (long long)j, got, want);
}

static void check_values(const gradients *g, uint32_t rank, const bs_ownership *own, const bs_tensor *dx,
                         const bs_tensor *dw, const bs_tensor *db) {
  const int64_t N = own->row_count;
  int64_t K;
  int64_t *places = mf_places(own, g->spec.K, &K);
  const bs_partition *x_cols = g->spec.x_placement == BS_SPLIT ? own->columns : NULL;
  for (int64_t t = 0; t < g->rows; t++)
    for (int64_t k = 0; k < dx->dims[1]; k++)
      expect(g, rank, "dx", t, k, value(dx, t, k), g->dx[t * g->spec.K + column(x_cols, k)]);
  for (int64_t n = 0; n < N; n++)
    for (int64_t k = 0; k < K; k++) {
      const int64_t at = places[n * K + k];
      expect(g, rank, "dw", n, k, value(dw, n, k),
             at >= 0 ? g->dw[(own->row_begin + n) * g->spec.K + at] : 0.0);
    }
  free(places);
  for (int64_t n = 0; g->spec.has_bias && n < N; n++)
    expect(g, rank, "db", n, 0, bs_load_f64(db->dtype, db->data, n), g->db[own->row_begin + n]);
}

static void compare(const gradients *g, uint32_t rank, const char *what, uint64_t counted,
                    uint64_t proposed) {
  if (counted != proposed)
    ck_abort_msg("%s P=%u rank %u: the host counted %llu %s of a backward, it proposed %llu", g->method,
                 g->world, rank, (unsigned long long)counted, what, (unsigned long long)proposed);
}

static void check_counters(const gradients *g, bs_rank *rank, uint32_t me) {
  const bs_proposal *p = &g->proposals[me];
  const uint64_t B = (uint64_t)g->spec.B, rows = (uint64_t)g->rows;
  uint64_t payload = 0;
  for (uint32_t i = 0; i < p->n_backward; i++) payload += p->backward_payload[i] / B * rows;
  compare(g, me, "FLOPs", bs_rank_counter(rank, BS_COUNT_FLOPS), p->backward_flops / B * rows);
  compare(g, me, "collectives", bs_rank_counter(rank, BS_COUNT_COLLECTIVES), p->n_backward);
  compare(g, me, "payload bytes", bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), payload);
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  gradients *g = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank), wide = g->spec.x_dtype == BS_F64 ? BS_F64 : BS_F32;
  values wv = {g->w, g->spec.K, 0}, xv = {g->x, g->spec.K, 0}, yv = {g->dy, g->spec.N, 0},
         zero = {g->dy, g->spec.N, 0};
  const bs_source w = source_of(&wv, g->spec.N, g->spec.w_dtype), b = source_of(&zero, 1, BS_F32);
  const bs_source xs = source_of(&xv, g->spec.B, g->spec.x_dtype),
                  ys = source_of(&yv, g->spec.B, g->spec.y_dtype);
  bs_layer *layer = NULL;
  bs_ownership own = {.struct_size = sizeof own};
  int32_t rc = bs_layer_build(rank, g->method, &g->spec, &w, g->spec.has_bias ? &b : NULL, &layer, err);
  if (rc == BS_OK) rc = bs_layer_owns(layer, &own, err);
  if (rc != BS_OK) {
    bs_layer_free(layer);
    return rc;
  }
  const bs_partition *x_cols = g->spec.x_placement == BS_SPLIT ? own.columns : NULL;
  bs_partition features = {.struct_size = sizeof features, .total = g->spec.N, .count = g->spec.N};
  if (g->spec.y_placement == BS_SPLIT) bs_share(g->spec.N, me, g->world, &features.begin, &features.count);
  const int64_t x_width = x_cols != NULL ? x_cols->count : g->spec.K;
  int64_t k_own;
  free(mf_places(&own, g->spec.K, &k_own));
  bs_tensor x = take(rank, g->spec.x_dtype, g->rows, x_width, 2),
            dx = take(rank, g->spec.x_dtype, g->rows, x_width, 2);
  bs_tensor dy = take(rank, g->spec.y_dtype, g->rows, features.count, 2),
            dw = take(rank, wide, own.row_count, k_own, 2);
  bs_tensor db = take(rank, wide, own.row_count, 1, 1);
  if (x_width > 0) rc = api->tensor_read(rank, &xs, 0, x_cols, &x, err);
  if (rc == BS_OK && features.count > 0) rc = api->tensor_read(rank, &ys, 0, &features, &dy, err);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "test.built", err);
  if (rc == BS_OK && me == 0) bs_world_memory_peak_reset(g->running);
  const uint64_t before = bs_world_memory_now(g->running);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "test.reset", err);
  bs_rank_counters_reset(rank);
  if (rc == BS_OK) rc = bs_layer_backward(layer, &x, &dy, &dx, &dw, g->spec.has_bias ? &db : NULL, NULL, err);
  if (rc == BS_OK) check_counters(g, rank, me);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "test.done", err);
  if (rc == BS_OK) ck_assert_uint_eq(bs_world_memory_peak(g->running), before);
  if (rc == BS_OK) check_values(g, me, &own, &dx, &dw, &db);
  if (rc == BS_OK) rc = bs_rank_barrier(rank, "test.read", err);
  if (rc == BS_OK && g->c->step != MG_NONE) {
    const mg_stepping s = {
        g->c,  rank,  layer,          &own,          &x, &dy, &dw, g->spec.has_bias ? &db : NULL,
        g->dw, g->db, features.begin, features.count};
    rc = mg_steps(&s, err);
  }
  bs_tensor *const all[] = {&x, &dx, &dy, &dw, &db};
  for (size_t i = 0; i < 5; i++) api->tensor_free(rank, all[i]);
  bs_layer_free(layer);
  return rc;
}

static void reference(gradients *g) {
  const int64_t N = g->spec.N, K = g->spec.K;
  g->dx = calloc((size_t)(g->rows * K), sizeof *g->dx);
  g->dw = calloc((size_t)(N * K), sizeof *g->dw);
  g->db = calloc((size_t)N, sizeof *g->db);
  for (int64_t t = 0; t < g->rows; t++)
    for (int64_t n = 0; n < N; n++) {
      const double d = (double)g->dy[t * N + n];
      g->db[n] += d;
      for (int64_t k = 0; k < K; k++) {
        g->dx[t * K + k] += d * (double)g->w[n * K + k];
        g->dw[n * K + k] += d * (double)g->x[t * K + k];
      }
    }
}

int32_t mg_run(bs_context *context, const mg_case *c, bs_error *err) {
  bs_world_options options = {.struct_size = sizeof options,
                              .world_size = c->world,
                              .backend = c->backend,
                              .threads_per_rank = 1,
                              .timeout_s = 60};
  gradients g = {.c = c,
                 .method = c->method,
                 .spec = c->spec,
                 .world = c->world,
                 .rows = c->rows > 0 ? c->rows : c->spec.B,
                 .x = c->x,
                 .w = c->w,
                 .dy = c->dy};
  int32_t rc = BS_OK;
  g.spec.flags |= BS_LAYER_BACKWARD | mg_step_flags(c->step);
  for (uint32_t r = 0; rc == BS_OK && r < g.world; r++) {
    g.proposals[r].struct_size = sizeof g.proposals[r];
    rc = bs_method_propose(context, g.method, &g.spec, r, g.world, &g.proposals[r], err);
  }
  if (rc != BS_OK) return rc;
  reference(&g);
  rc = bs_world_create(context, &options, &g.running, err);
  if (rc == BS_OK) rc = bs_world_run(g.running, rank_main, &g, err);
  bs_world_destroy(g.running);
  free(g.dx);
  free(g.dw);
  free(g.db);
  return rc;
}
