/* SPDX-License-Identifier: MIT
 *
 * test_method_backward.c - the backward pass of every method x mask x P x odd shape x placement x dtype x
 * backend on small integers, whose sums are exact: dX, dW and db must be the exact products, bit for bit, dX
 * the same on every rank; the counters are those that were proposed, and nothing is allocated while it runs.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "tests/methods/method_fixture.h"

static const struct {
  const char *method, *mask;
} subjects[] = {
    {"dense", NULL},
    {"column_parallel", NULL},
    {"row_parallel", NULL},
    {"row_parallel", "uneven"},
    {"blockshock", NULL},
    {"blockshock", "1010"},
    {"blockshock", "0110"},
    {"blockshock", "interleave"},
    {"blockshock", "contiguous"},
    {"blockshock", "uneven"},
    {"masked_split", NULL},
    {"masked_split", "1001"},
    {"masked_split", "uneven"},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))

static const int64_t shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {2, 3, 2}, {4, 9, 13}, {5, 17, 33}, {7, 2, 5}};
static const double shares[5] = {5, 1, 2, 0.25, 3};

typedef struct variant {
  uint32_t dtype, x_placement, y_placement, reduce_dtype, bias, fewer_rows;
  const char *backend;
} variant;
static const variant variants[] = {
    {BS_F32, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, "ref"},
    {BS_BF16, BS_REPLICATED, BS_REPLICATED, 0, 0, 1, "cpu"},
    {BS_F16, BS_SPLIT, BS_REPLICATED, BS_F64, 1, 0, "ref"},
    {BS_F32, BS_REPLICATED, BS_SPLIT, 0, 1, 1, "cpu"},
    {BS_BF16, BS_SPLIT, BS_SPLIT, 0, 1, 0, "ref"},
    {BS_F64, BS_REPLICATED, BS_PARTIAL, 0, 1, 0, "ref"},
    {BS_F32, BS_SPLIT, BS_PARTIAL, 0, 0, 0, "cpu"},
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

typedef struct gradients {
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
  const int64_t N = own->row_count, K = own->columns != NULL ? own->columns->count : g->spec.K;
  const bs_partition *x_cols = g->spec.x_placement == BS_SPLIT ? own->columns : NULL;
  for (int64_t t = 0; t < g->rows; t++)
    for (int64_t k = 0; k < dx->dims[1]; k++)
      expect(g, rank, "dx", t, k, value(dx, t, k), g->dx[t * g->spec.K + column(x_cols, k)]);
  for (int64_t n = 0; n < N; n++)
    for (int64_t k = 0; k < K; k++)
      expect(g, rank, "dw", n, k, value(dw, n, k),
             g->dw[(own->row_begin + n) * g->spec.K + column(own->columns, k)]);
  for (int64_t n = 0; g->spec.has_bias && n < N; n++)
    expect(g, rank, "db", n, 0, bs_load_f64(db->dtype, db->data, n), g->db[own->row_begin + n]);
}

static void check_counters(const gradients *g, bs_rank *rank, uint32_t me) {
  const bs_proposal *p = &g->proposals[me];
  const uint64_t B = (uint64_t)g->spec.B, rows = (uint64_t)g->rows;
  uint64_t payload = 0;
  for (uint32_t i = 0; i < p->n_backward; i++) payload += p->backward_payload[i] / B * rows;
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_FLOPS), p->backward_flops / B * rows);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_COLLECTIVES), p->n_backward);
  ck_assert_uint_eq(bs_rank_counter(rank, BS_COUNT_PAYLOAD_BYTES), payload);
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
  const int64_t k_own = own.columns != NULL ? own.columns->count : g->spec.K;
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

static int32_t run(bs_context *context, gradients *g, const char *backend, bs_error *err) {
  bs_world_options options = {.struct_size = sizeof options,
                              .world_size = g->world,
                              .backend = backend,
                              .threads_per_rank = 1,
                              .timeout_s = 20};
  int32_t rc = BS_OK;
  for (uint32_t r = 0; rc == BS_OK && r < g->world; r++)
    rc = bs_method_propose(context, g->method, &g->spec, r, g->world, &g->proposals[r], err);
  if (rc == BS_OK) rc = bs_world_create(context, &options, &g->running, err);
  if (rc == BS_OK) rc = bs_world_run(g->running, rank_main, g, err);
  bs_world_destroy(g->running);
  return rc;
}

static void run_point(bs_context *context, const bs_mask *mask, int subject, uint32_t P, size_t shape,
                      size_t v) {
  const variant *var = &variants[v];
  const int64_t B = shapes[shape][0], N = shapes[shape][1], K = shapes[shape][2];
  gradients g = {
      .method = subjects[subject].method, .world = P, .rows = var->fewer_rows && B > 1 ? B - 1 : B};
  g.spec = mf_spec(B, N, K, var->dtype);
  g.spec.x_placement = var->x_placement;
  g.spec.y_placement = var->y_placement;
  g.spec.reduce_dtype = var->reduce_dtype;
  g.spec.has_bias = var->bias;
  g.spec.mask = mask;
  g.spec.flags = BS_LAYER_BACKWARD;
  float *x = mf_integers(1 + shape, B * K), *w = mf_integers(100 + shape, N * K),
        *dy = mf_integers(300 + shape, B * N);
  g.x = x;
  g.w = w;
  g.dy = dy;
  reference(&g);
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = run(context, &g, var->backend, &err);
  const int refused = P > 1 && strcmp(g.method, "column_parallel") == 0 &&
                      (var->x_placement == BS_SPLIT || var->y_placement == BS_PARTIAL);
  ck_assert_msg(rc == (refused ? BS_UNSUPPORTED : BS_OK), "%s on %s, P=%u, B=%lld N=%lld K=%lld: %s %s (%s)",
                g.method, var->backend, P, (long long)B, (long long)N, (long long)K, err.id, err.message,
                err.where);
  void *const all[] = {x, w, dy, g.dx, g.dw, g.db};
  for (size_t i = 0; i < 6; i++) free(all[i]);
}

START_TEST(exact_on_integers) {
  bs_context *context = mf_context();
  const char *name = subjects[_i].mask;
  for (uint32_t P = 1; P <= 5; P++) {
    bs_mask mask;
    if (name != NULL) mask = mf_mask(name);
    if (name != NULL && mask.kind == BS_MASK_UNEVEN) {
      mask.n_shares = P;
      mask.shares = shares;
    }
    const int masked =
        strcmp(subjects[_i].method, "blockshock") == 0 || strcmp(subjects[_i].method, "masked_split") == 0;
    const int complement = masked && (name == NULL || mask.kind == BS_MASK_COMPLEMENT);
    if (complement && P > 2 && P % 2 != 0) continue; /* refused: test_method_refuse */
    if (strcmp(subjects[_i].method, "dense") == 0 && P > 1) break;
    for (size_t shape = 0; shape < sizeof shapes / sizeof shapes[0]; shape++)
      for (size_t v = 0; v < N_VARIANTS; v++)
        run_point(context, name != NULL ? &mask : NULL, _i, P, shape, v);
  }
  bs_context_close(context);
}
END_TEST

