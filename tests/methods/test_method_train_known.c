/* SPDX-License-Identifier: MIT
 *
 * test_method_train_known.c - the known answers of training, K12 to K15, in f32, f16 and bf16 on ref and cpu,
 * under each mask: dX on every rank, dW and the stepped weights of what each rank owns.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const float W[32] = {1, 2,  3, 4, 5, 6, 7,  8, -1, 0, 2,  1, 3, -2, 0, 4,
                            2, -3, 1, 0, 0, 1, -1, 2, 0,  5, -4, 2, 1, 1,  1, -6};
static const float X[16] = {1, 0, 2, -1, 1, 1, 0, 2, 0, 1, 1, 1, -1, 2, 3, 0};

/* d loss / d Y, and what comes of it. */
typedef struct answer {
  const char *id;
  double dy[8], dx[16], dw_first_row[8];
} answer;

static const answer sum = {
    "K12",
    {1, 1, 1, 1, 1, 1, 1, 1},
    {2, 4, 2, 7, 9, 6, 7, 8, 2, 4, 2, 7, 9, 6, 7, 8},
    {1, 1, 3, 0, 0, 3, 3, 2},
};
static const answer mean_of_squares = {
    "K13",
    {7.5, 2.75, 2.25, -5, 9.25, -1, -0.75, 1.75},
    {9.25, -16.75, 50.25, 22.75, 40.75, 36.75, 45.25, 105.5, 8.75, 29.5, 18, 39.5, 45, 58.5, 67.25, 58},
    {7.5, 9.25, 24.25, 1.75, -1.75, 26, 27.75, 15},
};
static const answer halved = {
    "K15",
    {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5},
    {1, 2, 1, 3.5, 4.5, 3, 3.5, 4, 1, 2, 1, 3.5, 4.5, 3, 3.5, 4},
    {0.5, 0.5, 1.5, 0, 0, 1.5, 1.5, 1},
};
/* K14: the first row of W - 0.5 dW of K12. */
static const double stepped[8] = {0.5, 1.5, 1.5, 4, 5, 4.5, 5.5, 7};

typedef struct run {
  const char *method, *mask_name;
  const bs_mask *mask; /* NULL: none */
  uint32_t dtype, fused;
  const answer *a;
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
  ck_assert_msg(got == want, "%s %s %s %s rank %u: %s[%d] is %g, not %g", r->a->id, r->method,
                r->mask_name != NULL ? r->mask_name : "", bs_dtype_name(r->dtype), rank, what, (int)i, got,
                want);
}

