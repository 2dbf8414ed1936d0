/* SPDX-License-Identifier: MIT
 * test_cuda_steps.c - a step of SGD and of AdamW on weights that the cuda plugin packed, dense and 2:4, and
 * expand24, the bodies run by the CPU twins, against ref to the bit: every dtype of weight, columns that fill
 * no group of four, states and gradients in every layout, the numbers of a step read from device memory. */
#include "products_case.h"
#include "tests/run_tests.h"

static const uint32_t floats[6] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_F8E4M3, BS_F8E5M2};

typedef struct step_case {
  pc weight;
  pl_tensor dw, m[2], v[2], hyper;
} step_case;

static void open_case(step_case *s, pl *p, uint32_t w, uint32_t dw, int64_t N, int64_t K, int lay, int where,
                      int of24, uint64_t *seed) {
  const pc_shape shape = {.x = BS_F32,
                          .w = w,
                          .y = BS_F32,
                          .grad = BS_F32,
                          .sums = BS_F32,
                          .B = 1,
                          .N = N,
                          .K = K,
                          .lay = lay,
                          .where = where,
                          .of24 = of24};
  const int64_t eight = 8;
  pc_open(&s->weight, p, &shape, seed);
  pc_lay(&s->dw, dw, N, s->weight.values, lay, where);
  pl_fill(&s->dw, seed, 0);
  pl_make(&s->hyper, BS_F32, 1, &eight, NULL, where);
  pl_fill(&s->hyper, seed, 0);
  for (int i = 0; i < 2; i++) {
    pc_lay(&s->m[i], BS_F32, N, s->weight.values, (lay + 1) % PC_LAYS, where);
    pc_lay(&s->v[i], BS_F32, N, s->weight.values, lay, where);
  }
  pl_fill(&s->m[0], seed, 0);
  for (int64_t r = 0; r < N; r++)
    for (int64_t c = 0; c < s->weight.values; c++)
      pl_set(&s->v[0], r, c, (double)fx_below(seed, 1000) * 1e-3);
  pl_copy(&s->m[1], &s->m[0]);
  pl_copy(&s->v[1], &s->v[0]);
}

static void close_case(step_case *s) {
  pc_close(&s->weight);
  pl_tensor *const all[] = {&s->dw, &s->hyper, &s->m[0], &s->m[1], &s->v[0], &s->v[1]};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) pl_free(all[i]);
}

/* A place beyond the last column is zero whatever is remembered of it. */
static void check_states(step_case *s, const char *what) {
  pl_same_bits(&s->m[0], &s->m[1], what);
  pl_same_bits(&s->v[0], &s->v[1], what);
  pc_read(&s->weight);
}

static void sgd(step_case *s, pl *p, int with_state) {
  static const double numbers[4] = {0.05, 0.9, 0.01, 0.0};
  bs_tensor_desc hyper = s->hyper.d;
  bs_tensor numbers_at = s->hyper.t;
  hyper.dims[0] = numbers_at.dims[0] = 4;
  for (int i = 0; i < 4; i++) pl_set(&s->hyper, 0, i, numbers[i]);
  const bs_tensor_desc *descs[3] = {&s->dw.d, with_state ? &s->v[0].d : NULL, &hyper};
  bs_op_query q = fx_query("sgd_update", descs, 3);
  q.weight_dtype = s->weight.s.w;
  for (int i = 0; i < 2; i++) {
    bs_tensor *args[3] = {&s->dw.t, with_state ? &s->v[i].t : NULL, &numbers_at};
    if (i == PC_CUDA) pl_run_cuda(p, &cuda_sgd_update, &q, s->weight.packed[i], args);
    if (i == PC_REF) pl_run_ref(p, &q, s->weight.packed[i], args);
  }
  check_states(s, "sgd");
}

static void adamw(step_case *s, pl *p) {
  static const double numbers[8] = {0.02, 0.1, 0.01, 1e-8, 0.1, 10.0, 100.0, 0.0};
  for (int i = 0; i < 8; i++) pl_set(&s->hyper, 0, i, numbers[i]);
  const bs_tensor_desc *descs[4] = {&s->dw.d, &s->m[0].d, &s->v[0].d, &s->hyper.d};
  bs_op_query q = fx_query("adamw_update", descs, 4);
  q.weight_dtype = s->weight.s.w;
  for (int i = 0; i < 2; i++) {
    bs_tensor *args[4] = {&s->dw.t, &s->m[i].t, &s->v[i].t, &s->hyper.t};
    if (i == PC_CUDA) pl_run_cuda(p, &cuda_adamw_update, &q, s->weight.packed[i], args);
    if (i == PC_REF) pl_run_ref(p, &q, s->weight.packed[i], args);
  }
  check_states(s, "adamw");
}

