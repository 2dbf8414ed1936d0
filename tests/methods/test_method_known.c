/* SPDX-License-Identifier: MIT
 *
 * test_method_known.c - the known answers K1 to K16, in every dtype on ref and cpu: outputs of every rank,
 * the partials that go into the collective, packed values, one half of a mask alone, and of training dX on
 * every rank, dW and the stepped weights of what each rank owns.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const float W[32] = {1, 2,  3, 4, 5, 6, 7,  8, -1, 0, 2,  1, 3, -2, 0, 4,
                            2, -3, 1, 0, 0, 1, -1, 2, 0,  5, -4, 2, 1, 1,  1, -6};
static const float X[16] = {1, 0, 2, -1, 1, 1, 0, 2, 0, 1, 1, 1, -1, 2, 3, 0};
static const double K1[8] = {30, 11, 9, -20, 37, -4, -3, 7};
static const char *const backends[] = {"ref", "cpu"};

static const struct {
  uint32_t in, out;
} dtypes[] = {{BS_F32, BS_F32}, {BS_BF16, BS_BF16}, {BS_F16, BS_F16}, {BS_F64, BS_F64}, {BS_I8, BS_I32}};
enum { FLOATS_OF_BOTH = 3 }; /* the first ones; the cpu backend has no f64 product */

/* The partials that the ranks put into the collective: [2,4], or the rank's own block. */
static const float K2[2][8] = {{3, 2, 4, -10, 9, 3, -2, 3}, {27, 9, 5, -10, 28, -7, -1, 4}};
static const float K3[2][8] = {{30, 11, 37, -4}, {9, -20, -3, 7}};
static const float K4[2][8] = {{12, 0, 3, 2, 9, -7, -1, 6}, {18, 11, 6, -22, 28, 3, -2, 1}};
static const float K5[2][8] = {{12, 6, 4, -7, 19, -1, -2, -2}, {18, 5, 5, -13, 18, -3, -1, 9}};
static const float K6[2][8] = {{18, 9, 6, -13, -1, -2, 0, 1}, {12, 2, 3, -7, 38, -2, -3, 6}};
static const float K8[4][8] = {{6, 2, 2, 1, -5, -3, 0, -1},
                               {6, -2, 1, 1, 14, -4, -1, 7},
                               {6, 4, 2, -8, 24, 2, -2, -1},
                               {12, 7, 4, -14, 4, 1, 0, 2}};
static const float K11[2][8] = {{18, 14, 7, -19, 28, -1, -1, 0}, {12, -3, 2, -1, 9, -3, -2, 7}};

typedef struct answer {
  const char *id, *method, *mask, *kernel;
  uint32_t world;
  const float (*partial)[8]; /* by rank */
  double dropped;            /* of 2:4 halves: the error of dropping the second one */
} answer;
static const answer answers[] = {
    {"K1", "dense", NULL, NULL, 1, NULL, 0},
    {"K2", "row_parallel", NULL, NULL, 2, K2, 0},
    {"K3", "column_parallel", NULL, NULL, 2, K3, 0},
    {"K4", "blockshock", "1100", NULL, 2, K4, 0},
    {"K5", "blockshock", "1010", NULL, 2, K5, 0},
    {"K6", "blockshock", "1001", NULL, 2, K6, 0},
    {"K4", "masked_split", NULL, NULL, 2, K4, 0},
    {"K6", "masked_split", "1001", NULL, 2, K6, 0},
    {"K8", "blockshock", "interleave", NULL, 4, K8, 0},
    {"K11", "masked_split", "magnitude", NULL, 2, K11, 0},
    {"K4", "blockshock", "1100", "sparse24", 2, K4, 0.7071},
    {"K5", "blockshock", "1010", "sparse24", 2, K5, 0.7071},
    {"K6", "blockshock", "1001", "sparse24", 2, K6, 0.7071},
    {"K11", "blockshock", "magnitude", "auto", 2, K11, 0.3647},
};
enum { OF_COLUMNS = 10, N_ANSWERS = TEST_COUNT(answers) }; /* the rows from OF_COLUMNS on are 2:4 halves */

typedef struct options {
  const char *keys[3], *values[3];
  uint32_t n;
} options;

/* Adds an option, unless its value is NULL. */
static void option(options *o, const char *key, const char *value) {
  if (value == NULL) return;
  o->keys[o->n] = key;
  o->values[o->n++] = value;
}

static void give(bs_layer_spec *spec, const options *o) {
  spec->n_options = o->n;
  spec->option_keys = o->keys;
  spec->option_values = o->values;
}

