/* SPDX-License-Identifier: MIT
 * test_mask_keys.c - mask.shares, mask.speeds and mask.importance: what a layer is handed, the order of
 * columns against a plain computation of their norms, the files that it may come from, and what is refused.
 */
#include <math.h>

#include "formats/npy.h"
#include "lab/config/experiment.h"
#include "lab/lab.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static bs_context *context;
static const char *dir;

static void setup(void) {
  bs_error err = BS_ERROR_INIT;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context_options options = {.struct_size = sizeof options, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  options.n_plugin_dirs = dirs[0] != NULL;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
  dir = scratch_dir();
}

static void teardown(void) {
  bs_context_close(context);
  remove_dir(dir);
}

#define LAYER "method: {name: blockshock}\nmodel: {N: 37, K: 50, B: 6, dtype: bf16}\n"

static bs_experiment make(const char *mask, bs_notes *notes) {
  char yaml[4096];
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  snprintf(yaml, sizeof yaml, LAYER "mask: {%s}\n", mask);
  ck_assert_msg(bs_experiment_make(context, parse_tree(yaml), NULL, notes, &e, &err) == BS_OK, "%s: %s", mask,
                err.message);
  return e;
}

static void no_layer(const char *mask, int32_t code, const char *id, const char *text) {
  char yaml[4096];
  bs_error err = BS_ERROR_INIT;
  bs_experiment e;
  bs_subject s = {0};
  snprintf(yaml, sizeof yaml, LAYER "mask: {%s}\n", mask);
  int32_t rc = bs_experiment_make(context, parse_tree(yaml), NULL, NULL, &e, &err);
  if (rc == BS_OK) {
    rc = bs_subject_open(context, &e, &s, &err);
    if (rc == BS_OK) bs_subject_close(&s);
    bs_experiment_free(&e);
  }
  ck_assert_msg(rc == code && strcmp(err.id, id) == 0 && strstr(err.message, text) != NULL, "%s: %d %s %s",
                mask, rc, err.id, err.message);
}

START_TEST(shares_and_speeds) {
  static const char *const masks[] = {"name: uneven, shares: [3, 1]", "name: uneven, speeds: [3, 1]",
                                      "name: importance, shares: [3, 1]", "name: importance, speeds: [3, 1]"};
  for (int i = 0; i < 4; i++) {
    bs_notes notes = {0};
    bs_experiment e = make(masks[i], &notes);
    ck_assert_uint_eq(e.mask.kind, i < 2 ? BS_MASK_UNEVEN : BS_MASK_IMPORTANCE);
    ck_assert_uint_eq(e.mask.n_shares, 2);
    ck_assert(e.mask.shares[0] == 3 && e.mask.shares[1] == 1);
    ck_assert_uint_eq(e.mask_given, 1);
    ck_assert_uint_eq(notes.count, 0);
    bs_experiment_free(&e);
    bs_notes_free(&notes);
  }
  bs_notes notes = {0};
  bs_experiment e = make("name: contiguous, shares: [3, 1], speeds: [2, 1], importance: inputs", &notes);
  ck_assert_ptr_null(e.mask.shares);
  ck_assert_ptr_null(e.importance);
  ck_assert_uint_eq(notes.count, 3);
  ck_assert_ptr_nonnull(strstr(notes.items[1], "mask.speeds has no effect on the mask contiguous"));
  bs_experiment_free(&e);
  bs_notes_free(&notes);
  no_layer("name: uneven, shares: [3, 1], speeds: [3, 1]", BS_CONFIG, "BS-CFG-SHARES", "set the same thing");
  no_layer("name: uneven, speeds: fast", BS_CONFIG, "BS-CFG-TYPE", "mask.speeds");
}
END_TEST

/* The order is a permutation in which `value` never rises; equals keep their own order. */
static void check_order(const bs_subject *s, const double *value) {
  const uint32_t *order = s->spec.mask->order;
  uint8_t seen[50] = {0};
  ck_assert_ptr_eq(s->spec.mask, &s->mask);
  ck_assert_int_eq(s->mask.n_order, 50);
  for (int i = 0; i < 50; i++) {
    ck_assert_uint_lt(order[i], 50);
    ck_assert_uint_eq(seen[order[i]]++, 0);
    if (i == 0) continue;
    ck_assert(value[order[i]] < value[order[i - 1]] ||
              (value[order[i]] == value[order[i - 1]] && order[i] > order[i - 1]));
  }
}

static void norms(const bs_source *source, double *out) {
  static double all[64 * 50];
  ck_assert_int_eq(source->read(source->ctx, 0, source->rows, NULL, BS_F64, all, 50, NULL), BS_OK);
  memset(out, 0, 50 * sizeof *out);
  for (int64_t r = 0; r < source->rows; r++)
    for (int k = 0; k < 50; k++) out[k] += all[r * 50 + k] * all[r * 50 + k];
}

START_TEST(order_by_norms) {
  static const char *const masks[] = {"name: importance", "name: importance, importance: weights",
                                      "name: importance, importance: inputs"};
  uint32_t first[50];
  for (int i = 0; i < 3; i++) {
    bs_experiment e = make(masks[i], NULL);
    bs_subject s;
    bs_error err = BS_ERROR_INIT;
    double value[50];
    ck_assert_msg(bs_subject_open(context, &e, &s, &err) == BS_OK, "%s", err.message);
    norms(i < 2 ? &s.w : &s.x, value);
    check_order(&s, value);
    if (i == 0) memcpy(first, s.order, sizeof first);
    ck_assert_int_eq(memcmp(first, s.order, sizeof first) == 0, i < 2);
    bs_subject_close(&s);
    bs_experiment_free(&e);
  }
}
END_TEST

static void write_numbers(const char *name, uint32_t dtype, int64_t n, const double *values) {
  char path[600];
  unsigned char data[64 * 8];
  ck_assert_int_eq(bs_convert(dtype, data, BS_F64, values, (uint64_t)n), BS_OK);
  snprintf(path, sizeof path, "%s/%s", dir, name);
  ck_assert_int_eq(bs_npy_write(path, dtype, 1, &n, data, NULL), BS_OK);
}

START_TEST(order_by_a_file) {
  static const uint32_t dtypes[] = {BS_F64, BS_F32, BS_F16, BS_I64, BS_I8};
  double value[50];
  char mask[700];
  for (int k = 0; k < 50; k++) value[k] = k * 37 % 23 - 11; /* with equals */
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    bs_subject s;
    write_numbers("by.npy", dtypes[i], 50, value);
    snprintf(mask, sizeof mask, "name: importance, importance: %s/by.npy", dir);
    bs_experiment e = make(mask, NULL);
    ck_assert_msg(bs_subject_open(context, &e, &s, &err) == BS_OK, "%s", err.message);
    check_order(&s, value);
    bs_subject_close(&s);
    bs_experiment_free(&e);
  }
}
END_TEST