static int32_t forward_only(bs_rank *rank, void *arg, bs_error *err) {
  const gradients *g = arg;
  values wv = {g->w, g->spec.K, 0};
  const bs_source w = source_of(&wv, g->spec.N, g->spec.w_dtype);
  bs_layer *layer = NULL;
  int32_t rc = bs_layer_build(rank, g->method, &g->spec, &w, NULL, &layer, err);
  if (rc != BS_OK) return rc;
  bs_tensor x = take(rank, BS_F32, 2, g->spec.K, 2), dy = take(rank, BS_F32, 2, g->spec.N, 2);
  bs_tensor dx = take(rank, BS_F32, 2, g->spec.K, 2);
  rc = bs_layer_backward(layer, &x, &dy, &dx, NULL, NULL, NULL, err);
  bs_tensor *const all[] = {&x, &dy, &dx};
  for (size_t i = 0; i < 3; i++) bs_rank_get_api()->tensor_free(rank, all[i]);
  bs_layer_free(layer);
  return rc;
}

/* What has no backward pass says so, and how to have one. */
START_TEST(refusals) {
  bs_context *context = mf_context();
  float *w = mf_integers(1, 64);
  gradients g = {.method = "dense", .world = 1, .rows = 2, .w = w};
  bs_proposal p = {.struct_size = sizeof p};
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  bs_world_options options = {
      .struct_size = sizeof options, .world_size = 1, .backend = "ref", .threads_per_rank = 1};
  g.spec = mf_spec(2, 8, 8, BS_F32);
  ck_assert_int_eq(bs_world_create(context, &options, &world, &err), BS_OK);
  ck_assert_int_eq(bs_world_run(world, forward_only, &g, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-METHOD-BACKWARD");
  ck_assert(strstr(err.hint, "BS_LAYER_BACKWARD") != NULL);
  bs_world_destroy(world);
  g.spec.flags = BS_LAYER_BACKWARD;
  g.spec.activation = BS_ACT_GELU;
  ck_assert_int_eq(bs_method_propose(context, "dense", &g.spec, 0, 1, &p, &err), BS_UNSUPPORTED);
  g.spec = mf_spec(2, 8, 8, BS_I32);
  g.spec.flags = BS_LAYER_BACKWARD;
  ck_assert_int_eq(bs_method_propose(context, "dense", &g.spec, 0, 1, &p, &err), BS_UNSUPPORTED);
  g.spec = mf_spec(2, 8, 8, BS_F32);
  g.spec.flags = 64;
  ck_assert_int_eq(bs_method_propose(context, "dense", &g.spec, 0, 1, &p, &err), BS_CONFIG);
  free(w);
  bs_context_close(context);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("method_backward");
  TCase *tc = tcase_create("backward");
  tcase_set_timeout(tc, 200);
  tcase_add_loop_test(tc, exact_on_integers, 0, N_SUBJECTS);
  tcase_add_test(tc, refusals);
  suite_add_tcase(suite, tc);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed != 0;
}
