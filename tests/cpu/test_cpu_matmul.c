/* SPDX-License-Identifier: MIT
 *
 * test_cpu_matmul.c - each matmul of the cpu plugin on each instruction set against sums of doubles: odd
 * shapes, strides, epilogues, partitions, smaller batches, team widths, integers, special values. What a
 * supports() promises must run, what it refuses must be refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu_matmul_case.h"
#include "tests/run_tests.h"

/* The ways through the plugin; each is opened once a test. */
typedef struct way {
  const char *label, *isa, *dnnl, *impl;
} way;

static const way ways[] = {
    {"portable", "portable", "off", "packed"}, {"avx2", "avx2", "off", "packed"},
    {"avx512", "avx512", "off", "packed"},     {"avx512_bf16", "avx512_bf16", "off", "packed"},
    {"dnnl", "auto", "auto", "dnnl"},
};
enum { WAYS = 5, DNNL = 4 };

/* Opens the ways that this machine and build have. */
static int open_way(int i, uint32_t width, cx *out) {
  if (!cx_has_isa(ways[i].isa)) return 0;
  cx_open(out, ways[i].isa, ways[i].dnnl, width);
  if (cx_impl(out, "matmul", ways[i].impl, NULL) != NULL) return 1;
  cx_close(out);
  return 0;
}

static mc plain(uint32_t dtype, int64_t B, int64_t N, int64_t K) {
  const mc s = {.dtype = dtype, .y_type = dtype, .B = B, .N = N, .K = K, .seed = 11};
  return s;
}

static int serves(const cx *c, const char *impl, const mc_data *d) {
  bs_op_answer a;
  mc_ask(c, impl, d, &a);
  return a.level == BS_LEVEL_NATIVE;
}

static const uint32_t types[3] = {BS_F32, BS_BF16, BS_F16};
static const int64_t batches[] = {1, 2, 3, 5, 7, 16, 17, 64, 65, 130};
static const int64_t sizes[] = {1, 3, 7, 17, 64, 100, 257, 300};

/* Epilogues, strides and columns go round with the shapes, so that each meets many. */
static mc varied(uint32_t dtype, int64_t B, int64_t N, int64_t K, uint32_t turn) {
  mc s = plain(dtype, B, N, K);
  s.padded = turn & 1u;
  s.bias = turn % 3 == 1 ? dtype : turn % 3 == 2 ? BS_F32 : 0;
  s.activation = turn % 5 < 4 ? turn % 5 : 0;
  s.y_type = turn % 7 == 3 ? BS_F32 : dtype;
  if (turn % 4 == 1) s.residual = s.y_type;
  s.columns = turn % 6 < 4 ? turn % 6 : MC_ALL;
  s.period = 4;
  s.bits = (uint32_t[]){3, 12, 5, 10, 9, 6}[turn % 6];
  s.rows = turn % 8 == 5 ? (B + 1) / 2 : 0;
  s.seed = turn;
  return s;
}

static void grid(uint32_t dtype) {
  cx host[WAYS];
  int have[WAYS], ran[WAYS] = {0};
  uint32_t turn = 0;
  const uint32_t every = BS_THIS_SANITIZER == BS_SAN_NONE ? 1 : 5; /* sanitizers are slow */
  int cases = 0;
  for (int i = 0; i < WAYS; i++) have[i] = open_way(i, 1 + (uint32_t)i, &host[i]);
  for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++)
    for (size_t n = 0; n < 8; n++)
      for (size_t k = 0; k < 8; k++, turn++) {
        const mc s = varied(dtype, batches[b], sizes[n], sizes[k], turn);
        mc_data d;
        if (turn % every != 0) continue;
        cases++;
        mc_make(&d, &s);
        for (int i = 0; i < WAYS; i++) {
          if (!have[i] || !serves(&host[i], ways[i].impl, &d)) continue;
          mc_run(&host[i], ways[i].impl, &d);
          ran[i]++;
        }
        mc_free(&d);
      }
  for (int i = 0; i < DNNL; i++)
    if (have[i]) ck_assert_int_eq(ran[i], cases);
  ck_assert_int_eq(have[0], 1);
  if (have[DNNL] && dtype == BS_F32) ck_assert_int_ge(ran[DNNL], cases * 3 / 4);
  for (int i = 0; i < WAYS; i++)
    if (have[i]) cx_close(&host[i]);
}

