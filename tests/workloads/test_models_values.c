/* SPDX-License-Identifier: MIT
 * test_models_values.c - X of activation_like, transformer_mlp, attention_like and vision_conv: the values of
 * their definitions under every key, the heads of attention beside each other (K23), and the same bits
 * however X is read, by whom, with how small a cache, and on the portable and AVX2 paths. */
#include <pthread.h>

#include "core/base/convert_paths.h"
#include "core/base/rng_paths.h"
#include "tests/workloads/models.h"

static void check_close(const double *got, const long double *want, int64_t n, const char *what) {
  for (int64_t i = 0; i < n; i++)
    if (!(fabsl(got[i] - want[i]) <= 4e-14L * (1.0L + fabsl(want[i]))))
      ck_abort_msg("%s: element %d is %.17g, not %.17Lg", what, (int)i, got[i], want[i]);
}

/* X in f64, freed by the caller. */
static double *read_x(const ask *a) {
  opened w;
  workload_must_open(a, &w);
  bs_source s = workload_source(&w, BS_PART_X);
  double *x = workload_read(&s, BS_F64);
  workload_close(&w);
  return x;
}

START_TEST(activation_is_clipped) {
  static const struct {
    const char *options[2];
    float scale, clip;
  } rows[] = {{{NULL}, 1, 2}, {{"scale=3"}, 3, 2}, {{"clip=0.5", "scale=-1"}, -1, 0.5f}, {{"clip=0"}, 1, 0}};
  float z[4 * 50];
  bs_rng_normal(9, BS_STREAM_X, 0, 200, z);
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    ask a = {.name = "activation_like", .B = 4, .N = 2, .K = 50, .seed = 9, .weight_seed = 9};
    a.options[0] = rows[r].options[0];
    a.options[1] = rows[r].options[1];
    double *x = read_x(&a);
    int clipped = 0;
    for (int i = 0; i < 200; i++) {
      float scaled = z[i] * rows[r].scale, want = fmaxf(-rows[r].clip, fminf(rows[r].clip, scaled));
      ck_assert_msg(x[i] == (double)want, "row %zu, element %d: %g", r, i, x[i]);
      clipped += scaled != want;
    }
    ck_assert_int_gt(clipped, 0);
    free(x);
  }
}
END_TEST

START_TEST(mlp_is_its_definition) {
  static const struct {
    const char *options[5];
    expect_mlp want;
  } rows[] = {
      {{NULL}, {"gelu", 1, 1, 1, 1e-5}},
      {{"mlp_variant=gelu", "scale_in=1.0", "scale_out=1.0", "layernorm=true"}, {"gelu", 1, 1, 1, 1e-5}},
      {{"mlp_variant=silu"}, {"silu", 1, 1, 1, 1e-5}},
      {{"mlp_variant=swish", "scale_out=-0.5"}, {"swish", 1, 1, -0.5, 1e-5}},
      {{"mlp_variant=relu", "layernorm=false", "scale_in=3"}, {"relu", 0, 3, 1, 1e-5}},
      {{"layernorm=no", "scale_in=0.25"}, {"gelu", 0, 0.25, 1, 1e-5}},
      {{"ln_eps=0.5", "scale_in=2"}, {"gelu", 1, 2, 1, 0.5}},
      {{"ln_eps=0"}, {"gelu", 1, 1, 1, 0}},
      {{"mlp_variant=swiglu"}, {"swiglu", 1, 1, 1, 1e-5}},
      {{"mlp_variant=swiglu", "layernorm=off", "scale_in=2", "scale_out=3"}, {"swiglu", 0, 2, 3, 1e-5}}};
  static const int64_t widths[] = {2, 37, 1100};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (size_t i = 0; i < 3; i++) {
      ask a = {.name = i == 0 ? "transformer_mlp" : "transformer_mlp_like",
               .dtype = BS_F64,
               .B = 3,
               .N = 2,
               .K = widths[i],
               .seed = 21};
      memcpy(a.options, rows[r].options, sizeof rows[r].options);
      double *x = read_x(&a);
      long double *want = expect_mlp_x(&rows[r].want, 21, a.B, a.K);
      check_close(x, want, a.B * a.K, rows[r].want.variant);
      free(x);
      free(want);
    }
}
END_TEST

