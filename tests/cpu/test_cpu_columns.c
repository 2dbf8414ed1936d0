/* SPDX-License-Identifier: MIT
 *
 * test_cpu_columns.c - gather_columns, scatter_columns and convert of the cpu plugin, the packed weights and
 * the device: against element by element loops, for every pattern, element size, odd K and stride, on both
 * instruction sets; failures to allocate; known answer K7. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu_matmul_case.h"
#include "tests/run_tests.h"

static const uint32_t dtypes[] = {BS_U8, BS_F8E4M3, BS_BF16, BS_F32, BS_F64, BS_I64};
static const char *const isas[] = {"portable", "avx2", "auto"};

static void fill_bytes(cx_matrix *m, uint64_t *seed) {
  const size_t size = BS_DTYPE_BYTES(m->t.dtype);
  for (int64_t r = 0; r < m->t.dims[0]; r++)
    for (int64_t i = 0; i < m->t.dims[1] * (int64_t)size; i++)
      ((uint8_t *)m->t.data)[r * m->t.strides[0] * (int64_t)size + i] = (uint8_t)cx_next(seed);
}

static const uint8_t *at(const cx_matrix *m, int64_t row, int64_t col) {
  return (const uint8_t *)m->t.data + (row * m->t.strides[0] + col) * (int64_t)BS_DTYPE_BYTES(m->t.dtype);
}

/* Prepare, run on `rows` rows and free. */
static void run_op(const cx *c, const char *op, const cx_matrix *in, const cx_matrix *out,
                   const bs_partition *p, int64_t rows) {
  void *state = NULL, *plan = NULL;
  bs_error err = {.struct_size = sizeof err};
  bs_op_answer answer = {.struct_size = sizeof answer};
  const bs_op_impl *impl = cx_impl(c, op, "cpu", &state);
  const bs_tensor_desc *args[2] = {&in->d, &out->d};
  const bs_op_query q = {.struct_size = sizeof q, .nargs = 2, .op = op, .args = args, .partition = p};
  ck_assert_ptr_nonnull(impl);
  ck_assert_int_eq(impl->supports(state, &q, &answer), BS_OK);
  ck_assert_msg(answer.level == BS_LEVEL_NATIVE, "%s", answer.text);
  ck_assert_uint_eq(answer.tolerance, BS_TOL_EXACT);
  ck_assert_int_eq(impl->prepare(state, &c->exec, &q, NULL, &plan, &err), BS_OK);
  bs_tensor a = in->t, b = out->t, *call[2] = {&a, &b};
  a.dims[0] = b.dims[0] = rows;
  ck_assert_int_eq(impl->run(plan, call, 2, NULL, &err), BS_OK);
  impl->plan_free(plan);
}

static void check_gather(const cx *c, uint32_t dtype, const bs_partition *p, int64_t rows, int64_t pad,
                         uint64_t *seed) {
  cx_matrix in, out;
  const size_t size = BS_DTYPE_BYTES(dtype);
  cx_matrix_make(&in, dtype, rows, p->total, p->total + pad);
  cx_matrix_make(&out, dtype, rows, p->count, p->count + pad);
  fill_bytes(&in, seed);
  run_op(c, "gather_columns", &in, &out, p, rows);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < p->count; i++)
      ck_assert_msg(memcmp(at(&out, r, i), at(&in, r, cx_column(p, i)), size) == 0,
                    "gather %s period %u bits %x total %lld begin %lld: [%lld,%lld]", bs_dtype_name(dtype),
                    p->period, p->pattern_bits, (long long)p->total, (long long)p->begin, (long long)r,
                    (long long)i);
  cx_guards(&out, "gather");
  cx_matrix_free(&in);
  cx_matrix_free(&out);
}

