/* SPDX-License-Identifier: MIT
 *
 * test_cpu_amx_model.c - the model of the tile instructions (plugins/cpu/isa/amx.h) against a computation of
 * its own: every number of rows, columns and pairs, of data at each edge of fp32, bit by bit. A NaN is a NaN:
 * its payload is not the model's matter. The model agreed with a processor in 23 million outputs; on one with
 * AMX test_cpu_amx.c compares the two again. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_tests.h"

#define CPU_AMX_MODEL
#include "plugins/cpu/isa/amx.h"

enum { C, A, B, TILE = 16 * 64, KINDS = 7 };

static cpu_amx_room tiles;
static void *const room = &tiles;
static uint64_t state;
static uint32_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16);
}

/* A bf16 of a kind: of [-1, 1), a wide range, subnormals and their neighbours, products near 2^-126, near
 * overflow, small whole numbers with zeros of both signs, any bits. */
static uint16_t value(int kind) {
  static const uint32_t first[] = {107, 107, 0, 50, 180}, range[] = {20, 40, 20, 30, 20};
  const uint32_t r = draw();
  if (kind < 5) return (uint16_t)((r & 0x807f) | (first[kind] + (r >> 16) % range[kind]) << 7);
  if (kind == 6) return (uint16_t)r;
  const float whole = (float)((int32_t)(r % 9) - 4);
  uint32_t bits;
  memcpy(&bits, &whole, sizeof bits);
  return (uint16_t)(bits >> 16 | (whole == 0.0f ? r & 0x8000 : 0));
}

static double number(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float f;
  memcpy(&f, &wide, sizeof f);
  return fabsf(f) < FLT_MIN ? copysign(0.0, f) : (double)f;
}

/* f32 of an f64, subnormals as zeros. */
static float narrow(double v) {
  const float f = (float)v;
  return fabsf(f) < FLT_MIN ? copysignf(0.0f, f) : f;
}

/* The next f64 to v in the direction of a sum's remainder, if v's last bit is even: then rounding it to f32
 * rounds the exact sum. */
static double to_odd(double v, double remainder) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  if (remainder == 0.0 || (bits & 1u) != 0) return v;
  return nextafter(v, remainder > 0.0 ? INFINITY : -INFINITY);
}

/* sum + a b, rounded once: the product of two bf16 is exact in f64, the sum has a remainder. */
static float chain(float sum, uint16_t a, uint16_t b) {
  const double p = number(a) * number(b), s = (double)sum, t = p + s;
  if (!isfinite(t)) return (float)t;
  const double of_p = t - s, remainder = (p - of_p) + (s - (t - of_p));
  return narrow(to_odd(t, remainder));
}

static float expected(float c, const uint16_t *a, const uint16_t *b, int n, int pairs) {
  float sums[2] = {0.0f, 0.0f};
  for (int i = 0; i < 2; i++) /* each chain on its own */
    for (int k = 0; k < pairs; k++) sums[i] = chain(sums[i], a[2 * k + i], b[k * 32 + 2 * n + i]);
  return narrow((double)narrow((double)c) + (double)narrow((double)sums[0] + (double)sums[1]));
}

static int same(float x, float y) {
  return (isnan(x) && isnan(y)) || memcmp(&x, &y, sizeof x) == 0;
}

static void configure(int rows, int outputs, int row_bytes) {
  amx_shapes s = {.palette = 1};
  s.rows[C] = s.rows[A] = (uint8_t)rows;
  s.rows[B] = (uint8_t)(row_bytes / 4);
  s.bytes[C] = s.bytes[B] = (uint16_t)(4 * outputs);
  s.bytes[A] = (uint16_t)row_bytes;
  amx_config(&s);
}

/* Tiles of these sizes from memory that ends where they end; `first` is C before. */
static void product(void (*multiply)(void), const void *a, const void *b, void *c, int rows, int outputs,
                    int row_bytes) {
  const size_t sizes[3] = {(size_t)(rows - 1) * 64 + 4 * (size_t)outputs,
                           (size_t)(rows - 1) * 64 + (size_t)row_bytes,
                           (size_t)(row_bytes / 4 - 1) * 64 + 4 * (size_t)outputs};
  const void *from[3] = {c, a, b};
  configure(rows, outputs, row_bytes);
  for (int t = 0; t < 3; t++) {
    void *exact = malloc(sizes[t]);
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, from[t], sizes[t]);
    amx_load(t, exact, 64);
    free(exact);
  }
  multiply();
  amx_store(C, c, 64);
  amx_release();
}

static void multiply_bf16(void) {
  amx_dpbf16(C, A, B);
}

static void multiply_i8(void) {
  amx_dpi8(C, A, B);
}

static void multiply_i8u8(void) {
  amx_dpi8u8(C, A, B);
}

