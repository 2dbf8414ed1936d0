/* SPDX-License-Identifier: MIT
 *
 * test_cpu_grad.c - matmul_dx, matmul_dw and matmul_update on each instruction set against sums of doubles:
 * odd shapes, strides, partitions, smaller batches, team widths, integers, mixed dtypes; and that an update
 * is seen by everything that reads the packed weight. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu_grad_case.h"
#include "tests/run_tests.h"

static const char *const isas[] = {"portable", "avx2", "avx512", "avx512_bf16"};
enum { ISAS = 4 };
static const uint32_t types[3] = {BS_F32, BS_BF16, BS_F16};

static int open_isa(int i, uint32_t width, cx *out) {
  if (!cx_has_isa(isas[i])) return 0;
  cx_open(out, isas[i], "off", width);
  return 1;
}

static void run_on_all(cx *host, const int *have, const gc *shape) {
  gc_data d;
  gc_make(&d, shape);
  for (int i = 0; i < ISAS; i++)
    if (have[i]) gc_run(&host[i], &d);
  gc_free(&d);
}

/* Strides, columns, dtypes and short calls go round with the shapes, so that each meets many. */
static gc varied(uint32_t op, int64_t B, int64_t N, int64_t K, uint32_t turn) {
  gc s = gc_plain(op, types[turn % 3], B, N, K);
  s.padded = turn & 1u;
  s.columns = turn / 2 % 5 < 4 ? turn / 2 % 5 : MC_ALL;
  s.x_full = s.columns != MC_ALL && turn % 7 < 4;
  s.period = turn % 4 == 3 ? 3 : 4;
  s.bits = (uint32_t[]){3, 12, 5, 10, 9, 6}[turn % 6];
  s.rows = turn % 8 == 5 ? (B + 1) / 2 : 0;
  if (turn % 5 == 1) s.dy_type = BS_F32;
  if (turn % 5 == 2) s.x_type = types[(turn + 1) % 3];
  if (turn % 5 == 3) s.w_type = types[(turn + 2) % 3];
  s.alpha = (float[]){-0.125f, 0.3f, 1.0f, -1.7f}[turn % 4];
  s.seed = turn;
  return s;
}

START_TEST(every_shape_is_within_the_bound) {
  static const int64_t batches[] = {1, 2, 7, 16, 33, 131};
  static const int64_t sizes[] = {1, 3, 17, 31, 64, 257};
  const uint32_t every = BS_THIS_SANITIZER == BS_SAN_NONE ? 1 : 6; /* sanitizers are slow */
  cx host[ISAS];
  int have[ISAS];
  uint32_t turn = 0;
  for (int i = 0; i < ISAS; i++) have[i] = open_isa(i, 1 + (uint32_t)i, &host[i]);
  ck_assert_int_eq(have[0], 1);
  for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
    for (size_t n = 0; n < 6; n++)
      for (size_t k = 0; k < 6; k++, turn++) {
        const gc s = varied((uint32_t)_i, batches[b], sizes[n], sizes[k], turn);
        if (turn % every == 0) run_on_all(host, have, &s);
      }
  for (int i = 0; i < ISAS; i++)
    if (have[i]) cx_close(&host[i]);
}
END_TEST

/* More than one block of each dimension with ragged ends: of outputs, columns, tokens, panels of a chunk. */
START_TEST(blocks_and_chunks_join) {
  static const int64_t shapes[][3] = {{1, 530, 1043}, {2, 1025, 30},  {300, 135, 290},
                                      {257, 40, 530}, {130, 530, 35}, {5, 40, 2600}};
  cx host[ISAS];
  int have[ISAS];
  for (int i = 0; i < ISAS; i++) have[i] = open_isa(i, 2, &host[i]);
  for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
    for (int t = 0; t < 3; t++) {
      gc s = gc_plain((uint32_t)_i, types[t], shapes[k][0], shapes[k][1], shapes[k][2]);
      if (t == 1) s.columns = MC_LIST;
      s.x_full = t == 1;
      run_on_all(host, have, &s);
    }
  for (int i = 0; i < ISAS; i++)
    if (have[i]) cx_close(&host[i]);
}
END_TEST

/* Every count of columns or rows of a tile and every count of panels beside it. */
START_TEST(every_tile) {
  cx host[ISAS];
  int have[ISAS];
  for (int i = 0; i < ISAS; i++) have[i] = open_isa(i, 1, &host[i]);
  for (int64_t a = 1; a <= 26; a++)
    for (int64_t b = 16; b <= 64; b += 16) {
      const int dx = _i == GC_DX;
      const gc s = gc_plain((uint32_t)_i, types[a % 3], dx ? a : 5,
                            dx            ? 21
                            : _i == GC_DW ? a
                                          : b,
                            dx || _i == GC_DW ? b : a);
      run_on_all(host, have, &s);
    }
  for (int i = 0; i < ISAS; i++)
    if (have[i]) cx_close(&host[i]);
}
END_TEST

