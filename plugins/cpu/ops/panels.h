/* SPDX-License-Identifier: MIT
 *
 * panels.h - products of two activations by the tiles of matmul: rows of any strides as f32, panels of 16
 * columns made from them, and the product of a block of rows with adjacent panels. Used by attention and
 * contract. */
#ifndef BS_PLUGINS_CPU_OPS_PANELS_H
#define BS_PLUGINS_CPU_OPS_PANELS_H
#include "../cpu.h"

#define CPU_PANEL_ROWS 96 /* of a block: a multiple of the tokens of every tile */

/* A matrix in memory; strides in elements. */
typedef struct cpu_lines {
  const uint8_t *data;
  uint32_t type; /* cpu_wide_index */
  uint32_t size;
  int64_t row, column;
} cpu_lines;

static inline int64_t cpu_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}
static inline int64_t cpu_up16(int64_t n) {
  return cpu_up(n, 16);
}

/* Columns first .. first+n of a row as f32, zeros up to `wide`. */
void cpu_lines_load(const cpu_kernels *kernels, const cpu_lines *m, int64_t row, int64_t first, int64_t n,
                    int64_t wide, float *out);
/* The other way; m->data is written. */
void cpu_lines_store(const cpu_kernels *kernels, const cpu_lines *m, int64_t row, int64_t first, int64_t n,
                     const float *in);
/* Panels [panel][depth][16] of the product with m: its columns first .. first+columns, its rows from..
 * from+depth. `room`: one row, rounded up to 16. What is beyond the last column is zero. */
void cpu_panels_copy(const cpu_kernels *kernels, const cpu_lines *m, int64_t from, int64_t depth,
                     int64_t first, int64_t columns, float *room, float *out);
/* Like cpu_panels_copy, of the transposed m: a column of the product is a row of m. `room`: 16 rows of
 * `depth` rounded up. */
void cpu_panels_turn(const cpu_kernels *kernels, const cpu_lines *m, int64_t from, int64_t depth,
                     int64_t first, int64_t columns, float *room, float *out);
/* c[count][ldc] (+)= x[count][x_ld] times panels of 16 columns, `step` bytes apart, by `tile`:
 * kernels->tile[0], or `dot`, whose x and panels are bf16. Or by `amx`, of bf16 too, which `begin` has given
 * 16 rows and 32 columns: then x and panels are zeros from the depth up to a multiple of 32, and x and c have
 * room for a multiple of 16 rows. */
typedef struct cpu_product {
  cpu_tile_fn tile;
  const cpu_amx *amx; /* NULL: by `tile` */
  cpu_amx_room *room;
  const void *x;
  int64_t x_ld;   /* of `tile` CPU_X_LD */
  int64_t x_size; /* bytes of one of its elements */
  const void *panels;
  int64_t step;
  int64_t depth, columns; /* columns: a multiple of 16; depth: up to CPU_K_BLOCK */
  float *c;
  int64_t ldc, count;
  int32_t add;
} cpu_product;
void cpu_panels_product(const cpu_kernels *kernels, const cpu_product *p);
/* c[count][ldc] (+)= x[count][CPU_X_LD] times the panels of `columns` columns, a multiple of 16; depth up to
 * CPU_K_BLOCK. */
void cpu_panels_multiply(const cpu_kernels *kernels, const float *x, const float *panels, int64_t depth,
                         int64_t columns, float *c, int64_t ldc, int64_t count, int32_t add);
#endif