START_TEST(every_shape_is_within_the_bound) {
  grid(types[_i]);
}
END_TEST

START_TEST(integers_are_exact) {
  for (int i = 0; i < WAYS; i++) {
    cx c;
    if (!open_way(i, 2, &c)) continue;
    for (int t = 0; t < 3; t++)
      for (int size = 0; size < 4; size++) {
        mc s = plain(types[t], (int64_t[]){1, 7, 33, 100}[size], (int64_t[]){5, 48, 97, 130}[size],
                     (int64_t[]){9, 120, 230, 250}[size]);
        s.integers = 1;
        s.bias = s.residual = types[t];
        mc_data d;
        mc_make(&d, &s);
        if (serves(&c, ways[i].impl, &d)) mc_run(&c, ways[i].impl, &d);
        mc_free(&d);
      }
    cx_close(&c);
  }
}
END_TEST

/* Long sums: more than one K block with a ragged end, more tokens than a chunk, more panels than a chunk. */
START_TEST(blocks_and_chunks_join) {
  static const int64_t shapes[][3] = {
      {1, 1100, 1500}, {2, 530, 1025}, {97, 70, 513}, {200, 33, 770}, {6, 1030, 256}};
  for (int i = 0; i < WAYS; i++) {
    cx c;
    if (!open_way(i, 2, &c)) continue;
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
      for (int t = 0; t < 3; t++) {
        const mc s = plain(types[t], shapes[k][0], shapes[k][1], shapes[k][2]);
        mc_data d;
        mc_make(&d, &s);
        if (serves(&c, ways[i].impl, &d)) mc_run(&c, ways[i].impl, &d);
        mc_free(&d);
      }
    cx_close(&c);
  }
}
END_TEST

/* "packed" promises the same bits for any team, batch and position in it. */
START_TEST(packed_bits_do_not_depend_on_the_team) {
  for (int t = 0; t < 3; t++) {
    mc s = plain(types[t], 37, 203, 600);
    s.y_type = BS_F32;
    mc_data d;
    float first[37 * 203];
    mc_make(&d, &s);
    for (uint32_t width = 1; width <= 5; width++) {
      cx c;
      cx_open(&c, "auto", "off", width);
      mc_run(&c, "packed", &d);
      if (width == 1)
        memcpy(first, d.y.t.data, sizeof first);
      else
        ck_assert_msg(memcmp(first, d.y.t.data, sizeof first) == 0, "width %u", width);
      cx_close(&c);
    }
    for (int64_t rows = 1; rows < 37; rows += 5) {
      cx c;
      mc part = s;
      mc_data again;
      part.rows = rows;
      mc_make(&again, &part);
      cx_open(&c, "auto", "off", 2);
      mc_run(&c, "packed", &again);
      ck_assert_msg(memcmp(first, again.y.t.data, (size_t)rows * 203 * sizeof(float)) == 0, "%lld rows",
                    (long long)rows);
      cx_close(&c);
      mc_free(&again);
    }
    mc_free(&d);
  }
}
END_TEST

START_TEST(same_bits_on_every_call) {
  for (int i = 0; i < WAYS; i++) {
    cx c;
    if (!open_way(i, 3, &c)) continue;
    const mc s = plain(BS_F32, 20, 130, 400);
    float first[20 * 130];
    mc_data d;
    mc_make(&d, &s);
    for (int turn = 0; turn < 5; turn++) {
      mc_run(&c, ways[i].impl, &d);
      if (turn == 0) memcpy(first, d.y.t.data, sizeof first);
      ck_assert_int_eq(memcmp(first, d.y.t.data, sizeof first), 0);
    }
    mc_free(&d);
    cx_close(&c);
  }
}
END_TEST