/* Small integers: equality, and one rounding of a 16-bit weight however many tokens there are. */
START_TEST(integers_are_exact) {
  cx host[ISAS];
  int have[ISAS];
  for (int i = 0; i < ISAS; i++) have[i] = open_isa(i, 3, &host[i]);
  for (int t = 0; t < 3; t++)
    for (int size = 0; size < 4; size++) {
      gc s = gc_plain((uint32_t)_i, types[t], (int64_t[]){1, 7, 200, 390}[size],
                      (int64_t[]){5, 48, 97, 70}[size], (int64_t[]){9, 120, 230, 300}[size]);
      s.integers = 1;
      s.alpha = size % 2 == 0 ? 0.5f : -0.0625f;
      run_on_all(host, have, &s);
    }
  for (int i = 0; i < ISAS; i++)
    if (have[i]) cx_close(&host[i]);
}
END_TEST

START_TEST(bits_do_not_depend_on_the_team) {
  for (int i = 0; i < ISAS; i++) {
    if (!cx_has_isa(isas[i])) continue;
    for (int t = 0; t < 3; t++) {
      gc s = gc_plain((uint32_t)_i, types[t], 140, 133, 290);
      s.columns = MC_PATTERN;
      s.period = 4;
      s.bits = 3;
      unsigned char *first = NULL;
      gc_data d;
      gc_make(&d, &s);
      for (uint32_t width = 1; width <= 5; width++) {
        cx c;
        size_t bytes = 0;
        cx_open(&c, isas[i], "off", width);
        gc_run(&c, &d);
        const void *result = gc_result(&d, &bytes);
        if (first == NULL) {
          first = malloc(bytes);
          ck_assert_ptr_nonnull(first);
          memcpy(first, result, bytes);
        }
        ck_assert_msg(memcmp(first, result, bytes) == 0, "%s, width %u: %s", isas[i], width, gc_text(&s));
        cx_close(&c);
      }
      free(first);
      gc_free(&d);
    }
  }
}
END_TEST

/* One chain of fused multiply-adds on both: the width of a vector does not show. */
START_TEST(avx2_and_avx512_give_the_same_bits) {
  if (!cx_has_isa("avx512")) return;
  for (int t = 0; t < 3; t++) {
    const gc s = gc_plain((uint32_t)_i, types[t], 37, 203, 300);
    gc_data d[2];
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
      cx c;
      gc_make(&d[i], &s);
      cx_open(&c, isas[1 + i], "off", 1);
      gc_run(&c, &d[i]);
      cx_close(&c);
    }
    const void *narrow = gc_result(&d[0], &bytes), *wide = gc_result(&d[1], &bytes);
    ck_assert_int_eq(memcmp(narrow, wide, bytes), 0);
    gc_free(&d[0]);
    gc_free(&d[1]);
  }
}
END_TEST

START_TEST(empty_sizes) {
  static const int64_t shapes[][3] = {{0, 20, 30}, {4, 0, 30}, {4, 20, 0}, {0, 0, 0}};
  cx c;
  cx_open(&c, "auto", "off", 2);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
    for (uint32_t op = 0; op < GC_OPS; op++) {
      const gc s = gc_plain(op, BS_F32, shapes[i][0], shapes[i][1], shapes[i][2]);
      gc_data d;
      gc_make(&d, &s); /* dX of no outputs and dW of no tokens are zero, a weight without tokens stays */
      gc_run(&c, &d);
      gc_free(&d);
    }
  cx_close(&c);
}
END_TEST

static void forward(const cx *c, void *packed, cx_matrix *x, cx_matrix *y) {
  bs_error err = {.struct_size = sizeof err};
  void *state = NULL, *plan = NULL;
  const bs_op_impl *impl = cx_impl(c, "matmul", "packed", &state);
  const bs_tensor_desc *const args[4] = {&x->d, NULL, NULL, &y->d};
  const bs_op_query q = {
      .struct_size = sizeof q, .nargs = 4, .op = "matmul", .args = args, .weight_dtype = x->d.dtype};
  bs_tensor *call[4] = {&x->t, NULL, NULL, &y->t};
  ck_assert_int_eq(impl->prepare(state, &c->exec, &q, packed, &plan, &err), BS_OK);
  ck_assert_int_eq(impl->run(plan, call, 4, NULL, &err), BS_OK);
  impl->plan_free(plan);
}

