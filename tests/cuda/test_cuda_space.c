/* SPDX-License-Identifier: MIT
 * test_cuda_space.c - the walk over tensors of up to six dims (plugins/cuda/ops/space.h) against counting:
 * each element of a space has the offsets that its coordinates give. */
#include <string.h>

#include "plugins/cuda/ops/space.h"
#include "tests/run_tests.h"

enum { VIEWS = 3, CASES = 2000 };

static uint64_t random_state;
static uint64_t next(uint64_t below) {
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (random_state >> 33) % below;
}

/* A tensor of the space: dense, with dims of 1 or fewer dims that repeat, turned, or with gaps. */
static bs_tensor make_tensor(uint32_t rank, const int64_t *dims) {
  bs_tensor t = {.struct_size = (uint32_t)sizeof t, .dtype = BS_F32, .data = &random_state};
  const uint64_t kind = next(4);
  int64_t step = 1;
  t.rank = kind == 1 ? (uint32_t)next(rank + 1) : rank;
  for (uint32_t d = t.rank; d-- > 0;) {
    const int64_t dim = dims[rank - t.rank + d];
    t.dims[d] = kind == 1 && next(2) == 0 ? 1 : dim;
    t.strides[d] = step;
    step *= t.dims[d] > 0 ? t.dims[d] : 1;
    if (kind == 2) step += (int64_t)next(3); /* gaps */
  }
  if (kind == 3 && rank > 1) {
    const int64_t swap = t.strides[0];
    t.strides[0] = t.strides[rank - 1];
    t.strides[rank - 1] = swap;
  }
  return t;
}

/* Where element `at` of the space lies in a tensor. */
static int64_t offset_of(const bs_tensor *t, uint32_t rank, const int64_t *at) {
  int64_t offset = 0;
  for (uint32_t d = 0; d < t->rank; d++)
    offset += (t->dims[d] == 1 ? 0 : at[rank - t->rank + d]) * t->strides[d];
  return offset;
}

START_TEST(each_element_is_where_counting_finds_it) {
  for (int c = 0; c < CASES; c++) {
    const uint32_t rank = (uint32_t)next(CUDA_SPACE_DIMS + 1), keep = rank > 0 ? (uint32_t)next(2) : 0;
    int64_t dims[CUDA_SPACE_DIMS] = {0}, at[CUDA_SPACE_DIMS] = {0}, found[CUDA_SPACE_DIMS];
    bs_tensor tensors[VIEWS];
    cuda_spread spreads[VIEWS];
    cuda_space space;
    int64_t count = 1;
    for (uint32_t d = 0; d < rank; d++) count *= dims[d] = (int64_t)next(c % 50 == 0 ? 3 : 5) + (c % 50 != 0);
    for (int i = 0; i < VIEWS; i++) {
      tensors[i] = make_tensor(rank, dims);
      spreads[i] = cuda_spread_of(&tensors[i], rank, dims);
    }
    cuda_space_make(rank, dims, keep, spreads, VIEWS, &space);
    ck_assert_int_eq(space.count, count);
    if (keep == 1)
      ck_assert_int_eq(space.dims[CUDA_SPACE_DIMS - 1].by, dims[rank - 1] > 0 ? dims[rank - 1] : 1);
    for (int64_t i = 0; i < count; i++) {
      cuda_space_at(&space, i, found);
      for (int v = 0; v < VIEWS; v++)
        ck_assert_msg(cuda_spread_offset(&spreads[v], found) == offset_of(&tensors[v], rank, at),
                      "case %d, element %lld of view %d", c, (long long)i, v);
      for (uint32_t d = rank; d-- > 0;) {
        if (++at[d] < dims[d]) break;
        at[d] = 0;
      }
    }
  }
}
END_TEST

int main(void) {
  const test_case rows[] = {{each_element_is_where_counting_finds_it}, {0}};
  return run_tests("cuda_space", rows, (test_setup){.timeout = 30});
}