/* X whole, the partition's columns picked on the way, in one K block and in more, by every kernel of ours. */
START_TEST(x_full_picks_columns) {
  for (int i = 0; i < DNNL; i++) {
    cx c;
    if (!open_way(i, 2, &c)) continue;
    for (int t = 0; t < 3; t++)
      for (uint32_t columns = MC_RUN; columns <= MC_LIST; columns++)
        for (uint32_t turn = 0; turn < 12; turn++) {
          mc s = plain(types[t], 1 + turn, 40 + turn, (int64_t[]){5, 61, 300, 1201}[turn % 4]);
          s.columns = columns;
          s.x_full = 1;
          s.padded = turn & 1u;
          s.period = (uint32_t[]){4, 2, 8, 3}[turn / 3];
          s.bits = (uint32_t[]){3, 12, 5, 10, 9, 6}[turn % 6] & ((1u << s.period) - 1);
          if (s.bits == 0) s.bits = 1;
          mc_data d;
          mc_make(&d, &s);
          ck_assert(serves(&c, "packed", &d));
          mc_run(&c, "packed", &d);
          mc_free(&d);
        }
    cx_close(&c);
  }
}
END_TEST

START_TEST(residual_may_be_y) {
  for (int i = 0; i < WAYS; i++) {
    cx c;
    if (!open_way(i, 2, &c)) continue;
    for (uint32_t act = BS_ACT_NONE; act <= BS_ACT_GELU_TANH; act++) {
      mc s = plain(BS_F32, 21, 75, 310);
      s.residual = BS_F32;
      s.in_place = 1;
      s.bias = BS_F32;
      s.activation = act;
      mc_data d;
      mc_make(&d, &s);
      ck_assert(act != BS_ACT_NONE || serves(&c, ways[i].impl, &d));
      if (serves(&c, ways[i].impl, &d)) mc_run(&c, ways[i].impl, &d);
      mc_free(&d);
    }
    cx_close(&c);
  }
}
END_TEST

/* Empty sizes: nothing is touched; K = 0 leaves the epilogue of zero. oneDNN serves an empty batch, but no
 * empty weight. */
START_TEST(empty_sizes) {
  static const int64_t shapes[][3] = {{0, 5, 7}, {5, 0, 7}, {5, 20, 0}, {0, 0, 0}};
  for (int i = 0; i < WAYS; i++) {
    cx c;
    if (!open_way(i, 2, &c)) continue;
    for (size_t k = 0; k < 4; k++) {
      mc s = plain(BS_F32, shapes[k][0], shapes[k][1], shapes[k][2]);
      s.bias = BS_F32;
      mc_data d;
      mc_make(&d, &s);
      const int yes = serves(&c, ways[i].impl, &d);
      ck_assert_int_eq(yes, i < DNNL || k == 0);
      if (yes) mc_run(&c, ways[i].impl, &d);
      mc_free(&d);
    }
    cx_close(&c);
  }
}
END_TEST

static void set_pair(mc_data *d, double x, double w) {
  cx_set(&d->x, 1, 2, x);
  cx_set(&d->w, 3, 2, w);
}

/* NaN and infinity come out where they must and nowhere else. */
START_TEST(special_values_propagate) {
  for (int i = 0; i < WAYS; i++) {
    cx c;
    if (!open_way(i, 2, &c)) continue;
    for (int t = 0; t < 3; t++)
      for (uint32_t act = BS_ACT_NONE; act <= BS_ACT_GELU_TANH; act++) {
        mc s = plain(types[t], 4, 20, 40);
        s.activation = act;
        mc_data d;
        bs_error err = {.struct_size = sizeof err};
        mc_make(&d, &s);
        if (serves(&c, ways[i].impl, &d)) {
          set_pair(&d, NAN, 0.5);
          mc_clear_y(&d);
          ck_assert_int_eq(mc_try(&c, ways[i].impl, &d, &err), BS_OK);
          for (int64_t n = 0; n < 20; n++) {
            ck_assert_msg(isnan(cx_get(&d.y, 1, n)), "%s: NaN lost, act %u, type %d", ways[i].label, act, t);
            ck_assert_msg(isfinite(cx_get(&d.y, 0, n)), "%s: NaN spread", ways[i].label);
          }
          set_pair(&d, 1.0, INFINITY);
          for (int64_t b = 0; b < 4; b++) cx_set(&d.x, b, 2, 1.0);
          ck_assert_int_eq(mc_try(&c, ways[i].impl, &d, &err), BS_OK);
          for (int64_t b = 0; b < 4; b++) {
            ck_assert_msg(cx_get(&d.y, b, 3) == INFINITY, "%s: infinity is %g, act %u, type %d",
                          ways[i].label, cx_get(&d.y, b, 3), act, t);
            ck_assert(isfinite(cx_get(&d.y, b, 4)));
          }
        }
        mc_free(&d);
      }
    cx_close(&c);
  }
}
END_TEST

