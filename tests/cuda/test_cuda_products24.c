/* SPDX-License-Identifier: MIT
 * test_cuda_products24.c - the ops over 2:4 weights of the cuda plugin, host's side and the CPU twins of the
 * kernels, against ref to the bit. Kept positions differ by row; what is not kept does not count; places
 * beyond the last column are zero and stay so. */
#include <math.h>

#include "plugins/cuda/ops/products24.h"
#include "products_case.h"
#include "tests/run_tests.h"

static const uint32_t floats[6] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2};
static const uint32_t integers[4] = {BS_I64, BS_I32, BS_I8, BS_U8};

START_TEST(every_dtype) {
  pl p;
  uint64_t seed = 3 + (uint64_t)_i;
  pl_open(&p);
  for (int w = 0; w < 6; w++) {
    const pc_shape s = {.x = floats[_i],
                        .w = floats[w],
                        .y = floats[(_i + w) % 6],
                        .grad = floats[(w + 1) % 6],
                        .sums = w % 2 == 0 ? BS_F32 : BS_F64,
                        .B = 5 + w,
                        .N = 66,
                        .K = 22 + w,
                        .lay = w % PC_LAYS,
                        .epilogue = w % 2,
                        .of24 = 1};
    pc_all(&p, &s, &seed);
  }
  for (int w = 0; w < 4 && _i < 4; w++) {
    const uint32_t sums = (_i + w) % 2 == 0 ? BS_I32 : BS_I64;
    const pc_shape s = {.x = integers[_i],
                        .w = integers[w],
                        .y = sums,
                        .grad = integers[(_i + w) % 4],
                        .sums = sums,
                        .B = 7,
                        .N = 9,
                        .K = 38 + w,
                        .lay = w % PC_LAYS,
                        .epilogue = 1,
                        .of24 = 1};
    pc_all(&p, &s, &seed);
  }
  pl_close(&p);
}
END_TEST

START_TEST(edges_of_tiles) {
  static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 127, 130};
  enum { SIZES = sizeof sizes / sizeof sizes[0] };
  pl p;
  uint64_t seed = 7;
  pl_open(&p);
  for (int i = 0; i < SIZES; i++)
    for (int turn = 0; turn < 3; turn++) {
      const int64_t other = 4 + turn, more = sizes[(i + 4 * turn + 1) % SIZES];
      const uint32_t type = (i + turn) % 2 == 0 ? BS_F32 : BS_F64;
      const pc_shape s = {.x = type,
                          .w = type,
                          .y = BS_F32,
                          .grad = type,
                          .sums = BS_F32,
                          .B = turn == 0   ? sizes[i]
                               : turn == 1 ? more
                                           : other,
                          .N = turn == 1   ? sizes[i]
                               : turn == 2 ? more
                                           : other,
                          .K = turn == 2   ? sizes[i]
                               : turn == 0 ? more
                                           : other,
                          .lay = _i,
                          .where = (i + turn) % PL_PLACES,
                          .of24 = 1};
      pc_all(&p, &s, &seed);
    }
  pl_close(&p);
}
END_TEST

/* A run of whole groups of a larger X, whole or cut out. */
START_TEST(runs) {
  pl p;
  uint64_t seed = 11;
  pl_open(&p);
  for (int lay = 0; lay < PC_LAYS; lay++) {
    const pc_shape s = {.x = BS_BF16,
                        .w = BS_BF16,
                        .y = BS_F32,
                        .grad = BS_F32,
                        .sums = BS_F32,
                        .B = 6,
                        .N = 11,
                        .K = 97 + lay,
                        .lay = lay,
                        .part = PC_RUN,
                        .full = _i,
                        .of24 = 1};
    pc_all(&p, &s, &seed);
  }
  pl_close(&p);
}
END_TEST