START_TEST(wrong_files) {
  double value[64] = {0};
  char mask[700];
  snprintf(mask, sizeof mask, "name: importance, importance: %s/x.npy", dir);
  no_layer(mask, BS_INPUT, "BS-NPY-READ", "cannot be opened");
  write_text(dir, "x.npy", "no numbers");
  no_layer(mask, BS_INPUT, "BS-NPY-MAGIC", "");
  write_numbers("x.npy", BS_F32, 49, value);
  no_layer(mask, BS_INPUT, "BS-CFG-IMPORTANCE", "49 numbers in 1 dimension, the layer has 50 columns");
  write_numbers("x.npy", BS_F32, 51, value);
  no_layer(mask, BS_INPUT, "BS-CFG-IMPORTANCE", "51 numbers");
  value[7] = NAN;
  write_numbers("x.npy", BS_F32, 50, value);
  no_layer(mask, BS_INPUT, "BS-CFG-IMPORTANCE", "column 7 is nan");
  value[7] = -INFINITY;
  write_numbers("x.npy", BS_F64, 50, value);
  no_layer(mask, BS_INPUT, "BS-CFG-IMPORTANCE", "column 7 is -inf");
  const int64_t dims[2] = {5, 10};
  char path[600];
  snprintf(path, sizeof path, "%s/x.npy", dir);
  value[7] = 0;
  ck_assert_int_eq(bs_npy_write(path, BS_F64, 2, dims, value, NULL), BS_OK);
  no_layer(mask, BS_INPUT, "BS-CFG-IMPORTANCE", "50 numbers in 2 dimensions");
}
END_TEST

int main(void) {
  const test_case tests[] = {{shares_and_speeds}, {order_by_norms}, {order_by_a_file}, {wrong_files}, {0}};
  return run_tests("mask_keys", tests, (test_setup){setup, teardown});
}
