/* SPDX-License-Identifier: MIT
 *
 * matmul_q_lay.c - X of matmul_q as its kernels take it: bytes with their sums and scales, or f32; of many
 * tokens in blocks of columns, so that the rows of a tile lie together. */
#include <math.h>

#include "matmul_q.h"

#define PIECE 512 /* columns that are converted at a time */

/* n columns of a row as f32: where they lie, or in `room`. */
static const float *floats_of(const q_plan *plan, const uint8_t *row, int64_t first, int64_t n, float *room) {
  const uint32_t type = plan->shape.x_type;
  const uint8_t *at = row + (size_t)first * BS_DTYPE_BYTES(type);
  if (type == BS_F32) return (const float *)(const void *)at;
  plan->state->kernels.load[cpu_type_index(type)](room, at, n);
  return room;
}

/* Quantises n numbers as quantize_groups does; returns the scale. */
static float quantise(const q_plan *plan, const uint8_t *row, int64_t first, int64_t n, int8_t *to) {
  const cpu_kernels *kernels = &plan->state->kernels;
  const int64_t step = plan->shape.x_type == BS_F32 ? n : PIECE;
  float room[PIECE], most;
  int32_t bits = 0;
  for (int64_t k = 0; k < n; k += step) {
    const int64_t m = n - k < step ? n - k : step;
    const int32_t of = kernels->largest(floats_of(plan, row, first + k, m, room), m);
    if (of > bits) bits = of;
  }
  memcpy(&most, &bits, sizeof most);
  const float scale = isfinite(most) ? most / 127.0f : NAN;
  if (!(scale > 0.0f)) {
    memset(to, 0, (size_t)n);
    return scale;
  }
  for (int64_t k = 0; k < n; k += step) {
    const int64_t m = n - k < step ? n - k : step;
    kernels->narrow[0](to + k, floats_of(plan, row, first + k, m, room), scale, m);
  }
  return scale;
}

/* Bytes with the bits of `flip` changed. */
static void copy_bytes(int8_t *to, const uint8_t *from, int64_t n, uint8_t flip) {
  const uint64_t all = flip * UINT64_C(0x0101010101010101);
  uint64_t word;
  int64_t k = 0;
  for (; k + 8 <= n; k += 8) {
    memcpy(&word, from + k, sizeof word);
    word ^= all;
    memcpy(to + k, &word, sizeof word);
  }
  for (; k < n; k++) to[k] = (int8_t)(from[k] ^ flip);
}

static void lay_bytes(const q_call *c, const uint8_t *row, int64_t t) {
  const q_plan *plan = c->plan;
  const int64_t K = plan->shape.K;
  int8_t *to = (int8_t *)(void *)(c->scratch + plan->room.x) + t * plan->x_ld;
  int32_t *sums = (int32_t *)(void *)(c->scratch + plan->room.sums) + t * plan->pieces;
  float *scales = (float *)(void *)(c->scratch + plan->room.scales) + t * plan->links;
  if (plan->kind == BYTES) {
    copy_bytes(to, row, K, plan->shape.x_type == BS_U8 ? 0x80 : 0); /* less 128 */
    for (int64_t i = 0; i < plan->links; i++) scales[i] = 1.0f;
  } else {
    for (int64_t k = 0; k < K; k += plan->x_group) {
      const float scale = quantise(plan, row, k, K - k < plan->x_group ? K - k : plan->x_group, to + k);
      for (int64_t i = k / plan->link; i * plan->link < k + plan->x_group && i < plan->links; i++)
        scales[i] = scale;
    }
  }
  memset(to + K, 0, (size_t)(plan->x_ld - K));
  plan->fns->sums(to, K, plan->piece, sums);
}

/* The columns first.. of a token of X as f32, up to the end of a block. */
static float *block_of(const q_call *c, int64_t t, int64_t first) {
  const int64_t at = first / CPU_QUANT_BLOCK * c->tokens + t;
  return (float *)(void *)(c->scratch + c->plan->room.x) + at * CPU_X_LD + first % CPU_QUANT_BLOCK;
}

/* X as f32, by blocks of columns for many tokens. */
static void lay_blocks(const q_call *c, const uint8_t *row, int64_t t) {
  const int64_t K = c->plan->shape.K;
  for (int64_t k = 0; k < K; k += CPU_QUANT_BLOCK) {
    const int64_t n = K - k < CPU_QUANT_BLOCK ? K - k : CPU_QUANT_BLOCK;
    float *to = block_of(c, t, k);
    const float *x = floats_of(c->plan, row, k, n, to);
    if (x != to) memcpy(to, x, (size_t)n * sizeof *to);
  }
}

/* The sum of the n columns from `first` on, ascending. */
static float sum_of(const q_call *c, int64_t t, const float *x, int64_t first, int64_t n) {
  float sum = 0.0f;
  for (int64_t k = first; k < first + n; k++) sum += c->wide ? *block_of(c, t, k) : x[k];
  return sum;
}

/* X as f32, and the sums of its groups, ascending, where the weight has lows. */
static void lay_floats(const q_call *c, const uint8_t *row, int64_t t) {
  const q_plan *plan = c->plan;
  const cpu_quant_form *form = &plan->w->form;
  const int64_t K = plan->shape.K;
  float *room = (float *)(void *)(c->scratch + plan->room.x) + t * plan->x_ld;
  const float *x = NULL;
  if (c->wide)
    lay_blocks(c, row, t);
  else
    x = floats_of(plan, row, 0, K, room);
  float *sums = (float *)(void *)(c->scratch + plan->room.sums) + t * plan->pieces;
  for (int64_t g = 0; form->lows && g < plan->pieces; g++) {
    const int64_t first = g * form->group, n = K - first < form->group ? K - first : form->group;
    sums[g] = sum_of(c, t, x, first, n);
  }
}

void cpu_q_lay(void *arg, uint32_t member, uint32_t width) {
  const q_call *c = arg;
  int64_t begin, end;
  cpu_share(c->tokens, member, width, &begin, &end);
  for (int64_t t = begin; t < end; t++) {
    const uint8_t *row = (const uint8_t *)c->x->data +
                         (size_t)((c->token + t) * c->x->strides[0]) * BS_DTYPE_BYTES(c->plan->shape.x_type);
    if (c->plan->kind == AS_IT_IS)
      lay_floats(c, row, t);
    else
      lay_bytes(c, row, t);
  }
}
