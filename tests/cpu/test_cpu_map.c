/* SPDX-License-Identifier: MIT
 *
 * test_cpu_map.c - programs with a name have loops of their own where their args lie side by side: they give
 * the bits that the same program gives without its name, step by step. And silu of f32 beside f64. */
#include <math.h>

#include "blockshock/expr.h"
#include "cpu_host.h"
#include "tests/run_tests.h"

enum { LINES = 70, WIDE = 300, ARGS = 6 };

typedef struct program {
  uint32_t form, n_in, n_steps, n_out;
  bs_expr_step steps[6];
  uint8_t outs[2];
} program;

static const program programs[] = {
    {BS_MAP_ADD, 2, 1, 1, {{BS_EXPR_ADD, 0, 1, 0}}, {2}},
    {BS_MAP_MUL, 2, 1, 1, {{BS_EXPR_MUL, 0, 1, 0}}, {2}},
    {BS_MAP_SILU_MUL, 2, 2, 1, {{BS_EXPR_SILU, 0, 0, 0}, {BS_EXPR_MUL, 2, 1, 0}}, {3}},
    {BS_MAP_ROPE,
     4,
     6,
     2,
     {{BS_EXPR_MUL, 0, 2, 0},
      {BS_EXPR_MUL, 1, 3, 0},
      {BS_EXPR_SUB, 4, 5, 0},
      {BS_EXPR_MUL, 1, 2, 0},
      {BS_EXPR_MUL, 0, 3, 0},
      {BS_EXPR_ADD, 7, 8, 0}},
     {6, 9}},
};

static const struct {
  const char *isa;
  uint32_t width;
} hosts[] = {{"portable", 1}, {"avx2", 2}, {"auto", 3}};

/* Runs the program as `form`; of four inputs the last two have one line for all. */
static void run_program(kit_actor *c, const program *p, uint32_t form, kit_tensor *args, uint32_t count) {
  void *plan = NULL;
  bs_error err = {.struct_size = sizeof err};
  const bs_tensor_desc *descs[ARGS];
  bs_tensor *call[ARGS];
  const bs_expr expr = {.struct_size = sizeof expr,
                        .compute = BS_F32,
                        .n_in = p->n_in,
                        .n_steps = p->n_steps,
                        .n_out = p->n_out,
                        .form = form,
                        .max_op = BS_EXPR_ADD,
                        .steps = p->steps,
                        .outs = p->outs};
  for (uint32_t i = 0; i < count; i++) {
    kit_push(c, &args[i]);
    descs[i] = &args[i].d;
    call[i] = &args[i].t;
  }
  const bs_op_query q = {.struct_size = sizeof q, .nargs = count, .op = "map", .args = descs, .expr = &expr};
  ck_assert_int_eq(c->impl->prepare(c->state, &c->exec, &q, NULL, &plan, &err), BS_OK);
  ck_assert_int_eq(c->impl->run(plan, call, count, NULL, &err), BS_OK);
  c->impl->plan_free(plan);
}

/* spread 1: rows padded. */
static void compare_forms(kit_actor *c, const program *p, int64_t lines, int64_t n, uint32_t spread) {
  kit_tensor args[ARGS];
  const uint32_t count = p->n_in + p->n_out;
  uint64_t seed = 5;
  for (uint32_t i = 0; i < count; i++) {
    kit_tensor_make(&args[i], BS_F32, 2, i == 2 && p->n_in == 4 ? 1 : lines, n, spread);
    for (int64_t r = 0; r < args[i].t.dims[0]; r++)
      for (int64_t k = 0; k < n; k++) kit_set(&args[i], r, k, (double)kit_below(&seed, 20001) / 1000 - 10);
  }
  float *want = malloc((size_t)(lines * n) * p->n_out * sizeof *want);
  ck_assert_ptr_nonnull(want);
  for (uint32_t pass = 0; pass < 2; pass++) {
    run_program(c, p, pass == 0 ? (uint32_t)BS_MAP_NONE : p->form, args, count);
    for (uint32_t o = 0; o < p->n_out; o++)
      for (int64_t r = 0; r < lines; r++) {
        const float *got = (const float *)args[p->n_in + o].t.data + r * args[p->n_in + o].t.strides[0];
        float *of = want + ((int64_t)o * lines + r) * n;
        if (pass == 0)
          memcpy(of, got, (size_t)n * sizeof *of);
        else if (memcmp(of, got, (size_t)n * sizeof *of) != 0)
          ck_abort_msg("form %u, %lld lines of %lld: line %lld differs", p->form, (long long)lines,
                       (long long)n, (long long)r);
      }
    for (uint32_t o = 0; o < p->n_out && pass == 0; o++)
      for (int64_t r = 0; r < lines; r++)
        for (int64_t k = 0; k < n; k++) kit_set(&args[p->n_in + o], r, k, 77);
  }
  free(want);
  for (uint32_t i = 0; i < count; i++) {
    kit_check_around(&args[i], "map", i < p->n_in);
    kit_tensor_free(c, &args[i]);
  }
}

START_TEST(forms_give_the_bits_of_their_steps) {
  static ch host;
  kit_actor c;
  if (!ch_has_isa(hosts[_i].isa) && strcmp(hosts[_i].isa, "auto") != 0) return;
  ch_open(&host, hosts[_i].isa, "off");
  ch_actor(&host, &c, "map", "cpu", hosts[_i].width);
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    compare_forms(&c, &programs[i], 1, 5, 0);
    compare_forms(&c, &programs[i], 3, 37, 1);
    compare_forms(&c, &programs[i], LINES, WIDE, 0); /* the team shares it */
    compare_forms(&c, &programs[i], LINES, WIDE, 1);
    compare_forms(&c, &programs[i], 2, 9005, 1); /* lines are cut */
  }
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

