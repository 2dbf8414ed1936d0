/* SPDX-License-Identifier: MIT
 *
 * test_method_grid.c - every method x mask x P x odd shape x placement x dtype x backend on small integers,
 * whose sums are exact: y must be the exact product, bit for bit; each weight is read by its owner and by
 * nobody else; read_weights returns them; the counters are those that were proposed.
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
    {"blockshock", "0011"},
    {"blockshock", "1010"},
    {"blockshock", "0101"},
    {"blockshock", "1001"},
    {"blockshock", "0110"},
    {"blockshock", "interleave"},
    {"blockshock", "contiguous"},
    {"blockshock", "uneven"},
    {"masked_split", NULL},
    {"masked_split", "1001"},
    {"masked_split", "interleave"},
    {"masked_split", "uneven"},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))

/* B, N, K: odd, smaller than P, not multiples of 4, and one plain. */
static const int64_t shapes[][3] = {{1, 1, 1},   {3, 5, 7},   {2, 3, 2}, {4, 9, 13},
                                    {5, 17, 33}, {8, 16, 32}, {7, 2, 5}};
static const double shares[5] = {5, 1, 2, 0.25, 3};

typedef struct variant {
  uint32_t dtype, x_placement, y_placement, reduce_dtype, bias, fewer_rows, gather;
  const char *backend;
} variant;
static const variant variants[] = {
    {BS_F32, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, 0, "ref"},
    {BS_BF16, BS_REPLICATED, BS_REPLICATED, 0, 0, 1, 0, "cpu"},
    {BS_F16, BS_SPLIT, BS_REPLICATED, BS_F64, 1, 0, 0, "ref"},
    {BS_F32, BS_REPLICATED, BS_SPLIT, 0, 1, 1, 1, "cpu"},
    {BS_BF16, BS_SPLIT, BS_SPLIT, 0, 1, 0, 0, "ref"},
    {BS_F64, BS_REPLICATED, BS_PARTIAL, 0, 1, 0, 0, "ref"},
    {BS_F16, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, 1, "cpu"},
    {BS_F32, BS_SPLIT, BS_PARTIAL, 0, 0, 0, 0, "cpu"},
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

/* column_parallel needs the whole x and makes whole features. */
static int refuses(const mf_case *c) {
  return c->world > 1 && strcmp(c->method, "column_parallel") == 0 &&
         (c->spec.x_placement == BS_SPLIT || c->spec.y_placement == BS_PARTIAL);
}

static void check_outputs(const mf_case *c, const mf_result *result) {
  const bs_layer_spec *s = &c->spec;
  const int64_t rows = c->rows > 0 ? c->rows : s->B;
  double *want = mf_reference(c);
  double *sum = calloc((size_t)(rows * s->N) + 1, sizeof *sum);
  for (uint32_t r = 0; r < c->world; r++) {
    const mf_rank *k = &result->rank[r];
    int64_t begin = 0, count = s->N;
    if (s->y_placement == BS_SPLIT) bs_share(s->N, r, c->world, &begin, &count);
    ck_assert_int_eq(k->y_cols, count);
    for (int64_t t = 0; t < rows; t++)
      for (int64_t n = 0; n < count; n++) {
        if (s->y_placement == BS_PARTIAL)
          sum[t * s->N + n] += k->y[t * count + n];
        else if (k->y[t * count + n] != want[t * s->N + begin + n])
          ck_abort_msg("%s P=%u %lldx%lldx%lld %s rank %u: y[%lld,%lld] is %g, not %g", c->method, c->world,
                       (long long)s->B, (long long)s->N, (long long)s->K, bs_dtype_name(s->y_dtype), r,
                       (long long)t, (long long)(begin + n), k->y[t * count + n], want[t * s->N + begin + n]);
      }
    if (s->y_placement == BS_REPLICATED) /* R1: the same bits on every rank */
      ck_assert_mem_eq(k->y_bits, result->rank[0].y_bits, k->y_bytes);
  }
  if (s->y_placement == BS_PARTIAL)
    for (int64_t i = 0; i < rows * s->N; i++)
      if (sum[i] != want[i])
        ck_abort_msg("the partials of y[%lld] add up to %g, not %g", (long long)i, sum[i], want[i]);
  free(sum);
  free(want);
}

static void check_ownership(const mf_case *c, const mf_result *result) {
  const bs_layer_spec *s = &c->spec;
  uint8_t *owner = calloc(1, (size_t)(s->N * s->K) + 1);
  for (uint32_t r = 0; r < c->world; r++) {
    const mf_rank *k = &result->rank[r];
    for (int64_t i = 0; i < k->row_count; i++)
      for (int64_t j = 0; j < k->k_own; j++) {
        const int64_t at = (k->row_begin + i) * s->K + k->columns[j];
        owner[at] |= (uint8_t)(1u << r);
        if (k->weights[i * k->k_own + j] != c->w[at])
          ck_abort_msg("%s rank %u: weight [%lld,%lld] read back is wrong", c->method, r, (long long)i,
                       (long long)j);
      }
  }
  for (int64_t i = 0; i < s->N * s->K; i++) {
    if (owner[i] == 0 || (owner[i] & (owner[i] - 1)) != 0)
      ck_abort_msg("weight %lld has owners 0x%x", (long long)i, owner[i]);
    if (result->read_by[i] != owner[i])
      ck_abort_msg("%s P=%u: weight %lld is owned by 0x%x and was read by 0x%x", c->method, c->world,
                   (long long)i, owner[i], result->read_by[i]);
  }
  free(owner);
}

/* The proposal is for spec.B rows and one forward. */
static void check_counters(const mf_case *c, const mf_result *result) {
  const uint64_t rows = (uint64_t)(c->rows > 0 ? c->rows : c->spec.B), B = (uint64_t)c->spec.B, P = c->world;
  const uint64_t times = c->forwards > 0 ? c->forwards : 1;
  for (uint32_t r = 0; r < c->world; r++) {
    const mf_rank *k = &result->rank[r];
    const bs_proposal *p = &k->proposal;
    uint64_t payload = 0, wire = 0;
    for (uint32_t i = 0; i < p->n_collectives; i++) {
      const uint64_t m = p->coll_payload[i] / B * rows;
      payload += m;
      wire += m * (p->coll_kind[i] == BS_COLL_ALL_REDUCE ? 2 * (P - 1) : P - 1) / P;
    }
    ck_assert_uint_eq(k->counters[BS_COUNT_FLOPS], times * (p->flops / B * rows));
    ck_assert_uint_eq(k->counters[BS_COUNT_COLLECTIVES], times * p->n_collectives);
    ck_assert_uint_eq(k->collectives, times * p->n_collectives);
    ck_assert_uint_eq(k->counters[BS_COUNT_PAYLOAD_BYTES], times * payload);
    ck_assert_uint_eq(k->counters[BS_COUNT_WIRE_BYTES], times * wire);
    ck_assert_uint_eq(k->regions[BS_REGION_BUILD], 1);
    ck_assert_uint_eq(k->regions[BS_REGION_PACK], k->row_count > 0);
    ck_assert_uint_eq(k->regions[BS_REGION_ALLREDUCE], times * p->n_collectives);
  }
}

static void run_point(bs_context *context, const bs_mask *mask, int subject, uint32_t P, size_t shape,
                      size_t v) {
  static const char *const keys[] = {"kernel"}, *const values[] = {"gather"};
  const variant *var = &variants[v];
  const int64_t B = shapes[shape][0], N = shapes[shape][1], K = shapes[shape][2];
  mf_case c = {.method = subjects[subject].method,
               .backend = var->backend,
               .world = P,
               .forwards = 1 + (uint32_t)(v % 2)};
  c.spec = mf_spec(B, N, K, var->dtype);
  c.spec.x_placement = var->x_placement;
  c.spec.y_placement = var->y_placement;
  c.spec.reduce_dtype = var->reduce_dtype;
  c.spec.has_bias = var->bias;
  c.spec.mask = mask;
  if (var->gather && strcmp(c.method, "blockshock") == 0) {
    c.spec.n_options = 1;
    c.spec.option_keys = keys;
    c.spec.option_values = values;
  }
  c.rows = var->fewer_rows && B > 1 ? B - 1 : 0;
  float *x = mf_integers(1 + shape, B * K), *w = mf_integers(100 + shape, N * K),
        *bias = mf_integers(200 + shape, N);
  c.x = x;
  c.w = w;
  c.bias = var->bias ? bias : NULL;
  mf_result result;
  if (refuses(&c)) {
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(mf_run(context, &c, &result, &err), BS_UNSUPPORTED);
    ck_assert_str_eq(err.id, "BS-METHOD-PLACEMENT");
    ck_assert(err.hint[0] != '\0');
  } else {
    mf_run_ok(context, &c, &result);
    check_outputs(&c, &result);
    check_ownership(&c, &result);
    check_counters(&c, &result);
  }
  mf_free(&result);
  free(x);
  free(w);
  free(bias);
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

/* On real numbers the sum is rounded, but every rank must round it to the same bits. */
START_TEST(same_bits_on_every_rank) {
  static const char *const methods[] = {"column_parallel", "row_parallel", "masked_split", "blockshock"};
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16};
  bs_context *context = mf_context();
  const int64_t B = 9, N = 37, K = 53;
  float *x = mf_normals(7, B * K), *w = mf_normals(8, N * K), *bias = mf_normals(9, N);
  for (size_t d = 0; d < 3; d++)
    for (uint32_t P = 2; P <= 4; P += 2) {
      mf_case c = {.method = methods[_i], .backend = "cpu", .world = P, .x = x, .w = w, .bias = bias};
      c.spec = mf_spec(B, N, K, dtypes[d]);
      c.spec.has_bias = 1;
      mf_result result;
      mf_run_ok(context, &c, &result);
      for (uint32_t r = 1; r < P; r++)
        ck_assert_mem_eq(result.rank[r].y_bits, result.rank[0].y_bits, result.rank[0].y_bytes);
      double *want = mf_reference(&c), error = 0, norm = 0;
      for (int64_t i = 0; i < B * N; i++) {
        error += (result.rank[0].y[i] - want[i]) * (result.rank[0].y[i] - want[i]);
        norm += want[i] * want[i];
      }
      const double u = bs_dtype_unit_roundoff(dtypes[d]);
      ck_assert_msg(error <= u * u * norm * (dtypes[d] == BS_F32 ? 64.0 : 1.0), "%s: relative error %g u",
                    methods[_i], error / (u * u * norm));
      free(want);
      mf_free(&result);
    }
  free(x);
  free(w);
  free(bias);
  bs_context_close(context);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("method_grid");
  TCase *tc = tcase_create("grid");
  tcase_set_timeout(tc, 200);
  tcase_add_loop_test(tc, exact_on_integers, 0, N_SUBJECTS);
  tcase_add_loop_test(tc, same_bits_on_every_rank, 0, 4);
  suite_add_tcase(suite, tc);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed != 0;
}
