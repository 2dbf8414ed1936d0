/* SPDX-License-Identifier: MIT
 *
 * amx_product.h - bf16 products by tiles (cpu_amx in kernels.h), for amx.c and amx_model.c. Two groups of 16
 * tokens times two panels have a tile of sums each: four loads for four products. Every output is one chain
 * over steps of 32 columns, upwards, however its tokens and panels are taken together: the bits do not depend
 * on it. */
#ifndef BS_PLUGINS_CPU_ISA_AMX_PRODUCT_H
#define BS_PLUGINS_CPU_ISA_AMX_PRODUCT_H

#include "amx.h"

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

/* Part of a block: group and panel of its first tile. `groups` and `panels`, 1 or 2, are constants. */
#define AMX_SOME(NAME, GROUPS, PANELS)                                                                    \
  static void NAME(void *room, const cpu_amx_block *b, int64_t group, int64_t panel, const char *ahead) { \
    const char *x = (const char *)b->x + group * b->x_group;                                              \
    const char *w = (const char *)b->w + panel * b->w_panel;                                              \
    (void)room;                                                                                           \
    float *c = b->c + group * 16 * b->ldc + panel * CPU_PANEL;                                            \
    const int64_t line = b->ldc * (int64_t)sizeof *c;                                                     \
    if (b->add) {                                                                                         \
      amx_load(0, c, line);                                                                               \
      if (PANELS > 1) amx_load(1, c + CPU_PANEL, line);                                                   \
      if (GROUPS > 1) amx_load(2, c + 16 * b->ldc, line);                                                 \
      if (GROUPS > 1 && PANELS > 1) amx_load(3, c + 16 * b->ldc + CPU_PANEL, line);                       \
    } else {                                                                                              \
      amx_zero(0);                                                                                        \
      if (PANELS > 1) amx_zero(1);                                                                        \
      if (GROUPS > 1) amx_zero(2);                                                                        \
      if (GROUPS > 1 && PANELS > 1) amx_zero(3);                                                          \
    }                                                                                                     \
    for (int64_t i = 0; i < b->steps; i++, x += b->x_step, w += CPU_AMX_STEP) {                           \
      amx_load(4, x, b->x_row);                                                                           \
      if (GROUPS > 1) amx_load(5, x + b->x_group, b->x_row);                                              \
      amx_load(6, w, 64);                                                                                 \
      if (PANELS > 1) amx_load(7, w + b->w_panel, 64);                                                    \
      for (int line_at = 0; ahead != NULL && line_at < 16 * PANELS; line_at++, ahead += 64)               \
        __builtin_prefetch(ahead, 0, 2);                                                                  \
      amx_dpbf16(0, 4, 6);                                                                                \
      if (PANELS > 1) amx_dpbf16(1, 4, 7);                                                                \
      if (GROUPS > 1) amx_dpbf16(2, 5, 6);                                                                \
      if (GROUPS > 1 && PANELS > 1) amx_dpbf16(3, 5, 7);                                                  \
    }                                                                                                     \
    amx_store(0, c, line);                                                                                \
    if (PANELS > 1) amx_store(1, c + CPU_PANEL, line);                                                    \
    if (GROUPS > 1) amx_store(2, c + 16 * b->ldc, line);                                                  \
    if (GROUPS > 1 && PANELS > 1) amx_store(3, c + 16 * b->ldc + CPU_PANEL, line);                        \
  }
AMX_SOME(amx_1x1, 1, 1)
AMX_SOME(amx_1x2, 1, 2)
AMX_SOME(amx_2x1, 2, 1)
AMX_SOME(amx_2x2, 2, 2)

static void amx_product(void *room, const cpu_amx_block *b) {
  static void (*const some[2][2])(void *, const cpu_amx_block *, int64_t, int64_t, const char *) = {
      {amx_1x1, amx_1x2}, {amx_2x1, amx_2x2}};
  const int64_t together = b->groups > 2 ? 2 : 1; /* panels */
  for (int64_t p = 0; p < b->panels; p += together) {
    const int64_t panels = b->panels - p < together ? b->panels - p : together;
    const char *ahead = b->ahead != 0 ? (const char *)b->w + p * b->w_panel + b->ahead : NULL;
    for (int64_t g = 0; g < b->groups; g += 2, ahead = NULL)
      some[b->groups - g > 1][panels - 1](room, b, g, p, ahead);
  }
}

#endif
