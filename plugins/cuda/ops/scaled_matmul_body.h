/* SPDX-License-Identifier: MIT
 * scaled_matmul_body.h - a product of two fp8 matrices with a scale for each group of columns of a row:
 *   out[b,n] = act(sum over groups of (sum of x w) (x_scale w_scale) + base + bias)
 * A warp makes one output of up to four tokens: its lanes take 16 columns at a time, which lie in one group,
 * and one lane after the other is added. So a token's bits depend on no other token. In steps (kernel.h):
 * add, put, finish. Made for few tokens, where reading w once is all the time there is. */
#ifndef BS_PLUGIN_CUDA_SCALED_MATMUL_BODY_H
#define BS_PLUGIN_CUDA_SCALED_MATMUL_BODY_H
#include "activations.h"
#include "walk.h"

enum {
  CUDA_SCALED_TOKENS = 4,
  CUDA_SCALED_OUTPUTS = CUDA_BLOCK / 32, /* of a block */
  CUDA_SCALED_PIECE = 16,                /* columns */
  CUDA_SCALED_PITCH = 33                 /* lanes of a sum, at different banks */
};

typedef struct scaled_matmul_args {
  cuda_view x, x_scales, w, w_scales, bias, base, out; /* bias and base may be absent */
  cuda_divisor by_blocks;                              /* blocks of four tokens */
  cuda_divisor by_group;                               /* columns */
  int64_t pieces; /* whole pieces that one load can read, each in one group: from column 0 */
  uint32_t activation;
  uint32_t reserved;
} scaled_matmul_args;

typedef struct scaled_matmul_shared {
  float sums[CUDA_SCALED_OUTPUTS][CUDA_SCALED_TOKENS][CUDA_SCALED_PITCH];
} scaled_matmul_shared;

typedef struct scaled_matmul_local {
  float sums[CUDA_SCALED_TOKENS];
} scaled_matmul_local;

/* The work of a warp. Beyond the last output and the last token it repeats those: their sums are not
 * stored. */
typedef struct scaled_matmul_part {
  int64_t token, output; /* the first token; may be beyond the last output */
  int64_t n;             /* the output that is read */
} scaled_matmul_part;

CUDA_FN scaled_matmul_part scaled_matmul_here(const scaled_matmul_args *a, const cuda_at *at) {
  scaled_matmul_part p;
  const int64_t tile = cuda_divide(&a->by_blocks, at->block_x);
  p.token = tile * CUDA_SCALED_TOKENS;
  p.output = ((int64_t)at->block_x - tile * a->by_blocks.by) * CUDA_SCALED_OUTPUTS + (at->thread >> 5);
  p.n = p.output < a->out.cols ? p.output : a->out.cols - 1;
  return p;
}
CUDA_FN int64_t scaled_matmul_token(const scaled_matmul_args *a, const scaled_matmul_part *p, int t) {
  return p->token + t < a->out.rows ? p->token + t : a->out.rows - 1;
}

/* Values 2 i and 2 i + 1 of a piece. Processors with fp8 have an exact conversion of pairs to f16. */
CUDA_FN void scaled_matmul_pair(uint32_t dtype, const cuda_raw *raw, const int i, float *v) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  const unsigned short two = (unsigned short)cuda_raw16(raw, i);
  uint32_t half;
  if (dtype == BS_F8E4M3)
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(half) : "h"(two));
  else
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(half) : "h"(two));
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
      : "=f"(v[0]), "=f"(v[1])
      : "r"(half));
#else
  const uint32_t low = cuda_raw8(raw, 2 * i), high = cuda_raw8(raw, 2 * i + 1);
  v[0] = dtype == BS_F8E4M3 ? cuda_f32_of_f8e4m3(low) : cuda_f32_of_f8e5m2(low);
  v[1] = dtype == BS_F8E4M3 ? cuda_f32_of_f8e4m3(high) : cuda_f32_of_f8e5m2(high);
#endif
}

CUDA_FN float scaled_matmul_scale(const cuda_view *scales, int64_t row, int64_t group) {
  return *(const float *)(const void *)cuda_element(scales, row, group);
}

