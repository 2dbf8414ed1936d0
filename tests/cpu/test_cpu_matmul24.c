/* SPDX-License-Identifier: MIT
 *
 * test_cpu_matmul24.c - the cpu plugin's products over 2:4 weights, on every instruction set that this
 * machine has: values within the bound of their sums (exact on integers), bits that depend on neither the
 * team, the other tokens nor the wide instruction set, one stream of positions for both halves, and what is
 * refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu_24_case.h"
#include "tests/run_tests.h"

static const char *const sets[] = {"portable", "avx2", "avx512", "avx512_bf16"};
enum { SETS = sizeof sets / sizeof sets[0] };

/* Edges of every loop: tokens of a tile, panels, units of 32 columns, blocks of 64, chunks. */
static const struct {
  int64_t B, N, K;
} sizes[] = {{1, 1, 1},       {1, 16, 4},    {2, 17, 33},    {3, 40, 64},   {5, 33, 66},   {8, 16, 130},
             {9, 18, 31},     {12, 48, 97},  {13, 20, 64},   {16, 16, 128}, {17, 35, 70},  {33, 17, 96},
             {48, 16, 65},    {64, 40, 129}, {65, 31, 100},  {129, 20, 37}, {64, 700, 12}, {4, 1300, 8},
             {130, 34, 4},    {7, 130, 257}, {2, 5, 0},      {70, 3, 0},    {3, 20, 1290}, {66, 40, 300},
             {20, 1060, 100}, {3, 530, 200}, {131, 290, 270}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static const uint32_t types[] = {BS_F32, BS_BF16, BS_F16};

static void check_sizes(uint32_t op, const char *isa, int size) {
  cx c = {0};
  cx_open(&c, isa, "off", 1 + (uint32_t)size % 2);
  for (uint32_t i = 0, t = (uint32_t)size % 3; i < 4; i++, t = (t + 1) % 3) {
    f24 s = {.op = op,
             .x_type = types[t],
             .w_type = types[t],
             .y_type = types[(t + i) % 3],
             .B = sizes[size].B,
             .N = sizes[size].N,
             .K = sizes[size].K,
             .half = i & 1,
             .padded = i >> 1 & 1,
             .integers = i == 3,
             .transposable = i == 2 && sizes[size].N % 4 == 0,
             .seed = i};
    if (op != F24_FORWARD) s.w_type = types[(t + 2 * i) % 3];
    if (i == 1) s.begin = 8, s.total = s.K % 4 == 0 ? s.K + 12 : s.K + 8;
    if (i == 2) s.rows = (s.B + 1) / 2;
    if (i >= 2 && op == F24_FORWARD) s.bias = types[i - 1], s.residual = types[t], s.activation = BS_ACT_RELU;
    if (s.integers) s.x_type = s.y_type = op == F24_FORWARD ? s.x_type : BS_F32;
    if (s.integers) s.y_type = BS_F32;
    f24_data d;
    f24_make(&d, &s);
    f24_run(&c, &d);
    f24_free(&d);
  }
  cx_close(&c);
}

START_TEST(values) {
  const char *isa = sets[_i % SETS];
  if (!cx_has_isa(isa)) return;
  for (int size = 0; size < SIZES; size++) check_sizes((uint32_t)(_i / SETS), isa, size);
}
END_TEST

/* The largest products of bytes that there are. */
static void set_bytes(f24_data *d) {
  const f24 *s = &d->shape;
  cx_matrix *in = s->op == F24_DX ? &d->y : &d->x;
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t k = 0; k < in->d.dims[1]; k++) cx_set(in, b, k, b % 2 ? -128 : 127);
  for (int64_t n = 0; n < s->N; n++)
    for (int64_t k = 0; k < d->w.d.dims[1]; k++) cx_set(&d->w, n, k, n % 3 ? -128 : 127);
}