static void check_scatter(const cx *c, uint32_t dtype, const bs_partition *p, int64_t rows, int64_t pad,
                          uint64_t *seed) {
  cx_matrix in, out;
  const size_t size = BS_DTYPE_BYTES(dtype);
  cx_matrix_make(&in, dtype, rows, p->count, p->count + pad);
  cx_matrix_make(&out, dtype, rows, p->total, p->total + pad);
  fill_bytes(&in, seed);
  uint8_t *want = malloc(out.block_bytes);
  ck_assert_ptr_nonnull(want);
  memcpy(want, out.block, out.block_bytes);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < p->count; i++)
      memcpy(want + (at(&out, r, cx_column(p, i)) - out.block), at(&in, r, i), size);
  run_op(c, "scatter_columns", &in, &out, p, rows);
  ck_assert_msg(memcmp(want, out.block, out.block_bytes) == 0,
                "scatter %s period %u bits %x total %lld begin %lld", bs_dtype_name(dtype), p->period,
                p->pattern_bits, (long long)p->total, (long long)p->begin);
  free(want);
  cx_matrix_free(&in);
  cx_matrix_free(&out);
}

static void check_both(const cx *c, const bs_partition *p, int64_t rows, int64_t pad, uint64_t *seed) {
  for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++) {
    check_gather(c, dtypes[t], p, rows, pad, seed);
    check_scatter(c, dtypes[t], p, rows, pad, seed);
  }
}

/* Every pattern of every period up to 4, some of 8, 3 and 5; every small K; parts of the columns. */
START_TEST(every_pattern) {
  if (!cx_has_isa(isas[_i])) return;
  static const uint32_t periods[] = {1, 2, 3, 4, 5, 8, 16};
  const int slow = BS_THIS_SANITIZER == BS_SAN_NONE ? 1 : 2;
  uint64_t seed = 3;
  cx c;
  cx_open(&c, isas[_i], "off", 1);
  for (size_t i = 0; i < sizeof periods / sizeof periods[0]; i++) {
    const uint32_t period = periods[i], all = (1u << period) - 1,
                   step = period < 5    ? 1
                          : period < 16 ? 7
                                        : 4099;
    for (uint32_t bits = 1; bits <= all; bits += step * (uint32_t)slow)
      for (int64_t total = 0; total < 70; total += period < 5 ? 7 : 23 * slow) {
        const int64_t begin = cx_below(&seed, total + 1), span = cx_below(&seed, total - begin + 1);
        bs_partition whole = cx_pattern(total, period, bits, 0, total);
        bs_partition part = cx_pattern(total, period, bits, begin, span);
        check_both(&c, &whole, 2, cx_below(&seed, 3), &seed);
        check_both(&c, &part, 2, cx_below(&seed, 3), &seed);
        cx_partition_free(&whole);
        cx_partition_free(&part);
      }
  }
  cx_close(&c);
}
END_TEST

START_TEST(runs_and_lists) {
  if (!cx_has_isa(isas[_i])) return;
  uint64_t seed = 4;
  cx c;
  cx_open(&c, isas[_i], "off", 2);
  for (int turn = 0; turn < 60; turn++) {
    const int64_t total = cx_below(&seed, 200), begin = cx_below(&seed, total + 1);
    const bs_partition run = cx_run(total, begin, cx_below(&seed, total - begin + 1));
    bs_partition list = cx_list(total, cx_below(&seed, total + 1), &seed);
    check_both(&c, &run, cx_below(&seed, 4), 1, &seed);
    check_both(&c, &list, cx_below(&seed, 4), 1, &seed);
    cx_partition_free(&list);
  }
  cx_close(&c);
}
END_TEST

/* Pieces of long rows shared over a team. */
START_TEST(long_rows_are_shared) {
  if (!cx_has_isa(isas[_i])) return;
  uint64_t seed = 6;
  for (uint32_t width = 1; width <= 4; width++) {
    cx c;
    cx_open(&c, isas[_i], "off", width);
    bs_partition p = cx_pattern(40001, 4, 9, 3, 39990);
    check_both(&c, &p, 3, 2, &seed);
    cx_partition_free(&p);
    cx_close(&c);
  }
}
END_TEST

/* A period that does not describe the list is not believed. */
START_TEST(the_list_decides) {
  uint64_t seed = 8;
  cx c;
  cx_open(&c, "auto", "off", 1);
  bs_partition p = cx_pattern(64, 4, 3, 0, 64);
  p.pattern_bits = 5;
  check_both(&c, &p, 2, 0, &seed);
  p.pattern_bits = 3;
  p.span = 40;
  check_both(&c, &p, 2, 0, &seed);
  cx_partition_free(&p);
  cx_close(&c);
}
END_TEST

