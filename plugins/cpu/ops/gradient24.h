/* SPDX-License-Identifier: MIT
 *
 * gradient24.h - what matmul24_dx.c, matmul24_dw.c and matmul24_update.c share: reading their queries and
 * plans (gradient24.c), and the sums over tokens of dW and the update. */
#ifndef BS_PLUGINS_CPU_OPS_GRADIENT24_H
#define BS_PLUGINS_CPU_OPS_GRADIENT24_H

#include "gradient.h"
#include "packed24.h"
#include "turn24.h"

typedef struct cpu_grad24_plan {
  const bs_exec *exec;
  cpu_state *state;
  const cpu_kernels *kernels;
  cpu_packed24 *w;  /* NULL: matmul24_dw */
  cpu_codes *codes; /* the weight's; of matmul24_dw a stream of its own */
  uint32_t other;
  cpu_grad shape;
  int64_t begin; /* of the columns in X or dX */
  uint32_t width;
  uint64_t each; /* floats of a member's scratch */
  float *memory; /* of all members, while it runs */
} cpu_grad24_plan;

/* Fill `out` from args x (X or dX) and dy, or answer NO with the reason and return 0. */
int cpu_grad24_read(const bs_op_query *query, uint32_t x, uint32_t dy, cpu_grad *out, bs_op_answer *answer);
/* "kept24-avx2", or NO when the query's limit is below the `each` floats that a member works in. */
void cpu_grad24_yes(const cpu_state *state, const bs_op_query *query, uint64_t each, const char *text,
                    bs_op_answer *answer);
int32_t cpu_grad24_plan_make(cpu_state *state, const bs_exec *exec, const bs_op_query *query,
                             const cpu_grad *shape, cpu_packed24 *packed, int needs_packed, uint64_t each,
                             void **out_plan, bs_error *err);
void cpu_grad24_plan_free(void *plan);
/* Run body on the team, or here when there are too few multiplications to wake it. */
int32_t cpu_grad24_go(cpu_grad24_plan *plan, int64_t tokens,
                      void (*body)(void *arg, uint32_t member, uint32_t width), void *arg, bs_error *err);

/* ---- sums over tokens ----------------------------------------------------------------------- */

/* The kept part of dY^T X, block by block: of some panels and eight units. `finish` takes the sums of a unit,
 * [16 values][16 outputs], once all tokens are in. */
typedef struct cpu_sums24_call {
  const cpu_grad24_plan *plan;
  cpu_rows24 x, dy;
  int64_t tokens;
  void (*finish)(const struct cpu_sums24_call *call, int64_t panel, int64_t unit, float *sums);
  const bs_tensor *dw;
  float alpha;
} cpu_sums24_call;

/* Floats that a member works in. */
uint64_t cpu_sums24_floats(const cpu_grad *shape);
/* A member's share: `arg` is a cpu_sums24_call. */
void cpu_sums24_share(void *arg, uint32_t member, uint32_t width);

#endif
