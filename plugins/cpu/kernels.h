/* SPDX-License-Identifier: MIT
 *
 * kernels.h - the inner loops of the cpu plugin: one table per instruction set (isa/), chosen once at
 * activation. Results are the same bits on avx2 and avx512; portable differs by the rounding of fused
 * multiply-adds, avx512_bf16 by the order of a pair's products and by subnormal bf16 numbers, which count as
 * zero there; the tiles of amx by the order of their chains too. */
#ifndef BS_PLUGINS_CPU_KERNELS_H
#define BS_PLUGINS_CPU_KERNELS_H

#include <stdint.h>

/* For scores of this size or larger, in powers of 2, attention subtracts two scores first
 * (isa/attention.h). */
#define CPU_ATTEND_FAR 4096.0f

#define CPU_PANEL 16    /* outputs of a weight panel */
#define CPU_K_BLOCK 256 /* columns of a block: a panel of a block is 16 KiB of fp32, half of L1 */
#define CPU_X_LD                                                                          \
  272 /* floats between rows of a packed X block; not a power of two, so that rows do not \
         share cache sets */
#define CPU_MAX_TOKENS 12 /* tokens of a tile at most */
#define CPU_MAX_PANELS 8  /* panels of a tile at most */

/* A product of a few tokens with one or more neighbouring weight panels over one K block:
 *   c[t * ldc + 16 p + j] = (add ? c : 0) + sum_k x[t * CPU_X_LD + k] * w[p][k][j]
 * f32 and f16 panels lie column by column, [k][16]; bf16 panels by pairs of columns, [k/2][16][2], the last
 * pair filled up with zeros: the order of the processors' own bf16 instructions. */
typedef struct cpu_tile {
  const void *x; /* f32; bf16 for `dot` */
  const void *w;
  int64_t w_step; /* bytes between panels */
  float *c;
  int64_t ldc;
  int64_t k;
  int32_t tokens; /* 1 .. kernels->tokens */
  int32_t panels; /* 1, 2 or 4, at most the table's for `tokens` */
  int32_t add;
  int32_t ahead_lines; /* cache lines to prefetch at every fourth column */
  const void *ahead;   /* their address: weights of the next panels */
} cpu_tile;

/* The magnitudes of bf16 numbers, in 32 lanes, as words without the sign: the least but zero, less 1; the
 * largest. Both begin as those of no number: 0xffff and 0. */
typedef struct cpu_bf16_range {
  uint16_t least[32], most[32];
} cpu_bf16_range;

/* ---- bf16 by tiles (isa/amx_product.h) --------------------------------------------------------- */

#define CPU_AMX_COLUMNS 32 /* of a step */
#define CPU_AMX_STEP 1024  /* bytes of a step of a panel: 32 columns of 16 outputs, by pairs */

/* The product of groups of up to 16 tokens with neighbouring bf16 panels:
 *   c[t * ldc + 16 p + j] = (add ? c : 0) + sum_k x[t][k] * w[p][k][j]
 * x: bf16; w: as `dot` takes them. Every group has the rows that `begin` named, and c has room for all. */
typedef struct cpu_amx_block {
  const void *x;
  int64_t x_row;   /* bytes between tokens */
  int64_t x_step;  /* bytes between steps of 32 columns */
  int64_t x_group; /* bytes between groups */
  const void *w;
  int64_t w_panel; /* bytes between panels */
  float *c;
  int64_t ldc;
  int64_t steps; /* of as many columns as `begin` named */
  int32_t groups;
  int32_t panels;
  int32_t add;
  int32_t together; /* panels taken together: 1 or 2; 0: 1 */
  int64_t ahead;    /* bytes from the panels taken together to the data to prefetch meanwhile; 0: none */
  int64_t c_group;  /* floats between groups in c; 0: 16 ldc */
} cpu_amx_block;

/* Where the model keeps its tiles, from begin to end; the processor does without. */
typedef struct cpu_amx_room {
  _Alignas(64) uint8_t bytes[8256];
} cpu_amx_room;

/* The product of a few tokens with a panel of int16: c[t * ldc + j] = (add ? c : 0) + sum of the products of
 * column pairs, x[t * x_ld + 2 k + i] * w[(k * 16 + j) * 2 + i], modulo 2^32. */
