/* SPDX-License-Identifier: MIT
 * test_check_faults.c - that `bsrun check` is fair has not made it blind: seven kinds of real faults in
 * twelve layers each, f32 and bf16, with and without activations, are all found. And the sentence names the
 * fault, or says that no known mistake fits; it never names another. */
#include "tests/lab/check_layer.h"

enum { LAYERS = 12 };

static layer l;

/* Twelve shapes, numbers of ranks, and ways to compute. */
static void shape(uint32_t dtype, uint32_t activation, uint32_t at) {
  static const int shapes[][4] = {{16, 64, 64, 2}, {16, 32, 48, 4}, {32, 48, 64, 3}, {64, 64, 64, 8}};
  memset(&l, 0, sizeof l);
  l.B = shapes[at % 4][0], l.N = shapes[at % 4][1], l.K = shapes[at % 4][2], l.P = shapes[at % 4][3];
  l.dtype = dtype, l.activation = activation, l.seed = at;
  l.scale = 1.5;
  l.stored = activation > BS_ACT_RELU && dtype == BS_BF16 && at % 2;
}

static double sum_at(int at) {
  double sum = l.bias[at % l.N];
  for (int r = 0; r < l.P; r++) sum += l.partial[r][at];
  return sum;
}

/* ---- faults: each changes what Y is made of, or Y ------------------------------------------------ */

/* A typical output, not in a tail that everybody's activation loses. */
static void one_element(void) {
  make_layer(&l);
  for (int at = 17 * (int)l.seed % (l.B * l.N);; at = (at + 1) % (l.B * l.N)) {
    if (fabs(sum_at(at)) < 0.1 || (l.activation != BS_ACT_NONE && sum_at(at) < 0.1)) continue;
    l.y[at] = rounded(l.dtype, l.y[at] * (l.dtype == BS_BF16 ? 1.02 : 1.01));
    return;
  }
}

static void with_other_weights(void (*change)(void)) {
  double w[MOST * MOST], bias[MOST];
  make_inputs(&l);
  memcpy(w, l.w, sizeof w);
  memcpy(bias, l.bias, sizeof bias);
  change();
  make_partials(&l);
  make_outputs(&l);
  memcpy(l.w, w, sizeof w);
  memcpy(l.bias, bias, sizeof bias);
}

static void lose_column(void) {
  for (int n = 0; n < l.N; n++) l.w[n * l.K + (int)(7 * l.seed) % l.K] = 0;
}
static void round_weights(void) {
  for (int i = 0; i < l.N * l.K; i++) l.w[i] = rounded(BS_F8E4M3, l.w[i]);
}
static void swap_features(void) {
  for (int k = 0; k < l.K; k++) {
    const double one = l.w[l.K + k];
    l.w[l.K + k] = l.w[2 * l.K + k];
    l.w[2 * l.K + k] = one;
  }
}
static void shift_bias(void) {
  const double last = l.bias[l.N - 1];
  memmove(l.bias + 1, l.bias, (size_t)(l.N - 1) * sizeof *l.bias);
  l.bias[0] = last;
}

static void lost_column(void) {
  with_other_weights(lose_column);
}
static void narrow_weights(void) {
  with_other_weights(round_weights);
}
static void swapped_features(void) {
  with_other_weights(swap_features);
}
static void shifted_bias(void) {
  with_other_weights(shift_bias);
}

/* Cut to bf16, or to 11 bits of f32's 24. */
static void truncation(void) {
  make_layer(&l);
  for (int at = 0; at < l.B * l.N; at++) {
    float y = (float)usual(l.activation, l.stored ? rounded(l.dtype, sum_at(at)) : sum_at(at), 0);
    uint32_t bits;
    memcpy(&bits, &y, sizeof bits);
    bits &= l.dtype == BS_BF16 ? 0xffff0000u : 0xffffe000u;
    memcpy(&y, &bits, sizeof bits);
    l.y[at] = y;
  }
}

static void missing_rank(void) {
  const uint32_t lost = l.seed % (uint32_t)l.P;
  double partial[MOST * MOST];
  make_inputs(&l);
  make_partials(&l);
  memcpy(partial, l.partial[lost], sizeof partial);
  memset(l.partial[lost], 0, sizeof partial);
  make_outputs(&l);
  memcpy(l.partial[lost], partial, sizeof partial);
}

