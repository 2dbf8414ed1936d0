/* SPDX-License-Identifier: MIT
 *
 * method_gradient.c - see method_gradient.h.
 */
#include "kit/method_gradient.h"

#include <math.h>
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
  double *dx, *dw, *db;                /* what must come out: [rows,K], [N,K], [N] */
  double *dx_size, *dw_size, *db_size; /* what the absolute values of their terms add up to */
  bs_world *running;
  bs_proposal proposals[MF_RANKS];
} gradients;

/* Values of f32 as a source of another dtype. */
static bs_source source_of(const float *data, int64_t rows, int64_t cols, uint32_t dtype) {
  bs_source s;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_source_from_memory(data, BS_F32, rows, cols, cols, &s, &err) == BS_OK, "%s", err.message);
  s.dtype = dtype;
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

double mg_slack(const bs_layer_spec *spec, double size) {
  if (spec->activation == BS_ACT_NONE) return 0.0;
  return 3 * bs_dtype_unit_roundoff(spec->y_dtype) * size + 16 * 0x1p-24 * size + 0x1p-24;
}

static void expect(const gradients *g, uint32_t rank, const char *what, int64_t i, int64_t j, double got,
                   double want, double size) {
  if (!(fabs(got - want) <= mg_slack(&g->spec, size)))
    ck_abort_msg(
        "%s on %s P=%u B=%lld N=%lld K=%lld %s activation %u y %u rank %u: %s[%lld,%lld] is %.9g, not %.9g",
        g->method, g->c->backend, g->world, (long long)g->spec.B, (long long)g->spec.N, (long long)g->spec.K,
        bs_dtype_name(g->spec.x_dtype), g->spec.activation, g->spec.y_placement, rank, what, (long long)i,
        (long long)j, got, want);
}

static void check_values(const gradients *g, uint32_t rank, const bs_ownership *own, const bs_tensor *dx,
                         const bs_tensor *dw, const bs_tensor *db) {
  const int64_t N = own->row_count;
  int64_t K;
  int64_t *places = mf_places(own, g->spec.K, &K);
  const bs_partition *x_cols = g->spec.x_placement == BS_SPLIT ? own->columns : NULL;
  for (int64_t t = 0; t < g->rows; t++)
    for (int64_t k = 0; k < dx->dims[1]; k++) {
      const int64_t at = t * g->spec.K + column(x_cols, k);
      expect(g, rank, "dx", t, k, value(dx, t, k), g->dx[at], g->dx_size[at]);
    }
  for (int64_t n = 0; n < N; n++)
    for (int64_t k = 0; k < K; k++) {
      const int64_t place = places[n * K + k], at = (own->row_begin + n) * g->spec.K + place;
      expect(g, rank, "dw", n, k, value(dw, n, k), place >= 0 ? g->dw[at] : 0.0,
             place >= 0 ? g->dw_size[at] : 0.0);
    }
  free(places);
  for (int64_t n = 0; g->spec.has_bias && n < N; n++)
    expect(g, rank, "db", n, 0, bs_load_f64(db->dtype, db->data, n), g->db[own->row_begin + n],
           g->db_size[own->row_begin + n]);
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

/* Through an activation the tokens of backward are those that forward had. */
static void check_fewer(const gradients *g, bs_layer *layer, const bs_tensor *x, const bs_tensor *dy) {
  bs_tensor fewer = *dy;
  bs_error why = BS_ERROR_INIT;
  fewer.dims[0] = g->rows - 1;
  ck_assert_int_eq(bs_layer_backward(layer, x, &fewer, NULL, NULL, NULL, NULL, &why), BS_INVALID_ARGUMENT);
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  gradients *g = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank), wide = g->spec.x_dtype == BS_F64 ? BS_F64 : BS_F32;
  bs_source w = source_of(g->w, g->spec.N, g->spec.K, g->spec.w_dtype),
            b = source_of(g->dy, 1, g->spec.N, BS_F32),
            xs = source_of(g->x, g->spec.B, g->spec.K, g->spec.x_dtype),
            ys = source_of(g->dy, g->spec.B, g->spec.N, g->spec.y_dtype);
  bs_source *const sources[] = {&w, &b, &xs, &ys};
  bs_layer *layer = NULL;
  bs_ownership own = {.struct_size = sizeof own};
  int32_t rc = bs_layer_build(rank, g->method, &g->spec, &w, g->spec.has_bias ? &b : NULL, &layer, err);
  if (rc == BS_OK) rc = bs_layer_owns(layer, &own, err);
  if (rc != BS_OK) {
    bs_layer_free(layer);
    for (size_t i = 0; i < 4; i++) bs_source_release(sources[i]);
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
  bs_tensor db = take(rank, wide, own.row_count, 1, 1),
            y = take(rank, g->spec.y_dtype, g->rows, features.count, 2);
  if (x_width > 0) rc = api->tensor_read(rank, &xs, 0, x_cols, &x, err);
  if (rc == BS_OK && features.count > 0) rc = api->tensor_read(rank, &ys, 0, &features, &dy, err);
  if (rc == BS_OK && g->spec.activation != BS_ACT_NONE) rc = bs_layer_forward(layer, &x, &y, NULL, err);
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
        g->c,       rank,  layer,          &own,          &x, &dy, &dw, g->spec.has_bias ? &db : NULL, g->dw,
        g->dw_size, g->db, features.begin, features.count};
    rc = mg_steps(&s, err);
  }
  if (rc == BS_OK && g->spec.activation != BS_ACT_NONE) check_fewer(g, layer, &x, &dy);
  bs_tensor *const all[] = {&x, &dx, &dy, &dw, &db, &y};
  for (size_t i = 0; i < 6; i++) api->tensor_free(rank, all[i]);
  for (size_t i = 0; i < 4; i++) bs_source_release(sources[i]);
  bs_layer_free(layer);
  return rc;
}

