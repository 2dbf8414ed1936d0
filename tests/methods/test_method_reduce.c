/* SPDX-License-Identifier: MIT
 *
 * test_method_reduce.c - the dtypes of a reduction: the error that is predicted for the wire is the measured
 * one within 10 %, bytes and collectives are the proposed ones, all ranks hold the same bits, NaN and
 * infinities arrive as such, and what int8 does not sum says so.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const char *const methods[] = {"row_parallel", "blockshock", "masked_split", "blockshock",
                                      "blockshock"};
static const char *const masks[] = {NULL, NULL, NULL, "magnitude",
                                    "random_2of4"}; /* halves of unequal sums, and equal ones */
static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_I8};
#define N_DTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))

static double relative_error(const mf_case *c, const mf_result *result) {
  double *want = mf_reference(c), error = 0, norm = 0;
  for (uint32_t r = 0; r < c->world; r++) {
    const mf_rank *k = &result->rank[r];
    int64_t begin = 0;
    if (c->spec.y_placement == BS_SPLIT)
      for (uint32_t before = 0; before < r; before++) begin += result->rank[before].y_cols;
    else if (r > 0)
      break; /* the same bits, see below */
    for (int64_t t = 0; t < c->spec.B; t++)
      for (int64_t n = 0; n < k->y_cols; n++) {
        const double y = want[t * c->spec.N + begin + n], d = k->y[t * k->y_cols + n] - y;
        error += d * d;
        norm += y * y;
      }
  }
  free(want);
  return sqrt(error / norm);
}

/* One rounding of a normal value, relative; 0 for f32 here. */
static double rounding(uint32_t dtype) {
  return dtype == BS_F32 ? 0.0 : 0.425 * bs_dtype_unit_roundoff(dtype);
}

static void check_error(bs_context *context, size_t m, uint32_t P, uint32_t y_dtype, uint32_t reduce,
                        uint32_t placement, uint32_t seed) {
  const char *method = methods[m];
  bs_mask mask;
  const int64_t B = 32, N = 384, K = 32;
  float *x = mf_normals(1 + 2 * seed, B * K), *w = mf_normals(2 + 2 * seed, N * K);
  mf_case c = {.method = method, .backend = "cpu", .world = P, .x = x, .w = w};
  mf_result result;
  c.spec = mf_spec(B, N, K, y_dtype);
  c.spec.reduce_dtype = reduce;
  c.spec.y_placement = placement;
  c.spec.mask = mf_mask_in(masks[m], &mask);
  mf_run_ok(context, &c, &result);
  const double wire = result.rank[0].proposal.wire_error, own = rounding(y_dtype);
  const double predicted = sqrt(wire * wire + own * own), measured = relative_error(&c, &result);
  if (reduce == BS_F32) ck_assert(wire == 0.0);
  if (predicted > 0.0)
    ck_assert_msg(fabs(measured / predicted - 1.0) < 0.1, "%s P=%u y %s over %s: error %g, predicted %g",
                  method, P, bs_dtype_name(y_dtype), bs_dtype_name(reduce), measured, predicted);
  else
    ck_assert_double_lt(measured, 1e-6);
  mf_check_counters(&c, &result);
  for (uint32_t r = 1; r < P && placement == BS_REPLICATED; r++)
    ck_assert_mem_eq(result.rank[r].y_bits, result.rank[0].y_bits, result.rank[0].y_bytes);
  mf_free(&result);
  free(x);
  free(w);
}

/* _i: a dtype; with BS_TEST_BIG once more for each further data. */
START_TEST(error_as_predicted) {
  bs_context *context = mf_context();
  const uint32_t reduce = dtypes[_i % N_DTYPES], seed = (uint32_t)(_i / N_DTYPES);
  for (uint32_t P = 2; P <= 4; P++)
    for (size_t m = 0; m < 5; m++) {
      if (P == 3 && m > 0) continue; /* complements are for even P */
      check_error(context, m, P, BS_F32, reduce, BS_REPLICATED, seed);
      check_error(context, m, P, BS_F32, reduce, BS_SPLIT, seed);
      if (reduce != BS_F16) check_error(context, m, P, BS_BF16, reduce, BS_REPLICATED, seed);
    }
  bs_context_close(context);
}
END_TEST

/* Four bytes an element of f32 become one and a scale: by a quarter and a little. */
START_TEST(a_quarter_of_the_bytes) {
  bs_context *context = mf_context();
  uint64_t bytes[2];
  for (int i = 0; i < 2; i++) {
    const int64_t B = 8, N = 512, K = 16;
    float *x = mf_normals(1, B * K), *w = mf_normals(2, N * K);
    mf_case c = {.method = "row_parallel", .backend = "ref", .world = 2, .x = x, .w = w};
    mf_result result;
    c.spec = mf_spec(B, N, K, BS_F32);
    c.spec.reduce_dtype = i ? BS_I8 : BS_F32;
    mf_run_ok(context, &c, &result);
    bytes[i] = result.rank[0].counters[BS_COUNT_WIRE_BYTES];
    mf_free(&result);
    free(x);
    free(w);
  }
  ck_assert_uint_eq(bytes[0], 8 * 512 * 4);
  ck_assert_uint_eq(bytes[1], 8 * 512 + 8 * 4 * 4);
  bs_context_close(context);
}
END_TEST

/* _i: 1: of 2:4 halves. Shapes where shares are empty or uneven, fewer tokens, activations, bias, every
 * placement and float y. */