typedef struct cpu_pairs {
  const int16_t *x;
  int64_t x_ld;
  const int16_t *w;
  int32_t *c;
  int64_t ldc;
  int64_t pairs;
  int32_t tokens; /* 1 .. kernels->pair_tokens */
  int32_t add;
} cpu_pairs;

/* ---- quantised weights (isa/quant_dot.h; ops/packed_q.h has the layout) ------------------------- */

#define CPU_QUANT_UNIT 16   /* columns: codes of a unit of a panel lie side by side */
#define CPU_QUANT_BLOCK 256 /* columns of a block */
#define CPU_QUANT_ROOM 5120 /* floats of a block as `wide` widens it */

/* Where the parts of a panel lie. A panel is one stream: blocks of CPU_QUANT_BLOCK columns, in a block the
 * arrays of its groups and spans, [..][16], then its codes. A row form (one scale a row) has its arrays once,
 * and one block of all columns. Codes are units of 16 columns, 32 bytes a bit: quads of four columns,
 * [16][4] bytes. 4 bits: quads 0 and 1 are the low and the high halves of 64 bytes, 2 and 3 those of the
 * next. 6 bits: so the low four bits, then 64 bytes with two more bits of each quad. Codes behind the last
 * column are 0. */
typedef struct cpu_quant_form {
  int32_t bits, zero, half; /* half: scales and lows are f16, else f32 */
  int32_t row;              /* a row form */
  int32_t zeros, lows, steps;
  int64_t rows, cols;
  int64_t group, span;                                                  /* columns; as bs_quant's */
  int64_t columns, block;                                               /* of a block: columns, bytes */
  int64_t at_lows, at_zeros, at_steps, at_low_steps, at_sums, at_codes; /* in a block */
  int64_t panel;                                                        /* bytes */
} cpu_quant_form;

/* The product of tokens with neighbouring panels, all columns, in the order of docs/ops.md.
 * X in bytes: a piece is the columns that share step and zero, a link those of one step in f32. */
typedef struct cpu_quant_tile {
  const cpu_quant_form *form;
  const uint8_t *w;
  const int8_t *x; /* zeros up to a multiple of 16 columns */
  int64_t x_ld;
  const int32_t *sums; /* of x, by piece */
  int64_t sums_ld;
  const float *scales; /* of x, by link */
  int64_t scales_ld;
  const float *floats; /* X as it is; for `wide` by blocks of CPU_QUANT_BLOCK columns, rows CPU_X_LD apart */
  int64_t floats_ld, floats_block; /* floats between rows; between blocks */
  const float *float_sums;         /* of it, by group; with lows */
  int64_t float_sums_ld;
  float *c;
  int64_t ldc;
  float *room; /* CPU_QUANT_ROOM floats, for `wide` */
  int64_t piece, link;
  int32_t tokens, panels;
  int32_t ahead; /* 1: of one token, codes are asked for 4 KiB ahead */
} cpu_quant_tile;

/* c[t * ldc + 16 p + j] = the sum of code x over `columns`, a multiple of 16, modulo 2^32. */
typedef struct cpu_quant_whole {
  const uint8_t *w; /* the codes */
  int64_t w_step;   /* bytes between panels */
  const int8_t *x;
  int64_t x_ld;
  int32_t *c;
  int64_t ldc;
  int64_t columns;
  int32_t tokens, panels, bits, ahead;
} cpu_quant_whole;

typedef struct cpu_quant_fns {
  const char *name;
  /* The sums of x by piece; zeros follow the columns, up to a multiple of 64 and 64 more. */
  void (*sums)(const int8_t *x, int64_t columns, int64_t piece, int32_t *out);
  void (*bytes)(const cpu_quant_tile *tile);
  int32_t few; /* tokens of X as it is up to which `floats` takes them, above it `wide` */
  void (*floats)(const cpu_quant_tile *tile);
  void (*wide)(const cpu_quant_tile *tile);
  void (*whole)(const cpu_quant_whole *tile);
  /* 16 sums of a row form and a link of all columns to f32: by the scales of w and x, then with lows. */
  void (*finish)(const cpu_quant_form *form, const uint8_t *panel, const int32_t *sums, int32_t x_sum,
                 float x_scale, float *c);
} cpu_quant_fns;