/* K7: the pattern 1100 of an eight-column layer, columns and product. */
START_TEST(known_answer_k7) {
  if (!cx_has_isa(isas[_i])) return;
  static const double x[2][8] = {{1, 0, 2, -1, 1, 1, 0, 2}, {0, 1, 1, 1, -1, 2, 3, 0}};
  static const double w[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                                 {-1, 0, 2, 1, 3, -2, 0, 4},
                                 {2, -3, 1, 0, 0, 1, -1, 2},
                                 {0, 5, -4, 2, 1, 1, 1, -6}};
  static const double packed_w[4][4] = {{1, 2, 5, 6}, {-1, 0, 3, -2}, {2, -3, 0, 1}, {0, 5, 1, 1}};
  static const double packed_x[2][4] = {{1, 0, 1, 1}, {0, 1, -1, 2}};
  static const double product[2][4] = {{12, 0, 3, 2}, {9, -7, -1, 6}};
  const mc s = {.dtype = BS_F32, .y_type = BS_F32, .B = 2, .N = 4, .K = 8, .seed = 1};
  cx c;
  mc_data d;
  cx_matrix gathered, read;
  void *state = NULL, *packed = NULL;
  uint64_t bytes = 0;
  bs_error err = {.struct_size = sizeof err};
  cx_open(&c, isas[_i], "off", 1);
  mc_make(&d, &s);
  d.partition = cx_pattern(8, 4, 3, 0, 8);
  d.part = &d.partition;
  d.kept = 4;
  d.shape.x_full = 1;
  for (int64_t k = 0; k < 8; k++) {
    for (int64_t n = 0; n < 4; n++) cx_set(&d.w, n, k, w[n][k]);
    for (int64_t b = 0; b < 2; b++) cx_set(&d.x, b, k, x[b][k]);
  }
  cx_matrix_make(&gathered, BS_F32, 2, 4, 0);
  run_op(&c, "gather_columns", &d.x, &gathered, d.part, 2);
  const bs_op_impl *impl = cx_impl(&c, "matmul", "packed", &state);
  const bs_tensor_desc *args[4];
  bs_op_query q;
  mc_query(&d, args, &q);
  const bs_source source = cx_source(&d.w);
  ck_assert_int_eq(impl->pack(state, &c.exec, &q, &source, &packed, &bytes, &err), BS_OK);
  cx_matrix_make(&read, BS_F32, 4, 4, 0);
  ck_assert_int_eq(impl->packed_read(packed, 0, &read.t, &err), BS_OK);
  impl->packed_free(packed);
  ck_assert_int_eq(mc_try(&c, "packed", &d, &err), BS_OK);
  for (int64_t i = 0; i < 4; i++) {
    for (int64_t n = 0; n < 4; n++) ck_assert_double_eq(cx_get(&read, n, i), packed_w[n][i]);
    for (int64_t b = 0; b < 2; b++) {
      ck_assert_double_eq(cx_get(&gathered, b, i), packed_x[b][i]);
      ck_assert_double_eq(cx_get(&d.y, b, i), product[b][i]);
    }
  }
  cx_matrix_free(&gathered);
  cx_matrix_free(&read);
  mc_free(&d);
  cx_close(&c);
}
END_TEST

/* Every pair of dtypes rounds as the host does, bit for bit; NaN, infinities, subnormals, midpoints. */
START_TEST(convert_rounds_as_the_host) {
  if (!cx_has_isa(isas[_i])) return;
  static const uint32_t all[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2, BS_I32, BS_I8};
  uint64_t seed = 9;
  cx c;
  cx_open(&c, isas[_i], "off", 2);
  for (size_t a = 0; a < 8; a++)
    for (size_t b = 0; b < 8; b++) {
      cx_matrix in, out;
      const int64_t cols = 4099, rows = 9;
      cx_matrix_make(&in, all[a], rows, cols, cols + 3);
      cx_matrix_make(&out, all[b], rows, cols, cols + 1);
      fill_bytes(&in, &seed);
      run_op(&c, "convert", &in, &out, NULL, rows);
      uint64_t *want = calloc((size_t)cols, sizeof *want);
      ck_assert_ptr_nonnull(want);
      for (int64_t r = 0; r < rows; r++) {
        ck_assert_int_eq(bs_convert(all[b], want, all[a], at(&in, r, 0), (uint64_t)cols), BS_OK);
        for (int64_t i = 0; i < cols; i++) {
          const uint8_t *e = (const uint8_t *)want + i * (int64_t)BS_DTYPE_BYTES(all[b]);
          if (memcmp(e, at(&out, r, i), BS_DTYPE_BYTES(all[b])) == 0) continue;
          const double x = bs_load_f64(all[b], e, 0), y = bs_load_f64(all[b], at(&out, r, i), 0);
          ck_assert_msg(isnan(x) && isnan(y), "%s to %s: %g, host %g", bs_dtype_name(all[a]),
                        bs_dtype_name(all[b]), y, x);
        }
      }
      free(want);
      cx_guards(&out, "convert");
      cx_matrix_free(&in);
      cx_matrix_free(&out);
    }
  cx_close(&c);
}
END_TEST

