/* SPDX-License-Identifier: MIT
 *
 * test_cpu_columns.c - gather_columns, scatter_columns and convert of the cpu plugin, bit by bit against
 * element by element loops: every pattern, element size, odd K and stride, on each instruction set; and the
 * device. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

static const uint32_t dtypes[] = {BS_U8, BS_F8E4M3, BS_BF16, BS_F32, BS_F64, BS_I64};
static const char *const isas[] = {"portable", "avx2", "auto"};

static void fill_bytes(kit_tensor *m, uint64_t *seed) {
  const size_t size = BS_DTYPE_BYTES(m->t.dtype);
  for (int64_t r = 0; r < m->t.dims[0]; r++)
    for (int64_t i = 0; i < m->t.dims[1] * (int64_t)size; i++)
      ((uint8_t *)m->t.data)[r * m->t.strides[0] * (int64_t)size + i] = (uint8_t)kit_next(seed);
}

static const uint8_t *at(const kit_tensor *m, int64_t row, int64_t col) {
  return (const uint8_t *)m->t.data + (row * m->t.strides[0] + col) * (int64_t)BS_DTYPE_BYTES(m->t.dtype);
}

static ch c;
static kit_actor gather, scatter, convert;

static void open_on(const char *isa, uint32_t width) {
  ch_open(&c, isa, "off");
  ch_actor(&c, &gather, "gather_columns", "cpu", width);
  ch_actor(&c, &scatter, "scatter_columns", "cpu", width);
  ch_actor(&c, &convert, "convert", "cpu", width);
}

static void close_all(void) {
  kit_actor_close(&gather);
  kit_actor_close(&scatter);
  kit_actor_close(&convert);
  ch_close(&c);
}

/* Prepare, run and free. */
static void run_op(kit_actor *a, kit_tensor *in, kit_tensor *out, const bs_partition *p) {
  void *plan = NULL;
  bs_error err = {.struct_size = sizeof err};
  bs_op_answer answer = {.struct_size = sizeof answer};
  const bs_tensor_desc *args[2] = {&in->d, &out->d};
  const bs_op_query q = {
      .struct_size = sizeof q, .nargs = 2, .op = a->impl->op, .args = args, .partition = p};
  bs_tensor *call[2] = {&in->t, &out->t};
  ck_assert_int_eq(a->impl->supports(a->state, &q, &answer), BS_OK);
  ck_assert_msg(answer.level == BS_LEVEL_NATIVE, "%s", answer.text);
  ck_assert_uint_eq(answer.tolerance, BS_TOL_EXACT);
  ck_assert_int_eq(a->impl->prepare(a->state, &a->exec, &q, NULL, &plan, &err), BS_OK);
  kit_push(a, out);
  ck_assert_int_eq(a->impl->run(plan, call, 2, NULL, &err), BS_OK);
  a->impl->plan_free(plan);
}

static void check_gather(uint32_t dtype, const bs_partition *p, int64_t rows, uint32_t spread,
                         uint64_t *seed) {
  kit_tensor in, out;
  const size_t size = BS_DTYPE_BYTES(dtype);
  kit_tensor_make(&in, dtype, 2, rows, p->total, spread);
  kit_tensor_make(&out, dtype, 2, rows, p->count, spread);
  fill_bytes(&in, seed);
  run_op(&gather, &in, &out, p);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < p->count; i++)
      ck_assert_msg(memcmp(at(&out, r, i), at(&in, r, ch_column(p, i)), size) == 0,
                    "gather %s period %u bits %x total %lld begin %lld: [%lld,%lld]", bs_dtype_name(dtype),
                    p->period, p->pattern_bits, (long long)p->total, (long long)p->begin, (long long)r,
                    (long long)i);
  kit_check_around(&out, "gather", 0);
  kit_tensor_free(NULL, &in);
  kit_tensor_free(NULL, &out);
}

