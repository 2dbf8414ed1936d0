/* SPDX-License-Identifier: MIT
 *
 * test_cpu_epilogue.c - relu, gelu and silu on every instruction set that this processor has, against the
 * formulas in double: a sample of all floats, the tails, every bf16, special values, odd lengths and places;
 * and that the matmul's epilogue gives the same bits as the op activate. */
#include <math.h>
#include <string.h>

#include "cpu_host.h"
#include "tests/run_tests.h"

static const char *const isas[] = {"portable", "avx2", "avx512"};
enum { ISAS = 3, CHUNK = 1 << 14 };

/* The whole of the bound that kernels.h states. */
#define UNITS 1.0

static double formula(uint32_t activation, double v) {
  if (activation == BS_ACT_RELU) return v < 0 ? 0 : v;
  if (activation == BS_ACT_GELU) return 0.5 * v * erfc(-v * 0.70710678118654752440);
  if (activation == BS_ACT_GELU_TANH)
    return v / (1 + exp(-2 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)));
  return v / (1 + exp(-v));
}

/* One unit in the last place of f32 at v. */
static double unit(double v) {
  int exponent;
  (void)frexp(v, &exponent);
  return v == 0 || exponent < -125 ? 0x1p-149 : ldexp(1.0, exponent - 24);
}

static float from_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* On each set that this processor has. */
static struct {
  ch host;
  kit_actor activate, matmul;
  int has;
} open[ISAS];

/* out = act(in) of n floats, anywhere. */
static void activate(kit_actor *c, uint32_t activation, const float *in, float *out, int64_t n) {
  void *plan = NULL;
  bs_error err = {.struct_size = sizeof err};
  const bs_tensor_desc desc = bs_desc_2d(BS_F32, 1, n), *args[2] = {&desc, &desc};
  const bs_op_query q = {
      .struct_size = sizeof q, .nargs = 2, .op = "activate", .args = args, .activation = activation};
  bs_tensor a = {.struct_size = sizeof a,
                 .dtype = BS_F32,
                 .rank = 2,
                 .dims = {1, n},
                 .strides = {n, 1},
                 .bytes = (uint64_t)n * sizeof *in},
            b = a, *call[2] = {&a, &b};
  float *copy = malloc((size_t)n * sizeof *copy);
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, in, (size_t)n * sizeof *copy);
  a.data = copy;
  b.data = out;
  ck_assert_int_eq(c->impl->prepare(c->state, &c->exec, &q, NULL, &plan, &err), BS_OK);
  ck_assert_int_eq(c->impl->run(plan, call, 2, NULL, &err), BS_OK);
  c->impl->plan_free(plan);
  free(copy);
}

static void judge(const char *isa, uint32_t activation, float in, float out, double want) {
  if (isnan(want)) {
    ck_assert_msg(isnan(out), "%s, %u: %a gave %a, want NaN", isa, activation, in, out);
  } else if (isinf(want)) {
    ck_assert_msg(out == want, "%s, %u: %a gave %a, want %a", isa, activation, in, out, want);
  } else {
    const double units = fabs(out - want) / unit(want);
    if (!(units <= UNITS) || !signbit(out) != !signbit(want))
      ck_abort_msg("%s, %u: %a gave %a, want %a: %.3g units", isa, activation, in, out, want, units);
  }
}

/* All instruction sets on the same values, the answer computed once. */
static void compare(uint32_t activation, const float *in, int64_t n) {
  static double want[CHUNK];
  static float out[CHUNK];
  for (int64_t i = 0; i < n; i++) want[i] = formula(activation, in[i]);
  for (int k = 0; k < ISAS; k++) {
    if (!open[k].has) continue;
    activate(&open[k].activate, activation, in, out, n);
    for (int64_t i = 0; i < n; i++) judge(isas[k], activation, in[i], out[i], want[i]);
  }
}

static void open_all(void) {
  for (int k = 0; k < ISAS; k++) {
    open[k].has = ch_has_isa(isas[k]);
    if (!open[k].has) continue;
    ch_open(&open[k].host, isas[k], "off");
    ch_actor(&open[k].host, &open[k].activate, "activate", "cpu", 1);
    ch_actor(&open[k].host, &open[k].matmul, "matmul", "packed", 1);
  }
}

static void close_all(void) {
  for (int k = 0; k < ISAS; k++) {
    if (!open[k].has) continue;
    kit_actor_close(&open[k].activate);
    kit_actor_close(&open[k].matmul);
    ch_close(&open[k].host);
  }
}

