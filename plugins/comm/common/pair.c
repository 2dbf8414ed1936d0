/* SPDX-License-Identifier: MIT
 *
 * pair.c - see pair.h. Sums go over the other's inputs because of the caches: a line that both have read must
 * be taken back from both before it can be written, one line after another, which takes longer than all the
 * rest. Here a line is written by the one who has just read it, and then read and written again by its owner.
 */
#include "pair.h"

static const char *in_at(const bs_coll_call *call, uint64_t row, uint64_t col) {
  return (const char *)call->in +
         ((int64_t)row * call->in_stride + (int64_t)col) * (int64_t)BS_DTYPE_BYTES(call->dtype_in);
}
static char *out_at(const bs_coll_call *call, uint64_t row, uint64_t col) {
  return (char *)call->out +
         ((int64_t)row * call->out_stride + (int64_t)col) * (int64_t)BS_DTYPE_BYTES(call->dtype_out);
}

/* Elements without gaps, of ranks 0 and 1. `out` may be my input; `over` is the other's. */
static int32_t reduce_run(thr_reduction *red, const bs_coll_call *call, const char *zero, const char *one,
                          char *out, char *over, uint64_t n) {
  const uint64_t size = BS_DTYPE_BYTES(call->dtype_in);
  if (thr_sums_f32(call)) {
    red->world->kernels.add2_both_f32((float *)(void *)out, (float *)(void *)over,
                                      (const float *)(const void *)zero, (const float *)(const void *)one, n);
    return BS_OK;
  }
  int32_t rc = BS_OK;
  for (uint64_t at = 0; rc == BS_OK && at < n; at += THR_CHUNK) {
    const uint64_t part = n - at < THR_CHUNK ? n - at : THR_CHUNK;
    rc = thr_reduction_first(red, zero + at * size, part);
    if (rc == BS_OK) rc = thr_reduction_add(red, one + at * size, part);
    if (rc == BS_OK) rc = thr_reduction_store(red, out + at * size, part);
    if (rc == BS_OK) memcpy(over + at * size, out + at * size, part * size);
  }
  return rc;
}

int32_t pair_reduce(const thr_world *math, const bs_coll_call *call, uint32_t me, pair_slice slice,
                    void *theirs) {
  const int dense = call->in_stride == (int64_t)call->count && call->out_stride == (int64_t)call->count;
  const uint64_t cols = dense ? call->rows * call->count : call->count;
  char *other = theirs;
  thr_reduction red;
  int32_t rc = thr_reduction_init(&red, math, call, NULL);
  for (uint64_t at = slice.begin; rc == BS_OK && at < slice.end;) {
    const uint64_t row = at / cols, col = at % cols;
    const uint64_t part = cols - col < slice.end - at ? cols - col : slice.end - at;
    const char *mine = in_at(call, row, col);
    rc = reduce_run(&red, call, me == 0 ? mine : other, me == 0 ? other : mine, out_at(call, row, col), other,
                    part);
    other += part * BS_DTYPE_BYTES(call->dtype_in);
    at += part;
  }
  return rc;
}
