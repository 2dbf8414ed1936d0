/* SPDX-License-Identifier: MIT
 * peak.c - multiply-add loops, a row of a table for each instruction set and dtype, chosen at run time. */
#include "lab/measure/peak.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "blockshock/tensor.h"

/* Twelve independent chains keep two units of four to five cycles' latency busy. A product sums 16 x 16
 * values in each of six of the eight tiles that there are. */
enum { CHAINS = 12, TILES = 6, TILE = 16 };
enum { ANY = 0, AVX2 = 1, AVX512 = 2, DOT_BF16 = 4, FMA_F16 = 8, DOT_I8 = 16, TILE_BF16 = 32, TILE_I8 = 64 };

#define TARGET(set) __attribute__((target(set)))
#define MULTIPLY_ADD(a, x, y) ((a) * (x) + (y))
/* The chains, x and y begin as bytes of 0x38, which is a small number in each format, but unknown to the
 * compiler: it can neither merge equal chains nor remove one. */
#define LOOP(NAME, FOR, VECTOR, FACTOR, STEP)                                            \
  FOR static float NAME(uint64_t iterations) {                                           \
    VECTOR memory[CHAINS], a[CHAINS];                                                    \
    FACTOR x, y;                                                                         \
    float first;                                                                         \
    memset(memory, 0x38, sizeof memory);                                                 \
    memset(&x, 0x38, sizeof x);                                                          \
    memset(&y, 0x38, sizeof y);                                                          \
    __asm__ volatile("" : "+m"(memory), "+m"(x), "+m"(y));                               \
    for (int c = 0; c < CHAINS; ++c) a[c] = memory[c];                                   \
    for (uint64_t i = 0; i < iterations; ++i) {                                          \
      _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; ++c) a[c] = STEP(a[c], x, y); \
    }                                                                                    \
    for (int c = 0; c < CHAINS; ++c) memory[c] = a[c];                                   \
    __asm__ volatile("" : "+m"(memory));                                                 \
    memcpy(&first, memory, sizeof first);                                                \
    return first;                                                                        \
  }

typedef float f32x4 __attribute__((vector_size(16)));
typedef double f64x2 __attribute__((vector_size(16)));
LOOP(portable, , f32x4, f32x4, MULTIPLY_ADD)
LOOP(portable_f64, , f64x2, f64x2, MULTIPLY_ADD)

#if defined(__x86_64__)
LOOP(avx2, TARGET("avx2,fma"), __m256, __m256, _mm256_fmadd_ps)
LOOP(avx2_f64, TARGET("avx2,fma"), __m256d, __m256d, _mm256_fmadd_pd)
LOOP(avx512, TARGET("avx512f"), __m512, __m512, _mm512_fmadd_ps)
LOOP(avx512_f64, TARGET("avx512f"), __m512d, __m512d, _mm512_fmadd_pd)
LOOP(avx512_bf16, TARGET("avx512f,avx512bw,avx512vl,avx512bf16"), __m512, __m512bh, _mm512_dpbf16_ps)
LOOP(avx512_vnni, TARGET("avx512f,avx512vnni"), __m512i, __m512i, _mm512_dpbusd_epi32)
#if !defined(__clang__) && __GNUC__ >= 12 /* clang 14 has the type only in whole files for this set */
#define BS_PEAK_FP16 1
LOOP(avx512_fp16, TARGET("avx512f,avx512bw,avx512vl,avx512fp16"), __m512h, __m512h, _mm512_fmadd_ph)
#endif