/* ---- AMX -------------------------------------------------------------------------------------- */

/* begin sets this thread's tiles: `rows` tokens of a group, 1 .. 16, and `columns` of a step, 1 .. 32 (an odd
 * number reads a last pair, whose second of x is zero). product computes with them, end gives them back. */
#define CPU_AMX_WHOLE 16

typedef struct cpu_amx {
  void (*begin)(void *room, int32_t rows, int32_t columns);
  void (*product)(void *room, const cpu_amx_block *block);
  void (*end)(void *room);
  void (*whole)(const cpu_quant_whole *tile); /* codes of 8 bits, CPU_AMX_WHOLE tokens and more */
} cpu_amx;

/* ---- 2:4 weights (isa/sparse.h) -----------------------------------------------------------------
 *
 * A unit is 32 columns of a panel. For each of its 16 outputs it has two values a group of four columns.
 * Value j of all outputs are adjacent, [16][16], in the weight's dtype. Each output has a word of codes, 2
 * bits a value: value j belongs to column j / 2 * 4 + (word >> 2 j & 3). A panel's units follow one another,
 * and so do its codes. */
#define CPU_UNIT_COLUMNS 32
#define CPU_UNIT_VALUES 16 /* of an output */
#define CPU_WIDE_TOKENS 64 /* tokens of a tile that has them in its lanes */
#define CPU_WIDE_ROW 256   /* bytes of a row of its X */
#define CPU_WIDE_COLUMNS                                                             \
  64 /* whose X then is 16 KiB, half of L1; sums of a block begin at zero everywhere \
      */

/* Outputs in the lanes, for few tokens: each picks its columns of X in a register. One block of 64 columns:
 * c[t * ldc + 16 p + lane] = (add ? c : 0) + sum over the block; of integers i32 sums. */
typedef struct cpu_narrow24 {
  const void *x; /* rows of the block's columns as f32, zeros beyond the last column; of narrow24_dot bf16 */
  int64_t x_ld;  /* of narrow24_dot always CPU_WIDE_COLUMNS */
  const void *w; /* the units of the panels, one after the other */
  const uint32_t *codes; /* as those */
  float *c;
  int64_t ldc;
  int32_t units;  /* of the block: 1 or 2 */
  int32_t tokens; /* 1 .. kernels->narrow_tokens (narrow_dot_tokens) */
  int32_t panels;
  int32_t type; /* cpu_type24 */
  int32_t add;
  uint32_t other; /* 1: codes are those of the other half */
} cpu_narrow24;

/* Tokens in the lanes: each weight is broadcast. c[lane * CPU_WIDE_TOKENS + t] = (add ? c : 0) + the sum over
 * the values i of the lane of w[i][lane] times token t of the row of X at byte offset at[lane][i]. */
typedef struct cpu_wide24 {
  const float *x;
  const float *w;     /* [count][16] */
  const uint16_t *at; /* [16][at_ld] */
  int64_t at_ld;
  float *c;
  int32_t count;  /* a multiple of 4 */
  int32_t tokens; /* 1 .. CPU_WIDE_TOKENS; rounded up to 16 */
  int32_t add;
  int32_t integers;    /* c is i32 */
  int32_t ahead_lines; /* of the data to prefetch meanwhile, from `ahead` on */
  const void *ahead;
} cpu_wide24;

/* The kept part of dW of one unit: c[i][lane] = (add ? c : 0) + sum_t dy[t][lane] * x[t * x_ld + column of
 * i]. */
typedef struct cpu_sums24 {
  const float *x;
  int64_t x_ld;
  const float *dy; /* [tokens][16] */
  const uint32_t *codes;
  float *c;
  int64_t tokens;
  int32_t add;
  uint32_t other;
} cpu_sums24;

/* dX of a unit of up to four panels, tokens in the lanes: c[k * CPU_WIDE_TOKENS + t] = (add ? c : 0) + sum
 * over the outputs n that keep column k, upwards, of its weight times x[n * CPU_WIDE_TOKENS + t]; of i8
 * weights i32 sums: the 64 products of bytes are exact in fp32. */
