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
#include <pthread.h>
#include <string.h>

#define AMX_FILES 64 /* threads that have tiles at one time; others wait for one of these */

typedef struct amx_tiles {
  uintptr_t owner; /* a thread, from amx_config to amx_release; 0: nobody */
  amx_shapes shapes;
  uint8_t t[8][16][64];
} amx_tiles;
static amx_tiles amx_files[AMX_FILES];

/* This thread's tiles. NULL: it has none, and an instruction fails as the processor's does. */
static inline amx_tiles *amx_mine(void) {
  const uintptr_t me = (uintptr_t)pthread_self();
  for (int i = 0; i < AMX_FILES; i++)
    if (__atomic_load_n(&amx_files[i].owner, __ATOMIC_ACQUIRE) == me) return &amx_files[i];
  return NULL;
}

static inline void amx_config(const amx_shapes *shapes) {
  amx_tiles *mine = amx_mine();
  for (int i = 0; mine == NULL; i = (i + 1) % AMX_FILES) {
    uintptr_t nobody = 0;
    if (__atomic_compare_exchange_n(&amx_files[i].owner, &nobody, (uintptr_t)pthread_self(), 0,
                                    __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      mine = &amx_files[i];
  }
  mine->shapes = *shapes;
  memset(mine->t, 0, sizeof mine->t);
}

static inline void amx_release(void) {
  amx_tiles *mine = amx_mine();
  if (mine != NULL) __atomic_store_n(&mine->owner, 0, __ATOMIC_RELEASE);
}

static inline void amx_zero(int tile) {
  amx_tiles *mine = amx_mine();
  memset(mine->t[tile], 0, sizeof mine->t[tile]);
}

static inline void amx_load(int tile, const void *from, int64_t step) {
  amx_tiles *mine = amx_mine();
  for (int r = 0; r < mine->shapes.rows[tile]; r++)
    memcpy(mine->t[tile][r], (const char *)from + r * step, mine->shapes.bytes[tile]);
}

static inline void amx_store(int tile, void *to, int64_t step) {
  const amx_tiles *mine = amx_mine();
  for (int r = 0; r < mine->shapes.rows[tile]; r++)
    memcpy((char *)to + r * step, mine->t[tile][r], mine->shapes.bytes[tile]);
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

static inline void amx_dpbf16(int c, int a, int b) {
  amx_tiles *mine = amx_mine();
  const amx_shapes *s = &mine->shapes;
  const int pairs = s->bytes[a] / 4, outputs = s->bytes[c] / 4;
  float w[32][16]; /* by column of A; places beyond the last output are like the first one */
  for (int k = 0; k < 2 * pairs; k++)
    for (int n = 0; n < 16; n++)
      w[k][n] = n < outputs ? amx_bf16(&mine->t[b][k / 2][4 * n + 2 * (k % 2)]) : w[k][0];
  for (int m = 0; m < s->rows[c]; m++) {
    float sums[2][16] = {{0}}; /* of even and of odd columns */
    for (int k = 0; k < 2 * pairs; k++) amx_next(sums[k % 2], amx_bf16(&mine->t[a][m][2 * k]), w[k]);
    for (int n = 0; n < outputs; n++) {
      float v;
      memcpy(&v, &mine->t[c][m][4 * n], sizeof v);
      v = amx_flush(amx_flush(v) + amx_flush(sums[0][n] + sums[1][n]));
      memcpy(&mine->t[c][m][4 * n], &v, sizeof v);
    }
  }
}

static inline void amx_dpi8(int c, int a, int b) {
  amx_tiles *mine = amx_mine();
  const amx_shapes *s = &mine->shapes;
  for (int m = 0; m < s->rows[c]; m++)
    for (int n = 0; n < s->bytes[c] / 4; n++) {
      uint32_t v;
      memcpy(&v, &mine->t[c][m][4 * n], sizeof v);
      for (int k = 0; k < s->bytes[a]; k++)
        v += (uint32_t)((int8_t)mine->t[a][m][k] * (int8_t)mine->t[b][k / 4][4 * n + k % 4]);
      memcpy(&mine->t[c][m][4 * n], &v, sizeof v);
    }
}

#endif
#endif
