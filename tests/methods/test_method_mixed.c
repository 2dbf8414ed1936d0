/* SPDX-License-Identifier: MIT
 *
 * test_method_mixed.c - layers in two precisions: every method x mask x P x number of high columns x
 * placement gives the exact product of values that int8 or fp8 holds, whatever has a scale, owns each weight
 * once, reads it back and counts what it proposed; each rank has its share of both segments, wherever the
 * high columns lie; all weights are rounded by the scale of their row, their block of it or their share of W;
 * tokens do not depend on others; and what is refused, with its reason.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { B = 5, N = 13, K = 331 };

static const char *const keys[] = {"mixed", "mixed_dtype", "mixed_scales", "overlap", "repro"};
enum { HIGH, DTYPE, SCALES, OVERLAP, REPRO, OPTIONS };

/* The others' dtype and scales, by what the layer is told. */
static const struct format {
  const char *dtype, *scales;
  float largest;
} formats[] = {{"i8", "row", 127},        {"f8e4m3", "row", 448},   {"f8e4m3", "tensor", 448},
               {"f8e4m3", "block", 448},  {"f8e5m2", "row", 57344}, {"f8e5m2", "tensor", 57344},
               {"f8e5m2", "block", 57344}};
#define N_FORMATS ((int)(sizeof formats / sizeof formats[0]))
static bs_context *context;

static void open_context(void) {
  context = mf_context();
}
static void close_context(void) {
  bs_context_close(context);
}

/* -127, 0 or 127: the scale of a run that has any is 1, whoever it is divided among; of fp8 -7, 0 or 7, whose
 * scales are powers of two. */
static float *steps(uint64_t seed, int64_t count, float step) {
  float *v = mf_integers(seed, count);
  for (int64_t i = 0; i < count; i++) v[i] = v[i] > 0.0f ? step : v[i] < 0.0f ? -step : 0.0f;
  return v;
}

typedef struct layer {
  mf_case c;
  bs_mask mask;
  uint32_t order[K];
  char high[16];
  const char *values[OPTIONS];
  const struct format *format;
  float *x, *w, *bias;
} layer;

/* High columns at the front (first): all of them in one half of K; else spread over it. */
static void layer_make_of(layer *l, const struct format *format, const char *method, const char *mask,
                          uint32_t world, int64_t high, int first) {
  static const double shares[] = {5, 1, 2};
  memset(l, 0, sizeof *l);
  l->mask = mf_mask(mask != NULL ? mask : "contiguous");
  for (uint32_t k = 0; k < K; k++) l->order[k] = first ? k : k * 17 % K;
  l->mask.order = l->order;
  l->mask.n_order = K;
  if (l->mask.kind == BS_MASK_UNEVEN) {
    l->mask.n_shares = world;
    l->mask.shares = shares;
  }
  snprintf(l->high, sizeof l->high, "%lld", (long long)high);
  l->format = format;
  l->values[HIGH] = l->high;
  l->values[DTYPE] = format->dtype;
  l->values[SCALES] = format->scales;
  l->values[OVERLAP] = "off";
  l->values[REPRO] = "R1";
  l->x = steps(31, (int64_t)B * K, format == formats ? 127.0f : 7.0f);
  l->w = steps(32, (int64_t)N * K, format == formats ? 127.0f : 7.0f);
  l->bias = mf_integers(33, N);
  l->c = (mf_case){.method = method, .world = world, .x = l->x, .w = l->w, .bias = l->bias, .backend = "ref"};
  l->c.spec = mf_spec(B, N, K, BS_F32);
  l->c.spec.has_bias = 1;
  l->c.spec.mask = &l->mask;
  l->c.spec.n_options = format == formats ? 1 : 3;
  l->c.spec.option_keys = keys;
  l->c.spec.option_values = l->values;
}

static void layer_make(layer *l, const char *method, const char *mask, uint32_t world, int64_t high,
                       int first) {
  layer_make_of(l, formats, method, mask, world, high, first);
}

static void layer_free(layer *l) {
  free(l->x);
  free(l->w);
  free(l->bias);
}

