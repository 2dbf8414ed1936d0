/* SPDX-License-Identifier: MIT
 * problem.h - one problem of one kernel in one line of text, and its amounts of products, exponentials and
 * bytes. */
/* clang-format off */
/*   attention  b2h8[g2]s512[t640]d64[e64][:DTYPE][:MASK][:wN][:rN]
 *              b batch, h heads, g heads of K and V (left out: h), s queries, t keys (left out: s),
 *              d width of Q and K, e width of V (left out: d)
 *              MASK: full, causal (query s sees keys up to s), causal_br (the last query sees the last key)
 *              wN: only the N newest keys; rN: only keys up to N - 1 further on
 *   gradient   "sdpa_dx " and an attention
 *   product    "matmul n4096k4096b64[:DTYPE][:COLUMNS]", "matmul24 n4096k4096b64[:DTYPE]"
 *              COLUMNS: run, masked: half of the columns of the whole X, as the first of two ranks of row_parallel
 *              (the first half) or of blockshock (columns 0 and 1 of each four) has them
 *   backward   "matmul_dx ", "matmul_dw ", "matmul24_dx ", "matmul24_dw " and a product: dX = dY W, dW = dY^T X
 *
 * The names small, mission, long, gqa and decode each stand for one shape of attention (bs_kernel_shapes).
 * A number may end in k, M, Ki or Mi. DTYPE: f32 unless given; fp8 is f8e4m3. */
/* clang-format on */
#ifndef BS_LAB_KERNEL_PROBLEM_H
#define BS_LAB_KERNEL_PROBLEM_H
#include <stddef.h>

#include "blockshock/blockshock.h"
#include "blockshock/op.h"

enum bs_kernel_kind {
  BS_KERNEL_SDPA = 0,
  BS_KERNEL_MATMUL = 1,
  BS_KERNEL_MATMUL24 = 2,
  BS_KERNEL_SDPA_DX = 3,
  BS_KERNEL_MATMUL_DX = 4,
  BS_KERNEL_MATMUL_DW = 5,
  BS_KERNEL_MATMUL24_DX = 6,
  BS_KERNEL_MATMUL24_DW = 7,
  BS_KERNEL_KINDS_ = 8
};
/* The columns of X that a product takes. */
enum bs_kernel_columns { BS_COLUMNS_ALL = 0, BS_COLUMNS_RUN = 1, BS_COLUMNS_MASKED = 2, BS_COLUMNS_ = 3 };
enum { BS_KERNEL_TEXT = 160 }; /* of a canonical text, with its end */

typedef struct bs_kernel_problem {
  uint32_t kind;    /* enum bs_kernel_kind */
  uint32_t dtype;   /* enum bs_dtype, of the inputs */
  uint32_t causal;  /* enum bs_causal */
  uint32_t columns; /* enum bs_kernel_columns, of a product */
  int64_t B, H, G, S, T, D, E;
  int64_t left, right; /* windows; 0: none */
  int64_t N, K;        /* of a product; B tokens */
} bs_kernel_problem;

static inline int bs_kernel_is_product(const bs_kernel_problem *p) {
  return p->kind != BS_KERNEL_SDPA && p->kind != BS_KERNEL_SDPA_DX;
}
static inline int bs_kernel_is_24(const bs_kernel_problem *p) {
  return p->kind == BS_KERNEL_MATMUL24 || p->kind == BS_KERNEL_MATMUL24_DX ||
         p->kind == BS_KERNEL_MATMUL24_DW;
}
static inline int bs_kernel_is_dx(const bs_kernel_problem *p) {
  return p->kind == BS_KERNEL_MATMUL_DX || p->kind == BS_KERNEL_MATMUL24_DX;
}
/* Does the product pack its weight? All except dW do. */
static inline int bs_kernel_has_weight(const bs_kernel_problem *p) {
  return bs_kernel_is_product(p) && p->kind != BS_KERNEL_MATMUL_DW && p->kind != BS_KERNEL_MATMUL24_DW;
}
/* Columns of W: K, or half of them. */
static inline int64_t bs_kernel_w_cols(const bs_kernel_problem *p) {
  return p->columns != BS_COLUMNS_ALL ? p->K / 2 : p->K;
}

/* A name and its shape; the last has no name. */
typedef struct bs_kernel_shape {
  const char *name, *shape;
} bs_kernel_shape;
extern const bs_kernel_shape bs_kernel_shapes[];

/* BS_USAGE, with the nearest spelling: an unknown name, letter, dtype or mask; a size that is missing, zero,
 * given twice or too large; or heads that are not a multiple of those of K and V. */
int32_t bs_kernel_problem_parse(const char *text, bs_kernel_problem *out, bs_error *err);
/* The canonical text of a problem, which parse turns into the same problem. */
void bs_kernel_problem_text(const bs_kernel_problem *p, char *out, size_t size);
/* A variant of p to time next to it. word: a dtype; of a product also dense (instead of 2:4), gathered
 * (dense, with half of the columns), run or masked (dense, BS_COLUMNS_RUN and so on). BS_USAGE: p has no such
 * variant. */
int32_t bs_kernel_problem_vary(const bs_kernel_problem *p, const char *word, bs_kernel_problem *out,
                               bs_error *err);
/* Combines every word with every dtype and mask (NULL or none: f32, full); a word with a colon is already
 * complete. The caller frees *out. BS_USAGE: an invalid word, or no words. */
int32_t bs_kernel_problems_expand(const char *const *words, size_t n_words, const char *const *dtypes,
                                  size_t n_dtypes, const char *const *masks, size_t n_masks,
                                  bs_kernel_problem **out, size_t *out_n, bs_error *err);
const char *bs_kernel_problem_op(uint32_t kind); /* "attention", ... */
/* "full", "causal", "causal_br". */
const char *bs_kernel_mask_name(uint32_t causal);
/* The dtype of the outputs: that of the inputs; for fp8 bf16; for dW at least f32. */
uint32_t bs_kernel_y_dtype(const bs_kernel_problem *p);
/* Rows and columns of a product's output. */
void bs_kernel_y_size(const bs_kernel_problem *p, int64_t *out_rows, int64_t *out_cols);

/* The keys first <= t < end that query s sees. */
void bs_kernel_keys(const bs_kernel_problem *p, int64_t s, int64_t *out_first, int64_t *out_end);
/* Pairs of a query and a key that it sees, over all heads and batches; exact for masks and windows too. */
double bs_kernel_pairs(const bs_kernel_problem *p);
/* Floating-point operations of the products alone. A pair takes 2 (D + E), in the backward pass 2 (3 D + 2 E)
 * with the recomputed scores; matmul24 counts the kept weights only. */
double bs_kernel_flops(const bs_kernel_problem *p);
double bs_kernel_exps(const bs_kernel_problem *p); /* one of each pair; 0: a product */
double bs_kernel_bytes(
    const bs_kernel_problem *p); /* each input that counts read once, each output written once */
#endif
