/* SPDX-License-Identifier: MIT
 *
 * test_kept_weights.c - masks that are chosen by the weights: the order of magnitudes, the best of the 90
 * tiles against the definition, what cannot be added, the energy that they keep, every dtype; and reads from
 * many threads.
 */
#include <pthread.h>

#include "tests/partition/kept_kit.h"
#include "tests/run_tests.h"

static uint8_t one_group(const char *name, const double *w, int64_t cols) {
  const bs_mask mask = mask_named(name);
  bs_source source = source_of(w, BS_F64, 1, cols);
  const bs_kept *kept = make(&mask, 1, cols, &source, 0);
  uint8_t got;
  read_all(kept, &got);
  bs_kept_free(kept);
  bs_source_release(&source);
  return got;
}

START_TEST(order_of_magnitudes) {
  static const struct {
    double w[4];
    uint8_t want;
  } rows[] = {{{0, 0, 0, 0}, 0x3},
              {{-0.0, 0, -0.0, 0}, 0x3}, /* -0 = 0: the lower index */
              {{1, 1, 1, 1}, 0x3},
              {{0, 1, -1, 1}, 0x6},
              {{3, -5, 4, 1}, 0x6},
              {{1, 2, -INFINITY, 1e308}, 0xC},
              {{-INFINITY, INFINITY, INFINITY, 1}, 0x3},
              {{INFINITY, INFINITY, -NAN, 1}, 0x5}, /* NaN before infinity */
              {{1, NAN, 2, -NAN}, 0xA},
              {{NAN, NAN, NAN, NAN}, 0x3},
              {{5e-324, 0, 1e-308, -5e-324}, 0x5}, /* subnormals count */
              {{1e308, -1.7e308, 1.6e308, 0}, 0x6}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    ck_assert_msg(one_group("magnitude", rows[i].w, 4) == rows[i].want, "row %zu", i);
  static const double three[3] = {0, 0, 0}, one[1] = {2};
  ck_assert_uint_eq(one_group("magnitude", three, 3), 0x3); /* columns beyond the matrix are the last zeros */
  ck_assert_uint_eq(one_group("magnitude", one, 1), 0x3);
}
END_TEST

/* Against the definition: the sums of all 90, straight from the bits. */
START_TEST(transposable_is_the_best_of_ninety) {
  enum { ROWS = 10, COLS = 30 };
  static float data[ROWS * COLS];
  const uint16_t *tiles = bs_kept_tiles();
  uint8_t got[ROWS * 8];
  const bs_mask mask = mask_named("transposable");
  bs_rng_normal((uint64_t)_i, 2, 0, ROWS * COLS, data);
  /* Small integers half of the time: ties, and sums without rounding. */
  for (int i = 0; _i % 2 && i < ROWS * COLS; i++) data[i] = rintf(data[i]);
  bs_source w = source_of(data, BS_F32, ROWS, COLS);
  const bs_kept *kept = make(&mask, ROWS, COLS, &w, 0);
  ck_assert_uint_eq(kept->transposable, 1);
  read_all(kept, got);
  for (int b = 0; b < ROWS; b += 4)
    for (int g = 0; g < 8; g++) {
      double best = -1;
      uint16_t want = 0;
      for (int t = 0; t < BS_TILES; t++) {
        double sum = 0;
        for (int i = 0; i < 16; i++)
          if ((tiles[t] >> i & 1) && b + i / 4 < ROWS && 4 * g + i % 4 < COLS)
            sum += pow((double)data[(b + i / 4) * COLS + 4 * g + i % 4], 2);
        if (sum > best + 1e-12) best = sum, want = tiles[t];
      }
      for (int i = 0; i < 4 && b + i < ROWS; i++)
        ck_assert_uint_eq(got[(b + i) * 8 + g], want >> 4 * i & 0xF);
    }
  bs_kept_free(kept);
  bs_source_release(&w);
}
END_TEST

START_TEST(transposable_with_what_cannot_be_added) {
  double w[16] = {0};
  uint8_t got[4];
  const bs_mask mask = mask_named("transposable");
  w[2] = NAN, w[3] = -INFINITY, w[4] = INFINITY, w[5] = 1.7e308; /* row 0: 0011, row 1: 1100 */
  bs_source source = source_of(w, BS_F64, 4, 4);
  const bs_kept *kept = make(&mask, 4, 4, &source, 0);
  read_all(kept, got);
  ck_assert_uint_eq(got[0], 0xC);
  ck_assert_uint_eq(got[1], 0x3);
  checked(kept, NULL);
  bs_kept_free(kept);
  bs_source_release(&source);
}
END_TEST

/* Energy kept of Gaussian weights. Row-wise: E of the two largest of four squares over four, 0.867. Of blocks
 * 0.822 (simulated elsewhere, three figures). Here 160,000 groups and 40,000 blocks: four standard errors
 * are 0.001 and 0.0012. */
START_TEST(energy_kept) {
  enum { ROWS = 400, COLS = 1600 };
  static float data[ROWS * COLS];
  static uint8_t got[ROWS * COLS / 4];
  const double want = _i == 0 ? 0.8676 : 0.822;
  const bs_mask mask = mask_named(_i == 0 ? "magnitude" : "transposable");
  bs_rng_normal(11, 3, 0, ROWS * COLS, data);
  bs_source w = source_of(data, BS_F32, ROWS, COLS);
  const bs_kept *kept = make(&mask, ROWS, COLS, &w, 0);
  double all = 0, in = 0;
  read_all(kept, got);
  for (int i = 0; i < ROWS * COLS; i++) {
    const double square = (double)data[i] * (double)data[i];
    all += square;
    if (got[i / 4] >> i % 4 & 1) in += square;
  }
  ck_assert_msg(fabs(in / all - want) < 0.0017, "energy kept %.4f, expected %.4f", in / all, want);
  bs_kept_free(kept);
  bs_source_release(&w);
}
END_TEST

/* Positions of a matrix are the same in every dtype that holds it. */
START_TEST(dtype_of_the_source_makes_no_difference) {
  static const uint32_t dtypes[] = {BS_F64, BS_F32, BS_BF16, BS_F16, BS_I32, BS_I8};
  uint8_t want[4 * 2], got[4 * 2], data[32 * 8];
  for (int kind = 0; kind < 2; kind++)
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
      const bs_mask mask = mask_named(kind == 0 ? "magnitude" : "transposable");
      ck_assert_int_eq(bs_convert(dtypes[d], data, BS_F64, K_W, 32), BS_OK);
      bs_source w = source_of(data, dtypes[d], 4, 8);
      const bs_kept *kept = make(&mask, 4, 8, &w, 0);
      read_all(kept, d == 0 ? want : got);
      if (d > 0) ck_assert_mem_eq(want, got, sizeof want);
      bs_kept_free(kept);
      bs_source_release(&w);
    }
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------- */

typedef struct reader {
  const bs_kept *kept;
  uint8_t got[16 * 16];
  int32_t rc;
} reader;

static void *read_everything(void *arg) {
  reader *r = arg;
  r->rc = r->kept->read(r->kept->ctx, 0, 16, 0, 16, r->got, 16, NULL);
  return NULL;
}

/* The ranks of a process read one set at once; the first makes the table of tiles. */
START_TEST(threads_read_the_same) {
  enum { THREADS = 4 };
  static float data[16 * 64];
  static reader readers[THREADS];
  pthread_t threads[THREADS];
  const bs_mask mask = mask_named(_i == 0 ? "transposable" : _i == 1 ? "magnitude" : "random_2of4");
  bs_rng_normal(8, 3, 0, 16 * 64, data);
  bs_source w = source_of(data, BS_F32, 16, 64);
  const bs_kept *kept = make(&mask, 16, 64, &w, 1);
  for (int t = 0; t < THREADS; t++) {
    readers[t].kept = kept;
    ck_assert_int_eq(pthread_create(&threads[t], NULL, read_everything, &readers[t]), 0);
  }
  for (int t = 0; t < THREADS; t++) {
    ck_assert_int_eq(pthread_join(threads[t], NULL), 0);
    ck_assert_int_eq(readers[t].rc, BS_OK);
    ck_assert_mem_eq(readers[t].got, readers[0].got, sizeof readers[0].got);
  }
  bs_kept_free(kept);
  bs_source_release(&w);
}
END_TEST

int main(void) {
  const test_case tests[] = {{order_of_magnitudes},
                             {transposable_is_the_best_of_ninety, 6},
                             {transposable_with_what_cannot_be_added},
                             {energy_kept, 2},
                             {dtype_of_the_source_makes_no_difference},
                             {threads_read_the_same, 3},
                             {0}};
  return run_tests("kept_weights", tests, (test_setup){0});
}
