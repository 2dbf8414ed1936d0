/* SPDX-License-Identifier: MIT
 *
 * gradient.h - shared parts of matmul_dx.c, matmul_dw.c and matmul_update.c, and of the same ops of 2:4
 * weights: reading their queries, plans, and views of X and dY that are loaded as f32, as panels or
 * transposed. The dense three use the tiles of matmul (kernels.h); each file defines its tokens, outputs and
 * columns. */
#ifndef BS_PLUGINS_CPU_OPS_GRADIENT_H
#define BS_PLUGINS_CPU_OPS_GRADIENT_H

#include "../columns.h"
#include "packed24.h"

#define CPU_GRAD_TOKENS 128 /* tokens of a block of dW: then the transposed operand stays in L2 */
#define CPU_GRAD_LINES (CPU_PANEL * CPU_X_LD) /* floats that cpu_view_turn works in */

typedef struct cpu_grad {
  int64_t B, N, K;          /* K: columns of the partition */
  uint32_t x_type, dy_type; /* x: X or dX */
  uint32_t full;            /* X or dX has all columns */
} cpu_grad;

typedef struct cpu_grad_plan {
  const bs_exec *exec;
  cpu_state *state;
  const cpu_kernels *kernels;
  cpu_packed *w; /* NULL: of dW */
  cpu_grad shape;
  bs_partition *partition; /* own copy; NULL unless full, and of 2:4 weights */
  cpu_columns columns;
  int64_t begin;    /* of 2:4 weights: of the columns in X or dX */
  cpu_codes *codes; /* of 2:4 weights: the weight's; of dW a separate stream */
  uint32_t other;
  uint32_t width;
  uint64_t each; /* floats of a member's scratch */
  float *memory; /* of all members, while it runs */
} cpu_grad_plan;

/* One of the ops: its requirements on queries, and the needs of its plan. */
typedef struct cpu_grad_kind {
  uint32_t x, dy;          /* the args X (or dX) and dY; dW is arg 2 if there is no weight */
  int weight;              /* it has a packed weight */
  int of24, integers;      /* of 2:4 values; dY and the weight may be i8 */
  uint32_t bits;           /* bs_op_answer.bits of floats */
  size_t size;             /* of a plan: at least a cpu_grad_plan, which it begins with */
  const char *algo, *text; /* algo: in front of the name of the instruction set */
  uint64_t (*floats)(const bs_op_query *query, const cpu_grad *shape); /* that a member works in */
} cpu_grad_kind;

/* supports and prepare of bs_op_impl. */
int32_t cpu_grad_supports(const cpu_grad_kind *kind, const cpu_state *state, const bs_op_query *query,
                          bs_op_answer *answer);
int32_t cpu_grad_prepare(const cpu_grad_kind *kind, cpu_state *state, const bs_exec *exec,
                         const bs_op_query *query, void *packed, void **out_plan, bs_error *err);
void cpu_grad_plan_free(void *plan);
/* Run body on the team, or here when there are too few multiplications to wake it. */
int32_t cpu_grad_go(cpu_grad_plan *plan, int64_t tokens,
                    void (*body)(void *arg, uint32_t member, uint32_t width), void *arg, bs_error *err);
/* The number of members with scratch memory. */
static inline uint32_t cpu_grad_members(const cpu_grad_plan *plan, uint32_t width) {
  return width < plan->width ? width : plan->width;
}

/* Rows of X or dY. */
typedef struct cpu_view {
  const cpu_kernels *kernels;
  const void *data;
  int64_t ld;
  uint32_t type;
  const cpu_columns *columns; /* NULL: all in place */
} cpu_view;

/* Floats of scratch for the outputs of the two functions below, of at most CPU_K_BLOCK of `count` columns and
 * CPU_GRAD_TOKENS of B tokens. */
static inline int64_t cpu_block_columns(int64_t count) {
  return count < CPU_K_BLOCK ? (count + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL : CPU_K_BLOCK;
}

static inline int64_t cpu_turned_floats(int64_t count) {
  return cpu_block_columns(count) * CPU_X_LD;
}

static inline int64_t cpu_panels_floats(int64_t count, int64_t B) {
  return cpu_block_columns(count) * (B < CPU_GRAD_TOKENS ? B : CPU_GRAD_TOKENS);
}

cpu_view cpu_view_of(const cpu_grad_plan *plan, const bs_tensor *tensor, int picks);
/* Columns first .. first+count of a row as f32; count <= CPU_K_BLOCK. */
void cpu_view_load(const cpu_view *view, int64_t row, int64_t first, int64_t count, float *to);
/* to[c * CPU_X_LD + r] = scale * (row + r, first + c): count columns of `rows` rows, both <= CPU_K_BLOCK.
 * Filled up with zeros to multiples of 16. lines: CPU_GRAD_LINES floats. */
void cpu_view_turn(const cpu_view *view, int64_t row, int64_t rows, int64_t first, int64_t count, float scale,
                   float *lines, float *to);
/* Panels of 16 columns, each [rows][16], the last filled up with zeros. line: CPU_K_BLOCK + CPU_PANEL floats.
 */
void cpu_view_panels(const cpu_view *view, int64_t row, int64_t rows, int64_t first, int64_t count,
                     float *line, float *to);

#endif