#define CPU_TURNED 64 /* outputs */
typedef struct cpu_turned24 {
  const float *x;        /* dY, [64][CPU_WIDE_TOKENS] */
  const void *w;         /* of the first panel */
  const uint32_t *codes; /* of it */
  int64_t step;          /* units between panels, of both */
  int64_t ahead;         /* bytes from w to the data to prefetch meanwhile; words from codes */
  int64_t ahead_codes;
  float *c;       /* [32][CPU_WIDE_TOKENS] */
  int32_t panels; /* 1 .. 4 */
  int32_t type;   /* cpu_type24 */
  int32_t tokens; /* 1 .. CPU_WIDE_TOKENS; rounded up to 16 */
  int32_t add;
  uint32_t other;
} cpu_turned24;

/* A unit of one panel as two dense panels, to[half * to_step + n * CPU_PANEL + k], zeros for dropped
 * weights. */
typedef struct cpu_spread24 {
  const void *w;
  const uint32_t *codes;
  int64_t ahead; /* as above */
  int64_t ahead_codes;
  float *to;
  int64_t to_step;
  int32_t type; /* cpu_type24 */
  uint32_t other;
} cpu_spread24;

/* ---- fp8 (isa/f8.h) ---------------------------------------------------------------------------- */

#define CPU_F8_ROWS 8  /* of w in a dot product */
#define CPU_F8_STEP 16 /* columns are taken in these */

/* The selection of a row's kept columns if they repeat every `period` columns; cpu_pick_make (ops/columns.c)
 * makes it. */
typedef struct cpu_pick {
  uint32_t group;      /* columns that one step reads: a multiple of the period; 0: no pattern kernel */
  uint32_t kept;       /* of a group */
  uint8_t index[16];   /* places of the kept columns in a group, ascending */
  uint8_t shuffle[32]; /* byte shuffle (2-byte elements) or eight 32-bit lanes (4 and 8 bytes) */
  uint8_t expand[32];  /* the inverse, for scatter: eight 32-bit lanes */
  uint8_t mask[32];    /* eight 32-bit lane masks of the kept places, for scatter */
} cpu_pick;

typedef void (*cpu_tile_fn)(const cpu_tile *tile);

/* One step of a program of `map` on n elements of its type: out from a, b and c. out may be an operand. */
typedef void (*cpu_map_fn)(void *out, const void *a, const void *b, const void *c, int64_t n);

/* Lines of a program with a name (enum bs_map_form): f32 side by side, n of them; arg i, inputs first, begins
 * at at[i] and its next line is step[i] elements on. An output may be an input. */
#define CPU_FORM_ARGS 6
typedef struct cpu_form {
  float *at[CPU_FORM_ARGS];
  int64_t step[CPU_FORM_ARGS];
  int64_t lines, n;
} cpu_form;
typedef void (*cpu_form_fn)(const cpu_form *form);

/* A row of f32 (isa/rows.h). largest passes over NaN; powers: e^(x - shift) and their sum, shift is the
 * largest; finish: (x - shift) scale gamma + beta. Outputs may be x. */
typedef struct cpu_rows_fns {
  float (*sum)(const float *x, int64_t n);
  float (*squares)(const float *x, float shift, int64_t n);
  float (*largest)(const float *x, int64_t n);
  float (*powers)(float *out, const float *x, float shift, int64_t n);
  void (*finish)(float *out, const float *x, float shift, float scale, const float *gamma, const float *beta,
                 int64_t n);
} cpu_rows_fns;

/* Scores of a few queries against rows that lie `ld` elements apart: s[i][k] = x[i] . row k, one chain of
 * multiply-adds upwards, as in a product of tiles. n: a multiple of 16. Writes up to a multiple of 16 keys.
 */
typedef struct cpu_dots {
  float *s;       /* [count][CPU_X_LD] */
  const float *x; /* [count][CPU_X_LD] */
  int64_t count;
  const void *rows;
  int64_t ld, keys, n;
} cpu_dots;

