/* SPDX-License-Identifier: MIT
 * test_models_reads.c - activation_like, transformer_mlp, attention_like and vision_conv give the same bits
 * however X is read, by whom, with how small a cache, and on the portable and AVX2 paths; streams, golden
 * bits, and the common W, bias and targets. */
#include <pthread.h>

#include "core/base/convert_paths.h"
#include "core/base/rng_paths.h"
#include "tests/run_tests.h"
#include "tests/workloads/models.h"

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
  const test_case tests[] = {{the_same_bits_twice_and_in_any_panels, KINDS},
                             {values_are_rounded_once, KINDS},
                             {portable_and_avx2_give_the_same_bits, KINDS},
                             {golden, KINDS},
                             {ranks_read_at_once, KINDS},
                             {streams_seeds_and_parts_differ, KINDS},
                             {weights_and_targets_are_the_common_ones, KINDS},
                             {0}};
  return run_tests("models_reads", tests, (test_setup){0});
}
