/* SPDX-License-Identifier: MIT
 * plain.h - the cuda plugin's ops without a driver: host memory stands for device memory and a launch runs
 * the kernel's CPU twin on the spot. What is asked is the arithmetic and the index maths of the kernels and
 * of the host's side of the ops; that copies and launches are asynchronous is the stand-in's to ask.
 *
 * Every tensor ends or begins at a page that cannot be touched: a read outside ends the test with a signal.
 */
#ifndef BS_TESTS_CUDA_PLAIN_H
#define BS_TESTS_CUDA_PLAIN_H
#include "plugins/cuda/ops/ops.h"
#include "tests/op/op_fixture.h"

/* Where a tensor's data lies between its two forbidden pages. */
enum { PL_FIRST = 0, PL_LAST, PL_ODD, PL_PLACES };

typedef struct pl {
  fx f; /* ref, and the host of both */
  cuda_state state;
  cuda_device device;
  bs_exec exec; /* whose device is that one */
  int64_t launches, blocks;
} pl;

void pl_open(pl *p);
void pl_close(pl *p);

/* A tensor of which every byte that is no element's must stay. */
typedef struct pl_tensor {
  bs_tensor t;
  bs_tensor_desc d;
  unsigned char *pages; /* between the forbidden ones */
  uint64_t bytes;
} pl_tensor;

/* PL_FIRST: data begins at a page; PL_LAST: its last element ends at one; PL_ODD: an element behind the
 * page's begin, so that it is aligned to its element and no more. strides NULL: dense. */
void pl_make(pl_tensor *out, uint32_t dtype, uint32_t rank, const int64_t *dims, const int64_t *strides,
             int where);
void pl_matrix(pl_tensor *out, uint32_t dtype, int64_t rows, int64_t cols, int64_t row, int64_t col,
               int where);
void pl_free(pl_tensor *t);
/* The same bytes; both are of one layout. */
void pl_copy(pl_tensor *to, const pl_tensor *from);
/* Any bit pattern, special values often. */
void pl_fill_bits(pl_tensor *t, uint64_t *seed);
/* Numbers about 1, and one in `rare` special (0: none). */
void pl_fill(pl_tensor *t, uint64_t *seed, int64_t rare);
double pl_get(const pl_tensor *t, int64_t r, int64_t c);
void pl_set(pl_tensor *t, int64_t r, int64_t c, double v);
/* All bytes of both, what lies between and beside their elements too. */
void pl_same_bits(const pl_tensor *got, const pl_tensor *want, const char *what);
/* The same bytes but for elements: these within `units` in the last place of f32 (of f64 where `exact` says
 * so) and one rounding to their dtype; NaN where the other is NaN. */
void pl_near(pl_tensor *got, pl_tensor *want, double units, uint32_t of, const char *what);

/* Prepare and run by ref's implementation, and by the plugin's. */
void pl_run_ref(pl *p, const bs_op_query *q, void *packed, bs_tensor *const *args);
void pl_run_cuda(pl *p, const bs_op_impl *impl, const bs_op_query *q, void *packed, bs_tensor *const *args);
#endif
