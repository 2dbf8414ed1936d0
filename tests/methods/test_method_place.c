/* SPDX-License-Identifier: MIT
 *
 * test_method_place.c - placements: x and y whole, split over features, split over tokens or as partial sums,
 * of every method that takes them, on integers whose sums are exact; and pairs of layers that hand a split
 * tensor on: column_parallel then row_parallel needs one all-reduce for both, or with split tokens a gather
 * before and a scatter behind, of the same bytes. Counted by the host, as proposed. Backward the pair needs
 * one exchange too: what the second hands the first is split as what it was handed.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { MAX_LAYERS = 2, B = 5 };

typedef struct step {
  const char *method;
  int64_t N, K;
  uint32_t x_placement, y_placement, activation;
  const bs_mask *mask;
  const float *w, *bias;
} step;

typedef struct chain {
  step steps[MAX_LAYERS];
  uint32_t layers, world, dtype;
  const char *backend;
  const float *x;
  const float *dy; /* [B, N of the last]; NULL: forward alone. Whole where it is given */
  double *dx[MF_RANKS], *dw[MF_RANKS][MAX_LAYERS], *db[MF_RANKS][MAX_LAYERS];
  int64_t row_begin[MF_RANKS][MAX_LAYERS], row_count[MF_RANKS][MAX_LAYERS];
  int64_t col_begin[MF_RANKS][MAX_LAYERS], col_count[MF_RANKS][MAX_LAYERS];
  uint64_t backward_collectives[MF_RANKS];
  double *y[MF_RANKS]; /* what each rank has at the end */
  int64_t rows[MF_RANKS], cols[MF_RANKS];
  uint64_t counted[MF_RANKS][BS_COUNT_COUNT_];
} chain;

static bs_layer_spec spec_of(const chain *c, uint32_t i) {
  const step *s = &c->steps[i];
  bs_layer_spec spec = mf_spec(B, s->N, s->K, c->dtype);
  spec.has_bias = s->bias != NULL;
  spec.activation = s->activation;
  spec.x_placement = s->x_placement;
  spec.y_placement = s->y_placement;
  spec.mask = s->mask;
  if (c->dy != NULL) spec.flags = BS_LAYER_BACKWARD;
  return spec;
}

static bs_source source_of(const float *data, int64_t rows, int64_t cols) {
  bs_source s = {.struct_size = sizeof s};
  bs_error err = BS_ERROR_INIT;
  if (data == NULL) return s;
  ck_assert_msg(bs_source_from_memory(data, BS_F32, rows, cols, cols, &s, &err) == BS_OK, "%s", err.message);
  return s;
}

/* Rows and columns of a matrix in memory, as the dtype holds them. */
static int32_t read_part(const float *data, int64_t rows, int64_t cols, int64_t first, int64_t count,
                         const bs_partition *part, uint32_t dtype, const bs_tensor *out, bs_error *err) {
  bs_source s = source_of(data, rows, cols);
  const int32_t rc = s.read(s.ctx, first, count, part, dtype, out->data, out->dims[1], err);
  bs_source_release(&s);
  return rc;
}

static int32_t take(bs_rank *rank, uint32_t dtype, int64_t rows, int64_t cols, bs_tensor *out,
                    bs_error *err) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = 2, .dims = {rows, cols}};
  return bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, out, err);
}

/* The rank's x of the first layer. A partial x: each rank has some columns, zeros elsewhere. */
static int32_t first_x(bs_rank *rank, const chain *c, bs_layer *layer, bs_tensor *x, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const step *s = &c->steps[0];
  const uint32_t me = api->rank(rank);
  bs_ownership own = {.struct_size = sizeof own};
  int64_t first = 0, rows = B, begin = 0, count = s->K;
  int32_t rc = bs_layer_owns(layer, &own, err);
  const bs_partition *cols = s->x_placement == BS_SPLIT ? own.columns : NULL;
  if (s->x_placement == BS_SPLIT_TOKENS) bs_share(B, me, c->world, &first, &rows);
  if (s->x_placement == BS_PARTIAL) bs_share(s->K, me, c->world, &begin, &count);
  const int64_t width = cols != NULL ? cols->count : s->K;
  if (rc == BS_OK) rc = take(rank, c->dtype, rows, width, x, err);
  if (rc == BS_OK && s->x_placement != BS_PARTIAL)
    return read_part(c->x, B, s->K, first, rows, cols, c->dtype, x, err);
  for (int64_t r = 0; rc == BS_OK && r < rows; r++)
    for (int64_t k = begin; k < begin + count; k++)
      bs_store_f64(c->dtype, x->data, r * width + k, (double)c->x[r * s->K + k]);
  return rc;
}

