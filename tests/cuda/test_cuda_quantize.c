/* SPDX-License-Identifier: MIT
 * test_cuda_quantize.c - int8 and fp8 with scales on the cuda plugin, the bodies run by the CPU twins,
 * against ref to the bit: groups from one column to more than a block takes, rows that end inside a group,
 * NaN and infinities, terms in their order, products with and without bias and base, every layout. */
#include <math.h>

#include "scaled_case.h"
#include "tests/run_tests.h"

static const uint32_t floats[6] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_F8E4M3, BS_F8E5M2};
static const int64_t groups[] = {1, 3, 4, 32, 128, 100, 2048, 5000};
static const int64_t cols[] = {1, 7, 128, 130, 260, 2100, 4100, 0};
enum { GROUPS = sizeof groups / sizeof *groups, COLS = sizeof cols / sizeof *cols };

static const uint32_t narrow[3] = {BS_I8, BS_F8E4M3, BS_F8E5M2};

static int64_t count_groups(int64_t n, int64_t group) {
  return (n + group - 1) / group;
}

static void fill(pl_tensor *in, uint64_t *seed, int special) {
  pl_fill(in, seed, 0);
  const int64_t rows = in->t.dims[0], n = in->t.dims[1];
  if (!special || n == 0) return;
  static const double values[] = {NAN, INFINITY, -INFINITY, -0.0, 1e-44, 3e38};
  for (int i = 0; i < 3; i++) pl_set(in, fx_below(seed, rows), fx_below(seed, n), values[fx_below(seed, 6)]);
  for (int64_t c = 0; c < n; c++) pl_set(in, 0, c, c % 2 ? 0.0 : -0.0); /* a row of groups with scale 0 */
}

START_TEST(quantize) {
  pl p;
  pl_open(&p);
  uint64_t seed = 61;
  for (int g = 0; g < GROUPS; g++)
    for (int n = 0; n < COLS; n++)
      for (int lay = 0; lay < PC_LAYS; lay++) {
        const int64_t rows = 1 + (g + n + lay) % 4, scales = count_groups(cols[n], groups[g]);
        const int where = (g + lay) % PL_PLACES;
        const uint32_t to = narrow[(g + n + lay) % 3];
        pl_tensor in, q[2], s[2];
        pc_lay(&in, BS_F32, rows, cols[n], lay, where);
        for (int i = 0; i < 2; i++) {
          pc_lay(&q[i], to, rows, cols[n], lay, where);
          pc_lay(&s[i], BS_F32, rows, scales, (lay + 1) % PC_LAYS, where);
        }
        fill(&in, &seed, (g + n) % 2);
        const bs_tensor_desc *descs[3] = {&in.d, &q[0].d, &s[0].d};
        bs_op_query query = fx_query("quantize_groups", descs, 3);
        query.attrs[0] = groups[g];
        query.attrs[1] = (g + n / 2 + lay) % 2; /* 1: rows share scales */
        pl_run_cuda(&p, &cuda_quantize_groups, &query, NULL, (bs_tensor *[]){&in.t, &q[0].t, &s[0].t});
        pl_run_ref(&p, &query, NULL, (bs_tensor *[]){&in.t, &q[1].t, &s[1].t});
        pl_same_bits(&q[0], &q[1], "q");
        pl_same_bits(&s[0], &s[1], "scales");
        pl_free(&in);
        for (int i = 0; i < 2; i++) {
          pl_free(&q[i]);
          pl_free(&s[i]);
        }
      }
  pl_close(&p);
}
END_TEST

START_TEST(dequantize_sums) {
  pl p;
  pl_open(&p);
  uint64_t seed = 67;
  for (int g = 0; g < GROUPS; g++)
    for (int n = 0; n < COLS; n++)
      for (int64_t terms = 1; terms <= 4; terms++) {
        const int lay = (g + n + (int)terms) % PC_LAYS, where = (n + (int)terms) % PL_PLACES;
        const int64_t rows = 1 + (g + n) % 3, width = count_groups(cols[n], groups[g]);
        pl_tensor q, s, out[2];
        pc_lay(&q, narrow[(g + n + (int)terms) % 3], rows, terms * cols[n], lay, where);
        pc_lay(&s, BS_F32, rows, terms * width, (lay + 2) % PC_LAYS, where);
        for (int i = 0; i < 2; i++) pc_lay(&out[i], floats[(g + (int)terms) % 6], rows, cols[n], lay, where);
        pl_fill_bits(&q, &seed);
        pl_fill(&s, &seed, 0);
        const bs_tensor_desc *descs[3] = {&q.d, &s.d, &out[0].d};
        bs_op_query query = fx_query("dequantize_sum", descs, 3);
        query.attrs[0] = groups[g];
        query.attrs[1] = terms;
        pl_run_cuda(&p, &cuda_dequantize_sum, &query, NULL, (bs_tensor *[]){&q.t, &s.t, &out[0].t});
        pl_run_ref(&p, &query, NULL, (bs_tensor *[]){&q.t, &s.t, &out[1].t});
        pl_same_bits(&out[0], &out[1], "dequantize_sum");
        pl_free(&q);
        pl_free(&s);
        for (int i = 0; i < 2; i++) pl_free(&out[i]);
      }
  pl_close(&p);
}
END_TEST