static mf_case known_case(const char *method, const char *backend, size_t dtype, uint32_t P) {
  mf_case c = {.method = method, .backend = backend, .world = P, .x = X, .w = W};
  c.spec = mf_spec(2, 4, 8, dtypes[dtype].in);
  c.spec.y_dtype = dtypes[dtype].out;
  return c;
}

static void check_answer(bs_context *context, const answer *a, const char *backend, size_t dtype, uint32_t P,
                         const char *slices) {
  const int halves = a->kernel != NULL;
  bs_mask mask;
  mf_case c = known_case(a->method, backend, dtype, P);
  options o = {.n = 0};
  option(&o, "kernel", a->kernel);
  option(&o, "slices", slices);
  give(&c.spec, &o);
  c.spec.mask = mf_mask_in(a->mask, &mask);
  mf_result result;
  mf_run_ok(context, &c, &result);
  for (uint32_t r = 0; r < P; r++) {
    const mf_rank *k = &result.rank[r];
    ck_assert_int_eq(k->y_cols, 4);
    for (int i = 0; i < 8; i++)
      ck_assert_msg(k->y[i] == K1[i], "%s %s on %s, P=%u rank %u: y[%d] is %g, not %g", a->id,
                    bs_dtype_name(dtypes[dtype].in), backend, P, r, i, k->y[i], K1[i]);
    if (!halves) ck_assert_uint_eq(k->collectives, P > 1);
    if (halves) ck_assert_uint_eq(k->regions[BS_REGION_COMPRESS], P > 1);
    if (halves && P == 1) ck_assert_ptr_nonnull(strstr(k->proposal.text, "dense product")); /* said so */
    if (P != a->world || P == 1) continue;
    ck_assert_uint_eq(k->partial_count, a->partial == K3 ? 4 : 8);
    for (uint64_t i = 0; i < k->partial_count; i++)
      ck_assert_msg(k->partial[i] == a->partial[r][i], "%s %s on %s, rank %u: partial[%d] is %g, not %g",
                    a->id, bs_dtype_name(dtypes[dtype].in), backend, r, (int)i, (double)k->partial[i],
                    (double)a->partial[r][i]);
  }
  mf_check_counters(&c, &result);
  mf_check_ownership(&c, &result, 0);
  mf_free(&result);
}

START_TEST(known_answers) {
  bs_context *context = mf_context();
  const answer *a = &answers[_i];
  for (size_t b = 0; b < 2; b++)
    for (size_t d = 0; d < TEST_COUNT(dtypes); d++) {
      if (b == 1 && dtypes[d].in == BS_F64) continue;
      check_answer(context, a, backends[b], d, a->world, NULL);
      if (a->kernel == NULL) continue;
      check_answer(context, a, backends[b], d, 1, NULL);
      check_answer(context, a, backends[b], d, 4, "row");
      check_answer(context, a, backends[b], d, 4, "column");
    }
  bs_context_close(context);
}
END_TEST

/* K7: what blockshock packs for 1100 are columns 0 1 4 5 of W, and nothing else was read. */
START_TEST(k7_packed_columns) {
  static const int64_t columns[4] = {0, 1, 4, 5};
  static const float packed[16] = {1, 2, 5, 6, -1, 0, 3, -2, 2, -3, 0, 1, 0, 5, 1, 1};
  bs_context *context = mf_context();
  for (size_t b = 0; b < 2; b++) {
    mf_case c = {.method = "block_shock_2gpu", .backend = backends[b], .world = 2, .x = X, .w = W};
    c.spec = mf_spec(2, 4, 8, BS_F32);
    mf_result result;
    mf_run_ok(context, &c, &result);
    ck_assert_int_eq(result.rank[0].k_own, 4);
    ck_assert_int_eq(result.rank[0].row_count, 4);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(result.rank[0].columns[i], columns[i]);
    for (int i = 0; i < 16; i++) ck_assert(result.rank[0].weights[i] == packed[i]);
    for (int i = 0; i < 32; i++) ck_assert_uint_eq(result.read_by[i], i % 4 < 2 ? 1 : 2);
    mf_free(&result);
  }
  bs_context_close(context);
}
END_TEST

/* K10: what the ranks hold of the magnitude mask, zeros of the complement among it: as 2:4 values, and in
 * dense storage. */
