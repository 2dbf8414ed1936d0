/* SPDX-License-Identifier: MIT
 * attention_body.h - attention on tensor cores: mma.m16n8k16 with sums in f32, K and V in tiles of `keys`
 * that cp.async loads `stages` ahead, softmax online by chunks of 32 keys (16 of wide rows). Include it after
 * ATTENTION_WIDTH (64, 128, 256: the most elements of a row of Q, K, V) and ATTENTION_BF16 (0: f16) are
 * defined. fp8 is converted to f16 in shared memory, exactly.
 *
 * A warp has 16 queries of one head; a block those of its warps. Powers are rounded to the operands' type.
 * They are 2^(score - most + ATTENTION_LIFT), so that f16 represents those down to 2^-22 exactly; the sum of
 * the powers has the same factor. attention_row computes a query again whose result is NaN.
 *
 * The grid is (ceil(S / rows), H, B * splits); with `persistent` its blocks take one item after the other.
 * With splits > 1 the tiles of keys are cut, and a query's part p leaves E sums, `most` in powers of two and
 * `total` at partial + (p * B * H * S + query) * (E + 2), for attention_merge.
 *
 * In steps (kernel.h): begin, and for each tile arrive, fetch, tile; then finish. arrive and fetch are a
 * thread's, begin, tile and finish a warp's (warp.h). attention_kernel.h has their order. */
#ifndef BS_PLUGIN_CUDA_ATTENTION_BODY_H
#define BS_PLUGIN_CUDA_ATTENTION_BODY_H
#include "attention_row.h"

enum {
  ATTENTION_DEPTH = ATTENTION_WIDTH / 16,           /* products along D; pairs of products along E */
  ATTENTION_PIECES = ATTENTION_WIDTH / 8,           /* of 16 bytes of a row in shared memory */
  ATTENTION_STEP = ATTENTION_WIDTH > 128 ? 16 : 32, /* keys of a chunk, limited by the registers */
  ATTENTION_BLOCKS = ATTENTION_STEP / 8             /* products along them */
};

/* The work of a block. */
typedef struct attention_item {
  uint32_t b, h, part;
  int32_t row;        /* the first */
  int32_t begin, end; /* tiles of keys */
} attention_item;

/* The state of a thread; in the twin of a warp. */
typedef struct attention_local {
  float sums[ATTENTION_PIECES][CUDA_LANES][4];
  float most[2][CUDA_LANES], total[2][CUDA_LANES]; /* of rows lane / 4 and that + 8 */
  float scale; /* of products to powers of two, or with a softcap to its unit */
} attention_local;

CUDA_FN float attention_power(const attention_args *a, float x) {
#if defined(__CUDACC__)
  float y;
  if (a->fast == 0) return exp2f(x);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  (void)a;
  return exp2f(x);
#endif
}

/* ---- work of a block ------------------------------------------------------------------------------ */

/* Later queries come first: with a causal mask they have more keys. */
CUDA_FN attention_item attention_item_at(const attention_args *a, const cuda_at *at, uint32_t index) {
  attention_item item;
  const uint32_t rows = at->threads / 2, across = ((uint32_t)a->S + rows - 1) / rows;
  uint32_t x = at->block_x, z = at->block_z;
  item.h = at->block_y;
  if (a->persistent != 0) {
    x = index % across;
    item.h = index / across % a->H;
    z = index / across / a->H;
  }
  item.row = (int32_t)((across - 1 - x) * rows);
  item.b = z / a->splits;
  item.part = z % a->splits;
  const int32_t length = attention_length(a, item.b), behind = item.row + (int32_t)rows;
  const int32_t last = (behind < a->S ? behind : a->S) - 1;
  const int32_t first = attention_seen(a, length, item.row).first, end = attention_seen(a, length, last).end;
  const int32_t keys = (int32_t)a->keys, splits = (int32_t)a->splits, from = first / keys;
  const int32_t tiles = end > first ? (end - 1) / keys + 1 - from : 0;
  item.begin = from + (int32_t)((int64_t)tiles * (int32_t)item.part / splits);
  item.end = from + (int32_t)((int64_t)tiles * ((int32_t)item.part + 1) / splits);
  return item;
}

/* ---- operands ------------------------------------------------------------------------------------ */

