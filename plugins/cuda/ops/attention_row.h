/* SPDX-License-Identifier: MIT
 * attention_row.h - attention's arguments as its kernels get them, which keys a query sees, and the
 * computation of one query by one warp. The kernel attention_rows consists of it. The others use it for a
 * query whose result is NaN, because a key that is not seen must not affect the result, for any K and V.
 *   Y = softmax(softcap(scale Q K^T) + mask) V,  LSE = log of the sum of e^score */
#ifndef BS_PLUGIN_CUDA_ATTENTION_ROW_H
#define BS_PLUGIN_CUDA_ATTENTION_ROW_H
#include "warp.h"

#define ATTENTION_LIFT 8.0f
#define ATTENTION_NO_POWER (-1e30f) /* a score whose power is 0 */
#define ATTENTION_LOG2_E 1.4426950408889634f
#define ATTENTION_LN2 0.69314718055994531f

enum {
  ATTENTION_MOST = 256,     /* elements of a row of Q, K, V */
  ATTENTION_ROWS_WARPS = 4, /* of a block of attention_rows and attention_merge, a query each */
  ATTENTION_ROWS_THREADS = ATTENTION_ROWS_WARPS * CUDA_WARP,
  ATTENTION_CHUNK = 32,    /* keys at a time */
  ATTENTION_THREADS = 256, /* at most, of a block of attention_body.h */
  ATTENTION_SHARED = 98304 /* bytes of such a block, at most: every device since 8.0 has them */
};

/* attention_body.h explains the arguments `keys`, `stages`, `splits`, `fast`, `items` and `persistent`. */

/* [batch, head, row, element]; data NULL: absent. Dims of 1 have stride 0. */
typedef struct attention_view {
  void *data;
  int64_t strides[4]; /* in elements */
  uint32_t dtype, size;
} attention_view;

typedef struct attention_args {
  attention_view q, k, v, mask, y, lse;
  const int32_t *lengths; /* NULL: all of T */
  const float *descale;   /* of Q, K, V; NULL: 1 */
  float *partial;         /* of splits, see attention_body.h */
  int64_t lengths_step, descale_step;
  uint32_t B, H, repeat; /* heads of Q that share one of K */
  int32_t S, T, D, E;
  int32_t left, right; /* windows; 0: none */
  uint32_t causal;     /* enum bs_causal */
  float scale, softcap;
  uint32_t pieces; /* 1: four elements of a row of Q and of K can be read together */
  uint32_t keys, stages, splits;
  uint32_t fast;              /* 1: the processor's own 2^x */
  uint32_t items, persistent; /* persistent 1: the blocks take one item after the other */
  uint32_t nan_gives_0;       /* attrs[3]: the weights of a query whose scores have no sum are zeros */
} attention_args;

CUDA_FN const void *attention_at(const attention_view *v, uint32_t b, uint32_t h, int64_t row) {
  return (const char *)v->data +
         ((int64_t)b * v->strides[0] + (int64_t)h * v->strides[1] + row * v->strides[2]) * (int64_t)v->size;
}

/* Keys [first, end) by position, window and length; end may be below first. */
typedef struct attention_keys {
  int32_t first, end;
} attention_keys;

CUDA_FN int32_t attention_length(const attention_args *a, uint32_t b) {
  if (a->lengths == 0) return a->T;
  const int32_t n = a->lengths[(int64_t)b * a->lengths_step];
  return n < 0 ? 0 : n > a->T ? a->T : n;
}
CUDA_FN attention_keys attention_seen(const attention_args *a, int32_t length, int32_t s) {
  attention_keys seen = {0, length};
  const int64_t p = (int64_t)s + (a->causal == BS_CAUSAL_LOWER_RIGHT ? (int64_t)length - a->S : 0);
  int64_t end = length;
  if (a->left > 0 && a->left <= p)
    seen.first = p - a->left + 1 > length ? length : (int32_t)(p - a->left + 1);
  if (a->causal != BS_CAUSAL_NONE && p + 1 < end) end = p + 1;
  if (a->right > 0 && a->right < end - p) end = p + a->right;
  seen.end = end < 0 ? 0 : (int32_t)end;
  return seen;
}