START_TEST(k10_packed_values) {
  static const char *const methods[] = {"blockshock", "masked_split"};
  static const float packed[2][16] = {{3, 4, 7, 8, -1, 2, 3, 4, 2, -3, 1, 2, 5, -4, 1, -6},
                                      {1, 2, 5, 6, 0, 1, -2, 0, 1, 0, 0, -1, 0, 2, 1, 1}};
  const bs_mask mask = mf_mask("magnitude");
  bs_context *context = mf_context();
  for (size_t b = 0; b < 2; b++) {
    mf_case c = known_case(methods[_i], backends[b], 0, 2);
    c.spec.mask = &mask;
    mf_result result;
    mf_run_ok(context, &c, &result);
    for (int r = 0; r < 2; r++) {
      ck_assert_int_eq(result.rank[r].k_own, 4);
      for (int i = 0; i < 16; i++) ck_assert(result.rank[r].weights[i] == packed[r][i]);
    }
    mf_free(&result);
  }
  bs_context_close(context);
}
END_TEST

/* One half alone: its product, the error of dropping the other, on any number of ranks. */
START_TEST(halves_alone) {
  static const char *const names[2] = {"0", "1"}, *const slices[] = {NULL, "row", "column"};
  const answer *a = &answers[_i];
  const bs_mask mask = mf_mask(a->mask);
  bs_context *context = mf_context();
  for (uint32_t P = 1; P <= 3; P++)
    for (int i = 0; i < 6; i++) {
      const int h = i / 3;
      mf_case c = known_case(a->method, backends[P % 2], 0, P);
      options o = {.n = 0};
      option(&o, "slices", slices[i % 3]);
      option(&o, "half", names[h]);
      give(&c.spec, &o);
      c.spec.mask = &mask;
      mf_result result;
      mf_run_ok(context, &c, &result);
      mf_check_counters(&c, &result);
      for (uint32_t r = 0; r < P; r++) {
        const double want = h == 0 ? a->dropped : sqrt(1.0 - a->dropped * a->dropped);
        ck_assert_double_eq_tol(result.rank[r].proposal.prune_error, want, 1e-3);
        ck_assert_ptr_nonnull(strstr(result.rank[r].proposal.text, "half alone"));
        for (int j = 0; j < 8; j++)
          ck_assert_msg(result.rank[r].y[j] == (double)a->partial[h][j],
                        "%s half %d alone on %u ranks: [%d] is %g, not %g", a->id, h, P, j,
                        result.rank[r].y[j], (double)a->partial[h][j]);
      }
      mf_free(&result);
    }
  bs_context_close(context);
}
END_TEST

/* K16: W row [256 1 1 0], X ones. f32 partials keep 257 + 1 = 258; a bf16 wire rounds 257 to 256 and the
 * sum to 256. The exact sum is a bf16 number, so only the reduce dtype can lose it. */
START_TEST(k16_reduce_dtype) {
  static const float w[4] = {256, 1, 1, 0}, ones[4] = {1, 1, 1, 1};
  bs_context *context = mf_context();
  for (size_t b = 0; b < 2; b++) {
    mf_case c = {.method = "blockshock", .backend = backends[b], .world = 2, .x = ones, .w = w};
    c.spec = mf_spec(1, 1, 4, BS_BF16);
    mf_result result;
    mf_run_ok(context, &c, &result);
    for (uint32_t r = 0; r < 2; r++) ck_assert(result.rank[r].y[0] == 258);
    ck_assert(result.rank[0].partial[0] == 257 && result.rank[1].partial[0] == 1);
    ck_assert_uint_eq(result.rank[0].counters[BS_COUNT_PAYLOAD_BYTES], 4);
    mf_free(&result);
    c.spec.reduce_dtype = BS_BF16;
    mf_run_ok(context, &c, &result);
    for (uint32_t r = 0; r < 2; r++) ck_assert(result.rank[r].y[0] == 256);
    ck_assert(result.rank[0].partial[0] == 256 && result.rank[1].partial[0] == 1);
    ck_assert_uint_eq(result.rank[0].counters[BS_COUNT_PAYLOAD_BYTES], 2);
    mf_free(&result);
  }
  bs_context_close(context);
}
END_TEST

/* The original's names give the same layers. */
START_TEST(aliases) {
  static const char *const pairs[][2] = {{"dense", "dense_single"},
                                         {"row_parallel", "dense_tp"},
                                         {"masked_split", "masked_split_dense"},
                                         {"blockshock", "block_shock_2gpu"}};
  bs_context *context = mf_context();
  for (size_t i = 0; i < 4; i++) {
    const bs_method *a = NULL, *b = NULL;
    void *state;
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_find_method(context, pairs[i][1], &b, &state, &err) == BS_OK, "%s", err.message);
    ck_assert_int_eq(bs_find_method(context, pairs[i][0], &a, &state, &err), BS_OK);
    ck_assert_ptr_eq(a, b);
    ck_assert_str_eq(a->name, pairs[i][0]);
  }
  bs_context_close(context);
}
END_TEST