static int32_t second_of_two(void *ctx, void (*body)(void *, uint32_t, uint32_t), void *arg) {
  (void)ctx;
  body(arg, 1, 2);
  return BS_OK;
}

/* Three long lines are no more work for one of two members than for the other. */
START_TEST(few_long_lines_are_shared_evenly) {
  const int64_t lines = 3, n = 6000;
  int64_t written = 0;
  static ch host;
  kit_actor c;
  kit_tensor args[3];
  ch_open(&host, "portable", "off");
  ch_actor(&host, &c, "map", "cpu", 2);
  c.exec.parallel_for = second_of_two;
  for (int i = 0; i < 3; i++) kit_tensor_make(&args[i], BS_F32, 2, lines, n, 1);
  for (int i = 0; i < 3; i++)
    for (int64_t k = 0; k < lines * n; k++) kit_set(&args[i], k / n, k % n, i < 2 ? 1 : 7);
  run_program(&c, &programs[0], BS_MAP_ADD, args, 3);
  for (int64_t k = 0; k < lines * n; k++) written += kit_get(&args[2], k / n, k % n) == 2;
  ck_assert_int_le(llabs(2 * written - lines * n), 64);
  for (int i = 0; i < 3; i++) kit_tensor_free(&c, &args[i]);
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* [A,B,C] that lies as [B][A][C], and an input with one line for all B. */
START_TEST(transposed_views) {
  enum { A = 7, B = 40, C = 61 };
  static float in[B * A * C], one[A * C], out[B * A * C];
  static ch host;
  kit_actor c;
  ch_open(&host, "auto", "off");
  ch_actor(&host, &c, "map", "cpu", hosts[_i].width);
  for (int64_t i = 0; i < B * A * C; i++) in[i] = (float)(i % 977), out[i] = -1;
  for (int64_t i = 0; i < A * C; i++) one[i] = (float)(i % 89) * 1024;
  kit_tensor args[3];
  float *const data[] = {in, one, out};
  memset(args, 0, sizeof args);
  for (int i = 0; i < 3; i++) {
    const int64_t dims[] = {A, i == 1 ? 1 : B, C}, strides[] = {C, A * C, 1};
    args[i].d = (bs_tensor_desc){.struct_size = sizeof args[i].d, .dtype = BS_F32, .rank = 3};
    args[i].t = (bs_tensor){.struct_size = sizeof args[i].t, .dtype = BS_F32, .rank = 3, .data = data[i]};
    for (int k = 0; k < 3; k++) {
      args[i].d.dims[k] = args[i].t.dims[k] = dims[k];
      args[i].d.strides[k] = args[i].t.strides[k] = strides[k];
    }
    args[i].t.bytes = (uint64_t)(A * dims[1] * C) * sizeof(float);
  }
  run_program(&c, &programs[0], BS_MAP_ADD, args, 3);
  for (int64_t i = 0; i < B * A * C; i++)
    ck_assert_msg(out[i] == in[i] + one[i % (A * C)], "element %lld", (long long)i);
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

/* Every 9973rd float, and what lies at the ends. */
START_TEST(silu_is_within_four_ulp) {
  static const program silu = {BS_MAP_SILU, 1, 1, 1, {{BS_EXPR_SILU, 0, 0, 0}}, {1}};
  const int64_t n = 430000;
  static ch host;
  kit_actor c;
  kit_tensor args[2];
  if (!ch_has_isa(hosts[_i].isa) && strcmp(hosts[_i].isa, "auto") != 0) return;
  ch_open(&host, hosts[_i].isa, "off");
  ch_actor(&host, &c, "map", "cpu", hosts[_i].width);
  for (int i = 0; i < 2; i++) kit_tensor_make(&args[i], BS_F32, 2, 1, n, 0);
  float *x = args[0].t.data, *y = args[1].t.data;
  for (int64_t i = 0; i < n; i++) {
    const uint32_t bits = (uint32_t)(i * 9973);
    memcpy(&x[i], &bits, sizeof bits);
  }
  x[0] = -INFINITY, x[1] = INFINITY, x[2] = NAN, x[3] = -0.0f, x[4] = -88.0f, x[5] = -103.5f, x[6] = -1e30f;
  run_program(&c, &silu, BS_MAP_SILU, args, 2);
  for (int64_t i = 3; i < n; i++) {
    int power = 0;
    if (!isfinite(x[i])) continue;
    const double v = (double)x[i], want = v < -700 ? -0.0 : v / (1 + exp(-v));
    (void)frexp(want, &power);
    const double ulp = ldexp(1, power < -125 ? -149 : power - 24);
    if (!(fabs((double)y[i] - want) <= 4 * ulp))
      ck_abort_msg("silu(%a) = %a, want %a", v, (double)y[i], want);
  }
  ck_assert(isnan(y[0]) && isinf(y[1]) && isnan(y[2]));
  ck_assert(y[3] == 0.0f && signbit(y[3]) && y[6] == 0.0f && signbit(y[6]));
  for (int i = 0; i < 2; i++) kit_tensor_free(&c, &args[i]);
  kit_actor_close(&c);
  ch_close(&host);
}
END_TEST

int main(void) {
  const test_case tests[] = {{forms_give_the_bits_of_their_steps, 3},
                             {few_long_lines_are_shared_evenly, 0},
                             {transposed_views, 3},
                             {silu_is_within_four_ulp, 3},
                             {0}};
  return run_tests("cpu_map", tests, (test_setup){.timeout = 60});
}