/* Each 16-bit number and each midpoint between two, through both tables. */
START_TEST(convert_every_half) {
  if (!cx_has_isa(isas[_i])) return;
  const uint32_t halves[2] = {BS_F16, BS_BF16};
  cx c;
  cx_open(&c, isas[_i], "off", 1);
  for (int h = 0; h < 2; h++) {
    cx_matrix half, wide, back;
    cx_matrix_make(&half, halves[h], 1, 65536, 0);
    cx_matrix_make(&wide, BS_F32, 1, 65536, 0);
    cx_matrix_make(&back, halves[h], 1, 65536, 0);
    for (int64_t i = 0; i < 65536; i++) ((uint16_t *)half.t.data)[i] = (uint16_t)i;
    run_op(&c, "convert", &half, &wide, NULL, 1);
    for (int64_t i = 0; i < 65535; i++) {
      const float a = ((float *)wide.t.data)[i];
      const double want = bs_load_f64(halves[h], half.t.data, i);
      ck_assert((isnan(a) && isnan(want)) || (double)a == want);
    }
    run_op(&c, "convert", &wide, &back, NULL, 1);
    for (int64_t i = 0; i < 65536; i++) {
      const double a = bs_load_f64(halves[h], half.t.data, i), b = bs_load_f64(halves[h], back.t.data, i);
      ck_assert((isnan(a) && isnan(b)) ||
                ((const uint16_t *)half.t.data)[i] == ((const uint16_t *)back.t.data)[i]);
    }
    for (int64_t i = 0; i < 65535; i++) { /* bits in the middle of two neighbours */
      uint32_t u;
      memcpy(&u, (float *)wide.t.data + i, sizeof u);
      u += h == 0 ? 0x1000u : 0x8000u;
      memcpy((float *)wide.t.data + i, &u, sizeof u);
    }
    run_op(&c, "convert", &wide, &back, NULL, 1);
    for (int64_t i = 0; i < 65535; i++) {
      uint16_t want = 0;
      ck_assert_int_eq(bs_convert(halves[h], &want, BS_F32, (float *)wide.t.data + i, 1), BS_OK);
      const double a = bs_load_f64(halves[h], back.t.data, i), b = bs_load_f64(halves[h], &want, 0);
      ck_assert_msg((isnan(a) && isnan(b)) || ((const uint16_t *)back.t.data)[i] == want, "%lld: %g, host %g",
                    (long long)i, a, b);
    }
    cx_matrix_free(&half);
    cx_matrix_free(&wide);
    cx_matrix_free(&back);
  }
  cx_close(&c);
}
END_TEST