typedef struct cpu_kernels {
  const char *name; /* "portable", "avx2", "avx512", "avx512_bf16", "amx", "amx_model" */
  int32_t tokens;   /* tokens of the widest tile */
  /* Number of panels that a tile of so many tokens takes together, to have enough chains of sums to hide the
   * latency of a multiply-add: for f32, for dot, and for 16-bit panels that are widened in registers. */
  int32_t panels[CPU_MAX_TOKENS + 1];
  int32_t panels_dot[CPU_MAX_TOKENS + 1];
  int32_t panels_half[CPU_MAX_TOKENS + 1];
  /* In place of `panels` where two multiply-adds of 512 bits begin in a cycle: a load for each keeps only one
   * unit busy. */
  int32_t panels_two[CPU_MAX_TOKENS + 1];
  int32_t units;       /* for the widest multiply-add: 1 or 2 */
  int32_t panels_many; /* of a full tile whose panels are in the first cache: then loads are the limit */
  /* Index by cpu_type_index of the weight's dtype; x is f32. One chain of fp32 multiply-adds an output,
   * upwards in k in every tile, so that a token's result depends neither on the other tokens nor on the team.
   * NULL: the panel is widened first. */
  cpu_tile_fn tile[3];
  /* bf16 x and w by the processor's own instruction, two columns a step, sums in fp32. NULL: not available.
   * It adds the second of a pair first. So where there is a bf16_swap, panels of packed weights have the
   * second of each pair first, and X by bf16_swap too: one chain an output, upwards in k. Its bits are those
   * of `tile` where no product and no sum is subnormal or beyond the largest number. */
  cpu_tile_fn dot;
  /* Copies n bf16, the second of each pair first, for a last odd one a zero; extends *io. to NULL: extends
   * *io alone. */
  void (*bf16_swap)(uint16_t *to, const uint16_t *from, int64_t n, cpu_bf16_range *io);
  const cpu_amx *amx; /* bf16 by tiles; NULL: not available */
  /* k columns of a 16-bit panel to a panel of f32 ([0]: NULL); writes whole pairs. */
  void (*widen[3])(float *dst, const void *panel, int64_t k);
  /* n elements of f32, bf16, f16 (cpu_type_index), f8e4m3 or f8e5m2 (cpu_wide_index) to and from f32; nearest
   * even, NaN stays NaN, too large values become infinity, for f8e4m3 448. */
  void (*load[5])(float *dst, const void *src, int64_t n);
  void (*store[5])(void *dst, const float *src, int64_t n);
  /* n integers to and from f32 (cpu_whole_index): towards zero, not beyond the ends, NaN becomes 0. */
  void (*load_whole[3])(float *dst, const void *src, int64_t n);
  void (*store_whole[3])(void *dst, const float *src, int64_t n);
  /* n integers to i64, and the low bits of i64 to integers; sums and products modulo 2^64; out may be an
   * operand. */
  void (*i64_load[3])(int64_t *dst, const void *src, int64_t n);
  void (*i64_store[3])(void *dst, const int64_t *src, int64_t n);
  void (*i64_add)(int64_t *out, const int64_t *a, const int64_t *b, int64_t n);
  void (*i64_sub)(int64_t *out, const int64_t *a, const int64_t *b, int64_t n);
  void (*i64_mul)(int64_t *out, const int64_t *a, const int64_t *b, int64_t n);
  void (*f64_of_i32)(double *dst, const int32_t *src, int64_t n);
  void (*f64_of_f32)(double *dst, const float *src, int64_t n);
  void (*f32_of_f64)(float *dst, const double *src, int64_t n);
  void (*f64_add)(double *out, const double *a, const double *b, int64_t n);
  void (*f64_sub)(double *out, const double *a, const double *b, int64_t n);
  void (*f64_mul)(double *out, const double *a, const double *b, int64_t n);
  /* The smallest and the largest of *least, *most and n values; both NaN where a value is. */
  void (*ends)(const float *x, int64_t n, float *least, float *most);
  void (*add)(float *dst, const float *a, int64_t n);
  const cpu_rows_fns *rows;
  const cpu_map_fn *map;    /* steps of f32, by enum bs_expr_op; NULL for TO and INDEX */
  const cpu_form_fn *forms; /* whole programs of f32, by enum bs_map_form; NULL if the steps are used */
  /* Index by BS_ACT_..., in place; [0] is NULL. the gelus and silu within one unit in the last place. */
  void (*activate[5])(float *v, int64_t n);
  /* z becomes dy times the activation's slope at z; [0] is NULL. */
  void (*slope[4])(float *z, const float *dy, int64_t n);
  /* One step on n weights as f32; hyper as in the ops sgd_update and adamw_update, v NULL: none. */
  void (*sgd)(float *w, const float *dw, float *v, const float *hyper, int64_t n);
  void (*adamw)(float *w, const float *dw, float *m, float *v, const float *hyper, int64_t n);
  /* Bits of the largest |x|: NaN is above infinity, and all others are below. */
  int32_t (*largest)(const float *x, int64_t n);
  /* x / scale, not beyond the largest value there is, to the nearest, ties to even; index by cpu_quant_index.
   * And back to f32, without the scale ([0]: NULL). */
  void (*narrow[3])(void *q, const float *x, float scale, int64_t n);
  void (*widen8[3])(float *dst, const uint8_t *q, int64_t n);
  /* sums[r] += x . w[r], CPU_F8_ROWS rows of w at a time; n: a multiple of CPU_F8_STEP. */
  void (*dot_rows)(float *sums, const float *x, const float *w, int64_t ld, int64_t n);
  /* Attention (isa/attention.h). Turns n more scores of a query into powers 2^(by (s - *most)) in p, which
   * may be s; [1]: fast ones. *most is at most 8 / by below the largest score so far. totals: sixteen lanes
   * of their sum. Earlier sums must be multiplied by the result. v *= by; sums += rows of V by their powers.
   * n: multiples of 16. */
  float (*attend[2])(const float *s, void *p, int64_t n, float by, float *most, float *totals);
  /* Like attend, to bf16 for `dot` and `amx`; NULL: neither is available. */
  float (*attend_bf16[2])(const float *s, void *p, int64_t n, float by, float *most, float *totals);
  /* Panels of pairs for both. turn: of up to 16 rows of `depth` bf16, row_bytes apart, [depth / 2][16][2],
   * zeros beyond the rows and the depth. zip: row pair `first`, `second` (NULL: zeros) of `columns` bf16 into
   * panels of 16 columns that are `step` bytes apart. */
  void (*bf16_turn)(void *panel, const void *rows, int64_t row_bytes, int64_t count, int64_t depth);
  void (*bf16_zip)(void *panels, int64_t step, const void *first, const void *second, int64_t columns);
  void (*attend_scale)(float *v, float by, int64_t n);
  /* Copies n floats, a multiple of 16, to panels of 16 columns that are `step` floats apart. */
  void (*strips)(float *panels, int64_t step, const float *row, int64_t n);
  /* For a few queries, with keys that are not packed: f32, bf16, f16. sums += p[k] row k. ld: elements
   * between rows; n: a multiple of 16. */
  void (*attend_dots[3])(const cpu_dots *d);
  void (*attend_gather[3])(float *sums, const float *p, const void *rows, int64_t ld, int64_t keys,
                           int64_t n);
  /* Terms of int8: sum = q scale where `first`, else sum += q scale. */
  void (*dequantize)(float *sum, const int8_t *q, float scale, int64_t n, int first);
  /* v = sums row columns + base + bias, in that order; base and bias may be NULL, v may be base. */
  void (*scale_sums)(float *v, const int32_t *sums, float row, const float *columns, const float *base,
                     const float *bias, int64_t n);
  int32_t pair_tokens; /* tokens of the largest tile of int16 */
  void (*pairs)(const cpu_pairs *tile);
  /* Integers of 8 to 64 bits as int16 for `pairs` (isa/pairs.h): a row, n of them; and two rows (`second`
   * NULL: zeros) as panels of 16 columns that are `step` bytes apart, the last one filled up with zeros. All
   * values fit where the result, the bits that any of them has (of negative ones of -1 - v), is below 2^15.
   */
  uint32_t (*narrow_row)(int16_t *out, const void *row, uint32_t dtype, int64_t n);
  uint32_t (*pair_rows)(void *panels, int64_t step, const void *first, const void *second, uint32_t dtype,
                        int64_t n);
  /* 16 x 16 floats: dst[j * dst_ld + i] = src[i * src_ld + j]. */
  void (*transpose)(float *dst, int64_t dst_ld, const float *src, int64_t src_ld);
  /* 2:4 weights; type: cpu_type24. */
  int32_t narrow_tokens; /* tokens of the largest narrow tile */
  int32_t narrow_most;   /* tokens of a call up to which narrow tiles are the faster ones */
  void (*narrow24)(const cpu_narrow24 *tile);
  /* bf16 by the processor's own products of pairs, for any number of tokens; NULL: not available. The order
   * of the sums is that of the others. */
  int32_t narrow_dot_tokens;
  void (*narrow24_dot)(const cpu_narrow24 *tile);
  void (*wide24)(const cpu_wide24 *tile);
  void (*sums24)(const cpu_sums24 *sums);
  /* A unit's values as f32 (f32 too), and its places: at[lane][i] = (first + column of i) * CPU_WIDE_ROW.
   */
  void (*values24)(float *dst, const void *unit, int32_t type);
  void (*places24)(uint16_t *at, int64_t at_ld, const uint32_t *codes, uint32_t first, uint32_t other);
  int32_t spread_most; /* tokens of a call up to which a dense tile of spread units is the faster one */
  void (*spread24)(const cpu_spread24 *unit);
  void (*turned24)(const cpu_turned24 *tile);
  /* Pick whole groups of `size`-byte elements; may read only the groups' own bytes and write only the
   * kept ones. NULL: the generic loop serves. */
  void (*gather)(const cpu_pick *pick, uint32_t size, void *dst, const void *src, int64_t groups);
  void (*scatter)(const cpu_pick *pick, uint32_t size, void *dst, const void *src, int64_t groups);
  const cpu_quant_fns *quant; /* the same bits on all */
} cpu_kernels;

