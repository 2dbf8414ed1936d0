/* SPDX-License-Identifier: MIT
 *
 * kernels.c - arithmetic of the reductions. Loops are plain C, compiled once for the base instruction
 * set and once for AVX2 and chosen at run time; both do the same operations in the same order, so the
 * bits do not depend on the CPU. Sums of integers wrap (two's complement). max and min keep a NaN.
 */
#include "threads.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <immintrin.h>
#define THR_X86 1
#define THR_AVX2 __attribute__((target("avx2,f16c")))
#else
#define THR_X86 0
#endif
#define THR_INLINE static inline __attribute__((always_inline))

THR_INLINE void add_f32(float *restrict acc, const float *restrict src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) acc[i] += src[i];
}
THR_INLINE void add2_f32(float *restrict out, const float *restrict a, const float *restrict b, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}
THR_INLINE void add_f64(double *restrict acc, const double *restrict src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) acc[i] += src[i];
}
THR_INLINE void widen_bf16(float *restrict dst, const uint16_t *restrict src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t bits = (uint32_t)src[i] << 16;
    memcpy(&dst[i], &bits, sizeof bits);
  }
}
/* Nearest even; a NaN stays one, quiet, with its sign. */
THR_INLINE uint32_t bf16_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t nan = (bits >> 16) | 0x40u;
  return (bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}
THR_INLINE void narrow_bf16(uint16_t *restrict dst, const float *restrict src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) dst[i] = (uint16_t)bf16_bits(src[i]);
}
THR_INLINE void round_bf16(float *values, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    uint32_t bits = bf16_bits(values[i]) << 16;
    memcpy(&values[i], &bits, sizeof bits);
  }
}

static void add_f32_base(float *acc, const float *src, uint64_t n) {
  add_f32(acc, src, n);
}
static void add2_f32_base(float *out, const float *a, const float *b, uint64_t n) {
  add2_f32(out, a, b, n);
}
static void add2_both_f32_base(float *out, float *also, const float *a, const float *b, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) out[i] = also[i] = a[i] + b[i];
}
static void copy_base(void *dst, const void *src, uint64_t bytes) {
  memcpy(dst, src, bytes);
}
static void add_f64_base(double *acc, const double *src, uint64_t n) {
  add_f64(acc, src, n);
}
static void widen_bf16_base(float *dst, const uint16_t *src, uint64_t n) {
  widen_bf16(dst, src, n);
}
static void narrow_bf16_base(uint16_t *dst, const float *src, uint64_t n) {
  narrow_bf16(dst, src, n);
}
static void round_bf16_base(float *values, uint64_t n) {
  round_bf16(values, n);
}

#if THR_X86
THR_AVX2 static void add_f32_avx2(float *acc, const float *src, uint64_t n) {
  add_f32(acc, src, n);
}
THR_AVX2 static void add2_f32_avx2(float *out, const float *a, const float *b, uint64_t n) {
  add2_f32(out, a, b, n);
}
THR_AVX2 static void add2_both_f32_avx2(float *out, float *also, const float *a, const float *b, uint64_t n) {
  uint64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 low = _mm256_add_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i));
    const __m256 high = _mm256_add_ps(_mm256_loadu_ps(a + i + 8), _mm256_loadu_ps(b + i + 8));
    _mm256_storeu_ps(out + i, low);
    _mm256_storeu_ps(out + i + 8, high);
    _mm256_storeu_ps(also + i, low);
    _mm256_storeu_ps(also + i + 8, high);
  }
  for (; i < n; ++i) out[i] = also[i] = a[i] + b[i];
}
THR_AVX2 static void add_f64_avx2(double *acc, const double *src, uint64_t n) {
  add_f64(acc, src, n);
}
THR_AVX2 static void widen_bf16_avx2(float *dst, const uint16_t *src, uint64_t n) {
  widen_bf16(dst, src, n);
}
THR_AVX2 static void narrow_bf16_avx2(uint16_t *dst, const float *src, uint64_t n) {
  narrow_bf16(dst, src, n);
}
THR_AVX2 static void round_bf16_avx2(float *values, uint64_t n) {
  round_bf16(values, n);
}
THR_AVX2 static void copy_avx2(void *dst, const void *src, uint64_t bytes) {
  enum { BLOCK = 128 };
  char *to = dst;
  const char *from = src;
  uint64_t i = 0;
  for (; i + BLOCK <= bytes; i += BLOCK) {
    const __m256i *in = (const __m256i *)(const void *)(from + i);
    __m256i *out = (__m256i *)(void *)(to + i);
    const __m256i a = _mm256_loadu_si256(in), b = _mm256_loadu_si256(in + 1);
    const __m256i c = _mm256_loadu_si256(in + 2), d = _mm256_loadu_si256(in + 3);
    _mm256_storeu_si256(out, a);
    _mm256_storeu_si256(out + 1, b);
    _mm256_storeu_si256(out + 2, c);
    _mm256_storeu_si256(out + 3, d);
  }
  memcpy(to + i, from + i, bytes - i);
}
THR_AVX2 static void widen_f16_avx2(float *dst, const uint16_t *src, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m128i half;
    memcpy(&half, src + i, sizeof half);
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(half));
  }
  for (; i < n; ++i) dst[i] = _cvtsh_ss(src[i]);
}
THR_AVX2 static void narrow_f16_avx2(uint16_t *dst, const float *src, uint64_t n) {
  uint64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
    memcpy(dst + i, &half, sizeof half);
  }
  for (; i < n; ++i) dst[i] = (uint16_t)_cvtss_sh(src[i], _MM_FROUND_TO_NEAREST_INT);
}
#endif