/* The sentence of a fault is its name, or that nothing is known. */
static const struct fault {
  const char *name;
  void (*make)(void);
  const char *says[5];
} faults[] = {
    {"one element", one_element, {"outputs are wrong and the others right"}},
    {"a lost column",
     lost_column,
     {"no known mistake fits", "are zeros and should not be", "is not the product of its columns"}},
    {"W in f8", narrow_weights, {"W was rounded to a narrower dtype, f8e4m3"}},
    {"two features swapped",
     swapped_features,
     {"no known mistake fits", "outputs are wrong and the others right", "are zeros and should not be",
      "is not the product of its columns"}},
    {"truncation",
     truncation,
     {"errors of Y have one sign", "no known mistake fits",
      "all its values are those of a narrower dtype, f16"}},
    {"a shifted bias", shifted_bias, {"no known mistake fits", "are zeros and should not be"}},
    {"a rank is missing",
     missing_rank,
     {"missing in the sum: rank", "no known mistake fits", "are zeros and should not be"}},
};

static int is_said(const struct fault *f, const char *cause) {
  for (int i = 0; i < 5 && f->says[i] != NULL; i++)
    if (strstr(cause, f->says[i]) != NULL) return 1;
  return 0;
}

START_TEST(every_fault_is_found) {
  static const uint32_t activations[] = {BS_ACT_NONE, BS_ACT_GELU, BS_ACT_GELU_TANH, BS_ACT_SILU,
                                         BS_ACT_RELU};
  const struct fault *f = &faults[_i];
  for (uint32_t at = 0; at < 2 * 5 * LAYERS; at++) {
    bs_check_result r;
    if (at / 2 % 5 > 1 && at / 10 % 4 != 3) continue; /* none and gelu in all layers, the others in three */
    shape(at % 2 ? BS_BF16 : BS_F32, activations[at / 2 % 5], at / 10);
    f->make();
    bs_check_set *set = set_of(&l);
    if (l.seed % 3 != 0) put_partials(&l, set); /* with what should have been summed, or without */
    if (l.seed % 3 == 1) put_columns(&l, set);
    const bs_check_options o = {.y_dtype = l.dtype, .activation = l.activation};
    judge(set, &o, &r);
    ck_assert_msg(r.wrong, "%s is missed: %s, activation %u, layer %u", f->name, bs_dtype_name(l.dtype),
                  l.activation, l.seed);
    ck_assert_msg(is_said(f, r.cause), "%s, %s, activation %u, layer %u: %s", f->name, bs_dtype_name(l.dtype),
                  l.activation, l.seed, r.cause);
  }
}
END_TEST

/* ---- causes ------------------------------------------------------------------------------------- */

/* Y = act(sum S + partial P_rank + bias b), of the seed's rank. */
static void mix(double of_sum, double of_partial, double of_bias, uint32_t rank) {
  for (int at = 0; at < l.B * l.N; at++) {
    double sum = 0;
    for (int r = 0; r < l.P; r++) sum += l.partial[r][at];
    l.y[at] = output_of(&l, of_sum * sum + of_partial * l.partial[rank][at] + of_bias * l.bias[at % l.N]);
  }
}

static const struct cause {
  double sum, partial, bias;
  const char *says;
  int plain; /* only without an activation */
} causes[] = {
    {1, 0, 0, "the bias is lost", 0},
    {1, 0, 2, "the bias is added twice", 0},
    {1, 0, 3, "the bias is added 3 times", 0},
    {1, 0, 4, "the bias is added by every rank: 4 times", 0},
    {1, 0, 7, "the bias is added 7 times", 0},
    {1, 0, 0.25, "only a part of the bias is added: 1/4", 0},
    {0.25, 0, 1, "the sum is divided by 4 before the bias", 0},
    {2, 0, 1, "the sum is multiplied by 2 before the bias", 0},
    {0.25, 0, 0.25, "Y is a multiple of the right outputs: 0.25", 1},
    {1, -1, 1, "the partial of a rank is missing in the sum: rank 1", 0},
    {1, 1, 1, "the partial of a rank is counted twice: rank 1", 0},
    {0, 1, 1, "the partial of one rank and the bias: the partials were not summed: rank 1", 0},
    {0, 1, 0, "the partial of one rank: the partials were not summed: rank 1", 0},
    {0.7, 0, 1.9, " X W^T + 1.9", 1},
};