/* The original's gate, x1 * sigmoid(x2), is something else. */
START_TEST(swiglu_gates_with_silu) {
  ask a = {
      .name = "transformer_mlp", .dtype = BS_F64, .B = 1, .N = 2, .K = 20, .options = {"mlp_variant=swiglu"}};
  const expect_mlp linear = {"linear", 1, 1, 1, 1e-5};
  double *x = read_x(&a);
  long double *x1 = expect_mlp_x(&linear, 0, 1, 20), *x2 = expect_normals(0, MODELS_STREAM_SECOND, 20);
  expect_norm(&linear, x2, 20);
  int same = 0;
  for (int i = 0; i < 20; i++) {
    ck_assert(fabsl(x[i] - x1[i] / (1 + expl(-x1[i])) * x2[i]) < 1e-14L);
    same += fabsl(x[i] - x1[i] / (1 + expl(-x2[i]))) < 1e-6L;
  }
  ck_assert_int_lt(same, 3);
  free(x);
  free(x1);
  free(x2);
}
END_TEST

START_TEST(attention_is_its_definition) {
  static const struct {
    const char *options[4];
    int64_t B, K, batch, tokens, heads;
    double scale; /* 0: 1 / sqrt(head_dim) */
  } rows[] = {{{NULL}, 5, 16, 1, 5, 8, 0},
              {{"heads=1"}, 7, 13, 1, 7, 1, 0},
              {{"heads=3", "attn_batch=2", "tokens=4"}, 8, 21, 2, 4, 3, 0},
              {{"heads=3", "attn_batch=4", "tokens=2"}, 8, 21, 4, 2, 3, 0},
              {{"heads=4", "attn_batch=6", "tokens=1"}, 6, 4, 6, 1, 4, 0},
              {{"heads=2", "attn_scale=0.01"}, 6, 1200, 1, 6, 2, 0.01},
              {{"heads=2", "attn_scale=-0.5"}, 6, 12, 1, 6, 2, -0.5},
              {{"heads=2", "tokens=6", "attn_scale=1"}, 6, 12, 1, 6, 2, 1}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    ask a = {.name = r % 2 ? "attention" : "attention_like", .dtype = BS_F64, .N = 2, .seed = 22};
    a.B = rows[r].B;
    a.K = rows[r].K;
    memcpy(a.options, rows[r].options, sizeof rows[r].options);
    double scale = rows[r].scale != 0 ? rows[r].scale : 1.0 / sqrt((double)(a.K / rows[r].heads));
    double *x = read_x(&a);
    long double *want =
        expect_attention_x(22, rows[r].batch, rows[r].tokens, rows[r].heads, a.K / rows[r].heads, scale);
    check_close(x, want, a.B * a.K, "attention");
    free(x);
    free(want);
  }
}
END_TEST

/* K23: 1 batch element, 2 heads, 2 tokens, head_dim 1. The heads' outputs over the tokens are (a b) and (c
 * d); the rows are (a c) and (b d), not (a b) and (c d). Head h of the draws q, k, v is elements 2h, 2h + 1.
 */
START_TEST(heads_lie_beside_each_other) {
  ask a = {
      .name = "attention_like", .dtype = BS_F64, .B = 2, .N = 2, .K = 2, .seed = 23, .options = {"heads=2"}};
  long double *q = expect_normals(23, MODELS_STREAM_Q, 4), *k = expect_normals(23, MODELS_STREAM_K, 4);
  long double *v = expect_normals(23, MODELS_STREAM_V, 4), out[4];
  double *x = read_x(&a);
  for (int h = 0; h < 2; h++)
    for (int t = 0; t < 2; t++) {
      long double p0 = expl(q[2 * h + t] * k[2 * h]), p1 = expl(q[2 * h + t] * k[2 * h + 1]);
      out[2 * h + t] = (p0 * v[2 * h] + p1 * v[2 * h + 1]) / (p0 + p1);
    }
  const long double rows[4] = {out[0], out[2], out[1], out[3]}; /* (a c), (b d) */
  check_close(x, rows, 4, "K23");
  ck_assert(fabsl(x[1] - out[1]) > 1e-3L && fabsl(x[2] - out[2]) > 1e-3L);
  free(q);
  free(k);
  free(v);
  free(x);
}
END_TEST