/* Every answer must be true: NATIVE runs and is right, NO refuses at prepare with a message. */
START_TEST(answers_are_true) {
  static const uint32_t all[] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_F8E4M3};
  uint64_t seed = 5;
  for (int i = 0; i < WAYS; i++) {
    cx c;
    int yes = 0, no = 0;
    if (!open_way(i, 2, &c)) continue;
    for (int turn = 0; turn < 400; turn++) {
      mc s = plain(all[cx_below(&seed, 5)], cx_below(&seed, 20), cx_below(&seed, 50), cx_below(&seed, 70));
      if (cx_below(&seed, 2)) s.y_type = all[cx_below(&seed, 5)];
      if (cx_below(&seed, 2)) s.bias = cx_below(&seed, 2) ? s.dtype : all[cx_below(&seed, 4)];
      if (cx_below(&seed, 3) == 0) s.residual = cx_below(&seed, 2) ? s.y_type : all[cx_below(&seed, 4)];
      s.columns = (uint32_t)cx_below(&seed, 4);
      s.period = 4;
      s.bits = 3;
      s.x_full = cx_below(&seed, 4) == 0;
      s.activation = (uint32_t)cx_below(&seed, 4);
      s.padded = (uint32_t)cx_below(&seed, 2);
      mc_data d;
      mc_make(&d, &s);
      if (serves(&c, ways[i].impl, &d)) {
        mc_run(&c, ways[i].impl, &d);
        yes++;
      } else {
        bs_error err = {.struct_size = sizeof err};
        ck_assert_msg(mc_try(&c, ways[i].impl, &d, &err) != BS_OK, "%s ran what it refused: %s",
                      ways[i].label, mc_text(&s));
        ck_assert_str_ne(err.message, "");
        ck_assert_int_eq(c.live, 0);
        no++;
      }
      mc_free(&d);
    }
    ck_assert_int_gt(yes, 20);
    ck_assert_int_gt(no, 20);
    cx_close(&c);
  }
}
END_TEST

START_TEST(refusals_name_the_reason) {
  cx c;
  mc_data d;
  bs_op_answer a;
  const bs_tensor_desc *args[4];
  bs_op_query q;
  void *state = NULL;
  cx_open(&c, "auto", "off", 1);
  const bs_op_impl *impl = cx_impl(&c, "matmul", "packed", &state);
  const mc s = plain(BS_F32, 4, 5, 6);
  mc_make(&d, &s);
  mc_query(&d, args, &q);
  q.accumulate = BS_ACC_F64;
  ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  ck_assert_uint_eq(a.level, BS_LEVEL_NO);
  ck_assert_uint_eq(a.reason, BS_REASON_DTYPE);
  q.accumulate = BS_ACC_DEFAULT;
  q.weight_dtype = BS_BF16;
  ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  ck_assert_uint_eq(a.reason, BS_REASON_DTYPE);
  q.weight_dtype = BS_F32;
  d.x.d.strides[0] = 1;
  d.x.d.strides[1] = 4;
  ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  ck_assert_uint_eq(a.reason, BS_REASON_LAYOUT);
  mc_ask(&c, "dnnl", &d, &a);
  ck_assert_uint_eq(a.level, BS_LEVEL_NO);
  mc_free(&d);
  cx_close(&c);
}
END_TEST