/* NaN and infinities, also where nothing is kept: there they do not count. */
START_TEST(special_values) {
  pl p;
  uint64_t seed = 13;
  pl_open(&p);
  for (int t = 0; t < 6; t++) {
    const pc_shape s = {.x = floats[t],
                        .w = floats[t],
                        .y = BS_F32,
                        .grad = floats[t],
                        .sums = t % 2 ? BS_F32 : BS_F64,
                        .B = 70,
                        .N = 33,
                        .K = 37,
                        .activation = BS_ACT_RELU,
                        .epilogue = 1,
                        .rare = 30,
                        .of24 = 1};
    pc_all(&p, &s, &seed);
  }
  pl_close(&p);
}
END_TEST

START_TEST(others_do_not_count) {
  static unsigned char bits[2] = {3, 12};
  const pc_shape s = {.x = BS_F32,
                      .w = BS_F32,
                      .y = BS_F32,
                      .grad = BS_F32,
                      .sums = BS_F32,
                      .B = 1,
                      .N = 1,
                      .K = 8,
                      .of24 = 1};
  pl p;
  pc c;
  uint64_t seed = 17;
  pl_open(&p);
  pc_open(&c, &p, &s, &seed);
  memcpy(c.groups, bits, 2);
  const bs_tensor_desc *args[4] = {&c.x.d, NULL, NULL, &c.y[0].d};
  const bs_op_query q = pc_query(&c, "matmul24", args, 4);
  const bs_source source = fx_source(&c.w);
  uint64_t bytes = 0;
  void *packed = NULL;
  bs_error err = BS_ERROR_INIT;
  for (int64_t k = 0; k < 8; k++) fx_set(&c.w, 0, k, (double)(k + 1)), pl_set(&c.x, 0, k, NAN);
  pl_set(&c.x, 0, 2, INFINITY);
  const int64_t kept[4] = {0, 1, 6, 7};
  for (int i = 0; i < 4; i++) pl_set(&c.x, 0, kept[i], 1.0);
  ck_assert_int_eq(cuda_matmul24.pack(&p.state, &p.exec, &q, &source, &packed, &bytes, &err), BS_OK);
  ck_assert_uint_eq(bytes, 16 + 2);
  pl_run_cuda(&p, &cuda_matmul24, &q, packed, (bs_tensor *[]){&c.x.t, NULL, NULL, &c.y[0].t});
  ck_assert_double_eq(pl_get(&c.y[0], 0, 0), 1 + 2 + 7 + 8);
  cuda_matmul24.packed_free(packed);
  pc_close(&c);
  pl_close(&p);
}
END_TEST

/* The codes that lie on the device, and the six patterns they stand for. */
START_TEST(codes) {
  static const unsigned char two[6] = {3, 5, 6, 9, 10, 12}, want[6] = {4, 8, 9, 12, 13, 14};
  unsigned char bits[18];
  pl p;
  bs_error err = BS_ERROR_INIT;
  cuda_places places;
  pl_open(&p);
  for (int i = 0; i < 18; i++) bits[i] = two[(i * 5 + i / 6) % 6];
  fx_kept_table table = {bits, 6};
  const bs_kept kept = fx_kept(&table, 3, 22);
  ck_assert_int_eq(cuda_places_make(&p.exec, &p.f.host, &kept, &places, &err), BS_OK);
  ck_assert_int_eq(places.groups, 6);
  for (int i = 0; i < 18; i++) ck_assert_uint_eq(places.codes[i], want[(i * 5 + i / 6) % 6]);
  cuda_places_free(&places);
  bits[13] = 7;
  ck_assert_int_eq(cuda_places_make(&p.exec, &p.f.host, &kept, &places, &err), BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "row 2, columns 4.."));
  cuda_places_free(&places);
  pl_close(&p);
}
END_TEST

