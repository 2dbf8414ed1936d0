/* SPDX-License-Identifier: MIT
 * all_reduce and reduce_scatter of the communicator "threads" against a plain reference, element by
 * element: dtypes, sizes (both algorithms), world sizes, in place, row strides, reduce dtypes, min and max.
 */
#include "ranks.h"
#include "tests/run_tests.h"

#include <math.h>

static const uint32_t worlds[] = {1, 2, 3, 4, 5, 8};
static const uint32_t dtypes[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_I64, BS_I32, BS_I8};
static const uint64_t sizes[] = {0, 1, 7, 333, 1025, 20011};

/* The bits of every rank's output, by case: all must be equal. */
static uint64_t bits_seen[16][512];
static uint32_t case_count[16];

static uint64_t hash_bytes(const void *data, size_t n) {
  const unsigned char *p = data;
  uint64_t h = 7;
  for (size_t i = 0; i < n; ++i) h = h * 1099511628211u + p[i];
  return h;
}

static void check_result(test_rank *t, const bs_coll_call *c, const void *out) {
  uint64_t n = c->rows * c->count;
  for (uint64_t i = 0; i < n; i += step_for(n)) {
    int64_t at = (int64_t)(i / c->count) * c->out_stride + (int64_t)(i % c->count);
    double got = bs_load_f64(c->dtype_out, out, at);
    double want = reduced(c->dtype_in, c->reduce_dtype, c->dtype_out, t->size, i);
    ck_assert_msg(got == want, "rank %u of %u dtype %04x->%04x->%04x n %llu element %llu: %.17g, not %.17g",
                  t->rank, t->size, c->dtype_in, c->reduce_dtype, c->dtype_out, (unsigned long long)n,
                  (unsigned long long)i, got, want);
  }
}

static void one_all_reduce(test_rank *t, uint32_t in, uint32_t reduce, uint32_t out, uint64_t rows,
                           uint64_t count, int64_t pad, int in_place) {
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, in, rows, count, "reduce");
  c.dtype_out = out;
  c.reduce_dtype = reduce;
  c.in_stride = (int64_t)count + pad;
  c.out_stride = in_place ? c.in_stride : (int64_t)count + 2 * pad;
  size_t in_bytes = (size_t)(rows * (uint64_t)c.in_stride) * BS_DTYPE_BYTES(in);
  size_t out_bytes = (size_t)(rows * (uint64_t)c.out_stride) * BS_DTYPE_BYTES(out);
  void *x = calloc(1, in_bytes + 1), *y = in_place ? x : calloc(1, out_bytes + 1);
  fill(in, x, t->rank, rows, count, c.in_stride);
  c.in = x;
  c.out = y;
  must(t, t->comm->all_reduce(t->handle, &c, &t->err));
  check_result(t, &c, y);
  bits_seen[t->rank][case_count[t->rank]++ % 512] = hash_bytes(y, out_bytes);
  if (y != x) free(y);
  free(x);
}

static void all_reduce_body(test_rank *t) {
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d) {
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s)
      one_all_reduce(t, dtypes[d], dtypes[d], dtypes[d], 1, sizes[s], 0, s % 2 == 0);
    one_all_reduce(t, dtypes[d], dtypes[d], dtypes[d], 5, 13, 3, 0);
    one_all_reduce(t, dtypes[d], dtypes[d], dtypes[d], 5, 13, 3, 1);
    one_all_reduce(t, dtypes[d], dtypes[d], dtypes[d], 67, 129, 5, 0);
    one_all_reduce(t, dtypes[d], dtypes[d], dtypes[d], 67, 129, 5, 1);
    one_all_reduce(t, dtypes[d], dtypes[d], dtypes[d], 67, 129, 0, 0);
  }
  static const uint32_t mixed[][3] = {
      {BS_F32, BS_BF16, BS_F32}, {BS_BF16, BS_F32, BS_BF16}, {BS_F16, BS_F32, BS_F16},
      {BS_BF16, BS_F32, BS_F32}, {BS_F32, BS_F64, BS_F32},   {BS_F32, BS_F16, BS_BF16},
      {BS_I8, BS_I32, BS_I32},   {BS_F64, BS_F32, BS_F64},   {BS_F32, BS_F8E5M2, BS_F32}};
  for (size_t m = 0; m < sizeof mixed / sizeof mixed[0]; ++m) {
    one_all_reduce(t, mixed[m][0], mixed[m][1], mixed[m][2], 1, 37, 0, 0);
    one_all_reduce(t, mixed[m][0], mixed[m][1], mixed[m][2], 3, 3001, 1, 0);
  }
}

START_TEST(test_all_reduce) {
  test_rank ranks[16];
  uint32_t size = worlds[_i];
  run_ranks(size, all_reduce_body, NULL, ranks);
  ck_assert_uint_gt(case_count[0], 90);
  for (uint32_t r = 1; r < size; ++r) {
    ck_assert_uint_eq(case_count[r], case_count[0]);
    for (uint32_t k = 0; k < case_count[0]; ++k)
      ck_assert_msg(bits_seen[r][k] == bits_seen[0][k], "case %u: rank %u has other bits than rank 0", k, r);
  }
}
END_TEST

