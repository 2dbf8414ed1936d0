/* SPDX-License-Identifier: MIT
 * test_check_fair.c - layers that are right by everybody's usual way to compute are right for `bsrun check`:
 * activations with their tails, equal outputs, ranks that own nothing, NaN and Inf of the inputs, partials of
 * zeros, the bias anywhere, sums over ranks that the tensors do not show. */
#include "tests/lab/check_layer.h"

static layer l;

static void must_be_right(bs_check_set *set, const bs_check_options *options, const char *what) {
  bs_check_result r;
  judge(set, options, &r);
  ck_assert_msg(!r.wrong, "%s: %s%s", what, failures(&r), r.cause);
  ck_assert_msg(gate_in(&r, "T3")->state == BS_GATE_PASS, "%s: T3 has not judged", what);
}

static void small(uint32_t dtype, int ranks) {
  memset(&l, 0, sizeof l);
  l.B = 16, l.N = 32, l.K = 48, l.P = ranks, l.dtype = dtype, l.scale = 1;
}

static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64};

/* ---- activations -------------------------------------------------------------------------------- */

START_TEST(usual_activations_are_right) {
  static const double shifts[] = {0, -3, -5, 3, -20, -95};
  const uint32_t activation = (uint32_t)_i % 5;
  for (size_t d = 0; d < 4; d++) {
    for (size_t i = 0; i < sizeof shifts / sizeof shifts[0]; i++) {
      for (int stored = 0; stored < 2; stored++) {
        small(dtypes[d], 1);
        l.activation = activation, l.shift = shifts[i], l.stored = stored, l.seed = (uint32_t)i;
        l.scale = i == 0 ? 3 : 1;
        make_layer(&l);
        char what[80];
        snprintf(what, sizeof what, "activation %u, dtype %s, shift %g, stored %d", activation,
                 bs_dtype_name(dtypes[d]), shifts[i], stored);
        const bs_check_options o = {.y_dtype = dtypes[d], .activation = activation};
        bs_check_result r;
        judge(set_of(&l), &o, &r);
        ck_assert_msg(!r.wrong, "%s: %s%s", what, failures(&r), r.cause);
      }
    }
  }
}
END_TEST

/* PyTorch's gelu has NaN at Inf; no other activation may. */
START_TEST(gelu_of_infinity) {
  for (uint32_t activation = BS_ACT_GELU; activation <= BS_ACT_GELU_TANH; activation++) {
    small(BS_F32, 1);
    l.activation = activation;
    make_layer(&l);
    l.x[3 * l.K + 1] = INFINITY;
    make_partials(&l);
    make_outputs(&l);
    for (int n = 0; n < l.N; n++) l.y[3 * l.N + n] = NAN;
    const bs_check_options o = {.activation = activation};
    bs_check_result r;
    judge(set_of(&l), &o, &r);
    ck_assert_int_eq(r.wrong, activation != BS_ACT_GELU);
  }
}
END_TEST

/* ---- equal outputs ------------------------------------------------------------------------------ */

static void all_one(void) {
  for (int i = 0; i < l.B * l.K; i++) l.x[i] = 1;
  for (int i = 0; i < l.N * l.K; i++) l.w[i] = rounded(l.dtype, 0.1 + 0.01 * l.seed);
  for (int n = 0; n < l.N; n++) l.bias[n] = 0;
}
static void equal_tokens(void) {
  for (int b = 1; b < l.B; b++) memcpy(l.x + b * l.K, l.x, (size_t)l.K * sizeof *l.x);
}
static void padded_half(void) {
  for (int b = l.B / 2; b < l.B; b++) memcpy(l.x + b * l.K, l.x, (size_t)l.K * sizeof *l.x);
}
static void equal_features(void) {
  for (int n = 1; n < l.N; n++) memcpy(l.w + n * l.K, l.w, (size_t)l.K * sizeof *l.w);
  for (int n = 1; n < l.N; n++) l.bias[n] = l.bias[0];
}
static void constant_rows(void) {
  for (int i = 0; i < l.N * l.K; i++) l.w[i] = l.w[i / l.K * l.K];
}
static void equal_partials(void) {
  const int half = l.K / 2;
  for (int i = 0; i < l.B * l.K; i++) l.x[i] = l.x[i / l.K * l.K + i % half];
  for (int i = 0; i < l.N * l.K; i++) l.w[i] = l.w[i / l.K * l.K + i % half];
}

