/* SPDX-License-Identifier: MIT
 * rows_body.h - the body of the kernels of rows.h: include rows_f32.h or rows_i32.h before it, and define
 * ROWS_MOST, the tokens it is made for (4, 16). In steps (kernel.h): add; then for each four tokens put,
 * fold, finish.
 *
 * W is read once, by loads that leave the first cache to X, the next piece before this one is multiplied:
 * four loads of 16 bytes a lane are on their way at any time. */
#ifndef BS_PLUGIN_CUDA_ROWS_BODY_H
#define BS_PLUGIN_CUDA_ROWS_BODY_H

enum {
  ROWS_PASS = ROWS_EACH * 4,           /* sums of a thread that are added at a time: four tokens' */
  ROWS_RUN = ROWS_THREADS / ROWS_PASS, /* threads whose sums one thread adds */
  ROWS_PITCH = ROWS_THREADS + ROWS_THREADS / ROWS_RUN /* runs begin at different banks */
};

typedef struct rows_shared {
  rows_number sums[ROWS_PASS][ROWS_PITCH];
  rows_number folded[ROWS_PASS][ROWS_PASS]; /* [sum][run] */
} rows_shared;

typedef struct rows_local {
  rows_number sums[ROWS_EACH][ROWS_MOST];
} rows_local;

CUDA_FN int64_t rows_first(const rows_args *a, uint32_t block, uint32_t group) {
  return ((int64_t)block * (ROWS_WARPS / a->splits) + group) * ROWS_EACH;
}

CUDA_FN cuda_raw rows_stream(const unsigned char *p) {
#if defined(__CUDACC__)
  cuda_raw raw;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(raw.word[0]), "=r"(raw.word[1]), "=r"(raw.word[2]), "=r"(raw.word[3])
      : "l"(p));
  return raw;
#else
  return cuda_get_bytes(p, 16);
#endif
}

/* Four rows of W; beyond the last row, the last one again: its sums are not stored. */
typedef struct rows_of_w {
  int64_t row[ROWS_EACH];
} rows_of_w;

CUDA_FN void rows_fetch(const rows_args *a, const rows_of_w *w, int64_t piece, cuda_raw *out) {
  CUDA_UNROLL
  for (int r = 0; r < ROWS_EACH; r++)
    out[r] = rows_stream(product_where(&a->p.b.at, w->row[r], 0) + 16 * piece);
}

/* Adds the elements of a piece one by one, if X is not aligned to 16 bytes or ends. */
CUDA_FN void rows_add_single(const rows_args *a, const rows_of_w *w, int64_t piece, rows_local *l,
                             const int tokens, const uint32_t dtype) {
  const int64_t begin = piece * rows_count(dtype);
  CUDA_ROLL
  for (int64_t k = begin; k < begin + rows_count(dtype) && k < a->p.depth; k++) {
    rows_number v[ROWS_EACH];
    CUDA_UNROLL
    for (int r = 0; r < ROWS_EACH; r++) v[r] = rows_load(&a->p.b.at, w->row[r], k);
    CUDA_UNROLL
    for (int t = 0; t < tokens; t++) {
      const rows_number x = rows_load(&a->p.a.at, t < a->p.rows ? t : a->p.rows - 1, k);
      CUDA_UNROLL
      for (int r = 0; r < ROWS_EACH; r++) l->sums[r][t] = rows_step(l->sums[r][t], x, v[r]);
    }
  }
}

/* `tokens` and `dtype` are constants. */
CUDA_FN void rows_add_as(const rows_args *a, rows_local *l, const cuda_at *at, const int tokens,
                         const uint32_t dtype) {
  const uint32_t warp = at->thread >> 5, lane = at->thread & 31u, step = 32 * a->splits;
  const int64_t first = rows_first(a, at->block_x, warp / a->splits);
  const int64_t whole = a->p.a.wide != 0 ? a->p.depth / rows_count(dtype) : 0;
  int64_t piece = (int64_t)(warp % a->splits) * 32 + lane;
  rows_of_w w;
  cuda_raw next[ROWS_EACH] = {{{0, 0, 0, 0}}, {{0, 0, 0, 0}}, {{0, 0, 0, 0}}, {{0, 0, 0, 0}}};
  CUDA_UNROLL
  for (int r = 0; r < ROWS_EACH; r++) w.row[r] = first + r < a->p.cols ? first + r : a->p.cols - 1;
  if (piece < whole) rows_fetch(a, &w, piece, next);
  PRODUCT_ROLLED
  for (; piece < whole; piece += step) {
    rows_piece now[ROWS_EACH];
    CUDA_UNROLL
    for (int r = 0; r < ROWS_EACH; r++) now[r] = rows_widen(dtype, &next[r]);
    if (piece + step < whole) rows_fetch(a, &w, piece + step, next);
    CUDA_UNROLL
    for (int t = 0; t < tokens; t++) {
      const cuda_raw raw =
          cuda_get_bytes(product_where(&a->p.a.at, t < a->p.rows ? t : a->p.rows - 1, 0) + 16 * piece, 16);
      const rows_piece x = rows_widen(dtype, &raw);
      CUDA_UNROLL
      for (int r = 0; r < ROWS_EACH; r++) l->sums[r][t] = rows_dot(dtype, &x, &now[r], l->sums[r][t]);
    }
  }
  PRODUCT_ROLLED
  for (; piece < a->pieces; piece += step) rows_add_single(a, &w, piece, l, tokens, dtype);
}

