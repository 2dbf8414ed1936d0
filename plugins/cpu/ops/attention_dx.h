/* SPDX-License-Identifier: MIT
 * attention_dx.h - shared parts of attention's gradients. */
#ifndef BS_PLUGINS_CPU_OPS_ATTENTION_DX_H
#define BS_PLUGINS_CPU_OPS_ATTENTION_DX_H
#include "attention.h"

enum {
  DX_Q,
  DX_K,
  DX_V,
  DX_MASK,
  DX_LENGTHS,
  DX_DESCALE, /* always absent */
  DX_Y,
  DX_LSE,
  DX_DY,
  DX_DQ,
  DX_DK,
  DX_DV,
  DX_ARGS
};
/* Pieces of a member's scratch. */
enum {
  DX_LEFT,   /* a block's rows of Q or K */
  DX_RIGHT,  /* of dY or V */
  DX_SCORES, /* of a tile, then powers */
  DX_SLOPES, /* dY . V, then dS */
  DX_TURNED,
  DX_PLAIN,
  DX_TURNED_GRAD,
  DX_PLAIN_GRAD,
  DX_SUMS,      /* dQ or dK */
  DX_SUMS_GRAD, /* dV */
  DX_VECTORS,
  DX_ROW,
  DX_PIECES
};

typedef struct cpu_dx {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  double scale, softcap;
  int64_t causal, left, right; /* as attrs */
  int64_t D, E;
  uint64_t member_bytes; /* of scratch */
  uint32_t width;
  uint32_t told_threads; /* for the query's own dims: reported by the plan */
  int woken;             /* threads were given: the team is woken for little work, too */
} cpu_dx;

typedef struct dx_call {
  const cpu_dx *plan;
  cpu_rows4 t[DX_ARGS]; /* but lengths and LSE */
  const bs_tensor *lse;
  const int32_t *lengths; /* NULL: all T */
  int64_t lengths_step;
  int64_t B, H, G, S, T, S_blocks, T_blocks;
  int64_t items; /* blocks of all heads */
  int alone;     /* too little work to wake the team for */
  uint8_t *scratch;
} dx_call;

/* Rows first..first+count of the queries of a head, or of the keys of a group. */
typedef struct dx_block {
  const dx_call *call;
  int64_t batch, head, first, count;
  int64_t length; /* of the batch's keys */
  int keys;       /* 1: of keys */
  float *at[DX_PIECES];
  float *row;
  float lse[128], delta[128]; /* of the queries of a tile, for blocks of keys */
} dx_block;

/* Keys that query i sees by its position, its windows and the length. */
void cpu_dx_bounds(const dx_call *call, int64_t i, int64_t length, int64_t *out_first, int64_t *out_end);
/* The term of the mask; -INFINITY: not seen. */
float cpu_dx_mask(const dx_call *call, int64_t b, int64_t h, int64_t i, int64_t j);
float cpu_dx_lse(const dx_call *call, int64_t b, int64_t h, int64_t i);
/* attention_dx_exact.c: a row of dQ, or of dK and dV, pair by pair in doubles. */
void cpu_dx_exact(const dx_block *b, int64_t row, float *sums, float *grad);
#endif
