/* SPDX-License-Identifier: MIT
 * test_samples.c - samples.bin: what is written is read, and every flipped bit and every cut is seen. */
#include "lab/store/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "tests/run_tests.h"

enum { ROWS = 5, RECORD = 52 + 8 * 2 };

static uint8_t *make(size_t *out_size) {
  bs_samples hot = {0}, cold = {0};
  bs_error err = BS_ERROR_INIT;
  void *data;
  for (uint32_t i = 0; i < ROWS; i++) {
    const bs_sample_row row = {.t = 1.5 + i,
                               .seconds = 1e-3 * (i + 1),
                               .cpu_ns = 12345678901 + i,
                               .arm = (uint16_t)(i % 2),
                               .flags = i < 3 ? BS_SAMPLE_HOT : BS_SAMPLE_COLD | BS_SAMPLE_DISCARDED,
                               .pair = i / 2,
                               .rebuild = 3,
                               .calls = 420,
                               .switches = i,
                               .steal = 7,
                               .ranks = i % 2 == 0 ? 2 : 1,
                               .rank_seconds = {1e-3, 2e-3}};
    ck_assert(bs_samples_add(i < 3 ? &hot : &cold, &row));
  }
  const bs_samples *const lists[] = {&hot, &cold};
  ck_assert_int_eq(bs_samples_encode(lists, 2, 2, &data, out_size, &err), BS_OK);
  bs_samples_free(&hot);
  bs_samples_free(&cold);
  return data;
}

START_TEST(what_is_written_is_read) {
  size_t size;
  bs_error err = BS_ERROR_INIT;
  bs_samples read = {0};
  uint8_t *data = make(&size);
  ck_assert_uint_eq(size, 64 + ROWS * RECORD);
  ck_assert_int_eq(bs_samples_decode(data, size, &read, &err), BS_OK);
  ck_assert_uint_eq(read.n, ROWS);
  const bs_sample_row *row = &read.row[4];
  ck_assert_double_eq(row->t, 5.5);
  ck_assert_double_eq(row->seconds, 1e-3 * 5);
  ck_assert_uint_eq(row->cpu_ns, 12345678905);
  ck_assert_uint_eq(row->flags, BS_SAMPLE_COLD | BS_SAMPLE_DISCARDED);
  ck_assert_uint_eq(row->calls, 420);
  ck_assert_uint_eq(row->steal, 7);
  ck_assert_uint_eq(row->ranks, 2);
  ck_assert_double_eq(row->rank_seconds[1], 2e-3);
  ck_assert_uint_eq(read.row[1].ranks, 1); /* an arm of fewer ranks */
  ck_assert(isnan(read.row[1].rank_seconds[1]));
  bs_samples_free(&read);
  free(data);
}
END_TEST

START_TEST(every_flipped_bit_and_every_cut_is_seen) {
  size_t size;
  uint8_t *data = make(&size);
  for (size_t bit = 0; bit < 8 * size; bit++) {
    bs_error err = BS_ERROR_INIT;
    bs_samples read = {0};
    if (bit / 8 >= 20 && bit / 8 < 24) continue; /* the number of arms, which nothing is read by */
    data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    ck_assert_msg(bs_samples_decode(data, size, &read, &err) == BS_CORRUPT, "bit %zu", bit);
    data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    bs_samples_free(&read);
  }
  for (size_t cut = 0; cut < size; cut++) {
    bs_error err = BS_ERROR_INIT;
    bs_samples read = {0};
    const int32_t rc = bs_samples_decode(data, cut, &read, &err);
    ck_assert_int_eq(
        rc, cut >= 64 && (cut - 64) % RECORD == 0 ? BS_OK : BS_CORRUPT); /* DONE has the size's sum */
    bs_samples_free(&read);
  }
  free(data);
}
END_TEST

int main(void) {
  const test_case tests[] = {{what_is_written_is_read}, {every_flipped_bit_and_every_cut_is_seen}, {0}};
  return run_tests("samples", tests, (test_setup){0});
}