CUDA_FN void attention_begin(const attention_args *a, attention_local *w) {
  w->scale = a->scale * attention_factor(a, 0) * attention_factor(a, 1) *
             (a->softcap > 0.0f ? 1.0f / a->softcap : ATTENTION_LOG2_E);
  for (int l = 0; l < CUDA_LANES; l++) {
    CUDA_UNROLL
    for (int i = 0; i < 2; i++) {
      w->most[i][l] = -INFINITY;
      w->total[i][l] = 0.0f;
    }
    CUDA_UNROLL
    for (int n = 0; n < ATTENTION_PIECES; n++) {
      CUDA_UNROLL
      for (int i = 0; i < 4; i++) w->sums[n][l][i] = 0.0f;
    }
  }
}

/* Piece `piece` of row `row` of a tile: neighbouring rows have it at different banks. Tiles begin on 128
 * bytes. */
CUDA_FN cuda_shared attention_piece(cuda_shared tile, uint32_t row, uint32_t piece) {
  return tile + row * (ATTENTION_PIECES * 16u) + ((piece & 7u) ^ (row & 7u)) * 16u + (piece & ~7u) * 16u;
}
CUDA_FN uint32_t attention_tile_bytes(const attention_args *a) {
  return a->keys * ATTENTION_WIDTH * 2u;
}
/* K of a stage; V follows it, and Q follows all stages. */
CUDA_FN cuda_shared attention_stage(const attention_args *a, cuda_shared shared, uint32_t stage) {
  return shared + stage * 2u * attention_tile_bytes(a);
}

/* Eight bytes of fp8 as sixteen of f16. */
CUDA_FN void attention_widen(const attention_view *v, cuda_shared to, const void *from, int live) {
  cuda_raw out = {{0, 0, 0, 0}};
  if (live) {
    const cuda_raw raw = cuda_get_bytes(from, 8);
    float x[8];
    cuda_widen_f32(v->dtype, &raw, x, 8);
    CUDA_UNROLL
    for (int i = 0; i < 4; i++) out.word[i] = cuda_pack16(x[2 * i], x[2 * i + 1], 0);
  }
  cuda_shared_put(to, &out);
}

/* Loads the thread's share of the pieces of `rows` rows that begin at `from`: zeros from row `live` on, and
 * after the `wide` elements of a row. */
CUDA_FN void attention_fetch_rows(const attention_view *v, const char *from, int32_t wide, int32_t live,
                                  uint32_t rows, cuda_shared tile, cuda_async *q, const cuda_at *at) {
  CUDA_ROLL
  for (uint32_t i = at->thread; i < rows * ATTENTION_PIECES; i += at->threads) {
    const uint32_t row = i / ATTENTION_PIECES, piece = i % ATTENTION_PIECES;
    const int there = (int32_t)row < live && (int32_t)(8 * piece) < wide;
    const char *at_piece = there ? from + (row * v->strides[2] + 8 * piece) * (int64_t)v->size : from;
    if (v->size == 2)
      cuda_async_copy(q, attention_piece(tile, row, piece), at_piece, there);
    else
      attention_widen(v, attention_piece(tile, row, piece), at_piece, there);
  }
}

/* The block's queries: of the first group. */
CUDA_FN void attention_fetch_q(const attention_args *a, cuda_shared shared, cuda_async *q, const cuda_at *at,
                               const attention_item *item) {
  const char *from = (const char *)attention_at(&a->q, item->b, item->h, item->row);
  attention_fetch_rows(&a->q, from, a->D, a->S - item->row, at->threads / 2,
                       attention_stage(a, shared, a->stages), q, at);
}

/* Starts a group of copies, an empty one if there is no such tile. */
CUDA_FN void attention_fetch(const attention_args *a, cuda_shared shared, cuda_async *q, const cuda_at *at,
                             const attention_item *item, int32_t tile) {
  if (tile < item->end) {
    const cuda_shared to = attention_stage(a, shared, (uint32_t)(tile - item->begin) % a->stages);
    const int32_t key = tile * (int32_t)a->keys, live = attention_length(a, item->b) - key;
    const uint32_t group = item->h / a->repeat;
    attention_fetch_rows(&a->k, (const char *)attention_at(&a->k, item->b, group, key), a->D, live, a->keys,
                         to, q, at);
    attention_fetch_rows(&a->v, (const char *)attention_at(&a->v, item->b, group, key), a->E, live, a->keys,
                         to + attention_tile_bytes(a), q, at);
  }
  cuda_async_commit(q);
}

/* ---- a chunk of keys ------------------------------------------------------------------------------ */

typedef float attention_chunk[ATTENTION_BLOCKS][CUDA_LANES][4];

