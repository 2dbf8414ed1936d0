/* SPDX-License-Identifier: MIT
 *
 * test_method_exact.c - one property of every method: on small integers, whose sums are exact, a method on P
 * ranks gives what one dense product gives, bit for bit. It is asked of every mask x P x odd shape x
 * placement x dtype x backend x option, forward, backward and in two steps of each optimiser; first over a
 * grid, then at points that are drawn. kit/method_checks.c and kit/method_gradient.c say what must hold: y,
 * dX, dW, db, the stepped weights, who owns and who reads each weight, and the counters that were proposed.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "kit/method_gradient.h"
#include "tests/marks.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

#define ON(P) (1u << (P))
#define ANY (ON(1) | ON(2) | ON(3) | ON(4) | ON(5))
#define EVEN (ON(1) | ON(2) | ON(4)) /* a complement is for pairs of ranks */
#define PAIRS (EVEN | ON(6))
#define LEAVES (EVEN | ON(8)) /* repro=R3 sums 8 leaves */

/* A method, its mask, the numbers of ranks and its options. */
typedef struct subject {
  const char *method, *mask;
  uint32_t worlds;
  const char *options[4]; /* key, value, key, value */
} subject;
static const subject subjects[] = {
    {"dense", NULL, ON(1)},
    {"column_parallel", NULL, ANY},
    {"row_parallel", NULL, ANY},
    {"row_parallel", "uneven", ANY},
    {"blockshock", NULL, EVEN},
    {"blockshock", "0011", EVEN},
    {"blockshock", "1010", EVEN},
    {"blockshock", "0101", EVEN},
    {"blockshock", "1001", EVEN},
    {"blockshock", "0110", EVEN},
    {"blockshock", "interleave", ANY},
    {"blockshock", "contiguous", ANY},
    {"blockshock", "uneven", ANY},
    {"masked_split", NULL, EVEN},
    {"masked_split", "1001", EVEN},
    {"masked_split", "interleave", ANY},
    {"masked_split", "uneven", ANY},
    /* other columns in each row: 2:4 values */
    {"blockshock", "magnitude", PAIRS, {"slices", "row"}},
    {"blockshock", "magnitude", ON(4) | ON(6), {"slices", "column"}},
    {"blockshock", "random_2of4", PAIRS, {"slices", "row"}},
    {"blockshock", "random_2of4", ON(4) | ON(6), {"slices", "column"}},
    {"blockshock", "transposable", PAIRS, {"slices", "row"}},
    {"blockshock", "transposable", ON(4) | ON(6), {"slices", "column"}},
    {"blockshock", "1010", PAIRS, {"slices", "row", "kernel", "sparse24"}},
    {"blockshock", "1010", ON(4) | ON(6), {"slices", "column", "kernel", "sparse24"}},
    /* and those of them in dense storage */
    {"masked_split", "magnitude", PAIRS},
    {"masked_split", "random_2of4", PAIRS},
    {"masked_split", "transposable", PAIRS},
    /* leaves: no steps on ref */
    {"row_parallel", NULL, LEAVES, {"repro", "R3"}},
    {"column_parallel", NULL, LEAVES, {"repro", "R3"}},
    {"blockshock", NULL, LEAVES, {"repro", "R3"}},
    {"blockshock", "0110", LEAVES, {"repro", "R3"}},
    {"blockshock", "interleave", LEAVES, {"repro", "R3"}},
    {"blockshock", "contiguous", LEAVES, {"repro", "R3"}},
    {"masked_split", "0110", LEAVES, {"repro", "R3"}},
};

/* B, N, K: odd, smaller than P, not multiples of 4, one feature, one plain. */
static const int64_t shapes[][3] = {{1, 1, 1},  {3, 5, 7},   {2, 3, 2}, {2, 1, 8},
                                    {4, 9, 13}, {5, 17, 33}, {7, 2, 5}, {8, 16, 32}};
enum { WITH_ACTIVATIONS = 1 }; /* the shape that has them */

