/* SPDX-License-Identifier: MIT
 *
 * test_cpu_products.c - products in cases that the kit does not ask: sums of bytes beyond the whole numbers
 * of f32, a residual that is Y itself, numbers that are none in 2:4 tiles of every width.
 */
#include <math.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

static const char *const sets[] = {"portable", "avx2", "avx512", "avx512_bf16"};

/* Half of 4500 outputs keep each column: 2250 * 127 * 127 is a whole number that f32 has not. */
START_TEST(long_sums_of_integers) {
  static const int64_t tokens[] = {2, 5, 20};
  static ch c;
  kit_actor a;
  if (!ch_has_isa(sets[_i])) return;
  ch_open(&c, sets[_i], "off");
  ch_actor(&c, &a, "matmul24_dx", "packed", 1);
  for (int i = 0; i < TEST_COUNT(tokens); i++) {
    const kit_shape s = {.x = BS_I32, .w = BS_I8, .y = BS_I8, .B = tokens[i], .N = 4500, .K = 36};
    kit_data d;
    kit_data_make(&d, "matmul24_dx", &s);
    ck_assert_int_eq(d.positions.transposable, 1); /* of each two rows one keeps a column */
    for (int64_t n = 0; n < s.N; n++) {
      for (int64_t b = 0; b < s.B; b++) kit_set(&d.a[0], b, n, 127);
      for (int64_t k = 0; k < s.K; k++) kit_set(&d.w, n, k, 127);
    }
    ch_run(&a, &d);
    for (int64_t j = 0; j < s.B * s.K; j++)
      ck_assert_double_eq(kit_get(&d.a[1], j / s.K, j % s.K), 2250.0 * 127 * 127);
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

/* The largest products of bytes that there are, to the bit; then every number of tokens of a tile. */
START_TEST(largest_bytes) {
  static const struct {
    const char *op, *name;
    uint32_t x, y;
  } ops[] = {{"matmul", "bytes", BS_I8, BS_I32},
             {"matmul24", "packed", BS_I8, BS_I32},
             {"matmul24_dx", "packed", BS_I32, BS_I8}};
  static const int64_t sizes[][3] = {{1, 16, 4},    {5, 33, 66},   {49, 48, 1025}, {97, 800, 40},
                                     {3, 20, 1290}, {66, 40, 300}, {4, 1300, 8},   {131, 290, 270}};
  const int op = _i / TEST_COUNT(sets);
  static ch c;
  kit_actor a;
  if (!ch_has_isa(sets[_i % TEST_COUNT(sets)])) return;
  ch_open(&c, sets[_i % TEST_COUNT(sets)], "off");
  ch_actor(&c, &a, ops[op].op, ops[op].name, 2);
  for (int i = 0; i < TEST_COUNT(sizes) + 12; i++) {
    const int64_t tile[3] = {1 + i - TEST_COUNT(sizes), 112, 37};
    const int64_t *size = i < TEST_COUNT(sizes) ? sizes[i] : tile;
    const kit_shape s = {.x = ops[op].x,
                         .w = BS_I8,
                         .y = ops[op].y,
                         .bias = op < 2 && i % 3 == 0 ? BS_I32 : 0,
                         .residual = op < 2 && i % 3 != 1 ? BS_I32 : 0,
                         .activation = op < 2 && i % 2 ? BS_ACT_RELU : BS_ACT_NONE,
                         .B = size[0],
                         .N = size[1],
                         .K = size[2],
                         .seed = (uint64_t)i};
    kit_data d;
    kit_data_make(&d, ops[op].op, &s);
    for (int64_t r = 0; r < d.a[0].t.dims[0]; r++)
      for (int64_t k = 0; k < d.a[0].t.dims[1]; k++) kit_set(&d.a[0], r, k, r % 2 ? -128 : 127);
    for (int64_t n = 0; n < s.N; n++)
      for (int64_t k = 0; k < s.K; k++) kit_set(&d.w, n, k, n % 3 ? -128 : 127);
    ch_check(&a, &d);
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

/* NaN and infinities of dY reach the columns that their output keeps and no other, in tiles of every width
 * and with the last panels missing; everywhere else the bits are the same as for a number. */
START_TEST(dx_takes_what_is_kept) {
  static const int64_t tokens[] = {1, 4, 8, 13, 20, 40, 64, 70};
  static const double none[] = {NAN, INFINITY, -INFINITY};
  static const uint32_t types[] = {BS_F32, BS_BF16, BS_F16};
  static ch c;
  kit_actor a;
  if (!ch_has_isa(sets[_i])) return;
  ch_open(&c, sets[_i], "off");
  ch_actor(&c, &a, "matmul24_dx", "packed", 2);
  for (int i = 0; i < TEST_COUNT(tokens); i++) {
    const kit_shape s = {.x = BS_F32,
                         .w = types[i % 3],
                         .y = BS_F32,
                         .B = tokens[i],
                         .N = 85,
                         .K = 70,
                         .seed = 1 + 3 * ((uint64_t)i % 2)};
    kit_data d;
    size_t bytes;
    kit_data_make(&d, "matmul24_dx", &s);
    kit_set(&d.a[0], s.B / 2, 17 * i % 85, 1.0);
    ch_run(&a, &d);
    unsigned char *good = kit_data_bits(&d, &bytes);
    kit_set(&d.a[0], s.B / 2, 17 * i % 85, none[i % 3]);
    ch_run(&a, &d);
    kit_data_judge(&d, BS_TOL_ACC_F32, 1);
    for (int64_t k = 0; k < s.B * s.K; k++)
      if (isfinite(kit_get_at(&d.a[1], k)))
        ck_assert_msg(memcmp(good + k * 4, kit_place_at(&d.a[1], k), 4) == 0, "%s: element %lld",
                      kit_data_text(&d), (long long)k);
    free(good);
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

START_TEST(residual_may_be_y) {
  static const struct {
    const char *set, *name;
  } others[] = {{"auto", "dnnl"}, {"amx_model", "amx"}, {"amx", "amx"}};
  const int other = _i - TEST_COUNT(sets);
  const char *set = other < 0 ? sets[_i] : others[other].set;
  const char *name = other < 0 ? "packed" : others[other].name;
  const uint32_t type = strcmp(name, "amx") == 0 ? BS_BF16 : BS_F32;
  static ch c;
  kit_actor a;
  if (!ch_has_isa(set)) return;
  ch_open(&c, set, "auto");
  if (!ch_find(&c, &a, "matmul", name, 2)) return;
  for (uint32_t act = BS_ACT_NONE; act <= BS_ACT_GELU_TANH; act++) {
    const kit_shape s = {.x = type,
                         .w = type,
                         .y = BS_F32,
                         .bias = BS_F32,
                         .residual = BS_F32,
                         .B = 21,
                         .N = 75,
                         .K = 310,
                         .activation = act,
                         .seed = 11};
    bs_error err = BS_ERROR_INIT;
    bs_op_answer answer;
    kit_data d;
    void *plan = NULL;
    kit_data_make(&d, "matmul", &s);
    d.descs[2] = d.descs[3];
    kit_data_ask(&a, &d, &answer);
    if (answer.level == BS_LEVEL_NATIVE) {
      for (int64_t i = 0; i < s.B * s.N; i++)
        kit_set(&d.a[3], i / s.N, i % s.N, kit_get(&d.a[2], i / s.N, i % s.N));
      bs_tensor *const args[4] = {&d.a[0].t, &d.a[1].t, &d.a[3].t, &d.a[3].t};
      void *packed = kit_data_pack(&a, &d);
      ck_assert_int_eq(a.impl->prepare(a.state, &a.exec, &d.query, packed, &plan, &err), BS_OK);
      for (uint32_t i = 0; i < 4; i++) kit_push(&a, &d.a[i]); /* what was there before, for the judge */
      ck_assert_int_eq(a.impl->run(plan, args, 4, NULL, &err), BS_OK);
      kit_data_judge(&d, answer.tolerance, 0);
      a.impl->plan_free(plan);
      a.impl->packed_free(packed);
    }
    kit_data_free(&a, &d);
  }
  kit_actor_close(&a);
  ch_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{long_sums_of_integers, TEST_COUNT(sets)},
                             {largest_bytes, 3 * TEST_COUNT(sets)},
                             {dx_takes_what_is_kept, TEST_COUNT(sets)},
                             {residual_may_be_y, TEST_COUNT(sets) + 3},
                             {0}};
  return run_tests("cpu_products", tests, (test_setup){.timeout = 60});
}
