/* SPDX-License-Identifier: MIT
 *
 * test_cpu_weights.c - packed weights of the cpu plugin: known answer K7, what is read back and updated, one
 * weight under the plans of a step, both halves of a mask, and sources that fail. */
#include <math.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

static const uint32_t types[] = {BS_F32, BS_BF16, BS_F16};
static const char *const sets[] = {"portable", "avx2", "avx512", "avx512_bf16"};
static const char *const tiles[] = {"amx_model", "amx"}; /* of bf16, on weights of the same layout */

/* Packs the weight of a matmul, and reads it back into `out`, [N,length]. */
static void *pack_and_read(kit_actor *a, kit_data *d, kit_tensor *out) {
  bs_error err = BS_ERROR_INIT;
  void *packed = kit_data_pack(a, d);
  kit_tensor_make(out, d->shape.w, 2, d->shape.N, d->length, 0);
  ck_assert_msg(a->impl->packed_read(packed, 0, &out->t, &err) == BS_OK, "%s", err.message);
  return packed;
}

/* The pattern 1100 of an eight-column layer instead of the four columns that were drawn. */
static void set_k7(kit_data *d) {
  static const uint32_t columns[4] = {0, 1, 4, 5};
  ck_assert_int_eq(d->kept, 4);
  memcpy(d->columns, columns, sizeof columns);
  d->partition.period = 4;
  d->partition.pattern_bits = 3;
  d->partition.span = 8;
}

/* K7: columns and product. */
START_TEST(known_answer_k7) {
  static const double x[2][8] = {{1, 0, 2, -1, 1, 1, 0, 2}, {0, 1, 1, 1, -1, 2, 3, 0}};
  static const double w[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                                 {-1, 0, 2, 1, 3, -2, 0, 4},
                                 {2, -3, 1, 0, 0, 1, -1, 2},
                                 {0, 5, -4, 2, 1, 1, 1, -6}};
  static const double packed_w[4][4] = {{1, 2, 5, 6}, {-1, 0, 3, -2}, {2, -3, 0, 1}, {0, 5, 1, 1}};
  static const double packed_x[2][4] = {{1, 0, 1, 1}, {0, 1, -1, 2}};
  static const double product[2][4] = {{12, 0, 3, 2}, {9, -7, -1, 6}};
  const char *set = _i < TEST_COUNT(sets) ? sets[_i] : tiles[_i - TEST_COUNT(sets)];
  const int by_tiles = _i >= TEST_COUNT(sets);
  const uint32_t type = by_tiles ? BS_BF16 : BS_F32; /* which has these numbers too */
  const kit_shape s = {
      .x = type, .w = type, .y = BS_F32, .B = 2, .N = 4, .K = 8, .part = KIT_LIST, .x_full = 1};
  kit_shape of_gather = s;
  of_gather.y = type;
  static ch c;
  kit_actor matmul, gather;
  kit_data d, g;
  kit_tensor read;
  if (!ch_has_isa(set)) return;
  ch_open(&c, set, "off");
  ch_actor(&c, &matmul, "matmul", by_tiles ? "amx" : "packed", 1);
  ch_actor(&c, &gather, "gather_columns", "cpu", 1);
  kit_data_make(&d, "matmul", &s);
  kit_data_make(&g, "gather_columns", &of_gather);
  set_k7(&d);
  set_k7(&g);
  for (int64_t k = 0; k < 8; k++) {
    for (int64_t n = 0; n < 4; n++) kit_set(&d.w, n, k, w[n][k]);
    for (int64_t b = 0; b < 2; b++) {
      kit_set(&d.a[0], b, k, x[b][k]);
      kit_set(&g.a[0], b, k, x[b][k]);
    }
  }
  matmul.impl->packed_free(pack_and_read(&matmul, &d, &read));
  ch_run(&matmul, &d);
  ch_run(&gather, &g);
  for (int64_t i = 0; i < 4; i++) {
    for (int64_t n = 0; n < 4; n++) ck_assert_double_eq(kit_get(&read, n, i), packed_w[n][i]);
    for (int64_t b = 0; b < 2; b++) {
      ck_assert_double_eq(kit_get(&g.a[1], b, i), packed_x[b][i]);
      ck_assert_double_eq(kit_get(&d.a[3], b, i), product[b][i]);
    }
  }
  kit_tensor_free(&matmul, &read);
  kit_data_free(&matmul, &d);
  kit_data_free(&gather, &g);
  kit_actor_close(&gather);
  kit_actor_close(&matmul);
  ch_close(&c);
}
END_TEST