/* Forward, update, forward, dX on one packed weight: as on a weight that was packed after the update. */
START_TEST(plans_share_one_weight) {
  enum { B = 5, N = 50, K = 37 };
  for (int i = 0; i < ISAS; i++)
    for (int t = 0; t < 3; t++) {
      cx c;
      if (!open_isa(i, 2, &c)) continue;
      const gc s = gc_plain(GC_UPDATE, types[t], B, N, K), dx = gc_plain(GC_DX, types[t], B, N, K);
      gc_data d, after;
      cx_matrix y[3];
      bs_error err = {.struct_size = sizeof err};
      const bs_op_impl *matmul = cx_impl(&c, "matmul", "packed", NULL);
      gc_make(&d, &s);
      for (int j = 0; j < 3; j++) cx_matrix_make(&y[j], types[t], B, N, 0);
      void *packed = gc_pack(&c, &d);
      forward(&c, packed, &d.x, &y[0]);
      ck_assert_int_eq(gc_try(&c, &d, packed, &err), BS_OK);
      gc_read(&c, &d, packed);
      gc_judge(&d, isas[i]);
      forward(&c, packed, &d.x, &y[1]);
      gc_make(&after, &dx);
      memcpy(after.w.t.data, d.back.t.data, d.back.t.bytes);
      void *fresh = gc_pack(&c, &after);
      forward(&c, fresh, &d.x, &y[2]);
      ck_assert_mem_eq(y[1].t.data, y[2].t.data, y[1].t.bytes);
      ck_assert_mem_ne(y[0].t.data, y[1].t.data, y[1].t.bytes);
      unsigned char result[B * K * 4];
      ck_assert_int_eq(gc_try(&c, &after, packed, &err), BS_OK);
      memcpy(result, after.x.t.data, after.x.t.bytes);
      ck_assert_int_eq(gc_try(&c, &after, fresh, &err), BS_OK);
      ck_assert_mem_eq(result, after.x.t.data, after.x.t.bytes);
      matmul->packed_free(packed);
      matmul->packed_free(fresh);
      for (int j = 0; j < 3; j++) cx_matrix_free(&y[j]);
      gc_free(&d);
      gc_free(&after);
      cx_close(&c);
    }
}
END_TEST

static void refused(const cx *c, const gc_data *d, const bs_op_query *q, uint32_t reason, const char *word) {
  void *state = NULL, *plan = NULL;
  bs_error err = {.struct_size = sizeof err};
  bs_op_answer a = {.struct_size = sizeof a};
  const bs_op_impl *impl = cx_impl(c, gc_op(d->shape.op), "packed", &state);
  ck_assert_int_eq(impl->supports(state, q, &a), BS_OK);
  ck_assert_uint_eq(a.level, BS_LEVEL_NO);
  ck_assert_uint_eq(a.reason, reason);
  ck_assert_msg(strstr(a.text, word) != NULL, "\"%s\" lacks \"%s\"", a.text, word);
  if (strcmp(word, "weight") == 0) return; /* prepare sees that from the packed weight */
  ck_assert_int_eq(impl->prepare(state, &c->exec, q, NULL, &plan, &err), BS_UNSUPPORTED);
  ck_assert_ptr_null(plan);
}

START_TEST(what_is_not_covered_is_refused) {
  const gc s = gc_plain((uint32_t)_i, BS_F32, 4, 20, 30);
  const bs_tensor_desc *args[3];
  bs_op_query q;
  gc_data d;
  cx c;
  cx_open(&c, "auto", "off", 1);
  gc_make(&d, &s);
  gc_query(&d, args, &q);
  q.accumulate = BS_ACC_F64;
  refused(&c, &d, &q, BS_REASON_DTYPE, "accumulates in f32");
  q.accumulate = BS_ACC_DEFAULT;
  d.dy.d.dtype = BS_F64;
  refused(&c, &d, &q, BS_REASON_DTYPE, "dY of dtype");
  d.dy.d.dtype = BS_F32;
  d.x.d.strides[1] = 2;
  refused(&c, &d, &q, BS_REASON_LAYOUT, "element stride 2");
  d.x.d.strides[1] = 1;
  if (_i == GC_DW) {
    d.dw.d.dtype = BS_F64;
    refused(&c, &d, &q, BS_REASON_DTYPE, "f32 only");
  } else {
    q.weight_dtype = BS_F64;
    refused(&c, &d, &q, BS_REASON_DTYPE, "weight");
    q.weight_dtype = BS_F32;
    void *state = NULL, *plan = NULL;
    bs_error err = {.struct_size = sizeof err};
    const bs_op_impl *impl = cx_impl(&c, q.op, "packed", &state);
    ck_assert_int_eq(impl->prepare(state, &c.exec, &q, NULL, &plan, &err), BS_INVALID_ARGUMENT);
    ck_assert_str_eq(err.id, "BS-CPU-PACKED");
    void *packed = gc_pack(&c, &d);
    c.fail_alloc_at = 1;
    ck_assert_int_eq(impl->prepare(state, &c.exec, &q, packed, &plan, &err), BS_NO_MEMORY);
    cx_impl(&c, "matmul", "packed", NULL)->packed_free(packed);
  }
  gc_free(&d);
  cx_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_shape_is_within_the_bound, GC_OPS},
                             {blocks_and_chunks_join, GC_OPS},
                             {every_tile, GC_OPS},
                             {integers_are_exact, GC_OPS},
                             {bits_do_not_depend_on_the_team, GC_OPS},
                             {avx2_and_avx512_give_the_same_bits, GC_OPS},
                             {empty_sizes},
                             {plans_share_one_weight},
                             {what_is_not_covered_is_refused, GC_OPS},
                             {0}};
  return run_tests("cpu_grad", tests, (test_setup){.timeout = 60});
}