START_TEST(refusals) {
  const pc_shape s = {.x = BS_F32,
                      .w = BS_F32,
                      .y = BS_F32,
                      .grad = BS_F32,
                      .sums = BS_F32,
                      .B = 2,
                      .N = 4,
                      .K = 8,
                      .of24 = 1};
  pl p;
  pc c;
  uint64_t seed = 19;
  bs_op_answer answer;
  bs_error err = BS_ERROR_INIT;
  void *plan = NULL;
  pl_open(&p);
  pc_open(&c, &p, &s, &seed);
  const bs_tensor_desc *args[4] = {&c.x.d, NULL, NULL, &c.y[0].d};
  bs_op_query q = pc_query(&c, "matmul24", args, 4);
  bs_kept other = c.positions;
  for (int i = 0; i < 3; i++) {
    const bs_partition odd = fx_contiguous(10, 2, 8);
    other.rows = i == 0 ? 5 : 4;
    q.kept = i == 1 ? NULL : i == 0 ? &other : &c.positions;
    q.partition = i == 2 ? &odd : NULL;
    memset(&answer, 0, sizeof answer);
    answer.struct_size = (uint32_t)sizeof answer;
    ck_assert_int_eq(cuda_matmul24.supports(&p.state, &q, &answer), BS_OK);
    ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
    ck_assert_uint_eq(answer.reason, BS_REASON_SPARSITY);
  }
  /* A plan of matmul over a 2:4 weight, as long as its rows of values. */
  const bs_tensor_desc half = bs_desc_2d(BS_F32, 2, 4);
  args[0] = &half;
  bs_op_query plain = fx_query("matmul", args, 4);
  plain.weight_dtype = BS_F32;
  ck_assert_int_eq(cuda_matmul.prepare(&p.state, &p.exec, &plain, c.packed[0], &plan, &err),
                   BS_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(err.message, "2:4"));
  pc_close(&c);
  pl_close(&p);
}
END_TEST

/* No memory at any allocation of pack and of a plan with positions of its own: nothing is left. */
START_TEST(no_memory) {
  const pc_shape s = {.x = BS_F32,
                      .w = BS_F32,
                      .y = BS_F32,
                      .grad = BS_F32,
                      .sums = BS_F32,
                      .B = 2,
                      .N = 40,
                      .K = 9,
                      .of24 = 1};
  pl p;
  pc c;
  uint64_t seed = 23, bytes = 0;
  bs_error err = BS_ERROR_INIT;
  pl_open(&p);
  pc_open(&c, &p, &s, &seed);
  const bs_tensor_desc *args[4] = {&c.x.d, NULL, NULL, &c.y[0].d};
  const bs_tensor_desc *dw[3] = {&c.x.d, &c.dy.d, &c.dw[0].d};
  const bs_op_query q = pc_query(&c, "matmul24", args, 4), g = pc_query(&c, "matmul24_dw", dw, 3);
  const bs_source source = fx_source(&c.w);
  const int64_t live = p.f.live;
  int ended = 0;
  for (int64_t n = 1; ended < 2; n++) {
    void *packed = NULL, *plan = NULL;
    ended = 0;
    p.f.fail_alloc_at = n;
    int32_t rc = cuda_matmul24.pack(&p.state, &p.exec, &q, &source, &packed, &bytes, &err);
    if (rc == BS_OK) cuda_matmul24.packed_free(packed), ended++;
    ck_assert_int_eq(p.f.live, live);
    p.f.fail_alloc_at = n;
    rc = cuda_matmul24_dw.prepare(&p.state, &p.exec, &g, NULL, &plan, &err);
    if (rc == BS_OK) cuda_matmul24_dw.plan_free(plan), ended++;
    p.f.fail_alloc_at = 0;
    ck_assert_int_eq(p.f.live, live);
    ck_assert_int_lt(n, 30);
  }
  pc_close(&c);
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_dtype, 6},
                             {edges_of_tiles, PC_LAYS},
                             {runs, 2},
                             {special_values},
                             {others_do_not_count},
                             {codes},
                             {refusals},
                             {no_memory},
                             {0}};
  return run_tests("cuda_products24", tests, (test_setup){0});
}
