/* SPDX-License-Identifier: MIT
 *
 * kernels.h - the inner loops of the cpu plugin: one table per instruction set (portable.c, avx2/), chosen
 * once at activation. All results are the same on both tables except for the rounding of fused
 * multiply-adds. */
#ifndef BS_PLUGINS_CPU_KERNELS_H
#define BS_PLUGINS_CPU_KERNELS_H

#include <stdint.h>

#define CPU_PANEL 16    /* outputs of a weight panel */
#define CPU_K_BLOCK 256 /* columns of a block: a panel of a block is 16 KiB of fp32, half of L1 */
#define CPU_X_LD                                                                                             \
  272                    /* floats between rows of a packed X block; not a power of two, so that rows do not \
                            share cache sets */
#define CPU_MAX_TOKENS 6 /* tokens of a tile at most */
#define CPU_MAX_PANELS 4 /* panels of a tile at most */

/* A product of a few tokens with one or more neighbouring weight panels over one K block:
 *   c[t * ldc + 16 p + j] = (add ? c : 0) + sum_k x[t * CPU_X_LD + k] * w[p * w_step + 16 k + j]
 * The sum runs upwards in k in one chain, whatever the tile, so that a token's result depends neither on
 * the other tokens nor on the team. */
typedef struct cpu_tile {
  const float *x;
  const void *w;
  int64_t w_step; /* elements */
  float *c;
  int64_t ldc;
  int64_t k;
  int32_t tokens; /* 1 .. kernels->tokens */
  int32_t panels; /* 1 .. kernels->panels[tokens] */
  int32_t add;
} cpu_tile;

/* How the kept columns of one row are picked when they repeat every `period` columns; made by
 * cpu_pick_make (ops/columns.c). */
typedef struct cpu_pick {
  uint32_t group;      /* columns that one step reads: a multiple of the period; 0: no pattern kernel */
  uint32_t kept;       /* of a group */
  uint8_t index[16];   /* places of the kept columns in a group, ascending */
  uint8_t shuffle[32]; /* byte shuffle (2-byte elements) or eight 32-bit lanes (4 and 8 bytes) */
  uint8_t expand[32];  /* the inverse, for scatter: eight 32-bit lanes */
  uint8_t mask[32];    /* eight 32-bit lane masks of the kept places, for scatter */
} cpu_pick;

typedef struct cpu_kernels {
  const char *name; /* "portable", "avx2" */
  int32_t tokens;   /* tokens of the widest tile */
  int32_t panels[CPU_MAX_TOKENS + 1];
  /* Index by cpu_type_index of the weight's dtype. */
  void (*tile[3])(const cpu_tile *tile);
  /* n elements of f32, bf16 or f16 (cpu_type_index) to and from f32; nearest even, NaN stays NaN. */
  void (*load[3])(float *dst, const void *src, int64_t n);
  void (*store[3])(void *dst, const float *src, int64_t n);
  void (*add)(float *dst, const float *a, int64_t n);
  /* Pick whole groups of `size`-byte elements; may read only the groups' own bytes and write only the
   * kept ones. NULL: the generic loop serves. */
  void (*gather)(const cpu_pick *pick, uint32_t size, void *dst, const void *src, int64_t groups);
  void (*scatter)(const cpu_pick *pick, uint32_t size, void *dst, const void *src, int64_t groups);
} cpu_kernels;

extern const cpu_kernels cpu_kernels_portable;
#ifdef BS_CPU_AVX2
extern const cpu_kernels cpu_kernels_avx2;
/* avx2/tile.c, convert.c, columns.c */
void cpu_avx2_tile_f32(const cpu_tile *tile);
void cpu_avx2_tile_bf16(const cpu_tile *tile);
void cpu_avx2_tile_f16(const cpu_tile *tile);
void cpu_avx2_load_bf16(float *dst, const void *src, int64_t n);
void cpu_avx2_load_f16(float *dst, const void *src, int64_t n);
void cpu_avx2_store_bf16(void *dst, const float *src, int64_t n);
void cpu_avx2_store_f16(void *dst, const float *src, int64_t n);
void cpu_avx2_add(float *dst, const float *a, int64_t n);
void cpu_avx2_gather(const cpu_pick *pick, uint32_t size, void *dst, const void *src, int64_t groups);
void cpu_avx2_scatter(const cpu_pick *pick, uint32_t size, void *dst, const void *src, int64_t groups);
#endif

/* 0 f32, 1 bf16, 2 f16, -1 otherwise: the index of load, store and tile. */
int cpu_type_index(uint32_t dtype);

#endif