START_TEST(vision_is_its_definition) {
  static const struct {
    const char *options[8];
    expect_conv want;
  } rows[] = {{{"H=6", "W=5"}, {3, 6, 5, 3, 3, 1, 1, "relu"}},
              {{"C=2", "H=6", "W=5", "out_channels=4"}, {2, 6, 5, 4, 3, 1, 1, "relu"}},
              {{"H=7", "W=9", "stride=2"}, {3, 7, 9, 3, 3, 2, 1, "relu"}},
              {{"H=7", "W=9", "stride=3", "padding=0"}, {3, 7, 9, 3, 3, 3, 0, "relu"}},
              {{"H=4", "W=5", "kernel_size=2"}, {3, 4, 5, 3, 2, 1, 1, "relu"}},
              {{"H=4", "W=5", "kernel_size=5", "padding=4"}, {3, 4, 5, 3, 5, 1, 4, "relu"}},
              {{"C=1", "H=4", "W=5", "kernel_size=1"}, {1, 4, 5, 1, 1, 1, 0, "relu"}},
              {{"H=2", "W=3", "kernel_size=3", "padding=7", "stride=4"}, {3, 2, 3, 3, 3, 4, 7, "relu"}},
              {{"H=5", "W=5", "activation=gelu"}, {3, 5, 5, 3, 3, 1, 1, "gelu"}},
              {{"H=5", "W=5", "activation=silu"}, {3, 5, 5, 3, 3, 1, 1, "silu"}},
              {{"H=5", "W=5", "activation=swish"}, {3, 5, 5, 3, 3, 1, 1, "silu"}},
              {{"H=5", "W=5", "activation=none"}, {3, 5, 5, 3, 3, 1, 1, "linear"}},
              {{"H=5", "W=5", "activation=linear"}, {3, 5, 5, 3, 3, 1, 1, "linear"}},
              {{NULL}, {3, 32, 32, 3, 3, 1, 1, "relu"}}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    const expect_conv *c = &rows[r].want;
    ask a = {.name = r % 2 ? "conv_like" : "vision_conv", .dtype = BS_F64, .B = 3, .N = 2, .seed = 24};
    a.K = c->out * expect_conv_side(c, c->H) * expect_conv_side(c, c->W);
    memcpy(a.options, rows[r].options, 7 * sizeof *a.options);
    double *x = read_x(&a);
    long double *want = expect_conv_x(c, 24, a.B);
    check_close(x, want, a.B * a.K, "conv");
    free(x);
    free(want);
  }
}
END_TEST