/* Every number of rows and of outputs with each number of pairs, each in two or three of the kinds. */
START_TEST(bf16_by_pairs) {
  state = 88172645463325252u + (uint64_t)_i;
  for (int i = _i % 3; i < 16 * 16 * 16; i += 3) {
    const int rows = 1 + i % 16, outputs = 1 + i / 16 % 16, pairs = 1 + i / 256;
    uint16_t a[16][32], b[16][32];
    float c[16][16], before[16][16];
    for (int k = 0; k < 512; k++) {
      a[k / 32][k % 32] = value(_i);
      b[k / 32][k % 32] = value(_i);
    }
    for (int k = 0; k < 256; k++) {
      const int kind = _i == 3 ? 2 : _i; /* near 2^-126 as the sums are */
      const uint32_t bits = i % 4 == 0 ? 0 : (uint32_t)value(kind) << 16 | (draw() & 0xffffu);
      memcpy(&c[k / 16][k % 16], &bits, sizeof bits);
    }
    memcpy(before, c, sizeof c);
    product(multiply_bf16, a, b, c, rows, outputs, 4 * pairs);
    for (int k = 0; k < 256; k++) {
      const int m = k / 16, n = k % 16, there = m < rows && n < outputs;
      const float want = there ? expected(before[m][n], a[m], b[0], n, pairs) : before[m][n];
      if (!same(c[m][n], want))
        ck_abort_msg("%d x %d x %d, [%d,%d]: %a + ... gives %a, want %a", rows, outputs, pairs, m, n,
                     before[m][n], c[m][n], want);
    }
  }
}
END_TEST

/* Sums of 32 bits that wrap around. */
START_TEST(bytes_that_wrap) {
  state = 88172645463325252u;
  for (int i = 0; i < 16 * 16 * 16; i++) {
    const int rows = 1 + i % 16, outputs = 1 + i / 16 % 16, bytes = 4 * (1 + i / 256);
    int8_t a[16][64], b[16][64];
    uint32_t c[16][16], before[16][16];
    for (int k = 0; k < TILE; k++) {
      a[k / 64][k % 64] = i % 2 ? INT8_MIN : (int8_t)draw();
      b[k / 64][k % 64] = i % 2 ? INT8_MIN : (int8_t)draw();
    }
    for (int k = 0; k < 256; k++) before[k / 16][k % 16] = i % 2 ? (uint32_t)INT32_MAX : draw();
    memcpy(c, before, sizeof c);
    product(i / 2 % 2 ? multiply_i8u8 : multiply_i8, a, b, c, rows, outputs, bytes);
    for (int k = 0; k < 256; k++) {
      const int m = k / 16, n = k % 16;
      int64_t want = before[m][n];
      for (int j = 0; m < rows && n < outputs && j < bytes; j++) {
        const int8_t w = b[j / 4][4 * n + j % 4];
        want += (int64_t)a[m][j] * (i / 2 % 2 ? (uint8_t)w : w);
      }
      if (c[m][n] != (uint32_t)(uint64_t)want)
        ck_abort_msg("%d x %d x %d bytes, [%d,%d]: %u, want %lld", rows, outputs, bytes, m, n, c[m][n],
                     (long long)want);
    }
  }
}
END_TEST

/* New shapes and amx_zero make zeros; what is beyond a tile's rows and bytes stays zero when it is loaded. */
START_TEST(tiles_begin_with_zeros) {
  uint8_t ones[TILE], out[TILE];
  memset(ones, 1, sizeof ones);
  for (int how = 0; how < 3; how++) {
    configure(16, 16, 64);
    for (int t = 0; t < 3; t++) amx_load(t, ones, 64);
    if (how == 0) configure(16, 16, 64);
    if (how == 1)
      for (int t = 0; t < 3; t++) amx_zero(t);
    if (how == 2) {
      configure(5, 3, 8);
      for (int t = 0; t < 3; t++) amx_load(t, ones, 64);
      ((amx_tiles *)room)->shapes = (amx_shapes){.rows = {16, 16, 16}, .bytes = {64, 64, 64}};
    }
    for (int t = 0; t < 3; t++) {
      const int rows = how < 2 ? 0 : t == B ? 2 : 5, bytes = t == A ? 8 : 12;
      memset(out, 7, sizeof out);
      amx_store(t, out, 64);
      for (int i = 0; i < TILE; i++)
        if (out[i] != (i / 64 < rows && i % 64 < bytes))
          ck_abort_msg("%d: tile %d, byte %d is %d", how, t, i, out[i]);
    }
    amx_release();
    for (size_t i = 0; i < sizeof(amx_tiles); i++) ck_assert_uint_eq(tiles.bytes[i], 0);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{bf16_by_pairs, KINDS}, {bytes_that_wrap}, {tiles_begin_with_zeros}, {0}};
  return run_tests("cpu_amx_model", tests, (test_setup){0});
}
