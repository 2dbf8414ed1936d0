/* SPDX-License-Identifier: MIT
 * graph_topk.c - topk as the kit asks and judges it. Every value of a line has a rank: how many come before
 * it, by value and then by index. Those with ranks below k must be at their places, bit by bit. */
#include <math.h>

#include "kit/graph.h"

enum { IN, VALUES, INDICES };

static void make(kit_data *d, uint64_t *seed) {
  const kit_shape *s = &d->shape;
  kit_graph_one_dtype(d, 1);
  int64_t in[BS_MAX_DIMS], out[BS_MAX_DIMS];
  const uint32_t rank = kit_graph_dims(d, seed, 1, BS_MAX_DIMS, s->B, s->N % 200, in);
  const uint32_t axis = (uint32_t)kit_below(seed, rank);
  if (s->shrinks != 0) in[axis] = axis + 1 == rank ? s->N % 200 : axis + 2 == rank ? s->B : 3; /* stays */
  const int is_long = s->index % 15 == 4; /* one line, of which most is taken: kernels may sort it */
  for (uint32_t k = 0; is_long && k < rank; k++) in[k] = k == axis ? 1400 : 1;
  memcpy(out, in, sizeof out);
  out[axis] = is_long ? in[axis] - kit_below(seed, 300) : kit_below(seed, in[axis] + 1);
  kit_graph_arg(d, IN, s->x, rank, in, 0);
  kit_graph_fill_wide(d, IN);
  const int large = !bs_dtype_is_float(s->x) && kit_graph_wide(d) != 0;
  for (int64_t i = 0; i < kit_elements(&d->a[IN]) && s->values == KIT_PLAIN && !large;
       i += 2) /* equal ones */
    kit_set_at(&d->a[IN], i, trunc(4.0 * kit_get_at(&d->a[IN], i)));
  kit_graph_arg(d, VALUES, s->x, rank, out, 0);
  kit_graph_arg(d, INDICES, s->seed % 2 == 0 ? BS_I64 : BS_I32, rank, out, 0);
  d->outs = 1u << VALUES | 1u << INDICES;
  d->query.attrs[0] = axis;
  d->query.attrs[1] = kit_below(seed, 2);
}

static int before(const kit_data *d, double x, int64_t i, double y, int64_t j) {
  const int rising = d->query.attrs[1] != 0;
  if (isnan(x) || isnan(y)) {
    if (isnan(x) && isnan(y)) return i < j;
    return isnan(x) ? !rising : rising;
  }
  if (x == y) return i < j;
  return rising ? x < y : x > y;
}

static void judge(const kit_data *d, uint32_t tolerance, int special) {
  (void)tolerance;
  (void)special;
  const kit_tensor *in = &d->a[IN], *values = &d->a[VALUES], *indices = &d->a[INDICES];
  const uint32_t rank = in->t.rank, axis = (uint32_t)d->query.attrs[0];
  const int64_t n = kit_elements(in), length = in->t.dims[axis], k = values->t.dims[axis];
  for (int64_t i = 0; i < n; i++) {
    int64_t at[BS_MAX_DIMS], other[BS_MAX_DIMS], place = 0;
    kit_graph_at(i, rank, in->t.dims, at);
    memcpy(other, at, sizeof other);
    const double v = kit_get_at(in, i);
    for (int64_t j = 0; j < length; j++) {
      other[axis] = j;
      place += j != at[axis] && before(d, kit_graph_value(in, rank, other), j, v, at[axis]);
    }
    if (place >= k) continue;
    other[axis] = place;
    const int64_t number = kit_graph_number(values, rank, other);
    const double index = kit_get_at(indices, number);
    if (memcmp(kit_place_at(values, number), kit_place_at(in, i), BS_DTYPE_BYTES(in->t.dtype)) != 0 ||
        index != (double)at[axis])
      kit_fail("%s: place %lld of a line has %.9g, index %g: element %lld, %.9g, is the one",
               kit_data_text(d), (long long)place, kit_get_at(values, number), index, (long long)at[axis], v);
  }
}

const kit_graph_op kit_graph_topk = {"topk", 1, 1, 0, 0, make, judge, NULL};
