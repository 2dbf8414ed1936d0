/* SPDX-License-Identifier: MIT
 *
 * attention.h - what the two files of attention share: a plan, a call, and a member's scratch. */
#ifndef BS_PLUGINS_CPU_OPS_ATTENTION_H
#define BS_PLUGINS_CPU_OPS_ATTENTION_H
#include "panels.h"

enum { CPU_Q, CPU_K, CPU_V, CPU_MASK, CPU_LENGTHS, CPU_DESCALE, CPU_Y, CPU_LSE, CPU_ATTENTION_ARGS };

#define CPU_ATTEND_ROWS 192  /* queries of a block: K and V are made panels once for each block */
#define CPU_ATTEND_LEAST 48  /* of a block that is cut so that every member has one */
#define CPU_ATTEND_KEYS 128  /* keys of a tile */
#define CPU_ATTEND_FEW 8     /* queries up to which keys are read as they lie */
#define CPU_ATTEND_SPLIT 256 /* keys that are worth another member */

typedef struct cpu_attention {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  float scale, softcap;
  int64_t causal, left, right; /* as attrs */
  int64_t D, E;
  uint64_t member_bytes; /* of scratch */
  uint32_t width;
  uint32_t reserved;
} cpu_attention;

/* A 4-D tensor: element strides of batch, head, row; columns are adjacent. data NULL: absent. */
typedef struct cpu_rows4 {
  const uint8_t *data;
  uint32_t type; /* cpu_type_index, or 3 for bool */
  uint32_t size;
  int64_t strides[4]; /* 0 where it has 1 */
} cpu_rows4;

typedef struct cpu_attend {
  const cpu_attention *plan;
  cpu_rows4 q, k, v, mask, y;
  const int32_t *lengths; /* NULL: all T */
  float *lse;
  int64_t lengths_step, lse_strides[3];
  int64_t B, H, G, S, T, repeat; /* repeat: heads of a group */
  int64_t rows, blocks, splits;  /* rows: queries of a group; blocks of them; parts of the keys */
  int64_t each;                  /* queries of a block */
  uint8_t *scratch;
  int alone; /* too little work to wake the team for */
} cpu_attend;

/* A block of queries of one group, and the member's scratch for it. */
typedef struct cpu_block {
  const cpu_attend *call;
  int64_t batch, group, first_row, count;
  int64_t first[CPU_ATTEND_ROWS], end[CPU_ATTEND_ROWS]; /* keys that each sees by its position */
  int64_t from, to;                                     /* of all of them */
  float *q, *s;                                         /* [count][CPU_X_LD] */
  float *k, *v;                                         /* of a tile */
  float *sums;                                          /* [count][E, rounded up to 16] */
  float *most, *total;                                  /* [count] */
  float *row;                                           /* one row of Q, K, V or of the mask */
} cpu_block;

/* Element (batch, head, row) of a tensor. */
static inline const uint8_t *cpu_row_at(const cpu_rows4 *t, int64_t batch, int64_t head, int64_t row) {
  return t->data + (batch * t->strides[0] + head * t->strides[1] + row * t->strides[2]) * (int64_t)t->size;
}

/* attention_block.c: the keys from..to of a block, into sums, most and total. */
void cpu_attend_keys(cpu_block *b, int64_t from, int64_t to);
/* Row i of the block in doubles, key by key: what NaN and infinities ask for. out: E values. */
void cpu_attend_exact(const cpu_block *b, int64_t i, float *out, float *out_lse);
#endif