/* ---- training, K12 to K15 ------------------------------------------------------------------------ */

/* d loss / d Y, and what comes of it. */
typedef struct gradients {
  const char *id;
  double dy[8], dx[16], dw_first_row[8];
} gradients;

static const gradients sum = {
    "K12",
    {1, 1, 1, 1, 1, 1, 1, 1},
    {2, 4, 2, 7, 9, 6, 7, 8, 2, 4, 2, 7, 9, 6, 7, 8},
    {1, 1, 3, 0, 0, 3, 3, 2},
};
static const gradients mean_of_squares = {
    "K13",
    {7.5, 2.75, 2.25, -5, 9.25, -1, -0.75, 1.75},
    {9.25, -16.75, 50.25, 22.75, 40.75, 36.75, 45.25, 105.5, 8.75, 29.5, 18, 39.5, 45, 58.5, 67.25, 58},
    {7.5, 9.25, 24.25, 1.75, -1.75, 26, 27.75, 15},
};
static const gradients halved = {
    "K15",
    {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5},
    {1, 2, 1, 3.5, 4.5, 3, 3.5, 4, 1, 2, 1, 3.5, 4.5, 3, 3.5, 4},
    {0.5, 0.5, 1.5, 0, 0, 1.5, 1.5, 1},
};
/* K14: the first row of W - 0.5 dW of K12. */
static const double stepped[8] = {0.5, 1.5, 1.5, 4, 5, 4.5, 5.5, 7};

/* The dX of K12 of one half alone. */
static const double magnitude_0[8] = {1, 2, 1, 4, 4, 1, 7, 8}, magnitude_1[8] = {1, 2, 1, 3, 5, 5, 0, 0},
                    first_0[8] = {2, 4, 0, 0, 9, 6, 0, 0}, first_1[8] = {0, 0, 2, 7, 0, 0, 7, 8};

typedef struct trained {
  const char *method, *mask, *half;
  const double *dx; /* of one half alone */
} trained;
static const trained subjects[] = {
    {"dense"},
    {"column_parallel"},
    {"row_parallel"},
    {"masked_split", "1100"},
    {"masked_split", "1010"},
    {"masked_split", "1001"},
    {"masked_split", "interleave"},
    {"masked_split", "random_2of4"},
    {"masked_split", "magnitude"},
    {"masked_split", "transposable"},
    {"blockshock", "1100"},
    {"blockshock", "1010"},
    {"blockshock", "1001"},
    {"blockshock", "interleave"},
    {"blockshock", "contiguous"},
    {"blockshock", "random_2of4"},
    {"blockshock", "magnitude"},
    {"blockshock", "transposable"},
    {"blockshock", "magnitude", "0", magnitude_0},
    {"blockshock", "magnitude", "1", magnitude_1},
    {"blockshock", "1100", "0", first_0},
    {"blockshock", "1100", "1", first_1},
};

typedef struct run {
  const trained *of;
  const bs_mask *mask; /* NULL: none */
  uint32_t dtype, fused;
  const gradients *g;
} run;

static bs_tensor take(bs_rank *rank, uint32_t dtype, int64_t rows, int64_t cols, const double *values) {
  bs_tensor t;
  bs_error err = BS_ERROR_INIT;
  const bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = 2, .dims = {rows, cols}};
  ck_assert_int_eq(bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t, &err), BS_OK);
  for (int64_t i = 0; values != NULL && i < rows * cols; i++) bs_store_f64(dtype, t.data, i, values[i]);
  return t;
}

static void same(const run *r, uint32_t rank, const char *what, int64_t i, double got, double want) {
  ck_assert_msg(got == want, "%s %s %s %s rank %u: %s[%d] is %g, not %g", r->g->id, r->of->method,
                r->of->mask != NULL ? r->of->mask : "", bs_dtype_name(r->dtype), rank, what, (int)i, got,
                want);
}

/* The first row of dW and of the stepped W is known. Where all of dY is the same,
 * the other rows of dW are too. */
