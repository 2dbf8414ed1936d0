/* SPDX-License-Identifier: MIT
 * pair.h - the arithmetic of an all_reduce of two processes through shared memory: each shows the slice that
 * the other reduces, the other writes the sums over it, and nothing else is shown. Used by shm and mpi. */
#ifndef BS_COMM_PAIR_H
#define BS_COMM_PAIR_H
#include "../threads/threads.h"

/* Sums take the place of inputs, so both must be of a size. */
static inline int pair_serves(const bs_coll_call *call) {
  return BS_DTYPE_BYTES(call->dtype_in) == BS_DTYPE_BYTES(call->dtype_out);
}

/* Of elements [begin, end): where the slice of rank `me` of the two begins and ends; whole cache lines. */
typedef struct pair_slice {
  uint64_t begin, end;
} pair_slice;
static inline pair_slice pair_slice_of(uint64_t begin, uint64_t end, uint32_t me) {
  const uint64_t half = ((end - begin + 1u) / 2u + 63u) & ~(uint64_t)63u;
  const uint64_t middle = half < end - begin ? begin + half : end;
  return me == 0 ? (pair_slice){begin, middle} : (pair_slice){middle, end};
}

/* Most elements of a call that are shared at a time, when one rank has room for so many bytes. */
static inline uint64_t pair_most(const bs_coll_call *call, uint64_t room) {
  return 2u * (room / BS_DTYPE_BYTES(call->dtype_in) & ~(uint64_t)63u);
}

/* The slice of rank `me`: my input, where it lies, and `theirs`, dense, reduced in rank order into my output
 * and over `theirs`. The bits are those of any other reduction. */
int32_t pair_reduce(const thr_world *math, const bs_coll_call *call, uint32_t me, pair_slice slice,
                    void *theirs);
#endif
