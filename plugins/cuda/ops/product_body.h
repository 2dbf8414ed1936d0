/* SPDX-License-Identifier: MIT
 * product_body.h - the body of product_f32, product_f64 and product_i64: include one of product_f32.h,
 * product_f64.h, product_i64.h before it. In steps (kernel.h): start, then for each 16 of r put and multiply,
 * then keep and finish.
 *
 * Elements beyond an operand's end are loaded as zeros of both sides: 0 x 0 added to a sum, which is never
 * -0, leaves its bits. The data of the next step are loaded into registers before this one is multiplied. */
#ifndef BS_PLUGIN_CUDA_PRODUCT_BODY_H
#define BS_PLUGIN_CUDA_PRODUCT_BODY_H
#include <string.h>

/* A row of a panel: 64 numbers and padding. So a warp that stores 16 rows of outputs by 2 of r uses each bank
 * once, and four adjacent numbers begin on 16 bytes. */
enum { PRODUCT_PITCH = PRODUCT_TILE + 4 };

typedef struct product_panels {
  product_number a[PRODUCT_DEPTH][PRODUCT_PITCH]; /* [r][i] */
  product_number b[PRODUCT_DEPTH][PRODUCT_PITCH]; /* [r][j] */
} product_panels;

typedef union product_shared {
  product_panels panels;
  product_number sums[PRODUCT_TILE][PRODUCT_TILE]; /* once they are done */
} product_shared;

typedef struct product_quad {
  product_bits q[PRODUCT_EACH];
} product_quad;

typedef struct product_local {
  product_number sums[PRODUCT_EACH][PRODUCT_EACH];
  product_quad a, b;
} product_local;

/* Four adjacent elements of a side and their place in a panel. Along r, a warp takes 16 rows by 8 of r, else
 * 64 rows by 2 of r. */
typedef struct product_place {
  int32_t row, depth;
} product_place;

CUDA_FN product_place product_place_of(uint32_t along, uint32_t thread) {
  product_place p;
  if (along != 0) {
    p.row = (int32_t)((thread & 15u) | (thread >> 5 & 3u) << 4);
    p.depth = (int32_t)((thread >> 4 & 1u) | thread >> 7 << 1) * PRODUCT_EACH;
  } else {
    p.row = (int32_t)(thread & 15u) * PRODUCT_EACH;
    p.depth = (int32_t)(thread >> 4);
  }
  return p;
}

/* Row or column q of a thread's four within the tile; x: 0..15. Of numbers of 8 bytes two pairs, so that
 * neighbouring threads read neighbouring 16 bytes. */
CUDA_FN int32_t product_output(uint32_t x, int32_t q) {
  if (sizeof(product_number) == 4) return (int32_t)x * PRODUCT_EACH + q;
  return (q >> 1) * (PRODUCT_TILE / 2) + (int32_t)x * 2 + (q & 1);
}

CUDA_FN uint32_t product_tiles(int64_t size) {
  return (uint32_t)((size + PRODUCT_TILE - 1) / PRODUCT_TILE);
}
CUDA_FN int64_t product_stages(const product_args *a) {
  return (a->depth + PRODUCT_DEPTH - 1) / PRODUCT_DEPTH;
}
/* The first row and column of a block's tile: rows first, so that adjacent blocks share B. */
CUDA_FN int64_t product_row(const product_args *a, const cuda_at *at) {
  return (int64_t)(at->block_x % product_tiles(a->rows)) * PRODUCT_TILE;
}
CUDA_FN int64_t product_col(const product_args *a, const cuda_at *at) {
  return (int64_t)(at->block_x / product_tiles(a->rows)) * PRODUCT_TILE;
}

CUDA_FN unsigned char *product_where(const cuda_view *v, int64_t r, int64_t c) {
  return (unsigned char *)v->data + (r * v->row + c * v->col) * (int64_t)v->size;
}
CUDA_FN uint64_t product_load(const cuda_view *v, int64_t r, int64_t c) {
  const cuda_raw raw = cuda_get(product_where(v, r, c), v->size, 1);
  return cuda_raw64(&raw, 0);
}
CUDA_FN void product_save(const cuda_view *v, int64_t r, int64_t c, uint64_t bits) {
  const cuda_raw raw = {{(uint32_t)bits, (uint32_t)(bits >> 32), 0, 0}};
  cuda_put(product_where(v, r, c), &raw, v->size, 1);
}