/* Read back what was packed; update it; other dtypes; bad rows. Both kinds of packed weights. */
START_TEST(packed_weights_read_and_update) {
  static const char *const names[] = {"packed", "dnnl"};
  const uint32_t type = types[_i % 3];
  const kit_shape s = {
      .x = type, .w = type, .y = type, .B = 4, .N = 37, .K = 700, .part = KIT_LIST, .seed = 5};
  static ch c;
  kit_actor a;
  kit_data d;
  kit_tensor delta, out;
  bs_error err = BS_ERROR_INIT;
  ch_open(&c, "auto", "auto");
  if (!ch_find(&c, &a, "matmul", names[_i / 3], 3)) return;
  kit_data_make(&d, "matmul", &s);
  void *packed = kit_data_pack(&a, &d);
  kit_tensor_make(&delta, BS_F32, 2, 37, d.kept, 1);
  kit_tensor_make(&out, BS_F64, 2, 20, d.kept, 1);
  for (int64_t n = 0; n < 37; n++)
    for (int64_t k = 0; k < d.kept; k++) kit_set(&delta, n, k, (double)(n - k) * 0.03125);
  ck_assert_int_eq(a.impl->packed_update(packed, &delta.t, &err), BS_OK);
  kit_push(&a, &out);
  ck_assert_int_eq(a.impl->packed_read(packed, 11, &out.t, &err), BS_OK);
  for (int64_t n = 0; n < 20; n++)
    for (int64_t k = 0; k < d.kept; k++) {
      const float sum = (float)kit_get(&d.w, n + 11, kit_column(&d, k)) + (float)kit_get(&delta, n + 11, k);
      uint32_t stored = 0;
      bs_store_f64(type, &stored, 0, (double)sum);
      ck_assert_double_eq(kit_get(&out, n, k), bs_load_f64(type, &stored, 0));
    }
  kit_check_around(&out, "packed_read", 0);
  ck_assert_int_eq(a.impl->packed_read(packed, 18, &out.t, &err), BS_INVALID_ARGUMENT);
  delta.t.dims[0] = 36;
  ck_assert_int_eq(a.impl->packed_update(packed, &delta.t, &err), BS_INVALID_ARGUMENT);
  a.impl->packed_free(packed);
  kit_tensor_free(&a, &delta);
  kit_tensor_free(&a, &out);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

/* Runs a plan of `d` over this weight; returns the bits that it writes. */
static unsigned char *over(kit_actor *a, kit_data *d, void *packed, size_t *out_bytes) {
  bs_error err = BS_ERROR_INIT;
  kit_poison_outputs(d, 0xA5);
  ck_assert_msg(ch_try_plan(a, d, packed, &err) == BS_OK, "%s: %s", kit_data_text(d), err.message);
  return kit_data_bits(d, out_bytes);
}

/* Forward, update, forward, dX on one packed weight: as on a weight that was packed after the update. */
START_TEST(plans_share_one_weight) {
  enum { FORWARD, UPDATE, DX, PLANS };
  static const char *const ops[PLANS] = {"matmul", "matmul_update", "matmul_dx"};
  const uint32_t type = types[_i % 3];
  const kit_shape s = {.x = type, .w = type, .y = type, .B = 5, .N = 50, .K = 37, .seed = 11};
  static ch c;
  kit_actor a[PLANS];
  kit_data d[PLANS];
  bs_error err = BS_ERROR_INIT;
  size_t bytes = 0, of_dx = 0;
  if (!ch_has_isa(sets[_i / 3])) return;
  ch_open(&c, sets[_i / 3], "off");
  for (int i = 0; i < PLANS; i++) {
    ch_actor(&c, &a[i], ops[i], "packed", 2);
    kit_data_make(&d[i], ops[i], &s);
  }
  void *packed = kit_data_pack(&a[UPDATE], &d[UPDATE]);
  unsigned char *before = over(&a[FORWARD], &d[FORWARD], packed, &bytes);
  ck_assert_int_eq(ch_try_plan(&a[UPDATE], &d[UPDATE], packed, &err), BS_OK);
  d[UPDATE].after = calloc((size_t)(s.N * s.K), sizeof *d[UPDATE].after);
  ck_assert_ptr_nonnull(d[UPDATE].after);
  ck_assert_int_eq(kit_packed_values(&a[UPDATE], packed, &d[UPDATE], d[UPDATE].after, &err), BS_OK);
  kit_data_judge(&d[UPDATE], BS_TOL_ACC_F32, 0);
  for (int64_t i = 0; i < s.N * s.K; i++) kit_set(&d[FORWARD].w, i / s.K, i % s.K, d[UPDATE].after[i]);
  void *fresh = kit_data_pack(&a[FORWARD], &d[FORWARD]);
  unsigned char *after = over(&a[FORWARD], &d[FORWARD], packed, &bytes),
                *again = over(&a[FORWARD], &d[FORWARD], fresh, &bytes),
                *dx = over(&a[DX], &d[DX], packed, &of_dx), *dx_again = over(&a[DX], &d[DX], fresh, &of_dx);
  ck_assert_mem_ne(before, after, bytes);
  ck_assert_mem_eq(after, again, bytes);
  ck_assert_mem_eq(dx, dx_again, of_dx);
  free(before), free(after), free(again), free(dx), free(dx_again);
  a[FORWARD].impl->packed_free(packed);
  a[FORWARD].impl->packed_free(fresh);
  for (int i = 0; i < PLANS; i++) {
    kit_data_free(&a[i], &d[i]);
    kit_actor_close(&a[i]);
  }
  ch_close(&c);
}
END_TEST

/* The values of a packed half as a dense matrix. */
static void expand(kit_actor *a, const kit_data *of, const kit_tensor *values, kit_data *out) {
  const kit_shape s = {.x = BS_F32, .w = BS_F32, .y = BS_F32, .B = of->shape.N, .N = 1, .K = of->shape.K};
  kit_data_make(out, "expand24", &s);
  memcpy(out->groups, of->groups, (size_t)(of->shape.N * of->length / 2));
  memcpy(out->a[0].t.data, values->t.data, values->t.bytes);
  ch_run(a, out);
}

/* Both halves of a mask have one stream of positions; zeros, -0 and NaN come back; expanded they are the
 * whole. */
START_TEST(halves_share_positions) {
  enum { N = 35, K = 70 };
  const kit_shape s = {.x = BS_F32, .w = BS_F32, .y = BS_F32, .B = 2, .N = N, .K = K, .seed = 1};
  static ch c;
  kit_actor a, e, back;
  kit_data d[2], dense[2], dx;
  kit_tensor read[2];
  void *packed[2];
  uint64_t bytes[2] = {0};
  bs_error err = BS_ERROR_INIT;
  if (!ch_has_isa(sets[_i])) return;
  ch_open(&c, sets[_i], "off");
  ch_actor(&c, &a, "matmul24", "packed", 2);
  ch_actor(&c, &e, "expand24", "packed", 2);
  ch_actor(&c, &back, "matmul24_dx", "packed", 2);
  for (int i = 0; i < 2; i++) {
    kit_data_make(&d[i], "matmul24", &s);
    for (int64_t g = 0; i == 1 && g < N * d[i].length / 2; g++) d[i].groups[g] ^= 15u;
    for (int64_t k = 0; k < K; k++) kit_set(&d[i].w, 3, k, k % 2 ? -0.0 : 0.0);
    ((uint32_t *)d[i].w.t.data)[K * 7 + 66] = 0xffc54321u;
    const bs_source source = kit_weight_source(&d[i]);
    ck_assert_int_eq(a.impl->pack(a.state, &a.exec, &d[i].query, &source, &packed[i], &bytes[i], &err),
                     BS_OK);
    kit_tensor_make(&read[i], BS_F32, 2, N, d[i].length, 0);
    ck_assert_int_eq(a.impl->packed_read(packed[i], 0, &read[i].t, &err), BS_OK);
    expand(&e, &d[i], &read[i], &dense[i]);
  }
  /* 48 rows and 96 columns of two values a group; and two bits for each */
  ck_assert_uint_eq(bytes[0], 48 * 48 * 4 + 48 * 48 / 4);
  ck_assert_uint_eq(bytes[1], 48 * 48 * 4);
  for (int64_t i = 0; i < N * K; i++) {
    const int first = d[0].groups[i / K * (d[0].length / 2) + i % K / 4] >> i % K % 4 & 1;
    uint32_t half[2], whole;
    for (int h = 0; h < 2; h++) memcpy(&half[h], kit_place_at(&dense[h].a[1], i), sizeof half[h]);
    memcpy(&whole, kit_place_at(&d[0].w, i), sizeof whole);
    ck_assert_uint_eq(half[first ? 0 : 1], whole);
    ck_assert_uint_eq(half[first ? 1 : 0], 0);
  }
  /* The second half outlives the first, whose codes it reads. */
  a.impl->packed_free(packed[0]);
  kit_data_make(&dx, "matmul24_dx", &s);
  memcpy(dx.groups, d[1].groups, (size_t)(N * d[1].length / 2));
  memcpy(dx.w.t.data, d[1].w.t.data, d[1].w.t.bytes);
  ck_assert_int_eq(ch_try_plan(&a, &d[1], packed[1], &err), BS_OK);
  ck_assert_int_eq(ch_try_plan(&back, &dx, packed[1], &err), BS_OK);
  kit_data_judge(&d[1], BS_TOL_ACC_F32, 0);
  kit_data_judge(&dx, BS_TOL_ACC_F32, 0);
  a.impl->packed_free(packed[1]);
  for (int i = 0; i < 2; i++) {
    kit_tensor_free(&a, &read[i]);
    kit_data_free(&a, &d[i]);
    kit_data_free(&e, &dense[i]);
  }
  kit_data_free(&back, &dx);
  kit_actor_close(&back);
  kit_actor_close(&e);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

static int32_t failing_read(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  (void)ctx, (void)nrows, (void)cols, (void)dtype, (void)out, (void)out_stride;
  return bs_fail(err, BS_INPUT, "CH-READ", "row %lld cannot be read", (long long)row);
}

START_TEST(a_failing_source_is_reported) {
  static const char *const ops[] = {"matmul", "matmul", "matmul24"}, *const names[] = {"packed", "dnnl",
                                                                                       "packed"};
  const kit_shape s = {.x = BS_F32, .w = BS_F32, .y = BS_F32, .B = 4, .N = 70, .K = 90, .seed = 2};
  static ch c;
  kit_actor a;
  kit_data d;
  void *packed = NULL;
  uint64_t bytes = 0;
  bs_error err = BS_ERROR_INIT;
  ch_open(&c, "auto", "off");
  if (!ch_find(&c, &a, ops[_i], names[_i], 3)) return;
  kit_data_make(&d, ops[_i], &s);
  bs_source source = kit_weight_source(&d);
  source.read = failing_read;
  ck_assert_int_eq(a.impl->pack(a.state, &a.exec, &d.query, &source, &packed, &bytes, &err), BS_INPUT);
  ck_assert_str_eq(err.id, "CH-READ");
  ck_assert_ptr_null(packed);
  kit_data_free(&a, &d);
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_answer_k7, TEST_COUNT(sets) + TEST_COUNT(tiles)},
                             {packed_weights_read_and_update, 2 * 3},
                             {plans_share_one_weight, TEST_COUNT(sets) * 3},
                             {halves_share_positions, TEST_COUNT(sets)},
                             {a_failing_source_is_reported, 3},
                             {0}};
  return run_tests("cpu_weights", tests, (test_setup){.timeout = 60});
}