/* Bytes, to the bit, with all of the epilogue. */
START_TEST(integers) {
  if (!cx_has_isa(sets[_i])) return;
  cx c = {0};
  cx_open(&c, sets[_i], "off", 2);
  for (int size = 0; size < SIZES; size++) {
    f24 s = {.x_type = BS_I8,
             .w_type = BS_I8,
             .y_type = BS_I32,
             .B = sizes[size].B,
             .N = sizes[size].N,
             .K = sizes[size].K,
             .half = (uint32_t)size & 1,
             .bias = size % 3 == 0 ? BS_I32 : 0,
             .residual = size % 3 != 1 ? BS_I32 : 0,
             .activation = size % 2 ? BS_ACT_RELU : BS_ACT_NONE};
    f24_data d;
    f24_make(&d, &s);
    set_bytes(&d);
    f24_run(&c, &d);
    f24_free(&d);
  }
  cx_close(&c);
}
END_TEST

/* dX of bytes, to the bit: few tokens and many, drawn values and the largest, runs of a whole dX, fewer
 * tokens than prepared for. */
START_TEST(dx_of_integers) {
  if (!cx_has_isa(sets[_i])) return;
  cx c = {0};
  cx_open(&c, sets[_i], "off", 2);
  for (int i = 0; i < 2 * SIZES; i++) {
    const int size = i / 2;
    f24 s = {.op = F24_DX,
             .x_type = BS_I32,
             .w_type = BS_I8,
             .y_type = BS_I8,
             .B = sizes[size].B,
             .N = sizes[size].N,
             .K = sizes[size].K,
             .half = (uint32_t)size & 1,
             .padded = (uint32_t)i & 1,
             .transposable = size % 3 == 0 && sizes[size].N % 4 == 0,
             .seed = (uint64_t)i};
    if (size % 3 == 1) s.begin = 8, s.total = s.K % 4 == 0 ? s.K + 12 : s.K + 8;
    if (size % 4 == 2) s.rows = (s.B + 1) / 2;
    f24_data d;
    f24_make(&d, &s);
    if (i % 2) set_bytes(&d);
    f24_run(&c, &d);
    f24_free(&d);
  }
  cx_close(&c);
}
END_TEST

/* Half of 4500 outputs keep each column: 2250 * 127 * 127 is a whole number that f32 has not. */
START_TEST(long_sums_of_integers) {
  static const int64_t tokens[] = {2, 5, 20};
  if (!cx_has_isa(sets[_i])) return;
  cx c = {0};
  cx_open(&c, sets[_i], "off", 1);
  for (int i = 0; i < 3; i++) {
    const f24 s = {.op = F24_DX,
                   .x_type = BS_I32,
                   .w_type = BS_I8,
                   .y_type = BS_I8,
                   .B = tokens[i],
                   .N = 4500,
                   .K = 36,
                   .transposable = 1};
    bs_error err = BS_ERROR_INIT;
    f24_data d;
    f24_make(&d, &s);
    for (int64_t n = 0; n < s.N; n++) {
      for (int64_t b = 0; b < s.B; b++) cx_set(&d.y, b, n, 127);
      for (int64_t k = 0; k < s.K; k++) cx_set(&d.w, n, k, 127);
    }
    void *packed = f24_pack(&c, &d);
    ck_assert_int_eq(f24_try(&c, &d, packed, &err), BS_OK);
    for (int64_t j = 0; j < s.B * s.K; j++)
      ck_assert_double_eq(cx_get(&d.x, j / s.K, j % s.K), 2250.0 * 127 * 127);
    f24_packed_free(&c, packed);
    f24_free(&d);
  }
  cx_close(&c);
}
END_TEST

/* The same bits for any team, for each token alone, and on avx2 and avx512. */
START_TEST(bits_stay) {
  static const char *const wide[] = {"avx2", "avx512"};
  static const uint32_t widths[] = {1, 2, 5};
  f24 s = {
      .op = (uint32_t)_i, .x_type = BS_F32, .w_type = BS_BF16, .y_type = BS_F32, .B = 70, .N = 130, .K = 330};
  if (_i == F24_FORWARD) s.w_type = BS_F32;
  f24_data first;
  size_t bytes = 0;
  int have = 0;
  f24_make(&first, &s);
  for (int i = 0; i < 2; i++)
    for (int w = 0; w < 3; w++) {
      if (!cx_has_isa(wide[i])) continue;
      cx c = {0};
      f24_data d;
      cx_open(&c, wide[i], "off", widths[w]);
      f24_make(&d, &s);
      f24_run(&c, have ? &d : &first);
      const void *want = f24_result(&first, &bytes), *got = f24_result(have ? &d : &first, &bytes);
      ck_assert_msg(memcmp(want, got, bytes) == 0, "%s, %u members", wide[i], widths[w]);
      have = 1;
      f24_free(&d);
      cx_close(&c);
    }
  f24_free(&first);
}
END_TEST

