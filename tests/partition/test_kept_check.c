/* SPDX-License-Identifier: MIT
 *
 * test_kept_check.c - kept sets that are wrong are found and named; every refusal of bs_kept_make and of a
 * read.
 */
#include "tests/partition/kept_kit.h"
#include "tests/run_tests.h"

typedef struct given_set {
  uint8_t bytes[4 * 2];
  int32_t rc;
} given_set;

static int32_t read_given(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                          int64_t stride, bs_error *err) {
  const given_set *s = ctx;
  if (s->rc != BS_OK) return bs_error_set(err, s->rc, "BS-TEST-READ", "no");
  for (int64_t r = 0; r < nrows; r++)
    memcpy(out + r * stride, s->bytes + (row + r) * 2 + group, (size_t)ngroups);
  return BS_OK;
}

static void check_fails(const given_set *a, const given_set *b, uint32_t transposable, const char *id,
                        const char *text) {
  const bs_kept x = {sizeof x, transposable, 4, 8, (void *)(uintptr_t)a, read_given};
  const bs_kept y = {sizeof y, 0, 4, 8, (void *)(uintptr_t)b, read_given};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_ne(bs_kept_check(&x, b == NULL ? NULL : &y, &err), BS_OK);
  ck_assert_str_eq(err.id, id);
  ck_assert_msg(strstr(err.message, text) != NULL, "%s", err.message);
}