static const struct {
  const char *method, *mask;
  uint32_t worlds; /* bit P */
} splits[] = {
    {"dense", NULL, 1u << 1},
    {"row_parallel", NULL, 0x1e},
    {"row_parallel", "uneven", 1u << 3},
    {"column_parallel", NULL, 0x1e},
    {"blockshock", "1100", 1u << 1 | 1u << 2 | 1u << 4},
    {"blockshock", "1010", 1u << 2 | 1u << 4},
    {"blockshock", "interleave", 0x1e},
    {"blockshock", "importance", 0x1e},
};
#define N_SPLITS ((int)(sizeof splits / sizeof splits[0]))
static const int64_t counts[] = {0, 1, 7, K - 2, K};

/* Of each segment a rank's share is that of the mask: one column more or less, of patterns two. */
static void check_balance(const layer *l, const mf_result *result, int64_t high) {
  int64_t least[2] = {K, K}, most[2] = {0, 0};
  uint8_t is_high[K] = {0};
  for (int64_t i = 0; i < high; i++) is_high[l->order[i]] = 1;
  for (uint32_t r = 0; r < l->c.world; r++) {
    int64_t n[2] = {0, 0};
    for (int64_t j = 0; j < result->rank[r].k_own; j++) n[is_high[result->rank[r].columns[j]]]++;
    for (int s = 0; s < 2; s++) {
      if (n[s] < least[s]) least[s] = n[s];
      if (n[s] > most[s]) most[s] = n[s];
    }
    const uint64_t rows = (uint64_t)result->rank[r].row_count, low = (uint64_t)n[0];
    const uint64_t wide = n[0] + n[1] > 0 ? (uint64_t)n[1] : 1;
    const int blocks = strcmp(l->format->scales, "block") == 0;
    const uint64_t want = rows * (4 * wide + low + 4 * (blocks ? (low + 127) / 128 : low > 0));
    ck_assert_uint_eq(result->rank[r].proposal.weight_bytes, want);
  }
  const int64_t slack = l->mask.kind == BS_MASK_COMPLEMENT ? 2 : 1;
  for (int s = 0; s < 2 && l->mask.kind != BS_MASK_UNEVEN; s++)
    ck_assert_msg(most[s] - least[s] <= slack, "%s P=%u: %lld to %lld columns a rank", l->c.method,
                  l->c.world, (long long)least[s], (long long)most[s]);
}

static int has(const char *method, const char *part) {
  return strstr(method, part) != NULL;
}

START_TEST(products_are_exact) {
  static const uint32_t places[][2] = {{BS_REPLICATED, BS_REPLICATED},
                                       {BS_SPLIT, BS_REPLICATED},
                                       {BS_REPLICATED, BS_SPLIT},
                                       {BS_SPLIT, BS_PARTIAL}};
  for (uint32_t P = 1; P <= 4; P++)
    for (size_t n = 0; (splits[_i].worlds >> P & 1u) != 0 && n < sizeof counts / sizeof counts[0]; n++)
      for (int p = 0; p < 4; p++)
        for (int first = 0; first < 4; first++) { /* 2, 3: fp8 */
          const int f8 = first < 2 ? 0 : 1 + (p * 2 + first + (int)n) % (N_FORMATS - 1);
          layer l;
          mf_result result;
          if (P > 1 && has(splits[_i].method, "column") && (p == 1 || p == 3)) continue; /* needs all of x */
          layer_make_of(&l, &formats[f8], splits[_i].method, splits[_i].mask, P, counts[n], first % 2);
          l.c.backend = (p + first) % 2 ? "cpu" : "ref";
          l.c.spec.x_placement = places[p][0];
          l.c.spec.y_placement = places[p][1];
          l.c.rows = first % 2 ? B - 2 : B;
          mf_run_ok(context, &l.c, &result);
          mf_check_outputs(&l.c, &result);
          mf_check_ownership(&l.c, &result, 0);
          mf_check_counters(&l.c, &result);
          check_balance(&l, &result, counts[n]);
          ck_assert_uint_eq(result.rank[0].proposal.repro, p == 3 && P > 1 ? BS_REPRO_R0 : BS_REPRO_R1);
          mf_free(&result);
          layer_free(&l);
        }
}
END_TEST

