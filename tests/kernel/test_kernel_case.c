/* SPDX-License-Identifier: MIT */
/* Arms of one kernel: which provider serves, that its numbers are judged beside a reference made elsewhere,
 * and that the judgement sees what is wrong: zeros, a tile that is left out, a batch, a value that is none.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/kernel/case.h"
#include "lab/kernel/oracle.h"
#include "lab/kernel/record.h"
#include "tests/run_tests.h"

static bs_context *context;

static void open_context(void) {
  const bs_context_options o = {.struct_size = sizeof o};
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
}

static void close_context(void) {
  bs_context_close(context);
}

static bs_kernel_problem parse(const char *text) {
  bs_kernel_problem p;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_kernel_problem_parse(text, &p, &err) == BS_OK, "%s", err.message);
  return p;
}

static int32_t open_arm(const char *text, const char *backend, const char *provider, uint32_t threads,
                        bs_kernel_arm **out, bs_error *err) {
  const bs_kernel_problem p = parse(text);
  const bs_kernel_setup s = {.context = context,
                             .problem = &p,
                             .backend = backend,
                             .provider = provider,
                             .threads = threads,
                             .seed = 3};
  return bs_kernel_arm_open(&s, out, err);
}

/* Relative errors that are right for each dtype: half a unit of the output's last place, at most. */
static const struct {
  const char *text, *backend, *provider;
  double most;
} arms[] = {
    {"b2h4g2s70d16:f32:causal", "cpu", NULL, 1e-6},
    {"b1h2s5t37d8e12:f32:causal_br:w9", "cpu", NULL, 1e-6},
    {"b1h2s40d8:bf16", "cpu", NULL, 6e-3},
    {"b1h2s40d8:f16", "cpu", NULL, 1e-3},
    {"b1h2s33d8:f32:w5:r3", "cpu", "ref", 1e-7},
    {"b1h2s33d8:fp8", "ref", NULL, 4e-3},
    {"b2h1s16d8:f64", "ref", NULL, 1e-14},
    {"matmul n48k40b9:f32", "cpu", NULL, 1e-6},
    {"matmul n48k40b9:bf16", "ref", NULL, 4e-3},
    {"matmul24 n64k48b8:f32", "cpu", NULL, 1e-6},
    {"matmul24 n20k32b3:f32", "ref", NULL, 1e-6},
    {"matmul n48k40b9:f32:run", "cpu", NULL, 1e-6},
    {"matmul n48k40b9:bf16:masked", "cpu", NULL, 4e-3},
    {"matmul n200k40b9:f32:masked", "ref", NULL, 1e-6},
    {"matmul_dx n48k40b9:f32", "cpu", NULL, 1e-6},
    {"matmul_dx n30k200b9:f64", "ref", NULL, 1e-15},
    {"matmul_dw n200k40b9:bf16", "cpu", NULL, 1e-6},
    {"matmul_dw n30k20b9:f64", "ref", NULL, 1e-15},
    {"matmul24_dx n64k50b8:f32", "cpu", NULL, 1e-6},
    {"matmul24_dx n20k32b3:f32", "ref", NULL, 1e-6},
    {"matmul24_dw n200k50b8:f32", "cpu", NULL, 1e-6},
    {"matmul24_dw n20k30b3:f32", "ref", NULL, 1e-6},
    {"sdpa_dx b2h4g2s20t30d8e12:f32:causal_br:w9", "cpu", NULL, 2e-6},
    {"sdpa_dx b1h2s40d16:bf16:causal", "cpu", NULL, 3e-3},
    {"sdpa_dx b1h4g1s9t17d8:f32:r3", "cpu", "ref", 1e-7},
    {"sdpa_dx b1h2s16d8:f64", "ref", NULL, 1e-14},
    {"sdpa_dx b1h1s8d260:f32", "cpu", "ref", 1e-7}, /* its forward pass, too, is by ref */
};

