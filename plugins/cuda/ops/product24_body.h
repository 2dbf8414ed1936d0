/* SPDX-License-Identifier: MIT
 * product24_body.h - the body of product24_f32, product24_f64 and product24_i64: product_body.h with a 2:4
 * weight, included after it. Four adjacent elements of a side are a group: two values and a code give four
 * numbers and mark the valid ones. Products of the others are not computed, so that 0 x Inf does not
 * arise. */
#ifndef BS_PLUGIN_CUDA_PRODUCT24_BODY_H
#define BS_PLUGIN_CUDA_PRODUCT24_BODY_H

typedef struct product24_panels {
  product_panels p;
  unsigned char keeps[PRODUCT_DEPTH][PRODUCT_TILE]; /* [r][j]: not 0 if the weight is kept */
} product24_panels;

typedef union product24_shared {
  product24_panels panels;
  product_shared p; /* its panels are those above, its sums follow them */
} product24_shared;

typedef struct product24_local {
  product_local p; /* p.b.q[0], q[1]: the values of a group */
  uint32_t code;   /* 0: no such group */
} product24_local;

/* The group that a thread loads: its row of the weight, and which of the row. */
CUDA_FN int64_t product24_group(const product24_args *a, const cuda_at *at, int64_t stage, int64_t *out_row) {
  const uint32_t along = a->form == PRODUCT24_ROWS;
  const product_place p = product_place_of(along, at->thread);
  const int64_t j = product_col(&a->p, at) + p.row, r = stage * PRODUCT_DEPTH + p.depth;
  *out_row = along ? j : r;
  return (along ? r : j) / PRODUCT_EACH;
}

CUDA_FN void product24_fetch(const product24_args *a, product24_local *l, const cuda_at *at, int64_t stage) {
  int64_t row;
  l->p.a = product_fetch_a(&a->p, at, stage);
  l->code = 0;
  if (a->form == PRODUCT24_OUT) {
    l->p.b = product_fetch_b(&a->p, at, stage);
    return;
  }
  const int64_t group = product24_group(a, at, stage, &row);
  l->p.b.q[0] = l->p.b.q[1] = l->p.b.q[2] = l->p.b.q[3] = 0;
  if (row >= a->p.b.at.rows || group >= a->groups) return;
  l->code = a->codes[row * a->groups + group];
  l->p.b.q[0] = (product_bits)product_load(&a->p.b.at, row, 2 * group);
  l->p.b.q[1] = (product_bits)product_load(&a->p.b.at, row, 2 * group + 1);
}

CUDA_FN void product24_start(const product24_args *a, product24_shared *s, product24_local *l,
                             const cuda_at *at) {
  (void)s;
  product_clear(&l->p);
  product24_fetch(a, l, at, 0);
}

/* Two values and their code as four numbers and four bytes of `keeps`. */
CUDA_FN product_quad product24_expand(const product24_local *l, uint32_t *out_keeps) {
  const uint32_t first = l->code & 3u, second = l->code >> 2 & 3u;
  product_quad out;
  *out_keeps = l->code == 0 ? 0 : 1u << 8 * first | 1u << 8 * second;
  CUDA_UNROLL
  for (uint32_t q = 0; q < PRODUCT_EACH; q++)
    out.q[q] = q == first ? l->p.b.q[0] : q == second ? l->p.b.q[1] : 0;
  return out;
}

CUDA_FN void product24_put(const product24_args *a, product24_shared *s, product24_local *l,
                           const cuda_at *at) {
  const uint32_t along = a->form == PRODUCT24_ROWS;
  uint32_t keeps;
  product_put_side(s->panels.p.a, a->p.a.along, at->thread, a->p.a.at.dtype, &l->p.a);
  if (a->form == PRODUCT24_OUT) {
    product_put_side(s->panels.p.b, a->p.b.along, at->thread, a->p.b.at.dtype, &l->p.b);
    return;
  }
  const product_quad quad = product24_expand(l, &keeps);
  const product_place p = product_place_of(along, at->thread);
  product_put_side(s->panels.p.b, along, at->thread, a->p.b.at.dtype, &quad);
  if (!along) {
    memcpy(__builtin_assume_aligned((void *)&s->panels.keeps[p.depth][p.row], 4), &keeps, 4);
    return;
  }
  CUDA_UNROLL
  for (int32_t q = 0; q < PRODUCT_EACH; q++)
    s->panels.keeps[p.depth + q][p.row] = (unsigned char)(keeps >> 8 * q);
}