/* Loads four adjacent elements of `size` bytes each; the address is a multiple of 4 x size, of 16 at most. */
CUDA_FN product_quad product_load4(const unsigned char *p, uint32_t size) {
  product_quad out;
  if (PRODUCT_WIDEST == 8 && size == 8) {
    const cuda_raw low = cuda_get_bytes(p, 16), high = cuda_get_bytes(p + 16, 16);
    CUDA_UNROLL
    for (int q = 0; q < PRODUCT_EACH; q++)
      out.q[q] = (product_bits)(q < 2 ? cuda_raw64(&low, q) : cuda_raw64(&high, q));
    return out;
  }
  const cuda_raw raw = cuda_get(p, size, PRODUCT_EACH);
  CUDA_UNROLL
  for (int q = 0; q < PRODUCT_EACH; q++)
    out.q[q] = size == 1 ? cuda_raw8(&raw, q) : size == 2 ? cuda_raw16(&raw, q) : raw.word[q];
  return out;
}

/* A thread's four of a side: rows from `row`, r from `r`; `rows` and `depth` are the ends. list_row and
 * list_depth: the row and the column of the view for a row or an r; NULL: the same. */
CUDA_FN product_quad product_fetch(const product_side *s, int64_t row, int64_t r, int64_t rows, int64_t depth,
                                   const uint32_t *list_row, const uint32_t *list_depth) {
  product_quad out;
  const int64_t rows4 = s->along != 0 ? 1 : PRODUCT_EACH, depth4 = s->along != 0 ? PRODUCT_EACH : 1;
  if (s->wide != 0 && row + rows4 <= rows && r + depth4 <= depth)
    return product_load4(product_where(&s->at, row, r), s->at.size);
  CUDA_UNROLL
  for (int32_t q = 0; q < PRODUCT_EACH; q++) {
    const int64_t i = s->along != 0 ? row : row + q, k = s->along != 0 ? r + q : r;
    out.q[q] = 0;
    if (i >= rows || k >= depth) continue;
    out.q[q] = (product_bits)product_load(&s->at, list_row != 0 ? (int64_t)list_row[i] : i,
                                          list_depth != 0 ? (int64_t)list_depth[k] : k);
  }
  return out;
}

CUDA_FN product_quad product_fetch_a(const product_args *a, const cuda_at *at, int64_t stage) {
  const product_place p = product_place_of(a->a.along, at->thread);
  return product_fetch(&a->a, product_row(a, at) + p.row, stage * PRODUCT_DEPTH + p.depth, a->rows, a->depth,
                       0, a->picks == PRODUCT_PICKS_A_DEPTH ? a->list : 0);
}

CUDA_FN product_quad product_fetch_b(const product_args *a, const cuda_at *at, int64_t stage) {
  const product_place p = product_place_of(a->b.along, at->thread);
  return product_fetch(&a->b, product_col(a, at) + p.row, stage * PRODUCT_DEPTH + p.depth, a->cols, a->depth,
                       a->picks == PRODUCT_PICKS_B_ROWS ? a->list : 0, 0);
}

/* Four adjacent numbers in shared memory. */
CUDA_FN void product_put4(product_number *to, const product_number *v) {
  memcpy(__builtin_assume_aligned((void *)to, 16), v, sizeof(product_number) * PRODUCT_EACH);
}

CUDA_FN void product_put_side(product_number (*to)[PRODUCT_PITCH], uint32_t along, uint32_t thread,
                              uint32_t dtype, const product_quad *quad) {
  const product_place p = product_place_of(along, thread);
  product_number v[PRODUCT_EACH];
  product_widen4(dtype, quad->q, v);
  if (along == 0) {
    product_put4(&to[p.depth][p.row], v);
    return;
  }
  CUDA_UNROLL
  for (int32_t q = 0; q < PRODUCT_EACH; q++) to[p.depth + q][p.row] = v[q];
}

CUDA_FN void product_clear(product_local *l) {
  CUDA_UNROLL
  for (int32_t i = 0; i < PRODUCT_EACH; i++) CUDA_UNROLL
  for (int32_t j = 0; j < PRODUCT_EACH; j++) l->sums[i][j] = 0;
}

CUDA_FN void product_start(const product_args *a, product_shared *s, product_local *l, const cuda_at *at) {
  (void)s;
  product_clear(l);
  l->a = product_fetch_a(a, at, 0);
  l->b = product_fetch_b(a, at, 0);
}

CUDA_FN void product_put(const product_args *a, product_shared *s, product_local *l, const cuda_at *at) {
  product_put_side(s->panels.a, a->a.along, at->thread, a->a.at.dtype, &l->a);
  product_put_side(s->panels.b, a->b.along, at->thread, a->b.at.dtype, &l->b);
}

