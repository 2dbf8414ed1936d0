/* SPDX-License-Identifier: MIT
 *
 * amx.h - the tile instructions, for the kernels of isa/amx_....h: those of the processor (amx.c), or, where
 * CPU_AMX_MODEL is defined, a model of them in plain C (amx_model.c). Kernels compile against both, so tests
 * of a kernel run on every machine.
 *
 * A tile has up to 16 rows of 64 bytes; amx_config sets the rows and bytes of each. Rows and bytes beyond
 * those are zero after a load and are not stored. Tiles belong to the thread; the model keeps them in `room`
 * (cpu_amx_room), which every function that uses these names has as a parameter. Tile numbers are constants.
 *
 * The bits of amx_dpbf16: for every output two chains of fused multiply-adds in fp32, each from zero, upwards
 * in k, one of the even and one of the odd columns; then c + (even + odd). Subnormal inputs count as zero,
 * and each subnormal result becomes zero. The integer forms add in 32 bits, and wrap around:
 * amx_dpi8 of bytes with a sign, amx_dpi8u8 where those of B have none. */
#ifndef BS_PLUGINS_CPU_ISA_AMX_H
#define BS_PLUGINS_CPU_ISA_AMX_H

#include "../kernels.h"

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

/* The intrinsic tells gcc 12 of 8 of the 64 bytes only. */
#define amx_config(shapes)                           \
  do {                                               \
    (void)room;                                      \
    __asm__ volatile("" : : "r"(shapes) : "memory"); \
    _tile_loadconfig(shapes);                        \
  } while (0)
#define amx_release() _tile_release()
#define amx_zero(tile) _tile_zero(tile)
#define amx_load(tile, from, step) _tile_loadd(tile, from, step)
#define amx_store(tile, to, step) _tile_stored(tile, to, step)
#define amx_dpbf16(c, a, b) _tile_dpbf16ps(c, a, b)
#define amx_dpi8(c, a, b) _tile_dpbssd(c, a, b)
#define amx_dpi8u8(c, a, b) _tile_dpbsud(c, a, b)

#else

#include <math.h>
#include <string.h>

typedef struct amx_tiles {
  amx_shapes shapes;
  uint8_t t[8][16][64];
} amx_tiles;
_Static_assert(sizeof(amx_tiles) <= sizeof(cpu_amx_room), "room for the tiles");

static inline void amx_model_config(amx_tiles *now, const amx_shapes *shapes) {
  now->shapes = *shapes;
  memset(now->t, 0, sizeof now->t);
}

static inline void amx_model_release(amx_tiles *now) {
  memset(now, 0, sizeof *now);
}

static inline void amx_model_zero(amx_tiles *now, int tile) {
  memset(now->t[tile], 0, sizeof now->t[tile]);
}

static inline void amx_model_load(amx_tiles *now, int tile, const void *from, int64_t step) {
  amx_model_zero(now, tile);
  for (int r = 0; r < now->shapes.rows[tile]; r++)
    memcpy(now->t[tile][r], (const char *)from + r * step, now->shapes.bytes[tile]);
}

static inline void amx_model_store(amx_tiles *now, int tile, void *to, int64_t step) {
  for (int r = 0; r < now->shapes.rows[tile]; r++)
    memcpy((char *)to + r * step, now->t[tile][r], now->shapes.bytes[tile]);
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

/* Sixteen chains with one more product each. That of two bf16 is exact in fp32, so that a sum alone rounds it
 * as the fused operation does; those below or above its range are fmaf's, which takes longer. */
static inline void amx_next(float *sums, float x, const float *w) {
  int exact = 1;
  for (int n = 0; n < 16; n++) {
    const float size = fabsf(x * w[n]);
    const int zero = (size == 0.0f) & ((x == 0.0f) | (w[n] == 0.0f));
    exact &= ((size >= 0x1p-126f) & (size <= 0x1.fffffep127f)) | zero;
  }
  if (exact)
    for (int n = 0; n < 16; n++) sums[n] = amx_flush(sums[n] + x * w[n]);
  else
    for (int n = 0; n < 16; n++) sums[n] = amx_flush(fmaf(x, w[n], sums[n]));
}

static inline void amx_model_dpbf16(amx_tiles *now, int c, int a, int b) {
  const amx_shapes *s = &now->shapes;
  const int pairs = s->bytes[a] / 4, outputs = s->bytes[c] / 4;
  float w[32][16]; /* by column of A; places beyond the last output are like the first one */
  for (int k = 0; k < 2 * pairs; k++)
    for (int n = 0; n < 16; n++)
      w[k][n] = n < outputs ? amx_bf16(&now->t[b][k / 2][4 * n + 2 * (k % 2)]) : w[k][0];
  for (int m = 0; m < s->rows[c]; m++) {
    float sums[2][16] = {{0}}; /* of even and of odd columns */
    for (int k = 0; k < 2 * pairs; k++) amx_next(sums[k % 2], amx_bf16(&now->t[a][m][2 * k]), w[k]);
    for (int n = 0; n < outputs; n++) {
      float v;
      memcpy(&v, &now->t[c][m][4 * n], sizeof v);
      v = amx_flush(amx_flush(v) + amx_flush(sums[0][n] + sums[1][n]));
      memcpy(&now->t[c][m][4 * n], &v, sizeof v);
    }
  }
}

/* The bytes of A have a sign; sign: those of B, too. */
static inline void amx_model_bytes(amx_tiles *now, int c, int a, int b, int sign) {
  const amx_shapes *s = &now->shapes;
  for (int m = 0; m < s->rows[c]; m++)
    for (int n = 0; n < s->bytes[c] / 4; n++) {
      uint32_t v;
      memcpy(&v, &now->t[c][m][4 * n], sizeof v);
      for (int k = 0; k < s->bytes[a]; k++) {
        const uint8_t w = now->t[b][k / 4][4 * n + k % 4];
        v += (uint32_t)((int8_t)now->t[a][m][k] * (sign ? (int8_t)w : w));
      }
      memcpy(&now->t[c][m][4 * n], &v, sizeof v);
    }
}

#define amx_config(shapes) amx_model_config(room, shapes)
#define amx_release() amx_model_release(room)
#define amx_zero(tile) amx_model_zero(room, tile)
#define amx_load(tile, from, step) amx_model_load(room, tile, from, step)
#define amx_store(tile, to, step) amx_model_store(room, tile, to, step)
#define amx_dpbf16(c, a, b) amx_model_dpbf16(room, c, a, b)
#define amx_dpi8(c, a, b) amx_model_bytes(room, c, a, b, 1)
#define amx_dpi8u8(c, a, b) amx_model_bytes(room, c, a, b, 0)

#endif
#endif