/* Which columns of W's first row a rank has, in the order of its packed row. */
static int64_t columns_of(const bs_ownership *own, int64_t out[8]) {
  const int64_t count = own->columns != NULL ? own->columns->count : 8;
  int64_t n = 0;
  for (int64_t j = 0; j < count; j++) {
    uint8_t bits = 0xf;
    if (own->kept != NULL)
      ck_assert_int_eq(own->kept->read(own->kept->ctx, 0, 1, j / 4, 1, &bits, 1, NULL), BS_OK);
    if (!(bits >> j % 4 & 1)) continue;
    out[n++] = own->columns == NULL            ? j
               : own->columns->columns != NULL ? own->columns->columns[j]
                                               : own->columns->begin + j;
  }
  return n;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  const run *r = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank);
  bs_layer_spec spec = mf_spec(2, 4, 8, r->dtype);
  spec.flags = BS_LAYER_BACKWARD | BS_LAYER_SGD;
  spec.mask = r->mask;
  double x64[16];
  for (int i = 0; i < 16; i++) x64[i] = (double)X[i];
  bs_source w;
  bs_layer *layer = NULL;
  bs_ownership own = {.struct_size = sizeof own};
  int32_t rc = bs_source_from_memory(W, BS_F32, 4, 8, 8, &w, err);
  if (rc == BS_OK) rc = bs_layer_build(rank, r->method, &spec, &w, NULL, &layer, err);
  if (rc == BS_OK) rc = bs_layer_owns(layer, &own, err);
  if (rc != BS_OK) return rc;
  int64_t column[8];
  const int64_t cols = columns_of(&own, column);
  bs_tensor x = take(rank, r->dtype, 2, 8, x64), dy = take(rank, r->dtype, 2, 4, r->a->dy),
            dx = take(rank, r->dtype, 2, 8, NULL), dw = take(rank, BS_F32, own.row_count, cols, NULL),
            back = take(rank, BS_F64, own.row_count, cols, NULL);
  rc = bs_layer_backward(layer, &x, &dy, &dx, &dw, NULL, NULL, err);
  for (int64_t i = 0; rc == BS_OK && i < 16; i++)
    same(r, me, "dX", i, bs_load_f64(r->dtype, dx.data, i),
         r->dtype == BS_BF16 ? (double)bs_bf16_to_f32(bs_f32_to_bf16((float)r->a->dx[i])) : r->a->dx[i]);
  for (int64_t j = 0; rc == BS_OK && own.row_begin == 0 && j < cols; j++)
    same(r, me, "dW", column[j], (double)((const float *)dw.data)[j], r->a->dw_first_row[column[j]]);
  const bs_step step = {.struct_size = sizeof step,
                        .optimizer = BS_OPT_SGD,
                        .lr = 0.5,
                        .dw = r->fused ? NULL : &dw,
                        .x = &x,
                        .dy = &dy};
  if (rc == BS_OK && r->a == &sum) {
    rc = bs_layer_step(layer, &step, NULL, err);
    if (rc == BS_OK) rc = bs_layer_read_weights(layer, 0, &back, err);
    for (int64_t j = 0; rc == BS_OK && own.row_begin == 0 && j < cols; j++)
      same(r, me, "K14: W", column[j], ((const double *)back.data)[j], stepped[column[j]]);
  }
  bs_tensor *const all[] = {&x, &dy, &dx, &dw, &back};
  for (size_t i = 0; i < 5; i++) api->tensor_free(rank, all[i]);
  bs_layer_free(layer);
  bs_source_release(&w);
  return rc;
}

static const struct {
  const char *method, *mask;
} subjects[] = {
    {"dense", NULL},
    {"column_parallel", NULL},
    {"row_parallel", NULL},
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
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))

START_TEST(known_answers) {
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
  static const answer *const answers[] = {&sum, &mean_of_squares, &halved};
  bs_context *context = mf_context();
  bs_mask mask;
  if (subjects[_i].mask != NULL) mask = mf_mask(subjects[_i].mask);
  for (int i = 0; i < 3 * 3 * 2 * 2; i++) {
    bs_world_options options = {.struct_size = sizeof options,
                                .world_size = _i == 0 ? 1 : 2,
                                .backend = i / 9 % 2 == 0 ? "ref" : "cpu",
                                .threads_per_rank = 1,
                                .timeout_s = 60};
    run r = {.method = subjects[_i].method,
             .mask_name = subjects[_i].mask,
             .mask = subjects[_i].mask != NULL ? &mask : NULL,
             .dtype = dtypes[i % 3],
             .fused = (uint32_t)(i / 18),
             .a = answers[i / 3 % 3]};
    bs_error err = BS_ERROR_INIT;
    bs_world *world = NULL;
    ck_assert_msg(bs_world_create(context, &options, &world, &err) == BS_OK, "%s", err.message);
    ck_assert_msg(bs_world_run(world, rank_main, &r, &err) == BS_OK, "%s %s: %s %s", r.method,
                  r.mask_name != NULL ? r.mask_name : "", err.id, err.message);
    bs_world_destroy(world);
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_answers, N_SUBJECTS}, {0}};
  return run_tests("method_train_known", tests, (test_setup){.timeout = 60});
}