static void keep(chain *c, uint32_t me, const bs_tensor *y) {
  const int64_t n = y->dims[0] * y->dims[1];
  c->rows[me] = y->dims[0];
  c->cols[me] = y->dims[1];
  c->y[me] = calloc((size_t)n + 1, sizeof(double));
  for (int64_t i = 0; i < n; i++) c->y[me][i] = bs_load_f64(y->dtype, y->data, i);
}

static double *values_of(const bs_tensor *t) {
  const int64_t n = t->dims[0] * (t->rank == 1 ? 1 : t->dims[1]);
  double *v = calloc((size_t)n + 1, sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i] = bs_load_f64(t->dtype, t->data, i);
  return v;
}

/* One layer's gradients; its dW and db are kept. */
static int32_t layer_backward(bs_rank *rank, chain *c, uint32_t i, bs_layer *layer, const bs_tensor *x,
                              const bs_tensor *dy, bs_tensor *dx, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  bs_ownership own = {.struct_size = sizeof own};
  bs_tensor dw, db;
  memset(&dw, 0, sizeof dw);
  memset(&db, 0, sizeof db);
  int32_t rc = bs_layer_owns(layer, &own, err);
  if (rc != BS_OK) return rc;
  const int64_t cols = own.columns != NULL ? own.columns->count : c->steps[i].K;
  c->row_begin[me][i] = own.row_begin;
  c->row_count[me][i] = own.row_count;
  c->col_begin[me][i] = own.columns != NULL ? own.columns->begin : 0;
  c->col_count[me][i] = cols;
  const bs_tensor_desc d = {
      .struct_size = sizeof d, .dtype = BS_F32, .rank = 1, .dims = {own.row_count}, .strides = {1}};
  rc = take(rank, BS_F32, own.row_count, cols, &dw, err);
  if (rc == BS_OK) rc = api->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &db, err);
  if (rc == BS_OK) rc = bs_layer_backward(layer, x, dy, dx, &dw, &db, NULL, err);
  if (rc == BS_OK) {
    c->dw[me][i] = values_of(&dw);
    c->db[me][i] = values_of(&db);
  }
  if (dw.data != NULL) api->tensor_free(rank, &dw);
  if (db.data != NULL) api->tensor_free(rank, &db);
  return rc;
}

/* From the last layer to the first; each dx is shaped as the x that it is of. */
static int32_t chain_backward(bs_rank *rank, chain *c, bs_layer **layers, const bs_tensor *t, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  const int64_t N = c->steps[c->layers - 1].N;
  bs_tensor d[MAX_LAYERS + 1];
  memset(d, 0, sizeof d);
  int32_t rc = take(rank, c->dtype, B, N, &d[c->layers], err);
  if (rc == BS_OK) rc = read_part(c->dy, B, N, 0, B, NULL, c->dtype, &d[c->layers], err);
  bs_rank_counters_reset(rank);
  for (uint32_t i = c->layers; rc == BS_OK && i-- > 0;) {
    rc = take(rank, c->dtype, t[i].dims[0], t[i].dims[1], &d[i], err);
    if (rc == BS_OK) rc = layer_backward(rank, c, i, layers[i], &t[i], &d[i + 1], &d[i], err);
  }
  c->backward_collectives[me] = bs_rank_counter(rank, BS_COUNT_COLLECTIVES);
  if (rc == BS_OK) c->dx[me] = values_of(&d[0]);
  for (uint32_t i = 0; i <= c->layers; i++)
    if (d[i].data != NULL) api->tensor_free(rank, &d[i]);
  return rc;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  chain *c = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  bs_layer *layers[MAX_LAYERS] = {NULL, NULL};
  bs_tensor t[MAX_LAYERS + 1];
  int32_t rc = BS_OK;
  memset(t, 0, sizeof t);
  for (uint32_t i = 0; rc == BS_OK && i < c->layers; i++) {
    const step *s = &c->steps[i];
    const bs_layer_spec spec = spec_of(c, i);
    bs_source w = source_of(s->w, s->N, s->K), b = source_of(s->bias, 1, s->N);
    rc = bs_layer_build(rank, s->method, &spec, &w, s->bias != NULL ? &b : NULL, &layers[i], err);
    bs_source_release(&w);
    bs_source_release(&b);
    int64_t begin = 0, rows = B, cols = s->N;
    if (s->y_placement == BS_SPLIT) bs_share(s->N, me, c->world, &begin, &cols);
    if (s->y_placement == BS_SPLIT_TOKENS) bs_share(B, me, c->world, &begin, &rows);
    if (rc == BS_OK) rc = take(rank, c->dtype, rows, cols, &t[i + 1], err);
  }
  if (rc == BS_OK) rc = first_x(rank, c, layers[0], &t[0], err);
  bs_rank_counters_reset(rank);
  for (uint32_t i = 0; rc == BS_OK && i < c->layers; i++)
    rc = bs_layer_forward(layers[i], &t[i], &t[i + 1], NULL, err);
  for (uint32_t i = 0; i < BS_COUNT_COUNT_; i++) c->counted[me][i] = bs_rank_counter(rank, i);
  if (rc == BS_OK) keep(c, me, &t[c->layers]);
  if (rc == BS_OK && c->dy != NULL) rc = chain_backward(rank, c, layers, t, err);
  for (uint32_t i = 0; i <= c->layers; i++)
    if (t[i].data != NULL) api->tensor_free(rank, &t[i]);
  for (uint32_t i = 0; i < c->layers; i++)
    if (layers[i] != NULL) bs_layer_free(layers[i]);
  return rc;
}