/* Floats whose bits are first, first + step ..., of both signs in turn. */
static void sweep(uint32_t activation, uint32_t first, uint32_t last, uint32_t step) {
  static float in[CHUNK];
  int64_t n = 0;
  open_all();
  for (uint32_t bits = first; bits <= last; bits += step)
    for (uint32_t sign = 0; sign <= 1; sign++) {
      in[n++] = from_bits(bits | sign << 31);
      if (n < CHUNK) continue;
      compare(activation, in, n);
      n = 0;
    }
  compare(activation, in, n);
  close_all();
}

/* Every exponent with about 2000 fractions, subnormals, infinity and NaN included. */
START_TEST(all_exponents) {
  sweep((uint32_t)_i, 0, 0x7fffffffu, 4099);
}
END_TEST

/* Where the curves bend and vanish, 2^-8 to 128, closely. */
START_TEST(where_it_bends) {
  sweep((uint32_t)_i, 0x3b800000u, 0x43000000u, 131);
}
END_TEST

START_TEST(every_bf16) {
  sweep((uint32_t)_i, 0, 0x7fff0000u, 1u << 16);
}
END_TEST

/* Tails of a vector at odd places: the bits of each value alone, nothing beside it touched. */
START_TEST(lengths_and_places) {
  enum { MOST = 40, ROOM = MOST + 24 };
  const uint32_t activation = (uint32_t)_i;
  float in[MOST], each[MOST], out[ROOM];
  for (int i = 0; i < MOST; i++) in[i] = (float)(i * 7 % 41 - 20) / 3;
  open_all();
  for (int k = 0; k < ISAS; k++) {
    if (!open[k].has) continue;
    for (int i = 0; i < MOST; i++) activate(&open[k].activate, activation, in + i, each + i, 1);
    for (int64_t n = 0; n <= MOST; n++)
      for (int64_t place = 0; place <= 5; place++) {
        for (int i = 0; i < ROOM; i++) out[i] = 77;
        activate(&open[k].activate, activation, in, out + place, n);
        ck_assert_mem_eq(out + place, each, (size_t)n * sizeof *out);
        for (int64_t i = 0; i < ROOM; i++)
          ck_assert_msg((i >= place && i < place + n) || out[i] == 77, "%s: %d floats at %d, wrote at %d",
                        isas[k], (int)n, (int)place, (int)i);
      }
  }
  close_all();
}
END_TEST

/* With K = 0 the matmul is its epilogue: act(bias) + residual. */
static void matmul_case(int k, uint32_t activation, uint32_t residual) {
  enum { N = 83 };
  const kit_shape s = {.x = BS_F32,
                       .w = BS_F32,
                       .y = BS_F32,
                       .bias = BS_F32,
                       .residual = residual,
                       .B = 3,
                       .N = N,
                       .activation = activation,
                       .spread = 1,
                       .seed = 5};
  float in[N], out[N];
  kit_data d;
  kit_data_make(&d, "matmul", &s);
  for (int i = 0; i < N; i++) {
    in[i] = (float)(i * 11 % N - 41) / 4;
    kit_set(&d.a[1], 0, i, in[i]);
  }
  ch_run(&open[k].matmul, &d);
  activate(&open[k].activate, activation, in, out, N);
  for (int64_t b = 0; b < s.B; b++)
    for (int i = 0; i < N; i++) {
      const float want = residual != 0 ? out[i] + (float)kit_get(&d.a[2], b, i) : out[i];
      ck_assert_msg((float)kit_get(&d.a[3], b, i) == want, "%s, residual %u: Y[%d,%d] = %a, want %a",
                    kit_data_text(&d), residual, (int)b, i, kit_get(&d.a[3], b, i), want);
    }
  kit_check_around(&d.a[3], "epilogue", 0);
  kit_data_free(&open[k].matmul, &d);
}

START_TEST(the_matmul_uses_it) {
  static const uint32_t residuals[] = {0, BS_F32, BS_BF16};
  open_all();
  for (int k = 0; k < ISAS; k++)
    for (int r = 0; r < 3; r++)
      if (open[k].has) matmul_case(k, (uint32_t)_i, residuals[r]);
  close_all();
}
END_TEST

int main(void) {
  const test_case tests[] = {{all_exponents, BS_ACT_GELU_TANH + 1, BS_ACT_RELU},
                             {where_it_bends, BS_ACT_GELU_TANH + 1, BS_ACT_GELU},
                             {every_bf16, BS_ACT_GELU_TANH + 1, BS_ACT_RELU},
                             {lengths_and_places, BS_ACT_GELU_TANH + 1, BS_ACT_RELU},
                             {the_matmul_uses_it, BS_ACT_GELU_TANH + 1, BS_ACT_NONE},
                             {0}};
  return run_tests("cpu_epilogue", tests, (test_setup){.timeout = 60});
}