/* Byte q: whether the weight of r and a thread's column q counts. */
CUDA_FN uint32_t product24_keeps(const unsigned char *row, uint32_t x) {
  uint32_t word;
  uint16_t low, high;
  if (sizeof(product_number) == 4) {
    memcpy(&word, __builtin_assume_aligned((const void *)(row + product_output(x, 0)), 4), 4);
    return word;
  }
  memcpy(&low, __builtin_assume_aligned((const void *)(row + product_output(x, 0)), 2), 2);
  memcpy(&high, __builtin_assume_aligned((const void *)(row + product_output(x, 2)), 2), 2);
  return (uint32_t)high << 16 | low;
}

CUDA_FN void product24_sum(const product24_panels *p, product_local *l, uint32_t thread) {
  PRODUCT_BY4
  for (int32_t r = 0; r < PRODUCT_DEPTH; r++) {
    const uint32_t keeps = product24_keeps(p->keeps[r], thread & 15u);
    product_number a[PRODUCT_EACH], b[PRODUCT_EACH];
    product_get4(p->p.a[r], thread >> 4, a);
    product_get4(p->p.b[r], thread & 15u, b);
    CUDA_UNROLL
    for (int32_t j = 0; j < PRODUCT_EACH; j++) {
      const int keep = (keeps >> 8 * j & 0xffu) != 0;
      CUDA_UNROLL
      for (int32_t i = 0; i < PRODUCT_EACH; i++)
        l->sums[i][j] = keep ? product_step(l->sums[i][j], a[i], b[j]) : l->sums[i][j];
    }
  }
}

CUDA_FN void product24_multiply(const product24_args *a, product24_shared *s, product24_local *l,
                                const cuda_at *at, int64_t stage) {
  if (stage + 1 < product_stages(&a->p)) product24_fetch(a, l, at, stage + 1);
  if (a->form == PRODUCT24_OUT) {
    product_sum(&s->panels.p, &l->p, at->thread);
  } else {
    product24_sum(&s->panels, &l->p, at->thread);
  }
}

CUDA_FN void product24_keep(const product24_args *a, product24_shared *s, product24_local *l,
                            const cuda_at *at) {
  product_keep(&a->p, &s->p, &l->p, at);
}

/* Writes the kept sums of a tile, two of four; where the weight has no column, dW is zero and a weight
 * stays. */
CUDA_FN void product24_pick(const product24_args *a, product24_shared *s, const cuda_at *at) {
  const int64_t row = product_row(&a->p, at), col = product_col(&a->p, at);
  enum { GROUPS = PRODUCT_TILE / PRODUCT_EACH };
  PRODUCT_ROLLED
  for (uint32_t n = at->thread; n < PRODUCT_TILE * GROUPS * 2; n += PRODUCT_THREADS) {
    const uint32_t half = n & 1u, local = n / 2 % GROUPS;
    const int64_t i = row + n / 2 / GROUPS, group = col / PRODUCT_EACH + local;
    if (i >= a->p.rows || group >= a->groups) continue;
    const uint32_t place = a->codes[i * a->groups + group] >> 2 * half & 3u;
    const int exists = group * PRODUCT_EACH + place < a->columns;
    if (!exists && a->p.adds != 0) continue;
    product_end(&a->p, i, 0, 2 * group + half,
                exists ? s->p.sums[n / 2 / GROUPS][local * PRODUCT_EACH + place] : 0);
  }
}

CUDA_FN void product24_finish(const product24_args *a, product24_shared *s, product24_local *l,
                              const cuda_at *at) {
  if (a->form == PRODUCT24_OUT) {
    product24_pick(a, s, at);
  } else {
    product_finish(&a->p, &s->p, &l->p, at);
  }
}

#if defined(__CUDACC__)
static __device__ __forceinline__ void product24_block(const product24_args *a) {
  __shared__ product24_shared shared;
  product24_local local;
  const cuda_at at = cuda_here();
  const int64_t stages = product_stages(&a->p);
  product24_start(a, &shared, &local, &at);
  PRODUCT_ROLLED
  for (int64_t stage = 0; stage < stages; stage++) {
    product24_put(a, &shared, &local, &at);
    __syncthreads();
    product24_multiply(a, &shared, &local, &at, stage);
    __syncthreads();
  }
  product24_keep(a, &shared, &local, &at);
  __syncthreads();
  product24_finish(a, &shared, &local, &at);
}
#endif
#endif