static void chain_run(bs_context *context, chain *c) {
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = c->world,
                                    .backend = c->backend,
                                    .threads_per_rank = 1,
                                    .timeout_s = 60};
  ck_assert_msg(bs_world_create(context, &options, &world, &err) == BS_OK, "%s", err.message);
  const int32_t rc = bs_world_run(world, rank_main, c, &err);
  ck_assert_msg(rc == BS_OK, "%s P=%u x %u y %u: %s %s", c->steps[0].method, c->world,
                c->steps[0].x_placement, c->steps[c->layers - 1].y_placement, err.id, err.message);
  bs_world_destroy(world);
}

static void chain_free(chain *c) {
  for (uint32_t r = 0; r < MF_RANKS; r++) {
    free(c->y[r]);
    free(c->dx[r]);
    for (uint32_t i = 0; i < MAX_LAYERS; i++) free(c->dw[r][i]), free(c->db[r][i]);
  }
}

/* relu is the only activation here: integers stay integers. */
static double *reference(const chain *c) {
  double *x = calloc((size_t)(B * c->steps[0].K) + 1, sizeof *x);
  for (int64_t i = 0; i < B * c->steps[0].K; i++) x[i] = (double)c->x[i];
  for (uint32_t l = 0; l < c->layers; l++) {
    const step *s = &c->steps[l];
    double *y = calloc((size_t)(B * s->N) + 1, sizeof *y);
    for (int64_t b = 0; b < B; b++)
      for (int64_t n = 0; n < s->N; n++) {
        double sum = s->bias != NULL ? (double)s->bias[n] : 0.0;
        for (int64_t k = 0; k < s->K; k++) sum += x[b * s->K + k] * (double)s->w[n * s->K + k];
        y[b * s->N + n] = s->activation == BS_ACT_RELU && sum < 0 ? 0 : sum;
      }
    free(x);
    x = y;
  }
  return x;
}

/* Every rank's part of y where it belongs; partial ones are added up. */
static void check_outputs(const chain *c) {
  const step *last = &c->steps[c->layers - 1];
  double *want = reference(c), *sum = calloc((size_t)(B * last->N) + 1, sizeof *sum);
  for (uint32_t r = 0; r < c->world; r++) {
    int64_t row = 0, rows = B, col = 0, cols = last->N;
    if (last->y_placement == BS_SPLIT) bs_share(last->N, r, c->world, &col, &cols);
    if (last->y_placement == BS_SPLIT_TOKENS) bs_share(B, r, c->world, &row, &rows);
    ck_assert_int_eq(c->rows[r], rows);
    ck_assert_int_eq(c->cols[r], cols);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < cols; j++) {
        const double got = c->y[r][i * cols + j], right = want[(row + i) * last->N + col + j];
        if (last->y_placement == BS_PARTIAL)
          sum[i * last->N + j] += got;
        else
          ck_assert_msg(got == right, "%s P=%u x %u y %u rank %u: [%lld,%lld] is %g, not %g",
                        c->steps[0].method, c->world, c->steps[0].x_placement, last->y_placement, r,
                        (long long)(row + i), (long long)(col + j), got, right);
      }
  }
  for (int64_t i = 0; last->y_placement == BS_PARTIAL && i < B * last->N; i++)
    ck_assert_double_eq(sum[i], want[i]);
  free(sum);
  free(want);
}