/* The processor's products of pairs add in the order of all other kernels: but for subnormals, which they
 * take for zero, the bits are the same. */
START_TEST(pairs_are_added_upwards) {
  static const char *const names[] = {"avx512", "avx512_bf16"};
  static const int64_t tokens[] = {1, 3, 16, 17, 70};
  if (!cx_has_isa(names[1])) return;
  for (uint32_t i = 0; i < 2 * sizeof tokens / sizeof tokens[0]; i++) {
    const f24 s = {.op = F24_FORWARD,
                   .x_type = BS_BF16,
                   .w_type = BS_BF16,
                   .y_type = BS_F32,
                   .B = tokens[i / 2],
                   .N = 530,
                   .K = 330,
                   .half = i % 2};
    f24_data d[2];
    const void *y[2];
    size_t bytes = 0;
    for (int k = 0; k < 2; k++) {
      cx c = {0};
      cx_open(&c, names[k], "off", 1);
      f24_make(&d[k], &s);
      f24_run(&c, &d[k]);
      y[k] = f24_result(&d[k], &bytes);
      cx_close(&c);
    }
    ck_assert_msg(memcmp(y[0], y[1], bytes) == 0, "%lld tokens, half %u", (long long)s.B, i % 2);
    f24_free(&d[0]);
    f24_free(&d[1]);
  }
}
END_TEST

/* Each number of tokens takes other tiles; a token's bits are those that it has alone. */
START_TEST(tokens_do_not_touch_each_other) {
  if (!cx_has_isa(sets[_i])) return;
  cx c = {0};
  cx_open(&c, sets[_i], "off", 2);
  for (uint32_t i = 0; i < 2 * 2; i++) {
    const uint32_t op = i % 2 ? F24_DX : F24_FORWARD, type = i / 2 ? BS_BF16 : BS_F32;
    f24 s = {.op = op, .x_type = type, .w_type = type, .y_type = BS_F32, .B = 66, .N = 150, .K = 100};
    if (op == F24_DX) s.x_type = BS_F32;
    static const int64_t rows[] = {1, 2, 3, 5, 8, 9, 12, 13, 16, 17, 24, 25, 32, 33, 40, 48, 49, 64, 65};
    bs_error err = BS_ERROR_INIT;
    f24_data all, some;
    f24_make(&all, &s);
    void *packed = f24_pack(&c, &all);
    ck_assert_int_eq(f24_try(&c, &all, packed, &err), BS_OK);
    const cx_matrix *want = op == F24_DX ? &all.x : &all.y;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
      s.rows = rows[r];
      f24_make(&some, &s);
      ck_assert_int_eq(f24_try(&c, &some, packed, &err), BS_OK);
      const cx_matrix *got = op == F24_DX ? &some.x : &some.y;
      const size_t bytes = (size_t)(rows[r] * got->d.dims[1]) * sizeof(float);
      ck_assert_msg(memcmp(got->t.data, want->t.data, bytes) == 0, "op %u, %lld tokens", op,
                    (long long)rows[r]);
      f24_free(&some);
    }
    f24_packed_free(&c, packed);
    f24_free(&all);
  }
  cx_close(&c);
}
END_TEST

/* dX of two calls that differ in one element of dY, output n of token t, which is no number in the first:
 * where n keeps the column dX is none either, everywhere else both have the same bits. */