START_TEST(odd_shapes) {
  static const int64_t shapes[][3] = {{1, 1, 5}, {3, 2, 7}, {5, 3, 8}, {4, 385, 12}, {7, 130, 9}};
  static const uint32_t ys[] = {BS_F32, BS_BF16, BS_F16, BS_F64};
  const int halves = _i == 1;
  const bs_mask mask = mf_mask("random_2of4");
  bs_context *context = mf_context();
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (uint32_t v = 0; v < 4; v++) {
      const int64_t B = shapes[i][0], N = shapes[i][1], K = shapes[i][2];
      float *x = mf_normals(1 + i, B * K), *w = mf_normals(20 + i, N * K), *bias = mf_normals(40 + i, N);
      mf_case c = {.method = "row_parallel", .backend = v == 3 ? "ref" : "cpu", .world = 4, .forwards = 2};
      mf_result result;
      c.x = x, c.w = w, c.bias = bias;
      c.spec = mf_spec(B, N, K, ys[v]);
      c.spec.has_bias = 1;
      c.spec.reduce_dtype = BS_I8;
      c.spec.y_placement = v == 1 ? BS_SPLIT : BS_REPLICATED;
      c.spec.activation = v == 2 ? BS_ACT_RELU : BS_ACT_NONE;
      if (halves) {
        c.method = "blockshock";
        c.spec.mask = &mask;
      }
      mf_run_ok(context, &c, &result);
      mf_check_counters(&c, &result);
      if (c.spec.activation == BS_ACT_NONE) ck_assert_double_lt(relative_error(&c, &result), 0.03);
      for (uint32_t r = 1; r < 4 && c.spec.y_placement == BS_REPLICATED; r++)
        ck_assert_mem_eq(result.rank[r].y_bits, result.rank[0].y_bits, result.rank[0].y_bytes);
      mf_free(&result);
      c.rows = B > 1 ? B - 1 : 0;
      mf_run_ok(context, &c, &result);
      mf_free(&result);
      free(x);
      free(w);
      free(bias);
    }
  bs_context_close(context);
}
END_TEST

/* One token's infinity: outputs of that token are not finite, all others are. */
START_TEST(nothing_turns_finite) {
  const float bad[] = {INFINITY, NAN};
  bs_context *context = mf_context();
  const int64_t B = 4, N = 300, K = 16;
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
    float *x = mf_normals(1, B * K), *w = mf_normals(2, N * K);
    mf_case c = {.method = "row_parallel", .backend = "cpu", .world = 3, .x = x, .w = w};
    mf_result result;
    c.spec = mf_spec(B, N, K, BS_F32);
    c.spec.reduce_dtype = dtypes[d];
    x[2 * K + K - 1] = bad[_i]; /* the last rank's */
    mf_run_ok(context, &c, &result);
    for (int64_t i = 0; i < B * N; i++) ck_assert_int_eq(isfinite(result.rank[0].y[i]) != 0, i / N != 2);
    mf_free(&result);
    free(x);
    free(w);
  }
  bs_context_close(context);
}
END_TEST

START_TEST(refused) {
  static const char *const keys[] = {"overlap"}, *const values[] = {"4"};
  bs_context *context = mf_context();
  bs_proposal p = {.struct_size = sizeof p};
  bs_error err = BS_ERROR_INIT;
  bs_layer_spec spec = mf_spec(8, 64, 64, BS_F32);
  spec.reduce_dtype = BS_I8;
  spec.n_options = 1;
  spec.option_keys = keys;
  spec.option_values = values;
  ck_assert_int_eq(bs_method_propose(context, "row_parallel", &spec, 0, 2, &p, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-METHOD-OVERLAP");
  ck_assert_int_eq(bs_method_propose(context, "column_parallel", &spec, 0, 2, &p, &err), BS_OK); /* no sum */
  ck_assert_uint_gt(p.chunks, 1);
  ck_assert(p.wire_error == 0.0);
  static const char *const slices[] = {"slices", "half"}, *const columns[] = {"column", "0"};
  const bs_mask mask = mf_mask("magnitude"); /* slices of columns of Y are summed by pairs */
  spec.mask = &mask;
  spec.option_keys = slices;
  spec.option_values = columns;
  ck_assert_int_eq(bs_method_propose(context, "blockshock", &spec, 0, 4, &p, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-METHOD-SLICES");
  ck_assert_int_eq(bs_method_propose(context, "blockshock", &spec, 0, 2, &p, &err), BS_OK);
  ck_assert(p.wire_error > 0.0);
  spec.n_options = 2; /* of one half alone nothing is summed */
  ck_assert_int_eq(bs_method_propose(context, "blockshock", &spec, 0, 3, &p, &err), BS_OK);
  ck_assert(p.wire_error == 0.0);
  ck_assert_uint_eq(p.n_collectives, 1);
  ck_assert_uint_eq(p.coll_kind[0], BS_COLL_ALL_GATHER);
  spec.mask = NULL;
  spec.n_options = 0;
  spec.x_dtype = spec.w_dtype = BS_I8;
  spec.y_dtype = BS_I32;
  ck_assert_int_eq(bs_method_propose(context, "row_parallel", &spec, 0, 2, &p, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-METHOD-REDUCE");
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{error_as_predicted, N_DTYPES * (int)mf_big()},
                             {a_quarter_of_the_bytes},
                             {odd_shapes, 2},
                             {nothing_turns_finite, 2},
                             {refused},
                             {0}};
  return run_tests("method_reduce", tests, (test_setup){.timeout = 60});
}