/* All eight tiles are 16 rows of 64 bytes. */
struct tile_config {
  uint8_t palette, start, none[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
#define TILE_LOOP(NAME, FOR, PRODUCT)                                            \
  FOR static float NAME(uint64_t iterations) {                                   \
    struct tile_config config = {.palette = 1};                                  \
    uint8_t values[TILE * 64];                                                   \
    float first;                                                                 \
    for (int t = 0; t < 8; ++t) config.row_bytes[t] = 64, config.rows[t] = TILE; \
    memset(values, 0x38, sizeof values);                                         \
    _tile_loadconfig(&config);                                                   \
    _tile_zero(0);                                                               \
    _tile_zero(1);                                                               \
    _tile_zero(2);                                                               \
    _tile_zero(3);                                                               \
    _tile_zero(4);                                                               \
    _tile_zero(5);                                                               \
    _tile_loadd(6, values, 64);                                                  \
    _tile_loadd(7, values, 64);                                                  \
    for (uint64_t i = 0; i < iterations; ++i) {                                  \
      PRODUCT(0, 6, 7);                                                          \
      PRODUCT(1, 6, 7);                                                          \
      PRODUCT(2, 6, 7);                                                          \
      PRODUCT(3, 6, 7);                                                          \
      PRODUCT(4, 6, 7);                                                          \
      PRODUCT(5, 6, 7);                                                          \
    }                                                                            \
    _tile_stored(0, values, 64);                                                 \
    _tile_release();                                                             \
    memcpy(&first, values, sizeof first);                                        \
    return first;                                                                \
  }
TILE_LOOP(amx_bf16, TARGET("amx-tile,amx-bf16"), _tile_dpbf16ps)
TILE_LOOP(amx_int8, TARGET("amx-tile,amx-int8"), _tile_dpbssd)

/* The kernel gives a process the tile registers on request. */
static int may_use_tiles(void) {
  enum { ASK_FOR = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, ASK_FOR, TILE_DATA) == 0;
}

static uint32_t features(void) {
  unsigned a = 0, b = 0, c = 0, d = 0, set = ANY;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) set |= AVX2;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1u) && may_use_tiles())
    set |= (d >> 22 & 1u ? TILE_BF16 : 0u) | (d >> 25 & 1u ? TILE_I8 : 0u);
  if (!__builtin_cpu_supports("avx512f")) return set;
  set |= AVX512 | (__builtin_cpu_supports("avx512vnni") ? DOT_I8 : 0u) | (d >> 23 & 1u ? FMA_F16 : 0u);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1u)) set |= DOT_BF16;
  return set;
}
#else
static uint32_t features(void) {
  return ANY;
}
#endif

/* dtype: of the factors; f32: also of 16-bit ones, which are widened. Widest first. */
static const struct {
  bs_peak peak;
  uint32_t dtype, needs;
} loops[] = {
#if defined(__x86_64__)
    {{"amx_bf16", TILES *TILE *TILE * 32 * 2, amx_bf16}, BS_BF16, TILE_BF16},
    {{"amx_int8", TILES *TILE *TILE * 64 * 2, amx_int8}, BS_I8, TILE_I8},
    {{"avx512_bf16", CHAINS * 32 * 2, avx512_bf16}, BS_BF16, DOT_BF16},
#ifdef BS_PEAK_FP16
    {{"avx512_fp16", CHAINS * 32 * 2, avx512_fp16}, BS_F16, FMA_F16},
#endif
    {{"avx512_vnni", CHAINS * 64 * 2, avx512_vnni}, BS_I8, DOT_I8},
    {{"avx512", CHAINS * 16 * 2, avx512}, BS_F32, AVX512},
    {{"avx512_f64", CHAINS * 8 * 2, avx512_f64}, BS_F64, AVX512},
    {{"avx2", CHAINS * 8 * 2, avx2}, BS_F32, AVX2},
    {{"avx2_f64", CHAINS * 4 * 2, avx2_f64}, BS_F64, AVX2},
#endif
    {{"portable", CHAINS * 4 * 2, portable}, BS_F32, ANY},
    {{"portable_f64", CHAINS * 2 * 2, portable_f64}, BS_F64, ANY},
};

uint32_t bs_peak_loops(uint32_t dtype, int avx2_only, bs_peak *out, uint32_t max) {
  const uint32_t have = features() & (avx2_only ? AVX2 : UINT32_MAX);
  uint32_t n = 0;
  for (size_t i = 0; i < sizeof loops / sizeof loops[0]; ++i) {
    const int of_dtype = loops[i].dtype == dtype || (loops[i].dtype == BS_F32 && dtype != BS_F64);
    if (n < max && of_dtype && (have & loops[i].needs) == loops[i].needs) out[n++] = loops[i].peak;
  }
  return n;
}