#if THR_X86
/* clang 14's __builtin_cpu_supports does not know f16c. */
static int has_f16c(void) {
  unsigned int a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1u);
}
#endif

void thr_kernels_choose(thr_kernels *out_kernels) {
  const thr_kernels base = {
      .add_f32 = add_f32_base,
      .add2_f32 = add2_f32_base,
      .add2_both_f32 = add2_both_f32_base,
      .add_f64 = add_f64_base,
      .widen_bf16 = widen_bf16_base,
      .narrow_bf16 = narrow_bf16_base,
      .round_bf16 = round_bf16_base,
      .copy = copy_base,
  };
  *out_kernels = base;
#if THR_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && has_f16c()) {
    const thr_kernels avx2 = {
        .add_f32 = add_f32_avx2,
        .add2_f32 = add2_f32_avx2,
        .add2_both_f32 = add2_both_f32_avx2,
        .add_f64 = add_f64_avx2,
        .widen_bf16 = widen_bf16_avx2,
        .narrow_bf16 = narrow_bf16_avx2,
        .round_bf16 = round_bf16_avx2,
        .widen_f16 = widen_f16_avx2,
        .narrow_f16 = narrow_f16_avx2,
        .copy = copy_avx2,
    };
    *out_kernels = avx2;
  }
#endif
}

int32_t thr_convert(const thr_world *world, uint32_t dst_dtype, void *dst, uint32_t src_dtype,
                    const void *src, uint64_t n) {
  const thr_kernels *k = &world->kernels;
  if (dst_dtype == src_dtype) {
    if (dst != src) k->copy(dst, src, n * BS_DTYPE_BYTES(src_dtype));
    return BS_OK;
  }
  if (dst_dtype == BS_F32 && src_dtype == BS_BF16) {
    k->widen_bf16(dst, src, n);
  } else if (dst_dtype == BS_BF16 && src_dtype == BS_F32) {
    k->narrow_bf16(dst, src, n);
  } else if (dst_dtype == BS_F32 && src_dtype == BS_F16 && k->widen_f16 != NULL) {
    k->widen_f16(dst, src, n);
  } else if (dst_dtype == BS_F16 && src_dtype == BS_F32 && k->narrow_f16 != NULL) {
    k->narrow_f16(dst, src, n);
  } else {
    return world->host->convert(dst_dtype, dst, src_dtype, src, n);
  }
  return BS_OK;
}