/* Of a rank's low columns, in order: which scale they have. */
static float low_scale(const layer *l, const mf_rank *k, const uint8_t *is_high, int64_t row,
                       int64_t column) {
  const int blocks = strcmp(l->format->scales, "block") == 0,
            shared = strcmp(l->format->scales, "tensor") == 0;
  int64_t place = 0, at = 0;
  float most = 0.0f;
  for (int64_t j = 0; j < column; j++) place += !is_high[k->columns[j]];
  for (int64_t j = 0; j < k->k_own; j++) {
    if (is_high[k->columns[j]]) continue;
    const int mine = !blocks || at / 128 == place / 128;
    at++;
    for (int64_t n = 0; mine && n < N; n++)
      if (shared || n == row) most = fmaxf(most, fabsf(l->w[n * K + k->columns[j]]));
  }
  return most / l->format->largest;
}

static float rounded(const layer *l, float v) {
  const float most = l->format->largest, in = fminf(fmaxf(v, -most), most);
  if (l->format == formats) return rintf(in);
  return most < 1000.0f ? bs_f8e4m3_to_f32(bs_f32_to_f8e4m3(in)) : bs_f8e5m2_to_f32(bs_f32_to_f8e5m2(in));
}

/* Weights come back as they are multiplied: high ones as they were, the others on the grid of their scale. */
START_TEST(weights_are_rounded_by_their_scale) {
  layer l;
  mf_result result;
  const int64_t high = 7;
  layer_make_of(&l, &formats[_i], "row_parallel", NULL, 2, high, 0);
  free(l.w);
  l.w = mf_normals(41, (int64_t)N * K);
  l.c.w = l.w;
  mf_run_ok(context, &l.c, &result);
  uint8_t is_high[K] = {0};
  for (int64_t i = 0; i < high; i++) is_high[l.order[i]] = 1;
  for (uint32_t r = 0; r < 2; r++) {
    const mf_rank *k = &result.rank[r];
    ck_assert_int_gt(k->k_own, 128 + high); /* two blocks */
    for (int64_t n = 0; n < N; n++)
      for (int64_t j = 0; j < k->k_own; j++) {
        const float scale = low_scale(&l, k, is_high, n, j);
        const float was = l.w[n * K + k->columns[j]], got = k->weights[n * k->k_own + j];
        const float want = is_high[k->columns[j]] ? was : rounded(&l, was / scale) * scale;
        ck_assert_msg(got == want, "%s %s: rank %u [%lld,%lld]: %.9g, not %.9g", l.format->dtype,
                      l.format->scales, r, (long long)n, (long long)k->columns[j], (double)got, (double)want);
      }
  }
  mf_free(&result);
  layer_free(&l);
}
END_TEST

static const int tokenwise[] = {0, 1, 3, 6};

/* A token's bits are its own: alone it gives what it gives among others (repro=R2). */
START_TEST(a_token_is_rounded_by_itself) {
  layer l;
  mf_result all, alone;
  layer_make_of(&l, &formats[tokenwise[_i / 2]], "blockshock", "interleave", 2, 7, 0);
  free(l.x);
  l.x = mf_normals(42, (int64_t)B * K);
  l.c.x = l.x;
  l.values[REPRO] = "R2";
  l.c.spec.n_options = OPTIONS;
  l.c.backend = _i % 2 == 0 ? "ref" : "cpu";
  mf_run_ok(context, &l.c, &all);
  ck_assert_uint_eq(all.rank[0].proposal.repro, BS_REPRO_R2);
  l.c.x = l.x + (B - 1) * K;
  l.c.rows = 1;
  mf_run_ok(context, &l.c, &alone);
  ck_assert_mem_eq(alone.rank[0].y_bits, all.rank[0].y_bits + (B - 1) * N * sizeof(float), N * sizeof(float));
  mf_free(&all);
  mf_free(&alone);
  layer_free(&l);
}
END_TEST

/* ---- refused ------------------------------------------------------------------------------------- */

static void refused(layer *l, int32_t code, const char *id, const char *says) {
  bs_error err = BS_ERROR_INIT;
  mf_result result;
  const int32_t rc = mf_run(context, &l->c, &result, &err);
  ck_assert_msg(rc == code && strcmp(err.id, id) == 0, "%d %s %s", rc, err.id, err.message);
  ck_assert_msg(strstr(err.message, says) != NULL, "%s", err.message);
  ck_assert_msg(err.hint[0] != '\0', "%s: no hint", err.message);
  mf_free(&result);
  layer_free(l);
}