static void check_spread(const f24_data *bad, const f24_data *good, int64_t n, int64_t t) {
  for (int64_t b = 0; b < bad->shape.B; b++)
    for (int64_t k = 0; k < bad->shape.K; k++) {
      const double got = cx_get(&bad->x, b, k), want = cx_get(&good->x, b, k);
      const int same = got == want && signbit(got) == signbit(want);
      ck_assert_msg(b == t && f24_place(bad, n, k) >= 0 ? !isfinite(got) : same,
                    "%s: token %lld, column %lld", f24_text(&bad->shape), (long long)b, (long long)k);
    }
}

/* Column 5 has zeros of both signs for weights but in row n, every other number is not zero. */
static void set_weights(f24_data *d, int64_t n) {
  for (int64_t r = 0; r < d->shape.N; r++) cx_set(&d->w, r, 5, r % 2 ? -0.0 : 0.0);
  for (int64_t k = 0; k < d->shape.K; k++) cx_set(&d->w, n, k, 2.0);
}

/* NaN and Inf reach the columns that their output keeps and no other, in tiles of every width and with the
 * last panels missing; zeros of both signs make zeros. */
START_TEST(dx_takes_what_is_kept) {
  static const int64_t tokens[] = {1, 4, 8, 13, 20, 40, 64, 70};
  static const double none[] = {NAN, INFINITY, -INFINITY};
  if (!cx_has_isa(sets[_i])) return;
  cx c = {0};
  cx_open(&c, sets[_i], "off", 2);
  for (int i = 0; i < (int)(sizeof tokens / sizeof tokens[0]); i++) {
    const f24 s = {.op = F24_DX,
                   .x_type = BS_F32,
                   .w_type = types[i % 3],
                   .y_type = BS_F32,
                   .B = tokens[i],
                   .N = 85,
                   .K = 70,
                   .half = (uint32_t)i % 2};
    const int64_t n = 17 * i % 85, t = s.B / 2;
    bs_error err = BS_ERROR_INIT;
    f24_data d[2];
    for (int j = 0; j < 2; j++) {
      f24_make(&d[j], &s);
      set_weights(&d[j], n);
      cx_set(&d[j].y, t, n, j == 0 ? none[i % 3] : 1.0);
      void *packed = f24_pack(&c, &d[j]);
      ck_assert_int_eq(f24_try(&c, &d[j], packed, &err), BS_OK);
      f24_packed_free(&c, packed);
    }
    check_spread(&d[0], &d[1], n, t);
    const double sum = cx_get(&d[1].x, t, 5);
    ck_assert_msg(sum == (f24_place(&d[1], n, 5) >= 0 ? 2.0 : 0.0), "%s: %g", f24_text(&s), sum);
    for (int j = 0; j < 2; j++) f24_free(&d[j]);
  }
  cx_close(&c);
}
END_TEST

/* Both halves of a mask have one stream of positions; zeros, -0 and NaN come back; expanded they are the
 * whole. */