static double activated(uint32_t activation, double v) {
  if (activation == BS_ACT_RELU) return v > 0 ? v : 0;
  return activation == BS_ACT_GELU ? 0.5 * v * erfc(-v / sqrt(2.0)) : v / (1 + exp(-v));
}

/* The slope of the activation at the sum of output [t,n], by differences of its formula. */
static double slope(const gradients *g, int64_t t, int64_t n) {
  const double h = 0x1p-14;
  const int64_t K = g->spec.K;
  double z = g->spec.has_bias ? (double)g->dy[n] : 0.0;
  if (g->spec.activation == BS_ACT_NONE) return 1.0;
  for (int64_t k = 0; k < K; k++) z += (double)g->x[t * K + k] * (double)g->w[n * K + k];
  return (activated(g->spec.activation, z + h) - activated(g->spec.activation, z - h)) / (2 * h);
}

/* Through an activation a term may be 1.2 times as large as its dY: slopes are no larger. */
static void reference(gradients *g) {
  const int64_t N = g->spec.N, K = g->spec.K, total = g->rows * K + N * K + N;
  g->dx = calloc((size_t)(2 * total), sizeof *g->dx);
  g->dw = g->dx + g->rows * K;
  g->db = g->dw + N * K;
  g->dx_size = g->dx + total;
  g->dw_size = g->dw + total;
  g->db_size = g->db + total;
  for (int64_t t = 0; t < g->rows; t++)
    for (int64_t n = 0; n < N; n++) {
      const double d = (double)g->dy[t * N + n] * slope(g, t, n), size = 1.2 * fabs((double)g->dy[t * N + n]);
      g->db[n] += d;
      g->db_size[n] += size;
      for (int64_t k = 0; k < K; k++) {
        g->dx[t * K + k] += d * (double)g->w[n * K + k];
        g->dw[n * K + k] += d * (double)g->x[t * K + k];
        g->dx_size[t * K + k] += size * fabs((double)g->w[n * K + k]);
        g->dw_size[n * K + k] += size * fabs((double)g->x[t * K + k]);
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
  free(g.dx); /* the others are parts of it */
  return rc;
}
