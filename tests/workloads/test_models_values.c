/* SPDX-License-Identifier: MIT
 * test_models_values.c - X of activation_like, transformer_mlp, attention_like and vision_conv: the values of
 * their definitions under every key, and the heads of attention beside each other (K23). */
#include "tests/run_tests.h"
#include "tests/workloads/models.h"

static void check_close(const double *got, const long double *want, int64_t n, const char *what) {
  for (int64_t i = 0; i < n; i++)
    if (!(fabsl(got[i] - want[i]) <= 4e-14L * (1.0L + fabsl(want[i]))))
      ck_abort_msg("%s: element %d is %.17g, not %.17Lg", what, (int)i, got[i], want[i]);
}

START_TEST(activation_is_clipped) {
  static const struct {
    const char *options[2];
    float scale, clip;
  } rows[] = {{{NULL}, 1, 2}, {{"scale=3"}, 3, 2}, {{"clip=0.5", "scale=-1"}, -1, 0.5f}, {{"clip=0"}, 1, 0}};
  float z[4 * 50];
  bs_rng_normal(9, BS_STREAM_X, 0, 200, z);
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    ask a = {.name = "activation_like", .B = 4, .N = 2, .K = 50, .seed = 9, .weight_seed = 9};
    a.options[0] = rows[r].options[0];
    a.options[1] = rows[r].options[1];
    double *x = read_x(&a);
    int clipped = 0;
    for (int i = 0; i < 200; i++) {
      float scaled = z[i] * rows[r].scale, want = fmaxf(-rows[r].clip, fminf(rows[r].clip, scaled));
      ck_assert_msg(x[i] == (double)want, "row %zu, element %d: %g", r, i, x[i]);
      clipped += scaled != want;
    }
    ck_assert_int_gt(clipped, 0);
    free(x);
  }
}
END_TEST

START_TEST(mlp_is_its_definition) {
  static const struct {
    const char *options[5];
    expect_mlp want;
  } rows[] = {
      {{NULL}, {"gelu", 1, 1, 1, 1e-5}},
      {{"mlp_variant=gelu", "scale_in=1.0", "scale_out=1.0", "layernorm=true"}, {"gelu", 1, 1, 1, 1e-5}},
      {{"mlp_variant=silu"}, {"silu", 1, 1, 1, 1e-5}},
      {{"mlp_variant=swish", "scale_out=-0.5"}, {"swish", 1, 1, -0.5, 1e-5}},
      {{"mlp_variant=relu", "layernorm=false", "scale_in=3"}, {"relu", 0, 3, 1, 1e-5}},
      {{"layernorm=no", "scale_in=0.25"}, {"gelu", 0, 0.25, 1, 1e-5}},
      {{"ln_eps=0.5", "scale_in=2"}, {"gelu", 1, 2, 1, 0.5}},
      {{"ln_eps=0"}, {"gelu", 1, 1, 1, 0}},
      {{"mlp_variant=swiglu"}, {"swiglu", 1, 1, 1, 1e-5}},
      {{"mlp_variant=swiglu", "layernorm=off", "scale_in=2", "scale_out=3"}, {"swiglu", 0, 2, 3, 1e-5}}};
  static const int64_t widths[] = {2, 37, 1100};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (size_t i = 0; i < 3; i++) {
      ask a = {.name = i == 0 ? "transformer_mlp" : "transformer_mlp_like",
               .dtype = BS_F64,
               .B = 3,
               .N = 2,
               .K = widths[i],
               .seed = 21};
      memcpy(a.options, rows[r].options, sizeof rows[r].options);
      double *x = read_x(&a);
      long double *want = expect_mlp_x(&rows[r].want, 21, a.B, a.K);
      check_close(x, want, a.B * a.K, rows[r].want.variant);
      free(x);
      free(want);
    }
}
END_TEST

/* The original's gate, x1 * sigmoid(x2), is something else. */
START_TEST(swiglu_gates_with_silu) {
  ask a = {
      .name = "transformer_mlp", .dtype = BS_F64, .B = 1, .N = 2, .K = 20, .options = {"mlp_variant=swiglu"}};
  const expect_mlp linear = {"linear", 1, 1, 1, 1e-5};
  double *x = read_x(&a);
  long double *x1 = expect_mlp_x(&linear, 0, 1, 20), *x2 = expect_normals(0, MODELS_STREAM_SECOND, 20);
  expect_norm(&linear, x2, 20);
  int same = 0;
  for (int i = 0; i < 20; i++) {
    ck_assert(fabsl(x[i] - x1[i] / (1 + expl(-x1[i])) * x2[i]) < 1e-14L);
    same += fabsl(x[i] - x1[i] / (1 + expl(-x2[i]))) < 1e-6L;
  }
  ck_assert_int_lt(same, 3);
  free(x);
  free(x1);
  free(x2);
}
END_TEST