/* One source, isa/, compiled for each. */
extern const cpu_kernels cpu_kernels_portable;
extern const cpu_quant_fns cpu_quant_portable;
extern const cpu_amx cpu_amx_model;
float cpu_amx_model_attend(const float *s, void *p, int64_t n, float by, float *most, float *totals);
float cpu_amx_model_attend_fast(const float *s, void *p, int64_t n, float by, float *most, float *totals);
void cpu_amx_model_turn(void *panel, const void *rows, int64_t row_bytes, int64_t count, int64_t depth);
void cpu_amx_model_zip(void *panels, int64_t step, const void *first, const void *second, int64_t columns);
#ifdef BS_CPU_X86
extern const cpu_amx cpu_amx_tiles;
extern const cpu_kernels cpu_kernels_avx2;
extern const cpu_kernels cpu_kernels_avx512;
extern const cpu_quant_fns cpu_quant_avx2;
extern const cpu_quant_fns cpu_quant_avx512;
extern const cpu_quant_fns cpu_quant_avx512_vnni;
void cpu_avx512_vnni_pairs(const cpu_pairs *tile);
void cpu_avx512_bf16_dot(const cpu_tile *tile);
void cpu_avx512_bf16_widen(float *dst, const void *panel, int64_t k);
void cpu_avx512_bf16_swap(uint16_t *to, const uint16_t *from, int64_t n, cpu_bf16_range *io);
#define CPU_DOT24_TOKENS 16
void cpu_avx512_bf16_dot24(const cpu_narrow24 *tile);
float cpu_avx512_bf16_attend(const float *s, void *p, int64_t n, float by, float *most, float *totals);
float cpu_avx512_bf16_attend_fast(const float *s, void *p, int64_t n, float by, float *most, float *totals);
void cpu_avx512_bf16_turn(void *panel, const void *rows, int64_t row_bytes, int64_t count, int64_t depth);
void cpu_avx512_bf16_zip(void *panels, int64_t step, const void *first, const void *second, int64_t columns);
#endif

/* 0 i8, 1 f8e4m3, 2 f8e5m2, -1 otherwise; and the largest value of each. */
int cpu_quant_index(uint32_t dtype);
float cpu_quant_largest(uint32_t dtype);
/* 0 f32, 1 bf16, 2 f16, -1 otherwise: the index of load, store and tile. */
int cpu_type_index(uint32_t dtype);
/* The index of load and store: like cpu_type_index, with 3 for f8e4m3 and 4 for f8e5m2. */
int cpu_wide_index(uint32_t dtype);
/* 0 i8, 1 u8, 2 i32, -1 otherwise: the index of load_whole and store_whole. */
int cpu_whole_index(uint32_t dtype);
/* Like cpu_type_index, with 3 for i8. */
int cpu_type24(uint32_t dtype);

#endif
