/* SPDX-License-Identifier: MIT
 * taps.c - see taps.h. */
#include "graph/lower/taps.h"

#include <string.h>

static uint8_t step(lower_map *m, uint8_t op, uint8_t x, uint8_t y) {
  return lower_map_step(m, op, x, y, 0);
}

static uint8_t clamp(lower_map *m, uint8_t v, double low, double high) {
  return step(m, BS_EXPR_MIN, step(m, BS_EXPR_MAX, v, lower_map_const(m, low)), lower_map_const(m, high));
}

/* The place between the mirrors that v is an image of. */
static uint8_t reflect(lower_map *m, uint8_t v, double low, double span) {
  if (span <= 0) return lower_map_const(m, 0);
  const uint8_t first = lower_map_const(m, low), width = lower_map_const(m, span);
  const uint8_t in = step(m, BS_EXPR_ABS, step(m, BS_EXPR_SUB, v, first), 0);
  const uint8_t rest = step(m, BS_EXPR_FMOD, in, width);
  const uint8_t turns = step(m, BS_EXPR_FLOOR, step(m, BS_EXPR_DIV, in, width), 0);
  const uint8_t odd = step(m, BS_EXPR_FMOD, turns, lower_map_const(m, 2));
  const uint8_t back = step(m, BS_EXPR_SUB, width, rest);
  return step(m, BS_EXPR_ADD, lower_map_step(m, BS_EXPR_SELECT, odd, back, rest), first);
}

static uint8_t within(lower_map *m, uint8_t v, const taps_rule *rule, int64_t size) {
  const double last = (double)(size - 1);
  if (rule->beyond == TAPS_REFLECT)
    v = rule->corners ? reflect(m, v, 0, last) : reflect(m, v, -0.5, (double)size);
  return rule->beyond == TAPS_ZERO ? v : clamp(m, v, 0, last);
}

/* The weight of an element at the distance t - k + 1 (k: 0 to 3) by the cubic of `a`; t: 0 to 1. */
static uint8_t cubic(lower_map *m, uint8_t t, uint32_t k, double a) {
  const uint8_t one = lower_map_const(m, 1), s = step(m, BS_EXPR_SUB, one, t);
  const uint8_t near = k == 0 || k == 1 ? t : s;
  if (k == 1 || k == 2) { /* ((a + 2) x - (a + 3)) x x + 1 */
    const uint8_t line =
        lower_map_step(m, BS_EXPR_FMA, near, lower_map_const(m, a + 2), lower_map_const(m, -a - 3));
    return lower_map_step(m, BS_EXPR_FMA, step(m, BS_EXPR_MUL, line, near), near, one);
  }
  const uint8_t x = step(m, BS_EXPR_ADD, near, one); /* ((a x - 5 a) x + 8 a) x - 4 a */
  uint8_t v = lower_map_step(m, BS_EXPR_FMA, x, lower_map_const(m, a), lower_map_const(m, -5 * a));
  v = lower_map_step(m, BS_EXPR_FMA, v, x, lower_map_const(m, 8 * a));
  return lower_map_step(m, BS_EXPR_FMA, v, x, lower_map_const(m, -4 * a));
}

/* The tap k of places: its element and its weight. */
static void make_tap(build *b, uint32_t at, int64_t size, const taps_rule *rule, uint32_t k, taps *out) {
  const double last = (double)(size - 1);
  const uint32_t wide = build_dtype(b, at) == BS_F64 ? BS_F64 : BS_F32, dtypes[2] = {BS_I64, wide};
  lower_map m;
  uint32_t values[2] = {GNONE, GNONE};
  if (b->rc != BS_OK) return;
  lower_map_begin(&m, b->c, wide);
  const uint8_t given = lower_map_in(&m, at), one = lower_map_const(&m, 1), zero = lower_map_const(&m, 0);
  const uint8_t place = rule->count == 4 ? given : within(&m, given, rule, size);
  uint8_t first = step(&m, rule->count == 1 ? BS_EXPR_ROUND : BS_EXPR_FLOOR, place, 0), weight = one;
  const uint8_t t = step(&m, BS_EXPR_SUB, place, first);
  if (rule->count == 2) weight = k == 0 ? step(&m, BS_EXPR_SUB, one, t) : t;
  if (rule->count == 4) weight = cubic(&m, t, k, rule->cubic_a);
  const double away = rule->count == 4 ? (double)k - 1 : k;
  if (away != 0) first = step(&m, BS_EXPR_ADD, first, lower_map_const(&m, away));
  if (rule->count == 4) first = within(&m, first, rule, size);
  if (rule->beyond == TAPS_ZERO) {
    const uint8_t in = step(&m, BS_EXPR_AND, step(&m, BS_EXPR_LE, zero, first),
                            step(&m, BS_EXPR_LE, first, lower_map_const(&m, last)));
    weight = lower_map_step(&m, BS_EXPR_SELECT, in, weight, zero);
  } else if (rule->beyond == TAPS_ROI) {
    const uint8_t in = step(&m, BS_EXPR_AND, step(&m, BS_EXPR_LE, lower_map_const(&m, -1), given),
                            step(&m, BS_EXPR_LE, given, lower_map_const(&m, (double)size)));
    weight = lower_map_step(&m, BS_EXPR_SELECT, in, weight, zero);
  }
  const uint8_t outs[2] = {clamp(&m, first, 0, last), weight};
  b->rc = lower_map_emit(&m, b->node, 0, NULL, 2, outs, dtypes, values, b->err);
  out->index[k] = values[0];
  out->weight[k] = values[1];
}

