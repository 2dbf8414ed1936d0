/* SPDX-License-Identifier: MIT */
/* Texts of kernel problems: what is read, how it is written again, what is refused and with which word; and
 * the work that a problem takes, by hand. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/kernel/bound.h"
#include "lab/kernel/problem.h"
#include "tests/run_tests.h"

static const struct {
  const char *text, *canonical;
} right[] = {
    {"small", "b1h8s128d64:f32:full"},
    {"mission", "b2h8s512d64:f32:full"},
    {"long:bf16", "b2h8s2048d64:bf16:full"},
    {"gqa:f16:causal", "b2h8g2s512d64:f16:causal"},
    {"decode", "b4h8g2s1t2048d64:f32:full"},
    {"b2h8s512d64", "b2h8s512d64:f32:full"},
    {"sdpa b2h8s512d64", "b2h8s512d64:f32:full"},
    {"b2h8g8s512t512d64e64:f32:full", "b2h8s512d64:f32:full"},
    {"s2Kid64h4b1:causal:bf16", "b1h4s2048d64:bf16:causal"},
    {"b1h8g2s1t4kd128e64:bf16:causal_br:w256:r8", "b1h8g2s1t4000d128e64:bf16:causal_br:w256:r8"},
    {"b1h1s1Mid64:fp8", "b1h1s1048576d64:f8e4m3:full"},
    {"b1h1s8d8:f8e5m2", "b1h1s8d8:f8e5m2:full"},
    {"sdpa_dx mission:bf16", "sdpa_dx b2h8s512d64:bf16:full"},
    {"matmul n4096k4096b64", "matmul n4096k4096b64:f32"},
    {"matmul24 k512n1Kib8:bf16", "matmul24 n1024k512b8:bf16"},
    {"matmul n16k8b4:run:bf16", "matmul n16k8b4:bf16:run"},
    {"matmul_dx n16k8b4", "matmul_dx n16k8b4:f32"},
    {"matmul24_dw n16k8b4:f16", "matmul24_dw n16k8b4:f16"},
};

START_TEST(test_a_problem_is_read_and_written) {
  bs_kernel_problem p, again;
  bs_error err = BS_ERROR_INIT;
  char text[BS_KERNEL_TEXT];
  ck_assert_msg(bs_kernel_problem_parse(right[_i].text, &p, &err) == BS_OK, "%s: %s", right[_i].text,
                err.message);
  bs_kernel_problem_text(&p, text, sizeof text);
  ck_assert_str_eq(text, right[_i].canonical);
  ck_assert_int_eq(bs_kernel_problem_parse(text, &again, &err), BS_OK);
  ck_assert_mem_eq(&p, &again, sizeof p);
}
END_TEST

static const struct {
  const char *text, *message, *hint;
} wrong[] = {
    {"misson", "unknown shape 'misson'", "did you mean 'mission'?"},
    {"large", "unknown shape 'large'", "known: small, mission, long"},
    {"", "a part is empty", ""},
    {"mission:", "a part is empty", ""},
    {"mission::causal", "a part is empty", ""},
    {"mission:bf61", "unknown dtype, mask or window 'bf61'", "did you mean 'bf16'?"},
    {"mission:casual", "unknown dtype, mask or window 'casual'", "did you mean 'causal'?"},
    {"mission:i32", "unknown dtype, mask or window 'i32'", ""},
    {"mission:bf16:f32", "a second dtype 'f32'", ""},
    {"mission:full:causal", "a second mask 'causal'", ""},
    {"mission:w0", "a window that is no number, or is there twice: 'w0'", ""},
    {"mission:w8:w9", "a window that is no number, or is there twice: 'w9'", ""},
    {"b2h8s512", "it lacks the size 'd'", ""},
    {"b2h8s512d64d64", "a size is given twice: 'd64'", ""},
    {"b2h8x512d64", "no size has the letter of 'x512d64'", ""},
    {"b0h8s512d64", "not from 1 to 16Mi: 'b0h8s512d64'", ""},
    {"b2h8s99999999999d64", "not from 1 to 16Mi: 's99999999999d64'", ""},
    {"b2h8sd64", "a number is missing in 'sd64'", ""},
    {"b2h8g3s8d8", "h is no multiple of 'g'", ""},
    {"b16Mh16Ms16Md64", "more than 17G elements in 'a tensor'", ""},
    {"b1h1s16d1000000", "a head of more than 1024 elements: 'd'", ""},
    {"b1h1s16d64e1025:f64", "a head of more than 1024 elements: 'e'", ""},
    {"matmul n4096k4096", "it lacks the size 'b'", ""},
    {"matmul n4k4b4:causal", "unknown dtype 'causal'", ""},
    {"matmul n4k6b4:masked", "half of the columns needs a K of fours: 'masked'", ""},
    {"matmul n4k4b4:run:masked", "unknown dtype 'masked'", ""},
    {"matmul24 n4k4b4:run", "unknown dtype 'run'", ""},
    {"matmul_dx n4k4b4:run", "unknown dtype 'run'", ""},
    {"matmul42 n4k4b4", "unknown kind of kernel 'matmul42'", "did you mean 'matmul24'?"},
};

START_TEST(test_a_wrong_problem_is_refused_with_its_place) {
  bs_kernel_problem p;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_problem_parse(wrong[_i].text, &p, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-KERNEL-PROBLEM");
  ck_assert_msg(strstr(err.message, wrong[_i].message) != NULL, "%s: %s", wrong[_i].text, err.message);
  ck_assert_msg(strstr(err.hint, wrong[_i].hint) != NULL, "%s: %s", wrong[_i].text, err.hint);
}
END_TEST

static const struct {
  const char *text, *word, *canonical; /* NULL: refused */
} varied[] = {
    {"matmul n16k8b4", "bf16", "matmul n16k8b4:bf16"},
    {"mission:causal", "f16", "b2h8s512d64:f16:causal"},
    {"matmul n16k8b4:bf16", "gathered", "matmul n16k4b4:bf16"},
    {"matmul n16k8b4:bf16", "masked", "matmul n16k8b4:bf16:masked"},
    {"matmul24 n16k8b4", "run", "matmul n16k8b4:f32:run"},
    {"matmul24 n16k8b4", "dense", "matmul n16k8b4:f32"},
    {"matmul24_dx n16k8b4", "dense", "matmul_dx n16k8b4:f32"},
    {"matmul24_dw n16k8b4", "gathered", "matmul_dw n16k4b4:f32"},
    {"matmul n16k8b4", "dense", NULL},
    {"matmul n16k6b4", "gathered", NULL},
    {"matmul_dx n16k8b4", "run", NULL},
    {"matmul n16k8b4:run", "masked", NULL},
    {"matmul n16k8b4", "", NULL},
    {"mission", "gathered", NULL},
};