START_TEST(what_it_cannot_do_is_refused) {
  layer l;
  layer_make(&l, "row_parallel", NULL, 2, 7, 0);
  l.c.spec.flags = BS_LAYER_BACKWARD;
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "no backward pass");
  layer_make(&l, "row_parallel", NULL, 2, 7, 0);
  l.c.spec.flags = BS_LAYER_BACKWARD | BS_LAYER_SGD;
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "takes no steps");
  layer_make(&l, "masked_split", "1100", 2, 7, 0);
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "zeros");
  layer_make(&l, "blockshock", "random_2of4", 2, 7, 0);
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "2:4 halves");
  layer_make(&l, "row_parallel", NULL, 2, 7, 0);
  l.values[OVERLAP] = "2";
  l.c.spec.n_options = OPTIONS;
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "chunks");
  layer_make(&l, "row_parallel", NULL, 2, 7, 0);
  l.values[REPRO] = "R3";
  l.c.spec.n_options = OPTIONS;
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "depend on the ranks");
  layer_make(&l, "row_parallel", NULL, 2, 7, 0);
  l.c.spec.x_dtype = l.c.spec.w_dtype = l.c.spec.y_dtype = BS_F64;
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "f32, bf16 or f16");
  layer_make(&l, "row_parallel", NULL, 2, 7, 0);
  l.c.spec.accumulate = BS_ACC_F64;
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "in f32");
  layer_make(&l, "row_parallel", NULL, 2, K + 1, 0);
  refused(&l, BS_CONFIG, "BS-METHOD-OPTION", "mixed cannot be '332'");
  layer_make(&l, "row_parallel", NULL, 2, 7, 0);
  l.values[HIGH] = "some";
  refused(&l, BS_CONFIG, "BS-METHOD-OPTION", "mixed cannot be 'some'");
  layer_make(&l, "row_parallel", NULL, 2, 7, 0);
  l.mask.order = NULL;
  refused(&l, BS_CONFIG, "BS-METHOD-MIXED", "without an order");
  layer_make(&l, "row_parallel", NULL, 2, 7, 0);
  l.order[3] = l.order[5];
  refused(&l, BS_CONFIG, "BS-MASK-ORDER", "there already");
}
END_TEST

START_TEST(what_fp8_cannot_do_is_refused) {
  layer l;
  layer_make_of(&l, &formats[2], "row_parallel", NULL, 2, 7, 0);
  l.values[REPRO] = "R2";
  l.c.spec.n_options = OPTIONS;
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "by one scale");
  for (int i = 2; i < 4; i++) {
    layer_make_of(&l, &formats[i], "row_parallel", NULL, 2, 7, 0);
    l.values[DTYPE] = "i8";
    refused(&l, BS_CONFIG, "BS-METHOD-OPTION", "of int8");
  }
  layer_make_of(&l, &formats[1], "row_parallel", NULL, 2, 7, 0);
  l.values[DTYPE] = "f4";
  refused(&l, BS_CONFIG, "BS-METHOD-OPTION", "mixed_dtype=f4; legal are i8,f8e4m3,f8e5m2");
  layer_make_of(&l, &formats[1], "row_parallel", NULL, 2, 7, 0);
  l.values[SCALES] = "column";
  refused(&l, BS_CONFIG, "BS-METHOD-OPTION", "mixed_scales=column; legal are row,tensor,block");
  layer_make_of(&l, &formats[1], "row_parallel", NULL, 2, 7, 0);
  l.values[HIGH] = "";
  refused(&l, BS_CONFIG, "BS-METHOD-OPTION", "mixed_dtype=f8e4m3 without mixed");
  layer_make_of(&l, &formats[1], "row_parallel", NULL, 2, 7, 0);
  l.c.spec.flags = BS_LAYER_BACKWARD;
  refused(&l, BS_UNSUPPORTED, "BS-METHOD-MIXED", "no backward pass");
}
END_TEST

int main(void) {
  const test_case tests[] = {{products_are_exact, N_SPLITS},
                             {weights_are_rounded_by_their_scale, N_FORMATS},
                             {a_token_is_rounded_by_itself, 2 * TEST_COUNT(tokenwise)},
                             {what_it_cannot_do_is_refused},
                             {what_fp8_cannot_do_is_refused},
                             {0}};
  return run_tests("method_mixed", tests, (test_setup){open_context, close_context, 60});
}
