/* SPDX-License-Identifier: MIT
 *
 * panels.c - see panels.h. */
#include "panels.h"

static const uint8_t *place(const cpu_lines *m, int64_t row, int64_t column) {
  return m->data + (row * m->row + column * m->column) * (int64_t)m->size;
}

/* Are rows f32 side by side, so that they can be read where they are? */
static int is_f32(const cpu_lines *m) {
  return m->type == 0 && m->column == 1;
}

void cpu_lines_load(const cpu_kernels *kernels, const cpu_lines *m, int64_t row, int64_t first, int64_t n,
                    int64_t wide, float *out) {
  if (m->column == 1)
    kernels->load[m->type](out, place(m, row, first), n);
  else
    for (int64_t i = 0; i < n; i++) kernels->load[m->type](out + i, place(m, row, first + i), 1);
  for (int64_t i = n; i < wide; i++) out[i] = 0.0f;
}

void cpu_lines_store(const cpu_kernels *kernels, const cpu_lines *m, int64_t row, int64_t first, int64_t n,
                     const float *in) {
  uint8_t *to = (uint8_t *)(uintptr_t)place(m, row, first);
  if (m->column == 1) {
    kernels->store[m->type](to, in, n);
    return;
  }
  for (int64_t i = 0; i < n; i++) kernels->store[m->type](to + i * m->column * (int64_t)m->size, in + i, 1);
}

void cpu_panels_copy(const cpu_kernels *kernels, const cpu_lines *m, int64_t from, int64_t depth,
                     int64_t first, int64_t columns, float *room, float *out) {
  const int64_t wide = cpu_up16(columns), ready = is_f32(m) ? columns / 16 * 16 : 0;
  for (int64_t k = 0; k < depth && ready > 0; k++)
    kernels->strips(out + k * 16, depth * 16, (const float *)(const void *)place(m, from + k, first), ready);
  for (int64_t k = 0; k < depth && ready < wide; k++) {
    cpu_lines_load(kernels, m, from + k, first + ready, columns - ready, wide - ready, room);
    for (int64_t n = ready; n < wide; n += 16)
      memcpy(out + n * depth + k * 16, room + n - ready, 16 * sizeof *room);
  }
}

void cpu_panels_turn(const cpu_kernels *kernels, const cpu_lines *m, int64_t from, int64_t depth,
                     int64_t first, int64_t columns, float *room, float *out) {
  const int64_t wide = cpu_up16(depth);
  for (int64_t n = 0; n < columns; n += 16) {
    float *panel = out + n * depth, last[16 * 16];
    if (is_f32(m) && n + 16 <= columns && wide == depth) {
      const float *rows = (const float *)(const void *)place(m, first + n, from);
      for (int64_t k = 0; k < depth; k += 16) kernels->transpose(panel + k * 16, 16, rows + k, m->row);
      continue;
    }
    for (int64_t j = 0; j < 16; j++) {
      if (n + j < columns)
        cpu_lines_load(kernels, m, first + n + j, from, depth, wide, room + j * wide);
      else
        memset(room + j * wide, 0, (size_t)wide * sizeof *room);
    }
    for (int64_t k = 0; k < depth; k += 16) {
      if (k + 16 <= depth) {
        kernels->transpose(panel + k * 16, 16, room + k, wide);
      } else {
        kernels->transpose(last, 16, room + k, wide);
        memcpy(panel + k * 16, last, (size_t)(depth - k) * 16 * sizeof *last);
      }
    }
  }
}

static void product_of_tiles(const cpu_product *p) {
  const int64_t row = p->x_ld * p->x_size;
  const cpu_amx_block block = {.x = p->x,
                               .x_row = row,
                               .x_step = CPU_AMX_COLUMNS * p->x_size,
                               .x_group = 16 * row,
                               .w = p->panels,
                               .w_panel = p->step,
                               .c = p->c,
                               .ldc = p->ldc,
                               .steps = cpu_up(p->depth, CPU_AMX_COLUMNS) / CPU_AMX_COLUMNS,
                               .groups = (int32_t)(cpu_up16(p->count) / 16),
                               .panels = (int32_t)(p->columns / 16),
                               .add = p->add,
                               .together = 2}; /* panels lie in a cache: the fewest loads */
  p->amx->product(p->room, &block);
}

void cpu_panels_product(const cpu_kernels *kernels, const cpu_product *p) {
  if (p->amx != NULL) {
    product_of_tiles(p);
    return;
  }
  const int64_t tokens = kernels->tokens, panels = p->columns / 16;
  const int32_t *beside = p->tile == kernels->dot ? kernels->panels_dot : kernels->panels;
  const int64_t most = p->count <= tokens ? beside[p->count] : kernels->panels_many;
  for (int64_t at = 0; at < panels;) {
    int64_t some = most;
    while (some > panels - at) some /= 2;
    for (int64_t r = 0; r < p->count; r += tokens) {
      const cpu_tile one = {.x = (const uint8_t *)p->x + r * CPU_X_LD * p->x_size,
                            .w = (const uint8_t *)p->panels + at * p->step,
                            .w_step = p->step,
                            .c = p->c + r * p->ldc + at * 16,
                            .ldc = p->ldc,
                            .k = p->depth,
                            .tokens = (int32_t)(p->count - r < tokens ? p->count - r : tokens),
                            .panels = (int32_t)some,
                            .add = p->add};
      p->tile(&one);
    }
    at += some;
  }
}

void cpu_panels_multiply(const cpu_kernels *kernels, const float *x, const float *panels, int64_t depth,
                         int64_t columns, float *c, int64_t ldc, int64_t count, int32_t add) {
  const cpu_product p = {.tile = kernels->tile[0],
                         .x = x,
                         .x_ld = CPU_X_LD,
                         .x_size = (int64_t)sizeof *x,
                         .panels = panels,
                         .step = depth * 16 * (int64_t)sizeof *panels,
                         .depth = depth,
                         .columns = columns,
                         .c = c,
                         .ldc = ldc,
                         .count = count,
                         .add = add};
  cpu_panels_product(kernels, &p);
}
