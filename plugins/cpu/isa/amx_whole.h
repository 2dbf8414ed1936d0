/* SPDX-License-Identifier: MIT
 *
 * amx_whole.h - sums of codes of 8 bits by X in bytes by tiles (cpu_amx in kernels.h), for amx.c and
 * amx_model.c. The panels of packed_q.h are tiles as they lie: 64 columns of 16 outputs are 16 rows of quads.
 * Two groups of 16 tokens times two panels have a tile of sums each. The sums are exact, as those of
 * quant_dot.h. */
#ifndef BS_PLUGINS_CPU_ISA_AMX_WHOLE_H
#define BS_PLUGINS_CPU_ISA_AMX_WHOLE_H

#include <string.h>

#include "amx_product.h"

enum { WHOLE_ROWS = 16, WHOLE_COLUMNS = 64, WHOLE_STEP = 1024 /* bytes of a tile */ };

/* Two groups of tokens, from rows at[0] and at[1] of X on, with panels p and q. */
typedef struct amx_whole_part {
  int64_t at[2], p, q;
} amx_whole_part;

static inline void amx_whole_sums(void *room, const cpu_quant_whole *d, const amx_whole_part *part,
                                  int64_t columns, const uint8_t *const w[2], int64_t k) {
  (void)room;
  for (int64_t i = 0; i < columns; i += WHOLE_COLUMNS) {
    amx_load(4, d->x + part->at[0] * d->x_ld + k + i, d->x_ld);
    amx_load(5, d->x + part->at[1] * d->x_ld + k + i, d->x_ld);
    amx_load(6, w[0] + i * CPU_PANEL, 64);
    amx_load(7, w[1] + i * CPU_PANEL, 64);
    amx_dpi8u8(0, 4, 6);
    amx_dpi8u8(1, 4, 7);
    amx_dpi8u8(2, 5, 6);
    amx_dpi8u8(3, 5, 7);
  }
}

/* X has zeros after its columns. Where a tile would pass the end of a panel, it reads a copy of the codes
 * with zeros at the end. */
static void amx_whole_part_run(void *room, const cpu_quant_whole *d, const amx_whole_part *part) {
  const int64_t last = d->columns % WHOLE_COLUMNS, most = d->columns - last, line = d->ldc * 4;
  const uint8_t *const w[2] = {d->w + part->p * d->w_step, d->w + part->q * d->w_step};
  uint8_t ends[2][WHOLE_STEP];
  const uint8_t *const end[2] = {ends[0], ends[1]};
  int32_t *c[2] = {d->c + part->at[0] * d->ldc, d->c + part->at[1] * d->ldc};
  amx_zero(0);
  amx_zero(1);
  amx_zero(2);
  amx_zero(3);
  amx_whole_sums(room, d, part, most, w, 0);
  for (int i = 0; i < 2 && last > 0; i++) {
    memset(ends[i], 0, sizeof ends[i]);
    memcpy(ends[i], w[i] + most * CPU_PANEL, (size_t)(last * CPU_PANEL));
  }
  amx_whole_sums(room, d, part, last > 0 ? WHOLE_COLUMNS : 0, end, most);
  amx_store(0, c[0] + part->p * CPU_PANEL, line);
  amx_store(1, c[0] + part->q * CPU_PANEL, line);
  amx_store(2, c[1] + part->p * CPU_PANEL, line);
  amx_store(3, c[1] + part->q * CPU_PANEL, line);
}

/* At least 16 tokens: the last groups may take some of those before them again. */
static void amx_whole(const cpu_quant_whole *d) {
  cpu_amx_room own;
  void *room = &own;
  amx_shapes s = {.palette = 1};
  for (int t = 0; t < 8; t++) {
    s.rows[t] = WHOLE_ROWS;
    s.bytes[t] = 64;
  }
  amx_config(&s);
  const int64_t final = d->tokens - WHOLE_ROWS;
  for (int64_t p = 0; p < d->panels; p += 2)
    for (int64_t t = 0; t < d->tokens; t += 2 * WHOLE_ROWS) {
      const int64_t second = t + WHOLE_ROWS;
      const amx_whole_part part = {
          {t < final ? t : final, second < final ? second : final}, p, p + 1 < d->panels ? p + 1 : p};
      amx_whole_part_run(room, d, &part);
    }
  amx_release();
}

#endif
