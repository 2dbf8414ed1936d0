/* SPDX-License-Identifier: MIT
 *
 * step.h - what sgd_update.c and adamw_update.c share: the walk over a packed weight. A panel's block is
 * turned into 16 rows of at most 256 weights, each row takes its step beside its rows of dW and of what the
 * optimiser remembers, and the block is turned back and rounded once: every matrix goes through the processor
 * once. */
#ifndef BS_PLUGINS_CPU_OPS_STEP_H
#define BS_PLUGINS_CPU_OPS_STEP_H

#include "packed.h"

#define CPU_STEP_STATES 2
#define CPU_STEP_HYPER 8

typedef struct cpu_step_plan cpu_step_plan;
struct cpu_step_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  cpu_packed *w;
  uint32_t width;
  float *memory; /* of all members */
  /* n weights of a row: state[i] NULL where it is absent. */
  void (*row)(const cpu_step_plan *plan, float *w, const float *dw, float *const *state, const float *hyper,
              int64_t n);
};

/* Answers for dW (arg 0) and `states` matrices behind it. */
void cpu_step_supports(const cpu_state *state, const bs_op_query *query, uint32_t states,
                       bs_op_answer *answer);
int32_t cpu_step_prepare(const cpu_state *state, const bs_exec *exec, const bs_op_query *query,
                         uint32_t states, void *packed, void **out_plan, bs_error *err);
/* args: dW, the states, hyper of `count` floats. */
int32_t cpu_step_run(const cpu_step_plan *plan, bs_tensor *const *args, uint32_t states, uint32_t count,
                     bs_error *err);
void cpu_step_free(void *plan);

#endif