static void one_reduce_scatter(test_rank *t, uint32_t dtype, uint64_t rows, uint64_t base, int64_t pad) {
  uint64_t counts[16], total = 0, first = 0;
  for (uint32_t r = 0; r < t->size; ++r) {
    counts[r] = base == 0 ? 0 : (base + r * 3u) % (2u * base + 1u); /* uneven */
    if (r < t->rank) first += counts[r];
    total += counts[r];
  }
  bs_coll_call c = make_call(BS_COLL_REDUCE_SCATTER, dtype, rows, 0, "scatter");
  c.counts = counts;
  c.in_stride = (int64_t)total + pad;
  c.out_stride = (int64_t)counts[t->rank] + pad;
  size_t size = BS_DTYPE_BYTES(dtype);
  void *x = calloc(1, rows * (uint64_t)c.in_stride * size + 1);
  void *y = calloc(1, rows * (uint64_t)c.out_stride * size + 1);
  fill(dtype, x, t->rank, rows, total, c.in_stride);
  c.in = x;
  c.out = y;
  must(t, t->comm->reduce_scatter(t->handle, &c, &t->err));
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t col = 0; col < counts[t->rank]; col += step_for(rows * total)) {
      double got = bs_load_f64(dtype, y, (int64_t)row * c.out_stride + (int64_t)col);
      double want = reduced(dtype, dtype, dtype, t->size, row * total + first + col);
      ck_assert_msg(got == want, "rank %u row %llu col %llu: %g, not %g", t->rank, (unsigned long long)row,
                    (unsigned long long)col, got, want);
    }
  }
  free(x);
  free(y);
}

static void reduce_scatter_body(test_rank *t) {
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d) {
    one_reduce_scatter(t, dtypes[d], 1, 0, 0);
    one_reduce_scatter(t, dtypes[d], 1, 1, 0);
    one_reduce_scatter(t, dtypes[d], 4, 11, 2);
    one_reduce_scatter(t, dtypes[d], 3, 2050, 0);
  }
}

START_TEST(test_reduce_scatter) {
  test_rank ranks[16];
  run_ranks(worlds[_i], reduce_scatter_body, NULL, ranks);
}
END_TEST

/* K16: 257 and 1 in bf16 are 256 and 1, and 256 + 1 rounds to 256; in f32 the sum is 258. */
static void k16_body(test_rank *t) {
  static const uint32_t reduce[] = {BS_BF16, BS_F32};
  static const float want[] = {256.0f, 258.0f};
  for (int i = 0; i < 2; ++i) {
    float x = t->rank == 0 ? 257.0f : 1.0f, y = 0.0f;
    bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, 1, "k16");
    c.reduce_dtype = reduce[i];
    c.in = &x;
    c.out = &y;
    must(t, t->comm->all_reduce(t->handle, &c, &t->err));
    ck_assert_float_eq(y, want[i]);
  }
}
START_TEST(test_k16) {
  test_rank ranks[16];
  run_ranks(2, k16_body, NULL, ranks);
}
END_TEST

static void extremes_body(test_rank *t) {
  for (uint32_t op = BS_REDUCE_MAX; op <= BS_REDUCE_MIN; ++op) {
    int32_t i[3] = {(int32_t)t->rank, -(int32_t)t->rank, 5};
    float f[3] = {(float)t->rank * 0.5f, -(float)t->rank, t->rank == 1 ? (float)NAN : 1.0f};
    int32_t last = (int32_t)t->size - 1;
    bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_I32, 1, 3, "extremes");
    c.reduce_op = op;
    c.in = c.out = i;
    must(t, t->comm->all_reduce(t->handle, &c, &t->err));
    ck_assert_int_eq(i[0], op == BS_REDUCE_MAX ? last : 0);
    ck_assert_int_eq(i[1], op == BS_REDUCE_MAX ? 0 : -last);
    ck_assert_int_eq(i[2], 5);
    c = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, 3, "extremes");
    c.reduce_op = op;
    c.in = c.out = f;
    must(t, t->comm->all_reduce(t->handle, &c, &t->err));
    ck_assert_float_eq(f[0], op == BS_REDUCE_MAX ? (float)last * 0.5f : 0.0f);
    ck_assert(f[2] != f[2]); /* a NaN is not lost */
  }
  int8_t w = 100; /* integers wrap */
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_I8, 1, 1, "wrap");
  c.in = c.out = &w;
  must(t, t->comm->all_reduce(t->handle, &c, &t->err));
  ck_assert_int_eq(w, (int8_t)(uint8_t)(100u * t->size));
}
START_TEST(test_extremes) {
  test_rank ranks[16];
  run_ranks(3, extremes_body, NULL, ranks);
}
END_TEST

/* Refused on every rank before anybody waits. */
static void refused_body(test_rank *t) {
  uint8_t b = 1;
  bs_coll_call c = make_call(BS_COLL_ALL_REDUCE, BS_BOOL, 1, 1, "bool");
  c.in = c.out = &b;
  ck_assert_int_eq(t->comm->all_reduce(t->handle, &c, &t->err), BS_UNSUPPORTED);
  c.dtype_in = 0x7777;
  c.reduce_dtype = BS_F32;
  ck_assert_int_eq(t->comm->all_reduce(t->handle, &c, &t->err), BS_UNSUPPORTED);
}
START_TEST(test_refused) {
  test_rank ranks[16];
  run_ranks(2, refused_body, NULL, ranks);
}
END_TEST

int main(void) {
  Suite *s = suite_create("threads reduce");
  TCase *c = tcase_create("reduce");
  tcase_add_unchecked_fixture(c, open_comm, close_comm);
  tcase_add_loop_test(c, test_all_reduce, 0, TEST_COUNT(worlds));
  tcase_add_loop_test(c, test_reduce_scatter, 0, TEST_COUNT(worlds));
  tcase_add_test(c, test_k16);
  tcase_add_test(c, test_extremes);
  tcase_add_test(c, test_refused);
  suite_add_tcase(s, c);
  return run_suite(s);
}