/* A thread's four numbers of a row of a panel. */
CUDA_FN void product_get4(const product_number *row, uint32_t x, product_number *out) {
  if (sizeof(product_number) == 4) {
    memcpy(out, __builtin_assume_aligned((const void *)(row + product_output(x, 0)), 16), 4 * sizeof *out);
  } else {
    memcpy(out, __builtin_assume_aligned((const void *)(row + product_output(x, 0)), 16), 2 * sizeof *out);
    memcpy(out + 2, __builtin_assume_aligned((const void *)(row + product_output(x, 2)), 16),
           2 * sizeof *out);
  }
}

CUDA_FN void product_sum(const product_panels *p, product_local *l, uint32_t thread) {
  PRODUCT_BY4
  for (int32_t r = 0; r < PRODUCT_DEPTH; r++) {
    product_number a[PRODUCT_EACH], b[PRODUCT_EACH];
    product_get4(p->a[r], thread >> 4, a);
    product_get4(p->b[r], thread & 15u, b);
    CUDA_UNROLL
    for (int32_t i = 0; i < PRODUCT_EACH; i++) CUDA_UNROLL
    for (int32_t j = 0; j < PRODUCT_EACH; j++) l->sums[i][j] = product_step(l->sums[i][j], a[i], b[j]);
  }
}

CUDA_FN void product_multiply(const product_args *a, product_shared *s, product_local *l, const cuda_at *at,
                              int64_t stage) {
  if (stage + 1 < product_stages(a)) {
    l->a = product_fetch_a(a, at, stage + 1);
    l->b = product_fetch_b(a, at, stage + 1);
  }
  product_sum(&s->panels, l, at->thread);
}

/* Writes sums to shared memory: a warp then finishes adjacent outputs. */
CUDA_FN void product_keep(const product_args *a, product_shared *s, product_local *l, const cuda_at *at) {
  (void)a;
  CUDA_UNROLL
  for (int32_t i = 0; i < PRODUCT_EACH; i++) CUDA_UNROLL
  for (int32_t j = 0; j < PRODUCT_EACH; j++)
    s->sums[product_output(at->thread >> 4, i)][product_output(at->thread & 15u, j)] = l->sums[i][j];
}

CUDA_FN product_number product_at(const cuda_view *v, int64_t r, int64_t c) {
  return product_widen(v->dtype, (product_bits)product_load(v, r, c));
}

/* Sum (i, j) becomes element (i, c) of C. */
CUDA_FN void product_end(const product_args *a, int64_t i, int64_t j, int64_t c, product_number sum) {
  uint64_t bits;
  if (a->adds != 0) {
    double w = cuda_f64_of_bits(a->c.dtype, product_load(&a->c, i, c));
    if (a->depth > 0) w += product_scaled(a->alpha != 0 ? *a->alpha : 1.0f, sum);
    if (a->residual.data != 0) w += cuda_f64_of_bits(a->residual.dtype, product_load(&a->residual, i, c));
    bits = cuda_bits_of_f64(a->c.dtype, w);
  } else {
    product_number v = a->scaled != 0 ? product_times(sum, a->scale) : sum;
    if (a->bias.data != 0) v = product_plus(v, product_at(&a->bias, 0, j));
    v = product_act(a->activation, v);
    if (a->residual.data != 0) v = product_plus(v, product_at(&a->residual, i, j));
    bits = product_narrow(a->c.dtype, v);
  }
  product_save(&a->c, i, c, bits);
}

CUDA_FN void product_finish(const product_args *a, product_shared *s, product_local *l, const cuda_at *at) {
  const int64_t row = product_row(a, at), col = product_col(a, at);
  (void)l;
  PRODUCT_ROLLED
  for (uint32_t n = at->thread; n < PRODUCT_TILE * PRODUCT_TILE; n += PRODUCT_THREADS) {
    const int64_t i = row + n / PRODUCT_TILE, j = col + n % PRODUCT_TILE;
    if (i >= a->rows || j >= a->cols) continue;
    product_end(a, i, j, a->picks == PRODUCT_PICKS_C_COLS ? (int64_t)a->list[j] : j,
                s->sums[n / PRODUCT_TILE][n % PRODUCT_TILE]);
  }
}

#if defined(__CUDACC__)
static __device__ __forceinline__ void product_block(const product_args *a) {
  __shared__ product_shared shared;
  product_local local;
  const cuda_at at = cuda_here();
  const int64_t stages = product_stages(a);
  product_start(a, &shared, &local, &at);
  PRODUCT_ROLLED
  for (int64_t stage = 0; stage < stages; stage++) {
    product_put(a, &shared, &local, &at);
    __syncthreads();
    product_multiply(a, &shared, &local, &at, stage);
    __syncthreads();
  }
  product_keep(a, &shared, &local, &at);
  __syncthreads();
  product_finish(a, &shared, &local, &at);
}
#endif
#endif