typedef struct variant {
  uint32_t dtype, x_placement, y_placement, reduce_dtype, bias, fewer_rows;
  const char *backend, *key, *value; /* an option, where the method takes it */
} variant;
static const variant variants[] = {
    {BS_F32, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, "ref"},
    {BS_BF16, BS_REPLICATED, BS_REPLICATED, 0, 0, 1, "cpu"},
    {BS_F16, BS_SPLIT, BS_REPLICATED, BS_F64, 1, 0, "ref"},
    {BS_F32, BS_REPLICATED, BS_SPLIT, 0, 1, 1, "cpu", "kernel", "gather"},
    {BS_BF16, BS_SPLIT, BS_SPLIT, BS_BF16, 1, 0, "ref"},
    {BS_F64, BS_REPLICATED, BS_PARTIAL, 0, 1, 0, "ref"},
    {BS_F16, BS_REPLICATED, BS_REPLICATED, 0, 1, 0, "cpu", "kernel", "gather"},
    {BS_F32, BS_SPLIT, BS_PARTIAL, 0, 0, 0, "cpu"},
    {BS_F32, BS_REPLICATED, BS_REPLICATED, 0, 1, 1, "cpu", "overlap", "3"}, /* of features, or tokens */
    {BS_F16, BS_REPLICATED, BS_SPLIT, BS_F64, 1, 0, "ref", "repro", "R2"},
};

typedef struct point {
  const subject *of;
  variant v;
  uint32_t P, activation, forwards;
  int64_t B, N, K;
  int trains;
  uint32_t step; /* enum mg_step */
  bs_mask mask;
  const char *keys[3], *values[3];
  bs_layer_spec spec;
} point;

static int has(const subject *s, const char *key, const char *value) {
  for (int i = 0; i < 4; i += 2)
    if (s->options[i] != NULL && strcmp(s->options[i], key) == 0)
      return value == NULL || strcmp(s->options[i + 1], value) == 0;
  return 0;
}

/* Do the rows of W keep different columns? */
static int by_row(const subject *s) {
  const char *const masks[] = {"magnitude", "random_2of4", "transposable"};
  for (int i = 0; i < 3 && s->mask != NULL; i++)
    if (strcmp(s->mask, masks[i]) == 0) return 1;
  return has(s, "kernel", "sparse24");
}

static int is(const point *p, const char *method) {
  return strcmp(p->of->method, method) == 0;
}

static int takes(const point *p, const char *key) {
  if (has(p->of, "repro", NULL)) return 0;
  if (strcmp(key, "kernel") == 0) return is(p, "blockshock") && !by_row(p->of);
  if (strcmp(key, "overlap") == 0) return !is(p, "dense") && !(is(p, "blockshock") && by_row(p->of));
  return 1;
}

/* The id of the refusal that the point must get; NULL: none. */
static const char *refusal_of(const point *p) {
  const int x_split = p->v.x_placement == BS_SPLIT, partial = p->v.y_placement == BS_PARTIAL;
  const uint32_t sums = p->v.dtype == BS_F64 ? BS_F64 : BS_F32;
  if (p->P > 1 && is(p, "column_parallel") && (x_split || partial)) return "BS-METHOD-PLACEMENT";
  if (p->P > 1 && partial && p->activation != BS_ACT_NONE) return "BS-METHOD-ACTIVATION";
  if (p->P > 1 && by_row(p->of) && x_split) return "BS-METHOD-PLACEMENT";
  if (p->P > 1 && has(p->of, "slices", "column") && partial) return "BS-METHOD-PLACEMENT";
  if (!has(p->of, "repro", "R3")) return NULL;
  const int sums_else = p->v.reduce_dtype != 0 && p->v.reduce_dtype != sums;
  if (p->trains && is(p, "column_parallel") && p->v.y_placement == BS_SPLIT && p->N % 8 != 0 && p->P > 1 &&
      p->P < 8)
    return "BS-METHOD-REPRO";
  const int no_bits = p->trains && (p->v.dtype == BS_F64 || strcmp(p->v.backend, "ref") == 0);
  return no_bits || sums_else || (p->P > 1 && partial) ? "BS-METHOD-REPRO" : NULL;
}

static void option(point *p, const char *key, const char *value) {
  p->keys[p->spec.n_options] = key;
  p->values[p->spec.n_options++] = value;
}

