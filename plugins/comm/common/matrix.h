/* SPDX-License-Identifier: MIT
 * matrix.h - copies pieces of a caller's matrix to and from dense memory. Used by shm and mpi. */
#ifndef BS_COMM_MATRIX_H
#define BS_COMM_MATRIX_H
#include "../threads/threads.h"

/* Its elements are numbered row by row. */
typedef struct comm_matrix {
  char *data;
  int64_t stride;
  uint64_t cols;
  uint32_t dtype;
} comm_matrix;

/* `cols` columns of the call's matrices, from `first` on. */
comm_matrix comm_in(const bs_coll_call *call, uint64_t first, uint64_t cols);
comm_matrix comm_out(const bs_coll_call *call, uint64_t first, uint64_t cols);
/* Elements [begin, end) to dense memory of the same dtype, and from dense memory of any. */
void comm_pack(const thr_world *math, const comm_matrix *from, uint64_t begin, uint64_t end, void *dense);
int32_t comm_unpack(const thr_world *math, const comm_matrix *to, uint64_t begin, uint64_t end,
                    uint32_t src_dtype, const void *dense);
#endif