/* The term that the mask adds to a score; -inf removes the key. */
CUDA_FN float attention_masked(const attention_args *a, uint32_t b, uint32_t h, int32_t s, int32_t key) {
  if (a->mask.data == 0) return 0.0f;
  const void *row = attention_at(&a->mask, b, h, s);
  const int64_t at = (int64_t)key * a->mask.strides[3];
  if (a->mask.dtype == BS_BOOL) return ((const unsigned char *)row)[at] != 0 ? 0.0f : -INFINITY;
  return cuda_load_f32(a->mask.dtype, row, at);
}

CUDA_FN float attention_factor(const attention_args *a, int which) {
  return a->descale != 0 ? a->descale[which * a->descale_step] : 1.0f;
}

CUDA_FN float attention_dot(const attention_args *a, const void *q, const void *k) {
  float part[4] = {0.0f, 0.0f, 0.0f, 0.0f}; /* short chains: they round less, and hide their latency */
  int32_t d = 0;
  if (a->pieces != 0) {
    CUDA_ROLL
    for (; d < a->D; d += 4) {
      float x[4], y[4];
      const cuda_raw left = cuda_get(cuda_at_index(a->q.dtype, q, d), a->q.size, 4);
      const cuda_raw right = cuda_get(cuda_at_index(a->k.dtype, k, d), a->k.size, 4);
      cuda_widen_f32(a->q.dtype, &left, x, 4);
      cuda_widen_f32(a->k.dtype, &right, y, 4);
      CUDA_UNROLL
      for (int i = 0; i < 4; i++) part[i] = cuda_fma_f32(x[i], y[i], part[i]);
    }
  }
  CUDA_ROLL
  for (; d < a->D; d++)
    part[0] = cuda_fma_f32(cuda_load_f32(a->q.dtype, q, d * a->q.strides[3]),
                           cuda_load_f32(a->k.dtype, k, d * a->k.strides[3]), part[0]);
  return (part[0] + part[1]) + (part[2] + part[3]);
}

/* The scores of ATTENTION_CHUNK keys from `key` on, one a lane; -inf: not seen. */
CUDA_FN void attention_scores(const attention_args *a, const cuda_at *at, uint32_t b, uint32_t h, int32_t s,
                              const attention_keys *seen, int32_t key, float scale, float *out) {
  const void *q = attention_at(&a->q, b, h, s);
  for (int l = 0; l < CUDA_LANES; l++) {
    const int32_t mine = key + (int32_t)CUDA_LANE(at, l);
    out[l] = -INFINITY;
    if (mine < seen->first || mine >= seen->end) continue;
    const float add = attention_masked(a, b, h, s, mine);
    if (add == -INFINITY) continue;
    float x = attention_dot(a, q, attention_at(&a->k, b, h / a->repeat, mine)) * scale;
    if (a->softcap > 0.0f) x = a->softcap * tanhf(x / a->softcap);
    out[l] = x + add;
  }
}

typedef struct attention_sums {
  float most, total[CUDA_LANES];
  float sums[ATTENTION_MOST / CUDA_WARP][CUDA_LANES]; /* element lane + 32 i */
} attention_sums;

/* A chunk's keys: e^(score - most), and their rows of V, which are added up by themselves first. */
CUDA_FN void attention_gather(const attention_args *a, const cuda_at *at, uint32_t b, uint32_t h, int32_t key,
                              const float *scores, attention_sums *of) {
  float top[CUDA_LANES], power[CUDA_LANES], chunk[ATTENTION_MOST / CUDA_WARP][CUDA_LANES];
  for (int l = 0; l < CUDA_LANES; l++) top[l] = scores[l];
  cuda_lanes_max(top, CUDA_WARP);
  const float most = fmaxf(of->most, top[0]), base = most == -INFINITY ? 0.0f : most;
  const float by = expf(of->most - base);
  for (int l = 0; l < CUDA_LANES; l++) {
    power[l] = expf(scores[l] - base);
    of->total[l] = cuda_fma_f32(of->total[l], by, power[l]);
    CUDA_UNROLL
    for (int i = 0; i < ATTENTION_MOST / CUDA_WARP; i++) chunk[i][l] = 0.0f;
  }
  of->most = most;
  CUDA_ROLL
  for (uint32_t j = 0; j < ATTENTION_CHUNK; j++) {
    const float p = cuda_broadcast(power, j);
    if (cuda_broadcast(scores, j) == -INFINITY) continue;
    const void *v = attention_at(&a->v, b, h / a->repeat, key + (int32_t)j);
    for (int l = 0; l < CUDA_LANES; l++) {
      CUDA_UNROLL
      for (int i = 0; i < ATTENTION_MOST / CUDA_WARP; i++) {
        const int32_t e = (int32_t)CUDA_LANE(at, l) + CUDA_WARP * i;
        if (e < a->E)
          chunk[i][l] = cuda_fma_f32(p, cuda_load_f32(a->v.dtype, v, e * a->v.strides[3]), chunk[i][l]);
      }
    }
  }
  for (int l = 0; l < CUDA_LANES; l++) {
    CUDA_UNROLL
    for (int i = 0; i < ATTENTION_MOST / CUDA_WARP; i++)
      of->sums[i][l] = cuda_fma_f32(of->sums[i][l], by, chunk[i][l]);
  }
}