START_TEST(attention_is_its_definition) {
  static const struct {
    const char *options[4];
    int64_t B, K, batch, tokens, heads;
    double scale; /* 0: 1 / sqrt(head_dim) */
  } rows[] = {{{NULL}, 5, 16, 1, 5, 8, 0},
              {{"heads=1"}, 7, 13, 1, 7, 1, 0},
              {{"heads=3", "attn_batch=2", "tokens=4"}, 8, 21, 2, 4, 3, 0},
              {{"heads=3", "attn_batch=4", "tokens=2"}, 8, 21, 4, 2, 3, 0},
              {{"heads=4", "attn_batch=6", "tokens=1"}, 6, 4, 6, 1, 4, 0},
              {{"heads=2", "attn_scale=0.01"}, 6, 1200, 1, 6, 2, 0.01},
              {{"heads=2", "attn_scale=-0.5"}, 6, 12, 1, 6, 2, -0.5},
              {{"heads=2", "tokens=6", "attn_scale=1"}, 6, 12, 1, 6, 2, 1}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    ask a = {.name = r % 2 ? "attention" : "attention_like", .dtype = BS_F64, .N = 2, .seed = 22};
    a.B = rows[r].B;
    a.K = rows[r].K;
    memcpy(a.options, rows[r].options, sizeof rows[r].options);
    double scale = rows[r].scale != 0 ? rows[r].scale : 1.0 / sqrt((double)(a.K / rows[r].heads));
    double *x = read_x(&a);
    long double *want =
        expect_attention_x(22, rows[r].batch, rows[r].tokens, rows[r].heads, a.K / rows[r].heads, scale);
    check_close(x, want, a.B * a.K, "attention");
    free(x);
    free(want);
  }
}
END_TEST

/* K23: 1 batch element, 2 heads, 2 tokens, head_dim 1. The heads' outputs over the tokens are (a b) and (c
 * d); the rows are (a c) and (b d), not (a b) and (c d). Head h of the draws q, k, v is elements 2h, 2h + 1.
 */
START_TEST(heads_lie_beside_each_other) {
  ask a = {
      .name = "attention_like", .dtype = BS_F64, .B = 2, .N = 2, .K = 2, .seed = 23, .options = {"heads=2"}};
  long double *q = expect_normals(23, MODELS_STREAM_Q, 4), *k = expect_normals(23, MODELS_STREAM_K, 4);
  long double *v = expect_normals(23, MODELS_STREAM_V, 4), out[4];
  double *x = read_x(&a);
  for (int h = 0; h < 2; h++)
    for (int t = 0; t < 2; t++) {
      long double p0 = expl(q[2 * h + t] * k[2 * h]), p1 = expl(q[2 * h + t] * k[2 * h + 1]);
      out[2 * h + t] = (p0 * v[2 * h] + p1 * v[2 * h + 1]) / (p0 + p1);
    }
  const long double rows[4] = {out[0], out[2], out[1], out[3]}; /* (a c), (b d) */
  check_close(x, rows, 4, "K23");
  ck_assert(fabsl(x[1] - out[1]) > 1e-3L && fabsl(x[2] - out[2]) > 1e-3L);
  free(q);
  free(k);
  free(v);
  free(x);
}
END_TEST

START_TEST(vision_is_its_definition) {
  static const struct {
    const char *options[8];
    expect_conv want;
  } rows[] = {{{"H=6", "W=5"}, {3, 6, 5, 3, 3, 1, 1, "relu"}},
              {{"C=2", "H=6", "W=5", "out_channels=4"}, {2, 6, 5, 4, 3, 1, 1, "relu"}},
              {{"H=7", "W=9", "stride=2"}, {3, 7, 9, 3, 3, 2, 1, "relu"}},
              {{"H=7", "W=9", "stride=3", "padding=0"}, {3, 7, 9, 3, 3, 3, 0, "relu"}},
              {{"H=4", "W=5", "kernel_size=2"}, {3, 4, 5, 3, 2, 1, 1, "relu"}},
              {{"H=4", "W=5", "kernel_size=5", "padding=4"}, {3, 4, 5, 3, 5, 1, 4, "relu"}},
              {{"C=1", "H=4", "W=5", "kernel_size=1"}, {1, 4, 5, 1, 1, 1, 0, "relu"}},
              {{"H=2", "W=3", "kernel_size=3", "padding=7", "stride=4"}, {3, 2, 3, 3, 3, 4, 7, "relu"}},
              {{"H=5", "W=5", "activation=gelu"}, {3, 5, 5, 3, 3, 1, 1, "gelu"}},
              {{"H=5", "W=5", "activation=silu"}, {3, 5, 5, 3, 3, 1, 1, "silu"}},
              {{"H=5", "W=5", "activation=swish"}, {3, 5, 5, 3, 3, 1, 1, "silu"}},
              {{"H=5", "W=5", "activation=none"}, {3, 5, 5, 3, 3, 1, 1, "linear"}},
              {{"H=5", "W=5", "activation=linear"}, {3, 5, 5, 3, 3, 1, 1, "linear"}},
              {{NULL}, {3, 32, 32, 3, 3, 1, 1, "relu"}}};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    const expect_conv *c = &rows[r].want;
    ask a = {.name = r % 2 ? "conv_like" : "vision_conv", .dtype = BS_F64, .B = 3, .N = 2, .seed = 24};
    a.K = c->out * expect_conv_side(c, c->H) * expect_conv_side(c, c->W);
    memcpy(a.options, rows[r].options, 7 * sizeof *a.options);
    double *x = read_x(&a);
    long double *want = expect_conv_x(c, 24, a.B);
    check_close(x, want, a.B * a.K, "conv");
    free(x);
    free(want);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{activation_is_clipped},
                             {mlp_is_its_definition},
                             {swiglu_gates_with_silu},
                             {attention_is_its_definition},
                             {heads_lie_beside_each_other},
                             {vision_is_its_definition},
                             {0}};
  return run_tests("models_values", tests, (test_setup){0});
}