CUDA_FN void rows_add_of(const rows_args *a, rows_local *l, const cuda_at *at, const int tokens) {
#if defined(ROWS_BYTES)
  rows_add_as(a, l, at, tokens, BS_I8);
#else
  if (a->p.b.at.dtype == BS_BF16) {
    rows_add_as(a, l, at, tokens, BS_BF16);
  } else if (a->p.b.at.dtype == BS_F16) {
    rows_add_as(a, l, at, tokens, BS_F16);
  } else {
    rows_add_as(a, l, at, tokens, BS_F32);
  }
#endif
}

CUDA_FN void rows_add(const rows_args *a, rows_local *l, const cuda_at *at) {
  CUDA_UNROLL
  for (int i = 0; i < ROWS_EACH * ROWS_MOST; i++) l->sums[i / ROWS_MOST][i % ROWS_MOST] = 0;
  if (ROWS_MOST == ROWS_FEW) {
    if (a->p.rows <= 1) {
      rows_add_of(a, l, at, 1);
    } else if (a->p.rows <= 2) {
      rows_add_of(a, l, at, 2);
    } else {
      rows_add_of(a, l, at, ROWS_FEW);
    }
  } else if (a->p.rows <= ROWS_MOST / 2) {
    rows_add_of(a, l, at, ROWS_MOST / 2);
  } else {
    rows_add_of(a, l, at, ROWS_MOST);
  }
}

/* Tokens 4 pass .. 4 pass + 3; `pass` is a constant. */
CUDA_FN void rows_put(rows_shared *s, const rows_local *l, const cuda_at *at, const int pass) {
  CUDA_UNROLL
  for (int r = 0; r < ROWS_EACH; r++) CUDA_UNROLL
  for (int t = 0; t < 4; t++)
    s->sums[4 * r + t][at->thread + at->thread / ROWS_RUN] = l->sums[r][4 * pass + t];
}

CUDA_FN void rows_fold(rows_shared *s, const cuda_at *at) {
  const uint32_t sum = at->thread / ROWS_RUN, run = at->thread % ROWS_RUN;
  rows_number all = 0;
  CUDA_UNROLL
  for (int i = 0; i < ROWS_RUN; i++) all = rows_plus(all, s->sums[sum][run * (ROWS_RUN + 1) + i]);
  s->folded[sum][run] = all;
}

/* One thread makes an output from the runs of a group's threads. */
CUDA_FN void rows_finish(const rows_args *a, const rows_shared *s, const cuda_at *at, const int pass) {
  const uint32_t groups = ROWS_WARPS / a->splits, runs = ROWS_PASS / groups;
  if (at->thread >= groups * ROWS_PASS) return;
  const uint32_t r = at->thread % ROWS_EACH, group = at->thread / ROWS_EACH % groups;
  const uint32_t t = at->thread / (ROWS_EACH * groups);
  const int64_t token = 4 * pass + t, row = rows_first(a, at->block_x, group) + r;
  if (token >= a->p.rows || row >= a->p.cols) return;
  rows_number all = 0;
  PRODUCT_ROLLED
  for (uint32_t i = 0; i < runs; i++) all = rows_plus(all, s->folded[4 * r + t][group * runs + i]);
  product_end(&a->p, token, row, row, rows_sum(all));
}

#if defined(__CUDACC__)
static __device__ __forceinline__ void rows_block(const rows_args *a) {
  __shared__ rows_shared shared;
  rows_local local;
  const cuda_at at = cuda_here();
  rows_add(a, &local, &at);
  CUDA_UNROLL
  for (int pass = 0; pass < ROWS_MOST / 4; pass++) {
    if (4 * pass >= a->p.rows) break;
    if (pass > 0) __syncthreads(); /* folded has been read */
    rows_put(&shared, &local, &at, pass);
    __syncthreads();
    rows_fold(&shared, &at);
    __syncthreads();
    rows_finish(a, &shared, &at, pass);
  }
}
#endif
#endif