/* Read back what was packed; update it; other dtypes; bad rows. Both kinds of packed weights. */
START_TEST(packed_weights_read_and_update) {
  static const uint32_t types[3] = {BS_F32, BS_BF16, BS_F16};
  static const char *const impls[2] = {"packed", "dnnl"};
  for (int i = 0; i < 2; i++)
    for (int t = 0; t < 3; t++) {
      cx c;
      mc_data d;
      cx_matrix delta, out;
      void *state = NULL, *packed = NULL;
      uint64_t bytes = 0;
      bs_error err = {.struct_size = sizeof err};
      mc s = {.dtype = types[t], .y_type = types[t], .B = 4, .N = 37, .K = 700, .seed = 5};
      s.columns = MC_LIST;
      cx_open(&c, "auto", "auto", 3);
      const bs_op_impl *impl = cx_impl(&c, "matmul", impls[i], &state);
      if (impl == NULL) {
        cx_close(&c);
        continue;
      }
      mc_make(&d, &s);
      const bs_tensor_desc *args[4];
      bs_op_query q;
      mc_query(&d, args, &q);
      const bs_source source = cx_source(&d.w);
      ck_assert_int_eq(impl->pack(state, &c.exec, &q, &source, &packed, &bytes, &err), BS_OK);
      cx_matrix_make(&delta, BS_F32, 37, d.kept, d.kept + 2);
      for (int64_t n = 0; n < 37; n++)
        for (int64_t k = 0; k < d.kept; k++) cx_set(&delta, n, k, (double)(n - k) * 0.03125);
      ck_assert_int_eq(impl->packed_update(packed, &delta.t, &err), BS_OK);
      cx_matrix_make(&out, BS_F64, 20, d.kept, d.kept + 1);
      ck_assert_int_eq(impl->packed_read(packed, 11, &out.t, &err), BS_OK);
      for (int64_t n = 0; n < 20; n++)
        for (int64_t k = 0; k < d.kept; k++) {
          const float sum =
              (float)cx_get(&d.w, n + 11, cx_column(d.part, k)) + (float)cx_get(&delta, n + 11, k);
          uint32_t stored = 0;
          bs_store_f64(types[t], &stored, 0, (double)sum);
          ck_assert_double_eq(cx_get(&out, n, k), bs_load_f64(types[t], &stored, 0));
        }
      cx_guards(&out, "packed_read");
      ck_assert_int_eq(impl->packed_read(packed, 18, &out.t, &err), BS_INVALID_ARGUMENT);
      delta.t.dims[0] = 36;
      ck_assert_int_eq(impl->packed_update(packed, &delta.t, &err), BS_INVALID_ARGUMENT);
      impl->packed_free(packed);
      cx_matrix_free(&delta);
      cx_matrix_free(&out);
      mc_free(&d);
      cx_close(&c);
    }
}
END_TEST

/* Each allocation of pack and prepare may fail: an error with a message, nothing left behind. */
START_TEST(no_memory) {
  static const char *const impls[2] = {"packed", "dnnl"};
  for (int i = 0; i < 2; i++) {
    const mc s = {.dtype = BS_F32, .y_type = BS_F32, .B = 40, .N = 70, .K = 90, .seed = 2};
    cx c;
    mc_data d;
    int32_t rc = BS_NO_MEMORY;
    cx_open(&c, "auto", "auto", 2);
    mc_make(&d, &s);
    bs_op_answer a;
    mc_ask(&c, impls[i], &d, &a);
    for (int64_t at_call = 1; a.level == BS_LEVEL_NATIVE && rc != BS_OK; at_call++) {
      bs_error err = {.struct_size = sizeof err};
      ck_assert_int_lt(at_call, 20);
      c.fail_alloc_at = at_call;
      rc = mc_try(&c, impls[i], &d, &err);
      ck_assert_int_eq(c.live, 0);
      if (rc == BS_OK) ck_assert_int_gt(at_call, 1);
      if (rc != BS_OK) ck_assert_int_eq(rc, BS_NO_MEMORY);
      if (rc != BS_OK) ck_assert_str_ne(err.message, "");
    }
    mc_free(&d);
    cx_close(&c);
  }
}
END_TEST

/* A registration that fails undoes the activation. */
START_TEST(activation_fails_cleanly) {
  cx c = {.count = 0};
  int32_t rc = BS_NO_MEMORY;
  for (int64_t turn = 1; rc != BS_OK; turn++) {
    bs_error err = {.struct_size = sizeof err};
    ck_assert_int_lt(turn, 60); /* more than it registers */
    c.fail_register_at = turn;
    rc = cx_try_open(&c, "auto", "off", 1, &err);
    if (rc != BS_OK) ck_assert_str_eq(err.id, "CX-REGISTER");
  }
  cx_close(&c);
}
END_TEST

static int32_t failing_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  (void)ctx, (void)nrows, (void)cols, (void)dtype, (void)out, (void)out_stride;
  return bs_fail(err, BS_INPUT, "CX-READ", "row %lld cannot be read", (long long)row);
}