/* Q K^T of the keys from `key` of the tile on. */
CUDA_FN void attention_multiply_k(const attention_args *a, cuda_shared q, cuda_shared tile, uint32_t key,
                                  const cuda_at *at, attention_chunk s) {
  CUDA_UNROLL
  for (int k = 0; k < ATTENTION_DEPTH; k++) {
    uint32_t x[CUDA_LANES][4];
    cuda_shared of_q[CUDA_LANES];
    if (16 * k >= a->D) continue;
    for (int l = 0; l < CUDA_LANES; l++) {
      const uint32_t lane = CUDA_LANE(at, l), of = lane / 8;
      of_q[l] =
          attention_piece(q, at->thread / CUDA_WARP * 16u + of % 2 * 8 + lane % 8, 2u * (uint32_t)k + of / 2);
    }
    cuda_load_matrices(of_q, x, 0);
    CUDA_UNROLL
    for (int pair = 0; pair < ATTENTION_BLOCKS / 2; pair++) {
      cuda_shared rows[CUDA_LANES];
      uint32_t b[CUDA_LANES][4];
      for (int l = 0; l < CUDA_LANES; l++) {
        const uint32_t lane = CUDA_LANE(at, l), of = lane / 8;
        rows[l] = attention_piece(tile, key + 16u * (uint32_t)pair + of / 2 * 8 + lane % 8,
                                  2u * (uint32_t)k + of % 2);
      }
      cuda_load_matrices(rows, b, 0);
      cuda_mma(s[2 * pair], (const uint32_t(*)[4])x, (const uint32_t(*)[4])b, 0, ATTENTION_BF16);
      cuda_mma(s[2 * pair + 1], (const uint32_t(*)[4])x, (const uint32_t(*)[4])b, 1, ATTENTION_BF16);
    }
  }
}

/* P V of the keys from `key` of the tile on: the powers are already in the layout of A's operand. */
CUDA_FN void attention_multiply_v(const attention_args *a, cuda_shared tile, uint32_t key, attention_chunk s,
                                  attention_local *w, const cuda_at *at) {
  CUDA_UNROLL
  for (int k = 0; k < ATTENTION_BLOCKS / 2; k++) {
    uint32_t p[CUDA_LANES][4];
    for (int l = 0; l < CUDA_LANES; l++) {
      CUDA_UNROLL
      for (int i = 0; i < 4; i++) {
        const float *two = &s[2 * k + i / 2][l][2 * (i % 2)];
        p[l][i] = cuda_pack16(two[0], two[1], ATTENTION_BF16);
      }
    }
    CUDA_UNROLL
    for (int n = 0; n < ATTENTION_DEPTH; n++) {
      cuda_shared rows[CUDA_LANES];
      uint32_t b[CUDA_LANES][4];
      if (16 * n >= a->E) continue;
      for (int l = 0; l < CUDA_LANES; l++) {
        const uint32_t lane = CUDA_LANE(at, l), of = lane / 8;
        rows[l] =
            attention_piece(tile, key + 16u * (uint32_t)k + of % 2 * 8 + lane % 8, 2u * (uint32_t)n + of / 2);
      }
      cuda_load_matrices(rows, b, 1);
      cuda_mma(w->sums[2 * n], (const uint32_t(*)[4])p, (const uint32_t(*)[4])b, 0, ATTENTION_BF16);
      cuda_mma(w->sums[2 * n + 1], (const uint32_t(*)[4])p, (const uint32_t(*)[4])b, 1, ATTENTION_BF16);
    }
  }
}

/* Elements of bool, f32, bf16 and f16, which the masks of these kernels have. */
CUDA_FN float attention_mask_at(const attention_view *m, const char *at) {
  if (m->size == 1) return *(const unsigned char *)at != 0 ? 0.0f : -INFINITY;
  if (m->size == 4) return *(const float *)(const void *)at;
  const uint32_t code = *(const uint16_t *)(const void *)at;
  return m->dtype == BS_BF16 ? cuda_f32_of_bf16(code) : cuda_f32_of_f16(code);
}

CUDA_FN void attention_cap(const attention_args *a, attention_chunk s) {
  for (int l = 0; l < CUDA_LANES; l++) {
    CUDA_UNROLL
    for (int j = 0; j < ATTENTION_BLOCKS; j++) {
      CUDA_UNROLL
      for (int i = 0; i < 4; i++) s[j][l][i] = a->softcap * ATTENTION_LOG2_E * tanhf(s[j][l][i]);
    }
  }
}