START_TEST(equal_outputs_count_once) {
  static const struct {
    const char *name;
    void (*change)(void);
  } forms[] = {{"all constant", all_one},        {"equal tokens", equal_tokens},
               {"half is padding", padded_half}, {"equal features", equal_features},
               {"constant rows", constant_rows}, {"equal partials", equal_partials}};
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    for (uint32_t seed = 0; seed < 24; seed++) {
      small(dtypes[seed % 4], 2);
      l.B = seed % 3 == 0 ? 64 : 16, l.seed = seed;
      make_inputs(&l);
      forms[f].change();
      make_partials(&l);
      make_outputs(&l);
      bs_check_set *set = set_of(&l);
      put_partials(&l, set);
      put_columns(&l, set);
      const bs_check_options o = {.y_dtype = l.dtype};
      must_be_right(set, &o, forms[f].name);
    }
  }
}
END_TEST

/* ---- ranks -------------------------------------------------------------------------------------- */

/* Five features on four ranks as torch.chunk cuts them: 2, 2, 1, 0; tokens likewise. */
START_TEST(empty_parts_are_parts_of_nothing) {
  for (int by_tokens = 0; by_tokens < 2; by_tokens++) {
    small(BS_F32, 2);
    l.B = by_tokens ? 5 : 16, l.N = by_tokens ? 32 : 5;
    make_layer(&l);
    bs_check_set *set = set_of(&l);
    free(set->y.of[0].data);
    static const int widths[] = {2, 2, 1, 0};
    for (int r = 0, at = 0; r < 4; at += widths[r++]) {
      double part[MOST * MOST];
      const int rows = by_tokens ? widths[r] : l.B, cols = by_tokens ? l.N : widths[r];
      for (int i = 0; i < rows * cols; i++)
        part[i] = l.y[(by_tokens ? at + i / cols : i / cols) * l.N + (by_tokens ? i % cols : at + i % cols)];
      put(&set->y, (uint32_t)r, BS_F32, rows, cols, part);
    }
    const bs_check_options o = {0};
    must_be_right(set, &o, by_tokens ? "tokens" : "features");
  }
}
END_TEST

/* K < P: ranks without columns, whose partials are zeros, or nothing at all. */
START_TEST(ranks_without_columns) {
  for (int form = 0; form < 4; form++) {
    small(BS_F32, 4);
    l.K = 3;
    make_layer(&l);
    bs_check_set *set = set_of(&l);
    put_partials(&l, set);
    if (form & 1) put_columns(&l, set);
    for (int r = 0; form >= 2 && r < 4; r++) {
      if (first_column(&l, r) != first_column(&l, r + 1)) continue;
      free(set->partial.of[r].data);
      put(&set->partial, (uint32_t)r, BS_F32, 0, 0, NULL);
    }
    const bs_check_options o = {0};
    must_be_right(set, &o, form & 1 ? "with columns" : "without");
  }
}
END_TEST

/* A rank's inputs are all zero. Its partial of zeros is right; where it is lost, it is not. */
START_TEST(a_partial_of_zeros) {
  for (int lost = 0; lost < 2; lost++) {
    bs_check_result r;
    small(BS_F32, 2);
    make_inputs(&l);
    for (int i = 0; i < l.N * l.K; i++)
      if (i % l.K >= l.K / 2 && !lost) l.w[i] = 0;
    make_partials(&l);
    make_outputs(&l);
    if (lost) memset(l.partial[1], 0, sizeof l.partial[1]);
    bs_check_set *set = set_of(&l);
    put_partials(&l, set);
    const bs_check_options o = {0};
    judge(set, &o, &r);
    ck_assert_int_eq(r.wrong, lost);
    ck_assert_int_eq(gate_in(&r, "partial")->state, lost ? BS_GATE_FAIL : BS_GATE_SKIPPED);
    if (lost) ck_assert_msg(strstr(r.cause, "partial of rank 1 is all zeros"), "%s", r.cause);
  }
}
END_TEST