static uint64_t wire(uint32_t kind, uint64_t payload, uint32_t world) {
  return payload * (kind == BS_COLL_ALL_REDUCE ? 2 : 1) * (world - 1) / world;
}

/* The host counted what the layers proposed; returns the collectives of rank 0. */
static uint64_t check_counters(bs_context *context, const chain *c, uint64_t *out_wire) {
  for (uint32_t r = 0; r < c->world; r++) {
    uint64_t flops = 0, payload = 0, bytes = 0, n = 0;
    for (uint32_t i = 0; i < c->layers; i++) {
      bs_error err = BS_ERROR_INIT;
      bs_proposal p = {.struct_size = sizeof p};
      const bs_layer_spec spec = spec_of(c, i);
      ck_assert_int_eq(bs_method_propose(context, c->steps[i].method, &spec, r, c->world, &p, &err), BS_OK);
      ck_assert_uint_eq(p.x_placement, spec.x_placement);
      ck_assert_uint_eq(p.y_placement, spec.y_placement);
      flops += p.flops;
      n += p.n_collectives;
      for (uint32_t k = 0; k < p.n_collectives; k++) {
        payload += p.coll_payload[k];
        bytes += wire(p.coll_kind[k], p.coll_payload[k], c->world);
      }
    }
    ck_assert_uint_eq(c->counted[r][BS_COUNT_FLOPS], flops);
    ck_assert_uint_eq(c->counted[r][BS_COUNT_COLLECTIVES], n);
    ck_assert_uint_eq(c->counted[r][BS_COUNT_PAYLOAD_BYTES], payload);
    ck_assert_uint_eq(c->counted[r][BS_COUNT_WIRE_BYTES], bytes);
    if (out_wire != NULL) *out_wire = bytes;
  }
  return c->counted[0][BS_COUNT_COLLECTIVES];
}

static const char *const methods[] = {"dense",      "column_parallel", "row_parallel",
                                      "blockshock", "masked_split",    "masked_split"};
enum { BY_ROW = 5 }; /* under a mask that differs by row: no split x, which a half needs all of */

START_TEST(every_placement_of_every_method) {
  bs_context *context = mf_context();
  const int64_t N = 7, K = 13;
  float *x = mf_integers(1, B * K), *w = mf_integers(2, N * K), *bias = mf_integers(3, N);
  const bs_mask mask = mf_mask(_i == BY_ROW ? "random_2of4" : "interleave");
  uint32_t ran = 0;
  for (uint32_t world = 1; world <= (_i == BY_ROW ? 4 : 3); world += _i == BY_ROW ? world : 1)
    for (uint32_t xp = BS_REPLICATED; xp <= BS_SPLIT_TOKENS; xp++)
      for (uint32_t yp = BS_REPLICATED; yp <= BS_SPLIT_TOKENS; yp++)
        for (uint32_t act = BS_ACT_NONE; act <= BS_ACT_RELU; act++) {
          const char *method = methods[_i];
          const int whole = strcmp(method, "column_parallel") == 0;
          if (strcmp(method, "dense") == 0 && world > 1) continue;
          if (world > 1 && whole && (xp == BS_SPLIT || yp >= BS_PARTIAL)) continue; /* refused */
          if (yp == BS_PARTIAL && act != BS_ACT_NONE && world > 1) continue;
          if (world > 1 && _i == BY_ROW && xp == BS_SPLIT) continue;
          chain c = {.layers = 1,
                     .world = world,
                     .dtype = xp % 2 ? BS_F32 : BS_BF16,
                     .backend = yp % 2 ? "cpu" : "ref",
                     .x = x};
          const int masked = strcmp(method, "blockshock") == 0 || strcmp(method, "masked_split") == 0;
          c.steps[0] = (step){method, N, K, xp, yp, act, masked ? &mask : NULL, w, bias};
          chain_run(context, &c);
          check_outputs(&c);
          (void)check_counters(context, &c, NULL);
          chain_free(&c);
          ran++;
        }
  ck_assert_uint_ge(ran, 20);
  free(x);
  free(w);
  free(bias);
  bs_context_close(context);
}
END_TEST