/* Loads the next piece of w while one is multiplied. */
CUDA_FN void scaled_matmul_pieces(const scaled_matmul_args *a, scaled_matmul_local *l,
                                  const scaled_matmul_part *p, uint32_t lane) {
  cuda_raw next = {{0, 0, 0, 0}};
  if (lane < a->pieces)
    next = cuda_get_bytes(cuda_element(&a->w, p->n, (int64_t)lane * CUDA_SCALED_PIECE), CUDA_SCALED_PIECE);
  CUDA_ROLL
  for (int64_t piece = lane; piece < a->pieces; piece += 32) {
    const int64_t k = piece * CUDA_SCALED_PIECE, group = cuda_divide(&a->by_group, k);
    const cuda_raw of_w = next;
    if (piece + 32 < a->pieces)
      next = cuda_get_bytes(cuda_element(&a->w, p->n, k + 32 * CUDA_SCALED_PIECE), CUDA_SCALED_PIECE);
    const float w_scale = scaled_matmul_scale(&a->w_scales, p->n, group);
    float w[CUDA_SCALED_PIECE];
    CUDA_UNROLL
    for (int i = 0; i < CUDA_SCALED_PIECE / 2; i++) scaled_matmul_pair(a->w.dtype, &of_w, i, &w[2 * i]);
    CUDA_UNROLL
    for (int t = 0; t < CUDA_SCALED_TOKENS; t++) {
      if (p->token + t >= a->out.rows) break;
      const int64_t b = p->token + t;
      const cuda_raw of_x = cuda_get_bytes(cuda_element(&a->x, b, k), CUDA_SCALED_PIECE);
      float sum = 0.0f, x[2];
      CUDA_UNROLL
      for (int i = 0; i < CUDA_SCALED_PIECE / 2; i++) {
        scaled_matmul_pair(a->x.dtype, &of_x, i, x);
        sum = cuda_fma_f32(x[0], w[2 * i], sum);
        sum = cuda_fma_f32(x[1], w[2 * i + 1], sum);
      }
      l->sums[t] += sum * (scaled_matmul_scale(&a->x_scales, b, group) * w_scale);
    }
  }
}

/* Processes the columns after the pieces, or all columns, one by one. */
CUDA_FN void scaled_matmul_singles(const scaled_matmul_args *a, scaled_matmul_local *l,
                                   const scaled_matmul_part *p, uint32_t lane) {
  CUDA_ROLL
  for (int64_t k = a->pieces * CUDA_SCALED_PIECE + lane; k < a->x.cols; k += 32) {
    const int64_t group = cuda_divide(&a->by_group, k);
    const float w = cuda_load_f32(a->w.dtype, cuda_element(&a->w, p->n, k), 0);
    const float w_scale = scaled_matmul_scale(&a->w_scales, p->n, group);
    CUDA_UNROLL
    for (int t = 0; t < CUDA_SCALED_TOKENS; t++) {
      const int64_t b = scaled_matmul_token(a, p, t);
      const float x = cuda_load_f32(a->x.dtype, cuda_element(&a->x, b, k), 0);
      l->sums[t] += x * w * (scaled_matmul_scale(&a->x_scales, b, group) * w_scale);
    }
  }
}

CUDA_FN void scaled_matmul_add(const scaled_matmul_args *a, scaled_matmul_local *l, const cuda_at *at) {
  const scaled_matmul_part p = scaled_matmul_here(a, at);
  const uint32_t lane = at->thread & 31u;
  CUDA_UNROLL
  for (int t = 0; t < CUDA_SCALED_TOKENS; t++) l->sums[t] = 0.0f;
  scaled_matmul_pieces(a, l, &p, lane);
  scaled_matmul_singles(a, l, &p, lane);
}

CUDA_FN void scaled_matmul_put(scaled_matmul_shared *s, const scaled_matmul_local *l, const cuda_at *at) {
  CUDA_UNROLL
  for (int t = 0; t < CUDA_SCALED_TOKENS; t++) s->sums[at->thread >> 5][t][at->thread & 31u] = l->sums[t];
}

/* Lane t of a warp finishes token t. base may be out: no other thread reads what it writes. */
CUDA_FN void scaled_matmul_finish(const scaled_matmul_args *a, const scaled_matmul_shared *s,
                                  const cuda_at *at) {
  const scaled_matmul_part p = scaled_matmul_here(a, at);
  const uint32_t t = at->thread & 31u;
  const int64_t b = p.token + t;
  if (t >= CUDA_SCALED_TOKENS || b >= a->out.rows || p.output >= a->out.cols) return;
  float v = 0.0f;
  CUDA_ROLL
  for (int i = 0; i < 32; i++) v += s->sums[at->thread >> 5][t][i];
  if (a->base.data != 0) v += *(const float *)(const void *)cuda_element(&a->base, b, p.output);
  if (a->bias.data != 0) v += *(const float *)(const void *)cuda_element(&a->bias, 0, p.output);
  v = cuda_activation_f32(a->activation, v);
  cuda_store_f32(a->out.dtype, cuda_element(&a->out, b, p.output), 0, v);
}
#endif