/* Sets scores of keys that a query does not see to -inf; adds the mask. */
CUDA_FN void attention_hide(const attention_args *a, const cuda_at *at, const attention_item *item,
                            int32_t row, int32_t length, int32_t key, attention_chunk s) {
  for (int l = 0; l < CUDA_LANES; l++) {
    const uint32_t lane = CUDA_LANE(at, l);
    CUDA_UNROLL
    for (int i = 0; i < 4; i++) {
      const int32_t from = key + 2 * (int32_t)(lane % 4) + i % 2, q = row + (int32_t)(lane / 4) + 8 * (i / 2);
      const attention_keys keys = attention_seen(a, length, q);
      const char *mask = 0;
      if (a->mask.data != 0) mask = (const char *)attention_at(&a->mask, item->b, item->h, q);
      CUDA_UNROLL
      for (int j = 0; j < ATTENTION_BLOCKS; j++) {
        const int32_t mine = from + 8 * j;
        float add = mine >= keys.first && mine < keys.end && q < a->S ? 0.0f : -INFINITY;
        if (mask != 0 && add == 0.0f)
          add = attention_mask_at(&a->mask, mask + mine * a->mask.strides[3] * a->mask.size);
        s[j][l][i] = add == -INFINITY ? add : cuda_fma_f32(add, ATTENTION_LOG2_E, s[j][l][i]);
      }
    }
  }
}

/* Scores in powers of two; with a softcap in its unit. */
CUDA_FN void attention_scale(attention_chunk s, float by) {
  for (int l = 0; l < CUDA_LANES; l++) {
    CUDA_UNROLL
    for (int j = 0; j < ATTENTION_BLOCKS; j++) {
      CUDA_UNROLL
      for (int i = 0; i < 4; i++) s[j][l][i] *= by;
    }
  }
}

/* Turns scores into powers; scales the sums to the new largest score. */
CUDA_FN void attention_soften(const attention_args *a, attention_local *w, attention_chunk s) {
  float top[2][CUDA_LANES], by[2][CUDA_LANES];
  uint32_t changed[CUDA_LANES];
  CUDA_UNROLL
  for (int i = 0; i < 2; i++) {
    for (int l = 0; l < CUDA_LANES; l++) {
      top[i][l] = w->most[i][l];
      CUDA_UNROLL
      for (int j = 0; j < ATTENTION_BLOCKS; j++)
        top[i][l] = fmaxf(top[i][l], fmaxf(s[j][l][2 * i], s[j][l][2 * i + 1]));
    }
    cuda_lanes_max(top[i], 4);
  }
  for (int l = 0; l < CUDA_LANES; l++) {
    CUDA_UNROLL
    for (int i = 0; i < 2; i++) {
      const float base = top[i][l] == -INFINITY ? 0.0f : top[i][l];
      float sum = 0.0f;
      by[i][l] = attention_power(a, w->most[i][l] - base);
      w->most[i][l] = top[i][l];
      CUDA_UNROLL
      for (int j = 0; j < ATTENTION_BLOCKS; j++) {
        CUDA_UNROLL
        for (int e = 2 * i; e < 2 * i + 2; e++) {
          s[j][l][e] = attention_power(a, s[j][l][e] - base + ATTENTION_LIFT);
          sum += s[j][l][e];
        }
      }
      w->total[i][l] = cuda_fma_f32(w->total[i][l], by[i][l], sum);
    }
    changed[l] = by[0][l] != 1.0f || by[1][l] != 1.0f;
  }
  if (cuda_ballot(changed) == 0) return;
  for (int l = 0; l < CUDA_LANES; l++) {
    CUDA_UNROLL
    for (int n = 0; n < ATTENTION_PIECES; n++) {
      CUDA_UNROLL
      for (int i = 0; i < 4; i++) w->sums[n][l][i] *= by[i / 2][l];
    }
  }
}

/* A warp's step: all chunks of a tile of which a query of the warp may see a key. */
CUDA_FN void attention_tile(const attention_args *a, cuda_shared shared, attention_local *w,
                            const cuda_at *at, const attention_item *item, int32_t tile) {
  const cuda_shared k = attention_stage(a, shared, (uint32_t)(tile - item->begin) % a->stages);
  const int32_t row = item->row + (int32_t)(at->thread / CUDA_WARP * 16),
                length = attention_length(a, item->b);
  const int32_t last = (row + 16 < a->S ? row + 16 : a->S) - 1;
  if (row >= a->S) return;
  const attention_keys least = attention_seen(a, length, row), most = attention_seen(a, length, last);
  CUDA_ROLL
  for (uint32_t c = 0; c < a->keys; c += ATTENTION_STEP) {
    const int32_t key = tile * (int32_t)a->keys + (int32_t)c;
    if (key >= most.end || key + ATTENTION_STEP <= least.first) continue;
    attention_chunk s;
    for (int l = 0; l < CUDA_LANES; l++) {
      CUDA_UNROLL
      for (int j = 0; j < ATTENTION_BLOCKS; j++) {
        CUDA_UNROLL
        for (int i = 0; i < 4; i++) s[j][l][i] = 0.0f;
      }
    }
    attention_multiply_k(a, attention_stage(a, shared, a->stages), k, c, at, s);
    attention_scale(s, w->scale);
    if (a->softcap > 0.0f) attention_cap(a, s);
    if (a->mask.data != 0 || key < most.first || key + ATTENTION_STEP > least.end)
      attention_hide(a, at, item, row, length, key, s);
    attention_soften(a, w, s);
    attention_multiply_v(a, k + attention_tile_bytes(a), c, s, w, at);
  }
}