taps taps_make(build *b, uint32_t at, int64_t size, const taps_rule *rule) {
  taps out = {.count = rule->count};
  build_check(b, size > 0, "a picture is empty");
  for (uint32_t k = 0; k < rule->count; ++k) make_tap(b, at, size, rule, k, &out);
  return out;
}

/* The element that the taps `which` of all axes name. */
static uint32_t element_of(build *b, const taps_sum *sum, const uint32_t *which) {
  lower_map m;
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, BS_I64);
  uint8_t at = sum->more != GNONE ? lower_map_in(&m, sum->more) : lower_map_const_int(&m, 0);
  for (uint32_t i = 0; i < sum->n_axes; ++i)
    at = lower_map_step(&m, BS_EXPR_FMA, lower_map_in(&m, sum->axes[i]->index[which[i]]),
                        lower_map_const_int(&m, sum->strides[i]), at);
  const uint32_t index = build_map(b, &m, at, BS_I64);
  return build_unsqueeze(b, index, build_rank(b, index));
}

static uint8_t weight_of(build *b, lower_map *m, uint32_t value) {
  const uint32_t column = build_unsqueeze(b, value, build_rank(b, value));
  return b->rc == BS_OK ? lower_map_in(m, column) : 0;
}

/* v weight; 0 where the weight is 0, whatever v is: elements beyond a picture are not seen. */
static uint8_t weighted(lower_map *m, uint8_t v, uint8_t weight) {
  return lower_map_step(m, BS_EXPR_SELECT, weight, step(m, BS_EXPR_MUL, v, weight), lower_map_const(m, 0));
}

/* The taps of the last axis at those taps of the others, added to `acc`. */
static uint32_t read_row(build *b, const taps_sum *sum, uint32_t *which, uint32_t acc) {
  const uint32_t last = sum->n_axes - 1, dtype = build_dtype(b, sum->data);
  lower_map m;
  uint8_t row = 0, outer = 0, v;
  uint32_t values[TAPS_MAX] = {0};
  for (uint32_t k = 0; k < sum->axes[last]->count && b->rc == BS_OK; ++k) {
    which[last] = k;
    const uint32_t index = element_of(b, sum, which);
    if (b->rc == BS_OK)
      b->rc = lower_take(b->c, BS_INDEX_TUPLES, sum->data, index, 0, sum->batch_dims, &values[k], b->err);
  }
  if (b->rc != BS_OK) return GNONE;
  lower_map_begin(&m, b->c, lower_compute(dtype));
  for (uint32_t i = 0; i < last; ++i) {
    v = weight_of(b, &m, sum->axes[i]->weight[which[i]]);
    outer = i == 0 ? v : step(&m, BS_EXPR_MUL, outer, v);
  }
  for (uint32_t k = 0; k < sum->axes[last]->count && b->rc == BS_OK; ++k) {
    uint8_t weight = weight_of(b, &m, sum->axes[last]->weight[k]);
    v = lower_map_in(&m, values[k]);
    if (sum->largest && last > 0) weight = step(&m, BS_EXPR_MUL, weight, outer);
    v = weighted(&m, v, weight);
    row = k == 0 ? v : step(&m, sum->largest ? BS_EXPR_MAX : BS_EXPR_ADD, row, v);
  }
  if (b->rc != BS_OK) return GNONE;
  const uint32_t wide = lower_compute(dtype);
  if (sum->largest) {
    if (acc != GNONE) row = step(&m, BS_EXPR_MAX, row, lower_map_in(&m, acc));
  } else if (last > 0) {
    row = weighted(&m, row, outer);
    if (acc != GNONE) row = step(&m, BS_EXPR_ADD, row, lower_map_in(&m, acc));
  }
  return build_map(b, &m, row, wide);
}

uint32_t taps_read(build *b, const taps_sum *sum) {
  uint32_t which[TAPS_AXES] = {0}, acc = GNONE, rows = 1;
  for (uint32_t i = 0; i + 1 < sum->n_axes; ++i) rows *= sum->axes[i]->count;
  for (uint32_t r = 0; r < rows && b->rc == BS_OK; ++r) {
    uint32_t rest = r;
    for (uint32_t i = sum->n_axes - 1; i-- > 0;) {
      which[i] = rest % sum->axes[i]->count;
      rest /= sum->axes[i]->count;
    }
    acc = read_row(b, sum, which, acc);
  }
  return build_cast(b, acc, build_dtype(b, sum->data));
}

uint32_t taps_channels_last(build *b, uint32_t x) {
  const uint32_t rank = build_rank(b, x);
  return build_copy(b, build_swap(b, build_join_dims(b, x, 2, rank - 2), 1, 2));
}
