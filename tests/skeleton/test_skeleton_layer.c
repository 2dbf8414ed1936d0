/* SPDX-License-Identifier: MIT
 * test_skeleton_layer.c - whole layers by the skeletons of a method and of a backend: exact on integers for
 * any world and shape, every column owned once, what was proposed is what was counted, and refusals that say
 * why. */
#include "kit/method_fixture.h"
#include "skeleton_test.h"
#include "tests/run_tests.h"

static bs_context *context;
static void setup(void) {
  context = skeleton_context();
}
static void teardown(void) {
  bs_context_close(context);
}

static const int64_t shapes[][3] = {{3, 7, 11}, {1, 1, 5}, {8, 16, 64}, {5, 33, 6}};
static const uint32_t worlds[] = {1, 2, 3, 5};
enum { SHAPES = 4, WORLDS = 4 };

/* The values live until case_free. */
static mf_case case_of(const char *method, const char *backend, int which, uint32_t dtype) {
  const int64_t *s = shapes[which % SHAPES];
  mf_case c = {.method = method, .backend = backend, .world = worlds[which / SHAPES % WORLDS], .forwards = 2};
  c.spec = mf_spec(s[0], s[1], s[2], dtype);
  c.spec.has_bias = which % 3 != 0;
  c.x = mf_integers(7, s[0] * s[2]);
  c.w = mf_integers(8, s[1] * s[2]);
  c.bias = c.spec.has_bias ? mf_integers(9, s[1]) : NULL;
  return c;
}
static void case_free(mf_case *c) {
  free((void *)(uintptr_t)c->x);
  free((void *)(uintptr_t)c->w);
  free((void *)(uintptr_t)c->bias);
}

/* Sums of small integers are exact in every dtype here, so each rank's y is the reference, bit for bit. */
static void check_y(const mf_case *c, const mf_result *r) {
  double *want = mf_reference(c);
  for (uint32_t rank = 0; rank < c->world; rank++) {
    const mf_rank *k = &r->rank[rank];
    ck_assert_int_eq(k->y_cols, c->spec.N);
    for (int64_t i = 0; i < c->spec.B * c->spec.N; i++)
      ck_assert_msg(k->y[i] == want[i], "%s on %s, P=%u rank %u K=%lld: y[%lld] is %g, not %g", c->method,
                    c->backend, c->world, rank, (long long)c->spec.K, (long long)i, k->y[i], want[i]);
  }
  free(want);
}

static void check_parts(const mf_case *c, const mf_result *r) {
  int owners[64] = {0};
  for (uint32_t rank = 0; rank < c->world; rank++) {
    const mf_rank *k = &r->rank[rank];
    ck_assert_int_eq(k->row_count, c->spec.N);
    for (int64_t i = 0; i < k->k_own; i++) {
      owners[k->columns[i]]++;
      for (int64_t n = 0; n < c->spec.N; n++)
        ck_assert_float_eq(k->weights[n * k->k_own + i], c->w[n * c->spec.K + k->columns[i]]);
    }
  }
  for (int64_t i = 0; i < c->spec.K; i++)
    ck_assert_msg(owners[i] == 1, "column %lld: %d owners", (long long)i, owners[i]);
}

static void check_claims(const mf_case *c, const mf_result *r) {
  for (uint32_t rank = 0; rank < c->world; rank++) {
    const bs_proposal *p = &r->rank[rank].proposal;
    const uint64_t *counted = r->rank[rank].counters;
    uint64_t payload = 0;
    for (uint32_t i = 0; i < p->n_collectives; i++) payload += p->coll_payload[i];
    ck_assert_uint_eq(counted[BS_COUNT_FLOPS], c->forwards * p->flops);
    ck_assert_uint_eq(counted[BS_COUNT_COLLECTIVES], c->forwards * p->n_collectives);
    ck_assert_uint_eq(counted[BS_COUNT_PAYLOAD_BYTES], c->forwards * payload);
  }
}

START_TEST(method_is_exact) {
  static const char *const backends[] = {"ref", "cpu"};
  static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F64};
  for (int b = 0; b < 2; b++)
    for (int d = 0; d < 3 - b; d++) { /* cpu has no f64 */
      mf_result r;
      mf_case c = case_of("skel_method", backends[b], _i, dtypes[d]);
      mf_run_ok(context, &c, &r);
      check_y(&c, &r);
      check_parts(&c, &r);
      check_claims(&c, &r);
      mf_free(&r);
      case_free(&c);
    }
}
END_TEST

START_TEST(backend_is_exact) {
  static const char *const methods[] = {"row_parallel", "column_parallel", "skel_method"};
  for (int m = 0; m < 3; m++) {
    mf_result r;
    mf_case c = case_of(methods[m], "skel_backend", _i, BS_F32);
    mf_run_ok(context, &c, &r);
    check_y(&c, &r);
    check_claims(&c, &r);
    ck_assert_has(r.algorithms, "matmul@skel_backend/plain (plain loops)");
    mf_free(&r);
    case_free(&c);
  }
}
END_TEST

static void refused(const mf_case *c, const char *id, const char *says) {
  mf_result r;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(mf_run(context, c, &r, &err), BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, id);
  ck_assert_has(err.message, says);
  mf_free(&r);
}

START_TEST(what_cannot_be_done_is_refused) {
  mf_case c = case_of("skel_method", "ref", 13, BS_F32); /* K=5 over 5 ranks is the least */
  c.world = 6;
  refused(&c, "BS-SKEL-METHOD-SHAPE", "K=5 over 6 ranks");
  c.world = 2;
  c.spec.y_placement = BS_SPLIT;
  refused(&c, "BS-SKEL-METHOD-PLACEMENT", "replicated");
  c.spec.y_placement = BS_REPLICATED;
  c.spec.activation = BS_ACT_RELU;
  refused(&c, "BS-SKEL-METHOD-ACT", "activation");
  case_free(&c);
  c = case_of("row_parallel", "skel_backend", 4, BS_BF16);
  refused(&c, "BS-OP-NONE", "f32 only");
  case_free(&c);
  c = case_of("blockshock", "skel_backend", 4, BS_F32); /* needs an op that this backend has not */
  refused(&c, "BS-OP-NONE", "gather_columns");
  case_free(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{method_is_exact, SHAPES * WORLDS},
                             {backend_is_exact, SHAPES * WORLDS},
                             {what_cannot_be_done_is_refused},
                             {0}};
  return run_tests("skeleton_layer", tests, (test_setup){setup, teardown});
}
