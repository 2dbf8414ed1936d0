/* SPDX-License-Identifier: MIT
 * rotary.c - RotaryEmbedding: one `map` of both halves, written into the halves of the output. RotaryPairs of
 * the domain blockshock, which the reader of GGUF makes, takes interleaved pairs and gives halves. */
#include <string.h>

#include "graph/lower/rules.h"

/* cos or sin for x [B,S,H,half]: [B,S,1,half], a row of the cache for each position where there are some. */
static uint32_t angles(build *b, uint32_t cache, uint32_t positions, int64_t half) {
  if (positions != GNONE) {
    build_check(b, build_rank(b, cache) == 2, "a cache beside position_ids must have 2 dims");
    cache = build_take(b, cache, positions, 0);
  }
  build_check(b, build_rank(b, cache) == 3, "the cos and sin caches must be [batch, sequence, half]");
  build_check(b, build_dim(b, cache, 2) == half,
              "the cos and sin caches differ from half of the rotated width");
  return build_unsqueeze(b, cache, 2);
}

/* Elements `first`, first + step .. of the last dim of [B,S,H,D]. */
static uint32_t half_of(build *b, uint32_t value, int interleaved, int second, int64_t half) {
  return interleaved ? build_slice(b, value, 3, second, half, 2)
                     : build_slice(b, value, 3, second ? half : 0, half, 1);
}

int32_t lower_rotary(lower_ctx *c, const gmodel_node *node, bs_error *err) {
  build b = build_begin(c, node, err);
  lower_map m;
  const uint32_t whole = build_in(&b, 0), dtype = build_dtype(&b, whole);
  const build_shape shape = build_shape_of(&b, whole);
  const int flat = shape.rank == 3, pairs = strcmp(node->op, "RotaryPairs") == 0;
  const int interleaved = lower_int(node, "interleaved", 0) != 0;
  const int64_t heads = lower_int(node, "num_heads", 0);
  build_check(&b, flat || shape.rank == 4, "X must have 3 or 4 dims");
  build_check(&b, !flat || (heads > 0 && shape.dims[2] % heads == 0), "num_heads does not divide the width");
  build_check(&b, build_is_float(dtype), "the operator takes floats");
  if (b.rc != BS_OK) return b.rc;
  if (build_elements(&shape) == 0) {
    build_out(&b, 0, whole);
    return b.rc;
  }
  const uint32_t into = build_temp(&b, dtype, &shape);
  /* Both as [B,S,H,D]. */
  const uint32_t x =
      flat ? build_split_dim(&b, whole, 2, heads, shape.dims[2] / heads) : build_swap(&b, whole, 1, 2);
  const uint32_t y =
      flat ? build_split_dim(&b, into, 2, heads, shape.dims[2] / heads) : build_swap(&b, into, 1, 2);
  const int64_t width = build_dim(&b, x, 3), asked = lower_int(node, "rotary_embedding_dim", 0);
  const int64_t rotated = asked > 0 ? asked : width, half = rotated / 2;
  build_check(&b, rotated % 2 == 0 && rotated <= width, "the rotated width is odd or too large");
  const uint32_t positions = build_optional(&b, 3);
  const uint32_t cosine = angles(&b, build_in(&b, 1), positions, half),
                 sine = angles(&b, build_in(&b, 2), positions, half);
  const uint32_t x1 = half_of(&b, x, interleaved || pairs, 0, half),
                 x2 = half_of(&b, x, interleaved || pairs, 1, half);
  const uint32_t y1 = half_of(&b, y, interleaved, 0, half), y2 = half_of(&b, y, interleaved, 1, half);
  if (b.rc != BS_OK) return b.rc;
  lower_map_begin(&m, c, lower_compute(dtype));
  const uint8_t v1 = lower_map_in(&m, x1), v2 = lower_map_in(&m, x2), vc = lower_map_in(&m, cosine),
                vs = lower_map_in(&m, sine);
  const uint8_t a = lower_map_step(&m, BS_EXPR_MUL, v1, vc, 0),
                d = lower_map_step(&m, BS_EXPR_MUL, v2, vs, 0);
  const uint8_t real = lower_map_step(&m, BS_EXPR_SUB, a, d, 0);
  const uint8_t e = lower_map_step(&m, BS_EXPR_MUL, v2, vc, 0),
                f = lower_map_step(&m, BS_EXPR_MUL, v1, vs, 0);
  const uint8_t outs[2] = {real, lower_map_step(&m, BS_EXPR_ADD, e, f, 0)};
  const uint32_t targets[2] = {y1, y2};
  b.rc = lower_map_emit_into(&m, node, 2, outs, targets, err);
  if (rotated < width)
    build_copy_into(&b, build_slice(&b, x, 3, rotated, width - rotated, 1),
                    build_slice(&b, y, 3, rotated, width - rotated, 1));
  build_out(&b, 0, into);
  return b.rc;
}
