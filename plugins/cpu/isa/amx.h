/* SPDX-License-Identifier: MIT
 *
 * amx.h - the tile instructions, for the kernels of isa/amx_....h: those of the processor (amx.c), or, where
 * CPU_AMX_MODEL is defined, a model of them in plain C (amx_model.c). Kernels compile against both, so tests
 * of a kernel run on every machine.
 *
 * A tile has up to 16 rows of 64 bytes; amx_config sets the rows and bytes of each. Rows and bytes beyond
 * those are zero after a load and are not stored. Tiles belong to the thread. Tile numbers are constants.
 *
 * The bits of amx_dpbf16: for every output two chains of fused multiply-adds in fp32, each from zero, upwards
 * in k, one of the even and one of the odd columns; then c + (even + odd). Subnormal inputs count as zero,
 * and each subnormal result becomes zero. The integer forms add in 32 bits, and wrap around. */
#ifndef BS_PLUGINS_CPU_ISA_AMX_H
#define BS_PLUGINS_CPU_ISA_AMX_H

#include <stdint.h>

/* The operand of LDTILECFG, 64 bytes. */
typedef struct amx_shapes {
  uint8_t palette; /* 1 */
  uint8_t start_row;
  uint8_t none[14];
  uint16_t bytes[16]; /* of a row, by tile */
  uint8_t rows[16];
} amx_shapes;

#ifndef CPU_AMX_MODEL

#include <immintrin.h>

static inline __attribute__((always_inline)) void amx_config(const amx_shapes *shapes) {
  __asm__ volatile("" : : "r"(shapes) : "memory"); /* the intrinsic tells gcc 12 of 8 bytes only */
  _tile_loadconfig(shapes);
}
#define amx_release() _tile_release()
#define amx_zero(tile) _tile_zero(tile)
#define amx_load(tile, from, step) _tile_loadd(tile, from, step)
#define amx_store(tile, to, step) _tile_stored(tile, to, step)
#define amx_dpbf16(c, a, b) _tile_dpbf16ps(c, a, b)
#define amx_dpi8(c, a, b) _tile_dpbssd(c, a, b)

#else

#include <math.h>
#include <string.h>

typedef struct amx_tiles {
  amx_shapes shapes;
  uint8_t t[8][16][64];
} amx_tiles;
static _Thread_local amx_tiles amx_now;

static inline void amx_config(const amx_shapes *shapes) {
  amx_now.shapes = *shapes;
  memset(amx_now.t, 0, sizeof amx_now.t);
}

static inline void amx_release(void) {
  memset(&amx_now, 0, sizeof amx_now);
}

static inline void amx_zero(int tile) {
  memset(amx_now.t[tile], 0, sizeof amx_now.t[tile]);
}

static inline void amx_load(int tile, const void *from, int64_t step) {
  amx_zero(tile);
  for (int r = 0; r < amx_now.shapes.rows[tile]; r++)
    memcpy(amx_now.t[tile][r], (const char *)from + r * step, amx_now.shapes.bytes[tile]);
}

static inline void amx_store(int tile, void *to, int64_t step) {
  for (int r = 0; r < amx_now.shapes.rows[tile]; r++)
    memcpy((char *)to + r * step, amx_now.t[tile][r], amx_now.shapes.bytes[tile]);
}

static inline float amx_flush(float v) {
  return fabsf(v) < 0x1p-126f ? copysignf(0.0f, v) : v;
}

static inline float amx_bf16(const uint8_t *at) {
  float v;
  const uint8_t bytes[4] = {0, 0, at[0], at[1]};
  memcpy(&v, bytes, sizeof v);
  return amx_flush(v);
}

/* One output: row m of A and column n of B. */
static inline float amx_sum(int a, int b, int m, int n, int64_t pairs) {
  float even = 0.0f, odd = 0.0f;
  for (int64_t k = 0; k < pairs; k++) {
    const uint8_t *x = &amx_now.t[a][m][4 * k], *w = &amx_now.t[b][k][4 * n];
    even = amx_flush(fmaf(amx_bf16(x), amx_bf16(w), even));
    odd = amx_flush(fmaf(amx_bf16(x + 2), amx_bf16(w + 2), odd));
  }
  return amx_flush(even + odd);
}

static inline void amx_dpbf16(int c, int a, int b) {
  const amx_shapes *s = &amx_now.shapes;
  for (int m = 0; m < s->rows[c]; m++)
    for (int n = 0; n < s->bytes[c] / 4; n++) {
      float v;
      memcpy(&v, &amx_now.t[c][m][4 * n], sizeof v);
      v = amx_flush(amx_flush(v) + amx_sum(a, b, m, n, s->bytes[a] / 4));
      memcpy(&amx_now.t[c][m][4 * n], &v, sizeof v);
    }
}

static inline void amx_dpi8(int c, int a, int b) {
  const amx_shapes *s = &amx_now.shapes;
  for (int m = 0; m < s->rows[c]; m++)
    for (int n = 0; n < s->bytes[c] / 4; n++) {
      uint32_t v;
      memcpy(&v, &amx_now.t[c][m][4 * n], sizeof v);
      for (int k = 0; k < s->bytes[a]; k++)
        v += (uint32_t)((int8_t)amx_now.t[a][m][k] * (int8_t)amx_now.t[b][k / 4][4 * n + k % 4]);
      memcpy(&amx_now.t[c][m][4 * n], &v, sizeof v);
    }
}

#endif
#endif
