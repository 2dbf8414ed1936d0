/* SPDX-License-Identifier: MIT
 *
 * map.h - the plan of a program, between map.c (reads queries, gives values their places), map_run.c (runs
 * it) and map_wide.c (steps of f64 and i64). */
#ifndef BS_PLUGINS_CPU_OPS_MAP_H
#define BS_PLUGINS_CPU_OPS_MAP_H

#include "../cpu.h"

#define CPU_MAP_CHUNK 512 /* elements that a program processes together, so that its values stay in L1 */
#define CPU_MAP_ARGS (BS_EXPR_MAX_IN + BS_EXPR_MAX_OUT)
#define CPU_MAP_VALUES (BS_EXPR_MAX_IN + BS_EXPR_MAX_CONST + BS_EXPR_MAX_STEPS)

/* Values are numbered as in expr.h. Each value has a slot, a chunk of a member's scratch, unless it is in an
 * input's or output's own memory. A step's slot is reused when its value is not needed any more. */
typedef struct cpu_map_plan {
  const bs_exec *exec;
  const cpu_state *state;
  const cpu_map_fn *steps_of; /* of f32, by op code; NULL: f64 and i64 */
  cpu_form_fn form;           /* for f32: the whole program, if all args are contiguous; NULL: none */
  uint32_t compute, size;     /* of a value: dtype, bytes */
  uint32_t n_in, n_const, n_steps, n_out;
  uint32_t places; /* 1: the program reads an index: dimensions must not be merged */
  uint32_t copies; /* 1: it is a copy without a conversion */
  uint32_t slots;
  uint64_t each; /* bytes of a member's scratch */
  uint64_t consts[BS_EXPR_MAX_CONST];
  bs_expr_step steps[BS_EXPR_MAX_STEPS];
  uint8_t outs[BS_EXPR_MAX_OUT];
  uint8_t slot[CPU_MAP_VALUES];
  /* Output i may be written by its step itself: no later step reads an input other than those of this
   * mask. */
  uint8_t direct[BS_EXPR_MAX_OUT];      /* 1: its value is a step's, and no other output's */
  uint32_t read_later[BS_EXPR_MAX_OUT]; /* inputs that later steps read */
} cpu_map_plan;

int32_t cpu_map_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err);

/* One step of f64 or i64 on n elements; TO and INDEX are handled elsewhere. */
void cpu_map_wide(const cpu_kernels *kernels, uint32_t compute, uint32_t op, void *out, const void *a,
                  const void *b, const void *c, int64_t n);

#endif