static void make_spec(point *p) {
  static const double shares[] = {5, 1, 2, 0.25, 3};
  p->spec = mf_spec(p->B, p->N, p->K, p->v.dtype);
  p->spec.x_placement = p->v.x_placement;
  p->spec.y_placement = p->v.y_placement;
  p->spec.reduce_dtype = p->v.reduce_dtype;
  p->spec.has_bias = p->v.bias;
  p->spec.activation = p->activation;
  if (p->of->mask != NULL) {
    p->mask = mf_mask(p->of->mask);
    p->mask.seed = 7;
    p->mask.n_shares = p->mask.kind == BS_MASK_UNEVEN ? p->P : 0;
    p->mask.shares = shares;
    p->spec.mask = &p->mask;
  }
  for (int i = 0; i < 4 && p->of->options[i] != NULL; i += 2)
    option(p, p->of->options[i], p->of->options[i + 1]);
  if (p->v.key != NULL && takes(p, p->v.key)) option(p, p->v.key, p->v.value);
  p->spec.option_keys = p->keys;
  p->spec.option_values = p->values;
}

/* Beside the checks of any method: one pack a rank that holds weights, a region around each collective. */
static void check_ranks(const point *p, const mf_case *c, const mf_result *result) {
  const int dense_storage = by_row(p->of) && is(p, "masked_split");
  for (uint32_t r = 0; r < p->P; r++) {
    const mf_rank *k = &result->rank[r];
    ck_assert_uint_eq(k->regions[BS_REGION_BUILD], 1);
    ck_assert_uint_eq(k->regions[BS_REGION_PACK], k->row_count > 0);
    ck_assert_uint_eq(k->regions[BS_REGION_ALLREDUCE], c->forwards * k->proposal.n_collectives);
    ck_assert_uint_eq(k->regions[BS_REGION_COMPRESS],
                      by_row(p->of) && p->P > 1 && k->row_count > 0 && (dense_storage || k->k_own > 0));
    mf_check_signs(k, c->w, p->K); /* -0.0 stays, and 0 is no less */
    if (!dense_storage) continue;  /* all K columns are multiplied and stored, whatever is kept of them */
    ck_assert_uint_eq(k->proposal.flops, (uint64_t)(2 * p->B * p->N * p->K));
    ck_assert_uint_eq(k->proposal.weight_bytes, (uint64_t)(p->N * p->K) * BS_DTYPE_BYTES(p->v.dtype));
  }
}

static int32_t forward(bs_context *context, const point *p, const float *x, const float *w, const float *bias,
                       bs_error *err) {
  const mf_case c = {.method = p->of->method,
                     .backend = p->v.backend,
                     .world = p->P,
                     .forwards = p->forwards,
                     .rows = p->v.fewer_rows && p->B > 1 ? p->B - 1 : 0,
                     .spec = p->spec,
                     .x = x,
                     .w = w,
                     .bias = p->v.bias ? bias : NULL};
  mf_result result;
  const int32_t rc = mf_run(context, &c, &result, err);
  if (rc == BS_OK) {
    mf_check_outputs(&c, &result);
    mf_check_ownership(&c, &result, 0);
    mf_check_counters(&c, &result);
    check_ranks(p, &c, &result);
  }
  mf_free(&result);
  return rc;
}

static int32_t train(bs_context *context, const point *p, const float *x, const float *w, const float *dy,
                     bs_error *err) {
  const mg_case g = {.method = p->of->method,
                     .backend = p->v.backend,
                     .world = p->P,
                     .step = p->step,
                     .rows = p->v.fewer_rows && p->B > 1 ? p->B - 1 : p->B,
                     .spec = p->spec,
                     .x = x,
                     .w = w,
                     .dy = dy};
  return mg_run(context, &g, err);
}

static void run(bs_context *context, point p, uint64_t seed) {
  float *x = mf_integers(1 + seed, p.B * p.K), *w = mf_signed_zeros(100 + seed, p.N * p.K),
        *bias = mf_integers(200 + seed, p.N), *dy = mf_integers(300 + seed, p.B * p.N);
  make_spec(&p);
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = p.trains ? train(context, &p, x, w, dy, &err) : forward(context, &p, x, w, bias, &err);
  const char *refusal = refusal_of(&p);
  ck_assert_msg(
      rc == (refusal != NULL ? BS_UNSUPPORTED : BS_OK),
      "%s %s on %s, P=%u, B=%lld N=%lld K=%lld %s x %u y %u reduce 0x%x activation %u, trains %d by "
      "%u: %d %s %s (%s)",
      p.of->method, p.of->mask != NULL ? p.of->mask : "", p.v.backend, p.P, (long long)p.B, (long long)p.N,
      (long long)p.K, bs_dtype_name(p.v.dtype), p.v.x_placement, p.v.y_placement, p.v.reduce_dtype,
      p.activation, p.trains, p.step, rc, err.id, err.message, err.where);
  if (refusal != NULL) ck_assert_str_eq(err.id, refusal);
  if (refusal != NULL) ck_assert(err.hint[0] != '\0');
  free(x), free(w), free(bias), free(dy);
}

