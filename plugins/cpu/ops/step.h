/* SPDX-License-Identifier: MIT
 *
 * step.h - sgd_update and adamw_update: a pass over a packed weight, of all columns (step.c) or of two of
 * each four (step24.c). A panel's block is transposed into 16 rows of at most 256 weights. Each row is
 * updated from its rows of dW and of the optimiser's state. Then the block is transposed back and rounded
 * once: every matrix passes through the processor once. */
#ifndef BS_PLUGINS_CPU_OPS_STEP_H
#define BS_PLUGINS_CPU_OPS_STEP_H

#include "packed24.h"

#define CPU_STEP_STATES 2
#define CPU_STEP_HYPER 8

typedef struct cpu_step_plan cpu_step_plan;
/* n weights of a row: state[i] NULL where it is absent. */
typedef void (*cpu_step_row)(const cpu_step_plan *plan, float *w, const float *dw, float *const *state,
                             const float *hyper, int64_t n);

struct cpu_step_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  cpu_packed *w;
  uint32_t width;
  float *memory; /* of all members, while it runs */
  cpu_step_row row;
};

/* One run. */
typedef struct cpu_step_call {
  const cpu_step_plan *plan;
  const bs_tensor *dw;
  bs_tensor *state[CPU_STEP_STATES];
  float hyper[CPU_STEP_HYPER];
} cpu_step_call;

/* The scratch of a member: 16 rows, a block as f32, and one of 16 bits. */
#define CPU_STEP_LINES (CPU_PANEL * CPU_X_LD)
#define CPU_STEP_WIDE (CPU_K_BLOCK * CPU_PANEL)
#define CPU_STEP_EACH (CPU_STEP_LINES + CPU_STEP_WIDE + CPU_STEP_WIDE / 2)

/* Weights first.. of the rows of a panel, in lines, take their step. */
void cpu_step_rows(const cpu_step_call *call, int64_t panel, int64_t first, int64_t count, float *lines);
/* Updates at most CPU_K_BLOCK values of a panel from `first` on; memory: CPU_STEP_EACH floats. */
void cpu_step_block24(const cpu_step_call *call, int64_t panel, int64_t first, int64_t count, float *memory);

#endif