START_TEST(steps) {
  static const int64_t sizes[][2] = {{1, 1}, {3, 16}, {5, 18}, {4, 7}, {2, 1037}, {0, 8}, {3, 0}};
  pl p;
  pl_open(&p);
  uint64_t seed = 73;
  for (int of24 = 0; of24 < 2; of24++)
    for (int size = 0; size < 7; size++)
      for (int d = 0; d < 6; d++)
        for (int lay = 0; lay < PC_LAYS; lay++) {
          step_case s;
          open_case(&s, &p, floats[d], (d + lay) % 3 == 0 ? BS_F64 : BS_F32, sizes[size][0], sizes[size][1],
                    lay, (d + lay) % PL_PLACES, of24, &seed);
          sgd(&s, &p, 0);
          sgd(&s, &p, 1);
          adamw(&s, &p);
          close_case(&s);
        }
  pl_close(&p);
}
END_TEST

START_TEST(expand) {
  static const int64_t sizes[][2] = {{1, 1}, {3, 16}, {5, 18}, {4, 7}, {2, 1039}, {0, 8}, {3, 0}, {6, 64}};
  static const uint32_t dtypes[4] = {BS_U8, BS_F16, BS_I32, BS_F64};
  pl p;
  pl_open(&p);
  uint64_t seed = 79;
  for (int size = 0; size < 8; size++)
    for (int d = 0; d < 4; d++)
      for (int lay = 0; lay < PC_LAYS; lay++)
        for (int where = 0; where < PL_PLACES; where++) {
          const int64_t N = sizes[size][0], K = sizes[size][1], in_row = (K + 3) / 4;
          pl_tensor in, out[2];
          unsigned char *groups = calloc((size_t)(N * in_row) + 1, 1);
          ck_assert_ptr_nonnull(groups);
          fx_kept_random(groups, N, in_row, &seed);
          fx_kept_table table = {groups, in_row};
          const bs_kept kept = fx_kept(&table, N, K);
          pc_lay(&in, dtypes[d], N, 2 * in_row, lay, where);
          for (int i = 0; i < 2; i++) pc_lay(&out[i], dtypes[d], N, K, (lay + size) % PC_LAYS, where);
          pl_fill_bits(&in, &seed);
          const bs_tensor_desc *descs[2] = {&in.d, &out[0].d};
          bs_op_query q = fx_query("expand24", descs, 2);
          q.kept = &kept;
          pl_run_cuda(&p, &cuda_expand24, &q, NULL, (bs_tensor *[]){&in.t, &out[0].t});
          pl_run_ref(&p, &q, NULL, (bs_tensor *[]){&in.t, &out[1].t});
          pl_same_bits(&out[0], &out[1], "expand24");
          pl_free(&in);
          for (int i = 0; i < 2; i++) pl_free(&out[i]);
          free(groups);
        }
  pl_close(&p);
}
END_TEST

/* A step is refused where there is no weight, or one of another shape. */
START_TEST(refusals) {
  pl p;
  pl_open(&p);
  uint64_t seed = 83;
  step_case s;
  open_case(&s, &p, BS_F32, BS_F32, 3, 8, PC_DENSE, PL_FIRST, 0, &seed);
  const bs_tensor_desc dw = bs_desc_2d(BS_F32, 3, 9);
  const bs_tensor_desc *descs[4] = {&s.dw.d, &s.m[0].d, &s.v[0].d, &s.hyper.d};
  bs_op_query q = fx_query("adamw_update", descs, 4);
  q.weight_dtype = BS_F32;
  void *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(cuda_adamw_update.prepare(&p.state, &p.exec, &q, NULL, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-CUDA-WEIGHT");
  descs[0] = descs[1] = descs[2] = &dw;
  ck_assert_int_eq(cuda_adamw_update.prepare(&p.state, &p.exec, &q, s.weight.packed[0], &plan, &err),
                   BS_INVALID_ARGUMENT);
  q.weight_dtype = BS_I8;
  ck_assert_int_eq(cuda_adamw_update.prepare(&p.state, &p.exec, &q, s.weight.packed[0], &plan, &err),
                   BS_UNSUPPORTED);
  ck_assert_str_eq(err.id, "BS-CUDA-UNSUPPORTED");
  close_case(&s);
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{steps}, {expand}, {refusals}, {0}};
  return run_tests("cuda steps", tests, (test_setup){0});
}