static void check_scatter(uint32_t dtype, const bs_partition *p, int64_t rows, uint32_t spread,
                          uint64_t *seed) {
  kit_tensor in, out;
  const size_t size = BS_DTYPE_BYTES(dtype);
  kit_tensor_make(&in, dtype, 2, rows, p->count, spread);
  kit_tensor_make(&out, dtype, 2, rows, p->total, spread);
  fill_bytes(&in, seed);
  uint8_t *want = malloc(out.block_bytes);
  ck_assert_ptr_nonnull(want);
  memcpy(want, out.block, out.block_bytes);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < p->count; i++)
      memcpy(want + (at(&out, r, ch_column(p, i)) - out.block), at(&in, r, i), size);
  run_op(&scatter, &in, &out, p);
  ck_assert_msg(memcmp(want, out.block, out.block_bytes) == 0,
                "scatter %s period %u bits %x total %lld begin %lld", bs_dtype_name(dtype), p->period,
                p->pattern_bits, (long long)p->total, (long long)p->begin);
  free(want);
  kit_tensor_free(NULL, &in);
  kit_tensor_free(NULL, &out);
}

static void check_both(const bs_partition *p, int64_t rows, uint32_t spread, uint64_t *seed) {
  for (size_t t = 0; t < sizeof dtypes / sizeof dtypes[0]; t++) {
    check_gather(dtypes[t], p, rows, spread, seed);
    check_scatter(dtypes[t], p, rows, spread, seed);
  }
}

/* Every pattern of every period up to 4, some of 8, 3 and 5; every small K; parts of the columns. */
START_TEST(every_pattern) {
  if (!ch_has_isa(isas[_i])) return;
  static const uint32_t periods[] = {1, 2, 3, 4, 5, 8, 16};
  const int slow = BS_THIS_SANITIZER == BS_SAN_NONE ? 1 : 2;
  uint64_t seed = 3;
  open_on(isas[_i], 1);
  for (size_t i = 0; i < sizeof periods / sizeof periods[0]; i++) {
    const uint32_t period = periods[i], all = (1u << period) - 1,
                   step = period < 5    ? 1
                          : period < 16 ? 7
                                        : 4099;
    for (uint32_t bits = 1; bits <= all; bits += step * (uint32_t)slow)
      for (int64_t total = 0; total < 70; total += period < 5 ? 7 : 23 * slow) {
        const int64_t begin = kit_below(&seed, total + 1), span = kit_below(&seed, total - begin + 1);
        bs_partition whole = ch_pattern(total, period, bits, 0, total);
        bs_partition part = ch_pattern(total, period, bits, begin, span);
        check_both(&whole, 2, (uint32_t)kit_below(&seed, 2), &seed);
        check_both(&part, 2, (uint32_t)kit_below(&seed, 2), &seed);
        ch_partition_free(&whole);
        ch_partition_free(&part);
      }
  }
  close_all();
}
END_TEST

START_TEST(runs_and_lists) {
  if (!ch_has_isa(isas[_i])) return;
  uint64_t seed = 4;
  open_on(isas[_i], 2);
  for (int turn = 0; turn < 60; turn++) {
    const int64_t total = kit_below(&seed, 200), begin = kit_below(&seed, total + 1);
    const bs_partition run = ch_run_of(total, begin, kit_below(&seed, total - begin + 1));
    bs_partition list = ch_list(total, kit_below(&seed, total + 1), &seed);
    check_both(&run, kit_below(&seed, 4), 1, &seed);
    check_both(&list, kit_below(&seed, 4), 1, &seed);
    ch_partition_free(&list);
  }
  close_all();
}
END_TEST

/* Pieces of long rows shared over a team. */
START_TEST(long_rows_are_shared) {
  if (!ch_has_isa(isas[_i])) return;
  uint64_t seed = 6;
  for (uint32_t width = 1; width <= 4; width++) {
    open_on(isas[_i], width);
    bs_partition p = ch_pattern(40001, 4, 9, 3, 39990);
    check_both(&p, 3, 1, &seed);
    ch_partition_free(&p);
    close_all();
  }
}
END_TEST