START_TEST(dequantize_products) {
  static const int64_t sizes[][2] = {{0, 3}, {3, 0}, {1, 1}, {3, 64}, {5, 37}, {2, 1030}};
  pl p;
  pl_open(&p);
  uint64_t seed = 71;
  for (int size = 0; size < 6; size++)
    for (int lay = 0; lay < PC_LAYS; lay++)
      for (int d = 0; d < 6; d++)
        for (int with = 0; with < 8; with++) { /* bias, base, base in out */
          const int64_t rows = sizes[size][0], n = sizes[size][1], step = lay == PC_SPREAD ? 2 : 1;
          const int where = (lay + with) % PL_PLACES, in_out = (with & 4) != 0 && floats[d] == BS_F32;
          const uint32_t act = (uint32_t)(with + lay) % 5;
          pl_tensor sums, scale, columns, bias, base, out[2];
          pc_lay(&sums, BS_I32, rows, n, lay, where);
          pc_lay(&scale, BS_F32, rows, 1, lay, where);
          pl_make(&columns, BS_F32, 1, &n, &step, where);
          pl_make(&bias, BS_F32, 1, &n, &step, where);
          pc_lay(&base, BS_F32, rows, n, lay, where);
          for (int i = 0; i < 2; i++) pc_lay(&out[i], floats[d], rows, n, lay, where);
          pl_fill_bits(&sums, &seed);
          pl_fill(&scale, &seed, 0);
          pl_fill(&columns, &seed, 0);
          pl_fill(&bias, &seed, 20);
          pl_fill(&base, &seed, 0);
          pl_fill(&out[0], &seed, 0);
          pl_copy(&out[1], &out[0]);
          for (int i = 0; i < 2; i++) {
            pl_tensor *at = in_out ? &out[i] : &base;
            bs_tensor *args[6] = {
                &sums.t,  &scale.t, &columns.t, with & 1 ? &bias.t : NULL, with & 2 ? &at->t : NULL,
                &out[i].t};
            const bs_tensor_desc *descs[6] = {
                &sums.d,  &scale.d, &columns.d, with & 1 ? &bias.d : NULL, with & 2 ? &at->d : NULL,
                &out[i].d};
            bs_op_query query = fx_query("dequantize_product", descs, 6);
            query.activation = act;
            if (i == 0) pl_run_cuda(&p, &cuda_dequantize_product, &query, NULL, args);
            if (i == 1) pl_run_ref(&p, &query, NULL, args);
          }
          pl_near(&out[0], &out[1], act > BS_ACT_RELU ? 1.0 : 0.0, BS_F32, "dequantize_product");
          pl_tensor *const all[] = {&sums, &scale, &columns, &bias, &base, &out[0], &out[1]};
          for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_free(all[i]);
        }
  pl_close(&p);
}
END_TEST

/* Groups of whole pieces and others, rows on 16 bytes and off, tokens of one block and of several. */
START_TEST(scaled_products) {
  static const int64_t sizes[][4] = {
      {0, 3, 8, 4},       {3, 0, 8, 4},       {1, 1, 1, 1},     {2, 9, 0, 128},      {4, 8, 512, 128},
      {5, 17, 1040, 128}, {9, 20, 257, 1000}, {3, 11, 320, 24}, {1, 70, 2048, 2048}, {6, 5, 130, 7}};
  pl p;
  pl_open(&p);
  uint64_t seed = 73;
  for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
    for (int lay = 0; lay < PC_LAYS; lay++)
      for (int with = 0; with < 8; with++) {
        const int in_out = with == 5;
        const sc_shape s = {sizes[size][0],
                            sizes[size][1],
                            sizes[size][2],
                            sizes[size][3],
                            narrow[1 + with % 2],
                            narrow[1 + with / 2 % 2],
                            in_out ? (uint32_t)BS_F32 : floats[(with + lay) % 6],
                            (uint32_t)(with + lay) % 5,
                            in_out ? SC_BIAS | SC_IN_PLACE : with & (SC_BIAS | SC_BASE),
                            lay,
                            (lay + with) % PL_PLACES};
        sc c;
        sc_open(&c, &s, &seed);
        pl_run_cuda(&p, &cuda_scaled_matmul, &c.query[0], NULL, c.args[0]);
        pl_run_ref(&p, &c.query[1], NULL, c.args[1]);
        sc_near(&c, "scaled_matmul");
        sc_close(&c);
      }
  pl_close(&p);
}
END_TEST

