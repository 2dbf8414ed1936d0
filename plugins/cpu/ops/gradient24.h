/* SPDX-License-Identifier: MIT
 *
 * gradient24.h - shared part of matmul24_dw.c and matmul24_update.c: the sums over tokens of dW. */
#ifndef BS_PLUGINS_CPU_OPS_GRADIENT24_H
#define BS_PLUGINS_CPU_OPS_GRADIENT24_H

#include "gradient.h"
#include "turn24.h"

/* ---- sums over tokens ----------------------------------------------------------------------- */

/* The kept part of dY^T X, block by block: of some panels and eight units. `finish` takes the sums of a unit,
 * [16 values][16 outputs], once all tokens are in. */
typedef struct cpu_sums24_call {
  const cpu_grad_plan *plan;
  cpu_rows24 x, dy;
  int64_t tokens;
  void (*finish)(const struct cpu_sums24_call *call, int64_t panel, int64_t unit, float *sums);
  const bs_tensor *dw;
  float alpha;
} cpu_sums24_call;

/* Floats that a member works in. */
uint64_t cpu_sums24_floats(const bs_op_query *query, const cpu_grad *shape);
/* A call with the args X and dY. Each member of the team owns a range of panels. */
cpu_sums24_call cpu_sums24_of(const cpu_grad_plan *plan, bs_tensor *const *args);
int32_t cpu_sums24_go(cpu_grad_plan *plan, cpu_sums24_call *call, bs_error *err);

#endif