START_TEST(halves_share_positions) {
  cx c = {0};
  f24_data d[2];
  void *packed[2], *state = NULL;
  uint64_t bytes[2];
  bs_error err = BS_ERROR_INIT;
  cx_matrix dense[2];
  cx_open(&c, cx_best_isa(), "off", 2);
  for (uint32_t i = 0; i < 2; i++) {
    const f24 s = {.x_type = BS_F32, .w_type = BS_F32, .y_type = BS_F32, .B = 2, .N = 35, .K = 70, .half = i};
    f24_make(&d[i], &s);
    for (int64_t k = 0; k < 70; k++) cx_set(&d[i].w, 3, k, k % 2 ? -0.0 : 0.0);
    ((uint32_t *)d[i].w.t.data)[70 * 7 + 66] = 0xffc54321u;
    ck_assert_int_eq(f24_try_pack(&c, &d[i], &packed[i], &bytes[i], &err), BS_OK);
    cx_matrix_make(&dense[i], BS_F32, 35, 70, 0);
    ck_assert_int_eq(cx_impl(&c, "matmul24", "packed", &state)->packed_read(packed[i], 0, &d[i].back.t, &err),
                     BS_OK);
    const bs_tensor_desc *args[2] = {&d[i].back.d, &dense[i].d};
    bs_tensor *call[2] = {&d[i].back.t, &dense[i].t};
    bs_op_query q = {.struct_size = sizeof q, .op = "expand24", .nargs = 2, .args = args, .kept = &d[i].kept};
    void *plan = NULL;
    const bs_op_impl *expand = cx_impl(&c, "expand24", "packed", &state);
    ck_assert_int_eq(expand->prepare(state, &c.exec, &q, NULL, &plan, &err), BS_OK);
    ck_assert_int_eq(expand->run(plan, call, 2, NULL, &err), BS_OK);
    expand->plan_free(plan);
  }
  /* 48 rows and 96 columns of two values a group; and two bits for each */
  ck_assert_uint_eq(bytes[0], 48 * 48 * 4 + 48 * 48 / 4);
  ck_assert_uint_eq(bytes[1], 48 * 48 * 4);
  const uint32_t *whole = d[0].w.t.data, *a = dense[0].t.data, *b = dense[1].t.data;
  for (int64_t i = 0; i < 35 * 70; i++) {
    const int first = f24_place(&d[0], i / 70, i % 70) >= 0;
    ck_assert_uint_eq(first ? a[i] : b[i], whole[i]);
    ck_assert_uint_eq(first ? b[i] : a[i], 0);
  }
  /* The second half outlives the first, whose codes it reads. */
  f24_packed_free(&c, packed[0]);
  ck_assert_int_eq(f24_try(&c, &d[1], packed[1], &err), BS_OK);
  f24_packed_free(&c, packed[1]);
  for (int i = 0; i < 2; i++) {
    cx_matrix_free(&dense[i]);
    f24_free(&d[i]);
  }
  cx_close(&c);
}
END_TEST

static char refusal[256]; /* what refuse was told last */

static void refuse(const cx *c, f24_data *d, const char *op, bs_op_query *q, uint32_t reason) {
  bs_op_answer answer = {.struct_size = sizeof answer};
  void *state = NULL;
  const bs_op_impl *impl = cx_impl(c, op, "packed", &state);
  ck_assert_int_eq(impl->supports(state, q, &answer), BS_OK);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  ck_assert_msg(answer.reason == reason, "%s: reason %u (%s)", f24_text(&d->shape), answer.reason,
                answer.text);
  snprintf(refusal, sizeof refusal, "%s", answer.text);
}

START_TEST(refusals) {
  cx c = {0};
  f24_data d;
  const bs_tensor_desc *args[4];
  void *packed = NULL;
  uint64_t bytes = 0;
  bs_error err = BS_ERROR_INIT;
  f24 s = {.x_type = BS_F32, .w_type = BS_F32, .y_type = BS_F32, .B = 2, .N = 20, .K = 40};
  cx_open(&c, cx_best_isa(), "off", 2);
  f24_make(&d, &s);
  bs_op_query q = f24_query(&d, "matmul24", args);
  q.kept = NULL;
  refuse(&c, &d, "matmul24", &q, BS_REASON_SPARSITY);
  q.kept = &d.kept;
  q.workspace_limit = 64;
  refuse(&c, &d, "matmul24", &q, BS_REASON_WORKSPACE);
  q.workspace_limit = 0;
  q.weight_dtype = BS_I8;
  refuse(&c, &d, "matmul24", &q, BS_REASON_DTYPE);
  d.bits[11] = 14;
  ck_assert_int_eq(f24_try_pack(&c, &d, &packed, &bytes, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "not two of four"));
  f24_free(&d);
  s.x_type = s.w_type = BS_I8;
  s.y_type = BS_I32;
  f24_make(&d, &s);
  q = f24_query(&d, "matmul24", args);
  q.accumulate = BS_ACC_F64;
  refuse(&c, &d, "matmul24", &q, BS_REASON_DTYPE);
  f24_free(&d);
  cx_close(&c);
}
END_TEST