/* The kinds of steps and the activations come in turn. */
START_TEST(grid) {
  bs_context *context = mf_context();
  const subject *s = &subjects[_i];
  for (uint32_t P = 1; P <= MF_RANKS; P++)
    for (size_t v = 0; (s->worlds & ON(P)) != 0 && v < TEST_COUNT(variants); v++)
      for (size_t shape = BS_SLOW ? (v + P) % 8 : 0; shape < TEST_COUNT(shapes); shape += BS_SLOW ? 8 : 1) {
        const uint32_t turn = (uint32_t)(v + shape) + P;
        point p = {.of = s, .v = variants[v], .P = P, .forwards = 1 + turn % 2, .step = turn % MG_STEPS_};
        p.B = shapes[shape][0], p.N = shapes[shape][1], p.K = shapes[shape][2];
        run(context, p, shape);
        p.trains = 1;
        run(context, p, shape);
        p.trains = 0;
        p.activation = 1 + turn % BS_ACT_SILU;
        if (shape == WITH_ACTIVATIONS) run(context, p, shape);
      }
  bs_context_close(context);
}
END_TEST

/* ---- draws --------------------------------------------------------------------------------------- */

typedef struct dice {
  uint64_t seed, thrown;
} dice;

static uint32_t pick(dice *d, uint32_t count) {
  float v;
  bs_rng_uniform(d->seed, 17, d->thrown++, 1, &v);
  const uint32_t n = (uint32_t)(v * (float)count);
  return n < count ? n : count - 1;
}

static void draw_variant(dice *d, point *p) {
  static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16, BS_F64}, reduces[] = {0, 0, BS_F32, BS_F64};
  static const char *const options[][2] = {
      {NULL, NULL}, {"kernel", "gather"}, {"overlap", "2"}, {"overlap", "4"}, {"repro", "R2"}};
  variant *v = &p->v;
  v->dtype = dtypes[pick(d, 4)];
  v->backend = v->dtype == BS_F64 || pick(d, 2) ? "ref" : "cpu"; /* the cpu backend has no f64 product */
  v->x_placement = pick(d, 3) == 0 ? BS_SPLIT : BS_REPLICATED;
  v->y_placement = BS_REPLICATED + pick(d, 3);
  v->reduce_dtype = strcmp(v->backend, "ref") == 0 ? reduces[pick(d, 4)] : 0;
  v->bias = pick(d, 2);
  v->fewer_rows = pick(d, 2);
  const uint32_t option = pick(d, v->y_placement == BS_PARTIAL ? 2 : 5);
  v->key = options[option][0];
  v->value = options[option][1];
}

/* Where nothing is refused: a refusal would cost a draw. */
static void draw(dice *d, point *p) {
  do {
    *p = (point){.of = &subjects[pick(d, TEST_COUNT(subjects))], .P = 1 + pick(d, MF_RANKS)};
    draw_variant(d, p);
    p->trains = pick(d, 2) == 0;
    p->step = pick(d, MG_STEPS_);
    p->activation = p->trains ? BS_ACT_NONE : pick(d, BS_ACT_SILU + 1);
    p->forwards = 1 + pick(d, 3);
    p->B = 1 + pick(d, 9);
    p->N = 1 + pick(d, 36);
    p->K = 1 + pick(d, 36);
  } while ((p->of->worlds & ON(p->P)) == 0 || refusal_of(p) != NULL);
}

START_TEST(draws) {
  bs_context *context = mf_context();
  for (uint64_t i = 0; i < (BS_SLOW ? 5 : 20); i++) {
    point p;
    dice d = {1000 * (uint64_t)_i + i, 0};
    draw(&d, &p);
    run(context, p, d.seed);
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
  const test_case tests[] = {
      {grid, TEST_COUNT(subjects)}, {draws, 20 * (int)mf_big()}, {same_bits_on_every_rank, 4}, {0}};
  return run_tests("method_exact", tests, (test_setup){.timeout = 200});
}