/* Y = W2 relu(W1 X + b1) + b2, hidden features split: nothing is exchanged between the layers. */
static const char *const backends[] = {"ref", "cpu"};

static chain pair(uint32_t world, uint32_t x_placement, uint32_t y_placement, float *const v[5],
                  const char *backend) {
  chain c = {.layers = 2, .world = world, .dtype = BS_F32, .backend = backend, .x = v[0]};
  c.steps[0] = (step){"column_parallel", 11, 6, x_placement, BS_SPLIT, BS_ACT_RELU, NULL, v[1], v[2]};
  c.steps[1] = (step){"row_parallel", 9, 11, BS_SPLIT, y_placement, BS_ACT_NONE, NULL, v[3], v[4]};
  return c;
}

START_TEST(a_pair_needs_one_exchange) {
  bs_context *context = mf_context();
  float *const v[5] = {mf_integers(1, B * 6), mf_integers(2, 11 * 6), mf_integers(3, 11),
                       mf_integers(4, 9 * 11), mf_integers(5, 9)};
  for (uint32_t world = 2; world <= 4; world++) {
    chain c = pair(world, BS_REPLICATED, BS_REPLICATED, v, backends[_i]);
    uint64_t reduced = 0;
    chain_run(context, &c);
    check_outputs(&c);
    ck_assert_uint_eq(check_counters(context, &c, &reduced), 1); /* the all-reduce of y */
    chain_free(&c);
    c = pair(world, BS_REPLICATED, BS_PARTIAL, v, backends[_i]);
    chain_run(context, &c);
    check_outputs(&c);
    ck_assert_uint_eq(check_counters(context, &c, NULL), 0);
    chain_free(&c);
    /* Apart: each layer makes its output whole. */
    c = pair(world, BS_REPLICATED, BS_REPLICATED, v, backends[_i]);
    c.steps[0].y_placement = c.steps[1].x_placement = BS_REPLICATED;
    chain_run(context, &c);
    check_outputs(&c);
    ck_assert_uint_eq(check_counters(context, &c, NULL), 2);
    chain_free(&c);
  }
  for (int i = 0; i < 5; i++) free(v[i]);
  bs_context_close(context);
}
END_TEST

/* Sequence-parallel: tokens are split between the pairs. With as many outputs as inputs the gather and the
 * scatter are together the all-reduce. */
START_TEST(a_pair_with_split_tokens) {
  bs_context *context = mf_context();
  float *const v[5] = {mf_integers(1, B * 9), mf_integers(2, 11 * 9), mf_integers(3, 11),
                       mf_integers(4, 9 * 11), mf_integers(5, 9)};
  for (uint32_t world = 2; world <= 4; world++) {
    uint64_t whole = 0, tokens = 0;
    chain c = pair(world, BS_REPLICATED, BS_REPLICATED, v, backends[_i]);
    c.steps[0].K = 9;
    chain_run(context, &c);
    (void)check_counters(context, &c, &whole);
    chain_free(&c);
    c = pair(world, BS_SPLIT_TOKENS, BS_SPLIT_TOKENS, v, backends[_i]);
    c.steps[0].K = 9;
    chain_run(context, &c);
    check_outputs(&c);
    ck_assert_uint_eq(check_counters(context, &c, &tokens), 2);
    ck_assert_uint_le(whole - tokens, 1); /* each is rounded down */
    chain_free(&c);
  }
  for (int i = 0; i < 5; i++) free(v[i]);
  bs_context_close(context);
}
END_TEST

/* dZ [B,N] of a layer whose input is x: dY where relu let it pass. */
static void slope(const step *s, const double *x, double *dy) {
  for (int64_t b = 0; b < B; b++)
    for (int64_t n = 0; s->activation == BS_ACT_RELU && n < s->N; n++) {
      double z = (double)s->bias[n];
      for (int64_t k = 0; k < s->K; k++) z += x[b * s->K + k] * (double)s->w[n * s->K + k];
      if (z <= 0) dy[b * s->N + n] = 0;
    }
}