START_TEST(test_a_problem_is_varied_by_a_word) {
  bs_kernel_problem p, other;
  bs_error err = BS_ERROR_INIT;
  char text[BS_KERNEL_TEXT];
  ck_assert_int_eq(bs_kernel_problem_parse(varied[_i].text, &p, &err), BS_OK);
  const int32_t rc = bs_kernel_problem_vary(&p, varied[_i].word, &other, &err);
  ck_assert_msg(rc == (varied[_i].canonical != NULL ? BS_OK : BS_USAGE), "%s", err.message);
  if (rc != BS_OK) ck_assert_str_eq(err.id, "BS-KERNEL-VARY");
  if (rc != BS_OK) return;
  bs_kernel_problem_text(&other, text, sizeof text);
  ck_assert_str_eq(text, varied[_i].canonical);
}
END_TEST

/* ---- lists -------------------------------------------------------------------------------------- */

START_TEST(test_shapes_times_dtypes_times_masks) {
  static const char *const words[] = {"small", "mission:f16:causal"}, *const dtypes[] = {"f32", "bf16"},
                           *const masks[] = {"full", "causal"};
  static const char *const all[] = {"b1h8s128d64:f32:full", "b1h8s128d64:f32:causal", "b1h8s128d64:bf16:full",
                                    "b1h8s128d64:bf16:causal", "b2h8s512d64:f16:causal"};
  bs_kernel_problem *list = NULL;
  size_t n = 0;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_problems_expand(words, 2, dtypes, 2, masks, 2, &list, &n, &err), BS_OK);
  ck_assert_uint_eq(n, 5);
  for (size_t i = 0; i < n; i++) {
    char text[BS_KERNEL_TEXT];
    bs_kernel_problem_text(&list[i], text, sizeof text);
    ck_assert_str_eq(text, all[i]);
  }
  free(list);
}
END_TEST