START_TEST(mistakes_are_named) {
  const struct cause *c = &causes[_i];
  for (uint32_t at = 0; at < 9; at++) {
    bs_check_result r;
    shape(at % 2 && !c->plain ? BS_BF16 : BS_F32, c->plain ? BS_ACT_NONE : at / 2 % 5, at);
    l.P = 4;
    make_inputs(&l);
    make_partials(&l);
    mix(c->sum, c->partial, c->bias, 1);
    bs_check_set *set = set_of(&l);
    if (at % 3 != 2) put_partials(&l, set);
    if (at % 3 != 1) put_columns(&l, set);
    const bs_check_options o = {.y_dtype = l.dtype, .activation = l.activation, .ranks = 4};
    judge(set, &o, &r);
    ck_assert_msg(r.wrong && strstr(r.cause, c->says), "%s, activation %u, %u: %s", c->says, l.activation, at,
                  r.cause);
  }
}
END_TEST

/* Each rank's Y is its own partial and the bias: on two ranks this is no lost partial. */
START_TEST(a_missing_sum_is_named) {
  for (int ranks = 2; ranks <= 8; ranks += 2) {
    bs_check_result r;
    shape(BS_F32, BS_ACT_NONE, 0);
    l.P = ranks;
    make_inputs(&l);
    make_partials(&l);
    mix(0, 1, 1, 0);
    bs_check_set *set = set_of(&l);
    for (int q = 1; q < ranks; q++) {
      mix(0, 1, 1, (uint32_t)q);
      put(&set->y, (uint32_t)q, BS_F32, l.B, l.N, l.y);
    }
    put_columns(&l, set);
    const bs_check_options o = {0};
    judge(set, &o, &r);
    ck_assert_msg(r.wrong && strstr(r.cause, "Y of each rank is its own partial and the bias"), "%s",
                  r.cause);
  }
}
END_TEST

/* Two ranks with equal partials: which of them is missing cannot be told. */
START_TEST(what_cannot_be_told_is_not) {
  bs_check_result r;
  shape(BS_F32, BS_ACT_NONE, 1);
  make_inputs(&l);
  for (int i = 0; i < l.B * l.K; i++) l.x[i] = l.x[i / l.K * l.K + i % (l.K / 4)];
  for (int i = 0; i < l.N * l.K; i++) l.w[i] = l.w[i / l.K * l.K + i % (l.K / 4)];
  make_partials(&l);
  mix(1, -1, 1, 2);
  bs_check_set *set = set_of(&l);
  put_partials(&l, set);
  put_columns(&l, set);
  const bs_check_options o = {0};
  judge(set, &o, &r);
  ck_assert_msg(r.wrong && strstr(r.cause, "; or "), "%s", r.cause);
}
END_TEST

/* The bias in every partial, a wrong partial beside a right Y, and W or X in a narrower dtype. */
START_TEST(partials_and_dtypes_are_named) {
  static const char *const says[] = {
      "the partial of every rank holds the whole bias",
      "the partial of rank 2 is not the product of its columns", "X was rounded to a narrower dtype, bf16",
      "X and W were rounded to a narrower dtype, f16", "all its values are those of a narrower dtype, bf16"};
  for (int form = 0; form < 5; form++) {
    bs_check_result r;
    shape(BS_F32, BS_ACT_NONE, 1);
    make_layer(&l);
    layer other = l;
    for (int at = 0; form == 0 && at < l.B * l.N; at++)
      for (int q = 0; q < l.P; q++) l.partial[q][at] = (float)(l.partial[q][at] + l.bias[at % l.N]);
    if (form == 1) l.partial[2][5] += 0.5;
    for (int i = 0; i < l.B * l.K; i++)
      other.x[i] = rounded(form == 2 ? BS_BF16 : form == 3 ? BS_F16 : BS_F32, l.x[i]);
    for (int i = 0; i < l.N * l.K; i++) other.w[i] = rounded(form == 3 ? BS_F16 : BS_F32, l.w[i]);
    make_partials(&other);
    make_outputs(&other);
    for (int at = 0; at < l.B * l.N; at++) l.y[at] = form == 4 ? rounded(BS_BF16, other.y[at]) : other.y[at];
    bs_check_set *set = set_of(&l);
    if (form < 2) put_partials(&l, set), put_columns(&l, set);
    const bs_check_options o = {.y_dtype = BS_F32};
    judge(set, &o, &r);
    ck_assert_msg(r.wrong && strstr(r.cause, says[form]), "%d: %s", form, r.cause);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_fault_is_found, TEST_COUNT(faults)},
                             {mistakes_are_named, TEST_COUNT(causes)},
                             {a_missing_sum_is_named},
                             {what_cannot_be_told_is_not},
                             {partials_and_dtypes_are_named},
                             {0}};
  return run_tests("check_faults", tests, (test_setup){NULL, NULL});
}
