/* SPDX-License-Identifier: MIT
 * test_cuda_elementwise.c - the ops of the cuda plugin that work element by element, their kernels' bodies
 * run by the CPU twins, against ref: every pair of dtypes, shapes from empty to several blocks, rows with
 * gaps, turned matrices, data at and beside 16 bytes. Nothing else is read or written. */
#include <math.h>

#include "plain.h"
#include "plugins/cuda/ops/activations.h"
#include "tests/run_tests.h"

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

/* Three tensors of one shape: in, what the plugin writes, what ref writes (both begin alike). */
typedef struct trio {
  pl_tensor in, got, want;
} trio;

static void make_trio(trio *t, uint32_t in, uint32_t out, const shape *s) {
  make(&t->in, in, s->rows, s->cols, s->in, s->where);
  make(&t->got, out, s->rows, s->cols, s->out, s->where);
  make(&t->want, out, s->rows, s->cols, s->out, s->where);
}

static void free_trio(trio *t) {
  pl_free(&t->in);
  pl_free(&t->got);
  pl_free(&t->want);
}

/* none and relu to the bit; gelus and silu within a unit of f32, where both are f64 within two of f64. */
static void check_activated(pl_tensor *got, pl_tensor *want, uint32_t in, uint32_t activation) {
  const int wide = in == BS_F64 || got->t.dtype == BS_F64;
  if (activation <= BS_ACT_RELU) {
    for (int64_t r = 0; r < got->t.dims[0]; r++)
      for (int64_t c = 0; c < got->t.dims[1]; c++)
        if (isnan(pl_get(want, r, c)) && isnan(pl_get(got, r, c))) {
          pl_set(want, r, c, 0.0); /* which NaN is the processor's */
          pl_set(got, r, c, 0.0);
        }
    pl_same_bits(got, want, "activate");
  } else {
    pl_near(got, want, wide ? 2.0 : 1.0, wide ? BS_F64 : BS_F32, "activate");
  }
}

START_TEST(activate_every_pair) {
  pl p;
  pl_open(&p);
  uint64_t seed = 31;
  for (int from = 0; from < 8; from++)
    for (int to = from < 6 ? 0 : from; to <= (from < 6 ? 5 : from); to++)
      for (uint32_t act = BS_ACT_NONE; act <= (from < 6 ? (uint32_t)BS_ACT_GELU_TANH : (uint32_t)BS_ACT_RELU);
           act++)
        for (int i = (from + to + (int)act) % 3; i < SHAPES; i += 3) { /* each shape by some pairs */
          trio t;
          make_trio(&t, dtypes[from], dtypes[to], &shapes[i]);
          pl_fill(&t.in, &seed, 5);
          const bs_tensor_desc *descs[2] = {&t.in.d, &t.got.d};
          bs_op_query q = fx_query("activate", descs, 2);
          q.activation = act;
          pl_run_ref(&p, &q, NULL, (bs_tensor *[]){&t.in.t, &t.want.t});
          pl_run_cuda(&p, &cuda_activate, &q, NULL, (bs_tensor *[]){&t.in.t, &t.got.t});
          check_activated(&t.got, &t.want, dtypes[from], act);
          free_trio(&t);
        }
  pl_close(&p);
}
END_TEST

START_TEST(activate_in_place) {
  pl p;
  pl_open(&p);
  uint64_t seed = 37;
  for (int d = 0; d < 8; d++)
    for (int i = 0; i < SHAPES; i++) {
      trio t;
      make_trio(&t, dtypes[d], dtypes[d], &shapes[i]);
      pl_fill(&t.got, &seed, 0);
      pl_copy(&t.want, &t.got);
      const bs_tensor_desc *descs[2] = {&t.got.d, &t.got.d};
      bs_op_query q = fx_query("activate", descs, 2);
      q.activation = BS_ACT_RELU;
      pl_run_ref(&p, &q, NULL, (bs_tensor *[]){&t.want.t, &t.want.t});
      pl_run_cuda(&p, &cuda_activate, &q, NULL, (bs_tensor *[]){&t.got.t, &t.got.t});
      pl_same_bits(&t.got, &t.want, "in place");
      free_trio(&t);
    }
  pl_close(&p);
}
END_TEST

/* Each float of the borders of bf16 and one beside it: gelus and silu within a unit of the C library's
 * double, their slopes within what docs/ops.md allows for dZ. */
START_TEST(activations_over_f32) {
  for (uint32_t high = 0; high < 65536; high++)
    for (uint32_t low = 0; low < 2; low++) {
      const float x = cuda_f32_bits(high << 16 | low * 0x5a5bu);
      for (uint32_t act = BS_ACT_RELU; act <= BS_ACT_GELU_TANH; act++) {
        const double want = cuda_activation(act, (double)x), got = (double)cuda_activation_f32(act, x);
        const double unit = fmax(fabs(want) * 0x1p-23, 0x1p-149), u = 0x1p-24;
        if (isnan(want) ? !isnan(got) : got != (double)(float)want && !(fabs(got - want) <= unit))
          ck_abort_msg("activation %u of %.9g: %.17g, want %.17g", act, (double)x, got, want);
        if (want == 0.0 && (double)x == 0.0 && !signbit(want) != !signbit(got)) ck_abort_msg("sign of zero");
        if (act > BS_ACT_SILU) continue; /* it has no slope */
        const double slope = cuda_slope(act, (double)x), our = cuda_slope_f32(act, x);
        if (isnan(slope) ? !isnan(our) : !(fabs(our - slope) <= u * (1.2 + fabs(slope))))
          ck_abort_msg("slope %u at %.9g: %.17g, want %.17g", act, (double)x, our, slope);
      }
    }
}
END_TEST