/* The bias behind the sum, with one rank's partial, or a share with each; in all dtypes of sums. */
START_TEST(the_bias_may_be_anywhere) {
  static const uint32_t sums[] = {BS_F32, BS_BF16, BS_F16};
  for (int place = -2; place < 8; place++) {
    for (size_t s = 0; s < 3; s++) {
      small(BS_F32, 8);
      make_inputs(&l);
      make_partials(&l);
      double sum[MOST * MOST] = {0};
      for (int r = 0; r < l.P; r++) {
        for (int at = 0; at < l.B * l.N; at++) {
          const double bias = l.bias[at % l.N];
          l.partial[r][at] = rounded(sums[s], l.partial[r][at] + (place == r    ? bias
                                                                  : place == -2 ? bias / 8
                                                                                : 0));
          sum[at] = rounded(sums[s], sum[at] + l.partial[r][at]);
        }
      }
      for (int at = 0; at < l.B * l.N; at++)
        l.y[at] = (float)(sum[at] + (place == -1 ? l.bias[at % l.N] : 0));
      for (int columns = 0; columns < 2; columns++) {
        bs_check_set *set = set_of(&l);
        put_partials(&l, set);
        if (columns) put_columns(&l, set);
        const bs_check_options o = {.y_dtype = BS_F32, .reduce_dtype = sums[s]};
        must_be_right(set, &o, "bias");
      }
    }
  }
}
END_TEST

/* Sums of eight ranks in bf16: the ranks are told by their Y, by columns or by an option; else a row says
 * that the dtype has no effect. */
START_TEST(sums_in_a_narrow_dtype) {
  for (int told = 0; told < 4; told++) {
    bs_check_result r;
    small(BS_BF16, 8);
    l.B = 64;
    make_inputs(&l);
    make_partials(&l);
    for (int at = 0; at < l.B * l.N; at++) {
      double sum = 0;
      for (int q = 0; q < 8; q++) sum = rounded(BS_BF16, sum + rounded(BS_BF16, l.partial[q][at]));
      l.y[at] = rounded(BS_BF16, sum + l.bias[at % l.N]);
    }
    bs_check_set *set = set_of(&l);
    for (uint32_t q = 1; told == 1 && q < 8; q++) put(&set->y, q, BS_BF16, l.B, l.N, l.y);
    if (told == 2) put_columns(&l, set);
    const bs_check_options o = {.y_dtype = BS_BF16, .reduce_dtype = BS_BF16, .ranks = told == 3 ? 8 : 0};
    judge(set, &o, &r);
    ck_assert_msg(r.wrong == (told == 0), "told %d: %s", told, failures(&r));
    const bs_gate *row = gate_in(&r, "ranks");
    ck_assert_int_eq(row != NULL, told == 0);
    if (row != NULL) ck_assert_ptr_nonnull(strstr(row->text, "--reduce-dtype has no effect"));
  }
}
END_TEST

/* ---- NaN and Inf -------------------------------------------------------------------------------- */