/* What the tests below read: odd sizes, several units a row, several blocks a unit. */
static const ask kinds[] = {
    {.name = "activation_like", .dtype = BS_BF16, .K = 2100},
    {.name = "transformer_mlp", .dtype = BS_F32, .K = 2100},
    {.name = "transformer_mlp", .dtype = BS_F16, .K = 61, .options = {"mlp_variant=swiglu"}},
    {.name = "attention_like",
     .dtype = BS_BF16,
     .K = 2100,
     .options = {"heads=7", "attn_batch=3", "tokens=2"}},
    {.name = "attention_like", .dtype = BS_F32, .K = 64},
    {.name = "vision_conv", .dtype = BS_F8E4M3, .K = 3 * 20 * 35, .options = {"H=20", "W=35"}},
    {.name = "vision_conv", .dtype = BS_BF16, .K = 12, .options = {"H=4", "W=4", "stride=2"}}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static ask kind(int i) {
  ask a = kinds[i];
  a.B = 6;
  a.N = 9;
  a.seed = a.weight_seed = 31;
  a.has_bias = 1;
  return a;
}

static models_state small_state, portable_state;
static bs_host portable_host;

/* As much cache as one batch element. */
static void *with_small_cache(void *found) {
  small_state = *(models_state *)found;
  small_state.cache_bytes = 0;
  return &small_state;
}

START_TEST(the_same_bits_twice_and_in_any_panels) {
  for (int cache = 0; cache < 2; cache++) {
    ask a = kind(_i);
    uint32_t reads[] = {a.dtype, BS_F32, BS_F64};
    opened w, again;
    workload_must_open(&a, &again);
    if (cache == 1 && strcmp(a.name, "activation_like") != 0) a.state = with_small_cache;
    workload_must_open(&a, &w);
    for (uint32_t part = BS_PART_X; part <= BS_PART_BIAS; part++) {
      bs_source s = workload_source(&w, part), t = workload_source(&again, part);
      ck_assert_uint_eq(s.dtype, a.dtype);
      for (size_t d = 0; d < 3; d++) {
        void *first = workload_read(&s, reads[d]), *second = workload_read(&t, reads[d]);
        ck_assert_int_eq(memcmp(first, second, (size_t)(s.rows * s.cols) * BS_DTYPE_BYTES(reads[d])), 0);
        workload_check_panels(&s, reads[d], first);
        free(first);
        free(second);
      }
      workload_check_bounds(&s);
    }
    workload_close(&w);
    workload_close(&again);
  }
}
END_TEST

/* Rounded once: the f64 workload's X rounded to the dtype is the dtype's X. */
START_TEST(values_are_rounded_once) {
  ask a = kind(_i), wide = a;
  opened w;
  wide.dtype = strcmp(a.name, "activation_like") == 0 ? BS_F32 : BS_F64;
  double *exact = read_x(&wide);
  workload_must_open(&a, &w);
  bs_source s = workload_source(&w, BS_PART_X);
  const size_t n = (size_t)(s.rows * s.cols);
  void *own = workload_read(&s, a.dtype), *rounded = calloc(n, BS_DTYPE_BYTES(a.dtype));
  ck_assert_int_eq(bs_convert(a.dtype, rounded, BS_F64, exact, n), BS_OK);
  ck_assert_int_eq(memcmp(own, rounded, n * BS_DTYPE_BYTES(a.dtype)), 0);
  free(exact);
  free(own);
  free(rounded);
  workload_close(&w);
}
END_TEST

static void draw_portable(void (*kernel)(uint64_t, uint32_t, uint64_t, uint32_t, float *), uint64_t seed,
                          uint32_t stream, uint64_t first, uint64_t count, float *out) {
  for (uint64_t i = 0; i < count; i++) {
    float four[4];
    kernel(seed, stream, (first + i) / 4, 1, four);
    out[i] = four[(first + i) % 4];
  }
}
static void normal_portable(uint64_t seed, uint32_t stream, uint64_t first, uint64_t count, float *out) {
  draw_portable(bs_rng_portable()->normal, seed, stream, first, count, out);
}
static int32_t convert_portable(uint32_t to, void *out, uint32_t from, const void *in, uint64_t n) {
  const bs_convert_kernels *k = bs_convert_portable();
  if (from == BS_F32 && to == BS_BF16)
    k->f32_to_bf16(in, out, n);
  else if (from == BS_BF16 && to == BS_F32)
    k->bf16_to_f32(in, out, n);
  else if (from == BS_F16 && to == BS_F32)
    k->f16_to_f32(in, out, n);
  else
    return bs_convert(to, out, from, in, n);
  return BS_OK;
}
static void make_portable(const bs_host *host) {
  portable_host = *host;
  portable_host.rng_normal = normal_portable;
  portable_host.convert = convert_portable;
}
static void *portable_models(void *found) {
  portable_state = *(models_state *)found;
  make_portable(portable_state.host);
  portable_state.host = &portable_host;
  portable_state.kernels = models_kernels_portable();
  return &portable_state;
}
static void *portable_synthetic(void *found) {
  make_portable(found);
  return &portable_host;
}

/* Nothing of AVX2 in one of them: generator, conversion, loops. Where the CPU has no AVX2 both are the same.
 */
START_TEST(portable_and_avx2_give_the_same_bits) {
  ask a = kind(_i), p = a;
  p.state = strcmp(a.name, "activation_like") == 0 ? portable_synthetic : portable_models;
  opened w, q;
  workload_must_open(&a, &w);
  workload_must_open(&p, &q);
  for (uint32_t part = BS_PART_X; part <= BS_PART_BIAS; part++) {
    bs_source s = workload_source(&w, part), t = workload_source(&q, part);
    void *first = workload_read(&s, BS_F32), *second = workload_read(&t, BS_F32);
    ck_assert_int_eq(memcmp(first, second, (size_t)(s.rows * s.cols) * sizeof(float)), 0);
    free(first);
    free(second);
  }
  workload_close(&w);
  workload_close(&q);
}
END_TEST

/* Stored runs are repeated from their seeds: X may not change. */
START_TEST(golden) {
  static const uint64_t want[KINDS] = {UINT64_C(0x8aec743046f8614c), UINT64_C(0x16d51ce34e4b18ec),
                                       UINT64_C(0x8e6a9bd1cb0d0096), UINT64_C(0x07d830e3ea392a5a),
                                       UINT64_C(0x0894468a8cd3a8d5), UINT64_C(0x555bfee5a015cfa0),
                                       UINT64_C(0xbc9a26f117517b6b)};
  ask a = kind(_i);
  opened w;
  workload_must_open(&a, &w);
  bs_source s = workload_source(&w, BS_PART_X);
  unsigned char *x = workload_read(&s, a.dtype);
  uint64_t h = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < (size_t)(s.rows * s.cols) * BS_DTYPE_BYTES(a.dtype); i++)
    h = (h ^ x[i]) * UINT64_C(1099511628211);
  ck_assert_msg(h == want[_i], "kind %d: 0x%016llx", _i, (unsigned long long)h);
  free(x);
  workload_close(&w);
}
END_TEST