int32_t thr_copy_rows(const thr_world *world, uint32_t dst_dtype, void *dst, int64_t dst_stride,
                      uint32_t src_dtype, const void *src, int64_t src_stride, uint64_t rows, uint64_t n) {
  if (rows == 0 || n == 0) return BS_OK;
  if (dst_stride == (int64_t)n && src_stride == (int64_t)n)
    return thr_convert(world, dst_dtype, dst, src_dtype, src, rows * n);
  int64_t dst_step = dst_stride * (int64_t)BS_DTYPE_BYTES(dst_dtype);
  int64_t src_step = src_stride * (int64_t)BS_DTYPE_BYTES(src_dtype);
  for (uint64_t row = 0; row < rows; ++row) {
    int32_t rc = thr_convert(world, dst_dtype, (char *)dst + (int64_t)row * dst_step, src_dtype,
                             (const char *)src + (int64_t)row * src_step, n);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* ---- running reductions --------------------------------------------------------------------- */

static int is_narrow_float(uint32_t dtype) {
  return dtype == BS_F16 || dtype == BS_BF16 || dtype == BS_F8E4M3 || dtype == BS_F8E5M2;
}

int32_t thr_reduction_init(thr_reduction *red, const thr_world *world, const bs_coll_call *call,
                           bs_error *err) {
  red->world = world;
  red->in = call->dtype_in;
  red->out = call->dtype_out;
  red->reduce = call->reduce_dtype;
  red->op = call->reduce_op;
  red->work = is_narrow_float(red->reduce) ? (uint32_t)BS_F32 : red->reduce;
  switch (red->work) {
    case BS_F32:
    case BS_F64:
    case BS_I64:
    case BS_I32:
    case BS_I8:
    case BS_U8:
      break;
    case BS_BOOL:
      if (red->op != BS_REDUCE_SUM) break;
      return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-DTYPE", "bool has no sum; reduce it with max or min");
    default:
      return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-DTYPE", "cannot reduce in dtype 0x%04x", red->reduce);
  }
  if (red->op > BS_REDUCE_MIN)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-COLL-OP", "unknown reduce op %u", red->op);
  return BS_OK;
}

/* Round work values (f32) to the reduce dtype. `spare` is room for n elements. */
static int32_t round_work(thr_reduction *red, float *values, void *spare, uint64_t n) {
  if (red->reduce == BS_BF16) {
    red->world->kernels.round_bf16(values, n);
    return BS_OK;
  }
  int32_t rc = thr_convert(red->world, red->reduce, spare, BS_F32, values, n);
  return rc != BS_OK ? rc : thr_convert(red->world, BS_F32, values, red->reduce, spare, n);
}

/* One rank's values as work values: converted to the reduce dtype first. */
static int32_t load_work(thr_reduction *red, void *dst, const void *src, uint64_t n) {
  if (red->work == red->reduce) return thr_convert(red->world, red->work, dst, red->in, src, n);
  if (red->in == red->reduce || red->in == BS_F32) { /* into f32 without loss, then round once */
    int32_t rc = thr_convert(red->world, BS_F32, dst, red->in, src, n);
    if (rc != BS_OK || red->in == red->reduce) return rc;
    uint16_t spare[THR_CHUNK]; /* n elements of at most 16 bits */
    return round_work(red, dst, spare, n);
  }
  uint16_t narrow[THR_CHUNK];
  int32_t rc = thr_convert(red->world, red->reduce, narrow, red->in, src, n);
  return rc != BS_OK ? rc : thr_convert(red->world, BS_F32, dst, red->reduce, narrow, n);
}

static void combine_f32(uint32_t op, const thr_kernels *k, float *restrict a, const float *restrict b,
                        uint64_t n) {
  if (op == BS_REDUCE_SUM) {
    k->add_f32(a, b, n);
  } else if (op == BS_REDUCE_MAX) {
    for (uint64_t i = 0; i < n; ++i) a[i] = (a[i] > b[i] || a[i] != a[i]) ? a[i] : b[i];
  } else {
    for (uint64_t i = 0; i < n; ++i) a[i] = (a[i] < b[i] || a[i] != a[i]) ? a[i] : b[i];
  }
}
static void combine_f64(uint32_t op, const thr_kernels *k, double *restrict a, const double *restrict b,
                        uint64_t n) {
  if (op == BS_REDUCE_SUM) {
    k->add_f64(a, b, n);
  } else if (op == BS_REDUCE_MAX) {
    for (uint64_t i = 0; i < n; ++i) a[i] = (a[i] > b[i] || a[i] != a[i]) ? a[i] : b[i];
  } else {
    for (uint64_t i = 0; i < n; ++i) a[i] = (a[i] < b[i] || a[i] != a[i]) ? a[i] : b[i];
  }
}
static void combine_i64(uint32_t op, int64_t *restrict a, const int64_t *restrict b, uint64_t n) {
  if (op == BS_REDUCE_SUM) {
    for (uint64_t i = 0; i < n; ++i) a[i] = (int64_t)((uint64_t)a[i] + (uint64_t)b[i]);
  } else if (op == BS_REDUCE_MAX) {
    for (uint64_t i = 0; i < n; ++i) a[i] = a[i] > b[i] ? a[i] : b[i];
  } else {
    for (uint64_t i = 0; i < n; ++i) a[i] = a[i] < b[i] ? a[i] : b[i];
  }
}
static void combine_i32(uint32_t op, int32_t *restrict a, const int32_t *restrict b, uint64_t n) {
  if (op == BS_REDUCE_SUM) {
    for (uint64_t i = 0; i < n; ++i) a[i] = (int32_t)((uint32_t)a[i] + (uint32_t)b[i]);
  } else if (op == BS_REDUCE_MAX) {
    for (uint64_t i = 0; i < n; ++i) a[i] = a[i] > b[i] ? a[i] : b[i];
  } else {
    for (uint64_t i = 0; i < n; ++i) a[i] = a[i] < b[i] ? a[i] : b[i];
  }
}
static void combine_i8(uint32_t op, int8_t *restrict a, const int8_t *restrict b, uint64_t n) {
  if (op == BS_REDUCE_SUM) {
    for (uint64_t i = 0; i < n; ++i) a[i] = (int8_t)(uint8_t)((uint8_t)a[i] + (uint8_t)b[i]);
  } else if (op == BS_REDUCE_MAX) {
    for (uint64_t i = 0; i < n; ++i) a[i] = a[i] > b[i] ? a[i] : b[i];
  } else {
    for (uint64_t i = 0; i < n; ++i) a[i] = a[i] < b[i] ? a[i] : b[i];
  }
}
static void combine_u8(uint32_t op, uint8_t *restrict a, const uint8_t *restrict b, uint64_t n) {
  if (op == BS_REDUCE_SUM) {
    for (uint64_t i = 0; i < n; ++i) a[i] = (uint8_t)(a[i] + b[i]);
  } else if (op == BS_REDUCE_MAX) {
    for (uint64_t i = 0; i < n; ++i) a[i] = a[i] > b[i] ? a[i] : b[i];
  } else {
    for (uint64_t i = 0; i < n; ++i) a[i] = a[i] < b[i] ? a[i] : b[i];
  }
}

int32_t thr_reduction_first(thr_reduction *red, const void *src, uint64_t n) {
  return load_work(red, &red->acc, src, n);
}

int32_t thr_reduction_add(thr_reduction *red, const void *src, uint64_t n) {
  const thr_kernels *k = &red->world->kernels;
  const void *values = src;
  if (red->in != red->work || red->work != red->reduce) {
    int32_t rc = load_work(red, &red->tmp, src, n);
    if (rc != BS_OK) return rc;
    values = &red->tmp;
  }
  switch (red->work) {
    case BS_F32:
      combine_f32(red->op, k, red->acc.f32, values, n);
      break;
    case BS_F64:
      combine_f64(red->op, k, red->acc.f64, values, n);
      break;
    case BS_I64:
      combine_i64(red->op, red->acc.i64, values, n);
      break;
    case BS_I32:
      combine_i32(red->op, red->acc.i32, values, n);
      break;
    case BS_I8:
      combine_i8(red->op, red->acc.i8, values, n);
      break;
    default: /* u8, bool */
      combine_u8(red->op, red->acc.u8, values, n);
      break;
  }
  /* A sum of two values of a narrow float in f32, then rounded, is the correctly rounded sum: f32 has
   * at least twice its digits plus two. */
  if (red->work != red->reduce && red->op == BS_REDUCE_SUM)
    return round_work(red, red->acc.f32, &red->tmp, n);
  return BS_OK;
}

int32_t thr_reduction_store(thr_reduction *red, void *dst, uint64_t n) {
  return thr_convert(red->world, red->out, dst, red->work, &red->acc, n);
}

int32_t thr_check_reduction(const thr_world *world, const bs_coll_call *call, bs_error *err) {
  if (call->dtype_in == call->dtype_out && call->dtype_in == call->reduce_dtype &&
      (call->dtype_in == BS_F32 || call->dtype_in == BS_F64) && call->reduce_op <= BS_REDUCE_MIN)
    return BS_OK;
  thr_reduction red;
  int32_t rc = thr_reduction_init(&red, world, call, err);
  if (rc != BS_OK) return rc;
  static const uint64_t zero[4] = {0, 0, 0, 0}; /* do the conversions exist? */
  uint64_t out;
  if (thr_reduction_first(&red, zero, 1) != BS_OK || thr_reduction_store(&red, &out, 1) != BS_OK)
    return bs_fail(err, BS_UNSUPPORTED, "BS-COLL-DTYPE", "cannot reduce 0x%04x in 0x%04x to 0x%04x",
                   call->dtype_in, call->reduce_dtype, call->dtype_out);
  return BS_OK;
}