START_TEST(a_failing_source_is_reported) {
  static const char *const impls[2] = {"packed", "dnnl"};
  for (int i = 0; i < 2; i++) {
    const mc s = {.dtype = BS_F32, .y_type = BS_F32, .B = 4, .N = 70, .K = 90, .seed = 2};
    cx c;
    mc_data d;
    const bs_tensor_desc *args[4];
    bs_op_query q;
    void *state = NULL, *packed = NULL;
    uint64_t bytes = 0;
    bs_error err = {.struct_size = sizeof err};
    cx_open(&c, "auto", "off", 3);
    const bs_op_impl *impl = cx_impl(&c, "matmul", impls[i], &state);
    mc_make(&d, &s);
    mc_query(&d, args, &q);
    bs_source source = cx_source(&d.w);
    source.read = failing_read;
    if (impl != NULL) {
      ck_assert_int_eq(impl->pack(state, &c.exec, &q, &source, &packed, &bytes, &err), BS_INPUT);
      ck_assert_str_eq(err.id, "CX-READ");
      ck_assert_ptr_null(packed);
    }
    mc_free(&d);
    cx_close(&c);
  }
}
END_TEST

START_TEST(device_gives_aligned_memory) {
  cx c;
  void *state = NULL, *device = NULL;
  bs_error err = {.struct_size = sizeof err};
  bs_device_info info = {.struct_size = sizeof info};
  uint32_t count = 0;
  cx_open(&c, "auto", "off", 1);
  const bs_backend *b = cx_backend(&c, &state);
  ck_assert_ptr_nonnull(b);
  ck_assert_int_eq(b->device_count(state, &count, &err), BS_OK);
  ck_assert_uint_eq(count, 1);
  ck_assert_int_eq(b->device_info(state, 0, &info, &err), BS_OK);
  ck_assert_str_ne(info.name, "");
  ck_assert_msg(strstr(info.detail, "own kernels") != NULL, "%s", info.detail);
  ck_assert_uint_gt(info.memory_bytes, 0);
  ck_assert_int_eq(b->device_info(state, 1, &info, &err), BS_NOT_FOUND);
  ck_assert_int_eq(b->device_open(state, 1, &device, &err), BS_NOT_FOUND);
  ck_assert_int_eq(b->device_open(state, 0, &device, &err), BS_OK);
  static const uint64_t sizes[] = {0, 1, 4096, (4u << 20) - 1, 4u << 20, (9u << 20) + 5};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    void *p = NULL;
    ck_assert_int_eq(b->mem_alloc(device, sizes[i], 64, &p, &err), BS_OK);
    ck_assert_uint_eq((uintptr_t)p % (sizes[i] >= 4u << 20 ? 2u << 20 : 64), 0);
    for (uint64_t k = 0; k < sizes[i]; k += 511) ck_assert_uint_eq(((unsigned char *)p)[k], 0);
    memset(p, 1, sizes[i]);
    b->mem_free(device, p);
  }
  void *p = NULL;
  ck_assert_int_eq(b->mem_alloc(device, 64, 48, &p, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(b->mem_alloc(device, UINT64_MAX - 3, 64, &p, &err), BS_OVERFLOW);
  if (BS_THIS_SANITIZER == BS_SAN_NONE) { /* sanitizers end the process instead */
    ck_assert_int_eq(b->mem_alloc(device, UINT64_C(1) << 60, 64, &p, &err), BS_NO_MEMORY);
    ck_assert_str_eq(err.domain, "errno");
  }
  ck_assert_ptr_null(p);
  b->device_close(device);
  cx_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_pattern, 3},
                             {runs_and_lists, 3},
                             {long_rows_are_shared, 3},
                             {the_list_decides},
                             {known_answer_k7, 3},
                             {convert_rounds_as_the_host, 3},
                             {convert_every_half, 3},
                             {packed_weights_read_and_update},
                             {no_memory},
                             {activation_fails_cleanly},
                             {a_failing_source_is_reported},
                             {device_gives_aligned_memory},
                             {0}};
  return run_tests("cpu_columns", tests, (test_setup){.timeout = 300});
}