/* Without oneDNN: "dnnl" says why, "packed" serves and says so too. */
START_TEST(works_without_onednn) {
  static const char *const values[] = {"off", "/nowhere/libdnnl.so.3"};
  for (int i = 0; i < 2; i++) {
    cx c;
    mc_data d;
    bs_op_answer a;
    const mc s = plain(BS_F32, 64, 64, 64);
    cx_open(&c, "auto", values[i], 2);
    mc_make(&d, &s);
    if (cx_impl(&c, "matmul", "dnnl", NULL) != NULL) {
      mc_ask(&c, "dnnl", &d, &a);
      ck_assert_uint_eq(a.level, BS_LEVEL_NO);
      ck_assert_uint_eq(a.reason, i == 0 ? BS_REASON_DISABLED : BS_REASON_LIB_VERSION);
      ck_assert_msg(strstr(a.text, i == 0 ? "off" : "/nowhere") != NULL, "%s", a.text);
    }
    mc_ask(&c, "packed", &d, &a);
    ck_assert_uint_eq(a.level, BS_LEVEL_NATIVE);
    ck_assert_msg(strstr(a.text, "oneDNN") != NULL, "%s", a.text);
    mc_run(&c, "packed", &d);
    mc_free(&d);
    cx_close(&c);
  }
}
END_TEST

/* matmul=NAME leaves only that one, and says so. */
START_TEST(matmul_is_forced) {
  static const char *const names[2] = {"packed", "dnnl"};
  const mc s = plain(BS_F32, 4, 5, 6);
  for (int i = 0; i < 2; i++) {
    cx c = {.matmul = names[i]};
    mc_data d;
    bs_op_answer a;
    bs_error err = {.struct_size = sizeof err};
    ck_assert_int_eq(cx_try_open(&c, "auto", "auto", 1, &err), BS_OK);
    mc_make(&d, &s);
    mc_ask(&c, names[1 - i], &d, &a);
    ck_assert_uint_eq(a.level, BS_LEVEL_NO);
    if (a.reason != BS_REASON_NOT_BUILT) ck_assert_uint_eq(a.reason, BS_REASON_DISABLED);
    mc_ask(&c, names[i], &d, &a);
    ck_assert(a.level == BS_LEVEL_NATIVE || i == 1);
    mc_free(&d);
    cx_close(&c);
  }
}
END_TEST

/* More tokens than prepared is an error, not a write past Y. */
START_TEST(too_many_tokens_are_refused) {
  for (int i = 0; i < WAYS; i++) {
    cx c;
    mc_data d;
    if (!open_way(i, 1, &c)) continue;
    mc s = plain(BS_F32, 8, 20, 30);
    bs_error err = {.struct_size = sizeof err};
    mc_make(&d, &s);
    d.shape.rows = 9;
    ck_assert_int_eq(mc_try(&c, ways[i].impl, &d, &err), BS_INVALID_ARGUMENT);
    ck_assert_str_eq(err.id, "BS-CPU-BATCH");
    mc_free(&d);
    cx_close(&c);
  }
}
END_TEST

/* As with AMX, where oneDNN wants a copy of the weights: a slice is multiplied in parts, with every epilogue,
 * by teams of several sizes, and by calls of fewer tokens. test_method_memory holds the scratchpad. */
#ifdef TEST_DNNL_WITH_AMX
START_TEST(slices_in_parts) {
  static const int64_t shapes[][3] = {{16, 1100, 200}, {130, 530, 130}, {7, 2049, 64}};
  for (uint32_t width = 1; width <= 3; width += 2) {
    cx c;
    cx_open(&c, "auto", TEST_DNNL_WITH_AMX, width);
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
      for (uint32_t turn = width; turn < 12; turn += 3) {
        mc s = varied(types[turn / 3 % 3], shapes[k][0], shapes[k][1], shapes[k][2], turn);
        mc_data d;
        s.columns = MC_ALL;
        mc_make(&d, &s);
        if (serves(&c, "dnnl", &d)) mc_run(&c, "dnnl", &d);
        mc_free(&d);
      }
    cx_close(&c);
  }
}
END_TEST
#endif

int main(void) {
  const test_case tests[] = {{every_shape_is_within_the_bound, 3},
                             {integers_are_exact},
                             {blocks_and_chunks_join},
                             {packed_bits_do_not_depend_on_the_team},
                             {same_bits_on_every_call},
                             {x_full_picks_columns},
                             {residual_may_be_y},
                             {empty_sizes},
                             {special_values_propagate},
                             {answers_are_true},
                             {refusals_name_the_reason},
                             {works_without_onednn},
                             {matmul_is_forced},
                             {too_many_tokens_are_refused},
#ifdef TEST_DNNL_WITH_AMX
                             {slices_in_parts},
#endif
                             {0}};
  return run_tests("cpu_matmul", tests, (test_setup){.timeout = 300});
}