/* What each rank owns of dW = dZ^T x and of db. */
static void check_weights(const chain *c, uint32_t i, const double *x, const double *dz) {
  const step *s = &c->steps[i];
  int64_t seen = 0;
  for (uint32_t r = 0; r < c->world; r++) {
    const int64_t cols = c->col_count[r][i];
    seen += c->row_count[r][i] * cols;
    for (int64_t n = 0; n < c->row_count[r][i]; n++) {
      const int64_t row = c->row_begin[r][i] + n;
      double sum = 0;
      for (int64_t b = 0; b < B; b++) sum += dz[b * s->N + row];
      ck_assert_msg(c->db[r][i][n] == sum, "layer %u rank %u: db[%lld]", i, r, (long long)row);
      for (int64_t k = 0; k < cols; k++) {
        double want = 0;
        for (int64_t b = 0; b < B; b++) want += dz[b * s->N + row] * x[b * s->K + c->col_begin[r][i] + k];
        ck_assert_msg(c->dw[r][i][n * cols + k] == want, "layer %u rank %u: dW[%lld,%lld] is %g, not %g", i,
                      r, (long long)row, (long long)(c->col_begin[r][i] + k), c->dw[r][i][n * cols + k],
                      want);
      }
    }
  }
  ck_assert_int_eq(seen, s->N * s->K); /* of some rank each */
}

/* dX = dZ W. */
static double *input_gradient(const step *s, const double *dz) {
  double *dx = calloc((size_t)(B * s->K) + 1, sizeof *dx);
  for (int64_t b = 0; b < B; b++)
    for (int64_t n = 0; n < s->N; n++)
      for (int64_t k = 0; k < s->K; k++) dx[b * s->K + k] += dz[b * s->N + n] * (double)s->w[n * s->K + k];
  return dx;
}

static void check_gradients(const chain *c) {
  const step *s = c->steps;
  chain first = *c;
  first.layers = 1;
  double *hidden = reference(&first), *x = calloc((size_t)(B * s[0].K), sizeof *x);
  double *dy = calloc((size_t)(B * s[1].N), sizeof *dy);
  for (int64_t i = 0; i < B * s[0].K; i++) x[i] = (double)c->x[i];
  for (int64_t i = 0; i < B * s[1].N; i++) dy[i] = (double)c->dy[i];
  check_weights(c, 1, hidden, dy);
  double *dh = input_gradient(&s[1], dy);
  slope(&s[0], x, dh);
  check_weights(c, 0, x, dh);
  double *dx = input_gradient(&s[0], dh);
  for (uint32_t r = 0; r < c->world; r++)
    for (int64_t i = 0; i < B * s[0].K; i++)
      ck_assert_msg(c->dx[r][i] == dx[i], "P=%u rank %u: dX %lld is %g, not %g", c->world, r, (long long)i,
                    c->dx[r][i], dx[i]);
  free(hidden), free(x), free(dy), free(dh), free(dx);
}

/* Handed on split, dH needs no exchange: the one of backward sums dX. Apart, the second layer gathers it. */
START_TEST(a_pair_backward) {
  bs_context *context = mf_context();
  float *const v[5] = {mf_integers(1, B * 6), mf_integers(2, 11 * 6), mf_integers(3, 11),
                       mf_integers(4, 9 * 11), mf_integers(5, 9)};
  float *dy = mf_integers(6, B * 9);
  for (uint32_t world = 1; world <= 4; world++)
    for (int apart = 0; apart < 2; apart++) {
      chain c = pair(world, BS_REPLICATED, BS_REPLICATED, v, backends[_i]);
      c.dy = dy;
      if (apart) c.steps[0].y_placement = c.steps[1].x_placement = BS_REPLICATED;
      chain_run(context, &c);
      check_outputs(&c);
      check_gradients(&c);
      for (uint32_t r = 0; r < world; r++)
        ck_assert_uint_eq(c.backward_collectives[r], world == 1 ? 0 : apart ? 2 : 1);
      chain_free(&c);
    }
  for (int i = 0; i < 5; i++) free(v[i]);
  free(dy);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_placement_of_every_method, 6},
                             {a_pair_needs_one_exchange, 2},
                             {a_pair_with_split_tokens, 2},
                             {a_pair_backward, 2},
                             {0}};
  return run_tests("method_place", tests, (test_setup){.timeout = 60});
}
