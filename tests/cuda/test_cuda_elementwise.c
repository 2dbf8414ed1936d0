/* SPDX-License-Identifier: MIT
 * test_cuda_elementwise.c - the ops of the cuda plugin that work element by element, their kernels' bodies
 * run by the CPU twins, against ref: every pair of dtypes, shapes from empty to several blocks, rows with
 * gaps, turned matrices, data at and beside 16 bytes. Nothing else is read or written. */
#include <math.h>

#include "plain.h"

static const uint32_t dtypes[11] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                    BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};

/* Rows, columns and how they lie: 0 dense, 1 a gap behind each row, 2 a gap between elements, 3 turned, 4
 * turned with gaps, 5 a gap that keeps rows on 16 bytes. */
typedef struct shape {
  int64_t rows, cols;
  int in, out;
  int where;
} shape;

static const shape shapes[] = {{0, 5, 0, 0, PL_FIRST},    {5, 0, 0, 0, PL_FIRST},  {1, 1, 0, 0, PL_LAST},
                               {1, 1, 2, 1, PL_ODD},      {3, 16, 0, 0, PL_FIRST}, {3, 17, 0, 0, PL_LAST},
                               {7, 33, 5, 5, PL_FIRST},   {7, 33, 5, 0, PL_FIRST}, {5, 24, 1, 1, PL_LAST},
                               {5, 24, 2, 0, PL_FIRST},   {6, 11, 0, 2, PL_LAST},  {9, 13, 3, 3, PL_FIRST},
                               {9, 13, 0, 4, PL_LAST},    {13, 1, 4, 1, PL_ODD},   {2, 40, 0, 0, PL_ODD},
                               {4, 1100, 5, 5, PL_FIRST}, {1, 5000, 0, 0, PL_LAST}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void make(pl_tensor *t, uint32_t dtype, int64_t rows, int64_t cols, int how, int where) {
  switch (how) {
    case 0:
      pl_matrix(t, dtype, rows, cols, cols, 1, where);
      break;
    case 1:
      pl_matrix(t, dtype, rows, cols, cols + 3, 1, where);
      break;
    case 2:
      pl_matrix(t, dtype, rows, cols, cols * 2 + 1, 2, where);
      break;
    case 3:
      pl_matrix(t, dtype, rows, cols, 1, rows, where);
      break;
    case 4:
      pl_matrix(t, dtype, rows, cols, 3, 3 * rows + 2, where);
      break;
    default:
      pl_matrix(t, dtype, rows, cols, (cols + 31) / 16 * 16, 1, where);
      break;
  }
}

START_TEST(convert_every_pair) {
  pl p;
  pl_open(&p);
  uint64_t seed = 29;
  for (int from = 0; from < 11; from++)
    for (int to = 0; to < 11; to++)
      for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        pl_tensor in, got, want;
        make(&in, dtypes[from], s->rows, s->cols, s->in, s->where);
        make(&got, dtypes[to], s->rows, s->cols, s->out, s->where);
        make(&want, dtypes[to], s->rows, s->cols, s->out, s->where);
        pl_fill_bits(&in, &seed);
        const bs_tensor_desc *descs[2] = {&in.d, &got.d};
        const bs_op_query q = fx_query("convert", descs, 2);
        pl_run_ref(&p, &q, NULL, (bs_tensor *[]){&in.t, &want.t});
        pl_run_cuda(&p, &cuda_convert, &q, NULL, (bs_tensor *[]){&in.t, &got.t});
        pl_same_bits(&got, &want, "convert");
        pl_free(&in);
        pl_free(&got);
        pl_free(&want);
      }
  pl_close(&p);
}
END_TEST

/* Dense rows go in pieces: as few blocks as 16 bytes a thread and two pieces each make. */
START_TEST(pieces_are_taken) {
  pl p;
  pl_open(&p);
  pl_tensor in, out;
  make(&in, BS_BF16, 64, 256, 0, PL_FIRST);
  make(&out, BS_F16, 64, 256, 0, PL_FIRST);
  const bs_tensor_desc *descs[2] = {&in.d, &out.d};
  const bs_op_query q = fx_query("convert", descs, 2);
  pl_run_cuda(&p, &cuda_convert, &q, NULL, (bs_tensor *[]){&in.t, &out.t});
  ck_assert_int_eq(p.launches, 1);
  ck_assert_int_eq(p.blocks, 64 * 256 / 8 / 512);
  pl_free(&in);
  pl_free(&out);
  pl_close(&p);
}
END_TEST

int main(void) {
  Suite *s = suite_create("cuda elementwise");
  TCase *c = tcase_create("elementwise");
  tcase_add_test(c, convert_every_pair);
  tcase_add_test(c, pieces_are_taken);
  suite_add_tcase(s, c);
  SRunner *r = srunner_create(s);
  srunner_run_all(r, CK_NORMAL);
  const int failed = srunner_ntests_failed(r);
  srunner_free(r);
  return failed == 0 ? 0 : 1;
}