typedef struct reader {
  bs_source source;
  const unsigned char *whole;
  int rank, wrong;
} reader;

/* Rank r of 4 reads every fourth column from r on, all rows, then row by row; from row r on. */
static void *read_as_rank(void *arg) {
  reader *r = arg;
  const bs_source *s = &r->source;
  uint32_t *columns = calloc((size_t)s->cols, sizeof *columns);
  const size_t size = BS_DTYPE_BYTES(s->dtype);
  bs_error err;
  bs_partition part = {.struct_size = sizeof part, .kind = BS_PARTITION_GATHER, .total = s->cols};
  for (int64_t k = r->rank; k < s->cols; k += 4) columns[part.count++] = (uint32_t)k;
  part.columns = columns;
  unsigned char *out = calloc((size_t)(s->rows * part.count), size);
  for (int turn = 0; turn < 8; turn++) {
    const int64_t rows = turn % 2 == 0 ? s->rows : 1;
    const int64_t row = rows == 1 ? (turn + r->rank) % s->rows : 0;
    if (s->read(s->ctx, row, rows, &part, s->dtype, out, part.count, &err) != BS_OK) r->wrong++;
    for (int64_t i = 0; i < rows * part.count; i++) {
      const int64_t at = (row + i / part.count) * s->cols + columns[i % part.count];
      r->wrong += memcmp(out + (size_t)i * size, r->whole + (size_t)at * size, size) != 0;
    }
  }
  free(out);
  free(columns);
  return NULL;
}

START_TEST(ranks_read_at_once) {
  for (int cache = 0; cache < 2; cache++) {
    ask a = kind(_i);
    if (cache == 1 && strcmp(a.name, "activation_like") != 0) a.state = with_small_cache;
    opened w, reference;
    pthread_t threads[4];
    reader readers[4];
    workload_must_open(&a, &reference);
    workload_must_open(&a, &w);
    bs_source s = workload_source(&w, BS_PART_X), t = workload_source(&reference, BS_PART_X);
    unsigned char *whole = workload_read(&t, a.dtype);
    for (int r = 0; r < 4; r++) {
      readers[r] = (reader){s, whole, r, 0};
      ck_assert_int_eq(pthread_create(&threads[r], NULL, read_as_rank, &readers[r]), 0);
    }
    for (int r = 0; r < 4; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < 4; r++) ck_assert_int_eq(readers[r].wrong, 0);
    free(whole);
    workload_close(&w);
    workload_close(&reference);
  }
}
END_TEST