START_TEST(activate_dx_every_mixture) {
  pl p;
  pl_open(&p);
  uint64_t seed = 41;
  for (int mix = 0; mix < 216; mix++)
    for (uint32_t act = BS_ACT_RELU; act <= BS_ACT_SILU; act++) {
      const shape *s = &shapes[(mix + (int)act * 5) % SHAPES];
      const uint32_t dy_type = dtypes[mix % 6], z_type = dtypes[mix / 6 % 6], out = dtypes[mix / 36];
      const int wide = dy_type == BS_F64 || z_type == BS_F64 || out == BS_F64;
      trio t;
      pl_tensor z;
      make_trio(&t, dy_type, out, s);
      make(&z, z_type, s->rows, s->cols, s->in, s->where);
      pl_fill(&t.in, &seed, 9);
      pl_fill(&z, &seed, 7);
      const bs_tensor_desc *descs[3] = {&t.in.d, &z.d, &t.got.d};
      bs_op_query q = fx_query("activate_dx", descs, 3);
      q.activation = act;
      pl_run_ref(&p, &q, NULL, (bs_tensor *[]){&t.in.t, &z.t, &t.want.t});
      pl_run_cuda(&p, &cuda_activate_dx, &q, NULL, (bs_tensor *[]){&t.in.t, &z.t, &t.got.t});
      for (int64_t r = 0; r < s->rows; r++)
        for (int64_t c = 0; c < s->cols; c++) {
          const double dy = pl_get(&t.in, r, c), g = pl_get(&t.got, r, c), w = pl_get(&t.want, r, c);
          const double bound = 16 * (wide ? 0x1p-53 : 0x1p-24) * (1.2 * fabs(dy) + fabs(w));
          if (g == w || (isnan(g) && isnan(w)) || (act != BS_ACT_RELU && fabs(g - w) <= bound))
            pl_set(&t.got, r, c, w); /* what is left to pl_near is one rounding */
        }
      pl_near(&t.got, &t.want, act == BS_ACT_RELU ? 0.0 : 1.0, wide ? BS_F64 : BS_F32, "activate_dx");
      free_trio(&t);
      pl_free(&z);
    }
  pl_close(&p);
}
END_TEST

START_TEST(tree_sum_every_order) {
  static const int64_t orders[4][8] = {
      {0}, {1, 0, 3, 2, 5, 4, 7, 6}, {7, 6, 5, 4, 3, 2, 1, 0}, {0, 4, 2, 6, 1, 5, 3, 7}};
  pl p;
  pl_open(&p);
  uint64_t seed = 43;
  for (int from = 0; from < 8; from++)
    for (int to = from < 6 ? 0 : from; to <= (from < 6 ? 5 : from); to++)
      for (int64_t blocks = 1; blocks <= 8; blocks *= 2)
        for (int i = (from + to + (int)blocks / 2) % 2; i < SHAPES; i += 2) {
          shape s = shapes[i];
          const uint32_t act = (uint32_t)(i + to) % (from < 6 ? 5 : 2);
          trio t;
          make(&t.in, dtypes[from], s.rows, s.cols * blocks, s.in, s.where);
          make(&t.got, dtypes[to], s.rows, s.cols, s.out, s.where);
          make(&t.want, dtypes[to], s.rows, s.cols, s.out, s.where);
          if (from < 6)
            pl_fill(&t.in, &seed, 50);
          else
            pl_fill_bits(&t.in, &seed);
          const bs_tensor_desc *descs[2] = {&t.in.d, &t.got.d};
          bs_op_query q = fx_query("tree_sum", descs, 2);
          q.activation = act;
          int64_t n = 0;
          for (int64_t b = 0; b < 8 && n < blocks; b++)
            if (orders[i % 4][b] < blocks) q.attrs[n++] = orders[i % 4][b];
          pl_run_ref(&p, &q, NULL, (bs_tensor *[]){&t.in.t, &t.want.t});
          pl_run_cuda(&p, &cuda_tree_sum, &q, NULL, (bs_tensor *[]){&t.in.t, &t.got.t});
          check_activated(&t.got, &t.want, dtypes[from], act);
          free_trio(&t);
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
  const test_case tests[] = {
      {convert_every_pair},        {activate_every_pair},  {activate_in_place}, {activations_over_f32},
      {activate_dx_every_mixture}, {tree_sum_every_order}, {pieces_are_taken},  {0}};
  return run_tests("cuda elementwise", tests, (test_setup){0});
}