START_TEST(wrong_sets_are_found) {
  const given_set good = {{0x3, 0xC, 0xC, 0x3, 0x5, 0xA, 0xA, 0x5}, BS_OK};
  given_set a = good, b;
  for (int i = 0; i < 8; i++) b.bytes[i] = (uint8_t)(good.bytes[i] ^ 0xF);
  b.rc = BS_OK;
  const bs_kept x = {sizeof x, 1, 4, 8, &a, read_given}, y = {sizeof y, 1, 4, 8, &b, read_given};
  checked(&x, &y);
  a.bytes[5] = 0x7;
  check_fails(&a, NULL, 0, "BS-MASK-2OF4", "row 2, columns 4 to 7 keep 1110");
  a.bytes[5] = 0x30; /* two bits, but not of the four */
  check_fails(&a, NULL, 0, "BS-MASK-2OF4", "row 2, columns 4 to 7 keep 00001100");
  a.bytes[5] = 0x0;
  check_fails(&a, &b, 0, "BS-MASK-2OF4", "keep 0000");
  a.bytes[5] = 0x3; /* the other half has 0x5 */
  check_fails(&a, &b, 0, "BS-MASK-COMPLEMENT", "row 2, column 4 is in each half");
  check_fails(&a, NULL, 1, "BS-MASK-TILE", "column 4 keeps 3 of the rows 0 to 3");
  a = good;
  b.bytes[7] = 0x1;
  check_fails(&a, &b, 0, "BS-MASK-2OF4", "row 3, columns 4 to 7 keep 1000");
  a.rc = BS_IO;
  check_fails(&a, &b, 0, "BS-TEST-READ", "no");
  const bs_kept narrow = {sizeof narrow, 0, 4, 4, &b, read_given};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kept_check(&x, &narrow, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-MASK-COMPLEMENT");
}
END_TEST

/* What the host hands to the ops instead of a method's set. */
START_TEST(a_guarded_set_is_checked_as_it_is_read) {
  given_set set = {{0x3, 0xC, 0xC, 0x3, 0x5, 0xA, 0x7, 0x5}, BS_OK};
  const bs_kept x = {sizeof x, 1, 4, 8, &set, read_given};
  bs_kept_guard guard;
  bs_error err = BS_ERROR_INIT;
  uint8_t got[4 * 3];
  memset(got, 0xEE, sizeof got);
  bs_kept_guard_init(&guard, &x);
  const bs_kept *k = &guard.kept;
  ck_assert(k->rows == 4 && k->cols == 8 && k->transposable == 1);
  ck_assert_int_eq(k->read(k->ctx, 0, 3, 0, 2, got, 3, &err), BS_OK);
  ck_assert(got[0] == 0x3 && got[1] == 0xC && got[2] == 0xEE && got[3] == 0xC && got[7] == 0xA);
  ck_assert_int_eq(k->read(k->ctx, 3, 1, 1, 1, got, 3, &err), BS_OK); /* beside the wrong one */
  ck_assert_int_eq(k->read(k->ctx, 2, 2, 0, 1, got, 3, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-MASK-2OF4");
  ck_assert_ptr_nonnull(strstr(err.message, "row 3, columns 0 to 3 keep 1110"));
  set.rc = BS_IO;
  ck_assert_int_eq(k->read(k->ctx, 0, 1, 0, 1, got, 3, &err), BS_IO);
}
END_TEST

static void refused(const bs_mask *mask, int64_t rows, int64_t cols, const bs_source *w, uint32_t half,
                    int32_t code, const char *id) {
  const bs_kept *kept = (const bs_kept *)(uintptr_t)1;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kept_make(mask, rows, cols, w, half, &kept, &err), code);
  ck_assert_str_eq(err.id, id);
  ck_assert_ptr_null(kept);
}

static int32_t no_rows(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                       void *out, int64_t stride, bs_error *err) {
  (void)ctx, (void)row, (void)nrows, (void)cols, (void)dtype, (void)out, (void)stride;
  return bs_error_set(err, BS_IO, "BS-TEST-READ", "the file is gone");
}

START_TEST(refusals) {
  bs_mask mask = mask_named("random_2of4");
  refused(&mask, -1, 4, NULL, 0, BS_CONFIG, "BS-MASK-SIZE");
  refused(&mask, 4, -1, NULL, 0, BS_CONFIG, "BS-MASK-SIZE");
  refused(&mask, 4, INT64_C(1) << 33, NULL, 0, BS_CONFIG, "BS-MASK-SIZE");
  refused(&mask, 4, 4, NULL, 2, BS_INVALID_ARGUMENT, "BS-MASK-ARG");
  ck_assert_int_eq(bs_kept_make(&mask, 4, 4, NULL, 0, NULL, NULL), BS_INVALID_ARGUMENT);
  refused(NULL, 4, 4, NULL, 0, BS_INVALID_ARGUMENT, "BS-MASK-NAME");
  mask = mask_named("1100");
  mask.pattern_b = 0x3;
  refused(&mask, 4, 4, NULL, 0, BS_CONFIG, "BS-MASK-COMPLEMENT");
  mask = mask_named("contiguous");
  refused(&mask, 4, 4, NULL, 0, BS_UNSUPPORTED, "BS-MASK-HALVES");
  mask = mask_named("interleave");
  refused(&mask, 4, 4, NULL, 0, BS_UNSUPPORTED, "BS-MASK-HALVES");
  bs_source w = source_of(K_W, BS_F64, 4, 8);
  for (int i = 0; i < 2; i++) {
    mask = mask_named(i == 0 ? "magnitude" : "transposable");
    refused(&mask, 4, 8, NULL, 0, BS_INVALID_ARGUMENT, "BS-MASK-WEIGHTS");
    refused(&mask, 4, 4, &w, 0, BS_INVALID_ARGUMENT, "BS-MASK-WEIGHTS");
    refused(&mask, 8, 8, &w, 0, BS_INVALID_ARGUMENT, "BS-MASK-WEIGHTS");
    bs_source broken = w;
    broken.read = no_rows;
    const bs_kept *kept = make(&mask, 4, 8, &broken, 1);
    uint8_t got[8];
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(kept->read(kept->ctx, 0, 4, 0, 2, got, 2, &err), BS_IO);
    ck_assert_str_eq(err.id, "BS-TEST-READ");
    ck_assert_int_eq(kept->read(kept->ctx, 0, 5, 0, 2, got, 2, &err), BS_INVALID_ARGUMENT);
    ck_assert_str_eq(err.id, "BS-MASK-RANGE");
    ck_assert_int_eq(kept->read(kept->ctx, 0, 4, 1, 2, got, 2, &err), BS_INVALID_ARGUMENT);
    bs_kept_free(kept);
  }
  bs_source_release(&w);
  bs_kept_free(NULL);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {wrong_sets_are_found}, {a_guarded_set_is_checked_as_it_is_read}, {refusals}, {0}};
  return run_tests("kept_check", tests, (test_setup){0});
}