/* Of bytes: what backward passes there are, and which there are not. */
START_TEST(refusals_of_integers) {
  cx c = {0};
  f24_data d;
  const bs_tensor_desc *args[4];
  const f24 s = {.op = F24_DX, .x_type = BS_I32, .w_type = BS_I8, .y_type = BS_I8, .B = 2, .N = 20, .K = 40};
  cx_open(&c, cx_best_isa(), "off", 2);
  f24_make(&d, &s);
  bs_op_query q = f24_query(&d, "matmul24_dx", args);
  bs_op_answer answer = {.struct_size = sizeof answer};
  void *state = NULL;
  const bs_op_impl *impl = cx_impl(&c, "matmul24_dx", "packed", &state);
  ck_assert_int_eq(impl->supports(state, &q, &answer), BS_OK);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NATIVE);
  ck_assert_uint_eq(answer.tolerance, BS_TOL_EXACT);
  q.weight_dtype = BS_I32;
  refuse(&c, &d, "matmul24_dx", &q, BS_REASON_DTYPE);
  q.weight_dtype = BS_I8;
  q.accumulate = BS_ACC_F64;
  refuse(&c, &d, "matmul24_dx", &q, BS_REASON_DTYPE);
  q.accumulate = BS_ACC_DEFAULT;
  q.workspace_limit = 64;
  refuse(&c, &d, "matmul24_dx", &q, BS_REASON_WORKSPACE);
  q.workspace_limit = 0;
  q.kept = NULL;
  refuse(&c, &d, "matmul24_dx", &q, BS_REASON_SPARSITY);
  bs_tensor_desc wide = d.y.d;
  wide.dims[1] = 1 << 17; /* of -128 * -128: 2^31 */
  wide.strides[0] = wide.dims[1];
  args[0] = &wide;
  q.kept = &d.kept;
  refuse(&c, &d, "matmul24_dx", &q, BS_REASON_SHAPE);
  bs_tensor_desc x = d.y.d, dw = d.x.d;
  args[0] = &x, args[1] = &d.y.d, args[2] = &dw;
  q.op = "matmul24_dw";
  q.nargs = 3;
  refuse(&c, &d, "matmul24_dw", &q, BS_REASON_DTYPE);
  ck_assert_ptr_nonnull(strstr(refusal, "no steps"));
  f24_free(&d);
  cx_close(&c);
}
END_TEST

/* Every allocation of device memory on the way fails once: the error is said and nothing leaks. */
START_TEST(out_of_memory_is_an_error) {
  int failures = 0;
  for (uint32_t op = 0; op < F24_OPS; op++)
    for (int64_t at = 1; at < 8; at++) {
      const f24 s = {
          .op = op, .x_type = BS_F32, .w_type = BS_F32, .y_type = BS_F32, .B = 2, .N = 20, .K = 40};
      cx c = {0};
      f24_data d;
      void *packed = NULL;
      uint64_t bytes = 0;
      bs_error err = BS_ERROR_INIT;
      cx_open(&c, cx_best_isa(), "off", 2);
      f24_make(&d, &s);
      c.fail_alloc_at = at;
      int32_t rc = op != F24_DW ? f24_try_pack(&c, &d, &packed, &bytes, &err) : BS_OK;
      if (rc == BS_OK) rc = f24_try(&c, &d, packed, &err);
      ck_assert(rc == BS_OK || rc == BS_NO_MEMORY);
      failures += rc != BS_OK;
      if (packed != NULL) f24_packed_free(&c, packed);
      f24_free(&d);
      cx_close(&c);
    }
  ck_assert_int_ge(failures, 4 * 2);
}
END_TEST

int main(void) {
  const test_case tests[] = {{values, F24_OPS * SETS},
                             {integers, SETS},
                             {dx_of_integers, SETS},
                             {long_sums_of_integers, SETS},
                             {bits_stay, F24_OPS},
                             {pairs_are_added_upwards},
                             {tokens_do_not_touch_each_other, SETS},
                             {dx_takes_what_is_kept, SETS},
                             {halves_share_positions},
                             {refusals},
                             {refusals_of_integers},
                             {out_of_memory_is_an_error},
                             {0}};
  return run_tests("cpu_matmul24", tests, (test_setup){.timeout = 60});
}