/* In X, W or the bias, on one rank or on several, wherever the bias is added. */
START_TEST(nan_and_inf_of_the_inputs) {
  static const double values[] = {NAN, INFINITY, -INFINITY};
  for (int form = 0; form < 36; form++) {
    const int place = form % 4, with_bias = form / 4 % 3 - 1; /* bias: behind, on rank 0, on rank 2 */
    small(form % 2 ? BS_F32 : BS_BF16, 3);
    l.activation = form % 5 == 0 ? BS_ACT_RELU : form % 7 == 0 ? BS_ACT_SILU : BS_ACT_NONE;
    make_inputs(&l);
    if (place != 1) l.w[5 * l.K + 2] = values[form / 12];
    if (place == 1 || place == 3) l.x[7 * l.K + 40] = values[(form / 12 + place) % 3];
    if (place == 2) l.bias[9] = values[form / 12], l.w[8 * l.K + 30] = -values[form / 12];
    make_partials(&l);
    make_outputs(&l);
    for (int at = 0; with_bias > -1 && at < l.B * l.N; at++)
      l.partial[2 * with_bias][at] = (float)(l.partial[2 * with_bias][at] + l.bias[at % l.N]);
    bs_check_set *set = set_of(&l);
    put_partials(&l, set);
    if (form % 3) put_columns(&l, set);
    const bs_check_options o = {.y_dtype = l.dtype, .activation = l.activation};
    char what[60];
    snprintf(what, sizeof what, "form %d", form);
    must_be_right(set, &o, what);
  }
}
END_TEST

/* The wrong infinity, NaN for an infinity, a number for NaN: found, and told as what it is. */
START_TEST(other_nan_and_inf_are_found) {
  for (int form = 0; form < 4; form++) {
    bs_check_result r;
    small(BS_F32, 2);
    make_layer(&l);
    l.x[3 * l.K + 5] = form == 2 ? NAN : INFINITY;
    make_partials(&l);
    make_outputs(&l);
    double *at = &l.y[3 * l.N + 4];
    *at = form == 0 ? -*at : form == 1 ? NAN : 0.0;
    if (form == 3) *at = INFINITY * (l.w[4 * l.K + 5] > 0 ? 1 : -1), l.partial[0][3 * l.N + 4] = 0;
    bs_check_set *set = set_of(&l);
    if (form == 3) put_partials(&l, set), put_columns(&l, set);
    const bs_check_options o = {0};
    judge(set, &o, &r);
    ck_assert_msg(r.wrong, "form %d", form);
    ck_assert_msg(strstr(r.cause, form < 3 ? "1 of these are something else" : "the partial of rank 0"), "%s",
                  r.cause);
    ck_assert_ptr_null(strstr(r.cause, "narrower"));
  }
}
END_TEST

/* ---- columns ------------------------------------------------------------------------------------ */

/* One rank's partial and its columns alone; columns that cannot be say why they are not used. */
START_TEST(columns_of_one_rank) {
  static const struct {
    double first;
    const char *says;
  } forms[] = {{0, NULL},
               {1000, "hold 1000: no column of 0 to 47"},
               {NAN, "nan"},
               {1, "column 1 belongs to"},
               {0.5, "hold 0.5"}};
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
    bs_check_result r;
    double columns[MOST];
    small(BS_F32, 2);
    make_layer(&l);
    bs_check_set *set = set_of(&l);
    put(&set->partial, 0, BS_F32, l.B, l.N, l.partial[0]);
    for (int k = 0; k < l.K / 2; k++) columns[k] = k;
    columns[0] = forms[f].first;
    put(&set->columns, 0, BS_F64, 1, l.K / 2, columns);
    const bs_check_options o = {0};
    judge(set, &o, &r);
    const bs_gate *partial = gate_in(&r, "partial");
    ck_assert_int_eq(partial->state, f == 0 ? BS_GATE_PASS : BS_GATE_SKIPPED);
    if (f == 0) ck_assert_msg(!r.wrong, "%s", failures(&r));
    if (f > 0) ck_assert_msg(strstr(partial->text, forms[f].says), "%s", partial->text);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {usual_activations_are_right, 5},   {gelu_of_infinity},       {equal_outputs_count_once},
      {empty_parts_are_parts_of_nothing}, {ranks_without_columns},  {a_partial_of_zeros},
      {the_bias_may_be_anywhere},         {sums_in_a_narrow_dtype}, {nan_and_inf_of_the_inputs},
      {other_nan_and_inf_are_found},      {columns_of_one_rank},    {0}};
  return run_tests("check_fair", tests, (test_setup){NULL, NULL});
}