/* Fewer tokens than prepared, the bits of each those that it has among many. */
START_TEST(scaled_fewer) {
  static const int64_t sizes[][2] = {{512, 128}, {257, 1000}, {130, 7}};
  pl p;
  uint64_t seed = 79;
  pl_open(&p);
  for (int size = 0; size < 3; size++)
    for (int64_t fewer = 0; fewer <= 9; fewer += 3) {
      const sc_shape s = {.B = 9,
                          .N = 11,
                          .K = sizes[size][0],
                          .group = sizes[size][1],
                          .x = BS_F8E4M3,
                          .w = BS_F8E5M2,
                          .out = BS_F32,
                          .with = SC_BIAS | SC_BASE};
      sc c;
      sc_open(&c, &s, &seed);
      sc_fewer(&p, &cuda_scaled_matmul, &c, fewer, 1);
      sc_close(&c);
    }
  pl_close(&p);
}
END_TEST

/* A NaN is its own token's, an infinity of w its own output's; a zero scale makes NaN of an infinity. */
START_TEST(scaled_specials) {
  static const int64_t groups_of[] = {128, 256, 7};
  pl p;
  uint64_t seed = 83;
  pl_open(&p);
  for (int g = 0; g < 3; g++) {
    const sc_shape s = {
        .B = 6, .N = 9, .K = 256, .group = groups_of[g], .x = BS_F8E4M3, .w = BS_F8E5M2, .out = BS_F32};
    sc c;
    sc_open(&c, &s, &seed);
    pl_set(&c.x, 1, 200, NAN);
    pl_set(&c.x, 2, 3, 1.0);
    pl_set(&c.w, 4, 3, INFINITY);
    pl_set(&c.xs, 3, 0, 0.0);
    pl_run_cuda(&p, &cuda_scaled_matmul, &c.query[0], NULL, c.args[0]);
    pl_run_ref(&p, &c.query[1], NULL, c.args[1]);
    for (int64_t b = 0; b < s.B; b++)
      for (int64_t n = 0; n < s.N; n++) {
        const double got = pl_get(&c.out[0], b, n), want = pl_get(&c.out[1], b, n);
        const int same = isnan(want)   ? isnan(got)
                         : isinf(want) ? got == want
                                       : fabs(got - want) <= 0x1p-8 * (1.0 + fabs(want));
        ck_assert_msg(same && isnan(want) == (b == 1 || (b == 3 && n == 4)),
                      "group %lld: [%lld,%lld] is %g, ref's %g", (long long)s.group, (long long)b,
                      (long long)n, got, want);
      }
    sc_close(&c);
  }
  pl_close(&p);
}
END_TEST

/* dY to the bit where one rounding is all; the sums in another order. */
START_TEST(losses) {
  static const int64_t sizes[][2] = {{0, 3}, {3, 0}, {1, 1}, {4, 257}, {3, 1000}};
  pl p;
  pl_open(&p);
  uint64_t seed = 79;
  for (int size = 0; size < 5; size++)
    for (int lay = 0; lay < PC_LAYS; lay++)
      for (int d = 0; d < 6; d++)
        for (int kind = 0; kind < 3; kind++) { /* sum, squares, squares from a target */
          const int64_t rows = sizes[size][0], n = sizes[size][1];
          const int where = (lay + d) % PL_PLACES;
          pl_tensor y, t, dy[2], loss[2];
          pc_lay(&y, floats[d], rows, n, lay, where);
          pc_lay(&t, floats[(d + lay) % 6], rows, n, (lay + 1) % PC_LAYS, where);
          for (int i = 0; i < 2; i++) {
            pc_lay(&dy[i], floats[(d + kind) % 6], rows, n, lay, where);
            pc_lay(&loss[i], BS_F64, rows, 1, lay, where);
          }
          pl_fill(&y, &seed, 0);
          pl_fill(&t, &seed, 0);
          for (int i = 0; i < 2; i++) {
            const bs_tensor_desc *descs[4] = {&y.d, kind == 2 ? &t.d : NULL, &dy[i].d, &loss[i].d};
            bs_tensor *args[4] = {&y.t, kind == 2 ? &t.t : NULL, &dy[i].t, &loss[i].t};
            bs_op_query query = fx_query("loss_gradient", descs, 4);
            query.attrs[0] = kind > 0;
            query.attrs[1] = 1 + rows * n;
            if (i == 0) pl_run_cuda(&p, &cuda_loss_gradient, &query, NULL, args);
            if (i == 1) pl_run_ref(&p, &query, NULL, args);
          }
          pl_same_bits(&dy[0], &dy[1], "dY");
          for (int64_t b = 0; b < rows; b++) {
            const double got = pl_get(&loss[0], b, 0), want = pl_get(&loss[1], b, 0);
            ck_assert_msg(fabs(got - want) <= (double)(n + 2) * 0x1p-52 * (1.0 + fabs(want)),
                          "loss of %lld: %.17g, want %.17g", (long long)b, got, want);
          }
          pl_tensor *const all[] = {&y, &t, &dy[0], &dy[1], &loss[0], &loss[1]};
          for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_free(all[i]);
        }
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{quantize},        {dequantize_sums}, {dequantize_products}, {losses},
                             {scaled_products}, {scaled_fewer},    {scaled_specials},     {0}};
  return run_tests("cuda quantize", tests, (test_setup){0});
}
