/* SPDX-License-Identifier: MIT
 *
 * matmul_q.h - what the files of matmul_q share: a plan, a call, and X of a chunk of tokens as the kernels
 * take it. */
#ifndef BS_PLUGINS_CPU_OPS_MATMUL_Q_H
#define BS_PLUGINS_CPU_OPS_MATMUL_Q_H

#include "packed_q.h"

enum { AS_IT_IS = 0, QUANTISED = 1, BYTES = 2 }; /* X */

/* Offsets in the scratch memory: X of all members first. */
typedef struct q_room {
  uint64_t x, sums, scales, all; /* bytes: where each begins, and the end */
  uint64_t wide, member;         /* of C and the epilogue, each member's own; in it a widened block */
} q_room;

typedef struct q_plan {
  const bs_exec *exec;
  const cpu_state *state;
  const cpu_quant_fns *fns;
  const cpu_packed_q *w;
  cpu_matmul shape;
  int kind;  /* of X */
  int whole; /* one link of all columns of a row form */
  int64_t x_group, link, links, piece, pieces;
  int64_t tokens, x_ld, wide, c_ld; /* of a chunk; wide: panels of C */
  q_room room;
  uint32_t width;
} q_plan;

typedef struct q_call {
  const q_plan *plan;
  const bs_tensor *x, *bias, *residual, *y;
  uint8_t *scratch;
  int64_t token, tokens; /* of the chunk */
  int wide;              /* X as it is, of many tokens */
  int64_t unit, parts;   /* panels of an item; parts of tokens */
} q_call;

/* Share of a member: tokens of the chunk as bytes with their sums and scales, or as f32. arg: a q_call. */
void cpu_q_lay(void *arg, uint32_t member, uint32_t width);

#endif
