/* SPDX-License-Identifier: MIT
 * attention.h - shared parts of attention: a plan, a call, and a member's scratch. */
#ifndef BS_PLUGINS_CPU_OPS_ATTENTION_H
#define BS_PLUGINS_CPU_OPS_ATTENTION_H
#include "panels.h"

enum { CPU_Q, CPU_K, CPU_V, CPU_MASK, CPU_LENGTHS, CPU_DESCALE, CPU_Y, CPU_LSE, CPU_ATTENTION_ARGS };

#define CPU_ATTEND_WIDTH 256 /* elements of a row of Q, K or V at most */
#define CPU_ATTEND_ROWS 192  /* queries of a block */
#define CPU_ATTEND_MOST 384  /* of a block at most */
#define CPU_ATTEND_LEAST 48  /* of a block that is cut so that every member has one */
#define CPU_ATTEND_CHUNK                                                             \
  48 /* queries whose scores are made and used before the next ones: they stay in L1 \
      */
#define CPU_ATTEND_CHUNK_AMX 32 /* by the tiles of AMX: two groups of 16, with two panels four sums */
#define CPU_ATTEND_LD_AMX                                                                      \
  288 /* bf16 between rows of queries and powers: 9 cache lines, so that the 16 rows of a tile \
         are whole lines of different cache sets */
#define CPU_ATTEND_KEYS 128 /* keys of a tile */
#define CPU_ATTEND_LEAST_KEYS 64
#define CPU_ATTEND_FEW 8     /* queries up to which keys are read in place */
#define CPU_ATTEND_SPLIT 256 /* keys that are worth another member */
#define CPU_ATTEND_KEPT \
  (1 << 20)                 /* bytes of panels of all keys of a group that a member keeps: they stay in L2 */
#define CPU_ATTEND_LANES 16 /* of the sum of a query's powers */
#define CPU_ATTEND_ALONE 65536.0 /* products up to which the team is not woken */
#define CPU_HALF_TYPES 3         /* f32, bf16, f16: those below it in cpu_wide_index */
#define CPU_BOOL 5               /* type of a mask, in addition to cpu_wide_index */

typedef struct cpu_attention {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  double scale;
  float softcap;
  uint32_t fast;               /* powers of least degree */
  uint32_t nan_gives_0;        /* attrs[3] */
  uint32_t pairs;              /* products of pairs of bf16 */
  const cpu_amx *amx;          /* which computes these; NULL: `dot` does */
  int64_t unit;                /* the depth of a product is rounded up to it, with zeros */
  int64_t chunk;               /* queries whose scores are made and used before the next ones */
  int64_t x_ld;                /* elements between rows of queries, and of powers of bf16 */
  uint32_t width;              /* members */
  int64_t causal, left, right; /* as attrs */
  int64_t D, E;
  int64_t room;              /* queries of a block that a member's scratch has room for */
  int64_t kept;              /* tiles of keys whose panels a member keeps: all of a group, or 0 */
  int64_t rows, keys, split; /* of a block, of a tile, parts of the keys; rows and split 0: by the call */
  int64_t told_rows, told_keys, told_split; /* for the query's own dims: reported by the plan */
  uint32_t told_threads;                    /* too */
  uint32_t tokenwise;                       /* f32, and whole keys: not by the queries or the members */
  uint32_t woken;                           /* threads were given: the team is woken for little work, too */
  uint64_t member_bytes;                    /* of scratch */
} cpu_attention;

/* A 4-D tensor: element strides of batch, head, row; columns are adjacent. data NULL: absent. */
typedef struct cpu_rows4 {
  const uint8_t *data;
  uint32_t type; /* cpu_wide_index, or CPU_BOOL */
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
  double scale;                  /* of a score, fp8's factors included */
  float size;                    /* its magnitude: queries have its sign */
  float by;                      /* of a finished score: powers are 2^(by score) */
  float out_scale;
  int finish; /* scores are scaled before the powers: softcap or a mask */
  int few;    /* all blocks read K and V in place, whatever their rows */
  int alone;  /* too little work to wake the team for */
  uint8_t *scratch;
} cpu_attend;

/* The tiles of keys whose panels a member has from an earlier block: of which group, from which key on. */
typedef struct cpu_kept {
  int64_t group, from, tiles;
} cpu_kept;

/* A block of queries of one group, and the member's scratch for it. */
typedef struct cpu_block {
  const cpu_attend *call;
  int64_t batch, group, first_row, count;
  int64_t first[CPU_ATTEND_MOST], end[CPU_ATTEND_MOST]; /* keys that each sees by its position */
  int64_t from, to;                                     /* of all of them */
  uint8_t *q;     /* [count][x_ld] of bf16 for products of pairs, else [count][CPU_X_LD] of f32 */
  float *s;       /* [chunk][CPU_X_LD] */
  uint16_t *p;    /* [chunk][x_ld], bf16: powers */
  uint8_t *k, *v; /* panels of a tile, or of all that are kept */
  cpu_kept *kept; /* the member's */
  float *sums;    /* [count][E, rounded up to 16] */
  float *most;    /* [count] */
  float *totals;  /* [count][CPU_ATTEND_LANES] */
  float *row;     /* 16 rows of Q, K, V or of the mask */
} cpu_block;

static inline cpu_rows4 cpu_rows4_of(const bs_tensor *t) {
  cpu_rows4 r = {.data = NULL};
  if (t == NULL) return r;
  r.data = t->data;
  r.type = t->dtype == BS_BOOL ? CPU_BOOL : (uint32_t)cpu_wide_index(t->dtype);
  r.size = BS_DTYPE_BYTES(t->dtype);
  for (uint32_t i = 0; i < 4; i++) r.strides[i] = t->dims[i] == 1 ? 0 : t->strides[i];
  return r;
}

/* Bytes of a panel of 16 columns, and of the panels of a tile of keys: of K and of V. */
static inline int64_t cpu_panel_bytes(const cpu_attention *plan, int64_t depth) {
  return cpu_up(depth, plan->unit) * 16 * (plan->pairs ? 2 : 4);
}
static inline int64_t cpu_k_bytes(const cpu_attention *plan) {
  return plan->keys / 16 * cpu_panel_bytes(plan, plan->D);
}
static inline int64_t cpu_v_bytes(const cpu_attention *plan) {
  return cpu_up16(plan->E) / 16 * cpu_panel_bytes(plan, plan->keys);
}

/* Element (batch, head, row) of a tensor. */
static inline const uint8_t *cpu_row_at(const cpu_rows4 *t, int64_t batch, int64_t head, int64_t row) {
  return t->data + (batch * t->strides[0] + head * t->strides[1] + row * t->strides[2]) * (int64_t)t->size;
}
static inline int64_t cpu_head_of(const cpu_block *b, int64_t i) {
  return b->group * b->call->repeat + (b->first_row + i) / b->call->S;
}
static inline int64_t cpu_query_of(const cpu_block *b, int64_t i) {
  return (b->first_row + i) % b->call->S;
}
/* Few queries are multiplied one by one, as f32. Products of f32 have the same bits for few and for many;
 * those of pairs do not, so the last block of many queries is not of few. */
static inline int cpu_block_few(const cpu_block *b) {
  return b->call->few;
}

/* attention_block.c: the keys from..to of a block, into sums, most and totals. */
void cpu_attend_keys(cpu_block *b, int64_t from, int64_t to);
/* Row i of the block in doubles, key by key: needed for NaN and infinities. out: E values. */
void cpu_attend_exact(const cpu_block *b, int64_t i, float *out, float *out_lse);
#endif