START_TEST(streams_seeds_and_parts_differ) {
  static const uint32_t streams[] = {BS_STREAM_X,      BS_STREAM_W,          BS_STREAM_BIAS,
                                     BS_STREAM_TARGET, MODELS_STREAM_SECOND, MODELS_STREAM_Q,
                                     MODELS_STREAM_K,  MODELS_STREAM_V,      MODELS_STREAM_FILTER};
  for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
    for (size_t j = 0; j < i; j++) ck_assert_uint_ne(streams[i], streams[j]);
  ask a = kind(_i), other = a;
  other.seed++;
  double *x = read_x(&a), *y = read_x(&other);
  ck_assert_int_ne(memcmp(x, y, (size_t)(a.B * a.K) * sizeof *x), 0);
  free(y);
  other = a;
  other.weight_seed++; /* W's, not X's */
  y = read_x(&other);
  ck_assert_int_eq(memcmp(x, y, (size_t)(a.B * a.K) * sizeof *x), 0);
  free(x);
  free(y);
}
END_TEST

/* W, bias, targets and loss are those of every generated workload. */
START_TEST(weights_and_targets_are_the_common_ones) {
  ask a = kind(_i), plain = {.name = "random_normal", .dtype = a.dtype, .B = 6, .N = 9, .K = a.K};
  static const char *const extra[] = {"target=random_normal", "loss=mse_target", "weight_std=0.5",
                                      "weight_mean=1"};
  plain.seed = plain.weight_seed = 31;
  plain.has_bias = 1;
  int n = 0;
  while (a.options[n] != NULL) n++;
  for (int i = 0; i < 4; i++) a.options[n + i] = plain.options[i] = extra[i];
  opened w, p;
  workload_must_open(&a, &w);
  workload_must_open(&plain, &p);
  ck_assert_uint_eq(w.info.loss, BS_LOSS_MSE_TARGET);
  ck_assert_uint_eq(w.info.has_target, 1);
  ck_assert_ptr_nonnull(strstr(w.info.text, "seed 31; W normal(1, 0.5) seed 31, bias normal; target normal"));
  for (uint32_t part = BS_PART_W; part <= BS_PART_TARGET; part++) {
    bs_source s = workload_source(&w, part), t = workload_source(&p, part);
    void *first = workload_read(&s, BS_F32), *second = workload_read(&t, BS_F32);
    ck_assert_int_eq(s.rows * s.cols, t.rows * t.cols);
    ck_assert_int_eq(memcmp(first, second, (size_t)(s.rows * s.cols) * sizeof(float)), 0);
    free(first);
    free(second);
  }
  workload_close(&w);
  workload_close(&p);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("models_values");
  TCase *tc = tcase_create("models_values");
  tcase_add_test(tc, activation_is_clipped);
  tcase_add_test(tc, mlp_is_its_definition);
  tcase_add_test(tc, swiglu_gates_with_silu);
  tcase_add_test(tc, attention_is_its_definition);
  tcase_add_test(tc, heads_lie_beside_each_other);
  tcase_add_test(tc, vision_is_its_definition);
  tcase_add_loop_test(tc, the_same_bits_twice_and_in_any_panels, 0, KINDS);
  tcase_add_loop_test(tc, values_are_rounded_once, 0, KINDS);
  tcase_add_loop_test(tc, portable_and_avx2_give_the_same_bits, 0, KINDS);
  tcase_add_loop_test(tc, golden, 0, KINDS);
  tcase_add_loop_test(tc, ranks_read_at_once, 0, KINDS);
  tcase_add_loop_test(tc, streams_seeds_and_parts_differ, 0, KINDS);
  tcase_add_loop_test(tc, weights_and_targets_are_the_common_ones, 0, KINDS);
  suite_add_tcase(suite, tc);
  return files_run(suite);
}
