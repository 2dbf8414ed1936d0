/* SPDX-License-Identifier: MIT
 * test_cuda_contract.c - contract of the cuda plugin by the twins of its kernels against ref, to the bit: the
 * numbers are small integers, so that each sum is exact in f32. Batches that repeat, turned and spread
 * matrices, bias of a row and of a matrix, alpha, integers, empty shapes. */
#include "plain.h"
#include "tests/run_tests.h"

enum { CASES = 300 };

/* Whole numbers from -4 to 4 at each element; a dim of 1 or a shape of any rank. */
static void fill(pl_tensor *t, uint64_t *seed) {
  int64_t at[BS_MAX_DIMS] = {0}, count = 1;
  for (uint32_t d = 0; d < t->t.rank; d++) count *= t->t.dims[d];
  for (int64_t i = 0; i < count; i++) {
    int64_t offset = 0;
    for (uint32_t d = 0; d < t->t.rank; d++) offset += at[d] * t->t.strides[d];
    bs_store_f64(t->t.dtype, t->t.data, offset, (double)fx_below(seed, 9) - 4);
    for (uint32_t d = t->t.rank; d-- > 0;) {
      if (++at[d] < t->t.dims[d]) break;
      at[d] = 0;
    }
  }
}

/* A tensor [dims]: dense, turned in its last two dims, or with gaps. */
static void make(pl_tensor *t, uint32_t dtype, uint32_t rank, const int64_t *dims, uint64_t *seed) {
  int64_t strides[BS_MAX_DIMS], step = 1;
  const int64_t how = fx_below(seed, 3);
  for (uint32_t d = rank; d-- > 0;) {
    strides[d] = step;
    step = step * (dims[d] > 0 ? dims[d] : 1) + (how == 2 ? fx_below(seed, 3) : 0);
  }
  if (how == 1) {
    strides[rank - 1] = dims[rank - 2] > 0 ? dims[rank - 2] : 1;
    strides[rank - 2] = 1;
  }
  pl_make(t, dtype, rank, dims, strides, (int)fx_below(seed, 3));
  fill(t, seed);
}

static int64_t size_of(uint64_t *seed, int64_t most) {
  return fx_below(seed, 20) == 0 ? 0 : 1 + fx_below(seed, most);
}

static void one(pl *p, uint64_t *seed) {
  static const uint32_t floats[] = {BS_F32, BS_BF16, BS_F16, BS_F64},
                        whole[] = {BS_I32, BS_I64, BS_U8, BS_I8};
  const int integers = fx_below(seed, 5) == 0;
  const uint32_t rank = 2 + (uint32_t)fx_below(seed, 4);
  if (rank < 2 || rank > BS_MAX_DIMS) return; /* which an analyzer does not know */
  const int64_t m = size_of(seed, 70), n = size_of(seed, 70), k = size_of(seed, 40);
  int64_t a[BS_MAX_DIMS], b[BS_MAX_DIMS], y[BS_MAX_DIMS], bias[BS_MAX_DIMS];
  for (uint32_t d = 0; d + 2 < rank; d++) {
    y[d] = 1 + fx_below(seed, 3);
    a[d] = fx_below(seed, 4) == 0 ? 1 : y[d];
    b[d] = fx_below(seed, 4) == 0 ? 1 : y[d];
  }
  a[rank - 2] = y[rank - 2] = m;
  a[rank - 1] = b[rank - 2] = k;
  b[rank - 1] = y[rank - 1] = n;
  for (uint32_t d = 0; d < rank; d++) bias[d] = fx_below(seed, 2) == 0 ? 1 : y[d];
  const uint32_t type = integers ? whole[fx_below(seed, 4)] : floats[fx_below(seed, 4)];
  const uint32_t out = integers ? whole[fx_below(seed, 2)] : floats[fx_below(seed, 2) * 3];
  const int has_bias = fx_below(seed, 2) == 0;
  pl_tensor ta, tb, tbias, got, want;
  make(&ta, type, rank, a, seed);
  make(&tb, type, rank, b, seed);
  make(&tbias, integers ? BS_I32 : BS_F32, rank, bias, seed);
  make(&got, out, rank, y, seed);
  pl_make(&want, out, rank, y, got.t.strides, PL_FIRST);
  const bs_tensor_desc *descs[4] = {&ta.d, &tb.d, has_bias ? &tbias.d : NULL, &got.d};
  bs_op_query q = fx_query("contract", descs, 4);
  q.numbers[0] = integers ? 1 : 0.5 * (double)(1 + fx_below(seed, 3));
  q.activation = fx_below(seed, 3) == 0 ? BS_ACT_RELU : BS_ACT_NONE;
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  (void)cuda_contract.supports(&p->state, &q, &answer);
  const int by_row = has_bias && bias[rank - 2] != 1 && q.activation != BS_ACT_NONE;
  ck_assert_int_eq(answer.level == BS_LEVEL_NO, by_row);
  if (!by_row) {
    pl_run_ref(p, &q, NULL, (bs_tensor *[]){&ta.t, &tb.t, has_bias ? &tbias.t : NULL, &want.t});
    pl_run_cuda(p, &cuda_contract, &q, NULL,
                (bs_tensor *[]){&ta.t, &tb.t, has_bias ? &tbias.t : NULL, &got.t});
    int64_t at[BS_MAX_DIMS] = {0}, count = 1;
    for (uint32_t d = 0; d < rank; d++) count *= y[d];
    for (int64_t i = 0; i < count; i++) {
      int64_t offset = 0;
      for (uint32_t d = 0; d < rank; d++) offset += at[d] * got.t.strides[d];
      const double g = bs_load_f64(out, got.t.data, offset), w = bs_load_f64(out, want.t.data, offset);
      ck_assert_msg(g == w, "element %lld is %g, want %g", (long long)i, g, w);
      for (uint32_t d = rank; d-- > 0;) {
        if (++at[d] < y[d]) break;
        at[d] = 0;
      }
    }
  }
  pl_free(&ta);
  pl_free(&tb);
  pl_free(&tbias);
  pl_free(&got);
  pl_free(&want);
}

START_TEST(as_ref) {
  pl p;
  uint64_t seed = 71;
  pl_open(&p);
  for (int i = 0; i < CASES; i++) one(&p, &seed);
  pl_close(&p);
}
END_TEST

/* A batch that would be too many launches, and an integer alpha. */
START_TEST(refused) {
  pl p;
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  pl_open(&p);
  bs_tensor_desc a = {.struct_size = (uint32_t)sizeof a,
                      .dtype = BS_F32,
                      .rank = 3,
                      .dims = {5000, 2, 2},
                      .strides = {4, 2, 1}};
  const bs_tensor_desc *descs[4] = {&a, &a, NULL, &a};
  bs_op_query q = fx_query("contract", descs, 4);
  q.numbers[0] = 1;
  (void)cuda_contract.supports(&p.state, &q, &answer);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  a.dims[0] = 2;
  a.dtype = BS_I64;
  q.numbers[0] = 2;
  (void)cuda_contract.supports(&p.state, &q, &answer);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  q.numbers[0] = 1;
  (void)cuda_contract.supports(&p.state, &q, &answer);
  ck_assert_uint_ne(answer.level, BS_LEVEL_NO);
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case rows[] = {{as_ref}, {refused}, {0}};
  return run_tests("cuda_contract", rows, (test_setup){.timeout = 60});
}
