/* SPDX-License-Identifier: MIT
 *
 * amx_product.h - bf16 products by tiles (cpu_amx in kernels.h), for amx.c and amx_model.c. Two groups of
 * tokens times one panel or two have a tile of sums each. Every output is one chain over steps of 32 columns,
 * upwards, however its tokens and panels are taken together: the bits do not depend on it.
 *
 * Weights are asked for ahead. On a processor with AMX the first cache was the better place for up to two
 * groups, by up to 30 %, and the second cache for more, by up to 12 %: there X fills the first one. */
#ifndef BS_PLUGINS_CPU_ISA_AMX_PRODUCT_H
#define BS_PLUGINS_CPU_ISA_AMX_PRODUCT_H

#include "amx.h"

#define AMX_LINES 16 /* cache lines of a step of a panel: as many are asked for ahead in a step */
#if defined(__clang__)
#define AMX_UNROLL _Pragma("clang loop unroll(full)")
#else
#define AMX_UNROLL _Pragma("GCC unroll 16")
#endif

/* The tiles: 0 to 3 sums (2 * group + panel), 4 and 5 X of two groups, 6 and 7 W of two panels. */
static void amx_begin(void *room, int32_t rows, int32_t columns) {
  amx_shapes s = {.palette = 1};
  for (int t = 0; t < 8; t++) {
    s.rows[t] = (uint8_t)(t < 6 ? rows : (columns + 1) / 2);
    s.bytes[t] = (uint16_t)(t == 4 || t == 5 ? (columns + 1) / 2 * 4 : CPU_PANEL * 4);
  }
  amx_config(&s);
}

static void amx_end(void *room) {
  (void)room;
  amx_release();
}

/* Where a part of a block lies: one or two groups times one or two panels. */
typedef struct amx_part {
  const char *x, *w;
  float *c;
  int64_t c_group;   /* floats between groups */
  int64_t line;      /* bytes between rows of c */
  const char *ahead; /* data to ask for, AMX_LINES a step; NULL: none */
  int near;          /* to the first cache; else X fills that, and it is to the second one */
} amx_part;

/* `groups` and `panels` are constants wherever this is used. */
static inline __attribute__((always_inline)) void amx_sums(void *room, const int groups, const int panels,
                                                           const cpu_amx_block *b, amx_part p) {
  (void)room;
  float *second = p.c + p.c_group;
  if (b->add) {
    amx_load(0, p.c, p.line);
    if (panels > 1) amx_load(1, p.c + CPU_PANEL, p.line);
    if (groups > 1) amx_load(2, second, p.line);
    if (groups > 1 && panels > 1) amx_load(3, second + CPU_PANEL, p.line);
  } else {
    amx_zero(0);
    if (panels > 1) amx_zero(1);
    if (groups > 1) amx_zero(2);
    if (groups > 1 && panels > 1) amx_zero(3);
  }
  for (int64_t i = 0; i < b->steps; i++, p.x += b->x_step, p.w += CPU_AMX_STEP) {
    amx_load(4, p.x, b->x_row);
    if (groups > 1) amx_load(5, p.x + b->x_group, b->x_row);
    amx_load(6, p.w, 64);
    if (panels > 1) amx_load(7, p.w + b->w_panel, 64);
    if (p.ahead != NULL) {
      if (p.near) {
        AMX_UNROLL for (int n = 0; n < AMX_LINES; n++) __builtin_prefetch(p.ahead + 64 * n, 0, 3);
      } else {
        AMX_UNROLL for (int n = 0; n < AMX_LINES; n++) __builtin_prefetch(p.ahead + 64 * n, 0, 2);
      }
      p.ahead += CPU_AMX_STEP;
    }
    amx_dpbf16(0, 4, 6);
    if (panels > 1) amx_dpbf16(1, 4, 7);
    if (groups > 1) amx_dpbf16(2, 5, 6);
    if (groups > 1 && panels > 1) amx_dpbf16(3, 5, 7);
  }
  amx_store(0, p.c, p.line);
  if (panels > 1) amx_store(1, p.c + CPU_PANEL, p.line);
  if (groups > 1) amx_store(2, second, p.line);
  if (groups > 1 && panels > 1) amx_store(3, second + CPU_PANEL, p.line);
}

static void amx_any(void *room, int groups, int panels, const cpu_amx_block *b, amx_part p) {
  if (groups > 1 && panels > 1)
    amx_sums(room, 2, 2, b, p);
  else if (groups > 1)
    amx_sums(room, 2, 1, b, p);
  else if (panels > 1)
    amx_sums(room, 1, 2, b, p);
  else
    amx_sums(room, 1, 1, b, p);
}

/* The first two pairs of groups ask for one panel each, of two. */
static void amx_product(void *room, const cpu_amx_block *b) {
  const int32_t together = b->together == 2 ? 2 : 1;
  const int64_t c_group = b->c_group != 0 ? b->c_group : 16 * b->ldc;
  for (int32_t p = 0; p < b->panels; p += together) {
    const int32_t panels = b->panels - p < together ? b->panels - p : together;
    const char *w = (const char *)b->w + p * b->w_panel;
    for (int32_t g = 0; g < b->groups; g += 2) {
      const amx_part part = {
          .x = (const char *)b->x + g * b->x_group,
          .w = w,
          .c = b->c + g * c_group + p * CPU_PANEL,
          .c_group = c_group,
          .line = b->ldc * (int64_t)sizeof *b->c,
          .ahead = b->ahead != 0 && g < 2 * panels ? w + b->ahead + g / 2 * b->steps * CPU_AMX_STEP : NULL,
          .near = b->groups <= 2};
      amx_any(room, b->groups - g, panels, b, part);
    }
  }
}

#endif
