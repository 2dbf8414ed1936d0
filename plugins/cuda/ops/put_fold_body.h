/* SPDX-License-Identifier: MIT
 * put_fold_body.h - combines updates with the output at the places that an index names, each combination
 * rounded to the dtype. The thread of the first position of a place takes all others in their order. */
#ifndef BS_PLUGIN_CUDA_PUT_FOLD_BODY_H
#define BS_PLUGIN_CUDA_PUT_FOLD_BODY_H
#include "put_body.h"

/* The comparisons are false of a NaN in `with`, which then is the result. */
CUDA_FN double put_combine_float(uint32_t how, double there, double with) {
  switch (how) {
    case BS_PUT_MUL:
      return there * with;
    case BS_PUT_MAX:
      return there > with || there != there ? there : with;
    case BS_PUT_MIN:
      return there < with || there != there ? there : with;
    default:
      return there + with;
  }
}
CUDA_FN int64_t put_combine_whole(uint32_t how, int64_t there, int64_t with) {
  switch (how) {
    case BS_PUT_MUL:
      return (int64_t)((uint64_t)there * (uint64_t)with);
    case BS_PUT_MAX:
      return there > with ? there : with;
    case BS_PUT_MIN:
      return there < with ? there : with;
    default:
      return (int64_t)((uint64_t)there + (uint64_t)with);
  }
}
CUDA_FN int put_is_float(uint32_t dtype) {
  return dtype == BS_F64 || dtype == BS_F32 || dtype == BS_F16 || dtype == BS_BF16 || dtype == BS_F8E4M3 ||
         dtype == BS_F8E5M2;
}

CUDA_FN void put_fold_floats(const put_args *a, const put_at *p) {
  const uint32_t dtype = a->in.small.dtype;
  const int64_t line = p->from - put_far(a, &a->order_small, p->position);
  double there = cuda_load_f64(dtype, a->in.large.data, p->to);
  CUDA_ROLL
  for (int64_t j = p->position; j < a->order.count; j = put_search(a, p, j + 1, a->order.count)) {
    const double with = cuda_load_f64(dtype, a->in.small.data, line + put_far(a, &a->order_small, j));
    there = cuda_f64_of_bits(dtype, cuda_bits_of_f64(dtype, put_combine_float(a->how, there, with)));
  }
  cuda_store_f64(dtype, a->in.large.data, p->to, there);
}
/* The low bits of a sum or a product are those of the wrapped ones, so only the last one is cut. */
CUDA_FN void put_fold_whole(const put_args *a, const put_at *p) {
  const uint32_t dtype = a->in.small.dtype;
  const int64_t line = p->from - put_far(a, &a->order_small, p->position);
  int64_t there = cuda_load_i64(dtype, a->in.large.data, p->to);
  CUDA_ROLL
  for (int64_t j = p->position; j < a->order.count; j = put_search(a, p, j + 1, a->order.count)) {
    const int64_t with = cuda_load_i64(dtype, a->in.small.data, line + put_far(a, &a->order_small, j));
    there = put_combine_whole(a->how, there, with);
  }
  const cuda_raw raw = {{(uint32_t)there, (uint32_t)((uint64_t)there >> 32), 0, 0}};
  cuda_put(cuda_spread_element(&a->in.large, p->to), &raw, a->in.large.size, 1);
}

CUDA_FN void put_fold_thread(const put_args *a, int64_t t) {
  if (t >= a->in.space.count) return;
  const put_at p = put_start(a, t);
  if (p.place < 0 || put_search(a, &p, 0, p.position) < p.position) return;
  if (put_is_float(a->in.small.dtype))
    put_fold_floats(a, &p);
  else
    put_fold_whole(a, &p);
}
#endif