/* Defect (c) of the kernel laboratory that was before this one: nothing selected, "all gates passed". */
START_TEST(test_an_empty_selection_is_an_error) {
  static const char *const words[] = {"small"}, *const none[] = {"small"}, *const unknown[] = {"smal"};
  bs_kernel_problem *list = NULL;
  size_t n = 7;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_problems_expand(words, 0, NULL, 0, NULL, 0, &list, &n, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-KERNEL-EMPTY");
  ck_assert_int_eq(bs_kernel_problems_expand(words, 1, none, 0, NULL, 0, &list, &n, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-KERNEL-EMPTY");
  ck_assert_int_eq(bs_kernel_problems_expand(unknown, 1, NULL, 0, NULL, 0, &list, &n, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-KERNEL-PROBLEM");
  ck_assert_uint_eq(n, 0);
  ck_assert_ptr_null(list);
}
END_TEST

/* ---- work --------------------------------------------------------------------------------------- */

static const struct {
  const char *text;
  double pairs, flops, exps, bytes;
} work[] = {
    /* 2 x 8 heads of 512 x 512 pairs, each 2 (64 + 64) operations; four tensors of 2 x 8 x 512 x 64 */
    {"mission", 4194304, 1073741824, 4194304, 8388608},
    {"mission:bf16", 4194304, 1073741824, 4194304, 4194304},
    /* 512 x 513 / 2 pairs a head: exact, not half of the square */
    {"mission:causal", 16.0 * 512 * 513 / 2, 16.0 * 512 * 513 / 2 * 256, 16.0 * 512 * 513 / 2, 8388608},
    {"b1h1s4t6d2", 24, 24 * 8, 24, 4 * (8 + 12 + 12 + 8)},
    {"b1h1s4t6d2:causal", 1 + 2 + 3 + 4, 10 * 8, 10, 4 * 32}, /* keys 4 and 5 are seen by nobody */
    {"b1h1s4t6d2:causal_br", 3 + 4 + 5 + 6, 18 * 8, 18, 4 * 40},
    {"b1h1s6t4d2:causal_br", 0 + 0 + 1 + 2 + 3 + 4, 10 * 8, 10, 4 * 40},
    {"b1h1s4d2:causal:w2", 1 + 2 + 2 + 2, 7 * 8, 7, 4 * 32},
    {"b1h1s4d2:w2:r2", 2 + 3 + 3 + 2, 10 * 8, 10, 4 * 32},
    {"b2h4g1s1t64d2:causal", 8, 64, 8, 2 * 4 * (8 + 4 + 8)},
    {"b1h4g2s4d2e6", 64, 64.0 * 2 * 8, 64, 4 * (32 + 16 + 48 + 96)},
    {"b1h1s8d16:fp8", 64, 64 * 64, 64, 3 * 128 + 2 * 128}, /* bf16 outputs */
    {"sdpa_dx b1h1s4d2", 16, 16.0 * 2 * (6 + 4), 16, 4 * (4 * 8 + 8 + 24) + 16},
    {"matmul n8k4b2", 0, 128, 0, 4 * (32 + 8 + 16)},
    {"matmul24 n8k4b2", 0, 64, 0, 32 * 4.25 / 2 + 4 * (8 + 16)},
    {"matmul n8k4b2:masked", 0, 64, 0, 4 * (16 + 4 + 16)},
    {"matmul_dx n8k4b2:bf16", 0, 128, 0, 2 * (32 + 8 + 16)},
    {"matmul_dw n8k4b2:bf16", 0, 128, 0, 4 * 32 + 2 * (8 + 16)}, /* dW is f32 */
    {"matmul24_dw n8k4b2", 0, 64, 0, 32 * 4.25 / 2 + 4 * (8 + 16)},
};

START_TEST(test_work_is_counted_exactly) {
  bs_kernel_problem p;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_problem_parse(work[_i].text, &p, &err), BS_OK);
  ck_assert_double_eq(bs_kernel_exps(&p), work[_i].exps);
  ck_assert_double_eq(bs_kernel_exps(&p) > 0 ? bs_kernel_pairs(&p) : 0, work[_i].pairs);
  ck_assert_double_eq(bs_kernel_flops(&p), work[_i].flops);
  ck_assert_double_eq(bs_kernel_bytes(&p), work[_i].bytes);
}
END_TEST

static const struct {
  const char *text;
  bs_kernel_peaks rates;
  double launch_s, seconds;
  uint32_t binding;
} bounds[] = {
    {"mission", {.flops = 1073741824, .exps = 41943040, .bytes = 83886080}, 0.2, 1.0, BS_LIMIT_FMA},
    {"mission", {.flops = 10737418240, .exps = 2097152, .bytes = 8388608}, 0.2, 2.0, BS_LIMIT_EXP},
    {"mission", {.flops = 10737418240, .exps = 41943040, .bytes = 2097152}, 0.2, 4.0, BS_LIMIT_BYTES},
    {"mission", {.flops = 10737418240, .exps = 41943040, .bytes = 83886080}, 0.5, 0.5, BS_LIMIT_LAUNCH},
};

START_TEST(test_the_longest_limit_binds) {
  bs_kernel_problem p;
  bs_kernel_bound b;
  bs_error err = BS_ERROR_INIT;
  double percent = 0.0;
  ck_assert_int_eq(bs_kernel_problem_parse(bounds[_i].text, &p, &err), BS_OK);
  bs_kernel_bound_of(&p, &bounds[_i].rates, bounds[_i].launch_s, &b);
  ck_assert_double_eq_tol(b.seconds, bounds[_i].seconds, 1e-12);
  ck_assert_uint_eq(b.binding, bounds[_i].binding);
  ck_assert_double_eq_tol(b.shared_s, b.limit_s[BS_LIMIT_FMA] + b.limit_s[BS_LIMIT_EXP], 1e-15);
  ck_assert_int_eq(bs_kernel_bound_percent(&b, 2.0 * b.seconds, &percent, &err), BS_OK);
  ck_assert_double_eq_tol(percent, 50.0, 1e-9);
  ck_assert_int_eq(bs_kernel_bound_percent(&b, b.seconds, &percent, &err), BS_OK);
  /* Defect (h): above 100 % there is an error in the place of a number. */
  ck_assert_int_eq(bs_kernel_bound_percent(&b, 0.99 * b.seconds, &percent, &err), BS_NUMERIC);
  ck_assert_str_eq(err.id, "BS-KERNEL-BOUND");
  ck_assert(isnan(percent));
  ck_assert_ptr_nonnull(strstr(err.message, bs_kernel_limit_names[b.binding]));
  ck_assert_int_eq(bs_kernel_bound_percent(&b, 0.0, &percent, &err), BS_NUMERIC);
}
END_TEST

START_TEST(test_peaks_of_this_machine_are_numbers) {
  bs_kernel_problem p;
  bs_kernel_peaks r;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kernel_problem_parse("b1h1s64d16:bf16", &p, &err), BS_OK);
  ck_assert_int_eq(bs_kernel_peaks_measure(&p, 1, 0, &r, &err), BS_OK);
  ck_assert(r.flops > 0 && r.exps > 0 && r.bytes > 0 && isfinite(r.flops + r.exps + r.bytes));
  ck_assert_uint_eq(r.threads, 1);
  ck_assert(r.loop[0] != '\0');
}
END_TEST

int main(void) {
  const test_case cases[] = {{test_a_problem_is_read_and_written, TEST_COUNT(right)},
                             {test_a_wrong_problem_is_refused_with_its_place, TEST_COUNT(wrong)},
                             {test_a_problem_is_varied_by_a_word, TEST_COUNT(varied)},
                             {test_shapes_times_dtypes_times_masks},
                             {test_an_empty_selection_is_an_error},
                             {test_work_is_counted_exactly, TEST_COUNT(work)},
                             {test_the_longest_limit_binds, TEST_COUNT(bounds)},
                             {test_peaks_of_this_machine_are_numbers},
                             {0}};
  return run_tests("kernel_problem", cases, (test_setup){0});
}