START_TEST(test_an_arm_is_right_and_repeats) {
  bs_kernel_arm *arm = NULL;
  bs_kernel_numbers n;
  bs_error err = BS_ERROR_INIT;
  double seconds[3] = {0};
  uint64_t differing = 1;
  bs_sample sample = {0};
  ck_assert_msg(open_arm(arms[_i].text, arms[_i].backend, arms[_i].provider, 2, &arm, &err) == BS_OK,
                "%s: %s", arms[_i].text, err.message);
  ck_assert_int_eq(bs_kernel_arm_judge(arm, &n, &err), BS_OK);
  ck_assert_msg(n.relative_rmse <= arms[_i].most, "%s: %g", arms[_i].text, n.relative_rmse);
  ck_assert_double_ge(n.worst_slice, n.relative_rmse);
  ck_assert_uint_eq(n.nonfinite, 0);
  ck_assert_int_gt(n.rows, 0);
  ck_assert_int_eq(bs_kernel_arm_repeat(arm, &differing, &err), BS_OK);
  ck_assert_uint_eq(differing, 0);
  ck_assert_int_eq(bs_kernel_arm_batch(arm, 1, 2, &sample, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_arm_series(arm, 1, 3, seconds, &err), BS_OK);
  ck_assert(sample.seconds > 0 && seconds[0] > 0 && seconds[1] > 0 && seconds[2] > 0);
  ck_assert_ptr_nonnull(strstr(bs_kernel_arm_candidates(arm), bs_kernel_arm_provider(arm)));
  ck_assert(bs_kernel_arm_key(arm)[0] != '\0' && bs_kernel_arm_algorithm(arm)[0] != '\0');
  bs_kernel_arm_close(arm);
}
END_TEST

/* Other numbers reach the same arm, also where they are packed weights. */
START_TEST(test_an_arm_takes_other_numbers) {
  static const char *const texts[] = {
      "b1h2s20d8",          "matmul n16k12b5",      "sdpa_dx b1h2s20d8",    "matmul_dx n16k12b5",
      "matmul_dw n16k12b5", "matmul24_dx n16k12b5", "matmul24_dw n16k12b5", "matmul n16k12b5:masked"};
  const bs_kernel_problem p = parse(texts[_i]);
  bs_kernel_data *data = NULL;
  bs_kernel_arm *arm = NULL;
  bs_kernel_numbers n;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(open_arm(texts[_i], "cpu", NULL, 1, &arm, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_data_make(&p, 8, &data, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_arm_load(arm, data, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_arm_judge(arm, &n, &err), BS_OK);
  ck_assert_double_le(n.relative_rmse, 1e-6);
  bs_kernel_arm_close(arm);
  bs_kernel_data_free(data);
}
END_TEST

/* The reference and the plan have them from one function: here they are by hand. */
START_TEST(test_half_of_the_columns_is_that_of_a_rank) {
  static const int64_t columns[2][6] = {{0, 1, 2, 3, 4, 5}, {0, 1, 4, 5, 8, 9}};
  const bs_kernel_problem p = parse(_i == 0 ? "matmul n4k12b1:run" : "matmul n4k12b1:masked");
  bs_kernel_data *data = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_data_make(&p, 8, &data, &err), BS_OK);
  const bs_partition *c = bs_kernel_data_columns(data);
  ck_assert_int_eq(c->count, 6);
  for (int64_t i = 0; i < c->count; i++)
    ck_assert_int_eq(c->kind == BS_PARTITION_GATHER ? c->columns[i] : c->begin + i, columns[_i][i]);
  bs_kernel_data_free(data);
}
END_TEST

static const struct {
  const char *text, *backend, *provider, *id, *says;
  int32_t code;
} refused[] = {
    {"b1h1s8d8", "cpu", "cpu:onlien", "BS-KERNEL-PROVIDER", "cpu:onlien", BS_CONFIG},
    {"b1h1s8d8", "cpu", "nobody", "BS-KERNEL-PROVIDER", "nobody", BS_CONFIG},
    {"b1h1s8d1k:f32", "cpu", "cpu", "BS-KERNEL-REFUSED", "1 to 256", BS_UNSUPPORTED},
    {"b1h1s8d1k:f32", "cpu", NULL, "BS-OP-NONE", "1 to 256", BS_UNSUPPORTED}, /* ref does not serve unasked */
    {"b1h1s8d8", "cup", NULL, "BS-PLG-NONE", "", BS_NOT_FOUND},
};

START_TEST(test_a_provider_that_does_not_serve_is_told) {
  bs_kernel_arm *arm = NULL;
  bs_error err = BS_ERROR_INIT;
  const int32_t rc = open_arm(refused[_i].text, refused[_i].backend, refused[_i].provider, 1, &arm, &err);
  ck_assert_msg(rc == refused[_i].code || refused[_i].code == BS_NOT_FOUND, "%d %s", rc, err.message);
  ck_assert_int_ne(rc, BS_OK);
  if (refused[_i].code != BS_NOT_FOUND) ck_assert_str_eq(err.id, refused[_i].id);
  ck_assert_msg(strstr(err.message, refused[_i].says) != NULL, "%s", err.message);
  ck_assert_ptr_null(arm);
}
END_TEST

/* Gradients are judged of a forward pass; each of the three counts. */
START_TEST(test_gradients_are_judged_as_one) {
  const bs_kernel_problem p = parse("sdpa_dx b1h2s12t20d8e4");
  enum { ROWS = 2 * 12, DQ = ROWS * 8, DK = 2 * 20 * 8, DV = 2 * 20 * 4 };
  static float zeros[DQ + DK + DV], y[ROWS * 4], lse[ROWS];
  bs_kernel_data *data = NULL;
  bs_kernel_numbers n;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_data_make(&p, 8, &data, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_data_outputs(data), DQ + DK + DV);
  ck_assert_int_eq(bs_kernel_data_judge(data, zeros, &n, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-KERNEL-FORWARD");
  ck_assert_int_eq(bs_kernel_data_set_forward(data, y, lse, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_data_judge(data, zeros, &n, &err), BS_OK);
  ck_assert(fabs(n.relative_rmse - 1.0) < 1e-12 && n.rows == ROWS + 2 * 2 * 20);
  zeros[DQ + DK + 3] = NAN;
  ck_assert_int_eq(bs_kernel_data_judge(data, zeros, &n, &err), BS_OK);
  ck_assert(n.nonfinite == 1 && isnan(n.relative_rmse));
  bs_kernel_data_free(data);
}
END_TEST

/* ---- what the judgement sees -------------------------------------------------------------------- */

/* The right outputs of a problem by ref in its Y dtype; then a fault is made in them. */
enum { NO_FAULT, ZEROS, LAST_ROWS, ONE_BATCH, ONE_NAN, ONE_UNJUDGED_INF, FAULTS };

static void make_fault(int fault, const bs_kernel_problem *p, float *y) {
  const int64_t n = p->B * p->H * p->S * p->E, last = 3 * p->E;
  if (fault == ZEROS) memset(y, 0, (size_t)n * sizeof *y);
  for (int64_t head = 0; fault == LAST_ROWS && head < p->B * p->H; head++)
    memset(y + (head + 1) * p->S * p->E - last, 0, (size_t)last * sizeof *y);
  if (fault == ONE_BATCH) memcpy(y + n / 2, y, (size_t)(n / 2) * sizeof *y);
  if (fault == ONE_NAN) y[0] = NAN;
  for (int64_t i = 0; fault == ONE_UNJUDGED_INF && i < p->E; i++) y[p->E + i] = INFINITY;
}

/* A reference of its own: textbook softmax, in order. */
static void textbook(const bs_kernel_problem *p, const bs_kernel_data *data, float *y) {
  int64_t rows, cols;
  const float *q = bs_kernel_data_input(data, 0, &rows, &cols),
              *k = bs_kernel_data_input(data, 1, &rows, &cols),
              *v = bs_kernel_data_input(data, 2, &rows, &cols);
  double *power = calloc((size_t)p->T, sizeof *power);
  for (int64_t row = 0; row < p->B * p->H * p->S; row++) {
    const int64_t head = row / p->S, group = head / (p->H / p->G), s = row % p->S;
    double total = 0.0;
    for (int64_t t = 0; t < p->T; t++) {
      double score = 0.0;
      for (int64_t d = 0; d < p->D; d++)
        score += (double)q[row * p->D + d] * (double)k[(group * p->T + t) * p->D + d];
      power[t] = p->causal == BS_CAUSAL_UPPER_LEFT && t > s ? 0.0 : exp(score / sqrt((double)p->D));
      total += power[t];
    }
    for (int64_t e = 0; e < p->E; e++) {
      double sum = 0.0;
      for (int64_t t = 0; t < p->T; t++) sum += power[t] * (double)v[(group * p->T + t) * p->E + e];
      y[row * p->E + e] = (float)(sum / total);
    }
  }
  free(power);
}

START_TEST(test_the_judgement_sees_faults) {
  const bs_kernel_problem p = parse("b2h4g2s200d8:f32:causal");
  bs_kernel_data *data = NULL;
  bs_kernel_numbers n;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_data_make(&p, 1, &data, &err), BS_OK);
  float *y = calloc((size_t)bs_kernel_data_outputs(data), sizeof *y);
  textbook(&p, data, y);
  make_fault(_i, &p, y);
  ck_assert_int_eq(bs_kernel_data_judge(data, y, &n, &err), BS_OK);
  ck_assert_int_ge(n.rows, 8 * 5); /* the first and last of each head, and one of each 64 */
  switch (_i) {
    case NO_FAULT:
      ck_assert_double_le(n.worst_slice, 1e-7);
      break;
    case ZEROS:
      ck_assert_double_eq_tol(n.relative_rmse, 1.0, 1e-12);
      break;
    case LAST_ROWS:
      ck_assert_double_ge(n.relative_rmse, 0.02);
      break;
    case ONE_BATCH:
      ck_assert_double_ge(n.worst_slice, 1.0);
      break;
    case ONE_NAN:
      ck_assert(isnan(n.relative_rmse) && isnan(n.worst) && n.nonfinite == 1);
      break;
    default:
      ck_assert_uint_eq(n.nonfinite, 8);
  }
  free(y);
  bs_kernel_data_free(data);
}
END_TEST

/* Defect (e): at 32,768 keys outputs are small, and zeros passed every absolute tolerance. Here they are 100
 * % off. */
START_TEST(test_zeros_at_32768_keys_fail) {
  const bs_kernel_problem p = parse("b1h1s32kd16:bf16");
  const bs_sdpa_format f = {
      .S = p.S, .T = p.T, .D = p.D, .E = p.E, .dtype = p.dtype, .tolerance = BS_TOL_ACC_LOW, .seed = 1};
  bs_sdpa_error predicted;
  bs_kernel_data *data = NULL;
  bs_kernel_numbers n;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_data_make(&p, 1, &data, &err), BS_OK);
  uint16_t *y = calloc((size_t)bs_kernel_data_outputs(data), sizeof *y);
  ck_assert_int_eq(bs_kernel_data_judge(data, y, &n, &err), BS_OK);
  ck_assert_int_eq(bs_sdpa_emulate(&f, &predicted, &err), BS_OK);
  ck_assert_double_le(n.rms, 0.02);       /* so small that 0.06 of error is let pass */
  ck_assert_double_le(n.max_error, 0.06); /* which zeros keep to */
  ck_assert_double_ge(n.relative_rmse, 10 * BS_SDPA_SLACK * predicted.rmse);
  free(y);
  bs_kernel_data_free(data);
}
END_TEST

START_TEST(test_an_error_of_a_product_is_predicted) {
  static const char *const texts[] = {"matmul n200k333b16:f32", "matmul24 n64k256b16:f32",
                                      "matmul n64k512b16:bf16", "matmul24_dx n256k64b16:f32",
                                      "matmul_dw n64k40b256:bf16"};
  const bs_kernel_problem p = parse(texts[_i]);
  bs_kernel_data *data = NULL;
  bs_kernel_arm *arm = NULL;
  bs_kernel_numbers n;
  double predicted = 0.0;
  bs_tail tail;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_data_make(&p, 5, &data, &err), BS_OK);
  const bs_kernel_setup s = {.context = context, .problem = &p, .data = data};
  ck_assert_int_eq(bs_kernel_arm_open(&s, &arm, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_arm_judge(arm, &n, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_predict(arm, data, &predicted, &tail, &err), BS_OK);
  ck_assert_msg(n.relative_rmse <= 1.5 * predicted && n.relative_rmse >= predicted / 8,
                "%s: %g, predicted %g", texts[_i], n.relative_rmse, predicted);
  const double largest = bs_tail_largest(&tail, (double)n.values, BS_TAIL_ODDS);
  ck_assert_msg(n.worst <= BS_SDPA_SLACK * largest && largest <= 50 * predicted,
                "%s: %g is the largest, told %g of %g", texts[_i], n.worst, largest, predicted);
  bs_kernel_arm_close(arm);
  bs_kernel_data_free(data);
}
END_TEST

int main(void) {
  const test_case cases[] = {{test_an_arm_is_right_and_repeats, TEST_COUNT(arms)},
                             {test_an_arm_takes_other_numbers, 8},
                             {test_half_of_the_columns_is_that_of_a_rank, 2},
                             {test_gradients_are_judged_as_one},
                             {test_a_provider_that_does_not_serve_is_told, TEST_COUNT(refused)},
                             {test_the_judgement_sees_faults, FAULTS},
                             {test_zeros_at_32768_keys_fail},
                             {test_an_error_of_a_product_is_predicted, 5},
                             {0}};
  return run_tests("kernel_case", cases, (test_setup){.before = open_context, .after = close_context});
}