/* A period that does not describe the list is not believed. */
START_TEST(the_list_decides) {
  uint64_t seed = 8;
  open_on("auto", 1);
  bs_partition p = ch_pattern(64, 4, 3, 0, 64);
  p.pattern_bits = 5;
  check_both(&p, 2, 0, &seed);
  p.pattern_bits = 3;
  p.span = 40;
  check_both(&p, 2, 0, &seed);
  ch_partition_free(&p);
  close_all();
}
END_TEST

/* Every pair of dtypes rounds as the host does, bit for bit; NaN, infinities, subnormals, midpoints. */
START_TEST(convert_rounds_as_the_host) {
  if (!ch_has_isa(isas[_i])) return;
  static const uint32_t all[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2, BS_I32, BS_I8};
  uint64_t seed = 9;
  open_on(isas[_i], 2);
  for (size_t a = 0; a < 8; a++)
    for (size_t b = 0; b < 8; b++) {
      kit_tensor in, out;
      const int64_t cols = 4099, rows = 9;
      kit_tensor_make(&in, all[a], 2, rows, cols, 1);
      kit_tensor_make(&out, all[b], 2, rows, cols, 1);
      fill_bytes(&in, &seed);
      run_op(&convert, &in, &out, NULL);
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
      kit_check_around(&out, "convert", 0);
      kit_tensor_free(NULL, &in);
      kit_tensor_free(NULL, &out);
    }
  close_all();
}
END_TEST

/* Each 16-bit number and each midpoint between two, through both tables. */
START_TEST(convert_every_half) {
  if (!ch_has_isa(isas[_i])) return;
  const uint32_t halves[2] = {BS_F16, BS_BF16};
  open_on(isas[_i], 1);
  for (int h = 0; h < 2; h++) {
    kit_tensor half, wide, back;
    kit_tensor_make(&half, halves[h], 2, 1, 65536, 0);
    kit_tensor_make(&wide, BS_F32, 2, 1, 65536, 0);
    kit_tensor_make(&back, halves[h], 2, 1, 65536, 0);
    for (int64_t i = 0; i < 65536; i++) ((uint16_t *)half.t.data)[i] = (uint16_t)i;
    run_op(&convert, &half, &wide, NULL);
    for (int64_t i = 0; i < 65535; i++) {
      const float a = ((float *)wide.t.data)[i];
      const double want = bs_load_f64(halves[h], half.t.data, i);
      ck_assert((isnan(a) && isnan(want)) || (double)a == want);
    }
    run_op(&convert, &wide, &back, NULL);
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
    run_op(&convert, &wide, &back, NULL);
    for (int64_t i = 0; i < 65535; i++) {
      uint16_t want = 0;
      ck_assert_int_eq(bs_convert(halves[h], &want, BS_F32, (float *)wide.t.data + i, 1), BS_OK);
      const double a = bs_load_f64(halves[h], back.t.data, i), b = bs_load_f64(halves[h], &want, 0);
      ck_assert_msg((isnan(a) && isnan(b)) || ((const uint16_t *)back.t.data)[i] == want, "%lld: %g, host %g",
                    (long long)i, a, b);
    }
    kit_tensor_free(NULL, &half);
    kit_tensor_free(NULL, &wide);
    kit_tensor_free(NULL, &back);
  }
  close_all();
}
END_TEST

START_TEST(device_gives_aligned_memory) {
  void *state = NULL, *device = NULL;
  const bs_backend *b = NULL;
  bs_error err = {.struct_size = sizeof err};
  bs_device_info info = {.struct_size = sizeof info};
  uint32_t count = 0;
  open_on("auto", 1);
  for (uint32_t i = 0; i < c.plugin.host.n_things; i++)
    if (c.plugin.host.things[i].kind == BS_KIND_BACKEND) {
      b = c.plugin.host.things[i].vtable;
      state = c.plugin.host.things[i].state;
    }
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
  close_all();
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_pattern, 3},
                             {runs_and_lists, 3},
                             {long_rows_are_shared, 3},
                             {the_list_decides},
                             {convert_rounds_as_the_host, 3},
                             {convert_every_half, 3},
                             {device_gives_aligned_memory},
                             {0}};
  return run_tests("cpu_columns", tests, (test_setup){.timeout = 300});
}