static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  const run *r = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  const gradients *g = r->g;
  bs_layer_spec spec = mf_spec(2, 4, 8, r->dtype);
  options o = {.n = 0};
  option(&o, "half", r->of->half);
  give(&spec, &o);
  spec.flags = BS_LAYER_BACKWARD | BS_LAYER_SGD;
  spec.mask = r->mask;
  double x64[16];
  for (int i = 0; i < 16; i++) x64[i] = (double)X[i];
  bs_source w;
  bs_layer *layer = NULL;
  bs_ownership own = {.struct_size = sizeof own};
  int32_t rc = bs_source_from_memory(W, BS_F32, 4, 8, 8, &w, err);
  if (rc == BS_OK) rc = bs_layer_build(rank, r->of->method, &spec, &w, NULL, &layer, err);
  if (rc == BS_OK) rc = bs_layer_owns(layer, &own, err);
  if (rc != BS_OK) return rc;
  int64_t cols;
  int64_t *place = mf_places(&own, 8, &cols);
  bs_tensor x = take(rank, r->dtype, 2, 8, x64), dy = take(rank, r->dtype, 2, 4, g->dy),
            dx = take(rank, r->dtype, 2, 8, NULL), dw = take(rank, BS_F32, own.row_count, cols, NULL),
            back = take(rank, BS_F64, own.row_count, cols, NULL);
  rc = bs_layer_backward(layer, &x, &dy, &dx, &dw, NULL, NULL, err);
  for (int64_t i = 0; rc == BS_OK && i < 16; i++) {
    const double want = r->of->dx != NULL ? r->of->dx[i % 8] : g->dx[i];
    same(r, me, "dX", i, bs_load_f64(r->dtype, dx.data, i),
         r->dtype == BS_BF16 ? (double)bs_bf16_to_f32(bs_f32_to_bf16((float)want)) : want);
  }
  for (int64_t j = 0; rc == BS_OK && j < own.row_count * cols; j++)
    if (own.row_begin + j / cols == 0 || g->dy[0] == g->dy[1])
      same(r, me, "dW", place[j], (double)((const float *)dw.data)[j], g->dw_first_row[place[j]]);
  const bs_step step = {.struct_size = sizeof step,
                        .optimizer = BS_OPT_SGD,
                        .lr = 0.5,
                        .dw = r->fused ? NULL : &dw,
                        .x = &x,
                        .dy = &dy};
  if (rc == BS_OK && g == &sum) {
    rc = bs_layer_step(layer, &step, NULL, err);
    if (rc == BS_OK) rc = bs_layer_read_weights(layer, 0, &back, err);
    for (int64_t j = 0; rc == BS_OK && own.row_begin == 0 && j < cols; j++)
      same(r, me, "K14: W", place[j], ((const double *)back.data)[j], stepped[place[j]]);
  }
  free(place);
  bs_tensor *const all[] = {&x, &dy, &dx, &dw, &back};
  for (size_t i = 0; i < 5; i++) api->tensor_free(rank, all[i]);
  bs_layer_free(layer);
  bs_source_release(&w);
  return rc;
}

START_TEST(known_gradients) {
  static const gradients *const all[] = {&sum, &mean_of_squares, &halved};
  const trained *s = &subjects[_i];
  bs_context *context = mf_context();
  bs_mask mask;
  if (s->mask != NULL) mask = mf_mask(s->mask);
  for (int i = 0; i < 3 * 3 * 2 * 2; i++) {
    bs_world_options world_options = {.struct_size = sizeof world_options,
                                      .world_size = _i == 0 || s->half != NULL ? 1 : 2,
                                      .backend = backends[i / 9 % 2],
                                      .threads_per_rank = 1,
                                      .timeout_s = 60};
    run r = {.of = s,
             .mask = s->mask != NULL ? &mask : NULL,
             .dtype = dtypes[i % FLOATS_OF_BOTH].in,
             .fused = (uint32_t)(i / 18),
             .g = all[i / 3 % 3]};
    bs_error err = BS_ERROR_INIT;
    bs_world *world = NULL;
    if (s->half != NULL && r.g != &sum) continue;
    ck_assert_msg(bs_world_create(context, &world_options, &world, &err) == BS_OK, "%s", err.message);
    ck_assert_msg(bs_world_run(world, rank_main, &r, &err) == BS_OK, "%s %s: %s %s", s->method,
                  s->mask != NULL ? s->mask : "", err.id, err.message);
    bs_world_destroy(world);
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_answers, N_ANSWERS},
                             {k7_packed_columns},
                             {k10_packed_values, 2},
                             {halves_alone, N_ANSWERS, OF_COLUMNS},
                             {k16_reduce_dtype},
                             {aliases},
                             {known_gradients, TEST_COUNT(subjects)},
                             {0}};
  return run_tests("method_known", tests, (test_setup){.timeout = 120});
}
