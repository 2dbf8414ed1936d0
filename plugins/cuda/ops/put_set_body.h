/* SPDX-License-Identifier: MIT
 * put_set_body.h - writes updates to the places that an index names. Of positions that name one place the
 * last one counts, so a thread with an earlier one writes nothing. An index outside writes nothing. */
#ifndef BS_PLUGIN_CUDA_PUT_SET_BODY_H
#define BS_PLUGIN_CUDA_PUT_SET_BODY_H
#include "put_body.h"

CUDA_FN void put_set_thread(const put_args *a, int64_t t) {
  if (t >= a->in.space.count) return;
  const put_at p = put_start(a, t);
  if (p.place < 0 || put_search(a, &p, p.position + 1, a->order.count) < a->order.count) return;
  indexed_copy(cuda_spread_element(&a->in.small, p.from), cuda_spread_element(&a->in.large, p.to),
               a->in.small.size);
}
#endif