/* ---- results --------------------------------------------------------------------------------------- */

CUDA_FN void attention_put(const attention_view *y, void *row, int32_t e, float first, float second) {
  cuda_raw raw = {{0, 0, 0, 0}};
  if (y->size == 4) {
    raw.word[0] = cuda_bits_f32(first);
    raw.word[1] = cuda_bits_f32(second);
    cuda_put_bytes((char *)row + 4 * (int64_t)e, &raw, 8);
    return;
  }
  raw.word[0] = cuda_pack16(first, second, y->dtype == BS_BF16);
  cuda_put_bytes((char *)row + 2 * (int64_t)e, &raw, 4);
}

/* Rows i = 0 (lane / 4) and 1 (+ 8): writes the parts for attention_merge, or the result. */
CUDA_FN void attention_put_row(const attention_args *a, const attention_local *w, const cuda_at *at,
                               const attention_item *item, int32_t s, const int i, int l, float factor) {
  const uint32_t lane = CUDA_LANE(at, l);
  float *part = 0;
  const void *row = attention_at(&a->y, item->b, item->h, s);
  const float total = w->total[i][l], by = a->splits > 1 ? 1.0f : total == 0.0f ? 0.0f : factor / total;
  attention_view to = a->y;
  if (a->splits > 1) {
    const int64_t query = ((int64_t)item->b * a->H + item->h) * a->S + s;
    part = a->partial + ((int64_t)item->part * a->B * a->H * a->S + query) * (a->E + 2);
    row = part;
    to.dtype = BS_F32;
    to.size = 4;
  }
  CUDA_UNROLL
  for (int n = 0; n < ATTENTION_PIECES; n++) {
    const int32_t e = 8 * n + 2 * (int32_t)(lane % 4);
    if (e < a->E)
      attention_put(&to, (void *)(uintptr_t)row, e, w->sums[n][l][2 * i] * by, w->sums[n][l][2 * i + 1] * by);
  }
  if (lane % 4 != 0) return;
  if (part != 0) {
    part[a->E] = w->most[i][l];
    part[a->E + 1] = total;
  } else {
    const float powers = w->most[i][l] + log2f(total) - ATTENTION_LIFT;
    attention_put_lse(a, item->b, item->h, s, total == 0.0f ? -INFINITY : powers * ATTENTION_LN2);
  }
}

CUDA_FN void attention_finish(const attention_args *a, attention_local *w, const cuda_at *at,
                              const attention_item *item) {
  const int32_t row = item->row + (int32_t)(at->thread / CUDA_WARP * 16);
  const float factor = attention_factor(a, 2);
  uint32_t bad[2][CUDA_LANES], found[2];
  CUDA_UNROLL
  for (int i = 0; i < 2; i++) {
    cuda_lanes_sum(w->total[i], 4);
    for (int l = 0; l < CUDA_LANES; l++) {
      const int32_t s = row + (int32_t)(CUDA_LANE(at, l) / 4) + 8 * i;
      bad[i][l] = w->total[i][l] != w->total[i][l];
      CUDA_UNROLL
      for (int n = 0; n < ATTENTION_PIECES; n++)
        bad[i][l] |= w->sums[n][l][2 * i] != w->sums[n][l][2 * i] ||
                     w->sums[n][l][2 * i + 1] != w->sums[n][l][2 * i + 1];
      if (s < a->S) attention_put_row(a, w, at, item, s, i, l, factor);
    }
    found[i] = cuda_ballot(bad[i]);
  }
  if (a->splits > 1) return;                                 /* attention_merge looks itself */
  const uint64_t rows = (uint64_t)found[1] << 32 | found[0]; /* four bits each */
#if defined(__CUDACC__)
  __syncwarp(); /* another lane overwrites what a lane has written of such a row */
#endif
  CUDA_ROLL
  for (int32_t r = 0; r < 16 && row + r < a->S; r++)
    if ((rows >> (4 * r) & 15u) != 0) attention_row(a, at, item->b, item->h, row + r);
}
#endif