CUDA_FN void attention_put_lse(const attention_args *a, uint32_t b, uint32_t h, int32_t s, float lse) {
  if (a->lse.data != 0) *(float *)(uintptr_t)attention_at(&a->lse, b, h, s) = lse;
}

/* A warp's step: query s of head h, key by key in their order, by chunks that begin at multiples of 32. A
 * second time by powers of zero, if the first one's have no sum and that is what the query asks. */
CUDA_FN void attention_row(const attention_args *a, const cuda_at *at, uint32_t b, uint32_t h, int32_t s) {
  const attention_keys seen = attention_seen(a, attention_length(a, b), s);
  const float scale = a->scale * attention_factor(a, 0) * attention_factor(a, 1),
              out = attention_factor(a, 2);
  attention_sums of;
  int zeros = 0, again;
  do {
    of.most = zeros ? 0.0f : -INFINITY;
    for (int l = 0; l < CUDA_LANES; l++) {
      of.total[l] = 0.0f;
      CUDA_UNROLL
      for (int i = 0; i < ATTENTION_MOST / CUDA_WARP; i++) of.sums[i][l] = 0.0f;
    }
    CUDA_ROLL
    for (int32_t key = seen.first / ATTENTION_CHUNK * ATTENTION_CHUNK; key < seen.end;
         key += ATTENTION_CHUNK) {
      float scores[CUDA_LANES];
      attention_scores(a, at, b, h, s, &seen, key, scale, scores);
      for (int l = 0; l < CUDA_LANES; l++)
        if (zeros && scores[l] != -INFINITY) scores[l] = ATTENTION_NO_POWER;
      attention_gather(a, at, b, h, key, scores, &of);
    }
    cuda_lanes_sum(of.total, CUDA_WARP);
    again = !zeros && a->nan_gives_0 != 0 && of.total[0] != of.total[0];
    zeros |= again;
  } while (again);
  /* A seen key has a power; that of the largest score is 1. */
  const int none = !zeros && of.total[0] == 0.0f;
  const float total = zeros ? 1.0f : of.total[0];
  void *y = (void *)(uintptr_t)attention_at(&a->y, b, h, s);
  for (int l = 0; l < CUDA_LANES; l++) {
    CUDA_UNROLL
    for (int i = 0; i < ATTENTION_MOST / CUDA_WARP; i++) {
      const int32_t e = (int32_t)CUDA_LANE(at, l) + CUDA_WARP * i;
      if (e < a->E)
        cuda_store_f32(a->y.dtype, y, e * a->y.strides[3], none ? 0.0f : of.sums[i][l] / total * out);
    }
    if (CUDA_LANE(at, l) == 0)
      attention_put_lse(a, b, h, s, none ? -INFINITY : zeros ? NAN : of.most + logf(total));
  }
}

/* The query of a warp in a grid of (ceil(S / ATTENTION_ROWS_WARPS), H, B). */
CUDA_FN void attention_row_here(const attention_args *a, const cuda_at *at) {
  const int64_t s = (int64_t)at->block_x * ATTENTION_ROWS_WARPS + at->thread / CUDA_WARP;
  if (s < a->S) attention_row(a, at, at->block_z, at->block_y, (int32_t)s);
}
#endif
