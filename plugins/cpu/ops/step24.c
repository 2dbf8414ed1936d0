/* SPDX-License-Identifier: MIT
 *
 * step24.c - see step.h: the blocks of a weight of 2:4 values, unit by unit: 16 values of 16 outputs each,
 * padded with zeros, so that a block needs no separate f32 buffer. Positions do not change: a value beyond
 * the last column is zero again after the step, for any dW. */
#include "step.h"

static void clear_places(const cpu_step_plan *plan, int64_t panel, int64_t first, int64_t count,
                         float *lines) {
  const cpu_packed *w = plan->w;
  if (w->K % 4 == 0 || first + count < plan->w->length) return;
  for (int64_t lane = 0; lane < CPU_PANEL && panel * CPU_PANEL + lane < w->N; lane++)
    for (int64_t j = plan->w->length - 2; j < plan->w->length; j++)
      if (cpu_kept_column(w->codes, w->other, panel * CPU_PANEL + lane, j) >= w->K)
        lines[lane * CPU_X_LD + j - first] = 0.0f;
}

void cpu_step_block24(const cpu_step_call *c, int64_t panel, int64_t first, int64_t count, float *memory) {
  const cpu_kernels *kernels = c->plan->kernels;
  const cpu_packed *w = c->plan->w;
  const int64_t units = (count + CPU_UNIT_VALUES - 1) / CPU_UNIT_VALUES, unit = first / CPU_UNIT_VALUES;
  float *lines = memory;
  for (int64_t u = 0; u < units; u++) {
    float *wide = memory + CPU_STEP_LINES;
    if (w->dtype == BS_F32)
      wide = (float *)(void *)cpu_unit_at(w, panel, unit + u);
    else
      kernels->load[w->type](wide, cpu_unit_at(w, panel, unit + u), CPU_UNIT_VALUES * CPU_PANEL);
    kernels->transpose(lines + u * CPU_UNIT_VALUES, CPU_X_LD, wide, CPU_PANEL);
  }
  cpu_step_rows(c, panel, first, count, lines);
  clear_places(c->plan, panel, first, count, lines);
  for (int64_t u = 0; u < units; u++) {
    uint8_t *values = cpu_unit_at(w, panel, unit + u);
    float *wide = w->dtype == BS_F32 ? (float *)(void *)values : memory + CPU_STEP_LINES;
    kernels->transpose(wide, CPU_PANEL, lines + u * CPU_UNIT_VALUES, CPU_X_LD);
    if (w->dtype != BS_F32) kernels->store[w->type](values, wide, CPU_UNIT_VALUES * CPU_PANEL);
  }
}
